/* Regular expressions in the syntax of ECMA-262, as JSON Schema and clients use
 * them, and their conversion to GBNF.
 *
 * An expression is a tree of nodes. Besides the operators of the syntax, there
 * are nodes for intersection and complement, which GBNF lacks. They express
 * lookaround, and strings that have to meet several conditions. An expression
 * without such nodes is written as one GBNF expression. Any other is converted
 * to a deterministic automaton, which is written with a rule for each state.
 * The states of the automaton are the derivatives of the expression
 * (Brzozowski, Derivatives of Regular Expressions, 1964). Equal nodes have the
 * same number. */
#ifndef GRAMMAR_REGEX_H
#define GRAMMAR_REGEX_H

#include "grammar/schema_text.h"

enum regex_failure {
    REGEX_FINE,
    REGEX_WRONG,       /* the text is not a regular expression */
    REGEX_UNSUPPORTED, /* the expression has a construct that is not
                          supported */
    REGEX_TOO_LARGE,
    REGEX_NO_MEMORY,
};

/* Numbers of the nodes that exist from the beginning. 0 is not a node: a
 * function that returns it has failed, and struct regex has the reason. */
enum {
    REGEX_NOTHING = 1, /* the node that matches no text */
    REGEX_EMPTY,       /* the node that matches only the empty text */
    REGEX_ANY,         /* the node that matches any single character */
    REGEX_ALL,         /* the node that matches any text */
};

struct regex_node {
    uint8_t kind;
    bool empty; /* the node matches the empty text */
    bool plain; /* The node and its operands, at any depth, are neither
                   intersections nor complements. */
    /* Numbers of the operands' nodes. If the node is a class, `a` is the number
     * of the class. */
    uint32_t a, b;
    uint32_t min, max; /* counts of a repetition; max may be RULES_UNLIMITED */
    /* While an automaton is built: 1 + the number of the node's state, 0 if it
     * has none. */
    uint32_t state;
};

struct regex_class {
    /* [n]: the characters of the class, as ascending ranges with gaps between
     * them */
    const struct char_range *range;
    uint32_t n;
    uint32_t rule; /* 1 + number of the GBNF rule written for the class, 0 if
                      none was */
};

/* The nodes and classes of one or several expressions that are combined with
 * each other. A zeroed struct is empty. */
struct regex {
    struct arena memory;       /* owns all memory; the caller frees it */
    struct regex_node *node;   /* [n_node]: all nodes */
    uint32_t *slot;            /* [n_slot]: hash table of nodes */
    struct regex_class *class; /* [n_class]: all character classes */
    uint32_t n_node, n_slot, n_class;
    int64_t n_step;
    enum regex_failure failure; /* reason of the first failure */
    const char *why; /* message of the first failure, a static string */
    size_t at;       /* offset in bytes at which regex_read stopped */
};

/* Initializes a zeroed struct regex with the nodes that always exist. Returns
 * false if out of memory. */
bool regex_init(struct regex *r);

/* Parses the regular expression s[0 .. len) and returns its node, 0 on failure.
 * If `whole`, the node matches the texts that the expression matches from
 * beginning to end, else all texts that contain a match. */
uint32_t regex_read(struct regex *r, const char *s, size_t len, bool whole);
/* Each returns a node, 0 on failure: of one text, and of combinations of the
 * nodes a and b. */
uint32_t regex_text(struct regex *r, const char *s, size_t len);
uint32_t regex_either(struct regex *r, uint32_t a, uint32_t b);
uint32_t regex_both(struct regex *r, uint32_t a, uint32_t b);
uint32_t regex_not(struct regex *r, uint32_t a);
/* Returns the node of those texts of node `a` that have min to max characters;
 * `max` may be RULES_UNLIMITED. If `a` repeats a single class, changes the
 * counts instead of adding an intersection. */
uint32_t regex_clip(struct regex *r, uint32_t a, uint32_t min, uint32_t max);

/* Returns true if node `a` matches the text s[0 .. len). */
bool regex_takes(struct regex *r, uint32_t a, const char *s, size_t len);

/* The destination and the options for writing a node as GBNF. */
struct regex_out {
    bool json; /* true: write the texts as the contents of JSON strings, with
                  escapes; the grammar's rule `char` is then any character */
    /* The grammar to which rules are added. The next one is s<*n_rule>. */
    struct gbnf_text *rules;
    uint32_t *n_rule;
    uint32_t most_states;
};

/* Appends to `text` a GBNF expression that matches exactly the texts of node a,
 * between quotes if out->json. Returns false, with r->failure set, if the node
 * matches no text or the expression would be too large. `text` is then
 * unchanged. */
bool regex_put(struct regex *r, uint32_t a, const struct regex_out *out,
               struct gbnf_text *text);

#endif
