/* Chooses the GPUs of a -dev item: finds which drivers list which GPUs, which
 * of these work, and how much memory is free.
 *
 * A GPU that cannot be used does not prevent the use of others. It is skipped
 * if the item accepts any GPU. If the item requests the GPU by number, the
 * error tells why that GPU cannot be used. Free memory is queried only for
 * chosen GPUs, because the query takes time and GPU memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "device/device_spec.h"
#include "device/gpu/gpu_driver.h"
#include "device/gpu/gpu_kind.h"

/* The drivers of real GPUs, best first. The backend `gpu` uses for each GPU the
 * first driver that works. */
static const struct backend_ops *const vendors[] = {&cuda_ops, &hip_ops,
                                                    &opencl_ops};
enum { N_VENDOR = sizeof vendors / sizeof *vendors };

/* A GPU in the list of one driver. */
struct view {
    const struct backend_ops *ops;
    struct gpu_info info;
    int gpu;    /* the GPU's number; entries of several drivers for one GPU have
                   the same number */
    bool asked; /* works() has queried the GPU's free memory */
};

struct views {
    struct view item[N_VENDOR * GPU_LIST_MAX];
    int n, n_gpu;
};

/* ---- search for GPUs ----------------------------------------------------- */

/* Appends `text` to the string in buf[size], separated by "; ". Truncates it if
 * it does not fit. */
static void add_text(char *buf, size_t size, const char *text)
{
    size_t n = strlen(buf);
    size_t fits = size - n - 3;

    if (size < n + 8)
        return;
    snprintf(buf + n, size - n, "%s%.*s", n > 0 ? "; " : "", (int)fits, text);
}

/* Appends the GPUs that the driver of `ops` lists. */
static pl_status look(struct views *v, const struct backend_ops *ops,
                      pl_err *err)
{
    struct gpu_info g[GPU_LIST_MAX];
    int n;

    PL_TRY(ops->driver->list(g, GPU_LIST_MAX, &n, err));
    for (int i = 0; i < n; i++)
        v->item[v->n++] = (struct view){.ops = ops, .info = g[i]};
    return PL_OK;
}

static bool any_gpu(const struct views *v)
{
    for (int i = 0; i < v->n; i++)
        if (!v->item[i].info.on_cores && !v->item[i].info.why[0])
            return true;
    return false;
}

static void drop_cpu_devices(struct views *v)
{
    int n = 0;

    for (int i = 0; i < v->n; i++)
        if (!v->item[i].info.on_cores)
            v->item[n++] = v->item[i];
    v->n = n;
}

/* Numbers the GPUs. Entries with the same bus address are the same GPU. */
static void number(struct views *v)
{
    v->n_gpu = 0;
    for (int i = 0; i < v->n; i++) {
        const char *bus = v->item[i].info.bus;
        int gpu = v->n_gpu;

        for (int k = 0; k < i && bus[0] && gpu == v->n_gpu; k++)
            if (strcmp(v->item[k].info.bus, bus) == 0)
                gpu = v->item[k].gpu;
        v->item[i].gpu = gpu;
        v->n_gpu += gpu == v->n_gpu;
    }
}

/* Returns how many characters of the item to print in a message. */
static int shown(const struct device_item *it)
{
    return it->len < 80 ? it->len : 80;
}

/* Lists the GPUs of the item's driver. If the item accepts any GPU (`any`), CPU
 * devices are left out unless there are no usable GPUs. */
static pl_status find_of(struct views *v, const struct device_item *it,
                         bool any, pl_err *err)
{
    PL_TRY(look(v, it->ops, err));
    if (any && any_gpu(v))
        drop_cpu_devices(v);
    if (v->n > 0)
        return PL_OK;
    return err_set(err, PL_UNSUPPORTED,
                   "device \"%.*s\": %s is installed but reports no GPU; "
                   "`plait devices` lists all devices",
                   shown(it), it->text, it->ops->name);
}

/* Lists the GPUs of all drivers. Drivers that fail matter only if no driver
 * lists a GPU; the error then has their reasons. */
