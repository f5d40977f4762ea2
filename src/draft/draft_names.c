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

/* Returns true if llama.cpp has the type name[0 .. len - 1], which drafts
 * nothing here. */
static bool is_other_type(const char *name, size_t len)
{
    static const char *const types[] = {"draft-eagle3", "draft-dflash",
                                        "draft-dspark", "ngram-map-k4v",
                                        "ngram-mod"};

    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strlen(types[i]) == len && memcmp(types[i], name, len) == 0)
            return true;
    return false;
}

bool pl_draft_sources_parse(const char *list, uint32_t *sources, bool *passed)
{
    uint32_t set = 0;

    if (!list || !sources || !passed)
        return false;
    *passed = false;
    for (size_t n;; list += n + 1) {
        int i;

        n = strcspn(list, ",");
        i = pl_draft_source_find(list, n);
        if (i >= 0 && i != PL_DRAFT_CALLER)
            set |= 1u << i;
        else if (n == 5 && memcmp(list, "draft", n) == 0)
            set |= 1u << PL_DRAFT_SIMPLE; /* its former name */
        else if (is_other_type(list, n))
            *passed = true;
        else if (n != 4 || memcmp(list, "none", n) != 0)
            return false;
        if (list[n] == 0)
            break;
    }
    *sources = set;
    return true;
}
