/* Handles options that plait does not have. Options of llama.cpp that would not
 * change results are ignored; others are rejected with an error that names the
 * replacement. For a misspelled option or command, the error suggests the most
 * similar name. The table lists the options that the documentation of
 * llama.cpp's tools names. */
#include "option_table.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#define REFUSED(names, instead)                                                \
    {                                                                          \
        names, instead, LLAMA_REFUSED                                          \
    }

const struct llama_option llama_options[] = {
    REFUSED("-kvo --kv-offload",
            "it is the default; -nkvo keeps the cache on the "
            "host"),
    REFUSED(
        "-C --cpu-mask -Cr --cpu-range --cpu-strict -Cb --cpu-mask-batch -Crb "
        "--cpu-range-batch --cpu-strict-batch",
        "name the cores in -dev, like cpu:0-3"),
    REFUSED("--prio --prio-batch", "the nearest is nice(1)"),
    REFUSED("--repack --no-repack -nr --no-host",
            "weights are always repacked at load; leave it out"),
    REFUSED("--no-op-offload", "use --op-offload off"),
    REFUSED("--swa-full -dt --defrag-thold -kvu --kv-unified",
            "the cache is paged; the nearest is -c"),
    REFUSED("-ctxcp", "use --checkpoints"),
    REFUSED("--keep --context-shift --no-context-shift",
            "a full context ends the text; the nearest is -c"),
    REFUSED("-ns --sequences -cb --cont-batching",
            "a command works on one sequence; leave it out"),
    REFUSED("--list-devices", "use `plait devices`"),
    REFUSED("--rpc", "devices are this machine's; the nearest is -dev"),
    REFUSED("-dr --docker-repo", "the nearest is -hf"),
    REFUSED("-cl --cache-list", "the nearest is --offline"),
    REFUSED(
        "-hfd -hfrd --hf-repo-draft -hfv -hfrv --hf-repo-v -hffv --hf-file-v",
        "there is one model; the nearest is -hf"),
    REFUSED("-mm --mmproj -mmu --mmproj-url --no-mmproj --mmproj-auto",
            "models read text alone; the nearest is -m"),
    REFUSED("-md --model-draft --draft --draft-max --draft-min -devd -ngld -cd "
            "-ctkd "
            "-ctvd --cache-type-k-draft --cache-type-v-draft",
            "there is no draft model; the nearest is -m"),
    REFUSED("--lora --lora-scaled --control-vector --control-vector-scaled "
            "--control-vector-layer-range",
            "weights are used as they are in the file; the nearest is -m"),
    REFUSED(
        "--rope-scaling --rope-scale --rope-freq-base --rope-freq-scale "
        "--yarn-orig-ctx --yarn-ext-factor --yarn-attn-factor --yarn-beta-slow "
        "--yarn-beta-fast --override-kv",
        "the file's own values are used; `plait inspect` shows them"),
    REFUSED("--check-tensors", "the nearest is `plait inspect`"),
    REFUSED("-bf --binary-file", "use -f, which reads a file as it is"),
    REFUSED("-e --escape", "it is the default; --no-escape turns it off"),
    REFUSED("-sysf --system-prompt-file", "the nearest is --system TEXT"),
    REFUSED("-cnv --conversation -st --single-turn",
            "use -i; piped input is one message a line"),
    REFUSED("--chat-template",
            "use --template FILE; templates have no names here"),
    REFUSED("--reasoning-format",
            "reasoning goes to standard error; the nearest is --reasoning"),
    REFUSED("--reasoning-budget", "the nearest is --reasoning off"),
    REFUSED("-if --interactive-first", "use -i without -p"),
    REFUSED("-mli --multiline-input",
            "with -i a line that ends with a backslash continues in the next"),
    REFUSED("--reverse-prompt --in-prefix --in-suffix --in-prefix-bos",
            "the chat template sets the text around messages; the nearest are "
            "--template and, for tokens per turn, -n"),
    REFUSED("-bs --backend-sampling",
            "tokens are sampled on the host; leave it out"),
    REFUSED("--adaptive-target --adaptive-decay",
            "the nearest is --mirostat 2"),
    REFUSED("--prompt-cache --prompt-cache-all --prompt-cache-ro",
            "the nearest are --state-save and --state-load"),
    REFUSED("--verbose-prompt", "use `plait tokenize`"),
    REFUSED(
        "-lv --verbosity --log-verbosity --log-verbose --log-file --log-colors "
        "--log-disable --log-prefix --log-timestamps",
        "the nearest is -v; messages go to standard error"),
    REFUSED("--perf --no-perf --show-timings --no-show-timings",
            "speeds are always printed at the end, on standard error; leave it "
            "out"),
    REFUSED("-co --color --simple-io --display-prompt",
            "the nearest is --no-display-prompt"),
    REFUSED("--ppl-stride --ppl-output-type --hellaswag --winogrande "
            "--multiple-choice --kl-divergence --all-logits --save-all-logits",
            "perplexity is measured over windows of -c tokens; the nearest is "
            "--chunks"),
    REFUSED("--stdin", "use -p -, or redirect"),
    REFUSED("--usage", "use --help"),
    REFUSED("--license --completion-bash", "the nearest is `plait --help`"),
    {"-tb --threads-batch", "prompt and generation use the same threads, -t",
     LLAMA_VALUE},
    {"--numa", "-dev cpu makes one device of each NUMA node", LLAMA_VALUE},
    {"--poll --poll-batch", "threads spin, then sleep", LLAMA_VALUE},
    {"--jinja --no-jinja", "chat templates are always rendered as Jinja",
     LLAMA_FLAG},
    {"-fa --flash-attn", "attention is always computed that way", LLAMA_SWITCH},
    {"--mlock --mmap --no-mmap -dio --direct-io -ndio --no-direct-io",
     "weights are read once into the devices' memory", LLAMA_FLAG},
    {"-mmp -lm --load-mode", "weights are read once into the devices' memory",
     LLAMA_VALUE},
    {"--warmup --no-warmup", "bench always warms up, other commands never do",
     LLAMA_FLAG},
};
const int n_llama_option = sizeof(llama_options) / sizeof(llama_options[0]);

