/* Selects the processors (hardware threads) on which the threads of cpu devices
 * and of the host device run. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "device/cpu/cpu_device.h"
#include "device/device_spec.h"

enum { CORE_MAX = sizeof((struct device_desc *)0)->core / sizeof(int) };

/* Adds one device to the list *l. Its threads will be pinned to the n
 * processors (hardware threads) list[0 .. n - 1]. */
static pl_status add_cpu(struct device_list *l, const struct topology *t,
                         const struct topology_cpu *list, int n, int n_thread,
                         const struct device_item *it, pl_err *err)
{
    struct device_desc d = {
        .ops = &cpu_ops, .memory = 0, .one_queue = true, .on_cores = true};

    d.n_core = n < CORE_MAX ? n : CORE_MAX;
    d.numa_node = t->node[list[0].node].os;
    d.memory_bytes = t->node[list[0].node].memory_bytes;
    d.available_bytes = t->node[list[0].node].available_bytes;
    for (int i = 0; i < d.n_core; i++) {
        d.core[i] = list[i].os;
        if (list[i].node != list[0].node)
            d.numa_node = -1;
    }
    if (d.numa_node < 0) {
        d.memory_bytes = t->memory_bytes;
        d.available_bytes = t->available_bytes;
    }
    d.n_thread = n_thread > 0 ? n_thread : d.n_core;
    return device_list_append(l, &d, it, err);
}

/* Divides `len` items into n parts of similar size and describes part i: *first
 * is its first item, *count the number of its items, at least 1. If n > len,
 * some adjacent parts consist of the same item. */
static void part(int len, int n, int i, int *first, int *count)
{
    *first = (int)((int64_t)len * i / n);
    *count = (int)((int64_t)len * (i + 1) / n) - *first;
    if (*count == 0)
        *count = 1;
}

/* Adds n_dev devices to *l, which divide the processors list[0 .. n - 1] among
 * them. The processors are sorted by NUMA node. If there are at least as many
 * devices as nodes, no device spans two nodes: each node gets one device, and
 * each further device goes to the node with the most cores per device. */
static pl_status share(struct device_list *l, const struct topology *t,
                       const struct topology_cpu *list, int n, int n_dev,
                       int n_thread, const struct device_item *it, pl_err *err)
{
    pl_status s = PL_OK;
    int n_node = 0;
    struct {
        int first, n, n_dev;
    } *node = calloc((size_t)n, sizeof *node);

    if (!node)
        return err_no_memory(err, "the list of devices");
    for (int i = 0; i < n; i++) {
        if (i == 0 || list[i].node != list[i - 1].node)
            node[n_node++].first = i;
        node[n_node - 1].n++;
    }
    /* If there are fewer devices than NUMA nodes, devices must span nodes, so
     * all cores are treated as one node. */
    if (n_dev < n_node) {
        node[0].n = n;
        n_node = 1;
    }
    for (int d = 0; d < n_dev; d++) {
        int best = 0;

        /* Finds the node with the most cores per device, if it got device d as
         * well. */
        for (int k = 1; k < n_node; k++)
            if (node[k].n_dev == 0
                    ? node[best].n_dev > 0
                    : (int64_t)node[k].n * (node[best].n_dev + 1) >
                          (int64_t)node[best].n * (node[k].n_dev + 1))
                best = k;
        node[best].n_dev++;
    }
    for (int k = 0; k < n_node && s == PL_OK; k++)
        for (int d = 0; d < node[k].n_dev && s == PL_OK; d++) {
            int first, count;

            part(node[k].n, node[k].n_dev, d, &first, &count);
            s = add_cpu(l, t, list + node[k].first + first, count, n_thread, it,
                        err);
        }
    free(node);
    return s;
}

/* Writes the first hardware thread of every core to `list`, and returns their
 * number. If the container's CPU quota allows fewer cores, takes only that
 * many, evenly spaced so that every NUMA node has some. */
static int default_cores(const struct topology *t, struct topology_cpu *list)
{
    int n = 0;

    for (int i = 0; i < t->n_cpu; i++)
        if (i == 0 || t->cpu[i].core != t->cpu[i - 1].core)
            list[n++] = t->cpu[i];
    if (t->n_core_quota < n) {
        for (int i = 0; i < t->n_core_quota; i++)
            list[i] = list[(int64_t)n * i / t->n_core_quota];
        n = t->n_core_quota;
    }
    return n;
}

