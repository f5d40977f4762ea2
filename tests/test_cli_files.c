/* The files that the command writes: none is ever a file that it reads, or one
 * without write permission, by whatever name or link. A fatal signal saves what
 * Ctrl-C saves, and leaves no incomplete file. The options are those of
 * --help-all, so new ones are tried too. */
#include "lib/command.h"
#include "lib/support.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- options that name files --------------------------------------------- */

/* By their first names, in any command. */
static const char *const that_read[] = {
    "-m",         "-f",           "-bf",     "--tokens",
    "--template", "--messages",   "--tools", "--grammar-file",
    "-jf",        "--state-load", "-sysf",   "--sign-key",
    "--trust",    "-lcs",         "-md",     NULL};
static const char *const that_write[] = {
    "-o", "--svg", "--state-save", "--trace", "--receipt", "-lcd", NULL};
/* serve begins in none of these cases: it waits for clients. */
static const char *const commands[] = {
    "run",      "plan",   "inspect", "devices", "perplexity", "logits",
    "tokenize", "render", "bench",   "synth",   "verify"};
enum { N_COMMAND = sizeof commands / sizeof commands[0], MOST = 16 };

struct used {
    const char *command;
    char reads[MOST][32], writes[MOST][32];
    int n_read, n_write;
};

static bool is_among(const char *const *list, const char *name)
{
    while (*list && strcmp(*list, name) != 0)
        list++;
    return *list != NULL;
}

static void find_options(struct used *u, const char *command)
{
    char line[64];
    struct ran help;

    *u = (struct used){.command = command};
    snprintf(line, sizeof line, "plait %s --help-all", command);
    help = sh(0, line);
    for (char *s = strtok(help.out, "\n"); s; s = strtok(NULL, "\n")) {
        char name[32] = "";
        const char *arg = strstr(s, " FILE");

        if (!arg)
            arg = strstr(s, " IDS");
        if (strncmp(s, "  -", 3) != 0 || !arg || strstr(s, "  ") < s ||
            (strstr(s + 2, "  ") && strstr(s + 2, "  ") < arg))
            continue;
        sscanf(s, " %31[^, ]", name);
        if (is_among(that_read, name))
            strcpy(u->reads[u->n_read++], name);
        else if (is_among(that_write, name))
            strcpy(u->writes[u->n_write++], name);
        else
            fail_msg("plait %s: %s names a file; this test must know whether "
                     "it is read or written",
                     command, name);
    }
}

/* ---- one run ------------------------------------------------------------- */

static char home[256]; /* directory in which all commands run */

