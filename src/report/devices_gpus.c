/* Lists the GPUs that the drivers of this machine report: their names and
 * properties, and for a GPU that cannot be used the reason. For a driver that
 * does not work, prints the reason instead. */
#include "report/devices_gpus.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/device_ops.h"
#include "device/listed_gpu.h"

static const char *const feature_name[GPU_FEATURES] = {
    [GPU_DOT4] = "dot4",
    [GPU_MMA] = "mma",
    [GPU_MAPS] = "mapped host memory",
    [GPU_WORDS] = "stream words",
};

struct gpus {
    int n_driver;
    struct driver {
        const char *name;
        char lacks[512]; /* the reason why the driver does not work; "" if it
                            works */
        int n;
        struct gpu_info gpu[GPU_LIST_MAX];
    } driver[];
};

struct gpus *gpus_find(void)
{
    int n = 0;
    struct gpus *g;

    for (int i = 0; device_backends[i]; i++)
        n += device_backends[i]->show != NULL;
    g = calloc(1, sizeof *g + (size_t)n * sizeof g->driver[0]);
    for (int i = 0; g && device_backends[i]; i++) {
        const struct backend_ops *ops = device_backends[i];
        struct driver *d = &g->driver[g->n_driver];
        pl_err err;

        if (!ops->show)
            continue;
        g->n_driver++;
        d->name = ops->name;
        if (ops->show(ops, d->gpu, GPU_LIST_MAX, &d->n, &err) != PL_OK)
            snprintf(d->lacks, sizeof d->lacks, "%.500s", err.message);
    }
    return g;
}

void gpus_free(struct gpus *g)
{
    free(g);
}

/* Writes the name of the driver's GPU `index`, such as "cuda:0". */
static const char *item_text(char buf[32], const struct driver *d, int index)
{
    snprintf(buf, 32, "%.16s:%d", d->name, index);
    return buf;
}

/* Writes the device name, such as "cuda:0", under which an earlier driver of
 * the list has the same GPU as x to `buf`. Returns false if no earlier driver
 * has it. */
static bool same(const struct gpus *g, const struct gpu_info *x, char buf[32])
{
    for (int i = 0; i < g->n_driver; i++)
        for (int k = 0; k < g->driver[i].n; k++) {
            const struct gpu_info *y = &g->driver[i].gpu[k];

            if (x == y)
                return false;
            if (x->bus[0] && strcmp(x->bus, y->bus) == 0) {
                item_text(buf, &g->driver[i], y->index);
                return true;
            }
        }
    return false;
}

/* ---- printing GPUs as text ----------------------------------------------- */

/* Prints the total memory of a GPU, and the available memory if its driver
 * reports that. */
static void say_memory(const struct sink *to, const struct gpu_info *x)
{
    if (!x->total_bytes)
        return;
    writer_printf(to, ", %s bytes", size_text(x->total_bytes).s);
    if (!x->why[0] && x->available_bytes && x->available_bytes < x->total_bytes)
        writer_printf(to, ", %s available now",
                      size_text(x->available_bytes).s);
    if (x->largest_bytes && x->largest_bytes < x->total_bytes)
        writer_printf(to, ", %s in one piece", size_text(x->largest_bytes).s);
}

/* Prints the GPUs whose memory GPU x can access directly, as the driver
 * reports. When a model is loaded, each such pair is tested before the device
 * uses it. */
static void say_peers(const struct driver *d, const struct gpu_info *x,
                      const struct sink *to)
{
    const char *before = ", peer access to ";
    char item[32];

    for (int i = 0; i < GPU_LIST_MAX; i++)
        if (x->peers >> i & 1) {
            writer_printf(to, "%s%s", before, item_text(item, d, i));
            before = " ";
        }
}

static void say_has(const struct driver *d, const struct gpu_info *x,
                    const struct sink *to)
{
    writer_printf(to, "            %d units", x->n_unit);
    say_memory(to, x);
    for (int f = 0; f < GPU_FEATURES; f++)
        if (x->has >> f & 1)
            writer_printf(to, ", %s", feature_name[f]);
    say_peers(d, x, to);
    writer_printf(to, "\n");
}

static void say_gpu(const struct gpus *g, const struct driver *d,
                    const struct gpu_info *x, const struct sink *to)
{
    char item[32], other[32];

    writer_printf(to, "  %-9s %s", item_text(item, d, x->index),
                  x->title[0] ? x->title : "?");
    if (x->bus[0])
        writer_printf(to, ", %s", x->bus);
    if (x->version[0])
        writer_printf(to, ", %s", x->version);
    if (x->on_cores)
        writer_printf(to, ", runs on this machine's processors");
    if (same(g, x, other))
        writer_printf(to, ", same GPU as %s", other);
    writer_printf(to, "\n");
    if (x->n_unit > 0)
        say_has(d, x, to);
    if (x->why[0])
        writer_printf(to, "            cannot be used: %s\n", x->why);
}

void gpus_say(const struct gpus *g, const struct sink *to)
{
    int n = 0;

    for (int i = 0; i < g->n_driver; i++)
        n += g->driver[i].n;
    writer_printf(to, "gpus%s\n", n > 0 ? "" : "      none");
    for (int i = 0; i < g->n_driver; i++) {
        const struct driver *d = &g->driver[i];

        for (int k = 0; k < d->n; k++)
            say_gpu(g, d, &d->gpu[k], to);
        if (d->lacks[0])
            writer_printf(to, "  %-9s %s\n", d->name, d->lacks);
    }
}

/* ---- printing GPUs as JSON ----------------------------------------------- */

void gpus_put(const struct gpus *g, struct json_out *j)
{
    char text[32];

    json_put(j, "gpus:[");
    for (int i = 0; i < g->n_driver; i++)
        for (int k = 0; k < g->driver[i].n; k++) {
            const struct driver *d = &g->driver[i];
            const struct gpu_info *x = &d->gpu[k];

            item_text(text, d, x->index);
            json_put(j,
                     "{device:s name:S bus:S version:S units:i memory:I"
                     " available:",
                     text, x->title, x->bus, x->version, x->n_unit,
                     x->total_bytes);
            if (x->why[0])
                json_put(j, "n");
            else
                json_put(j, "I", x->available_bytes);
            json_put(j, "largest:I features:[", x->largest_bytes);
            for (int f = 0; f < GPU_FEATURES; f++)
                if (x->has >> f & 1)
                    json_put(j, "s", feature_name[f]);
            json_put(j, "] peers:[");
            for (int p = 0; p < GPU_LIST_MAX; p++)
                if (x->peers >> p & 1)
                    json_put(j, "s", item_text(text, d, p));
            text[0] = '\0';
            same(g, x, text);
            json_put(j, "] processors:b same_as:S why:S}", x->on_cores, text,
                     x->why);
        }
    json_put(j, "] drivers:{");
    for (int i = 0; i < g->n_driver; i++)
        json_put(j, "*:S", g->driver[i].name, g->driver[i].lacks);
    json_put(j, "}");
}
