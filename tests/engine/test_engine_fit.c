/* The choices of -fit and -sm auto. They fit, or the message says what is
 * missing; they keep stated options; and on small machines nothing is much
 * faster. */
#include "cost/cost.h"
#include "engine/engine.h"
#include "fit/fit.h"
#include "lib/hollow_model.h"
#include "lib/support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_MODEL = 6 };

static struct hollow_model shape(int i)
{
    static const struct {
        int64_t n_layer, d_model, n_head, n_expert, d_ff, n_vocab;
        pl_format format;
    } rows[N_MODEL] = {
        {2, 256, 8, 8, 256, 512, PL_Q8_0},
        {4, 512, 8, 4, 512, 4096, PL_Q4_K},
        {5, 512, 8, 16, 256, 32000, PL_Q8_0},
        {8, 1024, 16, 8, 1024, 8192, PL_Q4_K},
        {12, 512, 8, 32, 512, 2048, PL_F16},
        {24, 2048, 16, 64, 768, 151936, PL_Q4_K},
    };
    struct hollow_model h = hollow_400b;

    h.n_layer = rows[i].n_layer;
    h.d_model = rows[i].d_model;
    h.n_head = rows[i].n_head;
    h.d_head = 64;
    h.n_expert = rows[i].n_expert;
    h.n_used = 2;
    h.d_ff = rows[i].d_ff;
    h.n_vocab = rows[i].n_vocab;
    h.format = rows[i].format;
    return h;
}

static pl_model *open_model(int i)
{
    const struct hollow_model h = shape(i);
    char name[32];
    const char *path;
    pl_model *m = NULL;
    pl_err err;

    snprintf(name, sizeof name, "fit%d.gguf", i);
    path = test_temp(name);
    if (hollow_model_write(path, &h, &err) != PL_OK ||
        pl_model_open(&m, path, &err) != PL_OK)
        fail_msg("%s", err.message);
    return m;
}

/* Returns the bytes of weights, caches and buffers on one device. */
static double all_bytes(const pl_model *m)
{
    pl_options o = {.size = sizeof o, .device_spec = "gpu:1TiB:1TB/s"};
    double sum = 0;
    pl_plan *p;

    assert_int_equal(pl_plan_create(&p, m, &o, NULL), PL_OK);
    for (int r = 0; r < REGION_COUNT; r++)
        sum += (double)p->compiled->low->prog[0].bytes[r];
    pl_plan_free(p);
    return sum;
}

enum { SPEC = 800 };

/* Draws a machine of n devices that can hold all of `bytes`, some or hardly
 * any. As in reality, hosts are slower than devices. */
static void draw_machine(char spec[SPEC], uint64_t *random, double bytes, int n,
                         bool alike)
{
    double part[4] = {0.2, 0.5, 0.9, 2.0};
    size_t at = 0;
    double mem = 1, speed = 1, link = 1;

    for (int d = 0; d < n; d++) {
        if (d == 0 || !alike) {
            mem = bytes * part[test_below(random, 4)] *
                  (1 + (double)test_below(random, 100) / 100);
            speed = 300 + 100 * (double)test_below(random, 10);
            link = 8 << test_below(random, 4);
        }
        at += (size_t)snprintf(
            spec + at, SPEC - at,
            "%sgpu:%.0fKiB:%.0fGB/s:link=%.0fGB/s:latency=5us:flops=%.0fT",
            d ? "," : "", mem / 1024, speed, link, speed / 10);
    }
    if (test_below(random, 2))
        snprintf(spec + at, SPEC - at, ",host:%.0fKiB:50GB/s",
                 bytes * (0.3 + 2 * (double)test_below(random, 2)) / 1024);
}

/* ---- options as text --------------------------------------------------- */

struct said {
    pl_options o;
    double split[64];
    char text[2048];
};

