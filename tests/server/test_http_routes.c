/* Each request gets the right response, by path, method, key and browser, and
 * the right log line. */
#include "lib/http_try.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HOST " HTTP/1.1\r\nHost: a\r\n"

static void has(const char *head, const char *line)
{
    if (!strcasestr(head, line))
        fail_msg("no \"%s\" in: %s", line, head);
}

static void has_not(const char *head, const char *line)
{
    if (strcasestr(head, line))
        fail_msg("\"%s\" in: %s", line, head);
}

TEST(http_paths_are_matched_piece_by_piece)
{
    static const struct {
        const char *path;
        int status;
        const char *body; /* expected body; NULL for any */
    } rows[] = {
        {"/hello", 200, "hello"},
        {"/hello?x=1", 200, "hello"},
        {"/hel%6co", 200, "hello"},
        {"http://host:80/hello", 200, "hello"},
        {"http://host", 404, NULL},
        {"/hello/", 404, NULL},
        {"//hello", 404, NULL},
        {"/", 404, NULL},
        {"/Hello", 404, NULL},
        {"/hello/more", 404, NULL},
        {"/name/a", 200, "GET a"},
        {"/name/a%2Fb", 200, "GET a/b"},
        {"/name/%7B%7D", 200, "GET {}"},
        {"/name/{}", 200, "GET {}"},
        {"/name/..", 200, "GET .."},
        {"/name/%c3%a9", 200, "GET \xc3\xa9"},
        {"/name/", 404, NULL},
        {"/name", 404, NULL},
        {"/name/a/b", 404, NULL},
        {"/name/a/more", 405, NULL},
        {"/name/%", 400,
         "400 the path of the URL is malformed; check its percent encoding"},
        {"/name/%4", 400,
         "400 the path of the URL is malformed; check its percent encoding"},
        {"/name/%zz", 400,
         "400 the path of the URL is malformed; check its percent encoding"},
        {"/name/a%00b", 400,
         "400 the path of the URL is malformed; check its percent encoding"},
        {"/a/b/c/d/e/f/g/h/i/j/k/l/m/n/o/p", 404, NULL},
        {"/a/b/c/d/e/f/g/h/i/j/k/l/m/n/o/p/q", 400, NULL},
        {"/query", 200, "-|-"},
        {"/query?a=1&b=2", 200, "1|2"},
        {"/query?b=x%26y+z&a", 200, "|x&y z"},
        {"/query?a=1&a=2", 200, "1|-"},
        {"/query?a=%zz", 200, "%zz|-"},
        {"/query?%61=%00", 200, "%00|-"},
    };
    struct http_try t;

    try_start(&t, NULL);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        try_ask(&t, try_get(rows[i].path, ""), rows[i].status, rows[i].body,
                NULL);
    try_ask(&t, try_get("/header", "X-Test: some value \r\n"), 200,
            "some value", NULL);
    try_ask(&t, try_get("/header", ""), 200, "-", NULL);
    try_stop(&t);
}

TEST(http_methods_are_those_of_the_path)
{
    char head[4096];
    struct http_try t;

    try_start(&t, NULL);
    try_ask(&t, "HEAD /hello" HOST "\r\n", 200, "", head);
    has(head, "Content-Length: 5\r\n");
    try_ask(&t, "DELETE /name/x" HOST "\r\n", 200, "DELETE x", NULL);
    try_ask(&t, "POST /name/x/more" HOST "Content-Length: 0\r\n\r\n", 200,
            "more x", NULL);
    try_ask(&t, "POST /hello" HOST "Content-Length: 0\r\n\r\n", 405, NULL,
            head);
    has(head, "\r\nAllow: GET, HEAD, OPTIONS\r\n");
    try_ask(&t, "GET /echo" HOST "\r\n", 405, NULL, head);
    has(head, "\r\nAllow: POST, OPTIONS\r\n");
    try_ask(&t, "BREW /name/x" HOST "\r\n", 405, NULL, head);
    has(head, "\r\nAllow: GET, HEAD, DELETE, OPTIONS\r\n");
    try_ask(&t, "BREW /nowhere" HOST "\r\n", 404,
            "404 no route has this path; check the URL", head);
    has(head, "\r\nContent-Type: application/json\r\n");
    try_ask(&t, "OPTIONS /name/x" HOST "\r\n", 204, "", head);
    has(head, "\r\nAllow: GET, HEAD, DELETE, OPTIONS\r\n");
    has_not(head, "Access-Control");
    try_ask(&t, "OPTIONS *" HOST "\r\n", 204, "", NULL);
    try_ask(&t, "OPTIONS /nowhere" HOST "\r\n", 404, NULL, NULL);
    try_stop(&t);
}

