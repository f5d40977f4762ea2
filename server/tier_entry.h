/* A page of a cached prefix outside of device memory, and its file.
 *
 * An entry is found by its key, which identifies all tokens up to its end and
 * what computed them: the SHA-256 of the previous page's key and of its own
 * tokens. The root's key is made from the engine's description of model,
 * formats and numeric plan. So equal keys mean equal prefixes, and another
 * prefix with the same key cannot be constructed. A page's contents are opaque
 * here (pl_prefix_export_page); the engine checks them on import.
 *
 * A file is, all numbers little endian:
 *
 *       0   8  "plaitpfx"
 *       8   4  version, 1
 *      12   4  tokens of the page, 1 to 64
 *      16   8  tokens before it, a multiple of 64
 *      24   4  1: a sequence can continue after it; 0: it cannot
 *      28   4  0
 *      32   8  bytes of the data
 *      40  32  key of the page before it, or of the root
 *      72 256  its tokens, then 0
 *     328  32  SHA-256 of all bytes before
 *     360      data
 *
 * Its name is its key; nothing in it is trusted before the checksum matches. */
#ifndef SERVER_TIER_ENTRY_H
#define SERVER_TIER_ENTRY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TIER_TOKENS = 64, TIER_HEAD = 360 };

struct tier_key {
    unsigned char b[32];
};

/* Shared by reference count; immutable. */
struct tier_entry {
    atomic_int refs;
    struct tier_key key, parent;
    int64_t first; /* tokens before it */
    int n;         /* its own tokens */
    bool resumable;
    int32_t token[TIER_TOKENS];
    void *data; /* owned; NULL: only the head was read */
    size_t bytes;
};

void tier_key_root(struct tier_key *out, const void *of, size_t n);
/* n: 1 to 64 tokens after `parent`. */
void tier_key_next(struct tier_key *out, const struct tier_key *parent,
                   const int32_t *token, int n);
bool tier_key_same(const struct tier_key *a, const struct tier_key *b);

/* Returns an entry with one reference, which owns `data`. NULL if out of
 * memory; then the caller keeps `data`. */
struct tier_entry *tier_entry_new(const struct tier_key *parent, int64_t first,
                                  const int32_t *token, int n, bool resumable,
                                  void *data, size_t bytes);
struct tier_entry *tier_entry_ref(struct tier_entry *e);
void tier_entry_unref(struct tier_entry *e); /* takes NULL */
/* Returns its size in memory and on disk. */
size_t tier_entry_size(const struct tier_entry *e);

void tier_entry_put_head(const struct tier_entry *e,
                         unsigned char head[static TIER_HEAD]);
/* Parses the head of the entry with this key, whose file has `size` bytes;
 * overwrites `e`, without data. Returns false if it is invalid. */
bool tier_entry_get_head(struct tier_entry *e, const struct tier_key *key,
                         const unsigned char head[static TIER_HEAD],
                         uint64_t size);

#endif
