/* Listings are read or rejected, and a name selects the right file. */
#include "hub/hub.h"
#include "hub/hub_listing.h"
#include "lib/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char page[] =
    "[{\"type\":\"directory\",\"path\":\"BF16\",\"size\":0,\"oid\":\"1\"},"
    "{\"type\":\"file\",\"path\":\"README.md\",\"size\":5,\"oid\":\"2\"},"
    "{\"type\":\"file\",\"path\":\"m.gguf\",\"size\":135,\"oid\":\"2\","
    "\"lfs\":{\"oid\":\"sha256:"
    "ABCDEF0123456789abcdef0123456789abcdef0123456789abcdef0123456789\","
    "\"size\":5000000000,\"pointerSize\":135}}]";

TEST(hub_addresses_are_shown_without_secrets)
{
    static const char *const rows[][2] = {
        {"https://a.b/c/d.gguf", "https://a.b/c/d.gguf"},
        {"https://me:pw@a.b:5/c@v1/d.gguf", "https://...@a.b:5/c@v1/d.gguf"},
        {"http://me@pw@a.b/d.gguf?sig=pw", "http://...@a.b/d.gguf?..."},
        {"https://pw@a.b", "https://...@a.b"},
        {"https://a.b?pw", "https://a.b?..."},
        {"https://a.b/c#pw", "https://a.b/c?..."},
        {"me:pw@a.b/x?u=http://y", "...@a.b/x?..."},
        /* without a scheme this is a path and not an address */
        {"//me:pw@a.b", "//me:pw@a.b"},
        {"", ""},
    };
    char buf[HUB_SHOWN], url[9000];

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_string_equal(hub_shown(buf, rows[i][0]), rows[i][1]);
    memset(url, 'a', sizeof url - 1);
    url[sizeof url - 1] = '\0';
    assert_true(strlen(hub_shown(buf, url)) < HUB_SHOWN);
    memcpy(url, "https://", 8);
    url[8000] = '@';
    assert_int_equal(strncmp(hub_shown(buf, url), "https://...@aaa", 15), 0);
}

TEST(hub_listing_keeps_gguf_files)
{
    struct hub_listing l = {0}, again = {0};
    pl_err err;
    char *text;

    TEST_OK(hub_listing_read(&l, page, strlen(page), &err), err);
    assert_int_equal(l.n, 1);
    assert_string_equal(l.file[0].path, "m.gguf");
    assert_int_equal(l.file[0].size, 5000000000);
    assert_string_equal(
        l.file[0].sha256,
        "abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789");
    text = hub_listing_write(&l);
    TEST_OK(hub_listing_read(&again, text, strlen(text), &err), err);
    assert_int_equal(again.n, 1);
    assert_int_equal(again.file[0].size, 5000000000);
    assert_string_equal(again.file[0].sha256, l.file[0].sha256);
    /* Reading the same page again is an error, because it repeats a file. */
    assert_int_equal(hub_listing_read(&l, text, strlen(text), &err),
                     PL_BAD_FILE);
    free(text);
    hub_listing_fini(&l);
    hub_listing_fini(&again);
}

TEST(hub_listing_that_is_none_is_refused)
{
    static const char *const wrong[] = {
        "",
        "{}",
        "[",
        "[1]",
        "[{\"type\":\"file\"}]",
        "[{\"path\":\"a.gguf\",\"size\":1}]",
        "[{\"type\":\"file\",\"path\":\"a.gguf\"}]",
        "[{\"type\":\"file\",\"path\":\"a.gguf\",\"size\":-1}]",
        "[{\"type\":\"file\",\"path\":\"a.gguf\",\"size\":1.5}]",
        "[{\"type\":\"file\",\"path\":\"a.gguf\",\"size\":1,\"lfs\":{\"oid\":"
        "\"12\"}}]",
        "[{\"type\":\"file\",\"path\":\"a.gguf\",\"size\":99999999999999999999}"
        "]",
    };

    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct hub_listing l = {0};
        pl_err err = {0};

        if (hub_listing_read(&l, wrong[i], strlen(wrong[i]), &err) !=
            PL_BAD_FILE)
            fail_msg("%s is taken", wrong[i]);
        assert_non_null(strstr(err.message, "the hub's listing"));
        hub_listing_fini(&l);
    }
}

TEST(hub_path_that_is_safe_stays_below)
{
    static const char *const safe[] = {"a.gguf", "a/b.gguf", "..a/b..gguf",
                                       "\xc3\xa9.gguf", "a b.gguf"};
    static const char *const not_safe[] = {
        "",     "/",     "/a",   "a/",   "a//b",  ".",   "..",    "a/..",
        "../a", "a/./b", "a\nb", "a\\b", "a\x7f", "./a", "a/../b"};
    char name[300];

    for (size_t i = 0; i < sizeof safe / sizeof safe[0]; i++)
        if (!hub_path_is_safe(safe[i]))
            fail_msg("%s is refused", safe[i]);
    for (size_t i = 0; i < sizeof not_safe / sizeof not_safe[0]; i++)
        if (hub_path_is_safe(not_safe[i]))
            fail_msg("%s is taken", not_safe[i]);
    memset(name, 'a', sizeof name);
    name[240] = '\0';
    assert_true(hub_path_is_safe(name));
    name[240] = 'a';
    name[241] = '\0';
    assert_false(hub_path_is_safe(name));
}

/* ---- the file that is selected ------------------------------------------- */

