/* Copies structs between two versions of the public header. New fields are only
 * added at the end, so the common fields are the first bytes of both. */
#include "base/sized.h"

#include "base/err.h"

#include <string.h>

/* Limits of valid sizes. Fields are aligned to at most a word, so sizes are
 * multiples of a word. The smallest struct has one field besides the size. A
 * size above MOST, larger than any struct of the header, means that the caller
 * did not set the size. */
enum {
    WORD = sizeof(size_t),
    LEAST = 2 * WORD,
    MOST = 1 << 16,
};

pl_status sized_read(void *own, size_t known, const void *given,
                     const char *name, const char *init, pl_err *err)
{
    const char *from = given;
    size_t size;

    memcpy(&size, given, sizeof size);
    if (size < LEAST || size > MOST || size % WORD != 0)
        return err_set(err, PL_BAD_ARGUMENT,
                       "%s: size is %zu; %s%sinitialize it with "
                       "{.size = sizeof(%s)}",
                       name, size, init ? init : "", init ? ", or " : "", name);
    for (size_t i = known; i < size; i++)
        if (from[i] != 0)
            return err_set(err, PL_UNSUPPORTED,
                           "%s: byte %zu is set, but this library (%s) knows "
                           "only %zu bytes: the program was built for a newer "
                           "version; link that one, or leave its new fields 0",
                           name, i, pl_version(), known);
    memcpy(own, given, size < known ? size : known);
    memcpy(own, &known, sizeof known);
    return PL_OK;
}

void sized_write(void *out, size_t size, const void *own, size_t known)
{
    size_t n = size < known ? size : known;

    if (!out)
        return;
    memcpy(out, own, n);
    memset((char *)out + n, 0, size - n);
}
