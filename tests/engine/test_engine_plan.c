/* A plan shows what happens: exact bytes, collectives as the executor counts
 * them, and a speed for machines described on paper. */
#include "cost/cost.h"
#include "device/device_inner.h"
#include "engine/engine.h"
#include "lib/alloc_fail.h"
#include "lib/hollow_model.h"
#include "lib/support.h"
#include "report/plan_facts.h"

#include <ctype.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char paper16[] = "gpu:96GiB:1TB/s*16";
static const char paper64[] = "gpu:96GiB:1TB/s*64";

static pl_model *open_model(const char *path)
{
    pl_model *m;
    pl_err err;

    TEST_OK(pl_model_open(&m, path, &err), err);
    return m;
}

static pl_model *bundled(void)
{
    return open_model(test_model());
}

static pl_model *hollow(const struct hollow_model *shape)
{
    const char *path = test_temp("hollow.gguf");
    pl_err err;

    TEST_OK(hollow_model_write(path, shape, &err), err);
    return open_model(path);
}

static struct hollow_model small_moe(void)
{
    struct hollow_model h = hollow_400b;

    h.n_layer = 3;
    h.d_model = 256;
    h.n_head = 8;
    h.d_head = 32;
    h.n_expert = 8;
    h.n_used = 2;
    h.d_ff = 256;
    h.n_vocab = 320;
    return h;
}

static pl_plan *plan(const pl_model *m, const pl_options *opt)
{
    pl_plan *p;
    pl_err err;

    TEST_OK(pl_plan_create(&p, m, opt, &err), err);
    return p;
}

static struct test_text print(const pl_plan *p, bool json)
{
    struct test_text t = {0};
    pl_err err;

    TEST_OK(pl_plan_print(p, json, test_text_add, &t, &err), err);
    return t;
}

static json_t *print_json(const pl_plan *p)
{
    struct test_text t = print(p, true);
    json_error_t e;
    json_t *all = json_loads(t.s, 0, &e);

    free(t.s);
    if (!all)
        fail_msg("line %d: %s", e.line, e.text);
    return all;
}

static const json_t *field(const json_t *o, const char *name)
{
    const json_t *x = json_object_get(o, name);

    if (!x)
        fail_msg("no field %s", name);
    return x;
}

static int64_t integer(const json_t *o, const char *name)
{
    assert_true(json_is_integer(field(o, name)));
    return json_integer_value(field(o, name));
}

static void check_use(const json_t *u)
{
    static const char *const part[] = {"busy_s", "message_s", "copy_s",
                                       "hidden_s", "idle_s"};

    for (size_t i = 0; i < sizeof part / sizeof part[0]; i++)
        assert_true(json_real_value(field(u, part[i])) >= 0);
    assert_true(json_real_value(field(u, "hidden_s")) <=
                json_real_value(field(u, "copy_s")) + 1e-12);
}

/* Each layer belongs to one group, each device to a group, and copies name
 * groups. */
static void check_groups(const json_t *all, const pl_plan *p)
{
    const json_t *groups = field(all, "groups"), *copies = field(all, "copies");
    const json_t *t = field(all, "tensors");
    size_t n_layer = 0, n_output = 0, n_input = 0;

    for (size_t i = 0; i < json_array_size(groups); i++) {
        const json_t *g = json_array_get(groups, i);

        n_layer += json_array_size(field(g, "layers"));
        n_output += json_is_true(field(g, "output"));
        n_input += json_is_true(field(g, "embedding"));
        assert_true(json_array_size(field(g, "members")) >= 1);
    }
    assert_int_equal(n_layer, p->compiled->place.n_layer);
    assert_int_equal(n_output, 1);
    assert_int_equal(n_input, 1);
    for (size_t i = 0; i < json_array_size(copies); i++) {
        const json_t *c = json_array_get(copies, i);

        assert_string_not_equal(json_string_value(field(c, "from")),
                                json_string_value(field(c, "to")));
        assert_true(integer(c, "bytes") > 0);
        assert_true(json_is_string(field(c, "per")));
        assert_true(json_is_string(field(c, "script")));
        assert_true(integer(c, "layer") >= -1);
    }
    for (size_t i = 0; i < json_array_size(t); i++)
        assert_true(json_is_string(field(json_array_get(t, i), "group")));
}

