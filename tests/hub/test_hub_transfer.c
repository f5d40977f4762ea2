/* Downloads from a hub with all errors of servers and networks. The result is
 * the file that the hub lists, or nothing. */
#include "lib/http_try.h"
#include "lib/hub_try.h"

#include "hub/hub_api.h"
#include "hub/hub_transfer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { N = 1 << 20 };

static bool is_there(const char *path)
{
    return access(path, F_OK) == 0;
}

static int64_t size_of(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 ? (int64_t)st.st_size : -1;
}

/* Sets up a hub that has one file, and a client. */
static struct hub_try_file *begin(struct hub_try *t, struct hub_use *u)
{
    hub_try_start(t);
    hub_use_init(u, t);
    return hub_try_add_random(t, "m-Q4_K_M.gguf", N);
}

static void end(struct hub_try *t, struct hub_use *u)
{
    hub_use_fini(u);
    hub_try_stop(t);
}

TEST(hub_a_file_comes_once)
{
    struct hub_try_file *f;
    struct hub_try t;
    struct hub_use u;

    hub_try_start(&t);
    f = hub_try_add_random(&t, "a b/m-Q4_K_M.gguf", N);
    snprintf(f->path, sizeof f->path, "sub/m-Q4_K_M.gguf");
    hub_use_init(&u, &t);
    hub_use(&u, "T/R", NULL, PL_OK, "downloading sub/m-Q4_K_M.gguf, 1.0 MB");
    hub_use_has(&u, f);
    assert_string_equal(u.path,
                        hub_use_place(&u, &t, t.revision, "sub/m-Q4_K_M.gguf"));
    assert_int_equal(t.n_get, 1);
    assert_int_equal(t.n_part, 0);
    assert_int_equal(t.n_token, 0);
    hub_use(&u, "T/R:q4_k_m", NULL, PL_OK, NULL);
    hub_use(&u, "T/R", "sub/m-Q4_K_M.gguf", PL_OK, NULL);
    assert_string_equal(u.log, "");
    assert_int_equal(t.n_get, 1);
    assert_false(
        is_there(hub_use_place(&u, &t, t.revision, "sub/m-Q4_K_M.gguf.part")));
    assert_false(is_there(
        hub_use_place(&u, &t, t.revision, "sub/m-Q4_K_M.gguf.part.etag")));
    end(&t, &u);
}

/* Bytes of a path that an address must escape. */
TEST(hub_paths_are_escaped_in_addresses)
{
    const struct hub_options o = {.endpoint = "http://a//"};
    char *url = hub_api_file(&o, "T/R", "0123abc", "a b/c%+?#\xc3\xa9.gguf");

    assert_string_equal(
        url, "http://a/T/R/resolve/0123abc/a%20b/c%25%2B%3F%23%C3%A9.gguf");
    free(url);
}

TEST(hub_a_cut_connection_is_gone_on_with)
{
    struct hub_try_file *f;
    struct hub_try t;
    struct hub_use u;

    f = begin(&t, &u);
    /* More transfers are cut than there are tries: a try that brings bytes does
     * not count. */
    t.n_cut = 5;
    t.cut_at = 150000;
    hub_use(&u, "T/R", NULL, PL_OK, "trying again");
    hub_use_has(&u, f);
    assert_int_equal(t.n_get, 6);
    assert_int_equal(t.n_part, 5);
    assert_int_equal(t.n_if_range, 5);
    assert_int_equal(t.n_sent, N);
    end(&t, &u);
}

/* A transfer that is cut ends without a file, and the next run continues the
 * partial one. */
TEST(hub_a_part_is_gone_on_with_in_the_next_run)
{
    struct hub_try_file *f;
    struct hub_try t;
    struct hub_use u;

    hub_try_start(&t);
    f = hub_try_add_random(&t, "m-Q4_K_M.gguf", N);
    for (int with_tag = 0; with_tag < 2; with_tag++) {
        hub_use_init(&u, &t);
        if (!with_tag)
            f->etag[0] = '\0';
        hub_try_count(&t);
        u.o.n_try = 1;
        t.n_cut = 1;
        t.cut_at = 300000;
        hub_use(&u, "T/R", NULL, PL_IO, "run the command again to resume");
        assert_int_equal(
            size_of(hub_use_place(&u, &t, t.revision, "m-Q4_K_M.gguf.part")),
            300000);
        hub_use(&u, "T/R", NULL, PL_OK, "300 KB already there");
        hub_use_has(&u, f);
        assert_int_equal(t.n_sent, N);
        assert_int_equal(t.n_if_range, with_tag);
        hub_use_fini(&u);
        snprintf(f->etag, sizeof f->etag, "\"tag\"");
    }
    hub_try_stop(&t);
}

