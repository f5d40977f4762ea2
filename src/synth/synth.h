/* Synthetic models: the shape of a known model and random weights, as a GGUF
 * file. They say nothing, but every byte is read and multiplied as a real
 * model's would be, so they tell how fast a machine is. Their
 * words mean nothing. */
#ifndef SYNTH_SYNTH_H
#define SYNTH_SYNTH_H

#include "gguf/gguf_write.h"

/* Of the families llama, qwen3 and qwen3moe. */
struct synth_shape {
    const char *name; /* "qwen3-8b" */
    const char *arch; /* qwen3moe if it has experts */
    int64_t n_layer, d_model, n_head, n_head_kv, d_head;
    int64_t d_ff;             /* of an expert, where there are any */
    int64_t n_expert, n_used; /* 0: none */
    int64_t n_vocab;
    bool tied; /* the embedding is the output matrix too */
    /* Of qwen35: key heads and value heads of delta nets, which three layers of
     * four have, their width, and a shared expert's width; 0: none. */
    int64_t n_key, n_value, d_delta, d_shared;
};

/* Which format each matrix has. Vectors and routers are F32. */
struct synth_type {
    const char *name; /* "q4_k_m" */
    pl_format most;   /* of most matrices */
    pl_format some;   /* of half of attn_v and ffn_down */
    pl_format output; /* of the output matrix */
};

/* NULL if there is no such name; the error then lists those there are. */
const struct synth_shape *synth_shape(const char *name, pl_err *err);
/* Any case. A format alone ("q4_0", "bf16") is a type too: all matrices have
 * it, but for the output's where llama.cpp gives that more bits. */
pl_status synth_type(struct synth_type *t, const char *name, pl_err *err);

/* What is told while a file is written, and who may stop that. */
struct synth_watch {
    pl_progress_fn *progress; /* may be NULL */
    void *user;
    const volatile int *cancel; /* nonzero stops; may be NULL */
};

/* Writes the file; the same each time. With `hole` neither weights nor words
 * are written and the file takes no room: enough for plans. */
pl_status synth_save(const struct synth_shape *s, const struct synth_type *t,
                     const char *path, bool hole,
                     const struct synth_watch *watch, pl_err *err);
/* Bytes of all weights. */
uint64_t synth_bytes(const struct synth_shape *s, const struct synth_type *t);

/* ---- synth_words.c ------------------------------------------------------- */

/* A vocabulary of byte pairs, of n_vocab tokens, 257 at least. */
pl_status synth_words(struct gguf_writer *out, int64_t n_vocab, pl_err *err);

/* ---- synth_fill.c -------------------------------------------------------- */

/* Random values of one tensor. */
struct synth_fill {
    pl_format format;
    uint64_t random; /* the state of the generator */
    /* Of blocks: where their scales lie, and what to write there, so that
     * values are about as large as asked for. */
    struct synth_scale {
        int at, min_at;        /* byte of the block; -1: there is none */
        unsigned char d[8];    /* bytes of d, in whatever form, */
        unsigned char keep[8]; /* the bits that are not d's among them, */
        unsigned char dmin[2]; /* and of the least value's factor */
        int bytes;             /* of d */
    } scale;
    uint32_t sign_and_mantissa, exponent; /* of floats: bits drawn, bits set */
};

/* Values whose root mean square is about `size`; seed tells tensors apart. */
void synth_fill_init(struct synth_fill *f, pl_format format, double size,
                     uint64_t seed);
/* The same for a vector of norms, in F32: a little more than 1. */
void synth_fill_norm(struct synth_fill *f, uint64_t seed);
/* And for one of decays: a little less than -1. */
void synth_fill_decay(struct synth_fill *f, uint64_t seed);
/* Writes the next values; bytes is a whole number of blocks. */
void synth_fill_row(struct synth_fill *f, void *dst, size_t bytes);

#endif
