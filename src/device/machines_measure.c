/* Implements machines_measure.h. The machine with the lower number leads: it
 * sends a message, which the other sends back, and takes the time. The first
 * byte of a message says what it is. */
#include "device/machines_measure.h"

#include "base/err.h"
#include "device/device_ops.h"

#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum { SIZES = 4, AT_SUM = 1, LEAST = 3, MOST = 1000 };
static const size_t sizes[SIZES] = {8, 8 << 10, 64 << 10, 1 << 20};
enum { LARGEST = 1 << 20 };

enum probe { PROBE_LAST, PROBE_BACK };

struct measuring {
    struct network *net;
    const struct machines_measure *how;
    unsigned char *inbox, *buf; /* [LARGEST] */
};

static double now(const struct measuring *m)
{
    return m->how->now ? m->how->now(m->how->user) : device_now();
}

/* ---- messages ------------------------------------------------------------ */

/* Sends n bytes of the inbox, packed as a message of a plan is. */
static pl_status send_probe(struct measuring *m, int to, enum probe what,
                            size_t n, pl_err *err)
{
    memcpy(m->buf, m->inbox, n);
    m->buf[0] = (unsigned char)what;
    return m->net->ops->send(m->net, to, MACHINES_PROBE, m->buf, n)
               ? PL_OK
               : err_no_memory(err, "a message");
}

static pl_status lost(const struct network_message *x, int from, pl_err *err)
{
    if (x->tag != NETWORK_LOST)
        return err_set(err, PL_UNSUPPORTED,
                       "machine %d has sent another message while the network "
                       "was measured; use the same version on all machines",
                       from);
    return err_set(err, PL_DEVICE, "machine %d: %.*s", from,
                   x->data ? (int)x->bytes : 4,
                   x->data ? (const char *)x->data : "lost");
}

/* Waits for a message, and stores it in the inbox. *n is its size. */
static pl_status receive_probe(struct measuring *m, int from, size_t *n,
                               pl_err *err)
{
    double end = device_now() + m->how->limit_s;
    struct network_message x;

    while (!m->net->ops->receive(m->net, from, &x)) {
        PL_TRY(err_cancelled(m->how->cancel, err));
        if (device_now() > end)
            return err_set(err, PL_DEVICE,
                           "machine %d has not answered within %.0f s while "
                           "the network was measured; see whether it runs",
                           from, m->how->limit_s);
        sched_yield();
    }
    if (x.tag != MACHINES_PROBE || x.bytes < 1 || x.bytes > LARGEST)
        return lost(&x, from, err);
    memcpy(m->inbox, x.data, x.bytes);
    *n = x.bytes;
    return PL_OK;
}

/* ---- both sides of a pair ------------------------------------------------ */

static pl_status follow(struct measuring *m, int leader, pl_err *err)
{
    for (;;) {
        size_t n;

        PL_TRY(receive_probe(m, leader, &n, err));
        if (m->inbox[0] == PROBE_LAST)
            return PL_OK;
        PL_TRY(send_probe(m, leader, PROBE_BACK, n, err));
    }
}

static pl_status to_and_fro(struct measuring *m, int partner, size_t n,
                            pl_err *err)
{
    size_t got;

    PL_TRY(send_probe(m, partner, PROBE_BACK, n, err));
    PL_TRY(receive_probe(m, partner, &got, err));
    if (got == n)
        return PL_OK;
    return err_set(err, PL_UNSUPPORTED,
                   "machine %d has sent %zu bytes back of %zu; use the same "
                   "version on all machines",
                   partner, got, n);
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Sets *seconds to the time of a message of n bytes one way. It is the lower
 * quartile, because other processes delay some messages and hasten none. */
static pl_status time_size(struct measuring *m, int partner, size_t n,
                           double *seconds, pl_err *err)
{
    double each = m->how->pair_s / SIZES, begin = now(m), before = begin;
    double t[MOST];
    int k = 0;

    while (k < LEAST || (k < MOST && before - begin < each)) {
        double after;

        PL_TRY(to_and_fro(m, partner, n, err));
        after = now(m);
        t[k++] = (after - before) / 2;
        before = after;
    }
    qsort(t, (size_t)k, sizeof *t, compare);
    *seconds = t[k / 4];
    return PL_OK;
}

/* Finds latency and rate from the times of the first n sizes. */
static struct machine_link fit(const double *t, int n)
{
    double bytes = (double)(sizes[n - 1] - sizes[AT_SUM]);
    double more = t[n - 1] - t[AT_SUM];
    struct machine_link x = {.source = LINK_MEASURED};

    /* noise may make large messages faster than small ones */
    x.bytes_per_s =
        more > 0 ? bytes / more : (double)sizes[n - 1] / fmax(t[n - 1], 1e-9);
    x.latency_s = t[AT_SUM] - (double)sizes[AT_SUM] / x.bytes_per_s;
    x.latency_s = fmax(x.latency_s, fmax(t[0] / 2, 1e-9));
    return x;
}

static pl_status lead(struct measuring *m, int partner,
                      struct machine_link *out, pl_err *err)
{
    double t[SIZES];
    int n = 0;

    /* waits until the partner has come */
    PL_TRY(to_and_fro(m, partner, 1, err));
    while (n < SIZES) {
        double each =
            n > 0 ? t[n - 1] * (double)sizes[n] / (double)sizes[n - 1] : 0;

        if (n > AT_SUM + 1 && 2 * LEAST * each > m->how->pair_s / 2)
            break;
        PL_TRY(time_size(m, partner, sizes[n], &t[n], err));
        n++;
    }
    *out = fit(t, n);
    return send_probe(m, partner, PROBE_LAST, 1, err);
}

/* ---- all pairs ----------------------------------------------------------- */

int machines_rounds(int n)
{
    return n < 2 ? 0 : n % 2 ? n : n - 1;
}

int machines_partner(int n, int round, int machine)
{
    int rounds = machines_rounds(n), last = rounds, other;

    /* Machines a and b, less than `last`, meet in round (a + b) mod rounds. The
     * one that would meet itself meets `last`, if there is one. */
    if (machine == last)
        other = round * ((rounds + 1) / 2) % rounds;
    else
        other = ((round - machine) % rounds + rounds) % rounds;
    if (other == machine)
        other = last;
    return other < n ? other : -1;
}

pl_status machines_measure(struct network *net,
                           const struct machines_measure *how,
                           struct machine_link *link, pl_err *err)
{
    struct measuring m = {.net = net, .how = how};
    int n = net->n_machine, own = net->machine;
    unsigned char *both = calloc(2, LARGEST);
    pl_status s = PL_OK;

    if (!both)
        return err_no_memory(err, "a message");
    m.inbox = both;
    m.buf = both + LARGEST;
    for (int r = 0; r < machines_rounds(n) && s == PL_OK; r++) {
        int partner = machines_partner(n, r, own);

        if (partner < 0)
            continue;
        s = partner > own ? lead(&m, partner, &link[partner], err)
                          : follow(&m, partner, err);
    }
    free(both);
    return s;
}
