/* Fuzzes the parser of GBNF: parsing gives a grammar or a message. Small
 * grammars are then run over a vocabulary of bytes and a few words: tokens in a
 * mask must be accepted, and all others rejected. */
#include "grammar/grammar.h"

#include <stdlib.h>
#include <string.h>

int fuzz_grammar(const uint8_t *data, size_t n);

enum {
    N_TOKEN = 256 + 12,
    N_WORD = (N_TOKEN + 31) / 32,
    WALKED_BYTES = 4096,
    STEPS = 12,
};

static void require(bool ok)
{
    if (!ok)
        __builtin_trap();
}

static struct grammar_vocab *words(void)
{
    static const char *const word[N_TOKEN - 256] = {
        "ab", "\"a", "true", "{\"", "\":", "\xc3\xa9",
        "  ", "00",  "1.5",  "",    "end", "\r\n"};
    struct grammar_token token[N_TOKEN];
    char bytes[256];
    struct grammar_vocab *v = NULL;

    for (int i = 0; i < 256; i++) {
        bytes[i] = (char)i;
        token[i] = (struct grammar_token){&bytes[i], 1, GRAMMAR_TOKEN_TEXT};
    }
    for (int i = 256; i < N_TOKEN; i++)
        token[i] = (struct grammar_token){
            word[i - 256], (uint32_t)strlen(word[i - 256]), GRAMMAR_TOKEN_TEXT};
    token[N_TOKEN - 2].kind = GRAMMAR_TOKEN_END;
    if (grammar_vocab_create(&v, token, N_TOKEN, NULL) != PL_OK)
        return NULL;
    return v;
}

static void walk(struct grammar_state *s, uint64_t random)
{
    uint32_t bits[N_WORD];

    for (int i = 0; i < STEPS; i++) {
        int32_t first, id;

        if (grammar_mask(s, bits, NULL) != PL_OK)
            return;
        random = random * 6364136223846793005u + 1442695040888963407u;
        first = id = (int32_t)((random >> 33) % N_TOKEN);
        while (!(bits[id / 32] >> id % 32 & 1)) {
            id = (id + 1) % N_TOKEN;
            if (id == first)
                return;
        }
        if (id != first)
            require(grammar_accept(s, first, NULL) != PL_OK);
        require(grammar_accept(s, id, NULL) == PL_OK);
    }
}

int fuzz_grammar(const uint8_t *data, size_t n)
{
    struct grammar *g = NULL;
    struct grammar_vocab *v = NULL;
    struct grammar_masks *m = NULL;
    struct grammar_state *s = NULL;
    pl_err err = {0};
    uint64_t random = n;

    if (grammar_from_gbnf(&g, (const char *)data, n, NULL, "fuzz", &err) !=
        PL_OK) {
        require(g == NULL && strlen(err.message) > 0);
        return 0;
    }
    for (size_t i = 0; i < n; i++)
        random = random * 31 + data[i];
    if (n <= WALKED_BYTES)
        v = words();
    if (v && grammar_masks_create(&m, g, v, 0, NULL) == PL_OK &&
        grammar_state_create(&s, m, NULL) == PL_OK)
        walk(s, random);
    grammar_state_free(s);
    grammar_masks_free(m);
    grammar_vocab_free(v);
    grammar_free(g);
    return 0;
}
