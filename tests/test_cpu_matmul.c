/* Contractions on the CPU: every format in every family this machine runs.
 *
 * generic is the specification and the fast families must have its bits;
 * generic and reference are held to a double computation, so nothing rests on
 * itself. Buffers are as long as they must be and no longer, so a sanitizer
 * sees every step beyond. */
#include "support.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "device/cpu/cpu_kernel.h"

/* ---- weights ------------------------------------------------------------- */

/* Where a block's f16 scales lie, so that random blocks have sane ones. */
static const struct {
    pl_format format;
    int n_half, at[2];
} formats[] = {
    {PL_F32, 0, {0}},    {PL_F16, 0, {0}},     {PL_BF16, 0, {0}},
    {PL_Q8_0, 1, {0}},   {PL_Q4_0, 1, {0}},    {PL_Q4_1, 2, {0, 2}},
    {PL_Q5_0, 1, {0}},   {PL_Q5_1, 2, {0, 2}}, {PL_Q2_K, 2, {80, 82}},
    {PL_Q3_K, 1, {108}}, {PL_Q4_K, 2, {0, 2}}, {PL_Q5_K, 2, {0, 2}},
    {PL_Q6_K, 1, {208}}, {PL_IQ4_NL, 1, {0}},  {PL_IQ4_XS, 1, {0}},
    {PL_MXFP4, 0, {0}},
};
enum { N_FORMAT = sizeof(formats) / sizeof(formats[0]), MAX_SPAN = 16 };

static void *get(size_t size)
{
    void *p = NULL;

    assert_int_equal(posix_memalign(&p, 64, size > 0 ? size : 1), 0);
    memset(p, 0xa5, size);
    return p;
}

/* One row in four has the largest and smallest codes only. */
static void random_row(int fi, uint8_t *row, int64_t n, uint64_t *seed)
{
    static const uint8_t extreme[] = {0x00, 0xff, 0x80, 0x7f};
    bool extremes = test_below(seed, 4) == 0;
    pl_format f = formats[fi].format;
    const struct format_info *info = format_info(f);

    for (int64_t b = 0; b < n / info->block; b++, row += info->block_bytes) {
        float x = test_unit(seed);
        uint16_t half;

        for (int i = 0; i < info->block_bytes; i++)
            row[i] = extremes ? extreme[test_below(seed, 4)]
                              : (uint8_t)test_random(seed);
        if (info->block == 1)
            info->encode(row, &x, 1);
        if (f == PL_MXFP4)
            row[0] = (uint8_t)(120 + test_below(seed, 8));
        for (int i = 0; i < formats[fi].n_half; i++) {
            half = f32_to_f16(0.01f * test_unit(seed));
            memcpy(row + formats[fi].at[i], &half, 2);
        }
    }
}

/* Matrices [n_expert][n, k] as one device holds them. */
struct matrix {
    int64_t n_expert, n, k; /* k: held */
    struct pack pack;
    struct pack_chunk *chunk;
    uint8_t *data; /* packed */
    float *value;  /* [n_expert][n][k] decoded */
};

static struct matrix matrix_make(int fi, int64_t n_expert, int64_t n,
                                 int64_t n_full, const struct pack_span *span,
                                 int n_span, uint64_t *seed)
{
    pl_format f = formats[fi].format;
    struct matrix m = {.n_expert = n_expert, .n = n};
    int n_chunk = pack_max_chunks(f, span, n_span);
    uint8_t *row = get(format_row_bytes(f, n_full));

    m.chunk = get((size_t)n_chunk * sizeof(m.chunk[0]));
    pack_init(&m.pack, f, n, n_full, span, n_span, m.chunk);
    m.k = m.pack.k;
    m.data = get((size_t)n_expert * m.pack.matrix_bytes);
    memset(m.data, 0, (size_t)n_expert * m.pack.matrix_bytes);
    m.value = get((size_t)(n_expert * n * m.k) * sizeof(float));
    for (int64_t i = 0; i < n_expert * n; i++) {
        uint8_t *group = m.data + (size_t)(i / n) * m.pack.matrix_bytes +
                         (size_t)(i % n / 16) * m.pack.group_bytes;

        random_row(fi, row, n_full, seed);
        pack_row(&m.pack, group, (int)(i % n % 16), row);
        if (m.k > 0)
            pack_decode(&m.pack, group, (int)(i % n % 16), 0, m.k,
                        m.value + i * m.k);
    }
    free(row);
    return m;
}

