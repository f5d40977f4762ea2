/* Parses overrides (-ot), matches them against the names of weights, and warns
 * about those that match no weight. */
#include "plan/override.h"

#include "base/ascii.h"
#include "base/err.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- parsing overrides ------------------------------------------------- */

static bool is_plain(const char *s, const char *end)
{
    for (; s < end; s++)
        if (!ascii_is_letter_or_digit(*s) && !strchr("_-:.", *s))
            return false;
    return true;
}

static const char *last_equals(const char *s, const char *end)
{
    while (end > s)
        if (*--end == '=')
            return end;
    return NULL;
}

/* Returns the end of the override (REGEX=WHERE) that begins at `s`: the address
 * of the comma after it, or of the end of the text. */
static const char *part_end(const char *s)
{
    for (const char *p = s;; p++) {
        const char *eq;

        if (*p == '\0')
            return p;
        eq = *p == ',' ? last_equals(s, p) : NULL;
        if (eq && is_plain(eq + 1, p))
            return p;
    }
}

static pl_status parse(struct plan_config *in, struct arena *a,
                       const pl_options *opt, pl_err *err)
{
    struct override *item;
    size_t most = 0;

    for (int i = 0; i < opt->n_overrides; i++)
        for (const char *s = opt->overrides[i]; *s; s++)
            most += *s == '=';
    in->override = item = arena_alloc(a, most, sizeof *item);
    PL_TRY(arena_check(a, "the list of overrides", err));
    for (int i = 0; i < opt->n_overrides; i++) {
        const char *s = opt->overrides[i];

        for (;;) {
            const char *end = part_end(s), *eq = last_equals(s, end);
            struct override *o;

            if (!eq || eq == s || eq + 1 == end)
                return err_set(err, PL_BAD_ARGUMENT,
                               "override (-ot) \"%.*s\": give REGEX=WHERE, "
                               "like ffn_.*_exps=host",
                               (int)(end - s < 200 ? end - s : 200), s);
            o = &item[in->n_override++];
            o->regex = arena_strndup(a, s, (size_t)(eq - s));
            o->where = arena_strndup(a, eq + 1, (size_t)(end - eq - 1));
            if (*end == '\0')
                break;
            s = end + 1;
        }
    }
    return arena_check(a, "the list of overrides", err);
}

pl_status override_layouts(const char ***out, int *n, struct arena *a,
                           const pl_options *opt, pl_err *err)
{
    struct plan_config in = {0};
    int dim;

    *n = 0;
    PL_TRY(parse(&in, a, opt, err));
    *out = arena_alloc(a, (size_t)in.n_override + 1, sizeof **out);
    PL_TRY(arena_check(a, "the list of overrides", err));
    for (int i = 0; i < in.n_override; i++) {
        const struct override *o = &in.override[i];
        size_t size = strlen(o->regex) + strlen(o->where) + 2;
        char *text;

        if (!override_is_layout(o->where, &dim))
            continue;
        (*out)[(*n)++] = text = arena_alloc(a, size, 1);
        PL_TRY(arena_check(a, "the list of overrides", err));
        snprintf(text, size, "%s=%s", o->regex, o->where);
    }
    return PL_OK;
}

bool override_is_layout(const char *where, int *dim)
{
    *dim = -1;
    if (strcmp(where, "mirrored") == 0)
        return true;
    if (strncmp(where, "split:", 6) != 0 || !isdigit((unsigned char)where[6]) ||
        where[7])
        return false;
    *dim = where[6] - '0';
    return true;
}

bool override_is_host(const char *where)
{
    if (strcmp(where, "CPU") == 0)
        return true;
    return strncmp(where, "host", 4) == 0 &&
           strspn(where + 4, "0123456789") == strlen(where + 4);
}

/* ---- finding weights with similar names -------------------------------- */

/* Returns the length in characters of the longest text that occurs both in the
 * regular expression and in the name. Ignores the expression's backslashes. */
static int common(const char *regex, const char *name)
{
    int best = 0;

    for (; *regex; regex++)
        for (const char *s = name; *s; s++) {
            const char *r = regex;
            int n = 0;

            while (*r && s[n]) {
                r += *r == '\\';
                if (*r != s[n])
                    break;
                r++;
                n++;
            }
            if (n > best)
                best = n;
        }
    return best;
}

/* Returns true if two names differ only in numbers, as "blk.0.ffn_up" and
 * "blk.11.ffn_up" do. */
static bool alike(const char *a, const char *b)
{
    for (;;) {
        while (isdigit((unsigned char)*a))
            a++;
        while (isdigit((unsigned char)*b))
            b++;
        if (*a != *b)
            return false;
        if (*a == '\0')
            return true;
        a++;
        b++;
    }
}

static void warn_unmatched(const struct override *o, const pl_graph *g,
                           struct notes *notes)
{
    enum { NEAR = 3, SHORTEST = 3 };
    const char *near[NEAR];
    int score[NEAR], n = 0;
    char text[512] = "";
    size_t at = 0;

