/* Implements mix.h. The rules are a table: the first row that fits a tensor
 * decides. */
#include "quantize/mix.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ascii.h"
#include "base/err.h"
#include "quant/format.h"

static const struct {
    const char *name;
    uint32_t number;
    pl_format format;
} mixes[MIX_COUNT] = {
#define MIX_ROW(name, number, format) {#name, number, PL_##format},
    MIX_MAP(MIX_ROW)
#undef MIX_ROW
};

enum mix mix_find(const char *name)
{
    static const struct {
        const char *name;
        enum mix mix;
    } others[] = {
        {"Q3_K", MIX_Q3_K_M}, {"Q4_K", MIX_Q4_K_M}, {"Q5_K", MIX_Q5_K_M}};
    char number[12];

    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (ascii_same(others[i].name, name))
            return others[i].mix;
    for (int m = 0; m < MIX_COUNT; m++) {
        snprintf(number, sizeof number, "%" PRIu32, mixes[m].number);
        if (ascii_same(mixes[m].name, name) || strcmp(number, name) == 0)
            return (enum mix)m;
    }
    return MIX_COUNT;
}

const char *mix_name(enum mix m)
{
    return mixes[m].name;
}

uint32_t mix_number(enum mix m)
{
    return mixes[m].number;
}

pl_format mix_format(enum mix m)
{
    return mixes[m].format;
}

/* ---- the rules ----------------------------------------------------------- */

/* A kind of tensor, by a part of its name. The first that matches counts. */
#define KIND_MAP(X)                                                            \
    X(ATTN_K, "attn_k.weight")                                                 \
    X(ATTN_Q, "attn_q.weight")                                                 \
    X(FFN_DOWN, "ffn_down")                                                    \
    X(ATTN_OUTPUT, "attn_output.weight")                                       \
    X(FFN_GATE, "ffn_gate")                                                    \
    X(FFN_UP, "ffn_up")

enum kind {
#define KIND_ENUM(name, text) name,
    KIND_MAP(KIND_ENUM)
#undef KIND_ENUM
        ATTN_V, /* the values of attention */
    OUTPUT,     /* the output matrix, or an embedding that serves as one */
    EMBEDDING,  /* another embedding of tokens */
    OTHER,
};

/* Conditions of a rule; all of its bits must hold. */
enum {
    GQA_4 = 1,         /* four or more query heads share a KV head */
    EXPERTS_4 = 2,     /* four or more experts */
    EXPERTS_8 = 4,     /* exactly eight experts */
    NOT_EXPERTS_8 = 8, /* any other number of experts */
    FIRST_16TH = 16,   /* in the first sixteenth of the layers */
    FIRST_8TH = 32,    /* in the first eighth */
    MIDDLE = 64,       /* neither in the first nor in the last eighth */
    MORE_BITS = 128,   /* in the first or last eighth, or every third layer */
    FIRST_2 = 256,     /* one of the first two tensors of its kind */
    FIRST_4 = 512,     /* one of the first four */
    IMATRIX = 1024,    /* importances are known */
    NO_IMATRIX = 2048,
    EXPERT_TENSOR = 4096, /* a matrix for each expert */
};

#define M(name)  ((uint64_t)1 << MIX_##name)
#define IQ1      (M(IQ1_S) | M(IQ1_M))
#define IQ2      (M(IQ2_XXS) | M(IQ2_XS))
#define IQ2_MOST (M(IQ2_S) | M(IQ2_M))
#define LOW      (IQ1 | IQ2 | IQ2_MOST)
#define IQ4      (M(IQ4_NL) | M(IQ4_XS))
#define ALL      (((uint64_t)1 << MIX_COUNT) - 1)
#define MOE_5                                                                  \
    (M(Q2_K) | M(IQ3_XS) | M(IQ3_XXS) | M(Q3_K_S) | M(Q3_K_M) | M(Q4_K_S) |    \
     M(Q4_K_M) | M(IQ3_S) | M(IQ3_M) | IQ4)

