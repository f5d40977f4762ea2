/* Implementation of gpu_fuse.h: the search for groups, and the conditions of
 * the rewrites. Instructions are compared by their kernels, attributes and
 * tensors, whose sizes are those of the largest step. */
#include "device/gpu/gpu_fuse.h"

#include <stdlib.h>
#include <string.h>

#include "device/gpu/gpu_fuse_args.h"

struct planning {
    const struct program *p;
    const struct variant *v;
    struct gpu_fused *plan; /* [v->n_insn], valid below `at` */
    int at;                 /* index of the instruction that may join a group */
    bool few;               /* the plan is for few rows */
};

/* ---- instructions and their arguments ------------------------------------ */

static const struct insn_kernel *kernel_of(const struct planning *x, int i)
{
    return &x->v->insn[i].kernel;
}

/* Returns argument `a` of instruction i, or NULL if it is absent. */
static const struct prog_tensor *arg(const struct planning *x, int i, int a)
{
    const struct insn_kernel *k = kernel_of(x, i);

    return a < k->n_arg && k->arg[a].tensor >= 0
               ? &x->p->tensor[k->arg[a].tensor]
               : NULL;
}

/* Returns true if both are the same memory. Their dimensions may differ. */
static bool is_at(const struct prog_tensor *t, const struct prog_tensor *u)
{
    return t && u && t->region == u->region && t->offset == u->offset &&
           t->bytes == u->bytes;
}

/* Returns true if argument `a` of instruction k is the result of i. */
static bool is_result(const struct planning *x, int i, int k, int a)
{
    return is_at(arg(x, k, a), arg(x, i, 0));
}

static size_t bytes_of(const struct planning *x, int i, int a)
{
    const struct insn_kernel *k = kernel_of(x, i);
    size_t more = a == 0 && k->tree.n_out > 1
                      ? (size_t)(k->tree.n_out - 1) * k->out_stride
                      : 0;

    return more + arg(x, i, a)->bytes;
}

static bool overlap(const struct planning *x, int i, int a, int k, int b)
{
    const struct prog_tensor *t = arg(x, i, a), *u = arg(x, k, b);

    return t && u && t->region == u->region &&
           t->offset < u->offset + bytes_of(x, k, b) &&
           u->offset < t->offset + bytes_of(x, i, a);
}

/* Members of a rewrite's set `reads` that do not stand for arguments. */
#define BESIDE (1U << KERNEL_MAX_ARG)
#define ALONE  (2U << KERNEL_MAX_ARG)
#define OTHERS (4U << KERNEL_MAX_ARG)

/* Returns true if one of the instructions writes what the other accesses.
 * Arguments of k in the set `reads` may be the result of i. With ALONE the
 * result of k may be anywhere. */
static bool conflict(const struct planning *x, int i, int k, unsigned reads)
{
    const struct insn_kernel *m = kernel_of(x, i), *n = kernel_of(x, k);

    for (int a = 0; a < m->n_arg; a++)
        for (int b = 0; b < n->n_arg; b++)
            if (((m->arg[a].access | n->arg[b].access) & ACCESS_WRITE) &&
                overlap(x, i, a, k, b) && !(reads & ALONE && b == 0) &&
                !(a == 0 && reads >> b & 1 && is_result(x, i, k, b)))
                return true;
    return false;
}

/* Returns the last instruction before i in group h, or -1. */
static int before(const struct planning *x, int h, int i)
{
    while (--i >= h)
        if (x->plan[i].group == h)
            return i;
    return -1;
}

/* ---- conditions ---------------------------------------------------------- */

/* Conditions of the rewrites on their first and second instruction. */
enum likeness {
    PLAIN = 1,   /* the first is a binary kernel of floats whose operands are as
                    large as its result */
    ROW = 2,     /* the results have the same last dimension, */
    DIMS = 4,    /* all dimensions */
    ATTR = 8,    /* the attributes are equal */
    POOL = 16,   /* the results are caches of one pool */
    LEADS = 32,  /* the first is the first of its group */
    JOINED = 64, /* the first is not */
    ONE_SUM = 128 /* the rank tree of the first leaves one sum */
};

static bool same_dim(pl_dim a, pl_dim b)
{
    return a.n == b.n && a.symbol == b.symbol;
}

