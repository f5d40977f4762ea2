/* plait: large language models split over several devices as if they were one.
 *
 * This is the whole public interface. What can fail returns a pl_status and
 * takes a `pl_err *` last, which may be NULL; the message names the thing, the
 * value and the remedy. Nothing here aborts, exits or prints (hwloc, which
 * finds the cores, does on request or where a machine contradicts itself, and
 * with HWLOC_HIDE_ERRORS=2 in the environment only on request). Objects are
 * opaque, owned by whoever created them, and freed by one call that takes NULL.
 * Numbers are read and written with a point, whatever locale the program has.
 * In a copy of the process that fork() made, executors and engines have no
 * threads and devices: there they may be freed, which leaves the original's
 * alone, and nothing else.
 *
 * Threads: models, plans, tokenizers and graphs that nobody changes any more
 * may be used by any number of threads at once, and any number of engines may
 * share a model. An executor, an engine, a sampler and a detokenizer take one
 * call at a time, from whatever thread; different ones never mind each other.
 * An engine and the executor behind it (pl_engine_exec) count as one. A call of
 * an engine or executor while another is under way, in another thread or around
 * a callback, gives PL_BAD_ARGUMENT and does nothing; those that return no
 * status must not be made then, nor may anything be freed. One thing may be
 * done: who is given a state to write may read tensors, on that thread.
 *
 * Shapes are written outermost first, the last dimension contiguous. */
#ifndef PL_H
#define PL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PL_API __attribute__((visibility("default")))

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

/* name, GGUF id. One row a format in src/quant/format.c gives the rest. */
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

/* What is in a GGUF file: metadata, tensors, totals by format; or in a saved
 * state, after its checksums were tried. As text or as one JSON object. */
PL_API pl_status pl_inspect(const char *path, bool json, pl_write_fn *write,
                            void *user, pl_err *err);

/* ---- graphs ------------------------------------------------------------ */

/* A dimension: n times 1, n_tok, n_out or the number of cache slots. */
typedef enum pl_symbol {
    PL_CONST,
    PL_N_TOK,  /* tokens of the step */
    PL_N_OUT,  /* rows of the step whose results are wanted */
    PL_N_SLOT, /* token slots of the cache, fixed when a plan is made */
} pl_symbol;

typedef struct pl_dim {
    int64_t n;
    pl_symbol symbol;
} pl_dim;

/* What a leaf is for. A role, never a name, decides how a tensor is split;
 * src/plan/roles.c has one row each. PL_ROLE_NONE: mirrored unless a layout is
 * asked for. */
#define PL_ROLE_MAP(X)                                                         \
    X(NONE)                                                                    \
    X(TOKEN_EMBD)                                                              \
    X(OUTPUT)                                                                  \
    X(NORM)                                                                    \
    X(ATTN_Q)                                                                  \
    X(ATTN_K)                                                                  \
    X(ATTN_V)                                                                  \
    X(ATTN_QKV)                                                                \
    X(ATTN_Q_BIAS)                                                             \
    X(ATTN_K_BIAS)                                                             \
    X(ATTN_V_BIAS)                                                             \
    X(ATTN_QKV_BIAS)                                                           \
    X(ATTN_SINKS)                                                              \
    X(ATTN_OUT)                                                                \
    X(ATTN_OUT_BIAS)                                                           \
    X(FFN_GATE)                                                                \
    X(FFN_UP)                                                                  \
    X(FFN_GATE_UP)                                                             \
    X(FFN_DOWN)                                                                \
    X(ROUTER)                                                                  \
    X(ROUTER_BIAS)                                                             \
    X(FFN_GATE_EXPS)                                                           \
    X(FFN_UP_EXPS)                                                             \
    X(FFN_GATE_UP_EXPS)                                                        \
    X(FFN_DOWN_EXPS)                                                           \
    X(ROPE_FREQS)                                                              \
    X(SCALE)                                                                   \
    X(CACHE_K)                                                                 \
    X(CACHE_V)