/* Checks type and sums of every field that programs rely on. */
static void check_json(const pl_plan *p, int n_dev, bool one_group)
{
    json_t *all = print_json(p);
    const json_t *dev = field(all, "devices"), *t = field(all, "tensors");
    const json_t *caches = field(all, "caches");
    const json_t *c = field(all, "collectives"), *e = field(all, "estimate");
    const char *hash = json_string_value(field(all, "numeric_hash"));
    char want[20];
    int64_t bytes = 0;
    int next = 0;

    snprintf(want, sizeof want, "%016" PRIx64, p->compiled->numeric_hash);
    assert_string_equal(hash, want);
    assert_int_equal(json_array_size(dev), n_dev);
    for (int d = 0; d < n_dev; d++) {
        const json_t *x = json_array_get(dev, (size_t)d);
        const json_t *b = field(x, "bytes"), *r = field(x, "ranks");
        int64_t weights = 0, cache = 0;

        assert_true(json_is_string(field(x, "name")));
        /* the devices' lists of ranks name every rank once, in order */
        assert_true(json_is_array(r));
        for (size_t i = 0; i < json_array_size(r) && one_group; i++)
            assert_int_equal(json_integer_value(json_array_get(r, i)), next++);
        check_use(field(field(x, "predicted"), "prefill"));
        check_use(field(field(x, "predicted"), "decode"));
        for (size_t i = 0; i < json_array_size(t); i++)
            weights += json_integer_value(json_array_get(
                field(json_array_get(t, i), "bytes"), (size_t)d));
        for (size_t i = 0; i < json_array_size(caches); i++)
            cache += json_integer_value(json_array_get(
                field(json_array_get(caches, i), "bytes"), (size_t)d));
        assert_int_equal(weights, integer(b, "weights"));
        assert_int_equal(cache, integer(b, "cache"));
        assert_true(integer(b, "buffers") >= 0);
    }
    if (one_group)
        assert_int_equal(next, p->compiled->place.n_rank);
    check_groups(all, p);
    assert_int_equal(json_array_size(t), gguf_n_tensor(p->model->file));
    for (size_t i = 0; i < json_array_size(t); i++) {
        const json_t *x = json_array_get(t, i);

        assert_non_null(gguf_find_tensor(p->model->file,
                                         json_string_value(field(x, "name"))));
        assert_string_not_equal(json_string_value(field(x, "role")), "none");
        assert_true(json_string_length(field(x, "layout")) > 0);
        assert_int_equal(json_array_size(field(x, "bytes")), n_dev);
    }
    for (size_t i = 0; i < json_array_size(field(c, "layers")); i++)
        bytes += integer(json_array_get(field(c, "layers"), i), "bytes");
    assert_int_equal(json_array_size(field(c, "layers")),
                     integer(c, "per_token"));
    assert_int_equal(bytes, integer(c, "bytes_per_token"));
    assert_true(json_real_value(field(e, "prefill_tps")) > 0);
    assert_true(json_real_value(field(e, "decode_tps")) > 0);
    assert_true(isfinite(json_real_value(field(e, "decode_tps"))));
    json_decref(all);
}

TEST(engine_plan_json_adds_up)
{
    static const double uneven[3] = {2, 1, 1};
    static const struct {
        const char *devices;
        int n_dev, n_ranks;
        bool split;
    } rows[] = {
        {"cpu*1", 1, 0, false},       {"cpu*2", 2, 0, false},
        {"cpu*3", 3, 0, true},        {"cpu*3", 3, 8, true},
        {"cpu*2,sim*2", 4, 2, false}, {"sim*3", 3, 0, false},
    };
    pl_model *m = bundled();

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        pl_options o = {.size = sizeof o,
                        .devices = rows[i].devices,
                        .split_mode = PL_SPLIT_TENSOR,
                        .n_threads = 1,
                        .n_ranks = rows[i].n_ranks,
                        .tensor_split = rows[i].split ? uneven : NULL,
                        .n_tensor_split = rows[i].split ? 3 : 0,
                        .n_ubatch = 32};
        pl_plan *p = plan(m, &o);

        check_json(p, rows[i].n_dev, true);
        pl_plan_free(p);
    }
    pl_model_free(m);
}

/* Placements in several groups: copies are shown for both ways. */
TEST(engine_plan_shows_groups_and_copies)
{
    static const struct {
        pl_options o;
        int n_dev, n_group;
        bool copies;
        const char *says[3];
    } rows[] = {
        {{.split_mode = PL_SPLIT_LAYER},
         2,
         2,
         true,
         {"layer0 to layer1", "pipeline ", "layers 0-2"}},
        {{.host_experts = "all"},
         3,
         2,
         true,
         {"tensor to host", "experts of layers 0-4", "streamed"}},
        {{.host_cache = true},
         3,
         2,
         true,
         {"cache of layers 0-4", " in host", "host to tensor"}},
        {{.split_mode = PL_SPLIT_TENSOR},
         2,
         1,
         false,
         {"embedding, layers 0-4, output", "predicted", "hidden"}},
    };
    pl_model *m = bundled();

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        pl_options o = rows[i].o;
        struct test_text t;
        json_t *all;
        pl_plan *p;

        o.size = sizeof o;
        o.devices = "cpu*2";
        o.n_threads = 1;
        p = plan(m, &o);
        check_json(p, rows[i].n_dev, false);
        all = print_json(p);
        assert_int_equal(json_array_size(field(all, "groups")),
                         rows[i].n_group);
        assert_int_equal(json_array_size(field(all, "copies")) > 0,
                         rows[i].copies);
        assert_int_equal(json_is_null(field(all, "pipeline")),
                         rows[i].o.split_mode != PL_SPLIT_LAYER);
        if (rows[i].o.split_mode == PL_SPLIT_LAYER) {
            /* the whole context is one prompt of 512, as in the estimate */
            const json_t *e = field(all, "estimate");
            double s =
                json_number_value(field(field(all, "pipeline"), "seconds"));

            assert_int_equal(json_integer_value(field(e, "prefill_tokens")),
                             512);
            assert_float_equal(json_number_value(field(e, "prefill_tps")) * s,
                               512, 1e-6);
        }
        json_decref(all);
        t = print(p, false);
        for (int k = 0; k < 3; k++)
            if (!strstr(t.s, rows[i].says[k]))
                fail_msg("row %zu lacks %s:\n%s", i, rows[i].says[k], t.s);
        free(t.s);
        pl_plan_free(p);
    }
    pl_model_free(m);
}

