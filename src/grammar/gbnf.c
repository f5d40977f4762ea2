/* Parses GBNF by recursive descent; see gbnf.h. The notation follows what
 * llama.cpp documents in grammars/README.md. */
#include "grammar/gbnf.h"

#include "base/ascii.h"
#include "base/err.h"
#include "base/hash64.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    /* Maximum number of repetition signs after one item; "a"*?+ has three. */
    MOST_REPEATS = 16
};

struct parser {
    struct rules *r;
    const char *start, *at, *end;
    const char *name;
    const char *rule_at;  /* start of the definition of the rule that was parsed
                             last */
    int64_t line, column; /* line and column of rule_at, from 1 */
    /* In the arena, [r->n]: position in the text where each rule was first
     * named. */
    const char **used;
    uint32_t cap_rule;
    /* Owned: hash table of rules by name. An entry is 1 + the rule's number, or
     * 0. */
    uint32_t *slot, n_slot;
    /* The tokens that the grammar may name; NULL for none. */
    const struct grammar_tokens *tokens;
    uint32_t n_tree;
    int depth;
    pl_err *err;
};

/* ---- error messages with line and column --------------------------------- */

/* Advances *line and *column from position `from` to the later position `at`.
 * Columns count characters. */
static void go_to(const char *from, const char *at, int64_t *line,
                  int64_t *column)
{
    for (const char *s = from; s < at; s++) {
        if (*s == '\n') {
            ++*line;
            *column = 1;
        } else if (((unsigned char)*s & 0xc0) != 0x80) {
            ++*column;
        }
    }
}

/* Fails with a message that begins with the line and the column of `at`. */
static pl_status wrong_at(struct parser *p, const char *at, const char *what)
{
    int64_t line = 1, column = 1;

    go_to(p->start, at, &line, &column);
    return err_set(p->err, PL_BAD_ARGUMENT, "%s: line %lld, column %lld: %s",
                   p->name, (long long)line, (long long)column, what);
}

static pl_status wrong(struct parser *p, const char *what)
{
    return wrong_at(p, p->at, what);
}

/* Fails at `at` with a message of the text `before`, the rule's name and the
 * text `after`. The line and the column of `at` precede it. */
static pl_status wrong_rule(struct parser *p, const char *at, const char *name,
                            const char *before, const char *after)
{
    char shown[ERR_SHOWN], text[3 * ERR_SHOWN];

    snprintf(text, sizeof text, "%s%s%s", before,
             err_shown(shown, name, strlen(name)), after);
    return wrong_at(p, at, text);
}

static pl_status no_memory(struct parser *p)
{
    return err_no_memory(p->err, "a grammar");
}

/* ---- building syntax trees ----------------------------------------------- */

static pl_status tree_new(struct parser *p, enum tree_kind kind, uint32_t n,
                          struct tree **out)
{
    if (++p->n_tree > GBNF_TREES)
        return wrong(p, "the grammar has more than 65,536 literals, classes, "
                        "names and groups; make it smaller");
    *out = arena_alloc(&p->r->memory, 1, sizeof **out);
    if (!*out)
        return no_memory(p);
    (*out)->kind = kind;
    (*out)->n = n;
    return PL_OK;
}

/* The subtrees of a sequence, or of a list of alternatives, that were parsed so
 * far. */
struct children {
    const struct tree **item; /* the subtrees: [n], capacity `cap`, in the
                                 arena */
    uint32_t n, cap;
};

static pl_status children_add(struct parser *p, struct children *c,
                              const struct tree *t)
{
    if (c->n == c->cap) {
        uint32_t cap = c->cap ? 2 * c->cap : 4;
        const struct tree **item =
            arena_alloc(&p->r->memory, cap, sizeof(struct tree *));

        if (!item)
            return no_memory(p);
        if (c->n)
            memcpy(item, c->item, c->n * sizeof *item);
        c->item = item;
        c->cap = cap;
    }
    c->item[c->n++] = t;
    return PL_OK;
}

/* Sets *out to a tree of type `kind` with these children. A single child
 * becomes the tree itself; no children become the empty text. */
