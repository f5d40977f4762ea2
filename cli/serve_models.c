/* Creates the list of models from the command line. The options of a model come
 * from three sources: section [*] of the presets, the section of the model, and
 * the command line. Later sources take precedence. All options are parsed as
 * words of a command line. */
#include "serve_models.h"

#include "atomic_file.h"
#include "cmd.h"
#include "fetch.h"
#include "input.h"
#include "model_file.h"
#include "option_table.h"
#include "printable.h"
#include "session.h"

#include "hub/hub.h"
#include "server/json_text.h"
#include "server/preset.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static enum exit_code no_memory(void)
{
    return cli_error(CMD_SERVE, EXIT_FAILED, "no memory for a list of models");
}

/* ---- the command line ---------------------------------------------------- */

/* Returns true if the option names a model: its file, repository or URL. Each
 * such option on the command line adds a model. */
static bool names_model(const struct option_row *row)
{
    return row->offset == offsetof(struct options, model) ||
           row->offset == offsetof(struct options, hf_repo) ||
           row->offset == offsetof(struct options, model_url);
}

/* Iterator over the options in the words of a command line that was parsed
 * successfully. */
struct walk {
    char **word; /* [n] words of the command line */
    int n, next;
    const struct option_row *row;
    /* value of the current option; NULL if the option takes none */
    const char *value;
};

static bool walk_on(struct walk *w)
{
    const char *word, *equals;
    char name[64];

    if (w->next >= w->n)
        return false;
    word = w->word[w->next++];
    equals = strncmp(word, "--", 2) == 0 ? strchr(word, '=') : NULL;
    snprintf(name, sizeof(name), "%.*s",
             equals != NULL ? (int)(equals - word) : (int)strlen(word), word);
    w->row = option_find(name, 1u << CMD_SERVE);
    w->value = NULL;
    if (w->row->arg != NULL)
        w->value = equals != NULL ? equals + 1 : w->word[w->next++];
    return true;
}

bool serve_has_many(const struct options *o)
{
    struct walk w = {.word = o->words.v, .n = o->words.n};
    int n = 0;

    while (walk_on(&w))
        n += names_model(w.row);
    return n > 1 || o->models_dir != NULL || o->models_preset != NULL;
}

/* Returns the option's long name, or the short one if it has none. */
static const char *name_of_row(const struct option_row *row)
{
    return row->name[1] != NULL ? row->name[1] : row->name[0];
}

/* ---- names --------------------------------------------------------------- */

/* Returns the name of a file without folder, extension and the part number of a
 * split file; malloc'ed. */
static char *name_of_file(const char *path)
{
    const char *slash = strrchr(path, '/'), *at = slash ? slash + 1 : path;
    size_t n = strlen(at);
    int a, b, end = 0;

    if (n > 5 && strcmp(at + n - 5, ".gguf") == 0)
        n -= 5;
    if (n > 15 && sscanf(at + n - 15, "-%5d-of-%5d%n", &a, &b, &end) == 2 &&
        end == 15 && strcmp(at + n, ".gguf") == 0)
        n -= 15;
    return strndup(at, n);
}

/* Returns the name of the file that a URL names, as name_of_file() does. It is
 * shown to clients, so it contains no query and no password. */
static char *name_of_url(const char *url)
{
    char buf[HUB_SHOWN];

    hub_shown(buf, url);
    buf[strcspn(buf, "?")] = '\0';
    return name_of_file(buf);
}

static struct serve_named *find_named(const struct serve_list *l,
                                      const char *name)
{
    for (int i = 0; i < l->n; i++)
        if (strcmp(l->named[i].name, name) == 0)
            return &l->named[i];
    return NULL;
}

static bool has_word(const struct word_list *w, const char *word)
{
    for (int i = 0; i < w->n; i++)
        if (strcmp(w->v[i], word) == 0)
            return true;
    return false;
}

/* Adds a model with this name and takes ownership of `name`. Replaces invalid
 * UTF-8 in it, because a file name may contain any bytes, but JSON may not.
 * Returns NULL if `name` is NULL or memory runs out. */
static struct serve_named *add_named(struct serve_list *l, char *name)
{
    char *valid = name ? utf8_copy(name, strlen(name)) : NULL;
    struct serve_named *more =
        valid ? realloc(l->named, ((size_t)l->n + 1) * sizeof(*more)) : NULL;

