/* Creates the launches of contractions with weights. A row of activations is
 * multiplied by the matrix of its head or expert. The summed dimension k is
 * divided into spans, each of one rank. The ranks' sums are added along the
 * rank tree, on a stack of partial results in device memory. */
#include "device/gpu/gpu_launch.h"

#include "quant/q8.h"

/* Must have the values of the kernel source's constants of the same names. */
enum { FEW_TOKENS = 4, FEW_ITEMS = 256, MANY_TOKENS = 64, MANY_PANELS = 8 };

/* Tiles of a unit of a skinny kernel (matvec_tmpl.h). */
enum { CHUNK_TILES = 8, UNIT_TILES = 4 };
/* A skinny group has UNITS units at a time, of one panel or of two. A compute
 * unit executes GROUPS_AT_ONCE skinny groups at once, or more if their kernel
 * has few registers. */
enum { UNITS = 16, GROUPS_AT_ONCE = 2 };

/* The choice between GEMM and skinny kernels. A GEMM work group has 8 panels of
 * weights; if there are few groups, each waits for the latency of one tile
 * after another. Skinny kernels have many more groups, but each block of rows
 * reads the weights again. FEW_IN_MANY and ONE_IN_MANY are the numbers of
 * skinny groups that a compute unit executes in the time of one GEMM group.
 * Both are estimated from the memory latency and the cost of a tile, not
 * measured. */
enum {
    /* a GEMM group takes as long as this many skinny groups of FEW_TOKENS
     * rows */
    FEW_IN_MANY = 16,
    /* a GEMM group takes as long as this many skinny groups of one row, as
     * experts have them */
    ONE_IN_MANY = 24,
    MANY_FROM = 9, /* minimum rows of activations for GEMM kernels */
    MANY_EACH = 2  /* minimum average rows per expert for GEMM if n_unit is
                         unknown */
};

