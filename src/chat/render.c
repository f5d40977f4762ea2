/* Walks the tree of a template: statements write to the output, expressions
 * give values. Variables set inside a loop, macro or block end with it; an
 * `if` has no variables of its own. */
#include "chat/render.h"

#include "base/err.h"
#include "base/numeral.h"
#include "chat/value_json.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- failing, and bounds ----------------------------------------------- */

pl_status render_fail(struct render *r, pl_status s, const char *fmt, ...)
{
    char text[sizeof r->err->message];
    va_list ap;

    va_start(ap, fmt);
    numeral_vprint(text, sizeof text, fmt, ap);
    va_end(ap);
    return err_set(r->err, s, "template line %d: %s", r->line, text);
}

pl_status render_undefined(struct render *r, struct value v)
{
    char shown[ERR_SHOWN] = "value";

    if (v.str)
        err_shown(shown, v.str->s, v.str->len);
    if (v.sub == V_ABSENT)
        return render_fail(r, PL_BAD_ARGUMENT, "'%s' is undefined", shown);
    return render_fail(r, PL_BAD_ARGUMENT, "'%s' has no attribute '%s'",
                       value_kind_name(v.sub), shown);
}

pl_status render_spend(struct render *r, uint64_t steps)
{
    if (steps > r->left.steps)
        return render_fail(r, PL_FULL,
                           "the template takes more steps than are allowed; "
                           "it may not end");
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
        return render_fail(r, PL_FULL,
                           "macros, expressions or values nest too deeply");
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
        return render_fail(r, PL_FULL,
                           "the template's values take more memory than the "
                           "%zu bytes that are allowed",
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

/* ---- text -------------------------------------------------------------- */

pl_status render_put(struct render *r, const char *s, size_t len)
{
    if (len > r->left.output_bytes - r->n_out)
        return render_fail(r, PL_FULL,
                           "the text is longer than the %zu bytes that are "
                           "allowed",
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
    PL_TRY(render_alloc(r, 0, 1, &v)); /* is there room at all? */
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

/* ---- variables --------------------------------------------------------- */

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

/* ---- expressions ------------------------------------------------------- */

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
            return render_fail(r, PL_BAD_ARGUMENT,
                               "a %s cannot be a key of a dict",
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

static pl_status eval_args(struct render *r, const struct node *n,
                           struct args *args)
{
    args->n = n->n_kid;
    args->n_word = n->n_word;
    for (int i = 0; i < n->n_kid; i++)
        PL_TRY(eval(r, n->kid[i], &args->value[i]));
    for (int i = 0; i < n->n_word; i++) {
        args->word[i] = n->word[i].name;
        PL_TRY(eval(r, n->word[i].value, &args->value[n->n_kid + i]));
    }
    r->line = n->line;
    return PL_OK;
}

/* These two are functions of their own so that the arguments do not lie on the
 * stack of every expression. */
__attribute__((noinline)) static pl_status
eval_call(struct render *r, const struct node *n, struct value *out)
{
    struct args args;
    struct value callee;

    PL_TRY(eval(r, n->a, &callee));
    PL_TRY(eval_args(r, n, &args));
    return render_call(r, callee, &args, out);
}

__attribute__((noinline)) static pl_status
eval_builtin(struct render *r, const struct node *n, struct value *out)
{
    struct args args;
    struct value self;
    char shown[ERR_SHOWN];

    PL_TRY(eval(r, n->a, &self));
    PL_TRY(eval_args(r, n, &args));
    if (!n->builtin)
        return render_fail(
            r, PL_UNSUPPORTED, "there is no %s \"%s\"",
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
        return eval_call(r, n, out);
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
    default: /* a binary operator */
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

/* ---- calls ------------------------------------------------------------- */

/* The argument for parameter i of a macro, or V_ABSENT. */
static pl_status macro_argument(struct render *r, const struct node *macro,
                                int i, const struct args *args,
                                struct value *out)
{
    struct string *name = macro->word[i].name;

    out->kind = V_ABSENT;
    if (i < args->n)
        *out = args->value[i];
    for (int k = 0; k < args->n_word; k++) {
        if (!string_equal(args->word[k], name))
            continue;
        if (out->kind != V_ABSENT)
            return render_fail(r, PL_BAD_ARGUMENT,
                               "a macro's parameter %d is given twice", i + 1);
        *out = args->value[args->n + k];
    }
    return PL_OK;
}

static pl_status check_words(struct render *r, const struct node *macro,
                             const struct args *args)
{
    char shown[ERR_SHOWN];

    if (args->n > macro->n_word)
        return render_fail(
            r, PL_BAD_ARGUMENT, "the macro \"%s\" takes %d arguments, not %d",
            err_shown(shown, macro->value.str->s, macro->value.str->len),
            macro->n_word, args->n);
    for (int k = 0; k < args->n_word; k++) {
        int i = 0;

        while (i < macro->n_word &&
               !string_equal(macro->word[i].name, args->word[k]))
            i++;
        if (i == macro->n_word)
            return render_fail(
                r, PL_BAD_ARGUMENT, "a macro has no parameter \"%s\"",
                err_shown(shown, args->word[k]->s, args->word[k]->len));
    }
    return PL_OK;
}

static pl_status call_macro(struct render *r, const struct macro *m,
                            const struct args *args, struct value *out)
{
    const struct node *n = m->node;
    struct scope *outer = r->scope;
    int depth = r->loop_depth;
    size_t from = r->n_out;

    PL_TRY(check_words(r, n, args));
    PL_TRY(scope_open(r, m->scope));
    r->loop_depth = m->loop_depth;
    for (int i = 0; i < n->n_word; i++) {
        struct value v;

        PL_TRY(macro_argument(r, n, i, args, &v));
        if (v.kind == V_ABSENT && n->word[i].value)
            PL_TRY(eval(r, n->word[i].value, &v));
        else if (v.kind == V_ABSENT)
            v = (struct value){.kind = V_UNDEFINED, .str = n->word[i].name};
        PL_TRY(set_name(r, n->word[i].sym, v));
    }
    PL_TRY(run(r, n->kid[0]));
    r->scope = outer;
    r->loop_depth = depth;
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

/* ---- statements -------------------------------------------------------- */

static pl_status assign_attribute(struct render *r, const struct node *target,
                                  struct value v)
{
    struct value of = get_name(r, target->a);

    if (of.kind == V_UNDEFINED)
        return render_undefined(r, of);
    if (of.kind != V_NAMESPACE)
        return render_fail(r, PL_BAD_ARGUMENT,
                           "only attributes of a namespace can be set, not "
                           "of a %s",
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
                           "%zu values for %d names; give as many", l.n,
                           target->n_kid);
    for (int i = 0; i < target->n_kid; i++)
        PL_TRY(assign(r, target->kid[i], l.item[i]));
    return PL_OK;
}

/* Drops the items of a loop that its condition does not let through. */
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

/* *whole: did any turn come to its end, without break or continue? */
static pl_status run_loop(struct render *r, const struct node *n,
                          const struct list *l, bool *whole)
{
    struct loop *loop;

    PL_TRY(render_alloc(r, 1, sizeof *loop, &loop));
    loop->list = l;
    loop->depth = ++r->loop_depth;
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
    r->loop_depth--;
    return PL_OK;
}

static pl_status run_for(struct render *r, const struct node *n)
{
    struct scope *outer = r->scope;
    bool whole = false;
    struct value v;
    struct list *l;

    PL_TRY(eval(r, n->b, &v));
    PL_TRY(render_alloc(r, 1, sizeof *l, &l)); /* a macro may outlive it */
    PL_TRY(value_items(r, v, l));
    if (n->c)
        PL_TRY(loop_filter(r, n, l));
    PL_TRY(scope_open(r, outer));
    PL_TRY(run_loop(r, n, l, &whole));
    r->scope->n = 0;
    if (!whole && n->n_kid > 1) /* as jinja2 does, even after a break */
        PL_TRY(run(r, n->kid[1]));
    r->scope = outer;
    return PL_OK;
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

/* The text of a block with variables of its own, through its filters. */
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

        r->scope = outer; /* values do not see the names beside them */
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
    *m = (struct macro){n, r->scope, r->loop_depth};
    return set_name(r, n->sym, (struct value){.kind = V_MACRO, .macro = m});
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

/* ---- the template ------------------------------------------------------ */

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

/* Sets the outermost variable `name`, if the template has such a name. */
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
                       "variables: the JSON text is no object; give one, like "
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
    PL_TRY(render_put(r, "", 1)); /* the end of the string */
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
