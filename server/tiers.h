/* The tiers of the prefix cache beyond device memory: host memory, then disk.
 *
 * The loop copies cached pages to the tiers one by one (tiers_store) while they
 * are still on the devices. So the engine can evict them from the devices
 * without waiting. Host memory holds the most recently used pages
 * (tier_table.h). If there is a folder, all pages are also written to it
 * (tier_disk.h), so pages evicted from host memory are still on disk. Before a
 * task starts, the longest continuation of the prefix that is on the devices is
 * looked up (tiers_search). The pages that were found are then read, a little
 * before the loop needs them.
 *
 * Three threads: one hashes pages and inserts them into host memory, one writes
 * to disk, one looks up and reads. No function waits for a disk. While the disk
 * hangs, host memory still stores and serves pages. If the disk fails, pending
 * writes are lost; this is logged once, and the disk is tried again later. */
#ifndef SERVER_TIERS_H
#define SERVER_TIERS_H

#include "pl.h"
#include "tier_entry.h"

struct tiers;
struct tiers_lookup;

struct tiers_options {
    uint64_t ram;    /* limit of host memory in bytes; 0 for no such tier */
    const char *dir; /* folder of the disk tier; NULL if none */
    uint64_t disk;   /* limit of the folder in bytes */
    /* Limit of the bytes of pages that were read but that lookups still hold,
     * summed over all lookups; 0 for 256 MiB. Each lookup may hold one page
     * even beyond the limit. */
    uint64_t ahead;
    double hang_s;      /* seconds after which a write counts as hanging; 0 for
                           5 */
    double read_hang_s; /* seconds after which a read counts as hanging; 0 for
                           1 */
    double flush_s;     /* seconds that tiers_flush writes dirty pages; 0 for
                           5 */
    pl_log_fn *log;
    void *log_user;
};

/* Counters since the start, except that fields marked "now" are current values.
 * Fields named bytes are total sizes of pages. */
struct tiers_counts {
    uint64_t ram_pages, ram_bytes;    /* now */
    uint64_t dirty_bytes;             /* now; size of pages not written to disk
                                         yet */
    uint64_t ram_hits, ram_hit_bytes; /* pages loaded from host memory */
    uint64_t disk_hits, disk_hit_bytes;
    uint64_t disk_bytes;             /* size of all files in the folder, at the
                                        last scan */
    uint64_t written, written_bytes; /* pages written to disk */
    uint64_t failed, damaged, lost;  /* failed: failed writes; damaged: pages
                                        that failed verification; lost: pages
                                        dropped without being written to disk */
};

/* Computes the root key of an engine (tier_entry.h). Two engines have the same
 * root key if one can use the pages of the other, with the same bits. */
pl_status tiers_root(struct tier_key *out, pl_engine *e, pl_err *err);
/* Opens the tiers for an engine. If there is a folder, computes the root key of
 * the engine, which includes the checksum of its weights (pl_engine_sum). The
 * engine is not used later. Errors are those of tiers_root and tiers_create. */
pl_status tiers_open(struct tiers **out, const struct tiers_options *o,
                     pl_engine *e, pl_err *err);
/* Opens the tiers for an engine with this root key. Errors are those of
 * tier_disk_open, and NO_MEMORY. */
pl_status tiers_create(struct tiers **out, const struct tiers_options *o,
                       const struct tier_key *root, pl_err *err);
/* Writes dirty pages for at most flush_s seconds, then stops the threads. It
 * does not wait for a hanging disk. The counters are final after it. NULL is
 * allowed. */
void tiers_flush(struct tiers *t);
/* Calls tiers_flush, then frees the tiers. NULL is allowed. */
void tiers_free(struct tiers *t);
void tiers_counts(struct tiers *t, struct tiers_counts *out);

/* Returns true if no more pages should be stored for now, because too many are
 * queued or not written to disk yet. */
bool tiers_is_full(struct tiers *t);
/* Stores the page that contains the last of these n tokens of a sequence.
 * `data` is as returned by pl_prefix_export_page; it is owned by the tiers from
 * here on. If `resumable`, a sequence can continue after the page. */
void tiers_store(struct tiers *t, const int32_t *token, int64_t n,
                 bool resumable, void *data, size_t bytes);

/* Starts a lookup for the prompt token[0 .. n - 1], whose first `length` tokens
 * are cached on the devices. It searches for consecutive pages that extend this
 * prefix. The tiers' copies of the pages on the devices are marked as used.
 * done(user) is called on another thread when the result is known, and again
 * for each page that was read, until the lookup is freed. It must neither wait
 * nor call functions of this file. While the disk hangs, only host memory is
 * searched, before this function returns, and `done` is not called. Returns
 * NULL if out of memory, or if too many lookups exist. */
struct tiers_lookup *tiers_search(struct tiers *t, const int32_t *token,
                                  int64_t n, int64_t length,
                                  void (*done)(void *user), void *user);
/* Returns true while a read from disk hangs, so that the caller should not wait
 * for pages. Takes no lock. */
bool tiers_disk_stalled(const struct tiers *t);
/* Returns true if the result of the lookup is known. Takes no lock. */
bool tiers_search_done(const struct tiers_lookup *s);
/* The result of a lookup: n consecutive pages that contain tokens from ... end
 * - 1 of the prompt. A sequence can continue after them. n is 0 if nothing
 * useful was found. */
struct tiers_found {
    int64_t from, end;
    int n;
};
struct tiers_found tiers_search_found(const struct tiers_lookup *s);
/* Returns page i of the result, valid until the next call for this lookup.
 * Pages before i are released and must not be requested again. Returns NULL if
 * the page is not read yet. Sets *ended to true if this page and later ones
 * will never be available, because the result has no such pages, or because
 * they were found damaged or deleted. */
const struct tier_entry *
tiers_lookup_page(struct tiers *t, struct tiers_lookup *s, int i, bool *ended);
/* Frees a lookup and releases its pages. Allowed even while the search or a
 * read is in progress; it does not wait for them. `s` may be NULL. */
void tiers_search_free(struct tiers *t, struct tiers_lookup *s);
/* Reports an entry that the engine rejected as damaged. The entry is removed
 * from host memory at once, and deleted from disk later by the writer
 * thread. */
void tiers_report_corrupt(struct tiers *t, const struct tier_entry *e);

#endif
