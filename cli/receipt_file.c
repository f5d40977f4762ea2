/* Implements receipt_file.h: reads receipts from files and writes them. */
#include "receipt_file.h"
#include "input.h"
#include "printable.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Parses a receipt, or the signed form of one. Sets *is_json to true if the
 * text is one JSON value. */
static pl_status parse(struct receipt_entry *e, const char *s, size_t len,
                       const struct jws_trust *trust, bool *is_json,
                       pl_err *err)
{
    json_t *j = json_loadb(s, len, 0, NULL);
    struct jws_text text;
    pl_status status = PL_BAD_FILE;

    *is_json = j != NULL;
    jws_open(&text, j, trust);
    json_decref(j);
    e->signer = text.state;
    memcpy(e->key, text.id, sizeof(e->key));
    if (text.state == JWS_NONE)
        return pl_receipt_parse(&e->receipt, s, len, err);
    if (text.state == JWS_MALFORMED)
        snprintf(err->message, sizeof(err->message),
                 "neither a receipt nor a whole JSON Web Signature of the "
                 "algorithm EdDSA; get the line from its writer");
    else
        status = pl_receipt_parse(&e->receipt, text.text, text.len, err);
    free(text.text);
    return status;
}

static enum exit_code add(struct receipt_list *list, const struct options *o,
                          const struct receipt_entry *e)
{
    void *more = realloc(list->v, ((size_t)list->n + 1) * sizeof(*list->v));

    if (more == NULL) {
        pl_receipt_free(e->receipt);
        return cli_error(o->command, EXIT_FAILED, "no memory for receipts");
    }
    list->v = more;
    list->v[list->n++] = *e;
    return EXIT_DONE;
}

/* Prints a message about a line that is not a receipt, and counts it. */
static void add_bad(struct receipt_list *list, const struct options *o,
                    const struct receipt_entry *e, const pl_err *err)
{
    char cut[SHOWN];

    cli_error(o->command, EXIT_USAGE, "%s:%d: %s", clip_printable(cut, e->file),
              e->line, err->message);
    list->n_bad++;
}

/* Parses one receipt per line. Empty lines are allowed. Stops after a first
 * line that is not even JSON, because then the file does not consist of
 * receipts. */
static enum exit_code read_lines(struct receipt_list *list,
                                 const struct options *o, const char *path,
                                 const struct input *in,
                                 const struct jws_trust *trust)
{
    const char *s = in->s, *end = in->s + in->len;
    enum exit_code c = EXIT_DONE;
    bool is_json = true;
    int n = 0;
    pl_err err;

    for (int line = 1; s < end && c == EXIT_DONE && (is_json || n > 1);
         line++) {
        const char *newline = memchr(s, '\n', (size_t)(end - s));
        const char *next = newline != NULL ? newline : end;
        struct receipt_entry e = {.file = path, .line = line};

        if (strspn(s, " \t\r") < (size_t)(next - s)) {
            n++;
            if (parse(&e, s, (size_t)(next - s), trust, &is_json, &err) ==
                PL_OK)
                c = add(list, o, &e);
            else
                add_bad(list, o, &e, &err);
        }
        s = next + 1;
    }
    return c;
}

enum exit_code receipt_file_read(struct receipt_list *list,
                                 const struct options *o, const char *path,
                                 const struct jws_trust *trust)
{
    struct input in = {0};
    enum exit_code c = input_file(&in, o, path);
    struct receipt_entry whole = {.file = path, .line = 1};
    int before = list->n + list->n_bad;
    char cut[SHOWN];
    bool is_json = false;
    pl_err err;

    if (c == EXIT_DONE &&
        parse(&whole, in.s, in.len, trust, &is_json, &err) == PL_OK)
        c = add(list, o, &whole);
    else if (c == EXIT_DONE && is_json) /* a file of lines is not */
        add_bad(list, o, &whole, &err);
    else if (c == EXIT_DONE)
        c = read_lines(list, o, path, &in, trust);
    input_free(&in);
    if (c == EXIT_DONE && list->n + list->n_bad == before)
        c = cli_error(o->command, EXIT_USAGE,
                      "%s has no receipt; plait run --receipt FILE writes one",
                      clip_printable(cut, path));
    return c;
}

enum exit_code receipt_read_key(struct jws_key **key, const struct options *o)
{
    struct input pem = {0};
    enum exit_code c;
    char why[JWS_WHY], cut[SHOWN];

    *key = NULL;
    if (o->sign_key == NULL)
        return EXIT_DONE;
    if (o->command != CMD_SERVE && o->receipt == NULL)
        return cli_error(o->command, EXIT_USAGE,
                         "--sign-key: no receipt to sign; add --receipt FILE");
    c = input_file(&pem, o, o->sign_key);
    if (c == EXIT_DONE && !jws_key_read(key, pem.s, pem.len, why))
        c = cli_error(o->command, EXIT_USAGE, "--sign-key %s: %s",
                      clip_printable(cut, o->sign_key), why);
    if (pem.s != NULL)
        explicit_bzero(pem.s, pem.len);
    input_free(&pem);
    return c;
}

unsigned receipt_flags(const struct options *o)
{
    static const unsigned flags[] = {
#define FORM_FLAGS(form, text, flags) flags,
        PL_RECEIPT_FORM_MAP(FORM_FLAGS)
#undef FORM_FLAGS
    };

    return flags[o->receipt_form];
}

pl_status receipt_line(struct whole_file *w, const pl_receipt *r,
                       unsigned flags, const struct jws_key *key, pl_err *err)
{
    char *json;
    pl_status s = jws_receipt(&json, r, flags, key, err);

    if (s == PL_OK) {
        pl_file_write(w->f, json, strlen(json));
        pl_file_write(w->f, "\n", 1);
        pl_file_flush(w->f);
    }
    free(json);
    return s;
}

void receipt_list_free(struct receipt_list *list)
{
    for (int i = 0; i < list->n; i++)
        pl_receipt_free(list->v[i].receipt);
    free(list->v);
    *list = (struct receipt_list){0};
}
