/* Implements model_sum.h: the hash of a model's weights, and its cache.
 *
 * All bytes are hashed, not only samples, because a file may have been patched
 * in a single row of a matrix. Cached pages of the unpatched model would then
 * be used for the patched one. File times cannot identify a model, because
 * copies of a model on one or several machines share cached pages.
 *
 * Every byte is read, but only once per file. A write changes the change time
 * of a file (ctime), which no program can set. So as long as ctime, inode and
 * size are the same, the bytes are the same. The hash is computed right after
 * loading, while much of the file is still in memory.
 *
 * A cached hash is a file of 32 bytes. Its name is a hash of the devices,
 * inodes, sizes and times of the model's files. The file contains "plaitsum",
 * the version of the algorithm, the hash, and a hash64 of these three. Numbers
 * are little-endian. An invalid file is ignored and written again. */
#include "engine/model_sum.h"

#include "base/cache_place.h"
#include "base/err.h"
#include "base/hash64.h"

#include <endian.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    BLOCK = 256 << 10,
    MAX_THREADS = 16,
    KEPT = 32,
    WAY = 2, /* version of the hash algorithm, stored in files of cached
                hashes */
};

static const char magic[8] = {'p', 'l', 'a', 'i', 't', 's', 'u', 'm'};

/* ---- hashing the model's weights ----------------------------------------- */

struct summing {
    const struct gguf *g;
    const volatile int *cancel;
    pthread_mutex_t lock; /* protects all fields after it */
    int64_t tensor;       /* index of the tensor that contains the next block to
                             hash */
    uint64_t at; /* offset in bytes of the next block to hash in that tensor */
    uint64_t sum;
    pl_status s; /* status of the first thread that failed; PL_OK if none did */
    pl_err err;
};

/* Returns a hash of a tensor's name, format and shape. */
static uint64_t hash_name(const struct gguf_tensor *t)
{
    uint64_t h = hash64(t->id, t->name, strlen(t->name));

    return hash64(h, t->dim, (size_t)t->n_dim * sizeof *t->dim);
}

/* Takes the next block of weights for the calling thread to hash. Returns its
 * tensor, and sets *at to the block's offset and *n to its size in bytes, which
 * may be 0. Returns NULL if no block is left or a thread has failed. */
static const struct gguf_tensor *next_block(struct summing *m, uint64_t *at,
                                            size_t *n)
{
    const struct gguf_tensor *t = NULL;

    pthread_mutex_lock(&m->lock);
    if (m->s == PL_OK)
        m->s = err_cancelled(m->cancel, &m->err);
    if (m->s == PL_OK && m->tensor < gguf_n_tensor(m->g)) {
        uint64_t left;

        t = gguf_tensor_at(m->g, m->tensor);
        *at = m->at;
        left = t->data ? t->bytes - m->at : 0;
        *n = left < BLOCK ? (size_t)left : BLOCK;
        m->at += *n;
        if (*n == left) {
            m->tensor++;
            m->at = 0;
        }
    }
    pthread_mutex_unlock(&m->lock);
    return t;
}

/* Hashes blocks until none is left. Each hashing thread runs this function. The
 * result is the sum of the hashes of all blocks, so it does not matter which
 * thread hashes which block. */
static void *sum_blocks(void *user)
{
    struct summing *m = user;
    unsigned char *block = malloc(BLOCK);
    const struct gguf_tensor *t;
    pl_err err;
    pl_status s = block ? PL_OK : err_no_memory(&err, "the sum of a model");
    uint64_t sum = 0, at;
    size_t n;

    while (s == PL_OK && (t = next_block(m, &at, &n))) {
        uint64_t position[2] = {hash_name(t), at};

        if (n > 0)
            s = gguf_read(m->g, t, at, block, n, &err);
        if (s == PL_OK)
            sum += hash64(hash64(0, position, sizeof position), block, n);
    }
    free(block);
    pthread_mutex_lock(&m->lock);
    m->sum += sum;
    if (s != PL_OK && m->s == PL_OK) {
        m->s = s;
        m->err = err;
    }
    pthread_mutex_unlock(&m->lock);
    return NULL;
}

static pl_status sum_all(uint64_t *out, const struct gguf *g, int n_thread,
                         const volatile int *cancel, pl_err *err)
{
    struct summing m = {.g = g, .cancel = cancel};
    pthread_t thread[MAX_THREADS];
    uint64_t blocks = gguf_file_bytes(g) / BLOCK + 1;
    int want = n_thread < MAX_THREADS ? n_thread : MAX_THREADS, n = 0;

    want = (uint64_t)want < blocks ? want : (int)blocks;
    pthread_mutex_init(&m.lock, NULL);
    while (n + 1 < want && !pthread_create(&thread[n], NULL, sum_blocks, &m))
        n++; /* If the system does not start another thread, those already
                started hash all blocks. */
    sum_blocks(&m);
    while (n > 0)
        pthread_join(thread[--n], NULL);
    pthread_mutex_destroy(&m.lock);
    *out = m.sum;
    if (m.s != PL_OK && err)
        *err = m.err;
    return m.s;
}

/* ---- hashes cached in files ---------------------------------------------- */

static pl_status cache_file_path(char path[CACHE_PATH], const uint64_t key[2],
                                 pl_err *err)
{
    char name[64];

    snprintf(name, sizeof name, "sums/%016" PRIx64 "%016" PRIx64, key[0],
             key[1]);
    return cache_path(path, name, "sums of models", err);
}

static void put(unsigned char b[KEPT], uint64_t sum)
{
    uint64_t v[2] = {htole64(WAY), htole64(sum)}, hash;

    memcpy(b, magic, 8);
    memcpy(b + 8, v, 16);
    hash = htole64(hash64(0, b, 24));
    memcpy(b + 24, &hash, 8);
}

static bool find_kept(const uint64_t key[2], uint64_t *sum)
{
    char path[CACHE_PATH];
    unsigned char b[KEPT + 1], want[KEPT];
    ssize_t n = 0;
    int fd = -1;

    if (cache_file_path(path, key, NULL) == PL_OK)
        fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return false;
    n = read(fd, b, sizeof b);
    close(fd);
    if (n != KEPT)
        return false;
    memcpy(sum, b + 16, 8);
    *sum = le64toh(*sum);
    put(want, *sum);
    return memcmp(b, want, KEPT) == 0;
}

/* Stores the hash of the weights in the cache directory. Ignores errors,
 * because without a cached hash it is only computed again next time. */
static void keep(const uint64_t key[2], uint64_t sum)
{
    char path[CACHE_PATH];
    unsigned char b[KEPT];
    pl_file *f;

    put(b, sum);
    if (cache_file_path(path, key, NULL) != PL_OK ||
        cache_directories(path, NULL) != PL_OK ||
        pl_file_open(&f, path, 0, NULL) != PL_OK)
        return;
    if (pl_file_write(f, b, KEPT))
        (void)pl_file_commit(f, NULL);
    pl_file_close(f);
}

pl_status model_sum(uint64_t *out, const struct gguf *g, int n_thread,
                    uint64_t least, const volatile int *cancel, pl_err *err)
{
    uint64_t key[2], after[2];
    bool kept = gguf_file_bytes(g) >= least && gguf_identity(g, key);

    if (kept && find_kept(key, out))
        return PL_OK;
    PL_TRY(sum_all(out, g, n_thread, cancel, err));
    /* The hash is not cached if a file of the model changed while it was
     * read. */
    if (kept && gguf_identity(g, after) && memcmp(key, after, sizeof key) == 0)
        keep(key, *out);
    return PL_OK;
}
