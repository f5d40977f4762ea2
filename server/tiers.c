/* Moves pages of cached prefixes between the engine's loop, host memory and
 * disk. See tiers.h. */
#include "tiers.h"

#include "clock.h"
#include "fail.h"
#include "tier_disk.h"
#include "tier_table.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    /* Limit of the bytes of pages that wait to be written to disk, and default
     * of tiers_options.ahead. */
    STAGED = 256 << 20,
    /* Seconds after a disk failure until writing is tried again. */
    AGAIN_S = 30,
    FLUSH_S = 5, /* default of tiers_options.flush_s, in seconds */
    /* Seconds that tiers_flush waits for the I/O thread in addition to
     * tiers_options.flush_s. */
    LEAVE_S = 5,
    HANG_S = 5,
    READ_HANG_S = 1,
    MAX_SEARCH = 256,
};

/* The key of a damaged entry, which the I/O thread must delete from disk. */
struct bad_entry {
    struct bad_entry *next;
    struct tier_key key;
};

/* A page that a lookup found in a tier. */
struct found_page {
    struct tier_key key;
    int n; /* number of tokens in the page */
    bool resumable;
};

/* A lookup of a prompt in the tiers. The I/O thread first finds all pages of
 * the prompt, reading only the heads of files. Then it reads the pages one by
 * one, in turn with the pages of other lookups, within the limit
 * tiers_options.ahead. */
struct tiers_lookup {
    struct tiers_lookup *next; /* next lookup in the list tiers.search */
    int32_t *token;            /* tokens of the prompt, [n]; owned */
    int64_t n, length;
    void (*done)(void *user);
    void *user;
    int64_t from;
    /* key[0] is the root key, key[i + 1] the key of full page i of the prompt;
     * [n / TIER_TOKENS + 1]; owned. */
    struct tier_key *key;
    struct found_page *page; /* the pages that were found, [n_page]; owned */
    int n_page;
    /* The disk hung when the lookup began, so only host memory is searched. */
    bool no_disk;
    /* The search for pages has ended, so `page` and n_page are final. */
    atomic_bool over;

    /* The fields from here on are guarded by tiers.lock. */
    bool busy;  /* the I/O thread is searching or reading for this lookup */
    bool freed; /* tiers_search_free was called */
    /* Number of pages, counted from the first one found, that were read or may
     * still be read. */
    int end;
    /* n_read: number of pages read so far. n_taken: number of pages that the
     * caller of tiers_lookup_page no longer needs. */
    int n_read, n_taken;
    /* The pages that were read, [n_page]; owned; the lookup holds references to
     * entry[n_taken ... n_read - 1]. */
    struct tier_entry **entry;
};

struct tiers {
    struct tiers_options o;
    struct tier_key root;
    struct tier_disk disk;
    pthread_t io;
    bool has_io; /* the I/O thread was started */
    /* ended: tiers_flush was called. left: the I/O thread hangs and was left
     * running. */
    bool ended, left;
    /* Time by clock_now, in seconds, since which the I/O thread waits for the
     * disk; 0 if it does not wait. */
    _Atomic double disk_busy_s;
    /* The tokens before the page that was stored last, [n_path], and the key of
     * the page before it; owned. Only the thread that stores pages uses
     * them. */
    int32_t *path;
    int64_t n_path;
    struct tier_key path_key;

    pthread_mutex_t lock;
    /* Signalled when the I/O thread may have something to do. */
    pthread_cond_t wake;
    bool stops; /* the I/O thread must end */
    double flush_until;
    struct bad_entry *bad_entry;
    /* All lookups. The I/O thread serves the first that it can, and puts it
     * last. */
    struct tiers_lookup *search;
    int n_search; /* number of lookups that are not freed yet */
    /* Bytes of the pages that were read and that lookups still hold. */
    uint64_t ahead;
    struct tier_table table;
    struct tiers_counts counts;
    /* Time by clock_now, in seconds, before which no page is written, because
     * the disk failed; 0 before the first failure. */
    double again;
    /* A disk failure was logged, and a page too large for the folder was
     * logged. Only the I/O thread uses these two fields and `again`. */
    bool failure_logged, large_logged;
};

