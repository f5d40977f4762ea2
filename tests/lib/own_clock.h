/* Makes device_now(), the clock of devices, count the processor time of this
 * process, for tests that depend on time. On a busy machine it goes as slowly
 * as the process does. */
#ifndef TEST_OWN_CLOCK_H
#define TEST_OWN_CLOCK_H

#include <stdbool.h>

void own_clock(bool on);

#endif
