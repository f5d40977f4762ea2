/* Device strings have their meaning on several machines, and wrong ones are
 * rejected. */
#include "device/device_spec.h"
#include "lib/alloc_fail.h"
#include "lib/support.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Writes "cpu0@0:0,1;cpu1@1:2,3": name, node and cores of every device. */
static void describe(const struct device_list *l, char *buf, size_t size)
{
    size_t at = 0;

    buf[0] = '\0';
    for (int i = 0; i < l->n; i++) {
        const struct device_desc *d = &l->dev[i];

        at += (size_t)snprintf(buf + at, size - at, "%s%s@%d", i ? ";" : "",
                               d->name, d->numa_node);
        for (int k = 0; k < d->n_core; k++)
            at += (size_t)snprintf(buf + at, size - at, "%c%d", k ? ',' : ':',
                                   d->core[k]);
        assert_true(at < size);
    }
}

TEST(spec_shares_cores_by_node)
{
    static const struct {
        const char *machine, *allowed, *spec, *want;
    } cases[] = {
        {"numa:1 core:2 pu:1", NULL, "cpu", "cpu0@0:0,1"},
        {"numa:1 core:2 pu:1", NULL, "cpu*2", "cpu0@0:0;cpu1@0:1"},
        {"numa:1 core:2 pu:1", NULL, "cpu*1", "cpu0@0:0,1"},
        /* if there are fewer cores than devices, neighbouring devices share a
         * core */
        {"numa:1 core:2 pu:1", NULL, "cpu*4",
         "cpu0@0:0;cpu1@0:0;cpu2@0:1;cpu3@0:1"},
        {"numa:1 core:2 pu:1", NULL, "cpu*3", "cpu0@0:0;cpu1@0:0;cpu2@0:1"},
        {"numa:2 core:8 pu:1", NULL, "cpu",
         "cpu0@0:0,1,2,3,4,5,6,7;cpu1@1:8,9,10,11,12,13,14,15"},
        {"numa:2 core:8 pu:1", NULL, "cpu*1",
         "cpu0@-1:0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15"},
        {"numa:2 core:8 pu:1", NULL, "cpu*4",
         "cpu0@0:0,1,2,3;cpu1@0:4,5,6,7;cpu2@1:8,9,10,11;cpu3@1:12,13,14,15"},
        {"numa:2 core:8 pu:1", NULL, "cpu*3",
         "cpu0@0:0,1,2,3;cpu1@0:4,5,6,7;cpu2@1:8,9,10,11,12,13,14,15"},
        /* fewer devices than nodes: whole nodes if they divide evenly */
        {"numa:4 core:2 pu:1", NULL, "cpu*2",
         "cpu0@-1:0,1,2,3;cpu1@-1:4,5,6,7"},
        /* a device has one thread per core, though a core has two processors */
        {"numa:4 core:2 pu:2", NULL, "cpu",
         "cpu0@0:0,2;cpu1@1:4,6;cpu2@2:8,10;cpu3@3:12,14"},
        {"numa:2 core:4 pu:1", "2-3,5", "cpu*2", "cpu0@0:2,3;cpu1@1:5"},
        {"numa:2 core:4 pu:1", "2-3,5", "cpu*3", "cpu0@0:2;cpu1@0:3;cpu2@1:5"},
        {"pack:2 [numa] core:2 pu:1", NULL, "cpu", "cpu0@0:0,1;cpu1@1:2,3"},
        /* strings with lists of cores */
        {"numa:2 core:8 pu:1", NULL, "cpu:0-3+8-11",
         "cpu0@-1:0,1,2,3,8,9,10,11"},
        {"numa:2 core:8 pu:1", NULL, "cpu:0-3,cpu:4-7",
         "cpu0@0:0,1,2,3;cpu1@0:4,5,6,7"},
        {"numa:2 core:8 pu:1", NULL, "cpu:3+1+1-2", "cpu0@0:1,2,3"},
        {"numa:2 core:8 pu:1", NULL, "cpu:6-9*2", "cpu0@0:6,7;cpu1@1:8,9"},
        {"numa:1 core:2 pu:2", NULL, "cpu:0-3", "cpu0@0:0,1,2,3"},
        {"numa:1 core:2 pu:1", NULL, "sim*2,cpu,sim",
         "sim0@-1;sim1@-1;cpu0@0:0,1;sim2@-1"},
        /* names as the plan and other programs write them */
        {"numa:1 core:2 pu:1", NULL, "CPU", "cpu0@0:0,1"},
        {"numa:1 core:2 pu:1", NULL, "CPU0", "cpu0@0:0,1"},
        {"numa:1 core:2 pu:1", NULL, "Cpu*2", "cpu0@0:0;cpu1@0:1"},
        {"numa:1 core:2 pu:1", NULL, "sim0,cpu0", "sim0@-1;cpu0@0:0,1"},
        {"numa:1 core:2 pu:1", NULL, "EMU0", "emu0@-1"},
        {"numa:1 core:2 pu:1", NULL, "NONE", ""},
        {"numa:1 core:2 pu:1", NULL, " sim*2 ,  cpu, sim",
         "sim0@-1;sim1@-1;cpu0@0:0,1;sim2@-1"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct topology t;
        struct device_list l;
        char have[512];
        pl_err err;

        assert_int_equal(topology_load_synthetic(&t, cases[i].machine,
                                                 cases[i].allowed, NULL),
                         PL_OK);
        TEST_OK(device_parse_on(&l, cases[i].spec, 0, &t, &err), err);
        describe(&l, have, sizeof have);
        if (strcmp(have, cases[i].want) != 0)
            fail_msg("%s on %s: %s, not %s", cases[i].spec, cases[i].machine,
                     have, cases[i].want);
        device_list_free(&l);
        topology_fini(&t);
    }
}

/* Random machines: every device has cores, on one node if there are at least as
 * many devices as nodes. All cores are used if there are at least as many cores
 * as devices. */
TEST(spec_uses_every_core_and_spans_no_node)
{
    uint64_t rng = test_seed();

    for (int round = 0; round < 200; round++) {
        int n_node = 1 + (int)test_below(&rng, 4);
        int n_core = 1 + (int)test_below(&rng, 9);
        int n_dev = 1 + (int)test_below(&rng, 20);
        bool used[64] = {false};
        struct topology t;
        struct device_list l;
        char machine[64], spec[32];

        snprintf(machine, sizeof machine, "numa:%d core:%d pu:1", n_node,
                 n_core);
        snprintf(spec, sizeof spec, "cpu*%d", n_dev);
        assert_int_equal(topology_load_synthetic(&t, machine, NULL, NULL),
                         PL_OK);
        assert_int_equal(device_parse_on(&l, spec, 0, &t, NULL), PL_OK);
        assert_int_equal(l.n, n_dev);
        for (int i = 0; i < n_dev; i++) {
            const struct device_desc *d = &l.dev[i];

            assert_true(d->n_core >= 1 && d->n_thread == d->n_core);
            if (n_dev >= n_node)
                assert_true(d->numa_node >= 0);
            for (int k = 0; k < d->n_core; k++) {
                if (n_dev <= n_node * n_core && n_dev % n_node == 0)
                    assert_false(used[d->core[k]]);
                used[d->core[k]] = true;
            }
        }
        for (int k = 0; k < n_node * n_core; k++)
            assert_true(used[k]);
        device_list_free(&l);
        topology_fini(&t);
    }
}

TEST(spec_quota_limits_default_cores)
{
    struct topology t;
    struct device_list l;
    char have[256];

    assert_int_equal(
        topology_load_synthetic(&t, "numa:2 core:8 pu:1", NULL, NULL), PL_OK);
    t.n_core_quota = 4;
    assert_int_equal(device_parse_on(&l, "cpu", 0, &t, NULL), PL_OK);
    describe(&l, have, sizeof have);
    assert_string_equal(have, "cpu0@0:0,4;cpu1@1:8,12");
    device_list_free(&l);
    assert_int_equal(device_parse_on(&l, "cpu:0-7", 0, &t, NULL), PL_OK);
    /* cores that the string numbers are all used */
    assert_int_equal(l.dev[0].n_core, 8);
    device_list_free(&l);
    topology_fini(&t);
}

TEST(spec_threads_are_a_device)
{
    struct topology t;
    struct device_list l;

    assert_int_equal(topology_load_synthetic(&t, "core:4 pu:1", NULL, NULL),
                     PL_OK);
    assert_int_equal(device_parse_on(&l, "cpu*2,sim", 3, &t, NULL), PL_OK);
    assert_int_equal(l.dev[0].n_thread, 3);
    assert_int_equal(l.dev[1].n_thread, 3);
    assert_int_equal(l.dev[2].n_thread, 1);
    assert_true(device_shares_memory(&l.dev[0], &l.dev[1]));
    assert_false(device_shares_memory(&l.dev[0], &l.dev[2]));
    assert_false(device_shares_memory(&l.dev[2], &l.dev[0]));
    device_list_free(&l);
    assert_int_equal(device_parse_on(&l, "cpu", -1, &t, NULL), PL_BAD_ARGUMENT);
    topology_fini(&t);
}

TEST(spec_sim_fields_go_by_unit)
{
    struct device_list l;
    pl_err err;

    TEST_OK(device_parse(&l,
                         "sim:10us:2GiB:16GB/s*2,sim:1.5kB,sim,"
                         "sim:2GiB:available=1GiB",
                         0, &err),
            err);
    assert_int_equal(l.n, 5);
    assert_string_equal(l.dev[3].name, "sim3");
    for (int i = 0; i < 2; i++) {
        assert_ptr_equal(l.dev[i].ops, &sim_ops);
        assert_true(l.dev[i].memory_bytes == (uint64_t)2 << 30);
        assert_true(l.dev[i].link_bytes_per_s == 16e9);
        assert_true(fabs(l.dev[i].link_latency_s - 1e-5) < 1e-12);
    }
    assert_int_equal(l.dev[2].memory_bytes, 1500);
    assert_true(l.dev[2].link_bytes_per_s == 0);
    assert_int_equal(l.dev[3].memory_bytes, 0);
    assert_int_equal(l.dev[3].available_bytes, 0);
    assert_true(l.dev[1].available_bytes == l.dev[1].memory_bytes);
    assert_true(l.dev[4].memory_bytes == (uint64_t)2 << 30);
    assert_true(l.dev[4].available_bytes == (uint64_t)1 << 30);
    device_list_free(&l);
}

TEST(spec_paper_devices_are_described)
{
    struct device_list l;
    pl_err err;

    TEST_OK(
        device_parse_paper(&l,
                           "gpu:24GiB:1TB/s*4,gpu:80GiB:3TB/s:link=64GB/s:"
                           "latency=5us:flops=400T*2,cpu:1TiB:200GB/s:50GB/s:"
                           "2T:1ms",
                           &err),
        err);
    assert_int_equal(l.n, 7);
    assert_string_equal(l.dev[3].name, "gpu3");
    assert_string_equal(l.dev[4].name, "gpu4");
    assert_string_equal(l.dev[6].name, "cpu0");
    assert_ptr_equal(l.dev[0].ops, &paper_ops);
    assert_true(l.dev[0].memory_bytes == (uint64_t)24 << 30);
    assert_true(l.dev[0].mem_bytes_per_s == 1e12);
    assert_true(l.dev[0].float_macs_per_s == 0 &&
                l.dev[0].link_bytes_per_s == 0);
    assert_true(l.dev[5].link_bytes_per_s == 64e9);
    /* the description counts operations, the field multiply-adds */
    assert_true(l.dev[5].float_macs_per_s == 200e12);
    assert_true(fabs(l.dev[5].link_latency_s - 5e-6) < 1e-12);
    assert_true(l.dev[6].mem_bytes_per_s == 200e9);
    assert_true(l.dev[6].link_bytes_per_s == 50e9);
    assert_true(l.dev[6].float_macs_per_s == 1e12);
    /* -1, memory of its own, also for devices whose description says that they
     * share memory */
    for (int i = 0; i < l.n; i++)
        assert_int_equal(l.dev[i].memory, -1);
    device_list_free(&l);
    assert_int_equal(
        device_parse_paper(&l, "gpu:1GiB:1TB/s,cpu:1GiB:1TB/s:shared*2", NULL),
        PL_OK);
    assert_int_equal(l.dev[0].memory, -1);
    assert_true(l.dev[1].memory >= 0 && l.dev[1].memory == l.dev[2].memory);
    device_list_free(&l);
}

/* The keys p2p= and int8= are always written out; a bandwidth without a key is
 * the link's. */
TEST(spec_paper_devices_may_have_peers_and_int8)
{
    struct device_list l;
    pl_err err;

    TEST_OK(device_parse_paper(&l,
                               "gpu:p2p=450GB/s:int8=2P:launch=1us:141GiB:"
                               "4.8TB/s:"
                               "flops=60T:64GB/s*2,gpu:24GiB:1TB/s",
                               &err),
            err);
    for (int i = 0; i < 2; i++) {
        assert_true(l.dev[i].p2p_bytes_per_s == 450e9);
        assert_true(l.dev[i].block_macs_per_s == 1e15);
        assert_true(l.dev[i].launch_s == 1e-6);
        assert_true(l.dev[i].float_macs_per_s == 30e12);
        assert_true(l.dev[i].link_bytes_per_s == 64e9);
        assert_true(l.dev[i].mem_bytes_per_s == 4.8e12);
    }
    assert_true(l.dev[2].p2p_bytes_per_s == 0 &&
                l.dev[2].block_macs_per_s == 0 && l.dev[2].launch_s == 0);
    device_list_free(&l);
    assert_int_equal(device_parse_paper(&l, "gpu:1GiB:1TB/s:2GB/s:3GB/s", &err),
                     PL_BAD_ARGUMENT);
    assert_non_null(strstr(err.message, "is unexpected"));
    assert_int_equal(device_parse_paper(&l, "gpu:1GiB:1TB/s:p2p=9us", &err),
                     PL_BAD_ARGUMENT);
    assert_non_null(strstr(err.message, "p2p must be a bandwidth"));
}

/* Devices of one item are a link domain; those of another are another. */
TEST(spec_paper_devices_of_an_item_may_have_a_bridge)
{
    struct device_list l;
    pl_err err;

    TEST_OK(device_parse_paper(&l,
                               "gpu:1GiB:1TB/s:bridge=300GB/s*2,gpu:1GiB:1TB/s,"
                               "gpu:1GiB:1TB/s:p2p=9GB/s:bridge=300GB/s*2",
                               &err),
            err);
    assert_true(l.dev[0].link_domain > 0 && l.dev[3].link_domain > 0);
    assert_int_equal(l.dev[0].link_domain, l.dev[1].link_domain);
    assert_int_equal(l.dev[2].link_domain, 0);
    assert_int_equal(l.dev[3].link_domain, l.dev[4].link_domain);
    assert_int_not_equal(l.dev[0].link_domain, l.dev[3].link_domain);
    assert_true(l.dev[1].bridge_bytes_per_s == 300e9);
    assert_true(l.dev[1].p2p_bytes_per_s == 0);
    assert_true(l.dev[4].p2p_bytes_per_s == 9e9);
    device_list_free(&l);
}

/* Devices of another machine are counted apart, and their names have its
 * number. */
TEST(spec_paper_devices_may_be_on_several_machines)
{
    static const char *const names[] = {"gpu0",   "gpu1", "1/gpu0",
                                        "1/cpu0", "gpu2", "12/gpu0"};
    static const int machines[] = {0, 0, 1, 1, 0, 12};
    struct device_list l;
    pl_err err;

    TEST_OK(device_parse_paper(
                &l,
                "gpu:1GiB:1TB/s*2,gpu:1GiB:1TB/s:machine=1:network=1.5GB/s,"
                "cpu:64GiB:80GB/s:machine=1:network-latency=30us,"
                "gpu:1GiB:1TB/s:machine=0,gpu:1GiB:1TB/s:machine=12",
                &err),
            err);
    assert_int_equal(l.n, 6);
    for (int i = 0; i < l.n; i++) {
        assert_string_equal(l.dev[i].name, names[i]);
        assert_int_equal(l.dev[i].machine, machines[i]);
    }
    assert_true(l.dev[2].network_bytes_per_s == 1.5e9);
    assert_true(fabs(l.dev[3].network_latency_s - 30e-6) < 1e-12);
    device_list_free(&l);
}

/* A latency of 0 is valid, and differs from the default. */
TEST(spec_latency_may_be_zero)
{
    static const char *const specs[] = {
        "gpu:1GiB:1TB/s:0us", "gpu:0s:1GiB:1TB/s", "gpu:1GiB:1TB/s:latency=0ms",
        "gpu:1GiB:1TB/s:latency=0.0ns"};
    struct device_list l;
    pl_err err;

    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
        if (device_parse_paper(&l, specs[i], &err) != PL_OK)
            fail_msg("%s: %s", specs[i], err.message);
        assert_true(l.dev[0].link_latency_s > 0);
        assert_true(l.dev[0].link_latency_s < 1e-100);
        device_list_free(&l);
    }
    TEST_OK(device_parse_on(&l, "sim:0us*2", 0, NULL, &err), err);
    device_list_free(&l);
}

