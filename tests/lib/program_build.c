/* Builds programs by hand; program_build.h describes the functions. */
#include "lib/program_build.h"

#include "lib/alloc_fail.h"
#include "program/program_text.h"

#include <stdlib.h>
#include <string.h>

struct build *build_new(int n, int64_t n_tok)
{
    struct build *b = test_need((size_t)n, sizeof *b);

    for (int i = 0; i < n; i++) {
        b[i].p.dev = i;
        b[i].p.active = true;
        b[i].p.tensor = b[i].tensor;
        b[i].p.n_variant = 1;
        b[i].p.variant = &b[i].variant;
        b[i].p.n_group = 1;
        b[i].variant.n_micro = 1;
        b[i].variant.insn = b[i].insn;
        b[i].variant.dead = b[i].death;
        b[i].p.max = (struct graph_sizes){.n_tok = n_tok, .n_out = n_tok};
    }
    return b;
}

/* Returns the list of devices 0 .. n-1, for a barrier of all devices. */
static const int *everybody(int n)
{
    static int dev[DEVICE_MAX];

    for (int i = 0; i < n; i++)
        dev[i] = i;
    return dev;
}

/* Returns true if device `dev` posts `event` among its first at[dev]
 * instructions, which have a place in the total order already. */
static bool is_posted(const struct build *b, int dev, int event, const int *at)
{
    for (int i = 0; i < at[dev]; i++)
        if (b[dev].insn[i].kind == INSN_POST &&
            b[dev].insn[i].event.event == event)
            return true;
    return false;
}

/* Returns true if for every peer of the barrier `st` the next instruction
 * without a place in the total order is this barrier. */
static bool all_there(const struct build *b, const struct insn *st,
                      const int *at)
{
    for (int i = 0; i < st->merge.n_peer; i++) {
        int p = st->merge.peer[i];
        const struct insn *y = &b[p].insn[at[p]];

        if (at[p] == b[p].variant.n_insn || !insn_is_barrier(y) ||
            y->merge.group != st->merge.group)
            return false;
    }
    return true;
}

/* Gives the next instructions of device d places in the total order, up to one
 * that must wait for another device. at[] has the number of ordered
 * instructions of each device. `force` also orders the first one that must
 * wait. Returns true if any was ordered. */
static bool order_some(struct build *b, int d, int *at, int *order, bool force)
{
    bool moved = false;

    for (; at[d] < b[d].variant.n_insn; at[d]++, moved = true, force = false) {
        struct insn *st = &b[d].insn[at[d]];
        bool meets = insn_is_barrier(st);

        if (!force && ((st->kind == INSN_WAIT &&
                        !is_posted(b, st->event.dev, st->event.event, at)) ||
                       (meets && !all_there(b, st, at))))
            break;
        for (int i = 0; meets && !force && i < st->merge.n_peer; i++) {
            int p = st->merge.peer[i];

            b[p].insn[at[p]].order = *order;
            at[p] += p != d;
        }
        st->order = (*order)++;
    }
    return moved;
}

static void order_insns(struct build *b, int n)
{
    int *at = test_need((size_t)n, sizeof *at), order = 0;
    bool moved;

    for (int d = 0; d < n; d++)
        for (int i = 0; i < b[d].variant.n_insn; i++) {
            struct insn *st = &b[d].insn[i];

            if (insn_is_barrier(st) && !st->merge.peer) {
                st->merge.n_peer = n;
                st->merge.peer = everybody(n);
                st->merge.counted = d == 0;
            }
        }
    do {
        moved = false;
        for (int d = 0; d < n; d++)
            moved |= order_some(b, d, at, &order, false);
        /* all devices wait for each other, so the program is wrong and any
         * order will do */
        for (int d = 0; d < n && !moved; d++)
            moved = order_some(b, d, at, &order, true);
    } while (moved);
    free(at);
}

struct program *build_programs(struct build *b, int n)
{
    struct program *p = test_need((size_t)n, sizeof *p);

    order_insns(b, n);
    for (int i = 0; i < n; i++)
        p[i] = b[i].p;
    return p;
}

