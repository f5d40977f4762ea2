/* Synthetic models: the shape of a known model with random weights, as a GGUF
 * file. Their output is meaningless, but every byte is read and multiplied as
 * in a real model, so they show how fast a machine is. */
#ifndef SYNTH_SYNTH_H
#define SYNTH_SYNTH_H

#include "gguf/gguf_write.h"

/* Shapes of the families llama, qwen3 and qwen3moe. */
struct synth_shape {
    const char *name; /* "qwen3-8b" */
    const char *arch; /* qwen3moe if it has experts */
    int64_t n_layer, d_model, n_head, n_head_kv, d_head;
    int64_t d_ff;             /* of an expert, if there are any */
    int64_t n_expert, n_used; /* 0: none */
    int64_t n_vocab;
    bool tied; /* the embedding is also the output matrix */
    /* qwen35: key heads and value heads of delta nets, which three of four
     * layers have, their width, and a shared expert's width; 0: none. */
    int64_t n_key, n_value, d_delta, d_shared;
};

/* The format of each matrix. Vectors and routers are F32. */
struct synth_type {
    const char *name; /* "q4_k_m" */
    pl_format most;   /* of most matrices */
    pl_format some;   /* of half of attn_v and ffn_down */
    pl_format output; /* of the output matrix */
};

/* Returns NULL if the name is unknown; the error then lists the known ones. */
const struct synth_shape *synth_shape(const char *name, pl_err *err);
/* Finds a type by name, in any case. A format alone ("q4_0", "bf16") is a type
 * too: all matrices have it, except the output's if llama.cpp gives that more
 * bits. */
pl_status synth_type(struct synth_type *t, const char *name, pl_err *err);

/* Progress and cancellation while a file is written. */
struct synth_watch {
    pl_progress_fn *progress; /* may be NULL */
    void *user;
    const volatile int *cancel; /* nonzero stops; may be NULL */
};

/* Writes the file; the same each time. With `hole`, weights and tokens are not
 * written and the file takes no space: enough for plans. */
pl_status synth_save(const struct synth_shape *s, const struct synth_type *t,
                     const char *path, bool hole,
                     const struct synth_watch *watch, pl_err *err);
/* Returns the bytes of all weights. */
uint64_t synth_bytes(const struct synth_shape *s, const struct synth_type *t);

/* ---- synth_words.c ------------------------------------------------------- */

/* Writes a vocabulary of byte pairs with n_vocab tokens, at least 257. */
pl_status synth_words(struct gguf_writer *out, int64_t n_vocab, pl_err *err);

/* ---- synth_fill.c -------------------------------------------------------- */

/* Generates random values of one tensor. */
struct synth_fill {
    pl_format format;
    uint64_t random; /* the state of the generator */
    /* Block formats: the position of a block's scales, and the bytes to write
     * there, so that values have about the requested size. */
    struct synth_scale {
        int at, min_at;        /* byte in the block; -1: none */
        unsigned char d[8];    /* bytes of d, in whatever form, */
        unsigned char keep[8]; /* the bits among them that are not d's, */
        unsigned char dmin[2]; /* and of dmin */
        int bytes;             /* of d */
    } scale;
    uint32_t sign_and_mantissa, exponent; /* floats: bits drawn, bits set */
};

/* Starts values whose root mean square is about `size`; `seed` distinguishes
 * tensors. */
void synth_fill_init(struct synth_fill *f, pl_format format, double size,
                     uint64_t seed);
/* The same for an F32 vector of norms: a little more than 1. */
void synth_fill_norm(struct synth_fill *f, uint64_t seed);
/* The same for a vector of decays: a little less than -1. */
void synth_fill_decay(struct synth_fill *f, uint64_t seed);
/* Writes the next values; bytes is a whole number of blocks. */
void synth_fill_row(struct synth_fill *f, void *dst, size_t bytes);

#endif
