/* The limits of pl_receipt.h: whatever a program calls with whatever objects,
 * it gets a status, and receipts that were written before still hold. */
#include "lib/receipt_way.h"
#include "lib/ref_models.h"
#include "lib/walk.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_LINES = 4 };

/* The objects that the random calls use. */
struct world {
    struct engine_run r;
    const pl_tokenizer *words;
    pl_sampler *sampler;
    /* a receipt that was begun, and that `sampler` may record; NULL if none */
    pl_receipt *written;
    pl_receipt *parsed; /* a receipt that was parsed; NULL if none */
    float *row;         /* [n_vocab] logits for the sampler */
    char *text[MOST_LINES];
};

static struct world *of(const struct walk *w)
{
    return w->user;
}

/* A receipt that is being written, or one that was parsed. */
static pl_receipt *one(struct walk *w, bool parsed)
{
    if (walk_chance(w, 6))
        parsed = !parsed;
    return parsed ? of(w)->parsed : of(w)->written;
}

static pl_receipt_given *a_given(struct walk *w)
{
    static const int cancel[2] = {0, 1};
    static pl_receipt_given g;

    g = (pl_receipt_given){.size = walk_size(w, sizeof g),
                           .prompt = walk_may(w, way_prompt),
                           .n_prompt = WAY_PROMPT,
                           .grammar = walk_chance(w, 4) ? "root ::= ." : NULL,
                           .grammar_len = 10,
                           .n_sample = walk_int(w, 3),
                           .seed = (uint64_t)walk_int(w, 1),
                           .cancel = &cancel[walk_chance(w, 8)]};
    if (walk_chance(w, 4))
        g.n_prompt = test_below(&w->rng, WAY_PROMPT + 1);
    return walk_may(w, &g);
}

static void on_text(void *user, const char *text, size_t len)
{
    assert_true(len > 0 && text[len - 1] == '\n');
    ++*(int *)user;
}

/* ---- rows ---------------------------------------------------------------- */

static void begin(struct walk *w)
{
    struct world *a = of(w);
    pl_receipt *r = (pl_receipt *)w;
    pl_receipt **out = NEED(w, out, &r);
    pl_engine *e = NEED(w, e, a->r.engine);
    int64_t n;
    const int32_t *prompt = ARRAY(w, prompt, way_prompt, WAY_PROMPT, &n);
    pl_status s = pl_receipt_begin(out, e, prompt, n, walk_err(w));

    walk_ended(w, s, !out || !r);
    if (s != PL_OK)
        return;
    if (a->sampler)
        pl_sampler_record(a->sampler, NULL, NULL);
    pl_receipt_free(a->written);
    a->written = r;
}

static void drop(struct walk *w)
{
    struct world *a = of(w);

    if (walk_chance(w, 2)) {
        pl_receipt_free(a->parsed);
        a->parsed = NULL;
        return;
    }
    if (a->sampler)
        pl_sampler_record(a->sampler, NULL, NULL);
    pl_receipt_free(a->written);
    a->written = NULL;
}

/* Renews the sampler for most calls: one that has sampled is refused. */
static void record(struct walk *w)
{
    struct world *a = of(w);
    pl_receipt *r = walk_may(w, one(w, false));
    pl_sampling s;
    pl_sampler *sampler;

    if (!walk_chance(w, 4)) {
        pl_sampling_init(&s);
        s.tokenizer = walk_chance(w, 2) ? a->words : NULL;
        pl_sampler_free(a->sampler);
        assert_int_equal(pl_sampler_create(&a->sampler, &s, a->r.n_vocab, NULL),
                         PL_OK);
        for (int i = 0; i < WAY_PROMPT; i++)
            pl_sampler_accept(a->sampler, way_prompt[i]);
    }
    sampler = NEED(w, s, a->sampler);
    walk_ended(w, pl_sampler_record(sampler, r, walk_err(w)), true);
    for (int i = 0; i < a->r.n_vocab; i++)
        a->row[i] = test_unit(&w->rng);
    if (walk_chance(w, 5))
        a->row[3] = NAN;
    for (int i = walk_chance(w, 2) ? 3 : 0; i > 0; i--)
        pl_sample(a->sampler, a->row);
    if (walk_chance(w, 3))
        pl_sampler_accept(a->sampler, walk_i(w, 2));
    pl_sampler_exclude_eog(a->sampler, walk_chance(w, 2) ? a->words : NULL,
                           NULL);
}

