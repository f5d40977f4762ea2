/* The graphs that experiments run. */
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

/* Norm, matrix, activation, matrix, sum: as a model's layers. */
void measure_layers(pl_graph *g, const struct measure_size *z);
/* Heads as a model of middling size has them; each layer has caches. */
void measure_attention(pl_graph *g, const struct measure_size *z);
/* d values a token, which come of a table; n_layer activations of them; one row
 * goes out. */
void measure_values(pl_graph *g, const struct measure_size *z);
/* d values a token go in and one row out; or all out that come of a table. */
void measure_into(pl_graph *g, const struct measure_size *z);
void measure_out_of(pl_graph *g, const struct measure_size *z);

#endif
