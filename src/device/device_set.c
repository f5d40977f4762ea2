/* Device sets: lifetime, memory and runs. Backends execute instructions
 * (device_ops.h). This file has the parts that are common to all backends, and
 * the checks of arguments before a run. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/err.h"
#include "base/hash64.h"
#include "device/device_inner.h"
#include "device/network.h"
#include "machine/topology.h"
#include "program/program_check.h"

/* ---- lifetime ---------------------------------------------------------- */

/* Checks that each machine of the network has a device. */
static pl_status check_machines(const struct device_list *l, pl_err *err)
{
    int n = l->network ? l->network->n_machine : 1;

    for (int m = 0; m < n; m++) {
        bool any = false;

        for (int i = 0; i < l->n; i++)
            any |= l->dev[i].machine == m;
        if (!any)
            return err_set(err, PL_BAD_ARGUMENT,
                           "machine %d of %d has no device; leave it out", m,
                           n);
    }
    return PL_OK;
}

static pl_status check_list(const struct device_list *l,
                            const struct device_options *opt, pl_err *err)
{
    if (l->n < 1 || l->n > DEVICE_MAX)
        return err_set(err, PL_BAD_ARGUMENT,
                       "%d devices; a device set has 1 to %d", l->n,
                       DEVICE_MAX);
    for (int i = 0; i < l->n; i++)
        if (!l->dev[i].ops->open)
            return err_set(err, PL_BAD_ARGUMENT,
                           "%s is only described (--device-spec): use it with "
                           "plan, not to run",
                           l->dev[i].name);
    PL_TRY(check_machines(l, err));
    if (!kernel_set_runs(opt->kernel_set))
        return err_set(
            err, PL_UNSUPPORTED,
            "this processor cannot run the kernel set %s; its best is %s",
            kernel_set_name(opt->kernel_set),
            kernel_set_name(kernel_set_best()));
    return PL_OK;
}

/* Returns the backend for devices of other machines. The table has one. */
static const struct backend_ops *remote_backend(void)
{
    int i = 0;

    while (!device_backends[i]->serve)
        i++;
    return device_backends[i];
}

/* Returns true if device `dev` is on this process's machine. */
static bool is_here(const struct device_set *s, int dev)
{
    return s->dev[dev].desc.machine == (s->network ? s->network->machine : 0);
}

/* Adds device `dev` to the set's instance of its backend. The first device of a
 * backend creates the instance. Returns false if out of memory. */
static bool add_to_backend(struct device_set *s, int dev)
{
    const struct backend_ops *ops =
        is_here(s, dev) ? s->dev[dev].desc.ops : remote_backend();
    struct backend *b = s->backend;

    while (b < s->backend + s->n_backend && b->ops != ops)
        b++;
    if (b == s->backend + s->n_backend) {
        *b = (struct backend){.ops = ops, .set = s};
        b->dev = malloc((size_t)s->n * sizeof *b->dev);
        if (!b->dev)
            return false;
        s->n_backend++;
    }
    b->dev[b->n++] = dev;
    s->dev[dev].backend = b;
    return true;
}

/* Creates an instance of each backend that the devices have. The backend that
 * uses the caller's thread comes first, because other devices may wait for its
 * devices until that thread works. That of other machines comes last, because
 * its run ends after those of all devices here. Returns false if out of
 * memory. */
static bool make_backends(struct device_set *s)
{
    s->backend = calloc((size_t)s->n, sizeof *s->backend);
    if (!s->backend)
        return false;
    for (int turn = 0; turn < 3; turn++)
        for (int i = 0; i < s->n; i++) {
            int order = !is_here(s, i)                           ? 2
                        : s->dev[i].desc.ops->uses_caller_thread ? 0
                                                                 : 1;

            if (order == turn && !add_to_backend(s, i))
                return false;
        }
    return true;
}

static bool make_devices(struct device_set *s, const struct device_list *l)
{
    if (posix_memalign((void **)&s->dev, _Alignof(struct device_flag),
                       (size_t)l->n * sizeof *s->dev) != 0) {
        s->dev = NULL;
        return false;
    }
    memset(s->dev, 0, (size_t)l->n * sizeof *s->dev);
    s->n = l->n;
    for (int i = 0; i < s->n; i++) {
        s->dev[i].desc = l->dev[i];
        s->dev[i].fail_insn = -1;
    }
    return make_backends(s);
}