static pl_status children_tree(struct parser *p, const struct children *c,
                               enum tree_kind kind, const struct tree **out)
{
    struct tree *t;

    if (c->n == 1) {
        *out = c->item[0];
        return PL_OK;
    }
    PL_TRY(tree_new(p, c->n ? kind : TREE_BYTES, c->n, &t));
    if (c->n)
        t->child = c->item;
    else
        t->bytes = "";
    *out = t;
    return PL_OK;
}

/* ---- names of rules ------------------------------------------------------ */

static bool is_name_char(char c)
{
    return ascii_is_letter_or_digit(c) || c == '-' || c == '_';
}

static size_t name_length(const struct parser *p)
{
    const char *s = p->at;

    while (s < p->end && is_name_char(*s))
        s++;
    return (size_t)(s - p->at);
}

static uint32_t *slot_of(const struct parser *p, const char *s, size_t len)
{
    uint32_t i = (uint32_t)hash64(0, s, len) & (p->n_slot - 1);

    for (; p->slot[i]; i = (i + 1) & (p->n_slot - 1)) {
        const char *name = p->r->rule[p->slot[i] - 1].name;

        if (strlen(name) == len && memcmp(name, s, len) == 0)
            break;
    }
    return &p->slot[i];
}

/* Doubles the number of rules that fit into p->r, and the hash table of their
 * names, which has four entries for each rule that fits. */
static pl_status grow_rules(struct parser *p)
{
    uint32_t cap = p->cap_rule ? 2 * p->cap_rule : 16;
    struct arena *a = &p->r->memory;
    struct rule *rule = arena_alloc(a, cap, sizeof *rule);
    const char **used = arena_alloc(a, cap, sizeof *used);
    uint32_t *slot = calloc(4 * (size_t)cap, sizeof *slot);

    if (!rule || !used || !slot) {
        free(slot);
        return no_memory(p);
    }
    if (p->r->n) {
        memcpy(rule, p->r->rule, p->r->n * sizeof *rule);
        memcpy(used, p->used, p->r->n * sizeof *used);
    }
    p->r->rule = rule;
    p->used = used;
    free(p->slot);
    p->slot = slot;
    p->cap_rule = cap;
    p->n_slot = 4 * cap;
    for (uint32_t i = 0; i < p->r->n; i++)
        *slot_of(p, rule[i].name, strlen(rule[i].name)) = i + 1;
    return PL_OK;
}

/* Sets *out to the number of the rule named s[0 .. len). If the rule is not
 * known yet, adds it without a body. */
static pl_status rule_of(struct parser *p, const char *s, size_t len,
                         uint32_t *out)
{
    uint32_t *slot;
    struct rule *rule;

    if (p->r->n == p->cap_rule)
        PL_TRY(grow_rules(p));
    slot = slot_of(p, s, len);
    if (!*slot) {
        if (p->r->n == GBNF_RULES)
            return wrong_at(p, s,
                            "the grammar has more than 4,096 rules; replace "
                            "some by groups");
        rule = &p->r->rule[p->r->n];
        rule->name = arena_strndup(&p->r->memory, s, len);
        if (!rule->name)
            return no_memory(p);
        p->used[p->r->n] = s;
        *slot = ++p->r->n;
    }
    *out = *slot - 1;
    return PL_OK;
}

/* ---- reading characters, escapes and literals ---------------------------- */

/* Skips spaces, tabs and comments; if `lines`, also ends of lines. */
static void skip_blanks(struct parser *p, bool lines)
{
    while (p->at < p->end) {
        char c = *p->at;

        if (c == '#') {
            while (p->at < p->end && *p->at != '\n' && *p->at != '\r')
                p->at++;
        } else if (c == ' ' || c == '\t' ||
                   (lines && (c == '\n' || c == '\r'))) {
            p->at++;
        } else {
            return;
        }
    }
}

static bool next_is(const struct parser *p, char c)
{
    return p->at < p->end && *p->at == c;
}

