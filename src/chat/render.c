/* Renders a template by walking its syntax tree. Statements write to the
 * output, expressions return values. Variables that are set inside a loop,
 * macro or block exist until its end; an `if` does not begin a new scope. */
#include "chat/strings.h"

#include "base/err.h"
#include "base/numeral.h"
#include "chat/unicode.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* ---- error messages and limits ----------------------------------------- */

struct value render_bad(struct render *r, const char *fmt, ...)
{
    char text[sizeof r->w.err->message];
    va_list ap;

    va_start(ap, fmt);
    numeral_vprint(text, sizeof text, fmt, ap);
    va_end(ap);
    return work_fail(&r->w, PL_BAD_ARGUMENT, "%s", text);
}

struct value render_undefined(struct render *r, struct value v)
{
    char shown[ERR_SHOWN] = "value";

    if (v.str)
        err_shown(shown, v.str->s, v.str->len);
    if (v.str && builtin_method(v.sub, v.str))
        /* Jinja's sandbox forbids this method, but templates that were written
         * for other programs may use it. */
        return render_bad(r,
                          "'%s' would modify a %s, which templates may not; "
                          "build a new one, as in x = x + [item]",
                          shown, value_kind_name(v.sub));
    if (v.sub == V_ABSENT)
        return render_bad(r, "'%s' is undefined", shown);
    return render_bad(r, "'%s' has no attribute '%s'", value_kind_name(v.sub),
                      shown);
}

struct value render_wrong(struct render *r, struct value v, const char *what)
{
    render_defined(r, v);
    return render_bad(r, "a %s %s", value_kind_name(v.kind), what);
}

void render_defined(struct render *r, struct value v)
{
    if (v.kind == V_UNDEFINED)
        render_undefined(r, v);
}

void render_look(struct render *r, struct value v)
{
    if (v.kind == V_STR)
        work_spend(&r->w, v.str->len / 64);
}

/* ---- building the output and strings ----------------------------------- */

void render_put(struct render *r, const char *s, size_t len)
{
    if (len > r->w.left.output_bytes - r->n_out)
        work_fail(&r->w, PL_FULL, "the output exceeds the limit of %zu bytes",
                  r->w.left.output_bytes);
    if (r->w.status != PL_OK || len == 0)
        return;
    r->n_event++;
    if (len > r->cap_out - r->n_out) {
        size_t cap = 2 * r->cap_out + len + 4096;
        char *more = realloc(r->out, cap);

        if (!more) {
            work_no_memory(&r->w);
            return;
        }
        r->out = more;
        r->cap_out = cap;
    }
    memcpy(r->out + r->n_out, s, len);
    r->n_out += len;
}

void render_puts(struct render *r, const char *s)
{
    render_put(r, s, strlen(s));
}

void render_put_char(struct render *r, uint32_t c)
{
    char s[4];

    render_put(r, s, unicode_put(s, c));
}

void render_fill(struct render *r, uint32_t c, size_t n)
{
    work_spend(&r->w, n);
    for (; n > 0 && r->w.status == PL_OK; n--)
        render_put_char(r, c);
}

struct value render_take(struct render *r, size_t from)
{
    size_t len = r->n_out - from;

    r->n_out = from;
    return value_copy(&r->w, len > 0 ? r->out + from : "", len);
}

/* ---- setting and reading variables ------------------------------------- */

/* Begins a scope inside `outer`; returns false after a failure. */
static bool scope_open(struct render *r, struct scope *outer)
{
    struct scope *s = work_alloc(&r->w, 1, sizeof *s);

    if (!s)
        return false;
    s->outer = outer;
    r->scope = s;
    return true;
}

static void set_name(struct render *r, int sym, struct value v)
{
    struct scope *s = r->scope;

    if (!s) {
        r->root[sym] = v;
        return;
    }
    for (int i = 0; i < s->n; i++)
        if (s->b[i].sym == sym) {
            s->b[i].value = v;
            return;
        }
    if (s->n == s->cap) {
        int cap = s->cap > 0 ? 2 * s->cap : 4;
        struct binding *b = work_alloc(&r->w, (size_t)cap, sizeof *b);

        if (!b)
            return;
        if (s->n > 0)
            memcpy(b, s->b, (size_t)s->n * sizeof *b);
        s->b = b;
        s->cap = cap;
    }
    s->b[s->n++] = (struct binding){sym, v};
}

