/* plait: large language models split over several devices as if they were one.
 *
 * This header has all that most programs need: models, plans, engines and text.
 * pl_graph.h adds graphs, custom ops and executors. The rules below hold for
 * both headers; a function's comment states exceptions.
 *
 * Results. A function that can fail returns a pl_status and takes a `pl_err *`
 * as its last argument, which may be NULL. The message names the subject, the
 * value and the remedy. On failure every result returned through a pointer
 * (`*out`, a count, a malloc'ed text) is NULL or 0. No object has changed
 * unless the comment says so. No function aborts, exits or prints. One
 * exception is the hwloc library, which finds the cores. It prints on request,
 * or if the operating system's description of the machine contradicts itself;
 * HWLOC_HIDE_ERRORS=2 in the environment prevents the latter.
 *
 * NULL. These pointer arguments may always be NULL: the err, a `user`, a
 * `cancel`, an array or text whose count is 0, and the argument of a _free
 * function. Others may be NULL only where their comment says so. Otherwise NULL
 * gives PL_BAD_ARGUMENT, and the message names the argument. A function that
 * does not return a status then returns 0, false, NULL or "", fills a struct
 * with zeros, or does nothing; for a token id, a tensor or a number of
 * dimensions it returns -1. Such a function does the same if another argument
 * is out of range or if the engine accepts no call now.
 *
 * Statuses. PL_BAD_ARGUMENT: the call is wrong whatever the objects contain:
 * NULL; a number, enumerator, flag, sequence, token or tensor that does not
 * exist; arguments that contradict one another; an object that does not accept
 * the call now. PL_NOT_FOUND: a name, path or position refers to nothing, or to
 * something that is gone. PL_FULL: a context or cache has no space; a larger
 * one would. PL_UNSUPPORTED: valid, but this library or machine cannot do it.
 * PL_BAD_FILE: a file's contents are damaged or in another format, or its
 * weights produce NaN.
 *
 * Owners. Objects are opaque, owned by their creator, and freed by one call. A
 * borrowed object must outlive its borrower. An engine and a plan borrow their
 * model, an executor its graph, and a reply its template. A detokenizer borrows
 * its tokenizer, and a sampler its tokenizer and grammar. The library cannot
 * detect pointers to freed objects or arrays that are too small. An object that
 * belongs to another one (a model's tokenizer, an engine's plan and executor)
 * is not freed by the caller; a call that tries does nothing. A callback must
 * not free the object that called it; a call that tries does nothing.
 *
 * Threads. Any number of threads may use models, plans, tokenizers, templates,
 * grammars and finished graphs at once, and any number of engines may share a
 * model. An engine, executor, meter, sampler, detokenizer or reply takes one
 * call at a time, from any thread. Different objects may be used from different
 * threads at once. An engine and its executor (pl_engine_exec) count as one
 * object. A call of an engine, executor or meter during another call, from
 * another thread or a callback, gives PL_BAD_ARGUMENT and does nothing.
 * Exceptions: pl_engine_plan, pl_engine_n_ctx, pl_engine_exec and
 * pl_engine_tensor may be called at any time. The callback that receives a
 * state to write may read tensors, on its own thread. Samplers, detokenizers
 * and replies do not detect a second thread; a reply detects a call from its
 * own callback.
 *
 * fork(). Engines, executors and meters belong to the process that created
 * them, because a forked child has neither their threads nor their devices. In
 * the child each of their calls gives PL_BAD_ARGUMENT. Freeing them there
 * releases the child's copy and does not affect the parent. The child may use
 * all other objects, unless another thread was in a call of the same object at
 * the fork. So a child may create an engine of its own from the model it
 * inherited, but not on GPUs if the parent has used one, because GPU drivers do
 * not survive a fork.
 *
 * Numbers are read and written with a decimal point, whatever the locale.
 * Strings end with NUL. Text is UTF-8; bytes that are not valid UTF-8 are not
 * an error, but appear as replacement or odd characters.
 *
 * A program built for an older library runs with a newer one. A struct that the
 * caller fills and that later versions may extend begins with its size in the
 * caller's header, and new fields are added at its end. Its init function sets
 * the size and the defaults. If all defaults are zero, {.size = sizeof x, ...}
 * has the same effect. A field that the caller's header lacks keeps its
 * default. A size that was never set gives PL_BAD_ARGUMENT. A field that is set
 * but unknown to the library gives PL_UNSUPPORTED. The caller passes the size
 * of a struct that the library fills as an argument, as for a buffer; fields
 * that the library does not know become zero. Other structs never change.
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

/* The version of this header. A program built against a header still runs with
 * later libraries of the same major version. */
#define PL_VERSION_MAJOR 0
#define PL_VERSION_MINOR 1
#define PL_VERSION_PATCH 0
/* Returns the version of the linked library: "0.1.0". */
PL_API const char *pl_version(void);

/* ---- status ------------------------------------------------------------ */

/* X(status, meaning in one line). The enum pl_status and the results of
 * pl_status_name and pl_status_text are generated from this list. */
#define PL_STATUS_MAP(X)                                                       \
    X(OK, "no error")                                                          \
    X(NO_MEMORY, "out of host memory")                                         \
    X(NO_DEVICE_MEMORY, "out of device memory")                                \
    X(BAD_FILE, "the file is damaged or not what it claims to be")             \
    X(BAD_ARGUMENT, "an argument is out of range or contradicts another")      \
    X(UNSUPPORTED, "valid, but not supported")                                 \
    X(NOT_FOUND, "not found")                                                  \
    X(IO, "reading or writing failed")                                         \
    X(FULL, "a fixed capacity is used up")                                     \
    X(DEVICE, "a device failed")                                               \
    X(CANCELLED, "stopped on request")

typedef enum pl_status {
#define PL_STATUS_ENUM(name, text) PL_##name,
    PL_STATUS_MAP(PL_STATUS_ENUM)
#undef PL_STATUS_ENUM
} pl_status;

/* The error of a failed call. The call fills it. It needs no initialization and
 * owns no memory. */
typedef struct pl_err {
    pl_status status;
    char message[1024]; /* always NUL-terminated */
} pl_err;

/* Return the name ("NO_MEMORY") and the meaning ("out of host memory") of a
 * status. Any value is allowed; the result is never NULL. */
PL_API const char *pl_status_name(pl_status s);
PL_API const char *pl_status_text(pl_status s);

/* ---- element formats --------------------------------------------------- */

/* X(name, id of the tensor type in GGUF files). The enum pl_format is generated
 * from this list. */
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

/* A callback that receives `len` bytes of text, not terminated. `user` is the
 * pointer that was passed along with the callback. */
typedef void pl_write_fn(void *user, const char *text, size_t len);

/* A file being written; plait writes all of its files through this type. Even
 * if the process or the machine stops, the path has either the complete new
 * file, synced to disk, or the previous one. Until it is committed, the new
 * file has no name. On file systems without unnamed files it has a temporary
 * name in the same directory that ends in ".part".
 *
 * A new file gets the permissions and, as far as the system allows, the owner
 * and group of the file it replaces. If two processes write the same path, the
 * file of the last one to commit remains. If the path is a symbolic link, the
 * link's target is replaced. It is an error to replace a file whose mode
 * forbids writing, even for root, or anything that is not a regular file. */
typedef struct pl_file pl_file;

enum {
    /* The path "-" means standard output. Bytes for standard output, a
     * character device or a pipe are written to it directly, without a
     * temporary file. Block devices are rejected. */
    PL_FILE_STREAM = 1,
    /* The temporary file is called PATH.part. It is not deleted if the file is
     * closed without a commit, and the next pl_file_open with this flag
     * continues it. PL_IO: it is open already, in this process or another.
     * PL_BAD_ARGUMENT: it has another name (a hard link), too. */
    PL_FILE_RESUME = 2,
};

/* Opens `path` for writing; `flags` are PL_FILE_STREAM and PL_FILE_RESUME.
 * PL_NOT_FOUND: the directory does not exist. PL_BAD_ARGUMENT: `path` is empty
 * or not a regular file. PL_IO: the file is write-protected or cannot be
 * opened. */
PL_API pl_status pl_file_open(pl_file **out, const char *path, unsigned flags,
                              pl_err *err);
/* Appends n bytes to `file`, a pl_file; usable as a pl_state_write_fn. Returns
 * false if this write or an earlier one failed, or if the file was already
 * committed. pl_file_commit reports the error. */
PL_API bool pl_file_write(void *file, const void *data, size_t n);
/* Writes what is buffered, so that a reader of the stream has it. Returns as
 * pl_file_write. */
PL_API bool pl_file_flush(pl_file *f);
/* Returns the file descriptor, to read or write at any offset, or -1 if `f` is
 * NULL. pl_file_write buffers, so that bytes it appended may not be in the file
 * yet. */
