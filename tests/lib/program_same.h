/* Programs compared field by field, as far as their fields have a meaning. */
#ifndef TEST_PROGRAM_SAME_H
#define TEST_PROGRAM_SAME_H

#include "program/program.h"

/* NULL: p[n_dev] and q[n_dev] are the same. Else what differs, "device 1,
 * script 0, step 12: queue"; it stays until the next call. */
const char *program_difference(const struct program *p, const struct program *q,
                               int n_dev);

/* Fails unless the programs' text reads back as the same programs, which print
 * the same. */
void program_reads_back(const struct program *p, int n_dev);

#endif
