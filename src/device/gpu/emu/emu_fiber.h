/* Fibers: stacks that one thread goes on with in turn. */
#ifndef DEVICE_GPU_EMU_EMU_FIBER_H
#define DEVICE_GPU_EMU_EMU_FIBER_H

struct fiber;

/* fn(user, i), which never returns, begins with the first switch to the fiber.
 * fn NULL: the stack of whoever calls fiber_enter(). NULL: no memory. */
struct fiber *fiber_new(void (*fn)(void *user, int i), void *user, int i);
void fiber_free(struct fiber *f); /* takes NULL; not the one that runs */
/* The caller's stack is this fiber's now; fibers are switched to from it. */
void fiber_enter(struct fiber *f);
/* Leaves `from`, which runs, for `to`; returns when somebody switches back. */
void fiber_switch(struct fiber *from, struct fiber *to);
/* It is switched to soon, or later: its stack, or where that is, is brought
 * near. */
void fiber_expect(const struct fiber *soon, const struct fiber *later);

#endif
