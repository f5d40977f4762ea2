/* Incremental SHA-256 (FIPS 180-4), computed by GnuTLS. */
#ifndef HUB_SHA256_H
#define HUB_SHA256_H

#include <stdbool.h>
#include <stddef.h>

enum { HUB_SHA256 = 65 }; /* 64 hexadecimal digits and a NUL */

struct hub_sha256 {
    void *state; /* owned */
};

bool hub_sha256_init(struct hub_sha256 *h);
void hub_sha256_add(struct hub_sha256 *h, const void *data, size_t n);
/* Writes the checksum in lower case to `text`, and resets *h to compute another
 * one. */
void hub_sha256_end(struct hub_sha256 *h, char text[HUB_SHA256]);
void hub_sha256_fini(struct hub_sha256 *h);

#endif