pl_status device_set_create(struct device_set **out,
                            const struct device_list *l,
                            const struct device_options *opt, pl_err *err)
{
    struct device_set *s = NULL;
    pl_status st = PL_OK;

    *out = NULL;
    PL_TRY(check_list(l, opt, err));
    s = calloc(1, sizeof *s);
    if (!s)
        return err_no_memory(err, "a device set");
    s->owner = getpid();
    s->opt = *opt;
    s->trace.on = opt->trace;
    s->topology = topology_keep(l->topology);
    s->network = l->network;
    s->shared = topology_share(sizeof *s->shared);
    if (!s->shared || !make_devices(s, l))
        st = err_no_memory(err, "a device set");
    if (st == PL_OK && opt->guard)
        st = device_guard_create(&s->guard, s, err);
    for (int k = 0; k < s->n_backend && st == PL_OK; k++)
        st = s->backend[k].ops->open(&s->backend[k], err);
    if (st == PL_OK)
        *out = s;
    else
        device_set_free(s);
    return st;
}

/* Unloads the programs, backends in reverse order, because a backend may refer
 * to memory of an earlier one. */
static void unload(struct device_set *s)
{
    for (int k = s->n_backend - 1; k >= 0; k--)
        if (s->backend[k].own)
            s->backend[k].ops->unload(&s->backend[k]);
    for (int i = 0; i < s->n; i++) {
        struct device *d = &s->dev[i];

        if (!s->keeps) {
            topology_unshare(d->event, d->event_bytes);
            topology_unshare(d->at[REGION_INBOX], d->bytes[REGION_INBOX]);
        }
        d->event = NULL;
        d->at[REGION_INBOX] = NULL;
        d->prog = NULL;
    }
    s->loaded = s->zeroes = false;
}

void device_set_free(struct device_set *s)
{
    if (!s)
        return;
    unload(s);
    for (int k = 0; k < s->n_backend; k++) {
        s->backend[k].ops->close(&s->backend[k]);
        free(s->backend[k].dev);
    }
    free(s->backend);
    device_trace_unload(s);
    device_guard_free(s->guard);
    topology_unshare(s->shared, sizeof *s->shared);
    topology_drop(s->topology);
    free(s->dev);
    free(s);
}

/* ---- functions for backends ---------------------------------------------- */

struct device *device_of(struct device_set *s, int dev)
{
    return &s->dev[dev];
}

int device_set_size(const struct device_set *s)
{
    return s->n;
}

const struct topology *device_set_topology(const struct device_set *s)
{
    return s->topology;
}

uint64_t device_set_inexact_hash(const struct device_set *s)
{
    uint64_t all = 0;

    for (int i = 0; i < s->n; i++)
        if (s->dev[i].differs)
            all = hash64(all, &s->dev[i].differs, sizeof s->dev[i].differs) | 1;
    return all;
}

const struct device_options *device_set_options(const struct device_set *s)
{
    return &s->opt;
}

int device_set_threads(const struct device_set *s, const struct backend *but)
{
    int n = 0;

    for (int i = 0; i < s->n; i++)
        if (s->dev[i].backend != but && s->dev[i].desc.on_cores &&
            is_here(s, i) && !s->dev[i].desc.io)
            n += s->dev[i].desc.n_thread;
    /* adds a thread for each backend whose devices do not compute on the CPU's
     * cores, because at least one thread serves them */
    for (int k = 0; k < s->n_backend; k++)
        n += &s->backend[k] != but &&
             (!s->dev[s->backend[k].dev[0]].desc.on_cores ||
              s->backend[k].ops->serve);
    return n;
}

struct network *device_set_network(const struct device_set *s)
{
    return s->network;
}

struct backend *device_set_remote(struct device_set *s)
{
    struct backend *last = &s->backend[s->n_backend - 1];

    return last->ops->carry && !device_set_is_copy(s) ? last : NULL;
}

const struct device_run *device_set_current_run(const struct device_set *s,
                                                uint64_t *number)
{
    *number = s->run_number;
    return s->run;
}

