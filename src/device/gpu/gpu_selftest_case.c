/* The self-test cases of kernels that programs call. The table of calls is
 * gpu_trials.def; this file makes the operands and the launches of a call. The
 * kinds of arguments are those of program/kernels.def; a row of the table gives
 * the shapes. */
#include "device/gpu/gpu_selftest_case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash64.h"
#include "device/gpu/gpu_fuse.h"
#include "program/cache_tile.h"
#include "quant/grid.h"
#include "quant/q8.h"

enum { MAX_CHUNKS = 64 };

/* ---- random ids ---------------------------------------------------------- */

/* Generates the int32 ids of tensor `x`: from 0 to end - 1, distinct within a
 * row. If `beyond`, some are out of range. */
static void *ids(struct selftest_case *t, const struct cpu_tensor *x,
                 int64_t end, bool beyond)
{
    int64_t row = x->n_dim > 1 ? x->dim[x->n_dim - 1] : 1, n = 1;
    int32_t *p, first = 0;

    for (int i = 0; i < x->n_dim; i++)
        n *= x->dim[i];
    p = trial_room(t, (size_t)n * sizeof *p);
    for (int64_t i = 0; i < n && !t->dry; i++) {
        if (i % row == 0)
            first = (int32_t)(trial_draw(t) % end);
        p[i] = (int32_t)((first + i % row) % end);
        if (beyond && i % 3 == 2)
            p[i] = i % 2 ? -1 : (int32_t)end;
    }
    return p;
}

/* ---- random weights ------------------------------------------------------ */

/* Clears an exponent bit of the F16 scales p[bytes], so that no product becomes
 * infinite. */
static void tame_halves(unsigned char *p, int bytes)
{
    for (int i = 1; i < bytes; i += 2)
        p[i] &= 0xbf;
}

static void tame_tile(const struct pack_rule *r, unsigned char *tile)
{
    if (r->sub == PACK_SUB_F16 || r->sub == PACK_SUB_F16_MIN)
        tame_halves(tile, r->sub_bytes);
    for (int i = 0; r->sub == PACK_SUB_E8M0 && i < r->sub_bytes; i++)
        tile[i] = (unsigned char)(0x70 + tile[i] % 32);
    for (int i = 0; r->sub == PACK_SUB_UE4M3X2 && i < r->sub_bytes; i++)
        tile[i] %= 0x70;
}

/* Generates packed quantized weights for n_matrix matrices. Random bits are
 * valid weights, except that scales must be limited. */
static void *blocks(struct selftest_case *t, const struct pack *p,
                    int64_t n_matrix)
{
    const struct pack_rule *r = p->rule;
    size_t bytes = (size_t)n_matrix * p->matrix_bytes;
    unsigned char *all = trial_room(t, bytes);

    for (size_t panel = 0; panel < bytes && !t->dry; panel += p->panel_bytes)
        for (int i = 0; i < p->n_chunk; i++) {
            unsigned char *c = all + panel + p->chunk[i].off;

            tame_halves(c, r->sup_bytes);
            for (int k = 0; k < p->chunk[i].n / r->tile_values; k++)
                tame_tile(r, c + r->sup_bytes + k * r->tile_bytes);
        }
    return all;
}

/* ---- rows of the table of calls ------------------------------------------ */

enum {
    CUT = 288, /* two ranks: index in a row of the second rank's first value */
    K = 512    /* number of values in a weight row */
};

/* The set of formats with which a call is repeated. */
enum forms { FORM_F32, FORM_FLOATS, FORM_CACHES, FORM_WEIGHTS };

