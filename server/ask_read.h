/* The parts of ask_read. Each reads some fields of a request into *a and
 * returns false where it refused one. */
#ifndef SERVER_ASK_READ_H
#define SERVER_ASK_READ_H

#include "ask.h"
#include "field.h"
#include "json_text.h"

struct ask_reader {
    struct fields f; /* the request's */
    struct ask *a;
    const struct ask_rules *rules;
    const char *prompt; /* the field that has the prompts */
    json_t *messages;   /* of the conversation; owned */
    json_t *extra;      /* variables of the template; owned; NULL: none */
    size_t n_value;     /* in texts of arguments that were parsed */
};

/* ask_sampling.c: how tokens are chosen, limits, stop strings, biases. */
bool ask_read_sampling(struct ask_reader *r);
/* ask_samplers.c: which steps there are, and what DRY breaks at. */
bool ask_read_samplers(struct ask_reader *r);
/* ask_prompt.c: prompts of texts and tokens. */
bool ask_read_prompt(struct ask_reader *r);
/* ask_infill.c: the one prompt of a gap between two texts. */
bool ask_read_infill(struct ask_reader *r);
/* ask_output.c: what the text has to be, and what is told of it. */
bool ask_read_output(struct ask_reader *r);
/* ask_tools.c: tools and tool_choice in the template's form, which is that of
 * chat completions. */
bool ask_read_tools(struct ask_reader *r);
/* ask_chat.c, ask_messages.c, ask_responses.c: the conversation, and what is
 * particular to the protocol. */
bool ask_read_chat(struct ask_reader *r);
bool ask_read_messages(struct ask_reader *r);
bool ask_read_responses(struct ask_reader *r);

/* ---- for these ----------------------------------------------------------- */

/* Texts of content: a string, or a list of parts, whose texts are joined by
 * `joint`. types: the parts that are texts, ended by NULL. *out is appended to
 * and may stay empty. */
bool ask_join_text(const struct fields *f, const char *name,
                   const char *const *types, const char *joint,
                   struct text *out);
/* Sets key of the object to a string; false: no memory, refused. */
bool ask_set_text(const struct fields *f, json_t *object, const char *key,
                  const struct text *t);
/* A call of a tool behind a message's others. arguments: an object, or a text,
 * which becomes the object that it is JSON of. */
bool ask_add_call(struct ask_reader *r, json_t *message, const char *id,
                  const char *name, const json_t *arguments);
/* A variable of the template, unless the request sets it itself. */
bool ask_set_extra(struct ask_reader *r, const char *name, json_t *value);
/* The variables by which templates know whether to reason, as above. */
bool ask_set_thinking(struct ask_reader *r, bool on);
/* JSON as an owned text; *out is freed first. */
bool ask_dump(struct ask_reader *r, const json_t *j, char **out);

#endif
