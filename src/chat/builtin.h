/* What templates can call without defining it: functions, filters, tests, and
 * methods of strings, dicts and lists. One row each, in tables by subject. */
#ifndef CHAT_BUILTIN_H
#define CHAT_BUILTIN_H

#include "chat/value.h"

struct render;

enum { BUILTIN_MAX_ARG = 32, BUILTIN_MAX_PARAM = 6 };

/* Arguments as a call gives them: those without a name first. */
struct args {
    int n, n_word;
    struct value value[BUILTIN_MAX_ARG];  /* [n + n_word] */
    struct string *word[BUILTIN_MAX_ARG]; /* [n_word] names of the last ones */
};

struct call {
    struct value self;                   /* what it is applied to */
    struct value arg[BUILTIN_MAX_PARAM]; /* V_ABSENT: not given */
    const struct args *args;             /* all, where a row says "*" */
};

typedef pl_status builtin_fn(struct render *r, const struct call *c,
                             struct value *out);

struct builtin {
    const char *name;
    const char *params; /* names with blanks between; "*": as it likes */
    int n_need;         /* of them must be given */
    builtin_fn *run;
};

/* Rows by name, or NULL. */
const struct builtin *builtin_function(const struct string *name);
const struct builtin *builtin_filter(const struct string *name);
const struct builtin *builtin_test(const struct string *name);
const struct builtin *builtin_method(enum value_kind kind,
                                     const struct string *name);

/* Binds arguments to parameters, and runs. */
pl_status builtin_run(struct render *r, const struct builtin *b,
                      struct value self, const struct args *args,
                      struct value *out);

/* The tables, each ended by a row without a name. */
extern const struct builtin builtin_functions[], builtin_filters[],
    builtin_tests[], builtin_string_methods[], builtin_dict_methods[],
    builtin_text_filters[], builtin_list_methods[], builtin_loop_methods[],
    builtin_cycler_methods[];

#endif
