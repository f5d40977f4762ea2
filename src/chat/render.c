/* Renders a template by walking its syntax tree. Statements write to the
 * output, expressions return values. Variables that are set inside a loop,
 * macro or block exist until its end; an `if` does not begin a new scope. */
#include "chat/render.h"

#include "base/err.h"
#include "base/numeral.h"
#include "chat/value_json.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- error messages and limits ----------------------------------------- */

pl_status render_fail(struct render *r, pl_status s, const char *fmt, ...)
{
    char text[sizeof r->err->message];
    va_list ap;

    va_start(ap, fmt);
    numeral_vprint(text, sizeof text, fmt, ap);
    va_end(ap);
    return err_set(r->err, s, "template line %d: %s", r->line, text);
}

/* Returns true if the undefined value `v` has the name of a Python method that
 * changes a list or a dict and that is not supported here. Jinja's sandbox
 * forbids these methods, but templates that were written for other programs may
 * use them. */
static bool is_change(const struct value *v)
{
    static const char *const names[] = {"clear",   "pop",        "popitem",
                                        "remove",  "setdefault", "sort",
                                        "reverse", "update"};

    if (!v->str || (v->sub != V_LIST && v->sub != V_DICT))
        return false;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (string_is(v->str, names[i]))
            return true;
    return false;
}

pl_status render_undefined(struct render *r, struct value v)
{
    char shown[ERR_SHOWN] = "value";

    if (v.str)
        err_shown(shown, v.str->s, v.str->len);
    if (is_change(&v))
        return render_fail(r, PL_BAD_ARGUMENT,
                           "'%s' would modify a %s, which templates may not; "
                           "build a new one, as in x = x + [item]",
                           shown, value_kind_name(v.sub));
    if (v.sub == V_ABSENT)
        return render_fail(r, PL_BAD_ARGUMENT, "'%s' is undefined", shown);
    return render_fail(r, PL_BAD_ARGUMENT, "'%s' has no attribute '%s'",
                       value_kind_name(v.sub), shown);
}

pl_status render_spend(struct render *r, uint64_t steps)
{
    if (steps > r->left.steps)
        return render_fail(
            r, PL_FULL,
            "the template exceeds the step limit; it may loop endlessly");
    r->left.steps -= steps;
    return PL_OK;
}

pl_status render_look(struct render *r, struct value v)
{
    return v.kind == V_STR ? render_spend(r, v.str->len / 64) : PL_OK;
}

pl_status render_deeper(struct render *r)
{
    if (r->left.depth == 0)
        return render_fail(r, PL_BAD_ARGUMENT,
                           "macros, expressions or values nest too deeply; "
                           "simplify the template");
    r->left.depth--;
    return PL_OK;
}

pl_status render_alloc(struct render *r, size_t n, size_t size, void *out)
{
    void *p = NULL;
    size_t bytes;

    memcpy(out, &p, sizeof p);
    if (__builtin_mul_overflow(n, size, &bytes) ||
        bytes > r->left.memory_bytes ||
        r->arena.used_bytes > r->left.memory_bytes - bytes)
        return render_fail(
            r, PL_FULL,
            "the template's values exceed the memory limit of %zu bytes",
            r->left.memory_bytes);
    p = arena_alloc(&r->arena, n, size);
    if (!p)
        return err_no_memory(r->err, "a template's values");
    memcpy(out, &p, sizeof p);
    return PL_OK;
}

pl_status render_list(struct render *r, size_t n, struct list **out)
{
    struct list *l;

    PL_TRY(render_alloc(r, 1, sizeof *l, &l));
    PL_TRY(render_alloc(r, n, sizeof *l->item, &l->item));
    l->n = n;
    *out = l;
    return PL_OK;
}

/* ---- building the output and strings ----------------------------------- */

pl_status render_put(struct render *r, const char *s, size_t len)
{
    if (len > r->left.output_bytes - r->n_out)
        return render_fail(r, PL_FULL,
                           "the output exceeds the limit of %zu bytes",
                           r->left.output_bytes);
    if (len > r->cap_out - r->n_out) {
        size_t cap = 2 * r->cap_out + len + 4096;
        char *more = realloc(r->out, cap);

        if (!more)
            return err_no_memory(r->err, "a template's text");
        r->out = more;
        r->cap_out = cap;
    }
    if (len > 0)
        memcpy(r->out + r->n_out, s, len);
    r->n_out += len;
    return PL_OK;
}

