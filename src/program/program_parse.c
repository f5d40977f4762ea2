/* Parses programs: devices, tensors, variants, and what precedes the colon of
 * an instruction; program_text.h describes the form.
 *
 * The input may contain any bytes. Numbers are bounded so that checks of a
 * parsed program cannot overflow. Memory use is proportional to the length of
 * the text, where a line counts once for each of its devices. */
#include "program/program_text.h"

#include "base/err.h"
#include "graph/shape.h"
#include "program/program_read.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

bool read_no_memory(struct read *r)
{
    if (r->x.status == PL_OK)
        r->x.status = err_no_memory(r->x.err, "the text of programs");
    return false;
}

void *read_add(struct read *r, struct read_list *l, size_t size)
{
    size_t used = (size_t)l->n * size;
    char *at;

    if (l->bytes - used < size) {
        size_t bytes = 2 * l->bytes + 4 * size;
        void *p = realloc(l->p, bytes);

        if (!p) {
            read_no_memory(r);
            return NULL;
        }
        l->p = p;
        l->bytes = bytes;
    }
    at = (char *)l->p + used;
    memset(at, 0, size);
    l->n++;
    return at;
}

const void *read_take(struct read *r, struct read_list *l, size_t size, int *n)
{
    void *p = NULL;

    if (r->x.status != PL_OK)
        return NULL;
    *n = l->n;
    l->n = 0;
    if (*n == 0)
        return NULL;
    p = arena_memdup(r->a, l->p, (size_t)*n, size);
    if (!p)
        read_no_memory(r);
    return p;
}

bool read_index(struct read *r, int *out)
{
    int64_t v;

    if (!lex_int(&r->x, 0, INT32_MAX, &v))
        return false;
    *out = (int)v;
    return true;
}

bool read_bytes(struct read *r, size_t *out)
{
    int64_t v;

    if (!lex_int(&r->x, 0, FORM_MAX_BYTES, &v))
        return false;
    *out = (size_t)v;
    return true;
}

bool read_tensor(struct read *r, int *out)
{
    return (lex_accept(&r->x, '%') || lex_expected(&r->x, "a tensor")) &&
           read_index(r, out);
}

static struct read_dev *dev_at(struct read *r, int d)
{
    return (struct read_dev *)r->dev.p + d;
}

struct read_dev *read_device(struct read *r, int d)
{
    return d >= 0 && d < r->dev.n ? dev_at(r, d) : NULL;
}

/* ---- parsing lines about devices ----------------------------------------- */

/* Reads the sizes that follow the word `max`, such as "n_tok 4 n_out 4". */
static bool sizes(struct read *r, struct program *p)
{
    struct lex *x = &r->x;

    int64_t *const size[GRAPH_N_SEQ + 1] = {
        [PL_N_TOK] = &p->max.n_tok,
        [PL_N_OUT] = &p->max.n_out,
        [PL_N_SLOT] = &p->max.n_slot[0],
        [PL_N_SLOT + 1] = &p->max.n_slot[1],
        [PL_N_SLOT + 2] = &p->max.n_slot[2],
        [PL_N_SLOT + 3] = &p->max.n_slot[3],
        [GRAPH_N_SEQ] = &p->max.n_seq,
    };

    do {
        int i = PL_N_TOK;

        while (i <= (int)GRAPH_N_SEQ && !lex_accept_word(x, dim_symbols[i]))
            i++;
        if (i <= (int)GRAPH_N_SEQ) {
            if (!lex_int(x, 0, INT32_MAX, size[i]))
                return false;
        } else if (lex_accept_word(x, "page_stride")) {
            if (!read_index(r, &p->page_stride))
                return false;
        } else {
            return lex_expected(x, "n_tok, n_out, n_slot, n_seq or "
                                   "page_stride");
        }
    } while (!lex_at_end(x));
    return true;
}

static bool max_line(struct read *r)
{
    struct read_dev *d;

    if (r->dev.n == 0)
        return sizes(r, &r->common);
    d = dev_at(r, r->dev.n - 1);
    if (r->n_variant > 0 || d->tensor.n > 0)
        return lex_fail(&r->x, PL_BAD_ARGUMENT,
                        "'max' after tensors; put it before them");
    return sizes(r, &d->p);
}

/* Reads one of the sizes in a device's line, such as "work 512". Sizes that the
 * line does not give stay -1 until finish_device. */
