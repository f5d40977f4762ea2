/* Writes the numbers of an interval as a GBNF expression; see decimal.h.
 * Negative and positive numbers are written separately, each as an interval of
 * magnitudes. The numbers of such an interval are divided into those whose
 * digits before the point are the lower bound's, the upper bound's, and others
 * between them. If they are a bound's, the digits after the point are compared
 * one by one with the bound's. */
#include "grammar/decimal.h"

#include "base/numeral.h"

#include <math.h>
#include <string.h>

enum { USUAL_DIGITS = 18 };

static const char zeros[] =
    "00000000000000000000000000000000000000000000000000000000000000000";
static const char nines[] =
    "99999999999999999999999999999999999999999999999999999999999999999";

/* Sets out[0 .. n) to `digits`, filled up with the character `more`. */
static void pad(char *out, const char *digits, char more, size_t n)
{
    size_t len = strlen(digits);

    memset(out, more, n);
    memcpy(out, digits, len < n ? len : n);
    out[n] = '\0';
}

/* ---- conversion of JSON numbers to decimals ------------------------------ */

/* Writes the shortest text in exponent notation that is read as the double
 * x. */
static void shortest(char *out, size_t size, double x)
{
    for (int n = 1; n <= 17; n++) {
        numeral_print(out, size, "%.*e", n - 1, x);
        if (numeral_double(out, NULL) == x)
            return;
    }
}

/* Sets *d to the digits of a text such as -1.25e+03. */
static bool from_exponent(struct decimal *d, const char *s)
{
    char digit[32];
    int n = 0, point, exponent = 0, end;
    const char *e = strchr(s, 'e');

    for (const char *c = s; *c && c != e && n < 30; c++)
        if (*c >= '0' && *c <= '9')
            digit[n++] = *c;
    for (const char *c = e ? e + 2 : ""; *c >= '0' && *c <= '9'; c++)
        exponent = 10 * exponent + (*c - '0');
    point = 1 + (e && e[1] == '-' ? -exponent : exponent);
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
    char s[64];
    double x;

    *d = (struct decimal){0};
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
        numeral_print(s, sizeof s, "%.0f", fabs(x));
        d->negative = x < 0;
        memcpy(d->whole, s, strlen(s) + 1);
        return true;
    }
    shortest(s, sizeof s, x);
    return from_exponent(d, s);
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

/* ---- expressions for the digits before the point ------------------------- */

static void put_digits(struct gbnf_text *t, char first, char last)
{
    if (first == last)
        gbnf_print(t, "\"%c\"", first);
    else
        gbnf_print(t, "[%c-%c]", first, last);
}

static void put_same_length(struct gbnf_text *t, const char *lo, const char *hi,
                            size_t n);

/* Appends an expression for the digit `digit` followed by n more digits that
 * form a number from lo to hi. */
static void put_headed(struct gbnf_text *t, char digit, const char *lo,
                       const char *hi, size_t n)
{
    put_digits(t, digit, digit);
    gbnf_put(t, " (");
    put_same_length(t, lo, hi, n);
    gbnf_put(t, ")");
}

/* Appends an expression for the numbers of exactly n digits from lo to hi,
 * which may begin with zeros. */
static void put_same_length(struct gbnf_text *t, const char *lo, const char *hi,
                            size_t n)
{
    bool low = memcmp(lo + 1, zeros, n - 1) != 0;
    bool high = memcmp(hi + 1, nines, n - 1) != 0;
    char first = (char)(lo[0] + low), last = (char)(hi[0] - high);
    const char *before = "";

    if (lo[0] == hi[0] && (low || high)) {
        put_headed(t, lo[0], lo + 1, hi + 1, n - 1);
        return;
    }
    if (low) {
        put_headed(t, lo[0], lo + 1, nines, n - 1);
        before = " | ";
    }
    if (first <= last) {
        gbnf_put(t, before);
        put_digits(t, first, last);
        if (n > 1)
            gbnf_print(t, " [0-9]{%zu}", n - 1);
        before = " | ";
    }
    if (high) {
        gbnf_put(t, before);
        put_headed(t, hi[0], zeros, hi + 1, n - 1);
    }
}

/* Appends an expression for the integers from a to b, a <= b. `a` and `b` are
 * texts of digits. */
static void put_integers(struct gbnf_text *t, const char *a, const char *b)
{
    size_t n = strlen(a), last = strlen(b);
    char lo[DECIMAL_DIGITS + 2], hi[DECIMAL_DIGITS + 2];

    for (size_t i = n; i <= last; i++) {
        pad(lo, "1", '0', i);
        pad(hi, "", '9', i);
        gbnf_put(t, i > n ? " | " : "");
        put_same_length(t, i == n ? a : lo, i == last ? b : hi, i);
    }
}

