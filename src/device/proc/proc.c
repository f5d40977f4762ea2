/* The backend proc: like cpu, but each device is a child process, forked when
 * programs are loaded, with its own threads and memory.
 *
 * It resembles a device on another host or on an accelerator card. Other
 * devices cannot read its memory, the host accesses its memory through a pipe,
 * and the device may be lost at any moment. The child executes programs as a
 * cpu device (proc_child.c). Kernels of the application (custom ops) run in the
 * child too, so their side effects are not visible in this process.
 *
 * Children are ended by SIGKILL. That also ends a child that hangs, and
 * children have nothing to clean up. */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "device/device_spec.h"
#include "device/proc/proc_inner.h"
#include "machine/topology.h"

/* ---- capabilities -------------------------------------------------------- */

static pl_status describe(struct device_list *l, const struct device_item *it,
                          pl_err *err)
{
    int first = l->n;

    PL_TRY(cpu_ops.describe(l, it, err));
    for (int i = first; i < l->n; i++) {
        l->dev[i].ops = &proc_ops;
        l->dev[i].memory = -1;
    }
    return PL_OK;
}

static enum packing packing(const struct device_desc *d, pl_format f,
                            enum weight_use use)
{
    return cpu_ops.packing(d, f, use);
}

static enum activations activations(const struct device_desc *d,
                                    const struct device_options *opt,
                                    pl_format f)
{
    return cpu_ops.activations(d, opt, f);
}

static bool has_kernel(const struct device_desc *d,
                       const struct device_options *opt,
                       const struct insn_kernel *k, const struct prog_tensor *t)
{
    return cpu_ops.has_kernel(d, opt, k, t);
}

static size_t scratch(const struct device_desc *d,
                      const struct device_options *opt, const struct program *p)
{
    return cpu_ops.scratch(d, opt, p);
}

/* ---- backend ------------------------------------------------------------- */

static void close_backend(struct backend *b)
{
    struct proc_backend *p = b->own;

    if (!p)
        return;
    for (int i = 0; i < p->n; i++)
        pthread_mutex_destroy(&p->dev[i].stream);
    pthread_mutex_destroy(&p->lock);
    free(p->poll);
    free(p->dev);
    free(p);
    b->own = NULL;
}

static pl_status open_backend(struct backend *b, pl_err *err)
{
    struct proc_backend *p = calloc(1, sizeof *p);

    if (!p)
        return err_no_memory(err, "a device set");
    b->own = p;
    pthread_mutex_init(&p->lock, NULL);
    p->set = b->set;
    p->owner = getpid();
    p->dev = calloc((size_t)b->n, sizeof *p->dev);
    p->poll = calloc((size_t)b->n, sizeof *p->poll);
    if (!p->dev || !p->poll)
        return err_no_memory(err, "a device set");
    p->n = b->n;
    for (int i = 0; i < p->n; i++)
        pthread_mutex_init(&p->dev[i].stream, NULL);
    return PL_OK;
}

bool proc_crowded(const struct device_set *s, int n)
{
    cpu_set_t set;

    return sched_getaffinity(0, sizeof set, &set) == 0 &&
           CPU_COUNT(&set) < device_set_threads(s, NULL) + n;
}

/* ---- processes ----------------------------------------------------------- */

/* Forks with all signals blocked, so that no handler of the application runs in
 * the child. */
static pid_t fork_child(struct device_set *s, int dev, struct proc_pipe *pipe)
{
    pid_t parent = getpid(), pid;
    sigset_t all, before;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pid = fork();
    if (pid == 0)
        proc_child(s, dev, pipe, parent);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return pid;
}

static pl_status start(struct proc_backend *b, int i, int dev, pl_err *err)
{
    struct proc_device *p = &b->dev[i];
    pid_t pid;

    p->d = device_of(b->set, dev);
    p->d->own = p;
    p->pipe = topology_share(sizeof *p->pipe);
    if (!p->pipe)
        return err_no_memory(err, "a device's process");
    p->end = (struct proc_end){.out = &p->pipe->to_child,
                               .in = &p->pipe->to_parent,
                               .gone = &p->gone,
                               .awake_ns = 80 * 1000};
    if (proc_crowded(b->set, 1))
        p->end.awake_ns = 0;
    atomic_store(&p->gone, false);
    pid = fork_child(b->set, dev, p->pipe);
    if (pid < 0)
        return err_set(err, errno == ENOMEM ? PL_NO_MEMORY : PL_DEVICE,
                       "%s: its process could not be started: %s; %s",
                       p->d->desc.name, strerror(errno), proc_remedy(errno));
    return proc_take(p, pid, err);
}

/* Returns the error of a device whose child process has ended. */
static pl_status lost(const struct proc_device *p, pl_err *err)
{
    return err_set(err, PL_DEVICE, "%s: %s", p->d->desc.name, p->how);
}