/* Returns the log callback, which tiers_free removes if the I/O thread
 * hangs. */
static pl_log_fn *log_of(struct tiers *t)
{
    pl_log_fn *log;

    pthread_mutex_lock(&t->lock);
    log = t->o.log;
    pthread_mutex_unlock(&t->lock);
    return log;
}

/* ---- storing pages in memory and writing them to disk -------------------- */

/* Creates the entry of a page and moves the page's data to it. Returns NULL if
 * out of memory. The pages of a prefix are stored one after the other, so the
 * key of the page before is mostly known. Hashing all tokens would take longer
 * with every page. */
static struct tier_entry *entry_of(struct tiers *t, const int32_t *token,
                                   int64_t n, bool resumable, void *data,
                                   size_t bytes)
{
    int64_t first = (n - 1) / TIER_TOKENS * TIER_TOKENS;
    size_t path_bytes = (size_t)first * sizeof *token;
    int32_t *path = realloc(t->path, path_bytes + 1);

    if (!path)
        return NULL;
    t->path = path;
    if (t->n_path > first ||
        memcmp(path, token, (size_t)t->n_path * sizeof *token) != 0) {
        t->n_path = 0;
        t->path_key = t->root;
    }
    for (; t->n_path < first; t->n_path += TIER_TOKENS) {
        struct tier_key parent = t->path_key;

        tier_key_next(&t->path_key, &parent, token + t->n_path, TIER_TOKENS);
    }
    memcpy(path, token, path_bytes);
    return tier_entry_new(&t->path_key, first, token + first, (int)(n - first),
                          resumable, data, bytes);
}

/* Records that the I/O thread begins a disk access, if `is` is true, or has
 * ended it. */
static void mark_disk_busy(struct tiers *t, bool is)
{
    atomic_store(&t->disk_busy_s, is ? clock_now() : 0);
}

/* Returns true if the I/O thread waits for the disk for more than `limit`
 * seconds. */
static bool is_stalled(const struct tiers *t, double limit)
{
    double since = atomic_load(&t->disk_busy_s);

    return since > 0 && clock_now() - since > limit;
}

bool tiers_disk_stalled(const struct tiers *t)
{
    return is_stalled(t, t->o.read_hang_s);
}

/* Inserts an entry into host memory. Caller holds the lock. While the disk
 * hangs, this entry and all dirty ones are marked clean and counted as lost, so
 * that they do not wait for the disk. If there is no host memory tier, this
 * entry is then not inserted. */
static void put(struct tiers *t, struct tier_entry *e)
{
    bool stalled = is_stalled(t, t->o.hang_s);
    struct tier_entry *dirty;

    while (stalled && (dirty = tier_table_oldest_dirty(&t->table))) {
        tier_table_mark_clean(&t->table, dirty);
        t->counts.lost++;
    }
    t->counts.lost += stalled;
    if (!stalled || t->o.ram > 0)
        tier_table_put(&t->table, e, t->disk.dir >= 0 && !stalled);
    pthread_cond_signal(&t->wake);
}

void tiers_store(struct tiers *t, const int32_t *token, int64_t n,
                 bool resumable, void *data, size_t bytes)
{
    struct tier_entry *e = entry_of(t, token, n, resumable, data, bytes);
    const struct tier_entry *old;

    if (!e)
        free(data);
    pthread_mutex_lock(&t->lock);
    old = e ? tier_table_find(&t->table, &e->key) : NULL;
    if (!e)
        t->counts.lost++;
    else if (!old || (e->resumable && !old->resumable))
        put(t, e); /* a page after which a sequence can continue replaces one
                      after which it cannot */
    pthread_mutex_unlock(&t->lock);
    tier_entry_unref(e);
}

