/* Template of the kernel matmul: many rows of activations times weights of a
 * packed, quantized format (weights_tmpl.h).
 *
 * A work group computes MANY_PANELS panels for up to MANY_TOKENS rows of
 * activations. It has the activations of a few tiles at a time in shared
 * memory. 32 lanes share a panel, or 64 lanes share two. mma.h says which
 * weight rows and which rows of activations a lane has, according to the GPU's
 * matrix units. Their operands are the dwords of a packed tile, unchanged. On a
 * GPU without matrix units a lane computes the same sums itself. */
KERNEL_OF(OF(matmul), struct contract_args, 256)
{
    LOCAL_ARRAY(u32, held, 2 * STAGE * MANY_STRIDE);
    LOCAL_ARRAY(s32, row_x, MANY_TOKENS);
    LOCAL_ARRAY(s32, row_out, MANY_TOKENS);
    s32 id = LANE(), r = LANE_R(id), q = LANE_Q(id);
    s32 n_wide = (a.n_panel + MANY_PANELS - 1) / MANY_PANELS;
    s32 panel = GROUP() % n_wide * MANY_PANELS + LANE_PANEL(id);
    s32 top = a.top, buffer = 0, row = panel * ROWS + r;
    struct many f =
        many_find(GROUP() / n_wide, a.mode, a.n_tok, AT(const s32, a.head),
                  AT(const s32, a.block), a.item);
    s64 second =
        panel + NEXT_PANEL < a.n_panel ? NEXT_PANEL * (s64)a.panel_bytes : 0;
    float acc[32];
    GLOBAL const float *before;
    GLOBAL float *after;
#if WHOLE
    s32 isum[32];
#if PAIRED
    s32 msum[32];
#endif
#endif

    if (f.n == 0)
        return;
    if (id < f.n)
        many_rows(&f, id, a.mode, a.n_head, a.n_used, a.share,
                  AT(const s32, a.list), row_x, row_out);
    BARRIER();
    before = ENTRY(const float, top);
    UNROLL
    for (s32 e = 0; e < MANY_TOKENS / STEP; e++) {
        UNROLL
        for (s32 c = 0; c < STEP_SUMS; c++) {
            s64 at = a.open ? OUT_AT(e, c) : -1;

            acc[STEP_SUMS * e + c] = at < 0 ? 0 : before[at];
        }
    }
    for (s32 k = 0; k < a.n_run; k++) {
        s32 len = f.matrix < a.n_matrix ? a.run[k].n : 0;
        s32 first = a.run[k].first, n_add;
        GLOBAL const u32 *x = AT(const u32, a.x) + (s64)a.run[k].x * X_BLOCK;
        GLOBAL const u8 *w = AT(const u8, a.w) +
                             (u64)f.matrix * a.matrix_bytes +
                             (u64)panel * a.panel_bytes + a.run[k].off;
        /* next: activations to be stored in shared memory next; raw, sub, sup:
         * codes and scales of the next tile */
        u32 next[STAGE_LOADS], raw[RAWS];
        u32 sub[2 * LANE_ROWS], sup[2 * LANE_ROWS];

#if WHOLE
        UNROLL
        for (s32 o = 0; o < 16; o++)
            isum[o] = isum[o + 16] = 0;
#if PAIRED
        UNROLL
        for (s32 o = 0; o < 16; o++)
            msum[o] = msum[o + 16] = 0;
#endif
#endif
        UNROLL
        for (s32 j = 0; j < RAWS; j++)
            raw[j] = 0;
        UNROLL
        for (s32 j = 0; j < 2 * LANE_ROWS; j++) {
            sub[j] = sup[j] = 0;
        }
        if (panel < a.n_panel && len > 0)
            OF(fetch_tile)
        (w, second, 0, len, first, r, q, raw, sub, sup);
        stage_load(x, a.x_step, row_x, f.n, 0, len, id, next);
        stage_put(held + buffer, id, next);
        BARRIER();
        for (s32 t = 0; t < len; t += STAGE_TILES) {
            s32 n_tile = len - t < STAGE_TILES ? len - t : STAGE_TILES;

            stage_load(x, a.x_step, row_x, f.n, t + STAGE_TILES, len, id, next);
            for (s32 i = 0; i < n_tile && panel < a.n_panel; i++) {
                s32 tile = t + i;
#if WHOLE
                s32 closes = tile + 1 == len || ((tile + first) & 7) == 7;
#endif
                LOCAL const u32 *b =
                    held + buffer + i * MANY_TOKENS * MANY_STRIDE;
                s32 s[2 * LANE_ROWS], m[2 * LANE_ROWS];
                float d[2 * LANE_ROWS];
                u32 level[2 * LANE_ROWS * LANE_DWORDS];

                UNROLL
                for (s32 j = 0; j < LANE_DWORDS; j++) {
                    UNROLL
                    for (s32 h = 0; h < LANE_ROWS; h++)
                        OF(unpack)
                    (raw + (h * LANE_DWORDS + j) * RAW, LANE_FIRST(q) + j,
                     &level[h * LANE_DWORDS + j],
                     &level[(LANE_ROWS + h) * LANE_DWORDS + j]);
                }
                UNROLL
                for (s32 h = 0; h < LANE_ROWS; h++)
                    OF(factors)
                (sub + 2 * h, s + 2 * h, m + 2 * h);
                UNROLL
                for (s32 h = 0; h < LANE_ROWS; h++)
                    OF(scales)
                (sup + 2 * h, sub + 2 * h, d + 2 * h);
                (void)s;
                (void)m;
                if (tile + 1 < len)
                    OF(fetch_tile)
                (w, second, tile + 1, len, first, r, q, raw, sub, sup);
                UNROLL
                for (s32 e = 0; e < MANY_TOKENS / STEP; e++) {
                    LOCAL const u32 *be = b + e * STEP * MANY_STRIDE;
                    s32 lo[STEP_SUMS];
#if HALVES
                    s32 hi[STEP_SUMS];
#endif

                    if (e * STEP >= f.n)
                        break;
                    UNROLL
                    for (s32 c = 0; c < STEP_SUMS; c++)
                        lo[c] = WHOLE ? 0 : SUM_START;
#if HALVES
                    UNROLL
                    for (s32 c = 0; c < STEP_SUMS; c++)
                        hi[c] = lo[c];
#endif
#if HAVE_MMA
                    {
                        LOCAL const u32 *v =
                            be + r * MANY_STRIDE + 2 + LANE_FIRST(q);
                        u32 own[2 * LANE_DWORDS];

                        UNROLL
                        for (s32 j = 0; j < LANE_DWORDS; j++) {
                            own[j] = v[j];
                            own[LANE_DWORDS + j] = v[4 + j];
                        }
#if HALVES
                        mma_halves(lo, hi, level, own);
#else
                        mma_tile(lo, level, own);
#endif
                    }
#else
                    UNROLL
                    for (s32 c = 0; c < 2; c++) {
                        LOCAL const u32 *v =
                            be + LANE_TOKEN(q, c) * MANY_STRIDE + 2;

                        UNROLL
                        for (s32 j = 0; j < 4; j++) {
                            lo[c] = dot4(level[j], v[j], lo[c]);
                            lo[c + 2] = dot4(level[j + 4], v[j], lo[c + 2]);
#if HALVES
                            hi[c] = dot4(level[j + 8], v[j + 4], hi[c]);
                            hi[c + 2] =
                                dot4(level[j + 12], v[j + 4], hi[c + 2]);
#else
                            lo[c] = dot4(level[j + 8], v[j + 4], lo[c]);
                            lo[c + 2] =
                                dot4(level[j + 12], v[j + 4], lo[c + 2]);
#endif
                        }
                    }
#endif
                    UNROLL
                    for (s32 c = 0; c < STEP_SUMS; c++) {
                        s32 o = STEP_SUMS * e + c, h = 2 * LANE_ROW(c);
                        LOCAL const u32 *v =
                            be + LANE_TOKEN(q, c) * MANY_STRIDE;
#if HAS_MIN
                        s32 mins = m[h] * (s16)(v[1] & 0xffff) +
                                   m[h + 1] * (s16)(v[1] >> 16);
#endif
#if WHOLE
                        isum[o] += s[h] * lo[c];
#if HALVES
                        isum[o] += s[h + 1] * hi[c];
#endif
#if HAS_MIN
                        msum[o] += mins;
#endif
                        if (closes) {
                            float dx = float_from_bits(v[0]);

                            acc[o] = fma_(mul_(d[h], dx), int_float(isum[o]),
                                          acc[o]);
                            isum[o] = 0;
#if HAS_MIN
                            acc[o] = fma_(mul_(d[h + 1], dx),
                                          int_float(msum[o]), acc[o]);
                            msum[o] = 0;
#endif
                        }
#else
                        float dx = float_from_bits(v[0]);

                        acc[o] = fma_(mul_(d[h], dx), SUM_FLOAT(lo[c]), acc[o]);
#if TWO_D
                        acc[o] =
                            fma_(mul_(d[h + 1], dx), SUM_FLOAT(hi[c]), acc[o]);
#elif HAS_MIN
                        acc[o] =
                            fma_(mul_(d[h + 1], dx), int_float(mins), acc[o]);
#endif
#endif
                    }
                }
            }
            buffer ^= STAGE * MANY_STRIDE;
            stage_put(held + buffer, id, next);
            BARRIER();
        }
        n_add = a.run[k].n_add;
        if (n_add < 0 && k + 1 < a.n_run)
            continue;
        n_add = n_add < 0 ? 0 : n_add;
        for (s32 i = 1; i <= n_add; i++) {
            before = ENTRY(const float, top - i);
            UNROLL
            for (s32 e = 0; e < MANY_TOKENS / STEP; e++) {
                UNROLL
                for (s32 c = 0; c < STEP_SUMS; c++) {
                    s64 at = OUT_AT(e, c);

                    if (at >= 0)
                        acc[STEP_SUMS * e + c] =
                            add_(before[at], acc[STEP_SUMS * e + c]);
                }
            }
        }
        top -= n_add;
        after = ENTRY(float, top);
        UNROLL
        for (s32 e = 0; e < MANY_TOKENS / STEP; e++) {
            UNROLL
            for (s32 c = 0; c < STEP_SUMS; c++) {
                s64 at = OUT_AT(e, c);

                if (at >= 0)
                    after[at] = acc[STEP_SUMS * e + c];
                acc[STEP_SUMS * e + c] = 0;
            }
        }
        top++;
    }
}
