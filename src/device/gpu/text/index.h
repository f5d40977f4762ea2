/* Kernels that choose the positions to which attention attends, and that gather
 * them. Rules and orders of operations are those of
 * device/cpu/cpu_index_template.h. */

/* Returns an unsigned integer of the same order as the scores; 0 for NaN. */
DEV u32 index_rank(float score)
{
    u32 b = float_bits(score);

    return score != score ? 0 : b >> 31 ? ~b : b | 0x80000000u;
}

/* Computes ranks of scores of a token (struct index_args), for a span of 256
 * positions. A token that attends to all positions has none.
 *
 * Lanes: a position each, for INDEX_HEADS heads at a time. Shared memory:
 * INDEX_CHUNK values of these heads' queries. Order of sums: products over
 * ascending values of a key, one chain of fma; heads ascending, one chain. */
KERNEL(index_score, struct index_args, 256)
{
    LOCAL_ARRAY(struct quad, q_quads, INDEX_CHUNK * INDEX_HEADS / 4);
    LOCAL float *q = (LOCAL float *)q_quads;
    s32 id = LANE(), g = GROUP(), t = a.first + g / a.n_span;
    s32 u = g % a.n_span * 256 + id;
    s32 n = (AT(const s32, a.pos)[t] + 1) / a.ratio;
    s32 at = (u + 1) * a.ratio - 1; /* position of the key */
    s32 used = (n - 1) / a.block >= a.k && g % a.n_span * 256 < n;
    s32 seen = used && u < n;
    GLOBAL const float *query = AT(const float, a.q) + (s64)t * a.n_head * a.d;
    GLOBAL const float *w = AT(const float, a.w) + (s64)t * a.n_head;
    GLOBAL const u8 *tile = AT(const u8, a.keys);
    GLOBAL u32 *rank =
        AT(u32, a.score) + (s64)(t - a.first) * a.n_row * a.n_pos + u;
    float score = 0;

    if (!used)
        return;
    if (seen)
        tile += AT(const s32, a.pages)[AT(const s32, a.seq)[t] * a.page_stride +
                                       at / TEXT_PAGE] *
                a.key_bytes;
    for (s32 h0 = 0; h0 < a.n_head; h0 += INDEX_HEADS) {
        s32 heads = a.n_head - h0 < INDEX_HEADS ? a.n_head - h0 : INDEX_HEADS;
        float s[INDEX_HEADS];

        UNROLL
        for (s32 r = 0; r < INDEX_HEADS; r++)
            s[r] = 0;
        for (s32 i0 = 0; i0 < a.d; i0 += INDEX_CHUNK) {
            s32 some = a.d - i0 < INDEX_CHUNK ? a.d - i0 : INDEX_CHUNK;

            BARRIER();
            for (s32 k = id; k < INDEX_CHUNK * INDEX_HEADS; k += 256) {
                s32 r = k / INDEX_CHUNK, i = k % INDEX_CHUNK;

                q[i * INDEX_HEADS + r] =
                    r < heads && i < some ? query[(s64)(h0 + r) * a.d + i0 + i]
                                          : 0;
            }
            BARRIER();
            for (s32 i = 0; i < some && seen; i++)
                add_rows(s, INDEX_HEADS, q + i * INDEX_HEADS,
                         tile_value(tile, a.key_format, 0, a.d, at % TEXT_PAGE,
                                    i0 + i,
                                    tile_scale(tile, a.key_format, 0, a.d,
                                               at % TEXT_PAGE, i0 + i)));
        }
        UNROLL
        for (s32 r = 0; r < INDEX_HEADS; r++)
            if (r < heads && a.best && seen)
                rank[(h0 + r) * a.n_pos] = index_rank(add_(s[r], 0));
            else if (r < heads && !a.best)
                score = fma_(w[h0 + r], max_(s[r], 0), score);
    }
    if (seen && !a.best)
        rank[0] = index_rank(add_(score, 0));
}

/* Computes the ranks of blocks (struct index_args): the largest of a block's
 * positions up to the token's own. The last a.local blocks are above all.
 *
 * Lanes: a block each. No shared memory. */
