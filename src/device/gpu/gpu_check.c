/* The self test. Its reference is the emulator: the same launches of the same
 * text, which our own compiler has made of it, and whose kernels all tests
 * compare with those of processors, bit by bit. Memory is one image, random but
 * for what must have a form; a trial builds it and its launches twice, at the
 * addresses of either side. */
#include "device/gpu/gpu_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/hash64.h"
#include "device/gpu/gpu_cache.h"
#include "device/gpu/gpu_launch.h"
#include "device/gpu/gpu_text.h"
#include "quant/pack.h"
#include "quant/q8.h"

enum { IMAGE = 512 << 10, ALIGN = 256, N_PROBE = 1024 };

/* Launches, and the memory that they work on. */
struct trial {
    unsigned char *image; /* [IMAGE] */
    uint64_t at;          /* where it is for the kernels */
    size_t n, out, out_bytes;
    uint64_t random;
    struct gpu_list list; /* owned */
};

/* One of the two that do a trial. */
struct side {
    const struct gpu_driver *driver;
    struct gpu *gpu;
    struct gpu_device *x; /* NULL: the reference */
    uint64_t at;          /* [IMAGE] */
};

/* ---- what trials are made of --------------------------------------------- */

static uint32_t draw(struct trial *t)
{
    t->random = t->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(t->random >> 32);
}

/* Room in the image, of random bytes; its offset. */
static size_t room(struct trial *t, size_t bytes)
{
    size_t at = t->n;

    t->n += (bytes + ALIGN - 1) / ALIGN * ALIGN;
    for (size_t i = at; i < t->n; i += 4) {
        uint32_t v = draw(t);

        memcpy(t->image + i, &v, 4);
    }
    return at;
}

/* Of floats between -4 and 4, of a format. */
static uint64_t floats(struct trial *t, pl_format f, int64_t n)
{
    size_t size = f == PL_F32 ? 4 : 2, at = room(t, (size_t)n * size);

    for (int64_t i = 0; i < n; i++) {
        float v = (float)((double)(int32_t)draw(t) / (1 << 29));
        uint32_t u;
        uint16_t h;

        memcpy(&u, &v, 4);
        h = f == PL_F16 ? (uint16_t)(draw(t) & 0xbfff) : (uint16_t)(u >> 16);
        memcpy(t->image + at + (size_t)i * size,
               f == PL_F32 ? (void *)&u : (void *)&h, size);
    }
    return t->at + at;
}

/* What is compared, in words. */
static uint64_t result(struct trial *t, size_t bytes)
{
    t->out = room(t, bytes);
    t->out_bytes = bytes;
    return t->at + t->out;
}

/* ---- trials -------------------------------------------------------------- */

static const uint32_t corner[] = {
    0,          0x80000000, 1,          0x80000001, /* zeros, subnormals */
    0x007fffff, 0x00800000, 0x00800001, 0x80800000, /* least normal ones */
    0x3f800000, 0xbf800000, 0x3f800001, 0x3f7fffff, /* about one */
    0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000, /* largest, infinite */
    0x7fc00000, 0x4b000001, 0x4b000003, 0x3f000000, /* NaN, ties */
    0x477fefff, 0x477ff000, 0x33000000, 0x33000001, /* ends of f16 */
    0x3f808000, 0x3f818000, 0x1f800000, 0x5f000000, /* ties of bf16 */
    0x387fffff, 0x38800000, 0xc2cf0000, 0x42b17218, /* of exp */
};
enum { N_CORNER = sizeof corner / sizeof *corner };

/* Each corner case with each, in turn with random bits. */
static void make_probe(struct trial *t, int variant)
{
    size_t x = room(t, N_PROBE * 3 * sizeof(uint32_t));
    struct probe_args a = {.x = t->at + x, .n = N_PROBE};

    (void)variant;
    for (int i = 0; i < N_CORNER * N_CORNER && i < N_PROBE / 2; i++) {
        uint32_t three[3] = {corner[i / N_CORNER], corner[i % N_CORNER],
                             corner[(i * 7 + 3) % N_CORNER]};

        memcpy(t->image + x + (size_t)i * 24, three, sizeof three);
    }
    a.out = result(t, N_PROBE * PROBE_COUNT * sizeof(uint32_t));
    gpu_list_add(&t->list, GPU_probe, gpu_groups(N_PROBE, 64), &a);
}

