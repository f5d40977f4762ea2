/* Builds the syntax tree of a template from its tokens by recursive descent.
 * There is one function for each level of precedence of the operators, in the
 * order of the grammar. */
#include "chat/syntax.h"

#include "base/err.h"
#include "chat/builtin.h"

#include <stdio.h>
#include <string.h>

/* Maximum number of operands in a chain of comparisons, a < b < c. */
enum { MAX_COMPARED = 16 };

struct parser {
    struct arena *arena;
    const struct token *t; /* the next token to parse */
    struct dict *name;
    int depth_left;
    /* Number of loops around the current statement within its macro. */
    int n_loop;
    /* The predefined names that the body of the current macro reads, and those
     * that it sets: bits 1 << SYM_. */
    uint8_t reads, sets;
    pl_err *err;
};

/* The child nodes of a node of the syntax tree, while they are being
 * collected. */
struct kids {
    struct node **node;
    int n, cap;
};

static pl_status fail(struct parser *p, pl_status s, const char *what)
{
    return err_set(p->err, s, "template line %d: %s", p->t->line, what);
}

static pl_status no_memory(struct parser *p)
{
    return err_no_memory(p->err, "a chat template");
}

/* Fails with the message 'unexpected "TOKEN"; expected WANT', where TOKEN is
 * the next token. `want` is what the grammar allows there, such as "an
 * expression". */
static pl_status unexpected(struct parser *p, const char *want)
{
    char shown[ERR_SHOWN];
    const struct token *t = p->t;
    const char *text = t->op;
    size_t len = strlen(t->op);

    if (t->kind == T_NAME || t->kind == T_STRING || t->kind == T_DATA) {
        text = t->value.str->s;
        len = t->value.str->len;
    } else if (t->kind != T_OPERATOR) {
        text = t->kind == T_END         ? "end of template"
               : t->kind == T_NUMBER    ? "number"
               : t->kind == T_PRINT_END ? "}}"
               : t->kind == T_BLOCK_END ? "%}"
                                        : "tag";
        len = strlen(text);
    }
    return err_set(p->err, PL_BAD_FILE,
                   "template line %d: unexpected \"%s\"; expected %s", t->line,
                   err_shown(shown, text, len), want);
}

static pl_status deeper(struct parser *p)
{
    if (p->depth_left == 0)
        return fail(p, PL_BAD_FILE, "expressions or blocks nest too deeply");
    p->depth_left--;
    return PL_OK;
}

/* ---- reading tokens and making nodes ----------------------------------- */

static bool is_op(const struct parser *p, const char *op)
{
    return p->t->kind == T_OPERATOR && strcmp(p->t->op, op) == 0;
}

static bool is_name(const struct parser *p, const char *name)
{
    return p->t->kind == T_NAME && string_is(p->t->value.str, name);
}

static bool skip_op(struct parser *p, const char *op)
{
    bool is = is_op(p, op);

    p->t += is;
    return is;
}

static bool skip_name(struct parser *p, const char *name)
{
    bool is = is_name(p, name);

    p->t += is;
    return is;
}

static pl_status need_op(struct parser *p, const char *op)
{
    char want[16];

    if (skip_op(p, op))
        return PL_OK;
    snprintf(want, sizeof want, "\"%s\"", op);
    return unexpected(p, want);
}

static pl_status need_name(struct parser *p, struct string **out)
{
    *out = NULL;
    if (p->t->kind != T_NAME)
        return unexpected(p, "a name");
    *out = (p->t++)->value.str;
    return PL_OK;
}

static pl_status need_block_end(struct parser *p)
{
    if (p->t->kind != T_BLOCK_END)
        return unexpected(p, "\"%}\"");
    p->t++;
    return PL_OK;
}

static pl_status make(struct parser *p, enum node_kind kind, int line,
                      struct node **out)
{
    *out = arena_alloc(p->arena, 1, sizeof **out);
    if (!*out)
        return no_memory(p);
    (*out)->kind = kind;
    (*out)->line = line;
    return PL_OK;
}

static pl_status make_ab(struct parser *p, enum node_kind kind, struct node *a,
                         struct node *b, int line, struct node **out)
{
    PL_TRY(make(p, kind, line, out));
    (*out)->a = a;
    (*out)->b = b;
    return PL_OK;
}

static pl_status add_kid(struct parser *p, struct kids *k, struct node *node)
{
    if (k->n == k->cap) {
        int cap = k->cap > 0 ? 2 * k->cap : 4;
        struct node **more = arena_alloc(p->arena, (size_t)cap, sizeof *more);

        if (!more)
            return no_memory(p);
        if (k->n > 0)
            memcpy(more, k->node, (size_t)k->n * sizeof *more);
        k->node = more;
        k->cap = cap;
    }
    k->node[k->n++] = node;
    return PL_OK;
}

