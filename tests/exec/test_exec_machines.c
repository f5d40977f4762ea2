/* Messages between machines, simulated. Programs of random plans over several
 * machines are simulated in their total order. Each machine has its own copy of
 * all inboxes, and a message is delivered as late as it may be: when a device
 * waits for its event. Every device then reads from its machine's copies what
 * it would read if all machines shared one memory. */
#include "base/text_out.h"
#include "lib/place_model.h"
#include "lib/support.h"
#include "lower/compile.h"
#include "program/page_walk.h"
#include "program/program_check.h"
#include "program/program_messages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_LAYER = 4, MAX_TOK = 9, N_CTX = 256, N_SEQ = 2, MOST_DEV = 16 };

/* Counts over all draws. */
static struct {
    int64_t plans, messages, copied, pages, bytes, skipped, reads;
} seen;

struct play {
    const struct compiled *p;
    const struct program *prog;
    int n_dev, n_machine, machine[MOST_DEV];
    struct messages m;
    struct message_cursor *at; /* [m.n] messages that were delivered */
    /* by byte of each inbox: the number of the push that wrote it, in one
     * shared memory and in each machine's copy */
    uint32_t *shared[MOST_DEV], *copy[PROG_MAX_MACHINE][MOST_DEV];
    /* by event: a bit per machine where it is raised */
    uint64_t *raised[MOST_DEV];
    int n_micro;
    struct graph_sizes sizes[PROG_MAX_MICRO];
    int32_t *table[PROG_MAX_MICRO]; /* token tables */
    uint32_t push;                  /* number of the last push */
    int64_t sent, received;         /* bytes for other machines */
};

/* ---- pushes -------------------------------------------------------------- */

/* A range of bytes that is copied or written. */
struct range_user {
    struct play *y;
    int machine, from, dev; /* from: of a delivery, else -1 */
};

static void write_bytes(void *user, size_t offset, size_t bytes)
{
    const struct range_user *x = user;
    struct play *y = x->y;
    uint32_t *to = y->copy[x->machine][x->dev];

    assert_true(offset + bytes <= y->prog[x->dev].bytes[REGION_INBOX]);
    if (x->from >= 0) {
        memcpy(to + offset, y->copy[x->from][x->dev] + offset,
               bytes * sizeof *to);
        y->received += (int64_t)bytes;
        return;
    }
    for (size_t i = offset; i < offset + bytes; i++)
        to[i] = y->shared[x->dev][i] = y->push;
    if (y->machine[x->dev] != x->machine)
        y->sent += (int64_t)bytes;
}

/* Plays a PUSH of a device of machine `from`, by the descriptors alone. */
static void play_push(struct play *y, int from, const struct insn *s)
{
    const struct graph_sizes *z = &y->sizes[s->micro];

    for (int k = 0; k < s->push.n_to; k++) {
        const struct push_to *to = &s->push.to[k];
        struct range_user x = {y, from, -1, to->dev};
        size_t base = y->prog[to->dev].tensor[to->out].offset + to->at;
        int n;
        const struct copy_desc *c = push_pieces(&s->push, k, &n);

        for (int i = 0; i < n; i++)
            for (int64_t a = 0; a < dim_value(c[i].n0, z); a++)
                for (int64_t b = 0; b < dim_value(c[i].n1, z); b++)
                    write_bytes(&x,
                                base + (size_t)(c[i].dst_const +
                                                dim_value(c[i].dst_off, z) +
                                                a * dim_value(c[i].dst_s0, z) +
                                                b * dim_value(c[i].dst_s1, z)),
                                (size_t)dim_value(c[i].bytes, z));
    }
}

/* Plays a PAGES that writes into the inbox of another device. */
static void play_pages(struct play *y, int from, int d, const struct insn *s)
{
    const struct prog_tensor *t =
        &y->prog[s->pages.out_dev].tensor[s->pages.out];
    struct page_walk w = page_walk_start(
        program_token_table(&y->prog[d], y->table[s->micro],
                            &y->sizes[s->micro], prog_tensor_pool(t)));
    int64_t n_page = dim_value(t->dim[0], &y->prog->max) / PAGE_TOKENS;
    struct range_user x = {y, from, -1, s->pages.out_dev};
    bool *done = test_need((size_t)n_page + 1, sizeof *done);

    for (int32_t page; (page = page_walk_next(&w)) >= 0;) {
        assert_true(page < n_page);
        for (int64_t h = 0; !done[page] && h < t->dim[1].n; h++)
            if (s->pages.map[h] >= 0)
                write_bytes(&x,
                            t->offset + (size_t)(page * t->dim[1].n + h) *
                                            s->pages.tile_bytes,
                            s->pages.tile_bytes);
        done[page] = true;
    }
    free(done);
    seen.pages += y->machine[s->pages.out_dev] != from;
}

