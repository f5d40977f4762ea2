/* Fuzzes what a machine reads of the other machines: hashes, orders, replies,
 * the ends of steps, errors, and messages of programs. A real device set with
 * the backend `remote` is one of three machines, and the carrier delivers
 * messages that the input describes. Byte 0 chooses the machine; then each
 * record is
 *
 *   TAG FROM GATE VARIANT LENGTH PATCHES [OFFSET OFFSET VALUE]...
 *
 * A record describes a right message by tag and variant, whose length is then
 * changed by LENGTH (signed) and whose bytes by the patches. It is delivered
 * when this machine has sent GATE messages. After the last record the other
 * machines are lost, so each run ends.
 *
 * The machine must end with a status, and must not write outside the tensors of
 * its own inbox. */
#include "base/err.h"
#include "device/remote/remote_inner.h"
#include "program/program_text.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

int fuzz_remote(const uint8_t *data, size_t n);

static void require(bool ok)
{
    if (!ok)
        __builtin_trap();
}

enum {
    MACHINES = 3,
    INBOX = 8192,   /* bytes of an inbox in `programs` */
    TENSORS = 4096, /* upper bound of the end of their tensors */
    ROW = 64,       /* bytes of a token in a tensor */
    TILE = 2048,    /* bytes of a head of a page */
    CANARY = 0x5a,
};

/* Each machine has a device. The last one is on machine 0, as io is. */
static int device_on(int machine)
{
    return (machine + MACHINES - 1) % MACHINES;
}

static const char programs[] =
    "programs 3\n"
    "max n_tok 8 n_out 2 n_slot 128 n_seq 1 page_stride 2\n"
    "device 0 inbox 8192\n"
    "  %0: f32[n_tok, 16]\n"
    "  %1: f32[n_tok, 16] inbox\n"
    "  %2: f16[n_slot, 1, 16] inbox\n"
    "  %3: f32[n_tok, 16] inbox\n"
    "device 1 inbox 8192\n"
    "  %0: f32[n_tok, 16]\n"
    "  %1: f32[n_tok, 16] inbox\n"
    "device 2 inbox 8192\n"
    "  %0: f32[n_tok, 16]\n"
    "  %1: f32[n_tok, 16] inbox\n"
    "  %2: f16[n_slot, 2, 16] cache\n"
    "  %3: i32[18]\n"
    "variant\n"
    "  2: push 0.%1 <- %0 64*n_tok\n"
    "  2: pages 0.%2 <- %2 table %3 heads(1)\n"
    "  2: post 0\n"
    "  0: wait 2.0\n"
    "  0: push 2.%1, 1.%1 <- %0 64*n_tok\n"
    "  0: post 0\n"
    "  2: wait 0.0\n"
    "  1: wait 0.0\n"
    "  1 if n_tok 5..: push 0.%3 <- %0 64 x n_tok(64, 64)\n"
    "  1: post 0\n"
    "  0: wait 1.0\n";

/* ---- a backend that only moves events ------------------------------------ */

static bool has_kernel(const struct device_desc *d,
                       const struct device_options *opt,
                       const struct insn_kernel *k, const struct prog_tensor *t)
{
    (void)d;
    (void)opt;
    (void)k;
    (void)t;
    return false;
}

static size_t scratch(const struct device_desc *d,
                      const struct device_options *opt, const struct program *p)
{
    (void)d;
    (void)opt;
    (void)p;
    return 0;
}

static pl_status open_backend(struct backend *b, pl_err *err)
{
    (void)err;
    b->own = device_of(b->set, b->dev[0]);
    return PL_OK;
}

static void close_backend(struct backend *b)
{
    b->own = NULL;
}

static pl_status load(struct backend *b, pl_err *err)
{
    struct device *d = b->own;

    for (int r = 0; r < REGION_INBOX; r++) {
        d->at[r] = calloc(d->bytes[r] + 1, 1);
        if (!d->at[r])
            return err_no_memory(err, "a device's regions");
    }
    return PL_OK;
}

