/* The parts of request_parse. Each reads some fields of a request into *a and
 * returns false where it refused one. */
#ifndef SERVER_REQUEST_PARSE_H
#define SERVER_REQUEST_PARSE_H

#include "json_field.h"
#include "json_text.h"
#include "request.h"

struct request_reader {
    struct fields f; /* the request's */
    struct request *a;
    const struct request_rules *rules;
    const char *prompt; /* the field that has the prompts */
    json_t *messages;   /* of the conversation; owned */
    json_t *extra;      /* variables of the template; owned; NULL: none */
    size_t n_value;     /* in texts of arguments that were parsed */
};

/* request_sampling.c: how tokens are chosen, limits, stop strings, biases. */
bool request_read_sampling(struct request_reader *r);
/* request_samplers.c: which steps there are, and what DRY breaks at. */
bool request_read_samplers(struct request_reader *r);
/* request_prompt.c: prompts of texts and tokens. */
bool request_read_prompt(struct request_reader *r);
/* request_infill.c: the one prompt of a gap between two texts. */
bool request_read_infill(struct request_reader *r);
/* request_output.c: what the text has to be, and what is told of it. */
bool request_read_output(struct request_reader *r);
/* request_tools.c: tools and tool_choice in the template's form, which is that
 * of chat completions. */
bool request_read_tools(struct request_reader *r);
/* request_chat.c, request_messages.c, request_responses.c: the conversation,
 * and what is particular to the protocol. */
bool request_read_chat(struct request_reader *r);
bool request_read_messages(struct request_reader *r);
bool request_read_responses(struct request_reader *r);

/* ---- for these ----------------------------------------------------------- */

/* Texts of content: a string, or a list of parts, whose texts are joined by
 * `joint`. types: the parts that are texts, ended by NULL. *out is appended to
 * and may stay empty. */
bool request_join_text(const struct fields *f, const char *name,
                       const char *const *types, const char *joint,
                       struct text *out);
/* Sets key of the object to a string; false: no memory, refused. */
bool request_set_text(const struct fields *f, json_t *object, const char *key,
                      const struct text *t);
/* A call of a tool behind a message's others. arguments: an object, or a text,
 * which becomes the object that it is JSON of. */
bool request_add_call(struct request_reader *r, json_t *message, const char *id,
                      const char *name, const json_t *arguments);
/* A variable of the template, unless the request sets it itself. */
bool request_set_extra(struct request_reader *r, const char *name,
                       json_t *value);
/* The variables by which templates know whether to reason, as above. */
bool request_set_thinking(struct request_reader *r, bool on);
/* JSON as an owned text; *out is freed first. */
bool request_dump(struct request_reader *r, const json_t *j, char **out);

#endif
