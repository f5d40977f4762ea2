/* Drafts of a draft model; see draft_model.h. */
#include "draft/draft_model.h"

#include "base/err.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    /* Tokens of long texts that are read in one call. The caller's other texts
     * wait meanwhile. */
    READ_TOKENS = 512,
    /* A text that lacks more tokens is long. */
    FEW_TOKENS = 1 + PL_DRAFT_MAX
};

/* The sequence of a text. */
struct model_text {
    int32_t *token; /* owned, [cap]: its tokens, of which the first n are
                       valid */
    int64_t n, cap;
    bool read; /* the text was read once */
};

int64_t draft_now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

pl_status draft_model_init(struct draft_model *m, pl_engine *engine,
                           int64_t n_vocab, int64_t n_known, int n_seq,
                           pl_err *err)
{
    const size_t n = (size_t)n_seq;

    *m = (struct draft_model){.engine = engine,
                              .n_vocab = n_vocab,
                              .n_known = n_known < n_vocab ? n_known : n_vocab,
                              .n_seq = n_seq,
                              .cap = READ_TOKENS + n_seq * FEW_TOKENS};
    m->text = calloc(n, sizeof *m->text);
    m->token = calloc((size_t)m->cap, sizeof *m->token);
    m->seq = calloc((size_t)m->cap, sizeof *m->seq);
    m->wanted = calloc((size_t)m->cap, 1);
    m->logits = calloc(n * (size_t)n_vocab, sizeof *m->logits);
    if (m->text && m->token && m->seq && m->wanted && m->logits)
        return PL_OK;
    return err_no_memory(err, "a draft model");
}

void draft_model_fini(struct draft_model *m)
{
    for (int i = 0; m->text && i < m->n_seq; i++) {
        draft_model_forget(m, i);
        free(m->text[i].token);
    }
    free(m->text);
    free(m->token);
    free(m->seq);
    free(m->wanted);
    free(m->logits);
    *m = (struct draft_model){0};
}

void draft_model_forget(struct draft_model *m, int seq)
{
    int64_t kept;

    if (!m->engine || !m->text)
        return;
    pl_seq_trim(m->engine, seq, 0, &kept, NULL);
    m->text[seq].n = 0;
    m->text[seq].read = false;
}

/* ---- sequences ----------------------------------------------------------- */

/* Makes space for n tokens of a text. */
static bool reserve(struct model_text *t, int64_t n)
{
    int64_t cap = t->cap > 0 ? t->cap : 256;
    int32_t *more;

    if (n <= t->cap)
        return true;
    while (cap < n)
        cap *= 2;
    more = realloc(t->token, (size_t)cap * sizeof *more);
    if (!more)
        return false;
    t->token = more;
    t->cap = cap;
    return true;
}

/* Trims the sequence to the tokens that it has in common with the text, without
 * the last one of the text, whose logits are needed. An empty sequence begins
 * with the longest prefix that the engine's cache has. */
static pl_status follow(struct draft_model *m, const struct model_draft *d,
                        pl_err *err)
{
    struct model_text *t = &m->text[d->seq];
    int64_t same = 0;

    while (same < t->n && same < d->n_text - 1 &&
           t->token[same] == d->text[same])
        same++;
    if (!reserve(t, d->n_text + PL_DRAFT_MAX))
        return err_no_memory(err, "a text of the draft model");
    if (t->n == 0) {
        PL_TRY(pl_seq_share(m->engine, d->seq, d->text, d->n_text, &same, err));
    } else if (same < t->n) {
        PL_TRY(pl_seq_trim(m->engine, d->seq, same, &same, err));
    }
    memcpy(t->token, d->text, (size_t)same * sizeof *t->token);
    t->n = same;
    return PL_OK;
}

/* Returns true if the draft model can compute the text: it has all its tokens
 * and fits in the cache. */
static bool can_read(const struct draft_model *m, const struct model_draft *d)
{
    const int64_t from = m->text[d->seq].n;
    int64_t same = from < d->n_text ? from : 0;

    if (d->n_text < 1 || d->n_text > pl_engine_n_ctx(m->engine))
        return false;
    for (; same < d->n_text; same++)
        if (d->text[same] < 0 || d->text[same] >= m->n_vocab)
            return false;
    return true;
}

/* Makes the lengths of texts those of the sequences again after a failure. */
static void resync(struct draft_model *m, const struct model_draft *d, int n)
{
    for (int i = 0; i < n; i++) {
        struct model_text *t = &m->text[d[i].seq];
        const int64_t length = pl_seq_length(m->engine, d[i].seq);

        if (length > t->n)
            draft_model_forget(m, d[i].seq);
        else
            t->n = length;
    }
}

/* ---- batches ------------------------------------------------------------- */

/* A batch of the engine. */
struct model_batch {
    int64_t n;      /* number of tokens */
    int64_t n_read; /* those of texts that are read for the first time */
    int rows;       /* rows of logits */
};

static void add_token(struct draft_model *m, struct model_batch *b, int seq,
                      int32_t token, bool wanted)
{
    m->token[b->n] = token;
    m->seq[b->n] = seq;
    m->wanted[b->n++] = wanted;
}

/* Adds the tokens that the text's sequence lacks, at most `most`. The draft has
 * a row of logits if these are all. */
static void add_text(struct draft_model *m, struct model_batch *b,
                     struct model_draft *d, int64_t most)
{
    const struct model_text *t = &m->text[d->seq];
    const int64_t left = d->n_text - t->n, take = left < most ? left : most;

    for (int64_t i = 0; i < take; i++)
        add_token(m, b, d->seq, d->text[t->n + i], i + 1 == left);
    b->n_read += t->read ? 0 : take;
    if (take == left)
        d->row = b->rows++;
}