KERNEL(index_fold, struct index_args, 256)
{
    s32 groups = (s32)((a.n_block + 255) / 256), row = GROUP() / groups;
    s32 b = GROUP() % groups * 256 + LANE();
    s32 pos = AT(const s32, a.pos)[a.first + row / a.n_row];
    s32 own = pos / a.block, end = pos + 1;
    GLOBAL const u32 *rank = AT(const u32, a.score) + (s64)row * a.n_pos;
    u32 top = own - b < a.local ? 0xffffffffu : 0;

    if (own < a.k || b > own)
        return;
    if (b < own)
        end = (b + 1) * a.block;
    for (s32 u = b * a.block; u < end; u++)
        top = rank[u] > top ? rank[u] : top;
    AT(u32, a.best)[(s64)row * a.n_block + b] = top;
}

/* Chooses the positions of a token, or the blocks of a row (struct index_args),
 * by their ranks: finds the k-th largest four bits at a time, then writes those
 * above it, and the first of those equal to it.
 *
 * Lanes: every 256th position where they count, adjacent ones where they write.
 * Shared memory: the lanes' counts. */
KERNEL(index_choose, struct index_args, 256)
{
    LOCAL_ARRAY(s32, count, 16 * 256);
    LOCAL_ARRAY(s32, sum, 16);
    s32 id = LANE(), row = GROUP(), t = a.first + row / a.n_row;
    s32 n = ((AT(const s32, a.pos)[t] + 1) / a.ratio - 1) / a.block + 1;
    s32 each = (n + 255) / 256, lo = id * each < n ? id * each : n;
    s32 hi = lo + each < n ? lo + each : n, need = a.k, all = n <= a.k;
    s32 above = 0, equal = 0, at = 0, taken = 0;
    GLOBAL const u32 *rank = a.best ? AT(const u32, a.best) + row * a.n_block
                                    : AT(const u32, a.score) + row * a.n_pos;
    GLOBAL s32 *out = AT(s32, a.out) + ((s64)a.first * a.n_row + row) * a.k;
    u32 least = 0;

    for (s32 i = id; all && i < a.k; i += 256)
        out[i] = i < n ? i : -1;
    if (all)
        return;
    for (s32 shift = 28; shift >= 0; shift -= 4) {
        s32 mine[16], digit = 15;

        UNROLL
        for (s32 k = 0; k < 16; k++)
            mine[k] = 0;
        for (s32 u = id; u < n; u += 256) {
            u32 x = rank[u], d = x >> shift & 15;

            /* a shift by 32 is not defined */
            if (shift < 28 && x >> (shift + 4) != least >> (shift + 4))
                continue;
            UNROLL
            for (s32 k = 0; k < 16; k++)
                mine[k] += d == (u32)k;
        }
        UNROLL
        for (s32 k = 0; k < 16; k++)
            count[k * 256 + id] = mine[k];
        BARRIER();
        if (id < 16) {
            sum[id] = 0;
            for (s32 i = 0; i < 256; i++)
                sum[id] += count[id * 256 + i];
        }
        BARRIER();
        while (digit > 0 && sum[digit] < need)
            need -= sum[digit--];
        least |= (u32)digit << shift;
        BARRIER();
    }
    for (s32 u = lo; u < hi; u++) {
        u32 x = rank[u];

        above += x > least;
        equal += x == least;
    }
    count[id] = above;
    count[256 + id] = equal;
    BARRIER();
    for (s32 i = 0; i < id; i++) {
        at += count[i];
        taken += count[256 + i];
    }
    at += taken < need ? taken : need;
    for (s32 u = lo; u < hi; u++) {
        u32 x = rank[u];

        if (x > least || (x == least && taken++ < need))
            out[at++] = u;
    }
}

/* Copies a plane's bytes of the positions of a page, for all heads. */
DEV void chosen_copy(GLOBAL u8 *to, GLOBAL const u8 *from, s32 bytes, s32 unit,
                     s32 id)
{
    for (s32 i = id * unit; i < bytes; i += 32 * unit) {
        if (unit == 4)
            *(GLOBAL u32 *)(to + i) = *(GLOBAL const u32 *)(from + i);
        else
            *(GLOBAL u16 *)(to + i) = *(GLOBAL const u16 *)(from + i);
    }
}

