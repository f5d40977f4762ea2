/* The calibration of this machine, measured once and cached: rates of one
 * thread, and of a thread while every core has one. The rates of any devices on
 * these cores follow from these. It also has the rates of each measured GPU. So
 * a plan need not measure, and plans made at different times are estimated
 * alike.
 *
 * Cached in $XDG_CACHE_HOME/plait, else ~/.cache/plait, in a file per
 * processor, number of cores, kernel set and version. GPUs are identified by
 * driver, name, PCI address and driver version. A damaged file is ignored. */
#ifndef COST_CALIBRATION_H
#define COST_CALIBRATION_H

#include "base/cache_place.h"
#include "cost/cost.h"

#include <jansson.h>

enum {
    CALIBRATION_PATH = CACHE_PATH,
    CALIBRATION_FIELDS = 8,
    CALIBRATION_DEVICES = 64,
    CALIBRATION_DEVICE_FIELDS = 13,
};

/* A device with its own processors, and its measured rates. All of its names
 * identify it, because another driver may make it faster. */
struct calibrated_device {
    char kind[16];                        /* "cuda": whose kernels were
                                             measured */
    char title[96], bus[24], version[96]; /* as in device_desc */
    struct cost_rates rates;
};

struct calibration {
    char cpu[128]; /* the processor's name */
    int n_core;
    enum kernel_set kernel_set;
    /* A thread's rates while 1 and while n_core threads work. Collectives: of
     * two devices that share these threads, at least one each. */
    struct cost_rates one, all;
    int n_device;
    struct calibrated_device device[CALIBRATION_DEVICES];
};

/* ---- fields ------------------------------------------------------------- */

struct calibration_field {
    const char *name; /* in struct cost_rates, and in the file */
    size_t at;        /* a double in struct cost_rates */
    const char *what; /* description, for printing */
    enum {
        CALIBRATION_SECONDS, /* a duration */
        CALIBRATION_RATE,    /* per second */
        CALIBRATION_SUM      /* a rate that adds up over threads */
    } kind;
};

extern const struct calibration_field calibration_field[CALIBRATION_FIELDS];

/* Fields of a device with its own processors. Rates between it and similar
 * devices are 0 if there was no other. */
extern const struct calibration_field
    calibration_device_field[CALIBRATION_DEVICE_FIELDS];
bool calibration_may_lack(const struct calibration_field *f);

/* Returns the field's value in `r`. */
double *calibration_value(struct cost_rates *r,
                          const struct calibration_field *f);

/* ---- this machine's ------------------------------------------------------ */

/* Sets the names of the machine, not the rates. */
void calibration_init(struct calibration *c, enum kernel_set set,
                      const struct topology *t);

/* Returns the rates of n threads together, each with the rates of `one`. */
struct cost_rates calibration_times(struct cost_rates one, double n);

/* Returns true if the devices have no more threads than cores: oversubscription
 * was not measured. */
bool calibration_covers(const struct calibration *c,
                        const struct device_list *l);
/* Sets rates[l->n]. A plan's cpu devices all work at once, and so do the host's
 * threads. weights: the bytes of all of them, to decide if caches hold them.
 * Devices with rates from their description are skipped. */
void calibration_rates(const struct calibration *c, const struct device_list *l,
                       uint64_t weights, struct cost_rates *rates);

/* ---- calibration_device.c ----------------------------------------------- */

/* Returns the measured rates of this device, or NULL. */
const struct calibrated_device *calibration_device(const struct calibration *c,
                                                   const struct device_desc *d);
/* Returns true if both are the same device. */
bool calibration_same_device(const struct calibrated_device *a,
                             const struct calibrated_device *b);
/* Sets the names of the device, not the rates. */
void calibration_name_device(struct calibrated_device *out,
                             const struct device_desc *d);
/* Replaces the device's entry, or appends one; if there are too many, drops the
 * first. */
void calibration_put_device(struct calibration *c,
                            const struct calibrated_device *d);
/* Sets rates[l->n] of each device of the list that was measured. */
void calibration_device_rates(const struct calibration *c,
                              const struct device_list *l,
                              struct cost_rates *rates);

/* ---- calibration_file.c ------------------------------------------------- */

/* Returns the file's path; fails if the environment names no directory. */
pl_status calibration_path(char path[CALIBRATION_PATH],
                           const struct calibration *c, pl_err *err);
/* NOT_FOUND: the file does not exist or is damaged. */
pl_status calibration_load(struct calibration *c, enum kernel_set set,
                           const struct topology *t, pl_err *err);
/* Creates the directory and writes the file atomically. */
pl_status calibration_save(const struct calibration *c, pl_err *err);
/* Returns the file's contents; NULL if memory is out. */
json_t *calibration_json(const struct calibration *c);

#endif
