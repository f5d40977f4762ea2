/* From two measurements, of one thread and of a thread on each core, to the
 * rates of any devices on these cores.
 *
 * Threads hinder each other at memory and at meetings. The time a thread takes
 * is taken to grow evenly with the number of those at work: so a rate of all
 * together rises less and less, as it does where memory sets the limit. */
#include "cost/calibration.h"

#include "machine/topology.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>

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
    for (char *s = name; *s; s++) /* it becomes JSON text */
        if (*s < ' ' || *s > '~')
            *s = '?';
}

void calibration_init(struct calibration *c, enum cpu_family f,
                      const struct topology *t)
{
    memset(c, 0, sizeof *c);
    name_cpu(c->cpu, sizeof c->cpu);
    c->family = f;
    c->n_core = t->n_core_quota < t->n_core ? t->n_core_quota : t->n_core;
}

double rates_read_bytes(int i)
{
    return (double)((size_t)8 << 20 << 2 * i);
}

void rates_scale(struct cost_rates *r, const struct cost_rates *one, double n)
{
    *r = *one;
    for (int f = 0; f < PL_FORMAT_COUNT; f++) {
        r->bytes_per_s[f] *= n;
        r->macs_per_s[f] *= n;
    }
    r->attention_one *= n;
    r->attention_many *= n;
    r->score_one_s /= n;
    r->score_many_s /= n;
    r->value_s /= n;
    for (int i = 0; i < COST_READS; i++)
        r->read_bytes_per_s[i] *= n;
    r->copy_bytes_per_s *= n;
}

void rates_sim(struct cost_rates *r, const struct cost_rates *one,
               const struct device_desc *d)
{
    *r = *one;
    r->one_queue = false;
    if (d->link_latency_s > 0)
        r->message_s = d->link_latency_s;
    if (d->link_bytes_per_s > 0) {
        r->link_bytes_per_s = d->link_bytes_per_s;
        r->copy_bytes_per_s = fmin(r->copy_bytes_per_s, d->link_bytes_per_s);
    }
}

/* ---- rates -------------------------------------------------------------- */

/* Threads that work at once: those of cpu devices, and those of hosts. */
static void count_threads(const struct device_list *l, int n[2])
{
    n[0] = n[1] = 0;
    for (int d = 0; d < l->n; d++)
        if (l->dev[d].on_cores && !l->dev[d].io)
            n[l->dev[d].host] += l->dev[d].n_thread;
}

bool calibration_covers(const struct calibration *c,
                        const struct device_list *l)
{
    int n[2];

    count_threads(l, n);
    return n[0] <= c->n_core && n[1] <= c->n_core;
}

static double seconds(double one, double all, double w)
{
    return one + (all - one) * w;
}

static double rate(double one, double all, double w)
{
    return 1 / seconds(1 / one, 1 / all, w);
}

/* A thread's among n. */
static struct cost_rates among(const struct calibration *c, int n)
{
    const struct cost_rates *a = &c->one, *b = &c->all;
    double w = c->n_core > 1 ? (double)(n - 1) / (c->n_core - 1) : 0;
    struct cost_rates r = {
        .attention_one = rate(a->attention_one, b->attention_one, w),
        .attention_many = rate(a->attention_many, b->attention_many, w),
        .score_one_s = seconds(a->score_one_s, b->score_one_s, w),
        .score_many_s = seconds(a->score_many_s, b->score_many_s, w),
        .value_s = seconds(a->value_s, b->value_s, w),
        .step_s = seconds(a->step_s, b->step_s, w),
        .message_s = seconds(a->message_s, b->message_s, w),
        .link_bytes_per_s = rate(a->link_bytes_per_s, b->link_bytes_per_s, w),
        .copy_bytes_per_s = rate(a->copy_bytes_per_s, b->copy_bytes_per_s, w),
        .run_s = seconds(a->run_s, b->run_s, w),
        .one_queue = true,
    };

    for (int f = 0; f < PL_FORMAT_COUNT; f++) {
        r.bytes_per_s[f] = rate(a->bytes_per_s[f], b->bytes_per_s[f], w);
        r.macs_per_s[f] = rate(a->macs_per_s[f], b->macs_per_s[f], w);
    }
    for (int i = 0; i < COST_READS; i++)
        r.read_bytes_per_s[i] =
            rate(a->read_bytes_per_s[i], b->read_bytes_per_s[i], w);
    return r;
}

/* No format is read faster than so many weights are. */
static void limit_reads(struct cost_rates *r, uint64_t weights)
{
    double most = r->read_bytes_per_s[0];

    for (int i = 1; i < COST_READS; i++) {
        double from = rates_read_bytes(i - 1), to = rates_read_bytes(i);
        double w = log((double)weights / from) / log(to / from);

        if (w > 0)
            most = rate(r->read_bytes_per_s[i - 1], r->read_bytes_per_s[i],
                        fmin(w, 1));
    }
    for (int f = 0; f < PL_FORMAT_COUNT; f++)
        r->bytes_per_s[f] = fmin(r->bytes_per_s[f], most);
}

void calibration_rates(const struct calibration *c, const struct device_list *l,
                       uint64_t weights, struct cost_rates *rates)
{
    struct cost_rates of[2], one = c->one; /* of cpu devices, of hosts */
    int n[2];

    count_threads(l, n);
    for (int k = 0; k < 2; k++) {
        of[k] = among(c, n[k] > 0 ? n[k] : 1);
        limit_reads(&of[k], weights);
    }
    limit_reads(&one, weights);
    for (int d = 0; d < l->n; d++) {
        const struct device_desc *x = &l->dev[d];

        if (!x->on_cores) {
            rates_sim(&rates[d], &one, x);
        } else {
            rates_scale(&rates[d], &of[x->host], x->n_thread);
            /* its own threads are those that its steps meet */
            rates[d].step_s = among(c, x->n_thread).step_s;
        }
    }
}
