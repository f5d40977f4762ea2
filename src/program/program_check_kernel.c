/* Checks kernel calls; see program_check_kernel.h.
 *
 * A kernel that is named after an op has the rule of that op's row in
 * graph/ops.def: dimensions of operands with the same letter are equal. Here
 * the rule is applied to the dimensions of a device's tensors. They are
 * compared as symbols, so equal dimensions are equal at all sizes. Memory
 * contents are not checked: the code that writes ids, positions and page tables
 * ensures that they are valid. */
#include "program/program_check_kernel.h"

#include "quant/format.h"

#include <string.h>

/* ---- checking shapes ----------------------------------------------------- */

/* Dimensions that the letters of an op's row stand for in one kernel call. */
enum { LETTERS = 64 };
struct shape {
    /* dimension for each letter, indexed by letter & 63; valid if this bit of
     * `known` is set */
    pl_dim dim[LETTERS];
    uint64_t known;
    int n_star; /* number of leading dimensions of the result that '*' stands
                   for */
    pl_dim star[GRAPH_MAX_DIM];
};

static bool same(pl_dim a, pl_dim b)
{
    return a.n == b.n && (a.symbol == b.symbol || a.n == 0);
}

static bool is_one(pl_dim d)
{
    return d.n == 1 && d.symbol == PL_CONST;
}

/* Returns the next letter in the row of an op for one operand, and advances *s.
 * Returns 0 at the end of the operand. A dimension of two factors, such as
 * (gr), counts as one letter: its first one as a capital. */
static int next_letter(const char **s)
{
    const char *p = *s;
    int letter = 0;

    while (*p == '!' || *p == '?')
        p++;
    if (*p == '(') {
        letter = p[1] - 'a' + 'A';
        p += strcspn(p, ")") + 1;
    } else if (*p && *p != ',' && *p != '-') {
        letter = *p++;
    }
    *s = p;
    return letter;
}

static int count_letters(const char *s)
{
    int n = 0;

    for (int c; (c = next_letter(&s)) != 0;)
        n += c != '*';
    return n;
}

/* Returns true if dimension `d` may have this letter. Records the dimension if
 * the letter is new. Otherwise it must equal the recorded one; if `loose`, it
 * may also be 1. */
static bool is_dim(struct shape *x, int letter, pl_dim d, bool loose)
{
    uint64_t bit = (uint64_t)1 << (letter & (LETTERS - 1));

    if (!(x->known & bit)) {
        x->known |= bit;
        x->dim[letter & (LETTERS - 1)] = d;
        return true;
    }
    return same(x->dim[letter & (LETTERS - 1)], d) || (loose && is_one(d));
}

/* Returns true if the n leading dimensions of an operand equal those of the
 * result that '*' stands for, compared from the right. If `loose`, the operand
 * may have fewer of them, and a dimension of 1 equals any. */
static bool is_star(const struct shape *x, const pl_dim *d, int n, bool loose)
{
    if (n > x->n_star || (n < x->n_star && !loose))
        return false;
    for (int i = 0; i < n; i++)
        if (!same(d[i], x->star[x->n_star - n + i]) && !(loose && is_one(d[i])))
            return false;
    return true;
}

static bool fits(struct shape *x, const char *s, const struct prog_tensor *t,
                 bool loose)
{
    int lead = t->n_dim - count_letters(s), at = 0;
    bool star = *s == '*';

    if (lead < 0 || (lead > 0 && !star))
        return false;
    for (int c; (c = next_letter(&s)) != 0;) {
        if (c == '*' && !is_star(x, t->dim, lead, loose))
            return false;
        if (c == '*')
            at += lead;
        else if (!is_dim(x, c, t->dim[at++], loose))
            return false;
    }
    return true;
}

/* Starts the comparison of a kernel call's dimensions: records the dimensions
 * of the result under its letters and '*'. Returns false if the result does not
 * fit the op's row. */
static bool open_result(struct shape *x, const char *dims,
                        const struct prog_tensor *t)
{
    const char *s = strstr(dims, "->") + 2;
    int lead = t->n_dim - count_letters(s);

    *x = (struct shape){.n_star = lead < 0 ? 0 : lead};
    memcpy(x->star, t->dim, (size_t)x->n_star * sizeof *x->star);
    return fits(x, s, t, false);
}

/* Returns the row of letters that tells which dimensions of a kernel's
 * arguments are equal. Returns NULL if other code checks the dimensions of this
 * kernel. */
