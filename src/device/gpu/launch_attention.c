/* Launches of attention: spans of all tokens, then the tree over each row's
 * spans, 64 a level.
 *
 * Sizes decide the launches, never positions, which the host does not know: a
 * row has room for as many states as it may come to have spans. So that this
 * room stays small, tokens of a prompt go in parts, one after another. */
#include "device/gpu/gpu_launch.h"

#include "program/cache_tile.h"

enum {
    MAX_ROWS = 16,          /* of a group */
    PART_BYTES = 64 << 20,  /* scratch that parts keep below, if they can */
    FEW_TOKENS = 32,        /* so many may all be of different sequences */
    ENOUGH_GROUPS = 1 << 12 /* beyond them a group takes several spans */
};

struct attention {
    const struct gpu_call *c;
    int64_t n_head, n_kv, n_state, state_bytes;
    int32_t heads, per_kv; /* most heads of a KV head; all, if in order */
    enum gpu_kernel kernel;
    int32_t rows; /* of a group of the kernel */
};

/* Most spans that a token sees: of positions that lie in slots of their own,
 * and in the window. */
static int64_t most_spans(const struct gpu_call *c)
{
    int64_t n = c->in[1].dim[0];

    if (c->table.page_stride > 0 && c->table.page_stride * PAGE_TOKENS < n)
        n = c->table.page_stride * PAGE_TOKENS;
    if (c->attr->window > 0 && c->attr->window < n)
        return (c->attr->window + TEXT_SPAN - 2) / TEXT_SPAN + 1;
    return n / TEXT_SPAN + 2;
}

static int64_t levels_up(int64_t n)
{
    return (n + MERGE_STATES - 1) / MERGE_STATES;
}

/* States of a row on all levels of the tree. */
static int64_t all_states(int64_t n)
{
    int64_t all = n;

    while (n > MERGE_STATES)
        all += n = levels_up(n);
    return all;
}

static int64_t token_bytes(const struct gpu_call *c)
{
    return c->out.dim[1] * all_states(most_spans(c)) *
           (TEXT_SOFT + c->out.dim[2]) * 4;
}

size_t gpu_attention_scratch(const struct gpu_call *c)
{
    int64_t one = token_bytes(c);
    int64_t all = c->out.dim[0] * one;
    int64_t most = one > PART_BYTES ? one : PART_BYTES;

    return (size_t)(all < most ? all : most);
}

/* How query heads lie to KV heads. */
static void set_heads(struct attention *a)
{
    const int32_t *map = a->c->head_map;
    bool in_order = a->n_head % a->n_kv == 0;

    for (int64_t kv = 0; kv < a->n_kv; kv++) {
        int32_t n = 0;

        for (int64_t h = 0; h < a->n_head; h++)
            n += map[h] == kv;
        a->heads = n > a->heads ? n : a->heads;
    }
    for (int64_t h = 0; in_order && h < a->n_head; h++)
        in_order = map[h] == h / (a->n_head / a->n_kv);
    a->per_kv = in_order ? a->heads : 0;
}

/* The fewer rows, the less is computed for nothing, so few tokens, which may
 * be of as many sequences, are not expected to share a group. */
static void choose_kernel(struct attention *a, int64_t n_tok, bool latent)
{
    int64_t rows = a->heads * (n_tok > 8 ? n_tok : 1);

    a->rows = rows <= 4 ? 4 : rows <= 8 && !latent ? 8 : MAX_ROWS;
    if (latent)
        a->kernel = a->rows == 4 ? GPU_attend_latent_4 : GPU_attend_latent_16;
    else
        a->kernel = a->rows == 4   ? GPU_attend_4
                    : a->rows == 8 ? GPU_attend_8
                                   : GPU_attend_16;
}

static struct attend_args spans_of(const struct attention *a, bool latent)
{
    const struct gpu_call *c = a->c;
    int32_t heads = a->heads < a->rows ? a->heads : a->rows;