/* Sets the options in the command line `text` in s->o. */
static void read_words(struct said *s, const char *text)
{
    char *save = NULL, *w;

    snprintf(s->text, sizeof s->text, "%s", text);
    for (w = strtok_r(s->text, " ", &save); w; w = strtok_r(NULL, " ", &save)) {
        char *v = strcmp(w, "-cmoe") == 0 ? NULL : strtok_r(NULL, " ", &save);

        if (strcmp(w, "-cmoe") == 0) {
            s->o.host_experts = "all";
        } else if (strcmp(w, "-sm") == 0) {
            s->o.split_mode = strcmp(v, "none") == 0     ? PL_SPLIT_NONE
                              : strcmp(v, "layer") == 0  ? PL_SPLIT_LAYER
                              : strcmp(v, "tensor") == 0 ? PL_SPLIT_TENSOR
                                                         : PL_SPLIT_HYBRID;
            if (s->o.split_mode == PL_SPLIT_HYBRID)
                assert_int_equal(sscanf(v, "hybrid:%d", &s->o.hybrid_size), 1);
        } else if (strcmp(w, "-mg") == 0) {
            s->o.main_device = atoi(v);
        } else if (strcmp(w, "-ts") == 0) {
            s->o.tensor_split = s->split;
            s->o.n_tensor_split = 0;
            for (char *e = v; *e; e += *e == ',')
                s->split[s->o.n_tensor_split++] = strtod(e, &e);
        } else if (strcmp(w, "-ngl") == 0) {
            s->o.device_layers = v;
        } else if (strcmp(w, "-ncmoe") == 0) {
            s->o.host_experts = v;
        } else if (strcmp(w, "-ub") == 0) {
            s->o.n_ubatch = atoi(v);
        } else if (strcmp(w, "-c") == 0) {
            s->o.n_ctx = atoi(v);
        } else if (strcmp(w, "--ranks") == 0) {
            s->o.n_ranks = atoi(v);
        } else if (strcmp(w, "-fit") == 0) {
            s->o.no_fit = true;
        } else {
            fail_msg("option %s of \"%s\"", w, text);
        }
    }
}

static void read_said(struct said *s, const pl_plan *p, const char *spec)
{
    memset(s, 0, sizeof *s);
    pl_options_init(&s->o);
    s->o.device_spec = spec;
    read_words(s, pl_plan_options(p));
}

static void check_reproduced(const pl_model *m, const pl_plan *p,
                             const char *spec)
{
    struct test_text text[2] = {{0}};
    struct said s;
    pl_plan *again;
    pl_err err;

    read_said(&s, p, spec);
    if (pl_plan_create(&again, m, &s.o, &err) != PL_OK)
        fail_msg("%s, %s: %s", spec, pl_plan_options(p), err.message);
    assert_int_equal(again->compiled->numeric_hash, p->compiled->numeric_hash);
    assert_int_equal(again->compiled->list.n, p->compiled->list.n);
    assert_int_equal(again->n_ctx, p->n_ctx);
    for (int d = 0; d < p->compiled->list.n; d++)
        assert_memory_equal(again->compiled->low->prog[d].bytes,
                            p->compiled->low->prog[d].bytes,
                            sizeof p->compiled->low->prog[d].bytes);
    assert_string_equal(pl_plan_options(again), pl_plan_options(p));
    pl_plan_print(p, false, test_text_add, &text[0], NULL);
    pl_plan_print(again, false, test_text_add, &text[1], NULL);
    assert_string_equal(text[1].s, text[0].s);
    free(text[0].s);
    free(text[1].s);
    pl_plan_free(again);
}

/* Checks that a context longer by one step does not fit. */
static void check_longest(const pl_model *m, const pl_plan *p, const char *spec)
{
    struct said s;
    pl_plan *longer;
    bool fits = true;

    read_said(&s, p, spec);
    s.o.n_ctx += 257;
    if (pl_plan_create(&longer, m, &s.o, NULL) != PL_OK)
        return;
    for (int d = 0; d < longer->compiled->list.n; d++)
        fits &= fit_shortfall(longer->compiled, d, 0) <= 0;
    if (fits)
        fail_msg("%s: %s, and so would %d more", spec, pl_plan_options(p), 257);
    pl_plan_free(longer);
}

TEST(fit_fits_or_explains)
{
    uint64_t random = test_seed();
    int n = test_draws(12, 200), fitted = 0, explained = 0;

    for (int k = 0; k < N_MODEL; k++) {
        pl_model *m = open_model(k);
        double bytes = all_bytes(m);

        for (int i = 0; i < n; i++) {
            pl_options o = {.size = sizeof o,
                            .fit_ctx = test_below(&random, 2) ? 1024 : 0};
            char spec[SPEC];
            pl_plan *p;
            pl_err err;
            pl_status s;
            int n_dev;

            n_dev = 1 + (int)test_below(&random, 4);
            draw_machine(spec, &random, bytes, n_dev, test_below(&random, 2));
            o.device_spec = spec;
            s = pl_plan_create(&p, m, &o, &err);
            if (s != PL_OK) {
                if (s != PL_NO_DEVICE_MEMORY || !strstr(err.message, " more ("))
                    fail_msg("%s: %s", spec, err.message);
                explained++;
                continue;
            }
            fitted++;
            for (int d = 0; d < p->compiled->list.n; d++)
                if (fit_shortfall(p->compiled, d, 0) > 0)
                    fail_msg("%s: %s does not fit device %d", spec,
                             pl_plan_options(p), d);
            assert_true(p->n_ctx >= (o.fit_ctx ? o.fit_ctx : 4096));
            check_reproduced(m, p, spec);
            if (p->n_ctx < 4096)
                check_longest(m, p, spec);
            pl_plan_free(p);
        }
        pl_model_free(m);
    }
    print_message("%d machines fit, %d do not\n", fitted, explained);
}

