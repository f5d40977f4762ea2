/* What a run costs: seconds, from programs and the rates of their devices.
 *
 * A step of a program costs what its kernel must read or multiply, whichever
 * takes longer; a message or a copy its latency and its bytes over the link.
 * cost_run plays the programs with these prices, so what overlaps, waits or
 * takes turns does so as it will in a run. Rates are found by measuring
 * (measure/measure.h) or come from a description; nothing is measured here, and
 * no estimate ever decides a bit. */
#ifndef COST_COST_H
#define COST_COST_H

#include "device/device.h"

/* Of one device. */
struct cost_rates {
    double read_bytes_per_s;     /* of weights and of the KV cache */
    double cached_bytes_per_s;   /* of values between kernels */
    double block_macs_per_s;     /* multiply-adds: of weights in blocks, */
    double float_macs_per_s;     /* of weights that are floats, */
    double attention_macs_per_s; /* and of attention */
    double insn_s;               /* each step of a program beside its work */
    double collective_s;         /* each message or copy beside its bytes */
    double link_bytes_per_s;     /* of messages and copies */
    double out_bytes_per_s;      /* of those from it to the host; 0: the same */
    double p2p_bytes_per_s; /* of those to devices that have it too; 0: none */
    double p2p_s; /* each of these beside its bytes; 0: collective_s */
    double bridge_bytes_per_s; /* the same of those to devices of its island */
    double bridge_s;
    int link_domain; /* 0: none */
    bool
        has_copy_engine; /* copies between it and memory of the host are its own
                       engine's: its link alone counts */
    bool one_queue;      /* its threads copy too: no copy queue beside them */
};

/* One micro-batch. */
struct cost_micro {
    struct graph_sizes sizes; /* n_seq share n_tok evenly; 0: one does */
    int64_t n_past; /* tokens of each sequence in the cache before the step */
};

/* Is it priced by its description: one on paper, or of its own processor? */
bool cost_has_spec_rates(const struct device_desc *d);
/* Rates of such a device. Figures it lacks are guessed; returns bits that tell
 * which. */
enum {
    COST_GUESSED_FLOPS = 1,
    COST_GUESSED_LINK = 2,
    COST_GUESSED_LATENCY = 4,
};
unsigned cost_rates_from_spec(struct cost_rates *out,
                              const struct device_desc *d);
/* Multiply-adds a second that a silent description is taken to mean. */
double cost_guessed_macs(const struct device_desc *d);

/* Rates of any other device that was not measured. */
void cost_default_rates(struct cost_rates *out, const struct device_desc *d,
                        enum kernel_set set);

/* Experts that n_tok tokens are expected to meet, each choosing n_used of
 * n_expert, all alike. */
double cost_distinct_experts(int64_t n_expert, int64_t n_used, int64_t n_tok);

/* The machine whose programs are played. */
struct cost_machine {
    int n_dev;
    const struct program *prog;     /* [n_dev] */
    const struct cost_rates *rates; /* [n_dev] */
    /* [n_dev] worker threads thread0 .. thread0 + n_thread - 1 of a device.
     * Devices that share one take turns on it, in the total order. NULL, or
     * no threads: threads of its own. */
    const int *thread0, *n_thread;
    /* Told of each step but POST and WAIT, in the total order; may be NULL. */
    void (*seen)(void *user, const struct device_timing *e);
    void *user;
};

/* What a device does in a run; the queues overlap. */
struct cost_use {
    double busy_s; /* kernels and local merges */
    double
        collective_s; /* collectives of its group: copies, meetings, merges */
    double copy_s;    /* copies between groups */
    double hidden_s;  /* of copy_s: while its compute queue was at work */
    double idle_s;    /* neither queue is at work */
};

/* thread0, n_thread [l->n]: each thread of a cpu device has a number of its
 * own; the host those of the cpu devices on its cores. */
void cost_threads(const struct device_list *l, int *thread0, int *n_thread);

/* What a copy from a device to another takes: so long beside its bytes, and so
 * many of them a second. */
struct cost_link {
    double latency_s, bytes_per_s;
};
struct cost_link cost_link_of(const struct cost_rates *from,
                              const struct cost_rates *to);

/* Seconds of a step of device `dev`, waiting apart; z: of its micro-batch. */
double cost_insn_s(const struct cost_machine *m, int dev, const struct insn *s,
                   const struct cost_micro *z);

/* Seconds after its end until a PUSH has arrived, which a POST behind it waits
 * for; 0 of other steps. */
double cost_delivery_s(const struct cost_machine *m, int dev,
                       const struct insn *s);

/* Seconds of one run of `script` with micro-batches z[n_micro]. use[n_dev]
 * may be NULL. Fails for want of memory, or if there is no such script. */
pl_status cost_run(const struct cost_machine *m, int variant, int n_micro,
                   const struct cost_micro *z, struct cost_use *use,
                   double *seconds, pl_err *err);

/* Seconds that n_tok tokens of one sequence take after n_past others, dealt as
 * they will be run (plan/microbatch.h): a pipeline's script where there is one
 * and a run has several micro-batches, else whichever script is fastest. One
 * row of logits. use[n_dev] may be NULL. */
pl_status cost_tokens(const struct cost_machine *m, int64_t n_tok,
                      int64_t n_past, struct cost_use *use, double *seconds,
                      pl_err *err);

#endif