static void matrix_free(struct matrix *m)
{
    free(m->chunk);
    free(m->data);
    free(m->value);
}

/* One tensor in three is +1 and -1 only, the ends of 8 bits. */
static float *random_floats(int64_t n, uint64_t *seed)
{
    float *x = get((size_t)n * sizeof(float));
    bool extremes = test_below(seed, 3) == 0;

    for (int64_t i = 0; i < n; i++) {
        x[i] = test_unit(seed);
        if (extremes)
            x[i] = x[i] < -0.2f ? -1.0f : 1.0f;
    }
    if (n >= 64 && test_below(seed, 4) == 0)
        memset(x + 32, 0, 32 * sizeof(float)); /* a block of zeros */
    return x;
}

/* ---- trees --------------------------------------------------------------- */

/* The tree over n_rank ranks as one device sees it that carries first..end-1;
 * ranks in `empty` have no addend. */
struct tree {
    struct rank_item item[64];
    struct rank_tree t;
    int n_rank, first, end;
    uint64_t empty;
};

static int left_count(int n)
{
    int left = 1;

    while (left * 2 < n)
        left *= 2;
    return left;
}

/* Emits the items under ranks lo .. lo+n-1; true if there is an addend. */
static bool tree_emit(struct tree *t, int lo, int n)
{
    int left = left_count(n);
    bool has[2];

    if (lo + n <= t->first || lo >= t->end)
        return false;
    if (n == 1) {
        if (t->empty >> lo & 1)
            return false;
        t->item[t->t.n++] = (struct rank_item){lo, 0};
        t->t.n_out++;
        if (t->t.depth < t->t.n_out)
            t->t.depth = t->t.n_out;
        return true;
    }
    has[0] = tree_emit(t, lo, left);
    has[1] = tree_emit(t, lo + left, n - left);
    if (has[0] && has[1] && lo >= t->first && lo + n <= t->end) {
        t->item[t->t.n - 1].n_add++;
        t->t.n_out--;
    }
    return has[0] || has[1];
}

static void tree_make(struct tree *t, int n_rank, int first, int end,
                      uint64_t empty)
{
    *t = (struct tree){
        .n_rank = n_rank, .first = first, .end = end, .empty = empty};
    tree_emit(t, 0, n_rank);
    t->t.item = t->item;
}

static void tree_single(struct tree *t, int rank)
{
    *t = (struct tree){.n_rank = 1};
    t->item[0].rank = rank;
    t->t = (struct rank_tree){.n = 1, .n_out = 1, .item = t->item, .depth = 1};
}

/* The same sum written as a recursion over the addends of every rank, each
 * `n` floats; into `sum`, false if there is none. */
static bool tree_sum(const struct tree *t, float *const *addend, int lo, int n,
                     int64_t len, float *sum)
{
    int left = left_count(n);
    float *right;
    bool a, b;

    if (n == 1) {
        if (t->empty >> lo & 1)
            return false;
        memcpy(sum, addend[lo], (size_t)len * sizeof(float));
        return true;
    }
    right = get((size_t)len * sizeof(float));
    a = tree_sum(t, addend, lo, left, len, sum);
    b = tree_sum(t, addend, lo + left, n - left, len, right);
    if (a && b) {
        for (int64_t i = 0; i < len; i++)
            sum[i] += right[i];
    } else if (b) {
        memcpy(sum, right, (size_t)len * sizeof(float));
    }
    free(right);
    return a || b;
}

/* ---- calls --------------------------------------------------------------- */

struct problem {
    enum op op;
    const struct matrix *w;
    const float *x;    /* [n_tok, k] or [n_tok, x_used, k] */
    const int32_t *id; /* [n_tok, n_used] */
    int64_t n_tok, n_used, x_used;
    bool plain; /* weights as plain F32 rows */
};

static void set_dims(struct cpu_tensor *t, int n_dim, int64_t a, int64_t b,
                     int64_t c)
{
    int64_t dim[3] = {a, b, c};

    t->n_dim = n_dim;
    memcpy(t->dim, dim, sizeof(dim));
}

/* Result values of one tree entry. */
static int64_t result_count(const struct problem *p)
{
    return p->n_tok * p->w->n * (p->op == OP_expert_matmul ? p->n_used : 1);
}