static struct value get_name(struct render *r, const struct node *name)
{
    bool inside = true; /* the scope is that of the innermost loop, or in it */

    for (const struct scope *s = r->scope; s; s = s->outer) {
        for (int i = 0; i < s->n; i++)
            if (s->b[i].sym == name->sym) {
                r->n_event += inside;
                return s->b[i].value;
            }
        inside = inside && !s->of_loop;
    }
    if (r->root[name->sym].kind != V_ABSENT)
        return r->root[name->sym];
    if (name->builtin)
        return (struct value){.kind = V_FUNCTION, .function = name->builtin};
    return (struct value){.kind = V_UNDEFINED, .str = name->value.str};
}

/* ---- evaluating expressions -------------------------------------------- */

static struct value eval(struct render *r, const struct node *n);
static void run(struct render *r, const struct node *n);

static struct value eval_list(struct render *r, const struct node *n)
{
    struct list l = list_with(&r->w, (size_t)n->n_kid);

    for (int i = 0; i < n->n_kid; i++)
        list_add(&r->w, &l, eval(r, n->kid[i]));
    return value_list(&r->w, n->kind == N_LIST ? V_LIST : V_TUPLE, l);
}

static struct value eval_dict(struct render *r, const struct node *n)
{
    struct dict d = {0};

    for (int i = 0; i < n->n_kid; i += 2) {
        const struct value key = eval(r, n->kid[i]);

        dict_put(&r->w, &d, key, eval(r, n->kid[i + 1]));
    }
    return value_new(&r->w, V_DICT, &d, sizeof d);
}

static struct value eval_slice(struct render *r, const struct node *n)
{
    const struct value of = eval(r, n->a);
    struct value part[3];

    for (int i = 0; i < 3; i++)
        part[i] = n->kid[i] ? eval(r, n->kid[i]) : value_none();
    r->w.line = n->line;
    return value_slice(r, of, part);
}

/* Adds an argument of a call; a positional one if `name` is NULL. */
static void add_arg(struct render *r, struct args *args, struct string *name,
                    struct value v)
{
    const int n = args->n + args->n_word;
    char shown[ERR_SHOWN];

    for (int i = 0; name && i < args->n_word; i++)
        if (string_equal(args->word[i], name))
            render_bad(r, "the argument \"%s\" is given twice",
                       err_shown(shown, name->s, name->len));
    if (n == BUILTIN_MAX_ARG)
        work_fail(&r->w, PL_UNSUPPORTED, "a call has more than %d arguments",
                  BUILTIN_MAX_ARG);
    if (r->w.status != PL_OK)
        return;
    args->value[n] = v;
    if (name)
        args->word[args->n_word++] = name;
    else
        args->n++;
}

/* Evaluates the argument "**dict" of a call and appends the pairs of the dict
 * to the named arguments. */
static void eval_dict_args(struct render *r, const struct node *n,
                           struct args *args)
{
    const struct value v = eval(r, n->c);

    render_defined(r, v);
    if (v.kind != V_DICT) {
        render_bad(r, "** needs a dict, not a %s", value_kind_name(v.kind));
        return;
    }
    for (size_t i = 0; i < v.dict->n && r->w.status == PL_OK; i++) {
        const struct pair *p = &v.dict->pair[i];

        if (p->key.kind == V_STR)
            add_arg(r, args, p->key.str, p->value);
        else
            render_wrong(r, p->key, "is not an argument name; use strings");
    }
}

/* Evaluates the arguments of the call `n`. `caller` is the macro that a {% call
 * %} block passes as an argument; V_ABSENT if none. */
static void eval_args(struct render *r, const struct node *n,
                      struct value caller, struct args *args)
{
    struct list l = {0};

    args->n = args->n_word = 0;
    for (int i = 0; i < n->n_kid; i++)
        add_arg(r, args, NULL, eval(r, n->kid[i]));
    if (n->b)
        l = value_items(r, eval(r, n->b));
    for (size_t i = 0; i < l.n && r->w.status == PL_OK; i++)
        add_arg(r, args, NULL, l.item[i]);
    for (int i = 0; i < n->n_word; i++)
        add_arg(r, args, n->word[i].name, eval(r, n->word[i].value));
    if (caller.kind == V_MACRO)
        add_arg(r, args, caller.macro->node->value.str, caller);
    if (n->c)
        eval_dict_args(r, n, args);
    r->w.line = n->line;
}

