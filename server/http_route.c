/* Finds the route of a request. Checks its method, its API key, its framing,
 * and, for requests of browsers, the origin of the page that sent it. */
#include "http_inner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- matching paths and methods with routes ------------------------------ */

/* Returns true if the path of the request matches `path`, the path of a route.
 * Sets *name to the segment of the request's path that matched {}; NULL if the
 * route has no {}. */
static bool matches(const struct http_request *r, const char *path,
                    const char **name)
{
    *name = NULL;
    for (int i = 0; i < r->n_segment; i++) {
        size_t n;

        if (*path++ != '/')
            return false;
        n = strcspn(path, "/");
        if (n == 2 && !strncmp(path, "{}", 2)) {
            *name = r->segment[i];
            if (!**name)
                return false;
        } else if (strlen(r->segment[i]) != n ||
                   strncmp(r->segment[i], path, n) != 0) {
            return false;
        }
        path += n;
    }
    return *path == '\0';
}

/* Returns true if the route handles this method. */
static bool serves(const struct http_route *route, const char *method)
{
    return !strcmp(route->method, method) ||
           (!strcmp(route->method, "GET") && !strcmp(method, "HEAD"));
}

/* Writes the methods of all routes that match the request's path to `text`, for
 * an Allow header. Returns false if no route matches. */
static bool allowed(const struct http_request *r, char *text, size_t size)
{
    const char *name;
    size_t n = 0;

    text[0] = '\0';
    for (int i = 0; i < r->h->n_route; i++) {
        const struct http_route *route = &r->h->route[i];

        if (matches(r, route->path, &name) && n < size)
            n += (size_t)snprintf(text + n, size - n, "%s%s, ", route->method,
                                  serves(route, "HEAD") ? ", HEAD" : "");
    }
    if (n < size)
        snprintf(text + n, size - n, "OPTIONS");
    return n > 0;
}

static void find(struct http_request *r)
{
    const char *name;

    for (int i = 0; i < r->h->n_route && !r->route; i++) {
        const struct http_route *route = &r->h->route[i];

        if (serves(route, r->method) && matches(r, route->path, &name)) {
            r->route = route;
            r->name = name;
        }
    }
}

/* ---- checking API keys --------------------------------------------------- */

/* Returns true if the API keys are equal. The time that this takes depends only
 * on `given`, so it reveals nothing about `key`. */
static bool equal(const char *given, const char *key)
{
    size_t n = strlen(given), n_key = strlen(key);
    size_t differ = n ^ n_key;

    for (size_t i = 0; i < n; i++)
        differ |= (size_t)(unsigned char)(given[i] ^ key[i < n_key ? i : 0]);
    return differ == 0;
}

static bool known(const struct http *h, const char *given)
{
    bool found = false;

    for (int i = 0; given && i < h->o.n_key; i++)
        found |= equal(given, h->o.key[i]);
    return found;
}

/* Returns the API key that the request sent, if it is valid, else NULL. */
static const char *key_of(const struct http_request *r)
{
    const char *bearer = http_header(r, "Authorization");
    const char *key = http_header(r, "x-api-key");

    if (bearer && !strncasecmp(bearer, "Bearer ", 7)) {
        bearer += 7 + strspn(bearer + 7, " ");
        if (known(r->h, bearer))
            return bearer;
    }
    return known(r->h, key) ? key : NULL;
}

/* ---- rejecting requests from pages of other sites ------------------------ */

/* Returns the host name in s, "host:port", without brackets or a trailing dot.
 * Sets *n to its length in bytes. */
static const char *host_of(const char *s, size_t *n)
{
    if (*s == '[') {
        *n = strcspn(s + 1, "]");
        return s + 1;
    }
    *n = strcspn(s, ":/");
    if (*n > 1 && s[*n - 1] == '.')
        --*n;
    return s;
}

static bool is_same(const char *host, size_t n, const char *name, size_t n_name)
{
    return n == n_name && !strncasecmp(host, name, n);
}

/* Returns true if `list`, which has names separated by commas, contains the
 * host name host[0 ... n - 1]. `list` may be NULL. */
static bool is_listed(const char *list, const char *host, size_t n)
{
    while (list && *list) {
        size_t n_name = strcspn(list, ",");

        if (is_same(host, n, list, n_name))
            return true;
        list += n_name + (list[n_name] == ',');
    }
    return false;
}

/* Returns true if the host in s, "host:port", is a name of this server or an IP
 * address. An attacker can make a domain name resolve to this machine (DNS
 * rebinding), but a browser that uses an IP address really means this
 * machine. */
static bool is_ours(const struct http *h, const char *s)
{
    size_t n;
    const char *host = host_of(s, &n), *own = h->o.host;

    if (*s == '[')
        return true;
    if (n > 0 && strspn(host, "0123456789.") >= n)
        return true;
    return is_same(host, n, "localhost", 9) ||
           (n > 10 && !strncasecmp(host + n - 10, ".localhost", 10)) ||
           is_listed(own, host, n) || is_listed(h->o.hosts, host, n);
}

