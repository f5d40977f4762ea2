/* Measures how fast an engine loads weights from a file in the page cache,
 * compared with a plain copy of as many bytes by as many threads.
 *
 * Both begin by mapping the file and end with its bytes in new memory, so both
 * times contain page faults. The plain copy's memory requests huge pages, as
 * the memory of devices does. The file is brought into the page cache by
 * read(), because that decides the size of the cache's pages, and so the cost
 * of mapping them.
 *
 * A load is the engine's work between its plan and its first step: "create" is
 * the executor with memory for all regions, "weights" the loading of the
 * weights. Loads and plain copies alternate, so that other work of the machine
 * affects all. A time is the median over the rounds, and a ratio the median of
 * the rounds' ratios.
 *
 *   bench-load [DIR] [ROUNDS]    DIR has the synthetic models (written if
 *                                absent, 1.2 GB each); build/bench */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/engine.h"
#include "pl_graph.h"
#include "quant/format.h"
#include "synthetic.h"
#include "timing.h"

enum { N_THREAD = 2 };

/* Drops the file from the page cache and reads it again. */
static void read_anew(const char *path)
{
    static char piece[1 << 20];
    int fd = open(path, O_RDONLY);
    ssize_t n;

    if (fd < 0 || fsync(fd))
        bench_die(path, "cannot be opened");
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    do
        n = read(fd, piece, sizeof piece);
    while (n > 0);
    close(fd);
    if (n < 0)
        bench_die(path, "cannot be read");
}

/* ---- a plain copy -------------------------------------------------------- */

struct part {
    unsigned char *dst;
    const unsigned char *src;
    size_t n;
};

static void *copy_part(void *arg)
{
    struct part *p = arg;

    memcpy(p->dst, p->src, p->n);
    return NULL;
}

/* Returns the seconds that threads need to copy the file's bytes to new memory.
 * Sets *bytes to their number. */