typedef enum pl_role {
#define PL_ROLE_ENUM(name) PL_ROLE_##name,
    PL_ROLE_MAP(PL_ROLE_ENUM)
#undef PL_ROLE_ENUM
        PL_ROLE_COUNT
} pl_role;

/* How a group holds one logical tensor. SPLIT: dimension `dim` is tiled by
 * runs, run i covering run[i].len indices held by the ranks in run[i].owners
 * (bit r = rank r); the tiling repeats every `period` indices, the sum of the
 * run lengths, which divides the dimension's size. */
typedef enum pl_layout_kind {
    PL_MIRRORED, /* every rank sees all values */
    PL_PARTIAL,  /* the value is the sum of the ranks' addends */
    PL_SPLIT,
} pl_layout_kind;

typedef struct pl_run {
    int64_t len;
    uint64_t owners;
} pl_run;

typedef struct pl_layout {
    pl_layout_kind kind;
    int dim;        /* SPLIT only, counted from the outermost */
    int64_t period; /* SPLIT only */
    int n_run;      /* SPLIT only */
    const pl_run *run;
} pl_layout;

enum { PL_MAX_RANKS = 64 };

typedef struct pl_graph pl_graph; /* opaque */

/* A tensor of a graph: its index, or -1 after an error. Builders accept -1 and
 * pass it on, and the graph keeps the first error, so only pl_graph_check
 * needs testing. */
typedef int32_t pl_tensor;

/* Expert scores from router logits. */
typedef enum pl_gating {
    PL_GATING_SOFTMAX,          /* over all experts */
    PL_GATING_SIGMOID,          /* each for itself */
    PL_GATING_SOFTMAX_SELECTED, /* over the selected ones */
} pl_gating;

typedef struct pl_rope {
    int n_rot;        /* values of a head that are rotated; even */
    bool neox;        /* pairs (i, i + n_rot/2), else (2i, 2i + 1) */
    float base;       /* frequency base */
    float freq_scale; /* 1 / factor of linear or YaRN scaling; 0 means 1 */
    bool yarn;
    float yarn_low, yarn_high; /* ramp over pair indices */
    float mscale;              /* on cos and sin; 0 means 1 */
} pl_rope;

PL_API pl_status pl_graph_create(pl_graph **out, pl_err *err);
PL_API void pl_graph_free(pl_graph *g);
/* The first error of any builder, with its message. */
PL_API pl_status pl_graph_check(const pl_graph *g, pl_err *err);

/* Tensors made from here on belong to this layer of the model, counted from 0;
 * -1, as in a new graph: to none. Devices are given layers, and options and
 * plans count by them. */
PL_API void pl_layer(pl_graph *g, int layer);

/* Leaves. Names are unique. An input is filled by the host before each step
 * (F32 or I32). A weight is loaded once; formats in blocks need two or three
 * dimensions, the last of whole blocks. A cache holds [slots, n_head, d_head]
 * of keys or values for attention. */
PL_API pl_tensor pl_input(pl_graph *g, const char *name, pl_format f, int n_dim,
                          const pl_dim *dim);
PL_API pl_tensor pl_weight(pl_graph *g, const char *name, pl_format f,
                           int n_dim, const int64_t *dim, pl_role role);
PL_API pl_tensor pl_cache(pl_graph *g, const char *name, pl_format f,
                          int64_t n_head, int64_t d_head, bool values);

/* Rows of `table` [v, d] by ids [*] (I32): [*, d]. Ids out of range: zeros. */
PL_API pl_tensor pl_gather_rows(pl_graph *g, pl_tensor table, pl_tensor ids);
/* x [*, k] times w [n, k] (a weight): [*, n]. */
PL_API pl_tensor pl_matmul(pl_graph *g, pl_tensor x, pl_tensor w);
/* x [t, u or 1, k], w [e, n, k], ids [t, u]: [t, u, n], slot u by expert
 * ids[t, u]. */
PL_API pl_tensor pl_expert_matmul(pl_graph *g, pl_tensor x, pl_tensor w,
                                  pl_tensor ids);
/* x [t, u, k], w [e, n, k], ids [t, u]: [t, n], summed over slots and k,
 * experts ascending. Router weights are multiplied into x beforehand. */
