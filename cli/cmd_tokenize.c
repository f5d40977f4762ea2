/* plait tokenize: converts text to token ids. Prints one line per token: its
 * id, and the part of the text that it completes. Or prints only the ids.
 * Accepts any GGUF file with a vocabulary. */
#include "cmd.h"
#include "input.h"
#include "session.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Prints a text in quotes and on one line. Control characters are printed as
 * \n, \r, \t or \xHH; ' and \ follow a backslash. */
static void print_quoted(const char *s)
{
    static const char plain[] = "\n\r\t'\\";
    static const char letter[] = "nrt'\\";

    for (; *s != '\0'; s++) {
        const char *p = strchr(plain, *s);

        if (p != NULL)
            printf("\\%c", letter[p - plain]);
        else if ((unsigned char)*s < 0x20 || *s == 0x7f)
            printf("\\x%02x", (unsigned char)*s);
        else
            putchar(*s);
    }
}

static pl_status print_pieces(const pl_tokenizer *t, const int32_t *ids,
                              int64_t n, pl_err *err)
{
    pl_detokenizer *d = NULL;
    pl_status r = pl_detokenizer_create(&d, t, true, err);

    for (int64_t i = 0; i < n && r == PL_OK; i++) {
        printf("%" PRId32 " '", ids[i]);
        print_quoted(pl_detokenize(d, ids[i]));
        if (i == n - 1)
            print_quoted(pl_detokenize_flush(d));
        puts("'");
    }
    pl_detokenizer_free(d);
    return r;
}

enum exit_code cmd_tokenize(const struct options *o)
{
    const pl_tokenizer *t;
    pl_tokenizer *own = NULL;
    pl_model *m = NULL;
    struct input in = {0};
    int32_t *ids = NULL;
    int64_t n = 0;
    pl_err err;
    pl_status r;
    enum exit_code c;

    if (o->model == NULL)
        return report_no_model(o, "");
    r = o->kv_overrides.n > 0 ? session_model(&m, o, &err) : PL_OK;
    t = pl_model_tokenizer(m);
    if (r == PL_OK && t == NULL) {
        r = pl_tokenizer_open(&own, o->model, &err);
        t = own;
    }
    c = r == PL_OK ? input_text(&in, o) : report(o, r, &err);
    if (c != EXIT_DONE)
        goto done;
    r = pl_tokenize(t, in.s, in.len,
                    o->no_special ? 0 : PL_ADD_SPECIAL | PL_PARSE_SPECIAL, &ids,
                    &n, &err);
    if (r == PL_OK && o->ids_only) {
        for (int64_t i = 0; i < n; i++)
            printf("%s%" PRId32, i > 0 ? " " : "", ids[i]);
        putchar('\n');
    } else if (r == PL_OK) {
        r = print_pieces(t, ids, n, &err);
    }
    c = r == PL_OK ? finish_out(o) : report(o, r, &err);
done:
    free(ids);
    input_free(&in);
    pl_tokenizer_free(own);
    pl_model_free(m);
    return c;
}
