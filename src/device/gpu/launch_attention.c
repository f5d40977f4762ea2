/* Creates the launches of attention: first for the spans of all tokens, then
 * for the tree that merges the states of each row. A row is a query head of a
 * token. A span is TEXT_SPAN positions, for which a launch computes a softmax
 * state.
 *
 * Launches depend on sizes but not on positions, because they are kept from
 * step to step. So a row gets space for as many states as the longest sequence
 * may need. Normally a state covers one span. If the states of a prompt need
 * too much memory, a state covers several spans, which one work group merges.
 * If that is not enough, the tokens are processed in parts.
 *
 * Chosen positions are first gathered into a cache in scratch memory, in which
 * each token has a sequence of its own, for as many tokens as it has space
 * for. The same kernels then attend to that cache.
 *
 * Blocks of positions are chosen for each KV head. So the query heads of a
 * token that share a KV head become a token of their own, with one KV head and
 * a sequence of its own. Blocks of whole pages are not copied: the page table
 * of these sequences names the tiles of the caches. */
#include "device/gpu/gpu_launch.h"

#include "program/cache_tile.h"

enum {
    MAX_ROWS = 16, /* most rows of a work group */
    /* most bytes of scratch memory that the launches of one part of the tokens
     * should use */
    PART_BYTES = 128 << 20,
    TILE_COLUMNS = 128, /* most columns of V for the tile kernels */
    /* with up to this many tokens, the rows of a work group belong to one
     * token */
    ALONE = 8,
    /* the rows of a work group also belong to one token with up to this many
     * tokens per sequence */
    ALONE_EACH = 2,
    FEW_TOKENS = 32, /* with up to this many tokens, tile kernels are not
                        used */
    /* with more work groups than this, a group processes several spans */
    ENOUGH_GROUPS = 1 << 11
};

struct attention {
    const struct gpu_call *c;
    int64_t n_head, n_kv, state_bytes;
    /* heads: the most query heads that share a KV head; per_kv: the number of
     * query heads of each KV head, if they are adjacent and equally many for
     * all, else 0 */
    int32_t heads, per_kv;
    enum gpu_kernel kernel;
    bool codes;   /* keys or values have codes of 4 or 5 bits */
    bool direct;  /* the kernel reads the cache without stages */
    bool alone;   /* the rows of a work group are heads of one token */
    int32_t rows; /* rows of a work group */
    int32_t wide; /* columns of a stack entry of the tile kernels; 0 for
                             other kernels */
    /* n_span: most spans of a row; part: most tokens of a launch */
    int64_t n_span, part;
};

static int64_t spans_for(int64_t n)
{
    return (n + TEXT_SPAN - 1) / TEXT_SPAN;
}

/* Returns true for bidirectional attention, whose operand 3 is `ends`. */
static bool has_ends(const struct gpu_call *c)
{
    return c->n_in > 3 && c->in[3].format == PL_I32 && c->attr->block == 0;
}

/* Returns true for attention with sinks, also operand 3. Numbers there are ends
 * or chosen blocks. */
static bool has_sinks(const struct gpu_call *c)
{
    return c->n_in > 3 && c->in[3].format != PL_I32 && c->in[3].at;
}

static uint64_t ends_of(const struct gpu_call *c)
{
    return has_ends(c) ? c->in[3].at : c->pos;
}

/* Returns the largest number of spans that a token attends to. It is limited by
 * the slots of the cache, operand `cache`, by the window, and by the pages of a
 * sequence in this step. */
static int64_t most_spans(const struct gpu_call *c, int cache)
{
    int64_t n = c->in[cache].dim[0];
    int64_t window = c->attr->window, most;
    /* most positions that a token attends to, given the window */
    int64_t seen = has_ends(c) ? 2 * window - 1 : window;
    int64_t n_page = c->table.page_stride;

    if (c->n_page > 0 && (c->n_page < n_page || n_page == 0))
        n_page = c->n_page;
    if (window > 0)
        most = spans_for((seen < n ? seen : n) - 1) + 1;
    else
        most = spans_for(n);
    if (n_page > 0 && spans_for(n_page * PAGE_TOKENS) < most)
        most = spans_for(n_page * PAGE_TOKENS);
    return most;
}

