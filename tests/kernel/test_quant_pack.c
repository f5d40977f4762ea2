/* Packing: rows packed and unpacked are the same, for every format, any bytes,
 * and any cut of the rows over ranks. */
#include "lib/support.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "quant/pack.h"

enum { MAX_RANK = 8, MAX_BLOCKS = 6 };

static void random_bytes(uint64_t *seed, void *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ((uint8_t *)p)[i] = (uint8_t)test_random(seed);
}

/* Returns true if both have the same bits or are NaN. */
static bool same(float a, float b)
{
    return memcmp(&a, &b, sizeof(a)) == 0 || (isnan(a) && isnan(b));
}

/* One matrix cut over ranks. Each rank is a device of its own, or all are one
 * device. */
struct sample {
    pl_format f;
    const struct format_info *fi;
    int64_t n_row, k;
    size_t row_bytes;
    uint8_t *rows; /* [n_row, k] values in the file's format */
    int n_rank;
    struct pack_span span[MAX_RANK]; /* slice of each rank, perhaps empty */
};

/* Replaces bytes that stand for the same codes by those that unpacking
 * gives. */
static void as_encoders_write(struct sample *s)
{
    for (int64_t i = 0; i < s->n_row * s->k / s->fi->block; i++)
        for (int t = 0; t < s->fi->block / 32; t++) {
            uint8_t *block = s->rows + (size_t)i * (size_t)s->fi->block_bytes;
            struct quant_lane l = {0};

            s->fi->pack->move(block, t, &l, false);
            s->fi->pack->move(block, t, &l, true);
        }
}

static void sample_init(struct sample *s, pl_format f, uint64_t *seed)
{
    int64_t cut[MAX_RANK + 1];
    int64_t unit;

    s->f = f;
    s->fi = format_info(f);
    unit = s->fi->block > 32 ? s->fi->block : 32;
    s->n_row = 1 + test_below(seed, 40);
    s->k = unit * (1 + test_below(seed, MAX_BLOCKS));
    s->row_bytes = format_row_bytes(f, s->k);
    s->rows = test_need(1, (size_t)s->n_row * s->row_bytes);
    random_bytes(seed, s->rows, (size_t)s->n_row * s->row_bytes);
    if (f == PL_TQ1_0)
        as_encoders_write(s);

    s->n_rank = 1 + (int)test_below(seed, MAX_RANK);
    cut[0] = 0;
    cut[s->n_rank] = s->k;
    for (int i = 1; i < s->n_rank; i++) {
        int j = i;

        cut[i] = 32 * test_below(seed, s->k / 32 + 1);
        for (; j > 1 && cut[j - 1] > cut[j]; j--) {
            int64_t t = cut[j];

            cut[j] = cut[j - 1];
            cut[j - 1] = t;
        }
    }
    for (int i = 0; i < s->n_rank; i++)
        s->span[i] = (struct pack_span){cut[i], cut[i + 1] - cut[i], i};
}

/* A device with spans first .. first + n - 1. */
struct device {
    struct pack p;
    struct pack_chunk *chunks;
    uint8_t *data;
};

static void device_init(struct device *d, const struct sample *s, int first,
                        int n)
{
    int max = pack_max_chunks(s->f, s->span + first, n);

    d->chunks = test_need(1, (size_t)(max + 1) * sizeof(*d->chunks));
    pack_init(&d->p, s->f, s->n_row, s->k, s->span + first, n, d->chunks);
    assert_int_equal(d->p.n_chunk, max);
    assert_int_equal(d->p.panel_bytes % 64, 0);
    /* exactly as large as stated: the sanitizer sees any byte beyond */
    d->data = test_need(1, d->p.matrix_bytes + (d->p.matrix_bytes == 0));
    for (int64_t r = 0; r < s->n_row; r++)
        pack_row(&d->p, d->data + (size_t)(r / 16) * d->p.panel_bytes,
                 (int)(r % 16), s->rows + (size_t)r * s->row_bytes);
}

static void device_fini(struct device *d)
{
    free(d->chunks);
    free(d->data);
}

typedef void law(const struct sample *s, uint64_t *seed);

static void for_all(law *check)
{
    uint64_t seed = test_seed();

    for (int f = 0; f < PL_FORMAT_COUNT; f++) {
        if (format_info((pl_format)f)->pack == NULL)
            continue;
        for (int round = 0; round < 60; round++) {
            struct sample s;

            sample_init(&s, (pl_format)f, &seed);
            check(&s, &seed);
            free(s.rows);
        }
    }
}

/* ---- the inverse --------------------------------------------------------- */

