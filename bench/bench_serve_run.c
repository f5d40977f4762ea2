/* Sends requests when they are due, or when earlier requests have ended. One
 * thread handles all of them with libcurl. No other file of the command uses
 * libcurl. */
#include "bench_serve.h"
#include "cli/printable.h"
#include "cli/term.h"
#include "server/json_text.h"

#include <curl/curl.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- one request --------------------------------------------------------- */

enum { SAID = 2048 };

/* A request that was sent and has not ended. */
struct flight {
    CURL *curl;
    struct serve_request r;
    struct serve_reader reader;
    char *body;      /* body of the request as JSON text, owned */
    char said[SAID]; /* first bytes of the body of an error response */
    size_t n_said;
    char why[CURL_ERROR_SIZE];
    bool no_memory;
    struct flight *next, **at;
};

static enum exit_code no_memory(void)
{
    return cli_error(CMD_BENCH, EXIT_FAILED, "no memory for the requests");
}

static long status_of(const struct flight *f)
{
    long status = 0;

    curl_easy_getinfo(f->curl, CURLINFO_RESPONSE_CODE, &status);
    return status;
}

/* A CURLOPT_WRITEFUNCTION: libcurl calls it with n bytes of the response
 * body. */
static size_t on_data(char *data, size_t one, size_t n, void *user)
{
    struct flight *f = user;
    size_t room = SAID - f->n_said, part = n < room ? n : room;

    (void)one; /* libcurl always passes 1 as the size of an item */
    if (status_of(f) != 200) {
        memcpy(f->said + f->n_said, data, part);
        f->n_said += part;
        return n;
    }
    if (serve_read(&f->reader, data, n, term_seconds()))
        return n;
    f->no_memory = true;
    return 0;
}

/* Returns the header lines of every request; NULL if out of memory. */
static struct curl_slist *head_lines(const struct serve_target *t)
{
    static const char type[] = "Content-Type: application/json";
    static const char bearer[] = "Authorization: Bearer ";
    struct curl_slist *l = curl_slist_append(NULL, type), *more;

    more = l != NULL ? curl_slist_append(l, "Expect:") : NULL;
    if (more != NULL && t->key != NULL) {
        size_t n = sizeof(bearer) + strlen(t->key);
        char *key = malloc(n);

        if (key != NULL)
            snprintf(key, n, "%s%s", bearer, t->key);
        more = key != NULL ? curl_slist_append(l, key) : NULL;
        free(key);
    }
    if (more != NULL)
        return l;
    curl_slist_free_all(l);
    return NULL;
}

static void set_options(struct flight *f, const char *url,
                        struct curl_slist *lines, int timeout_s)
{
    CURL *c = f->curl;

    curl_easy_setopt(c, CURLOPT_URL, url);
    curl_easy_setopt(c, CURLOPT_HTTPHEADER, lines);
    curl_easy_setopt(c, CURLOPT_USERAGENT, "plait");
    curl_easy_setopt(c, CURLOPT_ERRORBUFFER, f->why);
    curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(c, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(c, CURLOPT_TIMEOUT, (long)timeout_s);
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_data);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, f);
    curl_easy_setopt(c, CURLOPT_PRIVATE, f);
    if (f->body != NULL)
        curl_easy_setopt(c, CURLOPT_POSTFIELDS, f->body);
}

static void flight_free(struct flight *f)
{
    if (f == NULL)
        return;
    curl_easy_cleanup(f->curl);
    serve_reader_fini(&f->reader);
    free(f->body);
    free(f);
}

/* ---- the server ---------------------------------------------------------- */

/* Returns "http://host:port/v1", malloc'ed, for a URL that may end with /v1 and
 * slashes. */
static char *origin_of(const char *url)
{
    size_t n = strlen(url);
    char *s;

    while (n > 0 && url[n - 1] == '/')
        n--;
    if (n > 3 && strncmp(url + n - 3, "/v1", 3) == 0)
        n -= 3;
    return asprintf(&s, "%.*s/v1", (int)n, url) > 0 ? s : NULL;
}

/* Sets n_vocab from the model `name` in a list of models. If `name` is NULL,
 * takes the first model and sets t->model to its name. */
static void take_model(struct serve_target *t, const char *name,
                       const json_t *list)
{
    const json_t *data = json_object_get(list, "data"), *m;
    size_t i;

    json_array_foreach (data, i, m) {
        const char *id = json_string_value(json_object_get(m, "id"));

        if (id == NULL || (name != NULL && strcmp(id, name) != 0))
            continue;
        if (name == NULL)
            t->model = strdup(id);
        t->n_vocab = json_integer_value(
            json_object_get(json_object_get(m, "meta"), "n_vocab"));
        return;
    }
}

/* A CURLOPT_WRITEFUNCTION that appends the response to a struct text. */
static size_t gather(char *data, size_t one, size_t n, void *text)
{
    (void)one; /* libcurl always passes 1 as the size of an item */
    return text_add(text, data, n) ? n : 0;
}

