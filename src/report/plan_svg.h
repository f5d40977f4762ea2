/* The SVG picture of a plan: a table with rows of devices and columns of
 * layers. Each cell shows what these devices store of these layers. */
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
    SVG_TOP = 96, /* y coordinate of the first row, in px */
    SVG_PAD = 14, /* space above the boxes of a row, in px */
};

/* A row: devices first .. first + n - 1. */
struct svg_row {
    int first, n;
    bool more;       /* the row represents devices that are not drawn because
                        there are too many; only their number is shown */
    char groups[64]; /* names of the groups of these devices */
    double y, h;
};

/* A column: layers first .. last, where -1 is the embedding and n_layer the
 * output. */
struct svg_column {
    int first, last;
    bool more;   /* the column represents layers that are not drawn because
                    there are too many; only their numbers are shown */
    bool differ; /* the layers of the column are split differently */
    double x, w;
};

enum svg_line_kind { SVG_COLLECTIVE, SVG_COPY, SVG_STREAM, SVG_LINES };

/* A line of the picture: the collectives of a group in a column, or the copies
 * between two groups. */
struct svg_line {
    enum svg_line_kind kind;
    int column, a, b; /* a and b are groups; equal for a collective */
    int n;
    uint64_t bytes;
    const char *name;
    bool *from, *to; /* [n_row] rows with devices of group a, of group b */
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
    /* [n_tensor][n_row] for the tensors of the first layer of a column: bytes
     * on a device of the row, averaged over the layers of the column */
    uint64_t *mean;
    int *row_of;    /* [n_dev] row of each device */
    int *column_of; /* [n_layer + 2] column of each layer, indexed by layer +
                       1 */
    bool tied;      /* the output has no weight of its own but uses that of the
                       embedding */
    bool has_kind[SVG_KINDS], has_line[SVG_LINES];
    double scale; /* area of a box in px^2 per byte */
    double width, height;
};

/* Computes rows, columns, lines and their positions from g->p and g->f. All
 * memory is allocated from `a`. */
pl_status svg_page_init(struct svg_page *g, struct arena *a, pl_err *err);

enum svg_kind svg_kind(const struct graph_node *n);
/* Returns the column in which tensor t is drawn, or NULL if it is not drawn. */
const struct svg_column *svg_column_of(const struct svg_page *g,
                                       const struct plan_tensor *t);
/* Returns the bytes that a device of the row stores of a layer of column c, on
 * average. Sets kind[k] to the part of each kind. */
uint64_t svg_bytes(const struct svg_page *g, const struct svg_column *c,
                   int row, uint64_t kind[SVG_KINDS]);
/* Returns true if device `dev` is in the group that computes the layers of
 * column c. */
bool svg_runs(const struct svg_page *g, const struct svg_column *c, int dev);
/* Returns the side in px of the square in the legend, which stands for a power
 * of two of bytes. */
double svg_side(const struct svg_page *g);

#endif
