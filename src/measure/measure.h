/* Measures the rates in cost/calibration.h by running small graphs. */
#ifndef MEASURE_MEASURE_H
#define MEASURE_MEASURE_H

#include "cost/calibration.h"

/* Initialises *c and measures the rates of one thread, and of each thread while
 * all of them work. Takes a few seconds. */
pl_status measure_machine(struct calibration *c, enum kernel_set set,
                          bool no_pin, const struct topology *t, pl_err *err);

struct measure_device_options {
    enum kernel_set kernel_set;
    bool no_pin;
    /* a clock in seconds, for tests; NULL for this machine's */
    double (*now)(void *user);
    void *user;
};

/* Measures each device of the list that has processors of its own, in about ten
 * seconds, then each pair of such devices. Replaces their earlier rates in *c.
 * An error names the device and leaves *c unchanged. */
pl_status measure_devices(struct calibration *c, const struct device_list *l,
                          const struct measure_device_options *opt,
                          pl_err *err);

#endif
