/* The self-test: executes the cases (gpu_selftest_case.h) of a program's
 * kernels on the device and in plain C. The memory of a case is one image,
 * filled with random bytes except for data that must be valid. The whole image
 * is compared, so that a write outside the result is noticed. */
#include "device/gpu/gpu_selftest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/hash64.h"
#include "device/gpu/gpu_kernel_cache.h"
#include "device/gpu/gpu_selftest_case.h"
#include "device/gpu/gpu_text.h"

/* ---- comparison of results ----------------------------------------------- */

static bool is_nan(uint32_t x)
{
    return (x & 0x7fffffff) > 0x7f800000;
}

static bool inside(const struct selftest_case *t, size_t at)
{
    return at >= t->out && at < t->out + t->out_bytes;
}

/* Writes the names of a case's kernels to text[size], as in "delta_norm +
 * delta_net_64", and returns it. */
static const char *kernels(const struct selftest_case *t, char *text,
                           size_t size)
{
    size_t n = 0;

    for (int i = 0; i < t->list.n && n < size; i++) {
        enum gpu_kernel k = t->list.launch[i].kernel;
        int same = 0;

        while (same < i && t->list.launch[same].kernel != k)
            same++;
        if (same == i)
            n += (size_t)snprintf(text + n, size - n, "%s%s", n ? " + " : "",
                                  gpu_kernel_name(k));
    }
    return text;
}

static bool uses_matrix_units(const struct selftest_case *t)
{
    for (int i = 0; i < t->list.n; i++)
        if (gpu_kernel_is_for_matrix_units(t->list.launch[i].kernel))
            return true;
    return false;
}

static pl_status differs_at(const struct gpu_device *x,
                            const struct selftest_case *t, size_t at,
                            uint32_t have, uint32_t want, pl_err *err)
{
    bool in = inside(t, at);
    size_t word = in ? (at - t->out) / 4 : at / 4;
    const char *of = in ? trial_word(t, word) : NULL;
    const char *remedy = uses_matrix_units(t) ? x->driver->remedy : NULL;
    char name[160];

    return err_set(err, PL_DEVICE,
                   "%s fails its self test: kernel %s (%s) computes 0x%08x, "
                   "not 0x%08x (%s %zu); %s%sinstall another version of its "
                   "driver, leave it out of -dev, or accept results that "
                   "differ from those of other devices with --inexact",
                   x->dev->desc.name, kernels(t, name, sizeof name),
                   of ? of : t->what, (unsigned)have, (unsigned)want,
                   in ? "word" : "outside its result, word", word,
                   remedy ? remedy : "", remedy ? ", " : "");
}

/* Returns an error with the first word of the result that differs, else with
 * the first other word of the image, else PL_OK. Any two NaNs in a result of
 * floats count as equal. */
static pl_status compare(const struct gpu_device *x,
                         const struct selftest_case *t,
                         const unsigned char *have, pl_err *err)
{
    size_t from[] = {t->out, 0}, end[] = {t->out + t->out_bytes, t->n_kept};

    for (int k = 0; k < 2; k++)
        for (size_t i = from[k]; i + 4 <= end[k]; i += 4) {
            uint32_t a, b;

            memcpy(&a, have + i, 4);
            memcpy(&b, t->image + i, 4);
            if (a == b || (t->floats && inside(t, i) && is_nan(a) && is_nan(b)))
                continue;
            return differs_at(x, t, i, a, b, err);
        }
    return PL_OK;
}

/* ---- stored results ------------------------------------------------------ */

/* The key under which results are stored. It contains all that may affect
 * whether a case passes. */
struct passed_key {
    char what[16], identity[256];
    uint64_t text, trials;
};

/* The stored results of the self-test: by case, 1 if it has passed. Cases whose
 * kernels no program has used yet are 0. */
struct passed {
    unsigned char selftest_case[TRIAL_MOST];
};

static pl_status key_of(struct passed_key *key, struct gpu_device *x,
                        pl_err *err)
{
    memset(key, 0, sizeof *key);
    snprintf(key->what, sizeof key->what, "self test 3");
    key->text = gpu_text.hash;
    key->trials = trial_hash();
    return x->driver->identity ? x->driver->identity(x->gpu, key->identity,
                                                     sizeof key->identity, err)
                               : PL_OK;
}

static void load_passed(struct passed *p, const struct gpu_device *x,
                        const struct passed_key *key)
{
    size_t n;
    void *found =
        x->driver->identity ? gpu_cache_load(key, sizeof *key, &n) : NULL;

    memset(p, 0, sizeof *p);
    if (found && n == sizeof *p)
        memcpy(p, found, n);
    free(found);
}

/* ---- cases --------------------------------------------------------------- */

struct checking {
    struct gpu_device *gpu;
    /* by kernel: whether it must be tested, [GPU_KERNEL_COUNT] */
    const bool *want;
    const struct gpu_progress *progress;
    struct passed passed;
    bool tried[GPU_KERNEL_COUNT];
    int n_tried;
    bool differs;
};

/* Counts the kernels of a finished case that were not counted yet, and reports
 * progress. */
