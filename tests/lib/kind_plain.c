/* A whole backend: memory of its own, and a thread per device that runs the
 * instructions of its variant one after another. doc/adding.md explains it.
 *
 * Its kernels are those of this machine's processors, and cpu_image.h lays out
 * the tensors of a program in its memory. A backend with its own kernels
 * replaces these two; every backend needs the rest. It copies in program order
 * and overlaps nothing with computation. */
#include "lib/kind_plain.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "device/cpu/cpu_image.h"
#include "device/device_spec.h"

/* State of one device while the backend is open. */
struct plain_device {
    struct cpu_image image; /* first field; owns all regions but the inbox */
    struct device *dev;
    unsigned char *scratch; /* scratch of the kernels, owned */
    pthread_t thread;       /* thread that executes the step in progress */
    bool started;           /* true while `thread` exists */
};

struct plain_bank {
    struct cpu_kernels kernels;
    struct plain_device dev[]; /* [n] devices, in the order of the set */
};

/* ---- before anything is opened ----------------------------------------- */

static pl_status describe(struct device_list *l, const struct device_item *it,
                          pl_err *err)
{
    const struct device_desc d = {.ops = &plain_ops,
                                  .n_thread = 1,
                                  .numa_node = -1,
                                  .memory = -1,  /* memory of its own */
                                  .reads = true, /* the host's memory */
                                  .one_queue =
                                      true}; /* copies do not overlap */
    double v[DEVICE_FIGURES];

    PL_TRY(device_item_read(it, 1u << DEVICE_MEMORY, v, NULL, err));
    return device_item_append(l, it, &d, v, err);
}

static size_t scratch(const struct device_desc *d,
                      const struct device_options *opt, const struct program *p)
{
    (void)d;
    return cpu_image_parts_scratch(opt, p);
}

/* ---- a backend --------------------------------------------------------- */

static pl_status open_bank(struct backend *b, pl_err *err)
{
    struct plain_bank *p =
        calloc(1, sizeof *p + (size_t)b->n * sizeof p->dev[0]);

    b->own = p;
    if (!p)
        return err_no_memory(err, "plain devices");
    cpu_kernels_choose(&p->kernels, device_set_options(b->set));
    for (int i = 0; i < b->n; i++) {
        p->dev[i].dev = device_of(b->set, b->dev[i]);
        p->dev[i].dev->own = &p->dev[i];
    }
    return PL_OK;
}

static void close_bank(struct backend *b)
{
    free(b->own);
    b->own = NULL;
}

static void unload(struct backend *b)
{
    struct plain_bank *p = b->own;

    for (int i = 0; i < b->n; i++) {
        struct plain_device *x = &p->dev[i];

        for (int r = 0; r < REGION_INBOX; r++)
            device_guard_dealloc(x->image.base[r], x->dev->bytes[r]);
        memset(x->image.base, 0, sizeof x->image.base);
        device_guard_dealloc(x->scratch, x->dev->scratch_bytes);
        x->scratch = NULL;
        cpu_image_fini(&x->image);
    }
}

static pl_status load_device(struct plain_device *x, const struct plain_bank *p,
                             pl_err *err)
{
    struct device *d = x->dev;
    struct device_set *s = d->backend->set;

    for (int r = 0; r < REGION_INBOX; r++) {
        x->image.base[r] = device_guard_alloc(d->bytes[r]);
        if (!x->image.base[r])
            return err_no_memory(err, "a device's regions");
        device_guard_region(s, d, (enum region)r, x->image.base[r]);
    }
    x->image.base[REGION_INBOX] = d->at[REGION_INBOX];
    x->scratch = device_guard_alloc(d->scratch_bytes);
    if (!x->scratch)
        return err_no_memory(err, "a device's scratch");
    return cpu_image_init(&x->image, s, d, &p->kernels, err);
}

static pl_status load(struct backend *b, pl_err *err)
{
    struct plain_bank *p = b->own;

    for (int i = 0; i < b->n; i++)
        PL_TRY(load_device(&p->dev[i], p, err));
    return PL_OK;
}

