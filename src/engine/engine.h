/* The objects behind pl.h's models, plans and engines. */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include "exec/exec.h"
#include "gguf/gguf.h"
#include "kv/prefix.h"
#include "model/model.h"
#include "tokenizer/tokenizer.h"

struct token_texts;

struct pl_model {
    struct gguf *file;
    struct model *model;
    pl_tokenizer *tokenizer; /* NULL: the file has none */
};

/* Creates a model's tokenizer, which pl_tokenizer_free does not free. NOT_FOUND
 * if the file has no vocabulary. */
pl_status engine_tokenizer(pl_tokenizer **out, const struct gguf *file,
                           pl_err *err);

void engine_tokenizer_free(pl_tokenizer *t);

const struct tokenizer *engine_words(const pl_tokenizer *t);
/* Returns the token texts that its grammars share. */
struct token_texts *engine_texts(const pl_tokenizer *t);

struct pl_plan {
    const pl_model *model; /* borrowed */
    pl_graph *graph;
    struct compiled *compiled;
    pl_format cache_k, cache_v;
    pl_numerics numerics;
    int64_t n_ctx;
    bool borrowed; /* belongs to an engine: pl_plan_free does nothing */
    char *options; /* owned; they reproduce it */
};

struct pl_engine {
    pl_plan *plan;
    pl_exec *exec;
    struct kv kv;
    pl_log_fn *log;
    void *log_user;
    uint64_t weights; /* model_sum's, for persistent states, if has_weights */
    bool has_weights;
    uint64_t mark; /* unique to this engine, for other states */
    pl_tensor ids, pos, out_ids, logits;
    pl_tensor hidden, hidden_out, norm_out; /* -1: not in the graph, or not
                                               kept */
    int n_micro;                            /* the most micro-batches of a
                                               step */
    struct micro *micro;                    /* owned, [n_micro] */
    int n_batch_seq;                        /* sequences of the last batch */
    int *batch_seq;                         /* owned, [n_seq] */
    struct batch_seq *of;                   /* owned, [n_seq] the batch's tokens
                                               of each */
    uint64_t n_set;                         /* pl_exec's, when the first cached
                                               prefix was computed */
};

/* Implements pl_plan_free, also for an engine's plan. */
void plan_free(pl_plan *p);

/* batch.c: tables of batches, and the cache's pages. */
pl_status batch_init(pl_engine *e, pl_err *err);
void batch_fini(pl_engine *e);

/* Implements pl_engine_sum, inside another call. */
pl_status engine_sum(pl_engine *e, const volatile int *cancel, pl_err *err);
/* Marks the tensors that opt->keep names. NOT_FOUND: a pattern without
 * matches. */
pl_status engine_keep(pl_graph *g, const pl_options *opt, pl_err *err);
/* A kv_copy_fn; `user` is the engine. */
pl_status engine_copy_page(void *user, int pool, int from, int to, pl_err *err);
/* Called before cached prefixes are shared or extended. Clears them if weights
 * or caches have been set since they were computed. */
void engine_trust_prefixes(pl_engine *e);
bool engine_is_seq(const pl_engine *e, int seq);
/* Returns true if `path` is a file of its model, by any name or link. */
bool engine_reads_file(const pl_engine *e, const char *path);
/* Sets the error for a sequence that does not exist. */
pl_status engine_no_seq(const pl_engine *e, int seq, pl_err *err);

#endif
