/* What a kind of device must do: one row of functions, and what it may use of
 * the set that it stands in. doc/adding.md goes through them in the order in
 * which one writes them.
 *
 * The devices of one kind in a set are opened together, as a *bank*: they may
 * share threads, a driver's context, a connection. All functions are called by
 * the set, from one thread at a time, and but for wait() none of them during a
 * run; the exceptions are write() and read(), see there.
 *
 * A run: the set calls submit() of every bank, then wait() of every bank.
 * Between them each device goes through its script: the steps of a queue in
 * their order, those that insn_enabled() leaves out passed over; a WAIT until
 * the flag of its event shows the run's number or more; a POST by setting the
 * device's own flag to that number, when all that stands before it in its queue
 * can be seen by those who wait for it. A PUSH writes into the inbox of another
 * device, PAGES may; PULL, PAGES and a MERGE that meets read memory of others;
 * the rest is work on the device's own.
 *
 * A device that cannot go on calls device_fail(); all others see
 * device_failed() wherever they wait, and leave, and wait() must return soon
 * after. The set can then be run again: a failed run may leave anything in work
 * memory and inboxes, and nothing else behind. */
#ifndef DEVICE_DEVICE_OPS_H
#define DEVICE_DEVICE_OPS_H

#include <stdatomic.h>

#include "device/device.h"

struct backend;
struct device_item; /* device_spec.h */
struct gpu_driver;  /* gpu/gpu_driver.h */
struct gpu_info;    /* listed_gpu.h */
struct topology;    /* machine/topology.h */

/* A counter with one writer, alone on its cache lines (two, since processors
 * fetch them in pairs). It only grows: a reader waits for a value or more, and
 * may sleep where the writer counts up by device_flag_raise(). */
struct device_flag {
    _Alignas(128) _Atomic uint64_t v;
    _Atomic uint32_t
        wake_count; /* rung so often, for those who sleep; a futex */
    atomic_int n_asleep;
};

/* Wakes who sleeps until the flag is higher. */
void device_flag_wake(struct device_flag *f);
/* Who is about to sleep says so before it looks a last time; here the flag
 * counts up before it is asked who sleeps. */
static inline void device_flag_raise(struct device_flag *f, uint64_t value)
{
    atomic_store(&f->v, value);
    if (atomic_load(&f->n_asleep) > 0)
        device_flag_wake(f);
}

/* A device of a set. */
struct device {
    void *own; /* the kind's; owned by it */
    /* Where the regions lie for those whom desc.memory lets read them in place,
       and for device_map(). The kind sets and clears these but for the inbox's,
       which is the set's: there from load() to unload(), zeroed, at one address
       in every process. All NULL where desc.memory is -1, but the inbox. */
    unsigned char *at[REGION_COUNT];
    int fail_insn; /* tests: the device fails instead of this step; -1: never */
    uint64_t differs; /* its kernels give other bits than all others': its
                         name's hash; 0: they do not. Set by load() */
    /* ---- the set's; a kind reads them */
    struct device_desc desc;
    struct backend *backend;    /* of its kind */
    const struct program *prog; /* borrowed while the set is loaded */
    size_t bytes[REGION_COUNT]; /* as the program has them */
    size_t scratch_bytes;       /* what scratch() said; the kind allocates it */
    struct device_flag *event;  /* [prog->n_event] number of the last run that
                                   reached it, raised by this device alone; in
                                   memory as the inbox */
    size_t event_bytes;
    /* ---- counters, by device_count() and device_trace_add() */
    size_t first_timing; /* its room in the trace */
    int n_timing;
    uint64_t macs[PL_MAX_RANKS], n_collective, collective_bytes, copies,
        copy_bytes;
    /* Seconds, as pl_device_counters has them; all that the kind can tell. What
       is left of a run is waiting. */
    struct device_times {
        double busy_s, reduce_s, copy_s;
    } spent;
};

/* Adds what a step that touches memory took. */
static inline void device_add_time(struct device_times *x,
                                   const struct insn *st, double seconds)
{
    if (insn_is_group_copy(st))
        x->copy_s += seconds;
    else if (insn_is_collective(st) || insn_is_transfer(st))
        x->reduce_s += seconds;
    else
        x->busy_s += seconds;
}

