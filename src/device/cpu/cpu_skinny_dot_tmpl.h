/* Skinny GEMM with v_dot (see cpu_unpack_tmpl.h): defines panel_quantized for
 * cpu_matmul_tmpl.h. The panels of a call are processed in an interleaved
 * order, one tile of each panel in turn, so that several streams of memory are
 * read at once.
 *
 * The including file defines MAX_PANELS, the maximum number of panels of a call
 * (1 or 4), and AHEAD (cpu_matmul_tmpl.h). */

/* Prefetches n bytes of packed weights, `ahead` bytes after p, in panel i of
 * the call. */
TMPL void fetch(const struct cpu_panel_args *s, int i, const uint8_t *p, int n,
                const int ahead)
{
    p = ahead_of(s, i, p, ahead);
    for (int j = 0; j < n; j += 64)
        __builtin_prefetch(p + j);
}

/* ---- products of a tile -------------------------------------------------- */

/* Returns true if the sum of products of half a tile (16 values), before the
 * bias is subtracted, fits an int16. v_fold can then multiply this sum by its
 * scale and add the product to another. */
TMPL bool folds(struct shape f)
{
    return has_scale(f) && !is_wide(f) && f.low_bits + f.high_bits <= 4;
}

/* Returns isum (cpu_matmul.h), the scaled integer sum of products of a tile and
 * one block of activations. A level is a code minus the format's bias B. So the
 * sum of level times activation is the sum of code times activation, minus B
 * times the sum of the activations, which the block stores. `bias` is the int16
 * pair -B (S0, S1), or -B (1, 1) if both halves of the tile have the same
 * scale. */
TMPL vi tile_dot(const vu code[8], const struct scales *w, vi bias,
                 const struct q8_block *x, struct shape f)
{
    int max = is_wide(f) ? 255 : (1 << (f.low_bits + f.high_bits)) - 1;
    vi shift = v_set(0);
    vi isum;

    if (bias_of(f) != 0)
        shift = v_pairs(v_set(load_dword(x->sum)), bias);
    if (folds(f)) {
        int other = has_halves(f) ? 1 : 0;

        /* `bias` does not contain the scale S if both halves of the tile share
         * it, so it is multiplied in here. */
        if (!has_halves(f))
            shift *= w->s[0];
        isum = v_fold(shift, v_dot(v_set(0), code, x->q, 4, max), w->s[0]);
        return v_fold(isum, v_dot(v_set(0), code + 4, x->q + 16, 4, max),
                      w->s[other]);
    }
    if (has_halves(f)) {
        isum = v_dot(v_set(0), code, x->q, 4, max) * w->s[0];
        isum += v_dot(v_set(0), code + 4, x->q + 16, 4, max) * w->s[1];
        return isum + shift;
    }
    isum = v_dot(shift, code, x->q, 8, max);
    if (has_scale(f))
        isum *= w->s[0];
    return isum;
}

/* Returns the sum of level times activation over half h (16 values) of a tile,
 * for formats whose halves have float scales. */
TMPL vi half_dot(const vu code[8], const struct q8_block *x, int h,
                 struct shape f)
{
    return v_dot(v_set(-bias_of(f) * x->sum[h]), code + 4 * h, x->q + 16 * h, 4,
                 255);
}

/* Returns the accumulators `acc` plus the products of a tile and a block of
 * activations, times the float scales. For formats whose tiles have float
 * scales. */
TMPL vf tile_close(vf acc, const vu code[8], const struct scales *w, vi bias,
                   const struct q8_block *x, struct shape f)
{
    vf d = v_setf(x->d);

    if (has_two_d(f)) {
        acc = v_fma(w->d * d, v_int_f(half_dot(code, x, 0, f)), acc);
        return v_fma(w->d1 * d, v_int_f(half_dot(code, x, 1, f)), acc);
    }
    acc = v_fma(w->d * d, v_int_f(tile_dot(code, w, bias, x, f)), acc);
    if (has_min(f))
        acc = v_fma(w->dmin * d,
                    v_int_f(v_pairs(v_set(load_dword(x->sum)), w->m)), acc);
    return acc;
}

