/* Implements pl_draft.h: a table of sources, what each text has of them, and
 * the choice of how much to draft (draft_cost.h). */
#include "pl_draft.h"

#include "base/err.h"
#include "base/sized.h"
#include "draft/draft_mtp.h"
#include "draft/ngram_cache.h"
#include "draft/ngram_index.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    N_SOURCE = PL_DRAFT_N_SOURCE,
    /* Positions in a draft that have a chance of their own. */
    N_POSITION = 8,
    /* Occurrences of an n-gram that are looked at. */
    MOST_ENDS = 32,
    /* Chance of a token of a source that has drafted nothing yet. */
    FIRST_CHANCE = CHANCE_ONE / 4 * 3,
    /* Number of proposals after which a source that failed is tried again: at
     * first, and at most. */
    FIRST_WAIT = 8,
    LAST_WAIT = 1024,
    TRY_TOKENS = 2 /* length of such a trial */
};

/* Statistics of a source's drafts for a text. */
struct record {
    /* Moving averages: the chance that a token at this position is accepted if
     * all before it were. The last is for all later positions. */
    int32_t chance[N_POSITION];
    /* Number of proposals that are dropped before the next trial, and number of
     * those that were dropped since the last draft. */
    int wait, n_dropped;
};

/* State of a text. */
struct text {
    struct ngram_index simple, map;
    struct ngram_cache cache;
    struct record record[N_SOURCE];
    /* The draft that is being verified. */
    int source, n;
    /* Scratch memory of pl_draft_propose: the chances of the draft's tokens, as
     * its source estimates them and as the records do. */
    int32_t sure[PL_DRAFT_MAX], chance[PL_DRAFT_MAX];
};

struct pl_drafter {
    pl_draft_options o;
    struct text *text; /* owned, [o.n_seq] */
    /* Scratch memory of pl_draft_propose; owned, [o.n_seq]. `open` has the
     * drafts that a source is asked for, `of` their indexes in the call. */
    struct cost_draft *cost;
    pl_draft *open;
    int *of;
    struct model_draft *asked; /* of the draft model */
    /* Statistics of all texts, with which new ones begin. */
    struct record record[N_SOURCE];
    struct ngram_cache earlier, fixed;
    struct draft_cost times;
    struct cost_step step; /* of the last pl_draft_propose */
    struct draft_model model;
    struct draft_mtp mtp;
    bool failed[N_SOURCE]; /* a source whose engine failed is not used again */
    int64_t rows, most;    /* arguments of the present pl_draft_propose */
    int64_t model_ns;      /* its time in the draft model and in the block */
    pl_draft_counters counters[N_SOURCE];
};

/* ---- lengths ------------------------------------------------------------- */

static const pl_draft_limits *limits_of(const pl_drafter *d, const pl_draft *q)
{
    return q->limits ? q->limits : &d->o.limits;
}

/* Returns the greatest number of tokens that a draft may have. */
static int64_t most_of(const pl_drafter *d, const pl_draft *q)
{
    const int n_max = limits_of(d, q)->n_max;
    const int64_t n = n_max >= 0 && n_max < PL_DRAFT_MAX ? n_max : PL_DRAFT_MAX;

    return q->n_most < n ? q->n_most : n;
}

/* Fills in what decides the length of a draft of a source. */
static void describe(pl_drafter *d, const pl_draft *q, int source,
                     struct cost_draft *c)
{
    struct text *t = &d->text[q->seq];
    const struct record *r = &t->record[source];

    for (int i = 0; i < q->n; i++)
        t->chance[i] = r->chance[i < N_POSITION ? i : N_POSITION - 1];
    *c = (struct cost_draft){
        .n = q->n, .chance = t->chance, .fixed = limits_of(d, q)->n_max >= 0};
}

/* ---- sources ------------------------------------------------------------- */

/* Returns token i of the text followed by the draft. */
static int32_t token_at(const pl_draft *q, int64_t i)
{
    return i < q->n_text ? q->text[i] : q->token[i - q->n_text];
}

/* Returns the number of tokens that a source may propose, at most `most`. */
static int space(const pl_draft *q, int most)
{
    return q->n_most < most ? (int)q->n_most : most;
}

