/* Template of an attention kernel for few tokens, named ATTEND_NAME, for ROWS
 * rows of 4, 8 or 16; a row is one query head of a token. Caches of F32, F16,
 * BF16 and Q8_0; a row of V in a tile is a multiple of 16 bytes.
 *
 * Shapes: a.q [n_tok, n_head, d], tiles of keys [d][64], tiles of values
 * [64][e]. A work group of 256 lanes has one KV head, ROWS rows and one span
 * of 256 positions after the other.
 *
 * Lanes: for scores, lane j has position j of the span and all rows. For sums
 * of V, lanes c and c + 128 have column c, each for half of the rows; columns
 * are processed 128 at a time.
 *
 * Shared memory: one stage of keys or values as they lie in the cache
 * (attend_stage.h), with its scales and a part of the queries; the
 * probabilities [256][ROWS]. While lanes compute with a stage, they have loaded
 * the next one into registers, 16 bytes at a time. The first stage of values is
 * loaded before the softmax.
 *
 * Order of sums: scores over ascending values of a key, one chain of fma; sums
 * of V over ascending positions, one chain, multiplied by the softmax's factor
 * where a block of 64 begins. */
#define COLUMN_ROWS (ROWS / 2) /* rows of a lane in sums of V */
/* bytes of a block's keys in a stage; more would not fit into 32 KiB of shared
 * memory */
#define BLOCK_BYTES (ROWS <= 8 ? 4096 : 2048)
#define STAGE_BYTES (ATTEND_BLOCKS * BLOCK_BYTES)
#define STAGE_DIMS  (BLOCK_BYTES / TEXT_PAGE) /* most values of a key */
#if ROWS <= 8
#define BEGIN_KERNEL ATTEND_KERNEL_THREE
#else
#define BEGIN_KERNEL ATTEND_KERNEL_DENSE
#endif