bool tiers_is_full(struct tiers *t)
{
    uint64_t most = t->table.limit / 2 < STAGED ? t->table.limit / 2 : STAGED;
    bool full;

    pthread_mutex_lock(&t->lock);
    full = !is_stalled(t, t->o.hang_s) && t->table.dirty >= most;
    pthread_mutex_unlock(&t->lock);
    return full;
}

/* Returns true if the disk already has an entry with the same key and size,
 * after which a sequence can continue if it can after `e`. */
static bool is_written(const struct tiers *t, const struct tier_entry *e)
{
    bool damaged, good;
    struct tier_entry *old = tier_disk_read(&t->disk, &e->key, true, &damaged);

    good = old && (old->resumable || !e->resumable) && old->bytes == e->bytes;
    tier_entry_unref(old);
    return good;
}

/* Writes an entry to disk. If the disk already has it, marks it there as used
 * instead and sets *there. On failure returns false and sets *error to
 * errno. */
static bool write_entry(struct tiers *t, const struct tier_entry *e,
                        bool *there, int *error)
{
    bool ok = true;

    *there = is_written(t, e);
    if (*there) {
        tier_disk_touch(&t->disk, &e->key);
    } else {
        ok = tier_disk_write(&t->disk, e);
        *error = errno;
    }
    return ok;
}

/* Logs a failed write. Logs nothing if a failure of the same kind (EFBIG, or
 * any other) was logged since the last successful write. */
static void log_failure(struct tiers *t, const struct tier_entry *e, int error)
{
    if (error == EFBIG ? t->large_logged : t->failure_logged)
        return;
    if (error == EFBIG)
        server_log(
            log_of(t), t->o.log_user, PL_LOG_WARN,
            "a cache page of %zu bytes does not fit in the cache folder; set "
            "--cache-disk to more than twice that",
            tier_entry_size(e));
    else
        server_log(
            log_of(t), t->o.log_user, PL_LOG_WARN,
            "cannot write to the cache folder (%s); cached pages stay in "
            "memory, retrying every %d s",
            strerror(error), AGAIN_S);
}

/* Writes the oldest dirty entry to disk. If the disk failed recently, counts
 * the entry as lost instead. Caller holds the lock, which is released
 * meanwhile. A page that is too large does not count as a disk failure. */
static void write_one(struct tiers *t)
{
    struct tier_entry *e = tier_entry_ref(tier_table_oldest_dirty(&t->table));
    bool there = false, ok = true;
    int error = 0;

    if (clock_now() < t->again) {
        tier_table_mark_clean(&t->table, e);
        t->counts.lost++;
    } else {
        mark_disk_busy(t, true);
        pthread_mutex_unlock(&t->lock);
        ok = write_entry(t, e, &there, &error);
        if (!ok)
            log_failure(t, e, error);
        if (!ok)
            *(error == EFBIG ? &t->large_logged : &t->failure_logged) = true;
        else if (!there)
            t->failure_logged = t->large_logged = false;
        pthread_mutex_lock(&t->lock);
        mark_disk_busy(t, false);
        tier_table_mark_clean(&t->table, e);
        t->counts.failed += !ok;
        t->counts.written += ok && !there;
        t->counts.written_bytes += ok && !there ? e->bytes : 0;
        t->counts.disk_bytes = t->disk.bytes;
        if (!ok && error != EFBIG)
            t->again = clock_now() + AGAIN_S;
    }
    if (t->o.ram == 0)
        tier_table_drop(&t->table, &e->key);
    tier_entry_unref(e);
}

/* Deletes one entry that was found to be damaged from disk. Caller holds the
 * lock, which is released meanwhile. */
static void remove_one(struct tiers *t)
{
    struct bad_entry *b = t->bad_entry;

    t->bad_entry = b->next;
    mark_disk_busy(t, true);
    pthread_mutex_unlock(&t->lock);
    tier_disk_drop(&t->disk, &b->key);
    free(b);
    pthread_mutex_lock(&t->lock);
    mark_disk_busy(t, false);
}

