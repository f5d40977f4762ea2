/* Errors for options and commands that plait does not have. If the name is
 * misspelled, the error suggests the most similar one. */
#include "option_table.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* Computes the optimal string alignment distance (Damerau 1964). Keeps only
 * three rows of its matrix. */
int word_distance(const char *a, const char *b)
{
    enum { MAX = 32 };
    int row[3][MAX + 1] = {0};
    int n_a = (int)strlen(a);
    int n_b = (int)strlen(b);

    if (n_a > MAX || n_b > MAX)
        return MAX;
    for (int k = 0; k <= n_b; k++)
        row[0][k] = k;
    for (int i = 1; i <= n_a; i++) {
        int *now = row[i % 3];
        const int *up = row[(i + 2) % 3];
        const int *upper = row[(i + 1) % 3];

        now[0] = i;
        for (int k = 1; k <= n_b; k++) {
            now[k] = least(up[k - 1] + (a[i - 1] != b[k - 1]),
                           least(up[k], now[k - 1]) + 1);
            if (i > 1 && k > 1 && a[i - 1] == b[k - 2] && a[i - 2] == b[k - 1])
                now[k] = least(now[k], upper[k - 2] + 1);
        }
    }
    return row[n_a % 3][n_b];
}

/* Returns the option of `command` with the smallest edit distance to the
 * misspelled `name`, or NULL if none is similar. */
static const char *nearest(enum command command, const char *name)
{
    const char *best = NULL;
    /* an option must be closer to `name` than this distance to be suggested */
    int found = (int)strlen(name) / 4 + 2;

    for (int i = 0; i < n_option_row; i++) {
        for (int k = 0; k < OPTION_NAMES; k++) {
            const char *s = option_table[i].name[k];
            int d;

            if (s == NULL || !(option_table[i].commands & (1u << command)))
                continue;
            d = word_distance(name, s);
            if (d < found) {
                found = d;
                best = s;
            }
        }
    }
    return best;
}

const char *command_nearest(const char *word)
{
    static const char *const others[][2] = {
        {"chat", "run"},
        {"cli", "run"},
        {"ask", "run"},
        {"generate", "run"},
        {"complete", "run"},
        {"pull", "run -hf USER/REPO"},
        {"download", "run -hf USER/REPO"},
        {"api", "serve"},
        {"show", "inspect"},
        {"info", "inspect"},
        {"gpus", "devices"},
        {"benchmark", "bench"},
        {"ppl", "perplexity"},
        {"convert", "quantize"},
    };
    const char *best = NULL;
    int found = 3;

    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (strcmp(word, others[i][0]) == 0)
            return others[i][1];
    for (int c = 0; c < N_COMMAND; c++) {
        const char *name = command_name((enum command)c);
        int d = word_distance(word, name);

        if (d < found && d < (int)strlen(name) / 2 + 1) {
            found = d;
            best = name;
        }
    }
    return best;
}

enum exit_code option_unknown(enum command command, const char *name)
{
    const struct option_row *row = option_find(name, UINT_MAX);
    const char *near = nearest(command, name);

    if (row != NULL) {
        int c = 0;

        while (!(row->commands & (1u << c)))
            c++;
        return cli_error(command, EXIT_USAGE,
                         "%s is an option of `plait %s`; `plait %s --help` "
                         "lists those of this command",
                         name, command_name(c), command_name(command));
    }
    if (near != NULL)
        return cli_error(command, EXIT_USAGE,
                         "unknown option %s; did you mean %s?", name, near);
    return cli_error(command, EXIT_USAGE,
                     "unknown option %s; `plait %s --help-all` lists all", name,
                     command_name(command));
}
