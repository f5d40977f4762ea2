/* The GPU backends. They differ only in their driver. */
#include "device/gpu/gpu_device.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/hash64.h"
#include "device/cpu/cpu_image.h"
#include "device/gpu/gpu_kind.h"
#include "device/gpu/gpu_pdl.h"
#include "device/gpu/gpu_selftest.h"
#include "machine/topology.h"

/* ---- capabilities -------------------------------------------------------- */

/* GPUs have only kernels with the same bits as the CPU's kernel set `generic`.
 * The kernel set `reference` has other bits, so no GPU kernel can be used with
 * it. */
bool gpu_has_kernel(const struct device_desc *d,
                    const struct device_options *opt,
                    const struct insn_kernel *k, const struct prog_tensor *t)
{
    const struct device_options plain = {.kernel_set = KERNEL_SET_GENERIC};

    return gpu_entries[k->kernel].launch != NULL && !insn_kernel_is_bf16(k) &&
           !kernel_set_is_float(opt->kernel_set) &&
           cpu_image_has_kernel(d, &plain, k, t);
}

size_t gpu_scratch(const struct device_desc *d,
                   const struct device_options *opt, const struct program *p)
{
    size_t bytes = 0;

    (void)opt;
    for (int q = 0; q < QUEUE_COUNT; q++)
        bytes += gpu_image_scratch(p, d->n_unit, (enum queue)q);
    return bytes;
}

/* ---- backend ------------------------------------------------------------- */

static void close_gpu(struct gpu_device *x)
{
    if (x->ring && !x->lost)
        x->driver->host_release(x->gpu, x->ring);
    if (!x->lost && !x->quarantined)
        x->driver->close(x->gpu);
    /* A forked copy does not destroy the lock, because a thread of the original
     * process may have held it. */
    if (device_set_is_copy(x->set))
        return;
    pthread_cond_destroy(&x->settled);
    pthread_mutex_destroy(&x->lock);
}

/* In a forked copy of the process marks all GPUs as lost, because drivers must
 * not be called there. */
static void lose_in_copy(struct backend *b)
{
    struct gpu_backend *g = b->own;

    for (int i = 0; i < b->n && device_set_is_copy(b->set); i++)
        g->dev[i].lost = true;
}

void gpu_close(struct backend *b)
{
    struct gpu_backend *g = b->own;

    if (!g)
        return;
    lose_in_copy(b);
    team_free(g->team);
    for (int i = 0; i < b->n; i++)
        if (g->dev[i].driver)
            close_gpu(&g->dev[i]);
    free(g);
    b->own = NULL;
}

static pl_status open_gpu(struct gpu_device *x, int which, pl_err *err)
{
    const struct device_options *opt = device_set_options(x->set);
    void *p = NULL;

    PL_TRY(x->driver->open(&x->gpu, x->dev->desc.index, err));
    if (x->driver->seed)
        x->driver->seed(x->gpu, opt->sim_seed + (uint64_t)which);
    PL_TRY(
        x->driver->host_alloc(x->gpu, (size_t)GPU_SLOTS * GPU_SLOT, &p, err));
    x->ring = p;
    return PL_OK;
}

static pl_status start_threads(struct backend *b, pl_err *err)
{
    struct gpu_backend *g = b->own;
    int n = b->n + 1, *core = malloc((size_t)n * sizeof *core);
    pl_status s;

    if (!core)
        return err_no_memory(err, "GPUs");
    for (int i = 0; i < n; i++)
        core[i] = -1;
    s = team_create(&g->team, n, core, b->n + device_set_threads(b->set, b),
                    err);
    free(core);
    return s;
}

pl_status gpu_open(struct backend *b, pl_err *err)
{
    struct gpu_backend *g =
        calloc(1, sizeof *g + (size_t)b->n * sizeof g->dev[0]);

    b->own = g;
    if (!g)
        return err_no_memory(err, "GPUs");
    for (int i = 0; i < b->n; i++) {
        struct gpu_device *x = &g->dev[i];

        x->dev = device_of(b->set, b->dev[i]);
        x->dev->own = x;
        x->set = b->set;
        x->driver = b->ops->driver;
        x->failed = device_failed(b->set);
        pthread_mutex_init(&x->lock, NULL);
        pthread_cond_init(&x->settled, NULL);
        PL_TRY(open_gpu(x, i, err));
    }
    return start_threads(b, err);
}

