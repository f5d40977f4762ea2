/* Writes the synthetic models of the benchmarks, each only once; synthetic.h
 * describes the function. */
#include "synthetic.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

pl_status synthetic_model(const struct synth_shape *s, const char *type,
                          const char *dir, char *path, size_t size, pl_err *err)
{
    struct synth_type t;
    struct stat st;
    pl_status status = synth_type(&t, type, err);

    snprintf(path, size, "%s/%s-%s.gguf", dir, s->name, type);
    if (status != PL_OK || stat(path, &st) == 0)
        return status;
    if (strcmp(dir, SYNTHETIC_DIR) == 0)
        mkdir(dir, 0777);
    return synth_save(s, &t, path, false, NULL, err);
}
