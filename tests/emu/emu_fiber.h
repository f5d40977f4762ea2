/* Fibers: functions with their own stacks, between which one thread
 * switches. */
#ifndef TEST_EMU_FIBER_H
#define TEST_EMU_FIBER_H

#include <stdbool.h>

struct fiber_stack;

/* A fiber. It has only the fields that each switch reads, so that many fibers
 * fit in few cache lines. */
struct fiber {
    /* stack pointer while the fiber is suspended; its saved registers are
     * there */
    void *sp;
    struct fiber *to;          /* the fiber that this one last switched to */
    struct fiber_stack *stack; /* the fiber's stack; owned */
};

/* Initializes a fiber. The first switch to it calls fn(user, i), which must not
 * return. If `fn` is NULL, the fiber has no stack and is meant for
 * fiber_enter(). Returns false if out of memory. */
bool fiber_init(struct fiber *f, void (*fn)(void *user, int i), void *user,
                int i);
/* Frees the stack. `f` may be zeroed; it must not be the running fiber. */
void fiber_fini(struct fiber *f);
/* Makes fiber `f` represent the calling thread's own stack, so that it can be
 * switched from. */
void fiber_enter(struct fiber *f);
/* Switches from the running fiber `from` to `to`. Returns when a fiber switches
 * back to `from`. */
void fiber_switch(struct fiber *from, struct fiber *to);
/* Prefetches the top of a fiber's stack, shortly before switching to it. */
static inline void fiber_expect(const struct fiber *f)
{
    __builtin_prefetch(f->sp);
}

#endif