static enum exit_code ask_models(struct serve_target *t,
                                 const struct options *o, struct flight *f,
                                 struct curl_slist *lines)
{
    struct text all = {0};
    char url[2048], cut[SHOWN], why[SERVE_WHY];
    enum exit_code c = EXIT_DONE;
    json_t *list;
    CURLcode code;

    snprintf(url, sizeof(url), "%s/models", t->origin);
    set_options(f, url, lines, o->timeout_s);
    curl_easy_setopt(f->curl, CURLOPT_WRITEFUNCTION, gather);
    curl_easy_setopt(f->curl, CURLOPT_WRITEDATA, &all);
    code = curl_easy_perform(f->curl);
    if (code != CURLE_OK)
        c = cli_error(CMD_BENCH, EXIT_FAILED,
                      "%s: %s; start a server there, or give another address",
                      clip_printable(cut, url),
                      f->why[0] != '\0' ? f->why : curl_easy_strerror(code));
    else if (status_of(f) == 403 && all.s != NULL) {
        serve_read_error(all.s, all.n, why);
        c = cli_error(CMD_BENCH, EXIT_FAILED,
                      "%s: the server rejected the request: %s",
                      clip_printable(cut, url), why);
    } else if (status_of(f) == 401 || status_of(f) == 403)
        c = cli_error(
            CMD_BENCH, EXIT_FAILED, "%s: the server %s; give %s with --api-key",
            clip_printable(cut, url),
            t->key != NULL ? "rejects the API key" : "requires an API key",
            t->key != NULL ? "another" : "it");
    list = all.s != NULL ? json_loadb(all.s, all.n, 0, NULL) : NULL;
    take_model(t, o->model, list);
    json_decref(list);
    text_free(&all);
    return c;
}

enum exit_code serve_look(struct serve_target *t, const struct options *o)
{
    struct flight *f = calloc(1, sizeof(*f));
    struct curl_slist *lines;
    enum exit_code c;

    *t =
        (struct serve_target){.key = o->api_key, .origin = origin_of(o->serve)};
    if (o->model != NULL)
        t->model = strdup(o->model);
    curl_global_init(CURL_GLOBAL_DEFAULT);
    lines = head_lines(t);
    if (f != NULL)
        f->curl = curl_easy_init();
    c = f != NULL && f->curl != NULL && lines != NULL && t->origin != NULL
            ? ask_models(t, o, f, lines)
            : no_memory();
    flight_free(f);
    curl_slist_free_all(lines);
    return c;
}

void serve_target_fini(struct serve_target *t)
{
    free(t->origin);
    free(t->model);
    *t = (struct serve_target){0};
}

/* ---- results ------------------------------------------------------------- */

/* Counts a failed request and returns the index of its failure in l->failure,
 * where failures with the same status or message share an element. `said` is
 * the error text, which may contain any bytes. */
static int count_failure(struct serve_load *l, int status, const char *said)
{
    char why[SERVE_WHY];
    int i = 0;

    snprintf(why, sizeof(why), "%s", said);
    for (char *s = why; *s != '\0'; s++)
        if (*s < ' ' || *s > '~')
            *s = '?';
    while (i < l->n_failure &&
           (l->failure[i].status != status ||
            (status == 0 && strcmp(l->failure[i].why, why) != 0)))
        i++;
    if (i == SERVE_MAX_WHY)
        i--;
    if (i == l->n_failure)
        snprintf(l->failure[l->n_failure++].why, SERVE_WHY, "%s", why);
    l->failure[i].status = status;
    l->failure[i].n++;
    return i;
}

/* Counts the failure of a request that has ended and returns its index in
 * l->failure; -1 if the request succeeded. */
static int failure_index(struct serve_load *l, struct flight *f, CURLcode code)
{
    char why[SERVE_WHY];
    int status = (int)status_of(f);

    if (status != 0 && status != 200) {
        serve_read_error(f->said, f->n_said, why);
        return count_failure(l, status, why);
    }
    if (f->reader.why[0] != '\0')
        return count_failure(l, 0, f->reader.why);
    if (code == CURLE_OPERATION_TIMEDOUT)
        return count_failure(l, 0, "it took longer than --timeout");
    if (code != CURLE_OK)
        return count_failure(
            l, 0, f->why[0] != '\0' ? f->why : curl_easy_strerror(code));
    if (!f->reader.over)
        return count_failure(
            l, 0, "the response ended before its last event, [DONE]");
    return -1;
}

static bool add_request(struct serve_load *l, const struct serve_request *r)
{
    if (l->n_request == l->max_request) {
        int64_t max = l->max_request > 0 ? 2 * l->max_request : 256;
        void *more = realloc(l->request, (size_t)max * sizeof(*l->request));

        if (more == NULL)
            return false;
        l->request = more;
        l->max_request = max;
    }
    l->request[l->n_request++] = *r;
    l->n_done += r->failure < 0;
    return true;
}

/* ---- a load -------------------------------------------------------------- */

struct run {
    struct serve_load *l;
    const struct serve_target *t;
    const struct options *o;
    CURLM *multi;
    struct curl_slist *lines;
    char url[2048];
    struct flight *flight; /* requests in flight */
    int n_flight;
    int64_t n_begun;
    /* time (term_seconds) at which the next request is due, if the load has a
     * rate */
    double due;
};

