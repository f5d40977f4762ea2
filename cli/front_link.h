/* The connection between machine 0 of a server over several machines and its
 * front, the process that has started mpirun (serve_front.c).
 *
 * The front binds the server's addresses once and keeps the sockets. Machine 0,
 * a process of the same computer, gets copies of them, so that a client never
 * meets a closed port, and none that waits is lost: while machine 0 accepts,
 * the front does not, and the front goes on as soon as the connection tells it
 * that machine 0 has ended. That is safer than two sockets with SO_REUSEPORT,
 * between which the system divides clients, and whose waiting clients are reset
 * when one is closed.
 *
 * The connection is an abstract Unix socket, which leaves no file. Both sides
 * check that the other one has the same user. */
#ifndef CLI_FRONT_LINK_H
#define CLI_FRONT_LINK_H

#include "options.h"

/* The environment variable with the socket's name. */
#define FRONT_VARIABLE "PLAIT_FRONT"

/* Messages of two bytes: one of these, and an exit code for FRONT_ENDS. */
enum front_message {
    FRONT_JOINED = 'J', /* all machines have joined */
    FRONT_READY = 'R',  /* machine 0 accepts clients */
    FRONT_CLOSED = 'C', /* machine 0 accepts no more */
    FRONT_ENDS = 'E',   /* machine 0 ends */
    FRONT_STOP = 'S',   /* the front tells machine 0 to end, like a signal */
    FRONT_AWAY = 'A',   /* the front accepts no clients any more */
    /* Machine 0 lives. It is sent twice a second, also while machine 0 loads
     * and computes, but not if its process is stopped. */
    FRONT_BEAT = 'B',
};

enum { FRONT_NAME = 48 };

/* ---- the front ----------------------------------------------------------- */

/* Writes a new name to name[]. Returns the listening socket, or -1. */
int front_listen(char name[FRONT_NAME]);
/* Accepts machine 0 and sends it the sockets fd[n]. Returns the connection, or
 * -1 if none waits or if it has another user. */
int front_accept(int listener, const int *fd, int n);
/* Receives a message without waiting. Returns its first byte, and sets *code;
 * 0 if there is none, -1 if machine 0 has closed the connection. */
int front_receive(int link, int *code);
/* Sends a message to machine 0. */
void front_send(int link, enum front_message m);

/* ---- machine 0 ----------------------------------------------------------- */

/* Connects to the front if the environment names one. From then on, a thread
 * sends beats, and raises SIGTERM when the front tells machine 0 to end, or has
 * ended. Prints an error if the front is not on this computer. */
enum exit_code front_join(enum command command);
/* Returns the sockets that the front has sent, and sets *n to their number, 0
 * if there is no front. */
const int *front_sockets(int *n);
/* Tells the front, if there is one. `code` is that of FRONT_ENDS. */
void front_tell(enum front_message m, int code);
/* Tells the front, if there is one, that this process accepts clients, and
 * waits until the front does not. */
void front_take_over(void);

#endif
