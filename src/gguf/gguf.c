/* Opens GGUF files: mapping, joining split sets, look-up. gguf_parse.c
 * interprets the bytes, gguf_values.c gives access to typed values.
 *
 * Accessing a mapped page beyond the end of a truncated file raises SIGBUS, and
 * another process may truncate a file at any time. So everything that is parsed
 * is first read into memory that replaces the mapping, block by block as the
 * parser advances; addresses stay the same. The data of tensors stays mapped.
 * Reading it with gguf_read would also be safe, but loading a model from the
 * page cache then costs 10 to 45 % more processor time.
 *
 * A split set NAME-00001-of-0000N.gguf is N complete files. The first
 * contains the metadata. Each contains split.no (from 0), split.count and
 * split.tensors.count (of all parts). Offsets of tensors are relative to the
 * part that contains them. The convention is that of
 * llama.cpp's gguf-split. */
#include "gguf/gguf.h"

#include "base/arena.h"
#include "base/err.h"
#include "base/hash64.h"
#include "gguf/gguf_parse.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* The length of the suffix "-00001-of-00003.gguf", the maximum length of a path
 * in errors, and the maximum number of parts. */
enum { SUFFIX_LEN = 20, LABEL_LEN = 240, MAX_PART = 65535 };

/* The file is copied into private memory in blocks of at least this many bytes,
 * except the last one. */
enum { COPY_BYTES = 1 << 20 };

struct gguf {
    struct gguf_part *part; /* [n_part] the files of the model, owned */
    int n_part;
    struct gguf_tensor *tensor; /* [n_tensor] the tensors of all files, owned by
                                   `arena` */
    uint64_t n_tensor;
    struct gguf_index tensor_index;
    struct arena arena;
};

_Static_assert(offsetof(struct gguf_kv, key) == 0 &&
                   offsetof(struct gguf_tensor, name) == 0,
               "the index needs the name first");

static void part_fini(struct gguf_part *p)
{
    arena_fini(&p->kv_arena);
    if (p->mapped) {
        munmap((void *)p->base, p->size);
        close(p->fd);
    }
    free(p->path);
}

static pl_status part_init(struct gguf_part *p, const char *path, pl_err *err)
{
    size_t len = strlen(path);

    memset(p, 0, sizeof *p);
    p->path = strdup(path);
    if (!p->path)
        return err_no_memory(err, "a path");
    p->label = p->path + (len > LABEL_LEN ? len - LABEL_LEN : 0);
    return PL_OK;
}

static pl_status part_map(struct gguf_part *p, pl_err *err)
{
    /* O_NONBLOCK keeps open() from blocking if the path is a FIFO. The code
     * below rejects everything except regular files. */
    int fd = open(p->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat st;
    void *base;
    pl_status s = PL_OK;

    if (fd < 0)
        return err_set(err, errno == ENOENT ? PL_NOT_FOUND : PL_IO,
                       "%s: cannot open the file: %s; check the path and its "
                       "permissions",
                       p->label, strerror(errno));
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        s = err_set(err, PL_IO,
                    "%s: not a regular file; give the path of a .gguf file",
                    p->label);
    } else if (st.st_size == 0) {
        s = err_set(err, PL_BAD_FILE,
                    "%s: byte 0: the file is empty; copy or convert it again",
                    p->label);
    } else if ((uint64_t)st.st_size > SIZE_MAX / 2) {
        s = err_set(err, PL_UNSUPPORTED,
                    "%s: %lld bytes are too large to map; split the file",
                    p->label, (long long)st.st_size);
    } else {
        p->size = (size_t)st.st_size;
        base = mmap(NULL, p->size, PROT_READ, MAP_PRIVATE, fd, 0);
        p->mapped = base != MAP_FAILED;
        p->base = p->mapped ? base : NULL;
        if (!p->mapped)
            s = err_set(err, PL_IO,
                        "%s: cannot map %zu bytes: %s; raise the address space "
                        "limit (ulimit -v)",
                        p->label, p->size, strerror(errno));
    }
    if (p->mapped)
        p->fd = fd;
    else
        close(fd);
    return s;
}

