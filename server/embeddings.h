/* /v1/embeddings, and llama-server's /embedding: a model's vectors for texts.
 *
 * Each text is a task of the loop whose result is rows: the output of the
 * model's last norm for its tokens. Rows are pooled as they arrive, in token
 * order, so that a text has the same vector alone and in a batch. A server
 * supports embeddings only if it was started with --embeddings: the engine then
 * keeps those rows, which is a numeric plan of its own. */
#ifndef SERVER_EMBEDDINGS_H
#define SERVER_EMBEDDINGS_H

#include <stdbool.h>
#include <stddef.h>

struct http_request;
struct service;

/* Pooling of the rows of a text. */
enum embeddings_pooling {
    EMBEDDINGS_OFF,  /* embeddings are not supported */
    EMBEDDINGS_LAST, /* the last token's */
    EMBEDDINGS_MEAN,
    EMBEDDINGS_CLS,  /* the first token's */
    EMBEDDINGS_NONE, /* all rows, unpooled; not for /v1/embeddings */
};

/* Handles a request. `plain` selects llama-server's /embedding, else OpenAI's
 * protocol. */
void embeddings_start(struct service *v, struct http_request *r, bool plain);

/* Scales x [n] so that its p-norm is 1 for p >= 2. 1: the sum of magnitudes is
 * 1; 0: the largest magnitude is 32,760, as for 16-bit integers; below 0:
 * nothing changes. Zeros stay zeros. */
void embeddings_norm(float *x, size_t n, int p);
/* Returns true if all are finite (neither NaN nor infinite). */
bool embeddings_finite(const float *x, size_t n);
/* Encodes n bytes as base64: 4 characters for every 3 bytes begun. `out` has
 * space for them and a terminator. */
void embeddings_base64(const unsigned char *s, size_t n, char *out);

#endif
