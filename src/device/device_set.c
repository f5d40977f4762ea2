/* A set of devices: its life, its memory and its runs. Which step runs when is
 * the kinds' affair (cpu/cpu_run.c, sim/sim_run.c); here are only what all
 * kinds share and the checks that keep a run from failing.
 *
 * One team of threads serves the set: those of cpu devices, then one that plays
 * all sim devices. The caller's thread is the first of them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/err.h"
#include "device/device_inner.h"

static const char *const region_name[REGION_COUNT] = {
    [REGION_WEIGHTS] = "weights",
    [REGION_CACHE] = "cache",
    [REGION_WORK] = "buffers",
};

enum { POISON = 0xFF };    /* NaN in every float format, -1 as an integer */
#define ALL ((uint32_t)-1) /* instances */

/* ---- life -------------------------------------------------------------- */

static pl_status check_list(const struct device_list *l,
                            const struct device_options *opt, pl_err *err)
{
    if (l->n < 1 || l->n > DEVICE_MAX)
        return err_set(err, PL_BAD_ARGUMENT, "%d devices; a set has 1 to %d",
                       l->n, DEVICE_MAX);
    for (int i = 0; i < l->n; i++)
        if (l->dev[i].kind == DEVICE_PAPER)
            return err_set(err, PL_BAD_ARGUMENT,
                           "%s is only described (--device-spec): it can be "
                           "planned for, not run on",
                           l->dev[i].name);
    if (!cpu_family_runs(opt->family))
        return err_set(err, PL_UNSUPPORTED,
                       "this machine cannot run the %s kernels; %s is its "
                       "best family",
                       cpu_family_name(opt->family),
                       cpu_family_name(cpu_family_best()));
    return PL_OK;
}

/* First touch by pinned threads is enough on one node. Without hwloc's help it
 * must be enough on several. */
static void load_topology(struct device_set *s)
{
    int node = -1;

    for (int i = 0; i < s->n; i++) {
        const struct device_desc *d = &s->dev[i].desc;

        if (d->kind != DEVICE_CPU || d->numa_node < 0)
            continue;
        if (node >= 0 && d->numa_node != node) {
            topology_load(&s->topology, NULL);
            return;
        }
        node = d->numa_node;
    }
}

pl_status device_set_create(struct device_set **out,
                            const struct device_list *l,
                            const struct device_options *opt, pl_err *err)
{
    struct device_set *s = NULL;
    pl_status st;

    *out = NULL;
    PL_TRY(check_list(l, opt, err));
    s = calloc(1, sizeof *s);
    if (!s)
        return err_no_memory(err, "a set of devices");
    atomic_init(&s->failed, false);
    if (posix_memalign((void **)&s->dev, _Alignof(struct device),
                       (size_t)l->n * sizeof *s->dev) != 0) {
        s->dev = NULL;
        st = err_no_memory(err, "a set of devices");
        goto done;
    }
    memset(s->dev, 0, (size_t)l->n * sizeof *s->dev);
    s->n = l->n;
    for (int i = 0; i < s->n; i++) {
        s->dev[i].desc = l->dev[i];
        s->dev[i].fail_step = -1;
        s->n_cpu += l->dev[i].kind == DEVICE_CPU;
    }
    s->n_player = sim_players(s);
    cpu_kernels_init(&s->kernels, opt->family);
    load_topology(s);
    s->one_node = topology_one_node();
    s->trace.on = opt->trace;
    st = device_seats_fill(s, opt->no_pin, err);
    if (st == PL_OK && opt->guard)
        st = device_guard_create(&s->guard, s, err);
    if (st == PL_OK && s->n_cpu < s->n)
        st = sim_create(&s->sim, s, opt->sim_seed, err);
done:
    if (st == PL_OK)
        *out = s;
    else
        device_set_free(s);
    return st;
}

static void unload(struct device_set *s)
{
    for (int i = 0; i < s->n; i++) {
        struct device *d = &s->dev[i];

        for (int r = 0; r < REGION_COUNT; r++)
            if (s->guard)
                device_guard_dealloc(d->base[r], d->bytes[r]);
            else
                topology_free(d->base[r], d->bytes[r]);
        topology_free(d->scratch, d->scratch_bytes);
        free(d->tensor);
        free(d->event);
        free(d->arrived);
        memset(d->base, 0, sizeof d->base);
        d->scratch = NULL;
        d->tensor = NULL;
        d->event = d->arrived = NULL;
        d->prog = NULL;
    }
    s->loaded = false;
}

