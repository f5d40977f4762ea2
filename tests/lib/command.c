/* Runs command lines of plait through a shell; command.h describes the
 * functions. */
#include "lib/command.h"

#include "lib/support.h"
#include "test_paths.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

const char *command_path(void)
{
    const char *env = getenv("PLAIT_COMMAND");

    return env != NULL && env[0] != '\0' ? env : PLAIT_COMMAND;
}

const char *command_python(void)
{
    const char *own = test_file("build/clients/bin/python3");

    return own ? own : "python3";
}

const char *command_python_long(void)
{
    const char *own = test_file("build/clients-long/bin/python3");

    return own ? own : command_python();
}

int command_status(int status)
{
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Limits the files that the command writes to 2 GiB with `ulimit -f`, which
 * counts blocks of 512 bytes. So a command that prints without end stops before
 * the disk is full. */
struct ran sh(int code, const char *line)
{
    static const char *dir;
    static struct ran kept[16];
    static int n;
    struct ran *r = &kept[n++ % 16];
    const char *out = test_temp("out");
    const char *err = test_temp("err");
    char *all = NULL;
    size_t n_err;
    char *path = strdup(command_path());
    int got;

    if (dir == NULL) {
        (void)test_model(); /* fails the case if the bundled model is absent */
        dir = test_temp("");
        if (symlink(test_file("models"), test_temp("models")) != 0)
            fail_msg("symlink: %s", strerror(errno));
    }
    *strrchr(path, '/') = '\0';
    if (asprintf(&all,
                 "cd '%s' && PATH='%s':$PATH && export PATH && "
                 "ulimit -f 4194304 && { %s\n} </dev/null >'%s' 2>'%s'",
                 dir, path, line, out, err) < 0)
        fail_msg("no memory");
    got = command_status(system(all));
    free(all);
    free(path);
    free(r->out);
    free(r->err);
    r->line = line;
    r->out = test_read(out, &r->n_out);
    r->err = test_read(err, &n_err);
    if (got != code)
        fail_msg("%s\n  exit %d, not %d; it said: %.500s", line, got, code,
                 r->err);
    return *r;
}

void must_say(struct ran r, const char *text)
{
    if (strstr(r.err, text) == NULL)
        fail_msg("%s\n  should say \"%s\" but said: %.500s", r.line, text,
                 r.err);
}
