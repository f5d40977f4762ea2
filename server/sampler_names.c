/* Converts names, letters and JSON of samplers by one table. See
 * sampler_names.h. */
#include "sampler_names.h"

#include <string.h>

static const struct {
    const char *name;
    char letter;
    int step;
} names[] = {
    {"penalties", 'e', PL_STEP_PENALTIES},
    {"dry", 'd', PL_STEP_DRY},
    {"top_n_sigma", 's', PL_STEP_TOP_N_SIGMA},
    {"top_k", 'k', PL_STEP_TOP_K},
    {"typ_p", 'y', PL_STEP_TYPICAL},
    {"top_p", 'p', PL_STEP_TOP_P},
    {"min_p", 'm', PL_STEP_MIN_P},
    {"xtc", 'x', PL_STEP_XTC},
    {"temperature", 't', PL_STEP_TEMPERATURE},
    {"infill", 'i', SAMPLER_PASSED_OVER},
    /* alternative names that clients use */
    {"top-n-sigma", '\0', PL_STEP_TOP_N_SIGMA},
    {"top-k", '\0', PL_STEP_TOP_K},
    {"typical", '\0', PL_STEP_TYPICAL},
    {"typical_p", '\0', PL_STEP_TYPICAL},
    {"typical-p", '\0', PL_STEP_TYPICAL},
    {"typ-p", '\0', PL_STEP_TYPICAL},
    {"top-p", '\0', PL_STEP_TOP_P},
    {"nucleus", '\0', PL_STEP_TOP_P},
    {"min-p", '\0', PL_STEP_MIN_P},
    {"temp", '\0', PL_STEP_TEMPERATURE},
};

const char sampler_all_names[] = "penalties, dry, top_n_sigma, top_k, typ_p, "
                                 "top_p, min_p, xtc and temperature";

int sampler_step(const char *name, size_t len, char letter)
{
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (name != NULL ? strlen(names[i].name) == len &&
                               memcmp(names[i].name, name, len) == 0
                         : letter != '\0' && names[i].letter == letter)
            return names[i].step;
    return SAMPLER_UNKNOWN;
}

const char *sampler_name(int step)
{
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (names[i].step == step)
            return names[i].name;
    return "none";
}

bool sampler_add(pl_sampling *s, int step)
{
    for (int i = 0; i < s->n_step; i++)
        if (s->step[i] == step)
            return false;
    s->step[s->n_step++] = (uint8_t)step;
    return true;
}

static json_t *steps_json(const pl_sampling *s)
{
    json_t *list = json_array();

    for (int i = 0; i < (s->n_step > 0 ? s->n_step : PL_N_STEP); i++) {
        int step = s->n_step > 0 ? s->step[i] : i;

        if (json_array_append_new(list, json_string(sampler_name(step))) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

json_t *sampler_json(const pl_sampling *s)
{
    json_t *steps = steps_json(s), *out;

    if (steps == NULL)
        return NULL;
    out = json_pack(
        "{s:I, s:f, s:f, s:f, s:i, s:f, s:f, s:f, s:f, s:f, s:f}", "seed",
        (json_int_t)s->seed, "temperature", (double)s->temperature,
        "dynatemp_range", (double)s->dynatemp_range, "dynatemp_exponent",
        (double)s->dynatemp_exponent, "top_k", s->top_k, "top_p",
        (double)s->top_p, "min_p", (double)s->min_p, "top_n_sigma",
        (double)s->top_n_sigma, "xtc_probability", (double)s->xtc_probability,
        "xtc_threshold", (double)s->xtc_threshold, "typical_p",
        (double)s->typical_p);
    if (out != NULL &&
        json_object_update_new(
            out,
            json_pack("{s:i, s:f, s:f, s:f, s:f, s:f, s:i, s:i, s:i, s:f, s:f,"
                      " s:O}",
                      "repeat_last_n", s->penalty_last_n, "repeat_penalty",
                      (double)s->repeat_penalty, "presence_penalty",
                      (double)s->presence_penalty, "frequency_penalty",
                      (double)s->frequency_penalty, "dry_multiplier",
                      (double)s->dry_multiplier, "dry_base",
                      (double)s->dry_base, "dry_allowed_length",
                      s->dry_allowed_length, "dry_penalty_last_n",
                      s->dry_last_n, "mirostat", s->mirostat, "mirostat_tau",
                      (double)s->mirostat_tau, "mirostat_eta",
                      (double)s->mirostat_eta, "samplers", steps)) != 0) {
        json_decref(out);
        out = NULL;
    }
    json_decref(steps);
    return out;
}
