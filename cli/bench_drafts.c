/* Measures generation with the drafts of --spec-type. Each round generates a
 * text twice, without drafts and with them. Both texts must be equal, and so
 * must all bits of their logits.
 *
 * The text begins with tokens of -f, or with random ones. Each further token is
 * the most likely one. Texts do not end before their last token. */
#include "bench.h"
#include "input.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A text that is being generated. */
struct draft_text {
    int32_t *token; /* view of the test's tokens */
    int64_t n;      /* valid tokens; the sequence lacks the last one or more */
    int64_t end;    /* number of tokens at which the text is complete */
    uint64_t hash;  /* of its logits so far */
};

bool bench_has_drafts(const struct bench_config *c, const struct bench_test *t)
{
    return c->drafted != NULL && t->n_gen > 0;
}

/* Gives hidden values to the drafter, but only in runs with drafts, so that
 * others do not spend time on them. */
static void receive(void *config, const pl_hidden_rows *rows)
{
    struct bench_config *c = config;

    if (c->drafting)
        pl_draft_hidden(c->drafts.drafter, rows);
}

enum exit_code bench_open_drafts(struct bench_config *c,
                                 const struct bench_set *b)
{
    pl_err err;
    pl_status r;

    if (drafts_enabled(&c->o) == 0)
        return EXIT_DONE;
    c->o.pl.n_ctx = b->n_ctx;
    r = drafts_open(&c->drafts, &c->o, c->s.model, b->n_seq, c->s.pl.log,
                    &term_interrupts, &err);
    if (r != PL_OK)
        return report(&c->o, r, &err);
    if (c->drafts.drafter == NULL)
        return EXIT_DONE;
    c->drafted = calloc((size_t)b->n_test, sizeof(*c->drafted));
    c->held = calloc((size_t)b->n_seq, sizeof(*c->held));
    c->held_drafts = calloc((size_t)b->n_seq, sizeof(*c->held_drafts));
    for (int i = 0; c->drafted != NULL && i < b->n_test; i++) {
        const struct bench_test *t = &b->test[i];
        struct bench_drafted *d = &c->drafted[i];

        d->stride = t->n_depth + t->n_prompt + t->n_gen + 1;
        d->seconds = calloc((size_t)b->o->n_round, sizeof(*d->seconds));
        d->token =
            calloc((size_t)t->n_seq * (size_t)d->stride, sizeof(*d->token));
        if (d->seconds == NULL || d->token == NULL)
            return cli_error(CMD_BENCH, EXIT_FAILED, "no memory for texts");
    }
    if (c->drafted == NULL || c->held == NULL || c->held_drafts == NULL)
        return cli_error(CMD_BENCH, EXIT_FAILED, "no memory for texts");
    return EXIT_DONE;
}

void bench_connect_drafts(struct bench_config *c, const struct bench_set *b)
{
    const int64_t rows = b->n_seq * (drafts_rows(&c->o) - 1);

    if (c->drafts.drafter == NULL)
        return;
    c->s.pl.n_out = b->n_seq + (rows < PL_DRAFT_MAX ? rows : PL_DRAFT_MAX);
    /* A step with a draft begins and ends at a checkpoint. */
    if (c->s.pl.n_checkpoint == 0)
        c->s.pl.n_checkpoint = 4 + 2 * b->n_seq;
    drafts_connect(&c->drafts, &c->s.pl);
    if (c->s.pl.hidden != NULL) {
        c->s.pl.hidden = receive;
        c->s.pl.hidden_user = c;
    }
}

void bench_close_drafts(struct bench_config *c, const struct bench_set *b)
{
    for (int i = 0; c->drafted != NULL && i < b->n_test; i++) {
        free(c->drafted[i].seconds);
        free(c->drafted[i].token);
    }
    free(c->drafted);
    free(c->held);
    free(c->held_drafts);
    c->drafted = NULL;
    c->held = c->held_drafts = NULL;
    drafts_close(&c->drafts);
}

/* ---- the beginnings of texts --------------------------------------------- */