/* Layers that keep only a window are shown apart from those that keep all. */
TEST(engine_plan_shows_layers_with_windows)
{
    pl_model *m = open_model(test_ref_need("gemma3-swa-f32.gguf"));
    pl_options o;
    pl_plan *p;
    struct test_text t;

    pl_options_init(&o);
    o.devices = "cpu*2";
    o.n_ctx = 2048;
    p = plan(m, &o);
    t = print(p, false);
    assert_non_null(strstr(t.s, "layers 0-4, 6\n"));
    assert_non_null(strstr(t.s, "[n_slot, 2, 32]"));
    assert_non_null(strstr(t.s, "[n_slot1, 2, 32]"));
    free(t.s);
    pl_plan_free(p);
    pl_model_free(m);
}

/* Three layers of six read the caches of others and have no bytes of their
 * own. */
TEST(engine_plan_counts_a_shared_cache_once)
{
    pl_model *m = open_model(test_ref_need("gemma4-ple-sharedkv-f32.gguf"));
    pl_options o = {.size = sizeof o, .devices = "cpu*2", .n_ctx = 2048};
    pl_plan *p = plan(m, &o);
    const struct compiled *c = p->compiled;
    struct test_text t = print(p, false);
    static const char *const readers[] = {"[0]", "[1, 3, 4]", "[2, 5]"};
    json_t *all, *want;
    size_t bytes = 0, region = 0;
    int n = 0;

    for (int i = 0; i < c->g->n_node; i++)
        if (c->g->node[i].op == OP_memory) {
            bytes += (size_t)graph_count(&c->g->node[i], &c->max) * 2;
            n++;
        }
    assert_int_equal(n, 2 * 3);
    for (int d = 0; d < 2; d++)
        region += c->low->prog[d].bytes[REGION_CACHE];
    /* the model has one KV head, so both devices have the whole cache */
    assert_int_equal(region, 2 * bytes);
    n = 0;
    for (const char *s = t.s; (s = strstr(s, "cache_k  ")); s++)
        n++;
    assert_int_equal(n, 2); /* one line for layers 0 and 1, one for layer 2 */
    assert_non_null(strstr(t.s, "layers 3-4\n"));
    free(t.s);
    all = print_json(p);
    for (int i = 0; i < 6; i++) {
        const json_t *x = json_array_get(field(all, "caches"), (size_t)i);

        want = json_loads(readers[i / 2], 0, NULL);
        assert_true(json_equal(field(x, "readers"), want));
        json_decref(want);
    }
    json_decref(all);
    pl_plan_free(p);
    pl_model_free(m);
}

/* Indexers and their caches are mirrored, so the plan shows which part of the
 * time they take: more of it the longer the context is, nothing without. */
TEST(engine_plan_shows_what_indexers_take)
{
    static const char *const names[] = {"glm-dsa-shared-f32.gguf",
                                        "deepseek2-mla-f32.gguf"};

    for (int k = 0; k < 2; k++) {
        pl_model *m = open_model(test_ref_need(names[k]));
        pl_options o = {.size = sizeof o, .devices = "cpu*2", .n_ctx = 4096};
        pl_plan *p = plan(m, &o);
        struct test_text t = print(p, false);
        const char *line = strstr(t.s, "mirrored  indexers: up to ");
        double prompt = 0, token = 0;

        assert_int_equal(line != NULL, k == 0);
        assert_int_equal(strstr(t.s, "cache_index") != NULL, k == 0);
        if (line) {
            assert_int_equal(sscanf(line,
                                    "mirrored  indexers: up to %lf %% of a "
                                    "device's time in kernels for a prompt, "
                                    "%lf %%",
                                    &prompt, &token),
                             2);
            assert_true(prompt > 1 && prompt < 90);
            assert_true(token > 1 && token < 90);
        }
        free(t.s);
        pl_plan_free(p);
        pl_model_free(m);
    }
}

/* So are routers, latents and residual streams; a model of one rank has nothing
 * that is mirrored. */
TEST(engine_plan_shows_what_is_mirrored)
{
    static const char *const parts[] = {"latents", "routers",
                                        "residual streams"};

    for (int k = 0; k < 3; k++) {
        const char *name =
            k == 0 ? "glm-dsa-shared-f32.gguf" : "deepseek4-f32.gguf";
        pl_model *m = open_model(test_ref_need(name));
        pl_options o = {.size = sizeof o,
                        .devices = k == 2 ? "cpu" : "cpu*2",
                        .n_ctx = 4096};
        pl_plan *p = plan(m, &o);
        struct test_text t = print(p, false);

        for (int i = 0; i < 3; i++) {
            char line[80];

            snprintf(line, sizeof line, "mirrored  %s: up to ", parts[i]);
            assert_int_equal(strstr(t.s, line) != NULL,
                             k == 1 || (k == 0 && i < 2));
        }
        free(t.s);
        pl_plan_free(p);
        pl_model_free(m);
    }
}

