/* Receipts in files: one JSON object, or one a line. */
#ifndef CLI_RECEIPT_FILE_H
#define CLI_RECEIPT_FILE_H

#include "options.h"

#include "pl_receipt.h"

struct receipt_entry {
    pl_receipt *receipt; /* owned */
    const char *file;    /* borrowed */
    int line;            /* of the file, from 1 */
};

struct receipt_list {
    struct receipt_entry *v; /* owned, [n] */
    int n;
};

/* Appends the receipts of a file; "-" is standard input. Prints a message and
 * returns its exit code if a line is not a receipt: EXIT_USAGE. */
enum exit_code receipt_file_read(struct receipt_list *list,
                                 const struct options *o, const char *path);
void receipt_list_free(struct receipt_list *list);

#endif
