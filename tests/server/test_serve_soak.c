/* A server takes no more memory, files and threads after many requests than
 * after some. */
#include "lib/command.h"
#include "lib/serve_try.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Sends n requests, 16 at once: some alike, some streamed to their end, of
 * words that are drawn anew for each `seed`. All must succeed. */
static void ask_many(struct serve_try *s, int n, int seed)
{
    char line[512];
    json_t *rows, *row;
    struct ran r;

    snprintf(line, sizeof line,
             "plait bench --serve http://127.0.0.1:%d --requests %d "
             "--concurrency 16 -p 4,12,40 -n 1,2,6 --prefix 0.5 --prefixes 64 "
             "-s %d -o json",
             s->t.port, n, seed);
    r = sh(0, line);
    rows = serve_try_json(r.out);
    row = json_array_get(rows, 0);
    assert_int_equal(json_integer_value(json_object_get(row, "n_done")), n);
    json_decref(rows);
}

/* Sends rejected requests, and disconnects clients. */
static void bother(struct serve_try *s, int n)
{
    for (int i = 0; i < n; i++) {
        struct try_client c;

        free(serve_try_post(s, "/v1/completions", "{\"prompt\":5.5}", 400));
        try_connect(&s->t, &c);
        serve_try_send(&c, "/v1/completions",
                       "{\"prompt\":\" a b c d\",\"max_tokens\":200,"
                       "\"stream\":true,\"ignore_eos\":true}");
        if (i % 2)
            try_fill(&c, 100);
        try_close(&c);
    }
}

TEST(serve_holds_no_more_after_many_requests_than_after_some)
{
    const int some = test_long() ? 10000 : 400;
    const int parts = test_long() ? 9 : 3;
    struct serve_use before, after;
    struct serve_try s;
    char more[512];

    snprintf(more, sizeof more, "-m '%s' -np 16 -c 2048 --max-waiting 64",
             test_temp("tiny.gguf"));
    sh(0, "plait synth --shape tiny --type q8_0 -o tiny.gguf");
    serve_try_run(&s, "", more); /* serves only the model `tiny` */
    ask_many(&s, some, 0);
    bother(&s, some / 100);
    serve_try_idle(&s);
    before = serve_try_use(&s);
    for (int i = 1; i <= parts; i++) {
        ask_many(&s, some, i);
        bother(&s, some / 100);
        serve_try_idle(&s);
        after = serve_try_use(&s);
        printf("%d requests: %.2f MiB, %d files, %d threads\n", (i + 1) * some,
               (double)after.bytes / 0x1p20, after.n_file, after.n_thread);
    }
    /* some connections that were kept alive may not be closed yet */
    assert_true(after.n_file <= before.n_file + 32);
    assert_true(after.n_thread <= before.n_thread);
    /* a sanitizer's own records grow with the number of allocations */
    if (!TEST_SANITIZED)
        assert_true(after.bytes < before.bytes + (4 << 20));
    serve_try_stop(&s);
}
