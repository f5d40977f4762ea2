/* Rates of devices, and costs of single instructions by the roofline model
 * (Williams, Waterman, Patterson, CACM 2009). A contraction costs the time to
 * read the weights or the time to multiply, whichever is longer. Attention
 * costs the time to read the cache or the time to multiply. cost_run.c combines
 * the costs of a step's instructions.
 *
 * Experts are assumed to be chosen with equal probability. Then n tokens that
 * choose k of E experts each use E (1 - (1 - k/E)^n) distinct experts. Real
 * routers prefer some experts, so this is an upper bound. */
#include "cost/cost.h"

#include "program/cache_tile.h"
#include "quant/format.h"

#include <math.h>

/* Defaults for figures that the description of a device lacks. MACS_PER_BYTE is
 * the number of multiply-adds of an accelerator per byte of memory
 * bandwidth. */
enum { MACS_PER_BYTE = 50 };
/* default rate of a link, as of PCIe 3.0 x16 or 4.0 x8 */
static const double link_bytes_per_s = 16e9;
static const double latency_s = 10e-6; /* default fixed time of a copy in
                                          seconds */
/* default rate of a network of 1 Gb/s, and default fixed time of a copy over it
 * in seconds */
static const double network_bytes_per_s = 0.117e9, network_s = 50e-6;
static const double launch_s = 2e-6; /* default fixed time of a kernel launch
                                          in seconds */
/* The fractions of a device's peak bandwidth and peak multiply-adds that
 * kernels reach. */
static const double of_bandwidth = 0.8, of_peak = 0.4;

static void set_work(struct cost_rates *out, double bytes_per_s,
                     double block_macs_per_s, double float_macs_per_s)
{
    out->read_bytes_per_s = out->cached_bytes_per_s = bytes_per_s;
    out->block_macs_per_s = block_macs_per_s;
    out->float_macs_per_s = float_macs_per_s;
    out->attention_macs_per_s = float_macs_per_s;
}

bool cost_has_spec_rates(const struct device_desc *d)
{
    return d->described || (!d->on_cores && d->mem_bytes_per_s > 0);
}

double cost_guessed_macs(const struct device_desc *d)
{
    return d->mem_bytes_per_s * MACS_PER_BYTE;
}

unsigned cost_rates_from_spec(struct cost_rates *out,
                              const struct device_desc *d)
{
    double macs = d->float_macs_per_s, block = d->block_macs_per_s;
    unsigned guessed = 0;

    *out = (struct cost_rates){
        .link_bytes_per_s = d->link_bytes_per_s,
        .collective_s = d->link_latency_s,
        .p2p_bytes_per_s = d->p2p_bytes_per_s,
        .bridge_bytes_per_s = d->bridge_bytes_per_s,
        .link_domain = d->link_domain,
        .machine = d->machine,
        .network_bytes_per_s = d->network_bytes_per_s,
        .network_s = d->network_latency_s,
        .has_copy_engine = d->accelerator,
        .insn_s = d->launch_s > 0 ? d->launch_s : launch_s,
    };
    if (!(macs > 0)) {
        guessed |= COST_GUESSED_FLOPS;
        macs = cost_guessed_macs(d);
    }
    if (!(d->link_bytes_per_s > 0)) {
        guessed |= COST_GUESSED_LINK;
        out->link_bytes_per_s = link_bytes_per_s;
    }
    if (!(d->link_latency_s > 0)) {
        guessed |= COST_GUESSED_LATENCY;
        out->collective_s = latency_s;
    }
    if (d->machine > 0 &&
        !(d->network_bytes_per_s > 0 && d->network_latency_s > 0))
        guessed |= COST_GUESSED_NETWORK;
    set_work(out, d->mem_bytes_per_s * of_bandwidth,
             (block > 0 ? block : macs) * of_peak, macs * of_peak);
    return guessed;
}

