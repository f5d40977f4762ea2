/* What was packed as .xz is unpacked, all or a part, and nothing else is. */
#include "lib/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/xz.h"
#include "device/gpu/gpu_ptx.h"
#include "lib/alloc_fail.h"

/* Of what text() writes, and of nothing, by scripts/packed.py. */
static const char packed[] =
    "\375\067\172\130\132\000\000\001\151\042\336\066\002\000\041\001"
    "\000\000\000\000\067\047\227\326\340\003\271\000\233\004\000\030"
    "\010\113\347\132\267\136\124\343\353\346\131\062\367\175\061\272"
    "\251\276\015\216\022\124\015\316\375\124\043\173\000\046\330\033"
    "\233\203\321\125\234\172\134\060\313\277\362\135\036\073\162\337"
    "\130\302\146\332\346\070\011\370\275\062\272\047\275\036\005\145"
    "\170\377\200\041\104\315\035\055\300\347\363\227\163\213\355\012"
    "\250\205\253\126\157\240\050\072\346\344\051\140\322\112\327\012"
    "\324\200\035\305\012\165\313\012\213\155\262\273\302\004\154\255"
    "\141\005\237\003\277\020\034\066\257\326\361\047\124\000\004\324"
    "\247\226\050\322\371\265\271\023\077\037\161\106\012\257\062\042"
    "\147\153\173\357\042\143\144\221\360\000\000\000\203\177\373\246"
    "\000\001\263\001\272\007\000\000\315\044\353\025\076\060\015\213"
    "\002\000\000\000\000\001\131\132";
static const char packed_nothing[] =
    "\375\067\172\130\132\000\000\001\151\042\336\066\000\000\000\000"
    "\034\337\104\041\220\102\231\015\001\000\000\000\000\001\131\132";

enum { N = 954, GUARD = 64 };

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

/* Copies both sides to the heap, so that a sanitizer sees their ends. */
static pl_status unpack(const struct xz *x, size_t from, char *out, size_t n,
                        pl_err *err)
{
    char *in = test_need(x->n_packed + 1, 1), *room = test_need(n + GUARD, 1);
    pl_status s;

    memcpy(in, x->packed, x->n_packed);
    memset(room, 'g', n + GUARD);
    s = xz_unpack(&(struct xz){x->n, x->n_packed, in}, from, room, n, "a text",
                  err);
    for (int i = 0; i < GUARD; i++)
        assert_int_equal(room[n + (size_t)i], 'g');
    memcpy(out, room, n);
    free(in);
    free(room);
    return s;
}

TEST(xz_unpacks_every_part)
{
    char want[N + 1], out[N];
    pl_err err;

    text(want);
    for (size_t from = 0; from <= N; from += 1 + from / 8)
        for (size_t n = 0; n <= N - from; n += 1 + n / 8) {
            TEST_OK(unpack(&whole, from, out, n, &err), err);
            assert_memory_equal(out, want + from, n);
        }
    for (size_t from = 0; from <= N; from++) {
        TEST_OK(unpack(&whole, from, out, N - from, &err), err);
        assert_memory_equal(out, want + from, N - from);
    }
    TEST_OK(unpack(&(struct xz){0, sizeof packed_nothing - 1, packed_nothing},
                   0, out, 0, &err),
            err);
}

/* Longer than what is skipped at once, and with a dictionary of megabytes. */
TEST(xz_unpacks_what_the_library_holds)
{
    char *all = test_need(gpu_ptx.n, 1), *part = test_need(gpu_ptx.n, 1);
    size_t n = 0;
    pl_err err;

    TEST_OK(xz_unpack(&gpu_ptx, 0, all, gpu_ptx.n, "a text", &err), err);
    for (const struct gpu_ptx_level *l = gpu_ptx_level; l->level; l++) {
        assert_int_equal(l->from, n);
        TEST_OK(xz_unpack(&gpu_ptx, l->from, part, l->n, "a text", &err), err);
        assert_memory_equal(part, all + l->from, l->n);
        n += l->n;
    }
    assert_int_equal(n, gpu_ptx.n);
    free(all);
    free(part);
}

TEST(xz_wants_as_many_bytes_as_there_are)
{
    struct xz x = whole;
    char out[N + 1];
    pl_err err;

    for (x.n = 0; x.n <= N + 1; x.n++)
        if (x.n != N)
            assert_int_equal(unpack(&x, 0, out, x.n, &err), PL_DEVICE);
    assert_non_null(strstr(err.message, "a text is damaged"));
    assert_int_equal(unpack(&x, N, out, 1, &err), PL_DEVICE);
    assert_int_equal(unpack(&whole, N, out, 1, &err), PL_DEVICE);
    assert_int_equal(unpack(&whole, 1, out, N, &err), PL_DEVICE);
    assert_int_equal(unpack(&whole, SIZE_MAX, out, 1, &err), PL_DEVICE);
    assert_int_equal(unpack(&whole, 1, out, 0, &err), PL_OK);
}

TEST(xz_wants_the_whole_stream_and_no_more)
{
    char more[sizeof packed + 4] = "", out[N];
    struct xz x = {N, 0, more};
    pl_err err;

    memcpy(more, packed, sizeof packed - 1);
    for (; x.n_packed < sizeof more; x.n_packed++) {
        pl_status s = unpack(&x, 0, out, N, &err);

        assert_int_equal(s, x.n_packed == whole.n_packed ? PL_OK : PL_DEVICE);
        unpack(&x, 0, out, N / 2, &err);
    }
}

/* A bit of each byte at a time: all of it is covered by sums. */
TEST(xz_refuses_damage)
{
    char bad[sizeof packed], out[N];
    pl_err err;

    memcpy(bad, packed, sizeof packed);
    for (size_t i = 0; i < whole.n_packed; i++)
        for (int bit = 0; bit < 8; bit++) {
            struct xz x = {N, whole.n_packed, bad};

            bad[i] = (char)(packed[i] ^ 1 << bit);
            if (unpack(&x, 0, out, N, &err) != PL_DEVICE)
                fail_msg("bit %d of byte %zu is damaged, and taken", bit, i);
            unpack(&x, 0, out, N / 2, &err);
            unpack(&x, N / 2, out, N / 4, &err);
            bad[i] = packed[i];
        }
}

TEST(xz_survives_random_damage)
{
    char bad[sizeof packed], out[N];
    uint64_t seed = test_seed();
    pl_err err;

    for (int i = 0; i < 2000; i++) {
        struct xz x = {N, whole.n_packed, bad};

        memcpy(bad, packed, sizeof packed);
        for (int j = 0; j < 4; j++) /* behind the headers, which have sums */
            bad[24 + test_below(&seed, (int64_t)whole.n_packed - 24)] =
                (char)test_random(&seed);
        unpack(&x, 0, out, N - 1, &err);
    }
}

TEST(xz_bounds_its_memory)
{
    struct xz x = gpu_ptx;
    char out[1];
    pl_err err;

    x.n = 1 << 20; /* less than its dictionary */
    alloc_stat_reset();
    alloc_fail_at(0);
    assert_int_equal(xz_unpack(&x, 0, out, 1, "a text", &err), PL_DEVICE);
    assert_in_range(alloc_stat_get().peak_bytes, 1, 2 << 20);
}

TEST(xz_survives_failing_allocations)
{
    char out[N];
    pl_err err;

    for (int64_t n = 0; alloc_each(&n);)
        if (alloc_ran(xz_unpack(&whole, 0, out, N, "a text", &err)))
            assert_non_null(strstr(err.message, "a text"));
}
