/* Joins the machines of a job over MPI. Each machine tells machine 0 the rates
 * that it has measured of itself (`plait devices --measure`), so that estimates
 * of plans know how fast it is. */
#include "base/err.h"
#include "base/numeral.h"
#include "base/sized.h"
#include "cost/calibration.h"
#include "device/machines.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Sets *out to the text of this machine's calibration, allocated by malloc; to
 * NULL if it was not measured. */
static pl_status own_note(struct machines_note *out, pl_err *err)
{
    struct device_list l;
    struct calibration c;
    pl_status s;

    *out = (struct machines_note){NULL, 0};
    PL_TRY(device_parse(&l, DEVICE_DEFAULT, 0, err));
    s = calibration_load(&c, kernel_set_best(), l.topology, err);
    device_list_free(&l);
    if (s == PL_NO_MEMORY)
        return s;
    if (s == PL_OK)
        out->data = calibration_text(&c);
    out->bytes = out->data ? strlen(out->data) : 0;
    return PL_OK;
}

/* Reads the notes of the other machines. One that is damaged counts as none. */
static pl_status read_notes(pl_machines *m, pl_err *err)
{
    for (int k = 1; m->note && k < m->net->n_machine; k++) {
        struct calibration *c;

        if (m->note[k].bytes == 0)
            continue;
        c = malloc(sizeof *c);
        if (!c)
            return err_no_memory(err, "the measurements of other machines");
        if (calibration_parse(c, m->note[k].data, m->note[k].bytes))
            m->measured[k] = c;
        else
            free(c);
    }
    return PL_OK;
}

/* ---- the start of MPI ---------------------------------------------------- */

/* The thread that waits until MPI has started. MPI itself waits without limit
 * for a process that does not come. */
struct start {
    const pl_machines_options *how;
    double limit_s;
    pthread_t thread;
    pthread_mutex_t lock; /* protects `done` */
    pthread_cond_t changed;
    bool done;
};

static void *await_start(void *user)
{
    struct start *x = user;
    struct timespec end;
    char text[224];
    bool late = false;

    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += (time_t)ceil(x->limit_s);
    pthread_mutex_lock(&x->lock);
    while (!x->done && !late)
        late = pthread_cond_timedwait(&x->changed, &x->lock, &end) == ETIMEDOUT;
    late = !x->done;
    pthread_mutex_unlock(&x->lock);
    if (!late)
        return NULL;
    numeral_print(text, sizeof text,
                  "not all machines have started within %.3g s; see whether "
                  "plait starts on each and what firewalls are between them, "
                  "or wait longer (--join-timeout)",
                  x->limit_s);
    x->how->lost(x->how->user, text);
    return NULL;
}

/* Opens the carrier of a module. Calls how->lost() if that takes too long. */
static pl_status open_carrier(struct network **net,
                              const struct network_module *module,
                              const struct network_kind *kind,
                              const pl_machines_options *how, pl_err *err)
{
    struct start x = {.how = how,
                      .limit_s = machines_join_limit_s(how),
                      .lock = PTHREAD_MUTEX_INITIALIZER};
    char why[NETWORK_MODULE_ERROR];
    pthread_condattr_t clock;
    bool ok;
    int e;

    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&x.changed, &clock);
    pthread_condattr_destroy(&clock);
    e = how->lost ? pthread_create(&x.thread, NULL, await_start, &x) : 0;
    if (e) {
        pthread_cond_destroy(&x.changed);
        return err_no_thread(err, "the start of MPI", e);
    }
    ok = module->open(net, why);
    pthread_mutex_lock(&x.lock);
    x.done = true;
    pthread_cond_signal(&x.changed);
    pthread_mutex_unlock(&x.lock);
    if (how->lost)
        pthread_join(x.thread, NULL);
    pthread_cond_destroy(&x.changed);
    return ok ? PL_OK : err_set(err, PL_DEVICE, "%s: %s", kind->name, why);
}

static pl_status join(pl_machines **out, const struct network_kind *kind,
                      const pl_options *opt, const pl_machines_options *how,
                      pl_err *err)
{
    char network[NETWORK_TEXT];
    const struct network_module *module;
    struct machines_note note;
    struct network *net;
    pl_status s;

    PL_TRY(network_open_module(&module, kind, err));
    PL_TRY(own_note(&note, err));
    network_describe(kind, network);
    s = open_carrier(&net, module, kind, how, err);
    if (s == PL_OK)
        s = machines_join(out, module, net, network, opt, how, &note, err);
    free(note.data);
    return s == PL_OK ? read_notes(*out, err) : s;
}

pl_status pl_machines_join(pl_machines **out, const pl_options *opt,
                           const pl_machines_options *how, pl_err *err)
{
    pl_machines_options own = {.size = sizeof own};
    const struct network_kind *kind;
    pl_options o;
    pl_status s;
    int n;

    PL_CLEAR(out);
    PL_NEED(out, err);
    pl_options_init(&o);
    if (opt)
        PL_TRY(sized_read(&o, sizeof o, opt, "pl_options",
                          "call pl_options_init", err));
    if (how)
        PL_TRY(sized_read(&own, sizeof own, how, "pl_machines_options", NULL,
                          err));
    kind = network_started(&n);
    if (!kind)
        return err_set(err, PL_BAD_ARGUMENT,
                       "this process is not one of several that mpirun has "
                       "started; use mpirun -n 2 or more");
    s = join(out, kind, &o, &own, err);
    if (s != PL_OK) {
        pl_err told = {.message = ""};

        if (err)
            told = *err;
        pl_machines_leave(*out, &told);
        *out = NULL;
    }
    return s;
}