/* All devices of one kind in a set. */
struct backend {
    const struct backend_ops *ops;
    struct device_set *set;
    int n, *dev; /* [n] indices in the set, ascending; owned by the set */
    void *own;   /* the kind's; owned by it. NULL: not opened, and unload() is
                    not called */
};

struct backend_ops {
    const char *name;                /* as -dev and --device-spec spell it */
    const char *accepts;             /* how an item looks, for errors */
    const struct gpu_driver *driver; /* of a kind of GPU; NULL: it takes each
                                        GPU by that of another kind */
    bool wakes_waiters; /* its devices raise events by device_flag_raise(), so
                           waiting threads may sleep */
    bool uses_caller_thread; /* wait() has the caller's thread compute, so this
                            kind's comes before all others'; one kind can */

    /* ---- before anything is opened; pure ---- */

    /* Appends the devices that an item of a -dev string means. `it` has the
     * kind's name. Uses device_list_append or device_item_append. What it says
     * of memory, reads and one_queue decides what steps programs have for the
     * device: see device_desc. */
    pl_status (*describe)(struct device_list *l, const struct device_item *it,
                          pl_err *err);
    /* The GPUs that its driver shows, up to `max`, with what memory is free now
     * and why any of them cannot be used: what `plait devices` prints. `ops` is
     * this kind's row. NULL: it has none to show. */
    pl_status (*show)(const struct backend_ops *ops, struct gpu_info *out,
                      int max, int *n, pl_err *err);
    /* Appends the host's devices, as device_list_add_host has them. NULL: the
     * kind makes no hosts. */
    pl_status (*add_host)(struct device_list *l, int n_rank, int n_thread,
                          const struct topology *t, pl_err *err);
    /* Has it this kernel, for the formats of these tensors (the program's)? A
     * program with a kernel that its device lacks is not loaded. */
    bool (*has_kernel)(const struct device_desc *d,
                       const struct device_options *opt,
                       const struct insn_kernel *k,
                       const struct prog_tensor *t);
    /* The forms that its kernels read weights of a format in, and what they
     * multiply them with; programs are made so. A weight that is wanted in
     * both ways is stored twice. */
    enum packing (*packing)(const struct device_desc *d, pl_format f,
                            enum weight_use use);
    enum activations (*activations)(const struct device_desc *d,
                                    const struct device_options *opt,
                                    pl_format f);
    /* Bytes beside the regions that it needs to run the program; plans count
     * them against the device's memory. */
    size_t (*scratch)(const struct device_desc *d,
                      const struct device_options *opt,
                      const struct program *p);
    /* May threads of these two of its devices be the same? They could not
     * meet. The bank is open. NULL: never. */
    bool (*share_threads)(const struct backend *b, int dev_a, int dev_b);

    /* ---- a bank ---- */

    /* Starts what the devices need to run, and sets b->own; they have no
     * programs yet. NULL: the kind can be planned for, not run on. */
    pl_status (*open)(struct backend *b, pl_err *err);
    void (*close)(struct backend *b); /* takes half-opened ones, and those
                                             whose open() was not called */
    /* Memory for the regions of all its devices, but for the inboxes, which are
     * there, and for their scratch; zeroed or poisoned, since programs read
     * nothing that was not written. Derives from the programs, which passed
     * program_check(), what it needs to know of them. */
    pl_status (*load)(struct backend *b, pl_err *err);
    void (*unload)(struct backend *b); /* takes half-loaded ones, and those
                                              whose load() was not called */

    /* ---- memory; ranges are inside the region, which may be the inbox.
     * Several threads may call these at once, for ranges that do not overlap.
     * Never during a run ---- */
    pl_status (*write)(struct device *d, enum region r, size_t offset,
                       const void *src, size_t bytes, pl_err *err);
    pl_status (*read)(struct device *d, enum region r, size_t offset, void *dst,
                      size_t bytes, pl_err *err); /* sees all written before */
    /* What was written has arrived. NULL: write() does not return before. */
    pl_status (*flush)(struct device *d, pl_err *err);

    /* ---- a run ---- */
    /* Takes over the sizes of device_set_current_run() and sets the devices
     * going, without waiting for any of them. What fails here fails the run. */
    void (*submit)(struct backend *b);
    /* Returns when all its devices have gone through their scripts, or have
     * left them. */
    void (*wait)(struct backend *b);
    /* All devices of the set have ended the run; the guard is open. May be
     * NULL. */
    void (*ended)(struct backend *b);
};