/* ---- memory -------------------------------------------------------------- */

static void release(struct gpu_device *x, uint64_t *at)
{
    if (*at)
        x->driver->release(x->gpu, *at);
    *at = 0;
}

/* Frees all memory that the driver allocated for the program. */
static void release_driver_memory(struct gpu_device *x)
{
    gpu_region_unload(x);
    release(x, &x->scratch);
    release(x, &x->tables);
    if (x->table)
        x->driver->host_release(x->gpu, x->table);
    x->table = NULL;
}

/* Waits for copies in flight, including those to peers, which a failed load may
 * have left. */
static void settle(struct gpu_device *x)
{
    for (int q = 0; q < QUEUE_COUNT && x->region[REGION_INBOX]; q++)
        gpu_drain(x, (enum queue)q, NULL);
}

static void unload_gpu(struct gpu_device *x)
{
    if (!x->gpu)
        return;
    gpu_stage_end(x);
    gpu_graph_end(x);
    gpu_reach_end(x);
    if (!x->lost)
        release_driver_memory(x);
    free(x->event);
    free(x->point);
    free(x->deferred);
    x->event = NULL;
    x->point = NULL;
    gpu_ahead_begin(x);
    x->deferred = NULL;
    gpu_image_fini(&x->image);
    x->image.box = NULL;
}

static bool on_one_gpu(const struct gpu_device *x, const struct gpu_device *y)
{
    const char *bus = x->dev->desc.bus;

    return bus[0] && strcmp(bus, y->dev->desc.bus) == 0;
}

/* Marks all devices that share the GPU of a lost device as lost too: freeing
 * their memory would wait for the hung work. */
static void mark_shared_lost(struct gpu_backend *g, int n)
{
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n && g->dev[i].lost; k++)
            if (g->dev[k].gpu && on_one_gpu(&g->dev[i], &g->dev[k]))
                g->dev[k].lost = true;
}

void gpu_unload(struct backend *b)
{
    struct gpu_backend *g = b->own;

    lose_in_copy(b);
    for (int i = 0; i < b->n; i++)
        settle(&g->dev[i]);
    mark_shared_lost(g, b->n);
    for (int i = 0; i < b->n; i++)
        unload_gpu(&g->dev[i]);
    gpu_peer_unload(g);
}

static bool has_pages(const struct program *p)
{
    for (int i = 0; i < p->n_variant; i++)
        for (int k = 0; k < p->variant[i].n_insn; k++)
            if (p->variant[i].insn[k].kind == INSN_PAGES)
                return true;
    return false;
}

/* Returns true if event `event` of the device is posted in variant `c` by
 * another queue than q. */
static bool is_posted_beside(const struct variant *c, int event, enum queue q)
{
    for (int i = 0; i < c->n_insn; i++)
        if (c->insn[i].kind == INSN_POST && c->insn[i].event.event == event &&
            c->insn[i].queue != q)
            return true;
    return false;
}

/* Allocates x->event, x->point and x->deferred. Finds the device's own
 * events for which the device itself waits. */
static pl_status look_at_waits(struct gpu_device *x, pl_err *err)
{
    const struct program *p = x->dev->prog;
    int most = 0, steps = 0;

    x->event = calloc((size_t)p->n_event + 1, sizeof *x->event);
    if (!x->event)
        return err_no_memory(err, "a device's tables");
    for (int i = 0; i < p->n_variant; i++) {
        int n = 0;

        for (int k = 0; k < p->variant[i].n_insn; k++) {
            const struct insn *st = &p->variant[i].insn[k];

            n += st->kind == INSN_POST;
            for (int j = 0; st->kind == INSN_WAIT && j < wait_count(&st->wait);
                 j++, n++)
                if (wait_event(&st->wait, j).dev == p->dev)
                    x->event[wait_event(&st->wait, j).event].crossed |=
                        is_posted_beside(&p->variant[i],
                                         wait_event(&st->wait, j).event,
                                         st->queue);
        }
        most = n > most ? n : most;
        steps = p->variant[i].n_insn > steps ? p->variant[i].n_insn : steps;
    }
    x->point = calloc((size_t)most + 1, sizeof *x->point);
    x->deferred = calloc((size_t)steps + 1, sizeof *x->deferred);
    return x->point && x->deferred ? PL_OK
                                   : err_no_memory(err, "a device's tables");
}

