/* Parses GBNF by recursive descent; see gbnf.h. The notation follows what
 * llama.cpp documents in grammars/README.md. After a failure the parser is at
 * the end of the text, so all its loops end. */
#include "grammar/gbnf.h"

#include "base/ascii.h"
#include "base/err.h"
#include "base/hash64.h"

#include <stdio.h>
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
    /* In the arena: hash table of rules by name. An entry is 1 + the rule's
     * number, or 0. */
    uint32_t *slot, n_slot;
    /* The tokens that the grammar may name; NULL for none. */
    const struct grammar_tokens *tokens;
    uint32_t n_tree;
    int depth;
    struct tree spare; /* the tree that functions return after a failure */
    pl_status status;  /* PL_OK until the first failure */
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
static void wrong_at(struct parser *p, const char *at, const char *what)
{
    int64_t line = 1, column = 1;

    if (p->status != PL_OK)
        return;
    go_to(p->start, at, &line, &column);
    p->status =
        err_set(p->err, PL_BAD_ARGUMENT, "%s: line %lld, column %lld: %s",
                p->name, (long long)line, (long long)column, what);
    p->at = p->end;
}

static void wrong(struct parser *p, const char *what)
{
    wrong_at(p, p->at, what);
}

/* Fails at `at` with a message of the text `before`, the rule's name and the
 * text `after`. The line and the column of `at` precede it. */
static void wrong_rule(struct parser *p, const char *at, const char *name,
                       const char *before, const char *after)
{
    char shown[ERR_SHOWN], text[3 * ERR_SHOWN];

    snprintf(text, sizeof text, "%s%s%s", before,
             err_shown(shown, name, strlen(name)), after);
    wrong_at(p, at, text);
}

/* ---- building syntax trees ----------------------------------------------- */

/* Returns `memory`, which was allocated in the arena. Fails if it is NULL. */
static void *got(struct parser *p, void *memory)
{
    if (!memory && p->status == PL_OK)
        p->status = err_no_memory(p->err, "a grammar");
    if (!memory)
        p->at = p->end;
    return memory;
}

static void *alloc(struct parser *p, size_t n, size_t size)
{
    return got(p, arena_alloc(&p->r->memory, n, size));
}

static struct tree *tree_new(struct parser *p, enum tree_kind kind, uint32_t n)
{
    struct tree *t;

    if (++p->n_tree > GBNF_TREES)
        wrong(p, "the grammar has more than 65,536 literals, classes, names "
                 "and groups; make it smaller");
    t = alloc(p, 1, sizeof *t);
    t = t ? t : &p->spare;
    *t = (struct tree){.kind = kind, .n = n};
    return t;
}

static const struct tree *bytes_tree(struct parser *p, const char *bytes,
                                     size_t n)
{
    struct tree *t = tree_new(p, TREE_BYTES, (uint32_t)n);

    t->bytes = bytes;
    return t;
}

/* The subtrees of a sequence, or of a list of alternatives, that were parsed so
 * far. */
struct children {
    const struct tree **item; /* the subtrees: [n], in the arena */
    uint32_t n;
};

static void children_add(struct parser *p, struct children *c,
                         const struct tree *t)
{
    const struct tree **item =
        got(p, arena_extended(&p->r->memory, c->item, c->n, sizeof *item));

    if (!item)
        return;
    c->item = item;
    c->item[c->n++] = t;
}

/* Returns a tree of type `kind` with these children. A single child becomes the
 * tree itself; no children become the empty text. */
