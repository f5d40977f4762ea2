/* Parses device strings, the values of -dev and --device-spec.
 *
 * A string is a list of items. An item consists of a name, fields after colons,
 * and a count. Fields are told apart by their units, so they may be in any
 * order. The backend of an item's name interprets the item and appends devices.
 * Nothing is started here. */
#include "device/device_spec.h"

#include <ctype.h>
#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ascii.h"
#include "base/bytes.h"
#include "base/err.h"
#include "base/numeral.h"

/* Returns true if -dev can name the backend's devices. */
static bool is_named(const struct backend_ops *ops)
{
    return ops->open && !ops->serve;
}

/* Returns the backend with this name of n letters, in capitals or not; NULL if
 * there is none. rocm is what llama.cpp calls hip. */
static const struct backend_ops *find_backend(const char *name, size_t n)
{
    if (n == 4 && ascii_same_start(name, "rocm", n)) {
        name = "hip";
        n = 3;
    }
    for (int i = 0; device_backends[i]; i++)
        if (is_named(device_backends[i]) &&
            strlen(device_backends[i]->name) == n &&
            ascii_same_start(device_backends[i]->name, name, n))
            return device_backends[i];
    return NULL;
}

/* Returns the backend of devices that are only described. */
static const struct backend_ops *paper_kind(void)
{
    int i = 0;

    while (device_backends[i]->open)
        i++;
    return device_backends[i];
}

pl_status device_item_bad(const struct device_item *it, pl_err *err,
                          const char *fmt, ...)
{
    char what[512], shown[ERR_SHOWN];
    va_list ap;

    va_start(ap, fmt);
    numeral_vprint(what, sizeof what, fmt, ap);
    va_end(ap);
    return err_set(err, PL_BAD_ARGUMENT, "device \"%s\": %s%s%s",
                   err_shown(shown, it->text, (size_t)it->len), what,
                   it->accepted[0] ? "; accepted: " : "", it->accepted);
}

pl_status device_list_append(struct device_list *l, const struct device_desc *d,
                             const struct device_item *it, pl_err *err)
{
    struct device_desc *dev;
    char name[20];
    int nth = 0;
    int most = d->io                           ? DEVICE_MAX
               : strcmp(it->name, "host") == 0 ? DEVICE_MAX - 1
                                               : DEVICE_NAMED_MAX;

    if (d->machine > 0)
        snprintf(name, sizeof name, "%hhu/%s", (unsigned char)d->machine,
                 it->name);
    else
        snprintf(name, sizeof name, "%s", it->name);
    if (l->n >= most)
        return device_item_bad(it, err, "more than %d devices", most);
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

/* Parses the characters from `s` to `end` as a number with a unit. Returns
 * false if they are anything else, or if the number is not positive; a time and
 * a plain number may be 0. */
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
        return false; /* a hexadecimal number, which numeral_double would
                         accept */
    *value = numeral_double(buf, &rest);
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (strcmp(rest, units[i].text) != 0)
            continue;
        *value *= units[i].factor;
        *unit = units[i].unit;
        if (per_s && *unit != BYTES)
            return false;
        if (per_s)
            *unit = BYTES_PER_S;
        return isfinite(*value) &&
               (*value > 0 || *unit == SECONDS || *unit == PLAIN) &&
               (*unit != BYTES || *value < 0x1p63);
    }
    return false;
}

/* ---- fields of an item --------------------------------------------------- */

/* The fields of an item, by enum device_figure. The bounds reject typing
 * errors: a simulated device with a smaller value would practically never
 * finish a step. */
