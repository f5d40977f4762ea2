/* The state of a template being rendered: its limits, variables and output, and
 * the functions that operators and builtins share. Private to chat/.
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

/* The variables of a loop, macro or block. Global variables are in
 * render.root[]. */
struct scope {
    struct scope *outer;
    struct binding *b; /* [n], with capacity `cap` */
    int n, cap;
};

struct loop {
    const struct node *node;
    struct scope *scope; /* the scope around the loop */
    const struct list *list;
    size_t at;
    int depth;         /* nesting of recursive loop calls, from 1 */
    struct value last; /* arguments of the last call of changed() */
};

struct macro {
    const struct node *node;
    struct scope *scope; /* the scope of its definition */
};

struct method {
    struct value self;
    const struct builtin *row;
};

enum flow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE };

struct render {
    const struct syntax *syntax;
    struct arena arena;
    struct chat_limits left; /* remaining steps and depth */
    struct value *root;      /* values of global variables, by symbol; V_ABSENT
                                if not set */
    struct scope *scope;     /* innermost scope; NULL outside all scopes */
    enum flow flow;
    struct value hole; /* value of N_HOLE: the text of a filtered block */
    int line;          /* line of the node being evaluated */
    int64_t now;
    char *out; /* malloc'ed, [n_out], with capacity cap_out */
    size_t n_out, cap_out;
    pl_err *err;
};

/* Sets the error "template line N: ..." with status `s`, and returns `s`. */
pl_status render_fail(struct render *r, pl_status s, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Fails because the undefined value `v` is used: "'x' is undefined" or "'dict
 * object' has no attribute 'x'". */
pl_status render_undefined(struct render *r, struct value v);

/* ---- limits ------------------------------------------------------------ */

pl_status render_spend(struct render *r, uint64_t steps);
/* Spends one step for each 64 bytes of `v`, if it is a string. */
pl_status render_look(struct render *r, struct value v);
/* Enters one more level of nesting, or fails with PL_BAD_ARGUMENT. The caller
 * leaves it with `r->left.depth++`. */
pl_status render_deeper(struct render *r);
/* Allocates n zeroed elements of `size` bytes, which are freed with the
 * render. */
pl_status render_alloc(struct render *r, size_t n, size_t size, void *out);
pl_status render_list(struct render *r, size_t n, struct list **out);

/* ---- text -------------------------------------------------------------- */

/* The output, and temporarily each string being built, are at the end of the
 * buffer r->out. To build a string, a caller saves r->n_out, appends the text,
 * and calls render_take. This removes the text from that offset on and returns
 * it as a string. */
pl_status render_put(struct render *r, const char *s, size_t len);
pl_status render_puts(struct render *r, const char *s);
pl_status render_put_char(struct render *r, uint32_t c);
pl_status render_take(struct render *r, size_t from, struct value *out);
pl_status render_string(struct render *r, const char *s, size_t len,
                        struct value *out); /* copies s */
pl_status render_view(struct render *r, const char *s, size_t len,
                      struct value *out); /* borrows s */

/* In value_text.c. Append values to the output as Python's str(), repr() and
 * json.dumps() print them. */
struct json_style {
    bool ascii, sorted;
    const char *indent; /* NULL for output on one line */
    size_t n_indent;
    /* separators between items, and after keys; NULL for the default */
    const struct string *item, *key;
};
pl_status put_str(struct render *r, struct value v);
pl_status put_repr(struct render *r, struct value v);
pl_status put_json(struct render *r, struct value v,
                   const struct json_style *style);
/* Sets *out to `v` if it is a string, else to str(v). */
pl_status str_of(struct render *r, struct value v, struct string **out);

/* ---- operators (operate.c) --------------------------------------------- */

pl_status value_equal(struct render *r, struct value a, struct value b,
                      bool *out);
/* Sets *out to a < b. Fails if Python defines no order for these types. */
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
/* Sets *out to the number of characters of a string, or of items of a
 * container. */
pl_status value_length(struct render *r, struct value v, int64_t *out);
/* Sets *out to the items that a `for` loop over `v` visits. Fails if `v` cannot
 * be iterated. An iterator has no more items afterwards. */
pl_status value_items(struct render *r, struct value v, struct list *out);
pl_status value_slice(struct render *r, struct value v,
                      const struct value part[3], struct value *out);
/* Evaluate of.name and of[index]. *out is a value of kind V_UNDEFINED if there
 * is no such attribute or item. */
pl_status value_attribute(struct render *r, struct value of,
                          struct string *name, struct value *out);
pl_status value_item(struct render *r, struct value of, struct value index,
                     struct value *out);
/* Sorts p[n] by key, in descending order if `reverse`. The sort is stable in
 * both orders. */
pl_status sort_pairs(struct render *r, struct pair *p, size_t n, bool reverse);

/* markup.c: returns `v` with the flag STR_MARKUP set, if it is a string, or set
 * in all its strings, if it is a list or tuple. Other values are returned
 * unchanged. */
struct value markup(struct value v);
/* Returns v, as markup if `of` is markup. */
struct value markup_like(struct value of, struct value v);
/* Sets *out to str(v) with &<>'" escaped, as markup. A `v` that is markup
 * already is escaped only if `again`. */
pl_status markup_escape(struct render *r, struct value v, bool again,
                        struct value *out);
/* Escapes the parts of "+" or "%" operands that become text of the result. One
 * of the operands is markup. */
pl_status markup_operands(struct render *r, enum node_kind kind,
                          struct value *a, struct value *b);
/* Calls method `m` of a string that is markup. Escapes the arguments that
 * become part of the result, which is markup too. */
pl_status markup_method(struct render *r, const struct method *m,
                        const struct args *args, struct value *out);

/* printf_text.c: evaluates form % args, and form.format(args). */
pl_status format_percent(struct render *r, struct string *form,
                         struct value args, struct value *out);
pl_status format_braces(struct render *r, struct string *form,
                        const struct args *args, struct value *out);

/* render.c: calls a function, method, macro, loop or joiner. */
pl_status render_call(struct render *r, struct value callee,
                      const struct args *args, struct value *out);

#endif