/* Parses it->field, a list of processor numbers such as "0-3+8-11". Writes the
 * processors to list[0 .. *n - 1], sorted by NUMA node. */
static pl_status listed_cores(const struct topology *t,
                              struct topology_cpu *list, int *n,
                              const struct device_item *it, pl_err *err)
{
    const char *p = it->field;
    bool *used = calloc((size_t)t->n_cpu, 1);
    char may[200], shown[ERR_SHOWN];
    pl_status s = PL_OK;

    if (!used)
        return err_no_memory(err, "the list of devices");
    topology_list_cpus(t, may, sizeof may);
    *n = 0;
    for (;;) {
        long lo, hi;
        char *end;

        if (!isdigit((unsigned char)*p))
            goto malformed;
        lo = hi = strtol(p, &end, 10);
        if (*end == '-') {
            p = end + 1;
            if (!isdigit((unsigned char)*p))
                goto malformed;
            hi = strtol(p, &end, 10);
        }
        if (hi < lo || hi > 1 << 20) {
            s = device_item_bad(it, err, "%ld-%ld is not a range of cores", lo,
                                hi);
            goto done;
        }
        for (long os = lo; os <= hi; os++) {
            int i = topology_find_cpu(t, (int)os);

            if (i < 0) {
                s = device_item_bad(
                    it, err, "this process may not use core %ld, only %s", os,
                    may);
                goto done;
            }
            used[i] = true;
        }
        p = end;
        if (p == it->end)
            break;
        if (*p != '+')
            goto malformed;
        p++;
    }
    for (int i = 0; i < t->n_cpu; i++)
        if (used[i])
            list[(*n)++] = t->cpu[i];
    goto done;
malformed:
    s = device_item_bad(
        it, err, "\"%s\" is not a list of cores like 0-3+8-11",
        err_shown(shown, it->field, (size_t)(it->end - it->field)));
done:
    free(used);
    return s;
}

pl_status cpu_describe(struct device_list *l, const struct device_item *it,
                       pl_err *err)
{
    const struct topology *t = it->topology;
    struct topology_cpu *list = malloc((size_t)t->n_cpu * sizeof *list);
    pl_status s = PL_OK;
    int n = 0, n_dev = it->count;

    if (!list)
        return err_no_memory(err, "the list of devices");
    if (it->field < it->end) {
        s = listed_cores(t, list, &n, it, err);
        if (n_dev == 0)
            n_dev = 1;
    } else {
        n = default_cores(t, list);
        for (int i = 0; i < n && it->count == 0; i++)
            n_dev += i == 0 || list[i].node != list[i - 1].node;
    }
    if (s == PL_OK)
        s = share(l, t, list, n, n_dev, it->n_thread, it, err);
    free(list);
    return s;
}

pl_status cpu_add_host(struct device_list *l, int n_rank, int n_thread,
                       const struct topology *t, pl_err *err)
{
    const struct device_item it = {
        .text = "host", .len = 4, .name = "host", .accepted = ""};
    struct topology_cpu *list = malloc((size_t)t->n_cpu * sizeof *list);
    int n, n_cpu = 0, n_node = 0, first = l->n;
    pl_status s;

    if (!list)
        return err_no_memory(err, "the list of devices");
    n = default_cores(t, list);
    for (int i = 0; i < n; i++)
        n_node += i == 0 || list[i].node != list[i - 1].node;
    for (int i = 0; i < l->n; i++)
        n_cpu += l->dev[i].on_cores && l->dev[i].machine == 0;
    s = share(l, t, list, n, n_rank % n_node ? 1 : n_node, 0, &it, err);
    free(list);
    for (int i = first; i < l->n; i++) {
        struct device_desc *d = &l->dev[i];
        int64_t most = n_thread;

        d->host = true;
        if (n_cpu > 0)
            most = most * n_cpu / (l->n - first);
        if (n_thread > 0 && most < d->n_thread)
            d->n_thread = most > 0 ? (int)most : 1;
    }
    if (s == PL_OK && l->n == first + 1)
        strcpy(l->dev[first].name, "host");
    return s;
}
