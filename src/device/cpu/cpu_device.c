/* The backend `cpu`. A cpu device is the cores of a NUMA node, or any other set
 * of cores, with this machine's memory. A single team of pinned threads
 * executes the programs of all cpu devices of a set, including the host device.
 * The caller's thread is the first thread of the team. */
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/err.h"
#include "device/cpu/cpu_barriers.h"
#include "device/cpu/cpu_device.h"
#include "device/cpu/cpu_ops.h"

/* ---- scratch sizes and cache encoding ---------------------------------- */

static size_t scratch(const struct device_desc *d,
                      const struct device_options *opt, const struct program *p)
{
    struct cpu_kernels table;

    cpu_kernels_choose(&table, opt);
    return cpu_image_scratch(&table, p, d->n_thread) * (size_t)d->n_thread;
}

void device_cache_rows(pl_format f, int64_t d, int64_t n, const float *x,
                       void *rows)
{
    size_t bytes = format_row_bytes(f, d);

    for (int64_t i = 0; i < n; i++)
        cpu_cache_encode_row(f, (char *)rows + (size_t)i * bytes, x + i * d, d);
}

/* ---- opening and closing of the backend -------------------------------- */

/* Returns true if the devices of this backend are on several NUMA nodes, so
 * that each device's memory must be bound to its node. On a single node no
 * binding is needed, because the system allocates pages on the node of the
 * thread that first writes to them. Without hwloc, nodes are unknown and the
 * result is false. */
static bool on_several_nodes(const struct backend *b)
{
    int node = -1;

    for (int i = 0; i < b->n; i++) {
        const struct device_desc *d = &device_of(b->set, b->dev[i])->desc;

        if (d->numa_node < 0)
            continue;
        if (node >= 0 && d->numa_node != node)
            return true;
        node = d->numa_node;
    }
    return false;
}

static void close_backend(struct backend *b)
{
    struct cpu_backend *c = b->own;

    if (!c)
        return;
    team_free(c->team);
    free(c->roles);
    free(c);
    b->own = NULL;
}

static pl_status open_backend(struct backend *b, pl_err *err)
{
    struct cpu_backend *c = calloc(1, sizeof *c);

    b->own = c;
    if (!c)
        return err_no_memory(err, "a device set");
    cpu_kernels_choose(&c->kernels, device_set_options(b->set));
    c->topology = on_several_nodes(b) ? device_set_topology(b->set) : NULL;
    c->one_node = topology_one_node();
    return cpu_thread_map_fill(b, err);
}

/* ---- memory of devices ------------------------------------------------- */

/* Returns true if kernels of some device in the set access host memory in
 * place. Host memory must then be allocated in whole pages. */
static bool is_mapped(struct device_set *s)
{
    for (int i = 0; i < device_set_size(s); i++)
        if (device_of(s, i)->desc.maps)
            return true;
    return false;
}

static void *take(struct device_set *s, const struct topology *t,
                  const struct device *d, size_t bytes)
{
    if (device_guarded(s))
        return device_guard_alloc(bytes);
    if (is_mapped(s))
        return topology_alloc_pages(t, d->desc.numa_node, bytes);
    return topology_alloc(t, d->desc.numa_node, bytes);
}

static void give_back(struct device_set *s, void *p, size_t bytes)
{
    bool copy = device_set_is_copy(s);

    if (device_set_is_quarantined(s) && !copy)
        return;
    if (device_guarded(s))
        device_guard_dealloc(p, bytes);
    else if (copy && !is_mapped(s))
        topology_free_copy(p, bytes);
    else if (copy)
        /* A forked child did not inherit these pages, so it has nothing to
         * free. */
        ;
    else if (is_mapped(s))
        topology_free_pages(p, bytes);
    else
        topology_free(p, bytes);
}

static void unload_device(struct device_set *s, struct device *d)
{
    struct cpu_device *c = d->own;

    for (int r = 0; r < REGION_INBOX; r++) {
        give_back(s, d->at[r], d->bytes[r]);
        d->at[r] = NULL;
    }
    if (!c)
        return;
    if (device_set_is_copy(s))
        topology_free_copy(c->scratch, d->scratch_bytes);
    else
        topology_free(c->scratch, d->scratch_bytes);
    cpu_image_fini(&c->image);
    for (int k = 0; k < PROG_MAX_VARIANT; k++)
        free(c->how[k]);
    free(c->arrived);
    free(c->taken);
    free(c);
    d->own = NULL;
}

static void unload(struct backend *b)
{
    for (int i = 0; i < b->n; i++)
        unload_device(b->set, device_of(b->set, b->dev[i]));
}

static void *flags_new(size_t n, size_t bytes)
{
    void *p;

    if (posix_memalign(&p, _Alignof(struct device_flag), n * bytes) != 0)
        return NULL;
    return memset(p, 0, n * bytes);
}

static pl_status not_given(const struct device *d, const char *what,
                           size_t bytes, pl_err *err)
{
    char buf[24];

    return err_set(err, PL_NO_DEVICE_MEMORY, "%s: cannot allocate %s for %s",
                   d->desc.name, bytes_text(buf, bytes), what);
}