/* ---- messages ------------------------------------------------------------ */

static void deliver_part(struct play *y, const struct message_channel *c,
                         const struct message_part *part)
{
    const struct insn *s =
        &y->prog[c->dev].variant[y->m.variant].insn[part->insn];
    struct range_user x = {y, c->machine, y->machine[c->dev], part->dev};
    size_t words = message_page_words(&y->m, c, part);
    uint64_t *pages = test_need(words + 1, sizeof *pages);

    assert_int_equal(y->machine[part->dev], c->machine);
    if (words > 0)
        message_page_set(&y->m, c, part, y->sizes, y->table[s->micro], pages);
    message_spans(&y->m, c, part, y->sizes, pages, write_bytes, &x);
    free(pages);
}

/* Delivers a channel's next message. Returns its event, -1 if it has none, or
 * -2 if there is no message. */
static int deliver(struct play *y, int channel)
{
    const struct message_channel *c = &y->m.channel[channel];
    const struct insn *insn = y->prog[c->dev].variant[y->m.variant].insn;
    struct sent_message s;

    if (!message_next(&y->m, c, &y->at[channel], y->n_micro, y->sizes, &s))
        return -2;
    seen.messages++;
    seen.copied += c->queue == QUEUE_COPY;
    for (int i = s.first; i < s.end; i++)
        if (insn_enabled(&insn[c->part[i].insn], y->n_micro, y->sizes))
            deliver_part(y, c, &c->part[i]);
    if (s.post < 0)
        return -1;
    y->raised[c->dev][insn[s.post].post.event] |= (uint64_t)1 << c->machine;
    return insn[s.post].post.event;
}

/* Returns the channel whose messages raise an event on a machine. */
static int channel_of(const struct play *y, struct insn_event e, int machine)
{
    for (int i = 0; i < y->m.n; i++) {
        const struct message_channel *c = &y->m.channel[i];
        const struct insn *insn = y->prog[c->dev].variant[y->m.variant].insn;

        for (int k = 0; c->dev == e.dev && c->machine == machine && k < c->n;
             k++)
            if (c->message[k].post >= 0 &&
                insn[c->message[k].post].post.event == e.event) {
                assert_true(c->message[k].waited);
                return i;
            }
    }
    fail_msg("no message has event %d.%d for machine %d", e.dev, e.event,
             machine);
    return -1;
}

/* Delivers what a device of a machine waits for, and no more. */
static void play_wait(struct play *y, int machine, const struct insn *s)
{
    for (int i = 0; i < wait_count(&s->wait); i++) {
        struct insn_event e = wait_event(&s->wait, i);
        int channel, got;

        if (y->machine[e.dev] == machine ||
            (y->raised[e.dev][e.event] >> machine & 1))
            continue;
        channel = channel_of(y, e, machine);
        do
            got = deliver(y, channel);
        while (got != e.event && got != -2);
        assert_int_equal(got, e.event);
    }
}

/* ---- a step -------------------------------------------------------------- */

struct reader {
    struct play *y;
    int dev;
    const struct insn *insn;
};

/* Fails the case if a device would read other bytes than with shared memory. */
static void check_read(void *user, const struct insn_access *u)
{
    const struct reader *x = user;
    struct play *y = x->y;
    const struct prog_tensor *t = &y->prog[u->dev].tensor[u->tensor];
    size_t n = u->bytes > 0 ? u->bytes : t->bytes - u->off;

    if (u->dev != x->dev || t->region != REGION_INBOX ||
        u->access != ACCESS_READ)
        return;
    seen.reads++;
    if (memcmp(y->shared[x->dev] + t->offset + u->off,
               y->copy[y->machine[x->dev]][x->dev] + t->offset + u->off,
               n * sizeof **y->shared) != 0)
        fail_msg("device %d reads %%%d before its bytes are there, variant %d, "
                 "position %d",
                 x->dev, u->tensor, y->m.variant, x->insn->order);
}

static void play_insn(struct play *y, int d, const struct insn *s)
{
    struct reader x = {y, d, s};

    if (!insn_enabled(s, y->n_micro, y->sizes)) {
        seen.skipped++;
        return;
    }
    insn_accesses(s, d, y->prog[d].tensor, check_read, &x);
    y->push++;
    if (s->kind == INSN_PUSH)
        play_push(y, y->machine[d], s);
    if (s->kind == INSN_PAGES && s->pages.out_dev != d)
        play_pages(y, y->machine[d], d, s);
    if (s->kind == INSN_WAIT)
        play_wait(y, y->machine[d], s);
}

