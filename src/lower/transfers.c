/* Pass "transfer"; see transfers.h.
 *
 * A receiver that can read the memory of all its sources pulls; to others the
 * sources push. Only pushes write into an inbox, so if one source pushes its
 * part, all do. If a source is on another machine, they send: bytes leave the
 * machine at the next POST, so each value has its own POST at once.
 *
 * A device without a copy queue copies in the order of its other instructions.
 * If a receiver is such a device, and none is pushed to, a copy that begins
 * before it is needed hides nothing, so the transfer is late. A weight is then
 * late even if it is pushed.
 *
 * By inboxes, a sum of few rows takes one shot, and one of many rows takes two.
 * A group on several machines of several devices takes three instead: within
 * the machines, between them, and within them again. All groups of a kind have
 * the same limit, so that a variant has few predicates. */
#include "lower/transfers.h"

#include "base/err.h"

const struct transport_info transport_info[TRANSPORT_COUNT] = {
    [TRANSPORT_NONE] = {.name = "none"},
    [TRANSPORT_PULL] =
        {.name = "pull",
         .posts = true,
         .post =
             {[QUEUE_COMPUTE] = POST_BATCHED, [QUEUE_COPY] = POST_DEFERRED}},
    [TRANSPORT_PUSH] =
        {.name = "push",
         .pushes = true,
         .posts = true,
         .post = {[QUEUE_COMPUTE] = POST_NOW, [QUEUE_COPY] = POST_DEFERRED}},
    [TRANSPORT_SEND] =
        {.name = "send",
         .pushes = true,
         .posts = true,
         .post = {[QUEUE_COMPUTE] = POST_NOW, [QUEUE_COPY] = POST_NOW}},
    /* an input: the device has no work without it */
    [TRANSPORT_FETCH] = {.name = "fetch", .in_order = true},
    [TRANSPORT_FEED] = {.name = "feed",
                        .pushes = true,
                        .in_order = true,
                        .posts = true,
                        .post = {[QUEUE_COMPUTE] = POST_NOW},
                        .waits_at_once = true},
    /* a result: only the end of the step waits for it */
    [TRANSPORT_RETURN] = {.name = "return", .pushes = true, .in_order = true},
};

/* ---- the list ------------------------------------------------------------ */

static int *first_of(const struct transfers *t, int variant, int value)
{
    return &t->variant[variant].first[value < 0 ? t->n_value : value];
}

const struct transfer *transfers_find(const struct transfers *t, int variant,
                                      int value, int as, int to)
{
    const struct transfer *item = t->variant[variant].item;
    int k = *first_of(t, variant, value);

    while (k >= 0 && (item[k].as != as || item[k].to != to))
        k = item[k].next;
    return k < 0 ? NULL : &item[k];
}

bool transfers_add(struct transfers *t, int variant, struct arena *a,
                   const struct transfer *x, struct transfer **out)
{
    struct variant_transfers *v = &t->variant[variant];
    size_t n = (size_t)t->group[x->to].n;
    int *end = first_of(t, variant, x->value);
    struct transfer *y;

    *out = NULL;
    if (transfers_find(t, variant, x->value, x->as, x->to))
        return true;
    y = arena_extended(a, v->item, (size_t)v->n, sizeof *y);
    if (!y)
        return false;
    v->item = y;
    while (*end >= 0)
        end = &v->item[*end].next;
    *end = v->n;
    *out = y = &v->item[v->n++];
    *y = *x;
    y->next = -1;
    y->source = arena_alloc(a, n, sizeof *y->source);
    y->by = arena_alloc(a, n, sizeof *y->by);
    return y->source && y->by;
}

/* ---- the choice ---------------------------------------------------------- */

/* Returns true if device d's copies can read the memory of device `from`. */
static bool can_read(const struct transfers *t, int d, int from)
{
    const struct transfer_device *x = &t->dev[d], *y = &t->dev[from];

    return d == from || (x->machine == y->machine && y->memory >= 0 &&
                         (x->memory == y->memory || x->reads));
}

