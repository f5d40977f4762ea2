/* Implements pl_devices_measure: measures the rates of this machine, stores
 * them as its calibration (cost/calibration.h) and prints them. */
#include "base/err.h"
#include "base/numeral.h"
#include "base/whole_json.h"
#include "cost/calibration.h"
#include "machine/topology.h"
#include "measure/measure.h"
#include "plan/options_read.h"
#include "report/writer.h"

#include <stdlib.h>
#include <string.h>

/* Prints the rates of one thread alone and, beside them, those of all threads.
 * A rate per second that adds up over threads is that of all threads
 * together. */
static void say_rates(const struct sink *to, const struct calibration *c)
{
    struct cost_rates one = c->one, all = calibration_times(c->all, c->n_core);

    writer_printf(to, "\n%43s %11d threads\n", "1 thread", c->n_core);
    for (int i = 0; i < CALIBRATION_FIELDS; i++) {
        const struct calibration_field *f = &calibration_field[i];
        double unit = f->kind == CALIBRATION_SECONDS ? 1e6 : 1e-9;

        writer_printf(to, "%-32s %10.4g %19.4g\n", f->what,
                      *calibration_value(&one, f) * unit,
                      *calibration_value(&all, f) * unit);
    }
}

static void say_device(const struct sink *to, const struct calibrated_device *d)
{
    struct cost_rates r = d->rates;

    writer_printf(to, "\n%s: %s%s%s%s%s\n", d->kind, d->title,
                  d->bus[0] ? ", " : "", d->bus, d->version[0] ? ", " : "",
                  d->version);
    for (int i = 0; i < CALIBRATION_DEVICE_FIELDS; i++) {
        const struct calibration_field *f = &calibration_device_field[i];
        double unit = f->kind == CALIBRATION_SECONDS ? 1e6 : 1e-9;

        if (*calibration_value(&r, f) > 0)
            writer_printf(to, "%-32s %10.4g\n", f->what,
                          *calibration_value(&r, f) * unit);
    }
}

/* Sets *l to the GPUs that the options name, or to all GPUs of the machine if
 * they name none. The list may be empty. */
static pl_status find_devices(struct device_list *l, const pl_options *opt,
                              pl_err *err)
{
    pl_status s = device_parse(l, opt->devices ? opt->devices : "gpu", 0, err);

    return !opt->devices && s == PL_UNSUPPORTED ? PL_OK : s;
}

/* Measures the machine's cores and the GPUs of list l. Sets *c to the results,
 * and keeps the earlier results of GPUs that are not in the list. */
static pl_status measure(struct calibration *c, const pl_options *opt,
                         enum kernel_set set, const struct topology *t,
                         const struct device_list *l, pl_err *err)
{
    const struct measure_device_options o = {.kernel_set = set,
                                             .no_pin = opt->no_pin};
    struct calibration known;

    if (calibration_load(&known, set, t, NULL) != PL_OK)
        known.n_device = 0;
    PL_TRY(measure_devices(&known, l, &o, err));
    PL_TRY(measure_machine(c, set, opt->no_pin, t, err));
    c->n_device = known.n_device;
    memcpy(c->device, known.device, sizeof c->device);
    return PL_OK;
}

/* Prints a JSON value and releases the reference to it. */
static pl_status say_json(const struct sink *to, json_t *o, pl_err *err)
{
    locale_t before = numeral_begin();
    char *s = whole_json_dumps(o, JSON_INDENT(2));

    numeral_end(before);
    json_decref(o);
    if (!s)
        return err_no_memory(err, "the measurements");
    to->write(to->user, s, strlen(s));
    to->write(to->user, "\n", 1);
    free(s);
    return PL_OK;
}

pl_status pl_devices_measure(const pl_options *opt, bool json,
                             pl_write_fn *write, void *user, pl_err *err)
{
    struct sink to = {write, user};
    enum kernel_set set;
    char path[CALIBRATION_PATH];
    struct device_list l = {0};
    const struct topology *t;
    struct calibration c;
    pl_options own;
    pl_err why;
    pl_status s;
    bool kept;

    PL_NEED(write, err);
    PL_TRY(options_read(&own, opt, err));
    PL_TRY(kernel_set_find(&set, own.cpu, false, err));
    PL_TRY(topology_open(&t, err));
    s = find_devices(&l, &own, err);
    if (s == PL_OK)
        s = measure(&c, &own, set, t, &l, err);
    device_list_free(&l);
    topology_drop(t);
    PL_TRY(s);
    kept = calibration_save(&c, &why) == PL_OK &&
           calibration_path(path, &c, &why) == PL_OK;
    if (json) {
        json_t *o = calibration_json(&c);

        if (json_object_set_new(o, "file",
                                kept ? json_string(path) : json_null()) != 0) {
            json_decref(o);
            o = NULL;
        }
        return say_json(&to, o, err);
    }
    writer_printf(&to, "processor  %s\ncores      %d\nkernels    %s\n", c.cpu,
                  c.n_core, kernel_set_name(set));
    say_rates(&to, &c);
    for (int i = 0; i < c.n_device; i++)
        say_device(&to, &c.device[i]);
    if (kept)
        writer_printf(&to, "\nsaved for later plans in %.400s\n", path);
    else
        writer_printf(&to, "\nnot saved for later plans: %.400s\n",
                      why.message);
    return PL_OK;
}
