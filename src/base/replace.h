/* A file that takes another's place as a whole: who looks finds the old file or
 * the new one, both complete, whenever the process or the machine stops.
 *
 * It is written without a name where the file system knows such files, so that
 * nothing is left of one that was never finished; elsewhere under a name beside
 * its place that ends in ".part". */
#ifndef BASE_REPLACE_H
#define BASE_REPLACE_H

#include "pl.h"

struct replace {
    int fd;     /* write here */
    char *path; /* owned: the place; what a link names, not the link */
    char *dir;  /* owned: what holds it */
    char *name; /* owned, of the new file once it has one, else NULL */
};

/* Who may read a file that was there stays as it is. PL_NOT_FOUND: there is no
 * such directory; PL_BAD_ARGUMENT: path is no regular file; PL_IO. If it fails
 * nothing is held. */
pl_status replace_open(struct replace *r, const char *path, pl_err *err);
/* All is written: brings it to the disk and into its place. */
pl_status replace_done(struct replace *r, pl_err *err);
/* Always, after replace_done or without it: then the place is as it was. */
void replace_close(struct replace *r);

#endif
