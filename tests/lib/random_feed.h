/* The inputs of a random graph: tokens of several steps, and values for the
 * graph's inputs in each step. */
#ifndef TEST_RANDOM_FEED_H
#define TEST_RANDOM_FEED_H

#include "lib/random_graph.h"

enum {
    FEED_MAX_STEP = 8,
    FEED_N_CTX = 256,
    FEED_PAGES = FEED_N_CTX / 64, /* number of pages of a sequence */
    /* number of slots of a state that steps use */
    FEED_STATES = 2 * RANDOM_N_SEQ,
};

struct random_feed {
    const struct random_graph *r; /* borrowed */
    int n_step;
    /* tokens of each step; the pointers lead into this struct */
    pl_step_tokens rows[FEED_MAX_STEP];
    /* values of each step's inputs: [n_node] arrays of 4-byte values, owned */
    unsigned char **input[FEED_MAX_STEP];
    int32_t pos[FEED_MAX_STEP][RANDOM_MAX_TOK];
    int32_t seq[FEED_MAX_STEP][RANDOM_MAX_TOK];
    int32_t pages[RANDOM_N_SEQ * FEED_PAGES];
    int32_t states[FEED_MAX_STEP][RANDOM_N_SEQ * FEED_PAGES];
};

/* Draws 1 to most_step steps of one or two sequences. In each step a sequence
 * continues where it ended. */
void feed_make(struct random_feed *f, const struct random_graph *r,
               int most_step, uint64_t *seed);
/* Frees the feed; {0} is allowed. */
void feed_free(struct random_feed *f);

/* Returns the number of values that a node has in step s in eval64: for a cache
 * those of RANDOM_MAX_POS positions per sequence, for a state those of one slot
 * per sequence. */
int64_t feed_count(const struct random_feed *f, int node, int s);
size_t feed_weight_bytes(const struct random_feed *f, int node);
/* Returns how many slots of a cache or state the steps may use. */
int64_t feed_slots(const struct graph_node *memory);
/* feed_slot returns the slot of a cache that holds token t of step s, or the
 * slot of a state that holds the state after the step's tokens of its sequence.
 * feed_row returns the row of eval64's value for the same. */
int64_t feed_slot(const struct random_feed *f, int memory, int s, int64_t t);
int64_t feed_row(const struct random_feed *f, int memory, int s, int64_t t);

/* Returns true if tests can read the node after a step. */
bool feed_is_read(const struct graph_node *n);

/* Frees the table, [n_node] pointers, and the memory that they point to. NULL
 * is allowed. */
void feed_table_free(const struct random_graph *r, void *table);

/* Prints the graph, and how to reproduce it. */
void feed_show(const struct random_graph *r, uint64_t seed, int n_rank);

#endif
