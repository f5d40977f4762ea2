/* Machines in forked processes; see pair_network.h. A message is its tag and
 * size, then its bytes. The part that a socket does not take at once waits in a
 * buffer, so that two machines may send to each other. */
#include "lib/pair_network.h"

#include "lib/support.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct head {
    int tag;
    size_t bytes;
};

static bool grow(unsigned char **p, size_t *cap, size_t n)
{
    unsigned char *q;

    if (n <= *cap)
        return true;
    n = 2 * n + 4096;
    q = realloc(*p, n);
    if (q) {
        *p = q;
        *cap = n;
    }
    return q != NULL;
}

static int fd_to(const struct pair_network *p, int m)
{
    return p->fd[p->net.machine][m];
}

/* Sends as much as the socket takes. Drops all if the receiver is lost. */
static void push_out(struct pair_network *p, int m)
{
    struct pair_end *e = &p->end[m];
    size_t at = 0;

    while (at < e->n_out) {
        ssize_t k = send(fd_to(p, m), e->out + at, e->n_out - at,
                         MSG_NOSIGNAL | MSG_DONTWAIT);

        if (k < 0 && errno != EAGAIN && errno != EINTR)
            at = e->n_out;
        if (k <= 0)
            break;
        at += (size_t)k;
    }
    if (at > 0)
        memmove(e->out, e->out + at, e->n_out - at);
    e->n_out -= at;
}

static bool pair_send(struct network *net, int to, int tag, const void *data,
                      size_t bytes)
{
    struct pair_network *p = (struct pair_network *)net;
    struct pair_end *e = &p->end[to];
    struct head h;

    memset(&h, 0, sizeof h);
    h.tag = tag;
    h.bytes = bytes;
    if (!grow(&e->out, &e->out_cap, e->n_out + sizeof h + bytes))
        return false;
    memcpy(e->out + e->n_out, &h, sizeof h);
    if (bytes > 0)
        memcpy(e->out + e->n_out + sizeof h, data, bytes);
    e->n_out += sizeof h + bytes;
    push_out(p, to);
    return true;
}

/* Receives what the socket has. */
static void pull_in(struct pair_network *p, int m)
{
    struct pair_end *e = &p->end[m];
    ssize_t k;

    if (!grow(&e->in, &e->in_cap, e->n_in + 65536))
        return;
    memmove(e->in, e->in + e->taken, e->n_in - e->taken);
    e->n_in -= e->taken;
    e->taken = 0;
    k = recv(fd_to(p, m), e->in + e->n_in, e->in_cap - e->n_in, MSG_DONTWAIT);
    if (k > 0)
        e->n_in += (size_t)k;
    else if (k == 0 || (errno != EAGAIN && errno != EINTR))
        e->lost = true;
}

static bool pair_receive(struct network *net, int from,
                         struct network_message *out)
{
    struct pair_network *p = (struct pair_network *)net;
    struct pair_end *e = &p->end[from];
    size_t left;
    struct head h;

    push_out(p, from);
    if (p->delay > 1 && rand_r(&p->seed) % p->delay != 0)
        return false;
    if (!e->lost)
        pull_in(p, from);
    *out = (struct network_message){.tag = NETWORK_LOST};
    left = e->n_in - e->taken;
    if (left < sizeof h)
        return e->lost;
    memcpy(&h, e->in + e->taken, sizeof h);
    if (left < sizeof h + h.bytes)
        return e->lost;
    *out =
        (struct network_message){h.tag, e->in + e->taken + sizeof h, h.bytes};
    e->taken += sizeof h + h.bytes;
    return true;
}

static const struct network_ops pair_ops = {
    .name = "pair", .send = pair_send, .receive = pair_receive};

void pair_network_open(struct pair_network *p, int n)
{
    *p = (struct pair_network){
        .net = {.ops = &pair_ops, .n_machine = n, .load_limit_s = 120}};
    memset(p->fd, -1, sizeof p->fd);
    for (int a = 0; a < n; a++)
        for (int b = 0; b < a; b++) {
            int fd[2];

            assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
            p->fd[a][b] = fd[0];
            p->fd[b][a] = fd[1];
        }
}

static void close_of(struct pair_network *p, int machine)
{
    for (int b = 0; b < PAIR_MOST; b++) {
        if (p->fd[machine][b] >= 0)
            close(p->fd[machine][b]);
        p->fd[machine][b] = -1;
    }
}

void pair_network_join(struct pair_network *p, int machine)
{
    p->net.machine = machine;
    p->seed = (unsigned)machine;
    for (int m = 0; m < p->net.n_machine; m++)
        if (m != machine)
            close_of(p, m);
}

void pair_network_close(struct pair_network *p)
{
    close_of(p, p->net.machine);
    for (int m = 0; m < PAIR_MOST; m++) {
        free(p->end[m].in);
        free(p->end[m].out);
    }
}
