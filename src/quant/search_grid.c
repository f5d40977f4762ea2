/* Searches for IQ1, IQ2 and IQ3, whose values stand in groups: a block stores
 * for each group the index of a table entry (grid.h) that has all its codes.
 *
 * The best entry for a scale is found by trying all of them. An entry has 16
 * bits, and each of its bytes has the codes of half of the group. So the error
 * of every possible byte is computed once, and an entry costs one addition.
 *
 * In IQ2_XXS, IQ2_XS and IQ3_XXS the number of minus signs of eight values is
 * even. Where it is odd, the value for which that costs least gets the other
 * sign. */
#include "quant/grid.h"
#include "quant/search_block.h"

#include <math.h>
#include <string.h>

#include "base/half.h"

enum { PARTS = 16, TILE = 32 };

/* The properties of a format. A value is d (2 n + 1) L / 8, where d
 * is the super scale, n the scale of its part and L its level. */
struct shape {
    int width;   /* values of a part, which share n: 16 or 32 */
    int n_max;   /* greatest n */
    int bits;    /* bits of a code in a table entry: 2, or 4 in IQ3 */
    bool even;   /* the number of minus signs of eight values is even */
    int n_shift; /* IQ1: 2, the number of sets of levels; else 1 */
    int shifted; /* values that share one set of levels */
    int n_level;
    float level[2][8];
};

static const struct shape *shape_of(pl_format f)
{
#define IQ1                                                                    \
    {                                                                          \
        {-7, 1, 9},                                                            \
        {                                                                      \
            -9, -1, 7                                                          \
        }                                                                      \
    }
#define IQ2                                                                    \
    {                                                                          \
        {8, 25, 43},                                                           \
        {                                                                      \
            0                                                                  \
        }                                                                      \
    }
#define IQ3                                                                    \
    {                                                                          \
        {8, 24, 40, 56, 72, 88, 104, 124},                                     \
        {                                                                      \
            0                                                                  \
        }                                                                      \
    }
#define IQ3S                                                                   \
    {                                                                          \
        {8, 24, 40, 56, 72, 88, 104, 120},                                     \
        {                                                                      \
            0                                                                  \
        }                                                                      \
    }
    static const struct shape shapes[PL_FORMAT_COUNT] = {
        [PL_IQ1_S] = {32, 7, 2, false, 2, 32, 3, IQ1},
        [PL_IQ1_M] = {16, 7, 2, false, 2, 8, 3, IQ1},
        [PL_IQ2_XXS] = {32, 15, 2, true, 1, 32, 3, IQ2},
        [PL_IQ2_XS] = {16, 15, 2, true, 1, 16, 3, IQ2},
        [PL_IQ2_S] = {16, 15, 2, false, 1, 16, 3, IQ2},
        [PL_IQ3_XXS] = {32, 15, 4, true, 1, 32, 8, IQ3},
        [PL_IQ3_S] = {32, 15, 4, false, 1, 32, 8, IQ3S},
    };
#undef IQ1
#undef IQ2
#undef IQ3
#undef IQ3S

    return &shapes[f];
}

struct search {
    const struct shape *shape;
    const struct levels *v;
    const uint16_t *entry;
    /* Entries with the same upper byte: first[i] .. first[i + 1] - 1. */
    int first[257], n_first;
    uint8_t low[256]; /* [n_low] all possible bytes */
    int n_low;
    /* the values of the super-block, without the signs that codes have */
    float x[256];
    const float *w;
    bool minus[256];
};

/* The codes that were found for a part. */
struct found {
    float error;
    float xl, ll; /* weighted sums of x l and l l */
    uint16_t entry[8];
    int shift[4]; /* the set of levels of each eight values */
};

/* Computes the error of each code for n values, and from these the error of
 * each byte of a table entry. */
static void byte_errors(const struct search *s, const float *level,
                        const float *x, const float *w, float scale,
                        float out[static 256])
{
    const int bits = s->shape->bits, n = 8 / bits, k = s->shape->n_level;
    float of[4][8];

    for (int i = 0; i < n; i++)
        for (int c = 0; c < k; c++) {
            float e = x[i] - scale * level[c];

            of[i][c] = w[i] * e * e;
        }
    if (bits == 4) {
        for (int b = 0; b < k; b++)
            for (int a = 0; a < k; a++)
                out[a | b << 4] = of[0][a] + of[1][b];
        return;
    }
    for (int b = 0; b < 9; b++) {
        float high = of[2][b % 3] + of[3][b / 3];
        int at = b % 3 << 4 | b / 3 << 6;

        for (int a = 0; a < 9; a++)
            out[at | a % 3 | a / 3 << 2] = of[0][a % 3] + of[1][a / 3] + high;
    }
}

/* Returns the entry with the least error for a group, and sets *error. Passes
 * over entries whose upper byte alone costs too much, and begins with the upper
 * byte that costs least. */
