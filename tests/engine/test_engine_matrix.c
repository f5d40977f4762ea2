/* Placement as a whole matrix: split modes, devices, shares, layers, experts,
 * cache and overrides on the host and elsewhere, offload, models, cache types,
 * and ways to use an engine, in all combinations.
 *
 * Two promises hold for every combination. At equal --ranks the logits have the
 * bits that one device gives. With float kernels and a float cache they meet
 * the references' limits (max 1e-3, rms 1e-4), whatever the ranks. A part of
 * the runs is guarded: a kernel that accesses memory outside its operands dies.
 *
 * A combination that makes no sense may be rejected with PL_BAD_ARGUMENT. The
 * number of these, and the reasons, are printed. The short tier covers all
 * pairs of values of any two parameters and some more, 400 in all; the long
 * tier has 3,500. Each family with its own type of memory gets 4 or 300 more.
 * Each family that is not core (lib/ref_models.h) gets 2 or 40 with its made
 * model. GPUs, which are emulated and slow, get 21 or 600. */
#include "device/device_spec.h"
#include "engine/engine.h"
#include "lib/engine_run.h"
#include "lib/pairs.h"
#include "lib/ref_models.h"
#include "quant/format.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(a) ((int)(sizeof(a) / sizeof((a)[0])))

enum { N_MORE = 6, MAX_TOKEN = 64 };

enum param {
    P_MODEL,
    P_KERNELS,
    P_RANKS,
    P_CACHE_K,
    P_CACHE_V,
    P_MODE,
    P_DEVICES,
    P_SHARES,
    P_LAYERS,
    P_EXPERTS,
    P_HOST_CACHE,
    P_WHERE,
    P_PATTERN,
    P_AND,
    P_OFFLOAD,
    P_USE,
    P_PROMPT,
    P_UBATCH,
    P_THREADS,
    P_GUARD,
    P_COUNT
};

enum { N_CORE = 20, MAX_MODEL = 128 };
static struct {
    const char *name;
    bool floats; /* true if every weight is in F32, F16 or BF16 */
    /* true if a row of the caches is not a whole number of Q8_0 blocks */
    bool odd;
} models[MAX_MODEL] = {
    {"llama-yarn-f32", true, false},
    {"qwen3-tied-f32", true, false},
    {"qwen3moe-f32", true, false},
    {"glm4moe-f32", true, false},
    {"llama-q-q4_0", false, false},
    {"qwen3moe-q-q4_k_m", false, false},
    {"glm4moe-q-q4_k_m", false, false},
    {"qwen3moe-wide-q4_k_m", false, false},
    {"gemma3-swa-f32", true, false},
    {"gptoss-f32", true, false},
    {"gptoss-mxfp4-q8_0", false, false},
    {"gemma4-ple-sharedkv-f32", true, false},
    {"gemma4-dense-f32", true, false},
    {"gemma4-moe-f32", true, false},
    {"gemma4-moe-q-q4_k_m", false, false},
    {"deepseek2-mla-f32", true, true},
    {"qwen35-dense-f32", true, false},
    {"qwen35moe-f32", true, false},
    {"qwen35moe-q-q4_k_m", false, false},
    {"qwen3next-f32", true, false},
};
/* N_CORE, and then more if models of further families were added */
static int n_models = N_CORE;

/* Adds the models of further families to models[], all of which have only F32
 * weights. */
static void add_further(void)
{
    for (const char *const *l = ref_models(false); *l; l++)
        if (!ref_model_is_core(*l)) {
            assert_in_range(n_models, 0, MAX_MODEL - 1);
            models[n_models].name = *l;
            models[n_models].floats = true;
            models[n_models++].odd = true;
        }
}
static const char *const kernels[] = {"reference", NULL};
static const int ranks[] = {2, 3, 4, 1, 5, 6, 7, 8};
static const pl_format caches[] = {PL_F32,  PL_F16,  PL_Q8_0,
                                   PL_BF16, PL_Q4_0, PL_IQ4_NL,
                                   PL_Q5_1, PL_Q4_1, PL_Q5_0};
static const struct {
    pl_split_mode mode;
    /* name of the mode, and of one of the groups that it forms */
    const char *name, *group;
} modes[] = {{PL_SPLIT_NONE, "none", "host"},
             {PL_SPLIT_LAYER, "layer", "layer0"},
             {PL_SPLIT_TENSOR, "tensor", "tensor"},
             {PL_SPLIT_HYBRID, "hybrid:2", "hybrid0"},
             {PL_SPLIT_AUTO, "auto", "host"}};
