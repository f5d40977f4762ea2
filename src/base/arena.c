/* An arena is a list of blocks. Memory is allocated from the newest block until
 * that is full. A request larger than a quarter of a block gets a block of its
 * own, so that at most a quarter of a block is wasted.
 *
 * A large arena, and a request of at least a huge page, use blocks of huge
 * pages. They cause one page fault instead of five hundred, and their memory is
 * already zero. A very large arena uses larger blocks, which its growing arrays
 * share with the rest: the memory that they leave behind costs less than the
 * page faults of reallocation. */
#include "base/arena.h"

#include "base/err.h"
#include "base/numeral.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#define ARENA_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ARENA_ASAN 1
#endif
#endif

#ifdef ARENA_ASAN
#include <sanitizer/asan_interface.h>
enum { RED_ZONE = 16 };
#else
#define ASAN_POISON_MEMORY_REGION(p, n)   ((void)(p), (void)(n))
#define ASAN_UNPOISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
enum { RED_ZONE = 0 };
#endif

enum {
    ALIGN = 16,
    BLOCK_BYTES = 32 * 1024,
    HUGE_BYTES = 2 << 20,   /* size of a huge page in bytes */
    HUGE_FROM = 256 * 1024, /* bytes in use in an arena above which its further
                               blocks are huge pages */
    VAST_BYTES = 8 * HUGE_BYTES, /* bytes in use above which a further block has
                                    as many */
};

struct arena_block {
    struct arena_block *next;
    size_t size; /* size of data[] in bytes */
    size_t used;
    bool huge; /* the block was mapped by mmap, so its memory was zero; else it
                  is from malloc */
    _Alignas(16) unsigned char data[];
};

void arena_init(struct arena *a)
{
    memset(a, 0, sizeof *a);
}

void arena_fini(struct arena *a)
{
    struct arena_block *b = a->head;

    while (b) {
        struct arena_block *next = b->next;

        ASAN_UNPOISON_MEMORY_REGION(b->data, b->size);
        if (b->huge)
            munmap(b, sizeof *b + b->size);
        else
            free(b);
        b = next;
    }
    arena_init(a);
}

static struct arena_block *block_new(size_t size)
{
    struct arena_block *b;

    if (size > SIZE_MAX - sizeof *b)
        return NULL;
    b = malloc(sizeof *b + size);
    if (!b)
        return NULL;
    b->next = NULL;
    b->size = size;
    b->used = 0;
    b->huge = false;
    ASAN_POISON_MEMORY_REGION(b->data, size);
    return b;
}

/* Allocates a block of `bytes` bytes, header included, aligned to a huge page.
 * If that fails, allocates an ordinary block with `size` bytes of data instead.
 * Returns NULL if out of memory. */
static struct arena_block *block_huge(size_t bytes, size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), before, after;
    struct arena_block *b;
    char *p;

    if (bytes > SIZE_MAX - HUGE_BYTES - page)
        return NULL;
    bytes = (bytes + page - 1) / page * page;
    p = mmap(NULL, bytes + HUGE_BYTES, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return block_new(size);
    before = -(uintptr_t)p % HUGE_BYTES;
    after = HUGE_BYTES - before;
    if (before > 0)
        munmap(p, before);
    munmap(p + before + bytes, after);
    b = (struct arena_block *)(p + before);
    madvise(b, bytes, MADV_HUGEPAGE);
    b->size = bytes - sizeof *b;
    b->huge = true;
    ASAN_POISON_MEMORY_REGION(b->data, b->size);
    return b;
}

/* Remembers the first failure. Returns NULL. */
static void *fail(struct arena *a, size_t bytes)
{
    if (a->failed_bytes == 0)
        a->failed_bytes = bytes;
    return NULL;
}

/* Returns the size of the arena's next block. Requests of at most a quarter
 * share it. */
static size_t next_block(const struct arena *a)
{
    return a->used_bytes < HUGE_FROM    ? BLOCK_BYTES
           : a->used_bytes < VAST_BYTES ? HUGE_BYTES
                                        : VAST_BYTES;
}

/* Returns the space that an allocation of this size takes. */
static size_t room_of(size_t bytes)
{
    size_t need = (bytes + RED_ZONE + ALIGN - 1) / ALIGN * ALIGN;

    return need > 0 ? need : ALIGN;
}

/* Allocates like arena_alloc, but without setting the memory to zero. Sets
 * *zero to true if the memory is already zero. */