static void count_tried(struct checking *c, const struct selftest_case *t)
{
    for (int i = 0; i < t->list.n; i++) {
        bool *tried = &c->tried[t->list.launch[i].kernel];

        c->n_tried += !*tried;
        *tried = true;
    }
    gpu_tell(c->progress, c->n_tried);
}

static pl_status run_on(struct gpu_device *x, const struct selftest_case *t,
                        unsigned char *have, pl_err *err)
{
    enum queue q = QUEUE_COMPUTE;

    PL_TRY(x->driver->write(x->gpu, q, t->at, t->image, t->n_kept, err));
    for (int i = 0; i < t->list.n; i++)
        PL_TRY(x->driver->launch(x->gpu, q, t->list.launch[i].kernel,
                                 t->list.launch[i].n_group,
                                 t->list.bytes + t->list.launch[i].args, err));
    PL_TRY(x->driver->read(x->gpu, q, have, t->at, t->n_kept, err));
    return gpu_drain(x, q, err);
}

/* Executes case i on the device and in plain C, and compares the two images.
 * have[TRIAL_IMAGE] receives the device's image. */
static pl_status try_one(struct checking *c, struct selftest_case *t, int i,
                         unsigned char *have, pl_err *err)
{
    pl_status s;

    t->dry = false;
    trial_make(t, i);
    if (t->no_memory || t->full)
        return err_no_memory(err, "a self test");
    PL_TRY(run_on(c->gpu, t, have, err));
    t->reference(t);
    if (t->no_memory)
        return err_no_memory(err, "a self test");
    s = compare(c->gpu, t, have, err);
    c->differs = s != PL_OK;
    c->passed.selftest_case[i] = s == PL_OK;
    count_tried(c, t);
    return s;
}

/* Returns true if case i must be executed, that is, if it consists of wanted
 * kernels and has not passed yet. Sets *end to true if there is no case i, else
 * to false. Creates only the case's launches. */
static bool is_due(const struct checking *c, struct selftest_case *t, int i,
                   bool *end)
{
    t->dry = true;
    *end = i == TRIAL_MOST || !trial_make(t, i);
    return !*end && (t->no_memory ||
                     (!c->passed.selftest_case[i] && trial_takes(t, c->want)));
}

/* After a failure waits for copies in flight, because the caller frees their
 * memory next. Returns false if the GPU is lost; the memory must then never be
 * freed. */
static bool at_rest(struct gpu_device *x, pl_status s)
{
    if (!x->lost && s != PL_OK)
        x->driver->finish(x->gpu, QUEUE_COMPUTE, NULL);
    return !x->lost;
}

/* Executes all cases that must be executed, with the image at device address
 * `at`. The image read back from the device is stored after t.image. */
static pl_status try_all(struct checking *c, uint64_t at, pl_err *err)
{
    struct selftest_case t = {.image = malloc(2 * TRIAL_IMAGE),
                              .at = at,
                              .counts = c->gpu->driver->counts_groups};
    pl_status s = t.image ? PL_OK : err_no_memory(err, "a self test");

    for (int i = 0; s == PL_OK; i++) {
        bool end, due = is_due(c, &t, i, &end);

        if (end)
            break;
        s = err_cancelled(c->progress->cancel, err);
        if (s != PL_OK)
            break;
        if (due && t.no_memory)
            s = err_no_memory(err, "a self test");
        else if (due)
            s = try_one(c, &t, i, t.image + TRIAL_IMAGE, err);
    }
    trial_fini(&t);
    if (at_rest(c->gpu, s))
        free(t.image);
    return s;
}

static pl_status try_in_memory(struct checking *c, pl_err *err)
{
    struct gpu_device *x = c->gpu;
    uint64_t at = 0;
    pl_status s = x->driver->alloc(x->gpu, TRIAL_IMAGE, &at, err);

    if (s != PL_OK)
        return s;
    s = try_all(c, at, err);
    if (!x->lost)
        x->driver->release(x->gpu, at);
    return s;
}

/* ---- entry points -------------------------------------------------------- */

bool gpu_check_passed(struct gpu_device *x, const bool want[])
{
    struct checking c = {.gpu = x, .want = want};
    struct selftest_case t = {.image = malloc(TRIAL_IMAGE),
                              .counts = x->driver->counts_groups};
    struct passed_key key;
    bool end = !t.image || key_of(&key, x, NULL) != PL_OK, due = end;

    if (!end)
        load_passed(&c.passed, x, &key);
    for (int i = 0; !due && !end; i++)
        due = is_due(&c, &t, i, &end);
    trial_fini(&t);
    free(t.image);
    return !due;
}

pl_status gpu_check(struct gpu_device *x, const bool want[],
                    const struct gpu_progress *p, bool *differs, pl_err *err)
{
    struct checking c = {.gpu = x, .want = want, .progress = p};
    struct passed_key key;
    pl_status s;

    *differs = false;
    PL_TRY(key_of(&key, x, err));
    load_passed(&c.passed, x, &key);
    s = try_in_memory(&c, err);
    *differs = c.differs;
    /* if storing fails, the next process tests again */
    if (s == PL_OK && x->driver->identity)
        gpu_cache_save(&key, sizeof key, &c.passed, sizeof c.passed, NULL);
    return s;
}