static uint16_t best_entry(const struct search *s, const float *level,
                           const float *x, const float *w, float scale,
                           float *error)
{
    const int half = 8 / s->shape->bits;
    float low[256], high[256], least;
    int best = 0, start = 0;

    byte_errors(s, level, x, w, scale, low);
    byte_errors(s, level, x + half, w + half, scale, high);
    least = low[0];
    for (int i = 0; i < s->n_low; i++)
        least = low[s->low[i]] < least ? low[s->low[i]] : least;
    for (int i = 1; i < s->n_first; i++)
        if (high[s->entry[s->first[i]] >> 8] <
            high[s->entry[s->first[start]] >> 8])
            start = i;
    *error = INFINITY;
    for (int k = 0; k < s->n_first; k++) {
        int i = k == 0 ? start : k <= start ? k - 1 : k;
        float rest = high[s->entry[s->first[i]] >> 8];

        if (rest + least >= *error)
            continue;
        for (int e = s->first[i]; e < s->first[i + 1]; e++)
            if (low[s->entry[e] & 255] + rest < *error) {
                *error = low[s->entry[e] & 255] + rest;
                best = e;
            }
    }
    return s->entry[best];
}

static unsigned code_at(const struct search *s, uint16_t entry, int i)
{
    return entry >> s->shape->bits * i & ((1u << s->shape->bits) - 1);
}

/* Finds the codes of the eight values at `at` with one set of levels. Returns
 * their error. */
static float find_eight(const struct search *s, int at, float scale, int shift,
                        uint16_t *entry)
{
    const int group = 16 / s->shape->bits;
    float sum = 0;

    for (int i = 0; i < 8; i += group) {
        float error;

        entry[i / group] = best_entry(s, s->shape->level[shift], s->x + at + i,
                                      s->w + at + i, scale, &error);
        sum += error;
    }
    return sum;
}

/* Finds the codes of the n values at `at` that share a set of levels. */
static void find_shared(const struct search *s, int at, int n, float scale,
                        struct found *f, int first)
{
    const int groups = 8 * s->shape->bits / 16;
    float least = INFINITY;

    for (int shift = 0; shift < s->shape->n_shift; shift++) {
        uint16_t entry[8];
        float sum = 0;

        for (int i = 0; i < n; i += 8)
            sum += find_eight(s, at + i, scale, shift, entry + i / 8 * groups);
        if (!(sum < least))
            continue;
        least = sum;
        memcpy(f->entry + first / 8 * groups, entry,
               (size_t)(n / 8 * groups) * sizeof *entry);
        for (int i = 0; i < n; i += 8)
            f->shift[(first + i) / 8] = shift;
    }
    f->error += least;
}

/* Finds the codes of part p for a scale. */
static void find(const struct search *s, int p, float scale, struct found *f)
{
    const int width = s->shape->width, at = p * width;
    const int n = s->shape->shifted < width ? s->shape->shifted : width;
    const int group = 16 / s->shape->bits;

    f->error = f->xl = f->ll = 0;
    for (int i = 0; i < width; i += n)
        find_shared(s, at + i, n, scale, f, i);
    for (int i = 0; i < width; i++) {
        float l = s->shape->level[f->shift[i / 8]]
                                 [code_at(s, f->entry[i / group], i % group)];

        f->xl += s->w[at + i] * s->x[at + i] * l;
        f->ll += s->w[at + i] * l * l;
    }
}

/* Separates signs from magnitudes. */
static void split_signs(struct search *s, const float *x)
{
    const bool signs = s->shape->n_shift == 1;

    for (int at = 0; at < 256; at += 8) {
        bool odd = false;
        int cheapest = at;

        for (int i = at; i < at + 8; i++) {
            s->minus[i] = signs && x[i] < 0;
            s->x[i] = s->minus[i] ? -x[i] : x[i];
            odd ^= s->minus[i];
            if (s->w[i] * s->x[i] < s->w[cheapest] * s->x[cheapest])
                cheapest = i;
        }
        if (odd && s->shape->even) {
            s->minus[cheapest] = !s->minus[cheapest];
            s->x[cheapest] = -s->x[cheapest];
        }
    }
}

/* Searches the scale of part p alone. */
static float part_scale(const struct search *s, int p)
{
    static const float factor[] = {1, 0.9f, 1.1f, 0.8f, 1.2f};
    const int at = p * s->shape->width;
    const struct quant_fit_block b = {s->x + at, s->w + at, s->shape->width};
    float best = 0, least = INFINITY, start;
    struct found f;

    start = fabsf(quant_fit_search(s->v, &b, FIT_NO_MIN).d);
    if (s->v->simple)
        return start;
    for (size_t i = 0; i < sizeof factor / sizeof *factor; i++) {
        find(s, p, start * factor[i], &f);
        if (f.ll > 0 && f.xl > 0 && f.error < least) {
            least = f.error;
            best = f.xl / f.ll;
        }
    }
    return best;
}

