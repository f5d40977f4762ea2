/* Text and ids from the command line, a file or standard input. */
#include "input.h"
#include "number.h"
#include "printable.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void input_free(struct input *in)
{
    free(in->s);
    *in = (struct input){0};
}

static enum exit_code no_memory(const struct options *o, size_t bytes)
{
    return cli_error(o->command, EXIT_FAILED,
                     "no memory for %zu bytes of text; give a smaller one",
                     bytes);
}

/* Limits of a whole text and of one line, in MiB. Larger input comes from a
 * device such as /dev/zero or from a wrong file. */
enum { MOST_MIB = 256, LINE_MIB = 16 };

static enum exit_code too_much(const struct options *o, const char *name,
                               int most_mib)
{
    char cut[SHOWN];

    return cli_error(o->command, EXIT_FAILED,
                     "%s has more than %d MiB; give a shorter text",
                     clip_printable(cut, name), most_mib);
}

/* Reads `f` to its end. `name` is its name in messages. */
static enum exit_code read_all(struct input *in, const struct options *o,
                               FILE *f, const char *name)
{
    const size_t most = (size_t)MOST_MIB << 20;
    size_t size = 0;
    char cut[SHOWN];

    do {
        size_t more = size > 0 ? size : 1 << 16;
        char *s = realloc(in->s, size + more + 1);

        if (s == NULL)
            return no_memory(o, size + more);
        in->s = s;
        size += more;
        in->len += fread(s + in->len, 1, size - in->len, f);
        if (in->len > most)
            return too_much(o, name, MOST_MIB);
    } while (in->len == size);
    in->s[in->len] = '\0';
    if (ferror(f))
        return cli_error(o->command, EXIT_FAILED, "reading %s: %s",
                         clip_printable(cut, name), strerror(errno));
    return EXIT_DONE;
}

enum exit_code input_file(struct input *in, const struct options *o,
                          const char *path)
{
    char cut[SHOWN];
    enum exit_code c;
    FILE *f;

    *in = (struct input){0};
    if (strcmp(path, "-") == 0)
        return read_all(in, o, stdin, "standard input");
    f = fopen(path, "rb");
    if (f == NULL)
        return cli_error(o->command, EXIT_FAILED, "opening %s: %s",
                         clip_printable(cut, path), strerror(errno));
    c = read_all(in, o, f, path);
    fclose(f);
    return c;
}

/* Returns a copy of `s`, malloc'ed, with the escapes \n \r \t \' \" \\ \xHH
 * replaced by their bytes. Other backslashes stay. Sets *len to its length,
 * because it may contain NULs. */
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

enum exit_code input_escaped(struct input *in, const struct options *o,
                             const char *value)
{
    if (o->no_escape) {
        in->s = strdup(value);
        in->len = strlen(value);
    } else {
        in->s = unescape(value, &in->len);
    }
    return in->s != NULL ? EXIT_DONE : no_memory(o, strlen(value));
}

enum exit_code input_text(struct input *in, const struct options *o)
{
    const char *file = o->file != NULL ? o->file : o->binary_file;
    bool standard =
        o->prompt != NULL ? strcmp(o->prompt, "-") == 0 : file == NULL;
    enum exit_code c;

    *in = (struct input){0};
    if (o->file != NULL && o->binary_file != NULL)
        return cli_error(o->command, EXIT_USAGE,
                         "-f and -bf both give a text; leave one out");
    if (o->prompt != NULL && file != NULL)
        return cli_error(o->command, EXIT_USAGE,
                         "-p and %s both give a text; leave one out",
                         o->file != NULL ? "-f" : "-bf");
    if (o->prompt != NULL && !standard)
        return input_escaped(in, o, o->prompt);
    c = input_file(in, o, standard ? "-" : file);
    if (c != EXIT_DONE)
        input_free(in);
    return c;
}

