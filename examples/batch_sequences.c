/* Continues several texts at once, each in a sequence of its own. Every step
 * computes one token of each text.
 *
 *   batch_sequences MODEL DEVICES TEXT...
 *
 * A text's result has the same bits as if it were computed alone. Together they
 * take little longer than one, because a step reads the weights once for all of
 * them. */
#include <pl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_TOKENS = 24, MAX_TEXTS = 16, MAX_BATCH = 1024 };

static int die(const char *message)
{
    fprintf(stderr, "batch_sequences: %s\n", message);
    return 1;
}

int main(int argc, char **argv)
{
    static int32_t token[MAX_BATCH], seq[MAX_BATCH];
    static uint8_t wanted[MAX_BATCH];
    static char text[MAX_TEXTS][4096];
    const int n_text = argc - 3;
    pl_options opt = {.size = sizeof opt, .n_seq = n_text};
    pl_batch batch = {
        .size = sizeof batch, .token = token, .seq = seq, .wanted = wanted};
    pl_model *model = NULL;
    pl_engine *engine = NULL;
    /* One sampler serves all texts: it is greedy and has no penalties, so its
     * choice depends only on the logits. */
    pl_sampler *sampler = NULL;
    pl_detokenizer *words[MAX_TEXTS] = {0};
    const pl_tokenizer *vocab;
    pl_sampling greedy;
    pl_err err;

    if (n_text < 1 || n_text > MAX_TEXTS)
        return die("usage: batch_sequences MODEL DEVICES TEXT...");
    opt.devices = argv[2];
    pl_sampling_init(&greedy);
    greedy.temperature = 0;
    if (pl_model_open(&model, argv[1], &err) != PL_OK ||
        pl_engine_create(&engine, model, &opt, &err) != PL_OK ||
        pl_sampler_create(&sampler, &greedy, pl_model_n_vocab(model), &err) !=
            PL_OK)
        return die(err.message);
    vocab = pl_model_tokenizer(model);
    batch.logits = calloc((size_t)n_text * (size_t)pl_model_n_vocab(model),
                          sizeof *batch.logits);
    if (!batch.logits)
        return die("no memory for logits");
    /* The first batch has all prompts, and wants the logits of the last token
     * of each. */
    for (int i = 0; i < n_text; i++) {
        const char *prompt = argv[i + 3];
        int32_t *ids = NULL;
        int64_t n;

        if (pl_detokenizer_create(&words[i], vocab, false, &err) != PL_OK ||
            pl_tokenize(vocab, prompt, strlen(prompt), PL_ADD_SPECIAL, &ids, &n,
                        &err) != PL_OK)
            return die(err.message);
        if (n == 0 || batch.n + n > MAX_BATCH)
            return die("a text is empty, or all together are too long");
        for (int64_t k = 0; k < n; k++, batch.n++) {
            token[batch.n] = ids[k];
            seq[batch.n] = i;
            wanted[batch.n] = k == n - 1;
        }
        free(ids);
    }
    for (int step = 0; step < N_TOKENS && batch.n > 0; step++) {
        const float *row = batch.logits;
        /* number of tokens in the next batch: one for each text that
         * continues */
        int64_t n = 0;

        if (pl_engine_decode(engine, &batch, NULL, &err) != PL_OK)
            return die(err.message);
        for (int64_t k = 0; k < batch.n; k++) {
            int32_t id, i = seq[k];

            if (!wanted[k])
                continue;
            id = pl_sample(sampler, row);
            row += pl_model_n_vocab(model);
            if (id < 0 || pl_token_is_eog(vocab, id))
                /* this text has ended, so its sequence gets no further token */
                continue;
            strncat(text[i], pl_detokenize(words[i], id),
                    sizeof text[i] - strlen(text[i]) - 1);
            token[n] = id;
            seq[n] = i;
            wanted[n++] = 1;
        }
        batch.n = n;
    }
    for (int i = 0; i < n_text; i++) {
        printf("%s%s%s\n", argv[i + 3], text[i], pl_detokenize_flush(words[i]));
        pl_detokenizer_free(words[i]);
    }
    free(batch.logits);
    pl_sampler_free(sampler);
    pl_engine_free(engine);
    pl_model_free(model);
    return 0;
}
