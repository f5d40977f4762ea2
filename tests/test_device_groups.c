/* Random programs of several groups: cpu and sim devices and a host on the same
 * cores run scripts of several micro-batches, meet in any subset, pull from one
 * another, and leave what an interpreter of the total order leaves. */
#include "base/err.h"
#include "program_build.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_DEV = 6,
    MAX_TENSOR = 400,
    MAX_STEP = 1600,
    N_SCRIPT = 2,
    MAX_INST = 3,
    W = 24,
    TOK = 4,
    MOVES = 60, /* of a script */
};

/* Where a value came from decides who must be waited for to read it. */
struct value {
    int script, instance; /* -1: there from the start */
    bool pulled, waited;  /* by the copy queue; the compute queue knows */
};

struct game {
    uint64_t rng;
    int n, order;
    int n_inst[N_SCRIPT];
    bool host[MAX_DEV], cpu[MAX_DEV];
    struct program p[MAX_DEV];
    struct script script[MAX_DEV][N_SCRIPT];
    struct step step[MAX_DEV][N_SCRIPT][MAX_STEP];
    struct prog_tensor tensor[MAX_DEV][MAX_TENSOR];
    struct value value[MAX_DEV][MAX_TENSOR];
    float data[MAX_DEV][MAX_TENSOR][TOK * W]; /* the interpreter's */
    struct arena a;
};

static int below(struct game *g, int n)
{
    return (int)test_below(&g->rng, n);
}

static void *keep(struct game *g, const void *p, size_t n, size_t size)
{
    void *q = arena_memdup(&g->a, p, n, size);

    assert_non_null(q);
    return q;
}

static int new_tensor(struct game *g, int d, int script, int instance)
{
    struct program *p = &g->p[d];
    size_t bytes = TOK * W * sizeof(float);
    int t = p->n_tensor++;

    assert_true(t < MAX_TENSOR);
    g->tensor[d][t] = (struct prog_tensor){
        .format = PL_F32,
        .n_dim = 2,
        .dim = {build_per_tok(1), build_const(W)},
        .region = REGION_WORK,
        .offset = (size_t)t * bytes,
        .bytes = bytes,
        .instance = instance,
    };
    p->bytes[REGION_WORK] += bytes;
    g->value[d][t] = (struct value){script, instance, false, true};
    return t;
}

static struct step *new_step(struct game *g, int d, int script, int instance,
                             enum step_kind kind)
{
    struct script *c = &g->script[d][script];
    struct step *st = &g->step[d][script][c->n_step++];

    assert_true(c->n_step <= MAX_STEP);
    *st = (struct step){
        .kind = kind, .order = g->order++, .instance = instance, .node = -1};
    return st;
}

static void post(struct game *g, int d, int script, int instance, int t,
                 enum queue q)
{
    struct step *st = new_step(g, d, script, instance, STEP_POST);

    st->queue = q;
    st->event = (struct step_event){d, t};
}

/* Queue q of device d waits until value t of device from is there. */
static void wait_for(struct game *g, int d, int script, int instance,
                     enum queue q, int from, int t)
{
    struct step *st;

    if (g->value[from][t].script < 0) /* was there before */
        return;
    st = new_step(g, d, script, instance, STEP_WAIT);
    st->queue = q;
    st->event = (struct step_event){from, t};
}

/* A value that the instance of the script has on the device. */
static int pick(struct game *g, int d, int script, int instance)
{
    for (;;) {
        int t = below(g, g->p[d].n_tensor);
        const struct value *v = &g->value[d][t];

        if (v->instance == instance && (v->script < 0 || v->script == script))
            return t;
    }
}

/* As pick, for the compute queue of its own device. */
static int pick_own(struct game *g, int d, int script, int instance)
{
    int t = pick(g, d, script, instance);
    struct value *v = &g->value[d][t];

    if (v->pulled && !v->waited)
        wait_for(g, d, script, instance, QUEUE_COMPUTE, d, t);
    v->waited = true;
    return t;
}

