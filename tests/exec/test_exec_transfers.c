/* Pass "transfer", text in and text out: who moves each value that crosses
 * between groups follows from which devices read whose memory. */
#include "lib/support.h"
#include "lower/transfers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *print(const struct transfers *t)
{
    struct test_text out = {0};

    assert_int_equal(transfers_print(t, test_text_add, &out), PL_OK);
    return out.s;
}

/* The pass makes `want` of `in`, and of `want` the same again. */
static void chooses(const char *in, const char *want)
{
    for (int i = 0; i < 2; i++) {
        struct arena a = {0};
        struct transfers *t;
        char *got;
        pl_err err;

        TEST_OK(
            transfers_parse(&t, &a, i ? want : in, strlen(i ? want : in), &err),
            err);
        got = print(t);
        assert_string_equal(got, i ? want : in);
        free(got);
        TEST_OK(transfers_choose(t, &a, &err), err);
        got = print(t);
        assert_string_equal(got, want);
        free(got);
        arena_fini(&a);
    }
}

#define DEVICES                                                                \
    "transfers values 40\n"                                                    \
    "device 0 memory 0 one_queue\n" /* two NUMA nodes of a host */             \
    "device 1 memory 0 one_queue\n"                                            \
    "device 2 reads\n" /* two GPUs that read the host, one that does not */    \
    "device 3 reads\n"                                                         \
    "device 4\n"                                                               \
    "device 5 memory 0 one_queue\n" /* io */

TEST(exec_transfers_go_by_who_reads_whose_memory)
{
    chooses(DEVICES "group 0: 0, 1\n"
                    "group 1: 2, 3, 4\n"
                    "group 2: 4\n"
                    "group 3: 5\n"
                    "variant\n"
                    "  input 0: 3 -> 1, from 0, from 0, from 0\n"
                    "  table: 3 -> 1, from 0, from 0, from 0\n"
                    "  value 20 as 21: 0 -> 1, from 0 1, from 1, from 0\n"
                    "  value 20: 0 -> 2, none\n"
                    "  value 22: 1 -> 0, from 0 2, from 1\n"
                    "  value 23: 1 -> 2, from 2\n"
                    "  value 25: 2 -> 1, from 0, from 0, from 0\n"
                    "  ranks 24: 1 -> 0, from 0, none\n"
                    "  result 30: 1 -> 3, from 0 1 2\n"
                    "variant\n",
            DEVICES "group 0: 0, 1 by shared\n"
                    "group 1: 2, 3, 4 by inbox\n"
                    "group 2: 4\n"
                    "group 3: 5\n"
                    "variant\n"
                    "  input 0: 3 -> 1 late, fetch 0, fetch 0, feed 0\n"
                    "  table: 3 -> 1 late, fetch 0, fetch 0, feed 0\n"
                    "  value 20 as 21: 0 -> 1, pull 0 1, pull 1, push 0\n"
                    "  value 20: 0 -> 2, none\n"
                    "  value 22: 1 -> 0, push 0 2, push 1\n"
                    /* the same device is on both sides */
                    "  value 23: 1 -> 2, pull 2\n"
                    "  value 25: 2 -> 1, push 0, push 0, pull 0\n"
                    "  ranks 24: 1 -> 0 late, push 0, none\n"
                    "  result 30: 1 -> 3, return 0 1 2\n"
                    "variant\n");
}

/* A device without a copy queue copies what it can read when it needs it, and
 * gets its weights then. Other pushes to it begin at once. */
TEST(exec_transfers_to_devices_without_a_copy_queue_are_late)
{
    chooses(DEVICES "group 0: 0\n"
                    "group 1: 1\n"
                    "group 2: 2\n"
                    "group 3: 5\n"
                    "variant\n"
                    "  value 1: 0 -> 1, from 0\n"
                    "  value 2: 0 -> 2, from 0\n"
                    "  value 3: 2 -> 1, from 0\n"
                    "  weight 4: 0 -> 1, from 0\n"
                    "  weight 4: 0 -> 2, from 0\n"
                    "  weight 5: 2 -> 1, from 0\n",
            DEVICES "group 0: 0\n"
                    "group 1: 1\n"
                    "group 2: 2\n"
                    "group 3: 5\n"
                    "variant\n"
                    "  value 1: 0 -> 1 late, pull 0\n"
                    "  value 2: 0 -> 2, pull 0\n"
                    "  value 3: 2 -> 1, push 0\n"
                    "  weight 4: 0 -> 1 late, pull 0\n"
                    "  weight 4: 0 -> 2, pull 0\n"
                    "  weight 5: 2 -> 1 late, push 0\n");
}

/* No device reads another machine's memory, though its number is the same:
 * values are sent, inputs are fed, and a group on two machines exchanges by
 * inboxes. */