/* Proposes what followed the latest occurrence. If that overlaps the end of the
 * text, the draft goes on with itself. */
static bool simple_draft(pl_drafter *d, pl_draft *q)
{
    struct text *t = &d->text[q->seq];
    const int n = space(q, d->o.simple_m);
    int32_t end[MOST_ENDS];
    const int hits =
        d->o.simple_hits < MOST_ENDS ? d->o.simple_hits : MOST_ENDS;
    int n_end;

    t->simple.size = d->o.simple_n;
    if (!ngram_index_add(&t->simple, q->text, q->n_text))
        return false;
    n_end = ngram_index_find(&t->simple, q->text, q->n_text, end, hits);
    while (n_end >= hits && n_end > 0 && q->n < n) {
        q->token[q->n] = token_at(q, end[0] + q->n);
        t->sure[q->n++] = CHANCE_ONE;
    }
    return true;
}

/* Returns the index of the occurrence whose next token most others of end[0 ..
 * n - 1] share, the latest of several; sets *n_same to their number. */
static int most_common(const pl_draft *q, const int32_t *end, int n,
                       int *n_same)
{
    int best = 0;

    *n_same = 0;
    for (int i = 0; i < n; i++) {
        int same = 0;

        for (int k = 0; k < n; k++)
            same += token_at(q, end[k] + q->n) == token_at(q, end[i] + q->n);
        if (same > *n_same) {
            *n_same = same;
            best = i;
        }
    }
    return best;
}

/* Proposes, token by token, what followed most of those occurrences that agree
 * with the draft so far. */
static bool map_draft(pl_drafter *d, pl_draft *q)
{
    struct text *t = &d->text[q->seq];
    const int n = space(q, d->o.map_m);
    int32_t end[MOST_ENDS];
    int n_end, n_same;

    t->map.size = d->o.map_n;
    if (!ngram_index_add(&t->map, q->text, q->n_text))
        return false;
    n_end = ngram_index_find(&t->map, q->text, q->n_text, end, MOST_ENDS);
    if (n_end < (d->o.map_hits < MOST_ENDS ? d->o.map_hits : MOST_ENDS))
        return true;
    while (n_end > 0 && q->n < n) {
        const int32_t token =
            token_at(q, end[most_common(q, end, n_end, &n_same)] + q->n);
        int kept = 0;

        for (int i = 0; i < n_end; i++)
            if (token_at(q, end[i] + q->n) == token)
                end[kept++] = end[i];
        t->sure[q->n] = CHANCE_ONE / n_end * kept;
        n_end = kept;
        q->token[q->n++] = token;
    }
    return true;
}

static bool cache_draft(pl_drafter *d, pl_draft *q)
{
    struct text *t = &d->text[q->seq];
    const int n = space(q, PL_DRAFT_MAX);

    if (t->cache.n > q->n_text)
        ngram_cache_fini(&t->cache);
    if (!ngram_cache_add(&t->cache, q->text, q->n_text))
        return false;
    while (q->n < n) {
        q->token[q->n] =
            ngram_cache_next(&t->cache, &d->earlier, &d->fixed, q->text,
                             q->n_text, q->token, q->n, &t->sure[q->n]);
        if (q->token[q->n] < 0)
            break;
        q->n++;
    }
    return true;
}

/* Calls `one` for each of n drafts. */
static pl_status each(pl_drafter *d, pl_draft *q, int n,
                      bool (*one)(pl_drafter *d, pl_draft *q), pl_err *err)
{
    for (int i = 0; i < n; i++)
        if (!one(d, &q[i]))
            return err_no_memory(err, "drafts");
    return PL_OK;
}

static pl_status propose_simple(pl_drafter *d, pl_draft *q, int n, pl_err *err)
{
    return each(d, q, n, simple_draft, err);
}

static pl_status propose_map(pl_drafter *d, pl_draft *q, int n, pl_err *err)
{
    return each(d, q, n, map_draft, err);
}

static pl_status propose_cache(pl_drafter *d, pl_draft *q, int n, pl_err *err)
{
    return each(d, q, n, cache_draft, err);
}

