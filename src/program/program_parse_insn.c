/* Parses instructions; program_text.h describes the form. */
#include "program/program_read.h"

static bool arrow(struct read *r)
{
    if (lex_peek(&r->x) != '<' || r->x.end - r->x.at < 2 || r->x.at[1] != '-')
        return lex_expected(&r->x, "'<-'");
    r->x.at += 2;
    return true;
}

/* Reads a tensor: "%5" of the device whose instruction is parsed, or "0.%5" of
 * device 0. Sets *dev and *t to the indices of device and tensor. */
static bool place(struct read *r, const struct read_at *at, int *dev, int *t)
{
    char c = lex_peek(&r->x);

    *dev = at->dev->p.dev;
    if (c >= '0' && c <= '9' && (!read_index(r, dev) || !lex_need(&r->x, '.')))
        return false;
    return read_tensor(r, t);
}

bool read_adds(struct read *r, int *n)
{
    for (*n = 0; lex_accept(&r->x, '+'); ++*n)
        if (*n == MERGE_MAX_DEPTH)
            return lex_fail(&r->x, PL_BAD_ARGUMENT,
                            "more than %d additions at once", MERGE_MAX_DEPTH);
    return true;
}

bool read_rank(struct read *r, int32_t *out)
{
    int v;

    if (!lex_need(&r->x, '{') || !read_index(r, &v) || !lex_need(&r->x, '}'))
        return false;
    *out = v;
    return true;
}

bool read_entries(struct read *r, const struct read_at *at, read_entry_fn *one,
                  size_t size)
{
    r->part.n = 0;
    if (!lex_need(&r->x, '('))
        return false;
    if (lex_accept(&r->x, ')'))
        return true;
    do {
        void *e = read_add(r, &r->part, size);

        if (!e || !one(r, at, e))
            return false;
    } while (lex_accept(&r->x, ','));
    return lex_need(&r->x, ')');
}

/* ---- parsing copies ------------------------------------------------------ */

/* Reads an offset in bytes such as "64", "4*n_tok" or "64+4*n_tok". Sets *at to
 * its constant part and *off to the part that depends on the step. */
static bool offset(struct read *r, int64_t *at, pl_dim *off)
{
    pl_dim d;

    if (!lex_dim(&r->x, &d))
        return false;
    if (d.symbol != PL_CONST) {
        *off = d;
        return true;
    }
    *at = d.n;
    return !lex_accept(&r->x, '+') || lex_dim(&r->x, off);
}

/* Reads a loop of a copy such as "x n_tok(64, 32)": number of iterations,
 * stride in the source, stride in the destination. If the text has no loop
 * here, the number is 1. */
static bool loop(struct read *r, pl_dim *n, pl_dim *src, pl_dim *dst)
{
    *n = (pl_dim){1, PL_CONST};
    if (!lex_accept_word(&r->x, "x"))
        return true;
    if (!lex_dim(&r->x, n))
        return false;
    return !lex_accept(&r->x, '(') ||
           (lex_dim(&r->x, src) && lex_need(&r->x, ',') &&
            lex_dim(&r->x, dst) && lex_need(&r->x, ')'));
}

static bool piece(struct read *r, const struct read_at *at, bool reduce,
                  struct copy_desc *c)
{
    if (!reduce && !place(r, at, &c->src_dev, &c->src))
        return false;
    if (lex_accept(&r->x, '@') && !offset(r, &c->src_const, &c->src_off))
        return false;
    return lex_dim(&r->x, &c->bytes) &&
           loop(r, &c->n0, &c->src_s0, &c->dst_s0) &&
           loop(r, &c->n1, &c->src_s1, &c->dst_s1) &&
           (!lex_accept_word(&r->x, "to") ||
            offset(r, &c->dst_const, &c->dst_off));
}

static bool pieces(struct read *r, const struct read_at *at, bool reduce,
                   const struct copy_desc **out, int *n)
{
    r->part.n = 0;
    if (lex_accept_word(&r->x, "nothing"))
        return true;
    do {
        struct copy_desc *c = read_add(r, &r->part, sizeof *c);

        if (!c || !piece(r, at, reduce, c))
            return false;
    } while (lex_accept(&r->x, ','));
    *out = read_take(r, &r->part, sizeof **out, n);
    return r->x.status == PL_OK;
}

/* ---- parsing merges ------------------------------------------------------ */