static void make(struct hub_listing *l, const char *paths)
{
    char text[2048] = "[";
    size_t n = 1;
    pl_err err;

    while (*paths != '\0') {
        size_t len = strcspn(paths, " ");

        n += (size_t)snprintf(text + n, sizeof text - n,
                              "%s{\"type\":\"file\",\"path\":\"%.*s\",\"size\":"
                              "1}",
                              n > 1 ? "," : "", (int)len, paths);
        paths += len + (paths[len] == ' ');
    }
    snprintf(text + n, sizeof text - n, "]");
    *l = (struct hub_listing){0};
    TEST_OK(hub_listing_read(l, text, strlen(text), &err), err);
}

TEST(hub_quant_names_a_file)
{
    static const struct {
        /* names in the listing, requested quantization or path, and the file
         * that is chosen; NULL if none */
        const char *files, *quant, *path, *want;
    } list[] = {
        {"m-Q8_0.gguf m-Q4_K_M.gguf", NULL, NULL, "m-Q4_K_M.gguf"},
        {"m-Q8_0.gguf m-Q4_0.gguf m-BF16.gguf", NULL, NULL, "m-Q4_0.gguf"},
        {"m-BF16.gguf m-Q8_0.gguf", NULL, NULL, "m-Q8_0.gguf"},
        {"m-BF16.gguf m-F16.gguf", NULL, NULL, "m-BF16.gguf"},
        {"m-BF16.gguf m-F16.gguf", "F16", NULL, "m-F16.gguf"},
        {"m.q4_k_m.gguf m.q5_k_m.gguf", "Q5_K_M", NULL, "m.q5_k_m.gguf"},
        {"m-q8_0.gguf", "q8_0", NULL, "m-q8_0.gguf"},
        {"m-IQ4_XS.gguf m-Q4_XS.gguf", "Q4_XS", NULL, "m-Q4_XS.gguf"},
        {"m-UD-Q4_K_XL.gguf m-Q4_K_S.gguf", "UD-Q4_K_XL", NULL,
         "m-UD-Q4_K_XL.gguf"},
        {"m-Q4_K_M.gguf", "Q4_K", NULL, NULL},
        {"m-Q8_0.gguf", "Q4_K_M", NULL, NULL},
        {"mmproj-m-Q8_0.gguf m-Q8_0.gguf", NULL, NULL, "m-Q8_0.gguf"},
        {"mmproj-Q4_K_M.gguf m-F16.gguf", NULL, NULL, "m-F16.gguf"},
        {"mmproj-F16.gguf m-imatrix.gguf", NULL, NULL, NULL},
        {"mmproj-F16.gguf m.gguf", NULL, "mmproj-F16.gguf", "mmproj-F16.gguf"},
        {"a/m-Q4_K_M.gguf b/m-Q8_0.gguf", "Q8_0", NULL, "b/m-Q8_0.gguf"},
        {"m-Q4_K_M-00002-of-00002.gguf m-Q4_K_M-00001-of-00002.gguf", NULL,
         NULL, "m-Q4_K_M-00001-of-00002.gguf"},
        {"m-Q4_K_M-00001-of-00003.gguf m-Q4_K_M-00002-of-00003.gguf x.gguf",
         NULL, NULL, NULL},
        {"m-Q4_K_M-00001-of-99999.gguf", NULL, NULL, NULL},
        {"m-Q4_K_M-00000-of-00002.gguf", NULL, NULL,
         "m-Q4_K_M-00000-of-00002.gguf"},
    };

    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        struct hub_listing l;
        struct hub_pick p;
        pl_err err;
        pl_status s;

        make(&l, list[i].files);
        s = hub_pick(&p, &l, "T/R", list[i].quant, list[i].path, &err);
        if ((s == PL_OK) != (list[i].want != NULL))
            fail_msg("%s: %s", list[i].files,
                     s == PL_OK ? p.file[0]->path : err.message);
        if (s == PL_OK && strcmp(p.file[0]->path, list[i].want) != 0)
            fail_msg("%s: %s", list[i].files, p.file[0]->path);
        hub_pick_fini(&p);
        hub_listing_fini(&l);
    }
}

TEST(hub_what_there_is_is_listed)
{
    struct hub_listing l;
    struct hub_pick p;
    pl_err err;

    make(&l, "mmproj-F32.gguf m-Q8_0.gguf m-Q6_K-00001-of-00002.gguf "
             "m-Q6_K-00002-of-00002.gguf x/m.q8_0.gguf");
    assert_int_equal(hub_pick(&p, &l, "T/R", "Q4_0", NULL, &err), PL_NOT_FOUND);
    assert_string_equal(err.message, "T/R has no Q4_0; it has: Q8_0, Q6_K");
    hub_pick_fini(&p);
    hub_listing_fini(&l);
    /* The message lists as many names as fit. */
    for (int i = 0; i < 200; i++) {
        char text[128];

        snprintf(text, sizeof text,
                 "[{\"type\":\"file\",\"path\":\"m-A%04d.gguf\",\"size\":1}]",
                 i);
        TEST_OK(hub_listing_read(&l, text, strlen(text), &err), err);
    }
    assert_int_equal(hub_pick(&p, &l, "T/R", "Q4_0", NULL, &err), PL_NOT_FOUND);
    assert_non_null(strstr(err.message, "A0000, A0001, "));
    assert_string_equal(err.message + strlen(err.message) - 5, ", ...");
    hub_pick_fini(&p);
    hub_listing_fini(&l);
}