static pl_status put(struct device *d, enum region r, size_t offset,
                     const void *src, size_t bytes, pl_err *err)
{
    const struct plain_device *x = d->own;

    (void)err;
    memcpy(x->image.base[r] + offset, src, bytes);
    return PL_OK;
}

static pl_status get(struct device *d, enum region r, size_t offset, void *dst,
                     size_t bytes, pl_err *err)
{
    const struct plain_device *x = d->own;

    (void)err;
    memcpy(dst, x->image.base[r] + offset, bytes);
    return PL_OK;
}

/* ---- a step ------------------------------------------------------------ */

/* Waits for event `e` of step `number`. Returns false if the step failed. */
static bool await(const struct plain_device *x, struct insn_event e,
                  uint64_t number)
{
    const struct device_flag *f =
        &device_of(x->image.set, e.dev)->event[e.event];

    while (atomic_load_explicit(&f->v, memory_order_acquire) < number) {
        if (atomic_load(device_failed(x->image.set)))
            return false;
        sched_yield();
    }
    return true;
}

/* Executes the instruction `st`. Returns false if the step has failed. */
static bool take(struct plain_device *x, const struct insn *st, int step,
                 uint64_t number)
{
    struct device_set *s = x->image.set;
    double begin = device_traces(s) ? device_clock(s) : 0;

    if (step == x->dev->fail_insn) {
        device_fail(s, x->dev, step, "the device was lost");
        return false;
    }
    for (int i = 0; st->kind == INSN_WAIT && i < wait_count(&st->wait); i++)
        if (!await(x, wait_event(&st->wait, i), number))
            return false;
    if (st->kind == INSN_WAIT)
        return true;
    if (st->kind == INSN_POST) {
        atomic_store_explicit(&x->dev->event[st->event.event].v, number,
                              memory_order_release);
        return true;
    }
    device_guard_enter(s, x->dev, st);
    cpu_image_insn(&x->image, st, x->scratch, 0, 1, NULL);
    device_guard_leave(s);
    if (device_traces(s))
        device_trace_add(s, x->dev, step, begin, device_clock(s));
    cpu_image_count(&x->image, x->dev, st);
    return true;
}

static void *go(void *user)
{
    struct plain_device *x = user;
    uint64_t number;
    const struct device_run *r = device_set_current_run(x->image.set, &number);
    const struct variant *c = device_variant(x->dev, r);

    for (int i = 0; i < c->n_insn; i++)
        if (insn_enabled(&c->insn[i], r->n_micro, r->sizes) &&
            !take(x, &c->insn[i], i, number))
            break;
    return NULL;
}

static void submit(struct backend *b)
{
    struct plain_bank *p = b->own;
    uint64_t number;
    const struct device_run *run = device_set_current_run(b->set, &number);

    for (int i = 0; i < b->n; i++) {
        struct plain_device *x = &p->dev[i];

        if (cpu_image_sizes(&x->image, run))
            cpu_image_resolve(&x->image);
        x->started = pthread_create(&x->thread, NULL, go, x) == 0;
        if (!x->started)
            device_fail(b->set, x->dev, -1, "its thread could not be started");
    }
}

static void wait(struct backend *b)
{
    struct plain_bank *p = b->own;

    for (int i = 0; i < b->n; i++)
        if (p->dev[i].started)
            pthread_join(p->dev[i].thread, NULL);
}

const struct backend_ops plain_ops = {
    .name = "plain",
    .accepts = "plain[:MEMORY][*N]",
    .describe = describe,
    .has_kernel = cpu_image_has_kernel,
    .packing = cpu_image_packing,
    .activations = cpu_image_activations,
    .scratch = scratch,
    .open = open_bank,
    .close = close_bank,
    .load = load,
    .unload = unload,
    .write = put,
    .read = get,
    .submit = submit,
    .wait = wait,
};
