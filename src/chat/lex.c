/* Splits the text of a template into tokens. Comments, the tags of {% raw %},
 * and whitespace that a "-" sign or the settings strip become no tokens. */
#include "chat/strings.h"

#include "base/ascii.h"
#include "chat/unicode.h"

#include <ctype.h>
#include <string.h>

/* Maximum number of brackets that are open at one position. */
enum { MAX_NESTED = 1000 };

struct lexer {
    struct work *w;
    /* Text of the template, [len], in which all newlines are \n. */
    const char *s;
    size_t len, at;
    /* The text before offset `at` ends with a newline, or is empty. */
    bool line_starts;
    struct token *token;
    size_t n;
    /* The closing brackets for those that are open, the innermost last. */
    char open[MAX_NESTED];
    int n_open;
};

/* Fails, and skips the rest of the text. */
static void bad(struct lexer *l, const char *what)
{
    work_fail(l->w, PL_BAD_FILE, "%s", what);
    l->at = l->len;
}

static void add(struct lexer *l, struct token t)
{
    struct token *more = work_extended(l->w, l->token, l->n, sizeof *l->token);

    if (!more)
        return;
    t.line = l->w->line;
    l->token = more;
    l->token[l->n++] = t;
}

/* Adds an operator, or the marker of a tag. */
static void add_op(struct lexer *l, const char *op)
{
    struct token t = {.kind = T_OPERATOR};

    memcpy(t.op, op, strlen(op));
    add(l, t);
}

static void add_string(struct lexer *l, enum token_kind kind, const char *s,
                       size_t len)
{
    struct value v = value_view(l->w, s, len);

    string_hash(v.str);
    add(l, (struct token){.kind = kind, .value = v});
}

/* Advances l->at to offset `to`, and counts the lines in between. After a
 * failure it goes to the end of the text. */
static void go_to(struct lexer *l, size_t to)
{
    if (l->w->status != PL_OK)
        to = l->len;
    for (; l->at < to; l->at++)
        l->w->line += l->s[l->at] == '\n';
    if (to > 0)
        l->line_starts = l->s[to - 1] == '\n';
}

static size_t skip_space(const struct lexer *l, size_t at)
{
    return at + unicode_space_first(l->s + at, l->len - at);
}

static bool at_text(const struct lexer *l, size_t at, const char *text)
{
    size_t n = strlen(text);

    return l->len - at >= n && memcmp(l->s + at, text, n) == 0;
}

static bool is_sign(const struct lexer *l, size_t at)
{
    return at < l->len && (l->s[at] == '-' || l->s[at] == '+');
}

/* Returns the offset after the marker `end` ("%}" or "#}") at offset `at`,
 * where a sign "-" or "+" may precede the marker. Skips the whitespace after
 * the marker that the sign or the settings strip. Returns 0 if the marker is
 * not there. */
static size_t behind_end(const struct lexer *l, size_t at, const char *end)
{
    bool trim = at < l->len && l->s[at] == '-';
    bool keep = at < l->len && l->s[at] == '+';

    if (trim || keep)
        at++;
    if (at > l->len || !at_text(l, at, end))
        return 0;
    at += 2;
    if (trim)
        return skip_space(l, at);
    return !keep && at < l->len && l->s[at] == '\n' ? at + 1 : at;
}

/* Returns the offset after `word` in the tag whose "{%" is at offset `at`.
 * Returns 0 if the tag begins with another word. */
static size_t behind_word(const struct lexer *l, size_t at, const char *word)
{
    at += 2;
    at = skip_space(l, is_sign(l, at) ? at + 1 : at);
    return at_text(l, at, word) ? skip_space(l, at + strlen(word)) : 0;
}

/* Adds a token for the text between l->at and the marker at offset `mark`. The
 * whitespace that the marker strips is left out of the text. */
static void add_data(struct lexer *l, size_t mark)
{
    const char *s = l->s + l->at;
    size_t n = mark - l->at, line = n;
    char sign = mark + 2 < l->len ? l->s[mark + 2] : '\0';

    if (sign == '-') {
        n -= unicode_space_last(s, n);
    } else if (sign != '+' && l->s[mark + 1] != '{') {
        while (line > 0 && s[line - 1] != '\n')
            line--;
        if ((line > 0 || l->line_starts) &&
            unicode_space_first(s + line, n - line) == n - line)
            n = line;
    }
    if (n > 0)
        add_string(l, T_DATA, s, n);
    go_to(l, mark);
}

/* Adds a token for the text between {% raw %}, whose tag ends at offset `at`,
 * and {% endraw %}. */
static void lex_raw(struct lexer *l, size_t at)
{
    go_to(l, at);
    for (size_t mark = at; mark + 1 < l->len; mark++) {
        size_t end, behind;

        if (!at_text(l, mark, "{%"))
            continue;
        end = behind_word(l, mark, "endraw");
        behind = end > 0 ? behind_end(l, end, "%}") : 0;
        if (behind > 0) {
            add_data(l, mark);
            go_to(l, behind);
            return;
        }
    }
    bad(l, "{% raw %} is not closed by {% endraw %}");
}

