/* Chooses tasks and tokens for each engine step; see schedule.h. The table of
 * clients is sorted by id and searched by bisection. */
#include "schedule.h"

#include "fail.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The counter of a client counts as at most this many steps of tokens below the
 * highest counter of all clients. */
enum { MAX_LAG_STEPS = 8 };

/* Returns the index of the client with this id in s->client, or the index at
 * which it would be inserted. */
static int client_index(const struct schedule *s, uint64_t id)
{
    int low = 0, high = s->n_client;

    while (low < high) {
        int middle = low + (high - low) / 2;

        if (s->client[middle].id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static struct schedule_client *find(const struct schedule *s, uint64_t id)
{
    int i = client_index(s, id);

    return i < s->n_client && s->client[i].id == id ? &s->client[i] : NULL;
}

/* Returns how many tokens a client was served, by its virtual token counter,
 * but at least the highest counter of all clients minus MAX_LAG_STEPS steps. */
static int64_t served(const struct schedule *s, const struct schedule_client *c)
{
    int64_t floor = s->most - MAX_LAG_STEPS * s->step;

    return c->given > floor ? c->given : floor;
}

static int64_t served_by_id(const struct schedule *s, uint64_t id)
{
    const struct schedule_client *c = find(s, id);

    return c ? served(s, c) : 0;
}

static int64_t min_served(const struct schedule *s)
{
    int64_t least = s->n_client > 0 ? served(s, &s->client[0]) : s->most;

    for (int i = 1; i < s->n_client; i++)
        if (served(s, &s->client[i]) < least)
            least = served(s, &s->client[i]);
    return least;
}

void schedule_init(struct schedule *s, int64_t step, int64_t chunk)
{
    *s = (struct schedule){.step = step, .chunk = chunk};
}

void schedule_fini(struct schedule *s)
{
    free(s->client);
    *s = (struct schedule){0};
}

pl_status schedule_add_task(struct schedule *s, uint64_t client, pl_err *err)
{
    int64_t least = min_served(s);
    int i = client_index(s, client);

    if (i < s->n_client && s->client[i].id == client) {
        s->client[i].n_task++;
        return PL_OK;
    }
    if (s->n_client == s->max_client) {
        int max = s->max_client > 0 ? 2 * s->max_client : 16;
        void *more = realloc(s->client, (size_t)max * sizeof *s->client);

        if (!more)
            return server_fail(
                err, PL_NO_MEMORY,
                "out of memory for the table of clients; try again later");
        s->client = more;
        s->max_client = max;
    }
    memmove(&s->client[i + 1], &s->client[i],
            (size_t)(s->n_client - i) * sizeof *s->client);
    s->n_client++;
    s->client[i] =
        (struct schedule_client){.id = client, .given = least, .n_task = 1};
    return PL_OK;
}

void schedule_remove_task(struct schedule *s, uint64_t client)
{
    struct schedule_client *c = find(s, client);

    if (!c || --c->n_task > 0)
        return;
    s->n_client--;
    memmove(c, c + 1,
            (size_t)(s->client + s->n_client - c) * sizeof *s->client);
}

void schedule_charge(struct schedule *s, uint64_t client, int64_t n)
{
    struct schedule_client *c = find(s, client);

    if (!c)
        return;
    c->given = served(s, c) + n;
    s->most = c->given > s->most ? c->given : s->most;
}

static void charge(struct schedule *s, struct schedule_entry *entry, int64_t n)
{
    entry->n_now = n;
    schedule_charge(s, entry->client, n);
}

/* Returns the next prompt to compute tokens of in this step: of the client that
 * was served the fewest tokens, the oldest prompt that has no tokens in the
 * step yet. NULL if there is none. */
static struct schedule_entry *next_prompt(const struct schedule *s,
                                          struct schedule_entry *entry, int n)
{
    struct schedule_entry *first = NULL;
    int64_t least = 0;

    for (int i = 0; i < n; i++) {
        int64_t has;

        if (entry[i].paused || entry[i].n_left == 0 || entry[i].n_now > 0)
            continue;
        has = served_by_id(s, entry[i].client);
        if (!first || has < least) {
            first = &entry[i];
            least = has;
        }
    }
    return first;
}

int64_t schedule_step(struct schedule *s, struct schedule_entry *entry, int n)
{
    struct schedule_entry *prompt;
    int64_t writing = 0, most, left;
    bool ends = false;

    for (int i = 0; i < n; i++) {
        entry[i].n_now = 0;
        if (!entry[i].paused && entry[i].n_left == 0) {
            charge(s, &entry[i], 1);
            writing++;
        }
    }
    most = left = writing > 0 ? s->chunk : s->step;
    while (left > 0 && !(ends && most - left >= s->chunk && !s->whole) &&
           (prompt = next_prompt(s, entry, n))) {
        int64_t take = prompt->n_left < left ? prompt->n_left : left;

        if (s->whole && take < prompt->n_left)
            break;
        charge(s, prompt, take);
        left -= take;
        ends |= take == prompt->n_left;
    }
    return writing + most - left;
}

/* Returns the first index of a client with the least counter if `least`, else
 * the last index of one with the highest; -1 if n is 0. */
static int pick(const struct schedule *s, const uint64_t *client, int n,
                bool least)
{
    int at = -1;
    int64_t best = 0;

    for (int i = 0; i < n; i++) {
        int64_t has = served_by_id(s, client[i]);

        if (at < 0 || (least ? has < best : has >= best)) {
            at = i;
            best = has;
        }
    }
    return at;
}

int schedule_next(const struct schedule *s, const uint64_t *client, int n)
{
    return pick(s, client, n, true);
}

int schedule_victim(const struct schedule *s, const uint64_t *client, int n)
{
    return pick(s, client, n, false);
}
