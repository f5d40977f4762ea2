/* The pre-tokenizers' regular expressions, which PCRE2 executes; see pretok.h.
 *
 * The expressions are those published with the models, with two differences.
 * White space is written as Unicode's property White_Space, because PCRE2's own
 * \s either matches only ASCII or includes U+180E. Expressions that would scan
 * a sequence of white space again for each of its characters were rewritten to
 * scan it once. */
#include "tokenizer/pretok.h"

#include "base/err.h"
#include "tokenizer/utf8.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct rule {
    const char *names; /* values of tokenizer.ggml.pre, separated by blanks */
    bool takes_whole, adds_bos, lacks_bos;
    const char *expr[PRETOK_MAX_EXPR];
};

#define WS PRETOK_SPACE
/* \s+(?!\S): a sequence of white space. If a word follows, the last character
 * of the sequence is not matched, because it becomes a part of the word. */
#define BLANKS "[" WS "]+(?![^" WS "])"
#define SHORT  "'s|'t|'re|'ve|'m|'ll|'d"
/* The last alternatives of most expressions. They match newlines together with
 * the white space before them, and any other white space. */
#define SPACES "|[" WS "]*[\\r\\n]+|" BLANKS "|[" WS "]+"

#define GPT2   SHORT "| ?\\p{L}+| ?\\p{N}+| ?[^" WS "\\p{L}\\p{N}]+|" BLANKS
#define LLAMA3(number)                                                         \
    "(?i:" SHORT ")|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" number "| ?[^" WS          \
    "\\p{L}\\p{N}]+[\\r\\n]*" SPACES
#define QWEN35                                                                 \
    "(?i:" SHORT ")|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}"              \
    "| ?[^" WS "\\p{L}\\p{M}\\p{N}]+[\\r\\n]*" SPACES
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
/* Matches words of letters, each with at most one change, from upper to lower
 * case. The parameters are expressions: `upper` and `lower` for one letter,
 * `tail` for what may follow a word, `number` for numbers, and `more` for what
 * may follow a sequence of other characters. */
#define CASES(upper, lower, tail, number, more)                                \
    "[^\\r\\n\\p{L}\\p{N}]?" upper "*" lower "+" tail                          \
    "|[^\\r\\n\\p{L}\\p{N}]?" upper "+" lower "*" tail "|" number "| ?[^" WS   \
    "\\p{L}\\p{N}]+" more SPACES
#define GPT4O(number)                                                          \
    CASES(UPPER, LOWER, "(?i:" SHORT ")?", number, "[\\r\\n/]*")
/* A letter of an upper-case sequence, and one of a lower-case sequence, but no
 * Han character. Both are written as the complement of all other categories. */
#define UPPER_NO_HAN "[^\\p{Ll}\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}\\p{Han}]"
#define LOWER_NO_HAN "[^\\p{Lu}\\p{Lt}\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}\\p{Han}]"
#define DEEPSEEK_V3                                                            \
    "[!-/:-@\\[-`{-~][A-Za-z]+"                                                \
    "|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "                           \
    "?[\\p{P}\\p{S}]+[\\r\\n]*" SPACES
/* In a piece that has only digits, matches the first one or two digits if the
 * number of the others is a multiple of three. The anchor \A makes the search
 * read a long piece only once. */
#define LEADING(digit) "\\A" digit "{1,2}(?=(?:" digit "{3})*+\\z)"
/* The ranges U+4E00-9FA5, U+0800-4E00 and U+AC00-D7FF that models list for
 * Chinese, Japanese and Korean, joined to two. */
#define CJK  "[\\x{800}-\\x{9fa5}\\x{ac00}-\\x{d7ff}]+"
#define KANA "\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{30ff}"
#define BLOOM                                                                  \
    " ?[^" WS "(|.,!?\\x{2026}\\x{3002}\\x{ff0c}\\x{3001}\\x{964}\\x{6d4}"     \
    "\\x{60c})]+"