static void unload(struct backend *b)
{
    struct device *d = b->own;

    for (int r = 0; r < REGION_INBOX; r++) {
        free(d->at[r]);
        d->at[r] = NULL;
    }
}

static pl_status put(struct device *d, enum region r, size_t offset,
                     const void *src, size_t bytes, pl_err *err)
{
    (void)err;
    memcpy((unsigned char *)d->at[r] + offset, src, bytes);
    return PL_OK;
}

static pl_status get(struct device *d, enum region r, size_t offset, void *dst,
                     size_t bytes, pl_err *err)
{
    (void)err;
    memcpy(dst, (unsigned char *)d->at[r] + offset, bytes);
    return PL_OK;
}

static void submit(struct backend *b)
{
    (void)b;
}

static void await_all(struct backend *b)
{
    struct device *d = b->own;
    uint64_t number;
    const struct device_run *run = device_set_current_run(b->set, &number);
    const struct variant *v = device_variant(d, run);

    for (int i = 0; i < v->n_insn; i++) {
        const struct insn *s = &v->insn[i];

        if (!insn_enabled(s, run->n_micro, run->sizes))
            continue;
        if (s->kind == INSN_POST)
            device_flag_raise(&d->event[s->post.event], number);
        for (int k = 0; s->kind == INSN_WAIT && k < wait_count(&s->wait); k++) {
            struct insn_event e = wait_event(&s->wait, k);

            while (atomic_load(&device_of(b->set, e.dev)->event[e.event].v) <
                   number) {
                if (atomic_load(device_failed(b->set)))
                    return;
                sched_yield();
            }
        }
    }
}

static const struct backend_ops fuzz_ops = {
    .name = "fuzz",
    .accepts = "",
    .has_kernel = has_kernel,
    .scratch = scratch,
    .open = open_backend,
    .close = close_backend,
    .load = load,
    .unload = unload,
    .write = put,
    .read = get,
    .submit = submit,
    .wait = await_all,
};

/* ---- the carrier --------------------------------------------------------- */

enum tag { LOADED, ORDER, REPLY, DONE, FAIL, PROGRAM, LOST, OTHER, TAGS };
enum { HEAD = 6, PATCH = 3 };

struct carrier {
    struct network net;
    const uint8_t *at, *end; /* the records that are left */
    int n_poll;              /* calls of receive() since the last record */
    int n_sent;
    struct remote_loaded hash; /* this machine's */
    struct remote_order order; /* the last that was sent, or is delivered */
    struct device_run run;     /* of that */
    uint64_t number;           /* of the last run in an order */
    unsigned char *message[MACHINES]; /* last one of each machine; owned */
};

static bool carrier_send(struct network *net, int to, int tag, const void *data,
                         size_t bytes)
{
    struct carrier *c = (struct carrier *)net;

    require(to >= 0 && to < MACHINES && to != net->machine);
    c->n_sent++;
    if (tag == REMOTE_LOADED) {
        require(bytes == sizeof c->hash);
        memcpy(&c->hash, data, bytes);
    }
    if (tag == REMOTE_ORDER) {
        require(bytes >= sizeof c->order);
        memcpy(&c->order, data, sizeof c->order);
        if (c->order.verb == REMOTE_RUN)
            c->number = c->order.number;
    }
    return true;
}

static struct device_run run_of(int n_tok)
{
    struct device_run run;

    memset(&run, 0, sizeof run);
    run.n_micro = 1;
    run.sizes[0].n_tok = n_tok;
    run.sizes[0].n_out = run.sizes[0].n_seq = 1;
    run.sizes[0].n_slot[0] = 128;
    return run;
}

/* Appends bytes to a message. */
static void add(unsigned char *m, size_t *n, const void *data, size_t bytes)
{
    memcpy(m + *n, data, bytes);
    *n += bytes;
}

