/* Invalid texts of programs are rejected with line and column, and a lack of
 * memory is an error. test_program_text.c has valid texts. */
#include "program/program_text.h"

#include "lib/alloc_fail.h"
#include "lib/support.h"

#include <stdlib.h>
#include <string.h>

#define HEAD "programs 2\ndevice 0\n%0: f32[2, 3, 4]\ndevice 1\nvariant\n"

TEST(program_parse_mistakes_are_named)
{
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"", "line 1, column 1: the end of the text where programs is"},
        {"# no\n\n  program 1", "line 3, column 3: 'program' where programs"},
        {"programs 0", "line 1, column 10: '0' is outside 1 .. 1024"},
        {"programs 1 2", "line 1, column 12: '2' where the end of the line"},
        {"programs 1\nvariant", "line 2, column 1: the first line announces 1"},
        {"programs 2\ndevice 0\n", "line 3, column 1: the first line announces "
                                   "2 devices, but there are 1"},
        {"programs 1\ndevice 1", "line 2, column 8: '1' is outside 0 .. 0"},
        {"programs 1\ndevice 0\ndevice 1", "line 3, column 1: more devices"},
        {"programs 1\nmax",
         "line 2, column 4: the end of the text where n_tok"},
        {"programs 1\nmax n_tok -1", "line 2, column 11: '-1' is outside 0"},
        {"programs 1\nmax n_tok 1e3", "line 2, column 11: '1e3' where an int"},
        {"programs 1\n%0: f32[]", "line 2, column 1: '%0:' where max or dev"},
        {"programs 1\ndevice 0 busy", "line 2, column 10: 'busy' where idle"},
        {"programs 1\ndevice 0\n%0: f32[]\nmax n_tok 1",
         "line 4, column 1: 'max' after tensors"},
        {"programs 1\ndevice 0 events 4194305\nvariant",
         "line 3, column 8: the devices have 4194305 events, more than"},
        {"programs 1\ndevice 0\n%1: f32[]", "line 3, column 2: '1' is outside"},
        {"programs 1\ndevice 0\n%0 f32[]",
         "line 3, column 4: 'f32[]' where ':"},
        {"programs 1\ndevice 0\n%0: f31[]",
         "line 3, column 5: unknown format 'f31'"},
        {"programs 1\ndevice 0\n%0: f32[n]",
         "line 3, column 9: 'n]' where a size, n_tok, n_out, n_slot or "
         "n_seq is"},
        {"programs 1\ndevice 0\n%0: f32[2*3]",
         "line 3, column 11: '3]' where n_tok, n_out, n_slot or n_seq"},
        {"programs 1\ndevice 0\n%0: f32[9999999999*n_tok]",
         "line 3, column 9: 9999999999 times a size"},
        {"programs 1\ndevice 0\n%0: f32[1, 1, 1, 1, 1]",
         "line 3, column 21: '1]' where ']' after four dimensions"},
        {"programs 1\ndevice 0\n%0: f32[1\n]",
         "line 3, column 10: the end of the line where ']'"},
        {"programs 1\ndevice 0\n%0: f32[4] home",
         "line 3, column 12: 'home' where weights, cache, work, inbox, in, @"},
        {"programs 1\ndevice 0\n%0: q8_0[33]",
         "line 3, column 13: the end of the text where bytes N, because the"},
        {"programs 1\ndevice 0\n%0: i32[3, 3] packed",
         "line 3, column 21: I32 is never packed"},
        {"programs 1\ndevice 0\n%0: f32[3] packed",
         "line 3, column 18: the end of the text where (rows N), because"},
        {"programs 1\ndevice 0\n%0: q8_0[3, 33] bytes 1 packed",
         "line 3, column 31: the end of the text where (K+N{RANK}), because"},
        {"programs 1\ndevice 0\n%0: q8_0[3, 32] packed(0+33{0})",
         "line 3, column 26: 0+33 is not aligned to multiples of 32"},
        {"programs 1\ndevice 0\n%0: q8_0[3, 32] packed(0+32)",
         "line 3, column 28: ')' where '{' is expected"},
        {"programs 1\ndevice 0\n%0: q8_0[3, 32] packed(rows 3 0+32{0})",
         "line 3, column 31: '0+32{0})' where ')' is expected"},
        {"programs 1\ndevice 0\n%0: q2_k[3, 2147483392] packed\n"
         "%1: q2_k[3, 2147483392] packed",
         "line 3, column 31: the packings have more than 1048576 chunks"},
        {"programs 1\ndevice 0\n%0: f32[4611686018427387904]",
         "line 3, column 29: the end of the text where bytes N"},
        {HEAD "%1: f32[]",
         "line 6, column 1: '%1:' where an instruction or variant"},
        {HEAD "device 2", "line 6, column 1: 'device' after a variant"},
        {HEAD "max n_tok 3", "line 6, column 1: 'max' after tensors"},
        {HEAD "variant\nvariant\nvariant\nvariant",
         "line 9, column 1: more than 4 variants"},
        {"programs 1\ndevice 0\n0: post 1",
         "line 3, column 1: '0:' where variant"},
        {HEAD "2: post 1", "line 6, column 1: '2' is outside 0 .. 1"},
        {HEAD "0,1,\n0: post 1", "line 7, column 1: device 0 is named twice"},
        {HEAD "0 late: post 1", "line 6, column 3: 'late:' where copy, order"},
        {HEAD "0 post 1", "line 6, column 3: 'post' where copy, order"},
        {HEAD "0: past 1", "line 6, column 4: 'past' where a kernel's result"},
        {HEAD "0 order 2147483647: post 1\n0: post 2",
         "line 7, column 10: no position is left in the total order after the "
         "instruction above"},
        {HEAD "0: post 4194304", "line 6, column 9: '4194304' is outside 0"},
        {HEAD "0: wait 3", "line 6, column 10: the end of the text where '.'"},
        {HEAD "0: dies %0", "line 6, column 4: 'dies' before the device's"},
        {HEAD "0: post 1\n0: dies %1",
         "line 7, column 10: device 0 has no tensor %1"},
        {HEAD "0: %0 <- sqr(%0)", "line 6, column 7: '<-' where '='"},
        {HEAD "0: %0 = sqrr(%0)", "line 6, column 9: unknown kernel 'sqrr'"},
        {HEAD "0: %0 = sqr(0)", "line 6, column 13: '0)' where a tensor"},
        {HEAD "0: %0 = sqr(%0, %0)",
         "line 6, column 17: '%0)' where ')', the kernel having no more"},
        {HEAD "0: %0 = custom(%0)", "line 6, column 9: a custom kernel calls a "
                                    "function of its application"},
        {HEAD "0: %0 = scale(%0) scole=2",
         "line 6, column 19: 'scole=2' where an attribute, stride"},
        {HEAD "0: %0 = scale(%0) scale=two",
         "line 6, column 25: 'two' where a number"},
        {HEAD "0: %0 = rope(%0) n_rot=4294967296",
         "line 6, column 24: '4294967296' is outside"},
        {HEAD "0: %0 = add(%0, %0) tree(0+, -1)",
         "line 6, column 30: '-1' is outside"},
        {HEAD "0: %0 = sum(%0) cost(4)", "line 6, column 23: ')' where '{'"},
        {HEAD "0: %0 = sum(%0) heads(0)",
         "line 6, column 17: 'heads(0)' where an attribute"},
        {HEAD "0: %0 = attention(%0, %0, %0) heads(0, 0)",
         "line 6, column 41: 2 heads, but %0 has 3"},
        {HEAD "0: pages %0 <- 1.%0 table %0 heads(0, 1, -, 2)",
         "line 6, column 46: 4 heads, but %0 has 3"},
        {HEAD "0: pages %0 <- 1.%0 heads(0, 1, -)",
         "line 6, column 21: 'heads(0,' where table is"},
        {HEAD "0: pages %0 <- 1.%0 table 0 heads(0, 1, -)",
         "line 6, column 27: '0' where a tensor is"},
        {HEAD "0: pages %0 <- 1.%0 table %0",
         "line 6, column 29: the end of the text where heads(...) is"},
        {HEAD "0: pages 1.%0 <- %0 table %0 heads(0)",
         "line 6, column 37: 1 heads, but %0 has 0"},
        {HEAD "0: push %0",
         "line 6, column 11: the end of the text where '<-'"},
        {HEAD "0 if: post 1", "line 6, column 5: ':' where n_tok or n_out"},
        {HEAD "0 if n_tok 3: post 1", "line 6, column 13: ':' where '.'"},
        {HEAD "0 if n_tok 3.4: post 1", "line 6, column 14: '4:' where '.'"},
        {HEAD "0 if n_tok ..0: post 1", "line 6, column 14: '0' is outside 1"},
        {HEAD "0 if n_tok -1..: post 1", "line 6, column 12: '-1' is outside"},
        {HEAD "0: merge %0 <- sum(%0-) 4",
         "line 6, column 23: ')' where a size, n_tok"},
        {HEAD "0: pull %0 = %0 4", "line 6, column 12: '=' where '<-'"},
        {HEAD "0: pull %0 <- 4", "line 6, column 16: the end of the text where "
                                 "'.'"},
        {HEAD "0: pull %0 <- it 4", "line 6, column 15: 'it' where a tensor"},
        {HEAD "0: pull %0 <- %0 4 x 3(4)", "line 6, column 25: ')' where ','"},
        {HEAD "0: pull %0 <- %0 4 to 4*n_tok+4",
         "line 6, column 30: '+4' where the end of the line"},
        {HEAD "0: merge barrier 0, 1 %0 <- %0 4",
         "line 6, column 23: '%0' where ';'"},
        {HEAD "0: merge; %0 <- %0 4", "line 6, column 9: ';' where a tensor"},
        {HEAD "0: merge %0 <- sum(%0, %0+) %0 4",
         "line 6, column 29: '%0' where a size, n_tok"},
        {HEAD "0: post 1\r\n\t\x01",
         "line 7, column 2: '?' where an instruction or"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct program *p = (struct program *)cases;
        struct arena a = {0};
        pl_err err;
        int n = 1;

        if (program_parse(&p, &n, &a, cases[i].text, strlen(cases[i].text),
                          &err) == PL_OK)
            fail_msg("accepted: %s", cases[i].text);
        assert_null(p);
        assert_int_equal(n, 0);
        if (strncmp(err.message, cases[i].message, strlen(cases[i].message)))
            fail_msg("\"%s\" gives \"%s\", not \"%s\"", cases[i].text,
                     err.message, cases[i].message);
        arena_fini(&a);
    }
}

TEST(program_parse_out_of_memory_is_a_status)
{
    const char *path = test_file("fuzz/corpus/program/every_kind.txt");
    size_t len;
    char *s = test_read(path, &len);

    for (int64_t n = 0; alloc_each(&n);) {
        struct arena a = {0};
        struct program *p;
        pl_err err;
        int n_dev;

        if (alloc_ran(program_parse(&p, &n_dev, &a, s, len, &err)))
            assert_null(p);
        arena_fini(&a);
    }
    free(s);
}
