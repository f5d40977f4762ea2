/* Checks the invariants of programs; see program_check.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "program/cache_tile.h"
#include "program/program_check.h"
#include "program/program_check_kernel.h"
#include "program/program_form.h"

struct check {
    const struct program_machine *m;
    /* programs of all devices, and that of the device whose instructions are
     * being checked */
    const struct program *all, *p;
    const struct program_device *dev;
    int variant, insn;
    pl_err *err;
};

static pl_status check_error(const struct check *c, const char *what)
{
    char variant[24] = "";

    if (c->p->n_variant > 1)
        snprintf(variant, sizeof variant, "variant %d, ", c->variant);
    return err_set(c->err, PL_BAD_ARGUMENT,
                   "program of %s, %sinstruction %d: %s", c->dev->name, variant,
                   c->insn, what);
}

static const struct variant *variant_of(const struct check *c, int dev)
{
    return &c->all[dev].variant[c->variant];
}

static bool has_tensor(const struct program *p, int t)
{
    return t >= 0 && t < p->n_tensor;
}

static pl_status check_tensors(struct check *c)
{
    c->insn = -1;
    for (int i = 0; i < c->p->n_tensor; i++) {
        const struct prog_tensor *t = &c->p->tensor[i];
        size_t bytes;

        if ((unsigned)t->region >= REGION_COUNT || t->n_dim < 0 ||
            t->n_dim > GRAPH_MAX_DIM || t->offset % 64 != 0 || t->micro < 0 ||
            t->micro >= PROG_MAX_MICRO || t->offset > c->p->bytes[t->region] ||
            t->bytes > c->p->bytes[t->region] - t->offset)
            return err_set(c->err, PL_BAD_ARGUMENT,
                           "program of %s: tensor %d of %zu bytes at %zu is "
                           "outside its region",
                           c->dev->name, i, t->bytes, t->offset);
        if (!form_tensor_bytes(t, &c->p->max, &bytes) || bytes > t->bytes)
            return err_set(c->err, PL_BAD_ARGUMENT,
                           "program of %s: tensor %d of %zu bytes is too small "
                           "for its dimensions",
                           c->dev->name, i, t->bytes);
    }
    return PL_OK;
}

/* Returns the largest sizes of a step with which instruction `st` is
 * executed. */
static struct graph_sizes largest(const struct check *c, const struct insn *st)
{
    struct graph_sizes z = c->p->max;
    int64_t *n = st->pred_out ? &z.n_out : &z.n_tok;

    if (st->max_rows > 0 && st->max_rows < *n)
        *n = st->max_rows;
    return z;
}

enum { CORNERS = 27 };

/* Sets *n, on entry the greatest value of a size with which an instruction is
 * executed, to an extreme value: itself if `which` is 0, the least value
 * `least` if 1, `least` plus one if 2. The last is needed because with a size
 * of zero an instruction may access nothing. */
static void set_end(int64_t *n, int64_t least, int which)
{
    least = least > *n ? 0 : least;
    if (which == 1)
        *n = least;
    else if (which == 2 && least < *n)
        *n = least + 1;
}

/* Returns one of the combinations of extreme n_tok, n_out and n_seq with which
 * the instruction is executed: number `which` of 0 .. CORNERS - 1. Combination
 * 0 has the largest value of each. */
static struct graph_sizes corner(const struct check *c, const struct insn *st,
                                 int which)
{
    struct graph_sizes z = largest(c, st);
    int64_t least = st->max_rows > 0 ? st->min_rows : 0;

    set_end(&z.n_tok, st->pred_out ? 0 : least, which % 3);
    set_end(&z.n_out, st->pred_out ? least : 0, which / 3 % 3);
    set_end(&z.n_seq, 0, which / 9);
    return z;
}

/* Returns the number of combinations of extreme sizes (see corner) for which a
 * copied range must be checked. `growth` is the factor by which its offset
 * depends on a size. Counts and strides only increase with the sizes. If the
 * offset does, too, the end of the range is farthest in combination 0. If it
 * decreases, every combination must be checked. */
static int n_corner(int64_t growth)
{
    return growth < 0 ? CORNERS : 1;
}

/* Returns true if a copy stays inside the region of `tensor`, which is its
 * source or its destination, at the sizes `z`. `off` bytes are added to the
 * copy's offset; `start`, s0 and s1 are its offset and strides on this side. */
static bool inside(const struct program *p, const struct graph_sizes *z,
                   int tensor, int64_t off, pl_dim start, pl_dim s0, pl_dim s1,
                   const struct copy_desc *l)
{
    int64_t n0 = dim_value(l->n0, z), n1 = dim_value(l->n1, z);
    int64_t at[3] = {dim_value(start, z), dim_value(s0, z), dim_value(s1, z)};
    int64_t bytes = dim_value(l->bytes, z), end, more;

    if (!has_tensor(p, tensor) || n0 < 0 || n1 < 0 || bytes < 0 || at[1] < 0 ||
        at[2] < 0 || __builtin_add_overflow(off, at[0], &off))
        return false;
    if (n0 == 0 || n1 == 0 || bytes == 0)
        return true;
    if (off < 0 ||
        __builtin_add_overflow((int64_t)p->tensor[tensor].offset, off, &end) ||
        __builtin_mul_overflow(n0 - 1, at[1], &more) ||
        __builtin_add_overflow(end, more, &end) ||
        __builtin_mul_overflow(n1 - 1, at[2], &more) ||
        __builtin_add_overflow(end, more, &end) ||
        __builtin_add_overflow(end, bytes, &end))
        return false;
    return (uint64_t)end <= p->bytes[p->tensor[tensor].region];
}

