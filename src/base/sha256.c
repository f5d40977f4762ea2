/* Implements sha256_text, declared in sha256.h. */
#include "base/sha256.h"

#include <nettle/base16.h>

void sha256_text(struct sha256_ctx *c, char text[SHA256_TEXT])
{
    unsigned char sum[SHA256_DIGEST_SIZE];

    nettle_sha256_digest(c, sizeof sum, sum);
    nettle_base16_encode_update(text, sizeof sum, sum);
    text[2 * sizeof sum] = '\0';
}