static pl_status propose_by_caller(pl_drafter *d, pl_draft *q, int n,
                                   pl_err *err)
{
    (void)err;
    d->o.propose(d->o.propose_user, q, n);
    for (int i = 0; i < n; i++) {
        q[i].n = q[i].n < 0 ? 0 : space(&q[i], q[i].n);
        for (int k = 0; k < q[i].n; k++)
            d->text[q[i].seq].sure[k] = CHANCE_ONE;
    }
    return PL_OK;
}

/* Returns how many tokens an engine computes for a text: those that seem
 * useful, or those of a trial. */
static int ask_length(pl_drafter *d, const pl_draft *q, int source,
                      const struct cost_draft *c)
{
    struct record *r = &d->text[q->seq].record[source];

    if (c->take > 0)
        return c->take;
    if (r->n_dropped + 1 >= r->wait)
        return space(q, TRY_TOKENS);
    r->n_dropped++;
    return 0;
}

/* Fills d->asked with the drafts that the engine of a source is to compute,
 * whose steps take `times`: as many tokens as seem useful. Returns their
 * number. */
static int ask(pl_drafter *d, const pl_draft *q, int n, int source,
               const struct cost_times *times)
{
    int n_asked = 0;

    for (int i = 0; i < n; i++) {
        pl_draft all = q[i];

        all.n = space(&q[i], PL_DRAFT_MAX);
        describe(d, &all, source, &d->cost[i]);
    }
    cost_choose(&d->times, times, d->cost, n, d->rows, d->most);
    for (int i = 0; i < n; i++) {
        const int length = ask_length(d, &q[i], source, &d->cost[i]);

        if (length > 0)
            d->asked[n_asked++] =
                (struct model_draft){.seq = q[i].seq,
                                     .text = q[i].text,
                                     .n_text = q[i].n_text,
                                     .n_most = length,
                                     .p_min = limits_of(d, &q[i])->p_min,
                                     .token = q[i].token,
                                     .sure = d->text[q[i].seq].sure,
                                     .of = i};
    }
    return n_asked;
}

/* Takes the n_asked drafts of a source's engine, which took `wall_ns`, of which
 * `count_ns` count. */
static pl_status answer(pl_drafter *d, pl_draft *q, int n_asked, int source,
                        int64_t wall_ns, int64_t count_ns, pl_status s)
{
    for (int i = 0; i < n_asked; i++)
        q[d->asked[i].of].n = d->asked[i].n;
    d->model_ns += wall_ns;
    d->step.draft_ns += count_ns;
    if (s != PL_OK && s != PL_NO_MEMORY)
        d->failed[source] = true;
    return s;
}

static pl_status propose_by_model(pl_drafter *d, pl_draft *q, int n,
                                  pl_err *err)
{
    const int k = ask(d, q, n, PL_DRAFT_SIMPLE, &d->model.times);
    const pl_status s = draft_model_propose(&d->model, d->asked, k, err);

    return answer(d, q, k, PL_DRAFT_SIMPLE, d->model.wall_ns, d->model.count_ns,
                  s);
}

static pl_status propose_by_mtp(pl_drafter *d, pl_draft *q, int n, pl_err *err)
{
    const int k = ask(d, q, n, PL_DRAFT_MTP, &d->mtp.times);
    const pl_status s = draft_mtp_propose(&d->mtp, d->asked, k, err);

    return answer(d, q, k, PL_DRAFT_MTP, d->mtp.wall_ns, d->mtp.count_ns, s);
}

/* The sources, in the order of pl_draft_source. `propose` sets the tokens of n
 * empty drafts, at most n_most each, and their chances in text.sure. */
static const struct source {
    pl_status (*propose)(pl_drafter *d, pl_draft *q, int n, pl_err *err);
} sources[N_SOURCE] = {
    [PL_DRAFT_NGRAM_SIMPLE] = {propose_simple},
    [PL_DRAFT_NGRAM_MAP_K] = {propose_map},
    [PL_DRAFT_NGRAM_CACHE] = {propose_cache},
    [PL_DRAFT_CALLER] = {propose_by_caller},
    [PL_DRAFT_SIMPLE] = {propose_by_model},
    [PL_DRAFT_MTP] = {propose_by_mtp},
};

/* ---- creating ------------------------------------------------------------ */