static const struct row {
    /* the row tests each kernel from `kernel` to `last`; if `last` is 0, only
     * `kernel` */
    enum kernel kernel, last;
    enum forms forms;
    /* two operands have formats of the set; the call is repeated with each pair
     * of formats */
    bool pairs;
    bool plain; /* weights are not packed */
    bool table; /* weights and results are I32 */
    /* query head h uses KV head h modulo the number of KV heads */
    bool crossed;
    bool apart; /* the ranks' results are not added but stored separately */
    int n_rank; /* ranks among which the summed dimension is divided */
    int beside; /* number of further calls of the same kernel that are fused
                   into the launch */
    /* kernels of further calls that are fused into the launch, each of which
     * uses the result of the call before; 0 after the last */
    enum kernel behind[TRIAL_CALLS - 1];
    /* before the calls of behind[], gather_rows looks up rows by the ids of the
     * first call */
    bool by_id;
    /* number of the add, from 1, that adds values as large as the result; 0:
     * none */
    int residual;
    /* the call beside has as many weight rows, and behind[0] reads the results
     * of both, or if `biased` the sums of these and a row */
    bool even, biased;
    bool merges; /* softmax states are merged by a launch of their own */
    int64_t ids; /* upper bound of the ids that are generated; all are less */
    enum trial_values values;
    struct trial_tokens tokens;
    struct graph_attr attr;
    int64_t out[GRAPH_MAX_DIM], in[GRAPH_MAX_IN][GRAPH_MAX_DIM];
} rows[] = {
#include "device/gpu/gpu_trials.def"
};
enum { N_ROW = sizeof rows / sizeof *rows };

static bool has_form(enum forms forms, pl_format f)
{
    if (forms == FORM_WEIGHTS)
        return format_info(f)->pack != NULL;
    if (forms == FORM_CACHES)
        return format_is_cache(f);
    return f == PL_F32 || (forms != FORM_F32 && (f == PL_F16 || f == PL_BF16));
}

/* Returns the i-th format of the set, or PL_FORMAT_COUNT if there are fewer. */
static pl_format form(enum forms forms, int i)
{
    int f = 0;

    for (; f < PL_FORMAT_COUNT; f++)
        if (has_form(forms, (pl_format)f) && i-- == 0)
            break;
    return (pl_format)f;
}

static int n_form(const struct row *r)
{
    int n = 0;

    while (form(r->forms, n) != PL_FORMAT_COUNT)
        n++;
    return r->pairs ? n * n : n;
}

/* ---- operands ------------------------------------------------------------ */

/* State while a call is made from a row of the table. */
struct making {
    struct selftest_case *t;
    const struct row *r;
    pl_format f[2]; /* formats chosen for those arguments whose format varies */
    int n_f;        /* number of arguments in f[] so far */
    int n_pack;     /* number of packs used of t->pack */
};

/* Returns a tensor without data. dim[] ends with 0; -1 stands for a dimension
 * of size 0. */
static struct cpu_tensor shape(const int64_t *dim, pl_format f)
{
    struct cpu_tensor x = {.format = f};

    while (x.n_dim < GRAPH_MAX_DIM && dim[x.n_dim]) {
        x.dim[x.n_dim] = dim[x.n_dim] < 0 ? 0 : dim[x.n_dim];
        x.n_dim++;
    }
    return x;
}

static int64_t count(const struct cpu_tensor *x)
{
    int64_t n = 1;

    for (int i = 0; i < x->n_dim; i++)
        n *= x->dim[i];
    return n;
}

/* Generates the data of a weight, packed with one span per rank unless the row
 * is `plain`. */
static void *weights(struct making *m, struct cpu_tensor *x)
{
    struct selftest_case *t = m->t;
    int64_t n = x->dim[x->n_dim - 2], k = x->dim[x->n_dim - 1];
    int64_t n_matrix = x->n_dim == 3 ? x->dim[0] : 1;
    bool cut = m->r->n_rank > 1 && t->kernel != KERNEL_gather_rows;
    const struct pack_span span[] = {{0, cut ? CUT : k, 0}, {CUT, k - CUT, 1}};
    const struct pack_rule *rule = format_info(x->format)->pack;
    bool floats = rule->tile_values == 1;

    if (m->r->plain)
        return floats ? trial_values(t, VALUES_UNIT, x->format, count(x))
                      : trial_room(t, (size_t)(n * n_matrix) *
                                          format_row_bytes(x->format, k));
    struct pack *pack = &t->pack[m->n_pack++];

    pack_init(pack, x->format, n, k, span, 1 + cut,
              trial_room(t, MAX_CHUNKS * sizeof(struct pack_chunk)));
    x->pack = pack;
    if (!floats)
        return blocks(t, pack, n_matrix);
    return trial_values(t, VALUES_UNIT, x->format,
                        n_matrix * (int64_t)pack->matrix_bytes /
                            (x->format == PL_F32 ? 4 : 2));
}

