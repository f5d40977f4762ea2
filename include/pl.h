/* plait: large language models split over several devices as if they were one.
 *
 * This header has what most programs need: models, plans, engines, text.
 * pl_graph.h has graphs, ops of one's own and executors. Rules that hold for
 * both headers come first; a function says where it differs.
 *
 * Results. A function that can fail returns a pl_status and takes a `pl_err *`
 * last, which may be NULL; the message names the thing, the value and the
 * remedy. On failure every result that a pointer asks for (`*out`, a count, a
 * malloc'ed text) is NULL or 0, and no object has changed unless this is said.
 * Nothing here aborts, exits or prints (hwloc, which finds the cores, does on
 * request or where a machine contradicts itself, and with HWLOC_HIDE_ERRORS=2
 * in the environment only on request).
 *
 * NULL. A pointer argument may be NULL only where this is said, and always: the
 * err, a `user`, a `cancel`, an array or text whose count is 0, and what a
 * _free function is given. Any other NULL gives PL_BAD_ARGUMENT, and the
 * message names the argument. A function without a status then returns 0,
 * false, NULL or "" (a token id, tensor or number of dimensions: -1), fills a
 * struct with zeros, or does nothing. It does the same where another argument
 * is out of range or the engine takes no call.
 *
 * Statuses. PL_BAD_ARGUMENT: the call is wrong whatever the objects hold: NULL,
 * a number, enumerator, flag, sequence, token or tensor that does not exist,
 * arguments that contradict one another, an object that takes no such call now.
 * PL_NOT_FOUND: what a name, a path or a position stands for is not there, or
 * no longer. PL_FULL: no room in a context or cache; a larger one has it.
 * PL_UNSUPPORTED: valid, but this library or machine cannot do it. PL_BAD_FILE:
 * bytes that were read are damaged or foreign, or weights compute NaN.
 *
 * Owners. Objects are opaque, owned by the creator, and freed by one call. What
 * is borrowed must outlive its borrower: an engine's and a plan's model, an
 * executor's graph, a detokenizer's and a sampler's tokenizer, a reply's
 * template, a sampler's grammar. Pointers to freed objects or too small arrays
 * are the caller's fault, which nothing here can see. What one object lends (a
 * model's tokenizer, an engine's plan and executor) is not freed: trying does
 * nothing. A callback may not free the object whose call it is in: trying does
 * nothing.
 *
 * Threads. Models, plans, tokenizers, templates, grammars and graphs that are
 * not being built may be used by any number of threads at once, and any number
 * of engines may share a model. An engine, an executor, a meter, a sampler, a
 * detokenizer and a reply take one call at a time, from whatever thread;
 * different ones are independent. An engine and its executor (pl_engine_exec)
 * count as one. A call of an engine, executor or meter during another, in
 * another thread or from a callback, gives PL_BAD_ARGUMENT and does nothing.
 * Exceptions: pl_engine_plan, pl_engine_n_ctx, pl_engine_exec and
 * pl_engine_tensor may be called at any time; and the callback that is given a
 * state to write may read tensors, on its thread. Samplers, detokenizers and
 * replies do not notice a second thread; a reply notices its own callback.
 *
 * fork(). Engines, executors and meters stay with the process that made them,
 * because a forked copy has neither their threads nor their devices. In the
 * copy each of their calls gives PL_BAD_ARGUMENT, and freeing them gives back
 * what the copy has and leaves the original alone. All other objects may be
 * used there, unless another thread was in a call of the same object at the
 * fork; so a copy may make an engine of its own from the model that it has.
 * GPUs' drivers rule that out where the original has used a GPU.
 *
 * Numbers are read and written with a point, whatever locale the program has.
 * Strings end with NUL and are UTF-8 where they are text; other bytes give no
 * worse than odd text.
 *
 * A program that was built for an older library runs with a newer one. A struct
 * that the caller fills and that may grow begins with its size, as the caller's
 * header knows it, and grows at its end. Its init function sets the size and
 * the defaults; where these are zeros, {.size = sizeof x, ...} does so too. A
 * field that the caller's header does not have keeps its default. A size that
 * was never set gives PL_BAD_ARGUMENT; a field that is set and that the library
 * does not know gives PL_UNSUPPORTED. A struct that the library fills comes
 * with its size as an argument, as any buffer does; what the library does not
 * know of it becomes zero. Other structs stay as they are.
 *
 * Shapes are written outermost first, the last dimension contiguous. */
#ifndef PL_H
#define PL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PL_API __attribute__((visibility("default")))

/* ---- version ----------------------------------------------------------- */

/* Of this header; within a major version what was built against an older one
 * still runs. */
#define PL_VERSION_MAJOR 0
#define PL_VERSION_MINOR 1
#define PL_VERSION_PATCH 0
/* Of the library that is linked: "0.1.0". */
PL_API const char *pl_version(void);

/* ---- status ------------------------------------------------------------ */

/* code, one-line meaning. The enum, the names and the texts come from here. */
#define PL_STATUS_MAP(X)                                                       \
    X(OK, "no error")                                                          \
    X(NO_MEMORY, "out of host memory")                                         \
    X(NO_DEVICE_MEMORY, "out of device memory")                                \
    X(BAD_FILE, "the file is damaged or not what it claims to be")             \
    X(BAD_ARGUMENT, "an argument is out of range or contradicts another")      \
    X(UNSUPPORTED, "valid, but not supported")                                 \
    X(NOT_FOUND, "no such thing")                                              \
    X(IO, "reading or writing failed")                                         \
    X(FULL, "a fixed capacity is used up")                                     \
    X(DEVICE, "a device failed")                                               \
    X(CANCELLED, "stopped on request")

typedef enum pl_status {
#define PL_STATUS_ENUM(name, text) PL_##name,
    PL_STATUS_MAP(PL_STATUS_ENUM)
#undef PL_STATUS_ENUM
} pl_status;

/* Filled by a call that fails. Needs no initialisation and owns nothing. */
typedef struct pl_err {
    pl_status status;
    char message[1024]; /* always terminated */
} pl_err;

/* "NO_MEMORY" and "out of host memory"; never NULL, any value allowed. */
PL_API const char *pl_status_name(pl_status s);
PL_API const char *pl_status_text(pl_status s);

/* ---- element formats --------------------------------------------------- */

