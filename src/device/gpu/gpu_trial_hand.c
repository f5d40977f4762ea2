/* The self-test cases of kernels that are not kernels of programs: the
 * arithmetic operations that all kernels use, and the copies and sums of PULL,
 * PUSH, PAGES and MERGE. */
#include "device/gpu/gpu_selftest_case.h"

#include <math.h>
#include <string.h>

#include "device/cpu/cpu_lanes_math.h"
#include "device/cpu/cpu_rows_template.h"
#include "program/page_walk.h"

/* ---- arithmetic operations ----------------------------------------------- */

enum { N_PROBE = 1024 };

static const uint32_t corner[] = {
    0,          0x80000000, 1,          0x80000001, /* zeros, subnormals */
    0x007fffff, 0x00800000, 0x00800001, 0x80800000, /* smallest normal */
    0x3f800000, 0xbf800000, 0x3f800001, 0x3f7fffff, /* near one */
    0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000, /* largest, infinite */
    0x7fc00000, 0x4b000001, 0x4b000003, 0x3f000000, /* NaN, ties */
    0x477fefff, 0x477ff000, 0x33000000, 0x33000001, /* limits of F16 */
    0x3f808000, 0x3f818000, 0x1f800000, 0x5f000000, /* ties in BF16 */
    0x387fffff, 0x38800000, 0xc2cf0000, 0x42b17218, /* limits of exp */
};
enum { N_CORNER = sizeof corner / sizeof *corner };

static float as_float(uint32_t u)
{
    float x;

    memcpy(&x, &u, sizeof x);
    return x;
}

/* Returns the bits of x, with one bit pattern for all NaNs. */
static uint32_t bits_of(float x)
{
    uint32_t u = 0x7fc00000;

    if (x == x)
        memcpy(&u, &x, sizeof u);
    return u;
}

static uint32_t half_of(uint16_t h)
{
    return (h & 0x7fff) > 0x7c00 ? 0x7e00 : h;
}

static float first_of(lanes v)
{
    float x[LANES];

    lanes_store(x, v);
    return x[0];
}

static void probe_floats(uint32_t *out, float x, float y, float z)
{
    float product = x * y;

    out[PROBE_ADD] = bits_of(x + y);
    out[PROBE_SUB] = bits_of(x - y);
    out[PROBE_MUL] = bits_of(product);
    out[PROBE_DIV] = bits_of(x / y);
    out[PROBE_FMA] = bits_of(fmaf(x, y, z));
    out[PROBE_MUL_ADD] = bits_of(product + z);
    out[PROBE_SQRT] = bits_of(sqrtf(x));
    out[PROBE_RINT] = bits_of(rintf(x));
    out[PROBE_TO_F16] = half_of(f32_to_f16(x));
    out[PROBE_TO_BF16] = x == x ? f32_to_bf16(x) : 0x7fc0;
    out[PROBE_EXP] = bits_of(first_of(lanes_exp(lanes_set(x))));
    out[PROBE_TANH] = bits_of(first_of(lanes_tanh(lanes_set(x))));
}

/* Computes the results in double precision. The angle of the cosine and sine is
 * `pos` times a factor: x if it is in [0, 1), 1 if x is negative, else 0.5. */
static void probe_doubles(uint32_t *out, double x, double y, int32_t pos)
{
    double angle[DOUBLES] = {x >= 0 && x < 1 ? x : x < 0 ? 1.0 : 0.5};
    float co[DOUBLES], si[DOUBLES];
    double sum = x + y;

    out[PROBE_DADD] = bits_of((float)sum);
    out[PROBE_DMUL] = bits_of((float)(x * y));
    out[PROBE_DDIV] = bits_of((float)(x / y));
    out[PROBE_DSUB] = bits_of((float)(sum - x));
    cos_sin(angle, pos, 1.0, co, si);
    out[PROBE_COS] = bits_of(co[0]);
    out[PROBE_SIN] = bits_of(si[0]);
}

static uint32_t sum_of_bytes(uint32_t x, uint32_t y, uint32_t z)
{
    int32_t sum = (int32_t)(z & 0xffffff);

    for (int i = 0; i < 32; i += 8)
        sum += (int8_t)(x >> i) * (int8_t)(y >> i);
    return (uint32_t)sum;
}

