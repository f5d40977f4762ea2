/* Writes GGUF files, version 3: quantized and synthetic models, and those of
 * tests and benches.
 *
 * A writer collects metadata and tensors; gguf_writer_save then writes the
 * file. Keys and data are copied unless stated otherwise. The writer stores its
 * first failure and gguf_writer_save returns it, so callers need not check
 * every call. Putting the key general.alignment also sets the alignment, which
 * is 32 by default. */
#ifndef GGUF_GGUF_WRITE_H
#define GGUF_GGUF_WRITE_H

#include "gguf/gguf.h"

struct gguf_writer; /* opaque: a GGUF file that is being composed */

pl_status gguf_writer_create(struct gguf_writer **out, pl_err *err);
void gguf_writer_free(struct gguf_writer *w);

void gguf_put_u16(struct gguf_writer *w, const char *key, uint16_t v);
void gguf_put_i32(struct gguf_writer *w, const char *key, int32_t v);
void gguf_put_u32(struct gguf_writer *w, const char *key, uint32_t v);
void gguf_put_i64(struct gguf_writer *w, const char *key, int64_t v);
void gguf_put_f32(struct gguf_writer *w, const char *key, float v);
void gguf_put_bool(struct gguf_writer *w, const char *key, bool v);
void gguf_put_str(struct gguf_writer *w, const char *key, const char *v);
void gguf_put_strs(struct gguf_writer *w, const char *key,
                   const struct gguf_str *v, uint64_t n);
/* Adds a key whose value is an array of n elements v[]. Their type `elem` is
 * any type of fixed size, so not a string. */
void gguf_put_array(struct gguf_writer *w, const char *key, enum gguf_type elem,
                    const void *v, uint64_t n);
/* Adds a key with its value as they are in an open GGUF file, unchanged. */
void gguf_put_kv(struct gguf_writer *w, const struct gguf_kv *kv);

/* Writes row `row` of a tensor, `bytes` bytes, to `dst`. gguf_writer_save calls
 * it for each row of the last dimension in order, so that a file may be larger
 * than memory. If it returns false, saving ends with PL_CANCELLED. */
typedef bool gguf_fill_fn(void *user, int64_t row, void *dst, size_t bytes);
/* Add a tensor; dim[] is outermost first. `data` is borrowed until
 * gguf_writer_save returns, and its size follows from shape and format. `fill`
 * generates the data while saving. */
void gguf_put_tensor(struct gguf_writer *w, const char *name, pl_format f,
                     int n_dim, const int64_t *dim, const void *data);
void gguf_put_tensor_fill(struct gguf_writer *w, const char *name, pl_format f,
                          int n_dim, const int64_t *dim, gguf_fill_fn *fill,
                          void *user);
/* Adds a tensor whose data is a hole in the file, which reads as zeros. Used
 * for plans and their tests: the file has the size of a model, but takes no
 * disk space if the file system supports holes. */
void gguf_put_tensor_hole(struct gguf_writer *w, const char *name, pl_format f,
                          int n_dim, const int64_t *dim);

/* Adds a tensor with the name, shape and format of `t`, a tensor of an open
 * file. Its format may be one that plait knows only the size of. `fill`
 * generates rows of equal size. */
void gguf_put_tensor_like(struct gguf_writer *w, const struct gguf_tensor *t,
                          gguf_fill_fn *fill, void *user);

/* Writes the file to an open file, which the caller commits or closes. Returns
 * the first failure of any call on this writer. `path` is for messages. */
pl_status gguf_writer_write(struct gguf_writer *w, pl_file *file,
                            const char *path, pl_err *err);
/* Sets *out to the bytes of the file, which the caller frees, and *size to
 * their number. Returns the first failure of any call on this writer. */
pl_status gguf_writer_bytes(struct gguf_writer *w, char **out, size_t *size,
                            pl_err *err);
/* Writes the file under the rules of pl_file_open, so that `path` is never a
 * partial file. Returns the first failure of any call on this writer. */
pl_status gguf_writer_save(struct gguf_writer *w, const char *path,
                           pl_err *err);

#endif
