/* Reads GGUF files (versions 2 and 3, little endian, split files joined).
 *
 * The reader trusts nothing. It checks counts, lengths, offsets, alignment,
 * duplicate names and the end of the file. Each error names the file, the byte
 * offset, the key or tensor, and a remedy. Metadata is copied, and strings and
 * arrays point into the copy; data of tensors is mapped read-only. Reading data
 * through the mapping raises SIGBUS if another process truncates the file;
 * gguf_read returns a status instead. Besides the mapping, an open file takes
 * at most three times its size + 64 MiB. Only this layer knows the GGUF
 * format. It returns shapes outermost first. It knows nothing about models.
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
    const char *s; /* the text; not NUL-terminated and perhaps not valid
                      UTF-8 */
    size_t len;
};

/* One key of the metadata with its value. For an array, `elem` is the type of
 * the elements and `count` their number. Otherwise elem == type and count == 1.
 * Keys contain no NUL; booleans are 0 or 1. */
struct gguf_kv {
    const char *key; /* NUL-terminated, owned by the struct gguf */
    enum gguf_type type, elem;
    uint64_t count;
    /* The bytes of the value as in the file, little endian and unaligned, owned
     * by the struct gguf. A string has its length in 8 bytes before its
     * text. */
    const unsigned char *data;
    const struct gguf_str *strs; /* [count] the strings if `elem` is the string
                                    type, else NULL */
    bool overridden;             /* the value was set by gguf_override and is
                                    not from the file */
};

/* One tensor. dim[] is outermost first: a matrix [n_out, n_in] has
 * dim[n_dim - 1] = n_in contiguous. */
struct gguf_tensor {
    const char *name; /* NUL-terminated, owned by the struct gguf */
    int n_dim;        /* number of dimensions, 1 to 4; a file with a tensor of
                         none is rejected */
    int64_t dim[GGUF_MAX_DIM];
    pl_format format; /* format of the values; PL_FORMAT_COUNT if plait knows
                         only the size of the format */
    uint32_t id;      /* number of the format in GGUF files */
    size_t bytes;     /* size of the data in the file in bytes, also if plait
                         cannot compute with the format */
    int part; /* index of the part (file) that has the data; 0 if the model is
                 not split */
    uint64_t offset; /* offset in bytes of the data from the start of that
                        file */
    /* Address of the data in the mapped file; NULL if plait cannot compute with
     * the format. It may be read only after gguf_check_whole. */
    const void *data;
};

struct gguf; /* opaque: an open GGUF file, or all files of a split model */

/* Opens `path`. For a split set, any part's name may be given, and all parts
 * are opened. Metadata comes from the first part, tensors from all parts in
 * order. On failure *out is NULL. */
pl_status gguf_open(struct gguf **out, const char *path, pl_err *err);

/* Opens the bytes of a GGUF file in memory, which the caller keeps alive, as
 * fuzzers and tests do. `name` replaces the path in errors. The alignment of
 * tensors in memory follows from that of `data`. Rejects a part of a split
 * model. */
pl_status gguf_open_memory(struct gguf **out, const void *data, size_t size,
                           const char *name, pl_err *err);
void gguf_close(struct gguf *g);

/* Replaces keys of the metadata, or adds them, as if they were in the file.
 * Each text is KEY=TYPE:VALUE, or several of these with commas between them.
 * TYPE is int, float (32 bits), bool (true or false) or str. A KEY=TYPE:VALUE
 * in double quotes may contain commas, and "" there stands for one quote. If
 * KEY begins with a dot, the name of the architecture is put before it. If a
 * key is given twice, the last value counts, but all keys that begin with a dot
 * are set after the others. Must be called before other threads use the file.
 * Returns PL_BAD_ARGUMENT if a text has another form. */
pl_status gguf_override(struct gguf *g, const char *const *text, int n,
                        pl_err *err);
/* Returns the name of the type of a value in the notation of gguf_override,
 * such as "int". */
