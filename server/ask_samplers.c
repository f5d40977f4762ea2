/* "samplers" of llama-server's requests: which steps choose a token, and in
 * which order. There is one order here, so a list has to keep to it; what it
 * leaves out is off. */
#include "ask_read.h"

#include <string.h>

/* In our order. */
static const struct {
    const char *name;
    char letter;
    int at;    /* of its float in pl_sampling; -1: top_k, -2: penalties */
    float off; /* its value then */
} steps[] = {
    {"penalties", 'e', -2, 0},
    {"top_k", 'k', -1, 0},
    {"typ_p", 'y', offsetof(pl_sampling, typical_p), 1},
    {"top_p", 'p', offsetof(pl_sampling, top_p), 1},
    {"min_p", 'm', offsetof(pl_sampling, min_p), 0},
    {"temperature", 't', offsetof(pl_sampling, temperature), 1},
};
enum { N_STEP = sizeof(steps) / sizeof(steps[0]) };

/* Those that there are not are off, or were refused by their own fields. */
static const char *const others[] = {"dry", "top_n_sigma", "xtc", "infill"};
static const char other_letters[] = "dsxi";

static int find(const char *name, char letter)
{
    for (int i = 0; i < N_STEP; i++)
        if (name != NULL ? strcmp(steps[i].name, name) == 0
                         : steps[i].letter == letter)
            return i;
    return -1;
}

static bool is_other(const char *name, char letter)
{
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (name != NULL ? strcmp(others[i], name) == 0
                         : other_letters[i] == letter)
            return true;
    return false;
}

static void switch_off(pl_sampling *s, int step)
{
    if (steps[step].at == -1) {
        s->top_k = 0;
    } else if (steps[step].at == -2) {
        s->repeat_penalty = 1;
        s->frequency_penalty = s->presence_penalty = 0;
    } else {
        *(float *)((char *)s + steps[step].at) = steps[step].off;
    }
}

/* A list of names, or a string with a letter for each. */
bool ask_read_samplers(struct ask_reader *r)
{
    const json_t *v = field(&r->f, "samplers");
    const char *letters = json_string_value(v);
    size_t n = letters != NULL ? strlen(letters) : json_array_size(v);
    bool on[N_STEP] = {false};
    int last = -1;

    if (v == NULL)
        return true;
    if (letters == NULL && !json_is_array(v))
        return field_wrong(&r->f, "samplers", v,
                           "a list of names, or a string of letters");
    if (n == 0)
        return true;
    for (size_t i = 0; i < n; i++) {
        const char *name =
            letters != NULL ? NULL : json_string_value(json_array_get(v, i));
        char letter = letters != NULL ? letters[i] : '\0';
        int step = find(name, letter);

        if (step < 0 && is_other(name, letter))
            continue;
        if (step <= last)
            return field_wrong(
                &r->f, "samplers", v,
                "some of penalties, top_k, typ_p, top_p, min_p and "
                "temperature, in this order, which is the only one "
                "supported");
        on[step] = true;
        last = step;
    }
    for (int i = 0; i < N_STEP; i++)
        if (!on[i])
            switch_off(&r->a->sampling, i);
    return true;
}
