/* Parses requests of all protocols: JSON to prompts or a conversation, and how
 * to continue them. Nothing is computed here, and no model runs.
 *
 * Unknown fields are ignored, as by other servers. Known but unsupported fields
 * are rejected by name, unless their value requests nothing. */
#ifndef SERVER_REQUEST_H
#define SERVER_REQUEST_H

#include "api_error.h"

#include <jansson.h>

enum request_kind {
    REQUEST_CHAT,        /* /v1/chat/completions, /apply-template */
    REQUEST_COMPLETIONS, /* /v1/completions */
    REQUEST_COMPLETION,  /* /completion */
    REQUEST_MESSAGES,    /* /v1/messages, /v1/messages/count_tokens */
    REQUEST_RESPONSES,   /* /v1/responses */
    REQUEST_INFILL,      /* /infill; answered like /completion */
};

/* Most alternatives per token with probabilities. */
enum { REQUEST_MAX_TOP = 64 };

/* Features that the server may lack. */
enum request_need {
    REQUEST_GRAMMAR = 1, /* output constrained by a GBNF grammar */
    REQUEST_SCHEMA = 2,  /* output constrained by a JSON Schema */
    REQUEST_CALL = 4,    /* a tool must be called */
};

enum request_reasoning {
    REASONING_APART,  /* in a field or block of its own */
    REASONING_WITHIN, /* in the content, between <think> tags */
    REASONING_BOTH,
};

/* The server's settings for all requests. */
struct request_rules {
    const pl_sampling *sampling; /* defaults; NULL: the library's */
    const pl_tokenizer *words;   /* for biases given as texts; NULL: these are
                                    rejected */
    int64_t n_vocab;
    int64_t max_tokens; /* if a request has no limit; -1: none */
    int max_texts;      /* prompts times choices; 0: 128 */
    uint64_t seed;      /* if a request has none */
    unsigned can;       /* enum request_need */
    bool calls_as_text; /* the template takes call arguments only as JSON texts,
                           not as objects */
};

/* A part of a prompt: a text, or token ids. */
struct request_piece {
    const char *text; /* [len], borrowed; NULL: ids */
    size_t len;
    bool plain;   /* special tokens are not parsed in it */
    int32_t *ids; /* [n_ids], owned */
    int64_t n_ids;
};

struct request_prompt {
    struct request_piece *piece; /* [n], owned */
    int n;
};

struct request {
    enum request_kind kind;
    json_t *body;      /* the request, which owns borrowed strings; owned */
    const char *model; /* as requested; NULL: none */

    /* A conversation as in pl_conversation (owned), or prompts. */
    char *messages;            /* NULL: not a conversation */
    char *tools;               /* NULL: none */
    char *extra;               /* NULL: none */
    bool no_generation_prompt; /* the rendered text ends with the last
                                  message */
    char *begun;               /* the beginning of the answer: the assistant's
                                  text in the last message; owned; NULL: none */
    struct request_prompt *prompt; /* [n_prompt], owned */
    int n_prompt;                  /* 1 for a conversation */

    int n;              /* choices per prompt; each one's seed is one greater */
    int64_t max_tokens; /* -1: no limit */
    pl_sampling sampling;
    int32_t *bias_id;         /* owned, used by sampling */
    float *bias;              /* owned, used by sampling */
    const char **dry_breaker; /* owned, its strings borrowed; used by
                                 sampling */
    const char **stop;        /* [n_stop], owned, its strings borrowed */
    int n_stop;
    bool ignore_end, no_cache;
    int slot; /* requested (id_slot); -1: any */

    char *schema;        /* JSON Schema of the content; owned; NULL: none */
    const char *grammar; /* GBNF; NULL: none */
    bool must_call;      /* a tool has to be called */
    const char *call;    /* the tool; NULL: any */
    bool single_call;    /* at most one call (parallel_tool_calls) */

    bool stream, usage; /* usage: a stream ends with the usage */
    bool progress;      /* a stream reports prompt progress */
    bool probs;         /* return the probabilities of tokens */
    int n_top;          /* and of this many alternatives, at most
                           REQUEST_MAX_TOP */
    bool ids;           /* return the ids of generated tokens */
    bool echo;          /* the prompt precedes its answer */
    enum request_reasoning reasoning;
};

/* Returns false if the request was rejected; then *a is empty. */
bool request_parse(struct request *a, enum request_kind kind, const char *body,
                   size_t len, const struct request_rules *rules,
                   struct api_error *why);
void request_fini(struct request *a); /* takes {0} */
enum api_error_shape request_shape(enum request_kind kind);

#endif