void device_set_zero_events(struct device_set *s)
{
    s->zeroes = true;
}

void device_set_quarantine(struct device_set *s)
{
    s->keeps = true;
}

bool device_set_is_quarantined(const struct device_set *s)
{
    return s->keeps || device_set_is_copy(s);
}

bool device_set_is_copy(const struct device_set *s)
{
    return s->owner != getpid();
}

void device_set_inherit(struct device_set *s)
{
    /* Drops only the guard. The topology stays, because releasing it takes a
     * lock that a thread of the parent may have held at the fork. */
    s->guard = NULL;
}

void device_set_adopt(struct device_set *s, const struct device_run *run,
                      uint64_t number)
{
    s->run = run;
    s->run_number = number;
}

const atomic_bool *device_failed(const struct device_set *s)
{
    return &s->shared->failed;
}

void device_fail(struct device_set *s, const struct device *d, int step,
                 const char *what)
{
    pl_err err;

    if (step < 0)
        err_set(&err, PL_DEVICE, "%s: %s", d->desc.name, what);
    else
        err_set(&err, PL_DEVICE, "%s, instruction %d of its program: %s",
                d->desc.name, step, what);
    device_set_fail(s, &err);
}

void device_set_fail(struct device_set *s, const pl_err *err)
{
    struct device_shared *x = s->shared;
    enum device_err none = ERR_NONE;

    if (atomic_compare_exchange_strong(&x->err_state, &none, ERR_WRITING)) {
        x->err = *err;
        atomic_store(&x->err_state, ERR_WRITTEN);
    }
    atomic_store(&x->failed, true);
}

void device_count(struct device *d, const struct insn *st,
                  const struct graph_sizes *z, int64_t rows, double bytes)
{
    if (st->kind == INSN_KERNEL)
        for (int i = 0; i < st->kernel.n_cost; i++)
            d->counts.macs[st->kernel.cost[i].rank] +=
                (uint64_t)(st->kernel.cost[i].macs * rows);
    if (insn_is_collective(st) && st->merge.counted) {
        d->counts.n_collective++;
        d->counts.collective_bytes +=
            (uint64_t)dim_value(st->merge.collective_bytes[0], z) +
            (uint64_t)dim_value(st->merge.collective_bytes[1], z);
    }
    if (insn_is_group_copy(st)) {
        d->counts.copies++;
        d->counts.copy_bytes += (uint64_t)bytes;
    }
}

size_t device_scratch_bytes(const struct device_desc *d, enum kernel_set set,
                            const struct program *p)
{
    const struct device_options opt = {.kernel_set = set};

    return d->ops->scratch(d, &opt, p);
}

/* ---- memory ------------------------------------------------------------ */

static size_t needed(const struct device *d)
{
    size_t n = d->scratch_bytes;

    for (int r = 0; r < REGION_COUNT; r++)
        n += d->bytes[r];
    return n;
}

static pl_status too_little(const struct device *d, const char *whose,
                            size_t all, pl_err *err)
{
    char b[REGION_COUNT][24], scratch[24], need[24], now[24], has[24];

    for (int r = 0; r < REGION_COUNT; r++)
        bytes_text(b[r], d->bytes[r]);
    return err_set(
        err, PL_NO_DEVICE_MEMORY,
        "%s needs %s (%s %s, %s %s, %s %s, scratch %s)%s, but %s of %s is "
        "available; use a shorter context, smaller batches or more devices",
        d->desc.name, bytes_text(need, needed(d)), region_name((enum region)0),
        b[0], region_name((enum region)1), b[1], region_name((enum region)2),
        b[2], bytes_text(scratch, d->scratch_bytes),
        all > needed(d) ? whose : "", bytes_text(now, d->desc.available_bytes),
        bytes_text(has, d->desc.memory_bytes));
}

static pl_status check_memory(const struct device_set *s, pl_err *err)
{
    for (int i = 0; i < s->n; i++) {
        const struct device *d = &s->dev[i];
        size_t all = 0;

        for (int k = 0; k < s->n; k++)
            if (k == i || device_shares_memory(&d->desc, &s->dev[k].desc))
                all += needed(&s->dev[k]);
        if (is_here(s, i) && d->desc.available_bytes > 0 &&
            all > d->desc.available_bytes)
            return too_little(d, " and shares its memory with other devices",
                              all, err);
    }
    return PL_OK;
}