static pl_status read_hex(struct parser *p, int n, uint32_t *out)
{
    *out = 0;
    for (int i = 0; i < n; i++, p->at++) {
        char c = p->at < p->end ? ascii_lower(*p->at) : '\0';
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                           : -1;

        if (digit < 0)
            return wrong(
                p, "a hexadecimal digit is missing: \\x takes 2, \\u 4, \\U 8");
        *out = *out << 4 | (uint32_t)digit;
    }
    if (*out > RULES_LAST_CHAR)
        return wrong(
            p, "the escape is not a character: the last one is \\U0010FFFF");
    return PL_OK;
}

static pl_status read_escape(struct parser *p, uint32_t *c)
{
    static const char from[] = "nrt\\\"[]", to[] = "\n\r\t\\\"[]";
    const char *found;
    char kind;

    p->at++;
    kind = p->at < p->end ? *p->at : '\0';
    if (kind == 'x' || kind == 'u' || kind == 'U') {
        p->at++;
        return read_hex(p, kind == 'x' ? 2 : kind == 'u' ? 4 : 8, c);
    }
    found = kind ? strchr(from, kind) : NULL;
    if (!found)
        return wrong(p, "unknown escape; use \\n \\r \\t \\\\ \\\" \\[ \\] "
                        "\\xHH \\uHHHH \\UHHHHHHHH");
    *c = (unsigned char)to[found - from];
    p->at++;
    return PL_OK;
}

/* Reads one character, perhaps an escape, of the literal or character class
 * that begins at `open`. Fails if the line ends first. */
static pl_status read_char(struct parser *p, const char *open, uint32_t *c)
{
    size_t n;

    if (p->at == p->end || *p->at == '\n' || *p->at == '\r')
        return wrong_at(
            p, open,
            *open == '"'
                ? "the literal does not end on its line; close it with \""
                : "the class does not end on its line; close it with ]");
    if (*p->at == '\\')
        return read_escape(p, c);
    n = char_get(p->at, (size_t)(p->end - p->at), c);
    if (n == 0)
        return wrong(p, "not valid UTF-8; save the grammar as UTF-8");
    p->at += n;
    return PL_OK;
}

static pl_status read_literal(struct parser *p, const struct tree **out)
{
    const char *open = p->at++;
    size_t n = 0;
    struct tree *t;
    char *bytes;

    while (p->at + n < p->end && p->at[n] != '"' && p->at[n] != '\n')
        n += p->at[n] == '\\' && p->at + n + 1 < p->end ? 2 : 1;
    /* The text of the literal has at most as many bytes as its notation, n,
     * because no escape is shorter than its character. */
    bytes = arena_alloc(&p->r->memory, n + 4, 1);
    if (!bytes)
        return no_memory(p);
    n = 0;
    while (!next_is(p, '"')) {
        const char *at = p->at;
        uint32_t c;

        PL_TRY(read_char(p, open, &c));
        if (c >> 11 == 0x1b)
            return wrong_at(p, at,
                            "half of a surrogate pair is not a character; "
                            "write the character as \\UHHHHHHHH");
        n += char_put(bytes + n, c);
    }
    p->at++;
    PL_TRY(tree_new(p, TREE_BYTES, (uint32_t)n, &t));
    t->bytes = bytes;
    *out = t;
    return PL_OK;
}

/* ---- reading character classes, as [a-z] --------------------------------- */

static pl_status class_tree(struct parser *p, const char *open,
                            struct char_range *range, uint32_t n, bool negate,
                            const struct tree **out)
{
    struct tree *t;

    n = char_ranges_normal(range, n, negate);
    if (n == 0)
        return wrong_at(p, open, "the class is empty; put a character in it");
    PL_TRY(tree_new(p, TREE_CLASS, n, &t));
    t->range = range;
    *out = t;
    return PL_OK;
}

/* Returns an upper bound of the number of characters between the brackets of a
 * character class, to allocate its ranges. */
static size_t class_room(const struct parser *p)
{
    size_t n = 0;

    while (p->at + n < p->end && p->at[n] != ']' && p->at[n] != '\n')
        n += p->at[n] == '\\' && p->at + n + 1 < p->end ? 2 : 1;
    return n;
}

