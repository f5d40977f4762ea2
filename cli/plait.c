/* plait, the command: finds the command in a table, hands it its options, and
 * gives its exit code back. All it knows of the library is pl.h. */
#include "cmd.h"
#include "fetch.h"
#include "shown.h"
#include "term.h"
#include "whole_file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Examples run as they stand from the root of the source tree. */
#define EXAMPLE_RUN                                                            \
    "plait run -m models/fable-moe-Q8_0.gguf -p \"Once upon a time\" -n 40"
#define EXAMPLE_PLAN                                                           \
    "plait plan -m models/fable-moe-Q8_0.gguf -dev \"cpu*3\" -ts 2,1,1"
#define EXAMPLE_INSPECT "plait inspect models/fable-moe-Q8_0.gguf"
#define EXAMPLE_DEVICES "plait devices"
#define EXAMPLE_PERPLEXITY                                                     \
    "plait perplexity -m models/fable-moe-Q8_0.gguf -f models/heldout.txt "    \
    "--chunks 4"
#define EXAMPLE_LOGITS                                                         \
    "plait logits -m models/fable-moe-Q8_0.gguf --tokens 1,2,3 -o logits.bin"
#define EXAMPLE_TOKENIZE                                                       \
    "plait tokenize -m models/fable-moe-Q8_0.gguf -p \"Once upon a time\""
#define EXAMPLE_RENDER                                                         \
    "echo '[{\"role\": \"user\", \"content\": \"Hi\"}]' | plait render "       \
    "-m models/fable-moe-Q8_0.gguf --messages -"
#define EXAMPLE_SERVE "plait serve -m models/fable-moe-Q8_0.gguf --port 8080"
#define EXAMPLE_BENCH                                                          \
    "plait bench -m models/fable-moe-Q8_0.gguf -p 64 -n 32 -r 3"
#define EXAMPLE_SYNTH                                                          \
    "plait synth --shape qwen3-0.6b --type q4_k_m -o synthetic.gguf"

/* One row a command; its example ends its help. */
static const struct {
    const char *name, *text, *args;
    enum exit_code (*run)(const struct options *o);
    const char *example;
} commands[] = {
#define COMMAND_ROW(upper, lower, line, words)                                 \
    [CMD_##upper] = {#lower, line, words, cmd_##lower, EXAMPLE_##upper},
    COMMAND_MAP(COMMAND_ROW)
#undef COMMAND_ROW
};

static void print_help(void)
{
    puts("plait runs large language models split over several devices as if "
         "they were one.\n\nusage: plait COMMAND [OPTION ...]\n");
    for (int i = 0; i < N_COMMAND; i++)
        printf("  %-12s%s\n", commands[i].name, commands[i].text);
    printf("\n`plait COMMAND --help` lists a command's options; `plait "
           "--version` prints\nthe version. Exit codes: 0, 1 (failed), 2 "
           "(usage), 130 (interrupted; 143 by SIGTERM, 129 by SIGHUP),\n"
           "141 (nobody reads the output).\n"
           "PLAIT_CPU=NAME forces the kernels of a "
           "CPU; `plait devices` lists the names.\n\nexample:\n  %s\n",
           commands[CMD_RUN].example);
}

static void print_command_help(enum command c)
{
    printf("usage: plait %s %s[OPTION ...]\n\nplait %s: %s.\n",
           commands[c].name, commands[c].args, commands[c].name,
           commands[c].text);
    options_print(c);
    printf("\nexample:\n  %s\n", commands[c].example);
}

static int written(void)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return EXIT_DONE;
    return errno == EPIPE ? EXIT_PIPE : EXIT_FAILED;
}

static int print_version(void)
{
    printf("plait %s\n", pl_version());
    return written();
}

static enum command command_find(const char *name)
{
    int c = 0;

    while (c < N_COMMAND && strcmp(name, commands[c].name) != 0)
        c++;
    return (enum command)c;
}

/* The first word is no command: says which one is meant. */
static int refuse(int argc, char **argv)
{
    const char *word = argv[0];
    const char *near = command_nearest(word);
    char cut[SHOWN];

    shown(cut, word);
    if (word[0] == '-') {
        enum command c = command_of_options(argc, argv);

        return complain(N_COMMAND, EXIT_USAGE,
                        "no command before %s; %s%s%s`plait --help` lists the "
                        "commands",
                        cut, c < N_COMMAND ? "`plait " : "",
                        c < N_COMMAND ? commands[c].name : "",
                        c < N_COMMAND ? "` takes these options; " : "");
    }
    if (near != NULL)
        return complain(N_COMMAND, EXIT_USAGE,
                        "there is no command \"%s\"; did you mean `plait %s`?",
                        cut, near);
    if (access(word, F_OK) == 0)
        return complain(N_COMMAND, EXIT_USAGE,
                        "\"%s\" is a file, and no command; `plait run -m "
                        "FILE` or `plait inspect FILE` may be meant",
                        cut);
    return complain(N_COMMAND, EXIT_USAGE,
                    "there is no command \"%s\"; `plait --help` lists them",
                    cut);
}

/* `plait help [COMMAND]`, with dashes too. */
static int help(int argc, char **argv)
{
    enum command c = argc > 0 ? command_find(argv[0]) : N_COMMAND;

    if (argc > 0 && c == N_COMMAND)
        return refuse(argc, argv);
    if (argc > 0)
        print_command_help(c);
    else
        print_help();
    return written();
}

static bool is_one_of(const char *word, const char *const *list)
{
    while (*list != NULL && strcmp(word, *list) != 0)
        list++;
    return *list != NULL;
}

int main(int argc, char **argv)
{
    static const char *const helps[] = {"help", "--help", "-h", "-?", NULL};
    static const char *const versions[] = {"version", "--version", "-V", NULL};
    struct options o;
    enum exit_code code;
    enum command c;

    term_init();
    if (argc < 2) {
        fputs("usage: plait COMMAND [OPTION ...]; `plait --help` lists the "
              "commands\n",
              stderr);
        return EXIT_USAGE;
    }
    if (is_one_of(argv[1], helps))
        return help(argc - 2, argv + 2);
    if (is_one_of(argv[1], versions))
        return print_version();
    c = command_find(argv[1]);
    if (c == N_COMMAND)
        return refuse(argc - 1, argv + 1);
    code = options_parse(&o, c, argc - 2, argv + 2);
    if (code == EXIT_DONE && o.help) {
        print_command_help(c);
        code = written();
    } else if (code == EXIT_DONE) {
        code = whole_check(&o);
        if (code == EXIT_DONE &&
            (c != CMD_SERVE || !serve_has_many(&o))) /* come when asked */
            code = fetch_model(&o);
        if (code == EXIT_DONE && o.fetched != NULL)
            code = whole_check(&o);
        if (code == EXIT_DONE)
            code = commands[c].run(&o);
    }
    options_free(&o);
    return term_exit_code((int)code);
}
