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
    char buf[200], size[16], now[16];

    topology_list_cpus(t, buf, sizeof buf);
    writer_printf(to, "nodes     %d\ncores     %d", t->n_node, t->n_core);
    if (t->n_core_quota < t->n_core)
        writer_printf(to, ", CPU quota of %d", t->n_core_quota);
    writer_printf(to, "; processors %s\nmemory    %s bytes, %s available now\n",
                  buf, sink_size(size, t->memory_bytes),
                  sink_size(now, t->available_bytes));
    for (int i = 0; i < t->n_node && t->n_node > 1; i++)
        writer_printf(to, "  node %-3d %d cores, %s bytes, %s available now\n",
                      t->node[i].os, t->node[i].n_core,
                      sink_size(size, t->node[i].memory_bytes),
                      sink_size(now, t->node[i].available_bytes));
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

static json_t *json_nodes(const struct topology *t)
{
    json_t *all = json_array();
    bool ok = true;

    for (int i = 0; i < t->n_node; i++)
        ok &=
            json_array_append_new(
                all, json_pack("{s:i, s:i, s:I, s:I}", "node", t->node[i].os,
                               "cores", t->node[i].n_core, "memory",
                               (json_int_t)t->node[i].memory_bytes, "available",
                               (json_int_t)t->node[i].available_bytes)) == 0;
    if (ok)
        return all;
    json_decref(all);
    return NULL;
}

static json_t *json_kernels(void)
{
    json_t *all = json_array();
    bool ok = true;

    for (int f = 0; f < KERNEL_SET_COUNT; f++)
        if (kernel_set_runs(f))
            ok &= json_array_append_new(all, json_string(kernel_set_name(f))) ==
                  0;
    if (ok)
        return all;
    json_decref(all);
    return NULL;
}

static json_t *json_device(const struct device_desc *d)
{
    json_t *list = json_array();
    bool ok = true;

    for (int i = 0; i < d->n_core; i++)
        ok &= json_array_append_new(list, json_integer(d->core[i])) == 0;
    if (!ok) {
        json_decref(list);
        list = NULL;
    }
    return json_pack("{s:s, s:i, s:i, s:o, s:I, s:I}", "name", d->name,
                     "threads", d->n_thread, "node", d->numa_node, "cores",
                     list, "memory", (json_int_t)d->memory_bytes, "available",
                     (json_int_t)d->available_bytes);
}

static json_t *json_examples(const struct device_list *l)
{
    json_t *all = json_object();
    bool ok = true;

    for (int i = 0; i < N_EXAMPLE; i++) {
        json_t *list = json_array();

        for (int d = 0; d < l[i].n; d++)
            ok &= json_array_append_new(list, json_device(&l[i].dev[d])) == 0;
        ok &= json_object_set_new(all, examples[i], list) == 0;
    }
    if (ok)
        return all;
    json_decref(all);
    return NULL;
}

static pl_status print(bool json, const struct topology *t,
                       const struct gpus *g, const struct device_list *l,
                       const struct sink *to, pl_err *err)
{
    char cpus[200];

    if (!json) {
        print_text(to, t, g, l);
        return PL_OK;
    }
    topology_list_cpus(t, cpus, sizeof cpus);
    return sink_json(
        to,
        json_pack("{s:o, s:i, s:i, s:s, s:I, s:I, s:o, s:s, s:o, s:o, s:o}",
                  "nodes", json_nodes(t), "cores", t->n_core, "quota",
                  t->n_core_quota, "processors", cpus, "memory",
                  (json_int_t)t->memory_bytes, "available",
                  (json_int_t)t->available_bytes, "kernels", json_kernels(),
                  "best", kernel_set_name(kernel_set_best()), "gpus",
                  gpus_json(g), "drivers", gpus_json_drivers(g), "devices",
                  json_examples(l)),
        "the description of this machine", err);
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
    if (s == PL_OK)
        s = g ? print(json, &t, g, l, &to, err)
              : err_no_memory(err, "the list of GPUs");
    gpus_free(g);
    for (int i = 0; i < N_EXAMPLE; i++)
        device_list_free(&l[i]);
    topology_fini(&t);
    return s;
}
