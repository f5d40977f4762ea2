/* Stores the decisions of a sampler, for receipts. See record.h. */
#include "sampling/record.h"

#include "base/hash64.h"

#include <stdlib.h>
#include <string.h>

static void add(struct sampling_record *r, struct record_token t)
{
    if (r->n == r->cap && !r->full) {
        int64_t cap = 2 * r->cap + 64;
        void *more = realloc(r->token, (size_t)cap * sizeof *r->token);

        r->full = !more;
        if (more) {
            r->token = more;
            r->cap = cap;
        }
    }
    if (!r->full)
        r->token[r->n++] = t;
}

void record_row(struct sampling_record *r, const float *logits, int32_t n_vocab,
                int32_t id, unsigned how)
{
    r->hash = hash64(r->hash, logits, (size_t)n_vocab * sizeof *logits);
    r->n_row++;
    add(r, (struct record_token){id, (uint16_t)r->hash, (uint16_t)how});
}

void record_forced(struct sampling_record *r, int32_t id, unsigned how)
{
    add(r, (struct record_token){.id = id,
                                 .how = (uint16_t)(RECORD_FORCED | how)});
}

void record_grammar(struct sampling_record *r, pl_grammar_form form,
                    const char *text, size_t len)
{
    char *copy = malloc(len + 1);

    r->full |= !copy;
    if (!copy)
        return;
    memcpy(copy, text, len);
    copy[len] = '\0';
    free(r->grammar);
    r->grammar = copy;
    r->grammar_len = len;
    r->form = form;
    r->n_grammar++;
}

void record_fini(struct sampling_record *r)
{
    free(r->grammar);
    free(r->token);
    *r = (struct sampling_record){0};
}