void cost_default_rates(struct cost_rates *out, const struct device_desc *d,
                        enum kernel_set set)
{
    /* bytes per second, and multiply-adds per second, of one thread of a server
     * built in 2023 */
    static const double rate[KERNEL_SET_COUNT][2] = {
        [KERNEL_SET_REFERENCE] = {0.5e9, 0.5e9},
        [KERNEL_SET_GENERIC] = {1e9, 1e9},
        [KERNEL_SET_AVX2] = {8e9, 30e9},
        [KERNEL_SET_AVX_VNNI] = {8e9, 50e9},
        [KERNEL_SET_AVX512] = {8e9, 30e9},
        [KERNEL_SET_AVX512_VNNI] = {8e9, 60e9},
        [KERNEL_SET_AVX512_BF16] = {8e9, 60e9},
        [KERNEL_SET_AMX] = {8e9, 90e9},
        /* not measured: estimated from the vector width of NEON */
        [KERNEL_SET_NEON] = {6e9, 10e9},
        [KERNEL_SET_DOTPROD] = {8e9, 20e9},
        [KERNEL_SET_I8MM] = {8e9, 40e9},
    };
    static const double memcpy_bytes_per_s = 5e9;

    *out = (struct cost_rates){.one_queue = d->one_queue};
    set_work(out, rate[set][0] * d->n_thread, rate[set][1] * d->n_thread,
             rate[set][1] * d->n_thread / 2);
    out->insn_s = 1e-6;
    out->collective_s = d->link_latency_s > 0 ? d->link_latency_s : 2e-6;
    out->link_bytes_per_s =
        d->link_bytes_per_s > 0 ? d->link_bytes_per_s : memcpy_bytes_per_s;
}

double cost_distinct_experts(int64_t n_expert, int64_t n_used, int64_t n_tok)
{
    double miss = 1 - (double)n_used / (double)n_expert;

    return (double)n_expert * (1 - pow(miss, (double)n_tok));
}

/* Returns the number of elements of a tensor for the sizes of micro-batch z. */
static double values(const struct prog_tensor *t, const struct cost_micro *z)
{
    double n = 1;

    for (int i = 0; i < t->n_dim; i++)
        n *= (double)dim_value(t->dim[i], &z->sizes);
    return n;
}

/* Returns the number of elements of a row of weight w that an instruction
 * multiplies on this device: those of the ranks in its rank tree t. */
static double summed(const struct pack *w, const struct rank_tree *t)
{
    double n = 0;

    for (int c = 0; c < w->n_chunk; c++)
        for (int i = 0; i < t->n; i++)
            if (t->item[i].rank == w->chunk[c].rank) {
                n += w->chunk[c].n;
                break;
            }
    return n;
}

static double contraction(const struct program *p, const struct insn_kernel *s,
                          const struct cost_rates *r,
                          const struct cost_micro *z)
{
    const struct prog_tensor *x = &p->tensor[s->arg[1].tensor];
    const struct prog_tensor *w = &p->tensor[s->arg[2].tensor];
    double rows, matrices = 1, k, bytes, macs;

    if (!w->pack || w->pack->k == 0)
        return 0;
    k = summed(w->pack, &s->tree);
    rows = values(x, z) / (double)dim_value(x->dim[x->n_dim - 1], &z->sizes);
    if (s->kernel == KERNEL_head_matmul) {
        /* operand shapes: x [t, h, k], w [h, n, k] for t tokens, h heads */
        matrices = (double)w->dim[0].n;
    } else if (s->kernel != KERNEL_matmul) {
        /* operand shapes: x [t, 1 or u, k], w [e, n, k], ids [t, u] for t
         * tokens, e experts, of which each token uses u */
        const struct prog_tensor *ids = &p->tensor[s->arg[3].tensor];

        rows = values(ids, z);
        matrices = cost_distinct_experts(w->dim[0].n, ids->dim[1].n,
                                         dim_value(ids->dim[0], &z->sizes));
    }
    if (rows == 0)
        return 0;
    bytes = matrices * (double)w->pack->matrix_bytes * k / (double)w->pack->k;
    macs = rows * (double)w->pack->n_row * k;
    return fmax(bytes / r->read_bytes_per_s,
                macs / (format_info(w->format)->block == 1
                            ? r->float_macs_per_s
                            : r->block_macs_per_s));
}

static double n_seq(const struct cost_micro *z)
{
    return z->sizes.n_seq > 0 ? (double)z->sizes.n_seq : 1;
}

/* Returns the bytes of one position of the cache that is operand `arg` of the
 * kernel, over all heads. */
static double position_bytes(const struct program *p,
                             const struct insn_kernel *s, int arg)
{
    const struct prog_tensor *c = &p->tensor[s->arg[arg].tensor];

    return (double)c->dim[1].n *
           (double)cache_tile_bytes(c->format, c->dim[2].n) / PAGE_TOKENS;
}

