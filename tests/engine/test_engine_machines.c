/* Plans for several machines, on paper: what -sm auto chooses, groups that are
 * machines, and what a plan says of the networks. */
#include "cost/rates.h"
#include "engine/engine.h"
#include "engine/machine_plan.h"
#include "fit/fit.h"
#include "lib/hollow_model.h"
#include "lib/support.h"
#include "report/plan_facts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct hollow_model shape = {.n_layer = 8,
                                          .d_model = 1024,
                                          .n_head = 16,
                                          .n_head_kv = 8,
                                          .d_head = 64,
                                          .n_expert = 8,
                                          .n_used = 2,
                                          .d_ff = 1024,
                                          .n_vocab = 4096,
                                          .format = PL_Q4_K};

static pl_model *open_model(void)
{
    const char *path = test_temp("machines.gguf");
    pl_model *m = NULL;
    pl_err err;

    TEST_OK(hollow_model_write(path, &shape, &err), err);
    TEST_OK(pl_model_open(&m, path, &err), err);
    return m;
}

static pl_plan *plan(const pl_model *m, const char *spec, pl_split_mode mode,
                     int width)
{
    pl_options o = {.size = sizeof o,
                    .device_spec = spec,
                    .split_mode = mode,
                    .hybrid_size = width,
                    .n_ctx = 512,
                    .n_seq = 1};
    pl_plan *p;
    pl_err err;

    TEST_OK(pl_plan_create(&p, m, &o, &err), err);
    return p;
}

/* Returns the seconds of a prompt and its answer. */
static double seconds(pl_plan *p)
{
    const struct compiled *q = p->compiled;
    struct rates_basis basis;
    struct cost_rates *r = test_need((size_t)q->list.n, sizeof *r);
    double s;

    assert_int_equal(rates_known(q, NULL, r, &basis, NULL), PL_OK);
    assert_int_equal(fit_seconds(q, r, 512, &s, NULL, NULL), PL_OK);
    free(r);
    pl_plan_free(p);
    return s;
}

enum { SPEC = 256, MOST_MACHINE = 3 };

/* Draws a machine of one to four devices, processors or GPUs. */
static void draw_machine(char spec[SPEC], int machine, uint64_t *random)
{
    static const char *const kinds[] = {"cpu:64GiB:100GB/s:flops=4T:shared",
                                        "gpu:64GiB:1TB/s:flops=80T",
                                        "gpu:64GiB:200GB/s:flops=20T"};
    static const char *const rates[] = {"0.117GB/s", "1.17GB/s", "11GB/s"};
    static const char *const times[] = {"47us", "27us", "4us"};
    int net = (int)test_below(random, 3);

    snprintf(spec, SPEC, "%s:machine=%d:network=%s:network-latency=%s*%d",
             kinds[test_below(random, 3)], machine, rates[net], times[net],
             1 + (int)test_below(random, 4));
}

/* Checks what auto takes for n machines against each of them alone. */
static void check_auto(const pl_model *m, char one[][SPEC], int n)
{
    char all[MOST_MACHINE * SPEC] = "";
    double s;

    for (int k = 0; k < n; k++) {
        if (k > 0)
            strcat(all, ",");
        strcat(all, one[k]);
    }
    s = seconds(plan(m, all, PL_SPLIT_AUTO, 0));
    for (int k = 0; k < n; k++) {
        double alone = seconds(plan(m, one[k], PL_SPLIT_AUTO, 0));

        if (s * 0.97 > alone * (1 + 1e-9))
            fail_msg("%s: %.3g ms; %s alone: %.3g ms", all, s * 1e3, one[k],
                     alone * 1e3);
    }
}

/* The mode that auto takes is estimated, for a prompt and an answer, to be at
 * least 0.97 times as fast as any of the machines alone in its best mode. */
TEST(auto_is_never_slower_than_a_machine_alone)
{
    /* the fastest device with the best network is that of the last machine */
    static char last[MOST_MACHINE][SPEC] = {
        "cpu:64GiB:100GB/s:flops=4T:shared:machine=0:network=0.117GB/s:"
        "network-latency=47us",
        "gpu:64GiB:1TB/s:flops=80T:machine=1:network=0.117GB/s:"
        "network-latency=47us",
        "gpu:64GiB:1TB/s:flops=80T:machine=2:network=1.17GB/s:"
        "network-latency=27us"};
    uint64_t random = test_seed();
    pl_model *m = open_model();

    check_auto(m, last, MOST_MACHINE);
    for (int i = 0; i < test_draws(12, 300); i++) {
        int n = 2 + (int)test_below(&random, MOST_MACHINE - 1);
        char one[MOST_MACHINE][SPEC];

        for (int k = 0; k < n; k++)
            draw_machine(one[k], k, &random);
        check_auto(m, one, n);
    }
    pl_model_free(m);
}

