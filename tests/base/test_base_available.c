/* Plans count only on memory and cores that are available. The limits of the
 * process's own cgroup and its parents hold, wherever they are mounted, and
 * memory in use is subtracted. Trees of cgroups are tables of files here,
 * except in one case that makes a real one. */
#include "lib/command.h"
#include "lib/support.h"
#include "machine/available.h"
#include "machine/topology.h"

#include <jansson.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/alloc_fail.h"

enum { MOST_FILES = 24 };
#define MIB(n) ((uint64_t)(n) << 20)

struct file {
    const char *path, *text;
};

/* The files of one machine, and the values that must be read from them. */
struct tree {
    const char *what;
    struct file file[MOST_FILES];
    uint64_t limit,
        /* expected limit and available memory in MiB; 0 for no limit and for
         * unknown, UINT64_MAX for not a single byte */
        available;
    int n_core; /* expected number of cores by the CPU quota; 0 for no quota */
};

static FILE *open_tree(void *user, const char *path)
{
    const struct tree *t = user;

    for (int i = 0; i < MOST_FILES && t->file[i].path; i++)
        if (strcmp(t->file[i].path, path) == 0)
            return fmemopen((char *)t->file[i].text, strlen(t->file[i].text),
                            "r");
    return NULL;
}

#define V2(root) "31 23 0:28 " root " /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
#define V1(root, name)                                                         \
    "35 31 0:32 " root " /sys/fs/cgroup/" name " rw,relatime shared:9 - "      \
    "cgroup cgroup rw," name "\n"
#define GIB_8                                                                  \
    {                                                                          \
        "/proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\n"   \
    }
#define OWN(text)                                                              \
    {                                                                          \
        "/proc/self/cgroup", text                                              \
    }
#define MOUNTS(text)                                                           \
    {                                                                          \
        "/proc/self/mountinfo", text                                           \
    }
#define TOP "/sys/fs/cgroup"

