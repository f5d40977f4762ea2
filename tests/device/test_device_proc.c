/* Devices that are processes. Data sent through their stream arrives, and they
 * may be killed at any moment. Then the step fails soon on all devices, the
 * host survives, and nothing is left over: no process, no descriptor, no shared
 * memory. Results are compared with other devices in test_device_run.c,
 * test_device_groups.c and test_engine_matrix.c. */
#include "device/proc/proc_inner.h"
#include "lib/alloc_fail.h"
#include "lib/engine_run.h"
#include "lib/program_build.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { GIVE_UP_S = 300 }; /* seconds after which a case that hangs is ended */

/* ---- leftovers --------------------------------------------------------- */

struct traces {
    /* number of open descriptors, and of shared mappings, of this process */
    int n_fd, n_shared;
};

static struct traces traces_now(void)
{
    struct traces t = {0};
    DIR *d = opendir("/proc/self/fd");
    FILE *f = fopen("/proc/self/maps", "r");
    char line[512];

    assert_true(d && f);
    while (readdir(d))
        t.n_fd++;
    while (fgets(line, sizeof line, f))
        t.n_shared += strstr(line, " rw-s ") != NULL;
    closedir(d);
    fclose(f);
    return t;
}

/* Fails unless all is as before and there is no child to wait for. */
static void nothing_stayed(struct traces before)
{
    struct traces t = traces_now();

    assert_int_equal(t.n_fd, before.n_fd);
    assert_int_equal(t.n_shared, before.n_shared);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
}

static const struct proc_device *process_of(struct device_set *s, int dev)
{
    const struct proc_device *p = device_of(s, dev)->own;

    assert_string_equal(device_of(s, dev)->desc.ops->name, "proc");
    return p;
}

/* ---- the stream --------------------------------------------------------- */

/* More data than a stream holds, in pieces of odd sizes. */
TEST(device_proc_keeps_what_is_written)
{
    enum { N = 3 * PROC_RING_BYTES + 12345 };
    static const size_t piece[] = {N, 1, 4097, PROC_RING_BYTES, 777777};
    struct traces before = traces_now();
    struct device_set *s = build_set("proc*2", 2, 0);
    struct build *b = build_new(2, 1);
    struct program *p;
    unsigned char *v = test_need(N, 1), *got = test_need(N, 1);
    uint64_t rng = test_seed();

    for (int d = 0; d < 2; d++)
        for (int r = 0; r < REGION_COUNT; r++)
            b[d].p.bytes[r] = N;
    p = build_programs(b, 2);
    LOAD_OK(s, p);
    for (int i = 0; i < 2 * REGION_COUNT; i++) {
        int d = i % 2;
        enum region r = (enum region)(i / 2);

        assert_int_equal(device_read(s, d, r, 0, got, N, NULL), PL_OK);
        assert_memory_equal(got, v, N); /* memory is zero after loading */
        assert_true(device_map(s, d, r) == NULL);
    }
    for (size_t k = 0; k < sizeof piece / sizeof piece[0]; k++)
        for (int r = 0; r < REGION_COUNT; r++) {
            size_t n = piece[k], at = (size_t)test_below(&rng, N) % 1000;

            for (size_t i = 0; i < N; i++)
                v[i] = (unsigned char)test_random(&rng);
            assert_int_equal(device_write(s, 1, (enum region)r, 0, v, N, NULL),
                             PL_OK);
            for (at = n == N ? 0 : at; at + n <= N; at += n + N / 5) {
                for (size_t i = 0; i < n; i++)
                    v[at + i] ^= 0x5a;
                assert_int_equal(
                    device_write(s, 1, (enum region)r, at, v + at, n, NULL),
                    PL_OK);
                memset(got, 0, n);
                assert_int_equal(
                    device_read(s, 1, (enum region)r, at, got, n, NULL), PL_OK);
                assert_memory_equal(got, v + at, n);
            }
            assert_int_equal(device_flush(s, NULL), PL_OK);
            assert_int_equal(device_read(s, 1, (enum region)r, 0, got, N, NULL),
                             PL_OK);
            assert_memory_equal(got, v, N);
        }
    device_set_free(s);
    free(p);
    free(b);
    free(v);
    free(got);
    nothing_stayed(before);
}

struct writer {
    struct device_set *s;
    unsigned char *v;
    size_t n, ith;
};

