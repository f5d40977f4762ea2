/* What this machine's cores do, measured once and kept: rates of a thread alone
 * and of each of as many as there are cores, from which those of any devices on
 * these cores follow. So a plan need not measure, and plans made at different
 * times are estimated alike.
 *
 * Kept in $XDG_CACHE_HOME/plait, else ~/.cache/plait, in a file a processor,
 * number of cores, kernel set and version. A file that is damaged counts as
 * none. */
#ifndef COST_CALIBRATION_H
#define COST_CALIBRATION_H

#include "base/cache_place.h"
#include "cost/cost.h"

#include <jansson.h>

enum { CALIBRATION_PATH = CACHE_PATH, CALIBRATION_FIELDS = 8 };

struct calibration {
    char cpu[128]; /* the processor's name */
    int n_core;
    enum kernel_set kernel_set;
    /* Of a thread while 1 and while n_core are at work. Messages: of two
     * devices that share these threads, at least one each. */
    struct cost_rates one, all;
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
