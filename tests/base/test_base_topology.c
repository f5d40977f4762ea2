/* The machine's tables are correct for hwloc's synthetic topologies and for
 * this machine. */
#include "lib/support.h"
#include "machine/topology.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/alloc_fail.h"

static struct topology load(const char *desc, const char *allowed)
{
    struct topology t;
    pl_err err;

    if (topology_load_synthetic(&t, desc, allowed, &err) != PL_OK)
        fail_msg("%s: %s", desc, err.message);
    return t;
}

TEST(topology_counts_nodes_cores_and_threads)
{
    static const struct {
        const char *desc;
        int n_node, n_core, n_cpu;
    } cases[] = {
        {"numa:1 core:2 pu:1", 1, 2, 2},
        {"numa:2 core:8 pu:1", 2, 16, 16},
        {"numa:4 core:4 pu:2", 4, 16, 32},
        /* hwloc knows no cores here, so each processor counts as one */
        {"pu:6", 1, 6, 6},
        {"core:3 pu:4", 1, 3, 12},
        {"pack:2 numa:2 l3:2 core:3 pu:2", 4, 24, 48},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct topology t = load(cases[i].desc, NULL);

        assert_int_equal(t.n_node, cases[i].n_node);
        assert_int_equal(t.n_core, cases[i].n_core);
        assert_int_equal(t.n_cpu, cases[i].n_cpu);
        assert_int_equal(t.n_core_quota, t.n_core);
        assert_false(t.here);
        for (int k = 1; k < t.n_core; k++)
            assert_true(t.core[k].node >= t.core[k - 1].node);
        for (int k = 0; k < t.n_cpu; k++) {
            assert_int_equal(t.core[t.cpu[k].core].node, t.cpu[k].node);
            assert_int_equal(topology_find_cpu(&t, t.cpu[k].os), k);
        }
        assert_int_equal(topology_find_cpu(&t, 1000), -1);
        topology_fini(&t);
    }
}

/* The numbers of a core's siblings are apart (0 and 4), and those of the nodes
 * interleave. */
TEST(topology_keeps_siblings_and_nodes_together)
{
    struct topology t =
        load("numa:2 core:2 pu:2(indexes=0,4,2,6,1,5,3,7)", NULL);

    assert_int_equal(t.n_core, 4);
    assert_int_equal(t.core[0].os, 0);
    assert_int_equal(t.core[1].os, 2);
    assert_int_equal(t.core[2].os, 1);
    assert_int_equal(t.core[3].os, 3);
    assert_int_equal(t.cpu[topology_find_cpu(&t, 4)].core, 0);
    assert_int_equal(t.cpu[topology_find_cpu(&t, 7)].core, 3);
    assert_int_equal(t.cpu[topology_find_cpu(&t, 7)].node, 1);
    topology_fini(&t);
}

TEST(topology_shows_only_what_is_allowed)
{
    char list[64];
    struct topology t = load("numa:2 core:4 pu:2", "3,5-6");

    assert_int_equal(t.n_node, 1);
    assert_int_equal(t.n_core, 3);
    assert_int_equal(t.n_cpu, 3);
    /* processor 2, the core's other thread, is not in the process's set */
    assert_int_equal(t.core[0].os, 3);
    topology_list_cpus(&t, list, sizeof list);
    assert_string_equal(list, "3,5-6");
    topology_fini(&t);

    /* processor 7 belongs to the second node */
    t = load("numa:2 core:4 pu:1", "7");
    assert_int_equal(t.n_node, 1);
    assert_int_equal(t.node[0].os, 1);
    assert_int_equal(t.node[0].n_core, 1);
    topology_fini(&t);
}

TEST(topology_takes_the_larger_memory_of_a_core)
{
    struct topology t = load(
        "pack:2 [numa(memory=16GiB)] [numa(memory=256GiB)] core:2 pu:1", NULL);

    assert_int_equal(t.n_node, 2);
    assert_int_equal(t.node[0].os, 1);
    assert_int_equal(t.node[1].os, 3);
    assert_true(t.node[0].memory_bytes == (uint64_t)256 << 30);
    assert_true(t.memory_bytes == (uint64_t)512 << 30);
    topology_fini(&t);
}

TEST(topology_allows_nodes_without_memory)
{
    struct topology t = load("pack:2 [numa] core:2 pu:1", NULL);
    void *p;

    assert_int_equal(t.n_node, 2);
    assert_int_equal(t.n_core, 4);
    assert_int_equal(t.node[0].memory_bytes, 0);
    p = topology_alloc(&t, t.node[0].os, 4 << 20);
    assert_non_null(p);
    topology_free(p, 4 << 20);
    topology_fini(&t);
}

