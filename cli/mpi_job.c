/* Implements mpi_job.h. MPI itself is the library's; this file only writes the
 * command line of mpirun, and ends the process if machines are lost. */
#include "mpi_job.h"

#include "cmd.h"
#include "front_link.h"
#include "hosts.h"
#include "input.h"
#include "printable.h"
#include "remote_shell.h"
#include "serve_front.h"
#include "session.h"

#include "pl_machines.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- --hosts ------------------------------------------------------------- */

/* An implementation of MPI, and how its mpirun is called. Lists end with
 * NULL. */
struct launcher {
    const char *name;
    const char *word;       /* value of PLAIT_MPI */
    const char *program[2]; /* names of mpirun; the second one may be another
                               implementation's */
    const char *mark;       /* in what its --version prints */
    const char *hosts;      /* option for the list of hosts */
    const char *more[5];
    /* For the job of a front: processes live on when another one has ended, so
     * that they can tell their clients. Connections of mpirun to machines that
     * are gone end. */
    const char *lasting[13];
    /* options for plait in place of ssh; its path, in a form of printf, is
     * appended */
    const char *remote[8], *shell, *shell_form;
    const char *chosen; /* variable by which users choose another program */
    const char *pass;   /* option that passes on a variable; NULL if all are */
    const char *root;   /* option that root needs; NULL if none */
};

