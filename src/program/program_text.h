/* Programs of all devices of a set as one text, and back. Each tensor and each
 * instruction has a line; instructions of all devices are in their total order.
 *
 *   programs 2                           # number of devices; the first line
 *   max n_tok 4 n_out 4                  # n_slot, n_seq, page_stride
 *   device 0 work 512 events 3           # idle, weights, cache, inbox, groups
 *     %0: f32[n_tok, 8]
 *     %1: f32[n_tok, 8] work @128 bytes 256 micro 1
 *     %2: q8_0[64, 32] weights packed    # f32[n_tok, 32] q8: struct q8_block
 *     %3: f32[8] inbox                   # its inbox, where peers write
 *     buffer 0: 256 work born 3          # variant 1; before the pass "buffers"
 *     %4: f32[n_tok, 8] in 0 @64         # in buffer 0
 *   device 1
 *     %0: f32[n_tok, 8]
 *   variant micro 2
 *     0 node 7: %1 = scale(%0) scale=2   # %1: a tensor of the line's device
 *     0: post 0
 *     1 copy: wait 0.0                   # 0.0: event 0 of device 0
 *     1 copy: pull %0 <- 0.%1@32 32*n_tok to 64
 *     1 copy if n_tok 2..: push 0.%3 <- %0 32
 *     0: dies 128 @0, %1                 # after the device's instruction above
 *     0: holds %4                        # its buffer is kept up to here
 *     0, 1: merge barrier collective; %0 <- sum(0.%0, 1.%0+) 16 x n_tok(32, 32)
 *
 * An instruction's line begins with its devices, each of which executes it.
 * Then come deviations from the defaults: compute queue, position after the
 * line above, micro-batch 0, node -1, no predicate. An example is `0 copy order
 * 9 micro 1 node 7 if n_tok 2..4:`. A predicate names n_tok or n_out and its
 * bounds, also `5..` or `..4`. `dies` is a dead range. After the colon is one
 * of
 *
 *   TENSOR = KERNEL(TENSOR or -, ...) [ATTRIBUTE=VALUE ...] [stride N]
 *       [tree(RANK+, ...)] [out N] [depth N] [spans(LOG+N[@LOC]{RANK}, ...)]
 *       [heads(HEAD, ...)] [cost(MACS{RANK}, ...)]
 *   merge [barrier [DEV, ...]] [group N] [collective] [bytes DIM[+DIM]]
 *       [counted]; TENSOR <- COPIES; TENSOR <- sum(TENSOR[@N][-DIM]+, ...)
 *       [depth N] COPIES; ...
 *   pull TENSOR [bytes N] [between_groups] <- COPIES
 *   push TENSOR[@N], ... [between_groups] <- COPIES      # all to each
 *   scatter TENSOR[@N], ... [between_groups] <- COPIES      # one to each
 *   pages TENSOR <- TENSOR table TENSOR heads(HEAD or -, ...) [tile N]
 *   post EVENT [batched|deferred] | flush | wait DEV.EVENT, ...
 *   dies BYTES @OFFSET or TENSOR, ... | holds TENSOR, ...
 *
 *   COPIES  nothing, or with commas between: [TENSOR][@OFF] BYTES
 *           [x N(STRIDE, STRIDE)] [x N(STRIDE, STRIDE)] [to OFF], the outer
 *           loop first, the source's stride before the result's. In a sum they
 *           name no tensor. OFF is N, DIM or N+DIM: the constant part and the
 *           part that depends on the step; DIM is N, n_tok, n_out,
 *           n_slot, n_slot1 ... (of the other pools), n_seq or N*n_tok ...
 *   packed  (rows N of N format F: K+N{RANK}, ...), as pack_init has them
 *
 * Buffers, `in`, holds, batched and deferred POSTs and `flush` exist between
 * passes only (lower/lower_passes.c).
 *
 * An entry of a tree or a sum has as many '+' as additions follow it. '-' is
 * followed by the bytes of a value before its staged part. A barrier of several
 * devices is one line, or consecutive lines: it has one position in the order.
 * `counted` applies to the first device of its line.
 *
 * Defaults: bytes follow from format, dimensions and packing. Tensors lie one
 * after another at multiples of 64, in the work region. Regions, events and
 * groups are as large as needed. A tree is tree(0), of quantize tree(). A
 * packing has the tensor's rows and values. A span continues where the one
 * before ends. Lines continue after ',' and ';'; '#' begins a comment.
 *
 * The parser checks the form only; program_check checks the invariants. The
 * printer writes one canonical form. It reads back field by field, if its
 * numbers keep the bounds of the form: none negative, bytes up to 2^62, sizes
 * and their factors below 2^31. Only fields without meaning are lost: sources
 * of a sum's copies, the device of a POST, the rest of a predicate that always
 * holds. */
#ifndef PROGRAM_PROGRAM_TEXT_H
#define PROGRAM_PROGRAM_TEXT_H

#include "base/arena.h"
#include "program/program.h"

/* Prints the programs p[n_dev] as text by calling `write` with `user`. Returns
 * PL_BAD_ARGUMENT if the text form cannot express them. Devices must be
 * numbered 0, 1, ... and have the same variants, and arguments must follow
 * kernels.def. A barrier must have 1 to 64 peers, predicates must not be
 * negative, and the number of heads of each map must be known. */
pl_status program_print(const struct program *p, int n_dev, pl_write_fn *write,
                        void *user, pl_err *err);

/* Parses text[len], which need not be NUL-terminated, into programs, which the
 * arena owns. An error names line, column, the text found and the text
 * expected. Kernels of caller-defined ops are printed but cannot be parsed
 * (PL_UNSUPPORTED), because they call a function, which a text cannot
 * contain. */
pl_status program_parse(struct program **out, int *n_dev, struct arena *a,
                        const char *text, size_t len, pl_err *err);

#endif
