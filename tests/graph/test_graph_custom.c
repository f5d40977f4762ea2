/* Custom ops in graphs: valid rows are accepted, shapes follow from their
 * letters, and the text form has them. */
#include "graph/graph.h"
#include "lib/support.h"

#include <string.h>

static void nothing(const pl_op_call *c)
{
    (void)c;
}

static pl_op_def def_of(const char *name, const char *dims, unsigned partial)
{
    return (pl_op_def){.size = sizeof(pl_op_def),
                       .name = name,
                       .dims = dims,
                       .partial = partial,
                       .run = nothing};
}

/* Operands that the cases below name. */
static const char prelude[] = "td: f32[n_tok, 64] = input\n"
                              "ti: i32[n_tok, 2] = input\n"
                              "d: f32[64] = weight\n"
                              "h: f32[n_tok, 6, 16] = input\n"
                              "k: f32[3, 16] = weight\n"
                              "k4: f32[4, 16] = weight\n"
                              "g: f32[3] = weight\n"
                              "r: f32[2] = weight\n"
                              "q: q8_0[4, 64] = weight\n"
                              "hw: f16[64] = weight\n"
                              "b: f32[2, 1, 64] = input\n"
                              "c: f32[n_slot, 3, 16] = memory\n"
                              "x4: f32[2, 3, 4, 5] = input\n";

/* The result of an op with this row on these operands: the line without its
 * name, or, after '!', the error message. */
static const struct {
    const char *dims;
    unsigned partial;
    const char *in[5];
    const char *want;
} cases[] = {
    /* rows whose operands fit; `want` is the inferred shape */
    {"td,td->td", 0, {"td", "td"}, "f32[n_tok, 64] = my.op(td, td)"},
    {"td!,d!->td!", 0, {"td", "d"}, "f32[n_tok, 64] = my.op(td, d)"},
    {"td,d?->td", 0, {"td"}, "f32[n_tok, 64] = my.op(td)"},
    {"td->t", 0, {"td"}, "f32[n_tok] = my.op(td)"},
    {"td,tu!->dut", 0, {"td", "ti"}, "f32[64, 2, n_tok] = my.op(td, ti)"},
    {"*,*->*", PL_OP_SUM, {"b", "td"}, "f32[2, n_tok, 64] = my.op(b, td)"},
    {"*d->*", 0, {"td"}, "f32[n_tok] = my.op(td)"},
    {"*d->*d", PL_OP_ONE | 1, {"x4"}, "f32[2, 3, 4, 5] = my.op(x4)"},
    {"t(gr)d,gd->t(gr)d", 0, {"h", "k"}, "f32[n_tok, 6, 16] = my.op(h, k)"},
    {"t(gr)!d,gd->tdg", 0, {"h", "k"}, "f32[n_tok, 16, 3] = my.op(h, k)"},
    {"g,r->(gr)", 0, {"g", "r"}, "f32[6] = my.op(g, r)"},
    {"g,r->(rg)", 0, {"g", "r"}, "f32[6] = my.op(g, r)"},
    /* wrong numbers or shapes of operands */
    {"td,td->td", 0, {"td"}, "!my.op: 1 operands, expected 2 to 2"},
    {"td->td", 0, {"td", "td"}, "!my.op: 2 operands, expected 1 to 1"},
    {"td->td", 0, {"none"}, "!my.op: operand 0 is missing"},
    {"td->td", 0, {"h"}, "!my.op: h has 3 dimensions, but its row has 2"},
    {"*abc->*abc",
     0,
     {"d"},
     "!my.op: d has 1 dimensions, but its row has at least 3"},
    {"td,td->td", 0, {"td", "ti"}, "!my.op: 'd' is 64 in td and 2 in ti"},
    {"t(gr)d,gd->t(gr)d", 0, {"h", "k4"}, "!my.op: '(gr)' is 6 in h, not the"},
    {"(td)e->(td)e", 0, {"ti"}, "!my.op: '(td)' of ti must be of constant"},
    {"t,d->(td)", 0, {"g", "d"}, "f32[192] = my.op(g, d)"},
    {"tu,d->(td)", 0, {"td", "d"}, "!my.op: '(td)' must be of constant size"},
    {"*,*->*", 0, {"b", "ti"}, "!my.op: '*' is 64 in an earlier operand and"},
    {"*,a->*a", 0, {"x4", "d"}, "!my.op: the result has 5 dimensions"},
    {"nd->n", 0, {"q"}, "!a quantized weight can be read only by matmul"},
    {"d->d", 0, {"hw"}, "!a half-precision weight must be cast to F32"},
    {"sgd->sgd", 0, {"c"}, "!expected a value, got a memory"},
    {"td->td", PL_OP_SUM, {"ti"}, "!my.op: ti is I32, but PL_OP_SUM needs"},
    /* rows that are not valid */
    {"", 0, {"td"}, "!row '': an operand without dimensions"},
    {"td", 0, {"td"}, "!row 'td': no '->' after the operands"},
    {"td->", 0, {"td"}, "!an operand without dimensions"},
    {"td-td", 0, {"td"}, "!no '->' after"},
    {"td,->td", 0, {"td"}, "!an operand without dimensions"},
    {"tD->tD", 0, {"td"}, "!expected letters, '(gr)', '*', '!', '?', ',' or"},
    {"t!!d->td", 0, {"td"}, "!letters, '(gr)'"},
    {"*!d->*d", 0, {"td"}, "!letters, '(gr)'"},
    {"(td->td", 0, {"td"}, "!letters, '(gr)'"},
    {"(tt)->(tt)", 0, {"d"}, "!letters, '(gr)'"},
    {"tt->t", 0, {"td"}, "!a letter appears twice in one operand"},
    {"(gr)g->(gr)g", 0, {"td"}, "!a letter appears twice in one operand"},
    {"**->*", 0, {"td"}, "!a second '*'"},
    {"abcde->abcde", 0, {"td"}, "!an operand has more than four dimensions"},
    {"a,b,c,d,e->abcd", 0, {"td"}, "!more than four operands"},
    {"td->td,d", 0, {"td"}, "!text after the result"},
    {"td->tx", 0, {"td"}, "!the result has a letter that is in no operand"},
    {"td->*d", 0, {"td"}, "!the result has a letter that is in no operand"},
    {"td,x?->tx", 0, {"td"}, "!the result has a letter that is in no operand"},
    {"td->(td)", 0, {"td"}, "!my.op: '(td)' must be of constant size"},
    {"*d->d", 0, {"td"}, "!'*' is in an operand but not in the result"},
    {"t(gr)d->tgd", 0, {"h"}, "!the result has a letter that is in no"},
    {"t(gr)d,g->tgd",
     0,
     {"h", "g"},
     "!a composite that is not in the result must"},
    {"td?->td", 0, {"td"}, "!the first operand must not be optional"},
    {"t,d?,t->t", 0, {"g"}, "!optional operands must come last"},
    {"d->d", 7, {"d"}, "!partial must be PL_OP_NONE, PL_OP_SUM, or PL_OP_ONE"},
    {"d->d", PL_OP_ONE, {"d"}, "!partial must be PL_OP_NONE"},
    {"d->d", PL_OP_ONE | 2, {"d"}, "!partial must be PL_OP_NONE"},
    {"d->d", PL_OP_ONE | PL_OP_SUM, {"d"}, "!partial must be PL_OP_NONE"},
};

