/* The interface of a backend: one row of functions, and what it may use of its
 * device set. doc/adding.md describes them in the order of writing them.
 *
 * The devices of one backend in a set are opened together: they may share
 * threads, a driver's context, a connection. The set calls all functions, from
 * one thread at a time. Only wait() is called during a run. The exceptions are
 * write() and read(), see there.
 *
 * A run: the set calls submit() of every backend, then wait() of every backend.
 * In between each device executes its variant. The instructions of a queue run
 * in their order; those that insn_enabled() excludes are skipped. A WAIT waits
 * until the flag of its event has at least the run's number. A POST sets the
 * device's own flag to that number, once waiters can see all that precedes it
 * in its queue. A PUSH writes into the inbox of another device, and PAGES may.
 * PULL, PAGES and a MERGE with a barrier read memory of others. All other
 * instructions access only the device's own memory.
 *
 * A device that cannot continue calls device_fail(). All others see
 * device_failed() wherever they wait, and leave; wait() must then return soon.
 * The set can run again: a failed run may leave anything in work memory and
 * inboxes, but has no other effect. */
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
 * fetch them in pairs). It only grows: a reader waits for a value or more. It
 * may sleep if the writer increments by device_flag_raise(). */
struct device_flag {
    _Alignas(128) _Atomic uint64_t v;
    _Atomic uint32_t wake_count; /* times that sleepers were woken; a futex */
    atomic_int n_asleep;
};

/* Wakes the threads that sleep until the flag is higher. */
void device_flag_wake(struct device_flag *f);
/* Sets the flag, then checks for sleepers. A thread that is about to sleep
 * counts itself before its last check of the flag, so no wake-up is lost. */
static inline void device_flag_raise(struct device_flag *f, uint64_t value)
{
    atomic_store(&f->v, value);
    if (atomic_load(&f->n_asleep) > 0)
        device_flag_wake(f);
}

/* A device of a set. */
struct device {
    void *own; /* the backend's; owned by it */
    /* Addresses of the regions, for devices that desc.memory lets read them in
     * place, and for device_map(). The backend sets and clears these except the
     * inbox's. The set owns the inbox: it exists from load() to unload(),
     * zeroed, at one address in every process. If desc.memory is -1, all but
     * the inbox are NULL. */
    unsigned char *at[REGION_COUNT];
    int fail_insn;    /* tests: the device fails instead of this instruction;
                         -1: never */
    uint64_t differs; /* if its kernels give other bits than all others': its
                         name's hash, else 0. Set by load() */
    /* ---- the set's; a backend reads them */
    struct device_desc desc;
    struct backend *backend;    /* its backend */
    const struct program *prog; /* borrowed while the set is loaded */
    size_t bytes[REGION_COUNT]; /* from the program */
    size_t scratch_bytes;       /* from scratch(); the backend allocates it */
    /* [prog->n_event] number of the last run that reached it, raised by this
     * device only; allocated like the inbox */
    struct device_flag *event;
    size_t event_bytes;
    /* ---- counters, by device_count() and device_trace_add() */
    size_t first_timing; /* start of its space in the trace */
    int n_timing;
    uint64_t macs[PL_MAX_RANKS], n_collective, collective_bytes, copies,
        copy_bytes;
    /* Seconds, defined as in pl_device_counters, as far as the backend can
     * tell. The rest of a run is waiting. */
    struct device_times {
        double busy_s, reduce_s, copy_s;
    } spent;
};

/* Adds the time of an instruction that accesses memory. */
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

/* All devices of one backend in a set. */
struct backend {
    const struct backend_ops *ops;
    struct device_set *set;
    int n, *dev; /* [n] indices in the set, ascending; owned by the set */
    void *own;   /* the backend's; owned by it. NULL: not opened, and unload()
                    is not called */
};

struct backend_ops {
    const char *name;                /* its name in -dev and --device-spec */
    const char *accepts;             /* the syntax of an item, for errors */
    const struct gpu_driver *driver; /* of a GPU backend; NULL: it takes each
                                        GPU by the driver of another backend */
    /* its devices raise events by device_flag_raise(), so waiting threads may
     * sleep */
    bool wakes_waiters;
    /* wait() computes on the caller's thread, so this backend's is called
     * before all others'; at most one backend */
    bool uses_caller_thread;

