/* Private to the GGUF layer: parses the bytes of one file into metadata entries
 * and tensors.
 *
 * The parser reads a file once, front to back, in three calls. gguf.c opens and
 * maps files and joins the parts of a split set. */
#ifndef GGUF_GGUF_PARSE_H
#define GGUF_GGUF_PARSE_H

#include "base/arena.h"
#include "gguf/gguf.h"
#include "gguf/gguf_index.h"

#include <stdatomic.h>

/* Limits on the number of keys and of tensors. The largest model so far has
 * about 70,000 tensors, one for each expert. The limits bound the allocations
 * for a header, whatever the size of the file; see the sum in gguf_parse.c. */
enum { GGUF_MAX_KV = 1 << 16, GGUF_MAX_TENSOR = 1 << 17 };

/* Range of general.alignment, which must be a power of two. The maximum is far
 * above 2 MiB, because some files align their data to huge pages. */
enum { GGUF_MIN_ALIGNMENT = 8, GGUF_MAX_ALIGNMENT = 1 << 26 };

/* Maximum length of a key in bytes, by the specification. Tensor names have the
 * same limit here. */
enum { GGUF_MAX_NAME = 65535 };

struct gguf_part {
    char *path;        /* owned path of the file */
    const char *label; /* end of `path`, short enough for messages */
    /* The bytes of the whole file: mapped, or borrowed from the caller of
     * gguf_open_memory. */
    const unsigned char *base;
    size_t size;
    /* Number of bytes at the start of `base` that are now a private copy of the
     * file instead of a mapping. A change of the file cannot affect them. */
    size_t copied;
    bool mapped;
    int fd; /* file descriptor, owned if the file is mapped */
    uint32_t version;
    /* numbers of keys and tensors that the header states, checked against the
     * limits */
    uint64_t n_kv, n_tensor;
    size_t alignment;
    struct gguf_kv *kv; /* [n_kv] keys and values of the metadata, owned by
                           kv_arena */
    /* [n_kv] true once some code has looked up the key; owned by kv_arena */
    atomic_bool *asked;
    struct gguf_index kv_index;
    struct arena kv_arena;
    size_t at; /* offset in bytes at which the parser continues */
};

/* Replaces the first n <= size bytes of the mapped file by a private copy at
 * the same addresses, so that truncating the file cannot affect them. Must be
 * called before the parser reads these bytes. Fails if the file has become
 * shorter. */
pl_status gguf_part_copy(struct gguf_part *p, uint64_t n, pl_err *err);

/* Parses magic, version and counts. Uses path, label, base and size of *p. */
pl_status gguf_parse_header(struct gguf_part *p, pl_err *err);

/* Parses the metadata into p->kv, which kv_arena owns, and sets
 * p->alignment. */
pl_status gguf_parse_kvs(struct gguf_part *p, pl_err *err);

/* Allocates p->kv and p->asked for `n` keys, and an empty index of their
 * names. */
pl_status gguf_part_room(struct gguf_part *p, uint64_t n, pl_err *err);

/* Sets keys of part `p`, the first part of a model, as gguf_override does. */
pl_status gguf_part_override(struct gguf_part *p, const char *const *text,
                             int n, pl_err *err);

/* Parses the n_tensor tensors of part number `part_no` into all[first] and the
 * elements after it. Adds them to `x`, the index of names of all[]. Allocates
 * the names from `a`. Checks that the data of each tensor is aligned, inside
 * the file and disjoint from the others. */
pl_status gguf_parse_tensors(struct gguf_part *p, int part_no,
                             struct gguf_tensor *all, uint64_t first,
                             struct gguf_index *x, struct arena *a,
                             pl_err *err);

/* Returns the size in bytes of a metadata value of type `t`; 0 for strings and
 * arrays, whose size varies. */
size_t gguf_type_bytes(enum gguf_type t);

/* Loads an unsigned integer of 1 .. 8 bytes, little endian. */
uint64_t gguf_load(const unsigned char *p, size_t n_bytes);

/* Sets *block to the number of values in a block of tensor type `id`, and
 * *block_bytes to its size in bytes. Sets *f to the format, or to
 * PL_FORMAT_COUNT if plait does not support it. Returns false if the id is
 * unknown. */
bool gguf_format_block(uint32_t id, pl_format *f, int *block, int *block_bytes);

/* Sets *out to the value of key `kv` of part `p` if the value is an integer in
 * [lo, hi]. Else sets an error that states this range. */
pl_status gguf_kv_i64(const struct gguf_part *p, const struct gguf_kv *kv,
                      int64_t lo, int64_t hi, int64_t *out, pl_err *err);

/* Returns the first part, which contains the metadata. */
const struct gguf_part *gguf_first_part(const struct gguf *g);

#endif
