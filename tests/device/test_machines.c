/* Joining the machines of a job, without MPI: processes with sockets between
 * them (lib/pair_network.h). */
#include "device/machines.h"
#include "lib/pair_network.h"
#include "lib/support.h"

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

    return machines_join(out, NULL, &net->net, &o, &how, err);
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