static pl_status check_range(const char *name, int64_t value, int64_t lo,
                             int64_t hi, pl_err *err)
{
    if (value >= lo && value <= hi)
        return PL_OK;
    return err_set(err, PL_BAD_ARGUMENT,
                   "drafts: %s is %" PRId64 "; give %" PRId64 " to %" PRId64,
                   name, value, lo, hi);
}

static pl_status check_options(const pl_draft_options *o, pl_err *err)
{
    enum { MOST = 1024 };
    const int64_t all = (1 << N_SOURCE) - 1;

    PL_TRY(check_range("limits.sources", o->limits.sources, 0, all, err));
    PL_TRY(check_range("limits.n_max", o->limits.n_max, -1, INT32_MAX, err));
    PL_TRY(check_range("limits.n_min", o->limits.n_min, 0, PL_DRAFT_MAX, err));
    if (!(o->limits.p_min >= 0 && o->limits.p_min <= 1))
        return err_set(err, PL_BAD_ARGUMENT,
                       "drafts: limits.p_min is %g; give 0 to 1",
                       (double)o->limits.p_min);
    PL_TRY(check_range("n_seq", o->n_seq, 1, INT32_MAX, err));
    PL_TRY(check_range("simple_n", o->simple_n, 1, MOST, err));
    PL_TRY(check_range("simple_m", o->simple_m, 1, MOST, err));
    PL_TRY(check_range("simple_hits", o->simple_hits, 1, MOST, err));
    PL_TRY(check_range("map_n", o->map_n, 1, MOST, err));
    PL_TRY(check_range("map_m", o->map_m, 1, MOST, err));
    PL_TRY(check_range("map_hits", o->map_hits, 1, MOST, err));
    if (o->limits.sources >> PL_DRAFT_CALLER & 1 && !o->propose)
        return err_set(
            err, PL_BAD_ARGUMENT,
            "drafts: the source caller has no function; set propose");
    if (!o->engine != !o->model ||
        (o->limits.sources >> PL_DRAFT_SIMPLE & 1 && !o->engine))
        return err_set(err, PL_BAD_ARGUMENT,
                       "drafts: the source draft-simple has no %s; set %s",
                       o->engine ? "model" : "engine",
                       o->engine ? "model" : "engine");
    if (!o->engine || pl_engine_free_tokens(o->engine, o->n_seq - 1) > 0)
        return PL_OK;
    return err_set(err, PL_BAD_ARGUMENT,
                   "drafts: the draft model's engine has no sequence %d; set "
                   "its pl_options.n_seq to %d",
                   o->n_seq - 1, o->n_seq);
}

pl_status pl_drafter_create(pl_drafter **out, const pl_draft_options *o,
                            pl_err *err)
{
    pl_draft_options own;
    pl_drafter *d;
    pl_status s = PL_OK;

    PL_CLEAR(out);
    PL_NEED(out, err);
    PL_NEED(o, err);
    pl_draft_init(&own);
    PL_TRY(sized_read(&own, sizeof own, o, "pl_draft_options",
                      "call pl_draft_init", err));
    PL_TRY(check_options(&own, err));
    d = calloc(1, sizeof *d);
    if (!d)
        return err_no_memory(err, "a drafter");
    d->o = own;
    d->text = calloc((size_t)own.n_seq, sizeof *d->text);
    d->cost = calloc((size_t)own.n_seq, sizeof *d->cost);
    d->open = calloc((size_t)own.n_seq, sizeof *d->open);
    d->of = calloc((size_t)own.n_seq, sizeof *d->of);
    d->asked = calloc((size_t)own.n_seq, sizeof *d->asked);
    if (!d->text || !d->cost || !d->open || !d->of || !d->asked)
        s = err_no_memory(err, "a drafter");
    if (s == PL_OK && own.engine)
        s = draft_model_init(&d->model, own.engine, pl_model_n_vocab(own.model),
                             own.n_vocab, own.n_seq, err);
    if (s != PL_OK) {
        pl_drafter_free(d);
        return s;
    }
    for (int k = 0; k < N_SOURCE; k++) {
        for (int i = 0; i < N_POSITION; i++)
            d->record[k].chance[i] = FIRST_CHANCE;
        d->record[k].wait = FIRST_WAIT;
    }
    for (int i = 0; i < own.n_seq; i++)
        memcpy(d->text[i].record, d->record, sizeof d->record);
    *out = d;
    return PL_OK;
}

