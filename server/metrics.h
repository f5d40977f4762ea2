/* The metrics of one model, in Prometheus's text format. */
#ifndef SERVER_METRICS_H
#define SERVER_METRICS_H

#include "json_text.h"
#include "loop.h"

#include <pthread.h>

/* A histogram of values. Bucket n[i] counts the values greater than bound i - 1
 * and at most bound i. The bounds are in metrics.c; the last bucket has no
 * upper bound. */
enum { METRICS_BUCKETS = 16 };
struct histogram {
    uint64_t n[METRICS_BUCKETS + 1];
    uint64_t all;
    double sum;
};

/* Sums over all tasks that have ended. */
struct metrics_sums {
    /* n_prompt: prompt tokens that were computed, in prompt_s seconds.
     * n_written: generated tokens without the first of each task, in written_s
     * seconds. */
    double n_prompt, prompt_s, n_written, written_s;
};

struct metrics {
    pthread_mutex_t lock;
    struct histogram queue;  /* seconds from a task's arrival to its
                                admission */
    struct histogram prompt; /* seconds from a task's admission to its first
                                token */
    /* Seconds from a task's arrival to its first token. */
    struct histogram first;
    /* Seconds between two consecutive tokens of a task. */
    struct histogram next;
    /* Tokens per second of each task. prompt_rate: prompt tokens that were
     * computed. `rate`: generated tokens after the first. */
    struct histogram prompt_rate, rate;
    /* n_end[why]: number of tasks that ended for the reason enum
     * task_finish. */
    uint64_t n_end[FINISH_ERROR + 1];
    /* sums: the current sums. read: the sums at the last call of
     * metrics_write. */
    struct metrics_sums sums, read;
    /* The greatest number of tokens that any task had, prompt and output
     * together. */
    int64_t n_most;
};

/* Current values of the counters that other files keep and metrics_write
 * formats. */
struct metrics_now {
    struct loop_counts loop;
    /* Counters of the cache tiers; all zero if there are no tiers. */
    struct tiers_counts tiers;
    const pl_device_counters *device; /* counters of the devices, [n_device] */
    const pl_device_traffic *traffic; /* the same of what they have sent */
    int n_device;
    int n_connection, n_request;
};

void metrics_init(struct metrics *m);
void metrics_fini(struct metrics *m);
void metrics_add(struct metrics *m, const struct task_report *report);
/* Records the time between two consecutive tokens of a task, in seconds. */
void metrics_add_token(struct metrics *m, double seconds);
/* Appends the metrics in Prometheus's text format to *out. Returns false if out
 * of memory. */
bool metrics_write(struct metrics *m, const struct metrics_now *now,
                   struct text *out);

#endif
