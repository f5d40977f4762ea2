/* Weights in floats, packed or in plain rows: FORMAT the name, ELEMENT(p, i)
 * the i-th, BYTES of one. All are undefined at the end. */

/* A segment of one row, n values from w on and w_k apart, with up to FEW_TOKENS
 * rows of activations that lie x_step apart. */
DEV void OF(segment)(GLOBAL const u8 *w, s64 w_k, GLOBAL const float *x,
                     s64 x_step, s32 n_tok, s32 n, float *sum)
{
    float s0 = 0, s1 = 0, s2 = 0, s3 = 0;

    if (n_tok == 1) {
        for (s32 i = 0; i < n; i++)
            s0 = fma_(ELEMENT(w, i * w_k), x[i], s0);
    } else {
        s64 x1 = x_step, x2 = n_tok > 2 ? 2 * x_step : 0;
        s64 x3 = n_tok > 3 ? 3 * x_step : 0;

        for (s32 i = 0; i < n; i++) {
            float v = ELEMENT(w, i * w_k);

            s0 = fma_(v, x[i], s0);
            s1 = fma_(v, x[i + x1], s1);
            s2 = fma_(v, x[i + x2], s2);
            s3 = fma_(v, x[i + x3], s3);
        }
    }
    sum[0] = s0;
    sum[1] = s1;
    sum[2] = s2;
    sum[3] = s3;
}

/* Few rows of activations: as matvec_tmpl.h, but what lanes share is
 * segments. */
KERNEL_OF(OF(matvec), struct contract_args, 256)
{
    LOCAL_ARRAY(float, part, 2 * FEW_SLOTS * ROWS);
    LOCAL_ARRAY(s32, order, FEW_ITEMS);
    s32 id = LANE(), r = id & 15, unit = id >> 4, mine = id >> 4;
    s32 panel = GROUP() % a.n_panel, row = panel * ROWS + r;
    struct few f = few_find(GROUP() / a.n_panel, a.mode, a.n_tok, a.tok,
                            a.n_head, a.share);
    s32 top = a.top, buffer = 0, adds = mine < f.n && row < a.n;
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
        s32 len = a.run[k].n, first = a.run[k].first;
        s32 n_part = (len + first + SEGMENT - 1) / SEGMENT;
        s32 total = len > 0 ? n_part * f.n_item : 0;
        u64 w = a.w + (u64)panel * a.panel_bytes + a.run[k].off;

        for (s32 t = 0; t < total; t += 16) {
            s32 n = total - t < 16 ? total - t : 16;

            if (unit < n && row < a.n) {
                s32 item = f.n_item > 1 ? (t + unit) / n_part : 0;
                s32 i = (t + unit - item * n_part) * SEGMENT - first;
                s32 end = i + SEGMENT < len ? i + SEGMENT : len;
                s32 matrix = f.matrix;
                s64 x = f.x;
                float sum[4];

                i = i < 0 ? 0 : i;
                if (a.mode == CONTRACT_DOWN) {
                    x = (s64)f.out * a.n_used + order[item];
                    matrix = AT(const s32, a.id)[x];
                }
                OF(segment)
                (AT(const u8,
                    w + (u64)matrix * a.matrix_bytes +
                        ((u64)r * (u64)a.w_row + (u64)i * (u64)a.w_k) * BYTES),
                 a.w_k, AT(const float, a.x) + x * a.x_step + a.run[k].x + i,
                 (s64)a.n_head * a.x_step, f.n, end - i, sum);
                for (s32 j = 0; j < f.n; j++)
                    part[(buffer + unit * FEW_TOKENS + j) * ROWS + r] = sum[j];
            }
            BARRIER();
            for (s32 i = 0; i < n && adds; i++)
                acc = add_(acc,
                           part[(buffer + i * FEW_TOKENS + mine) * ROWS + r]);
            buffer ^= FEW_SLOTS;
        }
        if (a.run[k].n_add < 0)
            continue;
        if (adds) {
            for (s32 i = 1; i <= a.run[k].n_add; i++)
                acc = add_(*AT(const float, ENTRY(top - i) + at), acc);
            *AT(float, ENTRY(top - a.run[k].n_add) + at) = acc;
        }
        top += 1 - a.run[k].n_add;
        acc = 0;
    }
    if (adds && a.run[a.n_run - 1].n_add < 0)
        *AT(float, ENTRY(top) + at) = acc;
}

#undef FORMAT
#undef ELEMENT
#undef BYTES
