/* The names of the sources of drafts. */
#include "pl_draft.h"

static const char *const names[PL_DRAFT_N_SOURCE] = {
#define NAME(source, name) [PL_DRAFT_##source] = name,
    PL_DRAFT_SOURCE_MAP(NAME)
#undef NAME
};

const char *pl_draft_source_name(int source)
{
    return source >= 0 && source < PL_DRAFT_N_SOURCE ? names[source] : "";
}

int pl_draft_source_find(const char *name, size_t len)
{
    for (int i = 0; name && i < PL_DRAFT_N_SOURCE; i++)
        if (strlen(names[i]) == len && memcmp(names[i], name, len) == 0)
            return i;
    return -1;
}
