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

/* A text. The block's sequence has `head` rows of positions before `first`, and
 * n rows of the positions from `first`. The first `whole` rows of the head are
 * those of the positions from 0; rows of some later ones are missing. If no row
 * is missing, `head`, `first` and `whole` are 0. The hidden values of n_row
 * positions after all these wait. */
struct mtp_text {
    int64_t whole, head, first, n;
    /* Owned, [cap]: the tokens by position, -1 for unknown ones. Those before
     * end_of() are valid, and one more if n_row is 0 and n is not: the token of
     * the last pair. */
    int32_t *token;
    int64_t cap;
    float *row; /* owned, [row_cap][d_model]; NULL before the first row */
    int n_row, row_cap;
    bool live;     /* it is the text of a caller */
    uint64_t used; /* when it ended */
};

/* Returns the number of sequences that the engine has. */
static int count_sequences(const pl_engine *e)
{
    int n = 0;

    while (pl_engine_free_tokens(e, n) > 0)
        n++;
    return n;
}

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
    m->n_text = count_sequences(engine);
    if (m->n_text < n_seq)
        return err_set(err, PL_BAD_ARGUMENT,
                       "the block's engine has room for %d of %d sequences; "
                       "attach drafts before anything is computed with it",
                       m->n_text, n_seq);
    m->text = calloc((size_t)m->n_text, sizeof *m->text);
    m->slot = calloc(n, sizeof *m->slot);
    m->token = calloc((size_t)m->cap, sizeof *m->token);
    m->seq = calloc((size_t)m->cap, sizeof *m->seq);
    m->wanted = calloc((size_t)m->cap + MANY_ROWS, 1);
    m->hidden = calloc((size_t)m->cap * width, sizeof *m->hidden);
    m->logits = calloc(n * (size_t)m->n_vocab, sizeof *m->logits);
    m->next = calloc(n * width, sizeof *m->next);
    if (!m->text || !m->slot || !m->token || !m->seq || !m->wanted ||
        !m->hidden || !m->logits || !m->next)
        return err_no_memory(err, "drafts of multi-token prediction");
    for (int i = 0; i < n_seq; i++) {
        m->slot[i] = i;
        m->text[i].live = true;
    }
    return PL_OK;
}

void draft_mtp_fini(struct draft_mtp *m)
{
    int64_t kept;

    for (int i = 0; m->text && i < m->n_text; i++) {
        pl_seq_trim(m->engine, i, 0, &kept, NULL);
        free(m->text[i].token);
        free(m->text[i].row);
    }
    free(m->text);
    free(m->slot);
    free(m->token);
    free(m->seq);
    free(m->wanted);
    free(m->hidden);
    free(m->logits);
    free(m->next);
    *m = (struct draft_mtp){0};
}

/* ---- texts --------------------------------------------------------------- */

static struct mtp_text *text_of(const struct draft_mtp *m, int seq)
{
    return &m->text[m->slot[seq]];
}

/* Returns the position after those whose hidden values are known. */
static int64_t end_of(const struct mtp_text *t)
{
    return t->first + t->n + t->n_row;
}

/* Returns the number of rows in the block's sequence. */
static int64_t rows_of(const struct mtp_text *t)
{
    return t->head + t->n;
}

/* Returns the number of positions from 0 whose rows are there. */
static int64_t whole_of(const struct mtp_text *t)
{
    return t->first == 0 ? t->n : t->whole;
}

/* Returns true if neither rows nor hidden values of a text are there. */
static bool is_empty(const struct mtp_text *t)
{
    return t->head + t->n + t->n_row == 0;
}

/* Empties a text and its sequence. */
static void clear(struct draft_mtp *m, int slot)
{
    struct mtp_text *t = &m->text[slot];
    int64_t kept;

    pl_seq_trim(m->engine, slot, 0, &kept, NULL);
    t->whole = t->head = t->first = t->n = t->n_row = 0;
}

/* Keeps the rows of the positions before `end`. The next row is that of the
 * position `first`, which is at least `end`; positions between are missing. */