/* Generates the data of a cache. */
static void *cache(struct selftest_case *t, const struct cpu_tensor *x)
{
    int64_t n = x->dim[0] / PAGE_TOKENS * x->dim[1], d = x->dim[2];
    size_t bytes = cache_tile_bytes(x->format, d);
    struct tile_part part[TILE_PARTS];
    int n_part = cache_tile_parts(x->format, part), n_scale = 0;
    unsigned char *p;

    if (n_part == 1)
        return trial_values(t, VALUES_UNIT, x->format, count(x));
    while (part[n_scale].size == 2) /* parts of 2 bytes: scales, then minima */
        n_scale++;
    p = trial_room(t, (size_t)n * bytes);
    for (int64_t i = 0; i < n && !t->dry; i++)
        for (int64_t k = 1; k < d / 32 * PAGE_TOKENS * 2 * n_scale; k += 2)
            /* clears the F16 scale's sign and high exponent bits, so that
             * values stay small */
            p[(size_t)i * bytes + (size_t)k] &= 0x1f;
    return p;
}

/* Returns the format of an argument of kind `letter` (kernel_values()), one of
 * m->f if it varies. */
static pl_format format_of(struct making *m, char letter)
{
    const char *several[] = {[FORM_F32] = "",
                             [FORM_FLOATS] = "hec",
                             [FORM_CACHES] = "c",
                             [FORM_WEIGHTS] = "w"};
    bool plain = letter == 'w' && m->r->plain;

    if (m->r->table)
        return PL_I32;
    if (plain || strchr(several[m->r->forms], letter))
        return m->f[m->n_f++ > 0];
    return letter == 'i' || letter == 'q' ? PL_I32 : PL_F32;
}

static struct cpu_tensor tensor(struct making *m, int arg, const int64_t *dim)
{
    struct selftest_case *t = m->t;
    char letter = kernel_values(t->kernel, arg);
    bool factors = t->kernel == KERNEL_rope && arg == 3;
    struct cpu_tensor x = shape(dim, PL_F32);

    if (x.n_dim == 0)
        return x;
    x.format = format_of(m, letter);
    if (letter == 'w' && m->r->table)
        x.data = ids(t, &x, INT32_MAX, false);
    else if (letter == 'w')
        x.data = weights(m, &x);
    else if (letter == 'c')
        x.data = cache(t, &x);
    else if (letter == 'i' && arg > 0)
        x.data = ids(t, &x, m->r->ids, t->kernel == KERNEL_gather_rows);
    else
        x.data =
            trial_values(t, factors ? VALUES_ABOVE : m->r->values,
                         x.format == PL_I32 ? PL_F32 : x.format, count(&x));
    return x;
}

/* ---- other arguments of calls -------------------------------------------- */

static void add_tokens(struct making *m)
{
    struct selftest_case *t = m->t;
    bool states = false;
    int64_t n_page = (int64_t)m->r->tokens.n_seq * m->r->tokens.stride;

    if (m->r->tokens.n_tok == 0)
        return;
    for (int i = 0; i <= t->call.n_in; i++) {
        const struct cpu_tensor *x = i == 0 ? &t->call.out : &t->call.in[i - 1];

        states = states || kernel_values(t->kernel, i) == 's';
        if (kernel_values(t->kernel, i) == 'c')
            n_page = x->dim[0] / PAGE_TOKENS;
    }
    trial_tokens(t, &m->r->tokens, states, n_page);
    t->call.table = &t->table;
}

