/* The readers that request_parse consists of. Each reads some fields of a
 * request into r->a. Returns false if it rejected the request. */
#ifndef SERVER_REQUEST_PARSE_H
#define SERVER_REQUEST_PARSE_H

#include "json_field.h"
#include "json_text.h"
#include "request.h"

struct request_reader {
    struct fields f; /* the fields of the request */
    struct request *a;
    const struct request_rules *rules;
    const char *prompt; /* name of the field with the prompts */
    char format[64];    /* path of the field that request_read_format is
                           reading */
    json_t *messages;   /* list of the conversation's messages; owned */
    json_t *extra;      /* template variables; owned; NULL if none */
    size_t n_value;     /* number of JSON values in call arguments parsed so
                           far */
    struct text passed; /* names given to request_pass_over, for the log;
                           owned */
};

/* request_sampling.c: sampling parameters, limits, stop strings and biases. */
bool request_read_sampling(struct request_reader *r);
/* request_samplers.c: the samplers and their order, and DRY's sequence
 * breakers. */
bool request_read_samplers(struct request_reader *r);
/* request_prompt.c: prompts that consist of texts and token ids. */
bool request_read_prompt(struct request_reader *r);
/* request_infill.c: the prompt of /infill, which asks for the text between two
 * given texts. */
bool request_read_infill(struct request_reader *r);
/* request_format.c: a schema, grammar, regular expression or list of choices
 * that constrains the output. */
bool request_read_format(struct request_reader *r);
/* request_output.c: the format of the output, and which details are
 * returned. */
bool request_read_output(struct request_reader *r);
/* request_thinking.c: reasoning, on or off, its limit, and where it is
 * returned. */
bool request_read_thinking(struct request_reader *r);
/* request_format.c: returns true if a body has a field that constrains the
 * output. */
bool request_is_constrained(const json_t *body);
/* request_tools.c: tools and tool_choice. Tools are converted to their form in
 * chat completions, which templates expect. */
bool request_read_tools(struct request_reader *r);
/* request_chat.c, request_messages.c, request_responses.c: the conversation,
 * and fields that only the protocol of the function has. */
bool request_read_chat(struct request_reader *r);
bool request_read_messages(struct request_reader *r);
bool request_read_responses(struct request_reader *r);
/* request_ollama.c: the requests of Ollama's API. */
bool request_read_ollama(struct request_reader *r);
/* Calls the readers of the request's kind, a->kind. */
bool request_read_parts(struct request_reader *r);

/* ---- helpers ------------------------------------------------------------- */

/* As an item of the list `types` below, allows everything. Parts of other types
 * are replaced by a note instead of rejected, and values that are neither
 * strings nor lists by their JSON. It is for results of tools, where rejecting
 * a picture would end the conversation. */
#define REQUEST_ANY "*"
/* Appends the text of field `name` to *out; nothing if the field is absent. The
 * field is a string, or a list of strings and parts. The texts of a list are
 * joined with `joint` between them. Parts that are reasoning are left out.
 * `types` lists the types that parts may have; it ends with NULL. Returns false
 * if the request was rejected. */
bool request_join_text(const struct fields *f, const char *name,
                       const char *const *types, const char *joint,
                       struct text *out);
/* Sets field `key` of a JSON object to the text *t. */
bool request_set_text(const struct fields *f, json_t *object, const char *key,
                      const struct text *t);
/* Appends a tool call to the calls of a message. `arguments` is an object, a
 * string that is parsed as a JSON object, any other value, or NULL. Rejects the
 * request and returns false if out of memory. */
bool request_add_call(struct request_reader *r, json_t *message, const char *id,
                      const char *name, const json_t *arguments);
/* Records that a part of the request, such as a tool of type `name`, is ignored
 * because the server cannot run it. All such names are logged in one line.
 * Rejects the request and returns false if out of memory. */
bool request_pass_over(struct request_reader *r, const char *name);
/* Sets a template variable, unless the request itself sets it. Takes ownership
 * of `value`. */
bool request_set_extra(struct request_reader *r, const char *name,
                       json_t *value);
/* Sets the template variables that turn reasoning on or off, by
 * request_set_extra. */
bool request_set_thinking(struct request_reader *r, bool on);
/* Replaces the malloc'ed string *out by the JSON text of `j`. Rejects the
 * request and returns false if out of memory. */
bool request_dump(struct request_reader *r, const json_t *j, char **out);

#endif
