/* Regular expressions in the syntax of ECMA-262, as JSON Schema and clients use
 * them, and their conversion to GBNF.
 *
 * An expression is a node. Besides the operators of the syntax there are
 * intersection and complement. They express lookaround, and strings to which
 * several conditions apply. A node without them is written as a GBNF
 * expression; any other node as a deterministic automaton with a rule for each
 * state. Its states are the derivatives of the node (Brzozowski, Derivatives of
 * Regular Expressions, 1964). Equal nodes have the same number. */
#ifndef GRAMMAR_REGEX_H
#define GRAMMAR_REGEX_H

#include "grammar/schema_text.h"

enum regex_failure {
    REGEX_FINE,
    REGEX_WRONG,       /* not a regular expression */
    REGEX_UNSUPPORTED, /* has a construct that is not supported */
    REGEX_TOO_LARGE,
    REGEX_NO_MEMORY,
};

/* Numbers of nodes. 0 is not a node: a function failed, see struct regex. */
enum {
    REGEX_NOTHING = 1, /* matches no text */
    REGEX_EMPTY,       /* matches the empty text only */
    REGEX_ANY,         /* matches any single character */
    REGEX_ALL,         /* matches any text */
};

struct regex_node {
    uint8_t kind;
    bool empty;    /* matches the empty text */
    bool plain;    /* has no intersection and no complement */
    uint32_t a, b; /* nodes of the operands; for a class, `a` is its number */
    uint32_t min, max; /* least and greatest count of a repetition */
    /* while an automaton is built: 1 + number of the node's state, 0 if none */
    uint32_t state;
};

struct regex_class {
    struct char_range *range; /* owned, [n], normalized */
    uint32_t n;
    uint32_t rule; /* 1 + number of the class's rule, 0 if it has none */
};

/* All nodes that were made together. A zeroed struct is empty. */
struct regex {
    struct regex_node *node;   /* owned, [n_node] */
    uint32_t *slot;            /* owned: hash table of nodes, [n_slot] */
    struct regex_class *class; /* owned, [n_class] */
    uint32_t n_node, cap_node, n_slot, n_class, cap_class;
    int64_t n_step;
    enum regex_failure failure; /* kind of the first failure */
    const char *why;            /* reason of the failure, a static string */
    size_t at; /* position of the failure in the expression, in bytes */
};

/* Prepares a zeroed struct. Returns false if out of memory. regex_fini frees
 * the memory in any case. */
bool regex_init(struct regex *r);
void regex_fini(struct regex *r);

/* Reads an expression. If `whole`, the node matches the texts that the
 * expression matches entirely, else those that contain a match. */
uint32_t regex_read(struct regex *r, const char *s, size_t len, bool whole);
/* Return the node of one text, of the texts of min to max characters, and of
 * combinations of nodes. `max` may be RULES_UNLIMITED. */
uint32_t regex_text(struct regex *r, const char *s, size_t len);
uint32_t regex_length(struct regex *r, uint32_t min, uint32_t max);
uint32_t regex_either(struct regex *r, uint32_t a, uint32_t b);
uint32_t regex_both(struct regex *r, uint32_t a, uint32_t b);
uint32_t regex_not(struct regex *r, uint32_t a);
/* Returns the node of the texts of `a` with min to max characters, without an
 * intersection if `a` repeats a single class. */
uint32_t regex_clip(struct regex *r, uint32_t a, uint32_t min, uint32_t max);

/* Returns true if the node matches the text. */
bool regex_takes(struct regex *r, uint32_t a, const char *s, size_t len);

/* Where the GBNF of a node is written. */
struct regex_out {
    bool json; /* characters as in a JSON string, and `char` is a rule for any
                  of them */
    /* Adds a rule and sets *number; the rule's name is s<number>. If `count` is
     * not 0, reserves that many rules without bodies instead. */
    pl_status (*rule)(void *user, const struct gbnf_text *body, uint32_t count,
                      uint32_t *number);
    /* Writes the body of a reserved rule. */
    pl_status (*body)(void *user, uint32_t number,
                      const struct gbnf_text *body);
    void *user;
    uint32_t most_states;
};

/* Appends to `text` an expression of the node's texts, between quotes if
 * out->json. PL_UNSUPPORTED: there is no text, or the expression would be too
 * large; r->failure is set and nothing was written. */
pl_status regex_put(struct regex *r, uint32_t a, const struct regex_out *out,
                    struct gbnf_text *text);

#endif
