/* Any change of a receipt, or of the model, is found at its place; and a change
 * that decides nothing is not called a difference.
 *
 * The oracle for changed settings is the sampler itself: it samples from the
 * logits that were kept when the receipt was written, and the first token that
 * it chooses otherwise is the one to be named. */
#include "gguf/gguf.h"
#include "lib/receipt_way.h"
#include "lib/ref_models.h"
#include "receipt/receipt.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char model_name[] = "made/llama-gqa-f32";

/* A receipt and all that an oracle must know of it. */
struct scene {
    struct engine_run r;
    const pl_tokenizer *words;
    struct way w;
    /* [WAY_OUT, n_vocab] logits that were kept when the receipt was written */
    float *rows;
    int32_t token[WAY_OUT];
    char *json;
};

static void scene_open_model(struct scene *a, const char *name)
{
    pl_options o = engine_run_options();

    engine_run_open(&a->r, ref_model_path(name), name, &o);
    a->words = pl_model_tokenizer(a->r.model);
    a->rows = test_need((size_t)(WAY_OUT * a->r.n_vocab), sizeof *a->rows);
    a->json = NULL;
}

static void scene_open(struct scene *a)
{
    scene_open_model(a, model_name);
}

static void scene_write(struct scene *a, int i)
{
    struct way_run run = {.r = &a->r, .rows = a->rows, .tokens = a->token};

    free(a->json);
    a->w = way(i);
    a->w.s.tokenizer = a->words;
    a->json = way_receipt(&run, &a->w, PL_RECEIPT_FULL);
}

static void scene_close(struct scene *a)
{
    free(a->json);
    free(a->rows);
    engine_run_close(&a->r);
}

/* ---- the oracle ---------------------------------------------------------- */

/* The parts of a receipt that decide what is sampled from given logits. */
struct decides {
    pl_sampling s;
    const char *grammar;
    int grammar_from;
    bool no_eog[WAY_OUT];
};

static struct decides decides_of(const struct scene *a)
{
    struct decides d = {.s = a->w.s,
                        .grammar = a->w.grammar,
                        .grammar_from = a->w.grammar_from};

    for (int i = 0; i < WAY_OUT; i++)
        d.no_eog[i] = a->w.no_eog;
    return d;
}

/* Returns true if the forced token is a part of the grammar's text. */
static bool forces_text(const struct decides *d)
{
    return d->grammar && d->grammar_from <= WAY_FORCED;
}

enum { NONE = -1, REJECTED = -2 };

/* Returns the first token that is chosen otherwise, or NONE; REJECTED if no
 * sampler or grammar can be made. */
static int first_other(const struct scene *a, const struct decides *d)
{
    pl_grammar *g = NULL;
    pl_sampler *s = NULL;
    int i, other = NONE;

    if ((d->grammar &&
         pl_grammar_create(&g, a->words, PL_GRAMMAR_GBNF, d->grammar,
                           strlen(d->grammar), NULL, NULL) != PL_OK) ||
        pl_sampler_create(&s, &d->s, a->r.n_vocab, NULL) != PL_OK)
        other = REJECTED;
    for (i = 0; i < WAY_PROMPT; i++)
        pl_sampler_accept(s, way_prompt[i]);
    for (i = 0; i < WAY_OUT && other == NONE; i++) {
        bool forced = a->w.forces && i == WAY_FORCED;

        if (g && i == d->grammar_from)
            assert_int_equal(pl_sampler_set_grammar(s, g, NULL), PL_OK);
        if (forced && !forces_text(d))
            pl_sampler_accept(s, a->token[i]);
        else if (forced)
            other = pl_sampler_force(s, a->token[i], NULL) == PL_OK ? NONE : i;
        else {
            pl_sampler_exclude_eog(s, d->no_eog[i] ? a->words : NULL, NULL);
            other = pl_sample(s, a->rows + i * a->r.n_vocab) == a->token[i]
                        ? NONE
                        : i;
        }
    }
    pl_sampler_free(s);
    pl_grammar_free(g);
    return other;
}

/* ---- documents ----------------------------------------------------------- */

/* Returns the object or list at a path of names, separated by dots. */
static json_t *at_path(json_t *doc, const char *path)
{
    while (doc && *path != '\0') {
        size_t n = strcspn(path, ".");
        char name[64];

        snprintf(name, sizeof name, "%.*s", (int)n, path);
        path += n + (path[n] == '.');
        doc = json_is_array(doc) ? json_array_get(doc, strtoul(name, NULL, 10))
                                 : json_object_get(doc, name);
    }
    return doc;
}

static void set_text(json_t *object, const char *key, const char *text)
{
    json_object_set_new(object, key, json_string(text));
}

/* Sets the hash of a list of tokens to that of its changed ids. */
static void fit_hash(json_t *part)
{
    const json_t *list = json_object_get(part, "tokens");
    size_t n = json_array_size(list);
    int32_t token[80];
    char hash[SHA256_TEXT];

    for (size_t i = 0; i < n; i++)
        token[i] = (int32_t)json_integer_value(json_array_get(list, i));
    receipt_hash_tokens(hash, token, (int64_t)n);
    set_text(part, "sha256", hash);
}