TEST(exec_transfers_between_machines_are_sent)
{
    static const char devices[] = "transfers values 40\n"
                                  "device 0 memory 0 one_queue\n"
                                  "device 1 machine 1 memory 0 one_queue\n"
                                  "device 2 machine 1 memory 0 one_queue\n"
                                  "device 3 machine 1 reads\n"
                                  "device 4 memory 0 one_queue\n"; /* io */
    static const char groups[] = "group 0: 0\n"
                                 "group 1: 1, 2%s\n"
                                 "group 2: 0, 1%s\n"
                                 "group 3: 3\n"
                                 "group 4: 4\n";
    char in[2000], want[2000];
    size_t n;

    n = (size_t)snprintf(in, sizeof in, "%s", devices);
    n += (size_t)snprintf(in + n, sizeof in - n, groups, "", "");
    snprintf(in + n, sizeof in - n,
             "variant\n"
             "  input 0: 4 -> 2, from 0, from 0\n"
             "  value 1: 0 -> 1, from 0, from 0\n"
             "  value 2: 0 -> 2, from 0, from 0\n"
             "  value 3: 1 -> 3, from 0 1\n"
             "  value 4: 2 -> 3, from 0 1\n"
             "  weight 5: 0 -> 1, from 0, none\n"
             "  pages 6: 2 -> 3, from 0\n"
             "  result 7: 3 -> 4, from 0\n");
    n = (size_t)snprintf(want, sizeof want, "%s", devices);
    n += (size_t)snprintf(want + n, sizeof want - n, groups, " by shared",
                          " by inbox");
    snprintf(want + n, sizeof want - n,
             "variant\n"
             "  input 0: 4 -> 2 late, fetch 0, feed 0\n"
             "  value 1: 0 -> 1, send 0, send 0\n"
             "  value 2: 0 -> 2, pull 0, send 0\n"
             "  value 3: 1 -> 3, pull 0 1\n"
             "  value 4: 2 -> 3, send 0 1\n"
             "  weight 5: 0 -> 1 late, send 0, none\n"
             "  pages 6: 2 -> 3, send 0\n"
             "  result 7: 3 -> 4, return 0\n"
             "  table: 4 -> 2 late, fetch 0, feed 0\n");
    chooses(in, want);
}

/* A row of 512 bytes to two others: two shots save a third of it. The link
 * carries 8000 bytes in its latency. */
TEST(exec_transfers_of_sums_take_one_shot_while_that_is_sooner)
{
#define LINKS                                                                  \
    "device 0 link 8000000000 latency 1000\n"                                  \
    "device 1 link 8000000000 latency 1000 p2p 16000000000\n"                  \
    "device 2 link 9000000000 p2p 16000000000\n"                               \
    "device 3 latency 1000 p2p 16000000000\n"
    chooses("transfers values 4 n_tok 4096\n" LINKS "group 0: 0, 1 sum 512\n"
            "group 1: 0, 1, 2\n"
            "group 2: 0, 1, 2 sum 512\n"
            "group 3: 1, 2, 3 sum 512\n",
            "transfers values 4 n_tok 4096\n" LINKS
            "group 0: 0, 1 sum 512 by inbox\n"
            "group 1: 0, 1, 2 by inbox\n"
            "group 2: 0, 1, 2 sum 512 by inbox 23\n"
            /* alone it would be 46, but all groups have one limit */
            "group 3: 1, 2, 3 sum 512 by inbox 23\n");
    chooses("transfers values 4 n_tok 4096\n" LINKS
            "group 0: 1, 2, 3 sum 512\n",
            "transfers values 4 n_tok 4096\n" LINKS
            "group 0: 1, 2, 3 sum 512 by inbox 46\n");
    /* no more is staged than a quarter of the value */
    chooses("transfers values 4 n_tok 64\n" LINKS "group 0: 1, 2, 3 sum 512\n",
            "transfers values 4 n_tok 64\n" LINKS
            "group 0: 1, 2, 3 sum 512 by inbox 8\n");
    chooses("transfers values 4 n_tok 1\n" LINKS "group 0: 1, 2, 3 sum 512\n",
            "transfers values 4 n_tok 1\n" LINKS
            "group 0: 1, 2, 3 sum 512 by inbox 1\n");
}

/* Two machines of two devices: a row of 512 bytes crosses the network once
 * instead of four times. The network carries 23,400 bytes in the two latencies
 * that this takes. */
