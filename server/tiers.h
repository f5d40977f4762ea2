/* Kept prefixes in tiers behind the devices' memory: host memory, then a disk.
 *
 * What the engine keeps is given here page by page (tiers_store) while it is
 * still on the devices, so that nothing waits when its pages are needed there.
 * Host memory has the last used (tier_table.h); with a folder all of it is
 * written there as well (tier_disk.h), and what host memory gives up is still
 * on the disk. Before a text begins, the longest way on from what the devices
 * have is looked for (tiers_search) and read, a little ahead of who takes it.
 *
 * Three threads of its own: one that hashes and sorts in, one that writes, and
 * one that looks and reads; no call waits for a disk, and while a disk hangs
 * host memory takes what comes and gives what it has. A disk that fails loses
 * what was to be written, is told of once, and is tried again later. */
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
    uint64_t ahead;  /* bytes of pages that were read and not taken yet, of all
                        searches, or a page of each if that is more; 0: 256
                        MiB */
    double hang_s;   /* a write that takes longer hangs; 0: 5 */
    double read_hang_s; /* likewise a read; 0: 1 */
    double flush_s;     /* of writing what is owed, at the end; 0: 5 */
    pl_log_fn *log;
    void *log_user;
};

/* Since the beginning, but for what is there "now". Bytes are of pages. */
struct tiers_counts {
    uint64_t ram_pages, ram_bytes; /* now */
    uint64_t owed_bytes; /* now: of what was given and is on its way still */
    uint64_t ram_hits, ram_hit_bytes; /* pages that came back from there */
    uint64_t disk_hits, disk_hit_bytes;
    uint64_t disk_bytes;             /* in the folder, as last seen */
    uint64_t written, written_bytes; /* to the disk */
    uint64_t failed, damaged, lost;  /* writes; entries; not written */
};

/* All that decides an engine's bits, in one key. */
pl_status tiers_root(struct tier_key *out, pl_engine *e, pl_err *err);
/* For what this engine keeps; with a folder it is asked now, and not later,
 * which is known by the sum of its weights (pl_engine_sum). */
pl_status tiers_open(struct tiers **out, const struct tiers_options *o,
                     pl_engine *e, pl_err *err);
/* The same for one that is known by its root. */
pl_status tiers_create(struct tiers **out, const struct tiers_options *o,
                       const struct tier_key *root, pl_err *err);
/* Writes what is owed, for some seconds at most, and then nothing more; a disk
 * that hangs is not waited for. What it counts is whole from here on. NULL is
 * taken. */
void tiers_flush(struct tiers *t);
/* Behind that, which it does itself. NULL is taken. */
void tiers_free(struct tiers *t);
void tiers_counts(struct tiers *t, struct tiers_counts *out);

/* Is so much on its way that no more should be given for now? */
bool tiers_is_full(struct tiers *t);
/* A page that ends with the last of n tokens, as pl_prefix_export_page has it;
 * `data` is owned from then on. */
void tiers_store(struct tiers *t, const int32_t *token, int64_t n, bool goes_on,
                 void *data, size_t bytes);

/* Looks for pages by which token[0 .. n - 1], of which the devices have
 * `length`, could begin further on; `done` is called on another thread when
 * that is known, and again for each page that has come, unless the search was
 * freed before: it must not wait, nor call anything here. What the devices have
 * counts as used in the tiers too. While the disk hangs host memory alone is
 * looked at, at once, and `done` not called. NULL: no memory, or too many wait
 * for a slow disk. */
struct tiers_lookup *tiers_search(struct tiers *t, const int32_t *token,
                                  int64_t n, int64_t length,
                                  void (*done)(void *user), void *user);
/* Does the disk not answer who reads? What is not there yet does not come soon,
 * then. Takes no lock. */
bool tiers_disk_stalled(const struct tiers *t);
/* Is it known? Takes no lock. */
bool tiers_search_done(const struct tiers_lookup *s);
/* Of one that is done: n pages one behind the other, from the token `from` on
 * up to the token `end`, where a sequence can go on. */
struct tiers_found {
    int64_t from, end;
    int n;
};
struct tiers_found tiers_search_found(const struct tiers_lookup *s);
/* The ith page of these, until the next call for this search: those before it
 * are given up, and must not be asked for again. NULL: it is not there yet, or,
 * with *ended, it and those behind it do not come, since they were damaged or
 * have gone meanwhile. */
const struct tier_entry *
tiers_lookup_page(struct tiers *t, struct tiers_lookup *s, int i, bool *ended);
/* Any time; what it found is given up. NULL is taken. */
void tiers_search_free(struct tiers *t, struct tiers_lookup *s);
/* An entry came back as something else than what was written: it goes. */
void tiers_report_corrupt(struct tiers *t, const struct tier_entry *e);

#endif