/* Plays all instructions in the total order. */
static void play_variant(struct play *y)
{
    int *next = test_need((size_t)y->n_dev, sizeof *next);

    for (;;) {
        int first = -1, least = 0;

        for (int d = 0; d < y->n_dev; d++) {
            const struct variant *v = &y->prog[d].variant[y->m.variant];

            if (next[d] < v->n_insn &&
                (first < 0 || v->insn[next[d]].order < least)) {
                first = d;
                least = v->insn[next[d]].order;
            }
        }
        if (first < 0)
            break;
        play_insn(y, first,
                  &y->prog[first].variant[y->m.variant].insn[next[first]++]);
    }
    free(next);
}

static void draw_sizes(struct play *y, int n_micro, uint64_t *seed)
{
    int n_pool = program_pools(&y->prog->max);
    size_t words = (size_t)program_token_table_words(y->prog);

    y->n_micro = 1 + (int)test_below(seed, n_micro);
    for (int k = 0; k < y->n_micro; k++) {
        struct graph_sizes *z = &y->sizes[k];

        *z = y->prog->max;
        if (test_below(seed, 2)) {
            z->n_tok = 1 + test_below(seed, z->n_tok);
            z->n_out = 1 + test_below(seed, z->n_tok);
        }
        for (size_t i = 0; i < words; i++)
            y->table[k][i] = -1;
        for (int64_t t = 0; t < z->n_tok; t++) {
            y->table[k][t] = (int32_t)test_below(seed, N_CTX);
            y->table[k][y->prog->max.n_tok + t] =
                (int32_t)(t * N_SEQ / z->n_tok);
        }
        for (int pool = 0; pool < n_pool; pool++)
            for (int i = 0; i < N_SEQ * y->prog->page_stride; i++)
                y->table[k][program_pages_word(y->prog, pool) + i] =
                    (int32_t)test_below(seed, z->n_slot[pool] / PAGE_TOKENS);
    }
}

static void play_step(struct play *y, int n_micro, uint64_t *seed)
{
    draw_sizes(y, n_micro, seed);
    y->sent = y->received = 0;
    memset(y->at, 0, (size_t)y->m.n * sizeof *y->at);
    for (int d = 0; d < y->n_dev; d++)
        memset(y->raised[d], 0,
               (size_t)y->prog[d].n_event * sizeof **y->raised);
    play_variant(y);
    for (int i = 0; i < y->m.n; i++)
        while (deliver(y, i) != -2) {
        }
    /* each byte that was pushed was in one message, and is where it belongs */
    assert_int_equal(y->sent, y->received);
    seen.bytes += y->sent;
    for (int d = 0; d < y->n_dev; d++)
        assert_memory_equal(y->shared[d], y->copy[y->machine[d]][d],
                            y->prog[d].bytes[REGION_INBOX] *
                                sizeof **y->shared);
}

/* Fails the case if two channels from one machine to another have one tag. */
static void check_tags(const struct play *y)
{
    for (int i = 0; i < y->m.n; i++)
        for (int k = 0; k < i; k++) {
            const struct message_channel *a = &y->m.channel[i],
                                         *b = &y->m.channel[k];

            assert_false(y->machine[a->dev] == y->machine[b->dev] &&
                         a->machine == b->machine &&
                         message_tag(a) == message_tag(b));
        }
}

/* ---- a plan -------------------------------------------------------------- */

static bool any_kernel(void *user, int dev, const struct insn_kernel *k)
{
    (void)user;
    (void)dev;
    (void)k;
    return true;
}

static bool no_threads(void *user, int a, int b)
{
    (void)user;
    (void)a;
    (void)b;
    return false;
}

/* Checks that no device reads memory of another machine. */
static void check_program(const struct play *y)
{
    struct program_device dev[MOST_DEV];
    const struct program_machine m = {.n_dev = y->n_dev,
                                      .dev = dev,
                                      .has_kernel = any_kernel,
                                      .share_threads = no_threads};
    pl_err err;

    for (int d = 0; d < y->n_dev; d++) {
        const struct device_desc *x = &y->p->list.dev[d];

        dev[d] = (struct program_device){x->name,  "",           x->memory,
                                         x->reads, x->one_queue, x->machine};
    }
    TEST_OK(program_check(&m, y->prog, &err), err);
}

static void open_play(struct play *y, const struct compiled *p)
{
    size_t words = (size_t)program_token_table_words(p->low->prog);

    *y = (struct play){.p = p, .prog = p->low->prog, .n_dev = p->list.n};
    assert_true(y->n_dev <= MOST_DEV);
    for (int d = 0; d < y->n_dev; d++) {
        y->machine[d] = p->list.dev[d].machine;
        if (y->machine[d] >= y->n_machine)
            y->n_machine = y->machine[d] + 1;
        y->raised[d] =
            test_need((size_t)y->prog[d].n_event + 1, sizeof **y->raised);
    }
    for (int k = 0; k < PROG_MAX_MICRO; k++)
        y->table[k] = test_need(words + 1, sizeof **y->table);
}

