/* The bits of all logits, frozen: a change that is not meant to change them
 * leaves every one as it was.
 *
 * Every model at hand decodes the same few tokens under twelve configurations,
 * and an FNV-1a sum of the bytes of all its logits must be the one that
 * tests/refs/logit_sums.txt has for model and configuration. A model must still
 * reject a configuration that it rejected when the table was written. Models
 * that are made here (lib/made_model.h) have rows too, "made/NAME". The short
 * tier runs those that replace a model that is not at hand, and the smallest of
 * each family. It runs large models under a sixth of the configurations.
 * test_engine_reference.c compares with reference logits.
 *
 * PLAIT_SEED decides threads and the order in which simulated devices
 * interleave. PLAIT_CPU (any but reference) decides the kernel set if the
 * configuration does not name it. Neither may change a sum.
 *
 *   PLAIT_WRITE_SUMS=FILE build/plait-test test_engine_sums
 *
 * compares nothing and writes the table of the models at hand to FILE, so it
 * needs the whole set of references. A new table belongs to a change that is
 * meant to change bits, or that adds models; its diff shows which. */
#include "lib/engine_run.h"
#include "lib/ref_models.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define COUNT(a) ((int)(sizeof(a) / sizeof((a)[0])))

/* LARGE: bytes from which on a model's file counts as large */
enum { MAX_MODEL = 1024, LARGE = 2 << 20 };

/* ---- configurations ------------------------------------------------------ */

static const struct config {
    const char *name; /* name of the configuration in the table */
    /* options that differ between configurations; options_of sets the others */
    pl_options o;
} configs[] = {
    /* Configurations with one cache format and as many equal ranks share a sum,
     * whatever devices carry them: tensor-2 and hybrid-4. */
    {"one",
     {.devices = "cpu",
      .split_mode = PL_SPLIT_NONE,
      .cache_k = PL_F16,
      .cache_v = PL_F16,
      .n_ubatch = 64}},
    {"reference",
     {.devices = "cpu*2",
      .split_mode = PL_SPLIT_TENSOR,
      .cpu = "reference",
      .cache_k = PL_F32,
      .cache_v = PL_F32,
      .n_ubatch = 64}},
    {"tensor-2",
     {.devices = "cpu*2",
      .split_mode = PL_SPLIT_TENSOR,
      .cache_k = PL_F16,
      .cache_v = PL_F16,
      .n_ubatch = 5,
      .n_out = 3}},
    {"tensor-3-uneven",
     {.devices = "cpu*3",
      .split_mode = PL_SPLIT_TENSOR,
      .tensor_split = (const double[]){2, 1, 1},
      .n_tensor_split = 3,
      .cache_k = PL_Q8_0,
      .cache_v = PL_Q8_0,
      .n_ubatch = 7}},
    {"ranks-4",
     {.devices = "cpu,sim",
      .split_mode = PL_SPLIT_TENSOR,
      .n_ranks = 4,
      .tensor_split = (const double[]){3, 1},
      .n_tensor_split = 2,
      .cache_k = PL_F32,
      .cache_v = PL_F32,
      .n_ubatch = 5}},
    {"mixed-uneven",
     {.devices = "cpu,sim",
      .split_mode = PL_SPLIT_TENSOR,
      .tensor_split = (const double[]){3, 1},
      .n_tensor_split = 2,
      .cache_k = PL_BF16,
      .cache_v = PL_BF16,
      .n_ubatch = 64}},
    {"layer-3-uneven",
     {.devices = "sim*3",
      .split_mode = PL_SPLIT_LAYER,
      .tensor_split = (const double[]){2, 1, 1},
      .n_tensor_split = 3,
      .cache_k = PL_BF16,
      .cache_v = PL_BF16,
      .n_ubatch = 5}},
    {"hybrid-4",
     {.devices = "sim*4",
      .split_mode = PL_SPLIT_HYBRID,
      .hybrid_size = 2,
      .cache_k = PL_F16,
      .cache_v = PL_F16,
      .n_ubatch = 5}},
    {"experts-streamed",
     {.devices = "sim*2",
      .split_mode = PL_SPLIT_TENSOR,
      .n_ranks = 3,
      .host_experts = "all",
      .offload = PL_OFFLOAD_ON,
      .cache_k = PL_F16,
      .cache_v = PL_F16,
      .n_ubatch = 64}},
    {"experts-1-host",
     {.devices = "cpu,sim",
      .split_mode = PL_SPLIT_LAYER,
      .n_ranks = 3,
      .host_experts = "1",
      .offload = PL_OFFLOAD_OFF,
      .cache_k = PL_Q8_0,
      .cache_v = PL_Q8_0,
      .n_ubatch = 5}},
    {"cache-host",
     {.devices = "cpu*2",
      .split_mode = PL_SPLIT_TENSOR,
      .host_cache = true,
      .offload = PL_OFFLOAD_ON,
      .cache_k = PL_Q8_0,
      .cache_v = PL_F16,
      .n_ubatch = 5}},
    {"hybrid-host",
     {.devices = "cpu*2,sim*2",
      .split_mode = PL_SPLIT_HYBRID,
      .hybrid_size = 2,
      .tensor_split = (const double[]){3, 1, 1, 2},
      .n_tensor_split = 4,
      .device_layers = "2",
      .overrides = (const char *const[]){"ffn_down=host"},
      .n_overrides = 1,
      .offload = PL_OFFLOAD_ON,
      .cache_k = PL_F32,
      .cache_v = PL_F32,
      .n_ubatch = 11}},
};