static void set_settings(json_t *doc, const pl_sampling *s)
{
    json_t *j;
    pl_err err;

    TEST_OK(receipt_write_sampling(&j, s, &err), err);
    json_object_set_new(doc, "sampling", j);
}

/* ---- changes ------------------------------------------------------------- */

enum { ANYWHERE = -3 };

/* A change of `doc`, and its verdict. `at` ANYWHERE: it is not known. */
struct trial {
    const struct scene *a;
    uint64_t *random;
    json_t *doc;
    pl_receipt_verdict verdict;
    int at;
    /* true if a later token may be the first that differs, because 16 bits of a
     * hash may agree by chance */
    bool or_later;
    char what[160];
};

static int draw(struct trial *t, int n)
{
    return (int)test_below(t->random, n);
}

/* Sets the expected verdict by sampling again from the kept logits with the
 * changed settings. */
static void ask_oracle(struct trial *t, const struct decides *d)
{
    int at = first_other(t->a, d);

    t->verdict = at == NONE       ? PL_RECEIPT_HOLDS
                 : at == REJECTED ? PL_RECEIPT_CANNOT
                                  : PL_RECEIPT_DIFFERS;
    t->at = at == REJECTED ? NONE : at;
}

static void differs(struct trial *t, int at, bool or_later)
{
    t->verdict = PL_RECEIPT_DIFFERS;
    t->at = at;
    t->or_later = or_later;
}

static void change_setting(struct trial *t)
{
    static const float floats[] = {0, 0.3F, 0.5F, 0.9F, 1, 1.1F, 2, -1, 1e30F};
    static const int ints[] = {0, 1, 2, 3, 8, 40, -1, -2, 1000};
    struct decides d = decides_of(t->a);
    int i = draw(t, n_receipt_setting), k = draw(t, 9);
    char *at = (char *)&d.s + receipt_settings[i].at;

    if (receipt_settings[i].is_float)
        memcpy(at, &floats[k], sizeof floats[k]);
    else
        memcpy(at, &ints[k], sizeof ints[k]);
    snprintf(t->what, sizeof t->what, "%s = %g", receipt_settings[i].name,
             receipt_settings[i].is_float ? (double)floats[k] : ints[k]);
    set_settings(t->doc, &d.s);
    ask_oracle(t, &d);
}

static void change_seed(struct trial *t)
{
    struct decides d = decides_of(t->a);

    d.s.seed ^= 1ULL << draw(t, 64);
    snprintf(t->what, sizeof t->what, "a bit of the seed");
    set_settings(t->doc, &d.s);
    ask_oracle(t, &d);
}

static void change_biases(struct trial *t)
{
    static const float values[] = {-INFINITY, 30, 2.5F, 0};
    struct decides d = decides_of(t->a);
    int32_t id[8] = {0};
    float bias[8] = {0};
    int n = d.s.n_bias;

    for (int i = 0; i < n; i++) {
        id[i] = d.s.bias_id[i];
        bias[i] = d.s.bias[i];
    }
    if (n > 0 && draw(t, 3) == 0)
        n--;
    else if (n > 0 && draw(t, 2) == 0)
        bias[draw(t, n)] = values[draw(t, 4)];
    else {
        id[n] = draw(t, 10) ? t->a->token[draw(t, WAY_OUT)]
                            : (int32_t)t->a->r.n_vocab;
        bias[n++] = values[draw(t, 4)];
    }
    d.s.n_bias = n;
    d.s.bias_id = id;
    d.s.bias = bias;
    snprintf(t->what, sizeof t->what, "%d biases", n);
    set_settings(t->doc, &d.s);
    ask_oracle(t, &d);
}

static void change_steps(struct trial *t)
{
    struct decides d = decides_of(t->a);
    int from, to, n;

    if (d.s.n_step == 0)
        for (; d.s.n_step < PL_N_STEP; d.s.n_step++)
            d.s.step[d.s.n_step] = (uint8_t)d.s.n_step;
    n = d.s.n_step;
    from = draw(t, n);
    to = draw(t, n);
    if (draw(t, 2)) {
        uint8_t step = d.s.step[from];

        d.s.step[from] = d.s.step[to];
        d.s.step[to] = step;
    } else if (n > 1)
        d.s.step[from] = d.s.step[--d.s.n_step];
    snprintf(t->what, sizeof t->what, "samplers %d and %d of %d", from, to, n);
    set_settings(t->doc, &d.s);
    ask_oracle(t, &d);
}

static void change_breakers(struct trial *t)
{
    static const char *const all[] = {"e", "\n", "a", "\"", ""};
    struct decides d = decides_of(t->a);

    d.s.n_dry_breaker = draw(t, 6);
    d.s.dry_breaker = all;
    snprintf(t->what, sizeof t->what, "%d breakers", d.s.n_dry_breaker);
    set_settings(t->doc, &d.s);
    ask_oracle(t, &d);
}

static bool is_forced(const struct trial *t, int i)
{
    return t->a->w.forces && i == WAY_FORCED;
}

/* Returns the first sampled token from `i` on; WAY_OUT if there is none. */
static int sampled_from(const struct trial *t, int i)
{
    return i + (i < WAY_OUT && is_forced(t, i));
}

/* A sampled token is found where it is; a forced one, whose choice nobody can
 * check, by the logits that follow it. */
