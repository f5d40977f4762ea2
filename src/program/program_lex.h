/* Lexer for the text form of programs: words, numbers and positions, and errors
 * that name line, column, the text found and the text expected.
 *
 * Blanks are skipped, and so are comments: '#' and the rest of its line. The
 * end of a line ends a statement, except after ',' and ';'. The input may
 * contain any bytes, including zero. Functions that return bool return false
 * after an error. lex_accept and lex_accept_word also return false, without an
 * error, if the next character or word is another. */
#ifndef PROGRAM_PROGRAM_LEX_H
#define PROGRAM_PROGRAM_LEX_H

#include "pl_graph.h"

struct lex {
    const char *at, *end; /* next character of the text, and end of the text */
    const char *begin;    /* first character of the present line */
    int line;             /* number of the present line, from 1 */
    const char *word;     /* first character of the last word read, or of the
                             next word */
    int word_line, word_column;
    pl_err *err;
    pl_status status; /* status of the first error, PL_OK if there was none */
};

/* Sets the error "line 3, column 7: ..." with the position of the last word,
 * unless an earlier error is set. Returns false. */
bool lex_fail(struct lex *x, pl_status s, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Sets the error "'word' where WHAT is expected", in which 'word' is the next
 * word of the text. Returns false. */
bool lex_expected(struct lex *x, const char *what);

/* Advances to the next line that is not empty. Returns false at the end of the
 * text. */
bool lex_line(struct lex *x);
/* Returns true if no word is left on the line. */
bool lex_at_end(struct lex *x);
bool lex_need_end(struct lex *x);
/* Returns the next character that is not a blank, without reading it; '\0' at
 * the end of the text. */
char lex_peek(struct lex *x);
bool lex_digit(struct lex *x); /* Returns true if the next character is a
                                  digit. */

bool lex_accept(struct lex *x, char c);
bool lex_need(struct lex *x, char c);
/* Skips the next word of letters, digits and '_' if it equals `word`. */
bool lex_accept_word(struct lex *x, const char *word);
enum { LEX_WORD = 32 };
bool lex_word(struct lex *x, char word[LEX_WORD], const char *what);

bool lex_int(struct lex *x, int64_t lo, int64_t hi, int64_t *out);
/* Reads an integer from 0 to `end` - 1. */
bool lex_below(struct lex *x, int64_t end, int *out);
bool lex_float(struct lex *x, float *out);
/* Reads a dimension such as "64", "n_tok" or "4*n_tok". */
bool lex_dim(struct lex *x, pl_dim *out);

#endif