static bool same_dims(const struct prog_tensor *t, const struct prog_tensor *u)
{
    if (t->n_dim != u->n_dim)
        return false;
    for (int i = 0; i < t->n_dim; i++)
        if (!same_dim(t->dim[i], u->dim[i]))
            return false;
    return true;
}

static int64_t row_of(const struct prog_tensor *t)
{
    return t->n_dim > 0 ? t->dim[t->n_dim - 1].n : 1;
}

static bool is_plain(const struct planning *x, int i)
{
    for (int a = 1; a <= 2; a++)
        if (arg(x, i, a)->format != PL_F32 ||
            !same_dims(arg(x, i, a), arg(x, i, 0)))
            return false;
    return true;
}

static const struct graph_attr *attr_of(const struct planning *x, int i)
{
    static const struct graph_attr none;

    return kernel_of(x, i)->attr ? kernel_of(x, i)->attr : &none;
}

static bool same_attr(const struct graph_attr *a, const struct graph_attr *b)
{
#define SAME(type, name) memcmp(&a->name, &b->name, sizeof a->name) == 0 &&
    return GRAPH_ATTR_MAP(SAME) true;
#undef SAME
}

static bool is_like(const struct planning *x, int i, int k, unsigned like)
{
    const struct prog_tensor *t = arg(x, i, 0), *u = arg(x, k, 0);

#define IF(condition) !(like & (condition)) ||
    return (IF(PLAIN) is_plain(x, i)) && (IF(ROW) row_of(t) == row_of(u)) &&
           (IF(DIMS) same_dims(t, u)) &&
           (IF(ATTR) same_attr(attr_of(x, i), attr_of(x, k))) &&
           (IF(POOL) prog_tensor_pool(t) == prog_tensor_pool(u)) &&
           (IF(LEADS) x->plan[i].with < 0) &&
           (IF(JOINED) x->plan[i].with >= 0) &&
           (IF(ONE_SUM) kernel_of(x, i)->tree.n_out == 1);
#undef IF
}

/* Returns true if the tensor has n values, whatever the step. */
static bool has_values(const struct prog_tensor *t, int64_t n)
{
    int64_t count = 1;

    for (int i = 0; i < t->n_dim; i++)
        count *= t->dim[i].symbol == PL_CONST ? t->dim[i].n : 0;
    return count == n;
}

/* Requires that the second operand has one value, or one for each row. */
static bool fits_product(const struct planning *x, int i, int k)
{
    const struct prog_tensor *out = arg(x, k, 0), *y = arg(x, k, 2);
    struct prog_tensor rows = *out;

    (void)i;
    if (out->n_dim == 0)
        return false;
    rows.dim[rows.n_dim - 1].n = 1;
    return y->format == PL_F32 && row_of(out) % 32 == 0 &&
           (has_values(y, 1) || same_dims(y, &rows));
}

/* ---- conditions of contractions ------------------------------------------ */

static bool same_table(const void *a, int n, const void *b, int m, size_t bytes)
{
    return n == m && (n == 0 || memcmp(a, b, (size_t)n * bytes) == 0);
}

/* Returns true if the matrices have the same number of columns, divided among
 * ranks in the same way. */
static bool same_columns(const struct planning *x, int i, int k)
{
    const struct insn_kernel *a = kernel_of(x, i), *b = kernel_of(x, k);
    const struct prog_tensor *t = arg(x, i, 2), *u = arg(x, k, 2);
    const struct pack *p = t->pack, *q = u->pack;

    return t->format == u->format && t->n_dim == u->n_dim && !p == !q &&
           row_of(t) == row_of(u) &&
           (t->n_dim < 3 || t->dim[0].n == u->dim[0].n) &&
           (!p || same_table(p->chunk, p->n_chunk, q->chunk, q->n_chunk,
                             sizeof *p->chunk)) &&
           same_table(a->tree.item, a->tree.n, b->tree.item, b->tree.n,
                      sizeof *a->tree.item) &&
           same_table(a->span, a->n_span, b->span, b->n_span, sizeof *a->span);
}

/* Returns true if the instruction needs memory for partial sums. */
static bool has_stack(const struct planning *x, int i)
{
    return kernel_of(x, i)->tree.depth > kernel_of(x, i)->tree.n_out;
}

