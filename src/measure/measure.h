/* Measuring what cost/calibration.h keeps, by running small graphs. */
#ifndef MEASURE_MEASURE_H
#define MEASURE_MEASURE_H

#include "cost/calibration.h"

/* Fills in the rates of threads, in a few seconds. */
pl_status measure_machine(struct calibration *c, enum kernel_set set,
                          bool no_pin, const struct topology *t, pl_err *err);

struct measure_device_options {
    enum kernel_set kernel_set;
    bool no_pin;
    /* tests: seconds of another clock; NULL: of this machine's */
    double (*now)(void *user);
    void *user;
};

/* Measures all devices of the list that have processors of their own, each once
 * and for some ten seconds, then each two of them, and puts what it finds in
 * place of what was known of them. An error names the device, and *c is as it
 * was. */
pl_status measure_devices(struct calibration *c, const struct device_list *l,
                          const struct measure_device_options *opt,
                          pl_err *err);

#endif
