/* Kernels that sort (token, expert) pairs by expert (struct route_args), for
 * contractions of many rows of activations. Three launches follow one another:
 * route_keys, route_places, route_blocks. */

/* Computes the key of each of n_tok * n_used pairs; a lane computes one. No
 * shared memory. */
KERNEL(route_keys, struct route_args, 256)
{
    s32 i = GROUP() * 256 + LANE();

    if (i < a.n_pair) {
        GLOBAL const s32 *id = AT(const s32, a.id) + i - i % a.n_used;
        s32 u = i % a.n_used, mine = id[u], step = 0, n = 0;
        s32 there = mine >= 0 && mine < a.n_matrix, key;

        for (s32 v = 0; v < a.n_used && a.mode == CONTRACT_DOWN; v++) {
            s32 e = id[v];

            if (e < 0 || e >= a.n_matrix)
                continue;
            n++;
            step += e < mine || (e == mine && v < u);
        }
        key = step * (a.n_matrix + 1) + mine;
        if (!there)
            key = a.mode == CONTRACT_DOWN && (n > 0 || u > 0) ? -1 : a.n_matrix;
        AT(s32, a.key)[i] = key;
    }
}

/* Finds where the pairs with one key begin in the sorted list, and writes these
 * pairs there, ascending. A work group has one key; a lane counts in adjacent
 * pairs. Shared memory: the lanes' counts. */
KERNEL(route_places, struct route_args, 256)
{
    LOCAL_ARRAY(s32, below, 256);
    LOCAL_ARRAY(s32, equal, 256);
    GLOBAL const s32 *key = AT(const s32, a.key);
    GLOBAL s32 *list = AT(s32, a.list);
    s32 id = LANE(), mine = GROUP(), each = (a.n_pair + 255) / 256;
    s32 lo = id * each, hi = lo + each < a.n_pair ? lo + each : a.n_pair;
    s32 n_below = 0, n_equal = 0, start = 0, n = 0, at = 0;

    for (s32 i = lo; i < hi; i++) {
        n_below += key[i] >= 0 && key[i] < mine;
        n_equal += key[i] == mine;
    }
    below[id] = n_below;
    equal[id] = n_equal;
    BARRIER();
    for (s32 i = 0; i < 256; i++) {
        start += below[i];
        n += equal[i];
        at += i < id ? equal[i] : 0;
    }
    at += start;
    for (s32 i = lo; i < hi && n_equal > 0; i++)
        if (key[i] == mine)
            list[at++] = i;
    if (id == 0) {
        AT(s32, a.start)[mine] = start;
        AT(s32, a.start)[a.n_key + mine] = n;
    }
}

/* Divides the pairs of each key into blocks of up to MANY_TOKENS. There is one
 * work group; a lane has adjacent keys. Shared memory: the lanes' counts. */
KERNEL(route_blocks, struct route_args, 256)
{
    LOCAL_ARRAY(s32, count, 256);
    GLOBAL const s32 *start = AT(const s32, a.start);
    s32 id = LANE(), each = (a.n_key + 255) / 256, n = 0, at = 0;
    s32 lo = id * each, hi = lo + each < a.n_key ? lo + each : a.n_key;

    for (s32 i = lo; i < hi; i++)
        n += (start[a.n_key + i] + MANY_TOKENS - 1) / MANY_TOKENS;
    count[id] = n;
    BARRIER();
    for (s32 i = 0; i < id; i++)
        at += count[i];
    for (s32 i = lo; i < hi; i++) {
        s32 matrix = i % (a.n_matrix + 1), all = start[a.n_key + i];

        if (matrix == 0)
            AT(s32, a.head)[i / (a.n_matrix + 1)] = at;
        for (s32 j = 0; j < all; j += MANY_TOKENS, at++) {
            GLOBAL s32 *b = AT(s32, a.block) + 3 * at;

            b[0] = matrix;
            b[1] = start[i] + j;
            b[2] = all - j < MANY_TOKENS ? all - j : MANY_TOKENS;
        }
        if (i + 1 == a.n_key)
            AT(s32, a.head)[a.n_step] = at;
    }
}