static const char *dims_of(const struct insn_kernel *k)
{
    enum op op = op_from_name(kernel_name(k->kernel));

    if (k->kernel == KERNEL_custom)
        return k->custom ? k->custom->def->dims : NULL;
    if (k->kernel == KERNEL_permute || k->kernel == KERNEL_slice ||
        k->kernel == KERNEL_concat)
        return NULL;
    return op < OP_COUNT ? op_info(op)->dims : "*->*";
}

/* Returns true if an operand may have a dimension of 1 where the result has a
 * greater one, so that its elements are repeated. */
static bool repeats(const struct insn_kernel *k, const char *dims, int operand)
{
    return strcmp(dims, "*,*->*") == 0 || k->kernel == KERNEL_custom ||
           k->kernel == KERNEL_contiguous ||
           (k->kernel == KERNEL_expert_matmul && operand == 0);
}

static bool shapes_fit(const struct insn_kernel *k, const struct prog_tensor *t)
{
    const char *dims = dims_of(k), *s = dims;
    int first = k->arg[0].access == ACCESS_UPDATE ? 0 : 1;
    struct shape x;

    if (!dims)
        return true;
    if (k->arg[0].tensor < 0 || !open_result(&x, dims, &t[k->arg[0].tensor]))
        return false;
    for (int i = 0; *s != '-'; i++) {
        int a = first + i < k->n_arg ? k->arg[first + i].tensor : -1;

        if (a >= 0 && !fits(&x, s, &t[a], repeats(k, dims, i)))
            return false;
        s += strcspn(s, ",-");
        s += *s == ',';
    }
    /* The activations as blocks of 8-bit values must have the same dimensions
     * as the activations themselves. */
    for (int i = 1; i < k->n_arg; i++) {
        const struct prog_tensor *q, *v;

        if (!kernel_arg_is_q8(k->kernel, i) || k->arg[i].tensor < 0)
            continue;
        q = &t[k->arg[i].tensor];
        v = &t[k->arg[1].tensor];
        if (q->n_dim != v->n_dim)
            return false;
        for (int d = 0; d < q->n_dim; d++)
            if (!same(q->dim[d], v->dim[d]))
                return false;
    }
    return true;
}

/* ---- checking formats ---------------------------------------------------- */

static bool holds(const struct prog_tensor *t, char what)
{
    bool half = t->format == PL_F16 || t->format == PL_BF16;

    switch (what) {
    case 'f':
        return t->format == PL_F32 && !t->pack;
    case 'i':
        return t->format == PL_I32 && !t->pack;
    case 'n':
        return (t->format == PL_F32 || t->format == PL_I32) && !t->pack;
    case 'h':
        return (t->format == PL_F32 || half) && !t->pack;
    case 'e':
        return (t->format == PL_F32 || t->format == PL_I32 || half) && !t->pack;
    case 'c':
        return format_is_cache(t->format) && !t->pack && t->n_dim == 3;
    case 's':
        return t->format == PL_F32 && !t->pack && t->n_dim == 3;
    case 'w': { /* The numbers of rows and of values per row of a packed weight
                   must match its dimensions. */
        const pl_dim *d = t->n_dim >= 2 ? &t->dim[t->n_dim - 2] : NULL;

        return t->format != PL_I32 && d &&
               (!t->pack || (same(d[0], (pl_dim){t->pack->n_row, PL_CONST}) &&
                             same(d[1], (pl_dim){t->pack->k, PL_CONST})));
    }
    default: /* Blocks of 8-bit values and token tables are checked
                elsewhere. */
        return true;
    }
}

/* Returns true if the tensor consists of 16-bit floats. Kernels that only move
 * elements need operands and result of the same width. */
static bool is_half(const struct prog_tensor *t)
{
    return t->format == PL_F16 || t->format == PL_BF16;
}

static bool formats_fit(const struct insn_kernel *k,
                        const struct prog_tensor *t)
{
    const struct prog_tensor *out = &t[k->arg[0].tensor];

    if (k->kernel == KERNEL_gather_rows && out->format == PL_I32)
        return holds(out, 'i') && holds(&t[k->arg[1].tensor], 'i') &&
               holds(&t[k->arg[2].tensor], 'i');
    for (int i = 0; i < k->n_arg; i++) {
        int at = k->arg[i].tensor;
        char what = kernel_values(k->kernel, i);

        if (at >= 0 && (!holds(&t[at], what) ||
                        (what == 'e' && is_half(&t[at]) != is_half(out))))
            return false;
    }
    return true;
}

/* ---- checking rank trees and spans --------------------------------------- */

