/* Decompresses the kernel source. */
#include "device/gpu/gpu_text.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/xz.h"

pl_status gpu_text_unpack(const char *head, const struct gpu_text *prelude,
                          char **out, pl_err *err)
{
    static const char what[] = "the source of the kernels";
    const struct xz *part[] = {&prelude->text, &gpu_text.text};
    size_t at = strlen(head);
    char *text = malloc(at + part[0]->n + part[1]->n + 1);

    *out = NULL;
    if (!text)
        return err_no_memory(err, what);
    memcpy(text, head, at);
    for (int i = 0; i < 2; at += part[i++]->n) {
        pl_status s = xz_unpack(part[i], text + at, part[i]->n);

        if (s != PL_OK) {
            free(text);
            return s == PL_NO_MEMORY ? err_no_memory(err, what)
                                     : gpu_text_damaged(err);
        }
    }
    text[at] = '\0';
    *out = text;
    return PL_OK;
}