static void add_head_map(struct making *m)
{
    struct selftest_case *t = m->t;
    int many, few;
    int64_t n, n_few;
    int32_t *map;

    if (!kernel_maps_heads(t->kernel, &many, &few))
        return;
    n = t->call.out.dim[1];
    n_few = t->call.in[few - 1].dim[1];
    map = trial_room(t, (size_t)n * sizeof *map);
    for (int64_t h = 0; h < n; h++)
        map[h] = (int32_t)(m->r->crossed ? h % n_few : h * n_few / n);
    t->call.head_map = map;
}

/* Sets the rank tree and, with two ranks, their spans of the summed or
 * looked-up dimension, which has size `dim` and is divided at `cut`. */
static void add_ranks(struct making *m, int64_t dim, int64_t cut)
{
    const struct row *r = m->r;
    struct cpu_call *c = &m->t->call;
    const struct tree_addend item[] = {{0, 0}, {1, !r->apart}};
    const struct rank_span span[] = {{0, 0, cut, 0}, {cut, cut, dim - cut, 1}};

    c->tree.n = r->n_rank > 1 ? 2 : 1;
    c->tree.n_out = r->n_rank > 1 && r->apart ? 2 : 1;
    c->tree.depth = c->tree.n;
    c->tree.item = trial_put(m->t, item, sizeof item);
    if (r->n_rank > 1) {
        c->span = trial_put(m->t, span, sizeof span);
        c->n_span = 2;
    }
}

static void add_ranks_of(struct making *m)
{
    const struct cpu_call *c = &m->t->call;
    enum kernel k = m->t->kernel;

    if (kernel_is_contraction(k) || k == KERNEL_quantize)
        add_ranks(m, K, CUT);
    else if (k == KERNEL_gather_rows)
        add_ranks(m, c->in[0].dim[0], c->in[0].dim[0] / 2);
    else if (k == KERNEL_sum)
        add_ranks(m, c->in[0].dim[c->in[0].n_dim - 2], 4);
}

/* ---- the reference ------------------------------------------------------- */

static void run_generic(struct selftest_case *t, enum kernel kernel,
                        struct cpu_call c)
{
    struct cpu_kernels k;
    size_t bytes;

    cpu_kernels_init(&k, KERNEL_SET_GENERIC);
    c.ith = 0;
    c.nth = 1;
    bytes = k.kernel[kernel].scratch ? k.kernel[kernel].scratch(&c) : 0;
    if (posix_memalign(&c.scratch, 64, bytes + 64) != 0) {
        t->no_memory = true;
        return;
    }
    k.kernel[kernel].run(&c);
    free(c.scratch);
}

static void reference(struct selftest_case *t)
{
    run_generic(t, t->kernel, t->call);
    for (int i = 0; i < t->n_also; i++)
        run_generic(t, t->also[i], t->also_call[i]);
}

/* Quantizes the activations if the weights' format needs that. */
static void add_q8(struct making *m)
{
    struct selftest_case *t = m->t;
    struct cpu_call *c = &t->call, q = {.n_in = 1, .in = {c->in[0]}};
    const struct pack *p = c->in[1].pack;
    const struct rank_span whole = {.n = K};

    if (!kernel_is_contraction(t->kernel) || !p || p->rule->tile_values == 1)
        return;
    q.out.data = trial_room(t, (size_t)(count(&c->in[0]) / 32) *
                                   sizeof(struct q8_block));
    c->q8 = q.out.data;
    if (p->rule->sup != PACK_SUP_NONE) {
        q.span = c->n_span > 0 ? c->span : &whole;
        q.n_span = c->n_span > 0 ? c->n_span : 1;
    }
    if (!t->dry)
        run_generic(t, KERNEL_quantize, q);
}

/* ---- launches ------------------------------------------------------------ */

