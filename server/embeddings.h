/* /v1/embeddings, llama-server's /embedding and Ollama's /api/embed: compute
 * embedding vectors for texts.
 *
 * Each text is a task of the loop. The result of the task is not tokens but
 * rows: one for each token of the text, the output of the model's last norm
 * [d_model]. The rows are pooled to one vector as they are computed, in token
 * order, so a text has the same vector alone and in a batch. Embeddings need
 * the option --embeddings: the engine then keeps the rows of every step, which
 * makes a different numeric plan. */
#ifndef SERVER_EMBEDDINGS_H
#define SERVER_EMBEDDINGS_H

#include <stdbool.h>
#include <stddef.h>

struct http_request;

/* The way in which the rows of a text's tokens become the vector of the
 * text. */
enum embeddings_pooling {
    EMBEDDINGS_OFF,  /* the service does not support embeddings */
    EMBEDDINGS_LAST, /* the vector is the row of the last token */
    EMBEDDINGS_MEAN,
    EMBEDDINGS_CLS, /* the vector is the row of the first token */
    /* No pooling: the rows of all tokens are returned; not for
     * /v1/embeddings. */
    EMBEDDINGS_NONE,
    /* Scores of a reranker's class head instead of vectors: of the first token
     * of an encoder, else of the last. */
    EMBEDDINGS_RANK,
};

enum embeddings_protocol {
    EMBEDDINGS_AS_OPENAI,
    EMBEDDINGS_AS_LLAMA,  /* llama-server's route /embedding */
    EMBEDDINGS_AS_OLLAMA, /* Ollama's route /api/embed */
    /* Ollama's older route /api/embeddings, for one text. */
    EMBEDDINGS_AS_OLLAMA_ONE,
    EMBEDDINGS_AS_RERANK, /* /rerank, see rerank.h */
};

/* Handles a request for embeddings, of the protocol http_route_arg (enum
 * embeddings_protocol). `r` gets its response later, from the loop's thread. */
void embeddings_start(void *service, struct http_request *r);

/* Normalizes the vector x [n] in place. p >= 1: the p-norm becomes 1. p = 0:
 * the largest magnitude becomes 32760, for conversion to 16-bit integers. p <
 * 0: x is unchanged. A vector of zeros is unchanged. */
void embeddings_norm(float *x, size_t n, int p);
/* Returns true if all values of x [n] are finite (neither NaN nor infinite). */
bool embeddings_finite(const float *x, size_t n);
/* Encodes n bytes as base64. `out` receives 4 * ceil(n / 3) characters and a
 * terminating NUL. */
void embeddings_base64(const unsigned char *s, size_t n, char *out);

#endif
