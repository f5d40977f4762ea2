/* Counts and formats the metrics of a model; see metrics.h. */
#include "metrics.h"

#include <inttypes.h>
#include <math.h>
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
    if (r->why <= FINISH_LENGTH) {
        m->sums.n_prompt += (double)(r->n_prompt - r->n_cached);
        m->sums.prompt_s += r->prompt_s;
        m->sums.n_written += (double)(r->n_written > 0 ? r->n_written - 1 : 0);
        m->sums.written_s += r->written_s;
    }
    if (r->n_prompt + r->n_written > m->n_most)
        m->n_most = r->n_prompt + r->n_written;
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

/* ---- writing Prometheus's text format ------------------------------------ */

struct writer {
    struct text *out;
    bool ok;
};

static void print(struct writer *w, const char *form, ...)
    __attribute__((format(printf, 2, 3)));
static void print(struct writer *w, const char *form, ...)
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
    print(w, "# HELP plait_%s %s\n", name, help);
    print(w, "# TYPE plait_%s %s\n", name, type);
}

static void counter(struct writer *w, const char *name, uint64_t n,
                    const char *help)
{
    head(w, name, "counter", help);
    print(w, "plait_%s %" PRIu64 "\n", name, n);
}

static void gauge(struct writer *w, const char *name, int n, const char *help)
{
    head(w, name, "gauge", help);
    print(w, "plait_%s %d\n", name, n);
}

static void seconds(struct writer *w, const char *name, double s,
                    const char *help)
{
    head(w, name, "counter", help);
    print(w, "plait_%s %.6f\n", name, s);
}

static void histogram(struct writer *w, const char *name, const double *le,
                      const struct histogram *h, const char *help)
{
    uint64_t n = 0;

    head(w, name, "histogram", help);
    for (int i = 0; i < METRICS_BUCKETS; i++) {
        n += h->n[i];
        print(w, "plait_%s_bucket{le=\"%g\"} %" PRIu64 "\n", name, le[i], n);
    }
    print(w, "plait_%s_bucket{le=\"+Inf\"} %" PRIu64 "\n", name, h->all);
    print(w, "plait_%s_sum %.6f\n", name, h->sum);
    print(w, "plait_%s_count %" PRIu64 "\n", name, h->all);
}

static void write_loop(struct writer *w, const struct loop_counts *c)
{
    gauge(w, "requests_running", c->n_running, "Tasks in a slot.");
    gauge(w, "requests_waiting", c->n_waiting, "Tasks waiting for a slot.");
    gauge(w, "requests_preempted", c->n_preempted,
          "Preempted tasks, whose cache is in host memory.");
    counter(w, "requests_total", c->n_task, "Tasks received.");
    counter(w, "requests_rejected_total", c->n_rejected,
            "Tasks rejected because the queue was full.");
    counter(w, "preemptions_total", c->n_preemptions, "Preemptions of tasks.");
    counter(w, "prompt_tokens_total", c->n_prompt, "Prompt tokens computed.");
    counter(w, "cached_tokens_total", c->n_cached,
            "Prompt tokens found in the prefix cache.");
    counter(w, "generation_tokens_total", c->n_written, "Tokens generated.");
    counter(w, "drafts_total", c->n_draft, "Drafts verified.");
    counter(w, "draft_tokens_total", c->n_draft_token,
            "Tokens of these drafts.");
    counter(w, "draft_accepted_tokens_total", c->n_draft_accepted,
            "Drafted tokens accepted, a part of generation_tokens_total.");
    counter(w, "steps_total", c->n_step, "Engine steps.");
    seconds(w, "step_seconds_total", c->step_s, "Time in engine steps.");
    seconds(w, "loop_seconds_total", c->overhead_s,
            "Time between engine steps: scheduling, sampling and sending.");
}

/* Writes the metrics of the cache tiers (tiers.h). A page in a tier has 64
 * tokens or fewer. */