static pl_status load_tables(struct gpu_device *x, pl_err *err)
{
    struct gpu_tables *t = &x->image.tables;
    void *all = calloc(1, t->bytes + 1);
    pl_status s;

    if (!all)
        return err_no_memory(err, "a device's tables");
    gpu_tables_write(t, all);
    s = gpu_allocate(x, "tables", t->bytes, &x->tables, err);
    if (s == PL_OK)
        s = gpu_stage_write(x, x->tables, all, t->bytes, err);
    free(all);
    x->image.tables_at = x->tables;
    return s;
}

static uint64_t name_hash(const struct gpu_device *x)
{
    char name[256] = "";

    if (x->driver->identity)
        x->driver->identity(x->gpu, name, sizeof name, NULL);
    return hash64(hash64(1, x->driver->name, strlen(x->driver->name)), name,
                  strlen(name));
}

static pl_status check_kernels(struct gpu_device *x,
                               const struct gpu_progress *p, pl_err *err)
{
    bool differs;
    pl_status s = gpu_check(x, x->want, p, &differs, err);

    x->dev->differs = differs ? name_hash(x) | 1 : 0;
    return differs && device_set_options(x->set)->inexact ? PL_OK : s;
}

/* Sets x->want to the kernels that must be compiled and tested, and adds two
 * tasks for each of them, compiling and testing, to p->total. */
static pl_status foresee(struct gpu_device *x, struct gpu_progress *p,
                         pl_err *err)
{
    x->n_want = 0;
    if (x->driver->no_selftest)
        return PL_OK;
    PL_TRY(gpu_list_kernels(x->set, x->dev, x->image.box, x->want, err));
    x->want[GPU_probe] = true;
    for (int k = 0; k < GPU_KERNEL_COUNT; k++)
        x->n_want += x->want[k];
    x->passed = gpu_check_passed(x, x->want);
    p->total += (uint64_t)x->n_want *
                (uint64_t)((x->driver->compile_kernels != NULL) + !x->passed);
    return PL_OK;
}

/* Returns true if all kernels in x->want have passed their self-test by now. An
 * earlier device of the backend may have tested them after x->want was
 * determined. */
static bool passed_since(struct gpu_device *x)
{
    const struct gpu_backend *g = x->dev->backend->own;

    return x != &g->dev[0] && gpu_check_passed(x, x->want);
}

/* Compiles and tests the kernels. Called before memory is allocated, because
 * compilers use device memory. */
static pl_status ready_kernels(struct gpu_device *x, struct gpu_progress *p,
                               pl_err *err)
{
    const struct topology *t = device_set_topology(x->set);

    if (x->n_want == 0)
        return PL_OK;
    if (x->driver->compile_kernels) {
        PL_TRY(x->driver->compile_kernels(x->gpu, x->want,
                                          t ? t->n_core_quota : 1, p, err));
        gpu_tell_done(p, x->n_want);
    }
    x->dev->differs = 0;
    if (!x->passed) {
        if (!passed_since(x))
            PL_TRY(check_kernels(x, p, err));
        gpu_tell_done(p, x->n_want);
    }
    return gpu_pdl_check(x, err);
}

static pl_status load_gpu(struct gpu_device *x, struct gpu_progress *progress,
                          pl_err *err)
{
    struct device *d = x->dev;
    const struct program *p = d->prog;
    size_t own = gpu_image_scratch(p, d->desc.n_unit, QUEUE_COMPUTE);

    PL_TRY(ready_kernels(x, progress, err));
    for (int r = 0; r < REGION_INBOX; r++)
        PL_TRY(gpu_region_load(x, (enum region)r, err));
    PL_TRY(gpu_reach_own(x, err));
    if (own > d->scratch_bytes || d->scratch_bytes >= GPU_SCRATCH_UNKNOWN)
        return err_no_memory(err, "a device's tables");
    PL_TRY(gpu_allocate(x, "scratch", d->scratch_bytes, &x->scratch, err));
    x->image.scratch[QUEUE_COMPUTE] = x->scratch;
    x->image.scratch[QUEUE_COPY] = x->scratch + own;
    x->image.counts = x->driver->counts_groups;
    PL_TRY(gpu_image_init(&x->image, x->set, d, err));
    PL_TRY(load_tables(x, err));
    gpu_image_place(&x->image);
    PL_TRY(look_at_waits(x, err));
    gpu_ahead_load(x);
    if (has_pages(p)) {
        void *at = NULL;

        PL_TRY(x->driver->host_alloc(
            x->gpu,
            (size_t)(PROG_MAX_MICRO * program_token_table_words(p)) *
                sizeof *x->table,
            &at, err));
        x->table = at;
    }
    return PL_OK;
}

