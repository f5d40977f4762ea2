/* Any bytes as a receipt, or as two on a line each: they are rejected by name,
 * or the receipt gives options and equals itself, and two receipts agree or
 * differ in either order. */
#include "server/jws.h"

#include "pl_receipt.h"

#include <stdlib.h>
#include <string.h>

int fuzz_receipt(const uint8_t *data, size_t n);

static void require(bool ok)
{
    if (!ok)
        __builtin_trap();
}

static void count(void *user, const char *text, size_t len)
{
    require(len > 0 && text[len - 1] == '\n');
    ++*(size_t *)user;
}

/* Compares two receipts with pl_receipt_diff. Returns true if they agree; the
 * difference must then have no line. */
static bool agree(const pl_receipt *a, const pl_receipt *b)
{
    size_t n_line = 0;
    bool same;

    require(pl_receipt_diff(a, b, &same, count, &n_line, NULL) == PL_OK);
    require(same == (n_line == 0));
    return same;
}

/* Parses a receipt. Returns NULL if it was rejected. */
static pl_receipt *parsed(const char *text, size_t n)
{
    pl_options o = {.size = sizeof o};
    pl_receipt *r;
    pl_err err;
    pl_status s = pl_receipt_parse(&r, text, n, &err);

    require(s == PL_OK || s == PL_NO_MEMORY ||
            ((s == PL_BAD_FILE || s == PL_UNSUPPORTED) &&
             strstr(err.message, "receipt")));
    require((s == PL_OK) == (r != NULL));
    if (s != PL_OK)
        return NULL;
    s = pl_receipt_options(r, &o, &err);
    require(s == PL_OK || s == PL_BAD_FILE || s == PL_UNSUPPORTED ||
            s == PL_NO_MEMORY);
    require(s != PL_OK ||
            (o.n_ranks >= 1 && o.n_ranks <= PL_MAX_RANKS && o.rank_split));
    require((size_t)pl_receipt_n_output(r) <= n);
    require(agree(r, r));
    return r;
}

/* Opens the text as a signed one, of a key that nobody knows. */
static void open_signed(const char *text, size_t n)
{
    json_t *j = json_loadb(text, n, 0, NULL);
    struct jws_text out;

    jws_open(&out, j, NULL);
    require(out.state == JWS_NONE || out.state == JWS_MALFORMED ||
            out.state == JWS_UNKNOWN);
    if (out.text)
        pl_receipt_free(parsed(out.text, out.len));
    free(out.text);
    json_decref(j);
}

int fuzz_receipt(const uint8_t *data, size_t n)
{
    const char *text = (const char *)data;
    const char *line = n > 0 ? memchr(text, '\n', n) : NULL;
    size_t first = line ? (size_t)(line - text) : n;
    pl_receipt *a = parsed(text, first);
    pl_receipt *b = line ? parsed(line + 1, n - first - 1) : NULL;

    if (a && b)
        require(agree(a, b) == agree(b, a));
    pl_receipt_free(a);
    pl_receipt_free(b);
    open_signed(text, n);
    return 0;
}