static void print(const pl_graph *g, struct test_text *t)
{
    pl_err err;

    t->n = 0;
    TEST_OK(pl_graph_print(g, test_text_add, t, &err), err);
}

static pl_graph *parse(const char *text)
{
    pl_graph *g;
    pl_err err;

    TEST_OK(pl_graph_parse(&g, text, &err), err);
    return g;
}

TEST(graph_custom_rows_give_shapes_or_say_what_is_wrong)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pl_op_def def = def_of("my.op", cases[i].dims, cases[i].partial);
        pl_graph *g = parse(prelude);
        pl_tensor in[5], t;
        const char *want = cases[i].want;
        static struct test_text out;
        pl_err err = {0};
        int n = 0;

        for (; n < 5 && cases[i].in[n]; n++)
            in[n] = pl_tensor_find(g, cases[i].in[n]);
        t = pl_custom(g, &def, n, in);
        if (pl_graph_check(g, &err) != PL_OK) {
            if (*want != '!' || !strstr(err.message, want + 1))
                fail_msg("'%s': %s, not %s", cases[i].dims, err.message, want);
            assert_int_equal(t, -1);
            assert_int_equal(err.status, PL_BAD_ARGUMENT);
        } else {
            print(g, &out);
            if (!strstr(out.s, want))
                fail_msg("'%s': %s, not %s", cases[i].dims,
                         strstr(out.s, "x4: "), want);
        }
        pl_graph_free(g);
    }
}

