/* Fuzzes the reader of files of the disk tier and of saved slots: reading
 * succeeds or fails, and a page that was read is written back as the same
 * bytes.
 *
 * A wrong checksum would end reading before most checks, so the bytes are read
 * a second time with corrected checksums. */
#include "server/slot_file.h"
#include "server/tier_entry.h"

#include <stdlib.h>
#include <string.h>

int fuzz_tier(const uint8_t *data, size_t n);

static void require(bool ok)
{
    if (!ok)
        __builtin_trap();
}

/* Reads the header of an entry with the key that its tokens give; an accepted
 * header must be written back as the same bytes. */
static void read_head(const uint8_t *b, size_t n)
{
    unsigned char again[TIER_HEAD];
    struct tier_key parent, key;
    struct tier_entry e;
    int32_t token[TIER_TOKENS];
    uint32_t n_tok;

    memcpy(&n_tok, b + 12, 4);
    memcpy(&parent, b + 40, sizeof parent);
    memcpy(token, b + 72, sizeof token);
    tier_key_next(&key, &parent, token,
                  n_tok < TIER_TOKENS ? (int)n_tok : TIER_TOKENS);
    if (!tier_entry_get_head(&e, &key, b, n))
        return;
    require(e.n >= 1 && e.n <= TIER_TOKENS && e.bytes == n - TIER_HEAD);
    tier_entry_put_head(&e, again);
    require(memcmp(again, b, 72 + 4 * (size_t)e.n) == 0);
}

static void read_slot(const uint8_t *b, size_t n)
{
    struct tier_key root;
    struct slot_file f;
    uint8_t *copy = malloc(n + 1);
    pl_err err = {0};
    pl_status s;

    require(copy != NULL);
    memcpy(copy, b, n);
    memset(&root, 0, sizeof root);
    if (n >= 48)
        memcpy(&root, b + 16, sizeof root);
    s = slot_file_parse(&f, copy, n, &root, &err);
    if (s == PL_OK)
        require(f.n >= 0 && f.state_bytes + 4 * (size_t)f.n + 80 == n);
    else
        require(err.status == s && strlen(err.message) > 0);
    slot_file_fini(&f);
}

int fuzz_tier(const uint8_t *data, size_t n)
{
    struct tier_key sum;
    uint8_t *copy = malloc(n + 1);
    uint32_t n_tok = 0;

    require(copy != NULL);
    memcpy(copy, data, n);
    if (n >= TIER_HEAD) {
        read_head(copy, n);
        tier_key_root(&sum, copy, 328);
        memcpy(copy + 328, &sum, sizeof sum);
        read_head(copy, n);
    }
    memcpy(copy, data, n);
    read_slot(copy, n);
    if (n >= 80)
        memcpy(&n_tok, copy + 12, 4);
    if (n >= 80 && n_tok <= (n - 80) / 4) {
        uint8_t *part = malloc(48 + 4 * (size_t)n_tok);

        require(part != NULL);
        memcpy(part, copy, 48);
        memcpy(part + 48, copy + 80, 4 * (size_t)n_tok);
        tier_key_root(&sum, part, 48 + 4 * (size_t)n_tok);
        memcpy(copy + 48, &sum, sizeof sum);
        free(part);
        read_slot(copy, n);
    }
    free(copy);
    return 0;
}
