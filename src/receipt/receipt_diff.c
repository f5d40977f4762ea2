/* Compares two receipts and reports what differs. Causes are reported before
 * effects, so the first line explains the others. */
#include "receipt/receipt.h"

#include "base/numeral.h"
#include "base/whole_json.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct comparison {
    const pl_receipt *a, *b;
    pl_write_fn *write;
    void *user;
    bool same;
    bool failed; /* out of memory */
};

static void say(struct comparison *c, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
static void say(struct comparison *c, const char *fmt, ...)
{
    char line[1024];
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = numeral_vprint(line, sizeof line, fmt, ap);
    va_end(ap);
    c->same = false;
    c->write(c->user, line, n < (int)sizeof line ? (size_t)n : sizeof line - 1);
}

/* Reports the field `key` of the object `name` if its values in the two
 * receipts, a and b, differ. NULL: that receipt lacks the field. */
static void compare_field(struct comparison *c, const char *name,
                          const char *key, const json_t *a, const json_t *b)
{
    size_t flags = JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(9);
    char *s, *t;

    if (a && b && json_equal(a, b))
        return;
    s = a ? whole_json_dumps(a, flags) : NULL;
    t = b ? whole_json_dumps(b, flags) : NULL;
    c->failed |= (a && !s) || (b && !t);
    say(c, "%s: %s is %.300s and %.300s\n", name, key, s ? s : "missing",
        t ? t : "missing");
    free(s);
    free(t);
}

/* Compares the fields of the object `name` of both receipts, in the order of
 * the first receipt. Either receipt may lack the object. */
static void compare_objects(struct comparison *c, const char *name)
{
    json_t *a = json_object_get(c->a->doc, name);
    json_t *b = json_object_get(c->b->doc, name);
    const char *key;
    json_t *value;

    json_object_foreach (a, key, value)
        compare_field(c, name, key, value, json_object_get(b, key));
    json_object_foreach (b, key, value)
        if (!json_object_get(a, key))
            compare_field(c, name, key, NULL, value);
}

static void compare_prompts(struct comparison *c)
{
    const pl_receipt *a = c->a, *b = c->b;
    int64_t i = 0;

    if (strcmp(a->prompt_hash, b->prompt_hash) == 0)
        return;
    while (a->prompt && b->prompt && i < a->n_prompt && i < b->n_prompt &&
           a->prompt[i] == b->prompt[i])
        i++;
    if (a->prompt && b->prompt)
        say(c,
            "prompt: differs at token %" PRId64 " (of %" PRId64 " and %" PRId64
            ")\n",
            i, a->n_prompt, b->n_prompt);
    else
        say(c, "prompt: %" PRId64 " tokens (%.16s) and %" PRId64 " (%.16s)\n",
            a->n_prompt, a->prompt_hash, b->n_prompt, b->prompt_hash);
}

static void compare_grammars(struct comparison *c)
{
    const pl_receipt *a = c->a, *b = c->b;

    if (strcmp(a->grammar_hash, b->grammar_hash) != 0)
        say(c, "grammar: %.16s and %.16s\n",
            a->grammar_hash[0] ? a->grammar_hash : "none",
            b->grammar_hash[0] ? b->grammar_hash : "none");
    else if (a->grammar_hash[0] && a->record.form != b->record.form)
        say(c, "grammar: its form is %s and %s\n",
            receipt_form_name(a->record.form),
            receipt_form_name(b->record.form));
    else if (a->grammar_from != b->grammar_from)
        say(c, "grammar: applies from token %" PRId64 " and %" PRId64 "\n",
            a->grammar_from, b->grammar_from);
}

static void compare_outputs(struct comparison *c)
{
    const struct sampling_record *a = &c->a->record, *b = &c->b->record;
    int64_t i = 0, k = 0, how = 0;

    while (i < a->n && i < b->n && a->token[i].row == b->token[i].row)
        i++;
    while (k < a->n && k < b->n && a->token[k].id == b->token[k].id)
        k++;
    while (how < a->n && how < b->n && a->token[how].how == b->token[how].how)
        how++;
    if (how < a->n && how < b->n)
        say(c,
            "output: differs from token %" PRId64
            " on in what was forced or excluded\n",
            how);
    if (a->hash != b->hash || (i < a->n && i < b->n))
        say(c, "logits: differ from token %" PRId64 " on\n", i);
    if (c->a->no_tokens || c->b->no_tokens) {
        if (strcmp(c->a->output_hash, c->b->output_hash) != 0)
            say(c,
                "output: %" PRId64 " tokens (%.16s) and %" PRId64 " (%.16s)\n",
                a->n, c->a->output_hash, b->n, c->b->output_hash);
    } else if (k < a->n && k < b->n) {
        say(c, "output: differs from token %" PRId64 " on (%d and %d)\n", k,
            a->token[k].id, b->token[k].id);
    } else if (a->n != b->n) {
        say(c,
            "output: %" PRId64 " and %" PRId64
            " tokens, equal as far as the shorter goes\n",
            a->n, b->n);
    }
}

pl_status pl_receipt_diff(const pl_receipt *a, const pl_receipt *b, bool *same,
                          pl_write_fn *write, void *user, pl_err *err)
{
    struct comparison c = {
        .a = a, .b = b, .write = write, .user = user, .same = true};

    PL_CLEAR(same);
    PL_NEED(a, err);
    PL_NEED(b, err);
    PL_NEED(same, err);
    PL_NEED(write, err);
    compare_objects(&c, "model");
    compare_objects(&c, "numerics");
    compare_prompts(&c);
    compare_objects(&c, "sampling");
    compare_grammars(&c);
    compare_outputs(&c);
    compare_objects(&c, "end");
    if (a->scored && b->scored && a->nll != b->nll)
        say(&c, "score: the sum of -ln p is %.9g and %.9g\n", a->nll, b->nll);
    if (c.failed)
        return err_no_memory(err, "comparing receipts");
    *same = c.same;
    return PL_OK;
}