static bool fits_matrices(const struct planning *x, int i, int k)
{
    const struct insn_kernel *a = kernel_of(x, i), *b = kernel_of(x, k);
    int n = 0;

    for (int m = k; (m = before(x, x->plan[i].group, m)) >= 0;)
        n += kernel_of(x, m)->kernel == a->kernel;
    return n <= CONTRACT_MORE && a->kernel == b->kernel && !has_stack(x, i) &&
           !has_stack(x, k) && a->tree.n_out == b->tree.n_out &&
           (a->tree.n_out == 1 || a->out_stride == b->out_stride) &&
           same_columns(x, i, k);
}

/* Returns true if the next instruction that adds the result of k adds it to
 * that of i. */
static bool is_added(const struct planning *x, int i, int k)
{
    for (int m = k + 1; m < x->v->n_insn && m <= k + GPU_FUSE_REACH; m++)
        if (x->v->insn[m].kind == INSN_KERNEL &&
            kernel_of(x, m)->kernel == KERNEL_add && is_result(x, k, m, 2))
            return is_result(x, i, m, 1);
    return false;
}

/* Requires that the ids that select experts also select the rows, one for each
 * matrix, and that these are then added to the result. */
static bool fits_matrix_rows(const struct planning *x, int i, int k)
{
    const struct prog_tensor *w = arg(x, i, 2), *t = arg(x, k, 1);

    return is_at(arg(x, i, 3), arg(x, k, 2)) && t->format == PL_F32 &&
           !t->pack && kernel_of(x, k)->n_span == 0 &&
           kernel_of(x, k)->tree.n_out == 1 && t->dim[0].n == w->dim[0].n &&
           t->dim[1].n == w->dim[1].n && is_added(x, i, k);
}

/* Requires that one row is added to all rows of the result. */
static bool fits_matrix_sum(const struct planning *x, int i, int k)
{
    const struct prog_tensor *out = arg(x, k, 0), *row = arg(x, k, 2);

    (void)i;
    return row->format == PL_F32 && row_of(row) == row_of(out) &&
           has_values(row, row_of(out)) && same_dims(arg(x, k, 1), out);
}

/* Returns true if instruction i computes the one sum of a contraction, or adds
 * a bias to it in the same launch. */
static bool is_summed(const struct planning *x, int i)
{
    const struct gpu_fused *f = &x->plan[i];
    enum kernel k = kernel_of(x, i)->kernel;

    if (k == KERNEL_add)
        return f->with >= 0 && (f->rewrite == REWRITE_MATRIX_SUM ||
                                f->rewrite == REWRITE_ROWS_SUM);
    return k <= KERNEL_expert_down && kernel_of(x, i)->tree.n_out == 1;
}

/* Requires that a value as large as the result is added to it. */
static bool fits_residual(const struct planning *x, int i, int k)
{
    return is_summed(x, i) && is_plain(x, k);
}

/* Requires a router whose launch leaves the scratch memory to the choice. No
 * instruction in between may use that, because the choice is executed first. */
static bool fits_choice(const struct planning *x, int i, int k)
{
    int h = x->plan[i].group;

    if (!is_summed(x, i) || kernel_of(x, h)->kernel != KERNEL_matmul)
        return false;
    for (int m = h; m < k; m++)
        if (x->v->insn[m].queue == x->v->insn[k].queue &&
            x->plan[m].has_scratch)
            return false;
    return true;
}

/* Requires that the ids are those that the first instruction has chosen. */
static bool fits_weights(const struct planning *x, int i, int k)
{
    return is_result(x, i, k, 2);
}

/* ---- rewrites ------------------------------------------------------------ */

#define ONE(kernel)   KERNEL_##kernel, KERNEL_##kernel
#define BINARY        KERNEL_add, KERNEL_swiglu_oai
#define MATRIX        KERNEL_matmul, KERNEL_expert_matmul
#define SUMMED        KERNEL_matmul, KERNEL_add
#define ATTENTION     KERNEL_attention, KERNEL_latent_attention
#define FUSED(kernel) GPU_##kernel
#define KEPT          GPU_KERNEL_COUNT
#define ARG(i)        (1U << (i))
#define SET(name)     (1U << REWRITE_##name)
#define fits_all      NULL

/* Rewrites that groups with RoPE, and those with matrices, may have. */
#define ROPE_PARTS (SET(NORMS) | SET(NORM_ROPE) | SET(NORM_ROPE_2) | SET(ROPES))
#define MATRIX_PARTS                                                           \
    (SET(MATRICES) | SET(MATRIX_ROWS) | SET(MATRIX_SUM) | SET(ROWS_SUM))

