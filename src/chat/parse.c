/* Builds the syntax tree of a template from its tokens by recursive descent.
 * After a failure the parser is at the last token, so all its loops end. */
#include "chat/syntax.h"

#include "base/err.h"
#include "chat/builtin.h"

#include <stdio.h>
#include <string.h>

struct parser {
    struct work w;
    const struct token *t; /* the next token to parse */
    const struct token *end;
    struct dict name;
    /* Number of loops around the current statement within its macro. */
    int n_loop;
    /* The predefined names that the body of the current macro reads, and those
     * that it sets: bits 1 << SYM_. */
    uint8_t reads, sets;
    struct node spare; /* the node that functions return after a failure */
};

static void fail(struct parser *p, pl_status s, const char *what)
{
    p->w.line = p->t->line;
    work_fail(&p->w, s, "%s", what);
    p->t = p->end;
}

/* Fails with the message 'unexpected "TOKEN"; expected WANT', where TOKEN is
 * the next token. `want` is what the grammar allows there, such as "an
 * expression". */
static void unexpected(struct parser *p, const char *want)
{
    char shown[ERR_SHOWN], what[ERR_SHOWN + 128];
    const struct token *t = p->t;
    const char *text = t->kind == T_OPERATOR ? t->op
                       : t->kind == T_NUMBER ? "number"
                       : t->kind == T_END    ? "end of template"
                                             : NULL;
    size_t len = text ? strlen(text) : t->value.str->len;

    snprintf(what, sizeof what, "unexpected \"%s\"; expected %s",
             err_shown(shown, text ? text : t->value.str->s, len), want);
    fail(p, PL_BAD_FILE, what);
}

static void deeper(struct parser *p)
{
    if (p->w.left.depth == 0)
        fail(p, PL_BAD_FILE, "expressions or blocks nest too deeply");
    else
        p->w.left.depth--;
}

/* ---- reading tokens and making nodes ----------------------------------- */

/* Returns true if token `t` is this operator, marker or name. */
static bool token_is(const struct token *t, const char *text)
{
    return t->kind == T_NAME
               ? string_is(t->value.str, text)
               : t->kind == T_OPERATOR && strcmp(t->op, text) == 0;
}

static bool is(const struct parser *p, const char *text)
{
    return token_is(p->t, text);
}

static bool skip(struct parser *p, const char *text)
{
    bool is_next = is(p, text);

    p->t += is_next;
    return is_next;
}

static void need(struct parser *p, const char *text)
{
    char want[16];

    snprintf(want, sizeof want, "\"%s\"", text);
    if (!skip(p, text))
        unexpected(p, want);
}

static struct string *need_name(struct parser *p)
{
    if (p->t->kind == T_NAME)
        return (p->t++)->value.str;
    unexpected(p, "a name");
    return &p->w.empty;
}

static struct node *make(struct parser *p, enum node_kind kind, int line)
{
    struct node *node = work_alloc(&p->w, 1, sizeof *node);

    if (!node) {
        p->t = p->end;
        node = &p->spare;
    }
    *node = (struct node){.kind = kind, .line = line};
    return node;
}

static struct node *make_ab(struct parser *p, enum node_kind kind,
                            struct node *a, struct node *b, int line)
{
    struct node *node = make(p, kind, line);

    node->a = a;
    node->b = b;
    return node;
}

static struct node *make_const(struct parser *p, struct value v, int line)
{
    struct node *node = make(p, N_CONST, line);

    node->value = v;
    return node;
}

static void add_kid(struct parser *p, struct node *of, struct node *kid)
{
    struct node **more =
        work_extended(&p->w, of->kid, (size_t)of->n_kid, sizeof *more);

    if (!more)
        return;
    of->kid = more;
    of->kid[of->n_kid++] = kid;
}

static void add_word(struct parser *p, struct node *of, struct word word)
{
    struct word *more =
        work_extended(&p->w, of->word, (size_t)of->n_word, sizeof *more);

    if (!more)
        return;
    of->word = more;
    of->word[of->n_word++] = word;
}

static int number_of(struct parser *p, struct string *name)
{
    const struct value *there = dict_find(&p->name, value_str(name));

    if (there)
        return (int)there->i;
    dict_put(&p->w, &p->name, value_str(name), value_int((int64_t)p->name.n));
    return (int)p->name.n - 1;
}

