/* Keeps the conversations of /v1/responses, so that a request can continue one
 * by the id of its last response (previous_response_id), and refer to an item
 * by the item's id (item_reference). Only the latest
 * conversations are kept, in memory: at most STORE_RESPONSES of them, and
 * STORE_BYTES bytes of JSON. All functions are thread safe. */
#ifndef SERVER_RESPONSE_STORE_H
#define SERVER_RESPONSE_STORE_H

#include <jansson.h>
#include <pthread.h>
#include <stdint.h>

enum { STORE_RESPONSES = 1024, STORE_BYTES = 64 << 20 };

struct response_store {
    pthread_mutex_t lock;
    struct {
        /* id: id of the conversation's last response. items: JSON list of the
         * conversation's items. Both owned. */
        char *id, *items;
        /* Where to find the items that have ids, [n_place]; owned. hash: hash
         * of the item's id. at: offset of the item in `items`. */
        struct response_place {
            uint64_t hash;
            size_t at;
        } * place;
        size_t n_place;
    } kept[STORE_RESPONSES];
    /* Indices for the ring buffer `kept`. first: index of the oldest
     * conversation. n: number of conversations. */
    int first, n;
    /* Size in bytes of the JSON of all kept conversations, with the places. */
    size_t bytes;
};

void response_store_init(struct response_store *s);
void response_store_fini(struct response_store *s);
/* Keeps the items of a conversation under the id of its last response. Does
 * nothing if their JSON is longer than STORE_BYTES, or if out of memory. */
void response_store_put(struct response_store *s, const char *id,
                        const json_t *items);
/* Returns the items of the conversation that ended with the response `id`, as a
 * new list. NULL if that conversation is not kept, or if out of memory. A
 * request_rules.recall callback; `store` is a struct response_store *. */
json_t *response_store_get(void *store, const char *id);
/* Returns a copy of the item with this id, from the latest conversation that
 * has it; NULL if no conversation has it, or if out of memory. A
 * request_rules.recall_item callback; `store` is a struct response_store *. */
json_t *response_store_find(void *store, const char *id);

#endif
