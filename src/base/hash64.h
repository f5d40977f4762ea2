/* A fast incremental 64-bit checksum of bytes.
 *
 * The checksum detects damaged data and distinguishes different data. It is not
 * secure against an adversary. It depends only on the bytes and the seed, not
 * on the machine. A change within one aligned word of 8 bytes is always
 * detected; any other change is missed with probability 2^-64. */
#ifndef BASE_HASH64_H
#define BASE_HASH64_H

#include <stddef.h>
#include <stdint.h>

struct hash64 {
    uint64_t lane[8];
    unsigned char rest[64]; /* the last bytes of the data so far, hashed when 64
                               of them are there or at the end */
    uint64_t bytes;         /* number of bytes added so far */
};

void hash64_init(struct hash64 *h, uint64_t seed);
void hash64_add(struct hash64 *h, const void *data, size_t n);
/* Returns the checksum of all bytes added so far. More bytes may be added
 * afterwards. */
uint64_t hash64_end(const struct hash64 *h);
/* Returns the checksum of n bytes of data, with a seed. */
uint64_t hash64(uint64_t seed, const void *data, size_t n);

#endif
