/* Text and ids from the command line, a file or standard input. */
#include "input.h"
#include "number.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void input_free(struct input *in)
{
    free(in->s);
    *in = (struct input){0};
}

static enum exit_code no_memory(const struct options *o, size_t bytes)
{
    return complain(o->command, EXIT_FAILED,
                    "no memory for %zu bytes of text; give a smaller one",
                    bytes);
}

/* All of `f`, which is called `name` in messages. */
static enum exit_code read_all(struct input *in, const struct options *o,
                               FILE *f, const char *name)
{
    size_t size = 0;

    do {
        size_t more = size > 0 ? size : 1 << 16;
        char *s = realloc(in->s, size + more + 1);

        if (s == NULL)
            return no_memory(o, size + more);
        in->s = s;
        size += more;
        in->len += fread(s + in->len, 1, size - in->len, f);
    } while (in->len == size);
    in->s[in->len] = '\0';
    if (ferror(f))
        return complain(o->command, EXIT_FAILED, "reading %s: %s", name,
                        strerror(errno));
    return EXIT_DONE;
}

static enum exit_code read_file(struct input *in, const struct options *o,
                                const char *path)
{
    enum exit_code c;
    FILE *f;

    if (strcmp(path, "-") == 0)
        return read_all(in, o, stdin, "standard input");
    f = fopen(path, "rb");
    if (f == NULL)
        return complain(o->command, EXIT_FAILED, "opening %s: %s", path,
                        strerror(errno));
    c = read_all(in, o, f, path);
    fclose(f);
    return c;
}

/* A copy of `s` with \n \r \t \' \" \\ \xHH as the bytes they mean; other
 * backslashes stay. */
static char *unescape(const char *s, size_t *len)
{
    static const char from[] = "nrt'\"\\";
    static const char to[] = "\n\r\t'\"\\";
    char *out = malloc(strlen(s) + 1);
    size_t n = 0;

    if (out == NULL)
        return NULL;
    for (; *s != '\0'; s++) {
        const char *p;
        unsigned byte;
        int used = 0;

        if (s[0] != '\\' || s[1] == '\0') {
            out[n++] = *s;
        } else if ((p = strchr(from, s[1])) != NULL) {
            out[n++] = to[p - from];
            s++;
        } else if (s[1] == 'x' && strspn(s + 2, "0123456789abcdefABCDEF") > 0 &&
                   sscanf(s + 2, "%2x%n", &byte, &used) == 1) {
            out[n++] = (char)byte;
            s += 1 + used;
        } else {
            out[n++] = *s;
        }
    }
    out[n] = '\0';
    *len = n;
    return out;
}

enum exit_code input_text(struct input *in, const struct options *o,
                          bool or_stdin, bool drop_newline)
{
    bool standard = o->prompt != NULL ? strcmp(o->prompt, "-") == 0
                                      : o->file == NULL && or_stdin;
    enum exit_code c;

    *in = (struct input){0};
    if (o->prompt != NULL && o->file != NULL)
        return complain(o->command, EXIT_USAGE,
                        "-p and -f both give the text; leave one out");
    if (o->prompt == NULL && o->file == NULL && !or_stdin)
        return complain(o->command, EXIT_USAGE,
                        "no text; give it with -p TEXT or -f FILE, or -p - to "
                        "read standard input");
    if (o->prompt != NULL && !standard) {
        if (o->no_escape) {
            in->s = strdup(o->prompt);
            in->len = strlen(o->prompt);
        } else {
            in->s = unescape(o->prompt, &in->len);
        }
        return in->s != NULL ? EXIT_DONE : no_memory(o, strlen(o->prompt));
    }
    c = read_file(in, o, standard ? "-" : o->file);
    if (c != EXIT_DONE) {
        input_free(in);
        return c;
    }
    if (drop_newline && in->len > 0 && in->s[in->len - 1] == '\n')
        in->s[--in->len] = '\0';
    return EXIT_DONE;
}

/* The first word of s, at most 20 bytes of it. A file may hold anything: what
 * is no printable ASCII character shows as \xNN. */
static const char *first_word(const char *s, size_t len, char buf[96])
{
    enum { SHOWN = 20 };
    size_t word = 0, n = 0;

    while (word < len && !memchr(", \t\r\n", s[word], 5))
        word++;
    for (size_t i = 0; i < word && i < SHOWN; i++)
        n += (size_t)snprintf(buf + n, 96 - n,
                              s[i] >= ' ' && s[i] <= '~' ? "%c" : "\\x%02x",
                              (unsigned char)s[i]);
    snprintf(buf + n, 96 - n, "%s", word > SHOWN ? "..." : "");
    return buf;
}

enum exit_code input_ids(const struct options *o, int32_t **ids, int64_t *n)
{
    struct input in = {0};
    enum exit_code c = EXIT_DONE;
    bool from_file = o->tokens[0] == '@';
    const char *s = o->tokens;
    size_t len = strlen(s);
    int64_t bad;

    *ids = NULL;
    if (from_file) {
        c = read_file(&in, o, o->tokens + 1);
        s = in.s;
        len = in.len;
    }
    if (c == EXIT_DONE && !number_ids(s, len, ids, n, &bad)) {
        if (bad < 0) {
            c = no_memory(o, len);
        } else {
            char word[96];

            c = complain(o->command, EXIT_USAGE,
                         "--tokens: \"%s\"%s is no token id; give decimal "
                         "numbers with commas or blanks between",
                         first_word(s + bad, len - (size_t)bad, word),
                         from_file ? " in the file" : "");
        }
    } else if (c == EXIT_DONE && *n == 0) {
        free(*ids);
        *ids = NULL;
        c = complain(o->command, EXIT_USAGE,
                     "--tokens names no id; give at least one");
    }
    input_free(&in);
    return c;
}
