/* The text form of programs: printed programs parse into the same programs, and
 * omitted parts are filled in. test_program_parse.c has invalid texts;
 * test_exec_placement.c parses programs of random graphs under random
 * placements. */
#include "program/program_text.h"

#include "engine/engine.h"
#include "lib/hollow_model.h"
#include "lib/place_model.h"
#include "lib/program_build.h"
#include "lib/program_same.h"
#include "lib/support.h"
#include "lower/buffers.h"
#include "lower/compile.h"
#include "lower/events.h"
#include "program/program_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct program *parse(struct arena *a, const char *text, int n_dev)
{
    struct program *p;
    pl_err err;
    int n;

    TEST_OK(program_parse(&p, &n, a, text, strlen(text), &err), err);
    assert_int_equal(n, n_dev);
    return p;
}

/* Fails the case unless the text `loose` parses and its programs print as
 * `strict`. */
static void reads_as(const char *loose, const char *strict, int n_dev)
{
    struct test_text t = {0};
    struct arena a = {0};
    struct program *p = parse(&a, loose, n_dev);

    assert_int_equal(program_print(p, n_dev, test_text_add, &t, NULL), PL_OK);
    assert_string_equal(t.s, strict);
    program_reads_back(p, n_dev);
    free(t.s);
    arena_fini(&a);
}

/* Returns the text of a seed file of the fuzzer, which the caller frees. */
static char *seed_text(const char *name)
{
    char path[64];
    const char *found;
    size_t n;

    snprintf(path, sizeof path, "fuzz/corpus/program/%s", name);
    found = test_file(path);
    assert_non_null(found);
    return test_read(found, &n);
}

/* ---- the form ------------------------------------------------------------ */

TEST(program_text_every_kind_reads_and_prints_the_same)
{
    char *strict = seed_text("every_kind.txt"), *loose = seed_text("loose.txt");
    /* the text after the first line, a comment */
    const char *text = strchr(strict, '\n') + 1;
    bool kind[INSN_WAIT + 1] = {false}, kernel[KERNEL_COUNT] = {false};
    struct arena a = {0};
    struct program *p = parse(&a, strict, 3);

    reads_as(strict, text, 3);
    reads_as(loose, text, 3);
    for (int d = 0; d < 3; d++)
        for (int k = 0; k < p[d].n_variant; k++)
            for (int i = 0; i < p[d].variant[k].n_insn; i++) {
                const struct insn *s = &p[d].variant[k].insn[i];

                kind[s->kind] = true;
                if (s->kind == INSN_KERNEL)
                    kernel[s->kernel.kernel] = true;
            }
    for (int k = 0; k <= INSN_WAIT; k++)
        assert_true(kind[k]);
    for (int k = 0; k < KERNEL_COUNT; k++)
        if (!kernel[k] && k != KERNEL_custom)
            fail_msg("the text lacks %s", kernel_name((enum kernel)k));
    arena_fini(&a);
    free(strict);
    free(loose);
}

/* One digit of the text after another is changed: the text differs if and only
 * if the programs do. */
TEST(program_text_other_programs_have_another_text)
{
    char *s = seed_text("every_kind.txt"), *text = strchr(s, '\n') + 1;
    struct arena a = {0};
    struct program *p = parse(&a, text, 3);
    int n_other = 0;

    for (char *c = text; *c; c++) {
        struct test_text t = {0};
        struct arena b = {0};
        struct program *q;
        char was = *c;
        int n;

        if (was < '0' || was > '9')
            continue;
        *c = was == '9' ? '1' : (char)(was + 1);
        if (program_parse(&q, &n, &b, text, strlen(text), NULL) == PL_OK &&
            n == 3) {
            const char *what = program_difference(p, q, 3);

            *c = was;
            assert_int_equal(program_print(q, 3, test_text_add, &t, NULL),
                             PL_OK);
            if ((what != NULL) != (strcmp(t.s, text) != 0))
                fail_msg("%s, and yet the text is\n%s",
                         what ? what : "nothing differs", t.s);
            n_other += what != NULL;
        }
        *c = was;
        free(t.s);
        arena_fini(&b);
    }
    assert_in_range(n_other, 400, 2000);
    arena_fini(&a);
    free(s);
}