static bool has_kernel(void *user, int dev, const struct insn_kernel *k)
{
    const struct device_set *s = user;
    const struct device *d = &s->dev[dev];

    return d->desc.ops->has_kernel(&d->desc, &s->opt, k, d->prog->tensor);
}

static bool share_threads(void *user, int dev_a, int dev_b)
{
    const struct device_set *s = user;
    const struct backend *b = s->dev[dev_a].backend;

    return b == s->dev[dev_b].backend && b->ops->share_threads &&
           b->ops->share_threads(b, dev_a, dev_b);
}

static pl_status check_programs(struct device_set *s, const struct program *p,
                                pl_err *err)
{
    struct program_machine m = {.n_dev = s->n,
                                .has_kernel = has_kernel,
                                .share_threads = share_threads,
                                .user = s};
    struct program_device *d = calloc((size_t)s->n, sizeof *d);
    pl_status st;

    if (!d)
        return err_no_memory(err, "the check of programs");
    for (int i = 0; i < s->n; i++)
        d[i] = (struct program_device){
            s->dev[i].desc.name,      kernel_set_name(s->opt.kernel_set),
            s->dev[i].desc.memory,    s->dev[i].desc.reads,
            s->dev[i].desc.one_queue, s->dev[i].desc.machine};
    m.dev = d;
    st = program_check(&m, p, err);
    free(d);
    return st;
}

static pl_status take_programs(struct device_set *s, const struct program *p,
                               pl_err *err)
{
    for (int i = 0; i < s->n; i++) {
        struct device *d = &s->dev[i];

        d->prog = &p[i];
        memcpy(d->bytes, p[i].bytes, sizeof d->bytes);
    }
    PL_TRY(check_programs(s, p, err));
    for (int i = 0; i < s->n; i++) {
        struct device *d = &s->dev[i];

        d->scratch_bytes = d->desc.ops->scratch(&d->desc, &s->opt, &p[i]);
        d->event_bytes = (size_t)p[i].n_event * sizeof *d->event;
        d->event = topology_share(d->event_bytes);
        d->at[REGION_INBOX] = topology_share(d->bytes[REGION_INBOX]);
        if (!d->event || !d->at[REGION_INBOX])
            return err_no_memory(err, "a device's inbox");
        device_guard_region(s, d, REGION_INBOX, d->at[REGION_INBOX]);
    }
    return check_memory(s, err);
}

pl_status device_set_load(struct device_set *s, const struct program *p,
                          pl_err *err)
{
    pl_status st;

    unload(s);
    st = take_programs(s, p, err);
    if (st == PL_OK) /* the trace is allocated before backends fork processes,
                        which write to it */
        st = device_trace_load(s, err);
    for (int k = 0; k < s->n_backend && st == PL_OK; k++)
        st = s->backend[k].ops->load(&s->backend[k], err);
    if (st != PL_OK) {
        unload(s);
        return st;
    }
    s->loaded = true;
    return PL_OK;
}

/* Returns PL_OK if the set is loaded and the range lies inside region r of
 * device `dev`. */
static pl_status range(const struct device_set *s, int dev, enum region r,
                       size_t offset, size_t bytes, pl_err *err)
{
    const struct device *d;

    if (!s->loaded || dev < 0 || dev >= s->n || (unsigned)r >= REGION_COUNT)
        return err_set(err, PL_BAD_ARGUMENT,
                       "device %d, region %d: not in the device set", dev,
                       (int)r);
    d = &s->dev[dev];
    if (offset > d->bytes[r] || bytes > d->bytes[r] - offset)
        return err_set(err, PL_BAD_ARGUMENT,
                       "%s: %zu bytes at %zu are outside its %s of %zu bytes",
                       d->desc.name, bytes, offset, region_name(r),
                       d->bytes[r]);
    return PL_OK;
}

