/* Weights on devices: loaded all at once, set and read in any ranges, in every
 * storage form, where memory can be written in place and where it cannot. */
#include "exec/exec.h"
#include "exec/storage.h"
#include "lib/alloc_fail.h"
#include "lib/support.h"
#include "lib/write_fail.h"
#include "machine/topology.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Rows, columns and experts are split, evenly and oddly, in runs that repeat,
 * with shared indices and ranks without any. Super blocks are cut and groups
 * are ragged. Some weights are read packed and plain, some are not read; two
 * take several slabs on each device. */
static const char text[] =
    "x: f32[n_tok, 1024] = input\n"
    "s: f32[n_tok, 96] = input\n"
    "e: f32[n_tok, 1, 96] = input\n"
    "i: i32[n_tok, 2] = input\n"
    "big16: f16[2500, 1024] = weight !want=split(0: 1101{0} 1399{1,2})\n"
    "big8: q8_0[4503, 1024] = weight !want=split(1: 480{0} 32{1} 512{2})\n"
    "k4: q4_k[53, 1024] = weight !want=split(1: 96{0} 160{1} 768{0,2})\n"
    "k6: q6_k[64, 1024] = weight !want=split(0: 3{0} 5{1})\n"
    "f: f32[41, 96] = weight !want=split(0: 20{2} 21{0})\n"
    "b: bf16[48, 96] = weight !want=split(1: 64{0} 32{1})\n"
    "m: mxfp4[5, 17, 96] = weight !want=split(0: 2{1} 3{2})\n"
    "m4: q4_0[4, 33, 96] = weight !want=split(1: 16{0} 1{1} 16{2})\n"
    "h: f32[n_tok, 5, 96] = input\n"
    "h8: q8_0[5, 17, 96] = weight !want=split(0: 2{1} 1{0} 2{2})\n"
    "hk: q6_k[5, 19, 256] = weight !want=split(2: 96{1} 160{2})\n"
    "hx: f32[n_tok, 5, 256] = input\n"
    "both: f32[96, 96] = weight\n"
    "n: f32[1024] = weight !want=split(0: 1000{1} 24{2})\n"
    "p: f32[6, 10, 12] = weight !want=split(1: 1{0} 3{1} 1{2})\n"
    "p0: f32[6, 10, 12] = weight !want=split(0: 5{0} 1{2})\n"
    "p2: f32[6, 10, 12] = weight !want=split(2: 7{0} 5{1})\n"
    "q: q5_1[19, 64] = weight\n"
    "o1: f32[n_tok, 2500] = matmul(x, big16) !output\n"
    "o2: f32[n_tok, 4503] = matmul(x, big8) !output\n"
    "o3: f32[n_tok, 53] = matmul(x, k4) !output\n"
    "o4: f32[n_tok, 64] = matmul(x, k6) !output\n"
    "o5: f32[n_tok, 41] = matmul(s, f) !output\n"
    "o6: f32[n_tok, 48] = matmul(s, b) !output\n"
    "o7: f32[n_tok, 2, 17] = expert_matmul(e, m, i) !output\n"
    "o8: f32[n_tok, 2, 33] = expert_matmul(e, m4, i) !output\n"
    "o11: f32[n_tok, 5, 17] = head_matmul(h, h8) !output\n"
    "o12: f32[n_tok, 5, 19] = head_matmul(hx, hk) !output\n"
    "o9: f32[n_tok, 96] = matmul(s, both) !output\n"
    "o10: f32[96, 96] = relu(both) !output\n";

static const char *const all_devices[] = {"cpu",   "cpu*2", "cpu*3",
                                          "sim*2", "sim*3", "cpu,sim*2"};
enum { N_DEVICES = sizeof all_devices / sizeof all_devices[0] };

/* A graph on devices, and the values of its weights. */
struct scene {
    pl_graph *g;
    pl_exec *x;
    pl_options o;
    const void **data; /* [n_node] data of the weights, owned */
    /* [n_node] the same data as a source of exec_load, each weight in one part,
     * owned */
    struct exec_parts *part;
};

static int64_t rows_of(const struct graph_node *n)
{
    int64_t rows = 1;

    for (int d = 0; d < n->n_dim - 1; d++)
        rows *= n->dim[d].n;
    return rows;
}

static size_t row_bytes(const struct graph_node *n)
{
    return format_row_bytes(n->format, n->dim[n->n_dim - 1].n);
}

static size_t bytes_of(const struct graph_node *n)
{
    return (size_t)rows_of(n) * row_bytes(n);
}

