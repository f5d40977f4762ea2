/* A plan before anything is loaded: the contents of each device and the
 * estimated speed.
 *
 *   plan_only MODEL [MACHINE]     plan_only model.gguf 'gpu:24GiB:1TB/s*4'
 *
 * MACHINE describes devices that need not exist. Without it the plan is for the
 * processors of this machine. No weight is read. */
#include <pl.h>
#include <stdio.h>

static int die(const pl_err *err)
{
    fprintf(stderr, "plan_only: %s\n", err->message);
    return 1;
}

/* Prints to a file; a pl_write_fn. */
static void print(void *file, const char *text, size_t len)
{
    fwrite(text, 1, len, file);
}

int main(int argc, char **argv)
{
    pl_options opt;
    pl_model *model = NULL;
    pl_plan *plan = NULL;
    char line[256];
    pl_err err;

    if (argc < 2) {
        fprintf(stderr, "usage: plan_only MODEL [MACHINE]\n");
        return 2;
    }
    pl_options_init(&opt);
    opt.device_spec = argc > 2 ? argv[2] : NULL;
    opt.n_ctx = 512;
    if (pl_model_open(&model, argv[1], &err) != PL_OK)
        return die(&err);
    /* PL_FULL and PL_NO_DEVICE_MEMORY say that it does not fit, and what would
     * have to change. */
    if (pl_plan_create(&plan, model, &opt, &err) != PL_OK ||
        pl_plan_print(plan, false, print, stdout, &err) != PL_OK)
        return die(&err);
    pl_plan_summary(plan, line, sizeof line);
    printf("\n%s\nthe same again: %s\n", line, pl_plan_options(plan));
    pl_plan_free(plan);
    /* the plan borrowed the model, so it is freed first */
    pl_model_free(model);
    return 0;
}
