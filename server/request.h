/* What a request asks for: JSON of any protocol to prompts or a conversation,
 * and how to go on from them. Nothing is computed here, and no model is asked.
 *
 * Fields that nobody knows are ignored, as other servers do. Those that are
 * known and that cannot be had are refused by name, unless their value asks for
 * nothing. */
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
    REQUEST_INFILL,      /* /infill; answered as /completion is */
};

/* Others of a token, and how likely they were: so many are told at most. */
enum { REQUEST_MAX_TOP = 64 };

/* Requests may ask for more than this server can do so far. */
enum request_need {
    REQUEST_GRAMMAR = 1, /* output by a GBNF grammar */
    REQUEST_SCHEMA = 2,  /* output by a JSON Schema */
    REQUEST_CALL = 4,    /* a tool must be called */
};

enum request_reasoning {
    REASONING_APART,  /* in a field or block of its own */
    REASONING_WITHIN, /* in the content, between <think> marks */
    REASONING_BOTH,
};

/* What holds for all requests. */
struct request_rules {
    const pl_sampling *sampling; /* what a request does not say; NULL: the
                                    library's defaults */
    const pl_tokenizer *words;   /* for biases of texts; NULL: these are
                                    refused */
    int64_t n_vocab;
    int64_t max_tokens; /* where a request has no limit; -1: none */
    int max_texts;      /* prompts times choices; 0: 128 */
    uint64_t seed;      /* where a request has none */
    unsigned can;       /* enum request_need */
    bool calls_as_text; /* the template takes the arguments of calls only as
                           JSON texts, not as objects */
};

/* A piece of a prompt: a text, or token ids. */
struct request_piece {
    const char *text; /* [len], borrowed; NULL: ids */
    size_t len;
    bool plain;   /* no special tokens are named in it */
    int32_t *ids; /* [n_ids], owned */
    int64_t n_ids;
};

struct request_prompt {
    struct request_piece *piece; /* [n], owned */
    int n;
};

struct request {
    enum request_kind kind;
    json_t *body;      /* the request; texts are borrowed from it; owned */
    const char *model; /* that it names; NULL: none */

    /* A conversation, as pl_conversation has it (owned), or prompts. */
    char *messages;            /* NULL: this is no conversation */
    char *tools;               /* NULL: none */
    char *extra;               /* NULL: none */
    bool no_generation_prompt; /* its text ends with the last message */
    char *begun;               /* the assistant's text that the answer goes on
                                  from, the last message's; owned; NULL: none */
    struct request_prompt *prompt; /* [n_prompt], owned */
    int n_prompt;                  /* of a conversation 1 */

    int n;              /* choices a prompt; the seed of each is one more */
    int64_t max_tokens; /* -1: no limit */
    pl_sampling sampling;
    int32_t *bias_id;         /* owned; sampling's */
    float *bias;              /* owned; sampling's */
    const char **dry_breaker; /* owned, its texts borrowed; sampling's */
    const char **stop;        /* [n_stop], owned, its texts borrowed */
    int n_stop;
    bool ignore_end, no_cache;
    int slot; /* that it is to have (id_slot); -1: any */

    char *schema;        /* JSON Schema of the content; owned; NULL: none */
    const char *grammar; /* GBNF; NULL: none */
    bool must_call;      /* a tool has to be called */
    const char *call;    /* this one; NULL: any */
    bool single_call;    /* one call at most (parallel_tool_calls) */

    bool stream, usage; /* usage: a stream ends with it */
    bool progress;      /* a stream begins with it */
    bool probs;         /* of tokens; */
    int n_top;          /* and of as many others, REQUEST_MAX_TOP at most */
    bool ids;           /* of the tokens written, too */
    bool echo;          /* the prompt stands before its answer */
    enum request_reasoning reasoning;
};

/* False: refused, and *a is empty. */
bool request_parse(struct request *a, enum request_kind kind, const char *body,
                   size_t len, const struct request_rules *rules,
                   struct api_error *why);
void request_fini(struct request *a); /* takes {0} */
enum api_error_shape request_shape(enum request_kind kind);

#endif
