/* The backend for the devices of the set that are on other machines.
 *
 * Every machine runs a process with the whole set and all programs, but opens
 * its own devices only. In each process this backend represents the devices of
 * all other machines. The set has memory for their inboxes and events. The
 * progress thread (remote_run.c) sends to other machines what devices here
 * write there, and stores what it receives. So other backends and programs need
 * not know on which machine a device is.
 *
 * Machine 0 has io and controls the others. It sends orders: to write or read a
 * device's memory, to run a step, to end. The other machines execute them in
 * device_set_serve(). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/err.h"
#include "base/hash64.h"
#include "device/remote/remote_inner.h"
#include "device/team.h"
#include "program/program_text.h"

/* ---- opening ------------------------------------------------------------- */

static void close_backend(struct backend *b)
{
    struct remote *r = b->own;

    if (!r)
        return;
    pthread_mutex_destroy(&r->calling);
    pthread_mutex_destroy(&r->lock);
    pthread_cond_destroy(&r->changed);
    pthread_cond_destroy(&r->work);
    free(r);
    b->own = NULL;
}

static pl_status check_devices(const struct backend *b,
                               const struct network *net, pl_err *err)
{
    if (!net)
        return err_set(err, PL_BAD_ARGUMENT,
                       "%s is on another machine, but the set has no network; "
                       "leave it out, or set device_list.network",
                       device_of(b->set, b->dev[0])->desc.name);
    if (net->n_machine > PROG_MAX_MACHINE)
        return err_set(err, PL_UNSUPPORTED,
                       "%d machines; a model is split over at most %d: leave "
                       "some out",
                       net->n_machine, PROG_MAX_MACHINE);
    if (device_guarded(b->set))
        return err_set(err, PL_UNSUPPORTED,
                       "the memory guard does not cover several machines; "
                       "leave out one of them");
    for (int i = 0; i < b->n; i++) {
        const struct device_desc *d = &device_of(b->set, b->dev[i])->desc;

        if (d->machine < 0 || d->machine >= net->n_machine)
            return err_set(err, PL_BAD_ARGUMENT,
                           "%s is on machine %d; the network has 0 to %d",
                           d->name, d->machine, net->n_machine - 1);
    }
    return PL_OK;
}

static pl_status open_backend(struct backend *b, pl_err *err)
{
    struct network *net = device_set_network(b->set);
    pthread_condattr_t clock;
    struct remote *r;

    PL_TRY(check_devices(b, net, err));
    r = calloc(1, sizeof *r);
    if (!r)
        return err_no_memory(err, "a device set");
    b->own = r;
    r->set = b->set;
    r->net = net;
    pthread_mutex_init(&r->calling, NULL);
    pthread_mutex_init(&r->lock, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&r->changed, &clock);
    pthread_cond_init(&r->work, &clock);
    pthread_condattr_destroy(&clock);
    return PL_OK;
}

/* ---- orders -------------------------------------------------------------- */

static bool is_other(const struct remote *r, int m)
{
    return m != r->net->machine;
}

/* Sends an order to machine m, with o->bytes of data unless that is NULL. An
 * order that cannot be sent fails the run or the call, as if m was lost. */
static void send_order(struct remote *r, int m, const struct remote_order *o,
                       const void *data)
{
    size_t n = sizeof *o + (data ? o->bytes : 0);
    unsigned char *p = malloc(n);

    if (!p) {
        r->peer[m].lost = true;
        return;
    }
    memcpy(p, o, sizeof *o);
    if (data)
        memcpy(p + sizeof *o, data, o->bytes);
    if (!r->net->ops->send(r->net, m, REMOTE_ORDER, p, n))
        r->peer[m].lost = true;
    free(p);
}

/* Begins or ends a wait for other machines, during which the progress thread
 * does not sleep. */
static void set_waiting(struct remote *r, bool begins)
{
    r->n_waiting += begins ? 1 : -1;
    r->looked_s = 0;
    pthread_cond_signal(&r->work);
}

/* Takes the last reply, of machine m. Copies the bytes that follow it to
 * dst[bytes]. The caller holds the lock. */