static void write_tiers(struct writer *w, const struct loop_counts *c,
                        const struct tiers_counts *t)
{
    head(w, "cache_tier_hits_total", "counter",
         "Prompt pages loaded from a tier.");
    print(w, "plait_cache_tier_hits_total{tier=\"ram\"} %" PRIu64 "\n",
          t->ram_hits);
    print(w, "plait_cache_tier_hits_total{tier=\"disk\"} %" PRIu64 "\n",
          t->disk_hits);
    head(w, "cache_tier_hit_bytes_total", "counter",
         "Bytes of prompt pages loaded from a tier.");
    print(w, "plait_cache_tier_hit_bytes_total{tier=\"ram\"} %" PRIu64 "\n",
          t->ram_hit_bytes);
    print(w, "plait_cache_tier_hit_bytes_total{tier=\"disk\"} %" PRIu64 "\n",
          t->disk_hit_bytes);
    head(w, "cache_tier_bytes", "gauge", "Bytes of pages in a tier.");
    print(w, "plait_cache_tier_bytes{tier=\"ram\"} %" PRIu64 "\n",
          t->ram_bytes);
    print(w, "plait_cache_tier_bytes{tier=\"disk\"} %" PRIu64 "\n",
          t->disk_bytes);
    counter(
        w, "cache_restored_tokens_total", c->n_restored,
        "Prompt tokens loaded from the tiers, a part of cached_tokens_total.");
    seconds(w, "cache_restore_seconds_total", c->restore_s,
            "Time between engine steps for loading from the tiers.");
    counter(w, "cache_pages_written_total", t->written,
            "Pages written to disk.");
    counter(w, "cache_bytes_written_total", t->written_bytes,
            "Bytes written to disk.");
    counter(w, "cache_writes_failed_total", t->failed,
            "Failed writes to disk.");
    counter(w, "cache_pages_damaged_total", t->damaged,
            "Pages that failed verification and were deleted.");
    counter(w, "cache_pages_lost_total", t->lost,
            "Pages dropped without being written to disk.");
}

static bool has_machines(const struct metrics_now *now)
{
    bool several = false;

    for (int i = 0; i < now->n_device; i++)
        several |= now->traffic[i].machine > 0;
    return several;
}

/* Writes the name of a metric with the labels of device i: its name, and if
 * there are several machines, its machine. */
static void of_device(struct writer *w, const struct metrics_now *now,
                      const char *name, int i)
{
    print(w, "plait_%s{device=\"%s\"", name, now->device[i].name);
    if (has_machines(now))
        print(w, ",machine=\"%d\"", now->traffic[i].machine);
    print(w, "} ");
}

/* Writes a counter metric that has a sample for each device. `field` is the
 * offset of the value, a double, in pl_device_counters. */
static void of_devices(struct writer *w, const struct metrics_now *now,
                       const char *name, size_t field, const char *help)
{
    head(w, name, "counter", help);
    for (int i = 0; i < now->n_device; i++) {
        of_device(w, now, name, i);
        print(w, "%.6f\n",
              *(const double *)((const char *)&now->device[i] + field));
    }
}

static void write_traffic(struct writer *w, const struct metrics_now *now)
{
    head(w, "device_sent_messages_total", "counter",
         "Messages the device sent to other machines.");
    for (int i = 0; i < now->n_device; i++) {
        of_device(w, now, "device_sent_messages_total", i);
        print(w, "%" PRIu64 "\n", now->traffic[i].messages);
    }
    head(w, "device_sent_bytes_total", "counter", "Bytes of these messages.");
    for (int i = 0; i < now->n_device; i++) {
        of_device(w, now, "device_sent_bytes_total", i);
        print(w, "%" PRIu64 "\n", now->traffic[i].bytes);
    }
}

static void write_devices(struct writer *w, const struct metrics_now *now)
{
    of_devices(w, now, "device_busy_seconds_total",
               offsetof(pl_device_counters, busy_s),
               "Time the device computed.");
    of_devices(w, now, "device_reduce_seconds_total",
               offsetof(pl_device_counters, reduce_s),
               "Time the device took part in collectives.");
    of_devices(w, now, "device_wait_seconds_total",
               offsetof(pl_device_counters, wait_s),
               "Time the device waited for other devices.");
    of_devices(w, now, "device_copy_seconds_total",
               offsetof(pl_device_counters, copy_s),
               "Time the device copied between groups.");
    head(w, "device_copy_bytes_total", "counter",
         "Bytes the device copied between groups.");
    for (int i = 0; i < now->n_device; i++) {
        of_device(w, now, "device_copy_bytes_total", i);
        print(w, "%" PRIu64 "\n", now->device[i].copy_bytes);
    }
    if (has_machines(now))
        write_traffic(w, now);
}

static void write_cache(struct writer *w, const pl_cache_counters *c)
{
    gauge(w, "cache_pages", (int)c->n_page, "Pages of the KV cache.");
    gauge(w, "cache_pages_used", (int)c->n_used,
          "KV cache pages that tasks use.");
    gauge(w, "cache_pages_cached", (int)c->n_kept,
          "KV cache pages of cached prefixes that no task uses.");
}

static void write_ends(struct writer *w, const struct metrics *m)
{
    static const char *const why[] = {
        [FINISH_EOG] = "end",       [FINISH_STOPPED] = "stop",
        [FINISH_LENGTH] = "length", [FINISH_CANCELLED] = "cancelled",
        [FINISH_TIMEOUT] = "late",  [FINISH_ERROR] = "failed"};

    head(w, "requests_finished_total", "counter", "Tasks by finish reason.");
    for (int i = 0; i <= FINISH_ERROR; i++)
        print(w, "plait_requests_finished_total{reason=\"%s\"} %" PRIu64 "\n",
              why[i], m->n_end[i]);
}