static struct node *make_name(struct parser *p, struct string *name, int line)
{
    struct node *node = make(p, N_NAME, line);

    node->value = value_str(name);
    node->builtin = builtin_function(name);
    node->sym = number_of(p, name);
    if (node->sym < N_SYM)
        p->reads |= (uint8_t)(1 << node->sym & ~p->sets);
    return node;
}

/* ---- parsing expressions ----------------------------------------------- */

static struct node *expression(struct parser *p);
static struct node *primary(struct parser *p);
static struct node *condition(struct parser *p);
static struct node *operators(struct parser *p, int least);

static bool tuple_ends(const struct parser *p, const char *end)
{
    return is(p, "}}") || is(p, "%}") || is(p, ")") || (end && is(p, end));
}

/* Parses a comma-separated list; a single item without a comma is returned as
 * it is. `item` parses an item. `end` is the word after the list, such as "in";
 * NULL if none is expected. The list may be empty if it is in brackets. */
static struct node *tuple(struct parser *p,
                          struct node *(*item)(struct parser *p),
                          const char *end, bool in_brackets)
{
    struct node *out = make(p, N_TUPLE, p->t->line);
    bool is_tuple = false;

    while (!tuple_ends(p, end)) {
        add_kid(p, out, item(p));
        if (!skip(p, ","))
            break;
        is_tuple = true;
    }
    if (out->n_kid == 1 && !is_tuple)
        return out->kid[0];
    if (out->n_kid == 0 && !in_brackets)
        unexpected(p, "an expression");
    return out;
}

/* Parses the items of a list or of a dict, whose keys and values are items. */
static struct node *display(struct parser *p, enum node_kind kind,
                            const char *close)
{
    struct node *out = make(p, kind, p->t->line);

    p->t++;
    while (!is(p, close)) {
        add_kid(p, out, expression(p));
        if (kind == N_DICT) {
            need(p, ":");
            add_kid(p, out, expression(p));
        }
        if (!skip(p, ","))
            break;
    }
    need(p, close);
    return out;
}

/* Joins adjacent string tokens to one string, as Python does. */
static struct value strings(struct parser *p)
{
    const struct token *t = p->t;
    struct value out = t->value;
    size_t len = 0;
    char *s;

    while (p->t->kind == T_STRING)
        len += (p->t++)->value.str->len;
    if (p->t == t + 1)
        return out;
    s = work_alloc(&p->w, len, 1);
    len = 0;
    for (; s && t->kind == T_STRING; t++) {
        memcpy(s + len, t->value.str->s, t->value.str->len);
        len += t->value.str->len;
    }
    out = value_view(&p->w, s ? s : "", len);
    string_hash(out.str);
    return out;
}

static bool literal(const struct string *name, struct value *out)
{
    static const char *const names[] = {"none",  "None", "false",
                                        "False", "true", "True"};

    for (int i = 0; i < 6; i++)
        if (string_is(name, names[i])) {
            *out = i < 2 ? value_none() : value_bool(i >= 4);
            return true;
        }
    return false;
}

static struct node *primary_inner(struct parser *p)
{
    const struct token *t = p->t;
    struct value v = t->value;
    struct node *out;

    if (t->kind == T_NAME && !literal(t->value.str, &v)) {
        p->t++;
        return make_name(p, t->value.str, t->line);
    }
    if (skip(p, "(")) {
        out = tuple(p, expression, NULL, true);
        need(p, ")");
        return out;
    }
    if (is(p, "["))
        return display(p, N_LIST, "]");
    if (is(p, "{"))
        return display(p, N_DICT, "}");
    if (t->kind == T_STRING)
        v = strings(p);
    else if (t->kind == T_NUMBER || t->kind == T_NAME)
        p->t++;
    else
        unexpected(p, "an expression");
    return make_const(p, v, t->line);
}

static struct node *primary(struct parser *p)
{
    struct node *out;

    deeper(p);
    out = primary_inner(p);
    p->w.left.depth++;
    return out;
}

