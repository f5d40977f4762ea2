/* The cost model. It estimates how many seconds a step takes, from the programs
 * of the devices and the rates of the devices.
 *
 * A kernel costs the time to read its data or the time to multiply, whichever
 * is longer. A collective or a copy costs its latency plus the time to move its
 * bytes over the link. cost_run simulates the programs with these costs, so
 * overlapping queues, waits and shared threads are modelled as in a real step.
 * Rates are measured (measure/measure.h) or come from a description. Nothing is
 * measured here, and no estimate ever affects the bits of a result. */
#ifndef COST_COST_H
#define COST_COST_H

#include "device/device.h"

/* Rates and fixed times of one device. All of its threads together have these
 * rates. */
struct cost_rates {
    double read_bytes_per_s; /* bandwidth of reading weights and the KV cache */
    /* Bandwidth of reading and writing activations, which are mostly in
     * processor caches. */
    double cached_bytes_per_s;
    double block_macs_per_s; /* multiply-adds per second with quantized
                                weights */
    double float_macs_per_s; /* multiply-adds per second with float weights */
    double attention_macs_per_s; /* multiply-adds per second in attention */
    double insn_s; /* fixed time in seconds per instruction; of accelerators,
                      per launch (insn.in_launch) */
    double collective_s; /* fixed time per collective or copy, in seconds */
    /* Bandwidth of the device's link, for collectives and copies to and from
     * the device. If out_bytes_per_s is set, it holds only for data that the
     * device receives. */
    double link_bytes_per_s;
    /* bandwidth of copies from the device to the host; 0 if it is
     * link_bytes_per_s */
    double out_bytes_per_s;
    /* Bandwidth of peer-to-peer copies, which bypass the host, to another
     * device that also has peer-to-peer access; 0 if this device has none. */
    double p2p_bytes_per_s;
    double p2p_s; /* fixed time per peer-to-peer copy in seconds; 0 if it is
                     collective_s */
    /* Bandwidth, and fixed time in seconds (bridge_s), of copies to devices of
     * the same link domain; 0 if the device is in no link domain. */
    double bridge_bytes_per_s;
    double bridge_s;
    /* number of the device's link domain; 0 if it is in none */
    int link_domain;
    int machine; /* number of the device's machine */
    /* bandwidth, and fixed time in seconds, of copies to devices of other
     * machines; 0 if unknown */
    double network_bytes_per_s, network_s;
    /* [n_link] the networks of the device's machine to others, by their
     * numbers, which go before the two rates; borrowed from the device list;
     * NULL if unknown */
    const struct machine_link *link;
    int n_link;
    bool has_copy_engine; /* copies from and to host memory use the device's
                             copy engine, so that only the device's link limits
                             their rate */
    bool one_queue;       /* there is no copy queue; the device's threads also
                             copy */
};

/* The number of tokens of one micro-batch, and of tokens already in the
 * cache. */
struct cost_micro {
    struct graph_sizes sizes; /* n_tok tokens, divided evenly over n_seq
                                 sequences; n_seq 0 counts as 1 */
    /* number of tokens of each sequence in the cache before the step */
    int64_t n_past;
};

/* Returns true if the device's rates come from its description. This applies to
 * devices that exist only as descriptions and to devices with their own
 * processors, such as GPUs. */
bool cost_has_spec_rates(const struct device_desc *d);
/* Sets *out to the rates of a device for which cost_has_spec_rates is true.
 * Guesses figures that the description lacks, and returns the COST_GUESSED_
 * bits of these. */
enum {
    COST_GUESSED_FLOPS = 1,
    COST_GUESSED_LINK = 2,
    COST_GUESSED_LATENCY = 4,
    COST_GUESSED_NETWORK = 8,
};
unsigned cost_rates_from_spec(struct cost_rates *out,
                              const struct device_desc *d);
/* Returns the number of multiply-adds per second that is assumed for a device
 * whose description gives none. */
