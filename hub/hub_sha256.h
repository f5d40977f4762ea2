/* Incremental SHA-256 (FIPS 180-4), computed by GnuTLS. */
#ifndef HUB_SHA256_H
#define HUB_SHA256_H

#include <stdbool.h>
#include <stddef.h>

/* Size of the text of a SHA-256 checksum: 64 hexadecimal digits and a NUL. */
enum { HUB_SHA256 = 65 };

struct hub_sha256 {
    void *state; /* the state of the computation in GnuTLS; owned */
};

bool hub_sha256_init(struct hub_sha256 *h);
void hub_sha256_add(struct hub_sha256 *h, const void *data, size_t n);
/* Writes the checksum of the bytes added so far to `text`, in lower case.
 * Resets *h, so that another checksum can be computed. */
void hub_sha256_end(struct hub_sha256 *h, char text[HUB_SHA256]);
void hub_sha256_fini(struct hub_sha256 *h);

#endif