static const struct launcher launchers[] = {
    {
        .name = "Open MPI",
        .word = "openmpi",
        .program = {"mpirun.openmpi", "mpirun"},
        .mark = "(Open", /* mpirun of Open MPI, or of OpenRTE, its part */
        .hosts = "-H",
        .more = {"--map-by", "node", "--bind-to", "none", NULL},
        .lasting = {"--enable-recovery", "-mca", "oob_tcp_keepalive_time", "5",
                    "-mca", "oob_tcp_keepalive_intvl", "2", "-mca",
                    "oob_tcp_keepalive_probes", "3", NULL},
        .remote = {"-mca", "plm_rsh_no_tree_spawn", "1", "-mca",
                   "orte_keep_fqdn_hostnames", "1", "-mca", NULL},
        .shell = "plm_rsh_agent",
        .shell_form = "%s " REMOTE_SHELL,
        .chosen = "OMPI_MCA_plm_rsh_agent",
        .pass = "-x",
        .root = "--allow-run-as-root",
    },
    {
        .name = "MPICH",
        .word = "mpich",
        .program = {"mpirun.mpich", "mpirun"},
        .mark = "HYDRA",
        .hosts = "-hosts",
        .more = {"-ppn", "1", NULL},
        .lasting = {"-disable-auto-cleanup", NULL},
        .remote = {"-launcher", "ssh", NULL},
        .shell = "-launcher-exec",
        .shell_form = "%s",
        .chosen = "HYDRA_LAUNCHER",
    },
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

/* Returns the first implementation that is installed and has a module, and its
 * mpirun in *program. */
static const struct launcher *find_launcher(const char **program)
{
    const char *want = getenv("PLAIT_MPI");

    for (size_t i = 0; i < sizeof(launchers) / sizeof(launchers[0]); i++) {
        if (want != NULL && strcmp(want, launchers[i].word) != 0)
            continue;
        *program = program_of(&launchers[i]);
        if (*program != NULL && pl_machines_supports(launchers[i].name))
            return &launchers[i];
    }
    return NULL;
}

static void print_words(const struct word_list *w)
{
    for (int i = 0; i < w->n; i++) {
        bool plain = w->v[i][0] != '\0' &&
                     strpbrk(w->v[i], " \t\n'\"\\$`*?;&|<>()[]{}#~!") == NULL;

        fprintf(stderr, "%s%s%s%s", i > 0 ? " " : "", plain ? "" : "'", w->v[i],
                plain ? "" : "'");
    }
    fputc('\n', stderr);
}

/* Appends words up to a NULL. */
static bool add_words(struct word_list *w, const char *const *word)
{
    bool ok = true;

    for (int i = 0; word[i] != NULL && ok; i++)
        ok = word_list_add(w, word[i]);
    return ok;
}

/* The parts of a command line of mpirun. */
struct job {
    const struct launcher *l;
    const char *program;
    const struct hosts *h;
    const char *self;  /* path of plait */
    bool front;        /* mpirun is the child of a front (serve_front.h) */
    bool remote_shell; /* other machines are reached by remote_shell.h */
};

/* Appends -n, the machines m ... m + n - 1, and how they are named. */
static bool add_machines(struct word_list *w, const struct job *j, int m, int n)
{
    char count[16], *list = calloc((size_t)n, HOST_TEXT + 16);
    const char *const words[] = {"-n", count, j->l->hosts, list, NULL};
    bool ok = list != NULL;
    size_t at = 0;
    int same = 0; /* machines of a file with this name */

    snprintf(count, sizeof(count), "%d", n);
    for (int i = m; i < m + n && ok; i++)
        at += (size_t)sprintf(list + at, "%s%s", i > m ? "," : "",
                              j->h->host[i].call);
    for (int i = 0; i < j->h->n && ok && j->h->has_lines; i++)
        same += strcmp(j->h->host[i].call, j->h->host[m].call) == 0;
    if (same > 1 && j->l->pass != NULL) /* Open MPI counts processes */
        sprintf(list + at, ":%d", same);
    ok = ok && add_words(w, words);
    free(list);
    return ok;
}

/* Appends the options of mpirun that hold for all machines. */
static bool add_options(struct word_list *w, const struct job *j)
{
    char shell[PATH_MAX + 32];
    const char *const by[] = {j->l->shell, shell, NULL};
    bool ok = add_words(w, j->l->more);

    if (ok && j->front)
        ok = add_words(w, j->l->lasting);
    if (ok && j->l->root != NULL && geteuid() == 0)
        ok = word_list_add(w, j->l->root);
    if (!ok || !j->remote_shell)
        return ok;
    snprintf(shell, sizeof(shell), j->l->shell_form, j->self);
    return add_words(w, j->l->remote) && add_words(w, by);
}

/* Appends the variables that mpirun passes on to the processes. */
static bool add_variables(struct word_list *w, const struct job *j)
{
    const char *const words[] = {j->l->pass, HOSTS_VARIABLE,
                                 j->front ? j->l->pass : NULL, FRONT_VARIABLE,
                                 NULL};

    return j->l->pass == NULL || add_words(w, words);
}

/* Appends the machines of a list, which all run the command with the words
 * argv[argc] less --hosts. */
static bool add_equal(struct word_list *w, const struct job *j, int argc,
                      char **argv)
{
    bool ok = add_machines(w, j, 0, j->h->n) && add_options(w, j) &&
              add_variables(w, j) && word_list_add(w, j->self);

    for (int i = 0; i < argc && ok; i++)
        if (strcmp(argv[i], "--hosts") == 0)
            i++;
        else if (strncmp(argv[i], "--hosts=", 8) != 0)
            ok = word_list_add(w, argv[i]);
    return ok;
}

/* Appends the machines of a file, each with words of its own. Hydra takes the
 * list of machines once, and Open MPI with each part. */
static bool add_unequal(struct word_list *w, const struct job *j,
                        const struct options *o)
{
    bool ok = true;
    struct word_list first = {0};

    for (int m = 0; m < j->h->n && ok; m++) {
        if (m > 0)
            ok = word_list_add(w, ":");
        if (m == 0 && j->l->pass == NULL) {
            ok = add_machines(&first, j, 0, j->h->n) && add_options(w, j);
            for (int i = 2; i < first.n && ok; i++)
                ok = word_list_add(w, first.v[i]);
            ok = ok && word_list_add(w, "-n") && word_list_add(w, "1");
        } else if (j->l->pass == NULL) {
            ok = ok && word_list_add(w, "-n") && word_list_add(w, "1");
        } else {
            ok = ok && (m > 0 || add_options(w, j)) && add_machines(w, j, m, 1);
        }
        ok = ok && add_variables(w, j) && word_list_add(w, j->self) &&
             hosts_words(w, j->h, m, o->command, &o->words);
    }
    word_list_free(&first);
    return ok;
}

/* Reads --hosts into *h. */
static enum exit_code read_hosts(struct hosts *h, const struct options *o)
{
    struct stat st;
    struct input in = {0};
    char why[HOSTS_WHY] = "", cut[SHOWN];
    bool is_file = strchr(o->hosts, '/') != NULL ||
                   (stat(o->hosts, &st) == 0 && S_ISREG(st.st_mode));
    enum exit_code c = EXIT_DONE;
    bool ok;

    clip_printable(cut, o->hosts);
    if (!is_file) {
        if (hosts_parse_list(h, o->hosts, why))
            return EXIT_DONE;
        return cli_error(o->command, EXIT_USAGE,
                         "--hosts %s: %s: give names of 1 to %d machines, "
                         "[USER@]NAME[:PORT], separated by commas, like a,b, "
                         "or a file of them",
                         cut, why, HOSTS_MAX);
    }
    c = input_file(&in, o, o->hosts);
    if (c != EXIT_DONE)
        return c;
    ok = strlen(in.s) == in.len && hosts_parse_file(h, in.s, why) &&
         hosts_check(h, why);
    input_free(&in);
    if (ok)
        return EXIT_DONE;
    return cli_error(o->command, EXIT_USAGE,
                     "%s: %s; give a line a machine, like `b -m FILE -dev cpu`",
                     cut, why[0] != '\0' ? why : "not a text");
}

/* Sets what other machines are reached by. The user's own choice is left. */
static enum exit_code set_remote_shell(struct job *j, const struct options *o)
{
    bool needed = false, possible = strpbrk(j->self, " :'") == NULL;

    for (int i = 0; i < j->h->n; i++)
        needed |= strcmp(j->h->host[i].call, j->h->host[i].name) != 0;
    j->remote_shell = possible && getenv(j->l->chosen) == NULL;
    if (needed && !j->remote_shell)
        return cli_error(o->command, EXIT_USAGE,
                         "--hosts %s: users, ports and IPv6 addresses need "
                         "plait's own call of ssh; %s%s",
                         o->hosts,
                         possible ? "unset "
                                  : "install plait at a path without blanks "
                                    "and colons",
                         possible ? j->l->chosen : "");
    if (j->remote_shell && j->l->pass == NULL)
        setenv("HYDRA_LAUNCHER_EXTRA_ARGS", REMOTE_SHELL, 1);
    return EXIT_DONE;
}

/* Writes the command line of mpirun to *w. */
static enum exit_code write_line(struct word_list *w, struct job *j,
                                 const struct options *o, int argc, char **argv)
{
    enum exit_code c = set_remote_shell(j, o);
    bool ok;

    if (c != EXIT_DONE)
        return c;
    ok = hosts_export(j->h) && word_list_add(w, j->program) &&
         (j->h->has_lines ? add_unequal(w, j, o)
                          : add_equal(w, j, argc, argv)) &&
         word_list_end(w);
    return ok ? EXIT_DONE
              : cli_error(o->command, EXIT_FAILED,
                          "--hosts: no memory for a command line");
}

/* Runs mpirun in place of this process. */
static enum exit_code become(const struct word_list *w, const struct options *o)
{
    execvp(w->v[0], w->v);
    return cli_error(o->command, EXIT_FAILED, "--hosts: %s: %s", w->v[0],
                     strerror(errno));
}

static enum exit_code launch(struct job *j, const struct options *o, int argc,
                             char **argv)
{
    struct word_list w = {0};
    enum exit_code c;

    j->l = find_launcher(&j->program);
    if (j->l == NULL)
        return cli_error(
            o->command, EXIT_FAILED,
            "--hosts: no mpirun whose MPI has a module of plait; install Open "
            "MPI (Debian: openmpi-bin) and plait-openmpi, or MPICH and "
            "plait-mpich");
    c = write_line(&w, j, o, argc, argv);
    if (c == EXIT_DONE && o->verbose)
        print_words(&w);
    if (c == EXIT_DONE)
        c = j->front ? serve_front(o, w.v) : become(&w, o);
    word_list_free(&w);
    return c;
}

enum exit_code mpi_job_launch(const struct options *o, int argc, char **argv)
{
    char self[PATH_MAX];
    ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);
    struct hosts *h = calloc(1, sizeof(*h));
    struct job j = {.h = h, .self = self, .front = o->command == CMD_SERVE};
    enum exit_code c;

    if (h == NULL || len <= 0) {
        free(h);
        return cli_error(o->command, EXIT_FAILED,
                         "--hosts: no memory for a command line");
    }
    self[len] = '\0';
    c = read_hosts(h, o);
    if (c == EXIT_DONE)
        c = launch(&j, o, argc, argv);
    hosts_free(h);
    free(h);
    return c;
}

