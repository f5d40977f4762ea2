/* A chat: a line in, an answer out, until the input ends.
 *
 *   chat_loop MODEL [DEVICES]
 *
 * The template in the model's file makes a prompt of all messages. The prefix
 * cache has the start of earlier prompts, so only the rest is computed. */
#include <pl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TOKENS = 64 }; /* greatest number of tokens of an answer */
static char messages[1 << 20] = "[]", line[1 << 12], answer[1 << 14];
/* Flags of a batch's tokens: 1 for the last one, whose logits are wanted. */
static uint8_t wanted[1 << 20];

static int die(const char *message)
{
    fprintf(stderr, "chat_loop: %s\n", message);
    return 1;
}

/* Adds a message to the JSON list. Returns false if it does not fit. */
static bool add(const char *role, const char *text)
{
    /* offset of the list's closing bracket, which is overwritten */
    size_t at = strlen(messages) - 1;

    if (6 * strlen(text) + 64 > sizeof messages - at)
        return false;
    at += (size_t)sprintf(messages + at, "%s{\"role\": \"%s\", \"content\": \"",
                          at > 1 ? ", " : "", role);
    for (; *text; text++)
        if (*text == '"' || *text == '\\' || (unsigned char)*text < ' ')
            at += (size_t)sprintf(messages + at, "\\u%04x", *text);
        else
            messages[at++] = *text;
    strcpy(messages + at, "\"}]");
    return true;
}

int main(int argc, char **argv)
{
    pl_options opt = {.size = sizeof opt, .prefix_cache = true};
    pl_conversation talk = {.size = sizeof talk, .messages = messages};
    pl_model *model = NULL;
    pl_engine *engine = NULL;
    pl_template *form = NULL;
    pl_sampler *sampler = NULL;
    pl_detokenizer *words = NULL;
    const pl_tokenizer *vocab;
    pl_batch batch = {.size = sizeof batch, .wanted = wanted};
    pl_err err;

    if (argc < 2)
        return die("usage: chat_loop MODEL [DEVICES]");
    opt.devices = argc > 2 ? argv[2] : "cpu";
    if (pl_model_open(&model, argv[1], &err) != PL_OK ||
        pl_template_create(&form, NULL, 0, argv[1], &err) != PL_OK ||
        pl_engine_create(&engine, model, &opt, &err) != PL_OK ||
        pl_sampler_create(&sampler, NULL, pl_model_n_vocab(model), &err) !=
            PL_OK ||
        pl_detokenizer_create(&words, pl_model_tokenizer(model), false, &err) !=
            PL_OK)
        return die(err.message);
    vocab = pl_model_tokenizer(model);
    batch.logits = calloc((size_t)pl_model_n_vocab(model), sizeof(float));
    while (batch.logits && fgets(line, sizeof line, stdin)) {
        char *prompt = NULL;
        int32_t *ids = NULL;
        int64_t n, done = 0;
        size_t len;

        line[strcspn(line, "\n")] = '\0';
        answer[0] = '\0';
        if (!add("user", line))
            return die("the conversation is too long");
        if (pl_template_render(form, &talk, &prompt, &len, &err) != PL_OK ||
            pl_tokenize(vocab, prompt, len, PL_PARSE_SPECIAL, &ids, &n, &err) !=
                PL_OK ||
            pl_seq_trim(engine, 0, 0, NULL, &err) != PL_OK ||
            pl_seq_share(engine, 0, ids, n, &done, &err) != PL_OK)
            return die(err.message);
        batch.token = ids + done;
        batch.n = n - done;
        for (int i = 0; i < MOST_TOKENS; i++) {
            pl_status s;

            wanted[batch.n - 1] = 1;
            s = pl_engine_decode(engine, &batch, NULL, &err);
            wanted[batch.n - 1] = 0;
            if (s == PL_FULL && i > 0)
                break;
            if (s != PL_OK)
                return die(err.message);
            ids[0] = pl_sample(sampler, batch.logits);
            if (ids[0] < 0 || pl_token_is_eog(vocab, ids[0]))
                break;
            strncat(answer, pl_detokenize(words, ids[0]),
                    sizeof answer - strlen(answer) - 1);
            batch.token = ids;
            batch.n = 1;
        }
        printf("%s%s\n", answer, pl_detokenize_flush(words));
        fflush(stdout);
        if (!add("assistant", answer))
            return die("the conversation is too long");
        free(prompt);
        free(ids);
    }
    free(batch.logits);
    pl_detokenizer_free(words);
    pl_sampler_free(sampler);
    pl_engine_free(engine);
    pl_template_free(form);
    pl_model_free(model);
    return 0;
}
