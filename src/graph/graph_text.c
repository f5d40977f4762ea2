/* Prints the text form of graphs. It has one line per tensor:
 *
 *   x: f32[n_tok, 64] = input
 *   w: q8_0[128, 64] = weight role=ffn_up layer=0
 *   k: f16[n_slot, 4, 32] = memory values=0
 *   m: f16[n_slot1, 4, 32] = memory values=0 window=64
 *   y: f32[n_tok, 128] = matmul(x, w) layer=0 !output
 *   z: f32[n_tok, 128] = rms_norm(y) eps=1e-06 !want=split(1: 96{0} 32{1,2})
 *
 * Attributes (struct graph_attr) follow the operands as NAME=VALUE. Attributes
 * that are zero are omitted, and so is the layer of a tensor without one. An
 * optional operand that is absent is omitted if it is the last, else written as
 * '-'. Marks are !output, !keep, !aside and !want=LAYOUT. A name with
 * characters other than letters, digits and "._-/+" is quoted; unprintable
 * characters are written as \xHH. '#' starts a comment. If a printed text is
 * parsed and printed again, the result is the same text, because floats are
 * printed with enough digits. The parser infers shapes again and compares them
 * with the text; only those of reshape and slice are taken from the text.
 *
 * graph_parse.c parses this form. A textual intermediate form, by which every
 * pass can be tested, is an idea of QBE. */
#include "graph/graph_text.h"

#include "base/ascii.h"
#include "base/err.h"
#include "base/half.h"
#include "graph/graph.h"
#include "graph/shape.h"
#include "quant/format.h"

#include <inttypes.h>
#include <string.h>

const char *const graph_role_names[PL_ROLE_COUNT] = {
#define ROLE_NAME(name) #name,
    PL_ROLE_MAP(ROLE_NAME)
#undef ROLE_NAME
};

bool graph_text_plain(char c)
{
    return (c & 0x80) == 0 &&
           (ascii_is_letter_or_digit(c) || (c && strchr("._-/+", c)));
}

static void put_name(struct text_out *o, const char *name)
{
    bool quote = !strcmp(name, "-");

    for (const char *s = name; *s; s++)
        quote |= !graph_text_plain(*s);
    if (quote)
        text_put_char(o, '"');
    for (const char *s = name; *s; s++) {
        unsigned char c = (unsigned char)*s;

        if (c == '"' || c == '\\')
            text_put(o, "\\%c", c);
        else if (c < 32 || c > 126)
            text_put(o, "\\x%02x", c);
        else
            text_put_char(o, *s);
    }
    if (quote)
        text_put_char(o, '"');
}

static void put_float(struct text_out *o, const char *name, float v)
{
    if (float_bits(v) == 0)
        return;
    text_put(o, " %s=", name);
    text_put_float(o, v);
}

static void put_int(struct text_out *o, const char *name, int64_t v)
{
    if (v != 0)
        text_put(o, " %s=%" PRId64, name, v);
}

void graph_put_attr(struct text_out *o, const struct graph_attr *a)
{
#define PUT(type, name)                                                        \
    _Generic(a->name, float : put_float, default : put_int)(o, #name, a->name);
    GRAPH_ATTR_MAP(PUT)
#undef PUT
}

static void put_layout(struct text_out *o, const pl_layout *l)
{
    if (l->kind != PL_SPLIT) {
        text_put(o, " !want=%s",
                 l->kind == PL_PARTIAL ? "partial" : "mirrored");
        return;
    }
    text_put(o, " !want=split(%d:", l->dim);
    for (int i = 0; i < l->n_run; i++) {
        const char *comma = "";

        text_put(o, " %" PRId64 "{", l->run[i].len);
        for (int r = 0; r < PL_MAX_RANKS; r++)
            if (l->run[i].owners >> r & 1) {
                text_put(o, "%s%d", comma, r);
                comma = ",";
            }
        text_put(o, "}");
    }
    text_put(o, ")");
}

static void put_node(struct text_out *o, const pl_graph *g,
                     const struct graph_node *n)
{
    char d[32];

    put_name(o, n->name);
    text_put(o, ": ");
    text_put_lower(o, format_info(n->format)->name);
    for (int i = 0; i < n->n_dim; i++)
        text_put(o, "%s%s", i ? ", " : "[", dim_print(n->dim[i], d));
    text_put(o, "] = ");
    for (const char *c = graph_op_name(n); *c; c++)
        text_put_char(o, *c);
    for (int i = 0; i < n->n_in; i++) {
        text_put(o, "%s", i ? ", " : "(");
        put_name(o, g->node[n->in[i]].name);
    }
    if (n->n_in > 0)
        text_put(o, ")");
    if (n->op == OP_memory && !n->attr.values)
        text_put(o, " values=0");
    graph_put_attr(o, &n->attr);
    if ((n->op == OP_weight || n->attr.state ||
         n->role == PL_ROLE_CACHE_INDEX) &&
        n->role != PL_ROLE_NONE) {
        text_put(o, " role=");
        text_put_lower(o, graph_role_names[n->role]);
    }
    if (n->layer >= 0)
        text_put(o, " layer=%d", n->layer);
    if (n->output)
        text_put(o, " !output");
    if (n->keep)
        text_put(o, " !keep");
    if (n->aside)
        text_put(o, " !aside");
    if (n->want)
        put_layout(o, n->want);
    text_put(o, "\n");
}

pl_status pl_graph_print(const pl_graph *g, pl_write_fn *write, void *user,
                         pl_err *err)
{
    struct text_out o = {.write = write, .user = user};

    PL_NEED(g, err);
    PL_NEED(write, err);
    PL_TRY(pl_graph_check(g, err));
    for (int i = 0; i < g->n_node; i++)
        put_node(&o, g, &g->node[i]);
    text_flush(&o);
    return PL_OK;
}
