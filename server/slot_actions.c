/* Saves, restores and erases the contents of slots; see slot_actions.h. */
#include "slot_actions.h"

#include "clock.h"
#include "json_field.h"
#include "service.h"
#include "slot_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_BUSY = 16, WAIT_S = 60 };

struct slot_action {
    /* The service of the request, kept loaded by service_hold until the action
     * has ended. */
    struct service *service;
    struct http_request *r;
    enum { SAVE, RESTORE, ERASE } what;
    int slot;
    char name[256]; /* name of the slot file */
    char path[4096];

    /* The following fields are used only to save a slot: the results of the
     * task that computes and saves the state. The callbacks of the task set
     * them. */
    pthread_mutex_t lock;
    pthread_cond_t ended;
    bool end;
    struct task_report report;
    pl_status status;
    pl_err err;
    void *state; /* the saved state (pl_state_save), owned */
    size_t bytes;
};

pl_status slots_init(struct slots *s, const char *dir, pl_engine *e,
                     pl_err *err)
{
    pl_status status = dir ? tiers_root(&s->root, e, err) : PL_OK;

    s->dir = dir;
    if (status != PL_OK)
        return status;
    atomic_init(&s->stops, false);
    pthread_mutex_init(&s->lock, NULL);
    pthread_mutex_init(&s->state_lock, NULL);
    pthread_cond_init(&s->idle, NULL);
    s->made = true;
    return PL_OK;
}

void slots_fini(struct slots *s)
{
    if (!s->made)
        return;
    atomic_store(&s->stops, true);
    pthread_mutex_lock(&s->lock);
    while (s->n_busy > 0)
        pthread_cond_wait(&s->idle, &s->lock);
    pthread_mutex_unlock(&s->lock);
    pthread_cond_destroy(&s->idle);
    pthread_mutex_destroy(&s->state_lock);
    pthread_mutex_destroy(&s->lock);
}

/* ---- saving a slot ------------------------------------------------------- */

static void on_keep(void *user, pl_engine *e, int seq)
{
    struct slot_action *t = user;

    t->status =
        pl_state_save_memory(e, seq, 0, -1, &t->state, &t->bytes, &t->err);
}

/* Cancels the task once slots_fini is called, even while the task waits for a
 * slot. */
static enum client_state on_poll_client(void *user)
{
    const struct slot_action *t = user;

    return atomic_load(&t->service->slots.stops) ? CLIENT_GONE : CLIENT_READY;
}

static void on_end(void *user, const struct task_report *report)
{
    struct slot_action *t = user;

    pthread_mutex_lock(&t->lock);
    t->report = *report;
    t->end = true;
    pthread_cond_signal(&t->ended);
    pthread_mutex_unlock(&t->lock);
}

/* Computes the state of n tokens by a task of the loop, which computes only the
 * tokens that are not cached. Waits until the task has ended. Its callback
 * on_keep sets t->state. */
static bool fetch(struct slot_action *t, const int32_t *token, int64_t n,
                  struct api_error *why)
{
    struct task_params params = {
        .prompt = token,
        .n_prompt = n,
        .max_tokens = 0,
        .slot = -1,
        .time_s = WAIT_S,
        .client = http_client(t->r),
        .keep = on_keep,
        .listener = {.poll_client = on_poll_client, .end = on_end, .user = t}};
    pl_err err;
    pl_status s = loop_add(t->service->loop, &params, 1, NULL, &err);

    if (s != PL_OK)
        return api_error_set_status(why, s, &err);
    pthread_mutex_lock(&t->lock);
    while (!t->end)
        pthread_cond_wait(&t->ended, &t->lock);
    pthread_mutex_unlock(&t->lock);
    if (t->report.why == FINISH_ERROR)
        return api_error_set_status(why, t->report.err.status, &t->report.err);
    if (t->status != PL_OK)
        return api_error_set_status(why, t->status, &t->err);
    return t->state ||
           api_error_set(
               why, 503, "unavailable", "",
               "the slot was not saved: its task ended early; try again later");
}

