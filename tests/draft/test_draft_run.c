/* plait run with drafts writes the text, and computes the logits, that it does
 * without. A receipt has a hash of all logits, so equal receipts prove both.
 * Random models repeat themselves, so short n-grams give drafts that are right
 * and drafts that are wrong. */
#include "gguf/gguf.h"
#include "lib/command.h"
#include "lib/edit_model.h"
#include "lib/made_model.h"
#include "lib/ref_models.h"
#include "lib/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FABLE "models/fable-moe-Q8_0.gguf"
#define SHORT                                                                  \
    "--spec-ngram-simple-size-n 1 --spec-ngram-map-k-size-n 1 "                \
    "--spec-ngram-map-k-min-hits 2 "

/* drafted tokens that were accepted, and all, since the last call */
struct sum {
    int64_t accepted, drafted;
};

/* Reads the numbers of drafts that the command printed. */
static void add_drafts(struct sum *sum, struct ran r)
{
    const char *at = strstr(r.err, "drafts ");
    char *end;

    if (!at)
        fail_msg("%s\nprinted no number of drafts: %s", r.line, r.err);
    sum->accepted += strtoll(at + 6, &end, 10);
    at = strstr(end, " of ");
    assert_non_null(at);
    sum->drafted += strtoll(at + 4, NULL, 10);
}

/* Runs a model with the options `how` without drafts and with those of `spec`.
 * Both must give the same exit code, text and receipt. */
static void expect_same(const char *model, const char *how, const char *spec,
                        struct sum *sum)
{
    char line[1024];
    struct ran plain, drafted;

    snprintf(line, sizeof line,
             "rm -f a.json b.json; plait run -m %s %s --receipt a.json", model,
             how);
    plain = sh(0, line);
    snprintf(line, sizeof line,
             "plait run -m %s %s " SHORT "%s --receipt b.json", model, how,
             spec);
    drafted = sh(0, line);
    if (plain.n_out != drafted.n_out ||
        memcmp(plain.out, drafted.out, plain.n_out) != 0)
        fail_msg("%s\nwrote: %s\nnot: %s", line, drafted.out, plain.out);
    sh(0, "cmp a.json b.json");
    add_drafts(sum, drafted);
}

static void expect_both(const struct sum *sum)
{
    printf("%lld of %lld drafted tokens were accepted\n",
           (long long)sum->accepted, (long long)sum->drafted);
    assert_true(sum->accepted > 0);
    assert_true(sum->drafted > sum->accepted);
}

#define GREEDY                                                                 \
    "--temp 0 -s 1 -n 120 -p 'the cat and the dog and the cat and the'"
#define SEEDED                                                                 \
    "-s 3 --temp 0.6 --repeat-penalty 1.02 -n 120 "                            \
    "-p 'the cat and the dog and the cat and the'"

/* Models with attention to all tokens, with a window, with recurrent states
 * that cannot be trimmed to each length, and with experts. */
TEST(draft_text_of_each_kind_of_model_is_the_plain_one)
{
    static const char *const models[] = {"llama-gqa-f32", "gemma3-swa-f32",
                                         "qwen35-dense-f32", "llama-moe-f32"};
    static const char *const types[] = {"ngram-simple", "ngram-map-k",
                                        "ngram-cache"};
    struct sum sum = {0};

    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        const char *path = ref_model_path(models[m]);

        for (int t = 0; t < 3; t++) {
            char spec[80];

            snprintf(spec, sizeof spec, "--spec-type %s --draft-max %d",
                     types[t], 5 + 9 * t);
            expect_same(path, GREEDY, spec, &sum);
            expect_same(path, SEEDED, spec, &sum);
        }
    }
    expect_both(&sum);
}

TEST(draft_text_in_each_form_of_output_is_the_plain_one)
{
    static const char *const how[] = {
        "-n 200 -s 1 --temp 0 -p 'the dog and the dog'",
        /* a grammar, and an end of text within drafts */
        ("-n 300 -s 4 -p 'Say:' --grammar "
         "'root ::= (\"the dog and \" | \"a cat or \"){20} [a-z]+ \".\"'"),
        "-n 90 -s 2 -p 'The king said' -r king",     /* a stop string */
        "-n 900 -s 1 --temp 0 -p 'The king' -c 200", /* the context is full */
        "-n 100 -s 9 -p 'The king' -ub 4",           /* steps of few rows */
        "-n 60 -s 9 -p 'The king' --ignore-eos -dev 'sim*2'",
        "-n 1 -s 1 -p 'The king'",
        "-n 2 -s 1 -p 'The king' --temp 0",
    };
    struct sum sum = {0};

    for (size_t i = 0; i < sizeof how / sizeof *how; i++) {
        expect_same(FABLE, how[i],
                    "--spec-type ngram-simple,ngram-cache --draft-max 7", &sum);
        /* lengths chosen by times */
        expect_same(FABLE, how[i], "--spec-type ngram-map-k", &sum);
    }
    expect_both(&sum);
}