static void compute(struct game *g, int script, int instance)
{
    int d = below(g, g->n), in = pick_own(g, d, script, instance);
    int out = new_tensor(g, d, script, instance);
    struct step *st = new_step(g, d, script, instance, STEP_KERNEL);
    struct graph_attr attr = {0};

    st->kernel = (struct step_kernel){
        .kernel = below(g, 2) ? KERNEL_scale : KERNEL_contiguous,
        .n_arg = 2,
        .arg = {{out, ACCESS_WRITE}, {in, ACCESS_READ}},
    };
    attr.scale = 0.5f + (float)below(g, 100) / 100;
    st->kernel.attr = keep(g, &attr, 1, sizeof attr);
    post(g, d, script, instance, out, QUEUE_COMPUTE);
}

static void pull(struct game *g, int script, int instance)
{
    int d = below(g, g->n), from = below(g, g->n);
    int in, out;
    struct copy_piece piece;
    struct step *st;

    if (d == from)
        return;
    in = pick(g, from, script, instance);
    out = new_tensor(g, d, script, instance);
    g->value[d][out].pulled = true;
    g->value[d][out].waited = false;
    wait_for(g, d, script, instance, QUEUE_COPY, from, in);
    piece = build_rows(from, in, 0, W * 4, 0, W * 4, W * 4);
    st = new_step(g, d, script, instance, STEP_PULL);
    st->queue = QUEUE_COPY;
    st->pull = (struct step_pull){
        .out = out,
        .n_piece = 1,
        .piece = keep(g, &piece, 1, sizeof piece),
        .between_groups = below(g, 2),
    };
    post(g, d, script, instance, out, QUEUE_COPY);
}

/* Some cpu devices, none on another's threads, sum a value of each. */
static void meet(struct game *g, int script, int instance)
{
    int peer[MAX_DEV], n = 0, group = 0, order;
    struct merge_addend a[MAX_DEV];
    struct copy_piece piece = build_rows(0, 0, 0, W * 4, 0, W * 4, W * 4);
    bool host = below(g, 4) == 0;
    int depth;

    for (int d = 0; d < g->n; d++)
        if (g->cpu[d] && g->host[d] == host && below(g, 3)) {
            a[n] = (struct merge_addend){
                .dev = d, .tensor = pick_own(g, d, script, instance)};
            peer[n++] = d;
            group |= 1 << d;
        }
    if (n == 0)
        return;
    depth = build_tree(a, n);
    order = g->order++;
    for (int i = 0; i < n; i++) {
        struct step *st = new_step(g, peer[i], script, instance, STEP_MERGE);
        struct merge_item m = {
            .reduce = true,
            .out = new_tensor(g, peer[i], script, instance),
            .n_piece = 1,
            .piece = keep(g, &piece, 1, sizeof piece),
            .n_addend = n,
            .addend = keep(g, a, (size_t)n, sizeof *a),
            .depth = depth,
        };

        st->order = order;
        st->merge = (struct step_merge){
            .n_item = 1,
            .item = keep(g, &m, 1, sizeof m),
            .meet = true,
            .message = true,
            .counted = i == 0,
            .message_bytes = {build_per_tok(W * 4), build_const(12)},
            .group = group,
            .n_peer = n,
            .peer = keep(g, peer, (size_t)n, sizeof *peer),
        };
    }
    for (int i = 0; i < n; i++)
        post(g, peer[i], script, instance, g->p[peer[i]].n_tensor - 1,
             QUEUE_COMPUTE);
}

static struct game *new_game(const struct device_list *l, uint64_t seed)
{
    struct game *g = calloc(1, sizeof *g);

