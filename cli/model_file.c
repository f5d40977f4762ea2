/* Tells models from other GGUF files, by their metadata. See model_file.h. */
#include "model_file.h"

#include "pl.h"

#include "server/json_text.h"

#include <string.h>

static void collect(void *user, const char *text, size_t len)
{
    /* if memory runs out, the rest of the description is missing, and the file
     * may count as a model */
    text_add(user, text, len);
}

/* Copies the value that follows `key` in the description of a file (pl_inspect)
 * to `out`; "" if there is none. */
static void value_of(const char *all, const char *key, char *out, size_t size)
{
    const char *at = strstr(all, key);
    size_t n;

    out[0] = '\0';
    if (at == NULL || (at = strchr(at, '"')) == NULL)
        return;
    n = strcspn(++at, "\"\n");
    n = n < size ? n : size - 1;
    memcpy(out, at, n);
    out[n] = '\0';
}

bool model_file_may_be_one(const char *path)
{
    struct text all = {0};
    char type[32], arch[32];
    bool may = true;

    if (pl_inspect(path, false, collect, &all, NULL) == PL_OK && all.s) {
        value_of(all.s, "\n  general.type ", type, sizeof(type));
        value_of(all.s, "\n  general.architecture ", arch, sizeof(arch));
        may = (type[0] == '\0' || strcmp(type, "model") == 0) &&
              strcmp(arch, "clip") != 0 && strcmp(arch, "imatrix") != 0;
    }
    text_free(&all);
    return may;
}

bool model_file_opens(const char *path)
{
    pl_model *m;
    bool opens = pl_model_open(&m, path, NULL) == PL_OK;

    pl_model_free(m);
    return opens;
}