static void rewind_text(struct draft_mtp *m, int slot, int64_t end,
                        int64_t first)
{
    struct mtp_text *t = &m->text[slot];
    const int64_t whole = whole_of(t);
    int64_t rows, kept;

    end = end > 0 ? end : 0;
    if (end > t->first) /* includes texts without missing rows */
        rows = t->head + (end - t->first < t->n ? end - t->first : t->n);
    else
        rows = whole < end ? whole : end;
    kept = rows_of(t);
    if (rows < kept &&
        (pl_seq_trim(m->engine, slot, rows, &kept, NULL) != PL_OK ||
         kept != rows)) {
        clear(m, slot);
        rows = 0;
    }
    t->whole = whole < rows ? whole : rows;
    t->head = rows;
    t->first = first;
    t->n = t->n_row = 0;
    if (rows == first) { /* nothing is missing */
        t->n = rows;
        t->whole = t->head = t->first = 0;
    }
}

/* Returns the kept text that ended first, but for `but`, or -1. */
static int oldest(const struct draft_mtp *m, int but)
{
    int best = -1;

    for (int i = 0; i < m->n_text; i++)
        if (!m->text[i].live && i != but && !is_empty(&m->text[i]) &&
            (best < 0 || m->text[i].used < m->text[best].used))
            best = i;
    return best;
}

/* Returns an empty text that no caller has; -1 if there is none. */
static int spare(struct draft_mtp *m)
{
    int i = 0;

    while (i < m->n_text && (m->text[i].live || !is_empty(&m->text[i])))
        i++;
    if (i == m->n_text) {
        i = oldest(m, -1);
        if (i >= 0)
            clear(m, i);
    }
    return i;
}

/* Frees the space of the kept text that ended first, but for `but`. Returns
 * false if there is none. */
static bool evict(struct draft_mtp *m, int but)
{
    const int i = oldest(m, but);

    if (i >= 0)
        clear(m, i);
    return i >= 0;
}

/* Makes space for the tokens of a text up to its position `end`, and for its
 * hidden values. */
static bool reserve(struct draft_mtp *m, struct mtp_text *t, int64_t end)
{
    const size_t width = (size_t)m->d_model;
    int64_t cap = t->cap > 0 ? t->cap : 256;
    int32_t *more;

    if (t->row_cap < MOST_ROWS) {
        float *row = realloc(t->row, MOST_ROWS * width * sizeof *row);

        if (!row)
            return false;
        t->row = row;
        t->row_cap = MOST_ROWS;
    }
    while (cap < end + 1)
        cap *= 2;
    if (cap == t->cap)
        return true;
    more = realloc(t->token, (size_t)cap * sizeof *more);
    if (!more)
        return false;
    t->token = more;
    t->cap = cap;
    return true;
}

/* ---- texts that begin alike ---------------------------------------------- */

/* The beginning of a text that another one can use. */
struct mtp_part {
    int64_t same; /* tokens that both have in common */
    int64_t end;  /* the other text's rows of the positions before it fit */
    int n_row;    /* and this many of its hidden values that wait */
};

/* Compares a text with the first n_done of text[0 .. n_text - 1]. A row fits if
 * the token after its position is the same, too. */
static struct mtp_part compare(const struct mtp_text *t, const int32_t *text,
                               int64_t n_text, int64_t n_done)
{
    const int64_t last = t->first + t->n;
    const int64_t known = last + (t->n_row > 0 ? t->n_row : t->n > 0);
    struct mtp_part p = {0};

    while (p.same < known && p.same < n_text &&
           t->token[p.same] == text[p.same])
        p.same++;
    p.end = p.same - 1 < n_done ? p.same - 1 : n_done;
    if (p.end > last)
        p.end = last;
    /* Positions between the whole part and `first` are missing. */
    if (p.end <= t->first && p.end > whole_of(t))
        p.end = whole_of(t);
    if (p.end < 0)
        p.end = 0;
    if (p.end == last) {
        const int64_t n = (p.same < n_done ? p.same : n_done) - last;

        p.n_row = (int)(n < t->n_row ? n : t->n_row);
    }
    return p;
}

/* Gives `to`, an empty text with space for its tokens, the part of text `from`
 * that fits. */
static void copy_part(struct draft_mtp *m, int to, int from,
                      const struct mtp_part *p)
{
    struct mtp_text *t = &m->text[to];
    const struct mtp_text *f = &m->text[from];
    pl_status s;

    do
        s = pl_seq_copy(m->engine, to, from, NULL);
    while (s == PL_FULL && evict(m, from));
    if (s != PL_OK || pl_seq_length(m->engine, to) != rows_of(f)) {
        clear(m, to);
        return;
    }
    t->whole = f->whole;
    t->head = f->head;
    t->first = f->first;
    t->n = f->n;
    if (p->end < t->first + t->n)
        rewind_text(m, to, p->end, p->end);
    if (p->n_row > 0)
        memcpy(t->row, f->row,
               (size_t)p->n_row * (size_t)m->d_model * sizeof *t->row);
    t->n_row = p->n_row;
}

