/* Finds the reference models that exist on this machine; ref_models.h describes
 * the functions. */
#include "lib/ref_models.h"

#include "lib/made_model.h"
#include "model/model.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NAME = 1024 };

struct names {
    /* names of models, sorted, the last one NULL; the strings are owned */
    const char *name[MAX_NAME + 1];
    int n;
};

static bool has(const struct names *l, const char *name)
{
    for (int i = 0; i < l->n; i++)
        if (!strcmp(l->name[i], name))
            return true;
    return false;
}

static void add(struct names *l, const char *prefix, const char *name, int len)
{
    char *text = NULL;

    assert_in_range(l->n, 0, MAX_NAME - 1);
    assert_true(asprintf(&text, "%s%.*s", prefix, len, name) > 0);
    if (has(l, text))
        free(text);
    else
        l->name[l->n++] = text;
}

/* Returns true if the model of the file, which lies in `dir`, is of a family
 * that the library knows. */
static bool is_known(const char *dir, const char *file)
{
    char path[4096];
    struct gguf_str arch;
    struct gguf *g;
    bool known = false;

    snprintf(path, sizeof path, "%s/%s", dir, file);
    if (gguf_open(&g, path, NULL) != PL_OK)
        return false;
    if (gguf_get_str(g, "general.architecture", &arch, NULL) == PL_OK && arch.s)
        for (int i = 0; model_family_name(i) && !known; i++)
            known = strlen(model_family_name(i)) == arch.len &&
                    !memcmp(model_family_name(i), arch.s, arch.len);
    gguf_close(g);
    return known;
}

static void add_folder(struct names *l, const char *dir, bool further)
{
    DIR *d = dir ? opendir(dir) : NULL;
    struct dirent *e;

    if (!d)
        return;
    while ((e = readdir(d))) {
        int len = (int)strlen(e->d_name) - 5;

        if (len > 0 && !strcmp(e->d_name + len, ".gguf") &&
            (!further || is_known(dir, e->d_name)))
            add(l, "", e->d_name, len);
    }
    closedir(d);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void find(struct names *l, bool all)
{
    const char *env = getenv("PLAIT_REFS");
    const struct made_name *made;
    int n_made;

    add_folder(l, test_ref("."), false);
    add_folder(l, test_file("tests/refs"), false);
    if (all && !(env && env[0])) {
        add_folder(l, test_file("../shared/refs-next"), true);
        add_folder(l, test_file("../shared/refs-next/extra"), true);
    }
    made = made_model_names(&n_made);
    for (int i = 0; i < n_made; i++)
        if (all || made[i].smallest || !has(l, made[i].name))
            add(l, "made/", made[i].name, (int)strlen(made[i].name));
    qsort(l->name, (size_t)l->n, sizeof l->name[0], by_name);
}

const char *const *ref_models(bool all)
{
    static struct names names[2];

    if (names[all].n == 0)
        find(&names[all], all);
    return names[all].name;
}

bool ref_model_is_made(const char *name)
{
    for (const char *const *l = ref_models(true); *l; l++)
        if (!strcmp(*l, name))
            return !strncmp(name, "made/", 5);
    return true;
}

bool ref_model_is_core(const char *name)
{
    static const char *const core[] = {
        "llama",     "llama3",    "qwen2",    "qwen3",  "qwen3moe",
        "glm4moe",   "gemma3",    "gemma4",   "gptoss", "qwen35",
        "qwen35moe", "qwen3next", "deepseek2"};
    const char *own = strncmp(name, "made/", 5) ? name : name + 5;
    size_t n = strcspn(own, "-");

    for (size_t i = 0; i < sizeof core / sizeof *core; i++)
        if (strlen(core[i]) == n && !strncmp(core[i], own, n))
            return true;
    return false;
}

static const char *file_of(const char *name, const char *suffix)
{
    char file[128];
    const char *path;

    snprintf(file, sizeof file, "%s%s", name, suffix);
    path = test_ref(file);
    if (!path)
        fail_msg("%s is not at hand", file);
    return path;
}

const char *ref_model_path(const char *name)
{
    return file_of(name, ".gguf");
}

int ref_sequences(const char *name, struct ref_seq seq[REF_SEQS])
{
    const char *path = file_of(name, ".tokens.txt");
    FILE *f = fopen(path, "r");
    int row = 0;

    if (!f)
        fail_msg("%s: %s", path, strerror(errno));
    for (struct ref_seq *s = seq; s < seq + REF_SEQS; s++) {
        assert_int_equal(fscanf(f, "%d %d", &s->n_prompt, &s->n), 2);
        s->n += s->n_prompt;
        s->row = row;
        assert_in_range(s->n, 1, REF_MAX_TOK);
        for (int i = 0; i < s->n; i++)
            assert_int_equal(fscanf(f, "%d", &s->id[i]), 1);
        row += s->n;
    }
    fclose(f);
    return row;
}
