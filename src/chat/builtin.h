/* The functions, filters, tests and methods that the template language has
 * built in. Each has a row in one of the tables at the end of this file. */
#ifndef CHAT_BUILTIN_H
#define CHAT_BUILTIN_H

#include "chat/value.h"

struct render;

enum { BUILTIN_MAX_ARG = 32, BUILTIN_MAX_PARAM = 6 };

/* The arguments of a call: n positional ones, then n_word named ones. */
struct args {
    int n, n_word;
    struct value value[BUILTIN_MAX_ARG]; /* [n + n_word] */
    /* names of the n_word named arguments */
    struct string *word[BUILTIN_MAX_ARG];
};

struct call {
    struct value self; /* operand of a filter, test or method */
    /* the argument of each parameter; V_ABSENT if it is not given */
    struct value arg[BUILTIN_MAX_PARAM];
    const struct args *args; /* all arguments, for params "*" */
};

typedef pl_status builtin_fn(struct render *r, const struct call *c,
                             struct value *out);

struct builtin {
    const char *name;
    const char *params; /* names separated by blanks; "*" for any arguments */
    int n_need;         /* the first n_need parameters are required */
    builtin_fn *run;
};

/* Return the function, filter, test or method of this name, or NULL.
 * builtin_method looks only for methods of values of kind `kind`. */
const struct builtin *builtin_function(const struct string *name);
const struct builtin *builtin_filter(const struct string *name);
const struct builtin *builtin_test(const struct string *name);
const struct builtin *builtin_method(enum value_kind kind,
                                     const struct string *name);

/* Binds the arguments to the builtin's parameters and runs the builtin. `self`
 * is the operand of a filter, test or method. */
pl_status builtin_run(struct render *r, const struct builtin *b,
                      struct value self, const struct args *args,
                      struct value *out);

/* The tables of builtins. Each ends with a row whose name is NULL. */
extern const struct builtin builtin_functions[], builtin_filters[],
    builtin_tests[], builtin_string_methods[], builtin_dict_methods[],
    builtin_text_filters[], builtin_list_methods[], builtin_list_changes[],
    builtin_loop_methods[], builtin_cycler_methods[];

#endif
