/* Each weight and cache gets the right home group, by layer and by every
 * option. */
#include "lib/alloc_fail.h"
#include "lib/place_model.h"
#include "lib/support.h"
#include "plan/override.h"
#include "plan/place.h"

#include <string.h>

static pl_status scene_open(struct place_scene *s, int n_layer, pl_options opt)
{
    pl_status st = place_scene_open(s, place_model(n_layer), opt);

    if (st == PL_OK)
        st = place_scene_leaves(s);
    return st;
}

/* Returns the name of the home group of the leaf `leaf`. */
static const char *home(const struct place_scene *s, const char *leaf)
{
    pl_tensor t = pl_tensor_find(s->g, leaf);

    assert_true(t >= 0);
    assert_true(s->home[t] >= 0 && s->home[t] < s->p.n_group);
    return s->p.group[s->home[t]].name;
}

static void must_be_at(pl_options opt, const char *const (*want)[2])
{
    struct place_scene s;

    if (scene_open(&s, 3, opt) != PL_OK)
        fail_msg("%s", s.err.message);
    for (; (*want)[0]; want++)
        if (strcmp(home(&s, (*want)[0]), (*want)[1]) != 0)
            fail_msg("%s is at %s, not %s", (*want)[0], home(&s, (*want)[0]),
                     (*want)[1]);
    for (int i = 0; i < s.g->n_node; i++) {
        bool leaf =
            s.g->node[i].op == OP_weight || s.g->node[i].op == OP_memory;

        assert_int_equal(s.home[i] == PLACE_NOWHERE, !leaf);
    }
    place_scene_close(&s);
}

#define MUST_BE_AT(options, ...)                                               \
    must_be_at((pl_options)options,                                            \
               (const char *const[][2]){__VA_ARGS__, {NULL, NULL}})
#define O(...)                                                                 \
    {                                                                          \
        .device_spec = "a:1GiB:1GB/s*2", __VA_ARGS__                           \
    }
#define OT(text) .overrides = (const char *[]){text}, .n_overrides = 1
#define LAYERS   .split_mode = PL_SPLIT_LAYER

TEST(leaves_live_with_their_layer)
{
    MUST_BE_AT(O(LAYERS), {"token_embd.weight", "layer0"},
               {"rope_freqs.weight", "layer0"},
               {"blk.0.attn_q.weight", "layer0"}, {"cache_k.1", "layer0"},
               {"blk.2.attn_q.weight", "layer1"}, {"cache_v.2", "layer1"},
               {"blk.2.ffn_norm.weight", "layer1"},
               {"output_norm.weight", "layer1"}, {"output.weight", "layer1"});
    MUST_BE_AT(O(.device_layers = "1"), {"token_embd.weight", "host"},
               {"blk.2.attn_q.weight", "host"}, {"cache_k.2", "host"},
               {"output_norm.weight", "tensor"}, {"output.weight", "tensor"});
}

TEST(leaves_of_experts_and_caches_move_to_the_host)
{
    MUST_BE_AT(O(.host_experts = "all"), {"blk.0.ffn_up_exps.weight", "host"},
               {"blk.2.ffn_down_exps.weight", "host"},
               {"blk.2.ffn_gate_inp.weight", "tensor"},
               {"cache_k.0", "tensor"});
    MUST_BE_AT(O(.host_experts = "2"), {"blk.1.ffn_up_exps.weight", "host"},
               {"blk.2.ffn_up_exps.weight", "tensor"});
    MUST_BE_AT(O(.host_experts = "99"), {"blk.2.ffn_up_exps.weight", "host"});
    MUST_BE_AT(O(.host_experts = "0-0,2-"),
               {"blk.0.ffn_up_exps.weight", "host"},
               {"blk.1.ffn_up_exps.weight", "tensor"},
               {"blk.2.ffn_up_exps.weight", "host"});
    MUST_BE_AT(O(.host_experts = "1,2"), {"blk.0.ffn_up_exps.weight", "tensor"},
               {"blk.1.ffn_up_exps.weight", "host"},
               {"blk.2.ffn_up_exps.weight", "host"});
    MUST_BE_AT(O(.host_cache = true), {"cache_k.0", "host"},
               {"cache_v.2", "host"}, {"blk.0.attn_k.weight", "tensor"});
}

