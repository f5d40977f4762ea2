/* The queue-order rule, which lets hardware run a device's two queues as one,
 * and program_check's error for programs that break it.
 *
 * Devices execute random programs of waits, posts and barriers. Each runs one
 * list of instructions strictly in order, in any order that queues and a
 * device's own events allow. Some deadlock. None does if each WAIT for another
 * device, and each barrier, depends on all earlier POSTs of its device. The
 * test states that a second time, by reachability in a graph. */
#include "lib/program_build.h"

#include "device/sim/sim_merge.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEV = 4, MAX_STEP = 64, MAX_MOVE = 40, N_GUARD = 3 };

/* A program of each device; instructions other than events and barriers do
 * nothing. */
struct law {
    uint64_t rng;
    /* few: 1 if some instructions are skipped in some steps */
    int n, order, few;
    struct program p[MAX_DEV];
    struct variant variant[MAX_DEV];
    struct insn insn[MAX_DEV][MAX_STEP];
    /* the second event of a WAIT for two events */
    struct insn_event more[MAX_DEV][MAX_STEP];
    /* peers of each barrier, by its number in the total order */
    int peer[MAX_MOVE][MAX_DEV];
};

static int below(struct law *x, int n)
{
    return (int)test_below(&x->rng, n);
}

static struct insn *new_insn(struct law *x, int d, enum insn_kind kind,
                             enum queue q)
{
    struct insn *st = &x->insn[d][x->variant[d].n_insn++];

    assert_true(x->variant[d].n_insn <= MAX_STEP);
    *st = (struct insn){
        .kind = kind, .queue = q, .order = x->order++, .node = -1};
    return st;
}

static void put_guard(struct insn *st, int guard)
{
    if (guard == 0)
        return;
    st->min_rows = guard == 1 ? 0 : 3;
    st->max_rows = guard == 1 ? 2 : INT64_MAX;
}

static int guard_of(const struct insn *st)
{
    return st->max_rows == 0 ? 0 : st->min_rows == 0 ? 1 : 2;
}

static int draw_guard(struct law *x)
{
    return x->few && below(x, 4) == 0 ? 1 + below(x, N_GUARD - 1) : 0;
}

/* Queue q waits for the last POST of the other queue, if it has one. */
static void know(struct law *x, int d, enum queue q)
{
    const struct insn *post = NULL;
    struct insn *st;

    for (int i = 0; i < x->variant[d].n_insn; i++)
        if (x->insn[d][i].kind == INSN_POST && x->insn[d][i].queue != q)
            post = &x->insn[d][i];
    if (!post)
        return;
    st = new_insn(x, d, INSN_WAIT, q);
    st->event = post->event;
    put_guard(st, guard_of(post));
}

static void draw_meeting(struct law *x, int move, bool lawful)
{
    int n = 0, order, *peer = x->peer[move], guard = draw_guard(x);

    for (int d = 0; d < x->n; d++)
        if (below(x, 2))
            peer[n++] = d;
    for (int i = 0; i < n && lawful; i++)
        know(x, peer[i], QUEUE_COMPUTE);
    order = x->order++;
    for (int i = 0; i < n; i++) {
        struct insn *st = new_insn(x, peer[i], INSN_MERGE, QUEUE_COMPUTE);

        st->order = order;
        st->merge =
            (struct insn_merge){.barrier = true, .n_peer = n, .peer = peer};
        put_guard(st, guard);
    }
}

/* Lets the WAIT wait for another event as well, of any device. */
static void draw_more(struct law *x, int d, struct insn *st, bool lawful)
{
    int from = below(x, x->n), n = x->p[from].n_event, guard = 0;
    struct insn_event *e = &x->more[d][x->variant[d].n_insn - 1];

    *e = (struct insn_event){from, n - 1};
    for (int i = 0; n > 0 && i < x->variant[from].n_insn; i++)
        if (x->insn[from][i].kind == INSN_POST &&
            x->insn[from][i].event.event == e->event)
            guard = guard_of(&x->insn[from][i]);
    /* a WAIT for others must follow those that it must know */
    if (n == 0 || (lawful && (guard != 0 || (from != d && st->event.dev == d))))
        return;
    st->wait.n_more = 1;
    st->wait.more = e;
}

