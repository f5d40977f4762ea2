/* The request object: a copy of a request's head and body, because the
 * connection may be closed before the request ends. Also counts the references
 * to a request, and calls its owner back when the client disconnects. */
#include "http_inner.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- copying a request's head -------------------------------------------- */

/* Collects headers or query arguments from libmicrohttpd in two passes: the
 * first counts them, the second copies them. Blanks at the ends of header
 * values are removed. */
struct gather {
    /* Destination of the copied names and values; NULL in the first pass. */
    struct http_pair *pair;
    int n;
    char *text;
    size_t n_text;
    bool odd;
};

/* Returns true if a header's name contains a blank or another invalid
 * character, or its value contains a control character. A proxy in front of
 * this server may interpret such a request differently (request smuggling).
 * Source: RFC 9110, 5.1 and 5.5; RFC 9112, 11.2. */
static bool is_odd(const char *name, size_t n_name, const char *value,
                   size_t n_value)
{
    if (n_name == 0)
        return true;
    for (size_t i = 0; i < n_name; i++)
        if (name[i] <= ' ' || name[i] == 127 ||
            strchr("()<>@,;:\\\"/[]?={}", name[i]))
            return true;
    for (size_t i = 0; i < n_value; i++)
        if (((unsigned char)value[i] < ' ' && value[i] != '\t') ||
            value[i] == 127)
            return true;
    return false;
}

static const char *keep(struct gather *g, const char *s)
{
    size_t n = s ? strlen(s) + 1 : 1;
    char *at = g->text + g->n_text;

    g->n_text += n;
    return memcpy(at, s ? s : "", n);
}

static void trim(char *s)
{
    size_t n = strlen(s);

    while (n > 0 && (s[n - 1] == ' ' || s[n - 1] == '\t'))
        s[--n] = '\0';
}

static enum MHD_Result gather_pair(void *user, enum MHD_ValueKind kind,
                                   const char *name, size_t n_name,
                                   const char *value, size_t n_value)
{
    struct gather *g = user;

    if (g->pair) {
        g->pair[g->n].name = keep(g, name);
        g->pair[g->n].value = keep(g, value);
        if (kind == MHD_HEADER_KIND)
            trim((char *)g->pair[g->n].value);
    } else {
        g->n_text += strlen(name) + 1 + (value ? strlen(value) : 0) + 1;
        g->odd |= kind == MHD_HEADER_KIND &&
                  is_odd(name, n_name, value ? value : "", n_value);
    }
    g->n++;
    return MHD_YES;
}

static int hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Decodes the %XX sequences of the string in place. Sequences that are
 * malformed or would give a NUL are left as they are; returns false if there is
 * one. */
static bool decode(char *s)
{
    bool good = true;
    char *to = s;

    for (; *s; s++, to++) {
        int high = *s == '%' ? hex(s[1]) : -1;
        int low = high >= 0 ? hex(s[2]) : -1;

        *to = *s;
        if (low >= 0 && high * 16 + low != 0) {
            *to = (char)(high * 16 + low);
            s += 2;
        } else if (*s == '%') {
            good = false;
        }
    }
    *to = '\0';
    return good;
}

/* Returns the path of a URL after the server's prefix (http_options.prefix);
 * NULL if the path does not begin with the prefix. The URL may have the form
 * "http://host/path". */
static const char *own_path(const struct http *h, const char *url)
{
    size_t n = h->o.prefix ? strlen(h->o.prefix) : 0;

    if (!strncasecmp(url, "http://", 7) || !strncasecmp(url, "https://", 8)) {
        url = strchr(strchr(url, '/') + 2, '/');
        if (!url)
            url = "/";
    }
    if (n && !strncmp(url, h->o.prefix, n) && url[n] == '/')
        return url + n;
    return n ? NULL : url;
}

/* Splits the path `text` at its slashes into r->segment, modifying `text`, and
 * percent-decodes each segment. Sets r->n_segment to -1 if the path is
 * malformed. */
static void split(struct http_request *r, char *text)
{
    while (text && *text == '/') {
        if (r->n_segment == HTTP_MAX_SEGMENT) {
            r->n_segment = -1;
            return;
        }
        *text++ = '\0';
        r->segment[r->n_segment++] = text;
        text = strchr(text, '/');
    }
    for (int i = 0; i < r->n_segment; i++) {
        if (!decode((char *)r->segment[i])) {
            r->n_segment = -1;
            return;
        }
    }
}

/* Copies the head of a request from libmicrohttpd to *r. Returns false if out
 * of memory. */