/* Runs the kernel on nth threads, one after another; owned by the caller. */
static float *run(const struct cpu_kernels *k, const struct problem *p,
                  const struct rank_tree *tree, int nth)
{
    const struct matrix *w = p->w;
    int64_t rows = p->n_tok * (p->op == OP_matmul ? 1 : p->x_used);
    int64_t count = result_count(p);
    float *out = get((size_t)(count * tree->n_out) * sizeof(float));
    struct q8_block *q8 = get((size_t)(rows * w->k / 32) * sizeof(*q8));
    struct cpu_call c = {
        .n_in = p->op == OP_matmul ? 2 : 3,
        .tree = *tree,
        .out_stride = (size_t)count * sizeof(float),
        .nth = nth,
    };

    c.in[1].format = p->plain ? PL_F32 : w->pack.format;
    c.in[1].pack = p->plain ? NULL : &w->pack;
    c.in[2].format = PL_I32;
    if (p->op == OP_matmul) {
        set_dims(&c.in[0], 2, p->n_tok, w->k, 0);
        set_dims(&c.in[1], 2, w->n, w->k, 0);
        set_dims(&c.out, 2, p->n_tok, w->n, 0);
    } else {
        set_dims(&c.in[0], 3, p->n_tok, p->x_used, w->k);
        set_dims(&c.in[1], 3, w->n_expert, w->n, w->k);
        set_dims(&c.in[2], 2, p->n_tok, p->n_used, 0);
        if (p->op == OP_expert_matmul)
            set_dims(&c.out, 3, p->n_tok, p->n_used, w->n);
        else
            set_dims(&c.out, 2, p->n_tok, w->n, 0);
    }
    for (c.ith = 0; c.ith < nth; c.ith++) {
        /* Sized before any pointer is known, as the plan does. */
        void *scratch = c.scratch =
            get(k->op[p->op].scratch ? k->op[p->op].scratch(&c) : 0);

        c.out.data = out;
        c.in[0].data = (void *)p->x;
        c.in[1].data = p->plain ? (void *)w->value : w->data;
        c.in[2].data = (void *)p->id;
        if (!p->plain && cpu_wants_q8(k, p->op, w->pack.format)) {
            k->q8(q8, p->x, rows * w->k);
            c.q8 = q8;
            c.in[0].data = NULL; /* may not be read */
        }
        k->op[p->op].run(&c);
        free(scratch);
    }
    free(q8);
    return out;
}

static void same_bits(const float *a, const float *b, int64_t n,
                      const char *what, int fi, enum cpu_family family)
{
    for (int64_t i = 0; i < n; i++) {
        if (memcmp(&a[i], &b[i], sizeof(float)) != 0)
            fail_msg("%s, %s, %s: value %d is %a, should be %a", what,
                     format_info(formats[fi].format)->name,
                     cpu_family_name(family), (int)i, (double)a[i],
                     (double)b[i]);
    }
}

/* ---- slices over ranks --------------------------------------------------- */

/* Cuts n_full values at random multiples of 32 into n_rank parts, some empty,
 * part r given by span[r]; of these the device holds ranks first .. end-1.
 * Returns how many spans it holds, and the empty ranks. */
static int random_cut(int64_t n_full, int n_rank, int first, int end,
                      struct pack_span *span, uint64_t *empty, uint64_t *seed)
{
    int64_t cut[MAX_SPAN + 1] = {0};
    int n = 0;

    for (int r = 1; r < n_rank; r++)
        cut[r] = 32 * test_below(seed, n_full / 32 + 1);
    cut[n_rank] = n_full;
    for (int i = 1; i < n_rank; i++) {
        for (int j = i; j > 0 && cut[j] < cut[j - 1]; j--) {
            int64_t t = cut[j];

            cut[j] = cut[j - 1];
            cut[j - 1] = t;
        }
    }
    *empty = 0;
    for (int r = 0; r < n_rank; r++) {
        if (cut[r] == cut[r + 1])
            *empty |= (uint64_t)1 << r;
        else if (r >= first && r < end)
            span[n++] = (struct pack_span){cut[r], cut[r + 1] - cut[r], r};
    }
    return n;
}

/* A problem of random shape whose k is cut over ranks. */
struct scene {
    struct matrix w;
    struct tree tree;
    struct problem p;
    float *x;
    int32_t *id;
};