pl_status render_puts(struct render *r, const char *s)
{
    return render_put(r, s, strlen(s));
}

pl_status render_view(struct render *r, const char *s, size_t len,
                      struct value *out)
{
    struct string *v;

    PL_TRY(render_spend(r, len / 64));
    /* Allocates nothing, but fails if the memory limit is exceeded. */
    PL_TRY(render_alloc(r, 0, 1, &v));
    v = string_view(&r->arena, s, len);
    if (!v)
        return err_no_memory(r->err, "a template's values");
    *out = value_str(v);
    return PL_OK;
}

pl_status render_string(struct render *r, const char *s, size_t len,
                        struct value *out)
{
    char *copy;

    PL_TRY(render_alloc(r, len, 1, &copy));
    if (len > 0)
        memcpy(copy, s, len);
    return render_view(r, copy, len, out);
}

pl_status render_take(struct render *r, size_t from, struct value *out)
{
    size_t len = r->n_out - from;

    r->n_out = from;
    return render_string(r, len > 0 ? r->out + from : "", len, out);
}

/* ---- setting and reading variables ------------------------------------- */

static pl_status scope_open(struct render *r, struct scope *outer)
{
    struct scope *s;

    PL_TRY(render_alloc(r, 1, sizeof *s, &s));
    s->outer = outer;
    r->scope = s;
    return PL_OK;
}

static pl_status set_name(struct render *r, int sym, struct value v)
{
    struct scope *s = r->scope;

    if (!s) {
        r->root[sym] = v;
        return PL_OK;
    }
    for (int i = 0; i < s->n; i++)
        if (s->b[i].sym == sym) {
            s->b[i].value = v;
            return PL_OK;
        }
    if (s->n == s->cap) {
        int cap = s->cap > 0 ? 2 * s->cap : 4;
        struct binding *b;

        PL_TRY(render_alloc(r, (size_t)cap, sizeof *b, &b));
        if (s->n > 0)
            memcpy(b, s->b, (size_t)s->n * sizeof *b);
        s->b = b;
        s->cap = cap;
    }
    s->b[s->n++] = (struct binding){sym, v};
    return PL_OK;
}

static struct value get_name(const struct render *r, const struct node *name)
{
    for (const struct scope *s = r->scope; s; s = s->outer)
        for (int i = 0; i < s->n; i++)
            if (s->b[i].sym == name->sym)
                return s->b[i].value;
    if (r->root[name->sym].kind != V_ABSENT)
        return r->root[name->sym];
    if (name->builtin)
        return (struct value){.kind = V_FUNCTION, .function = name->builtin};
    return (struct value){.kind = V_UNDEFINED, .str = name->value.str};
}

/* ---- evaluating expressions -------------------------------------------- */

static pl_status eval(struct render *r, const struct node *n,
                      struct value *out);
static pl_status run(struct render *r, const struct node *n);

static pl_status eval_list(struct render *r, const struct node *n,
                           struct value *out)
{
    struct list *l;

    PL_TRY(render_list(r, (size_t)n->n_kid, &l));
    for (int i = 0; i < n->n_kid; i++)
        PL_TRY(eval(r, n->kid[i], &l->item[i]));
    out->kind = n->kind == N_LIST ? V_LIST : V_TUPLE;
    out->list = l;
    return PL_OK;
}

static pl_status eval_dict(struct render *r, const struct node *n,
                           struct value *out)
{
    struct dict *d;
    void *room;

    PL_TRY(render_alloc(r, (size_t)n->n_kid, 0, &room));
    d = dict_create(&r->arena, (size_t)n->n_kid / 2);
    if (!d)
        return err_no_memory(r->err, "a template's values");
    for (int i = 0; i < n->n_kid; i += 2) {
        struct value key, value;

        PL_TRY(eval(r, n->kid[i], &key));
        PL_TRY(eval(r, n->kid[i + 1], &value));
        if (!value_is_key(key))
            return render_fail(r, PL_BAD_ARGUMENT, "a %s cannot be a dict key",
                               value_kind_name(key.kind));
        if (!dict_put(&r->arena, d, key, value))
            return err_no_memory(r->err, "a template's values");
    }
    *out = (struct value){.kind = V_DICT, .dict = d};
    return PL_OK;
}

static pl_status eval_slice(struct render *r, const struct node *n,
                            struct value *out)
{
    struct value of, part[3];

