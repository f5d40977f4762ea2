/* Rates of devices, by running small graphs on them. */
#ifndef ENGINE_PROBE_H
#define ENGINE_PROBE_H

#include "cost/calibration.h"
#include "engine/engine.h"

/* Heads of the attention that is tried; n_kv 0: none is. */
struct rates_attention {
    int64_t n_kv, n_query; /* n_query heads read each of n_kv */
    int64_t d_k, d_v;
    pl_format cache_k, cache_v;
};

/* What is tried, and where. */
struct rates_ask {
    const char *devices; /* as for device_parse, cpu devices only */
    int n_threads;
    bool no_pin;
    enum cpu_family family;
    bool all_formats; /* on one device, messages on two; else those that have */
    double bytes[PL_FORMAT_COUNT];
    bool experts; /* most of them */
    struct rates_attention attention;
};

/* *one: rates of one of the devices' threads while all work; messages are the
 * devices' and of no thread. */
pl_status rates_probe(const struct rates_ask *ask, struct cost_rates *one,
                      pl_err *err);

/* rates[n_dev]: measured in about 0.4 s on the plan's devices, with its kernels
 * and formats; the memory for it is given back. Sim devices are taken to be as
 * fast as a thread. */
pl_status rates_measure(const struct pl_plan *p, struct cost_rates *rates,
                        pl_err *err);

/* Measures what calibration.h keeps, in a few seconds. */
pl_status calibration_measure(struct calibration *c, enum cpu_family f,
                              bool no_pin, pl_err *err);

#endif