/* Returns the average number of a token's own and earlier positions. */
static double positions(const struct cost_micro *z)
{
    return (double)z->n_past + ((double)z->sizes.n_tok / n_seq(z) + 1) / 2;
}

/* Returns the number of positions that are chosen for a token; infinite if it
 * attends to all. */
static double most_chosen(const struct program *p, const struct insn_kernel *s)
{
    if (s->kernel == KERNEL_latent_attention && s->arg[3].tensor >= 0)
        return (double)p->tensor[s->arg[3].tensor].dim[1].n;
    if (s->kernel == KERNEL_attention_blocks)
        return (double)p->tensor[s->arg[4].tensor].dim[2].n * s->attr->block;
    return INFINITY;
}

static double attention(const struct program *p, const struct insn_kernel *s,
                        const struct cost_rates *r, const struct cost_micro *z)
{
    const struct prog_tensor *q = &p->tensor[s->arg[1].tensor];
    const struct prog_tensor *out = &p->tensor[s->arg[0].tensor];
    /* average number of positions that a token attends to, and number of
     * positions that are read for all tokens */
    double seen = positions(z), read;
    double macs, bytes, chosen;

    if (s->kernel == KERNEL_bidirectional_attention)
        seen = (double)z->n_past + (double)z->sizes.n_tok / n_seq(z);
    if (s->attr && s->attr->window > 0)
        seen = fmin(seen, (double)s->attr->window);
    read = seen * n_seq(z);
    chosen = most_chosen(p, s);
    if (seen > chosen) {
        seen = chosen;
        read = fmin(read, seen * (double)z->sizes.n_tok);
    }
    if (s->kernel == KERNEL_compressed_attention) {
        double blocks = positions(z) / s->attr->ratio;

        if (s->arg[5].tensor >= 0)
            blocks = fmin(blocks, (double)p->tensor[s->arg[5].tensor].dim[1].n);
        seen += blocks;
        read = fmin(positions(z) * n_seq(z), seen * (double)z->sizes.n_tok);
    }
    macs = seen * (values(q, z) + values(out, z));
    bytes = position_bytes(p, s, 2);
    if (s->kernel != KERNEL_latent_attention &&
        s->kernel != KERNEL_compressed_attention)
        bytes += position_bytes(p, s, 3);
    bytes *= read;
    return fmax(bytes / r->read_bytes_per_s, macs / r->attention_macs_per_s);
}

/* Returns the seconds of index_topk or index_blocks, which score all positions
 * or compressed keys of a token unless they choose them all. The keys are
 * argument `keys`. */
static double choice(const struct program *p, const struct insn_kernel *s,
                     int keys, const struct cost_rates *r,
                     const struct cost_micro *z)
{
    const double each = s->attr->block > 0 ? s->attr->block : 1;
    double seen = positions(z) / (s->attr->ratio > 1 ? s->attr->ratio : 1);

    if (seen <= s->attr->n_used * each)
        return 0;
    return fmax(position_bytes(p, s, keys) * seen * n_seq(z) /
                    r->read_bytes_per_s,
                seen * values(&p->tensor[s->arg[1].tensor], z) /
                    r->attention_macs_per_s);
}

/* Returns the seconds of a recurrent op, which reads and writes the state of
 * each sequence. For each token, each element of the state takes `macs`
 * multiply-adds: decay, query, update, and in a delta net the key. */
static double recurrent(const struct prog_tensor *state, int macs,
                        const struct cost_rates *r, const struct cost_micro *z)
{
    double n = (double)state->dim[1].n * (double)state->dim[2].n;

    return fmax(n_seq(z) * n * 2 * sizeof(float) / r->read_bytes_per_s,
                (double)z->sizes.n_tok * n * macs / r->attention_macs_per_s);
}

/* Returns the seconds to read n floats and write as many, as most ops do. */
static double seconds_of_values(const struct cost_rates *r, double n)
{
    return n * 2 * sizeof(float) / r->cached_bytes_per_s;
}

