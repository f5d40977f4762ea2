/* Plans for several machines. Machine 0 sends the options that repeat its plan,
 * as text (pl_plan_options), and the few that the text has not. Another machine
 * compiles the same plan from them, for the same devices. Whether it is the
 * same is checked by hashes when programs are loaded (device/remote).
 *
 * A message is a struct head, then devices (machines_write_devices), then
 * strings, each with its NUL: the options, and the tensors to keep. */
#include "engine/machine_plan.h"

#include "base/err.h"
#include "base/hash64.h"
#include "base/numeral.h"
#include "device/machines.h"
#include "plan/options_read.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 64, SAMPLE_BYTES = 4096, MOST_KEPT = 1 << 16 };
enum flag {
    FLAG_CACHE_SET = 1,
    FLAG_INEXACT = 2,
    FLAG_HIDDEN = 4,
    FLAG_TRACE = 8
};

struct head {
    uint64_t model;
    int64_t n_out, mtp;
    int32_t n_seq, cache_k, cache_v, numerics, flags, kernel_set, n_threads;
    int32_t n_dev, n_keep;
};

/* ---- the model ----------------------------------------------------------- */

static void hash_metadata(struct hash64 *h, const struct gguf *g)
{
    for (int64_t i = 0; i < gguf_n_kv(g); i++) {
        const struct gguf_kv *kv = gguf_kv_at(g, i);
        char text[80];

        hash64_add(h, kv->key, strlen(kv->key) + 1);
        hash64_add(h, &kv->count, sizeof kv->count);
        gguf_value_text(kv, text);
        hash64_add(h, text, strlen(text) + 1);
    }
}

static pl_status hash_sample(struct hash64 *h, const struct gguf *g,
                             const struct gguf_tensor *t, pl_err *err)
{
    unsigned char b[SAMPLE_BYTES];
    size_t n = t->bytes < sizeof b ? t->bytes : sizeof b;

    if (!t->data)
        return PL_OK;
    PL_TRY(gguf_read(g, t, (t->bytes - n) / 2, b, n, err));
    hash64_add(h, b, n);
    return PL_OK;
}

pl_status machine_plan_model(uint64_t *out, const pl_model *m, pl_err *err)
{
    const struct gguf *g = m->file;
    int64_t n = gguf_n_tensor(g), each = n / SAMPLES + 1;
    struct hash64 h;

    hash64_init(&h, (uint64_t)n);
    hash_metadata(&h, g);
    for (int64_t i = 0; i < n; i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);

        hash64_add(&h, t->name, strlen(t->name) + 1);
        hash64_add(&h, t->dim, (size_t)t->n_dim * sizeof *t->dim);
        hash64_add(&h, &t->id, sizeof t->id);
        if (i % each == 0)
            PL_TRY(hash_sample(&h, g, t, err));
    }
    *out = hash64_end(&h);
    return PL_OK;
}

/* ---- sending ------------------------------------------------------------- */

static void write_string(unsigned char *p, size_t *at, const char *s)
{
    size_t n = strlen(s) + 1;

    memcpy(p + *at, s, n);
    *at += n;
}