static const struct {
    const char *key;
    enum unit unit;
    double least, most;
    const char *bound; /* least and most in words, for messages */
    bool keyed;        /* a value for this field must have its key */
} figures[DEVICE_FIGURES] = {
    [DEVICE_MEMORY] = {"memory", BYTES, 0, HUGE_VAL, "", false},
    [DEVICE_AVAILABLE] = {"available", BYTES, 1, HUGE_VAL, "at least 1B", true},
    [DEVICE_BANDWIDTH] = {"bandwidth", BYTES_PER_S, 1e3, HUGE_VAL,
                          "at least 1kB/s", false},
    [DEVICE_FLOPS] = {"flops", PLAIN, 1e3, HUGE_VAL, "at least 1000", false},
    [DEVICE_LINK] = {"link", BYTES_PER_S, 1e3, HUGE_VAL, "at least 1kB/s",
                     false},
    [DEVICE_LATENCY] = {"latency", SECONDS, 0, 10, "at most 10s", false},
    [DEVICE_INT8] = {"int8", PLAIN, 1e3, HUGE_VAL, "at least 1000", true},
    [DEVICE_LAUNCH] = {"launch", SECONDS, 0, 10, "at most 10s", true},
    [DEVICE_P2P] = {"p2p", BYTES_PER_S, 1e3, HUGE_VAL, "at least 1kB/s", true},
    [DEVICE_BRIDGE] = {"bridge", BYTES_PER_S, 1e3, HUGE_VAL, "at least 1kB/s",
                       true},
    [DEVICE_MACHINE] = {"machine", PLAIN, 0, PROG_MAX_MACHINE - 1, "0 to 127",
                        true},
    [DEVICE_NETWORK] = {"network", BYTES_PER_S, 1e3, HUGE_VAL, "at least 1kB/s",
                        true},
    [DEVICE_NETWORK_LATENCY] = {"network-latency", SECONDS, 0, 10,
                                "at most 10s", true},
};

/* Parses a field [KEY=]NUMBER into v[]. Without a key, the number is the first
 * value of its unit that is allowed (bits of `offered`), is not set yet, and
 * does not require its key. */
static pl_status parse_field(double *v, unsigned offered, const char *p,
                             const char *end, const struct device_item *it,
                             pl_err *err)
{
    const char *eq = memchr(p, '=', (size_t)(end - p));
    const char *num = eq ? eq + 1 : p;
    char shown[ERR_SHOWN];
    int found = -1;
    double value;
    enum unit unit;

    if (!quantity(num, end, &value, &unit))
        return device_item_bad(it, err,
                               "\"%s\" is not a positive number with a unit",
                               err_shown(shown, num, (size_t)(end - num)));
    for (int f = 0; f < DEVICE_FIGURES && found < 0; f++) {
        if (!(offered & 1u << f))
            continue;
        if (eq ? strlen(figures[f].key) == (size_t)(eq - p) &&
                     memcmp(figures[f].key, p, (size_t)(eq - p)) == 0
               : figures[f].unit == unit && !figures[f].keyed && v[f] == 0)
            found = f;
    }
    if (found < 0 && eq)
        return device_item_bad(
            it, err, "\"%s\" is not a property of this type of device",
            err_shown(shown, p, (size_t)(eq - p)));
    if (found < 0)
        return device_item_bad(it, err, "\"%s\", %s, is unexpected",
                               err_shown(shown, p, (size_t)(end - p)),
                               unit_name[unit]);
    if (figures[found].unit != unit)
        return device_item_bad(it, err, "%s must be %s, not \"%s\"",
                               figures[found].key,
                               unit_name[figures[found].unit],
                               err_shown(shown, num, (size_t)(end - num)));
    if (value < figures[found].least || value > figures[found].most)
        return device_item_bad(it, err, "%s must be %s, not \"%s\"",
                               figures[found].key, figures[found].bound,
                               err_shown(shown, num, (size_t)(end - num)));
    if (v[found] != 0)
        return device_item_bad(it, err, "%s is given twice",
                               figures[found].key);
    /* 0 means not set, so a value of 0 is stored as the least positive
     * number */
    v[found] = value > 0 ? value : DBL_MIN;
    return PL_OK;
}

pl_status device_item_read(const struct device_item *it, unsigned offered,
                           double v[DEVICE_FIGURES], bool *shared, pl_err *err)
{
    static const char word[] = "shared";

    memset(v, 0, DEVICE_FIGURES * sizeof *v);
    if (shared)
        *shared = false;
    for (const char *p = it->field; p < it->end;) {
        const char *colon = memchr(p, ':', (size_t)(it->end - p));
        const char *end = colon ? colon : it->end;

        if (shared && end - p == (ptrdiff_t)strlen(word) &&
            memcmp(p, word, strlen(word)) == 0)
            *shared = true;
        else
            PL_TRY(parse_field(v, offered, p, end, it, err));
        p = colon ? colon + 1 : end;
    }
    return PL_OK;
}