static bool all_begun(const struct run *u, double now)
{
    const struct options *o = u->o;

    return term_interrupts > 0 ||
           (o->n_request > 0 && u->n_begun >= o->n_request) ||
           (o->seconds > 0 && (u->l->rate > 0 ? u->due : now) - u->l->began >=
                                  (double)o->seconds);
}

static bool may_begin(const struct run *u, double now)
{
    if (u->l->at_once > 0 && u->n_flight >= u->l->at_once)
        return false;
    return u->l->rate <= 0 || u->due <= now;
}

static bool begin(struct run *u, double now)
{
    struct flight *f = calloc(1, sizeof(*f));

    if (f == NULL)
        return false;
    f->r = (struct serve_request){
        .due = u->l->rate > 0 ? u->due : now, .sent = now, .prompt_s = -1};
    f->reader = (struct serve_reader){.r = &f->r, .load = u->l};
    serve_draw(u->o, u->n_begun, &f->r);
    f->body = serve_body(u->o, u->t, u->n_begun, &f->r);
    f->curl = curl_easy_init();
    if (f->body == NULL || f->curl == NULL) {
        flight_free(f);
        return false;
    }
    set_options(f, u->url, u->lines, u->o->timeout_s);
    if (curl_multi_add_handle(u->multi, f->curl) != CURLM_OK) {
        flight_free(f);
        return false;
    }
    f->next = u->flight;
    f->at = &u->flight;
    if (f->next != NULL)
        f->next->at = &f->next;
    u->flight = f;
    u->n_flight++;
    u->n_begun++;
    if (u->l->rate > 0)
        u->due += serve_pause(u->o, u->n_begun, u->l->rate);
    return true;
}

static void leave(struct run *u, struct flight *f)
{
    curl_multi_remove_handle(u->multi, f->curl);
    *f->at = f->next;
    if (f->next != NULL)
        f->next->at = f->at;
    u->n_flight--;
    flight_free(f);
}

/* Moves the requests that have ended from u->flight to the results of the load.
 * Returns false if out of memory. */
static bool gather_ended(struct run *u)
{
    const CURLMsg *m;
    int left;
    bool ok = true;

    while ((m = curl_multi_info_read(u->multi, &left)) != NULL) {
        struct flight *f;
        CURLcode code = m->data.result;

        curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &f);
        f->r.ended = term_seconds();
        f->r.failure = failure_index(u->l, f, code);
        if (f->r.n_written == 0)
            f->r.n_written = f->r.n_event;
        if (f->r.n_read == 0)
            f->r.n_read = f->r.n_prompt;
        ok = ok && !f->no_memory && add_request(u->l, &f->r);
        leave(u, f);
    }
    return ok;
}

/* Returns true if no request can be sent now, so that the loop can wait. */
static bool is_idle(const struct run *u, double now)
{
    return all_begun(u, now) ? u->n_flight > 0 : !may_begin(u, now);
}

/* Returns the most milliseconds that the loop may wait for data before it must
 * check again whether a request is due. */
static int patience(const struct run *u, double now)
{
    enum { MOST = 200 };
    double ms = 1e3 * (u->due - now);

    return u->l->rate > 0 && ms < MOST ? (int)fmax(0, ceil(ms)) : MOST;
}

static enum exit_code send_load(struct run *u)
{
    struct term_progress progress = {0};
    bool ok = true;
    int running;

    u->l->began = u->l->ended = term_seconds();
    u->due = u->l->began;
    while (ok) {
        double now = term_seconds();

        while (ok && !all_begun(u, now) && may_begin(u, now)) {
            ok = begin(u, now);
            now = term_seconds();
        }
        if (term_interrupts > 0 || (u->n_flight == 0 && all_begun(u, now)))
            break;
        ok = ok && curl_multi_perform(u->multi, &running) == CURLM_OK &&
             gather_ended(u);
        if (u->o->n_request > 0)
            term_progress(&progress, "asking", (uint64_t)u->l->n_request,
                          (uint64_t)u->o->n_request);
        now = term_seconds();
        if (ok && is_idle(u, now))
            ok = curl_multi_poll(u->multi, NULL, 0, patience(u, now), NULL) ==
                 CURLM_OK;
    }
    u->l->ended = term_seconds();
    term_progress_end(&progress);
    while (u->flight != NULL)
        leave(u, u->flight);
    return ok ? EXIT_DONE : no_memory();
}

enum exit_code serve_run(struct serve_load *l, const struct serve_target *t,
                         const struct options *o)
{
    struct run u = {.l = l, .t = t, .o = o, .multi = curl_multi_init()};
    enum exit_code c;

    u.lines = head_lines(t);
    snprintf(u.url, sizeof(u.url), "%s/%s", t->origin,
             o->chat ? "chat/completions" : "completions");
    c = u.multi != NULL && u.lines != NULL ? send_load(&u) : no_memory();
    curl_multi_cleanup(u.multi);
    curl_slist_free_all(u.lines);
    return c;
}

void serve_load_fini(struct serve_load *l)
{
    free(l->request);
    free(l->gap);
    *l = (struct serve_load){0};
}
