/* Pass "events": emits the POSTs and WAITs that programs need.
 *
 * Before the pass, each value that a queue waits for has a POST of its own,
 * which states when it is due (enum post_time), and each use has its WAITs. The
 * pass merges POSTs, emits each as late as possible, and drops WAITs that
 * earlier ones imply. It adds WAITs that the order of programs demands: on one
 * device a WAIT for another device, or a barrier, depends on every earlier POST
 * of that device (program.h). Events and positions get new numbers, also the
 * positions in buffers and holds. */
#ifndef LOWER_EVENTS_H
#define LOWER_EVENTS_H

#include "base/arena.h"
#include "program/program.h"

/* Rewrites the programs p[n_dev]. one_queue[d]: device d runs both queues as
 * one. The new instructions are in the arena. Returns PL_BAD_ARGUMENT if a
 * program breaks a rule that the pass relies on, such as a WAIT whose POST does
 * not precede it. Only a parsed text can. */
pl_status events_pass(struct program *p, int n_dev, const bool *one_queue,
                      struct arena *a, pl_err *err);

#endif