static void random_bytes(uint64_t *seed, unsigned char *p, size_t n)
{
    for (size_t i = 0; i < n; i += 8) {
        uint64_t r = test_random(seed);

        memcpy(p + i, &r, n - i < 8 ? n - i : 8);
    }
}

static void scene_exec(struct scene *s)
{
    pl_err err;

    if (pl_exec_create(&s->x, s->g, &s->o, &err) != PL_OK)
        fail_msg("%s: %s", s->o.devices, err.message);
}

static void scene_init(struct scene *s, const char *devices, uint64_t *seed)
{
    pl_err err;

    *s = (struct scene){.o = {.size = sizeof s->o,
                              .devices = devices,
                              .n_ranks = 3,
                              .n_threads = 1,
                              .n_ubatch = 4,
                              .n_ctx = 128,
                              .n_seq = 1,
                              .no_pin = true}};
    TEST_OK(pl_graph_parse(&s->g, text, &err), err);
    scene_exec(s);
    s->data = test_need((size_t)s->g->n_node, sizeof *s->data);
    s->part = test_need((size_t)s->g->n_node, sizeof *s->part);
    for (int i = 0; i < s->g->n_node; i++) {
        const struct graph_node *n = &s->g->node[i];
        unsigned char *b;

        if (n->op != OP_weight)
            continue;
        s->data[i] = b = test_need(bytes_of(n), 1);
        random_bytes(seed, b, bytes_of(n));
        s->part[i] = (struct exec_parts){1, &s->data[i]};
    }
}

static void scene_fini(struct scene *s)
{
    pl_exec_free(s->x);
    for (int i = 0; i < s->g->n_node; i++)
        free((void *)s->data[i]);
    free(s->part);
    free(s->data);
    pl_graph_free(s->g);
}

static void load(struct scene *s)
{
    pl_err err;

    if (exec_load(s->x, &(struct exec_source){.weight = s->part}, &s->o,
                  &err) != PL_OK)
        fail_msg("%s: %s", s->o.devices, err.message);
}

/* Compares rows row0 .. row0+n-1 of a weight on the devices with its data. */
static void check_rows(struct scene *s, int node, int64_t row0, int64_t n)
{
    const struct graph_node *g = &s->g->node[node];
    size_t bytes = (size_t)n * row_bytes(g);
    unsigned char *got = test_need(bytes, 1);
    pl_err err;

    memset(got, 0x5A, bytes);
    if (exec_get_rows(s->x, node, row0, n, got, &err) != PL_OK)
        fail_msg("%s, %s: %s", s->o.devices, g->name, err.message);
    if (memcmp(got, (const char *)s->data[node] + (size_t)row0 * row_bytes(g),
               bytes) != 0)
        fail_msg("%s, %s: rows %d to %d are not what was put", s->o.devices,
                 g->name, (int)row0, (int)(row0 + n) - 1);
    free(got);
}

static void check_all(struct scene *s)
{
    for (int i = 0; i < s->g->n_node; i++)
        if (s->data[i])
            check_rows(s, i, 0, rows_of(&s->g->node[i]));
}

/* ---- loading ------------------------------------------------------------- */

TEST(weights_loaded_are_read_back)
{
    uint64_t seed = test_seed();

    for (int k = 0; k < N_DEVICES; k++)
        for (int n_thread = 1; n_thread < 4; n_thread += 2) {
            struct scene s;

            scene_init(&s, all_devices[k], &seed);
            s.o.n_threads = n_thread;
            load(&s);
            check_all(&s);
            scene_fini(&s);
        }
}

/* Returns the whole weights region of a device, *bytes long, malloc'ed. */
static unsigned char *region(const pl_exec *x, int dev, size_t *bytes)
{
    unsigned char *p;

    *bytes = x->plan->low->prog[dev].bytes[REGION_WEIGHTS];
    p = test_need(*bytes, 1);
    assert_int_equal(
        device_read(x->set, dev, REGION_WEIGHTS, 0, p, *bytes, NULL), PL_OK);
    return p;
}

/* Sets all of a weight in random ranges of few rows, in random order. */
static void put_ranges(struct scene *s, int node, uint64_t *seed)
{
    const struct graph_node *g = &s->g->node[node];
    int64_t rows = rows_of(g), n_range = 0;
    int64_t *first = test_need((size_t)rows + 1, sizeof *first);

    for (int64_t r = 0; r < rows; r += 1 + test_below(seed, 1 + rows / 20))
        first[n_range++] = r;
    first[n_range] = rows;
    /* a step that has no common divisor with the number of ranges visits each
     * range once */
    for (int64_t i = 0, at = 0, step = 7919; i < n_range; i++) {
        at = n_range % step ? (at + step) % n_range : i;
        assert_int_equal(exec_put_rows(s->x, node, first[at],
                                       first[at + 1] - first[at],
                                       (const char *)s->data[node] +
                                           (size_t)first[at] * row_bytes(g),
                                       NULL),
                         PL_OK);
    }
    free(first);
}

