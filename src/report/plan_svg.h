/* The layout of the picture of a plan. */
#ifndef REPORT_PLAN_SVG_H
#define REPORT_PLAN_SVG_H

#include "report/plan_facts.h"
#include "report/writer.h"

enum svg_kind {
    SVG_ATTENTION,
    SVG_FEED_FORWARD,
    SVG_EXPERTS,
    SVG_EMBEDDING,
    SVG_CACHE,
    SVG_OTHER,
    SVG_KINDS
};

enum {
    SVG_TOP = 96, /* start of the rows, px */
    SVG_PAD = 14, /* above a row's boxes */
};

/* Devices first .. first + n - 1. */
struct svg_row {
    int first, n;
    bool more;       /* too many: only counted */
    char groups[64]; /* their names */
    double y, h;
};

/* Layers first .. last; -1 is the embedding, n_layer the output. */
struct svg_column {
    int first, last;
    bool more;   /* too many: only named */
    bool differ; /* splits differ between its layers */
    double x, w;
};

enum svg_line_kind { SVG_COLLECTIVE, SVG_COPY, SVG_STREAM, SVG_LINES };

/* Collectives of a group, or copies between two groups, of a column. */
struct svg_line {
    enum svg_line_kind kind;
    int column, a, b; /* groups; equal for a collective */
    int n;
    uint64_t bytes;
    const char *name;
    bool *from, *to; /* [n_row] */
    double x;
};

struct svg_page {
    const pl_plan *p;
    const struct plan_facts *f;
    const struct sink *to;
    int n_row, n_column, n_line;
    struct svg_row *row;
    struct svg_column *column;
    struct svg_line *line;
    /* [n_tensor][n_row] for tensors of a column's first layer: bytes on a
     * device of the row, averaged over the column's layers */
    uint64_t *mean;
    int *row_of;    /* [n_dev] */
    int *column_of; /* [n_layer + 2] by layer + 1 */
    bool tied;      /* the output uses the embedding's weight */
    bool has_kind[SVG_KINDS], has_line[SVG_LINES];
    double scale; /* px^2 a byte */
    double width, height;
};

/* All memory is allocated from the arena. */
pl_status svg_page_init(struct svg_page *g, struct arena *a, pl_err *err);

enum svg_kind svg_kind(const struct graph_node *n);
/* Returns the column that draws the tensor, or NULL. */
const struct svg_column *svg_column_of(const struct svg_page *g,
                                       const struct plan_tensor *t);
/* Returns the bytes of a cell, total and by kind. */
uint64_t svg_bytes(const struct svg_page *g, const struct svg_column *c,
                   int row, uint64_t kind[SVG_KINDS]);
/* Returns true if the device is in the group that runs the column. */
bool svg_runs(const struct svg_page *g, const struct svg_column *c, int dev);
/* Returns the side of the square of the legend: a power of two of bytes. */
double svg_side(const struct svg_page *g);

#endif
