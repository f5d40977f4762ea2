/* The builtin functions, filters, tests and methods of the template language.
 * Each has a row in one of the tables at the end of this file. */
#ifndef CHAT_BUILTIN_H
#define CHAT_BUILTIN_H

#include "chat/value.h"

struct render;

enum { BUILTIN_MAX_ARG = 32, BUILTIN_MAX_PARAM = 6 };

/* The arguments of a call: first n positional ones, then n_word named ones. */
struct args {
    int n, n_word;
    /* Values of the arguments, [n + n_word]. */
    struct value value[BUILTIN_MAX_ARG];
    /* word[i]: name of the named argument with the value value[n + i] */
    struct string *word[BUILTIN_MAX_ARG];
};

struct call {
    /* Operand of a filter, test or method: the x in x|f, x is f, x.f(). */
    struct value self;
    struct string *s; /* the operand as a string, if the row asks for it */
    struct list l;    /* the items of the operand, if the row asks for them */
    int what;         /* that of the row */
    /* arg[i]: the argument for parameter i; V_ABSENT if the call has none for
     * it */
    struct value arg[BUILTIN_MAX_PARAM];
    /* All arguments of the call; for builtins whose `params` is "*". */
    const struct args *args;
};

typedef struct value builtin_fn(struct render *r, const struct call *c);

struct builtin {
    const char *name;
    /* Conversion of the operand:
     *   ' '  none
     *   's'  to call.s; other values than strings are errors
     *   'S'  to call.s by str()
     *   'P'  to call.s by str(), without the mark of markup (HTML)
     *   'l'  to call.l; values without items are errors
     * The result of a builtin with 's' or 'S' is marked as markup (HTML) if the
     * operand is. */
    char self;
    /* The parameters, separated by blanks; "*" if any arguments are allowed.
     * Each is NAME or NAME:TYPE, where TYPE begins with the conversion:
     *   s  a string       e  a string, escaped if the operand is markup
     *   S  by str()       i  an integer
     *   b  its truth
     *   v  any value
     * A call may leave a parameter out if TYPE goes on with '?', or also pass
     * None for it if TYPE goes on with '~'. Then its value is V_ABSENT, or the
     * integer after '?' or '~'. */
    const char *params;
    builtin_fn *run;
    int what; /* a constant by which rows that share a function differ */
};

/* Return the builtin function, filter, test or method of this name; NULL if
 * there is none. builtin_method finds only methods of values of the kind
 * `kind`. */
const struct builtin *builtin_function(const struct string *name);
const struct builtin *builtin_filter(const struct string *name);
const struct builtin *builtin_test(const struct string *name);
const struct builtin *builtin_method(enum value_kind kind,
                                     const struct string *name);

/* Binds the arguments of a call to the parameters of a builtin, and runs the
 * builtin. `self` is the operand of a filter, test or method. */
struct value builtin_run(struct render *r, const struct builtin *b,
                         struct value self, const struct args *args);

/* The tables of builtins. Each table ends with a row whose name is NULL. */
extern const struct builtin builtin_functions[], builtin_filters[],
    builtin_tests[], builtin_string_methods[], builtin_dict_methods[],
    builtin_text_filters[], builtin_list_methods[], builtin_tuple_methods[],
    builtin_loop_methods[], builtin_cycler_methods[];

#endif