/* name, GGUF id. */
#define PL_FORMAT_MAP(X)                                                       \
    X(F32, 0)                                                                  \
    X(F16, 1)                                                                  \
    X(BF16, 30)                                                                \
    X(Q8_0, 8)                                                                 \
    X(Q4_0, 2)                                                                 \
    X(Q4_1, 3)                                                                 \
    X(Q5_0, 6)                                                                 \
    X(Q5_1, 7)                                                                 \
    X(Q2_K, 10)                                                                \
    X(Q3_K, 11)                                                                \
    X(Q4_K, 12)                                                                \
    X(Q5_K, 13)                                                                \
    X(Q6_K, 14)                                                                \
    X(IQ4_NL, 20)                                                              \
    X(IQ4_XS, 23)                                                              \
    X(MXFP4, 39)                                                               \
    X(IQ1_S, 19)                                                               \
    X(IQ1_M, 29)                                                               \
    X(IQ2_XXS, 16)                                                             \
    X(IQ2_XS, 17)                                                              \
    X(IQ2_S, 22)                                                               \
    X(IQ3_XXS, 18)                                                             \
    X(IQ3_S, 21)                                                               \
    X(TQ1_0, 34)                                                               \
    X(TQ2_0, 35)                                                               \
    X(NVFP4, 40)                                                               \
    X(I32, 26)

typedef enum pl_format {
#define PL_FORMAT_ENUM(name, id) PL_##name,
    PL_FORMAT_MAP(PL_FORMAT_ENUM)
#undef PL_FORMAT_ENUM
        PL_FORMAT_COUNT
} pl_format;

/* ---- files ------------------------------------------------------------- */

/* Text goes to the caller through this; `text` is not terminated. */
typedef void pl_write_fn(void *user, const char *text, size_t len);

/* The writer of all files that plait writes. A file appears under its name
 * whole and on the disk, or what was there stays as it was, whenever the
 * process or the machine stops. Until then it has no name; where the file
 * system knows no such files, it has one beside its place that ends in ".part".
 *
 * The permissions of a file that is replaced are kept. Through a symbolic link
 * its target is replaced. Files without write permission stay, by their mode,
 * for root too, and so does what is not a regular file: that is an error. */
typedef struct pl_file pl_file;

enum {
    PL_FILE_STREAM = 1, /* "-" is standard output; it, character devices and
                           pipes are written as it comes, disks never */
    PL_FILE_RESUME = 2, /* the name until then is PATH.part, which stays if the
                           file is not finished; if there is one it is gone on
                           with */
};

/* PL_NOT_FOUND: there is no such directory; PL_BAD_ARGUMENT: no regular file;
 * PL_IO. On failure *out is NULL. */
PL_API pl_status pl_file_open(pl_file **out, const char *path, unsigned flags,
                              pl_err *err);
/* Adds n bytes; a pl_state_write_fn. False: this write or one before failed,
 * which pl_file_commit reports; or the file is in its place already. */
PL_API bool pl_file_write(void *file, const void *data, size_t n);
/* To read or write at any offset; pl_file_write buffers. -1: no file. */
PL_API int pl_file_fd(const pl_file *f);
/* Brings all of it to the disk and into its place, once. */
PL_API pl_status pl_file_commit(pl_file *f, pl_err *err);
/* Always, after pl_file_commit or without it: then the place is as it was. */
PL_API void pl_file_close(pl_file *f);

/* What is in a GGUF file: metadata, tensors, totals by format; or in a saved
 * state, after its checksums were tried. As text or as one JSON object. */
PL_API pl_status pl_inspect(const char *path, bool json, pl_write_fn *write,
                            void *user, pl_err *err);

/* ---- options ----------------------------------------------------------- */

typedef enum pl_log_level {
    PL_LOG_DEBUG,
    PL_LOG_INFO,
    PL_LOG_WARN
} pl_log_level;
typedef void pl_log_fn(void *user, pl_log_level level, const char *text);
/* done of total units of `what` ("compiling kernels", "loading weights"). One
 * call at a time, which may come from another thread than the caller's. */
typedef void pl_progress_fn(void *user, const char *what, uint64_t done,
                            uint64_t total);

/* How a model is dealt over the devices. */
typedef enum pl_split_mode {
    PL_SPLIT_AUTO,   /* whichever is estimated to be fastest */
    PL_SPLIT_NONE,   /* one device, main_device */
    PL_SPLIT_LAYER,  /* each device runs some of the layers */
    PL_SPLIT_TENSOR, /* every matrix is split over all devices */
    PL_SPLIT_HYBRID, /* layers over groups of hybrid_size devices, matrices
                        over the devices of a group */
} pl_split_mode;

typedef enum pl_offload {
    PL_OFFLOAD_AUTO, /* whichever is estimated to be faster */
    PL_OFFLOAD_ON,   /* weights and caches kept on the host are streamed to
                        devices in every step of two tokens or more */
    PL_OFFLOAD_OFF,  /* they are computed with on the host, always */
} pl_offload;

/* How floats are multiplied. */
typedef enum pl_numerics {
    PL_NUMERICS_EXACT, /* as floats of 32 bits */
    PL_NUMERICS_FAST,  /* in attention, and with weights of F16 and BF16, as
                          BF16, of 8 significant bits: up to twice as fast on
                          processors that have such products (AVX512_BF16). The
                          bits are others, and the same on all of them; other
                          devices are refused */
} pl_numerics;

/* Zeros, or NULL in place of the struct, are the defaults. Strings and arrays
 * are borrowed for the call; log, trace and their users until the object is
 * freed. PL_BAD_ARGUMENT, naming the field: a negative count, NULL where a
 * count says that there is something, an enumerator that does not exist. */