TEST(hub_a_server_without_ranges_sends_all_again)
{
    struct hub_try_file *f;
    struct hub_try t;
    struct hub_use u;

    f = begin(&t, &u);
    t.no_range = true;
    t.n_cut = 1;
    t.cut_at = N - 1;
    hub_use(&u, "T/R", NULL, PL_OK, "cannot resume, starting over");
    hub_use_has(&u, f);
    assert_int_equal(t.n_part, 1);
    assert_int_equal(t.n_sent, 2 * N - 1);
    end(&t, &u);
}

/* A body without a length ends with its connection, whether whole or not. */
TEST(hub_a_body_of_no_length_is_counted)
{
    struct hub_try_file *f;
    struct hub_try t;
    struct hub_use u;

    f = begin(&t, &u);
    t.no_length = true;
    t.n_cut = 2;
    t.cut_at = 100000;
    hub_use(&u, "T/R", NULL, PL_OK, "received 100000 of 1048576 bytes");
    hub_use_has(&u, f);
    assert_int_equal(t.n_sent, N);
    end(&t, &u);
}

/* The version changes between two tries. */
TEST(hub_a_part_of_another_version_is_dropped)
{
    struct hub_try_file *f;
    struct hub_try t;
    struct hub_use u;

    f = begin(&t, &u);
    u.o.n_try = 1;
    t.n_cut = 1;
    t.cut_at = 300000;
    hub_use(&u, "T/R", NULL, PL_IO, NULL);
    snprintf(f->etag, sizeof f->etag, "\"another\"");
    hub_use(&u, "T/R", NULL, PL_OK, "cannot resume, starting over");
    hub_use_has(&u, f);
    assert_int_equal(t.n_if_range, 1);
    end(&t, &u);
}

TEST(hub_a_wrong_sum_is_never_used)
{
    struct hub_try_file *f;
    struct hub_try t;
    struct hub_use u;

    f = begin(&t, &u);
    f->sum[0] = f->sum[0] == '0' ? '1' : '0';
    hub_use(&u, "T/R", NULL, PL_BAD_FILE, f->sum);
    assert_int_equal(t.n_get, 1);
    assert_false(is_there(hub_use_place(&u, &t, t.revision, f->path)));
    assert_false(
        is_there(hub_use_place(&u, &t, t.revision, "m-Q4_K_M.gguf.part")));
    end(&t, &u);
}

/* The part of an earlier run is damaged, which the sum shows. */
TEST(hub_a_damaged_part_is_downloaded_again)
{
    struct hub_try_file *f;
    struct hub_try t;
    struct hub_use u;
    FILE *part;

    f = begin(&t, &u);
    u.o.n_try = 1;
    t.n_cut = 1;
    t.cut_at = 300000;
    hub_use(&u, "T/R", NULL, PL_IO, NULL);
    part =
        fopen(hub_use_place(&u, &t, t.revision, "m-Q4_K_M.gguf.part"), "r+b");
    assert_non_null(part);
    fseek(part, 12345, SEEK_SET);
    fputc(f->data[12345] ^ 1, part);
    fclose(part);
    hub_use(&u, "T/R", NULL, PL_OK, "is damaged");
    hub_use_has(&u, f);
    /* And a part that is longer than the file. */
    unlink(u.path);
    part = fopen(hub_use_place(&u, &t, t.revision, "m-Q4_K_M.gguf.part"), "wb");
    assert_non_null(part);
    assert_int_equal(ftruncate(fileno(part), N + 1), 0);
    fclose(part);
    hub_use(&u, "T/R", NULL, PL_OK, NULL);
    hub_use_has(&u, f);
    end(&t, &u);
}

