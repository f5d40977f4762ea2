/* Tries JSON Schemas; schema_try.h describes the functions. */
#include "lib/schema_try.h"

#include "lib/support.h"

#include "base/wide_json.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

char *schema_quoted(const char *s)
{
    char *copy = test_need(strlen(s) + 1, 1);

    for (size_t i = 0; s[i]; i++)
        copy[i] = (char)(s[i] == '\'' ? '"' : s[i]);
    return copy;
}

static struct grammar *read_schema(const char *text)
{
    char *schema = schema_quoted(text);
    struct grammar *g = NULL;
    pl_err err = {0};

    if (grammar_from_schema(&g, schema, strlen(schema), "test", &err) != PL_OK)
        fail_msg("%s\n%s", schema, err.message);
    free(schema);
    return g;
}

void schema_try_start(struct schema_try *t, const char *schema)
{
    struct grammar_token token[256];
    static char byte[256];
    pl_err err = {0};

    *t = (struct schema_try){.g = read_schema(schema)};
    for (int i = 0; i < 256; i++) {
        byte[i] = (char)i;
        token[i] = (struct grammar_token){&byte[i], 1, GRAMMAR_TOKEN_TEXT};
    }
    TEST_OK(grammar_vocab_create(&t->v, token, 256, &err), err);
    TEST_OK(grammar_masks_create(&t->m, t->g, t->v, 0, &err), err);
}

void schema_try_stop(struct schema_try *t)
{
    grammar_masks_free(t->m);
    grammar_vocab_free(t->v);
    grammar_free(t->g);
}

bool schema_try_takes(const struct schema_try *t, const char *text)
{
    char *document = schema_quoted(text);
    struct grammar_state *s = NULL;
    pl_err err = {0};
    bool whole;

    TEST_OK(grammar_state_create(&s, t->m, &err), err);
    whole = grammar_accept_text(s, document, strlen(document), &err) == PL_OK &&
            grammar_is_whole(s);
    grammar_state_free(s);
    free(document);
    return whole;
}

/* Generates a random document of the grammar byte by byte. After a while, ends
 * it as soon as the grammar allows. The document must be JSON. */
static void expect_json(const struct schema_try *r, const char *schema,
                        uint64_t *rng)
{
    struct grammar_state *s = NULL;
    struct test_text text = {0};
    pl_err err = {0};
    json_error_t e;
    json_t *j;

    TEST_OK(grammar_state_create(&s, r->m, &err), err);
    for (int i = 0; i < 2000; i++) {
        uint32_t bits[8], id = (uint32_t)test_below(rng, 128);
        char c;

        if (grammar_is_whole(s) && (i > 40 || test_below(rng, 4) == 0))
            break;
        TEST_OK(grammar_mask(s, bits, &err), err);
        if (i > 40 && bits['"' / 32] >> '"' % 32 & 1)
            id = '"';
        for (int k = 0; k < 256 && !(bits[id / 32] >> id % 32 & 1); k++)
            id = (id + 1) % 256;
        c = (char)id;
        if (!(bits[id / 32] >> id % 32 & 1))
            break;
        test_text_add(&text, &c, 1);
        TEST_OK(grammar_accept(s, (int32_t)id, &err), err);
    }
    if (grammar_is_whole(s)) {
        j = wide_json(text.s, text.n, JSON_DECODE_ANY | JSON_ALLOW_NUL, &e);
        if (!j)
            fail_msg("%s\nmakes %.*s", schema, (int)text.n, text.s);
        json_decref(j);
    }
    free(text.s);
    grammar_state_free(s);
}

void schema_try_expect(const char *schema, const char *const *in,
                       const char *const *out, const char *note)
{
    struct schema_try t;
    uint64_t rng = test_seed();
    const char *notes;

    schema_try_start(&t, schema);
    notes = grammar_notes(t.g);
    if (!strstr(notes, note) || (!*note && *notes))
        fail_msg("%s\nhas the notes: %s\nnot: %s", schema, notes, note);
    for (; *in; in++)
        if (!schema_try_takes(&t, *in))
            fail_msg("%s\ndoes not take %s", schema, *in);
    for (; *out; out++)
        if (schema_try_takes(&t, *out))
            fail_msg("%s\ntakes %s", schema, *out);
    for (int i = 0; i < 20; i++)
        expect_json(&t, schema, &rng);
    schema_try_stop(&t);
}