/* The plan also shows layers with states, which take the same memory in any
 * context. */
TEST(engine_plan_shows_layers_with_states)
{
    pl_model *m = open_model(test_ref_need("qwen35moe-f32.gguf"));
    pl_options o;

    pl_options_init(&o);
    o.devices = "cpu*2";
    o.n_seq = 1;
    for (o.n_ctx = 1024; o.n_ctx <= 4096; o.n_ctx *= 2) {
        pl_plan *p = plan(m, &o);
        struct test_text t = print(p, false);

        assert_non_null(strstr(t.s, "layers 0-2;"));
        assert_non_null(strstr(t.s, "[n_slot, 4, 1024] split 1: 2+2"));
        /* 2 + 4 slots of 2 heads of 32 by 32 */
        assert_non_null(strstr(t.s, " 48.0K  48.0K\n  ssm_norm"));
        assert_non_null(strstr(t.s, "[n_slot, 256, 3]"));
        assert_non_null(strstr(t.s, "[n_slot1, 2, 32]"));
        free(t.s);
        pl_plan_free(p);
    }
    pl_model_free(m);
}

/* 512 devices in groups of 8: the text is short. */
TEST(engine_plan_folds_many_groups)
{
    pl_model *m = hollow(&hollow_400b);
    pl_options o = {.size = sizeof o,
                    .device_spec = "gpu:96GiB:1TB/s*512",
                    .split_mode = PL_SPLIT_HYBRID,
                    .hybrid_size = 8};
    pl_plan *p = plan(m, &o);
    struct test_text t = print(p, false);
    int lines = 0;

    for (const char *s = t.s; (s = strchr(s, '\n')); s++)
        lines++;
    if (lines > 150)
        fail_msg("%d lines:\n%s", lines, t.s);
    assert_non_null(strstr(t.s, "groups like it"));
    free(t.s);
    pl_plan_free(p);
    pl_model_free(m);
}

/* Checks that tags close in order and that every attribute ends. */
static void check_xml(const char *s)
{
    const char *open[16];
    int depth = 0;

    while ((s = strchr(s, '<'))) {
        const char *end = strchr(s, '>');
        size_t n = strcspn(++s, " />");

        assert_non_null(end);
        if (*s == '/') {
            n = strcspn(++s, ">");
            assert_true(depth > 0);
            depth--;
            if (strncmp(open[depth], s, n) != 0 || isalnum(open[depth][n]))
                fail_msg("</%.*s> closes <%.10s", (int)n, s, open[depth]);
        } else if (end[-1] != '/') {
            assert_in_range(depth, 0, 15);
            open[depth++] = s;
        }
        s = end;
    }
    assert_int_equal(depth, 0);
}

/* Checks that every titled box has the area of its bytes, and that all are on
 * the page. */
static int check_boxes(const char *s)
{
    double w = 0, h = 0, x, y, bw, bh, bytes, scale = 0;
    char unit;
    int n = 0;

    assert_int_equal(
        sscanf(s,
               "<svg xmlns='http://www.w3.org/2000/svg' width='%lf' "
               "height='%lf'",
               &w, &h),
        2);
    while ((s = strstr(++s, "<rect x="))) {
        const char *title = strchr(s, '>') + 1, *size;

        assert_int_equal(sscanf(s,
                                "<rect x='%lf' y='%lf' width='%lf' "
                                "height='%lf'",
                                &x, &y, &bw, &bh),
                         4);
        assert_true(x >= 0 && y >= 0 && bw > 0 && bh > 0);
        assert_true(x + bw <= w && y + bh <= h);
        if (strncmp(title, "<title>", 7) != 0)
            continue;
        n++;
        size = strchr(title, ' ') + 1;
        unit = 0;
        assert_true(sscanf(size, "%lf%c", &bytes, &unit) >= 1);
        bytes *= unit == 'K' ? 1024. : unit == 'M' ? 1024. * 1024 : 1;
        /* boxes are too small to compare, as sizes are rounded to tenths */
        if (bw < 20 || bh < 20)
            continue;
        if (scale == 0)
            scale = bw * bh / bytes;
        if (fabs(bw * bh / bytes / scale - 1) > 0.02)
            fail_msg("%.60s: %g px^2 a byte, before %g", title, bw * bh / bytes,
                     scale);
    }
    return n;
}

static struct test_text draw(const pl_plan *p)
{
    struct test_text t = {0};
    pl_err err;

    TEST_OK(pl_plan_svg(p, test_text_add, &t, &err), err);
    check_xml(t.s);
    assert_null(strstr(t.s, "nan"));
    assert_null(strstr(t.s, "inf"));
    return t;
}

