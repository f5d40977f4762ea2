/* Converts schemas of strings and of numbers to GBNF; see schema.h. */
#include "grammar/schema_inner.h"

#include "base/err.h"
#include "base/numeral.h"
#include "base/wide_json.h"
#include "grammar/decimal.h"
#include "grammar/gbnf.h"
#include "grammar/regex.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_LENGTH = 10000,
    /* maximum sum of minLength or maxLength over all strings of a grammar */
    MOST_COPIES = 6000,
    /* maximum number of states of the automaton for one string */
    MOST_STATES = 300,
    MOST_MULTIPLES = 500,
    /* maximum number of rules that enforce one multipleOf (put_remainders) */
    MOST_REMAINDERS = 400,
    USUAL_PLACES = 18,
};

/* ---- values of the keyword format ---------------------------------------- */

#define DATE                                                                   \
    "\\d{4}-(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1\\d|2[0-8])|(?:0[13-9]|1[0-2])-"   \
    "(?:29|30)|(?:0[13578]|1[02])-31)"
#define TIME                                                                   \
    "(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,9})?(?:Z|[+-](?:[01]\\d|" \
    "2[0-3]):[0-5]\\d)"
#define SPAN                                                                   \
    "(?:\\d{1,4}H(?:\\d{1,4}M(?:\\d{1,4}S)?)?|\\d{1,4}M(?:\\d{1,4}S)?|\\d{1,"  \
    "4}S)"
#define DAYS                                                                   \
    "(?:\\d{1,4}Y(?:\\d{1,4}M(?:\\d{1,4}D)?)?|\\d{1,4}M(?:\\d{1,4}D)?|\\d{1,"  \
    "4}D)"
#define ATOM  "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
#define LABEL "[A-Za-z0-9](?:[A-Za-z0-9-]{0,58}[A-Za-z0-9])?"
#define NAME  "[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
#define OCTET "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define IPV4  OCTET "(?:\\." OCTET "){3}"
#define HEX   "[0-9A-Fa-f]{1,4}"
#define IPV6                                                                   \
    "(?:(?:" HEX ":){7}" HEX "|(?:" HEX ":){1,6}:" HEX "|(?:" HEX              \
    ":){1,5}(?::" HEX "){2}|(?:" HEX ":){1,4}(?::" HEX "){3}|(?:" HEX          \
    ":){1,3}(?::" HEX "){4}|(?:" HEX ":){1,2}(?::" HEX "){5}|" HEX ":(?::" HEX \
    "){6}|:(?::" HEX "){1,7}|(?:" HEX ":){1,7}:|::)"
#define URI_CHAR  "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"
#define URI_FIRST "(?:[A-Za-z0-9._~!$&'()*+,;=@-]|%[0-9A-Fa-f]{2})"
#define URI_TAIL  "(?:\\?(?:" URI_CHAR "|[/?])*)?(?:#(?:" URI_CHAR "|[/?])*)?"
#define URI                                                                    \
    "[A-Za-z][A-Za-z0-9+.-]*:(?:\\/\\/"                                        \
    "[A-Za-z0-9.-]+(?::\\d{1,5})?(?:\\/" URI_CHAR "*)*|" URI_CHAR              \
    "+(?:\\/" URI_CHAR "*)*)" URI_TAIL
#define POINTER "(?:\\/(?:[^~\\/]|~[01])*)*"
#define EMAIL   ATOM "(?:\\." ATOM ")*@" NAME "(?:\\." NAME ")+"
#define HOST    LABEL "(?:\\." LABEL "){0,3}"
#define URI_REFERENCE                                                          \
    "(?:" URI "|(?:\\/" URI_CHAR "+(?:\\/" URI_CHAR "*)*|" URI_FIRST           \
    "+(?:\\/" URI_CHAR "*)*|\\/)?" URI_TAIL ")"
#define UUID   "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
#define BASE64 "(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"

/* The values of `format`: regular expressions for strings, and the least and
 * the greatest value of integers. A text that matches has the format, but not
 * every text of the format matches: February has 28 days, and only common forms
 * of addresses match. NULL: the format does not constrain such values. */
