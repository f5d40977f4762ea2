/* The group of each op: the minimum of all assignments, in the scenes that
 * people split models for. */
#include "lib/alloc_fail.h"
#include "lib/place_model.h"
#include "lib/random_graph.h"
#include "lib/support.h"
#include "plan/mincut.h"
#include "plan/place.h"
#include "plan/roles.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- labels, by exhaustive search --------------------------------------- */

enum { MAX_V = 14, MAX_GLUE = 9 };

struct drawn {
    struct glue g;
    int label[MAX_V], width[4], reader[MAX_V * MAX_V], n_reader;
    bool movable[MAX_V];
    struct mincut_value value[MAX_V];
};

static void draw(struct drawn *d, int n_label, uint64_t *seed)
{
    int n = 4 + (int)test_below(seed, MAX_V - 3), n_glue = 0;

    memset(d, 0, sizeof *d);
    d->g = (struct glue){.n = n,
                         .n_label = n_label,
                         .label = d->label,
                         .movable = d->movable,
                         .width = d->width,
                         .value = d->value,
                         .reader = d->reader};
    for (int l = 0; l < n_label; l++)
        d->width[l] = 1 + (int)test_below(seed, 3);
    for (int i = 0; i < n; i++) {
        d->movable[i] = n_glue < MAX_GLUE && test_below(seed, 3) > 0;
        n_glue += d->movable[i];
        d->label[i] =
            d->movable[i] ? -1 : (int)test_below(seed, (int64_t)n_label);
    }
    for (int i = 0; i < n; i++) {
        struct mincut_value *v = &d->value[d->g.n_value];

        *v = (struct mincut_value){
            .from = i,
            .first = d->n_reader,
            .bytes = 1 + test_below(seed, 9),
            .copies = test_below(seed, 2) ? 3 : 1.5,
            .in_ranks = test_below(seed, 5) == 0,
        };
        for (int k = i + 1; k < n; k++)
            if (test_below(seed, 4) == 0)
                d->reader[v->first + v->n++] = k;
        d->n_reader += v->n;
        d->g.n_value += v->n > 0;
    }
}

static int64_t exhausted(struct drawn *d)
{
    int at[MAX_V], n = 0, label[MAX_V];
    int64_t best = INT64_MAX;

    memcpy(label, d->label, sizeof label);
    for (int i = 0; i < d->g.n; i++)
        if (d->movable[i])
            at[n++] = i;
    for (int code = 0;; code++) {
        int rest = code;
        int64_t cost;

        for (int i = 0; i < n; i++, rest /= d->g.n_label)
            d->label[at[i]] = rest % d->g.n_label;
        if (rest)
            break;
        assert_int_equal(mincut_cost(&d->g, &cost, NULL), PL_OK);
        if (cost < best)
            best = cost;
    }
    memcpy(d->label, label, sizeof label);
    return best;
}

/* Each member of a group that lacks a part takes a copy. Addends of all ranks
 * are copied, however few members there are. */
TEST(glue_copies_are_paid_for_each_member)
{
    static const int width[] = {1, 2, 4};
    struct glue g = {.n_label = 3, .width = width};
    struct mincut_value whole = {.bytes = 10, .copies = 4};
    struct mincut_value parts = {.bytes = 10, .copies = 1.5};
    struct mincut_value ranks = {.bytes = 10, .copies = 4, .in_ranks = true};

    assert_int_equal(glue_cost_to(&g, &whole, 0), 10);
    assert_int_equal(glue_cost_to(&g, &whole, 1), 20);
    assert_int_equal(glue_cost_to(&g, &whole, 2), 40);
    assert_int_equal(glue_cost_to(&g, &parts, 0), 10);
    assert_int_equal(glue_cost_to(&g, &parts, 2), 15);
    assert_int_equal(glue_cost_to(&g, &ranks, 0), 40);
}

