/* The cost model: seconds of a step, from programs and the rates of their
 * devices.
 *
 * An instruction costs what its kernel must read or multiply, whichever takes
 * longer. A collective or a copy costs its latency and its bytes over the link.
 * cost_run simulates the programs with these costs. So overlaps, waits and
 * shared threads are as in a real step. Rates are measured (measure/measure.h)
 * or come from a description. Nothing is measured here, and no estimate ever
 * decides a bit. */
#ifndef COST_COST_H
#define COST_COST_H

#include "device/device.h"

/* Rates of one device. */
struct cost_rates {
    double read_bytes_per_s;     /* of weights and of the KV cache */
    double cached_bytes_per_s;   /* of values between kernels */
    double block_macs_per_s;     /* multiply-adds: of weights in blocks, */
    double float_macs_per_s;     /* of float weights, */
    double attention_macs_per_s; /* and of attention */
    double insn_s;               /* each instruction in addition to its work */
    double collective_s;         /* each collective or copy in addition to its
                                    bytes */
    double link_bytes_per_s;     /* of collectives and copies */
    double out_bytes_per_s;      /* from it to the host; 0: link_bytes_per_s */
    double p2p_bytes_per_s;      /* to devices that have it too; 0: none */
    double p2p_s;                /* each of these, without its bytes; 0:
                                    collective_s */
    double bridge_bytes_per_s;   /* the same to devices of its link domain */
    double bridge_s;
    int link_domain;      /* 0: none */
    bool has_copy_engine; /* its copies from and to host memory use its copy
                             engine: only its link counts */
    bool one_queue;       /* its threads also copy: no separate copy queue */
};

/* One micro-batch. */
struct cost_micro {
    struct graph_sizes sizes; /* n_seq share n_tok evenly; 0: one sequence */
    int64_t n_past; /* tokens of each sequence in the cache before the step */
};

/* Returns true if its rates come from its description: it is only described, or
 * has its own processors. */
bool cost_has_spec_rates(const struct device_desc *d);
/* Computes the rates of such a device. Missing figures are guessed; returns
 * bits for these. */
enum {
    COST_GUESSED_FLOPS = 1,
    COST_GUESSED_LINK = 2,
    COST_GUESSED_LATENCY = 4,
};
unsigned cost_rates_from_spec(struct cost_rates *out,
                              const struct device_desc *d);
/* Returns the multiply-adds a second to assume if a description has none. */
double cost_guessed_macs(const struct device_desc *d);

/* Returns the default rates of any other device that was not measured. */
void cost_default_rates(struct cost_rates *out, const struct device_desc *d,
                        enum kernel_set set);

/* Returns the expected number of different experts that n_tok tokens use, each
 * choosing n_used of n_expert uniformly. */
double cost_distinct_experts(int64_t n_expert, int64_t n_used, int64_t n_tok);

/* The machine whose programs are simulated. */
struct cost_machine {
    int n_dev;
    const struct program *prog;     /* [n_dev] */
    const struct cost_rates *rates; /* [n_dev] */
    /* [n_dev] worker threads thread0 .. thread0 + n_thread - 1 of a device.
     * Devices that share one take turns on it, in the total order. NULL, or no
     * threads: its own threads. */
    const int *thread0, *n_thread;
    /* Called for each instruction but POST and WAIT, in the total order; may be
     * NULL. */
    void (*seen)(void *user, const struct device_timing *e);
    void *user;
};

/* The time of a device in a step; the queues overlap. */
struct cost_use {
    double busy_s;       /* kernels and local merges */
    double collective_s; /* collectives of its group: copies, barriers,
                            merges */
    double copy_s;       /* copies between groups */
    double hidden_s;     /* of copy_s: while its compute queue was busy */
    double idle_s;       /* neither queue is busy */
};

/* Sets thread0, n_thread [l->n]. Each thread of a cpu device has a different
 * number; the host has those of the cpu devices on its cores. */
void cost_threads(const struct device_list *l, int *thread0, int *n_thread);

/* A link between two devices: latency and bandwidth of a copy. */
struct cost_link {
    double latency_s, bytes_per_s;
};
struct cost_link cost_link_of(const struct cost_rates *from,
                              const struct cost_rates *to);

/* Returns the seconds of an instruction of device `dev`, without waiting; z:
 * its micro-batch. */
double cost_insn_s(const struct cost_machine *m, int dev, const struct insn *s,
                   const struct cost_micro *z);

/* Returns the seconds from its end until a PUSH is delivered, for which a
 * following POST waits; 0 for other instructions. */
double cost_delivery_s(const struct cost_machine *m, int dev,
                       const struct insn *s);

/* Computes the seconds of one step of `variant` with micro-batches z[n_micro].
 * use[n_dev] may be NULL. Fails if memory is out, or if there is no such
 * variant. */
pl_status cost_run(const struct cost_machine *m, int variant, int n_micro,
                   const struct cost_micro *z, struct cost_use *use,
                   double *seconds, pl_err *err);

/* Computes the seconds of n_tok tokens of one sequence after n_past others,
 * split into micro-batches as in a run (plan/microbatch.h). Uses the pipelined
 * variant if there is one and a step has several micro-batches, else the
 * fastest variant. One row of logits. use[n_dev] may be NULL. */
pl_status cost_tokens(const struct cost_machine *m, int64_t n_tok,
                      int64_t n_past, struct cost_use *use, double *seconds,
                      pl_err *err);

#endif
