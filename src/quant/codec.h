/* Declares the decoders and encoders to which the table of formats (format.c)
 * refers; internal to src/quant. struct format_info says what they do. */
#ifndef QUANT_CODEC_H
#define QUANT_CODEC_H

#include <stdint.h>

/* X(format, name): calls X for each format that has a decoder based on block.h;
 * `name` is the format's name in function names. */
#define CODEC_BLOCK_MAP(X)                                                     \
    X(Q8_0, q8_0)                                                              \
    X(Q4_0, q4_0)                                                              \
    X(Q4_1, q4_1)                                                              \
    X(Q5_0, q5_0)                                                              \
    X(Q5_1, q5_1)                                                              \
    X(Q2_K, q2_k)                                                              \
    X(Q3_K, q3_k)                                                              \
    X(Q4_K, q4_k)                                                              \
    X(Q5_K, q5_k)                                                              \
    X(Q6_K, q6_k)                                                              \
    X(IQ4_NL, iq4_nl)                                                          \
    X(IQ4_XS, iq4_xs)                                                          \
    X(MXFP4, mxfp4)                                                            \
    X(IQ1_S, iq1_s)                                                            \
    X(IQ1_M, iq1_m)                                                            \
    X(IQ2_XXS, iq2_xxs)                                                        \
    X(IQ2_XS, iq2_xs)                                                          \
    X(IQ2_S, iq2_s)                                                            \
    X(IQ3_XXS, iq3_xxs)                                                        \
    X(IQ3_S, iq3_s)                                                            \
    X(TQ1_0, tq1_0)                                                            \
    X(TQ2_0, tq2_0)                                                            \
    X(NVFP4, nvfp4)

#define CODEC_DECODE(format, name)                                             \
    void quant_decode_##name(float *dst, const void *src, int64_t n);
CODEC_BLOCK_MAP(CODEC_DECODE)
#undef CODEC_DECODE
void quant_decode_f32(float *dst, const void *src, int64_t n);
void quant_decode_f16(float *dst, const void *src, int64_t n);
void quant_decode_bf16(float *dst, const void *src, int64_t n);
/* Rounds each integer to the nearest float. */
void quant_decode_i32(float *dst, const void *src, int64_t n);

void quant_encode_f32(void *dst, const float *src, int64_t n);
void quant_encode_f16(void *dst, const float *src, int64_t n);
void quant_encode_bf16(void *dst, const float *src, int64_t n);
void quant_encode_q8_0(void *dst, const float *src, int64_t n);
void quant_encode_q4_0(void *dst, const float *src, int64_t n);

#endif
