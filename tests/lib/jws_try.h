/* The key of RFC 8037, appendix A, for tests of signatures. */
#ifndef TEST_JWS_TRY_H
#define TEST_JWS_TRY_H

#define JWS_TRY_PRIVATE                                                        \
    "-----BEGIN PRIVATE KEY-----\n"                                            \
    "MC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g\n"       \
    "-----END PRIVATE KEY-----\n"
#define JWS_TRY_PUBLIC                                                         \
    "-----BEGIN PUBLIC KEY-----\n"                                             \
    "MCowBQYDK2VwAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=\n"           \
    "-----END PUBLIC KEY-----\n"
#define JWS_TRY_ID "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"

#endif