/* ---- available memory ---------------------------------------------------- */

/* Writes the machine of `spec` with a part of each device's memory in use. */
static void take_some(char out[2 * SPEC], const char *spec, uint64_t *random)
{
    static const double left[] = {1, 0.95, 0.8, 0.6, 0.35, 0.1};
    char copy[SPEC], *save = NULL;
    size_t at = 0;

    snprintf(copy, sizeof copy, "%s", spec);
    for (char *w = strtok_r(copy, ",", &save); w;
         w = strtok_r(NULL, ",", &save)) {
        double kib = strtod(strchr(w, ':') + 1, NULL);

        kib = fmax(1, kib * left[test_below(random, 6)]);
        at += (size_t)snprintf(out + at, 2 * SPEC - at,
                               "%s%s:available=%.0fKiB", at ? "," : "", w, kib);
    }
}

/* The same options always give the same bits. Available memory moves layers,
 * experts and ranks between devices, shortens the context, or rejects the plan.
 * Ranks and layouts are those of a machine with all memory free. */
TEST(fit_available_memory_decides_no_bit)
{
    enum { N_HOUR = 4 };
    uint64_t random = test_seed() + 3;
    int n = test_draws(8, 100), same = 0, moved = 0, refused = 0;

    for (int i = 0; i < n; i++) {
        int k = (int)test_below(&random, 4);
        pl_model *m = open_model(k);
        int n_dev = 1 + (int)test_below(&random, 4);
        pl_options o = {.size = sizeof o, .fit_ctx = 256};
        char spec[SPEC], now[2 * SPEC], was[200];
        uint64_t hash;
        pl_plan *p;
        pl_err err;

        draw_machine(spec, &random, all_bytes(m), n_dev,
                     test_below(&random, 2));
        o.device_spec = spec;
        if (pl_plan_create(&p, m, &o, &err) != PL_OK) {
            pl_model_free(m);
            continue;
        }
        hash = p->compiled->numeric_hash;
        snprintf(was, sizeof was, "%s", pl_plan_options(p));
        pl_plan_free(p);
        for (int hour = 0; hour < N_HOUR; hour++) {
            take_some(now, spec, &random);
            o.device_spec = now;
            if (pl_plan_create(&p, m, &o, &err) != PL_OK) {
                if (!strstr(err.message, " available of ") ||
                    !strstr(err.message, "buffers "))
                    fail_msg("%s: %s", now, err.message);
                refused++;
                continue;
            }
            if (p->compiled->numeric_hash != hash)
                fail_msg("%s: %s, but %s where all is available", now,
                         pl_plan_options(p), was);
            for (int d = 0; d < p->compiled->list.n; d++)
                if (fit_shortfall(p->compiled, d, 0) > 0)
                    fail_msg("%s: %s does not fit device %d", now,
                             pl_plan_options(p), d);
            if (strcmp(pl_plan_options(p), was) != 0) {
                check_reproduced(m, p, now);
                moved++;
            } else {
                same++;
            }
            pl_plan_free(p);
        }
        pl_model_free(m);
    }
    print_message("%d plans as they were, %d changed, %d refused\n", same,
                  moved, refused);
    assert_true(same > 0 && moved > 0);
}

/* ---- nothing is much faster -------------------------------------------- */

static double speed(const pl_plan *p)
{
    const struct compiled *q = p->compiled;
    struct cost_rates r[10];
    double s;

    for (int d = 0; d < q->list.n; d++)
        cost_rates_from_spec(&r[d], &q->list.dev[d]);
    assert_int_equal(fit_seconds(q, r, q->max.n_slot[0], &s, NULL, NULL),
                     PL_OK);
    return s;
}

struct best {
    const pl_model *m;
    double seconds;
    char what[200];
    int n;
};

/* Returns the plan's seconds; INFINITY if there is no such plan. */
static double try_one(struct best *b, const pl_options *o)
{
    double seconds = INFINITY;
    bool fits = true;
    pl_plan *p;

    if (pl_plan_create(&p, b->m, o, NULL) != PL_OK)
        return INFINITY;
    b->n++;
    for (int d = 0; d < p->compiled->list.n; d++)
        fits &= fit_shortfall(p->compiled, d, 0) <= 0;
    if (fits)
        seconds = speed(p);
    if (seconds < b->seconds) {
        b->seconds = seconds;
        snprintf(b->what, sizeof b->what, "%s", pl_plan_options(p));
    }
    pl_plan_free(p);
    return seconds;
}

/* Returns true if the plan's speed is less than this part of the best one's. */
static bool misses(const pl_plan *p, const char *spec, const struct best *b,
                   double least, double *worst)
{
    double part = b->seconds / speed(p);

    *worst = fmin(*worst, part);
    if (part >= least)
        return false;
    print_message("%s: %s is at %.3f of %s\n", spec, pl_plan_options(p), part,
                  b->what);
    return true;
}