static bool device_size(struct read *r, struct program *p)
{
    for (int i = 0; i < REGION_COUNT; i++)
        if (lex_accept_word(&r->x, form_regions[i]))
            return read_bytes(r, &p->bytes[i]);
    if (lex_accept_word(&r->x, "events"))
        return read_index(r, &p->n_event);
    if (lex_accept_word(&r->x, "groups"))
        return read_index(r, &p->n_group);
    return lex_expected(&r->x, "idle, weights, cache, work, inbox, events or "
                               "groups");
}

static bool device(struct read *r)
{
    struct read_dev *d;
    int64_t i;

    if (r->n_variant > 0)
        return lex_fail(&r->x, PL_BAD_ARGUMENT, "'device' after a variant");
    if (r->dev.n == r->n_dev)
        return lex_fail(&r->x, PL_BAD_ARGUMENT,
                        "more devices than the %d of the first line", r->n_dev);
    if (!lex_int(&r->x, r->dev.n, r->dev.n, &i))
        return false;
    d = read_add(r, &r->dev, sizeof *d);
    if (!d)
        return false;
    d->p = r->common;
    d->p.dev = (int)i;
    d->p.active = !lex_accept_word(&r->x, "idle");
    d->p.n_event = d->p.n_group = -1;
    for (int k = 0; k < REGION_COUNT; k++)
        d->p.bytes[k] = SIZE_MAX;
    while (!lex_at_end(&r->x))
        if (!device_size(r, &d->p))
            return false;
    return true;
}

/* ---- parsing variants and their instructions ----------------------------- */

static bool all_devices(struct read *r)
{
    return r->dev.n == r->n_dev ||
           lex_fail(&r->x, PL_BAD_ARGUMENT,
                    "the first line announces %d devices, but there are %d",
                    r->n_dev, r->dev.n);
}

/* Stores the instructions, dead ranges and holds of the variant that has just
 * been read in the programs of all devices. */
static bool end_variant(struct read *r)
{
    for (int i = 0; i < r->dev.n && r->n_variant > 0; i++) {
        struct read_dev *d = dev_at(r, i);
        struct variant *s = &d->variant[r->n_variant - 1];

        s->insn = read_take(r, &d->insn, sizeof *s->insn, &s->n_insn);
        s->dead = read_take(r, &d->dead, sizeof *s->dead, &s->n_dead);
        s->hold = (struct buffer_hold *)read_take(r, &d->hold, sizeof *s->hold,
                                                  &s->n_hold);
    }
    return r->x.status == PL_OK;
}

static bool variant(struct read *r)
{
    int n = 1;

    if (!all_devices(r) || !end_variant(r))
        return false;
    if (r->n_variant == PROG_MAX_VARIANT)
        return lex_fail(&r->x, PL_BAD_ARGUMENT, "more than %d variants",
                        PROG_MAX_VARIANT);
    if (lex_accept_word(&r->x, "micro") && !read_index(r, &n))
        return false;
    for (int i = 0; i < r->dev.n; i++)
        dev_at(r, i)->variant[r->n_variant].n_micro = n;
    r->n_variant++;
    r->order = (struct form_order){0};
    return lex_need_end(&r->x);
}

/* Reads the dead ranges that follow the word `dies`, such as "128 @0, 64 @512"
 * or "%5". */
static bool dead_ranges(struct read *r, struct read_dev *d)
{
    struct dead_range *x;

    do {
        const struct prog_tensor *t = d->tensor.p;
        int k;

        if (d->insn.n == 0)
            return lex_fail(&r->x, PL_BAD_ARGUMENT,
                            "'dies' before the device's first instruction");
        x = read_add(r, &d->dead, sizeof *x);
        if (!x)
            return false;
        x->insn = d->insn.n - 1;
        if (lex_peek(&r->x) == '%') {
            if (!read_tensor(r, &k))
                return false;
            if (k >= d->tensor.n)
                return lex_fail(&r->x, PL_BAD_ARGUMENT,
                                "device %d has no tensor %%%d", d->p.dev, k);
            x->offset = t[k].offset;
            x->bytes = t[k].bytes;
        } else if (!read_bytes(r, &x->bytes) || !lex_need(&r->x, '@') ||
                   !read_bytes(r, &x->offset)) {
            return false;
        }
    } while (lex_accept(&r->x, ','));
    return lex_need_end(&r->x);
}

/* Reads the tensors that follow the word `holds`. Their buffers are kept up to
 * this position. */
