/* Derives the rates of CPU devices from two measurements: one thread alone, and
 * one thread on each core.
 *
 * Threads slow each other down when they read memory and when they meet at
 * barriers. The time that a thread takes is assumed to grow linearly with the
 * number of running threads. Then the total rate of all threads saturates, as
 * it does if memory bandwidth is the limit. */
#include "cost/calibration.h"

#include "machine/topology.h"

#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>

/* Size of all weights in bytes up to which they are assumed to stay in the
 * processor's caches. */
enum { CACHES_HOLD = 16 << 20 };

static void name_cpu(char *name, size_t size)
{
    FILE *f = fopen("/proc/cpuinfo", "re");
    struct utsname u;
    char line[256];

    name[0] = '\0';
    while (f && !name[0] && fgets(line, sizeof line, f)) {
        const char *colon = strchr(line, ':');

        if (colon && strncmp(line, "model name", 10) == 0)
            snprintf(name, size, "%s", colon + 1 + strspn(colon + 1, " \t"));
    }
    if (f)
        fclose(f);
    name[strcspn(name, "\n")] = '\0';
    if (!name[0])
        snprintf(name, size, "%s", uname(&u) == 0 ? u.machine : "a processor");
    /* Replaces all characters that are not printable ASCII, because the
     * processor's name is written to a JSON file. */
    for (char *s = name; *s; s++)
        if (*s < ' ' || *s > '~')
            *s = '?';
}

void calibration_init(struct calibration *c, enum kernel_set set,
                      const struct topology *t)
{
    memset(c, 0, sizeof *c);
    name_cpu(c->cpu, sizeof c->cpu);
    c->kernel_set = set;
    c->n_core = t->n_core_quota < t->n_core ? t->n_core_quota : t->n_core;
}

/* ---- table of the fields of struct cost_rates --------------------------- */

#define FIELD(name) #name, offsetof(struct cost_rates, name)
const struct calibration_field calibration_field[CALIBRATION_FIELDS] = {
    {FIELD(read_bytes_per_s), "memory reads, GB/s", CALIBRATION_SUM},
    {FIELD(cached_bytes_per_s), "cache reads, GB/s", CALIBRATION_SUM},
    {FIELD(block_macs_per_s), "block formats, Gmac/s", CALIBRATION_SUM},
    {FIELD(float_macs_per_s), "float weights, Gmac/s", CALIBRATION_SUM},
    {FIELD(attention_macs_per_s), "attention, Gmac/s", CALIBRATION_SUM},
    {FIELD(link_bytes_per_s), "collectives of 2, GB/s", CALIBRATION_RATE},
    {FIELD(collective_s), "  fixed cost of one, us", CALIBRATION_SECONDS},
    {FIELD(insn_s), "an instruction, fixed, us", CALIBRATION_SECONDS},
};
#undef FIELD

double *calibration_value(struct cost_rates *r,
                          const struct calibration_field *f)
{
    return (double *)((char *)r + f->at);
}

/* ---- rates of CPU devices ----------------------------------------------- */

/* Counts the threads of a machine that compute at the same time during a step.
 * Sets n[0] to the number of threads of CPU devices, and n[1] to that of host
 * devices. */
static void count_threads(const struct device_list *l, int machine, int n[2])
{
    n[0] = n[1] = 0;
    for (int d = 0; d < l->n; d++)
        if (l->dev[d].on_cores && !l->dev[d].io && l->dev[d].machine == machine)
            n[l->dev[d].host] += l->dev[d].n_thread;
}

void calibration_add_machines(struct calibration *c,
                              const struct device_list *l)
{
    c->n_machine = l->measured ? l->n_machine : 0;
    c->machine = l->measured;
}

const struct calibration *calibration_of(const struct calibration *c,
                                         int machine)
{
    const struct calibration *m =
        machine < c->n_machine ? c->machine[machine] : NULL;

    return m && m->kernel_set == c->kernel_set ? m : c;
}

bool calibration_covers(const struct calibration *c,
                        const struct device_list *l)
{
    for (int d = 0; d < l->n; d++) {
        int n[2], n_core = calibration_of(c, l->dev[d].machine)->n_core;

        count_threads(l, l->dev[d].machine, n);
        if (n[0] > n_core || n[1] > n_core)
            return false;
    }
    return true;
}

/* Returns the rates of one thread while n threads run, interpolated between the
 * two measurements. */
static struct cost_rates scale_to_threads(const struct calibration *c, int n)
{
    double w = c->n_core > 1 ? (double)(n - 1) / (c->n_core - 1) : 0;
    struct cost_rates a = c->one, b = c->all, r = {.one_queue = true};

    for (int i = 0; i < CALIBRATION_FIELDS; i++) {
        const struct calibration_field *f = &calibration_field[i];
        double one = *calibration_value(&a, f), all = *calibration_value(&b, f);

        *calibration_value(&r, f) =
            f->kind == CALIBRATION_SECONDS
                ? one + (all - one) * w
                : 1 / (1 / one + (1 / all - 1 / one) * w);
    }
    return r;
}

struct cost_rates calibration_times(struct cost_rates one, double n)
{
    for (int i = 0; i < CALIBRATION_FIELDS; i++)
        if (calibration_field[i].kind == CALIBRATION_SUM)
            *calibration_value(&one, &calibration_field[i]) *= n;
    return one;
}

/* Returns the rates of sim device d: those of one thread, with latency and
 * bandwidth of the link from the description. */
static struct cost_rates sim(const struct calibration *c,
                             const struct device_desc *d)
{
    struct cost_rates r = c->one;

    r.one_queue = false;
    if (d->link_latency_s > 0)
        r.collective_s = d->link_latency_s;
    if (d->link_bytes_per_s > 0)
        r.link_bytes_per_s = d->link_bytes_per_s;
    return r;
}

void calibration_rates(const struct calibration *c, const struct device_list *l,
                       uint64_t weights, struct cost_rates *rates)
{
    for (int d = 0; d < l->n; d++) {
        const struct device_desc *x = &l->dev[d];
        const struct calibration *m = calibration_of(c, x->machine);
        int n[2], all;

        if (cost_has_spec_rates(x))
            continue;
        count_threads(l, x->machine, n);
        all = n[x->host] > 0 ? n[x->host] : 1;
        if (!x->on_cores) {
            rates[d] = sim(m, x);
        } else {
            rates[d] = calibration_times(scale_to_threads(m, all), x->n_thread);
            /* The fixed time of an instruction depends on the threads of this
             * device alone, because only they synchronize after each
             * instruction. */
            rates[d].insn_s = scale_to_threads(m, x->n_thread).insn_s;
        }
        if (weights <= CACHES_HOLD)
            rates[d].read_bytes_per_s = rates[d].cached_bytes_per_s;
    }
}