/* Rewrites of plans for few rows only. */
#define LAST_REWRITES                                                          \
    (SET(RESIDUAL) | SET(LAST_NORM) | SET(LAST_BLOCKS) | SET(LAST_VALUES) |    \
     SET(LAST_PRODUCT) | SET(LAST_PARTS) | SET(LAST_CHOICE) |                  \
     SET(LAST_WEIGHTS))

static const struct rewrite {
    /* kernels first .. first_end and second .. second_end */
    enum kernel first, first_end, second, second_end;
    enum gpu_kernel kernel;
    unsigned reads, same, needs, after, like;
    bool (*fits)(const struct planning *x, int i, int k);
    gpu_fold_fn *fold;
} rewrites[REWRITE_COUNT] = {
#define GPU_REWRITE(name, first, second, kernel, reads, same, needs, after,    \
                    like, fits, fold)                                          \
    {first, second,          kernel, reads,       same,                        \
     needs, after | (needs), like,   fits_##fits, gpu_fold_##fold},
#include "device/gpu/gpu_rewrites.def"
#undef GPU_REWRITE
};

bool gpu_fuse_is_of(enum gpu_rewrite r, enum kernel first, enum kernel second)
{
    const struct rewrite *w = &rewrites[r];

    return first >= w->first && first <= w->first_end && second >= w->second &&
           second <= w->second_end;
}

/* Returns true if a group that had the rewrites `parts` may have this one. */
static bool is_next(const struct rewrite *r, unsigned parts)
{
    return (parts & ~r->after) == 0 && (parts & r->needs) == r->needs;
}

/* Returns true if i and k meet the conditions of the rewrite. */
static bool agree(const struct planning *x, enum gpu_rewrite r, int i, int k)
{
    const struct rewrite *w = &rewrites[r];

    for (int a = 0; a < KERNEL_MAX_ARG; a++)
        if (w->same >> a & 1 && (arg(x, i, a) || arg(x, k, a)) &&
            !is_at(arg(x, i, a), arg(x, k, a)))
            return false;
    return is_like(x, i, k, w->like) && (!w->fits || w->fits(x, i, k));
}

/* ---- the search ---------------------------------------------------------- */

static bool same_predicate(const struct insn *a, const struct insn *b)
{
    return a->micro == b->micro && a->pred_out == b->pred_out &&
           a->min_rows == b->min_rows && a->max_rows == b->max_rows;
}

/* Returns true if instruction x->at conflicts with an instruction of group h.
 * `reads` is as in conflict(). */
static bool conflicts_with_group(const struct planning *x, int h,
                                 unsigned reads)
{
    for (int i = x->at; (i = before(x, h, i)) >= 0;)
        if (conflict(x, i, x->at, reads))
            return true;
    return false;
}

/* Returns the instruction of group h that computes the first argument of
 * x->at in the set `reads` that the group computes, or -1. */
static int maker_of(const struct planning *x, int h, unsigned reads)
{
    for (int a = 0; a < KERNEL_MAX_ARG; a++)
        for (int i = x->at; reads >> a & 1 && (i = before(x, h, i)) >= 0;)
            if (is_result(x, i, x->at, a))
                return i;
    return -1;
}

/* Lets instruction x->at join group h by the rewrite, if it can. */
static bool join(struct planning *x, int h, enum gpu_rewrite r)
{
    const struct rewrite *w = &rewrites[r];
    int k = x->at, maker = maker_of(x, h, w->reads);

    if ((maker < 0 && !(w->reads & BESIDE)) ||
        !same_predicate(&x->v->insn[h], &x->v->insn[k]))
        return false;
    if (conflicts_with_group(x, h, w->reads))
        return false;
    for (int i = k; (i = before(x, h, i)) >= 0;)
        if ((maker < 0 || i == maker || w->reads & OTHERS) &&
            gpu_fuse_is_of(r, kernel_of(x, i)->kernel,
                           kernel_of(x, k)->kernel) &&
            agree(x, r, i, k)) {
            x->plan[k].group = h;
            x->plan[k].with = i;
            x->plan[k].rewrite = r;
            x->plan[k].is_over = conflicts_with_group(x, h, w->reads & ~ALONE);
            x->plan[h].parts |= 1U << r;
            return true;
        }
    return false;
}

