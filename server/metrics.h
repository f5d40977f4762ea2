/* The metrics of one model, in Prometheus's text format. */
#ifndef SERVER_METRICS_H
#define SERVER_METRICS_H

#include "json_text.h"
#include "loop.h"

#include <pthread.h>

/* A histogram. n[i] counts the values greater than bound i - 1 and at most
 * bound i. The bounds are in metrics.c; the last bucket has none. */
enum { METRICS_BUCKETS = 16 };
struct histogram {
    uint64_t n[METRICS_BUCKETS + 1];
    uint64_t all;
    double sum;
};

/* Sums over tasks that ended. */
struct metrics_sums {
    /* n_prompt: prompt tokens that were computed, in prompt_s seconds;
     * n_written: tokens generated after the first of each task, in written_s
     * seconds */
    double n_prompt, prompt_s, n_written, written_s;
};

struct metrics {
    pthread_mutex_t lock;
    struct histogram queue;  /* seconds from a task's arrival to its
                                admission */
    struct histogram prompt; /* seconds from a task's admission to its first
                                token */
    struct histogram first;  /* seconds from its arrival to its first token */
    struct histogram next;   /* seconds between two tokens of a task */
    /* Tokens per second of a task: prompt_rate for the prompt tokens that it
     * computed, `rate` for the tokens that it generated after the first. */
    struct histogram prompt_rate, rate;
    uint64_t n_end[FINISH_ERROR + 1]; /* number of tasks that ended, by enum
                                         task_finish */
    struct metrics_sums sums, read;   /* read: the sums at the last
                                         metrics_write */
    int64_t n_most; /* the greatest number of tokens of a task, prompt and
                       output together */
};

/* Current counters of other modules, which metrics_write formats. */
struct metrics_now {
    struct loop_counts loop;
    struct tiers_counts tiers;        /* all zero if there are no tiers */
    const pl_device_counters *device; /* [n_device] */
    int n_device;
    int n_connection, n_request;
};

void metrics_init(struct metrics *m);
void metrics_fini(struct metrics *m);
void metrics_add(struct metrics *m, const struct task_report *report);
/* Records the seconds between two tokens of a task. */
void metrics_add_token(struct metrics *m, double seconds);
/* Appends the metrics to *out. Returns false if out of memory. */
bool metrics_write(struct metrics *m, const struct metrics_now *now,
                   struct text *out);

#endif