/* Copies chosen positions, or a window and blocks (struct chosen_args). Lanes:
 * 32 for a position. No shared memory. */
KERNEL(chosen_gather, struct chosen_args, 256)
{
    s32 id = LANE(), own = GROUP() / a.n_page, page = GROUP() % a.n_page;
    s32 t = a.first + own, pos = AT(const s32, a.pos)[t];
    /* positions of the window; number of those after it */
    s32 near = a.ratio == 0 ? 0 : pos < a.window ? pos + 1 : a.window;
    s32 n = a.ratio == 0 ? pos + 1 : (pos + 1) / a.ratio;
    s32 all = !a.chosen || n <= a.k, last = near + (all ? n : a.k) - 1;
    GLOBAL const s32 *pages =
        AT(const s32, a.pages) + AT(const s32, a.seq)[t] * a.page_stride;
    GLOBAL const s32 *chosen = AT(const s32, a.chosen) + (s64)t * a.k;

    if (id == 0) {
        AT(s32, a.to_pages)[own * a.n_page + page] = own * a.n_page + page;
        AT(s32, a.to_pos)[t] = last;
        AT(s32, a.to_seq)[t] = own;
    }
    for (s32 j = id / 32; j < TEXT_PAGE && page * TEXT_PAGE + j <= last;
         j += 8) {
        s32 i = page * TEXT_PAGE + j, u = i - near;
        u64 cache = a.cache;

        if (u < 0) {
            u = pos - near + 1 + i;
        } else {
            u = all ? u : within(chosen[u], 0, n - 1);
            cache = a.ratio == 0 ? cache : a.blocks;
            u = a.ratio == 0 ? u : (u + 1) * a.ratio - 1;
        }

        UNROLL_NONE
        for (s32 kv = 0; kv < a.n_kv; kv++) {
            GLOBAL u8 *to =
                AT(u8, a.to) +
                (((s64)own * a.n_page + page) * a.n_kv + kv) * a.tile_bytes;
            GLOBAL const u8 *from =
                AT_HELD(const u8, cache) +
                (pages[u / TEXT_PAGE] * (s64)a.n_kv + kv) * a.tile_bytes;

            UNROLL_NONE
            for (s32 p = 0; p < a.n_plane; p++)
                chosen_copy(to + a.plane[p] + j * a.bytes[p],
                            from + a.plane[p] + u % TEXT_PAGE * a.bytes[p],
                            a.bytes[p], a.unit, id % 32);
        }
    }
}

/* Returns chosen position i of a row of a token at position `pos`. */
DEV s32 blocks_position(GLOBAL const s32 *chosen, s32 block, s32 pos, s32 i)
{
    s32 u = within(chosen[i / block], 0, pos / block) * block + i % block;

    return u < pos ? u : pos;
}

/* Lays out chosen blocks (struct blocks_args). A token that attends to all of
 * its blocks has them all. Lanes: a position each of 64, and every fourth
 * element of a plane. No shared memory. */