TEST(engine_plan_picture_shows_all)
{
    static const struct {
        pl_options o;
        /* number of boxes of experts, attention, cache and embedding in the
         * picture */
        int n_box;
        const char *says[3];
    } rows[] = {
        {{.split_mode = PL_SPLIT_TENSOR},
         2 * (1 + 5 * (3 + 4 + 2)),
         {"layer 4", "2 x AllReduce: 2.00K", "cpu1"}},
        {{.split_mode = PL_SPLIT_LAYER},
         1 + 5 * (3 + 4 + 2),
         {"group layer1", "copy: 1.00K", "embedding"}},
        {{.host_experts = "all", .offload = PL_OFFLOAD_ON},
         0,
         {"and the host", "3 x stream: 1.59M", "streamed"}},
    };
    pl_model *m = bundled();

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        pl_options o = rows[i].o;
        struct test_text t;
        pl_plan *p;
        int n;

        o.size = sizeof o;
        o.devices = "cpu*2";
        o.n_threads = 1;
        p = plan(m, &o);
        t = draw(p);
        n = check_boxes(t.s);
        if (rows[i].n_box > 0)
            assert_int_equal(n, rows[i].n_box);
        for (int k = 0; k < 3; k++)
            if (!strstr(t.s, rows[i].says[k]))
                fail_msg("row %zu lacks %s", i, rows[i].says[k]);
        free(t.s);
        pl_plan_free(p);
    }
    pl_model_free(m);
}

/* Equal layers and devices share a column and a lane. */
TEST(engine_plan_picture_folds)
{
    static const struct {
        pl_options o;
        const char *says;
    } rows[] = {
        {{.device_spec = "gpu:24GiB:1TB/s*64", .split_mode = PL_SPLIT_TENSOR},
         "layers 0-93"},
        {{.device_spec = "gpu:24GiB:1TB/s*512",
          .split_mode = PL_SPLIT_HYBRID,
          .hybrid_size = 8},
         "more devices"},
    };
    pl_model *m = hollow(&hollow_400b);

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        pl_options o = rows[i].o;
        struct test_text t;
        pl_plan *p;

        o.size = sizeof o;
        p = plan(m, &o);
        t = draw(p);
        assert_true(check_boxes(t.s) > 0);
        assert_non_null(strstr(t.s, rows[i].says));
        assert_true(t.n < 40000);
        free(t.s);
        pl_plan_free(p);
    }
    pl_model_free(m);
}

TEST(engine_plan_picture_survives_each_failed_allocation)
{
    struct hollow_model h = small_moe();
    pl_model *m = hollow(&h);
    pl_options o = {.size = sizeof o, .device_spec = "gpu:1GiB:1TB/s*2"};
    pl_plan *p = plan(m, &o);
    struct test_text t = {0};
    bool failed;

    t.s = malloc(t.cap = 1 << 20);
    for (int64_t n = 0; alloc_each(&n);) {
        pl_err err;

        t.n = 0;
        failed = alloc_ran(pl_plan_svg(p, test_text_add, &t, &err));
        assert_int_equal(t.n == 0, failed);
    }
    assert_int_equal(pl_plan_svg(NULL, test_text_add, &t, NULL),
                     PL_BAD_ARGUMENT);
    free(t.s);
    pl_plan_free(p);
    pl_model_free(m);
}

/* The plan's sizes are what is allocated, region by region. */
TEST(engine_plan_bytes_are_what_is_allocated)
{
    static const char *const devices[] = {"cpu*1", "cpu*2", "cpu*3", "sim*2",
                                          "cpu*1,sim*1"};
    pl_model *m = bundled();

    for (size_t i = 0; i < sizeof devices / sizeof devices[0]; i++) {
        pl_options o = {.size = sizeof o,
                        .devices = devices[i],
                        .split_mode = PL_SPLIT_TENSOR,
                        .n_threads = 2,
                        .n_ubatch = 16};
        struct plan_facts f;
        pl_engine *e;
        pl_err err;

        TEST_OK(pl_engine_create(&e, m, &o, &err), err);
        TEST_OK(plan_facts_init(&f, pl_engine_plan(e), &err), err);
        /* the plan's devices are those of the set but io */
        assert_int_equal(f.n_dev, e->exec->set->n - 1);
        assert_int_equal(f.io.buffers,
                         e->exec->set->dev[f.n_dev].bytes[REGION_WORK] +
                             e->exec->set->dev[f.n_dev].bytes[REGION_INBOX]);
        for (int d = 0; d < f.n_dev; d++) {
            const struct device *x = &e->exec->set->dev[d];

            assert_int_equal(x->bytes[REGION_WEIGHTS], f.dev[d].weights);
            assert_int_equal(x->bytes[REGION_CACHE], f.dev[d].cache);
            assert_int_equal(x->bytes[REGION_WORK] + x->bytes[REGION_INBOX] +
                                 x->scratch_bytes,
                             f.dev[d].buffers);
        }
        plan_facts_fini(&f);
        pl_engine_free(e);
    }
    pl_model_free(m);
}

/* Collectives and their bytes for one token, by the executor's counters. */
TEST(engine_plan_messages_are_what_is_sent)
{
    static const char *const devices[] = {"cpu*1", "cpu*2", "sim*3"};
    pl_model *m = bundled();

    for (size_t i = 0; i < sizeof devices / sizeof devices[0]; i++) {
        pl_options o = {.size = sizeof o,
                        .devices = devices[i],
                        .split_mode = PL_SPLIT_TENSOR,
                        .n_threads = 1,
                        .n_ubatch = 16};
        pl_counters c;
        pl_batch b = {.size = sizeof b, .n = 1, .token = (const int32_t[]){5}};
        json_t *all;
        pl_engine *e;
        pl_err err;

        TEST_OK(pl_engine_create(&e, m, &o, &err), err);
        b.logits = calloc((size_t)pl_model_n_vocab(m), sizeof *b.logits);
        TEST_OK(pl_engine_decode(e, &b, NULL, &err), err);
        pl_engine_counters(e, &c, sizeof c);
        all = print_json(pl_engine_plan(e));
        assert_int_equal(c.messages,
                         integer(field(all, "collectives"), "per_token"));
        assert_int_equal(c.message_bytes,
                         integer(field(all, "collectives"), "bytes_per_token"));
        json_decref(all);
        free(b.logits);
        pl_engine_free(e);
    }
    pl_model_free(m);
}