static void take_kids(struct node *node, const struct kids *k)
{
    node->kid = k->node;
    node->n_kid = k->n;
}

static pl_status number_of(struct parser *p, struct string *name, int *sym)
{
    struct value *there = dict_find(p->name, value_str(name));

    if (there) {
        *sym = (int)there->i;
        return PL_OK;
    }
    *sym = (int)p->name->n;
    return dict_put(p->arena, p->name, value_str(name), value_int(*sym))
               ? PL_OK
               : no_memory(p);
}

static pl_status make_name(struct parser *p, struct string *name, int line,
                           struct node **out)
{
    PL_TRY(make(p, N_NAME, line, out));
    (*out)->value = value_str(name);
    (*out)->builtin = builtin_function(name);
    PL_TRY(number_of(p, name, &(*out)->sym));
    if ((*out)->sym < N_SYM)
        p->reads |= (uint8_t)(1 << (*out)->sym & ~p->sets);
    return PL_OK;
}

/* ---- parsing expressions ----------------------------------------------- */

static pl_status expression(struct parser *p, struct node **out);
static pl_status primary(struct parser *p, struct node **out);
static pl_status unary(struct parser *p, bool filters, struct node **out);

/* The variants of a comma-separated list without brackets that the grammar
 * allows at some place. */
struct tuple_form {
    bool simple;    /* items are only names and literals */
    bool condition; /* items may be conditional expressions, "a if b else c" */
    bool may_empty; /* the list may be empty, because it is in brackets */
    /* The word after the list, such as "in"; NULL if none is expected. */
    const char *end;
};

static pl_status disjunction(struct parser *p, struct node **out);

static bool tuple_ends(const struct parser *p, const struct tuple_form *f)
{
    return p->t->kind == T_PRINT_END || p->t->kind == T_BLOCK_END ||
           is_op(p, ")") || (f->end && is_name(p, f->end));
}

static pl_status tuple(struct parser *p, struct tuple_form f, struct node **out)
{
    struct kids k = {0};
    int line = p->t->line;
    bool is_tuple = false;

    while (!tuple_ends(p, &f)) {
        struct node *node;

        if (f.simple)
            PL_TRY(primary(p, &node));
        else if (f.condition)
            PL_TRY(expression(p, &node));
        else
            PL_TRY(disjunction(p, &node));
        PL_TRY(add_kid(p, &k, node));
        if (!skip_op(p, ","))
            break;
        is_tuple = true;
    }
    if (k.n == 1 && !is_tuple) {
        *out = k.node[0];
        return PL_OK;
    }
    if (k.n == 0 && !f.may_empty)
        return unexpected(p, "an expression");
    PL_TRY(make(p, N_TUPLE, line, out));
    take_kids(*out, &k);
    return PL_OK;
}

static pl_status whole_tuple(struct parser *p, struct node **out)
{
    return tuple(p, (struct tuple_form){.condition = true}, out);
}

static pl_status list(struct parser *p, struct node **out)
{
    struct kids k = {0};
    int line = p->t->line;

    p->t++;
    while (!is_op(p, "]")) {
        struct node *node;

        PL_TRY(expression(p, &node));
        PL_TRY(add_kid(p, &k, node));
        if (!skip_op(p, ","))
            break;
    }
    PL_TRY(need_op(p, "]"));
    PL_TRY(make(p, N_LIST, line, out));
    take_kids(*out, &k);
    return PL_OK;
}

static pl_status dict(struct parser *p, struct node **out)
{
    struct kids k = {0};
    int line = p->t->line;

    p->t++;
    while (!is_op(p, "}")) {
        struct node *node;

        PL_TRY(expression(p, &node));
        PL_TRY(add_kid(p, &k, node));
        PL_TRY(need_op(p, ":"));
        PL_TRY(expression(p, &node));
        PL_TRY(add_kid(p, &k, node));
        if (!skip_op(p, ","))
            break;
    }
    PL_TRY(need_op(p, "}"));
    PL_TRY(make(p, N_DICT, line, out));
    take_kids(*out, &k);
    return PL_OK;
}

/* Joins adjacent string tokens to one string, as Python does. */
static pl_status strings(struct parser *p, struct value *out)
{
    struct string *first = p->t->value.str;
    size_t len = 0;
    const struct token *t = p->t;
    char *s;

    *out = value_str(first);
    if (t[1].kind != T_STRING) {
        p->t++;
        return PL_OK;
    }
    for (; t->kind == T_STRING; t++)
        len += t->value.str->len;
    s = arena_alloc(p->arena, len, 1);
    if (!s)
        return no_memory(p);
    len = 0;
    for (; p->t->kind == T_STRING; p->t++) {
        memcpy(s + len, p->t->value.str->s, p->t->value.str->len);
        len += p->t->value.str->len;
    }
    out->str = string_view(p->arena, s, len);
    if (!out->str)
        return no_memory(p);
    string_hash(out->str);
    return PL_OK;
}

