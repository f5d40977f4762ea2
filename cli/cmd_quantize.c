/* plait quantize: writes a model in another format. Its arguments are those of
 * llama-quantize: IN [OUT] TYPE [N]. */
#include "cmd.h"
#include "number.h"
#include "printable.h"
#include "session.h"
#include "term.h"

#include "pl_quantize.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct arguments {
    const char *in, *out, *type; /* out is NULL if it is not given */
    char *own;                   /* owned: a name for `out` */
    int n_threads;               /* 0 if not given */
};

struct quantize_lines {
    const struct options *o;
    struct term_progress progress;
    int n;        /* tensors so far */
    bool imatrix; /* importances were used */
};

/* ---- arguments ----------------------------------------------------------- */

static void add_type(void *user, const char *text, size_t len)
{
    char *list = user;
    size_t n = strlen(list);

    snprintf(list + n, 400 - n, "%s%.*s", n > 0 ? ", " : "", (int)len, text);
}

static enum exit_code refuse_type(const char *word)
{
    char list[400] = "", cut[SHOWN];

    pl_quantize_types(add_type, list);
    if (word == NULL)
        return cli_error(CMD_QUANTIZE, EXIT_USAGE, "no type; give one of %s",
                         list);
    return cli_error(CMD_QUANTIZE, EXIT_USAGE,
                     "\"%s\" is no type; give one of %s",
                     clip_printable(cut, word), list);
}

/* Names the output after the type, in the directory of the input. */
static enum exit_code name_output(struct arguments *a)
{
    const char *slash = strrchr(a->in, '/');
    int dir = slash != NULL ? (int)(slash + 1 - a->in) : 0;

    if (asprintf(&a->own, "%.*sggml-model-%s.gguf", dir, a->in, a->type) < 0) {
        a->own = NULL;
        return cli_error(CMD_QUANTIZE, EXIT_FAILED, "no memory for a name");
    }
    a->out = a->own;
    return EXIT_DONE;
}

static enum exit_code take_arguments(struct arguments *a,
                                     const struct options *o)
{
    const struct word_list *w = &o->files;
    int at = 1;
    int64_t n;

    *a = (struct arguments){.n_threads = o->quantize.n_threads};
    if (w->n < 2)
        return cli_error(CMD_QUANTIZE, EXIT_USAGE,
                         "%s; give IN.gguf OUT.gguf TYPE, and see `plait "
                         "quantize --help`",
                         w->n == 0 ? "no model" : "no type");
    a->in = w->v[0];
    a->type = pl_quantize_type(w->v[1]);
    if (a->type == NULL) {
        a->out = w->v[1];
        if (w->n < 3)
            return refuse_type(NULL);
        a->type = pl_quantize_type(w->v[2]);
        at = 2;
        if (a->type == NULL)
            return refuse_type(w->v[2]);
    }
    if (w->n > at + 1) {
        if (!number_int64(w->v[at + 1], &n) || n < 1 || n > 1024)
            return cli_error(CMD_QUANTIZE, EXIT_USAGE,
                             "\"%s\" after the type: give a number of threads "
                             "from 1 to 1024",
                             w->v[at + 1]);
        a->n_threads = (int)n;
    }
    if (w->n > at + 2)
        return cli_error(CMD_QUANTIZE, EXIT_USAGE,
                         "unexpected argument \"%s\"; options begin with a "
                         "dash",
                         w->v[at + 2]);
    return a->out == NULL && !o->quantize.dry_run ? name_output(a) : EXIT_DONE;
}

/* ---- output -------------------------------------------------------------- */

static void print_shape(const pl_quantize_tensor *t, char *buf, size_t size)
{
    size_t n = 0;

    buf[0] = '\0';
    for (int i = 0; i < t->n_dim && n < size; i++)
        n += (size_t)snprintf(buf + n, size - n, "%s%" PRId64,
                              i > 0 ? " x " : "", t->dim[i]);
}

/* Prints the line of a tensor, if such lines were asked for, and a note if its
 * width does not fit. */
