/* The disk tier of the prefix cache: a folder with one file per entry
 * (tier_entry.h).
 *
 * A file gets its name, which is its key, only when it is complete. So a
 * process that ends leaves no partial files. If the machine crashes, a partial
 * file may remain; its length or checksum is wrong, and it is deleted when it
 * is found. Writes are not synced to disk, because lost pages can be computed
 * again.
 *
 * Several servers may share a folder: each opens files on demand, and finds
 * those that others wrote. The modification time of a file is that of its last
 * use. If the files exceed the limit, the oldest are deleted until an eighth of
 * the limit is free. Each server counts only its own writes, and scans the
 * folder again after writing a sixteenth of the limit. So with several servers,
 * the files may exceed the limit by a sixteenth of it for each server but one.
 *
 * File names are made from keys only, so no part of a path comes from a
 * request. One thread may write, any thread may read. */
#ifndef SERVER_TIER_DISK_H
#define SERVER_TIER_DISK_H

#include "pl.h"
#include "tier_entry.h"

struct tier_disk {
    /* Descriptor of the folder; -1 if none; the number stays the same if the
     * folder is replaced by a new one. */
    int dir;
    char *path; /* path of the folder; owned */
    uint64_t limit;
    /* The following fields are used only by the thread that writes entries. */
    /* bytes: size of all files in the folder, those at the last scan and those
     * written since. since: bytes that this process wrote since the last
     * scan. */
    uint64_t bytes, since;
};

/* Opens the folder `path` for entries. Creates it if it does not exist, but not
 * its parent folders. `limit` is the limit of its size in bytes. BAD_ARGUMENT:
 * the folder is world-writable. NOT_FOUND: its parent does not exist. Other
 * errors: IO, NO_MEMORY. */
pl_status tier_disk_open(struct tier_disk *d, const char *path, uint64_t limit,
                         pl_err *err);
void tier_disk_close(struct tier_disk *d);

/* Writes an entry to a file, and deletes least recently used entries if needed.
 * Returns false with errno set on failure. EFBIG: the entry is larger than half
 * of the limit, or than the file system allows; a smaller one may fit. If the
 * folder was removed or replaced, it is opened again, and created if
 * missing. */
bool tier_disk_write(struct tier_disk *d, const struct tier_entry *e);
/* Reads the entry with this key and returns it with one reference. If `head`,
 * reads only the head of the file, and the entry has no data. Returns NULL if
 * there is no such entry, if out of memory, or if the file is damaged. A
 * damaged file is deleted, and *damaged is set. */
struct tier_entry *tier_disk_read(const struct tier_disk *d,
                                  const struct tier_key *key, bool head,
                                  bool *damaged);
/* Marks the entry with this key as used now, by setting the modification time
 * of its file. */
void tier_disk_touch(const struct tier_disk *d, const struct tier_key *key);
void tier_disk_drop(const struct tier_disk *d, const struct tier_key *key);

#endif
