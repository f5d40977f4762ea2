/* Fuzzes the parsers of --hosts. A text is refused with a reason, or its
 * machines have names that a shell and mpirun take as one word, and the list
 * of them is read again as it was. */
#include "cli/hosts.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int fuzz_hosts(const uint8_t *data, size_t n);

static void require(bool ok)
{
    if (!ok)
        __builtin_trap();
}

/* Checks a text that was parsed, or why it was not. */
static void check(struct hosts *h, bool ok, const char *why)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz"
                                  "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.:%_-";

    require(ok || why[0] != '\0');
    require(!ok || (h->n > 0 && h->n <= HOSTS_MAX));
    for (int i = 0; i < h->n && ok; i++) {
        const struct host *a = &h->host[i];

        require(a->name[0] != '\0' && a->name[0] != '-' && a->user[0] != '-' &&
                a->port >= 0 && a->port <= 65535);
        require(strspn(a->name, letters) == strlen(a->name));
        require(strspn(a->user, letters) == strlen(a->user));
        require(strpbrk(a->call, ":,%") == NULL);
    }
    hosts_free(h);
}

int fuzz_hosts(const uint8_t *data, size_t n)
{
    struct hosts *h = malloc(2 * sizeof *h);
    char *text = malloc(n + 1), why[HOSTS_WHY] = "";
    bool ok;

    if (h && text) {
        memcpy(text, data, n);
        text[n] = '\0';
        ok = hosts_parse_list(h, text, why);
        if (ok) {
            require(hosts_export(h) && hosts_import(h + 1));
            require(memcmp(h, h + 1, sizeof *h) == 0);
        }
        check(h, ok, why);
        why[0] = '\0';
        ok = hosts_parse_file(h, text, why);
        check(h, ok, why);
    }
    free(text);
    free(h);
    return 0;
}
