/* Derives the messages between machines from programs; see
 * program_messages.h. */
#include "program/program_messages.h"

#include "base/err.h"
#include "program/copy_loops.h"
#include "program/page_walk.h"

#include <string.h>

/* ---- deriving ------------------------------------------------------------ */

struct source {
    const struct program *p;
    int n_dev, variant;
    const int *machine; /* [n_dev] */
    /* [n_dev] by event: a bit per machine with a device that waits for it */
    uint64_t **waited;
};

/* Sets the bits of machines whose devices wait for events of others. */
static void find_waits(const struct source *x)
{
    for (int d = 0; d < x->n_dev; d++) {
        const struct variant *v = &x->p[d].variant[x->variant];

        for (int i = 0; i < v->n_insn; i++) {
            const struct insn_wait *w = &v->insn[i].wait;

            for (int k = 0; v->insn[i].kind == INSN_WAIT && k < wait_count(w);
                 k++) {
                struct insn_event e = wait_event(w, k);

                x->waited[e.dev][e.event] |= (uint64_t)1 << x->machine[d];
            }
        }
    }
}

static void add_part(const struct source *x, struct message_channel *c,
                     int insn, int to, int dev)
{
    if (x->machine[dev] != c->machine)
        return;
    if (c->part)
        c->part[c->n_part] = (struct message_part){insn, to, dev};
    c->n_part++;
}

/* Ends a message by the POST at index `post`, or by the end of the variant if
 * that is -1. `first` is the number of the message's first part. Returns the
 * number of the next one's first part. */
static int add_message(struct message_channel *c, int post, bool waited,
                       int first)
{
    if (!waited && c->n_part == first)
        return first;
    if (c->message)
        c->message[c->n] = (struct message){post, waited, c->n_part};
    c->n++;
    return c->n_part;
}

/* Adds the messages and parts of a channel. Only counts them as long as its
 * arrays are NULL. */
static void scan(const struct source *x, struct message_channel *c)
{
    const struct variant *v = &x->p[c->dev].variant[x->variant];
    int first = 0;

    c->n = c->n_part = 0;
    for (int i = 0; i < v->n_insn; i++) {
        const struct insn *s = &v->insn[i];

        if (s->queue != c->queue)
            continue;
        for (int k = 0; s->kind == INSN_PUSH && k < s->push.n_to; k++)
            add_part(x, c, i, k, s->push.to[k].dev);
        if (s->kind == INSN_PAGES && s->pages.out_dev != c->dev)
            add_part(x, c, i, 0, s->pages.out_dev);
        if (s->kind == INSN_POST)
            first = add_message(
                c, i, x->waited[c->dev][s->post.event] >> c->machine & 1,
                first);
    }
    add_message(c, -1, false, first);
}

static pl_status add_channel(const struct source *x, struct messages *out,
                             struct message_channel c, struct arena *a,
                             pl_err *err)
{
    scan(x, &c);
    if (c.n == 0)
        return PL_OK;
    if (out->channel) {
        c.message = arena_alloc(a, (size_t)c.n, sizeof *c.message);
        c.part = arena_alloc(a, (size_t)c.n_part + 1, sizeof *c.part);
        if (!c.message || !c.part)
            return err_no_memory(err, "the messages of programs");
        scan(x, &c);
        out->channel[out->n] = c;
    }
    out->n++;
    return PL_OK;
}

/* Adds all channels. Only counts them as long as their array is NULL. */
static pl_status add_channels(const struct source *x, struct messages *out,
                              struct arena *a, pl_err *err)
{
    int n_machine = 1;

    for (int d = 0; d < x->n_dev; d++)
        if (x->machine[d] >= n_machine)
            n_machine = x->machine[d] + 1;
    out->n = 0;
    for (int d = 0; d < x->n_dev; d++)
        for (int q = 0; q < QUEUE_COUNT; q++)
            for (int to = 0; to < n_machine; to++)
                if (to != x->machine[d])
                    PL_TRY(add_channel(
                        x, out,
                        (struct message_channel){
                            .dev = d, .queue = (enum queue)q, .machine = to},
                        a, err));
    return PL_OK;
}

pl_status messages_create(struct messages *out, const struct program *p,
                          int n_dev, const int *machine, int variant,
                          struct arena *a, pl_err *err)
{
    struct source x = {
        .p = p, .n_dev = n_dev, .variant = variant, .machine = machine};
    bool full;

    *out = (struct messages){.prog = p, .variant = variant};
    x.waited = arena_alloc(a, (size_t)n_dev, sizeof *x.waited);
    full = !x.waited;
    for (int d = 0; !full && d < n_dev; d++) {
        x.waited[d] =
            arena_alloc(a, (size_t)p[d].n_event + 1, sizeof *x.waited[d]);
        full = !x.waited[d];
    }
    if (full)
        return err_no_memory(err, "the messages of programs");
    find_waits(&x);
    PL_TRY(add_channels(&x, out, a, err));
    out->channel = arena_alloc(a, (size_t)out->n + 1, sizeof *out->channel);
    if (!out->channel)
        return err_no_memory(err, "the messages of programs");
    return add_channels(&x, out, a, err);
}

/* ---- the messages of a step ---------------------------------------------- */

