/* Command lines by way of a shell. */
#include "lib/command.h"

#include "lib/support.h"

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

int command_status(int status)
{
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

struct ran sh(const char *line)
{
    static const char *dir;
    struct ran r = {0};
    const char *out = test_temp("out");
    const char *err = test_temp("err");
    char *all = NULL;
    size_t n_err;
    char *path = strdup(command_path());

    if (dir == NULL) {
        const char *models = test_file("models");

        dir = test_temp("");
        if (models != NULL && symlink(models, test_temp("models")) != 0)
            fail_msg("symlink: %s", strerror(errno));
    }
    *strrchr(path, '/') = '\0';
    if (asprintf(&all,
                 "cd '%s' && PATH='%s':$PATH && export PATH && { %s\n} "
                 "</dev/null >'%s' 2>'%s'",
                 dir, path, line, out, err) < 0)
        fail_msg("no memory");
    r.code = command_status(system(all));
    r.out = test_read(out, &r.n_out);
    r.err = test_read(err, &n_err);
    free(all);
    free(path);
    return r;
}

void ran_free(struct ran *r)
{
    free(r->out);
    free(r->err);
    *r = (struct ran){0};
}

void must_exit(const struct ran *r, int code, const char *line)
{
    if (r->code != code)
        fail_msg("%s\n  exit %d, not %d; it said: %.500s", line, r->code, code,
                 r->err);
}

void must_say(const struct ran *r, const char *text, const char *line)
{
    if (strstr(r->err, text) == NULL)
        fail_msg("%s\n  should say \"%s\" but said: %.500s", line, text,
                 r->err);
}

void need_model(void)
{
    if (test_file("models/fable-moe-Q8_0.gguf") == NULL)
        fail_msg("models/fable-moe-Q8_0.gguf is absent, but belongs "
                 "to the repository");
}
