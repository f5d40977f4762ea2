/* Opens modules with carriers; see network_open.h.
 *
 * A module is searched in the directory of the file that has this code (the
 * command, or the shared library), then in the directory `plait` beside the
 * libraries of the same installation, which is found from there, and last where
 * the system searches libraries. So an installation may be moved as a whole. */
#include "device/network_open.h"

#include "base/err.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The directory in which Debian has the libraries of an architecture. */
#if defined(__x86_64__)
#define TRIPLET "x86_64-linux-gnu"
#else
#define TRIPLET "aarch64-linux-gnu"
#endif

static const struct network_kind kinds[] = {
    {"Open MPI", "plait-openmpi.so", "OMPI_COMM_WORLD_SIZE"},
    {"MPICH", "plait-mpich.so", "PMI_SIZE"},
};
enum { N_KIND = sizeof kinds / sizeof kinds[0] };

const struct network_kind *network_kinds(int *n)
{
    *n = N_KIND;
    return kinds;
}

const struct network_kind *network_started(int *n)
{
    for (int i = 0; i < N_KIND; i++) {
        const char *s = getenv(kinds[i].variable);

        *n = s ? atoi(s) : 1;
        if (*n > 1)
            return &kinds[i];
    }
    *n = 1;
    return NULL;
}

/* Writes the path of the file with this code to path[], which may be a symbolic
 * link to it. */
static bool own_path(char path[PATH_MAX])
{
    Dl_info info;
    ssize_t n;

    if (dladdr((const void *)kinds, &info) && strchr(info.dli_fname, '/') &&
        realpath(info.dli_fname, path))
        return true;
    n = readlink("/proc/self/exe", path, PATH_MAX - 1);
    if (n > 0)
        path[n] = '\0';
    return n > 0;
}

/* Returns the module's handle; NULL if it is in no place. Writes the last error
 * of dlopen to why[n], of a file that exists if there is one. */
static void *open_file(const char *name, char *why, size_t n)
{
    static const char *const places[] = {"", "plait/", "../lib/plait/",
                                         "../lib64/plait/",
                                         "../lib/" TRIPLET "/plait/"};
    enum { N_PLACE = sizeof places / sizeof places[0] };
    char own[PATH_MAX], path[2 * PATH_MAX];
    bool found = false;
    void *h = NULL;

    snprintf(why, n, "no such file");
    for (int i = 0; i < N_PLACE && !h && own_path(own); i++) {
        *(strrchr(own, '/') + 1) = '\0';
        snprintf(path, sizeof path, "%s%s%s", own, places[i], name);
        if (access(path, R_OK) != 0)
            continue;
        found = true;
        h = dlopen(path, RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);
        if (!h)
            snprintf(why, n, "%s", dlerror());
    }
    if (!h && !found)
        h = dlopen(name, RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);
    return h;
}

pl_status network_open_module(const struct network_module **out,
                              const struct network_kind *kind, pl_err *err)
{
    char why[256];
    void *h = open_file(kind->module, why, sizeof why);
    const struct network_module *m = h ? dlsym(h, NETWORK_MODULE_SYMBOL) : NULL;

    *out = NULL;
    if (!h)
        return err_set(err, PL_NOT_FOUND,
                       "%s has started this process, but its module %s cannot "
                       "be opened: %s; install it, or build plait where the "
                       "headers of %s are",
                       kind->name, kind->module, why, kind->name);
    if (!m || m->version != NETWORK_MODULE_VERSION)
        return err_set(err, PL_UNSUPPORTED,
                       "the module %s is of another version of plait; install "
                       "that of the same version",
                       kind->module);
    *out = m;
    return PL_OK;
}

void network_describe(const struct network_kind *kind, char text[NETWORK_TEXT])
{
    static const char *const selects[] = {"OMPI_MCA_btl", "OMPI_MCA_pml",
                                          "OMPI_MCA_btl_tcp_if_include",
                                          "UCX_NET_DEVICES", "HYDRA_IFACE"};
    size_t n = (size_t)snprintf(text, NETWORK_TEXT, "%s", kind->name);

    for (size_t i = 0; i < sizeof selects / sizeof selects[0]; i++) {
        const char *value = getenv(selects[i]);

        if (value && n < NETWORK_TEXT)
            n += (size_t)snprintf(text + n, NETWORK_TEXT - n, " %s=%s",
                                  selects[i], value);
    }
}

bool network_has_module(const struct network_kind *kind)
{
    const struct network_module *m;

    return network_open_module(&m, kind, NULL) == PL_OK;
}
