/* The machines of --hosts: a list, or a file with a line a machine. Parses them
 * and makes the words that each machine's plait is started with. */
#ifndef CLI_HOSTS_H
#define CLI_HOSTS_H

#include "options.h"
#include "word_list.h"

enum { HOSTS_MAX = 64, HOST_TEXT = 256, HOSTS_WHY = 200 };

struct host {
    char name[HOST_TEXT]; /* for ssh: a name or an address, without brackets */
    char user[HOST_TEXT]; /* "" if ssh is to choose */
    int port;             /* 0 if ssh is to choose */
    /* The name that mpirun gets. It is the machine's, if that suffices for ssh
     * and mpirun can read it; else a made-up one, "plait-machine-2". */
    char call[HOST_TEXT];
    /* The name in messages: the machine's, or "b-2" if it stands in the list
     * more than once. */
    char shown[HOST_TEXT + 8];
    struct word_list own; /* options of its line in the file */
    int line;             /* number of that line, from 1 */
};

struct hosts {
    bool has_lines; /* read from a file */
    int n;
    struct host host[HOSTS_MAX];
};

/* Parses `text`, machines separated by commas. Returns false and writes what is
 * wrong to why[HOSTS_WHY].
 *
 *   machine  [USER@]NAME[:PORT]
 *   NAME     letters, digits, dots, hyphens and underscores, or an IPv6 address
 *            in brackets */
bool hosts_parse_list(struct hosts *h, const char *text, char *why);
/* Parses the text of a file: a line a machine, with options of `plait worker`
 * after it. Empty lines, and what follows a # after a blank, are ignored.
 * Quotes of both kinds keep blanks. */
bool hosts_parse_file(struct hosts *h, const char *text, char *why);
/* Checks that the options of all lines are those of `plait worker`. If not,
 * prints what is wrong with one, writes its line to why[HOSTS_WHY] and
 * returns false. */
bool hosts_check(const struct hosts *h, char *why);
void hosts_free(struct hosts *h);

/* Appends the words that start machine `m` to *to: "worker" or the name of the
 * command, then the words `all` of the command without --hosts and, unless m
 * is 0, without what a worker does not take, then the machine's own options,
 * which replace those of the command. Returns false if out of memory. */
bool hosts_words(struct word_list *to, const struct hosts *h, int m,
                 enum command command, const struct word_list *all);

/* Reads the environment variable with the list of a job, written by
 * hosts_export. Returns false if there is none. */
bool hosts_import(struct hosts *h);
bool hosts_export(const struct hosts *h);
#define HOSTS_VARIABLE "PLAIT_HOSTS"

#endif
