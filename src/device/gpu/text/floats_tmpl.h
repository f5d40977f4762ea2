/* Template of the contractions with weights of a float format, packed or in
 * plain rows. The including file defines FORMAT, the format's name; WORD, the
 * type of a stored weight; and VALUE(word), its value as a float. All three are
 * undefined at the end. */
/* weights that a lane of matvec loads ahead. 48 of 4 bytes would need too many
 * registers; 32 of them are more bytes than 48 of 2 */
#define AHEAD (sizeof(WORD) == 4 ? 16 : 32)

/* Loads 16 weights of a row. They are w_k elements apart: ROWS if the weights
 * are packed, else 1. */
DEV void OF(ask_words)(GLOBAL const WORD *w, s32 w_k, WORD *word)
{
    if (w_k == ROWS) {
        UNROLL
        for (s32 i = 0; i < 16; i++)
            word[i] = w[i * ROWS];
    } else {
        UNROLL
        for (s32 i = 0; i < 16; i++)
            word[i] = w[i];
    }
}

/* Multiplies 16 weights with n_row rows of activations: sum[j] = fma(word[i],
 * x[j][i], sum[j]) for ascending i. x is [n_row][step], aligned like struct
 * quad. */
DEV void OF(add_words)(const WORD *word, LOCAL const float *x, s32 step,
                       s32 n_row, float *sum)
{
    UNROLL
    for (s32 i = 0; i < 16; i += 4) {
        UNROLL
        for (s32 j = 0; j < n_row; j++) {
            float y[4];

            quad_get(y, x + j * step + i);
            UNROLL
            for (s32 k = 0; k < 4; k++)
                sum[j] = fma_(VALUE(word[i + k]), y[k], sum[j]);
        }
    }
}

/* The work of a matvec lane in one segment of k (up to 256 values): the n
 * weights of its row, from address w on and w_k elements apart, and the
 * activations from address x on. A lane loads up to AHEAD weights before
 * it uses them, sixteen at a time. */
struct OF(segment) {
    WORD word[AHEAD];
    /* every 16th of the activations to be stored in shared memory next */
    float next[SEGMENT / 16];
    GLOBAL const WORD *w;
    GLOBAL const float *x;
    s32 w_k, n, has_row;
};

/* Loads every 16th, from r on, of the values i .. i + step - 1 of n_row rows of
 * activations into next[]. Rows from n on and values after the segment's end
 * become zeros. */
DEV void OF(ask_x)(struct OF(segment) * g, s64 x_next, s32 n, s32 n_row, s32 r,
                   s32 i, s32 step)
{
    UNROLL
    for (s32 p = 0; p < n_row * step / 16; p++) {
        s32 row = 16 * p / step, at = i + 16 * p % step + r;

        g->next[p] = 0;
        if (row < n && at < g->n)
            g->next[p] = g->x[row * x_next + at];
    }
}

/* Begins to load segment `at` of a run of k, where segments of all experts are
 * counted together. If `at` is n_all or more, there is no such segment, and the
 * activations become zeros. */
DEV void OF(ask)(struct OF(segment) * g, const struct few_run *f, s32 at,
                 s32 n_all, s32 r)
{
    s32 item = f->n_unit < n_all ? divide(at, f->n_unit, f->n_unit_inverse) : 0;
    s32 matrix = f->matrix;
    s32 i = (at - item * f->n_unit) * SEGMENT - f->first;
    s32 end = i + SEGMENT < f->len ? i + SEGMENT : f->len;
    s32 x = f->x_row;

    i = i < 0 ? 0 : i;
    g->n = at < n_all ? end - i : 0;
    if (at < n_all && f->down) {
        x += f->order[item];
        matrix = f->id[x];
    }
    g->x = (GLOBAL const float *)f->x + x * f->x_step + i;
    g->w = (GLOBAL const WORD *)(f->w + (u64)matrix * f->matrix_bytes) +
           i * g->w_k;
    UNROLL
    for (s32 p = 0; p < AHEAD; p += 16)
        if (g->has_row && p + 16 <= g->n)
            OF(ask_words)(g->w + p * g->w_k, g->w_k, g->word + p);
    if (f->n == 1)
        OF(ask_x)(g, 0, 1, 1, r, 0, SEGMENT / 2);
    else
        OF(ask_x)(g, f->x_next, f->n, FEW_TOKENS, r, 0, AHEAD);
}

