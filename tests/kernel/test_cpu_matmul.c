/* Contractions on the CPU: every format in every kernel set that this machine
 * runs.
 *
 * generic is the specification, and the fast kernel sets must have its bits.
 * generic and reference are compared with a double computation, so nothing
 * rests on itself. Buffers have exactly the size they need, so a sanitizer sees
 * every access beyond. */
#include "lib/support.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/bf16.h"
#include "lib/cpu_weights.h"
#include "lib/gpu_bridge.h"
#include "lib/kernel_sets.h"

/* A kernel set with gemm uses it for a matmul of MOST_TOK / 2 tokens, and jobs
 * for one of a few. */
enum { MAX_SPAN = 16, MAX_THREAD = 3, MOST_TOK = 64 };

/* ---- calls --------------------------------------------------------------- */

struct problem {
    enum kernel kernel;
    const struct weights *w;
    const float *x; /* activations, [n_tok, k] or [n_tok, x_used, k] */
    /* [n_tok, n_used] chosen experts; for head_matmul all heads, token by
     * token */
    const int32_t *id;
    int64_t n_tok, n_used, x_used;
    bool plain; /* true if weights are unpacked F32 rows */
    bool bf16;  /* true for products of BF16, of weights of 16 bits */
};

static const struct graph_attr attr_of[2] = {{0}, {.bf16 = 1}};

/* Returns false for products of BF16 in the kernels of AMX in plain C and the
 * GPUs', which lack them. */
static bool is_there(const struct cpu_kernels *k, const struct problem *p)
{
    return cpu_entry_of(k, p->kernel, &attr_of[p->bf16])->run != NULL;
}

/* Returns the number of result values of one tree entry. */
static int64_t result_count(const struct problem *p)
{
    return p->n_tok * p->w->n *
           (p->kernel == KERNEL_expert_matmul || p->kernel == KERNEL_head_matmul
                ? p->n_used
                : 1);
}

/* Quantizes rows of activations as the weight needs them: one scale a block, or
 * one for the values of a chunk. */
static void quantize(const struct cpu_kernels *k, const struct pack *p,
                     const float *x, int64_t n_row, struct q8_block *q8)
{
    for (int64_t row = 0; row < n_row; row++) {
        for (int i = 0; i < p->n_chunk; i++) {
            const struct pack_chunk *c = &p->chunk[i];
            int64_t at = row * p->k + c->k_loc;

            k->q8(q8 + at / 32, x + at, c->n,
                  p->rule->sup == PACK_SUP_NONE ? 32 : c->n);
        }
    }
}

/* Runs the kernel on nth threads, one after another, so that the first ones do
 * as much of the later ones' work as they can. The caller owns the result. */
static float *run(const struct cpu_kernels *k, const struct problem *p,
                  const struct rank_tree *tree, int nth)
{
    const struct cpu_entry *e = cpu_entry_of(k, p->kernel, &attr_of[p->bf16]);
    const struct weights *w = p->w;
    int64_t rows = p->n_tok * (p->kernel == KERNEL_matmul ? 1 : p->x_used);
    int64_t count = result_count(p);
    float *out = weights_alloc((size_t)(count * tree->n_out) * sizeof(float));
    struct q8_block *q8 =
        weights_alloc((size_t)(rows * w->k / 32) * sizeof(*q8));
    struct cpu_steal_counter taken[MAX_THREAD] = {0};
    struct cpu_call c = {
        .n_in =
            p->kernel == KERNEL_expert_matmul || p->kernel == KERNEL_expert_down
                ? 3
                : 2,
        .attr = &attr_of[p->bf16],
        .tree = *tree,
        .out_stride = (size_t)count * sizeof(float),
        .nth = nth,
        .taken = taken,
    };

    assert_true(nth <= MAX_THREAD);

    c.in[1].format = p->plain ? PL_F32 : w->pack.format;
    c.in[1].pack = p->plain ? NULL : &w->pack;
    c.in[2].format = PL_I32;
    if (p->kernel == KERNEL_matmul) {
        weights_dims(&c.in[0], 2, p->n_tok, w->k, 0);
        weights_dims(&c.in[1], 2, w->n, w->k, 0);
        weights_dims(&c.out, 2, p->n_tok, w->n, 0);
    } else {
        weights_dims(&c.in[0], 3, p->n_tok, p->x_used, w->k);
        weights_dims(&c.in[1], 3, w->n_expert, w->n, w->k);
        if (c.n_in == 3)
            weights_dims(&c.in[2], 2, p->n_tok, p->n_used, 0);
        if (p->kernel == KERNEL_expert_down)
            weights_dims(&c.out, 2, p->n_tok, w->n, 0);
        else
            weights_dims(&c.out, 3, p->n_tok, p->n_used, w->n);
    }
    for (c.ith = 0; c.ith < nth; c.ith++) {
        /* Scratch is sized before any pointer is known, as the plan does it. */
        void *scratch = c.scratch =
            weights_alloc(e->scratch ? e->scratch(&c) : 0);

        c.out.data = out;
        c.in[0].data = (void *)p->x;
        c.in[1].data = p->plain ? (void *)w->value : w->data;
        c.in[2].data = c.n_in == 3 ? (void *)p->id : NULL;
        if (!p->plain && cpu_wants_q8(k, p->kernel, w->pack.format)) {
            quantize(k, &w->pack, p->x, rows, q8);
            c.q8 = q8;
            /* NULL, because the kernel may read only the quantized
             * activations */
            c.in[0].data = NULL;
        }
        e->run(&c);
        free(scratch);
    }
    free(q8);
    return out;
}

