/* The functions that request_parse calls, the readers. Each reads some fields
 * of a request into r->a, and returns false if it has rejected the request. */
#ifndef SERVER_REQUEST_PARSE_H
#define SERVER_REQUEST_PARSE_H

#include "json_field.h"
#include "json_text.h"
#include "request.h"

struct request_reader {
    struct fields f; /* the fields of the request's JSON object */
    struct request *a;
    const struct request_rules *rules;
    /* Name of the field that has the prompts, for messages. */
    const char *prompt;
    /* Path of the field that request_read_format is reading, for messages. */
    char format[64];
    json_t *messages; /* list of the conversation's messages, as JSON; owned */
    json_t *extra;    /* template variables, as JSON; owned; NULL if none */
    /* An object that has the ids of the items to which the input refers
     * (item_reference) as its members; owned; NULL if none. */
    json_t *referred;
    /* Number of JSON values in the arguments of all tool calls parsed so
     * far. */
    size_t n_value;
    /* The names passed to request_pass_over, for the log; owned. */
    struct text passed;
};

/* In request_sampling.c: reads sampling parameters, limits, stop strings and
 * biases. */
bool request_read_sampling(struct request_reader *r);
/* In request_samplers.c: reads the samplers and their order, and DRY's sequence
 * breakers. */
bool request_read_samplers(struct request_reader *r);
/* In request_prompt.c: reads prompts that consist of texts and token ids. */
bool request_read_prompt(struct request_reader *r);
/* In request_infill.c: reads the prompt of /infill, a request for the text
 * between two given texts. */
bool request_read_infill(struct request_reader *r);
/* In request_format.c: reads a JSON Schema, grammar, regular expression or list
 * of choices that constrains the output. */
bool request_read_format(struct request_reader *r);
/* In request_output.c: reads which details the response contains besides the
 * output. */
bool request_read_output(struct request_reader *r);
/* In request_thinking.c: reads if the model reasons, for how many tokens, and
 * where the reasoning is returned. */
bool request_read_thinking(struct request_reader *r);
/* In request_format.c: returns true if the request `body` has a field that
 * constrains the output. */
bool request_is_constrained(const json_t *body);
/* In request_tools.c: reads tools and tool_choice. Converts tools to the form
 * of /v1/chat/completions, which templates expect. */
bool request_read_tools(struct request_reader *r);
/* In request_chat.c, request_messages.c and request_responses.c: read the
 * conversation, and the fields that only this protocol has. */
bool request_read_chat(struct request_reader *r);
bool request_read_messages(struct request_reader *r);
bool request_read_responses(struct request_reader *r);
/* In request_ollama.c: reads the requests of Ollama's API. */
bool request_read_ollama(struct request_reader *r);
/* Calls the readers of the request's protocol, a->kind. */
bool request_read_parts(struct request_reader *r);

/* ---- functions that the readers share ------------------------------------ */

/* An item for the argument `types` of request_join_text that allows parts of
 * any type. Parts that are not texts are replaced by a note, and values that
 * are neither strings nor lists by their JSON, instead of rejecting the
 * request. It is for results of tools, where a rejected picture would end the
 * conversation. */
#define REQUEST_ANY "*"
/* Appends the text of field `name` to *out; nothing if the field is absent. The
 * value of the field is a string, or a list of strings and content parts
 * (objects with a "type"). The texts of a list are joined with `joint` between
 * them. Parts with reasoning are left out. `types` lists the types that content
 * parts may have; the list ends with NULL. Returns false if the request was
 * rejected. */
bool request_join_text(const struct fields *f, const char *name,
                       const char *const *types, const char *joint,
                       struct text *out);
/* Sets field `key` of the JSON object `object` to the text *t. */
bool request_set_text(const struct fields *f, json_t *object, const char *key,
                      const struct text *t);
/* Returns true if content parts of this type are files. */
bool request_is_file(const char *type);
/* Appends the title and the text of a content part that is a file. Rejects the
 * request if the file is not a text. */
bool request_add_file(const struct fields *part, const char *type,
                      struct text *out);
/* Appends a tool call to the list of calls in a message. `arguments` is an
 * object, a string that is parsed as a JSON object, any other value, or NULL.
 * If out of memory, rejects the request and returns false. */
bool request_add_call(struct request_reader *r, json_t *message, const char *id,
                      const char *name, const json_t *arguments);
/* Records that a part of the request is ignored because the server cannot use
 * it, for example a tool of type `name`. The names of all such parts are logged
 * in one line. If out of memory, rejects the request and returns false. */
bool request_pass_over(struct request_reader *r, const char *name);
/* Adds the name of an ignored option to a->passed_over, the list that is
 * logged. */
void request_ignore(struct request *a, const char *name);
/* Sets the template variable `name`, unless the request itself sets it. Takes
 * ownership of `value`. */
bool request_set_extra(struct request_reader *r, const char *name,
                       json_t *value);
/* Sets the template variables that turn reasoning on or off, as
 * request_set_extra does. */
bool request_set_thinking(struct request_reader *r, bool on);
/* Replaces the malloc'ed string *out by the JSON text of `j`. If out of memory,
 * rejects the request and returns false. */
bool request_dump(struct request_reader *r, const json_t *j, char **out);

#endif
