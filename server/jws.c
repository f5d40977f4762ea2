/* See jws.h. */
#include "jws.h"

#include <gnutls/abstract.h>
#include <gnutls/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct jws_key {
    gnutls_privkey_t key;
    char id[JWS_ID];
};

struct jws_trust {
    int n;
    struct trusted {
        gnutls_pubkey_t key;
        char id[JWS_ID];
    } * v; /* owned, [n] */
};

/* ---- base64url ----------------------------------------------------------- */

/* Encodes without padding. Returns a malloc'ed string; NULL if out of memory.
 */
static char *encode(const void *data, size_t n)
{
    gnutls_datum_t in = {(void *)data, (unsigned)n}, out;
    char *s = NULL;

    if (gnutls_base64_encode2(&in, &out) != 0)
        return NULL;
    while (out.size > 0 && out.data[out.size - 1] == '=')
        out.size--;
    s = strndup((char *)out.data, out.size);
    gnutls_free(out.data);
    for (char *c = s; c != NULL && *c != '\0'; c++)
        *c = *c == '+' ? '-' : *c == '/' ? '_' : *c;
    return s;
}

/* Decodes a string of the alphabet of base64url. Sets *n to the number of
 * bytes. Returns them malloc'ed, followed by a NUL; NULL if they are not
 * base64url or if out of memory. */
static char *decode(const char *s, size_t *n)
{
    size_t len = strlen(s), digits;
    gnutls_datum_t in, out = {NULL, 0};
    char *plain = calloc(len + 4, 1), *to = NULL;

    for (size_t i = 0; plain != NULL && i < len; i++)
        plain[i] = (char)(s[i] == '-' ? '+' : s[i] == '_' ? '/' : s[i]);
    digits = strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                       "0123456789-_");
    if (plain != NULL && digits == len && len > 0 && len % 4 != 1) {
        for (; len % 4 != 0; len++)
            plain[len] = '=';
        in = (gnutls_datum_t){(unsigned char *)plain, (unsigned)len};
        if (gnutls_base64_decode2(&in, &out) == 0)
            to = malloc((size_t)out.size + 1);
    }
    if (to != NULL) {
        memcpy(to, out.data, out.size);
        to[out.size] = '\0';
        *n = out.size;
    }
    gnutls_free(out.data);
    free(plain);
    return to;
}

/* ---- keys ---------------------------------------------------------------- */

/* Writes the thumbprint of a public key. Returns false if it is not an Ed25519
 * key or if out of memory. */
static bool thumbprint(gnutls_pubkey_t key, char id[JWS_ID])
{
    char text[128], *x64, *hash64 = NULL;
    unsigned char hash[32];
    gnutls_datum_t x;

    if (gnutls_pubkey_get_pk_algorithm(key, NULL) != GNUTLS_PK_EDDSA_ED25519 ||
        gnutls_pubkey_export_ecc_raw2(key, NULL, &x, NULL, 0) != 0)
        return false;
    x64 = encode(x.data, x.size);
    gnutls_free(x.data);
    if (x64 != NULL) {
        int n =
            snprintf(text, sizeof(text),
                     "{\"crv\":\"Ed25519\",\"kty\":\"OKP\",\"x\":\"%s\"}", x64);

        if (gnutls_hash_fast(GNUTLS_DIG_SHA256, text, (size_t)n, hash) == 0)
            hash64 = encode(hash, sizeof(hash));
    }
    if (hash64 != NULL)
        snprintf(id, JWS_ID, "%s", hash64);
    free(x64);
    free(hash64);
    return hash64 != NULL;
}

static bool private_thumbprint(gnutls_privkey_t key, char id[JWS_ID])
{
    gnutls_pubkey_t public = NULL;
    bool done = gnutls_pubkey_init(&public) == 0 &&
                gnutls_pubkey_import_privkey(public, key, 0, 0) == 0 &&
                thumbprint(public, id);

    if (public != NULL)
        gnutls_pubkey_deinit(public);
    return done;
}

