/* Joins the machines of a job; see machines.h. Messages of other machines are
 * checked before use, although all run the same version. */
#include "device/machines.h"

#include "base/err.h"
#include "base/sized.h"
#include "device/device_ops.h"
#include "device/machines_links.h"
#include "device/machines_measure.h"
#include "machine/topology.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    JOIN_S = 30,
    SILENCE_S = 5,
    BYE_S = 3,
    TEXT = 32,
    MOST_CORES = sizeof((struct device_desc *)0)->core / sizeof(int),
};
/* Seconds that machine 0 waits for others to compile a plan. A machine that is
 * lost meanwhile is noticed earlier. */
static const double load_limit_s = 3600;
/* Seconds to measure the network of a pair of machines: at most at a join, at
 * most for all at a join, and if it is asked for. */
static const double join_pair_s = 0.3, join_pairs_s = 2, asked_pair_s = 1;

#if defined(__x86_64__)
#define ARCHITECTURE "x86_64"
#elif defined(__aarch64__)
#define ARCHITECTURE "aarch64"
#else
#define ARCHITECTURE "other"
#endif

/* Must be the same on all machines. */
struct build {
    char version[TEXT], architecture[TEXT];
    uint32_t desc_bytes, n_kernel_set;
};

struct hello {
    struct build build;
    uint64_t kernel_sets;
    char name[MACHINES_NAME];
    int32_t n_dev; /* number of devices that follow, and then a note */
};

struct welcome {
    double
        pair_s; /* seconds to measure the network of a pair; 0: it is known */
    int32_t sends_weights;
};

struct sent_device {
    char backend[TEXT];
    struct device_desc desc;
};

/* ---- devices as bytes ---------------------------------------------------- */

size_t machines_devices_bytes(int n)
{
    return (size_t)n * sizeof(struct sent_device);
}

void machines_write_devices(unsigned char *to, const struct device_desc *dev,
                            int n)
{
    struct sent_device d;

    for (int i = 0; i < n; i++) {
        memset(&d, 0, sizeof d);
        snprintf(d.backend, sizeof d.backend, "%s", dev[i].ops->name);
        memcpy(&d.desc, &dev[i], sizeof d.desc);
        d.desc.ops = NULL;
        memcpy(to + (size_t)i * sizeof d, &d, sizeof d);
    }
}

#define AT(member) offsetof(struct device_desc, member)
static const size_t bools[] = {
    AT(host),     AT(reads),       AT(maps),      AT(one_queue),
    AT(on_cores), AT(accelerator), AT(described), AT(io),
};
static const size_t rates[] = {
    AT(mem_bytes_per_s),   AT(float_macs_per_s),   AT(block_macs_per_s),
    AT(launch_s),          AT(link_bytes_per_s),   AT(link_latency_s),
    AT(p2p_bytes_per_s),   AT(bridge_bytes_per_s), AT(network_bytes_per_s),
    AT(network_latency_s),
};
#undef AT

/* Returns the backend with a name that can run devices; NULL if there is
 * none. */
static const struct backend_ops *find_backend(const char *name)
{
    for (int i = 0; device_backends[i]; i++)
        if (device_backends[i]->open && device_backends[i]->describe &&
            strcmp(device_backends[i]->name, name) == 0)
            return device_backends[i];
    return NULL;
}

static bool is_text(const char *s, size_t n)
{
    return memchr(s, '\0', n) != NULL;
}