/* Parses one argument of a call: *list, **dict, name=value, or value. */
static void argument(struct parser *p, struct node *node)
{
    bool named = p->t->kind == T_NAME && token_is(&p->t[1], "=");

    if (node->c || (node->b && !named && !is(p, "**"))) {
        unexpected(p, "no further argument");
    } else if (skip(p, "*")) {
        node->b = expression(p);
    } else if (skip(p, "**")) {
        node->c = expression(p);
    } else if (named) {
        struct word w = {.name = p->t->value.str};

        p->t += 2;
        w.value = expression(p);
        add_word(p, node, w);
    } else if (node->n_word > 0) {
        unexpected(p, "positional arguments before keyword arguments");
    } else {
        add_kid(p, node, expression(p));
    }
}

/* Parses the arguments in brackets that follow a function, filter or test. */
static void arguments(struct parser *p, struct node *node)
{
    need(p, "(");
    while (!is(p, ")")) {
        argument(p, node);
        if (!skip(p, ","))
            break;
    }
    if (node->n_kid + node->n_word > BUILTIN_MAX_ARG)
        fail(p, PL_UNSUPPORTED, "too many arguments");
    need(p, ")");
}

static struct node *call(struct parser *p, struct node *of)
{
    struct node *out = make_ab(p, N_CALL, of, NULL, p->t->line);

    arguments(p, out);
    return out;
}

/* Parses the rest of a slice, first:end:step, after its first expression, which
 * is NULL if it is absent. */
static struct node *slice(struct parser *p, struct node *of, struct node *first)
{
    struct node *out = make_ab(p, N_SLICE, of, NULL, p->t->line);

    add_kid(p, out, first);
    for (int i = 1; i < 3; i++) {
        const bool there = i == 1 || is(p, ":");

        if (there)
            need(p, ":");
        add_kid(p, out,
                there && !is(p, ":") && !is(p, "]") && !is(p, ",")
                    ? expression(p)
                    : NULL);
    }
    return out;
}

static struct node *subscript(struct parser *p, struct node *of)
{
    const struct token *t = p->t;
    struct node *index = NULL, *out;

    if (skip(p, ".")) {
        const struct value v = p->t->value;
        const bool name = p->t->kind == T_NAME;

        if (!name && !(p->t->kind == T_NUMBER && v.kind == V_INT)) {
            unexpected(p, "a name or a number");
            return of;
        }
        p->t++;
        if (!name)
            return make_ab(p, N_ITEM, of, make_const(p, v, t->line), t->line);
        out = make_ab(p, N_ATTRIBUTE, of, NULL, t->line);
        out->value = v;
        return out;
    }
    p->t++;
    if (is(p, "]"))
        unexpected(p, "an index");
    if (!is(p, ":"))
        index = expression(p);
    out = is(p, ":") ? slice(p, of, index)
                     : make_ab(p, N_ITEM, of, index, t->line);
    need(p, "]");
    return out;
}

static struct node *postfix(struct parser *p, struct node *node)
{
    for (;;) {
        if (is(p, ".") || is(p, "["))
            node = subscript(p, node);
        else if (is(p, "("))
            node = call(p, node);
        else
            return node;
    }
}

/* Parses the name of a filter or test, and the arguments in brackets that may
 * follow it. */
static struct node *named(struct parser *p, enum node_kind kind, struct node *a)
{
    struct node *out = make_ab(p, kind, a, NULL, p->t->line);
    struct string *name = need_name(p);

    out->value = value_str(name);
    out->builtin = kind == N_FILTER ? builtin_filter(name) : builtin_test(name);
    /* A name with dots is valid, but no builtin has such a name. */
    while (skip(p, ".")) {
        out->builtin = NULL;
        need_name(p);
    }
    if (is(p, "("))
        arguments(p, out);
    return out;
}

static struct node *test(struct parser *p, struct node *of)
{
    const int line = (p->t++)->line; /* skips the word "is" */
    const bool negated = skip(p, "not");
    struct node *out = named(p, N_TEST, of);
    const struct token *t = p->t;

    if (p->w.status == PL_OK && t[-1].kind == T_NAME &&
        (t->kind == T_NAME || t->kind == T_STRING || t->kind == T_NUMBER ||
         is(p, "[") || is(p, "{")) &&
        !is(p, "else") && !is(p, "or") && !is(p, "and")) {
        if (is(p, "is"))
            fail(p, PL_BAD_FILE, "tests cannot be chained with \"is\"");
        add_kid(p, out, postfix(p, primary(p)));
    }
    return negated ? make_ab(p, N_NOT, out, NULL, line) : out;
}

