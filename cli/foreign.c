/* Options that are none of ours: those of llama.cpp, ignored where they would
 * change no result, else refused by name with what to use instead; and slips of
 * the finger, in commands too, answered with the nearest name.
 *
 * The lists are of names only, from the options llama.cpp's tools document. */
#include "option_table.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

/* names split by blanks; what to do instead */
struct foreign {
    const char *names;
    const char *instead;
};

static const struct foreign refused[] = {
    {"-kvo --kv-offload", "it is the default; -nkvo keeps the cache on the "
                          "host"},
    {"-C --cpu-mask -Cr --cpu-range --cpu-strict -Cb --cpu-mask-batch -Crb "
     "--cpu-range-batch --cpu-strict-batch",
     "name the cores in -dev, like cpu:0-3"},
    {"--prio --prio-batch", "the nearest is nice(1)"},
    {"--repack --no-repack -nr --no-host",
     "weights are always repacked at load; leave it out"},
    {"--no-op-offload", "use --op-offload off"},
    {"--swa-full -dt --defrag-thold -kvu --kv-unified",
     "the cache is paged; the nearest is -c"},
    {"--keep --context-shift --no-context-shift -ctxcp",
     "a full context ends the text; the nearest is -c"},
    {"-np --parallel -ns --sequences -cb --cont-batching",
     "a command works on one sequence; leave it out"},
    {"--list-devices", "use `plait devices`"},
    {"--rpc", "devices are this machine's; the nearest is -dev"},
    {"-dr --docker-repo", "the nearest is -hf"},
    {"-cl --cache-list", "the nearest is --offline"},
    {"-hfd -hfrd --hf-repo-draft -hfv -hfrv --hf-repo-v -hffv --hf-file-v",
     "there is one model; the nearest is -hf"},
    {"-mm --mmproj -mmu --mmproj-url --no-mmproj --mmproj-auto",
     "models read text alone; the nearest is -m"},
    {"-md --model-draft --draft --draft-max --draft-min -devd -ngld -cd -ctkd "
     "-ctvd --cache-type-k-draft --cache-type-v-draft",
     "there is no draft model; the nearest is -m"},
    {"--lora --lora-scaled --control-vector --control-vector-scaled "
     "--control-vector-layer-range",
     "weights are used as they are in the file; the nearest is -m"},
    {"--rope-scaling --rope-scale --rope-freq-base --rope-freq-scale "
     "--yarn-orig-ctx --yarn-ext-factor --yarn-attn-factor --yarn-beta-slow "
     "--yarn-beta-fast --override-kv",
     "the file's own values are used; `plait inspect` shows them"},
    {"--check-tensors", "the nearest is `plait inspect`"},
    {"-bf --binary-file", "use -f, which takes a file as it is"},
    {"-e --escape", "it is the default; --no-escape turns it off"},
    {"-sysf --system-prompt-file", "the nearest is --system TEXT"},
    {"-cnv --conversation -st --single-turn",
     "use -i; what is piped in is one message a line"},
    {"--chat-template", "templates have no names here; use --template FILE"},
    {"--reasoning-format",
     "reasoning goes to standard error; the nearest is --reasoning"},
    {"--reasoning-budget", "the nearest is --reasoning off"},
    {"-if --interactive-first", "use -i without -p"},
    {"-mli --multiline-input",
     "with -i a line that ends with a backslash goes on in the next"},
    {"-r --reverse-prompt --in-prefix --in-suffix --in-prefix-bos",
     "the chat template says what stands around messages; the nearest are "
     "--template and, for tokens a turn, -n"},
    {"-bs --backend-sampling", "the devices choose no tokens; leave it out"},
    {"--adaptive-target --adaptive-decay", "the nearest is --mirostat 2"},
    {"--prompt-cache --prompt-cache-all --prompt-cache-ro",
     "the nearest are --state-save and --state-load"},
    {"--verbose-prompt", "use `plait tokenize`"},
    {"-lv --verbosity --log-verbosity --log-verbose --log-file --log-colors "
     "--log-disable --log-prefix --log-timestamps",
     "the nearest is -v; messages go to standard error"},
    {"--perf --no-perf --show-timings --no-show-timings",
     "speeds come at the end, on standard error; leave it out"},
    {"-co --color --simple-io --display-prompt",
     "the nearest is --no-display-prompt"},
    {"--ppl-stride --ppl-output-type --hellaswag --winogrande "
     "--multiple-choice --kl-divergence --all-logits --save-all-logits",
     "perplexity is measured over windows of -c tokens; the nearest is "
     "--chunks"},
    {"--stdin", "use -p -, or redirect"},
    {"--usage", "use --help"},
    {"--license --completion-bash", "the nearest is `plait --help`"},
};