static const struct device_set {
    /* device string, and the name of one of its devices */
    const char *spec, *one;
    int n;
} ours[] = {{"cpu", "cpu0", 1},         {"cpu*2", "cpu1", 2},
            {"cpu*3", "cpu2", 3},       {"cpu*4", "cpu1", 4},
            {"sim", "sim0", 1},         {"sim*2", "sim1", 2},
            {"sim*3", "sim0", 3},       {"sim*4", "sim3", 4},
            {"cpu,sim", "sim0", 2},     {"sim*2,cpu", "cpu0", 3},
            {"cpu*2,sim*2", "sim0", 4}, {"proc*2", "proc1", 2},
            {"cpu,proc", "proc0", 2},   {"cpu,sim,proc", "proc0", 3},
            {"cpu*8", "cpu5", 8},       {"sim*5", "sim4", 5}};
/* Emulated GPUs, which are slow: they run a slice of the matrix. */
static const struct device_set gpus[] = {
    {"emu", "emu0", 1},          {"emu*2", "emu1", 2},
    {"emu*3", "emu0", 3},        {"emu*4", "emu3", 4},
    {"cpu,emu", "emu0", 2},      {"emu,cpu,sim", "emu0", 3},
    {"emu*2,cpu,sim", "cpu0", 4}};
static const struct device_set opencl[] = {{"opencl:0", "opencl0", 1},
                                           {"opencl:0*2", "opencl1", 2},
                                           {"opencl:0,cpu", "opencl0", 2}};
/* The device strings that the running case combines. */
static const struct device_set *devices = ours;
static int n_devices = COUNT(ours);
static const char *const shares[] = {"", "uneven", "one with none"};
static const char *const layers[] = {NULL, "0", "1", "2", "all"};
static const char *const experts[] = {NULL, "all", "1"};
static const char *const where[] = {"", "device", "host", "group"};
static const char *const patterns[] = {
    "ffn_down",    "blk\\.0\\.", "attn_(q|k|v)\\.", "output|token_embd",
    "ffn_.*_exps", "norm",       "ffn_gate",
};
/* distance in patterns[] between the first and the second override */
enum { NEXT_PATTERN = 3 };
static const char *const uses[] = {"prompt and decode", "two sequences",
                                   "save and restore", "restore elsewhere",
                                   "restore under another split"};
enum { USE_COMPANY = 1, USE_RESTORE, USE_ELSEWHERE, USE_OTHER_SPLIT };
/* number of prompt tokens in one call of the engine */
static const int64_t prompts[] = {MAX_TOKEN, 5};
static const int64_t ubatches[] = {4, 64};

static int n_values(int p)
{
    static const int n[P_COUNT] = {
        [P_MODEL] = N_CORE,
        [P_KERNELS] = COUNT(kernels),
        [P_RANKS] = COUNT(ranks),
        [P_CACHE_K] = COUNT(caches),
        [P_CACHE_V] = COUNT(caches),
        [P_MODE] = COUNT(modes),
        [P_SHARES] = COUNT(shares),
        [P_LAYERS] = COUNT(layers),
        [P_EXPERTS] = COUNT(experts),
        [P_HOST_CACHE] = 2,
        [P_WHERE] = COUNT(where),
        [P_PATTERN] = COUNT(patterns),
        [P_AND] = COUNT(where),
        [P_OFFLOAD] = 3,
        [P_USE] = COUNT(uses),
        [P_PROMPT] = COUNT(prompts),
        [P_UBATCH] = COUNT(ubatches),
        [P_THREADS] = 2,
        [P_GUARD] = 2,
    };

    return p == P_DEVICES ? n_devices : n[p];
}

/* ---- models -------------------------------------------------------------- */

static struct opened {
    pl_model *model;
    int64_t n_vocab;
    int32_t token[MAX_TOKEN]; /* the prompt, then its continuation */
    int n_prompt, n;
    float *want; /* [n, n_vocab] reference logits, owned */
    /* bits of one device, by kernels, ranks, caches; owned, [n, n_vocab] */
    float *alone[COUNT(kernels)][COUNT(ranks)][COUNT(caches)][COUNT(caches)];
} open_models[MAX_MODEL];