static bool literal(const struct string *name, struct value *out)
{
    if (string_is(name, "true") || string_is(name, "True"))
        *out = value_bool(true);
    else if (string_is(name, "false") || string_is(name, "False"))
        *out = value_bool(false);
    else if (string_is(name, "none") || string_is(name, "None"))
        *out = value_none();
    else
        return false;
    return true;
}

static pl_status primary_inner(struct parser *p, struct node **out)
{
    const struct token *t = p->t;
    struct value v = t->value;

    if (t->kind == T_NAME && !literal(t->value.str, &v)) {
        p->t++;
        return make_name(p, t->value.str, t->line, out);
    }
    if (is_op(p, "(")) {
        p->t++;
        PL_TRY(tuple(
            p, (struct tuple_form){.condition = true, .may_empty = true}, out));
        return need_op(p, ")");
    }
    if (is_op(p, "["))
        return list(p, out);
    if (is_op(p, "{"))
        return dict(p, out);
    if (t->kind == T_STRING)
        PL_TRY(strings(p, &v));
    else if (t->kind == T_NUMBER || t->kind == T_NAME)
        p->t++;
    else
        return unexpected(p, "an expression");
    PL_TRY(make(p, N_CONST, t->line, out));
    (*out)->value = v;
    return PL_OK;
}

static pl_status primary(struct parser *p, struct node **out)
{
    PL_TRY(deeper(p));
    PL_TRY(primary_inner(p, out));
    p->depth_left++;
    return PL_OK;
}

static pl_status add_word(struct parser *p, struct node *node, struct word word)
{
    /* The array is full when n_word is 0 or a power of 2; then it is
     * doubled. */
    if ((node->n_word & (node->n_word - 1)) == 0) {
        size_t cap = node->n_word > 0 ? 2 * (size_t)node->n_word : 1;
        struct word *more = arena_alloc(p->arena, cap, sizeof *more);

        if (!more)
            return no_memory(p);
        if (node->n_word > 0)
            memcpy(more, node->word, (size_t)node->n_word * sizeof *more);
        node->word = more;
    }
    node->word[node->n_word++] = word;
    return PL_OK;
}

/* Parses one argument of a call: *list, **dict, name=value, or value. */
static pl_status argument(struct parser *p, struct node *node, struct kids *k)
{
    bool named = p->t->kind == T_NAME && p->t[1].kind == T_OPERATOR &&
                 strcmp(p->t[1].op, "=") == 0;
    struct node *value;

    if (node->c || (node->b && !named && !is_op(p, "**")))
        return unexpected(p, "no further argument");
    if (skip_op(p, "*"))
        return expression(p, &node->b);
    if (skip_op(p, "**"))
        return expression(p, &node->c);
    if (named) {
        struct word w = {.name = p->t->value.str};

        p->t += 2;
        PL_TRY(expression(p, &w.value));
        return add_word(p, node, w);
    }
    if (node->n_word > 0)
        return unexpected(p, "positional arguments before keyword arguments");
    PL_TRY(expression(p, &value));
    return add_kid(p, k, value);
}

/* Parses the arguments in brackets that follow a function, filter or test. */
static pl_status arguments(struct parser *p, struct node *node)
{
    struct kids k = {0};

    PL_TRY(need_op(p, "("));
    while (!is_op(p, ")")) {
        PL_TRY(argument(p, node, &k));
        if (!skip_op(p, ","))
            break;
    }
    if (k.n + node->n_word > BUILTIN_MAX_ARG)
        return fail(p, PL_UNSUPPORTED, "too many arguments");
    take_kids(node, &k);
    return need_op(p, ")");
}

static pl_status call(struct parser *p, struct node **node)
{
    struct node *c;

    PL_TRY(make_ab(p, N_CALL, *node, NULL, p->t->line, &c));
    *node = c;
    return arguments(p, c);
}

/* Parses one of the three expressions of a slice, first:end:step. Sets *out to
 * NULL if it is absent. */
static pl_status slice_part(struct parser *p, struct node **out)
{
    *out = NULL;
    if (is_op(p, ":") || is_op(p, "]") || is_op(p, ","))
        return PL_OK;
    return expression(p, out);
}

static pl_status slice(struct parser *p, struct node *of, struct node *first,
                       struct node **out)
{
    struct kids k = {0};
    struct node *part;