/* Writes a metric with one sample, under llama-server's prefix "llamacpp:". */
static void llama(struct writer *w, const char *name, const char *type,
                  double v, const char *help)
{
    bool whole = v == floor(v) && !strstr(name, "seconds");

    print(w, "# HELP llamacpp:%s %s\n", name, help);
    print(w, "# TYPE llamacpp:%s %s\n", name, type);
    print(w, "llamacpp:%s %.*f\n", name, whole ? 0 : 6, v);
}

static double per(double a, double b)
{
    return b > 0 ? a / b : 0;
}

/* Writes the metrics of llama-server under its names, for dashboards that were
 * made for it. As in llama-server, rates are computed from the tasks that ended
 * since the last request for metrics. */
static void write_llama(struct writer *w, struct metrics *m,
                        const struct loop_counts *c)
{
    const struct metrics_sums *s = &m->sums, *r = &m->read;

    llama(w, "prompt_tokens_total", "counter", (double)c->n_prompt,
          "Prompt tokens computed.");
    llama(w, "prompt_tokens_cached_total", "counter", (double)c->n_cached,
          "Prompt tokens found in the prefix cache.");
    llama(w, "prompt_seconds_total", "counter", s->prompt_s,
          "Time from admission to the first token.");
    llama(w, "tokens_predicted_total", "counter", (double)c->n_written,
          "Tokens generated.");
    llama(w, "tokens_predicted_seconds_total", "counter", s->written_s,
          "Time from the first to the last token.");
    llama(w, "n_decode_total", "counter", (double)c->n_step, "Engine steps.");
    llama(w, "n_tokens_max", "counter", (double)m->n_most,
          "Most tokens that a task had.");
    llama(w, "n_busy_slots_per_decode", "gauge",
          per((double)c->n_busy, (double)c->n_step), "Mean tasks of a step.");
    llama(w, "prompt_tokens_seconds", "gauge",
          per(s->n_prompt - r->n_prompt, s->prompt_s - r->prompt_s),
          "Prompt tokens per second, since the last request for metrics.");
    llama(w, "predicted_tokens_seconds", "gauge",
          per(s->n_written - r->n_written, s->written_s - r->written_s),
          "Generated tokens per second, since the last request for metrics.");
    llama(w, "requests_processing", "gauge", c->n_running, "Tasks in a slot.");
    llama(w, "requests_deferred", "gauge", c->n_waiting + c->n_preempted,
          "Tasks waiting for a slot.");
    llama(w, "spec_decode_num_drafts_total", "counter", (double)c->n_draft,
          "Drafts verified.");
    llama(w, "spec_decode_num_draft_tokens_total", "counter",
          (double)c->n_draft_token, "Tokens of these drafts.");
    llama(w, "spec_decode_num_accepted_tokens_total", "counter",
          (double)c->n_draft_accepted, "Drafted tokens accepted.");
    m->read = m->sums;
}

bool metrics_write(struct metrics *m, const struct metrics_now *now,
                   struct text *out)
{
    struct writer w = {.out = out, .ok = true};

    write_loop(&w, &now->loop);
    write_tiers(&w, &now->loop, &now->tiers);
    gauge(&w, "connections", now->n_connection, "Open connections.");
    gauge(&w, "http_requests", now->n_request, "HTTP requests in progress.");
    counter(&w, "collectives_total", now->loop.messages,
            "Collectives between devices.");
    counter(&w, "collective_bytes_total", now->loop.message_bytes,
            "Bytes of these collectives.");
    counter(&w, "copy_bytes_total", now->loop.copy_bytes,
            "Bytes copied between device groups.");
    write_cache(&w, &now->loop.cache);
    write_devices(&w, now);
    pthread_mutex_lock(&m->lock);
    write_ends(&w, m);
    histogram(&w, "queue_seconds", seconds_le, &m->queue,
              "Time from arrival to admission to a slot.");
    histogram(&w, "prefill_seconds", seconds_le, &m->prompt,
              "Time from admission to the first token.");
    histogram(&w, "time_to_first_token_seconds", seconds_le, &m->first,
              "Time from arrival to the first token.");
    histogram(&w, "inter_token_latency_seconds", seconds_le, &m->next,
              "Time between two consecutive tokens of a task.");
    histogram(&w, "prompt_tokens_per_second", rate_le, &m->prompt_rate,
              "Prefill rate of a task, without the cached part of its prompt.");
    histogram(&w, "generation_tokens_per_second", rate_le, &m->rate,
              "Generation rate of a task.");
    write_llama(&w, m, &now->loop);
    pthread_mutex_unlock(&m->lock);
    return w.ok;
}
