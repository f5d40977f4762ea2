/* Sets of stacks of an automaton's states: all stacks that are possible after
 * the text read so far.
 *
 * A set consists of items: a state on top, and the set of the stacks that may
 * be below it. No two items of a set have the same state, and equal sets have
 * the same number. So sets share the sets below. A step, which reads one byte,
 * visits each state once, however many ways there are to parse the text. Steps
 * are cached: a set is a state of a deterministic automaton that is built on
 * demand. A set is ready to step when all returns and calls are done, so that
 * each state on top takes a byte. All sets of a struct stacks are its pool.
 *
 * The idea of shared stacks is Tomita's (Efficient Parsing for Natural
 * Language, 1985). Numbering equal sets equally keeps a set as one minimal
 * automaton. */
#ifndef GRAMMAR_STACKS_H
#define GRAMMAR_STACKS_H

#include "base/arena.h"
#include "grammar/automaton.h"

enum {
    STACKS_DEAD,  /* the set without stacks: the text cannot continue */
    STACKS_EMPTY, /* the set of the empty stack: the text is complete */
    /* Not a set: out of memory, or a limit is reached. */
    STACKS_FAILED = UINT32_MAX,
    /* A text that needs more nested calls does not match. */
    STACKS_DEPTH = 2000,
    STACKS_MOST_BYTES = 1 << 29, /* limit of a pool's memory */
    /* Limit of the items put into sets since stacks_begin. */
    STACKS_MOST_PUSHES = 1 << 24,
};

struct stack_item {
    /* state on top, and the set of the stacks below it */
    uint32_t state, below;
};

/* The cached steps of a set: the row of the next set for each byte class. A
 * walk needs only rows. */
struct stack_row {
    uint32_t set;
    uint16_t depth;
    bool ends;
    /* [n_class], in the arena; NULL if not computed yet. */
    struct stack_row *next[];
};

struct stack_set {
    struct stack_item *item; /* [n], in the arena, ascending by state */
    /* In the arena. NULL if no step from or to this set has been computed. */
    struct stack_row *row;
    /* Characters that all lead to the set `after` are called even. A sequence
     * of `span` even ASCII characters leads to the set `past`; see masks.c.
     * Live characters are those that do not lead to STACKS_DEAD. */
    uint64_t even_ascii[2], live_ascii[2];
    uint8_t even_others;
    bool others_known, spanned;
    /* others_dead is set if all non-ASCII characters lead to STACKS_DEAD. */
    bool dead_known, others_dead;
    uint16_t depth; /* depth of the deepest stack */
    /* the set that even characters lead to, 0 if not computed yet; `past` and
     * `span` are undefined then */
    uint32_t after, past, span;
    uint32_t n, hash;
    uint32_t closed; /* result of stacks_closed; STACKS_FAILED if not known */
    bool ends;       /* the set contains the empty stack */
};

/* A cached union: `both` is the union of sets a and b. */
struct stack_union {
    uint32_t a, b, both; /* a < b; a is 0 in a free entry */
};

struct stacks {
    const struct automaton *a; /* borrowed */
    struct arena memory;       /* owns items and steps */
    struct stack_set *set;     /* owned, [n_set] */
    uint32_t *slot;            /* owned: hash table of sets by contents */
    uint32_t n_set, cap_set, n_slot;
    struct stack_union *made; /* owned, [cap_made]: hash table of unions */
    uint32_t n_made, cap_made;
    int64_t n_push;          /* items pushed since stacks_begin */
    bool refused;            /* the failure was a limit, not lack of memory */
    struct stack_item *pile; /* owned: sets under construction */
    size_t n_pile, cap_pile;
    uint64_t *called;      /* owned: bit set, indexed by the place (automaton.h)
                              of a rule, of the rules that are called */
    uint32_t *called_over; /* owned, [n_place]: the set below the called rule */
    uint64_t *met;    /* owned: bit set of states seen while sorting a set */
    uint32_t *met_at; /* owned, [n_state]: their positions in the pile */
};

/* Returns false if out of memory. stacks_fini frees the memory in any case. */
bool stacks_init(struct stacks *s, const struct automaton *a);
void stacks_fini(struct stacks *s);
/* Returns the size of the pool in bytes. */
size_t stacks_bytes(const struct stacks *s);

/* Sets the count of pushes to 0, for the limit STACKS_MOST_PUSHES. */
void stacks_begin(struct stacks *s);

/* Returns the set at the start of a text, ready to step, or STACKS_FAILED. */
uint32_t stacks_start(struct stacks *s);
/* Returns the set of the states state[n], which must be ascending, each on top
 * of the set `below`. Returns STACKS_FAILED on failure. */
uint32_t stacks_over(struct stacks *s, const uint32_t *state, uint32_t n,
                     uint32_t below);
/* Returns the set that results from `set` by returns and calls, and is ready to
 * step (see the top). Returns STACKS_FAILED on failure. */
uint32_t stacks_closed(struct stacks *s, uint32_t set);

/* Returns the union of two sets, or STACKS_FAILED. If both are ready to step
 * (see the top), so is the union. */
uint32_t stacks_union(struct stacks *s, uint32_t a, uint32_t b);

/* Returns the row of a set that is ready to step, or NULL if out of memory. */
struct stack_row *stacks_row(struct stacks *s, uint32_t set);
/* Computes a step that is not cached: returns the row of the set after a byte
 * of this class, or NULL if out of memory or a limit is reached. */
struct stack_row *stacks_step_new(struct stacks *s, struct stack_row *from,
                                  unsigned class);

/* Returns the row of the set after a byte, or NULL if out of memory or a limit
 * is reached. */
static inline struct stack_row *
stacks_step_row(struct stacks *s, struct stack_row *from, unsigned byte)
{
    unsigned class = s->a->class_of[byte];
    struct stack_row *to = from->next[class];

    return to ? to : stacks_step_new(s, from, class);
}

/* Returns the set after a byte, or STACKS_FAILED. `set` must be ready to
 * step. */
static inline uint32_t stacks_step(struct stacks *s, uint32_t set,
                                   unsigned byte)
{
    struct stack_row *row = stacks_row(s, set);

    row = row ? stacks_step_row(s, row, byte) : NULL;
    return row ? row->set : STACKS_FAILED;
}

/* Copies a set to the pool `to` of the same automaton. Returns its number
 * there, or STACKS_FAILED. known[from->n_set] maps the sets copied so far to
 * their new numbers plus 1, and is zeroed before the first call. */
uint32_t stacks_carry(struct stacks *to, const struct stacks *from,
                      uint32_t *known, uint32_t set);

#endif