/* Loading all weights gives the same bytes as exec_put_rows, the padding
 * included. */
TEST(weights_loaded_equal_rows_put)
{
    uint64_t seed = test_seed();

    /* cpu devices, whose memory is zero at first, so that padding is equal */
    for (int k = 0; k < 3; k++) {
        struct scene s;
        pl_exec *loaded;

        scene_init(&s, all_devices[k], &seed);
        load(&s);
        loaded = s.x;
        scene_exec(&s);
        for (int i = 0; i < s.g->n_node; i++)
            if (s.data[i])
                put_ranges(&s, i, &seed);
        for (int d = 0; d < s.x->plan->list.n; d++) {
            size_t na, nb;
            unsigned char *a = region(loaded, d, &na);
            unsigned char *b = region(s.x, d, &nb);

            assert_int_equal(na, nb);
            assert_memory_equal(a, b, na);
            free(a);
            free(b);
        }
        pl_exec_free(loaded);
        scene_fini(&s);
    }
}

TEST(weights_put_in_ranges_are_read_in_ranges)
{
    uint64_t seed = test_seed();

    for (int k = 0; k < N_DEVICES; k++) {
        struct scene s;

        scene_init(&s, all_devices[k], &seed);
        load(&s);
        for (int round = 0; round < 300; round++) {
            int i = (int)test_below(&seed, s.g->n_node);
            const struct graph_node *n = &s.g->node[i];
            unsigned char *at;
            int64_t rows, row0, c;

            if (!s.data[i])
                continue;
            rows = rows_of(n);
            row0 = test_below(&seed, rows);
            c = test_below(&seed, rows - row0) % 100 + 1;
            at = (unsigned char *)s.data[i] + (size_t)row0 * row_bytes(n);
            random_bytes(&seed, at, (size_t)c * row_bytes(n));
            assert_int_equal(exec_put_rows(s.x, i, row0, c, at, NULL), PL_OK);
            row0 = test_below(&seed, rows);
            check_rows(&s, i, row0, 1 + test_below(&seed, rows - row0));
        }
        check_all(&s);
        scene_fini(&s);
    }
}

/* ---- slabs --------------------------------------------------------------- */

struct progress {
    uint64_t done, total;
    int n;
};

static void progress(void *user, const char *what, uint64_t done,
                     uint64_t total)
{
    struct progress *p = user;

    assert_non_null(what);
    assert_true(done > p->done && done <= total);
    assert_true(p->n == 0 || total == p->total);
    *p = (struct progress){done, total, p->n + 1};
}

/* One write for each slab, and no reads; a storage's last slab may be small. */
TEST(weights_go_to_devices_by_slabs)
{
    uint64_t seed = test_seed();
    struct scene s;
    struct arena a = {0};
    struct progress p = {0};
    struct weight_store *t;
    struct write_stat got;
    int64_t slabs = 0, bytes = 0;
    int n;

    scene_init(&s, "sim*3", &seed);
    s.o.progress = progress;
    s.o.progress_user = &p;
    assert_int_equal(storage_table(s.x, -1, false, &a, &t, &n, NULL), PL_OK);
    for (int i = 0; i < n; i++) {
        assert_true(t[i].slab * (int64_t)t[i].piece_bytes >
                    STORAGE_SLAB - (int64_t)t[i].piece_bytes);
        slabs += (t[i].n + t[i].slab - 1) / t[i].slab;
        bytes += t[i].n * (int64_t)t[i].piece_bytes;
    }
    assert_true(slabs > n); /* some weights have several slabs */
    write_stat_reset();
    load(&s);
    got = write_stat_get();
    assert_int_equal(got.n_read, 0);
    assert_int_equal(got.n_write, slabs);
    assert_int_equal(got.write_bytes, bytes);
    assert_int_equal(p.n, slabs);
    assert_int_equal(p.done, p.total);
    arena_fini(&a);
    scene_fini(&s);
}

/* A stack of matrices is loaded from a source in which each matrix is a part of
 * its own. */
