/* Template of an attention kernel named ATTEND_NAME, for ROWS rows; a row is
 * one query head of a token. To sum V, a lane takes one column for COLUMN_ROWS
 * of the rows. If LATENT, keys are laid out like values and also serve as
 * values. If CODES, the cache may have codes of 4 or 5 bits. Kernels without
 * CODES lack the code for these formats, which would cost registers. */
#if CODES
#define ANY(format) (format)
#else
#define ANY(format) ((format) & (TEXT_CODES - 1))
#endif
/* values that a lane loads at once; more would need too many registers, and
 * kernels for codes too much code */
#if CODES || (LATENT && ROWS > 4)
#define FAR          ATTEND_AHEAD
#define BEGIN_KERNEL ATTEND_KERNEL
#else
#define BEGIN_KERNEL ATTEND_KERNEL_DENSE
#define FAR          (ROWS > 4 ? ATTEND_FAR / 2 : ATTEND_FAR)
#endif
#if LATENT
#define CHUNK 16 /* number of key values that are multiplied at a time */
/* floats from one position to the next in shared memory */
#define PITCH  (CHUNK + 1)
#define P_SIZE (TEXT_SPAN * PITCH)
#else
#define CHUNK  64
#define P_SIZE (TEXT_SPAN * ROWS)
#endif

