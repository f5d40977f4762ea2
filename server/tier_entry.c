/* Entries of the cache tiers, and their file format; see tier_entry.h. GnuTLS
 * computes SHA-256, because libmicrohttpd needs it for TLS anyway. */
#include "tier_entry.h"

#include <endian.h>
#include <gnutls/crypto.h>
#include <stdlib.h>
#include <string.h>

static const char magic[8] = {'p', 'l', 'a', 'i', 't', 'p', 'f', 'x'};

enum { VERSION = 1, AT_PARENT = 40, AT_TOKENS = 72, AT_SUM = 328 };

/* ---- computing the keys of entries --------------------------------------- */

static void sum(struct tier_key *out, const void *data, size_t n)
{
    /* gnutls_hash_fast fails only if GnuTLS is unusable. Then the key is zero,
     * and no entry is read from disk, because the checksums of the files' heads
     * do not match either. */
    if (gnutls_hash_fast(GNUTLS_DIG_SHA256, data, n, out->b) != 0)
        memset(out, 0, sizeof *out);
}

void tier_key_root(struct tier_key *out, const void *of, size_t n)
{
    sum(out, of, n);
}

void tier_key_next(struct tier_key *out, const struct tier_key *parent,
                   const int32_t *token, int n)
{
    unsigned char b[sizeof *parent + TIER_TOKENS * 4];
    size_t at = sizeof *parent;

    memcpy(b, parent, sizeof *parent);
    for (int i = 0; i < n; i++, at += 4) {
        uint32_t t = htole32((uint32_t)token[i]);

        memcpy(b + at, &t, 4);
    }
    sum(out, b, at);
}

bool tier_key_same(const struct tier_key *a, const struct tier_key *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

/* ---- creating and freeing entries ---------------------------------------- */

struct tier_entry *tier_entry_new(const struct tier_key *parent, int64_t first,
                                  const int32_t *token, int n, bool resumable,
                                  void *data, size_t bytes)
{
    struct tier_entry *e = calloc(1, sizeof *e);

    if (!e)
        return NULL;
    atomic_init(&e->refs, 1);
    e->parent = *parent;
    tier_key_next(&e->key, parent, token, n);
    e->first = first;
    e->n = n;
    e->resumable = resumable;
    memcpy(e->token, token, (size_t)n * sizeof *token);
    e->data = data;
    e->bytes = bytes;
    return e;
}

struct tier_entry *tier_entry_ref(struct tier_entry *e)
{
    atomic_fetch_add(&e->refs, 1);
    return e;
}

void tier_entry_unref(struct tier_entry *e)
{
    if (!e || atomic_fetch_sub(&e->refs, 1) > 1)
        return;
    free(e->data);
    free(e);
}

size_t tier_entry_size(const struct tier_entry *e)
{
    return TIER_HEAD + e->bytes;
}

/* ---- writing and reading the heads of files ------------------------------ */

void tier_put4(unsigned char *p, uint32_t v)
{
    v = htole32(v);
    memcpy(p, &v, 4);
}

static void put8(unsigned char *p, uint64_t v)
{
    v = htole64(v);
    memcpy(p, &v, 8);
}

uint32_t tier_get4(const unsigned char *p)
{
    uint32_t v;

    memcpy(&v, p, 4);
    return le32toh(v);
}

static uint64_t get8(const unsigned char *p)
{
    uint64_t v;

    memcpy(&v, p, 8);
    return le64toh(v);
}

void tier_entry_put_head(const struct tier_entry *e,
                         unsigned char head[static TIER_HEAD])
{
    struct tier_key s;

    memset(head, 0, TIER_HEAD);
    memcpy(head, magic, sizeof magic);
    tier_put4(head + 8, VERSION);
    tier_put4(head + 12, (uint32_t)e->n);
    put8(head + 16, (uint64_t)e->first);
    tier_put4(head + 24, e->resumable);
    put8(head + 32, e->bytes);
    memcpy(head + AT_PARENT, &e->parent, sizeof e->parent);
    for (int i = 0; i < e->n; i++)
        tier_put4(head + AT_TOKENS + 4 * i, (uint32_t)e->token[i]);
    sum(&s, head, AT_SUM);
    memcpy(head + AT_SUM, &s, sizeof s);
}

bool tier_entry_get_head(struct tier_entry *e, const struct tier_key *key,
                         const unsigned char head[static TIER_HEAD],
                         uint64_t size)
{
    struct tier_key s;
    uint64_t first = get8(head + 16), bytes = get8(head + 32);
    uint32_t n = tier_get4(head + 12), resumable = tier_get4(head + 24);

    memset(e, 0, sizeof *e);
    sum(&s, head, AT_SUM);
    if (memcmp(head + AT_SUM, &s, sizeof s) != 0 ||
        memcmp(head, magic, sizeof magic) != 0 ||
        tier_get4(head + 8) != VERSION)
        return false;
    if (n < 1 || n > TIER_TOKENS || first > INT32_MAX ||
        first % TIER_TOKENS != 0 || resumable > 1 ||
        tier_get4(head + 28) != 0 || size < TIER_HEAD ||
        bytes != size - TIER_HEAD)
        return false;
    atomic_init(&e->refs, 1);
    e->first = (int64_t)first;
    e->n = (int)n;
    e->resumable = resumable;
    e->bytes = (size_t)bytes;
    memcpy(&e->parent, head + AT_PARENT, sizeof e->parent);
    for (uint32_t i = 0; i < n; i++)
        e->token[i] = (int32_t)tier_get4(head + AT_TOKENS + 4 * i);
    tier_key_next(&e->key, &e->parent, e->token, e->n);
    return tier_key_same(&e->key, key);
}