/* Waits for one of the last POSTs of any device. */
static void draw_wait(struct law *x, int d, enum queue q, bool lawful)
{
    int from = below(x, x->n), n = x->p[from].n_event;
    int event = n - 1 - below(x, n < 4 ? n + 1 : 4), guard = 0;
    struct insn *st;

    if (event < 0)
        return;
    for (int i = 0; i < x->variant[from].n_insn; i++)
        if (x->insn[from][i].kind == INSN_POST &&
            x->insn[from][i].event.event == event)
            guard = guard_of(&x->insn[from][i]);
    if (from != d && lawful)
        know(x, d, q);
    st = new_insn(x, d, INSN_WAIT, q);
    st->event = (struct insn_event){from, event};
    put_guard(st, below(x, 20) ? guard : draw_guard(x));
    if (below(x, 4) == 0)
        draw_more(x, d, st, lawful);
}

/* Draws programs. lawful: 1 if they always keep the queue-order rule, 2 if they
 * mostly do, 0 if that is left to chance. */
static void draw_program(struct law *x, int lawful)
{
    int n_move = 8 + below(x, MAX_MOVE - 8);

    memset(x->variant, 0, sizeof x->variant);
    memset(x->p, 0, sizeof x->p);
    x->n = 2 + below(x, MAX_DEV - 1);
    x->order = 0;
    for (int d = 0; d < x->n; d++) {
        x->variant[d] = (struct variant){.n_micro = 1, .insn = x->insn[d]};
        x->p[d] = (struct program){
            .dev = d, .n_variant = 1, .variant = &x->variant[d], .n_group = 1};
    }
    for (int i = 0; i < n_move; i++) {
        int d = below(x, x->n), what = below(x, 10);
        enum queue q = (enum queue)below(x, 2);
        bool keep = lawful == 1 || (lawful == 2 && below(x, 8) > 0);
        struct insn *st;

        if (x->variant[d].n_insn + 4 > MAX_STEP)
            return;
        if (what < 3) {
            st = new_insn(x, d, INSN_POST, q);
            st->event = (struct insn_event){d, x->p[d].n_event++};
            put_guard(st, draw_guard(x));
        } else if (what < 7) {
            draw_wait(x, d, q, keep);
        } else if (what < 8) {
            draw_meeting(x, i, keep);
        } else {
            new_insn(x, d, INSN_MERGE, q);
        }
    }
}

/* ---- the rule, by reachability ------------------------------------------- */

static bool in_run(const struct insn *st, int64_t n_tok)
{
    return insn_enabled(st, 1, &(struct graph_sizes){n_tok, 1, 1, {0}});
}

/* Returns the instruction that posts d's event, or -1 if none does in the
 * step. */
static int post_of(const struct law *x, int d, int event, int64_t n_tok)
{
    for (int i = 0; i < x->variant[d].n_insn; i++)
        if (x->insn[d][i].kind == INSN_POST &&
            x->insn[d][i].event.event == event && in_run(&x->insn[d][i], n_tok))
            return i;
    return -1;
}

/* Computes what each instruction of d depends on, a bit each, itself included;
 * skipped instructions depend on nothing. */
static void reach(const struct law *x, int d, int64_t n_tok,
                  uint64_t on[MAX_STEP])
{
    for (int i = 0; i < x->variant[d].n_insn; i++) {
        const struct insn *st = &x->insn[d][i];
        int post;

        on[i] = 0;
        if (!in_run(st, n_tok))
            continue;
        on[i] = (uint64_t)1 << i;
        for (int k = 0; st->kind == INSN_WAIT && k < wait_count(&st->wait);
             k++) {
            struct insn_event e = wait_event(&st->wait, k);

            if (e.dev == d && (post = post_of(x, d, e.event, n_tok)) >= 0)
                on[i] |= on[post];
        }
        for (int k = 0; k < i; k++)
            if (on[k] && x->insn[d][k].queue == st->queue)
                on[i] |= on[k];
    }
}

