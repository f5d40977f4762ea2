/* Words, numbers and places of the text form of programs, and errors that name
 * line, column, what stands there and what was expected.
 *
 * Blanks are skipped, '#' and what follows in its line too. A line ends a
 * statement, except behind ',' and ';', where it goes on. Any bytes may come,
 * zero among them. Functions that return bool tell false after an error, but
 * those called accept: these take a word only if it stands there. */
#ifndef PROGRAM_PROGRAM_LEX_H
#define PROGRAM_PROGRAM_LEX_H

#include "pl_graph.h"

struct lex {
    const char *at, *end; /* the rest of the text */
    const char *begin;    /* of the line */
    int line;             /* from 1 */
    const char *word;     /* what was read last, or stands next */
    int word_line, word_column;
    pl_err *err;
    pl_status status; /* of the first error */
};

/* "line 3, column 7: ...", the place being that of the last word. */
bool lex_fail(struct lex *x, pl_status s, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* "'it' where a tensor is expected", of what stands next. */
bool lex_expected(struct lex *x, const char *what);

/* To the next line that is not empty; false: there is none. */
bool lex_line(struct lex *x);
/* Does the line end here? */
bool lex_at_end(struct lex *x);
bool lex_need_end(struct lex *x);
/* The next character that is no blank; '\0' at the end of the text. */
char lex_peek(struct lex *x);
bool lex_digit(struct lex *x); /* is it one? */

bool lex_accept(struct lex *x, char c);
bool lex_need(struct lex *x, char c);
/* Letters, digits and '_', the whole of them. */
bool lex_accept_word(struct lex *x, const char *word);
enum { LEX_WORD = 32 };
bool lex_word(struct lex *x, char word[LEX_WORD], const char *what);

bool lex_int(struct lex *x, int64_t lo, int64_t hi, int64_t *out);
bool lex_float(struct lex *x, float *out);
/* "64", "n_tok", "4*n_tok" */
bool lex_dim(struct lex *x, pl_dim *out);

#endif