static void change_token(struct trial *t)
{
    json_t *output = json_object_get(t->doc, "output");
    int i = draw(t, WAY_OUT), n_vocab = (int)t->a->r.n_vocab;
    int id = draw(t, n_vocab + 1);

    id += id == t->a->token[i];
    json_array_set_new(json_object_get(output, "tokens"), (size_t)i,
                       json_integer(id));
    if (is_forced(t, i))
        json_array_set_new(at_path(output, "forced.0"), 1, json_integer(id));
    fit_hash(output);
    snprintf(t->what, sizeof t->what, "token %d is %d", i, id);
    if (id >= n_vocab)
        differs(t, NONE, false);
    else if (!is_forced(t, i))
        differs(t, i, false);
    else if (!t->a->w.grammar)
        differs(t, i + 1, true);
    else /* the grammar may forbid the changed token already here */
        differs(t, i, true);
}

static void change_row(struct trial *t)
{
    json_t *rows = json_object_get(t->doc, "rows");
    char each[4 * WAY_OUT + 1];
    int i = draw(t, WAY_OUT - t->a->w.forces), k = 4 * i + draw(t, 4);

    snprintf(each, sizeof each, "%s",
             json_string_value(json_object_get(rows, "each")));
    each[k] = each[k] == 'a' ? 'b' : 'a';
    set_text(rows, "each", each);
    snprintf(t->what, sizeof t->what, "the hash of row %d", i);
    differs(t, i + (t->a->w.forces && i >= WAY_FORCED), false);
}

static void change_rows(struct trial *t)
{
    json_t *rows = json_object_get(t->doc, "rows");
    char hash[17];
    int k = draw(t, 16);

    snprintf(hash, sizeof hash, "%s",
             json_string_value(json_object_get(rows, "hash")));
    hash[k] = hash[k] == 'a' ? 'b' : 'a';
    set_text(rows, "hash", hash);
    snprintf(t->what, sizeof t->what, "the hash of all rows");
    differs(t, NONE, false);
}

static void change_prompt(struct trial *t)
{
    json_t *prompt = json_object_get(t->doc, "prompt");
    int i = draw(t, WAY_PROMPT), n_vocab = (int)t->a->r.n_vocab;
    int id = draw(t, n_vocab + 1);

    id += id == way_prompt[i];
    json_array_set_new(json_object_get(prompt, "tokens"), (size_t)i,
                       json_integer(id));
    fit_hash(prompt);
    snprintf(t->what, sizeof t->what, "token %d of the prompt is %d", i, id);
    if (id < n_vocab)
        differs(t, sampled_from(t, 0), true);
    else
        differs(t, NONE, false);
}

static void change_no_eog(struct trial *t)
{
    struct decides d = decides_of(t->a);
    int from = draw(t, WAY_OUT), n = 1 + draw(t, WAY_OUT - from);
    bool clear = draw(t, 3) == 0;

    for (int i = 0; i < WAY_OUT; i++)
        d.no_eog[i] = !clear && i >= from && i < from + n;
    json_object_set_new(json_object_get(t->doc, "output"), "no_eog",
                        clear ? json_array() : json_pack("[[i, i]]", from, n));
    snprintf(t->what, sizeof t->what, "no_eog %d, %d", from, clear ? 0 : n);
    ask_oracle(t, &d);
}

/* A sampled token becomes a forced one: its row is not in the hash, and no
 * random number was drawn for it. */
static void change_forced(struct trial *t)
{
    json_t *output = json_object_get(t->doc, "output");
    json_t *rows = json_object_get(t->doc, "rows");
    const char *each = json_string_value(json_object_get(rows, "each"));
    int i = draw(t, WAY_OUT - 1), row = i - (t->a->w.forces && i > WAY_FORCED);
    char less[4 * WAY_OUT + 1];

    if (is_forced(t, i))
        i = row = 0;
    snprintf(less, sizeof less, "%.*s%s", 4 * row, each, each + 4 * row + 4);
    set_text(rows, "each", less);
    json_object_set_new(
        rows, "n",
        json_integer(json_integer_value(json_object_get(rows, "n")) - 1));
    json_array_append_new(
        json_object_get(output, "forced"),
        json_pack("[i, i, b]", i, (int)t->a->token[i],
                  t->a->w.grammar && i >= t->a->w.grammar_from));
    snprintf(t->what, sizeof t->what, "token %d is called forced", i);
    differs(t, sampled_from(t, i + 1), true);
}

static void change_grammar(struct trial *t)
{
    static const char *const texts[] = {"root ::= [a-z]+", "root ::= .+",
                                        "root ::= [a-zA-Z ]+", "root ::= ("};
    json_t *grammar = json_object_get(t->doc, "grammar");
    struct decides d = decides_of(t->a);
    char hash[SHA256_TEXT];
    bool is_there = json_is_object(grammar);

    if (is_there && draw(t, 2)) {
        d.grammar_from = draw(t, WAY_OUT);
        json_object_set_new(grammar, "from", json_integer(d.grammar_from));
    } else if (is_there && draw(t, 4) == 0) {
        d.grammar = NULL;
        json_object_set_new(t->doc, "grammar", json_null());
    } else {
        d.grammar = texts[draw(t, 4)];
        receipt_hash_text(hash, d.grammar, strlen(d.grammar));
        json_object_set_new(t->doc, "grammar",
                            json_pack("{s:s, s:s, s:i, s:s}", "form", "gbnf",
                                      "sha256", hash, "from", d.grammar_from,
                                      "text", d.grammar));
    }
    json_array_set_new(at_path(t->doc, "output.forced.0"), 2,
                       json_boolean(forces_text(&d)));
    snprintf(t->what, sizeof t->what, "grammar %s from %d",
             d.grammar ? d.grammar : "none", d.grammar_from);
    ask_oracle(t, &d);
}