static void scene_make(struct scene *s, int fi, enum op op, uint64_t *seed)
{
    int block = format_info(formats[fi].format)->block;
    int64_t n_full = block == 256 ? 256 * (1 + test_below(seed, 3))
                                  : 32 * (1 + test_below(seed, 20));
    int n_rank = 1 + (int)test_below(seed, 8);
    int first = (int)test_below(seed, n_rank);
    int end = first + 1 + (int)test_below(seed, n_rank - first);
    struct pack_span span[MAX_SPAN];
    uint64_t empty;
    int n_span = random_cut(n_full, n_rank, first, end, span, &empty, seed);
    int64_t n_expert = op == OP_matmul ? 1 : 1 + test_below(seed, 6);

    s->w = matrix_make(fi, n_expert, 1 + test_below(seed, 40), n_full, span,
                       n_span, seed);
    tree_make(&s->tree, n_rank, first, end, empty);
    s->p = (struct problem){
        .op = op,
        .w = &s->w,
        .n_tok = 1 + test_below(seed, 33),
        .n_used = 1 + test_below(seed, 4),
    };
    s->p.x_used =
        op == OP_expert_matmul && test_below(seed, 2) ? 1 : s->p.n_used;
    s->x = random_floats(s->p.n_tok * s->p.x_used * s->w.k, seed);
    s->id = get((size_t)(s->p.n_tok * s->p.n_used) * sizeof(int32_t));
    for (int64_t i = 0; i < s->p.n_tok * s->p.n_used; i++)
        s->id[i] = (int32_t)test_below(seed, n_expert + 2) - 1;
    s->p.x = s->x;
    s->p.id = s->id;
}

static void scene_free(struct scene *s)
{
    matrix_free(&s->w);
    free(s->x);
    free(s->id);
}

static const enum op ops[] = {OP_matmul, OP_expert_matmul, OP_expert_down};
enum { N_OP = sizeof(ops) / sizeof(ops[0]) };

/* ---- the laws ------------------------------------------------------------ */

static void families_have_the_bits_of_generic(void **state)
{
    uint64_t seed = test_seed();
    struct cpu_kernels generic, k;

    (void)state;
    cpu_kernels_init(&generic, CPU_GENERIC);
    for (int i = 0; i < 6 * N_FORMAT * N_OP; i++) {
        int fi = i / N_OP % N_FORMAT;
        struct scene s;
        float *want;

        scene_make(&s, fi, ops[i % N_OP], &seed);
        want = run(&generic, &s.p, &s.tree.t, 1);
        for (int f = CPU_AVX2; f < CPU_FAMILY_COUNT; f++) {
            float *got;

            if (!cpu_family_runs((enum cpu_family)f))
                continue;
            cpu_kernels_init(&k, (enum cpu_family)f);
            got = run(&k, &s.p, &s.tree.t, 1 + i % 3);
            same_bits(got, want, result_count(&s.p) * s.tree.t.n_out, "family",
                      fi, (enum cpu_family)f);
            free(got);
        }
        free(want);
        scene_free(&s);
    }
}

static void threads_do_not_show(void **state)
{
    uint64_t seed = test_seed() + 1;
    struct cpu_kernels k;

    (void)state;
    for (int f = 0; f < CPU_FAMILY_COUNT; f++) {
        if (!cpu_family_runs((enum cpu_family)f))
            continue;
        cpu_kernels_init(&k, (enum cpu_family)f);
        for (int i = 0; i < N_FORMAT * N_OP; i++) {
            struct scene s;
            float *want;

            scene_make(&s, i / N_OP, ops[i % N_OP], &seed);
            want = run(&k, &s.p, &s.tree.t, 1);
            for (int nth = 2; nth <= 3; nth++) {
                float *got = run(&k, &s.p, &s.tree.t, nth);

                same_bits(got, want, result_count(&s.p) * s.tree.t.n_out,
                          "threads", i / N_OP, (enum cpu_family)f);
                free(got);
            }
            free(want);
            scene_free(&s);
        }
    }
}