    PL_TRY(make_ab(p, N_SLICE, of, NULL, p->t->line, out));
    PL_TRY(need_op(p, ":"));
    PL_TRY(add_kid(p, &k, first));
    PL_TRY(slice_part(p, &part));
    PL_TRY(add_kid(p, &k, part));
    part = NULL;
    if (skip_op(p, ":"))
        PL_TRY(slice_part(p, &part));
    PL_TRY(add_kid(p, &k, part));
    take_kids(*out, &k);
    return PL_OK;
}

static pl_status subscript(struct parser *p, struct node **node)
{
    struct node *of = *node, *index = NULL;
    int line = p->t->line;

    if (skip_op(p, ".")) {
        struct value v = p->t->value;
        bool name = p->t->kind == T_NAME;

        if (!name && !(p->t->kind == T_NUMBER && v.kind == V_INT))
            return unexpected(p, "a name or a number");
        p->t++;
        if (name) {
            PL_TRY(make_ab(p, N_ATTRIBUTE, of, NULL, line, node));
            (*node)->value = v;
            return PL_OK;
        }
        PL_TRY(make(p, N_CONST, line, &index));
        index->value = v;
        return make_ab(p, N_ITEM, of, index, line, node);
    }
    p->t++;
    if (is_op(p, "]"))
        return unexpected(p, "an index");
    if (!is_op(p, ":"))
        PL_TRY(expression(p, &index));
    if (is_op(p, ":"))
        PL_TRY(slice(p, of, index, node));
    else
        PL_TRY(make_ab(p, N_ITEM, of, index, line, node));
    return need_op(p, "]");
}

static pl_status postfix(struct parser *p, struct node **node)
{
    for (;;) {
        if (is_op(p, ".") || is_op(p, "["))
            PL_TRY(subscript(p, node));
        else if (is_op(p, "("))
            PL_TRY(call(p, node));
        else
            return PL_OK;
    }
}

/* Parses the name of a filter or test, and the arguments in brackets that may
 * follow it. */
static pl_status named(struct parser *p, enum node_kind kind, struct node *a,
                       struct node **out)
{
    struct string *name;
    int line = p->t->line;

    PL_TRY(need_name(p, &name));
    PL_TRY(make_ab(p, kind, a, NULL, line, out));
    (*out)->value = value_str(name);
    (*out)->builtin =
        kind == N_FILTER ? builtin_filter(name) : builtin_test(name);
    /* A name with dots is valid, but no builtin has such a name. */
    while (skip_op(p, ".")) {
        (*out)->builtin = NULL;
        PL_TRY(need_name(p, &name));
    }
    return is_op(p, "(") ? arguments(p, *out) : PL_OK;
}

static pl_status test(struct parser *p, struct node **node)
{
    bool negated;
    const struct token *t;
    int line = p->t->line;

    p->t++; /* skips the word "is" */
    negated = skip_name(p, "not");
    PL_TRY(named(p, N_TEST, *node, node));
    t = p->t;
    if (t[-1].kind == T_NAME &&
        (t->kind == T_NAME || t->kind == T_STRING || t->kind == T_NUMBER ||
         is_op(p, "[") || is_op(p, "{")) &&
        !is_name(p, "else") && !is_name(p, "or") && !is_name(p, "and")) {
        struct kids k = {0};
        struct node *arg;

        if (is_name(p, "is"))
            return fail(p, PL_BAD_FILE, "tests cannot be chained with \"is\"");
        PL_TRY(primary(p, &arg));
        PL_TRY(postfix(p, &arg));
        PL_TRY(add_kid(p, &k, arg));
        take_kids(*node, &k);
    }
    return negated ? make_ab(p, N_NOT, *node, NULL, line, node) : PL_OK;
}

static pl_status filters(struct parser *p, struct node **node)
{
    for (;;) {
        if (skip_op(p, "|"))
            PL_TRY(named(p, N_FILTER, *node, node));
        else if (is_name(p, "is"))
            PL_TRY(test(p, node));
        else if (is_op(p, "("))
            PL_TRY(call(p, node));
        else
            return PL_OK;
    }
}

static pl_status unary(struct parser *p, bool with_filters, struct node **out)
{
    int line = p->t->line;
    bool minus = is_op(p, "-");

    PL_TRY(deeper(p));
    if (minus || is_op(p, "+")) {
        p->t++;
        PL_TRY(unary(p, false, out));
        PL_TRY(make_ab(p, minus ? N_NEGATE : N_PLUS, *out, NULL, line, out));
    } else {
        PL_TRY(primary(p, out));
    }
    PL_TRY(postfix(p, out));
    if (with_filters)
        PL_TRY(filters(p, out));
    p->depth_left++;
    return PL_OK;
}

/* A binary operator. Each level of precedence has an array of these; the
 * operators of one level are left-associative. */
struct binary {
    const char *op;
    enum node_kind kind;
};