/* All bytes have arrived when the connection ends early. */
TEST(hub_a_file_that_is_whole_is_taken)
{
    struct hub_try_file *f;
    struct hub_try t;
    struct hub_use u;

    f = begin(&t, &u);
    u.o.n_try = 1;
    t.n_cut = 1;
    t.cut_at = 1000;
    hub_use(&u, "T/R", NULL, PL_IO, NULL);
    t.extra = 5;
    hub_use(&u, "T/R", NULL, PL_OK, NULL);
    hub_use_has(&u, f);
    end(&t, &u);
}

TEST(hub_a_wrong_length_is_told)
{
    struct hub_try_file *f;
    struct hub_try t;
    struct hub_use u;

    f = begin(&t, &u);
    f->listed = N + 1;
    hub_use(&u, "T/R", NULL, PL_BAD_FILE, "1048576 bytes, expected 1048577");
    f->listed = N - 1;
    hub_use(&u, "T/R", NULL, PL_BAD_FILE, "1048576 bytes, expected 1048575");
    t.no_length = true;
    hub_use(&u, "T/R", NULL, PL_BAD_FILE,
            "the server sends more than the 1048575");
    t.no_length = false;
    hub_use_fini(&u);
    hub_use_init(&u, &t);
    f->listed = N;
    t.extra = 5;
    hub_use(&u, "T/R", NULL, PL_BAD_FILE, "1048581 bytes, expected 1048576");
    t.extra = 0;
    t.n_cut = 1;
    t.cut_at = 1000;
    t.wrong_range = true;
    hub_use(&u, "T/R", NULL, PL_BAD_FILE, "sends those from 999");
    t.wrong_range = false;
    hub_use(&u, "T/R", NULL, PL_OK, NULL);
    hub_use_has(&u, f);
    end(&t, &u);
}

TEST(hub_the_token_goes_to_no_other_host)
{
    static const int statuses[] = {301, 302, 303, 307, 308};
    struct hub_try_file *f;
    struct hub_try t, elsewhere;
    struct hub_use u;

    hub_try_start(&t);
    hub_try_start(&elsewhere);
    (void)hub_try_add_random(&t, "m-Q4_K_M.gguf", N);
    f = hub_try_add_random(&elsewhere, "m-Q4_K_M.gguf", N);
    t.token = "hf_secret";
    t.redirect = elsewhere.origin;
    for (int i = 0; i < 5; i++) {
        hub_use_init(&u, &t);
        u.o.token = "hf_secret";
        t.redirect_status = statuses[i];
        hub_try_count(&t);
        hub_try_count(&elsewhere);
        elsewhere.n_cut = 1;
        elsewhere.cut_at = 1000;
        hub_use(&u, "T/R", NULL, PL_OK, NULL);
        hub_use_has(&u, f);
        /* two requests to the API and two for the file */
        assert_int_equal(t.n_token, 4);
        assert_int_equal(elsewhere.n_get, 2);
        assert_int_equal(elsewhere.n_part, 1);
        assert_int_equal(elsewhere.n_token, 0);
        assert_null(strstr(u.log, "hf_secret"));
        hub_use_fini(&u);
    }
    /* If a listing continues on another host, that host does not get the token
     * either. */
    hub_use_init(&u, &t);
    u.o.token = "hf_secret";
    hub_try_count(&elsewhere);
    t.next = elsewhere.origin;
    hub_use(&u, "T/R", NULL, PL_BAD_FILE, "which is another server");
    assert_int_equal(elsewhere.n_token, 0);
    u.o.token = "hf_se\r\ncret";
    hub_use(&u, "T/R", NULL, PL_BAD_ARGUMENT, "token has an invalid character");
    end(&t, &u);
    hub_try_stop(&elsewhere);
}

