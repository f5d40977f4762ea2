/* The structs of pl_model, pl_plan and pl_engine, and functions shared by the
 * files of the engine. */
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
    pl_tokenizer *tokenizer; /* NULL if the file has no vocabulary */
};

/* Creates the tokenizer of a model from its file. Freed by
 * engine_tokenizer_free; pl_tokenizer_free ignores a model's tokenizer. Returns
 * NOT_FOUND if the file has no vocabulary. */
pl_status engine_tokenizer(pl_tokenizer **out, const struct gguf *file,
                           pl_err *err);

void engine_tokenizer_free(pl_tokenizer *t);

const struct tokenizer *engine_words(const pl_tokenizer *t);
/* Returns the token texts that all grammars of the tokenizer share. */
struct token_texts *engine_texts(const pl_tokenizer *t);

/* Asks for the keys that chat templates read. Fails if a template is not a
 * text. */
pl_status engine_template_keys(const struct gguf *g, pl_err *err);

struct pl_plan {
    const pl_model *model; /* borrowed until the plan is freed */
    pl_graph *graph;
    struct compiled *compiled;
    pl_format cache_k, cache_v;
    pl_numerics numerics;
    int64_t n_ctx;
    bool borrowed; /* belongs to an engine: pl_plan_free does nothing */
    char *options; /* owned; command-line options that reproduce the plan */
    struct arena memory; /* owns the arrays below and their strings */
    /* [n_keep] names or patterns of kept values, [n_layout] overrides of
     * layouts ("REGEX=split:1"): options that decide bits. */
    const char **keep, **layout;
    int n_keep, n_layout;
    int64_t mtp;
};

struct pl_engine {
    pl_plan *plan;
    pl_exec *exec;
    struct kv kv;
    pl_log_fn *log;
    void *log_user;
    uint64_t weights; /* hash of the weights by model_sum, for saved states;
                         valid if has_weights */
    bool has_weights;
    bool has_foreign; /* a state was restored whose bits another numeric plan
                         or conversion decided */
    uint64_t mark;    /* random id of this engine, for states that only it can
                      restore */
    pl_tensor ids, pos, out_ids, logits;
    /* tensors of the engine's graph; -1 if not in the graph or not kept */
    pl_tensor hidden, hidden_out, norm_out;
    int n_micro;          /* maximum number of micro-batches of a step */
    struct micro *micro;  /* owned, [n_micro] */
    int n_batch_seq;      /* number of sequences in the last
                                               batch */
    int *batch_seq;       /* owned, [n_seq] sequences of the
                                               last batch */
    struct batch_seq *of; /* owned, [n_seq] each sequence's
                                               part of the batch */
    uint64_t n_set;       /* exec->n_set when
                                               engine_trust_prefixes last ran */
};

/* Frees a plan, including one that belongs to an engine, which pl_plan_free
 * ignores. */
void plan_free(pl_plan *p);

/* Allocate and free the engine's batch tables and page tables. They are in
 * batch.c. */
pl_status batch_init(pl_engine *e, pl_err *err);
void batch_fini(pl_engine *e);

/* Computes e->weights, the hash of the model's weights, unless it is known.
 * Called inside a public call, between exec_enter and exec_leave. */
pl_status engine_sum(pl_engine *e, const volatile int *cancel, pl_err *err);
/* Marks the tensors whose names match a pattern of opt->keep, as pl_keep does.
 * Returns NOT_FOUND if a pattern matches no tensor. */
pl_status engine_keep(pl_graph *g, const pl_options *opt, pl_err *err);
/* Copies the contents of a cache page, as a kv_copy_fn. `user` is the
 * engine. */
pl_status engine_copy_page(void *user, int pool, int from, int to, pl_err *err);
/* Clears the prefix cache if the caller has set weights or caches since the
 * last call, because cached pages are then stale. Must be called before cached
 * prefixes are shared or extended. */
void engine_trust_prefixes(pl_engine *e);
bool engine_is_seq(const pl_engine *e, int seq);
/* Returns true if `path` refers to a file of the engine's model, by whatever
 * name or link. */
bool engine_reads_file(const pl_engine *e, const char *path);
/* Sets the error that sequence `seq` does not exist. Returns its status. */
pl_status engine_no_seq(const pl_engine *e, int seq, pl_err *err);

#endif
