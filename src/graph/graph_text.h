/* What printing and reading the text form of graphs share. */
#ifndef GRAPH_GRAPH_TEXT_H
#define GRAPH_GRAPH_TEXT_H

#include "pl.h"

/* May stand in a name without quotes. */
bool graph_text_plain(char c);

/* "FFN_UP"; printed and read in lower case. */
extern const char *const graph_role_names[PL_ROLE_COUNT];

#endif
