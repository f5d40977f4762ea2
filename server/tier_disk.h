/* The tier on a disk: a folder with one file an entry (tier_entry.h).
 *
 * A file appears whole under its key's name, so nobody finds one half written,
 * whenever the process ends; what a machine that stopped left half on the disk
 * has the wrong length or a wrong sum, and goes when it is found. Nothing is
 * waited for to be on the disk: what is lost is computed again.
 *
 * Several servers may share a folder: each asks for a file when it wants one,
 * and finds what the others wrote. Files are as old as their last use. When
 * they are more bytes than they may be the oldest go, until an eighth is free;
 * each server counts what it wrote itself and looks at the folder again after
 * every sixteenth of the limit. So together they may be above it by a
 * sixteenth for each server beside the first.
 *
 * Names are made of keys alone: no path comes from a request. One thread
 * writes, any may read. */
#ifndef SERVER_TIER_DISK_H
#define SERVER_TIER_DISK_H

#include "pl.h"
#include "tier_entry.h"

struct tier_disk {
    int dir;    /* of the folder; -1: none. It stays this number, whatever
                   folder that is */
    char *path; /* owned */
    uint64_t limit;
    /* The writer's. */
    uint64_t bytes, since; /* in the folder, written since it was looked at */
};

/* Makes the folder if it is not there, but not what holds it. BAD_ARGUMENT:
 * anybody may write to it. */
pl_status tier_disk_open(struct tier_disk *d, const char *path, uint64_t limit,
                         pl_err *err);
void tier_disk_close(struct tier_disk *d);

/* False: errno says why, and the folder is as it was. EFBIG: the entry is too
 * large, for half of the limit or for the file system; others may not be. A
 * folder that was removed, or put in the place of one, is opened anew, and made
 * if it is not there. */
bool tier_disk_write(struct tier_disk *d, const struct tier_entry *e);
/* Counted once; without its data where only `head` is wanted. NULL: there is
 * none, or it was damaged and is gone now (*damaged). */
struct tier_entry *tier_disk_read(const struct tier_disk *d,
                                  const struct tier_key *key, bool head,
                                  bool *damaged);
/* It is used now. */
void tier_disk_touch(const struct tier_disk *d, const struct tier_key *key);
void tier_disk_drop(const struct tier_disk *d, const struct tier_key *key);

#endif
