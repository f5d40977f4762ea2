/* Implements program_lex.h, the lexer for the text form of programs. */
#include "program/program_lex.h"

#include "base/err.h"
#include "base/numeral.h"
#include "graph/shape.h"
#include "program/program_form.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Returns true if c is an ASCII digit, whatever the locale. */
static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_word(char c)
{
    return is_digit(c) || c == '_' || (c >= 'a' && c <= 'z') ||
           (c >= 'A' && c <= 'Z');
}

/* Skips blanks and a comment, but not the end of the line, and records the
 * position of the word that follows. */
static void skip_blanks(struct lex *x)
{
    while (x->at < x->end &&
           (*x->at == ' ' || *x->at == '\t' || *x->at == '\r'))
        x->at++;
    if (x->at < x->end && *x->at == '#')
        while (x->at < x->end && *x->at != '\n')
            x->at++;
    x->word = x->at;
    x->word_line = x->line;
    x->word_column = (int)(x->at - x->begin) + 1;
}

char lex_peek(struct lex *x)
{
    skip_blanks(x);
    return x->at < x->end ? *x->at : '\0';
}

bool lex_digit(struct lex *x)
{
    return is_digit(lex_peek(x));
}

bool lex_at_end(struct lex *x)
{
    skip_blanks(x);
    return x->at == x->end || *x->at == '\n';
}

bool lex_line(struct lex *x)
{
    while (lex_at_end(x) && x->at < x->end) {
        x->begin = ++x->at;
        x->line++;
    }
    return x->at < x->end;
}

/* Returns the length in characters of the word at `s`, or n if that is less. */
static int word_length(const struct lex *x, const char *s, int n)
{
    int k = 0;

    while (k < n && s + k < x->end && (unsigned char)s[k] > ' ')
        k++;
    return k;
}

bool lex_fail(struct lex *x, pl_status s, const char *fmt, ...)
{
    char text[400];
    va_list ap;

    if (x->status != PL_OK)
        return false;
    va_start(ap, fmt);
    numeral_vprint(text, sizeof text, fmt, ap);
    va_end(ap);
    x->status = err_set(x->err, s, "line %d, column %d: %s", x->word_line,
                        x->word_column, text);
    return false;
}

bool lex_expected(struct lex *x, const char *what)
{
    char it[40];
    int n;

    skip_blanks(x);
    n = word_length(x, x->at, 36);
    if (x->at == x->end)
        snprintf(it, sizeof it, "the end of the text");
    else if (*x->at == '\n')
        snprintf(it, sizeof it, "the end of the line");
    else
        snprintf(it, sizeof it, "'%.*s'", n > 0 ? n : 1, n > 0 ? x->at : "?");
    for (char *s = it; *s; s++)
        if (*s < 32 || *s > 126)
            *s = '?';
    return lex_fail(x, PL_BAD_ARGUMENT, "%s where %s is expected", it, what);
}

bool lex_need_end(struct lex *x)
{
    return lex_at_end(x) || lex_expected(x, "the end of the line");
}

bool lex_accept(struct lex *x, char c)
{
    skip_blanks(x);
    if (x->at == x->end || *x->at != c)
        return false;
    x->at++;
    if (c == ',' || c == ';')
        lex_line(x);
    return true;
}

bool lex_need(struct lex *x, char c)
{
    char what[] = {'\'', c, '\'', '\0'};

    return lex_accept(x, c) || lex_expected(x, what);
}

bool lex_accept_word(struct lex *x, const char *word)
{
    size_t n = strlen(word);

    skip_blanks(x);
    if ((size_t)(x->end - x->at) < n || memcmp(x->at, word, n) != 0 ||
        ((size_t)(x->end - x->at) > n && is_word(x->at[n])))
        return false;
    x->at += n;
    return true;
}

bool lex_word(struct lex *x, char word[LEX_WORD], const char *what)
{
    int n = 0;

    skip_blanks(x);
    while (x->at + n < x->end && is_word(x->at[n]))
        n++;
    if (n == 0 || n >= LEX_WORD || is_digit(*x->at))
        return lex_expected(x, what);
    memcpy(word, x->at, (size_t)n);
    word[n] = '\0';
    x->at += n;
    return true;
}

bool lex_int(struct lex *x, int64_t lo, int64_t hi, int64_t *out)
{
    const char *s;
    bool minus, over = false;
    int64_t v = 0;

    skip_blanks(x);
    s = x->at;
    minus = s < x->end && *s == '-';
    s += minus;
    if (s == x->end || !is_digit(*s))
        return lex_expected(x, "an integer");
    for (; s < x->end && is_digit(*s); s++)
        over |= __builtin_mul_overflow(v, 10, &v) ||
                __builtin_sub_overflow(v, *s - '0', &v);
    if (s < x->end && is_word(*s))
        return lex_expected(x, "an integer");
    if (!minus)
        over |= __builtin_sub_overflow(0, v, &v);
    if (over || v < lo || v > hi)
        return lex_fail(x, PL_BAD_ARGUMENT,
                        "'%.*s' is outside %" PRId64 " .. %" PRId64,
                        (int)(s - x->at < 30 ? s - x->at : 30), x->at, lo, hi);
    x->at = s;
    *out = v;
    return true;
}

bool lex_below(struct lex *x, int64_t end, int *out)
{
    int64_t v;

    if (!lex_int(x, 0, end - 1, &v))
        return false;
    *out = (int)v;
    return true;
}

bool lex_float(struct lex *x, float *out)
{
    char buf[64], *end;
    int n = 0;

    skip_blanks(x);
    while (x->at + n < x->end && n < (int)sizeof buf - 1 &&
           (is_word(x->at[n]) || (x->at[n] && strchr("+-.", x->at[n]))))
        n++;
    memcpy(buf, x->at, (size_t)n);
    buf[n] = '\0';
    *out = numeral_float(buf, &end);
    if (n == 0 || *end)
        return lex_expected(x, "a number");
    x->at += n;
    return true;
}

bool lex_dim(struct lex *x, pl_dim *out)
{
    char c = lex_peek(x);
    bool factor = c == '-' || is_digit(c);
    struct lex first;

    *out = (pl_dim){1, PL_CONST};
    if (factor && !lex_int(x, 0, FORM_MAX_BYTES, &out->n))
        return false;
    first = *x;
    if (factor && !lex_accept(x, '*'))
        return true;
    if (factor && out->n > INT32_MAX) {
        *x = first;
        return lex_fail(x, PL_BAD_ARGUMENT,
                        "%" PRId64
                        " times a size exceeds the limit of %d times",
                        out->n, INT32_MAX);
    }
    for (int i = PL_N_TOK; i <= (int)GRAPH_N_SEQ; i++)
        if (lex_accept_word(x, dim_symbols[i])) {
            out->symbol = (pl_symbol)i;
            return true;
        }
    return lex_expected(x, factor ? "n_tok, n_out, n_slot or n_seq"
                                  : "a size, n_tok, n_out, n_slot or n_seq");
}
