/* The machines of a job: processes that mpirun has started together, with one
 * model split over the devices of all. Each process joins with its own devices.
 * Machine 0 then creates an engine with pl_options.machines and uses it like
 * any other; one engine at a time. The others call pl_machines_serve. All open
 * the same model. */
#ifndef PL_MACHINES_H
#define PL_MACHINES_H

#include "pl.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef void pl_lost_fn(void *user, const char *text);

typedef struct pl_machines_options {
    size_t size;
    double join_s; /* seconds to wait for the other machines; 0 for 30 */
    /* seconds of silence after which a machine is lost; 0 for 5 */
    double silence_s;
    /* Machine 0 sends the weights of the others, instead of each loading its
     * own. Only machine 0's counts. */
    bool send_weights;
    /* Called in a thread of the library some seconds after a machine was lost,
     * or if MPI has not started within join_s, with the reason. The process
     * should end, without calling the library. May be NULL. */
    pl_lost_fn *lost;
    void *user;
    /* The network between all machines, such as "1.17GB/s:30us", for
     * estimates. NULL: it is measured, at the first time that these machines
     * join, in at most 0.3 s for a pair. Only machine 0's counts. */
    const char *network;
    bool measure; /* machine 0 measures again, in about 1 s for a pair */
    bool padding[7];
} pl_machines_options;

/* The messages of a device to devices of other machines, in all steps since the
 * engine's creation. */
typedef struct pl_device_traffic {
    uint64_t messages, bytes;
    int machine; /* number of the device's own machine */
    int padding;
} pl_device_traffic;

/* Returns the number of processes that mpirun has started together with this
 * one, by its environment; 1 if there is no other. */
PL_API int pl_machines_started(void);
/* Returns true if plait's module for an MPI, "Open MPI" or "MPICH", and this
 * MPI itself are installed. */
PL_API bool pl_machines_supports(const char *mpi);
/* Joins the job. Initializes MPI. `opt` has this machine's devices and threads;
 * `how` may be NULL. Returns PL_NOT_FOUND if plait's module for this MPI is not
 * installed, PL_UNSUPPORTED if a machine has another version or architecture,
 * PL_DEVICE if one does not join in time, and on all machines an error if any
 * has one. */
PL_API pl_status pl_machines_join(pl_machines **out, const pl_options *opt,
                                  const pl_machines_options *how, pl_err *err);
PL_API int pl_machines_number(const pl_machines *m); /* of this process */
PL_API int pl_machines_count(const pl_machines *m);
/* On machine 0: prints all machines, their devices, and the networks between
 * them, as text or JSON. */
PL_API pl_status pl_machines_print(const pl_machines *m, bool json,
                                   pl_write_fn *write, void *user, pl_err *err);
/* On a machine other than 0: waits until machine 0 ends the job, without a
 * plan. Returns PL_DEVICE if machine 0 is lost. */
PL_API pl_status pl_machines_await(pl_machines *m, const pl_options *opt,
                                   pl_err *err);
/* On a machine other than 0: executes the plans of machine 0 until that leaves.
 * Only no_pin, progress, log and cancel of `opt` count. */
PL_API pl_status pl_machines_serve(pl_machines *m, const pl_model *model,
                                   const pl_options *opt, pl_err *err);
/* On machine 0: writes the traffic of the first n of the plan's devices to
 * out[n], in the order of pl_engine_devices; `out` may be NULL. `size` is
 * sizeof *out. Returns the number of devices. */
PL_API int pl_engine_traffic(const pl_engine *e, pl_device_traffic *out, int n,
                             size_t size);
/* Ends the job on this machine and frees m, which may be NULL. Machine 0 ends
 * that of all. `why` is the error because of which this machine cannot take
 * part any more, or NULL; others report it. Returns false if another machine is
 * lost: MPI may then be in any state, so the process must end by _exit(). */
PL_API bool pl_machines_leave(pl_machines *m, const pl_err *why);

#ifdef __cplusplus
}
#endif

#endif
