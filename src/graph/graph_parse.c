/* Parses the text form of graphs, which graph_text.c describes.
 *
 * The input may be any bytes. If it is not a valid graph, the error names the
 * line and the word. Tensors are created by the same functions as those of
 * builders, so that the parser rejects whatever builders reject. The inferred
 * shape and format must be those in the text. Words are allocated in an arena
 * that is freed at the end of each line. */
#include "base/ascii.h"
#include "base/err.h"
#include "base/numeral.h"
#include "graph/graph.h"
#include "graph/graph_text.h"
#include "graph/shape.h"
#include "quant/format.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct parse {
    pl_graph *g;
    const char *p; /* current position in the text */
    int line;
    int n_def; /* number of elements of `def`, the definitions of custom ops
                  that the text may use */
    const pl_op_def *const *def;
    struct arena arena; /* owns the words of the current line */
    pl_err *err;
    pl_status status; /* status of the first error, PL_OK if there was none */
};

/* The contents of one line, which defines one tensor. */
struct line {
    const char *name;
    enum op op;
    const pl_op_def *def; /* definition of the custom op if `op` is OP_custom */
    pl_format format;
    int n_dim, n_in;
    pl_dim dim[GRAPH_MAX_DIM];
    pl_tensor in[GRAPH_MAX_IN];
    struct graph_attr attr;
    pl_role role;
    int layer; /* layer of the tensor, -1 if the line names none */
    bool output, keep, aside;
    bool has_want;
    pl_layout want; /* requested layout; its intervals are in the parser's
                       arena */
};

/* Sets the error, such as "line 3: ...", if it is the first one. Returns
 * false. */
__attribute__((format(printf, 3, 4))) static bool
bad(struct parse *p, pl_status s, const char *fmt, ...)
{
    char text[600];
    va_list ap;

    if (p->status != PL_OK)
        return false;
    va_start(ap, fmt);
    numeral_vprint(text, sizeof text, fmt, ap);
    va_end(ap);
    p->status = err_set(p->err, s, "line %d: %s", p->line, text);
    return false;
}

/* Skips blanks and a comment, but not the newline after them. */
static void skip_blanks(struct parse *p)
{
    while (*p->p == ' ' || *p->p == '\t' || *p->p == '\r')
        p->p++;
    if (*p->p == '#')
        p->p += strcspn(p->p, "\n");
}

static bool at_end(struct parse *p)
{
    skip_blanks(p);
    return *p->p == '\n' || *p->p == '\0';
}

/* Writes the text at the parser's position, up to the next blank, in quotes to
 * `buf` for a message. Returns `buf`, or "the end of the line". */
static const char *here(struct parse *p, char buf[40])
{
    size_t n;

    if (at_end(p))
        return "the end of the line";
    n = strcspn(p->p, " \t\r\n");
    snprintf(buf, 40, "'%.*s'", (int)(n < 36 ? n : 36), p->p);
    for (char *s = buf; *s; s++)
        if ((unsigned char)*s < 32)
            *s = '?';
    return buf;
}

static bool expected(struct parse *p, const char *what)
{
    char buf[40];

    return bad(p, PL_BAD_ARGUMENT, "%s where %s is expected", here(p, buf),
               what);
}

static bool accept(struct parse *p, char c)
{
    skip_blanks(p);
    if (*p->p != c || c == '\0')
        return false;
    p->p++;
    return true;
}

static bool need(struct parse *p, char c)
{
    char what[] = {'\'', c, '\'', '\0'};

    return accept(p, c) || expected(p, what);
}

static int hex(unsigned char c)
{
    return isdigit(c)    ? c - '0'
           : isxdigit(c) ? ascii_lower((char)c) - 'a' + 10
                         : -1;
}

/* Parses a name in quotes, whose opening quote has been read. Returns the name,
 * or NULL after an error. */