/* Writes an order of machine 0 to m. */
static void make_order(struct carrier *c, int variant, unsigned char *m,
                       size_t *n)
{
    struct remote_order *o = &c->order;

    memset(o, 0, sizeof *o);
    o->verb = (enum remote_verb)(variant % 4);
    o->region = variant & 4 ? REGION_INBOX : REGION_WORK;
    o->dev = device_on(c->net.machine);
    o->bytes = 100;
    if (o->verb == REMOTE_RUN) {
        o->bytes = sizeof c->run;
        o->number = ++c->number;
        c->run = run_of(variant & 4 ? 6 : 2);
    }
    add(m, n, o, sizeof *o);
    if (o->verb == REMOTE_RUN)
        add(m, n, &c->run, sizeof c->run);
    if (o->verb == REMOTE_WRITE)
        *n += o->bytes;
}

/* Writes the end of the last run to m. */
static void make_done(const struct carrier *c, int from, unsigned char *m,
                      size_t *n)
{
    struct remote_done done = {.number = c->number, .n = 1};
    struct remote_counts counts;

    memset(&counts, 0, sizeof counts);
    counts.dev = device_on(from);
    add(m, n, &done, sizeof done);
    add(m, n, &counts, sizeof counts);
}

/* Writes a message of the programs to m. */
static void make_program(const struct carrier *c, int from, int variant,
                         unsigned char *m, size_t *n)
{
    size_t n_tok = variant & 4 ? 6 : 2;
    uint64_t pages = (uint64_t)(variant & 3), number = c->number;

    add(m, n, &number, sizeof number);
    if (from != 2 || n_tok > 4)
        *n += n_tok * ROW;
    if (from != 0)
        return;
    add(m, n, &pages, sizeof pages);
    *n += (size_t)__builtin_popcountll(pages) * TILE;
}

/* Writes a right message to m; returns its tag. */
static int make_message(struct carrier *c, enum tag tag, int from, int variant,
                        unsigned char *m, size_t *n)
{
    struct remote_reply reply = {.status = variant & 1 ? PL_DEVICE : PL_OK};
    struct remote_fail fail = {.number = c->number, .err = {PL_DEVICE, "bad"}};

    switch (tag) {
    case LOADED:
        add(m, n, &c->hash, sizeof c->hash);
        return REMOTE_LOADED;
    case ORDER:
        make_order(c, variant, m, n);
        return REMOTE_ORDER;
    case REPLY:
        add(m, n, &reply, sizeof reply);
        *n += c->order.verb == REMOTE_READ ? c->order.bytes : 0;
        return REMOTE_REPLY;
    case DONE:
        make_done(c, from, m, n);
        return REMOTE_DONE;
    case FAIL:
        add(m, n, &fail, sizeof fail);
        return REMOTE_FAIL;
    case PROGRAM:
        make_program(c, from, variant, m, n);
        return device_on(from) * QUEUE_COUNT;
    case LOST:
        return NETWORK_LOST;
    default:
        return variant * 16;
    }
}

/* Delivers the next record, of machine `from`. */
static bool deliver(struct carrier *c, int from, struct network_message *out)
{
    const uint8_t *p = c->at;
    int n_patch = p[5];
    size_t n = 0, cap;
    unsigned char *m = calloc(1 << 13, 1), *exact;
    int tag;

    require(m != NULL);
    tag = make_message(c, (enum tag)(p[0] % TAGS), from, p[3], m, &n);
    require(n < 7 << 10);
    cap = n + 127;
    n += (size_t)(ptrdiff_t)(int8_t)p[4];
    if (n > cap)
        n = 0;
    /* an exact copy, so that a sanitizer sees one byte too many */
    exact = calloc(n + !n, 1);
    require(exact != NULL);
    memcpy(exact, m, n);
    free(m);
    for (p += HEAD; n_patch > 0 && c->end - p >= PATCH; n_patch--, p += PATCH)
        if (n > 0)
            exact[(p[0] | (size_t)p[1] << 8) % n] = p[2];
    c->at = p;
    c->n_poll = 0;
    free(c->message[from]);
    c->message[from] = exact;
    *out = (struct network_message){tag, exact, n};
    return true;
}

/* A record whose gate does not open is delivered anyway after some polls. A
 * record of a machine that is not received from is left out. */
