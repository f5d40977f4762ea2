/* Codes of a deflate stream are canonical: those of a length are consecutive
 * numbers, in the order of their symbols. Short ones are looked up; of a long
 * one, bit by bit, the number is compared with the first of its length. Source:
 * RFC 1951. */
#include "base/inflate.h"

#include <stdint.h>
#include <string.h>

enum {
    MAX_BITS = 15,
    N_LITERAL = 288,
    N_DISTANCE = 32,
    N_LENGTH = 19, /* symbols that describe the lengths of others */
    END = 256,
    FAST = 10 /* bits of codes that are looked up */
};

struct stream {
    const unsigned char *in;
    size_t at, n;  /* bytes of in */
    unsigned bits; /* taken from in, not yet used */
    int n_bit;
    unsigned char *out;
    size_t filled, room;
    bool bad;
};

struct code {
    uint16_t count[MAX_BITS + 1]; /* symbols whose codes have so many bits */
    uint16_t symbol[N_LITERAL];   /* in the order of their codes */
    uint16_t fast[1 << FAST];     /* by the next bits: symbol * 16 + length of
                                     its code, 0: it is longer */
};

static unsigned take(struct stream *s, int n)
{
    unsigned v;

    while (s->n_bit < n) {
        if (s->at == s->n) {
            s->bad = true;
            return 0;
        }
        s->bits |= (unsigned)s->in[s->at++] << s->n_bit;
        s->n_bit += 8;
    }
    v = s->bits & ((1u << n) - 1);
    s->bits >>= n;
    s->n_bit -= n;
    return v;
}

/* The table of short codes, from what is known of all. */
static void make_fast(struct code *c)
{
    int code = 0, index = 0;

    memset(c->fast, 0, sizeof c->fast);
    for (int b = 1; b <= FAST; b++, code *= 2)
        for (int i = 0; i < c->count[b]; i++, code++, index++) {
            unsigned turned = 0; /* bits come from the highest on */

            for (int j = 0; j < b; j++)
                turned |= (unsigned)(code >> j & 1) << (b - 1 - j);
            for (unsigned at = turned; at < 1u << FAST; at += 1u << b)
                c->fast[at] = (uint16_t)(c->symbol[index] * 16 + b);
        }
}

/* From the lengths of n symbols' codes, 0: none. False: more codes than there
 * can be. */
static bool make_code(struct code *c, const unsigned char *length, int n)
{
    int start[MAX_BITS + 2] = {0}, left = 1;

    memset(c->count, 0, sizeof c->count);
    for (int i = 0; i < n; i++)
        c->count[length[i]]++;
    c->count[0] = 0;
    for (int b = 1; b <= MAX_BITS; b++) {
        left = left * 2 - c->count[b];
        if (left < 0)
            return false;
        start[b + 1] = start[b] + c->count[b];
    }
    for (int i = 0; i < n; i++)
        if (length[i])
            c->symbol[start[length[i]]++] = (uint16_t)i;
    make_fast(c);
    return true;
}

static int take_symbol(struct stream *s, const struct code *c)
{
    int code = 0, first = 0, index = 0, known;

    while (s->n_bit < FAST && s->at < s->n) {
        s->bits |= (unsigned)s->in[s->at++] << s->n_bit;
        s->n_bit += 8;
    }
    known = c->fast[s->bits & ((1u << FAST) - 1)];
    if (known && known % 16 <= s->n_bit) {
        s->bits >>= known % 16;
        s->n_bit -= known % 16;
        return known / 16;
    }
    for (int b = 1; b <= MAX_BITS && !s->bad; b++) {
        code |= (int)take(s, 1);
        if (code - first < c->count[b])
            return c->symbol[index + code - first];
        index += c->count[b];
        first = (first + c->count[b]) * 2;
        code *= 2;
    }
    s->bad = true;
    return END;
}

static void put(struct stream *s, unsigned char byte)
{
    if (s->filled == s->room)
        s->bad = true;
    else
        s->out[s->filled++] = byte;
}

static void repeat(struct stream *s, size_t distance, unsigned length)
{
    if (distance > s->filled) {
        s->bad = true;
        return;
    }
    for (unsigned i = 0; i < length; i++)
        put(s, s->out[s->filled - distance]);
}

/* Lengths from 3 on: eight of one step, then four each of twice the step; the
 * last is 258 itself. */
