/* The clock of devices, device_now(), by the processors' time that this process
 * has had, for laws that are about time: beside other work on the machine it
 * goes as slowly as the process does. */
#ifndef TEST_OWN_CLOCK_H
#define TEST_OWN_CLOCK_H

#include <stdbool.h>

void own_clock(bool on);

#endif