/* Letters of scripts that have upper and lower case, in the ranges that
 * DeepSeek LLM lists. */
#define CASED                                                                  \
    "[A-Za-z\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}"             \
    "\\x{1bc}-\\x{1bf}\\x{1c4}-\\x{293}\\x{295}-\\x{2af}\\x{370}-\\x{373}"     \
    "\\x{376}\\x{377}\\x{37b}-\\x{37d}\\x{37f}\\x{386}\\x{388}-\\x{38a}"       \
    "\\x{38c}\\x{38e}-\\x{3a1}\\x{3a3}-\\x{3f5}\\x{3f7}-\\x{481}"              \
    "\\x{48a}-\\x{52f}\\x{531}-\\x{556}\\x{10a0}-\\x{10c5}"                    \
    "\\x{13a0}-\\x{13f5}\\x{13f8}-\\x{13fd}\\x{1c90}-\\x{1cba}"                \
    "\\x{1cbd}-\\x{1cbf}\\x{1d00}-\\x{1d2b}\\x{1d6b}-\\x{1d77}"                \
    "\\x{1d79}-\\x{1d9a}\\x{1e00}-\\x{1f15}\\x{1f18}-\\x{1f1d}"                \
    "\\x{1f20}-\\x{1f45}\\x{1f48}-\\x{1f4d}\\x{1f50}-\\x{1f57}\\x{1f59}"       \
    "\\x{1f5b}\\x{1f5d}\\x{1f5f}-\\x{1f7d}\\x{1f80}-\\x{1fb4}"                 \
    "\\x{1fb6}-\\x{1fbc}\\x{1fbe}\\x{1fc2}-\\x{1fc4}\\x{1fc6}-\\x{1fcc}"       \
    "\\x{1fd0}-\\x{1fd3}\\x{1fd6}-\\x{1fdb}\\x{1fe0}-\\x{1fec}"                \
    "\\x{1ff2}-\\x{1ff4}\\x{1ff6}-\\x{1ffc}\\x{2102}\\x{2107}"                 \
    "\\x{210a}-\\x{2113}\\x{2115}\\x{2119}-\\x{211d}\\x{2124}\\x{2126}"        \
    "\\x{2128}\\x{212a}-\\x{212d}\\x{212f}-\\x{2134}\\x{2139}"                 \
    "\\x{213c}-\\x{213f}\\x{2145}-\\x{2149}\\x{214e}\\x{2183}\\x{2184}"        \
    "\\x{2c00}-\\x{2c7b}\\x{2c7e}-\\x{2ce4}\\x{2ceb}-\\x{2cee}\\x{2cf2}"       \
    "\\x{2cf3}\\x{a640}-\\x{a66d}\\x{a680}-\\x{a69b}\\x{a722}-\\x{a76f}"       \
    "\\x{a771}-\\x{a787}\\x{a78b}-\\x{a78e}\\x{ab70}-\\x{abbf}"                \
    "\\x{fb00}-\\x{fb06}\\x{fb13}-\\x{fb17}\\x{ff21}-\\x{ff3a}"                \
    "\\x{ff41}-\\x{ff5a}\\x{10400}-\\x{1044f}\\x{104b0}-\\x{104d3}"            \
    "\\x{104d8}-\\x{104fb}\\x{10c80}-\\x{10cb2}\\x{10cc0}-\\x{10cf2}"          \
    "\\x{118a0}-\\x{118df}\\x{1e900}-\\x{1e943}]+"

