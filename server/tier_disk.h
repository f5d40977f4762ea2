/* The disk tier: a folder with one file per entry (tier_entry.h).
 *
 * A file appears under its key's name only when it is complete, so a process
 * that ends leaves no partial one. A machine crash may leave one on the disk;
 * it has a wrong length or checksum and is deleted when found. Writes are not
 * synced: what is lost is computed again.
 *
 * Several servers may share a folder: each opens files on demand and finds what
 * others wrote. The modification time is that of the last use. If the files
 * exceed the limit, the oldest are deleted until an eighth of it is free. Each
 * server counts its own writes and rescans the folder after every sixteenth of
 * the limit. So together they may exceed it by a sixteenth per server after the
 * first.
 *
 * Names are made from keys only: no path comes from a request. One thread
 * writes, any may read. */
#ifndef SERVER_TIER_DISK_H
#define SERVER_TIER_DISK_H

#include "pl.h"
#include "tier_entry.h"

struct tier_disk {
    int dir;    /* descriptor of the folder; -1: none. The number stays the same
                   if the folder is replaced */
    char *path; /* owned */
    uint64_t limit;
    /* For the writing thread. */
    uint64_t bytes, since; /* in the folder; written since the last scan */
};

/* Opens the folder and creates it, but not its parents. BAD_ARGUMENT: it is
 * world-writable. */
pl_status tier_disk_open(struct tier_disk *d, const char *path, uint64_t limit,
                         pl_err *err);
void tier_disk_close(struct tier_disk *d);

/* Writes an entry. Returns false with errno, leaving the folder unchanged.
 * EFBIG: the entry is larger than half of the limit or than the file system
 * allows; others may fit. A folder that was removed or replaced is opened
 * again, and created if missing. */
bool tier_disk_write(struct tier_disk *d, const struct tier_entry *e);
/* Returns an entry with one reference, without its data if `head`. NULL: it
 * does not exist, or was damaged and is now deleted (*damaged). */
struct tier_entry *tier_disk_read(const struct tier_disk *d,
                                  const struct tier_key *key, bool head,
                                  bool *damaged);
/* Marks it as used now. */
void tier_disk_touch(const struct tier_disk *d, const struct tier_key *key);
void tier_disk_drop(const struct tier_disk *d, const struct tier_key *key);

#endif