TEST(spec_errors_name_item_and_remedy)
{
    static const struct {
        const char *spec, *says;
    } cases[] = {
        {"", "its name is missing"},
        {"cpu,", "its name is missing"},
        {"cpu*0", "\"cpu*0\": the count"},
        {"cpu*", "the count"},
        {"cpu*-1", "the count"},
        {"cpu*2x", "the count"},
        {"cpu*1025", "1 to 1024"},
        {"cpu*99999999999", "1 to 1024"},
        {"sim*1000,sim*25", "more than 1024"},
        {"igpu", "\"igpu\": unknown type; use cpu, sim, proc, gpu, "},
        {"cpu1", "\"cpu1\": its devices have no numbers; accepted: cpu (one"},
        {"cpu00", "its devices have no numbers"},
        {"cpu0*2", "unknown type"},
        {"cpu,none", "none excludes other"},
        {"cpu,None", "none excludes other"},
        {"Vulkan0", "`plait devices` lists those of this machine"},
        {"ROCm0:2GiB*2", "\"ROCm0:2GiB*2\": unknown type"},
        {"0", "unknown type"},
        {"a-name-of-many-letters-and-digits-0123456789",
         "-0123456789\": unknown type"},
        {"c\033[31mpu", "device \"c?[31mpu\": unknown type"},
        {"sim:2GB:0us:0us", "\"0us\", a time (10us), is unexpected"},
        {"sim:latency=0us:latency=1us", "latency is given twice"},
        {"sim:-0us", "not a positive number"},
        {"sim:0GB/s", "not a positive number"},
        {"sim:0.00XBxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
         "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
         "xxxx...\" is not a positive number"},
        {"cpu:", "nothing after ':'"},
        {"cpu:0-", "not a list of cores"},
        {"cpu:a", "not a list of cores"},
        {"cpu:0+", "not a list of cores"},
        {"cpu:0:1", "not a list of cores"},
        {"cpu:3-1", "3-1 is not a range"},
        {"cpu:0-8", "may not use core 4, only 0-3"},
        {"cpu:99999999999999999999", "not a range"},
        {"sim:2", "is unexpected"},
        {"sim:2XB", "not a positive number"},
        {"sim:-2GB", "not a positive number"},
        {"sim:0GB", "not a positive number"},
        {"sim:0x10GB", "not a positive number"},
        {"sim:1e400GB", "not a positive number"},
        {"sim:99999999TiB", "not a positive number"},
        {"sim:10us/s", "not a positive number"},
        {"sim:2GB:3GB", "\"3GB\", a memory size (2GiB), is unexpected"},
        {"sim:2GB:available=3GB", "available= exceeds the memory"},
        {"sim:available=3GB", "available= exceeds the memory"},
        {"sim:flops=3T", "\"flops\" is not a property"},
        {"sim:latency=3GB", "latency must be a time (10us), not \"3GB\""},
        {"sim:link=3GB/s:link=3GB/s", "link is given twice"},
        {"sim:link=1e-300B/s",
         "link must be at least 1kB/s, not \"1e-300B/s\""},
        {"sim:999B/s", "link must be at least 1kB/s"},
        {"sim:1e300s", "latency must be at most 10s, not \"1e300s\""},
        {"sim:10001ms", "latency must be at most 10s"},
        {"sim:2GB:", "nothing after ':'"},
        {"sim::2GB", "not a positive number"},
    };
    struct topology t;
    struct device_list l;
    char accepted[40];
    pl_err err;

    assert_int_equal(topology_load_synthetic(&t, "core:4 pu:1", NULL, NULL),
                     PL_OK);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(device_parse_on(&l, cases[i].spec, 0, &t, &err),
                         PL_BAD_ARGUMENT);
        assert_int_equal(l.n, 0);
        assert_null(l.dev);
        if (!strstr(err.message, cases[i].says))
            fail_msg("%s: \"%s\" does not say \"%s\"", cases[i].spec,
                     err.message, cases[i].says);
        assert_true(strlen(err.message) < 320);
        if (strstr(err.message, "unknown type") ||
            strstr(err.message, "name is missing") ||
            strstr(err.message, "none excludes"))
            continue;
        snprintf(accepted, sizeof accepted, "; accepted: %.3s", cases[i].spec);
        assert_non_null(strstr(err.message, accepted));
    }
    assert_int_equal(device_parse_paper(&l, "gpu*4", &err), PL_BAD_ARGUMENT);
    assert_non_null(strstr(err.message, "the memory is missing"));
    assert_int_equal(device_parse_paper(&l, "gpu:24GiB", &err),
                     PL_BAD_ARGUMENT);
    assert_non_null(strstr(err.message, "bandwidth is missing"));
    assert_non_null(strstr(err.message, "accepted: NAME"));
    assert_int_equal(device_parse_paper(&l, "gpu:1GB:1B/s", &err),
                     PL_BAD_ARGUMENT);
    assert_non_null(strstr(err.message, "bandwidth must be at least 1kB/s"));
    assert_int_equal(device_parse_paper(&l, "gpu:1GB:1GB/s:flops=1e-9", &err),
                     PL_BAD_ARGUMENT);
    assert_non_null(strstr(err.message, "flops must be at least 1000"));
    assert_int_equal(device_parse_paper(&l, "gpu:1GB:1GB/s:machine=128", &err),
                     PL_BAD_ARGUMENT);
    assert_non_null(strstr(err.message, "machine must be 0 to 127"));
    assert_int_equal(device_parse_paper(&l, "gpu:1GB:1GB/s:machine=0.5", &err),
                     PL_BAD_ARGUMENT);
    assert_non_null(strstr(err.message, "machine must be a whole number"));
    TEST_OK(device_parse_on(&l, "sim:10s:1kB/s", 0, &t, &err), err);
    device_list_free(&l);
    topology_fini(&t);
}

