/* Sets of stacks of an automaton's states: all stacks that are possible after
 * the text read so far.
 *
 * A stack has the state of the current rule on top; below are the states to
 * which the called rules return. A set consists of items: a state on top, and
 * the set of all stacks that may be below it. No two items of a set have the
 * same state. Equal sets have the same number and are stored once, so many sets
 * share the sets below.
 *
 * A *step* reads one byte. It visits each state once, however many ways there
 * are to parse the text. Steps are cached, so sets act as the states of a
 * deterministic automaton that is built on demand. A set is *ready to step*
 * after all returns and calls that need no byte were made, so that each state
 * on top takes a byte. All sets of a struct stacks are its *pool*.
 *
 * Failures are sticky: struct stacks keeps the first one since stacks_begin.
 * After it, functions return STACKS_DEAD or its row and cache nothing, so
 * callers check `status` once, at the end of an operation.
 *
 * The idea of shared stacks is Tomita's (Efficient Parsing for Natural
 * Language, 1985). */
#ifndef GRAMMAR_STACKS_H
#define GRAMMAR_STACKS_H

#include "base/arena.h"
#include "grammar/automaton.h"

enum {
    /* The set that has no stack: the text cannot be continued. */
    STACKS_DEAD,
    /* The set that has only the empty stack: the text is complete. */
    STACKS_EMPTY,
    STACKS_UNKNOWN = UINT32_MAX, /* in place of a set: it was not computed */
    /* Maximum number of states on a stack. A text with more nested calls of
     * rules does not match. */
    STACKS_DEPTH = 2000,
    STACKS_MOST_BYTES = 1 << 29, /* limit of a pool's memory in bytes */
    /* Limit of the number of items pushed since stacks_begin, so that an
     * ambiguous grammar cannot take unlimited time. */
    STACKS_MOST_PUSHES = 1 << 24,
};

struct stack_item {
    /* the state on top, and the number of the set of stacks below it */
    uint32_t state, below;
};

/* The cached steps of a set of stacks: for each byte class, the row of the set
 * after a byte of this class. Walks over tokens follow these rows only. */
struct stack_row {
    uint32_t set;
    uint16_t depth;
    bool ends;
    /* [n_class] in the arena; NULL for a class whose step was not computed
     * yet. */
    struct stack_row *next[];
};

struct stack_set {
    struct stack_item *item; /* the items of the set: [n], in the arena,
                                ascending by state */
    /* Cached steps, in the arena. NULL until a step from or to this set is
     * computed. */
    struct stack_row *row;
    /* A set's even characters are those after which its next set is always
     * `after`; see find_even in masks.c. Live characters are those that do not
     * lead to STACKS_DEAD. */
    uint64_t even_ascii[2], live_ascii[2];
    uint8_t even_others;
    bool others_known;
    /* If dead_known: others_dead tells whether all non-ASCII characters lead to
     * STACKS_DEAD. */
    bool dead_known, others_dead;
    uint16_t depth; /* greatest number of states on a stack of this set */
    uint32_t after; /* the set to which even characters lead, 0 if it was not
                       computed yet */
    uint32_t n, hash;
    /* The set after all returns and calls (stacks_closed), or
     * STACKS_UNKNOWN. */
    uint32_t closed;
    bool ends; /* the empty stack is in the set: the text is complete */
};

/* A cached union: `both` is the union of sets a and b. */
struct stack_union {
    uint32_t a, b, both; /* a < b are numbers of sets; a is 0 in a free entry of
                            the table */
};

struct stacks {
    const struct automaton *a; /* automaton of the grammar, borrowed */
    /* Owns the items of sets, the rows of steps, and scratch arrays. */
    struct arena memory;
    struct stack_set *set; /* owned, [n_set]: sets by number */
    uint32_t *slot;        /* owned, [n_slot]: hash table of sets by items */
    uint32_t n_set, cap_set, n_slot;
    struct stack_union *made; /* owned, [cap_made]: hash table of unions */
    uint32_t n_made, cap_made;
    int64_t n_push; /* items pushed since stacks_begin */
    /* The first failure since stacks_begin: PL_NO_MEMORY, or PL_UNSUPPORTED for
     * a limit of this file. */
    pl_status status;
    struct stack_item *pile; /* owned, [cap_pile]: items of new sets */
    size_t n_pile, cap_pile;
    /* In the arena: bit set of the rules that were called while returns and
     * calls are made, by place (automaton.h). */
    uint64_t *called;
    /* In the arena, [n_place]: for each called rule, the set of stacks below
     * the call. */
    uint32_t *called_over;
    /* In the arena: bit set of the states that were found while the items of a
     * new set are sorted. */
    uint64_t *met;
    /* In the arena, [n_state]: index in the pile of the item of each state in
     * `met`. */
    uint32_t *met_at;
};

/* Returns false if out of memory. stacks_fini frees the memory in any case. */
bool stacks_init(struct stacks *s, const struct automaton *a);
void stacks_fini(struct stacks *s);
/* Returns the memory of the pool of sets in bytes. */
size_t stacks_bytes(const struct stacks *s);

/* Begins an operation: sets the status to PL_OK, and the count of pushed items,
 * which STACKS_MOST_PUSHES limits, to 0. */
void stacks_begin(struct stacks *s);
/* Keeps the failure `status`, unless there was one before. */
void stacks_fail(struct stacks *s, pl_status status);

/* Returns the set of stacks at the start of a text, ready to step. */
uint32_t stacks_start(struct stacks *s);
/* Returns the set in which each of the n states is on top of the stacks of the
 * set `below`. The states must be ascending. */
uint32_t stacks_over(struct stacks *s, const uint32_t *state, uint32_t n,
                     uint32_t below);
/* Makes all returns and calls that need no byte and returns the resulting set,
 * which is ready to step. */
uint32_t stacks_closed(struct stacks *s, uint32_t set);

/* Returns the set of all stacks of sets a and b. If a and b are ready to step
 * (every state on top takes a byte), so is the result. */
uint32_t stacks_union(struct stacks *s, uint32_t a, uint32_t b);

/* Returns the row of cached steps of a set, which must be ready to step. */
struct stack_row *stacks_row(struct stacks *s, uint32_t set);
/* Computes and caches the step from the set of `from` by a byte of this class.
 * Returns the row of the set after it. */
struct stack_row *stacks_step_new(struct stacks *s, struct stack_row *from,
                                  unsigned class);

/* Returns the row of the set after a byte. Uses the cached step if there is
 * one. */
static inline struct stack_row *
stacks_step_row(struct stacks *s, struct stack_row *from, unsigned byte)
{
    unsigned class = s->a->class_of[byte];
    struct stack_row *to = from->next[class];

    return to ? to : stacks_step_new(s, from, class);
}

/* Returns the set of stacks after a byte. `set` must be ready to step: every
 * state on top takes a byte. */
static inline uint32_t stacks_step(struct stacks *s, uint32_t set,
                                   unsigned byte)
{
    return stacks_step_row(s, stacks_row(s, set), byte)->set;
}

/* Copies a set of stacks, with all sets below, from the pool `from` to the pool
 * `to` of the same automaton. Returns the set's number there.
 * known[from->n_set] has 1 + the new number of each set copied so far; it must
 * be zeroed before the first call. */
uint32_t stacks_carry(struct stacks *to, const struct stacks *from,
                      uint32_t *known, uint32_t set);

#endif
