/* Measures how fast a sequence of 4,096 tokens is saved to a file, compared
 * with a plain write of as many bytes to the same file system.
 *
 * Both end with fsync, and they alternate, so that other work of the machine
 * affects both. A time is the median over the rounds, and the ratio the median
 * of the rounds' ratios. "memory" is the time of saving to a buffer instead of
 * a disk, that is, the cost of saving itself. "extra" is the growth of the
 * process's peak resident memory over all saves to files.
 *
 *   bench-state [DIR] [ROUNDS]    DIR has the synthetic model (written if
 *                                 absent) and the files; build/bench */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "engine/engine.h"
#include "exec/cache_io.h"
#include "pl.h"
#include "synthetic.h"
#include "timing.h"

enum { N_TOKEN = 4096, PIECE = 1 << 20 };

/* Returns the seconds that writing data[bytes] to a file and fsync take. */
static double plain(const char *path, const unsigned char *data, size_t bytes)
{
    double t = bench_now();
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);

    if (fd < 0)
        bench_die(path, "cannot be opened");
    for (size_t i = 0; i < bytes;) {
        size_t n = bytes - i < PIECE ? bytes - i : PIECE;
        ssize_t k = write(fd, data + i, n);

        if (k <= 0)
            bench_die(path, "cannot be written");
        i += (size_t)k;
    }
    if (fsync(fd) || close(fd))
        bench_die(path, "cannot be brought to the disk");
    return bench_now() - t;
}

static long peak_kib(void)
{
    struct rusage u;

    getrusage(RUSAGE_SELF, &u);
    return u.ru_maxrss;
}

/* Fills a sequence with random cache contents. They need not be computed,
 * because the time to save them does not depend on them. */
static void fill(pl_engine *e)
{
    struct exec_caches c;
    unsigned char *rows;
    uint64_t x = 1;
    pl_err err = {0};

    if (kv_reserve(&e->kv, 0, N_TOKEN, true, NULL, NULL, &err) ||
        exec_caches_open(&c, e->exec, -1, &err))
        bench_die("sequence", err.message);
    kv_commit(&e->kv, 0, N_TOKEN, false);
    for (int i = 0; i < c.n; i++) {
        size_t n =
            (size_t)(PAGE_TOKENS * c.cache[i].n_head) * c.cache[i].row_bytes;

        rows = malloc(n);
        if (!rows)
            bench_die("sequence", "no memory");
        for (size_t k = 0; k < n; k++) {
            x = x * 6364136223846793005u + 1442695040888963407u;
            rows[k] = (unsigned char)(x >> 56);
        }
        for (int p = 0; p < N_TOKEN / PAGE_TOKENS; p++)
            if (exec_cache_write(&c, i, e->kv.pool[0].table[p], 0, PAGE_TOKENS,
                                 rows, &err))
                bench_die("sequence", err.message);
        free(rows);
    }
    exec_caches_close(&c);
}

int main(int argc, char **argv)
{
    const char *dir = argc > 1 ? argv[1] : SYNTHETIC_DIR;
    int rounds = argc > 2 ? atoi(argv[2]) : 9;
    double file[BENCH_MAX_ROUND], raw[BENCH_MAX_ROUND], ratio[BENCH_MAX_ROUND];
    double memory[BENCH_MAX_ROUND], back[BENCH_MAX_ROUND];
    pl_options o = {.size = sizeof o,
                    .devices = "cpu*2",
                    .split_mode = PL_SPLIT_TENSOR,
                    .n_threads = 1,
                    .n_seq = 1};
    char model[512], path[600], other[600];
    pl_model *m;
    pl_engine *e;
    pl_err err = {0};
    void *data = NULL;
    uint64_t size = 0;
    size_t bytes = 0;
    long before, after;

    if (rounds < 1 || rounds > BENCH_MAX_ROUND) {
        fprintf(stderr, "usage: bench-state [DIR] [ROUNDS 1..%d]\n",
                BENCH_MAX_ROUND);
        return 2;
    }
    o.n_ctx = N_TOKEN;
    snprintf(path, sizeof path, "%s/saved.state", dir);
    snprintf(other, sizeof other, "%s/plain.bytes", dir);
    if (synthetic_model(synth_shape("qwen3-0.6b", NULL), "q4_k_m", dir, model,
                        sizeof model, &err) ||
        pl_model_open(&m, model, &err) || pl_engine_create(&e, m, &o, &err))
        bench_die(dir, err.message);
    fill(e);
    before = peak_kib();
    for (int r = 0; r < rounds; r++) {
        double t = bench_now();

        if (pl_state_save_file(e, 0, 0, -1, NULL, 0, path, &err))
            bench_die("saving", err.message);
        file[r] = bench_now() - t;
        if (r == 0) {
            /* peak before the whole state is saved to memory, which needs a
             * large buffer */
            after = peak_kib();
            printf("extra memory %.1f MiB\n", (double)(after - before) / 1024);
            if (pl_state_save_memory(e, 0, 0, -1, &data, &bytes, &err))
                bench_die("saving", err.message);
            size = bytes;
        }
        raw[r] = plain(other, data, bytes);
        ratio[r] = raw[r] / file[r];
        free(data);
        data = NULL;
        t = bench_now();
        if (pl_state_save_memory(e, 0, 0, -1, &data, &bytes, &err))
            bench_die("saving", err.message);
        memory[r] = bench_now() - t;
        t = bench_now();
        if (pl_state_restore_memory(e, 0, data, bytes, 0, &err))
            bench_die("restoring", err.message);
        back[r] = bench_now() - t;
    }
    printf("%d tokens of the synthetic 0.6B, F16 cache: %.1f MB, %d rounds\n",
           N_TOKEN, (double)size * 1e-6, rounds);
    printf("  %-28s %8.2f GB/s\n", "save to a file, fsync",
           (double)size * 1e-9 / bench_median(file, rounds));
    printf("  %-28s %8.2f GB/s\n", "plain write, fsync",
           (double)size * 1e-9 / bench_median(raw, rounds));
    printf("  %-28s %8.2f\n", "ratio", bench_median(ratio, rounds));
    printf("  %-28s %8.2f GB/s\n", "save to memory",
           (double)size * 1e-9 / bench_median(memory, rounds));
    printf("  %-28s %8.2f GB/s\n", "restore from memory",
           (double)size * 1e-9 / bench_median(back, rounds));
    unlink(path);
    unlink(other);
    free(data);
    pl_engine_free(e);
    pl_model_free(m);
    return 0;
}
