/* Programs as text, those of all devices of a set in one, and back: a line a
 * tensor, then a line a step, steps of all devices in their total order.
 *
 *   programs 2                           # how many devices; the first line
 *   max n_tok 4 n_out 4                  # n_slot, n_seq, page_stride
 *   device 0 work 512 events 3           # idle, weights, cache, inbox, groups
 *     %0: f32[n_tok, 8]
 *     %1: f32[n_tok, 8] work @128 bytes 256 micro 1
 *     %2: q8_0[64, 32] weights packed    # f32[n_tok, 32] q8: struct q8_block
 *     %3: f32[8] inbox                   # its inbox, where peers write
 *   device 1
 *     %0: f32[n_tok, 8]
 *   script micro 2
 *     0 node 7: %1 = scale(%0) scale=2   # %1: a tensor of the line's device
 *     0: post 0
 *     1 copy: wait 0.0                   # 0.0: event 0 of device 0
 *     1 copy: pull %0 <- 0.%1@32 32*n_tok to 64
 *     1 copy if n_tok 2..: push 0.%3 <- %0 32
 *     0: dies 128 @0, %1                 # behind the device's step above
 *     0, 1: merge meet message; %0 <- sum(0.%0, 1.%0+) 16 x n_tok(32, 32)
 *
 * A step's line begins with its devices, of which each does it, and what is not
 * so: compute queue, place in the order behind the line above, micro-batch 0,
 * node -1, in every run (`0 copy order 9 micro 1 node 7 if n_tok 2..4:`; a
 * guard says n_tok or n_out and its least and greatest, `5..` or `..4`). Then
 * stands one of
 *
 *   TENSOR = KERNEL(TENSOR or -, ...) [ATTRIBUTE=VALUE ...] [stride N]
 *       [tree(RANK+, ...)] [out N] [depth N] [spans(LOG+N[@LOC]{RANK}, ...)]
 *       [heads(HEAD, ...)] [cost(MACS{RANK}, ...)]
 *   merge [meet [DEV, ...]] [group N] [message] [bytes DIM[+DIM]] [counted];
 *       TENSOR <- PIECES; TENSOR <- sum(TENSOR[@N][-DIM]+, ...) [depth N]
 *       PIECES; ...
 *   pull TENSOR [bytes N] [between_groups] <- PIECES
 *   push TENSOR[@N], ... [between_groups] <- PIECES      # all to each
 *   deal TENSOR[@N], ... [between_groups] <- PIECES      # a piece each
 *   pages TENSOR <- TENSOR table TENSOR heads(HEAD or -, ...) [tile N]
 *   post EVENT | wait DEV.EVENT, ... | dies BYTES @OFFSET or TENSOR, ...
 *
 *   PIECES  nothing, or with commas between: [TENSOR][@OFF] BYTES
 *           [x N(STRIDE, STRIDE)] [x N(STRIDE, STRIDE)] [to OFF], the outer
 *           loop first, the source's stride before the result's. In a sum they
 *           name no tensor. OFF is N, DIM or N+DIM: what stays and what grows
 *           with the run; DIM is N, n_tok, n_out, n_slot, n_slot1 ...
 *           (of the other pools), n_seq or N*n_tok ...
 *   packed  (rows N of N format F: K+N{RANK}, ...), as pack_init has them
 *
 * with as many '+' behind an entry of a tree or a sum as additions follow it,
 * and behind '-' what the staged part of a value does not begin with. A
 * meeting of several devices is one line, or lines one after another: it has
 * one place in the order. `counted` is meant for the first device of its line.
 * What is left out: bytes follow from format, dimensions and packing; tensors
 * lie one after another at multiples of 64, in the work region; regions, events
 * and groups are as large as need be; a tree is tree(0), of quantize tree(); a
 * packing has the tensor's rows and values; a span goes on where the one before
 * ends. Lines go on behind ',' and ';'; '#' begins a comment.
 *
 * Parsing looks at the form and at no law of programs: that is program_check.
 * What is printed is one canonical form. It reads back field by field, but for
 * what has no meaning (sources of a sum's pieces, the device of a POST, what is
 * left of a guard that lets every run pass), if its numbers keep the bounds of
 * the form: none negative, bytes up to 2^62, sizes and their factors below
 * 2^31. */
#ifndef PROGRAM_PROGRAM_TEXT_H
#define PROGRAM_PROGRAM_TEXT_H

#include "base/arena.h"
#include "program/program.h"

/* Writes p[n_dev]. BAD_ARGUMENT if they cannot be said: they do not number
 * their devices 0, 1, ..., have not the same scripts, use arguments otherwise
 * than kernels.def says, meet nobody or more than 64, have guards below zero or
 * heads that cannot be counted. */
pl_status program_print(const struct program *p, int n_dev, pl_write_fn *write,
                        void *user, pl_err *err);

/* Makes programs of text[len], which need not end in a zero; they and all that
 * they point to live in the arena. An error names line, column, what stands
 * there and what was expected. Kernels of ops of the caller's own are printed
 * and not read (UNSUPPORTED): they call a function, and a text has none. */
pl_status program_parse(struct program **out, int *n_dev, struct arena *a,
                        const char *text, size_t len, pl_err *err);

#endif