static pl_status read_reply(struct remote *r, int m, void *dst, size_t bytes,
                            pl_err *err)
{
    struct remote_reply reply;
    bool whole = r->reply_bytes >= sizeof reply;

    if (whole)
        memcpy(&reply, r->reply, sizeof reply);
    if (!whole || (unsigned)reply.status > PL_CANCELLED ||
        r->reply_bytes - sizeof reply != bytes) {
        remote_fault(r, m, "a reply that its order does not allow");
        return remote_lost(r, m, err);
    }
    if (reply.status == PL_OK && bytes > 0)
        memcpy(dst, r->reply + sizeof reply, bytes);
    reply.err.message[sizeof reply.err.message - 1] = '\0';
    if (reply.status != PL_OK)
        err_set(err, reply.status, "machine %d: %s", m,
                reply.err.message[0] ? reply.err.message
                                     : pl_status_text(reply.status));
    return reply.status;
}

/* Sends an order to machine m and waits for its reply. Copies the bytes that
 * follow the reply to dst[bytes]. */
static pl_status call(struct remote *r, int m, const struct remote_order *o,
                      const void *src, void *dst, size_t bytes, pl_err *err)
{
    pl_status s;

    pthread_mutex_lock(&r->calling);
    pthread_mutex_lock(&r->lock);
    r->replied = false;
    r->called = m;
    send_order(r, m, o, src);
    set_waiting(r, true);
    while (!r->replied && !r->peer[m].lost)
        pthread_cond_wait(&r->changed, &r->lock);
    set_waiting(r, false);
    r->called = 0;
    s = r->replied ? read_reply(r, m, dst, bytes, err) : remote_lost(r, m, err);
    pthread_mutex_unlock(&r->lock);
    pthread_mutex_unlock(&r->calling);
    return s;
}

/* ---- loading ------------------------------------------------------------- */

static void stop(struct remote *r)
{
    const struct remote_order end = {.verb = REMOTE_END};

    pthread_mutex_lock(&r->lock);
    for (int m = 1; r->net->machine == 0 && m < r->net->n_machine; m++)
        send_order(r, m, &end, NULL);
    r->stop = true;
    pthread_cond_signal(&r->work);
    pthread_mutex_unlock(&r->lock);
    pthread_join(r->thread, NULL);
    r->started = r->stop = false;
}

static void unload(struct backend *b)
{
    struct remote *r = b->own;

    if (r->started && !device_set_is_copy(r->set))
        stop(r);
    while (r->first) {
        struct remote_queued *q = r->first;

        r->first = q->next;
        free(q);
    }
    r->last = &r->first;
    free(r->reply);
    free(r->buf);
    r->reply = r->buf = NULL;
    r->cap = 0;
    arena_fini(&r->arena);
    memset(r->peer, 0, sizeof r->peer);
    r->begun = r->ended = r->finished = r->ordered = 0;
}

static void add_text(void *user, const char *s, size_t n)
{
    hash64_add(user, s, n);
}

static pl_status hash_programs(struct remote *r, struct remote_loaded *out,
                               pl_err *err)
{
    struct hash64 h;

    hash64_init(&h, sizeof(struct device_run));
    hash64_add(&h, r->machine, (size_t)r->n_dev * sizeof *r->machine);
    PL_TRY(
        program_print(device_of(r->set, 0)->prog, r->n_dev, add_text, &h, err));
    out->plan = device_set_options(r->set)->plan_hash;
    out->programs = hash64_end(&h);
    return PL_OK;
}