static const struct rule rules[] = {
    {.names = "gpt-2 mpt olmo jais trillion granite-docling exaone4 phi-2 "
              "gigachat a.x-4.0 mellum modern-bert roberta-bpe jina-es "
              "jina-de jina-v1-en jina-v2-es jina-v2-de jina-v2-code",
     .expr = {GPT2}},
    {.names = "starcoder refact command-r smollm codeshell exaone minerva-7b "
              "mellum2",
     .expr = {"\\p{N}", GPT2}},
    {.names = "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 "
              "lfm2 jina-v5-nano",
     .takes_whole = true,
     .adds_bos = true,
     .expr = {LLAMA3("\\p{N}{1,3}")}},
    {.names = "dbrx smaug-bpe", .expr = {LLAMA3("\\p{N}{1,3}")}},
    {.names = "glm4 glm5 chatglm-bpe",
     .lacks_bos = true,
     .expr = {LLAMA3("\\p{N}{1,3}")}},
    {.names = "qwen2 deepseek-r1-qwen kormo megrez f2llmv2 stablelm2 hunyuan "
              "solar-open grok-2 bailingmoe bailingmoe2 llada-moe",
     .expr = {LLAMA3("\\p{N}")}},
    {.names = "qwen35", .expr = {QWEN35}},
    {.names = "gpt-4o llama4 kanana2 talkie minimax-m2",
     .expr = {GPT4O("\\p{N}{1,3}")}},
    {.names = "granite-embed-multi-97m",
     .takes_whole = true,
     .expr = {GPT4O("\\p{N}{1,3}")}},
    {.names = "tekken",
     .takes_whole = true,
     .adds_bos = true,
     .expr = {CASES(UPPER, LOWER, "", "\\p{N}", "[\\r\\n/]*")}},
    {.names = "kimi-k2",
     .expr = {"\\p{Han}+|" CASES(UPPER_NO_HAN, LOWER_NO_HAN, "(?i:" SHORT ")?",
                                 "\\p{N}{1,3}", "[\\r\\n]*")}},
    {.names = "falcon",
     .expr = {"[\\p{P}$+<=>^~|`]+", GPT2, "[0-9][0-9][0-9]"}},
    {.names = "deepseek-coder",
     .expr = {"[\\r\\n]", "[" WS "]?\\p{L}+", "[" WS "]?\\p{P}+", CJK,
              "\\p{N}"}},
    {.names = "deepseek-llm",
     .expr = {"[\\r\\n]", "[" WS "]?" CASED,
              "[" WS "]?[!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}"
              "\\x{2018}-\\x{201f}\\x{3000}-\\x{3002}]+",
              /* \s+$, white space at the end, but tried only where a sequence
               * of white space begins */
              "(?<![" WS "])[" WS "]++\\z", CJK, "\\p{N}+"}},
    {.names = "deepseek-v3 hunyuan-dense joyai-llm hy_v4",
     .expr = {"\\p{N}{1,3}", "[" KANA "]+", DEEPSEEK_V3}},
    {.names = "spark2_5",
     .expr = {"\\p{N}{1,3}", "[" KANA "]+",
              "[!-/:-@\\[-`{-~][A-Za-z]+"
              "|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
              "| ?[\\p{P}\\p{S}]+|[\\r\\n]|" BLANKS "|[" WS "]+",
              "\\p{N}"}},
    {.names = "ufakzeka",
     .expr = {"[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^" WS
              "\\p{L}\\p{N}]+[\\r\\n]*" SPACES}},
    {.names = "afmoe",
     .expr = {"\\p{N}+", LEADING("\\p{N}") "|\\p{N}{3}",
              /* Chinese characters, Japanese kana, and the scripts of Southeast
               * Asia */
              "[\\x{4e00}-\\x{9fff}\\x{3400}-\\x{4dbf}\\x{f900}-\\x{faff}"
              "\\x{3040}-\\x{30ff}\\x{ff65}-\\x{ff9f}\\x{2f00}-\\x{2fd5}"
              "\\x{e00}-\\x{eff}\\x{1780}-\\x{17ff}\\x{1000}-\\x{109f}"
              "\\x{aa60}-\\x{aa7f}\\x{a9e0}-\\x{a9ff}\\x{ac00}-\\x{d7af}"
              "\\x{1100}-\\x{11ff}]+",
              DEEPSEEK_V3}},
    {.names = "youtu",
     .takes_whole = true,
     .expr = {"[\\x{ac00}-\\x{d7a3}\\x{3131}-\\x{318e}]+"
              "|[\\x{ff01}\\x{2026}\\x{201c}\\x{201d}\\x{2018}\\x{2019}"
              "\\x{2014}\\x{ff1a}\\x{ff1b}\\x{ff0c}\\x{3001}-\\x{303f}"
              "\\x{fe30}-\\x{fe4f}]+|[\\x{3105}-\\x{312f}]+|[" KANA "]+",
              GPT4O("\\p{N}")}},
    {.names = "tiny_aya cohere2moe",
     .expr =
         {/* numbers without adjacent letters: their digits are grouped by
             threes from the end */
          "(?<!\\p{Nd})\\p{Nd}++(?![\\p{L}\\p{M}\\p{N}\\p{Pc}])",
          LEADING("\\p{Nd}"), GPT4O("\\p{N}{1,3}")}},
    {.names = "superbpe",
     .expr = {"\\p{N}+", LEADING("\\p{Nd}") "|\\p{Nd}{3}"}},
    {.names = "minicpm5",
     .takes_whole = true,
     .expr = {"\\p{N}{1,3}", LLAMA3("\\p{N}+")}},
    {.names = "laguna", .expr = {"\\n+", LLAMA3("\\p{N}")}},
    {.names = "seed-coder",
     .expr = {"(?i:" SHORT ")|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^" WS
              "\\p{L}\\p{N}]+" SPACES}},
    {.names = "exaone-moe",
     .expr = {"(?i:" SHORT ")|[^\\r\\n\\p{L}\\p{N}]?\\p{L}[\\p{L}\\p{M}]*+"
              "(?: \\p{L}[\\p{L}\\p{M}]*+)*+|\\p{N}| ?[^" WS
              "\\p{L}\\p{N}]+[\\r\\n/]?" SPACES}},
    {.names = "jais-2",
     .expr = {"(?i:" SHORT ")|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^" WS
              "\\p{L}\\p{N}]+[\\r\\n]*|[" WS "]*[\\r\\n]+"
              "|(?:[" WS "]{512}|[" WS "]{256}|[" WS "]{128}|[" WS "]{64}"
              "|[" WS "]{32}|[" WS "]{16}|[" WS "]{8}|[" WS "]{4}"
              "|[" WS "]{1,2})(?![^" WS "])|[" WS "]"}},
    {.names = "poro-chat bloom gpt3-finnish", .expr = {BLOOM}},
    {.names = "viking", .expr = {BLOOM, "\\p{N}"}},
    {.names = "chameleon",
     .adds_bos = true,
     .expr = {"<sentinel:[0-9]+>", "IMGIMG[A-I]{1,4}Z", "[\\t\\n]|    |  ",
              "\\p{N}", "[\\p{P}!-/:-@\\[-`{-~]", GPT2}},
    {.names = "default",
     .expr = {"[\\p{P}$+<=>^~|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]"}},
};