static const struct format {
    const char *name, *expression, *bound[2];
} formats[] = {
    {"date", DATE, {0}},
    {"time", TIME, {0}},
    {"date-time", DATE "T" TIME, {0}},
    {"duration", "P(?:\\d{1,4}W|" DAYS "(?:T" SPAN ")?|T" SPAN ")", {0}},
    {"email", EMAIL, {0}},
    {"idn-email", EMAIL, {0}},
    {"hostname", HOST, {0}},
    {"idn-hostname", HOST, {0}},
    {"ipv4", IPV4, {0}},
    {"ipv6", IPV6, {0}},
    {"cidrv4", IPV4 "\\/(?:3[0-2]|[12]?\\d)", {0}},
    {"cidrv6", IPV6 "\\/(?:12[0-8]|1[01]\\d|[1-9]?\\d)", {0}},
    {"uri", URI, {0}},
    {"iri", URI, {0}},
    {"url", URI, {0}},
    {"uri-reference", URI_REFERENCE, {0}},
    {"iri-reference", URI_REFERENCE, {0}},
    {"uri-template", "(?:" URI_CHAR "|[/?#]|\\{\\w+(?:,\\w+)*\\})*", {0}},
    {"uuid", UUID, {0}},
    {"guid", UUID, {0}},
    {"json-pointer", POINTER, {0}},
    {"relative-json-pointer", "(?:0|[1-9]\\d{0,8})(?:#|" POINTER ")", {0}},
    {"byte", BASE64, {0}},
    {"base64", BASE64, {0}},
    {"base64url", "[A-Za-z0-9_-]*", {0}},
    {"cuid", "c[a-z0-9]{24}", {0}},
    {"cuid2", "[0-9a-z]{24}", {0}},
    {"ulid", "[0-7][0-9A-HJKMNP-TV-Z]{25}", {0}},
    {"nanoid", "[A-Za-z0-9_-]{21}", {0}},
    {"jwt", "[A-Za-z0-9_-]+\\.[A-Za-z0-9_-]+\\.[A-Za-z0-9_-]+", {0}},
    {"e164", "\\+[1-9]\\d{6,14}", {0}},
    {"password", NULL, {0}},
    {"binary", NULL, {0}},
    {"float", NULL, {0}},
    {"double", NULL, {0}},
    {"decimal", NULL, {0}},
    {"int8", NULL, {"-128", "127"}},
    {"int16", NULL, {"-32768", "32767"}},
    {"int32", NULL, {"-2147483648", "2147483647"}},
    {"int64", NULL, {"-9223372036854775808", "9223372036854775807"}},
    {"int", NULL, {"-9223372036854775808", "9223372036854775807"}},
    {"uint8", NULL, {"0", "255"}},
    {"uint16", NULL, {"0", "65535"}},
    {"uint32", NULL, {"0", "4294967295"}},
    {"uint64", NULL, {"0", "18446744073709551615"}},
    {"uint", NULL, {"0", "18446744073709551615"}},
};

/* Returns the row of formats[] for the value of `format`, or NULL, with a note,
 * if it has none. */
static const struct format *format_of(struct writer *w, const json_t *value)
{
    const char *name = json_string_value(value);

    for (size_t i = 0; i < sizeof formats / sizeof formats[0] && name; i++)
        if (strcmp(formats[i].name, name) == 0)
            return &formats[i];
    schema_note(w, "format", "is not known, and not enforced");
    return NULL;
}

/* ---- rules for strings --------------------------------------------------- */

/* Handles a regular expression that regex_read rejected. Fails if it is
 * invalid. If it is only not supported, writes a note that it is not
 * enforced. */
static void pass_over(struct writer *w, struct regex *r, const char *keyword)
{
    char what[2 * ERR_SHOWN];

    if (r->failure == REGEX_NO_MEMORY)
        schema_no_memory(w);
    numeral_print(what, sizeof what, "(at byte %zu): %s", r->at, r->why);
    if (r->failure == REGEX_WRONG)
        schema_wrong(w, keyword, what);
    numeral_print(what, sizeof what, "is not enforced, at byte %zu: %s", r->at,
                  r->why);
    schema_note(w, keyword, what);
    r->failure = REGEX_FINE;
}

/* The conditions that a string must meet, as regular expressions (regex.h). */
struct texts {
    struct regex r;
    uint32_t node;    /* node of the texts that meet all conditions */
    uint32_t pattern; /* node of the texts that match the patterns */
};