TEST(glue_of_two_groups_costs_the_minimum)
{
    uint64_t seed = test_seed();

    for (int i = 0; i < 400; i++) {
        struct drawn d;
        int64_t best, have;

        draw(&d, 2, &seed);
        best = exhausted(&d);
        assert_int_equal(mincut_solve(&d.g, NULL), PL_OK);
        assert_int_equal(mincut_cost(&d.g, &have, NULL), PL_OK);
        assert_int_equal(have, best);
    }
}

/* Swaps may end in a local minimum; seldom, and never far off. */
TEST(glue_of_many_groups_is_near_the_minimum)
{
    uint64_t seed = test_seed();
    int worse = 0, n = 150;
    int64_t sum = 0, least = 0;

    for (int i = 0; i < n; i++) {
        struct drawn d;
        int64_t best, have;

        draw(&d, 3 + i % 2, &seed);
        if (i % 2)
            /* at most 11 nodes, because trying 4^9 assignments takes long
             * enough */
            d.g.n = d.g.n < 11 ? d.g.n : 11;
        for (int k = 0; i % 2 && k < d.g.n_value; k++)
            while (d.value[k].n > 0 &&
                   (d.value[k].from >= d.g.n ||
                    d.reader[d.value[k].first + d.value[k].n - 1] >= d.g.n))
                d.value[k].n--;
        while (d.g.n_value > 0 && d.value[d.g.n_value - 1].from >= d.g.n)
            d.g.n_value--;
        best = exhausted(&d);
        assert_int_equal(mincut_solve(&d.g, NULL), PL_OK);
        assert_int_equal(mincut_cost(&d.g, &have, NULL), PL_OK);
        assert_true(have >= best);
        worse += have > best;
        sum += have;
        least += best;
    }
    assert_true(worse <= n / 10);
    assert_true(sum - least <= least / 50);
}

/* ---- copies between groups ----------------------------------------------- */

static void scene_open(struct place_scene *s, int n_layer,
                       const pl_options *opt)
{
    if (place_scene_open(s, place_model(n_layer), *opt) != PL_OK ||
        roles_layouts(s->g, s->p.n_rank, s->p.share, &s->a, s->want, &s->err) !=
            PL_OK ||
        place_scene_leaves(s) != PL_OK ||
        numeric_create(&s->num, s->g, s->p.n_rank, s->want, &s->err) != PL_OK)
        fail_msg("%s", s->err.message);
    s->at = arena_alloc(&s->a, (size_t)s->num->n, sizeof *s->at);
}

/* Writes "v.0:0>1 kqv.0:1>0": values made in one group and read in another, in
 * order, each once a group. Reshapes and conversions have the name of their
 * contents. */
static void crossings(const struct place_scene *s, char *buf, size_t size_)
{
    size_t at = 0;

    buf[0] = '\0';
    for (int i = 0; i < s->num->n; i++)
        for (int k = 0; k < s->num->node[i].n_in; k++) {
            int j = s->num->node[i].in[k], from;
            char word[96];
            const struct graph_node *x;

            if (j < 0 || s->at[j] < 0 || s->at[j] == s->at[i])
                continue;
            from = s->at[j];
            for (x = &s->g->node[s->num->node[j].node]; x->op == OP_reshape;)
                x = &s->g->node[x->in[0]];
            if (x->op == OP_weight)
                continue;
            snprintf(word, sizeof word, "%s:%d>%d ", x->name, from, s->at[i]);
            if (strstr(buf, word))
                continue;
            at += (size_t)snprintf(buf + at, size_ - at, "%s", word);
            assert_true(at < size_);
        }
}

