/* Implementation of gpu_switch.h. Accepted values are 0, 1 and "". */
#include "device/gpu/gpu_switch.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"

pl_status gpu_switch(const char *name, const char *off, bool *on, pl_err *err)
{
    const char *s = getenv(name);

    *on = !s || !*s || strcmp(s, "1") == 0;
    if (*on || strcmp(s, "0") == 0)
        return PL_OK;
    return err_set(err, PL_BAD_ARGUMENT, "%s=%.40s: 0 %s, 1 does not", name, s,
                   off);
}
