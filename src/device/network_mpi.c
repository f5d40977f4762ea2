/* The carrier over MPI. It is compiled once for each MPI implementation, into
 * the modules plait-openmpi and plait-mpich; see network_module.h. Ranks of the
 * job are machines.
 *
 * It uses two-sided messages of bytes only. No call waits for another machine:
 * sends and receives are begun, and tested whenever the carrier is called. A
 * sent message is copied unless its sender has reserved the memory, because its
 * bytes must stay unchanged until it is complete. An error of MPI makes the
 * machine lost. MPI itself is never asked to end other processes.
 *
 * A receive of POSTED_BYTES is posted for each machine, and takes its messages
 * one by one. A longer message has a head there, of the tag LONG. Its body
 * follows on a communicator of its own. */
#include "device/network_module.h"

#include <limits.h>
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    POSTED_BYTES = 16384,
    LONG = 32767, /* the greatest tag that all MPIs have */
    N_SPARE = 8,
    SPARE_BYTES = 1 << 18,
    CLOSE_S = 10, /* the longest wait for messages at the end, in seconds */
};

struct long_head {
    int tag, bytes;
};

/* A message that is sent and not complete, or memory for one. A message that is
 * not long has one request. */
struct sent {
    struct sent *next;
    MPI_Request request[2];
    struct long_head head;
    size_t cap;
    unsigned char data[];
};

struct peer {
    bool lost;
    struct sent *first, **last;
    struct sent *spare, *reserved; /* memory that is not in use; reserved */
    int n_spare;
    /* The posted receive. `taken` if its message was given out, so that it is
     * to be posted again. */
    unsigned char *posted; /* [POSTED_BYTES] */
    MPI_Request request;
    bool taken;
    /* The body of a long message, if `is_long`: its request, and its memory,
     * which keeps the last one. */
    bool is_long;
    struct long_head head;
    MPI_Request body_request;
    unsigned char *body;
    size_t cap;
};

struct mpi_network {
    struct network net;
    MPI_Comm comm, bodies;
    struct peer peer[]; /* [net.n_machine] */
};

static bool works(struct peer *p, int result)
{
    p->lost |= result != MPI_SUCCESS;
    return !p->lost;
}

/* ---- sending ------------------------------------------------------------- */

/* Returns memory for a message; NULL if there is none. */
static struct sent *take_memory(struct peer *p, size_t bytes)
{
    struct sent **at = &p->spare, *s;
    size_t cap = bytes < POSTED_BYTES ? POSTED_BYTES : bytes;

    while (*at && (*at)->cap < bytes)
        at = &(*at)->next;
    s = *at;
    if (s) {
        *at = s->next;
        p->n_spare--;
    } else {
        s = bytes <= INT_MAX ? malloc(sizeof *s + cap) : NULL;
        if (!s)
            return NULL;
        s->cap = cap;
    }
    s->next = NULL;
    s->request[0] = s->request[1] = MPI_REQUEST_NULL;
    return s;
}

static void give_memory(struct peer *p, struct sent *s)
{
    if (p->n_spare == N_SPARE || s->cap > SPARE_BYTES) {
        free(s);
        return;
    }
    s->next = p->spare;
    p->spare = s;
    p->n_spare++;
}

/* Returns true if a receive or a send is complete. A null request is. */
static bool is_complete(struct peer *p, MPI_Request *r)
{
    int done = 0;

    return works(p, MPI_Test(r, &done, MPI_STATUS_IGNORE)) && done;
}

/* Frees the messages to a machine that are complete. They complete in order, or
 * nearly so. */
static void free_sent(struct peer *p)
{
    while (p->first && !p->lost) {
        struct sent *s = p->first;

        if (!is_complete(p, &s->request[0]) || !is_complete(p, &s->request[1]))
            return;
        p->first = s->next;
        if (!p->first)
            p->last = &p->first;
        give_memory(p, s);
    }
}

static void *mpi_reserve(struct network *net, int to, size_t bytes)
{
    struct mpi_network *m = (struct mpi_network *)net;
    struct peer *p = &m->peer[to];

    free_sent(p);
    if (p->reserved && p->reserved->cap < bytes) {
        give_memory(p, p->reserved);
        p->reserved = NULL;
    }
    if (!p->reserved)
        p->reserved = take_memory(p, bytes);
    return p->reserved ? p->reserved->data : NULL;
}

/* Returns the message of data[bytes]; NULL if out of memory. */
static struct sent *make_sent(struct peer *p, const void *data, size_t bytes)
{
    struct sent *s = p->reserved;

    if (s && data == s->data) {
        p->reserved = NULL;
        return s;
    }
    s = take_memory(p, bytes);
    if (s && bytes > 0)
        memcpy(s->data, data, bytes);
    return s;
}

