/* Groups of devices and homes of leaves: the result of every option. */
#include "lib/alloc_fail.h"
#include "lib/place_model.h"
#include "lib/support.h"
#include "plan/override.h"

#include <stdio.h>
#include <string.h>

/* ---- a model of n layers, only what placement reads --------------------- */

static pl_tensor weight(pl_graph *g, const char *name, int64_t n, int64_t k,
                        pl_role role)
{
    return pl_weight(g, name, n > 1 ? PL_Q8_0 : PL_F32, n > 1 ? 2 : 1,
                     n > 1 ? (int64_t[]){n, k} : (int64_t[]){k}, role);
}

static pl_graph *model(int n_layer, bool tied)
{
    pl_dim n_tok = {1, PL_N_TOK};
    pl_tensor ids, table, x;
    pl_graph *g;
    char name[64];

    assert_int_equal(pl_graph_create(&g, NULL), PL_OK);
    ids = pl_input(g, "tokens", PL_I32, 1, &n_tok);
    table = weight(g, "token_embd.weight", 128, 64, PL_ROLE_TOKEN_EMBD);
    x = pl_gather_rows(g, table, ids);
    for (int l = 0; l < n_layer; l++) {
        pl_tensor up, down;

        pl_layer(g, l);
        snprintf(name, sizeof name, "blk.%d.ffn_norm.weight", l);
        up = pl_rms_norm(g, x, weight(g, name, 1, 64, PL_ROLE_NORM), 1e-5f);
        snprintf(name, sizeof name, "blk.%d.ffn_up.weight", l);
        up = pl_matmul(g, up, weight(g, name, 96, 64, PL_ROLE_FFN_UP));
        snprintf(name, sizeof name, "blk.%d.ffn_down.weight", l);
        down = pl_matmul(g, pl_silu(g, up),
                         weight(g, name, 64, 96, PL_ROLE_FFN_DOWN));
        x = pl_add(g, x, down);
    }
    pl_layer(g, -1);
    x = pl_rms_norm(g, x, weight(g, "output_norm.weight", 1, 64, PL_ROLE_NORM),
                    1e-5f);
    x = pl_matmul(g, x,
                  tied ? table
                       : weight(g, "output.weight", 128, 64, PL_ROLE_OUTPUT));
    pl_output(g, x);
    assert_int_equal(pl_graph_check(g, NULL), PL_OK);
    return g;
}

/* ---- groups as text ----------------------------------------------------- */

/* Writes "tensor(a0:0-1 a1:2); layers 0 0 1": groups with members' ranks,
 * layers. */
static void describe(const struct placement *p, const struct device_list *l,
                     char *buf, size_t size)
{
    size_t at = 0;

    for (int i = 0; i < p->n_group; i++) {
        const struct place_group *y = &p->group[i];

        at += (size_t)snprintf(buf + at, size - at, "%s(", y->name);
        for (int k = 0; k < y->n; k++) {
            const struct place_member *m = &p->member[y->first + k];

            assert_int_equal(m->group, i);
            at += (size_t)snprintf(buf + at, size - at, "%s%s:", k ? " " : "",
                                   l->dev[m->dev].name);
            if (m->n_rank == 0)
                at += (size_t)snprintf(buf + at, size - at, "-");
            else
                at += (size_t)snprintf(buf + at, size - at, "%d-%d", m->rank0,
                                       m->rank0 + m->n_rank - 1);
        }
        at += (size_t)snprintf(buf + at, size - at, ") ");
    }
    for (int i = 0; i <= p->n_layer; i++)
        at += (size_t)snprintf(buf + at, size - at, "%s%d", i ? "," : "",
                               p->layer_group[i]);
    assert_true(at < size);
}

struct asked {
    const char *spec; /* description of paper devices */
    pl_options opt;
    const char *want;
};

#define SPLIT(...)                                                             \
    .tensor_split = (const double[]){__VA_ARGS__},                             \
    .n_tensor_split = sizeof((const double[]){__VA_ARGS__}) / sizeof(double)

static const char two[] = "a:1GiB:1GB/s*2", four[] = "a:1GiB:1GB/s*4";