static struct value call_value(struct render *r, struct value callee,
                               const struct args *args);

/* Calls a function or macro, or runs a filter or test. It is not inlined: if it
 * were, each recursive call of eval would need stack space for its struct
 * args. */
__attribute__((noinline)) static struct value
eval_call(struct render *r, const struct node *n, struct value caller)
{
    const struct value of = eval(r, n->a);
    char shown[ERR_SHOWN];
    struct args args;

    eval_args(r, n, caller, &args);
    if (r->w.status != PL_OK)
        return of;
    r->n_event += n->kind == N_CALL;
    if (n->kind == N_CALL)
        return call_value(r, of, &args);
    if (n->builtin)
        return builtin_run(r, n->builtin, of, &args);
    return work_fail(&r->w, PL_UNSUPPORTED, "unknown %s \"%s\"",
                     n->kind == N_FILTER ? "filter" : "test",
                     err_shown(shown, n->value.str->s, n->value.str->len));
}

static struct value eval_compare(struct render *r, const struct node *n)
{
    struct value left = eval(r, n->a);
    bool is = true;

    for (int i = 0; i < n->n_word && is; i++) {
        const struct value right = eval(r, n->word[i].value);

        r->w.line = n->line;
        is = value_compare(r, (enum comparison)n->word[i].sym, left, right);
        left = right;
    }
    return value_bool(is);
}

static struct value eval_join(struct render *r, const struct node *n)
{
    size_t from = r->n_out;

    put_str(r, eval(r, n->a));
    for (int i = 0; i < n->n_word; i++)
        put_str(r, eval(r, n->word[i].value));
    return render_take(r, from);
}

static struct value eval_inner(struct render *r, const struct node *n)
{
    struct value a, b;

    switch (n->kind) {
    case N_CONST:
        return n->value;
    case N_NAME:
        return get_name(r, n);
    case N_HOLE:
        return r->hole;
    case N_LIST:
    case N_TUPLE:
        return eval_list(r, n);
    case N_DICT:
        return eval_dict(r, n);
    case N_ATTRIBUTE:
        a = eval(r, n->a);
        r->w.line = n->line;
        return value_attribute(r, a, n->value.str);
    case N_SLICE:
        return eval_slice(r, n);
    case N_CALL:
    case N_FILTER:
    case N_TEST:
        return eval_call(r, n, (struct value){.kind = V_ABSENT});
    case N_NOT:
        return value_bool(!value_truth(eval(r, n->a)));
    case N_NEGATE:
    case N_PLUS:
        return value_negate(r, n->kind == N_NEGATE, eval(r, n->a));
    case N_AND:
    case N_OR:
        a = eval(r, n->a);
        return value_truth(a) == (n->kind == N_OR) ? a : eval(r, n->b);
    case N_JOIN:
        return eval_join(r, n);
    case N_COMPARE:
        return eval_compare(r, n);
    case N_CONDITIONAL:
        if (value_truth(eval(r, n->b)))
            return eval(r, n->a);
        return n->c ? eval(r, n->c) : value_undefined();
    default: /* N_ITEM; all other kinds of nodes are binary operators */
        a = eval(r, n->a);
        b = eval(r, n->b);
        r->w.line = n->line;
        return n->kind == N_ITEM ? value_item(r, a, b)
                                 : value_binary(r, n->kind, a, b);
    }
}

static struct value eval(struct render *r, const struct node *n)
{
    struct value v = value_undefined();

    r->w.line = n->line;
    if (work_enter(&r->w))
        v = eval_inner(r, n);
    r->w.left.depth++;
    return v;
}

/* ---- calling macros and functions -------------------------------------- */

/* Returns the named argument `name` of a macro call and marks it in *taken,
 * bits 1 << its index. Returns V_ABSENT if there is none. */
static struct value take_word(const struct args *args, struct string *name,
                              uint32_t *taken)
{
    for (int k = 0; k < args->n_word; k++)
        if (!(*taken >> k & 1) && string_equal(args->word[k], name)) {
            *taken |= 1u << k;
            return args->value[args->n + k];
        }
    return (struct value){.kind = V_ABSENT};
}