static void check_inverse(const struct sample *s, uint64_t *seed)
{
    uint8_t *row = malloc(s->row_bytes);
    struct device d[MAX_RANK];
    int n_dev = 0;

    /* neighbouring ranks may share a device */
    for (int i = 0; i < s->n_rank;) {
        int n = 1 + (int)test_below(seed, s->n_rank - i);

        device_init(&d[n_dev++], s, i, n);
        i += n;
    }
    assert_non_null(row);
    for (int64_t r = 0; r < s->n_row; r++) {
        random_bytes(seed, row, s->row_bytes);
        for (int i = 0; i < n_dev; i++)
            unpack_row(&d[i].p,
                       d[i].data + (size_t)(r / 16) * d[i].p.panel_bytes,
                       (int)(r % 16), row);
        if (memcmp(row, s->rows + (size_t)r * s->row_bytes, s->row_bytes) != 0)
            fail_msg("%s: row %d of %d, k %d, %d ranks: not what was packed",
                     s->fi->name, (int)r, (int)s->n_row, (int)s->k, s->n_rank);
    }
    for (int i = 0; i < n_dev; i++)
        device_fini(&d[i]);
    free(row);
}

TEST(pack_inverse_restores_every_byte)
{
    for_all(check_inverse);
}

/* Reads one tile of a row: as a lane, or a float format's 32 elements. */
static void take_tile(const struct sample *s, const uint8_t *row, int64_t k,
                      struct quant_lane *l)
{
    uint8_t *block = (uint8_t *)row + format_row_bytes(s->f, k);

    memset(l, 0, sizeof(*l));
    s->fi->pack->move(block, (int)(k % s->fi->block) / 32, l, false);
}

static void check_partial(const struct sample *s, uint64_t *seed)
{
    int rank = (int)test_below(seed, s->n_rank);
    const struct pack_span *span = &s->span[rank];
    int64_t r = test_below(seed, s->n_row);
    uint8_t *row = malloc(s->row_bytes), *before = malloc(s->row_bytes);
    struct device d;

    assert_true(row != NULL && before != NULL);
    device_init(&d, s, rank, 1);
    random_bytes(seed, before, s->row_bytes);
    memcpy(row, before, s->row_bytes);
    unpack_row(&d.p, d.data + (size_t)(r / 16) * d.p.panel_bytes, (int)(r % 16),
               row);
    for (int64_t k = 0; k < s->k; k += 32) {
        const uint8_t *source = s->rows + (size_t)r * s->row_bytes;
        bool held = k >= span->k && k < span->k + span->n;
        struct quant_lane got, want;

        if (s->fi->block == 1) {
            size_t off = format_row_bytes(s->f, k);

            assert_memory_equal(row + off, (held ? source : before) + off,
                                format_row_bytes(s->f, 32));
            continue;
        }
        take_tile(s, row, k, &got);
        take_tile(s, held ? source : before, k, &want);
        assert_memory_equal(got.c, want.c, sizeof(got.c));
        assert_memory_equal(got.sub, want.sub, sizeof(got.sub));
        if (held)
            assert_memory_equal(got.sup, want.sup, sizeof(got.sup));
    }
    device_fini(&d);
    free(row);
    free(before);
}

TEST(pack_inverse_leaves_what_is_not_held)
{
    for_all(check_partial);
}

/* ---- whole panels -------------------------------------------------------- */

/* Compares panels packed at once, over old contents, with rows packed one by
 * one. */
static void compare_panels(const struct device *d, const struct sample *s,
                           uint64_t *seed)
{
    const struct pack *p = &d->p;
    uint8_t *data = test_need(1, p->matrix_bytes + (p->matrix_bytes == 0));

    random_bytes(seed, data, p->matrix_bytes);
    for (int64_t g = 0; g < (s->n_row + 15) / 16; g++) {
        const void *rows[16] = {NULL}, *ahead[16] = {NULL};

        for (int64_t i = 0; i < 16; i++) {
            int64_t r = g * 16 + i;

            if (r < s->n_row)
                rows[i] = s->rows + (size_t)r * s->row_bytes;
            if (r + 16 < s->n_row)
                ahead[i] = s->rows + (size_t)(r + 16) * s->row_bytes;
        }
        pack_panel(p, data + (size_t)g * p->panel_bytes, rows,
                   ahead[15] ? ahead : NULL);
    }
    if (memcmp(data, d->data, p->matrix_bytes) != 0)
        fail_msg("%s: %d rows, k %d of %d: panels differ from rows",
                 s->fi->name, (int)s->n_row, (int)p->k, (int)s->k);
    free(data);
}