static void score(struct walk *w)
{
    struct world *a = of(w);
    pl_receipt *r = NEED(w, r, one(w, false));
    const float *row = NEED(w, logits, a->row);
    double nll = -1, *out = walk_chance(w, 2) ? &nll : NULL;
    pl_status s;

    for (int i = 0; i < a->r.n_vocab; i++)
        a->row[i] = test_unit(&w->rng);
    if (walk_chance(w, 9))
        a->row[3] = NAN;
    s = pl_receipt_score(r, row, walk_i(w, 2), out, walk_err(w));
    walk_ended(w, s, !out || nll == 0);
    assert_true(s != PL_OK || !out || nll > 0);
}

static void set_end(struct walk *w)
{
    static const char *const texts[] = {"a", "\xff", NULL, ""};
    pl_receipt *r = NEED(w, r, one(w, false));
    int64_t n;
    const char *const *stop = ARRAY(w, stop, texts, 4, &n);

    if (n > INT32_MAX || n < INT32_MIN)
        n = stop ? 4 : 0, w->n_wrong -= !stop;
    walk_ended(w,
               pl_receipt_set_end(r, (pl_receipt_end)walk_i(w, 3),
                                  walk_int(w, -1), stop, (int)n, walk_err(w)),
               true);
}

static void write(struct walk *w)
{
    struct world *a = of(w);
    pl_receipt *r = NEED(w, r, one(w, false));
    char *text = (char *)w, **json = NEED(w, json, &text);
    int i = (int)test_below(&w->rng, MOST_LINES);
    pl_status s =
        pl_receipt_write(r, (unsigned)walk_i(w, 1), json, walk_err(w));

    walk_ended(w, s, !json || !text);
    if (s != PL_OK)
        return;
    free(a->text[i]);
    a->text[i] = text;
}

/* Calls pl_receipt_parse with the text of a receipt, unchanged or damaged. */
static void parse(struct walk *w)
{
    struct world *a = of(w);
    pl_receipt *r = (pl_receipt *)w, **out = NEED(w, out, &r);
    char *own = strdup(a->text[test_below(&w->rng, MOST_LINES)]), *text;
    size_t len, n = strlen(own);
    pl_status s;

    for (int i = walk_chance(w, 2) ? 2 : 0; i > 0; i--)
        own[test_below(&w->rng, (int64_t)n)] ^=
            (char)(1 << test_below(&w->rng, 7));
    text = TEXT(w, json, own, n, &len);
    s = pl_receipt_parse(out, text, len, walk_err(w));
    walk_ended(w, s, !out || !r);
    free(own);
    if (s != PL_OK)
        return;
    pl_receipt_free(a->parsed);
    a->parsed = r;
}

static void options(struct walk *w)
{
    pl_options o = engine_run_options(), *opt = NEED(w, opt, &o);
    pl_receipt *r = NEED(w, r, one(w, true));
    pl_status s;

    o.n_ctx = walk_int(w, 0);
    s = pl_receipt_options(r, opt, walk_err(w));
    walk_ended(w, s, true);
    assert_true(s != PL_OK || (o.n_ranks > 0 && o.rank_split && o.cache_set));
}

static void counts(struct walk *w)
{
    const pl_receipt *r = NEED(w, r, one(w, true));

    walk_gave(w, pl_receipt_n_prompt(r) == 0);
    if (!r)
        assert_int_equal(pl_receipt_n_output(r), 0);
    assert_true(r || isnan(pl_receipt_nll(r)));
}

static void verify(struct walk *w)
{
    pl_receipt_result result = {.at = 77}, *out = NEED(w, out, &result);
    const pl_receipt *r = NEED(w, r, one(w, true));
    pl_engine *e = NEED(w, e, of(w)->r.engine);
    const pl_receipt_given *given = a_given(w);
    size_t size = walk_size(w, sizeof *out);
    pl_status s;

    size = size > sizeof *out ? sizeof *out : size;
    s = pl_receipt_verify(r, e, given, out, size, walk_err(w));

    walk_ended(w, s, s == PL_OK || result.at == 77);
}