static void print_tensor(void *user, const pl_quantize_tensor *t)
{
    struct quantize_lines *l = user;
    char shape[100];

    l->n++;
    l->imatrix = l->imatrix || t->imatrix;
    if (t->instead_of != NULL) {
        term_progress_end(&l->progress);
        fprintf(stderr,
                "plait quantize: %s: a width of %" PRId64 " does not fit %s; "
                "it becomes %s\n",
                t->name, t->dim[t->n_dim - 1], t->instead_of, t->to);
    }
    if (!l->o->verbose && !l->o->quantize.dry_run)
        return;
    term_progress_end(&l->progress);
    print_shape(t, shape, sizeof shape);
    printf("%4d %-36s %-20s %7s", l->n, t->name, shape, t->from);
    if (strcmp(t->from, t->to) != 0)
        printf(" -> %-7s", t->to);
    else
        printf("%11s", "");
    printf(" %10.3f MiB", (double)t->to_bytes / (1 << 20));
    if (t->error >= 0)
        printf("  error %.5f", t->error);
    if (t->error >= 0 && t->imatrix)
        printf("  weighted %.5f", t->weighted_error);
    putchar('\n');
}

static void print_totals(const struct arguments *a, const struct options *o,
                         const struct quantize_lines *l,
                         const pl_quantize_result *r)
{
    const double mib = 1 << 20;

    printf("%s: %s, %.2f MiB to %.2f MiB, %.2f bits per weight\n",
           o->quantize.dry_run ? a->in : a->out, a->type,
           (double)r->from_bytes / mib, (double)r->to_bytes / mib,
           r->n_values > 0 ? 8 * (double)r->to_bytes / (double)r->n_values : 0);
    printf("%d of %d tensors quantized", r->n_quantized, r->n_tensor);
    if (r->n_fallback > 0)
        printf(", %d of another width", r->n_fallback);
    if (o->quantize.imatrix != NULL && !l->imatrix)
        printf(", without importances: none is of these tensors");
    if (r->n_file > 1)
        printf(", %d files", r->n_file);
    putchar('\n');
}

enum exit_code cmd_quantize(const struct options *o)
{
    const struct option_quantize *q = &o->quantize;
    struct quantize_lines lines = {.o = o};
    pl_quantize_result result;
    pl_quantize_options p;
    struct arguments a;
    enum exit_code c = take_arguments(&a, o);
    pl_err err;
    pl_status s;

    if (c != EXIT_DONE)
        return c;
    pl_quantize_init(&p);
    p.type = a.type;
    p.tensor_types = (const char *const *)q->tensor_types.v;
    p.n_tensor_types = q->tensor_types.n;
    p.output_type = q->output_type;
    p.embedding_type = q->embedding_type;
    p.leave_output = q->leave_output;
    p.pure = q->pure;
    p.requantize = q->requantize;
    p.keep_split = q->keep_split;
    p.dry_run = q->dry_run;
    p.no_search = q->no_search;
    p.errors = o->verbose;
    p.imatrix = q->imatrix;
    p.include = (const char *const *)q->include.v;
    p.n_include = q->include.n;
    p.exclude = (const char *const *)q->exclude.v;
    p.n_exclude = q->exclude.n;
    p.n_threads = a.n_threads;
    p.tensor = print_tensor;
    p.tensor_user = &lines;
    p.progress = term_progress;
    p.progress_user = &lines.progress;
    p.cancel = &term_interrupts;
    term_interrupts_count(1);
    s = pl_quantize(a.in, a.out, &p, &result, sizeof result, &err);
    term_progress_end(&lines.progress);
    if (s == PL_OK) {
        print_totals(&a, o, &lines, &result);
        c = finish_out(o);
    } else {
        c = s == PL_BAD_ARGUMENT
                ? cli_error(CMD_QUANTIZE, EXIT_USAGE, "%s", err.message)
                : report(o, s, &err);
    }
    free(a.own);
    return c;
}