static pl_status load_device(struct backend *b, struct device *d, pl_err *err)
{
    struct cpu_backend *c = b->own;
    const struct topology *t = c->topology;
    const struct program *p = d->prog;
    struct cpu_device *x = flags_new(1, sizeof *x);

    d->own = x;
    if (!x)
        return err_no_memory(err, "a device's tables");
    x->arrived = flags_new((size_t)d->desc.n_thread, sizeof *x->arrived);
    x->taken = flags_new((size_t)d->desc.n_thread,
                         2 * CPU_STEAL_INSNS * sizeof *x->taken);
    if (!x->arrived || !x->taken)
        return err_no_memory(err, "a device's tables");
    for (int r = 0; r < REGION_INBOX; r++) {
        d->at[r] = take(b->set, t, d, d->bytes[r]);
        if (!d->at[r])
            return not_given(d, region_name((enum region)r), d->bytes[r], err);
        device_guard_region(b->set, d, (enum region)r, d->at[r]);
        x->image.base[r] = d->at[r];
    }
    x->image.base[REGION_INBOX] = d->at[REGION_INBOX];
    x->scratch = topology_alloc(t, d->desc.numa_node, d->scratch_bytes);
    if (!x->scratch)
        return not_given(d, "scratch", d->scratch_bytes, err);
    x->scratch_stride = d->scratch_bytes / (size_t)d->desc.n_thread;
    x->image.scratch_stride = x->scratch_stride;
    for (int i = 0; i < p->n_variant; i++) {
        x->how[i] = malloc((size_t)p->variant[i].n_insn + 1);
        if (!x->how[i] ||
            !cpu_barriers(&p->variant[i], p->tensor, p->dev, x->how[i]))
            return err_no_memory(err, "a device's tables");
    }
    return cpu_image_init(&x->image, b->set, d, &c->kernels, err);
}

/* Writes 0 to each page of part ith (of nth) of a zeroed allocation, so that
 * the system allocates these pages on the NUMA node of the calling thread. */
static void touch(unsigned char *p, size_t bytes, int ith, int nth)
{
    size_t page = 4096, n = (bytes + page - 1) / page;
    size_t hi = n * (size_t)(ith + 1) / (size_t)nth;

    for (size_t i = n * (size_t)ith / (size_t)nth; i < hi; i++)
        *(volatile unsigned char *)(p + i * page) = 0;
}

/* Executed by each thread of the team: writes to its part of all memory of its
 * devices, so that the pages are allocated on the thread's NUMA node. If all
 * cores are on one node, weights are left out: their pages are allocated while
 * weights are loaded. That is faster, because the zeros that the system writes
 * to new pages are then still in the caches. */
static void touch_first(void *user, int thread)
{
    struct backend *b = user;
    const struct cpu_backend *c = b->own;
    const struct cpu_thread_roles *m = &c->roles[thread];

    for (int i = 0; i < m->n; i++) {
        const struct device *d = device_of(b->set, m->role[i].dev);
        const struct cpu_device *x = d->own;
        int ith = m->role[i].ith, nth = d->desc.n_thread;

        for (int r = 0; r < REGION_COUNT; r++)
            if (r != REGION_WEIGHTS || !c->one_node)
                touch(d->at[r], d->bytes[r], ith, nth);
        touch(x->scratch, d->scratch_bytes, ith, nth);
    }
}

static pl_status load(struct backend *b, pl_err *err)
{
    struct cpu_backend *c = b->own;

    for (int i = 0; i < b->n; i++)
        PL_TRY(load_device(b, device_of(b->set, b->dev[i]), err));
    team_run(c->team, touch_first, b);
    return PL_OK;
}

static pl_status put(struct device *d, enum region r, size_t offset,
                     const void *src, size_t bytes, pl_err *err)
{
    (void)err;
    memcpy(d->at[r] + offset, src, bytes);
    return PL_OK;
}

static pl_status get(struct device *d, enum region r, size_t offset, void *dst,
                     size_t bytes, pl_err *err)
{
    (void)err;
    memcpy(dst, d->at[r] + offset, bytes);
    return PL_OK;
}

/* ---- execution of a step ----------------------------------------------- */

static void thread_run(void *user, int thread)
{
    cpu_run(user, thread);
}

static void submit(struct backend *b)
{
    struct cpu_backend *c = b->own;
    uint64_t number;
    const struct device_run *run = device_set_current_run(b->set, &number);

    for (int i = 0; i < b->n; i++) {
        struct cpu_device *x = cpu_device_of(b->set, b->dev[i]);

        x->ready = !cpu_image_sizes(&x->image, run);
    }
    team_begin(c->team, thread_run, b);
}

static void wait(struct backend *b)
{
    struct cpu_backend *c = b->own;

    team_end(c->team, thread_run, b);
    /* If the step failed, the tensor table may still have sizes of an earlier
     * step for some tensors. Setting all bits makes the next step compute the
     * sizes of all micro-batches. */
    for (int i = 0; i < b->n; i++) {
        struct cpu_device *x = cpu_device_of(b->set, b->dev[i]);

        if (atomic_load(device_failed(b->set)))
            x->image.resize = (uint32_t)-1;
    }
}

const struct backend_ops cpu_ops = {
    .name = "cpu",
    .accepts = "cpu (one a NUMA node), cpu*N, cpu:0-3+8-11",
    .wakes_waiters = true,
    .uses_caller_thread = true,
    .carries = true,
    .describe = cpu_describe,
    .add_host = cpu_add_host,
    .has_kernel = cpu_image_has_kernel,
    .packing = cpu_image_packing,
    .activations = cpu_image_activations,
    .scratch = scratch,
    .share_threads = cpu_thread_map_share,
    .open = open_backend,
    .close = close_backend,
    .load = load,
    .unload = unload,
    .write = put,
    .read = get,
    .submit = submit,
    .wait = wait,
};