/* Ends a text, so that later ones can begin with its rows. Kept texts with
 * which it begins are not needed any more. */
static void keep(struct draft_mtp *m, struct mtp_text *t)
{
    const int64_t end = end_of(t);

    for (int i = 0; i < m->n_text; i++) {
        const struct mtp_text *other = &m->text[i];

        if (!other->live && !is_empty(other) &&
            whole_of(other) <= whole_of(t) &&
            compare(other, t->token, end, end).same >= end_of(other))
            clear(m, i);
    }
    t->live = false;
    t->used = ++m->clock;
    /* Its hidden values take no more memory than they need. */
    if (t->n_row < t->row_cap) {
        const int n = t->n_row > 0 ? t->n_row : 1;
        float *less =
            realloc(t->row, (size_t)n * (size_t)m->d_model * sizeof *less);

        if (less) {
            t->row = less;
            t->row_cap = n;
        }
    }
}

void draft_mtp_forget(struct draft_mtp *m, int seq)
{
    /* Fewer positions are not worth a sequence. */
    enum { FEW_KEPT = 16 };
    struct mtp_text *t;
    int next = -1;

    if (!m->engine || !m->text || !m->slot)
        return;
    t = text_of(m, seq);
    if (whole_of(t) + (t->first == 0 ? t->n_row : 0) >= FEW_KEPT)
        next = spare(m);
    if (next < 0) {
        clear(m, m->slot[seq]);
        return;
    }
    keep(m, t);
    m->slot[seq] = next;
    m->text[next].live = true;
}

void draft_mtp_begin(struct draft_mtp *m, int seq, const int32_t *text,
                     int64_t n_text, int64_t n_done)
{
    struct mtp_part best = {0};
    struct mtp_text *t;
    int from = -1, to;

    if (!m->engine)
        return;
    draft_mtp_forget(m, seq);
    to = m->slot[seq];
    t = &m->text[to];
    if (n_done == 0 || !reserve(m, t, n_done))
        return;
    for (int i = 0; i < m->n_text; i++) {
        const struct mtp_part p = compare(&m->text[i], text, n_text, n_done);

        if (p.end + p.n_row > best.end + best.n_row) {
            best = p;
            from = i;
        }
    }
    memcpy(t->token, text, (size_t)n_done * sizeof *text);
    t->token[n_done] = n_done < n_text ? text[n_done] : -1;
    if (from >= 0)
        copy_part(m, to, from, &best);
    if (end_of(t) < n_done)
        rewind_text(m, to, t->first + t->n, n_done);
}

/* ---- the block's sequences ----------------------------------------------- */

/* Computes a batch of `b->n` tokens, if need be in the space of texts that
 * ended. If `few`, its time counts. */
static pl_status compute(struct draft_mtp *m, pl_batch *b, bool few,
                         pl_err *err)
{
    const int64_t start = draft_now_ns();
    pl_status s;

    do
        s = pl_engine_decode(m->engine, b, NULL, err);
    while (s == PL_FULL && evict(m, -1));
    if (s == PL_OK && few)
        m->count_ns += cost_add(&m->times, b->n, draft_now_ns() - start);
    return s;
}

/* Lets the block compute the first k rows of a text that wait. The tokens after
 * their positions are known: those of later rows, and `last` after all. */