static int64_t levels_up(int64_t n)
{
    return (n + MERGE_STATES - 1) / MERGE_STATES;
}

/* Returns the total number of states on all levels of a merge tree with n
 * leaves. */
static int64_t all_states(int64_t n)
{
    int64_t all = n;

    while (n > MERGE_STATES)
        all += n = levels_up(n);
    return all;
}

/* Returns the size in bytes of all states of a token, with n_state leaves per
 * row. */
static int64_t token_bytes(const struct gpu_call *c, int64_t n_state)
{
    return c->out.dim[1] * all_states(n_state) * (TEXT_SOFT + c->out.dim[2]) *
           4;
}

size_t gpu_attention_scratch(const struct gpu_call *c)
{
    int64_t one = token_bytes(c, most_spans(c, 1));
    int64_t all = c->out.dim[0] * one;
    int64_t most = one > PART_BYTES ? one : PART_BYTES;

    return (size_t)(all < most ? all : most);
}

/* Sets `heads` and `per_kv` from the map of query heads to KV heads, which is
 * NULL if there is one KV head. */
static void set_heads(struct attention *a)
{
    const int32_t *map = a->c->head_map;
    bool in_order = a->n_head % a->n_kv == 0;

    if (!map) {
        a->heads = a->per_kv = (int32_t)a->n_head;
        return;
    }
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

/* Returns true if the values of a position are whole units of 16 bytes, which
 * kernels with stages load. */
static bool has_units(const struct gpu_call *c)
{
    pl_format f = c->in[2].format;

    return c->out.dim[2] * (f == PL_F32 ? 4 : f == PL_Q8_0 ? 1 : 2) % 16 == 0;
}

/* Chooses a kernel without tiles by the number of rows. If there are few tokens
 * per sequence, a group processes one token, because tokens of different
 * sequences share no keys. A kernel computes all of its rows, even unused ones,
 * so the smallest sufficient kernel is chosen. */
static void choose_kernel(struct attention *a, int64_t n_tok, bool latent)
{
    int64_t rows;

    a->direct = a->codes || (!latent && !has_units(a->c));
    a->alone = n_tok <= ALONE || n_tok <= ALONE_EACH * a->c->n_seq;
    rows = a->heads * (a->alone ? 1 : n_tok);
    a->rows = a->direct && latent                  ? MAX_ROWS
              : rows <= 4                          ? 4
              : rows <= 8 && !latent && !a->direct ? 8
                                                   : MAX_ROWS;
    if (a->direct)
        a->kernel = latent         ? GPU_attend_codes_latent
                    : a->rows == 4 ? GPU_attend_codes_4
                                   : GPU_attend_codes_16;
    else if (latent)
        a->kernel = a->rows == 4 ? GPU_attend_latent_4 : GPU_attend_latent_16;
    else
        a->kernel = a->rows == 4   ? GPU_attend_4
                    : a->rows == 8 ? GPU_attend_8
                                   : GPU_attend_16;
}

/* Chooses a tile kernel, for prompts, if the rows of a sequence fill a tile on
 * average. Returns false if tile kernels are not used. */
static bool choose_tile(struct attention *a, int64_t n_tok)
{
    int64_t e = a->c->out.dim[2], n_seq = a->c->n_seq > 0 ? a->c->n_seq : 1;

    if (n_tok <= FEW_TOKENS || a->heads * n_tok < TILE_ROWS * n_seq ||
        e > TILE_COLUMNS || a->codes)
        return false;
    a->rows = TILE_ROWS;
    a->wide = e <= TILE_COLUMNS / 2 ? TILE_COLUMNS / 2 : TILE_COLUMNS;
    a->kernel =
        a->wide == TILE_COLUMNS ? GPU_attend_tile_128 : GPU_attend_tile_64;
    return true;
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
        .ends = ends_of(c),
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
        .n_state = (int32_t)a->n_span,
        .spans = 1,
        .scale = c->attr->scale,
        .softcap = c->attr->softcap};
}

static void set_spans(const struct attention *a, struct attend_args *s,
                      int depth)
{
    s->depth = depth;
    s->spans = 1 << depth;
    s->n_state = (int32_t)((a->n_span + s->spans - 1) >> depth);
}

