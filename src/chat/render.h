/* A template being rendered: its bounds, its variables, its output, and what
 * all operators and builtins share. For chat/ alone.
 *
 * Everything that takes a struct render returns a status and has set the error
 * if it fails; then rendering ends. */
#ifndef CHAT_RENDER_H
#define CHAT_RENDER_H

#include "chat/builtin.h"
#include "chat/syntax.h"
#include "chat/template.h"

struct binding {
    int sym;
    struct value value;
};

/* Variables of a loop, macro or block; the outermost ones are in root[]. */
struct scope {
    struct scope *outer;
    struct binding *b; /* [n] of [cap] */
    int n, cap;
};

struct loop {
    const struct node *node;
    struct scope *scope; /* where it stands */
    const struct list *list;
    size_t at;
    int depth;         /* of a recursive loop's calls; else 1 */
    struct value last; /* what changed() saw */
};

struct macro {
    const struct node *node;
    struct scope *scope; /* where it was defined */
};

struct method {
    struct value self;
    const struct builtin *row;
};

enum flow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE };

struct render {
    const struct syntax *syntax;
    struct arena arena;
    struct chat_limits left; /* of steps and depth: what is left */
    struct value *root;      /* by number of the name; V_ABSENT: not set */
    struct scope *scope;     /* NULL: root */
    enum flow flow;
    struct value hole; /* what the filters of a block are given */
    int line;          /* of the node that is worked on */
    int64_t now;
    char *out; /* malloc'ed, [n_out] of [cap_out] */
    size_t n_out, cap_out;
    pl_err *err;
};

/* "template line N: ..." */
pl_status render_fail(struct render *r, pl_status s, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Fails with "'x' is undefined" or "'dict object' has no attribute 'x'". */
pl_status render_undefined(struct render *r, struct value v);

/* ---- bounds ------------------------------------------------------------ */

pl_status render_spend(struct render *r, uint64_t steps);
/* Before the bytes of `v`, if it is a string, are looked at. */
pl_status render_look(struct render *r, struct value v);
/* One level down; on the way back `r->left.depth++`. */
pl_status render_deeper(struct render *r);
/* Zeroed, freed with the render. */
pl_status render_alloc(struct render *r, size_t n, size_t size, void *out);
pl_status render_list(struct render *r, size_t n, struct list **out);

/* ---- text -------------------------------------------------------------- */

/* Output, and any text under way, is the end of one buffer: remember r->n_out,
 * put, then take what came since. */
pl_status render_put(struct render *r, const char *s, size_t len);
pl_status render_puts(struct render *r, const char *s);
pl_status render_put_char(struct render *r, uint32_t c);
pl_status render_take(struct render *r, size_t from, struct value *out);
pl_status render_string(struct render *r, const char *s, size_t len,
                        struct value *out); /* copied */
pl_status render_view(struct render *r, const char *s, size_t len,
                      struct value *out); /* of a text that lives as long */

/* value_text.c: as str(), repr() and json.dumps() print it. */
struct json_style {
    bool ascii, sorted;
    const char *indent; /* NULL: one line */
    size_t n_indent;
    const struct string *item, *key; /* separators; NULL: the usual ones */
};
pl_status put_str(struct render *r, struct value v);
pl_status put_repr(struct render *r, struct value v);
pl_status put_json(struct render *r, struct value v,
                   const struct json_style *style);
/* A string is itself, anything else its str(). */
pl_status str_of(struct render *r, struct value v, struct string **out);

/* ---- operators (operate.c) --------------------------------------------- */

pl_status value_equal(struct render *r, struct value a, struct value b,
                      bool *out);
/* a < b; fails where Python has no order. */
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
/* Length of a string in characters, of anything with a length. */
pl_status value_length(struct render *r, struct value v, int64_t *out);
/* What `for` runs over; fails where it cannot. An iterator is used up. */
pl_status value_items(struct render *r, struct value v, struct list *out);
pl_status value_slice(struct render *r, struct value v,
                      const struct value part[3], struct value *out);
/* x.name, x[index]: undefined if there is none. */
pl_status value_attribute(struct render *r, struct value of,
                          struct string *name, struct value *out);
pl_status value_item(struct render *r, struct value of, struct value index,
                     struct value *out);
/* Stable; `reverse` keeps equal ones in order too. */
pl_status sort_pairs(struct render *r, struct pair *p, size_t n, bool reverse);

/* markup.c: strings as markup, or a list's strings; all else stays. */
struct value markup(struct value v);
/* v, as markup if `of` is one. */
struct value markup_like(struct value of, struct value v);
/* The str() of v with &<>'" written as HTML; again: even if it is markup. */
pl_status markup_escape(struct render *r, struct value v, bool again,
                        struct value *out);
/* Escapes what an operator puts together with a markup. */
pl_status markup_operands(struct render *r, enum node_kind kind,
                          struct value *a, struct value *b);
/* A method of a markup: its result is one too. */
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
