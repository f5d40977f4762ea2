/* The kernels' text, unpacked. */
#include "device/gpu/gpu_text.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/inflate.h"

pl_status gpu_text_unpack(const char *head, const struct gpu_text *prelude,
                          char **out, pl_err *err)
{
    const struct gpu_text *part[] = {prelude, &gpu_text};
    size_t at = strlen(head);
    char *text = malloc(at + prelude->n + gpu_text.n + 1);

    *out = NULL;
    if (!text)
        return err_no_memory(err, "the text of kernels");
    memcpy(text, head, at);
    for (int i = 0; i < 2; i++) {
        if (!inflate_all(part[i]->packed, part[i]->n_packed, text + at,
                         part[i]->n)) {
            free(text);
            return err_set(err, PL_DEVICE,
                           "the library's text of kernels is damaged: "
                           "install it again");
        }
        at += part[i]->n;
    }
    text[at] = '\0';
    *out = text;
    return PL_OK;
}