static double plain(const char *path, size_t *bytes)
{
    int fd = open(path, O_RDONLY);
    struct stat st;
    unsigned char *src, *dst;
    pthread_t thread[N_THREAD];
    struct part part[N_THREAD];
    double t = bench_now();

    if (fd < 0 || fstat(fd, &st))
        bench_die(path, "cannot be opened");
    *bytes = (size_t)st.st_size;
    src = mmap(NULL, *bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    dst = mmap(NULL, *bytes, PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (src == MAP_FAILED || dst == MAP_FAILED)
        bench_die(path, "cannot be mapped");
    madvise(dst, *bytes, MADV_HUGEPAGE);
    for (int i = 0; i < N_THREAD; i++) {
        size_t lo = *bytes / N_THREAD * (size_t)i;
        size_t hi = i + 1 < N_THREAD ? lo + *bytes / N_THREAD : *bytes;

        part[i] = (struct part){dst + lo, src + lo, hi - lo};
        if (pthread_create(&thread[i], NULL, copy_part, &part[i]))
            bench_die(path, "no thread");
    }
    for (int i = 0; i < N_THREAD; i++)
        pthread_join(thread[i], NULL);
    t = bench_now() - t;
    munmap(src, *bytes);
    munmap(dst, *bytes);
    close(fd);
    return t;
}

/* ---- a load -------------------------------------------------------------- */

struct config {
    const char *label;
    pl_options o;
    double create[BENCH_MAX_ROUND], weights[BENCH_MAX_ROUND];
    double load[BENCH_MAX_ROUND], ratio[BENCH_MAX_ROUND];
};

static void load(struct config *c, const char *path, int round)
{
    pl_model *m;
    pl_plan *p;
    pl_exec *x;
    pl_err err = {0};
    struct exec_parts *weight;
    const void **data;
    double t;

    if (pl_model_open(&m, path, &err) || pl_plan_create(&p, m, &c->o, &err))
        bench_die(path, err.message);
    weight = calloc((size_t)p->graph->n_node, sizeof *weight);
    data = calloc((size_t)p->graph->n_node, sizeof *data);
    for (int i = 0; weight && data && i < p->graph->n_node; i++)
        if (p->graph->node[i].op == OP_weight) {
            data[i] = gguf_find_tensor(m->file, p->graph->node[i].name)->data;
            weight[i] = (struct exec_parts){1, &data[i]};
        }
    t = bench_now();
    if (!weight || !data || exec_create(&x, p->compiled, &c->o, &err))
        bench_die(path, err.message);
    c->create[round] = bench_now() - t;
    t = bench_now();
    if (exec_load(x, &(struct exec_source){.weight = weight}, &c->o, &err))
        bench_die(path, err.message);
    c->weights[round] = bench_now() - t;
    c->load[round] = c->create[round] + c->weights[round];
    free(data);
    free(weight);
    exec_free(x);
    pl_plan_free(p);
    pl_model_free(m);
}

/* ---- one model ----------------------------------------------------------- */

static void bench(const char *name, const char *path, int rounds)
{
    struct config config[] = {
        {.label = "1 device x 2 threads",
         .o = {.size = sizeof(pl_options), .devices = "cpu*1", .n_threads = 2}},
        {.label = "2 devices x 1 thread",
         .o = {.size = sizeof(pl_options),
               .devices = "cpu*2",
               .n_threads = 1,
               .split_mode = PL_SPLIT_TENSOR}},
    };
    double copy[BENCH_MAX_ROUND];
    double gb = 0;

    read_anew(path);
    for (int i = 0; i < 2; i++) {
        config[i].o.size = sizeof config[i].o;
        config[i].o.n_ctx = 256;
        config[i].o.n_seq = 1;
        config[i].o.n_ubatch = 32;
        /* warm-up; later rounds overwrite its times */
        load(&config[i], path, 0);
    }
    for (int r = 0; r < rounds; r++) {
        size_t bytes;

        copy[r] = plain(path, &bytes);
        gb = (double)bytes * 1e-9;
        for (int i = 0; i < 2; i++) {
            struct config *c = &config[(i + r) % 2];

            load(c, path, r);
            c->ratio[r] = copy[r] / c->load[r];
        }
    }
    for (int i = 0; i < 2; i++) {
        const struct config *c = &config[i];

        printf("  %-5s %-21s %5.2f %8.2f %8.2f %8.0f %8.0f %7.2f\n", name,
               c->label, gb, gb / bench_median(copy, rounds),
               gb / bench_median(c->load, rounds),
               1e3 * bench_median(c->create, rounds),
               1e3 * bench_median(c->weights, rounds),
               bench_median(c->ratio, rounds));
    }
}

int main(int argc, char **argv)
{
    /* number of layers with which a model of this type has 1.2 GB */
    static const struct {
        const char *type;
        int n_layer;
    } models[] = {{"q8_0", 17}, {"q4_k_m", 30}, {"q6_k", 22}, {"f16", 8}};
    const char *dir = argc > 1 ? argv[1] : SYNTHETIC_DIR;
    int rounds = argc > 2 ? atoi(argv[2]) : 5;

    if (rounds < 1 || rounds > BENCH_MAX_ROUND) {
        fprintf(stderr, "usage: bench-load [DIR] [ROUNDS 1..%d]\n",
                BENCH_MAX_ROUND);
        return 2;
    }
    printf("loading from the page cache, %d rounds\n", rounds);
    printf("  %-27s %5s %8s %8s %8s %8s %7s\n", "", "GB", "copy", "load",
           "create", "weights", "ratio");
    printf("  %-27s %5s %8s %8s %8s %8s\n", "", "", "GB/s", "GB/s", "ms", "ms");
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        struct synth_shape s = *synth_shape("llama-1.2b", NULL);
        char path[512];
        pl_err err = {0};

        s.n_layer = models[i].n_layer;
        if (synthetic_model(&s, models[i].type, dir, path, sizeof path, &err))
            bench_die("a synthetic model", err.message);
        bench(models[i].type, path, rounds);
        fflush(stdout);
    }
    return 0;
}
