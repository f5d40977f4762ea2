/* Creates the launches of a program's instructions. */
#include "device/gpu/gpu_image.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "device/gpu/gpu_fuse.h"
#include "device/gpu/gpu_launch.h"
#include "program/page_walk.h"
#include "quant/grid.h"

/* ---- tables -------------------------------------------------------------- */

static size_t head_map_bytes(const struct insn_kernel *k,
                             const struct prog_tensor *t)
{
    int many, few;

    if (!k->head_map || !kernel_maps_heads(k->kernel, &many, &few))
        return 0;
    return (size_t)t[k->arg[many].tensor].dim[1].n * sizeof *k->head_map;
}

static size_t tree_bytes(const struct insn_kernel *k)
{
    return (size_t)k->tree.n * sizeof *k->tree.item;
}

static size_t span_bytes(const struct insn_kernel *k)
{
    return (size_t)k->n_span * sizeof *k->span;
}

static size_t chunk_bytes(const struct pack *p)
{
    return p ? (size_t)p->n_chunk * sizeof *p->chunk : 0;
}

static void add(struct gpu_tables *t, const void *p, size_t bytes)
{
    gpu_tables_add(t, p, p, p ? bytes : 0);
}

/* Adds the table that kernels need in addition to a tensor: the chunks of a
 * packed weight, or the code table of an unpacked format such as IQ2_S. */
static void tensor_tables(struct gpu_image *m, const struct prog_tensor *t)
{
    size_t bytes;
    const uint16_t *grid = quant_grid(t->format, &bytes);

    if (t->pack)
        add(&m->tables, t->pack->chunk, chunk_bytes(t->pack));
    else
        add(&m->tables, grid, bytes);
}

static void insn_tables(struct gpu_image *m, const struct insn *st)
{
    const struct insn_kernel *k = &st->kernel;

    if (st->kind != INSN_KERNEL) {
        gpu_move_tables(m, st);
        return;
    }
    add(&m->tables, k->tree.item, tree_bytes(k));
    add(&m->tables, k->span, span_bytes(k));
    add(&m->tables, k->head_map, head_map_bytes(k, m->prog->tensor));
}

static uint64_t at(const struct gpu_image *m, const void *key, size_t bytes)
{
    return bytes > 0 ? m->tables_at + gpu_tables_at(&m->tables, key, bytes) : 0;
}

/* ---- calls of kernels ---------------------------------------------------- */

static void resolve(struct gpu_tensor *t, const struct prog_tensor *p,
                    const struct graph_sizes *z)
{
    t->format = p->format;
    t->n_dim = p->n_dim;
    t->pack = p->pack;
    for (int i = 0; i < p->n_dim; i++)
        t->dim[i] = dim_value(p->dim[i], z);
}

void gpu_image_place(struct gpu_image *m)
{
    m->counters_at = at(m, m->counters, m->counters_bytes);
    for (int i = 0; i < m->prog->n_tensor; i++) {
        const struct prog_tensor *t = &m->prog->tensor[i];
        size_t bytes;
        const uint16_t *grid = quant_grid(t->format, &bytes);

        m->tensor[i].at = gpu_image_byte(m, t->region, t->offset);
        if (t->pack)
            m->tensor[i].chunk = at(m, t->pack->chunk, chunk_bytes(t->pack));
        else
            m->tensor[i].grid = at(m, grid, bytes);
    }
}

/* Initializes a call, except its tensors and addresses. */
static void fill(struct gpu_call *c, const struct insn_kernel *k)
{
    static const struct graph_attr none;

    memset(c, 0, sizeof *c);
    c->attr = k->attr ? k->attr : &none;
    c->head_map = k->head_map;
    c->tree = k->tree;
    c->span = k->span;
    c->n_span = k->n_span;
    c->out_stride = k->out_stride;
}

/* Returns the member of the call for argument i of an instruction. Returns NULL
 * for the quantized form of the first operand and for the token table. If the
 * instruction updates its result in place, the caller adds that as the first
 * operand. */