/* At a fast network processors split matrices over all machines. At a slow one
 * the GPUs of one machine are faster alone. */
TEST(auto_spans_machines_where_that_pays)
{
    static const char fast[] =
        "cpu:64GiB:20GB/s,cpu:64GiB:20GB/s:machine=1:network=11GB/s:"
        "network-latency=4us";
    static const char slow[] =
        "gpu:64GiB:1TB/s:flops=80T:p2p=300GB/s:latency=5us*2,"
        "gpu:64GiB:1TB/s:flops=80T:p2p=300GB/s:latency=5us:machine=1:"
        "network=0.117GB/s:network-latency=500us*2";
    pl_model *m = open_model();
    pl_plan *p = plan(m, fast, PL_SPLIT_AUTO, 0);

    assert_non_null(strstr(pl_plan_options(p), "-sm tensor"));
    assert_true(p->compiled->low->prog[1].bytes[REGION_WEIGHTS] > 0);
    pl_plan_free(p);
    p = plan(m, slow, PL_SPLIT_AUTO, 0);
    for (int d = 2; d < 4; d++)
        assert_true(p->compiled->low->prog[d].bytes[REGION_WEIGHTS] == 0);
    pl_plan_free(p);
    pl_model_free(m);
}

/* -sm hybrid:machine makes a group of each machine, however many devices it
 * has. All have the ranks of the widest, and machine 0 the last layers, so that
 * no logits cross the network. */
TEST(groups_of_machines_have_unlike_widths)
{
    static const char spec[] = "gpu:64GiB:1TB/s*2,gpu:64GiB:1TB/s:machine=1*3,"
                               "cpu:64GiB:80GB/s:machine=2";
    static const int width[] = {2, 3, 1};
    pl_model *m = open_model();
    pl_plan *p = plan(m, spec, PL_SPLIT_HYBRID, -1);
    const struct placement *y = &p->compiled->place;

    assert_int_equal(y->n_group, 3);
    assert_int_equal(y->n_rank, 3);
    for (int i = 0; i < 3; i++)
        assert_int_equal(y->group[i].n, width[i]);
    assert_int_equal(y->layer_group[0], 1);
    assert_int_equal(y->layer_group[y->n_layer], 0);
    assert_non_null(strstr(pl_plan_options(p), "-sm hybrid:machine"));
    pl_plan_free(p);
    pl_model_free(m);
}

/* In a tensor split of two devices each sends the other the values of each sum.
 * Machine 1 sends its half of the logits too. */
TEST(plans_tell_what_crosses_the_network)
{
    static const char spec[] =
        "cpu:64GiB:80GB/s,cpu:64GiB:80GB/s:machine=1:network=1GB/s:"
        "network-latency=30us";
    pl_model *m = open_model();
    pl_plan *p = plan(m, spec, PL_SPLIT_TENSOR, 0);
    const struct lowered *low = p->compiled->low;
    struct plan_facts f;
    pl_err err;

    TEST_OK(plan_facts_init(&f, p, &err), err);
    assert_int_equal(f.n_machine, 2);
    assert_int_equal(f.crossing[2].bytes,
                     f.token_bytes + (uint64_t)shape.n_vocab / 2 * 4);
    assert_true(f.crossing[1].bytes >= f.token_bytes);
    assert_true(f.crossing[2].n_message >= low->variant->n_collective);
    assert_true(f.crossing[2].n_message <= low->variant->n_collective + 2);
    assert_true(f.crossing[0].n_message == 0 && f.crossing[3].n_message == 0);
    plan_facts_fini(&f);
    pl_plan_free(p);
    pl_model_free(m);
}

/* A machine describes its devices itself, with the cores of their threads. What
 * it does not know is its network: machine 0 has measured that of all. */
