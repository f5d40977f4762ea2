/* Reads and writes files of receipts: one JSON object, or one on each line.
 * Reads the key that signs them. */
#ifndef CLI_RECEIPT_FILE_H
#define CLI_RECEIPT_FILE_H

#include "atomic_file.h"
#include "options.h"

#include "server/jws.h"

#include "pl_receipt.h"

struct receipt_entry {
    pl_receipt *receipt;   /* owned */
    const char *file;      /* borrowed */
    int line;              /* of the file, from 1 */
    enum jws_state signer; /* JWS_NONE: the receipt is not signed */
    char key[JWS_ID];      /* thumbprint of the key that it names; "" if none */
};

struct receipt_list {
    struct receipt_entry *v; /* [n] receipts, owned */
    int n;
    int n_bad; /* lines that are not receipts; a message names each */
};

/* Appends the receipts of a file, signed or not; "-" is standard input. Checks
 * signatures by the keys of `trust`, which may be NULL. Lines that are not
 * receipts, because they were changed or cut, are counted and left out. */
enum exit_code receipt_file_read(struct receipt_list *list,
                                 const struct options *o, const char *path,
                                 const struct jws_trust *trust);
/* Reads the key of --sign-key; sets *key to NULL if the option is not given.
 * Only a server can do without --receipt. */
enum exit_code receipt_read_key(struct jws_key **key, const struct options *o);
/* Returns the flags of pl_receipt_write for --receipt-form. */
unsigned receipt_flags(const struct options *o);
/* Writes a receipt as a line, which readers of a stream have at once, signed by
 * `key` unless it is NULL. `flags` are those of pl_receipt_write. Closing the
 * file reports failed writes. */
pl_status receipt_line(struct whole_file *w, const pl_receipt *r,
                       unsigned flags, const struct jws_key *key, pl_err *err);
void receipt_list_free(struct receipt_list *list);

#endif
