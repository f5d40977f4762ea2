/* Drafts of a block for multi-token prediction; see draft_mtp.h. */
#include "draft/draft_mtp.h"

#include "base/err.h"

#include <stdlib.h>
#include <string.h>

enum {
    /* Rows of hidden values of a text that the block computes at once while no
     * draft is requested. */
    MANY_ROWS = 256,
    /* Greatest number of rows of a text in a step that drafts. */
    FEW_ROWS = 64,
    /* Rows that wait, at most. The last ones may be those of a rejected
     * draft. */
    MOST_ROWS = MANY_ROWS + 1 + PL_DRAFT_MAX
};

/* A text. The block's sequence has the positions from `first`, n of them. The
 * hidden values of the n_row positions after these wait. */
struct mtp_text {
    int64_t first, n;
    /* Owned, [cap]: the tokens at the positions from `first`; n + n_row are
     * valid, and one more if n_row is 0 and n is not: the token of the last
     * pair. */
    int32_t *token;
    int64_t cap;
    float *row; /* owned, [MOST_ROWS][d_model]; NULL before the first row */
    int n_row;
};

pl_status draft_mtp_init(struct draft_mtp *m, pl_engine *engine,
                         const pl_model *model, int n_seq, pl_err *err)
{
    const size_t n = (size_t)n_seq;
    size_t width;

    *m = (struct draft_mtp){.engine = engine,
                            .n_vocab = pl_model_n_vocab(model),
                            .d_model = pl_model_d_model(model),
                            .normed = pl_model_mtp_normed(model),
                            .n_seq = n_seq,
                            .cap = (int64_t)n_seq * FEW_ROWS};
    width = (size_t)m->d_model;
    m->text = calloc(n, sizeof *m->text);
    m->token = calloc((size_t)m->cap, sizeof *m->token);
    m->seq = calloc((size_t)m->cap, sizeof *m->seq);
    m->wanted = calloc((size_t)m->cap + MANY_ROWS, 1);
    m->hidden = calloc((size_t)m->cap * width, sizeof *m->hidden);
    m->logits = calloc(n * (size_t)m->n_vocab, sizeof *m->logits);
    m->next = calloc(n * width, sizeof *m->next);
    if (m->text && m->token && m->seq && m->wanted && m->hidden && m->logits &&
        m->next)
        return PL_OK;
    return err_no_memory(err, "drafts of multi-token prediction");
}

void draft_mtp_fini(struct draft_mtp *m)
{
    for (int i = 0; m->text && i < m->n_seq; i++) {
        draft_mtp_forget(m, i);
        free(m->text[i].token);
        free(m->text[i].row);
    }
    free(m->text);
    free(m->token);
    free(m->seq);
    free(m->wanted);
    free(m->hidden);
    free(m->logits);
    free(m->next);
    *m = (struct draft_mtp){0};
}

void draft_mtp_forget(struct draft_mtp *m, int seq)
{
    int64_t kept;

    if (!m->engine || !m->text)
        return;
    pl_seq_trim(m->engine, seq, 0, &kept, NULL);
    m->text[seq].first = m->text[seq].n = m->text[seq].n_row = 0;
}

/* ---- the block's sequences ----------------------------------------------- */

/* Returns the position after those whose hidden values are known. */
static int64_t end_of(const struct mtp_text *t)
{
    return t->first + t->n + t->n_row;
}

/* Computes a batch of `b->n` tokens. If `few`, its time counts. */
static pl_status compute(struct draft_mtp *m, pl_batch *b, bool few,
                         pl_err *err)
{
    const int64_t start = draft_now_ns();
    pl_status s = pl_engine_decode(m->engine, b, NULL, err);

    if (s == PL_OK && few)
        m->count_ns += cost_add(&m->times, b->n, draft_now_ns() - start);
    return s;
}

/* Lets the block compute the first k rows of a text that wait. The tokens after
 * their positions are known: those of later rows, and `last` after all. */
static pl_status consume(struct draft_mtp *m, int seq, int k, int32_t last,
                         pl_err *err)
{
    struct mtp_text *t = &m->text[seq];
    int32_t token[MANY_ROWS], of[MANY_ROWS];
    pl_batch b;

    for (int i = 0; i < k; i++) {
        token[i] = i + 1 < t->n_row ? t->token[t->n + i + 1] : last;
        of[i] = seq;
    }
    memset(m->wanted, 0, (size_t)k);
    pl_batch_init(&b);
    b.n = k;
    b.token = token;
    b.seq = of;
    b.wanted = m->wanted;
    b.hidden = t->row;
    PL_TRY(compute(m, &b, false, err));
    t->n += k;
    t->n_row -= k;
    memmove(t->row, t->row + (int64_t)k * m->d_model,
            (size_t)t->n_row * (size_t)m->d_model * sizeof *t->row);
    return PL_OK;
}

