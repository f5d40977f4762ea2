/* Data packed as chunks of LZMA2 is unpacked, all or a first part, and damaged
 * data is rejected. */
#include "lib/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/lzma.h"
#include "device/gpu/gpu_ptx.h"

/* Output of text(), with nothing before it, packed by scripts/packed.py. */
static const char packed[] =
    "\340\003\271\000\233\004\000\030\010\113\347\132\267\136\124"
    "\343\353\346\131\062\367\175\061\272\251\276\015\216\022\124"
    "\015\316\375\124\043\173\000\046\330\033\233\203\321\125\234"
    "\172\134\060\313\277\362\135\036\073\162\337\130\302\146\332"
    "\346\070\011\370\275\062\272\047\275\036\005\145\170\377\200"
    "\041\104\315\035\055\300\347\363\227\163\213\355\012\250\205"
    "\253\126\157\240\050\072\346\344\051\140\322\112\327\012\324"
    "\200\035\305\012\165\313\012\213\155\262\273\302\004\154\255"
    "\141\005\237\003\277\020\034\066\257\326\361\047\124\000\004"
    "\324\247\226\050\322\371\265\271\023\077\037\161\106\012\257"
    "\062\042\147\153\173\357\042\143\144\221\360\000\000";
static const char packed_nothing[] = "\000";
/* The output of noise() as LZMA2: one chunk that is not compressed. */
static const char packed_noise[] =
    "\001\001\053\306\176\201\153\113\373\342\373\124\366\275\337"
    "\174\034\341\207\001\277\061\336\126\162\017\107\147\146\207"
    "\131\252\210\074\131\352\126\023\173\322\205\241\330\074\124"
    "\125\057\067\256\145\133\332\002\171\230\314\343\032\166\216"
    "\137\331\231\217\037\077\066\356\103\170\115\015\372\276\246"
    "\332\344\206\216\334\051\155\116\377\126\341\160\040\373\217"
    "\261\130\005\220\305\011\334\123\315\252\073\110\231\122\323"
    "\122\235\006\237\352\265\302\006\023\230\111\262\001\036\254"
    "\062\210\061\234\122\106\225\161\066\217\127\366\071\035\026"
    "\372\210\164\365\230\174\027\134\101\273\155\161\216\017\160"
    "\131\307\001\033\057\063\075\221\300\035\245\015\015\253\063"
    "\215\176\136\217\076\346\150\164\246\072\261\303\223\021\250"
    "\144\307\333\312\340\140\341\363\277\011\000\147\242\343\045"
    "\240\041\061\207\325\142\305\250\117\176\056\011\153\224\237"
    "\260\155\251\236\132\013\106\160\200\266\317\107\014\246\245"
    "\052\330\254\373\240\353\267\171\044\162\043\222\110\200\305"
    "\246\247\205\267\327\214\220\344\253\143\104\122\146\343\234"
    "\063\045\371\136\252\272\163\140\135\113\161\176\276\251\214"
    "\127\031\161\303\312\136\345\052\063\254\210\121\146\241\173"
    "\165\147\144\232\151\357\157\126\102\240\035\121\305\002\367"
    "\273\222\105\000";
/* The text again, with parameters that depend on positions: lc 1, lp 2, pb
 * 2. */
static const char packed_by_position[] =
    "\340\003\271\000\237\155\000\030\010\012\206\223\246\045\127"
    "\323\376\114\212\133\134\207\240\204\166\267\143\367\134\100"
    "\364\202\166\214\223\252\077\102\226\026\072\014\373\213\325"
    "\363\207\051\374\267\236\333\233\077\005\223\052\142\174\242"
    "\277\256\336\276\240\140\054\147\322\041\172\137\200\111\321"
    "\311\200\344\110\105\375\316\261\354\262\227\351\235\051\033"
    "\304\157\145\122\235\230\162\116\305\300\064\102\172\356\021"
    "\152\051\367\360\216\213\265\077\334\202\231\374\014\050\245"
    "\102\375\114\307\123\125\161\073\141\136\160\133\376\216\372"
    "\331\076\215\172\030\236\354\130\126\024\315\331\171\024\337"
    "\302\214\376\343\131\173\374\104\073\012\355\311\001\011\342"
    "\256\000";

enum { N = 954, N_NOISE = 300, GUARD = 64 };

static const struct lzma whole = {N, sizeof packed - 1, packed};

static const char *text(char room[N + 1])
{
    int n = 0;

    for (int i = 0; i < 40; i++)
        n += snprintf(room + n, (size_t)(N + 1 - n), "%d times hello, hello. ",
                      i * i);
    assert_int_equal(n, N);
    return room;
}

static void noise(char room[N_NOISE])
{
    uint32_t x = 1;

    for (int i = 0; i < N_NOISE; i++) {
        x = (x * 1103515245u + 12345) & 0x7fffffff;
        room[i] = (char)(x >> 16);
    }
}

