/* Reading GGUF files (versions 2 and 3, little endian, split files joined).
 *
 * The reader trusts nothing: counts, lengths, offsets, alignment, duplicate
 * names and the end of the file are checked, and each error names the file,
 * the byte offset, the key or tensor, and a remedy. Metadata is copied, strings
 * and arrays point into the copy; data of tensors is mapped read-only. Who
 * reads data through the mapping dies of SIGBUS if somebody shortens the file;
 * who calls gguf_read gets a status. Beside the mapping an open file takes at
 * most three times its size + 64 MiB. This is the only layer that knows the
 * container; shapes leave it outermost first. It does not know models.
 *
 * An open file is read-only and may be used by any number of threads. */
#ifndef GGUF_GGUF_H
#define GGUF_GGUF_H

#include "pl.h"

enum gguf_type {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
    GGUF_TYPE_COUNT
};

enum { GGUF_MAX_DIM = 4 };

struct gguf_str {
    const char *s; /* not terminated, not checked to be UTF-8 */
    size_t len;
};

/* One metadata entry. For an array `elem` is the element's type and `count`
 * their number; for anything else elem == type and count == 1. Keys hold no
 * NUL; truth values are 0 or 1. */
struct gguf_kv {
    const char *key; /* terminated, owned by the file */
    enum gguf_type type, elem;
    uint64_t count;
    const unsigned char *data;   /* owned by the file: little endian, unaligned;
                                    of a string its length field */
    const struct gguf_str *strs; /* [count] if elem is a string, else NULL */
};

/* One tensor. dim[] is outermost first: a matrix [n_out, n_in] has
 * dim[n_dim - 1] = n_in contiguous. */
struct gguf_tensor {
    const char *name; /* terminated, owned by the file */
    int n_dim;        /* 1 .. 4 (0-dimensional ones are refused) */
    int64_t dim[GGUF_MAX_DIM];
    pl_format format; /* PL_FORMAT_COUNT if the id is known but unsupported */
    uint32_t id;      /* the file's type id */
    size_t bytes;     /* in the file, for unsupported formats too */
    int part;         /* which file of a split set */
    uint64_t offset;  /* of the data, from the start of that file */
    const void *data; /* view into the mapping; NULL if unsupported. Touched
                         only after gguf_check_whole */
};

struct gguf; /* opaque */

/* Opens `path`; of a split set any part's name may be given and all are
 * opened: metadata is the first part's, tensors are those of all parts in
 * order. On failure *out is NULL. */
pl_status gguf_open(struct gguf **out, const char *path, pl_err *err);

/* The same from memory that the caller keeps alive (fuzzing, tests). `name`
 * stands for the path in errors. Data is as aligned as `data` is. A part of a
 * split set is refused. */
pl_status gguf_open_memory(struct gguf **out, const void *data, size_t size,
                           const char *name, pl_err *err);
void gguf_close(struct gguf *g);

const char *gguf_path(const struct gguf *g); /* of the first part */
int gguf_n_part(const struct gguf *g);
uint32_t gguf_version(const struct gguf *g);
size_t gguf_alignment(const struct gguf *g);
size_t gguf_file_bytes(const struct gguf *g); /* of all parts */

int64_t gguf_n_kv(const struct gguf *g);
const struct gguf_kv *gguf_kv_at(const struct gguf *g, int64_t i);
int64_t gguf_n_tensor(const struct gguf *g);
const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, int64_t i);

/* NULL if absent. Constant time. */
const struct gguf_kv *gguf_find(const struct gguf *g, const char *key);
const struct gguf_tensor *gguf_find_tensor(const struct gguf *g,
                                           const char *name);

/* Bytes [offset, offset + bytes) of a tensor's data, which has as many. A file
 * that has become shorter is BAD_FILE. */
pl_status gguf_read(const struct gguf *g, const struct gguf_tensor *t,
                    size_t offset, void *dst, size_t bytes, pl_err *err);

/* Has the file of that tensor still all the bytes that it had when it was
 * opened? For who is about to read t->data: what is cut off while he reads
 * still raises SIGBUS. */
pl_status gguf_check_whole(const struct gguf *g, const struct gguf_tensor *t,
                           pl_err *err);

/* What the files are to the system now, as a number: device, number, size and
 * times of each. Another one follows whenever one is written to; a copy has
 * another one too. False: they are in memory, or gone. */
bool gguf_identity(const struct gguf *g, uint64_t out[2]);
/* Returns true if `path` is one of its files, by whatever name or link. */
bool gguf_has_file(const struct gguf *g, const char *path);

/* Element i of an array (or i = 0 of a scalar), converted. False if the type
 * does not fit (a string, a fraction where an integer is wanted, out of the
 * result's range) or i >= count. Any integer width is accepted; a whole float
 * serves as an integer, and 0 and 1 as truth values. */
bool gguf_as_i64(const struct gguf_kv *kv, uint64_t i, int64_t *out);
bool gguf_as_f64(const struct gguf_kv *kv, uint64_t i, double *out);
bool gguf_as_bool(const struct gguf_kv *kv, uint64_t i, bool *out);
bool gguf_as_str(const struct gguf_kv *kv, uint64_t i, struct gguf_str *out);

/* Typed look-ups: absent gives the default; present with another type (an array
 * too), out of range [lo, hi] or not finite is an error naming file, key, value
 * and what is expected.
 * gguf_need_* makes absence an error too. */
pl_status gguf_get_i64(const struct gguf *g, const char *key, int64_t def,
                       int64_t lo, int64_t hi, int64_t *out, pl_err *err);
pl_status gguf_need_i64(const struct gguf *g, const char *key, int64_t lo,
                        int64_t hi, int64_t *out, pl_err *err);
pl_status gguf_get_f64(const struct gguf *g, const char *key, double def,
                       double *out, pl_err *err);
pl_status gguf_need_f64(const struct gguf *g, const char *key, double *out,
                        pl_err *err);
pl_status gguf_get_bool(const struct gguf *g, const char *key, bool def,
                        bool *out, pl_err *err);
/* A missing string gives {NULL, 0}. */
pl_status gguf_get_str(const struct gguf *g, const char *key,
                       struct gguf_str *out, pl_err *err);

const char *gguf_type_name(enum gguf_type t); /* "u32", "array", ... */
/* Name of a tensor type id, supported or not ("Q4_K", "IQ2_XXS", "type 99"
 * written into buf). */
const char *gguf_format_name(uint32_t id, char buf[24]);

#endif