static bool carrier_receive(struct network *net, int from,
                            struct network_message *out)
{
    struct carrier *c = (struct carrier *)net;
    int most = net->machine == 0 ? 200 : 3;
    int other = (net->machine + 1) % MACHINES;

    if (c->end - c->at < HEAD) {
        *out = (struct network_message){.tag = NETWORK_LOST};
        return true;
    }
    if (c->at[1] % 2 == 1)
        other = (other + 1) % MACHINES;
    c->n_poll++;
    if (from == other && (c->n_sent >= c->at[2] || c->n_poll > most))
        return deliver(c, from, out);
    if (c->n_poll > 2 * most) {
        c->at += HEAD;
        c->n_poll = 0;
    }
    return false;
}

static const struct network_ops carrier_ops = {
    .name = "fuzz", .send = carrier_send, .receive = carrier_receive};

/* ---- a machine ----------------------------------------------------------- */

/* Fails unless an operation that failed has an error. */
static bool works(pl_status s, const pl_err *err)
{
    require(s == PL_OK || strlen(err->message) > 0);
    return s == PL_OK;
}

/* Accesses memory of the other machines, then runs two steps. */
static void command(struct device_set *s)
{
    static const int n_tok[] = {2, 6};
    char bytes[100] = {0};
    pl_err err = {0};

    works(device_write(s, device_on(1), REGION_WORK, 8, bytes, sizeof bytes,
                       &err),
          &err);
    works(
        device_read(s, device_on(2), REGION_WORK, 8, bytes, sizeof bytes, &err),
        &err);
    for (int i = 0; i < 2; i++) {
        struct device_run run = run_of(n_tok[i]);

        works(device_set_run(s, &run, &err), &err);
    }
}

static void fill_inboxes(struct device_set *s)
{
    for (int d = 0; d < MACHINES; d++)
        memset(device_of(s, d)->at[REGION_INBOX], CANARY, INBOX);
}

/* Orders may write anywhere in the inbox of this machine, messages only to its
 * tensors. Nothing writes to the copies of other inboxes. */
static void check_inboxes(struct device_set *s, int machine)
{
    for (int d = 0; d < MACHINES; d++) {
        const unsigned char *x = device_of(s, d)->at[REGION_INBOX];
        int from = d != device_on(machine) ? 0 : machine == 0 ? TENSORS : INBOX;

        for (int i = from; i < INBOX; i++)
            require(x[i] == CANARY);
    }
}

static void run_machine(struct carrier *c, const struct program *p)
{
    struct device_desc desc[MACHINES] = {0};
    struct device_list list = {.n = MACHINES, .dev = desc, .network = &c->net};
    struct device_options opt = {.kernel_set = (enum kernel_set)0};
    struct device_set *s;
    pl_err err = {0};

    for (int m = 0; m < MACHINES; m++) {
        int d = device_on(m);

        desc[d] = (struct device_desc){.ops = &fuzz_ops,
                                       .n_thread = 1,
                                       .machine = m,
                                       .numa_node = -1,
                                       .memory = -1,
                                       .one_queue = true};
        desc[d].name[0] = (char)('a' + d);
    }
    require(device_set_create(&s, &list, &opt, &err) == PL_OK);
    if (works(device_set_load(s, p, &err), &err)) {
        fill_inboxes(s);
        if (c->net.machine == 0)
            command(s);
        else
            works(device_set_serve(s, &err), &err);
        check_inboxes(s, c->net.machine);
    }
    device_set_free(s);
}

int fuzz_remote(const uint8_t *data, size_t n)
{
    struct carrier c = {.net = {.ops = &carrier_ops,
                                .n_machine = MACHINES,
                                .load_limit_s = 60}};
    struct arena a = {0};
    struct program *p;
    int n_dev;

    if (n == 0)
        return 0;
    c.net.machine = data[0] % MACHINES;
    c.at = data + 1;
    c.end = data + n;
    require(program_parse(&p, &n_dev, &a, programs, strlen(programs), NULL) ==
            PL_OK);
    run_machine(&c, p);
    for (int m = 0; m < MACHINES; m++)
        free(c.message[m]);
    arena_fini(&a);
    return 0;
}