static struct node *filters(struct parser *p, struct node *node)
{
    for (;;) {
        if (skip(p, "|"))
            node = named(p, N_FILTER, node);
        else if (is(p, "is"))
            node = test(p, node);
        else if (is(p, "("))
            node = call(p, node);
        else
            return node;
    }
}

static struct node *unary(struct parser *p, bool with_filters)
{
    const int line = p->t->line;
    const bool minus = is(p, "-");
    struct node *out;

    deeper(p);
    if (minus || is(p, "+")) {
        p->t++;
        out = unary(p, false);
        out = make_ab(p, minus ? N_NEGATE : N_PLUS, out, NULL, line);
    } else {
        out = primary(p);
    }
    out = postfix(p, out);
    if (with_filters)
        out = filters(p, out);
    p->w.left.depth++;
    return out;
}

/* The binary operators. One of a higher level binds tighter; those of a level
 * are left-associative. LEVEL_NOT is the level of the prefix operator "not". */
enum {
    LEVEL_OR,
    LEVEL_AND,
    LEVEL_NOT,
    LEVEL_COMPARE,
    LEVEL_SUM,
    LEVEL_JOIN,
    LEVEL_PRODUCT,
    LEVEL_POWER
};

static const struct binary {
    const char *op;
    int level;
    enum node_kind kind;
    enum comparison is;
} binaries[] = {
    {"or", LEVEL_OR, N_OR, 0},
    {"and", LEVEL_AND, N_AND, 0},
    {"==", LEVEL_COMPARE, N_COMPARE, IS_EQ},
    {"!=", LEVEL_COMPARE, N_COMPARE, IS_NE},
    {"<", LEVEL_COMPARE, N_COMPARE, IS_LT},
    {"<=", LEVEL_COMPARE, N_COMPARE, IS_LE},
    {">", LEVEL_COMPARE, N_COMPARE, IS_GT},
    {">=", LEVEL_COMPARE, N_COMPARE, IS_GE},
    {"in", LEVEL_COMPARE, N_COMPARE, IS_IN},
    {"not", LEVEL_COMPARE, N_COMPARE, IS_NOT_IN}, /* before "in" */
    {"+", LEVEL_SUM, N_ADD, 0},
    {"-", LEVEL_SUM, N_SUBTRACT, 0},
    {"~", LEVEL_JOIN, N_JOIN, 0},
    {"*", LEVEL_PRODUCT, N_MULTIPLY, 0},
    {"/", LEVEL_PRODUCT, N_DIVIDE, 0},
    {"//", LEVEL_PRODUCT, N_DIVIDE_DOWN, 0},
    {"%", LEVEL_PRODUCT, N_REMAINDER, 0},
    {"**", LEVEL_POWER, N_POWER, 0},
};

/* Returns the binary operator at the next token; NULL if there is none. */
static const struct binary *operator_at(const struct parser *p)
{
    for (size_t i = 0; i < sizeof binaries / sizeof binaries[0]; i++) {
        const struct binary *row = &binaries[i];

        if (is(p, row->op) &&
            (row->is != IS_NOT_IN || token_is(&p->t[1], "in")))
            return row;
    }
    return NULL;
}

/* Parses operands and the operators of the level `least` and higher ones
 * between them. */
static struct node *operators(struct parser *p, int least)
{
    int line = p->t->line;
    const struct binary *row;
    struct node *out, *chain = NULL;

    if (least <= LEVEL_NOT && skip(p, "not")) {
        deeper(p);
        out = make_ab(p, N_NOT, operators(p, LEVEL_NOT), NULL, line);
        p->w.left.depth++;
    } else {
        out = unary(p, true);
    }
    while ((row = operator_at(p)) && row->level >= least) {
        struct node *right;

        line = p->t->line;
        p->t += row->is == IS_NOT_IN ? 2 : 1;
        right = operators(p, row->level + 1);
        /* a < b < c and a ~ b ~ c are one node each. */
        if (!chain || chain != out || chain->kind != row->kind)
            out = make_ab(p, row->kind, out, right, line);
        if (row->kind != N_COMPARE && row->kind != N_JOIN)
            continue;
        out->b = NULL;
        chain = out;
        add_word(p, chain, (struct word){.sym = row->is, .value = right});
    }
    return out;
}

