/* Random weights in the blocks of a format. All bits of a block are random,
 * except its scales, which are constant. This is as fast as writing. The value
 * of the scales follows from the size of the values that a few blocks with a
 * known scale decode to. */
#include "synth/synth.h"

#include "base/half.h"
#include "quant/format.h"

#include <math.h>
#include <string.h>

/* For each block format, the offsets in bytes of a block's scale d and of its
 * minimum, -1 if it has no minimum. The minimum is added or, in K-quants,
 * subtracted. Where codes are unsigned, a minimum of `middle` times d, half of
 * the codes' range, gives values a mean of zero. */
static const struct place {
    pl_format format;
    int at, min_at;
    enum { HALF, E8M0, UE4M3X4, NIBBLES } form; /* encoding of the scale d */
    float middle;
} places[] = {
    {PL_Q8_0, 0, -1, HALF, 0},      {PL_Q4_0, 0, -1, HALF, 0},
    {PL_Q4_1, 0, 2, HALF, -7.5f},   {PL_Q5_0, 0, -1, HALF, 0},
    {PL_Q5_1, 0, 2, HALF, -15.5f},  {PL_Q2_K, 80, 82, HALF, 1.5f},
    {PL_Q3_K, 108, -1, HALF, 0},    {PL_Q4_K, 0, 2, HALF, 7.5f},
    {PL_Q5_K, 0, 2, HALF, 15.5f},   {PL_Q6_K, 208, -1, HALF, 0},
    {PL_IQ4_NL, 0, -1, HALF, 0},    {PL_IQ4_XS, 0, -1, HALF, 0},
    {PL_MXFP4, 0, -1, E8M0, 0},     {PL_IQ1_S, 0, -1, HALF, 0},
    {PL_IQ1_M, 48, -1, NIBBLES, 0}, {PL_IQ2_XXS, 0, -1, HALF, 0},
    {PL_IQ2_XS, 0, -1, HALF, 0},    {PL_IQ2_S, 0, -1, HALF, 0},
    {PL_IQ3_XXS, 0, -1, HALF, 0},   {PL_IQ3_S, 0, -1, HALF, 0},
    {PL_TQ1_0, 52, -1, HALF, 0},    {PL_TQ2_0, 64, -1, HALF, 0},
    {PL_NVFP4, 0, -1, UE4M3X4, 0},
};

/* Returns the next random number of SplitMix64 (Steele, Lea and Flood 2014),
 * whose state is *s. */
static uint64_t draw(uint64_t *s)
{
    uint64_t z = *s += 0x9E3779B97F4A7C15;

    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
}

static void set_half(unsigned char p[2], float v)
{
    uint16_t h = f32_to_f16(v);

    p[0] = (unsigned char)h;
    p[1] = (unsigned char)(h >> 8);
}

/* Returns the unsigned E4M3 number that is nearest to d, as its 8 bits, but
 * never 0. */
static unsigned char ue4m3(double d)
{
    int e = (int)floor(log2(d));
    long x =
        e < -6 ? lrint(ldexp(d, 9)) : 8 * (e + 7) + lrint(ldexp(d, 3 - e)) - 8;

    return (unsigned char)(x < 1 ? 1 : x > 126 ? 126 : x);
}

static void set_scale(struct synth_scale *s, const struct place *p, double d)
{
    unsigned char half[2];

    *s = (struct synth_scale){.at = p->at, .min_at = p->min_at, .bytes = 2};
    set_half(half, (float)d);
    set_half(s->dmin, p->middle * (float)d);
    switch (p->form) {
    case HALF:
        memcpy(s->d, half, sizeof half);
        break;
    case E8M0: /* a scale that is a power of two: its exponent plus 127 */
        s->d[0] = (unsigned char)(127 + (int)lrint(log2(d)));
        s->bytes = 1;
        break;
    case UE4M3X4: /* four scales of 8 bits: 4 exponent and 3 fraction bits */
        memset(s->d, ue4m3(d), 4);
        s->bytes = 4;
        break;
    /* The 16-bit scale is spread over four words: 4 of its bits at the top of
     * each. The other 12 bits of a word stay random. */
    case NIBBLES:
        for (int i = 0; i < 4; i++) {
            s->d[2 * i + 1] = (unsigned char)(half[i / 2] >> 4 * (i % 2) << 4);
            s->keep[2 * i] = 0xff;
            s->keep[2 * i + 1] = 0x0f;
        }
        s->bytes = 8;
        break;
    }
}