static double kernel(const struct program *p, const struct insn_kernel *k,
                     const struct cost_rates *r, const struct cost_micro *z)
{
    if (kernel_is_contraction(k->kernel))
        return contraction(p, k, r, z);
    if (kernel_is_attention(k->kernel))
        return attention(p, k, r, z);
    if (k->kernel == KERNEL_index_topk)
        return choice(p, k, 3, r, z);
    if (k->kernel == KERNEL_index_blocks)
        return choice(p, k, 2, r, z);
    if (k->kernel == KERNEL_block_mean)
        return fmax(
            (double)p->tensor[k->arg[1].tensor].dim[2].n *
                (double)z->sizes.n_tok * sizeof(float) / r->read_bytes_per_s,
            seconds_of_values(r, values(&p->tensor[k->arg[0].tensor], z)));
    if (k->kernel == KERNEL_delta_net || k->kernel == KERNEL_delta_net_channels)
        return recurrent(&p->tensor[k->arg[6].tensor], 4, r, z);
    if (k->kernel == KERNEL_ssm_scan)
        return recurrent(&p->tensor[k->arg[5].tensor], 3, r, z);
    /* an op that updates a tensor writes only as many elements as its operand 1
     * has */
    return seconds_of_values(
        r, values(&p->tensor[k->arg[k->arg[0].access == ACCESS_UPDATE].tensor],
                  z));
}

static double piece_bytes(const struct copy_desc *p, const struct cost_micro *z)
{
    return (double)dim_value(p->bytes, &z->sizes) *
           (double)dim_value(p->n0, &z->sizes) *
           (double)dim_value(p->n1, &z->sizes);
}

/* Returns the number of bytes that the merge reads directly from the memory of
 * peers. */
static double received(const struct program *p, const struct insn_merge *s,
                       const struct cost_micro *z)
{
    double sum = 0;

    for (int m = 0; m < s->n_item; m++) {
        const struct merge_item *it = &s->item[m];
        double all = 0;
        int n_peer = 0;

        for (int i = 0; i < it->n_piece; i++)
            if (it->reduce || it->piece[i].src_dev != p->dev)
                all += piece_bytes(&it->piece[i], z);
        for (int i = 0; it->reduce && i < it->n_addend; i++)
            n_peer += it->addend[i].dev != p->dev;
        sum += it->reduce ? n_peer * all : all;
    }
    return sum;
}

/* Returns the number of elements that merge `s` writes for its item `it`. If
 * the item only reduces data of this device, each addition writes its elements
 * and counts. */
static double merged(const struct program *p, const struct insn_merge *s,
                     const struct merge_item *it, const struct cost_micro *z)
{
    double bytes = 0;

    if (s->barrier || !it->reduce)
        return values(&p->tensor[it->out], z);
    for (int i = 0; i < it->n_piece; i++)
        bytes += piece_bytes(&it->piece[i], z);
    return bytes / sizeof(float) * (it->n_addend > 1 ? it->n_addend - 1 : 1);
}

/* Returns the seconds of a MERGE instruction. With a barrier it also reads the
 * memory of its peers. Without one, PULL and PUSH instructions have already
 * copied the peers' data to this device. */
static double merge(const struct cost_machine *m, int dev,
                    const struct insn_merge *s, const struct cost_micro *z)
{
    const struct program *p = &m->prog[dev];
    const struct cost_rates *r = &m->rates[dev];
    int n_peer = s->barrier && s->n_peer > 0 ? s->n_peer : m->n_dev;
    double t = r->insn_s;

    if (s->collective && n_peer == 1)
        return t;
    for (int i = 0; i < s->n_item; i++)
        t += seconds_of_values(r, merged(p, s, &s->item[i], z));
    if (s->collective && s->barrier)
        t += r->collective_s + received(p, s, z) / r->link_bytes_per_s;
    return t;
}

/* Returns the bandwidth from the device to the host in bytes per second. */
static double out_of(const struct cost_rates *r)
{
    return r->out_bytes_per_s > 0 ? r->out_bytes_per_s : r->link_bytes_per_s;
}

/* The path of a transfer, as seen by the sender. Transfers over one path take
 * place one after another; transfers over different paths take place at the
 * same time. */
enum way {
    WAY_FREE,   /* the sender's link carries nothing: the receiver's copy engine
                   reads host memory */
    WAY_LINK,   /* over the sender's link to the host */
    WAY_P2P,    /* directly to the receiver, not through the host */
    WAY_BRIDGE, /* over the fast links of the sender's link domain, such as
                   NVLink */
    WAY_NETWORK, /* to another machine */
    WAYS
};

