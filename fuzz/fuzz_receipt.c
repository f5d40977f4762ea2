/* Any bytes as a receipt: they are rejected by name, or the receipt gives
 * options, and equals itself. */
#include "pl_receipt.h"

#include <string.h>

int fuzz_receipt(const uint8_t *data, size_t n);

static void require(bool ok)
{
    if (!ok)
        __builtin_trap();
}

static void count(void *user, const char *text, size_t len)
{
    (void)text;
    *(size_t *)user += len;
}

int fuzz_receipt(const uint8_t *data, size_t n)
{
    pl_options o = {.size = sizeof o};
    size_t written = 0;
    pl_receipt *r;
    bool same;
    pl_err err;
    pl_status s = pl_receipt_parse(&r, (const char *)data, n, &err);

    require(s == PL_OK || s == PL_NO_MEMORY ||
            ((s == PL_BAD_FILE || s == PL_UNSUPPORTED) &&
             strstr(err.message, "receipt")));
    if (s != PL_OK)
        return 0;
    s = pl_receipt_options(r, &o, &err);
    require(s == PL_OK || s == PL_BAD_FILE || s == PL_UNSUPPORTED ||
            s == PL_NO_MEMORY);
    require(s != PL_OK ||
            (o.n_ranks >= 1 && o.n_ranks <= PL_MAX_RANKS && o.rank_split));
    require(pl_receipt_diff(r, r, &same, count, &written, &err) == PL_OK);
    require(same && written == 0);
    pl_receipt_free(r);
    return 0;
}