/* Two collectives a layer, of d_model values a token; one for the embedding. */
TEST(engine_plan_moe_layer_sends_two_messages)
{
    struct hollow_model h = small_moe();
    pl_model *m = hollow(&h);
    pl_options o = {.size = sizeof o,
                    .device_spec = "gpu:96GiB:1TB/s*2",
                    .split_mode = PL_SPLIT_TENSOR};
    pl_plan *p = plan(m, &o);
    json_t *all = print_json(p);
    const json_t *c = field(all, "collectives");

    assert_int_equal(integer(c, "per_token"), 2 * h.n_layer + 1);
    assert_int_equal(integer(c, "bytes_per_token"),
                     (2 * h.n_layer + 1) * 4 * h.d_model);
    json_decref(all);
    pl_plan_free(p);
    pl_model_free(m);
}

static void plan_400b(const char *spec, int n_dev)
{
    pl_model *m = hollow(&hollow_400b);
    pl_options o = {
        .size = sizeof o, .device_spec = spec, .split_mode = PL_SPLIT_TENSOR};
    pl_plan *p = plan(m, &o);
    char line[400], want[64];
    struct test_text t = print(p, false);
    pl_err err;

    check_json(p, n_dev, true);
    assert_non_null(strstr(t.s, "layers 0-93"));
    assert_non_null(strstr(t.s, "assumed"));
    assert_null(strstr(t.s, "does not fit"));
    pl_plan_summary(p, line, sizeof line);
    snprintf(want, sizeof want, "%d devices, %d ranks", n_dev, n_dev);
    assert_non_null(strstr(line, want));
    assert_null(strchr(line, '\n'));
    free(t.s);
    pl_plan_free(p);
    snprintf(want, sizeof want, "gpu:2GiB:1TB/s*%d", n_dev);
    o.device_spec = want;
    o.no_fit = true;
    assert_int_equal(pl_plan_create(&p, m, &o, &err), PL_NO_DEVICE_MEMORY);
    assert_non_null(strstr(err.message, "gpu0: needs "));
    assert_non_null(strstr(err.message, " would fit"));
    pl_model_free(m);
}

TEST(engine_plan_400b_on_16_paper_devices)
{
    plan_400b(paper16, 16);
}

TEST_LONG(engine_plan_400b_on_64_paper_devices)
{
    plan_400b(paper64, 64);
}

/* Figures of described machines matter: twice the bandwidth helps generation, a
 * slow link hurts it, and a stated figure is used as it is. */
TEST(engine_plan_described_figures_count)
{
    static const struct {
        const char *spec;
        double decode, prefill;
    } rows[] = {
        {"gpu:96GiB:1TB/s:flops=100T:link=64GB/s:latency=5us*4", 0, 0},
        {"gpu:96GiB:2TB/s:flops=100T:link=64GB/s:latency=5us*4", 1, 0},
        {"gpu:96GiB:1TB/s:flops=200T:link=64GB/s:latency=5us*4", 0, 1},
        {"gpu:96GiB:1TB/s:flops=100T:link=64GB/s:latency=50us*4", -1, -1},
        {"gpu:96GiB:1TB/s:flops=100T:link=1GB/s:latency=5us*4", 0, -1},
    };
    struct plan_estimate base = {0};
    pl_model *m = hollow(&hollow_400b);

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        pl_options o = {.size = sizeof o,
                        .device_spec = rows[i].spec,
                        .split_mode = PL_SPLIT_TENSOR};
        pl_plan *p = plan(m, &o);
        struct plan_facts f;

        assert_int_equal(plan_facts_init(&f, p, NULL), PL_OK);
        assert_int_equal(f.estimate.basis, PLAN_DESCRIBED);
        assert_int_equal(f.estimate.guessed, 0);
        if (i == 0)
            base = f.estimate;
        if (rows[i].decode != 0)
            assert_true((f.estimate.decode_tps - base.decode_tps) *
                            rows[i].decode >
                        0.02 * base.decode_tps);
        if (rows[i].prefill != 0)
            assert_true((f.estimate.prefill_tps - base.prefill_tps) *
                            rows[i].prefill >
                        0.02 * base.prefill_tps);
        plan_facts_fini(&f);
        pl_plan_free(p);
    }
    pl_model_free(m);
}

static double rate_between(const json_t *links, const char *from,
                           const char *to)
{
    for (size_t i = 0; i < json_array_size(links); i++) {
        const json_t *x = json_array_get(links, i);

        if (strcmp(json_string_value(field(x, "from")), from) == 0 &&
            strcmp(json_string_value(field(x, "to")), to) == 0)
            return json_real_value(field(x, "bytes_per_s"));
    }
    fail_msg("no link from %s to %s", from, to);
    return 0;
}