/* The engine is to be another one, or to compute otherwise. */
static void change_numerics(struct trial *t)
{
    static const struct {
        const char *path, *key, *value;
    } all[] = {
        {"numerics", "hash", "\"0123456789abcdef\""},
        {"numerics", "order", "999"},
        {"numerics", "precision", "\"fast\""},
        {"numerics", "activations", "\"float\""},
        {"numerics", "cache", "[\"Q8_0\", \"F16\"]"},
        {"numerics", "cache", "[\"F16\", \"F32\"]"},
        {"numerics", "keep", "[\"l_out-*\"]"},
        {"numerics", "layouts", "[\".*=mirrored\"]"},
        {"numerics", "mtp", "1"},
        {"model", "hash", "\"0123456789abcdef\""},
    };
    int i = draw(t, 12);

    if (i < 10) {
        json_object_set_new(json_object_get(t->doc, all[i].path), all[i].key,
                            json_loads(all[i].value, JSON_DECODE_ANY, NULL));
    } else {
        json_t *n = json_object_get(t->doc, "numerics");

        json_object_set_new(n, "ranks", json_integer(2));
        set_text(n, "shares", i == 10 ? "1,1" : "3,1");
    }
    snprintf(t->what, sizeof t->what, "numerics %d", i);
    t->verdict = PL_RECEIPT_CANNOT;
    t->at = NONE;
}

/* The receipts of this test end by "other", without a limit or a stop. */
static void change_end(struct trial *t)
{
    static const struct {
        const char *reason;
        int most;
        const char *stop;
        bool holds;
    } all[] = {
        {"eog", -1, NULL, false},
        {"length", -1, NULL, false},
        {"length", WAY_OUT - 1, NULL, false},
        {"length", WAY_OUT, NULL, true},
        {"stop", -1, NULL, false},
        {"stop", -1, "no model writes this", false},
        {"other", WAY_OUT - 1, NULL, false},
        {"other", WAY_OUT, NULL, true},
        /* a stop string that was in force but did not end the output */
        {"other", -1, "s", true},
        {"cancelled", -1, NULL, true},
        {"message", -1, NULL, true},
        {"context", -1, NULL, true},
    };
    int i = draw(t, sizeof all / sizeof *all);

    json_object_set_new(
        t->doc, "end",
        json_pack("{s:s, s:i, s:o}", "reason", all[i].reason, "max_tokens",
                  all[i].most, "stop",
                  all[i].stop ? json_pack("[s]", all[i].stop) : json_array()));
    snprintf(t->what, sizeof t->what, "end %d", i);
    t->verdict = all[i].holds ? PL_RECEIPT_HOLDS : PL_RECEIPT_DIFFERS;
    t->at = NONE;
}

/* Changes a name or a remark, which decide nothing, so that the receipt still
 * holds. */
static void change_name(struct trial *t)
{
    switch (draw(t, 3)) {
    case 0:
        set_text(t->doc, "plait", "99.9");
        break;
    case 1:
        set_text(json_object_get(t->doc, "model"), "name", "another");
        break;
    default:
        json_object_set_new(t->doc, "note", json_pack("{s:[i]}", "by", 1));
    }
    snprintf(t->what, sizeof t->what, "a name");
    t->verdict = PL_RECEIPT_HOLDS;
    t->at = NONE;
}

static void (*const kinds[])(struct trial *) = {
    change_setting, change_setting,  change_setting,  change_seed,
    change_biases,  change_steps,    change_breakers, change_token,
    change_token,   change_row,      change_rows,     change_prompt,
    change_no_eog,  change_forced,   change_grammar,  change_grammar,
    change_name,    change_numerics, change_end,
};
enum { N_KIND = sizeof kinds / sizeof *kinds };

static void ignore(void *user, const char *line, size_t len)
{
    assert_true(len > 0 && line[len - 1] == '\n');
    ++*(int *)user;
}

/* Two receipts agree if nothing differs but remarks; each difference has a
 * line. */
static void check_diff(const struct trial *t, const pl_receipt *r)
{
    static const char *const remarks[] = {"plait", "note"};
    json_t *a = json_loads(t->a->json, 0, NULL), *b = json_copy(t->doc);
    pl_receipt *before = way_parsed(t->a->json);
    int n_line[2] = {0, 0};
    bool same[2];
    pl_err err;

    for (int i = 0; i < 2; i++) {
        json_object_del(a, remarks[i]);
        json_object_del(b, remarks[i]);
    }
    TEST_OK(pl_receipt_diff(before, r, &same[0], ignore, &n_line[0], &err),
            err);
    TEST_OK(pl_receipt_diff(r, before, &same[1], ignore, &n_line[1], &err),
            err);
    if (same[0] != json_equal(a, b) || same[0] != same[1])
        fail_msg("%s, %s: they are called %s", t->a->w.name, t->what,
                 same[0] ? "the same" : "different");
    assert_int_equal(n_line[0], n_line[1]);
    assert_int_equal(n_line[0] == 0, same[0]);
    pl_receipt_free(before);
    json_decref(a);
    json_decref(b);
}