/* A model that drafts for itself is mostly right in greedy text. Another one,
 * or one with a coarse cache or other positions, is sometimes wrong. */
TEST(draft_text_of_a_draft_model_is_the_plain_one)
{
    static const char *const models[][2] = {
        {"llama-gqa-f32", "llama-moe-f32"},
        {"gemma3-swa-f32", "gemma3-swa-f32"},
        {"qwen35-dense-f32", "qwen35-dense-f32"},
    };
    struct sum sum = {0};
    char spec[300];

    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        const char *path = ref_model_path(models[m][0]);

        snprintf(spec, sizeof spec, "-md %s --draft-max 4",
                 ref_model_path(models[m][1]));
        expect_same(path, GREEDY, spec, &sum);
        expect_same(path, SEEDED, spec, &sum);
        snprintf(spec, sizeof spec, "-md %s -ctkd q8_0 --draft-p-min 0.01",
                 ref_model_path(models[m][1]));
        expect_same(path, SEEDED, spec, &sum);
    }
    expect_both(&sum);
}

TEST(draft_text_of_a_draft_model_in_each_form_is_the_plain_one)
{
    static const struct edit other[] = {
        {".rope.freq_base", EDIT_FLOAT, 30000, NULL}};
    static const char *const how[] = {
        "-n 90 -s 1 --temp 0 -p 'the dog and the dog'",
        ("-n 300 -s 4 -p 'Say:' --grammar "
         "'root ::= (\"the dog and \" | \"a cat or \"){20} [a-z]+ \".\"'"),
        "-n 90 -s 2 -p 'The king said' -r king",     /* a stop string */
        "-n 900 -s 1 --temp 0 -p 'The king' -c 200", /* the context is full */
        "-n 60 -s 9 -p 'The king' -ub 4",            /* steps of few rows */
        "-n 2 -s 1 -p 'The king' --temp 0",
    };
    static const char *const specs[] = {
        "--draft-max 3",
        "--spec-type ngram-simple,draft-simple", /* lengths chosen by times */
        "--draft-max 5 -ctkd q4_0 -ctvd q4_0 -devd 'sim*2' -td 1",
        "--draft-max 2 -cd 64 -ngld 2 -otd ffn=host",
    };
    const char *draft = edit_model(FABLE, false, other, 1);
    char spec[400];
    struct sum sum = {0};

    for (size_t i = 0; i < sizeof how / sizeof *how; i++) {
        snprintf(spec, sizeof spec, "-md %s %s", i % 2 ? FABLE : draft,
                 specs[i % 3]);
        expect_same(FABLE, how[i], spec, &sum);
    }
    /* a context of 64 tokens */
    snprintf(spec, sizeof spec, "-md %s %s", draft, specs[3]);
    expect_same(FABLE, how[0], spec, &sum);
    expect_both(&sum);
}

/* Models with a block for multi-token prediction: with recurrent states, with
 * latents, with experts, and in the long tier with chosen keys. Costs three
 * seconds. */