pl_status device_write(struct device_set *s, int dev, enum region r,
                       size_t offset, const void *src, size_t bytes,
                       pl_err *err)
{
    PL_TRY(range(s, dev, r, offset, bytes, err));
    return bytes ? s->dev[dev].backend->ops->write(&s->dev[dev], r, offset, src,
                                                   bytes, err)
                 : PL_OK;
}

pl_status device_read(struct device_set *s, int dev, enum region r,
                      size_t offset, void *dst, size_t bytes, pl_err *err)
{
    PL_TRY(range(s, dev, r, offset, bytes, err));
    return bytes ? s->dev[dev].backend->ops->read(&s->dev[dev], r, offset, dst,
                                                  bytes, err)
                 : PL_OK;
}

pl_status device_flush(struct device_set *s, pl_err *err)
{
    for (int i = 0; i < s->n; i++)
        if (s->dev[i].backend->ops->flush)
            PL_TRY(s->dev[i].backend->ops->flush(&s->dev[i], err));
    return PL_OK;
}

void *device_map(struct device_set *s, int dev, enum region r)
{
    if (range(s, dev, r, 0, 0, NULL) != PL_OK || !is_here(s, dev) ||
        s->dev[dev].desc.memory < 0)
        return NULL;
    return s->dev[dev].at[r];
}

/* ---- runs -------------------------------------------------------------- */

static pl_status check_micro(const struct device_set *s,
                             const struct device_run *run, int k, pl_err *err)
{
    const struct graph_sizes *z = &run->sizes[k];

    for (int i = 0; i < s->n; i++) {
        const struct program *p = s->dev[i].prog;

        if (z->n_tok < 0 || z->n_tok > p->max.n_tok || z->n_out < 0 ||
            z->n_out > p->max.n_out)
            return err_set(err, PL_BAD_ARGUMENT,
                           "a step of %lld tokens and %lld outputs; the "
                           "programs allow up to %lld and %lld",
                           (long long)z->n_tok, (long long)z->n_out,
                           (long long)p->max.n_tok, (long long)p->max.n_out);
        if (memcmp(z->n_slot, p->max.n_slot, sizeof z->n_slot) != 0)
            return err_set(
                err, PL_BAD_ARGUMENT,
                "the cache slots of a step are not those of the programs");
        if (z->n_seq < 0 || z->n_seq > p->max.n_seq)
            return err_set(
                err, PL_BAD_ARGUMENT,
                "a step of %lld sequences; the programs allow up to %lld",
                (long long)z->n_seq, (long long)p->max.n_seq);
    }
    return PL_OK;
}

static pl_status check_run(const struct device_set *s,
                           const struct device_run *run, pl_err *err)
{
    const struct program *p = s->dev[0].prog;

    if (!s->loaded)
        return err_set(err, PL_BAD_ARGUMENT,
                       "the device set has no programs yet");
    if (run->variant < 0 || run->variant >= p->n_variant)
        return err_set(err, PL_BAD_ARGUMENT,
                       "variant %d of the programs, which have %d",
                       run->variant, p->n_variant);
    if (run->n_micro < 1 || run->n_micro > p->variant[run->variant].n_micro)
        return err_set(err, PL_BAD_ARGUMENT,
                       "a step of %d micro-batches; the variant has 1 to %d",
                       run->n_micro, p->variant[run->variant].n_micro);
    for (int i = 0; i < run->n_micro; i++) {
        if (run->n_page[i] < 0 || run->n_page[i] > INT32_MAX)
            return err_set(err, PL_BAD_ARGUMENT,
                           "a step of %lld pages; 0 to %d are possible",
                           (long long)run->n_page[i], INT32_MAX);
        PL_TRY(check_micro(s, run, i, err));
    }
    return PL_OK;
}

/* Zeroes all events before a run. A failed run may have released queues that
 * waited for them. */
static void clear_events(struct device_set *s)
{
    for (int i = 0; i < s->n; i++)
        for (int k = 0; k < s->dev[i].prog->n_event; k++)
            atomic_store(&s->dev[i].event[k].v, 0);
}

