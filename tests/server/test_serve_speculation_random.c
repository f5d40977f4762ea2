/* Random tasks of random models generate, with drafts of random sources, the
 * text and the logits that they have without drafts. Models of all families,
 * splits, cache formats, sizes of micro-batches and of contexts are drawn; then
 * tasks with random ends, sampling settings and grammars, in company or alone;
 * then sources of drafts and their limits. The long tier compares some 10,000
 * texts, the gate about 15, in a second. */
#include "lib/draft_loop.h"
#include "lib/made_model.h"
#include "lib/ref_models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_FORM = 2 };

/* A model with its engine, and its tasks. */
struct draws {
    struct place place;
    const char *name;
    char options[200]; /* for messages */
    int n_task;
    struct told plain[MOST_TASK], with[MOST_TASK];
    struct task_params params[MOST_TASK];
    pl_sampling how[MOST_TASK];
    uint64_t seed;
};

/* Sums over all runs: texts, and for each source, drafted and accepted
 * tokens. */
struct sums {
    int n_text, n_cancelled, n_full, n_eog, n_stopped;
    uint64_t n_drafted[PL_DRAFT_N_SOURCE], n_accepted[PL_DRAFT_N_SOURCE];
};

/* Returns the path of a random model; *block is true if it has a block. */
static const char *draw_model(uint64_t *seed, const char **name, bool *block)
{
    static const char *const with_block[] = {
        "qwen35-dense-f32", "qwen35moe-f32", "deepseek2-mla-f32"};
    const char *const *all = ref_models(true);
    int n = 0;

    *block = test_below(seed, 3) == 0;
    if (*block) {
        *name = with_block[test_below(seed, 3)];
        return made_model_with_block(*name);
    }
    while (all[n])
        n++;
    *name = all[test_below(seed, n)];
    return ref_model_path(*name);
}

/* Opens a random model on random devices. Returns false if it generates no
 * text. */
static bool draw_place(struct draws *d)
{
    static const char *const devices[] = {"cpu", "sim*2", "sim*3"};
    static const pl_split_mode modes[] = {PL_SPLIT_TENSOR, PL_SPLIT_LAYER};
    static const pl_format formats[] = {PL_F16, PL_F32, PL_BF16};
    static const int64_t n_ctx[] = {64, 128, 192, 320};
    static const int64_t n_ubatch[] = {4, 16, 64};
    const pl_tokenizer *t;
    bool block;
    const char *file = draw_model(&d->seed, &d->name, &block);
    pl_options o =
        place_options(n_ctx[test_below(&d->seed, test_long() ? 4 : 2)]);
    pl_model *m;
    pl_err err;
    bool usable;

    TEST_OK(pl_model_open(&m, file, &err), err);
    t = pl_model_tokenizer(m);
    usable = t && !pl_model_is_encoder(m) && pl_model_n_vocab(m) < 2048;
    pl_model_free(m);
    if (!usable)
        return false;
    o.devices = devices[test_below(&d->seed, 3)];
    o.split_mode = modes[test_below(&d->seed, 2)];
    o.n_ubatch = n_ubatch[test_below(&d->seed, 3)];
    o.cache_set = true;
    o.cache_k = o.cache_v = formats[test_below(&d->seed, 3)];
    o.sim_seed = (uint64_t)test_below(&d->seed, 1000);
    snprintf(d->options, sizeof d->options, "%s -dev %s -sm %s -ub %d -c %d%s",
             d->name, o.devices,
             o.split_mode == PL_SPLIT_LAYER ? "layer" : "tensor",
             (int)o.n_ubatch, (int)o.n_ctx, block ? ", block" : "");
    place_open(&d->place, file, o, block);
    if (!block && test_below(&d->seed, 2) == 0)
        place_open_draft_model(&d->place, file, 256);
    return true;
}

/* Draws the prompt, the end and the sampling settings of each task. Some
 * prompts begin like those before. */
