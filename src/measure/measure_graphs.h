/* The graphs of the experiments. */
#ifndef MEASURE_MEASURE_GRAPHS_H
#define MEASURE_MEASURE_GRAPHS_H

#include "graph/graph.h"

struct measure_size {
    pl_format format; /* of weights, of caches */
    int64_t n_tok;    /* of the step */
    int64_t n_past;   /* tokens in the cache before it */
    int64_t n_layer;  /* one after the other */
    int64_t d, ff;    /* matrices [ff, d] and back; values a token */
};

/* Builds norm, matrix, activation, matrix, sum: as in a model's layers. */
void measure_layers(pl_graph *g, const struct measure_size *z);
/* Builds attention with heads as in a medium-sized model; each layer has
 * caches. */
void measure_attention(pl_graph *g, const struct measure_size *z);
/* Builds d values per token, read from a table, and n_layer activations of
 * them; one row is output. */
void measure_values(pl_graph *g, const struct measure_size *z);
/* Build graphs with d values per token as input and one row as output; or with
 * all values, read from a table, as output. */
void measure_into(pl_graph *g, const struct measure_size *z);
void measure_out_of(pl_graph *g, const struct measure_size *z);

#endif
