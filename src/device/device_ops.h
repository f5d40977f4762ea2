/* The interface between backends and device sets: the functions that a backend
 * implements (struct backend_ops), and those that it may call. doc/adding.md
 * describes the former in the order in which to write them.
 *
 * The devices of one backend in a set are opened together: they may share
 * threads, a driver's context or a connection. The set calls all functions,
 * from one thread at a time; only write() and read() may be called by several
 * threads at once. During a run it calls only wait().
 *
 * A run: the set calls submit() of every backend, then wait() of every backend.
 * In between, each device executes its variant. The instructions of a queue are
 * executed in order; those that insn_enabled() excludes are skipped. A WAIT
 * waits until the flag of its event is at least the run's number. A POST sets
 * the flag of the device's own event to that number, once all effects of
 * earlier instructions in its queue are visible to waiting devices. A PUSH
 * writes into the inbox of another device, and PAGES may. PULL, PAGES and a
 * MERGE with a barrier read memory of other devices. All other instructions
 * access only the device's own memory.
 *
 * A device that cannot continue calls device_fail(). All other devices poll
 * device_failed() wherever they wait, and leave the run; wait() must then
 * return soon. The set can run again after a failed run, which may leave any
 * contents in work memory and inboxes, but has no other effect. */
#ifndef DEVICE_DEVICE_OPS_H
#define DEVICE_DEVICE_OPS_H

#include <stdatomic.h>

#include "device/device.h"

struct backend;
struct device_item; /* defined in device_spec.h */
struct gpu_driver;  /* defined in gpu/gpu_driver.h */
struct gpu_info;    /* defined in listed_gpu.h */
struct topology;    /* defined in machine/topology.h */

/* A counter that has one writer and only increases. Readers wait until it has
 * reached a value. A reader may sleep if the writer uses device_flag_raise().
 * The counter fills two cache lines, because processors fetch lines in
 * pairs. */
struct device_flag {
    _Alignas(128) _Atomic uint64_t v;
    /* futex on which threads sleep until the flag is raised; incremented to
     * wake them */
    _Atomic uint32_t wake_count;
    atomic_int n_asleep;
};

/* The value that a flag gets if the run has failed and queues of a GPU wait for
 * it. It is the greatest one that every driver takes for later than any run's
 * number: CUDA compares by the sign of the difference. */
#define DEVICE_FLAG_RELEASED ((uint64_t)INT64_MAX)

/* The value that a device graph posts, which is the same in each run. The set
 * then zeroes all flags before a run (device_set_zero_events), so it is later
 * than any run's number. A graph waits for 1. */
#define DEVICE_FLAG_POSTED ((uint64_t)1 << 62)

/* Wakes all threads that sleep in flag_wait() on this flag. */
void device_flag_wake(struct device_flag *f);
/* Sets the flag to `value`, then wakes its sleepers, if any. A thread that is
 * about to sleep increments n_asleep before its last check of the flag, so no
 * wake-up is lost. */
static inline void device_flag_raise(struct device_flag *f, uint64_t value)
{
    atomic_store(&f->v, value);
    if (atomic_load(&f->n_asleep) > 0)
        device_flag_wake(f);
}

/* Seconds spent, defined as in pl_device_counters, as far as the backend can
 * measure them. The rest of a run counts as waiting. */
struct device_times {
    double busy_s, reduce_s, copy_s;
};

/* A device's counters, accumulated since it was created. */
struct device_counts {
    uint64_t macs[PL_MAX_RANKS], n_collective, collective_bytes, copies,
        copy_bytes;
    uint64_t sent_messages, sent_bytes; /* to other machines */
    struct device_times spent;
};