/* Tries layers on devices, experts and micro-batches for one mode and its
 * shares. */
static void try_rest(struct best *b, pl_options o, int n_layer)
{
    static const int64_t ub[] = {512, 128, 32};
    char layers[16], experts[16];

    o.no_fit = true;
    o.device_layers = layers;
    for (int u = 0; u < 3; u++)
        for (int on = n_layer + 1; on >= 0; on--)
            for (int e = n_layer + 1 - on; e <= n_layer; e++) {
                bool more = e > (n_layer + 1 - on);

                if (o.split_mode != PL_SPLIT_TENSOR && on == 0 &&
                    o.split_mode != PL_SPLIT_NONE)
                    /* without layers on devices these modes give the same
                     * plan */
                    continue;
                snprintf(layers, sizeof layers, "%d", on);
                snprintf(experts, sizeof experts, "%d", e);
                o.host_experts = more ? experts : NULL;
                o.n_ubatch = ub[u];
                try_one(b, &o);
            }
}

static void exhaust(struct best *b, const char *spec, int n_dev, int n_layer)
{
    pl_options o = {
        .size = sizeof o, .device_spec = spec, .split_mode = PL_SPLIT_TENSOR};
    double split[3];

    try_rest(b, o, n_layer);
    o.split_mode = PL_SPLIT_NONE;
    for (o.main_device = 0; o.main_device < n_dev; o.main_device++)
        try_rest(b, o, n_layer);
    o = (pl_options){.size = sizeof(pl_options),
                     .device_spec = spec,
                     .split_mode = PL_SPLIT_LAYER,
                     .tensor_split = split,
                     .n_tensor_split = n_dev};
    for (int i = 0; i <= n_layer + 1 && n_dev > 1; i++)
        for (int k = 0; i + k <= n_layer + 1; k++) {
            split[0] = i;
            split[1] = n_dev == 2 ? n_layer + 1 - i : k;
            split[2] = n_layer + 1 - i - k;
            if (n_dev > 2 || k == 0)
                try_rest(b, o, n_layer);
        }
}

TEST(fit_is_near_the_best_of_all)
{
    uint64_t random = test_seed() + 1;
    int n = test_draws(4, 60);
    int missed = 0;
    double worst = 1;

    for (int i = 0; i < n; i++) {
        int k = (int)test_below(&random, test_long() ? 4 : 2), n_dev;
        pl_model *m = open_model(k);
        struct best b = {.m = m, .seconds = INFINITY};
        pl_options o = {.size = sizeof o};
        char spec[SPEC];
        pl_plan *p;
        pl_err err;
        pl_status s;

        n_dev = 1 + (int)test_below(&random, test_long() && k < 2 ? 3 : 2);
        draw_machine(spec, &random, all_bytes(m), n_dev,
                     test_below(&random, 2));
        o.device_spec = spec;
        s = pl_plan_create(&p, m, &o, &err);
        exhaust(&b, spec, n_dev, (int)shape(k).n_layer);
        if (s != PL_OK && b.seconds < INFINITY) {
            print_message("%s: %s; but %s fits\n", spec, err.message, b.what);
            missed++;
        } else if (s == PL_OK) {
            missed += misses(p, spec, &b, 0.95, &worst);
            pl_plan_free(p);
        }
        pl_model_free(m);
    }
    print_message("%d machines, at least %.3f of the best speed\n", n, worst);
    assert_int_equal(missed, 0);
}

/* Tries all split modes on 8 devices, on the first 4 and on the first 2. */
static void all_modes(struct best *b, const char *spec)
{
    static const double few[3][8] = {{1, 1, 1, 1, 1, 1, 1, 1},
                                     {1, 1, 1, 1, 0, 0, 0, 0},
                                     {1, 1, 0, 0, 0, 0, 0, 0}};
    pl_options o = {.size = sizeof o, .device_spec = spec, .no_fit = true};

    o.split_mode = PL_SPLIT_NONE;
    try_one(b, &o);
    for (o.hybrid_size = 2; o.hybrid_size < 8; o.hybrid_size *= 2) {
        o.split_mode = PL_SPLIT_HYBRID;
        try_one(b, &o);
    }
    o.n_tensor_split = 8;
    for (int i = 0; i < 3; i++) {
        o.tensor_split = few[i];
        o.n_ranks = 0;
        o.split_mode = PL_SPLIT_LAYER;
        try_one(b, &o);
        o.n_ranks = 8 >> i;
        o.split_mode = PL_SPLIT_TENSOR;
        try_one(b, &o);
    }
}

/* Modes that cannot be as fast as the best are not compiled, which must not
 * lose a faster one. From slow links and fast ones follow all modes. */
