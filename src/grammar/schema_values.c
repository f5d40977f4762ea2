/* Converts schemas of strings and of numbers to GBNF; see schema.h. */
#include "grammar/schema_inner.h"

#include "base/err.h"
#include "base/numeral.h"
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

/* Regular expressions for the values of `format`. A text that matches has the
 * format, but not every text of the format matches: February has 28 days, and
 * only common forms of addresses match. NULL: the format does not constrain
 * strings. */
static const struct format {
    const char *name, *expression;
} formats[] = {
    {"date", DATE},
    {"time", TIME},
    {"date-time", DATE "T" TIME},
    {"duration", "P(?:\\d{1,4}W|" DAYS "(?:T" SPAN ")?|T" SPAN ")"},
    {"email", ATOM "(?:\\." ATOM ")*@" NAME "(?:\\." NAME ")+"},
    {"idn-email", ATOM "(?:\\." ATOM ")*@" NAME "(?:\\." NAME ")+"},
    {"hostname", LABEL "(?:\\." LABEL "){0,3}"},
    {"idn-hostname", LABEL "(?:\\." LABEL "){0,3}"},
    {"ipv4", IPV4},
    {"ipv6", IPV6},
    {"cidrv4", IPV4 "\\/(?:3[0-2]|[12]?\\d)"},
    {"cidrv6", IPV6 "\\/(?:12[0-8]|1[01]\\d|[1-9]?\\d)"},
    {"uri", URI},
    {"iri", URI},
    {"url", URI},
    {"uri-reference",
     "(?:" URI "|(?:\\/" URI_CHAR "+(?:\\/" URI_CHAR "*)*|" URI_FIRST
     "+(?:\\/" URI_CHAR "*)*|\\/)?" URI_TAIL ")"},
    {"iri-reference",
     "(?:" URI "|(?:\\/" URI_CHAR "+(?:\\/" URI_CHAR "*)*|" URI_FIRST
     "+(?:\\/" URI_CHAR "*)*|\\/)?" URI_TAIL ")"},
    {"uri-template", "(?:" URI_CHAR "|[/?#]|\\{\\w+(?:,\\w+)*\\})*"},
    {"uuid", "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"},
    {"guid", "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"},
    {"json-pointer", POINTER},
    {"relative-json-pointer", "(?:0|[1-9]\\d{0,8})(?:#|" POINTER ")"},
    {"byte", "(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|"
             "[A-Za-z0-9+/]{3}=)?"},
    {"base64", "(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|"
               "[A-Za-z0-9+/]{3}=)?"},
    {"base64url", "[A-Za-z0-9_-]*"},
    {"cuid", "c[a-z0-9]{24}"},
    {"cuid2", "[0-9a-z]{24}"},
    {"ulid", "[0-7][0-9A-HJKMNP-TV-Z]{25}"},
    {"nanoid", "[A-Za-z0-9_-]{21}"},
    {"jwt", "[A-Za-z0-9_-]+\\.[A-Za-z0-9_-]+\\.[A-Za-z0-9_-]+"},
    {"e164", "\\+[1-9]\\d{6,14}"},
    {"password", NULL},
    {"binary", NULL},
    {"float", NULL},
    {"double", NULL},
    {"decimal", NULL},
};

/* The least and the greatest value of formats for integers. */
static const struct {
    const char *name, *low, *high;
} widths[] = {
    {"int8", "-128", "127"},
    {"int16", "-32768", "32767"},
    {"int32", "-2147483648", "2147483647"},
    {"int64", "-9223372036854775808", "9223372036854775807"},
    {"int", "-9223372036854775808", "9223372036854775807"},
    {"uint8", "0", "255"},
    {"uint16", "0", "65535"},
    {"uint32", "0", "4294967295"},
    {"uint64", "0", "18446744073709551615"},
    {"uint", "0", "18446744073709551615"},
};