/* Any run of 1 .. 32 tokens gives its rows of 33 computed at once. */
static void n_tok_does_not_show(void **state)
{
    uint64_t seed = test_seed() + 2;
    struct cpu_kernels k;

    (void)state;
    for (int f = 0; f < CPU_FAMILY_COUNT; f++) {
        if (!cpu_family_runs((enum cpu_family)f))
            continue;
        cpu_kernels_init(&k, (enum cpu_family)f);
        for (int i = 0; i < N_FORMAT * N_OP; i++) {
            struct pack_span span = {0, 256, 0};
            struct matrix w =
                matrix_make(i / N_OP, 3, 17, 256, &span, 1, &seed);
            float *x = random_floats(33 * 2 * 256, &seed);
            int32_t id[33 * 2];
            struct problem p = {.op = ops[i % N_OP],
                                .w = &w,
                                .x = x,
                                .id = id,
                                .n_tok = 33,
                                .n_used = 2,
                                .x_used = 2};
            struct tree t;
            float *all;
            int64_t row;

            for (int j = 0; j < 66; j++)
                id[j] = (int32_t)test_below(&seed, 3);
            tree_single(&t, 0);
            all = run(&k, &p, &t.t, 1);
            row = result_count(&p) / 33;
            for (p.n_tok = 1; p.n_tok < 33; p.n_tok++) {
                float *got;
                int64_t at = test_below(&seed, 34 - p.n_tok);

                p.x = x + at * 256 * (p.op == OP_matmul ? 1 : 2);
                p.id = id + at * 2;
                got = run(&k, &p, &t.t, 1);
                same_bits(got, all + at * row, p.n_tok * row, "n_tok", i / N_OP,
                          (enum cpu_family)f);
                free(got);
            }
            free(all);
            free(x);
            matrix_free(&w);
        }
    }
}

static void ranks_are_summed_along_the_tree(void **state)
{
    uint64_t seed = test_seed() + 3;
    struct cpu_kernels k;

    (void)state;
    for (int i = 0; i < 8 * N_OP; i++) {
        int fi = (int)test_below(&seed, N_FORMAT);
        struct pack_span span[MAX_SPAN];
        struct scene s;
        float *addend[8], *got, *want;
        int n_rank = 1 + i / N_OP;
        int64_t len;
        int n_span;
        uint64_t empty;

        cpu_kernels_init(&k, cpu_family_best());
        scene_make(&s, fi, ops[i % N_OP], &seed);
        matrix_free(&s.w);
        free(s.x);
        n_span = random_cut(768, n_rank, 0, n_rank, span, &empty, &seed);
        s.w = matrix_make(fi, s.w.n_expert, s.w.n, 768, span, n_span, &seed);
        s.p.x = s.x = random_floats(s.p.n_tok * s.p.x_used * 768, &seed);
        len = result_count(&s.p);
        for (int r = 0; r < n_rank; r++) {
            tree_single(&s.tree, r);
            addend[r] = run(&k, &s.p, &s.tree.t, 1);
        }
        tree_make(&s.tree, n_rank, 0, n_rank, empty);
        assert_int_equal(s.tree.t.n_out, 1);
        want = get((size_t)len * sizeof(float));
        assert_true(tree_sum(&s.tree, addend, 0, n_rank, len, want));
        got = run(&k, &s.p, &s.tree.t, 2);
        same_bits(got, want, len, "tree", fi, k.family);
        for (int r = 0; r < n_rank; r++)
            free(addend[r]);
        free(want);
        free(got);
        scene_free(&s);
    }
}

/* ---- against double ------------------------------------------------------ */

/* w . x in double, and in *scale the sum over blocks of 32 of 32 max|w| max|x|,
 * which bounds every partial sum also where minima cancel. */
static double exact_dot(const float *w, const float *x, int64_t n,
                        double *scale)
{
    double sum = 0;

    for (int64_t b = 0; b < n; b += 32) {
        double mw = 0, mx = 0;

        for (int64_t i = b; i < b + 32; i++) {
            sum += (double)w[i] * (double)x[i];
            mw = fmax(mw, fabs((double)w[i]));
            mx = fmax(mx, fabs((double)x[i]));
        }
        *scale += 32 * mw * mx;
    }
    return sum;
}

/* What activations are after quantizing, for kernels that do so. */
static float *as_read(const struct cpu_kernels *k, const struct problem *p,
                      int64_t n)
{
    float *y = get((size_t)n * sizeof(float));

    memcpy(y, p->x, (size_t)n * sizeof(float));
    if (!cpu_wants_q8(k, p->op, p->w->pack.format))
        return y;
    for (int64_t i = 0; i < n; i += 32) {
        struct q8_block b;

        k->q8(&b, p->x + i, 32);
        for (int j = 0; j < 32; j++)
            y[i + j] = b.d * (float)b.q[j];
    }
    return y;
}