static void must_cross(int n_layer, pl_options opt, const bool *away,
                       const char *want)
{
    struct place_scene s;
    char have[2048];
    pl_err err;

    scene_open(&s, n_layer, &opt);
    TEST_OK(place_ops(&s.p, s.num, s.home, away, s.at, &err), err);
    crossings(&s, have, sizeof have);
    assert_string_equal(have, want);
    for (int i = 0; i < s.num->n; i++) {
        const struct num_node *n = &s.num->node[i];

        assert_true(s.at[i] < s.p.n_group);
        if (s.g->node[n->node].op == OP_input)
            assert_int_equal(s.at[i], PLACE_NOWHERE);
        else
            assert_true(s.at[i] >= 0);
        if (n->kind == NUM_ALL_REDUCE || n->kind == NUM_REDUCE_SCATTER)
            assert_int_equal(s.at[i], s.at[n->in[0]]);
    }
    place_scene_close(&s);
}

static const char two[] = "a:1GiB:1GB/s*2", four[] = "a:1GiB:1GB/s*4";

TEST(place_one_group_copies_nothing)
{
    must_cross(2, (pl_options){.device_spec = two}, NULL, "");
    must_cross(2, (pl_options){.device_spec = "none"}, NULL, "");
    must_cross(2, (pl_options){.device_spec = two, .device_layers = "0"}, NULL,
               "");
}

TEST(place_layer_mode_crosses_once_a_boundary)
{
    must_cross(4,
               (pl_options){.device_spec = two, .split_mode = PL_SPLIT_LAYER},
               NULL, "l_out.1:0>1 ");
    must_cross(3,
               (pl_options){.device_spec = four, .split_mode = PL_SPLIT_LAYER},
               NULL, "l_out.0:0>1 l_out.1:1>2 x_out:2>3 ");
    must_cross(7,
               (pl_options){.device_spec = four,
                            .split_mode = PL_SPLIT_HYBRID,
                            .hybrid_size = 2},
               NULL, "l_out.3:0>1 ");
    must_cross(4, (pl_options){.device_spec = two, .device_layers = "2"}, NULL,
               "l_out.2:1>0 ");
}

TEST(place_experts_on_the_host_cross_with_activations)
{
    must_cross(1,
               (pl_options){.device_spec = two,
                            .split_mode = PL_SPLIT_NONE,
                            .host_experts = "all"},
               NULL, "ffn_norm.0:0>1 ids.0:0>1 weights.0:0>1 moe_out.0:1>0 ");
    must_cross(2, (pl_options){.device_spec = two, .host_experts = "1"}, NULL,
               "ffn_norm.0:0>1 ids.0:0>1 weights.0:0>1 moe_out.0:1>0 ");
    must_cross(3,
               (pl_options){.device_spec = two,
                            .split_mode = PL_SPLIT_LAYER,
                            .host_experts = "0-0"},
               NULL,
               "ffn_norm.0:0>2 ids.0:0>2 weights.0:0>2 moe_out.0:2>0 "
               "l_out.1:0>1 ");
}

TEST(place_a_cache_on_the_host_crosses_with_q_k_v)
{
    must_cross(1, (pl_options){.device_spec = two, .host_cache = true}, NULL,
               "k_rope.0:0>1 v.0:0>1 q_rope.0:0>1 kqv.0:1>0 ");
}

TEST(place_away_leaves_are_read_in_their_layers_group)
{
    pl_options opt = {.device_spec = two, .host_experts = "all"};
    struct place_scene s;
    bool *away;

    scene_open(&s, 1, &opt);
    away = calloc((size_t)s.g->n_node, sizeof *away);
    for (int i = 0; i < s.g->n_node; i++)
        away[i] = s.g->node[i].op == OP_weight;
    place_scene_close(&s);
    must_cross(1, opt, away, "");
    free(away);
    opt = (pl_options){.device_spec = two, .host_cache = true};
    scene_open(&s, 1, &opt);
    away = calloc((size_t)s.g->n_node, sizeof *away);
    for (int i = 0; i < s.g->n_node; i++)
        away[i] = s.g->node[i].op == OP_memory;
    place_scene_close(&s);
    /* writes are in the cache's group, attention reads it remotely */
    must_cross(1, opt, away, "k_rope.0:0>1 v.0:0>1 t18:1>0 t21:1>0 ");
    free(away);
}