/* Returns the row of formats[] for the value of `format`, or NULL if it has
 * none. */
static const struct format *format_of(const char *name)
{
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
        if (strcmp(formats[i].name, name) == 0)
            return &formats[i];
    return NULL;
}

static int width_of(const char *name)
{
    for (int i = 0; i < (int)(sizeof widths / sizeof widths[0]); i++)
        if (strcmp(widths[i].name, name) == 0)
            return i;
    return -1;
}

/* ---- rules for strings --------------------------------------------------- */

static pl_status add_rules(void *user, const struct gbnf_text *body,
                           uint32_t count, uint32_t *number)
{
    uint32_t rule;

    PL_TRY(schema_rule_new(user, NULL, number));
    for (uint32_t i = 1; i < count; i++)
        PL_TRY(schema_rule_new(user, NULL, &rule));
    return count ? PL_OK : schema_rule_put(user, *number, body);
}

static pl_status put_body(void *user, uint32_t number,
                          const struct gbnf_text *body)
{
    return schema_rule_put(user, number, body);
}

/* Handles a regular expression that regex_read rejected. Fails if it is
 * invalid. If it is only not supported, writes a note that it is not
 * enforced. */
static pl_status pass_over(struct writer *w, const struct regex *r,
                           const char *keyword)
{
    char what[2 * ERR_SHOWN];

    if (r->failure == REGEX_NO_MEMORY)
        return schema_no_memory(w);
    numeral_print(what, sizeof what, "(at byte %zu): %s", r->at, r->why);
    if (r->failure == REGEX_WRONG)
        return schema_wrong(w, keyword, what);
    numeral_print(what, sizeof what, "is not enforced, at byte %zu: %s", r->at,
                  r->why);
    schema_note(w, keyword, what);
    return PL_OK;
}

/* The conditions that a string must meet, as regular expressions (regex.h). */
struct texts {
    struct regex r;
    uint32_t node;    /* node of the texts that meet all conditions */
    uint32_t pattern; /* node of the texts that match the patterns */
};

/* Adds a condition for a string: it matches the regular expression s[0 .. len),
 * or does not if `negate`. An expression that is not supported is left out,
 * with a note. */
static pl_status add(struct writer *w, struct texts *t, const char *keyword,
                     const char *s, size_t len, bool whole, bool negate)
{
    uint32_t node = regex_read(&t->r, s, len, whole);

    if (node && negate)
        node = regex_not(&t->r, node);
    if (node)
        node = regex_both(&t->r, t->node, node);
    if (node) {
        t->node = node;
        return PL_OK;
    }
    PL_TRY(pass_over(w, &t->r, keyword));
    t->r.failure = REGEX_FINE;
    return PL_OK;
}

static pl_status add_list(struct writer *w, struct texts *t, const json_t *list,
                          bool negate)
{
    json_t *one;
    size_t i;

    json_array_foreach (list, i, one) {
        if (!json_is_string(one))
            return schema_wrong(w, "pattern", "must be a string");
        PL_TRY(add(w, t, negate ? "not" : "pattern", json_string_value(one),
                   json_string_length(one), false, negate));
    }
    return PL_OK;
}

static pl_status add_formats(struct writer *w, struct texts *t,
                             const json_t *list)
{
    json_t *one;
    size_t i;

    json_array_foreach (list, i, one) {
        const char *name = json_string_value(one);
        const struct format *f = name ? format_of(name) : NULL;

        if (!f && (!name || width_of(name) < 0))
            schema_note(w, "format", "is not known, and not enforced");
        if (f && f->expression)
            PL_TRY(add(w, t, "format", f->expression, strlen(f->expression),
                       true, false));
    }
    return PL_OK;
}