static void draw_tasks(struct draws *d, pl_grammar *const form[N_FORM])
{
    uint64_t *seed = &d->seed;
    /* At the gate texts are short. */
    const int most_prompt = test_long() ? 60 : 30;
    const int most_tokens = test_long() ? 60 : 16;

    d->n_task = 2 + (int)test_below(seed, test_long() ? 4 : 2);
    for (int i = 0; i < d->n_task; i++) {
        struct told *t = &d->plain[i];
        struct task_params *params = &d->params[i];
        pl_sampling *how = &d->how[i];
        int same = 0;

        *t = (struct told){.n_prompt = 1 + (int)test_below(seed, most_prompt)};
        *params = (struct task_params){.client = 1 + (uint64_t)i % 2};
        if (i > 0 && test_below(seed, 2) == 0) {
            const struct told *other = &d->plain[test_below(seed, i)];

            same =
                other->n_prompt < t->n_prompt ? other->n_prompt : t->n_prompt;
            memcpy(t->text, other->text, (size_t)same * sizeof *t->text);
        }
        for (int k = same; k < t->n_prompt; k++)
            t->text[k] = (int32_t)test_below(seed, d->place.oracle.n_vocab);
        /* A quarter of the tasks end where the context is full, or at an
         * end-of-text token before that. */
        params->max_tokens =
            test_below(seed, 4) == 0 ? -1 : 1 + test_below(seed, most_tokens);
        params->ignore_end = test_below(seed, 2) == 0;
        if (test_below(seed, 4) == 0)
            params->grammar = form[test_below(seed, N_FORM)];
        if (test_below(seed, 4) == 0)
            t->most = 1 + (int)test_below(seed, most_tokens);
        t->forced = test_below(seed, 5) == 0;
        if (i == 0) { /* one text is never short */
            *params =
                (struct task_params){.max_tokens = 12, .ignore_end = true};
            t->most = 0;
        }
        pl_sampling_init(how);
        how->tokenizer = d->place.t;
        how->seed = (uint64_t)test_below(seed, 1 << 20);
        how->temperature = test_below(seed, 2) == 0 ? 0 : 0.3f;
        if (test_below(seed, 2) == 0)
            how->repeat_penalty = 1.1f;
        if (test_below(seed, 3) == 0)
            how->presence_penalty = 0.2f;
        if (test_below(seed, 3) == 0)
            how->dry_multiplier = 0.5f;
        if (test_below(seed, 3) == 0) {
            how->xtc_probability = 0.4f;
            how->xtc_threshold = 0.05f;
        }
    }
}

/* Draws a source of drafts and its limits. Returns the source. In the first
 * rounds an oracle is always right and always wrong, so that some drafts are
 * accepted and some rejected. */
static int draw_source(struct draws *d, int round)
{
    struct place *p = &d->place;
    const int most = p->block ? 2 : p->draft_engine ? 2 : 1;
    int source = PL_DRAFT_CALLER;

    if (test_below(&d->seed, 3) == 0)
        source = (int)test_below(&d->seed, PL_DRAFT_CALLER);
    else if (most > 1 && test_below(&d->seed, 3) > 0)
        source = p->block ? PL_DRAFT_MTP : PL_DRAFT_SIMPLE;
    p->limits =
        (pl_draft_limits){.sources = 1u << source,
                          .n_max = test_below(&d->seed, 4) == 0
                                       ? -1
                                       : 1 + (int)test_below(&d->seed, 12)};
    p->n_gram = 1;
    p->oracle.quality = (enum quality)test_below(&d->seed, N_QUALITY);
    p->oracle.seed = (uint64_t)test_below(&d->seed, 1 << 20);
    if (round < 2) {
        source = PL_DRAFT_CALLER;
        p->limits = (pl_draft_limits){.sources = 1u << source, .n_max = 5};
        p->oracle.quality = round == 0 ? RIGHT : WRONG;
    }
    return source;
}

static void expect_like(const struct draws *d, int i, struct sums *sums)
{
    const struct told *a = &d->plain[i], *b = &d->with[i];

    if (b->leave > 0 && a->n >= b->leave) { /* it was cancelled */
        assert_true(b->n >= b->leave && b->n <= a->n);
        assert_memory_equal(a->sum, b->sum, (size_t)b->n * sizeof *a->sum);
        sums->n_cancelled++;
    } else {
        if (a->n != b->n || a->report.why != b->report.why)
            fail_msg("%s: task %d has %d tokens and ends by %d, not %d and %d",
                     d->options, i, b->n, (int)b->report.why, a->n,
                     (int)a->report.why);
        told_expect_same(a, b);
    }
    sums->n_text++;
    sums->n_eog += a->report.why == FINISH_EOG;
    sums->n_stopped += a->report.why == FINISH_STOPPED;
    sums->n_full +=
        a->report.why == FINISH_LENGTH && a->n != (int)d->params[i].max_tokens;
}