bool jws_key_read(struct jws_key **out, const char *pem, size_t len,
                  char why[JWS_WHY])
{
    gnutls_datum_t data = {(void *)pem, (unsigned)len};
    struct jws_key *k = calloc(1, sizeof(*k));
    int rc;

    *out = NULL;
    if (k == NULL || gnutls_privkey_init(&k->key) != 0) {
        free(k);
        snprintf(why, JWS_WHY, "no memory for a key");
        return false;
    }
    rc = gnutls_privkey_import_x509_raw(k->key, &data, GNUTLS_X509_FMT_PEM,
                                        NULL, 0);
    if (rc != 0)
        snprintf(why, JWS_WHY,
                 "not a private key in PEM without a password (%s); make one "
                 "with openssl genpkey -algorithm ed25519",
                 gnutls_strerror(rc));
    else if (gnutls_privkey_get_pk_algorithm(k->key, NULL) !=
             GNUTLS_PK_EDDSA_ED25519)
        snprintf(why, JWS_WHY,
                 "not an Ed25519 key; make one with openssl genpkey -algorithm "
                 "ed25519");
    else if (!private_thumbprint(k->key, k->id))
        snprintf(why, JWS_WHY, "no memory for a key");
    else
        *out = k;
    if (*out == NULL)
        jws_key_free(k);
    return *out != NULL;
}

void jws_key_free(struct jws_key *k)
{
    if (k == NULL)
        return;
    gnutls_privkey_deinit(k->key);
    free(k);
}

/* Appends a key to the list. Returns false with a message in `why`. */
static bool trust_add(struct jws_trust *t, const gnutls_datum_t *pem,
                      char why[JWS_WHY])
{
    struct trusted *more = realloc(t->v, ((size_t)t->n + 1) * sizeof(*t->v));
    struct trusted *k = NULL;
    int rc;

    if (more != NULL) {
        t->v = more;
        k = &t->v[t->n];
    }
    if (k == NULL || gnutls_pubkey_init(&k->key) != 0) {
        snprintf(why, JWS_WHY, "no memory for a key");
        return false;
    }
    t->n++;
    rc = gnutls_pubkey_import(k->key, pem, GNUTLS_X509_FMT_PEM);
    if (rc == 0 && thumbprint(k->key, k->id))
        return true;
    snprintf(why, JWS_WHY,
             "key %d is not an Ed25519 public key (%s); openssl pkey -pubout "
             "writes that of a private key",
             t->n, rc != 0 ? gnutls_strerror(rc) : "another algorithm");
    return false;
}

bool jws_trust_read(struct jws_trust **out, const char *pem, size_t len,
                    char why[JWS_WHY])
{
    static const char begin[] = "-----BEGIN PUBLIC KEY-----";
    struct jws_trust *t = calloc(1, sizeof(*t));
    const char *at = memmem(pem, len, begin, sizeof(begin) - 1);
    bool done = t != NULL && at != NULL;

    *out = NULL;
    if (!done)
        snprintf(why, JWS_WHY, "%s",
                 t == NULL ? "no memory for keys"
                           : "no public key in PEM; openssl pkey -pubout "
                             "writes that of a private key");
    while (done && at != NULL) {
        size_t left = len - (size_t)(at - pem);
        const char *next = memmem(at + 1, left - 1, begin, sizeof(begin) - 1);
        gnutls_datum_t one = {
            (void *)at, (unsigned)(next != NULL ? (size_t)(next - at) : left)};

        done = trust_add(t, &one, why);
        at = next;
    }
    if (done)
        *out = t;
    else
        jws_trust_free(t);
    return done;
}

void jws_trust_free(struct jws_trust *t)
{
    if (t == NULL)
        return;
    for (int i = 0; i < t->n; i++)
        gnutls_pubkey_deinit(t->v[i].key);
    free(t->v);
    free(t);
}

/* ---- texts --------------------------------------------------------------- */

/* Returns H.P, the bytes that are signed (RFC 7515, 5.1). */
static char *signing_input(const char *header, const char *payload)
{
    size_t size = strlen(header) + strlen(payload) + 2;
    char *s = malloc(size);

    if (s != NULL)
        snprintf(s, size, "%s.%s", header, payload);
    return s;
}

