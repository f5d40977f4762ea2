/* Runs one HTTP GET request with libcurl; see hub_transfer.h. */
#include "hub_transfer.h"

#include <curl/curl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Seconds within which a server must accept the connection; else it counts as
 * unreachable. */
static const long MOST_CONNECT_S = 15;

struct flight {
    const struct hub_transfer *t;
    CURL *curl;
    struct hub_head *head;
    bool begun; /* the callback hub_transfer.begin was called */
    /* The callback hub_transfer.begin or .data returned false, which ends the
     * transfer. */
    bool ended;
    bool silent; /* no bytes have arrived for hub_transfer.timeout_s seconds */
    /* Number of bytes of the response that had been received at time came_s. */
    curl_off_t n_came;
    double came_s;
    /* Number of bytes received of the body of an error response; the bytes are
     * discarded. */
    size_t n_refused;
};

/* ---- parsing the head of a response -------------------------------------- */

/* If the header line [n] has this name, copies its value without surrounding
 * blanks to `value` and returns true. Returns false if the line has another
 * name or the value does not fit. */
static bool value_of(const char *line, size_t n, const char *name, char *value,
                     size_t size)
{
    size_t len = strlen(name);

    if (n <= len || strncasecmp(line, name, len) != 0 || line[len] != ':')
        return false;
    line += len + 1;
    n -= len + 1;
    while (n > 0 && (*line == ' ' || *line == '\t')) {
        line++;
        n--;
    }
    while (n > 0 && (unsigned char)line[n - 1] <= ' ')
        n--;
    if (n >= size)
        return false;
    memcpy(value, line, n);
    value[n] = '\0';
    return true;
}

/* Parses the value of a Content-Range header, such as "bytes 100-199/200".
 * Ignores a value of another form. */
static void read_range(struct hub_head *h, const char *value)
{
    unsigned long long from, to, total;

    if (sscanf(value, "bytes %llu-%llu/%llu", &from, &to, &total) == 3 &&
        from <= to && to < total) {
        h->from = from;
        h->total = total;
        h->has_total = true;
    }
}

/* Parses the value of a Link header, such as <https://...?cursor=...>;
 * rel="next". Ignores links with another rel. */
static void read_link(struct hub_head *h, const char *value)
{
    const char *begin = strchr(value, '<');
    const char *end = begin != NULL ? strchr(begin, '>') : NULL;

    if (end == NULL || strstr(end, "rel=\"next\"") == NULL ||
        (size_t)(end - begin) > sizeof h->next)
        return;
    memcpy(h->next, begin + 1, (size_t)(end - begin) - 1);
    h->next[end - begin - 1] = '\0';
}

/* Returns true if an ETag is strong, "...", not weak, W/"...". Only if two
 * responses have the same strong ETag, their bytes are certain to be from the
 * same version of the file. */
static bool is_strong(const char *etag)
{
    size_t n = strlen(etag);

    if (n < 3 || etag[0] != '"' || etag[n - 1] != '"')
        return false;
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)etag[i] < ' ' || etag[i] == 0x7f)
            return false;
    return true;
}

static size_t on_header(char *line, size_t size, size_t count, void *user)
{
    struct flight *f = user;
    struct hub_head *h = f->head;
    size_t n = size * count;
    char value[4096];

    if (n > 5 && strncasecmp(line, "HTTP/", 5) == 0) /* a new response begins,
                                                        for example after a
                                                        redirect */
        *h = (struct hub_head){0};
    else if (value_of(line, n, "etag", value, HUB_ETAG) && is_strong(value))
        strcpy(h->etag, value);
    else if (value_of(line, n, "content-range", value, sizeof value))
        read_range(h, value);
    else if (value_of(line, n, "link", value, sizeof value))
        read_link(h, value);
    else if (value_of(line, n, "retry-after", value, sizeof value))
        h->retry_after_s = atoi(value) > 0 ? atoi(value) : 0;
    return n;
}