static void make_unary(struct trial *t, int variant)
{
    struct unary_args a = {.x = floats(t, PL_F32, 600),
                           .n = 600,
                           .op = variant,
                           .a = variant == TEXT_CLAMP ? -1 : 0.3f,
                           .b = 1};

    a.out = result(t, 600 * sizeof(float));
    gpu_list_add(&t->list, GPU_unary, 2, &a);
}

static void make_binary(struct trial *t, int variant)
{
    struct binary_args a = {.x = floats(t, PL_F32, 600),
                            .y = floats(t, PL_F32, 600),
                            .n = 600,
                            .dim = {600, 1, 1, 1},
                            .stride_x = {1},
                            .stride_y = {1},
                            .op = variant,
                            .lo = -1,
                            .hi = 1,
                            .alpha = 1.7f};

    a.out = result(t, 600 * sizeof(float));
    gpu_list_add(&t->list, GPU_binary, 2, &a);
}

static void make_cast(struct trial *t, int variant)
{
    static const pl_format f[] = {PL_F32, PL_F16, PL_BF16};
    struct cast_args a = {.x = floats(t, f[variant / 3], 600),
                          .n = 600,
                          .from = gpu_format(f[variant / 3]),
                          .to = gpu_format(f[variant % 3])};

    a.out = result(t, 600 * (variant % 3 == 0 ? 4 : 2));
    gpu_list_add(&t->list, GPU_cast, 3, &a);
}

static void make_softmax(struct trial *t, int variant)
{
    struct softmax_args a = {.x = floats(t, PL_F32, 3 * 300), .d = 300};

    (void)variant;
    a.out = result(t, 3 * 300 * sizeof(float));
    gpu_list_add(&t->list, GPU_softmax, 3, &a);
}

static void make_rms_norm(struct trial *t, int variant)
{
    struct rms_norm_args a = {.x = floats(t, PL_F32, 3 * 300),
                              .w = floats(t, PL_F32, 300),
                              .d = 300,
                              .eps = 1e-6f};

    (void)variant;
    a.out = result(t, 3 * 300 * sizeof(float));
    gpu_list_add(&t->list, GPU_rms_norm, 3, &a);
}

/* ---- contractions -------------------------------------------------------- */

enum { CONTRACT_N = 40, CONTRACT_K = 512 };

/* Of scales those with which nothing gets infinite. */
static void tame_halves(unsigned char *p, int bytes)
{
    for (int i = 1; i < bytes; i += 2)
        p[i] &= 0xbf;
}

static void tame_tile(const struct pack_rule *r, unsigned char *tile)
{
    if (r->sub == PACK_SUB_F16 || r->sub == PACK_SUB_F16_MIN)
        tame_halves(tile, r->sub_bytes);
    for (int i = 0; r->sub == PACK_SUB_E8M0 && i < r->sub_bytes; i++)
        tile[i] = (unsigned char)(0x70 + tile[i] % 32);
    for (int i = 0; r->sub == PACK_SUB_UE4M3X2 && i < r->sub_bytes; i++)
        tile[i] %= 0x70;
}

/* All other bits are weights as they are. */
static uint64_t blocks(struct trial *t, const struct pack *p)
{
    const struct pack_rule *r = p->rule;
    size_t at = room(t, p->matrix_bytes);

    for (size_t panel = 0; panel < p->matrix_bytes; panel += p->panel_bytes)
        for (int i = 0; i < p->n_chunk; i++) {
            unsigned char *c = t->image + at + panel + p->chunk[i].off;

            tame_halves(c, r->sup_bytes);
            for (int k = 0; k < p->chunk[i].n / r->tile_values; k++)
                tame_tile(r, c + r->sup_bytes + k * r->tile_bytes);
        }
    return t->at + at;
}

static uint64_t weights(struct trial *t, const struct pack *p)
{
    int64_t size = p->format == PL_F32 ? 4 : 2;

    if (p->rule->tile_values > 1)
        return blocks(t, p);
    return floats(t, p->format, (int64_t)p->matrix_bytes / size);
}

/* Activations of a contraction, quantized if the weights want it. */
static void activations(struct trial *t, const struct pack *p, int64_t n_tok,
                        struct gpu_call *c)
{
    uint64_t x = floats(t, PL_F32, n_tok * CONTRACT_K);
    size_t row = CONTRACT_K / 32 * sizeof(struct q8_block), q8;