/* The kinds that -dev and --device-spec know, NULL at the end. A program may
 * link a table of its own: see device_backends.c. A set takes devices of any
 * kind, in the table or not. */
extern const struct backend_ops *const device_backends[];
#define KIND(name) extern const struct backend_ops name##_ops;
#include "device/device_backends.def"
#undef KIND

/* ---- what a kind may use ------------------------------------------------ */

struct device *device_of(struct device_set *s, int dev);
int device_set_size(const struct device_set *s);
/* This machine's, NULL where the list of devices has none. */
const struct topology *device_set_topology(const struct device_set *s);
const struct device_options *device_set_options(const struct device_set *s);
/* Threads that the devices of other banks keep busy: with more than the machine
 * has cores none should spin for long. */
int device_set_threads(const struct device_set *s, const struct backend *but);

/* The run in progress, and its number, which grows from run to run and begins
 * with 1. From submit() until all banks' wait() have returned; any thread. */
const struct device_run *device_set_current_run(const struct device_set *s,
                                                uint64_t *number);
static inline const struct variant *device_variant(const struct device *d,
                                                   const struct device_run *run)
{
    return &d->prog->variant[run->variant];
}

/* For kinds whose devices live in processes of their own, forked while a set is
 * loaded. There, the set is a copy: inherit() takes from it what is the
 * parent's business, adopt() tells it of a run in progress, borrowed until the
 * next. Inboxes, events, failures and the trace are shared. */
void device_set_inherit(struct device_set *s);
void device_set_adopt(struct device_set *s, const struct device_run *run,
                      uint64_t number);

/* The device fails the run; the first message stays. step: of the script, -1:
 * none. Any thread, from submit() until the bank's wait() returns. */
void device_fail(struct device_set *s, const struct device *d, int step,
                 const char *what);
/* Returns true in a forked copy of the process that made the set. Memory of
 * devices is not there, nor are their threads; what lies at its addresses now
 * may be something else's. */
bool device_set_is_copy(const struct device_set *s);
/* A device is lost that may still read and write what it was given of this
 * process's memory: nothing of it is given back any more, nor comes other
 * memory to its place, of which a driver would believe that it has it. */
void device_set_quarantine(struct device_set *s);
/* Returns true after that, and in a forked copy. */
bool device_set_is_quarantined(const struct device_set *s);
/* Set when a device has failed the run: everybody leaves. */
const atomic_bool *device_failed(const struct device_set *s);

/* Counts what a step does; once a step, by its device, one thread of it at a
 * time. rows: product of the result's dimensions but the last, for a kernel
 * that has costs; bytes: what a copy moves. */
void device_count(struct device *d, const struct insn *st,
                  const struct graph_sizes *z, int64_t rows, double bytes);

/* Between two looks of a thread that waits without sleeping. */
static inline void device_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb");
#endif
}

/* ---- timing ---- */
double device_now(void); /* seconds, of a clock that never goes back */
/* Sleeps until device_now() is `end`, to a few microseconds, or until *stop is
 * set, which is looked at now and then; NULL: it never is. */
void device_sleep(double end, const atomic_bool *stop);
bool device_traces(const struct device_set *s);
double device_clock(const struct device_set *s); /* since the run's start */
/* A time of device_now(), counted so. */
double device_since(const struct device_set *s, double now);
/* A step of the device has ended, by device_clock(); one thread of it at a
 * time. Only of a set that traces, only steps that touch memory, each once. */
void device_trace_add(struct device_set *s, struct device *d, int step,
                      double begin, double end);

/* ---- the guard: see device_options.guard. Whoever touches this process's
 * memory for a step does it between enter and leave, which do nothing in a set
 * that is not guarded ---- */

/* Whole pages, zeroed, that a guard can protect; NULL: there are none. */
void *device_guard_alloc(size_t bytes);
void device_guard_dealloc(void *p, size_t bytes);
bool device_guarded(const struct device_set *s);
/* Where region r of the device lies, of device_guard_alloc. */
void device_guard_region(struct device_set *s, const struct device *d,
                         enum region r, void *p);
/* Around a step: nothing else is in reach, and no other thread works. */
void device_guard_enter(struct device_set *s, const struct device *d,
                        const struct insn *st);
void device_guard_leave(struct device_set *s);

#endif