static const struct tree *
children_tree(struct parser *p, const struct children *c, enum tree_kind kind)
{
    struct tree *t;

    if (c->n < 2)
        return c->n ? c->item[0] : bytes_tree(p, "", 0);
    t = tree_new(p, kind, c->n);
    t->child = c->item;
    return t;
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

/* Returns the number of the rule named s[0 .. len). If the rule is not known
 * yet, adds it without a body. */
static uint32_t rule_of(struct parser *p, const char *s, size_t len)
{
    uint32_t *slot = slot_of(p, s, len);
    struct arena *a = &p->r->memory;
    struct rule *rule;
    const char **used, *name;

    if (*slot)
        return *slot - 1;
    if (p->r->n == GBNF_RULES) {
        wrong_at(p, s,
                 "the grammar has more than 4,096 rules; replace some by "
                 "groups");
        return 0;
    }
    rule = got(p, arena_extended(a, p->r->rule, p->r->n, sizeof *rule));
    used = got(p, arena_extended(a, p->used, p->r->n, sizeof *used));
    name = got(p, arena_strndup(a, s, len));
    if (p->status != PL_OK)
        return 0;
    p->r->rule = rule;
    p->used = used;
    rule[p->r->n] = (struct rule){.name = name};
    used[p->r->n] = s;
    *slot = ++p->r->n;
    return *slot - 1;
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

static bool take(struct parser *p, char c)
{
    bool there = next_is(p, c);

    p->at += there;
    return there;
}

/* Returns true until `c` is the next character, or something has failed. */
static bool goes_on(const struct parser *p, char c)
{
    return p->status == PL_OK && !next_is(p, c);
}

static uint32_t read_hex(struct parser *p, int n)
{
    uint32_t out = 0;

    for (int i = 0; i < n; i++, p->at += p->at < p->end) {
        int digit = p->at < p->end ? ascii_digit(*p->at) : 99;

        if (digit >= 16)
            wrong(p, "a hexadecimal digit is missing: \\x takes 2, \\u 4, "
                     "\\U 8");
        out = out << 4 | (uint32_t)digit;
    }
    if (out > RULES_LAST_CHAR)
        wrong(p, "the escape is not a character: the last one is \\U0010FFFF");
    return p->status == PL_OK ? out : 0;
}

static uint32_t read_escape(struct parser *p)
{
    static const char from[] = "nrt\\\"[]", to[] = "\n\r\t\\\"[]";
    const char *found;
    char kind;

    p->at++;
    kind = p->at < p->end ? *p->at : '\0';
    found = kind ? strchr(from, kind) : NULL;
    if (!found && (!kind || !strchr("xuU", kind))) {
        wrong(p, "unknown escape; use \\n \\r \\t \\\\ \\\" \\[ \\] \\xHH "
                 "\\uHHHH \\UHHHHHHHH");
        return 0;
    }
    p->at++;
    return found         ? (unsigned char)to[found - from]
           : kind == 'x' ? read_hex(p, 2)
                         : read_hex(p, kind == 'u' ? 4 : 8);
}

/* Reads one character, perhaps an escape, of the literal or character class
 * that begins at `open`. Fails if the line ends first. */
static uint32_t read_char(struct parser *p, const char *open)
{
    uint32_t c = 0;
    size_t n;

    if (next_is(p, '\\'))
        return read_escape(p);
    if (p->at == p->end || *p->at == '\n' || *p->at == '\r') {
        wrong_at(p, open,
                 *open == '"'
                     ? "the literal does not end on its line; close it with \""
                     : "the class does not end on its line; close it with ]");
        return 0;
    }
    n = utf8_get(p->at, (size_t)(p->end - p->at), &c);
    if (n == 0)
        wrong(p, "not valid UTF-8; save the grammar as UTF-8");
    p->at += n;
    return c;
}

/* Returns an upper bound of the number of characters before the character
 * `close` that ends a literal or a class. */
static size_t length_to(const struct parser *p, char close)
{
    size_t n = 0;

    while (p->at + n < p->end && p->at[n] != close && p->at[n] != '\n')
        n += p->at[n] == '\\' && p->at + n + 1 < p->end ? 2 : 1;
    return n;
}

static const struct tree *read_literal(struct parser *p)
{
    const char *open = p->at++;
    size_t n = 0;
    /* The text of the literal has at most as many bytes as its notation,
     * because no escape is shorter than its character. */
    char *bytes = alloc(p, length_to(p, '"') + 4, 1);

    while (goes_on(p, '"')) {
        const char *at = p->at;
        uint32_t c = read_char(p, open);

        if (c >> 11 == 0x1b)
            wrong_at(p, at,
                     "half of a surrogate pair is not a character; write the "
                     "character as \\UHHHHHHHH");
        n += utf8_put(bytes + n, c);
    }
    take(p, '"');
    return bytes_tree(p, bytes, n);
}

/* ---- reading character classes, as [a-z] --------------------------------- */

static const struct tree *class_tree(struct parser *p, const char *open,
                                     struct char_range *range, uint32_t n,
                                     bool negate)
{
    struct tree *t;

    n = range ? char_ranges_normal(range, n, negate) : 0;
    if (n == 0)
        wrong_at(p, open, "the class is empty; put a character in it");
    t = tree_new(p, TREE_CLASS, n);
    t->range = range;
    return t;
}

static const struct tree *read_class(struct parser *p)
{
    const char *open = p->at++;
    bool negate = take(p, '^');
    struct char_range *range =
        alloc(p, 2 * length_to(p, ']') + 4, sizeof *range);
    uint32_t n = 0;

    while (goes_on(p, ']')) {
        const char *at = p->at;
        struct char_range *r = &range[n++];

        r->first = r->last = read_char(p, open);
        if (next_is(p, '-') && p->at + 1 < p->end && p->at[1] != ']') {
            p->at++;
            r->last = read_char(p, open);
        }
        if (r->last < r->first)
            wrong_at(p, at, "the range is reversed; swap its ends");
    }
    take(p, ']');
    return class_tree(p, open, range, n, negate);
}

/* ---- reading repetitions, as {2,5} --------------------------------------- */

static uint32_t read_count(struct parser *p)
{
    const char *at = p->at;
    uint32_t n = 0;

    while (p->at < p->end && *p->at >= '0' && *p->at <= '9') {
        n = 10 * n + (uint32_t)(*p->at++ - '0');
        if (n > GBNF_TIMES)
            wrong_at(p, at,
                     "a repetition has at most 10,000; use less, or {n,} "
                     "without an upper bound");
    }
    if (p->at == at)
        wrong(p, "a number is missing; write {n}, {n,} or {n,m}");
    return n;
}

/* Reads a number of repetitions: {n}, {n,} or {n,m}. */
static void read_times(struct parser *p, bool lines, struct tree *t)
{
    const char *open = p->at++;

    skip_blanks(p, lines);
    t->min = t->max = read_count(p);
    skip_blanks(p, lines);
    if (take(p, ',')) {
        skip_blanks(p, lines);
        t->max = next_is(p, '}') ? RULES_UNLIMITED : read_count(p);
        skip_blanks(p, lines);
    }
    if (!next_is(p, '}'))
        wrong(p, "the repetition does not end; close it with }");
    if (t->max < t->min)
        wrong_at(p, open, "the repetition is reversed; swap the two numbers");
    take(p, '}');
}

static bool is_repeat(char c)
{
    return c == '*' || c == '+' || c == '?' || c == '{';
}

/* Reads all repetition signs (* + ? {...}) after `item`, and returns the
 * repeated item: each sign makes a TREE_REPEAT with the tree before as its
 * child. */
static const struct tree *read_repeats(struct parser *p, bool lines,
                                       const struct tree *item)
{
    for (int n = 0; p->at < p->end && is_repeat(*p->at); n++) {
        const struct tree **child = alloc(p, 1, sizeof(struct tree *));
        struct tree *t = tree_new(p, TREE_REPEAT, 1);

        if (n == MOST_REPEATS)
            wrong(p, "more than 16 repetitions of one item; remove some");
        t->min = next_is(p, '+');
        t->max = next_is(p, '?') ? 1 : RULES_UNLIMITED;
        if (next_is(p, '{'))
            read_times(p, lines, t);
        else
            p->at += p->at < p->end;
        if (p->status != PL_OK)
            return item;
        *child = item;
        t->child = child;
        item = t;
        skip_blanks(p, lines);
    }
    return item;
}

/* ---- reading items, sequences and alternatives --------------------------- */

static const struct tree *read_alternatives(struct parser *p, bool lines);

static const struct tree *read_group(struct parser *p)
{
    const char *open = p->at++;
    const struct tree *t;

    if (++p->depth > GBNF_DEPTH)
        wrong_at(
            p, open,
            "groups nest deeper than 64 levels; turn inner ones into rules");
    skip_blanks(p, true);
    t = read_alternatives(p, true);
    if (!take(p, ')'))
        wrong_at(p, open, "the group does not end; close it with )");
    p->depth--;
    return t;
}

static const struct tree *read_name(struct parser *p)
{
    size_t n = name_length(p);
    struct tree *t = tree_new(p, TREE_RULE, 0);

    if (p->status == PL_OK)
        t->rule = rule_of(p, p->at, n);
    if (p->status == PL_OK)
        p->at += n;
    return t;
}

/* Parses <[ID]> or <TEXT> at `open`. Returns the token of the vocabulary with
 * this id, or with the text <TEXT>, including < and >. */
static int32_t find_token(struct parser *p, const char *open)
{
    const char *close = memchr(open, '>', (size_t)(p->end - open));
    const char *line = memchr(open, '\n', (size_t)(p->end - open));
    int32_t id = 0;

    if (!close || (line && line < close)) {
        wrong_at(p, open,
                 "the token does not end on its line; close it with >");
    } else if (!p->tokens) {
        wrong_at(p, open,
                 "there is no vocabulary whose token this is; write its text "
                 "as a literal");
    } else if (open[1] == '[') {
        for (p->at = open + 2; *p->at >= '0' && *p->at <= '9' && id < 100000000;
             p->at++)
            id = 10 * id + (*p->at - '0');
        if (p->at == open + 2 || close - p->at != 1 || *p->at != ']')
            wrong(p, "a token's id is written <[123]>");
        if (id >= p->tokens->n)
            wrong_at(p, open, "the vocabulary has no token of this id");
    } else {
        id = p->tokens->find(p->tokens->user, open, (size_t)(close + 1 - open));
        if (id < 0)
            wrong_at(p, open,
                     "the vocabulary has no token of this text; write it as a "
                     "literal");
    }
    if (p->status == PL_OK)
        p->at = close + 1;
    return id;
}

/* Reads a token of the vocabulary, <[ID]> or <TEXT>. After '!', it matches
 * every other token instead. */
static const struct tree *read_token(struct parser *p)
{
    const char *open = p->at;
    struct rules *r = p->r;
    struct token_symbol s = {.other = take(p, '!')};
    uint32_t i = 0;
    char *bytes = alloc(p, RULES_SYMBOL_BYTES, 1);

    if (next_is(p, '<'))
        s.id = find_token(p, p->at);
    else
        wrong(p, "! is for tokens of the vocabulary; write !<[123]>, or a "
                 "class [^...] of characters");
    while (i < r->n_symbol &&
           (r->symbol[i].id != s.id || r->symbol[i].other != s.other))
        i++;
    if (i == RULES_SYMBOLS)
        wrong_at(p, open, "the grammar has more than 1,024 tokens");
    if (!r->symbol)
        r->symbol = alloc(p, RULES_SYMBOLS, sizeof *r->symbol);
    if (p->status == PL_OK) {
        r->symbol[i] = s;
        r->n_symbol += i == r->n_symbol;
        rules_symbol(bytes, i);
    }
    return bytes_tree(p, bytes, RULES_SYMBOL_BYTES);
}

static const struct tree *read_item(struct parser *p)
{
    switch (*p->at) {
    case '"':
        return read_literal(p);
    case '[':
        return read_class(p);
    case '.':
        p->at++;
        return class_tree(p, p->at - 1, alloc(p, 4, sizeof(struct char_range)),
                          0, true);
    case '(':
        return read_group(p);
    case '<':
    case '!':
        return read_token(p);
    default:
        break;
    }
    if (is_name_char(*p->at))
        return read_name(p);
    if (is_repeat(*p->at))
        wrong(p, "nothing precedes the repetition; write what is repeated, or "
                 "quote it");
    wrong(p, "expected a literal, class, group or rule name; put text in "
             "quotes");
    return &p->spare;
}

static bool at_sequence_end(const struct parser *p)
{
    return p->at == p->end || *p->at == '|' || *p->at == ')' ||
           *p->at == '\n' || *p->at == '\r';
}

static const struct tree *read_sequence(struct parser *p, bool lines)
{
    struct children c = {0};

    while (!at_sequence_end(p)) {
        const struct tree *item = read_item(p);

        skip_blanks(p, lines);
        children_add(p, &c, read_repeats(p, lines, item));
    }
    return children_tree(p, &c, TREE_SEQ);
}

static const struct tree *read_alternatives(struct parser *p, bool lines)
{
    struct children c = {0};

    for (;;) {
        children_add(p, &c, read_sequence(p, lines));
        if (!take(p, '|'))
            return children_tree(p, &c, TREE_ALT);
        skip_blanks(p, true);
    }
}

/* ---- reading rules and the whole grammar --------------------------------- */

static void read_rule(struct parser *p)
{
    const char *at = p->at;
    size_t n = name_length(p);
    const struct tree *body;
    uint32_t i;

    if (next_is(p, '|'))
        wrong(p, "the rule ended on the line before; put | at the end of that "
                 "line, or the alternatives in a group");
    if (n == 0)
        wrong(p, "a rule begins with its name; write name ::= ...");
    if (p->status != PL_OK)
        return;
    i = rule_of(p, at, n);
    if (p->status == PL_OK && p->r->rule[i].body)
        wrong_rule(p, at, p->r->rule[i].name, "the rule ",
                   " is already defined; give this one another name");
    if (p->status != PL_OK)
        return;
    p->at += n;
    skip_blanks(p, false);
    if (p->end - p->at < 3 || memcmp(p->at, "::=", 3) != 0)
        wrong(p, "::= is missing after the rule's name");
    else
        p->at += 3;
    skip_blanks(p, true);
    body = read_alternatives(p, false);
    p->r->rule[i].body = body;
    if (next_is(p, ')'))
        wrong(p, "no group is open here; remove the ), or quote it");
    go_to(p->rule_at, at, &p->line, &p->column);
    p->rule_at = at;
    p->r->rule[i].line = p->line;
    p->r->rule[i].column = p->column;
    skip_blanks(p, true);
}

static void read_all(struct parser *p)
{
    skip_blanks(p, true);
    while (p->at < p->end)
        read_rule(p);
    p->r->root = UINT32_MAX;
    for (uint32_t i = 0; i < p->r->n; i++) {
        if (!p->r->rule[i].body)
            wrong_rule(p, p->used[i], p->r->rule[i].name, "the rule ",
                       " is not defined; define it");
        if (strcmp(p->r->rule[i].name, "root") == 0)
            p->r->root = i;
    }
    if (p->r->root == UINT32_MAX)
        wrong(p, "the start rule root is missing; add root ::= ...");
}

pl_status gbnf_read(struct rules *r, const char *text, size_t len,
                    const struct grammar_tokens *tokens, const char *name,
                    pl_err *err)
{
    struct parser p = {.r = r,
                       .start = text,
                       .at = text,
                       .tokens = tokens,
                       .name = name,
                       .rule_at = text,
                       .line = 1,
                       .column = 1,
                       .n_slot = 8,
                       .err = err};
    size_t most = len / 2 + 1;

    *r = (struct rules){0};
    if (len > GBNF_BYTES)
        return err_set(
            err, PL_BAD_ARGUMENT,
            "%s: %zu bytes, but a grammar has at most %d; make it smaller",
            name, len, (int)GBNF_BYTES);
    /* A name and what separates it from the next one take two bytes or more. */
    most = most < GBNF_RULES ? most : GBNF_RULES;
    while (p.n_slot < 2 * most)
        p.n_slot *= 2;
    p.end = text + len;
    p.slot = alloc(&p, p.n_slot, sizeof *p.slot);
    if (p.status == PL_OK)
        read_all(&p);
    if (p.status != PL_OK) {
        arena_fini(&r->memory);
        *r = (struct rules){0};
    }
    return p.status;
}
