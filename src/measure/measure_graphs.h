/* Small graphs whose run times give the rates of a device. */
#ifndef MEASURE_MEASURE_GRAPHS_H
#define MEASURE_MEASURE_GRAPHS_H

#include "graph/graph.h"

struct measure_size {
    pl_format format; /* format of the graph's weights or caches */
    int64_t n_tok;    /* number of tokens of the step */
    int64_t n_past;   /* number of tokens in the cache before the step */
    int64_t n_layer;  /* number of layers, each of which reads the result of the
                         one before */
    /* width d of the values of a token; the matrices are [ff, d] and [d, ff] */
    int64_t d, ff;
};

/* Builds n_layer layers as in a model: norm, matrix, activation, matrix and
 * residual sum. */
void measure_layers(pl_graph *g, const struct measure_size *z);
/* Builds n_layer attention nodes, each with caches of its own. Number and width
 * of the heads are those of a medium-sized model. */
void measure_attention(pl_graph *g, const struct measure_size *z);
/* Builds n_layer elementwise activations, one after another, of d values per
 * token, which are rows of a table. Only one row is an output. */
void measure_values(pl_graph *g, const struct measure_size *z);
/* Build graphs that mainly transfer data between host and device. measure_into
 * has d values per token as input and one row as output. measure_out_of has d
 * values per token, rows of a table, as output. */
void measure_into(pl_graph *g, const struct measure_size *z);
void measure_out_of(pl_graph *g, const struct measure_size *z);

#endif