typedef struct pl_options {
    size_t size;                /* sizeof(pl_options); see above */
    const char *devices;        /* "cpu", "cpu*2", "cpu:0-3,cpu:4-7",
                                   "sim:2GiB:16GB/s:10us*2", "proc*2",
                                   "gpu", "cuda:0"; NULL = "cpu" */
    const char *device_spec;    /* plan only: a machine that is not there,
                                   "gpu:24GiB:1TB/s*4"; replaces devices */
    int n_ranks;                /* 0: one a device of the widest group; of
                                   GPUs and processors in one: 16 */
    const double *tensor_split; /* shares, one a device; NULL: equal */
    int n_tensor_split;
    int n_threads; /* threads a device; 0: the device's cores */
    pl_split_mode split_mode;
    int hybrid_size;           /* devices a group; PL_SPLIT_HYBRID only */
    int main_device;           /* of PL_SPLIT_NONE */
    const char *device_layers; /* "N": the last N of n_layer + 1 layers are on
                                  devices, the rest on the host; "all";
                                  NULL, "auto": all that fit */
    const char *host_experts;  /* experts kept on the host: "all", "N" (of the
                                  first N layers), "0-5,20-"; NULL: none */
    bool host_cache;           /* the cache is kept on the host */
    const char *const *overrides; /* "REGEX=WHERE[,...]": device, host, group,
                                     mirrored or split:D; first match wins */
    int n_overrides;
    pl_offload offload;
    bool no_fit;         /* take what is asked, or fail and explain */
    int64_t fit_ctx;     /* never fit to a shorter context; 0: 4096 */
    uint64_t fit_margin; /* bytes left free on each device; 0: 1/64 of what is
                            available there */
    bool no_pin;         /* leave threads where the system puts them */
    bool inexact;        /* run on devices that fail the self test too; the
                            numeric hash tells */
    const char *cpu;     /* kernel set, one that pl_devices_print names;
                            NULL: the best there is */
    int64_t n_ctx;       /* token slots of the cache, which all sequences share
                            in pages of 64: one may have all of them; 0: 4096
                            or the model's context, whichever is less */
    int64_t n_ubatch;    /* most tokens of a micro-batch; a run has one,
                            or up to 8 in a pipeline; 0: 512 */
    int64_t n_out;       /* most rows of logits of one; 0: 64 */
    int n_seq;           /* most sequences, 0 .. n_seq-1; 0: 8 */
    int n_checkpoint;    /* of recurrent models: past states, of all sequences,
                            that are kept to go back to; 0: 4 */
    bool cache_set;      /* cache_k and cache_v are meant; else F16 */
    pl_format cache_k, cache_v; /* F16, F32, BF16 or Q8_0 */
    const char *const *keep; /* names of a model's intermediate values that can
                                be read after a step: attn_norm-N, kqv_out-N,
                                ffn_inp-N, ffn_norm-N, l_out-N of layer N,
                                result_hidden, result_norm, logits; or patterns
                                of these as a shell has them, "l_out-*", which
                                fit one at least (else PL_NOT_FOUND). Keeping
                                may move a sum, which the numeric hash tells */
    int n_keep;
    uint64_t sim_seed; /* order in which sim devices interleave */
    pl_log_fn *log;
    void *log_user;
    pl_progress_fn *progress;
    void *progress_user;
    pl_write_fn *trace; /* every step with its times goes here, in Chrome's
                           trace format; kept until the executor or engine is
                           freed, which ends the text */
    void *trace_user;
    int64_t mtp; /* N: in place of the model, the Nth of its file's blocks for
                    multi-token prediction, which guess tokens behind the next
                    one; see pl_batch */
    bool prefix_cache; /* pages of the cache that sequences have filled are kept
                          when these are emptied, for pl_seq_share, until
                          others need them; nothing with mtp */
    const volatile int *cancel; /* may be NULL; polled while an engine,
                                   executor or plan is created: between guesses
                                   at a plan, kernels that are compiled, and
                                   parts of weights of some megabytes. Nonzero,
                                   which any thread may set, ends that with
                                   PL_CANCELLED, and nothing is left of it */
    pl_numerics numerics;  /* of a model; a graph of one's own says so itself */
    uint64_t host_reserve; /* bytes of the host's memory that the caller will
                              take for itself: not available to the plan */
} pl_options;

static inline void pl_options_init(pl_options *o)
{
    if (!o)
        return;
    memset(o, 0, sizeof *o);
    o->size = sizeof *o;
}

/* ---- models ------------------------------------------------------------ */

typedef struct pl_model pl_model;   /* a file: metadata, no weights */
typedef struct pl_plan pl_plan;     /* what would happen */
typedef struct pl_engine pl_engine; /* weights and cache on devices */
typedef struct pl_tokenizer pl_tokenizer;
typedef struct pl_sampler pl_sampler;
typedef struct pl_grammar pl_grammar;   /* which texts may be written */
typedef struct pl_template pl_template; /* messages to a prompt */

enum { PL_MAX_RANKS = 64 };

/* Counts since creation: work done, bytes held, what was sent. */
typedef struct pl_counters {
    uint64_t macs[PL_MAX_RANKS]; /* of contractions, by rank; an index that
                                     several ranks own counts for the first */
    uint64_t weight_bytes[PL_MAX_RANKS];  /* held, by first owner, packed */
    uint64_t replica_bytes[PL_MAX_RANKS]; /* held by others than the first */
    uint64_t messages;                    /* collectives, all kinds */
    uint64_t message_bytes;               /* logical bytes: values * 4 */
    uint64_t copies;                      /* transfers between groups */
    uint64_t copy_bytes;                  /* really moved by them */
    uint64_t steps;
} pl_counters;

/* Where the time of one device went, of the steps since creation. What it
 * computes, reduces and waits for, and copies unless they go beside that, are
 * the seconds of the steps. */
typedef struct pl_device_counters {
    const char *name; /* "cpu0", as in the plan; as long as the engine lives */
    double step_s;    /* of all steps: the same for every device */
    double busy_s;    /* it computed */
    double reduce_s;  /* it took its part in collectives, once all were there */
    double wait_s;    /* for other devices */
    double copy_s;    /* between groups of devices */
    uint64_t copy_bytes; /* that it fetched, or sent where it cannot be read */
    bool beside;         /* it copies in a queue beside the one that computes */
    bool whole;          /* a GPU, whose queues are not looked into: busy_s is
                            all but what a thread waited for on its behalf, and
                            reduce_s and copy_s are 0 */
} pl_device_counters;

/* Pages of the cache, of 64 tokens each; of a model that has nothing but
 * recurrent states, the slots of these. */
typedef struct pl_cache_counters {
    int64_t n_page;
    int64_t n_used; /* sequences hold them */
    int64_t n_kept; /* of prefixes that nobody uses now (pl_seq_share): they are
                       given up where pages are short */
} pl_cache_counters;

/* Of what traces; zeros if no trace was asked for. */
typedef struct pl_traced {
    uint64_t runs;
    double seconds;  /* of them */
    double copy_s;   /* copies between groups, over all devices */
    double hidden_s; /* of that: while the receiving group computed */
} pl_traced;

