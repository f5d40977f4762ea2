/* Planning takes few plans. The machine is inspected once and overrides are
 * read once, however many plans there are. */
#include <math.h>
#include <string.h>

#include "fit/fit.h"
#include "lib/hollow_model.h"
#include "lib/support.h"
#include "machine/topology.h"
#include "plan/override.h"

/* Numbers of plans, of topologies and of lists of overrides that this thread
 * has made or read. */
static _Thread_local struct effort {
    int plans, topologies, overrides;
} effort;

pl_status __real_compile_config(struct compiled **out,
                                const struct plan_config *in, pl_err *err);
pl_status __wrap_compile_config(struct compiled **out,
                                const struct plan_config *in, pl_err *err);
pl_status __real_topology_open(const struct topology **out, pl_err *err);
pl_status __wrap_topology_open(const struct topology **out, pl_err *err);
pl_status __real_override_read(struct plan_config *in, struct arena *a,
                               const pl_graph *also, const pl_options *opt,
                               struct notes *notes, pl_err *err);
pl_status __wrap_override_read(struct plan_config *in, struct arena *a,
                               const pl_graph *also, const pl_options *opt,
                               struct notes *notes, pl_err *err);

pl_status __wrap_compile_config(struct compiled **out,
                                const struct plan_config *in, pl_err *err)
{
    effort.plans++;
    return __real_compile_config(out, in, err);
}

pl_status __wrap_topology_open(const struct topology **out, pl_err *err)
{
    effort.topologies++;
    return __real_topology_open(out, err);
}

pl_status __wrap_override_read(struct plan_config *in, struct arena *a,
                               const pl_graph *also, const pl_options *opt,
                               struct notes *notes, pl_err *err)
{
    effort.overrides++;
    return __real_override_read(in, a, also, opt, notes, err);
}

static const char *const ffn_up[] = {"ffn_up=host"};

static struct effort plan(pl_options opt)
{
    pl_model *m;
    pl_plan *p;
    pl_err err;

    opt.size = sizeof opt;
    TEST_OK(pl_model_open(&m, test_model(), &err), err);
    effort = (struct effort){0};
    TEST_OK(pl_plan_create(&p, m, &opt, &err), err);
    pl_plan_free(p);
    pl_model_free(m);
    return effort;
}

TEST(effort_of_stated_options_is_one_plan)
{
    static const pl_options rows[] = {
        {.devices = "cpu*2", .split_mode = PL_SPLIT_TENSOR},
        {.devices = "cpu*2",
         .split_mode = PL_SPLIT_TENSOR,
         .overrides = ffn_up,
         .n_overrides = 1},
        {.devices = "sim*2", .split_mode = PL_SPLIT_LAYER, .host_cache = true},
        {.device_spec = "gpu:1GiB:1TB/s*3", .split_mode = PL_SPLIT_TENSOR},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct effort e = plan(rows[i]);

        assert_int_equal(e.plans, 1);
        assert_int_equal(e.topologies, rows[i].devices != NULL);
        assert_int_equal(e.overrides, 1);
    }
}

/* All weights fit on the devices, except in the last two rows, where memory is
 * short. */
TEST(effort_of_open_options_is_small)
{
    static const struct {
        pl_options o;
        int most;
    } rows[] = {
        {{.devices = "cpu*2"}, 12},
        {{.devices = "cpu*2", .overrides = ffn_up, .n_overrides = 1}, 12},
        {{.devices = "cpu*4"}, 12},
        {{.devices = "sim*3,cpu"}, 12},
        {{.device_spec = "gpu:1GiB:1TB/s*8"}, 12},
        {{.device_spec = "gpu:1GiB:1TB/s,gpu:2GiB:2TB/s"}, 12},
        {{.device_spec = "gpu:1GiB:1TB/s*4,gpu:2GiB:2TB/s*2"}, 12},
        {{.device_spec = "gpu:8MiB:1TB/s,host:1GiB:50GB/s"}, 12},
        {{.device_spec = "gpu:5MiB:1TB/s*2,host:1GiB:50GB/s"}, 20},
        {{.device_spec = "gpu:4MiB:1TB/s,gpu:3MiB:1TB/s,host:1GiB:50GB/s"}, 20},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const pl_options *o = &rows[i].o;
        struct effort e = plan(*o);

        print_message("%s: %d plans\n",
                      o->devices ? o->devices : o->device_spec, e.plans);
        assert_in_range(e.plans, 1, rows[i].most);
        assert_int_equal(e.topologies, o->devices != NULL);
        assert_int_equal(e.overrides, 1);
    }
}
