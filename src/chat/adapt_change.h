/* The changes that make a chat template accept a conversation. Each change
 * edits the JSON of the conversation, and leaves all parts unchanged that need
 * no change. So the rendered prompt stays the same from turn to turn. */
#ifndef CHAT_ADAPT_CHANGE_H
#define CHAT_ADAPT_CHANGE_H

#include <jansson.h>
#include <stdbool.h>

/* The changes, in the order in which they are tried. Those that lose no
 * information are the first. */
enum change {
    IDS,     /* gives tool calls ids of nine letters and digits */
    TOOLS,   /* gives all tools a description and parameters */
    SCHEMAS, /* gives all parameters of tools a single type and a description */
    SYSTEM,  /* no message but the first is a system message */
    NO_SYSTEM, /* makes all system messages parts of user messages */
    /* Splits messages with several tool calls into messages with one call
     * each. */
    SPLIT,
    /* Moves the content of messages with tool calls and reasoning to their
     * reasoning. */
    THOUGHT,
    /* Removes headers of channels, which gpt-oss writes, from the content. */
    CHANNELS,
    NAMES,   /* gives results of tool calls the name of the tool */
    ORPHANS, /* turns results whose tool call is missing into user messages */
    /* Makes messages of user and assistant alternate, the user's first. */
    TURNS,
    USER, /* makes the first message after the system messages the user's */
    LONE, /* makes the last message the user's if all are system messages */
    FILL, /* replaces empty content of the user and the assistant by a blank */
    /* Sets the variable reasoning_effort to no_think, low or high; if it is not
     * given, according to enable_thinking. */
    EFFORT,
    /* Without tools, sets the variable `tools` to None instead of undefined. */
    NULL_TOOLS,
    RESULTS,   /* turns all results of tool calls into user messages */
    CALLS,     /* turns tool calls into texts in the content */
    ARGUMENTS, /* turns the arguments of tool calls into JSON texts */
    NAMED_IDS, /* gives tool calls ids of the form functions.NAME:NUMBER */
    PARTS, /* turns the content of messages from a text into a list of parts */
    FUNCTIONS, /* sets the variable functions to the JSON text of the tools */
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