/* Copies n tokens of ids [n_id] to `to`. The texts begin at different
 * tokens. */
static void take(int32_t *to, int64_t n, const int32_t *ids, int64_t n_id,
                 int seq)
{
    memcpy(to, ids + seq * n % (n_id - n + 1), (size_t)n * sizeof(*to));
}

/* Fills in random tokens, the same for each configuration. */
static void draw(int32_t *to, int64_t n, int64_t n_vocab, int seq)
{
    uint32_t random = (uint32_t)seq + 1;

    for (int64_t i = 0; i < n; i++) {
        random = random * 1664525 + 1013904223;
        to[i] = (int32_t)((random >> 8) % (uint64_t)n_vocab);
    }
}

/* Reads the tokens of -f; *n is 0 without it. */
static enum exit_code read_ids(struct bench_config *c, int32_t **ids,
                               int64_t *n)
{
    struct input in = {0};
    enum exit_code code = EXIT_DONE;
    pl_err err;

    *ids = NULL;
    *n = 0;
    if (c->o.file == NULL)
        return EXIT_DONE;
    code = session_require_tokenizer(&c->s, &c->o);
    if (code == EXIT_DONE)
        code = input_file(&in, &c->o, c->o.file);
    if (code == EXIT_DONE && pl_tokenize(c->s.words, in.s, in.len,
                                         PL_ADD_SPECIAL, ids, n, &err) != PL_OK)
        code = cli_error(CMD_BENCH, EXIT_FAILED, "%s", err.message);
    input_free(&in);
    return code;
}

static enum exit_code begin_texts(struct bench_config *c,
                                  const struct bench_set *b)
{
    int32_t *ids;
    int64_t n;
    enum exit_code code = read_ids(c, &ids, &n);

    for (int i = 0; i < b->n_test && code == EXIT_DONE; i++) {
        const struct bench_test *t = &b->test[i];
        const int64_t need = t->n_depth + t->n_prompt + 1;

        if (!bench_has_drafts(c, t))
            continue;
        if (c->o.file != NULL && n < need)
            code = cli_error(CMD_BENCH, EXIT_USAGE,
                             "-f: the text has %" PRId64 " tokens, but a test "
                             "begins with %" PRId64 "; give a longer text",
                             n, need);
        for (int k = 0; k < t->n_seq && code == EXIT_DONE; k++) {
            int32_t *to = c->drafted[i].token + k * c->drafted[i].stride;

            if (c->o.file != NULL)
                take(to, need, ids, n, k);
            else
                draw(to, need, c->s.n_vocab, k);
        }
    }
    free(ids);
    return code;
}

/* ---- one text in each sequence ------------------------------------------- */

/* A run of a test. */
struct draft_run {
    struct bench_config *c;
    const struct bench_test *t;
    pl_drafter *drafter; /* NULL for a run without drafts */
    int index;           /* of the test */
    bool hashes;
    struct draft_text *text; /* [t->n_seq] */
    pl_draft *draft;         /* [t->n_seq]; that of a complete text is empty */
    /* The batch: [cap] tokens, and the rows of logits. */
    int32_t *id, *seq, *drawn;
    uint8_t *wanted;
    float *logits;
    int64_t cap;
};

static void run_free(struct draft_run *r)
{
    free(r->text);
    free(r->draft);
    free(r->id);
    free(r->seq);
    free(r->drawn);
    free(r->wanted);
    free(r->logits);
}

static pl_status no_memory(pl_err *err)
{
    err->status = PL_NO_MEMORY;
    snprintf(err->message, sizeof(err->message), "no memory for a step");
    return PL_NO_MEMORY;
}

