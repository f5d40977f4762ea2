/* Work that threads steal from each other: each item is done once, in whatever
 * order threads arrive, and the work of a missing thread is done too. */
#include "device/cpu/cpu_steal.h"
#include "lib/support.h"

enum { MAX_THREAD = 70, MAX_ITEM = 3000 };

struct crew {
    int64_t n, grain;
    int nth;
    struct cpu_steal_counter taken[MAX_THREAD];
    struct cpu_call call[MAX_THREAD];
    struct cpu_steal deal[MAX_THREAD];
    unsigned char done[MAX_ITEM]; /* how often each item was processed */
};

static void crew_init(struct crew *c, int64_t n, int64_t grain, int nth)
{
    *c = (struct crew){.n = n, .grain = grain, .nth = nth};
    for (int i = 0; i < nth; i++) {
        c->call[i] = (struct cpu_call){.ith = i, .nth = nth, .taken = c->taken};
        c->deal[i] = cpu_steal(&c->call[i], n, grain);
    }
}

/* Computes one portion of a thread's work. Returns false if none is left. */
static bool crew_work(struct crew *c, int thread)
{
    struct cpu_part p;

    if (!cpu_steal_next(&c->deal[thread], &p))
        return false;
    assert_true(p.lo >= 0 && p.lo < p.hi && p.hi <= c->n);
    assert_true(p.lo % c->grain == 0 && (p.hi % c->grain == 0 || p.hi == c->n));
    for (int64_t i = p.lo; i < p.hi; i++)
        c->done[i]++;
    return true;
}

static void must_be_done(const struct crew *c)
{
    for (int64_t i = 0; i < c->n; i++)
        assert_int_equal(c->done[i], 1);
}

TEST(cpu_deal_gives_each_item_to_one_thread)
{
    uint64_t seed = test_seed();
    int n_trial = test_long() ? 20000 : 2000;

    for (int trial = 0; trial < n_trial; trial++) {
        static struct crew c;
        int left[MAX_THREAD], n_left;

        crew_init(&c, test_below(&seed, MAX_ITEM), 1 + test_below(&seed, 9),
                  1 + (int)test_below(&seed, MAX_THREAD));
        n_left = c.nth;
        for (int i = 0; i < c.nth; i++)
            left[i] = i;
        while (n_left > 0) {
            int i = (int)test_below(&seed, n_left);

            if (!crew_work(&c, left[i]))
                left[i] = left[--n_left];
        }
        must_be_done(&c);
    }
}

TEST(cpu_deal_needs_none_of_the_threads)
{
    static struct crew c;

    for (int nth = 2; nth < MAX_THREAD; nth++)
        for (int away = 0; away < nth; away++) {
            crew_init(&c, 40 * nth, 1, nth);
            for (int i = 0; i < nth; i++)
                while (i != away && crew_work(&c, i))
                    continue;
            must_be_done(&c);
        }
}

/* Short work is not worth a look at the other threads' parts. */
TEST(cpu_deal_of_few_items_gives_each_its_part)
{
    static struct crew c;

    for (int nth = 2; nth <= 16; nth++) {
        crew_init(&c, 3 * nth, 1, nth);
        for (int i = 0; i < nth; i++) {
            assert_true(crew_work(&c, i));
            assert_false(crew_work(&c, i));
            assert_int_equal(atomic_load(&c.taken[i].n), 0);
        }
        must_be_done(&c);
    }
}