/* Returns true if the Host header shows that a browser reached this server by a
 * name that is not the server's (DNS rebinding). Checked only if the server
 * listens on a loopback address or has a list of host names. Browsers reach no
 * Unix socket, and its clients write any name. */
static bool is_dns_rebinding(const struct http_request *r)
{
    const char *host = http_header(r, "Host"), *let_in = r->h->o.hosts;
    int family;
    const bool local = r->h->loopback && http_request_address(r, &family);

    if (!host || !*host || (!local && !let_in) ||
        (let_in && is_listed(let_in, "*", 1)))
        return false;
    return !is_ours(r->h, host);
}

const char *http_allowed_origin(const struct http_request *r)
{
    const char *list = r->h->o.origin, *origin = http_header(r, "Origin");
    const char *host = origin ? strstr(origin, "://") : NULL;
    size_t n = 0;

    if (is_listed(list, "*", 1))
        return "*";
    if (!origin)
        return NULL;
    host = host ? host_of(host + 3, &n) : "";
    if (is_listed(list, "localhost", 9) &&
        (is_same(host, n, "localhost", 9) || is_same(host, n, "127.0.0.1", 9) ||
         is_same(host, n, "::1", 3)))
        return origin;
    return is_listed(list, origin, strlen(origin)) ? origin : NULL;
}

/* Returns true if a browser sent the request on behalf of a page that is
 * neither from this server nor allowed (http_options.origin). Browsers send
 * such requests without asking the user, even to servers on the local machine.
 * To a server with TLS or on the local machine, the browser sends the header
 * Sec-Fetch-Site. Source: Fetch Metadata Request Headers, 2.4. To other
 * servers, and to domain names that were rebound to this machine, it sends the
 * header Origin, "http://host:port" or "null", except with GET. */
static bool is_cross_origin(const struct http_request *r)
{
    const char *site = http_header(r, "Sec-Fetch-Site");
    const char *origin = http_header(r, "Origin");
    const char *host = origin ? strstr(origin, "://") : NULL;

    if (http_allowed_origin(r))
        return false;
    if (site)
        return !strcasecmp(site, "cross-site") ||
               !strcasecmp(site, "same-site");
    return origin && r->h->loopback && !(host && is_ours(r->h, host + 3));
}

/* Checks that a request was not sent by a page of another site. If so, returns
 * 0; else returns an HTTP status and sets *message. Called only if the server
 * has no API keys. */
static int check_origin(struct http_request *r, const char **message)
{
    const char *origin = http_header(r, "Origin"), *host = origin;
    char name[96], page[96] = "ORIGIN";
    size_t n;

    if (is_dns_rebinding(r)) {
        host = host_of(http_header(r, "Host"), &n);
        http_show(name, sizeof name, host, n);
        snprintf(
            r->said, sizeof r->said,
            "host \"%s\" rejected: not known to be this server; if it is, "
            "start the server with --allowed-hosts %s, or require --api-key",
            name, name);
    } else if (is_cross_origin(r)) {
        if (origin && (host = strstr(origin, "://")))
            http_show(page, sizeof page, origin, strlen(origin));
        host = host_of(host ? host + 3 : "HOST", &n);
        http_show(name, sizeof name, host, n);
        snprintf(r->said, sizeof r->said,
                 "cross-origin request rejected; allow it with --cors-origin "
                 "%s or require --api-key; if the page is this server's behind "
                 "a proxy, use --allowed-hosts %s",
                 page, name);
    } else {
        return 0;
    }
    *message = r->said;
    return MHD_HTTP_FORBIDDEN;
}

/* ---- identifying clients for fair scheduling ----------------------------- */

/* Returns the FNV-1a hash of the n bytes `data`; 1 if the hash is 0. */
static uint64_t hash(const void *data, size_t n)
{
    const unsigned char *byte = data;
    uint64_t x = 0xcbf29ce484222325u;

    for (size_t i = 0; i < n; i++)
        x = (x ^ byte[i]) * 0x100000001b3u;
    return x ? x : 1;
}

/* Returns a hash of the client's IP address. Uses only the first 64 bits of an
 * IPv6 address, because a client usually owns all addresses of its /64
 * network. */
static uint64_t hash_address(const struct http_request *r)
{
    int family;
    const void *address = http_request_address(r, &family);

    return hash(address, !address ? 0 : family == AF_INET6 ? 8 : 4);
}

/* ---- checking a whole request -------------------------------------------- */

/* Checks the headers that determine where the request ends (framing). If they
 * are valid, returns 0; else returns an HTTP status and sets *message.
 * Ambiguous framing would allow request smuggling. */
