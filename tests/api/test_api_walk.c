/* The limits of pl.h. Whatever a program calls with whatever objects, it gets a
 * status, and the engine computes the same bits afterwards. Each function of
 * the header is called at random, and with each of its pointers NULL in
 * turn. */
#include "lib/engine_run.h"
#include "lib/ref_models.h"
#include "lib/walk.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_CTX = 256, N_SEQ = 4, MOST_TOK = 90, N_KEPT = 3 };

static const char chat_text[] =
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}"
    "{% if tools %}{{ tools | tojson }}{% endif %}<|assistant|>";
static const char messages[] = "[{\"role\": \"user\", \"content\": \"Hi\"}]";
static const char tools[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"add\", "
    "\"parameters\": {\"type\": \"object\", \"properties\": {\"a\": {\"type\": "
    "\"integer\"}}}}}]";

/* The objects that the rows work on: some always exist, others the rows
 * make. */
struct world {
    struct engine_run r;
    pl_options o;
    const char *path;
    const pl_tokenizer *words;
    float *logits; /* [MOST_TOK, n_vocab] logits of a batch */
    float *hidden; /* [MOST_TOK, d_model] input or output of a batch */
    int64_t d_model;
    /* [state_bytes] the state that was saved last, owned; NULL if none */
    void *state;
    size_t state_bytes;
    /* the row whose function a callback calls; NULL if none */
    const struct walk_row *inside;

    pl_model *model;
    pl_plan *plan;
    pl_engine *engine;
    pl_tokenizer *tokenizer;
    pl_detokenizer *detokenizer;
    pl_template *template;
    pl_reply *reply;
    pl_sampler *sampler[N_KEPT];
    pl_grammar *grammar;
    pl_meter *meter;
};

static struct world *of(const struct walk *w)
{
    return w->user;
}

/* ---- arguments ----------------------------------------------------------- */

static pl_engine *an_engine(struct walk *w)
{
    struct world *a = of(w);

    return NEED(w, e, a->engine && walk_chance(w, 4) ? a->engine : a->r.engine);
}

static const pl_model *a_model(struct walk *w)
{
    return NEED(w, m, of(w)->r.model);
}

static int a_seq(struct walk *w)
{
    return walk_is_right(w) ? 0 : walk_i(w, (int)test_below(&w->rng, N_SEQ));
}

/* Returns token ids, most of which are in the vocabulary. */
static const int32_t *ids(struct walk *w)
{
    static int32_t id[N_CTX];

    for (int i = 0; i < N_CTX; i++)
        id[i] = i % 7;
    if (walk_chance(w, 2))
        for (int i = 0; i < 20; i++)
            id[i] = (int32_t)test_below(&w->rng, of(w)->r.n_vocab);
    if (walk_chance(w, 10))
        id[test_below(&w->rng, 20)] = walk_i(w, -1);
    return id;
}

static const volatile int *a_cancel(struct walk *w)
{
    static const int no = 0, yes = 1;

    return walk_may(w, walk_chance(w, 10) ? &yes : &no);
}

static bool is_zero(const void *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (((const char *)p)[i])
            return false;
    return true;
}

/* ---- callbacks ----------------------------------------------------------- */

/* Makes one more call during another, which rejects it or is unaffected. */
static void intrude(struct walk *w)
{
    struct walk in = {.rng = test_random(&w->rng),
                      .user = w->user,
                      .null_at = -1,
                      .inside = true};

    if (w->inside || !walk_chance(w, 3))
        return;
    walk_once(&in, &of(w)->inside[test_below(&w->rng, 12)]);
}

static void on_text(void *user, const char *text, size_t len)
{
    (void)text;
    (void)len;
    intrude(user);
}

static bool on_state(void *user, const void *data, size_t n)
{
    (void)data;
    (void)n;
    intrude(user);
    return !walk_chance(user, 30);
}

struct reading {
    struct walk *w;
    size_t at;
};

static int64_t on_read(void *user, void *data, size_t n)
{
    struct reading *r = user;
    struct world *a = of(r->w);
    size_t left = a->state_bytes - r->at;

    intrude(r->w);
    if (walk_chance(r->w, 40))
        return walk_int(r->w, -1);
    n = n < left ? n : left;
    if (n > 0)
        memcpy(data, (char *)a->state + r->at, n);
    r->at += n;
    return (int64_t)n;
}

static void on_part(void *user, const pl_reply_part *part)
{
    struct walk *w = user;

    assert_true(part->text || part->len == 0);
    if (!walk_chance(w, 4))
        return;
    assert_int_equal(pl_reply_add(of(w)->reply, "x", 1, NULL), PL_BAD_ARGUMENT);
    assert_int_equal(pl_reply_finish(of(w)->reply, NULL), PL_BAD_ARGUMENT);
    /* pl_reply_free does nothing during a callback */
    pl_reply_free(of(w)->reply);
}

static pl_write_fn *a_write(struct walk *w)
{
    return walk_need(w, "write", (void *)(uintptr_t)on_text) ? on_text : NULL;
}

/* ---- base ---------------------------------------------------------------- */

static void version(struct walk *w)
{
    walk_gave(w, pl_version()[0] == '\0');
}

static void status_name(struct walk *w)
{
    assert_non_null(pl_status_name((pl_status)walk_i(w, 3)));
    assert_non_null(pl_status_text((pl_status)walk_i(w, 3)));
}

static void inspect(struct walk *w)
{
    const char *path = NEED(w, path, walk_string(w, of(w)->path));

    walk_ended(w,
               pl_inspect(path, walk_chance(w, 2), a_write(w), w, walk_err(w)),
               true);
}

/* ---- models, plans, engines ---------------------------------------------- */

/* Returns options of an engine with one or two random changes. */
static const pl_options *options(struct walk *w)
{
    static const double share[2] = {1, 0};
    static const char *const names[2] = {"l_out-*", NULL};
    static const char *const rules[2] = {".*=mirrored", NULL};
    static pl_options o;

    o = of(w)->o;
    o.size = walk_size(w, sizeof o);
    for (int i = walk_chance(w, 2) ? 2 : 0; i > 0; i--) {
        int v = walk_i(w, 0);

        switch (test_below(&w->rng, 20)) {
        case 0:
            o.devices = walk_string(w, "cpu*2");
            break;
        case 1:
            o.n_tensor_split = v < 3 ? v : 2;
            o.tensor_split = walk_may(w, share);
            break;
        case 2:
            o.split_mode = (pl_split_mode)v;
            break;
        case 3:
            o.hybrid_size = v;
            break;
        case 4:
            o.main_device = v;
            break;
        case 5:
            o.device_layers = walk_string(w, "1");
            break;
        case 6:
            o.host_experts = walk_string(w, "all");
            break;
        case 7:
            o.n_overrides = v < 3 ? v : 2;
            o.overrides = walk_may(w, rules);
            break;
        case 8:
            o.offload = (pl_offload)v;
            break;
        case 9:
            o.n_keep = v < 3 ? v : 2;
            o.keep = walk_may(w, names);
            break;
        case 10:
            o.cache_set = true;
            o.cache_k = (pl_format)v;
            break;
        case 11:
            o.n_ranks = v;
            break;
        case 12:
            o.mtp = v;
            break;
        case 13:
            o.numerics = (pl_numerics)v;
            break;
        case 14:
            o.cancel = a_cancel(w);
            break;
        case 15:
            o.cpu = walk_string(w, NULL);
            break;
        case 16:
            o.device_spec = walk_string(w, "gpu:1GiB:1TB/s*2");
            break;
        case 17:
            o.n_checkpoint = v < 100 ? v : 3;
            break;
        case 18:
            o.n_out = v < 100 ? v : 3;
            break;
        default:
            o.fit_ctx = v;
        }
    }
    return walk_may(w, &o);
}

static void model_open(struct walk *w)
{
    struct world *a = of(w);
    pl_model *m = (pl_model *)w;
    pl_model **out = NEED(w, out, &m);
    const char *path = NEED(w, path, walk_string(w, a->path));
    pl_status s = pl_model_open(out, path, walk_err(w));

    walk_ended(w, s, !out || !m);
    if (s != PL_OK)
        return;
    pl_model_free(a->model);
    a->model = m;
}

static void model_open_override(struct walk *w)
{
    struct world *a = of(w);
    pl_model *m = (pl_model *)w;
    pl_model **out = NEED(w, out, &m);
    const char *path = NEED(w, path, walk_string(w, a->path));
    const char *all[2] = {
        NEED(w, overrides[i], walk_string(w, ".rope.freq_base=float:9")),
        "general.sampling.temp=int:1"};
    const char *const *overrides = NEED(w, overrides, all);
    pl_status s = pl_model_open_override(out, path, overrides, 2, walk_err(w));

    walk_ended(w, s, !out || !m);
    if (s == PL_OK)
        pl_model_free(m);
}

static void model_inspect(struct walk *w)
{
    walk_ended(w,
               pl_model_inspect(a_model(w), walk_chance(w, 2), a_write(w), w,
                                walk_err(w)),
               true);
}

static void model_free(struct walk *w)
{
    pl_model_free(of(w)->model);
    of(w)->model = NULL;
}

static void model_says(struct walk *w)
{
    const pl_model *m = a_model(w);

    walk_gave(w, pl_model_arch(m)[0] == '\0');
    walk_gave(w, pl_model_n_vocab(m) == 0);
    walk_gave(w, pl_model_n_ctx_train(m) == 0);
    walk_gave(w, pl_model_d_model(m) == 0);
    walk_gave(w, pl_model_n_mtp(m) == 0);
    walk_gave(w, !pl_model_mtp_normed(m));
    walk_gave(w, pl_model_pooling(m) == PL_POOLING_UNSET);
    walk_gave(w, !pl_model_is_encoder(m));
    walk_gave(w, pl_model_n_label(m) == 0);
    walk_gave(w, !pl_model_tokenizer(m));
    /* the model owns its tokenizer, so this does nothing */
    pl_tokenizer_free((pl_tokenizer *)pl_model_tokenizer(m));
}

static void plan_create(struct walk *w)
{
    struct world *a = of(w);
    pl_plan *p = (pl_plan *)w;
    pl_plan **out = NEED(w, out, &p);
    const pl_model *m = a_model(w);
    pl_status s = pl_plan_create(out, m, options(w), walk_err(w));

    walk_ended(w, s, !out || !p);
    if (s != PL_OK)
        return;
    pl_plan_free(a->plan);
    a->plan = p;
}

static void plan_free(struct walk *w)
{
    pl_plan_free(of(w)->plan);
    of(w)->plan = NULL;
}

static const pl_plan *a_plan(struct walk *w)
{
    struct world *a = of(w);

    return NEED(w, p,
                a->plan && walk_chance(w, 2) ? a->plan
                                             : pl_engine_plan(a->r.engine));
}

static void plan_print(struct walk *w)
{
    const pl_plan *p = a_plan(w);

    walk_ended(w,
               pl_plan_print(p, walk_chance(w, 2), a_write(w), w, walk_err(w)),
               true);
}

static void plan_svg(struct walk *w)
{
    const pl_plan *p = a_plan(w);

    walk_ended(w, pl_plan_svg(p, a_write(w), w, walk_err(w)), true);
}

static void plan_dump(struct walk *w)
{
    static const char *const pass[] = {"specialize", "order", "events",
                                       "buffers"};
    const pl_plan *p = a_plan(w);

    walk_ended(w,
               pl_plan_dump(p, NEED(w, pass, pass[test_below(&w->rng, 4)]),
                            a_write(w), w, walk_err(w)),
               true);
}

static void plan_says(struct walk *w)
{
    const pl_plan *p = a_plan(w);
    char line[400] = "x";
    size_t size =
        walk_chance(w, 3) ? (size_t)test_below(&w->rng, 400) : sizeof line;

    walk_gave(w, pl_plan_options(p)[0] == '\0');
    pl_plan_summary(p, walk_may(w, line), size);
    walk_gave(w, line[0] == '\0' || line[0] == 'x');
    /* the engine owns its plan, so this does nothing */
    pl_plan_free((pl_plan *)pl_engine_plan(of(w)->r.engine));
}

static void engine_create(struct walk *w)
{
    struct world *a = of(w);
    pl_engine *e = (pl_engine *)w;
    pl_engine **out = NEED(w, out, &e);
    const pl_model *m = a_model(w);
    const pl_options *o = options(w);
    pl_status s;

    if (!o) /* default options would take all of the machine's memory */
        o = &a->o;
    s = pl_engine_create(out, m, o, walk_err(w));
    walk_ended(w, s, !out || !e);
    if (s != PL_OK)
        return;
    pl_engine_free(a->engine);
    a->engine = e;
}

static void engine_free(struct walk *w)
{
    pl_engine_free(of(w)->engine);
    of(w)->engine = NULL;
}

static void engine_plan(struct walk *w)
{
    pl_engine *e = an_engine(w);

    walk_gave(w, !pl_engine_plan(e));
    walk_gave(w, pl_engine_n_ctx(e) == 0);
    walk_gave(w, !pl_engine_mtp(e));
}

static void engine_counters(struct walk *w)
{
    const pl_engine *e = an_engine(w);
    pl_counters c;
    pl_device_counters d[3];
    pl_cache_counters k;
    pl_traced t;
    int n;

    pl_engine_counters(e, walk_may(w, &c), sizeof c);
    memset(&c, 1, sizeof c);
    pl_engine_counters(e, &c, sizeof c);
    walk_gave(w, is_zero(&c, sizeof c));
    n = walk_i(w, 3);
    walk_gave(
        w, pl_engine_devices(e, walk_may(w, d), n < 3 ? n : 3, sizeof *d) == 0);
    pl_engine_devices(e, NULL, walk_i(w, 3), sizeof *d);
    pl_engine_cache(e, &k, sizeof k);
    walk_gave(w, is_zero(&k, sizeof k));
    pl_engine_cache(e, walk_may(w, &k), 8);
    pl_engine_traced(e, walk_may(w, &t), sizeof t);
}

/* ---- sequences ----------------------------------------------------------- */

static void decode(struct walk *w)
{
    struct world *a = of(w);
    static int32_t seq[MOST_TOK];
    static uint8_t wanted[MOST_TOK];
    pl_engine *e = an_engine(w);
    pl_batch b = {.size = walk_size(w, sizeof b)};
    int32_t one = a_seq(w);
    int64_t most = 1 + test_below(&w->rng, walk_chance(w, 8) ? MOST_TOK : 6);

    for (int i = 0; i < MOST_TOK; i++) {
        seq[i] = walk_chance(w, 10) ? a_seq(w) : one;
        wanted[i] = walk_is_right(w) || walk_chance(w, 2);
    }
    b.token = walk_may(w, ids(w));
    b.n = most;
    if (!b.token || walk_chance(w, 8))
        b.n = walk_int(w, -1);
    if (b.token && b.n > MOST_TOK)
        b.n = MOST_TOK;
    b.seq = walk_may(w, seq);
    b.wanted = walk_may(w, wanted);
    b.logits = walk_may(w, a->logits);
    b.hidden = walk_chance(w, 12) ? a->hidden : NULL;
    b.hidden_out = walk_chance(w, 4) ? a->hidden : NULL;
    b.norm_out = walk_chance(w, 12) ? a->hidden : NULL;
    b.scores = walk_chance(w, 12) ? a->hidden : NULL;
    walk_ended(w, pl_engine_decode(e, NEED(w, b, &b), a_cancel(w), walk_err(w)),
               true);
}

static void seq_length(struct walk *w)
{
    const pl_engine *e = an_engine(w);

    walk_gave(w, pl_seq_length(e, a_seq(w)) == 0);
}

static void seq_trim(struct walk *w)
{
    pl_engine *e = an_engine(w);
    int seq = a_seq(w);
    int64_t kept = 77, *p = walk_may(w, &kept);
    int64_t n = walk_chance(w, 3) ? 0 : pl_seq_length(of(w)->r.engine, seq);
    pl_status s = pl_seq_trim(e, seq, walk_int(w, n), p, walk_err(w));

    walk_ended(w, s, !p || kept == 0);
}

static void seq_copy(struct walk *w)
{
    pl_engine *e = an_engine(w);

    walk_ended(w, pl_seq_copy(e, a_seq(w), a_seq(w), walk_err(w)), true);
}

static void seq_share(struct walk *w)
{
    pl_engine *e = an_engine(w);
    int64_t n, shared = 77, *p;
    const int32_t *token = ARRAY(w, token, ids(w), N_CTX, &n);
    int seq = walk_is_right(w) ? N_SEQ - 1 : a_seq(w);
    pl_status s;

    p = NEED(w, n_shared, &shared);
    s = pl_seq_share(e, seq, token, n, p, walk_err(w));
    walk_ended(w, s, !p || shared == 0);
}

static void kept_length(struct walk *w)
{
    pl_engine *e = an_engine(w);
    int64_t n;
    const int32_t *token = ARRAY(w, token, ids(w), N_CTX, &n);

    walk_gave(w, pl_prefix_match_length(e, token, n) == 0);
}

static void seq_tell(struct walk *w)
{
    pl_engine *e = an_engine(w);
    int64_t n;
    const int32_t *token = ARRAY(w, token, ids(w), N_CTX, &n);

    walk_ended(w, pl_seq_set_tokens(e, a_seq(w), token, n, walk_err(w)), true);
}

static void engine_room(struct walk *w)
{
    const pl_engine *e = an_engine(w);

    walk_gave(w, pl_engine_max_text(e) == 0);
    walk_gave(w,
              pl_engine_free_tokens(e, walk_chance(w, 3) ? -1 : a_seq(w)) == 0);
}

/* ---- states -------------------------------------------------------------- */

static void engine_sum(struct walk *w)
{
    pl_engine *e = an_engine(w);

    walk_ended(w, pl_engine_sum(e, a_cancel(w), walk_err(w)), true);
}

/* Arguments of the functions that save states: a sequence, -1 for all, and
 * positions in it. */
struct range {
    int seq;
    int64_t first, n;
};

static struct range a_range(struct walk *w)
{
    struct range r = {walk_chance(w, 5) ? -1 : a_seq(w), 0, -1};

    if (walk_chance(w, 2))
        r.first = walk_int(w, 0);
    if (walk_chance(w, 2))
        r.n = walk_int(w, 3);
    return r;
}

static void state_save(struct walk *w)
{
    pl_engine *e = an_engine(w);
    struct range r = a_range(w);
    pl_state_write_fn *write =
        NEED(w, write, (void *)(uintptr_t)on_state) ? on_state : NULL;

    walk_ended(w, pl_state_save(e, r.seq, r.first, r.n, write, w, walk_err(w)),
               true);
}

static void state_size(struct walk *w)
{
    pl_engine *e = an_engine(w);
    struct range r = a_range(w);
    uint64_t bytes = 7, *p = NEED(w, bytes, &bytes);
    pl_status s = pl_state_size(e, r.seq, r.first, r.n, p, walk_err(w));

    walk_ended(w, s, !p || bytes == 0);
}

static void keep_state(struct walk *w, pl_status s, void *data, size_t bytes)
{
    struct world *a = of(w);

    if (s != PL_OK || w->inside) {
        free(data);
        return;
    }
    free(a->state);
    a->state = data;
    a->state_bytes = bytes;
    if (bytes > 0 && walk_chance(w, 3)) /* damages one bit of the state */
        ((char *)data)[test_below(&w->rng, (int64_t)bytes)] ^=
            (char)(1 << test_below(&w->rng, 8));
}

static void state_memory(struct walk *w)
{
    pl_engine *e = an_engine(w);
    struct range r = a_range(w);
    void *data = NULL, **to = NEED(w, data, &data);
    size_t bytes = 0, *p = NEED(w, bytes, &bytes);
    pl_status s =
        pl_state_save_memory(e, r.seq, r.first, r.n, to, p, walk_err(w));

    walk_ended(w, s, !data && bytes == 0);
    keep_state(w, s, data, bytes);
}

static void state_aside(struct walk *w)
{
    pl_engine *e = an_engine(w);
    void *data = NULL, **to = NEED(w, data, &data);
    size_t bytes = 0, *p = NEED(w, bytes, &bytes);
    pl_status s = pl_state_swap_out(e, a_seq(w), to, p, walk_err(w));

    walk_ended(w, s, !data && bytes == 0);
    keep_state(w, s, data, bytes);
}

static const char *a_file(struct walk *w)
{
    static const char *file;

    if (!file)
        file = test_temp("walk.state");
    return NEED(w, path, walk_chance(w, 8) ? "/proc/none/such" : file);
}

static void state_file(struct walk *w)
{
    pl_engine *e = an_engine(w);
    struct range r = a_range(w);
    size_t n;
    const char *note = TEXT(w, note, "a note", 6, &n);

    walk_ended(w,
               pl_state_save_file(e, r.seq, r.first, r.n, note, n, a_file(w),
                                  walk_err(w)),
               true);
}

/* The whole life of a file. Calls after a failure get NULL, which they must
 * accept. */
static void file(struct walk *w)
{
    pl_file *f = (pl_file *)w;
    pl_file **out = NEED(w, out, &f);
    unsigned flags = walk_chance(w, 6) ? (unsigned)walk_i(w, 5) : 0;
    pl_status s;
    size_t n;
    const char *data;
    bool written;

    s = pl_file_open(out, a_file(w), flags & ~(unsigned)PL_FILE_RESUME,
                     walk_err(w));
    walk_ended(w, s, !out || !f);
    if (s != PL_OK)
        f = NULL;
    data = walk_may(w, "bytes");
    n = data ? 5 : (size_t)walk_chance(w, 2);
    written = pl_file_write(f, data, n);
    assert_int_equal(written, f && (data || n == 0));
    assert_int_equal(pl_file_fd(f) >= 0, f != NULL);
    assert_int_equal(pl_file_flush(f), f != NULL);
    for (int i = 0; i < 2; i++) {
        s = pl_file_commit(f, walk_err(w));
        if (!f)
            assert_int_equal(s, PL_BAD_ARGUMENT);
    }
    pl_file_close(f);
}

static void host_memory(struct walk *w)
{
    uint64_t all = 0, available = 0, *a = walk_may(w, &all),
             *b = walk_may(w, &available);

    walk_ended(w, pl_host_memory(a, b, walk_err(w)), true);
}

static unsigned flags(struct walk *w)
{
    return walk_chance(w, 6) ? (unsigned)walk_i(w, 5) : PL_STATE_CONVERT;
}

static void restore(struct walk *w)
{
    pl_engine *e = an_engine(w);
    struct reading r = {w, 0};
    pl_state_read_fn *read =
        NEED(w, read, (void *)(uintptr_t)on_read) ? on_read : NULL;
    int seq = walk_chance(w, 3) ? -1 : a_seq(w);

    walk_ended(w, pl_state_restore(e, seq, read, &r, flags(w), walk_err(w)),
               true);
}

static void restore_memory(struct walk *w)
{
    struct world *a = of(w);
    pl_engine *e = an_engine(w);
    size_t n;
    const void *data =
        TEXT(w, data, a->state ? a->state : "", a->state_bytes, &n);
    int seq = walk_chance(w, 3) ? -1 : a_seq(w);

    walk_ended(w,
               pl_state_restore_memory(e, seq, data, n, flags(w), walk_err(w)),
               true);
}

static void restore_file(struct walk *w)
{
    pl_engine *e = an_engine(w);
    int seq = walk_chance(w, 3) ? -1 : a_seq(w);
    void *note = w, **to = walk_may(w, &note);
    size_t bytes = 7, *n = to ? NEED(w, note_bytes, &bytes) : &bytes;
    pl_status s =
        pl_state_restore_file(e, seq, a_file(w), flags(w), to, n, walk_err(w));

    walk_ended(w, s, (!to || !note) && (!n || bytes == 0));
    if (s == PL_OK && to)
        free(note);
}

static void kept_next(struct walk *w)
{
    static int32_t token[N_CTX];
    pl_engine *e = an_engine(w);
    int32_t *to = NEED(w, token, token);
    int64_t room = walk_chance(w, 8) ? walk_int(w, 0) : N_CTX;
    int64_t n = 7, *pn = NEED(w, n, &n);
    bool goes_on = true, *on = NEED(w, goes_on, &goes_on);
    void *data = NULL, **pd = NEED(w, data, &data);
    size_t bytes = 0, *pb = NEED(w, bytes, &bytes);
    pl_status s =
        pl_prefix_export_page(e, to, room, pn, on, pd, pb, walk_err(w));

    walk_ended(w, s,
               (!pn || n == 0) && (!on || !goes_on) && !data && bytes == 0);
    keep_state(w, s, data, bytes);
}

static void seq_extend(struct walk *w)
{
    struct world *a = of(w);
    pl_engine *e = an_engine(w);
    int64_t n;
    size_t bytes;
    const int32_t *token = ARRAY(w, token, ids(w), 64, &n);
    const void *data =
        TEXT(w, data, a->state ? a->state : "", a->state_bytes, &bytes);

    walk_ended(
        w, pl_seq_import_page(e, a_seq(w), token, n, data, bytes, walk_err(w)),
        true);
}

/* ---- text ---------------------------------------------------------------- */

static const pl_tokenizer *a_tokenizer(struct walk *w)
{
    struct world *a = of(w);

    return NEED(w, t,
                a->tokenizer && walk_chance(w, 3) ? a->tokenizer : a->words);
}

/* Frees the tokenizer, and before it all objects that borrow it. */
static void drop_words(struct world *a)
{
    pl_detokenizer_free(a->detokenizer);
    a->detokenizer = NULL;
    for (int i = 0; i < N_KEPT; i++) {
        pl_sampler_free(a->sampler[i]);
        a->sampler[i] = NULL;
    }
    pl_tokenizer_free(a->tokenizer);
    a->tokenizer = NULL;
}

static void tokenizer_open(struct walk *w)
{
    struct world *a = of(w);
    pl_tokenizer *t = (pl_tokenizer *)w;
    pl_tokenizer **out = NEED(w, out, &t);
    const char *path = NEED(w, path, walk_string(w, a->path));
    pl_status s = pl_tokenizer_open(out, path, walk_err(w));

    walk_ended(w, s, !out || !t);
    if (s != PL_OK)
        return;
    drop_words(a);
    a->tokenizer = t;
}

static void tokenizer_free(struct walk *w)
{
    if (w->inside)
        return;
    drop_words(of(w));
}

static void tokenizer_says(struct walk *w)
{
    const pl_tokenizer *t = a_tokenizer(w);
    char bytes[4];

    walk_gave(w, pl_tokenizer_n_vocab(t) == 0);
    walk_gave(w, !pl_tokenizer_adds_bos(t));
    walk_gave(w, pl_tokenizer_bos(t) == -1);
    walk_gave(w, pl_tokenizer_eos(t) == -1);
    walk_gave(w, !pl_token_is_eog(t, walk_i(w, 2)));
    walk_gave(w, pl_token_fim(t, (pl_fim)walk_i(w, 2)) == -1);
    walk_gave(w, pl_token_bytes(t, walk_i(w, 2), walk_may(w, bytes),
                                sizeof bytes) == 0);
}

static void tokenize(struct walk *w)
{
    const pl_tokenizer *t = a_tokenizer(w);
    const char *text = walk_string(w, "Once upon a time");
    int32_t *id = NULL, **to = NEED(w, ids, &id);
    int64_t n = 0, *p = NEED(w, n, &n);
    size_t len;
    pl_status s;

    text = TEXT(w, text, text, strlen(text), &len);
    s = pl_tokenize(t, text, len, walk_chance(w, 5) ? walk_i(w, 3) : 1, to, p,
                    walk_err(w));
    walk_ended(w, s, !id && n == 0);
    free(id);
}

static void tokenize_pair(struct walk *w)
{
    const pl_model *m = a_model(w);
    const char *query = walk_string(w, "Once upon"), *text;
    int32_t *id = NULL, **to = NEED(w, ids, &id);
    int64_t n = 0, *p = NEED(w, n, &n);
    size_t len, text_len;
    pl_status s;

    text = TEXT(w, document, query, strlen(query), &text_len);
    query = TEXT(w, query, query, strlen(query), &len);
    s = pl_tokenize_pair(m, query, len, text, text_len, to, p, walk_err(w));
    walk_ended(w, s, !id && n == 0);
    free(id);
}

static void detokenizer_create(struct walk *w)
{
    struct world *a = of(w);
    pl_detokenizer *d = (pl_detokenizer *)w;
    pl_detokenizer **out = NEED(w, out, &d);
    const pl_tokenizer *t = a_tokenizer(w);
    pl_status s = pl_detokenizer_create(out, t, walk_chance(w, 2), walk_err(w));

    walk_ended(w, s, !out || !d);
    if (s != PL_OK)
        return;
    pl_detokenizer_free(a->detokenizer);
    a->detokenizer = d;
}

static void detokenizer_free(struct walk *w)
{
    pl_detokenizer_free(of(w)->detokenizer);
    of(w)->detokenizer = NULL;
}

static void detokenize(struct walk *w)
{
    pl_detokenizer *d = NEED(w, d, of(w)->detokenizer);

    walk_gave(w, pl_detokenize(d, walk_i(w, 9))[0] == '\0');
    walk_gave(w, pl_detokenize_flush(d)[0] == '\0');
}

/* ---- chat ---------------------------------------------------------------- */

static void drop_template(struct world *a)
{
    pl_reply_free(a->reply);
    a->reply = NULL;
    pl_template_free(a->template);
    a->template = NULL;
}

static void template_create(struct walk *w)
{
    struct world *a = of(w);
    pl_template *t = (pl_template *)w;
    pl_template **out = NEED(w, out, &t);
    const char *text = walk_string(w, chat_text);
    const char *path = walk_may(w, a->path);
    size_t len = strlen(text);
    pl_status s;

    text = walk_may(w, text);
    if (!text && walk_chance(w, 2))
        len = SIZE_MAX;
    s = pl_template_create(out, text, len, path, walk_err(w));
    walk_ended(w, s, !out || !t);
    if (s != PL_OK)
        return;
    drop_template(a);
    a->template = t;
}

static void model_template(struct walk *w)
{
    struct world *a = of(w);
    pl_template *t = (pl_template *)w;
    pl_template **out = NEED(w, out, &t);
    const char *text = walk_string(w, chat_text);
    size_t len = strlen(text);
    pl_status s =
        pl_model_template(out, a_model(w), walk_may(w, text), len, walk_err(w));

    walk_ended(w, s, !out || !t);
    if (s != PL_OK)
        return;
    drop_template(a);
    a->template = t;
}

static void template_free(struct walk *w)
{
    drop_template(of(w));
}

static void template_says(struct walk *w)
{
    walk_gave(
        w, !pl_template_text(walk_may(w, of(w)->template), walk_chance(w, 2)));
}

static void template_render(struct walk *w)
{
    const pl_template *t = NEED(w, t, of(w)->template);
    pl_conversation c = {.size = walk_size(w, sizeof c)};
    const pl_conversation *given;
    char *text = NULL, **to;
    size_t len = 0, *p = walk_may(w, &len);
    pl_status s;

    c.messages = walk_may(w, walk_string(w, messages));
    c.tools = walk_chance(w, 2) ? walk_string(w, tools) : NULL;
    c.extra = walk_chance(w, 2) ? walk_string(w, "{\"a\": 1}") : NULL;
    c.now = walk_int(w, 0);
    c.adapt = walk_chance(w, 2);
    given = NEED(w, c, &c);
    to = NEED(w, text, &text);
    s = pl_template_render(t, given, to, p, walk_err(w));
    walk_ended(w, s, !text && len == 0);
    free(text);
}

static void template_calls(struct walk *w)
{
    const pl_template *t = NEED(w, t, of(w)->template);
    const char *list = NEED(w, tools, walk_string(w, tools));
    const char *only = walk_chance(w, 3) ? walk_string(w, "add") : NULL;
    const char *content = walk_chance(w, 3) ? walk_string(w, "true") : NULL;
    char *gbnf = NULL, **to = NEED(w, gbnf, &gbnf);
    bool reasons = false, *p = NEED(w, reasons, &reasons);
    pl_status s = pl_template_calls(t, list, only, walk_chance(w, 2), content,
                                    to, p, walk_err(w));

    walk_ended(w, s, !gbnf && !reasons);
    free(gbnf);
}

static void reply_create(struct walk *w)
{
    struct world *a = of(w);
    pl_reply *r = (pl_reply *)w;
    pl_reply **out = NEED(w, out, &r);
    const pl_template *t = NEED(w, t, a->template);
    const char *prompt = walk_string(w, "<|assistant|>");
    const char *list = walk_chance(w, 2) ? walk_string(w, tools) : NULL;
    size_t len;
    pl_status s;

    prompt = TEXT(w, prompt, prompt, strlen(prompt), &len);
    s = pl_reply_create(out, t, prompt, len, list,
                        walk_chance(w, 6) ? NULL : on_part, w, walk_err(w));
    walk_ended(w, s, !out || !r);
    if (s != PL_OK)
        return;
    pl_reply_free(a->reply);
    a->reply = r;
}

static void reply_free(struct walk *w)
{
    pl_reply_free(of(w)->reply);
    of(w)->reply = NULL;
}

static void reply_add(struct walk *w)
{
    pl_reply *r = NEED(w, r, of(w)->reply);
    const char *text = walk_string(
        w, walk_chance(w, 2) ? "<tool_call>{\"name\": \"add\"" : "Hello");
    size_t len;

    text = TEXT(w, text, text, strlen(text), &len);
    walk_ended(w, pl_reply_add(r, text, len, walk_err(w)), true);
    w->n_wrong = 0;
    if (r && walk_chance(w, 6))
        walk_ended(w, pl_reply_finish(r, NULL), true);
}

static void reply_finish(struct walk *w)
{
    /* the shared reply must not be finished, because it would stay so for later
     * calls */
    if (walk_is_right(w))
        walk_ended(w, pl_reply_finish(NEED(w, r, NULL), walk_err(w)), true);
    else
        walk_ended(w, pl_reply_finish(NEED(w, r, of(w)->reply), walk_err(w)),
                   true);
}

static void reply_says(struct walk *w)
{
    pl_reply *r = NEED(w, r, of(w)->reply);
    size_t len = 7;

    pl_reply_in_pieces(r);
    pl_reply_of_document(r);
    pl_reply_keep_reasoning(r);
    pl_reply_uncut(r);
    walk_gave(w, !pl_reply_ended(r));
    walk_gave(w, !pl_reply_in_content(r));
    walk_gave(w, !pl_reply_end_of_reasoning(r));
    walk_gave(w, pl_reply_text(r, walk_may(w, &len))[0] == '\0');
}

static void reply_message(struct walk *w)
{
    const pl_reply *r = NEED(w, r, of(w)->reply);
    char *json = NULL, **to = NEED(w, json, &json);

    walk_ended(w, pl_reply_message(r, to, walk_err(w)), !json);
    free(json);
}

/* ---- sampling ------------------------------------------------------------ */

static float a_float(struct walk *w, float right)
{
    static const float odd[] = {NAN, INFINITY, -INFINITY, -1, 0, 1e30f, 1e-30f};

    return walk_chance(w, 12) ? odd[test_below(&w->rng, 7)] : right;
}

static void sampling_init(struct walk *w)
{
    pl_sampling s;

    pl_sampling_init_size(
        walk_may(w, &s),
        walk_chance(w, 3) ? (size_t)test_below(&w->rng, sizeof s) : sizeof s);
}

static void model_sampling(struct walk *w)
{
    const pl_model *m = a_model(w);
    pl_sampling s, *to;

    pl_sampling_init(&s);
    s.size = walk_size(w, sizeof s);
    to = NEED(w, s, &s);
    walk_ended(w, pl_model_sampling(m, to, walk_err(w)), true);
}

static void step_find(struct walk *w)
{
    const char *name = NEED(w, name, walk_string(w, "top_k"));

    walk_gave(w, pl_sampling_step_find(name, name ? strlen(name) : 3) == -1);
}

static void step_name(struct walk *w)
{
    walk_gave(w, pl_sampling_step_name(walk_i(w, 2))[0] == '\0');
}

/* Returns a number as large as a mistake may be, but no larger than memory. */
static int moderate(struct walk *w, int right)
{
    int v = walk_i(w, right);

    return v > 1 << 20 ? 1 << 20 : v;
}

static const pl_sampling *a_sampling(struct walk *w)
{
    static pl_sampling s;
    static const int32_t id[2] = {1, 2};
    static const int32_t no_id[2] = {-1, INT32_MAX};
    static const int32_t sequence[2] = {1, -1};
    static const float bias[2] = {1, -INFINITY};
    static const char *const breaker[2] = {"\n", ""};
    static const char *const no_breaker[2] = {"x", NULL};
    int v;

    pl_sampling_init(&s);
    s.size = walk_size(w, sizeof s);
    s.penalty_last_n = moderate(w, 64);
    s.repeat_penalty = a_float(w, 1.1f);
    v = walk_i(w, 0);
    s.bias_id = walk_chance(w, 8) ? no_id : walk_may(w, id);
    s.bias = walk_may(w, bias);
    s.n_bias = s.bias_id && s.bias && v > 2 ? 2 : v;
    s.top_k = walk_i(w, 40);
    s.top_p = a_float(w, 0.9f);
    s.min_p = a_float(w, 0.05f);
    s.typical_p = a_float(w, 1);
    s.temperature = a_float(w, 0.8f);
    s.top_n_sigma = a_float(w, 0);
    s.xtc_probability = a_float(w, 0);
    s.dynatemp_range = a_float(w, 0);
    s.dry_multiplier = a_float(w, walk_chance(w, 2) ? 1 : 0);
    s.dry_base = a_float(w, 1.75f);
    s.dry_allowed_length = walk_i(w, 2);
    s.dry_last_n = moderate(w, 100);
    v = walk_i(w, 0);
    s.dry_breaker = walk_chance(w, 4) ? no_breaker : walk_may(w, breaker);
    s.n_dry_breaker = s.dry_breaker && v > 2 ? 2 : v;
    s.tokenizer = walk_may(w, of(w)->words);
    s.mirostat = walk_chance(w, 4) ? walk_i(w, 2) : 0;
    s.adaptive_target = a_float(w, walk_chance(w, 2) ? 0.5f : -1);
    s.adaptive_decay = a_float(w, 0.9f);
    s.only = walk_chance(w, 8) ? no_id : walk_may(w, id);
    s.n_only = s.only && walk_chance(w, 4) ? 2 : 0;
    s.banned = walk_chance(w, 8) ? no_id : walk_may(w, sequence);
    s.n_banned = s.banned && walk_chance(w, 4) ? 2 : 0;
    s.stop = walk_chance(w, 8) ? no_id : walk_may(w, id);
    s.n_stop = s.stop && walk_chance(w, 2) ? 2 : 0;
    s.n_step = walk_chance(w, 4) ? walk_i(w, 3) : 0;
    for (int i = 0; i < PL_N_STEP; i++)
        s.step[i] = (uint8_t)(walk_chance(w, 4) ? walk_i(w, i) : i);
    return walk_chance(w, 8) ? NULL : &s;
}

static int a_place(struct walk *w)
{
    return walk_is_right(w) ? 0 : (int)test_below(&w->rng, N_KEPT);
}

static void sampler_create(struct walk *w)
{
    struct world *a = of(w);
    pl_sampler *p = (pl_sampler *)w;
    pl_sampler **out = NEED(w, out, &p);
    int64_t n = walk_chance(w, 8) ? walk_int(w, 0) : a->r.n_vocab;
    int i = a_place(w);
    pl_status s = pl_sampler_create(out, a_sampling(w),
                                    n > a->r.n_vocab && n <= INT32_MAX ? 0 : n,
                                    walk_err(w));

    walk_ended(w, s, !out || !p);
    if (s != PL_OK)
        return;
    pl_sampler_free(a->sampler[i]);
    a->sampler[i] = p;
}

static void sampler_free(struct walk *w)
{
    int i = a_place(w);

    pl_sampler_free(of(w)->sampler[i]);
    of(w)->sampler[i] = NULL;
}

static pl_sampler *a_sampler(struct walk *w)
{
    return NEED(w, s, of(w)->sampler[a_place(w)]);
}

static void sample(struct walk *w)
{
    struct world *a = of(w);
    pl_sampler *s = a_sampler(w);
    const float *logits;

    for (int64_t i = 0; i < a->r.n_vocab; i++)
        a->logits[i] = test_unit(&w->rng);
    if (walk_chance(w, 6))
        a->logits[test_below(&w->rng, a->r.n_vocab)] = a_float(w, NAN);
    logits = NEED(w, logits, a->logits);
    walk_gave(w, pl_sample(s, logits) == -1);
    w->n_wrong = 0;
    if (s && !logits)
        assert_int_equal(pl_sampler_status(s, &w->err), PL_BAD_ARGUMENT);
}

static void sampler_status(struct walk *w)
{
    const pl_sampler *s = a_sampler(w);
    pl_status got = pl_sampler_status(s, walk_err(w));

    if (!s)
        walk_ended(w, got, true);
}

static void sampler_accept(struct walk *w)
{
    pl_sampler *s = a_sampler(w);

    pl_sampler_accept(s, walk_i(w, 3));
    pl_sampler_prepare(s);
}

static void sampler_force(struct walk *w)
{
    pl_sampler *s = a_sampler(w);
    int32_t id = walk_i(w, 3);
    pl_status got = pl_sampler_force(s, id, walk_err(w));

    if (got != PL_NOT_FOUND) /* the grammar may forbid this token */
        walk_ended(w, got, !s || id < 0 || id >= of(w)->r.n_vocab);
}

static void exclude_eog(struct walk *w)
{
    pl_sampler *s = a_sampler(w);
    const pl_tokenizer *t = walk_may(w, (void *)of(w)->words);

    walk_ended(w, pl_sampler_exclude_eog(s, t, walk_err(w)), true);
}

static void exclude_stops(struct walk *w)
{
    pl_sampler *s = a_sampler(w);

    walk_ended(w, pl_sampler_exclude_stops(s, walk_chance(w, 2), walk_err(w)),
               true);
}

static void grammar_create(struct walk *w)
{
    struct world *a = of(w);
    pl_grammar *g = (pl_grammar *)w;
    pl_grammar **out = NEED(w, out, &g);
    const pl_tokenizer *t = a_tokenizer(w);
    bool schema = walk_chance(w, 2);
    const char *text =
        walk_string(w, schema ? "{\"type\": \"integer\"}" : "root ::= [a-z]*");
    const char *name = walk_may(w, "mine");
    size_t len;
    pl_status s;
    int form = walk_chance(w, 8) ? walk_i(w, 2) : schema;

    text = TEXT(w, text, text, strlen(text), &len);
    s = pl_grammar_create(out, t, (pl_grammar_form)form, text, len, name,
                          walk_err(w));
    walk_ended(w, s, !out || !g);
    if (s != PL_OK)
        return;
    for (int i = 0; i < N_KEPT; i++)
        pl_sampler_set_grammar(a->sampler[i], NULL, NULL);
    pl_grammar_free(a->grammar);
    a->grammar = g;
}

static void grammar_notes(struct walk *w)
{
    const pl_grammar *g = walk_may(w, of(w)->grammar);

    assert_non_null(pl_grammar_notes(g));
}

static void grammar_free(struct walk *w)
{
    struct world *a = of(w);

    for (int i = 0; i < N_KEPT; i++)
        pl_sampler_set_grammar(a->sampler[i], NULL, NULL);
    pl_grammar_free(a->grammar);
    a->grammar = NULL;
}

static void set_grammar(struct walk *w)
{
    pl_sampler *s = a_sampler(w);
    pl_grammar *g = walk_may(w, of(w)->grammar);

    walk_ended(w, pl_sampler_set_grammar(s, g, walk_err(w)), true);
}

/* ---- machine ------------------------------------------------------------- */

static void devices_print(struct walk *w)
{
    if (walk_is_right(w) || walk_chance(w, 8))
        walk_ended(
            w, pl_devices_print(walk_chance(w, 2), a_write(w), w, walk_err(w)),
            true);
}

/* Makes wrong calls only: a correct one takes seconds and changes later
 * plans. */
static void devices_measure(struct walk *w)
{
    pl_options o = {.size = walk_is_right(w) ? sizeof o : 0};

    if (walk_is_right(w) && w->null_at != 0)
        return;
    walk_ended(w,
               pl_devices_measure(&o, false,
                                  walk_is_right(w) ? a_write(w) : on_text, w,
                                  walk_err(w)),
               true);
}

/* A correct call would write a large file, so all are cancelled. */
static void synth_save(struct walk *w)
{
    static const int yes = 1;
    const char *shape = NEED(w, shape, walk_string(w, "qwen3-0.6b"));
    const char *type = NEED(w, type, walk_string(w, "q4_k_m"));
    const char *path = NEED(w, path, test_temp("walk.gguf"));
    pl_status s =
        pl_synth_save(shape, type, path, NULL, NULL, &yes, walk_err(w));

    assert_true(s != PL_OK);
    walk_ended(w, s, true);
}

static void synth_size(struct walk *w)
{
    const char *shape = NEED(w, shape, walk_string(w, "qwen3-8b"));
    const char *type = NEED(w, type, walk_string(w, "q8_0"));
    uint64_t bytes = 7, *p = NEED(w, bytes, &bytes);
    pl_status s = pl_synth_size(shape, type, p, walk_err(w));

    walk_ended(w, s, !p || bytes == 0);
}

/* A meter that measures takes much memory and some time. */
static void meter_create(struct walk *w)
{
    if (walk_is_right(w) && w->null_at == 0)
        walk_ended(w, pl_meter_create(NEED(w, out, NULL), walk_err(w)), true);
}

static void meter_measure(struct walk *w)
{
    pl_limits now, best;
    pl_status s;

    memset(&now, 1, sizeof now);
    s = pl_meter_measure(NEED(w, m, NULL), walk_may(w, &now),
                         walk_may(w, &best), sizeof now, walk_err(w));
    walk_ended(w, s, true);
    pl_meter_free(of(w)->meter);
}

/* ---- the table ----------------------------------------------------------- */

/* The functions that are called at random. Callbacks call the first twelve. */
static const struct walk_row rows[] = {
    {"pl_engine_decode", decode},
    {"pl_seq_length", seq_length},
    {"pl_seq_trim", seq_trim},
    {"pl_seq_copy", seq_copy},
    {"pl_seq_share", seq_share},
    {"pl_prefix_match_length", kept_length},
    {"pl_seq_set_tokens", seq_tell},
    {"pl_engine_free_tokens", engine_room},
    {"pl_engine_max_text", engine_room},
    {"pl_engine_counters", engine_counters},
    {"pl_state_save", state_save},
    {"pl_state_restore", restore},
    {"pl_engine_sum", engine_sum},
    {"pl_version", version},
    {"pl_status_name", status_name},
    {"pl_status_text", status_name},
    {"pl_inspect", inspect},
    {"pl_model_open", model_open},
    {"pl_model_open_override", model_open_override},
    {"pl_model_inspect", model_inspect},
    {"pl_model_free", model_free},
    {"pl_model_arch", model_says},
    {"pl_model_n_vocab", model_says},
    {"pl_model_n_ctx_train", model_says},
    {"pl_model_d_model", model_says},
    {"pl_model_mtp_normed", model_says},
    {"pl_model_n_mtp", model_says},
    {"pl_model_pooling", model_says},
    {"pl_model_is_encoder", model_says},
    {"pl_model_n_label", model_says},
    {"pl_model_tokenizer", model_says},
    {"pl_plan_create", plan_create},
    {"pl_plan_free", plan_free},
    {"pl_plan_print", plan_print},
    {"pl_plan_options", plan_says},
    {"pl_plan_summary", plan_says},
    {"pl_plan_dump", plan_dump},
    {"pl_plan_svg", plan_svg},
    {"pl_engine_create", engine_create},
    {"pl_engine_free", engine_free},
    {"pl_engine_plan", engine_plan},
    {"pl_engine_n_ctx", engine_plan},
    {"pl_engine_mtp", engine_plan},
    {"pl_engine_devices", engine_counters},
    {"pl_engine_cache", engine_counters},
    {"pl_engine_traced", engine_counters},
    {"pl_state_size", state_size},
    {"pl_state_save_memory", state_memory},
    {"pl_state_swap_out", state_aside},
    {"pl_state_save_file", state_file},
    {"pl_file_open", file},
    {"pl_file_write", file},
    {"pl_file_fd", file},
    {"pl_file_flush", file},
    {"pl_file_commit", file},
    {"pl_file_close", file},
    {"pl_host_memory", host_memory},
    {"pl_state_restore_memory", restore_memory},
    {"pl_state_restore_file", restore_file},
    {"pl_prefix_export_page", kept_next},
    {"pl_seq_import_page", seq_extend},
    {"pl_tokenizer_open", tokenizer_open},
    {"pl_tokenizer_free", tokenizer_free},
    {"pl_tokenizer_n_vocab", tokenizer_says},
    {"pl_tokenizer_adds_bos", tokenizer_says},
    {"pl_tokenizer_bos", tokenizer_says},
    {"pl_tokenizer_eos", tokenizer_says},
    {"pl_token_is_eog", tokenizer_says},
    {"pl_token_fim", tokenizer_says},
    {"pl_token_bytes", tokenizer_says},
    {"pl_tokenize", tokenize},
    {"pl_tokenize_pair", tokenize_pair},
    {"pl_detokenizer_create", detokenizer_create},
    {"pl_detokenizer_free", detokenizer_free},
    {"pl_detokenize", detokenize},
    {"pl_detokenize_flush", detokenize},
    {"pl_template_create", template_create},
    {"pl_model_template", model_template},
    {"pl_template_free", template_free},
    {"pl_template_text", template_says},
    {"pl_template_render", template_render},
    {"pl_template_calls", template_calls},
    {"pl_reply_create", reply_create},
    {"pl_reply_free", reply_free},
    {"pl_reply_in_pieces", reply_says},
    {"pl_reply_of_document", reply_says},
    {"pl_reply_keep_reasoning", reply_says},
    {"pl_reply_uncut", reply_says},
    {"pl_reply_add", reply_add},
    {"pl_reply_finish", reply_finish},
    {"pl_reply_ended", reply_says},
    {"pl_reply_in_content", reply_says},
    {"pl_reply_end_of_reasoning", reply_says},
    {"pl_reply_text", reply_says},
    {"pl_reply_message", reply_message},
    {"pl_sampling_init_size", sampling_init},
    {"pl_model_sampling", model_sampling},
    {"pl_sampling_step_find", step_find},
    {"pl_sampling_step_name", step_name},
    {"pl_sampler_create", sampler_create},
    {"pl_sampler_free", sampler_free},
    {"pl_sample", sample},
    {"pl_sampler_status", sampler_status},
    {"pl_sampler_accept", sampler_accept},
    {"pl_grammar_create", grammar_create},
    {"pl_grammar_free", grammar_free},
    {"pl_grammar_notes", grammar_notes},
    {"pl_sampler_set_grammar", set_grammar},
    {"pl_sampler_prepare", sampler_accept},
    {"pl_sampler_force", sampler_force},
    {"pl_sampler_exclude_eog", exclude_eog},
    {"pl_sampler_exclude_stops", exclude_stops},
    {"pl_devices_print", devices_print},
    {"pl_devices_measure", devices_measure},
    {"pl_synth_save", synth_save},
    {"pl_synth_size", synth_size},
    {"pl_meter_create", meter_create},
    {"pl_meter_free", meter_measure},
    {"pl_meter_measure", meter_measure},
};
enum { N_ROW = sizeof rows / sizeof rows[0] };

/* ---- cases --------------------------------------------------------------- */

static void world_open(struct world *a, const char *model)
{
    *a = (struct world){.path = ref_model_path(model),
                        .o = engine_run_options(),
                        .inside = rows};
    a->o.n_ctx = N_CTX;
    a->o.n_seq = N_SEQ;
    a->o.prefix_cache = true;
    engine_run_open(&a->r, a->path, model, &a->o);
    a->words = pl_model_tokenizer(a->r.model);
    a->d_model = pl_model_d_model(a->r.model);
    a->logits = test_need((size_t)(MOST_TOK * a->r.n_vocab), sizeof(float));
    a->hidden = test_need((size_t)(MOST_TOK * a->d_model), sizeof(float));
    assert_non_null(a->words);
}

/* Makes an object of each type, for the calls with one NULL. */
static void world_fill(struct world *a)
{
    pl_err err;

    drop_template(a);
    drop_words(a);
    TEST_OK(pl_template_create(&a->template, chat_text, strlen(chat_text), NULL,
                               &err),
            err);
    TEST_OK(pl_reply_create(&a->reply, a->template, NULL, 0, NULL, NULL, NULL,
                            &err),
            err);
    TEST_OK(pl_detokenizer_create(&a->detokenizer, a->words, false, &err), err);
    TEST_OK(pl_sampler_create(&a->sampler[0], NULL, a->r.n_vocab, &err), err);
}

static void world_close(struct world *a)
{
    drop_words(a);
    drop_template(a);
    pl_grammar_free(a->grammar);
    pl_plan_free(a->plan);
    pl_engine_free(a->engine);
    pl_model_free(a->model);
    free(a->state);
    free(a->logits);
    free(a->hidden);
    engine_run_close(&a->r);
}

/* Computes the logits of six tokens that are decoded alone into an empty
 * sequence. */
static void compute(const struct world *a, float *out)
{
    static const int32_t token[6] = {1, 5, 9, 2, 7, 3};

    for (int i = 0; i < N_SEQ; i++)
        assert_int_equal(pl_seq_trim(a->r.engine, i, 0, NULL, NULL), PL_OK);
    engine_run_decode(&a->r, 1, 6, token, out);
}

TEST(api_walk_calls_every_function)
{
    walk_names_all("include/pl.h", rows, N_ROW);
}

TEST(api_null_is_refused_by_name)
{
    struct world a;
    struct walk w = {.rng = test_seed(), .user = &a};

    world_open(&a, "qwen2-bias-f32");
    for (int i = 0; i < N_ROW; i++) {
        world_fill(&a);
        walk_nulls(&w, &rows[i]);
    }
    world_close(&a);
}

TEST(api_walk_gives_a_status_and_keeps_the_bits)
{
    static const char *const models[] = {
        "qwen2-bias-f32", "made/gemma3-swa-f32", "made/qwen35-dense-f32"};
    struct walk w = {.rng = test_seed()};

    for (size_t k = 0; k < sizeof models / sizeof models[0]; k++) {
        struct world a;
        size_t bytes;
        float *before, *after;

        world_open(&a, models[k]);
        w.user = &a;
        bytes = 6 * (size_t)a.r.n_vocab * sizeof(float);
        before = test_need(1, bytes);
        after = test_need(1, bytes);
        compute(&a, before);
        for (int i = test_draws(1500, 30000); i > 0; i--) {
            if (test_below(&w.rng, 40) == 0)
                world_fill(&a);
            walk_once(&w, &rows[test_below(&w.rng, N_ROW)]);
        }
        compute(&a, after);
        assert_memory_equal(before, after, bytes);
        free(before);
        free(after);
        world_close(&a);
    }
    print_message("%lld calls did something, %lld were refused\n",
                  (long long)w.n_ok, (long long)w.n_refused);
    assert_true(w.n_ok > w.n_refused / 20 && w.n_refused > 0);
}