struct program *build_text(struct arena *a, const char *text, int n)
{
    struct program *p;
    int n_dev;
    pl_err err;

    if (program_parse(&p, &n_dev, a, text, strlen(text), &err) != PL_OK)
        fail_msg("%s, of\n%s", err.message, text);
    assert_int_equal(n_dev, n);
    return p;
}

void build_put(struct device_set *s, int dev, int tensor, const float *v,
               int64_t n)
{
    const struct prog_tensor *t = &s->dev[dev].prog->tensor[tensor];

    assert_int_equal(device_write(s, dev, t->region, t->offset, v,
                                  (size_t)n * sizeof *v, NULL),
                     PL_OK);
}

void build_get(struct device_set *s, int dev, int tensor, float *v, int64_t n)
{
    const struct prog_tensor *t = &s->dev[dev].prog->tensor[tensor];

    assert_int_equal(device_read(s, dev, t->region, t->offset, v,
                                 (size_t)n * sizeof *v, NULL),
                     PL_OK);
}

pl_dim build_const(int64_t n)
{
    return (pl_dim){n, PL_CONST};
}

pl_dim build_per_tok(int64_t n)
{
    return (pl_dim){n, PL_N_TOK};
}

static int new_tensor(struct build *b, int64_t width, enum region r)
{
    size_t bytes = (size_t)(width * b->p.max.n_tok) * sizeof(float);

    assert_true(b->p.n_tensor < BUILD_TENSOR);
    b->tensor[b->p.n_tensor] = (struct prog_tensor){
        .format = PL_F32,
        .n_dim = 2,
        .dim = {build_per_tok(1), build_const(width)},
        .region = r,
        .offset = b->p.bytes[r],
        .bytes = bytes,
    };
    b->p.bytes[r] += (bytes + 63) / 64 * 64;
    return b->p.n_tensor++;
}

int build_tensor(struct build *b, int64_t width)
{
    return new_tensor(b, width, REGION_WORK);
}

int build_mail(struct build *b, int64_t width)
{
    return new_tensor(b, width, REGION_INBOX);
}

struct insn *build_insn(struct build *b, enum insn_kind kind)
{
    struct insn *st = &b->insn[b->variant.n_insn];

    assert_true(b->variant.n_insn < BUILD_INSN);
    b->variant.n_insn++;
    *st = (struct insn){.kind = kind, .node = -1};
    return st;
}

struct insn *build_op(struct build *b, enum kernel kernel, int out, int in,
                      float c)
{
    struct insn *st = build_insn(b, INSN_KERNEL);
    struct graph_attr *attr = &b->attr[st - b->insn];

    attr->scale = c;
    st->kernel = (struct insn_kernel){
        .kernel = kernel,
        .n_arg = 2,
        .arg = {{out, ACCESS_WRITE}, {in, ACCESS_READ}},
        .attr = attr,
    };
    return st;
}

void build_post(struct build *b, enum queue q, int event)
{
    struct insn *st = build_insn(b, INSN_POST);

    st->queue = q;
    st->event = (struct insn_event){b->p.dev, event};
    if (event >= b->p.n_event)
        b->p.n_event = event + 1;
}

void build_wait(struct build *b, enum queue q, int dev, int event)
{
    struct insn *st = build_insn(b, INSN_WAIT);

    st->queue = q;
    st->event = (struct insn_event){dev, event};
}

void build_death(struct build *b, int tensor)
{
    assert_true(b->variant.n_dead < BUILD_DEATH);
    b->death[b->variant.n_dead++] = (struct dead_range){
        .insn = b->variant.n_insn - 1,
        .offset = b->tensor[tensor].offset,
        .bytes = b->tensor[tensor].bytes,
    };
}

struct insn *build_pull(struct build *b, int out, const struct copy_desc *piece)
{
    struct insn *st = build_insn(b, INSN_PULL);

    st->queue = QUEUE_COPY;
    st->pull = (struct insn_pull){.out = out, .n_piece = 1, .piece = piece};
    return st;
}

struct insn *build_merge(struct build *b, const struct merge_item *item)
{
    struct insn *st = build_insn(b, INSN_MERGE);

    st->merge = (struct insn_merge){.n_item = 1, .item = item};
    return st;
}

