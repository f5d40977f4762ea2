/* Reads those sampler settings of llama-server's requests that are not numbers:
 * the list of samplers in their order, and DRY's sequence breakers. */
#include "request_parse.h"
#include "sampler_names.h"

#include <stdlib.h>
#include <string.h>

/* Reads the list of samplers in the order in which they are applied: a list of
 * names, or a string with one letter for each sampler. */
static bool read_order(struct request_reader *r)
{
    const json_t *v = field(&r->f, "samplers");
    const char *letters = json_string_value(v);
    size_t n = letters != NULL ? strlen(letters) : json_array_size(v);
    pl_sampling *s = &r->a->sampling;

    if (v == NULL)
        return true;
    if (letters == NULL && !json_is_array(v))
        return field_wrong(&r->f, "samplers", v,
                           "a list of names, or a string of letters");
    if (n == 0)
        return true;
    s->n_step = 0;
    for (size_t i = 0; i < n; i++) {
        const json_t *item = json_array_get(v, i);
        const char *name = letters != NULL ? NULL : json_string_value(item);
        int step = letters == NULL && name == NULL
                       ? SAMPLER_UNKNOWN
                       : sampler_step(name, json_string_length(item),
                                      letters != NULL ? letters[i] : '\0');

        if (step == SAMPLER_PASSED_OVER)
            continue;
        if (step == SAMPLER_UNKNOWN || !sampler_add(s, step))
            return api_error_set(
                r->f.why, 400, "invalid_value", "samplers",
                "samplers: unknown or repeated; use some of %s, each once, or "
                "their letters, of \"edskypmxt\"",
                sampler_all_names);
    }
    return s->n_step > 0 || field_wrong(&r->f, "samplers", v,
                                        "a list with at least one sampler");
}

static bool read_breakers(struct request_reader *r)
{
    const char *name = "dry_sequence_breakers";
    const json_t *v = NULL;
    struct request *a = r->a;
    size_t n;

    if (!field_list(&r->f, name, &v))
        return false;
    if (v == NULL)
        return true;
    n = json_array_size(v);
    if (n > SAMPLER_BREAKERS)
        return field_wrong(&r->f, name, v, "a list of at most 256 strings");
    a->dry_breaker = calloc(n + 1, sizeof(*a->dry_breaker));
    if (a->dry_breaker == NULL)
        return api_error_set_memory(r->f.why);
    for (size_t i = 0; i < n; i++) {
        const json_t *text = json_array_get(v, i);
        size_t len = json_string_length(text);

        if (!json_is_string(text) || len < 1 || len > SAMPLER_BREAKER_BYTES ||
            strlen(json_string_value(text)) != len)
            return field_wrong(&r->f, name, v,
                               "a list of strings of 1 to 64 bytes");
        a->dry_breaker[i] = json_string_value(text);
    }
    a->sampling.dry_breaker = a->dry_breaker;
    a->sampling.n_dry_breaker = (int)n;
    return true;
}

bool request_read_samplers(struct request_reader *r)
{
    return read_order(r) && read_breakers(r);
}