static bool holds(struct read *r, struct read_dev *d)
{
    int64_t until = r->order.any ? (int64_t)r->order.last.order + 1 : 0;

    do {
        struct buffer_hold *h = read_add(r, &d->hold, sizeof *h);

        if (!h || !read_tensor(r, &h->tensor))
            return false;
        if (h->tensor >= d->tensor.n)
            return lex_fail(&r->x, PL_BAD_ARGUMENT,
                            "device %d has no tensor %%%d", d->p.dev,
                            h->tensor);
        h->until = until > INT32_MAX ? INT32_MAX : (int)until;
    } while (lex_accept(&r->x, ','));
    return lex_need_end(&r->x);
}

/* The part of an instruction's line before the colon: the devices, the queue,
 * the position and the predicate. */
struct who {
    int dev[FORM_MAX_WITH], n;
    enum queue queue;
    int order, micro, node; /* position in the total order, -1 if the line gives
                               none; micro-batch; graph node */
    bool pred_out;
    int64_t least, most;
};

/* Reads the predicate that follows the word `if`, such as "n_tok 5..", "n_out
 * ..4" or "n_tok 2..4". */
static bool guard(struct read *r, struct who *w)
{
    struct lex *x = &r->x;

    w->pred_out = lex_accept_word(x, "n_out");
    if (!w->pred_out && !lex_accept_word(x, "n_tok"))
        return lex_expected(x, "n_tok or n_out");
    w->least = 0;
    w->most = INT64_MAX;
    if (lex_peek(x) != '.' && !lex_int(x, 0, FORM_MAX_BYTES, &w->least))
        return false;
    if (!lex_need(x, '.') || !lex_need(x, '.'))
        return false;
    return !lex_digit(x) || lex_int(x, 1, INT64_MAX, &w->most);
}

static bool who_word(struct read *r, struct who *w)
{
    if (lex_accept_word(&r->x, "copy")) {
        w->queue = QUEUE_COPY;
        return true;
    }
    if (lex_accept_word(&r->x, "order"))
        return read_index(r, &w->order);
    if (lex_accept_word(&r->x, "micro"))
        return read_index(r, &w->micro);
    if (lex_accept_word(&r->x, "node"))
        return read_index(r, &w->node);
    if (lex_accept_word(&r->x, "if"))
        return guard(r, w);
    return lex_expected(&r->x, "copy, order, micro, node, if or ':'");
}

static bool who(struct read *r, struct who *w)
{
    *w = (struct who){.order = -1, .node = -1};
    do {
        int64_t d;

        if (w->n == FORM_MAX_WITH)
            return lex_expected(&r->x, "':' after 64 devices");
        if (!lex_int(&r->x, 0, r->n_dev - 1, &d))
            return false;
        for (int i = 0; i < w->n; i++)
            if (w->dev[i] == d)
                return lex_fail(&r->x, PL_BAD_ARGUMENT,
                                "device %d is named twice", (int)d);
        w->dev[w->n++] = (int)d;
    } while (lex_accept(&r->x, ','));
    while (!lex_accept(&r->x, ':'))
        if (!who_word(r, w))
            return false;
    return true;
}

/* Parses the part of an instruction's line after the colon, for device k of the
 * devices that the line names. */
static bool one_insn(struct read *r, const struct who *w, int k)
{
    const struct read_at at = {dev_at(r, w->dev[k]), w->dev, w->n, k == 0};
    struct insn s, *to;
    int64_t order;

    if (lex_accept_word(&r->x, "dies"))
        return dead_ranges(r, at.dev);
    if (lex_accept_word(&r->x, "holds"))
        return holds(r, at.dev);
    memset(&s, 0, sizeof s);
    s.queue = w->queue;
    s.micro = w->micro;
    s.node = w->node;
    s.pred_out = w->pred_out;
    s.min_rows = w->least;
    s.max_rows = w->most;
    if (!read_insn(r, &at, &s) || !lex_need_end(&r->x))
        return false;
    if (k > 0 && insn_is_barrier(&s))
        order = r->order.last.order;
    else if (k == 0 && w->order >= 0)
        order = w->order;
    else
        order = form_order(&r->order, w->dev[k], &s);
    if (order > INT32_MAX)
        return lex_fail(&r->x, PL_BAD_ARGUMENT,
                        "no position is left in the total order after the "
                        "instruction above");
    s.order = (int)order;
    form_order_took(&r->order, w->dev[k], &s);
    to = read_add(r, &at.dev->insn, sizeof *to);
    if (to)
        *to = s;
    return to != NULL;
}

static bool insns(struct read *r)
{
    struct who w;
    struct lex body;

    if (r->n_variant == 0)
        return lex_expected(&r->x, "variant, before any instruction,");
    if (!who(r, &w))
        return false;
    body = r->x;
    for (int k = 0; k < w.n; k++) {
        r->x = body;
        if (!one_insn(r, &w, k))
            return false;
    }
    return true;
}

