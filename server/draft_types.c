/* Reads the types of drafts by llama.cpp's names; see draft_types.h. */
#include "draft_types.h"

#include "pl_draft.h"

#include <stddef.h>
#include <string.h>

const char draft_types_wanted[] =
    "none, ngram-simple, ngram-map-k or ngram-cache, or several of them "
    "separated by commas";

/* Returns true if llama.cpp has the type name[0 .. len - 1], which drafts
 * nothing here. `draft` was the name of draft-simple. */
static bool drafts_nothing(const char *name, size_t len)
{
    static const char *const types[] = {
        "none",         "draft",         "draft-simple",
        "draft-eagle3", "draft-mtp",     "draft-dflash",
        "draft-dspark", "ngram-map-k4v", "ngram-mod",
    };

    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if (strlen(types[i]) == len && memcmp(types[i], name, len) == 0)
            return true;
    return false;
}

bool draft_types_read(const char *names, uint32_t *sources, bool *passed)
{
    *sources = 0;
    *passed = false;
    for (size_t n;; names += n + 1) {
        int i;

        n = strcspn(names, ",");
        i = pl_draft_source_find(names, n);
        /* programs alone propose tokens by a function */
        if (i >= 0 && i != PL_DRAFT_CALLER)
            *sources |= 1u << i;
        else if (!drafts_nothing(names, n))
            return false;
        else
            *passed |= n != strlen("none");
        if (names[n] == '\0')
            return true;
    }
}
