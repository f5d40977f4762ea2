/* Values of the template language. They behave as Python's values do, as far as
 * a template can observe it.
 *
 * Tuples and dicts never change once created, as in Hugging Face's sandbox, so
 * they are shared instead of copied. Lists change only by their methods append,
 * extend, insert and pop. In addition, the attributes of a namespace and the
 * position of an iterator can change. All values are allocated in the arena of
 * their creator and freed with it. Integers have 64 bits. A result that needs
 * more bits is an error. A larger integer in the JSON of a conversation is kept
 * as its digits; computations convert it to a float.
 *
 * Errors are sticky: struct work keeps the first failure. After it, functions
 * do nothing or return an undefined value, an empty string or false, so callers
 * continue without a check. Loops over templates and values end then, because
 * work_enter fails. */
#ifndef CHAT_VALUE_H
#define CHAT_VALUE_H

#include "base/arena.h"
#include "chat/template.h"

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
    /* Size of the array s[] if only this string may append to it, else 0. */
    size_t cap;
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
        void *object; /* the object of a kind that has one */
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

/* A list. A zeroed struct is the empty list. */
struct list {
    size_t n;
    struct value *item; /* the items, [n] */
    /* Capacity of item[] if only this list may append to it, else 0. Other
     * lists may share item[0 .. n), whose values never change. */
    size_t cap;
};

struct pair {
    struct value key, value;
};

/* A dict, with its keys in the order of their insertion. A zeroed struct is the
 * empty dict. */
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
    struct list list;
    size_t at;
};

/* The memory and the limits of parsing or rendering one template, and the first
 * failure. */
struct work {
    struct arena arena;
    /* The steps, depth and bytes that may still be used. */
    struct chat_limits left;
    /* Line in the template of the current node, for messages; 0 before the
     * first one. */
    int line;
    pl_status status; /* PL_OK until the first failure */
    pl_err *err;
    struct string empty; /* the empty string */
};

void work_init(struct work *w, const struct chat_limits *limits, pl_err *err);
/* Keeps the failure `s` with its message, which begins with "template line N: "
 * if there is a current line, unless there was a failure before. Returns an
 * undefined value. */
struct value work_fail(struct work *w, pl_status s, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void work_no_memory(struct work *w);
/* Spends steps of the limit; fails with PL_FULL at the limit. */
void work_spend(struct work *w, uint64_t steps);
/* Begins one more level of nesting; fails with PL_BAD_ARGUMENT at the limit.
 * Returns false if anything has failed. The caller ends the level by
 * `w->left.depth++`, which is harmless after a failure. */
bool work_enter(struct work *w);
/* Returns n zeroed elements of `size` bytes; NULL after a failure, such as that
 * of the memory limit. */
void *work_alloc(struct work *w, size_t n, size_t size);

/* Returns an array with space for one element more than from[n]: it is from[]
 * if n is not 0 or a power of 2, else a copy of double its size. Returns NULL
 * after a failure. */
void *work_extended(struct work *w, void *from, size_t n, size_t size);

static inline struct value value_none(void)
{
    return (struct value){.kind = V_NONE};
}

static inline struct value value_undefined(void)
{
    return (struct value){.kind = V_UNDEFINED};
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

/* Returns true if v is of one of the kinds, bits 1 << V_. */
static inline bool value_is(struct value v, unsigned kinds)
{
    return kinds >> v.kind & 1;
}

/* Sets of kinds. Python computes with bools, ints and floats. */
enum {
    KINDS_INT = 1 << V_BOOL | 1 << V_INT,
    KINDS_NUMBER = KINDS_INT | 1 << V_FLOAT,
    KINDS_KEY = KINDS_NUMBER | 1 << V_STR | 1 << V_NONE,
    KINDS_LIST = 1 << V_LIST | 1 << V_TUPLE,
    KINDS_SEQUENCE = KINDS_LIST | 1 << V_STR,
};

static inline bool value_is_markup(struct value v)
{
    return v.kind == V_STR && v.sub == STR_MARKUP;
}

static inline bool value_is_wide(struct value v)
{
    return v.kind == V_FLOAT && v.sub == FLOAT_DIGITS;
}

/* Returns the value of a bool or an int. `v` must be one of these. */
static inline int64_t value_as_int(struct value v)
{
    return v.kind == V_BOOL ? v.truth : v.i;
}

/* Returns the value of a number. `v` must be a bool, an int or a float. */
double value_as_float(struct value v);
/* Returns the name of the type of `v` for error messages, such as "str object"
 * or "None". */
const char *value_kind_name(enum value_kind kind);
bool value_truth(struct value v);

/* Return a string with the text s[0 .. len). value_view borrows `s` as long as
 * the string is used; value_copy copies it. */
struct value value_view(struct work *w, const char *s, size_t len);
struct value value_copy(struct work *w, const char *s, size_t len);
/* Returns the hash of a string, which is never 0. */
uint32_t string_hash(struct string *s);
bool string_equal(struct string *a, struct string *b);
bool string_is(const struct string *s, const char *text);

/* Returns a value of this kind with a copy of *object, `size` bytes. */
struct value value_new(struct work *w, enum value_kind kind, const void *object,
                       size_t size);
struct value value_list(struct work *w, enum value_kind kind, struct list l);
struct value value_pair(struct work *w, struct value a, struct value b);
/* Returns an empty list with the capacity for n items. */
struct list list_with(struct work *w, size_t n);
/* Appends v to the list. The items are moved to a new array if the list has no
 * capacity of its own. */
void list_add(struct work *w, struct list *l, struct value v);

/* Returns an empty dict with the capacity for n pairs. */
struct dict dict_with(struct work *w, size_t n);
/* Sets d[key] to `value`, replacing the value of an existing key. Fails if
 * `key` is not of KINDS_KEY. */
void dict_put(struct work *w, struct dict *d, struct value key,
              struct value value);
/* Returns the value of `key` in the dict; NULL if the dict does not have the
 * key. */
struct value *dict_find(const struct dict *d, struct value key);

/* In value_json.c: parses the JSON text s[0 .. len). `name` is the name of the
 * text for error messages. PL_BAD_ARGUMENT: the JSON is invalid, which includes
 * a number beyond the range of a double, or it nests too deeply. The message
 * has the position. */
struct value value_from_json(struct work *w, const char *s, size_t len,
                             const char *name);

#endif
