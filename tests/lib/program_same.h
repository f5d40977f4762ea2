/* Compares programs field by field, as far as the fields have a meaning. */
#ifndef TEST_PROGRAM_SAME_H
#define TEST_PROGRAM_SAME_H

#include "program/program.h"

/* Returns NULL if the programs p[n_dev] and q[n_dev] are the same; else text
 * that names the first difference, "device 1, variant 0, step 12: queue". It is
 * valid until the next call. */
const char *program_difference(const struct program *p, const struct program *q,
                               int n_dev);

/* Fails the case unless the programs' text parses into the same programs, and
 * these print the same text. */
void program_reads_back(const struct program *p, int n_dev);

#endif
