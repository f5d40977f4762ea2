/* A server's counters in Prometheus's format. */
#ifndef SERVER_METRICS_H
#define SERVER_METRICS_H

#include "json_text.h"
#include "loop.h"

#include <pthread.h>

/* metrics.c has a table of the buckets' upper bounds; the last bucket has
 * none. */
enum { METRICS_BUCKETS = 16 };
struct histogram {
    uint64_t n[METRICS_BUCKETS + 1];
    uint64_t all;
    double sum;
};

struct metrics {
    pthread_mutex_t lock;
    struct histogram queue;  /* seconds until a task got a sequence */
    struct histogram prompt; /* from then to its first token */
    struct histogram first;  /* both */
    struct histogram next;   /* between tokens */
    /* Tokens per second of a task: of its prompt without cached tokens, and of
     * generation after the first token. */
    struct histogram prompt_rate, rate;
    uint64_t n_end[FINISH_ERROR + 1]; /* tasks, by why they ended */
};

/* Counters of other parts. */
struct metrics_now {
    struct loop_counts loop;
    struct tiers_counts tiers;        /* all zero if there are none */
    const pl_device_counters *device; /* [n_device] */
    int n_device;
    int n_connection, n_request;
};

void metrics_init(struct metrics *m);
void metrics_fini(struct metrics *m);
void metrics_add(struct metrics *m, const struct task_report *report);
/* Records the seconds between two tokens of a task. */
void metrics_add_token(struct metrics *m, double seconds);
/* Appends the text. Returns false if out of memory. */
bool metrics_write(struct metrics *m, const struct metrics_now *now,
                   struct text *out);

#endif
