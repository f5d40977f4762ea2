/* The two threads between the engine's loop, host memory and the disk. See
 * tiers.h. */
#include "tiers.h"

#include "tier_disk.h"
#include "tier_table.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    STAGED = 256 << 20, /* bytes that may be on their way */
    AGAIN_S = 30,       /* a disk that failed is tried again */
    FLUSH_S = 5,        /* writing what is owed, at the end */
    LEAVE_S = 5,        /* behind that, for a disk that hangs */
    MAX_SEARCH = 16,    /* that wait for the reader */
};

/* What was given and not looked at yet. */
struct given {
    struct given *next;
    int32_t *token; /* owned, [n] */
    int64_t n;
    bool goes_on;
    void *data; /* owned */
    size_t bytes;
};

/* What is to be removed from the disk. */
struct bad {
    struct bad *next;
    struct tier_key key;
};

struct tiers_search {
    struct tiers_search *next;
    int32_t *token; /* owned, [n] */
    int64_t n, length;
    void (*done)(void *user);
    void *user;
    bool freed; /* guarded: nobody wants it any more */
    atomic_bool over;

    int64_t from;
    struct tier_entry **entry; /* owned, [n_entry], each counted */
    struct tier_key *key;      /* owned, [n / TIER_TOKENS + 1] of its pages */
    bool *of_ram;              /* owned, [n_entry] */
    int n_entry;
};

struct tiers {
    struct tiers_options o;
    struct tier_key root;
    struct tier_disk disk;
    pthread_t writer, reader;
    bool writes, reads; /* they run */

    pthread_mutex_t lock;
    pthread_cond_t to_write, to_read;
    bool stops;
    double flush_until;
    struct given *given, *last; /* a queue */
    uint64_t given_bytes;
    struct bad *bad;
    struct tiers_search *search, *last_search;
    int n_search; /* of them, and the one that is under way */
    struct tier_table table;
    struct tiers_counts counts;
    double again; /* the disk failed, and is not written to before; */
    bool told;    /* and that was said. Both are the writer's */
};

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void say(struct tiers *t, pl_log_level level, const char *form, ...)
    __attribute__((format(printf, 3, 4)));
static void say(struct tiers *t, pl_log_level level, const char *form, ...)
{
    char text[600];
    pl_log_fn *log;
    va_list a;

    pthread_mutex_lock(&t->lock);
    log = t->o.log;
    pthread_mutex_unlock(&t->lock);
    if (!log)
        return;
    va_start(a, form);
    vsnprintf(text, sizeof text, form, a);
    va_end(a);
    log(t->o.log_user, level, text);
}

/* ---- writing ------------------------------------------------------------- */

static void free_given(struct given *g)
{
    free(g->token);
    free(g->data);
    free(g);
}

/* As an entry; NULL: no memory. Takes the data. */
static struct tier_entry *entry_of(const struct tiers *t, struct given *g)
{
    int64_t first = (g->n - 1) / TIER_TOKENS * TIER_TOKENS;
    struct tier_key key = t->root;
    struct tier_entry *e;

    for (int64_t at = 0; at < first; at += TIER_TOKENS) {
        struct tier_key parent = key;

        tier_key_next(&key, &parent, g->token + at, TIER_TOKENS);
    }
    e = tier_entry_new(&key, first, g->token + first, (int)(g->n - first),
                       g->goes_on, g->data, g->bytes);
    if (e)
        g->data = NULL;
    return e;
}

/* With the lock held, which it gives back meanwhile. A page that came before
 * behind which sequences went on is not replaced by one where they do not. */
static void sort_in(struct tiers *t)
{
    struct given *g = t->given;
    const struct tier_entry *old;
    struct tier_entry *e;

    pthread_mutex_unlock(&t->lock);
    e = entry_of(t, g);
    pthread_mutex_lock(&t->lock);
    t->given = g->next;
    t->last = t->given ? t->last : NULL;
    t->given_bytes -= g->bytes;
    old = e ? tier_table_find(&t->table, &e->key) : NULL;
    if (!e)
        t->counts.lost++;
    else if (!old || (e->goes_on && !old->goes_on))
        tier_table_put(&t->table, e, t->disk.dir >= 0);
    tier_entry_drop(e);
    free_given(g);
}

