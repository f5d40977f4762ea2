/* The state of a template while it is rendered: limits, variables and output.
 * Also the functions that operators and builtins share. Used only by files of
 * chat/. Failures are kept in render.w; see value.h. */
#ifndef CHAT_RENDER_H
#define CHAT_RENDER_H

#include "chat/builtin.h"
#include "chat/syntax.h"

struct binding {
    int sym;
    struct value value;
};

/* The variables that are set inside a loop, macro or block. Global variables
 * are in render.root[]. */
struct scope {
    struct scope *outer;
    struct binding *b; /* the variables, [n], with capacity `cap` */
    int n, cap;
    bool of_loop; /* it is the scope of a loop's body */
};

struct loop {
    const struct node *node;
    struct scope *scope; /* the scope that was current before the loop */
    struct value items;  /* a list or a range */
    int64_t at;
    int depth; /* nesting of recursive calls loop(items), from 1 on */
    /* Arguments of the last call of loop.changed() in this loop. */
    struct value last;
};

struct macro {
    const struct node *node;
    struct scope *scope; /* the scope in which the macro was defined */
};

struct method {
    struct value self;
    const struct builtin *row;
};

enum flow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE };

struct render {
    struct work w;
    const struct syntax *syntax;
    /* root[i]: value of the global variable with number i; V_ABSENT if not
     * set. */
    struct value *root;
    /* Innermost scope at the current statement; NULL outside all scopes. */
    struct scope *scope;
    enum flow flow;
    /* Number of events so far by which an iteration of a loop can differ from
     * the one before: reads of variables that are set in the innermost loop,
     * assignments, output, calls, and the use of iterators. */
    uint64_t n_event;
    /* The text of a block to which filters are applied; value of N_HOLE
     * nodes. */
    struct value hole;
    int64_t now;
    char *out; /* the output, malloc'ed, [n_out], with capacity cap_out */
    size_t n_out, cap_out;
};

/* Fails with PL_BAD_ARGUMENT and the message. */
struct value render_bad(struct render *r, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Fails with an error message for the use of the undefined value `v`: "'x' is
 * undefined" or "'dict object' has no attribute 'x'". */
struct value render_undefined(struct render *r, struct value v);
/* Fails with the message "a TYPE what", where TYPE is that of `v`; as
 * render_undefined does if `v` is undefined. */
struct value render_wrong(struct render *r, struct value v, const char *what);
/* Fails as render_undefined does if `v` is undefined. */
void render_defined(struct render *r, struct value v);
/* Spends one step of the limit for each 64 bytes of `v`, if it is a string. */
void render_look(struct render *r, struct value v);

/* ---- building the output and strings ----------------------------------- */

/* The buffer r->out contains the output and, after it, the string that is being
 * built, if any. To build a string, a caller saves r->n_out, appends the text,
 * and calls render_take with the saved offset. render_take removes the text
 * from this offset on and returns it as a string. */
void render_put(struct render *r, const char *s, size_t len);
void render_puts(struct render *r, const char *s);
void render_put_char(struct render *r, uint32_t c);
/* Appends the character `c` n times. */
void render_fill(struct render *r, uint32_t c, size_t n);
struct value render_take(struct render *r, size_t from);

/* In value_text.c. These functions append a value to the output as Python's
 * str(), repr() and json.dumps() print it. */
struct json_style {
    bool ascii, sorted;
    /* Text that indents one level; NULL for output on one line. */
    const struct string *indent;
    /* separators: between items, and after keys; NULL for those of
     * json.dumps() */
    const struct string *item, *key;
};
void put_str(struct render *r, struct value v);
void put_repr(struct render *r, struct value v);
void put_json(struct render *r, struct value v, const struct json_style *style);
/* Returns the string `v`, or str(v) if `v` is not a string. */
struct string *str_of(struct render *r, struct value v);

/* ---- operators, in operate.c ------------------------------------------- */

bool value_equal(struct render *r, struct value a, struct value b);
/* Returns true if a < b. Fails if Python defines no order for values of these
 * types. */
bool value_less(struct render *r, struct value a, struct value b);
bool value_compare(struct render *r, enum comparison is, struct value a,
                   struct value b);
struct value value_binary(struct render *r, enum node_kind kind, struct value a,
                          struct value b);
struct value value_negate(struct render *r, bool minus, struct value v);
/* Fails because an integer has more than 64 bits. */
struct value value_too_large(struct render *r);
/* Returns the number of characters in a string, or of items in a container. */
int64_t value_length(struct render *r, struct value v);
/* Returns the items that a loop "for x in v" visits. Fails if `v` cannot be
 * iterated. If `v` is an iterator, it has no items left afterwards. */
struct list value_items(struct render *r, struct value v);
/* Returns item i of a list, tuple, view or range, 0 <= i < its length. */
struct value value_at(struct value v, int64_t i);
struct value value_slice(struct render *r, struct value v,
                         const struct value part[3]);
/* Evaluate of.name and of[index]. Return a value of kind V_UNDEFINED if there
 * is no such attribute or item. */
struct value value_attribute(struct render *r, struct value of,
                             struct string *name);
struct value value_item(struct render *r, struct value of, struct value index);
/* Sorts p[n] by key, in descending order if `reverse`. Items with equal keys
 * keep their order in both cases. */
void sort_pairs(struct render *r, struct pair *p, size_t n, bool reverse);

/* In markup.c: marks a string as markup (HTML), by the flag STR_MARKUP. In a
 * list or tuple, marks all its strings. Returns other values unchanged. */
struct value markup(struct value v);
/* Returns v, marked as markup (HTML) if `of` is markup. */
struct value markup_like(struct value of, struct value v);
/* Returns str(v) as markup (HTML), with the characters &<>'" escaped. If `v` is
 * markup already, it is escaped only if `again`. */
struct value markup_escape(struct render *r, struct value v, bool again);
/* Escapes a value whose text becomes part of markup (HTML), unless it is a
 * number. */
struct value markup_argument(struct render *r, struct value v);

/* In printf_text.c: evaluate form % args, and self.format(args), as Python
 * does. */
struct value format_percent(struct render *r, struct value form,
                            struct value args);
struct value format_braces(struct render *r, const struct call *c);

#endif