    c->in[0] = (struct gpu_tensor){
        .at = x, .format = PL_F32, .n_dim = 2, .dim = {n_tok, CONTRACT_K}};
    if (p->rule->tile_values == 1)
        return;
    q8 = room(t, (size_t)n_tok * row);
    for (int64_t i = 0; i < n_tok; i++)
        q8_encode((void *)(t->image + q8 + (size_t)i * row),
                  (const void *)(t->image + (x - t->at) +
                                 (size_t)i * CONTRACT_K * sizeof(float)),
                  CONTRACT_K, p->rule->sup == PACK_SUP_NONE ? 32 : Q8_CHUNK);
    c->q8 = t->at + q8;
}

/* variant: a format, with 3 rows of activations or with 17. */
static void make_contract(struct trial *t, int variant)
{
    static const struct rank_item whole;
    const struct pack_span span = {0, CONTRACT_K, 0};
    struct pack_chunk chunk[16];
    struct pack p;
    pl_format f = (pl_format)(variant / 2);
    int64_t n_tok = variant % 2 ? 17 : 3;
    struct gpu_call c = {.n_in = 2,
                         .tree = {.n = 1, .n_out = 1, .item = &whole}};

    if (!format_info(f)->pack || pack_max_chunks(f, &span, 1) > 16)
        return;
    pack_init(&p, f, CONTRACT_N, CONTRACT_K, &span, 1, chunk);
    activations(t, &p, n_tok, &c);
    c.in[1] = (struct gpu_tensor){.at = weights(t, &p),
                                  .format = f,
                                  .n_dim = 2,
                                  .dim = {CONTRACT_N, CONTRACT_K},
                                  .pack = &p};
    c.out = (struct gpu_tensor){
        .at = result(t, (size_t)n_tok * CONTRACT_N * sizeof(float)),
        .format = PL_F32,
        .n_dim = 2,
        .dim = {n_tok, CONTRACT_N}};
    c.scratch = t->at + room(t, ALIGN);
    gpu_launch_matmul(&t->list, &c);
}

static const struct {
    void (*make)(struct trial *t, int variant);
    int n; /* variants */
} trials[] = {
    {make_probe, 1},
    {make_unary, TEXT_RELU + 1},
    {make_cast, 9},
    {make_binary, TEXT_SWIGLU_OAI + 1},
    {make_softmax, 1},
    {make_rms_norm, 1},
    {make_contract, 2 * PL_FORMAT_COUNT},
};

/* ---- doing one ----------------------------------------------------------- */

static pl_status run_on(const struct side *s, const struct trial *t,
                        unsigned char *out, pl_err *err)
{
    enum queue q = QUEUE_COMPUTE;

    PL_TRY(s->driver->write(s->gpu, q, s->at, t->image, t->n, err));
    for (int i = 0; i < t->list.n; i++)
        PL_TRY(s->driver->launch(s->gpu, q, t->list.launch[i].kernel,
                                 t->list.launch[i].n_group,
                                 t->list.bytes + t->list.launch[i].args, err));
    PL_TRY(s->driver->read(s->gpu, q, out, s->at + t->out, t->out_bytes, err));
    return s->x ? gpu_settle(s->x, q, err) : s->driver->finish(s->gpu, q, err);
}

static void build(struct trial *t, int i, int variant, uint64_t at)
{
    t->at = at;
    t->n = 0;
    t->out_bytes = 0;
    t->random = (uint64_t)i * 1000 + (uint64_t)variant + 1;
    t->list.n = 0;
    t->list.n_byte = 0;
    trials[i].make(t, variant);
}

static bool is_wanted(const struct trial *t, const bool want[])
{
    return t->list.n > 0 && (t->list.launch[0].kernel == GPU_probe ||
                             want[t->list.launch[0].kernel]);
}

/* NaNs are alike: their bits are not promised. */
static bool alike(uint32_t a, uint32_t b)
{
    return a == b ||
           ((a & 0x7fffffff) > 0x7f800000 && (b & 0x7fffffff) > 0x7f800000);
}

static const char *probe_name(size_t word)
{
    static const char *const name[PROBE_COUNT] = {"sum",
                                                  "difference",
                                                  "product",
                                                  "quotient",
                                                  "fused sum",
                                                  "plain sum",
                                                  "square root",
                                                  "whole number",
                                                  "f16",
                                                  "bf16",
                                                  "exp",
                                                  "tanh",
                                                  "double sum",
                                                  "double product",
                                                  "double quotient",
                                                  "double difference",
                                                  "cosine",
                                                  "sine",
                                                  "float of f16",
                                                  "sum of bytes",
                                                  "float of a whole number"};

    return name[word % PROBE_COUNT];
}