static void unload(struct backend *b)
{
    struct proc_backend *p = b->own;

    proc_end_all(p);
    for (int i = 0; i < p->n; i++) {
        topology_unshare(p->dev[i].pipe, sizeof *p->dev[i].pipe);
        p->dev[i].pipe = NULL;
    }
}

static pl_status load(struct backend *b, pl_err *err)
{
    struct proc_backend *p = b->own;
    pl_status st = PL_OK;

    for (int i = 0; i < p->n; i++)
        PL_TRY(start(p, i, b->dev[i], err));
    PL_TRY(proc_watch(p, err));
    for (int i = 0; i < p->n; i++) {
        struct proc_loaded l;

        if (!proc_receive(&p->dev[i].end, &l, sizeof l)) {
            if (st == PL_OK)
                st = lost(&p->dev[i], err);
        } else if (l.status != PL_OK && st == PL_OK) {
            st = l.status;
            if (err)
                *err = l.err;
        }
    }
    return st;
}

/* ---- memory --------------------------------------------------------------
 *
 * The inbox is shared memory and is written directly. It is not written through
 * the pipe, because bytes still in the pipe could later overwrite what peers
 * have pushed. The other regions are accessed by the child only. It executes
 * orders one after another, so a step or a read comes after all earlier
 * writes. */

static pl_status put(struct device *d, enum region r, size_t offset,
                     const void *src, size_t bytes, pl_err *err)
{
    struct proc_device *p = d->own;
    const struct proc_order o = {
        .verb = PROC_WRITE, .region = r, .offset = offset, .bytes = bytes};
    bool sent;

    if (r == REGION_INBOX) {
        memcpy(d->at[r] + offset, src, bytes);
        return PL_OK;
    }
    pthread_mutex_lock(&p->stream);
    sent = proc_send(&p->end, &o, sizeof o) && proc_send(&p->end, src, bytes);
    pthread_mutex_unlock(&p->stream);
    return sent ? PL_OK : lost(p, err);
}

static pl_status get(struct device *d, enum region r, size_t offset, void *dst,
                     size_t bytes, pl_err *err)
{
    struct proc_device *p = d->own;
    const struct proc_order o = {
        .verb = PROC_READ, .region = r, .offset = offset, .bytes = bytes};
    bool received;

    if (r == REGION_INBOX) {
        memcpy(dst, d->at[r] + offset, bytes);
        return PL_OK;
    }
    pthread_mutex_lock(&p->stream);
    received =
        proc_send(&p->end, &o, sizeof o) && proc_receive(&p->end, dst, bytes);
    pthread_mutex_unlock(&p->stream);
    return received ? PL_OK : lost(p, err);
}

/* Returns an error if the child has ended. Flushes nothing, because the child
 * executes orders one after another. */
static pl_status flush(struct device *d, pl_err *err)
{
    const struct proc_device *p = d->own;

    return atomic_load(&p->gone) ? lost(p, err) : PL_OK;
}

/* ---- execution of a step ------------------------------------------------- */

static bool send_run(struct proc_device *p, const struct device_run *run,
                     uint64_t number)
{
    const struct proc_order o = {
        .verb = PROC_RUN, .run_number = number, .fail_insn = p->d->fail_insn};

    return proc_send(&p->end, &o, sizeof o) &&
           proc_send(&p->end, run, sizeof *run);
}

static void submit(struct backend *b)
{
    struct proc_backend *p = b->own;
    uint64_t number;
    const struct device_run *run = device_set_current_run(b->set, &number);

    proc_run_begins(p);
    for (int i = 0; i < p->n; i++)
        p->dev[i].asked = !atomic_load(device_failed(b->set)) &&
                          send_run(&p->dev[i], run, number);
}

static void await_all(struct backend *b)
{
    struct proc_backend *p = b->own;

    for (int i = 0; i < p->n; i++) {
        struct proc_done done;

        if (!p->dev[i].asked ||
            !proc_receive(&p->dev[i].end, &done, sizeof done))
            continue;
        p->dev[i].d->n_timing = done.n_timing;
        p->dev[i].d->counts = done.counts;
    }
    proc_run_ends(p);
}

const struct backend_ops proc_ops = {
    .name = "proc",
    .accepts = "proc, proc*N, proc:0-3+8-11 (as cpu, each device a process)",
    .wakes_waiters = true,
    .describe = describe,
    .has_kernel = has_kernel,
    .packing = packing,
    .activations = activations,
    .scratch = scratch,
    .open = open_backend,
    .close = close_backend,
    .load = load,
    .unload = unload,
    .write = put,
    .read = get,
    .flush = flush,
    .submit = submit,
    .wait = await_all,
};
