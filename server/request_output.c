/* Reads the fields that select which details, such as probabilities, the
 * response contains besides the output. */
#include "request_parse.h"

#include "pl_receipt.h"

/* Reads the fields that ask for the probabilities of tokens. "logprobs" is a
 * number in /v1/completions and /completion, and true or false in chat
 * completions. */
static bool read_probs(struct request_reader *r)
{
    struct request *a = r->a;
    const json_t *v = field(&r->f, "logprobs");
    int64_t top = 0;

    if (a->kind != REQUEST_CHAT && json_is_integer(v)) {
        a->probs = a->kind == REQUEST_COMPLETIONS || json_integer_value(v) > 0;
        if (!field_int(&r->f, "logprobs", 0, REQUEST_MAX_TOP, &top))
            return false;
    } else if (!field_bool(&r->f, "logprobs", &a->probs)) {
        return false;
    }
    if (field(&r->f, "top_logprobs") != NULL) {
        if (!a->probs && a->kind == REQUEST_CHAT)
            return api_error_set(
                r->f.why, 400, "invalid_value", "top_logprobs",
                "top_logprobs: requires logprobs; set logprobs to true");
        if (!field_int(&r->f, "top_logprobs", 0, REQUEST_MAX_TOP, &top))
            return false;
    }
    if (!field_int(&r->f, "n_probs", 0, REQUEST_MAX_TOP, &top))
        return false;
    a->probs = a->probs || (field(&r->f, "n_probs") != NULL && top > 0);
    a->n_top = (int)top;
    return true;
}

/* Reads the field "receipt", whose value is true or one of the forms that the
 * option --receipt-form allows. */
static bool read_receipt(struct request_reader *r)
{
    static const struct {
        const char *name;
        unsigned flags;
    } forms[] = {
#define FORM_ROW(form, text, flags) {text, flags},
        PL_RECEIPT_FORM_MAP(FORM_ROW)
#undef FORM_ROW
    };
    const json_t *j = field(&r->f, "receipt");
    const char *form = json_is_true(j) ? "brief" : json_string_value(j);

    for (size_t i = 0; form && i < sizeof forms / sizeof forms[0]; i++)
        if (strcmp(form, forms[i].name) == 0) {
            r->a->receipt = true;
            r->a->receipt_flags = forms[i].flags;
            return true;
        }
    return !j || json_is_null(j) || json_is_false(j) ||
           api_error_set(r->f.why, 400, "invalid_value", "receipt",
                         "receipt: must be true, \"full\", \"brief\" or "
                         "\"hashes\"");
}

bool request_read_output(struct request_reader *r)
{
    struct request *a = r->a;
    struct fields stream;
    bool cache = true, skip_special = true;

    if (!field_bool(&r->f, "stream", &a->stream) ||
        !field_bool(&r->f, "skip_special_tokens", &skip_special) ||
        !field_bool(&r->f, "timings_per_token", &a->timings) ||
        !field_bool(&r->f, "return_progress", &a->progress) ||
        !field_bool(&r->f, "cache_prompt", &cache) || !read_receipt(r) ||
        !request_read_format(r))
        return false;
    a->no_cache = !cache;
    a->special = !skip_special;
    if (a->kind == REQUEST_MESSAGES)
        return true;
    if (a->kind == REQUEST_RESPONSES) {
        const json_t *top = field(&r->f, "top_logprobs");

        return top == NULL || json_integer_value(top) == 0 ||
               field_unsupported(&r->f, "top_logprobs",
                                 "token probabilities are");
    }
    if (!fields_within(&r->f, "stream_options", &stream) ||
        !field_bool(&stream, "include_usage", &a->usage) ||
        !field_bool(&r->f, "verbose", &a->verbose) ||
        !field_bool(&r->f, "return_tokens", &a->ids) ||
        !field_bool(&r->f, "echo", &a->echo) || !read_probs(r))
        return false;
    if (a->echo && a->probs && a->kind != REQUEST_COMPLETIONS)
        return field_unsupported(&r->f, "echo",
                                 "prompt token probabilities are");
    a->prompt_probs = a->echo && a->probs;
    a->no_cache |= a->prompt_probs;
    /* In llama-server, streams always have the ids of the tokens. */
    a->ids |= a->stream &&
              (a->kind == REQUEST_COMPLETION || a->kind == REQUEST_INFILL);
    return true;
}
