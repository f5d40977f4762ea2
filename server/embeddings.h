/* /v1/embeddings, and llama-server's /embedding: what a model makes of texts,
 * as vectors.
 *
 * Each text is a job of the loop whose result is rows: what the model's last
 * norm gives for its tokens. They are pooled as they come, in the order of the
 * tokens, so that a text has the same vector alone and in company. A server
 * gives embeddings only where it was started with --embeddings: the engine
 * keeps those rows then, which is a numeric plan of its own. */
#ifndef SERVER_EMBEDDINGS_H
#define SERVER_EMBEDDINGS_H

#include <stdbool.h>
#include <stddef.h>

struct http_request;
struct service;

/* What becomes of the rows of a text. */
enum embeddings_pooling {
    EMBEDDINGS_OFF,  /* the server gives none */
    EMBEDDINGS_LAST, /* the last token's */
    EMBEDDINGS_MEAN,
    EMBEDDINGS_CLS,  /* the first token's */
    EMBEDDINGS_NONE, /* all, as they are; not for /v1/embeddings */
};

/* plain: llama-server's /embedding; else OpenAI's protocol. */
void embeddings_start(struct service *v, struct http_request *r, bool plain);

/* Scales x [n] so that its p-norm is 1: p 2 or more; 1: the sum of magnitudes;
 * 0: the largest magnitude is 32,760, as 16-bit integers have it; below 0:
 * nothing is done. Zeros stay zeros. */
void embeddings_norm(float *x, size_t n, int p);
/* Is none of them NaN or infinite? */
bool embeddings_finite(const float *x, size_t n);
/* n bytes as base64, 4 characters for each 3 begun; out has room for them and
 * a terminator. */
void embeddings_base64(const unsigned char *s, size_t n, char *out);

#endif