TEST(weights_in_parts_are_put_together)
{
    static const char *const devices[] = {"cpu", "cpu*2", "sim*3"};
    uint64_t seed = test_seed();

    for (int k = 0; k < 3; k++) {
        struct exec_parts *whole, *apart;
        struct scene s;
        int n_apart = 0;

        scene_init(&s, devices[k], &seed);
        whole = s.part;
        apart = test_need((size_t)s.g->n_node, sizeof *apart);
        for (int i = 0; i < s.g->n_node; i++) {
            const struct graph_node *g = &s.g->node[i];
            size_t bytes;
            const void **data;

            if (g->op != OP_weight)
                continue;
            apart[i].n = g->n_dim == 3 ? g->dim[0].n : 1;
            n_apart += apart[i].n > 1;
            bytes = bytes_of(g) / (size_t)apart[i].n;
            apart[i].data = data = test_need((size_t)apart[i].n, sizeof *data);
            for (int64_t p = 0; p < apart[i].n; p++)
                data[p] =
                    memcpy(test_need(bytes, 1),
                           (const char *)s.data[i] + (size_t)p * bytes, bytes);
        }
        assert_true(n_apart > 1);
        s.part = apart;
        load(&s);
        check_all(&s);
        s.part = whole;
        for (int i = 0; i < s.g->n_node; i++) {
            for (int64_t p = 0; p < apart[i].n; p++)
                free((void *)apart[i].data[p]);
            free((void *)apart[i].data);
        }
        free(apart);
        scene_fini(&s);
    }
}

/* ---- threads ------------------------------------------------------------- */

/* A barrier at which loading threads wait until `want` of them have arrived. */
struct crowd {
    atomic_int n;
    int want;
};

static pl_status join(void *user, int node, int64_t part, pl_err *err)
{
    struct crowd *c = user;

    (void)node;
    (void)part;
    (void)err;
    atomic_fetch_add(&c->n, 1);
    TEST_UNTIL(atomic_load(&c->n) >= c->want);
    return PL_OK;
}

/* A GPU has no threads to pack its weights: all cores do so in parallel. */
TEST(weights_for_an_accelerator_are_loaded_by_all_cores)
{
    enum { N_CORE = 6 };
    uint64_t seed = test_seed();
    struct crowd crowd = {.want = N_CORE};
    struct device_list *l;
    struct topology many;
    const struct topology *here;
    struct scene s;
    pl_err err;

    scene_init(&s, "emu", &seed);
    l = (struct device_list *)&s.x->plan->list;
    here = l->topology;
    many = *here;
    many.n_core = many.n_core_quota = N_CORE;
    l->topology = &many;
    TEST_OK(exec_load(s.x,
                      &(struct exec_source){
                          .weight = s.part, .check = join, .user = &crowd},
                      &s.o, &err),
            err);
    l->topology = here;
    check_all(&s);
    scene_fini(&s);
}

/* ---- failures ------------------------------------------------------------ */

TEST(weights_failing_write_fails_the_load)
{
    uint64_t seed = test_seed();
    struct scene s;
    struct write_stat all;
    pl_err err;

    scene_init(&s, "sim*3", &seed);
    write_stat_reset();
    load(&s);
    all = write_stat_get();
    for (int64_t i = 1; i <= all.n_write; i++) {
        memset(&err, 0, sizeof err);
        alloc_stat_reset();
        write_stat_reset();
        write_fail_at(i);
        assert_int_equal(
            exec_load(s.x, &(struct exec_source){.weight = s.part}, &s.o, &err),
            PL_DEVICE);
        write_fail_at(0);
        assert_int_equal(err.status, PL_DEVICE);
        assert_string_equal(err.message, "the device is gone");
        assert_int_equal(alloc_stat_get().live_bytes, 0);
        assert_true(write_stat_get().n_write >= i);
    }
    write_fail_at(1);
    assert_int_equal(
        exec_load(s.x, &(struct exec_source){.weight = s.part}, &s.o, NULL),
        PL_DEVICE);
    load(&s); /* after the failure loading works */
    check_all(&s);
    scene_fini(&s);
}

TEST(weights_out_of_memory_is_a_status)
{
    static const char *const devices[] = {"cpu*2", "sim*2"};
    uint64_t seed = test_seed();

    for (int k = 0; k < 2; k++) {
        int64_t failures = 0;
        struct scene s;

        scene_init(&s, devices[k], &seed);
        load(&s); /* allocates what the C library allocates only once */
        for (int64_t i = 0; alloc_each(&i);) {
            pl_err err = {0};

            failures += alloc_ran(exec_load(
                s.x, &(struct exec_source){.weight = s.part}, &s.o, &err));
        }
        /* more than k allocations can fail, because one is for a staging
         * buffer */
        assert_true(failures > k);
        check_all(&s);
        scene_fini(&s);
    }
}