/* Adds values i .. i + step - 1 of the segment to the sums of n_row rows of
 * activations, of which `held` has these values, [n_row][step]. The weights
 * begin at word[from]. The last n % 16 weights of the segment were not loaded
 * ahead, so they are loaded here. */
DEV void OF(add_held)(struct OF(segment) * g, LOCAL const float *held, s32 i,
                      s32 step, s32 from, s32 n_row, float *sum)
{
    s32 ahead = step < AHEAD ? step : AHEAD;
    s32 end = i + step < g->n ? i + step : g->n;

    for (s32 j = i; j < end; j += ahead) {
        UNROLL
        for (s32 p = 0; p < ahead; p += 16) {
            s32 next = j + p + AHEAD;

            if (j + p + 16 <= end)
                OF(add_words)
            (g->word + from + p, held + (j + p - i), step, n_row, sum);
            if (next + 16 <= g->n)
                OF(ask_words)(g->w + next * g->w_k, g->w_k, g->word + from + p);
        }
    }
    UNROLL_NONE
    for (s32 j = g->n & ~15; j >= i && j < end; j++) {
        float v = VALUE(g->w[j * g->w_k]);

        UNROLL
        for (s32 k = 0; k < n_row; k++)
            sum[k] = fma_(v, held[k * step + j - i], sum[k]);
    }
}

/* Computes the sums of a segment for n_row rows of activations. n_row is 1 or
 * FEW_TOKENS; the first n rows exist, the others are zeros. */
DEV void OF(add_segment)(struct OF(segment) * g, LOCAL float *held, s32 r,
                         s32 n_row, s32 step, s64 x_next, s32 n, float *sum)
{
    UNROLL
    for (s32 j = 0; j < n_row; j++)
        sum[j] = 0;
    for (s32 i = 0; i < SEGMENT;) {
        UNROLL
        for (s32 from = 0; from < AHEAD; from += step) {
            UNROLL
            for (s32 p = 0; p < n_row * step / 16; p++)
                held[16 * p + r] = g->next[p];
            BARRIER();
            if (i + step < SEGMENT)
                OF(ask_x)(g, x_next, n, n_row, r, i + step, step);
            if (g->has_row)
                OF(add_held)(g, held, i, step, from, n_row, sum);
            i += step;
            if (i < SEGMENT)
                BARRIER();
        }
    }
}

/* Loads what lane `id` then stores in shared memory: of the values k .. k + n -
 * 1 one weight of each of 8 panels, and four activations. Adjacent lanes load
 * adjacent weights: rows if the weights are packed, else values of k. Weight
 * rows from n_row on and rows of activations from n_tok on become zeros. */
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
            next_w[p] = VALUE(
                ((GLOBAL const WORD
                      *)(w + (u64)p * panel_bytes))[(k + i) * w_k + r * w_row]);
    }
    UNROLL
    for (s32 j = 0; j < 4; j++) {
        next_x[j] = 0;
        if (lo < n && 16 * j + hi < n_tok)
            next_x[j] = x[row_x[16 * j + hi] * x_step + k + lo];
    }
}

/* Contraction of few rows of activations. It is the algorithm of matvec_tmpl.h,
 * with segments of 256 values in place of units.
 *
 * Lanes: 16 lanes have a segment of the panel's 16 rows, so a round is 16
 * segments. Shared memory: activations of each segment, or 48 or 32 values of
 * each of four rows of them; the segments' sums. Order of sums: in a segment
 * one chain of fma from 0, by ascending k; segments are added ascending. */