PL_API pl_tensor pl_expert_down(pl_graph *g, pl_tensor x, pl_tensor w,
                                pl_tensor ids);
/* x / sqrt(mean(x^2) + eps) over the last dimension, times w [d] unless -1. */
PL_API pl_tensor pl_rms_norm(pl_graph *g, pl_tensor x, pl_tensor w, float eps);
/* x [t, h, d] rotated by positions pos [t] (I32); freqs [n_rot/2] divides the
 * angles, -1 for none. */
PL_API pl_tensor pl_rope_apply(pl_graph *g, pl_tensor x, pl_tensor pos,
                               pl_tensor freqs, const pl_rope *rope);
/* Stores x [t, n_head, d_head] at the step's positions; gives the cache for
 * attention to read. */
PL_API pl_tensor pl_cache_write(pl_graph *g, pl_tensor cache, pl_tensor x);
/* q [t, n_head, d], caches with n_head a multiple of theirs: [t, n_head, e].
 * Causal within each sequence; window 0 and softcap 0 mean none; sinks
 * [n_head] or -1. */
PL_API pl_tensor pl_attention(pl_graph *g, pl_tensor q, pl_tensor k,
                              pl_tensor v, pl_tensor sinks, float scale,
                              int64_t window, float softcap);
PL_API pl_tensor pl_softmax(pl_graph *g, pl_tensor x);
/* The n_used best experts of logits [*, e], best first, ties by lower id; bias
 * [e] or -1 is added for the choice alone. n_group > 1: only experts of the
 * n_group_used best groups (sum of their two best). Result I32 [*, n_used]. */
PL_API pl_tensor pl_router_topk(pl_graph *g, pl_tensor logits, pl_tensor bias,
                                pl_gating gating, int n_used, int n_group,
                                int n_group_used);
/* Weights [*, n_used] of the chosen; normalise divides by max(sum, 2^-14);
 * then times scale. */
PL_API pl_tensor pl_router_weights(pl_graph *g, pl_tensor logits, pl_tensor ids,
                                   pl_gating gating, bool normalise,
                                   float scale);

/* Elementwise with broadcast (sizes 1, missing outer dimensions). */
PL_API pl_tensor pl_add(pl_graph *g, pl_tensor a, pl_tensor b);
PL_API pl_tensor pl_sub(pl_graph *g, pl_tensor a, pl_tensor b);
PL_API pl_tensor pl_mul(pl_graph *g, pl_tensor a, pl_tensor b);
PL_API pl_tensor pl_div(pl_graph *g, pl_tensor a, pl_tensor b);
/* silu(gate) * up;  gelu(gate) * up (tanh form);  gpt-oss:
 * (clamp(up, -limit, limit) + 1) * g * sigmoid(1.702 g),
 * g = min(gate, limit) */
PL_API pl_tensor pl_swiglu(pl_graph *g, pl_tensor gate, pl_tensor up);
PL_API pl_tensor pl_geglu(pl_graph *g, pl_tensor gate, pl_tensor up);
PL_API pl_tensor pl_swiglu_oai(pl_graph *g, pl_tensor gate, pl_tensor up,
                               float limit);
PL_API pl_tensor pl_scale(pl_graph *g, pl_tensor x, float factor);
PL_API pl_tensor pl_clamp(pl_graph *g, pl_tensor x, float lo, float hi);
PL_API pl_tensor pl_sqr(pl_graph *g, pl_tensor x);
PL_API pl_tensor pl_sqrt(pl_graph *g, pl_tensor x);
PL_API pl_tensor pl_exp(pl_graph *g, pl_tensor x);
PL_API pl_tensor pl_tanh(pl_graph *g, pl_tensor x);
PL_API pl_tensor pl_sigmoid(pl_graph *g, pl_tensor x);
PL_API pl_tensor pl_softplus(pl_graph *g, pl_tensor x);
PL_API pl_tensor pl_silu(pl_graph *g, pl_tensor x);
PL_API pl_tensor pl_gelu(pl_graph *g, pl_tensor x);
PL_API pl_tensor pl_relu(pl_graph *g, pl_tensor x);
/* Over the second-last dimension: [*, u, d] -> [*, d]. */
PL_API pl_tensor pl_sum(pl_graph *g, pl_tensor x);
/* Rounds to F16 or BF16 and back to F32 values (format F32: no change). */
PL_API pl_tensor pl_cast(pl_graph *g, pl_tensor x, pl_format f);
PL_API pl_tensor pl_contiguous(pl_graph *g, pl_tensor x);
PL_API pl_tensor pl_reshape(pl_graph *g, pl_tensor x, int n_dim,
                            const pl_dim *dim);