/* Adds a condition for a string: it matches `node`, or does not if `negate`. If
 * `node` is 0, the condition is not supported and left out, with a note. */
static void add(struct writer *w, struct texts *t, const char *keyword,
                uint32_t node, bool negate)
{
    if (negate)
        node = regex_not(&t->r, node);
    node = regex_both(&t->r, t->node, node);
    if (node)
        t->node = node;
    else
        pass_over(w, &t->r, keyword);
}

static void add_patterns(struct writer *w, struct texts *t, const json_t *list,
                         bool negate)
{
    json_t *one;
    size_t i;

    json_array_foreach (list, i, one)
        if (json_is_string(one) && !wide_digits(one))
            add(w, t, negate ? "not" : "pattern",
                regex_read(&t->r, json_string_value(one),
                           json_string_length(one), false),
                negate);
        else
            schema_wrong(w, "pattern", "must be a string");
}

static void add_formats(struct writer *w, struct texts *t, const json_t *list)
{
    json_t *one;
    size_t i;

    json_array_foreach (list, i, one) {
        const struct format *f = format_of(w, one);

        if (f && f->expression)
            add(w, t, "format",
                regex_read(&t->r, f->expression, strlen(f->expression), true),
                false);
    }
}

static void add_without(struct writer *w, struct texts *t, const json_t *list)
{
    uint32_t any = REGEX_NOTHING;
    json_t *one;
    size_t i;

    json_array_foreach (list, i, one)
        any = regex_either(
            &t->r, any,
            regex_text(&t->r, json_string_value(one), json_string_length(one)));
    add(w, t, "not", any, true);
}

static void add_all(struct writer *w, const json_t *all, struct texts *t)
{
    t->node = REGEX_ALL;
    if (!regex_init(&t->r))
        schema_no_memory(w);
    add_patterns(w, t, json_object_get(all, "pattern"), false);
    t->pattern = t->node;
    add_formats(w, t, json_object_get(all, "format"));
    add_patterns(w, t, json_object_get(all, WITHOUT_PATTERNS), true);
    add_without(w, t, json_object_get(all, WITHOUT_TEXTS));
}

/* Appends an expression for the strings that meet all conditions. If it is too
 * large, first drops the limits of the length, then all conditions but the
 * patterns, then the patterns. Writes a note for each that is dropped. Returns
 * false if there is no such string. */
static bool put_texts(struct writer *w, struct texts *t, uint32_t min,
                      uint32_t max, struct gbnf_text *text)
{
    /* Uses at most a quarter of the rules that the grammar may still have,
     * because the rest of the schema needs rules, too. */
    uint32_t most =
        w->sums.n_rule < GBNF_RULES ? (GBNF_RULES - w->sums.n_rule) / 4 : 0;
    const struct regex_out out = {.json = true,
                                  .rules = w->out,
                                  .n_rule = &w->sums.n_rule,
                                  .most_states =
                                      most < MOST_STATES ? most : MOST_STATES};
    bool clipped = min > 0 || max != RULES_UNLIMITED;
    const uint32_t node[3] = {clipped ? regex_clip(&t->r, t->node, min, max)
                                      : t->node,
                              t->node, t->pattern};
    const char *const keyword[3] = {clipped ? "maxLength" : "pattern", "format",
                                    "pattern"};

    for (int i = 0; i < 3; i++) {
        if (i > 0 && (node[i] == node[i - 1] || node[i] == REGEX_ALL))
            continue;
        if (regex_put(&t->r, node[i], &out, text))
            return true;
        if (t->r.failure == REGEX_UNSUPPORTED)
            return false;
        t->r.at = 0;
        pass_over(w, &t->r, keyword[i]);
        t->r.n_step = 0;
    }
    gbnf_put(text, "string");
    return true;
}

bool schema_put_string(struct writer *w, const json_t *all,
                       struct gbnf_text *text)
{
    /* The sum of the lengths over all strings of the grammar is limited,
     * because each character adds states. */
    int64_t left = MOST_COPIES - w->sums.n_copy, most = left > 0 ? left : 0;
    int64_t min = schema_count(w, all, "minLength", 0, most);
    int64_t max = schema_count(w, all, "maxLength", -1, most);
    struct texts t = {0};
    bool any = true;