static pl_status binary(struct parser *p, const struct binary *row, int n,
                        pl_status (*inner)(struct parser *, struct node **),
                        struct node **out)
{
    PL_TRY(inner(p, out));
    for (int i = 0; i < n; i++) {
        int line = p->t->line;
        struct node *right;

        if (!skip_op(p, row[i].op))
            continue;
        PL_TRY(inner(p, &right));
        PL_TRY(make_ab(p, row[i].kind, *out, right, line, out));
        i = -1; /* the next operator may be any of this level */
    }
    return PL_OK;
}

static pl_status filtered(struct parser *p, struct node **out)
{
    return unary(p, true, out);
}

static pl_status power(struct parser *p, struct node **out)
{
    static const struct binary row[] = {{"**", N_POWER}};

    return binary(p, row, 1, filtered, out);
}

static pl_status product(struct parser *p, struct node **out)
{
    static const struct binary row[] = {{"*", N_MULTIPLY},
                                        {"/", N_DIVIDE},
                                        {"//", N_DIVIDE_DOWN},
                                        {"%", N_REMAINDER}};

    return binary(p, row, 4, power, out);
}

static pl_status join(struct parser *p, struct node **out)
{
    struct kids k = {0};
    int line = p->t->line;

    PL_TRY(product(p, out));
    if (!is_op(p, "~"))
        return PL_OK;
    PL_TRY(add_kid(p, &k, *out));
    while (skip_op(p, "~")) {
        PL_TRY(product(p, out));
        PL_TRY(add_kid(p, &k, *out));
    }
    PL_TRY(make(p, N_JOIN, line, out));
    take_kids(*out, &k);
    return PL_OK;
}

static pl_status sum(struct parser *p, struct node **out)
{
    static const struct binary row[] = {{"+", N_ADD}, {"-", N_SUBTRACT}};

    return binary(p, row, 2, join, out);
}

static bool comparison(struct parser *p, enum comparison *out)
{
    static const struct {
        const char *op;
        enum comparison is;
    } row[] = {{"==", IS_EQ}, {"!=", IS_NE}, {"<", IS_LT},
               {"<=", IS_LE}, {">", IS_GT},  {">=", IS_GE}};

    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++)
        if (skip_op(p, row[i].op)) {
            *out = row[i].is;
            return true;
        }
    if (skip_name(p, "in")) {
        *out = IS_IN;
        return true;
    }
    if (is_name(p, "not") && p->t[1].kind == T_NAME &&
        string_is(p->t[1].value.str, "in")) {
        p->t += 2;
        *out = IS_NOT_IN;
        return true;
    }
    return false;
}

static pl_status compare(struct parser *p, struct node **out)
{
    struct kids k = {0};
    uint8_t op[MAX_COMPARED];
    int line = p->t->line;
    enum comparison is;

    PL_TRY(sum(p, out));
    while (comparison(p, &is)) {
        if (k.n == 0)
            PL_TRY(add_kid(p, &k, *out));
        if (k.n == MAX_COMPARED)
            return fail(p, PL_BAD_FILE, "a chain of comparisons is too long");
        op[k.n - 1] = (uint8_t)is;
        PL_TRY(sum(p, out));
        PL_TRY(add_kid(p, &k, *out));
    }
    if (k.n == 0)
        return PL_OK;
    PL_TRY(make(p, N_COMPARE, line, out));
    take_kids(*out, &k);
    (*out)->op = arena_memdup(p->arena, op, (size_t)k.n - 1, 1);
    return (*out)->op ? PL_OK : no_memory(p);
}

static pl_status negation(struct parser *p, struct node **out)
{
    int line = p->t->line;

    if (!skip_name(p, "not"))
        return compare(p, out);
    PL_TRY(deeper(p));
    PL_TRY(negation(p, out));
    p->depth_left++;
    return make_ab(p, N_NOT, *out, NULL, line, out);
}

static pl_status conjunction(struct parser *p, struct node **out)
{
    struct node *right;

    PL_TRY(negation(p, out));
    while (is_name(p, "and")) {
        int line = (p->t++)->line;

        PL_TRY(negation(p, &right));
        PL_TRY(make_ab(p, N_AND, *out, right, line, out));
    }
    return PL_OK;
}

static pl_status disjunction(struct parser *p, struct node **out)
{
    struct node *right;

    PL_TRY(conjunction(p, out));
    while (is_name(p, "or")) {
        int line = (p->t++)->line;

        PL_TRY(conjunction(p, &right));
        PL_TRY(make_ab(p, N_OR, *out, right, line, out));
    }
    return PL_OK;
}