TEST(hub_refusals_say_what_to_do)
{
    struct hub_try t;
    struct hub_use u;

    hub_try_start(&t);
    (void)hub_try_add_random(&t, "m-Q8_0.gguf", 1000);
    hub_use_init(&u, &t);
    t.token = "hf_right";
    hub_use(&u, "T/R", NULL, PL_NOT_FOUND, "HF_TOKEN");
    hub_use(&u, "T/R", NULL, PL_NOT_FOUND, "accept its licence at http://");
    u.o.token = "hf_wrong";
    hub_use(&u, "T/R", NULL, PL_NOT_FOUND, "the token is invalid");
    assert_null(strstr(u.err.message, "hf_wrong"));
    u.o.token = NULL;
    t.token_of_files = true;
    hub_use(&u, "T/R", NULL, PL_NOT_FOUND,
            "m-Q8_0.gguf: the hub returned status 401");
    hub_use(&u, "T/R", NULL, PL_NOT_FOUND, "/T/R, and give a token");
    u.o.token = "hf_wrong";
    hub_use(&u, "T/R", NULL, PL_NOT_FOUND, "the token is invalid");
    u.o.token = "hf_right";
    t.token_of_files = false;
    hub_use(&u, "T/R", NULL, PL_OK, NULL);
    hub_use(&u, "T/S", NULL, PL_NOT_FOUND, "T/S: no such repository");
    hub_use(&u, "T/R:Q9_9", NULL, PL_NOT_FOUND, "no Q9_9; it has: Q8_0");
    hub_use(&u, "T/R", "o.gguf", PL_NOT_FOUND, "it has: m-Q8_0.gguf");
    hub_use(&u, "T", NULL, PL_BAD_ARGUMENT, "USER/REPO[:QUANT]");
    hub_use(&u, "T/R/S", NULL, PL_BAD_ARGUMENT, "USER/REPO[:QUANT]");
    hub_use(&u, "../R", NULL, PL_BAD_ARGUMENT, "USER/REPO[:QUANT]");
    hub_use(&u, "T/..", NULL, PL_BAD_ARGUMENT, "USER/REPO[:QUANT]");
    hub_use(&u, "T/R:", NULL, PL_BAD_ARGUMENT, "USER/REPO[:QUANT]");
    hub_use(&u, "T/R?a", NULL, PL_BAD_ARGUMENT, "USER/REPO[:QUANT]");
    hub_use(&u, "T/R", "../o.gguf", PL_BAD_ARGUMENT, "not a file path");
    u.o.endpoint = "ftp://a";
    hub_use(&u, "T/R", NULL, PL_BAD_ARGUMENT, "HF_ENDPOINT");
    end(&t, &u);
}

TEST(hub_a_server_in_trouble_is_asked_again)
{
    static const int statuses[] = {408, 429, 500, 502, 503, 504};
    struct hub_try_file *f;
    struct hub_try t;
    struct hub_use u;

    hub_try_start(&t);
    f = hub_try_add_random(&t, "m-Q4_K_M.gguf", N);
    for (int i = 0; i < 12; i++) {
        hub_use_init(&u, &t);
        t.status = statuses[i % 6];
        t.status_of_files = i >= 6;
        t.n_status = 2; /* two of the three tries get the status */
        hub_use(&u, "T/R", NULL, PL_OK, "trying again in 0.001 s");
        assert_non_null(strstr(u.log, "trying again in 0.002 s"));
        hub_use_has(&u, f);
        hub_use_fini(&u);
    }
    hub_use_init(&u, &t);
    t.status_of_files = true;
    t.n_status = 3;
    hub_use(&u, "T/R", NULL, PL_IO, "the server returned status 504");
    t.n_status = 1;
    t.status = 404;
    hub_use(&u, "T/R", NULL, PL_NOT_FOUND, "the server returned status 404");
    t.n_status = 1;
    t.status = 204; /* a success without a body is rejected, too */
    hub_use(&u, "T/R", NULL, PL_NOT_FOUND, "the server returned status 204");
    t.n_status = 1;
    t.status = 416;
    hub_use(&u, "T/R", NULL, PL_OK, NULL);
    hub_use_has(&u, f);
    end(&t, &u);
}

/* Where no server can be reached, only one more try is made, and the message
 * says what to do. */
TEST(hub_without_a_network_ends_soon)
{
    struct hub_try t;
    struct hub_use u;

    hub_try_start(&t);
    hub_use_init(&u, &t);
    u.o.endpoint = NULL;
    hub_try_stop(&t);
    u.o.endpoint = t.origin;
    u.o.n_try = 6;
    hub_use(&u, "T/R", NULL, PL_IO, "check the network and https_proxy");
    assert_non_null(strstr(u.log, "trying again in 0.001 s"));
    assert_null(strstr(u.log, "trying again in 0.002 s"));
    hub_use_fini(&u);
}