/* Returns true if the bytes are a description that the code can work with. */
static bool is_device(const unsigned char *b)
{
    struct device_desc d;
    double v;

    for (size_t i = 0; i < sizeof bools / sizeof bools[0]; i++)
        if (b[bools[i]] > 1)
            return false;
    for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++) {
        memcpy(&v, b + rates[i], sizeof v);
        if (!(v >= 0) || !isfinite(v))
            return false;
    }
    memcpy(&d, b, sizeof d);
    return is_text(d.name, sizeof d.name) && d.name[0] &&
           is_text(d.bus, sizeof d.bus) && is_text(d.title, sizeof d.title) &&
           is_text(d.version, sizeof d.version) && d.n_thread >= 1 &&
           d.n_thread <= MOST_CORES && d.n_core >= 0 &&
           d.n_core <= MOST_CORES && d.memory >= -1 && d.numa_node >= -1 &&
           d.n_unit >= 0 && d.index >= 0 && d.link_domain >= 0 && !d.described;
}

pl_status machines_read_devices(struct device_desc *dev, int n,
                                const unsigned char *data, size_t bytes,
                                int from, pl_err *err)
{
    struct sent_device d;
    bool ok = n >= 0 && n <= DEVICE_MAX && bytes == machines_devices_bytes(n);

    for (int i = 0; ok && i < n; i++) {
        const unsigned char *at = data + (size_t)i * sizeof d;
        const struct backend_ops *ops;

        ok = is_device(at + offsetof(struct sent_device, desc)) &&
             is_text((const char *)at, TEXT);
        if (!ok)
            break;
        memcpy(&d, at, sizeof d);
        ops = find_backend(d.backend);
        if (!ops)
            return err_set(err, PL_UNSUPPORTED,
                           "machine %d has a device of the backend %.*s, which "
                           "this machine has not; use the same version",
                           from, TEXT - 1, d.backend);
        dev[i] = d.desc;
        dev[i].ops = ops;
    }
    if (!ok)
        return err_set(err, PL_UNSUPPORTED,
                       "machine %d has described its devices in another form; "
                       "use the same version on all machines",
                       from);
    return PL_OK;
}

/* ---- joining ------------------------------------------------------------- */

static struct build own_build(void)
{
    struct build b;

    memset(&b, 0, sizeof b);
    snprintf(b.version, sizeof b.version, "%s", pl_version());
    snprintf(b.architecture, sizeof b.architecture, "%s", ARCHITECTURE);
    b.desc_bytes = sizeof(struct device_desc);
    b.n_kernel_set = KERNEL_SET_COUNT;
    return b;
}

/* Checks that machine `from` has the same version and architecture. */
static pl_status check_build(const struct build *got, int from, pl_err *err)
{
    const struct build own = own_build();

    if (!is_text(got->version, TEXT) || !is_text(got->architecture, TEXT) ||
        strcmp(got->version, own.version) != 0)
        return err_set(err, PL_UNSUPPORTED,
                       "machine %d has version %.*s of plait, machine 0 has "
                       "%s; use the same on all",
                       from, TEXT - 1, got->version, own.version);
    if (strcmp(got->architecture, own.architecture) != 0)
        return err_set(err, PL_UNSUPPORTED,
                       "machine %d is %s, machine 0 is %s; MPI carries nothing "
                       "between different architectures",
                       from, got->architecture, own.architecture);
    if (memcmp(got, &own, sizeof own) != 0)
        return err_set(err, PL_UNSUPPORTED,
                       "machine %d has another build of version %s; use the "
                       "same on all",
                       from, own.version);
    return PL_OK;
}

/* Names the devices of a machine as all plans name them, and numbers its link
 * domains as no other machine does. */
static void rename_devices(struct device_desc *dev, int n, int machine)
{
    for (int i = 0; i < n && machine > 0; i++) {
        char name[sizeof dev->name + 16];

        snprintf(name, sizeof name, "%d/%s", machine, dev[i].name);
        snprintf(dev[i].name, sizeof dev->name, "%.*s",
                 (int)sizeof dev->name - 1, name);
        dev[i].machine = machine;
        if (dev[i].link_domain > 0)
            dev[i].link_domain = dev[i].link_domain % 1000 + 1000 * machine;
    }
}