static bool waits_for_others(const struct insn *st, int d)
{
    for (int k = 0; st->kind == INSN_WAIT && k < wait_count(&st->wait); k++)
        if (wait_event(&st->wait, k).dev != d)
            return true;
    return false;
}

static bool tells(const struct insn *st)
{
    return st->kind == INSN_POST || insn_is_barrier(st);
}

/* Returns the first instruction that breaks the rule in a step of n_tok, or
 * -1. */
static int breaks_law(const struct law *x, int d, int64_t n_tok)
{
    uint64_t on[MAX_STEP];

    reach(x, d, n_tok, on);
    for (int i = 0; i < x->variant[d].n_insn; i++) {
        const struct insn *st = &x->insn[d][i];

        if (!in_run(st, n_tok) ||
            !(insn_is_barrier(st) || waits_for_others(st, d)))
            continue;
        for (int k = 0; k < i; k++)
            if (in_run(&x->insn[d][k], n_tok) && tells(&x->insn[d][k]) &&
                !(on[i] >> k & 1))
                return i;
    }
    return -1;
}

/* Returns true if an instruction waits for a POST that the step skips. */
static bool waits_for_nobody(const struct law *x, int64_t n_tok)
{
    for (int d = 0; d < x->n; d++)
        for (int i = 0; i < x->variant[d].n_insn; i++) {
            const struct insn *st = &x->insn[d][i];

            for (int k = 0; st->kind == INSN_WAIT && in_run(st, n_tok) &&
                            k < wait_count(&st->wait);
                 k++) {
                struct insn_event e = wait_event(&st->wait, k);

                if (post_of(x, e.dev, e.event, n_tok) < 0)
                    return true;
            }
        }
    return false;
}

/* ---- hardware with one list of instructions ------------------------------ */

struct list {
    int n, at, step[MAX_STEP];
};

/* Draws instructions of d in an order that queues and own events allow. */
static void draw_list(struct law *x, int d, struct list *l)
{
    uint64_t on[MAX_STEP], done = 0;
    int n = x->variant[d].n_insn;

    reach(x, d, 1, on);
    for (l->n = l->at = 0; l->n < n; l->n++) {
        int n_free = 0, chosen = -1;

        for (int i = 0; i < n; i++) {
            uint64_t bit = (uint64_t)1 << i;

            if (!(done & bit) && !(on[i] & ~bit & ~done) &&
                below(x, ++n_free) == 0)
                chosen = i;
        }
        assert_true(chosen >= 0);
        done |= (uint64_t)1 << chosen;
        l->step[l->n] = chosen;
    }
}

/* Returns the next instruction of d, or NULL at the end. */
static const struct insn *next(const struct law *x, const struct list *l, int d)
{
    return l[d].at < l[d].n ? &x->insn[d][l[d].step[l[d].at]] : NULL;
}

static bool all_stand(const struct law *x, const struct list *l,
                      const struct insn *st)
{
    for (int i = 0; i < st->merge.n_peer; i++) {
        const struct insn *y = next(x, l, st->merge.peer[i]);

        if (!y || !insn_is_barrier(y) || y->order != st->order)
            return false;
    }
    return true;
}

/* Returns true if all reach their end, each strictly in the order of its
 * list. */