static bool tree_fits(const struct insn_kernel *k)
{
    const struct rank_tree *x = &k->tree;
    int top = 0, depth = 0;

    for (int i = 0; i < x->n; i++) {
        const struct tree_addend *r = &x->item[i];

        depth = ++top > depth ? top : depth;
        if (r->rank < 0 || r->rank >= PL_MAX_RANKS || r->n_add < 0 ||
            r->n_add >= top)
            return false;
        top -= r->n_add;
    }
    return depth <= x->depth && depth <= PL_MAX_RANKS &&
           (x->n == 0 || top == x->n_out) && x->n_out >= 0 &&
           k->out_stride % sizeof(float) == 0;
}

static bool spans_fit(const struct insn_kernel *k, const struct prog_tensor *t)
{
    const struct prog_tensor *x;
    int64_t at = 0; /* index on the device at which the next span must begin,
                       because spans of quantize leave no gaps */
    pl_dim d;

    if (k->n_span == 0)
        return true;
    if (k->kernel != KERNEL_gather_rows && k->kernel != KERNEL_sum &&
        k->kernel != KERNEL_quantize)
        return false;
    x = &t[k->arg[1].tensor];
    d = k->kernel == KERNEL_sum        ? x->dim[x->n_dim - 2]
        : k->kernel == KERNEL_quantize ? x->dim[x->n_dim - 1]
                                       : x->dim[0];
    for (int i = 0; i < k->n_span; i++) {
        const struct rank_span *s = &k->span[i];

        if (d.symbol != PL_CONST || s->n < 0 || s->local < 0 ||
            s->logical < 0 || s->logical > INT64_MAX - s->n || s->n > d.n ||
            s->local > d.n - s->n || s->rank < 0 || s->rank >= PL_MAX_RANKS)
            return false;
        if (k->kernel == KERNEL_quantize &&
            (s->local != at || s->n % 32 != 0 || s->logical % 32 != 0))
            return false;
        at += s->n;
    }
    return k->kernel != KERNEL_quantize || at == d.n;
}

/* Returns true unless the call multiplies in BF16 and must not. Attention may,
 * and a contraction with packed 16-bit weights. */
static bool products_fit(const struct insn_kernel *k,
                         const struct prog_tensor *t)
{
    const struct prog_tensor *w;

    if (!insn_kernel_is_bf16(k) || kernel_is_attention(k->kernel))
        return true;
    if (!kernel_is_contraction(k->kernel))
        return false;
    w = &t[k->arg[2].tensor];
    return w->pack && (w->format == PL_F16 || w->format == PL_BF16);
}

/* ---- checking attributes of ops ------------------------------------------ */

static bool heads_fit(const struct insn_kernel *k, const struct prog_tensor *t)
{
    pl_dim q, kv;
    int many, few;

    if (!kernel_maps_heads(k->kernel, &many, &few))
        return true;
    q = t[k->arg[many].tensor].dim[1];
    kv = t[k->arg[few].tensor].dim[1];
    if (q.symbol != PL_CONST || kv.symbol != PL_CONST || !k->head_map)
        return q.n == 0;
    for (int64_t h = 0; h < q.n; h++)
        if (k->head_map[h] < 0 || k->head_map[h] >= kv.n)
            return false;
    return true;
}

/* Returns true if, as latent_attention needs it, the values of a head can be
 * the first elements of its keys: they are not wider. */
static bool latent_fits(const struct insn_kernel *k,
                        const struct prog_tensor *t)
{
    const pl_dim *e = &t[k->arg[0].tensor].dim[2];
    const pl_dim *d = &t[k->arg[2].tensor].dim[2];

    return e->symbol == PL_CONST && d->symbol == PL_CONST && e->n <= d->n;
}

/* Returns true if chosen blocks have positions, and a token has some. */
static bool blocks_fit(const struct graph_attr *a,
                       const struct prog_tensor *chosen)
{
    const pl_dim *k = &chosen->dim[2];

    return a->block > 0 && a->local >= 0 && k->symbol == PL_CONST && k->n > 0 &&
           k->n <= INT32_MAX;
}

/* Returns true if the row of a recurrent state has the right number of
 * elements. The state of a head of delta_net* and ssm_scan is a matrix, width
 * of a key by width of a value. The state of a channel of short_conv has one
 * element less than the filter. `state` is the argument with the state. */