TEST(leaves_follow_the_first_override_that_matches)
{
    static const char *const several[] = {"1\\.attn_q=a1",
                                          "attn_[qk]=host,q=a0"};

    MUST_BE_AT(O(OT("blk\\.[0-9]{1,2}\\.ffn_(up|down)_exps=CPU")),
               {"blk.0.ffn_up_exps.weight", "host"},
               {"blk.0.ffn_gate_exps.weight", "tensor"});
    MUST_BE_AT(O(OT("^output=A1")), {"output.weight", "a1"},
               {"output_norm.weight", "a1"}, {"token_embd.weight", "tensor"});
    MUST_BE_AT(O(LAYERS, OT("attn_q=a1,attn_k=layer1")),
               {"blk.0.attn_q.weight", "layer1"},
               {"blk.0.attn_k.weight", "layer1"},
               {"blk.0.attn_v.weight", "layer0"});
    MUST_BE_AT(O(.host_experts = "all", OT("up_exps=tensor")),
               {"blk.0.ffn_up_exps.weight", "tensor"},
               {"blk.0.ffn_down_exps.weight", "host"});
    MUST_BE_AT(O(.overrides = several, .n_overrides = 2),
               {"blk.1.attn_q.weight", "a1"}, {"blk.0.attn_q.weight", "host"},
               {"blk.1.attn_k.weight", "host"});
}

TEST(leaves_of_one_device_get_a_group_with_all_ranks)
{
    struct place_scene s;
    pl_options opt = O(.n_ranks = 5, OT("attn_q=a1,attn_k=a1,attn_v=a0"));
    int n = 0;

    assert_int_equal(scene_open(&s, 1, opt), PL_OK);
    assert_int_equal(s.p.n_group, 3);
    for (int i = 0; i < s.p.n_group; i++) {
        const struct place_group *y = &s.p.group[i];
        int ranks = 0;

        assert_int_equal(y->first, n);
        for (int k = 0; k < y->n; k++, n++) {
            assert_int_equal(s.p.member[n].group, i);
            assert_int_equal(s.p.member[n].rank0, ranks);
            ranks += s.p.member[n].n_rank;
        }
        assert_int_equal(ranks, 5);
    }
    assert_int_equal(n, s.p.n_member);
    place_scene_close(&s);
}

TEST(leaves_take_the_layouts_asked_for)
{
    static const struct {
        const char *text, *leaf, *want;
        int n_ranks;
    } cases[] = {
        {"attn_q=split:1", "blk.0.attn_q.weight", "split(1: 64{0} 64{1})", 0},
        {"attn_q=split:1", "blk.0.attn_q.weight", "split(1: 64{0} 32{1} 32{2})",
         3},
        {"down_exps=split:2", "blk.0.ffn_down_exps.weight",
         "split(2: 32{0} 32{1} 32{2})", 4},
        {"up_exps=split:0", "blk.0.ffn_up_exps.weight", "split(0: 4{0} 4{1})",
         2},
        {"up_exps=mirrored", "blk.0.ffn_up_exps.weight", "mirrored", 2},
        {"output_norm=split:0", "output_norm.weight", "split(0: 64{0} 64{1})",
         2},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *text = cases[i].text;
        pl_options opt = O(.n_ranks = cases[i].n_ranks, .overrides = &text,
                           .n_overrides = 1);
        struct place_scene s;
        char have[200];
        pl_tensor t;

        if (scene_open(&s, 1, opt) != PL_OK)
            fail_msg("%s", s.err.message);
        t = pl_tensor_find(s.g, cases[i].leaf);
        assert_non_null(s.want[t]);
        layout_print(s.want[t], have, sizeof have);
        assert_string_equal(have, cases[i].want);
        for (int k = 0; k < s.g->n_node; k++)
            assert_true(k == t || !s.want[k] || s.g->node[k].layer == 0);
        place_scene_close(&s);
    }
}

TEST(leaves_warn_of_overrides_that_match_nothing)
{
    struct place_scene s;
    pl_options opt = O(OT("ffn_upp_exps=host,zzz=host,attn_q=host,attn_q=a0"));

    assert_int_equal(scene_open(&s, 3, opt), PL_OK);
    assert_non_null(
        strstr(s.warned, "\"ffn_upp_exps=host\" matches no weight"));
    assert_non_null(strstr(s.warned, "similar are blk.0.ffn_up_exps.weight"));
    /* the override that changes nothing gives no warning */
    assert_null(strstr(s.warned, "blk.1"));
    assert_non_null(strstr(s.warned, "\"zzz=host\" matches no weight"));
    assert_non_null(strstr(s.warned, "\"attn_q=a0\" matches no weight"));
    assert_null(strstr(s.warned, "\"attn_q=host\""));
    place_scene_close(&s);
}

