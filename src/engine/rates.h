/* Rates of devices, by running small graphs on them. */
#ifndef ENGINE_RATES_H
#define ENGINE_RATES_H

#include "engine/engine.h"
#include "plan/cost.h"

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

/* Bytes of all weights that read_bytes_per_s[i] is of. */
double rates_read_bytes(int i);
/* n threads together, each with the rates of one. */
void rates_scale(struct cost_rates *r, const struct cost_rates *one, double n);
/* A sim device: one thread, links as described. */
void rates_sim(struct cost_rates *r, const struct cost_rates *one,
               const struct device_desc *d);

/* What rates rest on. */
struct rates_basis {
    bool calibrated;  /* on this machine's calibration */
    unsigned guessed; /* COST_GUESSED_ bits of described devices */
};

/* This machine's calibration, if one is kept and the plan is not of paper. */
struct planned;
struct calibration;
pl_status rates_find(const struct planned *q, struct calibration *c, bool *kept,
                     pl_err *err);
/* rates[q->list.n] without measuring (rates_known.c). c: this machine's
 * calibration, NULL: there is none; without one that covers the devices in use
 * a device that was not described has typical rates. Fails for want of
 * memory. */
pl_status rates_known(const struct planned *q, const struct calibration *c,
                      struct cost_rates *rates, struct rates_basis *basis,
                      pl_err *err);

/* rates[n_dev]: measured in about 0.4 s on the plan's devices, with its kernels
 * and formats; the memory for it is given back. Sim devices are taken to be as
 * fast as a thread. */
pl_status rates_measure(const struct pl_plan *p, struct cost_rates *rates,
                        pl_err *err);

#endif
