/* The SVG picture of a plan: a table with rows of devices and columns of
 * layers. Each cell shows what these devices store of these layers. */
#ifndef REPORT_PLAN_SVG_H
#define REPORT_PLAN_SVG_H

#include "report/plan_facts.h"
#include "report/writer.h"

enum {
    SVG_TOP = 96, /* y coordinate of the picture's first row, in px */
    SVG_PAD = 14, /* space above the boxes of a row, in px */
};

/* A row or a column of the picture: devices or layers first .. first + n - 1,
 * which are drawn as one. Layer -1 is the embedding, n_layer the output. */
struct svg_lane {
    int first, n;
    bool more;       /* there are too many: those of this lane are not drawn,
                        only their number is shown */
    bool differ;     /* the column's layers are split differently among the
                        ranks */
    char groups[64]; /* names of the groups to which the row's devices belong */
    double at, size; /* y and height of a row, x and width of a column */
};

struct svg_lanes {
    int n;
    struct svg_lane *v; /* [n] */
    int *of; /* index of the lane in which each device or layer is drawn; of[0]
                is for device 0, or for the embedding */
};

enum svg_line_kind { SVG_COLLECTIVE, SVG_COPY, SVG_STREAM, SVG_LINES };

/* A vertical line of the picture. It stands for collectives of one group or for
 * copies from one group to another. */
struct svg_line {
    enum svg_line_kind kind;
    /* Index of the column after which the line is drawn; group that sends and
     * group that receives, equal for a collective. */
    int column, a, b;
    int n;
    uint64_t bytes;
    const char *name;
    bool *from, *to; /* [row.n] true for rows with devices of group a, and of
                        group b */
    double x;
};

struct svg_page {
    const pl_plan *p;
    const struct plan_facts *f;
    const struct sink *to;
    struct svg_lanes row, column;
    int n_line;
    struct svg_line *line;
    /* [n_tensor][row.n] for each tensor of the first layer of a column: bytes
     * that a device of the row stores of it, averaged over the layers of the
     * column */
    uint64_t *mean;
    bool tied; /* the token embedding is also the output matrix, so the
                       output has no box of its own */
    bool has_kind[PLAN_KINDS], has_line[SVG_LINES];
    double scale; /* area in px^2 of a box that stands for one byte */
    double width, height;
};

/* Computes the rows, columns and lines of the picture and their positions from
 * g->p and g->f. All memory is allocated from `a`. */
pl_status svg_page_init(struct svg_page *g, struct arena *a, pl_err *err);

/* Returns the column in which tensor t is drawn. Returns NULL if it is not
 * drawn, because an earlier layer stands for its layer. */
const struct svg_lane *svg_column_of(const struct svg_page *g,
                                     const struct plan_tensor *t);
/* Returns the bytes that a device of row `row` stores of one layer of column c,
 * on average. Sets kind[k] to the bytes of the tensors of kind k. */
uint64_t svg_bytes(const struct svg_page *g, const struct svg_lane *c, int row,
                   uint64_t kind[PLAN_KINDS]);
/* Returns true if device `dev` belongs to the group that computes the layers of
 * column c. */
bool svg_runs(const struct svg_page *g, const struct svg_lane *c, int dev);
/* Returns the side in px of the square in the legend, whose area stands for a
 * power of two of bytes. */
double svg_side(const struct svg_page *g);

#endif