static const struct insn *insn_of(const struct messages *m,
                                  const struct message_channel *c, int i)
{
    return &m->prog[c->dev].variant[m->variant].insn[i];
}

bool message_next(const struct messages *m, const struct message_channel *c,
                  struct message_cursor *at, int n_micro,
                  const struct graph_sizes *sizes, struct sent_message *out)
{
    out->first = at->part;
    while (at->message < c->n) {
        const struct message *x = &c->message[at->message++];
        bool any = x->waited;

        if (x->post >= 0 &&
            !insn_enabled(insn_of(m, c, x->post), n_micro, sizes))
            continue;
        for (int i = out->first; !any && i < x->end; i++)
            any = insn_enabled(insn_of(m, c, c->part[i].insn), n_micro, sizes);
        if (!any)
            continue;
        out->end = at->part = x->end;
        out->post = x->post;
        return true;
    }
    return false;
}

/* Returns the cache to which a PAGES instruction copies. */
static const struct prog_tensor *cache_of(const struct messages *m,
                                          const struct insn *s)
{
    return &m->prog[s->pages.out_dev].tensor[s->pages.out];
}

static int64_t count_pages(const struct messages *m, const struct insn *s)
{
    return dim_value(cache_of(m, s)->dim[0], &m->prog->max) / PAGE_TOKENS;
}

size_t message_page_words(const struct messages *m,
                          const struct message_channel *c,
                          const struct message_part *x)
{
    const struct insn *s = insn_of(m, c, x->insn);

    return s->kind == INSN_PAGES ? (size_t)(count_pages(m, s) + 63) / 64 : 0;
}

void message_page_set(const struct messages *m, const struct message_channel *c,
                      const struct message_part *x,
                      const struct graph_sizes *sizes, const void *table,
                      uint64_t *pages)
{
    const struct insn *s = insn_of(m, c, x->insn);
    struct page_walk w = page_walk_start(
        program_token_table(&m->prog[c->dev], table, &sizes[s->micro],
                            prog_tensor_pool(cache_of(m, s))));
    int64_t n = count_pages(m, s);

    memset(pages, 0, message_page_words(m, c, x) * sizeof *pages);
    for (int32_t page; (page = page_walk_next(&w)) >= 0;)
        if (page < n)
            pages[page / 64] |= (uint64_t)1 << page % 64;
}

static void page_spans(const struct messages *m, const struct insn *s,
                       const uint64_t *pages, message_span_fn *fn, void *user)
{
    const struct prog_tensor *t = cache_of(m, s);
    size_t tile = s->pages.tile_bytes;

    for (int64_t p = 0; p < count_pages(m, s); p++)
        for (int64_t h = 0; pages[p / 64] >> p % 64 & 1 && h < t->dim[1].n; h++)
            if (s->pages.map[h] >= 0)
                fn(user, t->offset + (size_t)(p * t->dim[1].n + h) * tile,
                   tile);
}

void message_spans(const struct messages *m, const struct message_channel *c,
                   const struct message_part *x,
                   const struct graph_sizes *sizes, const uint64_t *pages,
                   message_span_fn *fn, void *user)
{
    const struct insn *s = insn_of(m, c, x->insn);
    const struct copy_desc *piece;
    const struct push_to *to;
    size_t base;
    int n;

    if (s->kind == INSN_PAGES) {
        page_spans(m, s, pages, fn, user);
        return;
    }
    to = &s->push.to[x->to];
    piece = push_pieces(&s->push, x->to, &n);
    base = m->prog[x->dev].tensor[to->out].offset + to->at;
    for (int i = 0; i < n; i++) {
        struct copy_extent l;

        copy_loops_resolve(&l, &piece[i], &sizes[s->micro]);
        for (int64_t k = 0; l.bytes > 0 && k < l.n0 * l.n1; k++)
            fn(user,
               base +
                   (size_t)(l.dst + k / l.n1 * l.dst_s0 + k % l.n1 * l.dst_s1),
               (size_t)l.bytes);
    }
}

/* ---- printing ------------------------------------------------------------ */

void messages_print(const struct messages *m, struct text_out *o)
{
    text_put(o, "messages of variant %d\n", m->variant);
    for (int i = 0; i < m->n; i++) {
        const struct message_channel *c = &m->channel[i];

        for (int k = 0, part = 0; k < c->n; k++) {
            text_put(o, "  %d%s -> %d:", c->dev,
                     c->queue == QUEUE_COPY ? " copy" : "", c->machine);
            for (int first = part; part < c->message[k].end; part++) {
                const struct message_part *x = &c->part[part];
                const struct insn *s = insn_of(m, c, x->insn);
                bool pages = s->kind == INSN_PAGES;

                text_put(o, "%s %d %s to %d.%%%d", part > first ? "," : "",
                         x->insn, pages ? "pages" : "push", x->dev,
                         pages ? s->pages.out : s->push.to[x->to].out);
                if (part + 1 == c->message[k].end)
                    text_put(o, ";");
            }
            if (c->message[k].post < 0)
                text_put(o, " end\n");
            else
                text_put(o, " post %d%s\n",
                         insn_of(m, c, c->message[k].post)->post.event,
                         c->message[k].waited ? "" : ", not waited for");
        }
    }
}
