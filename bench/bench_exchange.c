/* Measures what machines cost a step, with MPI between two processes: the
 * exchange of a sum, a step without instructions, and the join. Each time of
 * plait has one of MPI alone beside it, and both are measured in turn, because
 * a shared computer changes within seconds.
 *
 *   mpirun -n 2 build/bench-exchange-openmpi [ROUNDS]
 *
 * Rows:
 *
 *   exchange N   each of two devices pushes N bytes to the other, posts, waits
 *                for the other's and adds. MPI alone: both begin to send and to
 *                receive N bytes, and test until that is done.
 *   step         a step without instructions: machine 0 orders it, machine 1
 *                tells its end. MPI alone: a message of an order's size, and
 *                one back of an end's.
 *   own part     the time that machine 0 takes to begin such a step: until the
 *                orders are handed to MPI.
 *   start, join  until MPI has started, and until the machines have joined: the
 *                first time, when they measure their network, and later.
 *
 * The first process prints medians in microseconds. */
#include <mpi.h>

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/device_spec.h"
#include "device/machines.h"
#include "device/network_open.h"
#include "device/remote/remote_inner.h"
#include "program/program_text.h"
#include "timing.h"

enum {
    N_SIZE = 3,
    REPEAT = 200, /* exchanges of a step */
    ROUNDS = 32,
    TEXT_BYTES = 1 << 20,
    TAG_BARE = 31001, /* asks the other process for a bare row: its index */
    TAG_PING = 1,
};
static const int sizes[N_SIZE] = {1024, 8192, 65536};

/* ---- the carrier --------------------------------------------------------- */

/* Passes all on to MPI's module, one call at a time, so that this program may
 * call MPI between two calls. */
struct carrier {
    struct network net, *mpi;
    bool joined; /* beats of a join that has ended are dropped */
    pthread_mutex_t lock;
    MPI_Comm comm;
    unsigned char *out, *in; /* [largest of sizes] */
};

/* Sends and receives n bytes, and waits until both are done. */
static void bare_exchange(struct carrier *c, int other, int n)
{
    MPI_Request r[2];
    int left = 2;

    MPI_Irecv(c->in, n, MPI_BYTE, other, TAG_PING, c->comm, &r[0]);
    MPI_Isend(c->out, n, MPI_BYTE, other, TAG_PING, c->comm, &r[1]);
    while (left > 0) {
        int done;

        MPI_Test(&r[2 - left], &done, MPI_STATUS_IGNORE);
        if (done)
            left--;
        else
            sched_yield();
    }
}

/* Sends an order's bytes and receives an end's, or the other way round. */
static void bare_step(struct carrier *c, int other, bool first)
{
    const int n[2] = {
        (int)(sizeof(struct remote_order) + sizeof(struct device_run)),
        (int)(sizeof(struct remote_done) + sizeof(struct remote_counts))};

    for (int i = 0; i < 2; i++) {
        bool sends = first == (i == 0);
        MPI_Request r;
        int done = 0;

        if (sends)
            MPI_Isend(c->out, n[i], MPI_BYTE, other, TAG_PING, c->comm, &r);
        else
            MPI_Irecv(c->in, n[i], MPI_BYTE, other, TAG_PING, c->comm, &r);
        while (!done) {
            MPI_Test(&r, &done, MPI_STATUS_IGNORE);
            if (!done)
                sched_yield();
        }
    }
}

/* Executes bare row `row`: an index of sizes[], or N_SIZE for a step. Returns
 * the seconds of one. */
static double bare(struct carrier *c, int other, int row, bool first)
{
    double begin;

    bare_exchange(c, other, 1); /* both are there */
    begin = bench_now();
    for (int i = 0; i < REPEAT; i++)
        if (row < N_SIZE)
            bare_exchange(c, other, sizes[row]);
        else
            bare_step(c, other, first);
    return (bench_now() - begin) / REPEAT;
}

static void *carrier_reserve(struct network *net, int to, size_t bytes)
{
    struct carrier *c = (struct carrier *)net;
    void *at;

    pthread_mutex_lock(&c->lock);
    at = c->mpi->ops->reserve(c->mpi, to, bytes);
    pthread_mutex_unlock(&c->lock);
    return at;
}

static bool carrier_send(struct network *net, int to, int tag, const void *data,
                         size_t bytes)
{
    struct carrier *c = (struct carrier *)net;
    bool ok;

    pthread_mutex_lock(&c->lock);
    ok = c->mpi->ops->send(c->mpi, to, tag, data, bytes);
    pthread_mutex_unlock(&c->lock);
    return ok;
}

/* Executes the bare rows that the first process asks for. */
static bool carrier_receive(struct network *net, int from,
                            struct network_message *out)
{
    struct carrier *c = (struct carrier *)net;
    bool any;
    int row;

