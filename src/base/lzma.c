/* A decoder for LZMA2. The output buffer is also the dictionary. It follows the
 * LZMA specification by Igor Pavlov (LZMA SDK, lzma-specification.txt) and that
 * of the LZMA2 filter of the .xz format. */
#include "base/lzma.h"

#include <stdint.h>
#include <string.h>

enum {
    STATES = 12,      /* number of states: combinations of the types of the last
                         few symbols */
    POS_STATES = 16,  /* maximum number of position states, 2^pb */
    LITERALS = 0x300, /* number of probabilities of one literal context */
    /* maximum number of literal contexts, 2^(lc + lp), in LZMA2 */
    CONTEXTS = 16,
    SLOTS = 64,
    /* the lower bits of a distance have adaptive probabilities if its slot is
     * FIRST_MODEL to END_MODEL - 1 */
    FIRST_MODEL = 4,
    END_MODEL = 14,
    LEAST = 2, /* length of the shortest match in bytes */
};

typedef uint16_t prob; /* probability that a bit is 0, times 2048 */

struct length {
    prob choice, choice2;
    prob low[POS_STATES][8], mid[POS_STATES][8], high[256];
};

/* The adaptive probabilities. reset_state treats the struct as one array. */
struct model {
    prob match[STATES][POS_STATES];
    prob rep[STATES], rep0[STATES], rep1[STATES], rep2[STATES];
    prob rep0_long[STATES][POS_STATES];
    prob slot[4][SLOTS];
    prob special[1 + (1 << (END_MODEL / 2)) - END_MODEL];
    prob align[16];
    struct length match_len, rep_len;
    prob literal[CONTEXTS * LITERALS];
};

struct decoder {
    const uint8_t *in, *end;
    uint8_t *out;
    size_t at, n; /* number of output bytes written so far, and number requested
                     by the caller */
    size_t base;  /* offset in bytes in `out` at which the dictionary begins */
    uint32_t range, code;
    unsigned lc, lp, pb;
    unsigned state;
    uint32_t rep[4]; /* distances in bytes of the last four matches, minus 1 */
    bool whole;      /* the caller requested all of the output, not only its
                        beginning */
    bool damaged;
    bool has_state, has_props, has_base;
    struct model model;
};

/* ---- decoding of single bits --------------------------------------------- */

static unsigned next_byte(struct decoder *d)
{
    if (d->in < d->end)
        return *d->in++;
    d->damaged = true;
    return 0;
}

static void normalise(struct decoder *d)
{
    if (d->range < 1u << 24) {
        d->range <<= 8;
        d->code = d->code << 8 | next_byte(d);
    }
}

static unsigned bit(struct decoder *d, prob *p)
{
    uint32_t bound;

    normalise(d);
    bound = (d->range >> 11) * *p;
    if (d->code < bound) {
        d->range = bound;
        *p = (prob)(*p + ((2048 - *p) >> 5));
        return 0;
    }
    d->range -= bound;
    d->code -= bound;
    *p = (prob)(*p - (*p >> 5));
    return 1;
}

/* Decodes n bits, the highest first, with a tree of 2^n probabilities. */
static unsigned tree(struct decoder *d, prob *p, int n)
{
    unsigned m = 1;

    for (int i = 0; i < n; i++)
        m = m << 1 | bit(d, p + m);
    return m - (1u << n);
}

/* Decodes n bits, the lowest first, with a tree of probabilities whose root is
 * p[0]. */
static unsigned reverse_tree(struct decoder *d, prob *p, int n)
{
    unsigned m = 1, v = 0;

    for (int i = 0; i < n; i++) {
        unsigned b = bit(d, p + m - 1);

        m = m << 1 | b;
        v |= b << i;
    }
    return v;
}

/* Decodes n bits with equal probabilities. */
static uint32_t even_bits(struct decoder *d, int n)
{
    uint32_t v = 0;

    for (int i = 0; i < n; i++) {
        normalise(d);
        d->range >>= 1;
        v <<= 1;
        if (d->code >= d->range) {
            d->code -= d->range;
            v |= 1;
        }
    }
    return v;
}

