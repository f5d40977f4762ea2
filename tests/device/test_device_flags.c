/* Waits for flags that others raise end: awake, asleep, and from another
 * process. */
#include "device/team.h"
#include "lib/support.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N_TURN = 2000 };

struct pair {
    struct device_flag ping, pong;
    atomic_bool stop;
    int n_spin;
};

static struct pair *make_pair(int n_spin)
{
    struct pair *p = mmap(NULL, sizeof *p, PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    assert_true(p != MAP_FAILED);
    p->n_spin = n_spin;
    return p;
}

/* Answers each ping. Returns true if it saw all of them. */
static bool answer(struct pair *p)
{
    for (uint64_t i = 1; i <= N_TURN; i++) {
        if (!flag_wait(&p->ping, i, p->n_spin, &p->stop))
            return false;
        device_flag_raise(&p->pong, i);
    }
    return true;
}

static void *answer_on(void *user)
{
    return answer(user) ? user : NULL;
}

static void ask(struct pair *p)
{
    for (uint64_t i = 1; i <= N_TURN; i++) {
        device_flag_raise(&p->ping, i);
        assert_true(flag_wait(&p->pong, i, p->n_spin, &p->stop));
        assert_true(atomic_load(&p->pong.v) == i);
    }
    assert_int_equal(atomic_load(&p->ping.n_asleep), 0);
    assert_int_equal(atomic_load(&p->pong.n_asleep), 0);
}

TEST(flags_wake_who_waits_awake_or_asleep)
{
    const int spins[] = {0, 20, 2000};

    for (int k = 0; k < 3; k++) {
        struct pair *p = make_pair(spins[k]);
        pthread_t other;
        void *all;

        assert_int_equal(pthread_create(&other, NULL, answer_on, p), 0);
        ask(p);
        pthread_join(other, &all);
        assert_true(all == p);
        munmap(p, sizeof *p);
    }
}

TEST(flags_wake_who_waits_in_another_process)
{
    struct pair *p = make_pair(0);
    int status;
    pid_t child = fork();

    if (child == 0)
        _exit(answer(p) ? 0 : 1);
    assert_true(child > 0);
    ask(p);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    munmap(p, sizeof *p);
}

TEST(flags_nobody_raises_are_given_up_when_the_run_fails)
{
    struct pair *p = make_pair(0);
    pthread_t other;
    void *all;

    assert_int_equal(pthread_create(&other, NULL, answer_on, p), 0);
    while (atomic_load(&p->ping.n_asleep) == 0)
        sched_yield();
    atomic_store(&p->stop, true);
    pthread_join(other, &all);
    assert_null(all);
    assert_false(flag_wait(&p->pong, 1, 0, &p->stop));
    assert_false(flag_spin(&p->pong, 1, 0, &p->stop));
    munmap(p, sizeof *p);
}
