/* The backend `known`, which computes nothing and knows how long each
 * instruction takes. A thread goes through the variants of all devices in turn,
 * posts their events, and adds the time of each instruction to the device's
 * clock. A device's clock waits for the clocks of others, and the backend's
 * clock is the latest of them. An instruction's time is computed here from what
 * it does, not by src/cost/, so that tests can compare the two. */
#include "lib/kind_known.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "device/cpu/cpu_image.h"
#include "device/device_spec.h"
#include "quant/format.h"

struct known known;

double known_now(void *user)
{
    (void)user;
    return known.clock;
}

struct known_device {
    struct device *dev;
    /* [n_event] times at which the device posted each event, owned */
    double *event;
    int at; /* index of the next instruction in the variant */
    double now, arrived;
};

struct known_bank {
    pthread_t thread;
    bool started;
    struct known_device dev[];
};

/* ---- before anything is opened ------------------------------------------ */

static pl_status describe(struct device_list *l, const struct device_item *it,
                          pl_err *err)
{
    const struct device_desc d = {.ops = &known_ops,
                                  .n_thread = 1,
                                  .numa_node = -1,
                                  .memory = -1,
                                  .reads = true,
                                  .one_queue = true,
                                  .accelerator = true,
                                  .title = "Known 1",
                                  .version = "driver 2"};
    double v[DEVICE_FIGURES];
    int first = l->n;

    PL_TRY(device_item_read(it, 1u << DEVICE_MEMORY, v, NULL, err));
    PL_TRY(device_item_append(l, it, &d, v, err));
    for (int i = first; i < l->n; i++) {
        l->dev[i].index = i;
        l->dev[i].bus[0] = (char)('a' + i);
    }
    return PL_OK;
}

static size_t scratch(const struct device_desc *d,
                      const struct device_options *opt, const struct program *p)
{
    (void)d;
    (void)opt;
    (void)p;
    return 0;
}

/* ---- a backend --------------------------------------------------------- */