static uint64_t own_kernel_sets(void)
{
    uint64_t sets = 0;

    for (int k = 0; k < KERNEL_SET_COUNT; k++)
        if (kernel_set_runs((enum kernel_set)k))
            sets |= (uint64_t)1 << k;
    return sets;
}

/* Writes the name of this machine. */
static void own_name(char name[MACHINES_NAME])
{
    memset(name, 0, MACHINES_NAME);
    if (gethostname(name, MACHINES_NAME - 1) != 0)
        snprintf(name, MACHINES_NAME, "unknown");
}

static bool send_hello(const pl_machines *m, const struct machines_note *note)
{
    size_t n = machines_devices_bytes(m->own.n);
    size_t n_note = note ? note->bytes : 0;
    unsigned char *p = calloc(1, sizeof(struct hello) + n + n_note);
    struct hello h;
    bool ok;

    if (!p)
        return false;
    memset(&h, 0, sizeof h);
    h.build = own_build();
    h.kernel_sets = m->kernel_sets;
    own_name(h.name);
    h.n_dev = m->own.n;
    memcpy(p, &h, sizeof h);
    machines_write_devices(p + sizeof h, m->own.dev, m->own.n);
    if (n_note > 0)
        memcpy(p + sizeof h + n, note->data, n_note);
    ok = network_session_send(m->watch, 0, MACHINES_HELLO, p,
                              sizeof h + n + n_note);
    free(p);
    return ok;
}

/* Keeps the note of machine `from`, data[bytes]. */
static pl_status take_note(pl_machines *m, int from, const unsigned char *data,
                           size_t bytes, pl_err *err)
{
    struct machines_note *note = &m->note[from];

    if (bytes == 0 || bytes > MACHINES_NOTE)
        return PL_OK;
    note->data = malloc(bytes);
    if (!note->data)
        return err_no_memory(err, "devices of other machines");
    memcpy(note->data, data, bytes);
    note->bytes = bytes;
    return PL_OK;
}

/* Adds the devices that machine `from` has described. */
static pl_status take_hello(pl_machines *m, int from,
                            const struct network_session *s, pl_err *err)
{
    struct hello h = {.n_dev = -1};
    struct device_desc *more;
    size_t left, n;

    memset(&h.build, 0, sizeof h.build);
    if (s->bytes >= sizeof h.build)
        memcpy(&h, s->data, s->bytes < sizeof h ? s->bytes : sizeof h);
    PL_TRY(check_build(&h.build, from, err));
    if (s->tag != MACHINES_HELLO || s->bytes < sizeof h || h.n_dev < 1 ||
        !is_text(h.name, sizeof h.name) || h.n_dev > DEVICE_NAMED_MAX)
        return err_set(err, PL_BAD_ARGUMENT,
                       "machine %d has no device; give it one, as with "
                       "`-dev cpu`, or leave it out",
                       from);
    if (m->n_dev + h.n_dev > DEVICE_NAMED_MAX)
        return err_set(err, PL_BAD_ARGUMENT,
                       "%d devices on machines 0 to %d; at most %d are "
                       "possible",
                       m->n_dev + h.n_dev, from, DEVICE_NAMED_MAX);
    more = realloc(m->dev, (size_t)(m->n_dev + h.n_dev) * sizeof *more);
    if (!more)
        return err_no_memory(err, "devices of other machines");
    m->dev = more;
    left = s->bytes - sizeof h;
    n = machines_devices_bytes(h.n_dev);
    PL_TRY(machines_read_devices(m->dev + m->n_dev, h.n_dev, s->data + sizeof h,
                                 n < left ? n : left, from, err));
    PL_TRY(take_note(m, from, s->data + sizeof h + n, left - n, err));
    for (int i = 0; i < h.n_dev; i++)
        if (m->dev[m->n_dev + i].host || m->dev[m->n_dev + i].machine != from)
            return err_set(err, PL_UNSUPPORTED,
                           "machine %d has described a device that is not its "
                           "own; use the same version on all machines",
                           from);
    m->n_dev += h.n_dev;
    m->kernel_sets &= h.kernel_sets;
    memcpy(m->name[from], h.name, sizeof h.name);
    return PL_OK;
}