static pl_status make_messages(struct remote *r, pl_err *err)
{
    const struct program *p = device_of(r->set, 0)->prog;
    size_t n_tag = (size_t)r->n_dev * QUEUE_COUNT, most = 1;

    for (int v = 0; v < p->n_variant; v++) {
        int *of = arena_alloc(&r->arena, n_tag, sizeof *of);

        if (!of)
            return err_no_memory(err, "the messages of programs");
        PL_TRY(messages_create(&r->m[v], p, r->n_dev, r->machine, v, &r->arena,
                               err));
        for (size_t k = 0; k < n_tag; k++)
            of[k] = -1;
        for (int i = 0; i < r->m[v].n; i++)
            if (!is_other(r, r->m[v].channel[i].machine))
                of[message_tag(&r->m[v].channel[i])] = i;
        r->channel_of[v] = of;
        if ((size_t)r->m[v].n > most)
            most = (size_t)r->m[v].n;
    }
    r->channel = arena_alloc(&r->arena, most, sizeof *r->channel);
    return r->channel ? PL_OK : err_no_memory(err, "the messages of programs");
}

/* Compares the hashes of machine m with those of this machine. */
static pl_status check_hash(const struct remote *r, int m,
                            const struct remote_loaded *own, pl_err *err)
{
    const struct remote_loaded *got = &r->peer[m].hash;
    bool plan = got->plan != own->plan;

    if (!plan && got->programs == own->programs)
        return PL_OK;
    return err_set(
        err, PL_BAD_ARGUMENT,
        "machine %d has other %s (%016llx) than machine %d (%016llx); use the "
        "same version, model and options on all machines",
        m, plan ? "numerics" : "programs",
        (unsigned long long)(plan ? got->plan : got->programs), r->net->machine,
        (unsigned long long)(plan ? own->plan : own->programs));
}

/* Waits until machine m has loaded its programs. */
static pl_status await_loaded(struct remote *r, int m,
                              const struct timespec *end, pl_err *err)
{
    const struct remote_peer *p = &r->peer[m];
    bool late = false;

    while (!p->loaded && !p->lost && !late)
        late = pthread_cond_timedwait(&r->changed, &r->lock, end) == ETIMEDOUT;
    if (p->loaded)
        return PL_OK;
    if (p->fault || p->why[0])
        return remote_lost(r, m, err);
    if (p->lost)
        return err_set(err, PL_DEVICE,
                       "machine %d was lost while programs were loaded; see "
                       "its own error",
                       m);
    return err_set(err, PL_DEVICE,
                   "machine %d has not loaded its programs within %.0f s; "
                   "start it, or leave it out",
                   m, r->net->load_limit_s);
}

/* Sends the hashes of this machine's programs to the others, and waits until
 * all have loaded the same programs. */
static pl_status join_others(struct remote *r, pl_err *err)
{
    struct remote_loaded own = {0};
    pl_status s = PL_OK;
    struct timespec end;

    PL_TRY(hash_programs(r, &own, err));
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += (time_t)r->net->load_limit_s;
    pthread_mutex_lock(&r->lock);
    for (int m = 0; m < r->net->n_machine; m++)
        if (is_other(r, m))
            r->net->ops->send(r->net, m, REMOTE_LOADED, &own, sizeof own);
    set_waiting(r, true);
    for (int m = 0; s == PL_OK && m < r->net->n_machine; m++)
        if (is_other(r, m)) {
            s = await_loaded(r, m, &end, err);
            if (s == PL_OK)
                s = check_hash(r, m, &own, err);
        }
    set_waiting(r, false);
    pthread_mutex_unlock(&r->lock);
    return s;
}

static void find_carriers(struct remote *r)
{
    r->carried = true;
    for (int d = 0; d < r->n_dev; d++)
        r->carried &= is_other(r, r->machine[d]) ||
                      device_of(r->set, d)->backend->ops->carries;
}

static pl_status load(struct backend *b, pl_err *err)
{
    struct remote *r = b->own;
    int e;

    r->n_dev = device_set_size(r->set);
    r->last = &r->first;
    r->machine = arena_alloc(&r->arena, (size_t)r->n_dev, sizeof *r->machine);
    if (!r->machine)
        return err_no_memory(err, "the messages of programs");
    for (int d = 0; d < r->n_dev; d++)
        r->machine[d] = device_of(r->set, d)->desc.machine;
    for (int i = 0; i < b->n; i++)
        device_of(b->set, b->dev[i])->own = r;
    PL_TRY(make_messages(r, err));
    find_carriers(r);
    e = pthread_create(&r->thread, NULL, remote_progress, r);
    if (e)
        return err_no_thread(err, "the progress thread", e);
    r->started = true;
    return join_others(r, err);
}