/* Any graph with leaves spread over three groups: every op has a group, leaves
 * their home's, and products their weight's. */
TEST(place_ops_of_random_graphs_have_places)
{
    uint64_t seed = test_seed();
    pl_options opt = {.device_spec = "a:1GiB:1GB/s*3",
                      .split_mode = PL_SPLIT_LAYER,
                      .n_ranks = 2};
    static const double share[] = {1, 2};

    for (int i = 0; i < 100; i++) {
        struct random_graph r;
        struct device_list l;
        struct placement p;
        struct numeric *num;
        struct arena a = {0};
        struct notes notes = {.a = &a};
        struct plan_config in;
        const pl_layout **leaf;
        int *home, *at;

        random_graph_make(&r, 2, NULL, &seed);
        leaf = arena_alloc(&a, (size_t)r.n_node, sizeof *leaf);
        home = arena_alloc(&a, (size_t)r.n_node, sizeof *home);
        assert_int_equal(
            plan_config_parse(&in, &a, r.g, NULL, &opt, &notes, NULL), PL_OK);
        assert_int_equal(device_list_copy(&l, &in.list, NULL), PL_OK);
        assert_int_equal(place_groups(&p, &a, &l, &in, NULL), PL_OK);
        assert_int_equal(roles_layouts(r.g, 2, share, &a, leaf, NULL), PL_OK);
        assert_int_equal(numeric_create(&num, r.g, 2, leaf, NULL), PL_OK);
        for (int k = 0; k < r.n_node; k++)
            home[k] =
                r.g->node[k].op == OP_weight || r.g->node[k].op == OP_memory
                    ? (int)test_below(&seed, 3)
                    : PLACE_NOWHERE;
        at = arena_alloc(&a, (size_t)num->n, sizeof *at);
        assert_int_equal(place_ops(&p, num, home, NULL, at, NULL), PL_OK);
        for (int k = 0; k < num->n; k++) {
            int v = num->node[k].node;

            assert_in_range(at[k] + 1, r.g->node[v].op == OP_input ? 0 : 1, 3);
            if (home[v] != PLACE_NOWHERE)
                assert_int_equal(at[k], home[v]);
            if (r.g->node[v].op == OP_matmul && num->node[k].kind == NUM_OP &&
                num->g->node[num->node[num->node[k].in[1]].node].op ==
                    OP_weight)
                assert_int_equal(at[k], at[num->node[k].in[1]]);
        }
        numeric_free(num);
        plan_config_free(&in);
        device_list_free(&l);
        random_graph_free(&r);
        arena_fini(&a);
    }
}

TEST(place_ops_of_a_large_model_take_little_time)
{
    pl_options opt = {.device_spec = "a:80GiB:1TB/s*512",
                      .split_mode = PL_SPLIT_HYBRID,
                      .hybrid_size = 8,
                      .host_experts = "0-39"};
    struct timespec t0, t1;
    struct place_scene s;
    double seconds;

    scene_open(&s, 120, &opt);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t0);
    assert_int_equal(place_ops(&s.p, s.num, s.home, NULL, s.at, NULL), PL_OK);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t1);
    seconds = (double)(t1.tv_sec - t0.tv_sec) +
              1e-9 * (double)(t1.tv_nsec - t0.tv_nsec);
    print_message("%d nodes, %d groups: %.3f s\n", s.num->n, s.p.n_group,
                  seconds);
    assert_true(seconds < 1); /* 0.3 s is wanted, but sanitizers are slow */
    place_scene_close(&s);
}

TEST(place_ops_allocation_failure_is_a_status)
{
    pl_options opt = {.device_spec = two, .host_experts = "all"};
    struct place_scene s;

    scene_open(&s, 1, &opt);
    for (int64_t n = 0; alloc_each(&n);)
        alloc_ran(place_ops(&s.p, s.num, s.home, NULL, s.at, NULL));
    place_scene_close(&s);
}