static void find_group(struct planning *x)
{
    int k = x->at;

    for (int h = k - 1; h >= 0 && k - h <= GPU_FUSE_REACH; h--) {
        if (x->v->insn[h].queue != x->v->insn[k].queue)
            continue;
        if (x->v->insn[h].kind != INSN_KERNEL)
            return;
        if (x->plan[h].group != h)
            continue;
        for (int r = 0; r < REWRITE_COUNT; r++)
            if (rewrites[r].second <= kernel_of(x, k)->kernel &&
                kernel_of(x, k)->kernel <= rewrites[r].second_end &&
                is_next(&rewrites[r], x->plan[h].parts) &&
                (x->few || !(LAST_REWRITES >> r & 1)) &&
                join(x, h, (enum gpu_rewrite)r))
                return;
        if (conflicts_with_group(x, h, 0))
            return;
    }
}

/* Finds an expert_matmul that sorts the same ids, which nothing has written
 * since, nor the scratch memory. */
static void find_routes(struct planning *x)
{
    int k = x->at;

    for (int i = k - 1; i >= 0; i--) {
        if (x->v->insn[i].queue != x->v->insn[k].queue)
            continue;
        if (x->v->insn[i].kind != INSN_KERNEL)
            return;
        if (kernel_of(x, i)->kernel == KERNEL_expert_matmul &&
            is_at(arg(x, i, 3), arg(x, k, 3)) &&
            arg(x, i, 2)->dim[0].n == arg(x, k, 2)->dim[0].n &&
            !has_stack(x, i) && !has_stack(x, k) &&
            same_predicate(&x->v->insn[i], &x->v->insn[k]))
            x->plan[k].routes = i;
        if (x->plan[k].routes >= 0 || x->plan[i].has_scratch ||
            conflict(x, i, k, 0))
            return;
    }
}

void gpu_fuse_plan(struct gpu_fused *plan, const struct program *p,
                   const struct variant *v, bool few)
{
    struct planning x = {.p = p, .v = v, .plan = plan, .few = few};

    for (x.at = 0; x.at < v->n_insn; x.at++) {
        struct gpu_fused *f = &plan[x.at];

        f->group = x.at;
        f->parts = 0;
        f->with = f->routes = -1;
        if (v->insn[x.at].kind != INSN_KERNEL)
            continue;
        if (v->insn[x.at].kernel.kernel == KERNEL_expert_matmul)
            find_routes(&x);
        find_group(&x);
    }
}

bool gpu_fuse_mark(struct program *p)
{
    for (int i = 0; i < p->n_variant; i++) {
        const struct variant *v = &p->variant[i];
        struct insn *insn = (struct insn *)v->insn;
        struct gpu_fused *plan = calloc((size_t)v->n_insn + 1, sizeof *plan);

        if (!plan)
            return false;
        gpu_fuse_plan(plan, p, v, true);
        for (int k = 0; k < v->n_insn; k++)
            insn[k].in_launch = plan[k].with >= 0;
        free(plan);
    }
    return true;
}

/* ---- launches ------------------------------------------------------------ */

static void load(struct gpu_fold_launch *to, const struct launch_list *l, int i)
{
    const struct gpu_launch *from = &l->launch[i];

    to->kernel = from->kernel;
    to->n_group = from->n_group;
    memcpy(&to->a, l->bytes + from->args, gpu_kernel_args(from->kernel));
}

bool gpu_fuse_launches(struct launch_list *l, int to, enum gpu_rewrite r,
                       bool alone, uint64_t result, uint64_t count,
                       unsigned *parts)
{
    struct gpu_fold f = {.result = result, .count = count, .alone = alone};
    enum gpu_kernel k = rewrites[r].kernel;
    int64_t n_group;

    if (!is_next(&rewrites[r], *parts))
        return false;
    load(&f.first, l, to);
    load(&f.second, l, l->n - 1);
    n_group = rewrites[r].fold(&f);
    if (n_group == 0 || (f.alone && n_group > 1))
        return false;
    gpu_list_add(l, k < GPU_KERNEL_COUNT ? k : f.first.kernel, n_group,
                 &f.first.a);
    if (l->no_memory)
        return false;
    l->launch[to] = l->launch[l->n - 1];
    l->n -= 2;
    *parts |= 1U << r;
    return true;
}
