/* Fibers: stacks that one thread goes on with in turn. */
#ifndef DEVICE_GPU_EMU_EMU_FIBER_H
#define DEVICE_GPU_EMU_EMU_FIBER_H

#include <stdbool.h>

struct fiber_stack;

/* What every switch reads: of many fibers in a few lines of the cache. */
struct fiber {
    void *sp;         /* where its registers are, while it does not run */
    struct fiber *to; /* that it was left for */
    struct fiber_stack *stack; /* owned */
};

/* fn(user, i), which never returns, begins with the first switch to the fiber.
 * fn NULL: the stack of whoever calls fiber_enter(). False: no memory. */
bool fiber_init(struct fiber *f, void (*fn)(void *user, int i), void *user,
                int i);
void fiber_fini(struct fiber *f); /* takes one that is all zero; not the one
                                     that runs */
/* The caller's stack is this fiber's now; fibers are switched to from it. */
void fiber_enter(struct fiber *f);
/* Leaves `from`, which runs, for `to`; returns when somebody switches back. */
void fiber_switch(struct fiber *from, struct fiber *to);
/* It is switched to soon: its stack is brought near. */
static inline void fiber_expect(const struct fiber *f)
{
    __builtin_prefetch(f->sp);
}

#endif
