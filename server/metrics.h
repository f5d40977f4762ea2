/* The metrics of one model, in Prometheus's text format. */
#ifndef SERVER_METRICS_H
#define SERVER_METRICS_H

#include "json_text.h"
#include "loop.h"

#include <pthread.h>

/* A histogram. The upper bounds of the buckets are in metrics.c; the last
 * bucket has none. */
enum { METRICS_BUCKETS = 16 };
struct histogram {
    uint64_t n[METRICS_BUCKETS + 1];
    uint64_t all;
    double sum;
};

/* Sums over tasks that ended. */
struct metrics_sums {
    /* tokens computed of prompts, and generated after the first of a task; the
     * seconds for them */
    double n_prompt, prompt_s, n_written, written_s;
};

struct metrics {
    pthread_mutex_t lock;
    struct histogram queue;  /* seconds from a task's arrival to its
                                admission */
    struct histogram prompt; /* seconds from there to its first token */
    struct histogram first;  /* seconds from its arrival to its first token */
    struct histogram next;   /* seconds between two tokens of a task */
    /* Tokens per second of a task: prompt_rate for its prompt without cached
     * tokens, `rate` for its generated tokens after the first. */
    struct histogram prompt_rate, rate;
    uint64_t n_end[FINISH_ERROR + 1]; /* number of tasks, by enum task_finish */
    struct metrics_sums sums, read;   /* read: as metrics_write saw them last */
    int64_t n_most; /* most tokens that a task had, prompt and output */
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