static bool copy(struct http_request *r, const char *method, const char *url)
{
    const char *path = own_path(r->h, url);
    struct gather g = {0};
    int n_header;

    MHD_get_connection_values_n(r->connection, MHD_HEADER_KIND, gather_pair,
                                &g);
    n_header = g.n;
    r->odd = g.odd;
    MHD_get_connection_values_n(r->connection, MHD_GET_ARGUMENT_KIND,
                                gather_pair, &g);
    g.n_text += strlen(method) + 1 + 2 * (strlen(url) + 1);
    r->header = malloc((size_t)g.n * sizeof *r->header + g.n_text);
    if (!r->header)
        return false;
    g = (struct gather){.pair = r->header, .text = (char *)(r->header + g.n)};
    r->method = keep(&g, method);
    r->path = keep(&g, path ? path : url);
    split(r, (char *)keep(&g, path));
    MHD_get_connection_values_n(r->connection, MHD_HEADER_KIND, gather_pair,
                                &g);
    MHD_get_connection_values_n(r->connection, MHD_GET_ARGUMENT_KIND,
                                gather_pair, &g);
    r->n_header = n_header;
    r->query = r->header + n_header;
    r->n_query = g.n - n_header;
    for (int i = 0; i < r->n_query; i++) {
        decode((char *)r->query[i].name);
        decode((char *)r->query[i].value);
    }
    return true;
}

/* ---- creating, referencing and freeing requests -------------------------- */

const void *http_request_address(const struct http_request *r, int *family)
{
    const struct sockaddr *a =
        MHD_get_connection_info(r->connection,
                                MHD_CONNECTION_INFO_CLIENT_ADDRESS)
            ->client_addr;
    const struct in6_addr *six;

    *family = a->sa_family;
    if (a->sa_family == AF_INET)
        return &((const struct sockaddr_in *)(const void *)a)->sin_addr;
    if (a->sa_family != AF_INET6)
        return NULL;
    six = &((const struct sockaddr_in6 *)(const void *)a)->sin6_addr;
    if (!IN6_IS_ADDR_V4MAPPED(six))
        return six;
    *family = AF_INET;
    return six->s6_addr + 12;
}

/* Returns true if the headers announce a body. */
static bool announces_body(const struct http_request *r)
{
    const char *length = http_header(r, "Content-Length");

    return http_header(r, "Transfer-Encoding") ||
           (length && strspn(length, "0") != strlen(length));
}

struct http_request *http_request_create(struct http *h,
                                         struct MHD_Connection *c,
                                         const char *method, const char *url,
                                         const char *version)
{
    struct http_request *r = calloc(1, sizeof *r);
    const void *address;
    int family;

    if (!r)
        return NULL;
    r->h = h;
    r->connection = c;
    r->fd = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD)
                ->connect_fd;
    r->began = clock_now();
    r->old = !strcmp(version, MHD_HTTP_VERSION_1_0);
    r->cut_off = "";
    address = http_request_address(r, &family);
    if (!address || !inet_ntop(family, address, r->address, sizeof r->address))
        strcpy(r->address, "unix");
    if (!copy(r, method, url)) {
        free(r);
        return NULL;
    }
    r->has_body = announces_body(r);
    atomic_init(&r->n_ref, 1);
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->notified, NULL);
    pthread_mutex_lock(&h->lock);
    r->next = h->first;
    if (r->next)
        r->next->prev = r;
    h->first = r;
    h->n_request++;
    pthread_mutex_unlock(&h->lock);
    return r;
}

void http_request_hold(struct http_request *r)
{
    atomic_fetch_add(&r->n_ref, 1);
}

static void request_free(struct http_request *r)
{
    for (int i = 0; i < r->n_line; i++)
        free((char *)r->line[i].name);
    free(r->line);
    free(r->type);
    free(r->data);
    free(r->body);
    free(r->header);
    pthread_cond_destroy(&r->notified);
    pthread_mutex_destroy(&r->lock);
    free(r);
}

/* Returns how many bytes a request body of capacity `cap` adds to
 * http.body_bytes. */
static size_t counted(size_t cap)
{
    return cap > HTTP_SMALL_BODY ? cap - HTTP_SMALL_BODY : 0;
}

/* Drops a reference to a request, with h->lock held. The lock is needed because
 * other threads find requests in the list http.first and take references with
 * it held, and this reference may be the last. */
