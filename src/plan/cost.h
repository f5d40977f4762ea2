/* What a step costs: seconds, from programs and the rates of their devices.
 *
 * Each step of a program costs what its kernel must read or multiply, whichever
 * takes longer, and each message its latency and its bytes over the link. Rates
 * are found by measuring (engine/rates.h) or come from a description; nothing
 * is measured here, and no estimate ever decides a bit. */
#ifndef PLAN_COST_H
#define PLAN_COST_H

#include "device/device.h"

/* Of one device. All are above zero. */
struct cost_rates {
    double bytes_per_s[PL_FORMAT_COUNT];  /* weights under one row of x */
    double macs_per_s[PL_FORMAT_COUNT];   /* weights under many rows */
    double attention_one, attention_many; /* multiply-adds a second */
    double value_s;                       /* a value of any other op */
    double step_s;                        /* each step of a program */
    double message_s;                     /* each message beside its bytes */
    double link_bytes_per_s;
    double run_s; /* each run beside its steps */
};

struct cost_step {
    struct graph_sizes sizes;
    int64_t n_past; /* tokens of each sequence in the cache before the step */
};

/* Rates of a described device. Figures it lacks are guessed; returns bits that
 * tell which. */
enum {
    COST_GUESSED_FLOPS = 1,
    COST_GUESSED_LINK = 2,
    COST_GUESSED_LATENCY = 4,
};
unsigned cost_described(struct cost_rates *out, const struct device_desc *d);
/* Multiply-adds a second that a silent description is taken to mean. */
double cost_guessed_macs(const struct device_desc *d);

/* Rates of a cpu or sim device that was not measured. */
void cost_assumed(struct cost_rates *out, const struct device_desc *d,
                  enum cpu_family f);

/* Experts that n_tok tokens are expected to meet, each choosing n_used of
 * n_expert, all alike. */
double cost_distinct_experts(int64_t n_expert, int64_t n_used, int64_t n_tok);

/* Seconds of one device's program, waiting apart. n_dev: of the group, whose
 * messages it reads. */
double cost_program(const struct program *p, const struct cost_rates *r,
                    const struct cost_step *z, int n_dev);

/* Seconds of a group's step: its slowest device's. */
double cost_group(int n_dev, const struct program *p,
                  const struct cost_rates *r, const struct cost_step *z);

#endif