struct copy_desc build_rows(int dev, int src, int64_t src_off, int64_t src_row,
                            int64_t dst_off, int64_t dst_row, int64_t bytes)
{
    return (struct copy_desc){
        .src_dev = dev,
        .src = src,
        .src_off = build_const(src_off),
        .dst_off = build_const(dst_off),
        .bytes = build_const(bytes),
        .n0 = build_per_tok(1),
        .src_s0 = build_const(src_row),
        .dst_s0 = build_const(dst_row),
        .n1 = build_const(1),
    };
}

/* ---- toy kernels ------------------------------------------------------- */

static int64_t count(const struct cpu_call *c, int64_t *lo)
{
    int64_t n = 1;

    for (int i = 0; i < c->out.n_dim; i++)
        n *= c->out.dim[i];
    *lo = n * c->ith / c->nth;
    return n;
}

static void toy_scale(const struct cpu_call *c)
{
    int64_t lo, n = count(c, &lo), hi = n * (c->ith + 1) / c->nth;
    const float *in = c->in[0].data;
    float *out = c->out.data;

    for (int64_t i = lo; i < hi; i++)
        out[i] = in[i] * c->attr->scale;
}

static void toy_add(const struct cpu_call *c)
{
    int64_t lo, n = count(c, &lo), hi = n * (c->ith + 1) / c->nth;
    const float *a = c->in[0].data, *b = c->in[1].data;
    float *out = c->out.data;

    for (int64_t i = lo; i < hi; i++)
        out[i] = a[i] + b[i];
}

static void toy_reverse(const struct cpu_call *c)
{
    int64_t lo, n = count(c, &lo), hi = n * (c->ith + 1) / c->nth;
    const float *in = c->in[0].data;
    float *out = c->out.data;

    for (int64_t i = lo; i < hi; i++)
        out[i] = in[n - 1 - i] + c->attr->scale;
}

static void toy_who(const struct cpu_call *c)
{
    const struct token_table *b = c->table;
    int64_t w = c->out.dim[2];

    for (int64_t t = c->ith; t < b->n_tok; t += c->nth) {
        float *row = (float *)c->out.data + t * w;
        int64_t page = b->seq[t] * b->page_stride + b->pos[t] / PAGE_TOKENS;

        memset(row, 0, (size_t)w * sizeof *row);
        row[0] = (float)b->pos[t];
        row[1] = (float)b->seq[t];
        row[2] = (float)b->pages[page];
    }
}

static void toy_sum(float *out, const float *a, const float *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = a[i] + b[i];
}

struct cpu_kernels *build_toys(void)
{
    static struct cpu_kernels k;

    cpu_kernels_init(&k, KERNEL_SET_GENERIC);
    k.kernel[KERNEL_scale] = (struct cpu_entry){.run = toy_scale};
    k.kernel[KERNEL_add] = (struct cpu_entry){.run = toy_add};
    k.kernel[KERNEL_contiguous] = (struct cpu_entry){.run = toy_reverse};
    k.kernel[KERNEL_cache_write] = (struct cpu_entry){.run = toy_who};
    k.kernel[KERNEL_tanh] = (struct cpu_entry){.run = NULL};
    k.add = toy_sum;
    return &k;
}

struct device_set *build_set_of(const struct device_list *l,
                                const struct device_options *opt)
{
    struct device_options o = *opt;
    struct device_set *s;
    pl_err err;

    if (!o.kernels)
        o.kernels = build_toys();
    TEST_OK(device_set_create(&s, l, &o, &err), err);
    return s;
}

struct device_set *build_set_as(const char *spec, int n_thread,
                                const struct device_options *opt)
{
    struct device_list l;
    struct device_set *s;
    pl_err err;

    TEST_OK(device_parse(&l, spec, n_thread, &err), err);
    s = build_set_of(&l, opt);
    device_list_free(&l);
    return s;
}

struct device_set *build_set(const char *spec, int n_thread, uint64_t seed)
{
    return build_set_as(
        spec, n_thread,
        &(struct device_options){.kernel_set = KERNEL_SET_GENERIC,
                                 .sim_seed = seed});
}