static struct gpu_tensor device_tensor(struct selftest_case *t,
                                       const struct cpu_tensor *x)
{
    size_t bytes = 0;
    const uint16_t *grid = quant_grid(x->format, &bytes);
    struct gpu_tensor g = {.at = trial_at(t, x->data),
                           .format = x->format,
                           .n_dim = x->n_dim,
                           .pack = x->pack};

    memcpy(g.dim, x->dim, sizeof g.dim);
    if (x->pack)
        g.chunk = trial_at(t, x->pack->chunk);
    else if (grid && x->data)
        g.grid = trial_at(t, trial_put(t, grid, bytes));
    return g;
}

static void add_launches(struct selftest_case *t, enum kernel k,
                         const struct cpu_call *c)
{
    const struct gpu_entry *e = &gpu_entries[k];
    struct gpu_call g = {.out = device_tensor(t, &c->out),
                         .n_in = c->n_in,
                         .attr = c->attr,
                         .q8 = trial_at(t, c->q8),
                         .head_map = c->head_map,
                         .head_map_at = trial_at(t, c->head_map),
                         .tree = c->tree,
                         .tree_at = trial_at(t, c->tree.item),
                         .span = c->span,
                         .span_at = trial_at(t, c->span),
                         .n_span = c->n_span,
                         .out_stride = c->out_stride};

    for (int i = 0; i < c->n_in; i++)
        g.in[i] = device_tensor(t, &c->in[i]);
    if (c->table) {
        gpu_call_set_table(&g, c->table);
        g.pos = trial_at(t, c->table->pos);
        g.seq = trial_at(t, c->table->seq);
        g.pages = trial_at(t, c->table->pages);
    }
    if (c == &t->call)
        t->n_kept = t->n;
    /* kernels without scratch memory ignore the address */
    g.scratch = t->at + t->n;
    if (e->scratch)
        g.scratch = trial_at(t, trial_room(t, e->scratch(&g)));
    if (t->counts && !t->merges)
        g.count = trial_at(t, t->counter);
    e->launch(&t->list, &g);
}

/* ---- several calls in a launch ------------------------------------------- */

static struct cpu_call *next_call(struct selftest_case *t, enum kernel k)
{
    t->also[t->n_also] = k;
    return &t->also_call[t->n_also++];
}

static void give_result(struct selftest_case *t, struct cpu_tensor *x)
{
    x->data = trial_values(t, VALUES_MILD, PL_F32, count(x));
}

/* Adds further calls of the same kernel. They share the token table and the
 * activations that weights are multiplied with; other operands differ. A
 * contraction has fewer weight rows than the one before. */
static void add_beside(struct making *m)
{
    struct selftest_case *t = m->t;

    for (int i = 0; i < m->r->beside; i++) {
        struct cpu_call *c = next_call(t, t->kernel);

        *c = t->call;
        if (kernel_is_contraction(t->kernel)) {
            struct cpu_tensor *w = &c->in[1];

            if (!m->r->even) {
                w->dim[w->n_dim - 2] -= 16 * (i + 1);
                c->out.dim[c->out.n_dim - 1] -= 16 * (i + 1);
            }
            w->data = weights(m, w);
        } else if (kernel_access(t->kernel, 0) == ACCESS_UPDATE) {
            c->in[0].data = c->out.data = cache(t, &c->out);
            give_result(t, &c->in[1]);
            continue;
        } else {
            give_result(t, &c->in[0]);
        }
        give_result(t, &c->out);
    }
}

/* Returns the positions of n tokens. All RoPE calls of a case share them. */
static struct cpu_tensor positions(struct selftest_case *t, int64_t n)
{
    struct cpu_tensor x = {.format = PL_I32, .n_dim = 1, .dim = {n}};

    for (int i = 0; i < t->n_also - 1; i++)
        if (t->also[i] == KERNEL_rope)
            return t->also_call[i].in[1];
    x.data = ids(t, &x, 1 << 17, false);
    return x;
}

/* Sets a call of quantize; the heads of a token are one row. If rows have K
 * values, the call gets the spans of one or two ranks. */
