/* Assigns the threads of devices to the threads of the team.
 *
 * Each thread of a cpu device gets a team thread of its own. The threads of a
 * host device share the team threads of cpu devices on the same cores, so that
 * two threads never spin on the same core. A host thread shares the team thread
 * pinned to its core or, if threads are not pinned, any that does not serve a
 * host. If there is none, it gets a team thread of its own. No team thread
 * serves two host devices, because these synchronize with each other, and a
 * thread cannot wait for itself. "io" is served by the caller's thread, the
 * first of the team. */
#include <stdlib.h>

#include "base/err.h"
#include "device/cpu/cpu_device.h"

static int core_of(const struct device_desc *d, int ith, bool no_pin)
{
    return no_pin || d->n_core == 0 ? -1 : d->core[ith % d->n_core];
}

static void assign_thread(struct cpu_thread_roles *m, int dev, int ith)
{
    m->role[m->n++] = (struct cpu_thread_role){dev, ith};
}

static bool is_host(const struct backend *b, int dev)
{
    return device_of(b->set, dev)->desc.host;
}

/* Finds a team thread that can also act as a host device's thread on core
 * `want` (-1 for any core). Returns the index of the first of the team's n
 * threads that can, or n if none can. core[i] is the core to which team thread
 * i is pinned, -1 if it is not. */
static int find_shared_thread(const struct backend *b, const int *core, int n,
                              int want)
{
    const struct cpu_backend *c = b->own;

    for (int i = 0; i < n; i++)
        if (c->roles[i].n == 1 && !is_host(b, c->roles[i].role[0].dev) &&
            (core[i] == want || core[i] < 0 || want < 0))
            return i;
    return n;
}

/* Assigns device threads to team threads: those of all host devices if `host`,
 * else those of all other devices. The team has n threads so far. New team
 * threads are added after these, and their cores to core[]. Returns the new
 * number of team threads. */
static int assign_device_threads(struct backend *b, int *core, int n, bool host,
                                 bool no_pin)
{
    struct cpu_backend *backend = b->own;

    for (int i = 0; i < b->n; i++) {
        const struct device_desc *d = &device_of(b->set, b->dev[i])->desc;

        if (d->io || d->host != host)
            continue;
        for (int k = 0; k < d->n_thread; k++) {
            int c = core_of(d, k, no_pin);
            int m = host ? find_shared_thread(b, core, n, c) : n;

            if (m == n)
                core[n++] = c;
            assign_thread(&backend->roles[m], b->dev[i], k);
        }
    }
    return n;
}

/* Lets the first team thread serve the pseudo device "io". If n, the number of
 * team threads, is 0, adds that thread. Returns the new number of team
 * threads. */
static int assign_io_thread(struct backend *b, int *core, int n)
{
    struct cpu_backend *backend = b->own;

    for (int i = 0; i < b->n; i++)
        if (device_of(b->set, b->dev[i])->desc.io) {
            if (n == 0)
                core[n++] = -1;
            assign_thread(&backend->roles[0], b->dev[i], 0);
        }
    return n;
}

pl_status cpu_thread_map_fill(struct backend *b, pl_err *err)
{
    struct cpu_backend *c = b->own;
    bool no_pin = device_set_options(b->set)->no_pin;
    int n = 0, *core;
    pl_status st;

    for (int i = 0; i < b->n; i++)
        n += device_of(b->set, b->dev[i])->desc.n_thread;
    c->roles = calloc((size_t)n, sizeof *c->roles);
    core = malloc((size_t)n * sizeof *core);
    if (!c->roles || !core) {
        free(core);
        return err_no_memory(err, "a device set");
    }
    n = assign_device_threads(b, core, 0, false, no_pin);
    n = assign_device_threads(b, core, n, true, no_pin);
    n = assign_io_thread(b, core, n);
    c->n_thread = n;
    st = team_create(&c->team, n, core, n + device_set_threads(b->set, b), err);
    free(core);
    return st;
}

static bool serves(const struct cpu_thread_roles *m, int dev)
{
    for (int i = 0; i < m->n; i++)
        if (m->role[i].dev == dev)
            return true;
    return false;
}

bool cpu_thread_map_share(const struct backend *b, int dev_a, int dev_b)
{
    const struct cpu_backend *c = b->own;

    for (int i = 0; dev_a != dev_b && i < c->n_thread; i++)
        if (serves(&c->roles[i], dev_a) && serves(&c->roles[i], dev_b))
            return true;
    return false;
}
