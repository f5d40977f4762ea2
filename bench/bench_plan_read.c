/* Implements bench_plan_read.h. */
#include "bench_plan_read.h"
#include "timing.h"

#include <stdlib.h>
#include <string.h>

struct text {
    char *at;
    size_t n;
};

static void keep(void *user, const char *text, size_t n)
{
    struct text *t = user;
    char *more = realloc(t->at, t->n + n);

    if (!more)
        bench_die("a plan", "no memory");
    memcpy(more + t->n, text, n);
    t->at = more;
    t->n += n;
}

json_t *bench_plan_read(const pl_model *m, const pl_options *opt,
                        const char *what)
{
    struct text t = {NULL, 0};
    pl_err err = {0};
    pl_plan *p = NULL;
    json_t *all;

    if (pl_plan_create(&p, m, opt, &err) != PL_OK ||
        pl_plan_print(p, true, keep, &t, &err) != PL_OK)
        bench_die(what, err.message);
    pl_plan_free(p);
    all = json_loadb(t.at, t.n, 0, NULL);
    if (!all)
        bench_die(what, "the plan is no JSON");
    free(t.at);
    return all;
}