static void text_fini(struct text *t)
{
    ngram_index_fini(&t->simple);
    ngram_index_fini(&t->map);
    ngram_cache_fini(&t->cache);
}

void pl_drafter_free(pl_drafter *d)
{
    if (!d)
        return;
    for (int i = 0; d->text && i < d->o.n_seq; i++)
        text_fini(&d->text[i]);
    draft_model_fini(&d->model);
    draft_mtp_fini(&d->mtp);
    ngram_cache_fini(&d->earlier);
    ngram_cache_fini(&d->fixed);
    free(d->text);
    free(d->cost);
    free(d->open);
    free(d->of);
    free(d->asked);
    free(d);
}

pl_status pl_draft_attach(pl_drafter *d, const pl_model *m, pl_engine *e,
                          pl_err *err)
{
    pl_engine *block = pl_engine_mtp(e);
    pl_status s;

    PL_NEED(d, err);
    PL_NEED(m, err);
    PL_NEED(e, err);
    if (d->mtp.engine)
        return err_set(err, PL_BAD_ARGUMENT,
                       "drafts: the drafter has a block; create another one "
                       "for each engine");
    if (!block || pl_engine_free_tokens(block, d->o.n_seq - 1) <= 0)
        return err_set(err, PL_BAD_ARGUMENT,
                       "drafts: the engine has no block for multi-token "
                       "prediction of %d texts; set pl_options.mtp_texts",
                       d->o.n_seq);
    s = draft_mtp_init(&d->mtp, block, m, d->o.n_seq, err);
    if (s != PL_OK)
        draft_mtp_fini(&d->mtp);
    return s;
}

void pl_draft_begin(pl_drafter *d, int seq, const int32_t *text, int64_t n_text,
                    int64_t n_done)
{
    if (d && seq >= 0 && seq < d->o.n_seq && text && n_text > 0 &&
        d->mtp.engine && !d->failed[PL_DRAFT_MTP])
        draft_mtp_begin(&d->mtp, seq, text, n_text,
                        n_done < n_text ? n_done : n_text);
}

void pl_draft_hidden(void *drafter, const pl_hidden_rows *rows)
{
    pl_drafter *d = drafter;

    if (d && rows && d->mtp.engine && !d->failed[PL_DRAFT_MTP])
        draft_mtp_receive(&d->mtp, rows);
}

/* ---- proposing ----------------------------------------------------------- */

/* Truncates a draft before the first token that is not in the vocabulary, or
 * whose chance, as its source estimates it, is below p_min. Drops a draft that
 * is too short. */
static void shorten(const pl_drafter *d, pl_draft *q)
{
    const pl_draft_limits *limits = limits_of(d, q);
    const int32_t *sure = d->text[q->seq].sure;
    int n = 0;

    while (n < q->n && q->token[n] >= 0 && q->token[n] < d->o.n_vocab &&
           (float)sure[n] >= limits->p_min * (float)CHANCE_ONE)
        n++;
    q->n = n < limits->n_min ? 0 : n;
}

/* Returns true if a source has what it needs. */
static bool is_usable(const pl_drafter *d, int source)
{
    if (source == PL_DRAFT_CALLER)
        return d->o.propose != NULL;
    if (source == PL_DRAFT_SIMPLE)
        return d->o.engine && !d->failed[source];
    return source != PL_DRAFT_MTP || (d->mtp.engine && !d->failed[source]);
}

/* Returns true if a source is to propose tokens for a text: it has no draft
 * yet, the source is enabled for it, and drafts have not lost too much time. */
static bool is_open(const pl_drafter *d, const pl_draft *q, int source)
{
    const pl_draft_limits *limits = limits_of(d, q);

    return q->n == 0 && most_of(d, q) >= 1 && (limits->sources >> source & 1) &&
           (limits->n_max >= 0 || cost_may_try(&d->times));
}