char *jws_sign(const struct jws_key *k, const char *text)
{
    char header[96], *header64, *payload64, *input = NULL, *sum64 = NULL;
    char *line = NULL;
    int n = snprintf(header, sizeof(header),
                     "{\"alg\":\"EdDSA\",\"kid\":\"%s\"}", k->id);

    header64 = encode(header, (size_t)n);
    payload64 = encode(text, strlen(text));
    if (header64 != NULL && payload64 != NULL)
        input = signing_input(header64, payload64);
    if (input != NULL) {
        gnutls_datum_t data = {(void *)input, (unsigned)strlen(input)}, sum;

        if (gnutls_privkey_sign_data2(k->key, GNUTLS_SIGN_EDDSA_ED25519, 0,
                                      &data, &sum) == 0) {
            sum64 = encode(sum.data, sum.size);
            gnutls_free(sum.data);
        }
    }
    if (sum64 != NULL) {
        static const char form[] =
            "{\"payload\":\"%s\",\"protected\":\"%s\",\"signature\":\"%s\"}";
        size_t size =
            sizeof(form) + strlen(payload64) + strlen(header64) + strlen(sum64);

        line = malloc(size);
        if (line != NULL)
            snprintf(line, size, form, payload64, header64, sum64);
    }
    free(header64);
    free(payload64);
    free(input);
    free(sum64);
    return line;
}

pl_status jws_receipt(char **out, const pl_receipt *r, unsigned flags,
                      const struct jws_key *k, pl_err *err)
{
    char *plain;
    pl_status s = pl_receipt_write(r, flags, out, err);

    if (s != PL_OK || k == NULL)
        return s;
    plain = *out;
    *out = jws_sign(k, plain);
    free(plain);
    if (*out != NULL)
        return PL_OK;
    if (err != NULL) {
        err->status = PL_NO_MEMORY;
        snprintf(err->message, sizeof(err->message),
                 "no memory for the signature of a receipt");
    }
    return PL_NO_MEMORY;
}

/* Reads the protected header. Returns false unless the algorithm is EdDSA and
 * the header has no extension that a reader must understand. */
static bool read_header(struct jws_text *out, const char *header64)
{
    size_t n;
    char *text = decode(header64, &n);
    json_t *j =
        text != NULL ? json_loadb(text, n, JSON_REJECT_DUPLICATES, NULL) : NULL;
    const char *alg = json_string_value(json_object_get(j, "alg"));
    const char *id = json_string_value(json_object_get(j, "kid"));
    bool good = alg != NULL && strcmp(alg, "EdDSA") == 0 &&
                json_object_get(j, "crit") == NULL;

    if (good && id != NULL)
        snprintf(out->id, JWS_ID, "%s", id);
    json_decref(j);
    free(text);
    return good;
}

/* Returns true if the key has signed `input`. */
static bool signed_by(gnutls_pubkey_t key, const char *input, const char *sum,
                      size_t n_sum)
{
    gnutls_datum_t data = {(void *)input, (unsigned)strlen(input)};
    gnutls_datum_t sig = {(void *)sum, (unsigned)n_sum};

    return gnutls_pubkey_verify_data2(key, GNUTLS_SIGN_EDDSA_ED25519, 0, &data,
                                      &sig) >= 0;
}

void jws_open(struct jws_text *out, const json_t *j, const struct jws_trust *t)
{
    const char *payload = json_string_value(json_object_get(j, "payload"));
    const char *header = json_string_value(json_object_get(j, "protected"));
    const char *signature = json_string_value(json_object_get(j, "signature"));
    char *input = NULL, *sum = NULL;
    size_t n_sum = 0;

    *out = (struct jws_text){.state = JWS_NONE};
    if (payload == NULL)
        return;
    out->state = JWS_MALFORMED;
    if (header == NULL || signature == NULL || !read_header(out, header))
        return;
    sum = decode(signature, &n_sum);
    input = signing_input(header, payload);
    out->text = decode(payload, &out->len);
    if (sum != NULL && input != NULL && out->text != NULL) {
        out->state = JWS_UNKNOWN;
        for (int i = 0; t != NULL && i < t->n; i++) {
            if (signed_by(t->v[i].key, input, sum, n_sum)) {
                out->state = JWS_VALID;
                snprintf(out->id, JWS_ID, "%s", t->v[i].id);
                break;
            }
            if (strcmp(t->v[i].id, out->id) == 0)
                out->state = JWS_FORGED;
        }
    } else {
        free(out->text);
        out->text = NULL;
    }
    free(sum);
    free(input);
}
