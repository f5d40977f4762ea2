/* All known fields of the published requests of llama.cpp's server, vLLM,
 * SGLang, and the three protocols. A field that changes the result is honoured
 * or rejected by its name; the others change nothing. */
#include "lib/support.h"
#include "server/request.h"
#include "server/sampler_names.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHAT = 1, WRITE = 2, FORM = 4, BLOCK = 8, ITEM = 16 };
enum { TALK = CHAT | BLOCK | ITEM, TEXT = WRITE | FORM, EVERY = TALK | TEXT };

/* The protocols, and a body for each. */
static const struct {
    enum request_kind kind;
    const char *body;
} kinds[] = {
    {REQUEST_CHAT, "{'messages': [{'role': 'user', 'content': 'Hi'}, {'role':"
                   "'user', 'content': 'Ho'}], 'tools': [{'type': 'function',"
                   "'function': {'name': 'f'}}], 'max_tokens': 90%s%s}"},
    {REQUEST_COMPLETIONS, "{'prompt': 'x', 'max_tokens': 90%s%s}"},
    {REQUEST_COMPLETION, "{'prompt': 'x', 'n_predict': 90%s%s}"},
    {REQUEST_MESSAGES,
     "{'messages': [{'role': 'user', 'content': 'Hi'}], 'tools': [{'name': 'f',"
     "'input_schema': {}}], 'max_tokens': 90%s%s}"},
    {REQUEST_RESPONSES,
     "{'input': 'x', 'tools': [{'type': 'function', 'name': 'f', 'parameters':"
     "{}}], 'max_output_tokens': 90%s%s}"},
};
enum { N_KIND = sizeof kinds / sizeof kinds[0] };

enum effect { HONOURED, NOTHING, REFUSED };

