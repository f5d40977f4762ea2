/* Fuzzes what a machine of a job reads before there is a device set: the plan
 * that machine 0 sends, the descriptions of devices in it, the files of
 * measured networks, and the rates that other machines have measured. A plan
 * that is read must have options and devices that the code can work with.
 *
 * A description is hundreds of bytes that must be right, so byte 0 chooses how
 * many right ones replace those of the input, whose other bytes patch them. */
#include "cost/calibration.h"
#include "device/device_ops.h"
#include "device/machines.h"
#include "device/machines_links.h"
#include "engine/machine_plan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int fuzz_machine(const uint8_t *data, size_t n);

static void require(bool ok)
{
    if (!ok)
        __builtin_trap();
}

enum { HEAD = 64, AT_DEVICES = 52, PATCH = 3, MOST = 3 };

static void check_plan(const uint8_t *data, size_t n)
{
    struct machine_plan p;
    pl_err err = {0};
    pl_status s = machine_plan_read(&p, data, n, &err);

    if (s == PL_OK) {
        require(p.n_dev >= 1 && p.opt.cpu);
        for (int i = 0; i < p.n_dev; i++) {
            require(p.dev[i].ops->open != NULL);
            require(strlen(p.dev[i].name) < sizeof p.dev[i].name);
            require(isfinite(p.dev[i].mem_bytes_per_s));
        }
        for (int i = 0; i < p.opt.n_keep; i++)
            require(strlen(p.opt.keep[i]) < n);
        for (int i = 0; i < p.opt.n_tensor_split; i++)
            require(isfinite(p.opt.tensor_split[i]));
    } else {
        require(err.status == s && strlen(err.message) > 0);
    }
    machine_plan_free(&p);
}

/* Reads a plan with `n_dev` right devices, changed by the patches, and then the
 * text[n] of options. */
static void check_patched(int n_dev, const uint8_t *patch, int n_patch,
                          const uint8_t *text, size_t n)
{
    size_t devices = machines_devices_bytes(n_dev), all = HEAD + devices + n;
    unsigned char *b = calloc(1, all + 1);
    struct device_desc dev[MOST];

    require(b != NULL);
    memset(dev, 0, sizeof dev);
    for (int i = 0; i < n_dev; i++) {
        dev[i].ops = device_backends[0];
        dev[i].n_thread = 1;
        strcpy(dev[i].name, "1/cpu0");
    }
    machines_write_devices(b + HEAD, dev, n_dev);
    memcpy(b + AT_DEVICES, &n_dev, sizeof(int32_t));
    if (n > 0)
        memcpy(b + HEAD + devices, text, n);
    for (; n_patch > 0; n_patch--, patch += PATCH)
        b[(patch[0] | (size_t)patch[1] << 8) % all] = patch[2];
    check_plan(b, all);
    free(b);
}

/* Reads the file of a measured network. */
static void check_link(const char *text, size_t n)
{
    struct machine_link x;

    if (machines_link_parse(&x, text, n, "a", "b", "Open MPI"))
        require(x.bytes_per_s > 0 && isfinite(x.bytes_per_s) &&
                x.latency_s > 0 && isfinite(x.latency_s));
}

/* Reads the rates that another machine has measured. */
static void check_measured(const char *text, size_t n)
{
    struct calibration *c = malloc(sizeof *c);

    require(c != NULL);
    if (calibration_parse(c, text, n))
        require(c->n_core > 0 && c->all.read_bytes_per_s > 0 &&
                isfinite(c->all.read_bytes_per_s) && c->n_machine == 0);
    free(c);
}

int fuzz_machine(const uint8_t *data, size_t n)
{
    int n_dev, n_patch;

    if (n == 0)
        return 0;
    n_dev = data[0] % (MOST + 1);
    n_patch = data[0] >> 4;
    if (n_dev == 0) {
        check_plan(data + 1, n - 1);
        check_link((const char *)data + 1, n - 1);
        check_measured((const char *)data + 1, n - 1);
    } else if (n - 1 >= (size_t)(n_patch * PATCH)) {
        check_patched(n_dev, data + 1, n_patch, data + 1 + n_patch * PATCH,
                      n - 1 - (size_t)(n_patch * PATCH));
    }
    return 0;
}