static bool lists(const struct llama_option *l, const char *name)
{
    size_t len = strlen(name);
    const char *s = l->names;

    while (*s != '\0') {
        size_t n = strcspn(s, " ");

        if (n == len && memcmp(s, name, n) == 0)
            return true;
        s += n + (s[n] == ' ');
    }
    return false;
}

static const struct llama_option *find_llama(const char *name)
{
    for (int i = 0; i < n_llama_option; i++)
        if (lists(&llama_options[i], name))
            return &llama_options[i];
    return NULL;
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* Returns the edit distance of two words: the number of letters to insert,
 * drop, replace or swap with their neighbour. This is the optimal string
 * alignment distance (Damerau 1964), of which three rows of the matrix are
 * kept. */
static int distance(const char *a, const char *b)
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
    int found = (int)strlen(name) / 4 + 2; /* larger distances are
                                              not misspellings */

    for (int i = 0; i < n_option_row; i++) {
        for (int k = 0; k < 3; k++) {
            const char *s = option_table[i].name[k];
            int d;

            if (s == NULL || !(option_table[i].commands & (1u << command)))
                continue;
            d = distance(name, s);
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
    const char *best = NULL;
    int found = 3;

    for (int c = 0; c < N_COMMAND; c++) {
        const char *name = command_name((enum command)c);
        int d = distance(word, name);

        if (d < found && d < (int)strlen(name) / 2 + 1) {
            found = d;
            best = name;
        }
    }
    return best;
}

bool option_ignore(enum command command, const char *name, const char *next,
                   int *n_word)
{
    static const char *const switches[] = {"on", "off", "auto", "0", "1"};
    const struct llama_option *l = find_llama(name);

    if (l == NULL || l->take == LLAMA_REFUSED ||
        !option_find("-dev", 1u << command))
        return false;
    *n_word = l->take == LLAMA_VALUE;
    for (int i = 0; next != NULL && l->take == LLAMA_SWITCH && i < 5; i++)
        *n_word |= strcmp(next, switches[i]) == 0;
    cli_error(command, EXIT_DONE, "%s of llama.cpp has no effect here: %s",
              name, l->instead);
    return true;
}

enum exit_code option_unknown(enum command command, const char *name)
{
    const struct option_row *row = option_find(name, UINT_MAX);
    const struct llama_option *l = find_llama(name);
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
    if (l != NULL)
        return cli_error(command, EXIT_USAGE,
                         "%s of llama.cpp is not an option here: %s", name,
                         l->instead);
    if (near != NULL)
        return cli_error(command, EXIT_USAGE,
                         "unknown option %s; did you mean %s?", name, near);
    return cli_error(command, EXIT_USAGE,
                     "unknown option %s; `plait %s --help-all` lists all", name,
                     command_name(command));
}
