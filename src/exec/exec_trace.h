/* What steps took, as it happens, in Chrome's trace format. */
#ifndef EXEC_EXEC_TRACE_H
#define EXEC_EXEC_TRACE_H

#include "lower/compile.h"

struct exec_trace; /* opaque */

/* Writes the beginning; `write` is borrowed until exec_trace_free. All room is
 * taken here, none in a run. */
pl_status exec_trace_create(struct exec_trace **out, const struct compiled *p,
                            pl_write_fn *write, void *user, pl_err *err);
/* Writes the end. */
void exec_trace_free(struct exec_trace *t);

/* The clock of a run that begins now. */
void exec_trace_start(struct exec_trace *t);
/* Writes the events of that run, of `script`. */
void exec_trace_run(struct exec_trace *t, int variant,
                    const struct device_timing *event, int n);
void exec_trace_sums(const struct exec_trace *t, pl_traced *out);

struct trace_span {
    double begin_s, end_s;
};

/* Seconds of the spans in copy[] during which one of busy[] lasted; busy[] may
 * overlap and is sorted here. */
double exec_trace_hidden(struct trace_span *busy, int n_busy,
                         const struct trace_span *copy, int n_copy);

#endif
