/* Implements front_policy.h. */
#include "front_policy.h"
#include "options.h"

bool front_restarts(const struct front_end *e, int *code)
{
    /* machine 0 ends with 0 or by a signal if somebody else ends mpirun */
    bool decided = e->told > EXIT_DONE && e->told != EXIT_LOST && e->told < 128;

    *code = EXIT_DONE;
    if (e->stopping) {
        *code = e->told >= 0 ? e->told : EXIT_DONE;
        return false;
    }
    if (decided) {
        *code = e->told;
        return false;
    }
    if (e->served || e->came || e->late)
        return true;
    /* mpirun has ended before it started anything: names, ssh, mpirun itself */
    *code = e->code != 0 ? e->code : EXIT_FAILED;
    return false;
}

int front_wait_s(const struct front_end *e, int *n_fail)
{
    int s = 1;

    if (e->served_s >= FRONT_STEADY_S)
        *n_fail = 0;
    for (int i = 0; i < *n_fail && s < FRONT_MAX_WAIT_S; i++)
        s *= 2;
    ++*n_fail;
    return s < FRONT_MAX_WAIT_S ? s : FRONT_MAX_WAIT_S;
}
