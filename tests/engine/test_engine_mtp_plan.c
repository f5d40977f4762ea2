/* A plan with a block for multi-token prediction: it has the memory of both,
 * options reach both, and the model's ranks are those that it has alone. */
#include "device/device_inner.h"
#include "engine/engine.h"
#include "fit/fit.h"
#include "lib/alloc_fail.h"
#include "lib/engine_run.h"
#include "lib/made_model.h"
#include "report/plan_facts.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A model of three layers, two of them with experts, and a block. */
static pl_model *open_model(void)
{
    pl_model *m;
    pl_err err;

    TEST_OK(pl_model_open(&m, ref_model_path("glm4moe-f32"), &err), err);
    return m;
}

static pl_options options(const char *spec)
{
    pl_options o;

    pl_options_init(&o);
    o.device_spec = spec;
    o.n_ctx = 256;
    o.n_ubatch = 16;
    o.n_seq = 1;
    o.n_out = 1;
    o.fit_margin = 1;
    o.mtp_texts = 1;
    return o;
}

static pl_plan *plan(const pl_model *m, const pl_options *o)
{
    pl_plan *p;
    pl_err err;

    TEST_OK(pl_plan_create(&p, m, o, &err), err);
    return p;
}

/* Returns the group of the weights and caches of a plan whose names contain a
 * part; -1 if they are in several. */
static int home_of(const pl_plan *p, const char *part)
{
    int home = -2;

    for (int i = 0; i < p->graph->n_node; i++) {
        const struct graph_node *n = &p->graph->node[i];

        if ((n->op == OP_weight || n->op == OP_memory) && strstr(n->name, part))
            home = home == -2 || home == p->compiled->home[i]
                       ? p->compiled->home[i]
                       : -1;
    }
    if (home == -2)
        fail_msg("no tensor %s", part);
    return home;
}

static bool on_host(const pl_plan *p, const char *part)
{
    return home_of(p, part) == p->compiled->place.host;
}

/* ---- memory -------------------------------------------------------------- */

/* Returns the bytes on the device of a plan on one. */
static uint64_t device_bytes(const pl_model *m, const pl_options *o,
                             uint64_t *of_block)
{
    pl_plan *p = plan(m, o);
    uint64_t n = fit_need(p->compiled, 0);

    *of_block = fit_need(p->block->compiled, 0);
    pl_plan_free(p);
    return n;
}

/* Returns the value of an option of a plan, at most 31 characters, or NULL. */
static const char *value_of(const pl_plan *p, const char *name, char value[32])
{
    const char *at = strstr(pl_plan_options(p), name);

    return at && sscanf(at + strlen(name), "%31s", value) == 1 ? value : NULL;
}

/* Checks that a plan's options, which also the block's plan has, give the same
 * plan of both. */
static void expect_repeated(const pl_model *m, const pl_plan *p, pl_options o)
{
    char layers[32], experts[32];
    pl_plan *again;

    assert_string_equal(pl_plan_options(p->block), pl_plan_options(p));
    o.mtp_texts = 1;
    o.no_fit = true;
    o.device_layers = value_of(p, "-ngl ", layers);
    o.host_experts = strstr(pl_plan_options(p), "-cmoe")
                         ? "all"
                         : value_of(p, "-ncmoe ", experts);
    again = plan(m, &o);
    assert_string_equal(pl_plan_options(again), pl_plan_options(p));
    assert_int_equal(again->block->compiled->list.n,
                     p->block->compiled->list.n);
    for (int d = 0; d < p->block->compiled->list.n; d++)
        assert_int_equal(fit_need(again->block->compiled, d),
                         fit_need(p->block->compiled, d));
    pl_plan_free(again);
}

/* A device with less and less memory. The plan has the ranks of the model
 * alone, and what it has on the device fits there, or the message says what the
 * block needs. */
