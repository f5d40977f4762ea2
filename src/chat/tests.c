/* The tests of the template language, "x is name(argument)". */
#include "chat/strings.h"

/* Bits besides 1 << V_ that tell values of a kind apart. */
enum {
    IS_TRUE = 1 << 26,
    IS_FALSE = 1 << 27,
    IS_MARKUP = 1 << 28,
    IS_WIDE = 1 << 29,  /* an integer kept as its digits */
    IS_FLOAT = 1 << 30, /* any other float */
};

/* Returns true if `what` has a bit of the operand. */
static struct value is_kind(struct render *r, const struct call *c)
{
    const struct value v = c->self;
    int bits = 1 << v.kind;

    (void)r;
    if (v.kind == V_BOOL)
        bits |= v.truth ? IS_TRUE : IS_FALSE;
    if (v.kind == V_FLOAT)
        bits |= value_is_wide(v) ? IS_WIDE : IS_FLOAT;
    if (value_is_markup(v))
        bits |= IS_MARKUP;
    return value_bool(bits & c->what);
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

/* The tests filter (`what` is true) and test. */
static struct value is_builtin(struct render *r, const struct call *c)
{
    (void)r;
    return value_bool(
        c->self.kind == V_STR &&
        (c->what ? builtin_filter(c->self.str) : builtin_test(c->self.str)));
}

enum {
    SEQUENCES = KINDS_SEQUENCE | 1 << V_DICT | 1 << V_RANGE | 1 << V_UNDEFINED,
    ITERABLES = SEQUENCES | 1 << V_VIEW | 1 << V_ITER | 1 << V_LOOP,
    IS_ANY = (1 << (V_CYCLER + 1)) - 1,
    CALLABLES = 1 << V_MACRO | 1 << V_METHOD | 1 << V_FUNCTION | 1 << V_JOINER |
                1 << V_LOOP | 1 << V_UNDEFINED,
};

const struct builtin builtin_tests[] = {
    {"defined", ' ', "", is_kind, IS_ANY & ~(1 << V_UNDEFINED)},
    {"undefined", ' ', "", is_kind, 1 << V_UNDEFINED},
    {"none", ' ', "", is_kind, 1 << V_NONE},
    {"boolean", ' ', "", is_kind, 1 << V_BOOL},
    {"true", ' ', "", is_kind, IS_TRUE},
    {"false", ' ', "", is_kind, IS_FALSE},
    {"integer", ' ', "", is_kind, 1 << V_INT | IS_WIDE},
    {"float", ' ', "", is_kind, IS_FLOAT},
    {"number", ' ', "", is_kind, KINDS_NUMBER},
    {"string", ' ', "", is_kind, 1 << V_STR},
    {"mapping", ' ', "", is_kind, 1 << V_DICT},
    {"sequence", ' ', "", is_kind, SEQUENCES},
    {"iterable", ' ', "", is_kind, ITERABLES},
    {"callable", ' ', "", is_kind, CALLABLES},
    {"escaped", ' ', "", is_kind, IS_MARKUP},
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
    {"filter", ' ', "", is_builtin, true},
    {"test", ' ', "", is_builtin, false},
    {0},
};
