/* Measured rates are found again, whole or not at all, and each device gets its
 * share of them. */
#include "cost/calibration.h"
#include "cost/rates.h"
#include "lib/hollow_model.h"
#include "lib/support.h"
#include "machine/topology.h"
#include "measure/measure.h"
#include "report/plan_facts.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Each rate is a different number that few digits cannot express. */
static const struct topology *here(void)
{
    static const struct topology *t;

    if (!t)
        assert_int_equal(topology_open(&t, NULL), PL_OK);
    return t;
}

static void invent(struct cost_rates *r, double from)
{
    memset(r, 0, sizeof *r);
    for (int i = 0; i < CALIBRATION_FIELDS; i++)
        *calibration_value(r, &calibration_field[i]) = from * sqrt(2 + i);
    r->one_queue = true;
}

static void make(struct calibration *c)
{
    calibration_init(c, KERNEL_SET_GENERIC, here());
    assert_true(c->n_core > 0 && c->cpu[0]);
    invent(&c->one, 1e9);
    invent(&c->all, 1.0 / 3e-7);
}

static const char *cache_in(const char *name)
{
    const char *dir = test_temp(name);

    assert_int_equal(setenv("XDG_CACHE_HOME", dir, 1), 0);
    return dir;
}

static bool equal(const struct calibration *a, const struct calibration *b)
{
    return memcmp(&a->one, &b->one, sizeof a->one) == 0 &&
           memcmp(&a->all, &b->all, sizeof a->all) == 0;
}

