/* The inputs of a random graph: the tokens of some steps, and values for its
 * inputs in each of them. */
#ifndef TEST_RANDOM_FEED_H
#define TEST_RANDOM_FEED_H

#include "lib/random_graph.h"

enum {
    FEED_MAX_STEP = 8,
    FEED_N_CTX = 256,
    FEED_PAGES = FEED_N_CTX / 64,   /* of a sequence */
    FEED_STATES = 2 * RANDOM_N_SEQ, /* slots of a state that are in use */
};

struct random_feed {
    const struct random_graph *r; /* borrowed */
    int n_step;
    pl_step_tokens rows[FEED_MAX_STEP];   /* point into this struct */
    unsigned char **input[FEED_MAX_STEP]; /* [n_node] 4-byte values; owned */
    int32_t pos[FEED_MAX_STEP][RANDOM_MAX_TOK];
    int32_t seq[FEED_MAX_STEP][RANDOM_MAX_TOK];
    int32_t pages[RANDOM_N_SEQ * FEED_PAGES];
    int32_t states[FEED_MAX_STEP][RANDOM_N_SEQ * FEED_PAGES];
};

/* Makes 1 .. most_step steps of one or two sequences, each continuing where it
 * ended. */
void feed_make(struct random_feed *f, const struct random_graph *r,
               int most_step, uint64_t *seed);
/* Accepts {0} too. */
void feed_free(struct random_feed *f);

/* Returns the number of values of a node in step s; for a cache RANDOM_MAX_POS
 * a sequence, for a state one. */
int64_t feed_count(const struct random_feed *f, int node, int s);
size_t feed_weight_bytes(const struct random_feed *f, int node);
/* Returns how many slots of a memory steps may use. */
int64_t feed_slots(const struct graph_node *memory);
/* Returns the slot of a memory that holds token t of step s, or the state after
 * the step's tokens of its sequence. feed_row returns eval64's row of it. */
int64_t feed_slot(const struct random_feed *f, int memory, int s, int64_t t);
int64_t feed_row(const struct random_feed *f, int memory, int s, int64_t t);

/* Returns true if the node can be read after a step. */
bool feed_is_read(const struct graph_node *n);

/* Frees a table [n_node] of pointers and what they point to. Accepts NULL. */
void feed_table_free(const struct random_graph *r, void *table);

/* Prints the graph, and how to reproduce it. */
void feed_show(const struct random_graph *r, uint64_t seed, int n_rank);

#endif