static const struct tree trees[] = {
    {"nothing is there", {{0}}, 0, 0, 0},
    {"no cgroups", {GIB_8}, 0, 8192, 0},
    {"the unit's own limits, not those of the top",
     {GIB_8,
      OWN("0::/system.slice/a.service\n"),
      MOUNTS(V2("/")),
      {TOP "/cpu.max", "max 100000\n"},
      {TOP "/system.slice/a.service/memory.max", "2147483648\n"},
      {TOP "/system.slice/a.service/memory.current", "1073741824\n"},
      {TOP "/system.slice/a.service/memory.stat",
       "anon 1\ninactive_file 104857600\nactive_file 104857600\n"
       "slab_reclaimable 104857600\nworkingset_activate_file 5\n"},
      {TOP "/system.slice/a.service/cpu.max", "765000 100000\n"}},
     2048,
     2048 - 1024 + 300,
     7},
    {"a parent's limit is less than one's own",
     {GIB_8,
      OWN("0::/a/b/c\n"),
      MOUNTS(V2("/")),
      {TOP "/a/memory.max", "1073741824"},
      {TOP "/a/memory.current", "536870912"},
      {TOP "/a/cpu.max", "50000 100000"},
      {TOP "/a/b/memory.max", "max\n"},
      {TOP "/a/b/c/memory.max", "4294967296\n"},
      {TOP "/a/b/c/cpu.max", "400000 100000\n"}},
     1024,
     512,
     1},
    {"a limit that throttles counts",
     {GIB_8,
      OWN("0::/a\n"),
      MOUNTS(V2("/")),
      {TOP "/a/memory.max", "max"},
      {TOP "/a/memory.high", "1073741824"}},
     1024,
     1024,
     0},
    {"more is used than the limit, which was lowered",
     {GIB_8,
      OWN("0::/a\n"),
      MOUNTS(V2("/")),
      {TOP "/a/memory.max", "1048576"},
      {TOP "/a/memory.current", "9048576"}},
     1,
     UINT64_MAX,
     0},
    {"version 1",
     {GIB_8,
      OWN("4:memory:/x/y\n2:cpu,cpuacct:/z\n3:cpuset:/q\n"),
      MOUNTS(V1("/", "memory") V1("/", "cpu,cpuacct") V1("/", "cpuset")),
      {TOP "/memory/x/y/memory.limit_in_bytes", "9223372036854771712\n"},
      {TOP "/memory/x/memory.limit_in_bytes", "3221225472\n"},
      {TOP "/memory/x/memory.usage_in_bytes", "2147483648\n"},
      {TOP "/memory/x/memory.stat",
       "inactive_file 1\ntotal_inactive_file 1073741824\n"},
      {TOP "/cpu,cpuacct/z/cpu.cfs_quota_us", "250000\n"},
      {TOP "/cpu,cpuacct/z/cpu.cfs_period_us", "100000\n"},
      {TOP "/cpu,cpuacct/cpu.cfs_quota_us", "-1\n"},
      {TOP "/cpu,cpuacct/cpu.cfs_period_us", "100000\n"},
      {TOP "/memory/memory.limit_in_bytes", "9223372036854771712\n"}},
     3072,
     2048,
     2},
    {"both versions, and the controllers in version 1",
     {GIB_8,
      OWN("5:memory:/m\n1:name=systemd:/s\n0::/s\n"),
      MOUNTS(V1("/", "memory") "41 31 0:38 / /sys/fs/cgroup/unified rw - "
                               "cgroup2 cgroup2 rw\n"),
      {TOP "/memory/m/memory.limit_in_bytes", "1073741824"},
      {TOP "/unified/s/cpu.max", "300000 100000"},
      {TOP "/s/memory.max", "1"}},
     1024,
     1024,
     3},
    {"a container without a namespace, its cgroup mounted as the top",
     {GIB_8,
      OWN("4:memory:/docker/ab\n0::/docker/ab/in\n"),
      MOUNTS(V1("/docker/ab", "memory") V2("/docker/ab")),
      {TOP "/memory/memory.limit_in_bytes", "1073741824"},
      {TOP "/in/cpu.max", "200000 100000"},
      {TOP "/docker/ab/in/cpu.max", "100000 100000"}},
     1024,
     1024,
     2},
    {"a mount that shows more parents is the better one",
     {GIB_8,
      OWN("0::/a/b\n"),
      MOUNTS("31 1 0:28 /a /mnt rw - cgroup2 cgroup2 rw\n" V2(
          "/") "32 1 0:28 /a/b /run rw - cgroup2 cgroup2 rw\n"),
      {TOP "/memory.max", "1073741824"},
      {"/mnt/memory.max", "2147483648"}},
     1024,
     1024,
     0},
    {"a namespace: the top is one's own",
     {GIB_8,
      OWN("0::/\n"),
      MOUNTS(V2("/")),
      {TOP "/memory.max", "1073741824"},
      {TOP "/cpu.max", "100000 100000"}},
     1024,
     1024,
     1},
    {"a namespace below a mount from outside: a parent that counts",
     {GIB_8,
      OWN("0::/\n"),
      MOUNTS(V2("/../..")),
      {TOP "/memory.max", "1073741824"}},
     1024,
     1024,
     0},
    {"a process above the namespace that it sees, by a mount of there",
     {GIB_8,
      OWN("0::/../..\n"),
      MOUNTS(V2("/../..")),
      {TOP "/memory.max", "1073741824"}},
     1024,
     1024,
     0},
    {"a process beside the namespace that it sees: limits of others",
     {GIB_8,
      OWN("0::/../b\n"),
      MOUNTS(V2("/")),
      {TOP "/memory.max", "1073741824"},
      {TOP "/../b/memory.max", "1073741824"}},
     0,
     8192,
     0},
    {"another cgroup is mounted alone, of a like name",
     {GIB_8,
      OWN("0::/a/bc\n"),
      MOUNTS(V2("/a/b")),
      {TOP "/memory.max", "1073741824"}},
     0,
     8192,
     0},
    {"names with blanks, and a colon",
     {GIB_8,
      OWN("0::/a b:c\n"),
      MOUNTS("31 23 0:28 / /mnt/x\\040y rw - cgroup2 cgroup2 rw\n"),
      {"/mnt/x y/a b:c/memory.max", "1073741824"}},
     1024,
     1024,
     0},
    {"a cgroup that was removed: its parents are there",
     {GIB_8,
      OWN("0::/a/b (deleted)\n"),
      MOUNTS(V2("/")),
      {TOP "/a/memory.max", "1073741824"}},
     1024,
     1024,
     0},
    {"odd files set no limit",
     {GIB_8,
      OWN("0::/a/b/c/d\nrubbish\n:\n::\n9:memory\n"),
      MOUNTS("\n - \n1 2 - cgroup2\n" V2("/")),
      {TOP "/a/memory.max", ""},
      {TOP "/a/cpu.max", "100000"},
      {TOP "/a/b/memory.max", "12x\n"},
      {TOP "/a/b/cpu.max", "100000 0\n"},
      {TOP "/a/b/c/memory.max", "-5\n"},
      {TOP "/a/b/c/cpu.max", "maximum 100000\n"},
      {TOP "/a/b/c/d/memory.max", "99999999999999999999999\n"},
      {TOP "/a/b/c/d/cpu.max", "99999999999999999999999 1\n"}},
     0,
     8192,
     0},
    {"a share of a core is one thread",
     {GIB_8, OWN("0::/a\n"), MOUNTS(V2("/")), {TOP "/a/cpu.max", "1 100000"}},
     0,
     8192,
     1},
};