PL_API int pl_file_fd(const pl_file *f);
/* Syncs the file to disk and moves it to its path. May be called once. */
PL_API pl_status pl_file_commit(pl_file *f, pl_err *err);
/* Closes the file and frees `f`. Must be called, with or without
 * pl_file_commit; without a commit the path keeps its previous file. */
PL_API void pl_file_close(pl_file *f);

/* Describes a GGUF file (metadata, tensors, number and bytes of the tensors of
 * each format) or a saved state, whose checksums are verified first. Writes
 * text, or one JSON object if `json`. */
PL_API pl_status pl_inspect(const char *path, bool json, pl_write_fn *write,
                            void *user, pl_err *err);

/* ---- options ----------------------------------------------------------- */

typedef enum pl_log_level {
    PL_LOG_DEBUG,
    PL_LOG_INFO,
    PL_LOG_WARN
} pl_log_level;
typedef void pl_log_fn(void *user, pl_log_level level, const char *text);
/* A callback that receives progress. `what` is the activity ("compiling
 * kernels", "loading weights"), of which `done` of `total` steps are finished.
 * Calls do not overlap, but may be made by threads other than the caller's. */
typedef void pl_progress_fn(void *user, const char *what, uint64_t done,
                            uint64_t total);

/* The way in which a model is split over the devices. */
typedef enum pl_split_mode {
    PL_SPLIT_AUTO,   /* the mode estimated to be fastest */
    PL_SPLIT_NONE,   /* one device, main_device */
    PL_SPLIT_LAYER,  /* each device runs some of the layers */
    PL_SPLIT_TENSOR, /* every matrix is split over all devices */
    /* layers are split over groups of hybrid_size devices, and matrices over
     * the devices of a group */
    PL_SPLIT_HYBRID,
} pl_split_mode;

typedef enum pl_offload {
    /* the plan chooses PL_OFFLOAD_ON or PL_OFFLOAD_OFF, whichever it estimates
     * to be faster */
    PL_OFFLOAD_AUTO,
    /* weights and caches kept on the host are streamed to devices in each step
     * of at least two tokens */
    PL_OFFLOAD_ON,
    PL_OFFLOAD_OFF, /* the host always computes with its weights and caches */
} pl_offload;

/* The precision with which products of floating-point values are computed. */
typedef enum pl_numerics {
    PL_NUMERICS_EXACT, /* 32-bit floats */
    /* Attention and products with F16 and BF16 weights use BF16 (8 significant
     * bits). Up to twice as fast on processors with BF16 instructions
     * (AVX512_BF16). Results differ from exact ones and are the same on all
     * processors that have these instructions. Other devices are rejected. */
    PL_NUMERICS_FAST,
} pl_numerics;

/* Value of pl_options.n_ctx: the context length that the model was trained
 * with, or as much of it as fits */
#define PL_CTX_MODEL INT64_MAX

typedef struct pl_machines pl_machines; /* see pl_machines.h */

/* Hidden values of n tokens that a step has computed. */
typedef struct pl_hidden_rows {
    int64_t n;
    const int32_t *token, *seq, *pos; /* [n] ids, sequences and positions; the
                                         tokens of a sequence are adjacent, by
                                         position */
    int64_t d_model;
    const float *value; /* [n, d_model] */
} pl_hidden_rows;
/* A callback that receives hidden values, valid during the call. */
typedef void pl_hidden_fn(void *user, const pl_hidden_rows *rows);

/* Options of plans, engines and executors. Zeros, or NULL instead of the
 * struct, are the defaults. Strings and arrays are borrowed for the call;
 * `log`, `trace` and their user pointers are used until the plan, engine or
 * executor is freed. PL_BAD_ARGUMENT, naming the field: a negative count, NULL
 * with a count above 0, or an enumerator that does not exist. */
typedef struct pl_options {
    size_t size; /* sizeof(pl_options), set by pl_options_init */
    /* The devices: "cpu", "cpu*2" (two devices), "cpu:0-3,cpu:4-7" (by cores),
     * "sim:2GiB:16GB/s:10us*2" (simulated), "proc*2" (processes), "gpu" (all
     * GPUs), "cuda:0". NULL means "cpu". */
    const char *devices;
    /* For plans only: the devices of a hypothetical machine, used instead of
     * `devices`, such as "gpu:24GiB:1TB/s*4". NULL if none. */
    const char *device_spec;
    /* Number of ranks. 0 means one per device of the largest group, or 16 if a
     * group has both GPUs and processors. */
    int n_ranks;
    /* [n_tensor_split] shares of the work, one per device, in any unit; NULL
     * for equal shares */
    const double *tensor_split;
    int n_tensor_split;
    int n_threads; /* threads per CPU device; 0 for one per core */
    pl_split_mode split_mode;
    int hybrid_size; /* devices a group in PL_SPLIT_HYBRID; -1: by machine */
    int main_device; /* index in `devices`, for PL_SPLIT_NONE */
    /* Layers kept on devices; the others stay on the host. "N" means the last N
     * of n_layer + 1 layers (the output layer counts). "all" means all of them;
     * NULL or "auto" means as many as fit. */
    const char *device_layers;
    /* Layers whose experts stay on the host: "all", "N" (the first N layers),
     * or a list such as "0-5,20-". NULL if none. */
    const char *host_experts;
    bool host_cache; /* keep the KV cache in host memory, not on the devices */
    /* [n_overrides] of "REGEX=WHERE[,...]". A tensor whose name matches REGEX
     * gets the placement or layout WHERE: a device, "host", a group, "mirrored"
     * or "split:D". The first match wins. */
    const char *const *overrides;
    int n_overrides;
    pl_offload offload;
    /* Do not move layers or experts to the host and do not shorten
     * micro-batches or the context to make the model fit; fail if it does
     * not. */
    bool no_fit;
    /* the shortest context, in tokens, that automatic fitting may choose; 0 for
     * 4096 */
    int64_t fit_ctx;
    /* bytes of each device's memory that automatic fitting leaves free; 0 for
     * 1/64 of its available memory */
    uint64_t fit_margin;
    bool no_pin; /* do not bind threads to cores */
    /* Also use devices that fail the self-test of their kernels. Their results
     * may differ in some bits, so the numeric hash differs. */
    bool inexact;
    /* name of a CPU kernel set that pl_devices_print lists; NULL for the
     * best */
    const char *cpu;
    /* Size of the cache in tokens. All sequences share it in pages of 64
     * tokens; one sequence may use all of it. 0 means 4096 or the model's
     * context, whichever is less. PL_CTX_MODEL means the model's context, or as
     * much of it as fits. */
    int64_t n_ctx;
    /* Maximum number of tokens of a micro-batch; 0 for 512. A step has one
     * micro-batch, or up to 8 in a pipeline. */
    int64_t n_ubatch;
    /* maximum number of tokens of a micro-batch whose logits are wanted; 0 for
     * 64 */
    int64_t n_out;
    int n_seq; /* maximum number of sequences, ids 0 .. n_seq-1; 0 for 8 */
    /* For recurrent models: the number of states kept for rollback, over all
     * sequences; 0 for 4. */
    int n_checkpoint;
    /* true if cache_k and cache_v are set; if false, caches are F16 */
    bool cache_set;
    /* formats of the caches of keys and of values: F32, F16, BF16, Q8_0, Q4_0,
     * Q4_1, Q5_0, Q5_1 or IQ4_NL */
    pl_format cache_k, cache_v;
    /* Names of a model's intermediate values to keep readable after a step:
     * attn_norm-N, kqv_out-N, ffn_inp-N, ffn_norm-N, l_out-N of layer N,
     * result_hidden, result_norm, logits. Shell patterns such as "l_out-*" are
     * allowed and must match at least one name (else PL_NOT_FOUND). Keeping a
     * value may change where a sum over ranks is computed and so its bits; the
     * numeric hash then differs. */
    const char *const *keep;
    int n_keep;
    /* seed of the random order in which simulated devices run */
    uint64_t sim_seed;
    pl_log_fn *log;
    void *log_user;
    pl_progress_fn *progress;
    void *progress_user;
    /* Receives a trace of every step, with times, in Chrome's JSON format. It
     * is used until the executor or engine is freed; freeing writes the end of
     * the JSON text. */
    pl_write_fn *trace;
    void *trace_user;
    /* N > 0: the engine runs the Nth of the file's multi-token prediction
     * blocks instead of the model; 0: it runs the model. Such a block predicts
     * tokens after the next one; see pl_batch. Drafts need no such engine of
     * the caller's, but mtp_texts. */
    int64_t mtp;
    /* Keep cache pages of emptied sequences for pl_seq_share until other
     * sequences need the space. Has no effect if `mtp` is above 0. */
    bool prefix_cache;
    /* Polled while an engine, executor or plan is created: between plan
     * candidates, compiled kernels, and parts of weights of some megabytes. May
     * be NULL. A nonzero value, which any thread may set, ends the creation
     * with PL_CANCELLED and leaves nothing behind. */
    const volatile int *cancel;
    /* The precision of a model's products. Graphs that the caller builds ignore
     * it; they use pl_set_numerics. */
    pl_numerics numerics;
    /* bytes of host memory that plans leave free for the caller */
    uint64_t host_reserve;
    /* [n_rank_split] share of each rank; their number is that of the ranks. The
     * devices carry whole ranks, so these shares decide bits whatever the
     * devices. NULL for equal shares, or, with PL_SPLIT_TENSOR and n_ranks 0,
     * for those of tensor_split. */
    const double *rank_split;
    int n_rank_split;
    /* Plan for the devices of all machines of a job (pl_machines.h); `devices`
     * is then ignored. NULL for this machine alone. */
    pl_machines *machines;
    /* Receives, after each step, the values of all its tokens that the first
     * multi-token prediction block takes as pl_batch.hidden, on the thread that
     * called pl_engine_decode. Changes no bit of the model's results, nor the
     * numeric hash. Each step takes longer by copying these values to the host,
     * and, with several ranks, by one more reduction. PL_BAD_ARGUMENT: the file
     * has no such block, or `mtp` is above 0. */
    pl_hidden_fn *hidden;
    void *hidden_user;
    /* N > 0: the plan also has the first multi-token prediction block, with a
     * cache, for drafts of N texts (pl_draft_attach). It is the layer after the
     * last one: all options that place or split weights and caches hold for it,
     * and memory must suffice for both. With `machines` it is on machine 0. */
    int mtp_texts;
} pl_options;

