/* Slot files, which hold the tokens of a sequence and its state.
 *
 * The format, in which all numbers are little endian; columns are offset, size
 * in bytes, and contents:
 *
 *       0   8  "plaitslt"
 *       8   4  version, 2
 *      12   4  n, the number of tokens
 *      16  32  key of the engine that computed it (tiers_root)
 *      48  32  SHA-256 of the 48 bytes before and of the tokens
 *      80  4n  tokens, 4 bytes each
 *              the state, as pl_state_save writes it, with its own checksums */
#ifndef SERVER_SLOT_FILE_H
#define SERVER_SLOT_FILE_H

#include "pl.h"
#include "tier_entry.h"

struct slot_file {
    int64_t n;
    int32_t *token; /* the tokens, [n]; owned */
    /* The contents of the slot file that was read; `state` points into them.
     * Owned; NULL if no file was read. */
    void *bytes;
    const void *state;
    size_t state_bytes;
    uint64_t size; /* size of the slot file in bytes */
};

void slot_file_fini(struct slot_file *f);
/* Writes *f to the slot file `path` atomically, by the rules of pl_file_open.
 * Replaces an existing slot file. If `path` is any other file, or a link,
 * returns BAD_ARGUMENT. Sets f->size. Other errors are those of pl_file_open
 * and pl_file_commit, and NO_MEMORY. */
pl_status slot_file_write(struct slot_file *f, const char *path,
                          const struct tier_key *root, pl_err *err);
/* Reads the slot file `path` into *f. NOT_FOUND: there is no such file.
 * BAD_FILE: it is invalid. BAD_ARGUMENT: its state was computed with another
 * model or configuration. Other errors: NO_MEMORY. The caller calls
 * slot_file_fini in all cases. */
pl_status slot_file_read(struct slot_file *f, const char *path,
                         const struct tier_key *root, pl_err *err);
/* Parses the contents of a slot file, the n bytes `bytes`. Takes ownership of
 * `bytes`, which is malloc'ed. Errors are those of slot_file_read except
 * NOT_FOUND. */
pl_status slot_file_parse(struct slot_file *f, void *bytes, size_t n,
                          const struct tier_key *root, pl_err *err);

#endif
