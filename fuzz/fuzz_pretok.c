/* Fuzzes pre-tokenizers, which cut a text into pieces: the pieces joined must
 * be the text. The first byte chooses the rule, the rest is the text. */
#include "tokenizer/pretok.h"

#include <stdint.h>
#include <string.h>

int fuzz_pretok(const uint8_t *data, size_t n);

static const char *const names[] = {
    "gpt-2",     "mpt",    "starcoder",    "refact",      "command-r",
    "llama-bpe", "glm4",   "qwen2",        "qwen35",      "deepseek-coder",
    "gpt-4o",    "falcon", "deepseek-llm", "deepseek-v3", "tekken",
    "kimi-k2",   "afmoe",  "youtu",        "tiny_aya",    "superbpe",
    "minicpm5",  "laguna", "seed-coder",   "exaone-moe",  "jais-2",
    "bloom",     "viking", "chameleon",    "default",
};
enum { N_NAME = sizeof(names) / sizeof(names[0]) };

static void require(bool ok)
{
    if (!ok)
        __builtin_trap();
}

struct joined {
    const char *s;
    size_t at;
};

static pl_status take(void *user, const char *s, size_t len, int by,
                      pl_err *err)
{
    struct joined *j = user;

    (void)err;
    require(by >= -1 && by < PRETOK_MAX_EXPR);
    require(len > 0 && s == j->s + j->at);
    j->at += len;
    return PL_OK;
}

int fuzz_pretok(const uint8_t *data, size_t n)
{
    /* rules, compiled by the first input that chooses them and kept for later
     * ones */
    static struct pretok *rule[N_NAME];
    struct joined j = {0};
    unsigned which;

    if (n == 0)
        return 0;
    which = data[0] % N_NAME;
    if (rule[which] == NULL &&
        pretok_create(&rule[which], names[which], strlen(names[which]), "fuzz",
                      NULL) != PL_OK)
        return 0;
    j.s = (const char *)data + 1;
    require(pretok_split(rule[which], j.s, n - 1, take, &j, NULL) == PL_OK);
    require(j.at == n - 1);
    return 0;
}