TEST(program_text_left_out_is_filled_in)
{
    char *small = seed_text("small.txt");

    reads_as("programs 1\n"
             "device 0\n"
             "variant\n",
             "programs 1\n"
             "max n_tok 0\n"
             "device 0 weights 0 cache 0 work 0 inbox 0 events 0 groups 0\n"
             "variant\n",
             1);
    reads_as(
        small, /* the example in program_text.h */
        "programs 2\n"
        "max n_tok 4 n_out 4\n"
        "device 0 weights 2304 cache 0 work 512 inbox 64 events 3 groups 1\n"
        "  %0: f32[n_tok, 8] work @0\n"
        "  %1: f32[n_tok, 8] work @128 micro 1 bytes 256\n"
        "  %2: q8_0[64, 32] weights @0 packed\n"
        "  %3: f32[8] inbox @0\n"
        "device 1 weights 0 cache 0 work 128 inbox 0 events 0 groups 1\n"
        "  %0: f32[n_tok, 8] work @0\n"
        "variant micro 2\n"
        "  0 node 7: %1 = scale(%0) scale=2\n"
        "  0: post 0\n"
        "  0: dies 128 @0, 256 @128\n"
        "  1 copy: wait 0.0\n"
        "  1 copy: pull %0 <- 0.%1@32 32*n_tok to 64\n"
        "  1 copy if n_tok 2..: push 0.%3 <- %0 32\n"
        "  0: merge barrier 0, 1 collective;\n"
        "      %0 <- sum(%0, 1.%0+) 16 x n_tok(32, 32)\n"
        "  1: merge barrier 0, 1 collective;\n"
        "      %0 <- sum(0.%0, %0+) 16 x n_tok(32, 32)\n",
        2);
    free(small);
    reads_as(
        "programs 2\n"
        "max n_tok 3\n"
        "device 0 work 4096\n"
        "  %0: f32[n_tok, 5]\n"
        "  %1: f32[n_tok, 64] q8\n"
        "  %2: q8_0[4, 17, 64] weights packed\n"
        "  %3: f16[33] cache @128\n"
        "  %4: f32[n_tok, 5]\n"
        "device 1\n"
        "variant\n"
        "  0: %4 = scale(%0)\n"
        "  0, 1 node 2: post 5\n"
        "  0: dies %0, 128 @64\n"
        "  0, 1: merge barrier group 3\n"
        "  1: wait 0.5\n"
        "variant\n"
        "  1: post 7\n",
        "programs 2\n"
        "max n_tok 3\n"
        "device 0 weights 8704 cache 256 work 4096 inbox 0 events 6 groups 4\n"
        "  %0: f32[n_tok, 5] work @0\n"
        "  %1: f32[n_tok, 64] work @64 q8\n"
        "  %2: q8_0[4, 17, 64] weights @0 packed\n"
        "  %3: f16[33] cache @128\n"
        "  %4: f32[n_tok, 5] work @320\n"
        "device 1 weights 0 cache 0 work 0 inbox 0 events 8 groups 4\n"
        "variant\n"
        "  0: %4 = scale(%0)\n"
        "  0 node 2: post 5\n"
        "  0: dies 60 @0, 128 @64\n"
        "  1 node 2: post 5\n"
        "  0: merge barrier 0, 1 group 3\n"
        "  1: merge barrier 0, 1 group 3\n"
        "  1: wait 0.5\n"
        "variant\n"
        "  1: post 7\n",
        2);
}

/* Indices in the order: one an instruction, one a barrier, those that are
 * stated. */