static unsigned take_length(struct stream *s, int symbol)
{
    int i = symbol - END - 1, extra = i < 8 ? 0 : (i - 4) / 4;

    if (i == 28)
        return 258;
    if (i > 28)
        s->bad = true;
    if (i < 8)
        return 3 + (unsigned)i;
    return 3 + (4 + (unsigned)i % 4) * (1u << extra) + take(s, extra);
}

/* Distances from 1 on, in the same way with two for four. */
static size_t take_distance(struct stream *s, int symbol)
{
    int extra = symbol < 4 ? 0 : (symbol - 2) / 2;

    if (symbol > 29)
        s->bad = true;
    if (symbol < 4)
        return 1 + (size_t)symbol;
    return 1 + ((size_t)2 + (size_t)(symbol % 2)) * ((size_t)1 << extra) +
           take(s, extra);
}

static void take_block(struct stream *s, const struct code *literal,
                       const struct code *distance)
{
    while (!s->bad) {
        int symbol = take_symbol(s, literal);
        unsigned length;

        if (symbol == END)
            return;
        if (symbol < END) {
            put(s, (unsigned char)symbol);
            continue;
        }
        length = take_length(s, symbol);
        if (!s->bad)
            symbol = take_symbol(s, distance);
        if (!s->bad)
            repeat(s, take_distance(s, symbol), length);
    }
}

static void take_stored(struct stream *s)
{
    unsigned n, check;

    s->at -= (size_t)s->n_bit / 8; /* whole bytes that were taken ahead */
    s->bits = 0;
    s->n_bit = 0;
    n = take(s, 16);
    check = take(s, 16);
    if (s->bad || n != (~check & 0xffff) || n > s->n - s->at) {
        s->bad = true;
        return;
    }
    while (n-- > 0)
        put(s, s->in[s->at++]);
}

static void take_fixed(struct stream *s)
{
    unsigned char length[N_LITERAL];
    struct code literal, distance;

    for (int i = 0; i < N_LITERAL; i++)
        length[i] = i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : 8;
    make_code(&literal, length, N_LITERAL);
    memset(length, 5, N_DISTANCE);
    make_code(&distance, length, N_DISTANCE);
    take_block(s, &literal, &distance);
}

/* Lengths of n codes, run by run. */
static void take_lengths(struct stream *s, const struct code *c,
                         unsigned char *length, int n)
{
    for (int i = 0; i < n && !s->bad;) {
        int symbol = take_symbol(s, c), count = 1;
        unsigned char value = (unsigned char)symbol;

        if (symbol == 16) {
            s->bad |= i == 0;
            value = i > 0 ? length[i - 1] : 0;
            count = 3 + (int)take(s, 2);
        } else if (symbol >= 17) {
            value = 0;
            count = symbol == 17 ? 3 + (int)take(s, 3) : 11 + (int)take(s, 7);
        }
        s->bad |= count > n - i;
        for (; count > 0 && !s->bad; count--)
            length[i++] = value;
    }
}

static void take_dynamic(struct stream *s)
{
    static const unsigned char order[N_LENGTH] = {
        16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15};
    unsigned char length[N_LITERAL + N_DISTANCE] = {0};
    struct code code, literal, distance;
    int n_literal = 257 + (int)take(s, 5), n_distance = 1 + (int)take(s, 5),
        n_length = 4 + (int)take(s, 4);

    for (int i = 0; i < n_length; i++)
        length[order[i]] = (unsigned char)take(s, 3);
    if (s->bad || n_literal > N_LITERAL ||
        !make_code(&code, length, N_LENGTH)) {
        s->bad = true;
        return;
    }
    memset(length, 0, sizeof length);
    take_lengths(s, &code, length, n_literal + n_distance);
    if (s->bad || !make_code(&literal, length, n_literal) ||
        !make_code(&distance, length + n_literal, n_distance))
        s->bad = true;
    else
        take_block(s, &literal, &distance);
}

bool inflate_all(const void *packed, size_t n_packed, void *out, size_t n)
{
    struct stream s = {.in = packed, .n = n_packed, .out = out, .room = n};
    bool last = false;

    while (!last && !s.bad) {
        last = take(&s, 1);
        switch (take(&s, 2)) {
        case 0:
            take_stored(&s);
            break;
        case 1:
            take_fixed(&s);
            break;
        case 2:
            take_dynamic(&s);
            break;
        default:
            s.bad = true;
        }
    }
    return !s.bad && s.filled == n;
}
