/* What the files of this layer know of a set: its devices with their memory,
 * the run in progress, and the pieces of a step that all kinds do alike. */
#ifndef DEVICE_DEVICE_INNER_H
#define DEVICE_DEVICE_INNER_H

#include "base/topology.h"
#include "device/cpu/cpu_team.h"
#include "device/device.h"

struct sim;   /* sim_run.c */
struct guard; /* device_guard.c */

enum {
    MERGE_MAX_DEPTH = 64, /* of a merge's stack */
    SIM_PARTS = 3,        /* most parts a sim device cuts a kernel into */
};

struct device {
    struct device_desc desc;
    const struct program *prog;           /* borrowed while the set runs */
    unsigned char *base[REGION_COUNT];    /* owned */
    size_t bytes[REGION_COUNT];           /* as the program had them */
    unsigned char *scratch;               /* owned, for all threads */
    size_t scratch_bytes, scratch_stride; /* in all, and a thread's */
    struct cpu_tensor *tensor; /* owned, [prog->n_tensor]; dims of this run */
    struct cpu_batch batch[PROG_MAX_INSTANCE]; /* of this run: cpu the host's
                                                  tables, sim own */
    struct cpu_flag *event; /* owned, [prog->n_event]: last run that did it */
    int fail_step;          /* tests: the device is lost there; -1: never */

    /* cpu: who has arrived at which meeting; see cpu_run.c */
    struct cpu_flag *arrived; /* owned, [n_thread] */
    struct cpu_flag met, released;

    /* Counters, written by the device's first thread; behind the flags, so on
     * cache lines that no peer reads. */
    size_t first_event; /* its room in the trace */
    int n_event;
    uint64_t macs[PL_MAX_RANKS], messages, message_bytes, copies, copy_bytes;
};

/* What a member of the team does: threads of a cpu device, of the host, of
 * both; none: it plays sim devices. */
enum { MEMBER_SEATS = 2 };
struct seat {
    int dev, ith;
};
struct member_seats {
    int n;
    struct seat seat[MEMBER_SEATS];
    int player; /* of sim devices, n = 0 */
};

struct trace {
    bool on;
    double start_s;
    struct device_event *event; /* owned; room for all steps of all devices,
                                   device by device; then those that ran */
    int n;                      /* of the last run, side by side */
};

struct device_set {
    int n;
    struct device *dev; /* owned */
    struct cpu_kernels kernels;
    struct topology topology;      /* loaded if memory can be bound */
    bool one_node;                 /* it is near to all cores alike */
    struct cpu_team *team;         /* owned; cpu threads, then sim's */
    int n_cpu, n_player, n_member; /* player: a thread that plays sims */
    struct sim *sim;               /* owned, NULL without sim devices */
    struct member_seats *seats;    /* owned, [n_member] */
    struct guard *guard;           /* owned, NULL if not asked for */
    struct trace trace;

    /* the run in progress */
    const struct device_run *run;
    uint64_t turn; /* its number, from 1 */
    bool loaded;
    uint32_t resize; /* instances whose tensors' dims must be made anew */
    struct graph_sizes sizes[PROG_MAX_INSTANCE]; /* for which they were made */
    atomic_bool failed; /* everybody leaves; *err tells why */
    atomic_flag err_taken;
    pl_err err;
    uint64_t n_run;
};

/* The device fails the run; the first message stays. */
void device_fail(struct device_set *s, const struct device *d, int step,
                 const char *what);

/* ---- device_call.c ----------------------------------------------------- */

/* Fills in dims for the sizes of a run, of the instances s->resize names. */
void device_resize(const struct device_set *s, struct device *d);

/* The steps of this run. */
static inline const struct script *device_script(const struct device_set *s,
                                                 const struct device *d)
{
    return &d->prog->script[s->run->script];
}