static void check_panels(const struct sample *s, uint64_t *seed)
{
    /* neighbouring ranks may share a device */
    for (int i = 0; i < s->n_rank;) {
        int n = 1 + (int)test_below(seed, s->n_rank - i);
        struct device d;

        device_init(&d, s, i, n);
        compare_panels(&d, s, seed);
        device_fini(&d);
        i += n;
    }
}

TEST(pack_panel_equals_row_by_row)
{
    for_all(check_panels);
}

/* Float formats have rows of any length. */
TEST(pack_panel_takes_rows_of_any_length)
{
    static const pl_format formats[] = {PL_F32, PL_F16, PL_BF16};
    uint64_t seed = test_seed();

    for (int i = 0; i < 300; i++) {
        struct sample s = {.f = formats[i % 3], .n_rank = 1};
        struct device d;

        s.fi = format_info(s.f);
        s.n_row = 1 + test_below(&seed, 40);
        s.k = 1 + test_below(&seed, 100);
        s.row_bytes = format_row_bytes(s.f, s.k);
        s.span[0] = (struct pack_span){0, s.k, 0};
        s.rows = test_need(1, (size_t)s.n_row * s.row_bytes);
        random_bytes(&seed, s.rows, (size_t)s.n_row * s.row_bytes);
        device_init(&d, &s, 0, 1);
        compare_panels(&d, &s, &seed);
        device_fini(&d);
        free(s.rows);
    }
}

/* ---- values -------------------------------------------------------------- */

static void check_decode(const struct sample *s, uint64_t *seed)
{
    float *want = malloc((size_t)s->k * sizeof(*want));
    float *got = malloc((size_t)s->k * sizeof(*got));
    int first = (int)test_below(seed, s->n_rank);
    struct device d;

    assert_true(want != NULL && got != NULL);
    device_init(&d, s, first, s->n_rank - first);
    for (int64_t r = 0; r < s->n_row && d.p.k > 0; r++) {
        const uint8_t *panel = d.data + (size_t)(r / 16) * d.p.panel_bytes;
        int64_t at = test_below(seed, d.p.k);
        int64_t n = 1 + test_below(seed, d.p.k - at);

        if (r % 2 == 0) {
            at = 0;
            n = d.p.k;
        }
        s->fi->decode(want, s->rows + (size_t)r * s->row_bytes, s->k);
        pack_decode(&d.p, panel, (int)(r % 16), at, n, got);
        for (int64_t i = 0; i < n; i++) {
            float w = want[s->k - d.p.k + at + i];

            if (!same(got[i], w))
                fail_msg("%s: row %d value %d: %a, decode() says %a",
                         s->fi->name, (int)r, (int)(at + i), (double)got[i],
                         (double)w);
        }
    }
    device_fini(&d);
    free(want);
    free(got);
}

TEST(pack_decode_equals_decode_by_bits)
{
    for_all(check_decode);
}

TEST(pack_padding_rows_are_zero)
{
    uint64_t seed = test_seed();

    for (int f = 0; f < PL_FORMAT_COUNT; f++) {
        struct sample s;
        struct device d;
        float x[32];

        if (format_info((pl_format)f)->pack == NULL)
            continue;
        sample_init(&s, (pl_format)f, &seed);
        s.n_row = 1;
        s.span[0] = (struct pack_span){0, s.k, 0};
        device_init(&d, &s, 0, 1);
        for (int lane = 1; lane < 16; lane++) {
            pack_decode(&d.p, d.data, lane, s.k - 32, 32, x);
            for (int i = 0; i < 32; i++)
                assert_true(x[i] == 0);
        }
        device_fini(&d);
        free(s.rows);
    }
}

/* ---- shape --------------------------------------------------------------- */

static void check_chunks(const struct sample *s, uint64_t *seed)
{
    int64_t k_loc = 0, limit = s->fi->block;
    struct device d;

    (void)seed;
    device_init(&d, s, 0, s->n_rank);
    assert_int_equal(d.p.k, s->k);
    for (int i = 0; i < d.p.n_chunk; i++) {
        const struct pack_chunk *c = &d.p.chunk[i];

        assert_true(c->n > 0);
        assert_int_equal(c->k_loc, k_loc);
        /* the device has the whole row, so its offset equals the row's */
        assert_int_equal(c->k, k_loc);
        assert_true(s->span[c->rank].k <= c->k);
        assert_true(c->k + c->n <= s->span[c->rank].k + s->span[c->rank].n);
        if (s->fi->pack->sup != PACK_SUP_NONE)
            assert_int_equal(c->k / limit, (c->k + c->n - 1) / limit);
        else /* without super-blocks a rank's slice is one chunk */
            assert_int_equal(c->n, s->span[c->rank].n);
        k_loc += c->n;
    }
    assert_int_equal(k_loc, s->k);
    device_fini(&d);
}