    free(name);
    if (more == NULL) {
        free(valid);
        return NULL;
    }
    l->named = more;
    more[l->n] = (struct serve_named){.name = valid};
    return &more[l->n++];
}

/* ---- -m and -hf ---------------------------------------------------------- */

/* Gives a model the names of --alias, separated by commas. The first replaces
 * the model's name, the others become aliases. */
static bool set_alias(struct serve_named *m, const char *names)
{
    bool ok = true, first = true;

    while (*names != '\0' && ok) {
        size_t n = strcspn(names, ",");
        char *name = n > 0 ? utf8_copy(names, n) : NULL;

        names += n + (names[n] != '\0');
        if (n == 0)
            continue;
        if (name != NULL && first) {
            free(m->name);
            m->name = name;
        } else {
            ok = name != NULL && word_list_add(&m->alias, name);
            free(name);
        }
        first = false;
    }
    return ok;
}

static enum exit_code read_line(struct serve_list *l, const struct options *o)
{
    struct walk w = {.word = o->words.v, .n = o->words.n};
    /* value of an --alias that stands before the first model; it names that
     * model */
    const char *alias = NULL;
    struct serve_named *m = NULL;
    bool ok = true;

    while (walk_on(&w) && ok) {
        struct word_list *to;

        if (w.row->offset == offsetof(struct options, alias)) {
            ok = m == NULL || set_alias(m, w.value);
            alias = m == NULL ? w.value : NULL;
        }
        if (w.row->commands & OPTION_PROCESS)
            continue;
        if (names_model(w.row)) {
            m = add_named(l,
                          w.row->offset == offsetof(struct options, hf_repo)
                              ? strdup(w.value)
                          : w.row->offset == offsetof(struct options, model_url)
                              ? name_of_url(w.value)
                              : name_of_file(w.value));
            ok = m != NULL && (alias == NULL || set_alias(m, alias));
            alias = NULL;
            if (ok)
                m->first = true;
        }
        /* --hf-file selects a file of the repository named before it, so it
         * belongs to that model. */
        to = m != NULL && (names_model(w.row) ||
                           w.row->offset == offsetof(struct options, hf_file))
                 ? &m->own
                 : &l->common;
        ok = ok && word_list_add(to, name_of_row(w.row)) &&
             (w.value == NULL || word_list_add(to, w.value));
    }
    if (ok && alias != NULL)
        return cli_error(CMD_SERVE, EXIT_USAGE,
                         "--alias %s: the command line names no model; give "
                         "one with -m or -hf, or name it by a section of "
                         "--models-preset",
                         alias);
    return ok ? EXIT_DONE : no_memory();
}

/* ---- a folder ------------------------------------------------------------ */

/* Returns true if the name is that of a model file. For a split model, this is
 * the first file only. Image projectors (mmproj) are not models. */
static int is_model_file(const struct dirent *d)
{
    size_t n = strlen(d->d_name);
    int a, b, end = 0;

    if (d->d_name[0] == '.' || n <= 5 ||
        strcmp(d->d_name + n - 5, ".gguf") != 0 ||
        strncmp(d->d_name, "mmproj", 6) == 0)
        return 0;
    return n <= 20 ||
           sscanf(d->d_name + n - 20, "-%5d-of-%5d%n", &a, &b, &end) != 2 ||
           end != 15 || a == 1;
}

static int is_shown(const struct dirent *d)
{
    return d->d_name[0] != '.';
}

static void free_list(struct dirent **list, int n)
{
    for (int i = 0; i < n; i++)
        free(list[i]);
    free(list);
}

/* Returns the path of the file of a model that was found in the folder. */
static const char *file_of(const struct serve_named *m)
{
    return m->own.v[1];
}

/* Returns the index of the model in `l` that was found in the folder and has
 * the file `path`; -1 if there is none. `l` may be NULL. */
static int find_file(const struct serve_list *l, const char *path)
{
    for (int i = 0; l != NULL && i < l->n; i++)
        if (l->named[i].in_folder && strcmp(file_of(&l->named[i]), path) == 0)
            return i;
    return -1;
}

static bool add_file(struct serve_list *l, char *name, const char *path)
{
    struct serve_named *m = add_named(l, name);

    if (m == NULL)
        return false;
    m->in_folder = true;
    return word_list_add(&m->own, "--model") && word_list_add(&m->own, path);
}