static void same_bits(const float *a, const float *b, int64_t n,
                      const char *what, const struct problem *p,
                      enum kernel_set set)
{
    for (int64_t i = 0; i < n; i++) {
        if (memcmp(&a[i], &b[i], sizeof(float)) != 0)
            fail_msg("%s, %s, %s: value %d is %a, should be %a", what,
                     format_info(p->w->pack.format)->name, kernel_set_name(set),
                     (int)i, (double)a[i], (double)b[i]);
    }
}

/* Checks that the kernel gives the bits of `want`. */
static void must_give(const float *want, const struct cpu_kernels *k,
                      const struct problem *p, const struct rank_tree *tree,
                      int nth, const char *what)
{
    float *got;

    if (!is_there(k, p))
        return;
    got = run(k, p, tree, nth);
    same_bits(got, want, result_count(p) * tree->n_out, what, p, k->kernel_set);
    free(got);
}

/* ---- slices over ranks --------------------------------------------------- */

/* Cuts n_full values at random multiples of 32 into n_rank parts, some empty;
 * part r is span[r]. The device has ranks first .. end-1. Returns how many
 * spans it has, and the empty ranks. */
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
    struct weights w;
    struct weights_tree tree;
    struct problem p;
    float *x;
    int32_t *id;
};

/* Draws ids of experts, and two that no expert has. A token's ids are random,
 * or follow one another: then many tokens share an expert, and few have one
 * twice. */
static void draw_experts(int32_t *id, const struct problem *p, int64_t n_expert,
                         uint64_t *seed)
{
    bool any = test_below(seed, 2) == 0;

    for (int64_t i = 0; i < p->n_tok * p->n_used; i++) {
        if (p->kernel == KERNEL_head_matmul) {
            id[i] = (int32_t)(i % p->n_used);
            continue;
        }
        id[i] = (int32_t)test_below(seed, n_expert + 2) - 1;
        if (!any && i % p->n_used > 0)
            id[i] = (int32_t)((id[i - 1] + 2) % (n_expert + 2)) - 1;
    }
}

static void scene_make(struct scene *s, int fi, enum kernel kernel,
                       uint64_t *seed)
{
    int block = format_info(weights_formats[fi].format)->block;
    int64_t unit = block > 32 ? block : 32;
    int64_t n_full = block == 256 ? 256 * (1 + test_below(seed, 3))
                                  : unit * (1 + test_below(seed, 20));
    int n_rank = 1 + (int)test_below(seed, 8);
    int first = (int)test_below(seed, n_rank);
    int end = first + 1 + (int)test_below(seed, n_rank - first);
    struct pack_span span[MAX_SPAN];
    uint64_t empty;
    int n_span = random_cut(n_full, n_rank, first, end, span, &empty, seed);
    int64_t n_expert = kernel == KERNEL_matmul ? 1 : 1 + test_below(seed, 6);

    s->w = weights_make(fi, n_expert,
                        1 + test_below(seed, test_below(seed, 4) ? 40 : 200),
                        n_full, span, n_span, seed);
    weights_tree_make(&s->tree, n_rank, first, end, empty);
    s->p = (struct problem){
        .kernel = kernel,
        .w = &s->w,
        .n_tok = 1 + test_below(seed, MOST_TOK),
        .n_used =
            kernel == KERNEL_head_matmul ? n_expert : 1 + test_below(seed, 4),
    };
    s->p.x_used =
        kernel == KERNEL_expert_matmul && test_below(seed, 2) ? 1 : s->p.n_used;
    if (weights_formats[fi].format == PL_F16 ||
        weights_formats[fi].format == PL_BF16)
        s->p.bf16 = test_below(seed, 2);
    s->x = weights_floats(s->p.n_tok * s->p.x_used * s->w.k, seed);
    s->id = weights_alloc((size_t)(s->p.n_tok * s->p.n_used) * sizeof(int32_t));
    draw_experts(s->id, &s->p, n_expert, seed);
    s->p.x = s->x;
    s->p.id = s->id;
}

/* Replaces the weights of a scene by some with another k, of which the device
 * holds the spans. */
static void scene_cut(struct scene *s, int fi, int64_t k,
                      const struct pack_span *span, int n_span, uint64_t *seed)
{
    struct weights w =
        weights_make(fi, s->w.n_expert, s->w.n, k, span, n_span, seed);

    weights_free(&s->w);
    free(s->x);
    s->w = w;
    s->p.x = s->x = weights_floats(s->p.n_tok * s->p.x_used * k, seed);
}

static void scene_free(struct scene *s)
{
    weights_free(&s->w);
    free(s->x);
    free(s->id);
}

static const enum kernel kernels[] = {KERNEL_matmul, KERNEL_head_matmul,
                                      KERNEL_expert_matmul, KERNEL_expert_down};