static bool state_fits(const struct insn_kernel *k, const struct prog_tensor *t,
                       int state)
{
    bool matrix = k->kernel != KERNEL_short_conv;
    pl_dim d = t[k->arg[state].tensor].dim[2];
    pl_dim a = t[k->arg[2].tensor].dim[matrix ? 2 : 1];
    pl_dim b = matrix ? t[k->arg[3].tensor].dim[2] : (pl_dim){1, PL_CONST};

    return a.symbol == PL_CONST && b.symbol == PL_CONST && a.n > 0 && b.n > 0 &&
           a.n <= INT32_MAX && b.n <= INT32_MAX &&
           same(d, (pl_dim){matrix ? a.n * b.n : a.n - 1, PL_CONST});
}

static bool permute_fits(const struct graph_attr *a,
                         const struct insn_kernel *k,
                         const struct prog_tensor *t)
{
    const struct prog_tensor *out = &t[k->arg[0].tensor];
    const struct prog_tensor *x = &t[k->arg[1].tensor];
    const int p[GRAPH_MAX_DIM] = {a->perm0, a->perm1, a->perm2, a->perm3};
    unsigned seen = 0;

    for (int i = 0; i < x->n_dim; i++) {
        if (p[i] < 0 || p[i] >= x->n_dim || seen >> p[i] & 1 ||
            out->n_dim != x->n_dim || !same(out->dim[i], x->dim[p[i]]))
            return false;
        seen |= 1u << p[i];
    }
    return out->n_dim == x->n_dim && x->n_dim > 0;
}

/* Returns true if the operand and the result of a slice or concat have equal
 * dimensions, except along the axis. */
static bool alike_but(int axis, const struct prog_tensor *a,
                      const struct prog_tensor *b)
{
    if (axis < 0 || axis >= a->n_dim || a->n_dim != b->n_dim ||
        a->dim[axis].symbol != PL_CONST || b->dim[axis].symbol != PL_CONST)
        return false;
    for (int i = 0; i < a->n_dim; i++)
        if (i != axis && !same(a->dim[i], b->dim[i]))
            return false;
    return true;
}

static bool slice_fits(const struct graph_attr *a, const struct insn_kernel *k,
                       const struct prog_tensor *t)
{
    const struct prog_tensor *out = &t[k->arg[0].tensor];
    const struct prog_tensor *x = &t[k->arg[1].tensor];

    return alike_but(a->axis, out, x) && a->start >= 0 &&
           out->dim[a->axis].n <= x->dim[a->axis].n &&
           a->start <= x->dim[a->axis].n - out->dim[a->axis].n;
}

static bool concat_fits(const struct graph_attr *a, const struct insn_kernel *k,
                        const struct prog_tensor *t)
{
    int axis = a->axis;
    const struct prog_tensor *out = &t[k->arg[0].tensor];
    int64_t left;

    if (axis < 0 || axis >= out->n_dim)
        return false;
    left = out->dim[axis].n;
    for (int i = 1; i < k->n_arg; i++) {
        const struct prog_tensor *x = &t[k->arg[i].tensor];

        if (k->arg[i].tensor < 0 || !alike_but(axis, out, x) ||
            x->dim[axis].n > left)
            return false;
        left -= x->dim[axis].n;
    }
    return left == 0;
}

static bool rope_fits(const struct graph_attr *a, const struct insn_kernel *k,
                      const struct prog_tensor *t)
{
    const struct prog_tensor *x = &t[k->arg[1].tensor];
    const int f = k->n_arg > 3 ? k->arg[3].tensor : -1;

    return a->window >= 0 && a->window <= INT32_MAX && a->start >= 0 &&
           a->start <= INT32_MAX && a->n_rot >= 2 && a->n_rot % 2 == 0 &&
           x->dim[2].symbol == PL_CONST && a->n_rot <= x->dim[2].n &&
           (f < 0 || same(t[f].dim[0], (pl_dim){a->n_rot / 2, PL_CONST}));
}

/* Returns true if keys and blocks of compressed_attention are alike. */
static bool compressed_fits(const struct graph_attr *a,
                            const struct insn_kernel *k,
                            const struct prog_tensor *t)
{
    return a->window >= 1 && a->window <= INT32_MAX && a->ratio >= 1 &&
           t[k->arg[2].tensor].format == t[k->arg[3].tensor].format;
}

/* Returns true if each mean of block_mean is of channels that the cache has, of
 * as many tokens as the bias. */