static struct gpu_tensor *argument_tensor(struct gpu_call *c,
                                          const struct insn_kernel *k,
                                          const struct prog_tensor *t, int i)
{
    if (i == 0)
        return &c->out;
    if (kernel_arg_is_token_table(k->kernel, i) ||
        (k->arg[i].tensor >= 0 && t[k->arg[i].tensor].q8))
        return NULL;
    return &c->in[c->n_in++];
}

/* Sets the members of the call for the token table at device address `data`.
 * The pages are those of the pool to which cache tensor `of` belongs. */
static void put_table(struct gpu_call *c, const struct program *p,
                      const struct graph_sizes *z, uint64_t data,
                      const struct prog_tensor *of)
{
    c->table = (struct token_table){
        .n_tok = z->n_tok, .n_out = z->n_out, .page_stride = p->page_stride};
    c->n_seq = z->n_seq;
    c->pos = data;
    c->seq = data + (uint64_t)p->max.n_tok * sizeof(int32_t);
    c->pages = data + (uint64_t)program_pages_word(p, prog_tensor_pool(of)) *
                          sizeof(int32_t);
}

/* Sets the tensors of a call; tensor[] are all tensors of the program at their
 * sizes. */
static void fill_tensors(struct gpu_call *c, const struct program *p,
                         const struct insn_kernel *k,
                         const struct gpu_tensor *tensor,
                         const struct graph_sizes *z)
{
    /* a cache or state that the kernel accesses; its pool decides which pages
     * the token table has */
    const struct prog_tensor *memory = NULL;

    for (int i = 0; i < k->n_arg; i++) {
        struct gpu_tensor *to = argument_tensor(c, k, p->tensor, i);
        int t = k->arg[i].tensor;

        if (kernel_arg_is_memory(k->kernel, i))
            memory = &p->tensor[t];
        if (to && t >= 0)
            *to = tensor[t];
        if (!to && kernel_arg_is_token_table(k->kernel, i))
            put_table(c, p, z, tensor[t].at, memory);
        else if (!to)
            c->q8 = tensor[t].at;
        if (i == 0 && k->arg[0].access == ACCESS_UPDATE)
            c->in[c->n_in++] = c->out;
    }
}

/* Returns the device address of the counters for the launch of instruction h,
 * or 0. */
static uint64_t counters_of(const struct gpu_image *m, int h)
{
    return m->counters_at
               ? m->counters_at + (uint64_t)h * TAIL_COUNTERS * sizeof(uint32_t)
               : 0;
}

static void add_kernel(struct gpu_image *m, const struct insn *st, int i)
{
    const struct insn_kernel *k = &st->kernel;
    struct gpu_call c;

    fill(&c, k);
    fill_tensors(&c, m->prog, k, m->tensor, &m->sizes[st->micro]);
    c.n_page = m->n_page[st->micro];
    c.n_unit = m->n_unit;
    c.tree_at = at(m, k->tree.item, tree_bytes(k));
    c.span_at = at(m, k->span, span_bytes(k));
    c.head_map_at = at(m, k->head_map, head_map_bytes(k, m->prog->tensor));
    c.scratch = m->scratch[st->queue];
    c.count = counters_of(m, i);
    gpu_entries[k->kernel].launch(&m->list, &c);
}

static size_t kernel_scratch(const struct program *p,
                             const struct gpu_tensor *tensor,
                             const struct insn_kernel *k,
                             const struct graph_sizes *z, int n_unit)
{
    const struct gpu_entry *e = &gpu_entries[k->kernel];
    struct gpu_call c;

    if (!e->scratch)
        return 0;
    fill(&c, k);
    fill_tensors(&c, p, k, tensor, z);
    c.n_unit = n_unit;
    return e->scratch(&c);
}

