/* The names of the samplers, which are llama.cpp's. */
#include "pl.h"

/* The first PL_N_STEP names are in the order of enum pl_sampling_step, so they
 * are found by index. The others are alternatives that files and clients
 * use. */
static const struct {
    const char *name;
    pl_sampling_step step;
} names[] = {
    {"penalties", PL_STEP_PENALTIES},
    {"dry", PL_STEP_DRY},
    {"top_n_sigma", PL_STEP_TOP_N_SIGMA},
    {"top_k", PL_STEP_TOP_K},
    {"typ_p", PL_STEP_TYPICAL},
    {"top_p", PL_STEP_TOP_P},
    {"min_p", PL_STEP_MIN_P},
    {"xtc", PL_STEP_XTC},
    {"temperature", PL_STEP_TEMPERATURE},
    {"adaptive_p", PL_STEP_ADAPTIVE_P},
    {"top-n-sigma", PL_STEP_TOP_N_SIGMA},
    {"top-k", PL_STEP_TOP_K},
    {"typical", PL_STEP_TYPICAL},
    {"typical_p", PL_STEP_TYPICAL},
    {"typical-p", PL_STEP_TYPICAL},
    {"typ-p", PL_STEP_TYPICAL},
    {"top-p", PL_STEP_TOP_P},
    {"nucleus", PL_STEP_TOP_P},
    {"min-p", PL_STEP_MIN_P},
    {"temp", PL_STEP_TEMPERATURE},
    {"adaptive-p", PL_STEP_ADAPTIVE_P},
};

int pl_sampling_step_find(const char *name, size_t len)
{
    for (size_t i = 0; name && i < sizeof names / sizeof names[0]; i++)
        if (strlen(names[i].name) == len && !memcmp(names[i].name, name, len))
            return (int)names[i].step;
    return -1;
}

const char *pl_sampling_step_name(int step)
{
    return step >= 0 && step < PL_N_STEP ? names[step].name : "";
}