TEST(program_text_order_is_that_of_lines)
{
    static const int want[2][6] = {{0, 2, 9, 11, 12, 15},
                                   {1, 2, 10, 13, 14, 15}};
    struct arena a = {0};
    struct program *p = parse(&a,
                              "programs 2\n"
                              "device 0\n"
                              "device 1\n"
                              "variant\n"
                              "  0, 1: post 0\n"
                              "  0: merge barrier 0, 1\n"
                              "  0: dies 0 @0\n"
                              "  1: merge barrier 0, 1\n"
                              "  0, 1 order 9: post 1\n"
                              "  0: merge barrier 0, 1\n"
                              "  0: merge barrier 0, 1\n"
                              "  1: merge barrier 0, 1 group 1\n"
                              "  1: post 2\n"
                              "  1, 0: merge barrier\n",
                              2);

    for (int d = 0; d < 2; d++) {
        assert_int_equal(p[d].variant->n_insn, 6);
        for (int i = 0; i < 6; i++)
            assert_int_equal(p[d].variant->insn[i].order, want[d][i]);
    }
    program_reads_back(p, 2);
    arena_fini(&a);
}

/* Devices that share a line of text each read their own data. */
TEST(program_text_devices_of_a_line_are_each_their_own)
{
    struct arena a = {0};
    struct program *p = parse(
        &a,
        "programs 3\ndevice 0\ndevice 1\ndevice 2\nvariant\n"
        "  0, 2: merge barrier collective counted; %0 <- %1 4, 1.%2 4 to 4\n",
        3);
    const struct insn_merge *m[2] = {&p[0].variant->insn->merge,
                                     &p[2].variant->insn->merge};

    for (int i = 0; i < 2; i++) {
        assert_int_equal(m[i]->item->piece[0].src_dev, 2 * i);
        assert_int_equal(m[i]->item->piece[1].src_dev, 1);
        assert_int_equal(m[i]->n_peer, 2);
        assert_int_equal(m[i]->peer[1], 2);
        assert_int_equal(m[i]->counted, i == 0);
    }
    arena_fini(&a);
}

/* ---- rules --------------------------------------------------------------- */

TEST(program_text_read_by_hand_passes_the_check)
{
    char *text = seed_text("valid.txt");
    struct arena a = {0};
    struct program *p = parse(&a, text, 2);

    for (int memory = -1; memory < 1; memory++) {
        const struct program_device dev[2] = {
            {"a", "test", memory, true, false, 0},
            {"b", "test", memory, true, false, 0}};
        const struct program_machine m = build_machine(dev, 2);
        pl_err err;

        TEST_OK(program_check(&m, p, &err), err);
    }
    arena_fini(&a);
    free(text);
}

/* ---- programs of plans --------------------------------------------------- */

/* Cases that the programs of all plans together must contain. */
struct seen {
    int kind[INSN_WAIT + 1], meet, sum, tree, span, head, q8, pack, cut;
    int death, copy_queue, micro, script, inbox, skip, few, many;
    int deal, to_several, at, for_several;
};

static void see_insn(struct seen *o, const struct insn *s)
{
    o->kind[s->kind]++;
    o->copy_queue += s->queue == QUEUE_COPY;
    o->micro += s->micro > 0;
    o->meet += insn_is_barrier(s);
    o->few += s->max_rows > 0 && s->max_rows < INT64_MAX;
    o->many += s->max_rows > 0 && s->min_rows > 0;
    if (s->kind == INSN_KERNEL) {
        o->tree += s->kernel.tree.n > 1;
        o->span += s->kernel.n_span > 0;
        o->head += s->kernel.head_map != NULL;
    }
    o->for_several += s->kind == INSN_WAIT && s->wait.n_more > 0;
    if (s->kind == INSN_PUSH) {
        o->deal += s->push.scatter;
        o->to_several += s->push.n_to > 1 && !s->push.scatter;
        o->at += s->push.to->at > 0;
    }
    for (int i = 0; s->kind == INSN_MERGE && i < s->merge.n_item; i++) {
        const struct merge_item *m = &s->merge.item[i];

        o->sum += m->reduce;
        for (int k = 0; k < m->n_addend; k++)
            o->skip += m->addend[k].skip.n > 0;
    }
}

