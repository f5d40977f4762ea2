/* Checks of pl_options. Fields of the same type are rows of one table. */
#include "plan/options_read.h"

#include "base/err.h"
#include "base/sized.h"
#include "quant/format.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

struct field {
    const char *name;
    size_t at;
};

#define FIELD(name)                                                            \
    {                                                                          \
#name, offsetof(pl_options, name)                                      \
    }
static const struct field ints[] = {
    FIELD(n_ranks),      FIELD(n_tensor_split), FIELD(n_threads),
    FIELD(hybrid_size),  FIELD(main_device),    FIELD(n_overrides),
    FIELD(n_seq),        FIELD(n_keep),         FIELD(n_checkpoint),
    FIELD(n_rank_split), FIELD(mtp_texts),
};
static const struct field wide_ints[] = {
    FIELD(fit_ctx), FIELD(n_ctx), FIELD(n_ubatch), FIELD(n_out), FIELD(mtp),
};
#undef FIELD

enum { N_INT = sizeof ints / sizeof ints[0] };
enum { N_WIDE = sizeof wide_ints / sizeof wide_ints[0] };

static pl_status check_counts(const pl_options *opt, pl_err *err)
{
    for (int i = 0; i < N_INT + N_WIDE; i++) {
        const struct field *f = i < N_INT ? &ints[i] : &wide_ints[i - N_INT];
        const char *at = (const char *)opt + f->at;
        int64_t v;
        int n;

        if (i < N_INT) {
            memcpy(&n, at, sizeof n);
            v = n;
        } else {
            memcpy(&v, at, sizeof v);
        }
        /* of hybrid_size -1 is a value of its own */
        if (v < (f->at == offsetof(pl_options, hybrid_size) ? -1 : 0))
            return err_set(err, PL_BAD_ARGUMENT,
                           "options: %s is %" PRId64
                           "; give 0 for the default, or more",
                           f->name, v);
    }
    return PL_OK;
}

static pl_status no_array(const char *name, int n, pl_err *err)
{
    return err_set(
        err, PL_BAD_ARGUMENT,
        "options: n_%s is %d but %s is NULL; set it, or the count to 0", name,
        n, name);
}

static pl_status check_strings(const char *name, int n, const char *const *s,
                               pl_err *err)
{
    if (n > 0 && !s)
        return no_array(name, n, err);
    for (int i = 0; i < n; i++)
        if (!s[i])
            return err_set(err, PL_BAD_ARGUMENT,
                           "options: %s[%d] is NULL; give a string, or a "
                           "smaller n_%s",
                           name, i, name);
    return PL_OK;
}

static pl_status check_enums(const pl_options *opt, pl_err *err)
{
    const struct {
        const char *name;
        int v, last;
    } enums[] = {
        {"split_mode", (int)opt->split_mode, PL_SPLIT_HYBRID},
        {"offload", (int)opt->offload, PL_OFFLOAD_OFF},
        {"numerics", (int)opt->numerics, PL_NUMERICS_FAST},
    };
    const struct {
        const char *name;
        pl_format f;
    } formats[] = {{"cache_k", opt->cache_k}, {"cache_v", opt->cache_v}};

    for (size_t i = 0; i < sizeof enums / sizeof enums[0]; i++)
        if (enums[i].v < 0 || enums[i].v > enums[i].last)
            return err_set(err, PL_BAD_ARGUMENT,
                           "options: %s is %d, not in 0 .. %d", enums[i].name,
                           enums[i].v, enums[i].last);
    for (size_t i = 0; opt->cache_set && i < 2; i++) {
        char names[FORMAT_NAMES];

        if (!format_is_cache(formats[i].f))
            return err_set(err, PL_BAD_ARGUMENT,
                           "options: %s is format %d; a cache may be %s",
                           formats[i].name, (int)formats[i].f,
                           format_cache_names(names));
    }
    return PL_OK;
}

static pl_status check(const pl_options *opt, pl_err *err)
{
    PL_TRY(check_counts(opt, err));
    if (opt->n_tensor_split > 0 && !opt->tensor_split)
        return no_array("tensor_split", opt->n_tensor_split, err);
    if (opt->n_rank_split > 0 && !opt->rank_split)
        return no_array("rank_split", opt->n_rank_split, err);
    PL_TRY(check_strings("overrides", opt->n_overrides, opt->overrides, err));
    PL_TRY(check_strings("keep", opt->n_keep, opt->keep, err));
    return check_enums(opt, err);
}

pl_status options_read(pl_options *own, const pl_options *given, pl_err *err)
{
    *own = (pl_options){.size = sizeof *own};
    if (!given)
        return PL_OK;
    PL_TRY(sized_read(own, sizeof *own, given, "pl_options",
                      "call pl_options_init", err));
    return check(own, err);
}
