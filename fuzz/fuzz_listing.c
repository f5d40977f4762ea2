/* Fuzzes the parser of a hub's listing of files. The listing is parsed, with
 * names that stay below the cache folder, or rejected with a message. A parsed
 * listing can be written and parsed again. A name selects files of it; of a
 * split model the first file comes first. */
#include "hub/hub_listing.h"

#include <stdlib.h>
#include <string.h>

int fuzz_listing(const uint8_t *data, size_t n);

static void require(bool ok)
{
    if (!ok)
        __builtin_trap();
}

static void check_pick(const struct hub_listing *l, const char *quant,
                       const char *path)
{
    struct hub_pick p;
    pl_err err = {0};
    pl_status s = hub_pick(&p, l, "a/b", quant, path, &err);
    size_t at;
    int index, count;

    require(s == PL_OK ? p.n > 0 : strlen(err.message) > 0);
    for (int i = 0; i < p.n && s == PL_OK; i++) {
        require(p.file[i] >= l->file && p.file[i] < l->file + l->n);
        require(hub_split_name(p.file[i]->path, &at, &index, &count)
                    ? index == i + 1 && count == p.n
                    : p.n == 1);
    }
    hub_pick_fini(&p);
}

static void check_again(const struct hub_listing *l)
{
    struct hub_listing again = {0};
    char *text = hub_listing_write(l);

    require(text != NULL);
    require(hub_listing_read(&again, text, strlen(text), NULL) == PL_OK);
    require(again.n == l->n);
    for (int i = 0; i < l->n; i++)
        require(strcmp(again.file[i].path, l->file[i].path) == 0 &&
                again.file[i].size == l->file[i].size &&
                strcmp(again.file[i].sha256, l->file[i].sha256) == 0);
    hub_listing_fini(&again);
    free(text);
}

int fuzz_listing(const uint8_t *data, size_t n)
{
    struct hub_listing l = {0};
    pl_err err = {0};

    if (hub_listing_read(&l, (const char *)data, n, &err) == PL_OK) {
        for (int i = 0; i < l.n; i++) {
            char *path = l.file[i].path;

            require(hub_path_is_safe(path) && path[0] != '/');
            require(strstr(path, "/../") == NULL);
            require(strncmp(path, "../", 3) != 0);
            if (i < 100)
                check_pick(&l, NULL, path);
        }
        check_pick(&l, NULL, NULL);
        check_pick(&l, "Q8_0", NULL);
        check_again(&l);
    } else {
        require(strlen(err.message) > 0);
    }
    hub_listing_fini(&l);
    return 0;
}
