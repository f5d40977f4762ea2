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
 * One thread, the I/O thread, does all that needs the disk. It looks up prompts
 * and reads pages, and writes pages while there are none to read. No function
 * of this file waits for a disk. While the disk hangs, host memory still stores
 * and serves pages. If the disk fails, pending writes are lost; this is logged
 * once, and the disk is tried again later. */
#ifndef SERVER_TIERS_H
#define SERVER_TIERS_H

#include "pl.h"
#include "tier_entry.h"

struct tiers;
struct tiers_lookup;

struct tiers_options {
    /* Limit of the host memory tier in bytes; 0 for no such tier. */
    uint64_t ram;
    const char *dir; /* folder of the disk tier; NULL if none */
    uint64_t disk;   /* limit of the disk tier's folder in bytes */
    /* Limit of the bytes of pages that were read but that lookups still hold,
     * summed over all lookups; 0 for 256 MiB. Each lookup may hold one page
     * even beyond the limit. */
    uint64_t ahead;
    /* No page waits to be written to a disk that has not answered for this many
     * seconds; 0 for 5. */
    double hang_s;
    /* No task waits for a disk that has not answered for this many seconds, at
     * most hang_s; 0 for 1. */
    double read_hang_s;
    /* tiers_flush writes dirty pages for at most this many seconds; 0 for 5. */
    double flush_s;
    pl_log_fn *log;
    void *log_user;
};

/* Counters since the start, except that fields marked "now" are current values.
 * Fields whose names end in "bytes" are total sizes of pages. */
struct tiers_counts {
    /* Current number and size of the pages in host memory. */
    uint64_t ram_pages, ram_bytes;
    /* Current size of the pages that are not written to disk yet. */
    uint64_t dirty_bytes;
    /* Number and size of the pages that were loaded from host memory. */
    uint64_t ram_hits, ram_hit_bytes;
    uint64_t disk_hits, disk_hit_bytes;
    /* Size of all files in the folder, at the last scan of it. */
    uint64_t disk_bytes;
    /* Number and size of the pages that were written to disk. */
    uint64_t written, written_bytes;
    /* failed: number of failed writes. damaged: number of pages that failed
     * verification. lost: number of pages that were dropped before they were
     * written to disk. */
    uint64_t failed, damaged, lost;
};

/* Sets *out to the root key of an engine (tier_entry.h). Two engines have the
 * same root key if each can use the pages of the other and get the same
 * bits. */
pl_status tiers_root(struct tier_key *out, pl_engine *e, pl_err *err);
/* Opens the tiers for an engine. If there is a folder, computes the root key of
 * the engine, which includes the checksum of its weights (pl_engine_sum). The
 * engine is not used after this call. Errors are those of tiers_root and
 * tiers_create. */
pl_status tiers_open(struct tiers **out, const struct tiers_options *o,
                     pl_engine *e, pl_err *err);
/* Opens the tiers for an engine with the root key *root. Errors are those of
 * tier_disk_open, and NO_MEMORY. */
pl_status tiers_create(struct tiers **out, const struct tiers_options *o,
                       const struct tier_key *root, pl_err *err);
/* Writes dirty pages to disk for at most flush_s seconds, then stops the
 * I/O thread. Does not wait for a disk that hangs. Afterwards the counters are
 * final. NULL is allowed. */
void tiers_flush(struct tiers *t);
/* Calls tiers_flush, then frees the tiers. NULL is allowed. */
void tiers_free(struct tiers *t);
void tiers_counts(struct tiers *t, struct tiers_counts *out);

/* Returns true if the caller should store no more pages for now, because too
 * many pages are not written to disk yet. */
bool tiers_is_full(struct tiers *t);
/* Stores the page of a cached prefix that ends with the last of the n tokens
 * token[]. `data` is the page's contents from pl_prefix_export_page; the tiers
 * take ownership of it. `resumable`: a sequence can continue after the page.
 * Only one thread at a time may store pages. */
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
/* Returns true while the disk hangs, so that a task should not wait for its
 * pages. Takes no lock. */
bool tiers_disk_stalled(const struct tiers *t);
/* Returns true if the search of the lookup has ended, so that its result is
 * known. Takes no lock. */
bool tiers_search_done(const struct tiers_lookup *s);
/* The result of a lookup: n consecutive pages that contain tokens from ... end
 * - 1 of the prompt. A sequence can continue after them. n is 0 if nothing
 * useful was found. */
struct tiers_found {
    int64_t from, end;
    int n;
};
struct tiers_found tiers_search_found(const struct tiers_lookup *s);
/* Returns page i of the lookup's result. It is valid until the next call for
 * this lookup. Pages before i are released and must not be requested again.
 * Returns NULL if the page has not been read yet. Also returns NULL and sets
 * *ended to true if this page and later ones will never be available: the
 * result has no such pages, or they were found damaged or deleted. */
const struct tier_entry *
tiers_lookup_page(struct tiers *t, struct tiers_lookup *s, int i, bool *ended);
/* Frees a lookup and releases its pages. Allowed even while the search or a
 * read is in progress; it does not wait for them. `s` may be NULL. */
void tiers_search_free(struct tiers *t, struct tiers_lookup *s);
/* Reports that an entry is damaged, because the engine rejected it. The entry
 * is removed from host memory at once, and the I/O thread deletes it from disk
 * later. */
void tiers_report_corrupt(struct tiers *t, const struct tier_entry *e);

#endif