    PL_TRY(eval(r, n->a, &of));
    for (int i = 0; i < 3; i++) {
        part[i] = value_none();
        if (n->kid[i])
            PL_TRY(eval(r, n->kid[i], &part[i]));
    }
    r->line = n->line;
    return value_slice(r, of, part, out);
}

/* Fails if a call has more than BUILTIN_MAX_ARG arguments, including those from
 * *list and **dict arguments. */
static pl_status check_count(struct render *r, size_t n)
{
    if (n <= BUILTIN_MAX_ARG)
        return PL_OK;
    return render_fail(r, PL_UNSUPPORTED, "a call has more than %d arguments",
                       BUILTIN_MAX_ARG);
}

static pl_status add_word(struct render *r, struct args *args,
                          struct string *name, struct value v)
{
    char shown[ERR_SHOWN];

    for (int i = 0; i < args->n_word; i++)
        if (string_equal(args->word[i], name))
            return render_fail(r, PL_BAD_ARGUMENT,
                               "the argument \"%s\" is given twice",
                               err_shown(shown, name->s, name->len));
    PL_TRY(check_count(r, (size_t)(args->n + args->n_word) + 1));
    args->word[args->n_word] = name;
    args->value[args->n + args->n_word++] = v;
    return PL_OK;
}

/* Evaluates the argument "*list" of a call and appends the items of the list to
 * the positional arguments. */
static pl_status eval_list_args(struct render *r, const struct node *n,
                                struct args *args)
{
    struct value v;
    struct list l;

    PL_TRY(eval(r, n->b, &v));
    PL_TRY(value_items(r, v, &l));
    PL_TRY(check_count(r, (size_t)args->n + l.n));
    for (size_t i = 0; i < l.n; i++)
        args->value[args->n++] = l.item[i];
    return PL_OK;
}

/* Evaluates the argument "**dict" of a call and appends the pairs of the dict
 * to the named arguments. */
static pl_status eval_dict_args(struct render *r, const struct node *n,
                                struct args *args)
{
    struct value v;

    PL_TRY(eval(r, n->c, &v));
    if (v.kind == V_UNDEFINED)
        return render_undefined(r, v);
    if (v.kind != V_DICT)
        return render_fail(r, PL_BAD_ARGUMENT, "** needs a dict, not a %s",
                           value_kind_name(v.kind));
    for (size_t i = 0; i < v.dict->n; i++) {
        const struct pair *p = &v.dict->pair[i];

        if (p->key.kind != V_STR)
            return render_fail(r, PL_BAD_ARGUMENT,
                               "a %s is not an argument name; use strings",
                               value_kind_name(p->key.kind));
        PL_TRY(add_word(r, args, p->key.str, p->value));
    }
    return PL_OK;
}

/* Evaluates the arguments of the call `n`. `caller` is the macro that a {% call
 * %} block passes as an argument; NULL if none. */
static pl_status eval_args(struct render *r, const struct node *n,
                           struct macro *caller, struct args *args)
{
    args->n = n->n_kid;
    args->n_word = 0;
    for (int i = 0; i < n->n_kid; i++)
        PL_TRY(eval(r, n->kid[i], &args->value[i]));
    if (n->b)
        PL_TRY(eval_list_args(r, n, args));
    for (int i = 0; i < n->n_word; i++) {
        struct value v;

        PL_TRY(eval(r, n->word[i].value, &v));
        PL_TRY(add_word(r, args, n->word[i].name, v));
    }
    if (caller)
        PL_TRY(add_word(r, args, caller->node->value.str,
                        (struct value){.kind = V_MACRO, .macro = caller}));
    if (n->c)
        PL_TRY(eval_dict_args(r, n, args));
    r->line = n->line;
    return PL_OK;
}

/* eval_call and eval_builtin are not inlined. If they were, each recursive call
 * of eval would need stack space for their struct args. */
__attribute__((noinline)) static pl_status eval_call(struct render *r,
                                                     const struct node *n,
                                                     struct macro *caller,
                                                     struct value *out)
{
    struct args args;
    struct value callee;

    PL_TRY(eval(r, n->a, &callee));
    PL_TRY(eval_args(r, n, caller, &args));
    return render_call(r, callee, &args, out);
}

