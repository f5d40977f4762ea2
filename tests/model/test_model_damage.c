/* Damaged models: files cut short, and headers with a byte changed, are opened
 * and planned like intact ones. Each gives an error, or a plan that can be
 * freed. Nothing leaks or hangs, and memory requests stay within twice the file
 * and 64 MiB.
 *
 * A file may also be cut short while it is open. Then loading it is rejected,
 * and loaded engines continue.
 *
 * test_gguf_reader.c does this to the reader alone. Here damage that leaves a
 * well-formed file reaches the model, the graph and the plan. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gguf/gguf_write.h"
#include "lib/alloc_fail.h"
#include "lib/engine_run.h"

enum { N_CUT = 200, N_FLIP = 2000 };

struct file {
    unsigned char *byte; /* owned */
    /* size of the file, and of the part before the first tensor's data */
    size_t n, header;
};

static void file_read(struct file *f, const char *path)
{
    struct gguf *g;
    pl_err err = {0};

    f->byte = test_read(path, &f->n);
    TEST_OK(gguf_open(&g, path, &err), err);
    f->header = f->n;
    for (int64_t i = 0; i < gguf_n_tensor(g); i++)
        if (gguf_tensor_at(g, i)->offset < f->header)
            f->header = (size_t)gguf_tensor_at(g, i)->offset;
    gguf_close(g);
}

/* Opens and plans the file at `path`. Returns true if there is a plan. */
static bool survives(const char *path, size_t file_bytes, const char *what)
{
    pl_options o = engine_run_options();
    pl_model *m = NULL;
    pl_plan *p = NULL;
    pl_err err = {0};
    pl_status s;
    double took = test_cpu_seconds();
    bool ok;

    o.devices = "cpu*2";
    alloc_stat_reset();
    s = pl_model_open(&m, path, &err);
    if (s == PL_OK)
        s = pl_plan_create(&p, m, &o, &err);
    ok = s == PL_OK;
    if (!ok && (err.status != s || !err.message[0]))
        fail_msg("%s: %s and no message", what, pl_status_name(s));
    if (s == PL_NO_MEMORY)
        fail_msg("%s: asks for more memory than there is: %s", what,
                 err.message);
    pl_plan_free(p);
    pl_model_free(m);
    took = test_cpu_seconds() - took;
    if (alloc_stat_get().live_bytes)
        fail_msg("%s: %" PRId64 " bytes leak", what,
                 alloc_stat_get().live_bytes);
    if (alloc_stat_get().peak_bytes > 2 * (int64_t)file_bytes + (64 << 20))
        fail_msg("%s: %" PRId64 " bytes are taken for a file of %zu", what,
                 alloc_stat_get().peak_bytes, file_bytes);
    if (took > 20)
        fail_msg("%s: it takes %.0f s of the processor", what, took);
    return ok;
}

static const char *const names[] = {"qwen2-bias-f32.gguf",
                                    "qwen3moe-f32.gguf",
                                    "glm4moe-f32.gguf",
                                    "llama-q-q4_0.gguf",
                                    "gemma4-ple-sharedkv-f32.gguf",
                                    "qwen35moe-f32.gguf"};
enum { N_NAME = sizeof names / sizeof names[0] };

TEST(damaged_model_cut_short_is_refused)
{
    const char *path = test_ref_need(names[0]), *cut = test_temp("cut.gguf");
    struct file f;
    FILE *out;
    char what[64];

    file_read(&f, path);
    out = fopen(cut, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(f.byte, 1, f.n, out), f.n);
    fclose(out);
    assert_true(survives(cut, f.n, "the whole file"));
    for (int i = N_CUT - 1; i >= 0; i--) {
        /* half of the offsets in the header, half in the data */
        size_t at = i < N_CUT / 2 ? f.header * (size_t)i / (N_CUT / 2)
                                  : f.header + (f.n - f.header - 1) *
                                                   (size_t)(i - N_CUT / 2) /
                                                   (N_CUT / 2 - 1);

        assert_int_equal(truncate(cut, (off_t)at), 0);
        snprintf(what, sizeof what, "cut at %zu", at);
        if (survives(cut, f.n, what))
            fail_msg("%s, it is taken for a whole model", what);
    }
    free(f.byte);
}

TEST(damaged_header_gives_a_status_or_a_plan)
{
    const char *bad = test_temp("flip.gguf");
    uint64_t random = test_seed();
    int plans = 0;

    for (int m = 0; m < N_NAME; m++) {
        const char *path = test_ref_need(names[m]);
        int n = test_draws(N_FLIP / N_NAME, N_FLIP);
        struct file f;
        FILE *out;

        file_read(&f, path);
        out = fopen(bad, "wb+");
        assert_non_null(out);
        assert_int_equal(fwrite(f.byte, 1, f.n, out), f.n);
        for (int i = 0; i < n; i++) {
            size_t at = (size_t)test_below(&random, (int64_t)f.header);
            unsigned char x = f.byte[at];
            char what[96];

            /* changes one bit of the byte, or any of its bits */
            x ^= (unsigned char)(test_below(&random, 2)
                                     ? 1 << test_below(&random, 8)
                                     : 1 + test_below(&random, 255));
            fseek(out, (long)at, SEEK_SET);
            fputc(x, out);
            fflush(out);
            snprintf(what, sizeof what, "%s with byte %zu = %d, not %d",
                     names[m], at, x, f.byte[at]);
            plans += survives(bad, f.n, what);
            fseek(out, (long)at, SEEK_SET);
            fputc(f.byte[at], out);
            fflush(out);
        }
        fclose(out);
        free(f.byte);
    }
    print_message("%d of the damaged headers still make a plan\n", plans);
}

