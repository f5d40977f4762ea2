/* Parses the requests of all protocols, from JSON to struct request: prompts or
 * a conversation, and how to continue them. Nothing is tokenized or computed
 * here, and no model runs.
 *
 * Unknown fields are ignored, as other servers do. Known but unsupported fields
 * reject the request, unless their value requests nothing (null, false,
 * empty). */
#ifndef SERVER_REQUEST_H
#define SERVER_REQUEST_H

#include "api_error.h"

#include <jansson.h>

enum request_kind {
    REQUEST_CHAT,            /* /v1/chat/completions, /apply-template */
    REQUEST_COMPLETIONS,     /* /v1/completions */
    REQUEST_COMPLETION,      /* /completion */
    REQUEST_MESSAGES,        /* /v1/messages, /v1/messages/count_tokens */
    REQUEST_RESPONSES,       /* /v1/responses */
    REQUEST_INFILL,          /* /infill; its response is that of /completion */
    REQUEST_OLLAMA_CHAT,     /* /api/chat */
    REQUEST_OLLAMA_GENERATE, /* /api/generate */
};

/* The most alternatives per token whose probabilities a response lists. */
enum { REQUEST_MAX_TOP = 64 };

/* Features that a server may not support. */
enum request_need {
    REQUEST_GRAMMAR = 1, /* output that is constrained by a GBNF grammar */
    REQUEST_SCHEMA = 2,  /* output that is constrained by a JSON Schema */
    REQUEST_CALL = 4,    /* output that must call a tool */
    /* Tools and reasoning, which Ollama's API rejects if the template knows
     * nothing of them. */
    REQUEST_TOOLS = 8,
    REQUEST_THINKING = 16,
    REQUEST_ALL = REQUEST_GRAMMAR | REQUEST_SCHEMA | REQUEST_CALL |
                  REQUEST_TOOLS | REQUEST_THINKING,
};

enum request_reasoning {
    REASONING_APART,  /* in a separate field or block */
    REASONING_WITHIN, /* in the content, with its markers */
    REASONING_BOTH,
    REASONING_HIDDEN, /* not at all */
};

/* Settings of the server that apply to all requests. */
struct request_rules {
    const pl_sampling *sampling; /* default sampling; NULL for the library's */
    /* Fields that a request has unless it says otherwise; NULL if none. A
     * grammar or schema is left out of a request with tools or one of its own.
     */
    const json_t *defaults;
    const pl_tokenizer *words; /* tokenizes the texts of biases; NULL if none,
                                    and such biases are rejected */
    int64_t n_vocab;
    int64_t max_tokens; /* used if a request has no limit; -1 for no limit */
    int max_texts;      /* most tasks of a request, prompts times choices; 0 for
                           128 */
    uint64_t seed;      /* used if a request has no seed */
    /* used if a request does not say where reasoning is returned, and if it
     * does not limit it */
    enum request_reasoning reasoning;
    bool limits_thinking;
    int64_t think_tokens;
    unsigned can; /* supported features, a set of enum request_need */
    /* Returns the items of the conversation that ended with a response, as a
     * new list; NULL if it is unknown. NULL if no conversations are kept. */
    json_t *(*recall)(void *user, const char *id);
    void *recall_user;
    pl_log_fn *log; /* NULL for none */
    void *log_user;
};

/* A piece of a prompt: a text, or a list of token ids. */
struct request_piece {
    const char *text; /* [len], borrowed; NULL if the piece is `ids` */
    size_t len;
    bool plain;   /* text that looks like a special token stays text */
    int32_t *ids; /* [n_ids], owned */
    int64_t n_ids;
};

struct request_prompt {
    struct request_piece *piece; /* [n], owned */
    int n;
};

struct request {
    enum request_kind kind;
    json_t *body;      /* the parsed JSON, which owns the strings borrowed
                          below; owned */
    const char *model; /* name in the request; NULL if none */
    json_t *earlier;   /* items of the conversation that the request continues;
                          owned; NULL if none */