/* All of k on one rank; every result against a double computation on the
 * decoded weights and the activations as the family reads them. Rounding stays
 * below 2^-23 for each addition, at most k + 8 of them, times the scale. */
static void check_against_double(const struct cpu_kernels *k,
                                 const struct problem *p, int fi)
{
    const struct matrix *w = p->w;
    int64_t n_row = p->n_tok * (p->op == OP_matmul ? 1 : p->x_used);
    float *x = as_read(k, p, n_row * w->k);
    struct tree t;
    float *got;

    tree_single(&t, 0);
    got = run(k, p, &t.t, 2);
    for (int64_t i = 0; i < result_count(p); i++) {
        int64_t n = i % w->n, row = i / w->n;
        double want = 0, scale = 0;

        if (p->op == OP_matmul) {
            want = exact_dot(w->value + n * w->k, x + row * w->k, w->k, &scale);
        } else {
            int64_t first = p->op == OP_expert_matmul ? row : row * p->n_used;
            int64_t end =
                p->op == OP_expert_matmul ? row + 1 : first + p->n_used;

            for (int64_t j = first; j < end; j++) {
                int64_t xj = p->x_used == 1 ? j / p->n_used : j;

                if (p->id[j] < 0 || p->id[j] >= w->n_expert)
                    continue;
                want += exact_dot(w->value + (p->id[j] * w->n + n) * w->k,
                                  x + xj * w->k, w->k, &scale);
            }
        }
        if (!(fabs((double)got[i] - want) <=
              0x1p-23 * (double)(w->k + 8) * scale))
            fail_msg("op %d, %s, %s: value %d is %.9g, should be %.9g",
                     (int)p->op, format_info(formats[fi].format)->name,
                     cpu_family_name(k->family), (int)i, (double)got[i], want);
    }
    free(x);
    free(got);
}

static void every_family_agrees_with_double(void **state)
{
    uint64_t seed = test_seed() + 4;
    struct cpu_kernels k;

    (void)state;
    for (int f = 0; f < CPU_FAMILY_COUNT; f++) {
        if (!cpu_family_runs((enum cpu_family)f))
            continue;
        cpu_kernels_init(&k, (enum cpu_family)f);
        for (int i = 0; i < N_FORMAT * N_OP; i++) {
            struct pack_span span = {0, 512, 0};
            struct scene s;

            scene_make(&s, i / N_OP, ops[i % N_OP], &seed);
            matrix_free(&s.w);
            free(s.x);
            s.w = matrix_make(i / N_OP, s.w.n_expert, s.w.n, 512, &span, 1,
                              &seed);
            s.p.x = s.x = random_floats(s.p.n_tok * s.p.x_used * 512, &seed);
            check_against_double(&k, &s.p, i / N_OP);
            scene_free(&s);
        }
    }
}

/* An operand that is computed, not loaded, has plain rows: the packed F32
 * result. */
static void plain_weights_equal_packed(void **state)
{
    uint64_t seed = test_seed() + 5;
    struct cpu_kernels k;

    (void)state;
    for (int f = CPU_GENERIC; f < CPU_FAMILY_COUNT; f++) {
        if (!cpu_family_runs((enum cpu_family)f))
            continue;
        cpu_kernels_init(&k, (enum cpu_family)f);
        for (int i = 0; i < N_OP; i++) {
            struct pack_span span = {0, 96, 0};
            struct scene s;
            float *got, *want;

            scene_make(&s, 0, ops[i], &seed);
            matrix_free(&s.w);
            free(s.x);
            s.w = matrix_make(0, s.w.n_expert, s.w.n, 96, &span, 1, &seed);
            s.p.x = s.x = random_floats(s.p.n_tok * s.p.x_used * 96, &seed);
            tree_single(&s.tree, 0);
            want = run(&k, &s.p, &s.tree.t, 1);
            s.p.plain = true;
            got = run(&k, &s.p, &s.tree.t, 2);
            same_bits(got, want, result_count(&s.p), "plain", 0,
                      (enum cpu_family)f);
            free(got);
            free(want);
            scene_free(&s);
        }
    }
}

/* ---- rows by index ------------------------------------------------------- */