static uint64_t want_bytes(uint64_t mib)
{
    return mib == 0 ? UINT64_MAX : mib == UINT64_MAX ? 0 : MIB(mib);
}

TEST(available_is_what_all_cgroups_of_the_process_leave)
{
    for (size_t i = 0; i < sizeof trees / sizeof *trees; i++) {
        const struct tree *t = &trees[i];
        struct available a;

        assert_int_equal(
            available_read(&a, NULL, 0, open_tree, (void *)t, NULL), PL_OK);
        if (a.limit_bytes != want_bytes(t->limit) ||
            a.available_bytes != want_bytes(t->available) ||
            a.n_core != (t->n_core ? t->n_core : INT_MAX))
            fail_msg("%s: limit %llu, available %llu, %d cores", t->what,
                     (unsigned long long)a.limit_bytes,
                     (unsigned long long)a.available_bytes, a.n_core);
    }
}

/* Paths of the maximum depth, and lines longer than any buffer. */
TEST(available_survives_long_lines_and_deep_paths)
{
    enum { LONG = 100000, DEEP = 2000 };
    char *own = test_need(1, LONG + 64), *mounts = test_need(1, LONG + 200);
    char deep[2 * DEEP + 1] = "";
    struct tree t = {.what = "long",
                     .file = {GIB_8,
                              {"/proc/self/cgroup", own},
                              {"/proc/self/mountinfo", mounts},
                              {TOP "/a/memory.max", "1073741824"}}};
    struct available a;

    for (int i = 0; i < DEEP; i++)
        memcpy(deep + 2 * i, "/a", 3);
    sprintf(own, "0::%s\n", deep);
    sprintf(mounts, "%0*d\n" V2("/") "%0*d", LONG / 2, 1, LONG / 2 - 100, 1);
    assert_int_equal(available_read(&a, NULL, 0, open_tree, &t, NULL), PL_OK);
    assert_int_equal(a.limit_bytes, MIB(1024));
    sprintf(own, "4:memory:/%0*d\n0::/a\n", LONG, 1);
    assert_int_equal(available_read(&a, NULL, 0, open_tree, &t, NULL), PL_OK);
    assert_int_equal(a.limit_bytes, MIB(1024));
    for (int64_t n = 0; alloc_each(&n);)
        alloc_ran(available_read(&a, NULL, 0, open_tree, &t, NULL));
    free(own);
    free(mounts);
}

