/* Chooses what placement options leave open: the split mode and the number of
 * devices (-sm auto), and, if memory is short, shares, layers and experts on
 * the host, the micro-batch and the context (-fit).
 *
 * Ranks, and the shares of ranks, are chosen by all the memory that devices
 * have, never by what is available of it, so the same options give the same
 * bits at any hour. The memory that is available now decides the rest: which
 * devices carry which ranks and layers, what is on the host, the context, and
 * whether the model is rejected.
 *
 * Every candidate is compiled: its bytes are those that would be allocated, and
 * its speed is the cost function's for a prompt of FIT_PROMPT tokens and
 * FIT_ANSWER tokens after it. Nothing is measured. Nothing here decides a bit,
 * except by the ranks and shares of the chosen mode. Parts that fit on a device
 * are not tried on the host.
 *
 * A plan may have a second graph, of the model's block for multi-token
 * prediction. It is compiled with each candidate, by the same options, as the
 * layer after the last one. Its memory counts wherever available memory does,
 * so it never changes ranks or shares. On several machines, machine 0 alone has
 * it. */
#ifndef FIT_FIT_H
#define FIT_FIT_H

#include "lower/compile.h"

enum { FIT_PROMPT = 512, FIT_ANSWER = 128 };

struct fit_graphs {
    const pl_graph *model, *block; /* block: NULL if there is none */
    const pl_options *block_opt;   /* has the block's numbers of sequences and
                                      outputs; its other options are ignored */
    int64_t n_ctx_train;           /* the model's; 0 if unknown */
};

struct fit_plan {
    struct compiled *model, *block; /* block: NULL if there is none */
    char *text; /* malloc'ed: the options that reproduce the plan if they are
                   added to those given */
    int64_t n_ctx;
};

/* Creates the plan of `opt`, with open options chosen. After a failure *out is
 * zero. Returns PL_NO_DEVICE_MEMORY if nothing that may be chosen fits; the
 * message has the memory that each device lacks. */
pl_status fit_create(struct fit_plan *out, const struct fit_graphs *g,
                     const pl_options *opt, pl_err *err);

/* Returns device d of plan q whose memory device x of another plan takes; -1 if
 * there is none. */
int fit_same_device(const struct compiled *q, const struct device_desc *x);
/* Returns the bytes that device d of a plan allocates. */
uint64_t fit_need(const struct compiled *q, int d);

/* Appends to a message of memory that the system did not give what each device
 * of the plan was to hold. */
void fit_explain(pl_err *err, const struct compiled *q);

struct cost_rates;
/* Estimates the seconds of a prompt and its answer, as above, with
 * rates[list.n], and of the prompt's part (may be NULL). The prompt has at most
 * n_ctx tokens. The plan's own context does not count, because plans of
 * different contexts are compared. */
pl_status fit_seconds(const struct compiled *q, const struct cost_rates *rates,
                      int64_t n_ctx, double *seconds, double *prompt_s,
                      pl_err *err);

/* Returns the bytes that device d lacks now for the plan's memory on it and on
 * those that it shares memory with, with `margin` left free (0: 1/64 of it;
 * FIT_NO_MARGIN: none). A negative result is what is left. */
#define FIT_NO_MARGIN UINT64_MAX
int64_t fit_shortfall(const struct compiled *q, int d, uint64_t margin);

/* Sets q->variants.stream_from, the number of tokens from which on a step
 * streams the host's weights and caches. */
pl_status fit_offload(struct compiled *q, pl_offload how, pl_err *err);

#endif
