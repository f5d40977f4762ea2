/* Measures generation with drafts, compared with plain steps.
 *
 *   bench-speculate [MODEL] [ROUNDS] [DIR] [THREADS]
 *
 * MODEL is the bundled one by default. The prompt is 240 tokens of
 * models/heldout.txt. Then 240 tokens are generated. No model retells a text
 * exactly, so the tokens are given instead of sampled: those of the prompt
 * again, of which none, or one in 20, is changed, or other tokens of the file.
 * The engine computes what it would for sampled ones. Plain and drafted
 * generation alternate. A speed is the median over the rounds, the ratio the
 * median of the rounds' ratios.
 *
 * Further rows are those of drafts of which a given part is accepted, whatever
 * their tokens: for MODEL, and for a synthetic model of 0.6B with a block for
 * multi-token prediction, which is written to DIR (build/bench). None of them
 * is accepted where a drafter should find out that drafts are useless. Its
 * ratio should not be below 0.97. DIR - leaves out the synthetic model.
 * THREADS 0 uses all cores. */
#include "pl_draft.h"
#include "synthetic.h"
#include "timing.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_PROMPT = 240, N_OUT = 240, N = N_PROMPT + N_OUT, ROUNDS = 5 };

struct bench {
    pl_model *m;
    pl_engine *e, *block; /* block: NULL without one */
    pl_drafter *d;        /* NULL while steps are plain */
    int n_out;            /* tokens to generate, at most N_OUT */
    int64_t n_vocab;
    int32_t text[N + PL_DRAFT_MAX]; /* the prompt and the tokens after it */
    float *logits;                  /* [1 + PL_DRAFT_MAX][n_vocab] */
    pl_draft_counters counters;     /* of the last drafted generation */
};

/* A way to make drafts. */
struct how {
    const char *text;
    int source;
    int n_max; /* as in pl_draft_limits */
    /* chance that a drafted token is accepted if all before it are; -1 if the
     * tokens decide */
    double chance;
};

static void must(pl_status s, const pl_err *err)
{
    if (s != PL_OK)
        bench_die("drafts", err->message);
}

/* Decodes n tokens, with the logits of all or of none. */
static void decode(struct bench *b, const int32_t *token, int64_t n,
                   bool wanted)
{
    uint8_t none[N] = {0};
    pl_batch batch;
    pl_err err;

    pl_batch_init(&batch);
    batch.n = n;
    batch.token = token;
    batch.wanted = wanted ? NULL : none;
    batch.logits = wanted ? b->logits : NULL;
    must(pl_engine_decode(b->e, &batch, NULL, &err), &err);
}

/* Returns the seconds that generating the output takes without drafts. */
static double plain(struct bench *b)
{
    double start;

    must(pl_seq_trim(b->e, 0, 0, NULL, NULL), NULL);
    decode(b, b->text, N_PROMPT, false);
    start = bench_now();
    for (int i = 0; i < b->n_out; i++)
        decode(b, b->text + N_PROMPT + i, 1, true);
    return bench_now() - start;
}

static uint32_t draw(void)
{
    static uint32_t random = 1;

    random = random * 1664525 + 1013904223;
    return random >> 8;
}

/* Drafts random tokens, as many as possible; a pl_draft_fn. */
static void propose(void *user, pl_draft *d, int n)
{
    const struct bench *b = user;

    for (int i = 0; i < n; i++)
        for (d[i].n = 0; d[i].n < d[i].n_most; d[i].n++)
            d[i].token[d[i].n] = (int32_t)(draw() % (uint64_t)b->n_vocab);
}

/* Gives hidden values to the drafter, if there is one. */
static void receive(void *user, const pl_hidden_rows *rows)
{
    const struct bench *b = user;

    pl_draft_hidden(b->d, rows);
}

/* Changes the text so that a drafted token is accepted with this chance. */
static void force(struct bench *b, const pl_draft *q, int at, double chance)
{
    int n = 0;

    while (n < q->n && draw() % 10000 < 10000 * chance) {
        b->text[at + 1 + n] = q->token[n];
        n++;
    }
    if (n < q->n)
        b->text[at + 1 + n] = (int32_t)((q->token[n] + 1) % b->n_vocab);
}