static pl_status add_without(struct writer *w, struct texts *t,
                             const json_t *list)
{
    uint32_t any = REGEX_NOTHING;
    json_t *one;
    size_t i;

    json_array_foreach (list, i, one)
        any = regex_either(
            &t->r, any,
            regex_text(&t->r, json_string_value(one), json_string_length(one)));
    any = regex_both(&t->r, t->node, regex_not(&t->r, any));
    if (!any)
        return pass_over(w, &t->r, "not");
    t->node = any;
    return PL_OK;
}

static pl_status add_all(struct writer *w, const json_t *all, struct texts *t)
{
    if (!regex_init(&t->r))
        return schema_no_memory(w);
    t->node = REGEX_ALL;
    PL_TRY(add_list(w, t, json_object_get(all, "pattern"), false));
    t->pattern = t->node;
    PL_TRY(add_formats(w, t, json_object_get(all, "format")));
    PL_TRY(add_list(w, t, json_object_get(all, WITHOUT_PATTERNS), true));
    return add_without(w, t, json_object_get(all, WITHOUT_TEXTS));
}

/* Sets *min and *max to minLength and maxLength; *max is -1 if there is none.
 * The sum over all strings of the grammar is limited, because each character
 * adds states. */
static pl_status get_lengths(struct writer *w, const json_t *all, int64_t *min,
                             int64_t *max)
{
    int64_t most = MOST_COPIES - w->n_copy;

    most = most > 0 ? most : 0;
    PL_TRY(schema_count(w, all, "minLength", 0, most, min));
    PL_TRY(schema_count(w, all, "maxLength", -1, most, max));
    w->n_copy += *max > *min ? *max : *min;
    return PL_OK;
}

/* Appends an expression for the strings that meet all conditions. If it is too
 * large, first drops the limits of the length, then all conditions but the
 * patterns, then the patterns. Writes a note for each that is dropped. */
static pl_status put_texts(struct writer *w, struct texts *t, uint32_t min,
                           uint32_t max, struct gbnf_text *text, bool *never)
{
    /* Uses at most a quarter of the rules that the grammar may still have,
     * because the rest of the schema needs rules, too. */
    uint32_t most = (GBNF_RULES - w->n_rule) / 4;
    const struct regex_out out = {.json = true,
                                  .rule = add_rules,
                                  .body = put_body,
                                  .user = w,
                                  .most_states =
                                      most < MOST_STATES ? most : MOST_STATES};
    bool clipped = min > 0 || max != RULES_UNLIMITED;
    const uint32_t node[3] = {clipped ? regex_clip(&t->r, t->node, min, max)
                                      : t->node,
                              t->node, t->pattern};
    const char *const keyword[3] = {clipped ? "maxLength" : "pattern", "format",
                                    "pattern"};

    for (int i = 0; i < 3; i++) {
        pl_status s;

        if (i > 0 && (node[i] == node[i - 1] || node[i] == REGEX_ALL))
            continue;
        s = regex_put(&t->r, node[i], &out, text);
        if (s != PL_UNSUPPORTED || t->r.failure == REGEX_FINE)
            return s;
        if (t->r.failure == REGEX_UNSUPPORTED) {
            *never = true;
            return PL_OK;
        }
        t->r.at = 0;
        PL_TRY(pass_over(w, &t->r, keyword[i]));
        t->r.failure = REGEX_FINE;
        t->r.n_step = 0;
    }
    gbnf_put(text, "string");
    return PL_OK;
}

pl_status schema_put_string(struct writer *w, const json_t *all,
                            struct gbnf_text *text, bool *never)
{
    struct texts t = {0};
    int64_t min = 0, max = -1;
    pl_status s = get_lengths(w, all, &min, &max);

    if (s == PL_OK && max >= 0 && max < min) {
        *never = true;
        return PL_OK;
    }
    if (s == PL_OK)
        s = add_all(w, all, &t);
    if (s == PL_OK && t.node == REGEX_ALL && min == 0 && max < 0)
        gbnf_put(text, "string");
    else if (s == PL_OK)
        s = put_texts(w, &t, (uint32_t)min,
                      max < 0 ? RULES_UNLIMITED : (uint32_t)max, text, never);
    regex_fini(&t.r);
    return s;
}