    pthread_mutex_lock(&c->lock);
    any = c->mpi->ops->receive(c->mpi, from, out);
    if (any && out->tag == TAG_BARE) {
        memcpy(&row, out->data, sizeof row);
        bare(c, from, row, false);
        any = false;
    }
    any = any && (out->tag < NETWORK_BEAT || !c->joined);
    pthread_mutex_unlock(&c->lock);
    return any;
}

static const struct network_ops carrier_ops = {.name = "bench",
                                               .reserve = carrier_reserve,
                                               .send = carrier_send,
                                               .receive = carrier_receive};

static double ask_bare(struct carrier *c, int row)
{
    double s;

    pthread_mutex_lock(&c->lock);
    c->mpi->ops->send(c->mpi, 1, TAG_BARE, &row, sizeof row);
    s = bare(c, 1, row, true);
    pthread_mutex_unlock(&c->lock);
    return s;
}

/* ---- programs ------------------------------------------------------------ */

/* Writes programs of two devices and io: a variant of REPEAT exchanges for each
 * size, and one without instructions. Exchanges use two inboxes in turn: what
 * was pushed has been read before the exchange after the next one. */
static char *write_programs(void)
{
    char *text = malloc(TEXT_BYTES), *p = text;

    if (!text)
        bench_die("programs", "no memory");
    p += sprintf(p, "programs 3\nmax n_tok 1 n_out 1\n");
    for (int d = 0; d < 2; d++) {
        p += sprintf(p, "device %d events %d\n", d, REPEAT);
        for (int i = 0; i < N_SIZE; i++)
            for (int k = 0; k < 3; k++)
                p += sprintf(p, "  %%%d: f32[%d]%s\n", 3 * i + k, sizes[i] / 4,
                             k > 0 ? " inbox" : "");
    }
    p += sprintf(p, "device 2\n  %%0: f32[1]\n");
    for (int i = 0; i < N_SIZE; i++) {
        p += sprintf(p, "variant\n");
        for (int r = 0; r < REPEAT; r++) {
            int own = 3 * i, in = own + 1 + r % 2;

            for (int d = 0; d < 2; d++)
                p +=
                    sprintf(p, "  %d: push %d.%%%d <- %%%d %d\n  %d: post %d\n",
                            d, 1 - d, in, own, sizes[i], d, r);
            for (int d = 0; d < 2; d++)
                p += sprintf(p,
                             "  %d: wait %d.%d\n"
                             "  %d: merge collective; %%%d <- sum(%%%d, "
                             "%%%d+) %d\n",
                             d, 1 - d, r, d, own, d == 0 ? own : in,
                             d == 0 ? in : own, sizes[i]);
        }
    }
    sprintf(p, "variant\n");
    return text;
}

/* Makes the list of devices: one on each machine, and io. */
static void make_list(struct device_list *l, struct network *net)
{
    pl_err err = {0};

    if (device_parse(l, "cpu*2", 1, &err) != PL_OK ||
        device_list_add_io(l, false, &err) != PL_OK)
        bench_die("devices", err.message);
    l->dev[1].machine = 1;
    l->network = net;
}

static struct device_set *load(struct carrier *c, struct device_list *l,
                               const struct program *p)
{
    const struct device_options o = {.kernel_set = kernel_set_best()};
    float *zero = calloc(1, (size_t)sizes[N_SIZE - 1]);
    struct device_set *s;
    pl_err err = {0};

    make_list(l, &c->net);
    if (!zero || device_set_create(&s, l, &o, &err) != PL_OK ||
        device_set_load(s, p, &err) != PL_OK)
        bench_die("device set", err.message);
    for (int i = 0; i < N_SIZE && c->net.machine == 0; i++)
        for (int d = 0; d < 2; d++) {
            const struct prog_tensor *t = &p[d].tensor[3 * i];

            if (device_write(s, d, t->region, t->offset, zero, (size_t)sizes[i],
                             &err) != PL_OK)
                bench_die("weights", err.message);
        }
    free(zero);
    return s;
}

/* ---- rows ---------------------------------------------------------------- */

/* Returns the seconds of a step, and in *begin_s those until it has begun. */
static double step(struct device_set *s, int variant, double *begin_s)
{
    struct device_run run = {.variant = variant, .n_micro = 1};
    double begin = bench_now();
    pl_err err = {0};

    run.sizes[0].n_tok = run.sizes[0].n_out = 1;
    if (device_set_submit(s, &run, &err) != PL_OK)
        bench_die("step", err.message);
    *begin_s = bench_now() - begin;
    if (device_set_wait(s, &err) != PL_OK)
        bench_die("step", err.message);
    return bench_now() - begin;
}

static void say(const char *row, const double *plait, const double *mpi, int n)
{
    double a = bench_median(plait, n), b = mpi ? bench_median(mpi, n) : 0;

    printf("%-16s %10.1f", row, 1e6 * a);
    if (mpi)
        printf(" %10.1f %8.2f", 1e6 * b, a / b);
    printf("\n");
}

