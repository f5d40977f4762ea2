/* The cache folder: revisions, split models, models found without the hub, and
 * files of any address. */
#include "lib/alloc_fail.h"
#include "lib/hub_try.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { N = 1 << 18 };

TEST(hub_split_models_come_whole)
{
    struct hub_try_file *f[3];
    char path[64];
    struct hub_try t;
    struct hub_use u;

    hub_try_start(&t);
    (void)hub_try_add_random(&t, "m-Q8_0-00001-of-00001.gguf", 100);
    /* adds the parts in reverse, because a hub may list them in any order */
    for (int i = 2; i >= 0; i--) {
        snprintf(path, sizeof path, "d/m-Q4_K_M-%05d-of-00003.gguf", i + 1);
        f[i] = hub_try_add_random(&t, path, N + (size_t)i);
    }
    t.page = 1; /* each page of the listing has one file */
    hub_use_init(&u, &t);
    hub_use(&u, "T/R", NULL, PL_OK, NULL);
    assert_int_equal(t.n_api, 1 + 4);
    assert_int_equal(t.n_get, 3);
    hub_use_has(&u, f[0]);
    for (int i = 1; i < 3; i++) {
        char *digit = strstr(u.path, "-of-") - 1;

        *digit = (char)('1' + i);
        hub_use_has(&u, f[i]);
        *digit = '1';
    }
    hub_use_fini(&u);
    hub_try_stop(&t);
}

/* A change of a README makes a new revision. */
TEST(hub_a_new_revision_of_the_same_file_is_no_download)
{
    struct hub_try_file *f, *g;
    struct hub_try t;
    struct hub_use u;

    hub_try_start(&t);
    f = hub_try_add_random(&t, "m-Q4_K_M.gguf", N);
    g = hub_try_add_random(&t, "m-Q8_0.gguf", N);
    hub_use_init(&u, &t);
    hub_use(&u, "T/R", NULL, PL_OK, NULL);
    u.o.n_try = 1;
    t.n_cut = 1;
    t.cut_at = 1000;
    hub_use(&u, "T/R:Q8_0", NULL, PL_IO, NULL);
    u.o.n_try = 3;
    t.revision = "fedc0000fedc0000";
    snprintf(f->path, sizeof f->path, "moved/m-Q4_K_M.gguf");
    hub_try_count(&t);
    hub_use(&u, "T/R", NULL, PL_OK, NULL);
    assert_string_equal(
        u.path, hub_use_place(&u, &t, t.revision, "moved/m-Q4_K_M.gguf"));
    hub_use_has(&u, f);
    assert_int_equal(t.n_get, 0);
    hub_use(&u, "T/R:Q8_0", NULL, PL_OK, "already there");
    hub_use_has(&u, g);
    assert_int_equal(t.n_sent, N - 1000);
    /* Another file of the same name counts as another, and both stay. */
    t.revision = "77770000";
    f->data[5] ^= 1;
    f->sum[0] = '\0';
    hub_use(&u, "T/R", NULL, PL_OK, NULL);
    hub_use_has(&u, f);
    assert_int_equal(
        access(hub_use_place(&u, &t, "fedc0000fedc0000", "moved/m-Q4_K_M.gguf"),
               F_OK),
        0);
    hub_use_fini(&u);
    hub_try_stop(&t);
}