pl_status schema_text_fits(struct writer *w, const json_t *all, const char *s,
                           size_t len, bool *fits)
{
    json_t *min = json_object_get(all, "minLength");
    json_t *max = json_object_get(all, "maxLength");
    struct writer none = {.out = &(struct gbnf_text){0}, .name = ""};
    struct texts t = {0};
    double n = 0;
    pl_status status = add_all(&none, all, &t);

    for (size_t i = 0; i < len; i++)
        n += ((unsigned char)s[i] & 0xc0) != 0x80;
    /* If it is not decided within the limits of regex.c, the text counts as
     * fitting. */
    *fits = status != PL_OK || regex_takes(&t.r, t.node, s, len) ||
            t.r.failure != REGEX_FINE;
    *fits = *fits && (!json_is_number(min) || n >= json_number_value(min)) &&
            (!json_is_number(max) || n <= json_number_value(max));
    if (t.r.failure == REGEX_NO_MEMORY || none.out->failed)
        status = PL_NO_MEMORY;
    regex_fini(&t.r);
    gbnf_text_fini(none.out);
    return status == PL_NO_MEMORY ? schema_no_memory(w) : PL_OK;
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

static pl_status read_bounds(struct writer *w, const json_t *all,
                             struct bounds *b)
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

        if (!v)
            continue;
        if (!json_is_number(v))
            return schema_wrong(w, keys[i].key, "must be a number");
        if (decimal_of(&d, v, keys[i].low ? 1 : -1))
            narrow(b, keys[i].low, &d, keys[i].exclusive);
        else if ((json_number_value(v) > 0) == keys[i].low)
            schema_note(w, keys[i].key, "has too many digits to be enforced");
    }
    json_array_foreach (list, i, one) {
        const char *name = json_string_value(one);
        int k = name ? width_of(name) : -1;

        if (name && k < 0 && !format_of(name))
            schema_note(w, "format", "is not known, and not enforced");
        for (int high = 0; high < 2 && k >= 0; high++) {
            const char *s = high ? widths[k].high : widths[k].low;

            d = (struct decimal){.negative = *s == '-'};
            memcpy(d.whole, s + (*s == '-'), strlen(s + (*s == '-')));
            narrow(b, !high, &d, false);
        }
    }
    return PL_OK;
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

static double value_of(const struct decimal *d)
{
    char s[2 * DECIMAL_DIGITS + 8];

    numeral_print(s, sizeof s, "%s%s.%s0", d->negative ? "-" : "", d->whole,
                  d->part);
    return numeral_double(s, NULL);
}

/* Appends an expression that lists all multiples of `unit` between the bounds,
 * in units of the last of `places` decimal places. Sets *n to their number.
 * Returns false if they are too many or a bound is absent. */
static bool put_multiples(const struct bounds *b, int64_t unit, int places,
                          struct gbnf_text *t, int64_t *n)
{
    double power = pow(10, places), low, high;

