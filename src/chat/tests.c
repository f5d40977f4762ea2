/* The tests of the template language, "x is name(argument)". */
#include "chat/strings.h"

/* The kinds of the operand are bits 1 << V_. */
static struct value is_kind(struct render *r, const struct call *c)
{
    (void)r;
    return value_bool(value_is(c->self, (unsigned)c->what));
}

static struct value is_truth(struct render *r, const struct call *c)
{
    (void)r;
    return value_bool(c->self.kind == V_BOOL && c->self.truth == c->what);
}

static struct value is_integer(struct render *r, const struct call *c)
{
    (void)r;
    return value_bool(c->self.kind == V_INT || value_is_wide(c->self));
}

static struct value is_float(struct render *r, const struct call *c)
{
    (void)r;
    return value_bool(c->self.kind == V_FLOAT && !value_is_wide(c->self));
}

static struct value is_escaped(struct render *r, const struct call *c)
{
    (void)r;
    return value_bool(value_is_markup(c->self));
}

/* The tests odd and even; divisibleby, which has an argument. */
static struct value has_remainder(struct render *r, const struct call *c)
{
    const struct value by =
        c->arg[0].kind == V_ABSENT ? value_int(2) : c->arg[0];
    const struct value rest = value_binary(r, N_REMAINDER, c->self, by);

    return value_bool(value_equal(r, rest, value_int(c->what)));
}

static struct value is_sameas(struct render *r, const struct call *c)
{
    const struct value a = c->self, b = c->arg[0];

    return value_bool(
        a.kind == b.kind && value_equal(r, a, b) &&
        (!value_is(a, 1 << V_LIST | 1 << V_DICT) || a.object == b.object));
}

static struct value compares(struct render *r, const struct call *c)
{
    return value_bool(
        value_compare(r, (enum comparison)c->what, c->self, c->arg[0]));
}

static struct value is_filter(struct render *r, const struct call *c)
{
    (void)r;
    return value_bool(c->self.kind == V_STR && builtin_filter(c->self.str));
}

static struct value is_test(struct render *r, const struct call *c)
{
    (void)r;
    return value_bool(c->self.kind == V_STR && builtin_test(c->self.str));
}

enum {
    SEQUENCES = KINDS_SEQUENCE | 1 << V_DICT | 1 << V_RANGE | 1 << V_UNDEFINED,
    ITERABLES = SEQUENCES | 1 << V_VIEW | 1 << V_ITER | 1 << V_LOOP,
    CALLABLES = 1 << V_MACRO | 1 << V_METHOD | 1 << V_FUNCTION | 1 << V_JOINER |
                1 << V_LOOP | 1 << V_UNDEFINED,
};

const struct builtin builtin_tests[] = {
    {"defined", ' ', "", is_kind, ~(1 << V_UNDEFINED)},
    {"undefined", ' ', "", is_kind, 1 << V_UNDEFINED},
    {"none", ' ', "", is_kind, 1 << V_NONE},
    {"boolean", ' ', "", is_kind, 1 << V_BOOL},
    {"true", ' ', "", is_truth, true},
    {"false", ' ', "", is_truth, false},
    {"integer", ' ', "", is_integer, 0},
    {"float", ' ', "", is_float, 0},
    {"number", ' ', "", is_kind, KINDS_NUMBER},
    {"string", ' ', "", is_kind, 1 << V_STR},
    {"mapping", ' ', "", is_kind, 1 << V_DICT},
    {"sequence", ' ', "", is_kind, SEQUENCES},
    {"iterable", ' ', "", is_kind, ITERABLES},
    {"callable", ' ', "", is_kind, CALLABLES},
    {"escaped", ' ', "", is_escaped, 0},
    {"odd", ' ', "", has_remainder, 1},
    {"even", ' ', "", has_remainder, 0},
    {"divisibleby", ' ', "num:v", has_remainder, 0},
    {"lower", 'P', "", string_is_case, false},
    {"upper", 'P', "", string_is_case, true},
    {"sameas", ' ', "other:v", is_sameas, 0},
    {"eq", ' ', "other:v", compares, IS_EQ},
    {"equalto", ' ', "other:v", compares, IS_EQ},
    {"==", ' ', "other:v", compares, IS_EQ},
    {"ne", ' ', "other:v", compares, IS_NE},
    {"!=", ' ', "other:v", compares, IS_NE},
    {"lt", ' ', "other:v", compares, IS_LT},
    {"lessthan", ' ', "other:v", compares, IS_LT},
    {"<", ' ', "other:v", compares, IS_LT},
    {"le", ' ', "other:v", compares, IS_LE},
    {"<=", ' ', "other:v", compares, IS_LE},
    {"gt", ' ', "other:v", compares, IS_GT},
    {"greaterthan", ' ', "other:v", compares, IS_GT},
    {">", ' ', "other:v", compares, IS_GT},
    {"ge", ' ', "other:v", compares, IS_GE},
    {">=", ' ', "other:v", compares, IS_GE},
    {"in", ' ', "seq:v", compares, IS_IN},
    {"filter", ' ', "", is_filter, 0},
    {"test", ' ', "", is_test, 0},
    {0},
};