static const char *quoted(struct parse *p)
{
    size_t n = 0, max = strcspn(p->p, "\n");
    char *w = arena_alloc(&p->arena, max + 1, 1);

    if (!w) {
        bad(p, PL_NO_MEMORY, "out of memory for a name");
        return NULL;
    }
    while (*p->p && *p->p != '\n' && *p->p != '"') {
        const unsigned char *s = (const unsigned char *)p->p;

        if (*s != '\\') {
            w[n++] = *p->p++;
        } else if (s[1] == '"' || s[1] == '\\') {
            w[n++] = (char)s[1];
            p->p += 2;
        } else if (s[1] == 'x' && hex(s[2]) >= 0 && hex(s[3]) >= 0 &&
                   hex(s[2]) + hex(s[3]) > 0) {
            w[n++] = (char)(hex(s[2]) * 16 + hex(s[3]));
            p->p += 4;
        } else {
            expected(p, "\\\", \\\\ or \\x01 to \\xff");
            return NULL;
        }
    }
    if (*p->p != '"' || n == 0) {
        expected(p, "a name and its closing quote");
        return NULL;
    }
    p->p++;
    return w;
}

/* Parses a word, which is a name in quotes or a sequence of plain characters.
 * `what` describes the expected word in the error. Returns the word, or NULL
 * after an error. */
static const char *word(struct parse *p, const char *what)
{
    size_t n = 0;
    const char *w;

    if (accept(p, '"'))
        return quoted(p);
    while (graph_text_plain(p->p[n]))
        n++;
    if (n == 0) {
        expected(p, what);
        return NULL;
    }
    w = arena_strndup(&p->arena, p->p, n);
    if (!w)
        bad(p, PL_NO_MEMORY, "out of memory for a name");
    else
        p->p += n;
    return w;
}

static bool integer(struct parse *p, int64_t lo, int64_t hi, int64_t *out)
{
    char *end;
    long long v;

    skip_blanks(p);
    errno = 0;
    v = strtoll(p->p, &end, 10);
    if (end == p->p || ascii_is_blank(*p->p))
        return expected(p, "an integer");
    if (errno || v < lo || v > hi)
        return bad(p, PL_BAD_ARGUMENT,
                   "'%.*s' is outside %" PRId64 " .. %" PRId64,
                   (int)(end - p->p < 30 ? end - p->p : 30), p->p, lo, hi);
    p->p = end;
    *out = v;
    return true;
}

/* Parses a dimension: "n_tok", "64" or "4*n_tok". */
static bool dimension(struct parse *p, pl_dim *d)
{
    *d = (pl_dim){1, PL_CONST};
    skip_blanks(p);
    if (isdigit((unsigned char)*p->p)) {
        if (!integer(p, 1, INT64_MAX, &d->n))
            return false;
        if (!accept(p, '*'))
            return true;
    }
    skip_blanks(p);
    for (int i = PL_N_TOK; i < (int)GRAPH_N_SEQ; i++) {
        size_t n = strlen(dim_symbols[i]);

        if (!strncmp(p->p, dim_symbols[i], n) && !graph_text_plain(p->p[n])) {
            p->p += n;
            d->symbol = (pl_symbol)i;
            return true;
        }
    }
    return expected(p, "a size, n_tok, n_out or n_slot");
}

/* Parses a set of ranks such as "{0,2}", after its opening brace. */
static bool owners(struct parse *p, uint64_t *out)
{
    int64_t r;

    *out = 0;
    do {
        if (!integer(p, 0, PL_MAX_RANKS - 1, &r))
            return false;
        *out |= (uint64_t)1 << r;
    } while (accept(p, ','));
    return need(p, '}');
}