/* Returns the root mean square of the values that f generates with its present
 * scales, measured on a few blocks. */
static double measured(struct synth_fill f)
{
    enum { BLOCKS = 64, MOST_BYTES = 256, MOST_VALUES = 256 };
    const struct format_info *fi = format_info(f.format);
    unsigned char block[MOST_BYTES];
    float v[MOST_VALUES];
    double sum = 0;

    for (int i = 0; i < BLOCKS; i++) {
        synth_fill_row(&f, block, (size_t)fi->block_bytes);
        fi->decode(v, block, fi->block);
        for (int k = 0; k < fi->block; k++)
            sum += (double)v[k] * v[k];
    }
    return sqrt(sum / BLOCKS / fi->block);
}

/* Sets f to generate floats of either sign between 2^e and 2^(e+1), whose root
 * mean square is about 1.5 times 2^e. Chooses e so that this is about
 * `size`. */
static void set_float(struct synth_fill *f, double size)
{
    uint32_t e = (uint32_t)(127 + (int)lrint(log2(size / 1.5)));

    if (f->format == PL_F16) {
        f->sign_and_mantissa = 0x83ff83ff;
        f->exponent = (e - 112) << 10 | (e - 112) << 26;
    } else if (f->format == PL_BF16) {
        f->sign_and_mantissa = 0x807f807f;
        f->exponent = e << 7 | e << 23;
    } else {
        f->sign_and_mantissa = 0x807fffff;
        f->exponent = e << 23;
    }
}

void synth_fill_init(struct synth_fill *f, pl_format format, double size,
                     uint64_t seed)
{
    *f = (struct synth_fill){.format = format, .random = seed << 32};
    if (format_info(format)->block == 1)
        set_float(f, size);
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        if (places[i].format != format)
            continue;
        set_scale(&f->scale, &places[i], 1);
        set_scale(&f->scale, &places[i], size / measured(*f));
    }
}

void synth_fill_norm(struct synth_fill *f, uint64_t seed)
{
    *f = (struct synth_fill){.format = PL_F32,
                             .random = seed << 32,
                             .sign_and_mantissa = 0x000fffff,
                             .exponent = 127u << 23};
}

void synth_fill_decay(struct synth_fill *f, uint64_t seed)
{
    synth_fill_norm(f, seed);
    f->sign_and_mantissa &= 0x7fffffff;
    f->exponent |= 0x80000000;
}

void synth_fill_experts(struct synth_fill *f, int64_t n_expert, uint64_t seed)
{
    *f = (struct synth_fill){
        .format = PL_I32, .random = seed, .n_expert = n_expert};
}

void synth_fill_row(struct synth_fill *f, void *dst, size_t bytes)
{
    const struct format_info *fi = format_info(f->format);
    const struct synth_scale *s = &f->scale;
    unsigned char *b = dst;
    uint64_t mask = f->sign_and_mantissa | (uint64_t)f->sign_and_mantissa << 32;
    uint64_t set = f->exponent | (uint64_t)f->exponent << 32;

    if (f->n_expert > 0) {
        for (size_t i = 0; i < bytes; i += sizeof(int32_t)) {
            int32_t v = (int32_t)(f->random++ % (uint64_t)f->n_expert);

            memcpy(b + i, &v, sizeof v);
        }
        return;
    }
    if (fi->block > 1) {
        mask = UINT64_MAX;
        set = 0;
    }
    for (size_t i = 0; i < bytes; i += 8) {
        uint64_t v = (draw(&f->random) & mask) | set;

        /* Codes of TQ2_0 have two bits. Clears the upper one if both are set,
         * because the format has no code 3. */
        if (f->format == PL_TQ2_0)
            v &= ~((v & 0x5555555555555555) << 1);
        memcpy(b + i, &v, bytes - i < 8 ? bytes - i : 8);
    }
    for (size_t i = 0; fi->block > 1 && i < bytes;
         i += (size_t)fi->block_bytes) {
        for (size_t j = 0; j < (size_t)s->bytes; j++) {
            unsigned char *p = b + i + s->at + j;

            *p = (unsigned char)((*p & s->keep[j]) | s->d[j]);
        }
        if (s->min_at >= 0)
            memcpy(b + i + s->min_at, s->dmin, 2);
    }
}
