/* Grammars in GBNF, the notation of llama.cpp:
 *
 *   name ::= ...       a rule; texts match the rule `root`
 *   "text"             literal; escapes \n \r \t \\ \" \[ \] \xHH \uHHHH
 *                      \UHHHHHHHH, each of which is a character
 *   [a-z0-9_] [^"\\]   one character of a class, or not of it; the same escapes
 *   .                  any character
 *   a b    a | b       sequence; alternatives. An alternative may be empty
 *   ( )                a group
 *   a* a+ a? a{n} a{n,} a{n,m}    repetition of the item before
 *   <[12]> <think>     one token of the vocabulary, by its id, or by its text,
 *                      which includes the brackets
 *   !<[12]> !<think>   any other token that does not end the generation
 *   # ...              a comment up to the end of the line
 *
 * A rule ends with its line, except inside a group and after "|" and "::=".
 * Names are letters, digits, "-" and "_". */
#ifndef GRAMMAR_GBNF_H
#define GRAMMAR_GBNF_H

#include "grammar/grammar.h"
#include "grammar/rule_tree.h"

/* Limits of a grammar. */
enum {
    GBNF_BYTES = 1 << 20,
    GBNF_RULES = 4096,
    /* Limit of the number of literals, classes, groups, ... */
    GBNF_TREES = 65536,
    GBNF_DEPTH = 64,    /* maximum nesting of groups */
    GBNF_TIMES = 10000, /* the largest count of a repetition */
};

/* The beginning of a comment that notes what of a schema a grammar does not
 * enforce. */
#define GBNF_NOTE "#~ "

/* Parses a grammar. `tokens` finds tokens of the vocabulary; NULL if there is
 * none. `name` is the text's name in messages. PL_BAD_ARGUMENT gives line,
 * column and a remedy. Zeroes *r first; on failure it holds no memory. */
pl_status gbnf_read(struct rules *r, const char *text, size_t len,
                    const struct grammar_tokens *tokens, const char *name,
                    pl_err *err);

#endif