static pl_status expression(struct parser *p, struct node **out)
{
    PL_TRY(deeper(p));
    PL_TRY(disjunction(p, out));
    while (is_name(p, "if")) {
        int line = (p->t++)->line;
        struct node *condition, *other = NULL;

        PL_TRY(disjunction(p, &condition));
        if (skip_name(p, "else"))
            PL_TRY(expression(p, &other));
        PL_TRY(make_ab(p, N_CONDITIONAL, *out, condition, line, out));
        (*out)->c = other;
    }
    p->depth_left++;
    return PL_OK;
}

/* ---- parsing statements ------------------------------------------------ */

/* Parses statements and text up to a tag that begins with one of the words in
 * `ends`. This word is then the next token. */
static pl_status block(struct parser *p, const char *const *ends,
                       struct node **out);

static const char *const endif_names[] = {"elif", "else", "endif", NULL};
static const char *const endfor_names[] = {"else", "endfor", NULL};

static bool is_any(const struct parser *p, const char *const *names)
{
    for (; *names; names++)
        if (is_name(p, *names))
            return true;
    return false;
}

/* Parses the rest of an opening tag, the statements after it, and the tag with
 * the word `end`. */
static pl_status body(struct parser *p, const char *end, struct node **out)
{
    const char *const ends[] = {end, NULL};

    skip_op(p, ":");
    PL_TRY(need_block_end(p));
    PL_TRY(block(p, ends, out));
    p->t++;
    return need_block_end(p);
}

