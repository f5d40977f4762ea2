/* The text form of transfers; see transfers.h. */
#include "lower/transfers.h"

#include "base/err.h"
#include "base/text_out.h"
#include "program/program_form.h"
#include "program/program_lex.h"

#include <inttypes.h>
#include <string.h>

static const char *const kinds[TRANSFER_KIND_COUNT] = {
    "input", "table", "value", "ranks", "weight", "pages", "result"};
static const char *const exchanges[EXCHANGE_COUNT] = {"", "shared", "inbox",
                                                      "machine"};

/* ---- printing ------------------------------------------------------------ */

/* Prints a number after its word, unless it is 0. */
static void put_number(struct text_out *o, const char *word, int64_t n)
{
    if (n != 0)
        text_put(o, " %s %" PRId64, word, n);
}

static void put_transfer(struct text_out *o, const struct transfers *t,
                         const struct transfer *x)
{
    text_put(o, "  %s", kinds[x->kind]);
    if (x->value >= 0)
        text_put(o, " %d", x->value);
    if (x->as != x->value)
        text_put(o, " as %d", x->as);
    text_put(o, ": %d -> %d%s", x->from, x->to, x->late ? " late" : "");
    for (int m = 0; m < t->group[x->to].n; m++) {
        text_put(o, m % 8 == 7 ? ",\n     " : ",");
        text_put(o, " %s",
                 x->by[m] == TRANSPORT_NONE && x->source[m]
                     ? "from"
                     : transport_info[x->by[m]].name);
        for (int k = 0; k < t->group[x->from].n; k++)
            if (x->source[m] >> k & 1)
                text_put(o, " %d", k);
    }
    text_put(o, "\n");
}

static void put_device(struct text_out *o, int d,
                       const struct transfer_device *x)
{
    text_put(o, "device %d", d);
    put_number(o, "machine", x->machine);
    if (x->memory >= 0)
        text_put(o, " memory %d", x->memory);
    text_put(o, "%s%s", x->one_queue ? " one_queue" : "",
             x->reads ? " reads" : "");
    put_number(o, "link", x->link_bytes_per_s);
    put_number(o, "latency", x->link_latency_ns);
    put_number(o, "p2p", x->p2p_bytes_per_s);
    put_number(o, "network", x->network_bytes_per_s);
    put_number(o, "delay", x->network_latency_ns);
    text_put(o, "\n");
}

static void put_group(struct text_out *o, int g, const struct transfer_group *x)
{
    text_put(o, "group %d:", g);
    for (int k = 0; k < x->n; k++)
        text_put(o, "%s %d", k == 0 ? "" : k % 16 ? "," : ",\n ", x->dev[k]);
    put_number(o, "sum", x->sum_bytes);
    put_number(o, "per_machine", x->per_machine);
    if (x->exchange)
        text_put(o, " by %s", exchanges[x->exchange]);
    if (x->one_shot_rows)
        text_put(o, " %" PRId64, x->one_shot_rows);
    text_put(o, "\n");
}

pl_status transfers_print(const struct transfers *t, pl_write_fn *write,
                          void *user)
{
    struct text_out o = {.write = write, .user = user};

    text_put(&o, "transfers values %d", t->n_value);
    put_number(&o, "n_tok", t->n_tok);
    text_put(&o, "\n");
    for (int d = 0; d < t->n_dev; d++)
        put_device(&o, d, &t->dev[d]);
    for (int g = 0; g < t->n_group; g++)
        put_group(&o, g, &t->group[g]);
    for (int v = 0; v < t->n_variant; v++) {
        text_put(&o, "variant\n");
        for (int k = 0; k < t->variant[v].n; k++)
            put_transfer(&o, t, &t->variant[v].item[k]);
    }
    text_flush(&o);
    return PL_OK;
}

/* ---- parsing ------------------------------------------------------------- */

enum { MAX_GROUP = 1024, MAX_SHARD = 64, MAX_VALUE = 1 << 20 };
#define MAX_NUMBER ((int64_t)1 << 53)

struct read_transfers {
    struct lex x;
    struct arena *a;
    struct transfers *t;
};

static bool no_memory(struct read_transfers *r)
{
    if (r->x.status == PL_OK)
        r->x.status = err_no_memory(r->x.err, "the text of transfers");
    return false;
}