TEST(draft_text_of_multi_token_prediction_is_the_plain_one)
{
    static const char *const made[] = {"qwen35-dense-f32", "qwen35moe-f32",
                                       "deepseek2-mla-f32",
                                       "glm-dsa-shared-f32"};
    const size_t n_made = test_long() ? 4 : 3;
    static const char *const how[] = {
        GREEDY,
        SEEDED " -dev 'sim*2' -sm tensor",
        "--temp 0 -s 1 -n 60 -p 'the cat' -dev 'sim*2' -sm layer -ub 4",
        "-s 5 -n 500 -p 'the cat' -c 192", /* the context is full */
        ("-n 300 -s 4 -p 'Say:' --grammar "
         "'root ::= (\"the dog and \" | \"a cat or \"){20} [a-z]+ \".\"'"),
    };
    static const char *const specs[] = {
        "--spec-type draft-mtp --draft-max 3",
        "--spec-type draft-mtp", /* lengths chosen by times */
        "--spec-type ngram-simple,draft-mtp --draft-max 5 --draft-p-min 0.01",
    };
    struct sum sum = {0};

    for (size_t m = 0; m <= n_made; m++) {
        const char *path = m < n_made ? made_model_with_block(made[m])
                                      : ref_model_path("glm4moe-f32");

        for (size_t i = 0; i < sizeof how / sizeof *how; i++)
            if (test_long() || (m + i) % 2 == 0)
                expect_same(path, how[i], specs[(m + i) % 3], &sum);
    }
    expect_both(&sum);
    must_say(sh(0, "plait run " MODEL "-p A -n 2 --spec-type draft-mtp"),
             "has no layers for multi-token prediction");
}

/* A conversation and a saved state: the block lacks what the state has. */
TEST(draft_state_with_multi_token_prediction_is_the_plain_one)
{
    const char *path = made_model_with_block("qwen35-dense-f32");
    struct sum sum = {0};
    char line[2048];

    for (int spec = 0; spec < 2; spec++) {
        const char *with = spec ? "--spec-type draft-mtp --draft-max 4" : "";

        snprintf(line, sizeof line,
                 "printf 'the dog and the dog\nand the cat and\n' | "
                 "plait run -m %s --no-template -i --temp 0 -s 1 -n 90 %s "
                 "--state-save s%d.bin >o%d.txt && plait run -m %s --temp 0 "
                 "-n 40 %s --state-load s%d.bin --no-template >>o%d.txt",
                 path, with, spec, spec, path, with, spec, spec);
        if (spec)
            add_drafts(&sum, sh(0, line));
        else
            sh(0, line);
    }
    sh(0, "cmp o0.txt o1.txt && test -s o0.txt");
    sh(0, "cmp s0.bin s1.bin");
    assert_true(sum.drafted > sum.accepted);
}

TEST(draft_model_of_the_command_is_checked)
{
    char line[400];

    must_say(sh(2, "plait run " MODEL "-p A --spec-type draft-simple"),
             "give one with --model-draft FILE");
    must_say(sh(1, "plait run " MODEL "-p A -md none.gguf"), "none.gguf");
    snprintf(line, sizeof line, "plait run " MODEL "-p A -md %s",
             ref_model_path("llama-yarn-f32"));
    must_say(sh(1, line), "--model-draft: the draft model's");
    must_say(sh(2, "plait run " MODEL "-p A -hfd a/b -md " FABLE),
             "leave one out");
    must_say(sh(0, "plait run " MODEL
                   "-p A -n 2 --spec-type ngram-simple -md " FABLE),
             "--spec-type lacks draft-simple");
    must_say(sh(1, "plait run " MODEL "-p A --spec-type ngram-cache -lcs -"),
             "standard input is not read; name a file");
    sh(0, "plait run " MODEL "-p A -n 2 --spec-type none -md " FABLE);
}

/* A conversation, whose turns go on with the tokens of the last, and a saved
 * state. */
TEST(draft_text_after_a_draft_is_the_plain_one)
{
    static const char *const models[] = {FABLE, "qwen35-dense-f32"};
    struct sum sum = {0};

    for (int m = 0; m < 2; m++) {
        const char *path = m > 0 ? ref_model_path(models[m]) : models[m];
        char line[2048];

        for (int spec = 0; spec < 2; spec++) {
            const char *with =
                spec ? SHORT "--spec-type ngram-simple --draft-max 6" : "";

            snprintf(
                line, sizeof line,
                "printf 'the dog and the dog\\nand the cat and\\n' | "
                "plait run -m %s --no-template -i --temp 0 -s 1 -n 90 %s "
                "--state-save s%d.bin >o%d.txt && plait run -m %s --temp 0 "
                "-n 40 %s --state-load s%d.bin --no-template >>o%d.txt",
                path, with, spec, spec, path, with, spec, spec);
            if (spec)
                add_drafts(&sum, sh(0, line));
            else
                sh(0, line);
        }
        sh(0, "cmp o0.txt o1.txt && test -s o0.txt");
        sh(0, "cmp s0.bin s1.bin");
    }
    expect_both(&sum);
}

/* The state after an end of text has the logits from which that was chosen,
 * which are not the first of their step. */
