/* Declarations shared by graph_text.c and graph_parse.c, which print and parse
 * the text form of graphs. */
#ifndef GRAPH_GRAPH_TEXT_H
#define GRAPH_GRAPH_TEXT_H

#include "base/text_out.h"
#include "graph/graph.h"

/* Returns true if character c may occur in a name without quotes. */
bool graph_text_plain(char c);

/* Names of roles in upper case, such as "FFN_UP". The text form has them in
 * lower case. */
extern const char *const graph_role_names[PL_ROLE_COUNT];

/* Prints the attributes that are not zero, such as " scale=2 n_rot=16". */
void graph_put_attr(struct text_out *o, const struct graph_attr *a);

#endif