static pl_status run_init(struct draft_run *r, pl_err *err)
{
    const size_t n = (size_t)r->t->n_seq;
    size_t cap;

    /* A sequence may lack all tokens of its text, if it cannot be trimmed. */
    r->cap = r->t->n_seq * (r->t->n_depth + r->t->n_prompt + r->t->n_gen + 1) +
             PL_DRAFT_MAX;
    cap = (size_t)r->cap;
    r->text = calloc(n, sizeof(*r->text));
    r->draft = calloc(n, sizeof(*r->draft));
    r->id = calloc(cap, sizeof(*r->id));
    r->seq = calloc(cap, sizeof(*r->seq));
    r->drawn = calloc(n * PL_DRAFT_MAX, sizeof(*r->drawn));
    r->wanted = calloc(cap, 1);
    r->logits = malloc((n + PL_DRAFT_MAX) * (size_t)r->c->s.n_vocab *
                       sizeof(*r->logits));
    return r->text && r->draft && r->id && r->seq && r->drawn && r->wanted &&
                   r->logits
               ? PL_OK
               : no_memory(err);
}

/* Appends tokens from .. end - 1 of a text to a batch. */
static void add(struct draft_run *r, pl_batch *b, int i, int64_t from,
                int64_t end)
{
    for (; from < end; from++) {
        r->id[b->n] = r->text[i].token[from];
        r->seq[b->n] = r->t->seq0 + i;
        r->wanted[b->n++] = 0;
    }
}

static pl_status decode(struct draft_run *r, pl_batch *b, bool logits,
                        pl_err *err)
{
    b->size = sizeof(*b);
    b->token = r->id;
    b->seq = r->seq;
    b->wanted = r->wanted;
    b->logits = logits ? r->logits : NULL;
    return b->n > 0 ? pl_engine_decode(r->c->s.engine, b, &term_interrupts, err)
                    : PL_OK;
}

/* Makes the sequences the first n_depth tokens of their texts, before a run and
 * after it. */
static pl_status rewind_texts(struct draft_run *r, pl_err *err)
{
    pl_engine *e = r->c->s.engine;
    const int64_t depth = r->t->n_depth;
    pl_batch b = {0};

    for (int i = 0; i < r->t->n_seq; i++) {
        const int seq = r->t->seq0 + i, owner = 1 + r->index;
        int *held = r->drafter ? &r->c->held_drafts[seq] : &r->c->held[seq];
        int64_t kept = pl_seq_length(e, seq);
        pl_status s = PL_OK;

        if (r->drafter != NULL)
            pl_draft_forget(r->drafter, seq);
        /* A drafter that has not seen the beginning gets it once. */
        if (*held != owner || r->c->held[seq] != owner)
            s = pl_seq_trim(e, seq, 0, &kept, err);
        else if (kept > depth)
            s = pl_seq_trim(e, seq, depth, &kept, err);
        if (s != PL_OK)
            return s;
        *held = r->c->held[seq] = owner;
        if (r->drafter != NULL)
            pl_draft_begin(r->drafter, seq, r->text[i].token,
                           depth + r->t->n_prompt + 1, kept);
        add(r, &b, i, kept, depth);
    }
    return decode(r, &b, false, err);
}

/* Drafts tokens for the texts that are not complete, and sets b to the batch of
 * the step. */
static pl_status compose(struct draft_run *r, pl_batch *b, pl_err *err)
{
    pl_draft q[OPTION_MAX_LIST * 8];
    int of[OPTION_MAX_LIST * 8], n = 0;
    int64_t rows = 0;

    for (int i = 0; i < r->t->n_seq; i++) {
        const struct draft_text *x = &r->text[i];
        const int64_t known = pl_seq_length(r->c->s.engine, r->t->seq0 + i);

        r->draft[i].n = 0;
        if (x->n == x->end)
            continue;
        rows += x->n - known;
        of[n] = i;
        q[n++] = (pl_draft){.seq = r->t->seq0 + i,
                            .text = x->token,
                            .n_text = x->n,
                            .n_most = x->end - x->n - 1,
                            .n_again = x->n - known - 1,
                            .token = r->drawn + i * PL_DRAFT_MAX};
    }
    if (r->drafter != NULL) {
        pl_status s =
            pl_draft_propose(r->drafter, q, n, rows, PL_DRAFT_MAX, err);

        if (s != PL_OK)
            return s;
    }
    for (int k = 0; k < n; k++) {
        const int i = of[k];

        r->draft[i] = q[k];
        add(r, b, i, pl_seq_length(r->c->s.engine, r->t->seq0 + i),
            r->text[i].n);
        r->wanted[b->n - 1] = 1;
        for (int j = 0; j < q[k].n; j++) {
            r->id[b->n] = q[k].token[j];
            r->seq[b->n] = q[k].seq;
            r->wanted[b->n++] = 1;
        }
    }
    return PL_OK;
}

