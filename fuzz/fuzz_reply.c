/* Fuzzes the parser of replies: the input is a chat template, a zero byte and a
 * reply. Whatever markers the parser learns from the template, a reply that is
 * added in pieces must give the same message as one that is added at once. */
#include <pl.h>

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int fuzz_reply(const uint8_t *data, size_t n);

static const char tools[] =
    "[{\"function\": {\"name\": \"f\", \"parameters\": {\"properties\": "
    "{\"a\": {\"type\": \"string\"}}}}}, {\"function\": {\"name\": "
    "\"python\"}}]";

/* Returns the message that parsing the reply in pieces of `piece` bytes gives,
 * as JSON text; NULL if memory ran out. */
static char *parse(const pl_template *t, const char *text, size_t n,
                   size_t piece)
{
    pl_reply *r;
    char *message = NULL;

    if (pl_reply_create(&r, t, "<think>", 7, n % 3 ? tools : "[]", NULL, NULL,
                        NULL) != PL_OK)
        return NULL;
    if (n % 5 == 0)
        pl_reply_keep_reasoning(r);
    if (n % 2)
        pl_reply_of_document(r);
    if (n % 7 < 3)
        pl_reply_uncut(r);
    for (size_t at = 0; at < n; at += piece)
        if (pl_reply_add(r, text + at, piece < n - at ? piece : n - at, NULL) !=
            PL_OK)
            __builtin_trap();
    if (pl_reply_finish(r, NULL) != PL_OK ||
        pl_reply_message(r, &message, NULL) != PL_OK)
        __builtin_trap();
    pl_reply_free(r);
    return message;
}

int fuzz_reply(const uint8_t *data, size_t n)
{
    const char *zero = n > 0 ? memchr(data, '\0', n) : NULL;
    const char *text = zero ? zero + 1 : NULL;
    size_t n_form = zero ? (size_t)(zero - (const char *)data) : 0;
    size_t n_text = zero ? n - n_form - 1 : 0;
    pl_template *t;
    char *once, *pieces;

    if (!zero ||
        pl_template_create(&t, (const char *)data, n_form, NULL, NULL) != PL_OK)
        return 0;
    once = parse(t, text, n_text, n_text);
    pieces = parse(t, text, n_text, n_text > 4096 ? n_text / 7 : 1 + n % 5);
    if (once && pieces && strcmp(once, pieces) != 0)
        __builtin_trap();
    free(once);
    free(pieces);
    pl_template_free(t);
    return 0;
}