/* Sets *out to the message of a plan, allocated by malloc, of *bytes. */
static pl_status write_plan(unsigned char **out, size_t *bytes,
                            const pl_plan *p, const pl_options *opt,
                            pl_err *err)
{
    const struct device_list *l = &p->compiled->list;
    size_t n = sizeof(struct head) + machines_devices_bytes(l->n) +
               strlen(p->options) + 1;
    struct head h;

    memset(&h, 0, sizeof h);
    PL_TRY(machine_plan_model(&h.model, p->model, err));
    h.n_out = opt->n_out;
    h.mtp = opt->mtp;
    h.n_seq = opt->n_seq;
    h.cache_k = (int32_t)opt->cache_k;
    h.cache_v = (int32_t)opt->cache_v;
    h.numerics = (int32_t)opt->numerics;
    h.flags = (opt->cache_set ? FLAG_CACHE_SET : 0) |
              (opt->inexact ? FLAG_INEXACT : 0) |
              (opt->hidden || opt->mtp_texts > 0 ? FLAG_HIDDEN : 0) |
              (opt->trace ? FLAG_TRACE : 0);
    h.kernel_set = (int32_t)p->compiled->kernel_set;
    h.n_threads = opt->n_threads;
    h.n_dev = l->n;
    h.n_keep = opt->n_keep;
    for (int i = 0; i < opt->n_keep; i++)
        n += strlen(opt->keep[i]) + 1;
    *out = calloc(1, n);
    if (!*out)
        return err_no_memory(err, "a plan for other machines");
    memcpy(*out, &h, sizeof h);
    machines_write_devices(*out + sizeof h, l->dev, l->n);
    *bytes = sizeof h + machines_devices_bytes(l->n);
    write_string(*out, bytes, p->options);
    for (int i = 0; i < opt->n_keep; i++)
        write_string(*out, bytes, opt->keep[i]);
    return PL_OK;
}

/* Waits until machine `from` has ended the plan before. */
static pl_status await_ready(pl_machines *m, int from, const pl_options *opt,
                             pl_err *err)
{
    struct network_session *s = NULL;
    pl_status st =
        network_session_receive(m->watch, from, 0, opt->cancel, &s, err);

    if (st == PL_OK && s->tag != MACHINES_READY)
        st = err_set(err, PL_DEVICE,
                     "machine %d has sent message %d instead of being ready; "
                     "use the same version on all machines",
                     from, s->tag);
    free(s);
    return st;
}

pl_status machine_plan_send(const pl_plan *p, const pl_options *opt,
                            pl_err *err)
{
    pl_machines *m = opt->machines;
    unsigned char *data = NULL;
    size_t bytes = 0;
    pl_status s;

    if (!m || m->net->machine != 0)
        return PL_OK;
    if (m->busy)
        return err_set(err, PL_UNSUPPORTED,
                       "several machines run one engine at a time; use one "
                       "model and one set of options");
    if (m->broken)
        return err_set(err, PL_DEVICE,
                       "the machines have ended because of an earlier error; "
                       "restart all");
    s = write_plan(&data, &bytes, p, opt, err);
    for (int k = 1; k < m->net->n_machine && s == PL_OK; k++)
        s = await_ready(m, k, opt, err);
    for (int k = 1; k < m->net->n_machine && s == PL_OK; k++)
        if (!network_session_send(m->watch, k, MACHINES_PLAN, data, bytes))
            s = err_no_memory(err, "a plan for other machines");
    free(data);
    if (s == PL_OK)
        m->busy = true;
    return s;
}

void machine_plan_failed(pl_machines *m, const pl_err *err)
{
    static const pl_err unknown = {PL_DEVICE, "the plan failed"};

    if (!m || m->net->machine != 0)
        return;
    m->broken = true;
    machines_fail(m, err ? err : &unknown);
}

/* ---- reading options ----------------------------------------------------- */

/* The words of a text, as a shell divides it: at blanks outside of single
 * quotes. */
struct words {
    char *at; /* the rest of the text, which is overwritten */
};

/* Returns the next word; NULL if there is none. */
static char *next_word(struct words *w)
{
    char *word, *to;
    bool quoted = false;

    w->at += strspn(w->at, " ");
    if (!*w->at)
        return NULL;
    word = to = w->at;
    for (; *w->at && (quoted || *w->at != ' '); w->at++) {
        if (*w->at == '\'')
            quoted = !quoted;
        else if (!quoted && *w->at == '\\' && w->at[1])
            *to++ = *++w->at;
        else
            *to++ = *w->at;
    }
    if (*w->at)
        w->at++;
    *to = '\0';
    return word;
}

static bool read_int(const char *s, int64_t most, int64_t *out)
{
    char *end;
    long long v;

    errno = 0;
    v = strtoll(s, &end, 10);
    *out = v;
    return errno == 0 && end != s && !*end && v >= 0 && v <= most;
}