static bool addend(struct read *r, const struct read_at *at, void *out)
{
    struct merge_addend *a = out;

    return place(r, at, &a->dev, &a->tensor) &&
           (!lex_accept(&r->x, '@') || read_bytes(r, &a->off)) &&
           (!lex_accept(&r->x, '-') || lex_dim(&r->x, &a->skip)) &&
           read_adds(r, &a->n_add);
}

/* Reads the addends of a reduction, which follow the word `sum`. */
static bool sum(struct read *r, const struct read_at *at, struct merge_item *m)
{
    struct form_stack s = {0};

    m->reduce = true;
    if (!read_entries(r, at, addend, sizeof *m->addend))
        return false;
    m->addend = read_take(r, &r->part, sizeof *m->addend, &m->n_addend);
    for (int i = 0; m->addend && i < m->n_addend; i++)
        form_push(&s, m->addend[i].n_add);
    m->depth = s.depth;
    if (lex_accept_word(&r->x, "depth") && !read_index(r, &m->depth))
        return false;
    return r->x.status == PL_OK;
}

static bool items(struct read *r, const struct read_at *at,
                  struct insn_merge *m)
{
    r->item.n = 0;
    do {
        struct merge_item *it = read_add(r, &r->item, sizeof *it);

        if (!it || !read_tensor(r, &it->out) || !arrow(r) ||
            (lex_accept_word(&r->x, "sum") && !sum(r, at, it)) ||
            !pieces(r, at, it->reduce, &it->piece, &it->n_piece))
            return false;
    } while (lex_accept(&r->x, ';'));
    m->item = read_take(r, &r->item, sizeof *m->item, &m->n_item);
    return r->x.status == PL_OK;
}

/* Reads the devices of a barrier, which follow the word `barrier`. If none are
 * given, they are the devices that the line names before the colon. */
static bool peers(struct read *r, const struct read_at *at,
                  struct insn_merge *m)
{
    char c = lex_peek(&r->x);

    m->barrier = true;
    r->part.n = 0;
    for (int i = 0; (c < '0' || c > '9') && i < at->n_with; i++) {
        int *p = read_add(r, &r->part, sizeof *p);

        if (!p)
            return false;
        *p = at->with[i];
    }
    if (c >= '0' && c <= '9')
        do {
            int *p = read_add(r, &r->part, sizeof *p);

            if (!p || !read_index(r, p))
                return false;
            if (r->part.n > FORM_MAX_WITH)
                return lex_fail(&r->x, PL_BAD_ARGUMENT,
                                "more than %d devices at a barrier",
                                FORM_MAX_WITH);
        } while (lex_accept(&r->x, ','));
    m->peer = read_take(r, &r->part, sizeof *m->peer, &m->n_peer);
    return r->x.status == PL_OK;
}

static bool group(struct read *r, const struct read_at *at,
                  struct insn_merge *m)
{
    int64_t v;

    (void)at;
    if (!lex_int(&r->x, 0, INT32_MAX - 1, &v))
        return false;
    m->group = (int)v;
    return true;
}

static bool collective_bytes(struct read *r, struct insn_merge *m)
{
    return lex_dim(&r->x, &m->collective_bytes[0]) &&
           (!lex_accept(&r->x, '+') || lex_dim(&r->x, &m->collective_bytes[1]));
}

static bool merge(struct read *r, const struct read_at *at,
                  struct insn_merge *m)
{
    struct lex *x = &r->x;
    bool any = false;

    for (;; any = true)
        if (lex_accept_word(x, "barrier")) {
            if (!peers(r, at, m))
                return false;
        } else if (lex_accept_word(x, "group")) {
            if (!group(r, at, m))
                return false;
        } else if (lex_accept_word(x, "bytes")) {
            if (!collective_bytes(r, m))
                return false;
        } else if (lex_accept_word(x, "collective")) {
            m->collective = true;
        } else if (lex_accept_word(x, "counted")) {
            m->counted = at->first;
        } else {
            break;
        }
    if ((m->barrier || m->group) && m->group >= at->dev->end_group)
        at->dev->end_group = m->group + 1;
    if (lex_at_end(x))
        return true;
    return (!any || lex_need(x, ';')) && items(r, at, m);
}

/* ---- parsing any instruction --------------------------------------------- */

static bool pull(struct read *r, const struct read_at *at, struct insn_pull *x)
{
    if (!read_tensor(r, &x->out) ||
        (lex_accept_word(&r->x, "bytes") && !read_bytes(r, &x->out_bytes)))
        return false;
    x->between_groups = lex_accept_word(&r->x, "between_groups");
    return arrow(r) && pieces(r, at, false, &x->piece, &x->n_piece);
}