static const struct rule {
    enum kind kind;
    unsigned when;
    uint64_t mixes;
    pl_format to;
} rules[] = {
    {OUTPUT, 0, M(MXFP4_MOE) | M(Q8_0), PL_Q8_0},
    {OUTPUT, 0, LOW | M(IQ3_XXS), PL_Q5_K},
    {OUTPUT, 0, ALL, PL_Q6_K},
    {EMBEDDING, 0, M(MXFP4_MOE), PL_Q8_0},
    {EMBEDDING, 0, IQ1 | IQ2, PL_Q2_K},
    {EMBEDDING, 0, IQ2_MOST | M(IQ3_XXS), PL_IQ3_S},
    {EMBEDDING, 0, M(TQ1_0) | M(TQ2_0), PL_Q4_K},

    {ATTN_V, GQA_4, LOW, PL_Q4_K},
    {ATTN_V, EXPERTS_4, LOW, PL_Q4_K},
    {ATTN_V, 0, IQ2_MOST, PL_IQ3_S},
    {ATTN_V, 0, LOW, PL_Q2_K},
    {ATTN_V, EXPERTS_8, ALL, PL_Q8_0},
    {ATTN_V, GQA_4, M(Q2_K) | M(Q2_K_S) | M(IQ3_XXS) | M(IQ3_XS) | M(IQ3_S),
     PL_Q4_K},
    {ATTN_V, 0, M(Q2_K), PL_Q3_K},
    {ATTN_V, NO_IMATRIX, M(IQ3_XXS), PL_IQ3_S},
    {ATTN_V, 0, M(IQ3_M), PL_Q4_K},
    {ATTN_V, FIRST_2, M(Q3_K_M), PL_Q5_K},
    {ATTN_V, 0, M(Q3_K_M), PL_Q4_K},
    {ATTN_V, 0, M(Q3_K_L), PL_Q5_K},
    {ATTN_V, GQA_4, IQ4, PL_Q5_K},
    {ATTN_V, MORE_BITS, M(Q4_K_M) | M(Q5_K_M), PL_Q6_K},
    {ATTN_V, FIRST_4, M(Q4_K_S), PL_Q5_K},

    {ATTN_K, EXPERTS_8, LOW, PL_Q4_K},
    {ATTN_K, EXPERTS_8, ALL, PL_Q8_0},
    {ATTN_K, 0, M(IQ3_XS), PL_IQ3_XXS},
    {ATTN_K, 0, M(IQ3_XXS), PL_IQ2_S},
    {ATTN_Q, 0, M(IQ3_XS), PL_IQ3_XXS},
    {ATTN_Q, 0, M(IQ3_XXS), PL_IQ2_S},

    {FFN_DOWN, FIRST_8TH, IQ2_MOST, PL_IQ3_S},
    {FFN_DOWN, FIRST_8TH, LOW, PL_Q2_K},
    {FFN_DOWN, 0, M(Q2_K), PL_Q3_K},
    {FFN_DOWN, FIRST_8TH, M(Q2_K_S), PL_Q4_K},
    {FFN_DOWN, FIRST_8TH | NO_IMATRIX, M(IQ3_XXS), PL_Q4_K},
    {FFN_DOWN, NO_IMATRIX, M(IQ3_XXS), PL_Q3_K},
    {FFN_DOWN, FIRST_16TH, M(Q3_K_M), PL_Q5_K},
    {FFN_DOWN, 0, M(Q3_K_M), PL_Q4_K},
    {FFN_DOWN, FIRST_8TH, M(IQ3_M), PL_Q4_K},
    {FFN_DOWN, MORE_BITS | EXPERTS_8, M(IQ3_M), PL_Q4_K},
    {FFN_DOWN, 0, M(Q3_K_L), PL_Q5_K},
    {FFN_DOWN, MORE_BITS, M(Q4_K_M) | M(Q5_K_M), PL_Q6_K},
    {FFN_DOWN, FIRST_8TH | NO_IMATRIX, IQ4, PL_Q5_K},
    {FFN_DOWN, FIRST_8TH, M(Q4_K_S), PL_Q5_K},
    {FFN_DOWN, FIRST_8TH | IMATRIX, M(Q4_0), PL_Q4_1},
    {FFN_DOWN, FIRST_8TH | IMATRIX, M(Q5_0), PL_Q5_1},

    {ATTN_OUTPUT, EXPERTS_8, LOW, PL_Q5_K},
    {ATTN_OUTPUT, 0, IQ1, PL_IQ2_XXS},
    {ATTN_OUTPUT, 0, IQ2_MOST, PL_IQ3_S},
    {ATTN_OUTPUT, EXPERTS_8, MOE_5, PL_Q5_K},
    {ATTN_OUTPUT, NOT_EXPERTS_8, M(Q2_K), PL_Q3_K},
    {ATTN_OUTPUT, NOT_EXPERTS_8, M(IQ3_XXS), PL_IQ3_S},
    {ATTN_OUTPUT, NOT_EXPERTS_8, M(Q3_K_M) | M(IQ3_M), PL_Q4_K},
    {ATTN_OUTPUT, NOT_EXPERTS_8, M(Q3_K_L), PL_Q5_K},

    {FFN_GATE, MIDDLE, M(IQ3_XS), PL_IQ3_XXS},
    {FFN_UP, MIDDLE, M(IQ3_XS), PL_IQ3_XXS},
};