struct pretok {
    const struct rule *rule;
    pcre2_general_context *memory;
    int n_code;
    pcre2_code *code[PRETOK_MAX_EXPR]; /* the compiled expressions, never
                                          changed after create */
};

static void *pcre_malloc(size_t size, void *user)
{
    (void)user;
    return malloc(size);
}

static void pcre_free(void *p, void *user)
{
    (void)user;
    free(p);
}

static bool has_name(const char *names, const char *name, size_t len)
{
    while (*names) {
        size_t n = strcspn(names, " ");

        if (n == len && memcmp(names, name, len) == 0)
            return true;
        names += n;
        names += *names == ' ';
    }
    return false;
}

static pl_status find_rule(const struct rule **out, const char *name,
                           size_t len, const char *where, pl_err *err)
{
    char known[1536];
    size_t used = 0;

    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        int n;

        if (has_name(rules[i].names, name, len)) {
            *out = &rules[i];
            return PL_OK;
        }
        n = snprintf(known + used, sizeof known - used, "%s%s", i ? " " : "",
                     rules[i].names);
        used += n > 0 ? (size_t)n : 0;
        if (used >= sizeof known)
            used = sizeof known - 1;
    }
    if (len == 0)
        return err_set(
            err, PL_UNSUPPORTED,
            "%s: tokenizer.ggml.pre is missing, so the pre-tokenizer is "
            "unknown; convert the model again (known: %s)",
            where, known);
    return err_set(
        err, PL_UNSUPPORTED,
        "%s: unknown pre-tokenizer '%.*s' (tokenizer.ggml.pre); known are %s",
        where, (int)(len < 64 ? len : 64), name, known);
}

