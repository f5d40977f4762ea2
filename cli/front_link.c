/* Implements front_link.h. */
#include "front_link.h"
#include "term.h"

#include "server/http.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

/* Writes the abstract address of a name. Returns its length. */
static socklen_t address(struct sockaddr_un *a, const char *name)
{
    size_t n = strlen(name);

    *a = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (n > sizeof(a->sun_path) - 1)
        n = sizeof(a->sun_path) - 1;
    memcpy(a->sun_path + 1, name, n);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n);
}

static bool is_same_user(int fd)
{
    struct ucred who;
    socklen_t n = sizeof(who);

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &n) == 0 &&
           who.uid == geteuid();
}

/* ---- the front ----------------------------------------------------------- */

int front_listen(char name[FRONT_NAME])
{
    struct sockaddr_un a;
    uint64_t random[2];
    socklen_t n;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return -1;
    if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random)) {
        close(fd);
        return -1;
    }
    snprintf(name, FRONT_NAME, "plait-%016llx%016llx",
             (unsigned long long)random[0], (unsigned long long)random[1]);
    n = address(&a, name);
    if (bind(fd, (const struct sockaddr *)(const void *)&a, n) == 0 &&
        listen(fd, 4) == 0)
        return fd;
    close(fd);
    return -1;
}

/* A message, with room for the sockets that travel with it. */
struct packet {
    char byte[2];
    struct iovec part;
    struct msghdr m;
    alignas(struct cmsghdr) char room[CMSG_SPACE(sizeof(int[HTTP_MAX_SOCKET]))];
};

static void packet_init(struct packet *p, size_t n_socket)
{
    memset(p, 0, sizeof(*p));
    p->part = (struct iovec){p->byte, sizeof(p->byte)};
    p->m.msg_iov = &p->part;
    p->m.msg_iovlen = 1;
    p->m.msg_control = p->room;
    p->m.msg_controllen = CMSG_SPACE(n_socket * sizeof(int));
}

int front_accept(int listener, const int *fd, int n)
{
    int link = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    struct packet p;
    struct cmsghdr *c;

    if (link < 0)
        return -1;
    packet_init(&p, (size_t)n);
    c = CMSG_FIRSTHDR(&p.m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN((size_t)n * sizeof(int));
    memcpy(CMSG_DATA(c), fd, (size_t)n * sizeof(int));
    if (is_same_user(link) && sendmsg(link, &p.m, MSG_NOSIGNAL) > 0)
        return link;
    close(link);
    return -1;
}

int front_receive(int link, int *code)
{
    unsigned char byte[2] = {0, 0};
    ssize_t n = recv(link, byte, sizeof(byte), MSG_DONTWAIT);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n <= 0)
        return -1;
    *code = byte[1];
    return byte[0];
}

void front_send(int link, enum front_message m)
{
    const char byte[2] = {(char)m, 0};

    send(link, byte, sizeof(byte), MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* ---- machine 0 ----------------------------------------------------------- */

static int link_fd = -1;
static int sockets[HTTP_MAX_SOCKET], n_socket;

const int *front_sockets(int *n)
{
    *n = n_socket;
    return sockets;
}

void front_tell(enum front_message m, int code)
{
    const char byte[2] = {(char)m, (char)code};

    if (link_fd >= 0)
        send(link_fd, byte, sizeof(byte), MSG_NOSIGNAL);
}

static atomic_bool is_away; /* the front accepts no clients, or has ended */

void front_take_over(void)
{
    const struct timespec moment = {0, 1000000};

    front_tell(FRONT_READY, 0);
    while (link_fd >= 0 && !atomic_load(&is_away))
        nanosleep(&moment, NULL);
}

/* Sends beats, and raises SIGTERM for each FRONT_STOP. If the front has ended,
 * raises it twice, so that running requests end, too. */
static void *listen_to_front(void *unused)
{
    const char beat[2] = {FRONT_BEAT, 0};
    struct pollfd p = {.fd = link_fd, .events = POLLIN};
    char byte[2];
    ssize_t n;

    (void)unused;
    do {
        if (poll(&p, 1, 500) == 0)
            send(link_fd, beat, sizeof(beat), MSG_NOSIGNAL | MSG_DONTWAIT);
        n = recv(link_fd, byte, sizeof(byte), MSG_DONTWAIT);
        if (n > 0 && byte[0] == FRONT_AWAY)
            atomic_store(&is_away, true);
        else if (n > 0)
            kill(getpid(), SIGTERM);
    } while (n > 0 || (n < 0 && (errno == EINTR || errno == EAGAIN)));
    atomic_store(&is_away, true);
    kill(getpid(), SIGTERM);
    sleep(1);
    kill(getpid(), SIGTERM);
    return NULL;
}

/* Receives the sockets. Returns false if the front does not answer. */
static bool receive_sockets(void)
{
    struct packet p;
    struct cmsghdr *c;

    packet_init(&p, HTTP_MAX_SOCKET);
    if (recvmsg(link_fd, &p.m, MSG_CMSG_CLOEXEC) <= 0)
        return false;
    c = CMSG_FIRSTHDR(&p.m);
    if (c == NULL || c->cmsg_type != SCM_RIGHTS)
        return false;
    n_socket = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
    memcpy(sockets, CMSG_DATA(c), (size_t)n_socket * sizeof(int));
    return n_socket > 0;
}

enum exit_code front_join(enum command command)
{
    const char *name = getenv(FRONT_VARIABLE);
    struct sockaddr_un a;
    socklen_t n;
    pthread_t thread;

    if (name == NULL || name[0] == '\0')
        return EXIT_DONE;
    n = address(&a, name);
    link_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (link_fd < 0 ||
        connect(link_fd, (const struct sockaddr *)(const void *)&a, n) < 0 ||
        !is_same_user(link_fd) || !receive_sockets())
        return cli_error(
            command, EXIT_USAGE,
            "machine 0 is not the computer on which plait serve was started, "
            "or has another user there; name that computer first in --hosts");
    if (pthread_create(&thread, NULL, listen_to_front, NULL) != 0)
        return cli_error(command, EXIT_FAILED,
                         "cannot start a thread; raise \"ulimit -u\"");
    pthread_detach(thread);
    return EXIT_DONE;
}