/* Lets a source propose tokens. */
static pl_status query_source(pl_drafter *d, int source, pl_draft *draft, int n,
                              pl_err *err)
{
    int n_open = 0;

    for (int i = 0; is_usable(d, source) && i < n; i++) {
        if (!is_open(d, &draft[i], source))
            continue;
        d->of[n_open] = i;
        d->open[n_open] = draft[i];
        d->open[n_open++].n_most = most_of(d, &draft[i]);
    }
    if (n_open == 0)
        return PL_OK;
    PL_TRY(sources[source].propose(d, d->open, n_open, err));
    for (int i = 0; i < n_open; i++) {
        shorten(d, &d->open[i]);
        draft[d->of[i]].n = d->open[i].n;
        d->text[d->open[i].seq].source = source;
    }
    return PL_OK;
}

/* Returns the length of a draft of which `take` tokens seem useful. A draft of
 * a source that failed is tried again once its wait is over. */
static int final_length(pl_drafter *d, const pl_draft *q, int take,
                        int64_t left)
{
    struct text *t = &d->text[q->seq];
    struct record *r = &t->record[t->source];

    if (take == 0 && q->n > 0 && left > 0 && ++r->n_dropped >= r->wait)
        take = q->n < TRY_TOKENS || left < TRY_TOKENS ? 1 : TRY_TOKENS;
    if (take < limits_of(d, q)->n_min)
        take = 0;
    if (take > 0)
        r->n_dropped = 0;
    return take;
}

/* Chooses the lengths of the drafts. */
static void choose(pl_drafter *d, pl_draft *draft, int n)
{
    int64_t most = d->most;

    for (int i = 0; i < n; i++)
        describe(d, &draft[i], d->text[draft[i].seq].source, &d->cost[i]);
    cost_choose(&d->times, NULL, d->cost, n, d->rows, most);
    for (int i = 0; i < n; i++)
        most -= d->cost[i].take;
    for (int i = 0; i < n; i++) {
        const int take = d->cost[i].take;
        const int length = final_length(d, &draft[i], take, most);

        draft[i].n = length;
        most -= length > take ? length - take : 0;
        d->text[draft[i].seq].n = length;
        d->step.drafted += length;
        d->step.rows += length;
        d->step.again += draft[i].n_again;
    }
}

/* Lets all sources propose tokens, and measures how long that takes. */
static pl_status query_all(pl_drafter *d, pl_draft *draft, int n, pl_err *err)
{
    const int64_t start = draft_now_ns();
    pl_status status = PL_OK;

    d->model_ns = 0;
    for (int s = 0; s < N_SOURCE && status == PL_OK; s++)
        status = query_source(d, s, draft, n, err);
    if (n > 0)
        d->step.draft_ns +=
            cost_add(&d->times.search, n, draft_now_ns() - start - d->model_ns);
    return status;
}

pl_status pl_draft_propose(pl_drafter *d, pl_draft *draft, int n, int64_t rows,
                           int64_t most, pl_err *err)
{
    pl_status s;

    PL_NEED(d, err);
    PL_NEED_ARRAY(draft, n, err);
    PL_TRY(check_range("the number of texts", n, 0, d->o.n_seq, err));
    PL_TRY(check_range("rows", rows, 0, INT32_MAX, err));
    for (int i = 0; i < n; i++) {
        PL_TRY(check_range("seq", draft[i].seq, 0, d->o.n_seq - 1, err));
        PL_TRY(check_range("n_text", draft[i].n_text, 0, INT64_MAX, err));
        PL_NEED_ARRAY(draft[i].text, draft[i].n_text, err);
        PL_NEED(draft[i].token, err);
    }
    for (int i = 0; i < n; i++)
        draft[i].n = d->text[draft[i].seq].n = 0;
    d->step = (struct cost_step){.texts = n, .rows = rows};
    d->rows = rows;
    d->most = most > 0 ? most : 0;
    s = query_all(d, draft, n, err);
    for (int i = 0; s != PL_OK && i < n; i++)
        draft[i].n = 0;
    choose(d, draft, n);
    return s;
}

/* ---- learning ------------------------------------------------------------ */