/* A kernel's or quantizer's part ith of nth. */
void device_op(const struct device_set *s, struct device *d,
               const struct step *st, void *scratch, int ith, int nth);

/* The counters of a step; once a step. */
void device_count(const struct device_set *s, struct device *d,
                  const struct step *st);

/* ---- device_merge.c ---------------------------------------------------- */

/* Scratch a thread needs to merge. */
size_t device_merge_scratch(const struct step *st);

void device_merge(const struct device_set *s, const struct device *d,
                  const struct step *st, void *scratch, int ith, int nth);

/* One piece of a PULL. */
void device_pull(const struct device_set *s, const struct device *d,
                 const struct step *st, const struct copy_piece *p, int ith,
                 int nth);

/* Bytes that a PULL or PAGES moves in this run. */
double device_copy_bytes(const struct device_set *s, const struct device *d,
                         const struct step *st);

/* Seconds that the slower of the links takes for it; 0 where links are free. */
double device_copy_seconds(const struct device_set *s, const struct device *d,
                           const struct step *st);

/* ---- device_seats.c ---------------------------------------------------- */

/* Deals the threads of all devices to members of a team, and starts it. */
pl_status device_seats_fill(struct device_set *s, bool no_pin, pl_err *err);
/* True if a thread of the one is a thread of the other too. */
bool device_seats_share(const struct device_set *s, int dev_a, int dev_b);

/* ---- device_trace.c ---------------------------------------------------- */

pl_status device_trace_load(struct device_set *s,
                            pl_err *err); /* room, if on */
void device_trace_start(struct device_set *s);
void device_trace_end(struct device_set *s, bool failed);
double device_now(void); /* seconds, of a clock that never goes back */
double device_clock(const struct device_set *s); /* since the run's start */
/* A step of the device has ended. */
void device_note(const struct device_set *s, struct device *d, int step,
                 double begin, double end);

/* ---- device_guard.c ---------------------------------------------------- */

/* One step of one thread at a time, and a fault where it touches what it may
 * not: see device_options.guard. NULL without a guard is a caller's affair. */
pl_status device_guard_create(struct guard **out, const struct device_set *s,
                              pl_err *err);
void device_guard_free(struct guard *g);
void *device_guard_alloc(size_t bytes); /* zeroed whole pages, or NULL */
void device_guard_dealloc(void *p, size_t bytes);
void device_guard_enter(struct device_set *s, const struct device *d,
                        const struct step *st);
void device_guard_leave(struct device_set *s);
void device_guard_open(struct device_set *s); /* everything, for the host */

/* ---- device_pages.c ---------------------------------------------------- */

void device_pages(const struct device_set *s, const struct device *d,
                  const struct step *st, int ith, int nth);
double device_pages_bytes(const struct device *d, const struct step *st);

/* ---- program_check.c --------------------------------------------------- */

/* Everything that would otherwise go wrong in a run: indices, bounds at the
 * largest sizes, missing kernels, peers read without a meeting, waits that
 * never end. */
pl_status program_check(const struct device_set *s, const struct program *p,
                        pl_err *err);

/* ---- kinds ------------------------------------------------------------- */

/* cpu_run.c: a member goes through the scripts of its devices. */
void cpu_run(struct device_set *s, const struct member_seats *m);

/* sim/sim_run.c: all sim devices' programs, in an order of chance. */
pl_status sim_create(struct sim **out, const struct device_set *s,
                     uint64_t seed, pl_err *err);
void sim_free(struct sim *sim);
pl_status sim_load(struct device_set *s, pl_err *err);
void sim_run(struct device_set *s, int player);
/* How many threads should play them: s->n_player, asked once. */
int sim_players(const struct device_set *s);
/* After a run of all devices: poisons what is dead now. */
void sim_end(struct device_set *s);
/* Waits as long as a link takes, or that many seconds. */
void sim_link(const struct device_desc *d, size_t bytes);
void sim_sleep(double seconds);

#endif