/* Runs the tasks without drafts, one by one, and then with drafts of random
 * sources. */
static void run(struct draws *d, struct sums *sums)
{
    struct place *p = &d->place;

    p->oracle.n = 0;
    place_start(p, 1, false);
    for (int i = 0; i < d->n_task; i++) {
        place_add_task(p, &d->plain[i], &d->how[i], d->params[i]);
        told_wait(&d->plain[i]);
    }
    place_stop(p);
    p->oracle.plain = d->plain;
    p->oracle.n = d->n_task;
    for (int round = 0; round < (test_long() ? 5 : 3); round++) {
        const int source = draw_source(d, round);

        p->n_drafted = p->n_accepted = 0;
        place_start(p, 1 + (int)test_below(&d->seed, d->n_task), true);
        for (int i = 0; i < d->n_task; i++) {
            struct told *t = &d->with[i];

            *t = (struct told){.n_prompt = d->plain[i].n_prompt,
                               .most = d->plain[i].most,
                               .forced = d->plain[i].forced};
            memcpy(t->text, d->plain[i].text,
                   (size_t)t->n_prompt * sizeof *t->text);
            if (test_below(&d->seed, 8) == 0)
                t->leave = 1 + (int)test_below(&d->seed, 20);
            place_add_task(p, t, &d->how[i], d->params[i]);
        }
        for (int i = 0; i < d->n_task; i++) {
            told_wait(&d->with[i]);
            expect_like(d, i, sums);
        }
        place_stop(p);
        sums->n_drafted[source] += p->n_drafted;
        sums->n_accepted[source] += p->n_accepted;
    }
}

static void make_forms(struct draws *d, pl_grammar *form[N_FORM])
{
    static const char *const texts[N_FORM] = {"root ::= [a-z ]{5,60} \".\"",
                                              "root ::= ([^x] | \"xy\"){1,90}"};
    pl_err err;

    for (int i = 0; i < N_FORM; i++)
        TEST_OK(pl_grammar_create(&form[i], d->place.t, PL_GRAMMAR_GBNF,
                                  texts[i], strlen(texts[i]), NULL, &err),
                err);
}

TEST(speculation_of_random_tasks_writes_the_plain_text)
{
    struct draws *d = test_need(1, sizeof *d);
    struct sums sums = {0};
    uint64_t drafted = 0, accepted = 0;
    pl_grammar *form[N_FORM];

    d->seed = test_seed_value();
    for (int n = test_draws(3, 600); n > 0;) {
        if (!draw_place(d))
            continue;
        n--;
        make_forms(d, form);
        draw_tasks(d, form);
        run(d, &sums);
        for (int i = 0; i < N_FORM; i++)
            pl_grammar_free(form[i]);
        place_close(&d->place);
    }
    printf("%d texts: %d ended by themselves, %d by a stop, %d with the "
           "context, %d were cancelled\n",
           sums.n_text, sums.n_eog, sums.n_stopped, sums.n_full,
           sums.n_cancelled);
    for (int s = 0; s < PL_DRAFT_N_SOURCE; s++) {
        printf("%s: %llu of %llu drafted tokens were accepted\n",
               pl_draft_source_name(s), (unsigned long long)sums.n_accepted[s],
               (unsigned long long)sums.n_drafted[s]);
        drafted += sums.n_drafted[s];
        accepted += sums.n_accepted[s];
        if (test_long()) {
            assert_true(sums.n_accepted[s] > 0);
            assert_true(sums.n_accepted[s] < sums.n_drafted[s]);
        }
    }
    if (test_long()) {
        assert_true(sums.n_text >= 8000);
        assert_true(sums.n_eog > 0 && sums.n_stopped > 0 && sums.n_full > 0 &&
                    sums.n_cancelled > 0);
    }
    assert_true(accepted > 0 && accepted < drafted);
    free(d);
}