void http_request_drop(struct http_request *r)
{
    struct http *h = r->h;

    pthread_mutex_lock(&h->lock);
    if (atomic_fetch_sub(&r->n_ref, 1) != 1) {
        pthread_mutex_unlock(&h->lock);
        return;
    }
    if (r->prev)
        r->prev->next = r->next;
    else
        h->first = r->next;
    if (r->next)
        r->next->prev = r->prev;
    h->n_request--;
    h->body_bytes -= counted(r->cap_body);
    pthread_mutex_unlock(&h->lock);
    http_log_request(r);
    request_free(r);
}

bool http_has_room(struct http *h, size_t len)
{
    bool room;

    pthread_mutex_lock(&h->lock);
    room = counted(len) <= h->o.max_bodies - h->body_bytes;
    pthread_mutex_unlock(&h->lock);
    return room;
}

/* Sets r->cap_body to `cap` and adds the difference to http.body_bytes. Returns
 * false, without a change, if all request bodies together would then exceed
 * max_bodies. */
static bool count_body(struct http_request *r, size_t cap)
{
    struct http *h = r->h;
    size_t more = counted(cap) - counted(r->cap_body);
    bool room;

    pthread_mutex_lock(&h->lock);
    room = more <= h->o.max_bodies - h->body_bytes;
    if (room) {
        h->body_bytes += more;
        r->cap_body = cap;
    }
    pthread_mutex_unlock(&h->lock);
    return room;
}

pl_status http_request_add_body(struct http_request *r, const char *data,
                                size_t len)
{
    if (r->n_body + len >= r->cap_body) {
        size_t cap = 2 * r->cap_body + len + 1, most = r->h->o.max_body + 1;
        char *bigger;

        cap = cap < most ? cap : most;
        if (!count_body(r, cap))
            return PL_FULL;
        bigger = realloc(r->body, cap);
        if (!bigger)
            return PL_NO_MEMORY;
        r->body = bigger;
    }
    memcpy(r->body + r->n_body, data, len);
    r->n_body += len;
    r->body[r->n_body] = '\0';
    return PL_OK;
}

/* ---- reporting clients that disconnected --------------------------------- */

/* Calls the on_gone callback of a request if there is one, and removes the
 * callback so that it is called only once. Caller holds r->lock, which is
 * released during the call. */
static void notify_gone(struct http_request *r)
{
    void (*gone)(void *user) = r->on_gone;

    if (!gone)
        return;
    r->on_gone = NULL;
    r->notifying = true;
    pthread_mutex_unlock(&r->lock);
    gone(r->gone_user);
    pthread_mutex_lock(&r->lock);
    r->notifying = false;
    pthread_cond_broadcast(&r->notified);
}

void http_request_leave(struct http_request *r)
{
    pthread_mutex_lock(&r->lock);
    r->gone = true;
    if (!r->ended)
        notify_gone(r);
    http_resume(r);
    pthread_mutex_unlock(&r->lock);
}

void http_on_gone(struct http_request *r, void (*gone)(void *user), void *user)
{
    pthread_mutex_lock(&r->lock);
    while (r->notifying)
        pthread_cond_wait(&r->notified, &r->lock);
    r->on_gone = gone;
    r->gone_user = user;
    if (r->gone)
        notify_gone(r);
    pthread_mutex_unlock(&r->lock);
}

bool http_has_left(const struct http_request *r)
{
    return r->gone;
}

/* ---- functions that return fields of a request --------------------------- */

const char *http_method(const struct http_request *r)
{
    return r->method;
}

double http_age(const struct http_request *r)
{
    return clock_now() - r->began;
}

const char *http_path(const struct http_request *r)
{
    return r->path;
}

const char *http_name(const struct http_request *r)
{
    return r->name;
}

int http_route_index(const struct http_request *r)
{
    return (int)(r->route - r->h->route);
}

int http_route_arg(const struct http_request *r)
{
    return (int)(r->route->flags >> HTTP_ARG);
}

const char *http_query(const struct http_request *r, const char *name)
{
    for (int i = 0; i < r->n_query; i++) {
        if (!strcmp(r->query[i].name, name))
            return r->query[i].value;
    }
    return NULL;
}

const char *http_header(const struct http_request *r, const char *name)
{
    for (int i = 0; i < r->n_header; i++) {
        if (!strcasecmp(r->header[i].name, name))
            return r->header[i].value;
    }
    return NULL;
}

const char *http_body(const struct http_request *r, size_t *len)
{
    *len = r->n_body;
    return r->body ? r->body : "";
}

void http_set_note(struct http_request *r, const char *note)
{
    pthread_mutex_lock(&r->lock);
    snprintf(r->note, sizeof r->note, "%s", note);
    pthread_mutex_unlock(&r->lock);
}

uint64_t http_client(const struct http_request *r)
{
    return r->client;
}