__attribute__((noinline)) static pl_status
eval_builtin(struct render *r, const struct node *n, struct value *out)
{
    struct args args;
    struct value self;
    char shown[ERR_SHOWN];

    PL_TRY(eval(r, n->a, &self));
    PL_TRY(eval_args(r, n, NULL, &args));
    if (!n->builtin)
        return render_fail(
            r, PL_UNSUPPORTED, "unknown %s \"%s\"",
            n->kind == N_FILTER ? "filter" : "test",
            err_shown(shown, n->value.str->s, n->value.str->len));
    return builtin_run(r, n->builtin, self, &args, out);
}

static pl_status eval_compare(struct render *r, const struct node *n,
                              struct value *out)
{
    struct value left, right;
    bool is = true;

    PL_TRY(eval(r, n->kid[0], &left));
    for (int i = 1; i < n->n_kid && is; i++) {
        PL_TRY(eval(r, n->kid[i], &right));
        r->line = n->line;
        PL_TRY(value_compare(r, n->op[i - 1], left, right, &is));
        left = right;
    }
    *out = value_bool(is);
    return PL_OK;
}

static pl_status eval_join(struct render *r, const struct node *n,
                           struct value *out)
{
    size_t from = r->n_out;

    for (int i = 0; i < n->n_kid; i++) {
        struct value v;

        PL_TRY(eval(r, n->kid[i], &v));
        PL_TRY(put_str(r, v));
    }
    return render_take(r, from, out);
}

static pl_status eval_inner(struct render *r, const struct node *n,
                            struct value *out)
{
    struct value a, b;

    switch (n->kind) {
    case N_CONST:
        *out = n->value;
        return PL_OK;
    case N_NAME:
        *out = get_name(r, n);
        return PL_OK;
    case N_HOLE:
        *out = r->hole;
        return PL_OK;
    case N_LIST:
    case N_TUPLE:
        return eval_list(r, n, out);
    case N_DICT:
        return eval_dict(r, n, out);
    case N_ATTRIBUTE:
        PL_TRY(eval(r, n->a, &a));
        r->line = n->line;
        return value_attribute(r, a, n->value.str, out);
    case N_ITEM:
        PL_TRY(eval(r, n->a, &a));
        PL_TRY(eval(r, n->b, &b));
        r->line = n->line;
        return value_item(r, a, b, out);
    case N_SLICE:
        return eval_slice(r, n, out);
    case N_CALL:
        return eval_call(r, n, NULL, out);
    case N_FILTER:
    case N_TEST:
        return eval_builtin(r, n, out);
    case N_NOT:
        PL_TRY(eval(r, n->a, &a));
        *out = value_bool(!value_truth(a));
        return PL_OK;
    case N_NEGATE:
    case N_PLUS:
        PL_TRY(eval(r, n->a, &a));
        return value_negate(r, n->kind == N_NEGATE, a, out);
    case N_AND:
    case N_OR:
        PL_TRY(eval(r, n->a, out));
        if (value_truth(*out) == (n->kind == N_OR))
            return PL_OK;
        return eval(r, n->b, out);
    case N_JOIN:
        return eval_join(r, n, out);
    case N_COMPARE:
        return eval_compare(r, n, out);
    case N_CONDITIONAL:
        PL_TRY(eval(r, n->b, &b));
        if (value_truth(b))
            return eval(r, n->a, out);
        if (n->c)
            return eval(r, n->c, out);
        *out = (struct value){.kind = V_UNDEFINED};
        return PL_OK;
    default: /* all other kinds of nodes are binary operators */
        PL_TRY(eval(r, n->a, &a));
        PL_TRY(eval(r, n->b, &b));
        r->line = n->line;
        return value_binary(r, n->kind, a, b, out);
    }
}

static pl_status eval(struct render *r, const struct node *n, struct value *out)
{
    r->line = n->line;
    PL_TRY(render_spend(r, 1));
    PL_TRY(render_deeper(r));
    PL_TRY(eval_inner(r, n, out));
    r->left.depth++;
    return PL_OK;
}

/* ---- calling macros and functions -------------------------------------- */

/* The named arguments of a macro call. taken[k] is true if named argument k was
 * bound to a parameter. */
struct binding_words {
    const struct args *args;
    bool taken[BUILTIN_MAX_ARG];
};

/* Returns the named argument `name` of a macro call and marks it as taken.
 * Returns V_ABSENT if there is none. */
static struct value take_word(struct binding_words *w, struct string *name)
{
    const struct args *args = w->args;

    for (int k = 0; k < args->n_word; k++)
        if (!w->taken[k] && string_equal(args->word[k], name)) {
            w->taken[k] = true;
            return args->value[args->n + k];
        }
    return (struct value){.kind = V_ABSENT};
}

