/* See metrics.h. */
#include "metrics.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const double le[METRICS_BUCKETS] = {
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
    0.5,   1,      2.5,   5,    10,    30,   60,  120};

void metrics_init(struct metrics *m)
{
    memset(m, 0, sizeof *m);
    pthread_mutex_init(&m->lock, NULL);
}

void metrics_fini(struct metrics *m)
{
    pthread_mutex_destroy(&m->lock);
}

static void add(struct histogram *h, double seconds)
{
    int i = 0;

    while (i < METRICS_BUCKETS && seconds > le[i])
        i++;
    h->n[i]++;
    h->all++;
    h->sum += seconds;
}

void metrics_add(struct metrics *m, const struct job_report *r)
{
    pthread_mutex_lock(&m->lock);
    m->n_end[r->why]++;
    add(&m->queue, r->queue_s);
    if (r->n_written > 0)
        add(&m->first, r->prompt_s);
    if (r->n_written > 1)
        add(&m->next, r->written_s / (double)(r->n_written - 1));
    pthread_mutex_unlock(&m->lock);
}

/* ---- text ---------------------------------------------------------------- */

struct writer {
    struct text *out;
    bool ok;
};

static void say(struct writer *w, const char *form, ...)
    __attribute__((format(printf, 2, 3)));
static void say(struct writer *w, const char *form, ...)
{
    char line[256];
    va_list a;
    int n;

    va_start(a, form);
    n = vsnprintf(line, sizeof line, form, a);
    va_end(a);
    w->ok = w->ok && n >= 0 && text_add(w->out, line, (size_t)n);
}

static void head(struct writer *w, const char *name, const char *type,
                 const char *help)
{
    say(w, "# HELP plait_%s %s\n", name, help);
    say(w, "# TYPE plait_%s %s\n", name, type);
}

static void counter(struct writer *w, const char *name, uint64_t n,
                    const char *help)
{
    head(w, name, "counter", help);
    say(w, "plait_%s %" PRIu64 "\n", name, n);
}

static void gauge(struct writer *w, const char *name, int n, const char *help)
{
    head(w, name, "gauge", help);
    say(w, "plait_%s %d\n", name, n);
}

static void seconds(struct writer *w, const char *name, double s,
                    const char *help)
{
    head(w, name, "counter", help);
    say(w, "plait_%s %.6f\n", name, s);
}

static void histogram(struct writer *w, const char *name,
                      const struct histogram *h, const char *help)
{
    uint64_t n = 0;

    head(w, name, "histogram", help);
    for (int i = 0; i < METRICS_BUCKETS; i++) {
        n += h->n[i];
        say(w, "plait_%s_bucket{le=\"%g\"} %" PRIu64 "\n", name, le[i], n);
    }
    say(w, "plait_%s_bucket{le=\"+Inf\"} %" PRIu64 "\n", name, h->all);
    say(w, "plait_%s_sum %.6f\n", name, h->sum);
    say(w, "plait_%s_count %" PRIu64 "\n", name, h->all);
}

static void write_loop(struct writer *w, const struct loop_counts *c)
{
    gauge(w, "requests_running", c->n_running, "texts that have a sequence");
    gauge(w, "requests_waiting", c->n_waiting, "texts that wait for one");
    gauge(w, "requests_away", c->n_away,
          "texts that gave their place and wait in host memory");
    counter(w, "texts_total", c->n_job, "texts asked for");
    counter(w, "texts_refused_total", c->n_refused,
            "texts refused since too many waited");
    counter(w, "places_given_total", c->n_given,
            "times that a text gave its place");
    counter(w, "prompt_tokens_total", c->n_prompt,
            "tokens of prompts, computed");
    counter(w, "cached_tokens_total", c->n_cached,
            "tokens of prompts, found in the cache");
    counter(w, "written_tokens_total", c->n_written, "tokens written");
    counter(w, "steps_total", c->n_step, "steps of the engine");
    seconds(w, "step_seconds_total", c->step_s, "time within steps");
    seconds(w, "loop_seconds_total", c->self_s,
            "time between steps, choosing and telling");
}