KERNEL(blocks_gather, struct blocks_args, 256)
{
    s32 id = LANE(), page = GROUP() % a.n_page,
        kv = GROUP() / a.n_page % a.n_kv;
    s32 own = GROUP() / a.n_page / a.n_kv, t = a.first + own;
    s32 pos = AT(const s32, a.pos)[t], all = pos / a.block < a.k;
    s32 last = pos, i = page * TEXT_PAGE + id % TEXT_PAGE, u, tile;
    GLOBAL const s32 *pages =
        AT(const s32, a.pages) + AT(const s32, a.seq)[t] * a.page_stride;
    GLOBAL const s32 *chosen =
        AT(const s32, a.chosen) + ((s64)t * a.n_kv + kv) * a.k;

    if (!all)
        last = blocks_position(chosen, a.block, pos, (a.k - 1) * a.block) /
                           a.block ==
                       pos / a.block
                   ? (a.k - 1) * a.block + pos % a.block
                   : a.k * a.block - 1;
    tile = (own * a.n_kv + kv) * a.n_page + page;
    if (!a.copies && page * TEXT_PAGE <= last) {
        u = page * TEXT_PAGE;
        if (!all)
            u = blocks_position(chosen, a.block, pos, u);
        tile = pages[u / TEXT_PAGE] * a.n_kv + kv;
    }
    for (s32 g = id; g < a.n_group; g += 256) {
        s64 at = (s64)t * a.n_group + g;

        if ((a.per_kv ? g : AT(const s32, a.head_map)[g]) != kv)
            continue;
        AT(s32, a.to_pages)
        [((s64)own * a.n_group + g) * a.n_page + page] = tile;
        AT(s32, a.to_pos)[at] = last;
        AT(s32, a.to_seq)[at] = own * a.n_group + g;
    }
    if (!a.copies || i > last)
        return;
    u = all ? i : blocks_position(chosen, a.block, pos, i);
    for (s32 v = 0; v < 2; v++) {
        GLOBAL u8 *to = AT(u8, a.to[v]) + (s64)tile * a.tile_bytes[v];
        GLOBAL const u8 *from =
            AT(const u8, a.cache[v]) +
            (pages[u / TEXT_PAGE] * (s64)a.n_kv + kv) * a.tile_bytes[v];

        for (s32 p = 0; p < a.n_plane[v]; p++) {
            s32 n = a.count[v][p], size = a.size[v][p];

            for (s32 k = id / TEXT_PAGE; k < n; k += 256 / TEXT_PAGE) {
                /* keys are transposed, values are not */
                s32 dst =
                    v ? i % TEXT_PAGE * n + k : k * TEXT_PAGE + i % TEXT_PAGE;
                s32 src =
                    v ? u % TEXT_PAGE * n + k : k * TEXT_PAGE + u % TEXT_PAGE;

                dst = a.plane[v][p] + dst * size;
                src = a.plane[v][p] + src * size;
                if (size == 4)
                    *(GLOBAL u32 *)(to + dst) =
                        *(GLOBAL const u32 *)(from + src);
                else if (size == 2)
                    *(GLOBAL u16 *)(to + dst) =
                        *(GLOBAL const u16 *)(from + src);
                else
                    to[dst] = from[src];
            }
        }
    }
}

/* Means of blocks of tokens (struct block_mean_args). Lanes: a channel each.
 * Order of sums: tokens ascending. No shared memory. */
KERNEL(block_mean, struct block_mean_args, 256)
{
    s32 parts = (s32)((a.d + 255) / 256), t = GROUP() / parts;
    s64 i = (s64)(GROUP() % parts) * 256 + LANE();
    s32 end = AT(const s32, a.pos)[t] + 1;
    s32 n = a.width > a.d && end > a.ratio ? 2 * a.ratio : a.ratio;
    GLOBAL const s32 *pages =
        AT(const s32, a.pages) + AT(const s32, a.seq)[t] * a.page_stride;
    float top = float_from_bits(0xff800000u), l = 0, acc = 0;

    if (i >= a.d)
        return;
    if (end % a.ratio != 0) {
        AT(float, a.out)[t * a.d + i] = 0;
        return;
    }
    for (s32 pass = 0; pass < 2; pass++) {
        for (s32 u = 0; u < n; u++) {
            s32 pos = end - n + u;
            s64 at = n - u <= a.ratio ? a.width - a.d + i : i;
            GLOBAL const float *row =
                AT(const float, a.cache) +
                (pages[pos / TEXT_PAGE] * (s64)TEXT_PAGE + pos % TEXT_PAGE) *
                    2 * a.width;
            float z = add_(row[a.width + at],
                           value_at(AT(const void, a.bias), a.format,
                                    u % a.ratio * a.width + at));

            if (pass == 0) {
                top = max_(z, top);
            } else {
                z = exp_(sub_(z, top));
                l = add_(l, z);
                acc = fma_(z, row[at], acc);
            }
        }
    }
    AT(float, a.out)[t * a.d + i] = div_(acc, l);
}