KERNEL_AHEAD_OF(OF(matvec), struct contract_args, 256)
{
    LOCAL_ARRAY(struct quad, quads, 16 * (SEGMENT + 4) / 4);
    LOCAL_ARRAY(float, part, 16 * FEW_TOKENS * ROWS);
    LOCAL_ARRAY(s32, order, FEW_ITEMS);
    LOCAL float *held = (LOCAL float *)quads + (LANE() >> 4) * (SEGMENT + 4);
    s32 id = LANE(), r = id & 15, unit = id >> 4, mine = id >> 4;
    s32 group = GROUP() - OWN_FIRST, n_panel = OWN(n_slice), rows = OWN(n);
    u64 own_out = OWN(out), matrix_bytes = OWN(matrix_bytes);
    s32 block = divide(group, n_panel, OWN(n_slice_inverse));
    s32 panel = group - block * n_panel, row = panel * ROWS + r;
    struct few f = few_find(block, a.mode, a.n_tok, a.tok, a.n_head, a.n_block,
                            a.n_block_inverse, a.share, a.share_inverse);
    s32 top = a.top, adds = mine < f.n && row < rows;
    s64 at = (f.out + (s64)mine * a.n_head) * rows + row;
    struct OF(segment) g;
    float acc = 0;

    g.n = 0;
    g.w_k = a.w_k;
    g.has_row = row < rows;
    if (a.mode == CONTRACT_HEADS && f.matrix < a.n_matrix)
        few_prefetch(OWN(w) + (u64)f.matrix * matrix_bytes, matrix_bytes,
                     (u64)panel * a.panel_bytes, a.panel_bytes);
    AWAIT();
    if (a.mode == CONTRACT_EXPERTS)
        f.matrix = AT(const s32, a.id)[f.out];
    if (a.mode == CONTRACT_DOWN)
        f.n_item = few_order(AT(const s32, a.id) + (s64)f.out * a.n_used,
                             a.n_used, a.n_matrix, a.item, a.n_item, id, order);
    else if (f.matrix < 0 || f.matrix >= a.n_matrix)
        /* an invalid id: reads matrix 0, which is a valid address, and adds
         * nothing */
        f.n_item = f.matrix = 0;
    BARRIER();
    if (a.open && adds)
        acc = OWN_ENTRY(const float, top)[at];
    for (s32 k = 0; k < a.n_run; k++) {
        struct few_run run;
        s32 total, n_add;

        run.w = (GLOBAL const u8 *)((AT_HELD(const WORD, OWN(w))) +
                                    (s64)r * a.w_row) +
                (u64)panel * a.panel_bytes + a.run[k].off;
        run.x = AT(const u32, a.x) + a.run[k].x;
        run.id = AT(const s32, a.id);
        run.down = a.mode == CONTRACT_DOWN;
        run.x_row = run.down ? f.out * a.n_used : f.x;
        run.order = order;
        run.matrix_bytes = matrix_bytes;
        run.x_step = a.x_step;
        run.x_next = (s64)a.n_head * a.x_step;
        run.matrix = f.matrix;
        run.n = f.n;
        run.len = a.run[k].n;
        run.first = a.run[k].first;
        run.n_unit = a.run[k].n_unit;
        run.n_unit_inverse = a.run[k].n_unit_inverse;
        total = run.n_unit * f.n_item;
        for (s32 t = -16; t < total; t += 16) {
            s32 n = total - t < 16 ? total - t : 16;

            if (t >= 0) {
                float sum[FEW_TOKENS];

                if (f.n == 1)
                    OF(add_segment)(&g, held, r, 1, SEGMENT / 2, 0, 1, sum);
                else
                    OF(add_segment)
                (&g, held, r, FEW_TOKENS, AHEAD, run.x_next, f.n, sum);
                UNROLL
                for (s32 j = 0; j < FEW_TOKENS; j++)
                    if (j == 0 || f.n > 1)
                        part[(unit * FEW_TOKENS + j) * ROWS + r] = sum[j];
            }
            OF(ask)(&g, &run, t + 16 + unit, total, r);
            BARRIER();
            UNROLL_NONE
            for (s32 i = 0; i < n && adds && t >= 0; i++)
                acc = add_(acc, part[(i * FEW_TOKENS + mine) * ROWS + r]);
        }
        n_add = a.run[k].n_add;
        if (n_add < 0 && k + 1 < a.n_run)
            continue;
        n_add = n_add < 0 ? 0 : n_add;
        if (adds) {
            for (s32 i = 1; i <= n_add; i++)
                acc = add_(OWN_ENTRY(const float, top - i)[at], acc);
            OWN_ENTRY(float, top - n_add)[at] = acc;
            if (k + 1 == a.n_run && OWN(bias.from))
                ADD_BIAS(f, at, row, rows, acc);
            if (k + 1 == a.n_run)
                ADD_TAIL(at, acc);
        }
        top += 1 - n_add;
        acc = 0;
    }
    GO_ON(f, block, panel, panel + 1, n_panel, (LOCAL u32 *)quads);
    CHOOSE_LAST(f, block, n_panel, (LOCAL u32 *)quads);
}

