/* The format of saved states: the KV cache and recurrent states of sequences,
 * as a stream of bytes.
 *
 * Data is in logical order, so the stream does not depend on layouts, ranks,
 * devices or page numbers. Cache contents are opaque bytes here. Integers are
 * little-endian. Below, each field has its offset and its size in bytes.
 *
 *   head    0   8  "plaitkv" and a byte 0x1a
 *           8   4  version, 4
 *          12   4  size of the head in bytes
 *          16   8  hash of the model: all that determines cache contents
 *          24   8  hash of the numeric plan that computed the contents
 *          32   8  number of tokens of the vocabulary
 *          40   4  number of ranks
 *          44   4  flags; bit 0: a state of the whole cache, so sequences that
 *                  are not listed are empty; bit 1: for one engine only, whose
 *                  id (engine.mark) replaces the hash of the model
 *          48   4  n_cache, number of caches
 *          52   4  n_seq, number of sequences
 *          56   8  size of the note in bytes
 *          64  96  name of the model for messages: ASCII, then zeros
 *         160      n_cache records of 32 bytes, in the order of the data:
 *                     0  4  layer
 *                     4  4  contents: 0 keys, 1 values, 2 a recurrent state.
 *                           A state has one row, that after the sequence's
 *                           last position, in the sequence's last chunk
 *                     8  4  GGUF id of the format
 *                    12  4  number of heads
 *                    16  8  number of elements of a head
 *                    24  8  window, 0 for none. With a window, a sequence has
 *                           only the positions that a token after its end
 *                           attends to, from the multiple of 64 at or before
 *                           the first of them
 *                  n_seq records of 40 bytes, ids ascending:
 *                     0  4  id
 *                     4  4  like: index of the record of an earlier sequence
 *                           that shares positions, or of this record
 *                     8  8  first position
 *                    16  8  n, number of positions
 *                    24  8  n_like: number of positions at the beginning that
 *                           are shared with `like` and not stored again. A
 *                           multiple of 64, or n if there are no states
 *                    32  8  0
 *                  the note: data of the caller
 *                  8  checksum
 *   chunk   for each sequence, for each range of positions from first + n_like
 *           up to the next multiple of 64 or the sequence's end:
 *                  for each cache that has these positions: rows
 *                  [positions, n_head, d_head], in the cache's own format
 *                  8  checksum
 *
 * A checksum is the hash64 of the bytes since the previous checksum, which is
 * the seed. So the last checksum covers the whole stream, and chunks cannot be
 * reordered. The head determines how many bytes follow. Nothing follows the
 * last checksum.
 *
 * Writer and reader keep only the head in memory, apart from the caller's
 * buffers. The reader verifies the checksum of the head before it uses the
 * head. */
#ifndef STATE_STATE_H
#define STATE_STATE_H

#include "base/arena.h"
#include "base/hash64.h"
#include "pl.h"

enum {
    STATE_VERSION = 4,
    STATE_CHUNK = 64, /* positions in a chunk, the unit that has a checksum */
    STATE_NAME = 96,
    STATE_MAX_CACHE = 1 << 17,
    STATE_MAX_SEQ = 1 << 16,
    STATE_MAX_NOTE = 1 << 26, /* maximum size of a note, the caller's data, in
                                 bytes */
};

struct state_cache {
    int layer;
    /* contents of the cache: values, or a recurrent state; if neither is set,
     * keys */
    bool values, state;
    pl_format format;
    int64_t n_head, d_head, window;
};

struct state_seq {
    int id, like;
    int64_t first, n, n_like;
};

struct state_head {
    uint64_t model, numeric;
    int64_t n_vocab;
    int n_rank;
    /* The two flags of the head. whole: a state of the whole cache. aside: for
     * one engine only, whose id (engine.mark) is in `model`. */
    bool whole, aside;
    char name[STATE_NAME]; /* name of the model, NUL-terminated */
    int n_cache, n_seq;
    struct state_cache *cache;
    struct state_seq *seq;
    /* Data of the caller, borrowed; NULL if note_bytes is 0. */
    const void *note;
    size_t note_bytes;
};

/* Returns true if the 8 bytes at `b`, the first of a file, are those of a saved
 * state. */
bool state_begins(const char b[8]);

/* Return the size in bytes of the head, and of the whole saved state. */
size_t state_head_bytes(const struct state_head *h);
uint64_t state_bytes(const struct state_head *h);

/* Returns the size in bytes of a row of cache c: the data of one position, or a
 * whole recurrent state. */
size_t state_row_bytes(const struct state_cache *c);

/* Returns the number of positions in the chunk that begins at position `pos` of
 * sequence s, or 0 if s ends there. */
int64_t state_chunk(const struct state_seq *s, int64_t pos);

/* Returns the number of rows of cache c in the chunk that begins at position
 * `pos` of sequence s. It has a row for each position, or none if the cache
 * lacks these positions. A recurrent state has one row, in the last chunk of
 * the sequence. */
int64_t state_rows(const struct state_cache *c, const struct state_seq *s,
                   int64_t pos);

/* Writing a state to a stream ---------------------------------------------- */

struct state_writer {
    pl_state_write_fn *write;
    void *user;
    struct hash64 sum; /* hash of the bytes written since the last checksum */
    uint64_t at;       /* number of bytes written to the stream so far */
};

void state_writer_init(struct state_writer *w, pl_state_write_fn *write,
                       void *user);
pl_status state_put_head(struct state_writer *w, const struct state_head *h,
                         pl_err *err);
pl_status state_put(struct state_writer *w, const void *data, size_t n,
                    pl_err *err);
/* Writes the checksum with which the head, or a chunk, ends. */
pl_status state_put_sum(struct state_writer *w, pl_err *err);

/* Reading a state from a stream -------------------------------------------- */

struct state_reader {
    pl_state_read_fn *read;
    void *user;
    struct hash64 sum;
    uint64_t at;
};

void state_reader_init(struct state_reader *r, pl_state_read_fn *read,
                       void *user);
/* Reads and checks the head of a state. The arrays and the note of *h are
 * allocated from `a`. Returns PL_BAD_FILE if the head is invalid,
 * PL_UNSUPPORTED if the state has another version. */
pl_status state_get_head(struct state_reader *r, struct state_head *h,
                         struct arena *a, pl_err *err);
pl_status state_get(struct state_reader *r, void *data, size_t n, pl_err *err);
/* Reads the checksum with which the head, or a chunk, ends and compares it with
 * the bytes read. */
pl_status state_get_sum(struct state_reader *r, pl_err *err);
/* Checks that nothing follows the state in the stream. Returns PL_BAD_FILE if
 * something does. */
pl_status state_get_end(struct state_reader *r, pl_err *err);

#endif