/* Returns the options of a configuration, with those that all configurations
 * share. */
static pl_options options_of(const struct config *c, uint64_t *random)
{
    const char *cpu = getenv("PLAIT_CPU");
    pl_options o = c->o;

    o.size = sizeof o;
    if (!o.cpu && cpu && cpu[0])
        o.cpu = cpu;
    o.cache_set = true;
    o.no_pin = true;
    o.no_fit = true; /* fitting might give the ranks unequal shares */
    o.n_ctx = 128;
    o.n_seq = 2;
    o.n_threads = 1 + (int)test_below(random, 2);
    o.sim_seed = test_random(random);
    return o;
}

/* ---- models -------------------------------------------------------------- */

/* Tokens of sequences 0 and 1 in each call of the engine: prompts together,
 * tokens alone, both at once, and more of both. */
static const int feeds[][2] = {{17, 6}, {1, 0}, {1, 0}, {0, 1}, {1, 1}, {4, 4}};
/* rows of logits of all feeds; tokens of the largest feed; tokens of the
 * longest sequence */
enum { N_ROW = 36, LONGEST = 23, N_TOKEN = 24 };

static const char fable_path[] = "models/fable-moe-Q8_0.gguf";
static const int32_t fable_tokens[2][N_TOKEN] = {
    /* Once upon a time there was a poor woodcutter who lived with ... */
    {2634, 655, 258, 531, 439, 308, 258,  941, 943, 99,  2424, 416,
     1160, 347, 325, 858, 366, 259, 2309, 288, 258, 562, 1175, 44},
    /* The fox said to the crow that her voice was the fin[est] */
    {337, 1875, 342, 275, 259, 1711, 319, 335, 1064, 308, 259, 1419},
};

static struct ref_model {
    char name[64];
    pl_model *model; /* owned; NULL if plait does not support the model */
    bool large;
    int32_t token[2][N_TOKEN];
} models[MAX_MODEL];
static int n_model;

static struct ref_model *model_add(const char *path, const char *name)
{
    struct ref_model *m = &models[n_model];
    struct stat st;
    pl_err err = {0};
    pl_status s;

    assert_in_range(n_model, 0, MAX_MODEL - 1);
    snprintf(m->name, sizeof m->name, "%s", name);
    s = pl_model_open(&m->model, path, &err);
    if (s != PL_OK && s != PL_UNSUPPORTED)
        fail_msg("%s: %s", name, err.message);
    assert_int_equal(stat(path, &st), 0);
    m->large = st.st_size > LARGE;
    n_model++;
    return m;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct ref_model *)a)->name,
                  ((const struct ref_model *)b)->name);
}

/* Opens the models at hand, ordered by name; with `all` made ones too. */
static void find_models(bool all)
{
    if (n_model > 0)
        return;
    for (const char *const *name = ref_models(all); *name; name++) {
        struct ref_seq seq[REF_SEQS];
        struct ref_model *m;

        /* The sequences of those in shared/refs-next are too short. */
        if (!ref_model_is_core(*name) && !ref_model_is_made(*name))
            continue;
        m = model_add(ref_model_path(*name), *name);
        /* takes the last two sequences, whose prompts are long */
        ref_sequences(*name, seq);
        for (int i = 0; i < 2; i++)
            memcpy(m->token[i], seq[i + 1].id, sizeof m->token[i]);
    }
    if (test_file(fable_path))
        memcpy(model_add(test_file(fable_path), "fable-moe-Q8_0")->token,
               fable_tokens, sizeof fable_tokens);
    qsort(models, (size_t)n_model, sizeof models[0], by_name);
}