static inline void pl_options_init(pl_options *o)
{
    if (!o)
        return;
    memset(o, 0, sizeof *o);
    o->size = sizeof *o;
}

/* ---- models ------------------------------------------------------------ */

/* an open model file, without its weights in memory */
typedef struct pl_model pl_model;
/* the assignment of a model's tensors and ops to devices; uses no device */
typedef struct pl_plan pl_plan;
typedef struct pl_engine pl_engine; /* a model on devices, with its cache */
typedef struct pl_tokenizer pl_tokenizer;
typedef struct pl_sampler pl_sampler;
typedef struct pl_grammar pl_grammar;   /* the texts that may be generated */
typedef struct pl_template pl_template; /* renders messages to a prompt */

enum { PL_MAX_RANKS = 64 };

/* Counters of an engine or executor since its creation. Collectives are those
 * of the groups: all-reduce, all-gather and so on. */
typedef struct pl_counters {
    /* Multiply-adds of matrix products, by rank. If several ranks compute the
     * same value, only the first of them counts it. */
    uint64_t macs[PL_MAX_RANKS];
    /* bytes of the weights that the rank holds; of a part that several ranks
     * hold, the lowest rank counts it */
    uint64_t weight_bytes[PL_MAX_RANKS];
    /* bytes of the parts that a lower rank counted in weight_bytes */
    uint64_t replica_bytes[PL_MAX_RANKS];
    uint64_t messages; /* number of collectives */
    /* logical size of all collectives: number of values times 4 bytes */
    uint64_t message_bytes;
    uint64_t copies;     /* number of copies between groups */
    uint64_t copy_bytes; /* bytes that these copies moved */
    uint64_t steps;
} pl_counters;

/* Times of one device, in seconds, over all steps since the engine's creation.
 * busy_s, reduce_s and wait_s, plus copy_s if `beside` is false, add up to
 * step_s. */
typedef struct pl_device_counters {
    const char *name; /* "cpu0", as in the plan; valid as long as the engine */
    double step_s;    /* total of all steps; the same for every device */
    double busy_s;    /* time spent computing */
    /* time spent in collectives, after the last device has arrived */
    double reduce_s;
    double wait_s; /* time spent waiting for other devices */
    double copy_s; /* time spent copying between groups of devices */
    /* bytes that the device pulled, or that it pushed if other devices cannot
     * read its memory */
    uint64_t copy_bytes;
    /* true if copies run in a queue of their own, while the device computes */
    bool beside;
    /* True for GPUs, whose compute time is not split up: reduce_s and copy_s
     * are 0, and busy_s is all time that is not wait_s. */
    bool whole;
} pl_device_counters;

/* Numbers of cache pages, of 64 tokens each. For a model that has only
 * recurrent states they are numbers of state slots. */
typedef struct pl_cache_counters {
    int64_t n_page;
    int64_t n_used; /* pages that sequences use */
    /* pages of cached prefixes that no sequence uses (pl_seq_share); evicted
     * when pages run out */
    int64_t n_kept;
} pl_cache_counters;

/* Totals over all steps of a trace (pl_options.trace), times in seconds; zeros
 * if there is no trace. */
typedef struct pl_traced {
    uint64_t runs;  /* number of traced steps */
    double seconds; /* duration of these steps */
    double copy_s;  /* time of copies between groups, summed over all devices */
    /* the part of copy_s in which the receiving group was computing */
    double hidden_s;
} pl_traced;

/* Opens a model. Rejects a file whose results would be wrong (PL_UNSUPPORTED):
 * one with a tensor that plait does not know, or with a key whose meaning plait
 * does not implement. The message names the tensor or key. Other unknown keys
 * of the model's architecture do no harm; each plan or engine logs a warning
 * that names them (pl_options.log). */
PL_API pl_status pl_model_open(pl_model **out, const char *path, pl_err *err);
/* Like pl_model_open, but with other values of some metadata keys, as if they
 * were in the file. Each of overrides[n] is KEY=TYPE:VALUE, such as
 * "tokenizer.ggml.add_bos_token=bool:false", with the types int, float, bool
 * and str; several are separated by commas. One in double quotes may have
 * commas, and "" in it is a quote. A key that begins with a dot follows the
 * name of the architecture: ".rope.scaling.factor=float:4". The last value of a
 * key counts, but keys with a dot come after the others. PL_BAD_ARGUMENT: an
 * override is malformed, its value is not one that the key may have, or no code
 * reads the key. A saved state is restored only under the same values of the
 * architecture's keys. */
PL_API pl_status pl_model_open_override(pl_model **out, const char *path,
                                        const char *const *overrides, int n,
                                        pl_err *err);
PL_API void pl_model_free(pl_model *m);
/* Describes an open model like pl_inspect, with the values that overrides gave
 * to its keys. Marks the keys that an override has changed. */
PL_API pl_status pl_model_inspect(const pl_model *m, bool json,
                                  pl_write_fn *write, void *user, pl_err *err);
PL_API const char *pl_model_arch(const pl_model *m);
PL_API int64_t pl_model_n_vocab(const pl_model *m);
/* Returns the length of the context that the model was trained for, or that its
 * scaling of positions by YaRN extends it to. */
PL_API int64_t pl_model_n_ctx_train(const pl_model *m);
/* Returns the file's tokenizer, valid as long as the model, or NULL if the file
 * has none, which is not an error. */
PL_API const pl_tokenizer *pl_model_tokenizer(const pl_model *m);

/* The ways to combine the vectors of a text's tokens into its embedding. */
typedef enum pl_pooling {
    PL_POOLING_UNSET, /* the file has no key pooling_type */
    PL_POOLING_NONE,  /* no pooling: each token keeps its own vector */
    PL_POOLING_MEAN,
    PL_POOLING_CLS,  /* the vector of the first token */
    PL_POOLING_LAST, /* the vector of the last token */
    PL_POOLING_RANK, /* the score of a class head (pl_model_n_label) */
} pl_pooling;
/* Returns the pooling that the file's key pooling_type names. */
PL_API pl_pooling pl_model_pooling(const pl_model *m);
/* Returns true if the model is an encoder such as BERT: each token attends to
 * the whole text, and there are no logits (pl_batch.logits). A batch has whole
 * texts only, see pl_engine_decode. */
PL_API bool pl_model_is_encoder(const pl_model *m);
/* Returns the number of scores of the model's class head (pl_batch.scores), 0
 * if its file recommends another pooling than PL_POOLING_RANK. */
PL_API int64_t pl_model_n_label(const pl_model *m);

/* Creates a plan, which places weights, caches and ops on devices, without
 * reading weights or using devices. `m` is borrowed until pl_plan_free. */
PL_API pl_status pl_plan_create(pl_plan **out, const pl_model *m,
                                const pl_options *opt, pl_err *err);
PL_API void pl_plan_free(pl_plan *p);
PL_API pl_status pl_plan_print(const pl_plan *p, bool json, pl_write_fn *write,
                               void *user, pl_err *err);
