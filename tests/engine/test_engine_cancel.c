/* Loading an engine can be cancelled at any point. It returns a status of its
 * own, and nothing is left behind. */
#include "lib/engine_run.h"
#include "pl_graph.h"

#include <string.h>
#include <unistd.h>

struct tired {
    /* number of calls of the progress function, and after how many parts of
     * weights it cancels */
    int calls, most;
    int cancel;
};

static void count(void *user, const char *what, uint64_t done, uint64_t total)
{
    struct tired *t = user;

    (void)what;
    (void)done;
    (void)total;
    if (++t->calls == t->most)
        __atomic_store_n(&t->cancel, 1, __ATOMIC_RELAXED);
}

/* Cancels after `most` parts. Returns true if it was loaded all the same. */
static bool loads(const pl_model *m, pl_options o, int most)
{
    struct tired t = {.most = most};
    pl_engine *e;
    pl_err err = {0};
    pl_status s;

    o.progress = count;
    o.progress_user = &t;
    o.cancel = &t.cancel;
    s = pl_engine_create(&e, m, &o, &err);
    if (s == PL_OK) {
        pl_engine_free(e);
        return true;
    }
    assert_int_equal(s, PL_CANCELLED);
    assert_string_equal(err.message, "loading was stopped on request");
    assert_null(e);
    /* each other loading thread may report one more part */
    assert_true(t.calls <= most + (int)sysconf(_SC_NPROCESSORS_ONLN) + 2);
    return false;
}

TEST(engine_load_ends_when_it_is_given_up)
{
    static const char *const devices[] = {"cpu*2", "sim*2", "proc*2", "emu"};
    static const char name[] = "models/fable-moe-Q8_0.gguf";
    const char *path = test_file(name);
    pl_model *m;
    pl_err err;

    assert_non_null(path); /* the bundled model is a part of the checkout */
    TEST_OK(pl_model_open(&m, path, &err), err);
    for (int k = 0; k < 4; k++) {
        pl_options o = engine_run_options();
        int n_stopped = 0;

        o.devices = devices[k];
        o.prefix_cache = k % 2;
        for (int most = 1; !loads(m, o, most); most = 2 * most + 1)
            n_stopped++;
        assert_true(n_stopped >= 2);
    }
    pl_model_free(m);
}

/* A plan can be cancelled, too, which happens before any weight is read. */
TEST(engine_plan_ends_when_it_is_given_up)
{
    const int cancel = 1;
    const char *path = test_model();
    pl_options o = engine_run_options();
    pl_plan *p;
    pl_model *m;
    pl_err err;

    TEST_OK(pl_model_open(&m, path, &err), err);
    o.cancel = &cancel;
    assert_int_equal(pl_plan_create(&p, m, &o, &err), PL_CANCELLED);
    assert_null(p);
    pl_model_free(m);
}