static pl_status bind_parameters(struct render *r, const struct node *macro,
                                 struct binding_words *w)
{
    for (int i = 0; i < macro->n_word; i++) {
        const struct word *par = &macro->word[i];
        struct value v =
            i < w->args->n ? w->args->value[i] : take_word(w, par->name);

        if (v.kind == V_ABSENT && par->value)
            PL_TRY(eval(r, par->value, &v));
        else if (v.kind == V_ABSENT)
            v = (struct value){.kind = V_UNDEFINED, .str = par->name};
        PL_TRY(set_name(r, par->sym, v));
    }
    return PL_OK;
}

/* Binds the named arguments of a macro call for which the macro has no
 * parameter to the variable `kwargs`, as a dict. Fails if there are such
 * arguments and the macro does not read `kwargs`. */
static pl_status bind_words(struct render *r, const struct node *macro,
                            struct binding_words *w)
{
    const bool kept = macro->flags & 1 << SYM_KWARGS;
    struct dict *d = kept ? dict_create(&r->arena, 0) : NULL;
    char shown[ERR_SHOWN], of[ERR_SHOWN];

    if (kept && !d)
        return err_no_memory(r->err, "a template's values");
    for (int k = 0; k < w->args->n_word; k++) {
        struct string *name = w->args->word[k];

        if (w->taken[k])
            continue;
        if (!kept)
            return render_fail(
                r, PL_BAD_ARGUMENT,
                "the macro \"%s\" has no parameter \"%s\", or it is already "
                "set",
                err_shown(of, macro->value.str->s, macro->value.str->len),
                err_shown(shown, name->s, name->len));
        if (!dict_put(&r->arena, d, value_str(name),
                      w->args->value[w->args->n + k]))
            return err_no_memory(r->err, "a template's values");
    }
    return kept ? set_name(r, SYM_KWARGS,
                           (struct value){.kind = V_DICT, .dict = d})
                : PL_OK;
}

/* Binds the positional arguments after the macro's last parameter to the
 * variable `varargs`, as a tuple. Fails if there are such arguments and the
 * macro does not read `varargs`. */
static pl_status bind_rest(struct render *r, const struct node *macro,
                           const struct args *args)
{
    int n = args->n > macro->n_word ? args->n - macro->n_word : 0;
    char shown[ERR_SHOWN];
    struct list *l;

    if (macro->flags & 1 << SYM_VARARGS) {
        PL_TRY(render_list(r, (size_t)n, &l));
        for (int i = 0; i < n; i++)
            l->item[i] = args->value[macro->n_word + i];
        return set_name(r, SYM_VARARGS,
                        (struct value){.kind = V_TUPLE, .list = l});
    }
    if (n == 0)
        return PL_OK;
    return render_fail(
        r, PL_BAD_ARGUMENT, "the macro \"%s\" takes %d arguments, not %d",
        err_shown(shown, macro->value.str->s, macro->value.str->len),
        macro->n_word, args->n);
}

static pl_status bind_macro(struct render *r, const struct node *macro,
                            const struct args *args)
{
    struct string *name = r->syntax->name->pair[SYM_CALLER].key.str;
    struct binding_words w = {.args = args};

    PL_TRY(bind_parameters(r, macro, &w));
    if (macro->flags & 1 << SYM_CALLER) {
        struct value v = take_word(&w, name);

        if (v.kind == V_ABSENT || v.kind == V_NONE)
            v = (struct value){.kind = V_UNDEFINED, .str = name};
        PL_TRY(set_name(r, SYM_CALLER, v));
    }
    PL_TRY(bind_words(r, macro, &w));
    return bind_rest(r, macro, args);
}

static pl_status call_macro(struct render *r, const struct macro *m,
                            const struct args *args, struct value *out)
{
    struct scope *outer = r->scope;
    size_t from = r->n_out;

    PL_TRY(scope_open(r, m->scope));
    PL_TRY(bind_macro(r, m->node, args));
    PL_TRY(run(r, m->node->kid[0]));
    r->scope = outer;
    return render_take(r, from, out);
}

static pl_status run_over(struct render *r, const struct node *n,
                          struct value items, int depth);

/* Calls loop(items) within a recursive loop: runs the body of the loop for
 * other items. Sets *out to the text that this writes. */