/* Returns the size in bytes of the scratch memory of a tile kernel's launch for
 * n_tok tokens. */
static int64_t tile_bytes(const struct attention *a,
                          const struct attend_args *s, int64_t n_tok)
{
    int64_t n_group =
        gpu_groups(n_tok, s->tokens) * s->n_part * a->n_kv * s->n_state;

    return n_tok * token_bytes(a->c, s->n_state) +
           n_group * s->depth * TILE_ENTRY((int64_t)a->wide) * 4;
}

/* Chooses the largest number of states per row whose scratch memory fits into
 * PART_BYTES. With a window there is one state per span or one per row. If no
 * number fits, also reduces the tokens per launch. Returns false if even one
 * tile does not fit. */
static bool fit_tiles(struct attention *a, struct attend_args *s, int64_t n_tok)
{
    int most = 0;

    while ((int64_t)1 << most < a->n_span)
        most++;
    for (int depth = 0; depth <= most; depth++) {
        if (a->c->attr->window > 0 && depth > 0)
            depth = most;
        set_spans(a, s, depth);
        if (tile_bytes(a, s, n_tok) <= PART_BYTES) {
            a->part = n_tok;
            return true;
        }
    }
    a->part = n_tok;
    while (a->part > s->tokens && tile_bytes(a, s, a->part) > PART_BYTES)
        a->part = (a->part / 2 + s->tokens - 1) / s->tokens * s->tokens;
    return tile_bytes(a, s, a->part) <= PART_BYTES;
}

/* Lets the last work group of a tile merge the states, if a launch for all
 * tokens has few of each row. Others are merged by a launch of their own, whose
 * groups share the work, and so are those of attend_16, which has no registers
 * left. Returns false if it does not. */
static bool set_tail(const struct attention *a, struct attend_args *s)
{
    const struct gpu_call *c = a->c;
    int64_t n_tok = s->end - s->first;

    if (!c->count || a->wide || a->kernel == GPU_attend_16 || s->per_kv == 0 ||
        n_tok != c->table.n_tok || n_tok > TAIL_ROWS ||
        s->n_state > PART_STATES ||
        (int64_t)s->n_tile * s->n_part * a->n_kv > TAIL_COUNTERS)
        return false;
    s->tail = (struct attend_tail){.count = c->count, .out = c->out.at};
    if (has_sinks(c)) {
        s->tail.sink = c->in[3].at;
        s->tail.sink_format = gpu_format(c->in[3].format);
    }
    return true;
}

/* Adds the launch for the spans of tokens `first` to end - 1. Returns true if
 * it also merges the states. */
static bool add_spans(struct launch_list *l, const struct attention *a,
                      struct attend_args *s, int64_t first, int64_t end)
{
    int64_t n_tok = end - first, others;
    bool merges;

    s->first = (int32_t)first;
    s->end = (int32_t)end;
    s->step = (n_tok <= FEW_TOKENS || a->alone) && !a->wide ? 1 : s->tokens;
    s->n_tile = (int32_t)gpu_groups(n_tok, s->step);
    others = (int64_t)s->n_tile * s->n_part * a->n_kv;
    s->n_span = s->n_state;
    if (others * s->n_span > ENOUGH_GROUPS)
        s->n_span =
            others > ENOUGH_GROUPS ? 1 : (int32_t)(ENOUGH_GROUPS / others);
    s->stack = s->part + (uint64_t)(n_tok * token_bytes(a->c, s->n_state));
    merges = set_tail(a, s);
    gpu_list_add(l, a->kernel, others * s->n_span, s);
    return merges;
}