/* Returns true if a symbolic number of bytes is a multiple of the size of a
 * float whatever the step's sizes are. */
static bool whole_floats(pl_dim bytes)
{
    return bytes.n % (int64_t)sizeof(float) == 0;
}

/* Returns true if instruction `st` may read memory of device `dev`: its own,
 * that of a peer in its barrier, or, for a pull, memory that the device can
 * access. */
static bool reads(const struct check *c, const struct insn *st, int dev)
{
    const struct program_device *from = &c->m->dev[dev];

    if (dev == c->p->dev)
        return true;
    if (st->kind == INSN_PULL || st->kind == INSN_PAGES)
        return from->machine == c->dev->machine && from->memory >= 0 &&
               (from->memory == c->dev->memory || c->dev->reads);
    for (int i = 0; insn_is_barrier(st) && i < st->merge.n_peer; i++)
        if (st->merge.peer[i] == dev)
            return true;
    return false;
}

/* Checks that a copy's reads stay inside its source tensor at the sizes `z`.
 * `off` bytes are added to the copy's own source offset. */
static pl_status check_source_at(const struct check *c, const struct insn *st,
                                 const struct graph_sizes *z, int dev,
                                 int tensor, int64_t off,
                                 const struct copy_desc *l)
{
    if (dev < 0 || dev >= c->m->n_dev)
        return check_error(c, "reads a device that is not in the set");
    if (!reads(c, st, dev))
        return check_error(
            c, st->kind == INSN_PULL
                   ? "pulls from memory that it cannot access"
                   : "reads a peer's memory without a barrier or a pull");
    if (l->src_const < 0 || off > INT64_MAX - l->src_const ||
        !inside(&c->all[dev], z, tensor, off + l->src_const, l->src_off,
                l->src_s0, l->src_s1, l))
        return check_error(c, "reads past the end of its source");
    return PL_OK;
}

static pl_status check_source(const struct check *c, const struct insn *st,
                              int dev, int tensor, const struct copy_desc *l)
{
    for (int i = 0; i < n_corner(l->src_off.n); i++) {
        const struct graph_sizes z = corner(c, st, i);

        PL_TRY(check_source_at(c, st, &z, dev, tensor, 0, l));
    }
    return PL_OK;
}

/* Checks that the copies of an addend stay inside its tensor. They begin
 * a->skip bytes before the copy's offset, so that the start may increase or
 * decrease as n_tok and n_out increase. */
static pl_status check_addend(const struct check *c, const struct insn *st,
                              const struct merge_addend *a,
                              const struct copy_desc *l)
{
    int n = a->skip.n != 0 ? CORNERS : n_corner(l->src_off.n);

    if (a->off > INT64_MAX)
        return check_error(c, "reads past the end of its source");
    if (a->off % sizeof(float) != 0 || !whole_floats(a->skip))
        return check_error(c, "adds misaligned floats");
    for (int i = 0; i < n; i++) {
        const struct graph_sizes z = corner(c, st, i);

        PL_TRY(check_source_at(c, st, &z, a->dev, a->tensor,
                               (int64_t)a->off - dim_value(a->skip, &z), l));
    }
    return PL_OK;
}

/* Checks that a copy's writes stay inside its destination, a tensor of program
 * `p`. `at` bytes are added to the copy's own destination offset. */
static pl_status check_result(const struct check *c, const struct insn *st,
                              const struct program *p, int tensor, size_t at,
                              const struct copy_desc *l)
{
    if (l->dst_const < 0 || at > (size_t)(INT64_MAX - l->dst_const))
        return check_error(c, "writes past the end of its result");
    for (int i = 0; i < n_corner(l->dst_off.n); i++) {
        const struct graph_sizes z = corner(c, st, i);

        if (!inside(p, &z, tensor, l->dst_const + (int64_t)at, l->dst_off,
                    l->dst_s0, l->dst_s1, l))
            return check_error(c, "writes past the end of its result");
    }
    return PL_OK;
}

/* Checks that a copy of a sum reads and writes whole floats at multiples of 4
 * bytes, whatever the step's sizes are. */
static pl_status check_floats(const struct check *c, const struct copy_desc *l)
{
    if (!whole_floats(l->bytes))
        return check_error(c, "adds something other than whole floats");
    if (l->src_const % (int64_t)sizeof(float) != 0 ||
        l->dst_const % (int64_t)sizeof(float) != 0 ||
        !whole_floats(l->src_off) || !whole_floats(l->dst_off) ||
        !whole_floats(l->src_s0) || !whole_floats(l->dst_s0) ||
        !whole_floats(l->src_s1) || !whole_floats(l->dst_s1))
        return check_error(c, "adds misaligned floats");
    return PL_OK;
}