pl_status device_set_submit(struct device_set *s, const struct device_run *run,
                            pl_err *err)
{
    PL_TRY(check_run(s, run, err));
    PL_TRY(device_flush(s, err));
    s->run = run;
    s->run_number++;
    if (s->zeroes || atomic_load(&s->shared->failed))
        clear_events(s);
    atomic_store(&s->shared->failed, false);
    atomic_store(&s->shared->err_state, ERR_NONE);
    device_trace_start(s);
    for (int k = 0; k < s->n_backend; k++)
        s->backend[k].ops->submit(&s->backend[k]);
    return PL_OK;
}

bool device_set_failure(const struct device_set *s, pl_err *err)
{
    bool written = atomic_load(&s->shared->err_state) == ERR_WRITTEN;

    if (written)
        *err = s->shared->err;
    if (!written || err->message[0] == '\0')
        err_set(err, PL_DEVICE, "a device was lost");
    err->status = PL_DEVICE;
    return written;
}

pl_status device_set_wait(struct device_set *s, pl_err *err)
{
    for (int k = 0; k < s->n_backend; k++)
        s->backend[k].ops->wait(&s->backend[k]);
    s->run = NULL;
    if (s->guard)
        device_guard_open(s);
    for (int k = 0; k < s->n_backend; k++)
        if (s->backend[k].ops->ended)
            s->backend[k].ops->ended(&s->backend[k]);
    s->run_s += device_clock(s);
    device_trace_end(s, atomic_load(&s->shared->failed));
    if (atomic_load(&s->shared->failed)) {
        if (err)
            device_set_failure(s, err);
        return PL_DEVICE;
    }
    s->n_run++;
    return PL_OK;
}

pl_status device_set_await(struct device_set *s, pl_err *err)
{
    int m = 0;

    for (int i = 0; i < s->n; i++) {
        struct device *d = &s->dev[i];

        if (!is_here(s, i) && d->desc.machine > m) {
            m = d->desc.machine;
            PL_TRY(d->backend->ops->read(d, REGION_INBOX, 0, NULL, 0, err));
        }
    }
    return PL_OK;
}

pl_status device_set_serve(struct device_set *s, pl_err *err)
{
    /* The last device is io, which is on machine 0. */
    for (int k = 0; k < s->n_backend; k++)
        if (s->backend[k].ops->serve && s->loaded && !is_here(s, s->n - 1))
            return s->backend[k].ops->serve(&s->backend[k], err);
    return err_set(err, PL_BAD_ARGUMENT,
                   "only a machine other than 0 serves, after it has loaded "
                   "its programs");
}

pl_status device_set_run(struct device_set *s, const struct device_run *run,
                         pl_err *err)
{
    PL_TRY(device_set_submit(s, run, err));
    return device_set_wait(s, err);
}

void device_set_device(const struct device_set *s, int dev,
                       pl_device_counters *c)
{
    const struct device *d = &s->dev[dev];
    const struct device_times *x = &d->counts.spent;
    bool beside = !d->desc.one_queue;
    double wait = s->run_s - x->busy_s - x->reduce_s - (beside ? 0 : x->copy_s);

    *c = (pl_device_counters){.name = d->desc.name,
                              .step_s = s->run_s,
                              .busy_s = x->busy_s,
                              .reduce_s = x->reduce_s,
                              .wait_s = wait > 0 ? wait : 0,
                              .copy_s = x->copy_s,
                              .copy_bytes = d->counts.copy_bytes,
                              .beside = beside,
                              .whole = d->desc.ops->driver != NULL};
}

pl_device_traffic device_set_traffic(const struct device_set *s, int dev)
{
    const struct device *d = &s->dev[dev];

    return (pl_device_traffic){.messages = d->counts.sent_messages,
                               .bytes = d->counts.sent_bytes,
                               .machine = d->desc.machine};
}

void device_set_counters(const struct device_set *s, pl_counters *c)
{
    for (int i = 0; i < s->n; i++) {
        const struct device *d = &s->dev[i];

        for (int r = 0; r < PL_MAX_RANKS; r++)
            c->macs[r] += d->counts.macs[r];
        c->messages += d->counts.n_collective;
        c->message_bytes += d->counts.collective_bytes;
        c->copies += d->counts.copies;
        c->copy_bytes += d->counts.copy_bytes;
    }
    c->steps += s->n_run;
}