TEST(mtp_plans_fit_with_the_block)
{
    pl_model *m = open_model();
    pl_options o = options("gpu:1GiB:1TB/s");
    uint64_t block, all = device_bytes(m, &o, &block);
    int n_moved = 0, n_short = 0;

    assert_true(block > 64 << 10);
    for (int k = 0; k <= 12; k++) {
        const uint64_t memory = all + block + 1 - (uint64_t)k * block / 8;
        pl_plan *alone, *both;
        char spec[100];
        pl_status s;
        pl_err err;

        snprintf(spec, sizeof spec,
                 "gpu:%lluB:1TB/s:link=20GB/s,host:1GiB:50GB/s",
                 (unsigned long long)memory);
        o = options(spec);
        both = plan(m, &o);
        if (fit_need(both->compiled, 0) + fit_need(both->block->compiled, 0) >
            memory)
            fail_msg("%s: %s does not fit", spec, pl_plan_options(both));
        o.mtp_texts = 0;
        alone = plan(m, &o);
        assert_null(alone->block);
        assert_true(both->compiled->numeric_hash ==
                    alone->compiled->numeric_hash);
        n_moved += k <= 8 && fit_need(both->compiled, 0) != all;
        expect_repeated(m, both, o);
        pl_plan_free(both);
        pl_plan_free(alone);
        o.mtp_texts = 1;
        o.no_fit = true;
        s = pl_plan_create(&both, m, &o, &err);
        assert_int_equal(s, k == 0 ? PL_OK : PL_NO_DEVICE_MEMORY);
        if (s != PL_OK && k <= 8) {
            n_short++;
            assert_non_null(strstr(err.message, "gpu0: needs "));
            assert_non_null(
                strstr(err.message, "block for multi-token prediction "));
            assert_non_null(strstr(err.message, "leaving out draft-mtp saves"));
        }
        pl_plan_free(both);
    }
    assert_true(n_moved == 8 && n_short == 8);
    pl_model_free(m);
}

/* Tight memory of several devices changes what they hold, but no ranks. */
TEST(mtp_blocks_change_no_ranks)
{
    static const pl_split_mode modes[] = {PL_SPLIT_AUTO, PL_SPLIT_TENSOR,
                                          PL_SPLIT_LAYER};
    pl_model *m = open_model();
    pl_options o = options("gpu:1GiB:1TB/s");
    uint64_t block, all = device_bytes(m, &o, &block);

    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        for (int k = 0; k < 5; k++) {
            pl_plan *alone, *both;
            char spec[120];

            snprintf(spec, sizeof spec,
                     "gpu:%lluB:1TB/s,gpu:%lluB:2TB/s*2,host:1GiB:50GB/s",
                     (unsigned long long)(all * (unsigned)(k + 1) / 4),
                     (unsigned long long)(all / 2 + block / 2));
            o = options(spec);
            o.split_mode = modes[i];
            both = plan(m, &o);
            o.mtp_texts = 0;
            alone = plan(m, &o);
            if (both->compiled->numeric_hash != alone->compiled->numeric_hash)
                fail_msg("%s: %s; alone %s", spec, pl_plan_options(both),
                         pl_plan_options(alone));
            pl_plan_free(both);
            pl_plan_free(alone);
        }
    pl_model_free(m);
}

/* The reported bytes are what the engines allocate. */
TEST(mtp_plans_report_what_is_allocated)
{
    static const char *const devices[] = {"cpu*1", "cpu*2", "sim*2",
                                          "cpu*1,sim*1"};
    pl_model *m = open_model();

    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
        pl_options o = options(NULL);
        struct plan_facts f;
        pl_engine *e;
        pl_err err;

        o.devices = devices[i];
        o.split_mode = PL_SPLIT_TENSOR;
        o.n_threads = 1;
        TEST_OK(pl_engine_create(&e, m, &o, &err), err);
        TEST_OK(plan_facts_init(&f, pl_engine_plan(e), &err), err);
        assert_int_equal(f.n_dev, e->block->exec->set->n - 1);
        for (int d = 0; d <= f.n_dev; d++) {
            const struct device *x = &e->block->exec->set->dev[d];
            uint64_t n = x->scratch_bytes;

            for (int r = 0; r < REGION_COUNT; r++)
                n += x->bytes[r];
            assert_int_equal(n, (d < f.n_dev ? &f.dev[d] : &f.io)->block);
        }
        plan_facts_fini(&f);
        pl_engine_free(e);
    }
    pl_model_free(m);
}

/* ---- options ------------------------------------------------------------- */

static void count_warnings(void *user, pl_log_level level, const char *text)
{
    if (level >= PL_LOG_WARN && strstr(text, "(-ot)"))
        ++*(int *)user;
}

/* Checks that the devices of a plan have all bytes of its block. */
static void expect_all_bytes(const pl_plan *p)
{
    const struct compiled *q = p->block->compiled;
    struct plan_facts f;
    uint64_t all;
    pl_err err;

    TEST_OK(plan_facts_init(&f, p, &err), err);
    all = f.io.block;
    for (int d = 0; d < f.n_dev; d++)
        all += f.dev[d].block;
    for (int d = 0; d < q->list.n; d++)
        all -= fit_need(q, d);
    assert_true(all == 0);
    plan_facts_fini(&f);
}

