/* plait: large language models split over several devices as if they were one.
 *
 * This is the whole public interface. What can fail returns a pl_status and
 * takes a `pl_err *` last, which may be NULL; the message names the thing, the
 * value and the remedy. Nothing here aborts, exits or prints. Objects are
 * opaque, owned by whoever created them, and freed by one call that takes NULL.
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

/* What is in a GGUF file: metadata, tensors, totals by format; as text or as
 * one JSON object. */
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

#ifdef __cplusplus
}
#endif
#endif
