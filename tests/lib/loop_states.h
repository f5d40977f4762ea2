/* Checks that the tasks of a loop changed their states only along the edges
 * that server/loop_inner.h draws. */
#ifndef TEST_LOOP_STATES_H
#define TEST_LOOP_STATES_H

#include "lib/support.h"
#include "server/loop_inner.h"

/* Stops the loop and returns the set of edges from `from` that were taken. */
static inline unsigned taken_edges(struct loop *l, enum task_state from)
{
    loop_stop(l);
    return l->moved[from];
}

static inline void expect_drawn_edges(struct loop *l)
{
    for (int a = 0; a < N_TASK_STATE; a++)
        assert_int_equal(taken_edges(l, (enum task_state)a) & ~loop_edges[a],
                         0);
}

#endif
