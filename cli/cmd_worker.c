/* Implements `plait worker`, which computes for machine 0 of a job. Other
 * commands do the same on machines other than 0 (mpi_job.c). */
#include "cmd.h"
#include "mpi_job.h"

enum exit_code cmd_worker(const struct options *o)
{
    return mpi_job_serve(o);
}