static pl_status read_class(struct parser *p, const struct tree **out)
{
    const char *open = p->at++;
    bool negate = next_is(p, '^');
    struct char_range *range;
    uint32_t n = 0;

    p->at += negate;
    range = arena_alloc(&p->r->memory, 2 * class_room(p) + 4, sizeof *range);
    if (!range)
        return no_memory(p);
    while (!next_is(p, ']')) {
        const char *at = p->at;
        struct char_range *r = &range[n++];

        PL_TRY(read_char(p, open, &r->first));
        r->last = r->first;
        if (next_is(p, '-') && p->at + 1 < p->end && p->at[1] != ']') {
            p->at++;
            PL_TRY(read_char(p, open, &r->last));
        }
        if (r->last < r->first)
            return wrong_at(p, at, "the range is reversed; swap its ends");
    }
    p->at++;
    return class_tree(p, open, range, n, negate, out);
}

static pl_status read_any(struct parser *p, const struct tree **out)
{
    struct char_range *all = arena_alloc(&p->r->memory, 4, sizeof *all);

    if (!all)
        return no_memory(p);
    return class_tree(p, p->at++, all, 0, true, out);
}

/* ---- reading repetitions, as {2,5} --------------------------------------- */

static pl_status read_count(struct parser *p, uint32_t *out)
{
    const char *at = p->at;
    uint32_t n = 0;

    while (p->at < p->end && *p->at >= '0' && *p->at <= '9') {
        n = 10 * n + (uint32_t)(*p->at++ - '0');
        if (n > GBNF_TIMES)
            return wrong_at(p, at,
                            "a repetition has at most 10,000; use less, or "
                            "{n,} without an upper bound");
    }
    if (p->at == at)
        return wrong(p, "a number is missing; write {n}, {n,} or {n,m}");
    *out = n;
    return PL_OK;
}

/* Reads a number of repetitions: {n}, {n,} or {n,m}. */
static pl_status read_times(struct parser *p, bool lines, uint32_t *min,
                            uint32_t *max)
{
    const char *open = p->at++;

    skip_blanks(p, lines);
    PL_TRY(read_count(p, min));
    *max = *min;
    skip_blanks(p, lines);
    if (next_is(p, ',')) {
        p->at++;
        skip_blanks(p, lines);
        *max = RULES_UNLIMITED;
        if (!next_is(p, '}'))
            PL_TRY(read_count(p, max));
        skip_blanks(p, lines);
    }
    if (!next_is(p, '}'))
        return wrong(p, "the repetition does not end; close it with }");
    if (*max < *min)
        return wrong_at(p, open,
                        "the repetition is reversed; swap the two numbers");
    p->at++;
    return PL_OK;
}

static bool is_repeat(char c)
{
    return c == '*' || c == '+' || c == '?' || c == '{';
}

/* Reads all repetition signs (* + ? {...}) after *item. Each sign replaces
 * *item by a TREE_REPEAT with the former *item as its child. */
static pl_status read_repeats(struct parser *p, bool lines,
                              const struct tree **item)
{
    for (int n = 0; p->at < p->end && is_repeat(*p->at); n++) {
        uint32_t min = *p->at == '+', max = RULES_UNLIMITED;
        const struct tree **child;
        struct tree *t;

        if (n == MOST_REPEATS)
            return wrong(p,
                         "more than 16 repetitions of one item; remove some");
        if (*p->at == '?')
            max = 1;
        if (*p->at == '{')
            PL_TRY(read_times(p, lines, &min, &max));
        else
            p->at++;
        PL_TRY(tree_new(p, TREE_REPEAT, 1, &t));
        child = arena_alloc(&p->r->memory, 1, sizeof(struct tree *));
        if (!child)
            return no_memory(p);
        *child = *item;
        t->child = child;
        t->min = min;
        t->max = max;
        *item = t;
        skip_blanks(p, lines);
    }
    return PL_OK;
}

/* ---- reading items, sequences and alternatives --------------------------- */

static pl_status read_alternatives(struct parser *p, bool lines,
                                   const struct tree **out);