static int32_t likeliest(const float *logits, int64_t n)
{
    int64_t best = 0;

    for (int64_t i = 1; i < n; i++)
        if (logits[i] > logits[best])
            best = i;
    return (int32_t)best;
}

/* Adds the bits of a row of logits to a hash (FNV-1a, by values). */
static uint64_t add_row(uint64_t hash, const float *logits, int64_t n)
{
    uint32_t bits;

    for (int64_t i = 0; i < n; i++) {
        memcpy(&bits, &logits[i], sizeof(bits));
        hash = (hash ^ bits) * UINT64_C(1099511628211);
    }
    return hash;
}

/* Appends a token to a text, and further ones as long as its draft has them.
 * Returns the number of drafted tokens that were accepted. */
static int verify(struct draft_run *r, int i, const float *logits)
{
    struct draft_text *x = &r->text[i];
    const int64_t n_vocab = r->c->s.n_vocab;
    int n = 0;

    for (;; n++, logits += n_vocab) {
        const int32_t token = likeliest(logits, n_vocab);

        if (r->hashes)
            x->hash = add_row(x->hash, logits, n_vocab);
        x->token[x->n++] = token;
        if (n == r->draft[i].n || r->draft[i].token[n] != token)
            return n;
    }
}

/* Computes a step. Sets *goes_on to false if all texts are complete. */
static pl_status step(struct draft_run *r, bool *goes_on, pl_err *err)
{
    pl_engine *e = r->c->s.engine;
    const float *logits = r->logits;
    pl_batch b = {0};
    pl_status s = compose(r, &b, err);
    const double start = term_seconds();

    *goes_on = b.n > 0;
    if (s == PL_OK)
        s = decode(r, &b, true, err);
    if (s != PL_OK || !*goes_on)
        return s;
    for (int i = 0; i < r->t->n_seq && s == PL_OK; i++) {
        const int seq = r->t->seq0 + i, drafted = r->draft[i].n;
        int64_t kept;
        int n;

        if (r->text[i].n == r->text[i].end)
            continue;
        n = verify(r, i, logits);
        logits += (1 + drafted) * r->c->s.n_vocab;
        if (r->drafter != NULL && drafted > 0)
            pl_draft_record(r->drafter, seq, n);
        if (n < drafted)
            s = pl_seq_trim(e, seq, r->text[i].n - 1, &kept, err);
    }
    if (r->drafter != NULL)
        pl_draft_measure(r->drafter, (int64_t)((term_seconds() - start) * 1e9));
    return s;
}

/* Generates the texts and measures the seconds. */
static pl_status generate(struct draft_run *r, double *seconds, pl_err *err)
{
    pl_status s = rewind_texts(r, err);
    double start = term_seconds();
    bool goes_on = true;
    pl_batch b = {0};

    for (int i = 0; i < r->t->n_seq; i++)
        add(r, &b, i, r->t->n_depth, r->t->n_depth + r->t->n_prompt);
    if (s == PL_OK)
        s = decode(r, &b, false, err);
    while (s == PL_OK && goes_on)
        s = step(r, &goes_on, err);
    *seconds = term_seconds() - start;
    return s == PL_OK ? rewind_texts(r, err) : s;
}

/* ---- runs of a test ------------------------------------------------------ */

/* Returns a hash of the tokens that were generated, and of the logits if they
 * are hashed. */