/* Overrides and layers on the host reach the block, which is layer 3. */
TEST(mtp_options_reach_the_block)
{
    static const struct {
        const char *ot, *experts, *layers;
        /* the model's layer 2, and the block's attention and experts, are on
         * the host */
        bool model_host, attn, exps;
        int n_warning;
    } rows[] = {
        {NULL, NULL, NULL, false, false, false, 0},
        {"blk\\.3\\.=host", NULL, NULL, false, true, true, 0},
        {"blk\\.3\\..*exps=CPU", NULL, NULL, false, false, true, 0},
        {"blk\\.2\\.=host", NULL, NULL, true, false, false, 0},
        {"blk\\.4\\.=host", NULL, NULL, false, false, false, 1},
        {NULL, "3-3", NULL, false, false, true, 0},
        {NULL, "all", NULL, false, false, true, 0},
        {NULL, "3", NULL, false, false, false, 0},
        {NULL, "4", NULL, false, false, true, 0},
        {NULL, NULL, "all", false, false, false, 0},
        {NULL, NULL, "2", false, false, false, 0},
        {NULL, NULL, "1", true, true, true, 0},
    };
    pl_model *m = open_model();
    pl_options o;
    pl_plan *p;
    pl_err err;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int n_warning = 0;

        o = options("gpu:1GiB:1TB/s,host:1GiB:50GB/s");
        o.overrides = &rows[i].ot;
        o.n_overrides = rows[i].ot != NULL;
        o.host_experts = rows[i].experts;
        o.device_layers = rows[i].layers;
        o.log = count_warnings;
        o.log_user = &n_warning;
        p = plan(m, &o);
        assert_int_equal(n_warning, rows[i].n_warning);
        assert_int_equal(on_host(p, "blk.2.attn_q.weight"), rows[i].model_host);
        assert_int_equal(on_host(p->block, "blk.3.attn_q.weight"),
                         rows[i].attn);
        assert_int_equal(on_host(p->block, "blk.3.ffn_up_exps"), rows[i].exps);
        assert_int_equal(on_host(p->block, "token_embd"),
                         on_host(p, "token_embd"));
        expect_all_bytes(p);
        pl_plan_free(p);
    }
    o = options("gpu:1GiB:1TB/s,host:1GiB:50GB/s");
    o.host_experts = "4-4";
    assert_int_equal(pl_plan_create(&p, m, &o, &err), PL_BAD_ARGUMENT);
    assert_non_null(strstr(err.message, "its layers are 0 to 3"));
    o.host_experts = "3-3";
    o.mtp_texts = 0;
    assert_int_equal(pl_plan_create(&p, m, &o, &err), PL_BAD_ARGUMENT);
    assert_non_null(strstr(err.message, "its layers are 0 to 2"));
    pl_model_free(m);
}

/* The block is on machine 0 alone. */
TEST(mtp_blocks_are_on_machine_0)
{
    static const pl_split_mode modes[] = {PL_SPLIT_NONE, PL_SPLIT_LAYER,
                                          PL_SPLIT_TENSOR, PL_SPLIT_HYBRID,
                                          PL_SPLIT_AUTO};
    static const char *const specs[] = {
        "gpu:1GiB:1TB/s*2,gpu:1GiB:1TB/s:machine=1*2,host:1GiB:50GB/s",
        "gpu:1GiB:1TB/s:machine=1*2,gpu:1GiB:1TB/s*2,host:1GiB:50GB/s",
        "gpu:1GiB:1TB/s:machine=1*4,host:1GiB:50GB/s"};
    static const char *const ot[] = {"attn_q=1/gpu0", "blk.3.attn_k=host"};
    static const double shares[] = {1, 2, 3, 1};
    pl_model *m = open_model();

    for (size_t k = 0; k < 3; k++)
        for (size_t i = 0; i < 2 * sizeof modes / sizeof *modes; i++) {
            pl_options o = options(specs[k]);
            const struct device_list *l;
            pl_plan *p;

            o.split_mode = modes[i / 2];
            o.hybrid_size = -1;
            o.main_device = 1;
            o.overrides = ot;
            o.n_overrides = 2;
            if (i % 2 && o.split_mode != PL_SPLIT_NONE) {
                o.tensor_split = shares;
                o.n_tensor_split = 4;
            }
            p = plan(m, &o);
            l = &p->block->compiled->list;
            for (int d = 0; d < l->n; d++)
                assert_int_equal(l->dev[d].machine, 0);
            assert_int_equal(on_host(p->block, "blk.3.attn_q.weight"), k == 2);
            assert_true(on_host(p->block, "blk.3.attn_k.weight"));
            pl_plan_free(p);
        }
    pl_model_free(m);
}

/* ---- reports ------------------------------------------------------------- */

struct written {
    char s[1 << 16];
    size_t n;
};