/* ---- looking up prompts in the tiers ------------------------------------- */

static void free_search(struct tiers_lookup *s)
{
    for (int i = s->n_taken; i < s->n_read; i++)
        tier_entry_unref(s->entry[i]);
    free(s->entry);
    free(s->page);
    free(s->key);
    free(s->token);
    free(s);
}

static bool is_wanted(struct tiers *t, const struct tiers_lookup *s)
{
    bool wanted;

    pthread_mutex_lock(&t->lock);
    wanted = !s->freed && !t->stops;
    pthread_mutex_unlock(&t->lock);
    return wanted;
}

static struct tier_entry *read_disk_entry(struct tiers *t,
                                          const struct tier_key *key, bool head)
{
    struct tier_entry *e;
    bool damaged;

    mark_disk_busy(t, true);
    e = tier_disk_read(&t->disk, key, head, &damaged);
    mark_disk_busy(t, false);
    if (damaged) {
        pthread_mutex_lock(&t->lock);
        t->counts.damaged++;
        pthread_mutex_unlock(&t->lock);
    }
    return e;
}

/* Finds an entry in host memory or on disk, and returns it with a reference;
 * NULL if no tier has it. If `head`, an entry from disk has no data. Sets
 * *of_ram to true if the entry was in host memory, else to false. */
static struct tier_entry *find_entry(struct tiers *t,
                                     const struct tiers_lookup *s,
                                     const struct tier_key *key, bool head,
                                     bool *of_ram)
{
    struct tier_entry *e;

    pthread_mutex_lock(&t->lock);
    e = tier_table_find(&t->table, key);
    if (e)
        tier_entry_ref(e);
    pthread_mutex_unlock(&t->lock);
    *of_ram = e != NULL;
    return e || s->no_disk ? e : read_disk_entry(t, key, head);
}

/* Appends the page with this key to s->page, the list of found pages. Returns
 * false if no tier has the page. */
static bool find_page(struct tiers *t, struct tiers_lookup *s,
                      const struct tier_key *key)
{
    bool of_ram;
    struct tier_entry *e = find_entry(t, s, key, true, &of_ram);

    if (!e)
        return false;
    s->page[s->n_page++] = (struct found_page){*key, e->n, e->resumable};
    tier_entry_unref(e);
    return true;
}

/* Returns how many of the found pages can be used: those up to the last page
 * after which a sequence can continue (a resumable page). */
static int n_resumable_pages(const struct tiers_lookup *s)
{
    int n = s->n_page;

    while (n > 0 && !s->page[n - 1].resumable)
        n--;
    return n;
}

/* Finds the full pages of the prompt from token s->from on, up to the first
 * page that no tier has. */
static void match_full_pages(struct tiers *t, struct tiers_lookup *s)
{
    for (int64_t i = s->from / TIER_TOKENS; (i + 1) * TIER_TOKENS < s->n; i++)
        if (!is_wanted(t, s) || !find_page(t, s, &s->key[i + 1]))
            return;
}

/* Finds the longest partial page in the tiers that continues the full pages
 * found. The tiers have partial pages where a state was cached within a page.
 * If no partial page follows the last full page, tries those that follow
 * earlier full pages, back to the last resumable one. The full pages after the
 * found partial page are then dropped. */
static void match_partial_page(struct tiers *t, struct tiers_lookup *s)
{
    int good = n_resumable_pages(s), whole = s->n_page;

    for (int k = whole; k >= good; k--) {
        int64_t first = s->from + (int64_t)k * TIER_TOKENS;
        int64_t most = s->n - 1 - first;

        for (int m = (int)(most < TIER_TOKENS ? most : TIER_TOKENS - 1); m > 0;
             m--) {
            struct tier_key key;

            if (first + m <= s->length)
                break;
            tier_key_next(&key, &s->key[first / TIER_TOKENS], s->token + first,
                          m);
            s->n_page = k;
            if (find_page(t, s, &key))
                return;
            s->n_page = whole;
        }
    }
}