TEST(draft_state_after_an_end_of_text_is_the_plain_one)
{
    static const char line[] =
        "plait run -m " FABLE " -p 'the dog and the dog and' -s 1 --temp 0 "
        "--grammar 'root ::= (\" the dog and\"){9}' --state-save ";
    char with[400];
    struct sum sum = {0};

    snprintf(with, sizeof with, "%ss0.bin", line);
    sh(0, with);
    for (int n = 1; n < 6; n++) {
        snprintf(with, sizeof with,
                 "%ss1.bin " SHORT "--spec-type ngram-simple --draft-max %d",
                 line, n);
        add_drafts(&sum, sh(0, with));
        sh(0, "cmp s0.bin s1.bin");
    }
    assert_true(sum.accepted > 0);
}

/* Writes a copy of a model with a token of which nothing finite can be
 * computed. Returns its path. */
static const char *with_bad_token(const char *path, int32_t token)
{
    const char *copy = test_temp("bad.gguf");
    const struct gguf_tensor *t;
    struct gguf *g;
    size_t n;
    char *all = test_read(path, &n);
    FILE *f = fopen(copy, "wb");
    pl_err err;

    TEST_OK(gguf_open(&g, path, &err), err);
    t = gguf_find_tensor(g, "token_embd.weight");
    assert_non_null(t);
    assert_int_equal(t->format, PL_F32);
    /* NaN in the whole row */
    memset(all + t->offset + (size_t)token * (size_t)t->dim[1] * 4, 0xff,
           (size_t)t->dim[1] * 4);
    gguf_close(g);
    assert_non_null(f);
    assert_int_equal(fwrite(all, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
    free(all);
    return copy;
}

/* A drafted token of which nothing finite can be computed fails the step, which
 * succeeds without it. */
TEST(draft_that_fails_a_step_is_dropped)
{
    enum { BAD = 300, N_VOCAB = 384 };
    const char *path = ref_model_path("llama-yarn-f32");
    const char *bad = with_bad_token(path, BAD);
    FILE *f = fopen(test_temp("bad.bin"), "wb");
    char line[1024];
    struct ran plain, drafted;
    struct sum sum = {0};

    assert_non_null(f);
    for (int32_t i = 0; i < N_VOCAB; i++) {
        const int32_t entry[] = {i, -1, -1, -1, 1, BAD, 1000};

        fwrite(entry, sizeof entry, 1, f);
    }
    fclose(f);
    snprintf(line, sizeof line, "plait run -m %s -p 'the cat' -n 20 --temp 0",
             bad);
    plain = sh(0, line);
    snprintf(line, sizeof line,
             "plait run -m %s -p 'the cat' -n 20 --temp 0 --spec-type "
             "ngram-cache --draft-max 2 -lcd '%s'",
             bad, test_temp("bad.bin"));
    drafted = sh(0, line);
    assert_string_equal(plain.out, drafted.out);
    /* in the unchanged model the drafts are computed, and wrong */
    snprintf(line, sizeof line,
             "plait run -m %s -p 'the cat' -n 20 --temp 0 --spec-type "
             "ngram-cache --draft-max 2 -lcd '%s'",
             path, test_temp("bad.bin"));
    add_drafts(&sum, sh(0, line));
    assert_true(sum.drafted > 0);
}

TEST(draft_lookup_file_of_the_command_grows)
{
    sh(0, "rm -f d.bin; plait run " MODEL "-n 30 -p 'The king' --temp 0 "
          "--spec-type ngram-cache -lcd d.bin && test -s d.bin && cp d.bin "
          "e.bin && plait run " MODEL "-n 30 -p 'A dog' --temp 0 --spec-type "
          "ngram-cache -lcd d.bin -lcs e.bin && test $(wc -c <d.bin) -gt "
          "$(wc -c <e.bin)");
    must_say(sh(1, "echo hello >d.bin; plait run " MODEL
                   "-n 3 -p 'A' --spec-type ngram-cache -lcd d.bin"),
             "d.bin: offset");
    must_say(sh(1, "plait run " MODEL
                   "-n 3 -p 'A' --spec-type ngram-cache -lcs none.bin"),
             "none.bin");
    must_say(sh(2, "plait run " MODEL "-p A --spec-type ngram-many"),
             "none, ngram-simple, ngram-map-k, ngram-cache, draft-simple or "
             "draft-mtp");
}