/* A server that sends nothing any more is given up. */
TEST(hub_silence_ends)
{
    struct hub_try_file *f;
    struct hub_try t;
    struct hub_use u;

    f = begin(&t, &u);
    u.o.timeout_s = 1;
    u.o.n_try = 1;
    t.silent_at = 100000;
    /* on a slow machine the client may have received nothing yet, and then the
     * message is another */
    do
        hub_use(&u, "T/R", NULL, PL_IO, "no data for 1 s");
    while (!strstr(u.err.message, "1 s; run the command again"));
    u.o.timeout_s = 1 << 20;
    t.silent_at = 0;
    hub_use(&u, "T/R", NULL, PL_OK, NULL);
    hub_use_has(&u, f);
    end(&t, &u);
}

TEST(hub_a_download_can_be_stopped)
{
    struct hub_try_file *f;
    struct hub_try t;
    struct hub_use u;

    f = begin(&t, &u);
    t.silent_at = 300000;
    u.stop_at = 200000;
    hub_use(&u, "T/R", NULL, PL_CANCELLED, "cancelled");
    assert_true(size_of(hub_use_place(&u, &t, t.revision,
                                      "m-Q4_K_M.gguf.part")) >= 200000);
    /* In a pause between two tries, too. */
    t.n_status = 3;
    t.status = 503;
    u.o.pause_ms = 60000;
    hub_use(&u, "T/R", NULL, PL_CANCELLED, "cancelled");
    u.stop = 0;
    u.stop_at = 0;
    u.o.pause_ms = 1;
    t.n_status = 0;
    t.silent_at = 0;
    hub_use(&u, "T/R", NULL, PL_OK, "already there");
    hub_use_has(&u, f);
    end(&t, &u);
}

TEST(hub_what_does_not_fit_is_not_begun)
{
    struct hub_try_file *f;
    struct hub_try t;
    struct hub_use u;

    f = begin(&t, &u);
    f->listed = (uint64_t)1 << 60;
    hub_use(&u, "T/R", NULL, PL_FULL, "does not fit into");
    assert_int_equal(t.n_get, 0);
    end(&t, &u);
}

static bool take_head(void *user, const struct hub_head *h)
{
    (void)user;
    return h->status == 200;
}

static bool take_data(void *user, const void *data, size_t n)
{
    (void)user;
    (void)data;
    return n > 0;
}

/* A server with a self-signed certificate. */
TEST(hub_trusts_the_certificates_of_a_named_file)
{
    const char *cert = test_temp("hub-cert.pem"), *key = test_temp("hub-key");
    char line[1024], url[64], why[HUB_WHY];
    struct http_options o = {.cert_file = cert, .cert_key_file = key};
    struct hub_transfer get = {
        .url = url, .timeout_s = 60, .begin = take_head, .data = take_data};
    struct hub_head head;
    struct http_try t;

    if (system("command -v openssl >/dev/null 2>&1") != 0)
        TEST_SKIP("no openssl command to make a certificate with");
    snprintf(line, sizeof line,
             "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=a "
             "-addext subjectAltName=IP:127.0.0.1 "
             "-keyout '%s' -out '%s' >/dev/null 2>&1",
             key, cert);
    assert_int_equal(system(line), 0);
    try_start(&t, &o);
    snprintf(url, sizeof url, "https://127.0.0.1:%d/hello", t.port);
    unsetenv("SSL_CERT_FILE");
    assert_int_equal(hub_get(&get, &head, why), HUB_FAILED);
    assert_non_null(strstr(why, "certificate"));
    setenv("SSL_CERT_FILE", cert, 1);
    assert_int_equal(hub_get(&get, &head, why), HUB_WHOLE);
    assert_int_equal(head.status, 200);
    setenv("SSL_CERT_FILE", key, 1);
    assert_int_equal(hub_get(&get, &head, why), HUB_FAILED);
    unsetenv("SSL_CERT_FILE");
    try_stop(&t);
}
