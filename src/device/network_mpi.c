/* The carrier over MPI. It is compiled once for each MPI implementation, into
 * the modules plait-openmpi and plait-mpich; see network_module.h. Ranks of the
 * job are machines.
 *
 * It uses two-sided messages of bytes only. No call waits for another machine:
 * sends and receives are begun, and tested whenever the carrier is called. A
 * sent message is copied, because its bytes must stay unchanged until it is
 * complete. An error of MPI makes the machine lost. MPI itself is never asked
 * to end other processes. */
#include "device/network_module.h"

#include <limits.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A message that is sent and not complete. */
struct sent {
    struct sent *next;
    MPI_Request request;
    unsigned char data[];
};

struct peer {
    bool lost;
    struct sent *first, **last;
    /* The message that is received: its buffer, which keeps the last one, and
     * its request, if `receiving`. */
    unsigned char *in;
    size_t cap;
    bool receiving;
    MPI_Request request;
    struct network_message message;
};

struct mpi_network {
    struct network net;
    MPI_Comm comm;
    struct peer peer[]; /* [net.n_machine] */
};

static bool works(struct peer *p, int result)
{
    p->lost |= result != MPI_SUCCESS;
    return !p->lost;
}

/* Frees the messages to a machine that are complete. They complete in order, or
 * nearly so. */
static void free_sent(struct peer *p)
{
    while (p->first && !p->lost) {
        struct sent *s = p->first;
        int done = 0;

        if (!works(p, MPI_Test(&s->request, &done, MPI_STATUS_IGNORE)) || !done)
            return;
        p->first = s->next;
        if (!p->first)
            p->last = &p->first;
        free(s);
    }
}

static bool mpi_send(struct network *net, int to, int tag, const void *data,
                     size_t bytes)
{
    struct mpi_network *m = (struct mpi_network *)net;
    struct peer *p = &m->peer[to];
    struct sent *s;

    free_sent(p);
    if (p->lost)
        return true;
    s = bytes <= INT_MAX ? malloc(sizeof *s + bytes) : NULL;
    if (!s)
        return false;
    s->next = NULL;
    if (bytes > 0)
        memcpy(s->data, data, bytes);
    if (!works(p, MPI_Isend(s->data, (int)bytes, MPI_BYTE, to, tag, m->comm,
                            &s->request))) {
        free(s);
        return true;
    }
    *p->last = s;
    p->last = &s->next;
    free_sent(p);
    return true;
}

/* Begins to receive the next message, if one has come. */
static void begin_receive(struct mpi_network *m, int from)
{
    struct peer *p = &m->peer[from];
    MPI_Message message;
    MPI_Status status;
    int any = 0, n = 0;

    if (!works(p, MPI_Improbe(from, MPI_ANY_TAG, m->comm, &any, &message,
                              &status)) ||
        !any || !works(p, MPI_Get_count(&status, MPI_BYTE, &n)))
        return;
    if ((size_t)n > p->cap || !p->in) {
        free(p->in);
        p->cap = (size_t)n + 4096;
        p->in = malloc(p->cap);
        if (!p->in) { /* the message cannot be given back */
            p->cap = 0;
            p->lost = true;
            return;
        }
    }
    p->message = (struct network_message){status.MPI_TAG, p->in, (size_t)n};
    p->receiving =
        works(p, MPI_Imrecv(p->in, n, MPI_BYTE, &message, &p->request));
}

static bool mpi_receive(struct network *net, int from,
                        struct network_message *out)
{
    struct mpi_network *m = (struct mpi_network *)net;
    struct peer *p = &m->peer[from];
    int done = 0;

    free_sent(p);
    if (!p->lost && !p->receiving)
        begin_receive(m, from);
    if (!p->lost && p->receiving)
        works(p, MPI_Test(&p->request, &done, MPI_STATUS_IGNORE));
    if (p->lost) {
        *out = (struct network_message){.tag = NETWORK_LOST};
        return true;
    }
    if (!done)
        return false;
    p->receiving = false;
    *out = p->message;
    return true;
}

static const struct network_ops mpi_ops = {
    .name = "mpi", .send = mpi_send, .receive = mpi_receive};

static bool fail(char why[NETWORK_MODULE_ERROR], const char *what, int result)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int n = 0;

    MPI_Error_string(result, text, &n);
    snprintf(why, NETWORK_MODULE_ERROR, "%s: %.100s", what, text);
    return false;
}

static bool mpi_open(struct network **out, char why[NETWORK_MODULE_ERROR])
{
    int has_begun = 0, got = 0, machine = 0, n = 1, e;
    struct mpi_network *m;

    MPI_Initialized(&has_begun);
    if (!has_begun) {
        e = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &got);
        if (e != MPI_SUCCESS)
            return fail(why, "MPI_Init_thread", e);
    } else {
        MPI_Query_thread(&got);
    }
    if (got < MPI_THREAD_SERIALIZED) {
        snprintf(why, NETWORK_MODULE_ERROR,
                 "this MPI cannot be called by several threads in turn");
        return false;
    }
    MPI_Comm_rank(MPI_COMM_WORLD, &machine);
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    m = calloc(1, sizeof *m + (size_t)n * sizeof *m->peer);
    if (!m) {
        snprintf(why, NETWORK_MODULE_ERROR, "out of memory");
        return false;
    }
    e = MPI_Comm_dup(MPI_COMM_WORLD, &m->comm);
    if (e == MPI_SUCCESS)
        e = MPI_Comm_set_errhandler(m->comm, MPI_ERRORS_RETURN);
    if (e != MPI_SUCCESS) {
        free(m);
        return fail(why, "MPI_Comm_dup", e);
    }
    m->net =
        (struct network){.ops = &mpi_ops, .machine = machine, .n_machine = n};
    for (int i = 0; i < n; i++)
        m->peer[i].last = &m->peer[i].first;
    *out = &m->net;
    return true;
}

static void mpi_close(struct network *net, bool all)
{
    struct mpi_network *m = (struct mpi_network *)net;

    if (!all) /* sends may be in progress, so their memory stays */
        return;
    for (int i = 0; i < m->net.n_machine; i++) {
        struct peer *p = &m->peer[i];

        while (p->first) {
            struct sent *s = p->first;

            MPI_Wait(&s->request, MPI_STATUS_IGNORE);
            p->first = s->next;
            free(s);
        }
        free(p->in);
    }
    MPI_Comm_free(&m->comm);
    MPI_Finalize();
    free(m);
}

extern const struct network_module plait_network_module;
__attribute__((visibility("default")))
const struct network_module plait_network_module = {NETWORK_MODULE_VERSION,
                                                    mpi_open, mpi_close};