double cost_guessed_macs(const struct device_desc *d);

/* Sets *out to the default rates of a device for which cost_has_spec_rates is
 * false and that was not measured. */
void cost_default_rates(struct cost_rates *out, const struct device_desc *d,
                        enum kernel_set set);

/* Returns the expected number of distinct experts used by n_tok tokens. Each
 * token chooses n_used of n_expert experts at random with equal probability. */
double cost_distinct_experts(int64_t n_expert, int64_t n_used, int64_t n_tok);

/* The devices and programs that cost_run simulates. */
struct cost_machine {
    int n_dev;
    const struct program *prog;     /* [n_dev] program of each device */
    const struct cost_rates *rates; /* [n_dev] rates of each device */
    /* [n_dev] device d uses worker threads thread0[d] .. thread0[d] +
     * n_thread[d] - 1. Devices that share a thread execute their instructions
     * on it one after another, in the total order. NULL, or n_thread[d] 0, if a
     * device shares no threads. */
    const int *thread0, *n_thread;
    /* Called with the simulated time of each instruction except POST and WAIT,
     * in the total order. May be NULL. */
    void (*seen)(void *user, const struct device_timing *e);
    void *user;
};

/* Seconds of a step that a device spends on each activity. The figures may
 * overlap, because its queues run at the same time. */
struct cost_use {
    double busy_s;       /* seconds in kernels and in reductions of data that is
                            local */
    double collective_s; /* seconds in collectives of the device's group:
                            copies, barriers, reductions */
    double copy_s;       /* seconds in copies between groups of devices */
    /* the part of copy_s in which the compute queue was busy, too */
    double hidden_s;
    double idle_s; /* time in which neither the compute queue nor the copy queue
                      was busy */
};

/* Sets thread0 and n_thread, [l->n], for struct cost_machine. Each thread of a
 * CPU device gets a number of its own. The host device shares the threads of
 * the CPU devices that use the same cores. */
void cost_threads(const struct device_list *l, int *thread0, int *n_thread);

/* Latency and bandwidth of a copy between two devices. The source is that of a
 * network between machines. */
struct cost_link {
    double latency_s, bytes_per_s;
    enum link_source source;
};
struct cost_link cost_link_of(const struct cost_rates *from,
                              const struct cost_rates *to);

/* Returns for how many seconds device `dev` executes instruction s for
 * micro-batch z, not counting the time that it waits for other devices. */
double cost_insn_s(const struct cost_machine *m, int dev, const struct insn *s,
                   const struct cost_micro *z);

/* Returns for how many seconds the network of the device's machine sends what a
 * PUSH instruction pushes to other machines. Returns 0 for other
 * instructions. */
double cost_network_s(const struct cost_machine *m, int dev,
                      const struct insn *s, const struct cost_micro *z);

/* Returns the seconds from the end of a PUSH instruction until its data has
 * arrived. A later POST waits for the arrival. Returns 0 for other
 * instructions. */
double cost_delivery_s(const struct cost_machine *m, int dev,
                       const struct insn *s);

/* Sets *seconds to the duration of one step of `variant` with the micro-batches
 * z[n_micro]. Sets use[n_dev], which may be NULL, to the times of the devices.
 * Fails if out of memory or if the programs lack the variant. */
pl_status cost_run(const struct cost_machine *m, int variant, int n_micro,
                   const struct cost_micro *z, struct cost_use *use,
                   double *seconds, pl_err *err);

/* Sets *seconds to the time to compute n_tok tokens of one sequence that has
 * n_past tokens already. The tokens are split into steps and micro-batches as
 * the engine splits them (plan/microbatch.h), and only the last token gets
 * logits. A step of several micro-batches uses the pipelined variant if there
 * is one; other steps use the fastest variant. use[n_dev] may be NULL. */
pl_status cost_tokens(const struct cost_machine *m, int64_t n_tok,
                      int64_t n_past, struct cost_use *use, double *seconds,
                      pl_err *err);

#endif