/* ---- parsing a whole text ------------------------------------------------ */

static bool line(struct read *r)
{
    char c = lex_peek(&r->x);

    if (c == '%' && r->dev.n > 0 && r->n_variant == 0)
        return read_tensor_line(r, dev_at(r, r->dev.n - 1));
    if (c >= '0' && c <= '9')
        return insns(r);
    if (r->dev.n > 0 && r->n_variant == 0 && lex_accept_word(&r->x, "buffer"))
        return read_buffer_line(r, dev_at(r, r->dev.n - 1));
    if (lex_accept_word(&r->x, "max"))
        return max_line(r);
    if (lex_accept_word(&r->x, "device"))
        return device(r);
    if (lex_accept_word(&r->x, "variant"))
        return variant(r);
    return lex_expected(&r->x, r->n_variant > 0 ? "an instruction or variant"
                               : r->dev.n > 0   ? "a tensor, device or variant"
                                                : "max or device");
}

/* Completes the program of a device. Its regions, events and groups, if the
 * text does not give their sizes, become as large as needed. */
static bool finish_device(struct read *r, struct read_dev *d, struct program *p)
{
    *p = d->p;
    p->tensor = read_take(r, &d->tensor, sizeof *p->tensor, &p->n_tensor);
    p->in_buffer =
        read_take(r, &d->in_buffer, sizeof *p->in_buffer, &p->n_tensor);
    p->buffer = (struct prog_buffer *)read_take(
        r, &d->buffer, sizeof *p->buffer, &p->n_buffer);
    if (p->n_buffer == 0)
        p->in_buffer = NULL;
    p->n_variant = r->n_variant;
    p->variant = arena_memdup(r->a, d->variant, (size_t)r->n_variant,
                              sizeof *p->variant);
    if (!p->variant)
        return read_no_memory(r);
    for (int k = 0; k < REGION_COUNT; k++)
        if (p->bytes[k] == SIZE_MAX)
            p->bytes[k] = d->end[k];
    if (p->n_event < 0)
        p->n_event = d->end_event;
    if (p->n_group < 0)
        p->n_group = d->end_group;
    r->n_event += p->n_event;
    return r->x.status == PL_OK;
}

static bool finish(struct read *r, struct program **out)
{
    struct program *p = arena_alloc(r->a, (size_t)r->n_dev, sizeof *p);

    if (!p)
        return read_no_memory(r);
    for (int i = 0; i < r->n_dev; i++)
        if (!finish_device(r, dev_at(r, i), &p[i]))
            return false;
    if (r->n_event > FORM_MAX_EVENT)
        return lex_fail(&r->x, PL_BAD_ARGUMENT,
                        "the devices have %" PRId64 " events, more than %d",
                        r->n_event, FORM_MAX_EVENT);
    *out = p;
    return true;
}

static bool text(struct read *r, struct program **out)
{
    int64_t n;

    lex_line(&r->x);
    if (!lex_accept_word(&r->x, "programs"))
        return lex_expected(&r->x, "programs");
    if (!lex_int(&r->x, 1, FORM_MAX_DEV, &n) || !lex_need_end(&r->x))
        return false;
    r->n_dev = (int)n;
    while (lex_line(&r->x))
        if (!line(r) || !lex_need_end(&r->x))
            return false;
    return all_devices(r) && end_variant(r) && finish(r, out);
}

pl_status program_parse(struct program **out, int *n_dev, struct arena *a,
                        const char *s, size_t len, pl_err *err)
{
    struct read r = {
        .x = {.at = s, .end = s + len, .begin = s, .line = 1, .err = err},
        .a = a,
    };

    *out = NULL;
    *n_dev = 0;
    if (len > INT32_MAX / 2)
        return err_set(err, PL_BAD_ARGUMENT, "a text of programs of %zu bytes",
                       len);
    if (text(&r, out))
        *n_dev = r.n_dev;
    for (int i = 0; i < r.dev.n; i++) {
        free(dev_at(&r, i)->tensor.p);
        free(dev_at(&r, i)->buffer.p);
        free(dev_at(&r, i)->in_buffer.p);
        free(dev_at(&r, i)->hold.p);
        free(dev_at(&r, i)->insn.p);
        free(dev_at(&r, i)->dead.p);
    }
    free(r.dev.p);
    free(r.part.p);
    free(r.item.p);
    return r.x.status;
}
