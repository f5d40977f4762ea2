/* Parses the requests of all protocols from JSON to struct request: prompts or
 * a conversation, and the parameters for generating the continuation. Nothing
 * is tokenized or computed here, and no model runs.
 *
 * Unknown fields are ignored, as other servers do. A request with a known but
 * unsupported field is rejected, unless the value of the field asks for nothing
 * (null, false, empty). */
#ifndef SERVER_REQUEST_H
#define SERVER_REQUEST_H

#include "api_error.h"

#include "pl_draft.h"

#include <jansson.h>

enum request_kind {
    REQUEST_CHAT,        /* /v1/chat/completions, /apply-template */
    REQUEST_COMPLETIONS, /* /v1/completions */
    REQUEST_COMPLETION,  /* /completion */
    REQUEST_MESSAGES,    /* /v1/messages, /v1/messages/count_tokens */
    REQUEST_RESPONSES,   /* /v1/responses */
    REQUEST_INFILL,      /* /infill; its response has the form of /completion */
    REQUEST_OLLAMA_CHAT, /* /api/chat */
    REQUEST_OLLAMA_GENERATE, /* /api/generate */
};

/* Limit of the number of alternatives for each token whose probabilities a
 * response contains. */
enum { REQUEST_MAX_TOP = 64 };

/* Features that a request may need and a server may not support. */
enum request_need {
    REQUEST_GRAMMAR = 1, /* the output must match a GBNF grammar */
    REQUEST_SCHEMA = 2,  /* the output must match a JSON Schema */
    REQUEST_CALL = 4,    /* the output must call a tool */
    /* Tools and reasoning: Ollama's API rejects requests that need these if the
     * chat template does not support them. */
    REQUEST_TOOLS = 8,
    REQUEST_THINKING = 16,
    REQUEST_ALL = REQUEST_GRAMMAR | REQUEST_SCHEMA | REQUEST_CALL |
                  REQUEST_TOOLS | REQUEST_THINKING,
};

enum request_reasoning {
    REASONING_APART,  /* reasoning is in a field or block of its own */
    REASONING_WITHIN, /* reasoning is in the content, with its markers */
    REASONING_BOTH,
    REASONING_HIDDEN, /* the response does not contain the reasoning */
};

/* Settings of the server that apply to all requests. */
struct request_rules {
    /* Default sampling parameters of requests; NULL for the library's
     * defaults. */
    const pl_sampling *sampling;
    /* Limits of drafts for requests that set none; NULL if the server has no
     * drafter. */
    const pl_draft_limits *drafts;
    uint32_t no_source; /* set of sources that the drafter lacks */
    /* Fields with values that are added to each request that does not have
     * these fields; NULL if none. A grammar or JSON Schema is not added to a
     * request that has tools, or a grammar or JSON Schema of its own. */
    const json_t *defaults;
    /* Tokenizes the texts of logit biases; NULL if there is no vocabulary: then
     * biases for texts are rejected. */
    const pl_tokenizer *words;
    int64_t n_vocab;
    /* Limit of the number of generated tokens for requests that set none; -1
     * for no limit. */
    int64_t max_tokens;
    /* Limit of the number of tasks of a request, which is prompts times
     * choices; 0 for 128. */
    int max_texts;
    uint64_t seed; /* seed for requests that do not set one */
    /* Defaults for requests that do not set where reasoning is returned or how
     * long it may be. */
    enum request_reasoning reasoning;
    bool limits_thinking;
    int64_t think_tokens;
    /* The features that the server supports, a set of enum request_need. */
    unsigned can;
    /* Returns the items of the conversation that ended with the response of
     * this id, as a new list; NULL if the id is unknown. For
     * previous_response_id of /v1/responses. The callback is NULL if no
     * conversations are kept. */
    json_t *(*recall)(void *user, const char *id);
    /* Returns a copy of the item with this id; NULL if the id is unknown. For
     * items of type item_reference. NULL if `recall` is NULL. */
    json_t *(*recall_item)(void *user, const char *id);
    void *recall_user;
    pl_log_fn *log; /* called with log messages; NULL for none */
    void *log_user;
};

