/* The tests of the template language, "x is name(argument)". */
#include "chat/strings.h"

#include "base/err.h"

#include <string.h>

static pl_status is(struct value *out, bool yes)
{
    *out = value_bool(yes);
    return PL_OK;
}

/* Defines a test that depends only on the kind of its operand. */
#define KIND_TEST(name, condition)                                             \
    static pl_status is_##name(struct render *r, const struct call *c,         \
                               struct value *out)                              \
    {                                                                          \
        const struct value v = c->self;                                        \
                                                                               \
        (void)r;                                                               \
        return is(out, (condition));                                           \
    }

KIND_TEST(defined, v.kind != V_UNDEFINED)
KIND_TEST(undefined, v.kind == V_UNDEFINED)
KIND_TEST(none, v.kind == V_NONE)
KIND_TEST(boolean, v.kind == V_BOOL)
KIND_TEST(true, v.kind == V_BOOL && v.truth)
KIND_TEST(false, v.kind == V_BOOL && !v.truth)
KIND_TEST(integer, v.kind == V_INT || value_is_wide(v))
KIND_TEST(float, v.kind == V_FLOAT && !value_is_wide(v))
KIND_TEST(number, value_is_number(v))
KIND_TEST(string, v.kind == V_STR)
KIND_TEST(mapping, v.kind == V_DICT)
KIND_TEST(sequence, v.kind == V_STR || v.kind == V_LIST || v.kind == V_TUPLE ||
                        v.kind == V_DICT || v.kind == V_RANGE ||
                        v.kind == V_UNDEFINED)
KIND_TEST(iterable, v.kind == V_STR || v.kind == V_LIST || v.kind == V_TUPLE ||
                        v.kind == V_DICT || v.kind == V_RANGE ||
                        v.kind == V_VIEW || v.kind == V_ITER ||
                        v.kind == V_LOOP || v.kind == V_UNDEFINED)
KIND_TEST(callable, v.kind == V_MACRO || v.kind == V_METHOD ||
                        v.kind == V_FUNCTION || v.kind == V_JOINER ||
                        v.kind == V_LOOP || v.kind == V_UNDEFINED)
KIND_TEST(escaped, value_is_markup(v))

/* Sets *out to true if v % by == rest. */
static pl_status remainder_is(struct render *r, struct value v, struct value by,
                              int64_t rest, struct value *out)
{
    bool same;

    PL_TRY(value_binary(r, N_REMAINDER, v, by, &v));
    PL_TRY(value_equal(r, v, value_int(rest), &same));
    return is(out, same);
}

static pl_status is_odd(struct render *r, const struct call *c,
                        struct value *out)
{
    return remainder_is(r, c->self, value_int(2), 1, out);
}

static pl_status is_even(struct render *r, const struct call *c,
                         struct value *out)
{
    return remainder_is(r, c->self, value_int(2), 0, out);
}

static pl_status is_divisibleby(struct render *r, const struct call *c,
                                struct value *out)
{
    return remainder_is(r, c->self, c->arg[0], 0, out);
}

static pl_status has_case(struct render *r, const struct call *c, bool upper,
                          struct value *out)
{
    struct string *s;

    PL_TRY(str_of(r, c->self, &s));
    return is(out, string_has_case(s, upper));
}

static pl_status is_lower(struct render *r, const struct call *c,
                          struct value *out)
{
    return has_case(r, c, false, out);
}

static pl_status is_upper(struct render *r, const struct call *c,
                          struct value *out)
{
    return has_case(r, c, true, out);
}

static pl_status is_sameas(struct render *r, const struct call *c,
                           struct value *out)
{
    bool same = c->self.kind == c->arg[0].kind;

    if (same)
        PL_TRY(value_equal(r, c->self, c->arg[0], &same));
    if (c->self.kind == V_LIST || c->self.kind == V_DICT)
        same = same && c->self.list == c->arg[0].list;
    return is(out, same);
}

static pl_status compares(struct render *r, const struct call *c,
                          enum comparison what, struct value *out)
{
    out->kind = V_BOOL;
    return value_compare(r, what, c->self, c->arg[0], &out->truth);
}

#define COMPARISON_TEST(name, what)                                            \
    static pl_status is_##name(struct render *r, const struct call *c,         \
                               struct value *out)                              \
    {                                                                          \
        return compares(r, c, what, out);                                      \
    }

COMPARISON_TEST(eq, IS_EQ)
COMPARISON_TEST(ne, IS_NE)
COMPARISON_TEST(lt, IS_LT)
COMPARISON_TEST(le, IS_LE)
COMPARISON_TEST(gt, IS_GT)
COMPARISON_TEST(ge, IS_GE)
COMPARISON_TEST(in, IS_IN)

static pl_status is_filter(struct render *r, const struct call *c,
                           struct value *out)
{
    (void)r;
    return is(out, c->self.kind == V_STR && builtin_filter(c->self.str));
}

static pl_status is_test(struct render *r, const struct call *c,
                         struct value *out)
{
    (void)r;
    return is(out, c->self.kind == V_STR && builtin_test(c->self.str));
}

const struct builtin builtin_tests[] = {
    {"defined", "", 0, is_defined},
    {"undefined", "", 0, is_undefined},
    {"none", "", 0, is_none},
    {"boolean", "", 0, is_boolean},
    {"true", "", 0, is_true},
    {"false", "", 0, is_false},
    {"integer", "", 0, is_integer},
    {"float", "", 0, is_float},
    {"number", "", 0, is_number},
    {"string", "", 0, is_string},
    {"mapping", "", 0, is_mapping},
    {"sequence", "", 0, is_sequence},
    {"iterable", "", 0, is_iterable},
    {"callable", "", 0, is_callable},
    {"escaped", "", 0, is_escaped},
    {"odd", "", 0, is_odd},
    {"even", "", 0, is_even},
    {"divisibleby", "num", 1, is_divisibleby},
    {"lower", "", 0, is_lower},
    {"upper", "", 0, is_upper},
    {"sameas", "other", 1, is_sameas},
    {"eq", "other", 1, is_eq},
    {"equalto", "other", 1, is_eq},
    {"==", "other", 1, is_eq},
    {"ne", "other", 1, is_ne},
    {"!=", "other", 1, is_ne},
    {"lt", "other", 1, is_lt},
    {"lessthan", "other", 1, is_lt},
    {"<", "other", 1, is_lt},
    {"le", "other", 1, is_le},
    {"<=", "other", 1, is_le},
    {"gt", "other", 1, is_gt},
    {"greaterthan", "other", 1, is_gt},
    {">", "other", 1, is_gt},
    {"ge", "other", 1, is_ge},
    {">=", "other", 1, is_ge},
    {"in", "seq", 1, is_in},
    {"filter", "", 0, is_filter},
    {"test", "", 0, is_test},
    {0},
};