    assert_non_null(g);
    g->rng = seed;
    g->n = l->n;
    for (int d = 0; d < l->n; d++) {
        g->cpu[d] = l->dev[d].kind == DEVICE_CPU;
        g->host[d] = l->dev[d].host;
        g->p[d] = (struct program){.dev = d,
                                   .active = true,
                                   .tensor = g->tensor[d],
                                   .n_script = N_SCRIPT,
                                   .script = g->script[d],
                                   .n_group = 1 << MAX_DEV,
                                   .max = {.n_tok = TOK}};
        for (int k = 0; k < MAX_INST; k++)
            new_tensor(g, d, -1, k);
    }
    for (int c = 0; c < N_SCRIPT; c++) {
        g->n_inst[c] = 1 + below(g, MAX_INST);
        g->order = 0;
        for (int i = 0; i < MOVES; i++) {
            int move = below(g, 4), k = below(g, g->n_inst[c]);

            if (move < 2)
                compute(g, c, k);
            else if (move == 2)
                pull(g, c, k);
            else
                meet(g, c, k);
        }
        for (int d = 0; d < g->n; d++) {
            g->script[d][c].n_instance = g->n_inst[c];
            g->script[d][c].step = g->step[d][c];
        }
    }
    for (int d = 0; d < g->n; d++)
        g->p[d].n_event = g->p[d].n_tensor;
    return g;
}

static void free_game(struct game *g)
{
    arena_fini(&g->a);
    free(g);
}

/* ---- the interpreter --------------------------------------------------- */

static void run_merge(struct game *g, int d, const struct merge_item *m,
                      int64_t n)
{
    float *addend[MAX_DEV];

    for (int i = 0; i < m->n_addend; i++)
        addend[i] = g->data[m->addend[i].dev][m->addend[i].tensor];
    build_tree_sum(g->data[d][m->out], addend, m->n_addend, n);
}

static void run_kernel(struct game *g, int d, const struct step_kernel *k,
                       int64_t n)
{
    float *out = g->data[d][k->arg[0].tensor], x = k->attr->scale;
    const float *in = g->data[d][k->arg[1].tensor];

    for (int64_t i = 0; i < n; i++)
        out[i] = k->kernel == KERNEL_scale ? in[i] * x : in[n - 1 - i] + x;
}

static void interpret_step(struct game *g, int d, const struct step *st,
                           int64_t n_tok, pl_counters *c)
{
    int64_t n = n_tok * W;

    if (st->kind == STEP_KERNEL) {
        run_kernel(g, d, &st->kernel, n);
    } else if (st->kind == STEP_PULL) {
        const struct step_pull *p = &st->pull;

        memcpy(g->data[d][p->out], g->data[p->piece->src_dev][p->piece->src],
               (size_t)n * sizeof(float));
        c->copies += p->between_groups;
        c->copy_bytes += p->between_groups ? (uint64_t)n * 4 : 0;
    } else if (st->kind == STEP_MERGE) {
        run_merge(g, d, st->merge.item, n);
        c->messages += st->merge.counted;
        c->message_bytes += st->merge.counted ? (uint64_t)n * 4 + 12 : 0;
    }
}

/* All devices' steps in the total order. */
static void interpret(struct game *g, const struct device_run *run,
                      pl_counters *c)
{
    int at[MAX_DEV] = {0};

    for (;;) {
        int first = -1;

        for (int d = 0; d < g->n; d++) {
            const struct script *x = &g->script[d][run->script];

            if (at[d] < x->n_step &&
                (first < 0 ||
                 x->step[at[d]].order <
                     g->script[first][run->script].step[at[first]].order))
                first = d;
        }
        if (first < 0)
            return;
        const struct step *st =
            &g->script[first][run->script].step[at[first]++];
        if (st->instance < run->n_instance)
            interpret_step(g, first, st, run->sizes[st->instance].n_tok, c);
    }
}

/* ---- runs -------------------------------------------------------------- */