static bool begin(struct flight *f)
{
    curl_off_t length = -1;
    long status = 0;

    if (f->begun)
        return !f->ended;
    f->begun = true;
    curl_easy_getinfo(f->curl, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_getinfo(f->curl, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    f->head->status = (int)status;
    if (status == 200 && length >= 0) {
        f->head->has_total = true;
        f->head->total = (uint64_t)length;
    }
    f->ended = !f->t->begin(f->t->user, f->head);
    return !f->ended;
}

static size_t on_data(char *data, size_t size, size_t count, void *user)
{
    enum { MOST_REFUSED = 1 << 20 };
    struct flight *f = user;
    size_t n = size * count;

    if (!begin(f))
        return 0;
    if (f->head->status >= 300) {
        f->n_refused += n;
        return f->n_refused <= MOST_REFUSED ? n : 0;
    }
    f->ended = !f->t->data(f->t->user, data, n);
    return f->ended ? 0 : n;
}

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Called by libcurl at least once a second; returns nonzero to abort the
 * transfer. Checks if no data has arrived for timeout_s seconds. libcurl's own
 * low-speed limit is not used, because it takes the mean of several seconds. */
static int on_progress(void *user, curl_off_t total, curl_off_t came,
                       curl_off_t to_send, curl_off_t sent)
{
    struct flight *f = user;
    double now = seconds();

    (void)total;
    (void)to_send;
    (void)sent;
    if (came != f->n_came || f->came_s == 0) {
        f->n_came = came;
        f->came_s = now;
    }
    f->silent = now - f->came_s > f->t->timeout_s;
    return f->silent || (f->t->stop != NULL &&
                         __atomic_load_n(f->t->stop, __ATOMIC_RELAXED) != 0);
}

/* ---- sending a request --------------------------------------------------- */

static bool add_line(struct curl_slist **list, const char *name,
                     const char *value)
{
    struct curl_slist *more;
    char *line;

    if (value == NULL)
        return true;
    line = hub_asprintf("%s: %s", name, value);
    if (line == NULL)
        return false;
    more = curl_slist_append(*list, line);
    free(line);
    if (more != NULL)
        *list = more;
    return more != NULL;
}

/* Adds the header lines of a request to *list. libcurl sends an Authorization
 * line only to the first host, not after a redirect to another host, port or
 * scheme (CURLOPT_UNRESTRICTED_AUTH is off). */
static bool add_lines(struct curl_slist **list, const struct hub_transfer *t)
{
    char range[48], *token = NULL;
    bool ok;

    snprintf(range, sizeof range, "bytes=%llu-", (unsigned long long)t->from);
    if (t->token != NULL)
        token = hub_asprintf("Bearer %s", t->token);
    if (t->token != NULL && token == NULL)
        return false;
    ok = add_line(list, "Authorization", token) &&
         add_line(list, "Range", t->from > 0 ? range : NULL) &&
         add_line(list, "If-Range", t->from > 0 ? t->if_range : NULL) &&
         add_line(list, "If-None-Match", t->if_none_match);
    free(token);
    return ok;
}

/* Returns the path of the system's file of trusted certificates; NULL to use
 * libcurl's default. A libcurl that was built on another system may have a
 * default path that does not exist here. */
static const char *certificates(void)
{
    static const char *const known[] = {
        /* Path of the trusted certificates on Debian, Arch, Alpine. */
        "/etc/ssl/certs/ca-certificates.crt",
        /* Path of the trusted certificates on Fedora, RHEL. */
        "/etc/pki/tls/certs/ca-bundle.crt",
        /* Path of the trusted certificates on openSUSE. */
        "/etc/ssl/ca-bundle.pem",
        "/etc/ssl/cert.pem",
    };
    const char *stated = getenv("SSL_CERT_FILE");
    const char *own = curl_version_info(CURLVERSION_NOW)->cainfo;

    if (stated != NULL && stated[0] != '\0')
        return stated;
    if (own == NULL || access(own, R_OK) == 0)
        return NULL;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (access(known[i], R_OK) == 0)
            return known[i];
    return NULL;
}

static void set_options(CURL *c, struct flight *f, struct curl_slist *lines,
                        char *text)
{
    const struct hub_transfer *t = f->t;
    bool tls = strncasecmp(t->url, "https:", 6) == 0;
    const char *ca = certificates();

    curl_easy_setopt(c, CURLOPT_URL, t->url);
    curl_easy_setopt(c, CURLOPT_HTTPHEADER, lines);
    curl_easy_setopt(c, CURLOPT_USERAGENT, "plait");
    curl_easy_setopt(c, CURLOPT_ERRORBUFFER, text);
    curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    if (ca != NULL)
        curl_easy_setopt(c, CURLOPT_CAINFO, ca);
    curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(c, CURLOPT_REDIR_PROTOCOLS_STR,
                     tls ? "https" : "http,https");
    curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, 1L);
    curl_easy_setopt(c, CURLOPT_MAXREDIRS, 10L);
    curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT,
                     t->timeout_s < MOST_CONNECT_S ? (long)t->timeout_s
                                                   : MOST_CONNECT_S);
    curl_easy_setopt(c, CURLOPT_BUFFERSIZE, 512L << 10);
    curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(c, CURLOPT_HEADERDATA, f);
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_data);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, f);
    curl_easy_setopt(c, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(c, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(c, CURLOPT_XFERINFODATA, f);
}

static bool is_connected(const struct flight *f)
{
    curl_off_t us = 0;

    curl_easy_getinfo(f->curl, CURLINFO_CONNECT_TIME_T, &us);
    return us > 0;
}

static enum hub_end end_of(CURLcode code, struct flight *f)
{
    if (f->ended)
        return HUB_ENDED;
    switch (code) {
    case CURLE_OK:
        return begin(f) ? HUB_WHOLE : HUB_ENDED;
    case CURLE_ABORTED_BY_CALLBACK:
        return f->silent ? HUB_RETRYABLE : HUB_STOPPED;
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
        return HUB_NO_ROUTE;
    case CURLE_OPERATION_TIMEDOUT:
        return is_connected(f) ? HUB_RETRYABLE : HUB_NO_ROUTE;
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_PARTIAL_FILE:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM:
        return HUB_RETRYABLE;
    default:
        return HUB_FAILED;
    }
}

static void init_curl(void)
{
    curl_global_init(CURL_GLOBAL_DEFAULT);
}

enum hub_end hub_get(const struct hub_transfer *t, struct hub_head *h,
                     char why[HUB_WHY])
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct flight f = {.t = t, .head = h};
    char text[CURL_ERROR_SIZE] = "";
    struct curl_slist *lines = NULL;
    enum hub_end end = HUB_FAILED;
    CURLcode code;

    *h = (struct hub_head){0};
    snprintf(why, HUB_WHY, "no memory for a request");
    pthread_once(&once, init_curl);
    f.curl = curl_easy_init();
    if (f.curl != NULL && add_lines(&lines, t)) {
        set_options(f.curl, &f, lines, text);
        code = curl_easy_perform(f.curl);
        end = end_of(code, &f);
        if (f.silent)
            snprintf(why, HUB_WHY, "no data for %d s", t->timeout_s);
        else
            snprintf(why, HUB_WHY, "%s",
                     text[0] != '\0' ? text : curl_easy_strerror(code));
    }
    curl_easy_cleanup(f.curl);
    curl_slist_free_all(lines);
    return end;
}

size_t hub_origin(const char *url)
{
    size_t scheme = strncasecmp(url, "https://", 8) == 0  ? 8
                    : strncasecmp(url, "http://", 7) == 0 ? 7
                                                          : 0;
    size_t host = scheme > 0 ? strcspn(url + scheme, "/?#") : 0;

    return host > 0 ? scheme + host : 0;
}

bool hub_status_is_transient(int status)
{
    return status == 408 || status == 429 || status == 500 || status == 502 ||
           status == 503 || status == 504;
}