enum { N_KERNEL = sizeof(kernels) / sizeof(kernels[0]) };

/* ---- properties ---------------------------------------------------------- */

/* Products of BF16 are added in pairs: rows of weights of any length, cut
 * anywhere, even in the middle of a pair. */
TEST(products_by_pairs_take_rows_of_any_length)
{
    static const int64_t length[] = {1, 2, 31, 33, 95, 255, 257, 300, 513, 770};
    uint64_t seed = test_seed() + 6;
    struct cpu_kernels generic, k;

    cpu_kernels_init(&generic, KERNEL_SET_GENERIC);
    for (int i = 0; i < 400; i++) {
        int fi = 0;
        int64_t n = length[i % 10], cut = test_below(&seed, n + 1);
        const struct pack_span span[] = {{0, cut, 0}, {cut, n - cut, 1}};
        struct problem p = {.kernel = KERNEL_matmul, .bf16 = true};
        struct weights_tree t;
        struct weights w;
        float *want;

        while (weights_formats[fi].format != (i % 2 ? PL_F16 : PL_BF16))
            fi++;
        w = weights_make(fi, 1, 1 + test_below(&seed, 40), n, span, 2, &seed);
        p.w = &w;
        p.n_tok = 1 + test_below(&seed, MOST_TOK);
        p.n_used = p.x_used = 1;
        p.x = weights_floats(p.n_tok * n, &seed);
        weights_tree_make(&t, 2, 0, 2, 0);
        want = run(&generic, &p, &t.t, 1);
        for (int f = KERNEL_SET_GENERIC; weights_next_kernel_set(&f, &k);)
            must_give(want, &k, &p, &t.t, 1 + i % 3, "any length");
        free(want);
        free((void *)p.x);
        weights_free(&w);
    }
}

TEST(kernel_sets_have_the_bits_of_generic)
{
    uint64_t seed = test_seed();
    struct cpu_kernels generic, k;

    cpu_kernels_init(&generic, KERNEL_SET_GENERIC);
    for (int i = 0; i < 6 * WEIGHTS_N_FORMAT * N_KERNEL; i++) {
        int fi = i / N_KERNEL % WEIGHTS_N_FORMAT;
        struct scene s;
        float *want;

        scene_make(&s, fi, kernels[i % N_KERNEL], &seed);
        want = run(&generic, &s.p, &s.tree.t, 1);
        for (int f = KERNEL_SET_GENERIC; weights_next_kernel_set(&f, &k);) {
            must_give(want, &k, &s.p, &s.tree.t, 1 + i % 3, "kernel set");
        }
        free(want);
        scene_free(&s);
    }
    kernel_sets_skip_absent();
}

TEST(threads_do_not_show)
{
    uint64_t seed = test_seed() + 1;
    struct cpu_kernels k;

    for (int f = -1; weights_next_kernel_set(&f, &k);) {
        for (int i = 0; i < WEIGHTS_N_FORMAT * N_KERNEL; i++) {
            struct scene s;
            float *want;

            scene_make(&s, i / N_KERNEL, kernels[i % N_KERNEL], &seed);
            s.p.bf16 = s.p.bf16 && is_there(&k, &s.p);
            want = run(&k, &s.p, &s.tree.t, 1);
            for (int nth = 2; nth <= 3; nth++)
                must_give(want, &k, &s.p, &s.tree.t, nth, "threads");
            free(want);
            scene_free(&s);
        }
    }
}

/* Checks that the GPUs' kernels computed each format and each number of
 * rows. */
static void assert_gpus_were_tried(void)
{
    /* a selected GPU may be one of OpenCL, which tries few formats */
    if (getenv("PLAIT_GPU_TEST"))
        return;
    for (int m = 0; m < N_KERNEL; m++) {
        int n_by_rows[ROWS_COUNT] = {0};

        for (int i = 0; i < WEIGHTS_N_FORMAT; i++) {
            int all = 0;

            for (int r = 0; r < ROWS_COUNT; r++) {
                int n = gpu_bridge_calls(kernels[m], weights_formats[i].format,
                                         (enum gpu_bridge_rows)r);

                n_by_rows[r] += n;
                all += n;
            }
            if (all == 0)
                fail_msg("%s of %s did not run on a GPU",
                         kernel_name(kernels[m]),
                         format_info(weights_formats[i].format)->name);
        }
        for (int r = 0; r < ROWS_COUNT; r++)
            assert_true(n_by_rows[r] > 0);
    }
}