/* Reads "1,2,3" into an array of the arena. */
static bool read_shares(struct arena *a, char *s, const double **out, int *n)
{
    double *v = arena_alloc(a, strlen(s) + 1, sizeof *v);
    char *end;

    *out = v;
    for (*n = 0; v; s = end + 1) {
        v[(*n)++] = numeral_double(s, &end);
        if (end == s || !isfinite(v[*n - 1]) || (*end && *end != ','))
            return false;
        if (!*end)
            return true;
    }
    return false;
}

static bool read_mode(pl_options *o, const char *s)
{
    static const char *const names[] = {[PL_SPLIT_NONE] = "none",
                                        [PL_SPLIT_LAYER] = "layer",
                                        [PL_SPLIT_TENSOR] = "tensor"};
    int64_t v;

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (names[i] && strcmp(s, names[i]) == 0) {
            o->split_mode = (pl_split_mode)i;
            return true;
        }
    if (strcmp(s, "hybrid:machine") == 0) {
        o->split_mode = PL_SPLIT_HYBRID;
        o->hybrid_size = -1;
        return true;
    }
    if (strncmp(s, "hybrid:", 7) != 0 || !read_int(s + 7, DEVICE_MAX, &v))
        return false;
    o->split_mode = PL_SPLIT_HYBRID;
    o->hybrid_size = (int)v;
    return true;
}

static bool read_override(struct machine_plan *p, const char *s)
{
    pl_options *o = &p->opt;
    const char **more =
        arena_alloc(&p->arena, (size_t)o->n_overrides + 1, sizeof *more);

    if (!more)
        return false;
    if (o->n_overrides > 0)
        memcpy(more, o->overrides, (size_t)o->n_overrides * sizeof *more);
    more[o->n_overrides++] = s;
    o->overrides = more;
    return true;
}

/* Reads an option with the value `s`. */
static bool read_value(struct machine_plan *p, const char *name, char *s)
{
    pl_options *o = &p->opt;
    int64_t v;

    if (strcmp(name, "-sm") == 0)
        return read_mode(o, s);
    if (strcmp(name, "-ts") == 0)
        return read_shares(&p->arena, s, &o->tensor_split, &o->n_tensor_split);
    if (strcmp(name, "--rank-split") == 0)
        return read_shares(&p->arena, s, &o->rank_split, &o->n_rank_split);
    if (strcmp(name, "-ngl") == 0)
        o->device_layers = s;
    else if (strcmp(name, "-ncmoe") == 0)
        o->host_experts = s;
    else if (strcmp(name, "-ot") == 0)
        return read_override(p, s);
    else if (strcmp(name, "--op-offload") == 0)
        o->offload = strcmp(s, "on") == 0 ? PL_OFFLOAD_ON : PL_OFFLOAD_OFF;
    else if (strcmp(name, "-fit") == 0)
        o->no_fit = true;
    else if (!read_int(s, INT32_MAX, &v))
        return false;
    else if (strcmp(name, "-mg") == 0)
        o->main_device = (int)v;
    else if (strcmp(name, "-ub") == 0)
        o->n_ubatch = v;
    else if (strcmp(name, "-c") == 0)
        o->n_ctx = v;
    else if (strcmp(name, "--checkpoints") == 0)
        o->n_checkpoint = (int)v;
    else if (strcmp(name, "--ranks") == 0)
        o->n_ranks = (int)v;
    else
        return false;
    return true;
}

/* Reads the options that pl_plan_options returns. Writes to `text`. */
static bool read_options(struct machine_plan *p, char *text)
{
    struct words w = {text};
    char *name, *value;

    while ((name = next_word(&w))) {
        if (strcmp(name, "-cmoe") == 0) {
            p->opt.host_experts = "all";
        } else if (strcmp(name, "-nkvo") == 0) {
            p->opt.host_cache = true;
        } else {
            value = next_word(&w);
            if (!value || !read_value(p, name, value))
                return false;
        }
    }
    return true;
}

/* ---- reading a plan ------------------------------------------------------ */

