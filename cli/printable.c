/* Makes messages and text of other origin safe to print. A terminal must not
 * execute escape sequences that, for example, a file name contains. */
#include "printable.h"

#include <string.h>

/* Returns the length in bytes of the printable character at `s`; 0 if `s` does
 * not begin with one. ASCII characters and well-formed UTF-8 (RFC 3629) are
 * printable, except control characters, among which are U+0080 to U+009F. */
static size_t printable(const char *s)
{
    const unsigned char *p = (const unsigned char *)s;
    size_t n = p[0] < 0x80 ? 1 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;

    if (n == 1)
        return p[0] >= ' ' && p[0] != 0x7f;
    if (p[0] < 0xc2 || p[0] > 0xf4 || (p[0] == 0xc2 && p[1] < 0xa0) ||
        (p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) ||
        (p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f))
        return 0;
    for (size_t i = 1; i < n; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    return n;
}

void show(FILE *f, const char *s)
{
    /* len: number of printable bytes at `s` that are not printed yet */
    size_t len = 0, n;

    for (; s[len] != '\0'; len += n) {
        n = s[len] == '\n' ? 1 : printable(s + len);
        if (n > 0)
            continue;
        fwrite(s, 1, len, f);
        fprintf(f, "\\x%02x", (unsigned char)s[len]);
        s += len + 1;
        len = 0;
    }
    fwrite(s, 1, len, f);
}

const char *clip_printable(char buf[SHOWN], const char *s)
{
    size_t n = strlen(s);

    if (n < SHOWN) {
        memcpy(buf, s, n + 1);
        return buf;
    }
    n = SHOWN - 4;
    /* does not cut inside a UTF-8 character */
    while ((s[n] & 0xc0) == 0x80 && n > SHOWN - 8)
        n--;
    memcpy(buf, s, n);
    strcpy(buf + n, "...");
    return buf;
}