static float *gather(const struct cpu_kernels *k, const struct matrix *w,
                     bool plain, const int32_t *id, int64_t n_id,
                     const struct rank_span *span, int n_span,
                     const struct rank_tree *tree, int nth)
{
    int64_t count = n_id * w->k;
    float *out = get((size_t)(count * tree->n_out) * sizeof(float));
    struct cpu_call c = {
        .n_in = 2,
        .tree = *tree,
        .span = span,
        .n_span = n_span,
        .out_stride = (size_t)count * sizeof(float),
        .nth = nth,
    };

    set_dims(&c.in[0], 2, w->n, w->k, 0);
    set_dims(&c.in[1], 1, n_id, 0, 0);
    set_dims(&c.out, 2, n_id, w->k, 0);
    c.in[0].data = plain ? (void *)w->value : w->data;
    c.in[0].format = plain ? PL_F32 : w->pack.format;
    c.in[0].pack = plain ? NULL : &w->pack;
    c.in[1].data = (void *)id;
    c.out.data = out;
    for (c.ith = 0; c.ith < nth; c.ith++)
        k->op[OP_gather_rows].run(&c);
    return out;
}

static void gather_rows_decodes_and_pads(void **state)
{
    static const int32_t id[] = {3, 0, -1, 18, 19, 7, 3, INT32_MAX, INT32_MIN};
    enum { N_ID = sizeof(id) / sizeof(id[0]) };
    uint64_t seed = test_seed() + 6;
    struct cpu_kernels k;
    struct tree t;

    (void)state;
    cpu_kernels_init(&k, cpu_family_best());
    tree_single(&t, 0);
    for (int i = 0; i < 2 * N_FORMAT; i++) {
        /* The device holds values 32 .. 95 and 160 .. 255 of each row. */
        struct pack_span span[] = {{32, 64, 0}, {160, 96, 1}};
        struct matrix w = matrix_make(i / 2, 1, 19, 256, span, 2, &seed);
        float *got = gather(&k, &w, i % 2, id, N_ID, NULL, 0, &t.t, 1 + i % 3);

        assert_int_equal(w.k, 160);
        for (int j = 0; j < N_ID; j++) {
            for (int64_t v = 0; v < w.k; v++) {
                bool in = id[j] >= 0 && id[j] < 19;
                float want = in ? w.value[id[j] * w.k + v] + 0.0f : 0.0f;

                assert_memory_equal(&got[j * w.k + v], &want, sizeof(want));
            }
        }
        free(got);
        matrix_free(&w);
    }
}

/* Five ranks share a table of 50 rows, 10 each; the device carries 1 .. 3, and
 * also stores rows of rank 4, which another device answers for. */
static void gather_rows_of_a_split_table(void **state)
{
    static const struct rank_span span[] = {
        {10, 0, 10, 1}, {20, 10, 10, 2}, {30, 20, 10, 3}, {40, 30, 10, 4}};
    uint64_t seed = test_seed() + 7;
    struct pack_span all = {0, 64, 0};
    struct matrix w = matrix_make(3, 1, 40, 64, &all, 1, &seed);
    int32_t id[52];
    struct cpu_kernels k;
    struct tree t;
    float *got;

    (void)state;
    for (int i = 0; i < 52; i++)
        id[i] = i - 1;
    cpu_kernels_init(&k, cpu_family_best());
    tree_make(&t, 5, 1, 4, 0);
    assert_int_equal(t.t.n_out, 2); /* {1}, {2, 3} */
    got = gather(&k, &w, false, id, 52, span, 4, &t.t, 2);
    for (int e = 0; e < 2; e++) {
        for (int i = 0; i < 52; i++) {
            bool in =
                e == 0 ? id[i] >= 10 && id[i] < 20 : id[i] >= 20 && id[i] < 40;

            for (int v = 0; v < 64; v++) {
                float want = in ? w.value[(id[i] - 10) * 64 + v] + 0.0f : 0.0f;

                assert_memory_equal(&got[(e * 52 + i) * 64 + v], &want,
                                    sizeof(want));
            }
        }
    }
    free(got);
    matrix_free(&w);
}

/* ---- activations, sums, names -------------------------------------------- */