static pl_status create(struct pretok **out, const struct rule *rule,
                        const char *const *expr, int n_expr, pl_err *err)
{
    pcre2_compile_context *cc = NULL;
    struct pretok *p;
    pl_status s = PL_OK;

    *out = NULL;
    p = calloc(1, sizeof *p);
    if (!p)
        return err_no_memory(err, "a pre-tokenizer");
    p->rule = rule;
    p->memory = pcre2_general_context_create(pcre_malloc, pcre_free, NULL);
    if (p->memory)
        cc = pcre2_compile_context_create(p->memory);
    if (!cc) {
        s = err_no_memory(err, "a pre-tokenizer");
        goto done;
    }
    for (int i = 0; i < n_expr && expr[i]; i++) {
        int code;
        PCRE2_SIZE at;

        p->code[i] = pcre2_compile((PCRE2_SPTR)expr[i], PCRE2_ZERO_TERMINATED,
                                   PCRE2_UTF, &code, &at, cc);
        if (!p->code[i]) {
            PCRE2_UCHAR why[128] = "";

            pcre2_get_error_message(code, why, sizeof why);
            s = code == PCRE2_ERROR_HEAP_FAILED
                    ? err_no_memory(err, "a regular expression")
                    : err_set(err, PL_UNSUPPORTED,
                              "a pre-tokenizer's expression '%.64s' does not "
                              "compile at %zu: %s; PCRE2 needs Unicode support",
                              expr[i], (size_t)at, (const char *)why);
            goto done;
        }
        p->n_code = i + 1;
        /* Failure is ignored: if the system forbids just-in-time compilation,
         * matching is slower but has the same result. */
        (void)pcre2_jit_compile(p->code[i], PCRE2_JIT_COMPLETE);
    }
    *out = p;
    p = NULL;
done:
    pcre2_compile_context_free(cc);
    pretok_free(p);
    return s;
}

pl_status pretok_create(struct pretok **out, const char *name, size_t len,
                        const char *where, pl_err *err)
{
    const struct rule *rule = NULL;

    *out = NULL;
    PL_TRY(find_rule(&rule, name, len, where, err));
    return create(out, rule, rule->expr, PRETOK_MAX_EXPR, err);
}

pl_status pretok_create_own(struct pretok **out, const char *const *expr,
                            int n_expr, pl_err *err)
{
    static const struct rule own = {.names = ""};

    return create(out, &own, expr, n_expr, err);
}

void pretok_free(struct pretok *p)
{
    if (!p)
        return;
    for (int i = 0; i < p->n_code; i++)
        pcre2_code_free(p->code[i]);
    pcre2_general_context_free(p->memory);
    free(p);
}

bool pretok_takes_whole(const struct pretok *p)
{
    return p->rule->takes_whole;
}

bool pretok_adds_bos(const struct pretok *p)
{
    return p->rule->adds_bos;
}

bool pretok_lacks_bos(const struct pretok *p)
{
    return p->rule->lacks_bos;
}

