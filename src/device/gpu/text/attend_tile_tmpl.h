/* Template of an attention kernel for prompts, named ATTEND_NAME. A work group
 * processes 64 rows (a row is one query head of a token). V has up to 16 *
 * COLUMNS columns.
 *
 * A lane has 4 rows. It computes their scores for 4 positions of a block, and
 * their sums for COLUMNS columns of V. Queries, keys and values go through
 * shared memory as floats, because rows share them: 16 elements of all keys at
 * a time, or the values of 16 positions. The next ones are loaded meanwhile.
 *
 * A work group processes all spans of a softmax state. It merges them in the
 * order of the tree, as a binary counter carries: a left subtree waits on a
 * stack in memory until its right one is complete. Inside a span the order of
 * sums is that of attend_tmpl.h. */
#define WIDE  (16 * COLUMNS)
#define PITCH (TILE_ROWS + 4)

KERNEL_DENSE(ATTEND_NAME, struct attend_args, 256)
{
    LOCAL_ARRAY(struct quad, p_quads, TEXT_PAGE * PITCH / 4);
    LOCAL_ARRAY(struct quad, quads, TILE_STEP * (TEXT_PAGE + PITCH) / 4);
    LOCAL_ARRAY(float, m, TILE_ROWS); /* greatest score of each row so far */
    /* factor of a row's sums when its greatest score grows */
    LOCAL_ARRAY(float, f, TILE_ROWS);
    LOCAL_ARRAY(s32, see_lo, TILE_ROWS);
    LOCAL_ARRAY(s32, see_hi, TILE_ROWS);
    LOCAL_ARRAY(s64, row_q, TILE_ROWS);
    LOCAL_ARRAY(s64, row_state, TILE_ROWS);
    /* number of partial softmax states of the row on the stack */
    LOCAL_ARRAY(s32, row_wait, TILE_ROWS);
    /* number of partial states of the row that merge with this span */
    LOCAL_ARRAY(s32, row_merge, TILE_ROWS);
    /* this span is the last of the row's softmax state */
    LOCAL_ARRAY(s32, row_last, TILE_ROWS);
    LOCAL_ARRAY(s32, head, TILE_ROWS);
    LOCAL_ARRAY(s32, head_count, 1);
    /* probabilities of a block, [64][PITCH], by row */
    LOCAL float *p = (LOCAL float *)p_quads;
    LOCAL float *stage = (LOCAL float *)quads;
    LOCAL float *keys = stage, *q = stage + TILE_STEP * TEXT_PAGE;
    GLOBAL const s32 *pos = AT(const s32, a.pos), *seq = AT(const s32, a.seq);
    GLOBAL const s32 *ends = AT(const s32, a.ends);
    GLOBAL const float *query = AT(const float, a.q);
    GLOBAL float *state = AT(float, a.part);
    GLOBAL float *stack =
        AT(float, a.stack) + (s64)GROUP() * a.depth * TILE_ENTRY(WIDE);
    s32 id = LANE(), g = GROUP();
    /* first of the lane's 4 rows and of its 4 positions */
    s32 r0 = id / 16 * 4, j0 = id % 16 * 4;
    /* row whose elements k0 + 4 u of l the lane sums */
    s32 row = id % TILE_ROWS, k0 = id / TILE_ROWS;
    s32 t0 = a.first + g % a.n_tile * a.step;
    s32 head0 = g / a.n_tile % a.n_part * a.heads;
    s32 kv = g / a.n_tile / a.n_part % a.n_kv;
    s32 span0 = g / a.n_tile / a.n_part / a.n_kv;
    s32 t_end = t0 + a.step < a.end ? t0 + a.step : a.end;
    s32 n_head;

    if (!tile_begins(seq, a.first, a.tokens, t0))
        return;
    n_head = tile_heads(AT(const s32, a.head_map), a.n_head, a.per_kv, kv,
                        head0, a.heads, id, head, head_count);
    for (s32 t1; t0 < t_end && n_head > 0; t0 = t1) {
        s32 least, most;

        t1 = tile_end(seq, a.first, a.tokens, a.end, t0);
        tile_sees(pos, ends, t0, t1, a.window, &least, &most);
        for (s32 base = least / TEXT_SPAN, span = base + span0 * a.spans;
             span <= most / TEXT_SPAN;
             span +=
             (span + 1 - base) % a.spans ? 1 : 1 + (a.n_span - 1) * a.spans) {
            s32 u0 = span * TEXT_SPAN, all_lo = 0, all_hi = TEXT_SPAN;
            s32 any_lo = within(least - u0, 0, TEXT_SPAN);
            s32 any_hi = within(most + 1 - u0, 0, TEXT_SPAN);
            float acc[4 * COLUMNS], l[4], now;
            GLOBAL float *to;

            BARRIER();
            if (id < TILE_ROWS) {
                s32 t = t0 + id / n_head, h = head[id % n_head];

                m[id] = lowest_();
                row_q[id] = -1;
                see_lo[id] = see_hi[id] = 0;
                if (t < t1) {
                    s32 lo = first_seen(pos[t], a.window);
                    s32 last = last_seen(pos[t], ends[t], a.window);
                    s32 rank = span - lo / TEXT_SPAN;
                    s32 before = rank < 0 ? 0 : rank % a.spans;

                    row_q[id] = (s64)t * a.n_head + h;
                    row_state[id] =
                        (((s64)(t - a.first) * a.n_head + h) * a.n_state +
                         rank / a.spans) *
                        (TEXT_SOFT + a.e);
                    row_last[id] =
                        before == a.spans - 1 || span == last / TEXT_SPAN;
                    row_wait[id] = bits_set(before);
                    row_merge[id] =
                        row_last[id] ? row_wait[id] : low_bits_set(before);
                    see_lo[id] = within(lo - u0, 0, TEXT_SPAN);
                    see_hi[id] = within(last + 1 - u0, 0, TEXT_SPAN);
                }
            }
            for (s32 i = 0; i < 4; i++)
                l[i] = 0;
            for (s32 i = 0; i < 4 * COLUMNS; i++)
                acc[i] = 0;
            BARRIER();
            for (s32 r = 0; r < TILE_ROWS; r++) {
                if (row_q[r] >= 0) {
                    all_lo = see_lo[r] > all_lo ? see_lo[r] : all_lo;
                    all_hi = see_hi[r] < all_hi ? see_hi[r] : all_hi;
                }
            }
            for (s32 b = 0; b < ATTEND_BLOCKS; b++) {
                s32 first = b * TEXT_PAGE;
                s32 all = all_lo <= first && all_hi >= first + TEXT_PAGE;
                s64 tile;
                float s[16], next[8];

                if (first >= any_hi || first + TEXT_PAGE <= any_lo)
                    continue;
                tile =
                    AT(const s32,
                       a.pages)[seq[t0] * a.page_stride + u0 / TEXT_PAGE + b] *
                        (s64)a.n_kv +
                    kv;
                for (s32 i = 0; i < 16; i++)
                    s[i] = 0;
                /* ---- scores ---- */
                tile_take_keys(next, AT(const u8, a.k) + tile * a.key_bytes,
                               a.key_format & (TEXT_CODES - 1), a.d, id, 0);
                tile_take_queries(next + 4, query, row_q, a.d, id, 0);
                for (s32 i0 = 0; i0 < a.d; i0 += TILE_STEP) {
                    s32 n = a.d - i0 < TILE_STEP ? a.d - i0 : TILE_STEP;

                    for (s32 i = 0; i < 4; i++) {
                        s32 at = id + 256 * i;

                        keys[at] = next[i];
                        q[at % TILE_STEP * PITCH + at / TILE_STEP] =
                            next[4 + i];
                    }
                    BARRIER();
                    if (i0 + TILE_STEP < a.d) {
                        tile_take_keys(next,
                                       AT(const u8, a.k) + tile * a.key_bytes,
                                       a.key_format & (TEXT_CODES - 1), a.d, id,
                                       i0 + TILE_STEP);
                        tile_take_queries(next + 4, query, row_q, a.d, id,
                                          i0 + TILE_STEP);
                    }
                    if (n == TILE_STEP)
                        tile_add_keys(s, q + r0, PITCH, keys + j0, TILE_STEP);
                    else
                        tile_add_keys(s, q + r0, PITCH, keys + j0, n);
                    BARRIER();
                }
                /* ---- the softmax ---- */
                for (s32 r = 0; r < 4; r++) {
                    float top = lowest_();

                    for (s32 j = 0; j < 4; j++) {
                        s32 u = first + j0 + j;
                        float x = mul_(s[4 * r + j], a.scale);

                        if (a.softcap != 0)
                            x = mul_(tanh_(div_(x, a.softcap)), a.softcap);
                        if (!all && (u < see_lo[r0 + r] || u >= see_hi[r0 + r]))
                            x = lowest_();
                        s[4 * r + j] = x;
                        top = max_(x, top);
                    }
                    stage[id % 16 * TILE_ROWS + r0 + r] = top;
                }
                BARRIER();
                if (id < TILE_ROWS) {
                    float top = m[id], was = top;

                    for (s32 k = 0; k < 16; k++)
                        top = max_(stage[k * TILE_ROWS + id], top);
                    m[id] = top;
                    f[id] = top > was ? exp_(sub_(was, top)) : 1.0f;
                }
                BARRIER();
                for (s32 r = 0; r < 4; r++)
                    for (s32 j = 0; j < 4; j++)
                        p[(j0 + j) * PITCH + r0 + r] =
                            exp_(sub_(s[4 * r + j], m[r0 + r]));
                tile_take_values(next, COLUMNS,
                                 AT(const u8, a.v) + tile * a.value_bytes,
                                 a.value_format & (TEXT_CODES - 1), a.e, id, 0);
                for (s32 i = 0; i < 4 * COLUMNS; i++)
                    acc[i] = mul_(acc[i], f[r0 + i / COLUMNS]);
                BARRIER();
                if (see_lo[row] < first + TEXT_PAGE && see_hi[row] > first)
                    for (s32 i = 0; i < 4; i++) {
                        l[i] = mul_(l[i], f[row]);
                        for (s32 j = k0 + 4 * i; j < TEXT_PAGE; j += 16)
                            l[i] = add_(l[i], p[j * PITCH + row]);
                    }
                /* ---- sums of V ---- */
                for (s32 i0 = 0; i0 < TEXT_PAGE; i0 += TILE_STEP) {
                    LOCAL const float *w = p + i0 * PITCH + r0;

                    for (s32 i = 0; i < COLUMNS; i++)
                        stage[id + 256 * i] = next[i];
                    BARRIER();
                    if (i0 + TILE_STEP < TEXT_PAGE)
                        tile_take_values(next, COLUMNS,
                                         AT(const u8, a.v) +
                                             tile * a.value_bytes,
                                         a.value_format & (TEXT_CODES - 1), a.e,
                                         id, i0 + TILE_STEP);
                    if (all)
                        tile_add_values(acc, COLUMNS, w, PITCH, stage + j0);
                    else
                        tile_add_some(acc, COLUMNS, w, PITCH, stage + j0,
                                      first + i0, see_lo + r0, see_hi + r0);
                    BARRIER();
                }
            }
            /* ---- merging of spans ---- */
            for (s32 r = 0; r < 4; r++) {
                s32 k = r0 + r;

                if (see_lo[k] >= see_hi[k])
                    continue;
                now = m[k];
                for (s32 n = 1; n <= row_merge[k]; n++) {
                    GLOBAL const float *from =
                        stack + (row_wait[k] - n) * TILE_ENTRY(WIDE);
                    float low = from[TILE_ROWS * (WIDE + 16) + k];
                    float top = low > now ? low : now;
                    float f_low = exp_(sub_(low, top));
                    float f_now = exp_(sub_(now, top));

                    for (s32 i = 0; i < COLUMNS; i++)
                        acc[r * COLUMNS + i] =
                            soft_join(from[(r * COLUMNS + i) * 256 + id], f_low,
                                      acc[r * COLUMNS + i], f_now);
                    now = top;
                }
                to = stack + (row_wait[k] - row_merge[k]) * TILE_ENTRY(WIDE);
                for (s32 i = 0; i < COLUMNS; i++) {
                    s32 c = i / 4 * 64 + j0 + i % 4;

                    if (!row_last[k])
                        to[(r * COLUMNS + i) * 256 + id] = acc[r * COLUMNS + i];
                    else if (c < a.e)
                        state[row_state[k] + TEXT_SOFT + c] =
                            acc[r * COLUMNS + i];
                }
            }
            now = m[row];
            to = stack;
            if (see_lo[row] < see_hi[row]) {
                for (s32 n = 1; n <= row_merge[row]; n++) {
                    GLOBAL const float *from =
                        stack + (row_wait[row] - n) * TILE_ENTRY(WIDE);
                    float low = from[TILE_ROWS * (WIDE + 16) + row];
                    float top = low > now ? low : now;
                    float f_low = exp_(sub_(low, top));
                    float f_now = exp_(sub_(now, top));

                    for (s32 i = 0; i < 4; i++)
                        l[i] = soft_join(from[TILE_ROWS * WIDE + i * 256 + id],
                                         f_low, l[i], f_now);
                    now = top;
                }
                to += (row_wait[row] - row_merge[row]) * TILE_ENTRY(WIDE);
                for (s32 i = 0; i < 4; i++)
                    if (!row_last[row])
                        to[TILE_ROWS * WIDE + i * 256 + id] = l[i];
                    else
                        state[row_state[row] + k0 + 4 * i] = l[i];
            }
            BARRIER(); /* all lanes have read m of the states on the stack */
            if (k0 == 0 && see_lo[row] < see_hi[row]) {
                if (!row_last[row])
                    to[TILE_ROWS * (WIDE + 16) + row] = now;
                else
                    state[row_state[row] + 16] = now;
            }
        }
    }
}

#undef WIDE
#undef PITCH
#undef ATTEND_NAME
#undef COLUMNS