    w->sums.n_copy += max > min ? max : min;
    if (max >= 0 && max < min)
        return false;
    add_all(w, all, &t);
    if (t.node == REGEX_ALL && min == 0 && max < 0)
        gbnf_put(text, "string");
    else
        any = put_texts(w, &t, (uint32_t)min,
                        max < 0 ? RULES_UNLIMITED : (uint32_t)max, text);
    arena_fini(&t.r.memory);
    return any;
}

bool schema_text_fits(struct writer *w, const json_t *all, const char *s,
                      size_t len)
{
    json_t *min = json_object_get(all, "minLength");
    json_t *max = json_object_get(all, "maxLength");
    struct writer none = {.out = &(struct gbnf_text){0}, .name = ""};
    struct texts t = {0};
    double n = 0;
    bool fits;

    add_all(&none, all, &t);
    for (size_t i = 0; i < len; i++)
        n += ((unsigned char)s[i] & 0xc0) != 0x80;
    /* If it is not decided within the limits of regex.c, the text counts as
     * fitting. */
    fits = none.status != PL_OK || regex_takes(&t.r, t.node, s, len) ||
           t.r.failure != REGEX_FINE;
    if (t.r.failure == REGEX_NO_MEMORY || none.out->failed ||
        none.status == PL_NO_MEMORY)
        schema_no_memory(w);
    arena_fini(&t.r.memory);
    gbnf_text_fini(none.out);
    return fits && (!wide_is_number(min) || n >= wide_number(min)) &&
           (!wide_is_number(max) || n <= wide_number(max));
}

/* ---- rules for numbers --------------------------------------------------- */

/* The interval that numbers must be in. low and high store its bounds. */
struct bounds {
    struct interval in;
    struct decimal low, high;
};

/* Replaces the lower or the upper bound of b by d, if d is stricter. */
static void narrow(struct bounds *b, bool is_low, const struct decimal *d,
                   bool exclusive)
{
    struct decimal *own = is_low ? &b->low : &b->high;
    const struct decimal **bound = is_low ? &b->in.low : &b->in.high;
    bool *out = is_low ? &b->in.above : &b->in.below;
    int c = *bound ? decimal_compare(d, own) * (is_low ? 1 : -1) : 1;

    if (c > 0)
        *own = *d;
    if (c > 0)
        *out = exclusive;
    else if (c == 0)
        *out |= exclusive;
    *bound = own;
}

static void read_bounds(struct writer *w, const json_t *all, struct bounds *b)
{
    static const struct {
        const char *key;
        bool low, exclusive;
    } keys[] = {{"minimum", true, false},
                {"maximum", false, false},
                {"exclusiveMinimum", true, true},
                {"exclusiveMaximum", false, true}};
    json_t *list = json_object_get(all, "format"), *one;
    struct decimal d;
    size_t i;

    for (i = 0; i < 4; i++) {
        json_t *v = json_object_get(all, keys[i].key);

        if (v && !wide_is_number(v))
            schema_wrong(w, keys[i].key, "must be a number");
        else if (v && decimal_of(&d, v, keys[i].low ? 1 : -1))
            narrow(b, keys[i].low, &d, keys[i].exclusive);
        else if (v && (wide_number(v) > 0) == keys[i].low)
            schema_note(w, keys[i].key, "has too many digits to be enforced");
    }
    json_array_foreach (list, i, one) {
        const struct format *f = json_is_string(one) ? format_of(w, one) : NULL;

        for (int high = 0; high < 2 && f && f->bound[high]; high++) {
            const char *s = f->bound[high];

            d = (struct decimal){.negative = *s == '-'};
            strcpy(d.whole, s + (*s == '-'));
            narrow(b, !high, &d, false);
        }
    }
}

/* Returns the number of decimal places of the value of multipleOf, 0 to 6. Sets
 * *unit to the value in units of the last place, so 0.25 gives 2 and 25.
 * Returns -1 if the value has more places. */
static int scale_of(double multiple, int64_t *unit)
{
    double x = multiple;

    for (int n = 0; n <= 6 && x < 1e9; n++, x *= 10) {
        *unit = (int64_t)(x + 0.5);
        if (*unit > 0 && *unit < 1000000000 &&
            fabs(x - (double)*unit) <= 1e-9 * x)
            return n;
    }
    return -1;
}