static void check_trial(const struct trial *t)
{
    char *text = json_dumps(t->doc, JSON_COMPACT | JSON_REAL_PRECISION(9));
    pl_receipt *r = way_parsed(text);
    pl_receipt_result got = way_verified(r, t->a->r.engine, NULL);
    bool right = got.verdict == t->verdict &&
                 (t->or_later ? got.at >= t->at : got.at == t->at);

    /* The hash of the last row is compared in full, so no difference is
     * missed. */
    if (t->or_later && got.verdict == PL_RECEIPT_DIFFERS && got.at == NONE)
        right = true;
    if (!right)
        fail_msg("%s, %s: verdict %d at %d, not %d at %d: %s", t->a->w.name,
                 t->what, got.verdict, (int)got.at, t->verdict, t->at,
                 got.text);
    assert_int_equal(got.verdict == PL_RECEIPT_HOLDS,
                     strncmp(got.text, "holds", 5) == 0);
    check_diff(t, r);
    pl_receipt_free(r);
    free(text);
}

TEST(receipts_that_are_changed_are_found)
{
    uint64_t random = test_seed();
    int n = test_draws(30, 1000);
    struct scene a;

    scene_open(&a);
    for (int i = 0; i < N_WAY; i++) {
        scene_write(&a, i);
        for (int k = 0; k < n; k++) {
            struct trial t = {
                .a = &a, .random = &random, .doc = json_loads(a.json, 0, NULL)};

            kinds[(k + i) % N_KIND](&t);
            check_trial(&t);
            json_decref(t.doc);
        }
    }
    scene_close(&a);
}

/* ---- any change ---------------------------------------------------------- */

/* Replaces, drops or repeats a random leaf. `path` gets its names. */
static void damage(json_t *doc, uint64_t *random, char *path, size_t size)
{
    static const char *const values[] = {
        "null",  "true", "0",     "1",     "-1", "7",  "3000000000", "0.5",
        "1e300", "\"\"", "\"x\"", "\"0\"", "[]", "{}", "[[0, 1]]"};
    size_t at = 0;
    json_t *in = doc;

    for (;;) {
        bool is_list = json_is_array(in);
        size_t n = is_list ? json_array_size(in) : json_object_size(in);
        size_t k = (size_t)test_below(random, (int64_t)n);
        void *it = is_list ? NULL : json_object_iter(in);
        const char *key = NULL;
        json_t *child;

        for (size_t i = 0; !is_list && i < k; i++)
            it = json_object_iter_next(in, it);
        key = is_list ? NULL : json_object_iter_key(it);
        child = is_list ? json_array_get(in, k) : json_object_iter_value(it);
        at += (size_t)(is_list ? snprintf(path + at, size - at, ".%zu", k)
                               : snprintf(path + at, size - at, ".%s", key));
        if (((json_is_array(child) && json_array_size(child) > 0) ||
             json_object_size(child) > 0) &&
            test_below(random, 8) > 0) {
            in = child;
            continue;
        }
        child =
            json_loads(values[test_below(random, 15)], JSON_DECODE_ANY, NULL);
        if (is_list && test_below(random, 4) == 0)
            json_array_remove(in, k);
        else if (is_list && test_below(random, 4) == 0)
            json_array_insert(in, k, json_array_get(in, k));
        else if (is_list)
            json_array_set(in, k, child);
        else if (test_below(random, 4) == 0)
            json_object_del(in, key);
        else
            json_object_set(in, key, child);
        json_decref(child);
        return;
    }
}

/* Returns true if a change at `path` may leave a receipt that holds. Settings
 * are left to the oracle. A receipt without tokens has another form. */
static bool may_hold(const char *path, json_t *doc)
{
    static const char *const free_ones[] = {".plait",    ".model.name",
                                            ".end",      ".output.no_eog",
                                            ".sampling", ".model.architecture"};

    for (size_t i = 0; i < sizeof free_ones / sizeof *free_ones; i++)
        if (strncmp(path, free_ones[i], strlen(free_ones[i])) == 0)
            return strcmp(path, ".plait_receipt") != 0;
    return strcmp(path, ".output.tokens") == 0 && !at_path(doc, path + 1);
}

/* A damaged document is not a receipt, or does not hold, or its change decided
 * nothing. Half of them lack the prompt, which the caller gives. */