/* Returns the command-line options (-sm, -ts, -ngl and others) that reproduce
 * this plan. They replace the caller's options of the same names; the caller's
 * other options must be repeated. Valid as long as the plan. */
PL_API const char *pl_plan_options(const pl_plan *p);
/* Writes the plan as an SVG picture. Devices are rows, layers are columns,
 * tensors are boxes in proportion to their bytes, and collectives and copies
 * are lines between them. */
PL_API pl_status pl_plan_svg(const pl_plan *p, pl_write_fn *write, void *user,
                             pl_err *err);
/* Writes what a pass of the compiler makes, as text: "specialize" the variants
 * of the programs, "place" and "transfer" the values that cross between groups,
 * "order", "events" and "buffers" the devices' programs, "messages" what
 * machines send each other. The forms (src/lower/variants.h and transfers.h,
 * src/program/program_text.h and program_messages.h) may change with any
 * version. Returns PL_BAD_ARGUMENT if there is no such pass. */
PL_API pl_status pl_plan_dump(const pl_plan *p, const char *pass,
                              pl_write_fn *write, void *user, pl_err *err);
/* Writes one line (devices, ranks, bytes, collectives per token) to `buf`,
 * truncated to `size` bytes including the NUL. The line is empty if p is
 * NULL. */
PL_API void pl_plan_summary(const pl_plan *p, char *buf, size_t size);

/* Creates an engine: makes a plan, allocates device memory and loads the
 * weights. `m` is borrowed until pl_engine_free. */
PL_API pl_status pl_engine_create(pl_engine **out, const pl_model *m,
                                  const pl_options *opt, pl_err *err);
PL_API void pl_engine_free(pl_engine *e);
PL_API const pl_plan *pl_engine_plan(const pl_engine *e);
/* Returns the engine of the block that pl_options.mtp_texts asks for; NULL if
 * there is none. Its tensors are those of pl_options.mtp. It has sequences for
 * the texts and further ones. It belongs to `e`; pl_engine_free ignores it. */
PL_API pl_engine *pl_engine_mtp(pl_engine *e);
/* Writes the counters of an engine to *out. `size` is sizeof *out. */
PL_API void pl_engine_counters(const pl_engine *e, pl_counters *out,
                               size_t size);
/* Writes the counters of the first n of the plan's devices to out[n]; `out` may
 * be NULL. The host device is the last. `size` is sizeof *out. Returns the
 * number of devices. */
PL_API int pl_engine_devices(const pl_engine *e, pl_device_counters *out, int n,
                             size_t size);
PL_API void pl_engine_cache(const pl_engine *e, pl_cache_counters *out,
                            size_t size);
PL_API void pl_engine_traced(const pl_engine *e, pl_traced *out, size_t size);
PL_API int64_t pl_engine_n_ctx(const pl_engine *e);

/* A batch: tokens of any sequences. Each token is appended to its sequence. The
 * engine splits the batch into steps. */
typedef struct pl_batch {
    size_t size;
    int64_t n; /* number of tokens; a batch of 0 tokens does nothing */
    const int32_t *token;
    /* [n], sequences 0 .. n_seq-1 of the tokens; NULL if all are of sequence
     * 0 */
    const int32_t *seq;
    const uint8_t *wanted; /* [n], nonzero if the token's logits are wanted;
                              NULL for all */
    /* Result: [number wanted, n_vocab], the logits of the wanted tokens, in
     * order. May be NULL if none is wanted, or if hidden_out, norm_out or
     * scores are given. NULL for encoders. */
    float *logits;
    /* Input, only for an engine of a multi-token prediction block: [n, d_model]
     * (see pl_model_d_model). NULL for other engines. */
    const float *hidden;
    /* Result: [number wanted, d_model], the input of the last norm; NULL if not
     * wanted. Needs "result_hidden" in pl_options.keep. */
    float *hidden_out;
    /* Result: [number wanted, d_model], the output of the last norm, from which
     * logits are computed; NULL if not wanted. Needs "result_norm" in
     * pl_options.keep. */
    float *norm_out;
    /* Result: [number wanted, pl_model_n_label], the scores that the class head
     * computes from a token: the first one for encoders, the last one for other
     * models. NULL if not wanted. */
    float *scores;
} pl_batch;

/* Returns d_model, the number of values per token of pl_batch.hidden,
 * hidden_out and norm_out.
 *
 * An engine of a multi-token prediction block (pl_options.mtp) has its own
 * weights, cache and sequences, and predicts one token further. Its token i is
 * the one after the token that hidden[i] belongs to, and its logits predict the
 * token after that. For the first block `hidden` is the model's hidden_out; for
 * the second, the first block's hidden_out. In some families
 * (pl_model_mtp_normed) it is norm_out instead. */
PL_API int64_t pl_model_d_model(const pl_model *m);
/* Returns the number of multi-token prediction blocks in the file. */
PL_API int64_t pl_model_n_mtp(const pl_model *m);
/* Returns true if the blocks take the output of the last norm, norm_out; false
 * if they take its input, hidden_out. */
PL_API bool pl_model_mtp_normed(const pl_model *m);

static inline void pl_batch_init(pl_batch *b)
{
    if (!b)
        return;
    memset(b, 0, sizeof *b);
    b->size = sizeof *b;
}

/* Returns the greatest number of tokens of a text: the context, and for an
 * encoder at most a micro-batch (pl_options.n_ubatch) and the positions that it
 * learned. */
PL_API int64_t pl_engine_max_text(const pl_engine *e);
/* Decodes a batch. A batch for an encoder has whole texts: all tokens of a
 * sequence are adjacent, and the sequence was empty. On failure (FULL: no cache
 * slot left; BAD_FILE: a wanted logit is NaN or infinite) no sequence has
 * changed. An exception is a sequence that cannot be trimmed to its old length
 * (pl_seq_trim): it keeps the tokens that were decoded (pl_seq_length). Logits
 * may have been written.
 *
 * `cancel` is polled between steps. If *cancel is nonzero, the call ends with
 * PL_CANCELLED, and sequences keep the tokens that were decoded. */
PL_API pl_status pl_engine_decode(pl_engine *e, const pl_batch *b,
                                  const volatile int *cancel, pl_err *err);
PL_API int64_t pl_seq_length(const pl_engine *e, int seq);
/* Keeps the first n_keep tokens of a sequence; 0 empties it. BAD_ARGUMENT:
 * n_keep is above its length.
 *
 * A model whose cache does not hold all earlier tokens cannot go back to every
 * length. With an attention window of W, n tokens can be kept if the positions
 * n-W+1 .. n-1 are still in the cache. Positions are released in pages of 64,
 * so a sequence can go back by at least 64 tokens; but after a state was
 * restored, perhaps not below the restored length. Recurrent models go back to
 * a checkpoint. Checkpoints are made where a batch of several tokens begins or
 * ends, and about every 4,096 tokens; the last n_checkpoint are held.
 *
 * If n_keep is not such a length, the nearest possible length below it (with a
 * window: 0) is kept and stored in *kept. The tokens after it must be decoded
 * again. If `kept` is NULL, nothing is trimmed instead (NOT_FOUND, which names
 * that length). */
PL_API pl_status pl_seq_trim(pl_engine *e, int seq, int64_t n_keep,
                             int64_t *kept, pl_err *err);
/* Makes sequence `dst` a copy of `src`. Full pages are shared, not copied.
 * `dst` is emptied first, even if the call then fails with FULL. A sequence may
 * be copied to itself. */
PL_API pl_status pl_seq_copy(pl_engine *e, int dst, int src, pl_err *err);
/* Starts an empty sequence with the longest cached prefix of token[0 .. n-1]
 * (pl_options.prefix_cache). *n_shared is its length: perhaps 0, never n,
 * because at least the last token must be decoded for its logits. Decoding the
 * rest gives the same bits as decoding all.
 *
 * Only whole pages of 64 tokens are cached, and only of sequences whose tokens
 * all came from pl_engine_decode or pl_seq_share, or were copied from such
 * sequences. With attention windows, the cache must still hold all positions
 * that the next token attends to. Recurrent models resume only at checkpoints
 * (pl_seq_trim) and at the lengths at which sequences were trimmed, emptied or
 * copied over. Setting weights or caches (pl_tensor_set) evicts all cached
 * pages.
 *
 * The call takes no free page. When pages run out, cached pages that no
 * sequence uses are evicted, the least recently used first. BAD_ARGUMENT: the
 * sequence has tokens; n < 0; an id is not a token. FULL: n is more than the
 * context. */
PL_API pl_status pl_seq_share(pl_engine *e, int seq, const int32_t *token,
                              int64_t n, int64_t *n_shared, pl_err *err);
/* Returns the number of tokens that pl_seq_share would find, or 0 if it would
 * fail. Changes nothing. */
PL_API int64_t pl_prefix_match_length(pl_engine *e, const int32_t *token,
                                      int64_t n);
