/* Allocates the memory of self-test cases and fills it with random values. */
#include "device/gpu/gpu_selftest_case.h"

#include <string.h>

#include "base/half.h"

enum { ALIGN = 256 };

/* ---- memory -------------------------------------------------------------- */

uint32_t trial_draw(struct selftest_case *t)
{
    t->random = t->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(t->random >> 32);
}

void *trial_room(struct selftest_case *t, size_t bytes)
{
    size_t at = t->n, end = at + (bytes + ALIGN - 1) / ALIGN * ALIGN;

    if (end > TRIAL_IMAGE) {
        t->full = t->dry = true;
        return t->image;
    }
    t->n = end;
    for (size_t i = at; i < end && !t->dry; i += 4) {
        uint32_t v = trial_draw(t);

        memcpy(t->image + i, &v, 4);
    }
    return t->image + at;
}

void *trial_put(struct selftest_case *t, const void *p, size_t bytes)
{
    void *to = trial_room(t, bytes);

    memcpy(to, p, bytes < TRIAL_IMAGE ? bytes : TRIAL_IMAGE);
    return to;
}

void *trial_result(struct selftest_case *t, size_t bytes)
{
    unsigned char *p = trial_room(t, bytes);

    t->out = (size_t)(p - t->image);
    t->out_bytes = bytes;
    return p;
}

uint64_t trial_at(const struct selftest_case *t, const void *p)
{
    return p ? t->at + (uint64_t)((const unsigned char *)p - t->image) : 0;
}

/* ---- values -------------------------------------------------------------- */

static const uint32_t small[] = {
    0,          0x80000000, 1,          0x80000001, /* zeros, subnormals */
    0x007fffff, 0x807fffff, 0x00800000, 0x80800000, /* smallest normal */
    0x0d000001, 0x8d800001, 0x387fffff, 0xb3000001, /* limits of f16 */
};
static const uint32_t other[] = {
    0x3f800000, 0xbf800000, 0x3f800001, 0x3f7fffff, /* near one */
    0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000, /* largest, infinite */
    0x4b000001, 0x4b000003, 0x3f000000, 0xc0200000, /* ties */
    0x477fefff, 0x477ff000, 0x33000000, 0x33000001, /* limits of F16 */
    0x3f808000, 0x3f818000, 0x1f800000, 0x5f000000, /* ties in BF16 */
    0xc2cf0000, 0x42b17218, 0x41200000, 0xc1200000, /* limits of exp, of tanh */
};

static float as_float(uint32_t u)
{
    float x;

    memcpy(&x, &u, sizeof x);
    return x;
}

/* Maps u to a value from -n to n. */
static float uniform(uint32_t u, float n)
{
    return (float)((double)(int32_t)u * 0x1p-31) * n;
}

static float value(struct selftest_case *t, enum trial_values v)
{
    uint32_t which = trial_draw(t), u = trial_draw(t);

    if (v == VALUES_ABOVE)
        return 2.5f + uniform(u, 1.5f);
    if (which >> 28 == 0)
        return as_float(small[which % (sizeof small / sizeof *small)]);
    if (v == VALUES_UNIT)
        return uniform(u, 1);
    if (v == VALUES_MILD)
        return uniform(u, which >> 28 == 1 ? 64 : 4);
    if (which >> 30 == 1)
        return as_float(other[which % (sizeof other / sizeof *other)]);
    if (which >> 30 == 2 && (u & 0x7f800000) != 0x7f800000)
        return as_float(u);
    return uniform(u, 4);
}

void *trial_values(struct selftest_case *t, enum trial_values v, pl_format f,
                   int64_t n)
{
    size_t size = f == PL_F32 ? 4 : 2;
    unsigned char *p = trial_room(t, (size_t)n * size);

    for (int64_t i = 0; i < n && !t->dry; i++) {
        float x = value(t, v);
        uint16_t h;

        /* these 64 values are zero, so that a quantization block has only
         * zeros */
        if (i / 64 == 4 && v != VALUES_WILD)
            x = 0;
        h = f == PL_F16 ? f32_to_f16(x) : f32_to_bf16(x);
        memcpy(p + (size_t)i * size, f == PL_F32 ? (void *)&x : (void *)&h,
               size);
    }
    return p;
}

/* ---- tokens -------------------------------------------------------------- */

void trial_tokens(struct selftest_case *t, const struct trial_tokens *k,
                  bool states, int64_t n_page)
{
    int32_t *pos = trial_room(t, (size_t)k->n_tok * sizeof *pos);
    int32_t *seq = trial_room(t, (size_t)k->n_tok * sizeof *seq);
    int n = k->n_seq * k->stride;
    int32_t *pages = trial_room(t, (size_t)n * sizeof *pages);

    for (int i = 0; i < k->n_tok; i++) {
        seq[i] = i * k->n_seq / k->n_tok;
        pos[i] =
            i > 0 && seq[i] == seq[i - 1] ? pos[i - 1] + 1 : k->first + seq[i];
    }
    for (int i = 0; i < n; i++)
        pages[i] =
            (int32_t)n_page - 1 - (i % k->stride * k->n_seq + i / k->stride);
    for (int i = 0; i < k->n_seq && states; i++) {
        pages[i * k->stride + STATE_READ] = 2 * i;
        pages[i * k->stride + STATE_WRITTEN] = 2 * i + 1;
        pages[i * k->stride + STATE_AT] = i % 2 ? 0 : k->first + i;
    }
    t->table = (struct token_table){.n_tok = k->n_tok,
                                    .n_out = k->n_tok,
                                    .pos = pos,
                                    .seq = seq,
                                    .pages = pages,
                                    .page_stride = k->stride};
}
