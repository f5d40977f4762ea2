/* Parses requests that convert between texts and tokens, and makes their
 * response bodies: /tokenize, /detokenize, /apply-template (whose requests are
 * those of chats) and /v1/messages/count_tokens. */
#ifndef SERVER_TOKEN_ROUTES_H
#define SERVER_TOKEN_ROUTES_H

#include "api_error.h"

#include <jansson.h>

struct tokens_request {
    json_t *body;     /* owned */
    const char *text; /* text of /tokenize, [len]; borrowed from the parsed
                         body */
    size_t len;
    bool add_special, parse_special; /* special tokens are added to the text,
                                        and are parsed in it (PL_ADD_SPECIAL,
                                        PL_PARSE_SPECIAL) */
    bool pieces;                     /* the response also has the text of each
                                        token */
    int32_t *ids;                    /* token ids of /detokenize, [n]; owned */
    int64_t n;
};

/* Parse a body of /tokenize or of /detokenize. Return false with *why filled if
 * the request was rejected; then *a is {0}. */
bool tokens_read_text(struct tokens_request *a, const char *body, size_t len,
                      struct api_error *why);
bool tokens_read_ids(struct tokens_request *a, const char *body, size_t len,
                     int64_t n_vocab, struct api_error *why);
void tokens_fini(struct tokens_request *a); /* {0} is allowed */

/* The text of a token; it may be any bytes. */
struct tokens_piece {
    const char *s; /* [n] */
    size_t n;
};
/* Return response bodies, malloc'ed; NULL if out of memory. tokens_ids_body is
 * for /tokenize: the ids and, unless `piece` is NULL, the texts piece[n] of the
 * tokens. A text that is not valid UTF-8 becomes a list of its bytes. */
char *tokens_ids_body(const int32_t *ids, int64_t n,
                      const struct tokens_piece *piece);
/* Returns a JSON object with s [n] in a field: `key` is "content" for
 * /detokenize and "prompt" for /apply-template. */
char *tokens_text_body(const char *key, const char *s, size_t n);
/* Returns the number of tokens as the response body of
 * /v1/messages/count_tokens. */
char *tokens_count_body(int64_t n);

#endif
