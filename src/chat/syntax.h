/* The syntax tree of a template and its two passes: lex.c splits the text into
 * tokens, parse.c builds the tree from them.
 *
 * The language is Jinja with the settings of Hugging Face's templates. Blocks
 * strip the newline after them and the blanks before them, loops have break and
 * continue, and {% generation %} marks text without changing it. Inheritance,
 * import and include are rejected by name.
 *
 * One thing differs from jinja2, which model templates do not use: a variable
 * stays visible until a variable of the same name is set, while jinja2 treats
 * some of these as undefined.
 *
 * Source: the grammar as the package jinja2 3.1 reads it. */
#ifndef CHAT_SYNTAX_H
#define CHAT_SYNTAX_H

#include "chat/value.h"

/* Maximum nesting of a template's statements and expressions. */
enum { SYNTAX_MAX_DEPTH = 200 };

enum token_kind {
    T_END, /* end of the template */
    T_DATA,
    T_PRINT_BEGIN, /* {{ */
    T_PRINT_END,
    T_BLOCK_BEGIN, /* {% */
    T_BLOCK_END,
    T_NAME,
    T_STRING,
    T_NUMBER,
    T_OPERATOR,
};

struct token {
    enum token_kind kind;
    int line;
    struct value value; /* value of a data, name, string or number token */
    char op[3];         /* operator, NUL-terminated */
};

/* Splits text[0 .. len) into tokens. Sets *out to the *n tokens, the last of
 * which is T_END, allocated in `a`. `text` is borrowed as long as the tokens
 * are used. PL_BAD_FILE if it is not a template; the message says why. */
pl_status lex_template(struct arena *a, const char *text, size_t len,
                       struct token **out, size_t *n, pl_err *err);

/* The meaning of a node's fields a, b, c, kid[] and others, by kind. "block" is
 * an N_BLOCK node; "?" marks a field that may be NULL. */
enum node_kind {
    /* statements */
    N_BLOCK,      /* kid: statements */
    N_DATA,       /* value: the text */
    N_PRINT,      /* a: expression */
    N_IF,         /* kid: condition, block, condition, block ...; a: else? */
    N_FOR,        /* a: target, b: iterable, c: filter?, kid: body, else?;
                     flags: recursive */
    N_SET,        /* a: target, b: value */
    N_SET_BLOCK,  /* a: target, b: filters? (of N_HOLE), kid: body */
    N_FILTERED,   /* b: filters (of N_HOLE), kid: body */
    N_SCOPE,      /* kid: body, then targets and values in turn (with) */
    N_MACRO,      /* sym, value: its name, word: parameters, kid: body */
    N_CALL_BLOCK, /* a: N_CALL; other fields as N_MACRO, passed to the call */
    N_BREAK,
    N_CONTINUE,
    /* expressions */
    N_CONST, /* value: the constant */
    N_NAME,  /* sym, value: its text */
    N_HOLE,  /* the input of a block's filter */
    N_LIST,  /* kid: items */
    N_TUPLE,
    N_DICT,      /* kid: key, value, key, value ... */
    N_ATTRIBUTE, /* a, value: the name; as a target, a is the namespace */
    N_ITEM,      /* a: object, b: index */
    N_SLICE,     /* a: sequence, kid: first?, end?, step? */
    N_CALL,      /* a: callee, kid, word: arguments, b: *list?, c: **dict? */
    N_FILTER,    /* as N_CALL; builtin?, value: its name */
    N_TEST,      /* as N_FILTER */
    N_NOT,       /* a: operand */
    N_NEGATE,
    N_PLUS,
    N_AND, /* a, b: operands */
    N_OR,
    N_ADD,
    N_SUBTRACT,
    N_MULTIPLY,
    N_DIVIDE,
    N_DIVIDE_DOWN,
    N_REMAINDER,
    N_POWER,
    N_JOIN,    /* kid: operands of a ~ b ~ c */
    N_COMPARE, /* kid: first, second, ...; op: enum comparison [n_kid - 1] */
    N_CONDITIONAL, /* a: result if b is true, c: else? */
};

enum comparison { IS_EQ, IS_NE, IS_LT, IS_LE, IS_GT, IS_GE, IS_IN, IS_NOT_IN };

/* A named argument of a call, or a parameter of a macro. */
struct word {
    struct string *name;
    int sym;
    struct node *value; /* the argument; a parameter's default, or NULL */
};

struct node {
    enum node_kind kind;
    int line;
    int sym; /* number of a name */
    struct node *a, *b, *c;
    struct node **kid;
    struct word *word;
    int n_kid, n_word;
    /* N_MACRO: 1 << each SYM_ below that its body reads; N_FOR: recursive */
    uint8_t flags;
    const uint8_t *op;
    const struct builtin *builtin;
    struct value value;
};

/* The numbers of predefined names: the variable that loops set, and the
 * implicit arguments of a macro that reads them. Other names are numbered from
 * N_SYM on, in order of first use. */
enum { SYM_LOOP, SYM_CALLER, SYM_KWARGS, SYM_VARARGS, N_SYM };

struct syntax {
    struct node *root;
    struct dict *name; /* maps names to numbers; its n is their count */
};

/* Parses the template text[0 .. len) into *out, allocated in `a`. Computes the
 * hash of every string, so that threads may share the tree. PL_BAD_FILE if it
 * is not a template; PL_UNSUPPORTED for a rejected feature. */
pl_status parse_template(struct arena *a, const char *text, size_t len,
                         struct syntax *out, pl_err *err);

#endif
