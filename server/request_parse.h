/* The parts of request_parse. Each reads some fields of a request into *a and
 * returns false if it rejected one. */
#ifndef SERVER_REQUEST_PARSE_H
#define SERVER_REQUEST_PARSE_H

#include "json_field.h"
#include "json_text.h"
#include "request.h"

struct request_reader {
    struct fields f; /* the request's */
    struct request *a;
    const struct request_rules *rules;
    const char *prompt; /* the field with the prompts */
    json_t *messages;   /* the conversation; owned */
    json_t *extra;      /* template variables; owned; NULL: none */
    size_t n_value;     /* JSON values in call arguments parsed so far */
};

/* request_sampling.c: sampling, limits, stop strings, biases. */
bool request_read_sampling(struct request_reader *r);
/* request_samplers.c: the order of samplers, and DRY's sequence breakers. */
bool request_read_samplers(struct request_reader *r);
/* request_prompt.c: prompts of texts and tokens. */
bool request_read_prompt(struct request_reader *r);
/* request_infill.c: the prompt that fills a gap between two texts. */
bool request_read_infill(struct request_reader *r);
/* request_output.c: the output's format, and what is reported about it. */
bool request_read_output(struct request_reader *r);
/* request_tools.c: tools and tool_choice, converted to the form of chat
 * completions, which templates use. */
bool request_read_tools(struct request_reader *r);
/* request_chat.c, request_messages.c, request_responses.c: the conversation,
 * and fields particular to the protocol. */
bool request_read_chat(struct request_reader *r);
bool request_read_messages(struct request_reader *r);
bool request_read_responses(struct request_reader *r);

/* ---- helpers ------------------------------------------------------------- */

/* Appends the text of content to *out, perhaps nothing: a string, or a list of
 * parts whose texts are joined by `joint`. types: the part types that are
 * texts, ended by NULL. */
bool request_join_text(const struct fields *f, const char *name,
                       const char *const *types, const char *joint,
                       struct text *out);
/* Sets a key of the object to a string. Rejects the request if out of
 * memory. */
bool request_set_text(const struct fields *f, json_t *object, const char *key,
                      const struct text *t);
/* Appends a tool call to a message's others. arguments: an object, or a text,
 * which is parsed as a JSON object. */
bool request_add_call(struct request_reader *r, json_t *message, const char *id,
                      const char *name, const json_t *arguments);
/* Sets a template variable, unless the request sets it itself. */
bool request_set_extra(struct request_reader *r, const char *name,
                       json_t *value);
/* Sets the variables by which templates turn reasoning on or off, likewise. */
bool request_set_thinking(struct request_reader *r, bool on);
/* Writes JSON as an owned text; *out is freed first. */
bool request_dump(struct request_reader *r, const json_t *j, char **out);

#endif