const char *gguf_override_type(const struct gguf_kv *kv);
/* Fails with PL_BAD_ARGUMENT if gguf_override has set a key that no code has
 * looked up, because the override then has no effect. */
pl_status gguf_check_overrides(const struct gguf *g, pl_err *err);

/* Returns the path of the model's first part. */
const char *gguf_path(const struct gguf *g);
int gguf_n_part(const struct gguf *g);
uint32_t gguf_version(const struct gguf *g);
size_t gguf_alignment(const struct gguf *g);
/* Returns the total size of all parts in bytes. */
size_t gguf_file_bytes(const struct gguf *g);

int64_t gguf_n_kv(const struct gguf *g);
const struct gguf_kv *gguf_kv_at(const struct gguf *g, int64_t i);
int64_t gguf_n_tensor(const struct gguf *g);
const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, int64_t i);

/* Return the entry of the metadata, or the tensor, with this name; NULL if the
 * file has none. Take constant time. */
const struct gguf_kv *gguf_find(const struct gguf *g, const char *key);
const struct gguf_tensor *gguf_find_tensor(const struct gguf *g,
                                           const char *name);
/* Returns true if gguf_find, or a function that calls it such as gguf_get_i64,
 * has looked up the key with index i. */
bool gguf_was_asked(const struct gguf *g, int64_t i);

/* Copies bytes [offset, offset + bytes) of a tensor's data, which must exist,
 * to `dst`. Returns PL_BAD_FILE if the file has become shorter. */
pl_status gguf_read(const struct gguf *g, const struct gguf_tensor *t,
                    size_t offset, void *dst, size_t bytes, pl_err *err);

/* Fails if the file of tensor `t` is shorter now than when it was opened. Must
 * be called before t->data is read. Reading t->data still raises SIGBUS if
 * another process truncates the file during the reading. */
pl_status gguf_check_whole(const struct gguf *g, const struct gguf_tensor *t,
                           pl_err *err);

/* Computes an identity of the opened files from the device, inode, size and
 * times of each. It changes whenever a file is written, and differs between a
 * file and its copy. Returns false if the data was opened from memory or a file
 * cannot be queried. */
bool gguf_identity(const struct gguf *g, uint64_t out[2]);
/* Returns true if `path` is one of the opened files, under any name or link. */
bool gguf_has_file(const struct gguf *g, const char *path);

/* Convert element i of an array, or i = 0 of a scalar. Return false if i >=
 * count or if the value does not fit: a string, a fraction for an integer, or a
 * value out of the result's range. Any integer width is accepted. A float
 * without a fraction is accepted as an integer, and 0 and 1 as booleans. */
bool gguf_as_i64(const struct gguf_kv *kv, uint64_t i, int64_t *out);
bool gguf_as_f64(const struct gguf_kv *kv, uint64_t i, double *out);
bool gguf_as_bool(const struct gguf_kv *kv, uint64_t i, bool *out);
bool gguf_as_str(const struct gguf_kv *kv, uint64_t i, struct gguf_str *out);

/* Typed look-ups. If the key is absent, gguf_get_* returns the default `def`
 * and gguf_need_* fails. They fail for a value of another type, an array, a
 * number outside [lo, hi] and a number that is not finite. An error names the
 * file, the key, the value and what is expected. */
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
/* Sets *out to the text of a string key, or to {NULL, 0} if the file lacks the
 * key. */
pl_status gguf_get_str(const struct gguf *g, const char *key,
                       struct gguf_str *out, pl_err *err);

/* Writes the value of a key to `buf` for a message, shortened if it is long.
 * Returns `buf`. */
const char *gguf_value_text(const struct gguf_kv *kv, char buf[80]);
/* Returns the name of a type, such as "u32" or "array". */
const char *gguf_type_name(enum gguf_type t);
/* Returns the name of the format with number `id` in GGUF files, supported or
 * not, such as "Q4_K" or "IQ2_XXS". For an unknown number, writes "type 99" to
 * `buf` and returns `buf`. */
const char *gguf_format_name(uint32_t id, char buf[24]);

#endif