static bool save(struct slot_action *t, struct api_error *why)
{
    double began = clock_now();
    struct slot_file f = {0};
    pl_err err;
    pl_status s;
    bool ok;

    if (!loop_slot_tokens(t->service->loop, t->slot, &f.token, &f.n))
        return api_error_set_memory(why);
    /* A prompt must be shorter than the context. So if the slot's tokens fill
     * the context, the slot is saved without its last token. */
    if (f.n >= pl_engine_n_ctx(t->service->engine))
        f.n = pl_engine_n_ctx(t->service->engine) - 1;
    ok = f.n > 0 ||
         api_error_set(
             why, 400, "empty_slot", "",
             "slot %d: empty, nothing to save; run a request in it first",
             t->slot);
    ok = ok && fetch(t, f.token, f.n, why);
    f.state = t->state;
    f.state_bytes = t->bytes;
    if (ok) {
        s = slot_file_write(&f, t->path, &t->service->slots.root, &err);
        ok = s == PL_OK || api_error_set_status(why, s, &err);
    }
    if (ok)
        service_respond_json(
            t->r, json_pack("{s:i, s:s, s:I, s:I, s:{s:f}}", "id_slot", t->slot,
                            "filename", t->name, "n_saved", (json_int_t)f.n,
                            "n_written", (json_int_t)f.size, "timings",
                            "save_ms", (clock_now() - began) * 1e3));
    slot_file_fini(&f);
    return ok;
}

/* ---- restoring and erasing a slot ---------------------------------------- */

static bool restore(struct slot_action *t, struct api_error *why)
{
    const int64_t n_ctx = pl_engine_n_ctx(t->service->engine);
    double began = clock_now();
    struct slot_file f;
    pl_err err;
    pl_status s = slot_file_read(&f, t->path, &t->service->slots.root, &err);

    if (s == PL_OK && f.n > n_ctx) {
        api_error_set(why, 400, "invalid_file", "filename",
                      "%.200s has %" PRId64
                      " tokens, but the context has %" PRId64
                      "; start the server with a larger context (-c)",
                      t->name, f.n, n_ctx);
        slot_file_fini(&f);
        return false;
    }
    if (s == PL_OK) {
        do {
            const struct timespec pause = {.tv_nsec = 20000000};

            s = loop_slot_restore(t->service->loop, t->slot, f.token, f.n,
                                  f.state, f.state_bytes, &err);
            if (s == PL_FULL)
                nanosleep(&pause, NULL);
        } while (s == PL_FULL && clock_now() - began < WAIT_S &&
                 !atomic_load(&t->service->slots.stops));
    }
    if (s == PL_OK)
        service_respond_json(
            t->r, json_pack("{s:i, s:s, s:I, s:I, s:{s:f}}", "id_slot", t->slot,
                            "filename", t->name, "n_restored", (json_int_t)f.n,
                            "n_read", (json_int_t)f.size, "timings",
                            "restore_ms", (clock_now() - began) * 1e3));
    slot_file_fini(&f);
    if (s == PL_NOT_FOUND || s == PL_BAD_FILE)
        return api_error_set(why, 400, "invalid_file", "filename",
                             "%.200s: %.200s", t->name, err.message);
    if (s == PL_FULL)
        return api_error_set(why, 503, "unavailable", NULL, "%s", err.message);
    return s == PL_OK || api_error_set_status(why, s, &err);
}

static bool erase(struct slot_action *t)
{
    service_respond_json(
        t->r,
        json_pack("{s:i, s:I}", "id_slot", t->slot, "n_erased",
                  (json_int_t)loop_slot_erase(t->service->loop, t->slot)));
    return true;
}

/* ---- reading requests and starting their threads ------------------------- */

/* Runs an action of a request, and sends the response. Returns false with *why
 * filled if the action failed. Only one save or restore runs at a time, because
 * each needs as much host memory as a sequence takes in the KV cache. */
static bool run_slot_action(struct slot_action *t, struct api_error *why)
{
    struct slots *s = &t->service->slots;
    bool ok;

    if (t->what == ERASE)
        return erase(t);
    pthread_mutex_lock(&s->state_lock);
    ok = atomic_load(&s->stops) ? api_error_set(why, 503, "unavailable", "",
                                                "the server is stopping")
         : t->what == SAVE      ? save(t, why)
                                : restore(t, why);
    free(t->state);
    pthread_mutex_unlock(&s->state_lock);
    return ok;
}