/* Is it on the disk already, as good as it is? */
static bool is_written(const struct tiers *t, const struct tier_entry *e)
{
    bool damaged, good;
    struct tier_entry *old = tier_disk_read(&t->disk, &e->key, true, &damaged);

    good = old && (old->goes_on || !e->goes_on) && old->bytes == e->bytes;
    tier_entry_drop(old);
    return good;
}

/* With the lock held, which it gives back meanwhile. */
static void write_one(struct tiers *t)
{
    struct tier_entry *e = tier_entry_hold(tier_table_owed(&t->table));
    bool there, ok = true;
    int error = 0;

    if (now() < t->again) {
        tier_table_paid(&t->table, e);
        t->counts.lost++;
    } else {
        pthread_mutex_unlock(&t->lock);
        there = is_written(t, e);
        if (there) {
            tier_disk_touch(&t->disk, &e->key);
        } else {
            ok = tier_disk_write(&t->disk, e);
            error = errno;
        }
        if (!ok && !t->told)
            say(t, PL_LOG_WARN,
                "the cache's folder cannot be written to (%s): what is cached "
                "stays in memory, and it is tried again every %d s",
                strerror(error), AGAIN_S);
        if (!there)
            t->told = !ok;
        pthread_mutex_lock(&t->lock);
        tier_table_paid(&t->table, e);
        t->counts.failed += !ok;
        t->counts.written += ok && !there;
        t->counts.written_bytes += ok && !there ? e->bytes : 0;
        t->counts.disk_bytes = t->disk.bytes;
        if (!ok)
            t->again = now() + AGAIN_S;
    }
    if (t->o.ram == 0)
        tier_table_drop(&t->table, &e->key);
    tier_entry_drop(e);
}

/* With the lock held, which it gives back meanwhile. */
static void remove_one(struct tiers *t)
{
    struct bad *b = t->bad;

    t->bad = b->next;
    pthread_mutex_unlock(&t->lock);
    tier_disk_drop(&t->disk, &b->key);
    free(b);
    pthread_mutex_lock(&t->lock);
}