TEST(graph_custom_definitions_are_checked)
{
    static const struct {
        pl_op_def def;
        const char *message;
    } bad[] = {
        {{.dims = "d->d", .run = nothing}, "needs a name and a row"},
        {{.name = "", .dims = "d->d", .run = nothing}, "needs a name"},
        {{.name = "f", .run = nothing}, "needs a name and a row"},
        {{.name = "f", .dims = "d->d"}, "'f', row 'd->d': kernel"},
        {{.name = "f g", .dims = "d->d", .run = nothing}, "a name may contain"},
        {{.name = "relu", .dims = "d->d", .run = nothing},
         "that of a built-in"},
        {{.name = "custom", .dims = "d->d", .run = nothing},
         "that of a built-in"},
        {{.name = "input", .dims = "d->d", .run = nothing},
         "that of a built-in"},
    };

    for (size_t i = 0; i <= sizeof bad / sizeof *bad; i++) {
        bool null = i == sizeof bad / sizeof *bad;
        pl_op_def def = bad[null ? 0 : i].def;
        pl_graph *g = parse("d: f32[64] = weight\n");
        pl_err err;

        def.size = sizeof def;
        assert_int_equal(pl_custom(g, null ? NULL : &def, 1, (pl_tensor[]){0}),
                         -1);
        assert_int_equal(pl_graph_check(g, &err), PL_BAD_ARGUMENT);
        if (!strstr(err.message, null ? "needs a name" : bad[i].message))
            fail_msg("%zu: %s", i, err.message);
        pl_graph_free(g);
    }
    for (int n = 0; n <= 5; n += 5) {
        pl_op_def def = def_of("f", "d->d", 0);
        pl_graph *g = parse("d: f32[64] = weight\n");

        assert_int_equal(pl_custom(g, &def, n, (pl_tensor[5]){0}), -1);
        pl_graph_free(g);
    }
    for (int t = -2; t <= 1; t += 3) {
        pl_op_def def = def_of("f", "d->d", 0);
        pl_graph *g = parse("d: f32[64] = weight\n");

        assert_int_equal(pl_custom(g, &def, 1, &t), -1);
        pl_graph_free(g);
    }
}

/* Otherwise the text form would be ambiguous. */
TEST(graph_custom_one_name_is_one_op)
{
    char name[] = "f", dims[] = "d->d";
    pl_op_def def = def_of(name, dims, 0);
    pl_graph *g = parse("d: f32[64] = weight\n");
    pl_tensor d = 0;
    pl_err err;

    d = pl_custom(g, &def, 1, &d);
    name[0] = dims[0] = 'x'; /* the graph has copied name and dims */
    def = def_of("f", "d->d", 0);
    d = pl_custom(g, &def, 1, &d);
    TEST_OK(pl_graph_check(g, &err), err);
    assert_ptr_equal(g->node[1].custom, g->node[2].custom);
    def.edition = 1;
    assert_int_equal(pl_custom(g, &def, 1, &d), -1);
    assert_int_equal(pl_graph_check(g, &err), PL_BAD_ARGUMENT);
    assert_non_null(strstr(err.message, "'f': already defined differently"));
    pl_graph_free(g);
}

TEST(graph_custom_prints_and_reads_back)
{
    static const char text[] =
        "x: f32[n_tok, 64] = input\n"
        "w: f32[64] = weight\n"
        "y: f32[n_tok, 64] = my/norm(x, w) !keep\n"
        "z: f32[n_tok, 64] = hypot-2(x, y) !output !want=split(1: 64{0})\n"
        "u: f32[n_tok, 64] = my/norm(z)\n";
    const pl_op_def hypot = def_of("hypot-2", "td,td->td", 0);
    const pl_op_def norm = def_of("my/norm", "td!,d!?->td!", 0);
    const pl_op_def *const def[] = {&hypot, &norm};
    static const struct {
        const char *text, *message;
    } bad[] = {
        {"x: f32[2] = input\ny: f32[2] = mine(x)",
         "line 2: unknown operation 'mine'; a custom one needs its definition"},
        {"x: f32[2] = input\ny: f32[2] = custom(x)",
         "line 2: unknown operation 'custom'"},
        {"x: f32[3, 2] = input\ny: f32[3, 2] = my/norm(x) eps=1",
         "line 2: my/norm has no attribute 'eps'"},
        {"x: f32[3, 2] = input\ny: f32[3, 3] = my/norm(x)",
         "line 2: dimension 1 of 'y' is 3, but should be 2 by my/norm"},
        {"x: f32[3, 2] = input\ny: i32[3, 2] = my/norm(x)",
         "line 2: I32 of 'y' should be F32 by my/norm"},
        {"x: f32[3] = input\ny: f32[3] = my/norm(x)",
         "line 2: my/norm: x has 1 dimensions, but its row has 2"},
    };
    static struct test_text out;
    pl_graph *g;
    pl_err err;

    TEST_OK(pl_graph_parse_ops(&g, text, 2, def, &err), err);
    print(g, &out);
    assert_string_equal(out.s, text);
    pl_graph_free(g);
    assert_int_equal(pl_graph_parse(&g, text, &err), PL_BAD_ARGUMENT);
    assert_non_null(strstr(err.message, "line 3: unknown operation 'my/norm'"));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(pl_graph_parse_ops(&g, bad[i].text, 2, def, &err),
                         PL_BAD_ARGUMENT);
        assert_null(g);
        if (!strstr(err.message, bad[i].message))
            fail_msg("%s, not %s", err.message, bad[i].message);
    }
}