/* Counts the files in[n] of a folder for which is(path) returns true. Sets
 * *file to the path of the first such file, malloc'ed; NULL if there is
 * none. */
static int count_models(const char *folder, struct dirent **in, int n,
                        bool (*is)(const char *path), char **file)
{
    int n_model = 0;

    *file = NULL;
    for (int i = 0; i < n; i++) {
        char *path = NULL;

        if (asprintf(&path, "%s/%s", folder, in[i]->d_name) < 0)
            path = NULL;
        if (path != NULL && is(path) && n_model++ == 0)
            *file = path;
        else
            free(path);
    }
    return n_model;
}

/* Returns the path of the model among the n files of a subfolder, malloc'ed;
 * NULL if there is none, or if several files may be models. Prints a note in
 * the latter case. */
static char *pick_model(const struct serve_list *l, const char *folder,
                        struct dirent **in, int n)
{
    char *file = NULL, *runs;
    int n_model;

    for (int i = 0; l->known != NULL && i < n; i++) {
        if (asprintf(&file, "%s/%s", folder, in[i]->d_name) < 0)
            return NULL;
        if (find_file(l->known, file) >= 0)
            return file;
        free(file);
    }
    n_model = count_models(folder, in, n, model_file_may_be_one, &file);
    if (n_model <= 1)
        return file;
    free(file);
    if (count_models(folder, in, n, model_file_opens, &runs) == 1)
        return runs;
    free(runs);
    if (l->known == NULL)
        cli_error(CMD_SERVE, EXIT_DONE,
                  "skipping %s, which has %d models; put each in its own "
                  "directory, or use -m",
                  folder, n_model);
    return NULL;
}

/* Adds the model in a subfolder if exactly one of the subfolder's GGUF files is
 * a model. */
static bool add_folder(struct serve_list *l, const char *name, const char *path)
{
    struct dirent **in = NULL;
    int n = scandir(path, &in, is_model_file, alphasort);
    char *file = n > 0 ? pick_model(l, path, in, n) : NULL;
    bool ok = file == NULL || add_file(l, strdup(name), file);

    free(file);
    free_list(in, n);
    return ok;
}

static bool add_entry(struct serve_list *l, const char *dir,
                      const struct dirent *d)
{
    struct stat st;
    char *path = NULL;
    bool ok = asprintf(&path, "%s/%s", dir, d->d_name) >= 0;

    if (ok && stat(path, &st) == 0) {
        if (S_ISDIR(st.st_mode))
            ok = add_folder(l, d->d_name, path);
        else if (is_model_file(d) && (find_file(l->known, path) >= 0 ||
                                      model_file_may_be_one(path)))
            ok = add_file(l, name_of_file(path), path);
    }
    free(path);
    return ok;
}

static enum exit_code read_folder(struct serve_list *l, const char *dir)
{
    struct dirent **in = NULL;
    int n = scandir(dir, &in, is_shown, alphasort);
    bool ok = true;

    if (n < 0 && l->known != NULL)
        return EXIT_FAILED;
    if (n < 0)
        return cli_error(CMD_SERVE, EXIT_FAILED, "reading the directory %s: %s",
                         dir, strerror(errno));
    for (int i = 0; i < n && ok; i++)
        ok = add_entry(l, dir, in[i]);
    free_list(in, n);
    return ok ? EXIT_DONE : no_memory();
}

/* ---- the cache of downloads ---------------------------------------------- */

/* Returns false if a cached file is not a model or cannot be opened as one.
 * Prints a line in the latter case, and adds the file to l->rejected. */
static bool opens(struct serve_list *l, const char *name, const char *path)
{
    pl_model *m = NULL;
    pl_err err;
    bool ok;

    if (has_word(&l->rejected, path) ||
        (l->known != NULL && has_word(&l->known->rejected, path)) ||
        !model_file_may_be_one(path))
        return false;
    ok = pl_model_open(&m, path, &err) == PL_OK;
    pl_model_free(m);
    if (!ok) {
        cli_error(CMD_SERVE, EXIT_DONE, "skipping %s of the cache: %s", name,
                  err.message);
        word_list_add(&l->rejected, path);
    }
    return ok;
}

