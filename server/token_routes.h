/* Parses the requests that convert between texts and tokens, and makes the
 * bodies of their responses: /tokenize, /detokenize, /apply-template (whose
 * requests have the form of chat completions) and /v1/messages/count_tokens. */
#ifndef SERVER_TOKEN_ROUTES_H
#define SERVER_TOKEN_ROUTES_H

#include "api_error.h"

#include <jansson.h>

struct tokens_request {
    json_t *body; /* the parsed request, JSON; owned */
    /* The text in a request /tokenize, [len]; borrowed from `body`. */
    const char *text;
    size_t len;
    /* add_special: special tokens such as BOS are added (PL_ADD_SPECIAL).
     * parse_special: names of special tokens in the text are parsed as tokens
     * (PL_PARSE_SPECIAL). */
    bool add_special, parse_special;
    /* The response also has the text of each token, besides its id. */
    bool pieces;
    int32_t *ids; /* the token ids in a request /detokenize, [n]; owned */
    int64_t n;
};

/* Parse the body of a request /tokenize, or /detokenize, into *a. Return false
 * with *why filled if the request was rejected; then *a is {0}. */
bool tokens_read_text(struct tokens_request *a, const char *body, size_t len,
                      struct api_error *why);
bool tokens_read_ids(struct tokens_request *a, const char *body, size_t len,
                     int64_t n_vocab, struct api_error *why);
/* Frees the fields of *a. {0} is allowed. */
void tokens_fini(struct tokens_request *a);

/* The bytes of a token, which need not be valid UTF-8. */
struct tokens_piece {
    const char *s; /* the bytes of the token, [n] */
    size_t n;
};
/* Return a malloc'ed response body; NULL if out of memory. tokens_ids_body is
 * for /tokenize: its response lists the ids of the n tokens and, unless `piece`
 * is NULL, their texts piece[n]. A text that is not valid UTF-8 becomes a list
 * of its bytes. */
char *tokens_ids_body(const int32_t *ids, int64_t n,
                      const struct tokens_piece *piece);
/* Returns a malloc'ed response body, a JSON object that has s [n] in the field
 * `key`: "content" for /detokenize, "prompt" for /apply-template. NULL if out
 * of memory. */
char *tokens_text_body(const char *key, const char *s, size_t n);
/* Returns the response body of /v1/messages/count_tokens, malloc'ed, for n
 * tokens; NULL if out of memory. */
char *tokens_count_body(int64_t n);

#endif