TEST(machines_keep_their_network_in_a_plan)
{
    struct device_list own, planned;
    struct device_desc before, *d;
    pl_err err;

    TEST_OK(device_parse(&own, "cpu", 1, &err), err);
    TEST_OK(device_parse_paper(&planned,
                               "cpu:64GiB:80GB/s:machine=1:network=1GB/s:"
                               "network-latency=30us",
                               &err),
            err);
    d = &planned.dev[0];
    before = *d;
    machine_plan_take_own(d, &own.dev[0]);
    assert_true(d->network_bytes_per_s == 1e9 &&
                d->network_latency_s == before.network_latency_s);
    assert_int_equal(d->memory_bytes, own.dev[0].memory_bytes);
    assert_int_equal(d->n_core, own.dev[0].n_core);
    assert_memory_equal(d->core, own.dev[0].core,
                        (size_t)d->n_core * sizeof *d->core);
    device_list_free(&own);
    device_list_free(&planned);
}

/* The devices of a plan, and the host's memory, stand below the machine that
 * they are part of; what is of all machines has a heading, too. */
TEST(plans_show_devices_by_machine)
{
    const pl_options o = {
        .size = sizeof o,
        .device_spec =
            "gpu:64GiB:1TB/s,gpu:64GiB:1TB/s:machine=1:network=1GB/s:"
            "network-latency=30us*2,host:64GiB:80GB/s",
        .split_mode = PL_SPLIT_TENSOR,
        .host_cache = true,
        .n_ctx = 512};
    pl_model *m = open_model();
    struct test_text t = {0};
    const char *second, *host;
    pl_plan *p;
    pl_err err;

    TEST_OK(pl_plan_create(&p, m, &o, &err), err);
    TEST_OK(pl_plan_print(p, false, test_text_add, &t, &err), err);
    assert_non_null(strstr(t.s, "\nmachine 0\ngpu0 "));
    second = strstr(t.s, "\nmachine 1\n1/gpu0 ");
    assert_non_null(second);
    assert_null(strstr(second + 1, "\nmachine 1\n"));
    host = strstr(t.s, "\nhost ");
    assert_true(host && host < second);
    assert_null(memmem(t.s, (size_t)(second - t.s), "\n1/gpu", 6));
    assert_non_null(strstr(second, "\nall machines\nio "));
    free(t.s);
    pl_plan_free(p);
    pl_model_free(m);
}

/* Returns the seconds of a token on n machines of eight GPUs each, whose layers
 * are split over the machines. */
static double seconds_on_machines(const pl_model *m, int n)
{
    static const char form[] =
        "gpu:24GiB:1TB/s:link=64GB/s:latency=5us:flops=100T:machine=%d:"
        "network=1.17GB/s:network-latency=27us*8";
    char *spec = test_need((size_t)n, SPEC);
    struct plan_facts f;
    size_t at = 0;
    double s;
    pl_plan *p;
    pl_err err;

    for (int k = 0; k < n; k++) {
        if (k > 0)
            spec[at++] = ',';
        at += (size_t)snprintf(spec + at, SPEC, form, k);
    }
    p = plan(m, spec, PL_SPLIT_HYBRID, 8);
    TEST_OK(plan_facts_init(&f, p, &err), err);
    s = f.decode.seconds;
    print_message("%d devices: %.3f ms a token\n", 8 * n, s * 1e3);
    plan_facts_fini(&f);
    pl_plan_free(p);
    free(spec);
    return s;
}

/* A thousand devices take the time that smaller plans lead to expect: what 40
 * and 200 take, and as many more hops between machines. */
TEST_LONG(a_thousand_devices_are_as_fast_as_fewer_say)
{
    struct hollow_model deep = shape;
    const char *path = test_temp("deep.gguf");
    double few, more, all, expected;
    pl_model *m = NULL;
    pl_err err;

    deep.n_layer = 250;
    TEST_OK(hollow_model_write(path, &deep, &err), err);
    TEST_OK(pl_model_open(&m, path, &err), err);
    few = seconds_on_machines(m, 5);
    more = seconds_on_machines(m, 25);
    all = seconds_on_machines(m, 125);
    expected = more + (more - few) / 20 * 100;
    if (all < 0.85 * expected || all > 1.15 * expected)
        fail_msg("%.3f ms a token, %.3f ms expected", all * 1e3,
                 expected * 1e3);
    pl_model_free(m);
}