static void *write_on(void *user)
{
    struct tiers *t = user;

    pthread_mutex_lock(&t->lock);
    for (;;) {
        if (t->stops && now() > t->flush_until)
            break;
        if (t->bad) /* before what takes its place */
            remove_one(t);
        else if (t->given)
            sort_in(t);
        else if (tier_table_owed(&t->table))
            write_one(t);
        else if (t->stops)
            break;
        else
            pthread_cond_wait(&t->to_write, &t->lock);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

bool tiers_full(struct tiers *t)
{
    uint64_t most = t->table.limit / 2 < STAGED ? t->table.limit / 2 : STAGED;
    bool full;

    pthread_mutex_lock(&t->lock);
    full = t->given_bytes + t->table.owed >= most;
    pthread_mutex_unlock(&t->lock);
    return full;
}

void tiers_give(struct tiers *t, const int32_t *token, int64_t n, bool goes_on,
                void *data, size_t bytes)
{
    struct given *g = calloc(1, sizeof *g);
    int32_t *own = malloc((size_t)n * sizeof *own);

    if (g && own) {
        memcpy(own, token, (size_t)n * sizeof *own);
        *g = (struct given){NULL, own, n, goes_on, data, bytes};
        pthread_mutex_lock(&t->lock);
        *(t->last ? &t->last->next : &t->given) = g;
        t->last = g;
        t->given_bytes += bytes;
        pthread_cond_signal(&t->to_write);
        pthread_mutex_unlock(&t->lock);
        return;
    }
    free(g);
    free(own);
    free(data);
    pthread_mutex_lock(&t->lock);
    t->counts.lost++;
    pthread_mutex_unlock(&t->lock);
}

/* ---- looking ------------------------------------------------------------- */

static void free_search(struct tiers_search *s)
{
    for (int i = 0; i < s->n_entry; i++)
        tier_entry_drop(s->entry[i]);
    free(s->entry);
    free(s->of_ram);
    free(s->key);
    free(s->token);
    free(s);
}

static bool is_wanted(struct tiers *t, const struct tiers_search *s)
{
    bool wanted;

    pthread_mutex_lock(&t->lock);
    wanted = !s->freed && !t->stops;
    pthread_mutex_unlock(&t->lock);
    return wanted;
}

/* Counted once; of the disk without its data. NULL: there is none. */
static struct tier_entry *look(struct tiers *t, const struct tier_key *key,
                               bool *of_ram)
{
    struct tier_entry *e;
    bool damaged = false;

    pthread_mutex_lock(&t->lock);
    e = tier_table_find(&t->table, key);
    if (e)
        tier_entry_hold(e);
    pthread_mutex_unlock(&t->lock);
    *of_ram = e != NULL;
    if (!e)
        e = tier_disk_read(&t->disk, key, true, &damaged);
    if (damaged) {
        pthread_mutex_lock(&t->lock);
        t->counts.damaged++;
        pthread_mutex_unlock(&t->lock);
    }
    return e;
}

static void keep_first(struct tiers_search *s, int n)
{
    while (s->n_entry > n)
        tier_entry_drop(s->entry[--s->n_entry]);
}

/* Entries up to the last one behind which a sequence can go on. */
static void keep_good(struct tiers_search *s)
{
    int n = s->n_entry;

    while (n > 0 && !s->entry[n - 1]->goes_on)
        n--;
    keep_first(s, n);
}

/* Whole pages from s->from on, as far as they are. */
static void follow(struct tiers *t, struct tiers_search *s)
{
    for (int64_t i = s->from / TIER_TOKENS; (i + 1) * TIER_TOKENS < s->n; i++) {
        bool of_ram;
        struct tier_entry *e =
            is_wanted(t, s) ? look(t, &s->key[i + 1], &of_ram) : NULL;

        if (!e)
            return;
        s->of_ram[s->n_entry] = of_ram;
        s->entry[s->n_entry++] = e;
    }
}

/* The longest of fewer tokens than a page that goes on behind whole pages: such
 * are kept where a state is. Only behind the last good entry, or further. */
static void follow_part(struct tiers *t, struct tiers_search *s)
{
    int good = s->n_entry;

    while (good > 0 && !s->entry[good - 1]->goes_on)
        good--;
    for (int k = s->n_entry; k >= good; k--) {
        int64_t first = s->from + (int64_t)k * TIER_TOKENS;
        int64_t most = s->n - 1 - first;

        for (int m = (int)(most < TIER_TOKENS ? most : TIER_TOKENS - 1); m > 0;
             m--) {
            struct tier_key key;
            struct tier_entry *e;
            bool of_ram;

            if (first + m <= s->length)
                break;
            tier_key_next(&key, &s->key[first / TIER_TOKENS], s->token + first,
                          m);
            e = look(t, &key, &of_ram);
            if (!e)
                continue;
            keep_first(s, k);
            s->of_ram[s->n_entry] = of_ram;
            s->entry[s->n_entry++] = e;
            return;
        }
    }
}

/* What was only looked at comes from the disk. False: no longer wanted. */
static bool load(struct tiers *t, struct tiers_search *s)
{
    for (int i = 0; i < s->n_entry; i++) {
        struct tier_entry *e;
        bool damaged;

        if (!is_wanted(t, s))
            return false;
        if (s->entry[i]->data)
            continue;
        e = tier_disk_read(&t->disk, &s->entry[i]->key, false, &damaged);
        pthread_mutex_lock(&t->lock);
        t->counts.damaged += damaged;
        if (e && t->o.ram > 0 && !tier_table_find(&t->table, &e->key))
            tier_table_put(&t->table, e, false); /* none came meanwhile */
        pthread_mutex_unlock(&t->lock);
        if (!e) {
            keep_first(s, i);
            return true;
        }
        tier_entry_drop(s->entry[i]);
        s->entry[i] = e;
    }
    return true;
}

/* Fewer than the devices have are of no use. */
static void count_hits(struct tiers *t, struct tiers_search *s)
{
    const struct tier_entry *last =
        s->n_entry > 0 ? s->entry[s->n_entry - 1] : NULL;

    if (last && last->first + last->n <= s->length)
        keep_first(s, 0);
    pthread_mutex_lock(&t->lock);
    for (int i = 0; i < s->n_entry; i++) {
        bool ram = s->of_ram[i];

        *(ram ? &t->counts.ram_hits : &t->counts.disk_hits) += 1;
        *(ram ? &t->counts.ram_hit_bytes : &t->counts.disk_hit_bytes) +=
            s->entry[i]->bytes;
    }
    pthread_mutex_unlock(&t->lock);
}

static void search(struct tiers *t, struct tiers_search *s)
{
    s->key[0] = t->root;
    for (int64_t i = 0; (i + 1) * TIER_TOKENS <= s->n; i++)
        tier_key_next(&s->key[i + 1], &s->key[i], s->token + i * TIER_TOKENS,
                      TIER_TOKENS);
    for (int64_t i = 0; (i + 1) * TIER_TOKENS <= s->length; i++) {
        pthread_mutex_lock(&t->lock);
        tier_table_find(&t->table, &s->key[i + 1]); /* uses it */
        pthread_mutex_unlock(&t->lock);
        tier_disk_touch(&t->disk, &s->key[i + 1]);
    }
    if (!is_wanted(t, s)) /* it was for that alone, or its job is gone */
        return;
    /* Behind a state within a page nothing can be put: all of it comes. */
    s->from = s->length % TIER_TOKENS ? 0 : s->length;
    follow(t, s);
    follow_part(t, s);
    keep_good(s);
    if (!load(t, s))
        keep_first(s, 0);
    keep_good(s);
    count_hits(t, s);
}

static void *read_on(void *user)
{
    struct tiers *t = user;

    pthread_mutex_lock(&t->lock);
    while (!t->stops) {
        struct tiers_search *s = t->search;

        if (!s) {
            pthread_cond_wait(&t->to_read, &t->lock);
            continue;
        }
        t->search = s->next;
        t->last_search = t->search ? t->last_search : NULL;
        pthread_mutex_unlock(&t->lock);
        search(t, s);
        pthread_mutex_lock(&t->lock);
        t->n_search--;
        if (s->freed) {
            free_search(s);
            continue;
        }
        atomic_store(&s->over, true);
        s->done(s->user);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

struct tiers_search *tiers_search(struct tiers *t, const int32_t *token,
                                  int64_t n, int64_t length,
                                  void (*done)(void *user), void *user)
{
    struct tiers_search *s = calloc(1, sizeof *s);
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
    s->entry = calloc(n_page, sizeof(*s->entry));
    s->of_ram = calloc(n_page, sizeof *s->of_ram);
    if (!s->token || !s->key || !s->entry || !s->of_ram) {
        free_search(s);
        return NULL;
    }
    memcpy(s->token, token, (size_t)n * sizeof *s->token);
    pthread_mutex_lock(&t->lock);
    if (t->n_search == MAX_SEARCH) {
        pthread_mutex_unlock(&t->lock);
        free_search(s);
        return NULL;
    }
    t->n_search++;
    *(t->last_search ? &t->last_search->next : &t->search) = s;
    t->last_search = s;
    pthread_cond_signal(&t->to_read);
    pthread_mutex_unlock(&t->lock);
    return s;
}

bool tiers_search_done(const struct tiers_search *s)
{
    return atomic_load(&s->over);
}

struct tier_entry *const *tiers_search_found(const struct tiers_search *s,
                                             int64_t *from, int *n)
{
    *from = s->from;
    *n = s->n_entry;
    return s->entry;
}

void tiers_search_free(struct tiers *t, struct tiers_search *s)
{
    bool over;

    if (!s)
        return;
    pthread_mutex_lock(&t->lock);
    over = atomic_load(&s->over);
    s->freed = true; /* by the reader, if it is not over */
    pthread_mutex_unlock(&t->lock);
    if (over)
        free_search(s);
}

void tiers_damaged(struct tiers *t, const struct tier_entry *e)
{
    struct bad *b = calloc(1, sizeof *b);

    if (b)
        b->key = e->key;
    pthread_mutex_lock(&t->lock);
    tier_table_drop(&t->table, &e->key);
    t->counts.damaged++;
    if (b) { /* without memory it is found again */
        b->next = t->bad;
        t->bad = b;
        pthread_cond_signal(&t->to_write);
    }
    pthread_mutex_unlock(&t->lock);
}

void tiers_counts(struct tiers *t, struct tiers_counts *out)
{
    pthread_mutex_lock(&t->lock);
    *out = t->counts;
    out->ram_pages = (uint64_t)t->table.n;
    out->ram_bytes = t->table.bytes;
    out->lost += (uint64_t)t->table.n_lost;
    pthread_mutex_unlock(&t->lock);
}

/* ---- the whole ----------------------------------------------------------- */

static pl_status fail(pl_err *err, const char *what)
{
    if (err) {
        err->status = PL_NO_MEMORY;
        snprintf(err->message, sizeof err->message,
                 "the tiers of the cache: %s", what);
    }
    return PL_NO_MEMORY;
}

pl_status tiers_create(struct tiers **out, const struct tiers_options *o,
                       const struct tier_key *root, pl_err *err)
{
    struct tiers *t = calloc(1, sizeof *t);
    pl_status s;

    *out = NULL;
    if (!t)
        return fail(err, "out of memory");
    t->o = *o;
    t->disk.dir = -1;
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->to_write, NULL);
    pthread_cond_init(&t->to_read, NULL);
    t->root = *root;
    s = tier_table_init(&t->table, o->ram > 0 ? o->ram : 2 * (uint64_t)STAGED)
            ? PL_OK
            : fail(err, "out of memory");
    if (s == PL_OK && o->dir)
        s = tier_disk_open(&t->disk, o->dir, o->disk, err);
    if (s == PL_OK) {
        t->counts.disk_bytes = t->disk.bytes;
        t->writes = pthread_create(&t->writer, NULL, write_on, t) == 0;
        t->reads = pthread_create(&t->reader, NULL, read_on, t) == 0;
        if (!t->writes || !t->reads)
            s = fail(err, "the system gives no more threads");
    }
    if (s != PL_OK) {
        tiers_free(t);
        return s;
    }
    *out = t;
    return PL_OK;
}

struct bytes {
    unsigned char *b; /* owned */
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

/* Within one architecture bits are the same. */
#if defined(__x86_64__)
static const char arch[] = "x86-64";
#elif defined(__aarch64__)
static const char arch[] = "aarch64";
#else
static const char arch[] = "another";
#endif

/* A state of no token tells nothing but what it would be a state of. */
pl_status tiers_root(struct tier_key *out, pl_engine *e, pl_err *err)
{
    struct bytes head = {0};
    pl_status s = pl_state_save(e, 0, 0, 0, append, &head, err);

    if (s == PL_OK && !append(&head, arch, sizeof arch))
        s = fail(err, "out of memory");
    if (s == PL_OK)
        tier_key_root(out, head.b, head.n);
    free(head.b);
    return s;
}

pl_status tiers_open(struct tiers **out, const struct tiers_options *o,
                     pl_engine *e, pl_err *err)
{
    struct tier_key root;
    pl_status s = tiers_root(&root, e, err);

    *out = NULL;
    return s == PL_OK ? tiers_create(out, o, &root, err) : s;
}

/* The thread has ended; or it hangs, and is left to itself. */
static bool joined(pthread_t thread, const struct timespec *end)
{
    if (pthread_timedjoin_np(thread, NULL, end) == 0)
        return true;
    pthread_detach(thread);
    return false;
}

void tiers_free(struct tiers *t)
{
    struct timespec end;
    bool ended = true;

    if (!t)
        return;
    pthread_mutex_lock(&t->lock);
    t->stops = true;
    t->flush_until = now() + FLUSH_S;
    pthread_cond_signal(&t->to_write);
    pthread_cond_signal(&t->to_read);
    pthread_mutex_unlock(&t->lock);
    clock_gettime(CLOCK_REALTIME, &end); /* of which the wait is */
    end.tv_sec += FLUSH_S + LEAVE_S;
    if (t->writes)
        ended = joined(t->writer, &end);
    if (t->reads)
        ended &= joined(t->reader, &end);
    if (!ended) { /* what the thread looks at stays, but for who hears it */
        say(t, PL_LOG_WARN,
            "the cache's folder does not answer; it is left as it is");
        pthread_mutex_lock(&t->lock);
        t->o.log = NULL;
        pthread_mutex_unlock(&t->lock);
        return;
    }
    while (t->given) {
        struct given *g = t->given;

        t->given = g->next;
        free_given(g);
    }
    while (t->bad) {
        struct bad *b = t->bad;

        t->bad = b->next;
        free(b);
    }
    while (t->search) {
        struct tiers_search *s = t->search;

        t->search = s->next;
        free_search(s);
    }
    if (t->table.bucket)
        tier_table_fini(&t->table);
    tier_disk_close(&t->disk);
    pthread_cond_destroy(&t->to_write);
    pthread_cond_destroy(&t->to_read);
    pthread_mutex_destroy(&t->lock);
    free(t);
}