    for (int i = 0; i < g->n_node; i++) {
        const char *name = g->node[i].name;
        bool seen = g->node[i].op != OP_weight;
        int c, k;

        for (k = 0; k < n && !seen; k++)
            seen = alike(near[k], name);
        c = seen ? 0 : common(o->regex, name);
        if (c < SHORTEST)
            continue;
        for (k = n; k > 0 && score[k - 1] < c; k--)
            if (k < NEAR) {
                near[k] = near[k - 1];
                score[k] = score[k - 1];
            }
        if (k < NEAR) {
            near[k] = name;
            score[k] = c;
            n += n < NEAR;
        }
    }
    for (int k = 0; k < n && at < sizeof text; k++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%s",
                               k ? ", " : "; similar are ", near[k]);
    diag_add(notes, PL_LOG_WARN,
             "override (-ot) \"%.200s=%.60s\" matches no weight, or earlier "
             "ones match them first%s",
             o->regex, o->where, text);
}

/* ---- matching overrides against weights -------------------------------- */

static void *pcre_malloc(size_t size, void *user)
{
    (void)user;
    return malloc(size);
}

static void pcre_free(void *p, void *user)
{
    (void)user;
    free(p);
}

/* Applies override o, whose index is k: sets which[i] to k for each weight i
 * that its expression matches and that no earlier override matches. Adds the
 * number of these weights to *n. */
static pl_status match_one(const struct override *o, int k, const pl_graph *g,
                           pcre2_general_context *memory, int *which, int *n,
                           pl_err *err)
{
    int code_err = 0;
    PCRE2_SIZE at = 0;
    pcre2_code *code;
    pcre2_match_data *data = NULL;
    pcre2_compile_context *how = pcre2_compile_context_create(memory);
    pl_status s = PL_OK;

    if (!how)
        return err_no_memory(err, "the overrides");
    code = pcre2_compile((PCRE2_SPTR)o->regex, PCRE2_ZERO_TERMINATED, 0,
                         &code_err, &at, how);
    pcre2_compile_context_free(how);
    if (!code && code_err == PCRE2_ERROR_HEAP_FAILED)
        return err_no_memory(err, "the overrides");
    if (!code) {
        unsigned char text[160];

        pcre2_get_error_message(code_err, text, sizeof text);
        return err_set(err, PL_BAD_ARGUMENT,
                       "override (-ot) \"%.200s=%.60s\": at character %zu of "
                       "the expression: %s",
                       o->regex, o->where, at, (const char *)text);
    }
    data = pcre2_match_data_create_from_pattern(code, memory);
    if (!data)
        s = err_no_memory(err, "the overrides");
    for (int i = 0; i < g->n_node && s == PL_OK; i++) {
        int r;

        if (g->node[i].op != OP_weight || which[i] >= 0)
            continue;
        r = pcre2_match(code, (PCRE2_SPTR)g->node[i].name,
                        PCRE2_ZERO_TERMINATED, 0, 0, data, NULL);
        if (r >= 0) {
            which[i] = k;
            ++*n;
        } else if (r == PCRE2_ERROR_HEAPLIMIT || r == PCRE2_ERROR_NOMEMORY) {
            s = err_no_memory(err, "the overrides");
        } else if (r != PCRE2_ERROR_NOMATCH) {
            s = err_set(err, PL_BAD_ARGUMENT,
                        "override (-ot) \"%.200s=%.60s\": matching %s takes "
                        "too long; use a simpler expression",
                        o->regex, o->where, g->node[i].name);
        }
    }
    pcre2_match_data_free(data);
    pcre2_code_free(code);
    return s;
}

/* Returns an array with the value -1 for each node of a graph. */
static int *no_overrides(struct arena *a, const pl_graph *g)
{
    int *which = arena_alloc(a, (size_t)g->n_node + 1, sizeof *which);

    for (int i = 0; which && i < g->n_node; i++)
        which[i] = -1;
    return which;
}

pl_status override_read(struct plan_config *in, struct arena *a,
                        const pl_graph *also, const pl_options *opt,
                        struct notes *notes, pl_err *err)
{
    pcre2_general_context *memory;
    int *which, *which_also;
    pl_status s = PL_OK;

    if (opt->n_overrides == 0)
        return PL_OK;
    PL_TRY(parse(in, a, opt, err));
    in->override_of = which = no_overrides(a, in->g);
    which_also = also ? no_overrides(a, also) : NULL;
    PL_TRY(arena_check(a, "the overrides", err));
    memory = pcre2_general_context_create(pcre_malloc, pcre_free, NULL);
    if (!memory)
        return err_no_memory(err, "the overrides");
    for (int k = 0; k < in->n_override && s == PL_OK; k++) {
        const struct override *o = &in->override[k];
        int n = 0;

        s = match_one(o, k, in->g, memory, which, &n, err);
        if (s == PL_OK && also)
            s = match_one(o, k, also, memory, which_also, &n, err);
        if (s == PL_OK && n == 0)
            warn_unmatched(o, in->g, notes);
    }
    pcre2_general_context_free(memory);
    return s;
}
