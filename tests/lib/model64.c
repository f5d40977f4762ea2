/* Evaluates models in double precision; model64.h describes the functions. */
#include "lib/model64.h"

#include <stdlib.h>
#include <string.h>

/* Sets the value of a weight. It may consist of several tensors of the file,
 * which are joined. */
static void set_weight(struct model64 *r, int node)
{
    const char *name = r->g->node[node].name;
    int64_t n = model_weight_parts(r->m, name);
    size_t bytes = model_weight_part(r->m, name, 0)->bytes;
    char *all = test_need((size_t)n, bytes);

    for (int64_t i = 0; i < n; i++)
        memcpy(all + (size_t)i * bytes, model_weight_part(r->m, name, i)->data,
               bytes);
    eval64_weight(r->e, node, all);
    free(all);
}

static void open_graph(struct model64 *r, const char *path, int64_t block,
                       bool hidden_rows)
{
    const struct model_graph_options opt = {.cache_k = PL_F32,
                                            .cache_v = PL_F32,
                                            .n_ctx = REF_CTX,
                                            .mtp = block,
                                            .hidden_rows = hidden_rows};
    pl_err err;

    memset(r, 0, sizeof *r);
    TEST_OK(gguf_open(&r->file, path, &err), err);
    TEST_OK(model_open(&r->m, r->file, &err), err);
    TEST_OK(pl_graph_create(&r->g, &err), err);
    TEST_OK(model_graph(r->m, r->g, &opt, &err), err);
    r->e = eval64_create(r->g, 1, REF_MAX_TOK);
    for (int i = 0; i < r->g->n_node; i++)
        if (r->g->node[i].op == OP_weight)
            set_weight(r, i);
}

void model64_open(struct model64 *r, const char *path)
{
    open_graph(r, path, 0, false);
}

void model64_open_block(struct model64 *r, const char *path, int64_t block)
{
    open_graph(r, path, block, block == 0);
}

void model64_close(struct model64 *r)
{
    eval64_free(r->e);
    pl_graph_free(r->g);
    model_close(r->m);
    gguf_close(r->file);
}

static void set(struct model64 *r, const char *name, const int32_t *v,
                const struct eval_rows *rows)
{
    struct eval_value *x = eval64_input(r->e, pl_tensor_find(r->g, name), rows);

    for (int64_t i = 0; i < x->n; i++)
        x->x[i] = v[i];
}

/* Evaluates n tokens. `hidden` is NULL unless the graph is a block's. */
static const double *step(struct model64 *r, const int32_t *id,
                          const double *hidden, int pos, int n)
{
    int32_t at[REF_MAX_TOK], seq[REF_MAX_TOK] = {0};
    int32_t row[REF_MAX_TOK];
    const struct eval_rows rows = {n, n, REF_MAX_TOK, at, seq};

    assert_in_range(pos + n, 1, REF_MAX_TOK);
    for (int i = 0; i < n; i++) {
        at[i] = pos + i;
        row[i] = i;
    }
    set(r, "ids", id, &rows);
    set(r, "pos", at, &rows);
    set(r, "out_ids", row, &rows);
    if (hidden) {
        struct eval_value *x =
            eval64_input(r->e, pl_tensor_find(r->g, "hidden"), &rows);

        memcpy(x->x, hidden, (size_t)x->n * sizeof *x->x);
    }
    eval64_step(r->e, &rows);
    return r->e->value[pl_tensor_find(r->g, "logits")].x;
}

const double *model64_step(struct model64 *r, const int32_t *id, int pos, int n)
{
    return step(r, id, NULL, pos, n);
}

const double *model64_block(struct model64 *r, const int32_t *id,
                            const double *hidden, int n)
{
    return step(r, id, hidden, 0, n);
}

void model64_sequence(struct model64 *r, const struct ref_seq *s, double *x)
{
    int64_t v = r->m->n_vocab;

    for (int at = 0, n = s->n_prompt; at < s->n; at += n, n = 1)
        memcpy(x + at * v, model64_step(r, s->id + at, at, n),
               (size_t)(n * v) * sizeof *x);
}