static pl_status check_merge(const struct check *c, const struct insn *st,
                             const struct merge_item *m)
{
    int top = 0, depth = 0;

    if (!has_tensor(c->p, m->out))
        return check_error(c, "names a tensor that does not exist");
    for (int i = 0; m->reduce && i < m->n_addend; i++) {
        const struct merge_addend *a = &m->addend[i];

        if (a->dev < 0 || a->dev >= c->m->n_dev ||
            !has_tensor(&c->all[a->dev], a->tensor))
            return check_error(c, "reads a tensor that does not exist");
    }
    for (int k = 0; k < m->n_piece; k++) {
        const struct copy_desc *l = &m->piece[k];

        PL_TRY(check_result(c, st, c->p, m->out, 0, l));
        if (!m->reduce) {
            PL_TRY(check_source(c, st, l->src_dev, l->src, l));
            continue;
        }
        PL_TRY(check_floats(c, l));
        for (int i = 0; i < m->n_addend; i++)
            PL_TRY(check_addend(c, st, &m->addend[i], l));
    }
    if (!m->reduce)
        return PL_OK;
    for (int i = 0; i < m->n_addend; i++) {
        depth = ++top > depth ? top : depth;
        if (m->addend[i].n_add < 0 || m->addend[i].n_add >= top)
            return check_error(c, "adds more values than its stack holds");
        top -= m->addend[i].n_add;
    }
    if (top != 1 || depth > m->depth || depth > MERGE_MAX_DEPTH)
        return check_error(c, "its additions do not yield one value");
    return PL_OK;
}

/* Returns true if the size of the tensor does not depend on another micro-batch
 * than that of instruction `st`. */
static bool sized(const struct check *c, const struct insn *st, int tensor)
{
    const struct prog_tensor *t = &c->p->tensor[tensor];

    for (int i = 0; i < t->n_dim; i++)
        if (t->micro != st->micro &&
            (t->dim[i].symbol == PL_N_TOK || t->dim[i].symbol == PL_N_OUT ||
             t->dim[i].symbol == GRAPH_N_SEQ))
            return false;
    return true;
}

/* Returns true if the tensor is a cache or state, and the program has its
 * pool. */
static bool is_memory(const struct program *p, const struct prog_tensor *t)
{
    int pool = prog_tensor_pool(t);

    return pool >= 0 && pool < program_pools(&p->max) && t->dim[0].n == 1;
}

/* Fails if the tensor is not the token table of the micro-batch of instruction
 * `st`. */
static pl_status check_token_table(const struct check *c, const struct insn *st,
                                   int tensor)
{
    const struct prog_tensor *t;

    if (!has_tensor(c->p, tensor))
        return check_error(c, "names a tensor that does not exist");
    t = &c->p->tensor[tensor];
    if (t->micro != st->micro)
        return check_error(c, "reads a tensor of another micro-batch");
    if (t->format != PL_I32 || t->q8 || t->pack ||
        (int64_t)(t->bytes / 4) < program_token_table_words(c->p))
        return check_error(c,
                           "reads a token table from a tensor that is not one");
    return PL_OK;
}

static pl_status check_args(const struct check *c, const struct insn *st)
{
    const struct insn_kernel *k = &st->kernel;
    int pool = -1;

    if (k->n_arg < 1 || k->n_arg > KERNEL_MAX_ARG)
        return check_error(c, "has no result, or too many operands");
    for (int i = 0; i < k->n_arg; i++) {
        enum access access = kernel_access(k->kernel, i);
        int t = k->arg[i].tensor;

        if (!access || k->arg[i].access != access)
            return check_error(
                c, "accesses an argument differently than its kernel");
        if (t >= c->p->n_tensor ||
            (t < 0 && !kernel_arg_is_optional(k->kernel, i)))
            return check_error(c, "names a tensor that does not exist");
        if (t >= 0 && !sized(c, st, t))
            return check_error(c, i ? "reads a tensor of another micro-batch"
                                    : "writes a tensor of another micro-batch");
        if (t >= 0 && c->p->tensor[t].q8 != kernel_arg_is_q8(k->kernel, i))
            return check_error(c,
                               "confuses blocks of 8-bit values with values");
        if (kernel_arg_is_token_table(k->kernel, i))
            PL_TRY(check_token_table(c, st, t));
        if (t < 0 || !kernel_arg_is_memory(k->kernel, i))
            continue;
        if (!is_memory(c->p, &c->p->tensor[t]) ||
            (pool >= 0 && prog_tensor_pool(&c->p->tensor[t]) != pool))
            return check_error(
                c, "has operands that are not the memories its kernel needs");
        pool = prog_tensor_pool(&c->p->tensor[t]);
    }
    for (int i = k->n_arg; kernel_access(k->kernel, i); i++)
        if (!kernel_arg_is_optional(k->kernel, i))
            return check_error(c, "names a tensor that does not exist");
    return PL_OK;
}

pl_status program_unsupported_kernel(const char *dev, const char *kernels,
                                     const struct insn_kernel *k, pl_err *err)
{
    if (k->custom)
        return err_set(err, PL_UNSUPPORTED,
                       "%s cannot run the custom op '%.60s', only processors "
                       "can; leave it out of -dev",
                       dev, k->custom->def->name);
    if (insn_kernel_is_bf16(k))
        return err_set(
            err, PL_UNSUPPORTED,
            "%s has no BF16 products, which --numerics fast needs: processors "
            "with AVX512_BF16 have them, and the kernel set generic "
            "(PLAIT_CPU); leave out the device or --numerics fast",
            dev);
    return err_set(err, PL_UNSUPPORTED,
                   "%s has no %s kernel for %s; leave it out of -dev, or use "
                   "another kernel set (PLAIT_CPU)",
                   dev, kernels, kernel_name(k->kernel));
}

