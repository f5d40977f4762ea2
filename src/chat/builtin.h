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
    /* arg[i]: the argument for parameter i; V_ABSENT if the call has none for
     * it */
    struct value arg[BUILTIN_MAX_PARAM];
    /* All arguments of the call; for builtins whose `params` is "*". */
    const struct args *args;
};

typedef pl_status builtin_fn(struct render *r, const struct call *c,
                             struct value *out);

struct builtin {
    const char *name;
    /* Names of the parameters, separated by blanks; "*" if any arguments are
     * allowed. */
    const char *params;
    int n_need; /* the first n_need parameters must have an argument */
    builtin_fn *run;
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
pl_status builtin_run(struct render *r, const struct builtin *b,
                      struct value self, const struct args *args,
                      struct value *out);

/* The tables of builtins. Each table ends with a row whose name is NULL. */
extern const struct builtin builtin_functions[], builtin_filters[],
    builtin_tests[], builtin_string_methods[], builtin_dict_methods[],
    builtin_text_filters[], builtin_list_methods[], builtin_list_changes[],
    builtin_loop_methods[], builtin_cycler_methods[];

#endif