/* Finds all pages of a lookup, s->page. The list is empty if the pages do not
 * extend the prefix that is on the devices. Also marks the tiers' copies of the
 * pages of this prefix as used. */
static void find_all(struct tiers *t, struct tiers_lookup *s)
{
    struct tiers_found f;

    s->key[0] = t->root;
    for (int64_t i = 0; (i + 1) * TIER_TOKENS <= s->n; i++)
        tier_key_next(&s->key[i + 1], &s->key[i], s->token + i * TIER_TOKENS,
                      TIER_TOKENS);
    for (int64_t i = 0; (i + 1) * TIER_TOKENS <= s->length; i++) {
        pthread_mutex_lock(&t->lock);
        /* Finding an entry also marks it as used. */
        tier_table_find(&t->table, &s->key[i + 1]);
        pthread_mutex_unlock(&t->lock);
        if (s->no_disk)
            continue;
        mark_disk_busy(t, true);
        tier_disk_touch(&t->disk, &s->key[i + 1]);
        mark_disk_busy(t, false);
    }
    if (!is_wanted(t, s)) /* the lookup was freed: it only had to mark pages as
                             used, or its task has ended */
        return;
    /* A sequence that ends within a page cannot be continued by further pages,
     * so all pages from token 0 on are needed. */
    s->from = s->length % TIER_TOKENS ? 0 : s->length;
    match_full_pages(t, s);
    match_partial_page(t, s);
    s->n_page = n_resumable_pages(s);
    f = tiers_search_found(s);
    if (f.end <= s->length)
        s->n_page = 0;
}

/* Reads page i of a lookup and returns its entry with a reference; NULL if no
 * tier has the page any more. A page read from disk is also inserted into host
 * memory. */
static struct tier_entry *read_page(struct tiers *t, struct tiers_lookup *s,
                                    int i)
{
    bool ram;
    struct tier_entry *e = find_entry(t, s, &s->page[i].key, false, &ram);

    if (!e)
        return NULL;
    pthread_mutex_lock(&t->lock);
    if (!ram && t->o.ram > 0 && !tier_table_find(&t->table, &e->key))
        tier_table_put(&t->table, e, false); /* inserted only if no other thread
                                                has inserted it meanwhile */
    *(ram ? &t->counts.ram_hits : &t->counts.disk_hits) += 1;
    *(ram ? &t->counts.ram_hit_bytes : &t->counts.disk_hit_bytes) += e->bytes;
    pthread_mutex_unlock(&t->lock);
    return e;
}

/* ---- the I/O thread ------------------------------------------------------ */

/* Callers of the functions from here to serve_lookup hold tiers.lock. */

static void enlist(struct tiers *t, struct tiers_lookup *s)
{
    struct tiers_lookup **end = &t->search;

    while (*end)
        end = &(*end)->next;
    s->next = NULL;
    *end = s;
}

static void take_out(struct tiers *t, struct tiers_lookup *s)
{
    struct tiers_lookup **at = &t->search;

    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
}

static void discard_search(struct tiers *t, struct tiers_lookup *s)
{
    for (int i = s->n_taken; i < s->n_read; i++)
        t->ahead -= s->entry[i]->bytes;
    t->n_search--;
    /* The limit of bytes read ahead may now allow the I/O thread to read for
     * other lookups. */
    pthread_cond_signal(&t->wake);
    take_out(t, s);
    free_search(s);
}

/* Returns true if the limit of bytes of pages read ahead, tiers_options.ahead,
 * allows reading another page for a lookup. A lookup may always hold one page,
 * so that every lookup progresses. */
static bool has_room(const struct tiers *t, const struct tiers_lookup *s)
{
    return t->ahead < t->o.ahead || s->n_read == s->n_taken;
}

