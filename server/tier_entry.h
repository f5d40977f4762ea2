/* A page of a kept prefix outside of the devices' memory, and its file.
 *
 * An entry is found by its key, which stands for all tokens up to its end and
 * for what computed them: the SHA-256 of the key of the page before it and of
 * its own tokens; that of the root is of what the engine says of its model,
 * formats and numeric plan. So who asks with the same key has the same prefix,
 * and nobody can make another that does. What a page holds is opaque here
 * (pl_prefix_export_page), and the engine checks it when it comes back.
 *
 * A file is, all numbers little endian:
 *
 *       0   8  "plaitpfx"
 *       8   4  version, 1
 *      12   4  tokens of the page, 1 to 64
 *      16   8  tokens before it, a multiple of 64
 *      24   4  1: a sequence can go on behind it; 0: it cannot
 *      28   4  0
 *      32   8  bytes of the data
 *      40  32  key of the page before it, or of the root
 *      72 256  its tokens, then 0
 *     328  32  SHA-256 of what stands before
 *     360      data
 *
 * Its name is its key; nothing in it is believed before the sum is right. */
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

/* Shared by who counts it; never changes. */
struct tier_entry {
    atomic_int refs;
    struct tier_key key, parent;
    int64_t first; /* tokens before it */
    int n;         /* its own */
    bool goes_on;
    int32_t token[TIER_TOKENS];
    void *data; /* owned; NULL: only the head was looked at */
    size_t bytes;
};

void tier_key_root(struct tier_key *out, const void *of, size_t n);
/* n: 1 to 64 tokens behind `parent`. */
void tier_key_next(struct tier_key *out, const struct tier_key *parent,
                   const int32_t *token, int n);
bool tier_key_same(const struct tier_key *a, const struct tier_key *b);

/* One that is counted once. `data` is owned from then on; NULL, and nothing is,
 * where memory ends. */
struct tier_entry *tier_entry_new(const struct tier_key *parent, int64_t first,
                                  const int32_t *token, int n, bool goes_on,
                                  void *data, size_t bytes);
struct tier_entry *tier_entry_ref(struct tier_entry *e);
void tier_entry_unref(struct tier_entry *e); /* takes NULL */
/* What it takes of memory, and of a disk. */
size_t tier_entry_size(const struct tier_entry *e);

void tier_entry_put_head(const struct tier_entry *e,
                         unsigned char head[static TIER_HEAD]);
/* A head that was put so, of the entry with this key, whose file has `size`
 * bytes; `e` is overwritten and has no data. False: it is none. */
bool tier_entry_get_head(struct tier_entry *e, const struct tier_key *key,
                         const unsigned char head[static TIER_HEAD],
                         uint64_t size);

#endif
