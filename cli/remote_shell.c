/* Implements remote_shell.h. */
#include "remote_shell.h"

#include "pl.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    /* exit code if the other machine has no plait, or another one: EX_NOINPUT
     * of sysexits.h, which neither ssh nor mpirun uses */
    NO_PLAIT = 66,
    NO_PROGRAM = 127,    /* exit code of a shell that does not find a program */
    NO_CONNECTION = 255, /* exit code of ssh */
};

/* A text that grows. */
struct text {
    char *s;
    size_t n;
    bool failed;
};

__attribute__((format(printf, 2, 3))) static void add(struct text *t,
                                                      const char *fmt, ...)
{
    va_list ap;
    char *part = NULL, *more;
    int n;

    va_start(ap, fmt);
    n = vasprintf(&part, fmt, ap);
    va_end(ap);
    more = n >= 0 ? realloc(t->s, t->n + (size_t)n + 1) : NULL;
    t->failed |= more == NULL;
    if (more != NULL) {
        memcpy(more + t->n, part, (size_t)n + 1);
        t->s = more;
        t->n += (size_t)n;
    }
    if (n >= 0)
        free(part);
}

/* Appends a text as one word for a shell. */
static void add_quoted(struct text *t, const char *s)
{
    add(t, "'");
    for (; *s != '\0'; s++)
        if (*s == '\'')
            add(t, "'\\''");
        else
            add(t, "%c", *s);
    add(t, "'");
}

/* Writes the script that the other machine runs: it checks the architecture and
 * plait's version, which MPI would answer with a hang or a riddle, and runs the
 * words. */
static void write_script(struct text *t, const struct host *h, const char *self,
                         char *const *command, int n)
{
    struct utsname u;

    uname(&u);
    add(t,
        "a=$(uname -m); [ \"$a\" = '%s' ] || { echo \"plait: machine %s is "
        "$a, this one is %s; use machines of one architecture\" >&2; "
        "exit %d; }; p=",
        u.machine, h->shown, u.machine, NO_PLAIT);
    add_quoted(t, self);
    add(t,
        "; [ -x \"$p\" ] || { echo \"plait: machine %s has no $p; install "
        "plait there at the same path\" >&2; exit %d; }; ",
        h->shown, NO_PLAIT);
    add(t,
        "v=$(\"$p\" --version 2>&1 | head -n 1); [ \"$v\" = 'plait %s' ] || "
        "{ echo \"plait: machine %s has another version: $v; this one has "
        "plait %s; use the same on all\" >&2; exit %d; };",
        pl_version(), h->shown, pl_version(), NO_PLAIT);
    for (int i = 0; i < n; i++)
        add(t, " %s", command[i]);
}

bool remote_shell_words(struct word_list *to, const struct host *h,
                        const char *self, char *const *command, int n)
{
    static const char *const options[] = {
        "-x", "-o", "BatchMode=yes", "-o", "ConnectTimeout=15",
    };
    const char *program = getenv(REMOTE_SHELL_VARIABLE);
    struct text script = {0}, word = {0};
    char port[16], at[2 * HOST_TEXT];
    bool ok;

    ok = word_list_add(to,
                       program != NULL && program[0] != '\0' ? program : "ssh");
    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]) && ok; i++)
        ok = word_list_add(to, options[i]);
    snprintf(port, sizeof(port), "%d", h->port);
    if (h->port > 0)
        ok = ok && word_list_add(to, "-p") && word_list_add(to, port);
    snprintf(at, sizeof(at), "%s%s%s", h->user, h->user[0] != '\0' ? "@" : "",
             h->name);
    /* the user's shell over there may be any: sh runs the script */
    write_script(&script, h, self, command, n);
    add(&word, "exec sh -c ");
    if (script.s != NULL)
        add_quoted(&word, script.s);
    ok = ok && !script.failed && !word.failed && word_list_add(to, at) &&
         word_list_add(to, word.s);
    free(script.s);
    free(word.s);
    return ok;
}

/* Runs a program, which ends with this process. Returns its exit code. */
static int run(char *const *word)
{
    pid_t parent = getpid(), pid;
    int status = 0;

    pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (getppid() != parent)
            _exit(NO_CONNECTION);
        signal(SIGPIPE, SIG_DFL);
        execvp(word[0], word);
        cli_error(N_COMMAND, EXIT_FAILED, "%s: %s; install ssh", word[0],
                  strerror(errno));
        _exit(NO_PLAIT);
    }
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    return pid > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : NO_CONNECTION;
}

/* Says what an exit code of ssh means. */
static void explain(const struct host *h, int code, const char *program)
{
    char how[2 * HOST_TEXT + 64], port[16] = "";

    if (h->port > 0)
        snprintf(port, sizeof(port), "-p %d ", h->port);
    snprintf(how, sizeof(how), "ssh %s%s%s%s", port, h->user,
             h->user[0] != '\0' ? "@" : "", h->name);
    if (code == NO_CONNECTION)
        cli_error(N_COMMAND, EXIT_FAILED,
                  "machine %s cannot be reached; see whether `%s true` works "
                  "without a password",
                  h->shown, how);
    else if (code == NO_PROGRAM)
        cli_error(N_COMMAND, EXIT_FAILED,
                  "machine %s has no %s; install the same MPI there as here, "
                  "and see `%s 'command -v %s'`",
                  h->shown, program, how, program);
}

/* Returns the program of MPI in the words of mpirun. */
static const char *program_in(char *const *command, int n)
{
    for (int i = 0; i < n; i++)
        if (strstr(command[i], "hydra_pmi_proxy") != NULL)
            return "hydra_pmi_proxy";
    return "orted";
}

bool is_remote_shell(int argc, char **argv)
{
    bool is = false;

    for (int i = 0; i < argc && argv[i][0] == '-' && !is; i++)
        is = strcmp(argv[i], REMOTE_SHELL) == 0;
    return is;
}

int remote_shell(int argc, char **argv)
{
    struct hosts *h = calloc(1, sizeof(*h));
    struct word_list word = {0};
    char self[PATH_MAX];
    ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);
    int i = 0, m = 0, code = EXIT_FAILED;

    /* mpirun may be killed, but not this process with it */
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    while (i < argc && argv[i][0] == '-')
        i++;
    if (h == NULL || len <= 0 || i + 1 >= argc || !hosts_import(h)) {
        free(h);
        return cli_error(N_COMMAND, EXIT_USAGE,
                         "%s is for mpirun, which --hosts starts",
                         REMOTE_SHELL);
    }
    self[len] = '\0';
    while (m < h->n && strcmp(h->host[m].call, argv[i]) != 0)
        m++;
    if (m == h->n)
        cli_error(N_COMMAND, EXIT_USAGE, "%s: \"%s\" is not one of %s",
                  REMOTE_SHELL, argv[i], getenv(HOSTS_VARIABLE));
    else if (remote_shell_words(&word, &h->host[m], self, argv + i + 1,
                                argc - i - 1) &&
             word_list_end(&word)) {
        const char *program = program_in(argv + i + 1, argc - i - 1);

        code = run(word.v);
        explain(&h->host[m], code, program);
        if (code != 0 && strcmp(program, "orted") != 0)
            kill(getppid(), SIGTERM); /* Hydra would wait for the machine */
    }
    word_list_free(&word);
    hosts_free(h);
    free(h);
    return code;
}