/* The facts about a model that conditions refer to. */
struct facts {
    int64_t n_layer, n_expert, n_gqa;
    bool has_output, imatrix;
    bool is_70b; /* Llama 70B: its attn_v is so small that it gets more bits */
    int64_t n_attn_v;
};

static bool has(const char *name, const char *part)
{
    return strstr(name, part) != NULL;
}

bool mix_is_embedding(const char *name)
{
    return strcmp(name, "token_embd.weight") == 0 ||
           strcmp(name, "per_layer_token_embd.weight") == 0;
}

/* Returns true for the values of attention, also where they share a matrix with
 * others. */
static bool is_attn_v(const char *name)
{
    return has(name, "attn_v.weight") || has(name, "attn_qkv.weight") ||
           has(name, "attn_kv_b.weight");
}

static enum kind kind_of(const char *name, const struct facts *f)
{
    static const char *const texts[] = {
#define KIND_TEXT(name, text) text,
        KIND_MAP(KIND_TEXT)
#undef KIND_TEXT
    };
    const bool embedding = mix_is_embedding(name);

    if (strcmp(name, "output.weight") == 0 || (embedding && !f->has_output))
        return OUTPUT;
    if (embedding)
        return EMBEDDING;
    if (is_attn_v(name))
        return ATTN_V;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (has(name, texts[i]))
            return (enum kind)i;
    return OTHER;
}

enum { MOST_LAYERS = 1 << 20 }; /* a greater number is not believed */

/* Returns the number of the layer in a tensor's name; -1 if it is in none. */
static int64_t layer_of(const char *name)
{
    char *end;
    long long layer;

    if (strncmp(name, "blk.", 4) != 0 || name[4] < '0' || name[4] > '9')
        return -1;
    layer = strtoll(name + 4, &end, 10);
    return *end == '.' && layer < MOST_LAYERS ? layer : -1;
}

/* Returns the conditions that hold. `nth` is the number of tensors of the kind
 * before this one, `at` of `n` the position in the model. */
static unsigned holding(const struct facts *f, const struct gguf_tensor *t,
                        int64_t nth, int64_t at, int64_t n)
{
    const bool first = at < n / 8, last = at >= 7 * n / 8;
    unsigned c = 0;

    c |= f->n_gqa >= 4 ? GQA_4 : 0;
    c |= f->n_expert >= 4 ? EXPERTS_4 : 0;
    c |= f->n_expert == 8 ? EXPERTS_8 : NOT_EXPERTS_8;
    c |= at < n / 16 ? FIRST_16TH : 0;
    c |= first ? FIRST_8TH : 0;
    c |= !first && !last ? MIDDLE : 0;
    c |= first || last || (at - n / 8) % 3 == 2 ? MORE_BITS : 0;
    c |= nth < 2 ? FIRST_2 : 0;
    c |= nth < 4 ? FIRST_4 : 0;
    c |= f->imatrix ? IMATRIX : NO_IMATRIX;
    c |= t->n_dim > 2 && t->dim[t->n_dim - 3] > 1 ? EXPERT_TENSOR : 0;
    return c;
}

