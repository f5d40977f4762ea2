/* /rerank: reads the request and makes the response of a reranker, which scores
 * documents for a query. Each document is a text of embeddings.c, whose row has
 * the scores of the model's class head.
 *
 * The request is that of Jina's and Cohere's API and of llama-server
 * ("documents"), or that of Text Embeddings Inference ("texts"), whose response
 * is a bare list. */
#ifndef SERVER_RERANK_H
#define SERVER_RERANK_H

#include "json_field.h"
#include "pl.h"

struct rerank {
    const char *query;       /* borrowed from the parsed request, as are the
                                documents */
    const json_t *documents; /* list of strings, or of objects with "text" */
    int n;                   /* number of documents */
    int64_t top;             /* maximum number of results */
    bool tei;                /* the request is that of TEI */
    bool texts;              /* results contain the documents */
};

/* Reads the request's fields. Returns false after rejecting the request. */
bool rerank_read(const struct fields *f, struct rerank *out);
/* Makes the tokens of document i with the query; *ids [*n] is malloc'ed. */
pl_status rerank_tokens(const struct rerank *r, int i, const pl_model *m,
                        int32_t **ids, int64_t *n, pl_err *err);
/* Returns the response's JSON: the documents by falling score [n], those of
 * equal score in the request's order. NULL if out of memory. */
json_t *rerank_response(const struct rerank *r, const float *score, int n,
                        json_int_t n_token, const char *model);

#endif