/* Reads the second of its sequences: 17 tokens of prompt. */
static void read_reference(struct opened *m, const char *name)
{
    struct ref_seq seq[REF_SEQS];
    FILE *f;

    ref_sequences(name, seq);
    m->n_prompt = seq[1].n_prompt;
    m->n = m->n_prompt + N_MORE;
    assert_in_range(m->n, 8, MAX_TOKEN);
    memcpy(m->token, seq[1].id, (size_t)m->n * sizeof m->token[0]);
    f = fopen(test_ref_logits(name), "rb");
    assert_non_null(f);
    m->want = test_need(1, (size_t)(m->n * m->n_vocab) * sizeof *m->want);
    fseek(f, seq[1].row * (long)(m->n_vocab * 4), SEEK_SET);
    assert_int_equal(fread(m->want, 4, (size_t)(m->n * m->n_vocab), f),
                     m->n * m->n_vocab);
    fclose(f);
}

static void open_range(int from, int end)
{
    for (int i = from; i < end; i++) {
        struct opened *m = &open_models[i];
        pl_err err;

        TEST_OK(pl_model_open(&m->model, ref_model_path(models[i].name), &err),
                err);
        m->n_vocab = pl_model_n_vocab(m->model);
        read_reference(m, models[i].name);
    }
}

static void open_all(void)
{
    open_range(0, N_CORE);
}

static void close_all(void)
{
    for (int i = 0; i < n_models; i++) {
        struct opened *m = &open_models[i];

        pl_model_free(m->model);
        free(m->want);
        for (size_t k = 0; k < sizeof m->alone / sizeof(float *); k++)
            free((&m->alone[0][0][0][0])[k]);
        memset(m, 0, sizeof *m);
    }
}

/* ---- runs ---------------------------------------------------------------- */

static pl_format cache_of(const int *v, enum param p)
{
    pl_format f = caches[v[p]];

    return format_info(f)->block > 1 && models[v[P_MODEL]].odd ? PL_F16 : f;
}

static const char *second_pattern(const int *v)
{
    return patterns[(v[P_PATTERN] + NEXT_PATTERN) % COUNT(patterns)];
}

/* Writes a combination as the command line options that give it. */
static void describe(const int *v, char *s, size_t n)
{
    snprintf(s, n,
             "%s%s --ranks %d -ctk %s -ctv %s -sm %s -dev %s -ts '%s' -ngl %s "
             "-ncmoe "
             "%s%s -ot '%s=%s,%s=%s' offload %d, %s, %d a call, -ub %d -t %d%s",
             models[v[P_MODEL]].name, v[P_KERNELS] ? "" : " (reference)",
             ranks[v[P_RANKS]], format_info(cache_of(v, P_CACHE_K))->name,
             format_info(cache_of(v, P_CACHE_V))->name, modes[v[P_MODE]].name,
             devices[v[P_DEVICES]].spec, shares[v[P_SHARES]],
             layers[v[P_LAYERS]] ? layers[v[P_LAYERS]] : "auto",
             experts[v[P_EXPERTS]] ? experts[v[P_EXPERTS]] : "none",
             v[P_HOST_CACHE] ? " -nkvo" : "", patterns[v[P_PATTERN]],
             where[v[P_WHERE]], second_pattern(v), where[v[P_AND]],
             v[P_OFFLOAD], uses[v[P_USE]], (int)prompts[v[P_PROMPT]],
             (int)ubatches[v[P_UBATCH]], 1 + v[P_THREADS],
             v[P_GUARD] ? ", guarded" : "");
}

static void check(pl_status s, const pl_err *err, const char *what)
{
    if (s != PL_OK)
        fail_msg("%s: %s", what, err->message);
}

/* Decodes tokens [at, at + n) of sequence `seq`; company: with others of
 * sequence 3 among them. */
static void decode(pl_engine *e, const struct opened *m, int seq, int at, int n,
                   bool company, float *out, const char *what)
{
    int32_t id[2 * MAX_TOKEN], of[2 * MAX_TOKEN];
    uint8_t wanted[2 * MAX_TOKEN];
    pl_batch b = {.size = sizeof b,
                  .token = id,
                  .seq = of,
                  .wanted = wanted,
                  .logits = out};
    pl_err err = {0};

    for (int i = at; i < at + n; i++) {
        if (company && i % 3 != 1) {
            id[b.n] = (m->token[i] * 7 + 3) % (int)m->n_vocab;
            of[b.n] = 3;
            wanted[b.n++] = 0;
        }
        id[b.n] = m->token[i];
        of[b.n] = seq;
        wanted[b.n++] = 1;
    }
    check(pl_engine_decode(e, &b, NULL, &err), &err, what);
}