/* Latency, bandwidth and path of a transfer between two devices. Usually the
 * slower of both devices limits the transfer. If only one of them has a copy
 * engine, the other's memory is host memory, and the device with the copy
 * engine alone limits the transfer. A transfer that does not pass through the
 * host has the devices' peer-to-peer rates. */
struct route {
    double latency_s, bytes_per_s;
    enum way way;
};

/* Returns a route that does not pass through the host. The devices' bandwidths
 * are a and b, of which the smaller counts. Their latencies are a_s and b_s.
 * The greater counts if both are known, else host_s, the latency through the
 * host. */
static struct route p2p_route(enum way way, double host_s, double a_s,
                              double b_s, double a, double b)
{
    return (struct route){a_s > 0 && b_s > 0 ? fmax(a_s, b_s) : host_s,
                          fmin(a, b), way};
}

/* Returns the known network between the machines of two devices; NULL if there
 * is none. */
static const struct machine_link *link_between(const struct cost_rates *a,
                                               const struct cost_rates *b)
{
    const struct machine_link *x = NULL;

    if (a->link && b->machine < a->n_link)
        x = &a->link[b->machine];
    return x && x->bytes_per_s > 0 ? x : NULL;
}

/* The network between both machines decides, if it is known, else the end whose
 * rates are known. If both are, the slower one does. */
static struct route network_route(const struct cost_rates *a,
                                  const struct cost_rates *b)
{
    const struct machine_link *x = link_between(a, b);
    const double most_s = fmax(a->network_s, b->network_s);
    double rate = fmax(a->network_bytes_per_s, b->network_bytes_per_s);

    if (x)
        return (struct route){x->latency_s, x->bytes_per_s, WAY_NETWORK};
    if (a->network_bytes_per_s > 0 && b->network_bytes_per_s > 0)
        rate = fmin(a->network_bytes_per_s, b->network_bytes_per_s);
    return (struct route){most_s > 0 ? most_s : network_s,
                          rate > 0 ? rate : network_bytes_per_s, WAY_NETWORK};
}

static struct route route(const struct cost_rates *a,
                          const struct cost_rates *b)
{
    const double host_s = fmax(a->collective_s, b->collective_s);

    if (a->machine != b->machine)
        return network_route(a, b);
    if (a->has_copy_engine && !b->has_copy_engine)
        return (struct route){a->collective_s, out_of(a), WAY_LINK};
    if (b->has_copy_engine && !a->has_copy_engine)
        return (struct route){b->collective_s, b->link_bytes_per_s, WAY_FREE};
    if (a->link_domain > 0 && a->link_domain == b->link_domain)
        return p2p_route(WAY_BRIDGE, host_s, a->bridge_s, b->bridge_s,
                         a->bridge_bytes_per_s, b->bridge_bytes_per_s);
    if (a->p2p_bytes_per_s > 0 && b->p2p_bytes_per_s > 0)
        return p2p_route(WAY_P2P, host_s, a->p2p_s, b->p2p_s,
                         a->p2p_bytes_per_s, b->p2p_bytes_per_s);
    return (struct route){host_s, fmin(out_of(a), b->link_bytes_per_s),
                          WAY_LINK};
}

struct cost_link cost_link_of(const struct cost_rates *from,
                              const struct cost_rates *to)
{
    const struct machine_link *x = link_between(from, to);
    struct route w = route(from, to);
    bool stated =
        (from->network_bytes_per_s > 0 || to->network_bytes_per_s > 0) &&
        (from->network_s > 0 || to->network_s > 0);

    return (struct cost_link){w.latency_s, w.bytes_per_s,
                              x        ? x->source
                              : stated ? LINK_STATED
                                       : LINK_ASSUMED};
}

/* Limits *w, the route of a transfer from several sources, by the route from
 * another source. The slowest source determines the transfer. */
static void limit_by_peer(struct route *w, const struct cost_rates *from,
                          const struct cost_rates *to)
{
    struct route r = route(from, to);

    w->latency_s = fmax(w->latency_s, r.latency_s);
    w->bytes_per_s = fmin(w->bytes_per_s, r.bytes_per_s);
}

