/* A custom op in a split graph: y = softsign(x w), w over two devices.
 *
 *   own_op [DEVICES]              own_op 'cpu*2'
 *
 * The kernel knows nothing of devices. Its row "*->*" says that each value of
 * the result needs one value of the operand, so plait may split it anywhere. */
#include <pl_graph.h>
#include <stdio.h>

enum { N_IN = 64, N_OUT = 64, N_TOKENS = 2 };

static float softsign(float x)
{
    return x / (1 + (x < 0 ? -x : x));
}

/* Each thread does its part of the values that this device has. */
static void run_softsign(const pl_op_call *c)
{
    const float *x = c->in[0].data;
    float *out = c->out.data;
    int64_t n = 1;

    for (int i = 0; i < c->out.n_dim; i++)
        n *= c->out.dim[i];
    for (int64_t i = n * c->ith / c->nth; i < n * (c->ith + 1) / c->nth; i++)
        out[i] = softsign(x[i]);
}

static int die(const pl_err *err)
{
    fprintf(stderr, "own_op: %s\n", err->message);
    return 1;
}

int main(int argc, char **argv)
{
    const pl_op_def op = {.size = sizeof op,
                          .name = "softsign",
                          .dims = "*->*",
                          /* softsign is not linear, so it cannot be applied to
                           * addends of a sum */
                          .partial = PL_OP_NONE,
                          .run = run_softsign,
                          .edition = 1};
    const pl_dim rows[2] = {{1, PL_N_TOK}, {N_IN, PL_CONST}};
    const int64_t shape[2] = {N_OUT, N_IN};
    const pl_options opt = {.size = sizeof opt,
                            .devices = argc > 1 ? argv[1] : "cpu*2",
                            .split_mode = PL_SPLIT_TENSOR};
    const pl_step_tokens step = {.size = sizeof step, .n_tok = N_TOKENS};
    static float in[N_TOKENS * N_IN], matrix[N_OUT * N_IN];
    static float out[N_TOKENS * N_OUT];
    pl_graph *g = NULL;
    pl_exec *exec = NULL;
    pl_tensor x, w, y;
    pl_err err;

    /* output i is input i of the token; negated if i is odd */
    for (int i = 0; i < N_OUT; i++)
        matrix[i * N_IN + i] = i % 2 ? -1 : 1;
    for (int i = 0; i < N_TOKENS * N_IN; i++)
        in[i] = (float)(i % N_IN);

    if (pl_graph_create(&g, &err) != PL_OK)
        return die(&err);
    x = pl_input(g, "x", PL_F32, 2, rows);
    w = pl_weight(g, "w", PL_F32, 2, shape, PL_ROLE_FFN_UP);
    y = pl_matmul(g, x, w);
    y = pl_custom(g, &op, 1, &y);
    pl_output(g, y);
    /* also reports errors of the calls above */
    if (pl_graph_check(g, &err) != PL_OK ||
        pl_exec_create(&exec, g, &opt, &err) != PL_OK ||
        pl_tensor_set(exec, w, matrix, 0, sizeof matrix, &err) != PL_OK ||
        pl_tensor_set(exec, x, in, 0, sizeof in, &err) != PL_OK ||
        pl_exec_step(exec, &step, &err) != PL_OK ||
        pl_tensor_get(exec, y, out, 0, sizeof out, &err) != PL_OK)
        return die(&err);
    for (int i = 0; i < 8; i++)
        printf("%g ", out[i]);
    printf("...\n");
    for (int i = 0; i < N_TOKENS * N_OUT; i++) {
        float value = (float)(i % N_IN);

        if (out[i] != softsign(i % 2 ? -value : value))
            return 1;
    }
    pl_exec_free(exec);
    pl_graph_free(g);
    return 0;
}
