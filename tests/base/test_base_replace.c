/* A file replaces another as a whole or not at all, with and without a file
 * system that supports unnamed files. */
#include "pl.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/alloc_fail.h"
#include "lib/support.h"

/* ---- a file system without unnamed files --------------------------------- */

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

static void put(pl_file *f, const char *text)
{
    assert_true(pl_file_write(f, text, strlen(text)));
}

static void is_whole_or_as_it_was(const char *dir)
{
    int here = open(".", O_RDONLY | O_DIRECTORY);
    char path[4200];
    pl_file *f;
    struct stat st;

    snprintf(path, sizeof path, "%s/place", dir);
    assert_int_equal(mkdir(dir, 0700), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pl_file_open(&f, path, 0, NULL), PL_OK);
        put(f, "a text that is never finished");
        pl_file_close(f);
        assert_int_equal(files_in(dir), i);
        assert_int_equal(pl_file_open(&f, path, 0, NULL), PL_OK);
        put(f, i ? "new" : "old");
        if (i)
            expect_text(path, "old");
        assert_int_equal(pl_file_commit(f, NULL), PL_OK);
        pl_file_close(f);
        assert_int_equal(files_in(dir), 1);
        expect_text(path, i ? "new" : "old");
        /* the new file gets the old file's permissions */
        assert_int_equal(stat(path, &st), 0);
        if (i)
            assert_int_equal(st.st_mode & 0777, 0604);
        assert_int_equal(chmod(path, 0604), 0);
    }
    /* a path without a directory */
    assert_int_equal(chdir(dir), 0);
    assert_int_equal(pl_file_open(&f, "other", 0, NULL), PL_OK);
    put(f, "x");
    assert_int_equal(pl_file_commit(f, NULL), PL_OK);
    pl_file_close(f);
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

/* Only where the file system supports unnamed files, as documented. */
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
        pl_file *f;

        if (pl_file_open(&f, path, 0, NULL) != PL_OK ||
            write(pl_file_fd(f), "x", 1) != 1)
            _exit(1);
        raise(SIGKILL);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    assert_int_equal(files_in(dir), 0);
}

TEST(replaced_says_what_cannot_be)
{
    pl_file *f;
    pl_err err;

    assert_int_equal(pl_file_open(&f, test_temp("absent/x"), 0, &err),
                     PL_NOT_FOUND);
    assert_non_null(strstr(err.message, "absent/x"));
    assert_int_equal(pl_file_open(&f, "/dev/null", 0, &err), PL_BAD_ARGUMENT);
    assert_non_null(strstr(err.message, "/dev/null"));
    /* when the file is committed its name belongs to a directory */
    assert_int_equal(mkdir(test_temp("taken"), 0700), 0);
    assert_int_equal(pl_file_open(&f, test_temp("taken/x"), 0, NULL), PL_OK);
    assert_int_equal(mkdir(test_temp("taken/x"), 0700), 0);
    assert_int_equal(pl_file_commit(f, &err), PL_IO);
    assert_non_null(strstr(err.message, "taken/x"));
    pl_file_close(f);
    assert_int_equal(files_in(test_temp("taken")), 1);
}

TEST(replaced_every_failed_allocation_is_a_status)
{
    const char *dir = test_temp("alloc"), *path = test_temp("alloc/place");
    bool failed = true;

    assert_int_equal(mkdir(dir, 0700), 0);
    for (int64_t n = 1; failed; n++) {
        pl_file *f;
        pl_status s;

        names_only = n % 2;
        alloc_stat_reset();
        alloc_fail_at((n + 1) / 2);
        s = pl_file_open(&f, path, 0, NULL);
        if (s == PL_OK) {
            put(f, "x");
            s = pl_file_commit(f, NULL);
            pl_file_close(f);
        }
        failed = alloc_fail_off() || n < 4;
        assert_true(s == PL_OK || s == PL_NO_MEMORY);
        assert_int_equal(files_in(dir), s == PL_OK);
        assert_int_equal(alloc_stat_get().live_bytes, 0);
        unlink(path);
    }
    names_only = false;
}

/* ---- files that are not replaced ----------------------------------------- */

static void write_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

