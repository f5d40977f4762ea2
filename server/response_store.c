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

static size_t size_of(const struct response_store *s, int at)
{
    return strlen(s->kept[at].items) +
           s->kept[at].n_place * sizeof(*s->kept[at].place);
}

static void drop_oldest(struct response_store *s)
{
    s->bytes -= size_of(s, s->first);
    free(s->kept[s->first].id);
    free(s->kept[s->first].items);
    free(s->kept[s->first].place);
    s->first = (s->first + 1) % STORE_RESPONSES;
    s->n--;
}

void response_store_fini(struct response_store *s)
{
    while (s->n > 0)
        drop_oldest(s);
    pthread_mutex_destroy(&s->lock);
}

/* Returns the FNV-1a hash of an item's id. */
static uint64_t hash_of(const char *id)
{
    uint64_t h = 0xcbf29ce484222325u;

    for (; *id != '\0'; id++)
        h = (h ^ (unsigned char)*id) * 0x100000001b3u;
    return h;
}

/* Sets *text to the JSON of `items`, and place[*n] to the places of those that
 * have ids. Returns false if out of memory. */
static bool write_items(const json_t *items, struct text *text,
                        struct response_place *place, size_t *n)
{
    bool ok = text_add(text, "[", 1);

    for (size_t i = 0; ok && i < json_array_size(items); i++) {
        const json_t *item = json_array_get(items, i);
        const char *id = json_string_value(json_object_get(item, "id"));
        char *own = json_text_plain(item, JSON_COMPACT);

        ok = own != NULL && (i == 0 || text_add(text, ",", 1));
        if (ok && id != NULL)
            place[(*n)++] = (struct response_place){hash_of(id), text->n};
        ok = ok && text_add(text, own, strlen(own));
        free(own);
    }
    return ok && text_add(text, "]", 1);
}

void response_store_put(struct response_store *s, const char *id,
                        const json_t *items)
{
    struct response_place *place =
        calloc(json_array_size(items) + 1, sizeof(*place));
    struct text text = {0};
    char *own = strdup(id);
    size_t n_place = 0, n;
    int at;

    if (own == NULL || place == NULL ||
        !write_items(items, &text, place, &n_place) ||
        (n = text.n + n_place * sizeof(*place)) > STORE_BYTES) {
        text_free(&text);
        free(place);
        free(own);
        return;
    }
    pthread_mutex_lock(&s->lock);
    while (s->n == STORE_RESPONSES || s->bytes + n > STORE_BYTES)
        drop_oldest(s);
    at = (s->first + s->n++) % STORE_RESPONSES;
    s->kept[at].id = own;
    s->kept[at].items = text.s;
    s->kept[at].place = place;
    s->kept[at].n_place = n_place;
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

/* Returns a copy of the item with this id in conversation `at`; NULL if the
 * conversation does not have it. */
static json_t *find_within(const struct response_store *s, int at,
                           const char *id, uint64_t hash)
{
    for (size_t k = 0; k < s->kept[at].n_place; k++) {
        const struct response_place *p = &s->kept[at].place[k];
        json_t *item;
        const char *is;

        if (p->hash != hash)
            continue;
        item = json_loads(s->kept[at].items + p->at,
                          JSON_ALLOW_NUL | JSON_DISABLE_EOF_CHECK, NULL);
        is = json_string_value(json_object_get(item, "id"));
        if (is != NULL && strcmp(is, id) == 0)
            return item;
        json_decref(item);
    }
    return NULL;
}

json_t *response_store_find(void *store, const char *id)
{
    struct response_store *s = store;
    const uint64_t hash = hash_of(id);
    json_t *item = NULL;

    pthread_mutex_lock(&s->lock);
    for (int i = s->n; i-- > 0 && item == NULL;)
        item = find_within(s, (s->first + i) % STORE_RESPONSES, id, hash);
    pthread_mutex_unlock(&s->lock);
    return item;
}