static void add_tree(struct launch_list *l, const struct attention *a,
                     const struct attend_args *s)
{
    const struct gpu_call *c = a->c;
    const struct gpu_tensor *sink = &c->in[3];
    int64_t n_row = (s->end - s->first) * a->n_head;
    struct attend_merge_args m = {.part = c->scratch,
                                  .out = c->out.at,
                                  .pos = c->pos,
                                  .ends = ends_of(c),
                                  .first = s->first,
                                  .n_head = (int32_t)a->n_head,
                                  .e = (int32_t)c->out.dim[2],
                                  .window = c->attr->window,
                                  .sink_format = gpu_format(sink->format),
                                  .spans = s->spans,
                                  .n_state = s->n_state};

    m.n_column = (int32_t)gpu_groups(m.e, MERGE_COLUMNS);
    for (;;) {
        m.n_block = (int32_t)levels_up(m.n_state);
        if (m.n_block > 1)
            m.next = m.part + (uint64_t)(n_row * m.n_state * a->state_bytes);
        else if (has_sinks(c))
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

/* Creates the launches for tokens from .. to - 1. */
static void attend(struct launch_list *l, const struct gpu_call *c, bool latent,
                   int64_t from, int64_t to)
{
    struct attention a = {.c = c,
                          .n_head = c->out.dim[1],
                          .n_kv = c->in[1].dim[1],
                          .n_span = most_spans(c, 1),
                          .state_bytes = (TEXT_SOFT + c->out.dim[2]) * 4};
    int32_t values = gpu_cache_format(c->in[latent ? 1 : 2].format);
    int64_t n_tok = to - from;
    struct attend_args s;

    if (n_tok == 0 || a.n_head == 0 || a.n_kv == 0)
        return;
    set_heads(&a);
    a.codes =
        gpu_cache_format(c->in[1].format) >= TEXT_CODES || values >= TEXT_CODES;
    if (!latent && choose_tile(&a, n_tok))
        s = spans_of(&a, latent);
    if (!a.wide || !fit_tiles(&a, &s, n_tok)) {
        a.wide = 0;
        choose_kernel(&a, n_tok, latent);
        s = spans_of(&a, latent);
        a.part = PART_BYTES / token_bytes(c, a.n_span);
        if (a.part > s.tokens)
            a.part -= a.part % s.tokens;
        a.part = a.part > 0 ? a.part : 1;
    }
    for (int64_t t = from; t < to; t += a.part) {
        int64_t end = t + a.part < to ? t + a.part : to;

        if (!add_spans(l, &a, &s, t, end))
            add_tree(l, &a, &s);
    }
}

/* ---- chosen positions ---------------------------------------------------- */

/* Operand of compressed attention with the cache of blocks, in the order of
 * latent attention. */
enum { BLOCKS = 4 };

/* The cache of chosen positions in scratch memory. */
struct gathered {
    int64_t n_page, part; /* pages of a token; most tokens at a time */
    size_t tile_bytes;
    /* offsets in the scratch memory: page table, positions and sequences of
     * the tokens; scratch memory of attention */
    size_t pages, pos, seq, rest;
};

static size_t aligned(size_t n)
{
    return (n + 255) / 256 * 256;
}

/* Returns the most keys that a token attends to: chosen ones, or those of a
 * window and blocks (launch_blocks()). */
static int64_t most_gathered(const struct gpu_call *c)
{
    int64_t n = c->in[2].dim[1], ratio = c->attr->ratio, window, all;
    struct graph_attr attr = *c->attr;
    struct gpu_call whole = *c;

    if (ratio == 0)
        return n;
    attr.window = 0;
    whole.attr = &attr;
    whole.n_page = 0; /* as scratch memory is reserved for any step */
    all = most_spans(&whole, 1) * TEXT_SPAN;
    window = c->attr->window < all ? c->attr->window : all;
    return window +
           (c->in[2].format == PL_I32 && n < all / ratio ? n : all / ratio);
}

static struct gathered gathered_of(const struct gpu_call *c)
{
    int64_t n_tok = c->out.dim[0], all;
    struct gathered g = {
        .n_page = (most_gathered(c) + PAGE_TOKENS - 1) / PAGE_TOKENS,
        .tile_bytes = cache_tile_bytes(c->in[1].format, c->in[1].dim[2])};
    size_t bytes = (size_t)(g.n_page * c->in[1].dim[1]) * g.tile_bytes;

    all = bytes > 0 ? PART_BYTES / (int64_t)bytes : n_tok;
    g.part = all < 1 ? 1 : all < n_tok ? all : n_tok;
    g.pages = aligned((size_t)g.part * bytes);
    g.pos = g.pages + aligned((size_t)(g.part * g.n_page) * sizeof(int32_t));
    g.seq = g.pos + aligned((size_t)n_tok * sizeof(int32_t));
    g.rest = g.seq + aligned((size_t)n_tok * sizeof(int32_t));
    return g;
}

/* Returns the call of attention to gathered positions, which has the attributes
 * *attr. */
static struct gpu_call gathered_call(const struct gpu_call *c,
                                     const struct gathered *g,
                                     struct graph_attr *attr)
{
    struct gpu_call own = *c;

    *attr = *c->attr;
    attr->window = 0;
    own.attr = attr;
    own.in[1].at = c->scratch;
    own.in[1].dim[0] = g->part * g->n_page * PAGE_TOKENS;
    own.in[2] = (struct gpu_tensor){0};
    own.n_in = c->attr->ratio > 0 ? 4 : 2;
    own.table.page_stride = own.n_page = g->n_page;
    own.pages = c->scratch + g->pages;
    own.pos = c->scratch + g->pos;
    own.seq = c->scratch + g->seq;
    own.n_seq = g->part;
    own.scratch = c->scratch + g->rest;
    return own;
}

/* Returns true if some token may have more positions than those chosen for it,
 * or attends to blocks. */
static bool has_chosen(const struct gpu_call *c)
{
    if (c->attr->ratio > 0)
        return true;
    return c->n_in > 2 && c->in[2].format == PL_I32 &&
           most_spans(c, 1) * TEXT_SPAN > c->in[2].dim[1];
}

size_t gpu_latent_attention_scratch(const struct gpu_call *c)
{
    size_t all = gpu_attention_scratch(c), chosen;
    struct gathered g;
    struct graph_attr attr;
    struct gpu_call own;

    if (!has_chosen(c))
        return all;
    g = gathered_of(c);
    own = gathered_call(c, &g, &attr);
    chosen = g.rest + gpu_attention_scratch(&own);
    return all > chosen ? all : chosen;
}

static void attend_chosen(struct launch_list *l, const struct gpu_call *c)
{
    const struct gathered g = gathered_of(c);
    struct graph_attr attr;
    const struct gpu_call own = gathered_call(c, &g, &attr);
    struct tile_part part[TILE_PARTS];
    struct chosen_args a = {.cache = c->in[1].at,
                            .chosen = c->in[2].at,
                            .pos = c->pos,
                            .seq = c->seq,
                            .pages = c->pages,
                            .to = c->scratch,
                            .to_pos = own.pos,
                            .to_seq = own.seq,
                            .to_pages = own.pages,
                            .page_stride = c->table.page_stride,
                            .tile_bytes = (int64_t)g.tile_bytes,
                            .n_page = (int32_t)g.n_page,
                            .n_kv = (int32_t)c->in[1].dim[1],
                            .k = (int32_t)c->in[2].dim[1],
                            .unit = 4,
                            .ratio = c->attr->ratio,
                            .window = (int32_t)c->attr->window,
                            .blocks = c->in[BLOCKS].at};
    int64_t n_tok = c->table.n_tok, d = c->in[1].dim[2];
    int32_t at = 0;

    a.n_plane = cache_tile_parts(c->in[1].format, part);
    for (int i = 0; i < a.n_plane; i++) {
        a.plane[i] = at;
        a.bytes[i] = (int32_t)(d / format_info(c->in[1].format)->block) *
                     part[i].n * part[i].size;
        a.unit = a.bytes[i] % 4 ? 2 : a.unit;
        at += a.bytes[i] * PAGE_TOKENS;
    }
    for (int64_t t = 0; t < n_tok; t += g.part) {
        int64_t end = t + g.part < n_tok ? t + g.part : n_tok;

        a.first = (int32_t)t;
        if (c->in[1].dim[1] > 0 && c->out.dim[1] > 0)
            gpu_list_add(l, GPU_chosen_gather, (end - t) * g.n_page, &a);
        attend(l, &own, true, t, end);
    }
}

/* ---- chosen blocks ------------------------------------------------------- */

/* The token table of chosen blocks, and their positions if they are copied. */
struct blocks {
    /* heads: query heads of a group; n_group: groups of a token; n_page: pages
     * of a group; part: most tokens at a time */
    int64_t heads, n_group, n_page, part;
    bool in_order, copies; /* in_order: group g is that of KV head g */
    size_t tile_bytes[2];
    /* offsets in the scratch memory: tiles of values, page table, positions and
     * sequences of the groups; scratch memory of attention */
    size_t values, pages, pos, seq, rest;
};

static struct blocks blocks_of(const struct gpu_call *c)
{
    int64_t n_head = c->out.dim[1], n_kv = c->in[1].dim[1];
    int64_t n_tok = c->out.dim[0], n_pos = c->in[3].dim[2] * c->attr->block;
    int64_t all;
    struct attention a = {.c = c, .n_head = n_head, .n_kv = n_kv};
    struct blocks b = {.copies = c->attr->block % PAGE_TOKENS != 0};
    size_t bytes = 0;

    if (n_head == 0 || n_kv == 0)
        return b;
    set_heads(&a);
    b.in_order = a.per_kv > 0;
    b.heads = b.in_order ? a.per_kv : 1;
    b.n_group = n_head / b.heads;
    /* a token has no more positions than the cache */
    n_pos = n_pos < c->in[1].dim[0] ? n_pos : c->in[1].dim[0];
    b.n_page = (n_pos + PAGE_TOKENS - 1) / PAGE_TOKENS;
    for (int i = 0; i < 2; i++) {
        b.tile_bytes[i] =
            cache_tile_bytes(c->in[1 + i].format, c->in[1 + i].dim[2]);
        bytes += b.copies ? b.tile_bytes[i] * (size_t)(n_kv * b.n_page) : 0;
    }
    all = PART_BYTES /
          ((int64_t)bytes + b.n_group * b.n_page * (int64_t)sizeof(int32_t));
    b.part = all < 1 ? 1 : all < n_tok ? all : n_tok;
    b.values = aligned(
        b.copies ? (size_t)(b.part * n_kv * b.n_page) * b.tile_bytes[0] : 0);
    b.pages = aligned((size_t)b.part * bytes) + 256;
    b.pos = b.pages +
            aligned((size_t)(b.part * b.n_group * b.n_page) * sizeof(int32_t));
    b.seq = b.pos + aligned((size_t)(n_tok * b.n_group) * sizeof(int32_t));
    b.rest = b.seq + aligned((size_t)(n_tok * b.n_group) * sizeof(int32_t));
    return b;
}

/* Returns the call of attention in which each group is a token. */
static struct gpu_call blocks_call(const struct gpu_call *c,
                                   const struct blocks *b)
{
    struct gpu_call own = *c;

    own.out.dim[0] = c->out.dim[0] * b->n_group;
    own.out.dim[1] = own.in[0].dim[1] = b->heads;
    own.in[0].dim[0] = own.out.dim[0];
    for (int i = 1; i < 3; i++) {
        own.in[i].dim[1] = 1;
        own.in[i].dim[0] = b->part * b->n_group * b->n_page * PAGE_TOKENS;
    }
    if (b->copies) {
        own.in[1].at = c->scratch;
        own.in[2].at = c->scratch + b->values;
    }
    own.in[3] = (struct gpu_tensor){0};
    own.n_in = 3;
    own.head_map = NULL;
    own.table.n_tok = c->table.n_tok * b->n_group;
    own.table.page_stride = own.n_page = b->n_page;
    own.pages = c->scratch + b->pages;
    own.pos = c->scratch + b->pos;
    own.seq = c->scratch + b->seq;
    own.n_seq = b->part * b->n_group;
    own.scratch = c->scratch + b->rest;
    return own;
}

/* Returns true if some token may have more blocks than those chosen for it. */
static bool has_blocks(const struct gpu_call *c)
{
    return c->out.dim[1] > 0 && c->in[1].dim[1] > 0 &&
           most_spans(c, 1) * TEXT_SPAN > c->in[3].dim[2] * c->attr->block;
}

size_t gpu_attention_blocks_scratch(const struct gpu_call *c)
{
    size_t all = gpu_attention_scratch(c), chosen;
    struct blocks b;
    struct gpu_call own;

    if (!has_blocks(c))
        return all;
    b = blocks_of(c);
    own = blocks_call(c, &b);
    chosen = b.rest + gpu_attention_scratch(&own);
    return all > chosen ? all : chosen;
}

static void attend_blocks(struct launch_list *l, const struct gpu_call *c)
{
    const struct blocks b = blocks_of(c);
    const struct gpu_call own = blocks_call(c, &b);
    int64_t n_tok = c->table.n_tok, n_kv = c->in[1].dim[1];
    struct blocks_args a = {.chosen = c->in[3].at,
                            .pos = c->pos,
                            .seq = c->seq,
                            .pages = c->pages,
                            .head_map = c->head_map_at,
                            .to_pos = own.pos,
                            .to_seq = own.seq,
                            .to_pages = own.pages,
                            .page_stride = c->table.page_stride,
                            .n_group = (int32_t)b.n_group,
                            .per_kv = b.n_group == n_kv && b.in_order,
                            .n_page = (int32_t)b.n_page,
                            .n_kv = (int32_t)n_kv,
                            .k = (int32_t)c->in[3].dim[2],
                            .block = c->attr->block,
                            .copies = b.copies};

    for (int i = 0; i < 2; i++) {
        pl_format f = c->in[1 + i].format;
        struct tile_part part[TILE_PARTS];
        int32_t at = 0;

        a.cache[i] = c->in[1 + i].at;
        a.to[i] = own.in[1 + i].at;
        a.tile_bytes[i] = (int64_t)b.tile_bytes[i];
        a.n_plane[i] = cache_tile_parts(f, part);
        for (int p = 0; p < a.n_plane[i]; p++) {
            a.plane[i][p] = at;
            a.count[i][p] =
                (int32_t)(c->in[1 + i].dim[2] / format_info(f)->block) *
                part[p].n;
            a.size[i][p] = part[p].size;
            at += a.count[i][p] * part[p].size * PAGE_TOKENS;
        }
    }
    for (int64_t t = 0; t < n_tok; t += b.part) {
        int64_t end = t + b.part < n_tok ? t + b.part : n_tok;

        a.first = (int32_t)t;
        gpu_list_add(l, GPU_blocks_gather, (end - t) * n_kv * b.n_page, &a);
        attend(l, &own, false, t * b.n_group, end * b.n_group);
    }
}

void gpu_launch_attention(struct launch_list *l, const struct gpu_call *c)
{
    attend(l, c, false, 0, c->table.n_tok);
}

void gpu_launch_bidirectional_attention(struct launch_list *l,
                                        const struct gpu_call *c)
{
    attend(l, c, false, 0, c->table.n_tok);
}

void gpu_launch_latent_attention(struct launch_list *l,
                                 const struct gpu_call *c)
{
    if (has_chosen(c))
        attend_chosen(l, c);
    else
        attend(l, c, true, 0, c->table.n_tok);
}

/* Returns the call of compressed attention with the operands in the order of
 * latent attention: keys, chosen blocks, sinks, then the cache of blocks. */
static struct gpu_call compressed_call(const struct gpu_call *c)
{
    struct gpu_call own = *c;

    own.in[2] = c->n_in > 4 ? c->in[4] : (struct gpu_tensor){0};
    own.in[BLOCKS] = c->in[2];
    return own;
}

size_t gpu_compressed_attention_scratch(const struct gpu_call *c)
{
    const struct gpu_call own = compressed_call(c);

    return gpu_latent_attention_scratch(&own);
}

void gpu_launch_compressed_attention(struct launch_list *l,
                                     const struct gpu_call *c)
{
    const struct gpu_call own = compressed_call(c);

    attend_chosen(l, &own);
}

void gpu_launch_block_mean(struct launch_list *l, const struct gpu_call *c)
{
    struct block_mean_args a = {.out = c->out.at,
                                .cache = c->in[0].at,
                                .bias = c->in[2].at,
                                .pos = c->pos,
                                .seq = c->seq,
                                .pages = c->pages,
                                .page_stride = c->table.page_stride,
                                .width = c->in[2].dim[1],
                                .d = c->out.dim[1],
                                .ratio = (int32_t)c->in[2].dim[0],
                                .format = gpu_format(c->in[2].format)};

    gpu_list_add(l, GPU_block_mean, c->table.n_tok * gpu_groups(a.d, 256), &a);
}

void gpu_launch_attention_blocks(struct launch_list *l,
                                 const struct gpu_call *c)
{
    if (has_blocks(c))
        attend_blocks(l, c);
    else
        attend(l, c, false, 0, c->table.n_tok);
}

/* ---- the choice of positions --------------------------------------------- */

/* The ranks of an indexer in scratch memory. */
struct ranks {
    /* keys: operand with the cache; block, n_row: as in index_args; n_pos: most
     * positions of a sequence, in whole spans; n_block: most blocks, 0 in
     * index_topk; part: most tokens at a time */
    int64_t keys, block, n_row, n_pos, n_block, part;
};

static struct ranks ranks_of(const struct gpu_call *c)
{
    bool blocks = c->attr->block > 0;
    struct ranks r = {.keys = blocks ? 1 : 2,
                      .block = blocks ? c->attr->block : 1,
                      .n_row = blocks ? c->in[0].dim[1] : 1};
    int64_t n_tok = c->out.dim[0], n;

    r.n_pos = most_spans(c, (int)r.keys) * TEXT_SPAN;
    r.n_block = blocks ? (r.n_pos + r.block - 1) / r.block : 0;
    n = r.n_row > 0 ? PART_BYTES / (r.n_row * (r.n_pos + r.n_block) * 4) : 1;
    r.part = n < 1 ? 1 : n < n_tok ? n : n_tok;
    return r;
}

size_t gpu_index_scratch(const struct gpu_call *c)
{
    struct ranks r = ranks_of(c);
    int64_t one = r.n_row * (r.n_pos + r.n_block) * 4;
    int64_t all = c->out.dim[0] * one;
    int64_t most = one > PART_BYTES ? one : PART_BYTES;

    return (size_t)(all < most ? all : most);
}

static void choose(struct launch_list *l, const struct gpu_call *c)
{
    const struct ranks r = ranks_of(c);
    const struct gpu_tensor *keys = &c->in[r.keys];
    struct index_args a = {
        .q = c->in[0].at,
        .w = r.n_block ? 0 : c->in[1].at,
        .keys = keys->at,
        .pos = c->pos,
        .seq = c->seq,
        .pages = c->pages,
        .score = c->scratch,
        .best = r.n_block
                    ? c->scratch + (uint64_t)(r.part * r.n_row * r.n_pos * 4)
                    : 0,
        .out = c->out.at,
        .page_stride = c->table.page_stride,
        .key_bytes = (int64_t)cache_tile_bytes(keys->format, keys->dim[2]),
        .n_pos = r.n_pos,
        .n_block = r.n_block,
        .n_span = (int32_t)(r.n_pos / TEXT_SPAN),
        .n_head = (int32_t)c->in[0].dim[1],
        .d = (int32_t)c->in[0].dim[2],
        .key_format = gpu_cache_format(keys->format),
        .k = (int32_t)c->out.dim[c->out.n_dim - 1],
        .block = (int32_t)r.block,
        .ratio = c->attr->ratio > 1 ? c->attr->ratio : 1,
        .local = c->attr->local,
        .n_row = (int32_t)r.n_row};
    int64_t n_tok = r.n_row > 0 ? c->table.n_tok : 0;

    for (int64_t t = 0; t < n_tok; t += r.part) {
        int64_t n = t + r.part < n_tok ? r.part : n_tok - t;

        a.first = (int32_t)t;
        if (a.n_pos > a.k * r.block)
            gpu_list_add(l, GPU_index_score, n * a.n_span, &a);
        if (a.n_pos > a.k * r.block && a.best)
            gpu_list_add(l, GPU_index_fold,
                         n * r.n_row * gpu_groups(r.n_block, 256), &a);
        gpu_list_add(l, GPU_index_choose, n * r.n_row, &a);
    }
}

void gpu_launch_index_topk(struct launch_list *l, const struct gpu_call *c)
{
    choose(l, c);
}

void gpu_launch_index_blocks(struct launch_list *l, const struct gpu_call *c)
{
    choose(l, c);
}
