/* What this machine's cores do, measured once and kept: rates of a thread alone
 * and of each of as many as there are cores, from which those of any devices on
 * these cores follow; and rates of each GPU that was measured. So a plan need
 * not measure, and plans made at different times are estimated alike.
 *
 * Kept in $XDG_CACHE_HOME/plait, else ~/.cache/plait, in a file a processor,
 * number of cores, kernel set and version; GPUs stand in it by the driver that
 * runs them, their name, PCI address and driver's version. A file that is
 * damaged counts as none. */
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

/* A device with processors of its own, and what was measured of it. It is found
 * again by all of its names: another driver may make it faster. */
struct calibrated_device {
    char kind[16]; /* "cuda": whose kernels were measured */
    char title[96], bus[24], version[96]; /* as device_desc has them */
    struct cost_rates rates;
};

struct calibration {
    char cpu[128]; /* the processor's name */
    int n_core;
    enum kernel_set kernel_set;
    /* Of a thread while 1 and while n_core are at work. Messages: of two
     * devices that share these threads, at least one each. */
    struct cost_rates one, all;
    int n_device;
    struct calibrated_device device[CALIBRATION_DEVICES];
};

/* ---- what is measured --------------------------------------------------- */

struct calibration_field {
    const char *name; /* in struct cost_rates, and in the file */
    size_t at;        /* a double in struct cost_rates */
    const char *what; /* it is, to be printed */
    enum {
        CALIBRATION_SECONDS, /* that something takes */
        CALIBRATION_RATE,    /* so much a second */
        CALIBRATION_SUM      /* a rate, of which n threads have n times */
    } kind;
};

extern const struct calibration_field calibration_field[CALIBRATION_FIELDS];

/* What is measured of a device with processors of its own. Rates between it and
 * others like it are 0 where there was none beside it. */
extern const struct calibration_field
    calibration_device_field[CALIBRATION_DEVICE_FIELDS];
bool calibration_may_lack(const struct calibration_field *f);

/* The field's value in `r`. */
double *calibration_value(struct cost_rates *r,
                          const struct calibration_field *f);

/* ---- this machine's ------------------------------------------------------ */

/* Names the machine; rates are left alone. */
void calibration_init(struct calibration *c, enum kernel_set set,
                      const struct topology *t);

/* n threads together, each with the rates of `one`. */
struct cost_rates calibration_times(struct cost_rates one, double n);

/* True if the devices have no more threads than there are cores: what a crowd
 * does was not measured. */
bool calibration_covers(const struct calibration *c,
                        const struct device_list *l);
/* rates[l->n]; a plan's cpu devices all work at once, and so do the host's
 * threads. weights: bytes of all of them, which caches hold or do not. What is
 * priced by its description is left alone. */
void calibration_rates(const struct calibration *c, const struct device_list *l,
                       uint64_t weights, struct cost_rates *rates);

/* ---- calibration_device.c ----------------------------------------------- */

/* What was measured of this device; NULL: it was not. */
const struct calibrated_device *calibration_device(const struct calibration *c,
                                                   const struct device_desc *d);
/* Was it the same device? */
bool calibration_same_device(const struct calibrated_device *a,
                             const struct calibrated_device *b);
/* Names the device; rates are left alone. */
void calibration_name_device(struct calibrated_device *out,
                             const struct device_desc *d);
/* Puts it in place of what was known of it, or behind the others; of too many
 * the first is forgotten. */
void calibration_put_device(struct calibration *c,
                            const struct calibrated_device *d);
/* Rates of each device of the list that was measured go into rates[l->n]. */
void calibration_device_rates(const struct calibration *c,
                              const struct device_list *l,
                              struct cost_rates *rates);

/* ---- calibration_file.c ------------------------------------------------- */

/* Where it is kept; an error if the environment names no place. */
pl_status calibration_path(char path[CALIBRATION_PATH],
                           const struct calibration *c, pl_err *err);
/* NOT_FOUND: there is none, or it is damaged. */
pl_status calibration_load(struct calibration *c, enum kernel_set set,
                           const struct topology *t, pl_err *err);
/* Makes the directory; the file is there whole or not at all. */
pl_status calibration_save(const struct calibration *c, pl_err *err);
/* What the file holds; NULL if memory is out. */
json_t *calibration_json(const struct calibration *c);

#endif