TEST(http_prefix_stands_before_every_path)
{
    struct http_options o = {.prefix = "/api"};
    struct http_try t;

    try_start(&t, &o);
    try_ask(&t, try_get("/api/hello", ""), 200, "hello", NULL);
    try_ask(&t, try_get("/api/name/x", ""), 200, "GET x", NULL);
    try_ask(&t, try_get("/hello", ""), 404, NULL, NULL);
    try_ask(&t, try_get("/apihello", ""), 404, NULL, NULL);
    try_ask(&t, try_get("/api", ""), 404, NULL, NULL);
    try_stop(&t);
}

TEST(http_keys_are_asked_for_but_where_a_route_is_open)
{
    static const struct {
        const char *lines;
        bool in;
    } rows[] = {
        {"", false},
        {"Authorization: Bearer one\r\n", true},
        {"Authorization: bearer  two\r\n", true},
        {"authorization: Bearer three\r\n", true},
        {"x-api-key: two\r\n", true},
        {"X-API-Key: one\r\nAuthorization: Bearer wrong\r\n", true},
        {"Authorization: Bearer one\r\nx-api-key: wrong\r\n", true},
        {"Authorization: Bearer on\r\n", false},
        {"Authorization: Bearer onee\r\n", false},
        {"Authorization: Bearer \r\n", false},
        {"Authorization: Bearer\r\n", false},
        {"Authorization: Basic one\r\n", false},
        {"Authorization: one\r\n", false},
        {"Authorization: Bearer ONE\r\n", false},
        {"Authorization: Bearer oneone\r\n", false},
        {"x-api-key: \r\n", false},
        {"x-api-key: one two\r\n", false},
        {"Cookie: one\r\n", false},
    };
    static const char *const keys[] = {"one", "two", "three"};
    struct http_options o = {.key = keys, .n_key = 3};
    char head[4096];
    struct http_try t;

    try_start(&t, &o);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        try_ask(&t, try_get("/hello", rows[i].lines), rows[i].in ? 200 : 401,
                rows[i].in ? "hello"
                           : "401 the API key is missing or wrong; send a "
                             "valid one as Authorization: Bearer KEY",
                head);
        if (!rows[i].in)
            has(head, "\r\nWWW-Authenticate: Bearer\r\n");
        try_ask(&t, try_get("/open", rows[i].lines), 200, "open", NULL);
        try_ask(&t, try_get("/nowhere", rows[i].lines), rows[i].in ? 404 : 401,
                NULL, NULL);
    }
    try_ask(&t, try_get("/hello?api_key=one", ""), 401, NULL, NULL);
    try_ask(&t, "POST /open" HOST "Content-Length: 0\r\n\r\n", 401, NULL, NULL);
    try_ask(&t, "OPTIONS /hello" HOST "\r\n", 204, NULL, NULL);
    try_stop(&t);
    assert_null(strstr(t.log, "one"));
    assert_null(strstr(t.log, "two"));
}

/* A rejected key keeps the connection open if there is no body. */
TEST(http_refusals_keep_the_connection)
{
    static const char *const keys[] = {"one"};
    struct http_options o = {.key = keys, .n_key = 1};
    struct try_client c;
    struct try_answer a;
    struct http_try t;

    try_start(&t, &o);
    try_connect(&t, &c);
    for (int i = 0; i < 3; i++) {
        try_send(&c, try_get("/hello", ""));
        try_read(&c, &a, false);
        assert_int_equal(a.status, 401);
        free(a.body);
        try_send(&c, try_get("/hello", "x-api-key: one\r\n"));
        try_read(&c, &a, false);
        assert_int_equal(a.status, 200);
        free(a.body);
    }
    try_close(&c);
    try_stop(&t);
}