static void probe_reference(struct selftest_case *t)
{
    const uint32_t *x = t->call.in[0].data;
    uint32_t *out = t->call.out.data;

    for (int i = 0; i < N_PROBE; i++, x += 3, out += PROBE_COUNT) {
        probe_floats(out, as_float(x[0]), as_float(x[1]), as_float(x[2]));
        probe_doubles(out, (double)as_float(x[0]), (double)as_float(x[1]),
                      (int32_t)(x[2] & 0xfffff));
        out[PROBE_FROM_F16] = bits_of(f16_to_f32((uint16_t)x[0]));
        out[PROBE_DOT4] = sum_of_bytes(x[0], x[1], x[2]);
        out[PROBE_INT] = bits_of((float)(int32_t)x[0]);
    }
}

/* Generates the operands of the probe kernel: half are combinations of corner
 * cases, half are random bits. */
static void make_probe(struct selftest_case *t)
{
    uint32_t *x = trial_room(t, N_PROBE * 3 * sizeof *x);
    struct probe_args a = {.x = trial_at(t, x), .n = N_PROBE};

    for (int i = 0; i < N_PROBE / 2; i++) {
        x[3 * i] = corner[i / 8 % N_CORNER];
        x[3 * i + 1] = corner[i * 5 % N_CORNER];
        x[3 * i + 2] = corner[(i * 7 + 3) % N_CORNER];
    }
    t->call.in[0].data = x;
    t->call.out.data =
        trial_result(t, N_PROBE * PROBE_COUNT * sizeof(uint32_t));
    a.out = trial_at(t, t->call.out.data);
    t->reference = probe_reference;
    gpu_list_add(&t->list, GPU_probe, gpu_groups(N_PROBE, 64), &a);
}

const char *trial_word(const struct selftest_case *t, size_t word)
{
    static const char *const name[PROBE_COUNT] = {"sum",
                                                  "difference",
                                                  "product",
                                                  "quotient",
                                                  "fused sum",
                                                  "plain sum",
                                                  "square root",
                                                  "integer",
                                                  "f16",
                                                  "bf16",
                                                  "exp",
                                                  "tanh",
                                                  "double sum",
                                                  "double product",
                                                  "double quotient",
                                                  "double difference",
                                                  "cosine",
                                                  "sine",
                                                  "float of f16",
                                                  "sum of bytes",
                                                  "float of an integer"};

    return t->reference == probe_reference ? name[word % PROBE_COUNT] : NULL;
}

/* ---- copies -------------------------------------------------------------- */

static unsigned char *host_of(const struct selftest_case *t, uint64_t at)
{
    return t->image + (at - t->at);
}

static void copies_reference(struct selftest_case *t)
{
    for (int i = 0; i < t->by_hand.copies.n; i++) {
        const struct text_piece *p = &t->by_hand.copies.piece[i];

        for (int64_t k = 0; k < p->n0 * p->n1; k++)
            memcpy(host_of(t, p->dst) + k / p->n1 * p->dst_s0 +
                       k % p->n1 * p->dst_s1,
                   host_of(t, p->src) + k / p->n1 * p->src_s0 +
                       k % p->n1 * p->src_s1,
                   (size_t)p->bytes);
    }
}

/* Creates a case with one copy of each access size: 1, 2, 4 and 8 bytes. */
static void make_copies(struct selftest_case *t)
{
    struct copy_pieces_args *a = &t->by_hand.copies;
    uint64_t src = trial_at(t, trial_room(t, 4096));
    uint64_t dst = trial_at(t, trial_result(t, 16384));

    for (int32_t unit = 1; unit <= 8; unit *= 2, a->n++)
        a->piece[a->n] = (struct text_piece){.dst = dst + 4096 * (uint64_t)a->n,
                                             .src = src + (uint64_t)unit,
                                             .bytes = 13 * unit,
                                             .n0 = 3,
                                             .dst_s0 = 90 * unit,
                                             .src_s0 = 41 * unit,
                                             .n1 = 5,
                                             .dst_s1 = 15 * unit,
                                             .src_s1 = 7 * unit,
                                             .unit = unit,
                                             .first = a->n};
    t->reference = copies_reference;
    gpu_list_add(&t->list, GPU_copy_pieces, a->n, a);
}

/* ---- sums ---------------------------------------------------------------- */

enum { ADDENDS = 9 };

static float merged(const struct selftest_case *t, int64_t from)
{
    const struct merge_tree_args *a = &t->by_hand.tree;
    const void *table = host_of(t, a->addend);
    const struct merge_tree_addend *d = table;
    float stack[ADDENDS];
    int top = 0;

    for (int i = 0; i < ADDENDS; i++) {
        int64_t skip = d[i].skip_tok * a->n_tok + d[i].skip_out * a->n_out;

        memcpy(&stack[top++], host_of(t, d[i].at) + from - skip, 4);
        for (int64_t k = 0; k < d[i].n_add; k++, top--)
            stack[top - 2] = stack[top - 2] + stack[top - 1];
    }
    return stack[0];
}