/* Options that would change no result; why, and whether they have a value. */
static const struct ignored {
    struct foreign f;
    enum { NO_VALUE, VALUE, SWITCH } value;
} ignored[] = {
    {{"-tb --threads-batch", "prompt and generation use the same threads, -t"},
     VALUE},
    {{"--numa", "-dev cpu makes one device of each NUMA node"}, VALUE},
    {{"--poll --poll-batch", "threads spin, then sleep"}, VALUE},
    {{"--jinja --no-jinja", "chat templates are always Jinja's"}, NO_VALUE},
    {{"-fa --flash-attn", "attention always works that way"}, SWITCH},
    {{"--mlock --mmap --no-mmap -dio --direct-io -ndio --no-direct-io",
      "weights are read once into the devices' memory"},
     NO_VALUE},
    {{"-mmp -lm --load-mode", "weights are read once into the devices' memory"},
     VALUE},
    {{"--warmup --no-warmup", "bench always warms up, the others never do"},
     NO_VALUE},
};
enum {
    N_REFUSED = sizeof(refused) / sizeof(refused[0]),
    N_IGNORED = sizeof(ignored) / sizeof(ignored[0]),
};

/* Does the row list `name`? */
static bool lists(const struct foreign *f, const char *name)
{
    size_t len = strlen(name);
    const char *s = f->names;

    while (*s != '\0') {
        size_t n = strcspn(s, " ");

        if (n == len && memcmp(s, name, n) == 0)
            return true;
        s += n + (s[n] == ' ');
    }
    return false;
}

static const struct ignored *find_ignored(const char *name)
{
    for (int i = 0; i < N_IGNORED; i++)
        if (lists(&ignored[i].f, name))
            return &ignored[i];
    return NULL;
}

static const struct foreign *find_foreign(const char *name)
{
    const struct ignored *g = find_ignored(name);

    for (int i = 0; i < N_REFUSED; i++)
        if (lists(&refused[i], name))
            return &refused[i];
    return g != NULL ? &g->f : NULL;
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* Letters to insert, drop, replace or swap with their neighbour: the optimal
 * string alignment distance (Damerau 1964), by three rows of its matrix. */
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

/* The name of an option of `command` that a slip of the finger away is `name`,
 * or NULL. */
static const char *nearest(enum command command, const char *name)
{
    const char *best = NULL;
    int found = (int)strlen(name) / 4 + 2; /* further off is no slip */

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
    const struct ignored *g = find_ignored(name);

    if (g == NULL || !option_find("-dev", 1u << command))
        return false;
    *n_word = g->value == VALUE;
    for (int i = 0; next != NULL && g->value == SWITCH && i < 5; i++)
        *n_word |= strcmp(next, switches[i]) == 0;
    complain(command, EXIT_DONE, "%s of llama.cpp changes nothing here: %s",
             name, g->f.instead);
    return true;
}

enum exit_code option_refuse(enum command command, const char *name)
{
    const struct option_row *row = option_find(name, UINT_MAX);
    const struct foreign *f = find_foreign(name);
    const char *near = nearest(command, name);

    if (row != NULL) {
        int c = 0;

        while (!(row->commands & (1u << c)))
            c++;
        return complain(command, EXIT_USAGE,
                        "%s is an option of `plait %s`; `plait %s --help` "
                        "lists those of this command",
                        name, command_name(c), command_name(command));
    }
    if (f != NULL)
        return complain(command, EXIT_USAGE,
                        "%s of llama.cpp is not an option here: %s", name,
                        f->instead);
    if (near != NULL)
        return complain(command, EXIT_USAGE,
                        "there is no option %s; did you mean %s?", name, near);
    return complain(command, EXIT_USAGE,
                    "there is no option %s; `plait %s --help` lists them all",
                    name, command_name(command));
}