/* A part of a prompt: either a text, or a list of token ids. */
struct request_piece {
    /* The text, [len]; borrowed; NULL if the piece is a list of ids. */
    const char *text;
    size_t len;
    bool plain; /* names of special tokens in `text` are not parsed as tokens */
    int32_t *ids; /* the token ids, [n_ids]; owned */
    int64_t n_ids;
};

struct request_prompt {
    struct request_piece *piece; /* the pieces of the prompt, [n]; owned */
    int n;
    bool bare; /* the tokens that the tokenizer adds, such as BOS, are not */
};

struct request {
    enum request_kind kind;
    /* JSON of the request; owned. It owns the strings that other fields of the
     * struct borrow. */
    json_t *body;
    /* Name of the model in the request; NULL if it has none. */
    const char *model;
    /* For /v1/responses: the items of the earlier conversation that the request
     * continues; owned; NULL if none. */
    json_t *earlier;

    /* A request has either a conversation or prompts. A conversation is in the
     * next fields, JSON strings as in pl_conversation; owned. NULL if the
     * request has prompts. */
    char *messages;
    /* The tools that the model may call, as JSON; owned; NULL if none. */
    char *tools;
    char *extra; /* template variables, as JSON; owned; NULL if none */
    /* The rendered conversation ends with the last message. No header of a new
     * answer follows. */
    bool no_generation_prompt;
    /* The beginning of the answer, which the client has sent as the last
     * message of the conversation, one of the assistant. Owned; NULL if
     * none. */
    char *begun;
    /* Tokens that are put before the rendered conversation or the prompt
     * (Ollama's field "context"), [n_context]; owned; NULL if none. */
    int32_t *context;
    int64_t n_context;
    /* `begun` is a text of reasoning; else it is content. */
    bool begun_reasoning;
    struct request_prompt *prompt; /* the prompts, [n_prompt]; owned */
    int n_prompt;                  /* number of prompts; 1 for a conversation */

    /* Number of choices for each prompt; the sampling seed of choice i is
     * sampling.seed + i. */
    int n;
    /* Limit of the number of generated tokens; -1 for no limit. */
    int64_t max_tokens;
    /* Limits that code editors set; 0 for no limit. n_indent: the output ends
     * before a line, other than the first, that begins with fewer blanks than
     * this. max_s: the output ends at the first line end that is generated more
     * than this many seconds after the first token. */
    int64_t n_indent;
    double max_s;
    pl_sampling sampling;
    /* Token ids of the logit biases; owned; sampling.bias_id points to it. */
    int32_t *bias_id;
    float *bias; /* the logit biases; owned; sampling.bias points to it */
    /* Lists of tokens; owned; sampling.only, sampling.banned and sampling.stop
     * point to them. At the tokens `stop_id` the output ends. */
    int32_t *only_id, *banned_id, *stop_id;
    /* Number of generated tokens before which the output does not end by
     * itself, or by a stop string or a token `stop_id`. */
    int64_t min_tokens;
    /* List of DRY's sequence breakers; owned; `sampling` points to it; its
     * strings are borrowed. */
    const char **dry_breaker;
    /* The stop strings, [n_stop]; owned; the strings are borrowed. */
    const char **stop;
    int n_stop;
    /* The stop string or the token at which the output ended is a part of the
     * output. */
    bool shows_stop;
    bool ignore_end, no_cache;
    /* The tokens of the request are drafted within these limits. */
    bool has_drafts;
    pl_draft_limits drafts;
    /* The vocabulary, request_rules.words; borrowed; may be NULL. */
    const pl_tokenizer *words;
    /* Index of the slot that the request must use (id_slot); -1 for any. */
    int slot;

