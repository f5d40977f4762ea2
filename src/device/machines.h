/* The machines of a job: the processes that MPI has started together, each with
 * devices of its own. Each describes its devices to machine 0 when it joins.
 * Later machine 0 sends, with each plan, the devices of all machines to the
 * others (engine/machine_plan.c). */
#ifndef DEVICE_MACHINES_H
#define DEVICE_MACHINES_H

#include "device/device.h"
#include "device/network_open.h"
#include "device/network_watch.h"

#include "pl_machines.h"

/* Session messages. */
enum machines_tag {
    MACHINES_HELLO = NETWORK_SESSION, /* to machine 0 */
    MACHINES_WELCOME,                 /* from machine 0: all have joined */
    MACHINES_LINKS, /* to machine 0: networks that were measured */
    MACHINES_READY, /* to machine 0: ready for a plan */
    MACHINES_PLAN,  /* from machine 0 */
    MACHINES_BYE,   /* from machine 0: end; and the answer to it */
};

enum { MACHINES_NAME = 64, MACHINES_NOTE = 1 << 20 };

/* Bytes that a machine tells machine 0 when it joins, MACHINES_NOTE at most;
 * this layer does not read them. */
struct machines_note {
    void *data;
    size_t bytes;
};

struct pl_machines {
    const struct network_module *module; /* NULL for another carrier */
    struct network *carrier;
    struct network_watch *watch;
    struct network *net; /* that of the watch */
    double join_s;
    bool send_weights; /* machine 0 sends weights, others load none */
    bool busy;         /* an engine uses the machines */
    bool broken;       /* machine 0: a plan failed after it was sent */
    bool ended;        /* machine 0 has ended the job, and was answered */
    /* This machine's devices, named and numbered as in all plans. */
    struct device_list own;
    /* The devices of all machines: on machine 0 without, on others with those
     * of the host and io, because machine 0 has described them. */
    struct device_desc *dev; /* [n_dev], owned */
    int n_dev;
    uint64_t kernel_sets; /* bit k: all machines can run kernel set k */
    /* On machine 0: [n_machine] names, and [n_machine * n_machine] the networks
     * between machines, as in struct device_list; owned. */
    char (*name)[MACHINES_NAME];
    struct machine_link *link;
    bool links_kept; /* all of them were measured before, or are kept now */
    /* On machine 0, [n_machine]: the notes of the others, owned. The caller of
     * machines_join() sets measured[] from them: the rates that a machine has
     * measured of itself, in memory of malloc(), or NULL. */
    struct machines_note *note;
    struct calibration **measured;
};

/* Returns how many seconds a machine waits for the others. */
double machines_join_limit_s(const pl_machines_options *how);

/* Joins over a carrier, which is borrowed, and is closed by `module` unless
 * that is NULL. `network` names the carrier and what it uses, under which
 * measurements are kept; NULL: they are not kept. `note` is this machine's; it
 * may be NULL. Returns when all machines have joined. If that fails, *out is
 * still set if the machines have to be left. */
pl_status machines_join(pl_machines **out, const struct network_module *module,
                        struct network *carrier, const char *network,
                        const pl_options *opt, const pl_machines_options *how,
                        const struct machines_note *note, pl_err *err);

/* Tells all other machines that this one cannot take part any more. */
void machines_fail(pl_machines *m, const pl_err *why);

/* Sets *out to the devices of all machines. */
pl_status machines_list(struct device_list *out, const pl_machines *m,
                        pl_err *err);
/* Sets *out to the set with the name `cpu`, or to the best that all machines
 * can run if `cpu` is NULL. */
pl_status machines_kernel_set(enum kernel_set *out, const pl_machines *m,
                              const char *cpu, pl_err *err);

/* Devices as bytes of a message. */
size_t machines_devices_bytes(int n);
void machines_write_devices(unsigned char *to, const struct device_desc *dev,
                            int n);
/* Reads n devices from `bytes` bytes of machine `from`, and checks them. Fails
 * if the bytes are not those of n devices that this version can have. */
pl_status machines_read_devices(struct device_desc *dev, int n,
                                const unsigned char *data, size_t bytes,
                                int from, pl_err *err);

#endif
