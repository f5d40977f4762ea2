/* Measures generation with drafts from n-grams, compared with plain steps.
 *
 *   bench-speculate [MODEL] [ROUNDS]   MODEL: the bundled one by default
 *
 * The prompt is 240 tokens of models/heldout.txt. Then 240 tokens are
 * generated. No model retells a text exactly, so the tokens are given instead
 * of sampled: those of the prompt again, of which none, or one in 20, is
 * changed, or other tokens of the file. The engine computes what it would for
 * sampled ones. Plain and drafted generation alternate. A speed is the median
 * over the rounds, the ratio the median of the rounds' ratios. */
#include "pl_draft.h"
#include "timing.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_PROMPT = 240, N_OUT = 240, N = N_PROMPT + N_OUT, ROUNDS = 5 };

struct bench {
    pl_engine *e;
    int64_t n_vocab;
    int32_t text[N + PL_DRAFT_MAX]; /* the prompt and the tokens after it */
    float *logits;                  /* [1 + PL_DRAFT_MAX][n_vocab] */
    uint64_t n_drafted, n_accepted; /* of the last drafted generation */
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
    for (int i = N_PROMPT; i < N; i++)
        decode(b, b->text + i, 1, true);
    return bench_now() - start;
}

/* Decodes the token at `at` and its draft. Returns how many tokens of the
 * output that yields. */
static int step(struct bench *b, pl_drafter *d, int at)
{
    int32_t token[1 + PL_DRAFT_MAX];
    pl_draft q = {.text = b->text,
                  .n_text = at + 1,
                  .n_most = N - at - 1,
                  .token = token + 1};
    double start = bench_now();
    int64_t kept;
    pl_err err;
    int n = 0;

    must(pl_draft_propose(d, &q, 1, 1, PL_DRAFT_MAX, &err), &err);
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
static double drafted(struct bench *b, int source)
{
    pl_draft_options o;
    pl_draft_counters c;
    pl_drafter *d;
    double start;
    pl_err err;

    pl_draft_init(&o);
    o.limits.sources = 1u << source;
    must(pl_drafter_create(&d, &o, &err), &err);
    must(pl_seq_trim(b->e, 0, 0, NULL, NULL), NULL);
    decode(b, b->text, N_PROMPT, false);
    start = bench_now();
    for (int i = N_PROMPT; i < N;)
        i += step(b, d, i);
    start = bench_now() - start;
    pl_draft_read_counters(d, -1, &c, sizeof c);
    b->n_drafted = c.n_token;
    b->n_accepted = c.n_accepted;
    pl_drafter_free(d);
    return start;
}

static void compare(struct bench *b, const char *what, int source, int rounds)
{
    double before[BENCH_MAX_ROUND], after[BENCH_MAX_ROUND];
    double ratio[BENCH_MAX_ROUND];

    for (int i = 0; i < rounds; i++) {
        before[i] = plain(b);
        after[i] = drafted(b, source);
        ratio[i] = before[i] / after[i];
    }
    printf("%-22s %-13s %8.0f %8.0f %6.2f   %" PRIu64 " of %" PRIu64 "\n", what,
           pl_draft_source_name(source), N_OUT / bench_median(before, rounds),
           N_OUT / bench_median(after, rounds), bench_median(ratio, rounds),
           b->n_accepted, b->n_drafted);
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

int main(int argc, char **argv)
{
    const char *path = argc > 1 ? argv[1] : "models/fable-moe-Q8_0.gguf";
    int rounds = argc > 2 ? atoi(argv[2]) : ROUNDS;
    static const int changed[] = {0, 20, 1};
    static const char *const names[] = {"retold", "retold, 1 in 20 new", "new"};
    static char file[1 << 16];
    FILE *f = fopen("models/heldout.txt", "rb");
    struct bench b = {0};
    pl_options o;
    pl_model *m;
    int32_t *ids;
    int64_t n;
    pl_err err;

    if (!f || rounds < 1 || rounds > BENCH_MAX_ROUND)
        bench_die("bench-speculate", "run it in the checkout, with 1 to 64 "
                                     "rounds");
    n = (int64_t)fread(file, 1, sizeof file, f);
    fclose(f);
    must(pl_model_open(&m, path, &err), &err);
    pl_options_init(&o);
    o.n_seq = 1;
    must(pl_engine_create(&b.e, m, &o, &err), &err);
    b.n_vocab = pl_model_n_vocab(m);
    b.logits = calloc((1 + PL_DRAFT_MAX) * (size_t)b.n_vocab, sizeof *b.logits);
    must(pl_tokenize(pl_model_tokenizer(m), file, (size_t)n, PL_ADD_SPECIAL,
                     &ids, &n, &err),
         &err);
    if (n < N || !b.logits)
        bench_die(path, "too few tokens, or no memory");
    printf("%-22s %-13s %8s %8s %6s   %s\n", "text", "source", "plain",
           "drafts", "ratio", "accepted tokens");
    for (int i = 0; i < 3; i++)
        for (int s = 0; s < PL_DRAFT_CALLER; s++) {
            fill(&b, ids, changed[i]);
            compare(&b, names[i], s, rounds);
        }
    free(ids);
    free(b.logits);
    pl_engine_free(b.e);
    pl_model_free(m);
    return 0;
}