/* Sets the token ids of a sequence whose state was restored, because a state
 * contains none. n must be the sequence's length. Once the sequence is emptied,
 * its pages are then cached for pl_seq_share. BAD_ARGUMENT: the sequence has
 * another number of tokens, or its tokens are known. */
PL_API pl_status pl_seq_set_tokens(pl_engine *e, int seq, const int32_t *token,
                                   int64_t n, pl_err *err);
/* Returns the number of tokens that could be appended to a sequence now, if
 * none were appended to others and unused cached pages were evicted; 0 if the
 * sequence does not exist. For seq -1 returns the number of tokens that fit in
 * all free pages of 64 tokens; space in the partly filled last pages of
 * sequences is not counted. */
PL_API int64_t pl_engine_free_tokens(const pl_engine *e, int seq);

/* ---- state ------------------------------------------------------------- */

/* A state is the cache content of sequences as a stream of bytes, whose order
 * does not depend on devices. Saved under any devices, ranks, pages and steps,
 * it can be restored under any others. With the same ranks the continuation has
 * the same bits as without saving. With other ranks the earlier tokens keep the
 * bits of the engine that saved them, and later tokens have those of the new
 * ranks. The engine reports this through the `log` of its options, which is
 * used until pl_engine_free. Token ids are not included. */

/* A callback that writes all n bytes; returns false on failure. */
typedef bool pl_state_write_fn(void *user, const void *data, size_t n);
/* A callback that reads n bytes, fewer only at the end of the state. Returns
 * the number read, or -1 on failure. */
typedef int64_t pl_state_read_fn(void *user, void *data, size_t n);

/* Computes the checksum of the weights, which identifies the model in saved
 * states. Without this call, the first function that needs the checksum reads
 * the whole file to compute it. `cancel` is polled and may be NULL.
 * PL_CANCELLED: *cancel was nonzero. PL_BAD_FILE: the file cannot be read
 * completely. The checksum of a large file is stored on this machine, and
 * computed again only after the file has changed. */
PL_API pl_status pl_engine_sum(pl_engine *e, const volatile int *cancel,
                               pl_err *err);

/* Saves positions [first, first + n) of a sequence; n < 0 means all positions
 * from `first` to the end. seq -1 means all sequences; first must then be 0 and
 * n < 0. A range may end before the sequence does, but only at a length to
 * which pl_seq_trim could trim the sequence (else NOT_FOUND). The call
 * allocates memory for 64 positions of one layer's cache. */
PL_API pl_status pl_state_save(pl_engine *e, int seq, int64_t first, int64_t n,
                               pl_state_write_fn *write, void *user,
                               pl_err *err);
/* Computes the size in bytes of the state that pl_state_save would write. */
PL_API pl_status pl_state_size(pl_engine *e, int seq, int64_t first, int64_t n,
                               uint64_t *bytes, pl_err *err);
/* Like pl_state_save, but writes to memory. *data [*bytes] is malloc'ed; the
 * caller frees it. */
PL_API pl_status pl_state_save_memory(pl_engine *e, int seq, int64_t first,
                                      int64_t n, void **data, size_t *bytes,
                                      pl_err *err);
/* Saves a whole sequence to memory, to be restored by the same engine only;
 * other engines reject the state. Needs no checksum of the weights. *data
 * [*bytes] is malloc'ed; the caller frees it. */
PL_API pl_status pl_state_swap_out(pl_engine *e, int seq, void **data,
                                   size_t *bytes, pl_err *err);
/* Like pl_state_save, but writes to a file, atomically as pl_file_open
 * describes. The engine's model files are rejected, by any name or link. `note`
 * [note_bytes] is stored with the state: any data of the caller, such as the
 * tokens, at most 64 MiB; NULL if empty. */
PL_API pl_status pl_state_save_file(pl_engine *e, int seq, int64_t first,
                                    int64_t n, const void *note,
                                    size_t note_bytes, const char *path,
                                    pl_err *err);

enum {
    /* convert a state whose caches have another format, by way of F32; without
     * this flag such a state is rejected */
    PL_STATE_CONVERT = 1,
};

/* Restores a state. If seq >= 0, the state must be of one sequence and is
 * restored into `seq`; seq -1 restores the sequences that were saved. A state
 * that begins at 0 replaces a sequence. A state that begins later is appended
 * to a sequence, whose length must be the position where the state begins. A
 * state of all sequences empties the others.
 *
 * Nothing changes unless the state is complete and fits: it is read into free
 * pages. If there are too few, a state in a file or in memory is first read
 * once to verify it, and then replaces the old pages. */
PL_API pl_status pl_state_restore(pl_engine *e, int seq, pl_state_read_fn *read,
                                  void *user, unsigned flags, pl_err *err);
PL_API pl_status pl_state_restore_memory(pl_engine *e, int seq,
                                         const void *data, size_t bytes,
                                         unsigned flags, pl_err *err);
/* Restores a state from a file. *note [*note_bytes] becomes the note that
 * pl_state_save_file stored with the state, malloc'ed even if empty, or NULL on
 * failure. If `note` is NULL, the note is skipped. */
PL_API pl_status pl_state_restore_file(pl_engine *e, int seq, const char *path,
                                       unsigned flags, void **note,
                                       size_t *note_bytes, pl_err *err);

/* Cached pages (pl_options.prefix_cache) can be exported, so that a caller can
 * store pages that do not fit in device memory, for example in host memory or
 * on disk. An exported page is a stream of bytes in logical order, like a
 * state. An engine can import the page only if it has the same model, cache
 * formats and numeric plan, because only then results are bit-identical. Its
 * devices may differ. A page exported before the weights' checksum is known
 * (pl_engine_sum) can be imported only by the engine that exported it. */

/* Exports the page that has been cached longest and has not been exported yet.
 * `token` receives the *n tokens from the start of the sequence to the end of
 * the page, of which the page holds the last (*n - 1) % 64 + 1. *n is 0 if
 * there is no page to export. *goes_on is true if a sequence can resume after
 * this page. Sequences of a recurrent model can resume only after some pages; a
 * page after which this becomes possible later is exported again. `room` is the
 * capacity of `token`, at least pl_engine_n_ctx. *data [*bytes] is malloc'ed;
 * the caller frees it. */
PL_API pl_status pl_prefix_export_page(pl_engine *e, int32_t *token,
                                       int64_t room, int64_t *n, bool *goes_on,
                                       void **data, size_t *bytes, pl_err *err);
/* Appends an exported page `data` [bytes] to a sequence. token[0 .. n-1] are
 * the tokens from the start of the sequence to the end of the page. The
 * sequence must have whole pages only, all from pl_engine_decode, pl_seq_share
 * or this function. Nothing changes unless the page is complete. A recurrent
 * model can resume only after a page that has its states: after any other page,
 * trim the sequence before decoding (pl_seq_trim). */
PL_API pl_status pl_seq_import_page(pl_engine *e, int seq, const int32_t *token,
                                    int64_t n, const void *data, size_t bytes,
                                    pl_err *err);

/* ---- text -------------------------------------------------------------- */

/* Opens the tokenizer of any GGUF file with a vocabulary, of any architecture,
 * with or without tensors. */
PL_API pl_status pl_tokenizer_open(pl_tokenizer **out, const char *path,
                                   pl_err *err);
PL_API void pl_tokenizer_free(pl_tokenizer *t);
PL_API int64_t pl_tokenizer_n_vocab(const pl_tokenizer *t);

enum {
    PL_ADD_SPECIAL = 1, /* add BOS and EOS if the model's file says so */
    /* turn the name of a special token in the text, such as "<|im_end|>", into
     * that token */
    PL_PARSE_SPECIAL = 2,
};
/* Converts text [len] to tokens. `text` may contain NUL and bytes that are not
 * UTF-8. `flags` are PL_ADD_SPECIAL and PL_PARSE_SPECIAL. *ids is malloc'ed,
 * and *n is its length, perhaps 0; the caller frees it. */
PL_API pl_status pl_tokenize(const pl_tokenizer *t, const char *text,
                             size_t len, int flags, int32_t **ids, int64_t *n,
                             pl_err *err);
/* pl_tokenizer_adds_bos returns true if the model's file says that texts begin
 * with BOS. The others return the ids of BOS and EOS, or -1 if there is
 * none. */
PL_API bool pl_tokenizer_adds_bos(const pl_tokenizer *t);
PL_API int32_t pl_tokenizer_bos(const pl_tokenizer *t);
PL_API int32_t pl_tokenizer_eos(const pl_tokenizer *t);
/* Converts a query and a document to the tokens of one text, as a reranker
 * expects them: by the template tokenizer.chat_template.rerank of the file,
 * else BOS query EOS SEP document EOS, without those that the tokenizer does
 * not add. The texts may contain NUL. *ids [*n] is malloc'ed; the caller frees
 * it. */