/* Returns true if receiver m can read all of its sources. */
static bool reads_sources(const struct transfers *t, const struct transfer *x,
                          int m)
{
    const struct transfer_group *from = &t->group[x->from];

    for (int k = 0; k < from->n; k++)
        if ((x->source[m] >> k & 1) &&
            !can_read(t, t->group[x->to].dev[m], from->dev[k]))
            return false;
    return true;
}

/* Returns true if a source of receiver m is on another machine. */
static bool crosses_network(const struct transfers *t, const struct transfer *x,
                            int m)
{
    const struct transfer_group *from = &t->group[x->from];
    int machine = t->dev[t->group[x->to].dev[m]].machine;

    for (int k = 0; k < from->n; k++)
        if ((x->source[m] >> k & 1) && t->dev[from->dev[k]].machine != machine)
            return true;
    return false;
}

static enum transport choose(const struct transfers *t,
                             const struct transfer *x, int m)
{
    bool reads = reads_sources(t, x, m);

    if (x->source[m] == 0)
        return TRANSPORT_NONE;
    switch (x->kind) {
    case TRANSFER_RESULT:
        return TRANSPORT_RETURN;
    case TRANSFER_INPUT:
    case TRANSFER_TABLE:
        return reads ? TRANSPORT_FETCH : TRANSPORT_FEED;
    default:
        return crosses_network(t, x, m) ? TRANSPORT_SEND
               : reads                  ? TRANSPORT_PULL
                                        : TRANSPORT_PUSH;
    }
}

/* Returns true if any device of the group has no copy queue. */
static bool has_one_queue(const struct transfers *t, int group)
{
    for (int k = 0; k < t->group[group].n; k++)
        if (t->dev[t->group[group].dev[k]].one_queue)
            return true;
    return false;
}

static bool is_late(const struct transfers *t, const struct transfer *x)
{
    if (x->kind == TRANSFER_INPUT || x->kind == TRANSFER_TABLE ||
        x->kind == TRANSFER_RANKS)
        return true;
    if (x->kind == TRANSFER_RESULT || !has_one_queue(t, x->to))
        return false;
    if (x->kind == TRANSFER_WEIGHT)
        return true;
    for (int m = 0; m < t->group[x->to].n; m++)
        if (transport_info[x->by[m]].pushes)
            return false;
    return true;
}

/* Adds the token table to the group whose copy queues read it for the pages of
 * transfer k. */
static bool add_table(struct transfers *t, int variant, struct arena *a, int k)
{
    const struct transfer *x = &t->variant[variant].item[k];
    struct transfer *y;

    for (int m = 0; m < t->group[x->to].n; m++) {
        const struct transfer table = {
            .kind = TRANSFER_TABLE,
            .value = -1,
            .as = -1,
            .from = t->n_group - 1,
            .to = transport_info[x->by[m]].pushes ? x->from : x->to};

        if (x->by[m] == TRANSPORT_NONE)
            continue;
        if (!transfers_add(t, variant, a, &table, &y))
            return false;
        for (int i = 0; y && i < t->group[y->to].n; i++)
            y->source[i] = 1;
        x = &t->variant[variant].item[k]; /* the list may have moved */
    }
    return true;
}

/* With P devices on each of M machines, a machine sends P^2 (M - 1) rows of a
 * sum in one shot, 2 P (1 - 1 / M) in two, and M - 1 if its devices sum
 * first. */
static bool sums_within_machines(const struct transfer_group *g)
{
    return g->per_machine > 1 && g->n <= 2 * g->per_machine * g->per_machine &&
           g->sum_bytes > 0;
}

static enum group_exchange choose_exchange(const struct transfers *t,
                                           const struct transfer_group *g)
{
    if (g->n < 2)
        return EXCHANGE_NONE;
    if (sums_within_machines(g))
        return EXCHANGE_MACHINE;
    for (int k = 0; k < g->n; k++) {
        const struct transfer_device *x = &t->dev[g->dev[0]];
        const struct transfer_device *y = &t->dev[g->dev[k]];

        if (y->machine != x->machine || y->memory != x->memory || y->memory < 0)
            return EXCHANGE_INBOX;
    }
    return EXCHANGE_SHARED;
}

