/* Draws inputs of random graphs; random_feed.h describes the functions. All
 * positions of a sequence are in its first page, and the first pages of the two
 * sequences differ. A step writes states to the slots from which they were
 * read, or to others. */
#include "lib/random_feed.h"

#include "lib/support.h"

#include "quant/format.h"

#include <stdlib.h>
#include <string.h>

/* Chooses the slot from which step s reads the state of sequence `seq`, which
 * has `pos` tokens, and the slot *slot to which it writes the new state. */
static void draw_state(struct random_feed *f, int s, int seq, int32_t pos,
                       int32_t *slot, uint64_t *seed)
{
    int32_t *w = f->states[s] + seq * FEED_PAGES;

    w[STATE_AT] = pos;
    /* any slot, because a sequence's first step reads none */
    w[STATE_READ] =
        pos > 0 ? *slot : (int32_t)test_below(seed, FEED_STATES + 1) - 1;
    if (test_below(seed, 2)) {
        *slot ^= 1;
    } else if (pos > 0 && test_below(seed, 2)) {
        /* as in a later micro-batch of a step that began at an earlier token */
        w[STATE_AT] = (int32_t)test_below(seed, pos);
        w[STATE_READ] = -1;
    }
    w[STATE_WRITTEN] = *slot;
}

static void draw_steps(struct random_feed *f, int most_step, uint64_t *seed)
{
    int32_t next[RANDOM_N_SEQ] = {0}, slot[RANDOM_N_SEQ] = {0, 2};

    f->n_step = 1 + (int)test_below(seed, most_step);
    for (int s = 0; s < f->n_step; s++) {
        int64_t n = 1 + test_below(seed, RANDOM_MAX_TOK);
        int64_t first = test_below(seed, n + 1);

        if (test_below(seed, 2))
            first = n;
        for (int q = 0; q < RANDOM_N_SEQ; q++)
            if (q == 0 ? first > 0 : first < n)
                draw_state(f, s, q, next[q], &slot[q], seed);
        for (int64_t t = 0; t < n; t++) {
            f->seq[s][t] = t < first ? 0 : 1;
            f->pos[s][t] = next[f->seq[s][t]]++;
        }
        f->rows[s] = (pl_step_tokens){sizeof(pl_step_tokens),
                                      n,
                                      1 + test_below(seed, n),
                                      f->pos[s],
                                      f->seq[s],
                                      {NULL},
                                      FEED_PAGES};
        for (int k = 0; k < f->r->g->n_pool; k++)
            f->rows[s].pages[k] =
                f->r->g->pool[k].state ? f->states[s] : f->pages;
    }
    for (int i = 0; i < RANDOM_N_SEQ * FEED_PAGES; i++)
        f->pages[i] = (int32_t)test_below(seed, FEED_PAGES);
    f->pages[0] = (int32_t)test_below(seed, FEED_PAGES / 2);
    f->pages[FEED_PAGES] =
        FEED_PAGES / 2 + (int32_t)test_below(seed, FEED_PAGES / 2);
}

static void draw_input(struct random_feed *f, int node, int s, uint64_t *seed)
{
    const struct graph_node *n = &f->r->g->node[node];
    int64_t c = feed_count(f, node, s);
    int below = f->r->below[node];
    unsigned char *b = test_need((size_t)c, 4);

    for (int64_t i = 0; i < c; i++) {
        int32_t id;
        float v;

        if (n->format == PL_I32) {
            id = below ? (int32_t)test_below(seed, below) : f->pos[s][i];
            if (n->dim[0].symbol == PL_N_OUT)
                id = (int32_t)test_below(seed, f->rows[s].n_tok);
            memcpy(b + 4 * i, &id, 4);
        } else {
            v = f->r->exact ? (float)(test_below(seed, 7) - 3)
                            : 2 * test_unit(seed);
            memcpy(b + 4 * i, &v, 4);
        }
    }
    f->input[s][node] = b;
}

void feed_make(struct random_feed *f, const struct random_graph *r,
               int most_step, uint64_t *seed)
{
    *f = (struct random_feed){.r = r};
    assert_in_range(most_step, 1, FEED_MAX_STEP);
    draw_steps(f, most_step, seed);
    for (int s = 0; s < f->n_step; s++) {
        f->input[s] = test_need((size_t)r->n_node, sizeof **f->input);
        for (int i = 0; i < r->n_node; i++)
            if (r->g->node[i].op == OP_input)
                draw_input(f, i, s, seed);
    }
}

void feed_free(struct random_feed *f)
{
    for (int s = 0; s < f->n_step; s++)
        feed_table_free(f->r, f->input[s]);
}

int64_t feed_count(const struct random_feed *f, int node, int s)
{
    struct graph_sizes z = {
        f->rows[s].n_tok, f->rows[s].n_out, RANDOM_N_SEQ, {0}};

    for (int k = 0; k < f->r->g->n_pool; k++)
        z.n_slot[k] =
            RANDOM_N_SEQ * (f->r->g->pool[k].state ? 1 : RANDOM_MAX_POS);
    return graph_count(&f->r->g->node[node], &z);
}

size_t feed_weight_bytes(const struct random_feed *f, int node)
{
    const struct graph_node *n = &f->r->g->node[node];
    int64_t row = n->dim[n->n_dim - 1].n;

    return format_row_bytes(n->format, row) *
           (size_t)(feed_count(f, node, 0) / row);
}

int64_t feed_slots(const struct graph_node *memory)
{
    return memory->attr.state ? FEED_STATES : FEED_N_CTX;
}

int64_t feed_slot(const struct random_feed *f, int memory, int s, int64_t t)
{
    if (f->r->g->node[memory].attr.state)
        return f->states[s][f->seq[s][t] * FEED_PAGES + STATE_WRITTEN];
    return f->pages[f->seq[s][t] * FEED_PAGES] * 64 + f->pos[s][t];
}

int64_t feed_row(const struct random_feed *f, int memory, int s, int64_t t)
{
    return f->r->g->node[memory].attr.state
               ? f->seq[s][t]
               : f->seq[s][t] * RANDOM_MAX_POS + f->pos[s][t];
}

bool feed_is_read(const struct graph_node *n)
{
    return n->output || n->keep;
}

void feed_table_free(const struct random_graph *r, void *table)
{
    void **t = table;

    for (int i = 0; t && i < r->n_node; i++)
        free(t[i]);
    free(t);
}

void feed_show(const struct random_graph *r, uint64_t seed, int n_rank)
{
    pl_graph_print(r->g, test_text_show, NULL, NULL);
    print_message("PLAIT_SEED=%llu (%d ranks)\n", (unsigned long long)seed,
                  n_rank);
}