static void quantize_behind(struct making *m, struct cpu_call *c)
{
    struct selftest_case *t = m->t;
    struct cpu_tensor *x = &c->in[0];
    const struct rank_span span[] = {{0, 0, m->r->n_rank > 1 ? CUT : K, 0},
                                     {CUT, CUT, K - CUT, 1}};

    if (x->n_dim == 3)
        x->dim[1] *= x->dim[2];
    x->n_dim = 2;
    c->n_in = 1;
    c->n_span = x->dim[1] != K ? 0 : m->r->n_rank > 1 ? 2 : 1;
    c->span = c->n_span ? trial_put(t, span, sizeof span) : NULL;
    c->out.data =
        trial_room(t, (size_t)(count(x) / 32) * sizeof(struct q8_block));
}

/* Sets a call of cache_write for the result of the last call, or for new values
 * if the last call was a cache_write too. */
static void write_behind(struct making *m, struct cpu_call *c)
{
    struct selftest_case *t = m->t;
    const struct trial_tokens *k = &m->r->tokens;

    c->in[1] = c->in[0];
    if (c > t->also_call && t->also[t->n_also - 2] == KERNEL_cache_write)
        give_result(t, &c->in[1]);
    c->out.format = m->f[0];
    c->out.dim[0] = (int64_t)k->n_seq * k->stride * PAGE_TOKENS;
    c->out.data = cache(t, &c->out);
    c->in[0] = c->out;
    c->table = &t->table;
}

/* Sets a call of gather_rows with the ids that select the experts. */
static void rows_behind(struct making *m, struct cpu_call *c)
{
    struct selftest_case *t = m->t;
    int64_t n = c->out.dim[c->out.n_dim - 1];

    c->in[0] = (struct cpu_tensor){
        .format = PL_F32, .n_dim = 2, .dim = {m->r->ids, n}};
    give_result(t, &c->in[0]);
    c->in[1] = t->call.in[2];
    c->tree = t->call.tree;
}

/* Sets a call of add: to the last result it adds the rows that gather_rows
 * looked up, else values as large as the result, or one row. */
static void sum_behind(struct making *m, struct cpu_call *c)
{
    struct selftest_case *t = m->t;
    int64_t n = c->out.dim[c->out.n_dim - 1];
    int n_add = 0;

    for (int i = 0; i < t->n_also; i++)
        n_add += t->also[i] == KERNEL_add;
    if (t->n_also > 1 && t->also[t->n_also - 2] == KERNEL_gather_rows) {
        c->in[1] = c->in[0];
        c->in[0] = t->call.out;
        return;
    }
    c->in[1] =
        n_add == m->r->residual
            ? c->in[0]
            : (struct cpu_tensor){.format = PL_F32, .n_dim = 1, .dim = {n}};
    give_result(t, &c->in[1]);
}

/* Adds a call of kernel `k` that uses the result of the call `last`. */
static void add_behind(struct making *m, enum kernel k, struct cpu_call last)
{
    struct selftest_case *t = m->t;
    struct cpu_call *c = next_call(t, k);

    *c = (struct cpu_call){.n_in = 2, .attr = &t->attr, .in = {last.out}};
    c->out = last.out;
    if (k == KERNEL_quantize) {
        quantize_behind(m, c);
        return;
    } else if (k == KERNEL_cache_write) {
        write_behind(m, c);
        return;
    } else if (k == KERNEL_rope) {
        c->in[1] = positions(t, last.out.dim[0]);
    } else if (k == KERNEL_gather_rows) {
        rows_behind(m, c);
    } else if (k == KERNEL_add) {
        sum_behind(m, c);
    } else if (k == KERNEL_router_topk) {
        c->n_in = 1;
        c->out.dim[c->out.n_dim - 1] = t->attr.n_used;
        c->out.format = PL_I32;
    } else if (k == KERNEL_router_weights) {
        c->in[0] =
            t->n_also > 1 ? t->also_call[t->n_also - 2].in[0] : t->call.in[0];
        c->in[1] = last.out;
        c->out.format = PL_F32;
    } else if (m->r->even && k != KERNEL_mul) {
        c->in[1] = t->also_call[m->r->biased ? 2 : 0].out;
    } else {
        c->in[1] = last.out;
        c->in[1].dim[k == KERNEL_rms_norm ? 0 : last.out.n_dim - 1] = 1;
        give_result(t, &c->in[1]);
        if (k == KERNEL_rms_norm) {
            c->in[1].dim[0] = last.out.dim[last.out.n_dim - 1];
            c->in[1].n_dim = 1;
        }
    }
    give_result(t, &c->out);
}

