/* Few rows of activations against a packed, quantized format (weights_tmpl.h).
 *
 * A group has a panel and up to FEW_TOKENS rows of activations. Its lanes take
 * a row of a tile each; what an accumulator wants of a tile goes to shared
 * memory, where 16 lanes a row of activations add it in order. One row of
 * activations has two buffers, so that they add while others multiply. */
KERNEL_OF(OF(matvec), struct contract_args, 256)
{
    LOCAL_ARRAY(s32, isum, FEW_SLOTS * ROWS);
    LOCAL_ARRAY(float, scale, FEW_SLOTS *ROWS);
#if PAIRED
    LOCAL_ARRAY(s32, msum, FEW_SLOTS * ROWS);
    LOCAL_ARRAY(float, mscale, FEW_SLOTS *ROWS);
#endif
    LOCAL_ARRAY(s32, order, FEW_ITEMS);
    s32 id = LANE(), r = id & 15, unit = id >> 4, mine = id >> 4;
    s32 panel = GROUP() % a.n_panel, row = panel * ROWS + r;
    struct few f = few_find(GROUP() / a.n_panel, a.mode, a.n_tok, a.tok,
                            a.n_head, a.share);
    s32 batch = f.n == 1 ? FEW_SLOTS / 2 : FEW_SLOTS / FEW_TOKENS;
    s32 top = a.top, buffer = 0;
    s32 adds = mine < f.n && row < a.n;
    u64 at = ((u64)(f.out + (s64)mine * a.n_head) * (u64)a.n + (u64)row) * 4;
    float acc = 0;

    if (a.mode == CONTRACT_EXPERTS)
        f.matrix = AT(const s32, a.id)[f.out];
    if (a.mode == CONTRACT_DOWN)
        f.n_item = few_order(AT(const s32, a.id) + (s64)f.out * a.n_used,
                             a.n_used, a.n_matrix, a.item, a.n_item, id, order);
    else if (f.matrix < 0 || f.matrix >= a.n_matrix)
        f.n_item = 0;
    BARRIER();
    if (a.open && adds)
        acc = *AT(const float, ENTRY(top) + at);
    for (s32 k = 0; k < a.n_run; k++) {
        s32 len = a.run[k].n, first = a.run[k].first, total = len * f.n_item;
        s32 n_add;
        u64 w = a.w + (u64)panel * a.panel_bytes + a.run[k].off;
        s32 place = 0, sum = 0;
#if PAIRED
        s32 sum2 = 0;
#endif

        for (s32 t = 0; t < total; t += batch) {
            s32 n = total - t < batch ? total - t : batch;

            for (s32 i = unit; i < n && row < a.n; i += 16) {
                s32 item = f.n_item > 1 ? (t + i) / len : 0;
                s32 tile = t + i - item * len, s[2], m[2];
                s64 x = f.x;
                u64 from = w + (u64)f.matrix * a.matrix_bytes;
                GLOBAL const u8 *p;
                u32 level[8];
                float d[2];

                if (a.mode == CONTRACT_DOWN) {
                    x = (s64)f.out * a.n_used + order[item];
                    from = w + (u64)AT(const s32, a.id)[x] * a.matrix_bytes;
                }
                p = AT(const u8, from + OF(tile_at)(tile, first));
                UNROLL
                for (s32 q = 0; q < 4; q++)
                    OF(levels)(p, r, q, &level[q], &level[q + 4]);
                OF(factors)(p, r, s, m);
                d[0] = d[1] = 0;
                if (!WHOLE || tile + 1 == len || ((tile + first) & 7) == 7)
                    OF(scales)
                (AT(const u8, from + (WHOLE ? OF(sup_at)(tile, first) : 0)), p,
                 r, d);
                for (s32 j = 0; j < f.n; j++) {
                    GLOBAL const u32 *b = AT(const u32, a.x) +
                                          (x + (s64)j * a.n_head) * a.x_step +
                                          (a.run[k].x + tile) * X_BLOCK;
                    s32 to = (buffer + i * f.n + j) * ROWS + r;
                    s32 lo = 0, hi = 0;
                    float dx = float_from_bits(b[0]);

                    UNROLL
                    for (s32 q = 0; q < 4; q++) {
                        lo = dot4(level[q], b[2 + q], lo);
                        hi = dot4(level[q + 4], b[6 + q], hi);
                    }
                    isum[to] = TWO_D ? lo : s[0] * lo + s[1] * hi;
                    scale[to] = mul_(d[0], dx);
#if PAIRED
                    msum[to] = TWO_D ? hi
                                     : m[0] * (s16)(b[1] & 0xffff) +
                                           m[1] * (s16)(b[1] >> 16);
                    mscale[to] = mul_(d[1], dx);
#endif
                }
            }
            BARRIER();
            for (s32 i = 0; i < n && adds; i++) {
                s32 from = (buffer + i * f.n + mine) * ROWS + r;

                sum += isum[from];
#if PAIRED
                sum2 += msum[from];
#endif
                place++;
                if (WHOLE && place < len && ((place + first) & 7))
                    continue;
                acc = fma_(scale[from], int_float(sum), acc);
#if PAIRED
                acc = fma_(mscale[from], int_float(sum2), acc);
                sum2 = 0;
#endif
                sum = 0;
                place = place == len ? 0 : place;
            }
            if (f.n == 1)
                buffer ^= FEW_SLOTS / 2;
            else
                BARRIER();
        }
        n_add = a.run[k].n_add;
        if (n_add < 0 && k + 1 < a.n_run)
            continue;
        n_add = n_add < 0 ? 0 : n_add;
        if (adds) {
            for (s32 i = 1; i <= n_add; i++)
                acc = add_(*AT(const float, ENTRY(top - i) + at), acc);
            *AT(float, ENTRY(top - n_add) + at) = acc;
        }
        top += 1 - n_add;
        acc = 0;
    }
}