/* Parses any expression but "a if b else c". */
static struct node *condition(struct parser *p)
{
    return operators(p, LEVEL_OR);
}

static struct node *expression(struct parser *p)
{
    struct node *out;

    deeper(p);
    out = condition(p);
    while (is(p, "if")) {
        int line = (p->t++)->line;
        struct node *when = condition(p);
        struct node *other = skip(p, "else") ? expression(p) : NULL;

        out = make_ab(p, N_CONDITIONAL, out, when, line);
        out->c = other;
    }
    p->w.left.depth++;
    return out;
}

/* ---- parsing statements ------------------------------------------------ */

/* Parses statements and text up to a tag that begins with one of the words in
 * `ends`, which ends with NULL. This word is then the next token. */
static struct node *block(struct parser *p, const char *const *ends);

static bool is_any(const struct parser *p, const char *const *names)
{
    for (; *names; names++)
        if (is(p, *names))
            return true;
    return false;
}

/* Parses the rest of an opening tag and the statements after it, up to a tag
 * with one of the words in `ends`. */
static struct node *open_body(struct parser *p, const char *const *ends)
{
    skip(p, ":");
    need(p, "%}");
    return block(p, ends);
}

/* Skips the word that ends a block, and the rest of its tag. */
static void close_body(struct parser *p)
{
    if (p->w.status == PL_OK)
        p->t++;
    need(p, "%}");
}

/* As open_body, and parses the tag with the word `end`. */
static struct node *body(struct parser *p, const char *end)
{
    const char *const ends[] = {end, NULL};
    struct node *out = open_body(p, ends);

    close_body(p);
    return out;
}

/* Fails if `t` is not an expression to which a template can assign a value. */
static void check_target(struct parser *p, const struct node *t,
                         bool attributes)
{
    if (p->w.status != PL_OK || t->kind == N_NAME ||
        (attributes && t->kind == N_ATTRIBUTE))
        return;
    if (t->kind != N_TUPLE)
        fail(p, PL_BAD_FILE, "this expression cannot be assigned to");
    for (int i = 0; i < t->n_kid && t->kind == N_TUPLE; i++)
        check_target(p, t->kid[i], attributes);
}

/* Records that the body of the current macro sets the name `sym`. If this is a
 * predefined name, such as "kwargs", it is no longer an implicit argument of
 * the macro from there on. */
static void sets_name(struct parser *p, int sym)
{
    if (sym < N_SYM)
        p->sets |= (uint8_t)(1 << sym);
}

/* Parses the target of an assignment: names, attributes of names if
 * `attributes`, and tuples of these. `end` is the word that follows the target;
 * NULL if none. */
static struct node *target(struct parser *p, const char *end, bool attributes)
{
    struct node *out = make(p, N_TUPLE, p->t->line);
    bool is_tuple = false;
    uint8_t reads = p->reads;

    while (!tuple_ends(p, end)) {
        struct node *node = primary(p);

        if (attributes && node->kind == N_NAME && is(p, "."))
            node = subscript(p, node);
        check_target(p, node, attributes);
        add_kid(p, out, node);
        if (node->kind == N_NAME)
            sets_name(p, node->sym);
        if (!skip(p, ","))
            break;
        is_tuple = true;
    }
    p->reads = reads;
    if (out->n_kid == 0)
        unexpected(p, "a name");
    return out->n_kid > 0 && !is_tuple ? out->kid[0] : out;
}

static void if_statement(struct parser *p, struct node *out)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL};

    do {
        add_kid(p, out, tuple(p, condition, NULL, false));
        add_kid(p, out, open_body(p, ends));
    } while (skip(p, "elif"));
    if (skip(p, "else"))
        out->a = body(p, "endif");
    else
        close_body(p);
}