/* Reads a number after its word, or leaves *out 0. */
static bool read_number(struct read_transfers *r, const char *word,
                        int64_t *out)
{
    return !lex_accept_word(&r->x, word) || lex_int(&r->x, 0, MAX_NUMBER, out);
}

/* Reads the number that a line begins with, which counts such lines. */
static bool next_number(struct read_transfers *r, int n)
{
    int64_t v;

    return lex_int(&r->x, n, n, &v);
}

static bool read_device_line(struct read_transfers *r)
{
    struct transfers *t = r->t;
    struct transfer_device *d;

    if (!next_number(r, t->n_dev))
        return false;
    d = arena_extended(r->a, t->dev, (size_t)t->n_dev, sizeof *d);
    if (!d)
        return no_memory(r);
    t->dev = d;
    d += t->n_dev++;
    *d = (struct transfer_device){.memory = -1};
    if (t->n_dev > FORM_MAX_DEV)
        return lex_expected(&r->x, "no more than 1024 devices");
    if (lex_accept_word(&r->x, "machine") &&
        !lex_below(&r->x, INT32_MAX, &d->machine))
        return false;
    if (lex_accept_word(&r->x, "memory") &&
        !lex_below(&r->x, INT32_MAX, &d->memory))
        return false;
    d->one_queue = lex_accept_word(&r->x, "one_queue");
    d->reads = lex_accept_word(&r->x, "reads");
    return read_number(r, "link", &d->link_bytes_per_s) &&
           read_number(r, "latency", &d->link_latency_ns) &&
           read_number(r, "p2p", &d->p2p_bytes_per_s) &&
           read_number(r, "network", &d->network_bytes_per_s) &&
           read_number(r, "delay", &d->network_latency_ns) &&
           lex_need_end(&r->x);
}

static bool read_exchange(struct read_transfers *r, struct transfer_group *g)
{
    int by = EXCHANGE_SHARED;

    while (!lex_accept_word(&r->x, exchanges[by]))
        if (++by == EXCHANGE_COUNT)
            return lex_expected(&r->x, "shared, inbox or machine");
    g->exchange = (enum group_exchange)by;
    return by != EXCHANGE_MACHINE || g->per_machine > 0 ||
           lex_expected(&r->x, "per_machine before this exchange");
}

static bool read_group_line(struct read_transfers *r)
{
    struct transfers *t = r->t;
    int dev[MAX_SHARD], n = 0;
    struct transfer_group *g;

    if (t->n_group == MAX_GROUP)
        return lex_expected(&r->x, "no more than 1024 groups");
    if (!next_number(r, t->n_group) || !lex_need(&r->x, ':'))
        return false;
    if (lex_digit(&r->x))
        do {
            if (n == MAX_SHARD)
                return lex_expected(&r->x, "no more than 64 devices");
            if (!lex_below(&r->x, t->n_dev, &dev[n++]))
                return false;
        } while (lex_accept(&r->x, ','));
    g = arena_extended(r->a, t->group, (size_t)t->n_group, sizeof *g);
    if (!g)
        return no_memory(r);
    t->group = g;
    g += t->n_group++;
    *g = (struct transfer_group){.n = n};
    g->dev = arena_memdup(r->a, dev, (size_t)n, sizeof *dev);
    if (!g->dev)
        return no_memory(r);
    if (!read_number(r, "sum", &g->sum_bytes))
        return false;
    if (lex_accept_word(&r->x, "per_machine") &&
        (!lex_below(&r->x, n + 1, &g->per_machine) ||
         (g->per_machine > 0 && n % g->per_machine != 0)))
        return lex_expected(&r->x, "a divisor of the number of devices");
    if (lex_accept_word(&r->x, "by") && !read_exchange(r, g))
        return false;
    if (g->exchange >= EXCHANGE_INBOX && lex_digit(&r->x) &&
        !lex_int(&r->x, 1, MAX_NUMBER, &g->one_shot_rows))
        return false;
    return lex_need_end(&r->x);
}