    /* Either a conversation, with the fields of pl_conversation as owned JSON
     * strings, or prompts. */
    char *messages;            /* NULL if there are only prompts */
    char *tools;               /* NULL if none */
    char *extra;               /* NULL if none */
    bool no_generation_prompt; /* the rendered text ends with the last message,
                                  without the header of a new one */
    /* text that the answer begins with, from a last message of the assistant;
     * owned; NULL if none */
    char *begun;
    int32_t *context; /* tokens before the prompt, [n_context], owned; NULL if
                         none */
    int64_t n_context;
    bool begun_reasoning;          /* it is reasoning, else content */
    struct request_prompt *prompt; /* [n_prompt], owned */
    int n_prompt;                  /* 1 for a conversation */

    int n;              /* choices per prompt; the seed of choice i is
                           sampling.seed + i */
    int64_t max_tokens; /* -1 for no limit */
    /* Limits that editors set: the output ends before a line, not the first,
     * that begins with fewer blanks than n_indent; and at the end of a line if
     * it took longer than max_s seconds. 0 for no limit. */
    int64_t n_indent;
    double max_s;
    pl_sampling sampling;
    int32_t *bias_id;         /* owned, used by sampling */
    float *bias;              /* owned, used by sampling */
    const char **dry_breaker; /* used by `sampling`; owned, its strings
                                 borrowed */
    const char **stop;        /* [n_stop], owned, its strings borrowed */
    int n_stop;
    bool ignore_end, no_cache;
    const pl_tokenizer *words; /* that of the rules; borrowed; may be NULL */
    int slot;                  /* requested slot (id_slot); -1 for any */

    char *schema;        /* JSON Schema of the content; owned; NULL if none */
    const char *grammar; /* GBNF grammar; NULL if none */
    bool regex;          /* `grammar` is a regular expression instead */
    char *choices;       /* owned: a grammar that was made of choices */
    char format[64];     /* the field that has the schema or the grammar */
    bool must_call;      /* the answer must call a tool */
    bool think;          /* Ollama: the answer must begin with reasoning */
    const char *call;    /* name of the tool that must be called; NULL for
                            any */
    bool functions;      /* tools are "functions", the older form, and the
                            answer has a "function_call" */
    bool single_call;    /* at most one call (parallel_tool_calls) */

    bool stream, usage; /* usage: a stream ends with a usage object */
    bool progress;      /* a stream reports the progress of the prompt */
    bool probs;         /* return the probability of each generated token */
    int n_top;          /* number of alternatives to return with it, at most
                           REQUEST_MAX_TOP */
    bool prompt_probs;  /* return those of the prompt's tokens, too */
    bool ids;           /* return the ids of generated tokens */
    bool echo;          /* return the prompt before the generated text */
    bool timings;       /* each event of a stream has the timings so far */
    bool verbose;       /* the response has "__verbose" */
    enum request_reasoning reasoning;
    bool limits_thinking; /* reasoning ends after think_tokens tokens */
    int64_t think_tokens;
    const char *effort; /* effort of reasoning that is replaced if the template
                           rejects it; NULL if none */
    bool drop_turns; /* the oldest turns of a conversation that is too long for
                        the context are left out */
    bool load_only;  /* only loads its model; has no prompt */
    int64_t num_ctx; /* the context that it expects; 0 if it gives none */
    char passed_over[160]; /* names of options that have no effect, for the
                              log; "" if none */
};

/* Parses a request body of a protocol into *a. Returns false with *why filled
 * if it was rejected; then *a is {0}. Else the caller frees it with
 * request_fini. */
bool request_parse(struct request *a, enum request_kind kind, const char *body,
                   size_t len, const struct request_rules *rules,
                   struct api_error *why);
void request_fini(struct request *a); /* {0} is allowed */
/* Adds the fields of request_rules.defaults to a request's body. Returns false
 * if out of memory. */
bool request_add_defaults(json_t *body, const json_t *defaults);
enum api_error_shape request_shape(enum request_kind kind);

#endif