/* Moves a sequence from one engine to another, or to itself. */
static void move(pl_engine *from, int seq, pl_engine *to, int dst,
                 const char *what)
{
    void *data;
    size_t size;
    pl_err err = {0};

    check(pl_state_save_memory(from, seq, 0, -1, &data, &size, &err), &err,
          what);
    check(pl_seq_trim(from, seq, 0, NULL, &err), &err, what);
    check(pl_state_restore_memory(to, dst, data, size, 0, &err), &err, what);
    free(data);
}

/* Computes all rows in one of the ways of use. Some use e[1], an engine with
 * another split. */
static void use(pl_engine *const e[2], const struct opened *m, int how,
                int64_t call, float *out, const char *what)
{
    const bool company = how == USE_COMPANY;
    int seq = 0, at = 0;

    for (int i = 0, n; i < m->n_prompt; i += n) {
        n = m->n_prompt - i < call ? m->n_prompt - i : (int)call;
        decode(e[0], m, 0, i, n, company, out + (size_t)i * m->n_vocab, what);
    }
    for (int i = m->n_prompt; i < m->n; i++) {
        if (how >= USE_RESTORE && (i - m->n_prompt) % 3 == 1) {
            int dst = how == USE_ELSEWHERE ? seq + 1 : seq;
            int to = how == USE_OTHER_SPLIT ? !at : at;

            move(e[at], seq, e[to], dst, what);
            seq = dst;
            at = to;
        }
        decode(e[at], m, seq, i, 1, company, out + (size_t)i * m->n_vocab,
               what);
    }
}

static pl_options base_options(const int *v)
{
    pl_options o = engine_run_options();

    o.cpu = kernels[v[P_KERNELS]];
    o.n_ranks = ranks[v[P_RANKS]];
    o.cache_set = true;
    o.cache_k = cache_of(v, P_CACHE_K);
    o.cache_v = cache_of(v, P_CACHE_V);
    return o;
}

static const float *one_device(const int *v)
{
    struct opened *m = &open_models[v[P_MODEL]];
    float **to =
        &m->alone[v[P_KERNELS]][v[P_RANKS]][v[P_CACHE_K]][v[P_CACHE_V]];
    pl_options o = base_options(v);
    pl_engine *e[2] = {NULL, NULL};
    pl_err err = {0};

    if (*to)
        return *to;
    *to = malloc((size_t)(m->n * m->n_vocab) * sizeof **to);
    assert_non_null(*to);
    o.split_mode = PL_SPLIT_NONE;
    check(pl_engine_create(&e[0], m->model, &o, &err), &err, "one device");
    use(e, m, 0, MAX_TOKEN, *to, "one device");
    pl_engine_free(e[0]);
    return *to;
}

static struct {
    int runs, refused, n_why;
    int copying; /* number of runs that copied values between groups */
    /* number of runs whose programs had a pipelined, and a streamed variant */
    int piped, streamed;
    struct {
        char text[200];
        int n;
    } why[64];
} tally;

static void refused(const char *text)
{
    int k = 0;

    tally.refused++;
    while (k < tally.n_why && strcmp(tally.why[k].text, text))
        k++;
    if (k == COUNT(tally.why))
        return;
    if (k == tally.n_why) {
        snprintf(tally.why[k].text, sizeof tally.why[k].text, "%.190s", text);
        tally.n_why++;
    }
    tally.why[k].n++;
}

static void compare(const int *v, const float *got, const char *what)
{
    const struct opened *m = &open_models[v[P_MODEL]];
    const float *same = one_device(v);
    size_t n = (size_t)(m->n * m->n_vocab);
    double most = 0, sum = 0;

    for (size_t i = 0; i < n; i++) {
        double d = fabs((double)got[i] - (double)m->want[i]);

        if (memcmp(&got[i], &same[i], 4))
            fail_msg("%s: logit %zu of row %zu is %.9g, on one device %.9g",
                     what, i % (size_t)m->n_vocab, i / (size_t)m->n_vocab,
                     (double)got[i], (double)same[i]);
        most = d <= most ? most : d;
        sum += d * d;
    }
    if (!models[v[P_MODEL]].floats || v[P_KERNELS] != 0 ||
        caches[v[P_CACHE_K]] != PL_F32 || caches[v[P_CACHE_V]] != PL_F32)
        return;
    if (!(most <= 1e-3) || sqrt(sum / (double)n) > 1e-4)
        fail_msg("%s: max %.3g rms %.3g from the reference", what, most,
                 sqrt(sum / (double)n));
}

/* The options of a combination, and the texts and arrays to which they
 * point. */