/* Two by two on bridges, and one that uses the host: estimates use the links
 * that the plan shows, and a faster bridge makes the estimate better. */
TEST(engine_plan_shows_links_of_gpus)
{
    static const char *const specs[] = {
        "gpu:96GiB:1TB/s:link=16GB/s:latency=5us:p2p=30GB/s:bridge=60GB/s*2,"
        "gpu:96GiB:1TB/s:link=16GB/s:latency=5us:p2p=30GB/s:bridge=60GB/s*2,"
        "gpu:96GiB:4TB/s:link=16GB/s:latency=5us",
        "gpu:96GiB:1TB/s:link=16GB/s:latency=5us:p2p=30GB/s:bridge=600GB/s*2,"
        "gpu:96GiB:1TB/s:link=16GB/s:latency=5us:p2p=30GB/s:bridge=600GB/s*2,"
        "gpu:96GiB:4TB/s:link=16GB/s:latency=5us"};
    pl_model *m = hollow(&hollow_400b);
    double before = INFINITY;

    for (int i = 0; i < 2; i++) {
        pl_options o = {.size = sizeof o,
                        .device_spec = specs[i],
                        .split_mode = PL_SPLIT_HYBRID,
                        .hybrid_size = 2,
                        .no_fit = true};
        pl_plan *p = plan(m, &o);
        json_t *all = print_json(p);
        const json_t *links = field(all, "links");
        struct test_text t = print(p, false);
        double seconds =
            1 / json_real_value(field(field(all, "estimate"), "prefill_tps"));

        assert_int_equal(json_array_size(links), 5 + 10);
        assert_true(rate_between(links, "gpu0", "host") == 16e9);
        assert_true(rate_between(links, "gpu2", "gpu3") == (i ? 600e9 : 60e9));
        assert_true(rate_between(links, "gpu1", "gpu2") == 30e9);
        assert_true(rate_between(links, "gpu1", "gpu4") == 16e9);
        if (!strstr(t.s,
                    i ? "gpu2 to gpu3: the host 16 GB/s, 5 us; link domain "
                        "600 GB/s, 5 us; others 30 GB/s, 5 us\n"
                      : "gpu2 to gpu3: the host 16 GB/s, 5 us; link domain "
                        "60 GB/s, 5 us; others 30 GB/s, 5 us\n") ||
            !strstr(t.s, "          gpu4: the host 16 GB/s, 5 us\n"))
            fail_msg("%s", strstr(t.s, "\nestimate"));
        if (seconds >= before)
            fail_msg("%g s, before %g s", seconds, before);
        before = seconds;
        free(t.s);
        json_decref(all);
        pl_plan_free(p);
    }
    pl_model_free(m);
}

/* Experts on the host are sent to the devices in steps of many tokens if the
 * link is fast enough and the host slow. Otherwise the host computes them. */
TEST(engine_plan_streams_experts_where_that_is_faster)
{
    static const char gpu[] =
        "gpu:24GiB:1TB/s:flops=100T:link=%s:latency=5us*2,host:64GiB:%s";
    static const struct {
        const char *link, *host;
        pl_offload how;
        bool streams;
    } rows[] = {{"64GB/s", "1GB/s:flops=10G", PL_OFFLOAD_AUTO, true},
                {"64GB/s", "1GB/s:flops=10G", PL_OFFLOAD_OFF, false},
                {"100MB/s", "400GB/s:flops=50T", PL_OFFLOAD_AUTO, false},
                {"100MB/s", "400GB/s:flops=50T", PL_OFFLOAD_ON, true}};
    struct hollow_model h = small_moe();
    pl_model *m = hollow(&h);

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char spec[200];
        pl_options o = {.size = sizeof o,
                        .device_spec = spec,
                        .split_mode = PL_SPLIT_TENSOR,
                        .host_experts = "all",
                        .n_ubatch = 16,
                        .offload = rows[i].how};
        const struct compiled *q;
        pl_plan *p;

        snprintf(spec, sizeof spec, gpu, rows[i].link, rows[i].host);
        p = plan(m, &o);
        q = p->compiled;
        assert_int_equal(q->variant[VARIANT_STREAMED] >= 0 &&
                             q->variants.stream_from <= q->max.n_tok,
                         rows[i].streams);
        pl_plan_free(p);
    }
    pl_model_free(m);
}

TEST(engine_plan_text_fits_a_terminal)
{
    static const char *const specs[] = {"gpu:1GiB:1TB/s", "gpu:1GiB:1TB/s*2",
                                        ("gpu:1GiB:1TB/s:p2p=50GB/s:"
                                         "bridge=450GB/s*4"),
                                        "gpu:1GiB:1TB/s*16"};
    struct hollow_model h = small_moe();
    pl_model *m = hollow(&h);

    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
        pl_options o = {.size = sizeof o,
                        .device_spec = specs[i],
                        .split_mode = PL_SPLIT_TENSOR};
        pl_plan *p = plan(m, &o);
        struct test_text t = print(p, false);
        /* skips the first line, whose path may be long */
        const char *line = strchr(t.s, '\n') + 1;

        for (const char *end; *line; line = end + 1) {
            end = strchr(line, '\n');
            if (end - line > 100)
                fail_msg("%d columns: %.*s", (int)(end - line),
                         (int)(end - line), line);
        }
        assert_non_null(strstr(t.s, "ffn_gate_inp (router)"));
        assert_non_null(strstr(t.s, "layers 0-2"));
        assert_int_equal(i == 0, strstr(t.s, "AllReduce") == NULL);
        free(t.s);
        pl_plan_free(p);
    }
    pl_model_free(m);
}