void device_set_free(struct device_set *s)
{
    if (!s)
        return;
    cpu_team_free(s->team);
    unload(s);
    sim_free(s->sim);
    topology_fini(&s->topology);
    free(s->seats);
    free(s->trace.event);
    device_guard_free(s->guard);
    free(s->dev);
    free(s);
}

const struct cpu_kernels *device_set_kernels(const struct device_set *s)
{
    return &s->kernels;
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
    char b[REGION_COUNT][24], scratch[24], need[24], has[24];

    for (int r = 0; r < REGION_COUNT; r++)
        bytes_text(b[r], d->bytes[r]);
    return err_set(
        err, PL_NO_DEVICE_MEMORY,
        "%s needs %s (%s %s, %s %s, %s %s, scratch %s)%s, of %s it "
        "has; use a shorter context, smaller batches or more devices",
        d->desc.name, bytes_text(need, needed(d)), region_name[0], b[0],
        region_name[1], b[1], region_name[2], b[2],
        bytes_text(scratch, d->scratch_bytes), all > needed(d) ? whose : "",
        bytes_text(has, d->desc.memory_bytes));
}

static pl_status not_given(const struct device *d, const char *what,
                           size_t bytes, pl_err *err)
{
    char buf[24];

    return err_set(err, PL_NO_DEVICE_MEMORY,
                   "%s: the system does not give %s for %s", d->desc.name,
                   bytes_text(buf, bytes), what);
}

static pl_status check_memory(const struct device_set *s, pl_err *err)
{
    for (int i = 0; i < s->n; i++) {
        const struct device *d = &s->dev[i];
        size_t all = 0;

        for (int k = 0; k < s->n; k++)
            if (k == i || device_shares_memory(&d->desc, &s->dev[k].desc))
                all += needed(&s->dev[k]);
        if (d->desc.memory_bytes > 0 && all > d->desc.memory_bytes)
            return too_little(d, " beside others in the same memory", all, err);
    }
    return PL_OK;
}

static struct cpu_flag *flags_new(int n)
{
    void *p;
    size_t bytes = (size_t)(n > 0 ? n : 1) * sizeof(struct cpu_flag);

    if (posix_memalign(&p, _Alignof(struct cpu_flag), bytes) != 0)
        return NULL;
    memset(p, 0, bytes);
    return p;
}

static pl_status allocate(struct device_set *s, struct device *d, pl_err *err)
{
    const struct topology *t = s->topology.hw ? &s->topology : NULL;
    const struct program *p = d->prog;
    int node = d->desc.kind == DEVICE_CPU ? d->desc.numa_node : -1;

    d->tensor = calloc((size_t)p->n_tensor + 1, sizeof *d->tensor);
    d->event = flags_new(p->n_event);
    d->arrived = flags_new(d->desc.n_thread);
    if (!d->tensor || !d->event || !d->arrived)
        return err_no_memory(err, "a device's tables");
    for (int r = 0; r < REGION_COUNT; r++) {
        d->base[r] = s->guard ? device_guard_alloc(d->bytes[r])
                              : topology_alloc(t, node, d->bytes[r]);
        if (!d->base[r])
            return not_given(d, region_name[r], d->bytes[r], err);
    }
    d->scratch = topology_alloc(t, node, d->scratch_bytes);
    if (!d->scratch)
        return not_given(d, "scratch", d->scratch_bytes, err);
    for (int i = 0; i < p->n_tensor; i++)
        d->tensor[i].data = d->base[p->tensor[i].region] + p->tensor[i].offset;
    return PL_OK;
}

/* Part ith of nth of some zeroed memory gets its pages. */
static void touch(unsigned char *p, size_t bytes, int ith, int nth)
{
    size_t page = 4096, n = (bytes + page - 1) / page;
    size_t hi = n * (size_t)(ith + 1) / (size_t)nth;

    for (size_t i = n * (size_t)ith / (size_t)nth; i < hi; i++)
        *(volatile unsigned char *)(p + i * page) = 0;
}

/* Weights get their pages as they are loaded, which finds the system's zeros
 * still in the caches, unless it matters who touches them. */