static void write_all(void *user, const char *s, size_t n)
{
    struct written *w = user;

    assert_true(w->n + n < sizeof w->s);
    memcpy(w->s + w->n, s, n);
    w->n += n;
    w->s[w->n] = '\0';
}

TEST(mtp_plans_print_the_block)
{
    struct written *w = test_need(1, sizeof *w);
    pl_model *m = open_model();
    pl_options o = options("gpu:1GiB:1TB/s*2,host:1GiB:50GB/s");
    const json_t *block, *devices, *of_model, *tensors;
    uint64_t bytes = 0, of_devices = 0;
    bool named = false;
    char line[400];
    pl_plan *p = plan(m, &o);
    struct plan_facts f;
    json_t *j;
    pl_err err;

    TEST_OK(plan_facts_init(&f, p, &err), err);
    TEST_OK(pl_plan_print(p, false, write_all, w, &err), err);
    assert_non_null(strstr(w->s, " buffers    block    bytes"));
    assert_non_null(
        strstr(w->s, "\nblock     multi-token prediction 1, blk.3"));
    assert_non_null(strstr(w->s, "nextn.eh_proj"));
    assert_non_null(strstr(w->s, "\nlayer 3\n"));
    w->n = 0;
    TEST_OK(pl_plan_svg(p, write_all, w, &err), err);
    assert_non_null(strstr(w->s, ", block "));
    pl_plan_summary(p, line, sizeof line);
    assert_non_null(strstr(line, ", block "));
    w->n = 0;
    TEST_OK(pl_plan_print(p, true, write_all, w, &err), err);
    j = json_loads(w->s, 0, NULL);
    assert_non_null(j);
    block = json_object_get(j, "block");
    devices = json_object_get(block, "devices");
    of_model = json_object_get(j, "devices");
    tensors = json_object_get(block, "tensors");
    assert_int_equal(json_array_size(devices), f.n_dev);
    for (size_t i = 0; i < json_array_size(tensors); i++)
        named |= !strcmp(json_string_value(json_object_get(
                             json_array_get(tensors, i), "name")),
                         "blk.3.nextn.eh_proj.weight");
    assert_true(named);
    for (int d = 0; d < f.n_dev; d++) {
        const json_t *b =
            json_object_get(json_array_get(devices, (size_t)d), "bytes");

        bytes += (uint64_t)json_integer_value(json_object_get(b, "weights"));
        bytes += (uint64_t)json_integer_value(json_object_get(b, "cache"));
        bytes += (uint64_t)json_integer_value(json_object_get(b, "buffers"));
        b = json_object_get(json_array_get(of_model, (size_t)d), "bytes");
        assert_int_equal(json_integer_value(json_object_get(b, "block")),
                         f.dev[d].block);
        of_devices += f.dev[d].block;
    }
    assert_int_equal(bytes, of_devices);
    assert_true(bytes > 0);
    json_decref(j);
    plan_facts_fini(&f);
    pl_plan_free(p);
    o.mtp_texts = 0;
    p = plan(m, &o);
    w->n = 0;
    TEST_OK(pl_plan_print(p, true, write_all, w, &err), err);
    assert_non_null(strstr(w->s, "\"block\": null"));
    pl_plan_free(p);
    pl_model_free(m);
    free(w);
}

/* ---- failures ------------------------------------------------------------ */

TEST(mtp_plans_survive_each_failed_allocation)
{
    static const char *const ot[] = {"blk.3.attn_k=host"};
    pl_model *m = open_model();

    for (int machines = 0; machines < 2; machines++)
        for (int64_t n = 0; alloc_each(&n);) {
            pl_options o =
                options(machines ? "gpu:1GiB:1TB/s,gpu:1GiB:1TB/s:machine=1"
                                 : "gpu:1GiB:1TB/s");
            pl_plan *p;
            pl_err err;

            o.overrides = ot;
            o.n_overrides = 1;
            o.split_mode = PL_SPLIT_TENSOR;
            alloc_ran(pl_plan_create(&p, m, &o, &err));
            pl_plan_free(p);
        }
    pl_model_free(m);
}

TEST(mtp_engines_survive_each_failed_allocation)
{
    pl_model *m = open_model();

    for (int64_t n = 0; alloc_each(&n);) {
        pl_options o = options(NULL);
        pl_engine *e;
        pl_status s;
        pl_err err;

        o.devices = "cpu";
        o.n_threads = 1;
        s = pl_engine_create(&e, m, &o, &err);
        alloc_ran(s == PL_NO_DEVICE_MEMORY ? PL_NO_MEMORY : s);
        pl_engine_free(e);
    }
    pl_model_free(m);
}
