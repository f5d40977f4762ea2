/* A slot's file: the tokens of a sequence, and its state.
 *
 * All numbers little endian:
 *
 *       0   8  "plaitslt"
 *       8   4  version, 2: 1 had states of an older form
 *      12   4  n, tokens
 *      16  32  what computed it (tiers_root)
 *      48  32  SHA-256 of the 48 bytes before and the tokens
 *      80  4n  tokens
 *              the state, as pl_state_save writes it, with its own checksums */
#ifndef SERVER_SLOT_FILE_H
#define SERVER_SLOT_FILE_H

#include "pl.h"
#include "tier_entry.h"

struct slot_file {
    int64_t n;
    int32_t *token; /* owned, [n] */
    void *bytes;    /* owned: the file that was read; NULL: none */
    const void *state;
    size_t state_bytes;
    uint64_t size; /* of the file */
};

void slot_file_fini(struct slot_file *f);
/* Writes it by pl_file_open's rules, replacing only a slot's file: another file
 * or a link is BAD_ARGUMENT. Sets f->size. */
pl_status slot_file_write(struct slot_file *f, const char *path,
                          const struct tier_key *root, pl_err *err);
/* Reads it. BAD_FILE: invalid; BAD_ARGUMENT: another model or configuration
 * computed it. */
pl_status slot_file_read(struct slot_file *f, const char *path,
                         const struct tier_key *root, pl_err *err);
/* Does the same for bytes in memory, which f owns from then on. */
pl_status slot_file_parse(struct slot_file *f, void *bytes, size_t n,
                          const struct tier_key *root, pl_err *err);

#endif
