/* Writes the numbers of an interval as a GBNF expression; see decimal.h.
 * Negative and positive numbers are written separately, each as an interval of
 * magnitudes. Their digits are compared one by one with those of both bounds.
 * Once a digit differs from a bound's, the digits after it are free of that
 * bound. */
#include "grammar/decimal.h"

#include "base/numeral.h"
#include "base/wide_json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { USUAL_DIGITS = 18 };

/* ---- conversion of JSON numbers to decimals ------------------------------ */

/* Sets *d to the number whose text is `s`, such as -1.25e+30 or 0.5. Returns
 * false if it has too many digits. */
static bool from_text(struct decimal *d, const char *s)
{
    char digit[NUMERAL_SHORTEST];
    /* The number is 0.DIGITS times 10 to the power of `point`. */
    int n = 0, point = 0, end;
    bool whole = true;
    const char *c = s;

    for (; *c && *c != 'e'; c++) {
        whole &= *c != '.';
        if ((*c >= '1' && *c <= '9') || (*c == '0' && n > 0)) {
            digit[n++] = *c;
            point += whole;
        } else if (*c == '0') {
            point -= !whole;
        }
    }
    point += *c ? atoi(c + 1) : 0;
    while (n > 0 && digit[n - 1] == '0')
        n--;
    end = point > n ? point : n;
    if (point > DECIMAL_DIGITS || end - (point < 0 ? point : 0) > 100 ||
        n - point > DECIMAL_DIGITS)
        return false;
    *d = (struct decimal){.negative = s[0] == '-'};
    for (int i = 0; i < point; i++)
        d->whole[i] = i < n ? digit[i] : '0';
    if (point <= 0)
        d->whole[0] = '0';
    for (int i = point, k = 0; i < n; i++)
        d->part[k++] = i < 0 ? '0' : digit[i];
    if (n == 0)
        *d = (struct decimal){.whole = "0"};
    return true;
}

bool decimal_of(struct decimal *d, const json_t *v, int inward)
{
    const char *digits = wide_digits(v);
    char s[NUMERAL_SHORTEST];
    double x;

    *d = (struct decimal){0};
    if (digits) {
        d->negative = *digits == '-';
        digits += d->negative;
        if (strlen(digits) > DECIMAL_DIGITS)
            return false;
        strcpy(d->whole, digits);
        return true;
    }
    if (json_is_integer(v)) {
        long long n = (long long)json_integer_value(v);

        d->negative = n < 0;
        numeral_print(d->whole, sizeof d->whole, "%llu",
                      n < 0 ? 0 - (unsigned long long)n
                            : (unsigned long long)n);
        return true;
    }
    if (!json_is_real(v) || !isfinite(json_real_value(v)))
        return false;
    x = json_real_value(v);
    if (fabs(x) >= 0x1p63) {
        if (fabs(x) > 1e60)
            return false;
        x = nextafter(x, inward > 0 ? INFINITY : -INFINITY);
        numeral_print(d->whole, sizeof d->whole, "%.0f", fabs(x));
        d->negative = x < 0;
        return true;
    }
    return from_text(d, numeral_shortest(s, x));
}

static int compare_magnitudes(const struct decimal *a, const struct decimal *b)
{
    size_t n = strlen(a->whole), m = strlen(b->whole);
    int c = n != m ? (n > m ? 1 : -1) : strcmp(a->whole, b->whole);

    return c ? c : strcmp(a->part, b->part);
}

static bool is_zero(const struct decimal *d)
{
    return strcmp(d->whole, "0") == 0 && d->part[0] == '\0';
}

int decimal_compare(const struct decimal *a, const struct decimal *b)
{
    int c;

    if (is_zero(a) && is_zero(b))
        return 0;
    if (a->negative != b->negative)
        return a->negative ? -1 : 1;
    c = compare_magnitudes(a, b);
    return a->negative ? -c : c;
}

/* If `up`, adds 1 to the number whose digits are in `s`. Else subtracts 1 from
 * it; it must not be 0 then. */
static void step(char *s, bool up)
{
    size_t n = strlen(s), i = n;

    while (i > 0 && s[i - 1] == (up ? '9' : '0'))
        s[--i] = up ? '0' : '9';
    if (i > 0) {
        s[i - 1] = (char)(s[i - 1] + (up ? 1 : -1));
    } else {
        memmove(s + 1, s, n + 1);
        s[0] = '1';
    }
    if (s[0] == '0' && n > 1)
        memmove(s, s + 1, n);
}

