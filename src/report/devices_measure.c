/* pl_devices_measure: calibrates, keeps what it found, and prints it. */
#include "base/err.h"
#include "cost/calibration.h"
#include "engine/probe.h"
#include "machine/topology.h"
#include "plan/options_read.h"
#include "quant/format.h"
#include "report/sink.h"

#include <string.h>

static void say_formats(const struct sink *to, const struct calibration *c)
{
    sink_say(to,
             "\nweights      GB/s from caches, 1 token   Gmac/s under many\n"
             "              1 thread     %3d threads   1 thread  %3d threads\n",
             c->n_core, c->n_core);
    for (int f = 0; f < PL_FORMAT_COUNT; f++) {
        const struct format_info *i = format_info((pl_format)f);

        if (i->pack)
            sink_say(to, "  %-8s %11.4g %15.4g %10.4g %12.4g\n", i->name,
                     c->one.bytes_per_s[f] * 1e-9,
                     c->all.bytes_per_s[f] * 1e-9 * c->n_core,
                     c->one.macs_per_s[f] * 1e-9,
                     c->all.macs_per_s[f] * 1e-9 * c->n_core);
    }
}

static void say_others(const struct sink *to, const struct calibration *c)
{
    const struct cost_rates *a = &c->one, *b = &c->all;
    const struct {
        const char *what;
        double one, all;
    } rows[] = {
        {"attention, one token    Gmac/s", a->attention_one * 1e-9,
         b->attention_one * 1e-9 * c->n_core},
        {"attention, many tokens  Gmac/s", a->attention_many * 1e-9,
         b->attention_many * 1e-9 * c->n_core},
        {"other ops             Gvalue/s", 1e-9 / a->value_s,
         1e-9 / b->value_s * c->n_core},
        {"copies to a device        GB/s", a->copy_bytes_per_s * 1e-9,
         b->copy_bytes_per_s * 1e-9 * c->n_core},
        {"messages of 2 devices     GB/s", a->link_bytes_per_s * 1e-9,
         b->link_bytes_per_s * 1e-9},
        {"  each, beside its bytes    us", a->message_s * 1e6,
         b->message_s * 1e6},
        {"a step, beside its work     us", a->step_s * 1e6, b->step_s * 1e6},
        {"a run, beside its steps     us", a->run_s * 1e6, b->run_s * 1e6},
    };

    sink_say(to, "\n%43s %11d threads\n", "1 thread", c->n_core);
    for (int i = 0; i < COST_READS; i++)
        sink_say(to, "%3.0f MiB of weights, read   GB/s %10.4g %19.4g\n",
                 rates_read_bytes(i) / (1 << 20), a->read_bytes_per_s[i] * 1e-9,
                 b->read_bytes_per_s[i] * 1e-9 * c->n_core);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        sink_say(to, "%-32s %10.4g %19.4g\n", rows[i].what, rows[i].one,
                 rows[i].all);
}

pl_status pl_devices_measure(const pl_options *opt, bool json,
                             pl_write_fn *write, void *user, pl_err *err)
{
    struct sink to = {write, user};
    enum cpu_family f = cpu_family_best();
    char path[CALIBRATION_PATH];
    const struct topology *t;
    struct calibration c;
    pl_options own;
    pl_err why;
    pl_status s;
    bool kept;

    if (!write)
        return err_set(err, PL_BAD_ARGUMENT,
                       "pl_devices_measure: write must not be NULL");
    PL_TRY(options_read(&own, opt, err));
    if (own.cpu && *own.cpu)
        f = cpu_family_from_name(own.cpu);
    if (f == CPU_FAMILY_COUNT || !cpu_family_runs(f))
        return err_set(err, PL_UNSUPPORTED,
                       "this machine cannot run kernels of the family '%s'; "
                       "its best are %s",
                       own.cpu, cpu_family_name(cpu_family_best()));
    PL_TRY(topology_open(&t, err));
    s = calibration_measure(&c, f, own.no_pin, t, err);
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
        return sink_json(&to, o, "what was measured", err);
    }
    sink_say(&to, "processor  %s\ncores      %d\nkernels    %s\n", c.cpu,
             c.n_core, cpu_family_name(f));
    say_formats(&to, &c);
    say_others(&to, &c);
    if (kept)
        sink_say(&to, "\nkept for later plans in %.400s\n", path);
    else
        sink_say(&to, "\nnot kept for later plans: %.400s\n", why.message);
    return PL_OK;
}