/* ---- a process of the job ------------------------------------------------ */

/* Ends the process, because MPI may be in any state and must not be called. */
static void end_now(enum exit_code code)
{
    front_tell(FRONT_ENDS, (int)code);
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

/* Returns the number of this process in its job, before MPI is initialized; 0
 * if there is no job. */
static int own_number(void)
{
    static const char *const variables[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK"};
    const char *s = NULL;

    for (int i = 0; i < 2 && s == NULL; i++)
        s = getenv(variables[i]);
    return s != NULL && pl_machines_started() > 1 ? atoi(s) : 0;
}

void mpi_job_name(const struct options *o)
{
    struct hosts *h = calloc(1, sizeof(*h));
    int number = own_number();
    char name[HOST_TEXT + 16];

    if (h == NULL || !runs_on_several(o->command) || o->hosts != NULL ||
        (pl_machines_started() < 2 && o->log_dir == NULL)) {
        free(h);
        return;
    }
    snprintf(name, sizeof(name), "%d", number);
    if (hosts_import(h) && number >= 0 && number < h->n)
        snprintf(name, sizeof(name), "%s", h->host[number].shown);
    cli_error_machine(number > 0 ? name : NULL, o->log_dir, name);
    hosts_free(h);
    free(h);
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
    if (o->command == CMD_SERVE && own_number() == 0 &&
        (c = front_join(o->command)) != EXIT_DONE)
        return c;
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
    front_tell(FRONT_JOINED, 0);
    if (s == PL_OK)
        return EXIT_DONE;
    c = report(o, s, &err);
    if (s == PL_DEVICE) /* a machine has not come, or is gone */
        c = EXIT_LOST;
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