static pl_format ruled(enum mix m, enum kind k, unsigned conditions,
                       const struct facts *f)
{
    pl_format to = mixes[m].format;

    if (m == MIX_MXFP4_MOE && k != OUTPUT && k != EMBEDDING)
        return conditions & EXPERT_TENSOR ? PL_MXFP4 : PL_Q8_0;
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        const struct rule *r = &rules[i];

        if (r->kind == k && (r->mixes >> m & 1) &&
            (conditions & r->when) == r->when) {
            to = r->to;
            break;
        }
    }
    if (k == ATTN_V && f->is_70b && (to == PL_Q3_K || to == PL_Q4_K))
        return PL_Q5_K;
    return to;
}

/* ---- a model ------------------------------------------------------------- */

static int64_t number(const struct gguf *g, const char *arch, const char *key)
{
    char name[128];
    const struct gguf_kv *kv;
    int64_t v;

    snprintf(name, sizeof name, "%.60s.%s", arch, key);
    kv = gguf_find(g, name);
    return kv && gguf_as_i64(kv, 0, &v) ? v : 0;
}

static void find_facts(const struct gguf *g, struct facts *f)
{
    const struct gguf_kv *kv = gguf_find(g, "general.architecture");
    struct gguf_str s = {"", 0};
    char arch[64];
    int64_t heads, heads_kv;

    if (kv)
        gguf_as_str(kv, 0, &s);
    snprintf(arch, sizeof arch, "%.*s", (int)(s.len < 60 ? s.len : 60), s.s);
    f->n_layer = number(g, arch, "block_count");
    if (f->n_layer < 0 || f->n_layer > MOST_LAYERS)
        f->n_layer = 0;
    f->n_expert = number(g, arch, "expert_count");
    heads = number(g, arch, "attention.head_count");
    heads_kv = number(g, arch, "attention.head_count_kv");
    f->n_gqa = heads_kv > 0 ? heads / heads_kv : 1;
    f->is_70b =
        strcmp(arch, "llama") == 0 && f->n_layer == 80 && heads != heads_kv;
    for (int64_t i = 0; i < gguf_n_tensor(g); i++) {
        const char *name = gguf_tensor_at(g, i)->name;

        f->has_output = f->has_output || strcmp(name, "output.weight") == 0;
        f->n_attn_v += is_attn_v(name);
    }
}

/* One tensor in the order in which the rules count. */
struct counted {
    int64_t layer;
    const char *name;
    int64_t i; /* index in the file */
};

static int compare(const void *a, const void *b)
{
    const struct counted *x = a, *y = b;

    if (x->layer != y->layer)
        return x->layer < y->layer ? -1 : 1;
    return strcmp(x->name, y->name);
}

bool mix_quantizes(const struct gguf_tensor *t)
{
    static const char *const never[] = {
        "_norm.weight",
        "ffn_gate_inp.weight",
        "altup",
        "laurel",
        "per_layer_model_proj",
        "ssm_conv1d",
        "shortconv.conv.weight",
        "time_mix_first.weight",
        "time_mix_w0.weight",
        "time_mix_w1.weight",
        "time_mix_w2.weight",
        "time_mix_v0.weight",
        "time_mix_v1.weight",
        "time_mix_v2.weight",
        "time_mix_a0.weight",
        "time_mix_a1.weight",
        "time_mix_a2.weight",
        "time_mix_g1.weight",
        "time_mix_g2.weight",
        "time_mix_decay_w1.weight",
        "time_mix_decay_w2.weight",
        "time_mix_lerp_fused.weight",
        "attn_rel_b.weight",
        ".position_embd.",
    };
    const size_t len = strlen(t->name);
    int n_dim = t->n_dim, outer = 0;

    while (outer < n_dim - 1 && t->dim[outer] == 1)
        outer++;
    if (n_dim - outer < 2 || t->format == PL_FORMAT_COUNT ||
        t->format == PL_I32 || len < 6 ||
        strcmp(t->name + len - 6, "weight") != 0 ||
        strcmp(t->name, "position_embd.weight") == 0 ||
        strcmp(t->name, "token_types.weight") == 0)
        return false;
    for (size_t i = 0; i < sizeof never / sizeof *never; i++)
        if (has(t->name, never[i]))
            return false;
    return true;
}