TEST(fit_of_alike_devices_is_the_best_of_all_modes)
{
    uint64_t random = test_seed() + 4;
    int n = test_draws(24, 100), missed = 0, chosen[PL_SPLIT_HYBRID + 1] = {0};
    double worst = 1;

    for (int i = 0; i < n; i++) {
        pl_model *m = open_model((int)test_below(&random, 4));
        struct best b = {.m = m, .seconds = INFINITY};
        pl_options o = {.size = sizeof o};
        char spec[SPEC];
        pl_plan *p;
        pl_err err;

        snprintf(spec, sizeof spec,
                 "gpu:1GiB:%dGB/s:link=%dGB/s:latency=%dus:flops=1T*8",
                 2 << test_below(&random, 7), 1 << test_below(&random, 8),
                 1 << test_below(&random, 8));
        o.device_spec = spec;
        TEST_OK(pl_plan_create(&p, m, &o, &err), err);
        all_modes(&b, spec);
        missed += misses(p, spec, &b, 0.97, &worst);
        for (int mode = 0; mode <= PL_SPLIT_HYBRID; mode++) {
            static const char *const name[] = {[PL_SPLIT_NONE] = "-sm none",
                                               [PL_SPLIT_LAYER] = "-sm layer",
                                               [PL_SPLIT_TENSOR] = "-sm tensor",
                                               [PL_SPLIT_HYBRID] =
                                                   "-sm hybrid"};

            chosen[mode] +=
                name[mode] && strstr(pl_plan_options(p), name[mode]);
        }
        pl_plan_free(p);
        pl_model_free(m);
    }
    print_message("none %d, layer %d, tensor %d, hybrid %d; at least %.3f of "
                  "the best speed\n",
                  chosen[PL_SPLIT_NONE], chosen[PL_SPLIT_LAYER],
                  chosen[PL_SPLIT_TENSOR], chosen[PL_SPLIT_HYBRID], worst);
    assert_int_equal(missed, 0);
}

/* The options of a plan from which small changes start. */
struct spot {
    pl_options o;
    int layers, experts;
    double share[8];
    char text[2][16];
};

static double try_spot(struct best *b, struct spot *x, int n_dev)
{
    snprintf(x->text[0], sizeof x->text[0], "%d", x->layers);
    snprintf(x->text[1], sizeof x->text[1], "%d", x->experts);
    x->o.device_layers = x->text[0];
    x->o.host_experts = x->experts > 0 ? x->text[1] : NULL;
    x->o.tensor_split = x->share;
    x->o.n_tensor_split = x->o.split_mode == PL_SPLIT_NONE ? 0 : n_dev;
    return try_one(b, &x->o);
}

/* Draws a random split mode and random devices. */
static void draw_spot(struct spot *x, uint64_t *random, int n_dev, int n_layer)
{
    static const pl_split_mode mode[] = {PL_SPLIT_LAYER, PL_SPLIT_LAYER,
                                         PL_SPLIT_TENSOR, PL_SPLIT_HYBRID,
                                         PL_SPLIT_NONE};
    int used[8], n = 0, from = (int)test_below(random, n_dev);

    x->o.split_mode = mode[test_below(random, 5)];
    x->o.main_device = from;
    x->o.hybrid_size = 2;
    x->o.n_ubatch = 512;
    x->layers = n_layer + 1;
    x->experts = 0;
    for (int d = 0; d < n_dev; d++) {
        x->share[d] = 0;
        if (d == from || test_below(random, 2))
            used[n++] = d;
    }
    for (int i = 0; i <= n_layer || i < 8 * n; i++)
        x->share[used[test_below(random, n)]]++;
}

static void change_spot(struct spot *x, uint64_t *random, int n_dev,
                        int n_layer)
{
    int a = (int)test_below(random, n_dev), b = (int)test_below(random, n_dev);
    double part = fmin(x->share[a], 1 + (double)test_below(random, 2));

    switch (test_below(random, 8)) {
    case 0:
        x->o.n_ubatch = 32 << test_below(random, 5);
        break;
    case 1:
        x->layers = (int)test_below(random, n_layer + 2);
        break;
    case 2:
        x->experts = (int)test_below(random, n_layer + 1);
        break;
    case 3:
        x->o.main_device = a;
        part = x->share[a];
        /* fall through */
    default:
        x->share[a] -= part;
        x->share[b] += part;
    }
}

/* Makes small changes that help, from many starts and from the plan that was
 * chosen. */
