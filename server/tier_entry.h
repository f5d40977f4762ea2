/* An entry of a cache tier: a page of a cached prefix, in host memory or on
 * disk. Also the format of its file.
 *
 * An entry is found by its key. The key identifies all tokens up to the end of
 * the page, and the engine that computed them. It is the SHA-256 of the
 * previous page's key and of the page's own tokens. The first page uses the
 * root key as its previous key. The root key is made from the engine's
 * description of model, cache formats and numeric plan. So equal keys mean
 * equal prefixes, and nobody can construct another prefix with the same key.
 * The contents of a page are opaque here (pl_prefix_export_page); the engine
 * checks them on import.
 *
 * The format of a file, in which all numbers are little endian; columns are
 * offset, size in bytes, and contents:
 *
 *       0   8  "plaitpfx"
 *       8   4  version, 1
 *      12   4  number of tokens in the page, 1 to 64
 *      16   8  number of tokens before the page, a multiple of 64
 *      24   4  1 if a sequence can continue after the page, else 0
 *      28   4  0
 *      32   8  size of the data in bytes
 *      40  32  key of the page before it, or the root key
 *      72 256  tokens, 4 bytes each, padded with 0
 *     328  32  SHA-256 of all 328 bytes before
 *     360      data
 *
 * The name of a file is its key in hexadecimal. Nothing in the file is used
 * before the checksum was verified. */
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

/* An entry: a page of a cached prefix. It does not change after its creation,
 * and its references are counted. */
struct tier_entry {
    atomic_int refs;
    struct tier_key key, parent;
    int64_t first; /* number of tokens of the prefix before the page */
    int n;         /* number of tokens in the page, 1 to 64 */
    bool resumable;
    int32_t token[TIER_TOKENS];
    /* The contents of the page (pl_prefix_export_page); owned; NULL if only the
     * head of the file was read. */
    void *data;
    size_t bytes;
};

/* Write and read little-endian numbers. */
void tier_put4(unsigned char *p, uint32_t v);
uint32_t tier_get4(const unsigned char *p);

void tier_key_root(struct tier_key *out, const void *of, size_t n);
/* Sets *out to the key of the page with these n tokens, 1 to 64, that follows
 * the page with the key *parent. */
void tier_key_next(struct tier_key *out, const struct tier_key *parent,
                   const int32_t *token, int n);
bool tier_key_same(const struct tier_key *a, const struct tier_key *b);

/* Creates an entry with one reference, and takes ownership of `data`. Returns
 * NULL if out of memory; then the caller still owns `data`. */
struct tier_entry *tier_entry_new(const struct tier_key *parent, int64_t first,
                                  const int32_t *token, int n, bool resumable,
                                  void *data, size_t bytes);
struct tier_entry *tier_entry_ref(struct tier_entry *e);
/* Drops a reference to an entry, and frees the entry if it was the last. NULL
 * is allowed. */
void tier_entry_unref(struct tier_entry *e);
/* Returns the size of an entry in bytes, as it counts towards the limits of
 * host memory and of the disk folder. */
size_t tier_entry_size(const struct tier_entry *e);

void tier_entry_put_head(const struct tier_entry *e,
                         unsigned char head[static TIER_HEAD]);
/* Parses the head of an entry's file into *e, and sets e->data to NULL. `key`
 * is the key in the file's name, `size` the size of the file in bytes. Returns
 * false if the head is invalid. */
bool tier_entry_get_head(struct tier_entry *e, const struct tier_key *key,
                         const unsigned char head[static TIER_HEAD],
                         uint64_t size);

#endif