TEST(receipts_that_are_damaged_do_not_hold)
{
    uint64_t random = test_seed();
    int n = test_draws(60, 3000), n_parsed = 0;
    struct scene a;

    scene_open(&a);
    for (int i = 0; i < N_WAY; i++) {
        json_t *whole;

        scene_write(&a, i);
        whole = json_loads(a.json, 0, NULL);
        for (int k = 0; k < n; k++) {
            json_t *doc = json_deep_copy(whole), *before;
            const pl_receipt_given given = {.size = sizeof given,
                                            .prompt = way_prompt,
                                            .n_prompt = WAY_PROMPT};
            char path[256] = "", *text;
            struct decides d = decides_of(&a);
            pl_receipt_result got;
            pl_receipt *r;
            pl_err err;
            pl_status s;

            if (k % 2)
                json_object_del(json_object_get(doc, "prompt"), "tokens");
            before = json_deep_copy(doc);
            damage(doc, &random, path, sizeof path);
            text = json_dumps(doc, JSON_COMPACT | JSON_REAL_PRECISION(9));
            s = pl_receipt_parse(&r, text, strlen(text), &err);
            if (s != PL_OK) {
                assert_true(s == PL_BAD_FILE || s == PL_UNSUPPORTED);
                assert_non_null(strstr(err.message, "receipt"));
            } else if (!json_equal(doc, before)) {
                n_parsed++;
                got = way_verified(r, a.r.engine, k % 2 ? &given : NULL);
                if (got.verdict == PL_RECEIPT_HOLDS && !may_hold(path, doc))
                    fail_msg("%s: %s is now %s", a.w.name, path, text);
                if (strncmp(path, ".sampling.", 10) == 0) {
                    TEST_OK(receipt_read_sampling(
                                &d.s, json_object_get(doc, "sampling"), a.words,
                                &err),
                            err);
                    assert_int_equal(got.verdict == PL_RECEIPT_HOLDS,
                                     first_other(&a, &d) == NONE);
                    receipt_free_sampling(&d.s);
                }
            }
            pl_receipt_free(r);
            json_decref(before);
            json_decref(doc);
            free(text);
        }
        json_decref(whole);
    }
    scene_close(&a);
    assert_true(n_parsed > n / 2);
}

/* ---- the model ----------------------------------------------------------- */

/* Writes a copy of a file in which the bits `mask` of a byte are others. */
static const char *with_other_byte(const char *path, uint64_t at, int mask)
{
    const char *copy = test_temp("other.gguf");
    size_t n;
    char *data = test_read(path, &n);
    FILE *f = fopen(copy, "wb");

    assert_true(at < n);
    data[at] ^= (char)mask;
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    fclose(f);
    free(data);
    return copy;
}

/* Writes a copy of the model in which a bit of a weight is another. */
static const char *with_other_bit(const char *path, uint64_t *random, bool high)
{
    const struct gguf_tensor *t;
    struct gguf *g;
    uint64_t at;
    pl_err err;

    TEST_OK(gguf_open(&g, path, &err), err);
    t = gguf_find_tensor(g, "blk.0.ffn_down.weight");
    assert_non_null(t);
    at = t->offset + (uint64_t)test_below(random, (int64_t)t->bytes / 4) * 4;
    gguf_close(g);
    return with_other_byte(path, at + (high ? 2 : 0), high ? 0x40 : 1);
}

/* One bit of one weight is another model. A receipt whose hash is made to fit
 * differs by its logits. */
TEST(receipts_of_another_model_do_not_hold)
{
    uint64_t random = test_seed();
    pl_options o = engine_run_options();
    struct scene a;

    scene_open(&a);
    scene_write(&a, 0);
    for (int i = 0; i < test_draws(4, 200); i++) {
        bool high = i % 2;
        const char *path =
            with_other_bit(ref_model_path(model_name), &random, high);
        struct way w = way(0);
        pl_receipt *r = way_parsed(a.json);
        json_t *doc = json_loads(a.json, 0, NULL), *own;
        struct engine_run other;
        pl_receipt_result got;
        char *text;

        engine_run_open(&other, path, "a changed model", &o);
        got = way_verified(r, other.engine, NULL);
        assert_int_equal(got.verdict, PL_RECEIPT_CANNOT);
        assert_non_null(strstr(got.text, "other weights"));
        pl_receipt_free(r);
        text = way_write(&other, &w, PL_RECEIPT_FULL);
        own = json_loads(text, 0, NULL);
        free(text);
        json_object_set(doc, "model", json_object_get(own, "model"));
        text = json_dumps(doc, JSON_COMPACT | JSON_REAL_PRECISION(9));
        r = way_parsed(text);
        got = way_verified(r, other.engine, NULL);
        if (high) {
            assert_int_equal(got.verdict, PL_RECEIPT_DIFFERS);
            assert_true(got.at >= 0);
        } else /* the change of the model may have left all logits equal */
            assert_int_equal(got.verdict == PL_RECEIPT_HOLDS,
                             json_equal(json_object_get(own, "rows"),
                                        json_object_get(doc, "rows")));
        pl_receipt_free(r);
        json_decref(doc);
        json_decref(own);
        free(text);
        engine_run_close(&other);
    }
    scene_close(&a);
}

/* Sets the receipt's model to that of the engine `e`, as a forger would. */
static void claim_model(json_t *doc, pl_engine *e)
{
    json_t *model, *numerics;
    pl_err err;

    TEST_OK(receipt_describe_engine(&model, &numerics, e, &err), err);
    json_object_set_new(doc, "model", model);
    json_decref(numerics);
}

/* Computes n tokens of sequence 1, and the logits after them, unless `row` is
 * NULL. Returns false if they are not finite. */