TEST(place_groups_follow_the_options)
{
    static const char big[] = "a:1GiB:1GB/s,b:3GiB:1GB/s,host:9GiB:1GB/s";
    const struct asked asked[] = {
        {two, {0}, "tensor(a0:0-0 a1:1-1) 0,0,0,0"},
        {two, {.n_ranks = 3}, "tensor(a0:0-1 a1:2-2) 0,0,0,0"},
        {four, {.n_ranks = 2}, "tensor(a0:0-0 a1:1-1 a2:- a3:-) 0,0,0,0"},
        {two, {.n_ranks = 4, SPLIT(3, 1)}, "tensor(a0:0-2 a1:3-3) 0,0,0,0"},
        {two, {SPLIT(3, 1)}, "tensor(a0:0-0 a1:1-1) 0,0,0,0"},
        {four,
         {.split_mode = PL_SPLIT_NONE, .main_device = 2},
         "a2(a2:0-0) 0,0,0,0"},
        {four,
         {.split_mode = PL_SPLIT_NONE, .n_ranks = 3},
         "a0(a0:0-2) 0,0,0,0"},
        {two,
         {.split_mode = PL_SPLIT_LAYER},
         "layer0(a0:0-0) layer1(a1:0-0) 0,0,1,1"},
        {two,
         {.split_mode = PL_SPLIT_LAYER, .n_ranks = 4, SPLIT(3, 1)},
         "layer0(a0:0-3) layer1(a1:0-3) 0,0,0,1"},
        {two,
         {.split_mode = PL_SPLIT_LAYER, SPLIT(0, 1)},
         "layer0(a0:0-0) layer1(a1:0-0) 1,1,1,1"},
        {big,
         {.split_mode = PL_SPLIT_LAYER},
         "layer0(a0:0-0) layer1(b0:0-0) 0,1,1,1"},
        {four,
         {.split_mode = PL_SPLIT_HYBRID, .hybrid_size = 2},
         "hybrid0(a0:0-0 a1:1-1) hybrid1(a2:0-0 a3:1-1) 0,0,1,1"},
        {four,
         {.split_mode = PL_SPLIT_HYBRID, .hybrid_size = 3},
         "hybrid0(a0:0-0 a1:1-1 a2:2-2) hybrid1(a3:0-2) 0,0,0,1"},
        {four,
         {.split_mode = PL_SPLIT_HYBRID, .hybrid_size = 9},
         "hybrid0(a0:0-0 a1:1-1 a2:2-2 a3:3-3) 0,0,0,0"},
        {four,
         {.split_mode = PL_SPLIT_HYBRID,
          .hybrid_size = 2,
          .n_ranks = 4,
          SPLIT(3, 1, 0, 0)},
         "hybrid0(a0:0-2 a1:3-3) hybrid1(a2:0-1 a3:2-3) 0,0,0,0"},
        {two,
         {.device_layers = "2"},
         "tensor(a0:0-0 a1:1-1) host(host:0-1) 1,1,0,0"},
        {two,
         {.device_layers = "0"},
         "tensor(a0:0-0 a1:1-1) host(host:0-1) 1,1,1,1"},
        {two, {.device_layers = "99"}, "tensor(a0:0-0 a1:1-1) 0,0,0,0"},
        {two,
         {.host_cache = true},
         "tensor(a0:0-0 a1:1-1) host(host:0-1) 0,0,0,0"},
        {two,
         {.overrides = (const char *[]){"a=mirrored,b=CPU"}, .n_overrides = 1},
         "tensor(a0:0-0 a1:1-1) host(host:0-1) 0,0,0,0"},
        {two,
         {.split_mode = PL_SPLIT_LAYER,
          .device_layers = "3",
          .host_experts = "all"},
         "layer0(a0:0-0) layer1(a1:0-0) host(host:0-0) 2,0,1,1"},
        {"none", {.n_ranks = 2}, "host(host:0-1) 0,0,0,0"},
    };

    for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++) {
        struct place_scene s;
        pl_options opt = asked[i].opt;
        char have[512];

        opt.device_spec = asked[i].spec;
        if (place_scene_open(&s, model(3, false), opt) != PL_OK)
            fail_msg("case %zu: %s", i, s.err.message);
        describe(&s.p, &s.l, have, sizeof have);
        assert_string_equal(have, asked[i].want);
        for (int r = 0; r < s.p.n_rank; r++)
            if (opt.n_ranks || opt.split_mode > PL_SPLIT_TENSOR)
                assert_true(s.p.share[r] == s.p.share[0]);
        assert_int_equal(s.p.input_group, s.p.layer_group[0]);
        place_scene_close(&s);
    }
}