/* Returns the first lookup that the I/O thread can serve, and puts it last;
 * NULL if there is none. */
static struct tiers_lookup *next_search(struct tiers *t)
{
    for (struct tiers_lookup *s = t->search; s; s = s->next)
        if (!atomic_load(&s->over) || (s->n_read < s->end && has_room(t, s))) {
            take_out(t, s);
            enlist(t, s);
            return s;
        }
    return NULL;
}

/* Performs one operation for a lookup: finds its pages, or reads one page. The
 * lock is released meanwhile. */
static void serve_lookup(struct tiers *t, struct tiers_lookup *s)
{
    struct tier_entry *e = NULL;
    bool finds = !atomic_load(&s->over);

    s->busy = true;
    pthread_mutex_unlock(&t->lock);
    if (finds)
        find_all(t, s);
    else
        e = read_page(t, s, s->n_read);
    pthread_mutex_lock(&t->lock);
    s->busy = false;
    if (finds)
        s->end = s->n_page;
    else if (!e)
        s->end = s->n_read;
    if (e) {
        s->entry[s->n_read++] = e;
        t->ahead += e->bytes;
    }
    atomic_store(&s->over, true);
    if (s->freed)
        discard_search(t, s);
    else
        s->done(s->user);
}

/* Lookups are served first, because tasks wait for them. Damaged entries are
 * deleted before entries are written, because the next one may have the key of
 * a damaged one. */
