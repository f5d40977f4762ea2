/* Measures the figures of cost/calibration.h by running small graphs. */
#ifndef MEASURE_MEASURE_H
#define MEASURE_MEASURE_H

#include "cost/calibration.h"

/* Fills in the rates of threads, in a few seconds. */
pl_status measure_machine(struct calibration *c, enum kernel_set set,
                          bool no_pin, const struct topology *t, pl_err *err);

struct measure_device_options {
    enum kernel_set kernel_set;
    bool no_pin;
    /* tests: the seconds of another clock; NULL: this machine's */
    double (*now)(void *user);
    void *user;
};

/* Measures all devices of the list that have their own processors, each once
 * for some ten seconds, then each pair of them. Replaces their earlier figures.
 * An error names the device, and *c is then unchanged. */
pl_status measure_devices(struct calibration *c, const struct device_list *l,
                          const struct measure_device_options *opt,
                          pl_err *err);

#endif