static void play_plan(const struct compiled *p, uint64_t *seed)
{
    struct play y;

    open_play(&y, p);
    check_program(&y);
    for (int d = 0; d < y.n_dev; d++) {
        size_t n = y.prog[d].bytes[REGION_INBOX] + 1;

        y.shared[d] = test_need(n, sizeof **y.shared);
        for (int k = 0; k < y.n_machine; k++)
            y.copy[k][d] = test_need(n, sizeof **y.shared);
    }
    for (int v = 0; v < y.prog->n_variant; v++) {
        struct arena a = {0};
        pl_err err;

        TEST_OK(messages_create(&y.m, y.prog, y.n_dev, y.machine, v, &a, &err),
                err);
        check_tags(&y);
        y.at = test_need((size_t)y.m.n + 1, sizeof *y.at);
        for (int k = 0; k < 3; k++)
            play_step(&y, y.prog->variant[v].n_micro, seed);
        free(y.at);
        arena_fini(&a);
    }
    for (int d = 0; d < y.n_dev; d++) {
        free(y.raised[d]);
        free(y.shared[d]);
        for (int k = 0; k < y.n_machine; k++)
            free(y.copy[k][d]);
    }
    for (int k = 0; k < PROG_MAX_MICRO; k++)
        free(y.table[k]);
    seen.plans++;
}

/* Draws the options of a plan, of 2 to 6 devices on 2 to 4 machines. */
static pl_options draw_options(char spec[512], uint64_t *seed)
{
    static const char *const experts[] = {NULL, "1", "all"};
    pl_options o = {.size = sizeof o,
                    .device_spec = spec,
                    .no_fit = true,
                    .n_ctx = N_CTX,
                    .n_ubatch = MAX_TOK,
                    .n_out = MAX_TOK,
                    .n_seq = N_SEQ};
    int n = 2 + (int)test_below(seed, 5), n_machine = 2;
    size_t at = 0;

    n_machine += (int)test_below(seed, n < 4 ? n - 1 : 3);
    for (int d = 0; d < n; d++)
        at += (size_t)snprintf(
            spec + at, 512 - at, "%sgpu:1GiB:1TB/s:machine=%d%s",
            d > 0 ? "," : "",
            d < n_machine ? d : (int)test_below(seed, n_machine),
            test_below(seed, 2) ? ":shared" : "");
    o.n_ranks = n + (int)test_below(seed, 3);
    o.hybrid_size = 2;
    switch (test_below(seed, 4)) {
    case 0:
        o.split_mode = PL_SPLIT_LAYER;
        break;
    case 1:
        o.split_mode = PL_SPLIT_HYBRID;
        break;
    default:
        o.split_mode = PL_SPLIT_TENSOR;
    }
    o.host_experts = experts[test_below(seed, 3)];
    o.host_cache = test_below(seed, 3) == 0;
    o.offload = test_below(seed, 2) ? PL_OFFLOAD_ON : PL_OFFLOAD_AUTO;
    return o;
}

/* Compiles a plan for devices whose queues are drawn, too. */
static struct compiled *draw_plan(const pl_graph *g, uint64_t *seed)
{
    char spec[512];
    pl_options o = draw_options(spec, seed);
    struct arena a = {0};
    struct notes notes = {.a = &a};
    struct plan_config in = {0};
    struct compiled *p;
    pl_err err;

    TEST_OK(plan_config_parse(&in, &a, g, NULL, &o, &notes, &err), err);
    for (int d = 0; d < in.list.n; d++) {
        in.list.dev[d].one_queue = test_below(seed, 2);
        in.list.dev[d].reads = test_below(seed, 2);
    }
    TEST_OK(compile_config(&p, &in, &err), err);
    plan_config_free(&in);
    arena_fini(&a);
    return p;
}

TEST(machines_get_each_byte_before_it_is_read)
{
    uint64_t seed = test_seed();
    pl_graph *g = place_model(N_LAYER);

    assert_non_null(g);
    for (int r = test_draws(40, 2000); r > 0; r--) {
        struct compiled *p = draw_plan(g, &seed);

        play_plan(p, &seed);
        compiled_free(p);
    }
    pl_graph_free(g);
    print_message("%lld plans: %lld messages, %lld by copy queues, %lld of "
                  "pages, %lld bytes; %lld instructions skipped, %lld reads\n",
                  (long long)seen.plans, (long long)seen.messages,
                  (long long)seen.copied, (long long)seen.pages,
                  (long long)seen.bytes, (long long)seen.skipped,
                  (long long)seen.reads);
    assert_true(seen.copied && seen.pages && seen.skipped && seen.reads);
}