/* Decodes the token at `at` and its draft. Returns how many tokens of the
 * output that yields. */
static int step(struct bench *b, const struct how *how, int at)
{
    int32_t token[1 + PL_DRAFT_MAX];
    pl_draft q = {.text = b->text,
                  .n_text = at + 1,
                  .n_most = N_PROMPT + b->n_out - at - 1,
                  .token = token + 1};
    pl_drafter *d = b->d;
    double start;
    int64_t kept;
    pl_err err;
    int n = 0;

    must(pl_draft_propose(d, &q, 1, 1, PL_DRAFT_MAX, &err), &err);
    if (how->chance >= 0)
        force(b, &q, at, how->chance);
    start = bench_now();
    token[0] = b->text[at];
    decode(b, token, 1 + q.n, true);
    while (n < q.n && token[1 + n] == b->text[at + 1 + n])
        n++;
    pl_draft_record(d, 0, n);
    pl_draft_measure(d, (int64_t)((bench_now() - start) * 1e9));
    if (n < q.n)
        must(pl_seq_trim(b->e, 0, at + 1 + n, &kept, &err), &err);
    if (n < q.n && kept < at + 1 + n)
        decode(b, b->text + kept, at + 1 + n - kept, false);
    return 1 + n;
}

/* Returns the seconds that it takes with drafts. */
static double drafted(struct bench *b, const struct how *how)
{
    pl_draft_options o;
    double start;
    pl_err err;

    pl_draft_init(&o);
    o.limits.sources = 1u << how->source;
    o.limits.n_max = how->n_max;
    o.propose = propose;
    o.propose_user = b;
    must(pl_drafter_create(&b->d, &o, &err), &err);
    if (b->block)
        must(pl_draft_attach(b->d, b->m, b->e, &err), &err);
    must(pl_seq_trim(b->e, 0, 0, NULL, NULL), NULL);
    decode(b, b->text, N_PROMPT, false);
    start = bench_now();
    for (int i = N_PROMPT; i < N_PROMPT + b->n_out;)
        i += step(b, how, i);
    start = bench_now() - start;
    pl_draft_read_counters(b->d, -1, &b->counters, sizeof b->counters);
    pl_drafter_free(b->d);
    b->d = NULL;
    return start;
}

static void compare(struct bench *b, const struct how *how, int rounds)
{
    const pl_draft_counters *c = &b->counters;
    double before[BENCH_MAX_ROUND], after[BENCH_MAX_ROUND];
    double ratio[BENCH_MAX_ROUND];

    for (int i = 0; i < rounds; i++) {
        /* The order alternates, because the machine may become slower. */
        if (i % 2 == 0)
            before[i] = plain(b);
        after[i] = drafted(b, how);
        if (i % 2 == 1)
            before[i] = plain(b);
        ratio[i] = before[i] / after[i];
    }
    printf("%-26s %-13s %8.1f %8.1f %6.2f   %" PRIu64 " of %" PRIu64, how->text,
           pl_draft_source_name(how->source),
           b->n_out / bench_median(before, rounds),
           b->n_out / bench_median(after, rounds), bench_median(ratio, rounds),
           c->n_accepted, c->n_token);
    for (int i = 0; i < 4 && c->drafted_at[i] > 0; i++)
        printf("%s %.2f", i ? "," : ":",
               (double)c->accepted_at[i] / (double)c->drafted_at[i]);
    printf("\n");
    fflush(stdout);
}

/* Fills in the text: the first tokens of `ids`, and after them the same, of
 * which one in `changed` is another, or, for changed 1, later ones. */
static void fill(struct bench *b, const int32_t *ids, int changed)
{
    memcpy(b->text, ids, N_PROMPT * sizeof *ids);
    for (int i = 0; i < N_OUT; i++) {
        bool other = changed > 0 && i % changed == changed - 1;

        b->text[N_PROMPT + i] = ids[other ? N_PROMPT + i : i];
    }
}