/* ---- expressions for the digits after the point -------------------------- */

static bool are_zeros(const char *s)
{
    return s[strspn(s, "0")] == '\0';
}

/* Appends an expression for the next digits after the point, at most k, of
 * numbers above a lower bound. The digits so far equal the bound's; `low` has
 * the bound's digits from here on. The number must be greater than the bound if
 * `above`; else it may also equal the bound, and if `low` is all zeros no digit
 * need follow. */
static void put_greater(struct gbnf_text *t, const char *low, bool above, int k)
{
    const char *before = "";

    if (are_zeros(low)) {
        if (above)
            gbnf_print(t, "\"0\"{0,%d} [1-9] [0-9]{0,%d}", k > 8 ? 8 : k - 1,
                       k > 9 ? k - 9 : 0);
        else
            gbnf_print(t, "[0-9]{0,%d}", k);
        return;
    }
    gbnf_put(t, "(");
    if (low[0] < '9') {
        put_digits(t, (char)(low[0] + 1), '9');
        gbnf_print(t, " [0-9]{0,%d}", k - 1);
        before = " | ";
    }
    if (k > 1 || !above || !are_zeros(low + 1)) {
        gbnf_print(t, "%s\"%c\" ", before, low[0]);
        put_greater(t, low + 1, above, k - 1);
    }
    gbnf_put(t, ")");
}

/* Appends an expression for the next digits after the point, at most k, of
 * numbers below an upper bound. The digits so far equal the bound's; `high` has
 * the bound's digits from here on. The number must be less than the bound if
 * `below`; else it may also equal the bound. No digit need follow, because a
 * shorter number is not greater. */
static void put_less(struct gbnf_text *t, const char *high, bool below, int k)
{
    const char *before = "";

    if (are_zeros(high)) {
        gbnf_print(t, "\"0\"{0,%d}", k);
        return;
    }
    gbnf_put(t, "(");
    if (high[0] > '0') {
        put_digits(t, '0', (char)(high[0] - 1));
        gbnf_print(t, " [0-9]{0,%d}", k - 1);
        before = " | ";
    }
    if (!below || !are_zeros(high + 1)) {
        gbnf_print(t, "%s\"%c\" ", before, high[0]);
        put_less(t, high + 1, below, k - 1);
    }
    gbnf_put(t, ")?");
}

/* Appends an expression for the next digits after the point, at most k, of
 * numbers between two bounds. The digits so far equal those of both bounds.
 * `low` and `high` have the bounds' digits from here on, as many of each, and
 * low < high. The bounds themselves are excluded if `above` and `below` are
 * set. If `first`, at least one digit must follow, because the point was just
 * written. */
static void put_between(struct gbnf_text *t, const char *low, const char *high,
                        bool above, bool below, int k, bool first)
{
    const char *before = "";
    bool stops = are_zeros(low) && !above && !first;

    gbnf_put(t, "(");
    if (low[0] == high[0]) {
        gbnf_print(t, "\"%c\" ", low[0]);
        put_between(t, low + 1, high + 1, above, below, k - 1, false);
    } else {
        if (k > 1 || !above || !are_zeros(low + 1)) {
            gbnf_print(t, "\"%c\" ", low[0]);
            put_greater(t, low + 1, above, k - 1);
            before = " | ";
        }
        if (low[0] + 1 < high[0]) {
            gbnf_put(t, before);
            put_digits(t, (char)(low[0] + 1), (char)(high[0] - 1));
            gbnf_print(t, " [0-9]{0,%d}", k - 1);
            before = " | ";
        }
        if (!below || !are_zeros(high + 1)) {
            gbnf_print(t, "%s\"%c\" ", before, high[0]);
            put_less(t, high + 1, below, k - 1);
        }
    }
    gbnf_put(t, stops ? ")?" : ")");
}

/* ---- expressions for the numbers of an interval -------------------------- */

/* An interval of magnitudes of numbers; the fields are those of struct
 * interval. */
struct span_of {
    const struct decimal *low, *high;
    bool above, below;
    int places;
};

/* Appends an expression for the numbers from the lower bound upwards that have
 * the same digits before the point as the lower bound. */
static void put_low(struct gbnf_text *t, const struct span_of *m)
{
    bool any = are_zeros(m->low->part) && !m->above;

    gbnf_print(t, "\"%s\" %s\".\" ", m->low->whole, any ? "(" : "");
    if (any)
        gbnf_print(t, "[0-9]{1,%d})?", m->places);
    else
        put_greater(t, m->low->part, m->above, m->places);
}

/* Appends an expression for the numbers up to the upper bound that have the
 * same digits before the point as the upper bound, with the text `before` in
 * front of it. Appends nothing if there are no such numbers. */