/* Any interval of tokens gives its rows of MOST_TOK computed at once. */
TEST(n_tok_does_not_show)
{
    uint64_t seed = test_seed() + 2;
    struct cpu_kernels k;

    for (int f = -1; weights_next_kernel_set(&f, &k);) {
        for (int i = 0; i < WEIGHTS_N_FORMAT * N_KERNEL; i++) {
            struct pack_span span = {0, 256, 0};
            int64_t n_expert =
                kernels[i % N_KERNEL] == KERNEL_head_matmul ? 2 : 3;
            struct weights w =
                weights_make(i / N_KERNEL, n_expert, 17, 256, &span, 1, &seed);
            float *x = weights_floats(MOST_TOK * 2 * 256, &seed);
            int32_t id[MOST_TOK * 2];
            struct problem p = {.kernel = kernels[i % N_KERNEL],
                                .w = &w,
                                .x = x,
                                .id = id,
                                .n_tok = MOST_TOK,
                                .n_used = 2,
                                .x_used = 2};
            pl_format f16 = weights_formats[i / N_KERNEL].format;
            struct weights_tree t;
            float *all;
            int64_t row;

            for (int j = 0; j < MOST_TOK * 2; j++)
                id[j] = (int32_t)test_below(&seed, 3);
            p.bf16 = f16 == PL_F16 || f16 == PL_BF16;
            /* GPUs have no products of BF16, so plain C would be compared with
             * itself. */
            p.bf16 = p.bf16 && is_there(&k, &p) && f <= KERNEL_SET_COUNT;
            weights_tree_single(&t, 0);
            all = run(&k, &p, &t.t, 1);
            row = result_count(&p) / MOST_TOK;
            for (p.n_tok = 1; p.n_tok < MOST_TOK;
                 p.n_tok += 1 + test_below(&seed, 6)) {
                int64_t at = test_below(&seed, MOST_TOK + 1 - p.n_tok);

                p.x = x + at * 256 * (p.kernel == KERNEL_matmul ? 1 : 2);
                p.id = id + at * 2;
                must_give(all + at * row, &k, &p, &t.t, 1, "n_tok");
            }
            free(all);
            free(x);
            weights_free(&w);
        }
    }
    assert_gpus_were_tried();
}

/* Numbers of tokens around those that kernel sets take together. */
TEST(blocks_of_tokens_do_not_show)
{
    static const int64_t n_tok[] = {1,  2,  3,  4,  7,  8,  9,
                                    15, 16, 17, 63, 64, 65, 130};
    enum { K = 288, N = 145, N_TOK = sizeof(n_tok) / sizeof(n_tok[0]) };
    uint64_t seed = test_seed() + 15;
    struct pack_span span = {0, K, 0};
    struct cpu_kernels generic, k;

    cpu_kernels_init(&generic, KERNEL_SET_GENERIC);
    for (int i = 0; i < 2 * N_TOK; i++) {
        struct problem p = {.kernel =
                                i % 2 ? KERNEL_head_matmul : KERNEL_matmul,
                            .n_tok = n_tok[i / 2],
                            .n_used = 1 + i % 2,
                            .x_used = 1 + i % 2};
        struct weights w = weights_make((int)test_below(&seed, 7), p.n_used, N,
                                        K, &span, 1, &seed);
        float *x = weights_floats(p.n_tok * p.x_used * K, &seed), *want;
        struct weights_tree t;

        p.w = &w;
        p.x = x;
        weights_tree_single(&t, 0);
        want = run(&generic, &p, &t.t, 1);
        for (int f = KERNEL_SET_GENERIC; weights_next_kernel_set(&f, &k);)
            must_give(want, &k, &p, &t.t, 1 + i % 3, "tokens");
        free(want);
        free(x);
        weights_free(&w);
    }
}

/* Scratch is allocated once, for the most tokens: fewer need no more. */
TEST(scratch_for_fewer_tokens_is_no_more)
{
    enum { N = 40, N_USED = 2, N_EXPERT = 3, MOST = 700 };
    static const int n_rank[] = {1, 3, 8, 64};
    uint64_t seed = test_seed();
    struct cpu_kernels k;

    for (int i = 0; i < WEIGHTS_N_FORMAT * 4; i++) {
        int n_span = n_rank[i % 4], fi = i / 4;
        int64_t unit = format_info(weights_formats[fi].format)->block;
        struct pack_span span[64];
        struct weights_tree t;
        struct weights w;

        unit = unit > 32 ? unit : 32;
        for (int j = 0; j < n_span; j++)
            span[j] = (struct pack_span){j * unit, unit, j};
        w = weights_make(fi, N_EXPERT, N, n_span * unit, span, n_span, &seed);
        weights_tree_make(&t, n_span, 0, n_span, 0);
        for (int f = -1; weights_next_kernel_set(&f, &k);)
            for (int m = 0; m < N_KERNEL; m++) {
                const struct cpu_entry *e =
                    cpu_entry_of(&k, kernels[m], &attr_of[0]);
                struct cpu_call c = {
                    .n_in = 3, .attr = &attr_of[0], .tree = t.t, .nth = 1};
                bool pairs = kernels[m] != KERNEL_matmul;
                size_t most = 0;

                c.in[1].format = w.pack.format;
                c.in[1].pack = &w.pack;
                weights_dims(&c.in[1], 3, N_EXPERT, N, w.k);
                for (int64_t n = 0; e->scratch && n <= MOST; n++) {
                    size_t bytes;

                    weights_dims(&c.in[0], pairs ? 3 : 2, n,
                                 pairs ? N_USED : w.k, w.k);
                    weights_dims(&c.in[2], 2, n, N_USED, 0);
                    weights_dims(&c.out, pairs ? 3 : 2, n, pairs ? N_USED : N,
                                 N);
                    bytes = e->scratch(&c);
                    if (bytes < most)
                        fail_msg("%s, %s, %s, %d ranks: %zu bytes for %d "
                                 "tokens, less than for fewer",
                                 kernel_set_name(k.kernel_set),
                                 kernel_name(kernels[m]),
                                 format_info(w.pack.format)->name, n_span,
                                 bytes, (int)n);
                    most = bytes;
                }
            }
        weights_free(&w);
    }
}

