/* plait inspect and plait devices: describe a file, or the machine. */
#include "cmd.h"
#include "session.h"

#include "pl_machines.h"

enum exit_code cmd_inspect(const struct options *o)
{
    pl_model *m = NULL;
    pl_err err;
    pl_status r;

    if (o->model == NULL || o->model[0] == '\0')
        return cli_error(o->command, EXIT_USAGE,
                         "no file; give one, like models/fable-moe-Q8_0.gguf");
    if (o->kv_overrides.n == 0)
        r = pl_inspect(o->model, o->json, write_out, NULL, &err);
    else if ((r = session_model(&m, o, &err)) == PL_OK)
        r = pl_model_inspect(m, o->json, write_out, NULL, &err);
    pl_model_free(m);
    return r == PL_OK ? finish_out(o) : report(o, r, &err);
}

enum exit_code cmd_devices(const struct options *o)
{
    pl_err err;
    pl_status r;

    if (o->pl.machines != NULL) {
        r = pl_machines_print(o->pl.machines, o->json, write_out, NULL, &err);
        return r == PL_OK ? finish_out(o) : report(o, r, &err);
    }
    if (o->pl.devices && !o->measure)
        return cli_error(o->command, EXIT_USAGE,
                         "-dev selects the devices of --measure; without "
                         "--measure all devices are shown");
    r = o->measure ? pl_devices_measure(&o->pl, o->json, write_out, NULL, &err)
                   : pl_devices_print(o->json, write_out, NULL, &err);

    return r == PL_OK ? finish_out(o) : report(o, r, &err);
}
