/* Implements pl_machines_print: the machines of a job, their devices, and the
 * networks between them. */
#include "base/err.h"
#include "device/machines.h"
#include "report/writer.h"

#include "pl_machines.h"

static const char *const sources[LINK_SOURCES] = {
    [LINK_ASSUMED] = "assumed",
    [LINK_MEASURED] = "measured",
    [LINK_STATED] = "stated",
};

static const struct machine_link *link_of(const pl_machines *m, int a, int b)
{
    return &m->link[a * m->net->n_machine + b];
}

static void print_text(const pl_machines *m, const struct sink *to)
{
    bool measured = true;

    for (int k = 0; k < m->net->n_machine; k++) {
        const char *before = ":";

        writer_printf(to, "machine %d  %s", k, m->name[k]);
        for (int d = 0; d < m->n_dev; d++)
            if (m->dev[d].machine == k) {
                writer_printf(to, "%s %s", before, m->dev[d].name);
                before = ",";
            }
        writer_printf(to, "\n");
    }
    for (int a = 0; a < m->net->n_machine; a++)
        for (int b = a + 1; b < m->net->n_machine; b++) {
            const struct machine_link *x = link_of(m, a, b);

            writer_printf(to, "network    %d to %d: %.3g GB/s, %.3g us, %s\n",
                          a, b, x->bytes_per_s * 1e-9, x->latency_s * 1e6,
                          sources[x->source]);
            measured &= x->source == LINK_MEASURED;
        }
    if (measured)
        writer_printf(to, "%s\n",
                      m->links_kept ? "saved for later plans"
                                    : "not saved for later plans");
}

static void print_json(const pl_machines *m, const struct sink *to)
{
    struct json_out j = {.to = to};

    json_put(&j, "{machines:[");
    for (int k = 0; k < m->net->n_machine; k++) {
        json_put(&j, "{machine:i name:s devices:[", k, m->name[k]);
        for (int d = 0; d < m->n_dev; d++)
            if (m->dev[d].machine == k)
                json_put(&j, "s", m->dev[d].name);
        json_put(&j, "]}");
    }
    json_put(&j, "] networks:[");
    for (int a = 0; a < m->net->n_machine; a++)
        for (int b = a + 1; b < m->net->n_machine; b++) {
            const struct machine_link *x = link_of(m, a, b);

            json_put(&j, "{from:i to:i bytes_per_s:f latency_s:f source:s}", a,
                     b, x->bytes_per_s, x->latency_s, sources[x->source]);
        }
    json_put(&j, "] saved:b}", m->links_kept);
}

pl_status pl_machines_print(const pl_machines *m, bool json, pl_write_fn *write,
                            void *user, pl_err *err)
{
    const struct sink to = {write, user};

    PL_NEED(m, err);
    PL_NEED(write, err);
    if (!m->link)
        return err_set(err, PL_BAD_ARGUMENT,
                       "machine %d does not know the others; ask machine 0",
                       m->net->machine);
    if (json)
        print_json(m, &to);
    else
        print_text(m, &to);
    return PL_OK;
}