static void *take(struct arena *a, size_t n, size_t size, bool *zero)
{
    size_t block = next_block(a), bytes, need;
    struct arena_block *b = a->head;
    void *p;

    if (__builtin_mul_overflow(n, size, &bytes) ||
        bytes > SIZE_MAX - 2 * ALIGN - RED_ZONE)
        return fail(a, SIZE_MAX);
    need = room_of(bytes);
    if (!b || b->size - b->used < need) {
        bool own = need > block / 4;

        b = own && need < HUGE_BYTES ? block_new(need)
            : own                    ? block_huge(sizeof *b + need, need)
            : block == BLOCK_BYTES   ? block_new(block)
                                     : block_huge(block, BLOCK_BYTES);
        if (!b)
            return fail(a, bytes);
        /* A block for one large request becomes the second of the list. The
         * first block, which is only partly filled, stays first, because
         * further memory is allocated from the first block. */
        if (own && a->head) {
            b->next = a->head->next;
            a->head->next = b;
        } else {
            b->next = a->head;
            a->head = b;
        }
    }
    p = b->data + b->used;
    *zero = b->huge;
    b->used += need;
    a->used_bytes += need;
    ASAN_UNPOISON_MEMORY_REGION(p, bytes);
    return p;
}

void *arena_alloc(struct arena *a, size_t n, size_t size)
{
    bool zero;
    void *p = take(a, n, size, &zero);

    return p && !zero ? memset(p, 0, n * size) : p;
}

void *arena_memdup(struct arena *a, const void *p, size_t n, size_t size)
{
    bool zero;
    void *copy = take(a, n, size, &zero);

    if (copy && n > 0 && size > 0)
        memcpy(copy, p, n * size);
    return copy;
}

void *arena_grown(struct arena *a, void *from, size_t n, size_t size)
{
    size_t had = room_of(n * size),
           bytes = (n > 0 ? 2 * n : ARENA_FIRST) * size;
    size_t need = room_of(bytes);
    struct arena_block **b = &a->head, *grown;
    bool zero, own;
    void *to;

    if (need <= (next_block(a) == VAST_BYTES ? VAST_BYTES : BLOCK_BYTES) / 4) {
        to = take(a, bytes, 1, &zero);
        return to && n > 0 ? memcpy(to, from, n * size) : to;
    }
    /* A larger array has a block of its own, which grows with it. */
    while (*b && ((*b)->data != from || (*b)->size != had || (*b)->huge))
        b = &(*b)->next;
    own = *b != NULL;
    if (own)
        ASAN_UNPOISON_MEMORY_REGION((*b)->data, had);
    grown = realloc(*b, sizeof *grown + need);
    if (!grown)
        return fail(a, bytes);
    if (!own) {
        b = a->head ? &a->head->next : &a->head;
        if (n > 0)
            memcpy(grown->data, from, n * size);
        grown->next = *b;
        grown->huge = false;
    }
    *b = grown;
    grown->size = grown->used = need;
    a->used_bytes += need - (own ? had : 0);
    ASAN_POISON_MEMORY_REGION(grown->data + bytes, need - bytes);
    return grown->data;
}

char *arena_strndup(struct arena *a, const char *s, size_t len)
{
    char *copy = len < SIZE_MAX ? arena_alloc(a, len + 1, 1) : fail(a, len);

    if (copy)
        memcpy(copy, s, len);
    return copy;
}

char *arena_strdup(struct arena *a, const char *s)
{
    return arena_strndup(a, s, strlen(s));
}

char *arena_printf(struct arena *a, const char *fmt, ...)
{
    va_list ap;
    int len;
    char *s;

    va_start(ap, fmt);
    len = numeral_vprint(NULL, 0, fmt, ap);
    va_end(ap);
    if (len < 0)
        return NULL;
    s = arena_alloc(a, (size_t)len + 1, 1);
    if (!s)
        return NULL;
    va_start(ap, fmt);
    numeral_vprint(s, (size_t)len + 1, fmt, ap);
    va_end(ap);
    return s;
}

pl_status arena_check(const struct arena *a, const char *what, pl_err *err)
{
    char text[80];

    if (a->failed_bytes == 0)
        return PL_OK;
    if (a->failed_bytes == SIZE_MAX)
        return err_no_memory(err, what);
    snprintf(text, sizeof text, "%s (%zu bytes)", what, a->failed_bytes);
    return err_no_memory(err, text);
}
