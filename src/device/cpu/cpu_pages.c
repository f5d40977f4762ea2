/* Executes INSN_PAGES: copies the pages of a micro-batch's sequences from a
 * cache on another device.
 *
 * The token table of the micro-batch lists the pages. For each sequence they
 * are the pages of its row in the page table up to its last position in the
 * micro-batch, except evicted ones. A tile is the part of a page that belongs
 * to one head; whole tiles are copied, so this file does not depend on formats.
 * A page that several sequences share may be listed more than once. Page p is
 * copied by thread p % nth, so that two threads never write the same page. */
#include <string.h>

#include "device/cpu/cpu_image.h"
#include "program/page_walk.h"

/* Returns the tensor of the cache to which a PAGES instruction copies. It
 * belongs to device out_dev. */
static const struct prog_tensor *memory(const struct cpu_image *m,
                                        const struct insn *st)
{
    return &device_of(m->set, st->pages.out_dev)->prog->tensor[st->pages.out];
}

static struct page_walk start(const struct cpu_image *m, const struct insn *st)
{
    return page_walk_start(
        cpu_image_token_table(m, st, st->pages.token_table, memory(m, st)));
}

static size_t n_head(const struct cpu_image *m, int dev, int tensor)
{
    return (size_t)device_of(m->set, dev)->prog->tensor[tensor].dim[1].n;
}

void cpu_image_pages(const struct cpu_image *m, const struct insn *st, int ith,
                     int nth)
{
    const struct insn_pages *x = &st->pages;
    const unsigned char *from = cpu_image_source(m, x->src_dev, x->src);
    unsigned char *to = x->out_dev == m->prog->dev
                            ? m->tensor[x->out].data
                            : cpu_image_inbox(m, x->out_dev, x->out);
    size_t n_to = n_head(m, x->out_dev, x->out);
    size_t n_from = n_head(m, x->src_dev, x->src);
    int64_t n_page =
        dim_value(memory(m, st)->dim[0], &m->prog->max) / PAGE_TOKENS;
    struct page_walk w = start(m, st);

    for (int32_t page; (page = page_walk_next(&w)) >= 0;) {
        unsigned char *out = to + (size_t)page * n_to * x->tile_bytes;
        const unsigned char *in = from + (size_t)page * n_from * x->tile_bytes;

        if (page % nth != ith || page >= n_page)
            continue;
        for (size_t h = 0; h < n_to; h++)
            if (x->map[h] >= 0)
                memcpy(out + h * x->tile_bytes,
                       in + (size_t)x->map[h] * x->tile_bytes, x->tile_bytes);
    }
}

/* Returns the number of pages that a PAGES instruction copies; a page that
 * several sequences share may count more than once. With a memory guard, the
 * token table may only be accessed between device_guard_enter() and
 * device_guard_leave(), so the function calls both. */
static double count_pages(const struct cpu_image *m, const struct insn *st)
{
    struct page_walk w = start(m, st);
    bool guarded = device_guarded(m->set);
    double n = 0;

    if (guarded)
        device_guard_enter(m->set, device_of(m->set, m->prog->dev), st);
    while (page_walk_next(&w) >= 0)
        n++;
    if (guarded)
        device_guard_leave(m->set);
    return n;
}

/* Returns the number of bytes that a PAGES instruction copies. It calls
 * device_guard_enter() and device_guard_leave(), so the caller must not be
 * between the two. */
double cpu_pages_bytes(const struct cpu_image *m, const struct insn *st)
{
    double n_page = count_pages(m, st), n_moved = 0;
    int64_t n = (int64_t)n_head(m, st->pages.out_dev, st->pages.out);

    for (int64_t h = 0; h < n; h++)
        n_moved += st->pages.map[h] >= 0;
    return n_page * n_moved * (double)st->pages.tile_bytes;
}
