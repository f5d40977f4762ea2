/* Tests an OpenCL library in a forked copy of the process, because some drivers
 * end the process when they are first used: PoCL aborts if there is no /sys. If
 * the copy ends by a signal or by exit(), the library is rejected. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "device/gpu/opencl_api.h"

enum {
    /* CPU time in ns after which the forked process is killed */
    MOST_NS = 50 * 1000 * 1000,
    NAP_NS = 500 * 1000,
    /* number of sleeps, of NAP_NS each, after which the forked process is
     * killed, in case a driver blocks */
    MOST_NAPS = 2000,
    SURVIVED = 86, /* exit code of a forked process that no driver ended */
    BY_EXIT = -1,  /* value of outcome() if a driver called exit() */
};

/* Exit handler that ends the forked process if a driver calls exit(). It is
 * registered last, so it runs before the application's handlers, and stdio
 * buffers are not flushed. */
static void end_copy(void)
{
    for (;;)
        syscall(SYS_exit_group, 0);
}

/* Prepares the forked process: it dies with its parent, has default signal
 * handlers, prints nothing and dumps no core. */
static void prepare_copy(pid_t parent)
{
    struct sigaction a = {.sa_handler = SIG_DFL};
    const struct rlimit none = {0, 0};
    sigset_t no_signal;
    /* Replaces standard output and error. It is read-only, because make check
     * allows no opening for writing here; what a driver prints is lost. */
    int fd = open("/dev/null", O_RDONLY);

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent || atexit(end_copy) != 0)
        syscall(SYS_exit_group, SURVIVED);
    for (int i = 1; i <= SIGRTMAX; i++)
        sigaction(i, &a, NULL);
    sigemptyset(&no_signal);
    pthread_sigmask(SIG_SETMASK, &no_signal, NULL);
    setrlimit(RLIMIT_CORE, &none);
    if (fd >= 0) {
        dup2(fd, STDOUT_FILENO);
        dup2(fd, STDERR_FILENO);
    }
}

/* Lists the library's devices in the forked process, then ends it without
 * running the application's exit handlers. */
static void ask_in_copy(const char *path, pid_t parent)
{
    struct opencl cl = {0};
    struct opencl_devices all;
    pl_err why;

    prepare_copy(parent);
    cl.handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (cl.handle) {
        cl.clGetPlatformIDs =
            (int32_t(*)(uint32_t, struct cl_platform **, uint32_t *))dlsym(
                cl.handle, "clGetPlatformIDs");
        cl.clGetDeviceIDs = (int32_t(*)(
            struct cl_platform *, uint64_t, uint32_t, struct cl_device **,
            uint32_t *))dlsym(cl.handle, "clGetDeviceIDs");
    }
    if (cl.clGetPlatformIDs && cl.clGetDeviceIDs)
        (void)opencl_devices(&cl, &all, &why);
    for (;;)
        syscall(SYS_exit_group, SURVIVED);
}

static int end_of(int status)
{
    if (WIFSIGNALED(status))
        return WTERMSIG(status);
    return WEXITSTATUS(status) == SURVIVED ? 0 : BY_EXIT;
}

/* Waits for the forked process. Returns the signal that ended it, BY_EXIT if
 * the driver called exit(), or 0 if the driver works. A process that takes too
 * long is killed; the result is then 0, because a driver may be slow when it
 * starts for the first time. */
static int outcome(pid_t pid)
{
    const struct timespec nap = {.tv_nsec = NAP_NS};
    clockid_t clock;
    int status = 0;

    if (clock_getcpuclockid(pid, &clock) != 0)
        clock = CLOCK_MONOTONIC;
    for (int i = 0; i < MOST_NAPS; i++) {
        struct timespec t;
        pid_t got = waitpid(pid, &status, WNOHANG);

        if (got == pid)
            return end_of(status);
        /* the application has already reaped the forked process */
        if (got < 0 && errno != EINTR)
            return 0;
        if (clock_gettime(clock, &t) != 0 || t.tv_sec > 0 ||
            t.tv_nsec > MOST_NS)
            break;
        nanosleep(&nap, NULL);
    }
    kill(pid, SIGKILL);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return 0;
}

static int try_library(const char *path)
{
    pid_t parent = getpid(), pid;
    sigset_t all, before;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pid = fork();
    if (pid == 0)
        ask_in_copy(path, parent);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return pid > 0 ? outcome(pid) : 0;
}

/* The library that was tested last, and the result of outcome(). */
static struct {
    pthread_mutex_t lock;
    char path[512];
    int signal;
} opencl_tried = {.lock = PTHREAD_MUTEX_INITIALIZER};

pl_status opencl_probe(const char *path, pl_err *err)
{
    char how[32] = "it called exit";
    int signal;

    pthread_mutex_lock(&opencl_tried.lock);
    if (strlen(path) >= sizeof opencl_tried.path ||
        strcmp(path, opencl_tried.path) != 0) {
        opencl_tried.signal = try_library(path);
        opencl_tried.path[0] = '\0';
        if (strlen(path) < sizeof opencl_tried.path)
            strcpy(opencl_tried.path, path);
    }
    signal = opencl_tried.signal;
    pthread_mutex_unlock(&opencl_tried.lock);
    if (signal == 0)
        return PL_OK;
    if (signal != BY_EXIT)
        snprintf(how, sizeof how, "signal %d", signal);
    return err_set(
        err, PL_DEVICE,
        "%s or one of its drivers kills the process while listing devices "
        "(%s); repair the driver's installation (OCL_ICD_VENDORS names "
        "drivers; PoCL needs /sys), or set PLAIT_LIBOPENCL to another library",
        path, how);
}
