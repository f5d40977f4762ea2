/* Rates of measured devices that have their own processors, such as GPUs. */
#include "cost/calibration.h"
#include "device/device_ops.h"

#include <stdio.h>
#include <string.h>

#define FIELD(name) #name, offsetof(struct cost_rates, name)
const struct calibration_field
    calibration_device_field[CALIBRATION_DEVICE_FIELDS] = {
        {FIELD(read_bytes_per_s), "weight reads, GB/s", CALIBRATION_RATE},
        {FIELD(cached_bytes_per_s), "activations, GB/s", CALIBRATION_RATE},
        {FIELD(block_macs_per_s), "block formats, Gmac/s", CALIBRATION_RATE},
        {FIELD(float_macs_per_s), "float weights, Gmac/s", CALIBRATION_RATE},
        {FIELD(attention_macs_per_s), "attention, Gmac/s", CALIBRATION_RATE},
        {FIELD(insn_s), "an instruction, fixed, us", CALIBRATION_SECONDS},
        {FIELD(link_bytes_per_s), "copies from host, GB/s", CALIBRATION_RATE},
        {FIELD(out_bytes_per_s), "copies to host, GB/s", CALIBRATION_RATE},
        {FIELD(collective_s), "  fixed cost of one, us", CALIBRATION_SECONDS},
        {FIELD(p2p_bytes_per_s), "copies to peers, GB/s", CALIBRATION_RATE},
        {FIELD(p2p_s), "  fixed cost of one, us", CALIBRATION_SECONDS},
        {FIELD(bridge_bytes_per_s), "  in its link domain, GB/s",
         CALIBRATION_RATE},
        {FIELD(bridge_s), "  fixed cost of one, us", CALIBRATION_SECONDS},
};
#undef FIELD

bool calibration_may_lack(const struct calibration_field *f)
{
    return f->at == offsetof(struct cost_rates, p2p_bytes_per_s) ||
           f->at == offsetof(struct cost_rates, p2p_s) ||
           f->at == offsetof(struct cost_rates, bridge_bytes_per_s) ||
           f->at == offsetof(struct cost_rates, bridge_s);
}

/* Copies `text` to `out`, truncated to `size`. Replaces characters other than
 * printable ASCII, because the text is written to a JSON file. */
static void name(char *out, size_t size, const char *text)
{
    snprintf(out, size, "%.*s", (int)size - 1, text);
    for (; *out; out++)
        if (*out < ' ' || *out > '~')
            *out = '?';
}

void calibration_name_device(struct calibrated_device *out,
                             const struct device_desc *d)
{
    name(out->kind, sizeof out->kind, d->ops->name);
    name(out->title, sizeof out->title, d->title);
    name(out->bus, sizeof out->bus, d->bus);
    name(out->version, sizeof out->version, d->version);
}

bool calibration_same_device(const struct calibrated_device *a,
                             const struct calibrated_device *b)
{
    return strcmp(a->kind, b->kind) == 0 && strcmp(a->title, b->title) == 0 &&
           strcmp(a->bus, b->bus) == 0 && strcmp(a->version, b->version) == 0;
}

const struct calibrated_device *calibration_device(const struct calibration *c,
                                                   const struct device_desc *d)
{
    struct calibrated_device want = {0};

    if (!d->accelerator || d->described)
        return NULL;
    c = calibration_of(c, d->machine);
    calibration_name_device(&want, d);
    for (int i = 0; i < c->n_device; i++)
        if (calibration_same_device(&c->device[i], &want))
            return &c->device[i];
    return NULL;
}

void calibration_put_device(struct calibration *c,
                            const struct calibrated_device *d)
{
    int i = 0;

    while (i < c->n_device && !calibration_same_device(&c->device[i], d))
        i++;
    if (i == CALIBRATION_DEVICES)
        memmove(c->device, c->device + 1, --i * sizeof *c->device);
    c->device[i] = *d;
    c->n_device = i < c->n_device ? c->n_device : i + 1;
}

void calibration_device_rates(const struct calibration *c,
                              const struct device_list *l,
                              struct cost_rates *rates)
{
    for (int d = 0; d < l->n; d++) {
        const struct calibrated_device *x = calibration_device(c, &l->dev[d]);

        if (!x)
            continue;
        rates[d] = x->rates;
        rates[d].has_copy_engine = true;
        rates[d].one_queue = l->dev[d].one_queue;
    }
}