static bool read_variant_line(struct read_transfers *r)
{
    struct transfers *t = r->t;
    struct variant_transfers *v;

    if (t->n_variant == PROG_MAX_VARIANT)
        return lex_expected(&r->x, "no further variant");
    v = arena_extended(r->a, t->variant, (size_t)t->n_variant, sizeof *v);
    if (!v)
        return no_memory(r);
    t->variant = v;
    v += t->n_variant++;
    *v = (struct variant_transfers){0};
    v->first = arena_alloc(r->a, (size_t)t->n_value + 1, sizeof *v->first);
    if (!v->first)
        return no_memory(r);
    for (int i = 0; i <= t->n_value; i++)
        v->first[i] = -1;
    return lex_need_end(&r->x);
}

/* Reads a receiver of transfer y: its transport and its sources. */
static bool read_receiver(struct read_transfers *r, struct transfer *y, int m)
{
    int by = 0, k;

    if (!lex_need(&r->x, ','))
        return false;
    if (!lex_accept_word(&r->x, "from"))
        while (!lex_accept_word(&r->x, transport_info[by].name))
            if (++by == TRANSPORT_COUNT)
                return lex_expected(&r->x, "a transport");
    y->by[m] = (enum transport)by;
    while (lex_digit(&r->x)) {
        if (!lex_below(&r->x, r->t->group[y->from].n, &k))
            return false;
        y->source[m] |= (uint64_t)1 << k;
    }
    return true;
}

static bool read_transfer_line(struct read_transfers *r,
                               enum transfer_kind kind)
{
    struct transfers *t = r->t;
    struct transfer x = {.kind = kind, .value = -1, .as = -1}, *y;

    if (t->n_variant == 0)
        return lex_expected(&r->x, "a variant before its transfers");
    if (kind != TRANSFER_TABLE && !lex_below(&r->x, t->n_value, &x.value))
        return false;
    x.as = x.value;
    if (lex_accept_word(&r->x, "as") && !lex_below(&r->x, t->n_value, &x.as))
        return false;
    if (!lex_need(&r->x, ':') || !lex_below(&r->x, t->n_group, &x.from) ||
        !lex_need(&r->x, '-') || !lex_need(&r->x, '>') ||
        !lex_below(&r->x, t->n_group, &x.to))
        return false;
    x.late = lex_accept_word(&r->x, "late");
    if (!transfers_add(t, t->n_variant - 1, r->a, &x, &y))
        return no_memory(r);
    if (!y)
        return lex_fail(&r->x, PL_BAD_ARGUMENT,
                        "a second transfer of value %d to group %d", x.value,
                        x.to);
    for (int m = 0; m < t->group[x.to].n; m++)
        if (!read_receiver(r, y, m))
            return false;
    return lex_need_end(&r->x);
}

static bool read_line(struct read_transfers *r)
{
    struct transfers *t = r->t;

    if (lex_accept_word(&r->x, "variant"))
        return read_variant_line(r);
    if (t->n_group == 0 && lex_accept_word(&r->x, "device"))
        return read_device_line(r);
    if (t->n_variant == 0 && lex_accept_word(&r->x, "group"))
        return read_group_line(r);
    for (int k = 0; k < TRANSFER_KIND_COUNT; k++)
        if (lex_accept_word(&r->x, kinds[k]))
            return read_transfer_line(r, (enum transfer_kind)k);
    return lex_expected(&r->x, "a device, group, variant or transfer");
}

static bool read_header(struct read_transfers *r)
{
    return lex_line(&r->x) &&
           (lex_accept_word(&r->x, "transfers") ||
            lex_expected(&r->x, "transfers")) &&
           (lex_accept_word(&r->x, "values") ||
            lex_expected(&r->x, "values")) &&
           lex_below(&r->x, MAX_VALUE, &r->t->n_value) &&
           read_number(r, "n_tok", &r->t->n_tok) && lex_need_end(&r->x);
}

pl_status transfers_parse(struct transfers **out, struct arena *a,
                          const char *text, size_t len, pl_err *err)
{
    struct read_transfers r = {.x = {.at = text,
                                     .begin = text,
                                     .end = text + len,
                                     .line = 1,
                                     .err = err},
                               .a = a,
                               .t = arena_alloc(a, 1, sizeof *r.t)};

    *out = NULL;
    if (!r.t)
        return err_no_memory(err, "the text of transfers");
    if (read_header(&r))
        while (lex_line(&r.x) && read_line(&r)) {
        }
    else
        lex_expected(&r.x, "transfers values N");
    if (r.x.status == PL_OK)
        *out = r.t;
    return r.x.status;
}