/* Returns true if the tier runs it. The short one runs large models under a
 * sixth of the configurations. */
static bool in_tier(const struct ref_model *m, int config)
{
    return test_long() || !m->large || (m - models + config) % 6 == 0;
}

/* ---- the table ----------------------------------------------------------- */

struct sum {
    bool refused;
    uint64_t bits; /* FNV-1a sum of the logits, unless `refused` */
};

struct row {
    char model[64], config[32];
    struct sum sum;
};
/* [n_row] rows of the file tests/refs/logit_sums.txt, owned */
static struct row *table;
static int n_row;

static const char table_path[] = "tests/refs/logit_sums.txt";
static const char table_head[] =
    "# Sums of all logits, one line a model and configuration; see\n"
    "# tests/engine/test_engine_sums.c, which knows the configurations and "
    "writes\n"
    "# this file: PLAIT_WRITE_SUMS=FILE build/plait-test test_engine_sums\n";

static void sum_print(char *s, size_t n, const struct sum *sum)
{
    if (sum->refused)
        snprintf(s, n, "refused");
    else
        snprintf(s, n, "%016" PRIx64, sum->bits);
}

static void read_line(const char *line)
{
    struct row *r = &table[n_row];
    char sum[32], again[32];
    bool known = false;

    if (line[0] == '#' || line[0] == '\0')
        return;
    if (sscanf(line, "%63s %31s %31s", r->model, r->config, sum) != 3)
        fail_msg("the table has a line \"%s\"", line);
    r->sum.refused = !strcmp(sum, "refused");
    r->sum.bits = r->sum.refused ? 0 : strtoull(sum, NULL, 16);
    sum_print(again, sizeof again, &r->sum);
    if (strcmp(again, sum))
        fail_msg("the table's line \"%s\" has no sum", line);
    for (int c = 0; c < COUNT(configs); c++)
        known |= !strcmp(configs[c].name, r->config);
    if (!known)
        fail_msg("the table's line \"%s\" names no configuration", line);
    n_row++;
}

static void read_table(void)
{
    const char *path = test_file(table_path);
    char *text, *line, *next;
    size_t n;

    if (table || !path)
        return;
    text = test_read(path, &n);
    /* a line has at least two bytes, so this is enough */
    table = test_need(n / 2 + 1, sizeof *table);
    for (line = text; *line; line = next) {
        n = strcspn(line, "\n");
        next = line + n + (line[n] != '\0');
        line[n] = '\0';
        read_line(line);
    }
    free(text);
}

/* Finds the row of a model and of a configuration, or any (NULL). */
static const struct row *row_find(const char *model, const char *config)
{
    for (int i = 0; i < n_row; i++)
        if (!strcmp(table[i].model, model) &&
            (!config || !strcmp(table[i].config, config)))
            return &table[i];
    return NULL;
}

/* ---- steps --------------------------------------------------------------- */

/* Returns the FNV-1a sum of n logits (Fowler, Noll, Vo), 64 bits. */
static uint64_t bits_of(const float *logits, int64_t n)
{
    const unsigned char *p = (const unsigned char *)logits;
    uint64_t h = 14695981039346656037u;

    for (int64_t i = 0; i < n * (int64_t)sizeof *logits; i++)
        h = (h ^ p[i]) * 1099511628211u;
    return h;
}

/* Computes the logits of all feeds: out [N_ROW, n_vocab], in the order of the
 * tokens. */
static void decode(pl_engine *e, const struct ref_model *m, float *out,
                   const char *what)
{
    int64_t n_vocab = pl_model_n_vocab(m->model), row = 0;
    int at[2] = {0};

    for (int f = 0; f < COUNT(feeds); f++) {
        int32_t id[LONGEST], seq[LONGEST];
        pl_batch b = {.size = sizeof b,
                      .token = id,
                      .seq = seq,
                      .logits = out + row * n_vocab};
        pl_err err = {0};

        for (int s = 0; s < 2; s++)
            for (int i = 0; i < feeds[f][s]; i++) {
                id[b.n] = m->token[s][at[s]++];
                seq[b.n++] = s;
            }
        if (pl_engine_decode(e, &b, NULL, &err) != PL_OK)
            fail_msg("%s: %s", what, err.message);
        row += b.n;
    }
    assert_int_equal(row, N_ROW);
}

