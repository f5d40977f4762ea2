/* See xz.h. */
#include "base/xz.h"

#include <lzma.h>
#include <stdint.h>

pl_status xz_unpack(const struct xz *x, void *out, size_t n)
{
    lzma_stream s = LZMA_STREAM_INIT;
    const bool whole = n == x->n;
    bool done;
    lzma_ret r;

    if (n > x->n)
        return PL_BAD_FILE;
    r = lzma_stream_decoder(&s, UINT64_MAX, 0);
    s.next_in = (const uint8_t *)x->packed;
    s.avail_in = x->n_packed;
    s.next_out = out;
    s.avail_out = n;
    /* The checksums stand behind the last byte. */
    while (r == LZMA_OK && (whole || s.avail_out > 0))
        r = lzma_code(&s, LZMA_FINISH);
    done = s.avail_out == 0 &&
           (whole ? r == LZMA_STREAM_END && s.avail_in == 0 : r == LZMA_OK);
    lzma_end(&s);
    return done ? PL_OK : r == LZMA_MEM_ERROR ? PL_NO_MEMORY : PL_BAD_FILE;
}
