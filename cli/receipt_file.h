/* Reads files of receipts: one JSON object, or one on each line. */
#ifndef CLI_RECEIPT_FILE_H
#define CLI_RECEIPT_FILE_H

#include "options.h"

#include "pl_receipt.h"

struct receipt_entry {
    pl_receipt *receipt; /* owned */
    const char *file;    /* path of the file, borrowed */
    int line;            /* number of the receipt's line in the file, from 1 */
};

struct receipt_list {
    struct receipt_entry *v; /* [n] receipts, owned */
    int n;
};

/* Appends the receipts of a file to the list; "-" is standard input. If a line
 * is not a receipt, prints a message and returns EXIT_USAGE. */
enum exit_code receipt_file_read(struct receipt_list *list,
                                 const struct options *o, const char *path);
void receipt_list_free(struct receipt_list *list);

#endif
