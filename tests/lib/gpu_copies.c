/* Copies the operands of a cpu_call to a GPU's memory and back; gpu_copies.h
 * describes the functions. */
#include "lib/gpu_copies.h"

#include "lib/support.h"

#include <string.h>

#include "program/cache_tile.h"
#include "quant/grid.h"

enum { GAP = 256 };

static int64_t count_of(const struct cpu_tensor *t)
{
    int64_t n = 1;

    for (int i = 0; i < t->n_dim; i++)
        n *= t->dim[i];
    return n;
}

/* Returns the size in bytes of argument i of a kernel, the tensor `t`. */
static size_t bytes_of(enum kernel k, int i, const struct cpu_tensor *t)
{
    int64_t n = count_of(t), last = t->n_dim > 0 ? t->dim[t->n_dim - 1] : 1;

    if (n == 0)
        return 0;
    if (kernel_values(k, i) == 'q')
        return (size_t)(n / 32) * sizeof(struct q8_block);
    if (kernel_values(k, i) == 'c')
        return (size_t)(t->dim[0] / PAGE_TOKENS * t->dim[1]) *
               cache_tile_bytes(t->format, t->dim[2]);
    if (t->pack)
        return (size_t)(n / last / t->dim[t->n_dim - 2]) *
               t->pack->matrix_bytes;
    return (size_t)(n / last) * format_row_bytes(t->format, last);
}

/* Adds n bytes at p to the ranges of the image. Ranges that overlap become
 * one. */
static void add(struct gpu_copies *m, const void *p, size_t n, bool written)
{
    struct gpu_range r = {p, n, 0, written};

    if (!p)
        return;
    for (int i = 0; i < m->n;) {
        struct gpu_range *o = &m->range[i];
        const char *end = r.p + r.n > o->p + o->n ? r.p + r.n : o->p + o->n;

        if (r.p >= o->p + o->n || o->p >= r.p + r.n) {
            i++;
            continue;
        }
        r.p = r.p < o->p ? r.p : o->p;
        r.n = (size_t)(end - r.p);
        r.written = r.written || o->written;
        *o = m->range[--m->n];
        i = 0;
    }
    assert_true(m->n < GPU_MAX_COPIES);
    m->range[m->n++] = r;
}

static void add_table(struct gpu_copies *m, const struct token_table *t)
{
    int32_t n_seq = 0;

    for (int64_t i = 0; i < t->n_tok; i++)
        n_seq = t->seq[i] >= n_seq ? t->seq[i] + 1 : n_seq;
    add(m, t->pos, (size_t)t->n_tok * sizeof *t->pos, false);
    add(m, t->seq, (size_t)t->n_tok * sizeof *t->seq, false);
    add(m, t->pages, (size_t)(n_seq * t->page_stride) * sizeof *t->pages,
        false);
}

static void add_beside(struct gpu_copies *m, enum kernel k,
                       const struct cpu_call *c)
{
    int many, few;

    if (c->table)
        add_table(m, c->table);
    if (c->q8)
        add(m, c->q8,
            (size_t)(count_of(&c->in[0]) / 32) * sizeof(struct q8_block),
            false);
    if (c->head_map && kernel_maps_heads(k, &many, &few)) {
        const struct cpu_tensor *t = many == 0 ? &c->out : &c->in[many - 1];

        add(m, c->head_map, (size_t)t->dim[t->n_dim - 2] * sizeof *c->head_map,
            false);
    }
    add(m, c->tree.item, (size_t)c->tree.n * sizeof *c->tree.item, false);
    add(m, c->span, (size_t)c->n_span * sizeof *c->span, false);
}

void gpu_copies_of(struct gpu_copies *m, enum kernel k,
                   const struct cpu_call *c)
{
    size_t more =
        c->tree.n_out > 1 ? (size_t)(c->tree.n_out - 1) * c->out_stride : 0;

    *m = (struct gpu_copies){0};
    add(m, c->out.data,
        kernel_is_contraction(k) && c->tree.n_out == 0
            ? 0
            : more + bytes_of(k, 0,
                              kernel_values(k, 0) == 'q' ? &c->in[0] : &c->out),
        true);
    for (int i = 0; i < GRAPH_MAX_IN; i++) {
        const struct cpu_tensor *t = &c->in[i];
        size_t bytes = 0;
        const void *grid = quant_grid(t->format, &bytes);

        add(m, grid, bytes, false);
        if (!t->data)
            continue;
        add(m, t->data, bytes_of(k, i + 1, t),
            (kernel_access(k, i + 1) & ACCESS_WRITE) != 0);
        if (t->pack)
            add(m, t->pack->chunk,
                (size_t)t->pack->n_chunk * sizeof *t->pack->chunk, false);
    }
    add_beside(m, k, c);
    m->bytes = GAP;
    for (int i = 0; i < m->n; i++) {
        m->range[i].off = m->bytes + (uintptr_t)m->range[i].p % GAP;
        m->bytes = (m->range[i].off + m->range[i].n + 2 * GAP) / GAP * GAP;
    }
    m->scratch = m->bytes;
}

void gpu_copies_add_scratch(struct gpu_copies *m, size_t bytes)
{
    m->bytes = m->scratch + (bytes + 2 * GAP) / GAP * GAP;
}

uint64_t gpu_copies_at(const struct gpu_copies *m, const void *p)
{
    if (!p)
        return 0;
    for (int i = 0; i < m->n; i++) {
        const struct gpu_range *r = &m->range[i];

        if ((const char *)p == r->p ||
            ((const char *)p >= r->p && (const char *)p < r->p + r->n))
            return m->at + r->off + (uint64_t)((const char *)p - r->p);
    }
    fail_msg("%p, a pointer of the call, is no operand", p);
    return 0;
}

void gpu_copies_fill(const struct gpu_copies *m, unsigned char *image)
{
    memset(image, 0xff, m->bytes);
    for (int i = 0; i < m->n; i++)
        memcpy(image + m->range[i].off, m->range[i].p, m->range[i].n);
}

void gpu_copies_take(const struct gpu_copies *m, const unsigned char *image)
{
    size_t at = 0;

    for (int i = 0; i <= m->n; i++) {
        size_t end = i < m->n ? m->range[i].off : m->scratch;

        for (; at < end; at++)
            if (image[at] != 0xff)
                fail_msg("a kernel wrote beside its operands, %zu bytes "
                         "behind operand %d of %d",
                         i > 0 ? at - m->range[i - 1].off - m->range[i - 1].n
                               : at,
                         i - 1, m->n);
        if (i < m->n)
            at += m->range[i].n;
    }
    for (int i = 0; i < m->n; i++) {
        const struct gpu_range *r = &m->range[i];

        if (r->written)
            memcpy((char *)r->p, image + r->off, r->n);
        else if (memcmp(r->p, image + r->off, r->n) != 0)
            fail_msg("a kernel wrote into an operand that it only reads");
    }
}