static bool ends(const struct law *x, struct list *l)
{
    bool posted[MAX_DEV][MAX_STEP] = {{false}}, moved;

    do {
        moved = false;
        for (int d = 0; d < x->n; d++) {
            const struct insn *st = next(x, l, d);

            bool blocked = false;

            for (int k = 0;
                 st && st->kind == INSN_WAIT && k < wait_count(&st->wait);
                 k++) {
                struct insn_event e = wait_event(&st->wait, k);

                blocked |= !posted[e.dev][e.event];
            }
            if (!st || blocked)
                continue;
            if (insn_is_barrier(st) && !all_stand(x, l, st))
                continue;
            if (st->kind == INSN_POST)
                posted[d][st->event.event] = true;
            for (int i = 0; insn_is_barrier(st) && i < st->merge.n_peer; i++)
                l[st->merge.peer[i]].at += st->merge.peer[i] != d;
            l[d].at++;
            moved = true;
        }
    } while (moved);
    for (int d = 0; d < x->n; d++)
        if (next(x, l, d))
            return false;
    return true;
}

/* ---- the check ----------------------------------------------------------- */

static pl_status check(const struct program *p, int n, bool one_queue,
                       pl_err *err)
{
    const struct program_device dev[MAX_DEV] = {
        {"d0", "test", 0, true, one_queue, 0},
        {"d1", "test", 0, true, one_queue, 0},
        {"d2", "test", 0, true, one_queue, 0},
        {"d3", "test", 0, true, one_queue, 0}};
    const struct program_machine m = build_machine(dev, n);

    return program_check(&m, p, err);
}

TEST(law_decides_who_can_run_two_queues_as_one)
{
    struct law *x = test_need(1, sizeof *x);
    int n_trial = test_long() ? 20000 : 1000, n_stall = 0, n_kept = 0;

    x->rng = test_seed();
    for (int trial = 0; trial < n_trial; trial++) {
        char where[96] = "";
        pl_err err = {0};
        pl_status s;
        struct list l[MAX_DEV];
        bool end;

        draw_program(x, trial % 3);
        for (int d = 0; d < x->n; d++)
            draw_list(x, d, &l[d]);
        for (int d = x->n - 1; d >= 0; d--) {
            int i = breaks_law(x, d, 1);

            if (i >= 0)
                snprintf(where, sizeof where,
                         "program of d%d, instruction %d: waits for another "
                         "device without",
                         d, i);
        }
        end = ends(x, l);
        if (!*where && !end)
            fail_msg("trial %d keeps the law and stands still", trial);
        n_stall += !end;
        n_kept += !*where;
        TEST_OK(check(x->p, x->n, true, &err), err);
        s = check(x->p, x->n, false, &err);
        if (s != (*where ? PL_BAD_ARGUMENT : PL_OK) ||
            (*where && strncmp(err.message, where, strlen(where)) != 0))
            fail_msg("trial %d: \"%s\" is not \"%s\"", trial, err.message,
                     where);
    }
    assert_true(n_stall > n_trial / 100 && n_kept > n_trial / 4 &&
                n_kept < n_trial * 3 / 4);
    free(x);
}

/* Steps that skip some instructions keep it or break it independently. */
TEST(law_holds_in_every_kind_of_run)
{
    struct law *x = test_need(1, sizeof *x);
    int n_trial = test_long() ? 20000 : 1000;
    int n_kept = 0, n_nobody = 0, n_some = 0;

    x->rng = test_seed() + 1;
    x->few = 1;
    for (int trial = 0; trial < n_trial; trial++) {
        bool nobody = false, broken[2] = {false, false};
        pl_err err = {0};
        pl_status s;

        draw_program(x, trial % 3);
        for (int k = 0; k < 2; k++) {
            nobody |= waits_for_nobody(x, k ? 3 : 1);
            for (int d = 0; d < x->n; d++)
                broken[k] |= breaks_law(x, d, k ? 3 : 1) >= 0;
        }
        assert_int_equal(check(x->p, x->n, true, &err) != PL_OK, nobody);
        s = check(x->p, x->n, false, &err);
        if ((s == PL_OK) != !(nobody || broken[0] || broken[1]))
            fail_msg("trial %d: \"%s\"", trial, err.message);
        n_kept += s == PL_OK;
        n_nobody += nobody;
        n_some += !nobody && broken[0] != broken[1];
    }
    assert_true(n_kept > n_trial / 8 && n_nobody > n_trial / 100 &&
                n_some > n_trial / 50);
    free(x);
}