PL_API pl_status pl_tokenize_pair(const pl_model *m, const char *query,
                                  size_t query_len, const char *document,
                                  size_t document_len, int32_t **ids,
                                  int64_t *n, pl_err *err);
/* Returns true if the token ends a generation (EOS, end of turn, ...). */
PL_API bool pl_token_is_eog(const pl_tokenizer *t, int32_t id);
/* Writes the bytes of a token to buf [size], as far as they fit, without a
 * terminator. They may be a part of a character. Returns how many bytes the
 * token has, which may exceed `size`; 0 for an id that does not exist. */
PL_API size_t pl_token_bytes(const pl_tokenizer *t, int32_t id, char *buf,
                             size_t size);

/* Special tokens of code models for fill-in-the-middle: a prompt that has a
 * gap, which the model fills. Each token precedes one part of the prompt. In
 * the order of the enum: the text before the gap, the text after it, the gap
 * itself, the project's name, a file's name. pl_token_fim returns -1 if the
 * model lacks the token. */
typedef enum pl_fim {
    PL_FIM_PREFIX,
    PL_FIM_SUFFIX,
    PL_FIM_MIDDLE,
    PL_FIM_REPO,
    PL_FIM_FILE,
    PL_FIM_COUNT
} pl_fim;
PL_API int32_t pl_token_fim(const pl_tokenizer *t, pl_fim which);

/* Converts tokens to text one by one. Bytes of an incomplete UTF-8 character
 * are held back until the next token. */
typedef struct pl_detokenizer pl_detokenizer;
PL_API pl_status pl_detokenizer_create(pl_detokenizer **out,
                                       const pl_tokenizer *t, bool special,
                                       pl_err *err);
PL_API void pl_detokenizer_free(pl_detokenizer *d);
/* Returns the text that became complete with this token. The text is
 * NUL-terminated, valid until the next call, and may be empty, as it is for an
 * id that does not exist. */
PL_API const char *pl_detokenize(pl_detokenizer *d, int32_t id);
/* Returns the bytes held back as valid UTF-8, with replacement characters, and
 * resets the detokenizer for a new text. */
PL_API const char *pl_detokenize_flush(pl_detokenizer *d);

/* ---- chat -------------------------------------------------------------- */

/* A chat template turns a list of messages into the prompt format that a model
 * was trained on. It is Jinja with Hugging Face's additions and settings.
 * Templates come with model files and are not trusted, so that rendering is
 * limited to 64 MiB of text and to 2 * 10^7 interpreter steps, or up to 10^9
 * more for conversations of many bytes.
 *
 * `text` [len] is the template. If it is NULL, the template is the file's
 * tokenizer.chat_template, or tokenizer.chat_template.tool_use for
 * conversations with tools. `path` is any GGUF file with a vocabulary, whose
 * special tokens the template sees as bos_token, eos_token and so on. `path`
 * may be NULL if `text` is given; then these variables are undefined.
 * PL_NOT_FOUND: the file has no template. PL_BAD_FILE, PL_UNSUPPORTED: the
 * template is invalid or uses an unsupported feature; the message names the
 * line. */
PL_API pl_status pl_template_create(pl_template **out, const char *text,
                                    size_t len, const char *path, pl_err *err);
/* Like pl_template_create with the file of a model, and with its overrides. */
PL_API pl_status pl_model_template(pl_template **out, const pl_model *m,
                                   const char *text, size_t len, pl_err *err);
PL_API void pl_template_free(pl_template *t);
/* Returns the text of the template, NUL-terminated and owned by `t`: if
 * `tools`, that of the separate template for conversations with tools. Returns
 * NULL if there is no such template. */
PL_API const char *pl_template_text(const pl_template *t, bool tools);

/* The input of a template, as JSON texts. */
typedef struct pl_conversation {
    size_t size;
    const char *messages; /* a list of objects with "role" and "content" */
    const char *tools;    /* a list of tools; NULL if none */
    /* More variables of the template, which replace those of the same name:
     * {"enable_thinking": false}. NULL if none. */
    const char *extra;
    /* end the text with the last message, not with the start of the model's
     * answer */
    bool no_generation_prompt;
    int64_t now; /* seconds since 1970, for dates; 0 for the current time */
    /* Changes a conversation that the template rejects, or of which it drops a
     * part, so that the template renders all of it: joins system messages, lets
     * user and assistant take turns, sets ids of calls, completes tools, and so
     * on. Contents must be texts, and reasoning is in the field
     * reasoning_content of messages. The variables are those of llama.cpp's
     * server: enable_thinking is true, date_string and datetime are today's
     * date, bos_token and eos_token are empty if the file has none, and tools
     * is undefined if there are none.
     *
     * If false, the template gets exactly what is given, and None for no
     * tools. */
    bool adapt;
} pl_conversation;

static inline void pl_conversation_init(pl_conversation *c)
{
    if (!c)
        return;
    memset(c, 0, sizeof *c);
    c->size = sizeof *c;
}

/* Renders the prompt. *text is malloc'ed and terminated; the caller frees it.
 * len may be NULL. PL_BAD_ARGUMENT: a text is not JSON, or the template rejects
 * the conversation with its own message. */
PL_API pl_status pl_template_render(const pl_template *t,
                                    const pl_conversation *c, char **text,
                                    size_t *len, pl_err *err);

/* ---- replies ----------------------------------------------------------- */

/* Parses a model's output after a template's prompt, as it is generated, into
 * content, reasoning and tool calls. The texts that mark these parts, the
 * markers, are learned from the template. If tools are declared, their calls
 * are also found in other notations that models use, and in reasoning that was
 * not closed. Text with wrong markers is content, never an error. If the end of
 * the text cuts off the beginning of a call after another call, that beginning
 * is dropped. */
typedef struct pl_reply pl_reply;

typedef enum pl_reply_kind {
    PL_REPLY_CONTENT,
    PL_REPLY_REASONING,
    /* a tool call, complete unless pl_reply_in_pieces was called */
    PL_REPLY_CALL,
    PL_REPLY_CALL_MORE, /* more of the last call's arguments */
} pl_reply_kind;

/* A part of a reply, passed to pl_reply_create's `part`. Texts are valid during
 * that call; `text` is not terminated. */
typedef struct pl_reply_part {
    pl_reply_kind kind;
    /* [len], the new text; for a call, its arguments as a JSON object */
    const char *text;
    size_t len;
    const char *name; /* the tool's name if this is a call; else NULL */
    const char *id;   /* the call's identifier; NULL if the model gave none */
} pl_reply_part;
typedef void pl_reply_fn(void *user, const pl_reply_part *part);

/* Creates a parser. `t` is borrowed until pl_reply_free. `prompt` [len] is the
 * prompt that the model continues, which may end within reasoning; it is not
 * kept. `tools` is the conversation's list of tools, whose schemas tell which
 * arguments are strings; NULL if it is not known. With "[]" nothing is a call,
 * so what looks like one is content. `part` is called with each new part of the
 * reply and may be NULL. */
PL_API pl_status pl_reply_create(pl_reply **out, const pl_template *t,
                                 const char *prompt, size_t len,
                                 const char *tools, pl_reply_fn *part,
                                 void *user, pl_err *err);
PL_API void pl_reply_free(pl_reply *r);
/* Makes the reply report a tool call as soon as its arguments begin, followed
 * by the arguments in fragments (PL_REPLY_CALL_MORE) as they are generated.
 * This needs a model that writes arguments as a JSON object; calls in other
 * forms are still reported complete. The fragments together equal the
 * arguments. If these turn out not to be JSON or end too early, what was
 * reported remains a call. */
PL_API void pl_reply_in_pieces(pl_reply *r);
/* Allows a reply that is a JSON document (`content` of pl_template_calls).
 * Content that begins like a JSON document is content up to the document's end,
 * even if its strings contain markers. */
PL_API void pl_reply_of_document(pl_reply *r);
/* Makes reasoning a part of the content, as the model wrote it, with its
 * markers. If the prompt ends with the marker that opens reasoning, the content
 * begins with that marker. Call this before text is added. */
PL_API void pl_reply_keep_reasoning(pl_reply *r);
/* Adds generated text, in UTF-8, with its special tokens (from a pl_detokenizer
 * created with `special`). Text that may be the start of a marker is held back
 * until later text shows whether it is one. After PL_NO_MEMORY all further
 * calls return PL_NO_MEMORY. BAD_ARGUMENT: called from within `part`, or after
 * pl_reply_finish. */
PL_API pl_status pl_reply_add(pl_reply *r, const char *text, size_t len,
                              pl_err *err);
