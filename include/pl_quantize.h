/* Quantizes models: writes a GGUF file whose weights have another format.
 *
 * A type names the format of most weights, or a mix of formats under the name
 * that llama-quantize has for it ("Q4_K_M"). Norms, routers, biases and other
 * small tensors keep their format. Scales are searched for the least weighted
 * error, with importances of an imatrix file if there is one. All else in the
 * file stays as it is, byte for byte.
 *
 * The result depends on the arguments alone, not on threads or the machine.
 * Results, statuses, NULL, threads and fork() are as in pl.h. */
#ifndef PL_QUANTIZE_H
#define PL_QUANTIZE_H

#include "pl.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Describes what became of one tensor. Pointers are valid during the call
 * only. */
typedef struct pl_quantize_tensor {
    const char *name;
    int n_dim;
    const int64_t *dim;    /* [n_dim] outermost first */
    const char *from, *to; /* names of the formats; the same if it was copied */
    uint64_t from_bytes, to_bytes;
    /* The format that the type asks for, if the tensor's width does not fit its
     * blocks; else NULL. */
    const char *instead_of;
    bool imatrix; /* importances were used */
    /* Root of the mean square error, divided by that of the values; and the
     * same with each square multiplied by the importance of its column. -1
     * without pl_quantize_options.errors, and for copied tensors. */
    double error, weighted_error;
} pl_quantize_tensor;
typedef void pl_quantize_fn(void *user, const pl_quantize_tensor *t);

/* Settings. pl_quantize_init sets the defaults. */
typedef struct pl_quantize_options {
    size_t size;
    /* The type: a mix, or a format; required. "COPY" keeps all formats, which
     * joins a split model. */
    const char *type;
    /* REGEX=FORMAT texts: tensors whose name matches get the format. The first
     * match counts. Case is ignored. */
    const char *const *tensor_types;
    int n_tensor_types;
    /* formats of output.weight and of token_embd.weight; NULL for those of the
     * type */
    const char *output_type, *embedding_type;
    bool leave_output; /* copy output.weight */
    bool pure;         /* the format of the type for all matrices */
    bool requantize;   /* also quantize weights that are quantized */
    bool keep_split;   /* one file for each file of the input */
    bool dry_run;      /* report what would be written, and write nothing */
    bool no_search;    /* round with the scale of the largest value: faster, and
                          with larger errors */
    bool errors;       /* compute the errors of pl_quantize_tensor */
    /* path of a file of importances, GGUF or binary, by llama-imatrix; NULL for
     * none */
    const char *imatrix;
    /* texts: of the importances, use those of matrices whose names contain one
     * of `include`; drop those that contain one of `exclude` */
    const char *const *include, *const *exclude;
    int n_include, n_exclude;
    int n_threads;          /* 0 for one per processor */
    pl_quantize_fn *tensor; /* called for each tensor, in order; may be NULL */
    void *tensor_user;
    pl_progress_fn *progress; /* may be NULL */
    void *progress_user;
    const volatile int *cancel; /* may be NULL */
} pl_quantize_options;

static inline void pl_quantize_init(pl_quantize_options *o)
{
    if (!o)
        return;
    memset(o, 0, sizeof *o);
    o->size = sizeof *o;
}

/* Totals of a quantized model. */
typedef struct pl_quantize_result {
    uint64_t from_bytes, to_bytes; /* bytes of all tensors */
    uint64_t n_values;             /* values of all tensors */
    int n_tensor;
    int n_quantized; /* tensors whose format changed */
    int n_fallback;  /* tensors whose width did not fit */
    int n_file;      /* files written */
} pl_quantize_result;

/* Quantizes the model of file `in`, or of all files of a split model, to `out`.
 * With keep_split, a trailing ".gguf" of `out` is replaced by
 * "-00001-of-00003.gguf" and so on. Every file is written under the rules of
 * pl_file_open, and all are committed after the last is complete, so that a
 * failure keeps what was there. `out` may be NULL with dry_run. `size` is
 * sizeof(pl_quantize_result); `result` may be NULL.
 *
 * PL_BAD_ARGUMENT: no such type or format, or `out` is a file of the model or
 * of the importances. PL_UNSUPPORTED: weights are quantized already and
 * `requantize` is not set, or a type so small needs importances. PL_BAD_FILE:
 * also for weights that are not finite. PL_CANCELLED: *cancel became
 * nonzero. */
PL_API pl_status pl_quantize(const char *in, const char *out,
                             const pl_quantize_options *o,
                             pl_quantize_result *result, size_t size,
                             pl_err *err);

/* Returns the name of the type that a text means, in upper or lower case, or
 * the number that the type has in general.file_type; NULL if it means none. */
PL_API const char *pl_quantize_type(const char *text);
/* Calls `each` with the name of every type. */
PL_API void pl_quantize_types(pl_write_fn *each, void *user);

#ifdef __cplusplus
}
#endif
#endif