static void merge_reference(struct selftest_case *t)
{
    const struct tree_piece *p = &t->by_hand.tree.piece;

    for (int64_t k = 0; k < p->n0 * p->n1; k++) {
        int64_t i0 = k / p->n1, i1 = k % p->n1;
        unsigned char *to =
            host_of(t, p->dst) + i0 * p->dst_s0 + i1 * p->dst_s1;

        for (int64_t b = 0; b < p->bytes; b += 4) {
            float x =
                merged(t, p->src_at + i0 * p->src_s0 + i1 * p->src_s1 + b);

            memcpy(to + b, &x, 4);
        }
    }
}

static void make_merge_tree(struct selftest_case *t)
{
    static const int64_t n_add[ADDENDS] = {0, 1, 0, 2, 0, 1, 0, 3, 1};
    struct merge_tree_addend d[ADDENDS];
    struct merge_tree_args *a = &t->by_hand.tree;

    *a = (struct merge_tree_args){.n_tok = 3,
                                  .n_out = 2,
                                  .n = ADDENDS,
                                  .piece = {.src_at = 8,
                                            .bytes = 4 * 37,
                                            .n0 = 3,
                                            .dst_s0 = 4 * 200,
                                            .src_s0 = 4 * 90,
                                            .n1 = 5,
                                            .dst_s1 = 4 * 40,
                                            .src_s1 = 4 * 17}};
    for (int i = 0; i < ADDENDS; i++)
        d[i] = (struct merge_tree_addend){
            .at = 256 + trial_at(t, trial_values(t, VALUES_WILD, PL_F32, 512)),
            .skip_tok = 4 * (i % 3),
            .skip_out = -8 * (i % 2),
            .n_add = n_add[i]};
    a->addend = trial_at(t, trial_put(t, d, sizeof d));
    a->piece.dst = trial_at(t, trial_result(t, 4 * 600));
    t->reference = merge_reference;
    t->floats = true;
    gpu_list_add(&t->list, GPU_merge_tree, gpu_groups(3 * 5 * 37, 256), a);
}

/* ---- pages --------------------------------------------------------------- */

static void pages_reference(struct selftest_case *t)
{
    const struct pages_args *a = &t->by_hand.pages;
    struct page_walk w = page_walk_start(t->table);

    for (int32_t page; (page = page_walk_next(&w)) >= 0;)
        for (int32_t h = 0; h < a->n_head; h++) {
            int32_t from = ((int32_t *)t->call.in[0].data)[h];

            if (from >= 0)
                memcpy(host_of(t, a->out) +
                           (page * a->n_head + h) * a->tile_bytes,
                       host_of(t, a->x) +
                           (page * a->n_head_x + from) * a->tile_bytes,
                       (size_t)a->tile_bytes);
        }
}

static void make_pages(struct selftest_case *t, int64_t tile_bytes)
{
    static const int32_t map[] = {1, -1, 0};
    const struct trial_tokens tokens = {7, 3, 60, 2};
    struct pages_args *a = &t->by_hand.pages;

    *a = (struct pages_args){.n_tok = tokens.n_tok,
                             .page_stride = tokens.stride,
                             .n_page = 7,
                             .tile_bytes = tile_bytes,
                             .n_head = 3,
                             .n_head_x = 2,
                             .n_entry = tokens.stride,
                             .page_tokens = PAGE_TOKENS};
    trial_tokens(t, &tokens, false, a->n_page);
    a->pos = trial_at(t, t->table.pos);
    a->seq = trial_at(t, t->table.seq);
    a->pages = trial_at(t, t->table.pages);
    t->call.in[0].data = trial_put(t, map, sizeof map);
    a->map = trial_at(t, t->call.in[0].data);
    a->x = trial_at(t, trial_room(t, (size_t)(7 * 2 * tile_bytes)));
    a->out = trial_at(t, trial_result(t, (size_t)(7 * 3 * tile_bytes)));
    t->reference = pages_reference;
    gpu_list_add(&t->list, GPU_pages, tokens.n_seq * a->n_entry * a->n_head, a);
}

static void make_wide_pages(struct selftest_case *t)
{
    make_pages(t, 10240);
}

static void make_narrow_pages(struct selftest_case *t)
{
    make_pages(t, 1284);
}

void trial_by_hand(struct selftest_case *t, int i)
{
    static void (*const make[TRIAL_BY_HAND])(struct selftest_case * t) = {
        make_probe, make_copies, make_merge_tree, make_wide_pages,
        make_narrow_pages};

    make[i](t);
    t->n_kept = t->n;
}