    /* ---- before anything is opened; pure ---- */

    /* Appends the devices that an item of a -dev string means. `it` has the
     * backend's name. Uses device_list_append or device_item_append. Its
     * memory, reads and one_queue decide which instructions programs have for
     * the device: see device_desc. */
    pl_status (*describe)(struct device_list *l, const struct device_item *it,
                          pl_err *err);
    /* Lists the GPUs of its driver, up to `max`, with their free memory and why
     * any of them cannot be used: what `plait devices` prints. `ops` is this
     * backend's row. NULL: it has no GPUs. */
    pl_status (*show)(const struct backend_ops *ops, struct gpu_info *out,
                      int max, int *n, pl_err *err);
    /* Appends the host's devices, see device_list_add_host. NULL: the backend
     * has no hosts. */
    pl_status (*add_host)(struct device_list *l, int n_rank, int n_thread,
                          const struct topology *t, pl_err *err);
    /* Returns true if it has this kernel, for the formats of these tensors (the
     * program's). A program with a kernel that its device lacks is not
     * loaded. */
    bool (*has_kernel)(const struct device_desc *d,
                       const struct device_options *opt,
                       const struct insn_kernel *k,
                       const struct prog_tensor *t);
    /* Return the packing in which its kernels read weights of a format, and the
     * activations they multiply them with. Programs are built accordingly. A
     * weight that is needed in both packings is stored twice. */
    enum packing (*packing)(const struct device_desc *d, pl_format f,
                            enum weight_use use);
    enum activations (*activations)(const struct device_desc *d,
                                    const struct device_options *opt,
                                    pl_format f);
    /* Returns the bytes besides the regions that it needs to run the program.
     * Plans count them against the device's memory. */
    size_t (*scratch)(const struct device_desc *d,
                      const struct device_options *opt,
                      const struct program *p);
    /* Returns true if these two of its devices may share threads. They cannot
     * have a barrier then. The backend is open. NULL: never. */
    bool (*share_threads)(const struct backend *b, int dev_a, int dev_b);

    /* ---- an instance ---- */

    /* Starts what the devices need to run, and sets b->own; they have no
     * programs yet. NULL: the devices can be planned for, but cannot run. */
    pl_status (*open)(struct backend *b, pl_err *err);
    void (*close)(struct backend *b); /* also after a failed open(), or without
                                         one */
    /* Allocates the regions of all its devices, except the inboxes, which
     * exist, and their scratch. They are zeroed or poisoned, since programs
     * read nothing that was not written. Derives what it needs from the
     * programs, which passed program_check(). */
    pl_status (*load)(struct backend *b, pl_err *err);
    void (*unload)(struct backend *b); /* also after a failed load(), or without
                                          one */

    /* ---- memory; ranges are inside the region, which may be the inbox.
     * Several threads may call these at once, for ranges that do not overlap.
     * Never during a run ---- */
    pl_status (*write)(struct device *d, enum region r, size_t offset,
                       const void *src, size_t bytes, pl_err *err);
    pl_status (*read)(struct device *d, enum region r, size_t offset, void *dst,
                      size_t bytes, pl_err *err); /* sees all written before */
    /* Waits until all that was written is visible. NULL: write() waits. */
    pl_status (*flush)(struct device *d, pl_err *err);

    /* ---- a run ---- */
    /* Copies the sizes of device_set_current_run() and starts the devices
     * without waiting for any of them. An error here fails the run. */
    void (*submit)(struct backend *b);
    /* Returns when all its devices have finished or left their variants. */
    void (*wait)(struct backend *b);
    /* Called after all devices of the set have ended the run; the guard is
     * open. May be NULL. */
    void (*ended)(struct backend *b);
};

/* The backends that -dev and --device-spec know, NULL at the end. A program may
 * link its own table: see device_backends.c. A set accepts devices of any
 * backend, in the table or not. */
