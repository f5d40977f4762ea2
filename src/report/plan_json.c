/* Prints the plan as one JSON object, with all tensors and exact sizes in
 * bytes. */
#include "report/plan_facts.h"
#include "report/plan_links.h"
#include "report/plan_network.h"

#include "cost/cost.h"
#include "device/device_ops.h"
#include "graph/shape.h"
#include "plan/roles.h"
#include "report/writer.h"

#include <inttypes.h>
#include <stdio.h>

static void put_use(struct json_out *j, const char *key,
                    const struct cost_use *u)
{
    json_put(j, "*:{busy_s:f message_s:f copy_s:f hidden_s:f idle_s:f}", key,
             u->busy_s, u->collective_s, u->copy_s, u->hidden_s, u->idle_s);
}

static void put_devices(struct json_out *j, const struct compiled *q,
                        const struct plan_facts *f)
{
    for (int d = 0; d < f->n_dev; d++) {
        const struct device_desc *x = &q->list.dev[d];
        const struct plan_device *v = &f->dev[d];
        int rank0, n_rank;

        compiled_ranks(q, d, &rank0, &n_rank);
        json_put(j, "{name:s kind:s machine:i accelerator:b ranks:[", x->name,
                 x->ops->name, x->machine, x->accelerator);
        for (int r = 0; r < n_rank; r++)
            json_put(j, "i", rank0 + r);
        json_put(j,
                 "] threads:i memory:I available:I"
                 " bytes:{weights:I cache:I buffers:I block:I} predicted:{",
                 x->n_thread, x->memory_bytes, x->available_bytes, v->weights,
                 v->cache, v->buffers, v->block);
        put_use(j, "prefill", &f->prefill.use[d]);
        put_use(j, "decode", &f->decode.use[d]);
        json_put(j, "}}");
    }
}

static void put_groups(struct json_out *j, const struct compiled *q,
                       const struct plan_facts *f)
{
    const struct placement *y = &q->place;

    for (int i = 0; i < y->n_group; i++) {
        const struct place_member *m = &y->member[y->group[i].first];

        json_put(j, "{name:s members:[", y->group[i].name);
        for (int k = 0; k < y->group[i].n; k++)
            json_put(j, "{device:s rank0:i n_rank:i}",
                     q->list.dev[m[k].dev].name, m[k].rank0, m[k].n_rank);
        json_put(j, "] layers:[");
        for (int k = 0; k < y->n_layer; k++)
            if (y->layer_group[k] == i && plan_next_tensor(f, 0, k) >= 0)
                json_put(j, "i", k);
        json_put(j, "] embedding:b output:b host:b}", y->input_group == i,
                 y->layer_group[y->n_layer] == i, y->host == i);
    }
}

/* Writes the copies between groups that a variant makes. The member "bytes" of
 * a copy is its size for one token; if "per" is "past", it is the size for one
 * token in the cache. */
static void put_copies(struct json_out *j, const struct compiled *q,
                       const struct plan_copies *all, const char *name)
{
    for (const struct lowered_copy *c = all->v; c < plan_copies_end(all); c++)
        json_put(j, "{from:s to:s name:s layer:i bytes:I per:s script:s}",
                 q->place.group[c->from].name, q->place.group[c->to].name,
                 q->g->node[q->num->node[c->node].node].name, c->layer,
                 plan_bytes(c->bytes),
                 c->pages ? "past" : plan_bytes_symbol(c->bytes), name);
}

/* Writes the layers that read a cache or state, each layer once. */
static void put_readers(struct json_out *j, const pl_graph *g,
                        const struct graph_node *memory)
{
    int last = -2; /* the layer written last; nodes are in the order of layers,
                      so comparing with it avoids duplicates */

    for (int i = 0; i < g->n_node; i++) {
        const struct graph_node *n = &g->node[i];

        for (int k = 0; k < n->n_in && n->layer != last; k++) {
            int m = n->in[k] < 0 ? -1 : graph_memory(g, n->in[k]);

            if (m < 0 || &g->node[m] != memory || graph_memory(g, i) >= 0)
                continue;
            last = n->layer;
            json_put(j, "i", last);
        }
    }
}

static void put_tensors(struct json_out *j, const struct compiled *q,
                        const struct plan_facts *f, enum op op)
{
    for (int i = 0; i < f->n_tensor; i++) {
        const struct plan_tensor *t = &f->tensor[i];
        const struct graph_node *n = t->node;

        if (n->op != op)
            continue;
        json_put(j, "{name:s role:s layer:i group:s format:s shape:[", n->name,
                 role_name(n->role), n->layer, q->place.group[t->group].name,
                 format_info(n->format)->name);
        for (int k = 0; k < n->n_dim; k++)
            if (dim_pool(n->dim[k]) >= 0)
                json_put(j, "s", dim_symbols[n->dim[k].symbol]);
            else
                json_put(j, "I", n->dim[k].n);
        json_put(j, "] layout:s bytes:[", t->layout);
        for (int d = 0; d < f->n_dev; d++)
            json_put(j, "I", t->bytes[d]);
        json_put(j, "]");
        if (op == OP_memory) {
            json_put(j, "window:I state:b readers:[", n->attr.window,
                     n->attr.state);
            put_readers(j, q->g, n);
            json_put(j, "]");
        }
        json_put(j, "}");
    }
}

