/* Any bytes as a file of importances: they are rejected with a message, or each
 * entry has finite values and is found by its name. */
#include "quantize/imatrix.h"

#include <math.h>
#include <string.h>

int fuzz_imatrix(const uint8_t *data, size_t n);

static void require(bool ok)
{
    if (!ok)
        __builtin_trap();
}

int fuzz_imatrix(const uint8_t *data, size_t n)
{
    struct imatrix *m;
    pl_err err;
    pl_status s = imatrix_read(&m, data, n, "file", &err);

    if (s != PL_OK) {
        require(m == NULL && strstr(err.message, "file: "));
        return 0;
    }
    require(imatrix_count(m) > 0 && imatrix_chunks(m) >= 0);
    for (int64_t i = 0; i < imatrix_count(m); i++) {
        const struct imatrix_entry *e = imatrix_at(m, i);

        require(e->n > 0 && imatrix_find(m, e->name) == e);
        for (int64_t k = 0; k < e->n; k++)
            require(isfinite(e->value[k]) && e->value[k] >= 0);
    }
    imatrix_free(m);
    return 0;
}