TEST(hub_the_cache_serves_without_the_hub)
{
    struct hub_try_file *f;
    struct hub_try t;
    struct hub_use u;

    hub_try_start(&t);
    f = hub_try_add_random(&t, "m-Q4_K_M.gguf", N);
    (void)hub_try_add_random(&t, "m-Q8_0.gguf", N);
    hub_use_init(&u, &t);
    u.o.offline = true;
    hub_use(&u, "T/R", NULL, PL_NOT_FOUND, "--offline");
    u.o.offline = false;
    hub_use(&u, "T/R", NULL, PL_OK, NULL);
    /* A newer revision without downloaded files does not hide the older one. */
    t.revision = "fedc0000fedc0000";
    f->data[0] ^= 1;
    f->sum[0] = '\0';
    t.status = 404;
    t.status_of_files = true;
    t.n_status = 1;
    hub_use(&u, "T/R", NULL, PL_NOT_FOUND, NULL);
    f->data[0] ^= 1;
    hub_try_count(&t);
    u.o.offline = true;
    hub_use(&u, "T/R", NULL, PL_OK, NULL);
    hub_use_has(&u, f);
    hub_use(&u, "T/R", "m-Q4_K_M.gguf", PL_OK, NULL);
    hub_use(&u, "T/R:Q8_0", NULL, PL_NOT_FOUND, "T/R: Q8_0 is not in");
    assert_int_equal(t.n_api + t.n_get, 0);
    /* The hub has errors, then is gone. */
    u.o.offline = false;
    t.status = 500;
    t.status_of_files = false;
    t.n_status = 1;
    hub_use(&u, "T/R", NULL, PL_OK, "using the cached file");
    assert_int_equal(t.n_api, 1);
    hub_use_has(&u, f);
    u.o.endpoint = NULL;
    hub_try_stop(&t);
    u.o.endpoint = t.origin;
    hub_use(&u, "T/R", NULL, PL_OK, "using the cached file");
    hub_use(&u, "T/R:Q8_0", NULL, PL_IO, "T/R: ");
    hub_use_fini(&u);
}

/* Another program's cache with all files suffices. */
TEST(hub_a_cache_that_has_it_is_not_written_to)
{
    struct hub_try_file *f;
    struct hub_try t;
    struct hub_use u;
    char lock[2048];

    hub_try_start(&t);
    f = hub_try_add_random(&t, "m-Q4_K_M.gguf", N);
    hub_use_init(&u, &t);
    hub_use(&u, "T/R", NULL, PL_OK, NULL);
    snprintf(lock, sizeof lock, "%s", hub_use_place(&u, &t, "lock", ""));
    lock[strlen(lock) - 1] = '\0';
    assert_int_equal(unlink(lock), 0);
    hub_use(&u, "T/R", NULL, PL_OK, NULL);
    hub_use_has(&u, f);
    assert_int_not_equal(access(lock, F_OK), 0);
    hub_use_fini(&u);
    hub_try_stop(&t);
}

TEST(hub_out_of_memory_gives_a_status)
{
    struct hub_try t;
    struct hub_use u;
    char *path;

    hub_try_start(&t);
    (void)hub_try_add_random(&t, "m-Q4_K_M-00001-of-00002.gguf", N);
    (void)hub_try_add_random(&t, "m-Q4_K_M-00002-of-00002.gguf", N);
    hub_use_init(&u, &t);
    hub_use(&u, "T/R", NULL, PL_OK, NULL);
    u.o.offline = true;
    for (int64_t n = 0; alloc_each(&n);) {
        alloc_ran(hub_fetch(&path, &u.o, "T/R", NULL, &u.err));
        free(path);
    }
    hub_use_fini(&u);
    hub_try_stop(&t);
}

/* Appends a name to a text of 256 bytes, unless that begins with "full". */
static bool add_name(void *text, const char *name, const char *path)
{
    const size_t n = strlen(text);

    assert_int_equal(access(path, R_OK), 0);
    snprintf((char *)text + n, 256 - n, "%s ", name);
    return strncmp(text, "full", 4) != 0;
}

/* Lists the models of the cache; their names must be these. */
static void must_list(struct hub_use *u, const char *names)
{
    char text[256] = "";

    TEST_OK(hub_cached(&u->o, add_name, text, &u->err), u->err);
    assert_string_equal(text, names);
}

/* Adds a revision whose listing is a FIFO beside the revision of a cached
 * file. */
