/* A test backend: proc devices that share no inbox and no event with this
 * process, only a socket to each.
 *
 * Lowering needs no change for it. No device reads another's memory, so all
 * values are pushed, and the program states what was pushed before each POST.
 * Each process mirrors the inboxes and events of all devices. A message has the
 * bytes that a POST makes visible; the POST follows. On both sides a thread
 * waits for the events that the other side needs, and sends; another
 * receives. */
#include "lib/kind_pipe.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/err.h"
#include "device/proc/proc_inner.h"
#include "program/copy_loops.h"

enum verb { INBOX, POSTED, RUN, DONE };

struct message {
    enum verb verb;
    int dev, event;   /* of INBOX, POSTED */
    size_t at, bytes; /* of INBOX, whose bytes follow */
    uint64_t number;  /* of the run */
    struct device_run run;
};

/* A device, and this process's end of its socket. */
struct end {
    struct device *dev;
    struct device_set *set;
    int fd, child_fd;
    pthread_t sender, receiver;
    int sent[QUEUE_COUNT]; /* in the child: how far a run was sent */
    struct message run;    /* the run in progress */
};

enum { MOST = 8 };

struct backend_ops pipe_ops;
static struct end ends[MOST]; /* of the only backend that is loaded */
static int forking = -1;      /* index of the next one whose process is made */

/* ---- messages ------------------------------------------------------------ */

static bool all(int fd, const void *p, size_t n, bool out)
{
    ssize_t k = 1;

    for (; n > 0 && k > 0; p = (const char *)p + k, n -= (size_t)k)
        k = out ? send(fd, p, n, MSG_NOSIGNAL) : recv(fd, (void *)p, n, 0);
    return k > 0;
}

/* Sends bytes of a tensor in the inbox of device `dev`. */
static void send_inbox(const struct end *x, int dev, int tensor, int64_t at,
                       size_t bytes)
{
    const struct device *d = device_of(x->set, dev);
    const struct message m = {.verb = INBOX,
                              .dev = dev,
                              .at = d->prog->tensor[tensor].offset + (size_t)at,
                              .bytes = bytes};

    all(x->fd, &m, sizeof m, true);
    all(x->fd, d->at[REGION_INBOX] + m.at, bytes, true);
}

/* Sends what the executed instruction pushed to device `to`; if that is -1, to
 * any. */
static void send_pushed(const struct end *x, const struct insn *s, int to)
{
    const struct insn_pages *pages = &s->pages;
    struct copy_extent l;
    int n;

    if (s->kind == INSN_PAGES && (to < 0 || pages->out_dev == to))
        send_inbox(
            x, pages->out_dev, pages->out, 0,
            device_of(x->set, pages->out_dev)->prog->tensor[pages->out].bytes);
    for (int k = 0; s->kind == INSN_PUSH && k < s->push.n_to; k++) {
        const struct push_to *p = &s->push.to[k];
        const struct copy_desc *piece = push_pieces(&s->push, k, &n);

        for (int i = 0; (to < 0 || p->dev == to) && i < n; i++) {
            copy_loops_resolve(&l, &piece[i], &x->run.run.sizes[s->micro]);
            for (int64_t a = 0; a < l.n0 * l.n1; a++)
                send_inbox(x, p->dev, p->out,
                           (int64_t)p->at + l.dst + a / l.n1 * l.dst_s0 +
                               a % l.n1 * l.dst_s1,
                           (size_t)l.bytes);
        }
    }
}

static bool await(const struct end *x, const struct device *d, int event)
{
    while (atomic_load(&d->event[event].v) < x->run.number) {
        if (atomic_load(device_failed(x->set)))
            return false;
        sched_yield();
    }
    return true;
}

/* Sends what a queue of device d pushed to `to`, and posted, from instruction
 * sent[queue] on, up to the POST of `event`, when it is there. If that is -1,
 * sends the rest of the compute queue, which must have been executed. */
static void send_until(const struct end *x, const struct device *d,
                       int sent[QUEUE_COUNT], int event, int to)
{
    const struct device_run *r = &x->run.run;
    const struct variant *v = device_variant(d, r);
    enum queue q = QUEUE_COMPUTE;
    int end = event < 0 ? v->n_insn : 0;

    while (end < v->n_insn &&
           (v->insn[end].kind != INSN_POST || v->insn[end].post.event != event))
        end++;
    if (event >= 0)
        q = v->insn[end++].queue;
    if (event >= 0 && !await(x, d, event))
        return;
    for (; sent[q] < end; sent[q]++) {
        const struct insn *s = &v->insn[sent[q]];
        const struct message m = {.verb = POSTED,
                                  .dev = d->prog->dev,
                                  .event = s->post.event,
                                  .number = x->run.number};

        if (s->queue != q || !insn_enabled(s, r->n_micro, r->sizes))
            continue;
        if (s->kind == INSN_POST)
            all(x->fd, &m, sizeof m, true);
        else
            send_pushed(x, s, to);
    }
}

/* Receives a message, and does what it says unless it is RUN or DONE. Returns
 * false if the other process has ended. */
static bool take(const struct end *x, struct message *m)
{
    if (!all(x->fd, m, sizeof *m, false))
        return false;
    if (m->verb == INBOX)
        return all(x->fd, device_of(x->set, m->dev)->at[REGION_INBOX] + m->at,
                   m->bytes, false);
    if (m->verb == POSTED)
        device_flag_raise(&device_of(x->set, m->dev)->event[m->event],
                          m->number);
    return true;
}

/* ---- the child ----------------------------------------------------------- */