TEST(topology_of_this_machine_has_a_core)
{
    struct topology t;
    pl_err err;

    TEST_OK(topology_load(&t, &err), err);
    assert_true(t.here && t.n_node >= 1 && t.n_core >= 1);
    assert_in_range(t.n_core_quota, 1, t.n_core);
    for (size_t bytes = 0; bytes < 8 << 20; bytes = bytes * 3 + 100) {
        /* -1: no node; 0: an existing node; 1: perhaps a missing one */
        for (int os = -1; os <= 1; os++) {
            unsigned char *p = topology_alloc(&t, os, bytes);

            assert_non_null(p);
            assert_int_equal((uintptr_t)p % 64, 0);
            for (size_t i = 0; i < bytes; i += 61)
                assert_int_equal(p[i], 0);
            memset(p, 1, bytes);
            topology_free(p, bytes);
        }
    }
    topology_fini(&t);
}

/* Returns true if a process forked now has memory at p. */
static bool child_has(void *p)
{
    int status;
    pid_t child = fork();

    if (child == 0) {
        unsigned char in_core;

        _exit(mincore(p, 1, &in_core) == 0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return WEXITSTATUS(status) != 0;
}

TEST(topology_pages_are_whole_and_stay_here)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);

    for (size_t bytes = 0; bytes < 8 << 20; bytes = bytes * 5 + 100) {
        unsigned char *p = topology_alloc_pages(NULL, -1, bytes);

        assert_non_null(p);
        assert_int_equal((uintptr_t)p % page, 0);
        for (size_t i = 0; i < bytes; i += 61)
            assert_int_equal(p[i], 0);
        /* writes to the end of the last page */
        memset(p, 1, bytes / page * page + page);
        assert_false(child_has(p));
        topology_free_pages(p, bytes);
    }
}

/* A single node has all memory that the system counts, unless a container may
 * have less. */
TEST(topology_one_node_has_all_memory)
{
    struct topology t;
    uint64_t all =
        (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);

    unsetenv("PLAIT_MEMORY"); /* the test runner has set the variable */
    assert_int_equal(topology_load(&t, NULL), PL_OK);
    if (topology_one_node() && t.memory_bytes >= all)
        assert_true(t.node[0].memory_bytes >= all);
    for (int i = 0; i < t.n_node; i++) {
        assert_in_range(t.node[i].available_bytes, t.node[i].memory_bytes > 0,
                        t.node[i].memory_bytes);
        assert_true(t.node[i].available_bytes <= t.available_bytes);
    }
    assert_in_range(t.available_bytes, 1, t.memory_bytes);
    topology_fini(&t);
}

/* Two devices, one a node, must not both plan with the machine's one limit. */
TEST(topology_nodes_share_what_is_available)
{
    struct topology t;
    uint64_t all = 0, now = 0;
    pl_err err;

    unsetenv("PLAIT_MEMORY");
    setenv("HWLOC_SYNTHETIC", "numa:3(memory=64TiB) core:1 pu:1", 1);
    setenv("HWLOC_THISSYSTEM", "1", 1);
    TEST_OK(topology_load(&t, &err), err);
    unsetenv("HWLOC_SYNTHETIC");
    unsetenv("HWLOC_THISSYSTEM");
    if (!t.here || t.n_node < 2)
        TEST_SKIP("hwloc shows this machine's own nodes");
    for (int i = 0; i < t.n_node; i++) {
        all += t.node[i].memory_bytes;
        now += t.node[i].available_bytes;
    }
    assert_true(all <= t.memory_bytes + 64);
    assert_true(now <= t.available_bytes + 64);
    assert_true(t.available_bytes < t.memory_bytes);
    topology_fini(&t);
}

TEST(topology_memory_may_be_stated)
{
    struct topology t;
    pl_err err;

    setenv("PLAIT_MEMORY", "48GiB:36GiB", 1);
    TEST_OK(topology_load(&t, &err), err);
    assert_true(t.memory_bytes == (uint64_t)48 << 30);
    assert_true(t.available_bytes == (uint64_t)36 << 30);
    for (int i = 0; i < t.n_node; i++) {
        assert_true(t.node[i].memory_bytes ==
                    t.memory_bytes / (uint64_t)t.n_node);
        assert_true(t.node[i].available_bytes ==
                    t.available_bytes / (uint64_t)t.n_node);
    }
    topology_fini(&t);
    setenv("PLAIT_MEMORY", "1KB", 1);
    assert_int_equal(topology_load(&t, &err), PL_BAD_ARGUMENT);
    assert_non_null(strstr(err.message, "PLAIT_MEMORY=1KB"));
    unsetenv("PLAIT_MEMORY");
}

