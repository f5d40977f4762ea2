/* Grammars of all sorts, both common and hard ones, to find which masks take
 * longest. */
#ifndef BENCH_BATTERY_H
#define BENCH_BATTERY_H

#include <stdbool.h>

struct battery_item {
    const char *name;
    const char *text; /* GBNF, or a JSON Schema */
    bool schema;
};

enum { BATTERY_MOST = 64 };

/* Fills in `item` and returns the number of items. Its memory stays until the
 * program ends. */
int battery_make(struct battery_item item[BATTERY_MOST]);

#endif
