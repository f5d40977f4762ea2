/* The text form: printed graphs parse into the same graph, and invalid text is
 * rejected with its line. */
#include "graph/graph.h"
#include "lib/alloc_fail.h"
#include "lib/support.h"

#include <stdlib.h>
#include <string.h>

static void print(const pl_graph *g, struct test_text *t)
{
    t->n = 0;
    assert_int_equal(pl_graph_print(g, test_text_add, t, NULL), PL_OK);
}

static pl_graph *parse(const char *text)
{
    pl_graph *g;
    pl_err err;

    TEST_OK(pl_graph_parse(&g, text, &err), err);
    return g;
}

/* Reads the seed of the fuzzer, which has every op. */
static char *every_op(void)
{
    const char *path = test_file("fuzz/corpus/graph/every_op.txt");
    size_t n;

    assert_non_null(path);
    return test_read(path, &n);
}

TEST(graph_text_every_op_reads_and_prints_the_same)
{
    static struct test_text t;
    char *s = every_op();
    pl_graph *g = parse(s);
    bool seen[OP_COUNT] = {false};

    print(g, &t);
    /* skips the first line of the file, a comment */
    assert_string_equal(strchr(s, '\n') + 1, t.s);
    for (int i = 0; i < g->n_node; i++)
        seen[g->node[i].op] = true;
    for (int i = 0; i < OP_COUNT; i++)
        /* custom ops are missing, because their names are the caller's */
        if (!seen[i] && i != OP_custom)
            fail_msg("the text lacks %s", op_info((enum op)i)->name);
    pl_graph_free(g);
    free(s);
}

TEST(graph_text_built_graph_prints_and_reads_back)
{
    static struct test_text a, b;
    const pl_dim d[2] = {{1, PL_N_TOK}, {64, PL_CONST}};
    const pl_dim r[3] = {{4, PL_N_TOK}, {2, PL_CONST}, {8, PL_CONST}};
    const pl_interval run[2] = {{96, 1}, {32, 6}};
    const pl_layout l = {PL_SPLIT, 1, 128, 2, run};
    pl_graph *g, *h;
    pl_tensor x, y;

    assert_int_equal(pl_graph_create(&g, NULL), PL_OK);
    x = pl_input(g, "x", PL_F32, 2, d);
    pl_layer(g, 7);
    y = pl_matmul(g, x,
                  pl_weight(g, "blk.7.ffn_up.weight", PL_Q8_0, 2,
                            (const int64_t[]){128, 64}, PL_ROLE_FFN_UP));
    pl_want_layout(g, y, &l);
    pl_layer(g, -1);
    y = pl_rms_norm(g, y, -1, 1e-6f);
    pl_name(g, y, "two words");
    pl_keep(g, y);
    pl_output(g, pl_reshape(g, pl_scale(g, x, -0.0f), 3, r));
    assert_int_equal(pl_graph_check(g, NULL), PL_OK);
    print(g, &a);
    assert_string_equal(
        a.s, "x: f32[n_tok, 64] = input\n"
             "blk.7.ffn_up.weight: q8_0[128, 64] = weight role=ffn_up layer=7\n"
             "t2: f32[n_tok, 128] = matmul(x, blk.7.ffn_up.weight) layer=7"
             " !want=split(1: 96{0} 32{1,2})\n"
             "\"two words\": f32[n_tok, 128] = rms_norm(t2) eps=1e-06"
             " !keep\n"
             "t4: f32[n_tok, 64] = scale(x) scale=-0\n"
             "t5: f32[4*n_tok, 2, 8] = reshape(t4) !output\n");
    h = parse(a.s);
    print(h, &b);
    assert_string_equal(a.s, b.s);
    assert_int_equal(h->n_node, g->n_node);
    for (int i = 0; i < g->n_node; i++) {
        assert_memory_equal(&g->node[i].attr, &h->node[i].attr,
                            sizeof g->node[i].attr);
        assert_int_equal(g->node[i].layer, h->node[i].layer);
    }
    pl_graph_free(g);
    pl_graph_free(h);
}