/* Parses a layout: "mirrored", "partial" or "split(1: 32{0} 32{1,2})". */
static bool layout(struct parse *p, pl_layout *l)
{
    const char *kind = word(p, "mirrored, partial or split(...)");
    int64_t dim;
    int cap = 0;
    pl_interval *run = NULL;

    *l = (pl_layout){.kind = PL_MIRRORED};
    if (!kind)
        return false;
    if (!strcmp(kind, "mirrored"))
        return true;
    l->kind = PL_PARTIAL;
    if (!strcmp(kind, "partial"))
        return true;
    l->kind = PL_SPLIT;
    if (strcmp(kind, "split") != 0)
        return bad(
            p, PL_BAD_ARGUMENT,
            "unknown layout '%.40s'; use mirrored, partial or split(...)",
            kind);
    if (!need(p, '(') || !integer(p, 0, GRAPH_MAX_DIM - 1, &dim) ||
        !need(p, ':'))
        return false;
    l->dim = (int)dim;
    while (!accept(p, ')')) {
        if (l->n_run == cap) { /* Grows the array of intervals. The smaller
                                  array stays in the arena unused. */
            pl_interval *more;

            cap = cap ? 2 * cap : 8;
            more = arena_alloc(&p->arena, (size_t)cap, sizeof *more);
            if (!more)
                return bad(p, PL_NO_MEMORY, "out of memory for a layout");
            if (run)
                memcpy(more, run, (size_t)l->n_run * sizeof *run);
            l->run = run = more;
        }
        if (!integer(p, 1, (int64_t)1 << 46, &run[l->n_run].len) ||
            !need(p, '{') || !owners(p, &run[l->n_run].owners))
            return false;
        if (__builtin_add_overflow(l->period, run[l->n_run].len, &l->period))
            return bad(p, PL_BAD_ARGUMENT, "the layout's period is too long");
        l->n_run++;
    }
    return true;
}

static bool mark(struct parse *p, struct line *l)
{
    const char *w = word(p, "output, keep, aside or want=");

    if (!w)
        return false;
    if (!strcmp(w, "output"))
        return l->output = true;
    if (!strcmp(w, "keep"))
        return l->keep = true;
    if (!strcmp(w, "aside"))
        return l->aside = true;
    if (strcmp(w, "want") != 0)
        return bad(p, PL_BAD_ARGUMENT,
                   "unknown mark '!%.40s'; use !output, !keep, !aside or "
                   "!want=",
                   w);
    return l->has_want = need(p, '=') && layout(p, &l->want);
}

static bool read_float(struct parse *p, float *out)
{
    char *end;

    skip_blanks(p);
    *out = numeral_float(p->p, &end);
    if (end == p->p || ascii_is_blank(*p->p))
        return expected(p, "a number");
    p->p = end;
    return true;
}

static bool read_int(struct parse *p, int *out)
{
    int64_t v;

    if (!integer(p, INT32_MIN, INT32_MAX, &v))
        return false;
    *out = (int)v;
    return true;
}

static bool read_int64(struct parse *p, int64_t *out)
{
    return integer(p, INT64_MIN, INT64_MAX, out);
}

static bool read_role(struct parse *p, struct line *l)
{
    const char *w = word(p, "a role");
    int r = 0;

    if (!w)
        return false;
    while (r < PL_ROLE_COUNT && !ascii_same(graph_role_names[r], w))
        r++;
    if (r == PL_ROLE_COUNT)
        return bad(p, PL_BAD_ARGUMENT, "unknown role '%.40s'", w);
    l->role = (pl_role)r;
    return true;
}