pl_status device_item_append(struct device_list *l,
                             const struct device_item *it,
                             const struct device_desc *d,
                             const double v[DEVICE_FIGURES], pl_err *err)
{
    struct device_desc x = *d;

    x.memory_bytes = x.available_bytes = (uint64_t)v[DEVICE_MEMORY];
    if (v[DEVICE_AVAILABLE] > v[DEVICE_MEMORY])
        return device_item_bad(it, err, "available= exceeds the memory");
    if (v[DEVICE_AVAILABLE] > 0)
        x.available_bytes = (uint64_t)v[DEVICE_AVAILABLE];
    x.mem_bytes_per_s = v[DEVICE_BANDWIDTH];
    x.float_macs_per_s = v[DEVICE_FLOPS] / 2; /* a multiply-add is two flops */
    x.block_macs_per_s = v[DEVICE_INT8] / 2;
    x.link_bytes_per_s = v[DEVICE_LINK];
    x.link_latency_s = v[DEVICE_LATENCY];
    x.launch_s = v[DEVICE_LAUNCH];
    x.p2p_bytes_per_s = v[DEVICE_P2P];
    x.bridge_bytes_per_s = v[DEVICE_BRIDGE];
    x.link_domain = x.bridge_bytes_per_s > 0 ? l->n + 1 : 0;
    x.machine = (int)v[DEVICE_MACHINE];
    if (v[DEVICE_MACHINE] > DBL_MIN && v[DEVICE_MACHINE] != x.machine)
        return device_item_bad(it, err, "machine must be a whole number");
    x.network_bytes_per_s = v[DEVICE_NETWORK];
    x.network_latency_s = v[DEVICE_NETWORK_LATENCY];
    for (int i = 0; i < (it->count > 0 ? it->count : 1); i++)
        PL_TRY(device_list_append(l, &x, it, err));
    return PL_OK;
}

enum { CORE_MAX = sizeof((struct device_desc *)0)->core / sizeof(int) };

/* ---- items ------------------------------------------------------------- */

/* Returns the error for an item whose name is not a backend's. */
static pl_status unknown_backend(const struct device_item *it, size_t n,
                                 pl_err *err)
{
    char names[160] = "";
    size_t at = 0;

    if (n == 4 && ascii_same_start(it->text, "none", n))
        return device_item_bad(it, err,
                               "none excludes other devices; give it alone");
    for (int i = 0; device_backends[i] && at + 20 < sizeof names; i++)
        if (is_named(device_backends[i]))
            at += (size_t)snprintf(names + at, sizeof names - at, "%s, ",
                                   device_backends[i]->name);
    return device_item_bad(it, err,
                           "unknown type; use %sor none; `plait devices` lists "
                           "those of this machine, --device-spec describes "
                           "others",
                           names);
}

/* Finds the backend of an item whose name has n characters. If the item has
 * neither fields nor a count (`bare`), a number may follow the name: cuda0
 * means cuda:0. If the backend's devices have no numbers, only 0 may follow,
 * and only on a machine with one NUMA node. */
static pl_status take_backend(struct device_item *it, size_t n, bool bare,
                              pl_err *err)
{
    const char *digits = it->text + n;

    it->ops = find_backend(it->text, n);
    if (!it->ops && bare) {
        while (digits > it->text && isdigit((unsigned char)digits[-1]))
            digits--;
        if (digits < it->text + n)
            it->ops = find_backend(it->text, (size_t)(digits - it->text));
        it->field = digits;
    }
    if (!it->ops)
        return unknown_backend(it, n, err);
    snprintf(it->name, sizeof it->name, "%s", it->ops->name);
    it->accepted = it->ops->accepts;
    if (it->ops->numbered || digits == it->text + n)
        return PL_OK;
    if (it->end - digits > 1 || *digits != '0' || !it->topology ||
        it->topology->n_node != 1)
        return device_item_bad(it, err, "its devices have no numbers");
    it->field = it->end;
    return PL_OK;
}

/* Sets it->name to the first `n` characters of the item, which must be letters,
 * '_' and '-'. */
static pl_status take_name(struct device_item *it, size_t n, pl_err *err)
{
    const int most = (int)sizeof it->name - 1;

    snprintf(it->name, sizeof it->name, "%.*s", (int)n, it->text);
    if (n > (size_t)most)
        return device_item_bad(it, err, "its name is longer than %d letters",
                               most);
    for (const char *s = it->name; *s; s++)
        if (!ascii_is_letter(*s) && *s != '_' && *s != '-') {
            char shown[ERR_SHOWN];

            return device_item_bad(
                it, err, "its name may have letters, _ and -, not '%s'",
                err_shown(shown, s, 1));
        }
    it->ops = paper_kind();
    return PL_OK;
}

