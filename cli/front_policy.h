/* Decides what the front of a server over several machines does when its job
 * has ended (serve_front.c). Pure functions, so that they are tested alone. */
#ifndef CLI_FRONT_POLICY_H
#define CLI_FRONT_POLICY_H

#include <stdbool.h>

/* The end of a job. */
struct front_end {
    bool stopping;   /* the user has ended the server */
    int told;        /* machine 0's exit code, which it sent; -1 if none */
    bool came;       /* machine 0 has connected to the front */
    bool late;       /* the machines did not join within the front's limit */
    int code;        /* exit code of mpirun */
    bool served;     /* this job or one before has accepted clients */
    double served_s; /* seconds for which this job has accepted clients */
};

/* Returns true if the job is to be started again: a machine was lost, or does
 * not come back yet. Returns false if the front is to end, and sets *code to
 * its exit code: the user wants it, or the error would be met again. */
bool front_restarts(const struct front_end *e, int *code);

/* Returns the seconds to wait before the job is started again: 1, 2, 4 .. 60.
 * *n_fail is the number of jobs that ended one after the other without having
 * served for FRONT_STEADY_S, which this function counts. */
int front_wait_s(const struct front_end *e, int *n_fail);

enum { FRONT_STEADY_S = 60, FRONT_MAX_WAIT_S = 60 };

#endif
