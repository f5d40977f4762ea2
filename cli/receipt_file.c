/* Implements receipt_file.h: reads receipts from files. */
#include "receipt_file.h"
#include "input.h"
#include "printable.h"

#include <stdlib.h>
#include <string.h>

static enum exit_code add(struct receipt_list *list, const struct options *o,
                          pl_receipt *r, const char *path, int line)
{
    void *more = realloc(list->v, ((size_t)list->n + 1) * sizeof(*list->v));

    if (more == NULL) {
        pl_receipt_free(r);
        return cli_error(o->command, EXIT_FAILED, "no memory for receipts");
    }
    list->v = more;
    list->v[list->n++] =
        (struct receipt_entry){.receipt = r, .file = path, .line = line};
    return EXIT_DONE;
}

/* Parses one receipt per line. Empty lines are allowed. */
static enum exit_code read_lines(struct receipt_list *list,
                                 const struct options *o, const char *path,
                                 const struct input *in)
{
    const char *s = in->s, *end = in->s + in->len;
    enum exit_code c = EXIT_DONE;
    char cut[SHOWN];

    for (int line = 1; s < end && c == EXIT_DONE; line++) {
        const char *newline = memchr(s, '\n', (size_t)(end - s));
        const char *next = newline != NULL ? newline : end;
        pl_receipt *r;
        pl_err err;

        if (strspn(s, " \t\r") < (size_t)(next - s)) {
            c = pl_receipt_parse(&r, s, (size_t)(next - s), &err) == PL_OK
                    ? add(list, o, r, path, line)
                    : cli_error(o->command, EXIT_USAGE, "%s:%d: %s",
                                clip_printable(cut, path), line, err.message);
        }
        s = next + 1;
    }
    return c;
}

enum exit_code receipt_file_read(struct receipt_list *list,
                                 const struct options *o, const char *path)
{
    struct input in = {0};
    enum exit_code c = input_file(&in, o, path);
    int before = list->n;
    char cut[SHOWN];
    pl_receipt *r;

    if (c == EXIT_DONE)
        c = pl_receipt_parse(&r, in.s, in.len, NULL) == PL_OK
                ? add(list, o, r, path, 1)
                : read_lines(list, o, path, &in);
    input_free(&in);
    if (c == EXIT_DONE && list->n == before)
        c = cli_error(o->command, EXIT_USAGE,
                      "%s has no receipt; plait run --receipt FILE writes one",
                      clip_printable(cut, path));
    return c;
}

void receipt_list_free(struct receipt_list *list)
{
    for (int i = 0; i < list->n; i++)
        pl_receipt_free(list->v[i].receipt);
    free(list->v);
    *list = (struct receipt_list){0};
}
