/* The passes, in order: from the numeric plan to programs that can be loaded.
 *
 *   specialize  variants      the variants, and the steps that execute each
 *   place       numeric plan  the values that cross between groups
 *   transfer    transfers     how each crosses
 *   order       both          instructions of all devices, in one total order
 *   events      programs      which POSTs and WAITs remain, and where
 *   buffers     programs      the offset of each buffer
 *   messages    programs      what machines send each other; nothing changes
 *
 * `plait plan --dump` prints the result of each. "specialize", "transfer",
 * "events" and "buffers" read nothing but the structure that they change, and a
 * few flags of each device, so they run alone on a parsed text (variants.h,
 * transfers.h, program/program_text.h). compile.c calls "specialize", because
 * each variant's ops are placed before the other passes begin. */
#include "lower/lower_inner.h"

#include "base/err.h"
#include "lower/buffers.h"
#include "lower/events.h"
#include "program/program_messages.h"
#include "program/program_text.h"

#include <string.h>

/* Sets the flags of each device that passes read. */
static pl_status device_flags(struct lower *w, bool **one_queue, bool **private)
{
    size_t n = (size_t)w->opt->n_dev;

    *one_queue = arena_alloc(w->a, n, sizeof **one_queue);
    *private = arena_alloc(w->a, n, sizeof **private);
    PL_TRY(lower_memory(w));
    for (size_t d = 0; d < n; d++) {
        (*one_queue)[d] = w->opt->dev[d].one_queue;
        (*private)[d] = w->opt->dev[d].memory < 0;
    }
    return PL_OK;
}

static pl_status transfer(struct lower *w)
{
    const struct transfers *given = w->opt->transfers;

    if (!given)
        return transfers_choose(w->transfers, w->a, w->err);
    if (given->n_value != w->num->n || given->n_group != w->opt->n_group ||
        given->n_variant != w->opt->n_variant)
        return err_set(w->err, PL_BAD_ARGUMENT,
                       "the list of transfers has %d values, %d groups and %d "
                       "variants; use one of this plan, which has %d, %d and "
                       "%d",
                       given->n_value, given->n_group, given->n_variant,
                       w->num->n, w->opt->n_group, w->opt->n_variant);
    w->transfers->variant = given->variant;
    for (int g = 0; g < given->n_group; g++) {
        struct transfer_group *x = &w->transfers->group[g];
        const struct transfer_group *y = &given->group[g];

        if (y->exchange == EXCHANGE_MACHINE &&
            !lower_are_subtrees(w, lower_group(w, g), y->per_machine))
            return err_set(w->err, PL_BAD_ARGUMENT,
                           "group %d of the list of transfers exchanges by "
                           "machine, but its ranks are no subtrees of %d "
                           "devices each; use the exchange inbox",
                           g, y->per_machine);
        x->per_machine = y->per_machine;
        x->exchange = y->exchange;
        x->one_shot_rows = y->one_shot_rows;
    }
    return PL_OK;
}

/* Emits the instructions of all variants in one total order. Tensors lie in
 * buffers that have no offsets yet. Each value that is waited for has a POST of
 * its own. */
static pl_status order(struct lower *w)
{
    for (int k = 0; k < w->opt->n_variant; k++)
        PL_TRY(lower_variant(w, k));
    lower_build_programs(w);
    return PL_OK;
}

static pl_status events(struct lower *w)
{
    bool *one_queue, *private;

    PL_TRY(device_flags(w, &one_queue, &private));
    return events_pass(w->out->prog, w->opt->n_dev, one_queue, w->a, w->err);
}

static pl_status buffers(struct lower *w)
{
    bool *one_queue, *private;

    PL_TRY(device_flags(w, &one_queue, &private));
    return buffers_pass(w->out->prog, w->opt->n_dev, private, w->a, w->err);
}

static pl_status print_transfers(const struct lower *w,
                                 const struct lower_dump *dump)
{
    return transfers_print(w->transfers, dump->write, dump->user);
}

static pl_status print_programs(const struct lower *w,
                                const struct lower_dump *dump)
{
    return program_print(w->out->prog, w->opt->n_dev, dump->write, dump->user,
                         w->err);
}

static pl_status nothing(struct lower *w)
{
    (void)w;
    return PL_OK;
}

static pl_status print_messages(const struct lower *w,
                                const struct lower_dump *dump)
{
    struct text_out o = {.write = dump->write, .user = dump->user};
    int *machine = arena_alloc(w->a, (size_t)w->opt->n_dev, sizeof *machine);
    struct messages m;

    PL_TRY(lower_memory(w));
    for (int d = 0; d < w->opt->n_dev; d++)
        machine[d] = w->opt->dev[d].machine;
    for (int v = 0; v < w->opt->n_variant; v++) {
        PL_TRY(messages_create(&m, w->out->prog, w->opt->n_dev, machine, v,
                               w->a, w->err));
        messages_print(&m, &o);
    }
    text_flush(&o);
    return PL_OK;
}

static const struct {
    const char *name;
    pl_status (*run)(struct lower *w);
    /* prints what the pass makes */
    pl_status (*print)(const struct lower *w, const struct lower_dump *dump);
} passes[] = {
    {"place", lower_place, print_transfers},
    {"transfer", transfer, print_transfers},
    {"order", order, print_programs},
    {"events", events, print_programs},
    {"buffers", buffers, print_programs},
    {"messages", nothing, print_messages},
};

enum { N_PASS = sizeof passes / sizeof passes[0] };

pl_status lower_dump_check(const struct lower_dump *dump, pl_err *err)
{
    if (!strcmp(dump->pass, "specialize"))
        return PL_OK;
    for (int i = 0; i < N_PASS; i++)
        if (!strcmp(dump->pass, passes[i].name))
            return PL_OK;
    return err_set(err, PL_BAD_ARGUMENT,
                   "there is no pass '%s'; passes are specialize, place, "
                   "transfer, order, events, buffers and messages",
                   dump->pass);
}

pl_status lower_passes(struct lower *w)
{
    const struct lower_dump *dump = w->opt->dump;

    for (int i = 0; i < N_PASS; i++) {
        PL_TRY(passes[i].run(w));
        if (dump && !strcmp(dump->pass, passes[i].name))
            PL_TRY(passes[i].print(w, dump));
    }
    return PL_OK;
}