/* Receives nothing: hidden values are read on machine 0 alone. */
static void no_hidden(void *user, const pl_hidden_rows *rows)
{
    (void)user;
    (void)rows;
}

/* Receives a trace: machine 0 writes those of all machines. */
static void no_trace(void *user, const char *s, size_t n)
{
    (void)user;
    (void)s;
    (void)n;
}

/* Copies the options of the head. */
static bool read_head(struct machine_plan *p, const struct head *h)
{
    pl_options *o = &p->opt;

    if (h->kernel_set < 0 || h->kernel_set >= KERNEL_SET_COUNT)
        return false;
    p->model = h->model;
    o->n_out = h->n_out;
    o->mtp = h->mtp;
    o->n_seq = h->n_seq;
    o->n_threads = h->n_threads;
    o->cache_set = h->flags & FLAG_CACHE_SET;
    o->cache_k = (pl_format)h->cache_k;
    o->cache_v = (pl_format)h->cache_v;
    o->numerics = (pl_numerics)h->numerics;
    o->inexact = h->flags & FLAG_INEXACT;
    o->hidden = h->flags & FLAG_HIDDEN ? no_hidden : NULL;
    o->trace = h->flags & FLAG_TRACE ? no_trace : NULL;
    o->cpu = kernel_set_name((enum kernel_set)h->kernel_set);
    return h->n_dev >= 1 && h->n_dev <= DEVICE_MAX && h->n_keep >= 0 &&
           h->n_keep <= MOST_KEPT;
}

/* Reads the strings that follow the devices, data[bytes]. */
static bool read_strings(struct machine_plan *p, const unsigned char *data,
                         size_t bytes, int n_keep)
{
    char *text = arena_memdup(&p->arena, data, bytes + !bytes, 1), *s = text;
    const char **keep =
        arena_alloc(&p->arena, (size_t)n_keep + 1, sizeof *keep);

    if (!text || !keep || bytes == 0 || text[bytes - 1] != '\0')
        return false;
    for (int i = 0; i < n_keep; i++) {
        s += strlen(s) + 1;
        if (s >= text + bytes)
            return false;
        keep[i] = s;
    }
    if (s + strlen(s) + 1 != text + bytes)
        return false;
    p->opt.keep = keep;
    p->opt.n_keep = n_keep;
    return read_options(p, text);
}

pl_status machine_plan_read(struct machine_plan *out, const unsigned char *data,
                            size_t bytes, pl_err *err)
{
    pl_options checked;
    struct head h;
    size_t n;
    bool ok = bytes >= sizeof h;

    *out = (struct machine_plan){.n_dev = 0};
    pl_options_init(&out->opt);
    if (ok) {
        memcpy(&h, data, sizeof h);
        ok = read_head(out, &h);
    }
    n = ok ? machines_devices_bytes(h.n_dev) : 0;
    if (!ok || bytes - sizeof h < n ||
        !read_strings(out, data + sizeof h + n, bytes - sizeof h - n, h.n_keep))
        return err_set(err, PL_UNSUPPORTED,
                       "machine 0 has sent a plan in another form; use the "
                       "same version on all machines");
    PL_TRY(options_read(&checked, &out->opt, err));
    out->dev = malloc((size_t)h.n_dev * sizeof *out->dev);
    if (!out->dev)
        return err_no_memory(err, "the devices of a plan");
    out->n_dev = h.n_dev;
    return machines_read_devices(out->dev, h.n_dev, data + sizeof h, n, 0, err);
}

void machine_plan_free(struct machine_plan *p)
{
    free(p->dev);
    p->dev = NULL;
    arena_fini(&p->arena);
}

/* ---- executing plans ----------------------------------------------------- */

void machine_plan_take_own(struct device_desc *d, const struct device_desc *own)
{
    double rate = d->network_bytes_per_s, latency = d->network_latency_s;

    *d = *own;
    d->network_bytes_per_s = rate;
    d->network_latency_s = latency;
}

/* Checks the devices of a plan, and takes them over. This machine's own are
 * those that it has described. */
