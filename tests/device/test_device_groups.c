/* Random programs of several groups give what an interpreter of the total order
 * gives. Cpu and sim devices and a host on the same cores run variants of
 * several micro-batches, with barriers of any subset, pulls from open memory,
 * pushes into inboxes, and instructions that predicates skip. */
#include "base/err.h"
#include "lib/program_build.h"

#include "device/cpu/cpu_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_DEV = 6,
    MAX_TENSOR = 400,
    MAX_STEP = 3200,
    MAX_POST = 400,
    N_SCRIPT = 2,
    MAX_INST = 3,
    W = 24,
    TOK = 4,
    MOVES = 60, /* moves of values in a variant */
};

/* The predicate of an instruction, on the sizes of its micro-batch. */
static const struct guard {
    bool out;
    int64_t least, most;
} guards[] = {
    {false, 0, 0}, /* a predicate that always holds */
    {false, 0, 2},        {false, 3, INT64_MAX}, {true, 0, 1},
    {true, 2, INT64_MAX}, {true, 1, INT64_MAX},
};
enum { ALWAYS, N_GUARD = sizeof guards / sizeof guards[0] };

/* The conditions under which an instruction is executed: its variant,
 * micro-batch and predicate. */
struct scope {
    int script, micro, guard;
};

/* The source of a value decides which device to wait for before reading it. */
struct value {
    /* conditions of the instruction that makes the value; script -1 if it
     * exists from the start */
    struct scope scope;
    struct insn_event event;
    enum queue queue; /* queue of the instruction that posts the event */
};

/* POSTs of a queue of a device in a variant; its other queue knows of the first
 * `known`. */
struct posts {
    int n, known;
    struct {
        struct scope scope;
        int event;
    } at[MAX_POST];
};

struct game {
    uint64_t rng;
    int n, order;
    int n_inst[N_SCRIPT];
    const struct device_list *l; /* the devices, borrowed */
    struct program p[MAX_DEV];
    struct variant variant[MAX_DEV][N_SCRIPT];
    struct insn insn[MAX_DEV][N_SCRIPT][MAX_STEP];
    struct prog_tensor tensor[MAX_DEV][MAX_TENSOR];
    struct value value[MAX_DEV][MAX_TENSOR];
    /* POSTs of the variant that is being drawn, by device and queue */
    struct posts posts[MAX_DEV][QUEUE_COUNT];
    /* values of the tensors as interpret() computes them */
    float data[MAX_DEV][MAX_TENSOR][TOK * W];
    /* numbers of pushes and of predicates that were drawn */
    int n_push, n_guard;
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

static int new_tensor(struct game *g, int d, struct scope x, enum region r)
{
    struct program *p = &g->p[d];
    size_t bytes = TOK * W * sizeof(float);
    int t = p->n_tensor++;

    assert_true(t < MAX_TENSOR);
    g->tensor[d][t] = (struct prog_tensor){
        .format = PL_F32,
        .n_dim = 2,
        .dim = {build_per_tok(1), build_const(W)},
        .region = r,
        .offset = p->bytes[r],
        .bytes = bytes,
        .micro = x.micro,
    };
    p->bytes[r] += bytes;
    g->value[d][t].scope = x;
    return t;
}

static struct insn *new_insn(struct game *g, int d, struct scope x,
                             enum insn_kind kind, enum queue q)
{
    struct variant *c = &g->variant[d][x.script];
    struct insn *st = &g->insn[d][x.script][c->n_insn++];

