/* The messages that machines send each other during a step, as they follow from
 * the programs.
 *
 * Devices of different machines share nothing but a network. Each machine has
 * memory for the inboxes and events of all devices, and a device pushes and
 * posts as on one machine. The bytes that it pushes for a device of another
 * machine are in its own machine's copy of that device's inbox. A message
 * carries them to the other machine, to the same offset.
 *
 * A *channel* is a queue of a device and a machine that the queue pushes or
 * posts to. Its messages are sent and received in order. A message has the
 * bytes that the queue has pushed to the machine since the channel's previous
 * message. It ends with a POST, after which it is sent. The receiver first
 * stores its bytes, then raises the event. A POST that no device of the machine
 * waits for has no message of its own. If a step skips a POST (predicates,
 * absent micro-batches), the bytes before it are part of the channel's next
 * message. Bytes that no POST follows, such as results, are sent at the end of
 * the variant.
 *
 * All machines have all programs, so each derives the same messages. A message
 * does not describe its parts: both sides know from the step which message is
 * next and how long it is. */
#ifndef PROGRAM_PROGRAM_MESSAGES_H
#define PROGRAM_PROGRAM_MESSAGES_H

#include "base/arena.h"
#include "base/text_out.h"
#include "program/program.h"

/* The bytes that an instruction writes into the inbox of one device. */
struct message_part {
    int insn; /* index of the PUSH or PAGES in its device's variant */
    int to;   /* of a PUSH: index of the destination, push.to[to] */
    int dev;  /* the device whose inbox is written */
};

struct message {
    int post; /* index of the POST in the variant; -1: sent at its end */
    /* a device of the machine waits for the POST's event; else only the bytes
     * matter */
    bool waited;
    int end; /* its parts end before this one; they begin at the end of the
                previous message */
};

struct message_channel {
    int dev; /* the device whose queue pushes and posts */
    enum queue queue;
    int machine; /* the machine that receives */
    int n, n_part;
    struct message *message;   /* [n] in the order of the queue */
    struct message_part *part; /* [n_part] in the order of the queue */
};

/* The channels of a variant that have messages, by device, queue and
 * machine. */
struct messages {
    int n;
    const struct program *prog; /* [n_dev] borrowed */
    int variant;
    struct message_channel *channel; /* [n] */
};

/* Derives the messages of a variant of p[n_dev], where device d is on machine
 * machine[d], from 0 to PROG_MAX_MACHINE - 1. They live in the arena and
 * borrow `p`. Returns PL_NO_MEMORY or PL_OK. */
pl_status messages_create(struct messages *out, const struct program *p,
                          int n_dev, const int *machine, int variant,
                          struct arena *a, pl_err *err);

/* Returns the channel's number, which is unique among the channels from one
 * machine to another. Its messages are sent with this tag. */
static inline int message_tag(const struct message_channel *c)
{
    return c->dev * QUEUE_COUNT + (int)c->queue;
}

/* ---- the messages of a step ---------------------------------------------- */

/* The position in a channel during a step. All zero is the start of a
 * variant. */
struct message_cursor {
    int message, part; /* the next ones */
};

/* A message that is sent in a step: parts first to end - 1, as far as their
 * instructions are enabled, then the event if `post` is not -1. */
struct sent_message {
    int first, end, post;
};

/* Sets *out to the channel's next message of a step. Returns false if there is
 * none. */
bool message_next(const struct messages *m, const struct message_channel *c,
                  struct message_cursor *at, int n_micro,
                  const struct graph_sizes *sizes, struct sent_message *out);

/* Returns the number of 64-bit words of a part's set of page numbers, a bit per
 * page; 0 if the part does not copy pages. Such a set precedes the bytes of a
 * part that copies pages, because only the sender has the token table. */
size_t message_page_words(const struct messages *m,
                          const struct message_channel *c,
                          const struct message_part *x);
/* Sets the bits of the pages that a part copies in a step. `table` is the data
 * of the sender's token table for this micro-batch. */
void message_page_set(const struct messages *m, const struct message_channel *c,
                      const struct message_part *x,
                      const struct graph_sizes *sizes, const void *table,
                      uint64_t *pages);

/* Calls fn for each span of adjacent bytes of a part, in ascending order of its
 * loops: `offset` counts from the start of the inbox of device x->dev. `pages`
 * is the part's set of page numbers, or NULL. */
typedef void message_span_fn(void *user, size_t offset, size_t bytes);
void message_spans(const struct messages *m, const struct message_channel *c,
                   const struct message_part *x,
                   const struct graph_sizes *sizes, const uint64_t *pages,
                   message_span_fn *fn, void *user);

/* Prints the messages, a line each.
 *
 *   messages of variant 0
 *     0 -> 1: 12 push to 2.%7; post 3       # device 0, to machine 1
 *     0 copy -> 1: 31 pages to 3.%2, 32 push to 3.%4; end
 *     1 -> 1: post 2
 *
 * A number before `push` or `pages` is the index of the instruction in the
 * variant of the device. */
void messages_print(const struct messages *m, struct text_out *o);

#endif