pl_status mix_plan(enum mix m, const struct gguf *g, bool pure, bool imatrix,
                   pl_format *to, pl_err *err)
{
    const int64_t n = gguf_n_tensor(g);
    const int block = format_info(mixes[m].format)->block;
    const bool plain = pure || block == 1;
    struct facts f = {.imatrix = imatrix};
    int64_t nth[OTHER + 1] = {0};
    struct counted *order;

    order = malloc((size_t)(n > 0 ? n : 1) * sizeof *order);
    if (!order)
        return err_no_memory(err, "the formats of tensors");
    find_facts(g, &f);
    for (int64_t i = 0; i < n; i++) {
        const char *name = gguf_tensor_at(g, i)->name;

        order[i] = (struct counted){layer_of(name), name, i};
    }
    qsort(order, (size_t)n, sizeof *order, compare);
    for (int64_t k = 0; k < n; k++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, order[k].i);
        enum kind kind = kind_of(t->name, &f);
        int64_t before = nth[kind]++, at, of;

        to[order[k].i] = PL_FORMAT_COUNT;
        if (!mix_quantizes(t))
            continue;
        /* Attention counts its tensors, because not all layers have them. */
        at = kind == ATTN_V ? before : f.n_expert > 1 ? order[k].layer : before;
        of = kind == ATTN_V ? f.n_attn_v : f.n_layer;
        to[order[k].i] =
            plain ? mixes[m].format
                  : ruled(m, kind, holding(&f, t, before, at, of), &f);
        if (!plain && kind == OUTPUT && t->dim[t->n_dim - 1] % block != 0)
            to[order[k].i] = PL_Q8_0;
    }
    free(order);
    return PL_OK;
}

pl_format mix_fitting(pl_format f, int64_t width)
{
    static const pl_format other[PL_FORMAT_COUNT] = {
        [PL_TQ1_0] = PL_Q4_0,     [PL_TQ2_0] = PL_Q4_0,
        [PL_IQ1_S] = PL_IQ4_NL,   [PL_IQ1_M] = PL_IQ4_NL,
        [PL_IQ2_XXS] = PL_IQ4_NL, [PL_IQ2_XS] = PL_IQ4_NL,
        [PL_IQ2_S] = PL_IQ4_NL,   [PL_IQ3_XXS] = PL_IQ4_NL,
        [PL_IQ3_S] = PL_IQ4_NL,   [PL_IQ4_XS] = PL_IQ4_NL,
        [PL_Q2_K] = PL_Q4_0,      [PL_Q3_K] = PL_Q4_0,
        [PL_NVFP4] = PL_IQ4_NL,   [PL_Q4_K] = PL_Q5_0,
        [PL_Q5_K] = PL_Q5_1,      [PL_Q6_K] = PL_Q8_0,
    };

    if (width % format_info(f)->block == 0)
        return f;
    /* PL_F32, the first format, stands for none. */
    if (other[f] != PL_F32 && width % format_info(other[f])->block == 0)
        return other[f];
    return PL_F16;
}

bool mix_needs_imatrix(enum mix m, pl_format f, const char *tensor)
{
    if (mix_is_embedding(tensor) || strcmp(tensor, "output.weight") == 0)
        return false;
    return f == PL_IQ3_XXS || f == PL_IQ2_XXS || f == PL_IQ2_XS ||
           f == PL_IQ2_S || f == PL_IQ1_S || f == PL_IQ1_M ||
           (f == PL_Q2_K && m == MIX_Q2_K_S);
}
