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
                snprintf(buf, 32, "%.16s:%d", g->driver[i].name, y->index);
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
    char size[16];

    if (!x->total_bytes)
        return;
    writer_printf(to, ", %s bytes", sink_size(size, x->total_bytes));
    if (!x->why[0] && x->available_bytes && x->available_bytes < x->total_bytes)
        writer_printf(to, ", %s available now",
                      sink_size(size, x->available_bytes));
    if (x->largest_bytes && x->largest_bytes < x->total_bytes)
        writer_printf(to, ", %s in one piece",
                      sink_size(size, x->largest_bytes));
}

/* Prints the GPUs whose memory GPU x can access directly, as the driver
 * reports. When a model is loaded, each such pair is tested before the device
 * uses it. */
static void say_peers(const struct driver *d, const struct gpu_info *x,
                      const struct sink *to)
{
    bool any = false;

    for (int i = 0; i < GPU_LIST_MAX; i++)
        if (x->peers >> i & 1) {
            writer_printf(to, "%s%.16s:%d", any ? " " : ", peer access to ",
                          d->name, i);
            any = true;
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

    snprintf(item, sizeof item, "%.16s:%d", d->name, x->index);
    writer_printf(to, "  %-9s %s", item, x->title[0] ? x->title : "?");
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

/* Returns `s` as a JSON string, or JSON null if it is empty. Invalid UTF-8,
 * which strings from drivers may contain, is replaced by U+FFFD. */
static json_t *text_or_null(const char *s)
{
    return s[0] ? sink_json_text(s, strlen(s)) : json_null();
}

static json_t *json_features(const struct gpu_info *x)
{
    json_t *all = json_array();
    bool ok = true;

    for (int f = 0; f < GPU_FEATURES; f++)
        if (x->has >> f & 1)
            ok &= json_array_append_new(all, json_string(feature_name[f])) == 0;
    if (ok)
        return all;
    json_decref(all);
    return NULL;
}

static json_t *json_peers(const struct driver *d, const struct gpu_info *x)
{
    json_t *all = json_array();
    bool ok = true;

    for (int i = 0; i < GPU_LIST_MAX; i++)
        if (x->peers >> i & 1)
            ok &= json_array_append_new(
                      all, json_sprintf("%.16s:%d", d->name, i)) == 0;
    if (ok)
        return all;
    json_decref(all);
    return NULL;
}

static json_t *json_gpu(const struct gpus *g, const struct driver *d,
                        const struct gpu_info *x)
{
    char item[32], other[32] = "";

    snprintf(item, sizeof item, "%.16s:%d", d->name, x->index);
    same(g, x, other);
    return json_pack(
        "{s:s, s:o, s:o, s:o, s:i, s:I, s:o, s:I, s:o, s:o, s:b, s:o, s:o}",
        "device", item, "name", text_or_null(x->title), "bus",
        text_or_null(x->bus), "version", text_or_null(x->version), "units",
        x->n_unit, "memory", (json_int_t)x->total_bytes, "available",
        x->why[0] ? json_null() : json_integer((json_int_t)x->available_bytes),
        "largest", (json_int_t)x->largest_bytes, "features", json_features(x),
        "peers", json_peers(d, x), "processors", x->on_cores, "same_as",
        text_or_null(other), "why", text_or_null(x->why));
}

json_t *gpus_json(const struct gpus *g)
{
    json_t *all = json_array();
    bool ok = true;

    for (int i = 0; i < g->n_driver; i++)
        for (int k = 0; k < g->driver[i].n; k++)
            ok &=
                json_array_append_new(
                    all, json_gpu(g, &g->driver[i], &g->driver[i].gpu[k])) == 0;
    if (ok)
        return all;
    json_decref(all);
    return NULL;
}

json_t *gpus_json_drivers(const struct gpus *g)
{
    json_t *all = json_object();
    bool ok = true;

    for (int i = 0; i < g->n_driver; i++)
        ok &= json_object_set_new(all, g->driver[i].name,
                                  text_or_null(g->driver[i].lacks)) == 0;
    if (ok)
        return all;
    json_decref(all);
    return NULL;
}