static void for_statement(struct parser *p, struct node *out)
{
    static const char *const ends[] = {"else", "endfor", NULL};

    out->a = target(p, "in", false);
    need(p, "in");
    out->b = tuple(p, condition, "recursive", false);
    if (skip(p, "if"))
        out->c = expression(p);
    out->flags = skip(p, "recursive");
    p->n_loop++;
    add_kid(p, out, open_body(p, ends));
    p->n_loop--;
    if (skip(p, "else"))
        add_kid(p, out, body(p, "endfor"));
    else
        close_body(p);
}

/* Parses the filters that apply to the text of a block: "| a | b" after "set
 * x". `started`: the first "|" is left out, as after the word "filter". */
static struct node *block_filters(struct parser *p, bool started)
{
    struct node *out = NULL;

    if (started || is(p, "|"))
        out = make(p, N_HOLE, p->t->line);
    while (started || skip(p, "|")) {
        started = false;
        out = named(p, N_FILTER, out);
    }
    return out;
}

static void set_statement(struct parser *p, struct node *out)
{
    out->a = target(p, NULL, true);
    if (skip(p, "=")) {
        out->b = tuple(p, expression, NULL, false);
        need(p, "%}");
        return;
    }
    out->kind = N_SET_BLOCK;
    out->b = block_filters(p, false);
    add_kid(p, out, body(p, "endset"));
}

static void filter_statement(struct parser *p, struct node *out)
{
    out->b = block_filters(p, true);
    add_kid(p, out, body(p, "endfilter"));
}

static void with_statement(struct parser *p, struct node *out)
{
    add_kid(p, out, NULL);
    while (!is(p, "%}")) {
        add_kid(p, out, target(p, NULL, false));
        need(p, "=");
        add_kid(p, out, expression(p));
        if (!skip(p, ","))
            break;
    }
    if (out->n_kid > 0)
        out->kid[0] = body(p, "endwith");
}

static void generation_statement(struct parser *p, struct node *out)
{
    add_kid(p, out, body(p, "endgeneration"));
}

/* Parses the parameters of a macro, which are in brackets. */
static void signature(struct parser *p, struct node *out)
{
    need(p, "(");
    while (!is(p, ")")) {
        struct word w = {.name = need_name(p)};

        w.sym = number_of(p, w.name);
        if (skip(p, "="))
            w.value = expression(p);
        else if (out->n_word > 0 && out->word[out->n_word - 1].value)
            fail(p, PL_BAD_FILE,
                 "a parameter without a default follows one with a default");
        add_word(p, out, w);
        if (!skip(p, ","))
            break;
    }
    need(p, ")");
}

/* Parses the body of a macro. Records in out->flags which implicit arguments,
 * such as "kwargs", the body reads. */
static void macro_body(struct parser *p, const char *end, struct node *out)
{
    const int n_loop = p->n_loop;
    const uint8_t reads = p->reads, sets = p->sets;

    p->n_loop = 0;
    p->reads = p->sets = 0;
    add_kid(p, out, body(p, end));
    out->flags = p->reads;
    p->n_loop = n_loop;
    p->sets |= sets;
    for (int i = 0; i < out->n_word; i++) {
        int sym = out->word[i].sym;

        if (sym == SYM_CALLER && p->reads & 1 << sym && !out->word[i].value)
            fail(p, PL_BAD_FILE, "the parameter \"caller\" needs a default");
        if (sym < N_SYM)
            out->flags &= (uint8_t) ~(1 << sym);
        sets_name(p, sym);
    }
    p->reads = (uint8_t)(reads | (out->flags & ~sets));
}

static void macro_statement(struct parser *p, struct node *out)
{
    struct string *name = need_name(p);

    out->value = value_str(name);
    out->sym = number_of(p, name);
    signature(p, out);
    macro_body(p, "endmacro", out);
}

static void call_statement(struct parser *p, struct node *out)
{
    out->value = p->name.pair[SYM_CALLER].key;
    if (is(p, "("))
        signature(p, out);
    out->a = expression(p);
    if (out->a->kind != N_CALL)
        fail(p, PL_BAD_FILE, "\"call\" must be followed by a call of a macro");
    macro_body(p, "endcall", out);
}

static void print_statement(struct parser *p, struct node *out)
{
    while (!is(p, "%}") && p->t->kind != T_END) {
        int line = p->t->line;

        if (out->n_kid > 0)
            need(p, ",");
        add_kid(p, out, make_ab(p, N_PRINT, expression(p), NULL, line));
    }
    need(p, "%}");
}