TEST(spec_allocation_failure_is_a_status)
{
    struct topology t;
    struct device_list l;

    assert_int_equal(
        topology_load_synthetic(&t, "numa:2 core:2 pu:1", NULL, NULL), PL_OK);
    for (int64_t n = 0; alloc_each(&n);) {
        if (alloc_ran(device_parse_on(&l, "cpu*2,cpu:0,sim*3", 0, &t, NULL)))
            assert_null(l.dev);
        device_list_free(&l);
    }
    topology_fini(&t);
}

/* want lists devices as NAME@NODE:PROCESSORS; node -1 = no single node. */
TEST(spec_host_has_every_core)
{
    static const struct {
        const char *machine, *spec;
        int n_rank, n_thread;
        const char *want;
        int threads; /* expected number of threads of each device on the host */
    } cases[] = {
        {"numa:1 core:4 pu:1", "none", 1, 0, "host@0:0,1,2,3", 4},
        {"numa:1 core:4 pu:1", "sim", 2, 3, "sim0@-1;host@0:0,1,2,3", 3},
        {"numa:1 core:4 pu:1", "cpu:0", 2, 1, "cpu0@0:0;host@0:0,1,2,3", 1},
        {"numa:1 core:2 pu:1", "cpu*2", 2, 1, "cpu0@0:0;cpu1@0:1;host@0:0,1",
         2},
        {"numa:1 core:2 pu:1", "cpu*2", 2, 9, "cpu0@0:0;cpu1@0:1;host@0:0,1",
         2},
        {"numa:2 core:2 pu:1", "sim", 4, 0, "sim0@-1;host0@0:0,1;host1@1:2,3",
         2},
        {"numa:2 core:2 pu:1", "sim", 3, 0, "sim0@-1;host@-1:0,1,2,3", 4},
        {"numa:2 core:2 pu:2", "cpu*4", 2, 1,
         "cpu0@0:0;cpu1@0:2;cpu2@1:4;cpu3@1:6;host0@0:0,2;host1@1:4,6", 2},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct topology t;
        struct device_list l;
        char have[512];
        int first;

        assert_int_equal(
            topology_load_synthetic(&t, cases[i].machine, NULL, NULL), PL_OK);
        assert_int_equal(
            device_parse_on(&l, cases[i].spec, cases[i].n_thread, &t, NULL),
            PL_OK);
        assert_int_equal(device_list_add_host_on(&l, cases[i].n_rank,
                                                 cases[i].n_thread, &t, &first,
                                                 NULL),
                         PL_OK);
        describe(&l, have, sizeof have);
        assert_string_equal(have, cases[i].want);
        for (int d = 0; d < l.n; d++) {
            assert_int_equal(l.dev[d].host, d >= first);
            if (d >= first) {
                assert_ptr_equal(l.dev[d].ops, &cpu_ops);
                assert_int_equal(l.dev[d].n_thread, cases[i].threads);
            }
        }
        device_list_free(&l);
        topology_fini(&t);
    }
}

