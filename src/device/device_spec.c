/* Device strings: what -dev and --device-spec accept, and which cores a cpu
 * device gets.
 *
 * A string is a list of items, an item a name, fields after colons and a count.
 * Fields of described devices are told apart by their units, so they may stand
 * in any order. Nothing is started or allocated here but the list. */
#include "device/device_spec.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

static const char accepted[] =
    "accepted: cpu (one a NUMA node), cpu*N, cpu:0-3+8-11, none, "
    "sim[:MEMORY][:BANDWIDTH/s][:LATENCY][*N] as in sim:2GiB:16GB/s:10us*2; "
    "items are separated by commas";
static const char accepted_paper[] =
    "accepted: NAME:MEMORY:BANDWIDTH/s[:flops=N][:link=BANDWIDTH/s]"
    "[:latency=TIME][*N] as in "
    "gpu:80GiB:3TB/s:link=64GB/s:latency=5us:flops=400T*8, and one named host; "
    "items are separated by commas";

enum { CORE_MAX = sizeof((struct device_desc *)0)->core / sizeof(int) };

/* One item, while it is read. */
struct item {
    const char *text; /* its first character, for messages */
    int len;
    char name[16];
    const char *field, *end; /* the fields: between the name and the count */
    int count;               /* after '*', or 0 */
    const char *accepted;
};

__attribute__((format(printf, 3, 4))) static pl_status
bad(const struct item *it, pl_err *err, const char *fmt, ...)
{
    char what[512];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    return err_set(err, PL_BAD_ARGUMENT, "device \"%.*s\": %s; %s",
                   it->len < 100 ? it->len : 100, it->text, what, it->accepted);
}

static pl_status add(struct device_list *l, const struct device_desc *d,
                     const char *name, const struct item *it, pl_err *err)
{
    struct device_desc *dev;
    int nth = 0;
    int most = strcmp(name, "host") == 0 ? DEVICE_MAX : DEVICE_NAMED_MAX;

    if (l->n >= most)
        return bad(it, err, "more than %d devices", most);
    dev = realloc(l->dev, (size_t)(l->n + 1) * sizeof *dev);
    if (!dev)
        return err_no_memory(err, "the list of devices");
    l->dev = dev;
    for (int i = 0; i < l->n; i++)
        if (strncmp(dev[i].name, name, strlen(name)) == 0 &&
            isdigit((unsigned char)dev[i].name[strlen(name)]))
            nth++;
    dev += l->n++;
    *dev = *d;
    snprintf(dev->name, sizeof dev->name, "%s%d", name, nth);
    return PL_OK;
}

/* ---- numbers with units ------------------------------------------------ */

enum unit { BYTES, BYTES_PER_S, SECONDS, PLAIN, UNIT_COUNT };

static const char *const unit_name[UNIT_COUNT] = {
    "a memory size (2GiB)",
    "a bandwidth (16GB/s)",
    "a time (10us)",
    "a number (400T)",
};

static const struct {
    const char *text;
    double factor;
    enum unit unit;
} units[] = {
    {"B", 1, BYTES},
    {"kB", 1e3, BYTES},
    {"KB", 1e3, BYTES},
    {"MB", 1e6, BYTES},
    {"GB", 1e9, BYTES},
    {"TB", 1e12, BYTES},
    {"KiB", 1024., BYTES},
    {"MiB", 1048576., BYTES},
    {"GiB", 1073741824., BYTES},
    {"TiB", 1099511627776., BYTES},
    {"ns", 1e-9, SECONDS},
    {"us", 1e-6, SECONDS},
    {"ms", 1e-3, SECONDS},
    {"s", 1, SECONDS},
    {"", 1, PLAIN},
    {"M", 1e6, PLAIN},
    {"G", 1e9, PLAIN},
    {"T", 1e12, PLAIN},
    {"P", 1e15, PLAIN},
};

/* Reads `s`, all of it. False if it is no positive number with a unit. */
static bool quantity(const char *s, const char *end, double *value,
                     enum unit *unit)
{
    char buf[48], *rest;
    size_t len = (size_t)(end - s);
    bool per_s;

    if (len == 0 || len >= sizeof buf || !isdigit((unsigned char)*s))
        return false;
    memcpy(buf, s, len);
    buf[len] = '\0';
    per_s = len > 2 && strcmp(buf + len - 2, "/s") == 0;
    if (per_s)
        buf[len - 2] = '\0';
    if (buf[0] == '0' && (buf[1] == 'x' || buf[1] == 'X'))
        return false; /* strtod reads hexadecimal too */
    *value = strtod(buf, &rest);
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (strcmp(rest, units[i].text) != 0)
            continue;
        *value *= units[i].factor;
        *unit = units[i].unit;
        if (per_s && *unit != BYTES)
            return false;
        if (per_s)
            *unit = BYTES_PER_S;
        return isfinite(*value) && *value > 0 &&
               (*unit != BYTES || *value < 0x1p63);
    }
    return false;
}

