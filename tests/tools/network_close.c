/* network-close MODULE: a machine of a job of three. Machine 1 sends long
 * messages that machine 2 never asks for, as after a failed step; then all
 * close their network. Status 0 if that has ended well. */
#include "device/network_module.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { LONG = 1 << 20, SHORT = 100 };

int main(int argc, char **argv)
{
    void *lib = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL) : NULL;
    const struct network_module *module =
        lib ? dlsym(lib, NETWORK_MODULE_SYMBOL) : NULL;
    char why[NETWORK_MODULE_ERROR];
    struct network *n;
    void *data = calloc(1, LONG);

    if (!module || !data) {
        fprintf(stderr, "network-close: %s\n", lib ? "no module" : dlerror());
        return 2;
    }
    if (!module->open(&n, why)) {
        fprintf(stderr, "network-close: %s\n", why);
        return 2;
    }
    if (n->machine == 1) {
        n->ops->send(n, 2, 1, data, LONG);
        n->ops->send(n, 2, 2, data, SHORT);
        n->ops->send(n, 2, 3, data, LONG);
    }
    /* A sanitizer would complain of what MPI leaves behind. */
    _exit(module->close(n, true) ? 0 : 1);
}