TEST(place_shares_of_a_tensor_split_are_the_ranks)
{
    pl_options opt = {.device_spec = two, SPLIT(3, 1)};
    struct place_scene s;

    assert_int_equal(place_scene_open(&s, model(1, false), opt), PL_OK);
    assert_true(s.p.share[0] == 3 * s.p.share[1]);
    place_scene_close(&s);
}

TEST(place_a_tied_embedding_goes_with_the_output)
{
    pl_options opt = {.device_spec = two, .split_mode = PL_SPLIT_LAYER};
    struct place_scene s;

    assert_int_equal(place_scene_open(&s, model(3, true), opt), PL_OK);
    assert_int_equal(s.p.layer_group[0], 0);
    assert_int_equal(s.p.input_group, 1);
    place_scene_close(&s);
}

TEST(place_layers_on_no_devices_are_warned_of)
{
    static const struct {
        const char *layers, *warned;
    } rows[] = {
        {NULL, ""},
        {"auto", ""},
        {"0", ""},
        {"all",
         "-ngl all has no effect: without devices the host has all layers\n"},
        {"2",
         "-ngl 2 has no effect: without devices the host has all layers\n"}};

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        pl_options opt = {.device_spec = "none",
                          .device_layers = rows[i].layers};
        struct place_scene s;

        assert_int_equal(place_scene_open(&s, model(1, false), opt), PL_OK);
        assert_string_equal(s.warned, rows[i].warned);
        place_scene_close(&s);
    }
}

TEST(place_group_errors_name_value_and_remedy)
{
    const struct asked asked[] = {
        {two, {SPLIT(1, 2, 3)}, "3 shares for 2 devices"},
        {two,
         {.split_mode = PL_SPLIT_LAYER, SPLIT(1, -2)},
         "(-ts) is -2; shares"},
        {two, {.split_mode = PL_SPLIT_LAYER, SPLIT(0, 0)}, "all shares"},
        {two,
         {.split_mode = PL_SPLIT_NONE, .main_device = 2},
         "(-mg) is 2, but devices are numbered 0 to 1"},
        {two, {.split_mode = PL_SPLIT_HYBRID}, "groups of 0 devices"},
        {two, {.split_mode = 77}, "unknown split mode 77"},
        {two, {.n_ranks = 65}, "65 ranks requested; 1 to 64"},
        {two, {.n_ranks = -1}, "-1 ranks requested; 1 to 64"},
        {"a:1GiB:1GB/s*65",
         {.split_mode = PL_SPLIT_TENSOR},
         "65 devices in one group, but a tensor split has at most 64"},
        {two, {.device_layers = "-3"}, "(-ngl) \"-3\""},
        {two, {.device_layers = ""}, "(-ngl) \"\""},
        {two,
         {.overrides = (const char *[]){"blk=host,x"}, .n_overrides = 1},
         "(-ot) \"x\": give REGEX=WHERE"},
    };

    for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++) {
        struct place_scene s;
        pl_options opt = asked[i].opt;

        opt.device_spec = asked[i].spec;
        assert_int_equal(place_scene_open(&s, model(3, false), opt),
                         PL_BAD_ARGUMENT);
        if (!strstr(s.err.message, asked[i].want))
            fail_msg("case %zu: \"%s\" does not say \"%s\"", i, s.err.message,
                     asked[i].want);
        place_scene_close(&s);
    }
}

/* ---- overrides ---------------------------------------------------------- */

TEST(override_commas_of_the_expression_do_not_split)
{
    static const struct {
        const char *text, *want;
    } cases[] = {
        {"a=host", "a>host "},
        {"a=host,b=split:1", "a>host b>split:1 "},
        {"blk\\.[0-9]{1,2}\\.ffn=CPU,x{2,}y=cpu0",
         "blk\\.[0-9]{1,2}\\.ffn>CPU x{2,}y>cpu0 "},
        {"(?=a){1,2}b=host", "(?=a){1,2}b>host "},
        {"a=b=host", "a=b>host "},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct place_scene s;
        char have[256] = "";
        size_t at = 0;

        assert_int_equal(
            place_scene_open(&s, place_model(1),
                             (pl_options){.device_spec = "cpu:1GiB:1GB/s",
                                          .overrides = &cases[i].text,
                                          .n_overrides = 1}),
            PL_OK);
        for (int k = 0; k < s.in.n_override; k++)
            at += (size_t)snprintf(have + at, sizeof have - at, "%s>%s ",
                                   s.in.override[k].regex,
                                   s.in.override[k].where);
        assert_string_equal(have, cases[i].want);
        place_scene_close(&s);
    }
}
