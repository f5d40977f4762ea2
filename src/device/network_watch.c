/* Implements network_watch.h. Any thread may call the carrier, under the lock.
 *
 * Only network_session_receive() and the device set receive, never both at the
 * same time. A message for the set that the former meets is held until the set
 * receives it. */
#include "device/network_watch.h"

#include "base/err.h"
#include "base/numeral.h"
#include "device/device_ops.h"
#include "program/program.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BEAT_MS = 500, GRACE_BEATS = 4 };
/* A machine that has not listened for so long cannot call others silent. */
static const double deaf_s = 1;

struct watch_peer {
    bool lost;   /* it is silent, or the carrier has lost it */
    bool failed; /* it has sent NETWORK_FAILED or NETWORK_BEREFT */
    bool bereft; /* its first such message was NETWORK_BEREFT */
    char why[sizeof(pl_err)];
    double heard_s, asked_s; /* when a message came, and when it was looked for,
                                as by device_now() */
    struct network_session *first, **last;
    bool held;
    struct network_message message; /* for the device set, if `held` */
};

struct network_watch {
    struct network net;
    struct network *carrier;
    struct network_watch_options opt;
    pthread_mutex_t lock; /* protects all that follows, and the carrier */
    pthread_cond_t changed;
    pthread_t thread;
    bool started, stop, ending;
    struct watch_peer peer[PROG_MAX_MACHINE];
};

/* ---- receiving ----------------------------------------------------------- */

static void lose(struct watch_peer *p, const char *why)
{
    if (!p->lost && !p->failed)
        snprintf(p->why, sizeof p->why, "%s", why);
    p->lost = true;
}

/* Takes a message that is not for device sets. */
static void take_session(struct watch_peer *p, const struct network_message *m)
{
    struct network_session *s;

    if (m->tag == NETWORK_BEAT)
        return;
    if (m->tag == NETWORK_FAILED || m->tag == NETWORK_BEREFT) {
        p->bereft |= !p->failed && m->tag == NETWORK_BEREFT;
        if (!p->lost && !p->failed)
            snprintf(
                p->why, sizeof p->why, "%.*s",
                (int)(m->bytes < sizeof p->why ? m->bytes : sizeof p->why - 1),
                (const char *)m->data);
        p->failed = true;
        return;
    }
    s = malloc(sizeof *s + m->bytes + 1);
    if (!s) {
        lose(p, "out of memory for its message");
        return;
    }
    s->next = NULL;
    s->tag = m->tag;
    s->bytes = m->bytes;
    if (m->bytes > 0)
        memcpy(s->data, m->data, m->bytes);
    s->data[m->bytes] = '\0';
    *p->last = s;
    p->last = &s->next;
}

/* Looks for the next message of a machine. Returns true if it is one for device
 * sets, or if the machine is lost. */
static bool look(struct network_watch *w, int from, struct network_message *out)
{
    struct watch_peer *p = &w->peer[from];
    double now = device_now();
    char why[96];

    if (now - p->asked_s > deaf_s)
        p->heard_s = now;
    p->asked_s = now;
    while (!p->lost && w->carrier->ops->receive(w->carrier, from, out)) {
        p->heard_s = now;
        if (out->tag == NETWORK_LOST)
            lose(p, "its process has ended, or cannot be reached");
        else if (out->tag >= NETWORK_BEAT)
            take_session(p, out);
        else if (!p->failed && !w->ending)
            return true;
    }
    if (!p->lost && !w->ending && now - p->heard_s > w->opt.silence_s) {
        numeral_print(
            why, sizeof why,
            "nothing was heard of it for %.3g s; it was stopped, or the "
            "network is down",
            w->opt.silence_s);
        lose(p, why);
    }
    if (!p->lost && (!p->failed || w->ending))
        return false;
    *out = (struct network_message){NETWORK_LOST, p->why, strlen(p->why) + 1};
    return true;
}

static struct network_watch *watch_of(struct network *net)
{
    return (struct network_watch *)net;
}

static void *watch_reserve(struct network *net, int to, size_t bytes)
{
    struct network_watch *w = watch_of(net);
    void *at = NULL;

    pthread_mutex_lock(&w->lock);
    if (!w->peer[to].lost && w->carrier->ops->reserve)
        at = w->carrier->ops->reserve(w->carrier, to, bytes);
    pthread_mutex_unlock(&w->lock);
    return at;
}

static bool watch_send(struct network *net, int to, int tag, const void *data,
                       size_t bytes)
{
    struct network_watch *w = watch_of(net);
    bool ok = true;

    pthread_mutex_lock(&w->lock);
    if (!w->peer[to].lost)
        ok = w->carrier->ops->send(w->carrier, to, tag, data, bytes);
    pthread_mutex_unlock(&w->lock);
    return ok;
}

static bool watch_receive(struct network *net, int from,
                          struct network_message *out)
{
    struct network_watch *w = watch_of(net);
    struct watch_peer *p = &w->peer[from];
    bool any = true;

    pthread_mutex_lock(&w->lock);
    if (p->held)
        *out = p->message;
    else
        any = look(w, from, out);
    p->held = false;
    pthread_mutex_unlock(&w->lock);
    return any;
}

static const struct network_ops watch_ops = {.name = "watch",
                                             .reserve = watch_reserve,
                                             .send = watch_send,
                                             .receive = watch_receive};

/* ---- beats --------------------------------------------------------------- */

static void send_beats(struct network_watch *w)
{
    for (int m = 0; m < w->net.n_machine; m++)
        if (m != w->net.machine && !w->peer[m].lost)
            w->carrier->ops->send(w->carrier, m, NETWORK_BEAT, NULL, 0);
}