static void prepare(void *user, int member)
{
    struct device_set *s = user;
    const struct member_seats *m = &s->seats[member];

    for (int i = 0; i < m->n; i++) {
        struct device *d = &s->dev[m->seat[i].dev];
        int ith = m->seat[i].ith, nth = d->desc.n_thread;

        for (int r = 0; r < REGION_COUNT; r++)
            if (r != REGION_WEIGHTS || !s->one_node)
                touch(d->base[r], d->bytes[r], ith, nth);
        touch(d->scratch, d->scratch_bytes, ith, nth);
    }
    for (int i = 0; m->n == 0 && m->player == 0 && i < s->n; i++) {
        struct device *d = &s->dev[i];

        if (d->desc.kind != DEVICE_SIM)
            continue;
        for (int r = 0; r < REGION_COUNT; r++)
            memset(d->base[r], POISON, d->bytes[r]);
        memset(d->scratch, POISON, d->scratch_bytes);
    }
}

pl_status device_set_load(struct device_set *s, const struct program *p,
                          pl_err *err)
{
    pl_status st;

    unload(s);
    PL_TRY(program_check(s, p, err));
    for (int i = 0; i < s->n; i++) {
        struct device *d = &s->dev[i];

        d->prog = &p[i];
        memcpy(d->bytes, p[i].bytes, sizeof d->bytes);
        d->scratch_bytes = device_scratch_bytes(&d->desc, &s->kernels, &p[i]);
        d->scratch_stride = d->desc.kind == DEVICE_CPU
                                ? d->scratch_bytes / (size_t)d->desc.n_thread
                                : d->scratch_bytes;
    }
    st = check_memory(s, err);
    for (int i = 0; i < s->n && st == PL_OK; i++)
        st = allocate(s, &s->dev[i], err);
    if (st == PL_OK && s->sim)
        st = sim_load(s, err);
    if (st == PL_OK)
        st = device_trace_load(s, err);
    if (st != PL_OK) {
        unload(s);
        return st;
    }
    cpu_team_run(s->team, prepare, s);
    s->resize = ALL;
    memset(s->sizes, 0, sizeof s->sizes);
    s->loaded = true;
    return PL_OK;
}

/* Memory of a region, if the range lies in it. */
static pl_status range(const struct device_set *s, int dev, enum region r,
                       size_t offset, size_t bytes, unsigned char **p,
                       pl_err *err)
{
    const struct device *d;

    *p = NULL;
    if (!s->loaded || dev < 0 || dev >= s->n || (unsigned)r >= REGION_COUNT)
        return err_set(err, PL_BAD_ARGUMENT,
                       "device %d, region %d: the set has no such memory", dev,
                       (int)r);
    d = &s->dev[dev];
    if (offset > d->bytes[r] || bytes > d->bytes[r] - offset)
        return err_set(err, PL_BAD_ARGUMENT,
                       "%s: %zu bytes at %zu are not inside its %s of %zu "
                       "bytes",
                       d->desc.name, bytes, offset, region_name[r],
                       d->bytes[r]);
    *p = d->base[r] + offset;
    return PL_OK;
}

pl_status device_write(struct device_set *s, int dev, enum region r,
                       size_t offset, const void *src, size_t bytes,
                       pl_err *err)
{
    unsigned char *p;

    PL_TRY(range(s, dev, r, offset, bytes, &p, err));
    if (s->dev[dev].desc.kind == DEVICE_SIM)
        sim_link(&s->dev[dev].desc, bytes);
    if (bytes > 0)
        memcpy(p, src, bytes);
    return PL_OK;
}

pl_status device_read(struct device_set *s, int dev, enum region r,
                      size_t offset, void *dst, size_t bytes, pl_err *err)
{
    unsigned char *p;

    PL_TRY(range(s, dev, r, offset, bytes, &p, err));
    if (s->dev[dev].desc.kind == DEVICE_SIM)
        sim_link(&s->dev[dev].desc, bytes);
    if (bytes > 0)
        memcpy(dst, p, bytes);
    return PL_OK;
}

void *device_map(struct device_set *s, int dev, enum region r)
{
    unsigned char *p;

    if (range(s, dev, r, 0, 0, &p, NULL) != PL_OK ||
        s->dev[dev].desc.kind != DEVICE_CPU)
        return NULL;
    return p;
}

/* ---- runs -------------------------------------------------------------- */

void device_fail(struct device_set *s, const struct device *d, int step,
                 const char *what)
{
    if (!atomic_flag_test_and_set(&s->err_taken))
        err_set(&s->err, PL_DEVICE, "%s, step %d of its program: %s",
                d->desc.name, step, what);
    atomic_store(&s->failed, true);
}