/* ---- sim devices that run their queues as one ---------------------------- */

/* Draws the order in which a sim device with merged queues would execute the
 * program. */
static void draw_merged(struct law *x, const struct program *p, struct list *l)
{
    const struct device_run run = {.n_micro = 1, .sizes = {{1, 1, 1, {0}}}};
    unsigned char told[MAX_STEP];
    int step[QUEUE_COUNT][MAX_STEP];
    struct sim_queue q[QUEUE_COUNT] = {{step[0], 0}, {step[1], 0}};

    for (int i = 0; i < p->variant->n_insn; i++) {
        int k = (int)p->variant->insn[i].queue;

        step[k][q[k].n++] = i;
    }
    sim_merge(l->step, p->variant, p->dev, &run, q, told, &x->rng);
    l->n = p->variant->n_insn;
    l->at = 0;
}

/* Returns true if instruction b may not precede instruction a, which is before
 * it. */
static bool is_tied(const struct program *p, int a, int b)
{
    const struct insn *s = &p->variant->insn[a], *t = &p->variant->insn[b];

    for (int k = 0; t->kind == INSN_WAIT && k < wait_count(&t->wait); k++) {
        struct insn_event e = wait_event(&t->wait, k);

        if (e.dev == p->dev && s->kind == INSN_POST &&
            s->event.event == e.event)
            return true;
    }
    return s->queue == t->queue ||
           ((insn_is_barrier(t) || waits_for_others(t, p->dev)) && tells(s));
}

/* With any program, a device that orders by its POSTs never deadlocks, in
 * whatever order the others run. */
TEST(law_sim_devices_keep_to_it)
{
    struct law *x = test_need(1, sizeof *x);
    int n_trial = test_long() ? 20000 : 1000;

    x->rng = test_seed() + 2;
    for (int trial = 0; trial < n_trial; trial++) {
        struct list l[MAX_DEV];

        draw_program(x, trial % 3);
        for (int d = 0; d < x->n; d++) {
            int place[MAX_STEP];

            draw_merged(x, &x->p[d], &l[d]);
            memset(place, -1, sizeof place);
            for (int i = 0; i < l[d].n; i++) {
                assert_int_equal(place[l[d].step[i]], -1);
                place[l[d].step[i]] = i;
            }
            for (int b = 0; b < l[d].n; b++)
                for (int a = 0; a < b; a++)
                    assert_false(is_tied(&x->p[d], a, b) &&
                                 place[a] > place[b]);
        }
        if (!ends(x, l))
            fail_msg("trial %d stands still", trial);
    }
    free(x);
}

/* Counts the orders of all instructions that are not in `done`. */
static int count_orders(const struct program *p, unsigned done)
{
    int n = p->variant->n_insn, sum = 0;

    if (done == (1u << n) - 1)
        return 1;
    for (int b = 0; b < n; b++) {
        bool is_free = !(done >> b & 1);

        for (int a = 0; a < b && is_free; a++)
            is_free = (done >> a & 1) || !is_tied(p, a, b);
        sum += is_free ? count_orders(p, done | 1u << b) : 0;
    }
    return sum;
}

TEST(law_sim_devices_draw_every_order)
{
    enum { MOST = 256 };
    struct law x = {.rng = test_seed()};
    struct arena a = {0};
    const struct program *p = build_text(&a,
                                         "programs 2\n"
                                         "device 0\n"
                                         "device 1\n"
                                         "variant\n"
                                         "  1: post 0\n"
                                         "  0: merge\n"
                                         "  0: post 0\n"
                                         "  0 copy: merge\n"
                                         "  0 copy: wait 0.0\n"
                                         "  0 copy: merge\n"
                                         "  0: merge\n"
                                         "  0 copy: post 1\n"
                                         "  0: wait 0.1\n"
                                         "  0: wait 1.0\n"
                                         "  0 copy: merge\n",
                                         2);
    uint64_t seen[MOST];
    int n = 0;

    for (int i = 0; i < 200000; i++) {
        uint64_t code = 0;
        struct list l;
        int k = 0;

        draw_merged(&x, p, &l);
        for (int j = 0; j < l.n; j++)
            code = code * 16 + (uint64_t)l.step[j];
        while (k < n && seen[k] != code)
            k++;
        assert_in_range(k, 0, MOST - 1);
        if (k == n)
            seen[n++] = code;
    }
    assert_in_range(n, 10, MOST);
    assert_int_equal(n, count_orders(p, 0));
    arena_fini(&a);
}

