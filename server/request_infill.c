/* Reads requests of /infill, which generate the text between two given texts,
 * with models trained to fill in the middle. The prompt is built with the
 * model's special tokens. It consists of: other files of the project, each
 * after a file token; the text before the gap, and the existing beginning of
 * the generated text; the text after the gap; the token that marks the gap.
 * Some models want the text after the gap first (spm_infill).
 *
 * The README of llama-server says that the beginning follows the token of the
 * gap. Its code appends the beginning to the text before the gap, as here, so
 * that is what clients are used to. */
#include "request_parse.h"

#include <stdlib.h>

enum { MOST_EXTRA = 1024 };

/* A prompt under construction, and its pieces so far. */
struct pieces {
    struct request_reader *r;
    struct request_prompt *p;
    int cap;
};

static struct request_piece *add_piece(struct pieces *to)
{
    struct request_prompt *p = to->p;

    if (p->n == to->cap) {
        int cap = 2 * to->cap + 8;
        struct request_piece *more =
            realloc(p->piece, (size_t)cap * sizeof(*more));

        if (more == NULL) {
            api_error_set_memory(to->r->f.why);
            return NULL;
        }
        p->piece = more;
        to->cap = cap;
    }
    p->piece[p->n] = (struct request_piece){0};
    return &p->piece[p->n++];
}

/* Appends the text [len] to the prompt as a piece. `special`: names of special
 * tokens in the text are parsed as tokens. */
static bool add_text(struct pieces *to, const char *text, size_t len,
                     bool special)
{
    struct request_piece *p = len > 0 ? add_piece(to) : NULL;

    if (p != NULL)
        *p =
            (struct request_piece){.text = text, .len = len, .plain = !special};
    return p != NULL || len == 0;
}

static bool add_mark(struct pieces *to, pl_fim which)
{
    struct request_piece *p = add_piece(to);

    if (p == NULL)
        return false;
    p->ids = malloc(sizeof(*p->ids));
    if (p->ids == NULL)
        return api_error_set_memory(to->r->f.why);
    p->ids[p->n_ids++] = pl_token_fim(to->r->rules->words, which);
    return true;
}

/* The texts around the gap, and the beginning of the text in it. */
struct gap {
    const char *before, *after, *begun;
    size_t n_before, n_after, n_begun;
};

/* Appends the text before the gap and the beginning of the text in it, after
 * the token of the prefix. */
static bool add_before(struct pieces *to, const struct gap *g)
{
    return add_mark(to, PL_FIM_PREFIX) &&
           add_text(to, g->before, g->n_before, false) &&
           add_text(to, g->begun, g->n_begun, true);
}

static bool add_after(struct pieces *to, const struct gap *g)
{
    return add_mark(to, PL_FIM_SUFFIX) &&
           add_text(to, g->after, g->n_after, false);
}

/* Reads a field whose value is a string. Sets *text to it, or to "" if the
 * field is absent. */
static bool read_text(const struct fields *f, const char *name,
                      const char **text, size_t *len)
{
    *text = "";
    if (!field_text(f, name, text))
        return false;
    *len = json_string_length(field(f, name));
    return true;
}

/* Appends item i of "input_extra", an object {"filename", "text"}, to the
 * prompt. A file token and the file name precede the text. If the model has no
 * file token, a separator line precedes it instead. */
static bool add_extra(struct pieces *to, const json_t *list, size_t i)
{
    static const char line[] = "\n\n--- snippet ---\n\n";
    bool files = pl_token_fim(to->r->rules->words, PL_FIM_FILE) >= 0;
    struct fields file;
    const char *text, *name;
    size_t len, n_name;

    if (!fields_item(&to->r->f, "input_extra", list, i, &file) ||
        !field_need(&file, "text") || !read_text(&file, "text", &text, &len) ||
        !read_text(&file, "filename", &name, &n_name))
        return false;
    if (!files)
        return add_text(to, line, sizeof(line) - 1, false) &&
               add_text(to, text, len, false);
    if (n_name == 0) {
        name = "tmp";
        n_name = 3;
    }
    return add_mark(to, PL_FIM_FILE) && add_text(to, name, n_name, false) &&
           add_text(to, "\n", 1, false) && add_text(to, text, len, false);
}

static bool add_extras(struct pieces *to)
{
    static const char project[] = "myproject\n", file[] = "filename\n";
    const pl_tokenizer *words = to->r->rules->words;
    const json_t *list = NULL;
    size_t n;

    if (!field_list(&to->r->f, "input_extra", &list))
        return false;
    n = json_array_size(list);
    if (n > MOST_EXTRA)
        return field_wrong(&to->r->f, "input_extra", list,
                           "a list of at most 1024 files");
    if (n > 0 && pl_token_fim(words, PL_FIM_REPO) >= 0 &&
        (!add_mark(to, PL_FIM_REPO) ||
         !add_text(to, project, sizeof(project) - 1, false)))
        return false;
    for (size_t i = 0; i < n; i++)
        if (!add_extra(to, list, i))
            return false;
    return n == 0 || pl_token_fim(words, PL_FIM_FILE) < 0 ||
           (add_mark(to, PL_FIM_FILE) &&
            add_text(to, file, sizeof(file) - 1, false));
}

static bool check_model(const struct request_reader *r)
{
    static const struct {
        pl_fim which;
        const char *name;
    } needed[] = {{PL_FIM_PREFIX, "the prefix"},
                  {PL_FIM_SUFFIX, "the suffix"},
                  {PL_FIM_MIDDLE, "the middle"}};

    for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++)
        if (r->rules->words == NULL ||
            pl_token_fim(r->rules->words, needed[i].which) < 0)
            return api_error_set(
                r->f.why, 501, "not_supported", "",
                "the model does not support fill-in-the-middle: no token for "
                "%s (tokenizer.ggml.fim_*_token_id); use a model that has one",
                needed[i].name);
    return true;
}

bool request_read_infill(struct request_reader *r)
{
    struct request *a = r->a;
    struct pieces to = {.r = r};
    struct gap g;
    bool suffix_first = false;

    if (!check_model(r) || !field_need(&r->f, "input_prefix") ||
        !field_need(&r->f, "input_suffix") ||
        !read_text(&r->f, "input_prefix", &g.before, &g.n_before) ||
        !read_text(&r->f, "input_suffix", &g.after, &g.n_after) ||
        !read_text(&r->f, "prompt", &g.begun, &g.n_begun) ||
        !field_bool(&r->f, "spm_infill", &suffix_first))
        return false;
    a->n_prompt = 1;
    a->prompt = calloc(1, sizeof(*a->prompt));
    if (a->prompt == NULL)
        return api_error_set_memory(r->f.why);
    to.p = a->prompt;
    /* The first piece of the prompt is an empty text, so that the tokenizer
     * adds its special tokens, such as BOS, before it. */
    return add_piece(&to) != NULL &&
           (a->prompt->piece[0].text = "", add_extras(&to)) &&
           (!suffix_first || add_after(&to, &g)) && add_before(&to, &g) &&
           (suffix_first || add_after(&to, &g)) && add_mark(&to, PL_FIM_MIDDLE);
}