/* Finds the best n of part p near `n` for a super scale, and its codes. */
static int part_number(const struct search *s, int p, float d, int n,
                       struct found *best)
{
    const int near = s->v->simple ? 0 : 1;
    int chosen = n;

    best->error = INFINITY;
    for (int i = n - near; i <= n + near; i++) {
        struct found f;

        if (i < 0 || i > s->shape->n_max)
            continue;
        find(s, p, d * (float)(2 * i + 1) / 8, &f);
        if (f.error < best->error) {
            *best = f;
            chosen = i;
        }
    }
    return chosen;
}

static void put_lane(pl_format f, const struct search *s,
                     const struct found *found, const int *n, int t, float d,
                     struct quant_lane *l)
{
    const int group = 16 / s->shape->bits,
              sign = f == PL_IQ3_XXS || f == PL_IQ3_S ? 3 : 2;
    const int per = TILE / s->shape->width;

    l->sup[0] = f32_to_f16(d);
    for (int i = 0; i < TILE; i++) {
        int p = per * t + i / s->shape->width, in = i % s->shape->width;
        unsigned c = code_at(s, found[p].entry[in / group], in % group);

        /* IQ1_M's codes have the set of levels as their sign */
        if (s->minus[TILE * t + i] || (f == PL_IQ1_M && found[p].shift[in / 8]))
            c |= 1u << sign;
        l->c[i] = (uint8_t)c;
    }
    if (f == PL_IQ1_S) {
        l->sub[0] = (uint16_t)(8 * (2 * n[t] + 1));
        l->sub[1] = (uint16_t)((found[t].shift[0] ? 9 : 7) * (2 * n[t] + 1));
    } else {
        l->sub[0] = (uint16_t)(n[per * t] | n[per * t + per - 1] << 4);
    }
}

void quant_search_grid_levels(pl_format f, struct levels *v)
{
    static const float around[3] = {-8, 0, 8}; /* the levels of IQ1, about */
    const struct shape *shape = shape_of(f);
    const bool signs = shape->n_shift == 1;

    *v = (struct levels){.unit = 1};
    quant_fit_table(v, signs ? shape->level[0] : around, shape->n_level);
    v->below = v->hi / 2;
}

/* Lists the bytes of the table entries. */
static void list_bytes(struct search *s, int n_entry)
{
    const int k = s->shape->n_level, bits = s->shape->bits;

    for (int i = 0; i < n_entry; i++)
        if (i == 0 || s->entry[i] >> 8 != s->entry[i - 1] >> 8)
            s->first[s->n_first++] = i;
    s->first[s->n_first] = n_entry;
    for (int b = 0; b < 256; b++) {
        bool possible = true;

        for (int i = 0; i < 8; i += bits)
            possible = possible && (b >> i & ((1 << bits) - 1)) < k;
        if (possible)
            s->low[s->n_low++] = (uint8_t)b;
    }
}

void quant_search_grid(pl_format f, const struct levels *v, uint8_t *block,
                       const float *x, const float *w)
{
    size_t bytes;
    struct search s = {
        .shape = shape_of(f), .v = v, .entry = quant_grid(f, &bytes), .w = w};
    const int n_part = 256 / s.shape->width, n_max = s.shape->n_max;
    struct found found[PARTS] = {0};
    float scale[PARTS], most = 0, d;
    double xl = 0, ll = 0;
    int n[PARTS];

    list_bytes(&s, (int)(bytes / sizeof *s.entry));
    split_signs(&s, x);
    for (int p = 0; p < n_part; p++) {
        scale[p] = part_scale(&s, p);
        most = scale[p] > most ? scale[p] : most;
    }
    d = quant_fit_half(8 * most / (float)(2 * n_max + 1));
    for (int p = 0; p < n_part; p++) {
        float ideal = d == 0 ? 0 : (8 * scale[p] / d - 1) / 2;
        int near = ideal <= 0              ? 0
                   : ideal >= (float)n_max ? n_max
                                           : (int)lrintf(ideal);

        n[p] = part_number(&s, p, d, near, &found[p]);
        xl += (2 * n[p] + 1) * (double)found[p].xl / 8;
        ll += (2 * n[p] + 1) * (2 * n[p] + 1) * (double)found[p].ll / 64;
    }
    if (ll > 0 && xl > 0 &&
        !v->simple) { /* the super scale that is best for these codes */
        d = quant_fit_half((float)(xl / ll));
        for (int p = 0; p < n_part; p++)
            find(&s, p, d * (float)(2 * n[p] + 1) / 8, &found[p]);
    }
    for (int t = 0; t < 8; t++) {
        struct quant_lane l = {0};

        put_lane(f, &s, found, n, t, d, &l);
        format_info(f)->pack->move(block, t, &l, true);
    }
}