pl_status gpu_load(struct backend *b, pl_err *err)
{
    const struct device_options *opt = device_set_options(b->set);
    struct gpu_progress p = {
        .fn = opt->progress, .user = opt->progress_user, .cancel = opt->cancel};
    struct gpu_backend *g = b->own;

    PL_TRY(gpu_ahead_check(err));
    PL_TRY(gpu_peer_load(g, b->n, err));
    for (int i = 0; i < b->n; i++)
        PL_TRY(foresee(&g->dev[i], &p, err));
    gpu_tell(&p, 0);
    for (int i = 0; i < b->n; i++)
        PL_TRY(load_gpu(&g->dev[i], &p, err));
    for (int i = 0; i < b->n; i++)
        gpu_stage_begin(&g->dev[i], b->n + device_set_threads(b->set, b));
    return PL_OK;
}

/* Returns true if the byte at `offset` of region r is in host memory, that is,
 * in the host inbox. */
static bool on_host(const struct gpu_device *x, enum region r, size_t offset)
{
    return r == REGION_INBOX && !gpu_peer_has(x, offset);
}

pl_status gpu_write(struct device *d, enum region r, size_t offset,
                    const void *src, size_t bytes, pl_err *err)
{
    struct gpu_device *x = d->own;

    if (!on_host(x, r, offset))
        return gpu_region_write(x, r, offset, src, bytes, err);
    memcpy(d->at[r] + offset, src, bytes);
    return PL_OK;
}

pl_status gpu_read(struct device *d, enum region r, size_t offset, void *dst,
                   size_t bytes, pl_err *err)
{
    struct gpu_device *x = d->own;

    if (!on_host(x, r, offset))
        return gpu_region_read(x, r, offset, dst, bytes, err);
    memcpy(dst, d->at[r] + offset, bytes);
    return PL_OK;
}

pl_status gpu_flush(struct device *d, pl_err *err)
{
    return gpu_stage_flush(d->own, err);
}

/* ---- execution of a step ------------------------------------------------- */

static void thread_run(void *user, int thread)
{
    struct backend *b = user;
    struct gpu_backend *g = b->own;

    /* the caller's thread, 0, does nothing, because another backend may need
     * it */
    if (thread > 0)
        gpu_run(&g->dev[thread - 1]);
}

void gpu_submit(struct backend *b)
{
    struct gpu_backend *g = b->own;

    for (int i = 0; i < b->n; i++) {
        g->dev[i].run = device_set_current_run(b->set, &g->dev[i].number);
        g->dev[i].n_spin = team_spins(g->team);
    }
    team_begin(g->team, thread_run, b);
}

void gpu_wait(struct backend *b)
{
    struct gpu_backend *g = b->own;

    team_end(g->team, thread_run, b);
}

/* ---- the backends -------------------------------------------------------- */

const struct backend_ops cuda_ops = GPU_KIND(cuda, gpu_cuda, .show = gpu_show);
const struct backend_ops hip_ops = GPU_KIND(hip, gpu_hip, .show = gpu_show);
const struct backend_ops opencl_ops =
    GPU_KIND(opencl, gpu_opencl, .show = gpu_show);

/* The backend `gpu`. It only chooses a driver for each GPU; the devices that it
 * describes belong to the backends of these drivers. */
const struct backend_ops gpu_ops = {
    .name = "gpu",
    .accepts = "gpu (each GPU), gpu:0, gpu*2",
    .numbered = true,
    .describe = gpu_describe,
    .open = gpu_open,
};