struct asked {
    pl_options o;
    char text[2][128];
    const char *override[2];
};

static void ask(struct asked *a, const int *v)
{
    static const double uneven[] = {3, 1, 1, 2, 1, 4, 1, 2};
    static const double none[] = {0, 2, 1, 1, 0, 1, 3, 1};
    pl_options *o = &a->o;

    *o = base_options(v);
    o->devices = devices[v[P_DEVICES]].spec;
    o->split_mode = modes[v[P_MODE]].mode;
    o->hybrid_size = o->split_mode == PL_SPLIT_HYBRID ? 2 : 0;
    if (v[P_SHARES]) {
        o->tensor_split = v[P_SHARES] == 1 ? uneven : none;
        o->n_tensor_split = devices[v[P_DEVICES]].n;
    }
    o->device_layers = layers[v[P_LAYERS]];
    o->host_experts = experts[v[P_EXPERTS]];
    o->host_cache = v[P_HOST_CACHE];
    o->offload = (pl_offload)v[P_OFFLOAD];
    o->n_ubatch = ubatches[v[P_UBATCH]];
    o->n_threads = 1 + v[P_THREADS];
    o->sim_seed = (uint64_t)tally.runs;
    o->overrides = a->override;
    for (int k = 0, to; k < 2; k++) {
        to = v[k ? P_AND : P_WHERE];
        if (to == 0)
            continue;
        snprintf(a->text[k], sizeof a->text[k], "%s=%s",
                 k ? second_pattern(v) : patterns[v[P_PATTERN]],
                 to == 1   ? devices[v[P_DEVICES]].one
                 : to == 2 ? "host"
                           : modes[v[P_MODE]].group);
        a->override[o->n_overrides++] = a->text[k];
    }
}

/* Opens an engine with other devices and another split than the
 * combination's. */
static pl_engine *other_split(const int *v, const char *what)
{
    enum { STEP = 3 };
    pl_options o = base_options(v);
    pl_engine *e;
    pl_err err = {0};

    o.devices = devices[(v[P_DEVICES] + STEP) % n_devices].spec;
    o.split_mode = modes[v[P_MODE]].mode == PL_SPLIT_TENSOR ? PL_SPLIT_LAYER
                                                            : PL_SPLIT_TENSOR;
    check(pl_engine_create(&e, open_models[v[P_MODEL]].model, &o, &err), &err,
          what);
    return e;
}

static void count(const int *v, pl_engine *e)
{
    const struct compiled *p = pl_engine_plan(e)->compiled;
    pl_counters c;

    pl_engine_counters(e, &c, sizeof c);
    tally.copying += c.copies > 0;
    tally.piped +=
        p->variant[VARIANT_PIPELINED] >= 0 && ubatches[v[P_UBATCH]] == 4;
    tally.streamed +=
        p->variant[VARIANT_STREAMED] >= 0 && p->variants.stream_from <= 4;
}

static void run(const int *v)
{
    const struct opened *m = &open_models[v[P_MODEL]];
    struct asked a = {.override = {NULL}};
    char what[512];
    pl_engine *e[2] = {NULL, NULL};
    pl_err err = {0};
    pl_status s;
    float *got;

    if (!m->model)
        return;
    describe(v, what, sizeof what);
    ask(&a, v);
    if (getenv("PLAIT_SHOW"))
        print_message("%s\n", what);
    tally.runs++;
    if (v[P_GUARD])
        setenv("PL_DEBUG", "guard", 1);
    s = pl_engine_create(&e[0], m->model, &a.o, &err);
    unsetenv("PL_DEBUG");
    if (s == PL_BAD_ARGUMENT) {
        refused(err.message);
        return;
    }
    check(s, &err, what);
    if (v[P_USE] == USE_OTHER_SPLIT)
        e[1] = other_split(v, what);
    got = test_need(1, (size_t)(m->n * m->n_vocab) * sizeof *got);
    use(e, m, v[P_USE], prompts[v[P_PROMPT]], got, what);
    count(v, e[0]);
    pl_engine_free(e[0]);
    pl_engine_free(e[1]);
    compare(v, got, what);
    free(got);
}

static void print_tally(void)
{
    print_message("%d combinations; in %d values went between groups, %d had a "
                  "pipeline, %d streamed; %d were refused\n",
                  tally.runs, tally.copying, tally.piped, tally.streamed,
                  tally.refused);
    for (int k = 0; k < tally.n_why; k++)
        print_message("%4d: %s\n", tally.why[k].n, tally.why[k].text);
}

