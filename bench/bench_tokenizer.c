/* Measures opening and using a tokenizer of 250,000 tokens: the time before the
 * first id, and the speed of converting text to ids.
 *
 * The vocabulary is made up. Its tokens are words over eight letters; each is
 * an earlier word and one more letter, and a merge joins the two. "open" is the
 * time to read the file's metadata and "create" that to make the tokenizer; the
 * file is in the page cache. The texts have 4 MB: one of words and blanks, and
 * one that is a single word of one letter. A time is the median over the
 * rounds; for "open" and "create" the minimum is printed, too.
 *
 *   bench-tokenizer [DIR] [ROUNDS]    DIR has the files meanwhile; build */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gguf/gguf_write.h"
#include "timing.h"
#include "tokenizer/tokenizer.h"

enum { N_TOKEN = 250000, N_CHAR = 256, TEXT_BYTES = 4 << 20 };

static char text_of[N_TOKEN][16], merge_of[N_TOKEN][16];
static struct gguf_str tokens[N_TOKEN], merges[N_TOKEN];
static float scores[N_TOKEN];
static int32_t types[N_TOKEN];

/* Writes word i, counted from 0, of the words over the letters a .. h that have
 * two letters or more, shorter words first. Returns its length. */
static size_t word(char *out, int i)
{
    char letter[16];
    size_t n = 0;

    for (i += 9; i > 0; i = (i - 1) / 8)
        letter[n++] = (char)('a' + (i - 1) % 8);
    for (size_t k = 0; k < n; k++)
        out[k] = letter[n - 1 - k];
    return n;
}

static void write_vocabulary(const char *path, const char *model, bool bytes)
{
    struct gguf_writer *w = NULL;
    pl_err err = {0};
    int n_merge = 0, extra = N_CHAR;

    for (int i = 0; i < N_TOKEN; i++) {
        char *s = text_of[i];
        size_t n;

        types[i] = 1;
        scores[i] = -(float)i / 1000;
        if (i < N_CHAR && !bytes) {
            n = (size_t)snprintf(s, sizeof text_of[i], "<0x%02X>", i);
            types[i] = 6;
        } else if (i < N_CHAR) {
            /* in gpt2's vocabulary the token of a byte is a printable character
             * that stands for the byte */
            bool prints = (i >= 33 && i <= 126) || (i >= 161 && i != 173);
            int c = prints ? i : extra++;

            n = c < 128 ? 1 : 2;
            s[0] = (char)(n == 1 ? c : 0xc0 | c >> 6);
            s[1] = (char)(0x80 | (c & 63));
        } else {
            n = word(s, i - N_CHAR);
            memcpy(merge_of[n_merge], s, n - 1);
            memcpy(merge_of[n_merge] + n - 1, (char[2]){' ', s[n - 1]}, 2);
            merges[n_merge] = (struct gguf_str){merge_of[n_merge], n + 1};
            n_merge++;
        }
        tokens[i] = (struct gguf_str){s, n};
    }
    types[2] = 2;
    if (gguf_writer_create(&w, &err))
        bench_die(path, err.message);
    gguf_put_str(w, "tokenizer.ggml.model", model);
    gguf_put_str(w, "tokenizer.ggml.pre", "qwen35");
    gguf_put_strs(w, "tokenizer.ggml.tokens", tokens, N_TOKEN);
    gguf_put_array(w, "tokenizer.ggml.token_type", GGUF_I32, types, N_TOKEN);
    gguf_put_array(w, "tokenizer.ggml.scores", GGUF_F32, scores, N_TOKEN);
    gguf_put_strs(w, "tokenizer.ggml.merges", merges, (uint64_t)n_merge);
    if (gguf_writer_save(w, path, &err))
        bench_die(path, err.message);
    gguf_writer_free(w);
}

/* Returns the speed of converting `text` to ids, in millions of bytes a
 * second. */
static double speed(const struct tokenizer *t, const char *text)
{
    struct token_list l = {0};
    pl_err err = {0};
    double begin = bench_now();

    if (tokenizer_encode(t, text, TEXT_BYTES, 0, &l, &err))
        bench_die("encoding", err.message);
    begin = bench_now() - begin;
    token_list_fini(&l);
    return TEXT_BYTES / begin / 1e6;
}

static void measure(const char *path, const char *model, int rounds,
                    const char *prose, const char *letters)
{
    double open[BENCH_MAX_ROUND], create[BENCH_MAX_ROUND];
    double words[BENCH_MAX_ROUND], one[BENCH_MAX_ROUND], best = 1e9;

    for (int i = 0; i < rounds; i++) {
        struct gguf *g;
        struct tokenizer *t;
        pl_err err = {0};
        double a = bench_now(), b;

        if (gguf_open(&g, path, &err))
            bench_die(path, err.message);
        b = bench_now();
        if (tokenizer_create(&t, g, &err))
            bench_die(path, err.message);
        create[i] = (bench_now() - b) * 1e3;
        open[i] = (b - a) * 1e3;
        best = open[i] + create[i] < best ? open[i] + create[i] : best;
        gguf_close(g);
        words[i] = speed(t, prose);
        one[i] = speed(t, letters);
        tokenizer_free(t);
    }
    printf("%-8s open %5.1f ms  create %5.1f ms  both, best %5.1f ms  words "
           "%6.1f MB/s  one word %6.1f MB/s\n",
           model, bench_median(open, rounds), bench_median(create, rounds),
           best, bench_median(words, rounds), bench_median(one, rounds));
}

int main(int argc, char **argv)
{
    static const char *const models[] = {"llama", "gpt2", "gemma4", "bert",
                                         "t5"};
    const char *dir = argc > 1 ? argv[1] : "build";
    int rounds = argc > 2 ? atoi(argv[2]) : 5;
    char *prose = malloc(TEXT_BYTES), *letters = malloc(TEXT_BYTES), path[4096];
    size_t n = 0;

    if (rounds < 1 || rounds > BENCH_MAX_ROUND || !prose || !letters) {
        fprintf(stderr, "usage: bench-tokenizer [DIR] [ROUNDS 1..%d]\n",
                BENCH_MAX_ROUND);
        return 2;
    }
    memset(letters, 'b', TEXT_BYTES);
    for (uint64_t rng = 1; n < TEXT_BYTES - 16;) {
        rng = rng * 6364136223846793005u + 1442695040888963407u;
        n += word(prose + n, (int)(rng >> 40) % (N_TOKEN - N_CHAR));
        prose[n++] = ' ';
    }
    memset(prose + n, ' ', TEXT_BYTES - n);
    snprintf(path, sizeof path, "%s/bench-tokenizer.gguf", dir);
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        write_vocabulary(path, models[i], strcmp(models[i], "gpt2") == 0);
        measure(path, models[i], rounds, prose, letters);
    }
    unlink(path);
    free(prose);
    free(letters);
    return 0;
}