/* Few rows of activations use several panels in turn: more panels than threads
 * need, not all of them in whole jobs, with ranks to be summed. */
TEST(panels_in_turn_do_not_show)
{
    enum { K = 128, N = 33 * PACK_ROWS + 3, MOST = 6, N_EXPERT = 3 };
    static const struct pack_span span[] = {
        {0, 32, 0}, {32, 64, 1}, {96, 32, 2}};
    uint64_t seed = test_seed() + 17;
    struct weights_tree t;
    struct cpu_kernels generic, k;

    cpu_kernels_init(&generic, KERNEL_SET_GENERIC);
    weights_tree_make(&t, 3, 0, 3, 0);
    for (int i = 0; i < MOST * N_KERNEL; i++) {
        enum kernel kernel = kernels[i % N_KERNEL];
        int64_t n_used = kernel == KERNEL_head_matmul ? N_EXPERT : 2;
        struct problem p = {.kernel = kernel,
                            .n_tok = 1 + i / N_KERNEL,
                            .n_used = n_used,
                            .x_used = n_used};
        /* Draws any format but the first three, which are floats. */
        struct weights w =
            weights_make(3 + (int)test_below(&seed, WEIGHTS_N_FORMAT - 3),
                         N_EXPERT, N, 256, span, 3, &seed);
        float *x = weights_floats(p.n_tok * n_used * K, &seed), *want;
        int32_t id[MOST * N_EXPERT];

        for (int64_t j = 0; j < p.n_tok * n_used; j++)
            id[j] = (int32_t)(kernel == KERNEL_head_matmul
                                  ? j % n_used
                                  : test_below(&seed, N_EXPERT));
        p.w = &w;
        p.x = x;
        p.id = id;
        want = run(&generic, &p, &t.t, 1);
        for (int f = KERNEL_SET_GENERIC; weights_next_kernel_set(&f, &k);)
            must_give(want, &k, &p, &t.t, 1 + i % MAX_THREAD, "panels");
        free(want);
        free(x);
        weights_free(&w);
    }
}

/* Returns true if value v of row i, of codes or of activations, is at the upper
 * end. All are, or every second one, or half of each tile, or every second
 * four; in odd rows the others. */
static bool is_upper(int64_t i, int64_t v)
{
    const bool way[] = {true, v % 2 == 1, v / 16 % 2 == 1, v / 4 % 2 == 1};

    return way[i / 2 % 4] != (i % 2 == 1);
}

/* Finds the codes of the least level and of the greatest. */
static void find_ends(const struct pack_rule *rule, uint8_t end[2])
{
    int n = 1 << (rule->low_bits + rule->high_bits);

    end[0] = 0;
    end[1] = (uint8_t)(n - 1);
    for (int c = 0; rule->table != NULL && c < n; c++) {
        if (rule->table[c] < rule->table[end[0]])
            end[0] = (uint8_t)c;
        if (rule->table[c] > rule->table[end[1]])
            end[1] = (uint8_t)c;
    }
}

/* Sets value v of a lane, in a plane of `bits`, to the lower bits of `code`. */
static void plane_set(uint8_t *plane, int bits, int lane, int v, int code)
{
    uint8_t *at = plane + 64 * (v / 4 % bits) + 4 * lane + v % 4;
    int shift = v / 4 / bits * bits, mask = (1 << bits) - 1;

    *at = (uint8_t)((*at & ~(mask << shift)) | (code & mask) << shift);
}

/* Sets all codes of a row to their ends; its scales stay. */
static void row_to_ends(struct weights *w, int64_t row)
{
    const struct pack_rule *rule = w->pack.rule;
    int lane = (int)(row % PACK_ROWS);
    uint8_t *panel = w->data + (size_t)(row / PACK_ROWS) * w->pack.panel_bytes;
    uint8_t end[2], want[32], got[32];

    find_ends(rule, end);
    for (int i = 0; i < w->pack.n_chunk; i++) {
        const struct pack_chunk *c = &w->pack.chunk[i];

        for (int64_t j = 0; j < c->n / 32; j++) {
            uint8_t *tile = (uint8_t *)pack_tile(&w->pack, panel, c, j);
            uint8_t *low = tile + rule->sub_bytes;

            for (int v = 0; v < 32; v++) {
                want[v] = end[is_upper(row, v)];
                plane_set(low, rule->low_bits, lane, v, want[v]);
                if (rule->high_bits > 0)
                    plane_set(low + rule->low_bytes, rule->high_bits, lane, v,
                              want[v] >> rule->low_bits);
            }
            pack_codes(rule, tile, lane, got);
            assert_memory_equal(got, want, sizeof(want));
        }
    }
}

/* Kernels add products as int16 where the greatest ones fit. Random sums never
 * come near that, so here all products of some rows have one sign. */