/* Integer sums isum and msum (cpu_matmul.h) of a chunk: [row of
 * activations][vector of weight rows]. */
struct sums {
    vi isum[CPU_PANEL_TOK][HALVES], msum[CPU_PANEL_TOK][HALVES];
};

/* Adds the integer sums isum and msum of a chunk, times the float scales, to
 * the W accumulators at `at`. `dx` is the scale of the chunk's activations. */
TMPL void sums_close(float *at, const struct scales *w, float dx, vi isum,
                     vi msum, struct shape f)
{
    vf d = v_setf(dx), acc;

    memcpy(&acc, at, sizeof(acc));
    acc = v_fma(w->d * d, v_int_f(isum), acc);
    if (has_min(f))
        acc = v_fma(w->dmin * d, v_int_f(msum), acc);
    memcpy(at, &acc, sizeof(acc));
}

/* Multiplies the weight rows of vector h in one tile by block `block` of each
 * row of activations. For formats with super-blocks, integer sums are collected
 * in `sums` and added to the accumulators only with the chunk's last tile
 * (`last`). For other formats, the products of each tile are added to the
 * accumulators at once. */
TMPL void tile_half(const struct cpu_panel_args *s, const uint8_t *sup,
                    const uint8_t *tile, int64_t block, int h, bool last,
                    vu table, struct sums *sums, struct shape f)
{
    const uint8_t *low = tile + s->pack->rule->sub_bytes + 4 * W * h;
    struct scales w = {0};
    vu code[8];
    vi bias;

    unpack(code, low, low + 64 * f.low_bits, table, f);
    scales_read(&w, sup, tile, h, f);
    if (has_halves(f))
        bias = pair(w.s[0] * -bias_of(f), w.s[1] * -bias_of(f));
    else
        bias = pair(v_set(-bias_of(f)), v_set(-bias_of(f)));
    for (int j = 0; j < s->n_tok; j++) {
        const struct q8_block *x = (const struct q8_block *)s->x[j] + block;
        float *at = cpu_panel_acc(s, j) + W * h;

        if (!has_chunks(f)) {
            vf acc = tile_close((vf)load(at), code, &w, bias, x, f);

            memcpy(at, &acc, sizeof acc);
            continue;
        }
        sums->isum[j][h] += tile_dot(code, &w, bias, x, f);
        if (has_min(f))
            sums->msum[j][h] += v_pairs(v_set(load_dword(x->sum)), w.m);
        if (last)
            sums_close(at, &w, x->d, sums->isum[j][h], sums->msum[j][h], f);
    }
}

/* Computes a panel call of one panel with any number of rows of activations;
 * used for more than MAX_CELLS rows. */
TMPL void more_rows(const struct cpu_panel_args *s, vu table, struct shape f)
{
    const struct pack_rule *rule = s->pack->rule;

    for (int i = 0; i < s->pack->n_chunk; i++) {
        const struct pack_chunk *c = &s->pack->chunk[i];
        const uint8_t *sup = s->panel + c->off;
        const uint8_t *tile = sup + rule->sup_bytes;
        int64_t b = c->k_loc / 32, end = (c->k_loc + c->n) / 32;
        struct sums sums;

        if (c->rank != s->rank)
            continue;
        if (has_chunks(f)) {
            memset(sums.isum, 0, (size_t)s->n_tok * sizeof sums.isum[0]);
            memset(sums.msum, 0, (size_t)s->n_tok * sizeof sums.msum[0]);
        }
        for (; b < end; b++) {
            fetch(s, 0, tile, rule->tile_bytes, AHEAD);
            for (int h = 0; h < HALVES; h++)
                tile_half(s, sup, tile, b, h, b + 1 == end, table, &sums, f);
            tile += rule->tile_bytes;
        }
    }
}

/* ---- few rows of activations --------------------------------------------- */

