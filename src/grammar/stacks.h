/* Sets of stacks of an automaton's states: all configurations that the text
 * read so far may be in.
 *
 * A set consists of items: a state on top, and the set of what may be below it.
 * No two items have the same state, and equal sets have the same number. So
 * sets share what is below, and a step visits each state once, however many
 * ways there are to read a text. Steps are cached: a set is a state of a
 * deterministic automaton that is built on demand.
 *
 * The idea of shared stacks is Tomita's (Efficient Parsing for Natural
 * Language, 1985). Numbering equal sets equally keeps a set as one minimal
 * automaton. */
#ifndef GRAMMAR_STACKS_H
#define GRAMMAR_STACKS_H

#include "base/arena.h"
#include "grammar/automaton.h"

enum {
    STACKS_DEAD,  /* the set without a stack: no text continues */
    STACKS_EMPTY, /* the set of the empty stack: the text is complete */
    STACKS_FAILED = UINT32_MAX,  /* no set: out of memory */
    STACKS_DEPTH = 2000,         /* a deeper call does not match */
    STACKS_MOST_BYTES = 1 << 29, /* of a pool */
    /* Items put into sets since stacks_begin. More are rejected. */
    STACKS_MOST_PUSHES = 1 << 24,
};

struct stack_item {
    uint32_t state, below; /* a set */
};

/* The steps of a set, from row to row, for walks that need nothing else. */
struct stack_row {
    uint32_t set;
    uint16_t depth;
    bool ends;
    struct stack_row *next[]; /* views of the arena, [n_class]; NULL: unknown */
};

struct stack_set {
    struct stack_item *item; /* a view of the arena, [n], by state */
    struct stack_row *row;   /* the same; NULL: no step from or to it yet */
    /* Even characters: each leads to the set `after`. `span` even ASCII
     * characters in a row lead to `past`; see masks.c. */
    uint64_t even_ascii[2], live_ascii[2]; /* live: that lead anywhere */
    uint8_t even_others;
    bool others_known, spanned;
    bool dead_known, others_dead; /* no character beyond ASCII continues */
    uint16_t depth;               /* of the deepest stack */
    uint32_t after, past, span;   /* 0: not known, nor are the rest */
    uint32_t n, hash;
    uint32_t closed; /* result of stacks_closed; STACKS_FAILED: not known */
    bool ends;       /* it contains the empty stack */
};

/* A cached union. */
struct stack_union {
    uint32_t a, b, both; /* a < b; a 0: a free entry */
};

struct stacks {
    const struct automaton *a; /* borrowed */
    struct arena memory;       /* owns items and steps */
    struct stack_set *set;     /* owned, [n_set] */
    uint32_t *slot;            /* owned: sets by their contents */
    uint32_t n_set, cap_set, n_slot;
    struct stack_union *made; /* owned, [cap_made]: unions by their sets */
    uint32_t n_made, cap_made;
    int64_t n_push; /* since stacks_begin */
    bool refused;   /* a set failed because of a limit, not of memory */
    struct stack_item *pile; /* owned: sets under construction */
    size_t n_pile, cap_pile;
    uint64_t *called;      /* owned: places of called rules, as bits */
    uint32_t *called_over; /* owned, [n_place]: over which set */
    uint64_t *met;         /* owned: states seen while sorting a set, as bits */
    uint32_t *met_at;      /* owned, [n_state]: their positions in the pile */
};

/* Returns false if out of memory. stacks_fini frees the memory in any case. */
bool stacks_init(struct stacks *s, const struct automaton *a);
void stacks_fini(struct stacks *s);
/* Returns the bytes held. */
size_t stacks_bytes(const struct stacks *s);

/* Starts to count pushes for the limit STACKS_MOST_PUSHES. */
void stacks_begin(struct stacks *s);

/* Returns the set at the start of a text, ready to step. */
uint32_t stacks_start(struct stacks *s);
/* Returns the set of the states, which must rise, on top of one set. */
uint32_t stacks_over(struct stacks *s, const uint32_t *state, uint32_t n,
                     uint32_t below);
/* Returns the set of what can step once everything on top of `set` is gone. */
uint32_t stacks_closed(struct stacks *s, uint32_t set);

/* Returns the row of a set that is ready to step, or NULL if out of memory. */
struct stack_row *stacks_row(struct stacks *s, uint32_t set);
/* Makes a missing step. Returns NULL as above. */
struct stack_row *stacks_step_new(struct stacks *s, struct stack_row *from,
                                  unsigned class);

/* Steps by a byte. Returns NULL as above. */
static inline struct stack_row *
stacks_step_row(struct stacks *s, struct stack_row *from, unsigned byte)
{
    unsigned class = s->a->class_of[byte];
    struct stack_row *to = from->next[class];

    return to ? to : stacks_step_new(s, from, class);
}

/* Returns the set after a byte. `set` must be ready to step. */
static inline uint32_t stacks_step(struct stacks *s, uint32_t set,
                                   unsigned byte)
{
    struct stack_row *row = stacks_row(s, set);

    row = row ? stacks_step_row(s, row, byte) : NULL;
    return row ? row->set : STACKS_FAILED;
}

/* Copies a set to another pool of the same automaton. `known`: [s->n_set],
 * zeros at first; the numbers of copied sets, plus 1. */
uint32_t stacks_carry(struct stacks *to, const struct stacks *from,
                      uint32_t *known, uint32_t set);

#endif
