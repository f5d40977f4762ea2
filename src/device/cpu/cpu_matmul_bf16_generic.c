/* Matrix products with weights that multiply BF16 values (graph_attr.bf16), in
 * plain C, which is the specification of the vector kernels. */
#include "base/bf16.h"
#include "device/cpu/cpu_matmul.h"

static float element(pl_format f, const void *p, int64_t i)
{
    uint16_t v = ((const uint16_t *)p)[i];

    return f == PL_F16 ? f16_to_f32(v) : bf16_to_f32(v);
}

/* Returns `sum` plus the products of values i and i + 1 of a chunk, for weight
 * row `row` of the panel and activations x, both rounded to BF16. If `both` is
 * false, value i is the last of a segment, and value i + 1 counts as 0. */
static float pair_add(const struct cpu_panel_args *s, const uint8_t *tiles,
                      const float *x, int64_t i, bool both, int row, float sum)
{
    pl_format f = s->pack->format;
    float w0 = element(f, tiles, i * PACK_ROWS + row), w1 = 0, x1 = 0;

    if (both) {
        w1 = element(f, tiles, (i + 1) * PACK_ROWS + row);
        x1 = x[i + 1];
    }
    return bf16_pair_add(sum, bf16_pair(w0, w1), bf16_pair(x[i], x1));
}

static void chunk(const struct cpu_panel_args *s, const struct pack_chunk *c)
{
    const uint8_t *tiles = s->panel + c->off;

    for (int j = 0; j < s->n_tok; j++) {
        const float *x = (const float *)s->x[j] + c->k_loc;
        float *acc = cpu_panel_acc(s, j);

        for (int64_t k = 0, end; k < c->n; k = end) {
            end = cpu_segment_end(c->k + k) - c->k;
            end = end < c->n ? end : c->n;
            for (int r = 0; r < PACK_ROWS; r++) {
                float sum = 0;

                for (int64_t i = k; i < end; i += 2)
                    sum = pair_add(s, tiles, x, i, i + 1 < end, r, sum);
                acc[r] = acc[r] + sum;
            }
        }
    }
}

void cpu_panel_bf16_generic(const struct cpu_panel_args *s)
{
    for (int i = 0; i < s->pack->n_chunk; i++)
        if (s->pack->chunk[i].rank == s->rank)
            chunk(s, &s->pack->chunk[i]);
}

static const struct cpu_jobs jobs = {
    .packed =
        {[PL_F16] = cpu_panel_bf16_generic, [PL_BF16] = cpu_panel_bf16_generic},
    .add = cpu_add_generic,
};
static const struct cpu_matmul_isa isa = {&jobs, NULL};

#include "device/cpu/cpu_matmul_ops_template.h"

void cpu_matmul_init_bf16_generic(struct cpu_kernels *k)
{
    init_entries(k->bf16);
}