static pl_status call_loop(struct render *r, const struct loop *loop,
                           const struct args *args, struct value *out)
{
    struct scope *outer = r->scope;
    size_t from = r->n_out;

    if (!loop->node->flags)
        return render_fail(r, PL_BAD_ARGUMENT,
                           "the loop is not recursive; write \"recursive\" "
                           "after its iterable");
    if (args->n + args->n_word != 1 ||
        (args->n_word == 1 && !string_is(args->word[0], "iterable")))
        return render_fail(r, PL_BAD_ARGUMENT,
                           "a recursive loop takes one argument, its iterable");
    r->scope = loop->scope;
    PL_TRY(run_over(r, loop->node, args->value[0], loop->depth + 1));
    r->scope = outer;
    return render_take(r, from, out);
}

pl_status render_call(struct render *r, struct value callee,
                      const struct args *args, struct value *out)
{
    switch ((enum value_kind)callee.kind) {
    case V_FUNCTION:
        return builtin_run(r, callee.function, value_none(), args, out);
    case V_METHOD:
        if (value_is_markup(callee.method->self))
            return markup_method(r, callee.method, args, out);
        return builtin_run(r, callee.method->row, callee.method->self, args,
                           out);
    case V_MACRO:
        return call_macro(r, callee.macro, args, out);
    case V_LOOP:
        return call_loop(r, callee.loop, args, out);
    case V_JOINER:
        *out = (struct value){.kind = V_STR, .str = callee.joiner->sep};
        if (!callee.joiner->used)
            PL_TRY(render_view(r, "", 0, out));
        callee.joiner->used = true;
        return PL_OK;
    case V_UNDEFINED:
        return render_undefined(r, callee);
    default:
        return render_fail(r, PL_BAD_ARGUMENT, "a %s cannot be called",
                           value_kind_name(callee.kind));
    }
}

/* ---- running statements ------------------------------------------------ */

static pl_status assign_attribute(struct render *r, const struct node *target,
                                  struct value v)
{
    struct value of = get_name(r, target->a);

    if (of.kind == V_UNDEFINED)
        return render_undefined(r, of);
    if (of.kind != V_NAMESPACE)
        return render_fail(r, PL_BAD_ARGUMENT,
                           "cannot set attributes of a %s; use a namespace",
                           value_kind_name(of.kind));
    PL_TRY(render_spend(r, of.dict->n == of.dict->cap ? of.dict->n : 1));
    if (!dict_put(&r->arena, of.dict, target->value, v))
        return err_no_memory(r->err, "a template's values");
    return PL_OK;
}

static pl_status assign(struct render *r, const struct node *target,
                        struct value v)
{
    struct list l;

    if (target->kind == N_NAME)
        return set_name(r, target->sym, v);
    if (target->kind == N_ATTRIBUTE)
        return assign_attribute(r, target, v);
    PL_TRY(value_items(r, v, &l));
    if (l.n != (size_t)target->n_kid)
        return render_fail(r, PL_BAD_ARGUMENT,
                           "cannot unpack %zu values into %d names", l.n,
                           target->n_kid);
    for (int i = 0; i < target->n_kid; i++)
        PL_TRY(assign(r, target->kid[i], l.item[i]));
    return PL_OK;
}

/* Removes from the list *l the items for which the condition of the loop, "for
 * x in l if condition", is false. */
static pl_status loop_filter(struct render *r, const struct node *n,
                             struct list *l)
{
    struct scope *outer = r->scope;
    struct list *kept;
    size_t k = 0;

    PL_TRY(render_list(r, l->n, &kept));
    PL_TRY(scope_open(r, outer));
    for (size_t i = 0; i < l->n; i++) {
        struct value v;

        r->scope->n = 0;
        PL_TRY(assign(r, n->a, l->item[i]));
        PL_TRY(eval(r, n->c, &v));
        if (value_truth(v))
            kept->item[k++] = l->item[i];
    }
    kept->n = k;
    *l = *kept;
    r->scope = outer;
    return PL_OK;
}

/* Runs the body of a loop for each item. Sets *whole to true if the body ran to
 * its end for any item, without break or continue. */
