/* JSON of which a part is missing after a failed allocation is not returned. */
#include "base/whole_json.h"
#include "lib/alloc_fail.h"
#include "lib/support.h"
#include "server/json_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_MEMBER = 20 };

static json_t *made(void)
{
    json_t *all = json_object();

    for (int i = 0; i < N_MEMBER; i++) {
        char key[20];

        snprintf(key, sizeof key, "key%d\n", i);
        json_object_set_new(
            all, key,
            json_pack("[i, f, s, {s:[n]}]", i, 1.5, "t\xc3\xa4\"xt", "a"));
    }
    return all;
}

static void copied(json_t *(*copy)(json_t *), json_t *of)
{
    for (int64_t n = 0; alloc_each(&n);) {
        json_t *got = copy(of);

        alloc_ran(got ? PL_OK : PL_NO_MEMORY);
        if (got)
            assert_true(json_equal(got, of));
        json_decref(got);
    }
}

static void dumped(char *(*dump)(const json_t *, size_t), const json_t *of,
                   size_t flags)
{
    char *want = json_dumps(of, flags);

    for (int64_t n = 0; alloc_each(&n);) {
        char *got = dump(of, flags);

        alloc_ran(got ? PL_OK : PL_NO_MEMORY);
        if (got)
            assert_string_equal(got, want);
        free(got);
    }
    free(want);
}

TEST(whole_json_has_everything_or_is_null)
{
    static const size_t flags[] = {JSON_COMPACT, JSON_INDENT(2),
                                   JSON_ENSURE_ASCII, JSON_SORT_KEYS};
    json_malloc_t before_malloc;
    json_free_t before_free;
    json_t *all = made(), *list = json_array();

    for (int i = 0; i < N_MEMBER; i++)
        json_array_append_new(list, json_integer(i));
    assert_null(whole_json_copy(NULL));
    assert_null(whole_json_dumps(NULL, 0));
    assert_null(json_text_copy(NULL));
    assert_null(json_text_plain(NULL, 0));
    json_get_alloc_funcs(&before_malloc, &before_free);
    json_set_alloc_funcs(malloc, free); /* the wrapped ones, which fail on
                                           request */
    for (int server = 0; server < 2; server++) {
        copied(server ? json_text_copy : whole_json_copy, all);
        copied(server ? json_text_copy : whole_json_copy, list);
        for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++)
            dumped(server ? json_text_plain : whole_json_dumps, all, flags[i]);
    }
    json_set_alloc_funcs(before_malloc, before_free);
    json_decref(all);
    json_decref(list);
}