TEST(graph_text_floats_survive_exactly)
{
    static struct test_text a;
    uint64_t seed = test_seed();

    for (int i = 0; i < 2000; i++) {
        const pl_dim d = {3, PL_CONST};
        uint32_t bits = (uint32_t)test_random(&seed);
        float f;
        pl_graph *g, *h;

        memcpy(&f, &bits, sizeof f);
        if (f != f)
            continue; /* the text does not distinguish NaNs */
        assert_int_equal(pl_graph_create(&g, NULL), PL_OK);
        pl_scale(g, pl_input(g, "x", PL_F32, 1, &d), f);
        print(g, &a);
        h = parse(a.s);
        assert_memory_equal(&h->node[1].attr.scale, &f, sizeof f);
        pl_graph_free(g);
        pl_graph_free(h);
    }
}

TEST(graph_text_made_names_stay_unique)
{
    static struct test_text a;
    pl_graph *g = parse("t1: f32[2] = input\n");
    pl_tensor y, z;

    y = pl_sqr(g, 0);
    assert_string_equal(pl_tensor_name(g, y), "t1_");
    pl_name(g, y, "y");
    z = pl_sqr(g, y);
    pl_name(g, z, "t1_");
    assert_int_equal(pl_tensor_find(g, "y"), y);
    assert_int_equal(pl_tensor_find(g, "t1_"), z);
    assert_int_equal(pl_tensor_find(g, "t1"), 0);
    assert_int_equal(pl_tensor_find(g, "t2"), -1);
    print(g, &a);
    pl_graph_free(parse(a.s));
    pl_graph_free(g);
}