static pl_status run_loop(struct render *r, const struct node *n,
                          const struct list *l, int depth, bool *whole)
{
    struct loop *loop;

    PL_TRY(render_alloc(r, 1, sizeof *loop, &loop));
    *loop = (struct loop){
        .node = n, .scope = r->scope->outer, .list = l, .depth = depth};
    for (size_t i = 0; i < l->n && r->flow != FLOW_BREAK; i++) {
        PL_TRY(render_spend(r, 1));
        loop->at = i;
        r->flow = FLOW_ON;
        r->scope->n = 0;
        PL_TRY(set_name(r, SYM_LOOP,
                        (struct value){.kind = V_LOOP, .loop = loop}));
        PL_TRY(assign(r, n->a, l->item[i]));
        PL_TRY(run(r, n->kid[0]));
        *whole |= r->flow == FLOW_ON;
    }
    r->flow = FLOW_ON;
    return PL_OK;
}

static pl_status run_over(struct render *r, const struct node *n,
                          struct value items, int depth)
{
    struct scope *outer = r->scope;
    bool whole = false;
    struct list *l;

    /* The list of items is in the arena, because the variable `loop` refers to
     * it, and a macro that uses `loop` may be called after the loop has
     * ended. */
    PL_TRY(render_alloc(r, 1, sizeof *l, &l));
    PL_TRY(value_items(r, items, l));
    if (n->c)
        PL_TRY(loop_filter(r, n, l));
    PL_TRY(scope_open(r, outer));
    PL_TRY(run_loop(r, n, l, depth, &whole));
    r->scope->n = 0;
    /* As in jinja2, the `else` part runs if the body did not reach its end for
     * any item, even if break ended the loop. */
    if (!whole && n->n_kid > 1)
        PL_TRY(run(r, n->kid[1]));
    r->scope = outer;
    return PL_OK;
}

static pl_status run_for(struct render *r, const struct node *n)
{
    struct value v;

    PL_TRY(eval(r, n->b, &v));
    return run_over(r, n, v, 1);
}

static pl_status run_if(struct render *r, const struct node *n)
{
    for (int i = 0; i < n->n_kid; i += 2) {
        struct value v;

        PL_TRY(eval(r, n->kid[i], &v));
        if (value_truth(v))
            return run(r, n->kid[i + 1]);
    }
    return n->a ? run(r, n->a) : PL_OK;
}

/* Runs a block in a scope of its own. Sets *out to the text that it writes,
 * after the block's filters were applied. */
static pl_status run_captured(struct render *r, const struct node *n,
                              struct value *out)
{
    struct scope *outer = r->scope;
    struct value hole = r->hole;
    size_t from = r->n_out;

    PL_TRY(scope_open(r, outer));
    PL_TRY(run(r, n->kid[0]));
    PL_TRY(render_take(r, from, out));
    if (n->b) {
        r->hole = *out;
        PL_TRY(eval(r, n->b, out));
        r->hole = hole;
    }
    r->scope = outer;
    return PL_OK;
}

static pl_status run_scope(struct render *r, const struct node *n)
{
    struct scope *outer = r->scope, *inner;

    PL_TRY(scope_open(r, outer));
    inner = r->scope;
    for (int i = 1; i < n->n_kid; i += 2) {
        struct value v;

        /* The values are evaluated outside of the new scope. */
        r->scope = outer;
        PL_TRY(eval(r, n->kid[i + 1], &v));
        r->scope = inner;
        PL_TRY(assign(r, n->kid[i], v));
    }
    PL_TRY(run(r, n->kid[0]));
    r->scope = outer;
    return PL_OK;
}

static pl_status run_macro(struct render *r, const struct node *n)
{
    struct macro *m;

    PL_TRY(render_alloc(r, 1, sizeof *m, &m));
    *m = (struct macro){n, r->scope};
    return set_name(r, n->sym, (struct value){.kind = V_MACRO, .macro = m});
}

/* Runs a {% call %} block: calls a macro, and passes the block to it as a macro
 * with the name "caller". */
static pl_status run_call(struct render *r, const struct node *n)
{
    struct macro *m;
    struct value v;

    PL_TRY(render_alloc(r, 1, sizeof *m, &m));
    *m = (struct macro){n, r->scope};
    PL_TRY(eval_call(r, n->a, m, &v));
    return put_str(r, v);
}

