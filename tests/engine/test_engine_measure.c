/* Measurement of devices with their own processors. It finds a device's rates,
 * however fast or slow it is and however little memory it has. A device that
 * fails is named, and earlier rates stay. Plans use the results. */
#include "cost/rates.h"
#include "engine/engine.h"
#include "lib/hollow_model.h"
#include "lib/kind_known.h"
#include "lib/support.h"
#include "machine/topology.h"
#include "measure/measure.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct known fast = {
    .launch_s = 3e-6,
    .copy_s = 12e-6,
    .in = 50e9,
    .out = 35e9,
    .peer_s = 6e-6,
    .peer = 300e9,
    .read = 4e12,
    .values = 2.5e12,
    .block = 120e12,
    .floats = 25e12,
    .attention = 15e12,
    .held = 64e6,
    .held_read = 20e12,
    .n_left = -1,
};
static const struct known slow = {
    .launch_s = 60e-6,
    .copy_s = 150e-6,
    .in = 2e9,
    .out = 1e9,
    .peer_s = 200e-6,
    .peer = 0.05e9,
    .read = 0.1e9,
    .values = 0.2e9,
    .block = 0.2e9,
    .floats = 0.1e9,
    .attention = 0.02e9,
    .n_left = -1,
};

static const struct measure_device_options by_clock = {
    .kernel_set = KERNEL_SET_GENERIC, .now = known_now};

static pl_status measure(const char *devices, struct calibration *c,
                         pl_err *err)
{
    struct device_list l;
    pl_status s;

    TEST_OK(device_parse(&l, devices, 0, err), *err);
    s = measure_devices(c, &l, &by_clock, err);
    device_list_free(&l);
    return s;
}

static void near(const char *what, double is, double want, double part)
{
    if (!(fabs(is - want) <= part * want))
        fail_msg("%s: %g, not %g", what, is, want);
}

static void check(const struct cost_rates *r, const struct known *k, bool pair,
                  double part)
{
    near("read", r->read_bytes_per_s, k->read, part);
    near("values", r->cached_bytes_per_s, k->values, part);
    near("block", r->block_macs_per_s, k->block, part);
    near("floats", r->float_macs_per_s, k->floats, part);
    near("attention", r->attention_macs_per_s, k->attention, part);
    near("launch", r->insn_s, k->launch_s, part);
    near("copy", r->collective_s, k->copy_s, part);
    near("in", r->link_bytes_per_s, k->in, part);
    near("out", r->out_bytes_per_s, k->out, part);
    near("peer_s", r->p2p_s, pair ? k->peer_s : 0, part);
    near("peer", r->p2p_bytes_per_s, pair ? k->peer : 0, part);
}

/* ---- rates --------------------------------------------------------------- */

/* A device and a pair have ten seconds each, which the last repetition may
 * exceed. */
TEST(measure_finds_the_rates_that_a_device_has)
{
    static const struct {
        const struct known *k;
        int n_dev, n_pair;
    } rows[] = {{&fast, 1, 0}, {&fast, 3, 3}, {&slow, 2, 1}};
    static struct calibration c;
    pl_err err;

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char devices[16];

        known = *rows[i].k;
        memset(&c, 0, sizeof c);
        snprintf(devices, sizeof devices, "known*%d", rows[i].n_dev);
        TEST_OK(measure(devices, &c, &err), err);
        assert_int_equal(c.n_device, rows[i].n_dev);
        for (int k = 0; k < c.n_device; k++) {
            assert_string_equal(c.device[k].title, "Known 1");
            assert_int_equal(c.device[k].bus[0], 'a' + k);
            check(&c.device[k].rates, rows[i].k, rows[i].n_pair > 0, 0.03);
        }
        assert_true(known.clock < 11 * (rows[i].n_dev + rows[i].n_pair));
    }
}

/* Sets up a cache folder of its own, and a processor with known rates. */
static const struct topology *begin(struct calibration *c)
{
    const struct topology *t;

    assert_int_equal(setenv("XDG_CACHE_HOME", test_temp("cache"), 1), 0);
    assert_int_equal(topology_open(&t, NULL), PL_OK);
    calibration_init(c, KERNEL_SET_GENERIC, t);
    for (int i = 0; i < CALIBRATION_FIELDS; i++)
        *calibration_value(&c->one, &calibration_field[i]) =
            *calibration_value(&c->all, &calibration_field[i]) = 7;
    return t;
}

