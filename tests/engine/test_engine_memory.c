/* Memory of devices: a plan's figures are what is allocated, device by device,
 * in every split mode; and a limited device never allocates more than it has.
 *
 * The linker's --wrap watches the allocator that devices call (topology_alloc).
 * Every device requests its regions and scratch in turn. */
#include "device/device_ops.h"
#include "lib/engine_run.h"

#include <stdio.h>
#include <string.h>

#include "engine/engine.h"
#include "lib/alloc_fail.h"

enum { PAGE = 4096, PARTS = REGION_COUNT + 1, MAX_DEV = 8 };

#define COUNT(a) ((int)(sizeof(a) / sizeof((a)[0])))

static const char *const model = "qwen3moe-q-q4_k_m.gguf";

static const struct {
    const char *devices;
    pl_split_mode mode;
    int hybrid_size;
} splits[] = {
    {"cpu", PL_SPLIT_NONE, 0},         {"cpu*3", PL_SPLIT_TENSOR, 0},
    {"sim*2", PL_SPLIT_TENSOR, 0},     {"sim*3", PL_SPLIT_LAYER, 0},
    {"cpu*2", PL_SPLIT_LAYER, 0},      {"sim*4", PL_SPLIT_HYBRID, 2},
    {"cpu,sim*2", PL_SPLIT_TENSOR, 0}, {"cpu,sim", PL_SPLIT_LAYER, 0},
};
static const struct {
    const char *experts, *layers, *override;
    bool cache;
} hosts[] = {
    {NULL, NULL, NULL, false}, {"all", NULL, NULL, false},
    {"1", NULL, NULL, true},   {NULL, "1", NULL, false},
    {NULL, "0", NULL, false},  {NULL, NULL, "ffn_down=host", true},
};

static pl_options options(int split, int host)
{
    pl_options o = engine_run_options();

    o.n_ranks = 4;
    o.no_fit = true;
    o.devices = splits[split].devices;
    o.split_mode = splits[split].mode;
    o.hybrid_size = splits[split].hybrid_size;
    o.host_experts = hosts[host].experts;
    o.device_layers = hosts[host].layers;
    o.host_cache = hosts[host].cache;
    o.overrides = hosts[host].override ? &hosts[host].override : NULL;
    o.n_overrides = hosts[host].override != NULL;
    o.offload = host % 2 ? PL_OFFLOAD_ON : PL_OFFLOAD_AUTO;
    return o;
}

/* Returns the planned bytes of part r of device d; r = REGION_COUNT:
 * scratch. */
static size_t planned(const struct compiled *p, int d, int r)
{
    return r < REGION_COUNT
               ? p->low->prog[d].bytes[r]
               : device_scratch_bytes(&p->list.dev[d], p->kernel_set,
                                      &p->low->prog[d]);
}

/* Reads the allocations of each device: first the flags and the inbox of each
 * in turn, then backend after backend, its devices in order. */
static void taken(const struct compiled *q, size_t *got)
{
    enum { SHARED = 2, OWN = PARTS - 1 };
    size_t raw[MAX_DEV * (SHARED + OWN)], *own = raw + q->list.n * SHARED;
    int n = q->list.n * (SHARED + OWN);

    assert_int_equal(alloc_device_bytes(raw, n), n);
    for (int k = 0; device_backends[k]; k++)
        for (int d = 0; d < q->list.n; d++) {
            if (q->list.dev[d].ops != device_backends[k])
                continue;
            memcpy(got + d * PARTS, own, REGION_INBOX * sizeof *own);
            got[d * PARTS + REGION_INBOX] = raw[d * SHARED + 1];
            got[d * PARTS + REGION_COUNT] = own[REGION_INBOX];
            own += OWN;
        }
}

TEST(memory_of_each_device_is_as_planned)
{
    pl_model *m;
    pl_err err = {0};
    int n = 0;

    TEST_OK(pl_model_open(&m, test_ref_need(model), &err), err);
    for (int i = 0; i < COUNT(splits) * COUNT(hosts); i++) {
        pl_options o = options(i / COUNT(hosts), i % COUNT(hosts));
        size_t got[MAX_DEV * PARTS];
        const struct compiled *q;
        pl_engine *e;
        pl_plan *p;

        TEST_OK(pl_plan_create(&p, m, &o, &err), err);
        q = p->compiled;
        assert_in_range(q->list.n, 1, MAX_DEV);
        alloc_stat_reset();
        TEST_OK(pl_engine_create(&e, m, &o, &err), err);
        taken(q, got);
        for (int k = 0; k < q->list.n * PARTS; k++, n++) {
            size_t want = planned(q, k / PARTS, k % PARTS);

            if (got[k] > want + PAGE || want > got[k] + PAGE)
                fail_msg("-dev %s, split mode %d, host %d, %s: part %d is %zu "
                         "bytes by the plan and %zu taken",
                         o.devices, (int)o.split_mode, i % COUNT(hosts),
                         q->list.dev[k / PARTS].name, k % PARTS, want, got[k]);
        }
        pl_engine_free(e);
        pl_plan_free(p);
    }
    pl_model_free(m);
    print_message("%d parts of memory are as planned\n", n);
}

/* With ever less memory a device either gets no more than it has, or there is
 * no engine. With exactly the planned size there is one. */
TEST(memory_limit_of_a_device_is_never_exceeded)
{
    pl_model *m;
    pl_err err = {0};
    int ran = 0, refused = 0;

    TEST_OK(pl_model_open(&m, test_ref_need(model), &err), err);
    for (int i = 0; i < 2 * 4 * 12; i++) {
        static const pl_split_mode modes[] = {PL_SPLIT_TENSOR, PL_SPLIT_LAYER,
                                              PL_SPLIT_NONE, PL_SPLIT_AUTO};
        int host = i / 12 % 4 == 1 ? 2 : 0;
        size_t limit = (size_t)(2000 - 170 * (i % 12)) << 10;
        size_t got[MAX_DEV * PARTS];
        pl_options o = options(0, host);
        const struct compiled *q;
        char devices[64];
        pl_engine *e;
        pl_status s;

        snprintf(devices, sizeof devices, "sim:%zuKiB*2", limit >> 10);
        o.devices = devices;
        o.split_mode = modes[i / 12 % 4];
        o.no_fit = i / 48;
        alloc_stat_reset();
        s = pl_engine_create(&e, m, &o, &err);
        if (s != PL_OK) {
            if (s != PL_NO_DEVICE_MEMORY)
                fail_msg("%s: %s", devices, err.message);
            assert_non_null(strstr(err.message, "sim"));
            refused++;
            continue;
        }
        ran++;
        q = pl_engine_plan(e)->compiled;
        taken(q, got);
        for (int d = 0; d < q->list.n; d++) {
            size_t sum = 0;

            for (int r = 0; r < PARTS; r++)
                sum += got[d * PARTS + r];
            if (q->list.dev[d].memory < 0 && sum > limit)
                fail_msg("%s: %s takes %zu bytes of %zu", devices,
                         q->list.dev[d].name, sum, limit);
        }
        pl_engine_free(e);
    }
    pl_model_free(m);
    print_message("%d engines within their limits, %d refused\n", ran, refused);
    assert_true(ran > 10 && refused > 5);
}