static void client_of(struct http_try *t, const char *lines, char out[64])
{
    struct try_client c;
    struct try_answer a;

    try_connect(t, &c);
    try_send(&c, try_get("/client", lines));
    try_read(&c, &a, false);
    snprintf(out, 64, "%s", a.body);
    assert_string_not_equal(out, "0");
    free(a.body);
    try_close(&c);
}

TEST(http_clients_are_told_apart_by_their_keys)
{
    static const char *const keys[] = {"one", "two"};
    struct http_options o = {.key = keys, .n_key = 2};
    char one[64], two[64], again[64], other[64];
    struct http_try t;

    try_start(&t, &o);
    client_of(&t, "Authorization: Bearer one\r\n", one);
    client_of(&t, "Authorization: Bearer two\r\n", two);
    client_of(&t, "x-api-key: one\r\n", again);
    assert_string_equal(one, again);
    assert_string_not_equal(one, two);
    try_stop(&t);
    try_start(&t, NULL);
    client_of(&t, "Authorization: Bearer one\r\n", again);
    client_of(&t, "Authorization: Bearer two\r\n", other);
    /* without --api-key, keys are not checked and do not identify a client */
    assert_string_equal(again, other);
    try_stop(&t);
}

TEST(http_browsers_of_elsewhere_are_let_in_on_request)
{
    static const char *const keys[] = {"one"};
    struct http_options o = {.origin = "https://page.example"};
    char head[4096];
    struct http_try t;

    try_start(&t, &o);
    try_ask(&t,
            "OPTIONS /echo" HOST "Origin: https://page.example\r\n"
            "Access-Control-Request-Method: POST\r\n"
            "Access-Control-Request-Headers: authorization, x-own\r\n\r\n",
            204, "", head);
    has(head, "\r\nAccess-Control-Allow-Origin: https://page.example\r\n");
    has(head, "\r\nAccess-Control-Allow-Methods: POST, OPTIONS\r\n");
    has(head, "\r\nAccess-Control-Allow-Headers: authorization, x-own\r\n");
    has(head, "\r\nVary: Origin\r\n");
    try_ask(&t, try_get("/hello", "Origin: https://page.example\r\n"), 200,
            "hello", head);
    has(head, "\r\nAccess-Control-Allow-Origin: https://page.example\r\n");
    has(head, "\r\nAccess-Control-Expose-Headers: Retry-After\r\n");
    try_ask(&t, try_get("/warned", "Origin: https://page.example\r\n"), 200,
            "hello", head);
    has(head, "\r\nAccess-Control-Expose-Headers: Retry-After, "
              "Plait-Warning\r\n");
    try_ask(&t, try_get("/nowhere", "Origin: https://page.example\r\n"), 404,
            NULL, head);
    has(head, "\r\nAccess-Control-Allow-Origin: https://page.example\r\n");
    try_ask(&t, try_get("/hello", ""), 200, "hello", head);
    has(head, "\r\nVary: Origin\r\n");
    try_stop(&t);
    o.origin = "*";
    try_start(&t, &o);
    try_ask(&t, try_get("/hello", ""), 200, "hello", head);
    has(head, "\r\nAccess-Control-Allow-Origin: *\r\n");
    has_not(head, "Vary");
    try_stop(&t);
    try_start(&t, &(struct http_options){.key = keys, .n_key = 1});
    try_ask(&t,
            try_get("/hello", "Origin: https://page.example\r\n"
                              "x-api-key: one\r\n"),
            200, "hello", head);
    has_not(head, "Access-Control");
    try_stop(&t);
}

