/* The loop over k of a GEMM: multiplies a block of two packed panels by
 * arranged rows of activations, in passes over ranges of k (cpu_gemm.h). */
#include "device/cpu/cpu_gemm.h"

#include <string.h>

static size_t up(size_t n)
{
    return (n + 63) & ~(size_t)63;
}

size_t gemm_work_init(struct gemm_work *g, const struct cpu_gemm *gemm,
                      const struct pack *pack, int64_t n_row, void *memory)
{
    size_t tok = (size_t)gemm->tok, n = (size_t)n_row + tok;
    size_t unit_bytes = gemm->weight_bytes(), act_bytes = gemm->act_bytes();
    size_t weight = GEMM_PANELS * (size_t)gemm->pass * unit_bytes;
    size_t act = up(n / tok * (size_t)gemm_units(pack) * act_bytes);
    size_t pointers = up(n * sizeof(void *));
    size_t sums = gemm->gathered ? n * GEMM_WIDTH * sizeof(float) : 0;
    unsigned char *at = memory;

    *g = (struct gemm_work){.gemm = gemm,
                            .pack = pack,
                            .unit_bytes = unit_bytes,
                            .act_bytes = act_bytes};
    if (at) {
        g->weight = at;
        g->act = at + weight;
        g->x = (const void **)(at + weight + act);
        g->acc = (float **)(at + weight + act + pointers);
        g->sum = (float **)(at + weight + act + 2 * pointers);
        at += weight + act + 3 * pointers;
        for (size_t j = 0; j < n && gemm->gathered; j++)
            g->sum[j] = (float *)at + j * GEMM_WIDTH;
    }
    return weight + act + (gemm->gathered ? 3 : 2) * pointers + sums;
}

void gemm_begin(const struct gemm_work *g)
{
    if (g->gemm->begin)
        g->gemm->begin(g->pack);
}

void gemm_end(const struct gemm_work *g)
{
    if (g->gemm->end)
        g->gemm->end();
}

void gemm_arrange(struct gemm_work *g, int64_t n_row)
{
    const struct cpu_gemm *m = g->gemm;
    size_t step = (size_t)gemm_units(g->pack) * g->act_bytes;

    for (int64_t i = 0; i < n_row; i += m->tok)
        m->arrange(g->act + (size_t)(i / m->tok) * step, g->pack, g->x + i,
                   (int)(n_row - i < m->tok ? n_row - i : m->tok));
}

/* Multiplies units first .. end - 1 (ranges of k, cpu_gemm.h) of a block of one
 * or two panels by the rows of activations in g->act. Adds the products to the
 * accumulators g->acc[0 .. n_row - 1]. If `fresh`, the accumulators are taken
 * as 0, whatever they hold. */
static void add_units(const struct gemm_work *g, const uint8_t *panel,
                      int n_panel, int64_t first, int64_t end, int64_t n_row,
                      bool fresh)
{
    const struct cpu_gemm *m = g->gemm;
    size_t step = (size_t)gemm_units(g->pack) * g->act_bytes;
    size_t stride = (size_t)m->pass * g->unit_bytes;
    struct gemm_pass p = {
        .weight = g->weight,
        .stride = stride,
        .act_step = step,
        .from = fresh ? NULL : g->acc,
        .out = g->acc,
        .n_row = n_row,
        .count = (end - first + m->pass - 1) / m->pass,
    };

    for (int64_t u = first, n; u < end; u += n, p.index++) {
        n = end - u < m->pass ? end - u : m->pass;
        for (int i = 0; i < GEMM_PANELS; i++) {
            if (i < n_panel)
                m->unpack(g->weight + (size_t)i * stride, g->pack,
                          panel + (size_t)i * g->pack->panel_bytes, u, n);
            else
                memset(g->weight + (size_t)i * stride, 0, stride);
        }
        p.act = g->act + (size_t)u * g->act_bytes;
        p.to = m->gathered && u + n < end ? g->sum : g->acc;
        p.n_unit = n;
        m->run(&p);
        p.from = p.to;
    }
}

void gemm_add(const struct gemm_work *g, const uint8_t *panel, int n_panel,
              int32_t rank, int64_t n_row, bool fresh)
{
    const struct pack *p = g->pack;
    int64_t unit = 0, end;

    for (int64_t j = n_row; g->gemm->gathered && j % g->gemm->tok != 0; j++)
        g->acc[j] = g->sum[j];
    for (int i = 0; i < p->n_chunk; unit = end) {
        int32_t of = p->chunk[i].rank;

        for (end = unit; i < p->n_chunk && p->chunk[i].rank == of; i++)
            end += gemm_chunk_units(p, &p->chunk[i]);
        if (of != rank)
            continue;
        add_units(g, panel, n_panel, unit, end, n_row, fresh);
        fresh = false;
    }
    /* If `fresh` is still true, the rank owns no part of k on this device, so
     * its sums are 0. */
    if (fresh)
        gemm_clear(g->acc, n_row);
}
