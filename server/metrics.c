/* See metrics.h. */
#include "metrics.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static const double seconds_le[METRICS_BUCKETS] = {
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
    0.5,   1,      2.5,   5,    10,    30,   60,  120};
static const double rate_le[METRICS_BUCKETS] = {
    1,   2,    5,    10,   20,    50,    100,   200,
    500, 1000, 2000, 5000, 10000, 20000, 50000, 100000};

void metrics_init(struct metrics *m)
{
    memset(m, 0, sizeof *m);
    pthread_mutex_init(&m->lock, NULL);
}

void metrics_fini(struct metrics *m)
{
    pthread_mutex_destroy(&m->lock);
}

static void add(struct histogram *h, const double *le, double x)
{
    int i = 0;

    while (i < METRICS_BUCKETS && x > le[i])
        i++;
    h->n[i]++;
    h->all++;
    h->sum += x;
}

static void add_rate(struct histogram *h, int64_t n, double s)
{
    if (n > 0 && s > 0)
        add(h, rate_le, (double)n / s);
}

void metrics_add(struct metrics *m, const struct task_report *r)
{
    pthread_mutex_lock(&m->lock);
    m->n_end[r->why]++;
    add(&m->queue, seconds_le, r->queue_s);
    if (r->n_written > 0) {
        add(&m->prompt, seconds_le, r->prompt_s);
        add(&m->first, seconds_le, r->queue_s + r->prompt_s);
        add_rate(&m->prompt_rate, r->n_prompt - r->n_cached, r->prompt_s);
        add_rate(&m->rate, r->n_written - 1, r->written_s);
    }
    pthread_mutex_unlock(&m->lock);
}

void metrics_add_token(struct metrics *m, double seconds)
{
    pthread_mutex_lock(&m->lock);
    add(&m->next, seconds_le, seconds);
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

static void histogram(struct writer *w, const char *name, const double *le,
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
    gauge(w, "requests_away", c->n_preempted,
          "texts that gave their place and wait in host memory");
    counter(w, "texts_total", c->n_task, "texts asked for");
    counter(w, "texts_refused_total", c->n_rejected,
            "texts refused since too many waited");
    counter(w, "places_given_total", c->n_preemptions,
            "times that a text gave its place");
    counter(w, "prompt_tokens_total", c->n_prompt,
            "tokens of prompts, computed");
    counter(w, "cached_tokens_total", c->n_cached,
            "tokens of prompts, found in the cache");
    counter(w, "written_tokens_total", c->n_written, "tokens written");
    counter(w, "steps_total", c->n_step, "steps of the engine");
    seconds(w, "step_seconds_total", c->step_s, "time within steps");
    seconds(w, "loop_seconds_total", c->overhead_s,
            "time between steps, choosing and telling");
}

/* Counts pages, which have 64 tokens or fewer. */
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
    counter(w, "cache_restored_tokens_total", c->n_restored,
            "tokens of prompts, of those found in the cache, that came from "
            "host memory or disk");
    seconds(w, "cache_restore_seconds_total", c->restore_s,
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

/* Writes one counter for each device. */
static void of_devices(struct writer *w, const struct metrics_now *now,
                       const char *name, size_t field, const char *help)
{
    head(w, name, "counter", help);
    for (int i = 0; i < now->n_device; i++) {
        const pl_device_counters *d = &now->device[i];

        say(w, "plait_%s{device=\"%s\"} %.6f\n", name, d->name,
            *(const double *)((const char *)d + field));
    }
}

static void write_devices(struct writer *w, const struct metrics_now *now)
{
    of_devices(w, now, "device_busy_seconds_total",
               offsetof(pl_device_counters, busy_s), "a device computed");
    of_devices(w, now, "device_reduce_seconds_total",
               offsetof(pl_device_counters, reduce_s),
               "it took its part in collectives");
    of_devices(w, now, "device_wait_seconds_total",
               offsetof(pl_device_counters, wait_s),
               "it waited for other devices");
    of_devices(w, now, "device_copy_seconds_total",
               offsetof(pl_device_counters, copy_s),
               "it copied between groups of devices");
    head(w, "device_copy_bytes_total", "counter", "bytes of these copies");
    for (int i = 0; i < now->n_device; i++)
        say(w, "plait_device_copy_bytes_total{device=\"%s\"} %" PRIu64 "\n",
            now->device[i].name, now->device[i].copy_bytes);
}

static void write_cache(struct writer *w, const pl_cache_counters *c)
{
    gauge(w, "cache_pages", (int)c->n_page, "pages of the cache");
    gauge(w, "cache_pages_used", (int)c->n_used, "pages that texts hold");
    gauge(w, "cache_pages_kept", (int)c->n_kept,
          "pages of prefixes that nobody uses now");
}

static void write_ends(struct writer *w, const struct metrics *m)
{
    static const char *const why[] = {
        [FINISH_EOG] = "end",       [FINISH_STOPPED] = "stop",
        [FINISH_LENGTH] = "length", [FINISH_CANCELLED] = "cancelled",
        [FINISH_TIMEOUT] = "late",  [FINISH_ERROR] = "failed"};

    head(w, "texts_ended_total", "counter", "texts, by why they ended");
    for (int i = 0; i <= FINISH_ERROR; i++)
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
    write_cache(&w, &now->loop.cache);
    write_devices(&w, now);
    pthread_mutex_lock(&m->lock);
    write_ends(&w, m);
    histogram(&w, "queue_seconds", seconds_le, &m->queue,
              "wait for a sequence");
    histogram(&w, "prompt_seconds", seconds_le, &m->prompt,
              "from a sequence to the first token");
    histogram(&w, "time_to_first_token_seconds", seconds_le, &m->first,
              "from the request to the first token");
    histogram(&w, "time_between_tokens_seconds", seconds_le, &m->next,
              "between two tokens of a text");
    histogram(&w, "prompt_tokens_per_second", rate_le, &m->prompt_rate,
              "of a prompt, but for what was cached");
    histogram(&w, "written_tokens_per_second", rate_le, &m->rate,
              "of what a text wrote");
    pthread_mutex_unlock(&m->lock);
    return w.ok;
}
