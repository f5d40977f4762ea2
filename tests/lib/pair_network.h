/* A carrier for tests. The machines are forked processes, with a socket between
 * each two of them. */
#ifndef TEST_PAIR_NETWORK_H
#define TEST_PAIR_NETWORK_H

#include "device/network.h"

enum { PAIR_MOST = 4 };

struct pair_network {
    struct network net;
    /* [a][b]: the end of machine a of its socket to b; -1 if none, or closed */
    int fd[PAIR_MOST][PAIR_MOST];
    struct pair_end {
        unsigned char *in, *out; /* received, and not sent yet; owned */
        size_t n_in, in_cap, taken, n_out, out_cap;
        bool lost;
    } end[PAIR_MOST];
    /* if above 1, only one of so many calls looks for a message */
    int delay;
    unsigned seed;
};

/* Makes the sockets of n machines. Must be called before the processes are
 * forked. */
void pair_network_open(struct pair_network *p, int n);
/* Makes this process a machine, and closes what belongs to the others. */
void pair_network_join(struct pair_network *p, int machine);
void pair_network_close(struct pair_network *p);

#endif
