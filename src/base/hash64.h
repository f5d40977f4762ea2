/* A fast incremental 64-bit checksum of bytes.
 *
 * It detects damage and distinguishes data, but is not safe against an
 * adversary. It depends only on the bytes and the seed, on every machine. A
 * change within one aligned word of 8 bytes is always detected; others are
 * missed once in 2^64. */
#ifndef BASE_HASH64_H
#define BASE_HASH64_H

#include <stddef.h>
#include <stdint.h>

struct hash64 {
    uint64_t lane[8];
    unsigned char rest[64]; /* of the last stripe, not yet mixed */
    uint64_t bytes;         /* so far */
};

void hash64_init(struct hash64 *h, uint64_t seed);
void hash64_add(struct hash64 *h, const void *data, size_t n);
/* Returns the checksum so far; more may be added afterwards. */
uint64_t hash64_end(const struct hash64 *h);
/* Hashes one buffer. */
uint64_t hash64(uint64_t seed, const void *data, size_t n);

#endif