static bool has_kernel(void *user, int dev, const struct insn_kernel *k)
{
    (void)user;
    (void)dev;
    (void)k;
    return true;
}

static bool share_threads(void *user, int a, int b)
{
    (void)user;
    (void)a;
    (void)b;
    return false;
}

struct program_machine build_machine(const struct program_device *dev, int n)
{
    return (struct program_machine){n, dev, has_kernel, share_threads, NULL};
}

void build_add_host(struct device_list *l, int n_thread, bool pinned)
{
    struct device_desc d = {.name = "host",
                            .ops = &cpu_ops,
                            .memory = 0,
                            .one_queue = true,
                            .on_cores = true,
                            .n_thread = n_thread,
                            .numa_node = -1,
                            .host = true};

    for (int i = 0; pinned && i < l->n; i++)
        for (int k = 0; l->dev[i].on_cores && k < l->dev[i].n_core; k++)
            d.core[d.n_core++] = l->dev[i].core[k];
    l->dev = realloc(l->dev, (size_t)(l->n + 1) * sizeof *l->dev);
    assert_non_null(l->dev);
    l->dev[l->n++] = d;
}

void build_survives(const struct device_list *l,
                    const struct device_options *opt, const struct program *p)
{
    struct device_options o = *opt;
    bool reached = true;

    o.kernels = build_toys();
    for (int n = 1; reached; n++) {
        struct device_set *s = NULL;
        pl_status st;

        alloc_fail_at(n);
        st = device_set_create(&s, l, &o, NULL);
        if (st == PL_OK)
            st = device_set_load(s, p, NULL);
        reached = alloc_fail_off();
        assert_int_equal(st == PL_OK, !reached);
        assert_true(st == PL_OK || st == PL_NO_MEMORY ||
                    st == PL_NO_DEVICE_MEMORY);
        device_set_free(s);
    }
}

void build_put_token_table(struct device_set *s, int dev, int tensor,
                           const struct token_table *b, int64_t n_seq)
{
    const struct program *p = s->dev[dev].prog;
    const struct prog_tensor *t = &p->tensor[tensor];
    const struct {
        int64_t word;
        const int32_t *v;
        int64_t n;
    } part[] = {{0, b->pos, b->n_tok},
                {p->max.n_tok, b->seq, b->n_tok},
                {2 * p->max.n_tok, b->pages, n_seq * p->page_stride}};

    assert_true(p->page_stride == b->page_stride);
    for (int i = 0; i < 3; i++)
        assert_int_equal(device_write(s, dev, t->region,
                                      t->offset + 4 * (size_t)part[i].word,
                                      part[i].v, 4 * (size_t)part[i].n, NULL),
                         PL_OK);
}

struct device_run build_run(int64_t n_tok)
{
    return (struct device_run){
        .n_micro = 1,
        .sizes = {{.n_tok = n_tok}},
    };
}

/* ---- trees ------------------------------------------------------------- */

void build_tree_sum(float *out, float *const *addend, int n_addend, int64_t n)
{
    int left = 1;
    float *upper;

    if (n_addend == 1) {
        memcpy(out, addend[0], (size_t)n * sizeof *out);
        return;
    }
    while (left * 2 < n_addend)
        left *= 2;
    upper = test_need((size_t)n, sizeof *upper);
    build_tree_sum(out, addend, left, n);
    build_tree_sum(upper, addend + left, n_addend - left, n);
    for (int64_t i = 0; i < n; i++)
        out[i] += upper[i];
    free(upper);
}

/* Sets n_add of the addends a[n] for their summation tree. Returns the greatest
 * depth of the stack of partial sums, on which `below` entries lie before. */
static int tree(struct merge_addend *a, int n, int below)
{
    int left = 1, d0, d1;

    if (n == 1)
        return below + 1;
    while (left * 2 < n)
        left *= 2;
    d0 = tree(a, left, below);
    d1 = tree(a + left, n - left, below + 1);
    a[n - 1].n_add++;
    return d0 > d1 ? d0 : d1;
}

int build_tree(struct merge_addend *a, int n)
{
    return tree(a, n, 0);
}