static pl_status check_kernel(const struct check *c, const struct insn *st)
{
    const struct insn_kernel *k = &st->kernel;
    const char *fault;

    if ((unsigned)k->kernel >= KERNEL_COUNT)
        return check_error(c, "runs a kernel that does not exist");
    PL_TRY(check_args(c, st));
    fault = program_kernel_fault(k, c->p->tensor);
    if (fault)
        return check_error(c, fault);
    if (!c->m->has_kernel(c->m->user, c->p->dev, k))
        return program_unsupported_kernel(c->dev->name, c->dev->kernels, k,
                                          c->err);
    /* The rank tree leaves several sums, which are written out_stride bytes
     * apart. */
    if (k->tree.n_out > 1) {
        const struct prog_tensor *t = &c->p->tensor[k->arg[0].tensor];
        size_t room = c->p->bytes[t->region] - t->offset - t->bytes;

        if (room / (size_t)(k->tree.n_out - 1) < k->out_stride)
            return check_error(c, "writes past the end of its result");
    }
    for (int i = 0; i < k->n_cost; i++)
        if (k->cost[i].rank < 0 || k->cost[i].rank >= PL_MAX_RANKS)
            return check_error(c, "counts for a rank that does not exist");
    return PL_OK;
}

/* Returns the size in bytes of a page of a cache whose tiles have `tile` bytes.
 * Returns 0 if the tensor is not such a cache or exceeds its region. */
static size_t page_bytes(const struct program *p, int tensor, size_t tile)
{
    const struct prog_tensor *t;
    int64_t n_page;
    size_t room, page;

    if (!has_tensor(p, tensor) || tile == 0 ||
        !is_memory(p, &p->tensor[tensor]))
        return 0;
    t = &p->tensor[tensor];
    n_page = dim_value(t->dim[0], &p->max) / PAGE_TOKENS;
    room = p->bytes[t->region] - t->offset;
    if (t->n_dim != 3 || t->dim[1].symbol != PL_CONST || t->dim[1].n < 0 ||
        __builtin_mul_overflow(tile, (size_t)t->dim[1].n, &page) ||
        (n_page > 0 && page > room / (size_t)n_page))
        return 0;
    return page;
}

static pl_status check_pages(const struct check *c, const struct insn *st)
{
    const struct insn_pages *x = &st->pages;
    const struct program *from, *to;
    pl_dim src, out;

    if (x->src_dev < 0 || x->src_dev >= c->m->n_dev || x->out_dev < 0 ||
        x->out_dev >= c->m->n_dev ||
        (x->src_dev == c->p->dev) == (x->out_dev == c->p->dev))
        return check_error(c, "reads a device that is not in the set");
    from = &c->all[x->src_dev];
    to = &c->all[x->out_dev];
    if (!reads(c, st, x->src_dev))
        return check_error(c, "pulls from memory that it cannot access");
    if (!page_bytes(from, x->src, x->tile_bytes))
        return check_error(c, "reads pages past the end of their source");
    if (!page_bytes(to, x->out, x->tile_bytes))
        return check_error(c, "writes pages past the end of its result");
    src = from->tensor[x->src].dim[0];
    out = to->tensor[x->out].dim[0];
    if (src.symbol != out.symbol ||
        dim_value(src, &from->max) != dim_value(out, &to->max))
        return check_error(c, "reads pages past the end of their source");
    if (to != c->p && to->tensor[x->out].region != REGION_INBOX)
        return check_error(c, "pushes outside of an inbox");
    for (int64_t h = 0; h < to->tensor[x->out].dim[1].n; h++)
        if (x->map[h] < -1 || x->map[h] >= from->tensor[x->src].dim[1].n)
            return check_error(c, "reads a head that its source lacks");
    return check_token_table(c, st, x->token_table);
}

/* Returns the barrier instruction that device `dev` has at position `order` of
 * the total order, or NULL if it has none there. */
static const struct insn *barrier_of(const struct check *c, int dev, int order)
{
    const struct variant *x = variant_of(c, dev);
    int lo = 0, hi = x->n_insn;

    while (lo < hi) { /* Binary search; check_order has verified that positions
                         are ascending. */
        int mid = lo + (hi - lo) / 2;

        if (x->insn[mid].order < order)
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo == x->n_insn || x->insn[lo].order != order ||
        !insn_is_barrier(&x->insn[lo]))
        return NULL;
    return &x->insn[lo];
}

static pl_status check_barrier(const struct check *c, const struct insn *st)
{
    const struct insn_merge *m = &st->merge;
    bool here = false;

    if (m->group < 0 || m->group >= c->p->n_group)
        return check_error(c, "has a barrier in a group that does not exist");
    for (int i = 0; i < m->n_peer; i++) {
        int dev = m->peer[i];
        const struct insn *x;

        if (dev < 0 || dev >= c->m->n_dev)
            return check_error(
                c, "has a barrier with a device that is not in the set");
        if (i > 0 && dev <= m->peer[i - 1])
            return check_error(c,
                               "has a barrier whose devices are not ascending");
        if (c->m->dev[dev].memory < 0 ||
            c->m->dev[dev].memory != c->dev->memory ||
            c->m->dev[dev].machine != c->dev->machine)
            return check_error(c,
                               "has a barrier with a device of other memory");
        if (c->m->share_threads(c->m->user, dev, c->p->dev))
            return check_error(c,
                               "has a barrier with a device of other threads");
        x = barrier_of(c, dev, st->order);
        if (!x || x->merge.group != m->group || x->micro != st->micro ||
            x->merge.n_peer != m->n_peer ||
            memcmp(x->merge.peer, m->peer,
                   (size_t)m->n_peer * sizeof *m->peer) != 0)
            return check_error(
                c, "deadlock: waits at a barrier that a device never reaches");
        here |= dev == c->p->dev;
    }
    return here ? PL_OK
                : check_error(c, "is not among the devices of its barrier");
}