/* Adds a cached model. If there is one with its name, the newer file is added
 * or, if the server has that model already, the server's file. A
 * hub_cached_fn. */
static bool add_cached(void *list, const char *name, const char *path)
{
    struct serve_list *l = list;
    const struct serve_named *old =
        l->known != NULL ? find_named(l->known, name) : NULL;

    if (find_named(l, name) != NULL ||
        (old != NULL ? strcmp(file_of(old), path) != 0 : !opens(l, name, path)))
        return true;
    return add_file(l, strdup(name), path);
}

/* Adds the models that -hf has downloaded, for a command line that names no
 * model. */
static enum exit_code read_cache(struct serve_list *l, const struct options *o)
{
    char *folder = NULL, *why = NULL;
    enum exit_code c = fetch_cached(o, add_cached, l, &folder);

    if (c == EXIT_DONE && l->n > 0) {
        cli_error(CMD_SERVE, EXIT_DONE,
                  "no model is named; serving those that -hf has downloaded "
                  "to %s, %d of them",
                  folder, l->n);
    } else if (c == EXIT_DONE) {
        if (folder != NULL && asprintf(&why, "; %s has none", folder) < 0)
            why = NULL;
        c = report_no_model(o, why != NULL ? why : "");
    }
    free(folder);
    free(why);
    return c;
}

/* ---- presets ------------------------------------------------------------- */

static enum exit_code refuse_key(const char *file, const struct preset_key *k,
                                 const char *why)
{
    char cut[SHOWN];

    return cli_error(CMD_SERVE, EXIT_USAGE, "%s, line %d: %s: %s", file,
                     k->line, clip_printable(cut, k->key), why);
}

/* Returns 1 for "true" and its synonyms, 0 for "false" and its synonyms, else
 * -1. */
static int parse_bool(const char *s)
{
    static const char *const yes[] = {"true", "1", "on", "yes", "enabled"};
    static const char *const no[] = {"false", "0", "off", "no", "disabled"};

    for (int i = 0; i < 5; i++)
        if (strcmp(s, yes[i]) == 0 || strcmp(s, no[i]) == 0)
            return strcmp(s, yes[i]) == 0;
    return -1;
}

/* Returns true, and prints a line, if only presets of llama.cpp have the key,
 * and there is nothing to do for it here. */
static bool ignore_key(const char *file, const struct preset_key *k)
{
    static const char *const keys[][2] = {
        {"stop-timeout",
         "a model is unloaded only after its requests have ended"},
        {"dedup-cache-models",
         "downloaded models are listed only if nothing else names a model"},
    };

    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (strcmp(k->key, keys[i][0]) == 0) {
            cli_error(CMD_SERVE, EXIT_DONE, "%s, line %d: ignoring %s: %s",
                      file, k->line, k->key, keys[i][1]);
            return true;
        }
    return false;
}

/* Appends to `to` the option for which a preset's key stands: an option that
 * only llama.cpp has, or a variable LLAMA_ARG_*. */
static enum exit_code read_llama_key(struct word_list *to, const char *file,
                                     const struct preset_key *k)
{
    char name[64];
    char *words[] = {name, k->value};
    const struct llama_option *l;
    struct word_list made = {0};
    enum exit_code c;
    bool known;

    if (strncmp(k->key, "LLAMA_", 6) == 0) {
        c = llama_variable(&made, CMD_SERVE, k->key, k->value, 0, NULL, &known);
        if (c == EXIT_DONE)
            c = known ? llama_rewrite(to, CMD_SERVE, made.n, made.v)
                      : refuse_key(file, k, "unknown variable");
        word_list_free(&made);
        return c;
    }
    snprintf(name, sizeof(name), "--%s", k->key);
    l = llama_find(name, CMD_SERVE);
    if (l == NULL) {
        snprintf(name, sizeof(name), "-%s", k->key);
        l = llama_find(name, CMD_SERVE);
    }
    if (l == NULL)
        return refuse_key(file, k, "unknown option");
    if (l->example == NULL || l->here == LLAMA_MEANS) {
        int truth = parse_bool(k->value);

        if (truth < 0)
            return refuse_key(file, k, "give true or false");
        return truth ? llama_rewrite(to, CMD_SERVE, 1, words) : EXIT_DONE;
    }
    return llama_rewrite(to, CMD_SERVE, 2, words);
}