/* A device of a set. */
struct device {
    /* state that the backend keeps for this device; owned by the backend */
    void *own;
    /* Addresses of the regions. Used by devices that may read them in place,
     * according to desc.memory, and by device_map(). The backend sets and
     * clears them, except the inbox's. The set allocates the inbox, zeroed and
     * at the same address in every process, before load() and frees it after
     * unload(). If desc.memory is -1, all but the inbox are NULL. */
    unsigned char *at[REGION_COUNT];
    /* for tests: index in the variant of an instruction at which the device
     * fails; -1 for none */
    int fail_insn;
    /* a hash of the device's name if its kernels give other bits than the
     * CPU's, else 0; set by load() */
    uint64_t differs;
    /* ---- set by the device set; read-only for backends */
    struct device_desc desc;
    struct backend *backend;
    /* the device's program; borrowed while the set is loaded */
    const struct program *prog;
    /* sizes of the device's regions in bytes, from the program */
    size_t bytes[REGION_COUNT];
    /* result of backend_ops.scratch() in bytes; load() allocates this memory */
    size_t scratch_bytes;
    /* by event of the device: the number of the last run in which it was
     * posted, [prog->n_event]. Only this device raises the flags, unless the
     * run has failed (DEVICE_FLAG_RELEASED); the set zeroes them before the
     * next run. So who sees an event checks afterwards that the run has not
     * failed. Like the inbox, they are allocated by the set, in memory that all
     * processes share */
    struct device_flag *event;
    size_t event_bytes;
    /* ---- updated by device_trace_add() and device_count() */
    size_t first_timing; /* index of the device's first event in the trace */
    int n_timing;
    struct device_counts counts;
};

/* Adds the time of an instruction, in seconds, to the member for instructions
 * of its kind. Must not be called for POST and WAIT. */
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
    /* indices in the set of the backend's n devices, ascending; owned by the
     * set */
    int n, *dev;
    /* The backend's state, which open() sets and the backend owns. While it is
     * NULL, the set does not call unload(). */
    void *own;
};

struct backend_ops {
    const char *name;    /* the backend's name in -dev and --device-spec */
    const char *accepts; /* examples of -dev items, for error messages */
    /* the driver of a GPU backend; NULL if the backend uses other backends'
     * drivers, or none */
    const struct gpu_driver *driver;
    /* the backend's devices post events by device_flag_raise(), so threads that
     * wait for the events may sleep */
    bool wakes_waiters;
    /* wait() computes on the caller's thread, so the set calls it before the
     * wait() of all other backends. True for at most one backend */
    bool uses_caller_thread;
    /* threads of the backend's devices call carry() of other machines' backend;
     * the other backends leave all messages to the progress thread */
    bool carries;
    bool numbered; /* in -dev, NAME:I means one device, the one with number I */

    /* ---- pure functions, which need no open backend ---- */

    /* Appends the devices that an item of a -dev string requests, by
     * device_list_append or device_item_append. `it` has the backend's name.
     * The members memory, reads and one_queue of a device_desc decide which
     * instructions programs have for the device. */
    pl_status (*describe)(struct device_list *l, const struct device_item *it,
                          pl_err *err);
    /* Lists up to `max` GPUs of the backend's driver for `plait devices`, with
     * their free memory and the reason if one cannot be used. `ops` is this
     * backend's table. NULL if the backend has no GPUs. */
    pl_status (*show)(const struct backend_ops *ops, struct gpu_info *out,
                      int max, int *n, pl_err *err);
    /* Appends the host devices: see device_list_add_host. NULL if the backend
     * cannot serve as the host. */
    pl_status (*add_host)(struct device_list *l, int n_rank, int n_thread,
                          const struct topology *t, pl_err *err);
    /* Returns true if the backend has kernel `k` for the formats of its
     * tensors; t[] are all tensors of the program. A program with a kernel that
     * its device lacks is rejected. */
    bool (*has_kernel)(const struct device_desc *d,
                       const struct device_options *opt,
                       const struct insn_kernel *k,
                       const struct prog_tensor *t);
    /* packing() returns how weights of format `f` must be packed for the
     * backend's kernels, and activations() returns the kind of activations that
     * they are multiplied with. Programs are built accordingly. A weight that
     * is needed in two packings is stored twice. */
    enum packing (*packing)(const struct device_desc *d, pl_format f,
                            enum weight_use use);
    enum activations (*activations)(const struct device_desc *d,
                                    const struct device_options *opt,
                                    pl_format f);
    /* Returns the size in bytes of the memory that the device needs in addition
     * to its regions to run the program. Plans count it against the device's
     * memory. */
    size_t (*scratch)(const struct device_desc *d,
                      const struct device_options *opt,
                      const struct program *p);
    /* Sets in_launch of the program's instructions. Returns false if out of
     * memory. NULL if each instruction is a launch of its own. */
    bool (*mark_launches)(struct program *p);
    /* Returns true if one thread serves both devices of the open backend. A
     * barrier between them would then deadlock. NULL if devices never share
     * threads. */
    bool (*share_threads)(const struct backend *b, int dev_a, int dev_b);