static void add_fifo(const char *file)
{
    char repo[1024], path[1100];

    snprintf(repo, sizeof repo, "%s", file);
    *strrchr(repo, '/') = '\0';
    *strrchr(repo, '/') = '\0';
    snprintf(path, sizeof path, "%s/abcd", repo);
    assert_int_equal(mkdir(path, 0755), 0);
    snprintf(path, sizeof path, "%s/abcd.json", repo);
    assert_int_equal(mkfifo(path, 0644), 0);
}

TEST(hub_cached_models_are_found_by_their_names)
{
    char full[256] = "full ";
    struct hub_try_file *f;
    struct hub_try t;
    struct hub_use u;

    hub_try_start(&t);
    (void)hub_try_add_random(&t, "m-Q4_K_M.gguf", N);
    f = hub_try_add_random(&t, "m-Q8_0.gguf", N);
    (void)hub_try_add_random(&t, "mmproj-F16.gguf", N);
    (void)hub_try_add_random(&t, "s-BF16-00001-of-00002.gguf", N);
    (void)hub_try_add_random(&t, "s-BF16-00002-of-00002.gguf", N);
    hub_use_init(&u, &t);
    must_list(&u, "");
    hub_use(&u, "T/R:Q8_0", NULL, PL_OK, NULL);
    hub_use(&u, "T/R", "mmproj-F16.gguf", PL_OK, NULL);
    hub_use(&u, "T/R:BF16", NULL, PL_OK, NULL);
    must_list(&u, "T/R:Q8_0 T/R:BF16 ");
    add_fifo(u.path); /* nobody writes to it, and nobody may wait for that */
    must_list(&u, "T/R:Q8_0 T/R:BF16 ");
    assert_int_equal(hub_cached(&u.o, add_name, full, &u.err), PL_NO_MEMORY);
    for (int64_t n = 0; alloc_each(&n);) {
        char text[256] = "";

        alloc_ran(hub_cached(&u.o, add_name, text, &u.err));
    }
    /* A model with a part that is missing or has another size is not listed. */
    assert_int_equal(truncate(u.path, N - 1), 0);
    must_list(&u, "T/R:Q8_0 ");
    /* An older revision's file comes after that of the newest. */
    t.revision = "fedc0000fedc0000";
    f->data[0] ^= 1;
    f->sum[0] = '\0';
    hub_use(&u, "T/R:Q8_0", NULL, PL_OK, NULL);
    hub_use_has(&u, f);
    must_list(&u, "T/R:Q8_0 T/R:Q8_0 ");
    u.o.endpoint = "http://other";
    must_list(&u, "");
    u.o.endpoint = t.origin;
    hub_use_fini(&u);
    hub_try_stop(&t);
}

/* Appends the name to the names in u->log. Fails the case unless hub_fetch
 * returns the listed path for a name without a folder. */
static bool take_by_name(void *use, const char *name, const char *path)
{
    struct hub_use *u = use;
    char before[sizeof u->log];

    memcpy(before, u->log, sizeof before);
    if (!strchr(strchr(name, '/') + 1, '/')) {
        hub_use(u, name, NULL, PL_OK, NULL);
        assert_string_equal(u->path, path);
    }
    snprintf(u->log, sizeof u->log, "%.1000s%s ", before, name);
    return true;
}

/* Each cached file has a name of its own, by which hub_fetch takes it. */
TEST(hub_cached_models_have_the_names_that_choose_them)
{
    static const char *const file[] = {"a-q8_0.gguf",   "b-Q8_0.gguf",
                                       "x/c-Q4_0.gguf", "y/c-Q4_0.gguf",
                                       "plain.gguf",    "end-.gguf"};
    struct hub_try t;
    struct hub_use u;

    hub_try_start(&t);
    for (int i = 0; i < 6; i++)
        (void)hub_try_add_random(&t, file[i], N);
    hub_use_init(&u, &t);
    /* alone, too, the second file is not the one that Q8_0 chooses */
    for (int i = 1; i < 7; i++) {
        hub_use(&u, "T/R", file[i % 6], PL_OK, NULL);
        if (i == 1)
            must_list(&u, "T/R:b-Q8_0 ");
    }
    u.o.offline = true;
    u.log[0] = '\0';
    TEST_OK(hub_cached(&u.o, take_by_name, &u, &u.err), u.err);
    assert_string_equal(u.log, "T/R:Q8_0 T/R:b-Q8_0 T/R:Q4_0 T/R:y/c-Q4_0 "
                               "T/R:PLAIN T/R:end- ");
    hub_use_fini(&u);
    hub_try_stop(&t);
}

