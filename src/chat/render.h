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

/* Variables of a loop, macro or block. Global ones are in root[]. */
struct scope {
    struct scope *outer;
    struct binding *b; /* [n] of [cap] */
    int n, cap;
};

struct loop {
    const struct node *node;
    struct scope *scope; /* the scope around the loop */
    const struct list *list;
    size_t at;
    int depth;         /* of recursive calls; 1 without */
    struct value last; /* last argument of changed() */
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
    struct chat_limits left; /* steps and depth that are left */
    struct value *root;      /* by symbol; V_ABSENT: not set */
    struct scope *scope;     /* NULL: root */
    enum flow flow;
    struct value hole; /* input of a block's filters */
    int line;          /* of the node being evaluated */
    int64_t now;
    char *out; /* malloc'ed, [n_out] of [cap_out] */
    size_t n_out, cap_out;
    pl_err *err;
};

/* Fails with "template line N: ...". */
pl_status render_fail(struct render *r, pl_status s, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Fails with "'x' is undefined" or "'dict object' has no attribute 'x'". */
pl_status render_undefined(struct render *r, struct value v);

/* ---- bounds ------------------------------------------------------------ */

pl_status render_spend(struct render *r, uint64_t steps);
/* Spends the steps for reading the bytes of `v`, if it is a string. */
pl_status render_look(struct render *r, struct value v);
/* Enters one more level. The caller leaves it with `r->left.depth++`. */
pl_status render_deeper(struct render *r);
/* Allocates zeroed memory that is freed with the render. */
pl_status render_alloc(struct render *r, size_t n, size_t size, void *out);
pl_status render_list(struct render *r, size_t n, struct list **out);

/* ---- text -------------------------------------------------------------- */

/* The output and every text being built are the end of one buffer. A caller
 * notes r->n_out, puts its text, then takes everything from there. */
pl_status render_put(struct render *r, const char *s, size_t len);
pl_status render_puts(struct render *r, const char *s);
pl_status render_put_char(struct render *r, uint32_t c);
pl_status render_take(struct render *r, size_t from, struct value *out);
pl_status render_string(struct render *r, const char *s, size_t len,
                        struct value *out); /* copies s */
pl_status render_view(struct render *r, const char *s, size_t len,
                      struct value *out); /* borrows s */

/* value_text.c: text as str(), repr() and json.dumps() print it. */
struct json_style {
    bool ascii, sorted;
    const char *indent; /* NULL: one line */
    size_t n_indent;
    const struct string *item, *key; /* separators; NULL: default */
};
pl_status put_str(struct render *r, struct value v);
pl_status put_repr(struct render *r, struct value v);
pl_status put_json(struct render *r, struct value v,
                   const struct json_style *style);
/* Returns a string itself, and the str() of anything else. */
pl_status str_of(struct render *r, struct value v, struct string **out);

/* ---- operators (operate.c) --------------------------------------------- */

pl_status value_equal(struct render *r, struct value a, struct value b,
                      bool *out);
/* Computes a < b. Fails where Python defines no order. */
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
/* Counts the characters of a string, or the items of a container. */
pl_status value_length(struct render *r, struct value v, int64_t *out);
/* Returns the items that `for` iterates over. Fails if `v` cannot be iterated.
 * An iterator is used up. */
pl_status value_items(struct render *r, struct value v, struct list *out);
pl_status value_slice(struct render *r, struct value v,
                      const struct value part[3], struct value *out);
/* x.name and x[index]. The result is undefined if it does not exist. */
pl_status value_attribute(struct render *r, struct value of,
                          struct string *name, struct value *out);
pl_status value_item(struct render *r, struct value of, struct value index,
                     struct value *out);
/* Stable; with `reverse`, equal items keep their order too. */
pl_status sort_pairs(struct render *r, struct pair *p, size_t n, bool reverse);

/* markup.c: marks a string, or the strings of a list, as markup. Other values
 * are returned unchanged. */
struct value markup(struct value v);
/* Returns v, as markup if `of` is markup. */
struct value markup_like(struct value of, struct value v);
/* Escapes &<>'" in the str() of v. again: even if v is markup. */
pl_status markup_escape(struct render *r, struct value v, bool again,
                        struct value *out);
/* Escapes the operand that an operator joins with markup. */
pl_status markup_operands(struct render *r, enum node_kind kind,
                          struct value *a, struct value *b);
/* Calls a method of markup, whose result is markup too. */
pl_status markup_method(struct render *r, const struct method *m,
                        const struct args *args, struct value *out);

/* printf_text.c: "..." % args, and "...".format(args). */
pl_status format_percent(struct render *r, struct string *form,
                         struct value args, struct value *out);
pl_status format_braces(struct render *r, struct string *form,
                        const struct args *args, struct value *out);

/* render.c */
pl_status render_call(struct render *r, struct value callee,
                      const struct args *args, struct value *out);

#endif
