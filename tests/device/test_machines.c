/* Joining the machines of a job, and measuring the networks between them,
 * without MPI: processes with sockets between them (lib/pair_network.h). */
#include "device/machines.h"

#include "base/version.h"
#include "device/machines_links.h"
#include "device/machines_measure.h"
#include "device/remote/remote_clock.h"
#include "lib/pair_network.h"
#include "lib/support.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct joined {
    struct pair_network net;
    pid_t child;
};

typedef void child_fn(struct pair_network *net);

static const pl_machines_options how = {
    .size = sizeof how, .join_s = 60, .silence_s = 2};

/* Starts machine 1, and makes this process machine 0. */
static void start(struct joined *j, child_fn *run)
{
    pair_network_open(&j->net, 2);
    j->child = fork();
    assert_true(j->child >= 0);
    if (j->child == 0) {
        pair_network_join(&j->net, 1);
        run(&j->net);
        _exit(0);
    }
    pair_network_join(&j->net, 0);
}

static pl_status join(pl_machines **out, struct pair_network *net,
                      const char *devices, pl_err *err)
{
    pl_options o = {.size = sizeof o, .devices = devices, .n_threads = 1};

    return machines_join(out, NULL, &net->net, NULL, &o, &how, NULL, err);
}

static void end(struct joined *j)
{
    int status;

    assert_int_equal(waitpid(j->child, &status, 0), j->child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    pair_network_close(&j->net);
}

static void join_and_leave(struct pair_network *net)
{
    pl_machines *m;
    pl_err err;

    if (join(&m, net, "sim*2", &err) != PL_OK || pl_machines_number(m) != 1 ||
        !pl_machines_leave(m, NULL))
        _exit(1);
}

TEST(machines_join_with_their_devices)
{
    struct device_list l;
    enum kernel_set set;
    struct joined j;
    pl_machines *m;
    pl_err err;

    start(&j, join_and_leave);
    TEST_OK(join(&m, &j.net, "cpu", &err), err);
    assert_int_equal(pl_machines_count(m), 2);
    TEST_OK(machines_list(&l, m, &err), err);
    assert_int_equal(l.n, 3);
    assert_string_equal(l.dev[0].name, "cpu0");
    assert_string_equal(l.dev[1].name, "1/sim0");
    assert_string_equal(l.dev[2].name, "1/sim1");
    assert_int_equal(l.dev[2].machine, 1);
    assert_true(l.dev[0].machine == 0 && l.network && l.n_given == 0);
    TEST_OK(machines_kernel_set(&set, m, NULL, &err), err);
    assert_int_equal(set, kernel_set_best());
    device_list_free(&l);
    assert_true(pl_machines_leave(m, NULL));
    end(&j);
}

static void join_without_device(struct pair_network *net)
{
    pl_machines *m;
    pl_err err;

    if (join(&m, net, "none", &err) != PL_BAD_ARGUMENT ||
        !pl_machines_leave(m, &err))
        _exit(1);
}

/* The error of one machine is that of the other, and both end. */
TEST(machines_that_cannot_join_say_why)
{
    struct joined j;
    pl_machines *m;
    pl_err err;

    start(&j, join_without_device);
    assert_int_equal(join(&m, &j.net, "cpu", &err), PL_UNSUPPORTED);
    assert_string_equal(err.message,
                        "machine 1: this machine has no device; give it one, "
                        "as with `-dev cpu`, or leave it out");
    assert_true(pl_machines_leave(m, &err));
    end(&j);
}

static void end_at_once(struct pair_network *net)
{
    pair_network_close(net);
}

static void stop_after_join(struct pair_network *net)
{
    pl_machines *m;
    pl_err err;

    if (join(&m, net, "cpu", &err) != PL_OK)
        _exit(1);
    raise(SIGSTOP);
    _exit(0);
}

static void leave_bereft(struct pair_network *net)
{
    pl_err err = {PL_DEVICE, "machine 2: nothing was heard of it"};
    pl_machines *m;

    if (join(&m, net, "cpu", &err) != PL_OK)
        _exit(1);
    err = (pl_err){PL_DEVICE, "machine 2: nothing was heard of it"};
    pl_machines_leave(m, &err);
}

/* One that refuses will refuse again. One that has lost another may be started
 * again, so its error is told as a loss. */
TEST(machines_that_have_lost_another_count_as_lost)
{
    struct network_session *s = NULL;
    struct joined j;
    pl_machines *m;
    pl_err err;

    start(&j, leave_bereft);
    TEST_OK(join(&m, &j.net, "cpu", &err), err);
    assert_int_equal(network_session_receive(m->watch, 1, 60, NULL, &s, &err),
                     PL_DEVICE);
    assert_string_equal(err.message,
                        "machine 1: machine 2: nothing was heard of it");
    pl_machines_leave(m, NULL);
    end(&j);
}

/* A machine whose process ends or stops is lost, and not waited for. */
TEST(machines_that_are_gone_or_silent_are_lost)
{
    struct network_session *s = NULL;
    struct joined j;
    pl_machines *m;
    pl_err err;

    start(&j, end_at_once);
    assert_int_equal(join(&m, &j.net, "cpu", &err), PL_DEVICE);
    assert_non_null(strstr(err.message, "machine 1: its process has ended"));
    assert_false(pl_machines_leave(m, &err));
    end(&j);
    start(&j, stop_after_join);
    TEST_OK(join(&m, &j.net, "cpu", &err), err);
    assert_int_equal(network_session_receive(m->watch, 1, 60, NULL, &s, &err),
                     PL_DEVICE);
    assert_string_equal(err.message,
                        "machine 1: nothing was heard of it for 2 s; it was "
                        "stopped, or the network is down");
    assert_false(network_watch_is_there(m->watch, 1));
    assert_false(pl_machines_leave(m, NULL));
    assert_int_equal(kill(j.child, SIGCONT), 0);
    end(&j);
}

/* ---- networks between machines ------------------------------------------- */

/* A carrier to one partner that sends everything back, on a clock of its own:
 * a message of n bytes takes latency_s + n / bytes_per_s each way, and every
 * fourth is late. */
struct echo {
    struct network net;
    double now, latency_s, bytes_per_s;
    int n_sent;
    size_t bytes;
    unsigned char *data; /* the last message; NULL if it was received */
    bool waits;
    bool lost; /* the partner does not answer */
};

static bool echo_send(struct network *net, int to, int tag, const void *data,
                      size_t bytes)
{
    struct echo *e = (struct echo *)net;

    assert_int_equal(to, 1);
    assert_int_equal(tag, MACHINES_PROBE);
    free(e->data);
    e->data = test_need(1, bytes);
    memcpy(e->data, data, bytes);
    e->bytes = bytes;
    e->waits = true;
    e->now += 2 * (e->latency_s + (double)bytes / e->bytes_per_s);
    e->now += e->n_sent++ % 4 == 3 ? 1 : 0;
    return true;
}

static bool echo_receive(struct network *net, int from,
                         struct network_message *out)
{
    struct echo *e = (struct echo *)net;

    assert_int_equal(from, 1);
    *out = (struct network_message){MACHINES_PROBE, e->data, e->bytes};
    if (e->lost)
        *out = (struct network_message){NETWORK_LOST, "gone", 5};
    else if (!e->waits)
        return false;
    e->waits = false;
    return true;
}

static double echo_now(void *user)
{
    return ((struct echo *)user)->now;
}

static void near(double is, double want)
{
    if (!(fabs(is - want) <= 1e-6 * want))
        fail_msg("%.12g, not %.12g", is, want);
}

/* Latency and rate of a network are what they are, from a radio's to that of
 * shared memory, and messages that other processes delay do not count. */
TEST(machines_measure_latency_and_rate)
{
    static const struct network_ops ops = {
        .name = "echo", .send = echo_send, .receive = echo_receive};
    static const double rows[][2] = {
        {2e-3, 5e6}, {50e-6, 0.117e9}, {27e-6, 1.17e9}, {1e-6, 20e9}};
    struct machine_link link[2];
    pl_err err;

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct echo e = {.net = {.ops = &ops, .n_machine = 2},
                         .latency_s = rows[i][0],
                         .bytes_per_s = rows[i][1]};
        const struct machines_measure m = {
            .pair_s = 0.3, .limit_s = 60, .now = echo_now, .user = &e};

        TEST_OK(machines_measure(&e.net, &m, link, &err), err);
        near(link[1].latency_s, rows[i][0]);
        near(link[1].bytes_per_s, rows[i][1]);
        assert_int_equal(link[1].source, LINK_MEASURED);
        e.lost = true;
        assert_int_equal(machines_measure(&e.net, &m, link, &err), PL_DEVICE);
        assert_non_null(strstr(err.message, "machine 1: gone"));
        free(e.data);
    }
}