PL_API pl_status pl_model_open(pl_model **out, const char *path, pl_err *err);
PL_API void pl_model_free(pl_model *m);
PL_API const char *pl_model_arch(const pl_model *m);
PL_API int64_t pl_model_n_vocab(const pl_model *m);
PL_API int64_t pl_model_n_ctx_train(const pl_model *m);
/* As long as the model; NULL if the file has none, which is no error. */
PL_API const pl_tokenizer *pl_model_tokenizer(const pl_model *m);

/* Plans without reading a weight. `m` is borrowed until pl_plan_free. */
PL_API pl_status pl_plan_create(pl_plan **out, const pl_model *m,
                                const pl_options *opt, pl_err *err);
PL_API void pl_plan_free(pl_plan *p);
PL_API pl_status pl_plan_print(const pl_plan *p, bool json, pl_write_fn *write,
                               void *user, pl_err *err);
/* What -sm, -ts, -ngl and the like would have to say to get this plan again,
 * beside the options that it does not name; as long as the plan lives. */
PL_API const char *pl_plan_options(const pl_plan *p);
/* The plan as a picture (SVG): devices are rows, layers columns, tensors boxes
 * in proportion to their bytes, collectives and copies lines between them. */
PL_API pl_status pl_plan_svg(const pl_plan *p, pl_write_fn *write, void *user,
                             pl_err *err);
/* One line: devices, ranks, bytes, messages a token; cut to `size` bytes, its
 * NUL counted. Without a plan it is empty. */
PL_API void pl_plan_summary(const pl_plan *p, char *buf, size_t size);

/* Plans, allocates and loads. `m` is borrowed until pl_engine_free. */
PL_API pl_status pl_engine_create(pl_engine **out, const pl_model *m,
                                  const pl_options *opt, pl_err *err);
PL_API void pl_engine_free(pl_engine *e);
PL_API const pl_plan *pl_engine_plan(const pl_engine *e);
/* size: sizeof *out. */
PL_API void pl_engine_counters(const pl_engine *e, pl_counters *out,
                               size_t size);
/* Those of the plan's devices, the host's after the others: the first n of them
 * into out[n], which may be NULL. Returns how many there are. size: sizeof
 * *out. Counting reads a clock twice a collective, a copy and a wait. */
PL_API int pl_engine_devices(const pl_engine *e, pl_device_counters *out, int n,
                             size_t size);
PL_API void pl_engine_cache(const pl_engine *e, pl_cache_counters *out,
                            size_t size);
PL_API void pl_engine_traced(const pl_engine *e, pl_traced *out, size_t size);
PL_API int64_t pl_engine_n_ctx(const pl_engine *e);

/* Tokens for any sequences; each token goes to the end of its sequence. Cut
 * into steps by the engine. */
typedef struct pl_batch {
    size_t size;
    int64_t n; /* 0: nothing is done */
    const int32_t *token;
    const int32_t *seq;    /* [n], 0 .. n_seq-1; NULL: all sequence 0 */
    const uint8_t *wanted; /* [n], logits wanted; NULL: all */
    float *logits;         /* [number wanted, n_vocab], in order; may be NULL
                              if none is wanted, or what follows is */
    const float *hidden;   /* [n, d_model], for a block for multi-token
                              prediction, else NULL; see below */
    float *hidden_out;     /* [number wanted, d_model], what the last norm is
                              given; NULL: not asked for. To be had where
                              pl_options.keep names "result_hidden" */
    float *norm_out;       /* likewise, what the last norm gives, of which
                              logits are made: "result_norm" */
} pl_batch;

/* An engine of a block for multi-token prediction (pl_options.mtp) has its own
 * weights, cache and sequences, and predicts one token further: what it is
 * given as token i is the one behind the token that hidden[i] is of, and its
 * logits are those of the token behind that. hidden is the model's hidden_out;
 * for a second block, the first one's. */
PL_API int64_t pl_model_d_model(const pl_model *m);
/* How many such blocks the file has. */
PL_API int64_t pl_model_n_mtp(const pl_model *m);

static inline void pl_batch_init(pl_batch *b)
{
    if (!b)
        return;
    memset(b, 0, sizeof *b);
    b->size = sizeof *b;
}

/* On failure (FULL: no cache slot left; BAD_FILE: a logit that is wanted is nan
 * or infinite) no sequence has changed; but one that cannot go back so far
 * (pl_seq_trim) holds what was done (pl_seq_length), and logits may be written.
 * `cancel` is polled between steps; nonzero ends with PL_CANCELLED and the
 * sequences hold what was done. */
PL_API pl_status pl_engine_decode(pl_engine *e, const pl_batch *b,
                                  const volatile int *cancel, pl_err *err);
PL_API int64_t pl_seq_length(const pl_engine *e, int seq);
/* Keeps the first n_keep tokens; a sequence is emptied by n_keep = 0, and
 * n_keep above its length gives BAD_ARGUMENT. Models that hold less than their
 * whole past cannot go back to every length. With a window of W a sequence can
 * keep n tokens if the positions n-W+1 .. n-1 are still held, which are given
 * up in pages of 64: it goes back by 64 tokens at least, but after a state was
 * restored perhaps not before the restored length. Recurrent models go back to
 * where a batch of several tokens began or ended and to every 4,096th token or
 * so, of which the last n_checkpoint are held. Otherwise the nearest length
 * below that can be kept, with a window 0, is kept and *kept says so: the
 * tokens after it are to be decoded again. With kept NULL nothing is trimmed
 * then (NOT_FOUND, which names that length). */
PL_API pl_status pl_seq_trim(pl_engine *e, int seq, int64_t n_keep,
                             int64_t *kept, pl_err *err);
/* dst (emptied first, also where it then fails with FULL) becomes a copy of
 * src; full pages are shared. A sequence may be copied to itself. */
PL_API pl_status pl_seq_copy(pl_engine *e, int dst, int src, pl_err *err);
/* An empty sequence begins with the longest prefix of token[0 .. n-1] that is
 * kept (pl_options.prefix_cache), of *n_shared tokens, perhaps 0, never all n:
 * the last one at least must be decoded, for its logits. Whatever is shared,
 * decoding the rest gives the bits of decoding all. What is kept: of sequences
 * whose tokens all came by pl_engine_decode or pl_seq_share, or in copies of
 * such, whole pages of 64 tokens; windows must hold what the next token sees.
 * Recurrent models go on only from states: those that pl_seq_trim goes back to,
 * and where a sequence was trimmed, emptied or copied over. Setting weights or
 * caches (pl_tensor_set) gives up all that is kept. Takes no page; what nobody
 * uses is given up, the longest unused first, when pages are short.
 * BAD_ARGUMENT: the sequence has tokens; n < 0; an id that is no token's.
 * FULL: n is more than the context. */