size_t gpu_image_scratch(const struct program *p, int n_unit, enum queue q)
{
    struct gpu_tensor *t = calloc((size_t)p->n_tensor + 1, sizeof *t);
    size_t bytes = 0;

    if (!t)
        return GPU_SCRATCH_UNKNOWN;
    for (int i = 0; i < p->n_tensor; i++)
        resolve(&t[i], &p->tensor[i], &p->max);
    for (int i = 0; i < p->n_variant; i++)
        for (int j = 0; j < p->variant[i].n_insn; j++) {
            const struct insn *st = &p->variant[i].insn[j];
            size_t n = st->kind == INSN_KERNEL && st->queue == q
                           ? kernel_scratch(p, t, &st->kernel, &p->max, n_unit)
                           : 0;

            bytes = n > bytes ? n : bytes;
        }
    free(t);
    return (bytes + 255) / 256 * 256;
}

size_t gpu_image_insn_scratch(const struct gpu_image *m, const struct insn *st)
{
    return st->kind == INSN_KERNEL
               ? kernel_scratch(m->prog, m->tensor, &st->kernel,
                                &m->sizes[st->micro], m->n_unit)
               : 0;
}

/* ---- init and fini ------------------------------------------------------- */

/* Plans which instructions are fused, in all variants. Returns false if out of
 * memory. */
static bool plan_fusion(struct gpu_image *m)
{
    const struct program *p = m->prog;

    for (int i = 0; i < p->n_tensor; i++)
        resolve(&m->tensor[i], &p->tensor[i], &p->max);
    for (int i = 0; i < p->n_variant; i++) {
        const struct variant *v = &p->variant[i];
        struct gpu_fused *plan = calloc((size_t)v->n_insn + 1, sizeof *plan);

        m->plan[i] = plan;
        if (!plan)
            return false;
        for (int k = 0; k < v->n_insn; k++)
            plan[k].has_scratch =
                v->insn[k].kind == INSN_KERNEL &&
                kernel_scratch(p, m->tensor, &v->insn[k].kernel, &p->max,
                               m->n_unit) > 0;
        gpu_fuse_plan(plan, p, v, false);
        if (!m->counts)
            continue;
        m->few[i] = calloc((size_t)v->n_insn + 1, sizeof *plan);
        if (!m->few[i])
            return false;
        for (int k = 0; k < v->n_insn; k++)
            m->few[i][k].has_scratch = plan[k].has_scratch;
        gpu_fuse_plan(m->few[i], p, v, true);
    }
    return true;
}

/* Adds the table of counters for n instructions, all 0. Its last word makes it
 * differ from all other tables, with which it may not share its memory. Returns
 * false if out of memory. */
static bool counter_table(struct gpu_image *m, int n)
{
    static const uint64_t mark = 0x73746e756f63u; /* "counts" */

    if (!m->counts)
        return true;
    m->counters_bytes =
        (size_t)n * TAIL_COUNTERS * sizeof(uint32_t) + sizeof mark;
    m->counters = arena_alloc(&m->arena, m->counters_bytes, 1);
    if (!m->counters)
        return false;
    memcpy(m->counters + m->counters_bytes - sizeof mark, &mark, sizeof mark);
    add(&m->tables, m->counters, m->counters_bytes);
    return true;
}

pl_status gpu_image_init(struct gpu_image *m, struct device_set *set,
                         const struct device *d, pl_err *err)
{
    const struct program *p = d->prog;
    int n_step = 0;

    m->set = set;
    m->prog = p;
    m->n_unit = d->desc.n_unit;
    m->variant = NULL;
    arena_init(&m->arena);
    for (int i = 0; i < p->n_variant; i++)
        if (p->variant[i].n_insn > n_step)
            n_step = p->variant[i].n_insn;
    m->tensor = calloc((size_t)p->n_tensor + 1, sizeof *m->tensor);
    m->first = calloc((size_t)n_step + 1, sizeof *m->first);
    m->fused_into = calloc((size_t)n_step + 1, sizeof *m->fused_into);
    m->done = calloc((size_t)n_step + 1, sizeof *m->done);
    m->view =
        calloc((size_t)device_set_size(set) * REGION_COUNT, sizeof *m->view);
    if (!m->tensor || !m->first || !m->view || !m->fused_into || !m->done ||
        !gpu_inbox_init(&m->inbox, p, n_step) || !plan_fusion(m) ||
        !counter_table(m, n_step))
        return err_no_memory(err, "a device's tables");
    for (int i = 0; i < p->n_tensor; i++)
        tensor_tables(m, &p->tensor[i]);
    for (int i = 0; i < p->n_variant; i++)
        for (int k = 0; k < p->variant[i].n_insn; k++)
            insn_tables(m, &p->variant[i].insn[k]);
    if (m->tables.no_memory)
        return err_no_memory(err, "a device's tables");
    gpu_tables_lay(&m->tables);
    return PL_OK;
}

