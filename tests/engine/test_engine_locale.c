/* The host program's locale has no effect. Output under one that writes 1,5 or
 * has another small letter for I is that under C, and input is read alike. The
 * locales are made with localedef; without it or its sources the case is
 * skipped and names what it lacks. */
#include "device/device_spec.h"
#include "engine/engine.h"
#include "lib/engine_run.h"
#include "lib/scene_model.h"
#include "lib/support.h"
#include "program/program_text.h"
#include "report/writer.h"

#include <jansson.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A comma; a comma and Turkish letters; two bytes for the point. */
static const char *const names[] = {"de_DE", "tr_TR", "ps_AF"};
enum { N_NAME = sizeof names / sizeof names[0] };

/* Present only with the leak checker. The C library keeps the list of
 * directories in LOCPATH and leaks it when the next one is set. */
void __lsan_disable(void) __attribute__((weak));
void __lsan_enable(void) __attribute__((weak));

static void forgive_leaks(bool yes)
{
    if (yes && __lsan_disable)
        __lsan_disable();
    if (!yes && __lsan_enable)
        __lsan_enable();
}

/* Sets the process's locale, until setlocale(LC_ALL, "C"). The C library
 * remembers a locale that it did not find, so the locale is made before it is
 * first used. */
static bool enter(const char *name)
{
    const char *dir = test_temp("locales");
    char full[64], line[1024];
    bool there;

    /* an earlier case that failed may have left another locale */
    setlocale(LC_ALL, "C");
    snprintf(full, sizeof full, "%s.UTF-8", name);
    snprintf(line, sizeof line,
             "mkdir -p '%s' && { test -d '%s/%s' || "
             "localedef -i %s -f UTF-8 '%s/%s'; } >/dev/null 2>&1",
             dir, dir, full, name, dir, full);
    if (system(line) == 0)
        setenv("LOCPATH", dir, 1);
    else
        unsetenv("LOCPATH");
    forgive_leaks(true);
    there = setlocale(LC_ALL, full) != NULL;
    forgive_leaks(false);
    return there;
}

static const char *lacks(const char *text, const char *what)
{
    return strstr(text, what) ? NULL : what;
}

/* Skips if none of the locales can be made; names each that cannot. */
static void each(void (*under)(const char *name))
{
    char absent[128] = "";
    int n = 0;

    for (int i = 0; i < N_NAME; i++) {
        if (enter(names[i])) {
            under(names[i]);
            n++;
        } else {
            snprintf(absent + strlen(absent), sizeof absent - strlen(absent),
                     " %s.UTF-8", names[i]);
        }
        setlocale(LC_ALL, "C");
    }
    if (n == 0)
        TEST_SKIP("no locale%s, and localedef makes none", absent);
    if (absent[0])
        print_message("not tried: locale%s\n", absent);
}

static void note(struct test_text *t, pl_status s, const pl_err *err)
{
    const char *text = s == PL_OK ? "ok\n" : err->message;

    test_text_add(t, text, strlen(text));
}

/* ---- texts -------------------------------------------------------------- */

static const double shares[] = {1, 0.25, 0.5};
static const char machine[] = "gpu:1.5GiB:0.5TB/s:link=16.5GB/s:latency=1.5us:"
                              "flops=1.5T*3,host:2.5GiB:20.5GB/s";

static void say_plan(struct test_text *t, const char *path)
{
    const pl_options o = {.size = sizeof o,
                          .device_spec = machine,
                          .split_mode = PL_SPLIT_TENSOR,
                          .tensor_split = shares,
                          .n_tensor_split = 3,
                          .host_experts = "1"};
    pl_model *m = NULL;
    pl_plan *p = NULL;
    pl_graph *g = NULL;
    pl_err err;
    pl_status s = pl_model_open(&m, path, &err);
    char line[400];
    size_t from;

    if (s == PL_OK)
        s = pl_plan_create(&p, m, &o, &err);
    note(t, s, &err);
    if (s != PL_OK)
        goto done;
    note(t, pl_plan_print(p, false, test_text_add, t, &err), &err);
    note(t, pl_plan_print(p, true, test_text_add, t, &err), &err);
    note(t, pl_plan_svg(p, test_text_add, t, &err), &err);
    test_text_add(t, pl_plan_options(p), strlen(pl_plan_options(p)));
    pl_plan_summary(p, line, sizeof line);
    test_text_add(t, line, strlen(line));
    note(t,
         program_print(p->compiled->low->prog, p->compiled->list.n,
                       test_text_add, t, &err),
         &err);
    from = t->n;
    note(t, pl_graph_print(pl_plan_graph(p), test_text_add, t, &err), &err);
    t->s[t->n - strlen("ok\n")] = '\0';
    s = pl_graph_parse(&g, t->s + from, &err);
    t->s[t->n - strlen("ok\n")] = 'o';
    if (s == PL_OK)
        s = pl_graph_print(g, test_text_add, t, &err);
    note(t, s, &err);
done:
    pl_graph_free(g);
    pl_plan_free(p);
    pl_model_free(m);
}