TEST(available_is_known_node_by_node)
{
    static const struct tree t = {
        .file = {GIB_8,
                 {"/sys/devices/system/node/node1/meminfo",
                  "Node 1 MemTotal:  4194304 kB\nNode 1 MemFree:  1024 kB\n"
                  "Node 1 Active(file):  2048 kB\nNode 1 Active(anon): 7 kB\n"
                  "Node 1 Inactive(file): 1024 kB\n"
                  "Node 1 SReclaimable:  1024 kB\n"},
                 {"/sys/devices/system/node/node3/meminfo",
                  "Node 3 MemFree: 99999999999999999999 kB\n"},
                 {"/sys/devices/system/node/node4/meminfo", "rubbish"}}};
    struct available_node node[] = {{.os = 1}, {.os = 2}, {.os = 3}, {.os = 4}};
    struct available a;

    assert_int_equal(available_read(&a, node, 4, open_tree, (void *)&t, NULL),
                     PL_OK);
    assert_int_equal(node[0].available_bytes, MIB(5));
    for (int i = 1; i < 4; i++)
        assert_true(node[i].available_bytes == UINT64_MAX);
}

TEST(available_may_be_stated)
{
    static const struct {
        const char *text;
        /* expected memory in MiB; 0 if the text is rejected */
        uint64_t all, available;
    } rows[] = {
        {"16MiB", 16, 16},
        {"2GiB:512MiB", 2048, 512},
        {"1TiB", 1 << 20, 1 << 20},
        {"1024KiB:1MiB", 1, 1},
        {"", 0, 0},
        {"16", 0, 0},
        {"16MB", 0, 0},
        {"0MiB", 0, 0},
        {"16MiB:", 0, 0},
        {"16MiB:0MiB", 0, 0},
        {"16MiB:17MiB", 0, 0},
        {"16MiB:1MiB:1MiB", 0, 0},
        {"-1MiB", 0, 0},
        {" 1MiB", 0, 0},
        {"99999999999999999999MiB", 0, 0},
        {"17592186044416TiB", 0, 0},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint64_t all, available;
        bool ok = available_stated(rows[i].text, &all, &available);

        if (ok != (rows[i].all > 0))
            fail_msg("%s", rows[i].text);
        if (ok) {
            assert_int_equal(all, MIB(rows[i].all));
            assert_int_equal(available, MIB(rows[i].available));
        }
    }
}

/* ---- this machine -------------------------------------------------------- */

/* Reads the total and the available memory, as the system reports them now. */
static void read_memory(uint64_t *all, uint64_t *available)
{
    const char *stated = getenv("PLAIT_MEMORY");
    char keep[64];
    pl_err err;

    snprintf(keep, sizeof keep, "%s", stated ? stated : "");
    unsetenv("PLAIT_MEMORY");
    TEST_OK(pl_host_memory(all, available, &err), err);
    if (stated)
        setenv("PLAIT_MEMORY", keep, 1);
}

/* Starts a process that has `bytes` allocated until it is killed. Returns once
 * they are. */
