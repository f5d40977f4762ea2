/* Pass "specialize": the variants of a plan's programs, and the steps that
 * execute each.
 *
 * It is the first pass, because each variant has its own placement of ops and
 * is lowered separately. It reads the groups in which layers are computed, and
 * the home groups of experts and caches that might be streamed. Within a
 * variant, predicates separate steps of few rows from steps of many; the pass
 * "transfer" chooses them (transfers.h). */
#ifndef LOWER_VARIANTS_H
#define LOWER_VARIANTS_H

#include "base/arena.h"

#include <stdbool.h>
#include <stdint.h>

enum variant_kind {
    VARIANT_RESIDENT,  /* one micro-batch; everything computed where it lives */
    VARIANT_STREAMED,  /* one; weights and caches of the host streamed to the
                        devices */
    VARIANT_PIPELINED, /* several; everything computed where it lives */
    VARIANT_COUNT
};

/* A weight or cache that is copied to the group of its layer if it is
 * streamed. */
struct variant_leaf {
    int node;        /* graph node */
    int layer, home; /* its layer; its home group */
    bool streamed;   /* set by the pass */
};

struct variants {
    int host;        /* group of the host; -1 if there is none */
    bool may_stream; /* false if the caller forbids VARIANT_STREAMED */
    int n_layer;
    const int *layer; /* [n_layer] group that computes it; the output is the
                         last layer */
    int n_leaf;
    struct variant_leaf *leaf; /* [n_leaf] */
    /* Set by the pass: the maximum number of micro-batches of a step, by kind;
     * 0 if the programs do not have this variant. */
    int n_micro[VARIANT_COUNT];
    /* Least number of tokens of a step that executes VARIANT_STREAMED. The pass
     * sets it to 2; fit_offload then compares the costs of the programs. */
    int64_t stream_from;
};

/* Adds a leaf. Returns false if out of memory. */
bool variants_add_leaf(struct variants *v, struct arena *a,
                       const struct variant_leaf *leaf);

/* Pass "specialize". */
void variants_choose(struct variants *v);

/* Returns the kind of variant that a step of n_micro micro-batches executes.
 * The first micro-batch has n_tok tokens. */
enum variant_kind variants_of_step(const struct variants *v, int n_micro,
                                   int64_t n_tok);

/* Prints the structure as text, and parses it.
 *
 *   variants layers 0, 0, 1 host 2 stream  # groups; may_stream
 *   leaf 14: layer 0 in 2 streamed         # graph node; home group
 *   resident
 *   streamed n_tok 2..
 *   pipelined micro 8
 *
 * The pass makes the last three lines. variants_parse returns PL_BAD_ARGUMENT,
 * with the line, if the text is not of this form, or PL_NO_MEMORY. */
pl_status variants_print(const struct variants *v, pl_write_fn *write,
                         void *user);
pl_status variants_parse(struct variants **out, struct arena *a,
                         const char *text, size_t len, pl_err *err);

#endif