static void put_scaled(struct gbnf_text *t, int64_t x, int places)
{
    char s[48], part[16];
    int64_t power = 1;

    for (int i = 0; i < places; i++)
        power *= 10;
    numeral_print(part, sizeof part, ".%0*lld", places,
                  (long long)((x < 0 ? -x : x) % power));
    numeral_print(s, sizeof s, "\"%s%lld%s\"", x < 0 ? "-" : "",
                  (long long)((x < 0 ? -x : x) / power), places ? part : "");
    gbnf_put(t, s);
}

/* Sets *out to the bound d in units of the last of `places` decimal places,
 * rounded into the interval: up if `low`, else down. If the bound is excluded,
 * takes the next unit. Returns false if the result has too many digits. */
static bool scale_bound(const struct decimal *d, int places, bool low,
                        bool excluded, int64_t *out)
{
    const size_t n = strlen(d->whole), n_part = strlen(d->part);
    const bool rounded = n_part > (size_t)places;
    int64_t x = 0;

    if (n + (size_t)places > USUAL_PLACES)
        return false;
    for (size_t i = 0; i < n; i++)
        x = 10 * x + d->whole[i] - '0';
    for (size_t i = 0; i < (size_t)places; i++)
        x = 10 * x + (i < n_part ? d->part[i] - '0' : 0);
    x = d->negative ? -x : x;
    if (rounded ? d->negative != low : excluded)
        x += low ? 1 : -1;
    *out = x;
    return true;
}

/* Appends an expression that lists all multiples of `unit` between the bounds,
 * in units of the last of `places` decimal places. Sets *n to their number.
 * Returns false if they are too many, or a bound is absent or has too many
 * digits. */
static bool put_multiples(const struct bounds *b, int64_t unit, int places,
                          struct gbnf_text *t, int64_t *n)
{
    int64_t low, high, first, last;

    if (!b->in.low || !b->in.high ||
        !scale_bound(&b->low, places, true, b->in.above, &low) ||
        !scale_bound(&b->high, places, false, b->in.below, &high))
        return false;
    /* Division truncates: a positive low and a negative high are rounded to the
     * multiple inside the interval. */
    first = low / unit + (low > 0 && low % unit != 0);
    last = high / unit - (high < 0 && high % unit != 0);
    *n = 0;
    if (last - first >= MOST_MULTIPLES)
        return false;
    for (int64_t i = first; i <= last; i++) {
        gbnf_put(t, (*n)++ ? " | " : "(");
        put_scaled(t, i * unit, places);
    }
    gbnf_put(t, *n ? ")" : "");
    return true;
}

/* Appends an expression for multiples of `unit` that can be told by their last
 * digits: the last digits of an integer, or all digits after the point of a
 * fraction. `lead` is the expression for the sign. Returns false if the last
 * digits do not decide. */
static bool put_last_digits(int64_t unit, int places, const char *lead,
                            struct gbnf_text *t)
{
    int64_t power = 1;
    int n = 0;
    const char *before = "";

    while (n < 3 && (power % unit != 0 || n < places)) {
        power *= 10;
        n++;
    }
    if (power % unit != 0 || n < places || power / unit > MOST_MULTIPLES ||
        (places > 0 && n > places))
        return false;
    if (places > 0)
        gbnf_print(t, "%s (\"0\" | [1-9] [0-9]{0,17}) (\".\" (", lead);
    else
        gbnf_print(t, "(\"0\" | %s (", lead);
    for (int64_t x = 0; x < power; x += unit) {
        char s[32];

        /* Pads x with zeros to n digits. For integers a shorter number, without
         * leading zeros, is added below as an alternative of its own. */
        numeral_print(s, sizeof s, "%s\"%0*lld\"", before, n, (long long)x);
        if (places > 0)
            gbnf_put(t, s);
        else
            gbnf_print(t, "%s[1-9] [0-9]{0,14} \"%0*lld\"", before, n,
                       (long long)x);
        before = " | ";
        if (places == 0 && x > 0)
            gbnf_print(t, " | \"%lld\"", (long long)x);
    }
    gbnf_put(t, places > 0 ? "))?" : "))");
    return true;
}

/* Adds rules that read an integer digit by digit and keep its remainder by
 * `unit`: a rule for each remainder and each number of digits that may still
 * follow. A text may end where the remainder is 0. Appends an expression that
 * matches the multiples of `unit` by these rules. */