static pl_status consume(struct draft_mtp *m, int seq, int k, int32_t last,
                         pl_err *err)
{
    struct mtp_text *t = text_of(m, seq);
    const int32_t *after = t->token + t->first + t->n + 1;
    int32_t token[MANY_ROWS], of[MANY_ROWS];
    pl_batch b;

    if (rows_of(t) + k > pl_engine_n_ctx(m->engine))
        return err_set(err, PL_FULL, "the text is too long for the block");
    for (int i = 0; i < k; i++) {
        token[i] = i + 1 < t->n_row ? after[i] : last;
        of[i] = m->slot[seq];
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
    struct mtp_text *t = text_of(m, seq);
    const int64_t n = end - t->first - t->n;

    /* If the hidden values of the position before `end` are gone, its row had
     * another token after it. */
    if (n < 0)
        rewind_text(m, m->slot[seq], end - 1, end);
    else if (n < t->n_row)
        t->n_row = (int)n;
}

/* Appends the hidden values of one position to a text. */
static bool append(struct draft_mtp *m, int seq, int64_t pos, int32_t token,
                   const float *value)
{
    const int slot = m->slot[seq];
    struct mtp_text *t = &m->text[slot];
    const int64_t end = end_of(t);

    if (!reserve(m, t, pos + 1))
        return false;
    if (pos > end) {
        for (int64_t i = end + (t->n > 0 && t->n_row == 0); i < pos; i++)
            t->token[i] = -1;
        rewind_text(m, slot, t->first + t->n, pos);
    } else if (t->n > 0 && t->n_row == 0 && t->token[pos] != token) {
        rewind_text(m, slot, pos - 1, pos);
    }
    if (t->n_row == MOST_ROWS) {
        pl_status s = consume(m, seq, MANY_ROWS, token, NULL);

        if (s == PL_FULL) {
            clear(m, slot);
            t->first = pos;
        } else if (s != PL_OK) {
            m->failed = s == PL_NO_MEMORY ? m->failed : s;
            return false;
        }
    }
    memcpy(t->row + (int64_t)t->n_row * m->d_model, value,
           (size_t)m->d_model * sizeof *value);
    t->token[t->first + t->n + t->n_row++] = token;
    return true;
}

/* Returns true if the text has the position, with this token. */
static bool is_known(const struct mtp_text *t, int64_t pos, int32_t token)
{
    return (pos < whole_of(t) || (pos >= t->first && pos < end_of(t))) &&
           t->token[pos] == token;
}

void draft_mtp_receive(struct draft_mtp *m, const pl_hidden_rows *r)
{
    for (int64_t i = 0; m->engine && m->failed == PL_OK && i < r->n; i++) {
        const int seq = r->seq[i];
        const int64_t pos = r->pos[i];
        const struct mtp_text *t;

        if (seq < 0 || seq >= m->n_seq)
            continue;
        t = text_of(m, seq);
        if (is_known(t, pos, r->token[i]))
            continue;
        if (pos < t->first && t->token[pos] == r->token[i]) /* was missing */
            rewind_text(m, m->slot[seq], pos, pos);
        else if (pos < end_of(t))
            cut(m, seq, pos);
        if (!append(m, seq, pos, r->token[i], r->value + i * r->d_model))
            clear(m, m->slot[seq]);
    }
}

/* ---- drafting ------------------------------------------------------------ */

/* Removes what the text of a draft does not have. Returns true if the hidden
 * values of all its tokens but the last are known, and new ones among them. */
static bool follow(struct draft_mtp *m, const struct model_draft *d)
{
    struct mtp_text *t = text_of(m, d->seq);
    const int64_t known = end_of(t), most = d->n_text - 1;
    int64_t same = 0;

    while (same < known && same < most &&
           (t->token[same] == d->text[same] || t->token[same] < 0))
        same++;
    if (same < known)
        cut(m, d->seq, same);
    return t->n_row > 0 && end_of(t) == most &&
           rows_of(t) + t->n_row <= pl_engine_n_ctx(m->engine);
}

/* Moves the drafts that can be computed to the front of d[0 .. n - 1], and lets
 * the block compute all but the last rows of their texts. Sets *n_able to their
 * number. */
static pl_status prepare(struct draft_mtp *m, struct model_draft *d, int n,
                         int *n_able, pl_err *err)
{
    *n_able = 0;
    for (int i = 0; i < n; i++) {
        const struct mtp_text *t = text_of(m, d[i].seq);
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
    m->seq[b->n] = m->slot[seq];
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
        const struct mtp_text *t = text_of(m, d[i].seq);

        for (int k = 0; k < t->n_row; k++)
            add_token(m, &b, d[i].seq, d[i].text[t->first + t->n + k + 1],
                      t->row + k * m->d_model, k + 1 == t->n_row);
        d[i].row = b.rows++;
    }
    PL_TRY(run(m, &b, err));
    for (int i = 0; i < n; i++) {
        struct mtp_text *t = text_of(m, d[i].seq);

        t->n += t->n_row;
        t->n_row = 0;
        t->token[t->first + t->n] = d[i].text[d[i].n_text - 1];
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
    return d->n < d->n_most && pl_seq_length(m->engine, m->slot[d->seq]) <
                                   pl_engine_n_ctx(m->engine);
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
        const int slot = m->slot[d[i].seq];
        const int64_t rows = rows_of(&m->text[slot]);
        int64_t kept = pl_seq_length(m->engine, slot);

        if (kept > rows)
            pl_seq_trim(m->engine, slot, rows, &kept, NULL);
        if (kept != rows)
            clear(m, slot);
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
