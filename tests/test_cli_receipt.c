/* plait run --receipt, plait verify and plait diff: whoever has the file and
 * the model learns by one command, and its exit code, whether it holds. */
#include "lib/command.h"
#include "lib/support.h"

#include <stdio.h>
#include <string.h>

#define RUN "plait run " MODEL "-p 'Once upon a time' -n 16 "

TEST(cli_receipts_hold_on_other_devices)
{
    static const char *const devices[] = {"cpu", "'cpu*2'", "'sim*3'",
                                          "'cpu*2' -sm layer", "emu"};

    sh(0, RUN "-s 5 -dev 'cpu*2' -ts 3,1 --receipt a.json");
    for (size_t i = 0; i < sizeof devices / sizeof devices[0]; i++) {
        char line[200];
        struct ran r;

        snprintf(line, sizeof line, "plait verify " MODEL "a.json -dev %s",
                 devices[i]);
        r = sh(0, line);
        assert_non_null(strstr(r.out, "a.json: holds: 16 tokens"));
    }
    must_say(sh(0, "plait verify " MODEL "a.json --sample 3"), "3 tokens in");
}

TEST(cli_verify_tells_which_receipt_differs)
{
    struct ran r;

    sh(0, RUN "-s 5 --receipt a.json");
    sh(0, "sed 's/\"seed\":\"5\"/\"seed\":\"6\"/' a.json >b.json");
    sh(0,
       "sed 's/\"hash\":\"[0-9a-f]*\"/\"hash\":\"0123456789abcdef\"/' a.json "
       ">c.json");
    sh(0, "cat a.json b.json a.json >all.jsonl");
    r = sh(1, "plait verify " MODEL "all.jsonl --json");
    assert_non_null(strstr(r.out, "\"line\":2,\"verdict\":\"differs\""));
    assert_non_null(strstr(r.out, "\"line\":3,\"verdict\":\"holds\""));
    must_say(r, "3 receipts: 2 hold, 1 differs, 0 cannot be compared");
    r = sh(2, "plait verify " MODEL "c.json");
    assert_non_null(strstr(r.out, "cannot compare: other weights"));
    must_say(sh(2, "plait verify " MODEL), "no receipt");
    must_say(sh(2, "plait verify " MODEL "models/heldout.txt"),
             "not a receipt");
    r = sh(1, "plait diff a.json b.json");
    assert_string_equal(r.out, "sampling: seed is \"5\" and \"6\"\n");
    must_say(sh(0, "plait diff a.json a.json"), "agree");
    must_say(sh(2, "plait diff a.json"), "give two");
    must_say(sh(2, "plait diff a.json all.jsonl"), "3 receipts");
}

TEST(cli_receipts_with_hashes_need_what_they_lack)
{
    struct ran r;

    sh(0, RUN "--grammar 'root ::= [a-z ]+' --receipt-form brief --receipt "
              "a.json");
    r = sh(2, "plait verify " MODEL "a.json");
    assert_non_null(strstr(r.out, "give the prompt"));
    r = sh(2, "plait verify " MODEL "a.json -p 'Once upon a time'");
    assert_non_null(strstr(r.out, "give the grammar"));
    sh(0, "printf '%s' 'root ::= [a-z ]+' >g.gbnf");
    sh(0, "plait verify " MODEL "a.json -p 'Once upon a time' --grammar-file "
          "g.gbnf");
    r = sh(1, "plait verify " MODEL "a.json -p 'Once upon no time'");
    assert_non_null(strstr(r.out, "the prompt is another one"));
    sh(0, RUN "--receipt-form hashes --receipt b.json");
    sh(0, "plait verify " MODEL "b.json -p 'Once upon a time'");
}

TEST(cli_receipts_of_a_chat_have_a_line_each)
{
    struct ran r;

    sh(0, "printf 'Hello\\nAnd then?\\n' | plait run " MODEL
          "-i -n 8 -s 3 --receipt chat.jsonl");
    r = sh(0, "plait verify " MODEL "chat.jsonl -dev 'sim*2'");
    assert_non_null(strstr(r.out, "chat.jsonl:1: holds"));
    assert_non_null(strstr(r.out, "chat.jsonl:2: holds"));
}

TEST(cli_shares_of_ranks_are_those_of_devices)
{
    struct ran a, b;

    a = sh(0, "plait plan " MODEL "-dev 'cpu*2' -ts 3,1 --json | grep -o "
              "'numeric_hash[^,]*'");
    b = sh(0, "plait plan " MODEL "--rank-split 3,1 --json | grep -o "
              "'numeric_hash[^,]*'");
    assert_string_equal(a.out, b.out);
    must_say(sh(2, "plait plan " MODEL "--ranks 3 --rank-split 3,1"),
             "one per rank");
    must_say(sh(2, "plait plan " MODEL "--rank-split 0,0"), "not all 0");
}
