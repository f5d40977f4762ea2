/* Continues a text: the shortest program that generates.
 *
 *   tale MODEL [DEVICES [TEXT]]      tale model.gguf 'cpu*2' 'Once upon a time'
 *
 * Greedy: the likeliest token each time. Every call that can fail is checked;
 * the message names the error and its remedy. */
#include <pl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_TOKENS = 48 };

static int die(const pl_err *err)
{
    fprintf(stderr, "tale: %s\n", err->message);
    return 1;
}

int main(int argc, char **argv)
{
    pl_options opt = {.size = sizeof opt,
                      .devices = argc > 2 ? argv[2] : "cpu"};
    const char *text = argc > 3 ? argv[3] : "Once upon a time";
    pl_model *model = NULL;
    pl_engine *engine = NULL;
    pl_sampler *sampler = NULL;
    pl_detokenizer *words = NULL;
    pl_sampling greedy;
    int32_t *ids = NULL;
    float *logits;
    int64_t n;
    pl_err err;

    if (argc < 2) {
        fprintf(stderr, "usage: tale MODEL [DEVICES [TEXT]]\n");
        return 2;
    }
    if (pl_model_open(&model, argv[1], &err) != PL_OK ||
        pl_engine_create(&engine, model, &opt, &err) != PL_OK)
        return die(&err);
    pl_sampling_init(&greedy);
    greedy.temperature = 0;
    if (pl_sampler_create(&sampler, &greedy, pl_model_n_vocab(model), &err) !=
            PL_OK ||
        pl_detokenizer_create(&words, pl_model_tokenizer(model), false, &err) !=
            PL_OK ||
        pl_tokenize(pl_model_tokenizer(model), text, strlen(text),
                    PL_ADD_SPECIAL, &ids, &n, &err) != PL_OK)
        return die(&err);
    logits = malloc((size_t)pl_model_n_vocab(model) * sizeof *logits);
    if (!logits)
        return 1;
    printf("%s", text);
    for (int i = 0; i < N_TOKENS; i++) {
        /* the prompt, then token by token; logits of the last one are wanted */
        unsigned char *wanted = calloc((size_t)n, 1);
        pl_batch batch = {.size = sizeof batch,
                          .n = n,
                          .token = ids,
                          .wanted = wanted,
                          .logits = logits};
        pl_status s;

        if (!wanted)
            return 1;
        wanted[n - 1] = 1;
        s = pl_engine_decode(engine, &batch, NULL, &err);
        free(wanted);
        if (s != PL_OK)
            return die(&err);
        ids[0] = pl_sample(sampler, logits);
        n = 1;
        if (ids[0] < 0 || pl_token_is_eog(pl_model_tokenizer(model), ids[0]))
            break;
        printf("%s", pl_detokenize(words, ids[0]));
        fflush(stdout);
    }
    printf("%s\n", pl_detokenize_flush(words));
    free(logits);
    free(ids);
    pl_detokenizer_free(words);
    pl_sampler_free(sampler);
    pl_engine_free(engine);
    pl_model_free(model);
    return 0;
}