static pl_status read_group(struct parser *p, const struct tree **out)
{
    const char *open = p->at++;

    if (++p->depth > GBNF_DEPTH)
        return wrong_at(
            p, open,
            "groups nest deeper than 64 levels; turn inner ones into rules");
    skip_blanks(p, true);
    PL_TRY(read_alternatives(p, true, out));
    if (!next_is(p, ')'))
        return wrong_at(p, open, "the group does not end; close it with )");
    p->at++;
    p->depth--;
    return PL_OK;
}

static pl_status read_name(struct parser *p, const struct tree **out)
{
    size_t n = name_length(p);
    struct tree *t;

    PL_TRY(tree_new(p, TREE_RULE, 0, &t));
    PL_TRY(rule_of(p, p->at, n, &t->rule));
    p->at += n;
    *out = t;
    return PL_OK;
}

/* Parses <[ID]> or <TEXT> at `open`. Sets *id to the token of the vocabulary
 * with this id, or with the text <TEXT>, including < and >. */
static pl_status find_token(struct parser *p, const char *open, int32_t *id)
{
    const char *close = memchr(open, '>', (size_t)(p->end - open));
    const char *line = memchr(open, '\n', (size_t)(p->end - open));
    uint32_t n = 0;

    if (!close || (line && line < close))
        return wrong_at(p, open,
                        "the token does not end on its line; close it "
                        "with >");
    if (!p->tokens)
        return wrong_at(p, open,
                        "there is no vocabulary whose token this is; "
                        "write its text as a literal");
    p->at = open + 1;
    if (next_is(p, '[')) {
        for (p->at++; *p->at >= '0' && *p->at <= '9' && n < 100000000; p->at++)
            n = 10 * n + (uint32_t)(*p->at - '0');
        if (p->at == open + 2 || close - p->at != 1 || *p->at != ']')
            return wrong(p, "a token's id is written <[123]>");
        *id = (int32_t)n;
        if (*id >= p->tokens->n)
            return wrong_at(p, open, "the vocabulary has no token of this id");
    } else {
        *id =
            p->tokens->find(p->tokens->user, open, (size_t)(close + 1 - open));
        if (*id < 0)
            return wrong_at(p, open,
                            "the vocabulary has no token of this "
                            "text; write it as a literal");
    }
    p->at = close + 1;
    return PL_OK;
}

/* Reads a token of the vocabulary, <[ID]> or <TEXT>. After '!', it matches
 * every other token instead. */
static pl_status read_token(struct parser *p, const struct tree **out)
{
    const char *open = p->at;
    struct rules *r = p->r;
    struct token_symbol s = {.other = *p->at == '!'};
    struct tree *t;
    uint32_t i = 0;
    char *bytes;

    p->at += s.other;
    if (!next_is(p, '<'))
        return wrong(p, "! is for tokens of the vocabulary; write !<[123]>, or "
                        "a class [^...] of characters");
    PL_TRY(find_token(p, p->at, &s.id));
    while (i < r->n_symbol &&
           (r->symbol[i].id != s.id || r->symbol[i].other != s.other))
        i++;
    if (i == RULES_SYMBOLS)
        return wrong_at(p, open, "the grammar has more than 1,024 tokens");
    if (!r->symbol)
        r->symbol = arena_alloc(&r->memory, RULES_SYMBOLS, sizeof *r->symbol);
    bytes = arena_alloc(&r->memory, RULES_SYMBOL_BYTES, 1);
    if (!r->symbol || !bytes)
        return no_memory(p);
    r->symbol[i] = s;
    r->n_symbol += i == r->n_symbol;
    rules_symbol(bytes, i);
    PL_TRY(tree_new(p, TREE_BYTES, RULES_SYMBOL_BYTES, &t));
    t->bytes = bytes;
    *out = t;
    return PL_OK;
}

static pl_status read_item(struct parser *p, const struct tree **out)
{
    switch (*p->at) {
    case '"':
        return read_literal(p, out);
    case '[':
        return read_class(p, out);
    case '.':
        return read_any(p, out);
    case '(':
        return read_group(p, out);
    case '<':
    case '!':
        return read_token(p, out);
    default:
        break;
    }
    if (is_name_char(*p->at))
        return read_name(p, out);
    if (is_repeat(*p->at))
        return wrong(p, "nothing precedes the repetition; write what is "
                        "repeated, or quote it");
    return wrong(
        p, "expected a literal, class, group or rule name; put text in quotes");
}

