/* plait run --receipt, plait verify and plait diff: whoever has the file and
 * the model learns by one command, and its exit code, whether it holds. */
#include "lib/command.h"
#include "lib/jws_try.h"
#include "lib/support.h"

#include <stdio.h>
#include <string.h>

#define RUN "plait run " MODEL "-p 'Once upon a time' -n 16 "

TEST(cli_receipts_hold_on_other_devices)
{
    static const char *const devices[] = {
        "cpu",
        "'cpu*2'",
        "'sim*3'",
        "'cpu*2' -sm layer",
        "emu",
        "'sim*2' -ot 'ffn_down=CPU'",
        "'sim*2' -ot 'blk[.]1[.]=sim1'",
    };

    sh(0, RUN "-s 5 -dev 'cpu*2' -ts 3,1 --receipt a.json");
    for (size_t i = 0; i < sizeof devices / sizeof devices[0]; i++) {
        char line[200];
        struct ran r;

        snprintf(line, sizeof line, "%s verify " MODEL "a.json -dev %s",
                 strcmp(devices[i], "emu") ? "plait" : "plait-emu", devices[i]);
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

/* A receipt that cannot be used does not keep the others from being checked,
 * and its texts do not reach the terminal as control characters. */
TEST(cli_verify_goes_on_after_a_receipt_that_is_damaged)
{
    struct ran r;

    sh(0, RUN "-s 5 --receipt a.json");
    sh(0, "sed 's/\"temperature\":[0-9.]*/\"temperature\":-1/' a.json >b.json");
    sh(0, "sed 's/\"hash\":\"[0-9a-f]*\"/\"hash\":\"0123456789abcdef\"/; "
          "s/\"name\":\"[^\"]*\"/\"name\":\"\\u001b]0;x\\u0007\\u009b2J\"/' "
          "a.json >c.json");
    sh(0, "sed 's/\"order\":[0-9]*/\"order\":9/' a.json >d.json");
    sh(0, "printf '\\n' >e.json; cat a.json >>e.json; echo >>e.json");
    r = sh(2, "plait verify " MODEL "b.json c.json d.json e.json");
    assert_non_null(strstr(r.out, "b.json:1: cannot compare: "));
    assert_non_null(strstr(r.out, "temperature"));
    assert_non_null(strstr(r.out, "c.json:1: cannot compare: other weights"));
    assert_non_null(strstr(r.out, "d.json:1: cannot compare: "));
    assert_non_null(strstr(r.out, "e.json:1: holds"));
    must_say(r, "4 receipts: 1 holds, 0 differ, 3 cannot be compared");
    for (const char *s = r.out; *s != '\0'; s++)
        assert_true(*s == '\n' || (*s >= ' ' && *s <= '~'));
    sh(0, "sed 's/\"stop\":\\[\\]/\"stop\":[\"\xc2\x9b[2J\"]/' a.json >f.json");
    r = sh(1, "plait diff a.json f.json");
    assert_null(strstr(r.out, "\xc2\x9b"));
    sh(0, "cut -c-400 a.json >g.json");
    r = sh(2, "plait verify " MODEL "g.json a.json");
    must_say(r, "g.json:1: not a");
    assert_non_null(strstr(r.out, "a.json:1: holds"));
    must_say(r, "2 receipts: 1 holds, 0 differ, 1 cannot be compared");
    /* The first token without its hash, alone and before others. */
    sh(0, "sed 's/\"output\":\\(.*\\)\"tokens\":\\[/&1/' a.json >h.json");
    sh(0, "cat h.json a.json g.json a.json >i.jsonl");
    r = sh(2, "plait verify " MODEL "h.json i.jsonl");
    must_say(r, "h.json:1: receipt: \"output\" is missing or wrong");
    must_say(r, "i.jsonl:3: not a");
    must_say(r, "5 receipts: 2 hold, 0 differ, 3 cannot be compared");
    must_say(sh(2, "plait diff h.json a.json"), "h.json:1: receipt: ");
    must_say(sh(2, "plait diff a.json h.json"), "h.json:1: receipt: ");
    must_say(sh(2, "plait verify " MODEL "none.json"), "none.json");
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
    /* A prompt of 64 Mi tokens must be given, and one whose hash alone is the
     * receipt's is another. */
    sh(0, "sed 's/\"prompt\":{\"n\":[0-9]*/\"prompt\":{\"n\":67108864/' "
          "b.json >c.json");
    r = sh(2, "plait verify " MODEL "c.json");
    assert_non_null(strstr(r.out, "its prompt of 67108864"));
    sh(1, "plait verify " MODEL "c.json -p 'Once upon a time'");
}

TEST(cli_receipts_of_a_chat_have_a_line_each)
{
    struct ran r;

    sh(0, "printf 'Hello\\nAnd then?\\n' | plait run " MODEL
          "-i -n 8 -s 3 --receipt chat.jsonl");
    r = sh(0, "plait verify " MODEL "chat.jsonl -dev 'sim*2'");
    assert_non_null(strstr(r.out, "chat.jsonl:1: holds"));
    assert_non_null(strstr(r.out, "chat.jsonl:2: holds"));
    must_say(r, "2 receipts: 2 hold");
    /* The second answer is another one after another first question. */
    sh(0, "printf 'Good day\\nAnd then?\\n' | plait run " MODEL
          "-i -n 8 -s 3 --receipt other.jsonl");
    sh(0, "sed -n 2p chat.jsonl >a.json; sed -n 2p other.jsonl >b.json");
    r = sh(1, "plait diff a.json b.json");
    assert_non_null(strstr(r.out, "prompt: differs at token "));
}

TEST(cli_receipts_hold_after_a_saved_state)
{
    sh(0, RUN "-s 5 --state-save a.state");
    sh(0, "plait run " MODEL "--state-load a.state -p ' and then' -n 8 -s 3 "
          "-dev 'cpu*2' --ranks 1 --receipt a.json");
    sh(0, "grep -q '\"prompt\":{\"n\":2[0-9],' a.json");
    sh(0, "plait verify " MODEL "a.json -dev 'sim*2'");
}

TEST(cli_verify_renders_the_prompt_of_a_conversation)
{
    struct ran r;

    sh(0, "echo '[{\"role\":\"user\",\"content\":\"Hello\"}]' >m.json");
    sh(0, "printf 'Hello\\n' | plait run " MODEL
          "-i -n 8 --receipt a.json --receipt-form brief");
    r = sh(2, "plait verify " MODEL "a.json");
    assert_non_null(strstr(r.out, "give the prompt"));
    sh(0, "plait verify " MODEL "a.json --messages m.json");
    sh(0, "sed s/Hello/Hallo/ m.json >other.json");
    r = sh(1, "plait verify " MODEL "a.json --messages other.json");
    assert_non_null(strstr(r.out, "the prompt is another one"));
    must_say(sh(2, "plait verify " MODEL "a.json --messages m.json -p Hello"),
             "leave one out");
}

/* The figure is that of the receipts, and these hold elsewhere. */
TEST(cli_perplexity_has_a_receipt)
{
    char figure[32];
    struct ran r;

    r = sh(0, "plait perplexity " MODEL "-f models/heldout.txt -c 64 --chunks "
              "3 -dev 'cpu*2' --receipt p.jsonl");
    assert_int_equal(sscanf(r.out, "perplexity: %31s", figure), 1);
    sh(0, "test $(wc -l <p.jsonl) = 3");
    r = sh(0, "plait verify " MODEL "p.jsonl -dev 'sim*3'");
    must_say(r, "3 receipts: 3 hold");
    must_say(r, figure);
    sh(0, "sed 's/\"nll\":\"/&9/' p.jsonl >q.jsonl");
    r = sh(1, "plait verify " MODEL "q.jsonl");
    assert_non_null(strstr(r.out, "the sum of -ln p is"));
    must_say(sh(2, "plait verify " MODEL "p.jsonl --sample 3"),
             "3 cannot be compared");
}

TEST(cli_shares_of_ranks_are_those_of_devices)
{
    struct ran a, b;

    a = sh(0, "plait plan " MODEL "-dev 'cpu*2' -ts 3,1 --json | grep -o "
              "'numeric_hash[^,]*'");
    b = sh(0, "plait plan " MODEL "--rank-split 3,1 --json | grep -o "
              "'numeric_hash[^,]*'");
    assert_string_equal(a.out, b.out);
    sh(0, RUN "-s 5 -dev 'cpu*2' -ts 3,1 --receipt a.json");
    sh(0, RUN "-s 5 --rank-split 3,1 --receipt b.json");
    sh(0, RUN "-s 5 --receipt c.json");
    sh(0, "cmp a.json b.json");
    a = sh(1, "plait diff a.json c.json");
    assert_non_null(strstr(a.out, "numerics: shares is \"3,1\" and \"1\""));
    must_say(sh(2, "plait plan " MODEL "--ranks 3 --rank-split 3,1"),
             "one per rank");
    must_say(sh(2, "plait plan " MODEL "--rank-split 0,0"), "not all 0");
}

TEST(cli_receipts_are_signed_and_the_signer_is_checked)
{
    struct ran r;

    sh(0, "printf '%s' '" JWS_TRY_PRIVATE "' >key.pem");
    sh(0, "printf '%s' '" JWS_TRY_PUBLIC "' >trust.pem");
    sh(0, RUN "-s 5 --receipt a.json --sign-key key.pem");
    sh(0, RUN "-s 5 --receipt plain.json");
    r = sh(0, "plait verify " MODEL "a.json --trust trust.pem");
    assert_non_null(strstr(r.out, "; signed by " JWS_TRY_ID));
    r = sh(0, "plait verify " MODEL "a.json");
    assert_non_null(strstr(r.out, "is not checked without --trust"));
    /* Signing changes nothing in a receipt. */
    sh(0, "plait diff a.json plain.json");
    r = sh(2, "plait verify " MODEL "plain.json --trust trust.pem");
    assert_non_null(strstr(r.out, "it is not signed"));
    /* one receipt under the signature of another */
    sh(0, RUN "-s 6 --receipt c.json --sign-key key.pem");
    sh(0, "sed 's/,\"protected.*//' c.json | tr -d '\\n' >b.json; "
          "sed 's/.*,\"protected/,\"protected/' a.json >>b.json");
    r = sh(1, "plait verify " MODEL "b.json --trust trust.pem");
    assert_non_null(strstr(r.out, "not what the key " JWS_TRY_ID " signed"));
    must_say(sh(2, RUN "--sign-key key.pem"), "--receipt");
    must_say(sh(2, RUN "--receipt d.json --sign-key trust.pem"),
             "--sign-key trust.pem: not a private key");
    must_say(sh(2, "plait verify " MODEL "a.json --trust key.pem"),
             "--trust key.pem: no public key");
    must_say(sh(2, RUN "--receipt key.pem --sign-key key.pem"), "key.pem");
    sh(0, "plait verify " MODEL "a.json --trust trust.pem --sample 2");
}

/* The text that was searched for a stop string may have replacement characters,
 * and lacks hidden special tokens. */
TEST(cli_receipts_hold_where_a_stop_string_ended_the_text)
{
    sh(0, RUN "-s 5 -l 255+100 -r '\xef\xbf\xbd' --receipt a.json");
    sh(0, RUN "-s 5 --temp 0 --frequency-penalty 100 -l 97+150 -l 4094+90 "
              "-r aa --receipt b.json");
    sh(0, "grep -q '\"reason\":\"stop\"' a.json");
    sh(0, "grep -q '\"reason\":\"stop\"' b.json");
    sh(0, "grep -q '\"tokens\":\\[97,4094,97\\]' b.json");
    sh(0, "plait verify " MODEL "a.json b.json");
    sh(0, "sed 's/\"stop\":\\[\"aa\"\\]/\"stop\":[\"aaa\"]/' b.json >c.json");
    must_say(sh(1, "plait verify " MODEL "c.json"), "1 differs");
}

TEST(cli_run_keeps_the_old_file_if_no_receipt_was_written)
{
    sh(0, "echo old >a.json");
    must_say(sh(1, RUN "--dry-multiplier 1 --dry-sequence-breaker '\xff' "
                       "--receipt a.json"),
             "a breaker of DRY");
    sh(0, "test \"$(cat a.json)\" = old");
}

/* Numerics that this model or these devices do not have keep no other receipt
 * from being checked. */
TEST(cli_verify_goes_on_after_numerics_that_do_not_fit)
{
    static const char *const edits[] = {
        "s/\"keep\":\\[\\]/\"keep\":[\"none\"]/",
        "s/\"layouts\":\\[\\]/\"layouts\":[\"none=nowhere\"]/",
        "s/\"mtp\":0/\"mtp\":9/",
        "s/\"shares\":\"1\"/\"shares\":\"0\"/",
    };
    char line[300];
    struct ran r;

    sh(0, RUN "-s 5 --receipt a.json");
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        snprintf(line, sizeof line, "sed '%s' a.json >b.json", edits[i]);
        sh(0, line);
        sh(1, "cmp -s a.json b.json");
        r = sh(2, "plait verify " MODEL "b.json a.json");
        assert_non_null(strstr(r.out, "b.json:1: cannot compare: "));
        assert_non_null(strstr(r.out, "a.json:1: holds"));
    }
}

/* Each line of --json is an object, whatever bytes a file's name or a key's
 * name has. The header names a key whose 44th byte is half a character. */
TEST(cli_verify_prints_json_of_names_that_are_not_utf8)
{
    struct ran r;

    sh(0, "printf '%s' '" JWS_TRY_PRIVATE "' >key.pem");
    sh(0, "printf '%s' '" JWS_TRY_PUBLIC "' >trust.pem");
    sh(0, RUN "-s 5 --receipt a.json --sign-key key.pem");
    sh(0,
       "kid=$(printf '%42s\xc3\xa9' '' | tr ' ' a); "
       "head=$(printf '{\"alg\":\"EdDSA\",\"kid\":\"%s\"}' $kid | base64 "
       "-w0 | tr '+/' '-_' | tr -d =); "
       "sed \"s/\\\"protected\\\":\\\"[^\\\"]*/\\\"protected\\\":\\\"$head/\" "
       "a.json >\"$(printf 'b\\377.json')\"");
    r = sh(2, "plait verify " MODEL "--json --trust trust.pem b*.json");
    assert_non_null(strstr(r.out, "{\"file\":\"b\xef\xbf\xbd.json\""));
    assert_non_null(strstr(r.out, "which --trust does not have"));
}

/* Only receipts that differ give the exit code 1. */
TEST(cli_verify_cannot_do_without_the_files_it_is_given)
{
    sh(0, RUN "-s 5 --receipt a.json");
    must_say(sh(2, "plait verify -m none.gguf a.json"), "none.gguf");
    must_say(sh(2, "plait verify " MODEL "a.json --trust none.pem"),
             "--trust none.pem");
    must_say(sh(2, "plait verify " MODEL "a.json --messages models"),
             "--messages models");
    must_say(sh(2, "plait diff a.json none.json"), "none.json");
}

TEST(cli_verify_tells_what_is_wrong_in_a_receipt_of_several_lines)
{
    sh(0, RUN "-s 5 --receipt a.json");
    sh(0, "sed 's/,/,\\n/g; s/\"plait_receipt\"/\"bad\":1,\\n&/' a.json "
          ">b.json");
    must_say(sh(2, "plait verify " MODEL "b.json"), "unknown field \"bad\"");
}
