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

/* A device with its own processors, such as a GPU, and its measured rates. The
 * rates apply only to a device with the same backend, title, bus address and
 * driver version, because another driver may be faster. */
struct calibrated_device {
    char kind[16]; /* name of the backend, such as "cuda" */
    /* Product name, PCI bus address and driver version, as in struct
     * device_desc. */
    char title[96], bus[24], version[96];
    struct cost_rates rates;
};

struct calibration {
    char cpu[128]; /* name of the processor, as in /proc/cpuinfo */
    int n_core;
    enum kernel_set kernel_set;
    /* Rates of one thread while it runs alone, and while n_core threads run.
     * The cost of a collective in them was measured between two CPU devices
     * that have these threads between them, at least one thread each. */
    struct cost_rates one, all;
    int n_device;
    struct calibrated_device device[CALIBRATION_DEVICES];
    /* [n_machine] measurements of other machines, as in struct device_list;
     * borrowed; NULL if there are none */
    int n_machine;
    struct calibration *const *machine;
};

/* ---- table of the fields of struct cost_rates --------------------------- */

struct calibration_field {
    const char *name; /* name of the field in struct cost_rates and in the
                         calibration file */
    size_t at;        /* offset of the field in struct cost_rates, in bytes; the
                         field is a double */
    const char *what; /* description of the rate, printed by `plait devices` */
    enum {
        CALIBRATION_SECONDS, /* the field is a duration in seconds */
        CALIBRATION_RATE,    /* the field is a rate per second that does not add
                                up over threads */
        CALIBRATION_SUM      /* a rate per second that adds up over the threads
                                of a device */
    } kind;
};

extern const struct calibration_field calibration_field[CALIBRATION_FIELDS];

/* The fields that are measured for a device with its own processors. Rates of
 * copies between two such devices are 0 if the machine had only one of them
 * when it was measured. */
extern const struct calibration_field
    calibration_device_field[CALIBRATION_DEVICE_FIELDS];
bool calibration_may_lack(const struct calibration_field *f);

/* Returns the address of field f in `r`. */
double *calibration_value(struct cost_rates *r,
                          const struct calibration_field *f);

/* ---- rates of this machine's CPU devices --------------------------------- */

/* Sets the processor's name, the number of cores and the kernel set of *c. The
 * rates stay 0. */
void calibration_init(struct calibration *c, enum kernel_set set,
                      const struct topology *t);

/* Returns the rates of n threads together, given the rates `one` of each. */
struct cost_rates calibration_times(struct cost_rates one, double n);

/* Uses also what other machines of the list have measured. */
void calibration_add_machines(struct calibration *c,
                              const struct device_list *l);
/* Returns the calibration of a machine. One that was not measured with these
 * kernels is taken for one like this. */
const struct calibration *calibration_of(const struct calibration *c,
                                         int machine);

/* Returns true if the calibration applies to the devices: those of each machine
 * together have at most as many threads as it has cores. Rates with more
 * threads than cores were not measured. */
bool calibration_covers(const struct calibration *c,
                        const struct device_list *l);
/* Sets rates[d] for each CPU device d of the list. Assumes that all CPU
 * devices, or all threads of the host, run at once. `weights` is the total size
 * of all weights in bytes; if the processor's caches can hold them, they are
 * read faster. Skips devices whose rates come from their description. */
void calibration_rates(const struct calibration *c, const struct device_list *l,
                       uint64_t weights, struct cost_rates *rates);

/* ---- rates of GPUs: calibration_device.c -------------------------------- */

/* Returns the record in *c with the measured rates of device d, or NULL if the
 * device was not measured. */
const struct calibrated_device *calibration_device(const struct calibration *c,
                                                   const struct device_desc *d);
/* Returns true if `a` and `b` describe the same device: backend, title, bus
 * address and driver version are equal. */
bool calibration_same_device(const struct calibrated_device *a,
                             const struct calibrated_device *b);
/* Sets backend, title, bus address and driver version in *out to those of
 * device d. The rates stay 0. */
void calibration_name_device(struct calibrated_device *out,
                             const struct device_desc *d);
/* Stores the measured device *d in *c. Replaces an earlier entry for the same
 * device, else appends one. If there are already CALIBRATION_DEVICES entries,
 * drops the first. */
void calibration_put_device(struct calibration *c,
                            const struct calibrated_device *d);
/* Sets rates[d] for each device d of the list whose measured rates are in
 * *c. */
void calibration_device_rates(const struct calibration *c,
                              const struct device_list *l,
                              struct cost_rates *rates);

/* ---- file of the calibration: calibration_file.c ------------------------ */

/* Sets `path` to the path of the calibration file in the cache directory. Fails
 * if the environment names no cache directory. */
pl_status calibration_path(char path[CALIBRATION_PATH],
                           const struct calibration *c, pl_err *err);
/* Reads the calibration of this machine and kernel set from its file in the
 * cache directory. Returns NOT_FOUND if the file does not exist or is
 * damaged. */
pl_status calibration_load(struct calibration *c, enum kernel_set set,
                           const struct topology *t, pl_err *err);
/* Writes *c to its file in the cache directory atomically, creating the
 * directory if needed. */
pl_status calibration_save(const struct calibration *c, pl_err *err);
/* Returns the calibration as the JSON that its file contains, or NULL if out of
 * memory. */
json_t *calibration_json(const struct calibration *c);
/* The same as text for another machine, allocated by malloc. */
char *calibration_text(const struct calibration *c);
/* Sets *c to the calibration in text[n], that of another machine. Returns false
 * if it is damaged, or of another version. */
bool calibration_parse(struct calibration *c, const char *text, size_t n);

#endif
