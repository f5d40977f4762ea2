/* Fuzzes chat templates: the bytes are a template, which is rendered if it is
 * valid. Rendering must end within its limits. */
#include "chat/template.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int fuzz_chat(const uint8_t *data, size_t n);

int fuzz_chat(const uint8_t *data, size_t n)
{
    static const char variables[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"a\\u00e9 b\"},"
        "{\"role\": \"assistant\", \"content\": null, \"tool_calls\":"
        "[{\"function\": {\"name\": \"f\", \"arguments\": {\"x\": 1.5}}}]}],"
        "\"tools\": [{\"function\": {\"name\": \"f\"}}], \"n\": 7}";
    static const struct chat_limits limits = {
        .steps = 200 * 1000,
        .depth = 200,
        .output_bytes = 1 << 20,
        .memory_bytes = 16 << 20,
    };
    const struct chat_variable var = {NULL, variables, strlen(variables), true};
    struct chat_template *t;
    char *text;
    size_t len;

    if (chat_template_create(&t, (const char *)data, n, NULL) != PL_OK)
        return 0;
    if (chat_template_render(t, &var, 1, 0, &limits, &text, &len, NULL) ==
        PL_OK) {
        if (text[len] != '\0')
            __builtin_trap();
        free(text);
    }
    chat_template_free(t);
    return 0;
}