/* Removes the positions from `end` on from a text. */
static void cut(struct draft_mtp *m, int seq, int64_t end)
{
    struct mtp_text *t = &m->text[seq];
    const int64_t n = end - t->first - t->n;

    /* The hidden values before `end` are gone, so the text begins anew. */
    if (n < 0)
        draft_mtp_forget(m, seq);
    else if (n < t->n_row)
        t->n_row = (int)n;
}

/* Makes space for the tokens of a text up to its position `end`. */
static bool reserve(struct draft_mtp *m, struct mtp_text *t, int64_t end)
{
    int64_t cap = t->cap > 0 ? t->cap : 256;
    int32_t *more;

    if (!t->row)
        t->row = calloc((size_t)MOST_ROWS * (size_t)m->d_model, sizeof *t->row);
    while (cap < end - t->first + 1)
        cap *= 2;
    if (!t->row || cap == t->cap)
        return t->row != NULL;
    more = realloc(t->token, (size_t)cap * sizeof *more);
    if (!more)
        return false;
    t->token = more;
    t->cap = cap;
    return true;
}

/* Appends the hidden values of one position to a text. */
static bool append(struct draft_mtp *m, int seq, int64_t pos, int32_t token,
                   const float *value)
{
    struct mtp_text *t = &m->text[seq];

    if (pos != end_of(t) ||
        (t->n > 0 && t->n_row == 0 && t->token[t->n] != token)) {
        draft_mtp_forget(m, seq);
        t->first = pos;
    }
    if (t->n_row == MOST_ROWS) {
        pl_status s = consume(m, seq, MANY_ROWS, token, NULL);

        if (s == PL_FULL) {
            draft_mtp_forget(m, seq);
            t->first = pos;
        } else if (s != PL_OK) {
            m->failed = s == PL_NO_MEMORY ? m->failed : s;
            return false;
        }
    }
    if (!reserve(m, t, pos + 1))
        return false;
    memcpy(t->row + (int64_t)t->n_row * m->d_model, value,
           (size_t)m->d_model * sizeof *value);
    t->token[t->n + t->n_row++] = token;
    return true;
}

/* Returns true if the text has the position, with this token. */
static bool is_known(const struct mtp_text *t, int64_t pos, int32_t token)
{
    return pos >= t->first && pos < end_of(t) &&
           t->token[pos - t->first] == token;
}

void draft_mtp_receive(struct draft_mtp *m, const pl_hidden_rows *r)
{
    for (int64_t i = 0; m->engine && m->failed == PL_OK && i < r->n; i++) {
        const int seq = r->seq[i];

        if (seq < 0 || seq >= m->n_seq ||
            is_known(&m->text[seq], r->pos[i], r->token[i]))
            continue;
        if (r->pos[i] < end_of(&m->text[seq]))
            cut(m, seq, r->pos[i]);
        if (!append(m, seq, r->pos[i], r->token[i], r->value + i * r->d_model))
            draft_mtp_forget(m, seq);
    }
}

/* ---- drafting ------------------------------------------------------------ */

/* Removes what the text of a draft does not have. Returns true if the hidden
 * values of all its tokens but the last are known, and new ones among them. */
static bool follow(struct draft_mtp *m, const struct model_draft *d)
{
    struct mtp_text *t = &m->text[d->seq];
    const int64_t known = t->n + t->n_row, most = d->n_text - 1 - t->first;
    int64_t same = 0;

    while (same < known && same < most &&
           t->token[same] == d->text[t->first + same])
        same++;
    if (same < known)
        cut(m, d->seq, t->first + same);
    return t->n_row > 0 && end_of(t) == d->n_text - 1 &&
           t->n + t->n_row <= pl_engine_n_ctx(m->engine);
}

/* Moves the drafts that can be computed to the front of d[0 .. n - 1], and lets
 * the block compute all but the last rows of their texts. Sets *n_able to their
 * number. */
static pl_status prepare(struct draft_mtp *m, struct model_draft *d, int n,
                         int *n_able, pl_err *err)
{
    *n_able = 0;
    for (int i = 0; i < n; i++) {
        const struct mtp_text *t = &m->text[d[i].seq];
        const struct model_draft swap = d[i];
        pl_status s = PL_OK;

        d[i].row = -1;
        if (!follow(m, &d[i]))
            continue;
        while (s == PL_OK && t->n_row > FEW_ROWS)
            s = consume(m, d[i].seq,
                        t->n_row - FEW_ROWS < MANY_ROWS ? t->n_row - FEW_ROWS
                                                        : MANY_ROWS,
                        d[i].text[d[i].n_text - 1], err);
        if (s == PL_FULL)
            continue;
        PL_TRY(s);
        d[i] = d[*n_able];
        d[*n_able] = swap;
        d[(*n_able)++].row = -1;
    }
    return PL_OK;
}

/* A batch of the engine. */
struct mtp_batch {
    int64_t n; /* number of tokens */
    int rows;  /* rows of results */
};