/* ---- decoding of literals and matches ------------------------------------ */

static uint8_t behind(const struct decoder *d, uint32_t distance)
{
    return d->at - d->base > distance ? d->out[d->at - distance - 1] : 0;
}

static void literal(struct decoder *d)
{
    unsigned low = (unsigned)(d->at - d->base) & ((1u << d->lp) - 1);
    unsigned context = (low << d->lc) + (behind(d, 0) >> (8 - d->lc));
    prob *p = d->model.literal + LITERALS * context;
    unsigned m = 1;

    /* If a match precedes this literal, the probabilities also depend on the
     * byte `other`, which follows the bytes that the match copied. */
    if (d->state >= 7) {
        unsigned other = behind(d, d->rep[0]);

        do {
            unsigned was = other >> 7 & 1, b;

            other <<= 1;
            b = bit(d, p + ((1 + was) << 8) + m);
            m = m << 1 | b;
            if (b != was)
                break;
        } while (m < 0x100);
    }
    while (m < 0x100)
        m = m << 1 | bit(d, p + m);
    d->out[d->at++] = (uint8_t)m;
    d->state = d->state < 4 ? 0 : d->state < 10 ? d->state - 3 : d->state - 6;
}

static unsigned length(struct decoder *d, struct length *l, unsigned pos)
{
    if (!bit(d, &l->choice))
        return LEAST + tree(d, l->low[pos], 3);
    if (!bit(d, &l->choice2))
        return LEAST + 8 + tree(d, l->mid[pos], 3);
    return LEAST + 16 + tree(d, l->high, 8);
}

static uint32_t distance(struct decoder *d, unsigned len)
{
    unsigned of = len - LEAST < 3 ? len - LEAST : 3;
    unsigned slot = tree(d, d->model.slot[of], 6);
    int n = (int)(slot >> 1) - 1;
    uint32_t v;

    if (slot < FIRST_MODEL)
        return slot;
    v = (2 | (slot & 1)) << n;
    if (slot < END_MODEL)
        return v + reverse_tree(d, d->model.special + v - slot, n);
    v += even_bits(d, n - 4) << 4;
    return v + reverse_tree(d, d->model.align, 4);
}

/* Decodes which of the last four distances is used again, and moves it to the
 * front of d->rep. Returns true if the match is one byte long. */
static bool repeat(struct decoder *d, unsigned pos)
{
    struct model *m = &d->model;
    unsigned which = 0;
    uint32_t v;

    if (!bit(d, &m->rep0[d->state])) {
        if (!bit(d, &m->rep0_long[d->state][pos]))
            return true;
    } else if (!bit(d, &m->rep1[d->state])) {
        which = 1;
    } else {
        which = 2 + bit(d, &m->rep2[d->state]);
    }
    v = d->rep[which];
    memmove(d->rep + 1, d->rep, which * sizeof *d->rep);
    d->rep[0] = v;
    return false;
}

/* Decodes a match: its distance becomes d->rep[0]. Returns its length. */
static unsigned match(struct decoder *d, unsigned pos)
{
    unsigned len;

    if (bit(d, &d->model.rep[d->state])) {
        if (repeat(d, pos)) {
            d->state = d->state < 7 ? 9 : 11;
            return 1;
        }
        len = length(d, &d->model.rep_len, pos);
        d->state = d->state < 7 ? 8 : 11;
        return len;
    }
    len = length(d, &d->model.match_len, pos);
    memmove(d->rep + 1, d->rep, 3 * sizeof *d->rep);
    d->rep[0] = distance(d, len);
    d->state = d->state < 7 ? 7 : 10;
    return len;
}

/* ---- decoding of the chunks of LZMA2 ------------------------------------- */