TEST(http_browsers_of_each_listed_origin_are_let_in)
{
    static const struct {
        const char *origin;
        bool let_in;
    } list[] = {
        {"https://a.example", true},      {"http://b.example:81", true},
        {"http://localhost:3000", true},  {"http://127.0.0.1", true},
        {"https://a.example.net", false}, {"http://b.example", false},
    };
    struct http_options o = {
        .origin = "https://a.example,http://b.example:81,localhost"};
    char head[4096], line[100];
    struct http_try t;

    try_start(&t, &o);
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        snprintf(line, sizeof line, "Origin: %s\r\n", list[i].origin);
        try_ask(&t, try_get("/hello", line), list[i].let_in ? 200 : 403, NULL,
                head);
        snprintf(line, sizeof line, "\r\nAccess-Control-Allow-Origin: %s\r\n",
                 list[i].origin);
        if ((strstr(head, line) != NULL) != list[i].let_in)
            fail_msg("%s: %s", list[i].origin, head);
    }
    try_stop(&t);
}

/* Without keys, a web page from anywhere could have a browser send requests. */
TEST(http_pages_of_elsewhere_may_not_ask_where_no_key_is_asked_for)
{
    static const struct {
        const char *lines;
        bool in;
    } rows[] = {
        {"", true},
        {"Sec-Fetch-Site: none\r\n", true},
        {"Sec-Fetch-Site: same-origin\r\nOrigin: http://a.example\r\n", true},
        {"Sec-Fetch-Site: cross-site\r\n", false},
        {"Sec-Fetch-Site: same-site\r\nOrigin: http://localhost\r\n", false},
        {"Origin: http://127.0.0.1:8080\r\n", true},
        {"Origin: http://[::1]:8080\r\n", true},
        {"Origin: http://localhost\r\n", true},
        {"Origin: http://a.localhost:8080\r\n", true},
        {"Origin: null\r\n", false},
        {"Origin: http://page.example:8080\r\n", false},
        {"Origin: http://127.0.0.1.example\r\n", false},
        {"Origin: http://localhost.example\r\n", false},
        {"Origin: http://notlocalhost\r\n", false},
        {"Origin: http://\r\n", false},
    };
    static const char *const keys[] = {"one"};
    struct http_options o = {.key = keys, .n_key = 1};
    struct http_try t;

    try_start(&t, NULL);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        try_ask(&t, try_get("/hello", rows[i].lines), rows[i].in ? 200 : 403,
                NULL, NULL);
        try_ask(&t, try_get("/open", rows[i].lines), 200, "open", NULL);
    }
    try_ask(&t,
            "POST /echo" HOST "Sec-Fetch-Site: cross-site\r\n"
            "Content-Type: text/plain\r\nContent-Length: 0\r\n\r\n",
            403, NULL, NULL);
    try_stop(&t);
    try_start(&t, &o);
    try_ask(&t,
            try_get("/hello", "Sec-Fetch-Site: cross-site\r\n"
                              "x-api-key: one\r\n"),
            200, "hello", NULL);
    try_stop(&t);
    o = (struct http_options){.origin = "https://page.example"};
    try_start(&t, &o);
    try_ask(&t,
            try_get("/hello", "Sec-Fetch-Site: cross-site\r\n"
                              "Origin: https://page.example\r\n"),
            200, "hello", NULL);
    try_ask(&t,
            try_get("/hello", "Sec-Fetch-Site: cross-site\r\n"
                              "Origin: https://other.example\r\n"),
            403, NULL, NULL);
    o.origin = "*";
    try_stop(&t);
    try_start(&t, &o);
    try_ask(&t, try_get("/hello", "Sec-Fetch-Site: cross-site\r\n"), 200,
            "hello", NULL);
    try_stop(&t);
}

