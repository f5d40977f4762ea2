/* A trace shows what ran: every instruction once, in the lane of its device and
 * queue, and which part of the copies was hidden. */
#include "engine/engine.h"
#include "lib/alloc_fail.h"
#include "lib/engine_run.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEV = 8 };

/* Number of instructions in each lane of a trace, waits not counted. */
struct lanes {
    int n[MAX_DEV][QUEUE_COUNT];
    /* end of the last event that was seen in the lane */
    double end_us[MAX_DEV][QUEUE_COUNT];
};

static void expect(struct lanes *l, const struct compiled *p, int script,
                   int n_micro)
{
    for (int d = 0; d < p->list.n; d++) {
        const struct variant *x = &p->low->prog[d].variant[script];

        for (int i = 0; i < x->n_insn; i++)
            if (x->insn[i].kind != INSN_POST && x->insn[i].kind != INSN_WAIT &&
                x->insn[i].micro < n_micro)
                l->n[d][p->list.dev[d].on_cores ? QUEUE_COMPUTE
                                                : (int)x->insn[i].queue]++;
    }
}

static double number(const json_t *o, const char *name)
{
    const json_t *x = json_object_get(o, name);

    if (!json_is_number(x))
        fail_msg("no number %s", name);
    return json_number_value(x);
}

/* Checks that lanes are named, and that events of one do not overlap, apart
 * from rounding. */
static void check_events(const char *text, const struct compiled *p,
                         const struct lanes *want, const pl_traced *sum)
{
    json_error_t je;
    json_t *all = json_loads(text, 0, &je);
    struct lanes got = {0};
    double copy_us = 0;
    int names = 0;
    const json_t *events;

    if (!all)
        fail_msg("line %d: %s", je.line, je.text);
    events = json_object_get(all, "traceEvents");
    assert_true(json_is_array(events));
    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *e = json_array_get(events, i);
        const char *ph = json_string_value(json_object_get(e, "ph"));
        const char *cat = json_string_value(json_object_get(e, "cat"));
        int d = (int)number(e, "pid"), q = (int)number(e, "tid");
        const json_t *args = json_object_get(e, "args");

        assert_in_range(d, 0, p->list.n - 1);
        assert_in_range(q, 0, QUEUE_COUNT - 1);
        assert_true(json_is_string(json_object_get(e, "name")));
        if (!strcmp(ph, "M")) {
            names++;
            continue;
        }
        assert_string_equal(ph, "X");
        assert_true(number(e, "dur") >= 0);
        if (number(e, "ts") < got.end_us[d][q] - 0.01)
            fail_msg("device %d, queue %d: a step at %.3f us, the one before "
                     "ends at %.3f",
                     d, q, number(e, "ts"), got.end_us[d][q]);
        got.end_us[d][q] = number(e, "ts") + number(e, "dur");
        got.n[d][q]++;
        if (!strcmp(cat, "copy")) {
            copy_us += number(e, "dur");
            assert_true(json_is_string(json_object_get(args, "tensor")));
            assert_true(json_is_integer(json_object_get(args, "layer")));
        }
        assert_true(json_is_integer(json_object_get(args, "micro_batch")));
    }
    assert_true(names >= 2 * p->list.n);
    assert_memory_equal(got.n, want->n, sizeof got.n);
    assert_true(copy_us <= 1e6 * sum->copy_s + 1 &&
                copy_us >= 1e6 * sum->copy_s - 1);
    json_decref(all);
}

