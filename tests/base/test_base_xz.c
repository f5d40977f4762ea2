/* Data packed as .xz is unpacked, all or a first part, and damaged data is
 * rejected. */
#include "lib/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/xz.h"
#include "device/gpu/gpu_ptx.h"

/* The output of text() as .xz, made by scripts/packed.py. */
static const char packed[] =
    "\375\067\172\130\132\000\000\001\151\042\336\066\002\000\041"
    "\001\000\000\000\000\067\047\227\326\340\003\271\000\233\004"
    "\000\030\010\113\347\132\267\136\124\343\353\346\131\062\367"
    "\175\061\272\251\276\015\216\022\124\015\316\375\124\043\173"
    "\000\046\330\033\233\203\321\125\234\172\134\060\313\277\362"
    "\135\036\073\162\337\130\302\146\332\346\070\011\370\275\062"
    "\272\047\275\036\005\145\170\377\200\041\104\315\035\055\300"
    "\347\363\227\163\213\355\012\250\205\253\126\157\240\050\072"
    "\346\344\051\140\322\112\327\012\324\200\035\305\012\165\313"
    "\012\213\155\262\273\302\004\154\255\141\005\237\003\277\020"
    "\034\066\257\326\361\047\124\000\004\324\247\226\050\322\371"
    "\265\271\023\077\037\161\106\012\257\062\042\147\153\173\357"
    "\042\143\144\221\360\000\000\000\203\177\373\246\000\001\263"
    "\001\272\007\000\000\315\044\353\025\076\060\015\213\002\000"
    "\000\000\000\001\131\132";
static const char packed_nothing[] =
    "\375\067\172\130\132\000\000\001\151\042\336\066\000\000\000"
    "\000\034\337\104\041\220\102\231\015\001\000\000\000\000\001"
    "\131\132";
/* The output of noise() as .xz: not compressed. */
static const char packed_noise[] =
    "\375\067\172\130\132\000\000\001\151\042\336\066\002\000\041"
    "\001\000\000\000\000\067\047\227\326\001\001\053\306\176\201"
    "\153\113\373\342\373\124\366\275\337\174\034\341\207\001\277"
    "\061\336\126\162\017\107\147\146\207\131\252\210\074\131\352"
    "\126\023\173\322\205\241\330\074\124\125\057\067\256\145\133"
    "\332\002\171\230\314\343\032\166\216\137\331\231\217\037\077"
    "\066\356\103\170\115\015\372\276\246\332\344\206\216\334\051"
    "\155\116\377\126\341\160\040\373\217\261\130\005\220\305\011"
    "\334\123\315\252\073\110\231\122\323\122\235\006\237\352\265"
    "\302\006\023\230\111\262\001\036\254\062\210\061\234\122\106"
    "\225\161\066\217\127\366\071\035\026\372\210\164\365\230\174"
    "\027\134\101\273\155\161\216\017\160\131\307\001\033\057\063"
    "\075\221\300\035\245\015\015\253\063\215\176\136\217\076\346"
    "\150\164\246\072\261\303\223\021\250\144\307\333\312\340\140"
    "\341\363\277\011\000\147\242\343\045\240\041\061\207\325\142"
    "\305\250\117\176\056\011\153\224\237\260\155\251\236\132\013"
    "\106\160\200\266\317\107\014\246\245\052\330\254\373\240\353"
    "\267\171\044\162\043\222\110\200\305\246\247\205\267\327\214"
    "\220\344\253\143\104\122\146\343\234\063\045\371\136\252\272"
    "\163\140\135\113\161\176\276\251\214\127\031\161\303\312\136"
    "\345\052\063\254\210\121\146\241\173\165\147\144\232\151\357"
    "\157\126\102\240\035\121\305\002\367\273\222\105\000\174\231"
    "\043\273\000\001\300\002\254\002\000\000\332\353\104\254\076"
    "\060\015\213\002\000\000\000\000\001\131\132";

enum { N = 954, N_NOISE = 300, GUARD = 64 };

static const struct xz whole = {N, sizeof packed - 1, packed};

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
static bool unpack(const struct xz *x, char *out, size_t n)
{
    char *in = test_need(x->n_packed + 1, 1), *room = test_need(n + GUARD, 1);
    bool done;

    in = realloc(in, x->n_packed ? x->n_packed : 1);
    assert_non_null(in);
    memcpy(in, x->packed, x->n_packed);
    memset(room, 'g', n + GUARD);
    done = xz_unpack(&(struct xz){x->n, x->n_packed, in}, room, n) == PL_OK;
    for (int i = 0; i < GUARD; i++)
        assert_int_equal(room[n + (size_t)i], 'g');
    memcpy(out, room, n);
    free(in);
    free(room);
    return done;
}

TEST(xz_unpacks_any_first_part)
{
    char want[N + 1], out[N];

    text(want);
    for (size_t n = 0; n <= N; n++) {
        assert_true(unpack(&whole, out, n));
        assert_memory_equal(out, want, n);
    }
    assert_true(unpack(
        &(struct xz){0, sizeof packed_nothing - 1, packed_nothing}, out, 0));
}

TEST(xz_unpacks_what_was_not_packed)
{
    static const struct xz x = {N_NOISE, sizeof packed_noise - 1, packed_noise};
    char want[N_NOISE], out[N_NOISE];

    noise(want);
    for (size_t n = 0; n <= N_NOISE; n++) {
        assert_true(unpack(&x, out, n));
        assert_memory_equal(out, want, n);
    }
}

/* It has many chunks and a dictionary of megabytes. Each level begins the same
 * way. */
TEST(xz_unpacks_what_the_library_holds)
{
    char *all = test_need(gpu_ptx.n, 1);
    size_t n = 0;

    assert_int_equal(xz_unpack(&gpu_ptx, all, gpu_ptx.n), PL_OK);
    for (const struct gpu_ptx_level *l = gpu_ptx_level; l->level; l++) {
        assert_int_equal(l->from, n);
        assert_memory_equal(all + n, "// text ", 8);
        n += l->n;
    }
    assert_int_equal(n, gpu_ptx.n);
    free(all);
}

TEST(xz_wants_as_many_bytes_as_there_are)
{
    struct xz x = whole;
    char out[N + 1];

    for (x.n = 0; x.n <= N + 1; x.n++)
        assert_true(unpack(&x, out, x.n) == (x.n == N));
    assert_false(unpack(&whole, out, N + 1));
    for (x = whole; x.n_packed-- > 0;)
        assert_false(unpack(&x, out, N));
}

TEST(xz_wants_nothing_behind_the_end)
{
    char more[sizeof packed + 8] = "", out[N];
    struct xz x = {N, sizeof packed, more};

    memcpy(more, packed, sizeof packed - 1);
    for (; x.n_packed <= sizeof more; x.n_packed++)
        assert_false(unpack(&x, out, N));
    x.n_packed = sizeof more;
    assert_true(unpack(&x, out, N - 1));
}

/* Nothing is read or written out of bounds, whatever the bytes are. */
TEST(xz_survives_damage)
{
    uint64_t seed = test_seed();
    char bad[sizeof packed], out[N];

    for (int i = 0; i < 2000; i++) {
        struct xz x = {N, whole.n_packed, bad};

        memcpy(bad, packed, sizeof packed);
        for (int k = 1 + (int)test_below(&seed, 4); k > 0; k--)
            bad[test_below(&seed, whole.n_packed)] =
                (char)test_below(&seed, 256);
        x.n_packed -= (size_t)test_below(&seed, 3);
        unpack(&x, out, 1 + (size_t)test_below(&seed, N));
    }
}