/* Appends the option that a preset's key names to the words `to`. A flag that
 * the preset sets to false is appended to `off` instead. If `off` is NULL, such
 * a flag is left out, because flags are off by default. */
static enum exit_code read_key(struct word_list *to, struct word_list *off,
                               const char *file, const struct preset_key *k)
{
    const struct option_row *row;
    char name[64];
    int truth;
    bool ok;

    snprintf(name, sizeof(name), "--%s", k->key);
    row = option_find(name, 1u << CMD_SERVE);
    if (row == NULL) {
        snprintf(name, sizeof(name), "-%s", k->key);
        row = option_find(name, 1u << CMD_SERVE);
    }
    if (row == NULL)
        return ignore_key(file, k) ? EXIT_DONE : read_llama_key(to, file, k);
    if (row->commands & OPTION_PROCESS)
        return refuse_key(
            file, k,
            "a server option, not one of a model; give it on the command line");
    truth = parse_bool(k->value);
    if (row->arg == NULL && truth < 0)
        return refuse_key(file, k, "give true or false");
    if (row->arg == NULL && truth == 0)
        return off == NULL || word_list_add(off, name_of_row(row))
                   ? EXIT_DONE
                   : no_memory();
    ok = word_list_add(to, name_of_row(row)) &&
         (row->arg == NULL || word_list_add(to, k->value));
    return ok ? EXIT_DONE : no_memory();
}

static enum exit_code read_section(struct serve_list *l, const char *file,
                                   const struct preset_section *s)
{
    struct serve_named *m = find_named(l, s->name);
    struct word_list *to = &l->general, *off = NULL;
    enum exit_code c = EXIT_DONE;

    if (strcmp(s->name, "*") != 0) {
        if (m == NULL)
            m = add_named(l, strdup(s->name));
        if (m == NULL)
            return no_memory();
        m->in_presets = true;
        to = &m->own;
        off = &m->off;
    }
    for (int i = 0; i < s->n_key && c == EXIT_DONE; i++)
        c = read_key(to, off, file, &s->key[i]);
    return c;
}

static enum exit_code read_presets(struct serve_list *l,
                                   const struct options *o)
{
    struct preset p = {0};
    struct input in = {0};
    enum exit_code c = input_file(&in, o, o->models_preset);
    pl_err err;

    if (c != EXIT_DONE)
        return c;
    if (preset_read(&p, in.s, in.len, &err) != PL_OK)
        c = cli_error(CMD_SERVE, EXIT_USAGE, "%s, %s", o->models_preset,
                      err.message);
    for (int i = 0; i < p.n && c == EXIT_DONE; i++)
        c = read_section(l, o->models_preset, &p.section[i]);
    preset_free(&p);
    input_free(&in);
    return c;
}

/* Fills m->told with the options of m->args that clients may see, with secrets
 * replaced. */
static bool fill_shown_args(struct serve_named *m)
{
    bool ok = true;

    for (int i = 0; i < m->args.n && ok; i++) {
        const char *of = i > 0 ? m->args.v[i - 1] : "", *word = m->args.v[i];
        char buf[HUB_SHOWN];

        if (strcmp(of, "--hf-token") == 0)
            word = "...";
        else if (strcmp(of, "--model-url") == 0)
            word = hub_shown(buf, word);
        ok = word_list_add(&m->told, word);
    }
    return ok;
}

/* ---- making the list of models to serve ---------------------------------- */

/* Returns the path, repository or URL of the model, in the form that clients
 * may see, malloc'ed. NULL if the options name no model, or if out of
 * memory. */
static char *path_of(const struct options *o)
{
    char buf[HUB_SHOWN];

    if (o->model != NULL || o->hf_repo != NULL)
        return strdup(o->model != NULL ? o->model : o->hf_repo);
    return o->model_url != NULL ? strdup(hub_shown(buf, o->model_url)) : NULL;
}

/* Appends the options of section [*] of the presets file to m->args. Leaves out
 * flags that the model's section turns off. */
static bool add_general(struct serve_named *m, const struct word_list *general)
{
    struct walk w = {.word = general->v, .n = general->n};
    bool ok = true;

    while (ok && walk_on(&w)) {
        const char *name = name_of_row(w.row);

        if (has_word(&m->off, name))
            continue;
        ok = word_list_add(&m->args, name) &&
             (w.value == NULL || word_list_add(&m->args, w.value));
    }
    return ok;
}

