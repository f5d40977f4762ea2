/* Implements pl_model and pl_plan. Opens models, and plans without reading
 * weights. */
#include "engine/engine.h"

#include "base/err.h"
#include "fit/fit.h"
#include "plan/options_read.h"
#include "plan/override.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Checks the keys that the caller has overridden. Fails if code that reads a
 * key only after the model is opened rejects its value, or if no code reads the
 * key. */
static pl_status check_overrides(const pl_model *m, pl_err *err)
{
    pl_sampling sampling;
    pl_status s;

    pl_sampling_init(&sampling);
    s = pl_model_sampling(m, &sampling, err);
    if (s != PL_BAD_ARGUMENT)
        s = engine_template_keys(m->file, err);
    return s == PL_BAD_ARGUMENT ? s : gguf_check_overrides(m->file, err);
}

pl_status pl_model_open(pl_model **out, const char *path, pl_err *err)
{
    PL_CLEAR(out);
    PL_NEED(out, err);
    PL_NEED(path, err);
    return pl_model_open_override(out, path, NULL, 0, err);
}

pl_status pl_model_open_override(pl_model **out, const char *path,
                                 const char *const *overrides, int n,
                                 pl_err *err)
{
    pl_model *m;
    pl_status s;

    PL_CLEAR(out);
    PL_NEED(out, err);
    PL_NEED(path, err);
    PL_NEED_ARRAY(overrides, n, err);
    if (n < 0)
        return err_set(err, PL_BAD_ARGUMENT,
                       "pl_model_open_override: n is %d; give 0 or more", n);
    for (int i = 0; i < n; i++)
        PL_NEED(overrides[i], err);
    m = calloc(1, sizeof *m);
    if (!m)
        return err_no_memory(err, "a model");
    s = gguf_open(&m->file, path, err);
    if (s == PL_OK && n > 0)
        s = gguf_override(m->file, overrides, n, err);
    if (s == PL_OK)
        s = model_open(&m->model, m->file, err);
    if (s == PL_OK) {
        s = engine_tokenizer(&m->tokenizer, m->file, err);
        if (s == PL_NOT_FOUND) /* a model without a vocabulary can still be
                                  executed */
            s = PL_OK;
    }
    if (s == PL_OK && n > 0)
        s = check_overrides(m, err);
    if (s == PL_OK)
        *out = m;
    else
        pl_model_free(m);
    return s;
}

void pl_model_free(pl_model *m)
{
    if (!m)
        return;
    engine_tokenizer_free(m->tokenizer);
    model_close(m->model);
    gguf_close(m->file);
    free(m);
}

const char *pl_model_arch(const pl_model *m)
{
    return m ? m->model->family->arch : "";
}

int64_t pl_model_n_vocab(const pl_model *m)
{
    return m ? m->model->n_vocab : 0;
}

int64_t pl_model_n_ctx_train(const pl_model *m)
{
    return m ? m->model->n_ctx_train : 0;
}

int64_t pl_model_d_model(const pl_model *m)
{
    return m ? m->model->d_model : 0;
}

int64_t pl_model_n_mtp(const pl_model *m)
{
    return m ? m->model->n_next : 0;
}

bool pl_model_mtp_normed(const pl_model *m)
{
    return m && m->model->next_normed;
}

pl_pooling pl_model_pooling(const pl_model *m)
{
    return m ? m->model->pooling : PL_POOLING_UNSET;
}

bool pl_model_is_encoder(const pl_model *m)
{
    return m && m->model->encoder;
}

int64_t pl_model_n_label(const pl_model *m)
{
    return m ? m->model->n_label : 0;
}

const pl_tokenizer *pl_model_tokenizer(const pl_model *m)
{
    return m ? m->tokenizer : NULL;
}

/* Logs that the layers for multi-token prediction are not loaded, if the model
 * has any and the options do not use them. They predict tokens after the next
 * one, so the logits of the next token do not depend on them. */
static void tell_unused_layers(const struct model *m, const pl_options *opt)
{
    char text[160];

    if (m->n_next == 0 || opt->mtp > 0 || opt->mtp_texts > 0 || opt->hidden ||
        !opt->log)
        return;
    snprintf(text, sizeof text,
             "%" PRId64 " multi-token prediction layer%s, from blk.%" PRId64
             ", %s not used and not loaded",
             m->n_next, m->n_next > 1 ? "s" : "", m->n_layer,
             m->n_next > 1 ? "are" : "is");
    opt->log(opt->log_user, PL_LOG_INFO, text);
}

/* Logs the keys and tensors of the model's file that plait does not know. */
static void tell_unread(const struct model *m, const pl_options *opt)
{
    if (m->unread && opt->mtp == 0 && opt->log)
        opt->log(opt->log_user, PL_LOG_WARN, m->unread);
}

/* Copies those options that decide bits but are not in the compiled plan,
 * because receipts list them. */
static pl_status keep_options(pl_plan *p, const pl_options *opt, pl_err *err)
{
    p->mtp = opt->mtp;
    p->n_keep = opt->n_keep;
    p->keep = arena_alloc(&p->memory, (size_t)opt->n_keep + 1, sizeof *p->keep);
    if (!p->keep)
        return err_no_memory(err, "a plan");
    for (int i = 0; i < opt->n_keep; i++) {
        p->keep[i] =
            arena_strndup(&p->memory, opt->keep[i], strlen(opt->keep[i]));
        if (!p->keep[i])
            return err_no_memory(err, "a plan");
    }
    return override_layouts(&p->layout, &p->n_layout, &p->memory, opt, err);
}

