/* Reads and writes slot files; see slot_file.h. */
#include "slot_file.h"

#include "fail.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char magic[8] = {'p', 'l', 'a', 'i', 't', 's', 'l', 't'};

enum { VERSION = 2, AT_ROOT = 16, AT_SUM = 48, HEAD = 80 };

static pl_status no_memory(pl_err *err)
{
    return server_fail(err, PL_NO_MEMORY, "out of memory for a slot file");
}

void slot_file_fini(struct slot_file *f)
{
    free(f->token);
    free(f->bytes);
    *f = (struct slot_file){0};
}

/* Computes the checksum of the bytes of a slot file before the checksum,
 * `head`, and of its n tokens. `room` is a scratch buffer of AT_SUM + 4 * n
 * bytes. */
static void sum_of(const unsigned char *head, const unsigned char *token,
                   int64_t n, struct tier_key *sum, unsigned char *room)
{
    memcpy(room, head, AT_SUM);
    memcpy(room + AT_SUM, token, 4 * (size_t)n);
    tier_key_root(sum, room, AT_SUM + 4 * (size_t)n);
}

/* ---- writing a slot file ------------------------------------------------- */

/* Returns PL_OK if the file `path` may be written: it does not exist or is a
 * slot file, which is replaced. Other files in the folder, such as models, must
 * not be replaced. */
static pl_status guard(const char *path, pl_err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    bool none = fd < 0 && errno == ENOENT, ours;
    char b[sizeof magic];
    struct stat st;

    ours = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
           read(fd, b, sizeof b) == sizeof b && memcmp(b, magic, sizeof b) == 0;
    if (fd >= 0)
        close(fd);
    if (none || ours)
        return PL_OK;
    return server_fail(
        err, PL_BAD_ARGUMENT,
        "a file of this name exists and is not a slot file; give another name");
}

pl_status slot_file_write(struct slot_file *f, const char *path,
                          const struct tier_key *root, pl_err *err)
{
    size_t n = HEAD + 4 * (size_t)f->n;
    unsigned char *head = calloc(1, n), *room = malloc(n);
    struct tier_key sum;
    pl_file *file = NULL;
    pl_status s;

    s = head && room ? guard(path, err) : no_memory(err);
    if (s == PL_OK)
        s = pl_file_open(&file, path, 0, err);
    if (s != PL_OK)
        goto done;
    memcpy(head, magic, sizeof magic);
    tier_put4(head + 8, VERSION);
    tier_put4(head + 12, (uint32_t)f->n);
    memcpy(head + AT_ROOT, root, sizeof *root);
    for (int64_t i = 0; i < f->n; i++)
        tier_put4(head + HEAD + 4 * i, (uint32_t)f->token[i]);
    sum_of(head, head + HEAD, f->n, &sum, room);
    memcpy(head + AT_SUM, &sum, sizeof sum);
    /* Other users of the machine must not read the data, so restrict access
     * before writing it. */
    (void)fchmod(pl_file_fd(file), 0600);
    pl_file_write(file, head, n);
    pl_file_write(file, f->state, f->state_bytes);
    s = pl_file_commit(file, err);
    f->size = n + f->state_bytes;
done:
    pl_file_close(file);
    free(head);
    free(room);
    return s;
}

/* ---- reading a slot file ------------------------------------------------- */

pl_status slot_file_parse(struct slot_file *f, void *bytes, size_t n,
                          const struct tier_key *root, pl_err *err)
{
    const unsigned char *b = bytes;
    struct tier_key sum;
    unsigned char *room;
    uint32_t n_tok;

    *f = (struct slot_file){.bytes = bytes, .size = n};
    if (n < HEAD || memcmp(b, magic, sizeof magic) != 0)
        return server_fail(err, PL_BAD_FILE,
                           "not a slot file; give one that action=save wrote");
    if (tier_get4(b + 8) != VERSION)
        return server_fail(
            err, PL_BAD_FILE,
            "slot file has version %u, but this server reads version "
            "%d; run the prompt again and save the slot anew",
            (unsigned)tier_get4(b + 8), VERSION);
    n_tok = tier_get4(b + 12);
    if (n_tok > INT32_MAX || (n - HEAD) / 4 < n_tok)
        return server_fail(err, PL_BAD_FILE,
                           "the slot file is truncated; save the slot again");
    f->n = n_tok;
    room = malloc(HEAD + 4 * (size_t)n_tok);
    f->token = malloc((size_t)n_tok * sizeof *f->token + 1);
    if (!room || !f->token) {
        free(room);
        return no_memory(err);
    }
    sum_of(b, b + HEAD, f->n, &sum, room);
    free(room);
    if (memcmp(&sum, b + AT_SUM, sizeof sum) != 0)
        return server_fail(err, PL_BAD_FILE,
                           "the slot file is corrupt; save the slot again");
    if (memcmp(b + AT_ROOT, root, sizeof *root) != 0)
        return server_fail(
            err, PL_BAD_ARGUMENT,
            "the slot was saved with another model, cache format or "
            "numeric plan (--ranks); start the server with the options "
            "of the one that saved it");
    for (int64_t i = 0; i < f->n; i++)
        f->token[i] = (int32_t)tier_get4(b + HEAD + 4 * i);
    f->state = b + HEAD + 4 * (size_t)n_tok;
    f->state_bytes = n - HEAD - 4 * (size_t)n_tok;
    return PL_OK;
}

pl_status slot_file_read(struct slot_file *f, const char *path,
                         const struct tier_key *root, pl_err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    unsigned char *b = NULL;
    struct stat st;
    size_t n = 0, at = 0;

    *f = (struct slot_file){0};
    if (fd < 0 || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        pl_status s =
            server_fail(err, PL_NOT_FOUND,
                        "no such file; check the name and --slot-save-path");

        if (fd >= 0)
            close(fd);
        return s;
    }
    n = (size_t)st.st_size;
    b = malloc(n + 1);
    while (b && at < n) {
        ssize_t k = read(fd, b + at, n - at);

        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            break;
        at += (size_t)k;
    }
    close(fd);
    return b ? slot_file_parse(f, b, at, root, err) : no_memory(err);
}
