/* Fuzzes the parsers of what passes of lowering read: parsing gives a status,
 * and what was parsed prints a text that parses to what prints the same.
 * program_check must not fault on parsed programs, for devices that share
 * memory and for devices with private memory. Nor must the passes over parsed
 * programs; drafts that they accept have no buffers left. Texts that begin with
 * "variants" or "transfers" go to the parsers of these.
 *
 * Aborts if a rule is broken. The seeds in corpus/program have every kind of
 * instruction, every kernel and every default, and some damage. */
#include "lower/buffers.h"
#include "lower/events.h"
#include "lower/transfers.h"
#include "lower/variants.h"
#include "program/program_check.h"
#include "program/program_messages.h"
#include "program/program_text.h"

#include <stdlib.h>
#include <string.h>

int fuzz_program(const uint8_t *data, size_t n);

static void require(bool ok)
{
    if (!ok)
        __builtin_trap();
}

struct text {
    char *s; /* the printed text, owned */
    size_t len, cap;
};

static void collect(void *user, const char *s, size_t len)
{
    struct text *t = user;

    if (t->len + len > t->cap) {
        t->cap = 2 * (t->len + len);
        t->s = realloc(t->s, t->cap);
        require(t->s != NULL);
    }
    memcpy(t->s + t->len, s, len);
    t->len += len;
}

static bool has_kernel(void *user, int dev, const struct insn_kernel *k)
{
    (void)user;
    (void)dev;
    return k->n_arg > 0;
}

static bool share_threads(void *user, int a, int b)
{
    (void)user;
    (void)a;
    (void)b;
    return false;
}

/* Derives what two machines with every other device would send each other. */
static void derive_messages(const struct program *p, int n_dev)
{
    struct text text = {0};
    struct text_out o = {.write = collect, .user = &text};
    int *machine = calloc((size_t)n_dev, sizeof *machine);
    struct arena a = {0};
    struct messages m;

    require(machine != NULL);
    for (int d = 0; d < n_dev; d++)
        machine[d] = d % 2;
    for (int v = 0; v < p->n_variant; v++) {
        require(messages_create(&m, p, n_dev, machine, v, &a, NULL) == PL_OK);
        messages_print(&m, &o);
    }
    text_flush(&o);
    arena_fini(&a);
    free(machine);
    free(text.s);
}

static void check(const struct program *p, int n_dev, bool shared)
{
    struct program_device *dev = calloc((size_t)n_dev, sizeof *dev);
    const struct program_machine m = {
        .n_dev = n_dev,
        .dev = dev,
        .has_kernel = has_kernel,
        .share_threads = share_threads,
    };
    pl_err err = {0};

    require(dev != NULL);
    for (int i = 0; i < n_dev; i++)
        dev[i] = (struct program_device){
            "a device", "fuzzed", shared ? 0 : -1, shared, shared && i % 2, 0};
    if (program_check(&m, p, &err) == PL_OK)
        derive_messages(p, n_dev);
    else
        require(strlen(err.message) > 0);
    free(dev);
}

/* Runs the passes, which may change the programs. */
static void run_passes(struct program *p, int n_dev, bool flag, struct arena *a)
{
    bool *flags = calloc((size_t)n_dev, sizeof *flags);
    pl_err err = {0};

    require(flags != NULL);
    for (int i = 0; i < n_dev; i++)
        flags[i] = flag;
    if (events_pass(p, n_dev, flags, a, &err) == PL_OK &&
        buffers_pass(p, n_dev, flags, a, &err) == PL_OK)
        require(p->n_buffer == 0);
    else
        require(strlen(err.message) > 0);
    free(flags);
}

static bool same_text(struct text *a, struct text *b)
{
    bool same = a->len == b->len && !memcmp(a->s, b->s, a->len);

    free(a->s);
    free(b->s);
    return same;
}

static void fuzz_variants(const char *s, size_t n)
{
    struct text first = {0}, second = {0};
    struct arena a = {0};
    struct variants *v;
    pl_err err = {0};

    if (variants_parse(&v, &a, s, n, &err) != PL_OK) {
        require(v == NULL && strlen(err.message) > 0);
        arena_fini(&a);
        return;
    }
    variants_choose(v);
    require(variants_print(v, collect, &first) == PL_OK);
    require(variants_parse(&v, &a, first.s, first.len, &err) == PL_OK);
    require(variants_print(v, collect, &second) == PL_OK);
    require(same_text(&first, &second));
    arena_fini(&a);
}

static void fuzz_transfers(const char *s, size_t n)
{
    struct text first = {0}, second = {0};
    struct arena a = {0};
    struct transfers *t;
    pl_err err = {0};

    if (transfers_parse(&t, &a, s, n, &err) != PL_OK) {
        require(t == NULL && strlen(err.message) > 0);
        arena_fini(&a);
        return;
    }
    require(transfers_choose(t, &a, &err) == PL_OK);
    require(transfers_print(t, collect, &first) == PL_OK);
    require(transfers_parse(&t, &a, first.s, first.len, &err) == PL_OK);
    require(transfers_print(t, collect, &second) == PL_OK);
    require(same_text(&first, &second));
    arena_fini(&a);
}

int fuzz_program(const uint8_t *data, size_t n)
{
    struct text first = {0}, second = {0};
    struct arena a = {0}, b = {0};
    struct program *p;
    pl_err err = {0};
    int n_dev;

    if (n > 9 && !memcmp(data, "transfers", 9)) {
        fuzz_transfers((const char *)data, n);
        return 0;
    }
    if (n > 8 && !memcmp(data, "variants", 8)) {
        fuzz_variants((const char *)data, n);
        return 0;
    }
    if (program_parse(&p, &n_dev, &a, (const char *)data, n, &err) != PL_OK) {
        require(p == NULL && strlen(err.message) > 0);
        arena_fini(&a);
        return 0;
    }
    require(program_print(p, n_dev, collect, &first, &err) == PL_OK);
    check(p, n_dev, false);
    check(p, n_dev, true);
    run_passes(p, n_dev, n % 2 > 0, &a);
    arena_fini(&a);
    require(program_parse(&p, &n_dev, &b, first.s, first.len, &err) == PL_OK);
    require(program_print(p, n_dev, collect, &second, &err) == PL_OK);
    require(same_text(&first, &second));
    arena_fini(&b);
    return 0;
}
