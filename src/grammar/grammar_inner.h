/* The definition of struct grammar. Private to this layer. */
#ifndef GRAMMAR_GRAMMAR_INNER_H
#define GRAMMAR_GRAMMAR_INNER_H

#include "grammar/automaton.h"
#include "grammar/grammar.h"

struct grammar {
    struct arena memory; /* owns the automaton and the symbols */
    struct automaton automaton;
    struct token_symbol *symbol; /* [n_symbol]: tokens that the grammar names */
    uint32_t n_symbol;
    char *notes; /* owned: the result of grammar_notes */
};

#endif
