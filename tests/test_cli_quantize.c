/* plait quantize as its users run it: the arguments of llama-quantize, errors
 * with a remedy, and a file of which nothing is lost. */
#include "lib/command.h"
#include "lib/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FABLE "models/fable-moe-Q8_0.gguf "
#define AGAIN "plait quantize --allow-requantize "
#define FAST  AGAIN "--no-search "

TEST(cli_quantize_takes_the_arguments_of_llama_quantize)
{
    static const char *const lines[] = {
        FAST FABLE "q.gguf Q4_0",
        FAST FABLE "q.gguf q4_0 3",
        FAST FABLE "q.gguf 2 1",
        "plait quantize --no-search " FABLE
        "q.gguf Q4_0 --allow-requantize --nthreads 2",
        /* without OUT, beside the input */
        "cp " FABLE " m.gguf && " FAST "m.gguf Q4_0 2 && "
        "mv ggml-model-Q4_0.gguf q.gguf",
    };
    char sum[80] = "";

    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        struct ran r = sh(0, lines[i]);

        assert_non_null(strstr(r.out, "Q4_0, 10.08 MiB to "));
        assert_non_null(strstr(r.out, "26 of 62 tensors quantized"));
        r = sh(0, "sha256sum q.gguf && rm q.gguf");
        if (i > 0 && strcmp(sum, r.out) != 0)
            fail_msg("%s: another file", lines[i]);
        snprintf(sum, sizeof sum, "%s", r.out);
    }
}

TEST(cli_quantize_prints_errors_and_sizes)
{
    struct ran r = sh(0, AGAIN "-v " FABLE "q.gguf Q6_K");

    assert_non_null(strstr(r.out, "blk.4.ffn_down_exps.weight"));
    assert_non_null(strstr(r.out, "Q8_0 -> Q6_K"));
    assert_non_null(strstr(r.out, "error 0.01"));
    assert_non_null(strstr(r.out, "bits per weight"));
    r = sh(0, "rm q.gguf; " AGAIN "--dry-run " FABLE "q.gguf Q6_K && "
              "test ! -e q.gguf");
    assert_non_null(strstr(r.out, "Q8_0 -> Q6_K"));
    assert_null(strstr(r.out, "error "));
    r = sh(0, AGAIN "--dry-run " FABLE " IQ4_XS");
    assert_non_null(strstr(r.out, "Q8_0 -> IQ4_XS"));
}

/* A search loses less than simple rounding: the perplexity of the bundled model
 * says so. */
TEST(cli_quantize_keeps_the_perplexity)
{
    static const char *const options[] = {"--no-search ", ""};
    double perplexity[3];

    for (int i = 0; i < 3; i++) {
        char line[400];
        struct ran r;
        const char *s;

        if (i < 2) {
            snprintf(line, sizeof line, AGAIN "--pure %s" FABLE "q.gguf Q2_K",
                     options[i]);
            sh(0, line);
        }
        snprintf(line, sizeof line,
                 "plait perplexity -m %s -f models/heldout.txt --chunks 2",
                 i < 2 ? "q.gguf" : FABLE);
        r = sh(0, line);
        s = strstr(r.out, "perplexity: ");
        assert_non_null(s);
        perplexity[i] = atof(s + strlen("perplexity: "));
        print_message("Q2_K %s: %.4f\n", i < 2 ? options[i] : "not quantized",
                      perplexity[i]);
    }
    /* measured: 32.0, 25.9 and 19.7 */
    assert_true(perplexity[2] < perplexity[1]);
    assert_true(perplexity[1] < 0.9 * perplexity[0]);
}

TEST(cli_quantize_mistakes_name_the_remedy)
{
    static const struct {
        const char *line, *says;
        int code;
    } rows[] = {
        {"plait quantize", "give IN.gguf OUT.gguf TYPE", 2},
        {"plait quantize " FABLE, "no type", 2},
        {"plait quantize " FABLE "e.gguf", "give one of F32, F16", 2},
        {"plait quantize " FABLE "e.gguf Q9_K", "\"Q9_K\" is no type", 2},
        {"plait quantize " FABLE "e.gguf Q4_K_M", "--allow-requantize", 1},
        {AGAIN FABLE "e.gguf Q4_K_M many", "number of threads", 2},
        {AGAIN FABLE "e.gguf Q4_K_M 2 more", "unexpected argument", 2},
        {AGAIN "--nthreads 0 " FABLE "e.gguf Q4_K_M", "--nthreads 0", 2},
        {AGAIN FABLE FABLE "Q4_K_M", "name another", 2},
        {AGAIN "none.gguf e.gguf Q4_K_M", "none.gguf", 1},
        {AGAIN FABLE "no/where.gguf Q4_K_M", "no/where.gguf", 1},
        {AGAIN "--imatrix none.dat " FABLE "e.gguf Q4_K_M", "none.dat", 1},
        {AGAIN "--imatrix models/heldout.txt " FABLE "e.gguf Q4_K_M",
         "llama-imatrix", 1},
        {AGAIN FABLE "e.gguf IQ2_XS", "--imatrix FILE", 1},
        {AGAIN "--tensor-type attn_q " FABLE "e.gguf Q4_0", "attn_v=Q8_0", 2},
        {AGAIN "--output-tensor-type Q9 " FABLE "e.gguf Q4_0", "\"Q9\"", 2},
        {AGAIN "--prune-layers 1 " FABLE "e.gguf Q4_0", "--prune-layers", 2},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct ran r = sh(rows[i].code, rows[i].line);

        must_say(r, rows[i].says);
    }
    sh(1, "test -e e.gguf");
}

/* A file that cannot be completed leaves what was there, and nothing else. */
TEST(cli_quantize_loses_nothing_if_the_disk_is_full)
{
    sh(0, "mkdir full && echo before > full/q.gguf");
    sh(1, "cd full && (ulimit -f 64; trap '' XFSZ; " AGAIN "../" FABLE
          "q.gguf Q4_0) 2>&1");
    sh(0, "test \"$(cat full/q.gguf)\" = before && test $(ls -A full | wc -l) "
          "= 1");
}