static void see(struct seen *o, const struct program *p, int n_dev)
{
    for (int d = 0; d < n_dev; d++) {
        for (int i = 0; i < p[d].n_tensor; i++) {
            o->q8 += p[d].tensor[i].q8;
            o->inbox += p[d].tensor[i].region == REGION_INBOX;
            o->pack += p[d].tensor[i].pack != NULL;
            o->cut += p[d].tensor[i].pack &&
                      p[d].tensor[i].pack->k < p[d].tensor[i].pack->n_full;
        }
        o->script += p[d].n_variant > 2;
        for (int k = 0; k < p[d].n_variant; k++) {
            o->death += p[d].variant[k].n_dead;
            for (int i = 0; i < p[d].variant[k].n_insn; i++)
                see_insn(o, &p[d].variant[k].insn[i]);
        }
    }
}

static const pl_options scripts[] = {
    {.devices = "cpu"},
    {.devices = "cpu*2"},
    {.devices = "sim*3", .n_ranks = 8},
    {.devices = "cpu*2,sim", .split_mode = PL_SPLIT_LAYER},
    {.devices = "sim*4", .split_mode = PL_SPLIT_HYBRID, .hybrid_size = 2},
    {.devices = "sim*2", .device_layers = "2"},
    {.devices = "sim*2", .host_experts = "all"},
    {.devices = "sim*2", .host_experts = "2", .host_cache = true},
    {.devices = "cpu*2", .host_experts = "1", .n_ranks = 4},
    {.devices = "cpu*2", .cpu = "reference", .n_ranks = 3},
    {.devices = "sim*2", .split_mode = PL_SPLIT_LAYER, .host_experts = "all"},
    {.device_spec = "gpu:4GiB:1TB/s*5"},
};

static char *dump(const struct compiled *p, const char *pass)
{
    struct test_text t = {0};
    const struct lower_dump d = {pass, test_text_add, &t};
    pl_err err;

    TEST_OK(compiled_dump(p, &d, &err), err);
    return t.s;
}

/* Fails the case unless the programs print as the pass leaves them. */
static void must_print(const struct program *p, int n_dev,
                       const struct compiled *of, const char *pass)
{
    struct test_text t = {0};
    char *want = dump(of, pass);
    pl_err err;

    TEST_OK(program_print(p, n_dev, test_text_add, &t, &err), err);
    if (strcmp(t.s, want))
        fail_msg("\"%s\" alone gives\n%s\nnot\n%s", pass, t.s, want);
    free(t.s);
    free(want);
}

/* Each pass, run on the text of what it reads, gives the text of what it
 * leaves. */
static void passes_run_alone(const struct compiled *p)
{
    char *text = dump(p, "order");
    struct arena a = {0};
    struct program *q = parse(&a, text, p->low->n_dev);
    bool one_queue[16], private[16];
    pl_err err;

    program_reads_back(q, p->low->n_dev);
    for (int d = 0; d < p->low->n_dev; d++) {
        one_queue[d] = p->lowering.dev[d].one_queue;
        private[d] = p->lowering.dev[d].memory < 0;
    }
    TEST_OK(events_pass(q, p->low->n_dev, one_queue, &a, &err), err);
    must_print(q, p->low->n_dev, p, "events");
    program_reads_back(q, p->low->n_dev);
    TEST_OK(buffers_pass(q, p->low->n_dev, private, &a, &err), err);
    must_print(q, p->low->n_dev, p, "buffers");
    must_print(p->low->prog, p->low->n_dev, p, "buffers");
    free(text);
    arena_fini(&a);
}

TEST(program_text_lowered_programs_read_back)
{
    struct seen o = {.meet = 0};

    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++) {
        pl_graph *g = place_model(4);
        pl_options opt = scripts[i];
        struct compiled *p;
        pl_err err;

        opt.no_fit = opt.no_pin = true;
        opt.n_ubatch = 16;
        opt.n_threads = 1;
        opt.n_ctx = 256;
        assert_non_null(g);
        if (compile_graph(&p, g, &opt, &err) != PL_OK)
            fail_msg("%zu: %s", i, err.message);
        see(&o, p->low->prog, p->low->n_dev);
        program_reads_back(p->low->prog, p->low->n_dev);
        passes_run_alone(p);
        compiled_free(p);
        pl_graph_free(g);
    }
    for (int k = 0; k <= INSN_WAIT; k++)
        if (!o.kind[k])
            fail_msg("no step of kind %d", k);
    assert_true(o.meet && o.sum && o.tree && o.span && o.head && o.q8);
    assert_true(o.pack && o.cut && o.death && o.copy_queue && o.micro);
    assert_true(o.script && o.inbox && o.skip && o.few && o.many);
    assert_true(o.deal && o.to_several && o.at && o.for_several);
}

