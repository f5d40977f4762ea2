/* The command plait: finds the subcommand in a table, passes it its options,
 * and returns its exit code. It uses only pl.h of the library. */
#include "atomic_file.h"
#include "cmd.h"
#include "fetch.h"
#include "front_link.h"
#include "mpi_job.h"
#include "option_table.h"
#include "printable.h"
#include "remote_shell.h"
#include "term.h"

#include "pl_machines.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static const struct {
    const char *name, *text, *args;
    enum exit_code (*run)(const struct options *o);
    const char *example;
} commands[] = {
#define COMMAND_ROW(upper, lower, text, args, example)                         \
    [CMD_##upper] = {#lower, text, args, cmd_##lower, example},
    COMMAND_MAP(COMMAND_ROW)
#undef COMMAND_ROW
};

static void print_exit_codes(void)
{
#define EXIT_ROW(name, value, text) printf("  %-12d%s\n", value, text);
    EXIT_MAP(EXIT_ROW)
#undef EXIT_ROW
}

static void print_help(bool all)
{
    puts("plait runs large language models split over several devices.\n\n"
         "usage: plait COMMAND [OPTION ...]\n\nTo begin:\n"
         "  plait run -m FILE        chat with a model, a GGUF file\n"
         "  plait run -hf USER/REPO  the same, downloaded from huggingface.co\n"
         "  plait serve -m FILE      the same in a browser, and for programs\n"
         "\nCommands:");
    for (int i = 0; i < N_COMMAND; i++)
        printf("  %-12s%s\n", commands[i].name, commands[i].text);
    puts("\nplait COMMAND --help      the options that are used most\n"
         "plait COMMAND --help-all  all options\n"
         "plait --help-all          environment variables and exit codes\n"
         "plait --version           the version");
    if (all) {
        puts("\nExit codes:");
        print_exit_codes();
        puts("\nEnvironment variables:");
    }
    for (int i = 0; all && i < n_environment_row; i++) {
        const struct environment_row *e = &environment_table[i];
        char name[64];

        snprintf(name, sizeof(name), "%s=%s", e->name, e->value);
        options_print_row(name, e->help);
    }
    printf("\nexample:\n  %s\n", commands[CMD_RUN].example);
}

static void print_command_help(enum command c, bool all)
{
    int n = printf("usage: plait %s %s[OPTION ...]", commands[c].name,
                   commands[c].args);

    if (!all)
        printf("%s(all options: plait %s --help-all)",
               n > 38 ? "\n       " : " ", commands[c].name);
    printf("\n%s.\n", commands[c].text);
    options_print(c, all);
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

static const char *const own_options[] = {"--help", "--help-all", "--version"};
enum { N_OWN = sizeof(own_options) / sizeof(own_options[0]) };

/* Reports that the first word is not a command, and suggests a command. */
static int refuse(int argc, char **argv)
{
    const char *word = argv[0];
    const char *near = command_nearest(word);
    struct stat st;
    char cut[SHOWN];

    clip_printable(cut, word);
    if (word[0] == '-') {
        enum command c = command_of_options(argc, argv);

        for (int i = 0; i < N_OWN; i++)
            if (word_distance(word, own_options[i]) < 3)
                return cli_error(N_COMMAND, EXIT_USAGE,
                                 "unknown option %s; did you mean %s?", cut,
                                 own_options[i]);
        return cli_error(
            N_COMMAND, EXIT_USAGE,
            "no command before %s; %s%s%s`plait --help` lists the commands",
            cut, c < N_COMMAND ? "`plait " : "",
            c < N_COMMAND ? commands[c].name : "",
            c < N_COMMAND ? "` takes these options; " : "");
    }
    if (near != NULL)
        return cli_error(N_COMMAND, EXIT_USAGE,
                         "unknown command \"%s\"; did you mean `plait %s`?",
                         cut, near);
    if (stat(word, &st) == 0 && !S_ISDIR(st.st_mode))
        return cli_error(N_COMMAND, EXIT_USAGE,
                         "\"%s\" is a file, not a command; use `plait run -m "
                         "FILE` or `plait inspect FILE`",
                         cut);
    return cli_error(N_COMMAND, EXIT_USAGE,
                     "unknown command \"%s\"; `plait --help` lists all", cut);
}

/* Runs `plait help [COMMAND]` or `plait --help [COMMAND]`. */
static int help(int argc, char **argv, bool all)
{
    enum command c = argc > 0 ? command_find(argv[0]) : N_COMMAND;

    if (argc > 0 && c == N_COMMAND)
        return refuse(argc, argv);
    if (argc > 0)
        print_command_help(c, all);
    else
        print_help(all);
    return written();
}

static bool is_one_of(const char *word, const char *const *list)
{
    while (*list != NULL && strcmp(word, *list) != 0)
        list++;
    return *list != NULL;
}

/* Refuses a server of several models on several machines, which have one engine
 * at a time. */
static enum exit_code check_machines(const struct options *o)
{
    if (o->command != CMD_SERVE || !serve_has_many(o) ||
        (o->hosts == NULL && pl_machines_started() < 2))
        return EXIT_DONE;
    return cli_error(CMD_SERVE, EXIT_USAGE,
                     "several models over several machines: they serve one "
                     "model at a time; give one with -m FILE, and start a "
                     "server with a --port of its own for each other model");
}

/* Runs the command; on a machine other than 0, computes for machine 0. */
static enum exit_code run_command(struct options *o)
{
    enum exit_code code = mpi_job_join(o);

    if (code != EXIT_DONE)
        return code;
    if (mpi_job_serves(o))
        return mpi_job_serve(o);
    code = commands[o->command].run(o);
    return o->pl.machines != NULL ? mpi_job_leave(o, code) : code;
}

int main(int argc, char **argv)
{
    static const char *const helps[] = {"help", "--help", "-h", "-?", NULL};
    static const char *const versions[] = {"version", "--version", "-V", NULL};
    struct options o = {0};
    struct word_list words = {0};
    enum exit_code code;
    enum command c;

    term_init();
    if (argc < 2) {
        fputs(
            "usage: plait COMMAND [OPTION ...]\n`plait run -m FILE` chats with "
            "a model, `plait --help` lists the commands\n",
            stderr);
        return EXIT_USAGE;
    }
    if (is_one_of(argv[1], helps))
        return help(argc - 2, argv + 2, false);
    if (is_remote_shell(argc - 1, argv + 1))
        return remote_shell(argc - 1, argv + 1);
    if (strcmp(argv[1], "--help-all") == 0)
        return help(argc - 2, argv + 2, true);
    if (is_one_of(argv[1], versions))
        return print_version();
    c = command_find(argv[1]);
    if (c == N_COMMAND)
        return refuse(argc - 1, argv + 1);
    code = llama_environment(&words, c, argc - 2, argv + 2);
    if (code == EXIT_DONE)
        code = options_parse(&o, c, words.n, words.v);
    word_list_free(&words);
    if (code == EXIT_DONE && o.version) {
        code = (enum exit_code)print_version();
    } else if (code == EXIT_DONE && (o.help || o.help_all)) {
        print_command_help(c, o.help_all);
        code = written();
    } else if (code == EXIT_DONE) {
        mpi_job_name(&o);
        code = whole_check(&o);
        if (code == EXIT_DONE)
            code = check_machines(&o);
        if (code == EXIT_DONE && o.hosts != NULL && pl_machines_started() < 2) {
            code = mpi_job_launch(&o, argc - 1, argv + 1);
            options_free(&o);
            return term_exit_code((int)code);
        }
        if (code == EXIT_DONE &&
            /* a server of several models downloads them itself, on demand */
            (c != CMD_SERVE || !serve_has_many(&o)))
            code = fetch_model(&o);
        if (code == EXIT_DONE && (o.fetched != NULL || o.fetched_draft != NULL))
            code = whole_check(&o);
        if (code == EXIT_FAILED && (c == CMD_VERIFY || c == CMD_DIFF))
            code = EXIT_USAGE; /* 1 means that receipts differ */
        if (code == EXIT_DONE)
            code = run_command(&o);
    }
    options_free(&o);
    code = (enum exit_code)term_exit_code((int)code);
    front_tell(FRONT_ENDS, (int)code);
    return code;
}