static const struct row {
    const char *field; /* a field with a value that asks for something */
    unsigned kinds;    /* the protocols that it is tried in */
    enum effect effect;
} rows[] = {
    /* sampling and the end of the output */
    {"'temperature': 0.5", EVERY, HONOURED},
    {"'dynatemp_range': 0.5", EVERY, HONOURED},
    {"'dynatemp_exponent': 0.5", EVERY, HONOURED},
    {"'top_k': 3", EVERY, HONOURED},
    {"'top_p': 0.5", EVERY, HONOURED},
    {"'min_p': 0.5", EVERY, HONOURED},
    {"'typical_p': 0.5", EVERY, HONOURED},
    {"'top_n_sigma': 1", EVERY, HONOURED},
    {"'xtc_probability': 0.5", EVERY, HONOURED},
    {"'xtc_threshold': 0.2", EVERY, HONOURED},
    {"'repeat_penalty': 1.5", EVERY, HONOURED},
    {"'repetition_penalty': 1.5", EVERY, HONOURED},
    {"'repeat_last_n': 9", EVERY, HONOURED},
    {"'presence_penalty': 1", EVERY, HONOURED},
    {"'frequency_penalty': 1", EVERY, HONOURED},
    {"'dry_multiplier': 1", EVERY, HONOURED},
    {"'dry_base': 2", EVERY, HONOURED},
    {"'dry_allowed_length': 4", EVERY, HONOURED},
    {"'dry_penalty_last_n': 9", EVERY, HONOURED},
    {"'dry_sequence_breakers': ['x']", EVERY, HONOURED},
    {"'mirostat': 2", EVERY, HONOURED},
    {"'mirostat_tau': 2", EVERY, HONOURED},
    {"'mirostat_eta': 0.5", EVERY, HONOURED},
    {"'adaptive_target': 0.5", EVERY, HONOURED},
    {"'adaptive_decay': 0.5", EVERY, HONOURED},
    {"'samplers': ['top_k']", EVERY, HONOURED},
    {"'seed': 42", EVERY, HONOURED},
    {"'logit_bias': {'3': 1}", EVERY, HONOURED},
    {"'ignore_eos': true", EVERY, HONOURED},
    {"'stop': ['x']", CHAT | TEXT | ITEM, HONOURED},
    {"'stop_sequences': ['x']", BLOCK, HONOURED},
    {"'stop_token_ids': [3]", EVERY, HONOURED},
    {"'min_tokens': 3", EVERY, HONOURED},
    {"'allowed_token_ids': [3]", EVERY, HONOURED},
    {"'bad_words': ['word']", EVERY, HONOURED},
    {"'include_stop_str_in_output': true", EVERY, HONOURED},
    {"'no_stop_trim': true", EVERY, HONOURED},
    {"'n_predict': 3", FORM, HONOURED},
    {"'max_tokens': 3", CHAT | TEXT | BLOCK, HONOURED},
    {"'max_completion_tokens': 3", CHAT, HONOURED},
    {"'max_output_tokens': 3", ITEM, HONOURED},
    {"'t_max_predict_ms': 3", CHAT | TEXT, HONOURED},
    {"'n_indent': 3", CHAT | TEXT, HONOURED},
    {"'n': 3", CHAT | TEXT, HONOURED},
    {"'n_cmpl': 3", CHAT | TEXT, HONOURED},
    {"'speculative.n_min': 3", EVERY, HONOURED},
    {"'speculative.p_min': 0.5", EVERY, HONOURED},
    {"'best_of': 3", CHAT | TEXT, REFUSED},
    {"'use_beam_search': true", EVERY, REFUSED},
    {"'min_keep': 3", EVERY, REFUSED},
    {"'stop_regex': 'x'", EVERY, REFUSED},
    {"'logits_processors': ['x']", EVERY, REFUSED},
    {"'custom_logit_processor': 'x'", EVERY, REFUSED},
    {"'vllm_xargs': {'x': 1}", EVERY, REFUSED},
    {"'repetition_detection': {'min_count': 3}", EVERY, REFUSED},
    {"'backend_sampling': true", EVERY, NOTHING},
    {"'length_penalty': 1.5", EVERY, NOTHING},     /* of beam search alone */
    {"'custom_params': {'x': 1}", EVERY, NOTHING}, /* of logits processors */
    /* constraints: another test has all names */
    {"'response_format': {'type': 'json_object'}", EVERY, HONOURED},
    {"'grammar': 'root ::= [a]'", EVERY, HONOURED},
    {"'json_schema': {'type': 'array'}", EVERY, HONOURED},
    {"'structured_outputs': {'regex': 'a'}", EVERY, HONOURED},
    {"'guided_decoding_backend': 'xgrammar'", EVERY, NOTHING},
    {"'grammar_lazy': true", CHAT | TEXT, REFUSED},
    {"'grammar_triggers': [{'type': 0}]", EVERY, NOTHING}, /* of lazy ones */
    {"'preserved_tokens': ['x']", EVERY, NOTHING},
    /* the prompt */
    {"'add_special_tokens': false", TEXT, HONOURED},
    {"'add_special_tokens': true", TALK, REFUSED},
    {"'truncate_prompt_tokens': 3", EVERY, REFUSED},
    {"'truncation': 'auto'", ITEM, HONOURED},
    {"'prompt_embeds': ['x']", EVERY, REFUSED},
    {"'input_ids': [1]", EVERY, REFUSED},
    {"'suffix': 'x'", TEXT, REFUSED},
    {"'image_data': [{'data': 'x'}]", TEXT, REFUSED},
    {"'instructions': 'x'", ITEM, HONOURED},
    {"'system': 'x'", BLOCK, HONOURED},
    {"'documents': [{'text': 'x'}]", TALK, HONOURED},
    {"'chat_template': 'x'", TALK, REFUSED},
    {"'chat_template_kwargs': {'x': 1}", TALK, HONOURED},
    {"'add_generation_prompt': false", CHAT, HONOURED},
    {"'conversation': 'x'", ITEM, REFUSED},
    {"'prompt': {'id': 'x'}", ITEM, REFUSED},
    {"'previous_response_id': 'x'", ITEM, REFUSED}, /* it is unknown here */
    {"'previous_input_messages': [{'role': 'user'}]", ITEM, REFUSED},
    {"'session_params': {'id': 'x'}", EVERY, REFUSED},
    {"'container': 'x'", BLOCK, REFUSED},
    {"'mcp_servers': [{'name': 'x'}]", BLOCK, REFUSED},
    {"'cache_control': {'type': 'ephemeral'}", BLOCK, NOTHING},
    /* Shortening is a permission; conversations stay as they are. */
    {"'context_management': {'edits': []}", TALK, NOTHING},
    {"'mm_processor_kwargs': {'x': 1}", EVERY, NOTHING}, /* of images */
    {"'n_keep': 3", EVERY, NOTHING},    /* no context is shifted here */
    {"'n_discard': 3", EVERY, NOTHING}, /* likewise */
    /* tools and reasoning */
    {"'tools': []", CHAT | BLOCK | ITEM, HONOURED},
    {"'tool_choice': 'none'", CHAT | ITEM, HONOURED},
    {"'tool_choice': {'type': 'none'}", BLOCK, HONOURED},
    {"'parallel_tool_calls': false", CHAT | ITEM, HONOURED},
    {"'parse_tool_calls': false", CHAT, REFUSED},
    {"'max_tool_calls': 3", ITEM, NOTHING}, /* of tools that a server runs */
    {"'reasoning_effort': 'low'", CHAT, HONOURED},
    {"'reasoning': {'effort': 'low'}", ITEM, HONOURED},
    {"'thinking': {'type': 'disabled'}", BLOCK, HONOURED},
    {"'output_config': {'effort': 'low'}", BLOCK, HONOURED},
    {"'enable_thinking': false", TALK, HONOURED},
    {"'thinking_token_budget': 3", TALK, HONOURED},
    {"'thinking_budget_tokens': 3", TALK, HONOURED},
    {"'reasoning_budget_tokens': 3", TALK, HONOURED},
    {"'reasoning_format': 'none'", TALK, HONOURED},
    {"'include_reasoning': false", TALK, HONOURED},
    {"'separate_reasoning': false", TALK, HONOURED},
    {"'stream_reasoning': false", TALK, NOTHING}, /* the content is the same */
    {"'verbosity': 'low'", CHAT, NOTHING}, /* a hint that no template reads */
    {"'text': {'verbosity': 'low'}", ITEM, NOTHING},
    /* other kinds of output */
    {"'modalities': ['text', 'audio']", CHAT, REFUSED},
    {"'modalities': ['text']", CHAT, NOTHING},
    {"'audio': {'voice': 'x'}", CHAT, REFUSED},
    {"'prediction': {'type': 'content'}", CHAT, NOTHING},
    {"'background': true", ITEM, REFUSED},
    {"'lora': [{'id': 0}]", CHAT | TEXT, REFUSED},
    {"'lora_path': 'x'", EVERY, REFUSED},
    /* the form of the response */
    {"'stream': true", EVERY, HONOURED},
    {"'stream_options': {'include_usage': true}", CHAT | TEXT, HONOURED},
    {"'stream_options': {'continuous_usage_stats': true}", CHAT | TEXT,
     NOTHING},
    {"'stream_options': {'include_obfuscation': false}", EVERY, NOTHING},
    {"'logprobs': true", CHAT, HONOURED},
    {"'logprobs': 2", TEXT, HONOURED},
    {"'n_probs': 2", CHAT | TEXT, HONOURED},
    {"'echo': true", CHAT | TEXT, HONOURED},
    {"'top_logprobs': 2", ITEM, REFUSED},
    {"'include': ['message.output_text.logprobs']", ITEM, REFUSED},
    {"'include': ['reasoning.encrypted_content']", ITEM, NOTHING},
    {"'prompt_logprobs': 1", EVERY, REFUSED},
    {"'logprob_token_ids': [1]", EVERY, REFUSED},
    {"'post_sampling_probs': true", CHAT | TEXT, REFUSED},
    {"'return_tokens_as_token_ids': true", EVERY, REFUSED},
    {"'return_token_ids': true", EVERY, REFUSED},
    {"'return_hidden_states': true", EVERY, REFUSED},
    {"'return_routed_experts': true", EVERY, REFUSED},
    {"'return_tokens': true", CHAT | TEXT, HONOURED},
    {"'return_progress': true", EVERY, HONOURED},
    {"'timings_per_token': true", EVERY, HONOURED},
    {"'verbose': true", CHAT | TEXT, HONOURED},
    {"'skip_special_tokens': false", EVERY, HONOURED},
    {"'spaces_between_special_tokens': false", EVERY, NOTHING},
    {"'response_fields': ['content']", FORM, NOTHING}, /* selects fields */
    {"'return_cached_tokens_details': true", EVERY, NOTHING},
    {"'sse_ping_interval': 3", EVERY, NOTHING},
    /* how and where it is computed, and labels */
    {"'cache_prompt': false", EVERY, HONOURED},
    {"'id_slot': 0", EVERY, HONOURED},
    {"'n_cache_reuse': 3", EVERY, NOTHING}, /* no shifted cache is reused */
    {"'cache_salt': 'x'", EVERY, NOTHING},
    {"'extra_key': 'x'", EVERY, NOTHING},
    {"'priority': 3", EVERY, NOTHING},
    {"'request_id': 'x'", EVERY, NOTHING},
    {"'rid': 'x'", EVERY, NOTHING},
    {"'kv_transfer_params': {'x': 1}", EVERY, NOTHING},
    {"'data_parallel_rank': 0", EVERY, NOTHING},
    {"'bootstrap_host': 'x'", EVERY, NOTHING},
    {"'user': 'x'", EVERY, NOTHING},
    {"'safety_identifier': 'x'", EVERY, NOTHING},
    {"'metadata': {'x': 'y'}", EVERY, NOTHING},
    {"'store': true", EVERY, NOTHING},
    {"'service_tier': 'auto'", EVERY, NOTHING},
    {"'prompt_cache_key': 'x'", EVERY, NOTHING},
    {"'prompt_cache_retention': '24h'", EVERY, NOTHING},
    {"'inference_geo': 'eu'", BLOCK, NOTHING},
    {"'speed': 'fast'", BLOCK, NOTHING},
};

