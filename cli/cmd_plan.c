/* plait plan: prints the plan without reading any weight. */
#include "atomic_file.h"
#include "cmd.h"
#include "drafts.h"
#include "session.h"

#include <string.h>

static enum exit_code draw(const struct options *o, const pl_plan *plan)
{
    struct whole_file w;
    enum exit_code c = atomic_file_open(&w, o, "--svg", o->svg);
    pl_status r;
    pl_err err;

    if (c != EXIT_DONE)
        return c;
    r = pl_plan_svg(plan, whole_write, &w, &err);
    return atomic_file_close(&w, o, r == PL_OK,
                             r == PL_OK ? c : report(o, r, &err));
}

enum exit_code cmd_plan(const struct options *o)
{
    struct session s;
    pl_plan *plan = NULL;
    pl_err err;
    pl_status r;
    enum exit_code c;
    bool alone = o->svg != NULL && strcmp(o->svg, "-") == 0;

    if (alone && o->json)
        return cli_error(o->command, EXIT_USAGE,
                         "--json and --svg - both write to standard output; "
                         "give --svg a file");
    if (o->dump != NULL && (o->json || alone))
        return cli_error(o->command, EXIT_USAGE,
                         "--dump and %s both write to standard output; leave "
                         "one out",
                         o->json ? "--json" : "--svg -");
    if (o->pl.devices != NULL && o->pl.device_spec != NULL)
        return cli_error(o->command, EXIT_USAGE,
                         "-dev and --device-spec both name the devices; leave "
                         "one out");
    c = session_open(&s, o);
    if (c != EXIT_DONE)
        goto done;
    /* rows of logits as in `plait run`, because the plan shows that command's
     * buffers */
    s.pl.n_out = drafts_rows(o);
    s.pl.mtp_texts = drafts_mtp_texts(o, s.model, 1);
    r = pl_plan_create(&plan, s.model, &s.pl, &err);
    if (r == PL_OK && o->dump != NULL)
        r = pl_plan_dump(plan, o->dump, write_out, NULL, &err);
    else if (r == PL_OK && !alone)
        r = pl_plan_print(plan, o->json, write_out, NULL, &err);
    c = r == PL_OK ? finish_out(o) : report(o, r, &err);
    if (c == EXIT_DONE && o->svg != NULL)
        c = draw(o, plan);
done:
    pl_plan_free(plan);
    c = session_close(&s, c);
    return c;
}
