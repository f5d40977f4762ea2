/* Implements hosts.h. */
#include "hosts.h"
#include "option_table.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- one machine --------------------------------------------------------- */

static bool has_only(const char *s, size_t n, const char *more)
{
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)s[i]) && strchr(more, s[i]) == NULL)
            return false;
    return n > 0 && n < HOST_TEXT && s[0] != '-';
}

static void copy(char to[HOST_TEXT], const char *s, size_t n)
{
    memcpy(to, s, n);
    to[n] = '\0';
}

/* Parses a port, the n characters at `s`. Returns 0 if it is not one. */
static int port_of(const char *s, size_t n)
{
    int port = 0;

    for (size_t i = 0; i < n && port <= 65535; i++) {
        if (!isdigit((unsigned char)s[i]))
            return 0;
        port = 10 * port + s[i] - '0';
    }
    return port <= 65535 ? port : 0;
}

/* Parses the n characters at `s`, one machine. */
static bool parse_host(struct host *h, const char *s, size_t n, char *why)
{
    const char *at = memchr(s, '@', n), *end = s + n, *name = s, *stop;
    bool six;

    memset(h, 0, sizeof(*h));
    snprintf(why, HOSTS_WHY, "\"%.*s\"", n < 80 ? (int)n : 80, s);
    if (at != NULL) {
        if (!has_only(s, (size_t)(at - s), "._-"))
            return false;
        copy(h->user, s, (size_t)(at - s));
        name = at + 1;
    }
    six = name < end && *name == '[';
    stop = memchr(name, six ? ']' : ':', (size_t)(end - name));
    if (six && stop == NULL)
        return false;
    if (!six && stop == NULL)
        stop = end;
    name += six;
    if (six && memchr(name, ':', (size_t)(stop - name)) == NULL)
        return false;
    if (!has_only(name, (size_t)(stop - name), six ? ".:%" : ".-_"))
        return false;
    copy(h->name, name, (size_t)(stop - name));
    stop += six;
    if (stop < end && *stop == ':' && !six &&
        memchr(stop + 1, ':', (size_t)(end - stop - 1)) != NULL) {
        snprintf(why, HOSTS_WHY,
                 "\"%.*s\"; put an IPv6 address in brackets, like [::1]",
                 n < 80 ? (int)n : 80, s);
        return false;
    }
    if (stop == end)
        return true;
    h->port = *stop == ':' ? port_of(stop + 1, (size_t)(end - stop - 1)) : 0;
    return h->port > 0;
}

/* Sets the names that mpirun and messages use, once all machines are known. */
static void set_names(struct hosts *h)
{
    for (int i = 0; i < h->n; i++) {
        struct host *a = &h->host[i];
        bool again = false;

        for (int k = 0; k < h->n; k++)
            again |= k != i && strcmp(h->host[k].name, a->name) == 0;
        snprintf(a->shown, sizeof(a->shown), again ? "%s-%d" : "%s", a->name,
                 i);
        if (a->user[0] != '\0' || a->port > 0 || strchr(a->name, ':') != NULL)
            snprintf(a->call, sizeof(a->call), "plait-machine-%d", i);
        else
            strcpy(a->call, a->name);
    }
}

static bool add_host(struct hosts *h, const char *s, size_t n, char *why)
{
    if (h->n == HOSTS_MAX) {
        snprintf(why, HOSTS_WHY, "more than %d machines", HOSTS_MAX);
        return false;
    }
    h->n++;
    return parse_host(&h->host[h->n - 1], s, n, why);
}

bool hosts_parse_list(struct hosts *h, const char *text, char *why)
{
    memset(h, 0, sizeof(*h));
    for (;;) {
        size_t n = strcspn(text, ",");

        if (!add_host(h, text, n, why))
            return false;
        if (text[n] == '\0')
            break;
        text += n + 1;
    }
    set_names(h);
    return true;
}

/* ---- a file -------------------------------------------------------------- */

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* Copies the next word of a line, which ends at `end`, to out[], without its
 * quotes. Advances *s behind it. Returns false if a quote is left open, or if
 * the word is longer than out[n]. */
static bool next_word(const char **s, const char *end, char *out, size_t n)
{
    size_t len = 0;
    char quote = 0;

    while (*s < end && (quote != 0 || !is_blank(**s))) {
        char c = *(*s)++;

        if (quote == 0 && (c == '\'' || c == '"'))
            quote = c;
        else if (c == quote)
            quote = 0;
        else if (len + 1 < n)
            out[len++] = c;
        else
            return false;
    }
    out[len] = '\0';
    return quote == 0;
}

/* Parses a line, which ends at `end`: a machine and its options. */
static bool parse_line(struct hosts *h, const char *s, const char *end,
                       char *why)
{
    bool first = true;
    char word[4096];

    for (;;) {
        while (s < end && is_blank(*s))
            s++;
        if (s == end || *s == '#')
            return true;
        if (!next_word(&s, end, word, sizeof(word))) {
            snprintf(why, HOSTS_WHY,
                     "a quote is not closed, or a word is "
                     "too long");
            return false;
        }
        if (first && !add_host(h, word, strlen(word), why))
            return false;
        if (!first && !word_list_add(&h->host[h->n - 1].own, word)) {
            snprintf(why, HOSTS_WHY, "no memory");
            return false;
        }
        first = false;
    }
}

