/* Signed texts are those of RFC 7515 and RFC 8037, so other programs open them;
 * nothing that was changed afterwards counts as signed. */
#include "lib/jws_try.h"
#include "lib/support.h"
#include "server/jws.h"

#include <stdio.h>
#include <string.h>

#define OTHER_PUBLIC                                                           \
    "-----BEGIN PUBLIC KEY-----\n"                                             \
    "MCowBQYDK2VwAyEAPUAXw+hDiVqStwqnTRt+vJyYLM8uxJaMwM1V8Sr0Zgw=\n"           \
    "-----END PUBLIC KEY-----\n"
#define PAYLOAD "RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc"
#define HEADER  "eyJhbGciOiJFZERTQSJ9"
#define SIGNATURE                                                              \
    "hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7" \
    "sVvpAr_MuM0KAg"
#define SIGNED(payload, header, signature)                                     \
    "{\"payload\":\"" payload "\",\"protected\":\"" header                     \
    "\",\"signature\":\"" signature "\"}"

static struct jws_trust *trusted(const char *pem)
{
    struct jws_trust *t;
    char why[JWS_WHY];

    if (!jws_trust_read(&t, pem, strlen(pem), why))
        fail_msg("%s", why);
    return t;
}

static enum jws_state opened(const char *text, const struct jws_trust *t)
{
    json_t *j = json_loads(text, JSON_DECODE_ANY, NULL);
    struct jws_text out;

    jws_open(&out, j, t);
    json_decref(j);
    assert_int_equal(out.text != NULL,
                     out.state != JWS_NONE && out.state != JWS_MALFORMED);
    if (out.state == JWS_VALID)
        assert_string_equal(out.id, JWS_TRY_ID);
    free(out.text);
    return out.state;
}

TEST(jws_opens_what_other_programs_signed)
{
    struct jws_trust *t =
        trusted("Our key:\n" OTHER_PUBLIC "\n" JWS_TRY_PUBLIC);
    struct jws_trust *other = trusted(OTHER_PUBLIC);
    const char *good = SIGNED(PAYLOAD, HEADER, SIGNATURE);
    struct jws_text out;
    json_t *j = json_loads(good, 0, NULL);

    jws_open(&out, j, t);
    assert_int_equal(out.state, JWS_VALID);
    assert_string_equal(out.text, "Example of Ed25519 signing");
    assert_int_equal(out.len, strlen(out.text));
    free(out.text);
    json_decref(j);
    assert_int_equal(opened(good, other), JWS_UNKNOWN);
    assert_int_equal(opened(good, NULL), JWS_UNKNOWN);
    jws_trust_free(t);
    jws_trust_free(other);
}

TEST(jws_rejects_what_is_not_a_signed_text)
{
    static const struct {
        const char *text;
        enum jws_state state;
    } row[] = {
        {"null", JWS_NONE},
        {"[]", JWS_NONE},
        {"{\"plait_receipt\":1}", JWS_NONE},
        {"{\"payload\":1}", JWS_NONE},
        {"{\"payload\":\"\"}", JWS_MALFORMED},
        {SIGNED("", HEADER, SIGNATURE), JWS_MALFORMED},
        {SIGNED(PAYLOAD, "", SIGNATURE), JWS_MALFORMED},
        {SIGNED(PAYLOAD, HEADER, ""), JWS_MALFORMED},
        {SIGNED(PAYLOAD "=", HEADER, SIGNATURE), JWS_MALFORMED},
        {SIGNED(PAYLOAD " ", HEADER, SIGNATURE), JWS_MALFORMED},
        {SIGNED("a+/a", HEADER, SIGNATURE), JWS_MALFORMED},
        {SIGNED("aaaaa", HEADER, SIGNATURE), JWS_MALFORMED},
        {SIGNED(PAYLOAD, HEADER, "AAAA"), JWS_UNKNOWN},
        {SIGNED(PAYLOAD "A", HEADER, SIGNATURE), JWS_UNKNOWN},
        /* {"alg":"none"} and a critical extension */
        {SIGNED(PAYLOAD, "eyJhbGciOiJub25lIn0", SIGNATURE), JWS_MALFORMED},
        {SIGNED(PAYLOAD, "eyJhbGciOiJFZERTQSIsImNyaXQiOlsiZXhwIl19", SIGNATURE),
         JWS_MALFORMED},
    };
    struct jws_trust *t = trusted(JWS_TRY_PUBLIC);

    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++)
        if (opened(row[i].text, t) != row[i].state)
            fail_msg("%s: state %d", row[i].text, opened(row[i].text, t));
    jws_trust_free(t);
}