TEST(engine_placements_equal_one_device)
{
    uint64_t random = test_seed();
    struct pairs pairs;
    int v[P_COUNT];

    open_all();
    memset(&tally, 0, sizeof tally);
    pairs_init(&pairs, P_COUNT, n_values);
    while (pairs_next(&pairs, v, &random))
        run(v);
    while (tally.runs < test_draws(200, 3500)) {
        pairs_draw(&pairs, v, &random);
        run(v);
    }
    pairs_fini(&pairs);
    close_all();
    print_tally();
    assert_in_range(tally.refused, 0, tally.runs / 8);
    assert_in_range(tally.copying, tally.runs / 2, tally.runs);
    assert_in_range(tally.piped, tally.runs / 8, tally.runs);
    assert_in_range(tally.streamed, tally.runs / 16, tally.runs);
}

/* Runs random combinations of the models whose names begin so. */
static void family(const char *prefix)
{
    int of[N_CORE], n = 0, v[P_COUNT];
    struct pairs pairs;
    uint64_t random;

    open_all();
    for (int i = 0; i < N_CORE; i++)
        if (!strncmp(models[i].name, prefix, strlen(prefix)))
            of[n++] = i;
    /* so that each case draws other combinations */
    random = test_seed() + (uint64_t)of[0];
    memset(&tally, 0, sizeof tally);
    pairs_init(&pairs, P_COUNT, n_values);
    while (tally.runs < (test_long() ? 300 : 4)) {
        pairs_draw(&pairs, v, &random);
        v[P_MODEL] = of[tally.runs % n];
        run(v);
    }
    pairs_fini(&pairs);
    close_all();
    print_tally();
    assert_in_range(tally.refused, 0, tally.runs / 2);
}

#define FAMILY(id, prefix)                                                     \
    TEST(engine_placements_of_##id)                                            \
    {                                                                          \
        family(prefix);                                                        \
    }
FAMILY(qwen35, "qwen35-")
FAMILY(qwen35moe, "qwen35moe-")
FAMILY(qwen3next, "qwen3next-")
FAMILY(gemma3, "gemma3-")
FAMILY(gemma4, "gemma4-")
FAMILY(gptoss, "gptoss-")
FAMILY(deepseek2, "deepseek2-")
FAMILY(glm4moe, "glm4moe-")

TEST(engine_placements_of_further_families)
{
    struct pairs pairs;
    uint64_t random = test_seed();
    int v[P_COUNT], n;

    add_further();
    open_range(N_CORE, n_models);
    n = n_models - N_CORE;
    assert_true(n > 0);
    memset(&tally, 0, sizeof tally);
    pairs_init(&pairs, P_COUNT, n_values);
    while (tally.runs < (test_long() ? 40 : 2) * n) {
        pairs_draw(&pairs, v, &random);
        v[P_MODEL] = N_CORE + tally.runs % n;
        run(v);
    }
    pairs_fini(&pairs);
    close_all();
    n_models = N_CORE;
    print_tally();
    assert_in_range(tally.refused, 0, tally.runs / 2);
}

/* ---- GPUs ---------------------------------------------------------------- */

/* Runs combinations of all models on the sets of devices; GPUs have no float
 * kernels. */
static void slice(const struct device_set *set, int n_set, int n)
{
    uint64_t random = test_seed() + (uint64_t)n_set;
    struct pairs pairs;
    int v[P_COUNT];

    devices = set;
    n_devices = n_set;
    open_all();
    memset(&tally, 0, sizeof tally);
    pairs_init(&pairs, P_COUNT, n_values);
    while (tally.runs < n) {
        pairs_draw(&pairs, v, &random);
        v[P_KERNELS] = COUNT(kernels) - 1;
        v[P_DEVICES] = tally.runs % n_set;
        run(v);
    }
    pairs_fini(&pairs);
    close_all();
    print_tally();
    assert_in_range(tally.refused, 0, tally.runs / 3);
}

TEST(engine_placements_of_gpus)
{
    slice(gpus, COUNT(gpus), test_long() ? 600 : COUNT(gpus));
}

TEST_LONG(engine_placements_of_opencl)
{
    struct device_list l;
    pl_err err;

    assert_int_equal(setenv("XDG_CACHE_HOME", test_temp("cache"), 1), 0);
    if (device_parse(&l, opencl[0].spec, 0, &err) != PL_OK)
        TEST_SKIP("%s", err.message);
    device_list_free(&l);
    slice(opencl, COUNT(opencl), 30);
}