bool hosts_parse_file(struct hosts *h, const char *text, char *why)
{
    char what[HOSTS_WHY];

    memset(h, 0, sizeof(*h));
    h->has_lines = true;
    for (int line = 1; *text != '\0'; line++) {
        size_t n = strcspn(text, "\n");
        int before = h->n;

        if (!parse_line(h, text, text + n, what)) {
            snprintf(why, HOSTS_WHY, "line %d: %.160s", line, what);
            return false;
        }
        if (h->n > before)
            h->host[before].line = line;
        text += n + (text[n] == '\n');
    }
    if (h->n == 0)
        snprintf(why, HOSTS_WHY, "no machine");
    set_names(h);
    return h->n > 0;
}

bool hosts_check(const struct hosts *h, char *why)
{
    struct options *o = calloc(1, sizeof(*o));
    enum exit_code c = EXIT_DONE;

    snprintf(why, HOSTS_WHY, "no memory");
    for (int i = 0; i < h->n && o != NULL && c == EXIT_DONE; i++) {
        c = options_parse(o, CMD_WORKER, h->host[i].own.n, h->host[i].own.v);
        options_free(o);
        if (c != EXIT_DONE)
            snprintf(why, HOSTS_WHY,
                     "line %d: after the machine's name, give options of plait "
                     "worker",
                     h->host[i].line);
    }
    if (o == NULL)
        c = EXIT_FAILED;
    free(o);
    return c == EXIT_DONE;
}

void hosts_free(struct hosts *h)
{
    for (int i = 0; i < h->n; i++)
        word_list_free(&h->host[i].own);
    h->n = 0;
}

/* ---- words of a machine -------------------------------------------------- */

/* Returns the row of an option, and sets *n to the number of its words, 1 or 2.
 * NULL if the word is not an option of the command. */
static const struct option_row *row_of(const char *word, enum command command,
                                       int *n)
{
    char name[64];
    const char *equals = strncmp(word, "--", 2) == 0 ? strchr(word, '=') : NULL;
    const struct option_row *row;

    snprintf(name, sizeof(name), "%.*s",
             equals != NULL ? (int)(equals - word) : (int)strlen(word), word);
    row = option_find(name, 1u << command);
    *n = row != NULL && row->arg != NULL && equals == NULL ? 2 : 1;
    return row;
}

/* Returns true if the option says which model to use. */
static bool names_model(const struct option_row *row)
{
    static const char *const names[] = {"-m", "-hf", "-hff", "-mu"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(row->name[0], names[i]) == 0)
            return true;
    return false;
}

/* Returns true if the machine's own options replace the option `row`. */
static bool is_replaced(const struct host *h, const struct option_row *row)
{
    int n;

    for (int i = 0; i < h->own.n; i += n) {
        const struct option_row *own = row_of(h->own.v[i], CMD_WORKER, &n);

        if (own != NULL && (strcmp(own->name[0], row->name[0]) == 0 ||
                            (names_model(own) && names_model(row))))
            return true;
    }
    return false;
}

bool hosts_words(struct word_list *to, const struct hosts *h, int m,
                 enum command command, const struct word_list *all)
{
    const struct host *host = &h->host[m];
    bool ok = word_list_add(to, m == 0 ? command_name(command) : "worker");
    int n;

    for (int i = 0; i < all->n && ok; i += n) {
        const struct option_row *row = row_of(all->v[i], command, &n);

        if (row == NULL) {
            ok = m > 0 || word_list_add(to, all->v[i]);
            continue;
        }
        if (strcmp(row->name[0], "--hosts") == 0 || is_replaced(host, row) ||
            (m > 0 && !(row->commands & 1u << CMD_WORKER)))
            continue;
        for (int k = i; k < i + n && k < all->n && ok; k++)
            ok = word_list_add(to, all->v[k]);
    }
    return ok && word_list_join(to, &host->own);
}

/* ---- the environment of a job -------------------------------------------- */

bool hosts_export(const struct hosts *h)
{
    size_t size = (size_t)h->n * (2 * HOST_TEXT + 16) + 1, at = 0;
    char *text = malloc(size);
    bool ok = text != NULL;

    for (int i = 0; i < h->n && ok; i++) {
        const struct host *a = &h->host[i];
        bool six = strchr(a->name, ':') != NULL;
        char port[16] = "";

        if (a->port > 0)
            snprintf(port, sizeof(port), ":%d", a->port);
        at += (size_t)snprintf(text + at, size - at, "%s%s%s%s%s%s%s",
                               i > 0 ? "," : "", a->user,
                               a->user[0] != '\0' ? "@" : "", six ? "[" : "",
                               a->name, six ? "]" : "", port);
    }
    ok = ok && setenv(HOSTS_VARIABLE, text, 1) == 0;
    free(text);
    return ok;
}

bool hosts_import(struct hosts *h)
{
    const char *text = getenv(HOSTS_VARIABLE);
    char why[HOSTS_WHY];

    return text != NULL && hosts_parse_list(h, text, why);
}
