/* The changes that make a chat template accept a conversation. Each change
 * edits the JSON of the conversation, and leaves all parts unchanged that need
 * no change. So the rendered prompt stays the same from turn to turn. */
#ifndef CHAT_ADAPT_CHANGE_H
#define CHAT_ADAPT_CHANGE_H

#include <jansson.h>
#include <stdbool.h>

/* The changes, in the order in which they are tried. After each change, the
 * conversation is as its comment says. The changes that lose no information are
 * the first. */
enum change {
    IDS,     /* ids of tool calls have nine letters and digits */
    TOOLS,   /* all tools have a description and parameters */
    SCHEMAS, /* all parameters of tools have a single type and a description */
    SYSTEM,  /* no message but the first is a system message */
    NO_SYSTEM, /* system texts are parts of user messages */
    SPLIT,     /* a message has at most one tool call */
    THOUGHT,   /* a message with tool calls and reasoning has no content */
    CHANNELS,  /* content has no headers of channels, which gpt-oss writes */
    NAMES,     /* results of tool calls have the name of the tool */
    ORPHANS,   /* results whose tool call is missing are user messages */
    /* Messages of user and assistant alternate; the first is the user's. */
    TURNS,
    USER, /* the first message after the system messages is the user's */
    FILL, /* no content of the user or the assistant is empty */
    /* The variable reasoning_effort is no_think, low or high; if not given, it
     * is set according to enable_thinking. */
    EFFORT,
    /* Without tools, the variable `tools` is None instead of undefined. */
    NULL_TOOLS,
    RESULTS, /* all results of tool calls are user messages */
    CALLS,   /* tool calls are texts in the content */
    /* The arguments of tool calls are JSON texts instead of objects. */
    ARGUMENTS,
    NAMED_IDS, /* ids of tool calls are functions.NAME:NUMBER */
    PARTS, /* the content of messages is a list of parts instead of a text */
    N_CHANGE
};

/* A conversation that is being changed, as parsed JSON. */
struct conversation {
    /* Messages, tools and template variables; owned; `tools` is NULL if there
     * are none. */
    json_t *messages, *tools, *extra;
    bool changed; /* the change that was made last has changed something */
    bool failed;  /* memory was short, so the conversation is not complete */
};

/* Makes the changes of `set`, bits 1 << enum change. Then renames the field
 * reasoning_content of messages to `reasoning`, unless that is NULL. If it is
 * "content", the reasoning becomes the first part of the content instead.
 * Returns the set of changes that changed something. Sets w->failed if out of
 * memory. */
unsigned conversation_change(struct conversation *w, unsigned set,
                             const char *reasoning);
/* Returns the JSON text of `j`, a part of a conversation, malloc'ed; NULL if
 * out of memory or if `j` is NULL. */
char *conversation_dump(const json_t *j);
/* Copies a conversation. The caller calls conversation_fini for the copy even
 * if w->failed is set. */
void conversation_copy(struct conversation *to, const struct conversation *of);
void conversation_fini(struct conversation *w);

#endif
