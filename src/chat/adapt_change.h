/* Changes of a conversation that make a chat template take it. Each edits the
 * JSON of the conversation, and leaves alone what it need not change, so that
 * the prompt stays the same from turn to turn. */
#ifndef CHAT_ADAPT_CHANGE_H
#define CHAT_ADAPT_CHANGE_H

#include <jansson.h>
#include <stdbool.h>

/* The changes, in the order in which they are tried. Those that lose nothing
 * are the first. */
enum change {
    IDS,       /* ids of calls have nine letters and digits */
    TOOLS,     /* tools have a description and parameters */
    SCHEMAS,   /* parameters have one type and a description */
    SYSTEM,    /* only the first message is a system message */
    NO_SYSTEM, /* system messages are part of messages of the user */
    SPLIT,     /* a message has one call */
    THOUGHT,   /* a message with calls and reasoning has no content */
    CHANNELS,  /* content has no headers of channels, as gpt-oss writes */
    NAMES,     /* results have the name of the tool */
    ORPHANS,   /* results without a call are messages of the user */
    TURNS,     /* user and assistant take turns, the user begins */
    USER,      /* the user begins */
    FILL,      /* content is not empty */
    EFFORT, /* reasoning_effort is no_think, low or high, by enable_thinking if
                   it is not given */
    NULL_TOOLS, /* without tools, `tools` is None instead of undefined */
    RESULTS,    /* results are messages of the user */
    CALLS,      /* calls are part of the content */
    ARGUMENTS,  /* arguments of calls are JSON texts */
    NAMED_IDS,  /* ids of calls are functions.NAME:NUMBER */
    PARTS,      /* content is a list of parts */
    N_CHANGE
};

/* A conversation that is being changed. */
struct conversation {
    /* owned; `tools` is NULL if there are none */
    json_t *messages, *tools, *extra;
    bool changed; /* the last change changed something */
    bool failed;  /* out of memory */
};

/* Makes the changes of `set`, a set of 1 << enum change. Then renames the field
 * reasoning_content of messages to `reasoning`, unless it is NULL; "content"
 * makes it the first part of the content. Returns the set of those that changed
 * something. Sets w->failed if out of memory. */
unsigned conversation_change(struct conversation *w, unsigned set,
                             const char *reasoning);
/* Returns the JSON text of `j`, malloc'ed; NULL if out of memory, or if `j` is
 * NULL. */
char *conversation_dump(const json_t *j);
/* Copies a conversation. The caller calls conversation_fini in any case. */
void conversation_copy(struct conversation *to, const struct conversation *of);
void conversation_fini(struct conversation *w);

#endif