/* ---- what a request asks for, as text ------------------------------------ */

static void put_ids(FILE *f, const char *name, const int32_t *id, int64_t n)
{
    fprintf(f, "%s", name);
    for (int64_t i = 0; i < n; i++)
        fprintf(f, " %" PRId32, id[i]);
    fputc('\n', f);
}

static void put_texts(FILE *f, const struct request *a)
{
    const char *const texts[] = {a->messages, a->tools, a->extra,
                                 a->begun,    a->model, a->schema,
                                 a->grammar,  a->call,  a->effort};

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        fprintf(f, "%s\n", texts[i] ? texts[i] : "-");
    for (int i = 0; i < a->n_stop; i++)
        fprintf(f, "stop %s\n", a->stop[i]);
    for (int i = 0; i < a->sampling.n_dry_breaker && a->dry_breaker; i++)
        fprintf(f, "breaker %s\n", a->dry_breaker[i]);
    for (int i = 0; a->prompt && i < a->n_prompt; i++)
        fprintf(f, "prompt %d %s\n", a->prompt[i].bare,
                a->prompt[i].piece[0].text);
}

/* Returns all that a parsed request asks for, to be freed. */
static char *described(const struct request *a)
{
    const pl_sampling *s = &a->sampling;
    json_t *j = sampler_json(s);
    char *sampling = json_dumps(j, JSON_SORT_KEYS), *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);

    assert_true(f && sampling);
    fprintf(f, "%s\n", sampling);
    put_texts(f, a);
    put_ids(f, "bias", s->bias_id, s->n_bias);
    put_ids(f, "only", s->only, s->n_only);
    put_ids(f, "banned", s->banned, s->n_banned);
    put_ids(f, "stop", s->stop, s->n_stop);
    fprintf(f,
            "%d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d "
            "%d %d %d %d %d\n",
            a->no_generation_prompt, a->begun_reasoning, a->n_prompt, a->n,
            a->shows_stop, a->ignore_end, a->no_cache, a->has_drafts, a->slot,
            a->regex, a->must_call, a->think, a->functions, a->single_call,
            a->stream, a->usage, a->progress, a->probs, a->n_top,
            a->prompt_probs, a->special, a->ids, a->echo, a->timings,
            a->verbose, a->receipt);
    fprintf(f, "%d %d %d %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %g\n",
            (int)a->reasoning, a->limits_thinking, a->drop_turns,
            a->think_tokens, a->min_tokens, a->max_tokens, a->n_indent,
            a->max_s);
    fprintf(f, "%d %d %g\n", a->drafts.n_max, a->drafts.n_min,
            (double)a->drafts.p_min);
    fclose(f);
    free(sampling);
    json_decref(j);
    return text;
}

