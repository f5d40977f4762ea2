/* Runs plait serve for tests; serve_try.h describes the functions. */
#include "lib/serve_try.h"

#include "lib/command.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Runs the command line of a server. Its output goes to the file `log`, because
 * a pipe would need a reader. The server is killed if a failed case ends the
 * test process. */
static void run_server(const char *line, const char *log)
{
    int fd = open(log, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    if (fd < 0)
        _exit(126);
    dup2(fd, 1);
    dup2(fd, 2);
    close(fd);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    execl("/bin/sh", "sh", "-c", line, (char *)NULL);
    _exit(127);
}

void serve_try_run(struct serve_try *s, const char *before, const char *words)
{
    static const char mark[] = "listens at http://127.0.0.1:";
    static int n_log;
    char line[4096], name[32];
    const char *at = NULL;

    memset(s, 0, sizeof *s);
    snprintf(name, sizeof name, "serve-log-%d", n_log++);
    s->log = test_temp(name);
    snprintf(line, sizeof line, "%s exec %s serve --port 0 -t 1 %s", before,
             command_path(), words);
    s->pid = fork();
    assert_true(s->pid >= 0);
    if (s->pid == 0)
        run_server(line, s->log);
    while (!at) {
        size_t n;
        char *said;

        usleep(10000);
        if (waitpid(s->pid, NULL, WNOHANG) != 0)
            fail_msg("it did not begin: %s", line);
        if (access(s->log, R_OK) != 0)
            continue;
        said = test_read(s->log, &n);
        at = strstr(said, mark);
        at = at && strchr(at, '\n') ? at : NULL;
        if (at)
            s->t.port = atoi(at + strlen(mark));
        free(said);
    }
}

void serve_try_start(struct serve_try *s, const char *before, const char *more)
{
    char words[2048];

    snprintf(words, sizeof words, "-m %s -c 512 %s", test_model(), more);
    serve_try_run(s, before, words);
}

void serve_try_stop(struct serve_try *s)
{
    int status;

    kill(s->pid, SIGTERM);
    assert_int_equal(waitpid(s->pid, &status, 0), s->pid);
    if (command_status(status) != 0) {
        size_t n;
        char *said = test_read(s->log, &n);

        fail_msg("it ended with %d: %s", command_status(status),
                 said + (n > 4000 ? n - 4000 : 0));
    }
}

/* ---- requests ------------------------------------------------------------ */

void serve_try_send(struct try_client *c, const char *path, const char *body)
{
    char head[256];

    snprintf(
        head, sizeof head,
        "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %zu\r\n\r\n",
        path, strlen(body));
    try_send(c, head);
    try_send(c, body);
}

char *serve_try_post(struct serve_try *s, const char *path, const char *body,
                     int status)
{
    struct try_client c;
    struct try_answer a;

    try_connect(&s->t, &c);
    serve_try_send(&c, path, body);
    try_read(&c, &a, false);
    if (a.status != status)
        fail_msg("%s %.200s: %s%s", path, body, a.head, a.body);
    try_close(&c);
    return a.body;
}

char *serve_try_get(struct serve_try *s, const char *path)
{
    struct try_client c;
    struct try_answer a;

    try_connect(&s->t, &c);
    try_send(&c, try_get(path, ""));
    try_read(&c, &a, false);
    assert_int_equal(a.status, 200);
    try_close(&c);
    return a.body;
}

json_t *serve_try_json(const char *text)
{
    json_error_t err;
    json_t *j = json_loads(text, 0, &err);

    if (!j)
        fail_msg("%s: %.400s", err.text, text);
    return j;
}

/* ---- its state ----------------------------------------------------------- */

/* Returns true if the line of /metrics is a sample with this name that has all
 * of the labels label[n_label], and perhaps others. */
static bool is_sample(const char *line, const char *name, size_t n_name,
                      const char *label, size_t n_label)
{
    size_t n = strcspn(line, "\n");

    return strncmp(line, name, n_name) == 0 &&
           (line[n_name] == ' ' || line[n_name] == '{') &&
           (n_label == 0 || memmem(line, n, label, n_label));
}

double serve_try_metric(struct serve_try *s, const char *name)
{
    char *all = serve_try_get(s, "/metrics");
    size_t n_name = strcspn(name, "{"), n_label = strlen(name + n_name);
    const char *label = name + n_name + (n_label > 0);
    double v = 0;
    int n = 0;

    /* length of the labels without the braces around them */
    n_label = n_label > 0 ? n_label - 2 : 0;
    for (const char *at = all; *at; at += *at == '\n') {
        const char *end = at + strcspn(at, "\n");

        if (is_sample(at, name, n_name, label, n_label)) {
            const char *space = memrchr(at, ' ', (size_t)(end - at));

            assert_non_null(space);
            v += strtod(space, NULL);
            n++;
        }
        at = end;
    }
    if (n == 0)
        fail_msg("/metrics has no %s", name);
    free(all);
    return v;
}

void serve_try_idle(struct serve_try *s)
{
    TEST_UNTIL(serve_try_metric(s, "plait_requests_running") +
                   serve_try_metric(s, "plait_requests_waiting") +
                   serve_try_metric(s, "plait_requests_preempted") ==
               0);
}

double serve_try_cpu(const struct serve_try *s)
{
    struct timespec t;
    clockid_t clock;

    assert_int_equal(clock_getcpuclockid(s->pid, &clock), 0);
    assert_int_equal(clock_gettime(clock, &t), 0);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int64_t status_line(pid_t pid, const char *name)
{
    char path[64], line[256];
    int64_t v = -1;
    FILE *f;

    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    f = fopen(path, "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f))
        if (strncmp(line, name, strlen(name)) == 0)
            v = atoll(line + strlen(name));
    fclose(f);
    return v;
}

struct serve_use serve_try_use(const struct serve_try *s)
{
    struct serve_use u = {.bytes = status_line(s->pid, "VmRSS:") * 1024,
                          .n_thread = (int)status_line(s->pid, "Threads:")};
    char path[64];
    DIR *d;

    snprintf(path, sizeof path, "/proc/%d/fd", (int)s->pid);
    d = opendir(path);
    assert_non_null(d);
    while (readdir(d))
        u.n_file++;
    closedir(d);
    /* the entries . and .. of the directory are not open files */
    u.n_file -= 2;
    return u;
}