/* Contraction of many rows of activations. A work group computes MANY_PANELS
 * panels for MANY_TOKENS rows of activations. Shared memory has FLOAT_STAGE
 * values of k of both at a time. A lane computes eight weight rows,
 * float_row(), for four rows of activations, so three loads of four floats
 * serve 32 multiply-adds. Order of sums: that of matvec. */
KERNEL_OF(OF(matmul), struct contract_args, 256)
{
    LOCAL_ARRAY(struct quad, quads_w, 2 * FLOAT_STAGE * FLOAT_ROWS / 4);
    LOCAL_ARRAY(struct quad, quads_x, 2 * FLOAT_STAGE * FLOAT_TOKENS / 4);
    LOCAL_ARRAY(s32, row_x, MANY_TOKENS);
    LOCAL_ARRAY(s32, row_out, MANY_TOKENS);
    LOCAL float *held_w = (LOCAL float *)quads_w;
    LOCAL float *held_x = (LOCAL float *)quads_x;
    s32 id = LANE(), r = id & 15, y = id >> 4;
    s32 n_wide = (a.n_panel + MANY_PANELS - 1) / MANY_PANELS;
    s32 row0 = GROUP() % n_wide * MANY_PANELS * ROWS, row = row0 + 4 * r;
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
    before = ENTRY(const float, top);
    UNROLL
    for (s32 p = 0; p < 8; p++) {
        UNROLL
        for (s32 c = 0; c < 4; c++) {
            s64 o = a.open ? many_at(row_out, f.n, 4 * y + c, a.n,
                                     row + float_row(p))
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
        GLOBAL const u8 *w = AT(const u8, a.w) +
                             (u64)f.matrix * a.matrix_bytes +
                             (u64)(row0 / ROWS) * a.panel_bytes + a.run[k].off;
        float next_w[8], next_x[4];

        OF(stage_load)
        (w, a.panel_bytes, a.w_k, a.w_row, a.n - row0, x, a.x_step, row_x, f.n,
         0, n, id, next_w, next_x);
        stage_put_floats(held_w, held_x, buffer, a.w_k, id, next_w, next_x);
        BARRIER();
        while (at < len) {
            s32 to = at + n, n2 = stage_floats(to, len, first);
            LOCAL const float *hw =
                held_w + buffer * FLOAT_STAGE * FLOAT_ROWS + 4 * r;
            LOCAL const float *hx =
                held_x + buffer * FLOAT_STAGE * FLOAT_TOKENS + 4 * y;

            OF(stage_load)
            (w, a.panel_bytes, a.w_k, a.w_row, a.n - row0, x, a.x_step, row_x,
             f.n, to, n2, id, next_w, next_x);
            for (s32 i = 0; i < n; i++) {
                float v[8], x4[4];

                quad_get(v, hw + i * FLOAT_ROWS);
                quad_get(v + 4, hw + i * FLOAT_ROWS + float_row(4));
                quad_get(x4, hx + i * FLOAT_TOKENS);
                UNROLL
                for (s32 p = 0; p < 8; p++) {
                    UNROLL
                    for (s32 c = 0; c < 4; c++)
                        sum[4 * p + c] = fma_(v[p], x4[c], sum[4 * p + c]);
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
            before = ENTRY(const float, top - i);
            UNROLL
            for (s32 p = 0; p < 8; p++) {
                UNROLL
                for (s32 c = 0; c < 4; c++) {
                    s64 o = many_at(row_out, f.n, 4 * y + c, a.n,
                                    row + float_row(p));

                    if (o >= 0)
                        acc[4 * p + c] = add_(before[o], acc[4 * p + c]);
                }
            }
        }
        top -= n_add;
        after = ENTRY(float, top);
        UNROLL
        for (s32 p = 0; p < 8; p++) {
            UNROLL
            for (s32 c = 0; c < 4; c++) {
                s64 o =
                    many_at(row_out, f.n, 4 * y + c, a.n, row + float_row(p));

                if (o >= 0)
                    after[o] = acc[4 * p + c];
                acc[4 * p + c] = 0;
            }
        }
        top++;
    }
}

#undef FORMAT
#undef WORD
#undef VALUE
#undef AHEAD