/* Declares that the model ended the text by a token (pl_token_is_eog), so that
 * nothing was cut off. pl_reply_finish then adds the closing brackets, or the
 * marker after the last value, that the last tool call lacks. Call this before
 * pl_reply_finish. */
PL_API void pl_reply_uncut(pl_reply *r);
/* Ends the text and reports what was held back. May be called once. */
PL_API pl_status pl_reply_finish(pl_reply *r, pl_err *err);
/* Returns true once the text contains the template's marker for the end of a
 * message. pl_token_is_eog may not know this marker. Text after it is not part
 * of the message. */
PL_API bool pl_reply_ended(const pl_reply *r);
/* Returns true if, by the text so far, the next text is content. Returns false
 * in reasoning, in a call, and in a header before a message. */
PL_API bool pl_reply_in_content(const pl_reply *r);
/* Returns the text by which the model ends its reasoning, if the next text is
 * reasoning and the template shows how it ends; else NULL. The text is valid as
 * long as the template. */
PL_API const char *pl_reply_end_of_reasoning(const pl_reply *r);
/* Returns all text added so far, unchanged and terminated. len may be NULL. */
PL_API const char *pl_reply_text(const pl_reply *r, size_t *len);
/* Writes the message so far as a JSON object to append to a conversation's
 * messages, with the fields role, content, reasoning_content and tool_calls.
 * Arguments of calls are objects, or strings of JSON if the template accepts
 * only strings. *json is malloc'ed; the caller frees it. */
PL_API pl_status pl_reply_message(const pl_reply *r, char **json, pl_err *err);

/* ---- sampling ---------------------------------------------------------- */

/* The samplers. They are applied one after the other, after biases are added,
 * in this order unless pl_sampling.step gives another. */
typedef enum pl_sampling_step {
    PL_STEP_PENALTIES,   /* repeat, frequency, presence */
    PL_STEP_DRY,         /* penalizes tokens that would continue a repetition */
    PL_STEP_TOP_N_SIGMA, /* keeps tokens near the best logit */
    PL_STEP_TOP_K,       /* keeps the k likeliest tokens */
    PL_STEP_TYPICAL,     /* keeps tokens of typical surprise */
    PL_STEP_TOP_P, /* keeps the likeliest tokens, up to a total probability */
    PL_STEP_MIN_P, /* drops tokens far less likely than the best */
    PL_STEP_XTC,   /* at random, removes the likeliest tokens */
    PL_STEP_TEMPERATURE, /* temperature, fixed or depending on the entropy */
    /* Draws tokens near a probability; is the last wherever it is listed. */
    PL_STEP_ADAPTIVE_P,
    PL_N_STEP,
    /* number of samplers that are applied if none is listed: all but
     * adaptive-p */
    PL_N_STEP_USUAL = PL_STEP_ADAPTIVE_P
} pl_sampling_step;

/* The settings of a sampler. Zeros are not the defaults: begin with
 * pl_sampling_init. Comments give the default as "default N" or in parentheses.
 * Filters that 0 turns off, such as top-k, are off below 0, too. */
typedef struct pl_sampling {
    size_t size;
    /* number of last tokens that the three penalties consider; default 64 */
    int penalty_last_n;
    /* logits of repeated tokens are divided by it, or multiplied if negative;
     * default 1 = off */
    float repeat_penalty;
    /* subtracted from a token's logit: frequency_penalty for each time that it
     * occurs, presence_penalty once; default 0 = off */
    float frequency_penalty, presence_penalty;
    int n_bias;
    const int32_t *bias_id;
    /* [n_bias] numbers to add to the logits of the tokens bias_id[n_bias] */
    const float *bias;
    int top_k;         /* default 40; 0 = off */
    float typical_p;   /* default 1 = off */
    float top_p;       /* default 0.95; 1 = off */
    float min_p;       /* default 0.05; 0 = off */
    float temperature; /* default 0.8; 0 = greedy */
    uint64_t seed;

    /* Top-n-sigma: keeps tokens whose logit is at most this many standard
     * deviations below the best; 0 = off. */
    float top_n_sigma;
    /* XTC: with the probability xtc_probability (0 = off), removes all tokens
     * whose probability is at least xtc_threshold (0.1; above 0.5 = off),
     * except the least likely of them. */
    float xtc_probability, xtc_threshold;
    /* Dynamic temperature: it varies between `temperature` - dynatemp_range (at
     * least 0) and `temperature` + dynatemp_range. It rises with (entropy /
     * greatest entropy) ^ dynatemp_exponent. A range of 0 = off; the exponent's
     * default is 1. */
    float dynatemp_range, dynatemp_exponent;

    /* "Don't repeat yourself": if the last n tokens occurred before, the token
     * that followed them there is penalized. For n of at least
     * dry_allowed_length (2), multiplier (0 = off) x base (1.75) ^ (n -
     * allowed) is subtracted from its logit. Repetitions are sought in the last
     * dry_last_n tokens (4096; at most 2^20) and do not extend across a
     * breaker. Breakers are strings of at most 64 bytes; NULL means a newline,
     * a colon, a double quote and an asterisk. */
    float dry_multiplier, dry_base;
    int dry_allowed_length, dry_last_n;
    int n_dry_breaker; /* length of dry_breaker[], at most 256 */
    const char *const *dry_breaker;
    /* Needed for the breakers, and for the tokens that the file says must never
     * be generated (tokenizer.ggml.suppress_tokens). Borrowed. */
    const pl_tokenizer *tokenizer;

    /* Version of Mirostat (arXiv:2007.14966), 1 or 2; 0 = off. Its target
     * surprise is tau (5 bits), its learning rate eta (0.1). It is applied
     * after the temperature and instead of all other samplers. */
    int mirostat;
    float mirostat_tau, mirostat_eta;

    int n_step; /* length of step[]; 0 for all samplers but adaptive-p */
    /* The samplers to apply, in order: values of enum pl_sampling_step, each at
     * most once. Samplers that are not listed are off. The 6 unused elements
     * are reserved for samplers of later versions. */
    uint8_t step[PL_N_STEP + 6];

    /* Adaptive-p: prefers tokens whose probability is near adaptive_target (-1;
     * below 0 = off), and adapts that so that the mean of the drawn tokens is
     * near it. The weight of a token in the mean falls by the factor
     * adaptive_decay (0.9; at most 0.99) with each later one. Only applied if
     * step[] lists it. */
    float adaptive_target, adaptive_decay;

    /* [n_only] tokens: if n_only > 0, no other token is sampled. */
    int n_only;
    const int32_t *only;
    /* [n_banned]: sequences of tokens, each ended by -1, that are never
     * completed. The last token of a sequence is excluded where the tokens
     * before it are those of the sequence. */
    int n_banned;
    const int32_t *banned;
    /* [n_stop] tokens at which the caller ends the text, besides those of
     * pl_token_is_eog. See pl_sampler_exclude_stops. */
    int n_stop;
    const int32_t *stop;
} pl_sampling;

/* Sets the defaults in *s, whose size in the caller's header is `size`. Call
 * pl_sampling_init instead. */
PL_API void pl_sampling_init_size(pl_sampling *s, size_t size);
static inline void pl_sampling_init(pl_sampling *s)
{
    pl_sampling_init_size(s, sizeof *s);
}

/* Sets the fields of *s that the model's file recommends (keys
 * general.sampling.*, which llama.cpp reads, too); leaves the others. Numbers
 * out of range become the nearest allowed. PL_BAD_FILE: names the first key
 * that cannot be used; all others are set. */
PL_API pl_status pl_model_sampling(const pl_model *m, pl_sampling *s,
                                   pl_err *err);

/* Returns the sampler (enum pl_sampling_step) with the name name[len], as
 * llama.cpp calls it: "top_k", also "top-k". Returns -1 if there is none. */
PL_API int pl_sampling_step_find(const char *name, size_t len);
/* Returns the name of a sampler, or "" if there is none. */
PL_API const char *pl_sampling_step_name(int step);

/* Creates a sampler with the settings `s`, or the defaults if NULL. `s` is
 * copied; s->tokenizer is borrowed. n_vocab is the number of logits
 * (pl_model_n_vocab), which may exceed the number of tokens in the tokenizer. A
 * grammar never allows an id that its tokenizer lacks. */
PL_API pl_status pl_sampler_create(pl_sampler **out, const pl_sampling *s,
                                   int64_t n_vocab, pl_err *err);
PL_API void pl_sampler_free(pl_sampler *s);
/* Chooses a token from logits [n_vocab] and remembers it for penalties. Returns
 * the token's id, or -1 if any logit is NaN or +inf, if all are -inf after
 * biases are added, if the grammar allows no token, or if logits is NULL.
 * pl_sampler_status returns the reason. */
