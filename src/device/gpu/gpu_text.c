/* The kernels' text, unpacked. */
#include "device/gpu/gpu_text.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/xz.h"

pl_status gpu_text_unpack(const char *head, const struct gpu_text *prelude,
                          char **out, pl_err *err)
{
    static const char what[] = "the text of kernels";
    const struct xz *part[] = {&prelude->text, &gpu_text.text};
    size_t at = strlen(head);
    char *text = malloc(at + part[0]->n + part[1]->n + 1);
    pl_status s = PL_OK;

    *out = NULL;
    if (!text)
        return err_no_memory(err, what);
    memcpy(text, head, at);
    for (int i = 0; s == PL_OK && i < 2; i++) {
        s = xz_unpack(part[i], 0, text + at, part[i]->n, what, err);
        at += part[i]->n;
    }
    if (s != PL_OK) {
        free(text);
        return s;
    }
    text[at] = '\0';
    *out = text;
    return PL_OK;
}