/* ---- other rejections ---------------------------------------------------- */

/* Device 0 has a work tensor and an inbox, device 1 both too. */
#define HEAD                                                                   \
    "programs 2\nmax n_tok 4 n_out 4\n"                                        \
    "device 0\n%0: f32[n_tok, 8]\n%1: f32[n_tok, 8] inbox\n"                   \
    "device 1\n%0: f32[n_tok, 8]\n%1: f32[n_tok, 8] inbox\n"                   \
    "variant micro 2\n"

static const struct refusal {
    /* text of the programs, and the error's text; NULL if they are accepted */
    const char *text, *says;
    /* memory of each device: devices with the same number >= 0 share it, -1 is
     * private */
    int memory[2];
} refusals[] = {
    /* programs with a PUSH */
    {HEAD "0 copy: push 1.%1 <- %0 32*n_tok\n", NULL, {-1, -1}},
    {HEAD "0 copy: push 1.%0 <- %0 32\n", "outside of an inbox", {0, 0}},
    {HEAD "0 copy: push 1.%2 <- %0 32\n", "outside of an inbox", {0, 0}},
    {HEAD "0 copy: push 1.%1 <- 1.%0 32\n", "data of another device", {0, 0}},
    {HEAD "0 copy: push %1 <- %0 32\n", NULL, {0, 0}},
    {HEAD "0 copy: push 2.%1 <- %0 32\n",
     "to a device that is not in the set",
     {0, 0}},
    {HEAD "0 copy: push 1.%1 <- %0 64*n_tok\n",
     "past the end of its source",
     {0, 0}},
    {HEAD "0 copy: push 1.%1 <- %0 32*n_tok to 4\n",
     "past the end of its result",
     {-1, 0}},
    {HEAD "0 copy: push 1.%1 <- %0 4 x 2(0, 128)\n",
     "past the end of its result",
     {-1, 0}},
    {HEAD "0 copy if n_tok ..2: push 1.%1 <- %0 64*n_tok\n", NULL, {-1, 0}},
    {HEAD "0 copy if n_tok ..3: push 1.%1 <- %0 64*n_tok\n",
     "past the end of its source",
     {-1, 0}},
    /* programs with a PULL */
    {HEAD "0 copy: pull %0 <- 1.%0 32\n", NULL, {-1, 0}},
    {HEAD "0 copy: pull %0 <- 1.%0 32\n",
     "memory that it cannot access",
     {0, -1}},
    {HEAD "0 copy: pull %0 <- 1.%1 32\n",
     "memory that it cannot access",
     {-1, -1}},
    /* sums and gathers of parts of a tensor */
    {HEAD "0: merge %0 <- sum(%0, %1-64+) @64 16 to 64\n", NULL, {0, 0}},
    {HEAD "0: merge %0 <- sum(%0, %1-64+) @60 16\n",
     "past the end of its source",
     {0, 0}},
    {HEAD "0: merge %0 <- sum(%0, %1@8-16*n_tok+) @16*n_tok 16\n",
     NULL,
     {0, 0}},
    {HEAD "0: merge %0 <- sum(%0, %1-16*n_tok+) @64 16\n", NULL, {0, 0}},
    {HEAD "0: merge %0 <- sum(%0, %1-20*n_tok+) @64 16\n",
     "past the end of its source",
     {0, 0}},
    {HEAD "0: merge %0 <- sum(%0, %1-64+) @16*n_tok 16\n",
     "past the end of its source",
     {0, 0}}, /* the source is too short in steps of few tokens */
    {HEAD "0 if n_tok 4..: merge %0 <- sum(%0, %1-64+) @16*n_tok 16\n",
     NULL,
     {0, 0}},
    {HEAD "0: merge %0 <- sum(%0, %1-16*n_out+) @16*n_tok 16\n",
     "past the end of its source",
     {0, 0}},
    /* WAITs for a POST that the step may skip */
    {HEAD "0 if n_tok 3..: post 0\n1 if n_tok 3..: wait 0.0\n", NULL, {0, 0}},
    {HEAD "0 if n_tok 2..: post 0\n1 if n_tok 3..: wait 0.0\n", NULL, {0, 0}},
    {HEAD "0: post 0\n1 if n_out ..3: wait 0.0\n", NULL, {0, 0}},
    {HEAD "0 if n_tok 3..: post 0\n1: wait 0.0\n", "deadlock", {0, 0}},
    {HEAD "0 if n_tok ..2: post 0\n1: wait 0.0\n", "deadlock", {0, 0}},
    {HEAD "0 if n_tok ..2: post 0\n1 if n_tok ..3: wait 0.0\n",
     "deadlock",
     {0, 0}},
    {HEAD "0 if n_tok ..2: post 0\n1 if n_out ..2: wait 0.0\n",
     "deadlock",
     {0, 0}},
    {HEAD "0 if n_tok 3..: post 0\n1 micro 1 if n_tok 3..: wait 0.0\n",
     "deadlock",
     {0, 0}},
    {HEAD "0 if n_tok 2..: merge barrier 0, 1\n1: merge barrier 0, 1\n",
     "deadlock",
     {0, 0}},
    {HEAD "0 if n_tok 1..: post 0\n0 if n_tok 2..: post 1\n"
          "0 if n_tok 3..: post 2\n0 if n_tok 4..: post 3\n"
          "0 if n_tok 5..: post 4\n0 if n_tok 6..: post 5\n",
     "one predicate size too many",
     {0, 0}},
    /* programs that break the queue-order rule, and that keep it */
    {HEAD "1: post 0\n0: post 0\n0 copy: wait 1.0\n",
     "program of d0, instruction 1: waits for another device without having "
     "seen",
     {0, 0}},
    {HEAD "1: post 0\n0: post 0\n0 copy: wait 0.0\n0 copy: wait 1.0\n",
     NULL,
     {0, 0}},
    {HEAD "0 copy: post 0\n0, 1: merge barrier\n",
     "program of d0, instruction 1: waits for another device without having "
     "seen",
     {0, 0}},
    {HEAD "1: post 0\n0 if n_tok 2..: post 0\n0 copy: wait 1.0\n",
     "program of d0, instruction 1: waits for another device without having "
     "seen",
     {0, 0}},
    {HEAD "1: post 0\n0 micro 1: post 0\n0 copy: wait 1.0\n",
     "program of d0, instruction 1: waits for another device without having "
     "seen",
     {0, 0}},
    {HEAD "1: post 0\n0 micro 1: post 0\n0 copy micro 1: wait 0.0\n"
          "0 copy: wait 1.0\n",
     NULL,
     {0, 0}},
};

TEST(law_of_memory_and_guards_is_checked)
{
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        const struct refusal *x = &refusals[i];
        const struct program_device dev[2] = {
            {"d0", "test", x->memory[0], true, false, 0},
            {"d1", "test", x->memory[1], true, false, 0}};
        const struct program_machine m = build_machine(dev, 2);
        struct arena a = {0};
        pl_err err = {0};
        pl_status s = program_check(&m, build_text(&a, x->text, 2), &err);

        if (s != (x->says ? PL_BAD_ARGUMENT : PL_OK) ||
            (x->says && !strstr(err.message, x->says)))
            fail_msg("\"%s\" where \"%s\" is meant, of\n%s", err.message,
                     x->says ? x->says : "nothing", x->text);
        arena_fini(&a);
    }
}
