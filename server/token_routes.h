/* Parses and answers requests about texts and tokens: /tokenize, /detokenize,
 * /apply-template (whose request is that of a chat) and token counting. */
#ifndef SERVER_TOKEN_ROUTES_H
#define SERVER_TOKEN_ROUTES_H

#include "api_error.h"

#include <jansson.h>

struct tokens_request {
    json_t *body;     /* owned */
    const char *text; /* [len], of /tokenize; borrowed from body */
    size_t len;
    bool add_special, parse_special; /* PL_ADD_SPECIAL, PL_PARSE_SPECIAL */
    bool pieces;                     /* return each token's text, too */
    int32_t *ids;                    /* [n], of /detokenize; owned */
    int64_t n;
};

/* Return false if the request was rejected; then *a is empty. */
bool tokens_read_text(struct tokens_request *a, const char *body, size_t len,
                      struct api_error *why);
bool tokens_read_ids(struct tokens_request *a, const char *body, size_t len,
                     int64_t n_vocab, struct api_error *why);
void tokens_fini(struct tokens_request *a); /* takes {0} */

/* A token's text, of any bytes. */
struct tokens_piece {
    const char *s; /* [n] */
    size_t n;
};
/* Return response bodies, malloc'ed; NULL if out of memory. piece: [n], or
 * NULL: ids only. A piece that is not valid UTF-8 becomes a list of its
 * bytes. */
char *tokens_ids_body(const int32_t *ids, int64_t n,
                      const struct tokens_piece *piece);
/* key: "content" for /detokenize, "prompt" for /apply-template. */
char *tokens_text_body(const char *key, const char *s, size_t n);
/* For /v1/messages/count_tokens. */
char *tokens_count_body(int64_t n);

#endif
