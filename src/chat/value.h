/* Values of the template language. They behave as Python's values do, as far as
 * a template can observe it.
 *
 * Tuples and dicts never change once created, as in Hugging Face's sandbox, so
 * they are shared instead of copied. Lists change only by their methods append,
 * extend, insert and pop. In addition, the attributes of a namespace and the
 * position of an iterator can change. All values are allocated in the arena of
 * their creator and freed with it. Integers have 64 bits. A result that needs
 * more bits is an error. A larger integer in the JSON of a conversation is kept
 * as its digits; computations convert it to a float. */
#ifndef CHAT_VALUE_H
#define CHAT_VALUE_H

#include "base/arena.h"
#include "pl.h"

/* Calls X(kind, name) for each kind of value; `name` is Python's name of the
 * type. */
#define VALUE_KIND_MAP(X)                                                      \
    X(ABSENT, "absent") /* argument that is not given */                       \
    X(UNDEFINED, "Undefined")                                                  \
    X(NONE, "None")                                                            \
    X(BOOL, "bool")                                                            \
    X(INT, "int")                                                              \
    X(FLOAT, "float")                                                          \
    X(STR, "str object")                                                       \
    X(LIST, "list object")                                                     \
    X(TUPLE, "tuple object")                                                   \
    X(DICT, "dict object")                                                     \
    X(VIEW, "dict view") /* dict.keys(), .values(), .items(), as a list */     \
    X(ITER, "generator") /* yields each item once */                           \
    X(RANGE, "range object")                                                   \
    X(NAMESPACE, "namespace object")                                           \
    X(LOOP, "loop")                                                            \
    X(MACRO, "macro")                                                          \
    X(METHOD, "method")                                                        \
    X(FUNCTION, "function")                                                    \
    X(JOINER, "joiner")                                                        \
    X(CYCLER, "Cycler object")

enum value_kind {
#define VALUE_KIND_ENUM(name, text) V_##name,
    VALUE_KIND_MAP(VALUE_KIND_ENUM)
#undef VALUE_KIND_ENUM
};

/* A string; its bytes are usually, but not necessarily, UTF-8. */
struct string {
    const char *s; /* the bytes of the string, [len], not NUL-terminated */
    size_t len;
    uint32_t hash; /* hash of the bytes; 0 if not computed yet */
    bool ascii;    /* each character is one byte */
};

struct value {
    uint8_t kind;
    /* Detail of the kind. View: an enum view. String: STR_MARKUP or 0. Tuple:
     * TUPLE_GROUP or 0. Float: FLOAT_DIGITS or 0. Undefined value: the kind of
     * the object that lacks the attribute, or V_ABSENT for a variable that does
     * not exist. */
    uint8_t sub;
    union {
        bool truth;
        int64_t i;
        double f;
        /* For V_STR: the string. For V_FLOAT with FLOAT_DIGITS: its digits. For
         * V_UNDEFINED: the name of the missing variable or attribute, or
         * NULL. */
        struct string *str;
        struct list *list; /* the value of a list, tuple or view */
        struct dict *dict; /* the value of a dict or namespace */
        struct iter *iter;
        struct range *range;
        struct loop *loop;
        struct macro *macro;
        struct method *method;
        const struct builtin *function;
        struct joiner *joiner;
        struct cycler *cycler;
    };
};

/* Flag of a string that is markup: HTML, as marked by the filters safe and
 * escape. Another string is escaped before it is joined with markup. */
enum { STR_MARKUP = 1 };

/* Flag of a V_FLOAT value that is an integer of more than 64 bits, kept as its
 * digits. Output shows all digits; computations convert them to a double. */
enum { FLOAT_DIGITS = 1 };

/* Flag of a tuple (key, list of items), which the filter groupby has made. */
enum { TUPLE_GROUP = 1 };

enum view { VIEW_KEYS, VIEW_VALUES, VIEW_ITEMS };

struct list {
    size_t n;
    struct value *item; /* the items, [n]; never NULL */
    /* Capacity of item[] if only this list may append to it, else 0. Other
     * lists may share item[0 .. n), whose values never change. */
    size_t cap;
};

struct pair {
    struct value key, value;
};

/* A dict, with its keys in the order of their insertion. */
struct dict {
    size_t n, cap;
    struct pair *pair; /* the pairs, [n], with capacity `cap` */
    /* Hash table: slot[i] is the index of a pair + 1; 0 if free. NULL if the
     * dict has few pairs, which are searched linearly. */
    uint32_t *slot, slot_mask;
};

struct iter {
    struct list list;
    size_t at; /* number of items that the iterator has already yielded */
};

struct range {
    /* First, end and step are the arguments of range(); n is the number of
     * items. */
    int64_t first, end, step, n;
};

struct joiner {
    struct string *sep;
    bool used;
};

struct cycler {
    /* The values through which the cycler goes; at least one. */
    struct list *list;
    size_t at;
};

static inline struct value value_none(void)
{
    return (struct value){.kind = V_NONE};
}

static inline struct value value_bool(bool b)
{
    return (struct value){.kind = V_BOOL, .truth = b};
}

static inline struct value value_int(int64_t i)
{
    return (struct value){.kind = V_INT, .i = i};
}

static inline struct value value_float(double f)
{
    return (struct value){.kind = V_FLOAT, .f = f};
}

static inline struct value value_str(struct string *s)
{
    return (struct value){.kind = V_STR, .str = s};
}

static inline bool value_is_markup(struct value v)
{
    return v.kind == V_STR && v.sub == STR_MARKUP;
}

/* Returns true if v is a bool, an int or a float, because Python computes with
 * all three. */
static inline bool value_is_number(struct value v)
{
    return v.kind == V_BOOL || v.kind == V_INT || v.kind == V_FLOAT;
}

/* Returns the value of a bool or an int. `v` must be one of these. */
static inline int64_t value_as_int(struct value v)
{
    return v.kind == V_BOOL ? v.truth : v.i;
}

static inline bool value_is_wide(struct value v)
{
    return v.kind == V_FLOAT && v.sub == FLOAT_DIGITS;
}

/* Returns the value of a number. `v` must be a bool, an int or a float. */
double value_as_float(struct value v);

/* Returns the name of a type for error messages, such as "str object" or
 * "None". */
const char *value_kind_name(enum value_kind kind);
bool value_truth(struct value v);

/* The functions from here on return NULL or false if out of memory. */

/* Return a string with the text s[0 .. len). string_view borrows `s` as long as
 * the string is used; string_copy copies it. */
struct string *string_view(struct arena *a, const char *s, size_t len);
struct string *string_copy(struct arena *a, const char *s, size_t len);
/* Returns the hash of a string, which is never 0. */
uint32_t string_hash(struct string *s);
bool string_equal(struct string *a, struct string *b);
bool string_is(const struct string *s, const char *text);

struct list *list_create(struct arena *a, size_t n);
struct dict *dict_create(struct arena *a, size_t cap);
/* Sets d[key] to `value`, replacing the value of an existing key. A key is a
 * string, a number or None. */
bool dict_put(struct arena *a, struct dict *d, struct value key,
              struct value value);
/* Returns the value of `key` in the dict; NULL if the dict does not have the
 * key. */
struct value *dict_find(const struct dict *d, struct value key);
bool value_is_key(struct value v);

#endif
