/* Measures the rates that cost/calibration.h stores, by running small
 * graphs. */
#ifndef MEASURE_MEASURE_H
#define MEASURE_MEASURE_H

#include "cost/calibration.h"

/* Sets *c to the calibration of this machine: measures the rates of one thread
 * alone, and of one thread while all of them work. Takes a few seconds. */
pl_status measure_machine(struct calibration *c, enum kernel_set set,
                          bool no_pin, const struct topology *t, pl_err *err);

struct measure_device_options {
    enum kernel_set kernel_set;
    bool no_pin;
    /* clock that returns seconds, for tests; NULL for this machine's clock */
    double (*now)(void *user);
    void *user;
};

/* Measures each device of the list that has its own processors, in about ten
 * seconds each, then each pair of such devices. The results replace the
 * devices' earlier rates in *c. An error names the device and leaves *c
 * unchanged. */
pl_status measure_devices(struct calibration *c, const struct device_list *l,
                          const struct measure_device_options *opt,
                          pl_err *err);

#endif