static void add_calls(struct making *m)
{
    struct selftest_case *t = m->t;
    int by_id = m->r->by_id;

    add_beside(m);
    if (by_id)
        add_behind(m, KERNEL_gather_rows, t->call);
    if (m->r->biased) {
        add_behind(m, KERNEL_add, t->call);
        add_behind(m, KERNEL_add, t->also_call[0]);
        by_id = 2;
    }
    for (int i = 0; i < TRIAL_CALLS - 1 && m->r->behind[i]; i++) {
        int at = i + by_id + (m->r->even && i > 0 ? m->r->beside : 0);

        add_behind(m, m->r->behind[i], at > 0 ? t->also_call[at - 1] : t->call);
    }
}

/* Returns call i, counted from 0, of the case. */
static const struct cpu_call *call_of(const struct selftest_case *t, int i)
{
    return i == 0 ? &t->call : &t->also_call[i - 1];
}

static enum kernel kernel_of(const struct selftest_case *t, int i)
{
    return i == 0 ? t->kernel : t->also[i - 1];
}

/* Returns the call that computes the first operand of call i that an earlier
 * call computes, or -1. */
static int maker_of(const struct selftest_case *t, int i)
{
    const struct cpu_call *c = call_of(t, i);

    for (int in = 0; in < c->n_in; in++)
        for (int k = i - 1; k >= 0; k--)
            if (c->in[in].data && c->in[in].data == call_of(t, k)->out.data)
                return k;
    return -1;
}

/* Fuses the launch of call i, the last of the list, with that of the calls
 * before, by a rewrite of call k and i. *parts is as in gpu_fuse_launches().
 * Returns false if there is none. */
static bool fuse_calls(struct selftest_case *t, int k, int i, unsigned *parts)
{
    uint64_t result = trial_at(t, call_of(t, k)->out.data);

    for (int r = 0; r < REWRITE_COUNT; r++)
        if (gpu_fuse_is_of((enum gpu_rewrite)r, kernel_of(t, k),
                           kernel_of(t, i)) &&
            gpu_fuse_launches(&t->list, t->n_alone - 1, (enum gpu_rewrite)r,
                              false, result,
                              t->counts ? trial_at(t, t->counter) : 0, parts))
            return true;
    return false;
}

/* Fuses call i with the one whose result it reads, if it can, else with any. */
static void fuse_call(struct selftest_case *t, int i, unsigned *parts)
{
    int maker = maker_of(t, i), k = i - 1;

    if (maker >= 0 && fuse_calls(t, maker, i, parts))
        return;
    while (k >= 0 && !fuse_calls(t, k, i, parts))
        k--;
}

/* Creates the launches of all calls, and fuses those of different calls. */
static void add_all_launches(struct selftest_case *t)
{
    unsigned parts = 0;

    add_launches(t, t->kernel, &t->call);
    t->n_alone = t->list.n;
    for (int i = 1; i <= t->n_also; i++) {
        int n = t->list.n;

        add_launches(t, kernel_of(t, i), call_of(t, i));
        if (t->list.n == n + 1 && t->n_alone > 0)
            fuse_call(t, i, &parts);
    }
}

/* ---- a case -------------------------------------------------------------- */

