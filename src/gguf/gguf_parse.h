/* Inside the GGUF layer: the bytes of one file become entries and tensors.
 *
 * The parser walks a file once, front to back, in three calls. Opening,
 * mapping and joining the parts of a split set is gguf.c. */
#ifndef GGUF_GGUF_PARSE_H
#define GGUF_GGUF_PARSE_H

#include "base/arena.h"
#include "gguf/gguf.h"
#include "gguf/gguf_index.h"

/* More than any model has (the largest so far: about 70,000 with one tensor an
 * expert); with them what a header may allocate is bounded, whatever the file's
 * size: see the sum in gguf_parse.c. */
enum { GGUF_MAX_KV = 1 << 16, GGUF_MAX_TENSOR = 1 << 17 };

/* What general.alignment may be: a power of two in this range. The largest
 * seen is that of huge pages. */
enum { GGUF_MIN_ALIGNMENT = 8, GGUF_MAX_ALIGNMENT = 1 << 26 };

/* Keys and tensor names: the specification's limit for keys. */
enum { GGUF_MAX_NAME = 65535 };

struct gguf_part {
    char *path;                /* owned */
    const char *label;         /* the path's end, short enough for errors */
    const unsigned char *base; /* the whole file: mapped, or borrowed */
    size_t size;
    size_t copied; /* of the first bytes: these are not the file's any more but
                      a copy of them in the same place */
    bool mapped;
    int fd; /* owned if mapped */
    uint32_t version;
    uint64_t n_kv, n_tensor; /* as the header says, checked */
    size_t alignment;
    struct gguf_kv *kv; /* [n_kv], owned by kv_arena */
    struct gguf_index kv_index;
    struct arena kv_arena;
    size_t at; /* the next byte to parse */
};

/* Makes the first n bytes, n <= size, safe from whoever shortens the file: none
 * is looked at before. Fails if the file has become shorter. */
pl_status gguf_part_copy(struct gguf_part *p, uint64_t n, pl_err *err);

/* Magic, version and counts. Needs path, label, base, size. */
pl_status gguf_parse_header(struct gguf_part *p, pl_err *err);

/* The metadata, into kv_arena; and the alignment. */
pl_status gguf_parse_kvs(struct gguf_part *p, pl_err *err);

/* The n_tensor tensors, as all[first] and on; `x` is the index over all[].
 * Names go into `a`. Data ranges are checked to be aligned, inside the file and
 * apart from each other. */
pl_status gguf_parse_tensors(struct gguf_part *p, int part_no,
                             struct gguf_tensor *all, uint64_t first,
                             struct gguf_index *x, struct arena *a,
                             pl_err *err);

/* Bytes of a metadata value; 0 for strings and arrays. */
size_t gguf_type_bytes(enum gguf_type t);

/* Little-endian load of 1 .. 8 bytes. */
uint64_t gguf_load(const unsigned char *p, size_t n_bytes);

/* Block of a tensor type id, supported by plait (*f) or not (*f is
 * PL_FORMAT_COUNT). False if the id is unknown. */
bool gguf_format_block(uint32_t id, pl_format *f, int *block, int *block_bytes);

/* The scalar `kv` of part `p` as an integer in [lo, hi], or an error that names
 * what is expected. */
pl_status gguf_kv_i64(const struct gguf_part *p, const struct gguf_kv *kv,
                      int64_t lo, int64_t hi, int64_t *out, pl_err *err);

/* The part whose metadata counts. */
const struct gguf_part *gguf_first_part(const struct gguf *g);

#endif
