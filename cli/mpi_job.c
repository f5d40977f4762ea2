/* Implements mpi_job.h. MPI itself is the library's; this file only writes the
 * command line of mpirun, and ends the process if machines are lost. */
#include "mpi_job.h"

#include "cmd.h"
#include "session.h"

#include "pl_machines.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_HOSTS = 64, MOST_WORDS = 16 };

/* ---- --hosts ------------------------------------------------------------- */

/* An implementation of MPI, and how its mpirun is called. */
struct launcher {
    const char *name;
    const char *program[2]; /* names of mpirun; the second one may be another
                               implementation's */
    const char *mark;       /* in what its --version prints */
    const char *hosts;      /* option for the list of hosts */
    const char *more[4];
    const char *root; /* option that root needs; NULL if none */
};

static const struct launcher launchers[] = {
    {"Open MPI",
     {"mpirun.openmpi", "mpirun"},
     "(Open", /* mpirun of Open MPI, or of OpenRTE, its part */
     "-H",
     {"--map-by", "node", "--bind-to", "none"},
     "--allow-run-as-root"},
    {"MPICH",
     {"mpirun.mpich", "mpirun"},
     "HYDRA",
     "-hosts",
     {"-ppn", "1", NULL, NULL},
     NULL},
};

/* Returns true if `program` is installed, and is an mpirun of the
 * implementation. */
static bool is_program(const struct launcher *l, const char *program)
{
    char text[512];
    size_t n = 0;
    FILE *f;

    snprintf(text, sizeof(text), "%s --version 2>&1", program);
    f = popen(text, "re");
    if (f != NULL)
        n = fread(text, 1, sizeof(text) - 1, f);
    text[n] = '\0';
    if (f != NULL)
        pclose(f);
    return strstr(text, l->mark) != NULL;
}

/* Returns the name of an implementation's mpirun; NULL if it is not
 * installed. */
static const char *program_of(const struct launcher *l)
{
    for (int i = 0; i < 2; i++)
        if (is_program(l, l->program[i]))
            return l->program[i];
    return NULL;
}

static int count_hosts(const char *hosts)
{
    int n = 1;

    for (const char *s = hosts; *s != '\0'; s++)
        n += *s == ',';
    return n;
}

static bool are_hosts(const char *hosts)
{
    size_t n = strlen(hosts);

    return n > 0 && hosts[0] != ',' && hosts[n - 1] != ',' &&
           strstr(hosts, ",,") == NULL && strpbrk(hosts, " \t/") == NULL &&
           hosts[0] != '-' && count_hosts(hosts) <= MOST_HOSTS;
}

/* Returns the first implementation that is installed and has a module, and its
 * mpirun in *program. */
static const struct launcher *find_launcher(const char **program)
{
    for (size_t i = 0; i < sizeof(launchers) / sizeof(launchers[0]); i++) {
        *program = program_of(&launchers[i]);
        if (*program != NULL && pl_machines_supports(launchers[i].name))
            return &launchers[i];
    }
    return NULL;
}

/* Appends the words without --hosts. Returns their number. */
static int add_words(const char **to, int argc, char **argv)
{
    int n = 0;

    for (int i = 0; i < argc; i++)
        if (strcmp(argv[i], "--hosts") == 0)
            i++;
        else if (strncmp(argv[i], "--hosts=", 8) != 0)
            to[n++] = argv[i];
    return n;
}

static void print_words(const char *const *word)
{
    for (int i = 0; word[i] != NULL; i++) {
        bool plain = word[i][0] != '\0' &&
                     strpbrk(word[i], " \t\n'\"\\$`*?;&|<>()[]{}#~!") == NULL;

        fprintf(stderr, "%s%s%s%s", i > 0 ? " " : "", plain ? "" : "'", word[i],
                plain ? "" : "'");
    }
    fputc('\n', stderr);
}

/* Sets word[] to the command line of mpirun. */
static void write_line(const char **word, const struct launcher *l,
                       const char *program, const char *hosts, char count[16],
                       const char *self)
{
    int n = 0;

    snprintf(count, 16, "%d", count_hosts(hosts));
    word[n++] = program;
    word[n++] = "-n";
    word[n++] = count;
    word[n++] = l->hosts;
    word[n++] = hosts;
    for (int i = 0; i < 4 && l->more[i] != NULL; i++)
        word[n++] = l->more[i];
    if (l->root != NULL && geteuid() == 0)
        word[n++] = l->root;
    word[n++] = self;
    word[n] = NULL;
}