/* Devices have faster links in pairs, and the saved rates say so. Devices whose
 * link is hardly faster than the others form no link domain. */
TEST(measure_finds_islands)
{
    static struct calibration c, d;
    const struct topology *t;
    pl_err err;

    t = begin(&c);
    known = fast;
    known.peer = 30e9;
    known.bridge = 300e9;
    TEST_OK(measure("known*4", &c, &err), err);
    TEST_OK(calibration_save(&c, &err), err);
    TEST_OK(calibration_load(&d, KERNEL_SET_GENERIC, t, &err), err);
    assert_int_equal(d.n_device, 4);
    for (int k = 0; k < 4; k++) {
        const struct cost_rates *r = &d.device[k].rates;

        near("peer", r->p2p_bytes_per_s, known.peer, 0.05);
        near("bridge", r->bridge_bytes_per_s, known.bridge, 0.05);
        near("bridge_s", r->bridge_s, known.peer_s, 0.05);
        assert_true(r->link_domain > 0);
        assert_int_equal(r->link_domain == d.device[0].rates.link_domain,
                         k < 2);
    }
    assert_int_equal(d.device[2].rates.link_domain,
                     d.device[3].rates.link_domain);
    /* less than twice as fast as other links, so the devices form no link
     * domain */
    known.bridge = 50e9;
    TEST_OK(measure("known*3", &d, &err), err);
    for (int k = 0; k < 3; k++) {
        assert_int_equal(d.device[k].rates.link_domain, 0);
        near("peer", d.device[k].rates.p2p_bytes_per_s, known.peer, 0.05);
    }
    topology_drop(t);
}

/* Measuring succeeds although the caches take all memory that the device
 * has. */
TEST(measure_makes_do_with_little_memory)
{
    static struct calibration c;
    pl_err err;

    for (int i = 0; i < 2; i++) {
        known = fast;
        known.held = 0;
        /* the device has less memory than its description says */
        known.most = i ? (size_t)24 << 20 : 0;
        TEST_OK(measure(i ? "known:2GiB" : "known:48MiB", &c, &err), err);
        assert_true(known.largest <= (size_t)24 << 20);
        check(&c.device[0].rates, &fast, false, 0.1);
    }
    known.most = 1000;
    assert_int_equal(measure("known", &c, &err), PL_NO_DEVICE_MEMORY);
    assert_non_null(strstr(err.message, "known0"));
}

/* ---- failures ------------------------------------------------------------ */

static void no_output(void *user, const char *s, size_t n)
{
    (void)user, (void)s, (void)n;
}

TEST(measure_of_a_device_that_fails_keeps_nothing)
{
    const pl_options o = {
        .size = sizeof o, .devices = "known*2", .cpu = "generic"};
    char path[CALIBRATION_PATH];
    const struct topology *t;
    struct calibration c, d;
    size_t n[2];
    char *was, *is;
    int n_run;
    pl_err err;

    t = begin(&c);
    TEST_OK(calibration_save(&c, &err), err);
    assert_int_equal(calibration_path(path, &c, NULL), PL_OK);
    was = test_read(path, &n[0]);

    known = fast;
    TEST_OK(measure("known*2", &c, &err), err);
    n_run = known.n_run;
    /* the device fails early or late: while it is measured alone, or with its
     * peer */
    for (int i = 0; i < 5; i++) {
        known = fast;
        known.n_left = n_run * i / 5;
        c.n_device = 0;
        assert_int_equal(measure("known*2", &c, &err), PL_DEVICE);
        assert_non_null(strstr(err.message, "known"));
        assert_non_null(strstr(err.message, "Known 1"));
        assert_non_null(strstr(err.message, "fell off the bus"));
        assert_int_equal(c.n_device, 0);
    }
    known.n_left = 3;
    assert_int_equal(pl_devices_measure(&o, false, no_output, NULL, &err),
                     PL_DEVICE);
    assert_non_null(strstr(err.message, "known0"));
    is = test_read(path, &n[1]);
    assert_int_equal(n[0], n[1]);
    assert_memory_equal(was, is, n[0]);
    TEST_OK(calibration_load(&d, KERNEL_SET_GENERIC, t, &err), err);
    free(was);
    free(is);
    topology_drop(t);
}

