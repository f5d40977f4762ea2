/* Means of blocks of tokens (block_mean). Included by cpu_ops_template.h.
 *
 * Definition, with the order of all operations, for a token that ends a block
 * of R tokens, and one channel i of the d channels:
 *
 *   The entries are the channels i of the block's tokens, in order. If the
 *   cache has 2 d channels, the entries are the channels i of the R tokens
 *   before the block, if any, and then the channels d + i of the block's.
 *   z = g + bias[place in the block], m = the largest z
 *   p = exp(z - m); l = sum of p, from 0; acc = fmaf(p, v, acc), from 0
 *   out = acc / l
 *
 * Other tokens get zeros. So a token's bits depend only on the cache. */
#ifndef DEVICE_CPU_CPU_BLOCK_MEAN_TEMPLATE_H
#define DEVICE_CPU_CPU_BLOCK_MEAN_TEMPLATE_H

#include "device/cpu/cpu_cache_template.h"

/* Arguments of the kernel for one token that ends a block. */
struct mean_view {
    const struct cpu_call *c;
    const int32_t *pages;
    int64_t first; /* position of the first entry */
    int64_t n;     /* number of entries */
    int64_t ratio, width, d;
};

/* Returns the values of entry u of channel i in two vectors: the gates plus
 * bias, and v. m <= 16 channels are valid. */
static inline void mean_entry(const struct mean_view *v, int64_t u, int64_t i,
                              int64_t m, lanes *z, lanes *value)
{
    int64_t pos = v->first + u;
    int64_t at = v->n - u <= v->ratio ? v->width - v->d + i : i;
    const float *row =
        (const float *)v->c->in[0].data +
        (v->pages[pos / PAGE_TOKENS] * PAGE_TOKENS + pos % PAGE_TOKENS) * 2 *
            v->width;
    float buf[LANES];

    *z = lanes_add(
        lanes_load_n(row + v->width + at, m),
        lanes_load_n(floats(&v->c->in[2], u % v->ratio * v->width + at, m, buf),
                     m));
    *value = lanes_load_n(row + at, m);
}

static inline void mean_token(const struct mean_view *v, float *out)
{
    for (int64_t i = 0; i < v->d; i += LANES) {
        int64_t m = v->d - i < LANES ? v->d - i : LANES;
        lanes top = lanes_set(-INFINITY), l = lanes_set(0), acc = lanes_set(0);
        lanes z, x;

        for (int64_t u = 0; u < v->n; u++) {
            mean_entry(v, u, i, m, &z, &x);
            top = lanes_max(z, top);
        }
        for (int64_t u = 0; u < v->n; u++) {
            mean_entry(v, u, i, m, &z, &x);
            z = lanes_exp(lanes_sub(z, top));
            l = lanes_add(l, z);
            acc = lanes_fma(z, x, acc);
        }
        lanes_store_n(out + i, lanes_div(acc, l), m);
    }
}

/* Computes block_mean:
 *
 *   cache [n_slot, 1, 2 c] f32, pos [n_tok], bias [ratio, c]  ->  [n_tok, d]
 *
 * The positions are those of the token table. */
static inline void block_mean_run(const struct cpu_call *c)
{
    const struct token_table *b = c->table;
    struct mean_view v = {.c = c,
                          .ratio = c->in[2].dim[0],
                          .width = c->in[2].dim[1],
                          .d = c->out.dim[1]};
    struct cpu_part p = cpu_part(b->n_tok, 1, c->ith, c->nth);

    for (int64_t t = p.lo; t < p.hi; t++) {
        float *out = (float *)c->out.data + t * v.d;
        int64_t end = (int64_t)b->pos[t] + 1;

        if (end % v.ratio != 0) {
            memset(out, 0, (size_t)v.d * sizeof(float));
            continue;
        }
        v.n = v.width > v.d && end > v.ratio ? 2 * v.ratio : v.ratio;
        v.first = end - v.n;
        v.pages = b->pages + b->seq[t] * b->page_stride;
        mean_token(&v, out);
    }
}

#endif