static void put_remainders(struct writer *w, uint32_t unit, const char *lead,
                           struct gbnf_text *t)
{
    uint32_t n = MOST_REMAINDERS / unit, *rule;

    n = n < USUAL_PLACES ? n : USUAL_PLACES;
    rule = schema_alloc(w, (size_t)n * unit, sizeof *rule);
    if (!rule)
        return;
    for (uint32_t k = 0; k < n * unit; k++) {
        struct gbnf_text body = {0};
        uint32_t left = k / unit, r = k % unit;

        gbnf_put(&body, r == 0 ? "\"\"" : "");
        for (uint32_t d = 0; d < 10 && left > 0; d++) {
            uint32_t to = rule[(left - 1) * unit + (10 * r + d) % unit];

            if (to)
                gbnf_print(&body, "%s\"%u\" s%u", body.n ? " | " : "",
                           (unsigned)d, (unsigned)to - 1);
        }
        if (body.n > 0 || body.failed) {
            rule[k] = ++w->sums.n_rule;
            schema_rule_put(w, rule[k] - 1, &body);
        }
        gbnf_text_fini(&body);
    }
    gbnf_print(t, "(\"0\" | %s (", lead);
    for (uint32_t d = 1, any = 0; d < 10; d++) {
        uint32_t to = rule[(n - 1) * unit + d % unit];

        if (to)
            gbnf_print(t, "%s\"%u\" s%u", any++ ? " | " : "", (unsigned)d,
                       (unsigned)to - 1);
    }
    gbnf_put(t, "))");
}

/* Enforces multipleOf within the bounds. Appends an expression for the
 * multiples and returns true, or returns false if the caller has to write an
 * expression for the interval *b instead. Where possible, *b was changed so
 * that it enforces multipleOf; otherwise a note was written. Sets *never if
 * there is no multiple. */
static bool put_multiple(struct writer *w, const json_t *all, struct bounds *b,
                         struct gbnf_text *t, bool *never)
{
    double multiple = wide_number(json_object_get(all, "multipleOf"));
    int64_t unit = 0, n;
    int places = multiple > 0 ? scale_of(multiple, &unit) : -1;
    const struct decimal zero = {.whole = "0"};
    bool from_zero = b->in.low && !b->in.above && !b->in.high &&
                     decimal_compare(&b->low, &zero) == 0;

    if (!(multiple > 0))
        schema_wrong(w, "multipleOf", "must be a number above 0");
    /* Every integer is a multiple of a fraction of which 1 is a multiple, such
     * as 0.5. For other fractions multipleOf is not enforced. */
    if (places > 0 && b->in.integer) {
        if ((int64_t)pow(10, places) % unit == 0)
            return false;
        places = -1;
    }
    if (unit == 1 && places == 0)
        b->in.integer = true;
    if (unit == 1 && places >= 0 &&
        (places == 0 ||
         (!b->in.above && !b->in.below && (int)strlen(b->low.part) <= places &&
          (int)strlen(b->high.part) <= places))) {
        b->in.places = places;
        b->in.exact = true;
        return false;
    }
    if (places >= 0 && put_multiples(b, unit, places, t, &n)) {
        *never = n == 0;
        return true;
    }
    if (places >= 0 && ((!b->in.low && !b->in.high) || from_zero)) {
        const char *lead = from_zero ? "" : "\"-\"?";

        if (put_last_digits(unit, places, lead, t))
            return true;
        if (places == 0 && unit <= MOST_REMAINDERS / 4) {
            put_remainders(w, (uint32_t)unit, lead, t);
            return true;
        }
    }
    schema_note(w, "multipleOf", "is not enforced");
    return false;
}

bool schema_put_number(struct writer *w, const json_t *all, bool integer,
                       struct gbnf_text *t)
{
    struct bounds b = {.in = {.integer = integer, .places = USUAL_PLACES}};
    bool never = false;

    read_bounds(w, all, &b);
    if (json_object_get(all, "multipleOf") &&
        put_multiple(w, all, &b, t, &never))
        return !never;
    if (b.in.low || b.in.high || (!b.in.integer && b.in.exact))
        return decimal_put(t, &b.in);
    gbnf_put(t, b.in.integer ? "integer" : "number");
    return true;
}