/* A damaged listing is ignored. */
TEST(hub_a_damaged_listing_is_made_anew)
{
    struct hub_try_file *f;
    struct hub_try t;
    struct hub_use u;
    char path[2048];

    hub_try_start(&t);
    f = hub_try_add_random(&t, "m-Q4_K_M.gguf", N);
    hub_use_init(&u, &t);
    hub_use(&u, "T/R", NULL, PL_OK, NULL);
    snprintf(path, sizeof path, "%s", hub_use_place(&u, &t, t.revision, ""));
    snprintf(path + strlen(path) - 1, 8, ".json");
    assert_int_equal(truncate(path, 10), 0);
    u.o.offline = true;
    hub_use(&u, "T/R", NULL, PL_NOT_FOUND, NULL);
    u.o.offline = false;
    hub_use(&u, "T/R", NULL, PL_OK, NULL);
    assert_int_equal(t.n_get, 1);
    u.o.offline = true;
    hub_use(&u, "T/R", NULL, PL_OK, NULL);
    hub_use_has(&u, f);
    hub_use_fini(&u);
    hub_try_stop(&t);
}

TEST(hub_names_never_lead_out_of_the_cache)
{
    static const char *const names[] = {
        "../../../../../x.gguf",
        "/x.gguf",
        "a/../x.gguf",
        "a//x.gguf",
        "./x.gguf",
        "a/./x.gguf",
        "../x.gguf",
        "a\\\\x.gguf",
        "a\\u0000/x.gguf",
        "\\u001b.gguf",
        "x\\n.gguf",
        "\\u007f.gguf",
    };
    char listing[512];
    struct hub_try t;
    struct hub_use u;

    hub_try_start(&t);
    (void)hub_try_add_random(&t, "m.gguf", 10);
    t.listing = listing;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        hub_use_init(&u, &t);
        snprintf(listing, sizeof listing,
                 "[{\"type\":\"file\",\"path\":\"m.gguf\",\"size\":10},"
                 "{\"type\":\"file\",\"path\":\"%s\",\"size\":10}]",
                 names[i]);
        hub_use(&u, "T/R", NULL, PL_BAD_FILE, "the hub's listing");
        assert_int_equal(t.n_get, 0);
        /* the cache folder was not created */
        assert_int_not_equal(access(u.o.cache, F_OK), 0);
        hub_use_fini(&u);
    }
    t.listing = NULL;
    t.revision = "../../../x";
    hub_use_init(&u, &t);
    hub_use(&u, "T/R", NULL, PL_BAD_FILE, "has no revision");
    hub_use_fini(&u);
    hub_try_stop(&t);
}

TEST(hub_folder_follows_the_environment)
{
    char *folder;
    pl_err err;

    setenv("HOME", "/h", 1);
    setenv("XDG_CACHE_HOME", "/x", 1);
    setenv("PLAIT_CACHE", "/p", 1);
    TEST_OK(hub_cache_folder(&folder, &err), err);
    assert_string_equal(folder, "/p");
    free(folder);
    unsetenv("PLAIT_CACHE");
    TEST_OK(hub_cache_folder(&folder, &err), err);
    assert_string_equal(folder, "/x/plait");
    free(folder);
    setenv("XDG_CACHE_HOME", "relative", 1);
    TEST_OK(hub_cache_folder(&folder, &err), err);
    assert_string_equal(folder, "/h/.cache/plait");
    free(folder);
    unsetenv("HOME");
    assert_int_equal(hub_cache_folder(&folder, &err), PL_NOT_FOUND);
    unsetenv("XDG_CACHE_HOME");
    assert_int_equal(hub_cache_folder(&folder, &err), PL_NOT_FOUND);
    assert_non_null(strstr(err.message, "PLAIT_CACHE"));
}