/* Waits for the hello of machine `from`, until `end` (device_now()). */
static pl_status await_hello(pl_machines *m, int from, double end,
                             const volatile int *cancel, pl_err *err)
{
    double left = end - device_now();
    struct network_session *s;
    pl_status st;

    PL_TRY(network_session_receive(m->watch, from, left > 0.01 ? left : 0.01,
                                   cancel, &s, err));
    if (!s)
        return err_set(err, PL_DEVICE,
                       "machine %d has not joined within %.3g s; see whether "
                       "it runs, or wait longer (--join-timeout)",
                       from, m->join_s);
    st = take_hello(m, from, s, err);
    free(s);
    return st;
}

/* ---- networks between machines ------------------------------------------- */

static struct machine_link *link_of(const pl_machines *m, int a, int b)
{
    return &m->link[a * m->net->n_machine + b];
}

static void put_link(pl_machines *m, int a, int b, struct machine_link x)
{
    *link_of(m, a, b) = *link_of(m, b, a) = x;
}

/* Returns true if the networks of all pairs are known without measuring. */
static bool load_links(pl_machines *m, const char *network)
{
    for (int b = 0; b < m->net->n_machine; b++)
        for (int a = 0; a < b; a++) {
            struct machine_link x;

            if (!network ||
                !machines_link_load(&x, m->name[a], m->name[b], network))
                return false;
            put_link(m, a, b, x);
        }
    return true;
}

static void save_links(pl_machines *m, const char *network)
{
    m->links_kept = network != NULL;
    for (int b = 0; b < m->net->n_machine; b++)
        for (int a = 0; a < b; a++)
            m->links_kept = m->links_kept &&
                            machines_link_save(link_of(m, a, b), m->name[a],
                                               m->name[b], network);
}

static pl_status measure(pl_machines *m, double pair_s,
                         struct machine_link *own, const volatile int *cancel,
                         pl_err *err)
{
    const struct machines_measure how = {
        .pair_s = pair_s, .limit_s = 2 * m->join_s, .cancel = cancel};

    memset(own, 0, (size_t)m->net->n_machine * sizeof *own);
    return machines_measure(m->net, &how, own, err);
}

/* Takes what machine `from` has measured: its networks to later machines. */
static pl_status take_links(pl_machines *m, int from,
                            const struct network_session *s, pl_err *err)
{
    int n = m->net->n_machine;
    struct machine_link x;
    bool ok = s && s->tag == MACHINES_LINKS && s->bytes == (size_t)n * sizeof x;

    for (int k = from + 1; ok && k < n; k++) {
        memcpy(&x, s->data + (size_t)k * sizeof x, sizeof x);
        ok = x.bytes_per_s > 0 && isfinite(x.bytes_per_s) && x.latency_s > 0 &&
             isfinite(x.latency_s);
        x.source = LINK_MEASURED;
        put_link(m, from, k, x);
    }
    return ok ? PL_OK
              : err_set(err, PL_DEVICE,
                        "machine %d has not sent what it has measured of the "
                        "network; use the same version on all machines",
                        from);
}

/* Measures with all other machines, and collects their results. */
static pl_status measure_all(pl_machines *m, double pair_s,
                             const volatile int *cancel, pl_err *err)
{
    struct machine_link own[PROG_MAX_MACHINE];

    PL_TRY(measure(m, pair_s, own, cancel, err));
    for (int k = 1; k < m->net->n_machine; k++)
        put_link(m, 0, k, own[k]);
    for (int k = 1; k < m->net->n_machine; k++) {
        struct network_session *s = NULL;
        pl_status st;

        PL_TRY(network_session_receive(m->watch, k, 2 * m->join_s, cancel, &s,
                                       err));
        st = take_links(m, k, s, err);
        free(s);
        PL_TRY(st);
    }
    return PL_OK;
}