static void loop_statement(struct parser *p, struct node *out)
{
    (void)out;
    if (p->n_loop == 0)
        fail(p, PL_BAD_FILE, "break or continue outside a loop");
    need(p, "%}");
}

/* The tags of the template language, by their first word. */
static const struct tag {
    const char *name;
    enum node_kind kind;
    /* Parses the rest of the tag after its first word, and the statement that
     * it begins. */
    void (*parse)(struct parser *p, struct node *out);
} tags[] = {
    {"if", N_IF, if_statement},
    {"for", N_FOR, for_statement},
    {"set", N_SET, set_statement},
    {"macro", N_MACRO, macro_statement},
    {"call", N_CALL_BLOCK, call_statement},
    {"print", N_BLOCK, print_statement},
    {"filter", N_FILTERED, filter_statement},
    {"with", N_SCOPE, with_statement},
    {"generation", N_SCOPE, generation_statement},
    {"break", N_BREAK, loop_statement},
    {"continue", N_CONTINUE, loop_statement},
};

static struct node *statement(struct parser *p)
{
    static const char *const refused[] = {
        "block", "extends", "import", "from", "include", "autoescape", NULL};
    const struct token *t = p->t;
    struct node *out = &p->spare;
    char what[64];

    for (size_t i = 0; i < sizeof tags / sizeof tags[0]; i++)
        if (skip(p, tags[i].name)) {
            out = make(p, tags[i].kind, t->line);
            tags[i].parse(p, out);
            return out;
        }
    if (is_any(p, refused)) {
        snprintf(what, sizeof what, "the tag \"%.*s\" is not supported",
                 (int)t->value.str->len, t->value.str->s);
        fail(p, PL_UNSUPPORTED, what);
    }
    unexpected(p, "a tag");
    return out;
}

static struct node *print(struct parser *p)
{
    int line = (p->t++)->line;
    struct node *a = tuple(p, expression, NULL, false);

    need(p, "}}");
    return make_ab(p, N_PRINT, a, NULL, line);
}

static struct node *block(struct parser *p, const char *const *ends)
{
    struct node *out;
    char what[64];

    deeper(p);
    out = make(p, N_BLOCK, p->t->line);
    while (p->t->kind != T_END) {
        struct node *node;

        if (p->t->kind == T_DATA) {
            node = make(p, N_DATA, p->t->line);
            node->value = p->t->value;
            p->t += p->t->kind == T_DATA;
        } else if (is(p, "{{")) {
            node = print(p);
        } else {
            p->t++; /* skips the token "{%" */
            if (is_any(p, ends))
                break;
            node = statement(p);
        }
        add_kid(p, out, node);
    }
    p->w.left.depth++;
    if (p->t->kind != T_END || !*ends)
        return out;
    while (ends[1])
        ends++;
    snprintf(what, sizeof what, "the template ends; expected \"%s\"", *ends);
    fail(p, PL_BAD_FILE, what);
    return out;
}

pl_status parse_template(struct arena *a, const char *text, size_t len,
                         struct syntax *out, pl_err *err)
{
    static const struct chat_limits limits = {.steps = UINT64_MAX,
                                              .depth = SYNTAX_MAX_DEPTH,
                                              .memory_bytes = SIZE_MAX};
    static const char *const nothing[] = {NULL};
    static const char *const first[N_SYM] = {[SYM_LOOP] = "loop",
                                             [SYM_CALLER] = "caller",
                                             [SYM_KWARGS] = "kwargs",
                                             [SYM_VARARGS] = "varargs"};
    struct parser p = {0};

    work_init(&p.w, &limits, err);
    p.t = p.end = lex_template(&p.w, text, len);
    if (p.t) {
        while (p.end->kind != T_END)
            p.end++;
        for (int i = 0; i < N_SYM; i++) {
            struct value name = value_view(&p.w, first[i], strlen(first[i]));

            string_hash(name.str);
            number_of(&p, name.str); /* which is i */
        }
        if (p.w.status == PL_OK)
            out->root = block(&p, nothing);
        out->name = work_alloc(&p.w, 1, sizeof *out->name);
        if (out->name)
            *out->name = p.name;
    }
    *a = p.w.arena;
    return p.w.status;
}
