/* .xz by liblzma, with a decoder's memory bounded and taken from malloc() here,
 * so that tests can let it fail. Writes no .xz. */
#include "base/xz.h"

#include <lzma.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/err.h"

static void *take(void *user, size_t n, size_t size)
{
    (void)user;
    return malloc(n * size); /* n is 1 (lzma/base.h) */
}

static void give(void *user, void *p)
{
    (void)user;
    free(p);
}

/* A dictionary is a power of two, and need not be longer than the bytes are; a
 * decoder has less than 1 MiB beside it. */
static uint64_t most_memory(const struct xz *x)
{
    return 2 * (uint64_t)x->n + (1 << 20);
}

/* The next n bytes; LZMA_OK: they are there. */
static lzma_ret fill(lzma_stream *s, void *out, size_t n)
{
    lzma_ret r = LZMA_OK;

    s->next_out = out;
    s->avail_out = n;
    while (r == LZMA_OK && s->avail_out > 0)
        r = lzma_code(s, LZMA_FINISH);
    return r == LZMA_STREAM_END && s->avail_out == 0 ? LZMA_OK : r;
}

static lzma_ret skip(lzma_stream *s, size_t n)
{
    char rest[4096];
    lzma_ret r = LZMA_OK;

    while (r == LZMA_OK && n > 0) {
        size_t now = n < sizeof rest ? n : sizeof rest;

        r = fill(s, rest, now);
        n -= now;
    }
    return r;
}

/* LZMA_OK: the stream ends here, and is whole. */
static lzma_ret end(lzma_stream *s)
{
    lzma_ret r = LZMA_OK;

    while (r == LZMA_OK)
        r = lzma_code(s, LZMA_FINISH);
    return r == LZMA_STREAM_END && s->avail_in == 0 ? LZMA_OK : LZMA_DATA_ERROR;
}

pl_status xz_unpack(const struct xz *x, size_t from, void *out, size_t n,
                    const char *what, pl_err *err)
{
    const lzma_allocator memory = {take, give, NULL};
    lzma_stream s = LZMA_STREAM_INIT;
    lzma_ret r = LZMA_DATA_ERROR;

    s.allocator = &memory;
    s.next_in = (const uint8_t *)x->packed;
    s.avail_in = x->n_packed;
    if (from <= x->n && n <= x->n - from)
        r = lzma_stream_decoder(&s, most_memory(x), 0);
    if (r == LZMA_OK)
        r = skip(&s, from);
    if (r == LZMA_OK)
        r = fill(&s, out, n);
    if (r == LZMA_OK && from + n == x->n)
        r = end(&s);
    lzma_end(&s);
    if (r == LZMA_MEM_ERROR)
        return err_no_memory(err, what);
    return r == LZMA_OK ? PL_OK
                        : err_set(err, PL_DEVICE,
                                  "%s is damaged in the library's file: "
                                  "install it again",
                                  what);
}
