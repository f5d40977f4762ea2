/* Collects and prints the networks between the machines of a plan, and what
 * crosses them. */
#include "report/plan_network.h"

#include "base/err.h"
#include "program/program_messages.h"

/* Most pairs of machines that are printed as text. */
enum { MOST_PAIRS = 12 };

static const char *const sources[LINK_SOURCES] = {
    [LINK_ASSUMED] = "assumed",
    [LINK_MEASURED] = "measured",
    [LINK_STATED] = "stated",
};

/* ---- what crosses -------------------------------------------------------- */

static void add_span(void *user, size_t offset, size_t bytes)
{
    (void)offset;
    ((struct plan_crossing *)user)->bytes += bytes;
}

/* Adds the messages of a channel in a step of one token. */
static void add_channel(const struct messages *m,
                        const struct message_channel *c,
                        const struct graph_sizes *one, struct plan_crossing *x)
{
    const struct insn *insn = m->prog[c->dev].variant[m->variant].insn;
    struct message_cursor at = {0};
    struct sent_message s;

    while (message_next(m, c, &at, 1, one, &s)) {
        x->n_message++;
        for (int i = s.first; i < s.end; i++) {
            const struct message_part *y = &c->part[i];

            if (insn_enabled(&insn[y->insn], 1, one) &&
                message_page_words(m, c, y) == 0)
                message_spans(m, c, y, one, NULL, add_span, x);
        }
    }
}

pl_status plan_find_crossings(struct plan_facts *f, const pl_plan *p,
                              pl_err *err)
{
    const struct compiled *q = p->compiled;
    const struct graph_sizes one = graph_sizes_of(&q->max, 1, 1, 1);
    size_t n = (size_t)q->list.n;
    int *machine = arena_alloc(&f->arena, n, sizeof *machine);
    struct messages m;

    f->n_machine = 1;
    for (size_t d = 0; machine && d < n; d++) {
        machine[d] = q->list.dev[d].machine;
        if (machine[d] >= f->n_machine)
            f->n_machine = machine[d] + 1;
    }
    if (f->n_machine == 1 && machine)
        return PL_OK;
    f->crossing =
        arena_alloc(&f->arena, (size_t)f->n_machine * (size_t)f->n_machine,
                    sizeof *f->crossing);
    if (!machine || !f->crossing)
        return err_no_memory(err, "the description of a plan");
    PL_TRY(messages_create(&m, q->low->prog, q->list.n, machine,
                           q->variant[VARIANT_RESIDENT], &f->arena, err));
    for (int i = 0; i < m.n; i++)
        add_channel(&m, &m.channel[i], &one,
                    &f->crossing[machine[m.channel[i].dev] * f->n_machine +
                                 m.channel[i].machine]);
    return PL_OK;
}

/* ---- the networks -------------------------------------------------------- */

/* Returns the first device of a machine; -1 if it has none. */
static int first_on(const pl_plan *p, const struct plan_facts *f, int machine)
{
    for (int d = 0; d <= f->n_dev; d++)
        if (p->compiled->list.dev[d].machine == machine)
            return d;
    return -1;
}

/* Sets *x to the network between machines a and b. Returns false if one of them
 * has no device. */
static bool network_between(const pl_plan *p, const struct plan_facts *f, int a,
                            int b, struct cost_link *x)
{
    int d = first_on(p, f, a), e = first_on(p, f, b);

    if (d < 0 || e < 0)
        return false;
    *x = cost_link_of(&f->rates[d], &f->rates[e]);
    return true;
}

static const struct plan_crossing *crossing(const struct plan_facts *f, int a,
                                            int b)
{
    return &f->crossing[a * f->n_machine + b];
}

static void say_crossing(const struct sink *to, const char *before,
                         const struct plan_crossing *x)
{
    writer_printf(to, "%s%d message%s of %s bytes", before, x->n_message,
                  x->n_message == 1 ? "" : "s", size_text(x->bytes).s);
}

static void say_machines(const pl_plan *p, const struct plan_facts *f,
                         const struct sink *to)
{
    const struct device_desc *dev = p->compiled->list.dev;

    writer_printf(to, "machines ");
    for (int k = 0; k < f->n_machine && k < MOST_PAIRS; k++) {
        int n = 0;

        for (int d = 0; d < f->n_dev; d++)
            n += dev[d].machine == k && !dev[d].host;
        writer_printf(to, "%s %d: %d device%s", k ? ";" : "", k, n,
                      n == 1 ? "" : "s");
    }
    if (f->n_machine > MOST_PAIRS)
        writer_printf(to, "; and %d more", f->n_machine - MOST_PAIRS);
    writer_printf(to, "\n");
}

void plan_print_networks(const pl_plan *p, const struct plan_facts *f,
                         const struct sink *to)
{
    const char *head = "network   ";
    int n = 0;

    if (f->n_machine == 1)
        return;
    say_machines(p, f, to);
    for (int a = 0; a < f->n_machine; a++)
        for (int b = a + 1; b < f->n_machine; b++) {
            struct cost_link x;
            bool used = crossing(f, a, b)->n_message > 0 ||
                        crossing(f, b, a)->n_message > 0;

            if (!used || !network_between(p, f, a, b, &x) || n++ >= MOST_PAIRS)
                continue;
            writer_printf(to, "%s%d to %d: %.3g GB/s, %.3g us, %s", head, a, b,
                          x.bytes_per_s * 1e-9, x.latency_s * 1e6,
                          sources[x.source]);
            say_crossing(to, "; a token ", crossing(f, a, b));
            say_crossing(to, ", back ", crossing(f, b, a));
            writer_printf(to, "\n");
            head = "          ";
        }
    if (n == 0)
        writer_printf(to, "network   unused\n");
    else if (n > MOST_PAIRS)
        writer_printf(to, "          and between %d more pairs\n",
                      n - MOST_PAIRS);
}

void plan_put_networks(const pl_plan *p, const struct plan_facts *f,
                       struct json_out *j)
{
    for (int a = 0; a < f->n_machine; a++)
        for (int b = 0; b < f->n_machine; b++) {
            struct cost_link x;

            if (a == b || !network_between(p, f, a, b, &x))
                continue;
            json_put(j,
                     "{from:i to:i bytes_per_s:f latency_s:f source:s"
                     " messages_per_token:i bytes_per_token:I}",
                     a, b, x.bytes_per_s, x.latency_s, sources[x.source],
                     crossing(f, a, b)->n_message, crossing(f, a, b)->bytes);
        }
}
