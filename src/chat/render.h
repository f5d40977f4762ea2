/* The state of a template while it is rendered: limits, variables and output.
 * Also the functions that operators and builtins share. Used only by files of
 * chat/.
 *
 * Every function that takes a struct render returns a status. On failure it has
 * set the error, and rendering ends. */
#ifndef CHAT_RENDER_H
#define CHAT_RENDER_H

#include "chat/builtin.h"
#include "chat/syntax.h"
#include "chat/template.h"

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
};

struct loop {
    const struct node *node;
    struct scope *scope; /* the scope that was current before the loop */
    const struct list *list;
    size_t at;
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
    const struct syntax *syntax;
    struct arena arena;
    /* The steps, depth and bytes that the template may still use. */
    struct chat_limits left;
    /* root[i]: value of the global variable with number i; V_ABSENT if not
     * set. */
    struct value *root;
    /* Innermost scope at the current statement; NULL outside all scopes. */
    struct scope *scope;
    enum flow flow;
    /* The text of a block to which filters are applied; value of N_HOLE
     * nodes. */
    struct value hole;
    /* Line in the template of the node being evaluated, for messages. */
    int line;
    int64_t now;
    char *out; /* the output, malloc'ed, [n_out], with capacity cap_out */
    size_t n_out, cap_out;
    pl_err *err;
};

/* Sets the error to the message "template line N: ..." with status `s`. Returns
 * `s`. */
pl_status render_fail(struct render *r, pl_status s, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Fails with an error message for the use of the undefined value `v`: "'x' is
 * undefined" or "'dict object' has no attribute 'x'". */
pl_status render_undefined(struct render *r, struct value v);

/* ---- checking the limits of a rendering -------------------------------- */

pl_status render_spend(struct render *r, uint64_t steps);
/* Spends one step of the limit for each 64 bytes of `v`, if it is a string. */
pl_status render_look(struct render *r, struct value v);
/* Begins one more level of nesting; fails with PL_BAD_ARGUMENT at the limit.
 * The caller ends the level by `r->left.depth++`. */
pl_status render_deeper(struct render *r);
/* Sets *(void **)out to n zeroed elements of `size` bytes each, which are freed
 * when the rendering ends. Counts them against the memory limit. */
pl_status render_alloc(struct render *r, size_t n, size_t size, void *out);
pl_status render_list(struct render *r, size_t n, struct list **out);

/* ---- building the output and strings ----------------------------------- */

/* The buffer r->out contains the output and, after it, the string that is being
 * built, if any. To build a string, a caller saves r->n_out, appends the text,
 * and calls render_take with the saved offset. render_take removes the text
 * from this offset on and returns it as a string. */
pl_status render_put(struct render *r, const char *s, size_t len);
pl_status render_puts(struct render *r, const char *s);
pl_status render_put_char(struct render *r, uint32_t c);
pl_status render_take(struct render *r, size_t from, struct value *out);
pl_status render_string(struct render *r, const char *s, size_t len,
                        struct value *out); /* the string is a copy of s */
pl_status render_view(struct render *r, const char *s, size_t len,
                      struct value *out); /* the string borrows s */

/* In value_text.c. These functions append a value to the output as Python's
 * str(), repr() and json.dumps() print it. */
struct json_style {
    bool ascii, sorted;
    /* Text that indents one level; NULL for output on one line. */
    const char *indent;
    size_t n_indent;
    /* separators: between items, and after keys; NULL for those of
     * json.dumps() */
    const struct string *item, *key;
};
pl_status put_str(struct render *r, struct value v);
pl_status put_repr(struct render *r, struct value v);
pl_status put_json(struct render *r, struct value v,
                   const struct json_style *style);
/* Sets *out to the string `v`, or to str(v) if `v` is not a string. */
pl_status str_of(struct render *r, struct value v, struct string **out);

/* ---- operators, in operate.c ------------------------------------------- */

pl_status value_equal(struct render *r, struct value a, struct value b,
                      bool *out);
/* Sets *out to true if a < b. Fails if Python defines no order for values of
 * these types. */
pl_status value_less(struct render *r, struct value a, struct value b,
                     bool *out);
pl_status value_compare(struct render *r, enum comparison is, struct value a,
                        struct value b, bool *out);
pl_status value_contains(struct render *r, struct value all, struct value part,
                         bool *out);
pl_status value_binary(struct render *r, enum node_kind kind, struct value a,
                       struct value b, struct value *out);
pl_status value_negate(struct render *r, bool minus, struct value v,
                       struct value *out);
/* Sets *out to the number of characters in a string, or of items in a
 * container. */
pl_status value_length(struct render *r, struct value v, int64_t *out);
/* Sets *out to the items that a loop "for x in v" visits. Fails if `v` cannot
 * be iterated. If `v` is an iterator, it has no items left afterwards. */
pl_status value_items(struct render *r, struct value v, struct list *out);
pl_status value_slice(struct render *r, struct value v,
                      const struct value part[3], struct value *out);
/* Evaluate of.name and of[index]. If there is no such attribute or item, *out
 * is a value of kind V_UNDEFINED. */
pl_status value_attribute(struct render *r, struct value of,
                          struct string *name, struct value *out);
pl_status value_item(struct render *r, struct value of, struct value index,
                     struct value *out);
/* Sorts p[n] by key, in descending order if `reverse`. Items with equal keys
 * keep their order in both cases. */
pl_status sort_pairs(struct render *r, struct pair *p, size_t n, bool reverse);

/* In markup.c: marks a string as markup (HTML), by the flag STR_MARKUP. In a
 * list or tuple, marks all its strings. Returns other values unchanged. */
struct value markup(struct value v);
/* Returns v, marked as markup (HTML) if `of` is markup. */
struct value markup_like(struct value of, struct value v);
/* Sets *out to str(v) as markup (HTML), with the characters &<>'" escaped. If
 * `v` is markup already, it is escaped only if `again`. */
pl_status markup_escape(struct render *r, struct value v, bool again,
                        struct value *out);
/* Escapes those operands of "+" or "%" whose text becomes part of the result,
 * because one of the operands is markup (HTML). */
pl_status markup_operands(struct render *r, enum node_kind kind,
                          struct value *a, struct value *b);
/* Calls method `m` of a string that is markup (HTML). Escapes the arguments
 * whose text becomes part of the result. The result is markup, too. */
pl_status markup_method(struct render *r, const struct method *m,
                        const struct args *args, struct value *out);

/* In printf_text.c: evaluate form % args, and form.format(args), as Python
 * does. */
pl_status format_percent(struct render *r, struct string *form,
                         struct value args, struct value *out);
pl_status format_braces(struct render *r, struct string *form,
                        const struct args *args, struct value *out);

/* In render.c: calls a function, method, macro, loop or joiner with the
 * arguments `args`. */
pl_status render_call(struct render *r, struct value callee,
                      const struct args *args, struct value *out);

#endif
