/* Template of an attention kernel for few tokens, named ATTEND_NAME, for ROWS
 * rows, whose lanes read most of the cache directly. If LATENT, keys are laid
 * out like values, [64][d], and their first e values also serve as values. If
 * CODES, the cache may have any format, also codes of 4 or 5 bits. Kernels
 * without CODES lack the code for these formats, which would cost registers.
 *
 * Shapes, spans and rows are those of attend_tmpl.h, and so is the order of
 * sums.
 *
 * Lanes: for scores, lane j has position j of the span and all rows. For sums
 * of V, a lane has one column for COLUMN_ROWS of the rows.
 *
 * Shared memory: the probabilities [256][ROWS] and CHUNK values of the queries.
 * If LATENT, also CHUNK values of each position's latent, as floats; while
 * lanes compute with these, they have loaded the next ones. */
#if CODES
#define ANY(format) (format)
#else
#define ANY(format) ((format) & (TEXT_CODES - 1))
#endif
/* values that a lane loads at once; more would need too many registers, and
 * kernels for codes too much code */
#if CODES
#define FAR ATTEND_AHEAD
#else
#define FAR (ROWS > 4 ? ATTEND_FAR / 2 : ATTEND_FAR)
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

ATTEND_KERNEL_DENSE(ATTEND_NAME, struct attend_args, 256)
{
    /* Scores, later probabilities, [256][ROWS]. If LATENT, before that: CHUNK
     * values of the latent of each position. */
    LOCAL_ARRAY(struct quad, p_quads, P_SIZE / 4);
    LOCAL_ARRAY(struct quad, q_quads, CHUNK * ROWS / 4);
    SPAN_ARRAYS(ROWS);
    /* index of each block's cache tile; -1: no row attends to the block */
    LOCAL_ARRAY(s64, tile_at, ATTEND_BLOCKS);
    LOCAL float *p = (LOCAL float *)p_quads, *q = (LOCAL float *)q_quads;
    GLOBAL const s32 *pos = AT(const s32, a.pos), *seq = AT(const s32, a.seq);
    GLOBAL const s32 *ends = AT(const s32, a.ends);
    GLOBAL const u8 *keys = AT(const u8, a.k);
#if !LATENT
    GLOBAL const u8 *values = AT(const u8, a.v);
#endif
    GLOBAL const s32 *pages = AT(const s32, a.pages);
    GLOBAL const float *query = AT(const float, a.q);
    GLOBAL float *state = AT(float, a.part);
    s32 id = LANE(), g = GROUP();
    s32 t0 = a.first + g % a.n_tile * a.step;
    s32 head0 = g / a.n_tile % a.n_part * a.heads;
    s32 kv = g / a.n_tile / a.n_part % a.n_kv;
    s32 span0 = g / a.n_tile / a.n_part / a.n_kv;
    s32 t_end = t0 + a.step < a.end ? t0 + a.step : a.end;
    s32 n_head;
    struct span x;

    if (!tile_begins(seq, a.first, a.tokens, t0))
        return;
    SPAN_INIT(x, p);
    n_head = tile_heads(AT(const s32, a.head_map), a.n_head, a.per_kv, kv,
                        head0, a.heads, id, head, head_count);
    for (s32 t1; t0 < t_end && n_head > 0; t0 = t1) {
        s32 least, most;

        t1 = tile_end(seq, a.first, a.tokens, a.end, t0);
        tile_sees(pos, ends, t0, t1, a.window, &least, &most);
        for (s32 span = least / TEXT_SPAN + span0; span <= most / TEXT_SPAN;
             span += a.n_span) {
            s32 u0 = span * TEXT_SPAN;
            struct stage next;
            float s[ROWS];

            span_sees(&x, u0, least, most);
            BARRIER();
            if (id < ROWS)
                span_row(&x, id, pos, ends, t0 + id / n_head, t1,
                         head[id % n_head], a.window, u0, a.first, a.n_head,
                         a.n_state, a.e);
            if (id < ATTEND_BLOCKS)
                tile_at[id] =
                    span_has(&x, id)
                        ? pages[seq[t0] * a.page_stride + u0 / TEXT_PAGE + id] *
                                  (s64)a.n_kv +
                              kv
                        : -1;
            BARRIER();
            for (s32 r = 0; r < ROWS; r++)
                s[r] = 0;
            queries_ask(&next, CHUNK, ROWS, query, row_q, a.d, 0, CHUNK, id);
#if LATENT && !CODES
            latents_ask(&next, keys, a.key_bytes, tile_at, ANY(a.key_format),
                        a.d, 0, a.d, id);
#endif
            for (s32 i0 = 0; i0 < a.d; i0 += CHUNK) {
                s32 n = a.d - i0 < CHUNK ? a.d - i0 : CHUNK;
                s64 at;

                BARRIER();
                queries_put(&next, CHUNK, ROWS, q, id);
#if LATENT && CODES
                for (s32 k = id; k < TEXT_SPAN * CHUNK; k += 256) {
                    s32 u = k / CHUNK, i = k % CHUNK;
                    GLOBAL const u8 *tile;

                    at = tile_at[u / TEXT_PAGE];
                    if (at < 0 || i >= n)
                        continue;
                    tile = keys + at * a.key_bytes;
                    u = u % TEXT_PAGE;
                    p[k / CHUNK * PITCH + i] = tile_value(
                        tile, a.key_format, 1, a.d, u, i0 + i,
                        tile_scale(tile, a.key_format, 1, a.d, u, i0 + i));
                }
#elif LATENT
                latents_put(&next, p, PITCH, keys, a.key_bytes, tile_at,
                            ANY(a.key_format), a.d, i0, n, id);
#endif
                BARRIER();
                queries_ask(&next, CHUNK, ROWS, query, row_q, a.d, i0 + CHUNK,
                            CHUNK, id);
#if LATENT && !CODES
                latents_ask(&next, keys, a.key_bytes, tile_at,
                            ANY(a.key_format), a.d, i0 + CHUNK,
                            a.d - i0 - CHUNK, id);
#endif
                at = tile_at[id / TEXT_PAGE];
                if (at < 0)
                    continue;
#if LATENT
                add_latents(s, ROWS, q, p + id * PITCH, n);
#else
                if (a.key_format >= TEXT_CODES)
                    add_code_keys(s, ROWS, q, keys + at * a.key_bytes,
                                  a.key_format, a.d, id % TEXT_PAGE, i0, n);
                else
                    add_keys(s, ROWS, q, keys + at * a.key_bytes, a.key_format,
                             a.d, id % TEXT_PAGE, i0, n);
#endif
            }
            /* ---- the softmax ---- */
            BARRIER();
            span_softmax(&x, ROWS, s, a.scale, a.softcap, id);
            span_put(&x, ROWS, state, id);
            /* ---- sums of V ---- */
            for (s32 k = id; k < a.e * (ROWS / COLUMN_ROWS); k += 256) {
                s32 c = k % a.e, r0 = k / a.e * COLUMN_ROWS;
                float acc[COLUMN_ROWS];

                for (s32 r = 0; r < COLUMN_ROWS; r++)
                    acc[r] = 0;
                for (s32 b = 0; b < ATTEND_BLOCKS; b++) {
                    s32 j0 = b * TEXT_PAGE;
                    s32 lo = within(x.any_lo - j0, 0, TEXT_PAGE);
                    s32 hi = within(x.any_hi - j0, 0, TEXT_PAGE);
                    s32 from = within(x.all_lo - j0, lo, hi);
                    s32 to = within(x.all_hi - j0, from, hi);
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
                    if (FORMAT >= TEXT_CODES)
                        add_code_values(acc, COLUMN_ROWS, ROWS, w, tile, FORMAT,
                                        SIZE, c, from, to);
                    else
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
    t0 = a.first + g % a.n_tile * a.step;
    MERGE_LAST(t0, kv, head0, n_head, ROWS, (LOCAL u32 *)p_quads);
}

#undef SIZE
#undef FORMAT
#undef CHUNK
#undef FAR
#undef PITCH
#undef P_SIZE
#undef ATTEND_NAME
#undef ROWS
#undef COLUMN_ROWS
#undef LATENT
#undef CODES
#undef ANY
