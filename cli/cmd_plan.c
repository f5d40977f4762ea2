/* plait plan: what would happen, without reading a weight. */
#include "cmd.h"
#include "session.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static void write_svg(void *user, const char *text, size_t len)
{
    fwrite(text, 1, len, user);
}

static enum exit_code draw(const struct options *o, const pl_plan *plan)
{
    FILE *f = fopen(o->svg, "wb");
    pl_status r;
    pl_err err;
    bool bad;

    if (f == NULL)
        return complain(o->command, EXIT_FAILED, "opening %s: %s", o->svg,
                        strerror(errno));
    r = pl_plan_svg(plan, write_svg, f, &err);
    bad = ferror(f) != 0;
    if ((fclose(f) != 0 || bad) && r == PL_OK)
        return complain(o->command, EXIT_FAILED, "writing %s: %s", o->svg,
                        strerror(errno));
    return r == PL_OK ? EXIT_DONE : report(o, r, &err);
}

enum exit_code cmd_plan(const struct options *o)
{
    struct session s;
    pl_plan *plan = NULL;
    pl_err err;
    pl_status r;
    enum exit_code c;

    if (o->pl.devices != NULL && o->pl.device_spec != NULL)
        return complain(o->command, EXIT_USAGE,
                        "-dev and --device-spec both name the devices; leave "
                        "one out");
    c = session_open(&s, o);
    if (c != EXIT_DONE)
        goto done;
    r = pl_plan_create(&plan, s.model, &s.pl, &err);
    if (r == PL_OK)
        r = pl_plan_print(plan, o->json, write_out, NULL, &err);
    c = r == PL_OK ? finish_out(o) : report(o, r, &err);
    if (c == EXIT_DONE && o->svg != NULL)
        c = draw(o, plan);
done:
    pl_plan_free(plan);
    c = session_close(&s, c);
    return c;
}