TEST(graph_text_bad_line_is_named)
{
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"\nx f32[1] = input", "line 2: 'f32[1]' where ':' is expected"},
        {"x: f31[1] = input", "line 1: unknown format 'f31'"},
        {"x: f32[] = input",
         "line 1: ']' where a size, n_tok, n_out or n_slot is expected"},
        {"x: f32[0] = input", "line 1: '0' is outside 1 .. "},
        {"x: f32[1, 1, 1, 1, 1] = input",
         "line 1: '1]' where ']' after four dimensions is expected"},
        {"x: f32[99999999999999999999] = input", "line 1: '9999"},
        {"x: f32[n_tokens] = input", "line 1: 'n_tokens]' where a size"},
        {"x: f32[1] input", "line 1: 'input' where '=' is expected"},
        {"x: f32[1] = inputs", "line 1: unknown operation 'inputs'"},
        {"x: f32[1] = input(", "line 1: '(' where an attribute"},
        {"x: f32[1] = input eps=3", "line 1: input has no attribute 'eps'"},
        {"x: f16[1] = input", "line 1: x: an input must be F32 or I32"},
        {"w: q4_0[33] = weight", "line 1: w: rows of 33 values"},
        {"w: f32[3] = weight role=boss", "line 1: unknown role 'boss'"},
        {"w: f32[n_tok] = weight",
         "line 1: dimension 0 of 'w' is n_tok, but should be 1"},
        {"c: f32[n_slot, 3] = memory", "line 1: a memory is [n_slot,"},
        {"c: f32[4, 3, 2] = memory",
         "line 1: dimension 0 of 'c' is 4, but should be n_slot"},
        {"s: f32[n_slot, 3, 2] = memory state=1 role=boss",
         "line 1: unknown role 'bo"},
        {"s: f32[n_slot, 3, 2] = memory role=state",
         "line 1: only a cache with one head may"},
        {"w: f32[3] = weight state=1", "line 1: weight has no attribute 'st"},
        {"s: f32[n_slot, 4, 2] = memory state=1 !want=split(2: 1{0} 1{1})\n",
         "line 1: s: a cache is split by heads; request a split of dimension "
         "1"},
        {"y: f32[1] = sqr(x)", "line 1: operand 'x' is not defined above"},
        {"x: f32[2] = input\n"
         "y: f32[14] = concat(x, x, x, x, x, x, x) axis=0",
         "line 2: 'x)' where ')' after the last operand"},
        {"x: f32[2] = input\ny: f32[2] = sqr(x, x)",
         "line 2: sqr: 2 operands, expected 1 to 1"},
        {"x: f32[2] = input\ny: f32[2] = sqr()",
         "line 2: ')' where an operand is expected"},
        {"x: f32[2] = input\ny: f32[2] = add(-, x)",
         "line 2: add: operand 0 is missing"},
        {"x: f32[2] = input\ny: f32[3] = sqr(x)",
         "line 2: dimension 0 of 'y' is 3, but should be 2 by sqr"},
        {"x: f32[2] = input\ny: f32[2, 1] = sqr(x)",
         "line 2: 2 dimensions of 'y' should be 1 by sqr"},
        {"x: f32[2] = input\ny: i32[2] = sqr(x)",
         "line 2: I32 of 'y' should be F32 by sqr"},
        {"x: f32[2] = input\nx: f32[2] = sqr(x)",
         "line 2: x: another tensor has this name"},
        {"x: f32[2] = input\ny: f32[3] = reshape(x)",
         "line 2: reshape(x [2]): the given shape has another number"},
        {"x: f32[2] = input\ny: f32[2] = sqr(x) eps",
         "line 2: the end of the line where '=' is expected"},
        {"x: f32[2] = input\ny: f32[2] = sqr(x) eps=no",
         "line 2: 'no' where a number is expected"},
        {"x: f32[2] = input\ny: f32[2] = sqr(x) epsilon=1",
         "line 2: unknown attribute 'epsilon'"},
        {"x: f32[2] = input\ny: f32[2] = sqr(x) n_rot=4294967296",
         "line 2: '4294967296' is outside"},
        {"x: f32[2] = input !best", "line 1: unknown mark '!best'"},
        {"x: f32[2] = input !want=whole", "line 1: unknown layout 'whole'"},
        {"c: f16[n_slot, 2, 8] = memory !want=split(2: 4{0} 4{1})\n",
         "line 1: c: a cache is split by heads; request a split of dimension "
         "1"},
        {"c: f16[n_slot, 2, 8] = memory values=0\nx: f32[n_tok, 2, 8] = input\n"
         "w: f16[n_slot, 2, 8] = cache_write(c, x) !want=split(1: 1{0} 1{1})\n",
         "line 3: w: its value is stored in the cache; request a layout for c"},
        {"x: f32[4, n_tok] = input !want=split(0: 2{0} 2{1})\n",
         "line 1: x: an input is set before its dimension 1 has a size"},
        {"x: f32[2] = input !want=split(0: 1{64})", "line 1: '64' is outside"},
        {"x: f32[2] = input !want=split(0: 3{0})",
         "line 1: x: the requested layout does not fit"},
        {"x: f32[2] = input !want=split(0: 1{0}", "line 1: the end of the"},
        {"\"x: f32[2] = input", "line 1: the end of the line where a name and"},
        {"\"\\x00\": f32[2] = input", "line 1: '\\x00\":' where \\\""},
        {"x: f32[2] = input # fine\n\x01", "line 2: '?' where a name"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pl_graph *g = (pl_graph *)cases;
        pl_err err;

        if (pl_graph_parse(&g, cases[i].text, &err) == PL_OK)
            fail_msg("accepted: %s", cases[i].text);
        assert_null(g);
        if (strncmp(err.message, cases[i].message, strlen(cases[i].message)))
            fail_msg("\"%s\" gives \"%s\", not \"%s\"", cases[i].text,
                     err.message, cases[i].message);
    }
}

TEST(graph_text_out_of_memory_is_a_status)
{
    char *s = every_op();

    for (int64_t n = 0; alloc_each(&n);) {
        pl_graph *g;
        pl_err err;

        alloc_ran(pl_graph_parse(&g, s, &err));
        pl_graph_free(g);
    }
    free(s);
}
