/* Incremental SHA-256 (FIPS 180-4), computed by Nettle, which has code for the
 * processor's SHA instructions. */
#ifndef BASE_SHA256_H
#define BASE_SHA256_H

#include <nettle/sha2.h>

#include <stddef.h>

enum { SHA256_TEXT = 65 }; /* 64 hexadecimal digits and a NUL */

/* Writes the hash of all data added to `c` in lower case to `text`, and resets
 * `c`. sha256_init and sha256_update are Nettle's. */
void sha256_text(struct sha256_ctx *c, char text[SHA256_TEXT]);

#endif
