/* Adds up from /proc the processor time that processes used and that their
 * threads waited for. The processes are the watched one, its descendants and
 * its process group. Time used includes that of ended children. */
#include "lib/watch.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct process {
    int pid, parent, group;
    /* processor seconds of the process and of ended children that it waited
     * for */
    double cpu_s;
    bool belongs;
};

/* Reads a process from /proc/PID/stat. Returns false if the process has
 * ended. */
static bool read_process(const char *pid, struct process *p)
{
    char path[64], text[1024];
    const char *after;
    unsigned long long user, system;
    long long user_children, system_children;
    FILE *f;
    size_t n;

    snprintf(path, sizeof path, "/proc/%.20s/stat", pid);
    f = fopen(path, "r");
    if (f == NULL)
        return false;
    n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = '\0';
    /* the name in parentheses may contain anything, so the fields after the
     * last one are read */
    after = strrchr(text, ')');
    if (after == NULL ||
        sscanf(after + 1,
               " %*c %d %d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu %lld %lld",
               &p->parent, &p->group, &user, &system, &user_children,
               &system_children) != 6)
        return false;
    p->pid = atoi(pid);
    p->cpu_s =
        (double)(user + system) + (double)(user_children + system_children);
    p->cpu_s /= (double)sysconf(_SC_CLK_TCK);
    return true;
}

/* Returns all processes of the machine, *n of them; the caller frees them. NULL
 * without /proc. */
static struct process *read_all(int *n)
{
    DIR *dir = opendir("/proc");
    struct process *all = NULL;
    struct dirent *e;
    int cap = 0;

    *n = 0;
    if (dir == NULL)
        return NULL;
    while ((e = readdir(dir)) != NULL) {
        struct process p = {0};

        if (e->d_name[0] < '0' || e->d_name[0] > '9' ||
            !read_process(e->d_name, &p))
            continue;
        if (*n == cap) {
            struct process *more;

            cap = cap > 0 ? 2 * cap : 256;
            more = realloc(all, (size_t)cap * sizeof *all);
            if (more == NULL)
                break;
            all = more;
        }
        all[(*n)++] = p;
    }
    closedir(dir);
    return all;
}

static bool descends(const struct process *all, int n, const struct process *p)
{
    for (int i = 0; i < n; i++) {
        if (all[i].belongs && all[i].pid == p->parent)
            return true;
    }
    return false;
}

/* Returns the seconds that the process's threads were ready to run and waited
 * for a processor. */
static double waited_by(int pid)
{
    char path[320];
    DIR *dir;
    struct dirent *e;
    unsigned long long sum = 0;

    snprintf(path, sizeof path, "/proc/%d/task", pid);
    dir = opendir(path);
    while (dir != NULL && (e = readdir(dir)) != NULL) {
        unsigned long long ns;
        FILE *f;

        snprintf(path, sizeof path, "/proc/%d/task/%.200s/schedstat", pid,
                 e->d_name);
        f = fopen(path, "r");
        if (f != NULL && fscanf(f, "%*u %llu", &ns) == 1)
            sum += ns;
        if (f != NULL)
            fclose(f);
    }
    if (dir != NULL)
        closedir(dir);
    return 1e-9 * (double)sum;
}

/* Sets `belongs` of the process `pid`, of its descendants and of its process
 * group. */
static void find_all(struct process *all, int n, pid_t pid)
{
    for (int i = 0; i < n; i++)
        all[i].belongs = all[i].pid == pid || all[i].group == pid;
    for (bool more = true; more;) {
        more = false;
        for (int i = 0; i < n; i++) {
            if (!all[i].belongs && descends(all, n, &all[i]))
                more = all[i].belongs = true;
        }
    }
}

/* Adds the growth of a value since the last tick to *sum. The value can fall
 * when the time of an orphan is added to init, or when a thread has ended; then
 * nothing is added. */
static void add_growth(double *sum, double *before, double now)
{
    if (now > *before)
        *sum += now - *before;
    *before = now;
}

void watch_start(struct watch *w)
{
    *w = (struct watch){.pid = w->pid, .enough_s = w->enough_s};
}

void watch_tick(struct watch *const *w, int n)
{
    int n_process;
    struct process *all = read_all(&n_process);

    for (int i = 0; all != NULL && i < n; i++) {
        struct watch *one = w[i];
        double used = 0, waited = 0;

        if (one->pid == 0)
            continue;
        find_all(all, n_process, one->pid);
        for (int k = 0; k < n_process; k++) {
            if (all[k].belongs) {
                used += all[k].cpu_s;
                waited += waited_by(all[k].pid);
            }
        }
        add_growth(&one->cpu_s, &one->seen_cpu_s, used);
        add_growth(&one->waited_s, &one->seen_waited_s, waited);
        one->quiet++;
        if (one->cpu_s + one->waited_s >= one->quiet_s + one->enough_s)
            watch_heard(one);
    }
    free(all);
}

void watch_heard(struct watch *w)
{
    w->quiet = 0;
    w->quiet_s = w->cpu_s + w->waited_s;
}
