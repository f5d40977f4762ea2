/* The calibration of this machine, measured once and cached. It contains the
 * rates of one thread that runs alone, and of each thread if every core runs
 * one. The rates of any CPU device follow from these. It also contains the
 * rates of each measured GPU. Because of the cache, planning measures nothing,
 * and plans made at different times get the same estimates.
 *
 * The cache directory is that of base/cache_place.h. It has one file per
 * processor model, number of cores, kernel set and version. A GPU is identified
 * by driver, name, PCI address and driver version. A damaged file is
 * ignored. */
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

/* A device with its own processors, such as a GPU, and its measured rates. All
 * of these names, including the driver's version, must match for the rates to
 * apply, because another driver may be faster. */
struct calibrated_device {
    char kind[16];                        /* backend, such as "cuda" */
    char title[96], bus[24], version[96]; /* names as in struct device_desc */
    struct cost_rates rates;
};

struct calibration {
    char cpu[128]; /* the processor's name */
    int n_core;
    enum kernel_set kernel_set;
    /* Rates of one thread while 1 thread runs, and while n_core threads run.
     * The rates of collectives are those of two CPU devices that share these
     * threads, with at least one thread each. */
    struct cost_rates one, all;
    int n_device;
    struct calibrated_device device[CALIBRATION_DEVICES];
};

/* ---- fields ------------------------------------------------------------- */

struct calibration_field {
    const char *name; /* the field's name in struct cost_rates and in the
                         file */
    size_t at;        /* offset of a double in struct cost_rates */
    const char *what; /* description, for printing */
    enum {
        CALIBRATION_SECONDS, /* a duration in seconds */
        CALIBRATION_RATE,    /* a rate per second */
        CALIBRATION_SUM      /* a rate that adds up over threads */
    } kind;
};

extern const struct calibration_field calibration_field[CALIBRATION_FIELDS];

/* Fields of a device with its own processors. Rates of copies between two such
 * devices are 0 if the machine had only one when it was measured. */
extern const struct calibration_field
    calibration_device_field[CALIBRATION_DEVICE_FIELDS];
bool calibration_may_lack(const struct calibration_field *f);

/* Returns the address of field f in `r`. */
double *calibration_value(struct cost_rates *r,
                          const struct calibration_field *f);

/* ---- rates of this machine ----------------------------------------------- */

/* Sets the processor's name, the number of cores and the kernel set of *c. The
 * rates stay 0. */
void calibration_init(struct calibration *c, enum kernel_set set,
                      const struct topology *t);

/* Returns the rates of n threads together, given the rates `one` of each. */
struct cost_rates calibration_times(struct cost_rates one, double n);

/* Returns true if the calibration applies to the devices: together they have at
 * most as many threads as the machine has cores. Rates with more threads than
 * cores were not measured. */
bool calibration_covers(const struct calibration *c,
                        const struct device_list *l);
/* Sets rates[d] for each CPU device d of the list. Assumes that all CPU
 * devices, or all threads of the host, run at once. `weights` is the total size
 * of all weights in bytes; if the processor's caches can hold them, they are
 * read faster. Skips devices whose rates come from their description. */
void calibration_rates(const struct calibration *c, const struct device_list *l,
                       uint64_t weights, struct cost_rates *rates);

/* ---- calibration_device.c ----------------------------------------------- */

/* Returns the entry with the measured rates of device d, or NULL if it was not
 * measured. */
const struct calibrated_device *calibration_device(const struct calibration *c,
                                                   const struct device_desc *d);
/* Returns true if all names of both entries are equal. */
bool calibration_same_device(const struct calibrated_device *a,
                             const struct calibrated_device *b);
/* Sets the names in *out to those of device d. The rates stay 0. */
void calibration_name_device(struct calibrated_device *out,
                             const struct device_desc *d);
/* Replaces the entry with the names of *d, or appends one. If there are already
 * CALIBRATION_DEVICES entries, drops the first. */
void calibration_put_device(struct calibration *c,
                            const struct calibrated_device *d);
/* Sets rates[d] for each device d of the list that has an entry in *c. */
void calibration_device_rates(const struct calibration *c,
                              const struct device_list *l,
                              struct cost_rates *rates);

/* ---- calibration_file.c ------------------------------------------------- */

/* Sets `path` to the path of the cache file. Fails if the environment names no
 * directory. */
pl_status calibration_path(char path[CALIBRATION_PATH],
                           const struct calibration *c, pl_err *err);
/* Reads the calibration of this machine and kernel set from its cache file.
 * Returns NOT_FOUND if the file does not exist or is damaged. */
pl_status calibration_load(struct calibration *c, enum kernel_set set,
                           const struct topology *t, pl_err *err);
/* Writes *c to its cache file atomically, creating the directory if needed. */
pl_status calibration_save(const struct calibration *c, pl_err *err);
/* Returns the contents of the file as JSON, or NULL if out of memory. */
json_t *calibration_json(const struct calibration *c);

#endif