/* ---- cores ------------------------------------------------------------- */

/* One device on cores of `list`; numbers are what threads are pinned to. */
static pl_status add_cpu(struct device_list *l, const struct topology *t,
                         const struct topology_cpu *list, int n, int n_thread,
                         const struct item *it, pl_err *err)
{
    struct device_desc d = {.kind = DEVICE_CPU};

    d.n_core = n < CORE_MAX ? n : CORE_MAX;
    d.numa_node = t->node[list[0].node].os;
    d.memory_bytes = t->node[list[0].node].memory_bytes;
    for (int i = 0; i < d.n_core; i++) {
        d.core[i] = list[i].os;
        if (list[i].node != list[0].node)
            d.numa_node = -1;
    }
    if (d.numa_node < 0 || d.memory_bytes > t->memory_bytes)
        d.memory_bytes = t->memory_bytes;
    d.n_thread = n_thread > 0 ? n_thread : d.n_core;
    return add(l, &d, it->name, it, err);
}

/* Part i of n of `len` things, as first and count; at least one thing each,
 * so with more parts than things neighbours share. */
static void part(int len, int n, int i, int *first, int *count)
{
    *first = (int)((int64_t)len * i / n);
    *count = (int)((int64_t)len * (i + 1) / n) - *first;
    if (*count == 0)
        *count = 1;
}

/* `list` [n] in order of nodes becomes n_dev devices. No device spans two nodes
 * where there are as many devices as nodes: each node gets one, and the rest
 * go one by one to the node with most cores a device. */
