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

bool pl_draft_sources_parse(const char *list, uint32_t *sources)
{
    uint32_t set = 0;

    if (!list || !sources)
        return false;
    for (size_t n;; list += n + 1) {
        int i;

        n = strcspn(list, ",");
        i = pl_draft_source_find(list, n);
        if (i >= 0 && i != PL_DRAFT_CALLER)
            set |= 1u << i;
        else if (n != 4 || memcmp(list, "none", n) != 0)
            return false;
        if (list[n] == 0)
            break;
    }
    *sources = set;
    return true;
}