    /* ---- functions of an opened backend ---- */

    /* Sets b->own and starts the threads or drivers of the instance's devices,
     * which have no programs yet. NULL if the devices can be planned for, but
     * cannot run. */
    pl_status (*open)(struct backend *b, pl_err *err);
    /* Closes the devices. Also called after a failed open(), and if open() was
     * not called. */
    void (*close)(struct backend *b);
    /* Prepares the instance's devices for their programs, which have passed
     * program_check(). Allocates their scratch memory and all regions except
     * the inboxes. The contents of new regions do not matter, because programs
     * read only what was written. */
    pl_status (*load)(struct backend *b, pl_err *err);
    /* Frees the memory that load() allocated. Also called after a failed
     * load(), and if load() was not called. */
    void (*unload)(struct backend *b);

    /* ---- memory. A range lies inside its region, which may be the inbox.
     * Several threads may call these functions at once for ranges that do not
     * overlap. They are never called during a run ---- */
    pl_status (*write)(struct device *d, enum region r, size_t offset,
                       const void *src, size_t bytes, pl_err *err);
    pl_status (*read)(struct device *d, enum region r, size_t offset, void *dst,
                      size_t bytes, pl_err *err);
    /* Waits until all bytes passed to write() are visible to the device's
     * programs. NULL if write() itself waits for that. */
    pl_status (*flush)(struct device *d, pl_err *err);

    /* ---- a run ---- */
    /* Copies the sizes of device_set_current_run() and starts the devices
     * without waiting for any of them. Reports an error by device_fail(). */
    void (*submit)(struct backend *b);
    /* Returns when all devices of the instance have finished or left their
     * variants. */
    void (*wait)(struct backend *b);
    /* Called after wait() of all backends has returned and the guard, if any,
     * has made all memory accessible again. May be NULL. */
    void (*ended)(struct backend *b);

    /* ---- the backend for devices of other machines ---- */
    /* Implements device_set_serve(). NULL for all other backends; -dev does not
     * name a backend that has it. */
    pl_status (*serve)(struct backend *b, pl_err *err);
    /* Sends the messages that are ready and stores those that have come, unless
     * another thread is doing so. Called by threads of other backends: again
     * and again while they wait for an event of this backend's devices, and
     * when they have posted one of their own. NULL for all other backends. */
    void (*carry)(struct backend *b);
};

/* The backends that -dev and --device-spec accept; NULL ends the table. A
 * program may link its own table: see device_backends.c. A device set accepts
 * devices of any backend, even if it is not in the table. */
extern const struct backend_ops *const device_backends[];
#define KIND(name) extern const struct backend_ops name##_ops;
#include "device/device_backends.def"
#undef KIND

/* ---- functions for backends ---------------------------------------------- */

struct device *device_of(struct device_set *s, int dev);
int device_set_size(const struct device_set *s);
/* Returns this machine's topology, or NULL if the device list has none. */
const struct topology *device_set_topology(const struct device_set *s);
const struct device_options *device_set_options(const struct device_set *s);
/* Returns the network to the other machines of the set; NULL if there are
 * none. */
struct network *device_set_network(const struct device_set *s);
/* Returns the backend of the devices on other machines; NULL if there are none,
 * and in a forked copy, because only one process of a machine uses its
 * network. */
struct backend *device_set_remote(struct device_set *s);
/* Returns how many threads the devices of all backends except `but` keep busy.
 * If more threads than cores are busy, no thread should spin for long. */
int device_set_threads(const struct device_set *s, const struct backend *but);

/* Returns the run in progress and sets *number to its number, which starts at 1
 * and increases from run to run. Any thread may call it from submit() until all
 * backends' wait() have returned. */
const struct device_run *device_set_current_run(const struct device_set *s,
                                                uint64_t *number);