static bool mean_fits(const struct insn_kernel *k, const struct prog_tensor *t)
{
    pl_dim d = t[k->arg[0].tensor].dim[1];
    const pl_dim *cache = t[k->arg[1].tensor].dim;
    const pl_dim *bias = t[k->arg[3].tensor].dim;

    return d.symbol == PL_CONST && bias[0].symbol == PL_CONST &&
           bias[1].symbol == PL_CONST && bias[0].n >= 1 &&
           bias[0].n <= INT32_MAX / 2 && d.n <= INT32_MAX &&
           (bias[1].n == d.n || bias[1].n == 2 * d.n) &&
           t[k->arg[1].tensor].format == PL_F32 &&
           same(cache[1], (pl_dim){1, PL_CONST}) &&
           same(cache[2], (pl_dim){2 * bias[1].n, PL_CONST});
}

/* Returns true if the last dimension of x has n (n + more) values, the weights
 * of n streams: n is at most 8, and `only` if that is not 0. */
static bool streams_fit(const struct prog_tensor *x, int64_t more, int64_t only)
{
    pl_dim d = x->dim[x->n_dim - 1];

    for (int64_t n = 1; n <= 8 && d.symbol == PL_CONST; n++)
        if (d.n == n * (n + more))
            return only == 0 || n == only;
    return false;
}

static bool groups_fit(const struct graph_attr *a, const struct insn_kernel *k,
                       const struct prog_tensor *t)
{
    const struct prog_tensor *x = &t[k->arg[1].tensor];
    const pl_dim *e = &x->dim[x->n_dim - 1];

    return a->n_group <= 1 || (e->symbol == PL_CONST && a->n_group <= e->n);
}

static bool attributes_fit(const struct insn_kernel *k,
                           const struct prog_tensor *t)
{
    static const struct graph_attr none;
    const struct graph_attr *a = k->attr ? k->attr : &none;

    if (!graph_blocks_fit(op_from_name(kernel_name(k->kernel)), a))
        return false;
    switch (k->kernel) {
    case KERNEL_attention:
    case KERNEL_bidirectional_attention:
        return heads_fit(k, t);
    case KERNEL_latent_attention:
        return heads_fit(k, t) && latent_fits(k, t);
    case KERNEL_attention_blocks:
        return heads_fit(k, t) && blocks_fit(a, &t[k->arg[4].tensor]);
    case KERNEL_index_blocks:
        return same(t[k->arg[2].tensor].dim[1], (pl_dim){1, PL_CONST}) &&
               blocks_fit(a, &t[k->arg[0].tensor]);
    case KERNEL_compressed_attention:
        return heads_fit(k, t) && latent_fits(k, t) && compressed_fits(a, k, t);
    case KERNEL_index_topk:
        return same(t[k->arg[3].tensor].dim[1], (pl_dim){1, PL_CONST}) &&
               a->ratio >= 0;
    case KERNEL_block_mean:
        return mean_fits(k, t);
    case KERNEL_sinkhorn:
        return streams_fit(&t[k->arg[0].tensor], 2, 0) &&
               same(t[k->arg[2].tensor].dim[0], (pl_dim){3, PL_CONST});
    case KERNEL_mix_streams:
        return t[k->arg[0].tensor].dim[1].symbol == PL_CONST &&
               streams_fit(&t[k->arg[3].tensor], 1,
                           t[k->arg[0].tensor].dim[1].n);
    case KERNEL_delta_net:
    case KERNEL_delta_net_channels:
        return heads_fit(k, t) && state_fits(k, t, 6);
    case KERNEL_ssm_scan:
        return heads_fit(k, t) && state_fits(k, t, 5);
    case KERNEL_short_conv:
        return state_fits(k, t, 3);
    case KERNEL_permute:
        return permute_fits(a, k, t);
    case KERNEL_slice:
        return slice_fits(a, k, t);
    case KERNEL_concat:
        return concat_fits(a, k, t);
    case KERNEL_rope:
        return rope_fits(a, k, t);
    case KERNEL_router_topk:
        return groups_fit(a, k, t);
    default:
        return true;
    }
}

const char *program_kernel_fault(const struct insn_kernel *k,
                                 const struct prog_tensor *t)
{
    if (!formats_fit(k, t))
        return "has an operand in a format that its kernel does not read";
    if (!shapes_fit(k, t))
        return "has operands whose dimensions do not match";
    if (!tree_fits(k))
        return "its additions do not yield its results";
    if (!spans_fit(k, t))
        return "reads parts of ranks that its operand lacks";
    if (!products_fit(k, t))
        return "requests BF16 products for an operand without them";
    if (!attributes_fit(k, t))
        return "has attributes that point past its operands";
    return NULL;
}