/* ---- cases --------------------------------------------------------------- */

/* Parses the body of protocol k with this field. Returns what it asks for, or
 * NULL with *why set. */
static char *parsed(int k, const char *field, const struct request_rules *by,
                    struct api_error *why)
{
    char body[1024], *text;
    struct request a;

    snprintf(body, sizeof body, kinds[k].body, *field ? ", " : "", field);
    for (char *p = body; *p; p++)
        *p = *p == '\'' ? '"' : *p;
    if (!request_parse(&a, kinds[k].kind, body, strlen(body), by, why))
        return NULL;
    text = described(&a);
    request_fini(&a);
    return text;
}

TEST(fields_that_change_the_result_are_honoured_or_refused)
{
    struct request_rules by = {.max_tokens = -1, .seed = 5, .can = REQUEST_ALL};
    pl_tokenizer *words = NULL;
    char *plain[N_KIND];
    struct api_error why;
    pl_err err;

    TEST_OK(pl_tokenizer_open(&words, test_model(), &err), err);
    by.words = words;
    by.n_vocab = pl_tokenizer_n_vocab(words);
    for (int k = 0; k < N_KIND; k++)
        if (!(plain[k] = parsed(k, "", &by, &why)))
            fail_msg("%d: %s", k, why.message);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *name = rows[i].field + 1;

        for (int k = 0; k < N_KIND; k++) {
            char *got;
            enum effect effect;

            if (!(rows[i].kinds >> k & 1))
                continue;
            got = parsed(k, rows[i].field, &by, &why);
            effect = !got                         ? REFUSED
                     : strcmp(got, plain[k]) == 0 ? NOTHING
                                                  : HONOURED;
            if (effect != rows[i].effect)
                fail_msg("protocol %d: %s: %d, not %d: %s", k, rows[i].field,
                         effect, rows[i].effect, got ? got : why.message);
            if (!got && (why.status != 400 ||
                         strncmp(why.param, name, strcspn(name, "'")) != 0))
                fail_msg("%s: %s: %s", rows[i].field, why.param, why.message);
            free(got);
        }
    }
    for (int k = 0; k < N_KIND; k++)
        free(plain[k]);
    pl_tokenizer_free(words);
}