static void *task(void *user)
{
    struct slot_action *t = user;
    struct service *v = t->service;
    struct slots *s = &t->service->slots;
    struct api_error why;

    if (!run_slot_action(t, &why))
        service_reject(t->r, &why);
    pthread_cond_destroy(&t->ended);
    pthread_mutex_destroy(&t->lock);
    free(t);
    /* `s`, a part of *v, is still valid below, because slots_fini waits until
     * n_busy is 0. */
    service_drop(v);
    pthread_mutex_lock(&s->lock);
    s->n_busy--;
    pthread_cond_broadcast(&s->idle);
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* Returns true if `name` is a plain file name: it has no folder, no leading
 * dot, no suffix ".part", and no characters that are special to a terminal or a
 * file system. */
static bool is_plain_filename(const char *name)
{
    size_t n = strlen(name);

    if (n == 0 || n > 200 || name[0] == '.')
        return false;
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)name[i] < ' ' || name[i] == 0x7f ||
            strchr("/\\:*?\"<>|", name[i]))
            return false;
    return n < 5 || strcmp(name + n - 5, ".part") != 0;
}

static bool read_name(struct slot_action *t, struct api_error *why)
{
    struct fields f;
    json_t *root = NULL;
    const char *name = NULL;
    size_t len;
    const char *body = http_body(t->r, &len);
    bool ok = fields_read(&f, &root, body, len, why) &&
              field_need(&f, "filename") && field_text(&f, "filename", &name);

    if (ok)
        ok = is_plain_filename(name) ||
             api_error_set(why, 400, "invalid_value", "filename",
                           "filename: not a plain file name; give one without "
                           "a folder, a leading dot or special characters");
    if (ok) {
        snprintf(t->name, sizeof t->name, "%s", name);
        snprintf(t->path, sizeof t->path, "%s/%s", t->service->slots.dir, name);
    }
    json_decref(root);
    return ok;
}

static bool read_action(struct slot_action *t, struct api_error *why)
{
    static const char *const actions[] = {"save", "restore", "erase"};
    const char *id = http_name(t->r), *action = http_query(t->r, "action");
    int n = loop_slots(t->service->loop, NULL, 0), what = 0;
    char *end;
    long slot = strtol(id, &end, 10);

    if (*id < '0' || *id > '9' || *end || slot >= n)
        return api_error_set(why, 400, "invalid_value", "id",
                             "slot %.40s: no such slot; use 0 to %d", id,
                             n - 1);
    while (what < 3 && (!action || strcmp(action, actions[what]) != 0))
        what++;
    if (what == 3)
        return api_error_set(
            why, 400, "invalid_value", "action",
            "action: missing or unknown; use save, restore or erase");
    t->slot = (int)slot;
    t->what = what;
    if (what == ERASE)
        return true;
    if (!t->service->slots.dir)
        return api_error_set(
            why, 501, "not_supported", "action",
            "saving slots is disabled; start the server with --slot-save-path");
    return read_name(t, why);
}

static bool start(struct slot_action *t, struct api_error *why)
{
    struct slots *s = &t->service->slots;
    pthread_t thread;
    bool ok;

    pthread_mutex_lock(&s->lock);
    ok = s->n_busy < MAX_BUSY;
    s->n_busy += ok;
    pthread_mutex_unlock(&s->lock);
    if (!ok)
        return api_error_set(
            why, 503, "busy", "",
            "too many slot actions are in progress; try again later");
    service_hold(t->service);
    if (pthread_create(&thread, NULL, task, t) == 0) {
        pthread_detach(thread);
        return true;
    }
    service_drop(t->service);
    pthread_mutex_lock(&s->lock);
    s->n_busy--;
    pthread_mutex_unlock(&s->lock);
    return api_error_set_memory(why);
}

void slots_act(void *user, struct http_request *r)
{
    struct slot_action *t = calloc(1, sizeof *t);
    struct api_error why;

    if (!t) {
        api_error_set_memory(&why);
        service_reject(r, &why);
        return;
    }
    t->service = user;
    t->r = r;
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->ended, NULL);
    if (read_action(t, &why) && start(t, &why))
        return;
    service_reject(r, &why);
    pthread_cond_destroy(&t->ended);
    pthread_mutex_destroy(&t->lock);
    free(t);
}