void gpu_image_fini(struct gpu_image *m)
{
    free(m->tensor);
    free(m->first);
    free(m->fused_into);
    free(m->done);
    for (int i = 0; i < PROG_MAX_VARIANT; i++)
        free(m->plan[i]);
    for (int i = 0; i < PROG_MAX_VARIANT; i++)
        free(m->few[i]);
    free(m->view);
    gpu_tables_free(&m->tables);
    gpu_list_free(&m->list);
    gpu_inbox_free(&m->inbox);
    arena_fini(&m->arena);
    m->tensor = NULL;
    m->first = m->fused_into = NULL;
    m->done = NULL;
    memset(m->plan, 0, sizeof m->plan);
    memset(m->few, 0, sizeof m->few);
    m->view = NULL;
    m->variant = NULL;
}

/* ---- launches of a step -------------------------------------------------- */

struct reach {
    const struct gpu_image *m;
    bool all;
};

static void look(void *user, const struct insn_access *u)
{
    struct reach *r = user;
    uint64_t at = u->access == ACCESS_UPDATE
                      ? gpu_image_box(r->m, u->dev, u->tensor)
                      : gpu_image_at(r->m, u->dev, u->tensor);

    if (at == 0)
        r->all = false;
}

bool gpu_image_reaches(const struct gpu_image *m, const struct insn *st)
{
    struct reach r = {m, true};

    insn_accesses(st, m->prog->dev, m->prog->tensor, look, &r);
    return r.all;
}

int64_t gpu_image_pages(const struct device_run *run, int k)
{
    int64_t n = TEXT_SPAN / PAGE_TOKENS;

    if (run->n_page[k] <= 0)
        return 0;
    while (n < run->n_page[k])
        n *= 2;
    return n;
}

bool gpu_image_same_sizes(int n_micro, const struct graph_sizes *sizes,
                          const int64_t *n_page, const struct device_run *run)
{
    if (n_micro != run->n_micro)
        return false;
    for (int i = 0; i < run->n_micro; i++) {
        const struct graph_sizes *z = &run->sizes[i];

        if (z->n_tok != sizes[i].n_tok || z->n_out != sizes[i].n_out ||
            z->n_seq != sizes[i].n_seq || gpu_image_pages(run, i) != n_page[i])
            return false;
    }
    return true;
}

/* Removes the launches that sort the routes of instruction i, whose launches
 * are the last of the list, if that is done already. */
static void sort_once(struct gpu_image *m, int i, bool is_sorted)
{
    enum { SORTING = 3 }; /* launches: keys, places, blocks */
    int first = m->first[i], n = m->list.n - first;
    bool sorts = n > SORTING && m->list.launch[first].kernel == GPU_route_keys;

    m->done[i].sorted = is_sorted || sorts;
    if (!is_sorted || !sorts)
        return;
    memmove(m->list.launch + first, m->list.launch + first + SORTING,
            (size_t)(n - SORTING) * sizeof *m->list.launch);
    m->list.n -= SORTING;
}

/* Returns true if instruction i may join the launches of h. It is then executed
 * before the instructions between h and i. The plan allows that on condition
 * that those that join earlier groups do so, so none of these may have kept its
 * own launches. */
