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

/* What a lane moves to shared memory of values k .. k + n - 1 of all rows: of
 * weights, element id of each panel's, in packed form by k, else by row. Rows
 * from n_row on, or n_tok, are zeros. */
DEV void OF(stage_load)(GLOBAL const u8 *w, u64 panel_bytes, s64 w_k, s64 w_row,
                        s32 n_row, GLOBAL const float *x, s64 x_step,
                        LOCAL const s32 *row_x, s32 n_tok, s32 k, s32 n, s32 id,
                        float *next_w, float *next_x)
{
    s32 lo = id & 15, hi = id >> 4;
    s32 i = w_row == 1 ? hi : lo, r = w_row == 1 ? lo : hi;

    UNROLL
    for (s32 p = 0; p < 8; p++) {
        next_w[p] = 0;
        if (i < n && p * ROWS + r < n_row)
            next_w[p] =
                ELEMENT(w + (u64)p * panel_bytes, (k + i) * w_k + r * w_row);
    }
    UNROLL
    for (s32 j = 0; j < 4; j++) {
        next_x[j] = 0;
        if (lo < n && 16 * j + hi < n_tok)
            next_x[j] = x[row_x[16 * j + hi] * x_step + k + lo];
    }
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
        s32 n_part = (len + first + SEGMENT - 1) / SEGMENT, n_add;
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
                UNROLL
                for (s32 j = 0; j < FEW_TOKENS; j++)
                    part[(buffer + unit * FEW_TOKENS + j) * ROWS + r] = sum[j];
            }
            BARRIER();
            for (s32 i = 0; i < n && adds; i++)
                acc = add_(acc,
                           part[(buffer + i * FEW_TOKENS + mine) * ROWS + r]);
            buffer ^= FEW_SLOTS;
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

/* Many rows of activations: a group has MANY_PANELS panels and MANY_TOKENS rows
 * of activations, of both FLOAT_STAGE values of k at a time in shared memory. A
 * lane has one row of each panel and four of activations. */
KERNEL_OF(OF(matmul), struct contract_args, 256)
{
    LOCAL_ARRAY(float, held_w, 2 * FLOAT_STAGE * FLOAT_ROWS);
    LOCAL_ARRAY(float, held_x, 2 * FLOAT_STAGE * FLOAT_TOKENS);
    LOCAL_ARRAY(s32, row_x, MANY_TOKENS);
    LOCAL_ARRAY(s32, row_out, MANY_TOKENS);
    s32 id = LANE(), r = id & 15, y = id >> 4;
    s32 n_wide = (a.n_panel + MANY_PANELS - 1) / MANY_PANELS;
    s32 row0 = GROUP() % n_wide * MANY_PANELS * ROWS, row = row0 + r;
    s32 top = a.top, buffer = 0;
    struct many f =
        many_find(GROUP() / n_wide, a.mode, a.n_tok, AT(const s32, a.head),
                  AT(const s32, a.block), a.item);
    float acc[32], sum[32];
    GLOBAL const float *before;
    GLOBAL float *after;

    if (f.n == 0)
        return;
    if (id < f.n)
        many_rows(&f, id, a.mode, a.n_head, a.n_used, a.share,
                  AT(const s32, a.list), row_x, row_out);
    BARRIER();
    before = AT(const float, ENTRY(top));
    UNROLL
    for (s32 p = 0; p < 8; p++) {
        UNROLL
        for (s32 c = 0; c < 4; c++) {
            s64 o = a.open
                        ? many_at(row_out, f.n, 4 * y + c, a.n, row + p * ROWS)
                        : -1;

            sum[4 * p + c] = 0;
            acc[4 * p + c] = o < 0 ? 0 : before[o];
        }
    }
    for (s32 k = 0; k < a.n_run; k++) {
        s32 len = f.matrix < a.n_matrix ? a.run[k].n : 0;
        s32 first = a.run[k].first, at = 0, n_add;
        s32 n = stage_floats(0, len, first);
        GLOBAL const float *x = AT(const float, a.x) + a.run[k].x;
        GLOBAL const u8 *w =
            AT(const u8, a.w + (u64)f.matrix * a.matrix_bytes +
                             (u64)(row0 / ROWS) * a.panel_bytes + a.run[k].off);
        float next_w[8], next_x[4];

        OF(stage_load)
        (w, a.panel_bytes, a.w_k, a.w_row, a.n - row0, x, a.x_step, row_x, f.n,
         0, n, id, next_w, next_x);
        stage_put_floats(held_w, held_x, buffer, a.w_k, id, next_w, next_x);
        BARRIER();
        while (at < len) {
            s32 to = at + n, n2 = stage_floats(to, len, first);
            LOCAL const float *hw = held_w + buffer * FLOAT_STAGE * FLOAT_ROWS;
            LOCAL const float *hx =
                held_x + buffer * FLOAT_STAGE * FLOAT_TOKENS + 4 * y;

            OF(stage_load)
            (w, a.panel_bytes, a.w_k, a.w_row, a.n - row0, x, a.x_step, row_x,
             f.n, to, n2, id, next_w, next_x);
            for (s32 i = 0; i < n; i++) {
                UNROLL
                for (s32 p = 0; p < 8; p++) {
                    float v = hw[i * FLOAT_ROWS + p * ROWS + r];

                    UNROLL
                    for (s32 c = 0; c < 4; c++)
                        sum[4 * p + c] =
                            fma_(v, hx[i * FLOAT_TOKENS + c], sum[4 * p + c]);
                }
            }
            if (to == len || (to + first) % SEGMENT == 0) {
                UNROLL
                for (s32 p = 0; p < 8; p++) {
                    UNROLL
                    for (s32 c = 0; c < 4; c++) {
                        acc[4 * p + c] = add_(acc[4 * p + c], sum[4 * p + c]);
                        sum[4 * p + c] = 0;
                    }
                }
            }
            buffer ^= 1;
            stage_put_floats(held_w, held_x, buffer, a.w_k, id, next_w, next_x);
            BARRIER();
            at = to;
            n = n2;
        }
        n_add = a.run[k].n_add;
        if (n_add < 0 && k + 1 < a.n_run)
            continue;
        n_add = n_add < 0 ? 0 : n_add;
        for (s32 i = 1; i <= n_add; i++) {
            before = AT(const float, ENTRY(top - i));
            UNROLL
            for (s32 p = 0; p < 8; p++) {
                UNROLL
                for (s32 c = 0; c < 4; c++) {
                    s64 o =
                        many_at(row_out, f.n, 4 * y + c, a.n, row + p * ROWS);

                    if (o >= 0)
                        acc[4 * p + c] = add_(before[o], acc[4 * p + c]);
                }
            }
        }
        top -= n_add;
        after = AT(float, ENTRY(top));
        UNROLL
        for (s32 p = 0; p < 8; p++) {
            UNROLL
            for (s32 c = 0; c < 4; c++) {
                s64 o = many_at(row_out, f.n, 4 * y + c, a.n, row + p * ROWS);

                if (o >= 0)
                    after[o] = acc[4 * p + c];
                acc[4 * p + c] = 0;
            }
        }
        top++;
    }
}

#undef FORMAT
#undef ELEMENT
#undef BYTES