static double pull(const struct cost_machine *m, int dev,
                   const struct insn_pull *s, const struct cost_micro *z)
{
    struct route w = {0, INFINITY, WAY_FREE};
    double bytes = 0;

    for (int i = 0; i < s->n_piece; i++) {
        bytes += piece_bytes(&s->piece[i], z);
        if (i == 0 || s->piece[i].src_dev != s->piece[i - 1].src_dev)
            limit_by_peer(&w, &m->rates[s->piece[i].src_dev], &m->rates[dev]);
    }
    return w.latency_s + bytes / w.bytes_per_s;
}

static double push_bytes(const struct insn_push *s, int to,
                         const struct cost_micro *z)
{
    double bytes = 0;
    int n;
    const struct copy_desc *p = push_pieces(s, to, &n);

    for (int i = 0; i < n; i++)
        bytes += piece_bytes(&p[i], z);
    return bytes;
}

/* Returns the seconds of a PUSH. The slowest receiver or the sender's busiest
 * path determines them: a path carries the bytes for all of its receivers one
 * after another, while receivers and paths work at the same time. */
static double push(const struct cost_machine *m, int dev,
                   const struct insn_push *s, const struct cost_micro *z)
{
    const struct cost_rates *from = &m->rates[dev];
    double port[WAYS] = {INFINITY, out_of(from), from->p2p_bytes_per_s,
                         from->bridge_bytes_per_s, from->network_bytes_per_s};
    double sum[WAYS] = {0}, slowest = 0;

    for (int k = 0; k < s->n_to; k++) {
        struct route w = route(from, &m->rates[s->to[k].dev]);
        double bytes = push_bytes(s, k, z);

        slowest = fmax(slowest, bytes / w.bytes_per_s);
        sum[w.way] += bytes;
        if (w.way == WAY_NETWORK && !(from->network_bytes_per_s > 0))
            port[w.way] = fmax(port[w.way], w.bytes_per_s);
    }
    for (int k = 0; k < WAYS; k++)
        if (sum[k] > 0)
            slowest = fmax(slowest, sum[k] / port[k]);
    return slowest;
}

double cost_network_s(const struct cost_machine *m, int dev,
                      const struct insn *s, const struct cost_micro *z)
{
    double seconds = 0;

    for (int k = 0; s->kind == INSN_PUSH && k < s->push.n_to; k++) {
        struct route w = route(&m->rates[dev], &m->rates[s->push.to[k].dev]);

        if (w.way == WAY_NETWORK)
            seconds += push_bytes(&s->push, k, z) / w.bytes_per_s;
    }
    return seconds;
}

double cost_delivery_s(const struct cost_machine *m, int dev,
                       const struct insn *s)
{
    double latency = 0;

    if (s->kind != INSN_PUSH)
        return 0;
    for (int k = 0; k < s->push.n_to; k++)
        latency =
            fmax(latency,
                 route(&m->rates[dev], &m->rates[s->push.to[k].dev]).latency_s);
    return latency;
}

static double pages(const struct cost_machine *m, const struct insn_pages *s,
                    const struct cost_micro *z)
{
    double n_pos = (double)z->n_past + (double)z->sizes.n_tok / n_seq(z);
    const struct prog_tensor *out = &m->prog[s->out_dev].tensor[s->out];
    struct route w = route(&m->rates[s->src_dev], &m->rates[s->out_dev]);
    double n_page =
        fmin(n_seq(z) * ceil(n_pos / PAGE_TOKENS),
             (double)dim_value(out->dim[0], &z->sizes) / PAGE_TOKENS);
    int n_head = 0;

    for (int64_t h = 0; h < out->dim[1].n; h++)
        n_head += s->map[h] >= 0;
    return w.latency_s +
           n_page * n_head * (double)s->tile_bytes / w.bytes_per_s;
}

double cost_insn_s(const struct cost_machine *m, int dev, const struct insn *s,
                   const struct cost_micro *z)
{
    const struct program *p = &m->prog[dev];
    const struct cost_rates *r = &m->rates[dev];

    switch (s->kind) {
    case INSN_KERNEL:
        return (s->in_launch ? 0 : r->insn_s) + kernel(p, &s->kernel, r, z);
    case INSN_MERGE:
        return merge(m, dev, &s->merge, z);
    case INSN_PULL:
        return pull(m, dev, &s->pull, z);
    case INSN_PUSH:
        return push(m, dev, &s->push, z);
    case INSN_PAGES:
        return pages(m, &s->pages, z);
    case INSN_POST:
    case INSN_WAIT:
        break;
    }
    return 0;
}