static bool may_move(const struct gpu_image *m, const struct gpu_fused *plan,
                     int h, int i)
{
    for (int k = h + 1; k < i; k++)
        if (plan[k].group < plan[i].group && m->first[k + 1] > m->first[k])
            return false;
    return true;
}

static bool overlap(const struct gpu_image *m, int tensor, int other)
{
    const struct prog_tensor *t = &m->prog->tensor[tensor];
    const struct prog_tensor *u = &m->prog->tensor[other];

    return t->region == u->region &&
           t->offset < u->offset + gpu_image_bytes(m, other) &&
           u->offset < t->offset + gpu_image_bytes(m, tensor);
}

/* Returns false if the result of instruction i lies over what the launches of h
 * write, at the sizes of the step. Sets *alone if it lies over what they
 * read. */
static bool is_apart(const struct gpu_image *m, const struct variant *v, int h,
                     int i, bool *alone)
{
    int out = v->insn[i].kernel.arg[0].tensor;

    for (int k = h; k < i; k++) {
        const struct insn_kernel *n = &v->insn[k].kernel;

        for (int a = 0; m->fused_into[k] == h && a < n->n_arg; a++) {
            if (n->arg[a].tensor < 0 || !overlap(m, n->arg[a].tensor, out))
                continue;
            if (n->arg[a].access != ACCESS_READ)
                return false;
            *alone = true;
        }
    }
    return true;
}

/* Returns true if no micro-batch of the step has so many tokens that kernels
 * for many rows may be chosen. */
static bool has_few_rows(const struct device_run *run)
{
    for (int i = 0; i < run->n_micro; i++)
        if (run->sizes[i].n_tok > TAIL_ROWS)
            return false;
    return true;
}

/* Fuses instruction i, whose launches are the last of the list, as planned. It
 * must not be executed before instruction `from`, at which bytes that it reads
 * may be copied from the inbox. */
static void fuse(struct gpu_image *m, const struct variant *v,
                 const struct gpu_fused *plan, int i, int from)
{
    struct launch_list *l = &m->list;
    int first = m->first[i], r = plan[i].routes, with = plan[i].with, h, last;
    bool alone = false;

    sort_once(m, i, r >= 0 && m->done[r].sorted);
    h = with >= 0 ? m->fused_into[with] : -1;
    if (m->by_insn || h < 0 || h < from || l->n != first + 1 ||
        !may_move(m, plan, h, i) ||
        (plan[i].is_over && !is_apart(m, v, h, i, &alone)))
        return;
    last = m->first[h + 1] - 1;
    if ((last == m->first[h] ||
         (last > m->first[h] && l->launch[last].kernel == GPU_attend_merge)) &&
        gpu_fuse_launches(l, last, plan[i].rewrite, alone,
                          m->tensor[v->insn[with].kernel.arg[0].tensor].at,
                          counters_of(m, h), &m->done[h].parts))
        m->fused_into[i] = h;
}

