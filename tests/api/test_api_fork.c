/* Copies of a process made by fork(). In a copy, an engine, an executor and a
 * meter of the original reject each call and can be freed without harm to
 * either process. Everything else keeps working. */
#include "lib/engine_run.h"
#include "lib/ref_models.h"
#include "pl_graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N_TOK = 5, GIVE_UP_S = 300 };

static const int32_t token[N_TOK] = {1, 5, 9, 200, 3};

/* In the copy no case can fail: it prints the error and exits. */
#define MUST(condition)                                                        \
    do {                                                                       \
        if (!(condition)) {                                                    \
            printf("in the copy, line %d: %s\n", __LINE__, #condition);        \
            fflush(stdout);                                                    \
            _exit(1);                                                          \
        }                                                                      \
    } while (0)

#define REFUSED(call)                                                          \
    do {                                                                       \
        pl_err err = {PL_OK, ""};                                              \
        MUST((call) == PL_BAD_ARGUMENT);                                       \
        MUST(strstr(err.message, "create a new one here"));                    \
    } while (0)

static pl_status decode(pl_engine *e, float *out, pl_err *err)
{
    const pl_batch b = {
        .size = sizeof b, .n = N_TOK, .token = token, .logits = out};

    return pl_engine_decode(e, &b, NULL, err);
}

static bool take(void *user, const void *data, size_t n)
{
    (void)user;
    (void)data;
    (void)n;
    return true;
}

static int64_t give(void *user, void *data, size_t n)
{
    (void)user;
    (void)data;
    (void)n;
    return 0;
}

static void engine_refuses(pl_engine *e, float *logits)
{
    int32_t id[256];
    int64_t n;
    uint64_t size;
    size_t bytes;
    void *data;
    bool on;
    pl_counters c;
    pl_device_counters d[4];
    pl_cache_counters k;

    REFUSED(decode(e, logits, &err));
    REFUSED(pl_seq_trim(e, 0, 0, NULL, &err));
    REFUSED(pl_seq_copy(e, 1, 0, &err));
    REFUSED(pl_seq_share(e, 1, token, N_TOK, &n, &err));
    REFUSED(pl_seq_set_tokens(e, 0, token, N_TOK, &err));
    REFUSED(pl_engine_sum(e, NULL, &err));
    REFUSED(pl_state_size(e, 0, 0, -1, &size, &err));
    REFUSED(pl_state_save(e, 0, 0, -1, take, NULL, &err));
    REFUSED(pl_state_save_memory(e, 0, 0, -1, &data, &bytes, &err));
    REFUSED(pl_state_swap_out(e, 0, &data, &bytes, &err));
    REFUSED(pl_state_restore(e, 0, give, NULL, 0, &err));
    REFUSED(pl_state_restore_memory(e, 0, "x", 1, 0, &err));
    REFUSED(pl_prefix_export_page(e, id, 256, &n, &on, &data, &bytes, &err));
    REFUSED(pl_seq_import_page(e, 0, token, N_TOK, "x", 1, &err));
    MUST(pl_seq_length(e, 0) == 0 && pl_engine_free_tokens(e, -1) == 0);
    MUST(pl_prefix_match_length(e, token, N_TOK) == 0);
    MUST(pl_engine_devices(e, d, 4, sizeof *d) == 0);
    pl_engine_counters(e, &c, sizeof c);
    pl_engine_cache(e, &k, sizeof k);
    MUST(c.steps == 0 && k.n_page == 0);
    MUST(pl_engine_n_ctx(e) == 256 && pl_engine_plan(e));
}

static void executor_refuses(pl_exec *x, pl_tensor t)
{
    const pl_step_tokens rows = {.size = sizeof rows, .n_tok = 1};
    const pl_view v = {1, {1}, {1}, 0};
    float f = 0;

    REFUSED(pl_exec_step(x, &rows, &err));
    REFUSED(pl_tensor_get(x, t, &f, 0, 4, &err));
    REFUSED(pl_tensor_set(x, t, &f, 0, 4, &err));
    REFUSED(pl_tensor_get_async(x, t, &f, 0, 4, &err));
    REFUSED(pl_tensor_set_async(x, t, &f, 0, 4, &err));
    REFUSED(pl_tensor_get_view(x, t, &v, &f, &err));
    REFUSED(pl_tensor_set_view(x, t, &v, &f, &err));
    REFUSED(pl_exec_wait(x, &err));
}

/* Takes the addresses of the original's memory. A copy that freed that memory
 * would lose these blocks. */
enum { N_BLOCK = 64, BLOCK = 1 << 20 };

static void fill(unsigned char *block[N_BLOCK])
{
    for (int i = 0; i < N_BLOCK; i++) {
        block[i] = mmap(NULL, BLOCK, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        MUST(block[i] != MAP_FAILED);
        block[i][0] = block[i][BLOCK - 1] = (unsigned char)i;
    }
}

static void is_filled(unsigned char *block[N_BLOCK])
{
    for (int i = 0; i < N_BLOCK; i++) {
        unsigned char in_core[BLOCK / 4096];

        MUST(mincore(block[i], BLOCK, in_core) == 0);
        MUST(block[i][0] == i && block[i][BLOCK - 1] == i);
    }
}

/* Calls functions in the forked copy of the process and checks their
 * results. */
static void live(struct engine_run *r, const pl_options *o, pl_graph *g,
                 pl_exec *own, float *want, float *after)
{
    size_t bytes = (size_t)(N_TOK * r->n_vocab) * sizeof(float);
    float *logits = malloc(bytes);
    unsigned char *block[N_BLOCK];
    pl_sampler *s;
    pl_err err;
    int32_t *ids;
    int64_t n;

    MUST(logits);
    engine_refuses(r->engine, logits);
    executor_refuses(pl_engine_exec(r->engine),
                     pl_engine_tensor(r->engine, "output_norm.weight"));
    executor_refuses(own, 0);
    fill(block);
    pl_engine_free(r->engine);
    pl_exec_free(own);
    is_filled(block);
    MUST(pl_tokenize(pl_model_tokenizer(r->model), "Once", 4, 0, &ids, &n,
                     &err) == PL_OK);
    free(ids);
    MUST(pl_engine_create(&r->engine, r->model, o, &err) == PL_OK);
    MUST(decode(r->engine, logits, &err) == PL_OK);
    MUST(memcmp(logits, want, bytes) == 0);
    MUST(pl_sampler_create(&s, NULL, r->n_vocab, &err) == PL_OK);
    MUST(pl_sample(s, logits) >= 0);
    pl_sampler_free(s);
    engine_run_close(r);
    pl_graph_free(g);
    free(logits);
    free(want);
    free(after);
    _exit(0);
}

static pl_exec *executor(pl_graph **g, const pl_options *o)
{
    const pl_dim dim[2] = {{1, PL_N_TOK}, {8, PL_CONST}};
    pl_exec *x;

    assert_int_equal(pl_graph_create(g, NULL), PL_OK);
    pl_output(*g, pl_relu(*g, pl_input(*g, "x", PL_F32, 2, dim)));
    assert_int_equal(pl_exec_create(&x, *g, o, NULL), PL_OK);
    return x;
}

static void copy_of(const char *devices, const char *path)
{
    pl_options o = engine_run_options();
    struct engine_run r;
    pl_graph *g;
    pl_exec *x;
    size_t bytes;
    float *before, *after;
    pid_t pid;
    int how;

    o.devices = devices;
    o.n_ranks = 2;
    o.n_threads = 2;
    o.prefix_cache = true;
    engine_run_open(&r, path, path, &o);
    x = executor(&g, &o);
    bytes = (size_t)(N_TOK * r.n_vocab) * sizeof(float);
    before = test_need(1, bytes);
    after = test_need(1, bytes);
    assert_int_equal(decode(r.engine, before, NULL), PL_OK);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        alarm(GIVE_UP_S);
        live(&r, &o, g, x, before, after);
    }
    assert_int_equal(waitpid(pid, &how, 0), pid);
    if (how != 0)
        fail_msg("%s: the copy ended with %d", devices, how);
    assert_int_equal(pl_seq_trim(r.engine, 0, 0, NULL, NULL), PL_OK);
    assert_int_equal(decode(r.engine, after, NULL), PL_OK);
    assert_memory_equal(before, after, bytes);
    free(before);
    free(after);
    pl_exec_free(x);
    pl_graph_free(g);
    engine_run_close(&r);
}

TEST(api_forked_copy_refuses_what_has_threads_and_serves_the_rest)
{
    copy_of("cpu*2", test_model());
    copy_of("sim*2", test_model());
}

TEST(api_forked_copy_leaves_processes_and_gpus_alone)
{
    copy_of("proc*2", test_model());
    /* a small model, because the emulator is slow */
    copy_of("emu*2", ref_model_path("qwen2-bias-f32"));
}

/* A meter, which measures the machine's limits, takes a gigabyte of memory. */
TEST_LONG(api_forked_copy_refuses_a_meter)
{
    pl_limits now;
    pl_meter *m;
    pid_t pid;
    int how;

    assert_int_equal(pl_meter_create(&m, NULL), PL_OK);
    pid = fork();
    if (pid == 0) {
        REFUSED(pl_meter_measure(m, &now, NULL, sizeof now, &err));
        MUST(now.n_threads == 0);
        pl_meter_free(m);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &how, 0), pid);
    assert_int_equal(how, 0);
    assert_int_equal(pl_meter_measure(m, &now, NULL, sizeof now, NULL), PL_OK);
    assert_true(now.n_threads > 0);
    pl_meter_free(m);
}
