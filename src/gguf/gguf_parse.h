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
    char *path;                /* owned */
    const char *label;         /* end of `path`, short enough for messages */
    const unsigned char *base; /* the whole file: mapped, or borrowed */
    size_t size;
    /* Number of leading bytes that are now a private copy, at the same address,
     * instead of the mapped file. */
    size_t copied;
    bool mapped;
    int fd; /* owned if mapped */
    uint32_t version;
    /* numbers of keys and tensors in the header, checked */
    uint64_t n_kv, n_tensor;
    size_t alignment;
    struct gguf_kv *kv; /* [n_kv], owned by kv_arena */
    /* [n_kv] true once a key was found; owned by kv_arena */
    atomic_bool *asked;
    struct gguf_index kv_index;
    struct arena kv_arena;
    size_t at; /* the next byte to parse */
};

/* Replaces the first n bytes of the mapping, n <= size, by a private copy, so
 * that truncating the file cannot affect them. The parser must not read them
 * earlier. Fails if the file has become shorter. */
pl_status gguf_part_copy(struct gguf_part *p, uint64_t n, pl_err *err);

/* Parses magic, version and counts. Uses path, label, base and size of *p. */
pl_status gguf_parse_header(struct gguf_part *p, pl_err *err);

/* Parses the metadata into p->kv, which kv_arena owns, and sets
 * p->alignment. */
pl_status gguf_parse_kvs(struct gguf_part *p, pl_err *err);

/* Allocates p->kv, p->asked and an empty index for n keys. */
pl_status gguf_part_room(struct gguf_part *p, uint64_t n, pl_err *err);

/* See gguf_override; `p` is the first part. */
pl_status gguf_part_override(struct gguf_part *p, const char *const *text,
                             int n, pl_err *err);

/* Parses the n_tensor tensors of part number `part_no` into all[first] and the
 * following elements; `x` is the index over all[]. Allocates names in `a`.
 * Checks that data ranges are aligned, inside the file and disjoint. */
pl_status gguf_parse_tensors(struct gguf_part *p, int part_no,
                             struct gguf_tensor *all, uint64_t first,
                             struct gguf_index *x, struct arena *a,
                             pl_err *err);

/* Returns the size of a metadata value in bytes; 0 for strings and arrays. */
size_t gguf_type_bytes(enum gguf_type t);

/* Loads an unsigned integer of 1 .. 8 bytes, little endian. */
uint64_t gguf_load(const unsigned char *p, size_t n_bytes);

/* Sets *block to the number of values in a block of tensor type `id`, and
 * *block_bytes to its size in bytes. Sets *f to the format, or to
 * PL_FORMAT_COUNT if plait does not support it. Returns false if the id is
 * unknown. */
bool gguf_format_block(uint32_t id, pl_format *f, int *block, int *block_bytes);

/* Reads the scalar `kv` of part `p` as an integer in [lo, hi]. An error says
 * what is expected. */
pl_status gguf_kv_i64(const struct gguf_part *p, const struct gguf_kv *kv,
                      int64_t lo, int64_t hi, int64_t *out, pl_err *err);

/* Returns the first part, which contains the metadata. */
const struct gguf_part *gguf_first_part(const struct gguf *g);

#endif
