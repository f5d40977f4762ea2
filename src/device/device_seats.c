/* Which member of a set's team serves which threads.
 *
 * Each thread of a cpu device gets a member of its own. The threads of a host
 * device sit with those on their cores, so that two groups on the same cores
 * never spin against each other: with the member pinned to the same core, or,
 * where cpu devices are not pinned, with the next one. A thread for which there
 * is none gets a member of its own. No member serves two hosts: they are one
 * group, and could not meet. The last members play the sim devices. */
#include <stdlib.h>

#include "base/err.h"
#include "device/device_inner.h"

static int core_of(const struct device_desc *d, int ith, bool no_pin)
{
    return no_pin || d->n_core == 0 ? -1 : d->core[ith % d->n_core];
}

static void sit(struct member_seats *m, int dev, int ith)
{
    m->seat[m->n++] = (struct seat){dev, ith};
}

/* A member for a host's thread among the first n, or n. */
static int beside(const struct device_set *s, const int *core, int n, int want)
{
    for (int i = 0; i < n; i++)
        if (s->seats[i].n == 1 && !s->dev[s->seats[i].seat[0].dev].desc.host &&
            (core[i] == want || core[i] < 0 || want < 0))
            return i;
    return n;
}

/* Seats for the threads of hosts or of the others, after n members; how many
 * members there are then. */
static int seat_devices(struct device_set *s, int *core, int n, bool host,
                        bool no_pin)
{
    for (int i = 0; i < s->n; i++) {
        const struct device_desc *d = &s->dev[i].desc;

        if (d->kind != DEVICE_CPU || d->host != host)
            continue;
        for (int k = 0; k < d->n_thread; k++) {
            int c = core_of(d, k, no_pin);
            int m = host ? beside(s, core, n, c) : n;

            if (m == n)
                core[n++] = c;
            sit(&s->seats[m], i, k);
        }
    }
    return n;
}

pl_status device_seats_fill(struct device_set *s, bool no_pin, pl_err *err)
{
    int n = s->n_player, *core;
    pl_status st;

    for (int i = 0; i < s->n; i++)
        if (s->dev[i].desc.kind == DEVICE_CPU)
            n += s->dev[i].desc.n_thread;
    s->seats = calloc((size_t)n, sizeof *s->seats);
    core = malloc((size_t)n * sizeof *core);
    if (!s->seats || !core) {
        free(core);
        return err_no_memory(err, "a set of devices");
    }
    n = seat_devices(s, core, 0, false, no_pin);
    n = seat_devices(s, core, n, true, no_pin);
    for (int k = 0; k < s->n_player; k++) {
        s->seats[n].player = k;
        core[n++] = -1;
    }
    s->n_member = n;
    st = cpu_team_create(&s->team, n, core, err);
    free(core);
    return st;
}

bool device_seats_share(const struct device_set *s, int dev_a, int dev_b)
{
    for (int i = 0; i < s->n_member; i++) {
        const struct member_seats *m = &s->seats[i];

        if (m->n == 2 &&
            ((m->seat[0].dev == dev_a && m->seat[1].dev == dev_b) ||
             (m->seat[0].dev == dev_b && m->seat[1].dev == dev_a)))
            return true;
    }
    return false;
}