static bool mpi_send(struct network *net, int to, int tag, const void *data,
                     size_t bytes)
{
    struct mpi_network *m = (struct mpi_network *)net;
    struct peer *p = &m->peer[to];
    bool is_long = bytes > POSTED_BYTES;
    struct sent *s;

    free_sent(p);
    if (p->lost)
        return true;
    s = make_sent(p, data, bytes);
    if (!s)
        return false;
    *p->last = s;
    p->last = &s->next;
    s->head = (struct long_head){tag, (int)bytes};
    if (!is_long)
        works(p, MPI_Isend(s->data, (int)bytes, MPI_BYTE, to, tag, m->comm,
                           &s->request[0]));
    else if (works(p, MPI_Isend(&s->head, sizeof s->head, MPI_BYTE, to, LONG,
                                m->comm, &s->request[0])))
        works(p, MPI_Isend(s->data, (int)bytes, MPI_BYTE, to, 0, m->bodies,
                           &s->request[1]));
    return true;
}

/* ---- receiving ----------------------------------------------------------- */

static bool post(struct mpi_network *m, int from)
{
    struct peer *p = &m->peer[from];

    p->taken = false;
    return works(p, MPI_Irecv(p->posted, POSTED_BYTES, MPI_BYTE, from,
                              MPI_ANY_TAG, m->comm, &p->request));
}

/* Begins to receive the body of a long message. */
static void begin_body(struct mpi_network *m, int from, int head_bytes)
{
    struct peer *p = &m->peer[from];
    size_t n;

    memcpy(&p->head, p->posted, sizeof p->head);
    if (head_bytes != sizeof p->head || p->head.bytes <= POSTED_BYTES) {
        p->lost = true; /* no machine of this version sends that */
        return;
    }
    n = (size_t)p->head.bytes;
    if (n > p->cap) {
        free(p->body);
        p->cap = n + 4096;
        p->body = malloc(p->cap);
        if (!p->body) { /* the message cannot be given back */
            p->cap = 0;
            p->lost = true;
            return;
        }
    }
    p->is_long = works(p, MPI_Irecv(p->body, p->head.bytes, MPI_BYTE, from, 0,
                                    m->bodies, &p->body_request));
}

/* Takes the next message, if it has come. Begins the body of a long one. */
static bool take_posted(struct mpi_network *m, int from,
                        struct network_message *out)
{
    struct peer *p = &m->peer[from];
    MPI_Status status;
    int done = 0, n = 0;

    if (p->taken && !post(m, from))
        return false;
    if (!works(p, MPI_Test(&p->request, &done, &status)) || !done ||
        !works(p, MPI_Get_count(&status, MPI_BYTE, &n)))
        return false;
    p->taken = true;
    if (status.MPI_TAG == LONG) {
        begin_body(m, from, n);
        return false;
    }
    *out = (struct network_message){status.MPI_TAG, p->posted, (size_t)n};
    return true;
}

static bool take_body(struct peer *p, struct network_message *out)
{
    if (!is_complete(p, &p->body_request))
        return false;
    p->is_long = false;
    *out =
        (struct network_message){p->head.tag, p->body, (size_t)p->head.bytes};
    return true;
}

static bool mpi_receive(struct network *net, int from,
                        struct network_message *out)
{
    struct mpi_network *m = (struct mpi_network *)net;
    struct peer *p = &m->peer[from];
    bool any = false;

    free_sent(p);
    if (!p->lost && !p->is_long)
        any = take_posted(m, from, out);
    if (!p->lost && p->is_long)
        any = take_body(p, out);
    if (!p->lost)
        return any;
    *out = (struct network_message){.tag = NETWORK_LOST};
    return true;
}

static const struct network_ops mpi_ops = {.name = "mpi",
                                           .reserve = mpi_reserve,
                                           .send = mpi_send,
                                           .receive = mpi_receive};

static bool fail(char why[NETWORK_MODULE_ERROR], const char *what, int result)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int n = 0;

    MPI_Error_string(result, text, &n);
    snprintf(why, NETWORK_MODULE_ERROR, "%s: %.100s", what, text);
    return false;
}

/* Starts MPI, unless the process has. */
static bool start_mpi(char why[NETWORK_MODULE_ERROR])
{
    int has_begun = 0, got = 0, e;

    MPI_Initialized(&has_begun);
    if (!has_begun) {
        e = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &got);
        if (e != MPI_SUCCESS)
            return fail(why, "MPI_Init_thread", e);
    } else {
        MPI_Query_thread(&got);
    }
    if (got >= MPI_THREAD_SERIALIZED)
        return true;
    snprintf(why, NETWORK_MODULE_ERROR,
             "this MPI cannot be called by several threads in turn");
    return false;
}