static inline const struct variant *device_variant(const struct device *d,
                                                   const struct device_run *run)
{
    return &d->prog->variant[run->variant];
}

/* For backends whose devices are in separate processes, forked while a set is
 * loaded. In such a process the set is a copy. inherit() drops the state that
 * is valid only in the parent. adopt() sets the run in progress, borrowed until
 * the next call. Inboxes, events, failures and the trace are shared with the
 * parent. */
void device_set_inherit(struct device_set *s);
void device_set_adopt(struct device_set *s, const struct device_run *run,
                      uint64_t number);

/* Fails the run because of an error of device `d`; only the first call's
 * message is kept. `step` is the index of the instruction in its variant, or -1
 * if none. Any thread may call it from submit() until the backend's wait()
 * returns. */
void device_fail(struct device_set *s, const struct device *d, int step,
                 const char *what);
/* Fails the run with the error of another machine. */
void device_set_fail(struct device_set *s, const pl_err *err);
/* Sets *err to the error of a run that has failed. Returns false if a device is
 * still writing it, or was killed while it did; then *err names no device. */
bool device_set_failure(const struct device_set *s, pl_err *err);
/* Returns true in a forked copy of the process that created the set. The device
 * memory and the devices' threads do not exist there, and other memory may have
 * the same addresses. */
bool device_set_is_copy(const struct device_set *s);
/* From now on the set zeroes all events before each run, because device graphs
 * post and await values that are the same in each run. */
void device_set_zero_events(struct device_set *s);
/* Quarantines memory that a lost device may still access. It is never freed and
 * its addresses are never reused, because the driver may still map them. */
void device_set_quarantine(struct device_set *s);
/* Returns true after device_set_quarantine() and in a forked copy: device
 * memory must not be freed. */
bool device_set_is_quarantined(const struct device_set *s);
/* Returns the flag that is set when a device has failed the run. All devices
 * must then leave the run. */
const atomic_bool *device_failed(const struct device_set *s);

/* Adds an executed instruction to the device's counters. Called once per
 * instruction, by one thread of the device at a time. `rows` is the product of
 * the result's kernel_cost_dims() leading dimensions, for a kernel that has
 * costs. `bytes` is the number of bytes that a copy between groups
 * transfers. */
void device_count(struct device *d, const struct insn *st,
                  const struct graph_sizes *z, int64_t rows, double bytes);

/* Pauses the processor briefly, between two polls of a thread that spins. */
static inline void device_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb");
#endif
}

/* ---- timing ---- */
double device_now(void); /* seconds of a monotonic clock */
/* Sleeps until device_now() is `end`, exact to a few microseconds, or until
 * *stop is set, which is polled every 0.1 s. `stop` may be NULL. */
void device_sleep(double end, const atomic_bool *stop);
bool device_traces(const struct device_set *s);
double device_clock(const struct device_set *s); /* seconds since the run's
                                                    start */
/* Converts a time of device_now() to one of device_clock(). */
double device_since(const struct device_set *s, double now);
/* Records the begin and end of an instruction, in seconds of device_clock().
 * `step` is its index in its variant. Called by one thread of the device at a
 * time, only if the set traces, once per instruction except POST and WAIT. */
void device_trace_add(struct device_set *s, struct device *d, int step,
                      double begin, double end);

/* ---- the memory guard of tests: see device_options.guard and device_guard.c.
 * Threads access device memory for an instruction only between enter and leave.
 * All functions that take a set do nothing if the set has no guard ---- */

/* Allocates zeroed whole pages, which a guard can protect. Returns NULL if out
 * of memory. */
void *device_guard_alloc(size_t bytes);
void device_guard_dealloc(void *p, size_t bytes);
bool device_guarded(const struct device_set *s);
/* Registers region r of the device, which is at `p` and consists of whole
 * pages. */
void device_guard_region(struct device_set *s, const struct device *d,
                         enum region r, void *p);
/* enter() waits until no other thread executes an instruction, then protects
 * all device memory that `st` must not access. leave() ends the instruction. */
void device_guard_enter(struct device_set *s, const struct device *d,
                        const struct insn *st);
void device_guard_leave(struct device_set *s);

#endif
