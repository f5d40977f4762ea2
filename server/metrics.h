/* What a server has done, as Prometheus reads it. */
#ifndef SERVER_METRICS_H
#define SERVER_METRICS_H

#include "json_text.h"
#include "loop.h"

#include <pthread.h>

/* The upper end of bucket i stands in a table of metrics.c; the last one has
 * none. */
enum { METRICS_BUCKETS = 16 };
struct histogram {
    uint64_t n[METRICS_BUCKETS + 1];
    uint64_t all;
    double sum;
};

struct metrics {
    pthread_mutex_t lock;
    struct histogram queue;  /* seconds until a job had a sequence */
    struct histogram prompt; /* from there to its first token */
    struct histogram first;  /* both */
    struct histogram next;   /* between tokens */
    /* Tokens a second, a job each: of its prompt, but for what was cached; of
       what it wrote, behind the first token. */
    struct histogram prompt_rate, rate;
    uint64_t n_end[FINISH_ERROR + 1]; /* jobs, by why they ended */
};

/* What others count. */
struct metrics_now {
    struct loop_counts loop;
    struct tiers_counts tiers;        /* zeros: there are none */
    const pl_device_counters *device; /* [n_device] */
    int n_device;
    int n_connection, n_request;
};

void metrics_init(struct metrics *m);
void metrics_fini(struct metrics *m);
void metrics_add(struct metrics *m, const struct task_report *report);
/* So many seconds lay between two tokens of a job. */
void metrics_add_token(struct metrics *m, double seconds);
/* Appends the text; false: no memory. */
bool metrics_write(struct metrics *m, const struct metrics_now *now,
                   struct text *out);

#endif