static void write_text(const char *name, const char *text)
{
    FILE *f = fopen(name, "w");

    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

/* Runs the command in `home` until it ends; said[] has its messages. */
static int run(const char *const *argv, char said[static 2048])
{
    int ends[2], status;
    size_t n = 0;
    ssize_t got;
    pid_t pid;

    assert_int_equal(pipe(ends), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        int null = open("/dev/null", O_RDWR);

        dup2(null, 0);
        dup2(null, 1);
        dup2(ends[1], 2);
        close(ends[0]);
        close(ends[1]);
        if (chdir(home) == 0)
            execv(command_path(), (char *const *)argv);
        _exit(127);
    }
    close(ends[1]);
    while ((got = read(ends[0], said + n, 2047 - n)) > 0)
        n += (size_t)got;
    said[n] = '\0';
    close(ends[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return command_status(status);
}

/* Runs it with two options, the second NULL for one, and its other
 * arguments. */
static int run_with(const char *command, const char *option, const char *value,
                    const char *option2, const char *value2,
                    char said[static 2048])
{
    const char *argv[24] = {"plait", command, option, value};
    int n = 4;

    if (option2) {
        argv[n++] = option2;
        argv[n++] = value2;
    }
    if (strcmp(command, "synth") == 0) {
        argv[n++] = "--shape";
        argv[n++] = "qwen3-0.6b";
    } else if (!option2 || strcmp(option2, "-m") != 0) {
        argv[n++] = "-m";
        argv[n++] = test_model();
    }
    if (strcmp(command, "run") == 0 && (!option2 || strcmp(option2, "-f"))) {
        argv[n++] = "-p";
        argv[n++] = "x";
    }
    return run(argv, said);
}

static void enter(const char *name)
{
    snprintf(home, sizeof home, "%s", test_temp(name));
    assert_int_equal(mkdir(home, 0700), 0);
    assert_int_equal(chdir(home), 0);
}

static int files_here(void)
{
    DIR *d = opendir(".");
    const struct dirent *e;
    int n = 0;

    assert_non_null(d);
    while ((e = readdir(d)))
        n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    closedir(d);
    return n;
}

/* ---- never an input ------------------------------------------------------ */

static const char mine[] = "this is mine\n";

static void expect_mine(const struct stat *before, const char *line)
{
    struct stat st;
    size_t n;
    char *s = test_read("mine", &n);

    if (n != sizeof mine - 1 || memcmp(s, mine, n) != 0)
        fail_msg("%s: the file was written", line);
    free(s);
    assert_int_equal(stat("mine", &st), 0);
    if (st.st_ino != before->st_ino || st.st_mode != before->st_mode ||
        st.st_nlink != before->st_nlink || files_here() != 5)
        fail_msg("%s: the file or its folder is another", line);
}

/* Checks that the command refuses to write the file of option `a`, which option
 * `b` names in another way. */
static void must_refuse(const char *command, const char *a, const char *path,
                        const char *b, const char *other)
{
    char said[2048], line[256], want[128], ids[64];
    struct stat st;
    int got;

    snprintf(ids, sizeof ids, "%s%s", strcmp(b, "--tokens") == 0 ? "@" : "",
             other);
    snprintf(line, sizeof line, "plait %s %s %s %s %s", command, a, path, b,
             ids);
    snprintf(want, sizeof want, "%s %s would overwrite the file of %s (%s)", a,
             path, b, other);
    assert_int_equal(stat("mine", &st), 0);
    got = run_with(command, a, path, b, ids, said);
    if (got != 2 || !strstr(said, want) || !strstr(said, "name another"))
        fail_msg("%s\n  exit %d, and says: %s", line, got, said);
    expect_mine(&st, line);
}

/* Makes the file `mine`, and four other names for it: links, and other
 * paths. */
static void enter_mine(const char *name)
{
    enter(name);
    write_text("mine", mine);
    assert_int_equal(chmod("mine", 0640), 0);
    assert_int_equal(symlink("mine", "sym"), 0);
    assert_int_equal(link("mine", "hard"), 0);
    assert_int_equal(mkdir("d", 0700), 0);
    assert_int_equal(symlink("../sym", "sym2"), 0);
    assert_int_equal(unlink("sym2"), 0);
    assert_int_equal(symlink("./d/../sym", "sym2"), 0);
}

static const char *const ways[] = {"mine", "./mine", "d/../mine",
                                   "sym",  "hard",   "sym2"};
enum { N_WAY = sizeof ways / sizeof ways[0] };

TEST(cli_files_that_are_written_are_none_that_are_read)
{
    struct used u;
    int n = 0;

    enter_mine("read");
    for (int c = 0; c < N_COMMAND; c++) {
        find_options(&u, commands[c]);
        for (int w = 0; w < u.n_write; w++)
            for (int r = 0; r < u.n_read; r++) {
                if (strcmp(u.writes[w], "--state-save") == 0 &&
                    strcmp(u.reads[r], "--state-load") == 0)
                    /* a state may be saved over the state that was loaded */
                    continue;
                for (int k = 0; k < N_WAY; k++, n++)
                    must_refuse(u.command, u.writes[w], ways[k], u.reads[r],
                                "mine");
                must_refuse(u.command, u.writes[w], "mine", u.reads[r], "sym");
                must_refuse(u.command, u.writes[w], "hard", u.reads[r], "sym");
            }
    }
    assert_true(n >= 100); /* at least 100 combinations were tried */
}

/* No two options write one file, whether it exists or not. */
TEST(cli_files_that_are_written_are_written_once)
{
    struct used u;
    char said[2048];

    enter_mine("twice");
    for (int c = 0; c < N_COMMAND; c++) {
        find_options(&u, commands[c]);
        for (int a = 0; a < u.n_write; a++)
            for (int b = 0; b < u.n_write; b++) {
                if (a == b)
                    continue;
                for (int k = 0; k < N_WAY; k++) {
                    const char *argv[] = {"plait", u.command,   u.writes[a],
                                          ways[k], u.writes[b], "mine",
                                          NULL};

                    assert_int_equal(run(argv, said), 2);
                    assert_non_null(strstr(said, "would overwrite"));
                    argv[3] = "./new";
                    argv[5] = "d/../new";
                    assert_int_equal(run(argv, said), 2);
                    assert_non_null(strstr(said, "would overwrite"));
                    assert_int_equal(files_here(), 5);
                }
            }
    }
}

/* All parts of a split model are inputs, and each of several models. */
TEST(cli_files_that_are_written_are_no_part_of_a_model)
{
    static const char *const part[] = {"mine-00001-of-00002.gguf",
                                       "mine-00002-of-00002.gguf"};
    char said[2048];

    enter("parts");
    write_text(part[0], mine);
    write_text(part[1], mine);
    assert_int_equal(symlink(part[1], "sym"), 0);
    for (int i = 0; i < 4; i++) {
        const char *argv[] = {"plait",     "plan",  "-m",
                              part[i & 1], "--svg", i < 2 ? part[!i] : "sym",
                              NULL};
        const char *several[] = {
            "plait", "bench", "-m",    part[i & 1],
            "-m",    "other", "--svg", i < 2 ? part[!i] : "sym",
            NULL};

        assert_int_equal(run(argv, said), 2);
        assert_non_null(strstr(said, "would overwrite the file of -m"));
        assert_int_equal(run(several, said), 2);
        assert_non_null(strstr(said, "would overwrite the file of -m"));
    }
    for (int i = 0; i < 2; i++) {
        size_t n;
        char *s = test_read(part[i], &n);

        assert_string_equal(s, mine);
        free(s);
    }
    assert_int_equal(files_here(), 3);
}

/* Standard output may be redirected to the end of an input. */
TEST(cli_files_that_are_read_are_not_standard_output)
{
    struct ran r = sh(2, "echo 1 >ids; plait logits " MODEL
                         "--tokens @ids -o - >>ids; code=$?; "
                         "test \"$(cat ids)\" = 1 || exit 99; exit $code");

    must_say(r, "-o - would overwrite the file of --tokens");
}

/* Files to which standard input, output or errors were redirected are not
 * overwritten either. */
TEST(cli_files_that_are_written_are_not_redirected)
{
    static const struct {
        const char *redirected, *is;
    } list[] = {{"<f", "standard input"},
                {">>f", "standard output"},
                {"2>>f", "standard error"}};
    char line[300];

    for (int i = 0; i < 3; i++) {
        snprintf(line, sizeof line,
                 "echo mine >f; ln f f.h; plait plan " MODEL
                 "--svg f.h %s || code=$?; grep -q mine f && rm f.h || "
                 "exit 98; cat f >&2; exit $code",
                 list[i].redirected);
        snprintf(line + 250, 50, "file of %s (", list[i].is);
        must_say(sh(2, line), line + 250);
    }
}

/* The command rejects such files before it computes anything: even the model is
 * absent. */
TEST(cli_files_that_cannot_be_written_are_told_first)
{
    char said[2048], name[300];
    const struct {
        const char *place, *says;
        int code;
    } list[] = {{"d", "d: a directory; give the name of a file", 2},
                {"self", "self: a symbolic link without a target file", 2},
                {name, "; give a shorter name", 1}};
    struct used u;

    enter_mine("first");
    assert_int_equal(symlink("self", "self"), 0);
    memset(name, 'x', 256);
    name[256] = '\0';
    for (int c = 0; c < N_COMMAND; c++) {
        find_options(&u, commands[c]);
        for (int w = 0; w < u.n_write; w++)
            for (int i = 0; i < 3; i++) {
                const char *argv[] = {"plait",       u.command, u.writes[w],
                                      list[i].place, "-m",      "absent",
                                      NULL};

                if (strcmp(u.command, "synth") == 0)
                    argv[4] = NULL;
                assert_int_equal(run(argv, said), list[i].code);
                if (!strstr(said, u.writes[w]) || !strstr(said, list[i].says))
                    fail_msg("plait %s %s says: %s", u.command, u.writes[w],
                             said);
                assert_int_equal(files_here(), 6);
            }
    }
}

TEST(cli_files_that_a_chat_saves_are_none_that_are_read)
{
    struct ran r = sh(
        0, "cp models/fable-moe-Q8_0.gguf own; ln -s own own.s; ln own own.h; "
           "echo '{{ messages[0].content }}' >form; ln form form.h; "
           "echo 'root ::= \"y\"' >gbnf; echo x >ro; chmod 444 ro; "
           "printf '/save own\n/save ./own\n/save own.s\n/save own.h\n"
           "/save form.h\n/save gbnf\n/save tr\n/save ro\n/save ok\n' | "
           "plait run -m own -i --template form --grammar-file gbnf "
           "--trace tr && cmp own models/fable-moe-Q8_0.gguf && "
           "test \"$(cat form gbnf ro)\" = \"{{ messages[0].content }}\n"
           "root ::= \\\"y\\\"\nx\" && grep -q traceEvents tr && "
           "test \"$(cat ok)\" = '[]' && rm own own.s own.h");
    static const char *const says[] = {
        "/save own would overwrite the file of -m",
        "/save ./own would overwrite the file of -m",
        "/save own.s would overwrite the file of -m",
        "/save own.h would overwrite the file of -m",
        "/save form.h would overwrite the file of --te",
        "/save gbnf would overwrite the file of --gr",
        "/save tr would overwrite the file of --trace",
        "write-protected"};

    for (size_t i = 0; i < sizeof says / sizeof says[0]; i++)
        must_say(r, says[i]);
}

/* ---- never one without write permission ---------------------------------- */

TEST(cli_files_without_write_permission_stay)
{
    static const char *const names[] = {"mine", "sym", "sym2"};
    struct used u;
    char said[2048];
    struct stat st;

    enter_mine("modes");
    for (int c = 0; c < N_COMMAND; c++) {
        find_options(&u, commands[c]);
        for (int w = 0; w < u.n_write; w++)
            for (int k = 0; k < 3; k++) {
                assert_int_equal(chmod("mine", k ? 0444 : 0555), 0);
                assert_int_equal(stat("mine", &st), 0);
                assert_int_equal(run_with(u.command, u.writes[w], names[k],
                                          NULL, NULL, said),
                                 1);
                if (!strstr(said, "write-protected") ||
                    !strstr(said, u.writes[w]))
                    fail_msg("plait %s %s says: %s", u.command, u.writes[w],
                             said);
                expect_mine(&st, u.writes[w]);
            }
    }
}

/* ---- signals ------------------------------------------------------------- */

static const int ending[] = {SIGINT, SIGTERM, SIGHUP};

/* Starts the command; *out reads its output, *in writes its input. */
static pid_t start(const char *const *argv, int *in, int *out)
{
    int to[2], from[2];
    pid_t pid;

    assert_int_equal(pipe2(to, O_CLOEXEC), 0);
    assert_int_equal(pipe2(from, O_CLOEXEC), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        int null = open("/dev/null", O_WRONLY);

        dup2(to[0], 0);
        dup2(from[1], 1);
        dup2(null, 2);
        if (chdir(home) == 0)
            execv(command_path(), (char *const *)argv);
        _exit(127);
    }
    close(to[0]);
    close(from[1]);
    *in = to[1];
    *out = from[0];
    return pid;
}

/* Reads until there is output after the prompt, sends the signal, and waits for
 * the end. */
static int end_by(pid_t pid, int sig, int in, int out)
{
    char text[64];
    int status;

    for (int i = 0; i < 3; i++)
        assert_true(read(out, text, sizeof text) > 0);
    kill(pid, sig);
    while (read(out, text, sizeof text) > 0)
        ;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    close(in);
    close(out);
    return command_status(status);
}

static void expect_saved(int extra)
{
    const char *argv[] = {"plait", "inspect", "q", NULL};
    char said[2048];
    size_t n;
    char *trace = test_read("t", &n);

    assert_true(n > 3 && strstr(trace + n - 4, "]}"));
    free(trace);
    /* loads the saved state, which verifies its checksums */
    assert_int_equal(run(argv, said), 0);
    assert_int_equal(files_here(), 2 + extra);
    assert_int_equal(unlink("q") | unlink("t"), 0);
}

/* Signals end a run with a text, and a conversation, which only a second Ctrl-C
 * would end. */
TEST(cli_signals_that_end_save_what_ctrl_c_saves)
{
    enter("signals");
    for (int i = 0; i < 3; i++) {
        const char *argv[] = {"plait",      "run",          "-m",
                              test_model(), "-p",           "x",
                              "-c",         "65536",        "-n",
                              "-1",         "--ignore-eos", "--state-save",
                              "q",          "--trace",      "t",
                              NULL,         NULL,           NULL};
        int in, out;
        pid_t pid = start(argv, &in, &out);

        assert_int_equal(end_by(pid, ending[i], in, out), 128 + ending[i]);
        expect_saved(0);
        if (ending[i] == SIGINT)
            continue;
        argv[15] = "-i";
        argv[16] = "--no-template";
        pid = start(argv, &in, &out);
        assert_int_equal(end_by(pid, ending[i], in, out), 128 + ending[i]);
        expect_saved(0);
    }
}

/* Under nohup, `plait run` continues when its terminal is closed. */
TEST(cli_signals_that_were_ignored_stay_so)
{
    const char *argv[] = {"plait", "run", "-m", test_model(),   "-p", "x", "-c",
                          "65536", "-n",  "-1", "--ignore-eos", NULL};
    char text[64];
    int in, out;
    pid_t pid;

    enter("nohup");
    signal(SIGHUP, SIG_IGN);
    pid = start(argv, &in, &out);
    signal(SIGHUP, SIG_DFL);
    assert_true(read(out, text, sizeof text) > 0);
    kill(pid, SIGHUP);
    assert_int_equal(end_by(pid, SIGTERM, in, out), 128 + SIGTERM);
}

static bool has_open(pid_t pid, const char *dir)
{
    char path[64], to[512];
    DIR *d;
    const struct dirent *e;
    bool found = false;

    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    d = opendir(path);
    while (d && !found && (e = readdir(d))) {
        ssize_t n = readlinkat(dirfd(d), e->d_name, to, sizeof to - 1);

        to[n > 0 ? n : 0] = '\0';
        found = strncmp(to, dir, strlen(dir)) == 0;
    }
    if (d)
        closedir(d);
    return found;
}

/* After SIGKILL there is no incomplete file, if the file system supports
 * unnamed files. */
TEST(cli_signals_leave_nothing_that_is_not_whole)
{
    static const int sig[] = {SIGINT, SIGTERM, SIGHUP, SIGKILL};
    const char *argv[] = {"plait", "synth",  "--shape", "qwen3-0.6b", "-o",
                          "kept",  "--type", "q8_0",    NULL};
    int fd;

    enter("synth");
    fd = open(".", O_WRONLY | O_TMPFILE, 0600);
    for (int i = 0; i < (fd >= 0 ? 4 : 3); i++) {
        int in, out, status;
        size_t n;
        pid_t pid;
        char *s;

        write_text("kept", mine);
        pid = start(argv, &in, &out);
        TEST_UNTIL(has_open(pid, home));
        kill(pid, sig[i]);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(command_status(status), 128 + sig[i]);
        close(in);
        close(out);
        s = test_read("kept", &n);
        assert_string_equal(s, mine);
        free(s);
        assert_int_equal(files_here(), 1);
    }
    if (fd >= 0)
        close(fd);
    sh(1, "mkdir lim && cd lim && (ulimit -f 8; plait synth --shape qwen3-0.6b "
          "-o made); code=$?; test -z \"$(ls -A)\" || exit 99; exit $code");
}
