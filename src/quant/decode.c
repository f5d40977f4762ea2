/* Reference decoders: blocks of GGUF files to floats. All quantized formats
 * share one decoder. It reads the codes and scales of each tile of a block
 * (block.c) and computes the values by the formula of pack.h. Kernels do not
 * use it, because they read packed weights. */
#include "quant/codec.h"

#include <string.h>

#include "base/half.h"
#include "quant/pack.h"

static void decode_blocks(pl_format f, float *dst, const void *src, int64_t n)
{
    const struct format_info *fi = format_info(f);
    const uint8_t *block = src;

    for (; n > 0; n -= fi->block, block += fi->block_bytes) {
        for (int t = 0; t < fi->block / 32; t++, dst += 32) {
            struct quant_lane l = {0};
            struct pack_scales s;

            fi->pack->move((void *)block, t, &l, false);
            pack_lane_scales(fi->pack, &l, &s);
            pack_values(fi->pack, &s, l.c, dst);
        }
    }
}

#define DECODE(format, name)                                                   \
    void quant_decode_##name(float *dst, const void *src, int64_t n)           \
    {                                                                          \
        decode_blocks(PL_##format, dst, src, n);                               \
    }
CODEC_BLOCK_MAP(DECODE)
#undef DECODE

void quant_decode_f32(float *dst, const void *src, int64_t n)
{
    memcpy(dst, src, (size_t)n * sizeof *dst);
}

/* Copies each element with memcpy before it is converted, because rows in a
 * file may be unaligned. */
void quant_decode_f16(float *dst, const void *src, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint16_t h;

        memcpy(&h, (const char *)src + i * 2, sizeof h);
        dst[i] = f16_to_f32(h);
    }
}

void quant_decode_bf16(float *dst, const void *src, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint16_t h;

        memcpy(&h, (const char *)src + i * 2, sizeof h);
        dst[i] = bf16_to_f32(h);
    }
}

void quant_decode_i32(float *dst, const void *src, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        int32_t v;

        memcpy(&v, (const char *)src + i * 4, sizeof v);
        dst[i] = (float)v;
    }
}