/* Each character of the payload, the header or the signature counts. */
TEST(jws_signs_every_byte)
{
    static const char text[] = "{\"plait_receipt\":1,\"plait\":\"\xc3\xa9\"}";
    static const char *const parts[] = {"\"payload\":\"", "\"protected\":\"",
                                        "\"signature\":\""};
    struct jws_trust *t = trusted(JWS_TRY_PUBLIC);
    struct jws_text out;
    struct jws_key *k;
    char why[JWS_WHY], *line;
    json_t *j;

    assert_true(
        jws_key_read(&k, JWS_TRY_PRIVATE, sizeof JWS_TRY_PRIVATE - 1, why));
    line = jws_sign(k, text);
    j = json_loads(line, 0, NULL);
    jws_open(&out, j, t);
    assert_int_equal(out.state, JWS_VALID);
    assert_string_equal(out.text, text);
    free(out.text);
    json_decref(j);
    for (int p = 0; p < 3; p++) {
        char *from = strstr(line, parts[p]) + strlen(parts[p]);
        char *end = strchr(from, '"') - 1; /* has bits that are not used */

        for (char *c = from; c < end; c++) {
            char was = *c;

            *c = was == 'A' ? 'B' : 'A';
            assert_int_not_equal(opened(line, t), JWS_VALID);
            assert_int_not_equal(opened(line, t), JWS_NONE);
            *c = was;
        }
    }
    /* The header names the key, so a changed payload is a forgery. */
    line[strlen("{\"payload\":\"") + 2] ^= 1;
    assert_int_equal(opened(line, t), JWS_FORGED);
    free(line);
    jws_key_free(k);
    jws_trust_free(t);
}

TEST(jws_keys_are_of_one_kind)
{
    /* an RSA key would be long; this is a key of Ed448 */
    static const char other[] =
        "-----BEGIN PRIVATE KEY-----\n"
        "MEcCAQAwBQYDK2VxBDsEOWyCpWLLgI0Q1jK+ichRPr9skp803fqMn2PJlg7240ij\n"
        "UoyKP8wvBE45o/xblEkvjwMudUmiAJj5Ww==\n"
        "-----END PRIVATE KEY-----\n";
    struct jws_trust *t;
    struct jws_key *k;
    char why[JWS_WHY];

    assert_false(jws_key_read(&k, "", 0, why));
    assert_false(
        jws_key_read(&k, JWS_TRY_PUBLIC, sizeof JWS_TRY_PUBLIC - 1, why));
    assert_non_null(strstr(why, "not a private key"));
    assert_false(jws_key_read(&k, other, sizeof other - 1, why));
    assert_non_null(strstr(why, "not an Ed25519 key"));
    assert_null(k);
    assert_false(
        jws_trust_read(&t, JWS_TRY_PRIVATE, sizeof JWS_TRY_PRIVATE - 1, why));
    assert_non_null(strstr(why, "no public key"));
    assert_false(
        jws_trust_read(&t, JWS_TRY_PUBLIC "-----BEGIN PUBLIC KEY-----\nMCow",
                       sizeof JWS_TRY_PUBLIC + 30, why));
    assert_non_null(strstr(why, "key 2"));
    assert_null(t);
}
