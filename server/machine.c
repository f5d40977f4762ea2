/* Writes counters of the engine and its devices as JSON for the machine view of
 * the web UI, which computes rates from them. metrics.c writes the same
 * counters for Prometheus. */
#include "service.h"

#include "clock.h"

#include <stdlib.h>

static json_t *device_json(const pl_device_counters *d,
                           const pl_device_traffic *t)
{
    return json_pack(
        "{s:s, s:f, s:f, s:f, s:f, s:f, s:I, s:b, s:b, s:i, s:I, s:I}", "name",
        d->name, "step_s", d->step_s, "busy_s", d->busy_s, "reduce_s",
        d->reduce_s, "wait_s", d->wait_s, "copy_s", d->copy_s, "copy_bytes",
        (json_int_t)d->copy_bytes, "beside", d->beside, "whole", d->whole,
        "machine", t->machine, "sent_messages", (json_int_t)t->messages,
        "sent_bytes", (json_int_t)t->bytes);
}

static json_t *devices_json(struct loop *l)
{
    int n = loop_devices(l, NULL, NULL, 0);
    pl_device_counters *d = calloc((size_t)n + 1, sizeof *d);
    pl_device_traffic *t = calloc((size_t)n + 1, sizeof *t);
    json_t *list = d && t ? json_array() : NULL;

    if (d && t)
        loop_devices(l, d, t, n);
    for (int i = 0; d && t && i < n; i++)
        json_text_add(&list, device_json(&d[i], &t[i]));
    free(d);
    free(t);
    return list;
}

static json_t *slots_json(struct loop *l, int64_t n_ctx)
{
    int n;
    struct loop_slot *slot = loop_all_slots(l, &n);
    json_t *list = slot ? json_array() : NULL;

    for (int i = 0; i < n; i++) {
        if (slot[i].id_task == 0)
            slot[i] = (struct loop_slot){0};
        json_text_add(&list, json_pack("{s:I, s:I, s:I, s:I, s:I}", "job",
                                       (json_int_t)slot[i].id_task, "n_prompt",
                                       (json_int_t)slot[i].n_prompt, "n_done",
                                       (json_int_t)slot[i].n_done, "n_written",
                                       (json_int_t)slot[i].n_written, "n_ctx",
                                       (json_int_t)n_ctx));
    }
    free(slot);
    return list;
}

/* Returns the list of cache tiers with their numbers of pages, as JSON. The
 * list has one item, the KV cache on the devices. */
static json_t *cache_json(const struct loop_counts *c)
{
    return json_pack("[{s:s, s:I, s:I, s:I}]", "tier", "devices", "pages",
                     (json_int_t)c->cache.n_page, "used",
                     (json_int_t)c->cache.n_used, "kept",
                     (json_int_t)c->cache.n_kept);
}

void machine_respond(void *service, struct http_request *r)
{
    const struct service *v = service;
    struct loop_counts c;
    char plan[512];
    json_t *j;

    loop_counts(v->loop, &c);
    pl_plan_summary(pl_engine_plan(v->engine), plan, sizeof plan);
    j = json_pack("{s:s, s:s, s:f, s:f, s:{s:i, s:i, s:i, s:I},"
                  " s:{s:I, s:I, s:I}, s:{s:I, s:I, s:I, s:I}, s:o, s:o, s:o}",
                  "model", v->name, "plan", plan, "now_s", clock_now(),
                  "step_s", c.step_s, "requests", "running", c.n_running,
                  "waiting", c.n_waiting, "away", c.n_preempted, "refused",
                  (json_int_t)c.n_rejected, "tokens", "prompt",
                  (json_int_t)c.n_prompt, "cached", (json_int_t)c.n_cached,
                  "written", (json_int_t)c.n_written, "counts", "steps",
                  (json_int_t)c.n_step, "messages", (json_int_t)c.messages,
                  "message_bytes", (json_int_t)c.message_bytes, "copy_bytes",
                  (json_int_t)c.copy_bytes, "devices", devices_json(v->loop),
                  "cache", cache_json(&c), "slots",
                  slots_json(v->loop, pl_engine_n_ctx(v->engine)));
    service_respond_json(r, j);
}