static void diff(struct walk *w)
{
    const pl_receipt *a = NEED(w, a, one(w, true));
    const pl_receipt *b = NEED(w, b, one(w, true));
    bool same = true, *to = NEED(w, same, &same);
    pl_write_fn *write_fn =
        walk_need(w, "write", (void *)(uintptr_t)on_text) ? on_text : NULL;
    int n_line = 0;
    pl_status s = pl_receipt_diff(a, b, to, write_fn, &n_line, walk_err(w));

    walk_ended(w, s, !to || !same);
    if (s == PL_OK)
        assert_int_equal(same, n_line == 0);
}

static const struct walk_row rows[] = {
    {"pl_receipt_begin", begin},     {"pl_receipt_free", drop},
    {"pl_sampler_record", record},   {"pl_receipt_set_end", set_end},
    {"pl_receipt_write", write},     {"pl_receipt_parse", parse},
    {"pl_receipt_options", options}, {"pl_receipt_n_prompt", counts},
    {"pl_receipt_n_output", counts}, {"pl_receipt_verify", verify},
    {"pl_receipt_diff", diff},       {"pl_receipt_score", score},
    {"pl_receipt_nll", counts},
};
enum { N_ROW = sizeof rows / sizeof *rows };

/* ---- cases --------------------------------------------------------------- */

static void world_open(struct world *a)
{
    pl_options o = engine_run_options();
    const char *name = "made/llama-gqa-f32";

    *a = (struct world){.sampler = NULL};
    engine_run_open(&a->r, ref_model_path(name), name, &o);
    a->words = pl_model_tokenizer(a->r.model);
    a->row = test_need((size_t)a->r.n_vocab, sizeof *a->row);
    for (int i = 0; i < MOST_LINES; i++) {
        struct way w = way(i);

        a->text[i] = way_write(&a->r, &w, i == 3 ? 0 : PL_RECEIPT_FULL);
    }
}

/* Makes an object of each type, for the calls with one NULL. */
static void world_fill(struct world *a)
{
    struct walk w = {.user = a, .null_at = 99};

    begin(&w);
    record(&w);
    pl_receipt_free(a->parsed);
    a->parsed = way_parsed(a->text[0]);
}

static void world_close(struct world *a)
{
    pl_sampler_free(a->sampler);
    pl_receipt_free(a->written);
    pl_receipt_free(a->parsed);
    for (int i = 0; i < MOST_LINES; i++)
        free(a->text[i]);
    free(a->row);
    engine_run_close(&a->r);
}

TEST(api_receipt_walk_calls_every_function)
{
    walk_names_all("include/pl_receipt.h", rows, N_ROW);
}

TEST(api_receipt_null_is_refused_by_name)
{
    struct world a;
    struct walk w = {.rng = test_seed(), .user = &a};

    world_open(&a);
    for (int i = 0; i < N_ROW; i++) {
        world_fill(&a);
        walk_nulls(&w, &rows[i]);
    }
    world_close(&a);
}

TEST(api_receipt_walk_gives_a_status_and_receipts_hold)
{
    struct walk w = {.rng = test_seed()};
    struct way way_2 = way(2);
    struct world a;
    char *json;
    pl_receipt *r;

    world_open(&a);
    w.user = &a;
    json = way_write(&a.r, &way_2, PL_RECEIPT_FULL);
    r = way_parsed(json);
    for (int i = test_draws(1000, 40000); i > 0; i--) {
        if (test_below(&w.rng, 40) == 0)
            world_fill(&a);
        walk_once(&w, &rows[test_below(&w.rng, N_ROW)]);
    }
    assert_int_equal(way_verified(r, a.r.engine, NULL).verdict,
                     PL_RECEIPT_HOLDS);
    print_message("%lld calls did something, %lld were refused\n",
                  (long long)w.n_ok, (long long)w.n_refused);
    assert_true(w.n_ok > w.n_refused / 20 && w.n_refused > 0);
    pl_receipt_free(r);
    free(json);
    world_close(&a);
}
