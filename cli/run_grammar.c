/* plait run with a grammar: the output of each turn is one text that the
 * grammar matches. In a chat, the grammar applies to the content of the answer,
 * not to its reasoning. */
#include "printable.h"
#include "run.h"

#include <stdio.h>
#include <string.h>

/* An option that gives a grammar. If the option was given, either `text` or
 * `file` is set; otherwise both are NULL. */
struct source {
    const char *option, *text, *file;
    pl_grammar_form form;
};

enum { N_SOURCE = 4 };

static enum exit_code check_source(const struct options *o,
                                   const struct source *s, int n)
{
    if (n > 1)
        return cli_error(CMD_RUN, EXIT_USAGE,
                         "%s: another grammar is already given; leave one out",
                         s->option);
    if (o->ignore_eos)
        return cli_error(
            CMD_RUN, EXIT_USAGE,
            "--ignore-eos forbids the end that %s requires; leave one out",
            s->option);
    if (s->file != NULL && strcmp(s->file, "-") == 0)
        return cli_error(
            CMD_RUN, EXIT_USAGE,
            "%s -: cannot be read from standard input; name a file", s->option);
    return EXIT_DONE;
}

/* Prints the notes, a line each, on those parts of a schema that the grammar
 * does not enforce. */
static void print_notes(const char *notes)
{
    while (*notes) {
        int n = (int)strcspn(notes, "\n");

        fprintf(stderr, "note: %.*s\n", n, notes);
        notes += n + (notes[n] == '\n');
    }
}

enum exit_code run_open_grammar(struct run *r)
{
    const struct options *o = r->o;
    const struct source all[N_SOURCE] = {
        {"--grammar", o->grammar, NULL, PL_GRAMMAR_GBNF},
        {"--grammar-file", NULL, o->grammar_file, PL_GRAMMAR_GBNF},
        {"--json-schema", o->schema, NULL, PL_GRAMMAR_JSON_SCHEMA},
        {"--json-schema-file", NULL, o->schema_file, PL_GRAMMAR_JSON_SCHEMA},
    };
    const struct source *given = NULL;
    struct input in = {0};
    enum exit_code c;
    pl_status s;
    int n = 0;

    for (int i = 0; i < N_SOURCE; i++) {
        if (all[i].text == NULL && all[i].file == NULL)
            continue;
        given = &all[i];
        n++;
    }
    if (given == NULL)
        return EXIT_DONE;
    c = check_source(o, given, n);
    if (c == EXIT_DONE && given->file != NULL)
        c = input_file(&in, o, given->file);
    if (c != EXIT_DONE)
        return c;
    s = pl_grammar_create(&r->grammar, r->s.words, given->form,
                          given->text != NULL ? given->text : in.s,
                          given->text != NULL ? strlen(given->text) : in.len,
                          given->text != NULL ? given->option : given->file,
                          &r->err);
    input_free(&in);
    if (s != PL_OK)
        return report(o, s, &r->err);
    print_notes(pl_grammar_notes(r->grammar));
    return EXIT_DONE;
}

static enum stop set(struct run *r, pl_grammar *g)
{
    r->status = pl_sampler_set_grammar(r->sampler, g, &r->err);
    return r->status == PL_OK ? STOP_END : STOP_FAILED;
}

enum stop run_begin_grammar(struct run *r)
{
    r->kept = false;
    return set(r, NULL);
}

enum stop run_keep_grammar(struct run *r)
{
    if (r->grammar == NULL || r->kept ||
        (r->reply != NULL && !pl_reply_in_content(r->reply)))
        return STOP_END;
    r->kept = true;
    return set(r, r->grammar);
}