    assert_true(c->n_insn <= MAX_STEP);
    *st = (struct insn){
        .kind = kind,
        .queue = q,
        .order = g->order++,
        .micro = x.micro,
        .node = -1,
        .pred_out = guards[x.guard].out,
        .min_rows = guards[x.guard].least,
        .max_rows = guards[x.guard].most,
    };
    return st;
}

static void new_wait(struct game *g, int d, struct scope x, enum queue q,
                     struct insn_event e)
{
    new_insn(g, d, x, INSN_WAIT, q)->event = e;
}

/* Makes queue q of device d post that value t of device `of` is available. */
static void post(struct game *g, int d, struct scope x, enum queue q, int of,
                 int t)
{
    struct posts *p = &g->posts[d][q];
    struct insn_event e = {d, g->p[d].n_event++};

    assert_true(p->n < MAX_POST);
    p->at[p->n].scope = x;
    p->at[p->n++].event = e.event;
    new_insn(g, d, x, INSN_POST, q)->event = e;
    g->value[of][t].event = e;
    g->value[of][t].queue = q;
}

/* Follows the queue-order rule for queue q of a device with two queues: before
 * it waits for others, it waits for the last POSTs of the other queue, under
 * each predicate. */
static void know_all(struct game *g, int d, int script, enum queue q)
{
    struct posts *p = &g->posts[d][!q];
    bool known[MAX_INST][N_GUARD] = {{false}};

    if (g->l->dev[d].one_queue)
        return;
    for (int i = p->n - 1; i >= p->known; i--) {
        struct scope x = p->at[i].scope;

        assert_int_equal(x.script, script);
        if (!known[x.micro][ALWAYS] && !known[x.micro][x.guard])
            new_wait(g, d, x, q, (struct insn_event){d, p->at[i].event});
        known[x.micro][x.guard] = true;
    }
    p->known = p->n;
}

/* Makes queue q of device d wait until value t of device `from` is
 * available. */
static void wait_for(struct game *g, int d, struct scope x, enum queue q,
                     int from, int t)
{
    const struct value *v = &g->value[from][t];

    if (v->scope.script < 0 || (v->event.dev == d && v->queue == q))
        return;
    if (v->event.dev != d)
        know_all(g, d, x.script, q);
    new_wait(g, d, x, q, v->event);
}

/* Returns a value that exists in every step in which the scope is executed. */
static int pick(struct game *g, int d, struct scope x)
{
    for (;;) {
        int t = below(g, g->p[d].n_tensor);
        const struct scope *v = &g->value[d][t].scope;

        if (v->micro == x.micro && (v->script < 0 || v->script == x.script) &&
            (v->guard == ALWAYS || v->guard == x.guard))
            return t;
    }
}

/* Returns a value as pick() does, after a wait of the compute queue for it. */
static int pick_own(struct game *g, int d, struct scope x)
{
    int t = pick(g, d, x);

    wait_for(g, d, x, QUEUE_COMPUTE, d, t);
    return t;
}

static void compute(struct game *g, struct scope x)
{
    int d = below(g, g->n), in = pick_own(g, d, x);
    int out = new_tensor(g, d, x, REGION_WORK);
    struct insn *st = new_insn(g, d, x, INSN_KERNEL, QUEUE_COMPUTE);
    struct graph_attr attr = {0};

    st->kernel = (struct insn_kernel){
        /* a GPU's driver lacks the toy kernels, so it scales */
        .kernel = below(g, 2) || g->l->dev[d].ops->driver ? KERNEL_scale
                                                          : KERNEL_contiguous,
        .n_arg = 2,
        .arg = {{out, ACCESS_WRITE}, {in, ACCESS_READ}},
    };
    attr.scale = 0.5f + (float)below(g, 100) / 100;
    st->kernel.attr = keep(g, &attr, 1, sizeof attr);
    post(g, d, x, QUEUE_COMPUTE, d, out);
}

/* Returns true if device d may read the other's memory. */
static bool is_open(const struct game *g, int d, int from)
{
    const struct device_desc *a = &g->l->dev[d], *b = &g->l->dev[from];

    return b->memory >= 0 && (b->memory == a->memory || a->reads);
}

/* Transfers a value of device `from` to device `to`, by a pull or a push. */
static void carry(struct game *g, struct scope x)
{
    int to = below(g, g->n), from = below(g, g->n), in, out, d;
    enum queue q = below(g, 4) ? QUEUE_COPY : QUEUE_COMPUTE;
    struct copy_desc piece;
    struct insn *st;
    bool pulls;

    if (to == from)
        return;
    pulls = is_open(g, to, from) && below(g, 2);
    d = pulls ? to : from;
    in = pick(g, from, x);
    out = new_tensor(g, to, x, pulls ? REGION_WORK : REGION_INBOX);
    wait_for(g, d, x, q, from, in);
    piece = build_rows(from, in, 0, W * 4, 0, W * 4, W * 4);
    st = new_insn(g, d, x, pulls ? INSN_PULL : INSN_PUSH, q);
    if (pulls)
        st->pull = (struct insn_pull){
            .out = out,
            .n_piece = 1,
            .piece = keep(g, &piece, 1, sizeof piece),
            .between_groups = below(g, 2),
        };
    else
        st->push = (struct insn_push){
            .n_to = 1,
            .to = keep(g, &(struct push_to){to, out, 0}, 1,
                       sizeof(struct push_to)),
            .n_piece = 1,
            .piece = keep(g, &piece, 1, sizeof piece),
            .between_groups = below(g, 2),
        };
    g->n_push += !pulls;
    post(g, d, x, q, to, out);
}

/* Sums a value of each of some cpu devices, which share no threads. */
static void meet(struct game *g, struct scope x)
{
    int peer[MAX_DEV], n = 0, group = 0, order;
    struct merge_addend a[MAX_DEV];
    struct copy_desc piece = build_rows(0, 0, 0, W * 4, 0, W * 4, W * 4);
    bool host = below(g, 4) == 0;
    int depth;

    for (int d = 0; d < g->n; d++)
        if (g->l->dev[d].memory >= 0 && g->l->dev[d].host == host &&
            below(g, 3)) {
            a[n] = (struct merge_addend){.dev = d, .tensor = pick_own(g, d, x)};
            peer[n++] = d;
            group |= 1 << d;
        }
    if (n == 0)
        return;
    depth = build_tree(a, n);
    order = g->order++;
    for (int i = 0; i < n; i++) {
        struct insn *st = new_insn(g, peer[i], x, INSN_MERGE, QUEUE_COMPUTE);
        struct merge_item m = {
            .reduce = true,
            .out = new_tensor(g, peer[i], x, REGION_WORK),
            .n_piece = 1,
            .piece = keep(g, &piece, 1, sizeof piece),
            .n_addend = n,
            .addend = keep(g, a, (size_t)n, sizeof *a),
            .depth = depth,
        };

        st->order = order;
        st->merge = (struct insn_merge){
            .n_item = 1,
            .item = keep(g, &m, 1, sizeof m),
            .barrier = true,
            .collective = true,
            .counted = i == 0,
            .collective_bytes = {build_per_tok(W * 4), build_const(12)},
            .group = group,
            .n_peer = n,
            .peer = keep(g, peer, (size_t)n, sizeof *peer),
        };
    }
    for (int i = 0; i < n; i++)
        post(g, peer[i], x, QUEUE_COMPUTE, peer[i], g->p[peer[i]].n_tensor - 1);
}

static void new_script(struct game *g, int c)
{
    g->n_inst[c] = 1 + below(g, MAX_INST);
    g->order = 0;
    memset(g->posts, 0, sizeof g->posts);
    for (int i = 0; i < MOVES; i++) {
        int move = below(g, 4);
        struct scope x = {c, below(g, g->n_inst[c]),
                          below(g, 3) ? ALWAYS : below(g, N_GUARD)};

        g->n_guard += x.guard != ALWAYS;
        if (move < 2)
            compute(g, x);
        else if (move == 2)
            carry(g, x);
        else
            meet(g, x);
    }
    for (int d = 0; d < g->n; d++) {
        g->variant[d][c].n_micro = g->n_inst[c];
        g->variant[d][c].insn = g->insn[d][c];
    }
}

/* Draws random programs for the devices of the list, which is borrowed. */
static struct game *new_game(const struct device_list *l, uint64_t seed)
{
    struct game *g = test_need(1, sizeof *g);

