/* Synthetic models: GGUF files with the shape of a known model and random
 * weights. Their output is meaningless, but every byte is read and multiplied
 * as in a real model, so they show how fast a machine is. */
#ifndef SYNTH_SYNTH_H
#define SYNTH_SYNTH_H

#include "gguf/gguf_write.h"

/* A model shape of the families llama, qwen3, qwen3moe, qwen35 or qwen35moe. */
struct synth_shape {
    const char *name; /* "qwen3-8b" */
    const char *arch; /* value of the key general.architecture */
    int64_t n_layer, d_model, n_head, n_head_kv, d_head;
    int64_t d_ff; /* width of the feed-forward part, or of an expert */
    int64_t n_expert, n_used; /* 0 for shapes without experts */
    int64_t n_vocab;
    bool tied; /* the embedding is also the output matrix */
    /* qwen35 only, else 0: the key heads and value heads of the delta nets,
     * which three of four layers contain; the width of these heads; and the
     * width of the shared expert, 0 if none. */
    int64_t n_key, n_value, d_delta, d_shared;
};

/* The format of each matrix. Vectors and routers are F32. */
struct synth_type {
    const char *name; /* "q4_k_m" */
    pl_format most;   /* format of most matrices */
    pl_format some;   /* format of attn_v and ffn_down in half of the layers */
    pl_format output; /* format of the output matrix */
};

/* Returns the shape with this name. If there is none, returns NULL and sets an
 * error that lists the known names. */
const struct synth_shape *synth_shape(const char *name, pl_err *err);
/* Sets *t to the type with this name, in upper or lower case. The name of a
 * format ("q4_0", "bf16") is also a type: all matrices have this format, but
 * the output matrix is Q6_K where llama.cpp gives it more bits. */
pl_status synth_type(struct synth_type *t, const char *name, pl_err *err);

/* Progress and cancellation while a file is written. */
struct synth_watch {
    pl_progress_fn *progress; /* may be NULL */
    void *user;
    const volatile int *cancel; /* nonzero stops writing; may be NULL */
};

/* Writes the file. The same arguments always produce the same bytes. With
 * `hole`, weights and vocabulary are not written and the file takes no disk
 * space, which suffices for plans. */
pl_status synth_save(const struct synth_shape *s, const struct synth_type *t,
                     const char *path, bool hole,
                     const struct synth_watch *watch, pl_err *err);
/* Returns the size of all weights in bytes. */
uint64_t synth_bytes(const struct synth_shape *s, const struct synth_type *t);

/* ---- synth_words.c ------------------------------------------------------- */

/* Adds a byte-pair (BPE) vocabulary of n_vocab tokens to the file. n_vocab must
 * be at least 257. */
pl_status synth_words(struct gguf_writer *out, int64_t n_vocab, pl_err *err);

/* ---- synth_fill.c -------------------------------------------------------- */

/* Generates random values of one tensor. */
struct synth_fill {
    pl_format format;
    uint64_t random; /* state of the random number generator */
    /* For block formats: the bytes that replace the drawn bits of a block's
     * scales, so that values have about the requested size. */
    struct synth_scale {
        int at, min_at;     /* offsets of d and dmin in a block; -1 if none */
        unsigned char d[8]; /* the bytes to write at `at` */
        unsigned char keep[8]; /* mask of their bits that stay as drawn */
        unsigned char dmin[2]; /* the bytes to write at `min_at` */
        int bytes;             /* number of bytes in d */
    } scale;
    /* floats: mask of the bits that are drawn, and the bits that are set */
    uint32_t sign_and_mantissa, exponent;
};

/* Starts a generator of values whose root mean square is about `size`. Each
 * tensor has its own `seed`. */
void synth_fill_init(struct synth_fill *f, pl_format format, double size,
                     uint64_t seed);
/* Starts a generator of F32 norm weights, slightly above 1. */
void synth_fill_norm(struct synth_fill *f, uint64_t seed);
/* Starts a generator of F32 decays, slightly below -1. */
void synth_fill_decay(struct synth_fill *f, uint64_t seed);
/* Writes the next `bytes` bytes of values, a whole number of blocks. */
void synth_fill_row(struct synth_fill *f, void *dst, size_t bytes);

#endif