static void search(struct best *b, const struct spot *chosen, const char *spec,
                   uint64_t *random, int n_dev, int n_layer)
{
    enum { N_CHANGE = 80 };
    int n_start = test_long() ? 20 : 5;

    for (int i = 0; i < n_start; i++) {
        struct spot x = *chosen, y;
        double seconds;

        x.o.device_spec = spec;
        x.o.n_ctx = 1024;
        x.o.no_fit = true;
        if (i > 1)
            draw_spot(&x, random, n_dev, n_layer);
        seconds = try_spot(b, &x, n_dev);
        for (int k = 0; k < N_CHANGE; k++) {
            double t;

            y = x;
            change_spot(&y, random, n_dev, n_layer);
            t = try_spot(b, &y, n_dev);
            if (t <= seconds) {
                seconds = t;
                x = y;
            }
        }
    }
}

/* More options than can be tried one by one. */
TEST(fit_of_many_unlike_devices_is_near_what_a_search_finds)
{
    uint64_t random = test_seed() + 2;
    int n = test_draws(1, 20), missed = 0;
    double worst = 1;

    for (int i = 0; i < n; i++) {
        int k = 1 + 2 * (int)test_below(&random, 2);
        int n_dev = 5 + (int)test_below(&random, 4);
        int n_layer = (int)shape(k).n_layer;
        pl_model *m = open_model(k);
        struct best b = {.m = m, .seconds = INFINITY};
        struct spot chosen = {.layers = n_layer + 1};
        pl_options o = {.size = sizeof o, .n_ctx = 1024};
        char spec[SPEC];
        struct said said;
        pl_plan *p;
        pl_err err;
        pl_status s;

        draw_machine(spec, &random, all_bytes(m) / 3, n_dev, false);
        o.device_spec = spec;
        s = pl_plan_create(&p, m, &o, &err);
        draw_spot(&chosen, &random, n_dev, n_layer);
        if (s == PL_OK) {
            read_said(&said, p, spec);
            chosen.o.split_mode = said.o.split_mode;
            chosen.o.main_device = said.o.main_device;
            chosen.o.hybrid_size = said.o.hybrid_size;
            chosen.o.n_ubatch = said.o.n_ubatch;
            if (strcmp(said.o.device_layers, "all") != 0)
                chosen.layers = atoi(said.o.device_layers);
            if (said.o.host_experts)
                chosen.experts = strcmp(said.o.host_experts, "all") == 0
                                     ? n_layer
                                     : atoi(said.o.host_experts);
            for (int d = 0; d < n_dev; d++)
                chosen.share[d] = said.o.n_tensor_split > d ? said.split[d] : 1;
        }
        search(&b, &chosen, spec, &random, n_dev, n_layer);
        if (s != PL_OK && b.seconds < INFINITY) {
            print_message("%s: %s; but %s fits\n", spec, err.message, b.what);
            missed++;
        } else if (s == PL_OK) {
            missed += misses(p, spec, &b, 0.97, &worst);
            pl_plan_free(p);
        }
        pl_model_free(m);
    }
    print_message("%d machines, at least %.3f of the best speed\n", n, worst);
    assert_int_equal(missed, 0);
}

/* ---- messages ---------------------------------------------------------- */

TEST(fit_off_explains_device_by_device)
{
    pl_model *m = open_model(3);
    pl_options o = {.size = sizeof o,
                    .device_spec = "gpu:40MiB:1TB/s,gpu:8MiB:1TB/s",
                    .split_mode = PL_SPLIT_TENSOR,
                    .no_fit = true};
    pl_plan *p;
    pl_err err;

    assert_int_equal(pl_plan_create(&p, m, &o, &err), PL_NO_DEVICE_MEMORY);
    assert_null(p);
    assert_non_null(strstr(err.message, "gpu0: needs "));
    assert_non_null(strstr(err.message, "gpu1: needs "));
    assert_non_null(strstr(err.message, " would fit"));
    /* for devices that share memory the message gives one total */
    o = (pl_options){.size = sizeof(pl_options),
                     .devices = "cpu*3",
                     .n_ctx = 1 << 29,
                     .no_fit = true};
    o.split_mode = PL_SPLIT_TENSOR;
    assert_int_equal(pl_plan_create(&p, m, &o, &err), PL_NO_DEVICE_MEMORY);
    assert_non_null(strstr(err.message, "cpu0: needs "));
    assert_non_null(strstr(err.message, " more with cpu1, cpu2 (weights "));
    assert_null(strstr(err.message, "cpu1: needs "));
    o.devices = NULL;
    o.n_ctx = 0;
    o.device_spec = "gpu:64GiB:1TB/s*2";
    TEST_OK(pl_plan_create(&p, m, &o, &err), err);
    pl_plan_free(p);
    pl_model_free(m);
}

