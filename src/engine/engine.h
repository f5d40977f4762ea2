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
    pl_tokenizer *tokenizer; /* tokenizer of the model; NULL if its file has no
                                vocabulary */
};

/* Creates the tokenizer of a model from its file. Freed by
 * engine_tokenizer_free; pl_tokenizer_free ignores a model's tokenizer. Returns
 * NOT_FOUND if the file has no vocabulary. */
pl_status engine_tokenizer(pl_tokenizer **out, const struct gguf *file,
                           pl_err *err);

void engine_tokenizer_free(pl_tokenizer *t);

const struct tokenizer *engine_words(const pl_tokenizer *t);
/* Returns the texts of the tokenizer's tokens, which all grammars of the
 * tokenizer share. */
struct token_texts *engine_texts(const pl_tokenizer *t);

/* Looks up the keys of the file that chat templates read, so that an override
 * of such a key does not count as unused. Fails if a template is not a text. */
pl_status engine_template_keys(const struct gguf *g, pl_err *err);

struct pl_plan {
    const pl_model *model; /* the model of the plan; it must outlive the plan */
    pl_graph *graph;
    struct compiled *compiled;
    pl_format cache_k, cache_v;
    pl_numerics numerics;
    int64_t n_ctx;
    bool borrowed; /* the plan belongs to an engine, so pl_plan_free does
                      nothing */
    char *options; /* owned; command-line options that reproduce the plan */
    struct arena memory; /* owns the arrays `keep` and `layout` and their
                            strings */
    /* Options that decide bits. keep[n_keep]: names or patterns of tensors
     * whose values stay readable after a step (pl_keep). layout[n_layout]:
     * overrides of layouts such as "REGEX=split:1". */
    const char **keep, **layout;
    int n_keep, n_layout;
    int64_t mtp;
    /* The plan of the model's block for multi-token prediction, which was made
     * together with this one; owned, NULL if there is none. */
    struct pl_plan *block;
};

struct pl_engine {
    pl_plan *plan;
    pl_exec *exec;
    /* The engine of plan->block; owned, NULL if there is none. In that engine,
     * is_block is true, and its plan belongs to this one's. */
    struct pl_engine *block;
    bool is_block;
    struct kv kv;
    pl_log_fn *log;
    void *log_user;
    uint64_t weights; /* hash of all bytes of the weights (model_sum), stored in
                         saved states; valid if has_weights */
    bool has_weights;
    /* A saved state was restored that another numeric plan or another cache
     * format computed, so its bits differ from those that this engine would
     * compute. */
    bool has_foreign;
    uint64_t mark; /* random id of this engine, stored in states that no
                      other engine can restore */
    pl_tensor ids, pos, out_ids, logits;
    /* Tensors of the engine's graph: the input for hidden values, and the
     * outputs "result_hidden" and "result_norm". Each is -1 if the graph does
     * not have it or does not keep it after a step. */
    pl_tensor hidden, hidden_out, norm_out;
    /* The output "hidden_rows", -1 if the graph has none, and the options that
     * receive it. `rows` [max.n_tok, d_model] is scratch memory; owned. */
    pl_tensor hidden_rows;
    pl_hidden_fn *receive;
    void *receive_user;
    float *rows;
    /* The input with the ends of texts, of encoders, and the class head's
     * output; -1 if the graph does not have it. */
    pl_tensor ends, scores;
    int n_micro;          /* maximum number of micro-batches of a step */
    struct micro *micro;  /* owned, [n_micro] the micro-batches of a step */
    int n_batch_seq;      /* number of sequences in the last batch, the entries
                             of batch_seq[] */
    int *batch_seq;       /* owned, [n_seq] the sequences that have tokens in
                             the last batch */
    struct batch_seq *of; /* owned, [n_seq] for each sequence of the engine, its
                             tokens in the last batch */
    /* Value of exec->n_set, the number of changes to weights and caches, when
     * engine_trust_prefixes last ran. */
    uint64_t n_set;
    pl_machines *machines; /* borrowed; the machines on which it runs, once they
                              have its plan; NULL if it runs here alone */
};

/* Frees a plan, including one that belongs to an engine, which pl_plan_free
 * ignores. */
void plan_free(pl_plan *p);

/* Returns the options of the engine of p's block, from those of p's. */
pl_options plan_block_options(const pl_plan *p, const pl_options *opt);

/* Allocate and free the engine's batch tables and page tables. They are in
 * batch.c. */
pl_status batch_init(pl_engine *e, pl_err *err);
void batch_fini(pl_engine *e);

/* Computes e->weights, the hash of the model's weights, unless it is known.
 * Called inside a public call, between exec_enter and exec_leave. */
pl_status engine_sum(pl_engine *e, const volatile int *cancel, pl_err *err);
/* Marks the tensors of the graph whose names match a pattern of opt->keep, so
 * that their values stay readable after a step (pl_keep). Returns NOT_FOUND if
 * a pattern matches no tensor. */
pl_status engine_keep(pl_graph *g, const pl_options *opt, pl_err *err);
/* Copies the contents of cache page `from` of a pool to page `to`, as a
 * kv_copy_fn. `user` is the engine. */
pl_status engine_copy_page(void *user, int pool, int from, int to, pl_err *err);
/* Clears the prefix cache if the caller has set weights or caches since the
 * last call, because cached pages are then stale. Must be called before cached
 * prefixes are shared or extended. */
void engine_trust_prefixes(pl_engine *e);
/* Returns true if the engine's model is an encoder (pl_model_is_encoder). */
static inline bool engine_is_encoder(const pl_engine *e)
{
    return e->ends >= 0;
}
bool engine_is_seq(const pl_engine *e, int seq);
/* Returns true if `path` refers to a file of the engine's model, by whatever
 * name or link. */
bool engine_reads_file(const pl_engine *e, const char *path);
/* Sets the error that the engine has no sequence `seq`. Returns the error's
 * status. */
pl_status engine_no_seq(const pl_engine *e, int seq, pl_err *err);

#endif
