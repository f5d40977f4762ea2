/* The definition of struct grammar. Private to this layer. */
#ifndef GRAMMAR_GRAMMAR_INNER_H
#define GRAMMAR_GRAMMAR_INNER_H

#include "grammar/automaton.h"
#include "grammar/grammar.h"

struct grammar {
    struct automaton automaton;
};

#endif