PL_API pl_status pl_seq_share(pl_engine *e, int seq, const int32_t *token,
                              int64_t n, int64_t *n_shared, pl_err *err);
/* The tokens that pl_seq_share would find, with nothing changed; 0 where it
 * would fail. */
PL_API int64_t pl_kept_length(pl_engine *e, const int32_t *token, int64_t n);
/* A sequence whose state was restored has these n tokens, which are all that it
 * holds: so it is kept for others when it goes. BAD_ARGUMENT: it has another
 * number of them, or they are known. */
PL_API pl_status pl_seq_tell(pl_engine *e, int seq, const int32_t *token,
                             int64_t n, pl_err *err);
/* How many tokens more a sequence could take now, if no other took any and what
 * is kept unused were given up. seq -1: all sequences together, if each began a
 * page of 64 tokens: what is left in the last pages of those that have tokens
 * comes on top. 0: there is no such sequence. */
PL_API int64_t pl_engine_room(const pl_engine *e, int seq);

/* ---- state ------------------------------------------------------------- */

/* What sequences have in the cache, as a stream of bytes in logical order.
 * Saved under any devices, ranks, pages and steps, it is restored under any
 * other: with the same ranks the continuation has the bits it would have had
 * without the trip. With others it is computed from a past that keeps its
 * saver's bits; that is told through the `log` of the engine's options, which
 * is kept until pl_engine_free. Token ids are not in it. */

/* Takes all n bytes; returns false if it failed. */
typedef bool pl_state_write_fn(void *user, const void *data, size_t n);
/* Gives n bytes, fewer only at the end; -1: it failed. */
typedef int64_t pl_state_read_fn(void *user, void *data, size_t n);

/* A state that lasts is known by the sum of all bytes of the weights. The first
 * function that needs it reads the file once more; or it is made here, before.
 * `cancel` is polled and may be NULL: PL_CANCELLED; a file that cannot be read
 * whole: PL_BAD_FILE. That of a large file is kept on this machine, and made
 * anew only when somebody has written to the file. */
PL_API pl_status pl_engine_sum(pl_engine *e, const volatile int *cancel,
                               pl_err *err);

/* Positions [first, first + n) of a sequence, n < 0: all from `first` on; or,
 * seq -1, all sequences (then first is 0 and n < 0). What ends before the
 * sequence does, a beginning for others to go on from, can be saved where
 * pl_seq_trim could end the sequence: else NOT_FOUND. Takes memory for 64
 * positions of one layer. */
PL_API pl_status pl_state_save(pl_engine *e, int seq, int64_t first, int64_t n,
                               pl_state_write_fn *write, void *user,
                               pl_err *err);
/* Bytes of that. */
PL_API pl_status pl_state_size(pl_engine *e, int seq, int64_t first, int64_t n,
                               uint64_t *bytes, pl_err *err);
/* *data is malloc'ed; the caller frees it. */
PL_API pl_status pl_state_save_memory(pl_engine *e, int seq, int64_t first,
                                      int64_t n, void **data, size_t *bytes,
                                      pl_err *err);
/* All that a sequence has, for this engine alone: others refuse to restore it,
 * and no sum is made for it. *data as before. */
PL_API pl_status pl_state_put_aside(pl_engine *e, int seq, void **data,
                                    size_t *bytes, pl_err *err);
/* A file by pl_file_open's rules; those of the engine's model are refused, by
 * whatever name or link. `note` goes with the state, [note_bytes], at most
 * 64 MiB: bytes of the caller's own, such as the tokens; NULL without bytes. */
PL_API pl_status pl_state_save_file(pl_engine *e, int seq, int64_t first,
                                    int64_t n, const void *note,
                                    size_t note_bytes, const char *path,
                                    pl_err *err);

enum {
    PL_STATE_CONVERT = 1, /* another cache format: convert, through F32 */
};

/* Into sequence `seq`, which must then be the only one saved; -1: into those it
 * was saved from. What begins at 0 replaces a sequence, anything else goes to
 * its end, which must be where it begins. A state of all sequences empties the
 * others. Nothing changes unless the state is whole and fits: it is read into
 * free pages; where these are too few, from a file or memory, it is read once
 * before it takes the place of what it replaces. */
PL_API pl_status pl_state_restore(pl_engine *e, int seq, pl_state_read_fn *read,
                                  void *user, unsigned flags, pl_err *err);
PL_API pl_status pl_state_restore_memory(pl_engine *e, int seq,
                                         const void *data, size_t bytes,
                                         unsigned flags, pl_err *err);
/* *note becomes the state's note, [*note_bytes], malloc'ed, also where that is
 * empty; after a failure it is NULL. `note` NULL: it is left out. */
PL_API pl_status pl_state_restore_file(pl_engine *e, int seq, const char *path,
                                       unsigned flags, void **note,
                                       size_t *note_bytes, pl_err *err);

/* Pages of what is kept (pl_options.prefix_cache), for who keeps more of it
 * than the devices' memory holds: host memory, a disk. A page is a stream as a
 * state is, and in logical order too; but it is taken only by an engine of the
 * same model, cache formats and numeric plan, whatever its devices, so that
 * what comes back has the bits that it had. As long as the engine has no sum of
 * its weights (pl_engine_sum) a page is for it alone. */

/* The page that is kept for the longest time and was not given out yet: it
 * holds the last (*n - 1) % 64 + 1 of the *n tokens that end with it. Of a
 * recurrent model sequences go on behind some pages only: *goes_on says so, and
 * a page is given out again when it has become one. `token` has room for `room`
 * ids, pl_engine_n_ctx or more; *data is malloc'ed. *n 0: there is none. */
PL_API pl_status pl_kept_next(pl_engine *e, int32_t *token, int64_t room,
                              int64_t *n, bool *goes_on, void **data,
                              size_t *bytes, pl_err *err);