/* No device has so much to leave free, whatever the sums are. */
TEST(fit_with_a_margin_beyond_all_memory_is_refused)
{
    static const uint64_t margin[] = {(uint64_t)1 << 62, INT64_MAX,
                                      UINT64_MAX - 1, UINT64_MAX};
    pl_model *m = open_model(0);
    pl_plan *p;

    for (size_t i = 0; i < sizeof margin / sizeof margin[0]; i++) {
        const pl_options o = {.size = sizeof o,
                              .device_spec =
                                  "gpu:80GiB:1TB/s*3,host:80GiB:50GB/s",
                              .fit_margin = margin[i]};

        assert_int_equal(pl_plan_create(&p, m, &o, NULL), PL_NO_DEVICE_MEMORY);
    }
    pl_model_free(m);
}

/* A caller who adds the options that the message suggests has a plan that
 * fits. */
TEST(fit_remedies_are_true)
{
    static const struct {
        pl_options o;
        const char *holds; /* text that the error message must contain */
    } rows[] = {
        {{.device_spec = "gpu:4900KiB:1TB/s,gpu:1GiB:1TB/s*2,host:1KiB:1GB/s",
          .split_mode = PL_SPLIT_TENSOR,
          .no_fit = true},
         " -ts "},
        {{.device_spec = "gpu:1GiB:1TB/s,host:1MiB:1GB/s",
          .device_layers = "1"},
         " -ngl all"},
        {{.device_spec = "gpu:1GiB:1TB/s,host:1MiB:1GB/s",
          .host_experts = "all",
          .no_fit = true},
         " -ncmoe 0"},
        {{.device_spec = "gpu:6MiB:1TB/s*2", .n_ubatch = 8192, .no_fit = true},
         " -ub "},
        {{.device_spec = "gpu:1GiB:1TB/s,host:1MiB:1GB/s",
          .device_layers = "1",
          .n_ubatch = 64},
         " -ngl all would fit"},
        {{.device_spec = "gpu:6MiB:1TB/s,host:6MiB:1GB/s", .n_ctx = 1 << 20},
         " -c "},
        {{.device_spec = "gpu:1GiB:1TB/s", .fit_margin = 1ull << 40},
         "a smaller --fit-margin"},
    };
    pl_model *m = open_model(0);

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct said s = {.o = rows[i].o};
        pl_plan *p;
        pl_err err, again;
        char *end, *at;

        s.o.size = sizeof s.o;
        if (pl_plan_create(&p, m, &s.o, &err) != PL_NO_DEVICE_MEMORY)
            fail_msg("row %zu fits", i);
        if (!strstr(err.message, rows[i].holds))
            fail_msg("row %zu: %s", i, err.message);
        end = strstr(err.message, " would fit");
        if (!end)
            continue;
        *end = '\0';
        at = strrchr(err.message, ';');
        assert_non_null(at);
        read_words(&s, at + 1);
        if (pl_plan_create(&p, m, &s.o, &again) != PL_OK)
            fail_msg("row %zu: %s: %s", i, err.message, again.message);
        pl_plan_free(p);
    }
    pl_model_free(m);
}

/* Returns the bytes after `before` in a message of a plan that does not fit. */
static double bytes_after(const pl_err *err, const char *before)
{
    const char *at = strstr(err->message, before);
    char unit[4] = "";
    double n = 0;

    if (!at || sscanf(at + strlen(before), "%lf %3s", &n, unit) != 2)
        fail_msg("no \"%s\": %s", before, err->message);
    return n * (unit[0] == 'K' ? 1 << 10 : unit[0] == 'M' ? 1 << 20 : 1 << 30);
}

/* A device needs less with an option, by as many bytes as the message says that
 * it saves. */
TEST(fit_savings_are_true)
{
    static const struct {
        const char *spec;
        pl_options change;
        const char *says;
    } rows[] = {
        {"gpu:1MiB:1TB/s", {.n_ctx = 4096}, "-c 4096 saves "},
        {"gpu:1MiB:1TB/s", {.n_ubatch = 512}, "-ub 512 saves "},
        {"gpu:1MiB:1TB/s",
         {.cache_set = true, .cache_k = PL_Q8_0, .cache_v = PL_Q8_0},
         "-ctk q8_0 -ctv q8_0 saves "},
        {"gpu:1MiB:1TB/s*2", {.n_ctx = 4096}, "-c 4096 saves "},
    };
    pl_model *m = open_model(0);

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const pl_options *change = &rows[i].change;
        pl_options o = {.size = sizeof o,
                        .device_spec = rows[i].spec,
                        .split_mode = PL_SPLIT_TENSOR,
                        .n_ctx = 8192,
                        .n_ubatch = 1024,
                        .no_fit = true};
        double saves, n_dev = strchr(rows[i].spec, '*') ? 2 : 1, before;
        pl_err err;
        pl_plan *p;

        assert_int_equal(pl_plan_create(&p, m, &o, &err), PL_NO_DEVICE_MEMORY);
        before = bytes_after(&err, "gpu0: needs ");
        saves = bytes_after(&err, rows[i].says);
        assert_int_equal(strstr(err.message, "B in all, -ub ") != NULL,
                         n_dev > 1);
        if (change->n_ctx)
            o.n_ctx = change->n_ctx;
        if (change->n_ubatch)
            o.n_ubatch = change->n_ubatch;
        if (change->cache_set) {
            o.cache_set = true;
            o.cache_k = change->cache_k;
            o.cache_v = change->cache_v;
        }
        assert_int_equal(pl_plan_create(&p, m, &o, &err), PL_NO_DEVICE_MEMORY);
        before -= bytes_after(&err, "gpu0: needs ");
        if (fabs(before * n_dev - saves) > 0.02 * saves + (32 << 10))
            fail_msg("%s%g, not %g: %s", rows[i].says, saves, before * n_dev,
                     err.message);
    }
    pl_model_free(m);
}

