/* Keeps conversations of /v1/responses as JSON text, which takes a fraction of
 * the memory of parsed JSON. See response_store.h. */
#include "response_store.h"
#include "json_text.h"

#include <stdlib.h>
#include <string.h>

void response_store_init(struct response_store *s)
{
    *s = (struct response_store){0};
    pthread_mutex_init(&s->lock, NULL);
}

static void drop_oldest(struct response_store *s)
{
    s->bytes -= strlen(s->kept[s->first].items);
    free(s->kept[s->first].id);
    free(s->kept[s->first].items);
    s->first = (s->first + 1) % STORE_RESPONSES;
    s->n--;
}

void response_store_fini(struct response_store *s)
{
    while (s->n > 0)
        drop_oldest(s);
    pthread_mutex_destroy(&s->lock);
}

void response_store_put(struct response_store *s, const char *id,
                        const json_t *items)
{
    char *text = json_text_plain(items, JSON_COMPACT), *own = strdup(id);
    size_t n = text != NULL ? strlen(text) : 0;
    int at;

    if (text == NULL || own == NULL || n > STORE_BYTES) {
        free(text);
        free(own);
        return;
    }
    pthread_mutex_lock(&s->lock);
    while (s->n == STORE_RESPONSES || s->bytes + n > STORE_BYTES)
        drop_oldest(s);
    at = (s->first + s->n++) % STORE_RESPONSES;
    s->kept[at].id = own;
    s->kept[at].items = text;
    s->bytes += n;
    pthread_mutex_unlock(&s->lock);
}

json_t *response_store_get(void *store, const char *id)
{
    struct response_store *s = store;
    json_t *items = NULL;

    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < s->n && items == NULL; i++) {
        int at = (s->first + i) % STORE_RESPONSES;

        if (strcmp(s->kept[at].id, id) == 0)
            items = json_loads(s->kept[at].items, JSON_ALLOW_NUL, NULL);
    }
    pthread_mutex_unlock(&s->lock);
    return items;
}