PL_API int32_t pl_sample(pl_sampler *s, const float *logits);
/* Returns PL_OK, or the reason why the last pl_sample returned -1. */
PL_API pl_status pl_sampler_status(const pl_sampler *s, pl_err *err);
/* Remembers, for penalties, a token that was not sampled, such as one of the
 * prompt. An id that does not exist is ignored. */
PL_API void pl_sampler_accept(pl_sampler *s, int32_t id);

/* ---- grammars ---------------------------------------------------------- */

typedef enum pl_grammar_form {
    /* llama.cpp's notation; the rule `root` matches the whole text */
    PL_GRAMMAR_GBNF,
    /* a JSON Schema, which allows the JSON documents that validate against it;
     * `true` allows any document */
    PL_GRAMMAR_JSON_SCHEMA,
    /* GBNF from pl_template_calls, in which a control token may match the text
     * of a marker (of a tool call, for example) */
    PL_GRAMMAR_CALLS,
    /* a regular expression, as in JSON Schema, that matches the whole text */
    PL_GRAMMAR_REGEX,
} pl_grammar_form;

/* Compiles a grammar from `text` [len], which is not kept. `t` is the tokenizer
 * of the tokens that the grammar will constrain; it may be freed afterwards.
 * `name` is used for the grammar in messages; NULL for "grammar".
 * PL_BAD_ARGUMENT: the text has an error (the message gives line and column),
 * is left-recursive or too large, or the schema is invalid. PL_UNSUPPORTED: a
 * schema is too complex, or a regular expression has an unsupported construct.
 * Messages about a schema give the path in it. In GBNF, <[12]> and <text> are
 * tokens of `t`, and !<[12]> is any other token. */
PL_API pl_status pl_grammar_create(pl_grammar **out, const pl_tokenizer *t,
                                   pl_grammar_form form, const char *text,
                                   size_t len, const char *name, pl_err *err);
/* Writes a grammar, for PL_GRAMMAR_CALLS, that allows only replies consisting
 * of tool calls in the format of the template. `tools` are those of the
 * conversation. `only` is the tool that must be called, or NULL for any of
 * them. `single` limits a reply to one call; otherwise one or more are allowed.
 * `content` is a JSON Schema; a document that validates against it is then
 * allowed instead of calls. NULL allows no document.
 *
 * pl_reply parses every text of the grammar into calls of these tools, with
 * arguments that validate against their schemas, or into content that is a
 * document of `content`. *gbnf is malloc'ed; the caller frees it. *reasons is
 * true if the grammar itself allows reasoning before the calls. If it is false,
 * apply the grammar only once the reasoning has ended (pl_reply_in_content).
 * If the template shows no calls, they are objects of "name" and "arguments".
 * PL_UNSUPPORTED: a grammar cannot enforce the form of calls or a schema. */
PL_API pl_status pl_template_calls(const pl_template *t, const char *tools,
                                   const char *only, bool single,
                                   const char *content, char **gbnf,
                                   bool *reasons, pl_err *err);
/* Lists what the grammar's schemas require but the grammar does not enforce, a
 * line each: the path, the keyword and the reason. Returns "" if there is
 * nothing. Valid until the grammar is freed. */
PL_API const char *pl_grammar_notes(const pl_grammar *g);
/* Frees a grammar. Free samplers that use it first. */
PL_API void pl_grammar_free(pl_grammar *g);
/* Makes pl_sample allow only tokens that continue a text of the grammar; other
 * tokens are excluded before biases and samplers. The text begins with the next
 * chosen token; tokens given to pl_sampler_accept are not part of it. A token
 * that ends a generation (pl_token_is_eog) is allowed if and only if the text
 * is complete. `g` is borrowed until another is set; NULL allows any token. */
PL_API pl_status pl_sampler_set_grammar(pl_sampler *s, pl_grammar *g,
                                        pl_err *err);
/* Takes `id` as if it had been sampled: remembers it, and the text of the
 * grammar goes on with it. PL_NOT_FOUND: the grammar does not allow it here.
 * Nothing has changed then. */
PL_API pl_status pl_sampler_force(pl_sampler *s, int32_t id, pl_err *err);
/* Excludes end-of-text tokens (pl_token_is_eog of `t`, borrowed for the call)
 * from what pl_sample chooses, or allows them again if `t` is NULL. They stay
 * allowed where a grammar allows no other token. */
PL_API pl_status pl_sampler_exclude_eog(pl_sampler *s, const pl_tokenizer *t,
                                        pl_err *err);
/* Excludes the tokens pl_sampling.stop likewise, or allows them again. */
PL_API pl_status pl_sampler_exclude_stops(pl_sampler *s, bool exclude,
                                          pl_err *err);
/* Computes which tokens the grammar allows next, in advance of the next
 * pl_sample, which otherwise computes that. May be called on another thread
 * while the engine computes, if no other call uses the sampler at that time. A
 * failure is reported by the next pl_sample. */
PL_API void pl_sampler_prepare(pl_sampler *s);

/* ---- machine ----------------------------------------------------------- */

/* Sets *all to the bytes of host memory that this process may use, which the
 * machine's memory and its cgroups limit. Sets *available to the bytes that are
 * available now. 0 means unknown. Planning fails if a plan needs more than
 * *available. Either pointer may be NULL. */
PL_API pl_status pl_host_memory(uint64_t *all, uint64_t *available,
                                pl_err *err);
/* Prints NUMA nodes, cores, total and available memory, instruction sets, and
 * GPUs with their memory. */
PL_API pl_status pl_devices_print(bool json, pl_write_fn *write, void *user,
                                  pl_err *err);
/* Measures in a few seconds how fast the machine's cores, memory and
 * collectives are, and prints the rates. They are also stored in
 * $XDG_CACHE_HOME/plait, else ~/.cache/plait, for the estimates of later plans;
 * a failure to store is not an error.
 *
 * Also measures each GPU that opt->devices names (by default every usable one):
 * memory, multiplication, attention, launches, copies from and to the host, and
 * collectives between GPUs. That takes some ten seconds each plus the driver's
 * time to compile kernels. Stored rates of other GPUs are kept. If a GPU fails
 * during this, the error names it and nothing is stored. Only the fields cpu,
 * no_pin and devices of `opt` are used; `opt` may be NULL. */
PL_API pl_status pl_devices_measure(const pl_options *opt, bool json,
                                    pl_write_fn *write, void *user,
                                    pl_err *err);

/* ---- synthetic models and peak rates ----------------------------------- */

/* Writes a model file with the shape of a known model ("qwen3-8b") and random
 * weights of a type ("q4_k_m", "q8_0", any format), atomically as pl_file_open
 * describes. PL_BAD_ARGUMENT: no such shape or type; the message lists the
 * valid ones. If *cancel becomes nonzero, writing ends with PL_CANCELLED.
 * `cancel` and `progress` may be NULL. */
PL_API pl_status pl_synth_save(const char *shape, const char *type,
                               const char *path, pl_progress_fn *progress,
                               void *user, const volatile int *cancel,
                               pl_err *err);
/* Computes the size in bytes of the weights of a model that pl_synth_save
 * writes. */
PL_API pl_status pl_synth_size(const char *shape, const char *type,
                               uint64_t *bytes, pl_err *err);

/* Peak rates of this machine's cores together, with one thread per core. A
 * multiply-add counts as two operations. The fields *_unit name the
 * instructions used and are valid as long as the library is loaded. */
typedef struct pl_limits {
    char cpu[128]; /* the processor's name */
    int n_threads;
    /* rate of reading arrays larger than the processor's caches */
    double read_bytes_per_s;
    /* number of arrays that each thread read at the same time for
     * read_bytes_per_s; the best of 1, 2 and 4 */
    int n_streams;
    double int8_ops_per_s; /* with vectors of 8-bit integers */
    const char *int8_unit;
    double float_ops_per_s; /* with vectors of floats */
    const char *float_unit;
    /* with instructions on tiles of 8-bit integers; 0 if the processor has
     * none */
    double amx_ops_per_s;
    /* with vectors of BF16; 0 if the processor has no such instructions */
    double bf16_ops_per_s;
} pl_limits;
/* A meter measures pl_limits with one thread per core. It uses 64 MiB of memory
 * per core, at least 1 GiB, but at most an eighth of the available memory. */
typedef struct pl_meter pl_meter;
PL_API pl_status pl_meter_create(pl_meter **out, pl_err *err);
PL_API void pl_meter_free(pl_meter *m);
/* Measures for some tenths of a second. *now is the result of this call, to
 * compare with computations made just before or after. *best has the highest
 * rates of all calls so far, because other load only lowers them. Either may be
 * NULL; `size` is sizeof(pl_limits). */
PL_API pl_status pl_meter_measure(pl_meter *m, pl_limits *now, pl_limits *best,
                                  size_t size, pl_err *err);

#ifdef __cplusplus
}
#endif
#endif