/* Splits the item at `p` into name, fields and count. */
static pl_status cut(struct device_item *it, const char *p, bool paper,
                     pl_err *err)
{
    const char *end = p + it->len;
    const char *star = memchr(p, '*', (size_t)it->len);
    const char *stop = star ? star : end;
    const char *colon = memchr(p, ':', (size_t)(stop - p));
    size_t n = (size_t)((colon ? colon : stop) - p);

    it->field = colon ? colon + 1 : stop;
    it->end = stop;
    if (n == 0)
        return device_item_bad(
            it, err, "its name is missing; separate items by one comma");
    PL_TRY(paper ? take_name(it, n, err)
                 : take_backend(it, n, !colon && !star, err));
    if (colon && (it->field == it->end || it->end[-1] == ':'))
        return device_item_bad(it, err, "nothing after ':'");
    it->count = 0;
    if (star) {
        int len = 0;

        if (sscanf(star, "*%4d%n", &it->count, &len) != 1 ||
            star + len != end || !isdigit((unsigned char)star[1]) ||
            it->count < 1 || it->count > DEVICE_NAMED_MAX)
            return device_item_bad(it, err,
                                   "the count after '*' must be 1 to %d",
                                   DEVICE_NAMED_MAX);
    }
    return PL_OK;
}

/* Returns true if `spec` is `word`, apart from blanks around it. */
static bool is_word(const char *spec, const char *word)
{
    size_t n = strlen(word);

    spec += strspn(spec, " ");
    return ascii_same_start(spec, word, n) &&
           spec[n + strspn(spec + n, " ")] == 0;
}

/* Parses a device string. If `paper`, it is a --device-spec string: devices are
 * only described and may have any name. Otherwise names are those of
 * backends. */
