/* Reads the size of a model, and the kind of its tokenizer, from the JSON that
 * `plait inspect` prints. */
#include "model_facts.h"

#include "fail.h"
#include "json_text.h"

#include <string.h>

/* The kinds of tokenizers in the order of llama.cpp's enum llama_vocab_type,
 * from 1 on, by the values of tokenizer.ggml.model. */
static const char *const kinds[] = {"llama", "gpt2", "bert",
                                    "t5",    "rwkv", "plamo2"};

static int kind_of(const char *name)
{
    for (size_t i = 0; name != NULL && i < sizeof kinds / sizeof kinds[0]; i++)
        if (strcmp(name, kinds[i]) == 0)
            return (int)i + 1;
    /* further kinds, such as gemma4, are BPE too */
    return name != NULL ? 2 : 0;
}

static void add(void *user, const char *s, size_t n)
{
    /* Errors are ignored: if memory is short, the JSON is truncated and does
     * not parse. */
    text_add(user, s, n);
}

pl_status model_facts_read(struct model_facts *out, const pl_model *m,
                           pl_err *err)
{
    struct text t = {0};
    const json_t *totals;
    json_t *j = NULL;
    pl_status s = pl_model_inspect(m, true, add, &t, err);

    *out = (struct model_facts){0};
    if (s == PL_OK)
        j = json_loadb(t.s, t.n, 0, NULL);
    text_free(&t);
    if (j == NULL)
        return server_fail(err, PL_NO_MEMORY,
                           "no memory for the facts of a model");
    totals = json_object_get(j, "totals");
    out->n_param = json_integer_value(json_object_get(totals, "values"));
    out->n_byte = json_integer_value(json_object_get(totals, "bytes"));
    out->vocab_type = kind_of(json_string_value(json_object_get(
        json_object_get(json_object_get(j, "metadata"), "tokenizer.ggml.model"),
        "value")));
    json_decref(j);
    return PL_OK;
}