/* Updates a record by a draft of n tokens of which n_accepted were accepted. */
static void learn(struct record *r, int n, int n_accepted)
{
    for (int i = 0; i < n_accepted; i++) {
        int32_t *chance = &r->chance[i < N_POSITION ? i : N_POSITION - 1];

        *chance += (CHANCE_ONE - *chance) / 4;
    }
    if (n_accepted < n) {
        int32_t *chance =
            &r->chance[n_accepted < N_POSITION ? n_accepted : N_POSITION - 1];

        *chance -= *chance / 4;
    }
    if (n_accepted > 0)
        r->wait = FIRST_WAIT;
    else
        r->wait = 2 * r->wait < LAST_WAIT ? 2 * r->wait : LAST_WAIT;
}

void pl_draft_record(pl_drafter *d, int seq, int n_accepted)
{
    struct text *t;
    pl_draft_counters *c;

    if (!d || seq < 0 || seq >= d->o.n_seq || d->text[seq].n == 0)
        return;
    t = &d->text[seq];
    c = &d->counters[t->source];
    n_accepted = n_accepted < 0 ? 0 : n_accepted < t->n ? n_accepted : t->n;
    learn(&t->record[t->source], t->n, n_accepted);
    learn(&d->record[t->source], t->n, n_accepted);
    c->n_draft++;
    c->n_token += (uint64_t)t->n;
    c->n_accepted += (uint64_t)n_accepted;
    for (int i = 0; i < t->n; i++)
        c->drafted_at[i]++;
    for (int i = 0; i < n_accepted; i++)
        c->accepted_at[i]++;
    d->step.accepted += n_accepted;
    t->n = 0;
}

void pl_draft_measure(pl_drafter *d, int64_t ns)
{
    /* about 18 minutes: longer times would exceed the range of their sums */
    const int64_t most_ns = INT64_C(1) << 40;

    if (!d)
        return;
    cost_measure(&d->times, &d->step, ns < most_ns ? ns : most_ns);
    d->step = (struct cost_step){0};
}

void pl_draft_forget(pl_drafter *d, int seq)
{
    /* Lookup files are read whole, so they do not grow without limit. */
    enum { MOST_EDGES = 1 << 22 };
    struct text *t;

    if (!d || seq < 0 || seq >= d->o.n_seq)
        return;
    t = &d->text[seq];
    if (d->o.learn && d->earlier.n_edge < MOST_EDGES)
        (void)ngram_cache_merge(&d->earlier, &t->cache);
    text_fini(t);
    draft_model_forget(&d->model, seq);
    draft_mtp_forget(&d->mtp, seq);
    memcpy(t->record, d->record, sizeof t->record);
    t->n = 0;
}

pl_status pl_draft_load(pl_drafter *d, bool fixed, const void *data,
                        size_t bytes, const char *name, pl_err *err)
{
    struct ngram_cache c = {0}, *to;
    pl_status s;

    PL_NEED(d, err);
    PL_NEED_ARRAY(data, bytes, err);
    PL_NEED(name, err);
    to = fixed ? &d->fixed : &d->earlier;
    s = ngram_cache_parse(&c, data, bytes, name, err);
    if (s == PL_OK && to->n_edge > 0 && !ngram_cache_merge(to, &c))
        s = err_no_memory(err, name);
    if (s == PL_OK && to->n_edge == 0) {
        *to = c;
        return PL_OK;
    }
    ngram_cache_fini(&c);
    return s;
}

void pl_draft_save(const pl_drafter *d, pl_write_fn *write, void *user)
{
    if (d && write)
        ngram_cache_write(&d->earlier, write, user);
}

/* Adds the numbers of `from` to those of `to`. */
static void add_counters(pl_draft_counters *to, const pl_draft_counters *from)
{
    to->n_draft += from->n_draft;
    to->n_token += from->n_token;
    to->n_accepted += from->n_accepted;
    for (int i = 0; i < PL_DRAFT_MAX; i++) {
        to->drafted_at[i] += from->drafted_at[i];
        to->accepted_at[i] += from->accepted_at[i];
    }
}

void pl_draft_read_counters(const pl_drafter *d, int source,
                            pl_draft_counters *out, size_t size)
{
    pl_draft_counters c = {0};

    for (int s = 0; d && s < N_SOURCE; s++)
        if (source < 0 || source == s)
            add_counters(&c, &d->counters[s]);
    sized_write(out, size, &c, sizeof c);
}