static void put_high(struct gbnf_text *t, const struct span_of *m,
                     const char *before)
{
    const char *part = m->high->part;

    if (are_zeros(part) && m->below)
        return;
    gbnf_print(t, "%s\"%s\" (\".\" ", before, m->high->whole);
    if (are_zeros(part)) {
        gbnf_print(t, "\"0\"{1,%d})?", m->places);
        return;
    }
    gbnf_put(t, "(");
    if (part[0] > '0') {
        put_digits(t, '0', (char)(part[0] - 1));
        gbnf_print(t, " [0-9]{0,%d}", m->places - 1);
    }
    if (!m->below || !are_zeros(part + 1)) {
        gbnf_print(t, "%s\"%c\" ", part[0] > '0' ? " | " : "", part[0]);
        put_less(t, part + 1, m->below, m->places - 1);
    }
    gbnf_put(t, "))?");
}

/* Appends an expression for the numbers between two bounds whose digits before
 * the point are the same. So all numbers between them have these digits,
 * too. */
static void put_same_whole(struct gbnf_text *t, const struct span_of *m)
{
    char low[DECIMAL_DIGITS + 1], high[DECIMAL_DIGITS + 1];
    size_t n = strlen(m->low->part), k = strlen(m->high->part);
    size_t len = n > k ? n : k;
    bool stops = n == 0 && !m->above;

    pad(low, m->low->part, '0', len);
    pad(high, m->high->part, '0', len);
    gbnf_print(t, "\"%s\" ", m->low->whole);
    if (strcmp(low, high) == 0 && len == 0) {
        gbnf_put(t, "(\".\" \"0\"{1,4})?");
        return;
    }
    if (strcmp(low, high) == 0) {
        gbnf_print(t, "\".%s\" \"0\"{0,4}", low);
        return;
    }
    gbnf_put(t, stops ? "(\".\" " : "\".\" ");
    put_between(t, low, high, m->above, m->below, m->places, true);
    gbnf_put(t, stops ? ")?" : "");
}

/* Appends an expression for the numbers from magnitude m->low to m->high, low
 * <= high. They may have digits after the point. */
static void put_magnitudes(struct gbnf_text *t, const struct span_of *m)
{
    char a[DECIMAL_DIGITS + 2], b[DECIMAL_DIGITS + 2];
    const struct decimal *low = m->low, *high = m->high;

    if (strcmp(low->whole, high->whole) == 0) {
        put_same_whole(t, m);
        return;
    }
    put_low(t, m);
    memcpy(a, low->whole, sizeof low->whole);
    memcpy(b, high->whole, sizeof high->whole);
    step(a, true);
    if (strcmp(a, b) != 0) {
        step(b, false);
        gbnf_put(t, " | (");
        put_integers(t, a, b);
        gbnf_print(t, ") (\".\" [0-9]{1,%d})?", m->places);
    }
    put_high(t, m, " | ");
}

/* Replaces the bounds of m by the smallest and the greatest integer in the
 * interval, which are stored in *low and *high. Returns false if the interval
 * contains no integer. */
static bool round_in(struct span_of *m, struct decimal *low,
                     struct decimal *high)
{
    *low = *m->low;
    *high = *m->high;
    if (low->part[0] || m->above)
        step(low->whole, true);
    if (!high->part[0] && m->below) {
        if (strcmp(high->whole, "0") == 0)
            return false;
        step(high->whole, false);
    }
    low->part[0] = high->part[0] = '\0';
    *m = (struct span_of){.low = low, .high = high, .places = m->places};
    return compare_magnitudes(low, high) <= 0;
}

/* Appends an expression for the positive or the negative numbers whose
 * magnitudes are in the interval m. `sign` is the GBNF expression that precedes
 * the digits. If `more`, writes " | " first, because other alternatives
 * precede. Returns false, without writing, if there are no such numbers. */
static bool put_signed(struct gbnf_text *t, struct span_of m, bool integer,
                       const char *sign, bool more)
{
    struct decimal low, high, zero = {.whole = "0"}, most = {0};
    const struct decimal *from = m.low ? m.low : &zero;
    size_t n = strlen(from->whole);
    int c;

    pad(most.whole, "", '9', n > USUAL_DIGITS ? n : USUAL_DIGITS);
    m.low = from;
    m.high = m.high ? m.high : &most;
    if (integer && !round_in(&m, &low, &high))
        return false;
    c = compare_magnitudes(m.low, m.high);
    if (c > 0 || (c == 0 && (m.above || m.below)))
        return false;
    gbnf_print(t, "%s%s(", more ? " | " : "", sign);
    if (integer)
        put_integers(t, m.low->whole, m.high->whole);
    else
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
