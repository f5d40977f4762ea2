/* The syntax tree of a template. It is built in two passes: lex.c splits the
 * text into tokens, parse.c builds the tree from the tokens.
 *
 * The language is Jinja with the settings of Hugging Face's templates. Blocks
 * strip the newline after them and the blanks before them, loops have break and
 * continue, and {% generation %} marks text without changing it. Inheritance,
 * import and include are rejected by name.
 *
 * There is one difference from jinja2, on which no known template depends:
 * inside a loop, macro or block, a variable from outside stays visible until a
 * variable of the same name is set there. jinja2 treats some of these variables
 * as undefined.
 *
 * Source: the grammar as the package jinja2 3.1 reads it. */
#ifndef CHAT_SYNTAX_H
#define CHAT_SYNTAX_H

#include "chat/value.h"

/* Maximum nesting of statements and expressions in a template. */
enum { SYNTAX_MAX_DEPTH = 200 };

enum token_kind { T_END, T_DATA, T_NAME, T_STRING, T_NUMBER, T_OPERATOR };

struct token {
    enum token_kind kind;
    int line;
    /* Value of a token with text, a name, a string or a number. */
    struct value value;
    /* The operator, or the marker of a tag, such as "{%", NUL-terminated. */
    char op[3];
};

/* Splits the template text[0 .. len) into tokens, the last of which is T_END.
 * Returns NULL after a failure: PL_BAD_FILE if the text is not a template; the
 * message gives the reason. */
const struct token *lex_template(struct work *w, const char *text, size_t len);

/* The kinds of nodes. A comment lists the fields of the node (a, b, c, kid[]
 * and others) and their meaning. "block" is an N_BLOCK node. "?" marks a field
 * that may be NULL or absent. */
enum node_kind {
    /* Kinds of statements. */
    N_BLOCK, /* a sequence of statements; kid: the statements */
    N_DATA,  /* text outside of tags; value: the text */
    N_PRINT, /* {{ a }}; a: expression */
    /* {% if %}; kid: condition, block, condition, block ...; a: else block?. */
    N_IF,
    /* {% for %}; a: target, b: iterable, c: filter condition?, kid: body, else
     * block?; flags: recursive. */
    N_FOR,
    N_SET, /* {% set a = b %}; a: target, b: value */
    /* {% set a %}...{% endset %}; a: target, b: filters of the block's text
     * (N_HOLE)?, kid: body. */
    N_SET_BLOCK,
    /* {% filter %}...{% endfilter %}; b: filters of the block's text (N_HOLE),
     * kid: body. */
    N_FILTERED,
    N_SCOPE, /* {% with %}; kid: body, then target, value, target, value ... */
    /* {% macro %}; sym, value: its name, word: parameters, kid: body. */
    N_MACRO,
    /* {% call %}...{% endcall %}; a: N_CALL; other fields as in N_MACRO, for
     * the macro "caller". */
    N_CALL_BLOCK,
    N_BREAK,
    N_CONTINUE,
    /* Kinds of expressions. */
    N_CONST, /* a constant; value: the constant */
    N_NAME,  /* a variable; sym: number of its name, value: text of its name */
    N_HOLE,  /* the text of a block, as the input of the block's filters */
    N_LIST,  /* a list or tuple; kid: items */
    N_TUPLE,
    N_DICT, /* a dict; kid: key, value, key, value ... */
    /* a.name; a: object, value: the name; as a target, a is a namespace. */
    N_ATTRIBUTE,
    N_ITEM,  /* a[b]; a: object, b: index */
    N_SLICE, /* a[first:end:step]; a: sequence, kid: first?, end?, step? */
    /* a(...); a: callee, kid: positional arguments, word: named arguments, b:
     * the *list? argument, c: the **dict? argument. */
    N_CALL,
    /* a|name(...); a: operand, value: the name, builtin: the filter?; arguments
     * as in N_CALL. */
    N_FILTER,
    N_TEST, /* a is name(...); fields as in N_FILTER */
    N_NOT,  /* unary operators; a: operand */
    N_NEGATE,
    N_PLUS,
    N_AND, /* binary operators; a, b: operands */
    N_OR,
    N_ADD,
    N_SUBTRACT,
    N_MULTIPLY,
    N_DIVIDE,
    N_DIVIDE_DOWN,
    N_REMAINDER,
    N_POWER,
    N_JOIN, /* a ~ b ~ c; a: first operand, word: the others */
    /* a < b < c; a: first operand, word: the others, sym: the operator before
     * each, enum comparison. */
    N_COMPARE,
    /* a if b else c; a: value if b is true, b: condition, c: value if not?. */
    N_CONDITIONAL,
};

enum comparison { IS_EQ, IS_NE, IS_LT, IS_LE, IS_GT, IS_GE, IS_IN, IS_NOT_IN };

/* A named argument of a call, a parameter of a macro with its default, or a
 * further operand of a chain of operators. */
struct word {
    struct string *name;
    int sym;
    /* Value of the argument or operand; default of the parameter, NULL if it
     * has none. */
    struct node *value;
};

struct node {
    enum node_kind kind;
    int line;
    int sym; /* number of the name of a variable or macro */
    struct node *a, *b, *c;
    struct node **kid;
    struct word *word;
    int n_kid, n_word;
    /* For N_MACRO: bits 1 << SYM_, the predefined names that its body reads.
     * For N_FOR: 1 if the loop is recursive. */
    uint8_t flags;
    const struct builtin *builtin;
    struct value value;
};

/* The numbers of the predefined names: the variable that loops set, and the
 * implicit arguments of a macro that reads these names. Other names are
 * numbered from N_SYM on, in the order of their first use. */
enum { SYM_LOOP, SYM_CALLER, SYM_KWARGS, SYM_VARARGS, N_SYM };

struct syntax {
    struct node *root;
    /* Maps each name to its number; name->n is the number of names. */
    struct dict *name;
};

/* Parses the template text[0 .. len) into *out, allocated in `a`. Computes the
 * hashes of all strings in the tree now, so that threads can share the tree.
 * PL_BAD_FILE if the text is not a template; PL_UNSUPPORTED if it uses a
 * feature that is rejected. */
pl_status parse_template(struct arena *a, const char *text, size_t len,
                         struct syntax *out, pl_err *err);

#endif
