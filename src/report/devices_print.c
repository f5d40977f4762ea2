/* Implements pl_devices_print, which prints the devices of this machine and
 * what some device options mean here, and pl_host_memory. */
#include "base/err.h"
#include "device/device.h"
#include "machine/topology.h"
#include "report/devices_gpus.h"
#include "report/writer.h"

#include <stdio.h>

/* Writes the numbers of a device's processors to `buf`, such as "0-3,8",
 * truncated to fit. Returns `buf`. */
static const char *cores(const struct device_desc *d, char buf[64])
{
    size_t n = 0;

    buf[0] = '\0';
    for (int i = 0, end; i < d->n_core && n < 48; i = end + 1) {
        end = i;
        while (end + 1 < d->n_core && d->core[end + 1] == d->core[end] + 1)
            end++;
        n +=
            (size_t)snprintf(buf + n, 64 - n, "%s%d", n ? "," : "", d->core[i]);
        if (end > i)
            n += (size_t)snprintf(buf + n, 64 - n, "-%d", d->core[end]);
        if (n >= 48 && end + 1 < d->n_core)
            snprintf(buf + n, 64 - n, "...");
    }
    return buf;
}

static const char *const examples[] = {"cpu", "cpu*2", "proc*2"};
enum { N_EXAMPLE = sizeof examples / sizeof examples[0] };

static void say_example(const struct sink *to, const char *spec,
                        const struct device_list *l)
{
    char buf[64];

    writer_printf(to, "-dev '%s'\n", spec);
    for (int i = 0; i < l->n; i++) {
        const struct device_desc *d = &l->dev[i];

        writer_printf(to, "  %-6s %d thread%s on core%s %s", d->name,
                      d->n_thread, d->n_thread > 1 ? "s" : "",
                      d->n_core > 1 ? "s" : "", cores(d, buf));
        if (d->numa_node >= 0)
            writer_printf(to, ", node %d", d->numa_node);
        writer_printf(to, "\n");
    }
}

static void print_text(const struct sink *to, const struct topology *t,
                       const struct gpus *g, const struct device_list *l)
{
    char buf[200];

    topology_list_cpus(t, buf, sizeof buf);
    writer_printf(to, "nodes     %d\ncores     %d", t->n_node, t->n_core);
    if (t->n_core_quota < t->n_core)
        writer_printf(to, ", CPU quota of %d", t->n_core_quota);
    writer_printf(to, "; processors %s\nmemory    %s bytes, %s available now\n",
                  buf, size_text(t->memory_bytes).s,
                  size_text(t->available_bytes).s);
    for (int i = 0; i < t->n_node && t->n_node > 1; i++)
        writer_printf(to, "  node %-3d %d cores, %s bytes, %s available now\n",
                      t->node[i].os, t->node[i].n_core,
                      size_text(t->node[i].memory_bytes).s,
                      size_text(t->node[i].available_bytes).s);
    writer_printf(to, "kernels  ");
    for (int f = 0; f < KERNEL_SET_COUNT; f++)
        if (kernel_set_runs(f))
            writer_printf(to, " %s%s", kernel_set_name(f),
                          f == (int)kernel_set_best() ? " (used)" : "");
    writer_printf(to, "\n");
    gpus_say(g, to);
    for (int i = 0; i < N_EXAMPLE; i++)
        say_example(to, examples[i], &l[i]);
}

static void print_json(const struct sink *to, const struct topology *t,
                       const struct gpus *g, const struct device_list *l)
{
    struct json_out j = {.to = to};
    char cpus[200];

    json_put(&j, "{nodes:[");
    for (int i = 0; i < t->n_node; i++)
        json_put(&j, "{node:i cores:i memory:I available:I}", t->node[i].os,
                 t->node[i].n_core, t->node[i].memory_bytes,
                 t->node[i].available_bytes);
    topology_list_cpus(t, cpus, sizeof cpus);
    json_put(
        &j, "] cores:i quota:i processors:s memory:I available:I kernels:[",
        t->n_core, t->n_core_quota, cpus, t->memory_bytes, t->available_bytes);
    for (int f = 0; f < KERNEL_SET_COUNT; f++)
        if (kernel_set_runs(f))
            json_put(&j, "s", kernel_set_name(f));
    json_put(&j, "] best:s", kernel_set_name(kernel_set_best()));
    gpus_put(g, &j);
    json_put(&j, "devices:{");
    for (int i = 0; i < N_EXAMPLE; i++) {
        json_put(&j, "*:[", examples[i]);
        for (int n = 0; n < l[i].n; n++) {
            const struct device_desc *d = &l[i].dev[n];

            json_put(&j, "{name:s threads:i node:i cores:[", d->name,
                     d->n_thread, d->numa_node);
            for (int k = 0; k < d->n_core; k++)
                json_put(&j, "i", d->core[k]);
            json_put(&j, "] memory:I available:I}", d->memory_bytes,
                     d->available_bytes);
        }
        json_put(&j, "]");
    }
    json_put(&j, "}}");
}

pl_status pl_host_memory(uint64_t *all, uint64_t *available, pl_err *err)
{
    const struct topology *t;

    PL_CLEAR(all);
    PL_CLEAR(available);
    PL_TRY(topology_open(&t, err));
    if (all)
        *all = t->memory_bytes;
    if (available)
        *available = t->available_bytes;
    topology_drop(t);
    return PL_OK;
}

pl_status pl_devices_print(bool json, pl_write_fn *write, void *user,
                           pl_err *err)
{
    struct sink to = {write, user};
    struct topology t = {0};
    struct device_list l[N_EXAMPLE] = {{0}};
    struct gpus *g;
    pl_status s;

    PL_NEED(write, err);
    s = topology_load(&t, err);
    for (int i = 0; i < N_EXAMPLE && s == PL_OK; i++)
        s = device_parse(&l[i], examples[i], 0, err);
    g = s == PL_OK ? gpus_find() : NULL;
    if (s == PL_OK && !g)
        s = err_no_memory(err, "the list of GPUs");
    if (s == PL_OK)
        (json ? print_json : print_text)(&to, &t, g, l);
    gpus_free(g);
    for (int i = 0; i < N_EXAMPLE; i++)
        device_list_free(&l[i]);
    topology_fini(&t);
    return s;
}