static int64_t lesser(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t greater(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* The slowest of a group's rates. Unknown ones count as 16 GB/s and 10 us, or
 * 0.117 GB/s and 50 us for a network. */
struct rates {
    bool far; /* the group is on several machines */
    double link_bytes_per_s, link_s, network_bytes_per_s, network_s;
};

static struct rates rates_of(const struct transfers *t,
                             const struct transfer_group *g)
{
    int64_t link = INT64_MAX, p2p = INT64_MAX, latency = 0;
    int64_t network = INT64_MAX, delay = 0;
    struct rates r = {.far = false};

    for (int k = 0; k < g->n; k++) {
        const struct transfer_device *d = &t->dev[g->dev[k]];

        r.far |= d->machine != t->dev[g->dev[0]].machine;
        link = lesser(link, d->link_bytes_per_s);
        p2p = lesser(p2p, d->p2p_bytes_per_s);
        latency = greater(latency, d->link_latency_ns);
        if (d->network_bytes_per_s > 0)
            network = lesser(network, d->network_bytes_per_s);
        delay = greater(delay, d->network_latency_ns);
    }
    r.link_bytes_per_s = (double)greater(link > 0 ? link : 16000000000, p2p);
    r.link_s = (double)(latency > 0 ? latency : 10000) / 1e9;
    r.network_bytes_per_s = (double)(network < INT64_MAX ? network : 117000000);
    r.network_s = (double)(delay > 0 ? delay : 50000) / 1e9;
    return r;
}

/* Returns the number of rows up to which the group's sums take one shot: until
 * the bytes that further shots would save take longer than these need to begin.
 * Two shots need another latency of the link or network. Sums within machines
 * need two of the link. No more is staged than a quarter of the largest value,
 * and two shots are for two rows or more. */
static int64_t one_shot_rows(const struct transfers *t,
                             const struct transfer_group *g)
{
    bool within = g->exchange == EXCHANGE_MACHINE;
    struct rates r = rates_of(t, g);
    int64_t others = g->n - 1, most = t->n_tok / (4 * others);
    double bytes_per_s = r.far ? r.network_bytes_per_s : r.link_bytes_per_s;
    double s = within ? 2 * r.link_s : r.far ? r.network_s : r.link_s;
    double row = (double)g->sum_bytes, each = g->per_machine, rows;

    row *= within ? (each * each - 1) * ((double)g->n / each - 1)
                  : (double)others * (1 - 2.0 / g->n);
    rows = bytes_per_s * s / row;
    if (rows < (double)most)
        most = (int64_t)rows;
    return most > 1 || within ? most : 1;
}

/* Chooses for each group how its collectives exchange. The first group whose
 * sums take one shot or more sets the limit of one shot for all of its kind. */
static void choose_exchanges(struct transfers *t)
{
    int64_t rows[EXCHANGE_COUNT];

    for (int i = 0; i < EXCHANGE_COUNT; i++)
        rows[i] = -1;
    for (int k = 0; k < t->n_group; k++) {
        struct transfer_group *g = &t->group[k];

        g->exchange = choose_exchange(t, g);
        g->one_shot_rows = 0;
        if (g->exchange < EXCHANGE_INBOX || g->n < 3 || g->sum_bytes == 0)
            continue;
        if (rows[g->exchange] < 0)
            rows[g->exchange] = one_shot_rows(t, g);
        g->one_shot_rows = rows[g->exchange];
    }
}

pl_status transfers_choose(struct transfers *t, struct arena *a, pl_err *err)
{
    choose_exchanges(t);
    for (int v = 0; v < t->n_variant; v++)
        for (int k = 0; k < t->variant[v].n; k++) {
            struct transfer *x = &t->variant[v].item[k];

            for (int m = 0; m < t->group[x->to].n; m++)
                x->by[m] = choose(t, x, m);
            x->late = is_late(t, x);
            if (x->kind == TRANSFER_PAGES && !add_table(t, v, a, k))
                return err_no_memory(err, "a program");
        }
    return PL_OK;
}