TEST(exec_transfers_of_sums_cross_a_network_once)
{
#define MACHINES(network)                                                      \
    "device 0\n"                                                               \
    "device 1 latency 2000" network "\n"                                       \
    "device 2 machine 1\n"                                                     \
    "device 3 machine 1\n"                                                     \
    "device 4 machine 2\n"
#define GROUPS(a, b, c, d, e)                                                  \
    "group 0: 0, 1, 2, 3 sum 512 per_machine 2" a "\n"                         \
    "group 1: 0, 1, 2, 3 sum 512" b "\n"                                       \
    "group 2: 0, 1, 2, 3 per_machine 2" c "\n"                                 \
    "group 3: 0, 2 sum 512" d "\n"                                             \
    "group 4: 0, 1, 2, 3, 4 sum 512" e "\n"
    chooses("transfers values 4 n_tok 4096\n" MACHINES(" network 5850000000")
                GROUPS("", "", "", "", ""),
            "transfers values 4 n_tok 4096\n" MACHINES(" network 5850000000")
                GROUPS(" by machine 15", " by inbox 341", " by inbox",
                       " by inbox", " by inbox 341"));
    /* one row already takes longer than the latencies */
    chooses("transfers values 4 n_tok 4096\n" MACHINES("")
                GROUPS("", "", "", "", ""),
            "transfers values 4 n_tok 4096\n" MACHINES("")
                GROUPS(" by machine", " by inbox 7", " by inbox", " by inbox",
                       " by inbox 7"));
    /* on five machines two shots send less */
    chooses(
        "transfers values 4 n_tok 4096\ndevice 0\n"
        "group 0: 0, 0, 0, 0, 0, 0, 0, 0 sum 512 per_machine 2\n"
        "group 1: 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 sum 512 per_machine 2\n",
        "transfers values 4 n_tok 4096\ndevice 0\n"
        "group 0: 0, 0, 0, 0, 0, 0, 0, 0 sum 512 per_machine 2 by machine 69\n"
        "group 1: 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 sum 512 per_machine 2 by inbox "
        "43\n");
}

/* Pages are chosen by the token table, on the device that copies them. */
TEST(exec_transfers_of_pages_bring_the_token_table)
{
    chooses(DEVICES "group 0: 0, 1\n"
                    "group 1: 2\n"
                    "group 2: 4\n"
                    "group 3: 5\n"
                    "variant\n"
                    "  pages 7: 0 -> 1, from 0\n"
                    "variant\n"
                    "  pages 7: 0 -> 2, from 1\n",
            DEVICES "group 0: 0, 1 by shared\n"
                    "group 1: 2\n"
                    "group 2: 4\n"
                    "group 3: 5\n"
                    "variant\n"
                    "  pages 7: 0 -> 1, pull 0\n"
                    "  table: 3 -> 1 late, fetch 0\n"
                    "variant\n"
                    "  pages 7: 0 -> 2, push 1\n"
                    "  table: 3 -> 0 late, fetch 0, fetch 0\n");
}

TEST(exec_transfers_refuse_other_text)
{
    static const struct {
        const char *text, *message;
    } bad[] = {
        {"", "line 1, column 1: the end of the text where transfers values N "
             "is expected"},
        {"transfers values 4\ndevice 1\n",
         "line 2, column 8: '1' is outside 0 .. 0"},
        {"transfers values 4\ngroup 0: 0\n",
         "line 2, column 10: '0' is outside 0 .. -1"},
        {"transfers values 4\ndevice 0\ngroup 0: 0 by post\n",
         "line 3, column 15: 'post' where shared, inbox or machine is "
         "expected"},
        {"transfers values 4\ndevice 0\ndevice 1\n"
         "group 0: 0, 1 by machine\n",
         "line 4, column 25: the end of the line where per_machine before this "
         "exchange is expected"},
        {"transfers values 4\ndevice 0\ndevice 1\ndevice 2\n"
         "group 0: 0, 1, 2 per_machine 2\n",
         "line 5, column 31: the end of the line where a divisor of the number "
         "of devices is expected"},
        {"transfers values 4\n value 1: 0 -> 0\n",
         "line 2, column 8: '1:' where a variant before its transfers is "
         "expected"},
        {"transfers values 4\nvariant\n value 4: 0 -> 0\n",
         "line 3, column 8: '4' is outside 0 .. 3"},
        {"transfers values 4\ndevice 0\ngroup 0: 0\ngroup 1: 0\nvariant\n"
         " value 1: 0 -> 1, carry 0\n",
         "line 6, column 19: 'carry' where a transport is expected"},
        {"transfers values 4\ndevice 0\ngroup 0: 0\ngroup 1: 0\nvariant\n"
         " value 1: 0 -> 1, pull 1\n",
         "line 6, column 24: '1' is outside 0 .. 0"},
        {"transfers values 4\ndevice 0\ngroup 0: 0\ngroup 1: 0\nvariant\n"
         " value 1: 0 -> 1, pull 0\n value 1: 0 -> 1, pull 0\n",
         "line 7, column 17: a second transfer of value 1 to group 1"},
    };

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct arena a = {0};
        struct transfers *t;
        pl_err err;

        assert_int_equal(
            transfers_parse(&t, &a, bad[i].text, strlen(bad[i].text), &err),
            PL_BAD_ARGUMENT);
        assert_string_equal(err.message, bad[i].message);
        assert_null(t);
        arena_fini(&a);
    }
}