TEST(spec_host_may_be_described)
{
    struct device_list l;
    int first;
    pl_err err;

    assert_int_equal(
        device_parse_paper(&l, "host:64GiB:80GB/s,gpu:1GiB:1TB/s", NULL),
        PL_OK);
    assert_int_equal(l.n, 1);
    assert_string_equal(l.dev[0].name, "gpu0");
    assert_int_equal(device_list_add_host(&l, 1, 0, true, &first, NULL), PL_OK);
    assert_int_equal(first, 1);
    assert_string_equal(l.dev[1].name, "host");
    assert_true(l.dev[1].host && l.dev[1].described);
    assert_true(l.dev[1].memory_bytes == 64ull << 30);
    assert_true(l.dev[1].mem_bytes_per_s == 80e9);
    assert_int_equal(device_list_add_io(&l, true, NULL), PL_OK);
    assert_true(l.dev[0].accelerator);
    assert_false(l.dev[1].accelerator || l.dev[2].accelerator);
    device_list_free(&l);
    assert_int_equal(device_parse_paper(&l, "none", NULL), PL_OK);
    assert_int_equal(l.n, 0);
    assert_int_equal(device_list_add_host(&l, 1, 0, true, &first, NULL), PL_OK);
    assert_true(l.dev[0].memory_bytes == 0 && l.dev[0].float_macs_per_s > 0);
    device_list_free(&l);
    assert_int_equal(device_parse_paper(&l, "host:1GiB:1GB/s*2", &err),
                     PL_BAD_ARGUMENT);
    assert_non_null(strstr(err.message, "a machine has only one host"));
    assert_int_equal(device_parse_paper(&l, "host:1GiB:1GB/s:machine=1", &err),
                     PL_BAD_ARGUMENT);
    assert_non_null(strstr(err.message, "the host is that of machine 0"));
}