static void models_read_back(const char *path)
{
    pl_model *m;
    pl_err err;

    TEST_OK(pl_model_open(&m, path, &err), err);
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++) {
        pl_options opt = scripts[i];
        pl_plan *p;

        opt.size = sizeof opt;
        opt.no_fit = opt.no_pin = true;
        opt.n_threads = 1;
        if (pl_plan_create(&p, m, &opt, &err) != PL_OK)
            fail_msg("%zu: %s", i, err.message);
        program_reads_back(p->compiled->low->prog, p->compiled->low->n_dev);
        pl_plan_free(p);
    }
    pl_model_free(m);
}

TEST(program_text_models_read_back)
{
    /* a model with K-quants, whose matrices are cut inside blocks of 256 */
    struct hollow_model h = hollow_400b;
    pl_err err;

    models_read_back(test_model());
    h.n_layer = 3;
    h.n_vocab = 1024;
    TEST_OK(hollow_model_write(test_temp("hollow.gguf"), &h, &err), err);
    models_read_back(test_temp("hollow.gguf"));
}

/* ---- packings ------------------------------------------------------------ */

/* Draws ascending spans, some of which touch, some of one rank. */
static int draw_spans(struct pack_span *s, int most, int grain, uint64_t *seed)
{
    int n = (int)test_below(seed, most + 1);
    int64_t k = 0;

    for (int i = 0; i < n; i++) {
        k += test_below(seed, 2) ? test_below(seed, 9) * grain : 0;
        s[i] = (struct pack_span){k, (1 + test_below(seed, 20)) * grain,
                                  (int32_t)test_below(seed, 3)};
        k += s[i].n;
    }
    return n;
}

/* Spans merge if that gives the same chunks, and only then. */
TEST(program_text_packings_read_back_chunk_by_chunk)
{
    uint64_t seed = test_seed();
    struct pack_span span[8];
    struct pack_chunk chunk[256];
    struct variant none = {.n_micro = 1};

    for (int i = 0; i < 3000; i++) {
        pl_format f = (pl_format)test_below(&seed, PL_I32);
        int grain = format_info(f)->pack->tile_values;
        int n = draw_spans(span, 8, grain, &seed);
        struct pack pack;
        struct prog_tensor t = {.format = f, .n_dim = 2, .pack = &pack};
        struct program p = {.active = true,
                            .n_tensor = 1,
                            .tensor = &t,
                            .n_variant = 1,
                            .variant = &none};

        assert_in_range(pack_max_chunks(f, span, n), 0, 256);
        pack_init(&pack, f, test_below(&seed, 40), test_below(&seed, 9000),
                  span, n, chunk);
        t.dim[0].n = pack.n_row + test_below(&seed, 2);
        t.dim[1].n = pack.k + test_below(&seed, 2);
        program_reads_back(&p, 1);
    }
}

TEST(program_text_spans_of_a_packing_are_merged)
{
    static const struct pack_span span[4] = {
        {0, 160, 0}, {160, 96, 0}, {256, 512, 0}, {768, 32, 1}};
    struct pack_chunk chunk[8];
    struct pack_span s;
    struct pack p;

    pack_init(&p, PL_Q4_K, 16, 1024, span, 4, chunk);
    /* chunks of 160, 96, 256, 256 and 32 values */
    assert_int_equal(p.n_chunk, 5);
    assert_int_equal(pack_span_at(&p, 0, &s), 1);
    assert_int_equal(s.n, 160);
    /* from the first rank's slice up to the next rank's */
    assert_int_equal(pack_span_at(&p, 1, &s), 4);
    assert_int_equal(s.k, 160);
    assert_int_equal(s.n, 608);
    pack_init(&p, PL_Q8_0, 16, 1024, span, 4, chunk);
    /* without super-blocks each span is a chunk of its own */
    assert_int_equal(p.n_chunk, 4);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pack_span_at(&p, i, &s), i + 1);
}