static pl_status check_pull(const struct check *c, const struct insn *st)
{
    const struct insn_pull *x = &st->pull;

    if (!has_tensor(c->p, x->out) ||
        x->out_bytes > c->p->bytes[c->p->tensor[x->out].region] -
                           c->p->tensor[x->out].offset)
        return check_error(c, "names a tensor that does not exist");
    for (int i = 0; i < x->n_piece; i++) {
        const struct copy_desc *l = &x->piece[i];

        PL_TRY(check_source(c, st, l->src_dev, l->src, l));
        PL_TRY(check_result(c, st, c->p, x->out, 0, l));
    }
    return PL_OK;
}

/* Checks the copies that a PUSH makes to its destination k. */
static pl_status check_push_to(const struct check *c, const struct insn *st,
                               int k)
{
    const struct push_to *x = &st->push.to[k];
    const struct program *to;
    const struct copy_desc *l;
    int n;

    if (x->dev < 0 || x->dev >= c->m->n_dev)
        return check_error(c, "pushes to a device that is not in the set");
    to = &c->all[x->dev];
    if (!has_tensor(to, x->out) || to->tensor[x->out].region != REGION_INBOX)
        return check_error(c, "pushes outside of an inbox");
    l = push_pieces(&st->push, k, &n);
    for (int i = 0; i < n; i++)
        PL_TRY(check_result(c, st, to, x->out, x->at, &l[i]));
    return PL_OK;
}

static pl_status check_push(const struct check *c, const struct insn *st)
{
    const struct insn_push *x = &st->push;

    if (x->n_to < 1 || (x->scatter && x->n_piece != x->n_to))
        return check_error(c, "pushes to no device, or scatters another number "
                              "of pieces than there are devices");
    for (int i = 0; i < x->n_piece; i++) {
        if (x->piece[i].src_dev != c->p->dev)
            return check_error(c, "pushes data of another device");
        PL_TRY(check_source(c, st, c->p->dev, x->piece[i].src, &x->piece[i]));
    }
    for (int k = 0; k < x->n_to; k++)
        PL_TRY(check_push_to(c, st, k));
    return PL_OK;
}

static pl_status check_wait(const struct check *c, const struct insn_wait *w)
{
    for (int i = 0; i < wait_count(w); i++) {
        struct insn_event e = wait_event(w, i);

        if (e.dev < 0 || e.dev >= c->m->n_dev || e.event < 0 ||
            e.event >= c->all[e.dev].n_event)
            return check_error(c, "waits for an event that does not exist");
    }
    return PL_OK;
}

struct inbox_look {
    const struct program *p;
    bool written;
};

static void scan_inbox_use(void *user, const struct insn_access *u)
{
    struct inbox_look *x = user;

    if (u->dev == x->p->dev && u->access != ACCESS_READ &&
        x->p->tensor[u->tensor].region == REGION_INBOX)
        x->written = true;
}

/* Fails if the instruction writes to its own device's inbox, because only
 * pushes may. Indices of tensors have been checked before. */
static pl_status check_own_inbox(const struct check *c, const struct insn *st)
{
    struct inbox_look x = {c->p, false};

    if (st->kind == INSN_PUSH) /* A push is exempt, because a device may push to
                                  itself. */
        return PL_OK;
    insn_accesses(st, c->p->dev, c->p->tensor, scan_inbox_use, &x);
    return x.written ? check_error(c, "writes into its own inbox") : PL_OK;
}

static pl_status check_insn_alone(const struct check *c, const struct insn *st)
{
    if ((unsigned)st->queue >= QUEUE_COUNT)
        return check_error(c, "is in no queue");
    if (st->micro < 0 || st->micro >= variant_of(c, c->p->dev)->n_micro)
        return check_error(c,
                           "belongs to a micro-batch that the variant lacks");
    switch (st->kind) {
    case INSN_KERNEL:
        return check_kernel(c, st);
    case INSN_MERGE:
        if (insn_is_barrier(st))
            PL_TRY(check_barrier(c, st));
        for (int i = 0; i < st->merge.n_item; i++)
            PL_TRY(check_merge(c, st, &st->merge.item[i]));
        return PL_OK;
    case INSN_PULL:
        return check_pull(c, st);
    case INSN_PUSH:
        return check_push(c, st);
    case INSN_PAGES:
        return check_pages(c, st);
    case INSN_POST:
        if (st->event.event < 0 || st->event.event >= c->p->n_event)
            return check_error(c, "posts an event that does not exist");
        return PL_OK;
    case INSN_WAIT:
        return check_wait(c, &st->wait);
    }
    return check_error(c, "has an unknown kind");
}

static pl_status check_insn(const struct check *c, const struct insn *st)
{
    PL_TRY(check_insn_alone(c, st));
    return check_own_inbox(c, st);
}

static pl_status check_dead_ranges(const struct check *c)
{
    const struct variant *x = variant_of(c, c->p->dev);
    int last = 0;

    for (int i = 0; i < x->n_dead; i++) {
        const struct dead_range *d = &x->dead[i];

        if (d->insn < last || d->insn >= x->n_insn ||
            d->offset > c->p->bytes[REGION_WORK] ||
            d->bytes > c->p->bytes[REGION_WORK] - d->offset)
            return check_error(c, "frees a buffer that does not exist");
        last = d->insn;
    }
    return PL_OK;
}