/* The mode counts, so that root's files are safe too. */
TEST(replaced_are_no_files_without_write_permission)
{
    const char *dir = test_temp("modes"), *path = test_temp("modes/place");
    pl_file *f;
    struct stat st;
    pl_err err;

    assert_int_equal(mkdir(dir, 0700), 0);
    write_text(path, "mine");
    for (int i = 0; i < 2; i++) {
        unsigned flags = i ? PL_FILE_STREAM : 0;

        assert_int_equal(chmod(path, 0444), 0);
        assert_int_equal(pl_file_open(&f, path, flags, &err), PL_IO);
        assert_null(f);
        assert_non_null(strstr(err.message, "write-protected (mode 0444)"));
        /* also if it became read-only while the new one was written */
        assert_int_equal(chmod(path, 0644), 0);
        TEST_OK(pl_file_open(&f, path, flags, &err), err);
        put(f, "new");
        assert_int_equal(chmod(path, 0555), 0);
        assert_int_equal(pl_file_commit(f, &err), PL_IO);
        pl_file_close(f);
        expect_text(path, "mine");
    }
    assert_int_equal(pl_file_open(&f, path, PL_FILE_RESUME, &err), PL_IO);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0555);
    assert_int_equal(files_in(dir), 1);
}

TEST(replaced_is_what_a_link_names)
{
    const char *dir = test_temp("links"), *path = test_temp("links/place");
    const char *link = test_temp("links/link");
    pl_file *f;
    struct stat st;
    pl_err err;

    assert_int_equal(mkdir(dir, 0700), 0);
    assert_int_equal(symlink("place", link), 0);
    assert_int_equal(pl_file_open(&f, link, 0, &err), PL_BAD_ARGUMENT);
    assert_non_null(strstr(err.message, "without a target file"));
    /* a link to itself, and one through a device, are rejected, too */
    for (int i = 0; i < 2; i++) {
        const char *other =
            i ? test_temp("links/far") : test_temp("links/self");

        assert_int_equal(symlink(i ? "/dev/null/x" : "self", other), 0);
        assert_int_equal(pl_file_open(&f, other, 0, &err), PL_BAD_ARGUMENT);
        assert_non_null(strstr(err.message, "without a target file"));
        assert_int_equal(unlink(other), 0);
    }
    write_text(path, "old");
    TEST_OK(pl_file_open(&f, link, 0, &err), err);
    put(f, "new");
    TEST_OK(pl_file_commit(f, &err), err);
    pl_file_close(f);
    expect_text(path, "new");
    assert_int_equal(lstat(link, &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    assert_int_equal(files_in(dir), 2);
}

/* A name may be as long as the file system allows. A longer one is rejected
 * before anything is written. */
TEST(replaced_have_names_of_any_length)
{
    const char *dir = test_temp("names");
    char path[4500];
    pl_file *f;
    pl_err err;

    assert_int_equal(mkdir(dir, 0700), 0);
    for (int n = 230; n <= 256; n++) {
        names_only = n % 2;
        snprintf(path, sizeof path, "%s/%0*d", dir, n, n);
        if (n == 256) {
            assert_int_equal(pl_file_open(&f, path, 0, &err), PL_IO);
            assert_non_null(strstr(err.message, "give a shorter name"));
            break;
        }
        TEST_OK(pl_file_open(&f, path, 0, &err), err);
        put(f, "x");
        TEST_OK(pl_file_commit(f, &err), err);
        pl_file_close(f);
        expect_text(path, "x");
        assert_int_equal(unlink(path), 0);
        assert_int_equal(files_in(dir), 0);
    }
    names_only = false;
}

/* Directories, sockets and disks are not written as pipes are. */
TEST(replaced_or_streamed_is_nothing_else)
{
    const char *dir = test_temp("kinds"), *path = test_temp("kinds/place");
    pl_file *f;
    pl_err err;

    assert_int_equal(mkdir(dir, 0700), 0);
    assert_int_equal(pl_file_open(&f, dir, PL_FILE_STREAM, &err),
                     PL_BAD_ARGUMENT);
    assert_non_null(strstr(err.message, "a directory"));
    assert_int_equal(mknod(path, S_IFSOCK | 0600, 0), 0);
    assert_int_equal(pl_file_open(&f, path, PL_FILE_STREAM, &err),
                     PL_BAD_ARGUMENT);
    assert_int_equal(unlink(path), 0);
    /* a disk that does not exist; only root may make one */
    if (mknod(path, S_IFBLK | 0600, makedev(7, 255)) == 0)
        assert_int_equal(pl_file_open(&f, path, PL_FILE_STREAM, &err),
                         PL_BAD_ARGUMENT);
}

/* A file of another user's stays that user's, who could not read it else. */
TEST(replaced_by_root_keep_their_owner)
{
    const char *dir = test_temp("owners"), *path = test_temp("owners/place");
    pl_file *f;
    struct stat st;
    pl_err err;

    if (geteuid() != 0)
        TEST_SKIP("only root may write files of other users");
    assert_int_equal(mkdir(dir, 0700), 0);
    for (int i = 0; i < 3; i++) {
        names_only = i == 1;
        write_text(path, "old");
        assert_int_equal(chown(path, 1234, 5678), 0);
        assert_int_equal(chmod(path, 0640), 0);
        TEST_OK(pl_file_open(&f, path, i == 2 ? PL_FILE_RESUME : 0, &err), err);
        put(f, "new");
        TEST_OK(pl_file_commit(f, &err), err);
        pl_file_close(f);
        expect_text(path, "new");
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_uid, 1234);
        assert_int_equal(st.st_gid, 5678);
        assert_int_equal(st.st_mode & 0777, 0640);
        assert_int_equal(unlink(path), 0);
    }
    names_only = false;
}

/* A partial file has one writer at a time, and no other name. */
TEST(replaced_by_parts_with_one_writer)
{
    const char *dir = test_temp("writers"), *path = test_temp("writers/place");
    const char *part = test_temp("writers/place.part");
    const char *other = test_temp("writers/other");
    pl_file *f, *g;
    pl_err err;

    assert_int_equal(mkdir(dir, 0700), 0);
    TEST_OK(pl_file_open(&f, path, PL_FILE_RESUME, &err), err);
    put(f, "whole");
    assert_int_equal(pl_file_open(&g, path, PL_FILE_RESUME, &err), PL_IO);
    assert_non_null(strstr(err.message, "being written"));
    TEST_OK(pl_file_commit(f, &err), err);
    /* The lock is of that file, not of its name. */
    TEST_OK(pl_file_open(&g, path, PL_FILE_RESUME, &err), err);
    pl_file_close(g);
    pl_file_close(f);
    expect_text(path, "whole");
    assert_int_equal(unlink(part), 0);
    write_text(other, "mine");
    assert_int_equal(link(other, part), 0);
    assert_int_equal(pl_file_open(&g, path, PL_FILE_RESUME, &err),
                     PL_BAD_ARGUMENT);
    assert_non_null(strstr(err.message, "hard link"));
    expect_text(other, "mine");
}

/* A partial file is continued, and stays if it is not finished. */
TEST(replaced_by_parts_that_are_gone_on_with)
{
    const char *dir = test_temp("parts"), *path = test_temp("parts/place");
    pl_file *f;
    pl_err err;

    assert_int_equal(mkdir(dir, 0700), 0);
    for (int i = 0; i < 2; i++) {
        TEST_OK(pl_file_open(&f, path, PL_FILE_RESUME, &err), err);
        assert_int_equal(lseek(pl_file_fd(f), 0, SEEK_END), i);
        assert_int_equal(write(pl_file_fd(f), i ? "b" : "a", 1), 1);
        if (i)
            TEST_OK(pl_file_commit(f, &err), err);
        pl_file_close(f);
        expect_text(i ? path : test_temp("parts/place.part"), i ? "ab" : "a");
        assert_int_equal(files_in(dir), 1);
    }
}

/* Writes of any size arrive in order, and the first failure is reported. */
TEST(replaced_has_all_that_was_written)
{
    enum { N = 5 << 20 };
    const char *path = test_temp("large");
    unsigned char *data = malloc(N);
    size_t n, at = 0;
    pl_file *f;
    char *got;
    pl_err err;

    assert_non_null(data);
    for (int i = 0; i < N; i++)
        data[i] = (unsigned char)(i * 7 + i / 1000);
    TEST_OK(pl_file_open(&f, path, 0, &err), err);
    for (size_t step = 1; at < N; at += n, step = step * 3 + 1) {
        n = step < N - at ? step : N - at;
        assert_true(pl_file_write(f, data + at, n));
    }
    TEST_OK(pl_file_commit(f, &err), err);
    pl_file_close(f);
    got = test_read(path, &n);
    assert_int_equal(n, N);
    assert_memory_equal(got, data, N);
    free(got);
    if (access("/dev/full", W_OK) == 0) {
        TEST_OK(pl_file_open(&f, "/dev/full", PL_FILE_STREAM, &err), err);
        assert_false(pl_file_write(f, data, N));
        assert_false(pl_file_write(f, data, 1));
        assert_int_equal(pl_file_commit(f, &err), PL_IO);
        assert_non_null(strstr(err.message, strerror(ENOSPC)));
        pl_file_close(f);
    }
    free(data);
}
