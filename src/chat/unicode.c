/* Decodes and encodes UTF-8, and classifies characters; see unicode.h. */
#include "chat/unicode.h"

#include "base/ascii.h"
#include "base/utf8_char.h"

#include <locale.h>
#include <wctype.h>

enum { STRAY = 0xdc00 };

size_t unicode_get(const char *s, size_t n, uint32_t *c)
{
    size_t len = utf8_get(s, n, c);

    if (len > 0)
        return len;
    *c = STRAY + (unsigned char)s[0];
    return 1;
}

size_t unicode_put(char *out, uint32_t c)
{
    if (c >= STRAY + 0x80 && c <= STRAY + 0xff) {
        out[0] = (char)(c - STRAY);
        return 1;
    }
    return c > UTF8_LAST || (c >= 0xd800 && c <= 0xdfff) ? 0 : utf8_put(out, c);
}

size_t unicode_count(const char *s, size_t n)
{
    size_t count = 0;
    uint32_t c;

    for (size_t at = 0; at < n; count++)
        at += unicode_get(s + at, n - at, &c);
    return count;
}

size_t unicode_offset(const char *s, size_t n, size_t i)
{
    size_t at = 0;
    uint32_t c;

    for (; i > 0 && at < n; i--)
        at += unicode_get(s + at, n - at, &c);
    return at;
}

/* Returns true if the character c is whitespace, as Python's str.isspace()
 * defines it. */
bool unicode_is_space(uint32_t c)
{
    return (c >= '\t' && c <= '\r') || (c >= 0x1c && c <= ' ') || c == 0x85 ||
           c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) ||
           c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
           c == 0x3000;
}

size_t unicode_space_first(const char *s, size_t n)
{
    size_t at = 0;

    while (at < n) {
        uint32_t c;
        size_t len = unicode_get(s + at, n - at, &c);

        if (!unicode_is_space(c))
            break;
        at += len;
    }
    return at;
}

size_t unicode_space_last(const char *s, size_t n)
{
    size_t end = n;

    while (end > 0) {
        size_t at = end - 1;
        uint32_t c;

        while (at > 0 && end - at < 4 && ((unsigned char)s[at] & 0xc0) == 0x80)
            at--;
        if (unicode_get(s + at, end - at, &c) != end - at ||
            !unicode_is_space(c))
            break;
        end = at;
    }
    return n - end;
}

bool unicode_is_shown(uint32_t c)
{
    /* The characters that Python's repr() escapes: Unicode 15's categories Cc,
     * Cf, Cs, Co, Zl, Zp and Zs, except the space U+0020. */
    static const uint32_t hidden[][2] = {
        {0, 0x1f},          {0x7f, 0xa0},       {0xad, 0xad},
        {0x600, 0x605},     {0x61c, 0x61c},     {0x6dd, 0x6dd},
        {0x70f, 0x70f},     {0x890, 0x891},     {0x8e2, 0x8e2},
        {0x1680, 0x1680},   {0x180e, 0x180e},   {0x2000, 0x200f},
        {0x2028, 0x202f},   {0x205f, 0x2064},   {0x2066, 0x206f},
        {0x3000, 0x3000},   {0xd800, 0xf8ff},   {0xfeff, 0xfeff},
        {0xfff9, 0xfffb},   {0x110bd, 0x110bd}, {0x110cd, 0x110cd},
        {0x13430, 0x1343f}, {0x1bca0, 0x1bca3}, {0x1d173, 0x1d17a},
        {0xe0001, 0xe0001}, {0xe0020, 0xe007f}, {0xf0000, 0x10ffff},
    };

    for (size_t i = 0; i < sizeof hidden / sizeof hidden[0]; i++)
        if (c >= hidden[i][0] && c <= hidden[i][1])
            return false;
    return true;
}

static uint32_t mapped(uint32_t c, wint_t (*map)(wint_t, locale_t))
{
    locale_t l = newlocale(LC_CTYPE_MASK, "C.UTF-8", NULL);

    if (l) {
        c = (uint32_t)map((wint_t)c, l);
        freelocale(l);
    }
    return c;
}

uint32_t unicode_upper(uint32_t c)
{
    if (c < 0x80)
        return c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c;
    return mapped(c, towupper_l);
}

uint32_t unicode_lower(uint32_t c)
{
    if (c < 0x80)
        return (uint32_t)ascii_lower((char)c);
    return mapped(c, towlower_l);
}

bool unicode_is_letter(uint32_t c)
{
    locale_t l;
    bool is;

    if (c < 0x80)
        return ascii_is_letter((char)c);
    l = newlocale(LC_CTYPE_MASK, "C.UTF-8", NULL);
    is = l && iswalpha_l((wint_t)c, l);
    if (l)
        freelocale(l);
    return is;
}