TEST(topology_several_nodes_are_not_one)
{
    struct topology t;

    assert_int_equal(topology_load(&t, NULL), PL_OK);
    if (topology_one_node())
        assert_int_equal(t.n_node, 1);
    topology_fini(&t);
}

/* topology_fetch gets any range, mapped or not, and changes no byte. */
TEST(topology_fetch_changes_nothing)
{
    enum { BYTES = 3 << 20 };
    unsigned char *p = topology_alloc(NULL, -1, BYTES);

    assert_non_null(p);
    memset(p, 7, BYTES);
    topology_fetch(p, BYTES);
    topology_fetch(p + 5, 0);
    topology_fetch(p + 4095, 2);
    topology_fetch(p + 123, BYTES - 123);
    for (int i = 0; i < BYTES; i++)
        assert_true(p[i] == 7);
    topology_free(p, BYTES);
    topology_fetch(p, BYTES);
}

TEST(topology_failures_are_statuses)
{
    struct topology t;
    pl_err err;

    assert_int_equal(topology_load_synthetic(&t, "not found", NULL, &err),
                     PL_BAD_ARGUMENT);
    assert_int_equal(topology_load_synthetic(&t, "pu:2", "5", &err), PL_DEVICE);
    assert_non_null(strstr(err.message, "taskset"));
    for (int64_t n = 0; alloc_each(&n);) {
        alloc_ran(
            topology_load_synthetic(&t, "numa:2 core:2 pu:1", NULL, NULL));
        topology_fini(&t);
        /* topology_fini allows a topology that is all zeros */
        topology_fini(&t);
    }
}

/* Loads this machine with one of hwloc's variables set; nothing may be printed
 * on standard error. Returns the status, with the message in *err. */
static pl_status load_ordered(const char *name, const char *value, pl_err *err)
{
    const char *path = test_temp("stderr");
    int before = dup(2), fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    struct topology t;
    pl_status s;
    size_t n;
    char *said;

    assert_true(before >= 0 && fd >= 0);
    assert_int_equal(setenv(name, value, 1), 0);
    fflush(stderr);
    dup2(fd, 2);
    s = topology_load(&t, err);
    fflush(stderr);
    dup2(before, 2);
    unsetenv(name);
    close(before);
    close(fd);
    said = test_read(path, &n);
    if (n > 0)
        fail_msg("%s=%s: hwloc says %.200s", name, value, said);
    free(said);
    topology_fini(&t);
    return s;
}

TEST(topology_orders_of_hwloc_are_followed_or_refused)
{
    static const struct {
        const char *name, *value;
        pl_status status;
    } list[] = {
        {"HWLOC_XMLFILE", "/nonexistent", PL_OK},
        {"HWLOC_XMLFILE", "/etc/passwd", PL_DEVICE},
        {"HWLOC_XMLFILE", "/dev/zero", PL_DEVICE},
        {"HWLOC_XMLFILE", "/", PL_DEVICE},
        {"HWLOC_SYNTHETIC", "garbage", PL_OK},
        {"HWLOC_SYNTHETIC", "", PL_OK},
        {"HWLOC_FSROOT", "/nonexistent", PL_OK},
        {"HWLOC_CPUID_PATH", "/nonexistent", PL_DEVICE},
        {"HWLOC_COMPONENTS", "abacus", PL_DEVICE},
        {"HWLOC_COMPONENTS", "xml", PL_DEVICE},
        {"HWLOC_COMPONENTS", "linux,synthetic", PL_DEVICE},
        {"HWLOC_COMPONENTS", "-abacus,,-x86,linux,stop,abacus", PL_OK},
        {"HWLOC_COMPONENTS", "stop", PL_DEVICE},
    };
    const int n = sizeof list / sizeof list[0];
    pl_err err;

    /* once without hwloc's plugins, once with them */
    for (int i = 0; i < 2 * n; i++) {
        const char *name = list[i % n].name, *value = list[i % n].value;
        pl_status s;

        if (i < n)
            setenv("HWLOC_PLUGINS_PATH", "/nonexistent", 1);
        s = load_ordered(name, value, &err);
        unsetenv("HWLOC_PLUGINS_PATH");
        if (s != list[i % n].status)
            fail_msg("%s=%s: %s, %s", name, value, pl_status_name(s),
                     s != PL_OK ? err.message : "");
        if (s != PL_OK)
            assert_non_null(strstr(err.message, "HWLOC_"));
    }
}