/* Computes a batch. */
static pl_status compute(struct draft_model *m, const struct model_batch *b,
                         pl_err *err)
{
    const int64_t start = draft_now_ns();
    pl_batch batch;
    pl_status s;
    int64_t ns;

    pl_batch_init(&batch);
    batch.n = b->n;
    batch.token = m->token;
    batch.seq = m->seq;
    batch.wanted = m->wanted;
    batch.logits = b->rows > 0 ? m->logits : NULL;
    s = pl_engine_decode(m->engine, &batch, NULL, err);
    ns = draft_now_ns() - start;
    if (s == PL_OK && b->n_read == 0)
        m->count_ns += cost_add(&m->times, b->n, ns);
    return s;
}

/* Computes what the sequences lack of the first n texts. Texts that lack few
 * tokens go first. */
static pl_status read_texts(struct draft_model *m, struct model_draft *d, int n,
                            pl_err *err)
{
    struct model_batch b = {0};
    int64_t left = READ_TOKENS;
    pl_status s;

    for (int i = 0; i < n; i++)
        d[i].row = -1;
    for (int i = 0; i < n; i++)
        if (d[i].n_text - m->text[d[i].seq].n <= FEW_TOKENS)
            add_text(m, &b, &d[i], FEW_TOKENS);
    for (int i = 0; i < n; i++) {
        const int64_t before = b.n;

        if (d[i].n_text - m->text[d[i].seq].n <= FEW_TOKENS)
            continue;
        add_text(m, &b, &d[i], left);
        left -= b.n - before;
    }
    s = compute(m, &b, err);
    for (int64_t i = 0; i < b.n && s == PL_OK; i++) {
        struct model_text *t = &m->text[m->seq[i]];

        t->token[t->n++] = m->token[i];
    }
    return s;
}

/* ---- drafting ------------------------------------------------------------ */

int32_t draft_pick(const float *logits, int64_t n, bool wanted, int32_t *sure)
{
    int64_t best = 0;
    double sum = 0;

    for (int64_t i = 1; i < n; i++)
        if (logits[i] > logits[best])
            best = i;
    for (int64_t i = 0; wanted && i < n; i++)
        sum += (double)expf(logits[i] - logits[best]);
    *sure = wanted ? (int32_t)(CHANCE_ONE / sum) : CHANCE_ONE;
    return (int32_t)best;
}

/* Appends the next token to the draft. Returns true if a further one is to be
 * computed after it. */
static bool extend(const struct draft_model *m, struct model_draft *d)
{
    int32_t token, sure;

    token = draft_pick(m->logits + d->row * m->n_vocab, m->n_vocab,
                       d->p_min > 0, &sure);
    d->row = -1;
    if (token >= m->n_known || (float)sure < d->p_min * (float)CHANCE_ONE)
        return false;
    d->token[d->n] = token;
    d->sure[d->n++] = sure;
    return d->n < d->n_most && m->text[d->seq].n < pl_engine_n_ctx(m->engine);
}

/* Extends all drafts that have a row of logits, and computes those tokens that
 * a further one follows. Returns false if there are none, or the cache is
 * full. */
static bool draft_on(struct draft_model *m, struct model_draft *d, int n,
                     pl_status *s, pl_err *err)
{
    struct model_batch b = {0};

    for (int i = 0; i < n; i++)
        if (d[i].row >= 0 && extend(m, &d[i])) {
            add_token(m, &b, d[i].seq, d[i].token[d[i].n - 1], true);
            d[i].row = b.rows++;
        }
    if (b.n == 0)
        return false;
    *s = compute(m, &b, err);
    for (int i = 0; i < n && *s == PL_OK; i++)
        if (d[i].row >= 0) {
            struct model_text *t = &m->text[d[i].seq];

            t->token[t->n++] = d[i].token[d[i].n - 1];
        }
    if (*s == PL_FULL)
        *s = PL_OK;
    else if (*s == PL_OK)
        return true;
    return false;
}

/* Moves the drafts of texts that the draft model can compute to the front of
 * d[0 .. n - 1]. Sets *n_able to their number. */
static pl_status prepare(struct draft_model *m, struct model_draft *d, int n,
                         int *n_able, pl_err *err)
{
    *n_able = 0;
    for (int i = 0; i < n; i++) {
        struct model_draft swap = d[i];

        if (!can_read(m, &d[i])) {
            draft_model_forget(m, d[i].seq);
            continue;
        }
        PL_TRY(follow(m, &d[i], err));
        d[i] = d[*n_able];
        d[(*n_able)++] = swap;
    }
    return PL_OK;
}

pl_status draft_model_propose(struct draft_model *m, struct model_draft *d,
                              int n, pl_err *err)
{
    const int64_t start = draft_now_ns();
    pl_status s;
    int n_able;

    m->count_ns = 0;
    for (int i = 0; i < n; i++)
        d[i].n = 0;
    s = prepare(m, d, n, &n_able, err);
    /* The cache may lack space for all texts. Then the last ones wait. */
    for (; s == PL_OK && n_able > 0; n_able--) {
        s = read_texts(m, d, n_able, err);
        if (s != PL_FULL)
            break;
        s = PL_OK;
        resync(m, d, n_able);
    }
    for (int i = 0; i < n_able && s == PL_OK; i++)
        m->text[d[i].seq].read |= d[i].row >= 0;
    while (s == PL_OK && draft_on(m, d, n_able, &s, err))
        ;
    resync(m, d, n);
    for (int i = 0; i < n && s != PL_OK; i++)
        d[i].n = 0;
    m->wall_ns = draft_now_ns() - start;
    return s;
}
