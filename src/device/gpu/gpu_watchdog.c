/* Waits for a GPU that may hang, which means that it neither makes progress nor
 * reports an error. No thread waits inside the driver, because the driver might
 * not return. Heartbeats are fences recorded in the queues now and then. A
 * waiting thread checks which of them were reached. If none is reached for half
 * a minute, the GPU counts as lost, unless its queues wait for other devices
 * (gpu_ahead.c). At most GPU_PULSES heartbeats are in flight, because drivers
 * block a thread that queues too many commands.
 *
 * Device memory of a lost GPU is not freed, nor is host memory that it can
 * access. The driver's call might not return, and the GPU might still write
 * there. */
#include <stdio.h>

#include "base/err.h"
#include "device/gpu/gpu_device.h"

enum {
    PULSE_STEPS = 64,
    LIMIT_S = 30,        /* timeout in seconds; no instruction takes this
                            long */
    LIMIT_CORES_S = 600, /* timeout for a device that is a CPU */
    /* gpu_watch_long() records heartbeats once a wait has lasted this fraction,
     * 1 / LIMIT_PARTS, of the timeout */
    LIMIT_PARTS = 8,
};
static const double awake_s = 0.02, nap_s = 50e-6;

double gpu_timeout_s(const struct gpu_device *x)
{
    double s = device_set_options(x->set)->gpu_limit_s;

    if (s > 0)
        return s;
    return x->driver->runs_on_cpu && x->driver->runs_on_cpu(x->gpu)
               ? LIMIT_CORES_S
               : LIMIT_S;
}

static struct gpu_heartbeat *pulse_of(struct gpu_device *x, uint64_t number)
{
    return &x->pulse[number % GPU_PULSES];
}

pl_status gpu_check_alive(const struct gpu_device *x, pl_err *err)
{
    if (!x->lost)
        return PL_OK;
    return err_set(err, PL_DEVICE,
                   "%s hung before and is no longer used; open the engine "
                   "again, without it if it hangs again",
                   x->dev->desc.name);
}

static pl_status lose(struct gpu_device *x, pl_err *err)
{
    int from = pulse_of(x, x->n_reached)->step;
    int to = x->n_reached < x->n_pulse ? pulse_of(x, x->n_reached + 1)->step
             : x->n_seen < x->n_point  ? x->point[x->n_seen].insn + 1
                                       : 0;
    char where[64] = "";

    x->lost = true;
    device_set_quarantine(x->set);
    if (to > 0)
        snprintf(where, sizeof where, ", in one of the instructions %d to %d",
                 from, to - 1);
    return err_set(err, PL_DEVICE,
                   "%s hangs: no progress for %g s%s; read the system's log, "
                   "and open the engine again",
                   x->dev->desc.name, gpu_timeout_s(x), where);
}

pl_status gpu_watch(struct gpu_device *x, pl_err *err)
{
    bool yes = true;

    PL_TRY(gpu_check_alive(x, err));
    while (x->n_reached < x->n_pulse && yes) {
        int i = (int)((x->n_reached + 1) % GPU_PULSES);

        PL_TRY(x->driver->fence_query(x->gpu, GPU_PULSE_MARK + i, &yes, err));
        if (yes) {
            x->n_reached++;
            x->since = device_now();
        }
    }
    if (gpu_ahead_look(x) || gpu_ahead_is_held(x))
        x->since = device_now();
    if ((x->n_reached < x->n_pulse || x->n_seen < x->n_point) &&
        device_now() - x->since > gpu_timeout_s(x))
        return lose(x, err);
    return PL_OK;
}

/* Heartbeats that were reached meanwhile count as progress too, because the
 * fence's queue may wait for the other queue. */
pl_status gpu_poll_fence(struct gpu_device *x, int mark, double since,
                         bool *yes, pl_err *err)
{
    PL_TRY(gpu_watch(x, err));
    PL_TRY(x->driver->fence_query(x->gpu, mark, yes, err));
    if (*yes)
        x->since = device_now();
    since = since > x->since ? since : x->since;
    return *yes || device_now() - since <= gpu_timeout_s(x) ? PL_OK
                                                            : lose(x, err);
}

/* A wait between two tokens is short; its thread yields, so that it goes on at
 * once. */
void gpu_pause(struct gpu_device *x, double begin)
{
    if (device_now() - begin < awake_s)
        team_pause(&x->yielding);
    else
        device_sleep(device_now() + nap_s, NULL);
}

/* Waits until heartbeat `number` is reached. Fails if the step fails while a
 * queue waits for another device. */
static pl_status wait_for(struct gpu_device *x, uint64_t number, pl_err *err)
{
    double begin = device_now();

    for (int i = 0;; i++) {
        PL_TRY(gpu_watch(x, err));
        if (x->n_reached >= number)
            return PL_OK;
        if (gpu_ahead_failed(x))
            return err_set(err, PL_DEVICE, "the step failed elsewhere");
        if (i < x->n_spin)
            device_relax();
        else
            gpu_pause(x, begin);
    }
}

/* Records a heartbeat at the end of queue q. `step` is the index of the
 * instruction that follows. */
static pl_status put_pulse(struct gpu_device *x, enum queue q, int step,
                           pl_err *err)
{
    uint64_t number = x->n_pulse + 1;

    if (x->n_reached == x->n_pulse)
        x->since = device_now();
    if (number >= GPU_PULSES)
        PL_TRY(wait_for(x, number - (GPU_PULSES - 1), err));
    PL_TRY(x->driver->fence_record(
        x->gpu, q, GPU_PULSE_MARK + (int)(number % GPU_PULSES), err));
    PL_TRY(x->driver->flush(x->gpu, q, err));
    pulse_of(x, number)->step = step;
    x->n_pulse = number;
    return PL_OK;
}

void gpu_watch_begin(struct gpu_device *x)
{
    x->n_insn = 0;
    x->at_insn = 0;
    pulse_of(x, x->n_pulse)->step = 0;
}

pl_status gpu_heartbeat_issue(struct gpu_device *x, enum queue q, int step,
                              pl_err *err)
{
    if (!x->driver->fence_query || ++x->n_insn < PULSE_STEPS)
        return PL_OK;
    x->n_insn = 0;
    return put_pulse(x, q, step + 1, err);
}

pl_status gpu_drain(struct gpu_device *x, enum queue q, pl_err *err)
{
    pl_status s = gpu_check_alive(x, err), finished;

    if (s == PL_OK && x->driver->fence_query) {
        s = put_pulse(x, q, x->run ? x->at_insn : 0, err);
        if (s == PL_OK)
            s = wait_for(x, x->n_pulse, err);
    }
    /* the driver would wait for an event that may never be posted */
    if (x->lost || (s != PL_OK && gpu_ahead_awaits(x)))
        return s;
    finished = x->driver->finish(x->gpu, q, s == PL_OK ? err : NULL);
    return s == PL_OK ? finished : s;
}

pl_status gpu_watch_long(struct gpu_device *x, double begin, bool *marked,
                         pl_err *err)
{
    if (!x->driver->fence_query ||
        device_now() - begin < gpu_timeout_s(x) / LIMIT_PARTS)
        return PL_OK;
    for (int q = 0; q < QUEUE_COUNT && !*marked; q++)
        PL_TRY(put_pulse(x, (enum queue)q, x->at_insn, err));
    *marked = true;
    return gpu_watch(x, err);
}
