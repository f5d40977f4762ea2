/* Cached prefixes in tiers behind device memory: host memory, then disk.
 *
 * The engine's cached pages are stored here one by one (tiers_store) while they
 * are still on the devices, so that evicting them needs no wait. Host memory
 * has the most recently used (tier_table.h). With a folder all of them are
 * written there too (tier_disk.h), so what host memory evicts is still on disk.
 * Before a task starts, the longest continuation of what the devices have is
 * looked up (tiers_search) and read, a little ahead of its consumer.
 *
 * Three threads: one hashes and inserts, one writes, one looks up and reads. No
 * call waits for a disk. While the disk hangs, host memory keeps storing and
 * serving pages. If the disk fails, pending writes are lost, it is logged once,
 * and the disk is tried again later. */
#ifndef SERVER_TIERS_H
#define SERVER_TIERS_H

#include "pl.h"
#include "tier_entry.h"

struct tiers;
struct tiers_lookup;

struct tiers_options {
    uint64_t ram;    /* bytes of host memory; 0: none */
    const char *dir; /* NULL: no disk */
    uint64_t disk;   /* bytes */
    uint64_t ahead;  /* bytes of pages read but not consumed yet, over all
                        lookups, or one page of each if that is more; 0: 256
                        MiB */
    double hang_s;   /* seconds after which a write counts as hanging; 0: 5 */
    double read_hang_s; /* likewise for a read; 0: 1 */
    double flush_s;     /* seconds for writing dirty pages at the end; 0: 5 */
    pl_log_fn *log;
    void *log_user;
};

/* Since the start, except those marked "now". Bytes are of pages. */
struct tiers_counts {
    uint64_t ram_pages, ram_bytes;    /* now */
    uint64_t dirty_bytes;             /* now: stored but not written yet */
    uint64_t ram_hits, ram_hit_bytes; /* pages loaded from there */
    uint64_t disk_hits, disk_hit_bytes;
    uint64_t disk_bytes;             /* in the folder, at the last scan */
    uint64_t written, written_bytes; /* to the disk */
    uint64_t failed, damaged, lost;  /* writes; entries; pages not written */
};

/* Computes one key of everything that decides an engine's bits. */
pl_status tiers_root(struct tier_key *out, pl_engine *e, pl_err *err);
/* Opens the tiers for an engine. With a folder the engine is read now, and not
 * later; it is identified by the checksum of its weights (pl_engine_sum). */
pl_status tiers_open(struct tiers **out, const struct tiers_options *o,
                     pl_engine *e, pl_err *err);
/* Does the same for an engine identified by its root. */
pl_status tiers_create(struct tiers **out, const struct tiers_options *o,
                       const struct tier_key *root, pl_err *err);
/* Writes dirty pages for a limited time, then stops; a hanging disk is not
 * waited for. Counters are final after it. Takes NULL. */
void tiers_flush(struct tiers *t);
/* Flushes, then frees. Takes NULL. */
void tiers_free(struct tiers *t);
void tiers_counts(struct tiers *t, struct tiers_counts *out);

/* Returns true if no more pages should be stored for now, because too many are
 * pending. */
bool tiers_is_full(struct tiers *t);
/* Stores the page that ends with the last of n tokens, in
 * pl_prefix_export_page's form; owns `data` from then on. */
void tiers_store(struct tiers *t, const int32_t *token, int64_t n,
                 bool resumable, void *data, size_t bytes);

/* Starts a lookup of pages that continue token[0 .. n - 1], of which the
 * devices have `length`. `done` is called on another thread when the result is
 * known, and again for each page read, unless the lookup was freed before. It
 * must neither wait nor call functions of this file. Pages that the devices
 * have count as used in the tiers too. While the disk hangs, only host memory
 * is searched, immediately, and `done` is not called. NULL if out of memory, or
 * if too many wait for a slow disk. */
struct tiers_lookup *tiers_search(struct tiers *t, const int32_t *token,
                                  int64_t n, int64_t length,
                                  void (*done)(void *user), void *user);
/* Returns true while a read of the disk hangs, so that pages not loaded yet
 * will not arrive soon. Takes no lock. */
bool tiers_disk_stalled(const struct tiers *t);
/* Returns true if the result is known. Takes no lock. */
bool tiers_search_done(const struct tiers_lookup *s);
/* The result of a finished lookup: n consecutive pages, from token `from` to
 * token `end`, after which a sequence can continue. */
struct tiers_found {
    int64_t from, end;
    int n;
};
struct tiers_found tiers_search_found(const struct tiers_lookup *s);
/* Returns page i of these, valid until the next call for this lookup. Earlier
 * pages are released and must not be requested again. NULL: it is not read yet
 * or, if *ended, it and later ones are not available, because they were damaged
 * or deleted meanwhile. */
const struct tier_entry *
tiers_lookup_page(struct tiers *t, struct tiers_lookup *s, int i, bool *ended);
/* Frees a lookup and its pages, at any time. Takes NULL. */
void tiers_search_free(struct tiers *t, struct tiers_lookup *s);
/* Deletes an entry that failed verification, from memory and from disk. */
void tiers_report_corrupt(struct tiers *t, const struct tier_entry *e);

#endif
