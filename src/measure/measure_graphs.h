/* Small graphs from whose run time the rates of a device are computed. */
#ifndef MEASURE_MEASURE_GRAPHS_H
#define MEASURE_MEASURE_GRAPHS_H

#include "graph/graph.h"

struct measure_size {
    pl_format format; /* format of weights or caches */
    int64_t n_tok;    /* number of tokens of the step */
    int64_t n_past;   /* number of tokens in the cache before the step */
    int64_t n_layer;  /* number of layers, one after another */
    /* width of values d per token, and of matrices [ff, d] and [d, ff] */
    int64_t d, ff;
};

/* Builds n_layer layers of norm, matrix, activation, matrix and sum, as in a
 * model. */
void measure_layers(pl_graph *g, const struct measure_size *z);
/* Builds n_layer attention nodes, each with its own caches. Number and width of
 * the heads are those of a medium-sized model. */
void measure_attention(pl_graph *g, const struct measure_size *z);
/* Builds n_layer activations in sequence, of d values per token read from a
 * table. Only one row is output. */
void measure_values(pl_graph *g, const struct measure_size *z);
/* Build graphs that mainly transfer data: d values per token as input with one
 * row as output, and d values per token, read from a table, as output. */
void measure_into(pl_graph *g, const struct measure_size *z);
void measure_out_of(pl_graph *g, const struct measure_size *z);

#endif
