/* Pass "specialize"; see variants.h. */
#include "lower/variants.h"

#include "base/err.h"
#include "base/text_out.h"
#include "program/program_lex.h"

#include <inttypes.h>

enum { PIPELINE_MICRO = 8, STREAM_FROM = 2 };

static const char *const kinds[VARIANT_COUNT] = {
    [VARIANT_RESIDENT] = "resident",
    [VARIANT_STREAMED] = "streamed",
    [VARIANT_PIPELINED] = "pipelined",
};

bool variants_add_leaf(struct variants *v, struct arena *a,
                       const struct variant_leaf *leaf)
{
    struct variant_leaf *p =
        arena_extended(a, v->leaf, (size_t)v->n_leaf, sizeof *p);

    if (!p)
        return false;
    v->leaf = p;
    p[v->n_leaf++] = *leaf;
    return true;
}

/* ---- the pass ------------------------------------------------------------ */

/* A pipeline needs layers in several groups. Only what the host keeps of other
 * groups' layers is streamed. */
void variants_choose(struct variants *v)
{
    bool pipeline = false, stream = false;

    for (int i = 1; i < v->n_layer; i++)
        pipeline |= v->layer[i] != v->layer[0];
    for (int i = 0; i < v->n_leaf; i++) {
        struct variant_leaf *l = &v->leaf[i];

        l->streamed = v->may_stream && l->home == v->host &&
                      v->layer[l->layer] != v->host;
        stream |= l->streamed;
    }
    v->n_micro[VARIANT_RESIDENT] = 1;
    v->n_micro[VARIANT_STREAMED] = stream;
    v->n_micro[VARIANT_PIPELINED] = pipeline ? PIPELINE_MICRO : 0;
    v->stream_from = STREAM_FROM;
}

enum variant_kind variants_of_step(const struct variants *v, int n_micro,
                                   int64_t n_tok)
{
    if (n_micro > 1)
        return VARIANT_PIPELINED;
    return v->n_micro[VARIANT_STREAMED] && n_tok >= v->stream_from
               ? VARIANT_STREAMED
               : VARIANT_RESIDENT;
}

/* ---- printing ------------------------------------------------------------ */

pl_status variants_print(const struct variants *v, pl_write_fn *write,
                         void *user)
{
    struct text_out o = {.write = write, .user = user};

    text_put(&o, "variants layers");
    for (int i = 0; i < v->n_layer; i++)
        text_put(&o, "%s %d", i == 0 ? "" : i % 16 ? "," : ",\n ", v->layer[i]);
    if (v->host >= 0)
        text_put(&o, " host %d", v->host);
    text_put(&o, "%s\n", v->may_stream ? " stream" : "");
    for (int i = 0; i < v->n_leaf; i++) {
        const struct variant_leaf *l = &v->leaf[i];

        text_put(&o, "leaf %d: layer %d in %d%s\n", l->node, l->layer, l->home,
                 l->streamed ? " streamed" : "");
    }
    for (int k = 0; k < VARIANT_COUNT; k++) {
        if (v->n_micro[k] == 0)
            continue;
        text_put(&o, "%s", kinds[k]);
        if (v->n_micro[k] > 1)
            text_put(&o, " micro %d", v->n_micro[k]);
        if (k == VARIANT_STREAMED)
            text_put(&o, " n_tok %" PRId64 "..", v->stream_from);
        text_put(&o, "\n");
    }
    text_flush(&o);
    return PL_OK;
}

/* ---- parsing ------------------------------------------------------------- */

enum { MAX_GROUP = 1024, MAX_NODE = 1 << 20 };

struct read_variants {
    struct lex x;
    struct arena *a;
    struct variants *v;
};

static bool no_memory(struct read_variants *r)
{
    if (r->x.status == PL_OK)
        r->x.status = err_no_memory(r->x.err, "the text of variants");
    return false;
}

static bool need_word(struct lex *x, const char *word)
{
    return lex_accept_word(x, word) || lex_expected(x, word);
}

static bool read_header(struct read_variants *r)
{
    struct variants *v = r->v;

    if (!lex_line(&r->x) || !lex_accept_word(&r->x, "variants") ||
        !lex_accept_word(&r->x, "layers"))
        return lex_expected(&r->x, "variants layers");
    do {
        int *p = arena_extended(r->a, (int *)v->layer, (size_t)v->n_layer,
                                sizeof *p);

        if (!p)
            return no_memory(r);
        v->layer = p;
        if (!lex_below(&r->x, MAX_GROUP, &p[v->n_layer++]))
            return false;
    } while (lex_accept(&r->x, ','));
    v->host = -1;
    if (lex_accept_word(&r->x, "host") &&
        !lex_below(&r->x, MAX_GROUP, &v->host))
        return false;
    v->may_stream = lex_accept_word(&r->x, "stream");
    return lex_need_end(&r->x);
}

static bool read_leaf(struct read_variants *r)
{
    struct variant_leaf l;

    if (!lex_below(&r->x, MAX_NODE, &l.node) || !lex_need(&r->x, ':') ||
        !need_word(&r->x, "layer") ||
        !lex_below(&r->x, r->v->n_layer, &l.layer) || !need_word(&r->x, "in") ||
        !lex_below(&r->x, MAX_GROUP, &l.home))
        return false;
    l.streamed = lex_accept_word(&r->x, "streamed");
    return variants_add_leaf(r->v, r->a, &l) ? lex_need_end(&r->x)
                                             : no_memory(r);
}

static bool read_kind(struct read_variants *r, enum variant_kind k)
{
    int64_t micro = 1;

    if (lex_accept_word(&r->x, "micro") && !lex_int(&r->x, 1, 16, &micro))
        return false;
    r->v->n_micro[k] = (int)micro;
    if (k == VARIANT_STREAMED &&
        (!need_word(&r->x, "n_tok") ||
         !lex_int(&r->x, 0, INT32_MAX, &r->v->stream_from) ||
         !lex_need(&r->x, '.') || !lex_need(&r->x, '.')))
        return false;
    return lex_need_end(&r->x);
}

static bool read_line(struct read_variants *r)
{
    if (lex_accept_word(&r->x, "leaf"))
        return read_leaf(r);
    for (int k = 0; k < VARIANT_COUNT; k++)
        if (lex_accept_word(&r->x, kinds[k]))
            return read_kind(r, (enum variant_kind)k);
    return lex_expected(&r->x, "a leaf or a variant");
}

pl_status variants_parse(struct variants **out, struct arena *a,
                         const char *text, size_t len, pl_err *err)
{
    struct read_variants r = {.x = {.at = text,
                                    .begin = text,
                                    .end = text + len,
                                    .line = 1,
                                    .err = err},
                              .a = a,
                              .v = arena_alloc(a, 1, sizeof *r.v)};

    *out = NULL;
    if (!r.v)
        return err_no_memory(err, "the text of variants");
    if (read_header(&r))
        while (lex_line(&r.x) && read_line(&r)) {
        }
    if (r.x.status == PL_OK)
        *out = r.v;
    return r.x.status;
}