TEST(sums_of_extremes_have_the_bits_of_generic)
{
    enum { K = 256, N = 65, N_WAY = 8, MANY = MOST_TOK / 2 + 2 };
    static const int64_t n_tok[] = {1, 2, 4, N_WAY, 16, MANY};
    uint64_t seed = test_seed() + 16;
    struct pack_span span = {0, K, 0};
    float *x = weights_alloc(MANY * K * sizeof(float));
    struct problem p = {.kernel = KERNEL_matmul};
    struct weights_tree t;
    struct cpu_kernels generic, k;

    cpu_kernels_init(&generic, KERNEL_SET_GENERIC);
    weights_tree_single(&t, 0);
    for (int64_t i = 0; i < MANY * K; i++)
        x[i] = is_upper(i / K, i % K) ? 1.0f : -1.0f;
    for (int fi = 0; fi < WEIGHTS_N_FORMAT; fi++) {
        struct weights w = weights_make(fi, 1, N, K, &span, 1, &seed);
        float *want;

        for (int64_t i = 0; i < N && w.pack.rule->tile_values > 1; i++)
            row_to_ends(&w, i);
        p.w = &w;
        p.x = x;
        p.n_tok = MANY;
        want = run(&generic, &p, &t.t, 1);
        for (int f = KERNEL_SET_GENERIC; weights_next_kernel_set(&f, &k);) {
            for (size_t i = 0; i < sizeof(n_tok) / sizeof(n_tok[0]); i++) {
                p.n_tok = n_tok[i];
                /* Each pattern of activations, or as many as there are. */
                for (int64_t at = 0; at == 0 || at + p.n_tok <= N_WAY;
                     at += p.n_tok) {
                    p.x = x + at * K;
                    must_give(want + at * N, &k, &p, &t.t, 1, "extremes");
                }
            }
        }
        free(want);
        weights_free(&w);
    }
    free(x);
}

/* Computes the same sum by recursion over the addends of every rank, each `n`
 * floats, into `sum`. Returns false if there is none. */
