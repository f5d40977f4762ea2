/* plait, the command: finds the command in a table, hands it its options, and
 * gives its exit code back. All it knows of the library is pl.h. */
#include "cmd.h"
#include "term.h"

#include <stdio.h>
#include <string.h>

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
           "(usage), 130 (interrupted).\nPLAIT_CPU=reference|generic|avx2|"
           "avx512 forces the kernels of a CPU.\n\nexample:\n  %s\n",
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
    return fflush(stdout) == 0 && !ferror(stdout) ? EXIT_DONE : EXIT_FAILED;
}

int main(int argc, char **argv)
{
    struct options o;
    enum exit_code code;
    int c = 0;

    term_init();
    if (argc < 2) {
        fputs("usage: plait COMMAND [OPTION ...]; `plait --help` lists the "
              "commands\n",
              stderr);
        return EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_help();
        return written();
    }
    if (strcmp(argv[1], "--version") == 0) {
        puts("plait " PLAIT_VERSION);
        return written();
    }
    while (c < N_COMMAND && strcmp(argv[1], commands[c].name) != 0)
        c++;
    if (c == N_COMMAND) {
        fprintf(stderr,
                "plait: there is no command \"%s\"; `plait --help` lists "
                "them\n",
                argv[1]);
        return EXIT_USAGE;
    }
    code = options_parse(&o, c, argc - 2, argv + 2);
    if (code == EXIT_DONE && o.help) {
        print_command_help(c);
        code = written();
    } else if (code == EXIT_DONE) {
        code = commands[c].run(&o);
    }
    options_free(&o);
    return (int)code;
}