static void open_model(struct bench *b, const char *path, int n_threads,
                       bool block)
{
    pl_options o;
    pl_err err;

    must(pl_model_open(&b->m, path, &err), &err);
    b->n_vocab = pl_model_n_vocab(b->m);
    b->logits =
        calloc((1 + PL_DRAFT_MAX) * (size_t)b->n_vocab, sizeof *b->logits);
    if (!b->logits)
        bench_die(path, "no memory");
    pl_options_init(&o);
    o.n_seq = 1;
    o.n_ctx = 1024;
    o.n_threads = n_threads;
    if (block) {
        o.mtp_texts = 1;
        o.hidden = receive;
        o.hidden_user = b;
    }
    must(pl_engine_create(&b->e, b->m, &o, &err), &err);
    b->block = pl_engine_mtp(b->e);
}

static void close_model(struct bench *b)
{
    free(b->logits);
    pl_engine_free(b->e);
    pl_model_free(b->m);
}

/* Measures drafts of which a given part is accepted. */
static void compare_forced(struct bench *b, const char *name, int rounds)
{
    static const struct {
        const char *text;
        int n_max;
        double chance;
    } rows[] = {{"3 at 0.7", 3, 0.7}, {"useless", -1, 0}};
    char text[40];

    for (int block = 0; block < 1 + (b->block != NULL); block++)
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            const struct how how = {.text = text,
                                    .source =
                                        block ? PL_DRAFT_MTP : PL_DRAFT_CALLER,
                                    .n_max = rows[i].n_max,
                                    .chance = rows[i].chance};

            snprintf(text, sizeof text, "%s, %s", name, rows[i].text);
            compare(b, &how, rounds);
        }
}

/* The same for a dense synthetic model. */
static void compare_synthetic(const char *shape, const char *dir, int rounds,
                              int n_threads)
{
    static struct bench b;
    char path[4096];
    pl_err err;

    must(synthetic_with_block(synth_shape(shape, NULL), "q4_k_m", dir, path,
                              sizeof path, &err),
         &err);
    open_model(&b, path, n_threads, true);
    b.n_out = 96;
    for (int i = 0; i < N; i++)
        b.text[i] = (int32_t)(draw() % (uint64_t)b.n_vocab);
    compare_forced(&b, shape, rounds);
    close_model(&b);
}

int main(int argc, char **argv)
{
    const char *path = argc > 1 ? argv[1] : "models/fable-moe-Q8_0.gguf";
    int rounds = argc > 2 ? atoi(argv[2]) : ROUNDS;
    const char *dir = argc > 3 ? argv[3] : SYNTHETIC_DIR;
    const int n_threads = argc > 4 ? atoi(argv[4]) : 0;
    static const int changed[] = {0, 20, 1};
    static const char *const names[] = {"retold", "retold, 1 in 20 new", "new"};
    static char file[1 << 16];
    FILE *f = fopen("models/heldout.txt", "rb");
    static struct bench b = {.n_out = N_OUT};
    int32_t *ids;
    int64_t n;
    pl_err err;

    if (!f || rounds < 1 || rounds > BENCH_MAX_ROUND)
        bench_die("bench-speculate", "run it in the checkout, with 1 to 64 "
                                     "rounds");
    n = (int64_t)fread(file, 1, sizeof file, f);
    fclose(f);
    open_model(&b, path, n_threads, false);
    must(pl_tokenize(pl_model_tokenizer(b.m), file, (size_t)n, PL_ADD_SPECIAL,
                     &ids, &n, &err),
         &err);
    if (n < N)
        bench_die(path, "too few tokens");
    printf("%-26s %-13s %8s %8s %6s   %s\n", "text", "source", "plain",
           "drafts", "ratio", "accepted tokens, and part by position");
    for (int i = 0; i < 3; i++)
        for (int s = 0; s < PL_DRAFT_CALLER; s++) {
            fill(&b, ids, changed[i]);
            compare(&b, &(struct how){names[i], s, -1, -1}, rounds);
        }
    compare_forced(&b, "text", rounds);
    free(ids);
    close_model(&b);
    if (strcmp(dir, "-") != 0)
        compare_synthetic("qwen3-0.6b", dir, rounds, n_threads);
    return 0;
}
