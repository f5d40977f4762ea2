/* Files of slots: after several writers at the same time, one writer's file is
 * complete. */
#include "lib/support.h"
#include "server/slot_file.h"

#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { N_TOKEN = 1000, N_STATE = 300000, N_WRITER = 3, N_ROUND = 40 };

static const struct tier_key root = {{5}};

struct writer {
    pthread_t thread;
    const char *path;
    int id; /* number that all bytes of the writer's file contain */
    pl_status status;
};

static void *write_on(void *user)
{
    struct writer *w = user;
    int32_t *token = calloc(N_TOKEN, sizeof *token);
    unsigned char *state = malloc(N_STATE);
    struct slot_file f = {
        .n = N_TOKEN, .token = token, .state = state, .state_bytes = N_STATE};
    pl_err err;

    w->status = token && state ? PL_OK : PL_NO_MEMORY;
    for (int i = 0; i < N_TOKEN && token; i++)
        token[i] = w->id;
    if (state)
        memset(state, w->id, N_STATE);
    for (int i = 0; i < N_ROUND && w->status == PL_OK; i++)
        w->status = slot_file_write(&f, w->path, &root, &err);
    free(token);
    free(state);
    return NULL;
}

/* Fails the case unless all bytes of the file are those of one writer. */
static void expect_whole(const struct slot_file *f)
{
    const unsigned char *state = f->state;

    assert_int_equal(f->n, N_TOKEN);
    assert_int_equal(f->state_bytes, N_STATE);
    for (int i = 0; i < N_TOKEN; i++)
        assert_int_equal(f->token[i], f->token[0]);
    for (int i = 0; i < N_STATE; i++)
        if (state[i] != f->token[0])
            fail_msg("byte %d of a state is of another writer", i);
}

TEST(slot_file_is_one_writers_whoever_else_writes_it)
{
    const char *dir = test_temp("slot-file");
    static struct writer w[N_WRITER];
    const struct dirent *e;
    struct slot_file f;
    struct stat st;
    char path[700];
    int n = 0;
    pl_err err;
    DIR *d;

    assert_int_equal(mkdir(dir, 0700), 0);
    snprintf(path, sizeof path, "%s/one", dir);
    for (int i = 0; i < N_WRITER; i++) {
        w[i] = (struct writer){.path = path, .id = i + 1};
        assert_int_equal(pthread_create(&w[i].thread, NULL, write_on, &w[i]),
                         0);
    }
    for (int i = 0; i < N_ROUND; i++) {
        pl_status s = slot_file_read(&f, path, &root, &err);

        assert_true(s == PL_OK || s == PL_NOT_FOUND);
        if (s == PL_OK)
            expect_whole(&f);
        slot_file_fini(&f);
    }
    for (int i = 0; i < N_WRITER; i++)
        assert_int_equal(pthread_join(w[i].thread, NULL), 0);
    for (int i = 0; i < N_WRITER; i++)
        assert_int_equal(w[i].status, PL_OK);
    TEST_OK(slot_file_read(&f, path, &root, &err), err);
    expect_whole(&f);
    slot_file_fini(&f);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    d = opendir(dir);
    assert_non_null(d);
    while ((e = readdir(d)))
        n += e->d_name[0] != '.';
    closedir(d);
    assert_int_equal(n, 1);
}

/* The folder may be that of the models, and may contain the server's keys. */
TEST(slot_file_replaces_none_but_a_slots)
{
    static const char mine[] = "GGUF, and this is mine\n";
    static const char *const names[] = {"mine", "sym", "hard", "fresh", "dir"};
    const char *dir = test_temp("slot-folder");
    int32_t token[3] = {1, 2, 3};
    struct slot_file f = {
        .n = 3, .token = token, .state = token, .state_bytes = sizeof token};
    char path[5][700];
    struct slot_file got;
    struct stat st;
    size_t n;
    char *text;
    pl_err err;
    FILE *file;

    assert_int_equal(mkdir(dir, 0700), 0);
    for (int i = 0; i < 5; i++)
        snprintf(path[i], sizeof path[i], "%s/%s", dir, names[i]);
    file = fopen(path[0], "w");
    assert_true(file && fputs(mine, file) >= 0 && fclose(file) == 0);
    assert_int_equal(symlink(path[0], path[1]), 0);
    assert_int_equal(link(path[0], path[2]), 0);
    assert_int_equal(mkdir(path[4], 0700), 0);
    for (int i = 0; i < 5; i++)
        if (i != 3) {
            assert_int_equal(slot_file_write(&f, path[i], &root, &err),
                             PL_BAD_ARGUMENT);
            assert_non_null(strstr(err.message, "another name"));
        }
    TEST_OK(slot_file_write(&f, path[3], &root, &err), err);
    /* a slot's file may be written over itself */
    TEST_OK(slot_file_write(&f, path[3], &root, &err), err);
    /* a link to a slot points out of the folder, and no mode is changed */
    assert_int_equal(unlink(path[1]) | symlink(path[3], path[1]), 0);
    assert_int_equal(slot_file_write(&f, path[1], &root, &err),
                     PL_BAD_ARGUMENT);
    assert_int_equal(chmod(path[3], 0400), 0);
    assert_int_equal(slot_file_write(&f, path[3], &root, &err), PL_IO);
    assert_int_equal(stat(path[3], &st), 0);
    assert_int_equal(st.st_mode & 0777, 0400);
    TEST_OK(slot_file_read(&got, path[3], &root, &err), err);
    slot_file_fini(&got);
    text = test_read(path[0], &n);
    assert_string_equal(text, mine);
    free(text);
}

TEST(slot_file_of_another_version_is_refused_with_a_remedy)
{
    const char *path = test_temp("old.slot");
    int32_t token[3] = {1, 2, 3};
    struct slot_file f = {
        .n = 3, .token = token, .state = token, .state_bytes = sizeof token};
    struct slot_file got;
    pl_err err;
    FILE *file;

    TEST_OK(slot_file_write(&f, path, &root, &err), err);
    TEST_OK(slot_file_read(&got, path, &root, &err), err);
    slot_file_fini(&got);
    file = fopen(path, "r+b");
    assert_true(file && fseek(file, 8, SEEK_SET) == 0 && fputc(1, file) == 1 &&
                fclose(file) == 0);
    assert_int_equal(slot_file_read(&got, path, &root, &err), PL_BAD_FILE);
    assert_non_null(strstr(err.message, "has version 1"));
    assert_non_null(strstr(err.message, "save the slot anew"));
    slot_file_fini(&got);
}
