/* SHA-256 by GnuTLS, which has code for the SHA instructions of processors.
 * HTTP needs GnuTLS for TLS anyway. See hub_sha256.h. */
#include "hub_sha256.h"

#include <gnutls/crypto.h>
#include <stdio.h>

bool hub_sha256_init(struct hub_sha256 *h)
{
    gnutls_hash_hd_t state;

    h->state =
        gnutls_hash_init(&state, GNUTLS_DIG_SHA256) == 0 ? (void *)state : NULL;
    return h->state != NULL;
}

void hub_sha256_add(struct hub_sha256 *h, const void *data, size_t n)
{
    if (n > 0)
        gnutls_hash(h->state, data, n);
}

void hub_sha256_end(struct hub_sha256 *h, char text[HUB_SHA256])
{
    unsigned char sum[32];

    gnutls_hash_output(h->state, sum);
    for (int i = 0; i < 32; i++)
        snprintf(text + 2 * i, 3, "%02x", sum[i]);
}

void hub_sha256_fini(struct hub_sha256 *h)
{
    if (h->state != NULL)
        gnutls_hash_deinit(h->state, NULL);
    h->state = NULL;
}
