/* Makes random weights and summation trees; cpu_weights.h describes the
 * functions. */
#include "lib/cpu_weights.h"

#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "lib/gpu_bridge.h"
#include "lib/tiles_plain.h"

const struct weights_format weights_formats[WEIGHTS_N_FORMAT] = {
    {PL_F32, 0, {0}},     {PL_F16, 0, {0}},     {PL_BF16, 0, {0}},
    {PL_Q8_0, 1, {0}},    {PL_Q4_0, 1, {0}},    {PL_Q4_1, 2, {0, 2}},
    {PL_Q5_0, 1, {0}},    {PL_Q5_1, 2, {0, 2}}, {PL_Q2_K, 2, {80, 82}},
    {PL_Q3_K, 1, {108}},  {PL_Q4_K, 2, {0, 2}}, {PL_Q5_K, 2, {0, 2}},
    {PL_Q6_K, 1, {208}},  {PL_IQ4_NL, 1, {0}},  {PL_IQ4_XS, 1, {0}},
    {PL_MXFP4, 0, {0}},   {PL_IQ1_S, 1, {0}},   {PL_IQ1_M, 0, {0}},
    {PL_IQ2_XXS, 1, {0}}, {PL_IQ2_XS, 1, {0}},  {PL_IQ2_S, 1, {0}},
    {PL_IQ3_XXS, 1, {0}}, {PL_IQ3_S, 1, {0}},   {PL_TQ1_0, 1, {52}},
    {PL_TQ2_0, 1, {64}},  {PL_NVFP4, 0, {0}},
};

bool weights_next_kernel_set(int *f, struct cpu_kernels *k)
{
    for (int i = *f + 1; i < KERNEL_SET_COUNT; i++) {
        if (kernel_set_runs(i)) {
            cpu_kernels_init(k, i);
            *f = i;
            return true;
        }
    }
    *f = *f < KERNEL_SET_COUNT ? KERNEL_SET_COUNT : *f + 1;
    if (*f == KERNEL_SET_COUNT) {
        cpu_kernels_init(k, KERNEL_SET_GENERIC);
        tiles_plain_init(k);
    } else if (*f == KERNEL_SET_COUNT + 1) {
        gpu_bridge_init(k);
    }
    return *f <= KERNEL_SET_COUNT + 1;
}

void *weights_alloc(size_t size)
{
    void *p = NULL;

    assert_int_equal(posix_memalign(&p, 64, size > 0 ? size : 1), 0);
    memset(p, 0xa5, size);
    return p;
}

/* Fills a row of n values with random codes and scales of format fi. One row in
 * four has only the largest and the smallest codes. */
static void random_row(int fi, uint8_t *row, int64_t n, uint64_t *seed)
{
    static const uint8_t extreme[] = {0x00, 0xff, 0x80, 0x7f};
    bool extremes = test_below(seed, 4) == 0;
    pl_format f = weights_formats[fi].format;
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
        /* NVFP4: scales of 0 to 29, the smallest of which are subnormal */
        if (f == PL_NVFP4)
            for (int i = 0; i < 4; i++)
                row[i] = (uint8_t)test_below(seed, 30);
        /* IQ1_M: the block's f16 scale is stored as a nibble in each of four
         * words */
        if (f == PL_IQ1_M) {
            half = f32_to_f16(0.01f * test_unit(seed));
            for (int i = 0; i < 4; i++)
                row[49 + 2 * i] = (uint8_t)((row[49 + 2 * i] & 15) |
                                            (half >> 4 * i & 15) << 4);
        }
        for (int i = 0; i < weights_formats[fi].n_half; i++) {
            half = f32_to_f16(0.01f * test_unit(seed));
            memcpy(row + weights_formats[fi].at[i], &half, 2);
        }
    }
}

struct weights weights_make(int fi, int64_t n_expert, int64_t n, int64_t n_full,
                            const struct pack_span *span, int n_span,
                            uint64_t *seed)
{
    pl_format f = weights_formats[fi].format;
    struct weights m = {.n_expert = n_expert, .n = n};
    int n_chunk = pack_max_chunks(f, span, n_span);
    uint8_t *row = weights_alloc(format_row_bytes(f, n_full));

    m.chunk = weights_alloc((size_t)n_chunk * sizeof(m.chunk[0]));
    pack_init(&m.pack, f, n, n_full, span, n_span, m.chunk);
    m.k = m.pack.k;
    m.data = weights_alloc((size_t)n_expert * m.pack.matrix_bytes);
    memset(m.data, 0, (size_t)n_expert * m.pack.matrix_bytes);
    m.value = weights_alloc((size_t)(n_expert * n * m.k) * sizeof(float));
    for (int64_t i = 0; i < n_expert * n; i++) {
        uint8_t *panel = m.data + (size_t)(i / n) * m.pack.matrix_bytes +
                         (size_t)(i % n / 16) * m.pack.panel_bytes;

        random_row(fi, row, n_full, seed);
        pack_row(&m.pack, panel, (int)(i % n % 16), row);
        if (m.k > 0)
            pack_decode(&m.pack, panel, (int)(i % n % 16), 0, m.k,
                        m.value + i * m.k);
    }
    free(row);
    return m;
}

void weights_free(struct weights *m)
{
    free(m->chunk);
    free(m->data);
    free(m->value);
}

float *weights_floats(int64_t n, uint64_t *seed)
{
    float *x = weights_alloc((size_t)n * sizeof(float));
    bool extremes = test_below(seed, 3) == 0;

    for (int64_t i = 0; i < n; i++) {
        x[i] = test_unit(seed);
        if (extremes)
            x[i] = x[i] < -0.2f ? -1.0f : 1.0f;
    }
    if (n >= 64 && test_below(seed, 4) == 0)
        /* one block of 32 values is zero */
        memset(x + 32, 0, 32 * sizeof(float));
    return x;
}

/* ---- trees --------------------------------------------------------------- */

int weights_tree_left(int n)
{
    int left = 1;

    while (left * 2 < n)
        left *= 2;
    return left;
}

/* Appends the addends of ranks lo .. lo+n-1 to t->item[], in the order of the
 * tree. Returns true if any of these ranks has an addend. */
static bool tree_emit(struct weights_tree *t, int lo, int n)
{
    int left = weights_tree_left(n);
    bool has[2];

    if (lo + n <= t->first || lo >= t->end)
        return false;
    if (n == 1) {
        if (t->empty >> lo & 1)
            return false;
        t->item[t->t.n++] = (struct tree_addend){lo, 0};
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

void weights_tree_make(struct weights_tree *t, int n_rank, int first, int end,
                       uint64_t empty)
{
    *t = (struct weights_tree){
        .n_rank = n_rank, .first = first, .end = end, .empty = empty};
    tree_emit(t, 0, n_rank);
    t->t.item = t->item;
}

void weights_tree_single(struct weights_tree *t, int rank)
{
    *t = (struct weights_tree){.n_rank = 1};
    t->item[0].rank = rank;
    t->t = (struct rank_tree){.n = 1, .n_out = 1, .item = t->item, .depth = 1};
}

void weights_dims(struct cpu_tensor *t, int n_dim, int64_t a, int64_t b,
                  int64_t c)
{
    int64_t dim[3] = {a, b, c};

    t->n_dim = n_dim;
    memcpy(t->dim, dim, sizeof(dim));
}
