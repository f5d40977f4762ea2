/* JSON Web Signatures (RFC 7515) by Ed25519 keys (RFC 8037), in the flattened
 * JSON form: {"payload": P, "protected": H, "signature": S}, each base64url.
 * P is the signed text, H is {"alg":"EdDSA","kid":K}, and K names the key by
 * its thumbprint (RFC 7638). Keys are read from PEM, as `openssl genpkey
 * -algorithm ed25519` and `openssl pkey -pubout` write it. */
#ifndef SERVER_JWS_H
#define SERVER_JWS_H

#include "pl_receipt.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

enum {
    JWS_ID = 44,   /* bytes of a thumbprint as base64url, with its NUL */
    JWS_WHY = 160, /* bytes of a message */
};

/* A private key. Threads may share it. */
struct jws_key;

/* Reads a private key from PEM text. Returns false with a message in `why`. */
bool jws_key_read(struct jws_key **out, const char *pem, size_t len,
                  char why[JWS_WHY]);
void jws_key_free(struct jws_key *k);
/* Returns the signed form of a text as one line of JSON, malloc'ed; NULL if out
 * of memory. */
char *jws_sign(const struct jws_key *k, const char *text);
/* Sets *out to the text of a receipt, signed by `k` unless that is NULL; the
 * caller frees it. `flags` are those of pl_receipt_write. Fails as that does,
 * and with PL_NO_MEMORY if the receipt cannot be signed. */
pl_status jws_receipt(char **out, const pl_receipt *r, unsigned flags,
                      const struct jws_key *k, pl_err *err);

/* Public keys whose signatures are accepted. */
struct jws_trust;

/* Reads all public keys of a PEM text, at least one. */
bool jws_trust_read(struct jws_trust **out, const char *pem, size_t len,
                    char why[JWS_WHY]);
void jws_trust_free(struct jws_trust *t);

enum jws_state {
    JWS_NONE,      /* the JSON value is not a signed text */
    JWS_VALID,     /* signed by a key of the list */
    JWS_UNKNOWN,   /* by a key that is not in the list, or there is no list */
    JWS_FORGED,    /* names a key of the list, which has not signed this */
    JWS_MALFORMED, /* fields are missing or wrong, or out of memory */
};

struct jws_text {
    enum jws_state state;
    char *text; /* the payload, malloc'ed and NUL-terminated; NULL if NONE or
                      MALFORMED */
    size_t len; /* of `text` in bytes */
    char id[JWS_ID]; /* thumbprint of the key that the text names; "" if none */
};

/* Opens a signed text and checks its signature. `t` may be NULL. The caller
 * frees out->text. */
void jws_open(struct jws_text *out, const json_t *j, const struct jws_trust *t);

#endif