/* A page whose tokens are token[0 .. n-1] goes to the end of a sequence, which
 * has whole pages, all given to pl_engine_decode, pl_seq_share or this. Nothing
 * changes unless it is whole. A recurrent model goes on only behind a page that
 * came with its states: else the sequence is to be trimmed first
 * (pl_seq_trim). */
PL_API pl_status pl_seq_extend(pl_engine *e, int seq, const int32_t *token,
                               int64_t n, const void *data, size_t bytes,
                               pl_err *err);

/* ---- text -------------------------------------------------------------- */

/* Any GGUF with a vocabulary, of any architecture, with or without tensors. */
PL_API pl_status pl_tokenizer_open(pl_tokenizer **out, const char *path,
                                   pl_err *err);
PL_API void pl_tokenizer_free(pl_tokenizer *t);
PL_API int64_t pl_tokenizer_n_vocab(const pl_tokenizer *t);

enum {
    PL_ADD_SPECIAL = 1,   /* BOS/EOS where the tokenizer asks for them */
    PL_PARSE_SPECIAL = 2, /* "<|im_end|>" in the text is that token */
};
/* text [len] may hold NUL, and bytes that are not UTF-8. *ids is malloc'ed, *n
 * its length, perhaps 0; the caller frees it. */
PL_API pl_status pl_tokenize(const pl_tokenizer *t, const char *text,
                             size_t len, int flags, int32_t **ids, int64_t *n,
                             pl_err *err);
/* Does the tokenizer ask for a BOS; which token it is (-1: none). */
PL_API bool pl_tokenizer_adds_bos(const pl_tokenizer *t);
PL_API int32_t pl_tokenizer_bos(const pl_tokenizer *t);
/* Ends a generation (EOS, end of turn, ...). */
PL_API bool pl_token_ends(const pl_tokenizer *t, int32_t id);

/* The tokens by which code models are told of a gap to fill: what stands before
 * it follows, what stands behind it, the gap itself; the project's name, a
 * file's. -1: the model has none. */
typedef enum pl_fim {
    PL_FIM_PREFIX,
    PL_FIM_SUFFIX,
    PL_FIM_MIDDLE,
    PL_FIM_REPO,
    PL_FIM_FILE,
    PL_FIM_COUNT
} pl_fim;
PL_API int32_t pl_token_fim(const pl_tokenizer *t, pl_fim which);

/* Ids to text, piece by piece, in valid UTF-8 only. */
typedef struct pl_detokenizer pl_detokenizer;
PL_API pl_status pl_detokenizer_create(pl_detokenizer **out,
                                       const pl_tokenizer *t, bool special,
                                       pl_err *err);
PL_API void pl_detokenizer_free(pl_detokenizer *d);
/* Text that became complete with this token (terminated, valid until the next
 * call; may be empty, as it is for an id that does not exist). */
PL_API const char *pl_detokenize(pl_detokenizer *d, int32_t id);
/* What is held back, made valid; resets. */
PL_API const char *pl_detokenize_flush(pl_detokenizer *d);

/* ---- chat -------------------------------------------------------------- */

/* A chat template turns a list of messages into the prompt that a model was
 * trained on: Jinja, with what Hugging Face adds and sets. It comes with the
 * file and may do what it likes, within bounds: 2 * 10^7 steps, 64 MiB of text.
 *
 * text, len: the template; NULL: the file's own, tokenizer.chat_template, and
 * beside it tokenizer.chat_template.tool_use, which is taken where tools are
 * given. path: any GGUF with a vocabulary, whose special tokens the template
 * sees as bos_token, eos_token and the like; NULL, with a text: there are none.
 * PL_NOT_FOUND: the file has no template; PL_BAD_FILE, PL_UNSUPPORTED: the
 * template is none, or has what is not supported, in that line. */
PL_API pl_status pl_template_create(pl_template **out, const char *text,
                                    size_t len, const char *path, pl_err *err);
PL_API void pl_template_free(pl_template *t);

/* What it is to render, as JSON texts. */
typedef struct pl_conversation {
    size_t size;
    const char *messages; /* a list of objects with "role" and "content" */
    const char *tools;    /* a list; NULL: none */
    const char *extra;    /* more variables of the template, which replace those
                             of the same name: {"enable_thinking": false};
                             NULL: none */
    bool no_generation_prompt; /* the text ends with the last message, and not
                                  where the model's answer begins */
    int64_t now; /* seconds since 1970, for dates; 0: the clock's */
} pl_conversation;

static inline void pl_conversation_init(pl_conversation *c)
{
    if (!c)
        return;
    memset(c, 0, sizeof *c);
    c->size = sizeof *c;
}

/* *text is malloc'ed and terminated; the caller frees it. len may be NULL.
 * PL_BAD_ARGUMENT: a text is no JSON, or the template refuses the conversation:
 * the message is its own. */
PL_API pl_status pl_template_render(const pl_template *t,
                                    const pl_conversation *c, char **text,
                                    size_t *len, pl_err *err);

/* ---- replies ----------------------------------------------------------- */

/* Takes apart what a model writes after a template's prompt, while it comes:
 * content, reasoning, calls of tools. How the model marks them is learned from
 * the template. What is marked wrongly is content, never an error. */
typedef struct pl_reply pl_reply;

typedef enum pl_reply_kind {
    PL_REPLY_CONTENT,
    PL_REPLY_REASONING,
    PL_REPLY_CALL,      /* of a tool; comes whole, but see pl_reply_in_pieces */
    PL_REPLY_CALL_MORE, /* more of the last call's arguments */
} pl_reply_kind;

/* Texts are there for the call, and `text` is not terminated. */
typedef struct pl_reply_part {
    pl_reply_kind kind;
    const char *text; /* [len], what is new; of a call: its arguments, a JSON
                         object */
    size_t len;
    const char *name; /* of a call: the tool's */
    const char *id;   /* of a call: its own; NULL: the model gave it none */
} pl_reply_part;
typedef void pl_reply_fn(void *user, const pl_reply_part *part);

/* t: borrowed until pl_reply_free. prompt [len], which is not kept: what the
 * model goes on from; it may end within reasoning. tools: those of the
 * conversation, which say what arguments are strings; NULL: none. part: is told
 * what comes; may be NULL. */
PL_API pl_status pl_reply_create(pl_reply **out, const pl_template *t,
                                 const char *prompt, size_t len,
                                 const char *tools, pl_reply_fn *part,
                                 void *user, pl_err *err);