static void add_token(struct draft_mtp *m, struct mtp_batch *b, int seq,
                      int32_t token, const float *hidden, bool wanted)
{
    m->token[b->n] = token;
    m->seq[b->n] = seq;
    m->wanted[b->n] = wanted;
    memcpy(m->hidden + b->n++ * m->d_model, hidden,
           (size_t)m->d_model * sizeof *hidden);
}

static pl_status run(struct draft_mtp *m, const struct mtp_batch *b,
                     pl_err *err)
{
    pl_batch batch;

    pl_batch_init(&batch);
    batch.n = b->n;
    batch.token = m->token;
    batch.seq = m->seq;
    batch.wanted = m->wanted;
    batch.hidden = m->hidden;
    batch.logits = m->logits;
    if (m->normed)
        batch.norm_out = m->next;
    else
        batch.hidden_out = m->next;
    return compute(m, &batch, true, err);
}

/* Lets the block compute the rows that wait of the first n texts. */
static pl_status read_rows(struct draft_mtp *m, struct model_draft *d, int n,
                           pl_err *err)
{
    struct mtp_batch b = {0};

    for (int i = 0; i < n; i++) {
        const struct mtp_text *t = &m->text[d[i].seq];

        for (int k = 0; k < t->n_row; k++)
            add_token(m, &b, d[i].seq, d[i].text[t->first + t->n + k + 1],
                      t->row + k * m->d_model, k + 1 == t->n_row);
        d[i].row = b.rows++;
    }
    PL_TRY(run(m, &b, err));
    for (int i = 0; i < n; i++) {
        struct mtp_text *t = &m->text[d[i].seq];

        t->n += t->n_row;
        t->n_row = 0;
        t->token[t->n] = d[i].text[d[i].n_text - 1];
    }
    return PL_OK;
}

/* Appends the next token to the draft. Returns true if a further one is to be
 * computed after it. */
static bool extend(const struct draft_mtp *m, struct model_draft *d)
{
    int32_t token, sure;

    token = draft_pick(m->logits + d->row * m->n_vocab, m->n_vocab,
                       d->p_min > 0, &sure);
    if ((float)sure < d->p_min * (float)CHANCE_ONE)
        return false;
    d->token[d->n] = token;
    d->sure[d->n++] = sure;
    return d->n < d->n_most &&
           pl_seq_length(m->engine, d->seq) < pl_engine_n_ctx(m->engine);
}

/* Extends all drafts that have a row of results, and computes those tokens that
 * a further one follows. Returns false if there are none, or the cache is
 * full. */
static bool draft_on(struct draft_mtp *m, struct model_draft *d, int n,
                     pl_status *s, pl_err *err)
{
    struct mtp_batch b = {0};

    for (int i = 0; i < n; i++) {
        const float *next = m->next + d[i].row * m->d_model;

        if (d[i].row < 0)
            continue;
        if (extend(m, &d[i])) {
            add_token(m, &b, d[i].seq, d[i].token[d[i].n - 1], next, true);
            d[i].row = b.rows++;
        } else {
            d[i].row = -1;
        }
    }
    if (b.n == 0)
        return false;
    *s = run(m, &b, err);
    if (*s == PL_FULL)
        *s = PL_OK;
    else if (*s == PL_OK)
        return true;
    return false;
}

/* Trims the sequences of n texts to the texts. */
static void trim(struct draft_mtp *m, const struct model_draft *d, int n)
{
    for (int i = 0; i < n; i++) {
        const struct mtp_text *t = &m->text[d[i].seq];
        const int64_t length = pl_seq_length(m->engine, d[i].seq);
        int64_t kept = length;

        if (length > t->n)
            pl_seq_trim(m->engine, d[i].seq, t->n, &kept, NULL);
        if (kept != t->n)
            draft_mtp_forget(m, d[i].seq);
    }
}

pl_status draft_mtp_propose(struct draft_mtp *m, struct model_draft *d, int n,
                            pl_err *err)
{
    const int64_t start = draft_now_ns();
    pl_status s;
    int n_able;

    m->count_ns = 0;
    for (int i = 0; i < n; i++)
        d[i].n = 0;
    if (m->failed != PL_OK)
        return err_set(err, m->failed,
                       "the block for multi-token prediction failed while it "
                       "read a text; drafts go on without it");
    s = prepare(m, d, n, &n_able, err);
    /* The cache may lack space for all texts. Then the last ones wait. */
    for (; s == PL_OK && n_able > 0; n_able--) {
        s = read_rows(m, d, n_able, err);
        if (s != PL_FULL)
            break;
        d[n_able - 1].row = -1;
        s = PL_OK;
    }
    while (s == PL_OK && n_able > 0 && draft_on(m, d, n_able, &s, err))
        ;
    trim(m, d, n);
    for (int i = 0; i < n && s != PL_OK; i++)
        d[i].n = 0;
    m->wall_ns = draft_now_ns() - start;
    return s;
}