/* ---- saved measurements -------------------------------------------------- */

TEST(measure_is_kept_for_each_device)
{
    static struct calibration c, d;
    struct device_list l;
    const struct topology *t;
    pl_err err;

    t = begin(&c);
    known = fast;
    TEST_OK(measure("known*2", &c, &err), err);
    TEST_OK(calibration_save(&c, &err), err);
    TEST_OK(calibration_load(&d, KERNEL_SET_GENERIC, t, &err), err);
    assert_int_equal(d.n_device, 2);
    assert_memory_equal(d.device[0].bus, "a", 2);
    for (int k = 0; k < 2; k++)
        check(&d.device[k].rates, &fast, true, 0.03);

    /* one device is measured again; the rates of the other stay */
    known = slow;
    TEST_OK(measure("known", &d, &err), err);
    assert_int_equal(d.n_device, 2);
    check(&d.device[0].rates, &slow, false, 0.03);
    check(&d.device[1].rates, &fast, true, 0.03);

    /* rates are found by any name of the device */
    assert_int_equal(device_parse(&l, "known", 0, NULL), PL_OK);
    assert_ptr_equal(calibration_device(&d, &l.dev[0]), &d.device[0]);
    l.dev[0].bus[0] = 'c';
    assert_null(calibration_device(&d, &l.dev[0]));
    l.dev[0].bus[0] = 'a';
    l.dev[0].version[0] = 'D';
    assert_null(calibration_device(&d, &l.dev[0]));
    l.dev[0].version[0] = 'd';
    l.dev[0].title[0] = 'k';
    assert_null(calibration_device(&d, &l.dev[0]));
    device_list_free(&l);
    topology_drop(t);
}

TEST(measure_of_too_many_forgets_the_first)
{
    static struct calibration c;
    struct calibrated_device d = {.kind = "known"};

    for (int i = 0; i <= CALIBRATION_DEVICES; i++) {
        d.bus[0] = (char)(' ' + i);
        calibration_put_device(&c, &d);
    }
    assert_int_equal(c.n_device, CALIBRATION_DEVICES);
    assert_int_equal(c.device[0].bus[0], ' ' + 1);
    assert_int_equal(c.device[CALIBRATION_DEVICES - 1].bus[0],
                     ' ' + CALIBRATION_DEVICES);
}

TEST(measure_is_what_plans_of_the_device_use)
{
    const struct hollow_model h = {.n_layer = 2,
                                   .d_model = 256,
                                   .n_head = 4,
                                   .n_head_kv = 2,
                                   .d_head = 64,
                                   .n_expert = 4,
                                   .n_used = 2,
                                   .d_ff = 128,
                                   .n_vocab = 512,
                                   .format = PL_Q8_0};
    const char *path = test_temp("hollow.gguf");
    const pl_options o = {.size = sizeof o,
                          .devices = "known,cpu*1",
                          .split_mode = PL_SPLIT_LAYER,
                          .n_threads = 1,
                          .no_fit = true,
                          .cpu = "generic"};
    static struct calibration c;
    struct cost_rates r[8];
    struct rates_basis basis;
    pl_model *m;
    pl_plan *p;
    pl_err err;

    TEST_OK(hollow_model_write(path, &h, &err), err);
    TEST_OK(pl_model_open(&m, path, &err), err);
    TEST_OK(pl_plan_create(&p, m, &o, &err), err);
    known = fast;
    TEST_OK(measure("known", &c, &err), err);
    assert_int_equal(rates_known(p->compiled, &c, r, &basis, NULL), PL_OK);
    check(&r[0], &fast, false, 0.03);
    assert_true(r[0].has_copy_engine && r[0].one_queue);
    assert_true(r[1].read_bytes_per_s < 0.1 * fast.read);
    rates_of_list(&p->compiled->list, KERNEL_SET_GENERIC, &c, 1, r);
    check(&r[0], &fast, false, 0.03);
    c.device[0].version[0]++;
    assert_int_equal(rates_known(p->compiled, &c, r, &basis, NULL), PL_OK);
    assert_true(r[0].read_bytes_per_s < 0.1 * fast.read);
    pl_plan_free(p);
    pl_model_free(m);
}