/* ---- files of any address ------------------------------------------------ */

TEST(hub_files_of_addresses_are_asked_for_by_their_tag)
{
    struct hub_try_file *f;
    struct hub_try t;
    struct hub_use u;
    char url[128];

    hub_try_start(&t);
    t.repo = NULL;
    f = hub_try_add_random(&t, "d/m.gguf", N);
    snprintf(url, sizeof url, "%s/d/m.gguf", t.origin);
    hub_use_init(&u, &t);
    u.o.token = "hf_secret";
    t.n_cut = 2;
    t.cut_at = 1000;
    hub_use_url(&u, url, PL_OK, "trying again");
    hub_use_has(&u, f);
    assert_int_equal(t.n_sent, N);
    assert_int_equal(t.n_token, 0);
    hub_use_url(&u, url, PL_OK, NULL);
    assert_int_equal(t.n_same, 1);
    hub_use_has(&u, f);
    /* The server now has another version of the file. */
    snprintf(f->etag, sizeof f->etag, "\"another\"");
    f->data[7] ^= 1;
    hub_use_url(&u, url, PL_OK, NULL);
    hub_use_has(&u, f);
    hub_use_url(&u, url, PL_OK, NULL);
    assert_int_equal(t.n_same, 2);
    /* A part of an old version of another size. */
    snprintf(f->etag, sizeof f->etag, "\"third\"");
    u.o.n_try = 1;
    t.n_cut = 1;
    hub_use_url(&u, url, PL_OK, "using the cached file");
    snprintf(f->etag, sizeof f->etag, "\"fourth\"");
    f->n -= 100;
    hub_use_url(&u, url, PL_OK, NULL);
    hub_use_has(&u, f);
    u.o.offline = true;
    hub_use_url(&u, url, PL_OK, NULL);
    hub_use_has(&u, f);
    url[strlen(url) - 6] = 'n';
    hub_use_url(&u, url, PL_NOT_FOUND, "--offline");
    u.o.offline = false;
    hub_use_url(&u, url, PL_NOT_FOUND, "returned status 404");
    hub_use_fini(&u);
    hub_try_stop(&t);
}

TEST(hub_addresses_of_split_models_name_the_first)
{
    struct hub_try_file *f[2];
    struct hub_try t;
    struct hub_use u;
    char url[128];

    hub_try_start(&t);
    t.repo = NULL;
    f[0] = hub_try_add_random(&t, "m-00001-of-00002.gguf", N);
    f[1] = hub_try_add_random(&t, "m-00002-of-00002.gguf", N);
    hub_use_init(&u, &t);
    snprintf(url, sizeof url, "%s/m-00002-of-00002.gguf", t.origin);
    hub_use_url(&u, url, PL_BAD_ARGUMENT, "the address of the first");
    snprintf(url, sizeof url, "%s/m-00001-of-00002.gguf", t.origin);
    hub_use_url(&u, url, PL_OK, NULL);
    hub_use_has(&u, f[0]);
    *(strstr(u.path, "-of-") - 1) = '2';
    hub_use_has(&u, f[1]);
    hub_use_url(&u, "m.gguf", PL_BAD_ARGUMENT,
                "not the address of a GGUF file");
    hub_use_url(&u, "file:///m.gguf", PL_BAD_ARGUMENT, "not the address");
    hub_use_url(&u, "http://a/b/m.bin", PL_BAD_ARGUMENT, "not the address");
    hub_use_url(&u, "http://m.gguf", PL_BAD_ARGUMENT, "not the address");
    hub_use_fini(&u);
    hub_try_stop(&t);
}