/* A run of chance; what it does not write must stay as it was. */
static void play(struct game *g, struct device_set *s, const char *what)
{
    struct device_run run = {.script = below(g, N_SCRIPT)};
    pl_counters want = {0}, before = {0}, after = {0};
    float have[TOK * W];
    pl_err err;

    run.n_instance = 1 + below(g, g->n_inst[run.script]);
    for (int k = 0; k < run.n_instance; k++)
        run.sizes[k].n_tok = run.batch[k].n_tok = below(g, TOK + 1);
    for (int d = 0; d < g->n; d++)
        for (int t = 0; t < g->p[d].n_tensor; t++) {
            for (int i = 0; i < TOK * W; i++)
                g->data[d][t][i] = test_unit(&g->rng);
            assert_int_equal(device_write(s, d, REGION_WORK,
                                          g->tensor[d][t].offset, g->data[d][t],
                                          sizeof have, NULL),
                             PL_OK);
        }
    interpret(g, &run, &want);
    device_set_counters(s, &before);
    if (device_set_run(s, &run, &err) != PL_OK)
        fail_msg("%s: %s", what, err.message);
    device_set_counters(s, &after);
    assert_int_equal(after.messages - before.messages, want.messages);
    assert_int_equal(after.message_bytes - before.message_bytes,
                     want.message_bytes);
    assert_int_equal(after.copies - before.copies, want.copies);
    assert_int_equal(after.copy_bytes - before.copy_bytes, want.copy_bytes);
    for (int d = 0; d < g->n; d++)
        for (int t = 0; t < g->p[d].n_tensor; t++) {
            assert_int_equal(device_read(s, d, REGION_WORK,
                                         g->tensor[d][t].offset, have,
                                         sizeof have, NULL),
                             PL_OK);
            if (memcmp(have, g->data[d][t], sizeof have) != 0)
                fail_msg("%s, script %d, %d of %d micro-batches: tensor %d of "
                         "device %d is wrong",
                         what, run.script, run.n_instance,
                         g->n_inst[run.script], t, d);
        }
}

struct setting {
    const char *spec;
    int n_thread, n_host; /* threads of the host; 0: none */
    bool no_pin, guard;
};

static void play_setting(const struct setting *x, int n_game)
{
    uint64_t rng = test_seed();

    for (int i = 0; i < n_game; i++) {
        uint64_t seed = test_random(&rng);
        struct device_options opt = {.family = CPU_GENERIC,
                                     .sim_seed = seed,
                                     .no_pin = x->no_pin,
                                     .guard = x->guard,
                                     .trace = i % 2 == 0};
        struct device_list l;
        struct device_set *s;
        struct game *g;
        char what[96];
        pl_err err;

        assert_int_equal(device_parse(&l, x->spec, x->n_thread, NULL), PL_OK);
        if (x->n_host > 0)
            build_add_host(&l, x->n_host, i % 3 > 0);
        s = build_set_of(&l, &opt);
        g = new_game(&l, seed);
        snprintf(what, sizeof what, "%s and %d host threads, seed %llu",
                 x->spec, x->n_host, (unsigned long long)seed);
        if (device_set_load(s, g->p, &err) != PL_OK)
            fail_msg("%s: %s", what, err.message);
        for (int k = 0; k < 4; k++)
            play(g, s, what);
        device_set_free(s);
        device_list_free(&l);
        free_game(g);
    }
}