/* ---- programs without a text -------------------------------------------- */

static void refused(const struct program *p, int n_dev, const char *message)
{
    struct test_text t = {0};
    pl_err err;

    assert_int_equal(program_print(p, n_dev, test_text_add, &t, &err),
                     PL_BAD_ARGUMENT);
    if (!strstr(err.message, message))
        fail_msg("\"%s\", not \"%s\"", err.message, message);
    assert_null(t.s);
}

TEST(program_text_what_has_no_text_is_refused)
{
    struct arena a = {0};
    struct program *p = parse(&a,
                              "programs 2\ndevice 0\n%0: f32[1]\ndevice 1\n"
                              "variant\n0: %0 = sqr(%0)\n0: dies 4 @0\n",
                              2);
    struct variant *x = (struct variant *)p[0].variant;
    struct insn *s = (struct insn *)x->insn;
    struct dead_range *d = (struct dead_range *)x->dead;

    program_reads_back(p, 2);
    refused(p, 0, "too many devices or variants");
    p[1].dev = 0;
    refused(p, 2, "device 0, instruction -1: it belongs to another device");
    p[1].dev = 1;
    p[1].n_variant = 0;
    refused(
        p, 2,
        "device 1, instruction -1: its variants differ from those of device 0");
    p[1].n_variant = 1;
    x->n_micro = 2;
    refused(p, 2, "its micro-batches differ from those of device 0");
    x->n_micro = 1;
    d->insn = 1;
    refused(p, 2, "a buffer dies out of order");
    d->insn = 0;
    s->max_rows = -1;
    refused(p, 2, "its predicate has a negative size");
    s->max_rows = 1;
    s->min_rows = -1;
    refused(p, 2, "its predicate has a negative size");
    /* a predicate without a symbol, whose bounds have no meaning */
    s->max_rows = 0;
    program_reads_back(p, 2);
    s->kernel.arg[1].access = ACCESS_UPDATE;
    refused(p, 2, "instruction 0: it accesses an argument differently");
    s->kernel.arg[1].access = ACCESS_READ;
    s->kernel.tree.item = &(struct tree_addend){0, 65};
    refused(p, 2, "its tree has too many additions");
    s->kernel.tree.item = &(struct tree_addend){0, 0};
    s->kernel.kernel = KERNEL_COUNT;
    refused(p, 2, "its kernel is unknown");
    arena_fini(&a);
}

/* A custom op is printed, but cannot be parsed. */
TEST(program_text_custom_kernels_are_printed_only)
{
    static const pl_op_part part = {8, 0, 4};
    static const pl_op_def def = {.name = "my_op"};
    const struct kernel_custom custom = {
        .def = &def, .in = {{1, 1, &part}, {.dim = -1}}, .out = {1, 1, &part}};
    struct test_text t = {0};
    struct arena a = {0};
    struct program *p = parse(&a,
                              "programs 1\ndevice 0\n%0: f32[1, 4]\nvariant\n"
                              "0: %0 = concat(%0, %0)\n",
                              1);
    struct insn_kernel *k = &((struct insn *)p[0].variant->insn)->kernel;
    pl_err err;
    int n;

    k->kernel = KERNEL_custom;
    k->custom = &custom;
    assert_int_equal(program_print(p, 1, test_text_add, &t, NULL), PL_OK);
    assert_non_null(strstr(t.s, "  0: %0 = custom(%0, %0) op my_op"
                                " in0(dim 1: 8+4@0) out0(dim 1: 8+4@0)\n"));
    assert_int_equal(program_parse(&p, &n, &a, t.s, t.n, &err), PL_UNSUPPORTED);
    free(t.s);
    arena_fini(&a);
}