static pl_status parse(struct device_list *out, const char *spec, bool paper,
                       int n_thread, const struct topology *t, pl_err *err)
{
    struct device_list l = {0};
    pl_status s = PL_OK;

    *out = l;
    if (is_word(spec, "none"))
        return PL_OK;
    for (const char *p = spec; s == PL_OK;) {
        const char *end = p + strcspn(p, ",");
        struct device_item it = {.n_thread = n_thread,
                                 .topology = t,
                                 .accepted =
                                     paper ? paper_kind()->accepts : ""};

        p += strspn(p, " ");
        it.text = p;
        it.len = (int)(end - p);
        while (it.len > 0 && p[it.len - 1] == ' ')
            it.len--;
        s = cut(&it, p, paper, err);
        if (s != PL_OK)
            break;
        s = it.ops->describe(&l, &it, err);
        if (*end == '\0')
            break;
        p = end + 1;
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
                       "the device string is too long, %zu characters",
                       strlen(spec));
    if (n_thread < 0 || n_thread > CORE_MAX)
        return err_set(err, PL_BAD_ARGUMENT,
                       "%d threads per device; give 0 (one per core) to %d",
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
    const struct topology *t;
    pl_status s;

    *out = (struct device_list){0};
    PL_TRY(topology_open(&t, err));
    s = device_parse_on(out, spec, n_thread, t, err);
    if (s == PL_OK)
        out->topology = t;
    else
        topology_drop(t);
    return s;
}

pl_status device_parse_paper(struct device_list *out, const char *spec,
                             pl_err *err)
{
    *out = (struct device_list){0};
    PL_TRY(check_args(spec, 0, err));
    return parse(out, spec, true, 0, NULL, err);
}

pl_status device_parse_network(struct machine_link *out, const char *spec,
                               pl_err *err)
{
    const struct device_item it = {.text = spec,
                                   .field = spec,
                                   .end = spec + strlen(spec),
                                   .accepted = ""};
    const unsigned both = 1u << DEVICE_BANDWIDTH | 1u << DEVICE_LATENCY;
    double v[DEVICE_FIGURES];
    char shown[ERR_SHOWN];

    if (device_item_read(&it, both, v, NULL, NULL) != PL_OK ||
        v[DEVICE_BANDWIDTH] == 0 || v[DEVICE_LATENCY] == 0)
        return err_set(err, PL_BAD_ARGUMENT,
                       "network \"%s\": not a bandwidth and a latency; write "
                       "them like 1.17GB/s:30us",
                       err_shown(shown, spec, strlen(spec)));
    *out = (struct machine_link){v[DEVICE_BANDWIDTH], v[DEVICE_LATENCY],
                                 LINK_STATED};
    return PL_OK;
}

/* ---- the host ---------------------------------------------------------- */

static const struct backend_ops *host_kind(void)
{
    int i = 0;

    while (!device_backends[i]->open || !device_backends[i]->add_host)
        i++;
    return device_backends[i];
}

pl_status device_list_add_host_on(struct device_list *l, int n_rank,
                                  int n_thread, const struct topology *t,
                                  int *first, pl_err *err)
{
    *first = l->n;
    return host_kind()->add_host(l, n_rank, n_thread, t, err);
}

/* Appends io, or the host devices, of those that machine 0 has described. */
static pl_status append_given(struct device_list *l, bool io, pl_err *err)
{
    int n = l->n;

    for (int i = 0; i < l->n_given; i++) {
        const struct device_desc *d = &l->given[i];
        const struct device_item it = {
            .text = d->name, .len = 4, .name = "host", .accepted = ""};

        if (d->io != io)
            continue;
        PL_TRY(device_list_append(l, d, &it, err));
        l->dev[l->n - 1] = *d;
    }
    if (l->n > n)
        return PL_OK;
    return err_set(err, PL_DEVICE,
                   "machine 0 has described no %s; use the same version and "
                   "model on all machines",
                   io ? "io" : "host");
}

pl_status device_list_add_host(struct device_list *l, int n_rank, int n_thread,
                               bool paper, int *first, pl_err *err)
{
    *first = l->n;
    if (l->n_given > 0)
        return append_given(l, false, err);
    if (paper)
        return paper_kind()->add_host(l, n_rank, n_thread, NULL, err);
    return device_list_add_host_on(l, n_rank, n_thread, l->topology, first,
                                   err);
}

pl_status device_list_add_io(struct device_list *l, bool paper, pl_err *err)
{
    const struct device_item it = {
        .text = "io", .len = 2, .name = "io", .accepted = ""};
    struct device_desc d = {.numa_node = -1};

    if (l->n_given > 0)
        return append_given(l, true, err);
    /* io has the properties of the first device on machine 0's cores */
    for (int i = l->n - 1; i >= 0; i--)
        if (l->dev[i].on_cores && l->dev[i].machine == 0)
            d = l->dev[i];
    if (paper && l->host_described)
        d = l->host;
    d.machine = 0;
    d.ops = paper ? paper_kind() : host_kind();
    d.n_thread = 1;
    d.n_core = d.n_core > 0;
    d.link_bytes_per_s = d.link_latency_s = 0;
    d.memory = 0;
    d.reads = false;
    d.one_queue = true;
    d.on_cores = !paper;
    d.described = paper;
    d.host = d.io = true;
    PL_TRY(device_list_append(l, &d, &it, err));
    strcpy(l->dev[l->n - 1].name, it.name);
    return PL_OK;
}

pl_status device_list_copy(struct device_list *out, const struct device_list *l,
                           pl_err *err)
{
    size_t n = (size_t)l->n, n_machine = (size_t)l->n_machine;

    *out = (struct device_list){0};
    if (n > 0) {
        out->dev = malloc(n * sizeof *out->dev);
        if (!out->dev)
            return err_no_memory(err, "the list of devices");
        memcpy(out->dev, l->dev, n * sizeof *out->dev);
    }
    if (l->link) {
        out->link = malloc(n_machine * n_machine * sizeof *out->link);
        if (!out->link) {
            free(out->dev);
            out->dev = NULL;
            return err_no_memory(err, "the list of devices");
        }
        memcpy(out->link, l->link, n_machine * n_machine * sizeof *out->link);
        out->n_machine = l->n_machine;
    }
    out->n = l->n;
    out->host_described = l->host_described;
    out->host = l->host;
    out->network = l->network;
    out->measured = l->measured;
    out->given = l->given;
    out->n_given = l->n_given;
    out->topology = topology_keep(l->topology);
    return PL_OK;
}

void device_list_free(struct device_list *l)
{
    free(l->dev);
    free(l->link);
    topology_drop(l->topology);
    *l = (struct device_list){0};
}

bool device_shares_memory(const struct device_desc *d,
                          const struct device_desc *other)
{
    return d->machine == other->machine && d->on_cores && other->on_cores &&
           (d->numa_node == other->numa_node || (d->host && d->numa_node < 0));
}