/* Maximum number of cells whose sums are in registers. A cell is a pair of a
 * panel p and a row of activations t. Its index is p * n_tok + t. */
enum { MAX_CELLS = 8 };

/* Some consecutive panels of a panel call, and the call's rows of activations.
 * The functions below get the numbers of both, n_panel and n_tok, as
 * compile-time constants; n_panel * n_tok is at most MAX_CELLS. */
struct few {
    const struct cpu_panel_args *s;
    const struct q8_block *x[MAX_CELLS];
    /* address of the first of the n_panel panels that are computed together */
    const uint8_t *panel;
    /* index in the panel call of the first of the n_panel panels that are
     * computed together */
    int first;
    vu table;
};

/* The sums of each pair of a panel and a row of activations: isum over the
 * current chunk, as integers, and acc over all k so far. */
struct few_sums {
    vi isum[MAX_CELLS][HALVES];
    vf acc[MAX_CELLS][HALVES];
};

/* Multiplies tile i of chunk *c of panel p by all n_tok rows of activations.
 * Adds the products to *sum: for formats with super-blocks to isum, else to
 * acc. */
TMPL void few_tile(const struct few *w, int p, const struct pack_chunk *c,
                   int64_t i, struct few_sums *sum, const int n_panel,
                   const int n_tok, struct shape f)
{
    const struct pack_rule *rule = w->s->pack->rule;
    const int64_t block = c->k_loc / 32 + i;
    const uint8_t *sup =
        w->panel + (size_t)p * w->s->pack->panel_bytes + c->off;
    const uint8_t *tile =
        sup + rule->sup_bytes + (size_t)i * (size_t)rule->tile_bytes;

    fetch(w->s, w->first + p, tile, rule->tile_bytes, distance(AHEAD, n_panel));
    UNROLL
    for (int h = 0; h < HALVES; h++) {
        const uint8_t *low = tile + rule->sub_bytes + 4 * W * h;
        struct scales k = {0};
        vi one = v_set(-bias_of(f));
        vu code[8];
        vi bias;

        unpack(code, low, low + 64 * f.low_bits, w->table, f);
        scales_read(&k, sup, tile, h, f);
        bias =
            has_halves(f) ? pair(k.s[0] * one, k.s[1] * one) : pair(one, one);
        UNROLL
        for (int t = 0; t < n_tok; t++) {
            const struct q8_block *x = w->x[t] + block;
            const int cell = p * n_tok + t;

            if (has_chunks(f))
                sum->isum[cell][h] += tile_dot(code, &k, bias, x, f);
            else
                sum->acc[cell][h] =
                    tile_close(sum->acc[cell][h], code, &k, bias, x, f);
        }
    }
}

/* Adds the integer sums of chunk *c of panel p, times the float scales, to the
 * accumulators of the panel's pairs with rows of activations. msum, the sum
 * with minima, is computed only here, in a second loop over the chunk's
 * tiles. */
TMPL void few_close(const struct few *w, int p, const struct pack_chunk *c,
                    const struct few_sums *sum, float *const acc[MAX_CELLS],
                    const int n_tok, struct shape f)
{
    const struct pack_rule *rule = w->s->pack->rule;
    const int64_t block = c->k_loc / 32;
    const uint8_t *sup =
        w->panel + (size_t)p * w->s->pack->panel_bytes + c->off;

    UNROLL
    for (int h = 0; h < HALVES; h++) {
        vi msum[MAX_CELLS];
        struct scales k = {0};

        UNROLL
        for (int t = 0; t < n_tok; t++)
            msum[t] = v_set(0);
        for (int64_t i = 0; has_min(f) && i < c->n / 32; i++) {
            scales_read(&k, sup,
                        sup + rule->sup_bytes +
                            (size_t)i * (size_t)rule->tile_bytes,
                        h, f);
            UNROLL
            for (int t = 0; t < n_tok; t++)
                msum[t] +=
                    v_pairs(v_set(load_dword(w->x[t][block + i].sum)), k.m);
        }
        /* For formats without minima the loop above did not run, so the float
         * scale d has not been read yet. It is among the scales of the chunk's
         * first tile. */
        if (!has_min(f))
            scales_read(&k, sup, sup + rule->sup_bytes, h, f);
        UNROLL
        for (int t = 0; t < n_tok; t++)
            sums_close(acc[p * n_tok + t] + W * h, &k, w->x[t][block].d,
                       sum->isum[p * n_tok + t][h], msum[t], f);
    }
}