static void device_groups_of_cpus_meet_for_themselves(void **state)
{
    static const struct setting x[] = {
        {"cpu*3", 1, 0, true, false},
        {"cpu*5", 1, 0, true, false},
        {"cpu*3", 2, 0, true, false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof x / sizeof x[0]; i++)
        play_setting(&x[i], 5);
}

static void device_groups_of_all_kinds_agree(void **state)
{
    static const struct setting x[] = {
        {"sim*3", 1, 0, false, false},
        {"cpu*2,sim*2", 1, 0, true, false},
        {"sim:1GB/s:2us*2,cpu*1", 2, 0, true, false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof x / sizeof x[0]; i++)
        play_setting(&x[i], 4);
}

static void device_host_takes_turns_with_the_others(void **state)
{
    static const struct setting x[] = {
        {"cpu*2", 1, 2, false, false}, {"cpu*2", 1, 1, true, false},
        {"cpu*1", 2, 3, true, false},  {"cpu*3", 2, 2, false, false},
        {"sim*2", 1, 2, true, false},  {"cpu*2,sim*2", 1, 2, false, false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof x / sizeof x[0]; i++)
        play_setting(&x[i], 4);
}

static void device_groups_keep_to_their_memory(void **state)
{
    static const struct setting x[] = {
        {"cpu*3", 1, 2, false, true},
        {"cpu*2,sim*2", 2, 1, true, true},
    };

    (void)state;
    for (size_t i = 0; i < sizeof x / sizeof x[0]; i++)
        play_setting(&x[i], 2);
}

/* ---- who sits where ---------------------------------------------------- */

static int members(const char *spec, int n_thread, int n_host, bool pinned,
                   bool no_pin)
{
    struct device_options opt = {.family = CPU_GENERIC, .no_pin = no_pin};
    struct device_list l;
    struct device_set *s;
    int n;

    assert_int_equal(device_parse(&l, spec, n_thread, NULL), PL_OK);
    for (int i = 0; i < l.n; i++) { /* cores of a machine that is not here */
        l.dev[i].n_core = 1;
        l.dev[i].core[0] = 2 * i;
    }
    build_add_host(&l, n_host, pinned);
    s = build_set_of(&l, &opt);
    n = s->n_member;
    for (int d = 0; d < l.n - 1; d++)
        assert_int_equal(device_seats_share(s, d, l.n - 1),
                         l.dev[d].kind == DEVICE_CPU && d < n_host);
    device_set_free(s);
    device_list_free(&l);
    return n;
}

static void device_host_threads_sit_on_their_cores(void **state)
{
    (void)state;
    assert_int_equal(members("cpu*2", 1, 2, true, false), 2);
    assert_int_equal(members("cpu*2", 1, 2, false, false), 2);
    assert_int_equal(members("cpu*2", 1, 2, true, true), 2);
    assert_int_equal(members("cpu*3", 1, 2, true, false), 3);
    assert_int_equal(members("cpu*2", 1, 5, true, false), 5);
    assert_int_equal(members("cpu*2,sim", 1, 2, true, false), 3);
    assert_int_equal(members("sim*2", 1, 2, false, false), 3);
}

/* A host over all of the machine holds what the cpu devices hold too. */
static void device_host_memory_limit_is_named(void **state)
{
    struct device_options opt = {.family = CPU_GENERIC, .no_pin = true};
    struct build *b = build_new(2, 1);
    struct program *p;
    struct device_list l;
    struct device_set *s;
    pl_err err;

    (void)state;
    assert_int_equal(device_parse(&l, "cpu*1", 1, NULL), PL_OK);
    build_add_host(&l, 1, false);
    l.dev[0].memory_bytes = 0;
    l.dev[1].memory_bytes = (uint64_t)1 << 30;
    s = build_set_of(&l, &opt);
    b[0].p.bytes[REGION_WEIGHTS] = (size_t)3 << 28;
    b[1].p.bytes[REGION_WEIGHTS] = (size_t)1 << 29;
    p = build_programs(b, 2);
    assert_int_equal(device_set_load(s, p, &err), PL_NO_DEVICE_MEMORY);
    assert_non_null(strstr(err.message, "host needs "));
    assert_non_null(strstr(err.message, "beside others"));
    device_set_free(s);
    device_list_free(&l);
    free(p);
    free(b);
}

/* ---- what is refused --------------------------------------------------- */

enum wrong {
    RIGHT,
    ORDER_FALLS,
    WAITS_FORWARD,
    WAITS_FOR_ABSENT,
    WAITS_FOR_NOBODY,
    POSTS_TWICE,
    NO_INSTANCE,
    OTHER_INSTANCE,
    OTHER_SCRIPTS,
    NO_GROUP,
    OTHER_PEERS,
    OTHER_ORDER,
    NOT_AMONG,
    READS_OUTSIDER,
    MEETS_SIM,
    MEETS_ITSELF,
    N_WRONG
};

static const char *const says[N_WRONG] = {
    [ORDER_FALLS] = "order of all steps",
    [WAITS_FORWARD] = "post comes later",
    [WAITS_FOR_ABSENT] = "may be absent",
    [WAITS_FOR_NOBODY] = "nobody posts",
    [POSTS_TWICE] = "posted before",
    [NO_INSTANCE] = "micro-batch that the script does not have",
    [OTHER_INSTANCE] = "of another micro-batch",
    [OTHER_SCRIPTS] = "another number of micro-batches",
    [NO_GROUP] = "group that is not there",
    [OTHER_PEERS] = "does not meet it",
    [OTHER_ORDER] = "does not meet it",
    [NOT_AMONG] = "not among",
    [READS_OUTSIDER] = "without a meeting",
    [MEETS_SIM] = "share no memory",
    [MEETS_ITSELF] = "threads are its own",
};

/* cpu0, cpu1, sim2, host3: 0 computes and posts, 1 waits and computes, they
 * meet. Step numbers: 0 op, 1 post | 0 wait, 1 op; then the meeting. */
static void device_load_refuses_a_wrong_order(void **state)
{
    struct device_options opt = {.family = CPU_GENERIC, .no_pin = true};
    struct device_list l;
    struct device_set *s;

    (void)state;
    assert_int_equal(device_parse(&l, "cpu*2,sim", 1, NULL), PL_OK);
    build_add_host(&l, 2, false);
    s = build_set_of(&l, &opt);
    for (int wrong = 0; wrong < N_WRONG; wrong++) {
        struct build *b = build_new(4, 1);
        int peer[2] = {0, 1}, other[2] = {0, 2}, itself[2] = {0, 3};
        struct copy_piece piece = build_rows(1, 0, 0, 4, 0, 4, 4);
        struct merge_item item = {.out = 1, .n_piece = 1, .piece = &piece};
        struct step *st[3];
        struct program *p;
        pl_err err;
        pl_status end;

        for (int d = 0; d < 4; d++) {
            b[d].script.n_instance = 2;
            build_tensor(&b[d], 1);
            build_tensor(&b[d], 1);
        }
        build_op(&b[0], KERNEL_scale, 1, 0, 1);
        build_post(&b[0], QUEUE_COMPUTE, 0);
        b[0].p.n_event = 2;
        build_wait(&b[1], QUEUE_COMPUTE, 0, 0);
        build_op(&b[1], KERNEL_scale, 1, 0, 1);
        for (int d = 0; d < 2; d++) {
            st[d] = build_step(&b[d], STEP_MERGE);
            st[d]->merge =
                (struct step_merge){.meet = true, .n_peer = 2, .peer = peer};
        }
        st[0]->merge.n_item = 1;
        st[0]->merge.item = &item;
        st[2] = build_step(&b[3], STEP_MERGE); /* the host's */
        if (wrong == POSTS_TWICE)
            build_post(&b[0], QUEUE_COPY, 0);
        p = build_programs(b, 4);
        if (wrong == ORDER_FALLS)
            b[0].step[1].order = b[0].step[0].order;
        if (wrong == WAITS_FORWARD)
            b[1].step[0].order = b[0].step[1].order - 1;
        if (wrong == WAITS_FOR_NOBODY)
            b[1].step[0].event.event = 1;
        if (wrong == WAITS_FOR_ABSENT)
            b[0].step[1].instance = 1;
        if (wrong == NO_INSTANCE)
            b[0].step[0].instance = 2;
        if (wrong == OTHER_INSTANCE)
            b[1].tensor[0].instance = 1;
        if (wrong == OTHER_SCRIPTS)
            b[2].script.n_instance = 1;
        if (wrong == NO_GROUP)
            st[0]->merge.group = st[1]->merge.group = 1;
        if (wrong == OTHER_PEERS)
            st[1]->merge.n_peer = 1;
        if (wrong == OTHER_ORDER)
            st[1]->order++;
        if (wrong == NOT_AMONG) {
            st[0]->merge.n_peer = st[1]->merge.n_peer = 1;
            st[0]->merge.peer = st[1]->merge.peer = peer + 1;
        }
        if (wrong == READS_OUTSIDER)
            piece.src_dev = 2;
        if (wrong == MEETS_SIM)
            st[0]->merge.peer = other;
        if (wrong == MEETS_ITSELF)
            st[0]->merge.peer = itself;
        end = device_set_load(s, p, &err);
        if (wrong == RIGHT)
            assert_int_equal(end, PL_OK);
        else if (end != PL_BAD_ARGUMENT || !strstr(err.message, says[wrong]))
            fail_msg("case %d: \"%s\" does not say \"%s\"", wrong, err.message,
                     says[wrong]);
        free(p);
        free(b);
    }
    device_set_free(s);
    device_list_free(&l);
}

static void device_run_refuses_other_scripts(void **state)
{
    struct device_set *s = build_set("cpu*1", 1, 0);
    struct build *b = build_new(1, 4);
    struct program *p;
    struct device_run run = build_run(1);

    (void)state;
    b->script.n_instance = 2;
    p = build_programs(b, 1);
    LOAD_OK(s, p);
    run.n_instance = 2;
    RUN_OK(s, &run);
    run.sizes[1].n_tok = 5;
    assert_int_equal(device_set_run(s, &run, NULL), PL_BAD_ARGUMENT);
    run.n_instance = 1;
    RUN_OK(s, &run);
    run.script = 1;
    assert_int_equal(device_set_run(s, &run, NULL), PL_BAD_ARGUMENT);
    run.script = 0;
    run.n_instance = 3;
    assert_int_equal(device_set_run(s, &run, NULL), PL_BAD_ARGUMENT);
    run.n_instance = 0;
    assert_int_equal(device_set_run(s, &run, NULL), PL_BAD_ARGUMENT);
    device_set_free(s);
    free(p);
    free(b);
}

/* ---- what fails -------------------------------------------------------- */

/* Whoever is lost, wherever: the run fails on all, the next one is right. */
static void device_loss_in_a_group_reaches_all(void **state)
{
    struct device_options opt = {.family = CPU_GENERIC, .no_pin = true};
    uint64_t seed = test_seed();
    struct device_run run = {.n_instance = 1};
    struct device_list l;
    struct device_set *s;
    struct game *g;

    (void)state;
    assert_int_equal(device_parse(&l, "cpu*2,sim", 2, NULL), PL_OK);
    build_add_host(&l, 3, false);
    s = build_set_of(&l, &opt);
    g = new_game(&l, seed);
    LOAD_OK(s, g->p);
    for (int d = 0; d < g->n; d++)
        for (int i = 0; i < g->script[d][0].n_step; i += 31) {
            if (g->step[d][0][i].instance > 0)
                continue;
            s->dev[d].fail_step = i;
            assert_int_equal(device_set_run(s, &run, NULL), PL_DEVICE);
            s->dev[d].fail_step = -1;
            play(g, s, "after a loss");
        }
    device_set_free(s);
    device_list_free(&l);
    free_game(g);
}

/* Creating and loading, guarded and traced, the n-th allocation failing. */
static void device_groups_survive_failed_allocations(void **state)
{
    struct device_options opt = {
        .family = CPU_GENERIC, .no_pin = true, .guard = true, .trace = true};
    struct device_list l;
    struct game *g;

    (void)state;
    assert_int_equal(device_parse(&l, "cpu,sim", 1, NULL), PL_OK);
    build_add_host(&l, 2, false);
    g = new_game(&l, test_seed());
    build_survives(&l, &opt, g->p);
    device_list_free(&l);
    free_game(g);
}

int test_device_groups(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(device_host_threads_sit_on_their_cores),
        cmocka_unit_test(device_groups_of_cpus_meet_for_themselves),
        cmocka_unit_test(device_groups_of_all_kinds_agree),
        cmocka_unit_test(device_host_takes_turns_with_the_others),
        cmocka_unit_test(device_groups_keep_to_their_memory),
        cmocka_unit_test(device_host_memory_limit_is_named),
        cmocka_unit_test(device_load_refuses_a_wrong_order),
        cmocka_unit_test(device_run_refuses_other_scripts),
        cmocka_unit_test(device_loss_in_a_group_reaches_all),
        cmocka_unit_test(device_groups_survive_failed_allocations),
    };

    return TEST_RUN(tests);
}