TEST(pack_chunks_keep_to_super_blocks_and_ranks)
{
    for_all(check_chunks);
}

/* Returns true for the stated bits a value of pack.h; some formats are packed
 * wider. */
static bool is_near_stated(pl_format f, size_t bytes)
{
    static const struct {
        pl_format format;
        double bits;
    } stated[] = {
        {PL_IQ1_S, 2.56},  {PL_IQ1_M, 3.31},   {PL_IQ2_XXS, 3.31},
        {PL_IQ2_XS, 3.31}, {PL_IQ2_S, 3.31},   {PL_IQ3_XXS, 4.31},
        {PL_IQ3_S, 4.31},  {PL_TQ1_0, 2.0625},
    };

    for (size_t i = 0; i < sizeof stated / sizeof stated[0]; i++)
        if (stated[i].format == f)
            return fabs(8 * (double)bytes / (160 * 4096) - stated[i].bits) <
                   0.01;
    return false;
}

TEST(pack_whole_rows_stay_near_file_size)
{
    for (int f = 0; f < PL_FORMAT_COUNT; f++) {
        const struct format_info *fi = format_info((pl_format)f);
        struct pack_span span = {0, 4096, 0};
        struct pack_chunk chunks[16];
        struct pack p;
        double ratio;

        if (fi->pack == NULL)
            continue;
        assert_true(pack_max_chunks((pl_format)f, &span, 1) <= 16);
        pack_init(&p, (pl_format)f, 160, 4096, &span, 1, chunks);
        ratio = (double)p.matrix_bytes /
                (160.0 * (double)format_row_bytes((pl_format)f, 4096));
        assert_true(ratio >= 1);
        assert_true(ratio <= (f == PL_Q3_K ? 1.04 : 1.03) ||
                    is_near_stated((pl_format)f, p.matrix_bytes));
    }
}

/* Returns the bit of a plane that has a code, as pack.h defines it. */
static unsigned plane_bits(const uint8_t *plane, int w, int lane, int v)
{
    int q = 0, shift = 0;

    switch (w) {
    case 8:
        q = v / 4;
        break;
    case 4:
        q = v % 16 / 4;
        shift = 4 * (v / 16);
        break;
    case 2:
        q = v % 8 / 4;
        shift = 2 * (v / 8);
        break;
    case 1:
        shift = v / 4;
        break;
    }
    return plane[64 * q + 4 * lane + v % 4] >> shift & ((1u << w) - 1);
}

static void check_planes(const struct sample *s, uint64_t *seed)
{
    const struct pack_rule *rule = s->fi->pack;
    int64_t r = test_below(seed, s->n_row);
    int64_t k = 32 * test_below(seed, s->k / 32);
    struct pack_span whole = {0, s->k, 0};
    struct sample one = *s;
    const uint8_t *panel, *tile;
    struct device d;

    one.span[0] = whole;
    device_init(&d, &one, 0, 1);
    panel = d.data + (size_t)(r / 16) * d.p.panel_bytes;
    if (rule->tile_values == 1) {
        int size = s->fi->block_bytes;

        tile = pack_tile(&d.p, panel, &d.p.chunk[0], k);
        assert_memory_equal(
            tile + (r % 16) * size,
            s->rows + (size_t)r * s->row_bytes + (size_t)(k * size), size);
    } else {
        const struct pack_chunk *c =
            &d.p.chunk[rule->sup == PACK_SUP_NONE ? 0 : k / s->fi->block];
        int lane = (int)(r % 16);
        struct quant_lane l;
        uint8_t codes[32];

        take_tile(s, s->rows + (size_t)r * s->row_bytes, k, &l);
        tile = pack_tile(&d.p, panel, c, (k - c->k) / 32);
        pack_codes(rule, tile, lane, codes);
        assert_memory_equal(codes, l.c, 32);
        for (int v = 0; v < 32; v++) {
            const uint8_t *low = tile + rule->sub_bytes;
            unsigned want = plane_bits(low, rule->low_bits, lane, v);

            if (rule->high_bits > 0)
                want |=
                    plane_bits(low + rule->low_bytes, rule->high_bits, lane, v)
                    << rule->low_bits;
            assert_int_equal(codes[v], want);
        }
    }
    device_fini(&d);
}

TEST(pack_planes_lie_as_documented)
{
    for_all(check_planes);
}