static void reset_state(struct decoder *d)
{
    prob *p = (prob *)&d->model;

    for (size_t i = 0; i < sizeof d->model / sizeof *p; i++)
        p[i] = 1024;
    d->state = 0;
    memset(d->rep, 0, sizeof d->rep);
    d->has_state = true;
}

static bool read_props(struct decoder *d)
{
    unsigned v = next_byte(d);

    d->lc = v % 9;
    d->lp = v / 9 % 5;
    d->pb = v / 45;
    d->has_props = v < 9 * 5 * 5 && d->lc + d->lp <= 4;
    return d->has_props;
}

static size_t read_size(struct decoder *d)
{
    size_t high = next_byte(d);

    return (high << 8) + next_byte(d) + 1;
}

/* Decodes a chunk of `left` bytes, whose packed data ends at `end`. Stops
 * earlier if fewer bytes are requested. Returns false if the data is
 * damaged. */
static bool symbols(struct decoder *d, size_t left, const uint8_t *end)
{
    unsigned first = next_byte(d);

    d->range = UINT32_MAX;
    for (int i = 0; i < 4; i++)
        d->code = d->code << 8 | next_byte(d);
    while (first == 0 && !d->damaged && left > 0) {
        unsigned pos = (unsigned)(d->at - d->base) & ((1u << d->pb) - 1);
        unsigned len = 1;

        if (d->at == d->n)
            return !d->whole;
        if (!bit(d, &d->model.match[d->state][pos])) {
            literal(d);
        } else {
            len = match(d, pos);
            if (d->rep[0] >= d->at - d->base || len > left ||
                (d->whole && len > d->n - d->at))
                return false;
            for (unsigned i = 0; i < len && d->at < d->n; i++, d->at++)
                d->out[d->at] = d->out[d->at - d->rep[0] - 1];
        }
        left -= len;
    }
    normalise(d);
    return !d->damaged && left == 0 && d->code == 0 && d->in == end;
}

static bool packed_chunk(struct decoder *d, unsigned control)
{
    const uint8_t *all = d->end;
    size_t left = (size_t)(control & 31) << 16, n;
    unsigned resets = control >> 5 & 3;
    bool ok;

    left += read_size(d);
    n = read_size(d);
    if (resets == 3)
        d->base = d->at;
    d->has_base |= resets == 3;
    if (resets >= 2 && !read_props(d))
        return false;
    if (resets >= 1)
        reset_state(d);
    if (!d->has_base || !d->has_props || !d->has_state ||
        n > (size_t)(d->end - d->in))
        return false;
    d->end = d->in + n;
    ok = symbols(d, left, d->end);
    d->end = all;
    return ok;
}

static bool plain_chunk(struct decoder *d, unsigned control)
{
    size_t n = read_size(d);

    if (control == 1)
        d->base = d->at;
    d->has_base |= control == 1;
    d->has_state = false;
    if (!d->has_base || n > (size_t)(d->end - d->in))
        return false;
    if (n > d->n - d->at && d->whole)
        return false;
    if (n > d->n - d->at)
        n = d->n - d->at;
    memcpy(d->out + d->at, d->in, n);
    d->at += n;
    d->in += n;
    return true;
}

bool lzma_unpack(const struct lzma *x, void *out, size_t n)
{
    struct decoder d;
    unsigned control = 0;

    memset(&d, 0, offsetof(struct decoder, model));
    d.in = (const uint8_t *)x->packed;
    d.end = d.in + x->n_packed;
    d.out = out;
    d.n = n;
    d.whole = n == x->n;
    if (n > x->n)
        return false;
    while (!d.damaged && (d.at < n || d.whole)) {
        bool ok = true;

        control = next_byte(&d);
        if (d.damaged || control == 0)
            break;
        ok = control >= 128 ? packed_chunk(&d, control)
                            : control <= 2 && plain_chunk(&d, control);
        if (!ok)
            return false;
    }
    if (d.whole && (control != 0 || d.in != d.end))
        return false;
    return !d.damaged && d.at == n;
}