static void q8_has_one_form(void **state)
{
    static const float edge[] = {0.0f,      -0.0f,     1.0f,      0x1p-149f,
                                 0x1p-126f, 0x1p-120f, -0x1p127f, 0x1p-121f,
                                 INFINITY,  -INFINITY, NAN,       127.5f};
    uint64_t seed = test_seed() + 8;
    float *x = get(400 * 32 * sizeof(float));
    struct q8_block *want = get(400 * sizeof(*want));
    struct q8_block *got = get(400 * sizeof(*got));
    struct cpu_kernels k;

    (void)state;
    for (int b = 0; b < 400; b++) {
        float size = ldexpf(1.0f, (int)test_below(&seed, 60) - 40);

        for (int i = 0; i < 32; i++)
            x[b * 32 + i] = b % 4 == 1 ? (float)test_below(&seed, 255) - 127
                                       : size * test_unit(&seed);
        if (b % 4 == 2)
            x[b * 32 + test_below(&seed, 32)] = edge[test_below(&seed, 12)];
        if (b % 4 == 3) {
            for (int i = 0; i < 32; i++)
                x[b * 32 + i] = edge[test_below(&seed, 8)] * (i < b / 8);
        }
    }
    q8_encode(want, x, 400 * 32);
    for (int f = 0; f < CPU_FAMILY_COUNT; f++) {
        if (!cpu_family_runs((enum cpu_family)f))
            continue;
        cpu_kernels_init(&k, (enum cpu_family)f);
        memset(got, 0xa5, 400 * sizeof(*got));
        k.q8(got, x, 400 * 32);
        for (int b = 0; b < 400; b++) {
            if (memcmp(&got[b], &want[b], sizeof(got[b])) != 0)
                fail_msg("%s: block %d differs", cpu_family_name(k.family), b);
        }
    }
    free(x);
    free(want);
    free(got);
}

static void add_adds_in_place_too(void **state)
{
    uint64_t seed = test_seed() + 9;
    struct cpu_kernels k;

    (void)state;
    for (int f = 0; f < CPU_FAMILY_COUNT; f++) {
        if (!cpu_family_runs((enum cpu_family)f))
            continue;
        cpu_kernels_init(&k, (enum cpu_family)f);
        for (int64_t n = 0; n < 70; n++) {
            float *a = random_floats(n, &seed), *b = random_floats(n, &seed);
            float *want = get((size_t)n * sizeof(float));
            float *got = get((size_t)n * sizeof(float));

            for (int64_t i = 0; i < n; i++)
                want[i] = a[i] + b[i];
            k.add(got, a, b, n);
            assert_memory_equal(got, want, (size_t)n * sizeof(float));
            memcpy(got, b, (size_t)n * sizeof(float));
            k.add(got, a, got, n);
            assert_memory_equal(got, want, (size_t)n * sizeof(float));
            k.add(a, a, b, n);
            assert_memory_equal(a, want, (size_t)n * sizeof(float));
            free(a);
            free(b);
            free(want);
            free(got);
        }
    }
}

static void families_have_names(void **state)
{
    struct cpu_kernels k;

    (void)state;
    for (int f = 0; f < CPU_FAMILY_COUNT; f++)
        assert_int_equal(
            cpu_family_from_name(cpu_family_name((enum cpu_family)f)), f);
    assert_int_equal(cpu_family_from_name("sse"), CPU_FAMILY_COUNT);
    assert_true(cpu_family_runs(cpu_family_best()));
    cpu_kernels_init(&k, CPU_REFERENCE);
    assert_false(cpu_wants_q8(&k, OP_matmul, PL_Q4_K));
    cpu_kernels_init(&k, cpu_family_best());
    assert_true(cpu_wants_q8(&k, OP_expert_down, PL_MXFP4));
    assert_false(cpu_wants_q8(&k, OP_matmul, PL_F16));
    assert_false(cpu_wants_q8(&k, OP_gather_rows, PL_Q8_0));
}

int test_cpu_matmul(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(families_have_the_bits_of_generic),
        cmocka_unit_test(every_family_agrees_with_double),
        cmocka_unit_test(threads_do_not_show),
        cmocka_unit_test(n_tok_does_not_show),
        cmocka_unit_test(ranks_are_summed_along_the_tree),
        cmocka_unit_test(plain_weights_equal_packed),
        cmocka_unit_test(gather_rows_decodes_and_pads),
        cmocka_unit_test(gather_rows_of_a_split_table),
        cmocka_unit_test(q8_has_one_form),
        cmocka_unit_test(add_adds_in_place_too),
        cmocka_unit_test(families_have_names),
    };

    return TEST_RUN(tests);
}
