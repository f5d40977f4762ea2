/* Prints the plan as one JSON object, with all tensors and exact sizes in
 * bytes. */
#include "report/plan_facts.h"
#include "report/plan_links.h"

#include "cost/cost.h"
#include "device/device_ops.h"
#include "graph/shape.h"
#include "plan/roles.h"
#include "report/writer.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static bool append(json_t *to, json_t *what)
{
    return json_array_append_new(to, what) == 0;
}

static json_t *if_ok(json_t *j, bool ok)
{
    if (ok)
        return j;
    json_decref(j);
    return NULL;
}

static json_t *json_use(const struct cost_use *u)
{
    return json_pack("{s:f, s:f, s:f, s:f, s:f}", "busy_s", u->busy_s,
                     "message_s", u->collective_s, "copy_s", u->copy_s,
                     "hidden_s", u->hidden_s, "idle_s", u->idle_s);
}

static json_t *json_devices(const struct compiled *q,
                            const struct plan_facts *f)
{
    json_t *all = json_array();
    bool ok = true;

    for (int d = 0; d < f->n_dev; d++) {
        json_t *ranks = json_array();
        bool filled = true;
        int rank0, n_rank;

        compiled_ranks(q, d, &rank0, &n_rank);
        for (int r = 0; r < n_rank; r++)
            filled &= append(ranks, json_integer(rank0 + r));
        ok &= append(
            all,
            json_pack("{s:s, s:s, s:b, s:o, s:i, s:I, s:I, s:{s:I, s:I, s:I}, "
                      "s:{s:o, s:o}}",
                      "name", q->list.dev[d].name, "kind",
                      q->list.dev[d].ops->name, "accelerator",
                      q->list.dev[d].accelerator, "ranks", if_ok(ranks, filled),
                      "threads", q->list.dev[d].n_thread, "memory",
                      (json_int_t)q->list.dev[d].memory_bytes, "available",
                      (json_int_t)q->list.dev[d].available_bytes, "bytes",
                      "weights", (json_int_t)f->dev[d].weights, "cache",
                      (json_int_t)f->dev[d].cache, "buffers",
                      (json_int_t)f->dev[d].buffers, "predicted", "prefill",
                      json_use(&f->prefill.use[d]), "decode",
                      json_use(&f->decode.use[d])));
    }
    return if_ok(all, ok);
}

static json_t *json_members(const struct compiled *q,
                            const struct place_group *g)
{
    json_t *all = json_array();
    bool ok = true;

    for (int k = 0; k < g->n; k++) {
        const struct place_member *m = &q->place.member[g->first + k];

        ok &= append(all, json_pack("{s:s, s:i, s:i}", "device",
                                    q->list.dev[m->dev].name, "rank0", m->rank0,
                                    "n_rank", m->n_rank));
    }
    return if_ok(all, ok);
}

static json_t *json_groups(const struct compiled *q)
{
    const struct placement *y = &q->place;
    json_t *all = json_array();
    bool ok = true;

    for (int i = 0; i < y->n_group; i++) {
        json_t *layers = json_array();
        bool filled = true;

        for (int k = 0; k < y->n_layer; k++)
            if (y->layer_group[k] == i)
                filled &= append(layers, json_integer(k));
        ok &= append(all, json_pack("{s:s, s:o, s:o, s:b, s:b, s:b}", "name",
                                    y->group[i].name, "members",
                                    json_members(q, &y->group[i]), "layers",
                                    if_ok(layers, filled), "embedding",
                                    y->input_group == i, "output",
                                    y->layer_group[y->n_layer] == i, "host",
                                    y->host == i));
    }
    return if_ok(all, ok);
}

/* Appends the copies between groups that a variant makes to a JSON array. The
 * member "bytes" of a copy is its size for one token; if "per" is "past", it is
 * the size for one token in the cache. */
static bool json_copies(json_t *all, const struct compiled *q,
                        enum compiled_variant variant, const char *name)
{
    const struct graph_sizes one = {.n_tok = 1, .n_out = 1, .n_seq = 1};
    const struct lowered_copy *c;
    bool ok = true;
    int n;