static void write_whole(const char *path, const struct file *f)
{
    FILE *out = fopen(path, "wb");

    assert_non_null(out);
    assert_int_equal(fwrite(f->byte, 1, f->n, out), f->n);
    assert_int_equal(fclose(out), 0);
}

/* All data requested while a file is opened is in memory. Later reads use read
 * calls and never touch a mapping. */
TEST(damaged_while_open_is_a_status)
{
    const char *path = test_ref_need(names[0]), *cut = test_temp("open.gguf");
    pl_options o = engine_run_options();
    struct file f;

    file_read(&f, path);
    for (int k = 0; k < 4; k++) {
        size_t at[] = {0, f.header / 2, f.header + 1, f.n - 1};
        struct engine_run r = {0};
        int32_t token[8];
        float *before, *after;
        uint64_t random = test_seed(), bytes;
        void *saved;
        size_t size;
        pl_engine *e;
        pl_plan *p;
        pl_err err;

        write_whole(cut, &f);
        engine_run_open(&r, cut, names[0], &o);
        before = test_need(16 * (size_t)r.n_vocab, sizeof *before);
        after = before + 8 * r.n_vocab;
        engine_run_tokens(&r, &random, 8, token);
        engine_run_decode(&r, 0, 8, token, before);
        assert_int_equal(truncate(cut, (off_t)at[k]), 0);

        /* the engine has its weights in memory and needs the file no more */
        engine_run_decode(&r, 1, 8, token, after);
        assert_memory_equal(before, after,
                            8 * (size_t)r.n_vocab * sizeof *before);
        TEST_OK(pl_plan_create(&p, r.model, &o, &err), err);
        pl_plan_free(p);
        assert_int_equal(pl_engine_create(&e, r.model, &o, &err), PL_BAD_FILE);
        assert_null(e);
        assert_non_null(strstr(err.message, "open.gguf: the file ends at"));
        TEST_OK(pl_state_size(r.engine, 0, 0, -1, &bytes, &err), err);
        if (pl_state_save_memory(r.engine, 0, 0, -1, &saved, &size, &err) ==
            PL_OK)
            fail_msg("cut at %zu a model still says whose a state is", at[k]);
        assert_non_null(strstr(err.message, "program truncated"));
        free(before);
        engine_run_close(&r);
    }
    free(f.byte);
}

/* A vocabulary is larger than what is copied at once. */
TEST(damaged_while_open_keeps_what_was_parsed)
{
    enum { N = 200000 };
    const char *path = test_temp("keys.gguf");
    struct gguf_str *text = test_need(N, sizeof *text);
    struct gguf_writer *w;
    struct gguf *g;
    const struct gguf_kv *kv;
    const int64_t dim = 4;
    const float data[4] = {1, 2, 3, 4};
    float v[4];
    pl_err err;

    for (int i = 0; i < N; i++)
        text[i] = (struct gguf_str){&"abcdefghijklmnop"[i % 8], 8};
    TEST_OK(gguf_writer_create(&w, &err), err);
    gguf_put_strs(w, "words", text, N);
    gguf_put_tensor(w, "t", PL_F32, 1, &dim, data);
    TEST_OK(gguf_writer_save(w, path, &err), err);
    gguf_writer_free(w);
    TEST_OK(gguf_open(&g, path, &err), err);
    TEST_OK(gguf_read(g, gguf_tensor_at(g, 0), 4, v, 8, &err), err);
    assert_true(v[0] == 2 && v[1] == 3);
    TEST_OK(gguf_check_whole(g, gguf_tensor_at(g, 0), &err), err);
    assert_int_equal(truncate(path, 0), 0);
    kv = gguf_find(g, "words");
    assert_non_null(kv);
    for (int i = 0; i < N; i++) {
        struct gguf_str s;

        assert_true(gguf_as_str(kv, (uint64_t)i, &s));
        assert_memory_equal(s.s, text[i].s, 8);
    }
    assert_int_equal(gguf_read(g, gguf_tensor_at(g, 0), 0, v, 16, &err),
                     PL_BAD_FILE);
    assert_int_equal(gguf_check_whole(g, gguf_tensor_at(g, 0), &err),
                     PL_BAD_FILE);
    assert_non_null(strstr(err.message, "ends at byte 0"));
    gguf_close(g);
    free(text);
}