/* The same fields with values that ask for nothing, as clients send them. */
TEST(fields_that_ask_for_nothing_are_taken)
{
    static const char *const none[] = {"'use_beam_search': false",
                                       "'best_of': 1",
                                       "'min_keep': 0",
                                       "'min_keep': 1",
                                       "'stop_regex': null",
                                       "'logits_processors': []",
                                       "'vllm_xargs': {}",
                                       "'truncate_prompt_tokens': -1",
                                       "'prompt_logprobs': null",
                                       "'return_token_ids': false",
                                       "'lora_path': ''",
                                       "'stop_token_ids': []",
                                       "'bad_words': []",
                                       "'min_tokens': 0",
                                       "'chat_template': null",
                                       "'parse_tool_calls': true",
                                       "'separate_reasoning': true",
                                       "'allowed_token_ids': null",
                                       "'echo': false",
                                       "'include_stop_str_in_output': false"};
    const struct request_rules by = {
        .n_vocab = 1000, .max_tokens = -1, .seed = 5, .can = REQUEST_ALL};
    struct api_error why;

    for (int k = 0; k < N_KIND; k++) {
        char *plain = parsed(k, "", &by, &why);

        for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
            char *got = parsed(k, none[i], &by, &why);

            if (!got || strcmp(got, plain) != 0)
                fail_msg("%d: %s: %s", k, none[i], got ? got : why.message);
            free(got);
        }
        free(plain);
    }
}

TEST(fields_with_lists_of_tokens_name_wrong_ones)
{
    static const struct {
        const char *given, *param, *says;
    } row[] = {
        {"'stop_token_ids': 3", "stop_token_ids", "a list"},
        {"'stop_token_ids': [1000]", "stop_token_ids", "ids from 0 to 999"},
        {"'stop_token_ids': ['x']", "stop_token_ids", "item 0 is not a token"},
        {"'allowed_token_ids': []", "allowed_token_ids", "one token id"},
        {"'allowed_token_ids': [1, -1]", "allowed_token_ids", "item 1"},
        {"'bad_words': ['x']", "bad_words", "without a vocabulary"},
        {"'bad_words': 'x'", "bad_words", "a list"},
        {"'min_tokens': -1", "min_tokens", "from 0 to 90"},
        {"'min_tokens': 91", "min_tokens", "from 0 to 90"},
        {"'repetition_penalty': 0", "repetition_penalty", "a number"},
    };
    const struct request_rules by = {
        .n_vocab = 1000, .max_tokens = -1, .can = REQUEST_ALL};
    struct api_error why;

    for (int k = 0; k < N_KIND; k++)
        for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
            assert_null(parsed(k, row[i].given, &by, &why));
            assert_string_equal(why.param, row[i].param);
            if (!strstr(why.message, row[i].says))
                fail_msg("%s: %s", row[i].given, why.message);
        }
}