/* ---- expressions for the numbers of an interval -------------------------- */

/* An interval of magnitudes of numbers; the fields are those of struct
 * interval. */
struct span_of {
    const struct decimal *low, *high;
    bool above, below;
    int places; /* 0 if all numbers are integers */
};

/* The digits of a number that are still to be written. `low` has the digits
 * that are left of the lower bound, if all digits so far are equal to the
 * bound's; NULL if any digits may follow. `high` likewise. Zeros follow the
 * digits of a bound. */
struct rest {
    const char *low, *high;
    bool above;
    size_t whole; /* number of digits before the point that are left */
    int places;   /* maximum number of digits after the point that are left */
};

static bool are_all(const char *s, const char *digit)
{
    return s[strspn(s, digit)] == '\0';
}

static const char *next_of(const char *s)
{
    return s && *s ? s + 1 : s;
}

static void put_rest(struct gbnf_text *t, const struct span_of *m,
                     struct rest r);

/* Appends an alternative: a digit from `first` to `last` and then the rest r.
 * Appends nothing if there is no such number, because a bound is excluded that
 * the number would equal. */
static void put_branch(struct gbnf_text *t, const struct span_of *m,
                       const char **before, char first, char last,
                       struct rest r)
{
    if (first > last || (r.high && m->below && are_all(r.high, "0")) ||
        (r.low && r.above && are_all(r.low, "0") && r.whole == 0 &&
         r.places == 0))
        return;
    gbnf_put(t, *before);
    if (first == last)
        gbnf_print(t, "\"%c\" ", first);
    else
        gbnf_print(t, "[%c-%c] ", first, last);
    put_rest(t, m, r);
    *before = " | ";
}

/* Appends an expression for the digits of r, a group of alternatives. */
static void put_next(struct gbnf_text *t, const struct span_of *m,
                     struct rest r)
{
    const char a = r.low && *r.low ? *r.low : '0';
    const char b = !r.high ? '9' : *r.high ? *r.high : '0';
    const char *low = next_of(r.low), *high = next_of(r.high), *before = "";
    bool by_low = low && (r.above || !are_all(low, "0"));
    bool by_high = high && (m->places > 0 || !are_all(high, "9"));

    r.whole -= r.whole > 0; /* else the caller has reduced r.places */
    gbnf_put(t, "(");
    if (low && high && a == b) {
        r.low = low;
        r.high = high;
        put_branch(t, m, &before, a, b, r);
    } else {
        r.low = low;
        r.high = NULL;
        if (by_low)
            put_branch(t, m, &before, a, a, r);
        r.low = NULL;
        put_branch(t, m, &before, (char)(a + by_low), (char)(b - by_high), r);
        r.high = high;
        if (by_high)
            put_branch(t, m, &before, b, b, r);
    }
    gbnf_put(t, ")");
}

/* Appends an expression for the rest of a number, r. */
static void put_rest(struct gbnf_text *t, const struct span_of *m,
                     struct rest r)
{
    const int k = r.places;
    bool stops;

    if (r.low && !r.above && are_all(r.low, "0"))
        r.low = NULL;
    if (r.whole > 0 && (r.low || r.high)) {
        put_next(t, m, r);
        return;
    }
    if (r.whole > 0)
        gbnf_print(t, "[0-9]{%zu} ", r.whole);
    if (m->places == 0)
        return;
    stops = !r.low;
    gbnf_put(t, stops ? "(" : "");
    gbnf_put(t, k == m->places ? "\".\" " : "");
    r.places--;
    if (!r.low && !r.high)
        gbnf_print(t, "[0-9]{%d,%d}", k > 0, k);
    else if (!r.low && are_all(r.high, "0"))
        gbnf_print(t, "\"0\"{1,%d}", k < 4 ? 4 : k);
    else if (!r.high && are_all(r.low, "0"))
        gbnf_print(t, "\"0\"{0,%d} [1-9] [0-9]{0,%d}", k > 8 ? 8 : k - 1,
                   k > 9 ? k - 9 : 0);
    else
        put_next(t, m, r);
    gbnf_put(t, stops ? ")?" : "");
}

/* Appends an expression for the numbers of an interval of magnitudes, which is
 * not empty. Without an upper bound, they have up to 18 digits before the
 * point. */