/* ---- checking that no step deadlocks ----------------------------------- */

/* Checks that the positions of the device's instructions in the total order are
 * ascending. */
static pl_status check_order(const struct check *c)
{
    const struct variant *x = variant_of(c, c->p->dev);
    struct check at = *c;

    for (at.insn = 0; at.insn < x->n_insn; at.insn++)
        if (x->insn[at.insn].order <
            (at.insn > 0 ? x->insn[at.insn - 1].order + 1 : 0))
            return check_error(&at, "is not later in the total order than the "
                                    "instruction before it");
    return PL_OK;
}

struct simulate {
    const struct insn **post; /* owned, [n_event] for each event of all devices,
                                 the POST that signals it */
    int *first;            /* owned, [n_dev] for each device, the index of its
                              event 0 in post[] and posted[] */
    int *at[QUEUE_COUNT];  /* owned, [n_dev] for each queue of a device, the
                              index of its next instruction */
    unsigned char *posted; /* owned, [n_event] 1 if the event has been
                              signalled */
    int n_event, n_micro;  /* number of events of all devices; number of
                              micro-batches of the simulated step */
    /* n_tok and n_out of each micro-batch of the simulated step. */
    struct graph_sizes sizes[PROG_MAX_MICRO];
};

static pl_status find_posts(struct check *c, struct simulate *y)
{
    memset(y->post, 0, (size_t)y->n_event * sizeof *y->post);
    for (int i = 0; i < c->m->n_dev; i++) {
        const struct variant *x = variant_of(c, i);

        c->p = &c->all[i];
        c->dev = &c->m->dev[i];
        for (c->insn = 0; c->insn < x->n_insn; c->insn++) {
            const struct insn *st = &x->insn[c->insn];

            if (st->kind != INSN_POST)
                continue;
            if (y->post[y->first[i] + st->event.event])
                return check_error(c, "posts an event that is already posted");
            y->post[y->first[i] + st->event.event] = st;
        }
    }
    return PL_OK;
}

static pl_status points_backward(const struct check *c,
                                 const struct simulate *y,
                                 const struct insn *st, struct insn_event e)
{
    const struct insn *post = y->post[y->first[e.dev] + e.event];

    if (!post)
        return check_error(c, "deadlock: the event is never posted");
    if (post->order >= st->order)
        return check_error(
            c, "deadlock: the event's POST is later in the total order");
    if (post->micro > st->micro)
        return check_error(c, "deadlock: the event's POST belongs to a later "
                              "micro-batch, which may be absent");
    return PL_OK;
}

/* Checks that each WAIT waits only for events whose POST is earlier in the
 * total order. Then no step deadlocks, because the first unfinished instruction
 * of all devices can always be executed. check_barrier() has checked that a
 * barrier has the same position on all its devices. */
static pl_status waits_point_backward(struct check *c, const struct simulate *y)
{
    for (int i = 0; i < c->m->n_dev; i++) {
        const struct variant *x = variant_of(c, i);

        c->p = &c->all[i];
        c->dev = &c->m->dev[i];
        for (c->insn = 0; c->insn < x->n_insn; c->insn++) {
            const struct insn *st = &x->insn[c->insn];

            for (int k = 0; st->kind == INSN_WAIT && k < wait_count(&st->wait);
                 k++)
                PL_TRY(points_backward(c, y, st, wait_event(&st->wait, k)));
        }
    }
    return PL_OK;
}

/* Returns true if all events that the WAIT waits for have been signalled. */
static bool all_posted(const struct simulate *y, const struct insn_wait *w)
{
    for (int i = 0; i < wait_count(w); i++) {
        struct insn_event e = wait_event(w, i);

        if (!y->posted[y->first[e.dev] + e.event])
            return false;
    }
    return true;
}

/* Advances one queue of a device up to the next barrier or to a WAIT that must
 * wait. Returns true if it advanced. A device with one_queue uses only the
 * compute queue. The order in which queues are advanced does not matter,
 * because an event stays signalled and a barrier is never undone: if the
 * simulation ends with one order, it ends with all. */
static bool advance(const struct check *c, struct simulate *y, int dev,
                    int queue)
{
    const struct variant *x = variant_of(c, dev);
    bool moved = false, one = c->m->dev[dev].one_queue;
    int *at = &y->at[queue][dev];

    for (; *at < x->n_insn; ++*at, moved = true) {
        const struct insn *st = &x->insn[*at];

        if (!insn_enabled(st, y->n_micro, y->sizes) ||
            (one ? queue != QUEUE_COMPUTE : (int)st->queue != queue))
            continue;
        if (st->kind == INSN_WAIT && !all_posted(y, &st->wait))
            break;
        if (insn_is_barrier(st))
            break;
        if (st->kind == INSN_POST)
            y->posted[y->first[dev] + st->event.event] = 1;
    }
    return moved;
}

/* If all devices of a barrier have reached it, advances them past the barrier
 * and returns true. Acts only if `dev` is the barrier's first device.
 * check_barrier has verified that a device is not listed twice in a barrier. */