/* Multiplies n_panel panels by n_tok rows of activations, over all chunks of
 * the call's rank, and adds the products to the call's accumulators. If the
 * call has fewer than n_tok rows, the sums of the rows in excess are
 * discarded. */
TMPL void few_chunks(const struct few *w, const int n_panel, const int n_tok,
                     struct shape f)
{
    const struct cpu_panel_args *s = w->s;
    const int n_cell = n_panel * n_tok;
    float nowhere[PACK_ROWS] = {0};
    float *acc[MAX_CELLS];

    UNROLL
    for (int i = 0; i < n_cell; i++)
        acc[i] = i % n_tok < s->n_tok
                     ? cpu_panel_acc(s, i % n_tok) +
                           (w->first + i / n_tok) * s->n_tok * PACK_ROWS
                     : nowhere;
    for (int i = 0; i < s->pack->n_chunk; i++) {
        const struct pack_chunk *c = &s->pack->chunk[i];
        struct few_sums sum;

        if (c->rank != s->rank)
            continue;
        UNROLL
        for (int j = 0; j < n_cell; j++) {
            UNROLL
            for (int h = 0; h < HALVES; h++) {
                sum.isum[j][h] = v_set(0);
                sum.acc[j][h] = (vf)load(acc[j] + W * h);
            }
        }
        for (int64_t k = 0; k < c->n / 32; k++) {
            UNROLL
            for (int p = 0; p < n_panel; p++)
                few_tile(w, p, c, k, &sum, n_panel, n_tok, f);
        }
        if (has_chunks(f)) {
            UNROLL
            for (int p = 0; p < n_panel; p++)
                few_close(w, p, c, &sum, acc, n_tok, f);
            continue;
        }
        UNROLL
        for (int j = 0; j < n_cell; j++) {
            UNROLL
            for (int h = 0; h < HALVES; h++)
                memcpy(acc[j] + W * h, &sum.acc[j][h], sizeof sum.acc[j][h]);
        }
    }
}

/* Computes a panel call, with n_tok rows of activations: a compile-time
 * constant that is at least the call's number. The excess rows repeat the first
 * one. Computes n_panel panels at a time, and the remaining panels one by
 * one. */
TMPL void few_rows(const struct cpu_panel_args *s, vu table, const int n_panel,
                   const int n_tok, struct shape f)
{
    struct few w = {.s = s, .table = table};

    for (int t = 0; t < n_tok; t++)
        w.x[t] = s->x[t < s->n_tok ? t : 0];
    while (w.first < s->n_panel) {
        w.panel = s->panel + (size_t)w.first * s->pack->panel_bytes;
        if (n_panel > 1 && s->n_panel - w.first >= n_panel) {
            few_chunks(&w, n_panel, n_tok, f);
            w.first += n_panel;
        } else {
            few_chunks(&w, 1, n_tok, f);
            w.first++;
        }
    }
}

TMPL void panel_quantized(const struct cpu_panel_args *s, struct shape f)
{
    vu table = table_of(s->pack->rule, f);

    if (s->n_tok == 1)
        few_rows(s, table, MAX_PANELS, 1, f);
    else if (s->n_tok == 2)
        few_rows(s, table, MAX_PANELS, 2, f);
    else if (s->n_tok <= 4)
        few_rows(s, table, MAX_PANELS < 2 ? MAX_PANELS : 2, 4, f);
    else if (s->n_tok <= MAX_CELLS)
        few_rows(s, table, 1, MAX_CELLS, f);
    else
        more_rows(s, table, f);
}
