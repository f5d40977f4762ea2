/* The hash has eight lanes. Each lane processes every eighth word of 8 bytes,
 * in little-endian order:
 *
 *   lane = rotl((lane ^ word) * M, 31)
 *
 * This operation is a bijection of the lane for a given word, and of the word
 * for a given lane. So if one word differs, the lane stays different until
 * another word differs. At the end the lanes and then the length are combined
 * by the same operation. The last stripe of 64 bytes is padded with zeros.
 * Eight lanes are enough to keep the multiplier busy: plain C processes several
 * bytes per cycle. M is 2^64 divided by the golden ratio, made odd (Knuth, The
 * Art of Computer Programming 3, section 6.4). Lanes start at multiples of
 * M. */
#include "base/hash64.h"

#include <endian.h>
#include <string.h>

static const uint64_t M = 0x9e3779b97f4a7c15u;

static inline uint64_t step(uint64_t lane, uint64_t word)
{
    uint64_t x = (lane ^ word) * M;

    return x << 31 | x >> 33;
}

static void mix(uint64_t lane[8], const unsigned char *p, size_t n_stripe)
{
    uint64_t s[8];

    memcpy(s, lane, sizeof s);
    for (; n_stripe > 0; n_stripe--, p += 64) {
        uint64_t w[8];

        memcpy(w, p, sizeof w);
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++)
            s[i] = step(s[i], le64toh(w[i]));
    }
    memcpy(lane, s, sizeof s);
}

void hash64_init(struct hash64 *h, uint64_t seed)
{
    memset(h, 0, sizeof *h);
    for (int i = 0; i < 8; i++)
        h->lane[i] = seed + (uint64_t)(i + 1) * M;
}

void hash64_add(struct hash64 *h, const void *data, size_t n)
{
    const unsigned char *p = data;
    size_t have = h->bytes % 64;

    h->bytes += n;
    if (have > 0) {
        size_t take = n < 64 - have ? n : 64 - have;

        memcpy(h->rest + have, p, take);
        p += take;
        n -= take;
        if (have + take < 64)
            return;
        mix(h->lane, h->rest, 1);
    }
    mix(h->lane, p, n / 64);
    if (n % 64 > 0)
        memcpy(h->rest, p + n / 64 * 64, n % 64);
}

uint64_t hash64_end(const struct hash64 *h)
{
    uint64_t lane[8], x = 0;
    unsigned char last[64] = {0};

    memcpy(lane, h->lane, sizeof lane);
    if (h->bytes % 64 > 0) {
        memcpy(last, h->rest, h->bytes % 64);
        mix(lane, last, 1);
    }
    for (int i = 0; i < 8; i++)
        x = step(x, lane[i]);
    x = step(x, h->bytes);
    x ^= x >> 32;
    x *= M;
    return x ^ x >> 29;
}

uint64_t hash64(uint64_t seed, const void *data, size_t n)
{
    struct hash64 h;

    hash64_init(&h, seed);
    if (n > 0)
        hash64_add(&h, data, n);
    return hash64_end(&h);
}
