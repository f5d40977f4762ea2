/* Files that take another's place as a whole, with and without a file system
 * that knows files without a name. */
#include "base/replace.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/alloc_fail.h"
#include "lib/support.h"

/* ---- a file system that knows no files without a name -------------------- */

static bool names_only;

int __real_open64(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...);

int __wrap_open64(const char *path, int flags, ...)
{
    mode_t mode;
    va_list ap;

    va_start(ap, flags);
    mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(ap, mode_t) : 0;
    va_end(ap);
    if (names_only && (flags & O_TMPFILE) == O_TMPFILE) {
        errno = EOPNOTSUPP;
        return -1;
    }
    return __real_open64(path, flags, mode);
}

/* ---- a directory --------------------------------------------------------- */

static int files_in(const char *dir)
{
    DIR *d = opendir(dir);
    struct dirent *e;
    int n = 0;

    assert_non_null(d);
    while ((e = readdir(d)) != NULL)
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

static void expect_text(const char *path, const char *text)
{
    size_t n;
    char *s = test_read(path, &n);

    assert_int_equal(n, strlen(text));
    assert_memory_equal(s, text, n);
    free(s);
}

static void put(struct replace *r, const char *text)
{
    assert_int_equal(write(r->fd, text, strlen(text)), strlen(text));
}

static void is_whole_or_as_it_was(const char *dir)
{
    int here = open(".", O_RDONLY | O_DIRECTORY);
    char path[4200];
    struct replace r;
    struct stat st;

    snprintf(path, sizeof path, "%s/place", dir);
    assert_int_equal(mkdir(dir, 0700), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(replace_open(&r, path, NULL), PL_OK);
        put(&r, "a text that is never finished");
        replace_close(&r);
        assert_int_equal(files_in(dir), i);
        assert_int_equal(replace_open(&r, path, NULL), PL_OK);
        put(&r, i ? "new" : "old");
        if (i)
            expect_text(path, "old");
        assert_int_equal(replace_done(&r, NULL), PL_OK);
        replace_close(&r);
        assert_int_equal(files_in(dir), 1);
        expect_text(path, i ? "new" : "old");
        /* who may read it stays */
        assert_int_equal(stat(path, &st), 0);
        if (i)
            assert_int_equal(st.st_mode & 0777, 0604);
        assert_int_equal(chmod(path, 0604), 0);
    }
    /* without a directory in its name */
    assert_int_equal(chdir(dir), 0);
    assert_int_equal(replace_open(&r, "other", NULL), PL_OK);
    put(&r, "x");
    assert_int_equal(replace_done(&r, NULL), PL_OK);
    replace_close(&r);
    expect_text("other", "x");
    assert_int_equal(files_in("."), 2);
    assert_int_equal(fchdir(here), 0);
    close(here);
}

TEST(replaced_whole_or_as_it_was)
{
    is_whole_or_as_it_was(test_temp("nameless"));
    names_only = true;
    is_whole_or_as_it_was(test_temp("named"));
    names_only = false;
}

/* Only where the file system knows files without a name, as is said. */
TEST(replaced_leaves_nothing_when_killed)
{
    const char *dir = test_temp("killed"), *path = test_temp("killed/place");
    int fd, status;
    pid_t child;

    assert_int_equal(mkdir(dir, 0700), 0);
    fd = open(dir, O_WRONLY | O_TMPFILE, 0600);
    if (fd < 0)
        TEST_SKIP("no files without a name here: %s", strerror(errno));
    close(fd);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct replace r;

        if (replace_open(&r, path, NULL) != PL_OK || write(r.fd, "x", 1) != 1)
            _exit(1);
        raise(SIGKILL);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    assert_int_equal(files_in(dir), 0);
}

TEST(replaced_says_what_cannot_be)
{
    struct replace r;
    pl_err err;

    assert_int_equal(replace_open(&r, test_temp("absent/x"), &err),
                     PL_NOT_FOUND);
    assert_non_null(strstr(err.message, "absent/x"));
    assert_int_equal(replace_open(&r, "/dev/null", &err), PL_BAD_ARGUMENT);
    assert_non_null(strstr(err.message, "/dev/null"));
    /* by the time it is done the place is another's */
    assert_int_equal(mkdir(test_temp("taken"), 0700), 0);
    assert_int_equal(replace_open(&r, test_temp("taken/x"), NULL), PL_OK);
    assert_int_equal(mkdir(test_temp("taken/x"), 0700), 0);
    assert_int_equal(replace_done(&r, &err), PL_IO);
    assert_non_null(strstr(err.message, "taken/x"));
    replace_close(&r);
    assert_int_equal(files_in(test_temp("taken")), 1);
}

TEST(replaced_every_failed_allocation_is_a_status)
{
    const char *dir = test_temp("alloc"), *path = test_temp("alloc/place");
    bool failed = true;

    assert_int_equal(mkdir(dir, 0700), 0);
    for (int64_t n = 1; failed; n++) {
        struct replace r;
        pl_status s;

        names_only = n % 2;
        alloc_stat_reset();
        alloc_fail_at((n + 1) / 2);
        s = replace_open(&r, path, NULL);
        if (s == PL_OK) {
            put(&r, "x");
            s = replace_done(&r, NULL);
            replace_close(&r);
        }
        failed = alloc_fail_off() || n < 4;
        assert_true(s == PL_OK || s == PL_NO_MEMORY);
        assert_int_equal(files_in(dir), s == PL_OK);
        assert_int_equal(alloc_stat_get().live_bytes, 0);
        unlink(path);
    }
    names_only = false;
}