/* Returns the seconds of a step without instructions, and those until it has
 * begun: medians of some. */
static double empty_step(struct device_set *s, double *begin_s)
{
    double t[BENCH_MAX_ROUND], b[BENCH_MAX_ROUND];

    for (int k = 0; k < BENCH_MAX_ROUND; k++)
        t[k] = step(s, N_SIZE, &b[k]);
    *begin_s = bench_median(b, BENCH_MAX_ROUND);
    return bench_median(t, BENCH_MAX_ROUND);
}

static void lead(struct carrier *c, struct device_set *s, int rounds)
{
    static double plait[N_SIZE + 1][BENCH_MAX_ROUND];
    static double mpi[N_SIZE + 1][BENCH_MAX_ROUND], own[BENCH_MAX_ROUND];
    char name[32];

    for (int k = 0; k < rounds; k++) {
        double unused;

        plait[N_SIZE][k] = empty_step(s, &own[k]);
        mpi[N_SIZE][k] = ask_bare(c, N_SIZE);
        for (int i = 0; i < N_SIZE; i++) {
            plait[i][k] = (step(s, i, &unused) - plait[N_SIZE][k]) / REPEAT;
            mpi[i][k] = ask_bare(c, i);
        }
    }
    printf("%-16s %10s %10s %8s\n", "", "plait, us", "MPI, us", "ratio");
    for (int i = 0; i < N_SIZE; i++) {
        snprintf(name, sizeof name, "exchange %d", sizes[i]);
        say(name, plait[i], mpi[i], rounds);
    }
    say("step", plait[N_SIZE], mpi[N_SIZE], rounds);
    say("own part", own, NULL, rounds);
}

/* Joins twice, and prints how long it takes. */
static void time_join(struct carrier *c, double start_s)
{
    struct network *net = &c->net;
    const pl_machines_options how = {.size = sizeof how, .join_s = 60};
    const pl_options o = {.size = sizeof o, .devices = "cpu", .n_threads = 1};
    double s[2];

    for (int k = 0; k < 2; k++) {
        const pl_machines_options known = {
            .size = sizeof known, .join_s = 60, .network = "1GB/s:30us"};
        double begin = bench_now();
        pl_machines *m;
        pl_err err = {0};

        if (machines_join(&m, NULL, net, NULL, &o, k == 0 ? &how : &known, NULL,
                          &err) != PL_OK)
            bench_die("join", err.message);
        s[k] = bench_now() - begin;
        pl_machines_leave(m, NULL);
        MPI_Barrier(c->comm);
    }
    c->joined = true;
    if (net->machine == 0)
        printf("start %.3f s; join %.3f s, later %.3f s\n", start_s, s[0],
               s[1]);
}

int main(int argc, char **argv)
{
    int n, rounds = argc > 1 ? atoi(argv[1]) : ROUNDS;
    double begin = bench_now(), start_s;
    const struct network_kind *kind = network_started(&n);
    const struct network_module *module;
    struct carrier c = {.lock = PTHREAD_MUTEX_INITIALIZER};
    char why[NETWORK_MODULE_ERROR], *text = write_programs();
    struct device_list l = {0};
    struct arena a = {0};
    struct program *p;
    struct device_set *s;
    pl_err err = {0};

    if (!kind || n != 2)
        bench_die("exchange", "start it by mpirun -n 2");
    if (rounds < 1 || rounds > BENCH_MAX_ROUND)
        bench_die("rounds", "1 to 64 are possible");
    if (network_open_module(&module, kind, &err) != PL_OK)
        bench_die(kind->name, err.message);
    if (!module->open(&c.mpi, why))
        bench_die(kind->name, why);
    start_s = bench_now() - begin;
    c.net = *c.mpi;
    c.net.ops = &carrier_ops;
    c.net.load_limit_s = 60;
    MPI_Comm_dup(MPI_COMM_WORLD, &c.comm);
    c.out = calloc(2, (size_t)sizes[N_SIZE - 1]);
    if (!c.out)
        bench_die("buffers", "no memory");
    c.in = c.out + sizes[N_SIZE - 1];
    time_join(&c, start_s);
    if (program_parse(&p, &n, &a, text, strlen(text), &err) != PL_OK)
        bench_die("programs", err.message);
    s = load(&c, &l, p);
    if (c.net.machine == 0)
        lead(&c, s, rounds);
    else if (device_set_serve(s, &err) != PL_OK)
        bench_die("serve", err.message);
    device_set_free(s);
    device_list_free(&l);
    arena_fini(&a);
    free(text);
    MPI_Comm_free(&c.comm);
    module->close(c.mpi, true);
    free(c.out);
    return 0;
}