static void write_all(const char *path, const char *s, size_t n)
{
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    assert_int_equal(fwrite(s, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* ---- the file ----------------------------------------------------------- */

TEST(calibration_is_found_again)
{
    const char *dir = cache_in("a/deep/cache");
    char path[CALIBRATION_PATH], sub[CALIBRATION_PATH];
    struct calibration c, d;
    struct dirent *e;
    int n_file = 0;
    pl_err err;
    DIR *in;

    make(&c);
    assert_int_equal(calibration_load(&d, KERNEL_SET_GENERIC, here(), &err),
                     PL_NOT_FOUND);
    assert_non_null(strstr(err.message, "--measure"));
    for (int i = 0; i < 2; i++) { /* writes a new file, then replaces it */
        TEST_OK(calibration_save(&c, &err), err);
        TEST_OK(calibration_load(&d, KERNEL_SET_GENERIC, here(), &err), err);
        assert_true(equal(&c, &d));
        c.one.insn_s *= 1.1;
    }
    assert_int_equal(calibration_load(&d, KERNEL_SET_AVX2, here(), NULL),
                     PL_NOT_FOUND);
    snprintf(sub, sizeof sub, "%s/plait", dir);
    in = opendir(sub); /* the folder has no temporary file */
    assert_non_null(in);
    while ((e = readdir(in)))
        n_file += e->d_name[0] != '.';
    closedir(in);
    assert_int_equal(n_file, 1);
    assert_int_equal(calibration_path(path, &c, NULL), PL_OK);
    assert_int_equal(strncmp(path, sub, strlen(sub)), 0);
}

/* Rates that a machine has measured hold for its devices on machine 0, too.
 * Without them, or if they were measured with other kernels, the machine is
 * taken for one like machine 0. A text that is cut is refused. */
TEST(calibration_of_each_machine_is_its_own)
{
    struct calibration c, d, got, *measured[2] = {NULL, &got};
    struct cost_rates r[2], alone[2];
    struct device_list l;
    char *text;
    pl_err err;

    make(&c);
    make(&d);
    invent(&d.one, 3e9);
    invent(&d.all, 2.0 / 3e-7);
    snprintf(d.cpu, sizeof d.cpu, "another processor");
    d.n_core = 300;
    text = calibration_text(&d);
    assert_non_null(text);
    for (size_t n = 0; n < strlen(text); n += 7)
        assert_false(calibration_parse(&got, text, n));
    assert_true(calibration_parse(&got, text, strlen(text)));
    assert_true(equal(&got, &d));
    assert_int_equal(got.n_core, 300);
    TEST_OK(device_parse(&l, "cpu*2", 1, &err), err);
    l.dev[1].machine = 1;
    l.n_machine = 2;
    rates_of_list(&l, KERNEL_SET_GENERIC, &c, UINT64_MAX, alone);
    assert_true(alone[1].read_bytes_per_s == alone[0].read_bytes_per_s);
    l.measured = measured;
    calibration_add_machines(&c, &l);
    rates_of_list(&l, KERNEL_SET_GENERIC, &c, UINT64_MAX, r);
    assert_true(r[0].read_bytes_per_s == alone[0].read_bytes_per_s);
    assert_true(fabs(r[1].read_bytes_per_s / d.one.read_bytes_per_s - 1) <
                1e-12);
    assert_true(fabs(r[1].insn_s / d.one.insn_s - 1) < 1e-12);
    got.kernel_set = KERNEL_SET_AVX2;
    rates_of_list(&l, KERNEL_SET_GENERIC, &c, UINT64_MAX, r);
    assert_true(r[1].read_bytes_per_s == alone[1].read_bytes_per_s);
    free(text);
    l.n_machine = 0;
    l.measured = NULL;
    device_list_free(&l);
}

TEST(calibration_damage_counts_as_none)
{
    char path[CALIBRATION_PATH];
    struct calibration c, d;
    uint64_t seed = test_seed();
    size_t n;
    char *s;

    cache_in("damaged");
    make(&c);
    assert_int_equal(calibration_save(&c, NULL), PL_OK);
    assert_int_equal(calibration_path(path, &c, NULL), PL_OK);
    s = test_read(path, &n);
    assert_int_equal(calibration_load(&d, KERNEL_SET_GENERIC, here(), NULL),
                     PL_OK);
    for (size_t i = 0; i < n; i += 1 + (size_t)test_below(&seed, 80)) {
        char was = s[i];

        s[i] ^= (char)(1 << test_below(&seed, 7));
        /* a damaged file is rejected, or gives the same values */
        write_all(path, s, n);
        if (calibration_load(&d, KERNEL_SET_GENERIC, here(), NULL) == PL_OK &&
            !equal(&c, &d))
            fail_msg("byte %zu: '%c' for '%c'", i, s[i], was);
        s[i] = was;
    }
    for (size_t i = 0; i + 2 < n; i += 1 + (size_t)test_below(&seed, 300)) {
        write_all(path, s, i);
        assert_int_equal(calibration_load(&d, KERNEL_SET_GENERIC, here(), NULL),
                         PL_NOT_FOUND);
    }
    free(s);
    /* saving replaces the damaged file */
    assert_int_equal(calibration_save(&c, NULL), PL_OK);
    assert_int_equal(calibration_load(&d, KERNEL_SET_GENERIC, here(), NULL),
                     PL_OK);
    c.one.insn_s = INFINITY; /* JSON has no infinity, so saving fails */
    assert_int_not_equal(calibration_save(&c, NULL), PL_OK);
    c.one.insn_s = -1;
    assert_int_equal(calibration_save(&c, NULL), PL_OK);
    assert_int_equal(calibration_load(&d, KERNEL_SET_GENERIC, here(), NULL),
                     PL_NOT_FOUND);
}

TEST(calibration_of_another_machine_is_none)
{
    char path[CALIBRATION_PATH], other[CALIBRATION_PATH];
    struct calibration c, d;

    cache_in("other");
    make(&c);
    assert_int_equal(calibration_path(path, &c, NULL), PL_OK);
    for (int i = 0; i < 3; i++) {
        make(&c);
        c.n_core += i == 0;
        c.kernel_set = i == 1 ? KERNEL_SET_AVX2 : c.kernel_set;
        c.cpu[0] ^= i == 2;
        assert_int_equal(calibration_save(&c, NULL), PL_OK);
        assert_int_equal(calibration_path(other, &c, NULL), PL_OK);
        assert_string_not_equal(other, path);
        assert_int_equal(rename(other, path), 0);
        assert_int_equal(calibration_load(&d, KERNEL_SET_GENERIC, here(), NULL),
                         PL_NOT_FOUND);
    }
}

TEST(calibration_without_a_place_is_an_error_that_says_so)
{
    char path[CALIBRATION_PATH];
    struct calibration c;
    pl_err err;

    make(&c);
    assert_int_equal(setenv("XDG_CACHE_HOME", "/dev/null/cache", 1), 0);
    assert_int_equal(calibration_save(&c, &err), PL_IO);
    assert_non_null(strstr(err.message, "/dev/null"));
    assert_int_equal(calibration_load(&c, KERNEL_SET_GENERIC, here(), &err),
                     PL_NOT_FOUND);
    assert_int_equal(setenv("XDG_CACHE_HOME", "relative", 1), 0);
    assert_int_equal(setenv("HOME", "/somebody", 1), 0);
    assert_int_equal(calibration_path(path, &c, NULL), PL_OK);
    assert_non_null(strstr(path, "/somebody/.cache/plait/rates-"));
    assert_int_equal(unsetenv("HOME"), 0);
    assert_int_equal(calibration_path(path, &c, &err), PL_NOT_FOUND);
    assert_non_null(strstr(err.message, "XDG_CACHE_HOME"));
    assert_int_equal(calibration_save(&c, &err), PL_NOT_FOUND);
    assert_int_equal(calibration_load(&c, KERNEL_SET_GENERIC, here(), &err),
                     PL_NOT_FOUND);
}

/* ---- rates -------------------------------------------------------------- */

static void near(double is, double want)
{
    if (fabs(is - want) > 1e-9 * fabs(want))
        fail_msg("%.12g, not %.12g", is, want);
}

/* Memory for 2 threads of 8: each alone reads 10 GB/s, together 20. */
TEST(calibration_gives_each_device_its_threads)
{
    const uint64_t many = 1 << 30;
    struct calibration c = {.n_core = 8};
    struct device_desc d[4] = {
        {.on_cores = true, .one_queue = true, .n_thread = 1}};
    struct device_list l = {.n = 1, .dev = d};
    struct cost_rates r[4];
    double last = 0;

    invent(&c.one, 1);
    c.one.read_bytes_per_s = 10e9;
    c.one.insn_s = 1e-6;
    c.all = c.one;
    c.all.read_bytes_per_s = 2.5e9;
    c.all.insn_s = 8e-6;
    for (int n = 1; n <= 8; n++) {
        d[0].n_thread = n;
        assert_true(calibration_covers(&c, &l));
        calibration_rates(&c, &l, many, r);
        if (n == 1)
            near(r->read_bytes_per_s, 10e9);
        assert_true(r->read_bytes_per_s > last);
        last = r->read_bytes_per_s;
        near(r->insn_s, n * 1e-6);
        near(r->block_macs_per_s, n * c.one.block_macs_per_s);
        near(r->cached_bytes_per_s, n * c.one.cached_bytes_per_s);
        near(r->link_bytes_per_s, c.one.link_bytes_per_s);
        assert_true(r->one_queue);
    }
    near(last, 20e9);
    d[0].n_thread = 9;
    assert_false(calibration_covers(&c, &l));

    /* two devices and a host on all cores, which takes turns with them; a sim
     * device has a thread and its own link */
    l.n = 4;
    d[0].n_thread = 6;
    d[1] = (struct device_desc){
        .on_cores = true, .one_queue = true, .n_thread = 2};
    d[2] = (struct device_desc){
        .on_cores = true, .one_queue = true, .host = true, .n_thread = 8};
    d[3] = (struct device_desc){.memory = -1,
                                .n_thread = 1,
                                .link_bytes_per_s = 3,
                                .link_latency_s = 0.25};
    assert_true(calibration_covers(&c, &l));
    calibration_rates(&c, &l, many, r);
    near(r[0].read_bytes_per_s, 15e9);
    near(r[1].read_bytes_per_s, 5e9);
    near(r[0].insn_s, 6e-6);
    near(r[2].read_bytes_per_s, 20e9);
    near(r[3].read_bytes_per_s, 10e9);
    near(r[3].link_bytes_per_s, 3);
    near(r[3].collective_s, 0.25);
    assert_false(r[3].one_queue);

    /* this model's weights are so small that the processor's caches hold
     * them */
    calibration_rates(&c, &l, 1 << 20, r);
    for (int i = 0; i < l.n; i++)
        near(r[i].read_bytes_per_s, r[i].cached_bytes_per_s);
}

TEST(calibration_is_what_later_plans_use)
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
    pl_options o = {
        .size = sizeof o, .devices = "cpu*1", .n_threads = 1, .cpu = "generic"};
    struct calibration c;
    struct plan_facts f;
    double before = 0;
    pl_model *m;
    pl_plan *p;

    cache_in("later");
    assert_int_equal(hollow_model_write(path, &h, NULL), PL_OK);
    assert_int_equal(pl_model_open(&m, path, NULL), PL_OK);
    assert_int_equal(pl_plan_create(&p, m, &o, NULL), PL_OK);
    make(&c);
    for (int i = 0; i < 2; i++) {
        c.one.insn_s = c.all.insn_s = i == 0 ? 1e-3 : 1;
        assert_int_equal(calibration_save(&c, NULL), PL_OK);
        assert_int_equal(plan_facts_init(&f, p, NULL), PL_OK);
        assert_int_equal(f.estimate.basis, PLAN_CALIBRATED);
        assert_true(i == 0 || f.estimate.decode_tps < before);
        before = f.estimate.decode_tps;
        plan_facts_fini(&f);
    }
    pl_plan_free(p);
    pl_model_free(m);
}

TEST_FLAGGED(__FILE__, calibration_measures_this_machine, TEST_NOT_BRIEF)
{
    struct calibration c, d;
    pl_err err;

    cache_in("real");
    TEST_OK(measure_machine(&c, kernel_set_best(), false, here(), &err), err);
    /* succeeds only if all measured rates are finite */
    assert_int_equal(calibration_save(&c, NULL), PL_OK);
    assert_int_equal(calibration_load(&d, c.kernel_set, here(), NULL), PL_OK);
    assert_true(equal(&c, &d));
    for (int i = 0; i < CALIBRATION_FIELDS; i++)
        if (calibration_field[i].kind == CALIBRATION_SUM)
            assert_true(*calibration_value(&c.one, &calibration_field[i]) > 0);
    assert_true(c.one.collective_s > 0 && c.one.insn_s > 0);
}