static int framing(const struct http_request *r, const char **message)
{
    const char *coding = NULL, *length = NULL;
    int n_host = 0;

    if (r->odd) {
        *message = "a header line of the request is malformed; send \"Name: "
                   "value\" lines without control characters";
        return MHD_HTTP_BAD_REQUEST;
    }
    for (int i = 0; i < r->n_header; i++) {
        const struct http_pair *p = &r->header[i];

        n_host += !strcasecmp(p->name, "Host");
        if (!strcasecmp(p->name, "Transfer-Encoding")) {
            if (strcasecmp(p->value, "chunked") != 0) {
                *message = "transfer encoding not supported; use chunked, or "
                           "send Content-Length";
                return MHD_HTTP_NOT_IMPLEMENTED;
            }
            /* a second Transfer-Encoding sets `length`, too, so that the
             * request is rejected below. */
            length = coding ? p->value : length;
            coding = p->value;
        } else if (!strcasecmp(p->name, "Content-Length")) {
            if (length && strcmp(length, p->value) != 0)
                coding = p->value; /* a second, different length sets `coding`,
                                      too, so that the request is rejected
                                      below */
            length = p->value;
        }
    }
    if (coding && length) {
        *message = "the length of the body is given twice; send either one "
                   "Content-Length or one Transfer-Encoding";
        return MHD_HTTP_BAD_REQUEST;
    }
    if ((coding && r->old) || n_host > 1) {
        *message = n_host > 1 ? "the request has two Host headers; send one"
                              : "HTTP/1.0 does not allow Transfer-Encoding; "
                                "use HTTP/1.1, or send Content-Length";
        return MHD_HTTP_BAD_REQUEST;
    }
    return 0;
}

/* Checks the announced size of the request body against the limits. Returns 0
 * if the size is allowed; else returns an HTTP status and sets *message. */
static int check_body_size(struct http_request *r, const char **message)
{
    const char *length = http_header(r, "Content-Length");
    unsigned long long n = length ? strtoull(length, NULL, 10) : 0;

    if (n > r->h->o.max_body) {
        *message = "the request body is too large; send a smaller one";
        return MHD_HTTP_CONTENT_TOO_LARGE;
    }
    if (http_has_room(r->h, (size_t)n))
        return 0;
    *message = "out of memory for the request body; try again later";
    return MHD_HTTP_SERVICE_UNAVAILABLE;
}

/* Handles a request that matches no route by path and method. Returns the HTTP
 * status: 204 for OPTIONS, 404 if no route has the path, else 405. Adds the
 * headers of the response. */
static int other_method(struct http_request *r, const char **message)
{
    const char *asked = http_header(r, "Access-Control-Request-Headers");
    bool options = !strcmp(r->method, "OPTIONS");
    char text[128];

    if (!allowed(r, text, sizeof text) && !(options && r->path[0] == '*')) {
        *message = "no route has this path; check the URL";
        return MHD_HTTP_NOT_FOUND;
    }
    http_set_header(r, "Allow", text);
    if (!options) {
        *message = "the route does not support this method; use one of the "
                   "Allow header";
        return MHD_HTTP_METHOD_NOT_ALLOWED;
    }
    if (r->h->o.origin) {
        http_set_header(r, "Access-Control-Allow-Methods", text);
        if (asked)
            http_set_header(r, "Access-Control-Allow-Headers", asked);
        http_set_header(r, "Access-Control-Max-Age", "86400");
    }
    return MHD_HTTP_NO_CONTENT;
}

int http_route_find(struct http_request *r, const char **message)
{
    struct http *h = r->h;
    const char *key = key_of(r);
    int status;

    *message = "";
    r->client = key ? hash(key, strlen(key)) : hash_address(r);
    status = framing(r, message);
    r->close = status != 0;
    if (status)
        return status;
    if (h->o.unavailable) {
        char after[16];

        snprintf(after, sizeof after, "%d", atomic_load(&h->retry_s));
        http_set_header(r, "Retry-After", after);
        r->close = true; /* the client's next request meets another server */
        *message = h->o.unavailable;
        return MHD_HTTP_SERVICE_UNAVAILABLE;
    }
    if (r->n_segment < 0) {
        *message =
            "the path of the URL is malformed; check its percent encoding";
        return MHD_HTTP_BAD_REQUEST;
    }
    find(r);
    if (h->o.n_key && !key && strcmp(r->method, "OPTIONS") != 0 &&
        !(r->route && (r->route->flags & HTTP_OPEN))) {
        http_set_header(r, "WWW-Authenticate", "Bearer");
        *message = "the API key is missing or wrong; send a valid one as "
                   "Authorization: Bearer KEY";
        return MHD_HTTP_UNAUTHORIZED;
    }
    if (!r->route)
        return other_method(r, message);
    if (!h->o.n_key && !(r->route->flags & HTTP_OPEN) &&
        (status = check_origin(r, message)))
        return status;
    if (atomic_load(&h->draining)) {
        *message = "the server is stopping";
        return MHD_HTTP_SERVICE_UNAVAILABLE;
    }
    return check_body_size(r, message);
}