static uint64_t hash_of(const struct draft_run *r)
{
    uint64_t hash = UINT64_C(14695981039346656037);

    for (int i = 0; i < r->t->n_seq; i++) {
        const struct draft_text *x = &r->text[i];

        for (int64_t k = 0; k < x->end; k++)
            hash = (hash ^ (uint32_t)x->token[k]) * UINT64_C(1099511628211);
        hash = (hash ^ x->hash) * UINT64_C(1099511628211);
    }
    return hash;
}

static void add_counters(struct bench_drafted *d, const pl_draft_counters *from,
                         const pl_draft_counters *to)
{
    d->n_token += to->n_token - from->n_token;
    d->n_accepted += to->n_accepted - from->n_accepted;
    for (int i = 0; i < PL_DRAFT_MAX; i++) {
        d->drafted_at[i] += to->drafted_at[i] - from->drafted_at[i];
        d->accepted_at[i] += to->accepted_at[i] - from->accepted_at[i];
    }
}

/* Runs a test once. Sets *hash to that of its texts. */
static enum exit_code run(struct bench_config *c, const struct bench_set *b,
                          int i, bool drafts, bool hashes, double *seconds,
                          uint64_t *hash)
{
    struct bench_drafted *d = &c->drafted[i];
    struct draft_run r = {.c = c,
                          .t = &b->test[i],
                          .drafter = drafts ? c->drafts.drafter : NULL,
                          .index = i,
                          .hashes = hashes};
    pl_draft_counters before, after;
    pl_err err;
    pl_status s = run_init(&r, &err);

    c->drafting = drafts;
    for (int k = 0; k < r.t->n_seq && s == PL_OK; k++)
        r.text[k] = (struct draft_text){.token = d->token + k * d->stride,
                                        .n = r.t->n_depth + r.t->n_prompt + 1,
                                        .end = d->stride};
    pl_draft_read_counters(c->drafts.drafter, -1, &before, sizeof before);
    if (s == PL_OK)
        s = generate(&r, seconds, &err);
    pl_draft_read_counters(c->drafts.drafter, -1, &after, sizeof after);
    if (s == PL_OK)
        *hash = hash_of(&r);
    if (drafts && !hashes)
        add_counters(d, &before, &after);
    run_free(&r);
    return s == PL_OK ? EXIT_DONE : report(&c->o, s, &err);
}

static enum exit_code differs(const struct bench_config *c,
                              const struct bench_test *t)
{
    return cli_error(c->o.command, EXIT_FAILED,
                     "generation %d @ %d: the text or its logits differ with "
                     "drafts; this is a defect of plait, please report it",
                     t->n_gen, t->n_depth);
}

enum exit_code bench_warm_drafts(struct bench_config *c,
                                 const struct bench_set *b)
{
    enum exit_code code = EXIT_DONE;
    uint64_t hash[2] = {0};
    double seconds;

    if (c->drafted != NULL)
        code = begin_texts(c, b);

    for (int i = 0; i < b->n_test && code == EXIT_DONE; i++) {
        if (!bench_has_drafts(c, &b->test[i]))
            continue;
        for (int k = 0; k < 2 && code == EXIT_DONE; k++)
            code = run(c, b, i, k == 1, true, &seconds, &hash[k]);
        c->drafted[i].hash = hash[0];
        if (code == EXIT_DONE && hash[0] != hash[1])
            code = differs(c, &b->test[i]);
    }
    return code;
}

enum exit_code bench_time_drafts(struct bench_config *c,
                                 const struct bench_set *b, int i, int round,
                                 double *seconds)
{
    uint64_t hash[2] = {0};
    enum exit_code code = EXIT_DONE;

    /* The order alternates, so that a machine that becomes faster or slower
     * favours neither. */
    for (int k = 0; k < 2 && code == EXIT_DONE; k++) {
        const bool drafts = (k + round) % 2 == 1;

        code = run(c, b, i, drafts, false,
                   drafts ? &c->drafted[i].seconds[round] : seconds,
                   &hash[drafts]);
    }
    if (code == EXIT_DONE && hash[0] != hash[1])
        code = differs(c, &b->test[i]);
    return code;
}