static struct sum run(const struct ref_model *m, const struct config *c,
                      uint64_t *random)
{
    pl_options o = options_of(c, random);
    int64_t n = N_ROW * pl_model_n_vocab(m->model);
    struct sum sum = {0};
    char what[128];
    pl_engine *e;
    pl_err err = {0};
    pl_status s = pl_engine_create(&e, m->model, &o, &err);
    float *out;

    snprintf(what, sizeof what, "%s, %s", m->name, c->name);
    if (s == PL_BAD_ARGUMENT) {
        const struct row *r = row_find(m->name, c->name);

        if (!r || !r->sum.refused)
            print_message("%s: %s\n", what, err.message);
        sum.refused = true;
        return sum;
    }
    if (s != PL_OK)
        fail_msg("%s: %s", what, err.message);
    out = test_need((size_t)n, sizeof *out);
    decode(e, m, out, what);
    pl_engine_free(e);
    sum.bits = bits_of(out, n);
    free(out);
    return sum;
}

/* Returns true if `got` is the sum in the table for this model and
 * configuration. */
static bool keeps(const struct ref_model *m, const struct config *c,
                  const struct sum *got)
{
    const struct row *r = row_find(m->name, c->name);
    char want[32] = "nothing", is[32];

    if (r && r->sum.refused == got->refused && r->sum.bits == got->bits)
        return true;
    if (r)
        sum_print(want, sizeof want, &r->sum);
    sum_print(is, sizeof is, got);
    print_message("%s, %s: the table has %s, the sum is %s\n", m->name, c->name,
                  want, is);
    return false;
}

/* Adds a name to a reason to skip; *n counts them. */
static void name_add(struct test_text *names, const char *name, int *n)
{
    test_text_add(names, " ", 1);
    test_text_add(names, name, strlen(name));
    ++*n;
}

static void write_sums(const char *path)
{
    uint64_t random = test_seed();
    FILE *f = fopen(path, "w");

    if (!f)
        fail_msg("%s: %s", path, strerror(errno));
    find_models(true);
    fputs(table_head, f);
    for (const struct ref_model *m = models; m < models + n_model; m++)
        for (int c = 0; m->model && c < COUNT(configs); c++) {
            struct sum sum = run(m, &configs[c], &random);
            char text[32];

            sum_print(text, sizeof text, &sum);
            fprintf(f, "%s %s %s\n", m->name, configs[c].name, text);
        }
    if (fclose(f) != 0)
        fail_msg("%s: %s", path, strerror(errno));
}

/* ---- cases --------------------------------------------------------------- */

/* Compares the sums of all models with the table. If PLAIT_WRITE_SUMS names a
 * file, writes the sums there instead. */
TEST(logits_keep_their_sums)
{
    const char *path = getenv("PLAIT_WRITE_SUMS");
    uint64_t random = test_seed();
    int n_sum = 0, n_with = 0, n_out = 0, n_unlike = 0;

    if (path && path[0]) {
        write_sums(path);
        return;
    }
    find_models(test_long());
    read_table();
    if (n_row == 0)
        fail_msg("%s has no line", table_path);
    for (const struct ref_model *m = models; m < models + n_model; m++) {
        n_out += !m->model;
        if (!row_find(m->name, NULL))
            continue;
        if (!m->model)
            fail_msg("%s has sums, and is not supported", m->name);
        for (int c = 0; c < COUNT(configs); c++)
            if (in_tier(m, c)) {
                struct sum sum = run(m, &configs[c], &random);

                n_unlike += !keeps(m, &configs[c], &sum);
                n_sum++;
            }
        n_with++;
    }
    print_message("%d models, %d sums; %d models are not supported\n", n_with,
                  n_sum, n_out);
    if (n_unlike > 0)
        fail_msg("%d of %d sums are not the table's", n_unlike, n_sum);
    assert_true(n_sum > 0);
}

/* Each model of the table exists, or a made model (made/NAME) of the same name
 * does. */
TEST(all_models_with_sums_are_at_hand)
{
    read_table();
    for (int i = 0; i < n_row; i++) {
        char file[80];

        snprintf(file, sizeof file, "%s.gguf", table[i].model);
        if (strcmp(table[i].model, "fable-moe-Q8_0") != 0 && !test_ref(file))
            fail_msg("%s has sums, and is not at hand", table[i].model);
    }
}

TEST(all_supported_models_have_sums)
{
    struct test_text names = {0};
    int n = 0;

    find_models(test_long());
    read_table();
    for (int i = 0; i < n_model; i++)
        if (models[i].model && !row_find(models[i].name, NULL))
            name_add(&names, models[i].name, &n);
    if (n > 0)
        TEST_SKIP("%d have none:%s", n, names.s);
}