/* Binds the named arguments of a macro call for which the macro has no
 * parameter to the variable `kwargs`, as a dict. Fails if there are such
 * arguments and the macro does not read `kwargs`. */
static void bind_words(struct render *r, const struct node *macro,
                       const struct args *args, uint32_t taken)
{
    const bool kept = macro->flags & 1 << SYM_KWARGS;
    struct dict d = {0};
    char shown[ERR_SHOWN], of[ERR_SHOWN];

    for (int k = 0; k < args->n_word; k++) {
        struct string *name = args->word[k];

        if (taken >> k & 1)
            continue;
        if (!kept)
            render_bad(
                r,
                "the macro \"%s\" has no parameter \"%s\", or it is already "
                "set",
                err_shown(of, macro->value.str->s, macro->value.str->len),
                err_shown(shown, name->s, name->len));
        dict_put(&r->w, &d, value_str(name), args->value[args->n + k]);
    }
    if (kept)
        set_name(r, SYM_KWARGS, value_new(&r->w, V_DICT, &d, sizeof d));
}

/* Binds the arguments of a call to the parameters of a macro. Positional
 * arguments after the last parameter become the tuple `varargs`; they are an
 * error if the macro does not read it. */
static void bind_macro(struct render *r, const struct node *macro,
                       const struct args *args)
{
    struct string *caller = r->syntax->name->pair[SYM_CALLER].key.str;
    char shown[ERR_SHOWN];
    uint32_t taken = 0;

    for (int i = 0; i < macro->n_word; i++) {
        const struct word *par = &macro->word[i];
        struct value v =
            i < args->n ? args->value[i] : take_word(args, par->name, &taken);

        if (v.kind == V_ABSENT && par->value)
            v = eval(r, par->value);
        else if (v.kind == V_ABSENT)
            v = (struct value){.kind = V_UNDEFINED, .str = par->name};
        set_name(r, par->sym, v);
    }
    if (macro->flags & 1 << SYM_CALLER) {
        struct value v = take_word(args, caller, &taken);

        if (value_is(v, 1 << V_ABSENT | 1 << V_NONE))
            v = (struct value){.kind = V_UNDEFINED, .str = caller};
        set_name(r, SYM_CALLER, v);
    }
    bind_words(r, macro, args, taken);
    if (macro->flags & 1 << SYM_VARARGS)
        set_name(r, SYM_VARARGS,
                 value_list(&r->w, V_TUPLE, args_list(r, args, macro->n_word)));
    else if (args->n > macro->n_word)
        render_bad(r, "the macro \"%s\" takes %d arguments, not %d",
                   err_shown(shown, macro->value.str->s, macro->value.str->len),
                   macro->n_word, args->n);
}

static void run_over(struct render *r, const struct node *n, struct value items,
                     int depth);

/* Calls a macro, or loop(items) within a recursive loop, which runs the body of
 * the loop for other items. Returns the text that this writes. */
static struct value call_text(struct render *r, struct value callee,
                              const struct args *args)
{
    struct scope *outer = r->scope;
    size_t from = r->n_out;

    if (callee.kind == V_LOOP) {
        r->scope = callee.loop->scope;
        run_over(r, callee.loop->node, args->value[0], callee.loop->depth + 1);
    } else if (scope_open(r, callee.macro->scope)) {
        bind_macro(r, callee.macro->node, args);
        run(r, callee.macro->node->kid[0]);
    }
    r->scope = outer;
    return render_take(r, from);
}

static struct value call_value(struct render *r, struct value callee,
                               const struct args *args)
{
    switch ((enum value_kind)callee.kind) {
    case V_FUNCTION:
        return builtin_run(r, callee.function, value_none(), args);
    case V_METHOD:
        return builtin_run(r, callee.method->row, callee.method->self, args);
    case V_LOOP:
        if (!callee.loop->node->flags)
            return render_bad(r,
                              "the loop is not recursive; write \"recursive\" "
                              "after its iterable");
        if (args->n + args->n_word != 1 ||
            (args->n_word == 1 && !string_is(args->word[0], "iterable")))
            return render_bad(
                r, "a recursive loop takes one argument, its iterable");
        return call_text(r, callee, args);
    case V_MACRO:
        return call_text(r, callee, args);
    case V_JOINER:
        if (callee.joiner->used)
            return value_str(callee.joiner->sep);
        callee.joiner->used = true;
        return value_str(&r->w.empty);
    default:
        return render_wrong(r, callee, "cannot be called");
    }
}