/* Checks the options of the command line that all models have. */
static enum exit_code check_common(const struct serve_list *l)
{
    struct serve_entry e = {0};
    enum exit_code c =
        options_parse(&e.own, CMD_SERVE, l->common.n, l->common.v);

    e.o = &e.own;
    if (c == EXIT_DONE)
        c = serve_entry_prepare(&e);
    serve_entry_fini(&e);
    options_free(&e.own);
    return c;
}

/* Checks that no earlier model writes the lookup file of entry i, because the
 * model that is unloaded last would overwrite the statistics of the other. */
static enum exit_code check_lookup(const struct serve_list *l, int i)
{
    const char *path = l->entry[i].own.lookup_dynamic;

    for (int k = 0; k < i && path != NULL; k++) {
        const char *other = l->entry[k].own.lookup_dynamic;

        if (other != NULL && whole_same(path, other))
            return cli_error(
                CMD_SERVE, EXIT_USAGE,
                "--lookup-cache-dynamic %s: the models %s and %s would "
                "overwrite each other's statistics; give each model a file of "
                "its own in its section of --models-preset",
                path, l->named[k].name, l->named[i].name);
    }
    return EXIT_DONE;
}

static enum exit_code parse(struct serve_list *l, int i)
{
    struct serve_named *m = &l->named[i];
    struct serve_entry *e = &l->entry[i];
    struct options *o = &e->own;
    enum exit_code c;

    if (!add_general(m, &l->general) || !word_list_join(&m->args, &m->own) ||
        !word_list_join(&m->args, &l->common) || !fill_shown_args(m))
        return no_memory();
    c = options_parse(o, CMD_SERVE, m->args.n, m->args.v);
    e->o = o;
    if (c == EXIT_DONE)
        c = check_lookup(l, i);
    if (c == EXIT_DONE) {
        c = serve_entry_prepare(e);
        e->unprepared = c == EXIT_FAILED && m->in_presets;
    }
    if (e->unprepared)
        cli_error(CMD_SERVE, EXIT_DONE,
                  "the presets of the model %s: it cannot be loaded until "
                  "this is mended; the others are served",
                  m->name);
    else if (c != EXIT_DONE)
        return cli_error(CMD_SERVE, c, "from an option of the model %s",
                         m->name);
    m->path = path_of(o);
    if (m->path == NULL)
        return cli_error(CMD_SERVE, EXIT_USAGE,
                         "[%s] of the presets has no model; add model = FILE "
                         "or hf-repo = USER/REPO",
                         m->name);
    e->at_start = o->at_start || m->first;
    l->about[i] = (struct model_about){.name = m->name,
                                       .alias = (const char *const *)m->alias.v,
                                       .n_alias = m->alias.n,
                                       .tags = o->tags,
                                       .path = m->path,
                                       .args = (const char *const *)m->told.v,
                                       .n_args = m->told.n,
                                       .idle_s = o->sleep_idle_s,
                                       .pinned = o->pinned,
                                       .own = e};
    return EXIT_DONE;
}

/* Creates a list of the one model that the command line names. It gets the
 * options of the command line unchanged. */
static enum exit_code make_one(struct serve_list *l, const struct options *o)
{
    struct serve_named *m = add_named(l, name_of_file(o->model));

    if (m == NULL || (o->alias != NULL && !set_alias(m, o->alias)))
        return no_memory();
    l->any_name = true;
    return EXIT_DONE;
}

/* Allocates the arrays of the list with space for the models that
 * serve_list_scan may add, because pointers to the elements must stay valid. */
static bool reserve(struct serve_list *l)
{
    size_t n = (size_t)l->n + (l->scanned != NULL ? SERVE_MORE : 0);
    struct serve_named *named = realloc(l->named, n * sizeof(*named));

    l->named = named != NULL ? named : l->named;
    l->about = calloc(n, sizeof(*l->about));
    l->entry = calloc(n, sizeof(*l->entry));
    l->max = (int)n;
    return named != NULL && l->about != NULL && l->entry != NULL;
}

enum exit_code serve_list_make(struct serve_list *l, const struct options *o)
{
    const bool none = !serve_has_many(o) && o->model == NULL;
    const bool many = none || serve_has_many(o);
    enum exit_code c;