BEGIN_KERNEL(ATTEND_NAME, struct attend_args, 256)
{
    LOCAL_ARRAY(struct quad, p_quads, TEXT_SPAN * ROWS / 4);
    LOCAL_ARRAY(struct quad, q_quads, STAGE_DIMS * ROWS / 4);
    LOCAL_ARRAY(struct dwords, units, STAGE_BYTES / 16);
    LOCAL_ARRAY(u16, scales, STAGE_BYTES / 32);
    SPAN_ARRAYS(ROWS);
    /* offsets of the blocks' tiles in bytes; -1: no row attends to the block */
    LOCAL_ARRAY(s64, key_at, ATTEND_BLOCKS);
    LOCAL_ARRAY(s64, value_at, ATTEND_BLOCKS);
    LOCAL float *p = (LOCAL float *)p_quads, *q = (LOCAL float *)q_quads;
    LOCAL u8 *held = (LOCAL u8 *)units;
    GLOBAL const s32 *pos = AT(const s32, a.pos), *seq = AT(const s32, a.seq);
    GLOBAL const s32 *ends = AT(const s32, a.ends);
    GLOBAL const u8 *keys = AT(const u8, a.k), *values = AT(const u8, a.v);
    GLOBAL const s32 *pages = AT(const s32, a.pages);
    GLOBAL const float *query = AT(const float, a.q);
    GLOBAL float *state = AT(float, a.part);
    s32 id = LANE(), g = GROUP();
    s32 t0 = a.first + g % a.n_tile * a.step;
    s32 head0 = g / a.n_tile % a.n_part * a.heads;
    s32 kv = g / a.n_tile / a.n_part % a.n_kv;
    s32 span0 = g / a.n_tile / a.n_part / a.n_kv;
    s32 t_end = t0 + a.step < a.end ? t0 + a.step : a.end;
    /* values of a key in a stage, positions of V in a stage */
    s32 n_key = STAGE_DIMS >> element_shift(a.key_format);
    s32 n_value = STAGE_BYTES / STAGE_WIDE >> element_shift(a.value_format);
    s32 column = id % STAGE_WIDE, r0 = id / STAGE_WIDE * COLUMN_ROWS, n_head;
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
            s32 u0 = span * TEXT_SPAN, first;
            struct stage next;
            float s[ROWS], acc[COLUMN_ROWS];

            span_sees(&x, u0, least, most);
            BARRIER();
            if (id < ROWS)
                span_row(&x, id, pos, ends, t0 + id / n_head, t1,
                         head[id % n_head], a.window, u0, a.first, a.n_head,
                         a.n_state, a.e);
            if (id < ATTEND_BLOCKS) {
                key_at[id] = value_at[id] = -1;
                if (span_has(&x, id)) {
                    s64 tile =
                        pages[seq[t0] * a.page_stride + u0 / TEXT_PAGE + id] *
                            (s64)a.n_kv +
                        kv;

                    key_at[id] = tile * a.key_bytes;
                    value_at[id] = tile * a.value_bytes;
                }
            }
            BARRIER();
            first = x.any_lo / TEXT_PAGE * TEXT_PAGE / n_value * n_value;
            /* ---- scores ---- */
            for (s32 r = 0; r < ROWS; r++)
                s[r] = 0;
            keys_ask(&next, BLOCK_BYTES, keys, key_at, a.key_format, a.d, 0,
                     id);
            queries_ask(&next, STAGE_DIMS, ROWS, query, row_q, a.d, 0, n_key,
                        id);
            for (s32 i0 = 0; i0 < a.d; i0 += n_key) {
                s32 n = a.d - i0 < n_key ? a.d - i0 : n_key, i1 = i0 + n_key;

                stage_hold(&next, STAGE_BYTES, a.key_format, held, scales, id);
                queries_put(&next, STAGE_DIMS, ROWS, q, id);
                BARRIER();
                if (i1 < a.d) {
                    keys_ask(&next, BLOCK_BYTES, keys, key_at, a.key_format,
                             a.d, i1, id);
                    queries_ask(&next, STAGE_DIMS, ROWS, query, row_q, a.d, i1,
                                n_key, id);
                } else {
                    values_ask(&next, STAGE_BYTES, values, value_at,
                               a.value_format, a.e, 0, first, x.any_lo,
                               x.any_hi, id);
                }
                if (key_at[id / TEXT_PAGE] >= 0)
                    add_held_keys(s, ROWS, q,
                                  held + id / TEXT_PAGE * BLOCK_BYTES,
                                  scales + id, a.key_format, id % TEXT_PAGE, n);
                BARRIER();
            }
            /* ---- the softmax ---- */
            span_softmax(&x, ROWS, s, a.scale, a.softcap, id);
            span_put(&x, ROWS, state, id);
            /* ---- sums of V ---- */
            for (s32 c0 = 0, j0 = first; c0 < a.e;) {
                s32 j1 = j0 + n_value, c1 = c0;

                stage_hold(&next, STAGE_BYTES, a.value_format, held, scales,
                           id);
                BARRIER();
                if (j1 >= x.any_hi) {
                    j1 = first;
                    c1 = c0 + STAGE_WIDE;
                }
                if (c1 < a.e)
                    values_ask(&next, STAGE_BYTES, values, value_at,
                               a.value_format, a.e, c1, j1, x.any_lo, x.any_hi,
                               id);
                if (j0 == first) {
                    UNROLL
                    for (s32 r = 0; r < COLUMN_ROWS; r++)
                        acc[r] = 0;
                }
                if (c0 + column < a.e)
                    add_held_values(acc, COLUMN_ROWS, ROWS, &x, r0, held,
                                    scales, a.value_format, column, j0,
                                    j0 + n_value);
                if (c1 > c0 && c0 + column < a.e) {
                    UNROLL
                    for (s32 r = 0; r < COLUMN_ROWS; r++)
                        if (see_lo[r0 + r] < see_hi[r0 + r])
                            state[row_state[r0 + r] + TEXT_SOFT + c0 + column] =
                                acc[r];
                }
                BARRIER();
                c0 = c1;
                j0 = j1;
            }
        }
    }
#if ROWS <= 8 /* more rows leave too few registers */
    t0 = a.first + g % a.n_tile * a.step;
    MERGE_LAST(t0, kv, head0, n_head, ROWS, (LOCAL u32 *)p_quads);
#endif
}

#undef ATTEND_NAME
#undef ROWS
#undef COLUMN_ROWS
#undef BLOCK_BYTES
#undef STAGE_BYTES
#undef STAGE_DIMS
#undef BEGIN_KERNEL