/* Result dimension i is x's dimension perm[i]. */
PL_API pl_tensor pl_permute(pl_graph *g, pl_tensor x, const int *perm);
/* len indices of `axis` from start on; not along a symbolic dimension. */
PL_API pl_tensor pl_slice(pl_graph *g, pl_tensor x, int axis, int64_t start,
                          int64_t len);
PL_API pl_tensor pl_concat(pl_graph *g, int n, const pl_tensor *x, int axis);

/* An op of the caller's own ------------------------------------------- */

/* What is here of a split dimension: indices index .. index + n - 1 lie at
 * at .. at + n - 1. */
typedef struct pl_op_part {
    int64_t index, at, n;
} pl_op_part;

/* An operand or the result as a kernel meets it: what this device holds,
 * contiguous, the last dimension innermost. A split dimension counts what is
 * here, and may be 0. */
typedef struct pl_op_value {
    void *data; /* float or int32_t; of an operand: read only. NULL: absent */
    pl_format format; /* F32 or I32; the result: F32 */
    int n_dim;
    int64_t dim[4];         /* here, in this step */
    int split;              /* the dimension that is not all here, or -1 */
    int n_part;             /* split >= 0: what of it is here, ascending */
    const pl_op_part *part; /* [n_part] */
} pl_op_value;

typedef struct pl_op_call {
    void *user; /* the definition's */
    pl_op_value out;
    int n_in;
    pl_op_value in[4];
    int ith, nth; /* this thread, and how many have been called alike */
} pl_op_call;

/* Called by all nth threads of a device at once; each does its part of the
 * work, by values of the result. Bits must not depend on nth, on the other
 * rows, or on how much of a split dimension is here. May not fail, nor touch
 * anything but the result; several devices call it at the same time. */
typedef void pl_op_kernel(const pl_op_call *c);

/* Which operands may be PARTIAL, a sum that is yet to be taken: none; one of a
 * mask of operands, the others whole; or any of them. The kernel is then called
 * once a rank with that rank's addends, and must be linear in them. PL_OP_SUM:
 * linear in all operands at once; one that has no addend on a rank is absent
 * there (in[i].data NULL) and counts as zeros. */
enum { PL_OP_NONE = 0, PL_OP_SUM = 0x100, PL_OP_ONE = 0x200 };

/* A row, as src/graph/ops.def has one an op. dims: one letter a dimension,
 * "td,d->td". A letter of the result may be split: then the operands that bear
 * it are split alike, and the kernel sees parts. One that is not in the result
 * is summed over: if it is split the kernel is called once a rank with what
 * that rank has of it, and gives an addend. '!' behind a letter keeps it whole.
 * '*' stands for any number of leading dimensions, aligned at the right, where
 * an operand may have size 1 or lack some. (gr) is one dimension of size
 * g * r, g the outer factor; it has to stand in the result as well, or be
 * whole. '?' at an operand's end: it may be left out. n_tok, n_out: whole. */
typedef struct pl_op_def {
    const char *name; /* of letters, digits, "._-/+"; no op's of ours */
    const char *dims; /* one to four operands, of up to four dimensions */
    unsigned partial; /* PL_OP_NONE, PL_OP_SUM, PL_OP_ONE | mask */
    pl_op_kernel *run;
    void *user;       /* given to run; borrowed as long as graph and plans */
    uint64_t edition; /* another number wherever run gives other bits: it
                          enters the numeric hash, with name and row */
} pl_op_def;

