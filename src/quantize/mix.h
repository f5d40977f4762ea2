/* Mixes: rules that choose a format for each tensor of a model, by the names
 * that llama-quantize has for them ("Q4_K_M").
 *
 * A mix has one format for most matrices. Where errors do most harm it has one
 * with more bits: the values of attention, ffn_down of the first and last
 * layers, the output matrix. The rules are those that llama-quantize is known
 * for, so that a file has the formats that its name promises. */
#ifndef QUANTIZE_MIX_H
#define QUANTIZE_MIX_H

#include "gguf/gguf.h"

/* X(name, number in general.file_type, format of most matrices) */
#define MIX_MAP(X)                                                             \
    X(F32, 0, F32)                                                             \
    X(F16, 1, F16)                                                             \
    X(BF16, 32, BF16)                                                          \
    X(Q8_0, 7, Q8_0)                                                           \
    X(Q6_K, 18, Q6_K)                                                          \
    X(Q5_K_M, 17, Q5_K)                                                        \
    X(Q5_K_S, 16, Q5_K)                                                        \
    X(Q4_K_M, 15, Q4_K)                                                        \
    X(Q4_K_S, 14, Q4_K)                                                        \
    X(Q3_K_L, 13, Q3_K)                                                        \
    X(Q3_K_M, 12, Q3_K)                                                        \
    X(Q3_K_S, 11, Q3_K)                                                        \
    X(Q2_K, 10, Q2_K)                                                          \
    X(Q2_K_S, 21, Q2_K)                                                        \
    X(Q5_1, 9, Q5_1)                                                           \
    X(Q5_0, 8, Q5_0)                                                           \
    X(Q4_1, 3, Q4_1)                                                           \
    X(Q4_0, 2, Q4_0)                                                           \
    X(IQ4_NL, 25, IQ4_NL)                                                      \
    X(IQ4_XS, 30, IQ4_XS)                                                      \
    X(IQ3_M, 27, IQ3_S)                                                        \
    X(IQ3_S, 26, IQ3_S)                                                        \
    X(IQ3_XS, 22, IQ3_S)                                                       \
    X(IQ3_XXS, 23, IQ3_XXS)                                                    \
    X(IQ2_M, 29, IQ2_S)                                                        \
    X(IQ2_S, 28, IQ2_XS)                                                       \
    X(IQ2_XS, 20, IQ2_XS)                                                      \
    X(IQ2_XXS, 19, IQ2_XXS)                                                    \
    X(IQ1_M, 31, IQ1_M)                                                        \
    X(IQ1_S, 24, IQ1_S)                                                        \
    X(TQ1_0, 36, TQ1_0)                                                        \
    X(TQ2_0, 37, TQ2_0)                                                        \
    X(MXFP4_MOE, 38, MXFP4)                                                    \
    X(MXFP4, 38, MXFP4)                                                        \
    X(NVFP4, 39, NVFP4)

enum mix {
#define MIX_ENUM(name, number, format) MIX_##name,
    MIX_MAP(MIX_ENUM)
#undef MIX_ENUM
        MIX_COUNT
};

/* Returns the mix with this name, in upper or lower case, or with this number
 * as text. "Q3_K", "Q4_K" and "Q5_K" mean the mixes with _M. Returns MIX_COUNT
 * if there is none. */
enum mix mix_find(const char *name);
const char *mix_name(enum mix m);
uint32_t mix_number(enum mix m);
pl_format mix_format(enum mix m);

/* Chooses by rule the format of each tensor of a model, if its width were to
 * fit: to[gguf_n_tensor()]. Tensors that mix_quantizes() excludes get
 * PL_FORMAT_COUNT. `imatrix` says whether importances are known. */
pl_status mix_plan(enum mix m, const struct gguf *g, bool pure, bool imatrix,
                   pl_format *to, pl_err *err);

/* Returns true if a tensor of this name embeds tokens. */
bool mix_is_embedding(const char *name);

/* Returns true if a tensor is quantized at all: a matrix of weights that is
 * neither a norm nor a router, nor small. */
bool mix_quantizes(const struct gguf_tensor *t);

/* Returns `f`, or the format that replaces it in tensors whose width is not a
 * multiple of its block. */
pl_format mix_fitting(pl_format f, int64_t width);

/* Returns true if the format is so small that a tensor of the mix needs
 * importances. */
bool mix_needs_imatrix(enum mix m, pl_format f, const char *tensor);

#endif
