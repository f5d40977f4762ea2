/* Plait in place of ssh: mpirun calls `plait --remote-shell [OPTION ...] HOST
 * WORD ...` to start its part on another machine. This runs ssh with the user
 * and the port of --hosts, which mpirun cannot pass on, checks that the machine
 * has the same plait, and names the machine and a remedy if something fails. */
#ifndef CLI_REMOTE_SHELL_H
#define CLI_REMOTE_SHELL_H

#include "hosts.h"

/* The first word of such a call. */
#define REMOTE_SHELL "--remote-shell"
/* The environment variable with the program to use in place of ssh. */
#define REMOTE_SHELL_VARIABLE "PLAIT_SSH"

/* Appends the words of ssh's command line to *to: `self` is the path of plait
 * here, command[n] the words that mpirun wants to run. Returns false if out of
 * memory. */
bool remote_shell_words(struct word_list *to, const struct host *h,
                        const char *self, char *const *command, int n);

/* Returns true if the words argv[argc] after "plait" are such a call. Hydra
 * puts ssh's -x before REMOTE_SHELL. */
bool is_remote_shell(int argc, char **argv);
/* Runs the call argv[argc]. Returns its exit code. */
int remote_shell(int argc, char **argv);

#endif