/* Frees what mpi_open() has allocated. */
static void free_network(struct mpi_network *m)
{
    for (int i = 0; i < m->net.n_machine; i++) {
        struct peer *p = &m->peer[i];

        while (p->spare) {
            struct sent *s = p->spare;

            p->spare = s->next;
            free(s);
        }
        free(p->reserved);
        free(p->posted);
        free(p->body);
    }
    free(m);
}

static bool allocate(struct mpi_network **out, int machine, int n)
{
    struct mpi_network *m = calloc(1, sizeof *m + (size_t)n * sizeof *m->peer);

    if (!m)
        return false;
    m->net =
        (struct network){.ops = &mpi_ops, .machine = machine, .n_machine = n};
    for (int i = 0; i < n; i++) {
        struct peer *p = &m->peer[i];

        p->last = &p->first;
        p->request = MPI_REQUEST_NULL;
        p->posted = i == machine ? NULL : malloc(POSTED_BYTES);
        if (i != machine && !p->posted) {
            free_network(m);
            return false;
        }
    }
    *out = m;
    return true;
}

static int duplicate(MPI_Comm *out)
{
    int e = MPI_Comm_dup(MPI_COMM_WORLD, out);

    return e == MPI_SUCCESS ? MPI_Comm_set_errhandler(*out, MPI_ERRORS_RETURN)
                            : e;
}

static bool mpi_open(struct network **out, char why[NETWORK_MODULE_ERROR])
{
    int machine = 0, n = 1, e;
    struct mpi_network *m;

    if (!start_mpi(why))
        return false;
    MPI_Comm_rank(MPI_COMM_WORLD, &machine);
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    if (!allocate(&m, machine, n)) {
        snprintf(why, NETWORK_MODULE_ERROR, "out of memory");
        return false;
    }
    m->comm = m->bodies = MPI_COMM_NULL;
    e = duplicate(&m->comm);
    if (e == MPI_SUCCESS)
        e = duplicate(&m->bodies);
    if (e != MPI_SUCCESS) {
        if (m->comm != MPI_COMM_NULL)
            MPI_Comm_free(&m->comm);
        free_network(m);
        return fail(why, "MPI_Comm_dup", e);
    }
    for (int i = 0; i < n; i++)
        if (i != machine)
            post(m, i);
    *out = &m->net;
    return true;
}

/* Drops all messages that have come. Sets *busy to true if some are in
 * progress. Returns false if a machine is lost. */
static bool drop_messages(struct mpi_network *m, bool *busy)
{
    *busy = false;
    for (int i = 0; i < m->net.n_machine; i++) {
        struct peer *p = &m->peer[i];
        struct network_message x;

        if (i == m->net.machine)
            continue;
        while (mpi_receive(&m->net, i, &x) && x.tag != NETWORK_LOST)
            ;
        if (p->lost)
            return false;
        *busy |= p->first || p->is_long;
    }
    return true;
}

/* Waits until no machine has a message in progress. A machine drops what others
 * send after it has stopped to receive, because MPI completes no long send
 * without a receive. Returns false after CLOSE_S, or if a machine is lost. */
static bool finish_messages(struct mpi_network *m)
{
    double end = MPI_Wtime() + CLOSE_S;
    MPI_Request all = MPI_REQUEST_NULL;
    bool began = false, busy;

    for (int done = 0; !done;) {
        if (!drop_messages(m, &busy))
            return false;
        if (!busy && !began) {
            began = true;
            if (MPI_Ibarrier(m->comm, &all) != MPI_SUCCESS)
                return false;
        }
        if (began && MPI_Test(&all, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS)
            return false;
        done = done && !busy;
        if (!done && MPI_Wtime() > end)
            return false;
        if (!done)
            sched_yield();
    }
    return true;
}

static bool mpi_close(struct network *net, bool all)
{
    struct mpi_network *m = (struct mpi_network *)net;

    /* Else messages may be in progress, so their memory stays. */
    if (!all || !finish_messages(m))
        return false;
    for (int i = 0; i < m->net.n_machine; i++) {
        struct peer *p = &m->peer[i];

        if (p->request != MPI_REQUEST_NULL) {
            MPI_Cancel(&p->request);
            MPI_Wait(&p->request, MPI_STATUS_IGNORE);
        }
    }
    MPI_Comm_free(&m->bodies);
    MPI_Comm_free(&m->comm);
    MPI_Finalize();
    free_network(m);
    return true;
}

extern const struct network_module plait_network_module;
__attribute__((visibility("default")))
const struct network_module plait_network_module = {NETWORK_MODULE_VERSION,
                                                    mpi_open, mpi_close};