    *l = (struct serve_list){0};
    c = many ? read_line(l, o) : make_one(l, o);
    if (c == EXIT_DONE && none)
        c = read_cache(l, o);
    if (c == EXIT_DONE && o->models_dir != NULL)
        c = read_folder(l, o->models_dir);
    if (c == EXIT_DONE && o->models_preset != NULL)
        c = read_presets(l, o);
    if (c != EXIT_DONE)
        return c;
    if (l->n == 0)
        return cli_error(
            CMD_SERVE, EXIT_USAGE, "%s has no model; give one with -m FILE",
            o->models_dir != NULL ? o->models_dir : o->models_preset);
    l->scanned = none || o->models_dir != NULL ? o : NULL;
    if (!reserve(l))
        return no_memory();
    if (o->models_preset != NULL)
        c = check_common(l);
    for (int i = 0; i < l->n && many && c == EXIT_DONE; i++)
        c = parse(l, i);
    if (!many) {
        l->entry[0] = (struct serve_entry){.o = o, .at_start = true};
        l->about[0] = (struct model_about){
            .name = l->named[0].name,
            .alias = (const char *const *)l->named[0].alias.v,
            .n_alias = l->named[0].alias.n,
            .tags = o->tags,
            .path = o->model,
            .idle_s = o->sleep_idle_s,
            .pinned = o->pinned,
            .own = &l->entry[0]};
        c = serve_entry_prepare(&l->entry[0]);
    }
    return c;
}

static void named_fini(struct serve_named *m)
{
    word_list_free(&m->own);
    word_list_free(&m->off);
    word_list_free(&m->args);
    word_list_free(&m->told);
    word_list_free(&m->alias);
    free(m->name);
    free(m->path);
}

static void entry_fini(struct serve_list *l, int i)
{
    if (l->entry != NULL) {
        serve_entry_fini(&l->entry[i]);
        if (l->entry[i].o == &l->entry[i].own)
            options_free(&l->entry[i].own);
    }
    named_fini(&l->named[i]);
}

/* ---- scans for changes ----------------------------------------------- */

/* Adds a model that a scan of the folder found to `l` and `m`, and takes
 * ownership of the contents of *found. If that fails, adds the model's file to
 * l->rejected. */
static void add_found(struct serve_list *l, struct models *m,
                      struct serve_named *found)
{
    int i = l->n;
    pl_err err;

    l->named[i] = *found;
    *found = (struct serve_named){0};
    if (parse(l, i) == EXIT_DONE) {
        if (models_add(m, &l->about[i], &err) == PL_OK) {
            l->n++;
            return;
        }
        cli_error(CMD_SERVE, EXIT_DONE, "%s", err.message);
    }
    word_list_add(&l->rejected, file_of(&l->named[i]));
    entry_fini(l, i);
    l->entry[i] = (struct serve_entry){0};
}

/* Reads the folder or the cache again. Returns false if that fails. */
static bool scan(struct serve_list *found, const struct options *o)
{
    char *folder = NULL;
    enum exit_code c = o->models_dir != NULL
                           ? read_folder(found, o->models_dir)
                           : fetch_cached(o, add_cached, found, &folder);

    free(folder);
    return c == EXIT_DONE;
}

void serve_list_scan(struct serve_list *l, struct models *m, atomic_int *n)
{
    struct serve_list found = {.known = l};

    if (scan(&found, l->scanned)) {
        for (int i = 0; i < l->n; i++) {
            struct serve_named *old = &l->named[i];
            bool gone = old->in_folder && find_file(&found, file_of(old)) < 0;

            if (gone != old->hidden)
                models_hide(m, i, gone);
            old->hidden = gone;
        }
        for (int i = 0; i < found.n; i++) {
            const char *file = file_of(&found.named[i]);

            if (find_file(l, file) < 0 && !has_word(&l->rejected, file) &&
                l->n < l->max)
                add_found(l, m, &found.named[i]);
        }
        word_list_join(&l->rejected, &found.rejected);
    }
    *n = l->n;
    serve_list_fini(&found);
}

void serve_list_fini(struct serve_list *l)
{
    for (int i = 0; i < l->n; i++)
        entry_fini(l, i);
    word_list_free(&l->rejected);
    word_list_free(&l->common);
    word_list_free(&l->general);
    free(l->about);
    free(l->entry);
    free(l->named);
}
