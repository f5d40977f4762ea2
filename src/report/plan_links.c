/* Prints the links of accelerators. Neighbouring accelerators with equal rates
 * share a line. */
#include "report/plan_links.h"

#include "device/device.h"

static bool is_linked(const pl_plan *p, const struct plan_facts *f, int d)
{
    return d < f->n_dev && p->compiled->list.dev[d].accelerator;
}

/* Returns latency and bandwidth of the link from device d to host memory, whose
 * rates are those of the io device. */
static struct cost_link to_host(const struct plan_facts *f, int d)
{
    return cost_link_of(&f->rates[d], &f->rates[f->n_dev]);
}

static bool alike(const struct cost_rates *a, const struct cost_rates *b)
{
    return a->link_bytes_per_s == b->link_bytes_per_s &&
           a->out_bytes_per_s == b->out_bytes_per_s &&
           a->collective_s == b->collective_s &&
           a->p2p_bytes_per_s == b->p2p_bytes_per_s && a->p2p_s == b->p2p_s &&
           a->bridge_bytes_per_s == b->bridge_bytes_per_s &&
           a->bridge_s == b->bridge_s && a->link_domain == b->link_domain &&
           a->machine == b->machine &&
           a->network_bytes_per_s == b->network_bytes_per_s &&
           a->network_s == b->network_s;
}

static void print_link(const struct sink *to, const char *whose,
                       struct cost_link x)
{
    writer_printf(to, "%s %.3g GB/s, %.3g us", whose, x.bytes_per_s * 1e-9,
                  x.latency_s * 1e6);
}

/* Prints one line for accelerators d to end - 1, whose links have equal
 * rates. */
static void say_run(const pl_plan *p, const struct plan_facts *f, int d,
                    int end, const struct sink *to)
{
    const struct device_desc *dev = p->compiled->list.dev;
    const struct cost_rates *r = &f->rates[d];
    /* rates of another device like d, but outside of d's link domain */
    struct cost_rates other = *r;

    other.link_domain = 0;
    writer_printf(to, "%s", dev[d].name);
    if (end > d + 1)
        writer_printf(to, " to %s", dev[end - 1].name);
    print_link(to, r->machine > 0 ? ": machine 0" : ": the host",
               to_host(f, d));
    if (r->link_domain > 0)
        print_link(to, "; link domain", cost_link_of(r, r));
    if (r->p2p_bytes_per_s > 0)
        print_link(to, r->link_domain > 0 ? "; others" : "; each other",
                   cost_link_of(r, &other));
    writer_printf(to, "\n");
}

void plan_print_links(const pl_plan *p, const struct plan_facts *f,
                      const struct sink *to)
{
    const char *head = "links     ";

    for (int d = 0, end; d < f->n_dev; d = end) {
        end = d + 1;
        if (!is_linked(p, f, d))
            continue;
        while (is_linked(p, f, end) && alike(&f->rates[d], &f->rates[end]))
            end++;
        writer_printf(to, "%s", head);
        say_run(p, f, d, end, to);
        head = "          ";
    }
}

void plan_print_network(const pl_plan *p, const struct plan_facts *f,
                        const struct sink *to)
{
    for (int d = 0; d < f->n_dev; d++) {
        struct cost_link x = to_host(f, d);

        if (p->compiled->list.dev[d].machine == 0)
            continue;
        writer_printf(to, " network=%.3gGB/s network-latency=%.3gus",
                      x.bytes_per_s * 1e-9, x.latency_s * 1e6);
        return;
    }
}

void plan_put_links(const pl_plan *p, const struct plan_facts *f,
                    struct json_out *j)
{
    static const char form[] = "{from:s to:s bytes_per_s:f latency_s:f}";
    const struct device_desc *dev = p->compiled->list.dev;

    for (int d = 0; d < f->n_dev; d++) {
        struct cost_link x = to_host(f, d);

        if (!is_linked(p, f, d))
            continue;
        json_put(j, form, dev[d].name, "host", x.bytes_per_s, x.latency_s);
        for (int e = d + 1; e < f->n_dev; e++) {
            x = cost_link_of(&f->rates[d], &f->rates[e]);
            if (is_linked(p, f, e))
                json_put(j, form, dev[d].name, dev[e].name, x.bytes_per_s,
                         x.latency_s);
        }
    }
}