/* The op on n_in operands (F32 or I32; -1: absent); its result is F32. The
 * definition is copied; ops of one graph with one name are the same. */
PL_API pl_tensor pl_custom(pl_graph *g, const pl_op_def *def, int n_in,
                           const pl_tensor *in);

/* Marks a result: an output is read after every step; a kept one may be. */
PL_API void pl_output(pl_graph *g, pl_tensor x);
PL_API void pl_keep(pl_graph *g, pl_tensor x);
/* Asks for a layout of any tensor (copied). Caches are split by heads alone;
 * those that one attention reads are stored alike, with every head where either
 * was asked to have it. */
PL_API void pl_want_layout(pl_graph *g, pl_tensor x, const pl_layout *l);
PL_API const char *pl_tensor_name(const pl_graph *g, pl_tensor x);
/* Names the tensor for pl_tensor_get and messages; leaves have theirs. */
PL_API void pl_name(pl_graph *g, pl_tensor x, const char *name);
PL_API pl_tensor pl_tensor_find(const pl_graph *g, const char *name);
/* Number of dimensions, or -1; fills dim[4]. */
PL_API int pl_tensor_shape(const pl_graph *g, pl_tensor x, pl_dim dim[4]);

/* The text form: one line a tensor, `name: f32[n_tok, 64] = add(a, b)`, and
 * back. */
PL_API pl_status pl_graph_print(const pl_graph *g, pl_write_fn *write,
                                void *user, pl_err *err);
PL_API pl_status pl_graph_parse(pl_graph **out, const char *text, pl_err *err);
/* The same of a text that names ops of the caller's own. */
PL_API pl_status pl_graph_parse_ops(pl_graph **out, const char *text, int n_def,
                                    const pl_op_def *def, pl_err *err);

/* ---- options ----------------------------------------------------------- */

typedef enum pl_log_level {
    PL_LOG_DEBUG,
    PL_LOG_INFO,
    PL_LOG_WARN
} pl_log_level;
typedef void pl_log_fn(void *user, pl_log_level level, const char *text);
/* done of total units of `what` ("loading weights"). */
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
    PL_OFFLOAD_ON,   /* weights kept on the host are streamed to devices when a
                        step has many tokens */
    PL_OFFLOAD_OFF,  /* they are computed with on the host, always */
} pl_offload;

/* Zero-initialised, or NULL in its place, gives the defaults. Strings and
 * arrays are borrowed for the call. PL_BAD_ARGUMENT, naming the field: a
 * negative count, NULL where a count says that there is something, an
 * enumerator that does not exist. */
