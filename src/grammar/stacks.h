/* Sets of stacks of an automaton's states: what a text that was read so far may
 * be in the middle of.
 *
 * A set is a few items, each a state on top and the set of what may lie below
 * it; no two items have one state, and equal sets are one set, which its number
 * stands for. So sets share what lies below, and however many ways there are
 * to read a text, a step looks at each state once. Steps are remembered: a set
 * is a state of a deterministic automaton that is made as it is walked.
 *
 * The idea of shared stacks is Tomita's (Efficient Parsing for Natural
 * Language, 1985); that a set of them is kept as one minimal automaton follows
 * from giving equal sets one number. */
#ifndef GRAMMAR_STACKS_H
#define GRAMMAR_STACKS_H

#include "base/arena.h"
#include "grammar/automaton.h"

enum {
    STACKS_DEAD,  /* the set without a stack: no text goes on so */
    STACKS_EMPTY, /* the set of the empty stack: the text is whole */
    STACKS_FAILED = UINT32_MAX,   /* no set: memory is out */
    STACKS_DEPTH = 2000,          /* a call that would go deeper is no match */
    STACKS_MOST_BYTES = 1 << 29,  /* of a pool, */
    STACKS_MOST_PUSHES = 1 << 24, /* and items that are put into sets since
                                     stacks_begin: more is refused */
};

struct stack_item {
    uint32_t state, below; /* a set */
};

/* The steps of a set, from row to row, for walks that do nothing else. */
struct stack_row {
    uint32_t set;
    uint16_t depth;
    bool ends;
    struct stack_row *next[]; /* views of the arena, [n_class]; NULL: not made
                                 yet */
};

struct stack_set {
    struct stack_item *item; /* a view of the arena, [n], by state */
    struct stack_row *row;   /* the same; NULL: nothing steps to or from it */
    /* Characters after each of which the set is `after`, and how many of ASCII
     * in a row lead to `past`, the span; see masks.c. */
    uint64_t even_ascii[2], live_ascii[2]; /* live: that lead anywhere */
    uint8_t even_others;
    bool others_known, spanned;
    bool dead_known, others_dead; /* no character beyond ASCII leads on */
    uint16_t depth;               /* of the deepest stack */
    uint32_t after, past, span;   /* 0: not known yet, nor is the rest */
    uint32_t n, hash;
    uint32_t closed; /* as what a pop gives, or STACKS_FAILED: not known */
    bool ends;       /* the empty stack is among them */
};

/* A union that was made. */
struct stack_union {
    uint32_t a, b, both; /* a < b; a 0: a free place */
};

struct stacks {
    const struct automaton *a; /* borrowed */
    struct arena memory;       /* owns items and steps */
    struct stack_set *set;     /* owned, [n_set] */
    uint32_t *slot;            /* owned: sets by what they hold */
    uint32_t n_set, cap_set, n_slot;
    struct stack_union *made; /* owned, [cap_made]: unions by their sets */
    uint32_t n_made, cap_made;
    int64_t n_push; /* since stacks_begin */
    bool refused;   /* a set failed by a limit, not for want of memory */
    struct stack_item *pile; /* owned: sets under construction */
    size_t n_pile, cap_pile;
    uint64_t *called; /* owned: places of rules that were called, as bits */
    uint32_t *called_over; /* owned, [n_place]: over which set */
    uint64_t *met;         /* owned: states while a set is sorted, as bits */
    uint32_t *met_at;      /* owned, [n_state]: where in the pile */
};

/* False: memory is out. What is held is freed by stacks_fini in any case. */
bool stacks_init(struct stacks *s, const struct automaton *a);
void stacks_fini(struct stacks *s);
/* Bytes that are held. */
size_t stacks_bytes(const struct stacks *s);

/* Before each piece of work that is to keep to STACKS_MOST_PUSHES. */
void stacks_begin(struct stacks *s);

/* The set at the start of a text, ready to step. */
uint32_t stacks_start(struct stacks *s);
/* The set of the states on top of one set. They must rise. */
uint32_t stacks_over(struct stacks *s, const uint32_t *state, uint32_t n,
                     uint32_t below);
/* What can step when all that is on top of the set is gone. */
uint32_t stacks_closed(struct stacks *s, uint32_t set);

/* The row of a set that is ready to step; NULL: memory is out. */
struct stack_row *stacks_row(struct stacks *s, uint32_t set);
/* Makes a step that was not made yet; NULL as above. */
struct stack_row *stacks_step_new(struct stacks *s, struct stack_row *from,
                                  unsigned class);

/* Where a byte leads; NULL as above. */
static inline struct stack_row *
stacks_step_row(struct stacks *s, struct stack_row *from, unsigned byte)
{
    unsigned class = s->a->class_of[byte];
    struct stack_row *to = from->next[class];

    return to ? to : stacks_step_new(s, from, class);
}

/* The set after a byte, of a set that is ready to step. */
static inline uint32_t stacks_step(struct stacks *s, uint32_t set,
                                   unsigned byte)
{
    struct stack_row *row = stacks_row(s, set);

    row = row ? stacks_step_row(s, row, byte) : NULL;
    return row ? row->set : STACKS_FAILED;
}

/* The same set of another pool, of the same automaton. `known`: [s->n_set],
 * zeros at first: what was carried over, numbers 1 too high. */
uint32_t stacks_carry(struct stacks *to, const struct stacks *from,
                      uint32_t *known, uint32_t set);

#endif
