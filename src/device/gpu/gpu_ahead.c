/* Running ahead: the issuing thread queues a whole step, and the queues
 * themselves wait for the events of other devices, as words in host memory.
 *
 * The thread keeps a list of the step's points, in the order of issue: events
 * of other devices that a queue waits for, and events that a queue posts. A
 * queue is held, without fault, if the first point that is not reached is
 * another device's and all heartbeats before it are reached. Otherwise the
 * GPU itself has work to do, and the watchdog's time runs (gpu_watchdog.c).
 * All devices issue their points in one total order (program.h). So if none
 * goes on, the device that owns the first open point of that order is not
 * held, and is found.
 *
 * How far a thread runs ahead is bounded by the heartbeats in flight.
 *
 * After a failure a queue may wait for an event that is never posted. Streams
 * of CUDA and HIP cannot be cleared, so gpu_ahead_release() stores the greatest
 * value in all words that are still awaited. What was queued then runs, with
 * bytes of this or an earlier step. Such bytes must not be indices, so devices
 * that receive integers do not run ahead. Nobody uses what a failed step
 * leaves, and whoever sees an event checks afterwards that the step has not
 * failed. The set clears all events before its next step.
 *
 * A wait may hold up all later work of the same GPU, even that of another
 * device of the set, which may have to post the event. So devices that share a
 * GPU do not run ahead either. */
#include <stdlib.h>
#include <string.h>

#include "device/gpu/gpu_device.h"
#include "device/gpu/gpu_switch.h"

/* ---- which devices ------------------------------------------------------- */

/* Returns true if another device of the set may be on the same GPU. */
static bool shares_gpu(const struct gpu_device *x)
{
    const struct device_desc *own = &x->dev->desc;
    bool hardware = !x->driver->runs_on_cpu || !x->driver->runs_on_cpu(x->gpu);

    for (int i = 0; i < device_set_size(x->set); i++) {
        const struct device *d = device_of(x->set, i);

        if (d == x->dev)
            continue;
        if (own->bus[0] ? strcmp(own->bus, d->desc.bus) == 0
                        : hardware && d->backend == x->dev->backend)
            return true;
    }
    return false;
}

static bool receives_integers(const struct program *p)
{
    for (int i = 0; i < p->n_tensor; i++)
        if (p->tensor[i].region == REGION_INBOX &&
            p->tensor[i].format == PL_I32)
            return true;
    return false;
}

pl_status gpu_ahead_check(pl_err *err)
{
    bool on;

    return gpu_switch("PLAIT_AHEAD",
                      "has threads wait for other devices, not GPUs", &on, err);
}

bool gpu_ahead_may(const struct gpu_device *x)
{
    bool on;

    /* an invalid value is reported by gpu_ahead_check() */
    gpu_switch("PLAIT_AHEAD", "", &on, NULL);
    return on && x->maps_all && x->driver->wait_word &&
           x->driver->fence_query && !shares_gpu(x) &&
           !receives_integers(x->dev->prog);
}

/* Machines of a network begin a run at different times, so a message of a run
 * might come before the events are zeroed. */
void gpu_ahead_load(struct gpu_device *x)
{
    x->graph_words = x->driver->has_graph_words &&
                     x->driver->has_graph_words(x->gpu) &&
                     !device_set_network(x->set);
    if (x->graph_words)
        device_set_zero_events(x->set);
}

/* ---- points -------------------------------------------------------------- */

void gpu_ahead_add(struct gpu_device *x, _Atomic uint64_t *word, bool own,
                   int insn)
{
    if (x->n_reached == x->n_pulse && x->n_seen == x->n_point)
        x->since = device_now();
    x->point[x->n_point++] = (struct gpu_point){
        .word = word, .own = own, .insn = insn, .pulse = x->n_pulse};
    if (!own)
        x->n_awaited = x->n_point;
}

bool gpu_ahead_look(struct gpu_device *x)
{
    int before = x->n_seen;

    while (x->n_seen < x->n_point &&
           atomic_load_explicit(x->point[x->n_seen].word,
                                memory_order_acquire) >= x->number)
        x->n_seen++;
    return x->n_seen > before;
}

bool gpu_ahead_is_held(const struct gpu_device *x)
{
    const struct gpu_point *p;

    if (x->n_seen == x->n_point)
        return false;
    p = &x->point[x->n_seen];
    return !p->own && p->pulse <= x->n_reached;
}

bool gpu_ahead_awaits(const struct gpu_device *x)
{
    return x->n_seen < x->n_awaited;
}

bool gpu_ahead_failed(const struct gpu_device *x)
{
    return gpu_ahead_awaits(x) &&
           atomic_load_explicit(x->failed, memory_order_acquire);
}

void gpu_ahead_release(struct gpu_device *x)
{
    for (int i = x->n_seen; i < x->n_point; i++)
        if (!x->point[i].own &&
            atomic_load_explicit(x->point[i].word, memory_order_relaxed) <
                x->number)
            atomic_store(x->point[i].word, DEVICE_FLAG_RELEASED);
    gpu_ahead_begin(x);
}

void gpu_ahead_begin(struct gpu_device *x)
{
    x->n_point = x->n_seen = x->n_awaited = 0;
}
