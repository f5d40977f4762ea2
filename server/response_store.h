/* Keeps the conversations of /v1/responses, so that a request can continue one
 * by the id of its last response (previous_response_id). Only the latest are
 * kept, in memory: at most STORE_RESPONSES, and STORE_BYTES of JSON. Thread
 * safe. */
#ifndef SERVER_RESPONSE_STORE_H
#define SERVER_RESPONSE_STORE_H

#include <jansson.h>
#include <pthread.h>

enum { STORE_RESPONSES = 1024, STORE_BYTES = 64 << 20 };

struct response_store {
    pthread_mutex_t lock;
    struct {
        char *id, *items; /* owned; items: a JSON list */
    } kept[STORE_RESPONSES];
    int first, n; /* `kept` is a ring buffer. first: index of the oldest
                     conversation; n: number of conversations */
    size_t bytes; /* of all items */
};

void response_store_init(struct response_store *s);
void response_store_fini(struct response_store *s);
/* Keeps the items of a conversation under the id of its last response. Does
 * nothing if they exceed STORE_BYTES, or if out of memory. */
void response_store_put(struct response_store *s, const char *id,
                        const json_t *items);
/* Returns the items of a conversation as a new list; NULL if it is not kept, or
 * if out of memory. A request_rules.recall; `store` is a struct
 * response_store *. */
json_t *response_store_get(void *store, const char *id);

#endif
