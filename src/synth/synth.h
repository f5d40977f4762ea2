/* Synthetic models: GGUF files with the shape of a known model and random
 * weights. Their output is meaningless, but every byte is read and multiplied
 * as in a real model, so they show how fast a machine is. */
#ifndef SYNTH_SYNTH_H
#define SYNTH_SYNTH_H

#include "gguf/gguf_write.h"

/* A key with a number per layer: `value` in layers whose letter in `layers` is
 * `letter`, `other_value` in those with the letter `other`, else 0. */
struct synth_array {
    const char *key, *layers;
    char letter;
    int64_t value;
    char other;
    int64_t other_value;
};

/* The shape of a synthetic model: of the families llama, qwen3 and qwen3moe,
 * or of one with the same tensors, by its sizes; of other families by keys. */
struct synth_shape {
    const char *name; /* name of the shape, such as "qwen3-8b" */
    const char *arch; /* value of the key general.architecture */
    int64_t n_vocab;
    const char *keys; /* in the notation of gguf_override; NULL if the shape is
                         given by the sizes below */
    /* the optional tensors that its files have, as model_weights takes them */
    const char *optional;
    const struct synth_array *array; /* [n_array] */
    int n_array;
    bool tied; /* the token embedding is also the output matrix */
    int64_t n_layer, d_model, n_head, n_head_kv, d_head;
    int64_t d_ff; /* width of the feed-forward part, or of an expert if there
                     are experts */
    int64_t n_expert, n_used; /* number of experts, and of those used per token;
                                 0 for shapes without experts */
};

/* The formats of a synthetic model's matrices. Vectors, routers, convolutions
 * and tables are F32. */
struct synth_type {
    const char *name; /* name of the type, such as "q4_k_m" */
    pl_format most;   /* format of all matrices that have no format of their own
                         below */
    pl_format some;   /* format of attn_v and ffn_down in about half of the
                         layers */
    pl_format output; /* format of the output matrix */
};

/* Returns shape i of the table of known shapes, NULL after the last. */
const struct synth_shape *synth_shape_at(int i);
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
/* Sets *bytes to the size of all weights. */
pl_status synth_bytes(const struct synth_shape *s, const struct synth_type *t,
                      uint64_t *bytes, pl_err *err);

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
    int64_t n_expert; /* for a table of experts, else 0 */
};

/* Starts a generator of values of a format whose root mean square is about
 * `size`. Tensors have different seeds. */
void synth_fill_init(struct synth_fill *f, pl_format format, double size,
                     uint64_t seed);
/* Starts a generator of F32 weights of a norm, slightly above 1. */
void synth_fill_norm(struct synth_fill *f, uint64_t seed);
/* Starts a generator of F32 decay weights of a delta net, slightly below -1. */
void synth_fill_decay(struct synth_fill *f, uint64_t seed);
/* Starts a generator of a table of experts, numbers below n_expert.
 * Adjacent ones differ. */
void synth_fill_experts(struct synth_fill *f, int64_t n_expert, uint64_t seed);
/* Writes the next `bytes` bytes of the generator's values, a whole number of
 * blocks, to `dst`. */
void synth_fill_row(struct synth_fill *f, void *dst, size_t bytes);

#endif