enum exit_code input_prompt(struct input *in, const struct options *o)
{
    bool given = o->prompt != NULL || o->file != NULL || o->binary_file != NULL;
    bool literal = (o->prompt != NULL && strcmp(o->prompt, "-") != 0) ||
                   o->binary_file != NULL;
    enum exit_code c = EXIT_DONE;

    *in = (struct input){0};
    if (given || !isatty(0))
        c = input_text(in, o);
    if (c == EXIT_DONE && !given && in->len == 0 && o->state_load == NULL)
        c = cli_error(o->command, EXIT_USAGE,
                      "no text%s; give it with -p TEXT or -f FILE, or pipe it "
                      "in%s",
                      in->s != NULL ? ": standard input is empty" : "",
                      o->command == CMD_RUN ? "; -i starts a chat" : "");
    if (c == EXIT_DONE && !literal && in->len > 0 && in->s[in->len - 1] == '\n')
        in->s[--in->len] = '\0';
    if (c != EXIT_DONE)
        input_free(in);
    return c;
}

/* Handles a read that failed because the terminal was closed meanwhile: clears
 * the error, so that the read counts as the end of the input, as a later read
 * would. Keeps other errors, and errno. */
static void end_with_terminal(void)
{
    int error = errno;

    if (ferror(stdin) && error == EIO && !isatty(0) && errno == EIO)
        clearerr(stdin);
    errno = error;
}

bool input_line(struct input *in, const struct options *o, enum exit_code *c)
{
    const size_t most = (size_t)LINE_MIB << 20;
    size_t size = 0;
    int ch;

    input_free(in);
    do {
        if (in->len + 1 >= size) {
            char *s = realloc(in->s, size = size > 0 ? 2 * size : 256);

            if (s == NULL) {
                *c = no_memory(o, size);
                return false;
            }
            in->s = s;
        }
        ch = getchar();
        if (ch != EOF)
            in->s[in->len++] = (char)ch;
        if (in->len > most) {
            *c = too_much(o, "a line of standard input", LINE_MIB);
            return false;
        }
    } while (ch != EOF && ch != '\n');
    in->s[in->len] = '\0';
    end_with_terminal();
    return in->len > 0 && !ferror(stdin);
}

/* Writes the first word of `s`, at most 20 bytes of it, to `buf` and returns
 * buf. Bytes other than printable ASCII are written as \xNN, because the input
 * may contain any bytes. */
static const char *first_word(const char *s, size_t len, char buf[96])
{
    enum { MOST = 20 };
    size_t word = 0, n = 0;

    while (word < len && !memchr(", \t\r\n", s[word], 5))
        word++;
    for (size_t i = 0; i < word && i < MOST; i++)
        n += (size_t)snprintf(buf + n, 96 - n,
                              s[i] >= ' ' && s[i] <= '~' ? "%c" : "\\x%02x",
                              (unsigned char)s[i]);
    snprintf(buf + n, 96 - n, "%s", word > MOST ? "..." : "");
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
    if (from_file && s[1] == '\0')
        return cli_error(
            o->command, EXIT_USAGE,
            "--tokens @: name a file after the @, or give the ids themselves");
    if (from_file) {
        c = input_file(&in, o, o->tokens + 1);
        s = in.s;
        len = in.len;
    }
    if (c == EXIT_DONE && !number_ids(s, len, ids, n, &bad)) {
        if (bad < 0) {
            c = no_memory(o, len);
        } else {
            char word[96];

            c = cli_error(o->command, EXIT_USAGE,
                          "--tokens: \"%s\"%s is not a token id; give decimal "
                          "numbers separated by commas or blanks",
                          first_word(s + bad, len - (size_t)bad, word),
                          from_file ? " in the file" : "");
        }
    } else if (c == EXIT_DONE && *n == 0) {
        free(*ids);
        *ids = NULL;
        c = cli_error(o->command, EXIT_USAGE,
                      "--tokens has no ids; give at least one");
    }
    input_free(&in);
    return c;
}
