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
    const pl_sampling *sampling; /* sampling of requests that do not set their
                                    own; NULL for the library's default */
    /* Fields that are added to each request that does not have them; NULL if
     * none. A grammar or JSON Schema is not added to a request that has tools,
     * or a grammar or schema of its own. */
    const json_t *defaults;
    const pl_tokenizer *words; /* tokenizes the texts of logit biases; NULL if
                                  there is no vocabulary, and then such biases
                                  are rejected */
    int64_t n_vocab;
    int64_t max_tokens; /* limit of generated tokens for requests that set none;
                           -1 for no limit */
    int max_texts;      /* most tasks of a request, prompts times choices; 0 for
                           128 */
    uint64_t seed;      /* seed of requests that set none */
    /* defaults for requests that do not say where reasoning is returned, or do
     * not limit it */
    enum request_reasoning reasoning;
    bool limits_thinking;
    int64_t think_tokens;
    unsigned can; /* supported features, a set of enum request_need */
    /* Returns the items of the conversation that ended with the response of
     * this id, as a new list; NULL if the id is unknown. The field is NULL if
     * no conversations are kept. */
    json_t *(*recall)(void *user, const char *id);
    void *recall_user;
    pl_log_fn *log; /* NULL for none */
    void *log_user;
};

/* A piece of a prompt: a text, or a list of token ids. */
struct request_piece {
    const char *text; /* [len], borrowed; NULL if the piece is `ids` */
    size_t len;
    bool plain;   /* special tokens are not parsed in `text` */
    int32_t *ids; /* [n_ids], owned */
    int64_t n_ids;
};

struct request_prompt {
    struct request_piece *piece; /* [n], owned */
    int n;
};

struct request {
    enum request_kind kind;
    json_t *body;      /* JSON of the request, owned; it owns the strings that
                          are borrowed below */
    const char *model; /* the name of the model in the request; NULL if none */
    json_t *earlier;   /* for /v1/responses, the items of the conversation that
                          the request continues; owned; NULL if none */

    /* A request has either a conversation or prompts. A conversation is in the
     * fields of pl_conversation, as owned JSON strings. */
    char *messages;            /* NULL if the request has prompts */
    char *tools;               /* NULL if none */
    char *extra;               /* NULL if none */
    bool no_generation_prompt; /* the rendered conversation ends with the last
                                  message, without the header of an answer */
    /* The beginning of the answer, which the client sent as the last message,
     * of the assistant. Owned; NULL if none. */
    char *begun;
    int32_t *context; /* tokens to put before the rendered conversation or
                         prompt ("context" of Ollama), [n_context], owned; NULL
                         if none */
    int64_t n_context;
    bool begun_reasoning;          /* `begun` is reasoning, else it is
                                      content */
    struct request_prompt *prompt; /* [n_prompt], owned */
    int n_prompt;                  /* 1 for a conversation */

    int n;              /* choices per prompt; the seed of choice i is
                           sampling.seed + i */
    int64_t max_tokens; /* limit of generated tokens; -1 for no limit */
    /* Limits that editors set. The output ends before a line that begins with
     * fewer than n_indent blanks, except the first line. It ends at the first
     * line end that comes more than max_s seconds after the first token. 0 for
     * no limit. */
    int64_t n_indent;
    double max_s;
    pl_sampling sampling;
    int32_t *bias_id;         /* owned; sampling.bias_id points to it */
    float *bias;              /* owned; sampling.bias points to it */
    const char **dry_breaker; /* owned; `sampling` points to it; its strings are
                                 borrowed */
    const char **stop;        /* [n_stop], owned, its strings borrowed */
    int n_stop;
    bool ignore_end, no_cache;
    const pl_tokenizer *words; /* request_rules.words; borrowed; may be NULL */
    int slot;                  /* requested slot (id_slot); -1 for any */

    char *schema;        /* JSON Schema of the content; owned; NULL if none */
    const char *grammar; /* grammar of the content, GBNF unless `regex`; NULL if
                            none */
    bool regex;          /* `grammar` is a regular expression */
    char *choices;       /* owned; the GBNF grammar that was made of a list of
                            choices, to which `grammar` then points; else
                            NULL */
    char format[64];     /* the field that has the schema or the grammar */
    bool must_call;      /* the answer must be a tool call */
    bool think;          /* Ollama: the answer must begin with reasoning */
    const char *call;    /* name of the tool that must be called; NULL for
                            any */
    bool functions;      /* tools are "functions", the older form, and the
                            answer has a "function_call" */
    bool single_call;    /* at most one call (parallel_tool_calls) */

    bool stream, usage;     /* usage: a stream ends with a usage object */
    bool progress;          /* a stream reports the progress of the prompt */
    bool probs;             /* return the probability of each generated token */
    int n_top;              /* number of alternatives of each token whose
                           probabilities are returned, at most
                           REQUEST_MAX_TOP */
    bool prompt_probs;      /* the response also has the probabilities of the
                           prompt's tokens */
    bool ids;               /* return the ids of generated tokens */
    bool echo;              /* return the prompt before the generated text */
    bool timings;           /* each event of a stream has the timings so far */
    bool verbose;           /* the response has "__verbose" */
    bool receipt;           /* the response has a receipt of each choice */
    unsigned receipt_flags; /* PL_RECEIPT_* of these */
    enum request_reasoning reasoning;
    bool limits_thinking; /* reasoning ends after think_tokens tokens */
    int64_t think_tokens;
    /* The effort of reasoning that the request set. If the template rejects it,
     * other efforts are tried. NULL if there is none to replace. */
    const char *effort;
    bool drop_turns; /* the oldest turns of a conversation that is too long for
                        the context are left out */
    bool load_only;  /* only loads its model; has no prompt */
    int64_t num_ctx; /* the context size that the client expects (num_ctx of
                        Ollama); 0 if it sends none */
    char passed_over[160]; /* names of options that the request has but the
                              server ignores, for the log; "" if none */
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