static pl_status cut_short(const struct gguf_part *p, uint64_t size,
                           pl_err *err)
{
    return err_set(err, PL_BAD_FILE,
                   "%s: the file ends at byte %llu, but had %zu bytes when it "
                   "was opened: another program truncated or rewrites it; open "
                   "it again once it is complete",
                   p->label, (unsigned long long)size, p->size);
}

/* Reads `n` bytes of the file at offset `at` into `dst`. Fails if the file has
 * become shorter since it was opened. */
static pl_status read_bytes(const struct gguf_part *p, uint64_t at, void *dst,
                            size_t n, pl_err *err)
{
    for (size_t done = 0; done < n;) {
        ssize_t k =
            pread(p->fd, (char *)dst + done, n - done, (off_t)(at + done));

        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return err_set(err, PL_IO,
                           "%s: cannot read byte %llu: %s; check "
                           "the disk",
                           p->label, (unsigned long long)(at + done),
                           strerror(errno));
        if (k == 0)
            return cut_short(p, at + done, err);
        done += (size_t)k;
    }
    return PL_OK;
}

pl_status gguf_part_copy(struct gguf_part *p, uint64_t n, pl_err *err)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), end;
    unsigned char *at = (unsigned char *)p->base + p->copied;
    size_t bytes;

    if (n <= p->copied || !p->mapped)
        return PL_OK;
    end = n > p->copied + COPY_BYTES ? n : p->copied + COPY_BYTES;
    end = end < p->size ? (end + page - 1) / page * page : p->size;
    end = end < p->size ? end : p->size;
    bytes = (size_t)(end - p->copied);
    if (mmap(at, bytes, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
        return err_no_memory(err, "the metadata of a GGUF file");
    PL_TRY(read_bytes(p, p->copied, at, bytes, err));
    mprotect(at, bytes, PROT_READ);
    p->copied = (size_t)end;
    return PL_OK;
}

/* Maps the file of a part unless its bytes are in memory already (p->base),
 * then parses its header and metadata. */
static pl_status part_load(struct gguf_part *p, pl_err *err)
{
    if (!p->base)
        PL_TRY(part_map(p, err));
    PL_TRY(gguf_parse_header(p, err));
    return gguf_parse_kvs(p, err);
}

/* Sets *out to the integer value, from 0 to `hi`, of a key of one part, or to
 * `def` if the part lacks the key. */
static pl_status part_i64(const struct gguf_part *p, const char *key,
                          int64_t def, int64_t hi, int64_t *out, pl_err *err)
{
    int64_t i = gguf_index_find(&p->kv_index, key);

    *out = def;
    return i < 0 ? PL_OK : gguf_kv_i64(p, &p->kv[i], 0, hi, out, err);
}

/* The keys that describe a part of a split model: split.count, split.no and
 * split.tensors.count. The latter is the number of tensors of all parts, -1 if
 * the key is absent. */
struct place {
    int64_t count, no, n_tensor;
};

static pl_status part_place(const struct gguf_part *p, struct place *at,
                            pl_err *err)
{
    PL_TRY(part_i64(p, "split.count", 1, MAX_PART, &at->count, err));
    if (at->count < 2) { /* In a model that is not split, split.count is 0 or
                            1. */
        *at = (struct place){1, 0, -1};
        return PL_OK;
    }
    PL_TRY(part_i64(p, "split.no", -1, at->count - 1, &at->no, err));
    if (at->no < 0)
        return err_set(err, PL_BAD_FILE,
                       "%s: split.count is %lld but split.no is missing; "
                       "split the model again",
                       p->label, (long long)at->count);
    return part_i64(p, "split.tensors.count", -1, INT64_MAX, &at->n_tensor,
                    err);
}

/* Sets *out to the path, malloc'ed, of part `no` of a split model. Derives it
 * from the path of part `p`, which must end in "-00001-of-00003.gguf" with the
 * numbers in `at`. */
static pl_status part_path(const struct gguf_part *p, const struct place *at,
                           int64_t no, char **out, pl_err *err)
{
    size_t len = strlen(p->path), room = len + 1;
    char suffix[64];

    snprintf(suffix, sizeof suffix, "-%05d-of-%05d.gguf", (int)at->no + 1,
             (int)at->count);
    if (len < SUFFIX_LEN || strcmp(p->path + len - SUFFIX_LEN, suffix) != 0)
        return err_set(err, PL_BAD_FILE,
                       "%s: the file is part %lld of %lld by its metadata, so "
                       "its name must end in %s; rename it",
                       p->label, (long long)at->no + 1, (long long)at->count,
                       suffix);
    *out = malloc(room);
    if (!*out)
        return err_no_memory(err, "a path");
    snprintf(*out, room, "%.*s-%05d-of-%05d.gguf", (int)(len - SUFFIX_LEN),
             p->path, (int)no + 1, (int)at->count);
    return PL_OK;
}

/* Opens part `no` of the split model that part `from` belongs to. `at` contains
 * the split keys of `from`. */
static pl_status open_sibling(struct gguf *g, const struct gguf_part *from,
                              const struct place *at, int no, pl_err *err)
{
    struct gguf_part *p = &g->part[no];
    struct place place;
    char *path;
    pl_status s;

    PL_TRY(part_path(from, at, no, &path, err));
    s = part_init(p, path, err);
    free(path);
    PL_TRY(s);
    s = part_load(p, err);
    if (s == PL_NOT_FOUND)
        return err_set(
            err, s,
            "%s: part %d of %lld is missing; put all parts in one directory",
            p->label, no + 1, (long long)at->count);
    PL_TRY(s);
    PL_TRY(part_place(p, &place, err));
    if (place.count != at->count || place.no != no)
        return err_set(err, PL_BAD_FILE,
                       "%s: part %lld of %lld by its metadata, %d of %lld by "
                       "its name; download all parts of the model again",
                       p->label, (long long)place.no + 1,
                       (long long)place.count, no + 1, (long long)at->count);
    if (place.n_tensor != at->n_tensor)
        return err_set(err, PL_BAD_FILE,
                       "%s: split.tensors.count is %lld, but %lld in %s; "
                       "download all parts of the model again",
                       p->label, (long long)place.n_tensor,
                       (long long)at->n_tensor, from->label);
    if (no > 0)
        arena_fini(&p->kv_arena); /* Only the keys of the first part are used,
                                     so those of other parts are freed. */
    return PL_OK;
}

static pl_status open_siblings(struct gguf *g, int given,
                               const struct place *at, pl_err *err)
{
    uint64_t n = 0;

    for (int i = 0; i < g->n_part; i++)
        if (i != given)
            PL_TRY(open_sibling(g, &g->part[given], at, i, err));
    if (given > 0)
        arena_fini(&g->part[given].kv_arena);
    for (int i = 0; i < g->n_part; i++)
        /* The number of tensors cannot overflow: at most 2^16 parts have at
         * most 2^17 tensors each. */
        n += g->part[i].n_tensor;
    if (at->n_tensor != (int64_t)n)
        return err_set(err, PL_BAD_FILE,
                       "%s: split.tensors.count is %lld, but the %d parts have "
                       "%llu tensors; download all parts of the model again",
                       g->part[0].label, (long long)at->n_tensor, g->n_part,
                       (unsigned long long)n);
    if (n > GGUF_MAX_TENSOR)
        return err_set(err, PL_UNSUPPORTED,
                       "%s: %llu tensors, at most %d are supported; merge the "
                       "experts of a layer into one tensor",
                       g->part[0].label, (unsigned long long)n,
                       GGUF_MAX_TENSOR);
    return PL_OK;
}

static pl_status read_tensors(struct gguf *g, pl_err *err)
{
    uint64_t first = 0;

    for (int i = 0; i < g->n_part; i++)
        g->n_tensor += g->part[i].n_tensor;
    g->tensor = arena_alloc(&g->arena, g->n_tensor, sizeof *g->tensor);
    if (!g->tensor || !gguf_index_init(&g->tensor_index, &g->arena, g->tensor,
                                       sizeof *g->tensor, g->n_tensor))
        return err_no_memory(err, "the tensors of a GGUF file");
    for (int i = 0; i < g->n_part; i++) {
        PL_TRY(gguf_parse_tensors(&g->part[i], i, g->tensor, first,
                                  &g->tensor_index, &g->arena, err));
        first += g->part[i].n_tensor;
    }
    return PL_OK;
}

/* Opens all parts of the split model that `given` is a part of, or only `given`
 * if the model is not split. Takes ownership of `given` even on failure. */
static pl_status open_set(struct gguf **out, struct gguf_part *given,
                          pl_err *err)
{
    struct gguf *g = NULL;
    struct place at;
    bool borrowed = given->base != NULL;
    pl_status s;

    s = part_load(given, err);
    if (s != PL_OK)
        goto done;
    s = part_place(given, &at, err);
    if (s != PL_OK)
        goto done;
    if (at.count > 1 && borrowed) {
        s = err_set(err, PL_UNSUPPORTED,
                    "%s: part of a split set in memory; open it by its path",
                    given->label);
        goto done;
    }
    g = calloc(1, sizeof *g);
    if (g)
        g->part = calloc((size_t)at.count, sizeof *g->part);
    if (!g || !g->part) {
        s = err_no_memory(err, "a GGUF file");
        goto done;
    }
    g->n_part = (int)at.count;
    g->part[at.no] = *given;
    memset(given, 0, sizeof *given);
    if (at.count > 1)
        s = open_siblings(g, (int)at.no, &at, err);
    if (s == PL_OK)
        s = read_tensors(g, err);
    if (s == PL_OK) {
        *out = g;
        g = NULL;
    }
done:
    gguf_close(g);
    part_fini(given);
    return s;
}

pl_status gguf_open(struct gguf **out, const char *path, pl_err *err)
{
    struct gguf_part given;

    *out = NULL;
    PL_TRY(part_init(&given, path, err));
    return open_set(out, &given, err);
}

pl_status gguf_open_memory(struct gguf **out, const void *data, size_t size,
                           const char *name, pl_err *err)
{
    struct gguf_part given;

    *out = NULL;
    PL_TRY(part_init(&given, name, err));
    given.base = data ? data : (const void *)"";
    given.size = data ? size : 0;
    return open_set(out, &given, err);
}

void gguf_close(struct gguf *g)
{
    if (!g)
        return;
    for (int i = 0; i < g->n_part; i++)
        part_fini(&g->part[i]);
    free(g->part);
    arena_fini(&g->arena);
    free(g);
}

const struct gguf_part *gguf_first_part(const struct gguf *g)
{
    return &g->part[0];
}

const char *gguf_path(const struct gguf *g)
{
    return g->part[0].path;
}

int gguf_n_part(const struct gguf *g)
{
    return g->n_part;
}

uint32_t gguf_version(const struct gguf *g)
{
    return g->part[0].version;
}

size_t gguf_alignment(const struct gguf *g)
{
    return g->part[0].alignment;
}

pl_status gguf_read(const struct gguf *g, const struct gguf_tensor *t,
                    size_t offset, void *dst, size_t bytes, pl_err *err)
{
    const struct gguf_part *p = &g->part[t->part];

    assert(offset <= t->bytes && bytes <= t->bytes - offset);
    if (p->mapped)
        return read_bytes(p, t->offset + offset, dst, bytes, err);
    memcpy(dst, p->base + t->offset + offset, bytes);
    return PL_OK;
}

pl_status gguf_check_whole(const struct gguf *g, const struct gguf_tensor *t,
                           pl_err *err)
{
    const struct gguf_part *p = &g->part[t->part];
    struct stat st;

    if (!p->mapped)
        return PL_OK;
    if (fstat(p->fd, &st) != 0)
        return err_set(err, PL_IO,
                       "%s: cannot read its size: %s; check the disk", p->label,
                       strerror(errno));
    return (uint64_t)st.st_size < p->size
               ? cut_short(p, (uint64_t)st.st_size, err)
               : PL_OK;
}

bool gguf_identity(const struct gguf *g, uint64_t out[2])
{
    out[0] = out[1] = 0;
    for (int i = 0; i < g->n_part; i++) {
        struct stat st;
        uint64_t is[7];

        if (!g->part[i].mapped || fstat(g->part[i].fd, &st) != 0)
            return false;
        is[0] = (uint64_t)st.st_dev;
        is[1] = (uint64_t)st.st_ino;
        is[2] = (uint64_t)st.st_size;
        is[3] = (uint64_t)st.st_mtim.tv_sec;
        is[4] = (uint64_t)st.st_mtim.tv_nsec;
        is[5] = (uint64_t)st.st_ctim.tv_sec;
        is[6] = (uint64_t)st.st_ctim.tv_nsec;
        out[0] = hash64(out[0], is, sizeof is);
        out[1] = hash64(~out[1], is, sizeof is);
    }
    return true;
}

bool gguf_has_file(const struct gguf *g, const char *path)
{
    struct stat st, part;

    if (stat(path, &st) != 0)
        return false;
    for (int i = 0; i < g->n_part; i++)
        if (g->part[i].mapped && fstat(g->part[i].fd, &part) == 0 &&
            part.st_dev == st.st_dev && part.st_ino == st.st_ino)
            return true;
    return false;
}

size_t gguf_file_bytes(const struct gguf *g)
{
    size_t bytes = 0;

    for (int i = 0; i < g->n_part; i++)
        bytes += g->part[i].size;
    return bytes;
}

int64_t gguf_n_kv(const struct gguf *g)
{
    return (int64_t)g->part[0].n_kv;
}

const struct gguf_kv *gguf_kv_at(const struct gguf *g, int64_t i)
{
    return i >= 0 && i < gguf_n_kv(g) ? &g->part[0].kv[i] : NULL;
}

int64_t gguf_n_tensor(const struct gguf *g)
{
    return (int64_t)g->n_tensor;
}

const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, int64_t i)
{
    return i >= 0 && i < gguf_n_tensor(g) ? &g->tensor[i] : NULL;
}

const struct gguf_kv *gguf_find(const struct gguf *g, const char *key)
{
    const struct gguf_part *p = &g->part[0];
    int64_t i = gguf_index_find(&p->kv_index, key);

    if (i < 0)
        return NULL;
    if (!gguf_was_asked(g, i)) /* The flag is written only once, because many
                                  threads may read it at the same time. */
        atomic_store_explicit(&p->asked[i], true, memory_order_relaxed);
    return &p->kv[i];
}

bool gguf_was_asked(const struct gguf *g, int64_t i)
{
    return atomic_load_explicit(&g->part[0].asked[i], memory_order_relaxed);
}

pl_status gguf_override(struct gguf *g, const char *const *text, int n,
                        pl_err *err)
{
    return gguf_part_override(&g->part[0], text, n, err);
}

const struct gguf_tensor *gguf_find_tensor(const struct gguf *g,
                                           const char *name)
{
    return gguf_tensor_at(g, gguf_index_find(&g->tensor_index, name));
}