static void lex_comment(struct lexer *l)
{
    for (size_t at = l->at + 2 + is_sign(l, l->at + 2); at < l->len; at++) {
        size_t behind = behind_end(l, at, "#}");

        if (behind > 0) {
            go_to(l, behind);
            return;
        }
    }
    bad(l, "a comment is not closed by #}");
}

static bool is_word(char c)
{
    return ascii_is_letter_or_digit(c) || c == '_' || (unsigned char)c >= 0x80;
}

/* Returns the number of characters at offset `at` that are digits, or single
 * underscores between digits. */
static size_t digits(const struct lexer *l, size_t at)
{
    size_t n = 0;

    while (at + n < l->len &&
           (isdigit((unsigned char)l->s[at + n]) ||
            (n > 0 && l->s[at + n] == '_' && at + n + 1 < l->len &&
             isdigit((unsigned char)l->s[at + n + 1]))))
        n++;
    return n;
}

/* Returns the length in bytes of the floating-point number at l->at; 0 if there
 * is none. */
static size_t float_length(const struct lexer *l)
{
    size_t n = digits(l, l->at), more, sign;
    bool is_float = false;

    if (n == 0 || (l->at > 0 && l->s[l->at - 1] == '.'))
        return 0;
    if (at_text(l, l->at + n, ".") && (more = digits(l, l->at + n + 1)) > 0) {
        n += 1 + more;
        is_float = true;
    }
    if (at_text(l, l->at + n, "e") || at_text(l, l->at + n, "E")) {
        sign = is_sign(l, l->at + n + 1);
        more = digits(l, l->at + n + 1 + sign);
        if (more > 0)
            return n + 1 + sign + more;
    }
    return is_float ? n : 0;
}

static void lex_number(struct lexer *l)
{
    const char *s = l->s + l->at;
    struct token t = {.kind = T_NUMBER, .value = {.kind = V_FLOAT}};
    struct string text = {.s = s, .len = float_length(l)};
    const char prefix = l->len - l->at > 2 ? ascii_lower(s[1]) : '\0';
    const int base = s[0] != '0'     ? 10
                     : prefix == 'x' ? 16
                     : prefix == 'o' ? 8
                     : prefix == 'b' ? 2
                                     : 10;

    if (text.len > 0) {
        if (!string_to_float(&text, &t.value.f))
            bad(l, "a number is too long");
    } else {
        t.value.kind = V_INT;
        text.len = base == 10 ? digits(l, l->at) : 2;
        while (base != 10 && l->at + text.len < l->len &&
               (ascii_digit(s[text.len]) < base || s[text.len] == '_'))
            text.len++;
        if (!string_to_int(&text, 0, &t.value.i))
            bad(l, "an integer has more than 64 bits");
    }
    add(l, t);
    go_to(l, l->at + text.len);
}

/* Decodes one backslash escape; s[0] is the character after the backslash.
 * Writes the result to `out`, and sets *used to the number of bytes of `s` that
 * were read. Returns the number of bytes written; 0 for an invalid escape or an
 * escaped newline. */
static size_t unescape_one(const char *s, size_t len, char *out, size_t *used)
{
    static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
    const char *p = memchr(from, s[0], sizeof from - 1);
    uint32_t c = 0;
    size_t n = s[0] == 'x' ? 2 : s[0] == 'u' ? 4 : s[0] == 'U' ? 8 : 0, i;

    *used = 1;
    if (s[0] == '\n')
        return 0;
    if (p) {
        out[0] = to[p - from];
        return 1;
    }
    if (n > 0) {
        for (i = 1; i <= n && i < len && ascii_digit(s[i]) < 16; i++)
            c = c << 4 | (uint32_t)ascii_digit(s[i]);
        *used = i;
        return i > n ? unicode_put(out, c) : 0;
    }
    if (s[0] >= '0' && s[0] <= '7') {
        for (i = 0; i < 3 && i < len && s[i] >= '0' && s[i] <= '7'; i++)
            c = c << 3 | (uint32_t)(s[i] - '0');
        *used = i;
        return unicode_put(out, c);
    }
    out[0] = '\\'; /* an unknown escape keeps its backslash, as in Python */
    out[1] = s[0];
    return 2;
}

static void lex_string(struct lexer *l)
{
    char quote = l->s[l->at];
    size_t end = l->at + 1, n = 0;
    char *out;

    while (end < l->len && l->s[end] != quote)
        end += l->s[end] == '\\' ? 2 : 1;
    if (end >= l->len)
        bad(l, "a string is not closed");
    out = work_alloc(l->w, end - l->at, 1);
    if (!out)
        return;
    for (size_t i = l->at + 1; i < end; i++) {
        size_t used, k;

        if (l->s[i] != '\\') {
            out[n++] = l->s[i];
            continue;
        }
        k = unescape_one(l->s + i + 1, end - i - 1, out + n, &used);
        if (k == 0 && l->s[i + 1] != '\n') {
            bad(l, "a string has an escape that is not a valid character");
            return;
        }
        n += k;
        i += used;
    }
    add_string(l, T_STRING, out, n);
    go_to(l, end + 1);
}