/* Writes why a machine is lost to text[n]. Returns false if none is. */
static bool any_lost(const struct network_watch *w, char *text, size_t n)
{
    for (int m = 0; m < w->net.n_machine; m++)
        if (w->peer[m].lost) {
            snprintf(text, n, "machine %d: %s", m, w->peer[m].why);
            return true;
        }
    return false;
}

/* Waits for the next beat, or the end. */
static void await_beat(struct network_watch *w)
{
    struct timespec end;

    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_nsec += BEAT_MS * 1000000L;
    if (end.tv_nsec >= 1000000000) {
        end.tv_nsec -= 1000000000;
        end.tv_sec++;
    }
    while (!w->stop && pthread_cond_timedwait(&w->changed, &w->lock, &end) == 0)
        continue;
}

static void *beat(void *user)
{
    struct network_watch *w = user;
    char text[sizeof(pl_err) + 32];
    int n_after = 0; /* beats since a machine was lost */

    pthread_mutex_lock(&w->lock);
    while (!w->stop) {
        send_beats(w);
        if (any_lost(w, text, sizeof text) && !w->ending &&
            ++n_after == GRACE_BEATS && w->opt.lost) {
            pthread_mutex_unlock(&w->lock);
            w->opt.lost(w->opt.user, text);
            pthread_mutex_lock(&w->lock);
        }
        await_beat(w);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

/* ---- lifetime ------------------------------------------------------------ */

pl_status network_watch_create(struct network_watch **out,
                               struct network *carrier,
                               const struct network_watch_options *opt,
                               pl_err *err)
{
    struct network_watch *w;
    pthread_condattr_t clock;
    int e;

    *out = NULL;
    if (carrier->n_machine > PROG_MAX_MACHINE)
        return err_set(err, PL_UNSUPPORTED,
                       "%d machines; a model is split over at most %d: start "
                       "fewer",
                       carrier->n_machine, PROG_MAX_MACHINE);
    w = calloc(1, sizeof *w);
    if (!w)
        return err_no_memory(err, "a network");
    w->net = *carrier;
    w->net.ops = &watch_ops;
    w->carrier = carrier;
    w->opt = *opt;
    for (int m = 0; m < PROG_MAX_MACHINE; m++)
        w->peer[m].last = &w->peer[m].first;
    pthread_mutex_init(&w->lock, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&w->changed, &clock);
    pthread_condattr_destroy(&clock);
    e = pthread_create(&w->thread, NULL, beat, w);
    w->started = e == 0;
    if (e) {
        network_watch_free(w);
        return err_no_thread(err, "the watch of other machines", e);
    }
    *out = w;
    return PL_OK;
}

void network_watch_free(struct network_watch *w)
{
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    if (w->started)
        pthread_join(w->thread, NULL);
    for (int m = 0; m < PROG_MAX_MACHINE; m++)
        while (w->peer[m].first) {
            struct network_session *s = w->peer[m].first;

            w->peer[m].first = s->next;
            free(s);
        }
    pthread_mutex_destroy(&w->lock);
    pthread_cond_destroy(&w->changed);
    free(w);
}

struct network *network_watch_network(struct network_watch *w)
{
    return &w->net;
}

/* ---- session messages ---------------------------------------------------- */

bool network_session_send(struct network_watch *w, int to, int tag,
                          const void *data, size_t bytes)
{
    return watch_send(&w->net, to, tag, data, bytes);
}

/* Sets *out to the next session message of a machine, if one has come. If none
 * can come any more, writes the reason and returns PL_UNSUPPORTED if the
 * machine has refused to take part, PL_DEVICE if it is lost. */
static pl_status next_session(struct network_watch *w, int from,
                              struct network_session **out, char *why)
{
    struct watch_peer *p = &w->peer[from];
    pl_status s = PL_OK;

    pthread_mutex_lock(&w->lock);
    p->held &= !w->ending;
    if (!p->first && !p->held)
        p->held = look(w, from, &p->message) && p->message.tag != NETWORK_LOST;
    *out = p->first;
    if (*out) {
        p->first = (*out)->next;
        if (!p->first)
            p->last = &p->first;
    } else if (p->lost || (p->failed && !w->ending)) {
        snprintf(why, sizeof p->why, "%s", p->why);
        s = p->failed && !p->bereft ? PL_UNSUPPORTED : PL_DEVICE;
    }
    pthread_mutex_unlock(&w->lock);
    return s;
}

pl_status network_session_receive(struct network_watch *w, int from,
                                  double limit_s, const volatile int *cancel,
                                  struct network_session **out, pl_err *err)
{
    double begin = device_now();
    struct timespec nap = {0, 20000};
    char why[sizeof(pl_err)];

    for (;;) {
        pl_status s = next_session(w, from, out, why);

        if (s != PL_OK)
            return err_set(err, s, "machine %d: %s", from, why);
        if (*out || (limit_s > 0 && device_now() - begin > limit_s))
            return PL_OK;
        PL_TRY(err_cancelled(cancel, err));
        nanosleep(&nap, NULL);
        if (nap.tv_nsec < 2000000)
            nap.tv_nsec += nap.tv_nsec / 4;
    }
}

bool network_watch_is_there(struct network_watch *w, int machine)
{
    bool is;

    pthread_mutex_lock(&w->lock);
    is = !w->peer[machine].lost;
    pthread_mutex_unlock(&w->lock);
    return is;
}

void network_watch_end(struct network_watch *w)
{
    pthread_mutex_lock(&w->lock);
    w->ending = true;
    pthread_mutex_unlock(&w->lock);
}
