/* Activations are quantized once for all weights that need the same form: with
 * a scale a block, or one for each chunk that a weight with super-blocks
 * sums. */
#include "lib/support.h"
#include "lower/compile.h"
#include "quant/format.h"

/* Returns the kernel instruction that writes tensor `tensor`. */
static const struct insn_kernel *writer(const struct variant *s, int tensor)
{
    for (int i = 0; i < s->n_insn; i++)
        if (s->insn[i].kind == INSN_KERNEL &&
            s->insn[i].kernel.arg[0].tensor == tensor)
            return &s->insn[i].kernel;
    return NULL;
}

TEST(exec_weights_read_activations_in_their_form)
{
    static const char *const text =
        "x: f32[n_tok, 512] = input\n"
        "k4: q4_k[32, 512] = weight\n"
        "k6: q6_k[32, 512] = weight\n"
        "q8: q8_0[32, 512] = weight\n"
        "q4: q4_0[32, 512] = weight\n"
        "a: f32[n_tok, 32] = matmul(x, k4) !output\n"
        "b: f32[n_tok, 32] = matmul(x, k6) !output\n"
        "c: f32[n_tok, 32] = matmul(x, q8) !output\n"
        "d: f32[n_tok, 32] = matmul(x, q4) !output\n";
    pl_options o = {.size = sizeof o, .devices = "cpu"};
    struct compiled *q;
    const struct program *p;
    const struct variant *s;
    pl_graph *g;
    pl_err err;
    int n_quantize = 0, n_read = 0;

    TEST_OK(pl_graph_parse(&g, text, &err), err);
    TEST_OK(compile_graph(&q, g, &o, &err), err);
    p = &q->low->prog[0];
    s = &p->variant[0];
    for (int i = 0; i < s->n_insn; i++) {
        const struct insn_kernel *k = &s->insn[i].kernel, *from;
        const struct pack *w;

        if (s->insn[i].kind != INSN_KERNEL)
            continue;
        n_quantize += k->kernel == KERNEL_quantize;
        if (k->kernel != KERNEL_matmul)
            continue;
        w = p->tensor[k->arg[2].tensor].pack;
        from = writer(s, k->arg[3].tensor);
        assert_non_null(from);
        assert_int_equal(from->kernel, KERNEL_quantize);
        assert_int_equal(from->n_span, w->rule->sup == PACK_SUP_NONE ? 0 : 1);
        n_read++;
    }
    assert_int_equal(n_read, 4);
    assert_int_equal(n_quantize, 2);
    compiled_free(q);
    pl_graph_free(g);
}