bool gpu_image_prepare(struct gpu_image *m, const struct device *d,
                       const struct device_run *run)
{
    const struct variant *c = device_variant(d, run);
    const struct prog_tensor *t = m->prog->tensor;
    int number = (int)(c - m->prog->variant);
    const struct gpu_fused *plan =
        m->few[number] && has_few_rows(run) ? m->few[number] : m->plan[number];
    int arrived[QUEUE_COUNT] = {0};

    if (m->variant == c && m->is_by_insn == m->by_insn &&
        gpu_image_same_sizes(m->n_micro, m->sizes, m->n_page, run))
        return true;
    m->variant = NULL;
    m->n_micro = run->n_micro;
    memcpy(m->sizes, run->sizes, (size_t)run->n_micro * sizeof *m->sizes);
    for (int i = 0; i < run->n_micro; i++)
        m->n_page[i] = gpu_image_pages(run, i);
    m->list.n = 0;
    m->list.n_byte = 0;
    m->list.no_memory = false;
    gpu_inbox_begin(m, c);
    for (int i = 0; i < m->prog->n_tensor; i++)
        if (t[i].micro < run->n_micro)
            resolve(&m->tensor[i], &t[i], &m->sizes[t[i].micro]);
    for (int i = 0; i < c->n_insn; i++) {
        const struct insn *st = &c->insn[i];

        m->first[i] = m->list.n;
        m->inbox.first[i] = m->inbox.n;
        m->fused_into[i] = i;
        m->done[i] = (struct gpu_done){0};
        if (!insn_enabled(st, run->n_micro, run->sizes))
            continue;
        gpu_inbox_insn(m, st);
        if (m->inbox.n > m->inbox.first[i])
            arrived[st->queue] = i;
        if (st->kind == INSN_KERNEL)
            add_kernel(m, st, i);
        else if (!insn_is_event(st) && gpu_image_reaches(m, st))
            gpu_move_launch(m, st);
        if (st->kind == INSN_KERNEL && !m->list.no_memory)
            fuse(m, c, plan, i, arrived[st->queue]);
    }
    m->first[c->n_insn] = m->list.n;
    m->inbox.first[c->n_insn] = m->inbox.n;
    if (m->list.no_memory || m->inbox.no_memory)
        return false;
    m->variant = c;
    m->is_by_insn = m->by_insn;
    return true;
}

/* ---- counters ------------------------------------------------------------ */

static const struct prog_tensor *tensor_of(const struct gpu_image *m, int dev,
                                           int tensor)
{
    return &device_of(m->set, dev)->prog->tensor[tensor];
}

struct token_table gpu_image_table(const struct gpu_image *m,
                                   const struct insn *st, const void *data)
{
    return program_token_table(
        m->prog, data, &m->sizes[st->micro],
        prog_tensor_pool(tensor_of(m, st->pages.out_dev, st->pages.out)));
}

static double pages_bytes(const struct gpu_image *m, const struct insn *st,
                          const void *data)
{
    const struct insn_pages *x = &st->pages;
    struct page_walk w = page_walk_start(gpu_image_table(m, st, data));
    int64_t n_head = tensor_of(m, x->out_dev, x->out)->dim[1].n;
    double n_page = 0, n_moved = 0;

    while (page_walk_next(&w) >= 0)
        n_page++;
    for (int64_t h = 0; h < n_head; h++)
        n_moved += x->map[h] >= 0;
    return n_page * n_moved * (double)x->tile_bytes;
}

static double piece_bytes(const struct copy_desc *p, int n,
                          const struct graph_sizes *z)
{
    double bytes = 0;

    for (int i = 0; i < n; i++) {
        struct copy_extent l;

        copy_loops_resolve(&l, &p[i], z);
        bytes += (double)copy_loops_bytes(&l);
    }
    return bytes;
}

static double copy_bytes(const struct gpu_image *m, const struct insn *st,
                         const void *pages)
{
    const struct graph_sizes *z = &m->sizes[st->micro];
    double bytes = 0;

    if (st->kind == INSN_PAGES)
        return pages_bytes(m, st, pages);
    if (st->kind == INSN_PULL)
        return piece_bytes(st->pull.piece, st->pull.n_piece, z);
    for (int k = 0; k < st->push.n_to; k++) {
        int n;
        const struct copy_desc *p = push_pieces(&st->push, k, &n);

        bytes += piece_bytes(p, n, z);
    }
    return bytes;
}

void gpu_image_count(const struct gpu_image *m, struct device *d,
                     const struct insn *st, const void *pages)
{
    int64_t rows = 0;
    double bytes = 0;

    if (st->kind == INSN_KERNEL && st->kernel.n_cost > 0) {
        const struct gpu_tensor *out = &m->tensor[st->kernel.arg[0].tensor];

        rows = 1;
        for (int i = 0; i < kernel_cost_dims(st->kernel.kernel, out->n_dim);
             i++)
            rows *= out->dim[i];
    }
    if (insn_is_group_copy(st))
        bytes = copy_bytes(m, st, pages);
    device_count(d, st, &m->sizes[st->micro], rows, bytes);
}