    c = plan_copies(q, variant, &n);
    for (int k = 0; k < n; k++)
        ok &= append(
            all, json_pack("{s:s, s:s, s:s, s:i, s:I, s:s, s:s}", "from",
                           q->place.group[c[k].from].name, "to",
                           q->place.group[c[k].to].name, "name",
                           q->g->node[q->num->node[c[k].node].node].name,
                           "layer", c[k].layer, "bytes",
                           (json_int_t)plan_bytes_at(c[k].bytes, &one), "per",
                           c[k].pages ? "past" : plan_bytes_symbol(c[k].bytes),
                           "script", name));
    return ok;
}

static json_t *json_all_copies(const struct compiled *q)
{
    json_t *all = json_array();
    bool ok = json_copies(all, q, VARIANT_RESIDENT, "plain");

    return if_ok(all, ok && json_copies(all, q, VARIANT_STREAMED, "stream"));
}

static json_t *json_pipeline(const struct plan_pipeline *y)
{
    return y->n == 0 ? json_null()
                     : json_pack("{s:i, s:I, s:f, s:f}", "micro_batches", y->n,
                                 "tokens_each", (json_int_t)y->n_tok, "seconds",
                                 y->seconds, "one_by_one_s", y->one_by_one_s);
}

/* Returns a JSON array of the layers that read a cache or state, each layer
 * once. */
static json_t *json_readers(const struct compiled *q,
                            const struct graph_node *memory)
{
    const pl_graph *g = q->g;
    json_t *all = json_array();
    int last = -2; /* the layer added last; nodes are in the order of layers, so
                      comparing with it avoids duplicates */
    bool ok = true;

    for (int i = 0; i < g->n_node; i++) {
        const struct graph_node *n = &g->node[i];

        for (int k = 0; k < n->n_in && n->layer != last; k++) {
            int m = n->in[k] < 0 ? -1 : graph_memory(g, n->in[k]);

            if (m < 0 || &g->node[m] != memory || graph_memory(g, i) >= 0)
                continue;
            last = n->layer;
            ok &= append(all, json_integer(last));
        }
    }
    return if_ok(all, ok);
}

static json_t *json_tensor(const struct compiled *q, const struct plan_facts *f,
                           const struct plan_tensor *t)
{
    json_t *shape = json_array(), *bytes = json_array(), *all;
    bool ok = true;

    for (int i = 0; i < t->node->n_dim; i++)
        ok &=
            append(shape, dim_pool(t->node->dim[i]) >= 0
                              ? json_string(dim_symbols[t->node->dim[i].symbol])
                              : json_integer(t->node->dim[i].n));
    for (int d = 0; d < f->n_dev; d++)
        ok &= append(bytes, json_integer((json_int_t)t->bytes[d]));
    all = json_pack("{s:s, s:s, s:i, s:s, s:s, s:o, s:s, s:o}", "name",
                    t->node->name, "role", role_name(t->node->role), "layer",
                    t->node->layer, "group", q->place.group[t->group].name,
                    "format", format_info(t->node->format)->name, "shape",
                    if_ok(shape, ok), "layout", t->layout, "bytes",
                    if_ok(bytes, ok));
    if (t->node->op == OP_memory)
        ok = json_object_set_new(all, "window",
                                 json_integer(t->node->attr.window)) == 0 &&
             json_object_set_new(all, "state",
                                 json_boolean(t->node->attr.state)) == 0 &&
             json_object_set_new(all, "readers", json_readers(q, t->node)) == 0;
    return if_ok(all, ok);
}

static json_t *json_tensors(const struct compiled *q,
                            const struct plan_facts *f, enum op op)
{
    json_t *all = json_array();
    bool ok = true;

    for (int i = 0; i < f->n_tensor; i++)
        if (f->tensor[i].node->op == op)
            ok &= append(all, json_tensor(q, f, &f->tensor[i]));
    return if_ok(all, ok);
}