static void lex_operator(struct lexer *l)
{
    static const char *const two[] = {"//", "**", "==", "!=", ">=", "<="};
    static const char one[] = "+-/*%~[](){}><=.:|,;";
    static const char opening[] = "([{", closing[] = ")]}";
    struct token t = {.kind = T_OPERATOR};
    const char *p;
    char c = l->s[l->at];

    for (size_t i = 0; i < sizeof two / sizeof two[0]; i++)
        if (at_text(l, l->at, two[i]))
            memcpy(t.op, two[i], 2);
    if (t.op[0] == '\0' && c != '\0' && strchr(one, c))
        t.op[0] = c;
    p = t.op[0] ? strchr(opening, c) : NULL;
    if (t.op[0] == '\0')
        bad(l, "invalid character in an expression");
    else if (p && l->n_open == MAX_NESTED)
        bad(l, "brackets nest too deeply");
    else if (p)
        l->open[l->n_open++] = closing[p - opening];
    else if (strchr(closing, c) &&
             (l->n_open == 0 || l->open[--l->n_open] != c))
        bad(l, "closing bracket without an opening one");
    if (l->at == l->len)
        return;
    add(l, t);
    go_to(l, l->at + strlen(t.op));
}

/* Returns the offset after the marker that ends the current tag, "}}" if
 * `print`, else "%}". Returns 0 if the marker is not at l->at. */
static size_t behind_tag(const struct lexer *l, bool print)
{
    if (l->n_open > 0)
        return 0;
    if (!print)
        return behind_end(l, l->at, "%}");
    if (at_text(l, l->at, "-}}"))
        return skip_space(l, l->at + 3);
    return at_text(l, l->at, "}}") ? l->at + 2 : 0;
}

/* Adds the tokens of the tag at l->at, including its opening and closing
 * marker. `print`: the tag is {{ ... }}, else {% ... %}. */
static void lex_tag(struct lexer *l, bool print)
{
    size_t behind;

    add_op(l, print ? "{{" : "{%");
    go_to(l, l->at + 2 + is_sign(l, l->at + 2));
    l->n_open = 0;
    for (;;) {
        size_t end;
        char c;

        go_to(l, skip_space(l, l->at));
        if (l->at == l->len) {
            bad(l, print ? "{{ is not closed by }}" : "{% is not closed by %}");
            return;
        }
        behind = behind_tag(l, print);
        if (behind > 0)
            break;
        c = l->s[l->at];
        if (isdigit((unsigned char)c)) {
            lex_number(l);
        } else if (is_word(c)) {
            for (end = l->at; end < l->len && is_word(l->s[end]);)
                end++;
            add_string(l, T_NAME, l->s + l->at, end - l->at);
            go_to(l, end);
        } else if (c == '\'' || c == '"') {
            lex_string(l);
        } else {
            lex_operator(l);
        }
    }
    add_op(l, print ? "}}" : "%}");
    go_to(l, behind);
}

/* Copies the text of the template to l->s. Each kind of newline becomes \n, and
 * a newline at the end of the text is left out. */
static void normalize(struct lexer *l, const char *text, size_t len)
{
    char *s = work_alloc(l->w, len, 1);

    for (size_t i = 0; s && i < len; i++) {
        s[l->len++] = text[i] == '\r' ? '\n' : text[i];
        if (text[i] == '\r' && i + 1 < len && text[i + 1] == '\n')
            i++;
    }
    if (l->len > 0 && s[l->len - 1] == '\n')
        l->len--;
    l->s = s;
}

const struct token *lex_template(struct work *w, const char *text, size_t len)
{
    struct lexer l = {.w = w, .line_starts = true};

    w->line = 1;
    normalize(&l, text, len);
    while (l.at < l.len) {
        size_t mark = l.at, raw = 0;

        while (mark < l.len && !at_text(&l, mark, "{{") &&
               !at_text(&l, mark, "{%") && !at_text(&l, mark, "{#"))
            mark++;
        if (mark == l.len) {
            add_string(&l, T_DATA, l.s + l.at, mark - l.at);
            break;
        }
        add_data(&l, mark);
        if (l.s[mark + 1] == '%')
            raw = behind_word(&l, mark, "raw");
        if (raw > 0 && at_text(&l, raw, "-%}"))
            lex_raw(&l, skip_space(&l, raw + 3));
        else if (raw > 0 && at_text(&l, raw, "%}"))
            lex_raw(&l, raw + 2);
        else if (l.s[mark + 1] == '#')
            lex_comment(&l);
        else
            lex_tag(&l, l.s[mark + 1] == '{');
    }
    add(&l, (struct token){.kind = T_END});
    return w->status == PL_OK ? l.token : NULL;
}