static void *child_sends(void *user)
{
    struct end *x = user;
    const struct variant *v = device_variant(x->dev, &x->run.run);

    for (int i = 0; i < v->n_insn; i++)
        if (v->insn[i].kind == INSN_POST &&
            insn_enabled(&v->insn[i], x->run.run.n_micro, x->run.run.sizes))
            send_until(x, x->dev, x->sent, v->insn[i].post.event, -1);
    return NULL;
}

/* Follows the parent's runs. At the end of each, sends what no POST follows,
 * as results. */
static void *child_receives(void *user)
{
    struct end *x = user;
    struct message m;

    while (take(x, &m))
        if (m.verb == RUN) {
            x->run = m;
            memset(x->sent, 0, sizeof x->sent);
            pthread_create(&x->sender, NULL, child_sends, x);
        } else if (m.verb == DONE) {
            pthread_join(x->sender, NULL);
            send_until(x, x->dev, x->sent, -1, -1);
            all(x->fd, &m, sizeof m, true);
        }
    return NULL;
}

/* Replaces memory that the parent shares by zeros of this process's own. */
static void own(void *p, size_t bytes)
{
    if (bytes > 0)
        mmap(p, bytes, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

/* Runs in each new process. proc closes all files but the standard streams, so
 * the socket becomes one. */
static void in_child(void)
{
    struct end *x;

    if (forking < 0)
        return;
    x = &ends[forking];
    for (int i = 0; i < device_set_size(x->set); i++) {
        const struct device *d = device_of(x->set, i);

        own(d->at[REGION_INBOX], d->bytes[REGION_INBOX]);
        own(d->event, d->event_bytes);
    }
    x->fd = dup2(x->child_fd, STDIN_FILENO);
    pthread_create(&x->receiver, NULL, child_receives, x);
}

static void in_parent(void)
{
    forking += forking >= 0;
}

/* ---- the parent ---------------------------------------------------------- */

static pl_status describe(struct device_list *l, const struct device_item *it,
                          pl_err *err)
{
    int first = l->n;

    PL_TRY(proc_ops.describe(l, it, err));
    for (int i = first; i < l->n; i++)
        l->dev[i].ops = &pipe_ops;
    return PL_OK;
}

static void unload(struct backend *b)
{
    proc_ops.unload(b);
    for (int i = 0; i < b->n && i < MOST && ends[i].set == b->set; i++) {
        close(ends[i].fd);
        if (ends[i].child_fd >= 0)
            close(ends[i].child_fd);
        ends[i].set = NULL;
    }
}

static pl_status load(struct backend *b, pl_err *err)
{
    static bool known;
    pl_status s;

    if (b->n > MOST || ends[0].set)
        return err_set(err, PL_UNSUPPORTED, "only one set of 8 pipes");
    if (!known && pthread_atfork(NULL, in_parent, in_child))
        return err_no_memory(err, "a socket");
    known = true;
    for (int i = 0; i < b->n; i++) {
        int fd[2];

        if (socketpair(AF_UNIX, SOCK_STREAM, 0, fd))
            return err_no_memory(err, "a socket");
        ends[i] = (struct end){.dev = device_of(b->set, b->dev[i]),
                               .set = b->set,
                               .fd = fd[0],
                               .child_fd = fd[1]};
    }
    forking = 0;
    s = proc_ops.load(b, err);
    forking = -1;
    for (int i = 0; i < b->n; i++) { /* so that a lost child ends the stream */
        close(ends[i].child_fd);
        ends[i].child_fd = -1;
    }
    return s;
}

/* Sends the device what its WAITs wait for, in their order. */
static void *parent_sends(void *user)
{
    const struct end *x = user;
    const struct device_run *r = &x->run.run;
    const struct variant *v = device_variant(x->dev, r);
    int(*sent)[QUEUE_COUNT] =
        calloc((size_t)device_set_size(x->set), sizeof *sent);

    for (int i = 0; sent && i < v->n_insn; i++)
        for (int k = 0;
             insn_enabled(&v->insn[i], r->n_micro, r->sizes) &&
             v->insn[i].kind == INSN_WAIT && k < wait_count(&v->insn[i].wait);
             k++) {
            struct insn_event e = wait_event(&v->insn[i].wait, k);

            if (device_of(x->set, e.dev) != x->dev)
                send_until(x, device_of(x->set, e.dev), sent[e.dev], e.event,
                           x->dev->prog->dev);
        }
    free(sent);
    return NULL;
}

static void *parent_receives(void *user)
{
    const struct end *x = user;
    struct message m = {.verb = RUN};

    while (m.verb != DONE && take(x, &m)) {
    }
    return NULL;
}

static void submit(struct backend *b)
{
    for (int i = 0; i < b->n; i++) {
        struct end *x = &ends[i];

        x->run.verb = RUN;
        x->run.run = *device_set_current_run(b->set, &x->run.number);
        all(x->fd, &x->run, sizeof x->run, true);
        pthread_create(&x->sender, NULL, parent_sends, x);
        pthread_create(&x->receiver, NULL, parent_receives, x);
    }
    proc_ops.submit(b);
}

static void wait_all(struct backend *b)
{
    const struct message done = {.verb = DONE};

    proc_ops.wait(b);
    for (int i = 0; i < b->n; i++) {
        struct end *x = &ends[i];

        pthread_join(x->sender, NULL);
        all(x->fd, &done, sizeof done, true);
        pthread_join(x->receiver, NULL);
    }
}

__attribute__((constructor)) static void make_ops(void)
{
    pipe_ops = proc_ops;
    pipe_ops.name = "pipe";
    pipe_ops.accepts = "pipe*N";
    pipe_ops.describe = describe;
    pipe_ops.load = load;
    pipe_ops.unload = unload;
    pipe_ops.submit = submit;
    pipe_ops.wait = wait_all;
}