static bool computes(const struct engine_run *r, int64_t n,
                     const int32_t *token, float *row)
{
    static const int32_t seq[WAY_PROMPT] = {1, 1, 1, 1, 1, 1, 1};
    uint8_t wanted[WAY_PROMPT] = {0};
    pl_batch b = {.size = sizeof b,
                  .n = n,
                  .token = token,
                  .seq = seq,
                  .wanted = wanted,
                  .logits = row};
    pl_status s;
    pl_err err;

    wanted[n - 1] = 1;
    s = pl_engine_decode(r->engine, &b, NULL, &err);
    if (s != PL_BAD_FILE)
        TEST_OK(s, err);
    return s == PL_OK;
}

/* Returns the first token of the scene's output whose logits an engine computes
 * otherwise; NONE if all have the same bits; REJECTED if some are not
 * finite. */
static int first_other_row(const struct scene *a, const struct engine_run *r)
{
    const size_t size = (size_t)r->n_vocab * sizeof(float);
    float *row = test_need(1, size);
    bool is_finite = computes(r, WAY_PROMPT, way_prompt, row);
    int other = NONE;

    for (int i = 0; i < WAY_OUT && is_finite; i++) {
        if (other == NONE && memcmp(row, a->rows + i * r->n_vocab, size) != 0)
            other = i;
        is_finite = i + 1 == WAY_OUT || computes(r, 1, &a->token[i], row);
    }
    free(row);
    return is_finite ? other : REJECTED;
}

static pl_receipt_result verify_text(const char *json, pl_engine *e)
{
    pl_receipt *r = way_parsed(json);
    pl_receipt_result got = way_verified(r, e, NULL);

    pl_receipt_free(r);
    return got;
}

/* Checks the scene's receipt with a model of which one bit is another: as it
 * is, and where it claims to be of this model. */
static void check_flipped_bit(const struct scene *a, const char *path,
                              const char *what)
{
    pl_options o = engine_run_options();
    json_t *doc = json_loads(a->json, 0, NULL);
    struct engine_run other;
    pl_receipt_result got;
    char *text;
    int at;

    engine_run_open(&other, path, what, &o);
    got = verify_text(a->json, other.engine);
    if (got.verdict != PL_RECEIPT_CANNOT || !strstr(got.text, "other weights"))
        fail_msg("%s: %s", what, got.text);
    claim_model(doc, other.engine);
    text = json_dumps(doc, JSON_COMPACT | JSON_REAL_PRECISION(9));
    got = verify_text(text, other.engine);
    at = first_other_row(a, &other);
    /* 16 bits of a hash may agree by chance, so that a later row is found. */
    if (at == REJECTED ? got.verdict != PL_RECEIPT_CANNOT
        : at == NONE
            ? got.verdict != PL_RECEIPT_HOLDS
            : got.verdict != PL_RECEIPT_DIFFERS || (got.at >= 0 && got.at < at))
        fail_msg("%s: verdict %d at %d, not at %d: %s", what, got.verdict,
                 (int)got.at, at, got.text);
    engine_run_close(&other);
    json_decref(doc);
    free(text);
}

/* Flips n bits of each tensor of a model, wherever its format has values,
 * scales or minima. */
static void check_flipped_bits(const char *name, uint64_t *random, int n)
{
    const char *path = ref_model_path(name);
    struct scene a;
    struct gguf *g;
    pl_err err;

    scene_open_model(&a, name);
    scene_write(&a, 0);
    TEST_OK(gguf_open(&g, path, &err), err);
    for (int64_t i = 0; i < n * gguf_n_tensor(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i / n);
        int64_t byte = test_below(random, (int64_t)t->bytes);
        int bit = (int)test_below(random, 8);
        char what[160];

        snprintf(what, sizeof what, "%s, %s, bit %d of byte %d", name, t->name,
                 bit, (int)byte);
        check_flipped_bit(
            &a, with_other_byte(path, t->offset + (uint64_t)byte, 1 << bit),
            what);
    }
    gguf_close(g);
    scene_close(&a);
}

/* Every bit of every tensor counts: embeddings, norms, biases, routers, packed
 * values and their scales. Where the receipt claims the changed model, the
 * first row of other logits is found. */
TEST(receipts_find_any_bit_of_any_weight)
{
    static const char *const names[] = {
        "made/llama-gqa-f32",     "made/llama-q-q4_k_m",
        "made/qwen3moe-q-q6_k",   "made/qwen3moe-q-q8_0",
        "made/gptoss-mxfp4-q8_0", "made/llama-q-iq4_xs",
        "made/gemma3-swa-f32",    "made/qwen35-dense-f32",
        "made/llama-q-bf16",
    };
    uint64_t random = test_seed();
    int n = sizeof names / sizeof *names, first = (int)test_below(&random, n);

    for (int i = 0; i < (test_long() ? n : 2); i++)
        check_flipped_bits(names[(first + 4 * i) % n], &random,
                           test_draws(1, 8));
}