/* ---- running statements ------------------------------------------------ */

static void assign(struct render *r, const struct node *target, struct value v)
{
    struct list l;

    r->n_event++;
    if (target->kind == N_NAME) {
        set_name(r, target->sym, v);
    } else if (target->kind == N_ATTRIBUTE) {
        const struct value of = get_name(r, target->a);

        render_defined(r, of);
        if (of.kind == V_NAMESPACE)
            dict_put(&r->w, of.dict, target->value, v);
        else
            render_bad(r, "cannot set attributes of a %s; use a namespace",
                       value_kind_name(of.kind));
    } else {
        l = value_items(r, v);
        if (l.n != (size_t)target->n_kid)
            render_bad(r, "cannot unpack %zu values into %d names", l.n,
                       target->n_kid);
        for (int i = 0; i < target->n_kid && r->w.status == PL_OK; i++)
            assign(r, target->kid[i], l.item[i]);
    }
}

/* Returns the items of the list `l` for which the condition of the loop, "for x
 * in l if condition", is true. */
static struct list loop_filter(struct render *r, const struct node *n,
                               struct list l)
{
    struct scope *outer = r->scope;
    struct list kept = {0};

    if (!scope_open(r, outer))
        return kept;
    for (size_t i = 0; i < l.n && r->w.status == PL_OK; i++) {
        r->scope->n = 0;
        assign(r, n->a, l.item[i]);
        if (value_truth(eval(r, n->c)))
            list_add(&r->w, &kept, l.item[i]);
    }
    r->scope = outer;
    return kept;
}

/* Runs the body of a loop for each item. Returns true if the body ran to its
 * end for any item, without break or continue. */
static bool run_loop(struct render *r, struct value self)
{
    struct loop *loop = self.loop;
    const int64_t n = value_length(r, loop->items);
    bool whole = false, idle = false;

    for (int64_t i = 0;
         i < n && r->flow != FLOW_BREAK && !idle && r->w.status == PL_OK; i++) {
        uint64_t before;

        work_spend(&r->w, 1);
        loop->at = i;
        r->flow = FLOW_ON;
        r->scope->n = 0;
        set_name(r, SYM_LOOP, self);
        assign(r, loop->node->a, value_at(loop->items, i));
        before = r->n_event;
        run(r, loop->node->kid[0]);
        whole |= r->flow == FLOW_ON;
        idle = r->n_event == before && loop->node->a->kind == N_NAME;
    }
    r->flow = FLOW_ON;
    return whole;
}

static void run_over(struct render *r, const struct node *n, struct value items,
                     int depth)
{
    struct scope *outer = r->scope;
    struct loop loop = {.node = n, .scope = outer, .depth = depth};
    struct value self;
    struct list l;

    /* The items of a range are not stored, because some templates loop over the
     * numbers of all messages for each message. */
    if (items.kind != V_RANGE || n->c) {
        l = value_items(r, items);
        items = value_list(&r->w, V_LIST, n->c ? loop_filter(r, n, l) : l);
    }
    loop.items = items;
    self = value_new(&r->w, V_LOOP, &loop, sizeof loop);
    if (!scope_open(r, outer) || self.kind != V_LOOP)
        return;
    r->scope->of_loop = true;
    /* As in jinja2, the `else` part runs if the body did not reach its end for
     * any item, even if break ended the loop. */
    if (!run_loop(r, self) && n->n_kid > 1) {
        r->scope->n = 0;
        run(r, n->kid[1]);
    }
    r->scope = outer;
}

static void run_if(struct render *r, const struct node *n)
{
    for (int i = 0; i < n->n_kid; i += 2)
        if (value_truth(eval(r, n->kid[i]))) {
            run(r, n->kid[i + 1]);
            return;
        }
    if (n->a)
        run(r, n->a);
}

/* Runs a block in a scope of its own. Returns the text that it writes, after
 * the block's filters were applied. */
static struct value run_captured(struct render *r, const struct node *n)
{
    struct scope *outer = r->scope;
    const struct value hole = r->hole;
    size_t from = r->n_out;
    struct value out;