    g->rng = seed;
    g->n = l->n;
    g->l = l;
    for (int d = 0; d < l->n; d++) {
        g->p[d] = (struct program){.dev = d,
                                   .active = true,
                                   .tensor = g->tensor[d],
                                   .n_variant = N_SCRIPT,
                                   .variant = g->variant[d],
                                   .n_group = 1 << MAX_DEV,
                                   .max = {.n_tok = TOK, .n_out = TOK}};
        for (int k = 0; k < MAX_INST; k++)
            new_tensor(g, d, (struct scope){-1, k, ALWAYS},
                       k % 2 ? REGION_INBOX : REGION_WORK);
    }
    for (int c = 0; c < N_SCRIPT; c++)
        new_script(g, c);
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

static void run_kernel(struct game *g, int d, const struct insn_kernel *k,
                       int64_t n)
{
    float *out = g->data[d][k->arg[0].tensor], x = k->attr->scale;
    const float *in = g->data[d][k->arg[1].tensor];

    for (int64_t i = 0; i < n; i++)
        out[i] = k->kernel == KERNEL_scale ? in[i] * x : in[n - 1 - i] + x;
}

static void run_copy(struct game *g, int d, int out, const struct copy_desc *p,
                     bool counts, int64_t n, pl_counters *c)
{
    memcpy(g->data[d][out], g->data[p->src_dev][p->src],
           (size_t)n * sizeof(float));
    c->copies += counts;
    c->copy_bytes += counts ? (uint64_t)n * 4 : 0;
}

static void interpret_step(struct game *g, int d, const struct insn *st,
                           int64_t n_tok, pl_counters *c)
{
    const struct insn_pull *x = &st->pull;
    const struct insn_push *y = &st->push;
    int64_t n = n_tok * W;

    if (st->kind == INSN_KERNEL) {
        run_kernel(g, d, &st->kernel, n);
    } else if (st->kind == INSN_PULL) {
        run_copy(g, d, x->out, x->piece, x->between_groups, n, c);
    } else if (st->kind == INSN_PUSH) {
        run_copy(g, y->to->dev, y->to->out, y->piece, y->between_groups, n, c);
    } else if (st->kind == INSN_MERGE) {
        run_merge(g, d, st->merge.item, n);
        c->messages += st->merge.counted;
        c->message_bytes += st->merge.counted ? (uint64_t)n * 4 + 12 : 0;
    }
}

/* Executes the instructions of all devices one by one in the total order, as
 * the result that devices must equal. */
static void interpret(struct game *g, const struct device_run *run,
                      pl_counters *c)
{
    int at[MAX_DEV] = {0};

    for (;;) {
        const struct insn *st;
        int first = -1;

        for (int d = 0; d < g->n; d++) {
            const struct variant *x = &g->variant[d][run->variant];

            if (at[d] < x->n_insn &&
                (first < 0 ||
                 x->insn[at[d]].order <
                     g->variant[first][run->variant].insn[at[first]].order))
                first = d;
        }
        if (first < 0)
            return;
        st = &g->variant[first][run->variant].insn[at[first]++];
        if (insn_enabled(st, run->n_micro, run->sizes))
            interpret_step(g, first, st, run->sizes[st->micro].n_tok, c);
    }
}

/* ---- steps ------------------------------------------------------------- */

/* Runs a random step. Memory that it does not write must not change. */
static void play(struct game *g, struct device_set *s, const char *what)
{
    struct device_run run = {.variant = below(g, N_SCRIPT)};
    pl_counters want = {0}, before = {0}, after = {0};
    float have[TOK * W];
    pl_err err;

    run.n_micro = 1 + below(g, g->n_inst[run.variant]);
    for (int k = 0; k < run.n_micro; k++) {
        run.sizes[k].n_tok = below(g, TOK + 1);
        run.sizes[k].n_out = below(g, TOK + 1);
    }
    for (int d = 0; d < g->n; d++)
        for (int t = 0; t < g->p[d].n_tensor; t++) {
            for (int i = 0; i < TOK * W; i++)
                g->data[d][t][i] = test_unit(&g->rng);
            assert_int_equal(device_write(s, d, g->tensor[d][t].region,
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
            assert_int_equal(device_read(s, d, g->tensor[d][t].region,
                                         g->tensor[d][t].offset, have,
                                         sizeof have, NULL),
                             PL_OK);
            if (memcmp(have, g->data[d][t], sizeof have) != 0)
                fail_msg("%s, variant %d, %d of %d micro-batches: tensor %d of "
                         "device %d is wrong",
                         what, run.variant, run.n_micro, g->n_inst[run.variant],
                         t, d);
        }
}

struct setting {
    const char *spec;
    /* threads of each cpu device, and of the host device; n_host 0 for no
     * host */
    int n_thread, n_host;
    bool no_pin, guard, merge;
};

static void play_setting(const struct setting *x, int n_game)
{
    uint64_t rng = test_seed();
    int n_push = 0, n_guard = 0;

    for (int i = 0; i < n_game; i++) {
        uint64_t seed = test_random(&rng);
        struct device_options opt = {.kernel_set = KERNEL_SET_GENERIC,
                                     .sim_seed = seed,
                                     .no_pin = x->no_pin,
                                     .guard = x->guard,
                                     .sim_merge = x->merge,
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
        n_push += g->n_push;
        n_guard += g->n_guard;
        device_set_free(s);
        device_list_free(&l);
        free_game(g);
    }
    assert_true(n_push > 0 && n_guard > 0);
}

TEST(device_groups_of_cpus_meet_for_themselves)
{
    static const struct setting x[] = {
        {"cpu*3", 1, 0, true, false, false},
        {"cpu*5", 1, 0, true, false, false},
        {"cpu*3", 2, 0, true, false, false},
    };

    for (size_t i = 0; i < sizeof x / sizeof x[0]; i++)
        play_setting(&x[i], 5);
}

TEST(device_groups_of_all_kinds_agree)
{
    static const struct setting x[] = {
        {"sim*3", 1, 0, false, false, false},
        {"cpu*2,sim*2", 1, 0, true, false, false},
        {"sim:1GB/s:2us*2,cpu*1", 2, 0, true, false, false},
        {"proc*3", 1, 0, false, false, false},
        {"cpu*1,sim,proc*2", 2, 0, false, false, false},
        {"emu*3", 1, 0, false, false, false},
        {"cpu*2,emu*2", 1, 0, true, false, false},
        {"emu,sim,bare,cpu*1", 1, 0, true, false, false},
    };

    for (size_t i = 0; i < sizeof x / sizeof x[0]; i++)
        play_setting(&x[i], 4);
}

TEST(device_groups_whose_queues_are_one_agree)
{
    static const struct setting x[] = {
        {.spec = "sim*3", .n_thread = 1, .merge = true},
        {.spec = "cpu*2,sim*2", .n_thread = 1, .no_pin = true, .merge = true},
        {.spec = "sim:1GB/s:2us*2,cpu*1",
         .n_thread = 2,
         .no_pin = true,
         .merge = true},
        {.spec = "sim*2",
         .n_thread = 1,
         .n_host = 2,
         .no_pin = true,
         .guard = true,
         .merge = true},
    };

    for (size_t i = 0; i < sizeof x / sizeof x[0]; i++)
        play_setting(&x[i], 6);
}

TEST(device_host_takes_turns_with_the_others)
{
    static const struct setting x[] = {
        {"cpu*2", 1, 2, false, false, false},
        {"cpu*2", 1, 1, true, false, false},
        {"cpu*1", 2, 3, true, false, false},
        {"cpu*3", 2, 2, false, false, false},
        {"sim*2", 1, 2, true, false, false},
        {"cpu*2,sim*2", 1, 2, false, false, false},
        {"proc*2", 1, 2, false, false, false},
        {"emu*2", 1, 2, false, false, false},
        {"bare,cpu*1", 1, 2, false, false, false},
    };

    for (size_t i = 0; i < sizeof x / sizeof x[0]; i++)
        play_setting(&x[i], 4);
}

TEST(device_groups_keep_to_their_memory)
{
    static const struct setting x[] = {
        {"cpu*3", 1, 2, false, true, false},
        {"cpu*2,sim*2", 2, 1, true, true, false},
        {"cpu*1,proc*1", 1, 1, true, true, false},
        {"cpu*1,emu*2", 1, 1, true, true, false},
        {"emu,bare", 1, 1, true, true, false},
    };

    for (size_t i = 0; i < sizeof x / sizeof x[0]; i++)
        play_setting(&x[i], 2);
}

/* ---- pinning ----------------------------------------------------------- */

static int members(const char *spec, int n_thread, int n_host, bool pinned,
                   bool no_pin)
{
    struct device_options opt = {.kernel_set = KERNEL_SET_GENERIC,
                                 .no_pin = no_pin};
    struct device_list l;
    struct device_set *s;
    int n;

    assert_int_equal(device_parse(&l, spec, n_thread, NULL), PL_OK);
    /* numbers of cores that this machine may not have */
    for (int i = 0; i < l.n; i++) {
        l.dev[i].n_core = 1;
        l.dev[i].core[0] = 2 * i;
    }
    build_add_host(&l, n_host, pinned);
    s = build_set_of(&l, &opt);
    n = ((const struct cpu_backend *)s->backend[0].own)->n_thread;
    for (int d = 0; d < l.n - 1; d++)
        assert_int_equal(cpu_thread_map_share(&s->backend[0], d, l.n - 1),
                         l.dev[d].on_cores && d < n_host);
    device_set_free(s);
    device_list_free(&l);
    return n;
}

TEST(device_host_threads_sit_on_their_cores)
{
    assert_int_equal(members("cpu*2", 1, 2, true, false), 2);
    assert_int_equal(members("cpu*2", 1, 2, false, false), 2);
    assert_int_equal(members("cpu*2", 1, 2, true, true), 2);
    assert_int_equal(members("cpu*3", 1, 2, true, false), 3);
    assert_int_equal(members("cpu*2", 1, 5, true, false), 5);
    assert_int_equal(members("cpu*2,sim", 1, 2, true, false), 2);
    assert_int_equal(members("sim*2", 1, 2, false, false), 2);
}

/* A host that spans the machine counts the memory of the cpu devices too. */
TEST(device_host_memory_limit_is_named)
{
    struct device_options opt = {.kernel_set = KERNEL_SET_GENERIC,
                                 .no_pin = true};
    struct device_list l;
    struct device_set *s;
    struct arena a = {0};
    pl_err err;

    assert_int_equal(device_parse(&l, "cpu*1", 1, NULL), PL_OK);
    build_add_host(&l, 1, false);
    l.dev[0].memory_bytes = l.dev[0].available_bytes = 0;
    l.dev[1].memory_bytes = (uint64_t)3 << 30;
    l.dev[1].available_bytes = (uint64_t)1 << 30;
    s = build_set_of(&l, &opt);
    assert_int_equal(device_set_load(s,
                                     build_text(&a,
                                                "programs 2\n"
                                                "device 0 weights 805306368\n"
                                                "device 1 weights 536870912\n"
                                                "variant\n",
                                                2),
                                     &err),
                     PL_NO_DEVICE_MEMORY);
    assert_non_null(strstr(err.message, "host needs "));
    assert_non_null(
        strstr(err.message, ", but 1.00 GiB of 3.00 GiB is available; "));
    assert_non_null(strstr(err.message, "shares its memory"));
    device_set_free(s);
    device_list_free(&l);
    arena_fini(&a);
}

/* ---- programs that are rejected ---------------------------------------- */

/* cpu0, cpu1, sim2, host3: 0 computes and posts, 1 waits and computes, then
 * both reach a barrier. */
static const char right[] =
    "programs 4\n"
    "max n_tok 1\n"
    "device 0 events 2 groups 1\n"
    "  %0: f32[n_tok, 1]\n"
    "  %1: f32[n_tok, 1]\n"
    "device 1 groups 1\n"
    "  %0: f32[n_tok, 1]\n"
    "  %1: f32[n_tok, 1]\n"
    "device 2\n"
    "  %0: f32[n_tok, 1]\n"
    "device 3 groups 1\n"
    "variant micro 2\n"
    "  0: %1 = scale(%0) scale=1\n"
    "  0: post 0\n"
    "  1: wait 0.0\n"
    "  1: %1 = scale(%0) scale=1\n"
    "  0: merge barrier 0, 1; %1 <- 1.%0 4 x n_tok(4, 4)\n"
    "  1: merge barrier 0, 1\n"
    "  3: merge\n";

static const struct {
    const char *was, *is, *says;
} wrong[] = {
    {"", "", NULL},
    {"0: post 0", "0 order 0: post 0", "later in the total order"},
    {"  0: post 0\n  1: wait 0.0\n", "  1: wait 0.0\n  0: post 0\n",
     "POST is later"},
    {"0: post 0", "0 micro 1: post 0", "may be absent"},
    {"wait 0.0", "wait 0.1", "never posted"},
    {"0: post 0\n", "0: post 0\n  0 copy: post 0\n", "already posted"},
    {"0: %1 =", "0 micro 2: %1 =", "micro-batch that the variant lacks"},
    {"device 1 groups 1\n  %0: f32[n_tok, 1]",
     "device 1 groups 1\n  %0: f32[n_tok, 1] micro 1",
     "of another micro-batch"},
    {"0: merge barrier 0, 1", "0: merge barrier 0, 1 group 1",
     "group that does not exist"},
    {"1: merge barrier 0, 1\n", "1 order 4: merge barrier 0\n",
     "a device never reaches"},
    {"1: merge barrier 0, 1\n", "1 order 5: merge barrier 0, 1\n",
     "a device never reaches"},
    {"0: merge barrier 0, 1; %1 <- 1.%0 4 x n_tok(4, 4)\n  1: merge barrier 0, "
     "1\n",
     "0: merge barrier 1\n  1: merge barrier 1\n", "not among"},
    {"<- 1.%0", "<- 2.%0", "without a barrier"},
    {"0: merge barrier 0, 1", "0: merge barrier 0, 2", "of other memory"},
    {"0: merge barrier 0, 1", "0: merge barrier 0, 3", "of other threads"},
};

TEST(device_load_refuses_a_wrong_order)
{
    struct device_options opt = {.kernel_set = KERNEL_SET_GENERIC,
                                 .no_pin = true};
    struct device_list l;
    struct device_set *s;

    assert_int_equal(device_parse(&l, "cpu*2,sim", 1, NULL), PL_OK);
    build_add_host(&l, 2, false);
    s = build_set_of(&l, &opt);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const char *at = strstr(right, wrong[i].was);
        struct arena a = {0};
        char text[1024];
        pl_status end;
        pl_err err;

        assert_non_null(at);
        snprintf(text, sizeof text, "%.*s%s%s", (int)(at - right), right,
                 wrong[i].is, at + strlen(wrong[i].was));
        end = device_set_load(s, build_text(&a, text, 4), &err);
        if (!wrong[i].says)
            assert_int_equal(end, PL_OK);
        else if (end != PL_BAD_ARGUMENT || !strstr(err.message, wrong[i].says))
            fail_msg("case %zu: \"%s\" does not say \"%s\"", i, err.message,
                     wrong[i].says);
        arena_fini(&a);
    }
    device_set_free(s);
    device_list_free(&l);
}

/* A text cannot express this: a device with another number of micro-batches. */
TEST(device_load_refuses_scripts_of_other_instances)
{
    struct device_set *s = build_set("sim*2", 0, 0);
    struct arena a = {0};
    struct program *p =
        build_text(&a, "programs 2\ndevice 0\ndevice 1\nvariant micro 2\n", 2);
    pl_err err;

    ((struct variant *)p[1].variant)->n_micro = 1;
    assert_int_equal(device_set_load(s, p, &err), PL_BAD_ARGUMENT);
    assert_non_null(strstr(err.message, "another number of micro-batches"));
    device_set_free(s);
    arena_fini(&a);
}

TEST(device_run_refuses_other_scripts)
{
    struct device_set *s = build_set("cpu*1", 1, 0);
    struct device_run run = build_run(1);
    struct arena a = {0};

    LOAD_OK(s, build_text(&a,
                          "programs 1\nmax n_tok 4\ndevice 0\n"
                          "variant micro 2\n",
                          1));
    run.n_micro = 2;
    RUN_OK(s, &run);
    run.sizes[1].n_tok = 5;
    assert_int_equal(device_set_run(s, &run, NULL), PL_BAD_ARGUMENT);
    run.n_micro = 1;
    RUN_OK(s, &run);
    run.variant = 1;
    assert_int_equal(device_set_run(s, &run, NULL), PL_BAD_ARGUMENT);
    run.variant = 0;
    run.n_micro = 3;
    assert_int_equal(device_set_run(s, &run, NULL), PL_BAD_ARGUMENT);
    run.n_micro = 0;
    assert_int_equal(device_set_run(s, &run, NULL), PL_BAD_ARGUMENT);
    device_set_free(s);
    arena_fini(&a);
}

/* ---- failures ---------------------------------------------------------- */

/* Whichever device is lost at whichever instruction, the step fails on all, and
 * the next one is right. */
TEST(device_loss_in_a_group_reaches_all)
{
    struct device_options opt = {.kernel_set = KERNEL_SET_GENERIC,
                                 .no_pin = true};
    uint64_t seed = test_seed();
    struct device_run run = {.n_micro = 1};
    struct device_list l;
    struct device_set *s;
    struct game *g;

    assert_int_equal(device_parse(&l, "cpu*1,proc*1,sim", 2, NULL), PL_OK);
    build_add_host(&l, 3, false);
    s = build_set_of(&l, &opt);
    g = new_game(&l, seed);
    LOAD_OK(s, g->p);
    for (int d = 0; d < g->n; d++)
        for (int i = 0; i < g->variant[d][0].n_insn; i += 31) {
            if (!insn_enabled(&g->insn[d][0][i], 1, run.sizes))
                continue;
            s->dev[d].fail_insn = i;
            assert_int_equal(device_set_run(s, &run, NULL), PL_DEVICE);
            s->dev[d].fail_insn = -1;
            play(g, s, "after a loss");
        }
    device_set_free(s);
    device_list_free(&l);
    free_game(g);
}

/* Creating and loading, guarded and traced, while the n-th allocation fails. */
TEST(device_groups_survive_failed_allocations)
{
    struct device_options opt = {.kernel_set = KERNEL_SET_GENERIC,
                                 .no_pin = true,
                                 .guard = true,
                                 .trace = true};
    struct device_list l;
    struct game *g;

    assert_int_equal(device_parse(&l, "cpu,sim", 1, NULL), PL_OK);
    build_add_host(&l, 2, false);
    g = new_game(&l, test_seed());
    build_survives(&l, &opt, g->p);
    device_list_free(&l);
    free_game(g);
}