static pl_status open_bank(struct backend *b, pl_err *err)
{
    struct known_bank *k =
        calloc(1, sizeof *k + (size_t)b->n * sizeof k->dev[0]);

    b->own = k;
    if (!k)
        return err_no_memory(err, "known devices");
    for (int i = 0; i < b->n; i++) {
        k->dev[i].dev = device_of(b->set, b->dev[i]);
        k->dev[i].dev->own = &k->dev[i];
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
    struct known_bank *k = b->own;

    for (int i = 0; i < b->n; i++) {
        free(k->dev[i].event);
        k->dev[i].event = NULL;
    }
}

static pl_status load(struct backend *b, pl_err *err)
{
    struct known_bank *k = b->own;

    for (int i = 0; i < b->n; i++) {
        struct known_device *x = &k->dev[i];
        size_t all = 0;

        for (int r = 0; r < REGION_COUNT; r++)
            all += x->dev->bytes[r];
        if (known.most > 0 && all > known.most)
            return err_set(err, PL_NO_DEVICE_MEMORY, "%s does not give %zu",
                           x->dev->desc.name, all);
        known.largest = all > known.largest ? all : known.largest;
        x->event = calloc((size_t)x->dev->prog->n_event + 1, sizeof *x->event);
        if (!x->event)
            return err_no_memory(err, "a known device");
    }
    return PL_OK;
}

static pl_status put(struct device *d, enum region r, size_t offset,
                     const void *src, size_t bytes, pl_err *err)
{
    (void)d, (void)r, (void)offset, (void)src, (void)err;
    known.clock += (double)bytes / known.in;
    return PL_OK;
}

static pl_status get(struct device *d, enum region r, size_t offset, void *dst,
                     size_t bytes, pl_err *err)
{
    (void)d, (void)r, (void)offset, (void)err;
    memset(dst, 0, bytes);
    return PL_OK;
}

/* ---- the time of instructions -------------------------------------------- */

static double values(const struct prog_tensor *t, const struct graph_sizes *z)
{
    double n = 1;

    for (int i = 0; i < t->n_dim; i++)
        n *= (double)dim_value(t->dim[i], z);
    return n;
}

static double matmul_s(const struct program *p, const struct insn_kernel *k,
                       const struct graph_sizes *z)
{
    const struct prog_tensor *x = &p->tensor[k->arg[1].tensor];
    const struct prog_tensor *w = &p->tensor[k->arg[2].tensor];
    double n_row = (double)w->dim[0].n, per_row = (double)w->dim[1].n;
    double read = (double)p->bytes[REGION_WEIGHTS] <= known.held
                      ? known.held_read
                      : known.read;
    double bytes = n_row * (double)format_row_bytes(w->format, w->dim[1].n);

    return fmax(bytes / read,
                values(x, z) * n_row * per_row /
                    (double)dim_value(x->dim[x->n_dim - 1], z) /
                    (w->format == PL_Q8_0 ? known.block : known.floats));
}

static double kernel_s(const struct program *p, const struct insn_kernel *k,
                       const struct graph_sizes *z, double past)
{
    const struct prog_tensor *out = &p->tensor[k->arg[0].tensor];

    if (k->kernel == KERNEL_matmul)
        return matmul_s(p, k, z);
    /* twice: for the scores and for the sums of values */
    if (k->kernel == KERNEL_attention)
        return (past + ((double)z->n_tok + 1) / 2) * 2 * values(out, z) /
               known.attention;
    if (k->arg[0].access == ACCESS_UPDATE)
        out = &p->tensor[k->arg[1].tensor];
    return values(out, z) * 8 / known.values;
}

static double bytes_of(const struct copy_desc *c, int n,
                       const struct graph_sizes *z)
{
    double sum = 0;

    for (int i = 0; i < n; i++)
        sum += (double)dim_value(c[i].bytes, z) *
               (double)dim_value(c[i].n0, z) * (double)dim_value(c[i].n1, z);
    return sum;
}

static bool is_known(const struct known_device *x, int dev)
{
    return device_of(x->dev->backend->set, dev)->desc.ops == &known_ops;
}

/* Returns the seconds that copying so many bytes to device `dev` takes. */
static double to_peer(const struct known_device *x, int dev, double bytes)
{
    const struct device *peer = device_of(x->dev->backend->set, dev);
    bool close =
        (peer->desc.bus[0] - 'a') / 2 == (x->dev->desc.bus[0] - 'a') / 2;

    return bytes / (known.bridge > 0 && close ? known.bridge : known.peer);
}

static void push(struct known_device *x, const struct insn_push *s,
                 const struct graph_sizes *z)
{
    double host = 0, peers_s = 0, latency = 0;

    for (int k = 0; k < s->n_to; k++) {
        bool peer = is_known(x, s->to[k].dev);
        int n;
        const struct copy_desc *c = push_pieces(s, k, &n);

        if (peer)
            peers_s += to_peer(x, s->to[k].dev, bytes_of(c, n, z));
        else
            host += bytes_of(c, n, z);
        latency = fmax(latency, peer ? known.peer_s : known.copy_s);
    }
    x->now += host / known.out + peers_s;
    x->arrived = fmax(x->arrived, x->now + latency);
}

static void work(struct known_device *x, const struct insn *st,
                 const struct graph_sizes *z)
{
    const struct program *p = x->dev->prog;
    double past = 0;

    switch (st->kind) {
    /* attention reads all slots of the cache except those of this step's
     * tokens */
    case INSN_KERNEL:
        if (st->kernel.kernel == KERNEL_attention)
            past = (double)z->n_slot[0] - (double)z->n_tok;
        x->now += known.launch_s + kernel_s(p, &st->kernel, z, past);
        break;
    case INSN_MERGE:
        x->now += known.launch_s;
        for (int i = 0; i < st->merge.n_item; i++)
            x->now +=
                values(&p->tensor[st->merge.item[i].out], z) * 8 / known.values;
        break;
    case INSN_PULL:
        x->now += known.copy_s +
                  bytes_of(st->pull.piece, st->pull.n_piece, z) / known.in;
        break;
    case INSN_PUSH:
        push(x, &st->push, z);
        break;
    default:
        break;
    }
}

/* ---- a step ------------------------------------------------------------ */

/* Returns false if device e.dev has not posted event `e` in step `number`.
 * Otherwise sets the waiting device's clock to the time of the post, unless it
 * is later already. */
static bool await(struct known_device *x, struct insn_event e, uint64_t number)
{
    struct device *d = device_of(x->dev->backend->set, e.dev);

    if (atomic_load(&d->event[e.event].v) < number)
        return false;
    if (is_known(x, e.dev))
        x->now = fmax(x->now, ((struct known_device *)d->own)->event[e.event]);
    return true;
}

/* Executes an instruction by advancing the device's clock. Returns false if the
 * instruction has to wait for another device. */
static bool take(struct known_device *x, const struct insn *st,
                 const struct graph_sizes *z, uint64_t number)
{
    for (int i = 0; st->kind == INSN_WAIT && i < wait_count(&st->wait); i++)
        if (!await(x, wait_event(&st->wait, i), number))
            return false;
    if (st->kind == INSN_POST) {
        x->event[st->event.event] = fmax(x->now, x->arrived);
        atomic_store(&x->dev->event[st->event.event].v, number);
    } else if (st->kind != INSN_WAIT) {
        work(x, st, z);
    }
    return true;
}

static void *go(void *user)
{
    struct backend *b = user;
    struct known_bank *k = b->own;
    uint64_t number;
    const struct device_run *run = device_set_current_run(b->set, &number);
    int n_left = b->n;

    for (int i = 0; i < b->n; i++) {
        k->dev[i].at = 0;
        k->dev[i].now = k->dev[i].arrived = known.clock;
    }
    while (n_left > 0 && !atomic_load(device_failed(b->set))) {
        n_left = 0;
        for (int i = 0; i < b->n; i++) {
            struct known_device *x = &k->dev[i];
            const struct variant *c = device_variant(x->dev, run);

            for (; x->at < c->n_insn; x->at++)
                if (insn_enabled(&c->insn[x->at], run->n_micro, run->sizes) &&
                    !take(x, &c->insn[x->at], run->sizes, number))
                    break;
            n_left += x->at < c->n_insn;
        }
        sched_yield();
    }
    for (int i = 0; i < b->n; i++)
        known.clock = fmax(known.clock, fmax(k->dev[i].now, k->dev[i].arrived));
    return NULL;
}

static void submit(struct backend *b)
{
    struct known_bank *k = b->own;

    known.n_run++;
    k->started = false;
    if (known.n_left == 0)
        device_fail(b->set, k->dev[0].dev, -1, "it fell off the bus");
    else
        k->started = pthread_create(&k->thread, NULL, go, b) == 0;
    known.n_left -= known.n_left > 0;
}

static void wait(struct backend *b)
{
    struct known_bank *k = b->own;

    if (k->started)
        pthread_join(k->thread, NULL);
}

const struct backend_ops known_ops = {
    .name = "known",
    .accepts = "known[:MEMORY][*N]",
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