static bool tree_sum(const struct weights_tree *t, float *const *addend, int lo,
                     int n, int64_t len, float *sum)
{
    int left = weights_tree_left(n);
    float *right;
    bool a, b;

    if (n == 1) {
        if (t->empty >> lo & 1)
            return false;
        memcpy(sum, addend[lo], (size_t)len * sizeof(float));
        return true;
    }
    right = weights_alloc((size_t)len * sizeof(float));
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

TEST(ranks_are_summed_along_the_tree)
{
    uint64_t seed = test_seed() + 3;
    struct cpu_kernels k;

    for (int i = 0; i < 8 * N_KERNEL; i++) {
        int fi = (int)test_below(&seed, WEIGHTS_N_FORMAT);
        struct pack_span span[MAX_SPAN];
        struct scene s;
        float *addend[8], *want;
        int n_rank = 1 + i / N_KERNEL;
        int64_t len;
        int n_span;
        uint64_t empty;

        cpu_kernels_init(&k, kernel_set_best());
        scene_make(&s, fi, kernels[i % N_KERNEL], &seed);
        n_span = random_cut(768, n_rank, 0, n_rank, span, &empty, &seed);
        scene_cut(&s, fi, 768, span, n_span, &seed);
        len = result_count(&s.p);
        for (int r = 0; r < n_rank; r++) {
            weights_tree_single(&s.tree, r);
            addend[r] = run(&k, &s.p, &s.tree.t, 1);
        }
        weights_tree_make(&s.tree, n_rank, 0, n_rank, empty);
        assert_int_equal(s.tree.t.n_out, 1);
        want = weights_alloc((size_t)len * sizeof(float));
        assert_true(tree_sum(&s.tree, addend, 0, n_rank, len, want));
        must_give(want, &k, &s.p, &s.tree.t, 2, "tree");
        for (int r = 0; r < n_rank; r++)
            free(addend[r]);
        free(want);
        scene_free(&s);
    }
}

/* A device may have a rank's k in many pieces, with others' between them. */
TEST(pieces_of_a_rank_follow_one_another)
{
    enum { N_PIECE = 24, N_RANK = 3 };
    uint64_t seed = test_seed() + 13;
    struct pack_span span[N_PIECE];
    struct cpu_kernels generic, k;

    for (int i = 0; i < N_PIECE; i++)
        span[i] = (struct pack_span){32 * i, 32, i % N_RANK};
    cpu_kernels_init(&generic, KERNEL_SET_GENERIC);
    for (int i = 0; i < WEIGHTS_N_FORMAT * N_KERNEL; i += 5) {
        struct scene s;
        float *want;

        scene_make(&s, i / N_KERNEL, kernels[i % N_KERNEL], &seed);
        scene_cut(&s, i / N_KERNEL, 32 * N_PIECE, span, N_PIECE, &seed);
        weights_tree_make(&s.tree, N_RANK, 0, N_RANK, 0);
        want = run(&generic, &s.p, &s.tree.t, 1);
        for (int f = KERNEL_SET_GENERIC; weights_next_kernel_set(&f, &k);)
            must_give(want, &k, &s.p, &s.tree.t, 1, "pieces");
        free(want);
        scene_free(&s);
    }
}

/* ---- the definition of the expert kernels -------------------------------- */

/* Every row of the result is a matmul by the matrix of its head or expert. */
static void is_matmul_of_the_chosen(enum kernel kernel, uint64_t seed)
{
    struct cpu_kernels k;

    cpu_kernels_init(&k, kernel_set_best());
    for (int i = 0; i < WEIGHTS_N_FORMAT; i++) {
        struct scene s;
        float *got;
        int64_t n;

        scene_make(&s, i, kernel, &seed);
        got = run(&k, &s.p, &s.tree.t, 2);
        n = s.w.n;
        for (int64_t j = 0; j < s.p.n_tok * s.p.n_used; j++) {
            int32_t e = s.id[j];
            bool chosen = e >= 0 && e < s.w.n_expert;
            int64_t row = s.p.x_used == 1 ? j / s.p.n_used : j;
            struct weights one = s.w;
            struct problem p = {.kernel = KERNEL_matmul,
                                .bf16 = s.p.bf16,
                                .w = &one,
                                .x = s.x + row * s.w.k,
                                .n_tok = 1};
            float *want;

            one.data += (size_t)(chosen ? e : 0) * s.w.pack.matrix_bytes;
            want = run(&k, &p, &s.tree.t, 1);
            if (!chosen)
                memset(want, 0, (size_t)(n * s.tree.t.n_out) * sizeof(float));
            for (int t = 0; t < s.tree.t.n_out; t++)
                same_bits(got + t * result_count(&s.p) + j * n, want + t * n, n,
                          "expert", &s.p, k.kernel_set);
            free(want);
        }
        free(got);
        scene_free(&s);
    }
}

TEST(expert_matmul_is_matmul_of_the_chosen)
{
    is_matmul_of_the_chosen(KERNEL_expert_matmul, test_seed() + 10);
}

TEST(head_matmul_is_matmul_of_each_head)
{
    is_matmul_of_the_chosen(KERNEL_head_matmul, test_seed() + 12);
}

TEST(expert_down_is_one_chain_over_expert_and_k)
{
    /* Token 0 takes an expert twice, token 1 one that does not exist. */
    static const int32_t id[] = {2, 0, 2, 1, 3, 0, 1, 2, 0};
    enum { N_TOK = 3, N_USED = 3, N_EXPERT = 3, K = 64, N = 18 };
    struct pack_span span = {0, K, 0};
    uint64_t seed = test_seed() + 11;
    struct weights w = weights_make(0, N_EXPERT, N, K, &span, 1, &seed);
    float *x = weights_floats(N_TOK * N_USED * K, &seed);
    struct problem p = {.kernel = KERNEL_expert_down,
                        .w = &w,
                        .x = x,
                        .id = id,
                        .n_tok = N_TOK,
                        .n_used = N_USED,
                        .x_used = N_USED};
    float want[N_TOK * N] = {0};
    struct weights_tree t;
    struct cpu_kernels k;

    for (int i = 0; i < N_TOK * N; i++) {
        for (int e = 0; e < N_EXPERT; e++) {
            for (int u = i / N * N_USED; u < (i / N + 1) * N_USED; u++) {
                float segment = 0;

                for (int j = 0; j < K && id[u] == e; j++)
                    segment = fmaf(w.value[(e * N + i % N) * K + j],
                                   x[u * K + j], segment);
                if (id[u] == e)
                    want[i] += segment;
            }
        }
    }
    cpu_kernels_init(&k, kernel_set_best());
    weights_tree_single(&t, 0);
    must_give(want, &k, &p, &t.t, 2, "expert_down");
    free(x);
    weights_free(&w);
}

/* More experts a token than a GPU's group sorts at once. */
TEST(expert_down_takes_hundreds_of_experts)
{
    enum { N_TOK = 2, N_USED = 300, N_EXPERT = 5, K = 32, N = 17 };
    struct pack_span span = {0, K, 0};
    uint64_t seed = test_seed() + 14;
    struct cpu_kernels generic, k;
    int32_t id[N_TOK * N_USED];

    cpu_kernels_init(&generic, KERNEL_SET_GENERIC);
    for (int i = 0; i < N_TOK * N_USED; i++)
        id[i] = (int32_t)test_below(&seed, N_EXPERT + 1) - 1;
    for (int fi = 0; fi < 4; fi += 3) {
        struct weights w = weights_make(fi, N_EXPERT, N, K, &span, 1, &seed);
        float *x = weights_floats(N_TOK * N_USED * K, &seed), *want;
        struct problem p = {.kernel = KERNEL_expert_down,
                            .w = &w,
                            .x = x,
                            .id = id,
                            .n_tok = N_TOK,
                            .n_used = N_USED,
                            .x_used = N_USED};
        struct weights_tree t;

        weights_tree_single(&t, 0);
        want = run(&generic, &p, &t.t, 1);
        for (int f = KERNEL_SET_GENERIC; weights_next_kernel_set(&f, &k);)
            must_give(want, &k, &p, &t.t, 1, "hundreds");
        free(want);
        free(x);
        weights_free(&w);
    }
}

/* ---- against double ------------------------------------------------------ */

/* Returns v as products of BF16 read it. */
static float rounded(float v, bool bf16)
{
    return bf16 ? bf16_to_f32(bf16_round(v)) : v;
}

/* Returns w . x in double. *scale becomes the sum over blocks of 32 of 32
 * max|w| max|x|, which bounds every partial sum, also where minima cancel. */
static double exact_dot(const float *w, const float *x, int64_t n, bool bf16,
                        double *scale)
{
    double sum = 0;

    for (int64_t b = 0; b < n; b += 32) {
        double mw = 0, mx = 0;

        for (int64_t i = b; i < b + 32; i++) {
            double aw = fabs((double)w[i]), ax = fabs((double)x[i]);

            sum +=
                bf16 ? (double)rounded(w[i], true) * (double)rounded(x[i], true)
                     : (double)w[i] * (double)x[i];
            mw = aw > mw ? aw : mw;
            mx = ax > mx ? ax : mx;
        }
        *scale += 32 * mw * mx;
    }
    return sum;
}

/* Returns the activations after quantizing, for kernels that do so. */
static float *as_read(const struct cpu_kernels *k, const struct problem *p,
                      int64_t n)
{
    float *y = weights_alloc((size_t)n * sizeof(float));
    struct q8_block *b = weights_alloc((size_t)n / 32 * sizeof(*b));

    memcpy(y, p->x, (size_t)n * sizeof(float));
    if (cpu_wants_q8(k, p->kernel, p->w->pack.format)) {
        quantize(k, &p->w->pack, p->x, n / p->w->k, b);
        for (int64_t i = 0; i < n; i++)
            y[i] = b[i / 32].d * (float)b[i / 32].q[i % 32];
    }
    free(b);
    return y;
}

/* Checks with all of k on one rank. Every result is compared with a double
 * computation on the decoded weights and the activations as the kernel set
 * reads them. Rounding stays below 2^-23 for each addition, at most k + 8 of
 * them, times the scale. */
static void check_against_double(const struct cpu_kernels *k,
                                 const struct problem *p, int fi)
{
    const struct weights *w = p->w;
    int64_t n_row = p->n_tok * (p->kernel == KERNEL_matmul ? 1 : p->x_used);
    float *x = as_read(k, p, n_row * w->k);
    struct weights_tree t;
    float *got;

    weights_tree_single(&t, 0);
    got = run(k, p, &t.t, 2);
    for (int64_t i = 0; i < result_count(p); i++) {
        int64_t n = i % w->n, row = i / w->n;
        double want = 0, scale = 0;

        if (p->kernel == KERNEL_matmul) {
            want = exact_dot(w->value + n * w->k, x + row * w->k, w->k, p->bf16,
                             &scale);
        } else {
            bool down = p->kernel == KERNEL_expert_down;
            int64_t first = down ? row * p->n_used : row;
            int64_t end = down ? first + p->n_used : row + 1;

            for (int64_t j = first; j < end; j++) {
                int64_t xj = p->x_used == 1 ? j / p->n_used : j;

                if (p->id[j] < 0 || p->id[j] >= w->n_expert)
                    continue;
                want += exact_dot(w->value + (p->id[j] * w->n + n) * w->k,
                                  x + xj * w->k, w->k, p->bf16, &scale);
            }
        }
        if (!(fabs((double)got[i] - want) <=
              0x1p-23 * (double)(w->k + 8) * scale))
            fail_msg(
                "kernel %d, %s, %s: value %d is %.9g, should be %.9g",
                (int)p->kernel, format_info(weights_formats[fi].format)->name,
                kernel_set_name(k->kernel_set), (int)i, (double)got[i], want);
    }
    free(x);
    free(got);
}

TEST(every_kernel_set_agrees_with_double)
{
    uint64_t seed = test_seed() + 4;
    struct cpu_kernels k;

    for (int f = -1; weights_next_kernel_set(&f, &k);) {
        for (int i = 0; i < WEIGHTS_N_FORMAT * N_KERNEL; i++) {
            struct pack_span span = {0, 512, 0};
            struct scene s;

            scene_make(&s, i / N_KERNEL, kernels[i % N_KERNEL], &seed);
            scene_cut(&s, i / N_KERNEL, 512, &span, 1, &seed);
            s.p.bf16 = s.p.bf16 && is_there(&k, &s.p);
            check_against_double(&k, &s.p, i / N_KERNEL);
            scene_free(&s);
        }
    }
}

/* An operand that is computed, not loaded, has plain rows: the result of packed
 * F32. */
TEST(plain_weights_equal_packed)
{
    uint64_t seed = test_seed() + 5;
    struct cpu_kernels k;

    for (int f = KERNEL_SET_REFERENCE; weights_next_kernel_set(&f, &k);) {
        for (int i = 0; i < N_KERNEL; i++) {
            struct pack_span span = {0, 96, 0};
            struct scene s;
            float *want;

            scene_make(&s, 0, kernels[i], &seed);
            scene_cut(&s, 0, 96, &span, 1, &seed);
            weights_tree_single(&s.tree, 0);
            want = run(&k, &s.p, &s.tree.t, 1);
            s.p.plain = true;
            must_give(want, &k, &s.p, &s.tree.t, 2, "plain");
            free(want);
            scene_free(&s);
        }
    }
}