static bool push(struct read *r, const struct read_at *at, struct insn_push *x)
{
    r->part.n = 0;
    do {
        struct push_to *to = read_add(r, &r->part, sizeof *to);

        if (!to || !place(r, at, &to->dev, &to->out) ||
            (lex_accept(&r->x, '@') && !read_bytes(r, &to->at)))
            return false;
    } while (lex_accept(&r->x, ','));
    x->to = read_take(r, &r->part, sizeof *x->to, &x->n_to);
    if (r->x.status != PL_OK)
        return false;
    x->between_groups = lex_accept_word(&r->x, "between_groups");
    return arrow(r) && pieces(r, at, false, &x->piece, &x->n_piece);
}

static bool pages(struct read *r, const struct read_at *at,
                  struct insn_pages *x)
{
    const struct read_dev *to;

    if (!place(r, at, &x->out_dev, &x->out) || !arrow(r) ||
        !place(r, at, &x->src_dev, &x->src))
        return false;
    if (!lex_accept_word(&r->x, "table"))
        return lex_expected(&r->x, "table");
    if (!read_tensor(r, &x->token_table))
        return false;
    if (!lex_accept_word(&r->x, "heads"))
        return lex_expected(&r->x, "heads(...)");
    to = read_device(r, x->out_dev);
    if (to)
        x->tile_bytes = form_tile(to->tensor.p, to->tensor.n, x->out);
    return read_heads(r, at, to, x->out, &x->map) &&
           (!lex_accept_word(&r->x, "tile") || read_bytes(r, &x->tile_bytes));
}

static bool event(struct read *r, int *out)
{
    int64_t v;

    if (!lex_int(&r->x, 0, FORM_MAX_EVENT - 1, &v))
        return false;
    *out = (int)v;
    return true;
}

static bool post(struct read *r, const struct read_at *at, struct insn_post *x)
{
    x->dev = at->dev->p.dev;
    if (!event(r, &x->event))
        return false;
    if (x->event >= at->dev->end_event)
        at->dev->end_event = x->event + 1;
    if (lex_accept_word(&r->x, "batched"))
        x->time = POST_BATCHED;
    else if (lex_accept_word(&r->x, "deferred"))
        x->time = POST_DEFERRED;
    return true;
}

static bool flush(const struct read_at *at, struct insn_post *x)
{
    *x = (struct insn_post){at->dev->p.dev, -1, POST_FLUSH};
    return true;
}

static bool wait(struct read *r, struct insn_wait *w)
{
    struct insn_event *e = &w->first;

    r->part.n = 0;
    for (;;) {
        if (!e || !read_index(r, &e->dev) || !lex_need(&r->x, '.') ||
            !event(r, &e->event))
            return false;
        if (!lex_accept(&r->x, ','))
            break;
        e = read_add(r, &r->part, sizeof *e);
    }
    w->more = read_take(r, &r->part, sizeof *w->more, &w->n_more);
    return r->x.status == PL_OK;
}

bool read_insn(struct read *r, const struct read_at *at, struct insn *s)
{
    char c = lex_peek(&r->x);

    s->kind = INSN_KERNEL;
    if (c == '%' || c == '-')
        return read_kernel(r, at, &s->kernel);
    s->kind = INSN_MERGE;
    if (lex_accept_word(&r->x, "merge"))
        return merge(r, at, &s->merge);
    s->kind = INSN_PULL;
    if (lex_accept_word(&r->x, "pull"))
        return pull(r, at, &s->pull);
    s->kind = INSN_PUSH;
    if (lex_accept_word(&r->x, "push"))
        return push(r, at, &s->push);
    s->push.scatter = lex_accept_word(&r->x, "scatter");
    if (s->push.scatter)
        return push(r, at, &s->push);
    s->kind = INSN_PAGES;
    if (lex_accept_word(&r->x, "pages"))
        return pages(r, at, &s->pages);
    s->kind = INSN_POST;
    if (lex_accept_word(&r->x, "post"))
        return post(r, at, &s->post);
    if (lex_accept_word(&r->x, "flush"))
        return flush(at, &s->post);
    s->kind = INSN_WAIT;
    if (lex_accept_word(&r->x, "wait"))
        return wait(r, &s->wait);
    return lex_expected(&r->x, "a kernel's result, merge, pull, push, scatter, "
                               "pages, post, flush, wait, dies or holds");
}