    scope_open(r, outer);
    run(r, n->kid[0]);
    out = render_take(r, from);
    if (n->b) {
        r->hole = out;
        out = eval(r, n->b);
        r->hole = hole;
    }
    r->scope = outer;
    return out;
}

static void run_scope(struct render *r, const struct node *n)
{
    struct scope *outer = r->scope, *inner;

    scope_open(r, outer);
    inner = r->scope;
    for (int i = 1; i < n->n_kid; i += 2) {
        struct value v;

        /* The values are evaluated outside of the new scope. */
        r->scope = outer;
        v = eval(r, n->kid[i + 1]);
        r->scope = inner;
        assign(r, n->kid[i], v);
    }
    run(r, n->kid[0]);
    r->scope = outer;
}

static struct value make_macro(struct render *r, const struct node *n)
{
    return value_new(&r->w, V_MACRO, &(struct macro){n, r->scope},
                     sizeof(struct macro));
}

static void run_inner(struct render *r, const struct node *n)
{
    switch (n->kind) {
    case N_BLOCK:
        for (int i = 0; i < n->n_kid && r->flow == FLOW_ON; i++)
            run(r, n->kid[i]);
        return;
    case N_DATA:
        put_str(r, n->value);
        return;
    case N_PRINT:
        put_str(r, eval(r, n->a));
        return;
    case N_IF:
        run_if(r, n);
        return;
    case N_FOR:
        run_over(r, n, eval(r, n->b), 1);
        return;
    case N_SET:
        assign(r, n->a, eval(r, n->b));
        return;
    case N_SET_BLOCK:
        assign(r, n->a, run_captured(r, n));
        return;
    case N_FILTERED:
        put_str(r, run_captured(r, n));
        return;
    case N_SCOPE:
        run_scope(r, n);
        return;
    case N_MACRO:
        set_name(r, n->sym, make_macro(r, n));
        return;
    case N_CALL_BLOCK: /* calls a macro, and passes the block to it as a macro
                          with the name "caller" */
        put_str(r, eval_call(r, n->a, make_macro(r, n)));
        return;
    default:
        r->flow = n->kind == N_BREAK ? FLOW_BREAK : FLOW_CONTINUE;
    }
}

static void run(struct render *r, const struct node *n)
{
    r->w.line = n->line;
    if (work_enter(&r->w))
        run_inner(r, n);
    r->w.left.depth++;
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
static void set_root(struct render *r, struct value name, struct value v)
{
    const struct value *sym = dict_find(r->syntax->name, name);

    if (sym)
        r->root[sym->i] = v;
}

static void set_variable(struct render *r, const struct chat_variable *var)
{
    const struct value v =
        var->json ? value_from_json(&r->w, var->s, var->len,
                                    var->name ? var->name : "variables")
                  : value_copy(&r->w, var->s, var->len);

    if (var->name)
        set_root(r, value_view(&r->w, var->name, strlen(var->name)), v);
    else if (v.kind == V_DICT)
        for (size_t i = 0; i < v.dict->n; i++)
            set_root(r, v.dict->pair[i].key, v.dict->pair[i].value);
    else
        render_bad(r, "variables: not a JSON object; give one, like "
                      "{\"enable_thinking\": false}");
}

pl_status chat_template_render(const struct chat_template *t,
                               const struct chat_variable *var, int n_var,
                               int64_t now, const struct chat_limits *limits,
                               char **out, size_t *len, pl_err *err)
{
    struct render r = {.syntax = &t->syntax, .now = now};

    work_init(&r.w, limits, err);
    r.cap_out = 4096;
    r.out = malloc(r.cap_out);
    if (!r.out)
        work_no_memory(&r.w);
    r.root = work_alloc(&r.w, t->syntax.name->n, sizeof *r.root);
    for (int i = 0; i < n_var && r.w.status == PL_OK; i++)
        set_variable(&r, &var[i]);
    run(&r, t->syntax.root);
    render_put(&r, "", 1); /* NUL-terminates the rendered text */
    arena_fini(&r.w.arena);
    if (r.w.status == PL_OK) {
        *out = r.out;
        *len = r.n_out - 1;
        return PL_OK;
    }
    *out = NULL;
    *len = 0;
    free(r.out);
    return r.w.status;
}