    return (struct attend_args){
        .q = c->in[0].at,
        .k = c->in[1].at,
        .v = latent ? 0 : c->in[2].at,
        .head_map = c->head_map_at,
        .pos = c->pos,
        .seq = c->seq,
        .pages = c->pages,
        .part = c->scratch,
        .page_stride = c->table.page_stride,
        .key_bytes =
            (int64_t)cache_tile_bytes(c->in[1].format, c->in[1].dim[2]),
        .value_bytes = latent ? 0
                              : (int64_t)cache_tile_bytes(c->in[2].format,
                                                          c->in[2].dim[2]),
        .n_head = (int32_t)a->n_head,
        .n_kv = (int32_t)a->n_kv,
        .d = (int32_t)c->in[1].dim[2],
        .e = (int32_t)c->out.dim[2],
        .key_format = gpu_cache_format(c->in[1].format),
        .value_format = gpu_cache_format(c->in[latent ? 1 : 2].format),
        .window = c->attr->window,
        .per_kv = a->per_kv,
        .n_part = (a->heads + heads - 1) / heads,
        .heads = heads,
        .tokens = a->rows / heads,
        .n_state = (int32_t)a->n_state,
        .scale = c->attr->scale,
        .softcap = c->attr->softcap};
}

/* Tokens first .. end - 1. */
static void add_spans(struct gpu_list *l, const struct attention *a,
                      struct attend_args *s, int64_t first, int64_t end)
{
    int64_t n_tok = end - first, others;

    s->first = (int32_t)first;
    s->end = (int32_t)end;
    s->step = n_tok <= FEW_TOKENS ? 1 : s->tokens;
    s->n_tile = (int32_t)gpu_groups(n_tok, s->step);
    others = (int64_t)s->n_tile * s->n_part * a->n_kv;
    s->n_span = (int32_t)a->n_state;
    if (others * s->n_span > ENOUGH_GROUPS)
        s->n_span =
            others > ENOUGH_GROUPS ? 1 : (int32_t)(ENOUGH_GROUPS / others);
    gpu_list_add(l, a->kernel, others * s->n_span, s);
}

static void add_tree(struct gpu_list *l, const struct attention *a,
                     int64_t first, int64_t end)
{
    const struct gpu_call *c = a->c;
    const struct gpu_tensor *sink = &c->in[3];
    int64_t n_row = (end - first) * a->n_head;
    struct attend_merge_args m = {.part = c->scratch,
                                  .out = c->out.at,
                                  .pos = c->pos,
                                  .first = (int32_t)first,
                                  .n_head = (int32_t)a->n_head,
                                  .e = (int32_t)c->out.dim[2],
                                  .window = c->attr->window,
                                  .sink_format = gpu_format(sink->format),
                                  .spans = 1,
                                  .n_state = (int32_t)a->n_state};

    m.n_column = (int32_t)gpu_groups(m.e, MERGE_COLUMNS);
    for (;;) {
        m.n_block = (int32_t)levels_up(m.n_state);
        if (m.n_block > 1)
            m.next = m.part + (uint64_t)(n_row * m.n_state * a->state_bytes);
        else if (c->n_in > 3)
            m.sink = sink->at;
        gpu_list_add(l, GPU_attend_merge, n_row * m.n_block * m.n_column, &m);
        if (m.n_block == 1)
            return;
        m.part = m.next;
        m.next = 0;
        m.n_state = m.n_block;
        m.spans *= MERGE_STATES;
    }
}

static void attend(struct gpu_list *l, const struct gpu_call *c, bool latent)
{
    struct attention a = {.c = c,
                          .n_head = c->out.dim[1],
                          .n_kv = c->in[1].dim[1],
                          .n_state = most_spans(c),
                          .state_bytes = (TEXT_SOFT + c->out.dim[2]) * 4};
    int64_t n_tok = c->table.n_tok, part;
    struct attend_args s;

    if (n_tok == 0 || a.n_head == 0 || a.n_kv == 0)
        return;
    set_heads(&a);
    choose_kernel(&a, n_tok, latent);
    s = spans_of(&a, latent);
    part = PART_BYTES / token_bytes(c);
    if (part > s.tokens)
        part -= part % s.tokens;
    else if (part == 0)
        part = 1;
    for (int64_t t = 0; t < n_tok; t += part) {
        int64_t end = t + part < n_tok ? t + part : n_tok;

        add_spans(l, &a, &s, t, end);
        add_tree(l, &a, t, end);
    }
}

void gpu_launch_attention(struct gpu_list *l, const struct gpu_call *c)
{
    attend(l, c, false);
}

void gpu_launch_latent_attention(struct gpu_list *l, const struct gpu_call *c)
{
    attend(l, c, true);
}
