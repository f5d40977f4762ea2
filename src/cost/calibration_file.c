/* The calibration's file:
 *
 *   {"plait": version, "cpu": name, "cores": n, "kernels": kernel set,
 *    "rates": {"one": {...}, "all": {...},
 *              "devices": [{"kind": "cuda", "name": title, "bus": address,
 *                           "version": the driver's, "island": number,
 *                           "rates": {...}}]},
 *    "check": "0123456789abcdef"}
 *
 * `check` is the hash of `rates` as compact JSON with sorted keys. Whatever is
 * not as it should be, down to one digit, makes the file count for nothing. */
#include "base/cache_place.h"
#include "base/err.h"
#include "base/numeral.h"
#include "base/version.h" /* made by the build */
#include "cost/calibration.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* FNV-1a */
static uint64_t hash(const char *s)
{
    uint64_t h = 0xcbf29ce484222325;

    for (; *s; s++)
        h = (h ^ (unsigned char)*s) * 0x100000001b3;
    return h;
}

/* ---- JSON --------------------------------------------------------------- */

static json_t *of_rates(struct cost_rates r, int n,
                        const struct calibration_field *f)
{
    json_t *all = json_object();

    for (int i = 0; i < n && all; i++, f++)
        if (json_object_set_new(all, f->name,
                                json_real(*calibration_value(&r, f))) != 0) {
            json_decref(all);
            return NULL;
        }
    return all;
}

static json_t *of_devices(const struct calibration *c)
{
    json_t *all = json_array();
    bool ok = true;

    for (int i = 0; i < c->n_device; i++) {
        const struct calibrated_device *d = &c->device[i];
        json_t *r = of_rates(d->rates, CALIBRATION_DEVICE_FIELDS,
                             calibration_device_field);

        ok &= json_array_append_new(
                  all, json_pack("{s:s, s:s, s:s, s:s, s:i, s:o}", "kind",
                                 d->kind, "name", d->title, "bus", d->bus,
                                 "version", d->version, "island",
                                 d->rates.link_domain, "rates", r)) == 0;
    }
    if (ok)
        return all;
    json_decref(all);
    return NULL;
}

static bool check_of(char text[20], const json_t *rates)
{
    locale_t before = numeral_begin();
    char *s = json_dumps(rates, JSON_COMPACT | JSON_SORT_KEYS);

    numeral_end(before);
    if (s)
        snprintf(text, 20, "%016" PRIx64, hash(s));
    free(s);
    return s != NULL;
}

json_t *calibration_json(const struct calibration *c)
{
    json_t *rates = json_pack(
        "{s:o, s:o, s:o}", "one",
        of_rates(c->one, CALIBRATION_FIELDS, calibration_field), "all",
        of_rates(c->all, CALIBRATION_FIELDS, calibration_field), "devices",
        of_devices(c));
    char check[20];

    if (!rates || !check_of(check, rates)) {
        json_decref(rates);
        return NULL;
    }
    return json_pack("{s:s, s:s, s:i, s:s, s:o, s:s}", "plait", PLAIT_VERSION,
                     "cpu", c->cpu, "cores", c->n_core, "kernels",
                     kernel_set_name(c->kernel_set), "rates", rates, "check",
                     check);
}

static bool to_rates(struct cost_rates *r, const json_t *o, int n,
                     const struct calibration_field *f)
{
    for (int i = 0; i < n; i++, f++) {
        const json_t *x = json_object_get(o, f->name);
        double v = json_number_value(x);

        if (!json_is_number(x) || !isfinite(v) ||
            !(v > 0 || (v == 0 && calibration_may_lack(f))))
            return false;
        *calibration_value(r, f) = v;
    }
    r->one_queue = true;
    return true;
}

static bool says(const json_t *o, const char *name, const char *text)
{
    const char *s = json_string_value(json_object_get(o, name));

    return s && strcmp(s, text) == 0;
}

static bool to_text(char *out, size_t size, const json_t *o, const char *name)
{
    const char *s = json_string_value(json_object_get(o, name));

    return s && (size_t)snprintf(out, size, "%s", s) < size;
}