static pl_status find_all(struct views *v, const struct device_item *it,
                          pl_err *err)
{
    char lacks[800] = "";

    for (int i = 0; i < N_VENDOR; i++) {
        int n = v->n;
        pl_err why;

        if (look(v, vendors[i], &why) == PL_OK)
            snprintf(
                why.message, sizeof why.message, "%s has %s", vendors[i]->name,
                v->n > n
                    ? "only processors, which need \"opencl\" as the device"
                    : "none");
        add_text(lacks, sizeof lacks, why.message);
    }
    drop_cpu_devices(v);
    if (v->n > 0)
        return PL_OK;
    return err_set(err, PL_UNSUPPORTED,
                   "device \"%.*s\": this machine has no usable GPU: %s",
                   shown(it), it->text, lacks);
}

/* ---- choice of GPUs ------------------------------------------------------ */

/* Returns true if the GPU can be used now, and sets its free memory. Otherwise
 * sets w->info.why. */
static bool works(struct view *w)
{
    pl_err why;

    if (w->info.why[0] || w->asked)
        return !w->info.why[0];
    w->asked = true;
    if (w->ops->driver->free_memory &&
        w->ops->driver->free_memory(w->info.index, &w->info.available_bytes,
                                    &why) != PL_OK)
        snprintf(w->info.why, sizeof w->info.why, "%.*s",
                 (int)sizeof w->info.why - 1, why.message);
    return !w->info.why[0];
}

/* Appends "cuda:1 (NVIDIA H200, 0000:3b:00.0): REASON" to the string in
 * buf[size]. */
static void add_failure(char *buf, size_t size, const struct view *w)
{
    char one[512];

    snprintf(one, sizeof one, "%s:%d (%s%s%s): %s", w->ops->name, w->info.index,
             w->info.title, w->info.bus[0] ? ", " : "", w->info.bus,
             w->info.why);
    add_text(buf, size, one);
}

/* Returns the entry of GPU number `gpu` for the first driver that works. If
 * none does, returns NULL and appends the reasons to buf[size]. */
static struct view *take(struct views *v, int gpu, char *buf, size_t size)
{
    for (int i = 0; i < v->n; i++)
        if (v->item[i].gpu == gpu && works(&v->item[i]))
            return &v->item[i];
    for (int i = 0; i < v->n; i++)
        if (v->item[i].gpu == gpu)
            add_failure(buf, size, &v->item[i]);
    return NULL;
}

/* Sets *index to the number in the item's only field, or -1 if there are no
 * fields. */
static pl_status read_index(const struct device_item *it, int *index,
                            pl_err *err)
{
    int i = 0;

    *index = -1;
    if (it->field >= it->end)
        return PL_OK;
    for (const char *p = it->field; p < it->end; p++) {
        if (*p < '0' || *p > '9' || i > 1000)
            return device_item_bad(it, err, "\"%.*s\" is not a GPU number",
                                   (int)(it->end - it->field), it->field);
        i = i * 10 + (*p - '0');
    }
    *index = i;
    return PL_OK;
}

static pl_status none_works(const struct device_item *it, const char *why,
                            pl_err *err)
{
    return err_set(err, PL_UNSUPPORTED,
                   "device \"%.*s\": none of its GPUs can be used: %s; `plait "
                   "devices` lists all",
                   shown(it), it->text, why);
}

/* Sets *out to the GPU with number `index`: the driver's own number, or, for
 * the backend `gpu`, the number among all GPUs. */
static pl_status choose_one(struct views *v, const struct device_item *it,
                            int index, struct view **out, pl_err *err)
{
    const int n = it->ops->driver ? v->n : v->n_gpu;
    char why[768] = "";

    for (int i = 0; i < v->n; i++) {
        struct view *w = &v->item[i];

        if ((it->ops->driver ? w->info.index : w->gpu) != index)
            continue;
        *out = it->ops->driver ? works(w) ? w : NULL
                               : take(v, w->gpu, why, sizeof why);
        if (*out)
            return PL_OK;
        if (it->ops->driver)
            add_failure(why, sizeof why, w);
        return none_works(it, why, err);
    }
    return err_set(err, PL_BAD_ARGUMENT,
                   "device \"%.*s\": no GPU %d; there %s %d, counted from 0; "
                   "`plait devices` lists them",
                   shown(it), it->text, index, n == 1 ? "is" : "are", n);
}

/* Sets out[] to the first working GPUs, at most `most`, and *n to their number.
 * Returns an error if none works. */