BEGIN_KERNEL(ATTEND_NAME, struct attend_args, 256)
{
    /* Scores, later probabilities, [256][ROWS]. If LATENT, before that: CHUNK
     * values of the latent of each position. */
    LOCAL_ARRAY(struct quad, p_quads, P_SIZE / 4);
    LOCAL_ARRAY(struct quad, q_quads, CHUNK * ROWS / 4);
    LOCAL_ARRAY(float, part, 256);
    /* greatest score of a row in each block */
    LOCAL_ARRAY(float, top, ATTEND_BLOCKS *ROWS);
    /* greatest score of a row up to and including each block */
    LOCAL_ARRAY(float, m, ATTEND_BLOCKS *ROWS);
    /* factor of a row's earlier sums at each block */
    LOCAL_ARRAY(float, f, ATTEND_BLOCKS *ROWS);
    /* positions of the span that a row attends to, see_lo .. see_hi - 1 */
    LOCAL_ARRAY(s32, see_lo, ROWS);
    LOCAL_ARRAY(s32, see_hi, ROWS);
    /* index of a row's query in a.q; -1: unused row */
    LOCAL_ARRAY(s64, row_q, ROWS);
    /* index in a.part of a row's softmax state */
    LOCAL_ARRAY(s64, row_state, ROWS);
    /* index of each block's cache tile; -1: no row attends to the block */
    LOCAL_ARRAY(s64, tile_at, ATTEND_BLOCKS);
    LOCAL_ARRAY(s32, head, ROWS);
    LOCAL_ARRAY(s32, head_count, 1);
    LOCAL float *p = (LOCAL float *)p_quads, *q = (LOCAL float *)q_quads;
    GLOBAL const s32 *pos = AT(const s32, a.pos), *seq = AT(const s32, a.seq);
    GLOBAL const u8 *keys = AT(const u8, a.k);
#if !LATENT
    GLOBAL const u8 *values = AT(const u8, a.v);
#endif
    GLOBAL const float *query = AT(const float, a.q);
    GLOBAL float *state = AT(float, a.part);
    s32 id = LANE(), g = GROUP();
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
        tile_sees(pos, t0, t1, a.window, &least, &most);
        for (s32 span = least / TEXT_SPAN + span0; span <= most / TEXT_SPAN;
             span += a.n_span) {
            s32 u0 = span * TEXT_SPAN, all_lo = 0, all_hi = TEXT_SPAN;
            s32 any_lo = within(least - u0, 0, TEXT_SPAN);
            s32 any_hi = within(most + 1 - u0, 0, TEXT_SPAN);
            float s[ROWS];

            BARRIER();
            if (id < ROWS) {
                s32 t = t0 + id / n_head, h = head[id % n_head];

                row_q[id] = -1;
                see_lo[id] = see_hi[id] = 0;
                if (t < t1) {
                    s32 lo = first_seen(pos[t], a.window);

                    row_q[id] = (s64)t * a.n_head + h;
                    row_state[id] =
                        (((s64)(t - a.first) * a.n_head + h) * a.n_state +
                         span - lo / TEXT_SPAN) *
                        (TEXT_SOFT + a.e);
                    see_lo[id] = within(lo - u0, 0, TEXT_SPAN);
                    see_hi[id] = within(pos[t] + 1 - u0, 0, TEXT_SPAN);
                }
            }
            if (id < ATTEND_BLOCKS) {
                tile_at[id] = -1;
                if (id * TEXT_PAGE < any_hi && (id + 1) * TEXT_PAGE > any_lo)
                    tile_at[id] =
                        AT(const s32, a.pages)[seq[t0] * a.page_stride +
                                               u0 / TEXT_PAGE + id] *
                            (s64)a.n_kv +
                        kv;
            }
            for (s32 r = 0; r < ROWS; r++)
                s[r] = 0;
            for (s32 i0 = 0; i0 < a.d; i0 += CHUNK) {
                s32 n = a.d - i0 < CHUNK ? a.d - i0 : CHUNK;
                s64 at;

                BARRIER();
                for (s32 k = id; k < ROWS * CHUNK; k += 256) {
                    s32 r = k / CHUNK, i = k % CHUNK;

                    q[i * ROWS + r] = row_q[r] >= 0 && i < n
                                          ? query[row_q[r] * a.d + i0 + i]
                                          : 0.0f;
                }
#if LATENT
                for (s32 k = id; k < TEXT_SPAN * CHUNK; k += 256) {
                    s32 u = k / CHUNK, i = k % CHUNK;
                    GLOBAL const u8 *tile;

                    at = tile_at[u / TEXT_PAGE];
                    if (at < 0 || i >= n)
                        continue;
                    tile = keys + at * a.key_bytes;
                    u = u % TEXT_PAGE;
                    p[k / CHUNK * PITCH + i] = tile_value(
                        tile, ANY(a.key_format), 1, a.d, u, i0 + i,
                        tile_scale(tile, ANY(a.key_format), 1, a.d, u, i0 + i));
                }
#endif
                BARRIER();
                at = tile_at[id / TEXT_PAGE];
                if (at < 0)
                    continue;
#if LATENT
                add_latents(s, ROWS, q, p + id * PITCH, n);
#elif CODES
                add_keys(FAR, s, ROWS, q, keys + at * a.key_bytes, a.key_format,
                         a.d, id % TEXT_PAGE, i0, n);
#else
                switch (a.key_format) {
                case TEXT_F32:
                    add_keys(FAR, s, ROWS, q, keys + at * a.key_bytes, TEXT_F32,
                             a.d, id % TEXT_PAGE, i0, n);
                    break;
                case TEXT_F16:
                    add_keys(FAR, s, ROWS, q, keys + at * a.key_bytes, TEXT_F16,
                             a.d, id % TEXT_PAGE, i0, n);
                    break;
                case TEXT_BF16:
                    add_keys(FAR, s, ROWS, q, keys + at * a.key_bytes,
                             TEXT_BF16, a.d, id % TEXT_PAGE, i0, n);
                    break;
                default:
                    add_keys(FAR, s, ROWS, q, keys + at * a.key_bytes,
                             TEXT_Q8_0, a.d, id % TEXT_PAGE, i0, n);
                }
#endif
            }
            /* ---- the softmax ---- */
            BARRIER();
            for (s32 r = 0; r < ROWS; r++) {
                s[r] = mul_(s[r], a.scale);
                if (a.softcap != 0)
                    s[r] = mul_(tanh_(div_(s[r], a.softcap)), a.softcap);
                if (id < see_lo[r] || id >= see_hi[r])
                    s[r] = lowest_();
                p[id * ROWS + r] = s[r];
                if (row_q[r] >= 0) {
                    all_lo = see_lo[r] > all_lo ? see_lo[r] : all_lo;
                    all_hi = see_hi[r] < all_hi ? see_hi[r] : all_hi;
                }
            }
            /* there is no position that all rows attend to */
            if (all_lo >= all_hi)
                all_lo = all_hi = any_hi;
            BARRIER();
            part[id] = lowest_();
            for (s32 k = 0; k < ROWS; k++)
                part[id] = max_(p[(id / ROWS * ROWS + k) * ROWS + id % ROWS],
                                part[id]);
            BARRIER();
            if (id < ATTEND_BLOCKS * ROWS) {
                top[id] = lowest_();
                for (s32 k = 0; k < TEXT_PAGE / ROWS; k++)
                    top[id] =
                        max_(part[(id / ROWS * (TEXT_PAGE / ROWS) + k) * ROWS +
                                  id % ROWS],
                             top[id]);
            }
            BARRIER();
            if (id < ROWS) {
                float now = lowest_();

                for (s32 b = 0; b < ATTEND_BLOCKS; b++) {
                    float next = top[b * ROWS + id], was = now;

                    now = next > was ? next : was;
                    m[b * ROWS + id] = now;
                    f[b * ROWS + id] = next > was ? exp_(sub_(was, now)) : 1.0f;
                }
            }
            BARRIER();
            for (s32 r = 0; r < ROWS; r++)
                p[id * ROWS + r] =
                    exp_(sub_(s[r], m[id / TEXT_PAGE * ROWS + r]));
            BARRIER();
            for (s32 k = id; k < 16 * ROWS; k += 256) {
                s32 r = k % ROWS, i = k / ROWS;
                float l = 0;

                if (see_lo[r] >= see_hi[r])
                    continue;
                for (s32 b = 0; b < ATTEND_BLOCKS; b++) {
                    if (see_lo[r] >= (b + 1) * TEXT_PAGE ||
                        see_hi[r] <= b * TEXT_PAGE)
                        continue;
                    l = mul_(l, f[b * ROWS + r]);
                    for (s32 j = b * TEXT_PAGE + i; j < (b + 1) * TEXT_PAGE;
                         j += 16)
                        l = add_(l, p[j * ROWS + r]);
                }
                state[row_state[r] + i] = l;
                if (i == 0)
                    state[row_state[r] + 16] =
                        m[(ATTEND_BLOCKS - 1) * ROWS + r];
            }
            /* ---- sums of V ---- */
            for (s32 k = id; k < a.e * (ROWS / COLUMN_ROWS); k += 256) {
                s32 c = k % a.e, r0 = k / a.e * COLUMN_ROWS;
                float acc[COLUMN_ROWS];

                for (s32 r = 0; r < COLUMN_ROWS; r++)
                    acc[r] = 0;
                for (s32 b = 0; b < ATTEND_BLOCKS; b++) {
                    s32 j0 = b * TEXT_PAGE;
                    s32 lo = within(any_lo - j0, 0, TEXT_PAGE);
                    s32 hi = within(any_hi - j0, 0, TEXT_PAGE);
                    s32 from = within(all_lo - j0, lo, hi);
                    s32 to = within(all_hi - j0, from, hi);
                    LOCAL const float *w = p + j0 * ROWS + r0;
                    GLOBAL const u8 *tile;

                    if (tile_at[b] < 0)
                        continue;
#if LATENT
                    tile = keys + tile_at[b] * a.key_bytes;
#define SIZE   a.d
#define FORMAT ANY(a.key_format)
#else
                    tile = values + tile_at[b] * a.value_bytes;
#define SIZE   a.e
#define FORMAT ANY(a.value_format)
#endif
                    for (s32 r = 0; r < COLUMN_ROWS; r++)
                        acc[r] = mul_(acc[r], f[b * ROWS + r0 + r]);
                    add_some(acc, COLUMN_ROWS, ROWS, w, tile, FORMAT, SIZE, c,
                             lo, from, j0, see_lo + r0, see_hi + r0);
#if CODES
                    add_values(FAR, acc, COLUMN_ROWS, ROWS, w, tile, FORMAT,
                               SIZE, c, from, to);
#else
                    switch (FORMAT) {
                    case TEXT_F32:
                        add_values(FAR, acc, COLUMN_ROWS, ROWS, w, tile,
                                   TEXT_F32, SIZE, c, from, to);
                        break;
                    case TEXT_F16:
                        add_values(FAR, acc, COLUMN_ROWS, ROWS, w, tile,
                                   TEXT_F16, SIZE, c, from, to);
                        break;
                    case TEXT_BF16:
                        add_values(FAR, acc, COLUMN_ROWS, ROWS, w, tile,
                                   TEXT_BF16, SIZE, c, from, to);
                        break;
                    default:
                        add_values(FAR, acc, COLUMN_ROWS, ROWS, w, tile,
                                   TEXT_Q8_0, SIZE, c, from, to);
                    }
#endif
                    add_some(acc, COLUMN_ROWS, ROWS, w, tile, FORMAT, SIZE, c,
                             to, hi, j0, see_lo + r0, see_hi + r0);
                }
                for (s32 r = 0; r < COLUMN_ROWS; r++)
                    if (see_lo[r0 + r] < see_hi[r0 + r])
                        state[row_state[r0 + r] + TEXT_SOFT + c] = acc[r];
            }
        }
    }
}

#undef SIZE
#undef FORMAT
#undef CHUNK
#undef FAR
#undef BEGIN_KERNEL
#undef PITCH
#undef P_SIZE
#undef ATTEND_NAME
#undef ROWS
#undef COLUMN_ROWS
#undef LATENT
#undef CODES
#undef ANY