static void add_result(struct making *m)
{
    struct selftest_case *t = m->t;
    struct cpu_call *c = &t->call;
    bool updates = kernel_access(t->kernel, 0) == ACCESS_UPDATE;
    size_t bytes;

    c->out = tensor(m, 0, m->r->out);
    bytes = (size_t)count(&c->out) *
            (c->out.format == PL_F16 || c->out.format == PL_BF16 ? 2 : 4);
    if (updates) {
        c->in[0] = c->out;
        bytes = (size_t)(c->out.dim[0] / PAGE_TOKENS * c->out.dim[1]) *
                cache_tile_bytes(c->out.format, c->out.dim[2]);
    }
    t->out = (size_t)((unsigned char *)c->out.data - t->image);
    if (c->tree.n_out > 1) {
        c->out_stride = (bytes + 255) / 256 * 256;
        trial_room(t, c->out_stride); /* the second rank's result follows the
                                         first's */
    }
    t->out_bytes = bytes + c->out_stride;
}

static void make_call(struct selftest_case *t, const struct row *r,
                      enum kernel k, int variant)
{
    int n = r->pairs ? n_form(&(struct row){.forms = r->forms}) : 1;
    struct making m = {.t = t,
                       .r = r,
                       .f = {form(r->forms, variant / n),
                             form(r->forms, r->pairs ? variant % n : variant)}};
    struct cpu_call *c = &t->call;
    bool updates = kernel_access(k, 0) == ACCESS_UPDATE;

    t->kernel = k;
    t->merges = r->merges;
    t->attr = r->attr;
    c->attr = &t->attr;
    for (int i = 0; i < GRAPH_MAX_IN; i++) {
        if (r->in[i][0])
            c->n_in = i + 1;
        c->in[i] = tensor(&m, i + !updates, r->in[i]);
    }
    add_ranks_of(&m);
    add_q8(&m);
    add_result(&m);
    add_tokens(&m);
    add_head_map(&m);
    add_calls(&m);
    t->counter = trial_put(t, (uint32_t[TAIL_COUNTERS]){0},
                           TAIL_COUNTERS * sizeof *t->counter);
    t->reference = reference;
    t->floats = kernel_values(k, 0) == 'f';
    snprintf(t->what, sizeof t->what, "%s, %s", kernel_name(k),
             format_info(m.f[0])->name);
    add_all_launches(t);
}

/* Creates the i-th call of the table. Returns false if there are fewer. */
static bool make_from_table(struct selftest_case *t, int i)
{
    for (int k = 0; k < N_ROW; k++) {
        const struct row *r = &rows[k];
        int n = n_form(r);
        int n_kernel = r->last > r->kernel ? (int)(r->last - r->kernel) + 1 : 1;

        if (i < n * n_kernel) {
            /* The seed depends only on this row and the case in it, so that the
             * formats of other rows do not change the values. */
            t->random = ((uint64_t)k << 16) + (uint64_t)i + 1;
            make_call(t, r, (enum kernel)((int)r->kernel + i / n), i % n);
            return true;
        }
        i -= n * n_kernel;
    }
    return false;
}

bool trial_make(struct selftest_case *t, int i)
{
    bool dry = t->dry, counts = t->counts, any = true;

    *t = (struct selftest_case){.image = t->image,
                                .at = t->at,
                                .dry = dry,
                                .counts = counts,
                                .random = (uint64_t)i + 1,
                                .list = t->list};
    t->list.n = 0;
    t->list.n_byte = 0;
    t->list.no_memory = false;
    if (i < TRIAL_BY_HAND)
        trial_by_hand(t, i);
    else
        any = make_from_table(t, i - TRIAL_BY_HAND);
    t->dry = dry;
    t->no_memory = t->no_memory || t->list.no_memory;
    return any;
}

uint64_t trial_hash(void)
{
    return hash64(TRIAL_BY_HAND, rows, sizeof rows);
}

void trial_fini(struct selftest_case *t)
{
    gpu_list_free(&t->list);
}

bool trial_takes(const struct selftest_case *t,
                 const bool has[GPU_KERNEL_COUNT])
{
    bool takes = t->list.n > 0;

    for (int i = 0; i < t->list.n; i++)
        takes = takes && has[t->list.launch[i].kernel];
    return takes;
}