/* The owner of a name can point it at this machine; browsers send the name. */
TEST(http_names_of_elsewhere_may_not_ask_where_no_key_is_asked_for)
{
    static const struct {
        const char *lines;
        bool in;
    } rows[] = {
        {"Host: 127.0.0.1:8080\r\n", true},
        {"Host: 127.0.0.1\r\n", true},
        {"Host: localhost:1\r\n", true},
        {"Host: LocalHost\r\n", true},
        {"Host: localhost.:80\r\n", true},
        {"Host: a.localhost\r\n", true},
        {"Host: [::1]:8080\r\n", true},
        {"Host: [::1]\r\n", true},
        {"Host: 10.0.0.7:8080\r\n", true}, /* the address through a tunnel */
        {"Host: my.example\r\n", true},
        {"Host: MY.example:8080\r\n", true},
        {"Host: other.example\r\n", true},
        {"Host: page.example:8080\r\n", false},
        {"Host: my.example.page.example\r\n", false},
        {"Host: y.example\r\n", false},
        {"Host: 127.0.0.1.page.example\r\n", false},
        {"Host: localhost.page.example\r\n", false},
        {"Host: notlocalhost\r\n", false},
        {"Host: my.example,other.example\r\n", false},
        /* Requests through a proxy that speaks HTTP with the server. */
        {"Host: my.example\r\nOrigin: http://my.example\r\n", true},
        {"Host: 127.0.0.1\r\nOrigin: https://other.example:8\r\n", true},
        {"Host: my.example\r\nOrigin: http://page.example\r\n", false},
    };
    static const char *const keys[] = {"one"};
    struct http_options o = {.hosts = "my.example,other.example"};
    char text[300];
    struct http_try t;

    try_start(&t, &o);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        snprintf(text, sizeof text, "GET /hello HTTP/1.1\r\n%s\r\n",
                 rows[i].lines);
        try_ask(&t, text, rows[i].in ? 200 : 403, NULL, NULL);
        snprintf(text, sizeof text, "GET /open HTTP/1.1\r\n%s\r\n",
                 rows[i].lines);
        try_ask(&t, text, 200, "open", NULL);
    }
    try_ask(&t, "GET /hello HTTP/1.0\r\n\r\n", 200, "hello", NULL);
    try_ask(&t, "GET /hello HTTP/1.1\r\nHost: page.example:80\r\n\r\n", 403,
            "403 host \"page.example\" rejected: not known to be this server; "
            "if it is, start the server with --allowed-hosts page.example, or "
            "require --api-key",
            NULL);
    try_ask(&t,
            "GET /hello HTTP/1.1\r\nHost: localhost\r\n"
            "Origin: http://page.example:80\r\n\r\n",
            403,
            "403 cross-origin request rejected; allow it with --cors-origin "
            "http://page.example:80 or require --api-key; if the page is this "
            "server's behind a proxy, use --allowed-hosts page.example",
            NULL);
    try_stop(&t);
    o = (struct http_options){.key = keys, .n_key = 1, .hosts = "my.example"};
    try_start(&t, &o);
    try_ask(&t, try_get("/hello", "x-api-key: one\r\n"), 200, "hello", NULL);
    try_stop(&t);
    o = (struct http_options){.host = "0.0.0.0", .hosts = "b"};
    try_start(&t, &o);
    try_ask(&t, "GET /hello" HOST "\r\n", 403, NULL, NULL);
    try_stop(&t);
    o.hosts = "b,*";
    try_start(&t, &o);
    try_ask(&t, "GET /hello" HOST "\r\n", 200, "hello", NULL);
    try_stop(&t);
}

TEST(http_header_lines_of_answers_cannot_be_planted)
{
    char head[4096];
    struct http_try t;

    try_start(&t, NULL);
    try_ask(&t, try_get("/wrong", ""), 200, "wrong", head);
    has(head, "\r\nX-Right: c\r\n");
    has_not(head, "X-Planted");
    try_stop(&t);
}

TEST(http_log_has_a_line_a_request)
{
    struct http_try t;

    try_start(&t, NULL);
    try_ask(&t, try_get("/hello?secret=1", "x-api-key: secret\r\n"), 200, NULL,
            NULL);
    try_ask(&t, "POST /echo" HOST "Content-Length: 6\r\n\r\nsecret", 200,
            "secret", NULL);
    try_ask(&t, "GET /\033[31m\x80" HOST "\r\n", 404, NULL, NULL);
    try_load_is(&t, 0, 0);
    try_stop(&t);
    assert_null(strstr(t.log, "secret"));
    assert_non_null(strstr(t.log, "127.0.0.1 GET /hello 200 ms="));
    assert_non_null(strstr(t.log, "127.0.0.1 POST /echo 200 ms="));
    assert_non_null(strstr(t.log, "127.0.0.1 GET /?[31m? 404 ms="));
}