/* Sets what the devices say of the network of their machine, by which programs
 * choose how to exchange: the rate of its fastest link, which is that of its
 * cable, and the greatest latency. */
static void describe_networks(pl_machines *m)
{
    for (int d = 0; d < m->n_dev; d++) {
        struct device_desc *x = &m->dev[d];

        for (int k = 0; k < m->net->n_machine; k++) {
            const struct machine_link *y = link_of(m, x->machine, k);

            if (k == x->machine)
                continue;
            x->network_bytes_per_s =
                fmax(x->network_bytes_per_s, y->bytes_per_s);
            x->network_latency_s = fmax(x->network_latency_s, y->latency_s);
        }
    }
}

static double pair_seconds(const pl_machines *m, bool asked)
{
    double all = join_pairs_s / machines_rounds(m->net->n_machine);

    return asked ? asked_pair_s : fmin(join_pair_s, all);
}

/* ---- both sides of a join ------------------------------------------------ */

static pl_status welcome(pl_machines *m, double pair_s, pl_err *err)
{
    struct welcome w;

    memset(&w, 0, sizeof w);
    w.pair_s = pair_s;
    w.sends_weights = m->send_weights;
    for (int k = 1; k < m->net->n_machine; k++)
        if (!network_session_send(m->watch, k, MACHINES_WELCOME, &w, sizeof w))
            return err_no_memory(err, "a message");
    return PL_OK;
}

static pl_status lead(pl_machines *m, const char *network,
                      const volatile int *cancel,
                      const pl_machines_options *how, pl_err *err)
{
    double end = device_now() + m->join_s, pair_s = 0;
    size_t n = (size_t)m->net->n_machine;
    struct machine_link stated;

    m->dev = malloc((size_t)m->own.n * sizeof *m->dev);
    m->name = calloc(n, sizeof *m->name);
    m->link = calloc(n * n, sizeof *m->link);
    m->note = calloc(n, sizeof *m->note);
    m->measured = calloc(n, sizeof *m->measured);
    if (!m->dev || !m->name || !m->link || !m->note || !m->measured)
        return err_no_memory(err, "devices of machines");
    memcpy(m->dev, m->own.dev, (size_t)m->own.n * sizeof *m->dev);
    m->n_dev = m->own.n;
    own_name(m->name[0]);
    if (how->network)
        PL_TRY(device_parse_network(&stated, how->network, err));
    for (int k = 1; k < m->net->n_machine; k++)
        PL_TRY(await_hello(m, k, end, cancel, err));
    m->links_kept = !how->network && !how->measure && load_links(m, network);
    if (!how->network && !m->links_kept)
        pair_s = pair_seconds(m, how->measure);
    PL_TRY(welcome(m, pair_s, err));
    if (pair_s > 0) {
        PL_TRY(measure_all(m, pair_s, cancel, err));
        save_links(m, network);
    }
    for (int b = 0; how->network && b < m->net->n_machine; b++)
        for (int a = 0; a < b; a++)
            put_link(m, a, b, stated);
    describe_networks(m);
    return PL_OK;
}

static pl_status follow(pl_machines *m, const struct machines_note *note,
                        const volatile int *cancel, pl_err *err)
{
    struct machine_link own[PROG_MAX_MACHINE];
    struct welcome w = {.pair_s = 0};
    struct network_session *s;
    bool ok;

    if (!send_hello(m, note))
        return err_no_memory(err, "a message");
    /* machine 0 waits for others meanwhile, and says so itself */
    PL_TRY(
        network_session_receive(m->watch, 0, 2 * m->join_s, cancel, &s, err));
    ok = s && s->tag == MACHINES_WELCOME && s->bytes == sizeof w;
    if (ok)
        memcpy(&w, s->data, sizeof w);
    m->send_weights = w.sends_weights;
    free(s);
    if (s && !ok)
        return err_set(err, PL_DEVICE,
                       "machine 0 has ended the job; see its own error");
    if (!s)
        return err_set(err, PL_DEVICE,
                       "machine 0 has not answered within %.3g s; see whether "
                       "it runs",
                       2 * m->join_s);
    if (!(w.pair_s > 0))
        return PL_OK;
    PL_TRY(measure(m, w.pair_s, own, cancel, err));
    if (!network_session_send(m->watch, 0, MACHINES_LINKS, own,
                              (size_t)m->net->n_machine * sizeof *own))
        return err_no_memory(err, "a message");
    return PL_OK;
}