typedef struct pl_options {
    const char *devices;        /* "cpu", "cpu*2", "cpu:0-3,cpu:4-7",
                                   "sim:2GiB:16GB/s:10us*2", "proc*2";
                                   NULL = "cpu" */
    const char *device_spec;    /* plan only: a machine that is not there,
                                   "gpu:24GiB:1TB/s*4"; replaces devices */
    int n_ranks;                /* 0: one a device */
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
    uint64_t fit_margin; /* bytes left free on each device; 0: 1/64 of it */
    bool no_pin;         /* leave threads where the system puts them */
    const char *cpu;     /* kernel family: reference, generic, avx2, avx512;
                            NULL: the best there is */
    int64_t n_ctx;       /* token slots of the cache; 0: 4096 or the model's
                            context, whichever is less */
    int64_t n_ubatch;    /* most tokens a step; 0: 512 */
    int64_t n_out;       /* most rows of logits a step; 0: 64 */
    int n_seq;           /* most sequences; 0: 8 */
    bool cache_set;      /* cache_k and cache_v are meant; else F16 */
    pl_format cache_k, cache_v; /* F16, F32, BF16 or Q8_0 */
    const char *const *keep;    /* names of a model's intermediate values that
                                can be read after a step, "l_out-*"; keeping
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
} pl_options;

/* ---- running a graph --------------------------------------------------- */

/* A graph planned for a group of devices, with memory of its own. */
typedef struct pl_exec pl_exec; /* opaque */

/* Plans `g` (borrowed until pl_exec_free) and allocates device memory. */
PL_API pl_status pl_exec_create(pl_exec **out, const pl_graph *g,
                                const pl_options *opt, pl_err *err);
PL_API void pl_exec_free(pl_exec *x);

/* Bytes of the whole logical tensor in its own format, row by row; for packed
 * weights the format's blocks. Weights must be set before the first step. */
PL_API pl_status pl_tensor_set(pl_exec *x, pl_tensor t, const void *data,
                               size_t offset, size_t bytes, pl_err *err);
/* Any byte range of a weight, a cache, an input, an output or a kept tensor;
 * sizes that depend on the step are those of the last one. */
PL_API pl_status pl_tensor_get(pl_exec *x, pl_tensor t, void *data,
                               size_t offset, size_t bytes, pl_err *err);

/* The same while the caller goes on: done in the order of the calls, on a
 * thread of the executor. `data` must stay until pl_exec_wait, or until a step
 * or another get or set has returned: those wait by themselves. The first
 * failure is told by the call that waits; what stood behind it is not done.
 * Wait before asking anything else of an engine. */
PL_API pl_status pl_tensor_get_async(pl_exec *x, pl_tensor t, void *data,
                                     size_t offset, size_t bytes, pl_err *err);
PL_API pl_status pl_tensor_set_async(pl_exec *x, pl_tensor t, const void *data,
                                     size_t offset, size_t bytes, pl_err *err);
PL_API pl_status pl_exec_wait(pl_exec *x, pl_err *err);

/* A strided view: index i of it is value start + sum of i_d * stride_d of the
 * tensor, counted row by row; strides may be 0 or negative. */
typedef struct pl_view {
    int n_dim; /* 1 to 4 */
    int64_t dim[4], stride[4];
    int64_t start;
} pl_view;

/* The view's values in its own order, close together: as the tensor has them,
 * or of formats in blocks F32. Whole rows of weights and caches are read for
 * it; values of formats in blocks cannot be set. Of values that the view has
 * several times the last one is set. */
PL_API pl_status pl_tensor_get_view(pl_exec *x, pl_tensor t, const pl_view *v,
                                    void *data, pl_err *err);
PL_API pl_status pl_tensor_set_view(pl_exec *x, pl_tensor t, const pl_view *v,
                                    const void *data, pl_err *err);

/* Tokens of a step, in order; those of one sequence adjacent. */
typedef struct pl_rows {
    int64_t n_tok, n_out;
    const int32_t *pos;   /* [n_tok] position in its sequence */
    const int32_t *seq;   /* [n_tok] row of pages */
    const int32_t *pages; /* [n_seq, page_stride]: page of 64 slots that holds
                             positions 64 i .. 64 i + 63 */
    int64_t page_stride;
} pl_rows;

/* Runs the graph once; inputs were set by pl_tensor_set. pos, seq and pages may
 * be NULL where no cache is used. */
PL_API pl_status pl_exec_step(pl_exec *x, const pl_rows *rows, pl_err *err);

/* Multiply-adds and bytes a rank has really done and read since creation. */
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
/* What a trace has seen: zeros without. */
typedef struct pl_traced {
    uint64_t runs;
    double seconds;  /* of them */
    double copy_s;   /* copies between groups, over all devices */
    double hidden_s; /* of that: while the receiving group computed */
} pl_traced;
PL_API void pl_exec_traced(const pl_exec *x, pl_traced *out);
PL_API void pl_exec_counters(const pl_exec *x, pl_counters *out);

/* ---- models ------------------------------------------------------------ */

typedef struct pl_model pl_model;   /* a file: metadata, no weights */
typedef struct pl_plan pl_plan;     /* what would happen */
typedef struct pl_engine pl_engine; /* weights and cache on devices */
typedef struct pl_tokenizer pl_tokenizer;
typedef struct pl_sampler pl_sampler;

PL_API pl_status pl_model_open(pl_model **out, const char *path, pl_err *err);
PL_API void pl_model_free(pl_model *m);
PL_API const char *pl_model_arch(const pl_model *m);
PL_API int64_t pl_model_n_vocab(const pl_model *m);
PL_API int64_t pl_model_n_ctx_train(const pl_model *m);
/* NULL if the file has none; *err of pl_model_open is not set by that. */
PL_API const pl_tokenizer *pl_model_tokenizer(const pl_model *m);

/* Plans without reading a weight. */
PL_API pl_status pl_plan_create(pl_plan **out, const pl_model *m,
                                const pl_options *opt, pl_err *err);
PL_API void pl_plan_free(pl_plan *p);
PL_API pl_status pl_plan_print(const pl_plan *p, bool json, pl_write_fn *write,
                               void *user, pl_err *err);
/* What -sm, -ts, -ngl and the like would have to say to get this plan again,
 * beside the options that it does not name; as long as the plan lives. */
PL_API const char *pl_plan_options(const pl_plan *p);
/* The plan as a picture (SVG): devices are lanes, layers columns, tensors boxes
 * in proportion to their bytes, collectives and copies lines between lanes. */
PL_API pl_status pl_plan_svg(const pl_plan *p, pl_write_fn *write, void *user,
                             pl_err *err);
/* One line: devices, ranks, bytes, messages a token. */
PL_API void pl_plan_summary(const pl_plan *p, char *buf, size_t size);

/* Plans, allocates and loads. `m` is borrowed until pl_engine_free. */
PL_API pl_status pl_engine_create(pl_engine **out, const pl_model *m,
                                  const pl_options *opt, pl_err *err);
PL_API void pl_engine_free(pl_engine *e);
PL_API const pl_plan *pl_engine_plan(const pl_engine *e);
PL_API void pl_engine_counters(const pl_engine *e, pl_counters *out);
PL_API int64_t pl_engine_n_ctx(const pl_engine *e);

/* The graph of a model as it is planned; lives as long as the plan. */
PL_API const pl_graph *pl_plan_graph(const pl_plan *p);
/* What runs it, to read and set tensors between calls of the engine (kept
 * values are those of its last step); and a tensor by name, or -1. The engine's
 * own: do not free it, run no step with it. */
PL_API pl_exec *pl_engine_exec(pl_engine *e);
PL_API pl_tensor pl_engine_tensor(const pl_engine *e, const char *name);

/* Tokens for any sequences; each token goes to the end of its sequence. Cut
 * into steps by the engine. */
typedef struct pl_batch {
    int64_t n;
    const int32_t *token;
    const int32_t *seq;    /* [n], 0 .. n_seq-1; NULL: all sequence 0 */
    const uint8_t *wanted; /* [n], logits wanted; NULL: all */
    float *logits;         /* [number wanted, n_vocab], in order; may be NULL
                              if none is wanted */
} pl_batch;

/* On failure (FULL: no cache slot left; BAD_FILE: a logit that is wanted is nan
 * or infinite) no sequence has changed. `cancel`, may be NULL, is polled
 * between steps; nonzero ends with PL_CANCELLED and the sequences hold what was
 * done. */
PL_API pl_status pl_engine_decode(pl_engine *e, const pl_batch *b,
                                  const volatile int *cancel, pl_err *err);
PL_API int64_t pl_seq_length(const pl_engine *e, int seq);
/* Keeps the first n_keep tokens; a sequence is emptied by n_keep = 0. */
PL_API pl_status pl_seq_trim(pl_engine *e, int seq, int64_t n_keep,
                             pl_err *err);
/* dst (emptied first) becomes a copy of src; full pages are shared. */
PL_API pl_status pl_seq_copy(pl_engine *e, int dst, int src, pl_err *err);

/* ---- state ------------------------------------------------------------- */

/* What sequences have in the cache, as a stream of bytes in logical order.
 * Saved under any devices, ranks, pages and steps, it is restored under any
 * other: with the same ranks the continuation has the bits it would have had
 * without the trip. With others it is computed from a past that keeps its
 * saver's bits; that is told through the `log` of the engine's options, which
 * is kept until pl_engine_free. Token ids are not in it. */

/* Takes all n bytes; false: it failed. */
typedef bool pl_state_write_fn(void *user, const void *data, size_t n);
/* Gives n bytes, fewer only at the end; -1: it failed. */
typedef int64_t pl_state_read_fn(void *user, void *data, size_t n);

/* Positions [first, first + n) of a sequence, n < 0: all from `first` on; or,
 * seq -1, all sequences (then first is 0 and n < 0). Takes memory for 64
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
/* The file appears, or replaces what was there, only when it is whole and on
 * the disk. */
PL_API pl_status pl_state_save_file(pl_engine *e, int seq, int64_t first,
                                    int64_t n, const char *path, pl_err *err);

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
PL_API pl_status pl_state_restore_file(pl_engine *e, int seq, const char *path,
                                       unsigned flags, pl_err *err);

/* ---- text -------------------------------------------------------------- */

/* Any GGUF with a vocabulary, of any architecture, with or without tensors. */
PL_API pl_status pl_tokenizer_open(pl_tokenizer **out, const char *path,
                                   pl_err *err);
PL_API void pl_tokenizer_free(pl_tokenizer *t); /* not a model's own */
PL_API int64_t pl_tokenizer_n_vocab(const pl_tokenizer *t);

enum {
    PL_ADD_SPECIAL = 1,   /* BOS/EOS where the tokenizer asks for them */
    PL_PARSE_SPECIAL = 2, /* "<|im_end|>" in the text is that token */
};
/* *ids is malloc'ed, *n its length; the caller frees it. */
PL_API pl_status pl_tokenize(const pl_tokenizer *t, const char *text,
                             size_t len, int flags, int32_t **ids, int64_t *n,
                             pl_err *err);
/* Does the tokenizer ask for a BOS; which token it is (-1: none). */
PL_API bool pl_tokenizer_adds_bos(const pl_tokenizer *t);
PL_API int32_t pl_tokenizer_bos(const pl_tokenizer *t);
/* Ends a generation (EOS, end of turn, ...). */
PL_API bool pl_token_ends(const pl_tokenizer *t, int32_t id);

/* Ids to text, piece by piece, in valid UTF-8 only. */
typedef struct pl_detokenizer pl_detokenizer;
PL_API pl_status pl_detokenizer_create(pl_detokenizer **out,
                                       const pl_tokenizer *t, bool special,
                                       pl_err *err);
PL_API void pl_detokenizer_free(pl_detokenizer *d);
/* Text that became complete with this token (terminated, valid until the next
 * call; may be empty). */
PL_API const char *pl_detokenize(pl_detokenizer *d, int32_t id);
/* What is held back, made valid; resets. */
PL_API const char *pl_detokenize_flush(pl_detokenizer *d);

/* Zero-initialised is not the default: use pl_sampling_defaults. Applied in
 * this order. */
typedef struct pl_sampling {
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
} pl_sampling;
PL_API void pl_sampling_defaults(pl_sampling *s);
PL_API pl_status pl_sampler_create(pl_sampler **out, const pl_sampling *s,
                                   int64_t n_vocab, pl_err *err);
PL_API void pl_sampler_free(pl_sampler *s);
/* Chooses from logits [n_vocab] and remembers the choice for penalties; -1 if
 * any is nan or +inf, or all are -inf, biases included. */
PL_API int32_t pl_sample(pl_sampler *s, const float *logits);
/* Remembers a token that was not sampled (the prompt's). */
PL_API void pl_sampler_accept(pl_sampler *s, int32_t id);

/* ---- machine ----------------------------------------------------------- */

/* What this machine offers: NUMA nodes, cores, memory, instruction sets. */
PL_API pl_status pl_devices_print(bool json, pl_write_fn *write, void *user,
                                  pl_err *err);
/* Measures in a few seconds how fast its cores, memory and messages are, prints
 * that, and keeps it in $XDG_CACHE_HOME/plait, else ~/.cache/plait, for the
 * estimates of later plans; that it cannot be kept is no error. Of `opt` (may
 * be NULL): cpu and no_pin. */
PL_API pl_status pl_devices_measure(const pl_options *opt, bool json,
                                    pl_write_fn *write, void *user,
                                    pl_err *err);

#ifdef __cplusplus
}
#endif
#endif