static void *io_thread(void *user)
{
    struct tiers *t = user;

    pthread_mutex_lock(&t->lock);
    while (!t->stops || clock_now() <= t->flush_until) {
        struct tiers_lookup *s = t->stops ? NULL : next_search(t);

        if (s)
            serve_lookup(t, s);
        else if (t->bad_entry)
            remove_one(t);
        else if (tier_table_oldest_dirty(&t->table))
            write_one(t);
        else if (t->stops)
            break;
        else
            pthread_cond_wait(&t->wake, &t->lock);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

/* ---- the results of lookups ---------------------------------------------- */

/* Finds and reads all pages of a lookup that are in host memory, on the thread
 * that calls tiers_search. Used while the disk hangs. */
static void search_memory(struct tiers *t, struct tiers_lookup *s)
{
    struct tier_entry *e;

    find_all(t, s);
    while (s->n_read < s->n_page && (e = read_page(t, s, s->n_read))) {
        s->entry[s->n_read++] = e;
        pthread_mutex_lock(&t->lock);
        t->ahead += e->bytes;
        pthread_mutex_unlock(&t->lock);
    }
    s->end = s->n_read;
    atomic_store(&s->over, true);
}

struct tiers_lookup *tiers_search(struct tiers *t, const int32_t *token,
                                  int64_t n, int64_t length,
                                  void (*done)(void *user), void *user)
{
    struct tiers_lookup *s = calloc(1, sizeof *s);
    size_t n_page = (size_t)n / TIER_TOKENS + 2;

    if (!s)
        return NULL;
    atomic_init(&s->over, false);
    s->n = n;
    s->length = length;
    s->done = done;
    s->user = user;
    s->token = malloc((size_t)n * sizeof *s->token);
    s->key = calloc(n_page, sizeof *s->key);
    s->page = calloc(n_page, sizeof *s->page);
    s->entry = calloc(n_page, sizeof(*s->entry));
    if (!s->token || !s->key || !s->page || !s->entry) {
        free_search(s);
        return NULL;
    }
    memcpy(s->token, token, (size_t)n * sizeof *s->token);
    pthread_mutex_lock(&t->lock);
    if (t->n_search == MAX_SEARCH || t->stops) {
        pthread_mutex_unlock(&t->lock);
        free_search(s);
        return NULL;
    }
    t->n_search++;
    pthread_mutex_unlock(&t->lock);
    s->no_disk = tiers_disk_stalled(t);
    if (s->no_disk)
        search_memory(t, s);
    pthread_mutex_lock(&t->lock);
    enlist(t, s);
    pthread_cond_signal(&t->wake);
    pthread_mutex_unlock(&t->lock);
    return s;
}

bool tiers_search_done(const struct tiers_lookup *s)
{
    return atomic_load(&s->over);
}

struct tiers_found tiers_search_found(const struct tiers_lookup *s)
{
    struct tiers_found f = {.from = s->from, .end = s->from, .n = s->n_page};

    for (int i = 0; i < f.n; i++)
        f.end += s->page[i].n;
    return f;
}

const struct tier_entry *
tiers_lookup_page(struct tiers *t, struct tiers_lookup *s, int i, bool *ended)
{
    const struct tier_entry *e = NULL;

    pthread_mutex_lock(&t->lock);
    while (s->n_taken < i && s->n_taken < s->n_read) {
        t->ahead -= s->entry[s->n_taken]->bytes;
        tier_entry_unref(s->entry[s->n_taken++]);
        pthread_cond_signal(&t->wake);
    }
    *ended = i >= s->end;
    if (i < s->n_read)
        e = s->entry[i];
    pthread_mutex_unlock(&t->lock);
    return e;
}

void tiers_search_free(struct tiers *t, struct tiers_lookup *s)
{
    if (!s)
        return;
    pthread_mutex_lock(&t->lock);
    s->freed = true;
    /* Before the search has ended, the I/O thread must still mark pages as
     * used. It then frees the lookup. */
    if (atomic_load(&s->over) && !s->busy)
        discard_search(t, s);
    pthread_mutex_unlock(&t->lock);
}

void tiers_report_corrupt(struct tiers *t, const struct tier_entry *e)
{
    struct bad_entry *b = calloc(1, sizeof *b);

    if (b)
        b->key = e->key;
    pthread_mutex_lock(&t->lock);
    tier_table_drop(&t->table, &e->key);
    t->counts.damaged++;
    /* If out of memory, the entry stays on disk until it is again found to be
     * damaged. */
    if (b) {
        b->next = t->bad_entry;
        t->bad_entry = b;
        pthread_cond_signal(&t->wake);
    }
    pthread_mutex_unlock(&t->lock);
}

void tiers_counts(struct tiers *t, struct tiers_counts *out)
{
    pthread_mutex_lock(&t->lock);
    *out = t->counts;
    out->ram_pages = (uint64_t)t->table.n;
    out->ram_bytes = t->table.bytes;
    out->dirty_bytes = t->table.dirty;
    out->lost += (uint64_t)t->table.n_lost;
    pthread_mutex_unlock(&t->lock);
}

/* ---- creating, flushing and freeing the tiers ---------------------------- */

pl_status tiers_create(struct tiers **out, const struct tiers_options *o,
                       const struct tier_key *root, pl_err *err)
{
    struct tiers *t = calloc(1, sizeof *t);
    pl_status s;

    *out = NULL;
    if (!t)
        return server_fail(err, PL_NO_MEMORY, "cache tiers: out of memory");
    t->o = *o;
    t->disk.dir = -1;
    if (t->o.ahead == 0)
        t->o.ahead = STAGED;
    if (t->o.hang_s == 0)
        t->o.hang_s = HANG_S;
    if (t->o.read_hang_s == 0)
        t->o.read_hang_s = READ_HANG_S;
    if (t->o.flush_s == 0)
        t->o.flush_s = FLUSH_S;
    if (t->o.read_hang_s > t->o.hang_s)
        t->o.read_hang_s = t->o.hang_s;
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->wake, NULL);
    t->root = t->path_key = *root;
    s = tier_table_init(&t->table, o->ram > 0 ? o->ram : 2 * (uint64_t)STAGED)
            ? PL_OK
            : server_fail(err, PL_NO_MEMORY, "cache tiers: out of memory");
    if (s == PL_OK && o->dir)
        s = tier_disk_open(&t->disk, o->dir, o->disk, err);
    if (s == PL_OK) {
        t->counts.disk_bytes = t->disk.bytes;
        t->has_io = pthread_create(&t->io, NULL, io_thread, t) == 0;
        if (!t->has_io)
            s = server_fail(err, PL_NO_MEMORY,
                            "cache tiers: cannot start a thread; raise the "
                            "limits of threads and memory (ulimit -u, -v)");
    }
    if (s != PL_OK) {
        tiers_free(t);
        return s;
    }
    *out = t;
    return PL_OK;
}

struct bytes {
    unsigned char *b; /* the collected bytes, owned */
    size_t n;
};

static bool append(void *user, const void *data, size_t n)
{
    struct bytes *to = user;
    unsigned char *more = realloc(to->b, to->n + n);

    if (!more)
        return false;
    memcpy(more + to->n, data, n);
    to->b = more;
    to->n += n;
    return true;
}

/* Results are bit-identical only within one processor architecture, so its name
 * is a part of the root key. */
#if defined(__x86_64__)
static const char arch[] = "x86-64";
#elif defined(__aarch64__)
static const char arch[] = "aarch64";
#else
static const char arch[] = "another";
#endif

/* Makes the root key from the saved state of zero tokens. Such a state contains
 * only the description of the engine that computed it. */
pl_status tiers_root(struct tier_key *out, pl_engine *e, pl_err *err)
{
    struct bytes head = {0};
    pl_status s = pl_state_save(e, 0, 0, 0, append, &head, err);

    if (s == PL_OK && !append(&head, arch, sizeof arch))
        s = server_fail(err, PL_NO_MEMORY, "cache tiers: out of memory");
    if (s == PL_OK)
        tier_key_root(out, head.b, head.n);
    free(head.b);
    return s;
}

pl_status tiers_open(struct tiers **out, const struct tiers_options *o,
                     pl_engine *e, pl_err *err)
{
    struct tier_key root = {0};
    pl_status s = o->dir ? tiers_root(&root, e, err) : PL_OK;

    *out = NULL;
    return s == PL_OK ? tiers_create(out, o, &root, err) : s;
}

void tiers_flush(struct tiers *t)
{
    struct timespec end;

    if (!t || t->ended)
        return;
    t->ended = true;
    pthread_mutex_lock(&t->lock);
    t->stops = true;
    t->flush_until = clock_now() + t->o.flush_s;
    pthread_cond_signal(&t->wake);
    pthread_mutex_unlock(&t->lock);
    /* pthread_timedjoin_np uses this clock. */
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += (time_t)t->o.flush_s + LEAVE_S;
    t->left = t->has_io && pthread_timedjoin_np(t->io, NULL, &end) != 0;
    if (t->left)
        pthread_detach(t->io);
}

void tiers_free(struct tiers *t)
{
    if (!t)
        return;
    tiers_flush(t);
    /* If the I/O thread hangs, it still uses *t, so *t is not freed. Its log
     * callback is removed, because the owner of the log may be freed. */
    if (t->left) {
        server_log(log_of(t), t->o.log_user, PL_LOG_WARN,
                   "the cache folder does not respond; its pending writes are "
                   "abandoned");
        pthread_mutex_lock(&t->lock);
        t->o.log = NULL;
        pthread_mutex_unlock(&t->lock);
        return;
    }
    while (t->bad_entry) {
        struct bad_entry *b = t->bad_entry;

        t->bad_entry = b->next;
        free(b);
    }
    while (t->search) {
        struct tiers_lookup *s = t->search;

        t->search = s->next;
        free_search(s);
    }
    if (t->table.bucket)
        tier_table_fini(&t->table);
    tier_disk_close(&t->disk);
    free(t->path);
    pthread_cond_destroy(&t->wake);
    pthread_mutex_destroy(&t->lock);
    free(t);
}
