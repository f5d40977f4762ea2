/* plait plan: what would happen, without reading a weight. */
#include "cmd.h"
#include "session.h"

enum exit_code cmd_plan(const struct options *o)
{
    struct session s;
    pl_plan *plan = NULL;
    pl_err err;
    pl_status r;
    enum exit_code c = session_open(&s, o);

    if (c != EXIT_DONE)
        goto done;
    r = pl_plan_create(&plan, s.model, &s.pl, &err);
    if (r == PL_OK)
        r = pl_plan_print(plan, o->json, write_out, NULL, &err);
    c = r == PL_OK ? finish_out(o) : report(o, r, &err);
done:
    pl_plan_free(plan);
    c = session_close(&s, c);
    return c;
}
