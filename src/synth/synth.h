/* Synthetic models: GGUF files with the shape of a known model and random
 * weights. Their output is meaningless, but every byte is read and multiplied
 * as in a real model, so they show how fast a machine is. */
#ifndef SYNTH_SYNTH_H
#define SYNTH_SYNTH_H

#include "gguf/gguf_write.h"

/* The sizes of a model with Kimi delta attention and latent attention. */
struct synth_kda {
    int64_t d_head;  /* width of a head of Kimi delta attention, and of the
                        latents of its gates */
    int64_t kv_rank; /* width of the latents of latent attention */
    /* widths of its keys, of the part of them that is not computed from
     * latents, and of its values */
    int64_t d_key, n_rot, d_value;
    /* number of leading layers without experts; width of their part */
    int64_t n_dense, d_dense;
    float routed; /* factor of the weights of experts */
};

/* The parts of a model with Mamba-2 blocks or Kimi delta attention. */
struct synth_scan {
    /* One letter per layer: M for a block, K for Kimi delta attention, * for
     * attention, - for a feed-forward part alone. */
    const char *parts;
    bool single; /* layers with M or * have no feed-forward part, and such parts
                    have no gate */
    int64_t n_head, d_head, n_group, d_state; /* of Mamba-2; 0 if none */
    const struct synth_kda *kda;              /* NULL if none */
};

/* The shape of a synthetic model, of the families llama, qwen3, qwen3moe,
 * qwen35 or qwen35moe, or of one with the tensors of llama or of its
 * experts, with Mamba-2 blocks or without, or of kimi-linear. */
struct synth_shape {
    const char *name; /* name of the shape, such as "qwen3-8b" */
    const char *arch; /* value of the key general.architecture */
    int64_t n_layer, d_model, n_head, n_head_kv, d_head;
    int64_t d_ff; /* width of the feed-forward part, or of an expert if there
                     are experts */
    int64_t n_expert, n_used; /* number of experts, and of those used per token;
                                 0 for shapes without experts */
    int64_t n_vocab;
    bool tied; /* the token embedding is also the output matrix */
    /* For qwen35 and qwen35moe, else 0: number of key heads and of value heads
     * of the delta nets, which three of four layers contain; width of these
     * heads; width of the shared expert, 0 if there is none. */
    int64_t n_key, n_value, d_delta, d_shared;
    const struct synth_scan *scan; /* NULL for families without Mamba-2 and Kimi
                                      delta attention */
};

/* The formats of a synthetic model's matrices. Vectors and routers are F32. */
struct synth_type {
    const char *name; /* name of the type, such as "q4_k_m" */
    pl_format most;   /* format of all matrices that have no format of their own
                         below */
    pl_format some;   /* format of attn_v and ffn_down in about half of the
                         layers */
    pl_format output; /* format of the output matrix */
};

/* Returns the shape with this name. If there is none, returns NULL and sets an
 * error that lists the known names. */
const struct synth_shape *synth_shape(const char *name, pl_err *err);
/* Sets *t to the type with this name, in upper or lower case. The name of a
 * format ("q4_0", "bf16") is also a type: all matrices have this format, but
 * the output matrix is Q6_K where llama.cpp gives it more bits. */
pl_status synth_type(struct synth_type *t, const char *name, pl_err *err);

/* The caller's progress function and cancellation flag, used while a file is
 * written. */
struct synth_watch {
    pl_progress_fn *progress; /* called with the bytes written so far; may be
                                 NULL */
    void *user;
    const volatile int *cancel; /* another thread may set it to nonzero to stop
                                   the writing; may be NULL */
};

/* Writes a synthetic model to a GGUF file. The same arguments always produce
 * the same bytes. With `hole`, weights and vocabulary are left as holes, so
 * that the file takes no disk space; that suffices for plans. */
pl_status synth_save(const struct synth_shape *s, const struct synth_type *t,
                     const char *path, bool hole,
                     const struct synth_watch *watch, pl_err *err);
/* Returns the size of all weights in bytes. */
uint64_t synth_bytes(const struct synth_shape *s, const struct synth_type *t);

/* ---- vocabulary: synth_words.c ------------------------------------------- */

/* Adds a byte-pair (BPE) vocabulary of n_vocab tokens to the file. n_vocab must
 * be at least 257. */
pl_status synth_words(struct gguf_writer *out, int64_t n_vocab, pl_err *err);

/* ---- random values: synth_fill.c ----------------------------------------- */

/* A generator of the random values of one tensor. */
struct synth_fill {
    pl_format format;
    uint64_t random; /* state of the random number generator */
    /* For formats with blocks: the bytes of a block's scales, which replace
     * random bits so that values have about the requested size. */
    struct synth_scale {
        /* Offsets in bytes of the scale d and of the minimum dmin in a block;
         * -1 if the block has none. */
        int at, min_at;
        unsigned char d[8];    /* the bytes of d, which are written at offset
                                  `at` */
        unsigned char keep[8]; /* masks of the bits in these bytes that stay
                                  random */
        unsigned char dmin[2]; /* the bytes of dmin, which are written at offset
                                  `min_at` */
        int bytes;             /* number of bytes of the scale in d[] */
    } scale;
    /* for float formats: mask of the bits that are random, and the constant
     * bits, which are the exponent */
    uint32_t sign_and_mantissa, exponent;
};

/* Starts a generator of values of a format whose root mean square is about
 * `size`. Tensors have different seeds. */
void synth_fill_init(struct synth_fill *f, pl_format format, double size,
                     uint64_t seed);
/* Starts a generator of F32 weights of a norm, slightly above 1. */
void synth_fill_norm(struct synth_fill *f, uint64_t seed);
/* Starts a generator of F32 decay weights of a delta net, slightly below -1. */
void synth_fill_decay(struct synth_fill *f, uint64_t seed);
/* Writes the next `bytes` bytes of the generator's values, a whole number of
 * blocks, to `dst`. */
void synth_fill_row(struct synth_fill *f, void *dst, size_t bytes);

#endif
