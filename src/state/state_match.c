/* Describes an engine in the head of a saved state, and decides if an engine
 * can restore a state with a given head.
 *
 * A model is identified by a hash of its hyper-parameters and of the name,
 * shape, format and bytes of each tensor (engine/model_sum.h). So a model that
 * was quantized to another format, fine-tuned or changed in place is another
 * model. The name of the file, its division into several files, and the texts
 * of the vocabulary do not matter. A state that only its own engine restores
 * has the random id of that engine instead (engine.mark), so that the weights
 * need not be read. */
#include "state/state_io.h"

#include "base/err.h"
#include "plan/diagnostics.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static bool of_the_graph(const pl_model *m, const char *key)
{
    size_t n = strlen(m->model->family->arch);

    return strncmp(key, m->model->family->arch, n) == 0 && key[n] == '.';
}

/* Returns a hash of the model's hyper-parameters: the keys of the file that
 * begin with the architecture's name. It is a sum of one hash per key, so that
 * the order of keys in the file does not matter. */
static uint64_t hash_keys(const pl_model *m)
{
    uint64_t sum = 0;

    for (int64_t i = 0; i < gguf_n_kv(m->file); i++) {
        const struct gguf_kv *kv = gguf_kv_at(m->file, i);
        uint64_t h;

        if (!of_the_graph(m, kv->key))
            continue;
        h = hash64(kv->count, kv->key, strlen(kv->key));
        for (uint64_t k = 0; k < kv->count; k++) {
            struct gguf_str s;
            double v;
            bool is;

            if (gguf_as_str(kv, k, &s))
                h = hash64(h, s.s, s.len);
            else if (gguf_as_f64(kv, k, &v))
                h = hash64(h, &v, sizeof v);
            else if (gguf_as_bool(kv, k, &is))
                h = hash64(h, &is, sizeof is);
        }
        sum += h;
    }
    return sum;
}

pl_status state_model_hash(uint64_t *out, pl_engine *e, pl_err *err)
{
    const pl_model *m = e->plan->model;
    const char *arch = m->model->family->arch;
    uint64_t parts[2];

    PL_TRY(engine_sum(e, NULL, err));
    parts[0] = hash_keys(m);
    parts[1] = e->weights;
    *out = hash64(hash64(0, arch, strlen(arch)), parts, sizeof parts);
    return PL_OK;
}

pl_status state_lasts(struct state_head *h, pl_engine *e, pl_err *err)
{
    h->aside = false;
    return state_model_hash(&h->model, e, err);
}

pl_status state_describe(struct state_head *h, struct arena *a, pl_engine *e,
                         pl_err *err)
{
    const pl_graph *g = e->plan->graph;
    const pl_model *m = e->plan->model;
    struct gguf_str name = {0};

    *h = (struct state_head){.model = e->mark,
                             .aside = true,
                             .numeric = e->plan->compiled->numeric_hash,
                             .n_vocab = m->model->n_vocab,
                             .n_rank = e->plan->compiled->num->n_rank};
    if (gguf_get_str(m->file, "general.name", &name, NULL) != PL_OK || !name.s)
        name = (struct gguf_str){"", 0};
    snprintf(h->name, sizeof h->name, "%s, %" PRId64 " layers%s%.*s",
             m->model->family->arch, m->model->n_layer, name.len ? ", " : "",
             name.len < STATE_NAME ? (int)name.len : STATE_NAME, name.s);
    for (char *c = h->name; *c; c++)
        *c = *c < ' ' || *c > '~' ? '?' : *c;
    h->cache = arena_alloc(a, (size_t)g->n_node + 1, sizeof *h->cache);
    if (!h->cache)
        return err_no_memory(err, "the header of a state");
    for (int i = 0; i < g->n_node; i++) {
        const struct graph_node *n = &g->node[i];

        if (n->op == OP_memory)
            h->cache[h->n_cache++] =
                (struct state_cache){.layer = n->layer,
                                     .values = n->attr.values,
                                     .state = n->attr.state,
                                     .format = n->format,
                                     .n_head = n->dim[1].n,
                                     .d_head = n->dim[2].n,
                                     .window = n->attr.window};
    }
    return PL_OK;
}

static bool same_shapes(const struct state_head *a, const struct state_head *b)
{
    bool same = a->n_cache == b->n_cache && a->n_vocab == b->n_vocab;

    for (int i = 0; same && i < a->n_cache; i++)
        same = a->cache[i].layer == b->cache[i].layer &&
               a->cache[i].values == b->cache[i].values &&
               a->cache[i].state == b->cache[i].state &&
               a->cache[i].n_head == b->cache[i].n_head &&
               a->cache[i].d_head == b->cache[i].d_head &&
               a->cache[i].window == b->cache[i].window;
    return same;
}

/* Writes the cache formats of the first layer's keys and values to `buf`, such
 * as "F16/Q8_0". For a cache of latents, which has no keys, writes one format,
 * such as "F16". */
static const char *formats(const struct state_head *h, char buf[32])
{
    const char *k = NULL, *v = "?";

    for (int i = h->n_cache - 1; i >= 0; i--)
        if (!h->cache[i].state)
            *(h->cache[i].values ? &v : &k) =
                format_info(h->cache[i].format)->name;
    snprintf(buf, 32, "%s%s%s", k ? k : "", k ? "/" : "", v);
    return buf;
}

pl_status state_match(const struct state_head *theirs,
                      const struct state_head *ours, bool allowed,
                      bool *convert, pl_err *err)
{
    char a[32], b[32];

    *convert = false;
    if (theirs->aside && theirs->model != ours->model)
        return err_set(err, PL_BAD_ARGUMENT,
                       "the state was swapped out by another engine, of %s; to "
                       "share states, save them (pl_state_save)",
                       theirs->name);
    if (theirs->model != ours->model || !same_shapes(theirs, ours))
        return err_set(err, PL_BAD_ARGUMENT,
                       "the state is of another model: %s (%016" PRIx64
                       "); this is %s (%016" PRIx64
                       "). Load the model it was saved from",
                       theirs->name, theirs->model, ours->name, ours->model);
    for (int i = 0; i < ours->n_cache; i++)
        *convert |= theirs->cache[i].format != ours->cache[i].format;
    if (*convert && !allowed)
        return err_set(err, PL_BAD_ARGUMENT,
                       "the state's cache is %s, this one's %s; allow "
                       "conversion (--convert, PL_STATE_CONVERT), or use the "
                       "state's formats (-ctk, -ctv)",
                       formats(theirs, a), formats(ours, b));
    return PL_OK;
}

void state_note(const pl_engine *e, const struct state_head *theirs,
                const struct state_head *ours, bool converted)
{
    struct arena mem = {0};
    struct notes notes = {.a = &mem};
    char a[32], b[32];

    if (converted)
        diag_add(&notes, PL_LOG_WARN,
                 "the state's cache was converted from %s to %s",
                 formats(theirs, a), formats(ours, b));
    if (theirs->n_rank != ours->n_rank)
        diag_add(&notes, PL_LOG_WARN,
                 "the state was computed with %d rank%s, this engine has %d; "
                 "its positions keep their bits",
                 theirs->n_rank, theirs->n_rank > 1 ? "s" : "", ours->n_rank);
    else if (!converted && theirs->numeric != ours->numeric)
        diag_add(&notes, PL_LOG_WARN,
                 "the state was computed with other numerics (%016" PRIx64
                 ", this engine has %016" PRIx64
                 "); its positions keep their bits",
                 theirs->numeric, ours->numeric);
    diag_emit(&notes, e->log, e->log_user);
    arena_fini(&mem);
}
