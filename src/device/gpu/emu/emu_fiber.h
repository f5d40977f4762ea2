/* Fibers: stacks that one thread switches between. */
#ifndef DEVICE_GPU_EMU_EMU_FIBER_H
#define DEVICE_GPU_EMU_EMU_FIBER_H

#include <stdbool.h>

struct fiber_stack;

/* The fields that every switch reads, small so that many fibers fit in few
 * cache lines. */
struct fiber {
    void *sp; /* stack pointer to its saved registers, while it does not run */
    struct fiber *to;          /* fiber it last switched to */
    struct fiber_stack *stack; /* owned */
};

/* Prepares a fiber whose first switch calls fn(user, i), which never returns.
 * fn NULL: a fiber for the stack of the caller of fiber_enter(). Returns false
 * if memory is short. */
bool fiber_init(struct fiber *f, void (*fn)(void *user, int i), void *user,
                int i);
void fiber_fini(struct fiber *f); /* takes a zeroed one; not the running one */
/* Makes the caller's stack that of fiber f; switches start from it. */
void fiber_enter(struct fiber *f);
/* Switches from `from`, which runs, to `to`. Returns when a fiber switches
 * back. */
void fiber_switch(struct fiber *from, struct fiber *to);
/* Prefetches the stack of a fiber that is switched to soon. */
static inline void fiber_expect(const struct fiber *f)
{
    __builtin_prefetch(f->sp);
}

#endif