extern const struct backend_ops *const device_backends[];
#define KIND(name) extern const struct backend_ops name##_ops;
#include "device/device_backends.def"
#undef KIND

/* ---- what a backend may use --------------------------------------------- */

struct device *device_of(struct device_set *s, int dev);
int device_set_size(const struct device_set *s);
/* Returns this machine's topology, or NULL if the list of devices has none. */
const struct topology *device_set_topology(const struct device_set *s);
const struct device_options *device_set_options(const struct device_set *s);
/* Returns how many threads the devices of other backends keep busy. If there
 * are more than cores, no thread should spin for long. */
int device_set_threads(const struct device_set *s, const struct backend *but);

/* Returns the run in progress. Its number grows from run to run and starts at
 * 1. From submit() until all backends' wait() have returned; any thread. */
const struct device_run *device_set_current_run(const struct device_set *s,
                                                uint64_t *number);
static inline const struct variant *device_variant(const struct device *d,
                                                   const struct device_run *run)
{
    return &d->prog->variant[run->variant];
}

/* For backends whose devices live in separate processes, forked while a set is
 * loaded. There, the set is a copy. inherit() drops what belongs to the parent.
 * adopt() sets the run in progress, borrowed until the next. Inboxes, events,
 * failures and the trace are shared. */
void device_set_inherit(struct device_set *s);
void device_set_adopt(struct device_set *s, const struct device_run *run,
                      uint64_t number);

/* Fails the run for this device; the first message is kept. step: instruction
 * of the variant, -1: none. Any thread, from submit() until the backend's
 * wait() returns. */
void device_fail(struct device_set *s, const struct device *d, int step,
                 const char *what);
/* Returns true in a forked copy of the process that created the set. Memory of
 * devices does not exist there, nor do their threads. Other memory may be at
 * its addresses. */
bool device_set_is_copy(const struct device_set *s);
/* Quarantines memory that a lost device may still access. It is never freed and
 * its addresses are never reused, because the driver may still map them. */
void device_set_quarantine(struct device_set *s);
/* Returns true after that, and in a forked copy. */
bool device_set_is_quarantined(const struct device_set *s);
/* Set when a device has failed the run: all devices leave it. */
const atomic_bool *device_failed(const struct device_set *s);

/* Counts an instruction. Called once for each, by its device, by one thread of
 * it at a time. rows: product of the result's dimensions but the last, for a
 * kernel that has costs. bytes: what a copy moves. */
void device_count(struct device *d, const struct insn *st,
                  const struct graph_sizes *z, int64_t rows, double bytes);

/* Pauses between two polls of a thread that waits without sleeping. */
static inline void device_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb");
#endif
}

/* ---- timing ---- */
double device_now(void); /* seconds, of a monotonic clock */
/* Sleeps until device_now() is `end`, to a few microseconds, or until *stop is
 * set, which is polled now and then. `stop` may be NULL. */
void device_sleep(double end, const atomic_bool *stop);
bool device_traces(const struct device_set *s);
double device_clock(const struct device_set *s); /* since the run's start */
/* Converts a time of device_now() to device_clock(). */
double device_since(const struct device_set *s, double now);
/* Records that an instruction of the device has ended, by device_clock(); one
 * thread of it at a time. Only in a set that traces, only instructions that
 * access memory, each once. */
void device_trace_add(struct device_set *s, struct device *d, int step,
                      double begin, double end);

/* ---- the guard: see device_options.guard. Threads access this process's
 * memory for an instruction only between enter and leave. These do nothing in a
 * set that is not guarded ---- */

/* Allocates whole pages, zeroed, that a guard can protect; NULL if none are
 * left. */
void *device_guard_alloc(size_t bytes);
void device_guard_dealloc(void *p, size_t bytes);
bool device_guarded(const struct device_set *s);
/* Registers region r of the device, allocated by device_guard_alloc. */
void device_guard_region(struct device_set *s, const struct device *d,
                         enum region r, void *p);
/* Bracket an instruction: no other memory is accessible, and no other thread
 * works. */
void device_guard_enter(struct device_set *s, const struct device *d,
                        const struct insn *st);
void device_guard_leave(struct device_set *s);

#endif
