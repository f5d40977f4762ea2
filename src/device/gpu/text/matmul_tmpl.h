/* Many rows of activations against a packed, quantized format (weights_tmpl.h).
 *
 * A group has MANY_PANELS panels and up to MANY_TOKENS rows of activations,
 * which it holds in shared memory, some tiles at a time; a warp has a panel.
 * Lane 4 g + q has the panel's rows g and g + 8 and of each eight rows of
 * activations 2 q and 2 q + 1: what m16n8k32 gives it, of which a packed tile
 * is the first operand. Without such units it forms the same sums itself. */
KERNEL_OF(OF(matmul), struct contract_args, 256)
{
    LOCAL_ARRAY(u32, held, 2 * STAGE * X_STRIDE);
    LOCAL_ARRAY(s32, row_x, MANY_TOKENS);
    LOCAL_ARRAY(s32, row_out, MANY_TOKENS);
    s32 id = LANE(), g = id >> 2 & 7, q = id & 3;
    s32 n_wide = (a.n_panel + MANY_PANELS - 1) / MANY_PANELS;
    s32 panel = GROUP() % n_wide * MANY_PANELS + (id >> 5);
    s32 top = a.top, buffer = 0, row = panel * ROWS + g;
    struct many f =
        many_find(GROUP() / n_wide, a.mode, a.n_tok, AT(const s32, a.head),
                  AT(const s32, a.block), a.item);
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
    for (s32 e = 0; e < 8; e++) {
        UNROLL
        for (s32 c = 0; c < 4; c++) {
            s64 at = a.open ? many_at(row_out, f.n, 8 * e + 2 * q + (c & 1),
                                      a.n, row + 4 * (c & 2))
                            : -1;

            acc[4 * e + c] = at < 0 ? 0 : before[at];
        }
    }
    for (s32 k = 0; k < a.n_run; k++) {
        s32 len = f.matrix < a.n_matrix ? a.run[k].n : 0;
        s32 first = a.run[k].first, n_add;
        GLOBAL const u32 *x = AT(const u32, a.x) + (s64)a.run[k].x * X_BLOCK;
        GLOBAL const u8 *w = AT(const u8, a.w) +
                             (u64)f.matrix * a.matrix_bytes +
                             (u64)panel * a.panel_bytes + a.run[k].off;
        u32 next[STAGE_LOADS], raw[RAWS]; /* raw, sub, sup: the tile to come */
        u32 sub[4], sup[4];

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
        for (s32 j = 0; j < 4; j++) {
            sub[j] = sup[j] = 0;
        }
        if (panel < a.n_panel && len > 0)
            OF(fetch_tile)
        (w, 0, len, first, g, q, raw, sub, sup);
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
                LOCAL const u32 *b = held + buffer + i * MANY_TOKENS * X_STRIDE;
                s32 s[4], m[4];
                float d[4];
#if HAVE_MMA_S8_16832
                u32 level[4];

                OF(unpack)(raw, q, &level[0], &level[2]);
                OF(unpack)(raw + RAW, q, &level[1], &level[3]);
#else
                u32 level[16];

                UNROLL
                for (s32 j = 0; j < 4; j++) {
                    OF(unpack)(raw + j * RAW, j, &level[j], &level[j + 4]);
                    OF(unpack)
                    (raw + (4 + j) * RAW, j, &level[j + 8], &level[j + 12]);
                }
#endif
                OF(factors)(sub, s, m);
                OF(factors)(sub + 2, s + 2, m + 2);
                OF(scales)(sup, sub, d);
                OF(scales)(sup + 2, sub + 2, d + 2);
                (void)s;
                (void)m;
                if (tile + 1 < len)
                    OF(fetch_tile)
                (w, tile + 1, len, first, g, q, raw, sub, sup);
                UNROLL
                for (s32 e = 0; e < 8; e++) {
                    LOCAL const u32 *be = b + e * 8 * X_STRIDE;
                    s32 lo[4];
#if HALVES
                    s32 hi[4];
#endif

                    if (e * 8 >= f.n)
                        break;
                    UNROLL
                    for (s32 c = 0; c < 4; c++)
                        lo[c] = WHOLE ? 0 : SUM_START;
#if HALVES
                    UNROLL
                    for (s32 c = 0; c < 4; c++)
                        hi[c] = lo[c];
#endif
#if HAVE_MMA_S8_16832
                    {
                        u32 v[2];

                        v[0] = be[g * X_STRIDE + 2 + q];
                        v[1] = be[g * X_STRIDE + 6 + q];
#if HALVES
                        mma_s8_k16(lo, level, v[0]);
                        mma_s8_k16(hi, level + 2, v[1]);
#else
                        mma_s8(lo, level, v);
#endif
                    }
#else
                    UNROLL
                    for (s32 c = 0; c < 2; c++) {
                        LOCAL const u32 *v = be + (2 * q + c) * X_STRIDE + 2;

                        UNROLL
                        for (s32 j = 0; j < 4; j++) {
                            lo[c] = dot4(level[j], v[j], lo[c]);
                            lo[c + 2] = dot4(level[j + 8], v[j], lo[c + 2]);
#if HALVES
                            hi[c] = dot4(level[j + 4], v[j + 4], hi[c]);
                            hi[c + 2] =
                                dot4(level[j + 12], v[j + 4], hi[c + 2]);
#else
                            lo[c] = dot4(level[j + 4], v[j + 4], lo[c]);
                            lo[c + 2] =
                                dot4(level[j + 12], v[j + 4], lo[c + 2]);
#endif
                        }
                    }
#endif
                    UNROLL
                    for (s32 c = 0; c < 4; c++) {
                        s32 o = 4 * e + c, h = c & 2;
                        LOCAL const u32 *v = be + (2 * q + (c & 1)) * X_STRIDE;
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
            buffer ^= STAGE * X_STRIDE;
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
            for (s32 e = 0; e < 8; e++) {
                UNROLL
                for (s32 c = 0; c < 4; c++) {
                    s64 at = many_at(row_out, f.n, 8 * e + 2 * q + (c & 1), a.n,
                                     row + 4 * (c & 2));

                    if (at >= 0)
                        acc[4 * e + c] = add_(before[at], acc[4 * e + c]);
                }
            }
        }
        top -= n_add;
        after = ENTRY(float, top);
        UNROLL
        for (s32 e = 0; e < 8; e++) {
            UNROLL
            for (s32 c = 0; c < 4; c++) {
                s64 at = many_at(row_out, f.n, 8 * e + 2 * q + (c & 1), a.n,
                                 row + 4 * (c & 2));

                if (at >= 0)
                    after[at] = acc[4 * e + c];
                acc[4 * e + c] = 0;
            }
        }
        top++;
    }
}