/* The first word that differs, if one does. */
static pl_status compare(const struct gpu_device *x, const struct trial *t,
                         const unsigned char *have, const unsigned char *want,
                         pl_err *err)
{
    enum gpu_kernel k = t->list.launch[0].kernel;

    for (size_t i = 0; i < t->out_bytes / 4; i++) {
        uint32_t a, b;

        memcpy(&a, have + 4 * i, 4);
        memcpy(&b, want + 4 * i, 4);
        if (!alike(a, b))
            return err_set(
                err, PL_DEVICE,
                "%s fails its self test: kernel %s%s%s gives 0x%08x, not "
                "0x%08x (word %zu); take another version of its driver, leave "
                "it out of -dev, or have results that differ from those of "
                "other devices by --inexact",
                x->dev->desc.name, gpu_kernel_name(k),
                k == GPU_probe ? ", " : "", k == GPU_probe ? probe_name(i) : "",
                (unsigned)a, (unsigned)b, i);
    }
    return PL_OK;
}

/* One variant on both sides; out[2][IMAGE]. */
static pl_status try_one(const struct side side[2], struct trial *t, int i,
                         int variant, const bool want[], unsigned char *out,
                         bool *differs, pl_err *err)
{
    pl_status s;

    for (int k = 0; k < 2; k++) {
        build(t, i, variant, side[k].at);
        if (t->list.no_memory)
            return err_no_memory(err, "a self test");
        if (!is_wanted(t, want))
            return PL_OK;
        PL_TRY(run_on(&side[k], t, out + k * IMAGE, err));
    }
    s = compare(side[0].x, t, out, out + IMAGE, err);
    *differs = s != PL_OK;
    return s;
}

/* What has failed may have copies under way, of memory that is given back next.
 * False: a GPU that is lost keeps them for ever. */
static bool at_rest(const struct side side[2], pl_status s)
{
    if (side[0].x->lost)
        return false;
    for (int k = 0; k < 2 && s != PL_OK; k++)
        side[k].driver->finish(side[k].gpu, QUEUE_COMPUTE, NULL);
    return true;
}

static pl_status try_all(const struct side side[2], const bool want[],
                         bool *differs, pl_err *err)
{
    struct trial t = {.image = malloc(3 * IMAGE)};
    pl_status s = t.image ? PL_OK : err_no_memory(err, "a self test");

    for (size_t i = 0; i < sizeof trials / sizeof *trials; i++)
        for (int k = 0; k < trials[i].n && s == PL_OK; k++)
            s = try_one(side, &t, (int)i, k, want, t.image + IMAGE, differs,
                        err);
    gpu_list_free(&t.list);
    if (at_rest(side, s))
        free(t.image);
    return s;
}

static pl_status try_beside(struct gpu_device *x, const bool want[],
                            bool *differs, pl_err *err)
{
    struct side side[2] = {{.driver = x->driver, .gpu = x->gpu, .x = x},
                           {.driver = &gpu_emu}};
    pl_status s = gpu_emu.open(&side[1].gpu, 0, err);

    for (int k = 0; k < 2 && s == PL_OK; k++)
        s = side[k].driver->alloc(side[k].gpu, IMAGE, &side[k].at, err);
    if (s == PL_OK)
        s = try_all(side, want, differs, err);
    for (int k = 0; k < 2 && !x->lost; k++)
        if (side[k].at)
            side[k].driver->release(side[k].gpu, side[k].at);
    gpu_emu.close(side[1].gpu);
    return s;
}

/* ---- what has passed before ---------------------------------------------- */

struct passed {
    char what[16], identity[256];
    uint64_t text;
    bool want[GPU_KERNEL_COUNT];
};

pl_status gpu_check(struct gpu_device *x, const bool want[], bool *differs,
                    pl_err *err)
{
    struct passed key;
    bool keeps = x->driver->identity != NULL;
    size_t n;
    void *found;

    *differs = false;
    memset(&key, 0, sizeof key);
    snprintf(key.what, sizeof key.what, "self test 1");
    key.text = hash64(0, gpu_text, strlen(gpu_text));
    memcpy(key.want, want, sizeof key.want);
    if (keeps)
        PL_TRY(x->driver->identity(x->gpu, key.identity, sizeof key.identity,
                                   err));
    found = keeps ? gpu_cache_load(&key, sizeof key, &n) : NULL;
    free(found);
    if (found)
        return PL_OK;
    PL_TRY(try_beside(x, want, differs, err));
    if (keeps) /* if it cannot be kept, it is made again */
        gpu_cache_save(&key, sizeof key, "passed", 6, NULL);
    return PL_OK;
}