static pid_t hold(size_t bytes)
{
    int done[2];
    char c;
    pid_t child;

    assert_int_equal(pipe(done), 0);
    child = fork();
    if (child == 0) {
        char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        if (p == MAP_FAILED)
            _exit(1);
        for (size_t i = 0; i < bytes; i += 4096)
            p[i] = 1;
        if (write(done[1], "x", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    close(done[1]);
    assert_int_equal(read(done[0], &c, 1), 1);
    close(done[0]);
    return child;
}

/* Waits until the available memory is under `most`, or over `least` if `most`
 * is 0. The kernel updates its sums late, and other processes allocate and free
 * memory too. So this gives up after some time. */
static bool comes(uint64_t least, uint64_t most)
{
    for (int i = 0; i < 200; i++) {
        struct available a;
        pl_err err;

        TEST_OK(available_read(&a, NULL, 0, NULL, NULL, &err), err);
        if (most ? a.available_bytes < most : a.available_bytes > least)
            return true;
        usleep(20000);
    }
    return false;
}

/* Repeated until it succeeds, because other processes start and end on this
 * machine. A reader that ignores used memory never succeeds. */
TEST(available_is_less_beside_a_process_that_holds_memory)
{
    const size_t bytes = (size_t)256 << 20;
    uint64_t all[3], now[2];
    bool seen = false;

    read_memory(&all[0], &now[0]);
    if (now[0] < 4 * bytes)
        TEST_SKIP("less than 1 GiB of memory is available");
    while (!seen) {
        pid_t child;
        int status;

        read_memory(&all[0], &now[0]);
        child = hold(bytes);
        seen = comes(0, now[0] - bytes / 2);
        read_memory(&all[1], &now[1]);
        kill(child, SIGKILL);
        assert_int_equal(waitpid(child, &status, 0), child);
        seen = seen && comes(now[1] + bytes / 2, 0);
        read_memory(&all[2], &now[1]);
        assert_int_equal(all[1], all[0]);
        assert_int_equal(all[2], all[0]);
    }
}

/* Makes cgroups $M/in and $C/in of this process's own, for its memory and its
 * processor time, and removes them in the end. Where none can be made, the
 * script prints "none". */
#define CGROUPS                                                                \
    "own() { sed -n \"s|^[0-9]*:$1:||p\" /proc/self/cgroup | head -1; }\n"     \
    "C=$(grep -l . /sys/fs/cgroup/cpu/cpu.cfs_quota_us 2>/dev/null)\n"         \
    "if [ -n \"$C\" ]; then\n"                                                 \
    "  M=/sys/fs/cgroup/memory$(own memory) C=/sys/fs/cgroup/cpu$(own "        \
    "'cpu\\(,cpuacct\\)*')\n"                                                  \
    "else M=/sys/fs/cgroup$(own ''); C=$M; fi\n"                               \
    "M=${M%/}/plait-test-$$ C=${C%/}/plait-test-$$\n"                          \
    "end() { for d in $M/in $M $C/in $C; do rmdir $d; done 2>/dev/null; }\n"   \
    "trap end EXIT\n"                                                          \
    "mkdir -p $M/in $C/in 2>/dev/null || { echo none; exit; }\n"

/* A nested cgroup of this process's own: the outer one limits its memory and
 * its processor time. Where none can be made the script prints "none". */
TEST(available_obeys_a_real_cgroup)
{
    static const char line[] = CGROUPS
        "{ if [ $M != $C ]; then echo 1073741824 >$M/memory.limit_in_bytes &&\n"
        "  echo 150000 >$C/cpu.cfs_quota_us;\n"
        "else echo 1073741824 >$M/memory.max &&\n"
        "  echo '150000 100000' >$C/cpu.max; fi &&\n"
        "sh -c \"echo \\$\\$ >$M/in/cgroup.procs && echo \\$\\$ "
        ">$C/in/cgroup.procs && unset PLAIT_MEMORY && exec plait devices "
        "--json\"; } 2>/dev/null || echo none\n";
    struct ran r = sh(0, line);
    json_int_t quota, all, available;
    json_t *j;

    if (strncmp(r.out, "none", 4) == 0)
        TEST_SKIP("no cgroup can be made here; trees that are tables of files "
                  "take its place");
    j = json_loads(r.out, 0, NULL);
    assert_int_equal(json_unpack(j, "{s:I, s:I, s:I}", "quota", &quota,
                                 "memory", &all, "available", &available),
                     0);
    assert_int_equal(quota, 1);
    assert_int_equal(all, MIB(1024));
    assert_in_range(available, MIB(1), MIB(1024));
    json_decref(j);
}

/* A sanitizer takes memory of its own, which plans do not count. */
#if defined(__SANITIZE_ADDRESS__)
#define TAKES_MORE 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define TAKES_MORE 1
#endif
#endif
#ifndef TAKES_MORE
#define TAKES_MORE 0
#endif

/* Below the memory that a command takes it is refused, and above it works. Its
 * cgroup's limit never kills it. The files are read outside of the cgroup
 * first: the kernel reads ahead up to 8 MiB (read_ahead_kb) and cannot reclaim
 * pages that are being read. Plans do not count these; in cgroups of 1 GiB and
 * more, fit's margin of 1/64 covers them. */
TEST(available_memory_refuses_before_a_cgroup_kills)
{
    static const char line[] = CGROUPS
        "L=$M/memory.max\n"
        "[ $M = $C ] || L=$M/memory.limit_in_bytes\n"
        "export PLAIT_MEMORY=64MiB\n"
        "plait run " MODEL "-p Once -n 2 -t 2 >/dev/null 2>&1 || exit\n"
        "for i in 14 16 17 18 19 20 21 22 24 32; do\n"
        "  { echo $((i << 20)) >$L && sh -c \"echo \\$\\$ "
        ">$M/in/cgroup.procs\"; } 2>/dev/null || { echo none; exit; }\n"
        "  sh -c \"echo \\$\\$ >$M/in/cgroup.procs && unset PLAIT_MEMORY && "
        "exec plait run " MODEL "-p Once -n 2 -t 2\" >/dev/null 2>&1\n"
        "  echo \"$i: $?\"\n"
        "done\n";
    struct ran r;

    if (TAKES_MORE)
        TEST_SKIP("the sanitizer takes memory that plans do not count");
    r = sh(0, line);
    if (strncmp(r.out, "none", 4) == 0)
        TEST_SKIP("no cgroup can be made here");
    for (const char *s = r.out; *s; s = strchr(s, '\n') + 1)
        if (!strstr(s, ": 0\n") && !strstr(s, ": 1\n"))
            fail_msg("%s", r.out);
    if (!strstr(r.out, "14: 1\n") || !strstr(r.out, "32: 0\n") ||
        strstr(r.out, ": 137"))
        fail_msg("%s", r.out);
}

/* PLAIT_MEMORY is shown, as text and as JSON, and limits plans. */
TEST(available_is_shown_and_named)
{
    struct ran r = sh(0, "PLAIT_MEMORY=16GiB:12GiB plait devices");

    must_say(r, "");
    assert_non_null(strstr(r.out, "\nmemory    16.0G bytes, 12.0G available "
                                  "now\n"));
    r = sh(0, "PLAIT_MEMORY=16GiB:12GiB plait devices --json");
    assert_non_null(strstr(r.out, "\"memory\": 17179869184"));
    assert_non_null(strstr(r.out, "\"available\": 12884901888"));
    r = sh(0, "PLAIT_MEMORY=16GiB:12GiB plait plan " MODEL "-dev 'cpu*2'");
    assert_non_null(strstr(r.out, "    12.0G    16.0G\n"));
    r = sh(1, "PLAIT_MEMORY=16GiB:4MiB plait plan " MODEL "-fit off");
    must_say(r, "; 4.00 MiB available of 16.00 GiB, 4.0");
    must_say(r, " MiB of them for the program)");
    sh(0, "PLAIT_MEMORY= plait devices"); /* an empty variable sets no limit */
    r = sh(2, "PLAIT_MEMORY=much plait devices");
    must_say(r, "PLAIT_MEMORY=much: not a memory size");
}
