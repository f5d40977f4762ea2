/* Shared by the printer and the parser of the text form of graphs. */
#ifndef GRAPH_GRAPH_TEXT_H
#define GRAPH_GRAPH_TEXT_H

#include "base/text_out.h"
#include "graph/graph.h"

/* Returns true if c needs no quotes in a name. */
bool graph_text_plain(char c);

/* "FFN_UP"; printed and read in lower case. */
extern const char *const graph_role_names[PL_ROLE_COUNT];

/* Prints " scale=2 n_rot=16": the fields that are not zero. */
void graph_put_attr(struct text_out *o, const struct graph_attr *a);

#endif
