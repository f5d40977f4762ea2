/* Passes "place" and "transfer": the values that cross from one group to
 * another, and how.
 *
 * "place" lists them for each variant, in the order of their first readers,
 * with the shards that have what each receiver needs. "transfer" chooses, for
 * each receiver, a transport, a row of the table below; and for each group, how
 * its collectives exchange and which sums take one shot or two. It reads
 * nothing but this structure, so that it runs alone on a parsed text. The pass
 * "order" then emits these transfers. */
#ifndef LOWER_TRANSFERS_H
#define LOWER_TRANSFERS_H

#include "base/arena.h"
#include "program/program.h"

enum transfer_kind {
    TRANSFER_INPUT,  /* an input of the step, from "io" */
    TRANSFER_TABLE,  /* the token table, from "io" */
    TRANSFER_VALUE,  /* a computed value, or a conversion of it */
    TRANSFER_RANKS,  /* the addends of a PARTIAL value, rank by rank */
    TRANSFER_WEIGHT, /* a weight of another group's memory */
    TRANSFER_PAGES,  /* the pages of a cache that the step's sequences use */
    TRANSFER_RESULT, /* a result of the step, to "io" */
    TRANSFER_KIND_COUNT
};

/* The transports. They differ in which device moves the bytes, in which queue,
 * and which POST follows. */
enum transport {
    TRANSPORT_NONE, /* not chosen yet, or nothing to move */
    TRANSPORT_PULL,
    TRANSPORT_PUSH,
    TRANSPORT_SEND, /* a push over the network to another machine */
    TRANSPORT_FETCH,
    TRANSPORT_FEED,
    TRANSPORT_RETURN,
    TRANSPORT_COUNT
};
struct transport_info {
    const char *name;
    /* each source writes into the receiver's inbox; else the receiver copies */
    bool pushes;
    /* among the mover's other instructions, even if it has a copy queue */
    bool in_order;
    /* the POST after the copies, by the queue that executes them */
    bool posts;
    enum post_time post[QUEUE_COUNT];
    /* the receiver waits at once; else before it uses the value */
    bool waits_at_once;
};
extern const struct transport_info transport_info[TRANSPORT_COUNT];

struct transfer {
    enum transfer_kind kind;
    /* num nodes: the value (-1: the token table), and what the receivers get of
     * it, which is the value itself or a conversion */
    int value, as;
    int from, to; /* groups */
    /* begun when it is first read; else as soon as it is computed */
    bool late;
    uint64_t *source;   /* [shards of `to`] a bit per shard of `from` */
    enum transport *by; /* [shards of `to`] */
    int next;           /* of the same value; -1 if none */
};

struct variant_transfers {
    int n;
    struct transfer *item;
    int *first; /* [n_value + 1] by value; -1 if none. The last: the table. */
};

/* The means by which devices of a group exchange values in a collective. */
enum group_exchange {
    EXCHANGE_NONE, /* not chosen yet, or a single device */
    EXCHANGE_SHARED,
    EXCHANGE_INBOX,
    EXCHANGE_MACHINE, /* by inboxes; sums first within each machine */
    EXCHANGE_COUNT
};

struct transfers {
    int n_value, n_group, n_dev, n_variant;
    int64_t n_tok; /* maximum number of tokens of a micro-batch */
    struct transfer_group {
        int n;
        const int *dev; /* [n] of its shards */
        /* bytes of a row, if rows are tokens or outputs, of its first value
         * that is summed for all of its devices; 0 if there is none */
        int64_t sum_bytes;
        /* number of shards per machine, if the group is on several and sums can
         * be taken within each first: each has as many adjacent shards, whose
         * ranks are a complete subtree; else 0 */
        int per_machine;
        enum group_exchange exchange;
        /* maximum number of rows of a sum that takes one shot by inboxes. 0:
         * all do, or, with EXCHANGE_MACHINE, none does. */
        int64_t one_shot_rows;
    } * group; /* [n_group] the last is "io" */
    struct transfer_device {
        int machine, memory; /* as in struct lower_device */
        bool one_queue, reads;
        int64_t link_bytes_per_s, link_latency_ns, p2p_bytes_per_s;
        int64_t network_bytes_per_s, network_latency_ns; /* to other machines */
    } * dev;                                             /* [n_dev] */
    struct variant_transfers *variant;                   /* [n_variant] */
};

/* Adds a transfer, with the sources of each receiver still unknown, unless the
 * variant has it. Sets *out to it if it is new, else to NULL. Returns false if
 * out of memory. */
bool transfers_add(struct transfers *t, int variant, struct arena *a,
                   const struct transfer *x, struct transfer **out);
/* Returns the transfer of a value to group `to`, as num node `as`; NULL if
 * there is none. */
const struct transfer *transfers_find(const struct transfers *t, int variant,
                                      int value, int as, int to);

/* Pass "transfer". Returns PL_NO_MEMORY or PL_OK. */
pl_status transfers_choose(struct transfers *t, struct arena *a, pl_err *err);

/* Prints the structure as text, and parses it.
 *
 *   transfers values 40 n_tok 512   # number of num nodes
 *   device 0 memory 0 one_queue     # reads; without memory: private
 *   device 1 machine 1 memory 0     # without machine: 0
 *   device 1 link 8000000000 latency 5000 p2p 32000000000
 *   device 2 network 1000000000 delay 20000
 *   group 0: 0, 1 sum 256 by inbox 9  # devices of its shards; one_shot_rows
 *   group 1: 0, 1, 2, 3 sum 256 per_machine 2 by machine
 *   variant
 *     value 20 as 22: 0 -> 1 late, pull 0 1, push 1, none
 *
 * Numbers that are 0 are left out. After the groups of a transfer follow its
 * receivers, each with its transport (`from` before the pass "transfer") and
 * the shards that are its sources. transfers_parse returns PL_BAD_ARGUMENT,
 * with the line, if the text is not of this form, or PL_NO_MEMORY. */
pl_status transfers_print(const struct transfers *t, pl_write_fn *write,
                          void *user);
pl_status transfers_parse(struct transfers **out, struct arena *a,
                          const char *text, size_t len, pl_err *err);

#endif