/* Parses an attribute, such as "eps=1e-06" or "role=ffn_up". */
static bool attribute(struct parse *p, struct line *l)
{
    const char *w = word(p, "an attribute or a mark");
    int64_t layer;

    if (!w || !need(p, '='))
        return false;
    if (!strcmp(w, "layer")) {
        if (!integer(p, 0, GRAPH_MAX_LAYER - 1, &layer))
            return false;
        l->layer = (int)layer;
        return true;
    }
    if (l->def)
        return bad(p, PL_BAD_ARGUMENT, "%.40s has no attribute '%.40s'",
                   l->def->name, w);
    if (l->op == OP_input || l->op == OP_weight || l->op == OP_memory) {
        if (!strcmp(w, "state") && l->op == OP_memory)
            return read_int(p, &l->attr.state);
        if (!strcmp(w, "role") && (l->op == OP_weight || l->op == OP_memory))
            return read_role(p, l);
        if (!strcmp(w, "values") && l->op == OP_memory)
            return read_int(p, &l->attr.values);
        if (!strcmp(w, "window") && l->op == OP_memory)
            return read_int64(p, &l->attr.window);
        return bad(p, PL_BAD_ARGUMENT, "%s has no attribute '%.40s'",
                   op_info(l->op)->name, w);
    }
#define READ(type, name)                                                       \
    if (!strcmp(w, #name))                                                     \
        return _Generic(l->attr.name, float                                    \
                        : read_float, int                                      \
                        : read_int, default                                    \
                        : read_int64)(p, &l->attr.name);
    GRAPH_ATTR_MAP(READ)
#undef READ
    return bad(p, PL_BAD_ARGUMENT, "unknown attribute '%.40s'", w);
}

/* Parses format and shape, such as "f32[n_tok, 64]". */
static bool type(struct parse *p, struct line *l)
{
    const char *w = word(p, "a format");

    if (!w)
        return false;
    l->format = format_from_name(w);
    if (l->format == PL_FORMAT_COUNT)
        return bad(p, PL_BAD_ARGUMENT, "unknown format '%.40s'", w);
    if (!need(p, '['))
        return false;
    do {
        if (l->n_dim == GRAPH_MAX_DIM)
            return expected(p, "']' after four dimensions");
        if (!dimension(p, &l->dim[l->n_dim++]))
            return false;
    } while (accept(p, ','));
    return need(p, ']');
}

/* Parses an op with its operands, such as "matmul(x, w)" or "input". */
static bool operation(struct parse *p, struct line *l)
{
    const char *w = word(p, "an operation");

    if (!w)
        return false;
    l->op = op_from_name(w);
    for (int i = 0; i < p->n_def && l->op == OP_COUNT; i++)
        if (p->def[i]->name && !strcmp(p->def[i]->name, w)) {
            l->op = OP_custom;
            l->def = p->def[i];
        }
    if (l->op == OP_COUNT || (l->op == OP_custom && !l->def))
        return bad(p, PL_BAD_ARGUMENT,
                   "unknown operation '%.40s'; a custom one needs its "
                   "definition (pl_graph_parse_ops)",
                   w);
    if (l->op == OP_input || l->op == OP_weight || l->op == OP_memory)
        return true;
    if (!need(p, '('))
        return false;
    do {
        if (l->n_in == GRAPH_MAX_IN)
            return expected(p, "')' after the last operand");
        skip_blanks(p);
        l->in[l->n_in] = -1;
        if (*p->p == '-' && !graph_text_plain(p->p[1])) {
            p->p++;
        } else {
            w = word(p, "an operand");
            if (!w)
                return false;
            l->in[l->n_in] = pl_tensor_find(p->g, w);
            if (l->in[l->n_in] < 0)
                return bad(p, PL_BAD_ARGUMENT,
                           "operand '%.80s' is not defined above", w);
        }
        l->n_in++;
    } while (accept(p, ','));
    return need(p, ')');
}

static pl_tensor make(struct parse *p, const struct line *l)
{
    int64_t dim[GRAPH_MAX_DIM];
    bool given = l->op == OP_reshape || l->op == OP_slice;
    pl_tensor t;

    for (int i = 0; i < l->n_dim; i++)
        dim[i] = l->dim[i].n;
    switch (l->op) {
    case OP_input:
        return pl_input(p->g, l->name, l->format, l->n_dim, l->dim);
    case OP_weight:
        return pl_weight(p->g, l->name, l->format, l->n_dim, dim, l->role);
    case OP_memory:
        if (l->n_dim != 3) {
            bad(p, PL_BAD_ARGUMENT, "a memory is [n_slot, n_head, d_head]");
            return -1;
        }
        if (l->attr.state)
            return pl_state(p->g, l->name, dim[1], dim[2], l->role);
        if (l->role != PL_ROLE_NONE &&
            (l->role != PL_ROLE_CACHE_INDEX || dim[1] != 1)) {
            bad(p, PL_BAD_ARGUMENT,
                "only a cache with one head may have a role, cache_index");
            return -1;
        }
        return graph_cache(p->g, l->name, l->format, dim[1], dim[2],
                           l->attr.values, l->attr.window, l->role);
    default:
        t = l->def ? pl_custom(p->g, l->def, l->n_in, l->in)
                   : graph_make(p->g, l->op, l->n_in, l->in, &l->attr,
                                given ? l->n_dim : 0, l->dim);
        pl_name(p->g, t, l->name);
        return t;
    }
}

/* Checks that the new tensor has the shape and format in the text. */
static bool check(struct parse *p, const struct line *l, pl_tensor t)
{
    const struct graph_node *n = &p->g->node[t];
    char a[32], b[32];

    if (n->format != l->format)
        return bad(p, PL_BAD_ARGUMENT, "%s of '%.80s' should be %s by %s",
                   format_info(l->format)->name, l->name,
                   format_info(n->format)->name, graph_op_name(n));
    if (n->n_dim != l->n_dim)
        return bad(p, PL_BAD_ARGUMENT,
                   "%d dimensions of '%.80s' should be %d by %s", l->n_dim,
                   l->name, n->n_dim, graph_op_name(n));
    for (int i = 0; i < n->n_dim; i++)
        if (!dim_equal(n->dim[i], l->dim[i]))
            return bad(p, PL_BAD_ARGUMENT,
                       "dimension %d of '%.80s' is %s, but should be %s by %s",
                       i, l->name, dim_print(l->dim[i], a),
                       dim_print(n->dim[i], b), graph_op_name(n));
    return true;
}

static bool tensor(struct parse *p)
{
    struct line l = {.layer = -1};
    pl_tensor t;

    l.name = word(p, "a name");
    if (!l.name || !need(p, ':') || !type(p, &l) || !need(p, '=') ||
        !operation(p, &l))
        return false;
    while (!at_end(p))
        if (accept(p, '!') ? !mark(p, &l) : !attribute(p, &l))
            return false;
    pl_layer(p->g, l.layer);
    t = make(p, &l);
    if (t >= 0 && l.has_want)
        pl_want_layout(p->g, t, &l.want);
    if (p->g->err.status != PL_OK)
        return bad(p, p->g->err.status, "%s", p->g->err.message);
    if (t < 0 || !check(p, &l, t))
        return false;
    p->g->node[t].output = l.output;
    p->g->node[t].keep = l.keep;
    p->g->node[t].aside = l.aside;
    return true;
}

pl_status pl_graph_parse(pl_graph **out, const char *text, pl_err *err)
{
    PL_CLEAR(out);
    PL_NEED(out, err);
    PL_NEED(text, err);
    return pl_graph_parse_ops(out, text, 0, NULL, err);
}

pl_status pl_graph_parse_ops(pl_graph **out, const char *text, int n_def,
                             const pl_op_def *const *def, pl_err *err)
{
    struct parse p = {.p = text, .n_def = n_def, .def = def, .err = err};

    PL_CLEAR(out);
    PL_NEED(out, err);
    PL_NEED(text, err);
    PL_NEED_ARRAY(def, n_def, err);
    for (int i = 0; i < n_def; i++)
        PL_NEED(def[i], err);
    if (n_def < 0)
        return err_set(err, PL_BAD_ARGUMENT,
                       "n_def is %d; give the number of definitions, or 0",
                       n_def);
    PL_TRY(pl_graph_create(&p.g, err));
    for (p.line = 1; *p.p && p.status == PL_OK; p.line++) {
        if (!at_end(&p))
            tensor(&p);
        arena_fini(&p.arena);
        arena_init(&p.arena);
        if (*p.p == '\n')
            p.p++;
    }
    if (p.status != PL_OK)
        pl_graph_free(p.g);
    else
        *out = p.g;
    return p.status;
}