static pl_status read_own(pl_machines *m, const pl_options *opt, pl_err *err)
{
    PL_TRY(device_parse(&m->own, opt->devices ? opt->devices : DEVICE_DEFAULT,
                        opt->n_threads, err));
    if (m->own.n == 0)
        return err_set(err, PL_BAD_ARGUMENT,
                       "this machine has no device; give it one, as with "
                       "`-dev cpu`, or leave it out");
    rename_devices(m->own.dev, m->own.n, m->net->machine);
    m->kernel_sets = own_kernel_sets();
    return PL_OK;
}

double machines_join_limit_s(const pl_machines_options *how)
{
    return how->join_s > 0 ? how->join_s : JOIN_S;
}

pl_status machines_join(pl_machines **out, const struct network_module *module,
                        struct network *carrier, const char *network,
                        const pl_options *opt, const pl_machines_options *how,
                        const struct machines_note *note, pl_err *err)
{
    struct network_watch_options w = {
        how->silence_s > 0 ? how->silence_s : SILENCE_S, how->lost, how->user};
    pl_machines *m = calloc(1, sizeof *m);

    *out = NULL;
    if (!m)
        return err_no_memory(err, "the machines of a job");
    m->module = module;
    m->carrier = carrier;
    m->join_s = machines_join_limit_s(how);
    m->send_weights = how->send_weights;
    carrier->load_limit_s = load_limit_s;
    *out = m;
    PL_TRY(network_watch_create(&m->watch, carrier, &w, err));
    m->net = network_watch_network(m->watch);
    PL_TRY(read_own(m, opt, err));
    return m->net->machine == 0 ? lead(m, network, opt->cancel, how, err)
                                : follow(m, note, opt->cancel, err);
}

int pl_machines_started(void)
{
    int n;

    network_started(&n);
    return n;
}

bool pl_machines_supports(const char *mpi)
{
    int n;
    const struct network_kind *k = network_kinds(&n);

    for (int i = 0; i < n && mpi; i++)
        if (strcmp(k[i].name, mpi) == 0)
            return network_has_module(&k[i]);
    return false;
}

int pl_machines_number(const pl_machines *m)
{
    return m ? m->net->machine : 0;
}

int pl_machines_count(const pl_machines *m)
{
    return m ? m->net->n_machine : 1;
}

/* ---- leaving ------------------------------------------------------------- */

/* Sends the end to all others. Returns true if all have answered. */
static bool dismiss(pl_machines *m)
{
    double end = device_now() + BYE_S;
    bool all = true;

    for (int k = 1; k < m->net->n_machine; k++)
        network_session_send(m->watch, k, MACHINES_BYE, NULL, 0);
    for (int k = 1; k < m->net->n_machine; k++) {
        bool answered = false;

        while (!answered && device_now() < end) {
            struct network_session *s;

            if (network_session_receive(m->watch, k, end - device_now(), NULL,
                                        &s, NULL) != PL_OK ||
                !s)
                break;
            answered = s->tag == MACHINES_BYE;
            free(s);
        }
        all &= answered;
    }
    return all;
}

/* Waits until machine 0 ends the job, and answers. Returns false if it does
 * not. */