TEST(leaves_warn_of_idle_devices)
{
    const struct {
        pl_options opt;
        const char *warned;
    } rows[] = {
        {{.n_ranks = 3}, "1 of 4 devices has no rank and is idle (3 ranks)\n"},
        {{.n_ranks = 1, .host_cache = true},
         "3 of 4 devices have no rank and are idle (1 rank)\n"},
        {{.n_ranks = 3, OT("attn_q=a3")}, ""},
        {{.n_ranks = 2, OT("attn_q=a3")},
         "1 of 4 devices has no rank and is idle (2 ranks)\n"},
        {{.split_mode = PL_SPLIT_LAYER}, ""},
        {{.split_mode = PL_SPLIT_HYBRID, .hybrid_size = 4}, ""},
        {{.split_mode = PL_SPLIT_HYBRID, .hybrid_size = 9},
         "-sm hybrid:9: 4 devices form one group, as with -sm tensor\n"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        pl_options opt = rows[i].opt;
        struct place_scene s;

        opt.device_spec = "a:1GiB:1GB/s*4";
        assert_int_equal(scene_open(&s, 3, opt), PL_OK);
        assert_string_equal(s.warned, rows[i].warned);
        place_scene_close(&s);
    }
}

TEST(leaf_errors_name_value_and_remedy)
{
    const struct {
        pl_options opt;
        const char *says;
    } cases[] = {
        {O(OT("attn_q=gpu7")), "unknown location \"gpu7\"; known are mirrored, "
                               "split:D, host, tensor, a0, a1"},
        {O(OT("nothing=gpu7")), "unknown location \"gpu7\""},
        {O(OT("attn_q=split:2")),
         "blk.0.attn_q.weight has no dimension 2, only 0 to 1"},
        {O(OT("attn_q=split:x")), "unknown location \"split:x\""},
        {O(.n_ranks = 4, OT("freqs=split:1")), "has no dimension 1"},
        {O(OT("attn_(q=host")), "at character 7 of the expression: missing"},
        {O(OT("(a+)+$=host,(.*)*(.*)*(.*)*(.*)*x{5}=host")), "takes too long"},
        {O(.host_experts = "x"), "(-ncmoe) \"x\""},
        {O(.host_experts = ""), "(-ncmoe) \"\""},
        {O(.host_experts = "2-1"), "(-ncmoe) \"2-1\""},
        {O(.host_experts = "1,"), "(-ncmoe) \"1,\""},
        {O(.host_experts = "-1"), "(-ncmoe) \"-1\""},
        {O(.host_experts = "0-1,7-"), "the model has no layer 7; its layers"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct place_scene s;

        assert_int_equal(scene_open(&s, 3, cases[i].opt), PL_BAD_ARGUMENT);
        if (!strstr(s.err.message, cases[i].says))
            fail_msg("\"%s\" does not say \"%s\"", s.err.message,
                     cases[i].says);
        place_scene_close(&s);
    }
}

TEST(leaves_allocation_failure_is_a_status)
{
    pl_options opt =
        O(.host_experts = "all", OT("attn_q=a1,output=split:0,attn_k=host"));
    pl_graph *g = place_model(1);
    int *at = test_malloc((size_t)g->n_node * sizeof *at);
    const pl_layout **want = test_calloc((size_t)g->n_node, sizeof *want);

    for (int64_t n = 0; alloc_each(&n);) {
        struct arena a = {0};
        struct notes notes = {.a = &a};
        struct device_list l = {0};
        struct plan_config in = {0};
        struct placement p;
        pl_status s;

        s = plan_config_parse(&in, &a, g, NULL, &opt, &notes, NULL);
        if (s == PL_OK)
            s = device_list_copy(&l, &in.list, NULL);
        if (s == PL_OK)
            s = place_groups(&p, &a, &l, &in, NULL);
        if (s == PL_OK)
            s = place_leaves(&p, &a, &l, &in, at, want, &notes, NULL);
        alloc_ran(s);
        plan_config_free(&in);
        device_list_free(&l);
        arena_fini(&a);
    }
    test_free(at);
    test_free(want);
    pl_graph_free(g);
}