/* Copies input and output to the heap, so that a sanitizer sees their ends. */
static bool unpack(const struct lzma *x, char *out, size_t n)
{
    char *in = test_need(x->n_packed + 1, 1), *room = test_need(n + GUARD, 1);
    bool done;

    in = realloc(in, x->n_packed ? x->n_packed : 1);
    assert_non_null(in);
    memcpy(in, x->packed, x->n_packed);
    memset(room, 'g', n + GUARD);
    done = lzma_unpack(&(struct lzma){x->n, x->n_packed, in}, room, n);
    for (int i = 0; i < GUARD; i++)
        assert_int_equal(room[n + (size_t)i], 'g');
    memcpy(out, room, n);
    free(in);
    free(room);
    return done;
}

TEST(lzma_unpacks_any_first_part)
{
    static const struct lzma other = {N, sizeof packed_by_position - 1,
                                      packed_by_position};
    char want[N + 1], out[N];

    text(want);
    for (size_t n = 0; n <= N; n++) {
        assert_true(unpack(&whole, out, n));
        assert_memory_equal(out, want, n);
        assert_true(unpack(&other, out, n));
        assert_memory_equal(out, want, n);
    }
    assert_true(unpack(
        &(struct lzma){0, sizeof packed_nothing - 1, packed_nothing}, out, 0));
}

TEST(lzma_unpacks_what_was_not_packed)
{
    static const struct lzma x = {N_NOISE, sizeof packed_noise - 1,
                                  packed_noise};
    char want[N_NOISE], out[N_NOISE];

    noise(want);
    for (size_t n = 0; n <= N_NOISE; n++) {
        assert_true(unpack(&x, out, n));
        assert_memory_equal(out, want, n);
    }
}

/* It has many chunks and a dictionary of megabytes. Each level begins the same
 * way. */
TEST(lzma_unpacks_what_the_library_holds)
{
    char *all = test_need(gpu_ptx.n, 1);
    size_t n = 0;

    assert_true(lzma_unpack(&gpu_ptx, all, gpu_ptx.n));
    for (const struct gpu_ptx_level *l = gpu_ptx_level; l->level; l++) {
        assert_int_equal(l->from, n);
        assert_memory_equal(all + n, "// text ", 8);
        n += l->n;
    }
    assert_int_equal(n, gpu_ptx.n);
    free(all);
}

TEST(lzma_wants_as_many_bytes_as_there_are)
{
    struct lzma x = whole;
    char out[N + 1];

    for (x.n = 0; x.n <= N + 1; x.n++)
        assert_true(unpack(&x, out, x.n) == (x.n == N));
    assert_false(unpack(&whole, out, N + 1));
    for (x = whole; x.n_packed-- > 0;)
        assert_false(unpack(&x, out, N));
}

TEST(lzma_wants_nothing_behind_the_end)
{
    char more[sizeof packed + 8] = "", out[N];
    struct lzma x = {N, sizeof packed, more};

    memcpy(more, packed, sizeof packed - 1);
    for (; x.n_packed <= sizeof more; x.n_packed++)
        assert_false(unpack(&x, out, N));
    x.n_packed = sizeof more;
    assert_true(unpack(&x, out, N - 1));
}

/* Chunks that need state which no chunk before them set. */
TEST(lzma_refuses_chunks_without_a_beginning)
{
    char bad[sizeof packed], out[N];
    struct lzma x = {N, sizeof packed - 1, bad};

    memcpy(bad, packed, sizeof packed);
    assert_int_equal(bad[0] & 0xe0, 0xe0);
    for (int resets = 0; resets < 3; resets++) {
        bad[0] = (char)((packed[0] & 0x1f) | 0x80 | resets << 5);
        assert_false(unpack(&x, out, N));
    }
    bad[0] = packed[0];
    for (int props = 0; props < 256; props++) {
        int lc = props % 9, lp = props / 9 % 5;

        bad[5] = (char)props;
        if (props >= 225 || lc + lp > 4)
            assert_false(unpack(&x, out, N));
    }
    /* control byte of an uncompressed chunk that continues, which cannot be the
     * first chunk */
    bad[0] = 2;
    assert_false(unpack(&x, out, N));
    bad[0] = 3;
    assert_false(unpack(&x, out, N));
}

/* Nothing is read or written out of bounds, whatever the bytes are. */
TEST(lzma_survives_damage)
{
    uint64_t seed = test_seed();
    char bad[sizeof packed], out[N];

    for (int i = 0; i < 20000; i++) {
        struct lzma x = {N, whole.n_packed, bad};

        memcpy(bad, packed, sizeof packed);
        for (int k = 1 + (int)test_below(&seed, 4); k > 0; k--)
            bad[test_below(&seed, whole.n_packed)] =
                (char)test_below(&seed, 256);
        x.n_packed -= (size_t)test_below(&seed, 3);
        unpack(&x, out, 1 + (size_t)test_below(&seed, N));
    }
}