static bool await_bye(pl_machines *m)
{
    double end = device_now() + BYE_S;

    while (device_now() < end) {
        struct network_session *s;
        bool bye;

        if (network_session_receive(m->watch, 0, end - device_now(), NULL, &s,
                                    NULL) != PL_OK ||
            !s)
            return false;
        bye = s->tag == MACHINES_BYE;
        free(s);
        if (bye)
            return network_session_send(m->watch, 0, MACHINES_BYE, NULL, 0);
    }
    return false;
}

pl_status pl_machines_await(pl_machines *m, const pl_options *opt, pl_err *err)
{
    struct network_session *s = NULL;
    pl_options own;

    PL_NEED(m, err);
    PL_NEED(opt, err);
    PL_TRY(sized_read(&own, sizeof own, opt, "pl_options",
                      "call pl_options_init", err));
    if (m->net->machine == 0)
        return err_set(err, PL_BAD_ARGUMENT,
                       "this is machine 0, which ends the job; call "
                       "pl_machines_leave");
    PL_TRY(network_session_receive(m->watch, 0, 0, own.cancel, &s, err));
    m->ended = s->tag == MACHINES_BYE;
    free(s);
    if (!m->ended)
        return err_set(err, PL_UNSUPPORTED,
                       "machine 0 has sent a plan; call pl_machines_serve");
    network_session_send(m->watch, 0, MACHINES_BYE, NULL, 0);
    return PL_OK;
}

void machines_fail(pl_machines *m, const pl_err *why)
{
    const int tag = why->status == PL_DEVICE ? NETWORK_BEREFT : NETWORK_FAILED;

    for (int k = 0; k < m->net->n_machine; k++)
        if (k != m->net->machine)
            network_session_send(m->watch, k, tag, why->message,
                                 strlen(why->message));
}

static void free_notes(pl_machines *m)
{
    for (int k = 0; k < m->carrier->n_machine; k++) {
        if (m->note)
            free(m->note[k].data);
        if (m->measured)
            free(m->measured[k]);
    }
    free(m->note);
    free(m->measured);
}

bool pl_machines_leave(pl_machines *m, const pl_err *why)
{
    bool all = m && m->watch;

    if (!m)
        return true;
    if (m->watch) {
        if (why && why->message[0])
            machines_fail(m, why);
        network_watch_end(m->watch);
        all = m->net->machine == 0 ? dismiss(m) : m->ended || await_bye(m);
    }
    network_watch_free(m->watch);
    free_notes(m);
    if (m->module)
        all = m->module->close(m->carrier, all);
    device_list_free(&m->own);
    free(m->dev);
    free(m->name);
    free(m->link);
    free(m);
    return all;
}

/* ---- for plans ----------------------------------------------------------- */

pl_status machines_list(struct device_list *out, const pl_machines *m,
                        pl_err *err)
{
    struct device_list l = m->own;

    l.dev = m->dev;
    l.n = m->n_dev;
    l.network = m->net;
    l.link = m->link;
    l.n_machine = m->link ? m->net->n_machine : 0;
    l.measured = m->measured;
    while (l.n > 0 && l.dev[l.n - 1].host)
        l.n--;
    l.given = l.dev + l.n;
    l.n_given = m->n_dev - l.n;
    return device_list_copy(out, &l, err);
}

pl_status machines_kernel_set(enum kernel_set *out, const pl_machines *m,
                              const char *cpu, pl_err *err)
{
    int best = KERNEL_SET_COUNT - 1;

    if (cpu && cpu[0]) {
        PL_TRY(kernel_set_find(out, cpu, true, err));
        if (m->kernel_sets >> *out & 1)
            return PL_OK;
        return err_set(err, PL_UNSUPPORTED,
                       "not all machines can run the kernel set %s; leave out "
                       "--cpu",
                       cpu);
    }
    while (best > 0 && !(m->kernel_sets >> best & 1))
        best--;
    *out = (enum kernel_set)best;
    return PL_OK;
}