static void put_magnitudes(struct gbnf_text *t, const struct span_of *m)
{
    char low[2 * DECIMAL_DIGITS + 1], high[2 * DECIMAL_DIGITS + 1];
    const char *top = m->high ? high : NULL;
    size_t n = strlen(m->low->whole), last = USUAL_DIGITS;

    memcpy(low, m->low->whole, n);
    strcpy(low + n, m->low->part);
    if (top) {
        last = strlen(m->high->whole);
        memcpy(high, m->high->whole, last);
        strcpy(high + last, m->high->part);
    }
    if (last <= n) {
        put_rest(t, m, (struct rest){low, top, m->above, n, m->places});
        return;
    }
    /* Numbers of the length of the lower bound, longer ones, and those of the
     * length of the upper bound. */
    put_rest(t, m, (struct rest){low, NULL, m->above, n, m->places});
    if (last - n > 1) {
        gbnf_print(t, " | [1-9] [0-9]{%zu,%zu} ", n, last - 2);
        put_rest(t, m, (struct rest){.places = m->places});
    }
    if (top && m->below && top[0] == '1' && are_all(top + 1, "0"))
        return;
    gbnf_put(t, " | ");
    put_rest(t, m, (struct rest){"1", top, false, last, m->places});
}

/* Replaces the bounds of m by the smallest and the greatest integer in the
 * interval, which are stored in *low and *high. Returns false if the interval
 * contains no integer. */
static bool round_in(struct span_of *m, struct decimal *low,
                     struct decimal *high)
{
    *low = *m->low;
    if (low->part[0] || m->above)
        step(low->whole, true);
    low->part[0] = '\0';
    if (m->high) {
        *high = *m->high;
        if (!high->part[0] && m->below) {
            if (strcmp(high->whole, "0") == 0)
                return false;
            step(high->whole, false);
        }
        high->part[0] = '\0';
    }
    *m = (struct span_of){.low = low, .high = m->high ? high : NULL};
    return !m->high || compare_magnitudes(low, high) <= 0;
}

/* Appends an expression for the positive or the negative numbers whose
 * magnitudes are in the interval m. `sign` is the GBNF expression that precedes
 * the digits. If `more`, writes " | " first, because other alternatives
 * precede. Returns false, without writing, if there are no such numbers. */
static bool put_signed(struct gbnf_text *t, struct span_of m, bool integer,
                       const char *sign, bool more)
{
    struct decimal low, high, zero = {.whole = "0"};
    int c = -1;

    m.low = m.low ? m.low : &zero;
    if (integer && !round_in(&m, &low, &high))
        return false;
    if (m.high)
        c = compare_magnitudes(m.low, m.high);
    if (c > 0 || (c == 0 && (m.above || m.below)))
        return false;
    gbnf_print(t, "%s%s(", more ? " | " : "", sign);
    put_magnitudes(t, &m);
    gbnf_put(t, ")");
    return true;
}

static int longest(const struct decimal *d)
{
    return d ? (int)strlen(d->part) + 1 : 1;
}

bool decimal_put(struct gbnf_text *t, const struct interval *in)
{
    const struct decimal *low = in->low, *high = in->high;
    struct decimal zero = {.whole = "0"};
    /* The intervals of the magnitudes of the positive and of the negative
     * numbers. The magnitude of a negative number is limited by the lower
     * bound. */
    struct span_of plus = {.high = high, .below = in->below},
                   minus = {.high = low, .below = in->above};
    size_t n = t->n;
    bool any = false;

    plus.places = in->places;
    if (!in->exact &&
        (plus.places < longest(low) || plus.places < longest(high)))
        plus.places =
            longest(low) > longest(high) ? longest(low) : longest(high);
    minus.places = plus.places;
    if (low && !low->negative) {
        plus.low = low;
        plus.above = in->above;
    }
    minus.low = &zero;
    minus.above = true;
    if (high && (high->negative || is_zero(high))) {
        minus.low = high;
        minus.above = in->below || is_zero(high);
    }
    gbnf_put(t, "(");
    if (!low || (low->negative && !is_zero(low)))
        any = put_signed(t, minus, in->integer, "\"-\" ", false);
    if (!high || !high->negative || is_zero(high))
        any |= put_signed(t, plus, in->integer, "", any);
    gbnf_put(t, ")");
    if (!any && t->s)
        t->s[t->n = n] = '\0';
    return any;
}
