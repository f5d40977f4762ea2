/* Traces: records the begin and end of each instruction, if requested. Each
 * device writes its own part of the array, which is allocated when programs are
 * loaded. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "device/device_inner.h"
#include "machine/topology.h"

void device_trace_unload(struct device_set *s)
{
    topology_unshare(s->trace.event, s->trace.bytes);
    s->trace.event = NULL;
    s->trace.n = 0;
}

pl_status device_trace_load(struct device_set *s, pl_err *err)
{
    size_t room = 0;

    if (!s->trace.on)
        return PL_OK;
    for (int i = 0; i < s->n; i++) {
        const struct program *p = s->dev[i].prog;
        int most = 0;

        for (int k = 0; k < p->n_variant; k++)
            if (p->variant[k].n_insn > most)
                most = p->variant[k].n_insn;
        s->dev[i].first_timing = room;
        room += (size_t)most;
    }
    device_trace_unload(s);
    s->trace.bytes = room * sizeof *s->trace.event;
    s->trace.event = topology_share(s->trace.bytes);
    return s->trace.event ? PL_OK : err_no_memory(err, "a trace");
}

void device_trace_start(struct device_set *s)
{
    s->shared->start_s = device_now();
    if (!s->trace.on)
        return;
    for (int i = 0; i < s->n; i++)
        s->dev[i].n_timing = 0;
    s->trace.n = 0;
}

double device_clock(const struct device_set *s)
{
    return device_since(s, device_now());
}

double device_since(const struct device_set *s, double now)
{
    return now - s->shared->start_s;
}

bool device_traces(const struct device_set *s)
{
    return s->trace.on;
}

void device_trace_add(struct device_set *s, struct device *d, int step,
                      double begin, double end)
{
    s->trace.event[d->first_timing + (size_t)d->n_timing++] =
        (struct device_timing){(int)(d - s->dev), step, begin, end};
}

/* Moves the events of all devices to the start of the array, so that they are
 * contiguous. */
void device_trace_end(struct device_set *s, bool failed)
{
    struct device_timing *e = s->trace.event;

    if (!s->trace.on || failed)
        return;
    for (int i = 0; i < s->n; i++) {
        memmove(e + s->trace.n, e + s->dev[i].first_timing,
                (size_t)s->dev[i].n_timing * sizeof *e);
        s->trace.n += s->dev[i].n_timing;
    }
}

const struct device_timing *device_set_trace(const struct device_set *s, int *n)
{
    *n = s->trace.n;
    return s->trace.n > 0 ? s->trace.event : NULL;
}