static pl_status take_devices(pl_machines *m, struct machine_plan *p,
                              pl_err *err)
{
    int n_own = 0, here = m->net->machine;
    bool ok = p->dev[p->n_dev - 1].io;

    for (int i = 0; i < p->n_dev && ok; i++) {
        struct device_desc *d = &p->dev[i];

        ok = d->machine >= 0 && d->machine < m->net->n_machine &&
             d->io == (i == p->n_dev - 1) && d->host >= d->io &&
             (!d->host || d->machine == 0) && (i == 0 || d->host >= d[-1].host);
        if (!ok || d->machine != here)
            continue;
        ok = n_own < m->own.n && strcmp(d->name, m->own.dev[n_own].name) == 0;
        if (ok)
            machine_plan_take_own(d, &m->own.dev[n_own++]);
    }
    if (!ok || n_own != m->own.n)
        return err_set(err, PL_UNSUPPORTED,
                       "machine 0 plans for other devices than this machine "
                       "has described; use the same version on all machines");
    free(m->dev);
    m->dev = p->dev;
    m->n_dev = p->n_dev;
    p->dev = NULL;
    m->kernel_sets = (uint64_t)-1;
    return PL_OK;
}

static pl_status check_model(const struct machine_plan *p, const pl_model *m,
                             int machine, pl_err *err)
{
    uint64_t own = 0;

    PL_TRY(machine_plan_model(&own, m, err));
    if (own == p->model)
        return PL_OK;
    return err_set(err, PL_BAD_FILE,
                   "%s of machine %d is another model than that of machine 0, "
                   "or has other values (--override-kv); use copies of one "
                   "file",
                   gguf_path(m->file), machine);
}

/* Executes one plan, until machine 0 frees its engine. */
static pl_status execute(pl_machines *m, const pl_model *model,
                         const pl_options *opt, struct machine_plan *p,
                         pl_err *err)
{
    pl_options o = p->opt;
    pl_engine *e;
    pl_status s;

    PL_TRY(check_model(p, model, m->net->machine, err));
    PL_TRY(take_devices(m, p, err));
    o.machines = m;
    o.no_pin = opt->no_pin;
    o.progress = opt->progress;
    o.progress_user = opt->progress_user;
    o.log = opt->log;
    o.log_user = opt->log_user;
    o.cancel = opt->cancel;
    PL_TRY(pl_engine_create(&e, model, &o, err));
    s = device_set_serve(e->exec->set, err);
    pl_engine_free(e);
    return s;
}

/* Sets *ends if machine 0 ends the job, else executes its next plan. */
static pl_status serve_next(pl_machines *m, const pl_model *model,
                            const pl_options *opt, bool *ends, pl_err *err)
{
    struct network_session *s = NULL;
    struct machine_plan p;
    pl_status st;

    if (!network_session_send(m->watch, 0, MACHINES_READY, NULL, 0))
        return err_no_memory(err, "a message");
    PL_TRY(network_session_receive(m->watch, 0, 0, opt->cancel, &s, err));
    if (s->tag == MACHINES_BYE) {
        *ends = true;
        free(s);
        network_session_send(m->watch, 0, MACHINES_BYE, NULL, 0);
        return PL_OK;
    }
    st = machine_plan_read(&p, s->data, s->bytes, err);
    free(s);
    if (st == PL_OK)
        st = execute(m, model, opt, &p, err);
    machine_plan_free(&p);
    return st;
}

pl_status pl_machines_serve(pl_machines *m, const pl_model *model,
                            const pl_options *opt, pl_err *err)
{
    bool ends = false;
    pl_options own;

    PL_NEED(m, err);
    PL_NEED(model, err);
    PL_TRY(options_read(&own, opt, err));
    if (m->net->machine == 0)
        return err_set(err, PL_BAD_ARGUMENT,
                       "this is machine 0, which others serve; create an "
                       "engine");
    while (!ends)
        PL_TRY(serve_next(m, model, &own, &ends, err));
    m->ended = true;
    return PL_OK;
}