static bool at_sequence_end(const struct parser *p)
{
    return p->at == p->end || *p->at == '|' || *p->at == ')' ||
           *p->at == '\n' || *p->at == '\r';
}

static pl_status read_sequence(struct parser *p, bool lines,
                               const struct tree **out)
{
    struct children c = {0};

    while (!at_sequence_end(p)) {
        const struct tree *item;

        PL_TRY(read_item(p, &item));
        skip_blanks(p, lines);
        PL_TRY(read_repeats(p, lines, &item));
        PL_TRY(children_add(p, &c, item));
    }
    return children_tree(p, &c, TREE_SEQ, out);
}

static pl_status read_alternatives(struct parser *p, bool lines,
                                   const struct tree **out)
{
    struct children c = {0};

    for (;;) {
        const struct tree *t;

        PL_TRY(read_sequence(p, lines, &t));
        PL_TRY(children_add(p, &c, t));
        if (!next_is(p, '|'))
            break;
        p->at++;
        skip_blanks(p, true);
    }
    return children_tree(p, &c, TREE_ALT, out);
}

/* ---- reading rules and the whole grammar --------------------------------- */

static pl_status read_rule(struct parser *p)
{
    const char *at = p->at;
    size_t n = name_length(p);
    const struct tree *body;
    uint32_t rule;

    if (next_is(p, '|'))
        return wrong(p, "the rule ended on the line before; put | at the end "
                        "of that line, or the alternatives in a group");
    if (n == 0)
        return wrong(p, "a rule begins with its name; write name ::= ...");
    PL_TRY(rule_of(p, at, n, &rule));
    if (p->r->rule[rule].body)
        return wrong_rule(p, at, p->r->rule[rule].name, "the rule ",
                          " is already defined; give this one another name");
    p->at += n;
    skip_blanks(p, false);
    if (p->end - p->at < 3 || memcmp(p->at, "::=", 3) != 0)
        return wrong(p, "::= is missing after the rule's name");
    p->at += 3;
    skip_blanks(p, true);
    PL_TRY(read_alternatives(p, false, &body));
    if (p->at < p->end && *p->at == ')')
        return wrong(p, "no group is open here; remove the ), or quote it");
    go_to(p->rule_at, at, &p->line, &p->column);
    p->rule_at = at;
    p->r->rule[rule].body = body;
    p->r->rule[rule].line = p->line;
    p->r->rule[rule].column = p->column;
    skip_blanks(p, true);
    return PL_OK;
}

static pl_status read_all(struct parser *p)
{
    skip_blanks(p, true);
    while (p->at < p->end)
        PL_TRY(read_rule(p));
    for (uint32_t i = 0; i < p->r->n; i++)
        if (!p->r->rule[i].body)
            return wrong_rule(p, p->used[i], p->r->rule[i].name, "the rule ",
                              " is not defined; define it");
    for (uint32_t i = 0; i < p->r->n; i++) {
        p->r->root = i;
        if (strcmp(p->r->rule[i].name, "root") == 0)
            return PL_OK;
    }
    return wrong(p, "the start rule root is missing; add root ::= ...");
}

pl_status gbnf_read(struct rules *r, const char *text, size_t len,
                    const struct grammar_tokens *tokens, const char *name,
                    pl_err *err)
{
    struct parser p = {.r = r,
                       .start = text,
                       .tokens = tokens,
                       .name = name,
                       .rule_at = text,
                       .line = 1,
                       .column = 1,
                       .err = err};
    pl_status s;

    *r = (struct rules){0};
    if (len > GBNF_BYTES)
        return err_set(
            err, PL_BAD_ARGUMENT,
            "%s: %zu bytes, but a grammar has at most %d; make it smaller",
            name, len, (int)GBNF_BYTES);
    p.at = text;
    p.end = text + len;
    s = read_all(&p);
    free(p.slot);
    if (s != PL_OK)
        rules_fini(r);
    return s;
}