/* Prints numbers that were read, as bits, and the messages of those that were
 * rejected. */
static void say_numbers(struct test_text *t)
{
    static const char *const specs[] = {
        machine, "gpu:1,5GiB:1TB/s", "gpu:1.5.5GiB:1TB/s", "gpu:1TB/s:0.5XB"};
    static const char program[] = "n_tok 1..1.5\n";
    pl_sampling bad;
    pl_sampler *sampler;
    struct arena a = {0};
    struct program *p;
    pl_graph *g;
    pl_err err;
    int n;

    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
        struct device_list l;

        note(t, device_parse_paper(&l, specs[i], &err), &err);
        for (int d = 0; d < l.n; d++)
            test_text_add(t, (const char *)&l.dev[d].link_latency_s,
                          sizeof(double));
        device_list_free(&l);
    }
    pl_sampling_init(&bad);
    bad.top_p = 1.5f;
    note(t, pl_sampler_create(&sampler, &bad, 10, &err), &err);
    note(t, program_parse(&p, &n, &a, program, strlen(program), &err), &err);
    arena_fini(&a);
    note(t,
         pl_graph_parse(&g,
                        "a: f32[4] = weight F32 NORM\n"
                        "b: f32[4] = scale(a) factor=0.125\n",
                        &err),
         &err);
    pl_graph_free(g);
}

static void say_json(struct test_text *t)
{
    const struct sink to = {test_text_add, t};
    struct json_out j = {.to = &to};

    json_put(&j, "{x:f}", 1.5);
}

static void say_all(struct test_text *t)
{
    const char *model = test_model();
    pl_err err;

    say_numbers(t);
    say_json(t);
    say_plan(t, model);
    note(t, pl_inspect(model, false, test_text_add, t, &err), &err);
    note(t, pl_inspect(model, true, test_text_add, t, &err), &err);
}

static void all_is_as_under_c(const char *name)
{
    struct test_text there = {0}, here = {0};

    say_all(&there);
    setlocale(LC_ALL, "C");
    say_all(&here);
    assert_null(lacks(here.s, "-ts 1,0.25,0.5"));
    for (size_t i = 0; i < here.n; i++) {
        size_t from = i < 40 ? 0 : i - 40;

        if (i >= there.n || here.s[i] != there.s[i])
            fail_msg("%s: \"%.80s\" instead of \"%.80s\"", name, there.s + from,
                     here.s + from);
    }
    assert_int_equal(there.n, here.n);
    free(there.s);
    free(here.s);
}

TEST(locale_does_not_show_in_what_is_printed_and_read)
{
    each(all_is_as_under_c);
}

/* ---- a trace ------------------------------------------------------------ */

static void trace_is_json(const char *name)
{
    const struct scene_model shape = {
        .n_layer = 2, .n_head = 4, .n_head_kv = 2, .d_ff = 32};
    const int32_t token[] = {1, 2, 3};
    pl_options o = engine_run_options();
    struct test_text t = {0};
    struct engine_run r;
    json_error_t e;
    json_t *all;

    o.trace = test_text_add;
    o.trace_user = &t;
    engine_run_open(&r, scene_model_write(&shape), "a model", &o);
    engine_run_decode(&r, 0, 3, token, NULL);
    engine_run_close(&r);
    setlocale(LC_ALL, "C");
    all = json_loads(t.s, 0, &e);
    if (!all)
        fail_msg("%s: line %d: %s", name, e.line, e.text);
    json_decref(all);
    free(t.s);
}

TEST(locale_does_not_show_in_a_trace)
{
    each(trace_is_json);
}

/* ---- the thread's own --------------------------------------------------- */

/* A thread keeps its locale, and its callbacks run with it. */
static void see_point(void *user, const char *text, size_t len)
{
    char s[8];

    (void)text;
    (void)len;
    snprintf(s, sizeof s, "%.1f", 1.5);
    *(bool *)user &= strcmp(s, "1,5") == 0;
}

TEST(locale_of_the_caller_stays)
{
    locale_t comma, before;
    bool comma_there = true;
    struct sink to = {see_point, &comma_there};

    if (!enter("de_DE"))
        TEST_SKIP("no locale de_DE.UTF-8, and localedef makes none");
    setlocale(LC_ALL, "C");
    forgive_leaks(true);
    comma = newlocale(LC_ALL_MASK, "de_DE.UTF-8", (locale_t)0);
    forgive_leaks(false);
    assert_true(comma != (locale_t)0);
    before = uselocale(comma);
    writer_printf(&to, "%.1f", 1.5);
    json_put(&(struct json_out){.to = &to}, "{x:f}", 1.5);
    see_point(&comma_there, "", 0);
    uselocale(before);
    freelocale(comma);
    assert_true(comma_there);
}