static pl_status check_instance(const struct device_set *s,
                                const struct device_run *run, int k,
                                pl_err *err)
{
    const struct graph_sizes *z = &run->sizes[k];
    const struct cpu_batch *b = &run->batch[k];

    for (int i = 0; i < s->n; i++) {
        const struct program *p = s->dev[i].prog;

        if (z->n_tok < 0 || z->n_tok > p->max.n_tok || z->n_out < 0 ||
            z->n_out > p->max.n_out || z->n_slot != p->max.n_slot)
            return err_set(err, PL_BAD_ARGUMENT,
                           "a step of %lld tokens, %lld outputs and %lld "
                           "slots; the programs are made for %lld, %lld and "
                           "%lld",
                           (long long)z->n_tok, (long long)z->n_out,
                           (long long)z->n_slot, (long long)p->max.n_tok,
                           (long long)p->max.n_out, (long long)p->max.n_slot);
        if (b->pages && (run->n_seq < 0 || run->n_seq > p->n_seq ||
                         b->page_stride < 0 || b->page_stride > p->page_stride))
            return err_set(err, PL_BAD_ARGUMENT,
                           "a step of %d sequences of %lld pages; the "
                           "programs are made for %d of %d",
                           run->n_seq, (long long)b->page_stride, p->n_seq,
                           p->page_stride);
    }
    return PL_OK;
}

static pl_status check_run(const struct device_set *s,
                           const struct device_run *run, pl_err *err)
{
    const struct program *p = s->dev[0].prog;

    if (!s->loaded)
        return err_set(err, PL_BAD_ARGUMENT,
                       "the set of devices has no programs yet");
    if (run->script < 0 || run->script >= p->n_script)
        return err_set(err, PL_BAD_ARGUMENT,
                       "script %d of the programs, which have %d", run->script,
                       p->n_script);
    if (run->n_instance < 1 ||
        run->n_instance > p->script[run->script].n_instance)
        return err_set(err, PL_BAD_ARGUMENT,
                       "a step of %d micro-batches; the script has 1 to %d",
                       run->n_instance, p->script[run->script].n_instance);
    for (int i = 0; i < run->n_instance; i++)
        PL_TRY(check_instance(s, run, i, err));
    return PL_OK;
}

static void member_run(void *user, int member)
{
    struct device_set *s = user;
    const struct member_seats *m = &s->seats[member];

    if (m->n == 0)
        sim_run(s, m->player);
    else
        cpu_run(s, m);
}

pl_status device_set_run(struct device_set *s, const struct device_run *run,
                         pl_err *err)
{
    PL_TRY(check_run(s, run, err));
    s->run = run;
    s->turn++;
    for (int i = 0; i < run->n_instance; i++) {
        const struct graph_sizes *z = &run->sizes[i];

        if (z->n_tok != s->sizes[i].n_tok || z->n_out != s->sizes[i].n_out ||
            z->n_slot != s->sizes[i].n_slot)
            s->resize |= (uint32_t)1 << i;
        s->sizes[i] = *z;
    }
    atomic_store(&s->failed, false);
    atomic_flag_clear(&s->err_taken);
    for (int i = 0; i < s->n; i++)
        memcpy(s->dev[i].batch, run->batch,
               (size_t)run->n_instance * sizeof run->batch[0]);
    device_trace_start(s);
    cpu_team_run(s->team, member_run, s);
    s->run = NULL;
    if (s->guard)
        device_guard_open(s);
    device_trace_end(s, atomic_load(&s->failed));
    if (atomic_load(&s->failed)) {
        s->resize = ALL; /* who left early may have kept the old sizes */
        if (err)
            *err = s->err;
        return s->err.status;
    }
    if (s->sim)
        sim_end(s);
    s->resize = 0;
    s->n_run++;
    return PL_OK;
}

void device_set_counters(const struct device_set *s, pl_counters *c)
{
    for (int i = 0; i < s->n; i++) {
        const struct device *d = &s->dev[i];

        for (int r = 0; r < PL_MAX_RANKS; r++)
            c->macs[r] += d->macs[r];
        c->messages += d->messages;
        c->message_bytes += d->message_bytes;
        c->copies += d->copies;
        c->copy_bytes += d->copy_bytes;
    }
    c->steps += s->n_run;
}