/* Pages of 64 tokens and less. */
static void write_tiers(struct writer *w, const struct loop_counts *c,
                        const struct tiers_counts *t)
{
    head(w, "cache_tier_hits_total", "counter",
         "pages of prompts that came back, by tier");
    say(w, "plait_cache_tier_hits_total{tier=\"ram\"} %" PRIu64 "\n",
        t->ram_hits);
    say(w, "plait_cache_tier_hits_total{tier=\"disk\"} %" PRIu64 "\n",
        t->disk_hits);
    head(w, "cache_tier_hit_bytes_total", "counter", "their bytes");
    say(w, "plait_cache_tier_hit_bytes_total{tier=\"ram\"} %" PRIu64 "\n",
        t->ram_hit_bytes);
    say(w, "plait_cache_tier_hit_bytes_total{tier=\"disk\"} %" PRIu64 "\n",
        t->disk_hit_bytes);
    head(w, "cache_tier_bytes", "gauge", "bytes of pages, by tier");
    say(w, "plait_cache_tier_bytes{tier=\"ram\"} %" PRIu64 "\n", t->ram_bytes);
    say(w, "plait_cache_tier_bytes{tier=\"disk\"} %" PRIu64 "\n",
        t->disk_bytes);
    counter(w, "cache_restored_tokens_total", c->n_back,
            "tokens of prompts, of those found in the cache, that came from "
            "host memory or disk");
    seconds(w, "cache_restore_seconds_total", c->back_s,
            "time between steps for that");
    counter(w, "cache_pages_written_total", t->written,
            "pages written to the disk");
    counter(w, "cache_bytes_written_total", t->written_bytes, "their bytes");
    counter(w, "cache_writes_failed_total", t->failed,
            "writes that the disk refused");
    counter(w, "cache_pages_damaged_total", t->damaged,
            "pages that were not what was written, and are gone");
    counter(w, "cache_pages_lost_total", t->lost,
            "pages that were to be written, and are not");
}

static void write_ends(struct writer *w, const struct metrics *m)
{
    static const char *const why[] = {
        [JOB_ENDED] = "end",     [JOB_TOLD] = "stop",
        [JOB_LENGTH] = "length", [JOB_CANCELLED] = "cancelled",
        [JOB_LATE] = "late",     [JOB_FAILED] = "failed"};

    head(w, "texts_ended_total", "counter", "texts, by why they ended");
    for (int i = 0; i <= JOB_FAILED; i++)
        say(w, "plait_texts_ended_total{why=\"%s\"} %" PRIu64 "\n", why[i],
            m->n_end[i]);
}

bool metrics_write(struct metrics *m, const struct metrics_now *now,
                   struct text *out)
{
    struct writer w = {.out = out, .ok = true};

    write_loop(&w, &now->loop);
    write_tiers(&w, &now->loop, &now->tiers);
    gauge(&w, "connections", now->n_connection, "connections that are open");
    gauge(&w, "http_requests", now->n_request, "requests under way");
    counter(&w, "messages_total", now->loop.messages, "collectives of devices");
    counter(&w, "message_bytes_total", now->loop.message_bytes, "their bytes");
    counter(&w, "copy_bytes_total", now->loop.copy_bytes,
            "bytes copied between groups of devices");
    pthread_mutex_lock(&m->lock);
    write_ends(&w, m);
    histogram(&w, "queue_seconds", &m->queue, "wait for a sequence");
    histogram(&w, "time_to_first_token_seconds", &m->first,
              "from a sequence to the first token");
    histogram(&w, "time_between_tokens_seconds", &m->next,
              "between tokens, a text's mean");
    pthread_mutex_unlock(&m->lock);
    return w.ok;
}
