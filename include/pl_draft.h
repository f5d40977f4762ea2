/* Drafts: guessed tokens of a text, which one step of an engine verifies.
 *
 * A step that computes several tokens of a sequence costs little more than one
 * that computes one. So a drafter proposes the next tokens of a text. The
 * caller decodes them together with the text's last token, with all logits
 * wanted, and samples from the rows of logits in order. It accepts drafted
 * tokens as long as they are the ones that it samples. At the first other token
 * it trims the sequence to the accepted length (pl_seq_trim). The logits of a
 * token do not depend on the other tokens of its step, so the text is, bit for
 * bit, the one without drafts.
 *
 * Sources propose the tokens. Some find repetitions: n-grams, short runs of
 * tokens, that occurred before. Another is a small model with the vocabulary of
 * the large one, and another the model's own block for multi-token prediction.
 * Unless limits are given, the drafter chooses how many tokens
 * to draft by their chance and by the measured time of steps.
 *
 * Results, statuses, NULL, threads and fork() are as in pl.h. A drafter takes
 * one call at a time. */
#ifndef PL_DRAFT_H
#define PL_DRAFT_H

#include "pl.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pl_drafter pl_drafter;

/* X(source, name). If several sources are enabled, the first in this order that
 * proposes tokens is used. */
#define PL_DRAFT_SOURCE_MAP(X)                                                 \
    /* the tokens after the latest occurrence of the text's last n tokens */   \
    X(NGRAM_SIMPLE, "ngram-simple")                                            \
    /* the tokens that followed most occurrences of the last n tokens */       \
    X(NGRAM_MAP_K, "ngram-map-k")                                              \
    /* statistics of 1 to 4 tokens, of the text and of lookup files */         \
    X(NGRAM_CACHE, "ngram-cache")                                              \
    /* the function pl_draft_options.propose */                                \
    X(CALLER, "caller")                                                        \
    /* the most probable tokens of the draft model, pl_draft_options.engine */ \
    X(SIMPLE, "draft-simple")                                                  \
    /* those of the model's own block, pl_options.mtp_texts */                 \
    X(MTP, "draft-mtp")

typedef enum pl_draft_source {
#define PL_DRAFT_SOURCE_ENUM(name, text) PL_DRAFT_##name,
    PL_DRAFT_SOURCE_MAP(PL_DRAFT_SOURCE_ENUM)
#undef PL_DRAFT_SOURCE_ENUM
        PL_DRAFT_N_SOURCE
} pl_draft_source;

/* greatest number of tokens of a draft */
#define PL_DRAFT_MAX 63

/* Limits of a draft. */
typedef struct pl_draft_limits {
    uint32_t sources; /* set of enabled sources, bits 1 << pl_draft_source */
    /* Number of tokens to draft, more than PL_DRAFT_MAX for that many; 0 for
     * none; -1 to choose it by chance and time. */
    int n_max;
    int n_min; /* a draft of fewer tokens is dropped */
    /* A draft ends before the first token whose probability, as its source
     * estimates it, is below p_min. */
    float p_min;
} pl_draft_limits;

/* A request for a draft, and the draft. */
typedef struct pl_draft {
    int seq;             /* number of the text, from 0 to n_seq - 1 */
    const int32_t *text; /* [n_text]; tokens are only ever appended to it */
    int64_t n_text;
    int64_t n_most; /* greatest number of tokens that the caller can verify */
    /* Tokens before the last that the step computes again, because the sequence
     * could not be trimmed to the accepted length of the draft before. */
    int64_t n_again;
    const pl_draft_limits *limits; /* NULL for those of the drafter */
    int32_t *token;                /* result, [PL_DRAFT_MAX] */
    int n;                         /* result: number of drafted tokens */
} pl_draft;

/* Sets token[] and n of drafts d[0 .. n - 1], each at most d[i].n_most tokens,
 * which is not more than PL_DRAFT_MAX. */
typedef void pl_draft_fn(void *user, pl_draft *d, int n);

/* Settings of a drafter. pl_draft_init sets the defaults. */
typedef struct pl_draft_options {
    size_t size;
    pl_draft_limits limits; /* default: no source, n_max -1 */
    int n_seq;              /* number of texts at the same time; default 1 */
    /* Tokens that are not in 0 .. n_vocab-1 are never drafted; the default is
     * that of any model. */
    int64_t n_vocab;
    /* For the sources ngram-simple and ngram-map-k: length of the n-gram that
     * is looked up, from 1 to 1024 (default 12), greatest number of tokens that
     * are proposed (48), and how often the n-gram must have occurred (1). */
    int simple_n, simple_m, simple_hits;
    int map_n, map_m, map_hits;
    /* Add the statistics of forgotten texts to those that pl_draft_save
     * writes. */
    bool learn;
    pl_draft_fn *propose; /* of the source `caller`; NULL without it */
    void *propose_user;
    /* For the source draft-simple: a draft model, which pl_draft_check_model
     * accepts, and its engine, whose sequences 0 .. n_seq-1 are the drafter's.
     * Both are borrowed until pl_drafter_free; NULL without that source. With
     * pl_options.prefix_cache, the engine reads texts that begin alike once. */
    const pl_model *model;
    pl_engine *engine;
} pl_draft_options;

typedef struct pl_draft_counters {
    uint64_t n_draft;    /* drafts that were verified */
    uint64_t n_token;    /* tokens of these drafts */
    uint64_t n_accepted; /* tokens of these drafts that were accepted */
    /* number of drafts that had a token at this position, and of those in which
     * it was accepted */
    uint64_t drafted_at[PL_DRAFT_MAX], accepted_at[PL_DRAFT_MAX];
} pl_draft_counters;