PL_API void pl_reply_free(pl_reply *r);
/* From here on a call of one of the tools is told when its arguments begin, and
 * these as they come, where the model writes them as a JSON object; other calls
 * come whole. All pieces together are the same arguments, unless these turn out
 * to be no JSON, or end too early: then what was told stays a call. */
PL_API void pl_reply_in_pieces(pl_reply *r);
/* A JSON document may come in place of calls (`content` of pl_template_calls):
 * content that begins as one is content up to its end, whatever marks its
 * strings spell. */
PL_API void pl_reply_of_document(pl_reply *r);
/* More of the text, in UTF-8, special tokens too (a pl_detokenizer that shows
 * them). What may belong to a mark is held back until that is known. After
 * PL_NO_MEMORY further calls give it again. BAD_ARGUMENT: within a call of
 * `part`, or after pl_reply_finish. */
PL_API pl_status pl_reply_add(pl_reply *r, const char *text, size_t len,
                              pl_err *err);
/* The text has ended: tells what was held back. Once. */
PL_API pl_status pl_reply_finish(pl_reply *r, pl_err *err);
/* Has the mark come that ends a message, which the tokenizer may not know
 * (pl_token_ends)? What follows it is no part of the message. */
PL_API bool pl_reply_ended(const pl_reply *r);
/* Is it content that comes next, as far as is known? Not in reasoning, a call,
 * or what stands before a message. */
PL_API bool pl_reply_in_content(const pl_reply *r);
/* All that was added, as it came; terminated. len may be NULL. */
PL_API const char *pl_reply_text(const pl_reply *r, size_t *len);
/* The message so far as a JSON object to append to a conversation's messages:
 * role, content, reasoning_content, tool_calls. Arguments of calls are objects,
 * or JSON texts where the template takes only these. *json is malloc'ed. */
PL_API pl_status pl_reply_message(const pl_reply *r, char **json, pl_err *err);

/* ---- sampling ---------------------------------------------------------- */

/* What a sampler does to the candidates, biases added, one step after the
 * other, in this order unless pl_sampling.step has another. */
typedef enum pl_sampling_step {
    PL_STEP_PENALTIES,   /* repeat, frequency, presence */
    PL_STEP_DRY,         /* against what would repeat a longer passage */
    PL_STEP_TOP_N_SIGMA, /* near the best logit */
    PL_STEP_TOP_K,       /* the k likeliest */
    PL_STEP_TYPICAL,     /* nearest to the entropy */
    PL_STEP_TOP_P,       /* the likeliest of a mass */
    PL_STEP_MIN_P,       /* likely enough beside the best */
    PL_STEP_XTC,         /* leave out the likeliest, by chance */
    PL_STEP_TEMPERATURE, /* fixed, or by the entropy */
    PL_N_STEP
} pl_sampling_step;

/* Zeros are not the defaults: begin with pl_sampling_init. */
typedef struct pl_sampling {
    size_t size;
    int penalty_last_n;                        /* tokens looked back at: 64 */
    float repeat_penalty;                      /* 1 = off */
    float frequency_penalty, presence_penalty; /* 0 = off */
    int n_bias;
    const int32_t *bias_id;
    const float *bias; /* added to logits */
    int top_k;         /* 40; 0 = off */
    float typical_p;   /* 1 = off */
    float top_p;       /* 0.95; 1 = off */
    float min_p;       /* 0.05; 0 = off */
    float temperature; /* 0.8; 0 = greedy */
    uint64_t seed;

    /* Keep logits within so many standard deviations of the best; 0 = off. */
    float top_n_sigma;
    /* With this probability, 0 = off, of all tokens that have at least the
     * share xtc_threshold (0.1; above 0.5 = off) the least likely alone
     * stays. */
    float xtc_probability, xtc_threshold;
    /* The temperature is taken within +- this of `temperature` (not below 0),
     * by (entropy / greatest entropy) ^ exponent (1); 0 = off. */
    float dynatemp_range, dynatemp_exponent;

    /* "Don't repeat yourself": where the last n tokens, n at least
     * dry_allowed_length (2), were there before, multiplier (0 = off) x
     * base (1.75) ^ (n - allowed) is subtracted from what followed them. Looks
     * back at dry_last_n tokens (4096; at most 2^20), and not beyond text that
     * has one of the breakers: strings of at most 64 bytes; NULL: a line's end,
     * a colon, a double quote and an asterisk. */
    float dry_multiplier, dry_base;
    int dry_allowed_length, dry_last_n;
    int n_dry_breaker; /* 256 at most */
    const char *const *dry_breaker;
    const pl_tokenizer *tokenizer; /* for the breakers; kept, not copied */

    /* 1 or 2: Mirostat of that version (arXiv:2007.14966) with the surprise tau
     * (5 bits) and the rate eta (0.1), after the temperature and instead of all
     * other steps; 0 = off. */
    int mirostat;
    float mirostat_tau, mirostat_eta;

    int n_step;                  /* 0: all */
    uint8_t step[PL_N_STEP + 7]; /* enum pl_sampling_step, each once; those that
                                    are left out are off */
} pl_sampling;

/* pl_sampling_init for a struct of `size` bytes. */
PL_API void pl_sampling_init_size(pl_sampling *s, size_t size);
static inline void pl_sampling_init(pl_sampling *s)
{
    pl_sampling_init_size(s, sizeof *s);
}

/* s: NULL for the defaults; nothing of it is kept but s->tokenizer. n_vocab: of
 * the logits (pl_model_n_vocab), which a model may have more of than its
 * tokenizer has tokens. A grammar allows no id that its tokenizer lacks. */
PL_API pl_status pl_sampler_create(pl_sampler **out, const pl_sampling *s,
                                   int64_t n_vocab, pl_err *err);
PL_API void pl_sampler_free(pl_sampler *s);
/* Chooses from logits [n_vocab] and remembers the choice for penalties; -1 if
 * any is nan or +inf, all are -inf, biases included, the grammar allows none,
 * or logits is NULL: pl_sampler_status says which. */
PL_API int32_t pl_sample(pl_sampler *s, const float *logits);
/* PL_OK, or why the last pl_sample gave -1. */
PL_API pl_status pl_sampler_status(const pl_sampler *s, pl_err *err);
/* Remembers a token that was not sampled (the prompt's); an id that does not
 * exist is ignored. */
