/* Fuzzes the parser of presets files. A file is rejected with a message that
 * names the line, or each of its sections is found by its name and its texts
 * are complete. */
#include "server/preset.h"

#include <string.h>

int fuzz_preset(const uint8_t *data, size_t n);

static void require(bool ok)
{
    if (!ok)
        __builtin_trap();
}

int fuzz_preset(const uint8_t *data, size_t n)
{
    struct preset p;
    pl_err err;
    pl_status s = preset_read(&p, (const char *)data, n, &err);

    require(s == PL_OK || s == PL_NO_MEMORY ||
            (s == PL_BAD_FILE && strncmp(err.message, "line ", 5) == 0));
    for (int i = 0; i < p.n && s == PL_OK; i++) {
        const struct preset_section *t = &p.section[i];

        require(preset_find(&p, t->name) == t);
        for (int k = 0; k < t->n_key; k++)
            require(t->key[k].key[0] != '\0' && t->key[k].value &&
                    t->key[k].line > t->line);
    }
    preset_free(&p);
    return 0;
}
