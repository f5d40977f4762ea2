/* Grammars of all sorts, common ones and hard ones, with which bench-grammar
 * finds the token masks that take longest. */
#ifndef BENCH_BATTERY_H
#define BENCH_BATTERY_H

#include <stdbool.h>

struct battery_item {
    const char *name;
    const char *text; /* text of the grammar: GBNF, or a JSON Schema */
    bool schema;
};

enum { BATTERY_MOST = 64 };

/* Fills item[] and returns the number of grammars in it. Their texts stay in
 * memory until the program ends. */
int battery_make(struct battery_item item[BATTERY_MOST]);

#endif
