/* The settings of samplers that a model's file recommends: keys
 * general.sampling.*, which converters take from the model's own
 * generation_config.json. Names and meanings are llama.cpp's. */
#include "engine/engine.h"

#include "base/err.h"
#include "base/numeral.h"
#include "base/sized.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* The sampler settings that are numbers, each with its range. A number outside
 * the range becomes the nearest one inside, which has the same effect. Only if
 * `strict` is it an error instead. */
static const struct {
    const char *key;
    size_t at;
    double lo, hi;
    bool whole, strict;
} settings[] = {
#define AT(field) offsetof(pl_sampling, field)
    {"top_k", AT(top_k), 0, INT_MAX, true, false},
    {"top_p", AT(top_p), 0, 1, false, false},
    {"min_p", AT(min_p), 0, 1, false, false},
    {"xtc_probability", AT(xtc_probability), 0, 1, false, false},
    {"xtc_threshold", AT(xtc_threshold), 0, 1, false, false},
    {"temp", AT(temperature), 0, 1000, false, false},
    {"penalty_last_n", AT(penalty_last_n), -1, INT_MAX, true, false},
    {"penalty_repeat", AT(repeat_penalty), 0.001, 1000, false, true},
    {"mirostat", AT(mirostat), 0, 2, true, true},
    {"mirostat_tau", AT(mirostat_tau), 0, 1000, false, true},
    {"mirostat_eta", AT(mirostat_eta), 0, 1, false, true},
#undef AT
};

/* Sets *v to the value of a key: a number, or a string that contains a number.
 * Returns false if the value is neither. */
static bool read_number(const struct gguf_kv *kv, double *v)
{
    char text[40], *end;
    struct gguf_str s;

    if (kv->type == GGUF_ARRAY)
        return false;
    if (!gguf_as_str(kv, 0, &s))
        return gguf_as_f64(kv, 0, v) && isfinite(*v);
    if (s.len == 0 || s.len >= sizeof text)
        return false;
    memcpy(text, s.s, s.len);
    text[s.len] = '\0';
    *v = numeral_double(text, &end);
    return *end == '\0' && isfinite(*v);
}

/* Sets the error for a key whose value is not a valid setting. Only the first
 * such key of the file is reported. A key that the caller has overridden is
 * always reported, in place of keys of the file. */
static void reject(const struct gguf *g, const struct gguf_kv *kv,
                   const char *wanted, pl_status *s, pl_err *err)
{
    char value[80];

    if (kv->overridden)
        *s = err_set(err, PL_BAD_ARGUMENT,
                     "%s: the override of key %s is %s, not %s; correct it",
                     gguf_path(g), kv->key, gguf_value_text(kv, value), wanted);
    else if (*s == PL_OK)
        *s = err_set(err, PL_BAD_FILE,
                     "%s: key %s is %s, not %s; it is passed over",
                     gguf_path(g), kv->key, gguf_value_text(kv, value), wanted);
}

static void read_settings(const struct gguf *g, pl_sampling *to, pl_status *s,
                          pl_err *err)
{
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        char key[48], wanted[64];
        const struct gguf_kv *kv;
        char *field = (char *)to + settings[i].at;
        double v, near;

        snprintf(key, sizeof key, "general.sampling.%s", settings[i].key);
        kv = gguf_find(g, key);
        if (!kv)
            continue;
        numeral_print(wanted, sizeof wanted, "a number from %g to %g",
                      settings[i].lo, settings[i].hi);
        near = read_number(kv, &v)
                   ? fmin(fmax(v, settings[i].lo), settings[i].hi)
                   : NAN;
        if (isnan(near) || (settings[i].strict && fabs(near - v) > 0))
            reject(g, kv, wanted, s, err);
        else if (settings[i].whole)
            *(int *)field = (int)near;
        else
            *(float *)field = (float)near;
    }
}

/* Reads the order of the samplers from the file: names separated by semicolons.
 * Ignores names of samplers that do not exist here. */
static void read_order(const struct gguf *g, pl_sampling *to, pl_status *s,
                       pl_err *err)
{
    const struct gguf_kv *kv = gguf_find(g, "general.sampling.sequence");
    struct gguf_str text;
    bool taken[PL_N_STEP] = {false};
    int n = 0;

    if (!kv)
        return;
    if (kv->type == GGUF_ARRAY || !gguf_as_str(kv, 0, &text))
        text.len = 0;
    for (size_t at = 0; at < text.len;) {
        const char *end = memchr(text.s + at, ';', text.len - at);
        size_t len = (end ? (size_t)(end - text.s) : text.len) - at;
        int step = pl_sampling_step_find(text.s + at, len);

        if (step >= 0 && !taken[step]) {
            taken[step] = true;
            to->step[n++] = (uint8_t)step;
        }
        at += len + 1;
    }
    if (n > 0)
        to->n_step = n;
    else
        reject(g, kv, "names of samplers separated by ;", s, err);
}

pl_status pl_model_sampling(const pl_model *m, pl_sampling *s, pl_err *err)
{
    pl_sampling own;
    pl_status status = PL_OK;

    PL_NEED(m, err);
    PL_NEED(s, err);
    pl_sampling_init(&own);
    PL_TRY(sized_read(&own, sizeof own, s, "pl_sampling",
                      "call pl_sampling_init", err));
    read_settings(m->file, &own, &status, err);
    read_order(m->file, &own, &status, err);
    own.size = s->size;
    sized_write(s, s->size, &own, sizeof own);
    return status;
}