static void keep_info(void *user, pl_log_level level, const char *text)
{
    if (level == PL_LOG_INFO)
        snprintf(user, 400, "%s", text);
}

/* If devices hold everything with a smaller step, they are not left idle for a
 * larger one. The step is not smaller than necessary either. */
TEST(fit_takes_a_good_micro_batch)
{
    static const int64_t ub[] = {256, 128, 64, 32};
    static const char *const specs[] = {
        "gpu:2480KiB:1TB/s*7",
        "gpu:2720KiB:1TB/s*7",
        "gpu:2600KiB:1TB/s*5",
        "gpu:4280KiB:1TB/s*7",
    };
    pl_model *m = open_model(0);

    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        pl_options o = {.size = sizeof o,
                        .device_spec = specs[i],
                        .split_mode = PL_SPLIT_TENSOR};
        double chosen, stated;
        char what[200];
        pl_plan *p;

        assert_int_equal(pl_plan_create(&p, m, &o, NULL), PL_OK);
        chosen = speed(p);
        snprintf(what, sizeof what, "%s", pl_plan_options(p));
        pl_plan_free(p);
        for (size_t k = 0; k < sizeof ub / sizeof *ub; k++) {
            o.n_ubatch = ub[k];
            assert_int_equal(pl_plan_create(&p, m, &o, NULL), PL_OK);
            stated = speed(p);
            pl_plan_free(p);
            if (chosen > 1.01 * stated)
                fail_msg("%s: %s takes %.3f of -ub %d", specs[i], what,
                         chosen / stated, (int)ub[k]);
        }
    }
    pl_model_free(m);
}

/* Stated options are kept; the chosen ones are reported. */
TEST(fit_keeps_what_is_stated)
{
    static const double shares[2] = {1, 3};
    char told[400] = "";
    pl_model *m = open_model(3);
    pl_options o = {.size = sizeof o,
                    .device_spec = "gpu:1GiB:1TB/s*2",
                    .split_mode = PL_SPLIT_LAYER,
                    .tensor_split = shares,
                    .n_tensor_split = 2,
                    .host_experts = "2",
                    .n_ubatch = 96,
                    .n_ctx = 777,
                    .n_ranks = 3};
    pl_plan *p;

    o.log = keep_info;
    o.log_user = told;
    assert_int_equal(pl_plan_create(&p, m, &o, NULL), PL_OK);
    assert_string_equal(pl_plan_options(p),
                        "-sm layer -ts 1,3 -ngl all -ncmoe 2 -ub 96 -c 777 "
                        "--ranks 3 -fit off");
    assert_string_equal(told, "");
    pl_plan_free(p);
    o.split_mode = PL_SPLIT_AUTO;
    assert_int_equal(pl_plan_create(&p, m, &o, NULL), PL_OK);
    assert_int_equal(strncmp(told, "fit: -sm ", 9), 0);
    assert_string_equal(told + 5, pl_plan_options(p));
    assert_non_null(strstr(told, "-ub 96 -c 777 --ranks 3"));
    pl_plan_free(p);
    pl_model_free(m);
}

/* With --ranks, no choice changes a bit. */
TEST(fit_with_ranks_keeps_the_numbers)
{
    static const char *const specs[] = {
        "gpu:64GiB:1TB/s", "gpu:64GiB:1TB/s*2", "gpu:8MiB:1TB/s*2",
        "gpu:8MiB:1TB/s,gpu:30MiB:500GB/s,gpu:5MiB:2TB/s"};
    pl_model *m = open_model(3);
    uint64_t hash = 0;

    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
        pl_options o = {
            .size = sizeof o, .device_spec = specs[i], .n_ranks = 4};
        pl_plan *p;
        pl_err err;

        if (pl_plan_create(&p, m, &o, &err) != PL_OK)
            fail_msg("%s: %s", specs[i], err.message);
        hash = i ? hash : p->compiled->numeric_hash;
        assert_int_equal(p->compiled->numeric_hash, hash);
        pl_plan_free(p);
    }
    pl_model_free(m);
}