/* Returns the name of a source; "" if there is none. */
PL_API const char *pl_draft_source_name(int source);
/* Returns the source named `name` [len], or -1. */
PL_API int pl_draft_source_find(const char *name, size_t len);
/* Sets *sources to the set of those that `list` names, separated by commas.
 * `none` adds nothing, nor does a type that llama.cpp has and plait does not,
 * since drafts change no result; *passed is true if there is one. Returns false
 * if a name is another, or `caller`, which only a program can use. */
PL_API bool pl_draft_sources_parse(const char *list, uint32_t *sources,
                                   bool *passed);
/* The lists that pl_draft_sources_parse accepts, for messages. */
#define PL_DRAFT_SOURCES                                                       \
    "none, ngram-simple, ngram-map-k, ngram-cache, draft-simple or "           \
    "draft-mtp, or several of them separated by commas"

/* Checks that `draft` can be a draft model for `m`: the vocabularies are of the
 * same kind and have the same tokens. Their sizes may differ by 128 tokens, and
 * single tokens may differ that do not stand for text: the first five, and
 * control and unused ones. PL_UNSUPPORTED: the message names a difference. */
PL_API pl_status pl_draft_check_model(const pl_model *m, const pl_model *draft,
                                      pl_err *err);

/* Begins text `seq`, whose tokens are text[0 .. n_text - 1] as far as they are
 * known. The first n_done of them came from a cache or a saved state, so the
 * model's engine does not compute them. Without this call the source draft-mtp
 * drafts with the later tokens alone. With it, the block takes these tokens'
 * rows from a text that begins alike: a present one, or one that ended while
 * its engine has space. Drafts are then more often right; nothing else changes.
 * Has no effect if `seq` is not in 0 .. n_seq - 1, or without that source. */
PL_API void pl_draft_begin(pl_drafter *d, int seq, const int32_t *text,
                           int64_t n_text, int64_t n_done);
/* Takes hidden values for the source draft-mtp; for pl_options.hidden.
 * `drafter` is a pl_drafter; without that source nothing happens. May compute
 * with the block's engine. */
PL_API void pl_draft_hidden(void *drafter, const pl_hidden_rows *rows);

static inline void pl_draft_init(pl_draft_options *o)
{
    if (!o)
        return;
    memset(o, 0, sizeof *o);
    o->size = sizeof *o;
    o->limits.n_max = -1;
    o->n_seq = 1;
    o->n_vocab = INT32_MAX;
    o->simple_n = o->map_n = 12;
    o->simple_m = o->map_m = 48;
    o->simple_hits = o->map_hits = 1;
}
/* Creates a drafter. PL_BAD_ARGUMENT: an option is out of its range, or the
 * engine has fewer sequences. PL_NO_MEMORY. */
PL_API pl_status pl_drafter_create(pl_drafter **out, const pl_draft_options *o,
                                   pl_err *err);
PL_API void pl_drafter_free(pl_drafter *d);
/* Lets the source draft-mtp draft with the block of `e`, the engine of model
 * `m` that computes the texts; before that it drafts nothing. The engine was
 * created with pl_options.mtp_texts of n_seq or more, with pl_draft_hidden and
 * the drafter as pl_options.hidden and hidden_user, and its sequence of a text
 * has the number of the text. Both are borrowed until pl_drafter_free. May be
 * called once. PL_BAD_ARGUMENT: the engine has no block, or one of fewer texts,
 * or the drafter has a block. PL_NO_MEMORY. */
PL_API pl_status pl_draft_attach(pl_drafter *d, const pl_model *m, pl_engine *e,
                                 pl_err *err);

/* Proposes tokens for n texts, which take part in one step. `rows` is the
 * number of tokens that the step has besides drafts, `most` the greatest number
 * of drafted tokens of all texts together. PL_NO_MEMORY: nothing is drafted.
 * PL_BAD_ARGUMENT: a draft's seq is not in 0 .. n_seq - 1, `rows` or n_text is
 * negative, or an array is NULL. Other statuses are those of a draft model's
 * engine that failed: nothing is drafted, and the model is not used again. */
PL_API pl_status pl_draft_propose(pl_drafter *d, pl_draft *draft, int n,
                                  int64_t rows, int64_t most, pl_err *err);
/* Records that the first n_accepted tokens of the last draft of text `seq` were
 * accepted, at most its length. A draft without a record counts as not
 * verified. */
PL_API void pl_draft_record(pl_drafter *d, int seq, int n_accepted);
/* Records that the step of the last pl_draft_propose took `ns` nanoseconds.
 * Called after pl_draft_record for its drafts, or without any. */
PL_API void pl_draft_measure(pl_drafter *d, int64_t ns);
/* Forgets text `seq`, so that its number can be used for another text. With
 * pl_draft_options.learn, statistics of the source ngram-cache are kept as far
 * as memory suffices. */
PL_API void pl_draft_forget(pl_drafter *d, int seq);

/* Adds statistics in the format of llama.cpp's lookup files to the source
 * ngram-cache: to those that texts change, or, if `fixed`, to those that only
 * back them. `name` is used in messages. PL_BAD_FILE: the message gives the
 * offset in bytes. Nothing has changed then. PL_NO_MEMORY: a part may have been
 * added. */
PL_API pl_status pl_draft_load(pl_drafter *d, bool fixed, const void *data,
                               size_t bytes, const char *name, pl_err *err);
/* Writes the statistics that texts change, in the same format, with several
 * calls of `write`. */
PL_API void pl_draft_save(const pl_drafter *d, pl_write_fn *write, void *user);

/* Copies the counters of a source, or, for -1, the sums over all, to *out. */
PL_API void pl_draft_read_counters(const pl_drafter *d, int source,
                                   pl_draft_counters *out, size_t size);

#ifdef __cplusplus
}
#endif

#endif