static pl_status run_inner(struct render *r, const struct node *n)
{
    struct value v;

    switch (n->kind) {
    case N_BLOCK:
        for (int i = 0; i < n->n_kid && r->flow == FLOW_ON; i++)
            PL_TRY(run(r, n->kid[i]));
        return PL_OK;
    case N_DATA:
        return render_put(r, n->value.str->s, n->value.str->len);
    case N_PRINT:
        PL_TRY(eval(r, n->a, &v));
        return put_str(r, v);
    case N_IF:
        return run_if(r, n);
    case N_FOR:
        return run_for(r, n);
    case N_SET:
        PL_TRY(eval(r, n->b, &v));
        return assign(r, n->a, v);
    case N_SET_BLOCK:
        PL_TRY(run_captured(r, n, &v));
        return assign(r, n->a, v);
    case N_FILTERED:
        PL_TRY(run_captured(r, n, &v));
        return put_str(r, v);
    case N_SCOPE:
        return run_scope(r, n);
    case N_MACRO:
        return run_macro(r, n);
    case N_CALL_BLOCK:
        return run_call(r, n);
    default:
        r->flow = n->kind == N_BREAK ? FLOW_BREAK : FLOW_CONTINUE;
        return PL_OK;
    }
}

static pl_status run(struct render *r, const struct node *n)
{
    r->line = n->line;
    PL_TRY(render_spend(r, 1));
    PL_TRY(render_deeper(r));
    PL_TRY(run_inner(r, n));
    r->left.depth++;
    return PL_OK;
}

/* ---- creating and rendering a template --------------------------------- */

struct chat_template {
    struct arena arena;
    struct syntax syntax;
};

const struct chat_limits chat_usual_limits = {
    .steps = 20 * 1000 * 1000,
    .depth = 400,
    .output_bytes = 64 << 20,
    .memory_bytes = 512 << 20,
};

pl_status chat_template_create(struct chat_template **out, const char *text,
                               size_t len, pl_err *err)
{
    struct chat_template *t = calloc(1, sizeof *t);
    pl_status s;

    *out = NULL;
    if (!t)
        return err_no_memory(err, "a chat template");
    s = parse_template(&t->arena, text, len, &t->syntax, err);
    if (s == PL_OK)
        *out = t;
    else
        chat_template_free(t);
    return s;
}

void chat_template_free(struct chat_template *t)
{
    if (!t)
        return;
    arena_fini(&t->arena);
    free(t);
}

/* Sets the global variable `name` to v, if the template uses this name. */
static void set_root(struct render *r, struct string *name, struct value v)
{
    const struct value *sym = dict_find(r->syntax->name, value_str(name));

    if (sym)
        r->root[sym->i] = v;
}

static pl_status set_variable(struct render *r, const struct chat_variable *var)
{
    struct value v;

    if (var->json)
        PL_TRY(value_from_json(&r->arena, var->s, var->len,
                               var->name ? var->name : "variables", &v,
                               r->err));
    else
        PL_TRY(render_string(r, var->s, var->len, &v));
    if (var->name) {
        struct value name;

        PL_TRY(render_view(r, var->name, strlen(var->name), &name));
        set_root(r, name.str, v);
        return PL_OK;
    }
    if (v.kind != V_DICT)
        return err_set(r->err, PL_BAD_ARGUMENT,
                       "variables: not a JSON object; give one, like "
                       "{\"enable_thinking\": false}");
    for (size_t i = 0; i < v.dict->n; i++)
        set_root(r, v.dict->pair[i].key.str, v.dict->pair[i].value);
    return PL_OK;
}

static pl_status render_all(struct render *r, const struct chat_variable *var,
                            int n_var)
{
    enum { FIRST_BYTES = 4096 };

    r->out = malloc(FIRST_BYTES);
    if (!r->out)
        return err_no_memory(r->err, "a template's text");
    r->cap_out = FIRST_BYTES;
    PL_TRY(render_alloc(r, r->syntax->name->n, sizeof *r->root, &r->root));
    for (int i = 0; i < n_var; i++)
        PL_TRY(set_variable(r, &var[i]));
    PL_TRY(run(r, r->syntax->root));
    PL_TRY(render_put(r, "", 1)); /* NUL-terminates the rendered text */
    return PL_OK;
}

pl_status chat_template_render(const struct chat_template *t,
                               const struct chat_variable *var, int n_var,
                               int64_t now, const struct chat_limits *limits,
                               char **out, size_t *len, pl_err *err)
{
    struct render r = {
        .syntax = &t->syntax, .left = *limits, .now = now, .err = err};
    pl_err own;
    pl_status s;

    if (!err)
        r.err = &own;
    s = render_all(&r, var, n_var);
    if (s == PL_OK) {
        *out = r.out;
        *len = r.n_out - 1;
    } else {
        *out = NULL;
        *len = 0;
        free(r.out);
    }
    arena_fini(&r.arena);
    return s;
}
