/* plait run with drafts writes the text, and computes the logits, that it does
 * without. A receipt has a hash of all logits, so equal receipts prove both.
 * Random models repeat themselves, so short n-grams give drafts that are right
 * and drafts that are wrong. */
#include "lib/command.h"
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

    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        const char *path = ref_model_path(models[m]);
        struct sum sum = {0};

        for (int t = 0; t < 3; t++) {
            char spec[80];

            snprintf(spec, sizeof spec, "--spec-type %s --draft-max %d",
                     types[t], 5 + 9 * t);
            expect_same(path, GREEDY, spec, &sum);
            expect_same(path, SEEDED, spec, &sum);
        }
        printf("%s: ", models[m]);
        expect_both(&sum);
    }
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

/* A conversation, whose turns go on with the tokens of the last, and a saved
 * state. */
TEST(draft_text_after_a_draft_is_the_plain_one)
{
    static const char *const models[] = {FABLE, "qwen35-dense-f32"};

    for (int m = 0; m < 2; m++) {
        const char *path = m > 0 ? ref_model_path(models[m]) : models[m];
        char line[2048];
        struct sum sum = {0};

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
        expect_both(&sum);
    }
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
             "none, ngram-simple, ngram-map-k or ngram-cache");
}