static json_t *json_collectives(const struct lowered *low)
{
    json_t *all = json_array();
    bool ok = true;

    for (int m = 0; m < low->variant->n_collective; m++) {
        const struct lowered_collective *x = &low->variant->collective[m];
        const struct graph_sizes one = {.n_tok = 1, .n_out = 1, .n_seq = 1};

        ok &= append(all, json_pack("{s:i, s:s, s:i, s:I, s:s}", "layer",
                                    x->layer, "kind", num_kind_name(x->kind),
                                    "items", x->n_item, "bytes",
                                    (json_int_t)plan_bytes_at(x->bytes, &one),
                                    "per", plan_bytes_symbol(x->bytes)));
    }
    return if_ok(all, ok);
}

static json_t *json_estimate(const struct plan_estimate *e)
{
    static const char *const basis[] = {
        [PLAN_CALIBRATED] = "calibrated",
        [PLAN_ASSUMED] = "assumed",
        [PLAN_DESCRIBED] = "described",
    };
    static const struct {
        unsigned bit;
        const char *name;
    } guesses[] = {
        {COST_GUESSED_FLOPS, "flops"},
        {COST_GUESSED_LINK, "link"},
        {COST_GUESSED_LATENCY, "latency"},
    };
    json_t *guessed = json_array();
    bool ok = true;

    for (size_t i = 0; i < sizeof guesses / sizeof guesses[0]; i++)
        if (e->guessed & guesses[i].bit)
            ok &= append(guessed, json_string(guesses[i].name));
    return json_pack("{s:f, s:f, s:I, s:I, s:s, s:o}", "prefill_tps",
                     e->prefill_tps, "decode_tps", e->decode_tps,
                     "prefill_tokens", (json_int_t)e->n_prompt, "decode_past",
                     (json_int_t)e->n_past, "basis", basis[e->basis], "guessed",
                     if_ok(guessed, ok));
}

/* Returns a JSON array of the keys that the caller has overridden, as texts
 * KEY=TYPE:VALUE. */
static json_t *json_overrides(const struct gguf *g)
{
    json_t *all = json_array();
    bool ok = true;

    for (int64_t i = 0; i < gguf_n_kv(g); i++) {
        const struct gguf_kv *kv = gguf_kv_at(g, i);
        char value[80];

        if (kv->overridden)
            ok &= append(all, json_sprintf("%s=%s:%s", kv->key,
                                           gguf_override_type(kv),
                                           gguf_value_text(kv, value)));
    }
    return if_ok(all, ok);
}

pl_status plan_print_json(const pl_plan *p, const struct plan_facts *f,
                          const struct sink *to, pl_err *err)
{
    const struct compiled *q = p->compiled;
    char hash[20];

    snprintf(hash, sizeof hash, "%016" PRIx64, q->numeric_hash);
    return sink_json(
        to,
        json_pack(
            "{s:s, s:o, s:o, s:s, s:s, s:i, s:s, s:I, s:I, s:I, s:o, s:{s:I}, "
            "s:o, "
            "s:o, s:o, "
            "s:o, "
            "s:{s:i, s:I, s:o}, s:o, s:o, s:o}",
            "arch", pl_model_arch(p->model), "overrides",
            json_overrides(p->model->file), "options",
            sink_json_text(p->options, strlen(p->options)), "numeric_hash",
            hash, "numerics",
            p->numerics == PL_NUMERICS_FAST ? "fast" : "exact", "n_ranks",
            q->place.n_rank, "kernels", kernel_set_name(q->kernel_set), "n_ctx",
            (json_int_t)p->n_ctx, "n_ubatch", (json_int_t)q->max.n_tok,
            "stream_from",
            (json_int_t)(q->variant[VARIANT_STREAMED] >= 0 ? q->stream_from
                                                           : 0),
            "devices", json_devices(q, f), "io", "buffers",
            (json_int_t)f->io_buffers, "groups", json_groups(q), "copies",
            json_all_copies(q), "tensors", json_tensors(q, f, OP_weight),
            "caches", json_tensors(q, f, OP_memory), "collectives", "per_token",
            q->low->variant->n_collective, "bytes_per_token",
            (json_int_t)f->token_bytes, "layers", json_collectives(q->low),
            "estimate", json_estimate(&f->estimate), "pipeline",
            json_pipeline(&f->pipeline), "links", plan_json_links(p, f)),
        "the description of a plan", err);
}
