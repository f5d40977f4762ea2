/* Grammars in GBNF, the notation of llama.cpp:
 *
 *   name ::= ...       a rule; the text matched is what `root` says
 *   "text"             literal; escapes \n \r \t \\ \" \[ \] \xHH \uHHHH
 *                      \UHHHHHHHH, each of which is a character
 *   [a-z0-9_] [^"\\]   one character of a class, or not of it; the same escapes
 *   .                  any character
 *   a b    a | b       one after another; either. An alternative may be empty
 *   ( )                a group
 *   a* a+ a? a{n} a{n,} a{n,m}    repetition of what stands before
 *   # ...              a comment up to the end of the line
 *
 * A rule ends with its line, but inside a group, and behind "|" and "::=".
 * Names are letters, digits, "-" and "_". Tokens of a vocabulary, <...>, which
 * llama.cpp knows, are refused. */
#ifndef GRAMMAR_GBNF_H
#define GRAMMAR_GBNF_H

#include "grammar/rule_tree.h"

/* What a grammar may have at most. */
enum {
    GBNF_BYTES = 1 << 20,
    GBNF_RULES = 4096,
    GBNF_TREES = 65536, /* literals, classes, groups, ... */
    GBNF_DEPTH = 64,    /* groups in one another */
    GBNF_TIMES = 10000, /* the largest count of a repetition */
};

/* `name` is what messages call the text. PL_BAD_ARGUMENT says line, column and
 * what to do. Zeroes *r first; on failure nothing is held. */
pl_status gbnf_read(struct rules *r, const char *text, size_t len,
                    const char *name, pl_err *err);

#endif