PL_API void pl_sampler_accept(pl_sampler *s, int32_t id);

/* ---- grammars ---------------------------------------------------------- */

typedef enum pl_grammar_form {
    PL_GRAMMAR_GBNF,        /* llama.cpp's notation; root is the whole text */
    PL_GRAMMAR_JSON_SCHEMA, /* the documents of a schema; of true, any JSON */
    PL_GRAMMAR_CALLS,       /* GBNF of pl_template_calls: control tokens may
                               spell the marks that stand in it */
} pl_grammar_form;

/* text: [len], not kept. t: whose tokens are to spell the texts; may be freed.
 * name: what messages call the text; NULL: "grammar". PL_BAD_ARGUMENT: the text
 * is wrong, in that line and column, begins with itself, or is too large; or a
 * schema is wrong. PL_UNSUPPORTED: a schema has a keyword that is not
 * supported, or asks for too much. The message has the path in a schema. */
PL_API pl_status pl_grammar_create(pl_grammar **out, const pl_tokenizer *t,
                                   pl_grammar_form form, const char *text,
                                   size_t len, const char *name, pl_err *err);
/* The replies to a template's prompt that call tools and say nothing else, for
 * PL_GRAMMAR_CALLS. tools: those of the conversation; only: the one that has to
 * be called, NULL: any of them; single: one call, else one or more. content: a
 * JSON Schema, the documents of which may come in place of calls; NULL: nothing
 * may. pl_reply takes all these texts apart into calls of these tools, with
 * arguments that are valid by their schemas, or into content that is such a
 * document. *gbnf is malloc'ed. *reasons: the texts may begin with reasoning;
 * else the grammar is of what comes behind it (pl_reply_in_content).
 * PL_UNSUPPORTED: the template shows no calls, or in a form that cannot be kept
 * to, or a schema asks for too much. */
PL_API pl_status pl_template_calls(const pl_template *t, const char *tools,
                                   const char *only, bool single,
                                   const char *content, char **gbnf,
                                   bool *reasons, pl_err *err);
/* After the samplers that have it. */
PL_API void pl_grammar_free(pl_grammar *g);
/* From here on pl_sample chooses, before all that pl_sampling says, among the
 * tokens with which what it has chosen since can become a text of the grammar;
 * one that ends (pl_token_ends) is among them exactly where the text is whole.
 * Tokens of pl_sampler_accept are none of the text's. g is borrowed until
 * another is given; NULL: any token may come. On failure all is as it was. */
PL_API pl_status pl_sampler_set_grammar(pl_sampler *s, pl_grammar *g,
                                        pl_err *err);
/* Works out beforehand which tokens the grammar allows next, which pl_sample
 * does else; so another thread may do it while the engine computes, if nobody
 * uses the sampler meanwhile. What fails, pl_sample says. */
PL_API void pl_sampler_prepare(pl_sampler *s);

/* ---- machine ----------------------------------------------------------- */

/* Bytes of the host's memory that this process may have, by the machine and by
 * the limits of its cgroups, and those of them that are available now, by which
 * plans are refused. 0: not known. Either may be NULL. */
PL_API pl_status pl_host_memory(uint64_t *all, uint64_t *available,
                                pl_err *err);
/* Prints NUMA nodes, cores, memory in all and available now, instruction sets
 * and GPUs, each of which is asked for its memory. */
PL_API pl_status pl_devices_print(bool json, pl_write_fn *write, void *user,
                                  pl_err *err);
/* Measures in a few seconds how fast its cores, memory and messages are, prints
 * that, and keeps it in $XDG_CACHE_HOME/plait, else ~/.cache/plait, for the
 * estimates of later plans; that it cannot be kept is no error. So it does with
 * each GPU that opt->devices names, by default all that can be used, in some
 * ten seconds each beside what its driver needs to make kernels: memory,
 * multiplying, attention, launches, copies from and to the host, and messages
 * between neighbours; of others, what was measured before stays. A GPU that
 * fails meanwhile is an error that names it, and nothing is kept. Of `opt` (may
 * be NULL): cpu, no_pin and devices. */
PL_API pl_status pl_devices_measure(const pl_options *opt, bool json,
                                    pl_write_fn *write, void *user,
                                    pl_err *err);

/* ---- how fast could it be? --------------------------------------------- */

/* A model with the shape of a known one ("qwen3-8b") and random weights of a
 * type ("q4_k_m", "q8_0", any format), written by pl_file_open's rules.
 * What is no shape or type gives PL_BAD_ARGUMENT, and the message lists those
 * there are. `cancel` is polled as pl_engine_decode's; it and `progress` may be
 * NULL. */
PL_API pl_status pl_synth_save(const char *shape, const char *type,
                               const char *path, pl_progress_fn *progress,
                               void *user, const volatile int *cancel,
                               pl_err *err);
/* Bytes of its weights. */
PL_API pl_status pl_synth_size(const char *shape, const char *type,
                               uint64_t *bytes, pl_err *err);

/* What this machine's cores do together at best, a thread on each. A
 * multiply-add counts as two operations. Names are of instructions, as long as
 * the library is there. */
typedef struct pl_limits {
    char cpu[128]; /* the processor's name */
    int n_threads;
    double read_bytes_per_s; /* from memory no cache holds */
    int n_streams;           /* that a thread read at once: best of 1, 2, 4 */
    double int8_ops_per_s;   /* vectors of 8-bit integers */
    const char *int8_unit;
    double float_ops_per_s; /* vectors of float */
    const char *float_unit;
    double amx_ops_per_s;  /* tiles of 8-bit integers; 0: there are none */
    double bf16_ops_per_s; /* vectors of BF16; 0: there are none */
} pl_limits;
/* What measures them: a thread a core, and of memory 64 MiB a core, at least
 * 1 GiB, but no more than an eighth of what is available. */
typedef struct pl_meter pl_meter;
PL_API pl_status pl_meter_create(pl_meter **out, pl_err *err);
PL_API void pl_meter_free(pl_meter *m);
/* Measures for some tenths of a second. *now is what there was at this time,
 * to hold beside what ran just before or after; *best is the best of all calls
 * so far, since what else the machine does only takes away. Either may be NULL;
 * `size` is that of each. */
PL_API pl_status pl_meter_measure(pl_meter *m, pl_limits *now, pl_limits *best,
                                  size_t size, pl_err *err);

#ifdef __cplusplus
}
#endif
#endif