/* Fails if `t` is not an expression to which a template can assign a value. */
static pl_status check_target(struct parser *p, const struct node *t,
                              bool attributes)
{
    if (t->kind == N_TUPLE) {
        for (int i = 0; i < t->n_kid; i++)
            PL_TRY(check_target(p, t->kid[i], attributes));
        return PL_OK;
    }
    if (t->kind == N_NAME || (attributes && t->kind == N_ATTRIBUTE))
        return PL_OK;
    return fail(p, PL_BAD_FILE, "this expression cannot be assigned to");
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
static pl_status target(struct parser *p, const char *end, bool attributes,
                        struct node **out)
{
    struct kids k = {0};
    int line = p->t->line;
    bool is_tuple = false;
    uint8_t reads = p->reads;
    const struct tuple_form f = {.end = end};

    while (!tuple_ends(p, &f)) {
        struct node *node;

        PL_TRY(primary(p, &node));
        if (attributes && node->kind == N_NAME && is_op(p, "."))
            PL_TRY(subscript(p, &node));
        PL_TRY(check_target(p, node, attributes));
        PL_TRY(add_kid(p, &k, node));
        if (node->kind == N_NAME)
            sets_name(p, node->sym);
        if (!skip_op(p, ","))
            break;
        is_tuple = true;
    }
    p->reads = reads;
    if (k.n == 0)
        return unexpected(p, "a name");
    *out = k.node[0];
    if (!is_tuple)
        return PL_OK;
    PL_TRY(make(p, N_TUPLE, line, out));
    take_kids(*out, &k);
    return PL_OK;
}

static pl_status if_statement(struct parser *p, struct node *out)
{
    static const char *const endif_only[] = {"endif", NULL};
    struct kids k = {0};

    do {
        struct node *part;

        PL_TRY(tuple(p, (struct tuple_form){0}, &part));
        PL_TRY(add_kid(p, &k, part));
        skip_op(p, ":");
        PL_TRY(need_block_end(p));
        PL_TRY(block(p, endif_names, &part));
        PL_TRY(add_kid(p, &k, part));
    } while (skip_name(p, "elif"));
    if (skip_name(p, "else")) {
        skip_op(p, ":");
        PL_TRY(need_block_end(p));
        PL_TRY(block(p, endif_only, &out->a));
    }
    p->t++; /* skips the word "endif" */
    take_kids(out, &k);
    return need_block_end(p);
}

static pl_status for_statement(struct parser *p, struct node *out)
{
    struct kids k = {0};
    struct node *part;

    PL_TRY(target(p, "in", false, &out->a));
    if (!skip_name(p, "in"))
        return unexpected(p, "\"in\"");
    PL_TRY(tuple(p, (struct tuple_form){.end = "recursive"}, &out->b));
    if (skip_name(p, "if"))
        PL_TRY(expression(p, &out->c));
    out->flags = skip_name(p, "recursive");
    skip_op(p, ":");
    PL_TRY(need_block_end(p));
    p->n_loop++;
    PL_TRY(block(p, endfor_names, &part));
    p->n_loop--;
    PL_TRY(add_kid(p, &k, part));
    if (skip_name(p, "else")) {
        PL_TRY(body(p, "endfor", &part));
        PL_TRY(add_kid(p, &k, part));
    } else {
        p->t++; /* skips the word "endfor" */
        PL_TRY(need_block_end(p));
    }
    take_kids(out, &k);
    return PL_OK;
}

/* Parses the filters that apply to the text of a block: "| a | b" after "set
 * x". `started`: the first "|" is left out, as after the word "filter". */
static pl_status block_filters(struct parser *p, bool started,
                               struct node **out)
{
    *out = NULL;
    if (!started && !is_op(p, "|"))
        return PL_OK;
    PL_TRY(make(p, N_HOLE, p->t->line, out));
    while (started || skip_op(p, "|")) {
        started = false;
        PL_TRY(named(p, N_FILTER, *out, out));
    }
    return PL_OK;
}

/* Makes `kid` the only child of the statement `out`. */
static pl_status only_kid(struct parser *p, struct node *out, struct node *kid)
{
    struct kids k = {0};

    PL_TRY(add_kid(p, &k, kid));
    take_kids(out, &k);
    return PL_OK;
}

static pl_status set_statement(struct parser *p, struct node *out)
{
    struct node *part;

    PL_TRY(target(p, NULL, true, &out->a));
    if (skip_op(p, "=")) {
        PL_TRY(whole_tuple(p, &out->b));
        return need_block_end(p);
    }
    out->kind = N_SET_BLOCK;
    PL_TRY(block_filters(p, false, &out->b));
    PL_TRY(body(p, "endset", &part));
    return only_kid(p, out, part);
}

static pl_status filter_statement(struct parser *p, struct node *out)
{
    struct node *part;

    PL_TRY(block_filters(p, true, &out->b));
    PL_TRY(body(p, "endfilter", &part));
    return only_kid(p, out, part);
}

static pl_status with_statement(struct parser *p, struct node *out)
{
    struct kids k = {0};
    struct node *part;

    PL_TRY(add_kid(p, &k, NULL));
    while (p->t->kind != T_BLOCK_END) {
        PL_TRY(target(p, NULL, false, &part));
        PL_TRY(add_kid(p, &k, part));
        PL_TRY(need_op(p, "="));
        PL_TRY(expression(p, &part));
        PL_TRY(add_kid(p, &k, part));
        if (!skip_op(p, ","))
            break;
    }
    PL_TRY(body(p, "endwith", &k.node[0]));
    take_kids(out, &k);
    return PL_OK;
}

static pl_status generation_statement(struct parser *p, struct node *out)
{
    struct node *part;

    PL_TRY(body(p, "endgeneration", &part));
    return only_kid(p, out, part);
}

/* Parses the parameters of a macro, which are in brackets. */
static pl_status signature(struct parser *p, struct node *out)
{
    PL_TRY(need_op(p, "("));
    while (!is_op(p, ")")) {
        struct word w = {0};

        PL_TRY(need_name(p, &w.name));
        PL_TRY(number_of(p, w.name, &w.sym));
        if (skip_op(p, "="))
            PL_TRY(expression(p, &w.value));
        else if (out->n_word > 0 && out->word[out->n_word - 1].value)
            return fail(
                p, PL_BAD_FILE,
                "a parameter without a default follows one with a default");
        PL_TRY(add_word(p, out, w));
        if (!skip_op(p, ","))
            break;
    }
    return need_op(p, ")");
}

/* Parses the body of a macro. Records in out->flags which implicit arguments,
 * such as "kwargs", the body reads. */
static pl_status macro_body(struct parser *p, const char *end, struct node *out)
{
    const struct parser outer = *p;
    struct node *part;

    p->n_loop = 0;
    p->reads = p->sets = 0;
    PL_TRY(body(p, end, &part));
    out->flags = p->reads;
    for (int i = 0; i < out->n_word; i++) {
        int sym = out->word[i].sym;

        if (sym == SYM_CALLER && p->reads & 1 << sym && !out->word[i].value)
            return fail(p, PL_BAD_FILE,
                        "the parameter \"caller\" needs a default");
        if (sym < N_SYM)
            out->flags &= (uint8_t) ~(1 << sym);
    }
    p->n_loop = outer.n_loop;
    p->sets |= outer.sets;
    for (int i = 0; i < out->n_word; i++)
        sets_name(p, out->word[i].sym);
    p->reads = (uint8_t)(outer.reads | (out->flags & ~outer.sets));
    return only_kid(p, out, part);
}

static pl_status macro_statement(struct parser *p, struct node *out)
{
    struct string *name;

    PL_TRY(need_name(p, &name));
    out->value = value_str(name);
    PL_TRY(number_of(p, name, &out->sym));
    PL_TRY(signature(p, out));
    return macro_body(p, "endmacro", out);
}

static pl_status call_statement(struct parser *p, struct node *out)
{
    out->value = value_str(string_view(p->arena, "caller", 6));
    if (!out->value.str)
        return no_memory(p);
    string_hash(out->value.str);
    if (is_op(p, "("))
        PL_TRY(signature(p, out));
    PL_TRY(expression(p, &out->a));
    if (out->a->kind != N_CALL)
        return fail(p, PL_BAD_FILE,
                    "\"call\" must be followed by a call of a macro");
    return macro_body(p, "endcall", out);
}

static pl_status print_statement(struct parser *p, struct node *out)
{
    struct kids k = {0};

    while (p->t->kind != T_BLOCK_END) {
        struct node *node;
        int line = p->t->line;

        if (k.n > 0)
            PL_TRY(need_op(p, ","));
        PL_TRY(expression(p, &node));
        PL_TRY(make_ab(p, N_PRINT, node, NULL, line, &node));
        PL_TRY(add_kid(p, &k, node));
    }
    take_kids(out, &k);
    return need_block_end(p);
}

static pl_status loop_statement(struct parser *p, struct node *out)
{
    (void)out;
    if (p->n_loop == 0)
        return fail(p, PL_BAD_FILE, "break or continue outside a loop");
    return need_block_end(p);
}

/* The tags of the template language, by their first word. */
static const struct tag {
    const char *name;
    enum node_kind kind;
    /* Parses the rest of the tag after its first word, and the statement that
     * it begins. */
    pl_status (*parse)(struct parser *p, struct node *out);
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

static pl_status statement(struct parser *p, struct node **out)
{
    static const char *const refused[] = {
        "block", "extends", "import", "from", "include", "autoescape", NULL};
    size_t i = 0, n = sizeof tags / sizeof tags[0];
    int line = p->t->line;

    while (i < n && !is_name(p, tags[i].name))
        i++;
    if (i == n && is_any(p, refused)) {
        char shown[ERR_SHOWN];

        return err_set(
            p->err, PL_UNSUPPORTED,
            "template line %d: the tag \"%s\" is not supported", line,
            err_shown(shown, p->t->value.str->s, p->t->value.str->len));
    }
    if (i == n)
        return unexpected(p, "a tag");
    p->t++;
    PL_TRY(make(p, tags[i].kind, line, out));
    return tags[i].parse(p, *out);
}

static pl_status print(struct parser *p, struct node **out)
{
    struct node *a;
    int line = (p->t++)->line;

    PL_TRY(whole_tuple(p, &a));
    if (p->t->kind != T_PRINT_END)
        return unexpected(p, "\"}}\"");
    p->t++;
    return make_ab(p, N_PRINT, a, NULL, line, out);
}

static pl_status block_inner(struct parser *p, const char *const *ends,
                             struct kids *k)
{
    while (p->t->kind != T_END) {
        struct node *node = NULL;

        if (p->t->kind == T_DATA) {
            PL_TRY(make(p, N_DATA, p->t->line, &node));
            node->value = (p->t++)->value;
        } else if (p->t->kind == T_PRINT_BEGIN) {
            PL_TRY(print(p, &node));
        } else {
            p->t++; /* skips the token "{%" */
            if (is_any(p, ends))
                return PL_OK;
            PL_TRY(statement(p, &node));
        }
        PL_TRY(add_kid(p, k, node));
    }
    if (*ends) {
        while (ends[1])
            ends++;
        return err_set(p->err, PL_BAD_FILE,
                       "template line %d: the template ends; expected \"%s\"",
                       p->t->line, *ends);
    }
    return PL_OK;
}

static pl_status block(struct parser *p, const char *const *ends,
                       struct node **out)
{
    struct kids k = {0};

    PL_TRY(deeper(p));
    PL_TRY(make(p, N_BLOCK, p->t->line, out));
    PL_TRY(block_inner(p, ends, &k));
    take_kids(*out, &k);
    p->depth_left++;
    return PL_OK;
}

pl_status parse_template(struct arena *a, const char *text, size_t len,
                         struct syntax *out, pl_err *err)
{
    static const char *const nothing[] = {NULL};
    struct parser p = {.arena = a, .depth_left = SYNTAX_MAX_DEPTH, .err = err};
    static const char *const first[N_SYM] = {[SYM_LOOP] = "loop",
                                             [SYM_CALLER] = "caller",
                                             [SYM_KWARGS] = "kwargs",
                                             [SYM_VARARGS] = "varargs"};
    struct token *token;
    size_t n;

    PL_TRY(lex_template(a, text, len, &token, &n, err));
    p.t = token;
    p.name = dict_create(a, 64);
    if (!p.name)
        return no_memory(&p);
    for (int i = 0, sym; i < N_SYM; i++) {
        struct string *name = string_view(a, first[i], strlen(first[i]));

        if (!name)
            return no_memory(&p);
        /* Sets sym to i, because the names are numbered in this order. */
        PL_TRY(number_of(&p, name, &sym));
    }
    PL_TRY(block(&p, nothing, &out->root));
    out->name = p.name;
    return PL_OK;
}