/* Where it is in one, there is a rate to the others. */
static bool to_island(struct cost_rates *r, const json_t *o)
{
    json_int_t n = json_integer_value(o);

    r->link_domain = (int)n;
    return json_is_integer(o) && n >= 0 && n <= INT_MAX &&
           (n == 0 || r->bridge_bytes_per_s > 0);
}

/* None at all is no damage. */
static bool to_devices(struct calibration *c, const json_t *all)
{
    c->n_device = 0;
    if (json_array_size(all) > CALIBRATION_DEVICES)
        return false;
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *o = json_array_get(all, i);
        struct calibrated_device *d = &c->device[i];

        if (!to_text(d->kind, sizeof d->kind, o, "kind") ||
            !to_text(d->title, sizeof d->title, o, "name") ||
            !to_text(d->bus, sizeof d->bus, o, "bus") ||
            !to_text(d->version, sizeof d->version, o, "version") ||
            !to_rates(&d->rates, json_object_get(o, "rates"),
                      CALIBRATION_DEVICE_FIELDS, calibration_device_field) ||
            !to_island(&d->rates, json_object_get(o, "island")))
            return false;
        c->n_device++;
    }
    return true;
}

/* It is of this machine, and whole. */
static bool from_json(struct calibration *c, const json_t *o)
{
    const json_t *rates = json_object_get(o, "rates");
    char check[20];

    return rates && check_of(check, rates) && says(o, "check", check) &&
           says(o, "plait", PLAIT_VERSION) && says(o, "cpu", c->cpu) &&
           says(o, "kernels", kernel_set_name(c->kernel_set)) &&
           json_integer_value(json_object_get(o, "cores")) == c->n_core &&
           to_rates(&c->one, json_object_get(rates, "one"), CALIBRATION_FIELDS,
                    calibration_field) &&
           to_rates(&c->all, json_object_get(rates, "all"), CALIBRATION_FIELDS,
                    calibration_field) &&
           to_devices(c, json_object_get(rates, "devices"));
}

/* ---- files -------------------------------------------------------------- */

pl_status calibration_path(char path[CALIBRATION_PATH],
                           const struct calibration *c, pl_err *err)
{
    char key[256], name[64];

    snprintf(key, sizeof key, "%s|%d|%s|%s", c->cpu, c->n_core,
             kernel_set_name(c->kernel_set), PLAIT_VERSION);
    snprintf(name, sizeof name, "rates-%016" PRIx64 ".json", hash(key));
    return cache_path(path, name, "what was measured", err);
}

pl_status calibration_load(struct calibration *c, enum kernel_set set,
                           const struct topology *t, pl_err *err)
{
    char path[CALIBRATION_PATH];
    locale_t before;
    json_t *o;
    bool ok, full;

    calibration_init(c, set, t);
    PL_TRY(calibration_path(path, c, err));
    before = numeral_begin();
    errno = 0;
    o = json_load_file(path, JSON_REJECT_DUPLICATES, NULL);
    full = !o && errno == ENOMEM;
    numeral_end(before);
    if (full)
        return err_no_memory(err, "the measurement of this machine");
    ok = o && from_json(c, o);
    json_decref(o);
    return ok ? PL_OK
              : err_set(err, PL_NOT_FOUND,
                        "%s: no measurement of this machine; `plait devices "
                        "--measure` makes one",
                        path);
}

static int add(const char *text, size_t n, void *file)
{
    return pl_file_write(file, text, n) ? 0 : -1;
}

static bool dump(const json_t *o, pl_file *f)
{
    locale_t before = numeral_begin();
    int rc = json_dump_callback(o, add, f, JSON_INDENT(2));

    numeral_end(before);
    return rc == 0;
}

pl_status calibration_save(const struct calibration *c, pl_err *err)
{
    char path[CALIBRATION_PATH];
    pl_file *f;
    json_t *o;
    pl_status s;

    PL_TRY(calibration_path(path, c, err));
    PL_TRY(cache_directories(path, err));
    PL_TRY(pl_file_open(&f, path, 0, err));
    o = calibration_json(c);
    if (o && dump(o, f)) /* it fits into the buffer of f: writes fail later */
        s = pl_file_commit(f, err);
    else
        s = err_no_memory(err, "what was measured");
    pl_file_close(f);
    json_decref(o);
    return s;
}
