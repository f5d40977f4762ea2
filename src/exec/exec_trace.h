/* Writes the time at which each instruction of a step began and ended, as a
 * trace in Chrome's Trace Event Format. */
#ifndef EXEC_EXEC_TRACE_H
#define EXEC_EXEC_TRACE_H

#include "lower/compile.h"

struct exec_trace; /* opaque: a trace that is being written */

/* Creates a trace and writes the start of the file by the function `write`,
 * which is used until exec_trace_free. Allocates all memory that later steps
 * need. */
pl_status exec_trace_create(struct exec_trace **out, const struct compiled *p,
                            pl_write_fn *write, void *user, pl_err *err);
/* Writes the end of the file and frees the trace. */
void exec_trace_free(struct exec_trace *t);

/* Records the time at which a step begins, the origin of its events' times. */
void exec_trace_start(struct exec_trace *t);
/* Writes the n events of the step that exec_trace_start began. `variant` is the
 * variant that ran. */
void exec_trace_run(struct exec_trace *t, int variant,
                    const struct device_timing *event, int n);
void exec_trace_sums(const struct exec_trace *t, pl_traced *out);

struct trace_span {
    double begin_s, end_s;
};

/* Returns for how many seconds a copy of copy[] takes place while some kernel
 * of busy[] runs. Spans of busy[] may overlap one another. The function sorts
 * busy[]. */
double exec_trace_hidden(struct trace_span *busy, int n_busy,
                         const struct trace_span *copy, int n_copy);

#endif
