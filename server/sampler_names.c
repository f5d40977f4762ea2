/* Converts samplers from and to names, letters and JSON. See
 * sampler_names.h. */
#include "sampler_names.h"

#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

/* The letter for each sampler in llama.cpp's string of samplers, in the order
 * of enum pl_sampling_step. */
static const char letters[PL_N_STEP + 1] = "edskypmxta";

const char sampler_all_names[] = "penalties, dry, top_n_sigma, top_k, typ_p, "
                                 "top_p, min_p, xtc, temperature and "
                                 "adaptive_p";

uint64_t sampler_draw_seed(void)
{
    uint32_t seed;

    /* If getrandom fails for lack of entropy, the process id and the time are
     * the seed. That suffices, because the seed is reported. */
    if (getrandom(&seed, sizeof(seed), GRND_NONBLOCK) != (ssize_t)sizeof(seed))
        seed = (uint32_t)getpid() ^ (uint32_t)time(NULL);
    return seed & INT32_MAX;
}

int sampler_step(const char *name, size_t len, char letter)
{
    const char *at = letter != '\0' ? strchr(letters, letter) : NULL;
    int step = name != NULL ? pl_sampling_step_find(name, len)
               : at != NULL ? (int)(at - letters)
                            : SAMPLER_UNKNOWN;

    if (name != NULL ? len == 6 && memcmp(name, "infill", len) == 0
                     : letter == 'i')
        return SAMPLER_PASSED_OVER;
    return step;
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

    for (int i = 0; i < (s->n_step > 0 ? s->n_step : PL_N_STEP_USUAL); i++) {
        int step = s->n_step > 0 ? s->step[i] : i;

        if (json_array_append_new(
                list, json_string(pl_sampling_step_name(step))) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

json_t *sampler_json(const pl_sampling *s)
{
    return json_pack(
        "{s:I, s:f, s:f, s:f, s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:i, s:f, s:f,"
        " s:f, s:f, s:f, s:i, s:i, s:i, s:f, s:f, s:f, s:f, s:o}",
        "seed", (json_int_t)s->seed, "temperature", (double)s->temperature,
        "dynatemp_range", (double)s->dynatemp_range, "dynatemp_exponent",
        (double)s->dynatemp_exponent, "top_k", s->top_k, "top_p",
        (double)s->top_p, "min_p", (double)s->min_p, "top_n_sigma",
        (double)s->top_n_sigma, "xtc_probability", (double)s->xtc_probability,
        "xtc_threshold", (double)s->xtc_threshold, "typical_p",
        (double)s->typical_p, "repeat_last_n", s->penalty_last_n,
        "repeat_penalty", (double)s->repeat_penalty, "presence_penalty",
        (double)s->presence_penalty, "frequency_penalty",
        (double)s->frequency_penalty, "dry_multiplier",
        (double)s->dry_multiplier, "dry_base", (double)s->dry_base,
        "dry_allowed_length", s->dry_allowed_length, "dry_penalty_last_n",
        s->dry_last_n, "mirostat", s->mirostat, "mirostat_tau",
        (double)s->mirostat_tau, "mirostat_eta", (double)s->mirostat_eta,
        "adaptive_target", (double)s->adaptive_target, "adaptive_decay",
        (double)s->adaptive_decay, "samplers", steps_json(s));
}