TEST(engine_plan_errors_name_the_option)
{
    static const double two[2] = {1, 2}, none[2] = {0, 0};
    static const struct {
        pl_options o;
        const char *says;
    } rows[] = {
        {{.devices = "tpu*2"}, "tpu"},
        {{.device_spec = "gpu*2"}, "gpu"},
        {{.devices = "cpu*3", .tensor_split = two, .n_tensor_split = 2}, "3"},
        {{.devices = "cpu*2", .tensor_split = none, .n_tensor_split = 2},
         "zero"},
        {{.devices = "cpu*2", .n_ranks = 65}, "65"},
        {{.n_ubatch = -1}, "-1"},
        {{.cpu = "sse"}, "sse"},
    };
    struct hollow_model h = small_moe();
    pl_model *m = hollow(&h);
    struct test_text t = {0};
    pl_plan *p;
    pl_err err;

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        pl_options o = rows[i].o;

        o.size = sizeof o;
        assert_int_not_equal(pl_plan_create(&p, m, &o, &err), PL_OK);
        assert_null(p);
        if (!strstr(err.message, rows[i].says))
            fail_msg("row %zu: %s", i, err.message);
    }
    assert_int_equal(pl_plan_print(NULL, false, test_text_add, &t, &err),
                     PL_BAD_ARGUMENT);
    assert_int_equal(pl_devices_print(false, NULL, NULL, &err),
                     PL_BAD_ARGUMENT);
    pl_plan_free(NULL);
    pl_model_free(m);
}

TEST(engine_plan_survives_each_failed_allocation)
{
    struct hollow_model h = small_moe();
    pl_model *m = hollow(&h);
    bool failed = true;
    pl_options o = {.size = sizeof o, .device_spec = "gpu:1GiB:1TB/s*2"};

    for (int64_t n = 1; failed; n += test_long() ? 1 : 1 + n / 16) {
        pl_plan *p = NULL;
        struct plan_facts f = {0};
        pl_err err;
        pl_status s;

        alloc_stat_reset();
        alloc_fail_at(n);
        s = pl_plan_create(&p, m, &o, &err);
        if (s == PL_OK)
            s = plan_facts_init(&f, p, &err);
        failed = alloc_fail_off();
        assert_int_equal(s, failed ? PL_NO_MEMORY : PL_OK);
        plan_facts_fini(&f);
        pl_plan_free(p);
        assert_int_equal(alloc_stat_get().live_bytes, 0);
    }
    pl_model_free(m);
}

TEST(engine_plan_cost_counts_distinct_experts)
{
    assert_true(fabs(cost_distinct_experts(128, 8, 1) - 8) < 1e-9);
    assert_true(fabs(cost_distinct_experts(8, 8, 3) - 8) < 1e-9);
    assert_true(fabs(cost_distinct_experts(4, 1, 2) - 1.75) < 1e-9);
    assert_true(cost_distinct_experts(128, 8, 512) > 127.9);
}

TEST(engine_plan_devices_json_names_cores)
{
    struct test_text t = {0};
    json_error_t je;
    const json_t *dev;
    json_t *all;
    pl_err err;

    TEST_OK(pl_devices_print(false, test_text_add, &t, &err), err);
    assert_non_null(strstr(t.s, "cpu*2"));
    t.n = 0;
    TEST_OK(pl_devices_print(true, test_text_add, &t, &err), err);
    all = json_loads(t.s, 0, &je);
    assert_non_null(all);
    assert_true(integer(all, "cores") >= 1);
    assert_true(json_array_size(field(all, "kernels")) >= 2);
    dev = field(field(all, "devices"), "cpu*2");
    assert_int_equal(json_array_size(dev), 2);
    assert_true(json_array_size(field(json_array_get(dev, 0), "cores")) >= 1);
    json_decref(all);
    free(t.s);
}

TEST(engine_plan_a_model_has_a_path)
{
    pl_model *m = (pl_model *)state;
    pl_err err;

    assert_int_equal(pl_model_open(&m, NULL, &err), PL_BAD_ARGUMENT);
    assert_null(m);
}

static void add_info(void *user, pl_log_level level, const char *text)
{
    if (level == PL_LOG_INFO)
        test_text_add(user, text, strlen(text));
}

TEST(engine_plan_tells_of_layers_that_are_not_used)
{
    struct test_text said = {0};
    const pl_options opt = {.size = sizeof opt,
                            .devices = "cpu",
                            .n_ctx = 256,
                            .no_fit = true,
                            .log = add_info,
                            .log_user = &said};
    pl_model *m = open_model(test_ref_need("glm4moe-f32.gguf"));

    pl_plan_free(plan(m, &opt));
    assert_non_null(said.s);
    assert_non_null(strstr(said.s, "1 multi-token prediction layer, from "
                                   "blk.3, is not used and not loaded"));
    free(said.s);
    pl_model_free(m);
}
