/* Writes the time of instructions as they run, in Chrome's trace format. */
#ifndef EXEC_EXEC_TRACE_H
#define EXEC_EXEC_TRACE_H

#include "lower/compile.h"

struct exec_trace; /* opaque */

/* Writes the beginning; `write` is borrowed until exec_trace_free. All memory
 * is allocated here, none in a step. */
pl_status exec_trace_create(struct exec_trace **out, const struct compiled *p,
                            pl_write_fn *write, void *user, pl_err *err);
/* Writes the end. */
void exec_trace_free(struct exec_trace *t);

/* Starts the clock of a step. */
void exec_trace_start(struct exec_trace *t);
/* Writes the events of that step, of `variant`. */
void exec_trace_run(struct exec_trace *t, int variant,
                    const struct device_timing *event, int n);
void exec_trace_sums(const struct exec_trace *t, pl_traced *out);

struct trace_span {
    double begin_s, end_s;
};

/* Returns the seconds of the spans in copy[] that overlap one of busy[]. busy[]
 * may overlap itself and is sorted here. */
double exec_trace_hidden(struct trace_span *busy, int n_busy,
                         const struct trace_span *copy, int n_copy);

#endif