/* The difference of two clocks that drift is known as exactly as the fastest
 * messages allow, however late others are. It is found again after a clock was
 * set. */
TEST(machines_know_the_difference_of_their_clocks)
{
    uint64_t seed = test_seed();

    for (int draw = 0; draw < test_draws(20, 1000); draw++) {
        const double fastest = 1e-6 * (double)(1 + test_below(&seed, 100));
        double drift = 1e-6 * ((double)test_below(&seed, 160) - 80);
        double differs = (double)test_below(&seed, 2000000) - 1e6, now = 1000;
        struct remote_clock c = {.known = false};

        for (int i = 0; i < 200; i++) {
            double there[2], to[2], error;
            bool fast = i % 100 == 50, set = i == 100;
            struct remote_round r = {.sent_s = now};

            for (int k = 0; k < 2; k++)
                to[k] = fastest +
                        (fast ? 0 : 1e-6 * (double)test_below(&seed, 10000));
            differs += set ? 5 : 0;
            there[0] = now + to[0];
            there[1] = there[0] + 1e-6 * (double)test_below(&seed, 50000);
            now = there[1] + to[1];
            /* this machine's clock minus the other one's at time t is
             * differs + drift * t */
            r.took_s = there[0] - differs - drift * there[0];
            r.replied_s = there[1] - differs - drift * there[1];
            r.came_s = now;
            remote_clock_update(&c, &r);
            error = remote_clock_difference(&c) - differs - drift * now;
            assert_true(fabs(error) <= (c.most_s - c.least_s) / 2 + 1e-5);
            if (i % 100 >= 50)
                assert_true(c.most_s - c.least_s <= 2 * fastest + 0.01);
            if (fast)
                assert_true(fabs(error) <= fastest + 2e-5);
            now += 1e-3;
        }
    }
}