static pl_status share(struct device_list *l, const struct topology *t,
                       const struct topology_cpu *list, int n, int n_dev,
                       int n_thread, const struct item *it, pl_err *err)
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
    if (n_dev < n_node) { /* over nodes, as one run of cores */
        node[0].n = n;
        n_node = 1;
    }
    for (int d = 0; d < n_dev; d++) {
        int best = 0;

        for (int k = 1; k < n_node; k++) /* cores / (devices + 1), most first */
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

/* The first processor of every core, fewer if the container grants fewer:
 * then evenly spaced, so that every node keeps its part. */
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

/* "0-3+8-11" in the field of `it`; keeps the order of nodes. */
static pl_status listed_cores(const struct topology *t,
                              struct topology_cpu *list, int *n,
                              const struct item *it, pl_err *err)
{
    const char *p = it->field;
    bool *used = calloc((size_t)t->n_cpu, 1);
    char may[200];
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
            s = bad(it, err, "%ld-%ld is no range of cores", lo, hi);
            goto done;
        }
        for (long os = lo; os <= hi; os++) {
            int i = topology_find_cpu(t, (int)os);

            if (i < 0) {
                s = bad(it, err, "this process may not use core %ld, only %s",
                        os, may);
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
    s = bad(it, err, "\"%.*s\" is no list of cores like 0-3+8-11",
            (int)(it->end - it->field), it->field);
done:
    free(used);
    return s;
}

static pl_status parse_cpu(struct device_list *l, const struct item *it,
                           int n_thread, const struct topology *t, pl_err *err)
{
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
        s = share(l, t, list, n, n_dev, n_thread, it, err);
    free(list);
    return s;
}

/* ---- described devices ------------------------------------------------- */

enum figure { MEMORY, MEM_BW, FLOPS, LINK_BW, LATENCY, FIGURE_COUNT };

static const struct {
    const char *key;
    enum unit unit;
} figures[FIGURE_COUNT] = {
    [MEMORY] = {"memory", BYTES},     [MEM_BW] = {"bandwidth", BYTES_PER_S},
    [FLOPS] = {"flops", PLAIN},       [LINK_BW] = {"link", BYTES_PER_S},
    [LATENCY] = {"latency", SECONDS},
};

/* One field: [KEY=]NUMBER. Without a key it is the first figure of its unit
 * that is offered and not yet given. */
static pl_status parse_field(double *v, unsigned offered, const char *p,
                             const char *end, const struct item *it,
                             pl_err *err)
{
    const char *eq = memchr(p, '=', (size_t)(end - p));
    const char *num = eq ? eq + 1 : p;
    int found = -1;
    double value;
    enum unit unit;

    if (!quantity(num, end, &value, &unit))
        return bad(it, err, "\"%.*s\" is no positive number with a unit",
                   (int)(end - num), num);
    for (int f = 0; f < FIGURE_COUNT && found < 0; f++) {
        if (!(offered & 1u << f))
            continue;
        if (eq ? strlen(figures[f].key) == (size_t)(eq - p) &&
                     memcmp(figures[f].key, p, (size_t)(eq - p)) == 0
               : figures[f].unit == unit && v[f] == 0)
            found = f;
    }
    if (found < 0 && eq)
        return bad(it, err, "\"%.*s\" is no figure of such a device",
                   (int)(eq - p), p);
    if (found < 0)
        return bad(it, err, "\"%.*s\", %s, is one too many", (int)(end - p), p,
                   unit_name[unit]);
    if (figures[found].unit != unit)
        return bad(it, err, "%s must be %s, not \"%.*s\"", figures[found].key,
                   unit_name[figures[found].unit], (int)(end - num), num);
    if (v[found] != 0)
        return bad(it, err, "%s is given twice", figures[found].key);
    v[found] = value;
    return PL_OK;
}

static pl_status parse_described(struct device_list *l, const struct item *it,
                                 enum device_kind kind, unsigned offered,
                                 pl_err *err)
{
    struct device_desc d = {.kind = kind, .n_thread = 1, .numa_node = -1};
    double v[FIGURE_COUNT] = {0};

    for (const char *p = it->field; p < it->end;) {
        const char *colon = memchr(p, ':', (size_t)(it->end - p));
        const char *end = colon ? colon : it->end;

        PL_TRY(parse_field(v, offered, p, end, it, err));
        p = colon ? colon + 1 : end;
    }
    if (kind == DEVICE_PAPER && (v[MEMORY] == 0 || v[MEM_BW] == 0))
        return bad(it, err, "the %s is missing",
                   v[MEMORY] == 0 ? "memory" : "memory's bandwidth");
    d.memory_bytes = (uint64_t)v[MEMORY];
    d.mem_bytes_per_s = v[MEM_BW];
    d.flops = v[FLOPS] / 2; /* a multiply-add counts as two */
    d.link_bytes_per_s = v[LINK_BW];
    d.link_latency_s = v[LATENCY];
    if (kind == DEVICE_PAPER && strcmp(it->name, "host") == 0) {
        if (l->host_described || it->count > 1)
            return bad(it, err, "there is one host only");
        l->host = d;
        l->host_described = true;
        return PL_OK;
    }
    for (int i = 0; i < (it->count > 0 ? it->count : 1); i++)
        PL_TRY(add(l, &d, it->name, it, err));
    return PL_OK;
}

/* ---- items ------------------------------------------------------------- */

/* Cuts the item at `p` into name, fields and count. */
static pl_status cut(struct item *it, const char *p, pl_err *err)
{
    const char *end = p + it->len;
    const char *star = memchr(p, '*', (size_t)it->len);
    const char *stop = star ? star : end;
    const char *colon = memchr(p, ':', (size_t)(stop - p));
    size_t n = (size_t)((colon ? colon : stop) - p);

    if (n == 0 || n >= sizeof it->name)
        return bad(it, err, "a name of 1 to %d letters is missing",
                   (int)sizeof it->name - 1);
    for (size_t i = 0; i < n; i++)
        if (!isalpha((unsigned char)p[i]) && p[i] != '_' && p[i] != '-')
            return bad(it, err, "a name has letters only, not '%c'", p[i]);
    memcpy(it->name, p, n);
    it->name[n] = '\0';
    it->field = colon ? colon + 1 : stop;
    it->end = stop;
    if (colon && (it->field == it->end || it->end[-1] == ':'))
        return bad(it, err, "nothing after ':'");
    it->count = 0;
    if (star) {
        int len = 0;

        if (sscanf(star, "*%4d%n", &it->count, &len) != 1 ||
            star + len != end || !isdigit((unsigned char)star[1]) ||
            it->count < 1 || it->count > DEVICE_NAMED_MAX)
            return bad(it, err, "the count after '*' must be 1 to %d",
                       DEVICE_NAMED_MAX);
    }
    return PL_OK;
}

/* Paper devices bear any name but host; else the name decides. */
static pl_status parse(struct device_list *out, const char *spec, bool paper,
                       int n_thread, const struct topology *t, pl_err *err)
{
    struct device_list l = {0};
    pl_status s = PL_OK;

    *out = l;
    if (strcmp(spec, "none") == 0)
        return PL_OK;
    for (const char *p = spec; s == PL_OK;) {
        struct item it = {.text = p, .len = (int)strcspn(p, ",")};

        it.accepted = paper ? accepted_paper : accepted;
        s = cut(&it, p, err);
        if (s != PL_OK)
            break;
        if (paper)
            s = parse_described(&l, &it, DEVICE_PAPER, (1u << FIGURE_COUNT) - 1,
                                err);
        else if (strcmp(it.name, "cpu") == 0)
            s = parse_cpu(&l, &it, n_thread, t, err);
        else if (strcmp(it.name, "sim") == 0)
            s = parse_described(&l, &it, DEVICE_SIM,
                                1u << MEMORY | 1u << LINK_BW | 1u << LATENCY,
                                err);
        else
            s = bad(&it, err, "there is no kind \"%s\"", it.name);
        p += it.len;
        if (*p++ == '\0')
            break;
    }
    if (s == PL_OK)
        *out = l;
    else
        device_list_free(&l);
    return s;
}

static pl_status check_args(const char *spec, int n_thread, pl_err *err)
{
    if (strlen(spec) > 1 << 16)
        return err_set(err, PL_BAD_ARGUMENT,
                       "a device string of %zu characters is too long",
                       strlen(spec));
    if (n_thread < 0 || n_thread > CORE_MAX)
        return err_set(err, PL_BAD_ARGUMENT,
                       "%d threads a device; 0 (one a core) to %d are possible",
                       n_thread, CORE_MAX);
    return PL_OK;
}

pl_status device_parse_on(struct device_list *out, const char *spec,
                          int n_thread, const struct topology *t, pl_err *err)
{
    *out = (struct device_list){0};
    PL_TRY(check_args(spec, n_thread, err));
    return parse(out, spec, false, n_thread, t, err);
}

pl_status device_parse(struct device_list *out, const char *spec, int n_thread,
                       pl_err *err)
{
    struct topology t = {0};
    pl_status s = PL_OK;

    *out = (struct device_list){0};
    if (strstr(spec, "cpu"))
        s = topology_load(&t, err);
    if (s == PL_OK)
        s = device_parse_on(out, spec, n_thread, &t, err);
    topology_fini(&t);
    return s;
}

pl_status device_parse_paper(struct device_list *out, const char *spec,
                             pl_err *err)
{
    *out = (struct device_list){0};
    PL_TRY(check_args(spec, 0, err));
    return parse(out, spec, true, 0, NULL, err);
}

/* ---- the host ---------------------------------------------------------- */

pl_status device_list_add_host_on(struct device_list *l, int n_rank,
                                  int n_thread, const struct topology *t,
                                  int *first, pl_err *err)
{
    struct item it = {
        .text = "host", .len = 4, .name = "host", .accepted = accepted};
    struct topology_cpu *list = malloc((size_t)t->n_cpu * sizeof *list);
    int n, n_cpu = 0, n_node = 0;
    pl_status s;

    *first = l->n;
    if (!list)
        return err_no_memory(err, "the list of devices");
    n = default_cores(t, list);
    for (int i = 0; i < n; i++)
        n_node += i == 0 || list[i].node != list[i - 1].node;
    for (int i = 0; i < l->n; i++)
        n_cpu += l->dev[i].kind == DEVICE_CPU;
    s = share(l, t, list, n, n_rank % n_node ? 1 : n_node, 0, &it, err);
    free(list);
    for (int i = *first; i < l->n; i++) {
        struct device_desc *d = &l->dev[i];
        int64_t most = n_thread;

        d->host = true;
        if (n_cpu > 0)
            most = most * n_cpu / (l->n - *first);
        if (n_thread > 0 && most < d->n_thread)
            d->n_thread = most > 0 ? (int)most : 1;
    }
    if (s == PL_OK && l->n == *first + 1)
        strcpy(l->dev[*first].name, "host");
    return s;
}

/* Figures of a server with a few memory channels. */
static pl_status add_paper_host(struct device_list *l, pl_err *err)
{
    struct item it = {
        .text = "host", .len = 4, .name = "host", .accepted = accepted_paper};
    struct device_desc d = {.kind = DEVICE_PAPER,
                            .n_thread = 1,
                            .mem_bytes_per_s = 50e9,
                            .flops = 1e12,
                            .numa_node = -1};

    if (l->host_described)
        d = l->host;
    d.host = true;
    d.n_core = 1;
    PL_TRY(add(l, &d, it.name, &it, err));
    strcpy(l->dev[l->n - 1].name, "host");
    return PL_OK;
}

pl_status device_list_add_host(struct device_list *l, int n_rank, int n_thread,
                               bool paper, int *first, pl_err *err)
{
    struct topology t;
    pl_status s;

    *first = l->n;
    if (paper)
        return add_paper_host(l, err);
    PL_TRY(topology_load(&t, err));
    s = device_list_add_host_on(l, n_rank, n_thread, &t, first, err);
    topology_fini(&t);
    return s;
}

void device_list_free(struct device_list *l)
{
    free(l->dev);
    *l = (struct device_list){0};
}

bool device_shares_memory(const struct device_desc *d,
                          const struct device_desc *other)
{
    return d->kind == DEVICE_CPU && other->kind == DEVICE_CPU &&
           (d->numa_node == other->numa_node || (d->host && d->numa_node < 0));
}