static pl_status choose_any(struct views *v, const struct device_item *it,
                            int most, struct view **out, int *n, pl_err *err)
{
    char why[768] = "";

    *n = 0;
    for (int g = 0; g < v->n_gpu && *n < most; g++) {
        struct view *w = take(v, g, why, sizeof why);

        if (w)
            out[(*n)++] = w;
    }
    return *n > 0 ? PL_OK : none_works(it, why, err);
}

/* ---- descriptions of devices --------------------------------------------- */

static struct device_desc desc_of(const struct view *w)
{
    struct device_desc d = {.ops = w->ops,
                            .n_thread = 1,
                            .numa_node = -1,
                            .memory = -1,
                            .reads = true,
                            .maps = w->ops->driver->map != NULL,
                            .index = w->info.index,
                            .n_unit = w->info.on_cores ? 0 : w->info.n_unit,
                            .largest_bytes = (size_t)w->info.largest_bytes,
                            .mem_bytes_per_s = w->info.mem_bytes_per_s,
                            .float_macs_per_s = w->info.float_macs_per_s,
                            .block_macs_per_s = w->info.block_macs_per_s,
                            .launch_s = w->info.launch_s,
                            .accelerator = true};

    memcpy(d.bus, w->info.bus, sizeof d.bus);
    memcpy(d.title, w->info.title, sizeof d.title);
    memcpy(d.version, w->info.version, sizeof d.version);
    return d;
}

static bool is_on(const struct device_desc *d, const struct view *w)
{
    if (d->bus[0] && w->info.bus[0])
        return strcmp(d->bus, w->info.bus) == 0;
    return d->ops == w->ops && d->index == w->info.index;
}

/* Divides the memory and the free memory of a GPU equally among all devices on
 * it, including those of earlier items. */
static void share_memory(struct device_list *l, const struct view *w)
{
    const struct gpu_info *x = &w->info;
    uint64_t n = 0, all = x->total_bytes, now = x->available_bytes;

    if (all < now) /* the driver reports only free memory; the total is 0 */
        all = now;
    for (int i = 0; i < l->n; i++)
        n += is_on(&l->dev[i], w);
    for (int i = 0; i < l->n; i++)
        if (is_on(&l->dev[i], w)) {
            l->dev[i].memory_bytes = all / n;
            l->dev[i].available_bytes = now / n > 0 ? now / n : all > 0;
        }
}

static pl_status describe(struct views *v, struct device_list *l,
                          const struct device_item *it, pl_err *err)
{
    struct view *chosen[N_VENDOR * GPU_LIST_MAX];
    int index, n = 1, count = it->count;

    PL_TRY(read_index(it, &index, err));
    PL_TRY(it->ops->driver ? find_of(v, it, index < 0, err)
                           : find_all(v, it, err));
    number(v);
    if (index >= 0)
        PL_TRY(choose_one(v, it, index, &chosen[0], err));
    else
        PL_TRY(
            choose_any(v, it, count > 0 ? count : v->n_gpu, chosen, &n, err));
    count = count > 0 ? count : n;
    for (int i = 0; i < count; i++) {
        struct device_desc d = desc_of(chosen[i % n]);

        PL_TRY(device_list_append(l, &d, it, err));
    }
    for (int i = 0; i < n && i < count; i++)
        share_memory(l, chosen[i]);
    return PL_OK;
}

/* Appends the devices of an item. NAME is a device on each GPU, NAME:I one on
 * GPU I, NAME*N is N devices, assigned to the GPUs in turn. */
pl_status gpu_describe(struct device_list *l, const struct device_item *it,
                       pl_err *err)
{
    struct views *v = calloc(1, sizeof *v);
    pl_status s;

    if (!v)
        return err_no_memory(err, "the list of GPUs");
    s = describe(v, l, it, err);
    free(v);
    return s;
}

/* ---- list of GPUs -------------------------------------------------------- */

pl_status gpu_show(const struct backend_ops *ops, struct gpu_info *out, int max,
                   int *n, pl_err *err)
{
    PL_TRY(ops->driver->list(out, max, n, err));
    for (int i = 0; i < *n; i++) {
        struct view w = {.ops = ops, .info = out[i]};

        works(&w);
        out[i] = w.info;
    }
    if (ops->driver->peers)
        ops->driver->peers(out, *n);
    return PL_OK;
}