/* Each two machines meet in exactly one round, and none has two partners. */
TEST(machines_measure_each_pair_once)
{
    for (int n = 2; n <= 65; n++) {
        bool *met = test_need((size_t)n * (size_t)n, sizeof *met);

        for (int r = 0; r < machines_rounds(n); r++)
            for (int k = 0; k < n; k++) {
                int with = machines_partner(n, r, k);

                if (with < 0)
                    continue;
                assert_true(with != k && with < n);
                assert_int_equal(machines_partner(n, r, with), k);
                assert_false(met[k * n + with]);
                met[k * n + with] = true;
            }
        for (int k = 0; k < n * n; k++)
            assert_true(met[k] == (k / n != k % n));
        free(met);
    }
}

static void join_as_third(struct pair_network *net)
{
    pl_machines *m;
    pl_err err;

    if (join(&m, net, "cpu", &err) != PL_OK || !pl_machines_leave(m, NULL))
        _exit(1);
}

/* Machine 0 knows the network of each pair after a join, also of those that it
 * is not part of, and devices say what their machine's best link is. */
TEST(machines_join_knowing_their_networks)
{
    struct pair_network net;
    struct device_list l;
    pl_machines *m;
    pid_t child[2];
    pl_err err;

    pair_network_open(&net, 3);
    for (int k = 1; k <= 2; k++) {
        child[k - 1] = fork();
        assert_true(child[k - 1] >= 0);
        if (child[k - 1] == 0) {
            pair_network_join(&net, k);
            join_as_third(&net);
            _exit(0);
        }
    }
    pair_network_join(&net, 0);
    TEST_OK(join(&m, &net, "cpu", &err), err);
    TEST_OK(machines_list(&l, m, &err), err);
    assert_int_equal(l.n_machine, 3);
    for (int a = 0; a < 3; a++)
        for (int b = 0; b < 3; b++) {
            const struct machine_link *x = &l.link[a * 3 + b];

            assert_true((x->bytes_per_s > 0 && x->latency_s > 0 &&
                         x->source == LINK_MEASURED) == (a != b));
            assert_true(x->bytes_per_s == l.link[b * 3 + a].bytes_per_s);
            assert_true(l.dev[a].network_bytes_per_s >= x->bytes_per_s);
            assert_true(l.dev[a].network_latency_s >= x->latency_s);
        }
    device_list_free(&l);
    assert_true(pl_machines_leave(m, NULL));
    for (int k = 0; k < 2; k++) {
        int status;

        assert_int_equal(waitpid(child[k], &status, 0), child[k]);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    pair_network_close(&net);
}

/* A network that the user states is not measured. */
TEST(machines_join_with_a_stated_network)
{
    pl_options o = {.size = sizeof o, .devices = "cpu", .n_threads = 1};
    pl_machines_options stated = how;
    struct machine_link x;
    struct device_list l;
    struct joined j;
    pl_machines *m;
    pl_err err;

    stated.network = "1.17GB/s:30us";
    start(&j, join_as_third);
    TEST_OK(machines_join(&m, NULL, &j.net.net, NULL, &o, &stated, NULL, &err),
            err);
    TEST_OK(machines_list(&l, m, &err), err);
    near(l.link[1].bytes_per_s, 1.17e9);
    near(l.link[2].latency_s, 30e-6);
    assert_int_equal(l.link[1].source, LINK_STATED);
    near(l.dev[1].network_bytes_per_s, 1.17e9);
    device_list_free(&l);
    assert_true(pl_machines_leave(m, NULL));
    end(&j);
    assert_int_equal(device_parse_network(&x, "1.17GB/s", &err),
                     PL_BAD_ARGUMENT);
    assert_string_equal(err.message,
                        "network \"1.17GB/s\": not a bandwidth and a latency; "
                        "write them like 1.17GB/s:30us");
    assert_int_equal(device_parse_network(&x, "30us:1GB", NULL),
                     PL_BAD_ARGUMENT);
    TEST_OK(device_parse_network(&x, "30us:1kB/s", &err), err);
}

/* A file belongs to two machines, whichever is first, and to one network. A
 * damaged file is ignored. */
TEST(machines_links_are_kept_by_names_and_network)
{
    const struct machine_link x = {1.2345e9, 6.7e-6, LINK_MEASURED};
    static const char good[] =
        "{\"plait\": \"" PLAIT_VERSION "\", \"machines\": [\"a\", \"b\"], "
        "\"network\": \"n\", \"bytes_per_s\": 5e8, \"latency_s\": 1e-5}";
    struct machine_link y;
    char cut[sizeof good];

    assert_int_equal(setenv("XDG_CACHE_HOME", test_temp("links"), 1), 0);
    assert_false(machines_link_load(&y, "b", "a", "n"));
    assert_true(machines_link_save(&x, "b", "a", "n"));
    for (int turned = 0; turned < 2; turned++) {
        assert_true(machines_link_load(&y, turned ? "b" : "a",
                                       turned ? "a" : "b", "n"));
        assert_true(y.bytes_per_s == x.bytes_per_s &&
                    y.latency_s == x.latency_s && y.source == LINK_MEASURED);
    }
    assert_false(machines_link_load(&y, "a", "b", "other"));
    assert_false(machines_link_load(&y, "a", "c", "n"));
    assert_true(machines_link_parse(&y, good, sizeof good - 1, "b", "a", "n"));
    assert_false(machines_link_parse(&y, good, sizeof good - 1, "a", "c", "n"));
    for (size_t n = 0; n < sizeof good - 1; n++) {
        memcpy(cut, good, n);
        assert_false(machines_link_parse(&y, cut, n, "a", "b", "n"));
    }
    strcpy(cut, good);
    memcpy(strstr(cut, "5e8"), "-58", 3);
    assert_false(machines_link_parse(&y, cut, strlen(cut), "a", "b", "n"));
}