static void *write_part(void *user)
{
    const struct writer *w = user;

    for (size_t at = w->ith * 1000; at + 1000 <= w->n; at += 4000)
        if (device_write(w->s, 0, REGION_WEIGHTS, at, w->v + at, 1000, NULL) !=
            PL_OK)
            return user;
    return NULL;
}

static void *read_part(void *user)
{
    const struct writer *w = user;

    for (size_t at = w->ith * 1000; at + 1000 <= w->n; at += 4000)
        if (device_read(w->s, 0, REGION_WEIGHTS, at, w->v + at, 1000, NULL) !=
            PL_OK)
            return user;
    return NULL;
}

static void by_four(void *(*fn)(void *), struct device_set *s, unsigned char *v,
                    size_t n)
{
    pthread_t thread[4];
    struct writer w[4];

    for (size_t i = 0; i < 4; i++) {
        w[i] = (struct writer){s, v, n, i};
        assert_int_equal(pthread_create(&thread[i], NULL, fn, &w[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        void *bad;

        pthread_join(thread[i], &bad);
        assert_null(bad);
    }
}

TEST(device_proc_takes_copies_of_several_threads)
{
    enum { N = 4000000 };
    struct device_set *s = build_set("proc*1", 1, 0);
    struct build *b = build_new(1, 1);
    struct program *p;
    unsigned char *v = test_need(N, 1), *got = test_need(N, 1);
    uint64_t rng = test_seed();

    b->p.bytes[REGION_WEIGHTS] = N;
    p = build_programs(b, 1);
    LOAD_OK(s, p);
    for (size_t i = 0; i < N; i++)
        v[i] = (unsigned char)test_random(&rng);
    by_four(write_part, s, v, N);
    assert_int_equal(device_read(s, 0, REGION_WEIGHTS, 0, got, N, NULL), PL_OK);
    assert_memory_equal(got, v, N);
    memset(got, 0, N);
    by_four(read_part, s, got, N);
    assert_memory_equal(got, v, N);
    device_set_free(s);
    free(p);
    free(b);
    free(v);
    free(got);
}

/* ---- a ring of devices --------------------------------------------------- */

enum { RING_W = 64, RING_TOK = 3, RING_N = RING_W * RING_TOK, RING_MAX = 4 };
/* tensors of each device: its values, and those received from its neighbour */
enum { R_OWN, R_INBOX };

/* Each device passes its values to the next one, again and again. */
struct ring {
    int n, rounds;
    struct build *b;
    struct program *p;
    struct copy_desc piece[RING_MAX];
    struct push_to to[RING_MAX];
};

static struct ring *ring_new(int n, int rounds)
{
    struct ring *r = test_need(1, sizeof *r);

    r->n = n;
    r->rounds = rounds;
    r->b = build_new(n, RING_TOK);
    for (int d = 0; d < n; d++) {
        int next = (d + 1) % n, last = (d + n - 1) % n;
        struct build *b = &r->b[d];

        build_tensor(b, RING_W);
        build_mail(b, RING_W);
        r->piece[d] =
            build_rows(d, R_OWN, 0, RING_W * 4, 0, RING_W * 4, RING_W * 4);
        r->to[d] = (struct push_to){next, R_INBOX, 0};
        for (int i = 0; i < rounds; i++) {
            if (i > 0)
                build_wait(b, QUEUE_COMPUTE, next, 2 * i - 1);
            build_insn(b, INSN_PUSH)->push = (struct insn_push){
                .n_to = 1,
                .to = &r->to[d],
                .piece = &r->piece[d],
                .n_piece = 1,
            };
            build_post(b, QUEUE_COMPUTE, 2 * i);
            build_wait(b, QUEUE_COMPUTE, last, 2 * i);
            build_op(b, KERNEL_scale, R_OWN, R_INBOX, 1);
            build_post(b, QUEUE_COMPUTE, 2 * i + 1);
        }
    }
    r->p = build_programs(r->b, n);
    return r;
}

static void ring_free(struct ring *r)
{
    free(r->p);
    free(r->b);
    free(r);
}

/* Runs a step. Each device must have the values of the device `rounds` places
 * before. */
static void ring_is_right(const struct ring *r, struct device_set *s)
{
    struct device_run run = build_run(RING_TOK);
    float v[RING_MAX][RING_N], got[RING_N];

    for (int d = 0; d < r->n; d++) {
        for (int i = 0; i < RING_N; i++)
            v[d][i] = (float)(1000 * d + i);
        build_put(s, d, R_OWN, v[d], RING_N);
    }
    RUN_OK(s, &run);
    for (int d = 0; d < r->n; d++) {
        build_get(s, d, R_OWN, got, RING_N);
        assert_memory_equal(got, v[(d + r->rounds * (r->n - 1)) % r->n],
                            sizeof got);
    }
}

static const struct {
    const char *spec;
    int n, first; /* number of devices, and index of the first proc device */
} mixes[] = {{"proc*2", 2, 0},
             {"cpu*1,proc*1", 2, 1},
             {"cpu*1,sim,proc*1", 3, 2},
             {"sim,proc*2", 3, 1},
             {"proc*4", 4, 0}};
enum { N_MIX = sizeof mixes / sizeof mixes[0] };

TEST(device_proc_reaches_its_peers)
{
    struct traces before = traces_now();

    for (int i = 0; i < N_MIX; i++)
        for (int n_thread = 1; n_thread <= 2; n_thread++) {
            struct device_set *s = build_set(mixes[i].spec, n_thread, 1);
            struct ring *r = ring_new(mixes[i].n, 50), *y;

            LOAD_OK(s, r->p);
            for (int k = 0; k < 5; k++)
                ring_is_right(r, s);
            /* loading other programs starts other processes */
            y = ring_new(mixes[i].n, 7);
            LOAD_OK(s, y->p);
            ring_is_right(y, s);
            device_set_free(s);
            ring_free(r);
            ring_free(y);
            nothing_stayed(before);
        }
}

/* A terminal sends signals to all processes; only the host handles them. */
TEST(device_proc_leaves_signals_to_the_host)
{
    static const int sent[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
    struct device_set *s = build_set("proc*2", 1, 0);
    struct ring *r = ring_new(2, 10);

    LOAD_OK(s, r->p);
    for (size_t i = 0; i < sizeof sent / sizeof sent[0]; i++) {
        assert_int_equal(kill(process_of(s, 0)->pid, sent[i]), 0);
        ring_is_right(r, s);
    }
    device_set_free(s);
    ring_free(r);
}

/* ---- kills --------------------------------------------------------------- */

static void nap(double s)
{
    struct timespec t = {(time_t)s, (long)((s - (double)(time_t)s) * 1e9)};

    nanosleep(&t, NULL);
}

/* Kills a child of this process after a while: the given one, or a random one
 * as soon as there is one. */
struct killer {
    pthread_t thread;
    pid_t pid; /* process to kill; 0 for any of the devices */
    uint64_t seed;
    double after_s;
};

/* Allocates nothing, like any_child(): the thread sanitizer's allocator may be
 * locked by this thread when another forks, and then hangs in the child. */
static pid_t parent_of(const char *pid)
{
    char path[300], line[300] = "";
    const char *end;
    int parent = 0, fd;

    snprintf(path, sizeof path, "/proc/%s/stat", pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    if (read(fd, line, sizeof line - 1) > 0 && (end = strrchr(line, ')')))
        sscanf(end + 1, " %*c %d", &parent);
    close(fd);
    return parent;
}

/* Returns a random child, or 0 if there is none. */
static pid_t any_child(uint64_t *seed)
{
    _Alignas(struct dirent64) char list[4096];
    int fd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC), n_child = 0;
    pid_t found = 0;
    ssize_t n;

    while (fd >= 0 && (n = getdents64(fd, list, sizeof list)) > 0)
        for (ssize_t at = 0; at < n;) {
            const struct dirent64 *e = (const void *)(list + at);

            at += e->d_reclen;
            if (e->d_name[0] >= '1' && e->d_name[0] <= '9' &&
                parent_of(e->d_name) == getpid() &&
                test_below(seed, ++n_child) == 0)
                found = (pid_t)atoi(e->d_name);
        }
    if (fd >= 0)
        close(fd);
    return found;
}

static void *kill_one(void *user)
{
    struct killer *k = user;
    pid_t pid = k->pid;

    nap(k->after_s);
    while (pid == 0)
        pid = any_child(&k->seed);
    kill(pid, SIGKILL);
    return NULL;
}

static void killer_start(struct killer *k)
{
    assert_int_equal(pthread_create(&k->thread, NULL, kill_one, k), 0);
}

/* Checks every operation on a set that has lost device d. */
static void is_lost(struct device_set *s, int d)
{
    struct device_run run = build_run(1);
    char byte = 0;
    pl_err err = {0};

    for (int i = 0; i < 2; i++) {
        assert_int_equal(device_set_run(s, &run, &err), PL_DEVICE);
        assert_non_null(strstr(err.message, device_of(s, d)->desc.name));
        assert_non_null(strstr(err.message, "signal 9"));
        assert_int_equal(device_write(s, d, REGION_WORK, 0, &byte, 1, NULL),
                         PL_DEVICE);
        assert_int_equal(device_read(s, d, REGION_WORK, 0, &byte, 1, &err),
                         PL_DEVICE);
        assert_non_null(strstr(err.message, "signal 9"));
        assert_int_equal(device_flush(s, &err), PL_DEVICE);
    }
}

/* Processes of devices are killed during steps, and between them. */
TEST(device_proc_killed_in_a_run_fails_it)
{
    uint64_t rng = test_seed();
    struct traces before = traces_now();
    int n = test_draws(140, 1000);

    for (int i = 0; i < n; i++) {
        struct device_set *s = build_set(mixes[i % N_MIX].spec, 1, 1);
        struct ring *r = ring_new(mixes[i % N_MIX].n, 100);
        struct device_run run = build_run(RING_TOK);
        int d = mixes[i % N_MIX].first;
        struct killer k = {.after_s = 1e-6 * (double)test_below(&rng, 3000)};
        pl_err err;

        d += (int)test_below(&rng, r->n - d);
        LOAD_OK(s, r->p);
        ring_is_right(r, s);
        k.pid = process_of(s, d)->pid;
        killer_start(&k);
        while (device_set_run(s, &run, &err) == PL_OK)
            ;
        pthread_join(k.thread, NULL);
        assert_int_equal(err.status, PL_DEVICE);
        assert_non_null(strstr(err.message, "has ended (signal 9)"));
        is_lost(s, d);
        if (i % 2 == 0) { /* after loading again the set has new processes */
            LOAD_OK(s, r->p);
            ring_is_right(r, s);
        }
        device_set_free(s);
        ring_free(r);
        nothing_stayed(before);
    }
}

/* Processes of devices are killed during large writes or reads. */
TEST(device_proc_killed_over_a_copy_fails_it)
{
    enum { N = 8 * PROC_RING_BYTES };
    struct traces before = traces_now();
    uint64_t rng = test_seed();
    char *v = test_need(N, 1);

    for (int i = 0; i < 20; i++) {
        struct device_set *s = build_set("proc*1", 1, 0);
        struct build *b = build_new(1, 1);
        struct killer k = {.after_s = 1e-6 * (double)test_below(&rng, 5000)};
        struct program *p;
        pl_status st = PL_OK;

        b->p.bytes[REGION_WEIGHTS] = N;
        p = build_programs(b, 1);
        LOAD_OK(s, p);
        k.pid = process_of(s, 0)->pid;
        killer_start(&k);
        while (st == PL_OK)
            st = i % 2 ? device_write(s, 0, REGION_WEIGHTS, 0, v, N, NULL)
                       : device_read(s, 0, REGION_WEIGHTS, 0, v, N, NULL);
        pthread_join(k.thread, NULL);
        assert_int_equal(st, PL_DEVICE);
        device_set_free(s);
        free(p);
        free(b);
        nothing_stayed(before);
    }
    free(v);
}

/* The application ignores its children, or has some of its own. */
TEST(device_proc_minds_its_own_children)
{
    struct traces before = traces_now();
    struct ring *r = ring_new(2, 10);
    struct device_run run = build_run(1);
    struct device_set *s;
    pl_err err;
    pid_t own;
    int how;

    signal(SIGCHLD, SIG_IGN);
    s = build_set("proc*2", 1, 0);
    LOAD_OK(s, r->p);
    ring_is_right(r, s);
    kill(process_of(s, 1)->pid, SIGKILL);
    while (device_set_run(s, &run, &err) == PL_OK)
        ;
    assert_non_null(strstr(err.message, "proc1: its process has ended"));
    device_set_free(s);
    signal(SIGCHLD, SIG_DFL);
    own = fork();
    if (own == 0)
        for (;;)
            pause();
    s = build_set("proc*2", 1, 0);
    LOAD_OK(s, r->p);
    kill(process_of(s, 0)->pid, SIGKILL);
    while (device_set_run(s, &run, &err) == PL_OK)
        ;
    device_set_free(s);
    assert_int_equal(waitpid(-1, &how, WNOHANG), 0);
    kill(own, SIGKILL);
    assert_int_equal(waitpid(own, &how, 0), own);
    ring_free(r);
    nothing_stayed(before);
}

/* Returns the current descriptor of a device's process. */
static int descriptor_of(struct device_set *s, int dev)
{
    struct proc_backend *b = device_of(s, dev)->backend->own;
    int fd;

    pthread_mutex_lock(&b->lock);
    fd = process_of(s, dev)->pidfd;
    pthread_mutex_unlock(&b->lock);
    return fd;
}

static int pidfd_of(pid_t pid)
{
    return (int)syscall(SYS_pidfd_open, pid, 0);
}

/* Replaces the descriptor atomically. The watching thread opens and closes
 * files, and could take a number that is free for a moment. */
static void put_at(int fd, int file)
{
    int got;

    do
        got = dup2(file, fd);
    while (got < 0 && errno == EBUSY);
    if (got != fd)
        fail_msg("descriptor %d in place of %d: %s", file, fd, strerror(errno));
}

/* The application closes the descriptors, as daemons do, or replaces them with
 * others: files (1), or descriptors of a child of its own (2). */
static void with_closed_descriptors(int in_place, bool loses_one)
{
    struct traces before = traces_now();
    struct ring *r = ring_new(2, 10);
    struct device_set *s = build_set("proc*2", 1, 0);
    struct device_run run = build_run(1);
    pid_t own = fork();
    int fd[2], file = in_place == 1 ? open("/dev/null", O_RDONLY) : -1;

    assert_true(own >= 0);
    if (own == 0) { /* the child sleeps until it or the test is killed */
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;)
            pause();
    }
    LOAD_OK(s, r->p);
    for (int d = 0; d < 2; d++) {
        fd[d] = descriptor_of(s, d);
        file = in_place == 2 ? pidfd_of(own) : file;
        if (in_place)
            put_at(fd[d], file);
        else
            close(fd[d]);
        if (in_place == 2)
            close(file);
    }
    ring_is_right(r, s);
    if (loses_one) {
        kill(process_of(s, 1)->pid, SIGKILL);
        while (device_set_run(s, &run, NULL) == PL_OK)
            ;
    }
    device_set_free(s);
    /* the test's own child must still be alive */
    assert_int_equal(kill(own, 0), 0);
    assert_int_equal(waitpid(own, NULL, WNOHANG), 0);
    for (int d = 0; d < 2 && in_place; d++)
        assert_int_equal(close(fd[d]), 0);
    if (in_place == 1)
        close(file);
    kill(own, SIGKILL);
    assert_int_equal(waitpid(own, NULL, 0), own);
    ring_free(r);
    nothing_stayed(before);
}

TEST(device_proc_survives_closed_descriptors)
{
    alarm(GIVE_UP_S);
    for (int i = 0; i < 6; i++)
        with_closed_descriptors(i / 2, i % 2);
    alarm(0);
}

/* ---- copies of the host -------------------------------------------------- */

/* Returns the result of a child that was forked just now. */
static int status_of(pid_t pid)
{
    int how;

    assert_int_equal(waitpid(pid, &how, 0), pid);
    return WIFEXITED(how) ? WEXITSTATUS(how) : -WTERMSIG(how);
}

/* The copy frees its set, and the original does not notice. */
TEST(device_set_is_freed_in_a_forked_copy)
{
    static const struct {
        const char *spec;
        int n;
    } sets[] = {{"cpu*2", 2},  {"sim*2", 2},  {"sim:1GB/s:1us*2", 2},
                {"proc*2", 2}, {"proc*2", 2}, {"cpu*1,sim,proc*1", 3}};
    struct traces before = traces_now();

    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++) {
        struct device_set *s = build_set(sets[i].spec, 2, 1);
        struct ring *r = ring_new(sets[i].n, 10);
        pid_t pid;

        LOAD_OK(s, r->p);
        ring_is_right(r, s);
        pid = fork();
        if (pid == 0) {
            alarm(GIVE_UP_S);
            device_set_free(s);
            ring_free(r);
            _exit(0);
        }
        assert_int_equal(status_of(pid), 0);
        ring_is_right(r, s);
        device_set_free(s);
        ring_free(r);
    }
    nothing_stayed(before);
}

/* ---- the host's end ------------------------------------------------------ */

/* Runs a host that loads devices, reports their pids, and is killed. */
static void host(int to, int from)
{
    struct device_set *s = build_set("proc*2", 1, 0);
    struct ring *r = ring_new(2, 600);
    struct device_run run = build_run(1);
    char byte;

    if (device_set_load(s, r->p, NULL) == PL_OK)
        for (int d = 0; d < 2; d++)
            if (write(to, &process_of(s, d)->pid, sizeof(pid_t)) < 0)
                break;
    if (read(from, &byte, 1) == 1)
        device_set_submit(s, &run, NULL);
    kill(getpid(), SIGKILL);
}

TEST(device_proc_ends_with_the_host)
{
    int to[2], from[2], fd[2];
    pid_t pid, dev[2];

    assert_true(pipe(to) == 0 && pipe(from) == 0);
    pid = fork();
    if (pid == 0)
        host(from[1], to[0]);
    close(from[1]);
    close(to[0]);
    assert_int_equal(read(from[0], dev, sizeof dev[0]), sizeof dev[0]);
    assert_int_equal(read(from[0], dev + 1, sizeof dev[0]), sizeof dev[0]);
    for (int d = 0; d < 2; d++) {
        fd[d] = pidfd_of(dev[d]);
        assert_true(fd[d] >= 0);
    }
    assert_int_equal(write(to[1], "", 1), 1);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    for (int d = 0; d < 2; d++) {
        struct pollfd p = {.fd = fd[d], .events = POLLIN};

        assert_int_equal(poll(&p, 1, -1), 1);
        close(fd[d]);
    }
    close(from[0]);
    close(to[1]);
}

/* ---- failures at the start ----------------------------------------------- */

/* Allocations, and fork, fail in the test's process and in those of the
 * devices. */
TEST(device_proc_survives_failed_allocations)
{
    struct traces before = traces_now();
    struct device_options opt = {.kernel_set = KERNEL_SET_GENERIC,
                                 .trace = true};
    struct ring *r = ring_new(3, 3);
    struct device_list l;

    assert_int_equal(device_parse(&l, "cpu*1,proc*2", 1, NULL), PL_OK);
    /* allocates the page of alloc_fail.c before mappings are counted */
    alloc_fail_at(0);
    before = traces_now();
    build_survives(&l, &opt, r->p);
    device_list_free(&l);
    ring_free(r);
    nothing_stayed(before);
}

/* The error names the limit of descriptors and the remedy. */
TEST(device_proc_without_descriptors_names_the_limit)
{
    struct traces before = traces_now();
    struct ring *r = ring_new(2, 3);
    struct device_set *s = build_set("proc*2", 1, 0);
    struct rlimit was, few;
    pl_status st;
    pl_err err;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
    few = was;
    few.rlim_cur = 3;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    st = device_set_load(s, r->p, &err);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
    assert_int_equal(st, PL_DEVICE);
    assert_non_null(
        strstr(err.message, "proc0: its process cannot be watched"));
    assert_non_null(strstr(err.message, "ulimit -n"));
    LOAD_OK(s, r->p);
    ring_is_right(r, s);
    device_set_free(s);
    ring_free(r);
    nothing_stayed(before);
}

/* ---- engines --------------------------------------------------------- */

enum { PROMPT = 12, TOKENS = 20 };

/* Decodes all tokens once. Returns the first status that is not PL_OK. */
static pl_status decode_all(pl_engine *e, const int32_t *token, float *out,
                            int64_t n_vocab, pl_err *err)
{
    static const int32_t seq[PROMPT];

    for (int at = 0, n = PROMPT; at < TOKENS; at += n, n = 1) {
        pl_batch b = {.size = sizeof b,
                      .n = n,
                      .token = token + at,
                      .seq = seq,
                      .logits = out + at * n_vocab};
        pl_status s = pl_engine_decode(e, &b, NULL, err);

        if (s != PL_OK)
            return s;
    }
    return pl_seq_trim(e, 0, 0, NULL, err);
}

/* Decodes until a device is lost. Logits until then are right. */
static void decode_until_lost(const pl_model *m, const pl_options *o,
                              struct killer *k, const int32_t *token,
                              const float *want)
{
    int64_t n_vocab = pl_model_n_vocab(m);
    size_t n = (size_t)(TOKENS * n_vocab);
    float *out = test_need(n, sizeof *out);
    pl_engine *e = NULL;
    pl_err err = {0};
    pl_status s;

    killer_start(k);
    s = pl_engine_create(&e, m, o, &err);
    while (s == PL_OK) {
        memset(out, 0, n * sizeof *out);
        s = decode_all(e, token, out, n_vocab, &err);
        if (s == PL_OK)
            assert_memory_equal(out, want, n * sizeof *out);
    }
    pthread_join(k->thread, NULL);
    if (s != PL_DEVICE || !strstr(err.message, "process has ended"))
        fail_msg("%s: %s", o->devices, err.message);
    for (int i = 0; i < 2 && e; i++)
        assert_int_equal(decode_all(e, token, out, n_vocab, &err), PL_DEVICE);
    pl_engine_free(e);
    free(out);
}

TEST(engine_with_a_killed_process_fails)
{
    static const char *const devices[] = {"proc*2", "cpu*1,proc*1",
                                          "cpu*1,sim,proc*1", "proc*3"};
    const char *name = "models/fable-moe-Q8_0.gguf";
    pl_options o = engine_run_options();
    uint64_t rng = test_seed();
    struct traces before;
    struct engine_run r;
    int32_t token[TOKENS];
    float *want;

    o.n_ranks = 2;
    engine_run_open(&r, test_file(name), name, &o);
    engine_run_tokens(&r, &rng, TOKENS, token);
    want = test_need((size_t)(TOKENS * r.n_vocab), sizeof *want);
    assert_int_equal(decode_all(r.engine, token, want, r.n_vocab, NULL), PL_OK);
    before = traces_now();
    for (int i = 0; i < test_draws(40, 400); i++) {
        struct killer k = {.seed = test_random(&rng),
                           .after_s = 1e-3 * (double)test_below(&rng, 150)};
        pl_engine *e = NULL;
        float *out = test_need((size_t)(TOKENS * r.n_vocab), sizeof *out);

        o.devices = devices[i % 4];
        decode_until_lost(r.model, &o, &k, token, want);
        nothing_stayed(before);
        if (i % 4 == 0) { /* a later engine works */
            assert_int_equal(pl_engine_create(&e, r.model, &o, NULL), PL_OK);
            assert_int_equal(decode_all(e, token, out, r.n_vocab, NULL), PL_OK);
            assert_memory_equal(out, want,
                                (size_t)(TOKENS * r.n_vocab) * sizeof *out);
            pl_engine_free(e);
        }
        free(out);
    }
    free(want);
    engine_run_close(&r);
}

/* The engine has a thread for asynchronous transfers and a trace. */
TEST(engine_is_freed_in_a_forked_copy)
{
    static const char *const devices[] = {"cpu*2", "sim*2", "proc*2"};
    const char *name = "models/fable-moe-Q8_0.gguf";
    pl_options o = engine_run_options();
    uint64_t rng = test_seed();
    struct engine_run r;
    int32_t token[TOKENS];

    o.n_ranks = 2;
    o.n_threads = 2;
    o.trace = test_text_add;
    for (int i = 0; i < 3; i++) {
        struct test_text text = {0};
        pl_tensor t;
        char byte[34];
        float *out;
        pid_t pid;

        o.devices = devices[i];
        o.trace_user = &text;
        engine_run_open(&r, test_file(name), name, &o);
        engine_run_tokens(&r, &rng, TOKENS, token);
        out = test_need((size_t)(TOKENS * r.n_vocab), sizeof *out);
        assert_int_equal(decode_all(r.engine, token, out, r.n_vocab, NULL),
                         PL_OK);
        t = pl_engine_tensor(r.engine, "blk.0.attn_q.weight");
        assert_int_equal(pl_tensor_get_async(pl_engine_exec(r.engine), t, byte,
                                             0, sizeof byte, NULL),
                         PL_OK);
        assert_int_equal(pl_exec_wait(pl_engine_exec(r.engine), NULL), PL_OK);
        pid = fork();
        if (pid == 0) {
            size_t said = text.n;

            alarm(GIVE_UP_S);
            pl_engine_free(r.engine);
            _exit(text.n != said);
        }
        assert_int_equal(status_of(pid), 0);
        assert_int_equal(decode_all(r.engine, token, out, r.n_vocab, NULL),
                         PL_OK);
        engine_run_close(&r);
        free(out);
        free(text.s);
    }
}