static void put_collectives(struct json_out *j, const struct lowered *low)
{
    for (int m = 0; m < low->variant->n_collective; m++) {
        const struct lowered_collective *x = &low->variant->collective[m];

        json_put(j, "{layer:i kind:s items:i bytes:I per:s}", x->layer,
                 num_kind_name(x->kind), x->n_item, plan_bytes(x->bytes),
                 plan_bytes_symbol(x->bytes));
    }
}

static void put_estimate(struct json_out *j, const struct plan_estimate *e)
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
        {COST_GUESSED_NETWORK, "network"},
    };

    json_put(j,
             "estimate:{prefill_tps:f decode_tps:f prefill_tokens:I"
             " decode_past:I basis:s guessed:[",
             e->prefill_tps, e->decode_tps, e->n_prompt, e->n_past,
             basis[e->basis]);
    for (size_t i = 0; i < sizeof guesses / sizeof guesses[0]; i++)
        if (e->guessed & guesses[i].bit)
            json_put(j, "s", guesses[i].name);
    json_put(j, "]}");
}

/* Writes the keys that the caller has overridden, as texts KEY=TYPE:VALUE. */
static void put_overrides(struct json_out *j, const struct gguf *g)
{
    for (int64_t i = 0; i < gguf_n_kv(g); i++) {
        const struct gguf_kv *kv = gguf_kv_at(g, i);
        char value[80], text[512];

        if (!kv->overridden)
            continue;
        snprintf(text, sizeof text, "%s=%s:%s", kv->key, gguf_override_type(kv),
                 gguf_value_text(kv, value));
        json_put(j, "s", text);
    }
}

/* Writes the members of a plan's object. */
static void put_plan(struct json_out *j, const pl_plan *p,
                     const struct plan_facts *f)
{
    const struct compiled *q = p->compiled;
    const struct plan_pipeline *y = &f->pipeline;
    char hash[20];

    snprintf(hash, sizeof hash, "%016" PRIx64, q->numeric_hash);
    json_put(j, "arch:s overrides:[", pl_model_arch(p->model));
    put_overrides(j, p->model->file);
    json_put(
        j,
        "] options:s numeric_hash:s numerics:s n_ranks:i kernels:s"
        " n_ctx:I n_ubatch:I stream_from:I devices:[",
        p->options, hash, p->numerics == PL_NUMERICS_FAST ? "fast" : "exact",
        q->place.n_rank, kernel_set_name(q->kernel_set), p->n_ctx, q->max.n_tok,
        (int64_t)(q->variant[VARIANT_STREAMED] >= 0 ? q->variants.stream_from
                                                    : 0));
    put_devices(j, q, f);
    json_put(j, "] io:{buffers:I} groups:[", f->io.buffers);
    put_groups(j, q, f);
    json_put(j, "] copies:[");
    put_copies(j, q, &f->copies[VARIANT_RESIDENT], "plain");
    put_copies(j, q, &f->copies[VARIANT_STREAMED], "stream");
    json_put(j, "] tensors:[");
    put_tensors(j, q, f, OP_weight);
    json_put(j, "] caches:[");
    put_tensors(j, q, f, OP_memory);
    json_put(j, "] collectives:{per_token:i bytes_per_token:I layers:[",
             q->low->variant->n_collective, f->token_bytes);
    put_collectives(j, q->low);
    json_put(j, "]}");
    put_estimate(j, &f->estimate);
    if (y->n == 0)
        json_put(j, "pipeline:n links:[");
    else
        json_put(j,
                 "pipeline:{micro_batches:i tokens_each:I seconds:f"
                 " one_by_one_s:f} links:[",
                 y->n, y->n_tok, y->seconds, y->one_by_one_s);
    plan_put_links(p, f, j);
    json_put(j, "] networks:[");
    plan_put_networks(p, f, j);
    json_put(j, "]");
}

void plan_print_json(const pl_plan *p, const struct plan_facts *f,
                     const struct plan_facts *block, const struct sink *to)
{
    struct json_out j = {.to = to};

    json_put(&j, "{");
    put_plan(&j, p, f);
    if (p->block) {
        json_put(&j, "block:{");
        put_plan(&j, p->block, block);
        json_put(&j, "}}");
    } else {
        json_put(&j, "block:n}");
    }
}
