/* The file of plait serve --receipt. A thread appends each receipt to it soon
 * after the answer, so that neither a slow disk nor a reader of standard output
 * that stalls holds up a generation. Receipts wait in memory, up to a limit;
 * those beyond it are lost, which the log says.
 *
 * Each receipt is a line of one write(2). A file that exists is continued; if
 * it ends within a line, as after a power failure, a line end is written
 * first. */
#ifndef CLI_SERVE_RECEIPTS_H
#define CLI_SERVE_RECEIPTS_H

#include "options.h"

struct serve_receipts;

/* Opens the file of o->receipt and starts the thread; sets *out to NULL if the
 * option is not given. Prints a message and returns its exit code on failure.
 * `o` is borrowed until serve_receipts_close. */
enum exit_code serve_receipts_open(struct serve_receipts **out,
                                   const struct options *o);
/* Appends a receipt, a JSON text; a service.keep_receipt, whose `user` is a
 * struct serve_receipts. Does not wait. */
void serve_receipts_keep(void *user, const char *json);
/* Waits until all receipts are written, but only a few seconds for a reader
 * that stalls. Prints a message if any is lost. Returns `c`, or if that is
 * EXIT_DONE the exit code of the message. Takes NULL. */
enum exit_code serve_receipts_close(struct serve_receipts *r, enum exit_code c);

#endif