static bool pass_barrier(const struct check *c, struct simulate *y, int dev)
{
    const struct variant *x = variant_of(c, dev);
    const struct insn *st;

    if (y->at[QUEUE_COMPUTE][dev] == x->n_insn)
        return false;
    st = &x->insn[y->at[QUEUE_COMPUTE][dev]];
    if (!insn_is_barrier(st) || st->merge.peer[0] != dev)
        return false;
    for (int i = 0; i < st->merge.n_peer; i++) {
        int at = y->at[QUEUE_COMPUTE][st->merge.peer[i]];
        const struct variant *p = variant_of(c, st->merge.peer[i]);

        if (at == p->n_insn || p->insn[at].order != st->order)
            return false;
    }
    for (int i = 0; i < st->merge.n_peer; i++)
        y->at[QUEUE_COMPUTE][st->merge.peer[i]]++;
    return true;
}

static pl_status simulate(struct check *c, struct simulate *y)
{
    int n = c->m->n_dev;
    bool moved;

    memset(y->posted, 0, (size_t)y->n_event);
    for (int q = 0; q < QUEUE_COUNT; q++)
        memset(y->at[q], 0, (size_t)n * sizeof *y->at[q]);
    do {
        moved = false;
        for (int i = 0; i < n; i++)
            for (int q = 0; q < QUEUE_COUNT; q++)
                moved |= advance(c, y, i, q);
        for (int i = 0; i < n; i++)
            moved |= pass_barrier(c, y, i);
    } while (moved);
    for (int i = 0; i < n; i++)
        for (int q = 0; q < QUEUE_COUNT; q++) {
            c->p = &c->all[i];
            c->dev = &c->m->dev[i];
            c->insn = y->at[q][i];
            if (c->insn < variant_of(c, i)->n_insn)
                return check_error(c, "deadlock: waits forever");
        }
    return PL_OK;
}

/* ---- checking for hardware that runs two queues as one ----------------- */

/* Dependencies between the two queues of a device, for the instructions visited
 * so far. In each queue, POSTs and barriers are counted together. */
struct law {
    int posted[QUEUE_COUNT]; /* number of POSTs and barriers that each queue has
                                had so far */
    /* for each queue, the number of POSTs and barriers of the other queue that
     * its WAITs have proved to precede its next instruction */
    int known[QUEUE_COUNT];
    /* [n_insn] for each POST, the values of posted[] and known[] of its queue
     * right after it */
    int *nth, *at;
};

/* Raises known[] by a WAIT for events of its own device, in whichever queue.
 * Returns true if the WAIT also waits for an event of another device. */
static bool note_dependencies(const struct check *c, const struct simulate *y,
                              struct law *w, const struct insn *st)
{
    const struct variant *x = variant_of(c, c->p->dev);
    int *known = &w->known[st->queue];
    bool others = false;

    for (int k = 0; k < wait_count(&st->wait); k++) {
        struct insn_event e = wait_event(&st->wait, k);
        const struct insn *post = y->post[y->first[e.dev] + e.event];
        int i, knows;

        others |= e.dev != c->p->dev;
        if (e.dev != c->p->dev)
            continue;
        i = (int)(post - x->insn);
        knows = post->queue == st->queue ? w->at[i] : w->nth[i];
        *known = knows > *known ? knows : *known;
    }
    return others;
}

/* Checks that each WAIT for another device, and each barrier, depends on every
 * earlier POST and barrier of its own device. Then hardware may run the
 * device's two queues as one, in any order that the dependencies inside the
 * device allow; program.h gives the reason. */
static pl_status queues_are_mergeable(struct check *c, const struct simulate *y,
                                      struct law *w)
{
    const struct variant *x = variant_of(c, c->p->dev);

    for (c->insn = 0; c->insn < x->n_insn; c->insn++) {
        const struct insn *st = &x->insn[c->insn];
        int q = (int)st->queue;

        if (!insn_enabled(st, y->n_micro, y->sizes))
            continue;
        if (st->kind == INSN_WAIT ? note_dependencies(c, y, w, st)
                                  : insn_is_barrier(st))
            if (w->known[q] < w->posted[!q])
                return check_error(c, "waits for another device without having "
                                      "seen all POSTs of its own other queue");
        if (st->kind == INSN_POST || insn_is_barrier(st))
            w->posted[q]++;
        if (st->kind == INSN_POST) {
            w->nth[c->insn] = w->posted[q];
            w->at[c->insn] = w->known[q];
        }
    }
    return PL_OK;
}

static pl_status check_queue_order(struct check *c, const struct simulate *y)
{
    pl_status s = PL_OK;

    for (int i = 0; i < c->m->n_dev && s == PL_OK; i++) {
        size_t n = (size_t)variant_of(c, i)->n_insn + 1;
        struct law w = {.nth = NULL};

        c->p = &c->all[i];
        c->dev = &c->m->dev[i];
        if (c->dev->one_queue)
            continue;
        w.nth = calloc(2 * n, sizeof *w.nth);
        if (!w.nth)
            return err_no_memory(c->err, "the check of programs");
        w.at = w.nth + n;
        s = queues_are_mergeable(c, y, &w);
        free(w.nth);
    }
    return s;
}

/* ---- checking all combinations of sizes -------------------------------- */

enum { MAX_BOUND = 6 };

/* The values of n_tok (least[0]) and of n_out (least[1]) at which predicates of
 * a variant's instructions change. From one of these values to the next no
 * predicate changes. So each is the least of a class of sizes with which the
 * same instructions are executed. */
struct classes {
    int n[2];
    int64_t least[2][MAX_BOUND];
};

static bool add_class(struct classes *k, bool out, int64_t least)
{
    int i = 0;

    while (i < k->n[out] && k->least[out][i] != least)
        i++;
    if (i == MAX_BOUND)
        return false;
    if (i == k->n[out])
        k->least[out][k->n[out]++] = least;
    return true;
}