    /* JSON Schema that the content must match; owned; NULL if none. */
    char *schema;
    /* Grammar that the content must match, in GBNF unless `regex`; borrowed;
     * NULL if none. */
    const char *grammar;
    bool regex; /* the grammar is a regular expression */
    /* The GBNF grammar made from the request's list of choices; owned.
     * `grammar` then points to it. NULL if the request has no such list. */
    char *choices;
    /* Name of the field that has the JSON Schema or the grammar, for
     * messages. */
    char format[64];
    bool must_call; /* the answer must call a tool */
    /* Ollama's field "think": the answer must begin with reasoning. */
    bool think;
    const char *call; /* name of the tool that must be called; NULL for any */
    /* The name `call`, if it is joined with a namespace; owned; else NULL. */
    char *call_joined;
    /* The tools are "functions", the older form of /v1/chat/completions, so a
     * call in the answer is a "function_call". */
    bool functions;
    /* The answer may have one tool call at most (parallel_tool_calls). */
    bool single_call;

    /* stream: the response is streamed. usage: the stream ends with an object
     * that has the numbers of tokens. */
    bool stream, usage;
    /* The stream reports how many tokens of the prompt are computed. */
    bool progress;
    bool probs; /* the response has the probability of each generated token */
    /* Number of alternatives for each token whose probabilities the response
     * has, at most REQUEST_MAX_TOP. */
    int n_top;
    /* The response also has the probabilities of the prompt's tokens. */
    bool prompt_probs;
    bool special; /* special tokens are shown in texts that are not chats */
    bool ids;     /* the response has the ids of the generated tokens */
    bool echo;    /* the response has the prompt before the generated text */
    /* Each event of the stream has the durations so far ("timings"). */
    bool timings;
    bool verbose; /* the response has the additional object "__verbose" */
    bool receipt; /* the response has a receipt of each choice (pl_receipt) */
    unsigned receipt_flags; /* options of the receipts, PL_RECEIPT_* */
    enum request_reasoning reasoning;
    bool limits_thinking; /* reasoning ends when it has think_tokens tokens */
    int64_t think_tokens;
    /* The effort of reasoning that the request asks for, such as "high". If the
     * chat template rejects it, other efforts are tried. NULL if the request
     * sets no effort. */
    const char *effort;
    /* If the conversation is too long for the context, its oldest turns are
     * left out. */
    bool drop_turns;
    bool load_only; /* the request only loads its model and has no prompt */
    /* The context size in tokens that the client expects (Ollama's num_ctx); 0
     * if it expects none. */
    int64_t num_ctx;
    /* Names of the request's options that the server ignores, for the log; ""
     * if none. */
    char passed_over[160];
};

/* Parses the body of a request of protocol `kind` into *a. Returns false with
 * *why filled if the request was rejected; then *a is {0}. Else the caller
 * frees it with request_fini. */
bool request_parse(struct request *a, enum request_kind kind, const char *body,
                   size_t len, const struct request_rules *rules,
                   struct api_error *why);
/* Frees the fields of *a and sets it to {0}. {0} is allowed. */
void request_fini(struct request *a);
/* Returns the name under which the model knows function `name` of namespace
 * `space` (a tool of type "namespace" of /v1/responses), malloc'ed: both joined
 * with "__". Returns a copy of `name` if `space` is NULL or "", and NULL if out
 * of memory. */
char *request_join_name(const char *space, const char *name);
/* Sets *space and *name to the namespace and the name of the function that the
 * model knows as `joined`. Returns false if the request has no such function in
 * a namespace. */
bool request_split_name(const struct request *a, const char *joined,
                        const char **space, const char **name);
/* Adds the fields in `defaults` (request_rules.defaults) to the JSON of a
 * request. Returns false if out of memory. */
bool request_add_defaults(json_t *body, const json_t *defaults);
enum api_error_shape request_shape(enum request_kind kind);

#endif