static const struct kernels {
    /* the matvec kernel (few rows) and the matmul kernel of the format */
    enum gpu_kernel few, many;
} kernels[PL_FORMAT_COUNT] = {
#define FORMAT(format, name)                                                   \
    [PL_##format] = {GPU_matvec_##name, GPU_matmul_##name},
    /* clang-format off */
    FORMAT(F32, f32) FORMAT(F16, f16) FORMAT(BF16, bf16)
    FORMAT(Q8_0, q8_0) FORMAT(Q4_0, q4_0) FORMAT(Q4_1, q4_1)
    FORMAT(Q5_0, q5_0) FORMAT(Q5_1, q5_1) FORMAT(Q2_K, q2_k)
    FORMAT(Q3_K, q3_k) FORMAT(Q4_K, q4_k) FORMAT(Q5_K, q5_k)
    FORMAT(Q6_K, q6_k) FORMAT(IQ4_NL, iq4_nl) FORMAT(IQ4_XS, iq4_xs)
    FORMAT(MXFP4, mxfp4) FORMAT(NVFP4, nvfp4) FORMAT(IQ1_S, iq1_s)
    FORMAT(IQ1_M, iq1_m) FORMAT(IQ2_XXS, iq2) FORMAT(IQ2_XS, iq2)
    FORMAT(IQ2_S, iq2) FORMAT(IQ3_XXS, iq3_xxs) FORMAT(IQ3_S, iq3_s)
    FORMAT(TQ1_0, tq) FORMAT(TQ2_0, tq)
/* clang-format on */
#undef FORMAT
};

/* ---- spans --------------------------------------------------------------- */

/* An iterator over the spans of k of the weight in[1]. */
struct runs {
    const struct gpu_tensor *w;
    const struct gpu_call *c;
    int i; /* index of the next chunk of a packed weight, or of the next span */
};

/* Sets *run to the next span that belongs to `rank`. Returns false if there are
 * no more. */
static bool next_packed(struct runs *r, int32_t rank, struct contract_run *run)
{
    const struct pack *p = r->w->pack;
    int unit = p->rule->tile_values, part = Q8_CHUNK / unit;
    struct pack_span s;

    while (r->i < p->n_chunk) {
        const struct pack_chunk *c = &p->chunk[r->i];

        r->i = pack_span_at(p, r->i, &s);
        if (s.rank != rank || s.n == 0)
            continue;
        *run = (struct contract_run){.off = c->off,
                                     .x = (int32_t)(c->k_loc / unit),
                                     .n = (int32_t)(s.n / unit),
                                     .first = (int32_t)(s.k / unit % part)};
        return true;
    }
    return false;
}

static bool next_plain(struct runs *r, int32_t rank, struct contract_run *run)
{
    const struct rank_span whole = {.n = gpu_last(r->w), .rank = rank};
    int n = r->c->n_span > 0 ? r->c->n_span : 1;

    while (r->i < n) {
        const struct rank_span *s =
            r->c->n_span > 0 ? r->c->span + r->i : &whole;

        r->i++;
        if (s->rank != rank || s->n == 0)
            continue;
        *run = (struct contract_run){
            .off = format_row_bytes(r->w->format, s->local),
            .x = (int32_t)s->local,
            .n = (int32_t)s->n,
            .first = (int32_t)(s->logical % Q8_CHUNK)};
        return true;
    }
    return false;
}

static bool next_run(struct runs *r, int32_t rank, struct contract_run *run)
{
    return r->w->pack ? next_packed(r, rank, run) : next_plain(r, rank, run);
}

/* ---- launches of a call -------------------------------------------------- */

/* The launch of a contraction that is being prepared. */
struct fill {
    struct launch_list *l;
    const struct gpu_call *c;
    struct contract_args a;
    enum gpu_kernel kernel;
    int64_t n_block; /* blocks of rows of a skinny kernel */
    int64_t n_group; /* work groups of a GEMM kernel */
};

static bool reads_q8(const struct gpu_tensor *w)
{
    return w->pack && w->pack->rule->tile_values > 1;
}

/* Returns the argument of divide() (weights.h) that stands for a divisor. */
static uint32_t inverse_of(int64_t n)
{
    return n > 0 ? (uint32_t)(UINT32_MAX / n) : 0;
}

/* Sets the numbers of units of all runs. Returns the greatest one, of all
 * experts whose products the kernel adds up. */
static int64_t count_units(struct fill *f)
{
    const struct gpu_tensor *w = &f->c->in[1];
    struct contract_args *a = &f->a;
    bool whole = !reads_q8(w) || w->pack->rule->sup != PACK_SUP_NONE;
    int unit = !reads_q8(w) ? Q8_CHUNK : whole ? CHUNK_TILES : UNIT_TILES;
    int64_t n_item = 1, most = 0;

    if (a->mode == CONTRACT_DOWN)
        n_item = a->n_item < a->n_used ? a->n_item : a->n_used;
    for (int i = 0; i < a->n_run; i++) {
        struct contract_run *run = &a->run[i];
        int64_t n = run->n > 0 ? run->n + (whole ? run->first : 0) : 0;

        run->n_unit = (int32_t)gpu_groups(n, unit);
        run->n_unit_inverse = inverse_of(run->n_unit);
        most = run->n_unit * n_item > most ? run->n_unit * n_item : most;
    }
    return most;
}

/* Divides a skinny kernel's panels among work groups. Returns the number of
 * groups. If one group per panel would be more groups than the GPU executes at
 * once, a group computes several, so that it can load the weights of a panel
 * while it computes the one before. Then it also computes two panels at a time
 * if one would leave half of its units idle. */
static int64_t divide_panels(struct fill *f)
{
    struct contract_args *a = &f->a;
    int64_t at_once = (int64_t)f->c->n_unit * GROUPS_AT_ONCE;
    int64_t units = count_units(f), n = a->n_panel, each = 1;
    bool quantized = reads_q8(&f->c->in[1]);

    a->sides = 1;
    if (quantized && units <= UNITS / 2 && n * f->n_block > at_once)
        a->sides = 2;
    n = gpu_groups(n, a->sides);
    if (quantized && at_once > 0 && n > 0) {
        each = (n * f->n_block + at_once - 1) / at_once;
        each = each < n ? each : n;
    }
    a->each = (int32_t)each * a->sides;
    a->n_slice = (int32_t)gpu_groups(a->n_panel, a->each);
    a->n_slice_inverse = inverse_of(a->n_slice);
    a->n_block_inverse = inverse_of(a->n_block);
    a->share_inverse = inverse_of(a->share);
    return f->n_block * a->n_slice;
}

static void flush(struct fill *f)
{
    struct contract_args *a = &f->a;

    if (a->n_run == 0)
        return;
    if (f->kernel == kernels[f->c->in[1].format].few)
        f->n_group = divide_panels(f);
    gpu_list_add(f->l, f->kernel, f->n_group, a);
    for (int i = 0; i < a->n_run; i++)
        if (a->run[i].n_add >= 0)
            a->top += 1 - a->run[i].n_add;
    a->open = a->run[a->n_run - 1].n_add < 0;
    a->n_run = 0;
}

static void add_run(struct fill *f, const struct contract_run *run,
                    int32_t n_add)
{
    struct contract_args *a = &f->a;

    if (a->n_run == CONTRACT_RUNS)
        flush(f);
    a->run[a->n_run] = *run;
    a->run[a->n_run++].n_add = n_add;
}

/* Adds the spans of one rank. After the last one the kernel pushes the rank's
 * sum on the stack and does n_add additions of the rank tree. If n_add is -1,
 * the sum continues with the spans that are added next. A rank without spans
 * contributes zeros. */
static void add_rank(struct fill *f, int32_t rank, int32_t n_add)
{
    struct runs r = {.w = &f->c->in[1], .c = f->c};
    struct contract_run run = {0}, next;
    bool more = next_run(&r, rank, &run);

    while (more) {
        more = next_run(&r, rank, &next);
        add_run(f, &run, more ? -1 : n_add);
        if (!more)
            return;
        run = next;
    }
    add_run(f, &run, n_add);
}

static int n_run_of(const struct gpu_call *c, int32_t rank)
{
    struct runs r = {.w = &c->in[1], .c = c};
    struct contract_run run;
    int n = 0;

    while (next_run(&r, rank, &run))
        n++;
    return n;
}

/* Adds the spans of one rank for expert_down. A sum is over a token's experts
 * in order and, for each expert, over k. So a launch has either one span of
 * several experts, or several spans of one expert. */
static void add_rank_down(struct fill *f, int32_t rank, int32_t n_add)
{
    int32_t n = n_run_of(f->c, rank) > 1 ? 1 : FEW_ITEMS;

    if (n == FEW_ITEMS && f->a.n_used <= FEW_ITEMS) {
        add_rank(f, rank, n_add);
        return;
    }
    flush(f);
    for (int32_t i = 0; i < f->a.n_used; i += n) {
        f->a.item = i;
        f->a.n_item = n;
        add_rank(f, rank, i + n < f->a.n_used ? -1 : n_add);
        flush(f);
    }
    f->a.item = 0;
    f->a.n_item = FEW_ITEMS;
}

/* Like add_rank_down, for GEMM kernels: each launch has one expert of each
 * token. If the rank tree requires additions after that, a skinny launch
 * without spans does them. */
static void add_rank_steps(struct fill *f, int32_t rank, int32_t n_add)
{
    const struct contract_run none = {0};
    enum gpu_kernel many = f->kernel;
    int64_t n_group = f->n_group;

    for (int32_t i = 0; i < f->a.n_used; i++) {
        f->a.item = i;
        add_rank(f, rank, -1);
        flush(f);
    }
    f->a.item = f->a.n_item = 0;
    /* no additions to do: the sums already are at their entries of the stack */
    if (n_add == 0) {
        f->a.top++;
        f->a.open = 0;
        return;
    }
    f->kernel = kernels[f->c->in[1].format].few;
    add_run(f, &none, n_add);
    flush(f);
    f->kernel = many;
    f->n_group = n_group;
}

static void add_tree(struct fill *f,
                     void (*add)(struct fill *f, int32_t rank, int32_t n_add))
{
    const struct rank_tree *t = &f->c->tree;

    for (int i = 0; i < t->n; i++)
        add(f, t->item[i].rank, t->item[i].n_add);
    flush(f);
}

/* Begins the launches of a contraction: sets the arguments that are the same
 * for all kinds. */
static struct fill begin(struct launch_list *l, const struct gpu_call *c)
{
    const struct gpu_tensor *w = &c->in[1];
    int64_t n = w->dim[w->n_dim - 2], k = gpu_last(w),
            row = gpu_last(&c->in[0]);
    struct fill f = {.l = l, .c = c};
    struct contract_args *a = &f.a;

    *a = (struct contract_args){
        .w = w->at,
        .x = reads_q8(w) ? c->q8 : c->in[0].at,
        .out = c->out.at,
        .stack = c->scratch,
        .out_stride = c->out_stride,
        .stack_stride = (uint64_t)gpu_count(&c->out) * 4,
        .n = (int32_t)n,
        .n_panel = (int32_t)gpu_groups(n, PACK_ROWS),
        .n_matrix = w->n_dim == 3 ? (int32_t)w->dim[0] : 1,
        .x_step = (int32_t)(reads_q8(w) ? row / 32 * 10 : row),
        .tok = 1,
        .n_head = 1,
        .n_used = 1,
        .share = 1,
        .n_item = FEW_ITEMS,
        .n_out = c->tree.n_out,
        .more = {{.first = CONTRACT_NO_MORE}, {.first = CONTRACT_NO_MORE}},
    };
    if (w->pack) {
        a->matrix_bytes = w->pack->matrix_bytes;
        a->panel_bytes = w->pack->panel_bytes;
        a->w_k = PACK_ROWS;
        a->w_row = 1;
    } else {
        a->matrix_bytes = format_row_bytes(w->format, k) * (uint64_t)n;
        a->panel_bytes = format_row_bytes(w->format, k) * PACK_ROWS;
        a->w_k = 1;
        a->w_row = (int32_t)k;
    }
    f.kernel = kernels[w->format].few;
    return f;
}

/* Selects the GEMM kernel; n_block is the number of blocks of rows. */
static void set_many(struct fill *f, int64_t n_block)
{
    f->kernel = kernels[f->c->in[1].format].many;
    f->n_group = gpu_groups(f->a.n_panel, MANY_PANELS) * n_block;
}

/* Returns true if n_few skinny groups take at least as long as n_many GEMM
 * groups, where a GEMM group takes as long as `each` skinny ones. n_few must
 * increase with the number of rows, and n_many must be for one block of rows.
 * So if the result is true for some number of rows, it is true for more rows
 * too. The scratch size, computed for the most rows, and gpu_kernel_set.c rely
 * on this. */
static bool many_pay(const struct gpu_call *c, int64_t n_few, int64_t n_many,
                     int64_t each)
{
    int64_t rounds = gpu_groups(n_many, c->n_unit);

    return n_few >= each * rounds * c->n_unit;
}

/* ---- head_matmul --------------------------------------------------------- */

/* Returns true if heads have enough rows that GEMM kernels are faster. */
static bool heads_are_many(const struct gpu_call *c, int64_t n_panel,
                           int64_t n_tok, int64_t n_head)
{
    int64_t n_few = gpu_groups(n_tok, FEW_TOKENS) * n_head * n_panel;

    return n_tok >= MANY_FROM &&
           (c->n_unit <= 0 ||
            many_pay(c, n_few, gpu_groups(n_panel, MANY_PANELS) * n_head,
                     FEW_IN_MANY));
}

static void heads(struct launch_list *l, const struct gpu_call *c,
                  int64_t n_tok, int64_t n_head)
{
    struct fill f = begin(l, c);
    int64_t n_block = gpu_groups(n_tok, FEW_TOKENS);

    if (n_tok == 0)
        return;
    f.a.mode = CONTRACT_HEADS;
    f.a.n_tok = (int32_t)n_tok;
    f.a.n_head = (int32_t)n_head;
    f.a.tok = (int32_t)gpu_groups(n_tok, (int)n_block);
    f.a.n_block = (int32_t)gpu_groups(n_tok, f.a.tok);
    f.n_block = f.a.n_block * n_head;
    if (heads_are_many(c, f.a.n_panel, n_tok, n_head))
        set_many(&f, gpu_groups(n_tok, MANY_TOKENS) * n_head);
    add_tree(&f, add_rank);
}

void gpu_launch_matmul(struct launch_list *l, const struct gpu_call *c)
{
    heads(l, c, gpu_rows(&c->in[0]), 1);
}

void gpu_launch_head_matmul(struct launch_list *l, const struct gpu_call *c)
{
    heads(l, c, c->in[0].dim[0], c->in[1].dim[0]);
}

size_t gpu_contract_scratch(const struct gpu_call *c)
{
    int more = c->tree.depth - c->tree.n_out;
    size_t bytes = more > 0 ? (size_t)more * (size_t)gpu_count(&c->out) * 4 : 0;

    return (bytes + 255) & ~(size_t)255;
}

/* ---- expert_matmul and expert_down --------------------------------------- */

/* Returns true if experts have enough rows that GEMM kernels are faster.
 * expert_matmul launches the groups of all experts once, expert_down once for
 * each of a token's experts. */
static bool experts_are_many(const struct gpu_call *c, int32_t mode)
{
    int64_t n_pair = gpu_count(&c->in[2]), n_matrix = c->in[1].dim[0];
    int64_t n_panel = gpu_groups(c->in[1].dim[1], PACK_ROWS);
    int64_t n_step = mode == CONTRACT_DOWN ? c->in[2].dim[1] : 1;

    if (c->in[2].dim[0] < MANY_FROM)
        return false;
    if (c->n_unit <= 0)
        return n_pair >= MANY_EACH * n_matrix;
    return many_pay(c, n_pair * n_panel,
                    gpu_groups(n_panel, MANY_PANELS) * n_matrix,
                    ONE_IN_MANY * n_step);
}

/* Returns an upper bound of the number of blocks, which have up to MANY_TOKENS
 * pairs with the same key each, for n pairs and n_key keys. */
static int64_t max_blocks(int64_t n, int64_t n_key)
{
    return n / MANY_TOKENS + (n_key < n ? n_key : n);
}

/* Sets the arguments of the kernels that sort the (token, expert) pairs by
 * expert. Their arrays are in scratch memory after the stack. Returns the size
 * of all scratch memory in bytes. */
static size_t route_layout(const struct gpu_call *c, int32_t mode,
                           struct route_args *r)
{
    uint64_t at = c->scratch + gpu_contract_scratch(c);
    int64_t n = gpu_count(&c->in[2]), n_matrix = c->in[1].dim[0];
    int64_t n_step = mode == CONTRACT_DOWN ? c->in[2].dim[1] : 1;
    int64_t n_key = n_step * (n_matrix + 1);

    *r = (struct route_args){.id = c->in[2].at,
                             .key = at,
                             .n_pair = (int32_t)n,
                             .n_used = (int32_t)c->in[2].dim[1],
                             .n_matrix = (int32_t)n_matrix,
                             .n_step = (int32_t)n_step,
                             .n_key = (int32_t)n_key,
                             .mode = mode};
    r->start = r->key + (uint64_t)n * 4;
    r->head = r->start + (uint64_t)n_key * 8;
    r->block = r->head + (uint64_t)(n_step + 1) * 4;
    r->list = r->block + (uint64_t)max_blocks(n, n_key) * 12;
    return (size_t)(r->list + (uint64_t)n * 4 - c->scratch);
}

/* Adds the launches that sort the pairs, and selects the GEMM kernel that uses
 * the result. */
static void route(struct fill *f)
{
    struct route_args r;
    int64_t n;

    route_layout(f->c, f->a.mode, &r);
    gpu_list_add(f->l, GPU_route_keys, gpu_groups(r.n_pair, 256), &r);
    gpu_list_add(f->l, GPU_route_places, r.n_key, &r);
    gpu_list_add(f->l, GPU_route_blocks, 1, &r);
    f->a.head = r.head;
    f->a.block = r.block;
    f->a.list = r.list;
    n = f->a.mode == CONTRACT_DOWN ? f->c->in[2].dim[0] : r.n_pair;
    set_many(f, max_blocks(n, r.n_matrix + 1));
}

void gpu_launch_expert_matmul(struct launch_list *l, const struct gpu_call *c)
{
    struct fill f = begin(l, c);

    f.a.mode = CONTRACT_EXPERTS;
    f.a.id = c->in[2].at;
    f.a.share = c->in[0].dim[1] == 1 ? (int32_t)c->in[2].dim[1] : 1;
    f.n_block = gpu_count(&c->in[2]);
    if (experts_are_many(c, CONTRACT_EXPERTS))
        route(&f);
    add_tree(&f, add_rank);
}

void gpu_launch_expert_down(struct launch_list *l, const struct gpu_call *c)
{
    bool many = experts_are_many(c, CONTRACT_DOWN);
    struct fill f = begin(l, c);

    f.a.mode = CONTRACT_DOWN;
    f.a.id = c->in[2].at;
    f.a.n_used = (int32_t)c->in[2].dim[1];
    f.n_block = c->in[2].dim[0];
    if (many)
        route(&f);
    add_tree(&f, many ? add_rank_steps : add_rank_down);
}

static size_t expert_scratch(const struct gpu_call *c, int32_t mode)
{
    struct gpu_call sized = *c;
    struct route_args r;

    sized.scratch = 0;
    return experts_are_many(c, mode) ? route_layout(&sized, mode, &r)
                                     : gpu_contract_scratch(c);
}

size_t gpu_expert_matmul_scratch(const struct gpu_call *c)
{
    return expert_scratch(c, CONTRACT_EXPERTS);
}

size_t gpu_expert_down_scratch(const struct gpu_call *c)
{
    return expert_scratch(c, CONTRACT_DOWN);
}