TEST(exec_trace_shows_every_step)
{
    static const struct {
        pl_options o;
        int n_tok;
        bool copies;
    } rows[] = {
        {{.devices = "cpu*1"}, 20, false},
        {{.devices = "cpu*2", .split_mode = PL_SPLIT_TENSOR}, 20, false},
        {{.devices = "cpu*2", .split_mode = PL_SPLIT_LAYER}, 60, true},
        {{.devices = "sim*2", .split_mode = PL_SPLIT_LAYER}, 60, true},
        {{.devices = "sim*2",
          .split_mode = PL_SPLIT_TENSOR,
          .host_experts = "all",
          .offload = PL_OFFLOAD_ON},
         40,
         true},
        {{.devices = "cpu*2",
          .split_mode = PL_SPLIT_TENSOR,
          .host_cache = true,
          .offload = PL_OFFLOAD_OFF},
         10,
         true},
    };
    const char *path = test_model();

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        pl_options o = engine_run_options();
        struct test_text t = {0};
        struct lanes want = {0};
        struct engine_run r;
        const struct compiled *p;
        int32_t token[64];
        uint64_t random = test_seed();
        double most = 0;
        pl_traced sum;

        o.devices = rows[i].o.devices;
        o.split_mode = rows[i].o.split_mode;
        o.host_experts = rows[i].o.host_experts;
        o.host_cache = rows[i].o.host_cache;
        o.offload = rows[i].o.offload;
        o.trace = test_text_add;
        o.trace_user = &t;
        engine_run_open(&r, path, "the bundled model", &o);
        p = r.engine->plan->compiled;
        assert_in_range(p->list.n, 1, MAX_DEV);
        engine_run_tokens(&r, &random, rows[i].n_tok, token);
        for (int k = 0; k < 2; k++) { /* first a prompt, then one token */
            pl_exec *x = r.engine->exec;
            int n = 0;

            memset(x->sizes, 0, sizeof x->sizes);
            engine_run_decode(&r, 0, k == 0 ? rows[i].n_tok : 1, token, NULL);
            while (n < PROG_MAX_MICRO && x->sizes[n].n_tok > 0)
                n++;
            expect(&want, p, x->last_variant, n);
        }
        pl_exec_traced(r.engine->exec, &sum, sizeof sum);
        assert_int_equal(sum.runs, 2);
        assert_int_equal(sum.copy_s > 0, rows[i].copies);
        assert_true(sum.hidden_s >= 0);
        assert_true(sum.hidden_s <= sum.copy_s * 1.000001);
        /* freeing the trace writes the end of its text */
        exec_trace_free(r.engine->exec->trace);
        r.engine->exec->trace = NULL;
        check_events(t.s, p, &want, &sum);
        most = sum.seconds;
        assert_true(most > 0);
        engine_run_close(&r);
        free(t.s);
    }
}

TEST(exec_trace_hidden_is_what_overlaps)
{
    static const struct {
        struct trace_span busy[4];
        int n_busy;
        struct trace_span copy[3];
        int n_copy;
        double hidden;
    } rows[] = {
        {{{0, 1}}, 1, {{0, 1}}, 1, 1},
        {{{0, 1}}, 1, {{1, 2}}, 1, 0},
        {{{0, 1}}, 0, {{1, 2}}, 1, 0},
        {{{0, 1}}, 1, {{0.5, 2}}, 1, 0.5},
        /* intervals of computing that are not sorted */
        {{{3, 4}, {0, 1}}, 2, {{0, 4}}, 1, 2},
        /* intervals that overlap, whose common part counts once */
        {{{0, 2}, {1, 3}, {1, 2}}, 3, {{0, 4}}, 1, 3},
        {{{0, 1}, {2, 3}, {4, 5}},
         3,
         {{0.5, 2.5}, {2.5, 4.25}, {6, 7}},
         3,
         0.5 + 0.5 + 0.5 + 0.25},
        /* two devices receive at the same time */
        {{{0, 10}}, 1, {{1, 2}, {1, 2}}, 2, 2},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct trace_span busy[4];
        double h;

        memcpy(busy, rows[i].busy, sizeof busy);
        h = exec_trace_hidden(busy, rows[i].n_busy, rows[i].copy,
                              rows[i].n_copy);
        if (h < rows[i].hidden - 1e-12 || h > rows[i].hidden + 1e-12)
            fail_msg("row %zu: %g, not %g", i, h, rows[i].hidden);
    }
}

TEST(exec_trace_survives_each_failed_allocation)
{
    const char *path = test_model();
    pl_options o = engine_run_options();
    struct test_text t = {0};
    bool failed;
    pl_model *m;
    pl_plan *p;

    assert_int_equal(pl_model_open(&m, path, NULL), PL_OK);
    assert_int_equal(pl_plan_create(&p, m, &o, NULL), PL_OK);
    t.s = malloc(t.cap = 65536);
    for (int64_t n = 0; alloc_each(&n);) {
        struct exec_trace *x;
        pl_err err;

        t.n = 0;
        failed = alloc_ran(
            exec_trace_create(&x, p->compiled, test_text_add, &t, &err));
        assert_int_equal(x == NULL, failed);
        assert_int_equal(t.n == 0, failed);
        exec_trace_free(x);
    }
    pl_plan_free(p);
    pl_model_free(m);
    free(t.s);
}