    if (!b->in.low || !b->in.high)
        return false;
    low = ceil(value_of(&b->low) * power / (double)unit - 1e-9);
    high = floor(value_of(&b->high) * power / (double)unit + 1e-9);
    low += b->in.above && low * (double)unit == value_of(&b->low) * power;
    high -= b->in.below && high * (double)unit == value_of(&b->high) * power;
    *n = 0;
    if (high - low >= MOST_MULTIPLES || fabs(low) > 1e12 || fabs(high) > 1e12)
        return false;
    for (int64_t i = (int64_t)low; (double)i <= high; i++) {
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
static pl_status put_remainders(struct writer *w, uint32_t unit,
                                const char *lead, struct gbnf_text *t)
{
    uint32_t n = MOST_REMAINDERS / unit, first, *rule;
    pl_status s = PL_OK;

    n = n < USUAL_PLACES ? n : USUAL_PLACES;
    rule = calloc((size_t)n * unit, sizeof *rule);
    if (!rule)
        return schema_no_memory(w);
    for (uint32_t k = 0; k < n * unit && s == PL_OK; k++) {
        struct gbnf_text body = {0};
        uint32_t left = k / unit, r = k % unit;

        gbnf_put(&body, r == 0 ? "\"\"" : "");
        for (uint32_t d = 0; d < 10 && left > 0; d++) {
            uint32_t to = rule[(left - 1) * unit + (10 * r + d) % unit];

            if (to)
                gbnf_print(&body, "%s\"%u\" s%u", body.n ? " | " : "",
                           (unsigned)d, (unsigned)to - 1);
        }
        if (body.n > 0 || body.failed)
            s = add_rules(w, &body, 0, &first);
        rule[k] = body.n > 0 ? first + 1 : 0;
        gbnf_text_fini(&body);
    }
    gbnf_print(t, "(\"0\" | %s (", lead);
    for (uint32_t d = 1, any = 0; d < 10 && s == PL_OK; d++) {
        uint32_t to = rule[(n - 1) * unit + d % unit];

        if (to)
            gbnf_print(t, "%s\"%u\" s%u", any++ ? " | " : "", (unsigned)d,
                       (unsigned)to - 1);
    }
    gbnf_put(t, "))");
    free(rule);
    return s;
}

/* Appends an expression for the multiples of multipleOf within the bounds and
 * sets *done. Sets *done to false if the caller has to write an expression for
 * the interval *b instead. Where possible, *b was changed so that it enforces
 * multipleOf; otherwise a note was written. */
static pl_status put_multiple(struct writer *w, const json_t *all,
                              struct bounds *b, struct gbnf_text *t, bool *done,
                              bool *never)
{
    double multiple = json_number_value(json_object_get(all, "multipleOf"));
    int64_t unit = 0, n;
    int places = multiple > 0 ? scale_of(multiple, &unit) : -1;
    bool from_zero =
        b->in.low && !b->in.above && !b->in.high && value_of(&b->low) == 0;

    *done = true;
    if (!(multiple > 0))
        return schema_wrong(w, "multipleOf", "must be a number above 0");
    /* Every integer is a multiple of a fraction of which 1 is a multiple, such
     * as 0.5. For other fractions multipleOf is not enforced. */
    if (places > 0 && b->in.integer) {
        int64_t power = (int64_t)pow(10, places);

        if (power % unit == 0) {
            *done = false;
            return PL_OK;
        }
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
        *done = false;
        return PL_OK;
    }
    if (places >= 0 && put_multiples(b, unit, places, t, &n)) {
        *never = n == 0;
        return PL_OK;
    }
    if (places >= 0 && ((!b->in.low && !b->in.high) || from_zero)) {
        const char *lead = from_zero ? "" : "\"-\"?";

        if (put_last_digits(unit, places, lead, t))
            return PL_OK;
        if (places == 0 && unit <= MOST_REMAINDERS / 4)
            return put_remainders(w, (uint32_t)unit, lead, t);
    }
    schema_note(w, "multipleOf", "is not enforced");
    *done = false;
    return PL_OK;
}

pl_status schema_put_number(struct writer *w, const json_t *all, bool integer,
                            struct gbnf_text *t, bool *never)
{
    struct bounds b = {.in = {.integer = integer, .places = USUAL_PLACES}};
    bool done = false;

    PL_TRY(read_bounds(w, all, &b));
    if (json_object_get(all, "multipleOf"))
        PL_TRY(put_multiple(w, all, &b, t, &done, never));
    if (done)
        return PL_OK;
    if (!b.in.low && !b.in.high && (b.in.integer || !b.in.exact))
        gbnf_put(t, b.in.integer ? "integer" : "number");
    else
        *never = !decimal_put(t, &b.in);
    return PL_OK;
}
