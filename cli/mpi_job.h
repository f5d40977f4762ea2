/* Several machines: starts the processes of --hosts, joins the job of mpirun
 * that this process belongs to, and computes for machine 0. */
#ifndef CLI_MPI_JOB_H
#define CLI_MPI_JOB_H

#include "options.h"

/* Replaces this process by mpirun, which starts plait on the machines of
 * o->hosts with the words argv[argc], less --hosts. A server's process stays as
 * its front (serve_front.h). Returns its exit code, or that of an error. */
enum exit_code mpi_job_launch(const struct options *o, int argc, char **argv);

/* Makes messages name this machine, unless it is machine 0, and appends them to
 * its file in --log-dir. */
void mpi_job_name(const struct options *o);
/* Joins the job if mpirun has started this process together with others and the
 * command runs on several machines. Sets o->pl.machines. */
enum exit_code mpi_job_join(struct options *o);
/* Returns true if this process computes for machine 0. */
bool mpi_job_serves(const struct options *o);
/* Computes for machine 0 until that ends. */
enum exit_code mpi_job_serve(const struct options *o);
/* Ends the job. Returns `code`, or ends the process with it if other machines
 * are lost. */
enum exit_code mpi_job_leave(struct options *o, enum exit_code code);

#endif
