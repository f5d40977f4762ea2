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

/* Limits of a grammar in GBNF. One that exceeds them is rejected. */
enum {
    GBNF_BYTES = 1 << 20,
    GBNF_RULES = 4096,
    /* Limit of the number of nodes of all rule trees: literals, character
     * classes, sequences and so on. */
    GBNF_TREES = 65536,
    GBNF_DEPTH = 64,    /* maximum nesting of groups, as ((...)) */
    GBNF_TIMES = 10000, /* greatest n or m of {n,m} */
};

/* Comments of a grammar that begin with this text name requirements of a JSON
 * Schema that the grammar does not enforce. schema.c writes them and
 * grammar_notes returns them. */
#define GBNF_NOTE "#~ "

/* Parses a grammar in GBNF and sets *r to its rules. `tokens` finds tokens of
 * the vocabulary by text; if it is NULL, a grammar that names tokens is
 * rejected. `name` stands for the grammar in messages. Returns PL_BAD_ARGUMENT
 * for an invalid grammar; the message gives line, column and a remedy. Zeroes
 * *r first; on failure *r holds no memory. */
pl_status gbnf_read(struct rules *r, const char *text, size_t len,
                    const struct grammar_tokens *tokens, const char *name,
                    pl_err *err);

#endif