/* The rows of results of a micro-batch of an encoder, which are at most its
 * tokens: the greatest value of pl_options.n_out. */
enum { ENCODER_N_OUT = 65536 };

/* ---- the block for multi-token prediction -------------------------------- */

pl_options plan_block_options(const pl_plan *p, const pl_options *opt)
{
    /* Texts that ended keep their rows: as many as there are texts, and some.
     * Rows of results are at most so many in a step. */
    enum { MORE = 8, MOST = 4096, ROWS = 64 };
    static const char *const keep[2][1] = {{"result_hidden"}, {"result_norm"}};
    const int n = opt->mtp_texts;
    pl_options o = *opt;

    o.mtp = 1;
    o.mtp_texts = 0;
    o.n_seq = n < (MOST - MORE) / 2 ? 2 * n + MORE : MOST;
    o.n_out = n < ROWS ? n : ROWS;
    o.keep = keep[p->model->model->next_normed];
    o.n_keep = 1;
    o.prefix_cache = false;
    o.hidden = NULL;
    o.trace = NULL;
    o.machines = NULL;
    return o;
}

/* Creates the parts of a plan that fit_create needs: options and graph. */
static pl_status prepare(pl_plan **out, const pl_model *m,
                         const pl_options *opt, pl_err *err)
{
    struct model_graph_options go;
    pl_plan *p = calloc(1, sizeof *p);
    pl_status s;

    *out = p;
    if (!p)
        return err_no_memory(err, "a plan");
    p->model = m;
    p->cache_k = opt->cache_set ? opt->cache_k : PL_F16;
    p->cache_v = opt->cache_set ? opt->cache_v : PL_F16;
    p->numerics = opt->numerics;
    go = (struct model_graph_options){.cache_k = p->cache_k,
                                      .cache_v = p->cache_v,
                                      .mtp = opt->mtp,
                                      .n_ctx = opt->n_ctx,
                                      .hidden_rows =
                                          opt->hidden || opt->mtp_texts > 0,
                                      .numerics = p->numerics};
    s = keep_options(p, opt, err);
    if (s == PL_OK)
        s = pl_graph_create(&p->graph, err);
    if (s == PL_OK)
        s = model_graph(m->model, p->graph, &go, err);
    return s == PL_OK ? engine_keep(p->graph, opt, err) : s;
}

/* Chooses what the options leave open, and compiles. */
static pl_status compile(pl_plan *p, const pl_options *opt, pl_err *err)
{
    const pl_options block_opt = plan_block_options(p, opt);
    struct fit_graphs g = {.model = p->graph,
                           .block_opt = &block_opt,
                           .n_ctx_train = p->model->model->n_ctx_train};
    struct fit_plan made;
    pl_status s;

    if (opt->mtp_texts > 0) {
        PL_TRY(prepare(&p->block, p->model, &block_opt, err));
        g.block = p->block->graph;
    }
    s = fit_create(&made, &g, opt, err);
    p->compiled = made.model;
    p->options = made.text;
    p->n_ctx = made.n_ctx;
    if (p->block) {
        p->block->compiled = made.block;
        p->block->n_ctx = made.n_ctx;
        p->block->options = made.text ? strdup(made.text) : NULL;
        if (s == PL_OK && !p->block->options)
            s = err_no_memory(err, "a plan");
    }
    for (pl_plan *x = p; x && s == PL_OK; x = x->block) {
        s = fit_offload(x->compiled, opt->offload, err);
        if (s == PL_OK)
            s = compiled_check_kernels(x->compiled, err);
    }
    return s;
}

pl_status pl_plan_create(pl_plan **out, const pl_model *m,
                         const pl_options *opt, pl_err *err)
{
    pl_options own;
    pl_plan *p;
    pl_status s;

    PL_CLEAR(out);
    PL_NEED(out, err);
    PL_NEED(m, err);
    PL_TRY(options_read(&own, opt, err));
    opt = &own;
    /* A text is computed in one micro-batch, and each of its rows may be
     * wanted. */
    if (m->model->encoder && own.n_out == 0)
        own.n_out = ENCODER_N_OUT;
    s = prepare(&p, m, opt, err);
    if (s == PL_OK)
        s = compile(p, opt, err);
    if (s == PL_OK) {
        tell_unused_layers(m->model, opt);
        tell_unread(m->model, opt);
        *out = p;
    } else {
        pl_plan_free(p);
    }
    return s;
}

void pl_plan_free(pl_plan *p)
{
    if (p && !p->borrowed)
        plan_free(p);
}

void plan_free(pl_plan *p)
{
    if (!p)
        return;
    plan_free(p->block);
    compiled_free(p->compiled);
    pl_graph_free(p->graph);
    free(p->options);
    arena_fini(&p->memory);
    free(p);
}

const char *pl_plan_options(const pl_plan *p)
{
    return p ? p->options : "";
}

pl_status pl_plan_dump(const pl_plan *p, const char *pass, pl_write_fn *write,
                       void *user, pl_err *err)
{
    const struct lower_dump dump = {pass, write, user};

    PL_NEED(p, err);
    PL_NEED(pass, err);
    PL_NEED(write, err);
    return compiled_dump(p->compiled, &dump, err);
}