/* The state of one call of pretok_split. */
struct splitter {
    const struct pretok *p;
    pcre2_match_data *match;
    pcre2_match_context *limits;
    pretok_piece_fn *piece;
    void *user;
};

static pl_status next_match(const struct splitter *c, int stage, const char *s,
                            size_t len, size_t from, size_t *begin, size_t *end,
                            pl_err *err)
{
    const PCRE2_SIZE *range;
    int rc;

    rc = pcre2_match(c->p->code[stage], (PCRE2_SPTR)s, len, from,
                     PCRE2_NO_UTF_CHECK, c->match, c->limits);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
        rc =
            pcre2_match(c->p->code[stage], (PCRE2_SPTR)s, len, from,
                        PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, c->match, c->limits);
    *begin = *end = len;
    if (rc == PCRE2_ERROR_NOMATCH)
        return PL_OK;
    if (rc == PCRE2_ERROR_NOMEMORY)
        return err_no_memory(err, "matching a regular expression");
    if (rc < 0) {
        PCRE2_UCHAR why[128] = "";

        pcre2_get_error_message(rc, why, sizeof why);
        return err_set(err, PL_BAD_ARGUMENT,
                       "a text of %zu bytes cannot be pre-tokenized: %s; "
                       "encode it in parts",
                       len, (const char *)why);
    }
    range = pcre2_get_ovector_pointer(c->match);
    /* Treats a match of the empty text like no match, which would otherwise
     * repeat for ever. No expression is meant to match it. */
    if (range[0] < range[1]) {
        *begin = range[0];
        *end = range[1];
    }
    return PL_OK;
}

static pl_status split(const struct splitter *c, int stage, const char *s,
                       size_t len, int by, pl_err *err)
{
    size_t at = 0;

    if (stage == c->p->n_code)
        return c->piece(c->user, s, len, by, err);
    while (at < len) {
        size_t begin, end;

        PL_TRY(next_match(c, stage, s, len, at, &begin, &end, err));
        if (begin > at)
            PL_TRY(split(c, stage + 1, s + at, begin - at, by, err));
        if (end > begin)
            PL_TRY(split(c, stage + 1, s + begin, end - begin,
                         by < 0 ? stage : by, err));
        at = end;
    }
    return PL_OK;
}

/* Returns the length of the longest valid UTF-8 at the beginning of s[0 ..
 * len). If the text begins with invalid bytes, returns their number and sets
 * *valid to false. */
static size_t valid_run(const char *s, size_t len, int *valid)
{
    size_t n = utf8_step(s, len, valid);

    while (n < len) {
        int more;
        size_t step = utf8_step(s + n, len - n, &more);

        if (more != *valid)
            break;
        n += step;
    }
    return n;
}

pl_status pretok_split(const struct pretok *p, const char *s, size_t len,
                       pretok_piece_fn *piece, void *user, pl_err *err)
{
    struct splitter c = {.p = p, .piece = piece, .user = user};
    /* Limits the steps of PCRE2 for one match, as a guard against unforeseen
     * cases. The expressions need only a few steps per character of the text,
     * even if they backtrack. */
    size_t limit = 1000000 + (len < 100000000 ? 16 * len : 1600000000);
    pl_status status = PL_OK;

    c.match = pcre2_match_data_create(1, p->memory);
    c.limits = pcre2_match_context_create(p->memory);
    if (!c.match || !c.limits) {
        status = err_no_memory(err, "matching a regular expression");
        goto done;
    }
    pcre2_set_match_limit(c.limits, (uint32_t)limit);
    for (size_t at = 0; at < len && status == PL_OK;) {
        int valid;
        size_t n = valid_run(s + at, len - at, &valid);

        status = valid ? split(&c, 0, s + at, n, -1, err)
                       : piece(user, s + at, n, -1, err);
        at += n;
    }
done:
    pcre2_match_data_free(c.match);
    pcre2_match_context_free(c.limits);
    return status;
}