/* ---- memory -------------------------------------------------------------- */

/* Sends orders for a range of memory, in chunks. An empty range takes one, so
 * the machine is known to serve. */
static pl_status access_range(struct device *d, struct remote_order *o,
                              const char *src, char *dst, size_t bytes,
                              pl_err *err)
{
    struct remote *r = d->own;
    size_t offset = o->offset, at = 0;

    o->dev = d->prog->dev;
    do {
        o->offset = offset + at;
        o->bytes = bytes - at < REMOTE_CHUNK ? bytes - at : REMOTE_CHUNK;
        PL_TRY(call(r, d->desc.machine, o, src ? src + at : NULL,
                    dst ? dst + at : NULL, dst ? o->bytes : 0, err));
        at += o->bytes;
    } while (at < bytes);
    return PL_OK;
}

/* Writes memory of another machine, if this is machine 0. Does nothing on other
 * machines, because machine 0 writes the memory of all. */
static pl_status put(struct device *d, enum region region, size_t offset,
                     const void *src, size_t bytes, pl_err *err)
{
    const struct remote *r = d->own;
    struct remote_order o = {
        .verb = REMOTE_WRITE, .region = region, .offset = offset};

    return r->net->machine == 0 ? access_range(d, &o, src, NULL, bytes, err)
                                : PL_OK;
}

static pl_status get(struct device *d, enum region region, size_t offset,
                     void *dst, size_t bytes, pl_err *err)
{
    const struct remote *r = d->own;
    struct remote_order o = {
        .verb = REMOTE_READ, .region = region, .offset = offset};

    if (r->net->machine != 0)
        return err_set(err, PL_UNSUPPORTED,
                       "%s is on machine %d; read it on machine 0",
                       d->desc.name, d->desc.machine);
    return access_range(d, &o, NULL, dst, bytes, err);
}

/* ---- runs ---------------------------------------------------------------- */

static void submit(struct backend *b)
{
    struct remote *r = b->own;
    struct remote_order o = {.verb = REMOTE_RUN, .bytes = sizeof r->run};

    pthread_mutex_lock(&r->lock);
    r->run = *device_set_current_run(b->set, &o.number);
    r->begun_s = device_now();
    remote_begin(r, o.number);
    for (int m = 0; m < r->net->n_machine; m++) {
        if (is_other(r, m) && r->net->machine == 0)
            send_order(r, m, &o, &r->run);
        if (r->peer[m].lost)
            remote_fail_lost(r, m);
    }
    if (!r->carried) {
        r->looked_s = 0;
        pthread_cond_signal(&r->work);
    }
    pthread_mutex_unlock(&r->lock);
}

/* Returns true if machine 0 has to wait for other machines to end the run. */
static bool others_run(const struct remote *r)
{
    for (int m = 1; r->net->machine == 0 && m < r->net->n_machine; m++)
        if (r->peer[m].done < r->begun && !r->peer[m].lost)
            return true;
    return false;
}

/* The caller's thread has nothing else to do, so it carries messages until the
 * run has ended on all machines. */
static void await_all(struct backend *b)
{
    struct remote *r = b->own;
    struct yielding y = {0};

    pthread_mutex_lock(&r->lock);
    r->ended = r->begun;
    while (r->finished < r->begun || others_run(r)) {
        r->looked_s = device_now();
        if (remote_look(r))
            continue;
        pthread_mutex_unlock(&r->lock);
        team_pause(&y);
        pthread_mutex_lock(&r->lock);
    }
    pthread_mutex_unlock(&r->lock);
}

const struct backend_ops remote_ops = {
    .name = "remote",
    .accepts = "",
    .wakes_waiters = true,
    .open = open_backend,
    .close = close_backend,
    .load = load,
    .unload = unload,
    .write = put,
    .read = get,
    .submit = submit,
    .wait = await_all,
    .serve = remote_serve,
    .carry = remote_carry,
};