enum exit_code mpi_job_launch(const struct options *o, int argc, char **argv)
{
    const char **word = calloc((size_t)argc + MOST_WORDS, sizeof(*word));
    const char *program;
    const struct launcher *l;
    char self[PATH_MAX], count[16];
    ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);
    int n = 0;

    if (word == NULL || len <= 0) {
        free(word);
        return cli_error(o->command, EXIT_FAILED,
                         "--hosts: no memory for a command line");
    }
    self[len] = '\0';
    if (!are_hosts(o->hosts)) {
        free(word);
        return cli_error(o->command, EXIT_USAGE,
                         "--hosts %s: give names of 1 to %d machines, "
                         "separated by commas, like a,b",
                         o->hosts, MOST_HOSTS);
    }
    l = find_launcher(&program);
    if (l == NULL) {
        free(word);
        return cli_error(
            o->command, EXIT_FAILED,
            "--hosts: no mpirun whose MPI has a module of plait; install Open "
            "MPI (Debian: openmpi-bin) and plait-openmpi, or MPICH and "
            "plait-mpich");
    }
    write_line(word, l, program, o->hosts, count, self);
    while (word[n] != NULL)
        n++;
    add_words(word + n, argc, argv);
    if (o->verbose)
        print_words(word);
    execvp(program, (char *const *)word);
    cli_error(o->command, EXIT_FAILED, "--hosts: %s: %s", program,
              strerror(errno));
    free(word);
    return EXIT_FAILED;
}

/* ---- a process of the job ------------------------------------------------ */

/* Ends the process, because MPI may be in any state and must not be called. */
static void end_now(enum exit_code code)
{
    fflush(NULL);
    _exit((int)code);
}

/* Called by a thread of the library when a machine was lost. */
static void end_lost(void *user, const char *text)
{
    const struct options *o = user;

    cli_error(o->command, EXIT_LOST, "%s", text);
    end_now(EXIT_LOST);
}

static bool runs_on_several(enum command c)
{
    return c == CMD_RUN || c == CMD_SERVE || c == CMD_PLAN ||
           c == CMD_PERPLEXITY || c == CMD_LOGITS || c == CMD_BENCH ||
           c == CMD_DEVICES || c == CMD_WORKER;
}

enum exit_code mpi_job_join(struct options *o)
{
    pl_machines_options how = {.size = sizeof(how),
                               .join_s = o->join_s,
                               .silence_s = o->machine_s,
                               .send_weights = o->send_weights,
                               .network = o->network,
                               .measure = o->measure,
                               .lost = end_lost,
                               .user = o};
    enum exit_code c;
    pl_status s;
    pl_err err;

    if (!runs_on_several(o->command))
        return EXIT_DONE;
    if (pl_machines_started() < 2)
        return o->command == CMD_WORKER
                   ? cli_error(CMD_WORKER, EXIT_USAGE,
                               "mpirun has not started this process together "
                               "with others; see `plait worker --help`")
                   : EXIT_DONE;
    /* MPICH sends this signal when another process ends */
    signal(SIGUSR1, SIG_IGN);
    s = pl_machines_join(&o->pl.machines, &o->pl, &how, &err);
    if (s == PL_OK && o->command == CMD_WORKER &&
        pl_machines_number(o->pl.machines) == 0)
        return mpi_job_leave(
            o, cli_error(CMD_WORKER, EXIT_USAGE,
                         "this is machine 0, which runs the model; give the "
                         "first process of mpirun another command, like run"));
    if (s == PL_OK)
        return EXIT_DONE;
    c = report(o, s, &err);
    end_now(c);
    return c;
}

bool mpi_job_serves(const struct options *o)
{
    return pl_machines_number(o->pl.machines) > 0;
}

enum exit_code mpi_job_serve(const struct options *o)
{
    pl_machines *m = o->pl.machines;
    pl_model *model = NULL;
    pl_err err;
    pl_status s = PL_OK;
    enum exit_code c = EXIT_DONE;

    /* mpirun sends its signals to all; machine 0 decides when to end */
    term_interrupts_count(1 << 20);
    if (o->command == CMD_DEVICES) {
        s = pl_machines_await(m, &o->pl, &err);
    } else if (o->model == NULL) {
        s = PL_BAD_ARGUMENT;
        snprintf(err.message, sizeof(err.message),
                 "no model; give this machine's copy with -m FILE");
    } else {
        s = session_model(&model, o, &err);
        if (s == PL_OK)
            s = pl_machines_serve(m, model, &o->pl, &err);
    }
    if (s != PL_OK)
        c = cli_error(o->command, exit_code_of(s), "machine %d: %s",
                      pl_machines_number(m), err.message);
    if (!pl_machines_leave(m, s == PL_OK ? NULL : &err))
        end_now(EXIT_LOST);
    pl_model_free(model);
    return c;
}

enum exit_code mpi_job_leave(struct options *o, enum exit_code code)
{
    bool all = pl_machines_leave(o->pl.machines, NULL);

    o->pl.machines = NULL;
    if (!all)
        end_now(EXIT_LOST);
    return code;
}