static pl_status find_classes(struct check *c, struct classes *k)
{
    *k = (struct classes){.n = {1, 1}};
    for (int d = 0; d < c->m->n_dev; d++) {
        const struct variant *x = variant_of(c, d);

        c->p = &c->all[d];
        c->dev = &c->m->dev[d];
        for (c->insn = 0; c->insn < x->n_insn; c->insn++) {
            const struct insn *st = &x->insn[c->insn];

            if (st->max_rows == 0)
                continue;
            if (st->max_rows < 0 || st->min_rows < 0)
                return check_error(c, "has a predicate with a negative size");
            if (!add_class(k, st->pred_out, st->min_rows) ||
                (st->max_rows < INT64_MAX &&
                 !add_class(k, st->pred_out, st->max_rows + 1)))
                return check_error(c, "has one predicate size too many");
        }
    }
    return PL_OK;
}

static struct graph_sizes class_sizes(const struct classes *k, int i)
{
    return (struct graph_sizes){.n_tok = k->least[0][i % k->n[0]],
                                .n_out = k->least[1][i / k->n[0]]};
}

/* Simulates steps of y->n_micro micro-batches for each pair of classes of
 * sizes: all micro-batches but the last are of the first class, the last is of
 * the second. That is enough, because a WAIT and its POST belong to at most two
 * micro-batches. */
static pl_status play_classes(struct check *c, const struct classes *k,
                              struct simulate *y)
{
    int n = k->n[0] * k->n[1];

    for (int i = 0; i < (y->n_micro > 1 ? n * n : n); i++) {
        for (int j = 0; j < y->n_micro; j++)
            y->sizes[j] = class_sizes(k, j == y->n_micro - 1 ? i % n : i / n);
        PL_TRY(simulate(c, y));
        PL_TRY(check_queue_order(c, y));
    }
    return PL_OK;
}

static pl_status check_waits(struct check *c)
{
    int n = c->m->n_dev;
    struct simulate y = {0};
    pl_status s = PL_OK;
    int *ints = calloc((size_t)n * (QUEUE_COUNT + 1), sizeof *ints);

    y.first = ints;
    for (int i = 0; i < n && ints; i++) {
        y.first[i] = y.n_event;
        y.n_event += c->all[i].n_event;
    }
    for (int q = 0; q < QUEUE_COUNT && ints; q++)
        y.at[q] = ints + (q + 1) * n;
    y.posted = calloc((size_t)y.n_event + 1, 1);
    y.post = calloc((size_t)y.n_event + 1, sizeof *y.post);
    if (!ints || !y.posted || !y.post) {
        s = err_no_memory(c->err, "the check of programs");
        goto done;
    }
    for (c->variant = 0; c->variant < c->all[0].n_variant; c->variant++) {
        struct classes k;

        s = find_posts(c, &y);
        if (s == PL_OK)
            s = waits_point_backward(c, &y);
        if (s == PL_OK)
            s = find_classes(c, &k);
        for (y.n_micro = 1;
             s == PL_OK && y.n_micro <= variant_of(c, 0)->n_micro; y.n_micro++)
            s = play_classes(c, &k, &y);
        if (s != PL_OK)
            goto done;
    }
done:
    free(ints);
    free(y.posted);
    free(y.post);
    return s;
}

/* ---- checking all programs --------------------------------------------- */

static pl_status check_variants(struct check *c)
{
    const struct program *p = c->p, *first = &c->all[0];

    c->variant = 0;
    c->insn = -1;
    if (p->dev != c->dev - c->m->dev)
        return check_error(c, "belongs to another device");
    if (p->n_variant < 1 || p->n_variant > PROG_MAX_VARIANT ||
        p->n_variant != first->n_variant)
        return check_error(c, "has another number of variants");
    for (; c->variant < p->n_variant; c->variant++) {
        const struct variant *x = &p->variant[c->variant];

        if (x->n_micro < 1 || x->n_micro > PROG_MAX_MICRO ||
            x->n_micro != first->variant[c->variant].n_micro)
            return check_error(c, "has another number of micro-batches");
        PL_TRY(check_order(c));
    }
    return PL_OK;
}

static pl_status check_insns(struct check *c)
{
    for (c->variant = 0; c->variant < c->p->n_variant; c->variant++) {
        const struct variant *x = variant_of(c, c->p->dev);

        for (c->insn = 0; c->insn < x->n_insn; c->insn++)
            PL_TRY(check_insn(c, &x->insn[c->insn]));
        PL_TRY(check_dead_ranges(c));
    }
    return PL_OK;
}

pl_status program_check(const struct program_machine *m,
                        const struct program *p, pl_err *err)
{
    struct check c = {.m = m, .all = p, .err = err};

    for (int i = 0; i < m->n_dev; i++) {
        c.p = &p[i];
        c.dev = &m->dev[i];
        if (p[i].n_buffer > 0)
            return err_set(err, PL_BAD_ARGUMENT,
                           "the program of %s has buffers without places; run "
                           "the pass \"buffers\" first",
                           c.dev->name);
        PL_TRY(check_variants(&c));
        PL_TRY(check_tensors(&c));
    }
    for (int i = 0; i < m->n_dev; i++) {
        c.p = &p[i];
        c.dev = &m->dev[i];
        PL_TRY(check_insns(&c));
    }
    return check_waits(&c);
}