/* Hyper-parameters are part of the model, names and values. */
TEST(receipts_find_any_bit_of_a_hyper_parameter)
{
    const char *name = "llama-q-q4_0", *path = ref_model_path(name);
    const pl_options o = engine_run_options();
    uint64_t random = test_seed();
    size_t n, from, to;
    char *file = test_read(path, &n);
    struct scene a;
    int n_made = 0;

    from = (size_t)((char *)memmem(file, n, "llama.context_length", 20) - file);
    to = (size_t)((char *)memmem(file, n, "tokenizer.ggml.model", 20) - file);
    free(file);
    assert_true(from < to && to < n);
    scene_open_model(&a, name);
    scene_write(&a, 0);
    for (int i = 0; i < test_draws(60, 3000); i++) {
        uint64_t at =
            from + (uint64_t)test_below(&random, (int64_t)(to - from));
        const char *other =
            with_other_byte(path, at, 1 << test_below(&random, 8));
        pl_receipt_result got;
        pl_engine *e = NULL;
        pl_model *m;
        pl_err err;

        if (pl_model_open(&m, other, &err) != PL_OK)
            continue;
        if (pl_engine_create(&e, m, &o, &err) == PL_OK) {
            got = verify_text(a.json, e);
            if (got.verdict != PL_RECEIPT_CANNOT)
                fail_msg("byte %d: %s", (int)at, got.text);
            n_made++;
        }
        pl_engine_free(e);
        pl_model_free(m);
    }
    assert_true(n_made > 0);
    scene_close(&a);
}

/* A receipt of one rank that says two, with all that belongs to two, differs by
 * its logits. */
TEST(receipts_that_claim_other_ranks_differ)
{
    static const double shares[] = {3, 1};
    pl_options o = engine_run_options();
    struct engine_run two;
    struct scene a;
    struct way w = way(0);
    json_t *doc, *own;
    pl_receipt_result got;
    pl_receipt *r;
    char *text;

    scene_open(&a);
    scene_write(&a, 0);
    o.rank_split = shares;
    o.n_rank_split = 2;
    engine_run_open(&two, ref_model_path(model_name), model_name, &o);
    text = way_write(&two, &w, PL_RECEIPT_FULL);
    doc = json_loads(a.json, 0, NULL);
    own = json_loads(text, 0, NULL);
    free(text);
    json_object_set(doc, "numerics", json_object_get(own, "numerics"));
    text = json_dumps(doc, JSON_COMPACT | JSON_REAL_PRECISION(9));
    r = way_parsed(text);
    got = way_verified(r, two.engine, NULL);
    assert_int_equal(got.verdict, PL_RECEIPT_DIFFERS);
    assert_int_equal(got.at, 0);
    got = way_verified(r, a.r.engine, NULL);
    assert_int_equal(got.verdict, PL_RECEIPT_CANNOT);
    pl_receipt_free(r);
    free(text);
    json_decref(doc);
    json_decref(own);
    engine_run_close(&two);
    scene_close(&a);
}

/* A bit of any logit changes the hash of its row and of later ones. */
TEST(receipts_rows_are_hashed_to_the_last_bit)
{
    enum { N_VOCAB = 101 };
    uint64_t random = test_seed();

    for (int i = 0; i < 2 * N_VOCAB; i++) {
        struct sampling_record a = {0}, b = {0};
        float row[N_VOCAB];
        uint32_t bits;
        int at = i < N_VOCAB ? i : (int)test_below(&random, N_VOCAB);

        for (int k = 0; k < N_VOCAB; k++)
            row[k] = test_unit(&random);
        record_row(&a, row, N_VOCAB, 1, 0);
        memcpy(&bits, &row[at], sizeof bits);
        bits ^= 1u << test_below(&random, 32);
        memcpy(&row[at], &bits, sizeof bits);
        record_row(&b, row, N_VOCAB, 1, 0);
        assert_int_not_equal(a.hash, b.hash);
        record_row(&a, row, N_VOCAB, 1, 0);
        record_row(&b, row, N_VOCAB, 1, 0);
        assert_int_not_equal(a.hash, b.hash);
        record_fini(&a);
        record_fini(&b);
    }
}

/* A field of pl_sampling that receipts forget would decide outputs unseen. */
TEST(receipts_have_every_setting)
{
#define OTHER(name)                                                            \
    {                                                                          \
        offsetof(pl_sampling, name), sizeof((pl_sampling *)NULL)->name         \
    }
    static const struct {
        size_t at, size;
    } others[] = {OTHER(size),          OTHER(seed),        OTHER(n_bias),
                  OTHER(bias_id),       OTHER(bias),        OTHER(tokenizer),
                  OTHER(n_dry_breaker), OTHER(dry_breaker), OTHER(n_step),
                  OTHER(step),          OTHER(n_only),      OTHER(only),
                  OTHER(n_banned),      OTHER(banned),      OTHER(n_stop),
                  OTHER(stop)};
#undef OTHER
    uint8_t owner[sizeof(pl_sampling) + 1] = {
        /* for each byte of pl_sampling: 1 if it belongs to a field, 2 if to a
         * field of 8 bytes */
        0};

    for (int i = 0; i < n_receipt_setting; i++)
        memset(owner + receipt_settings[i].at, 1, 4);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        memset(owner + others[i].at, others[i].size == 8 ? 2 : 1,
               others[i].size);
    for (size_t at = 0; at < sizeof(pl_sampling); at++) {
        size_t next = (at + 7) / 8 * 8;

        /* Padding stands before a field of 8 bytes, or at the end. */
        if (!owner[at] && owner[next] != 2 && next < sizeof(pl_sampling))
            fail_msg("receipts lack the field at byte %zu of pl_sampling", at);
    }
}
