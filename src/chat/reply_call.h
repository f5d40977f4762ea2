/* Converts the text of a tool call in a model's reply to a name and JSON
 * arguments. Used only by files of chat/. */
#ifndef CHAT_REPLY_CALL_H
#define CHAT_REPLY_CALL_H

#include "chat/json_span.h"
#include "chat/reply_format.h"

#include <jansson.h>

/* A growing text. A zeroed struct is the empty text. */
struct reply_text {
    char *s; /* the text, NUL-terminated; owned; NULL if nothing was added */
    size_t n, cap;
    bool failed; /* memory was short; text that is added later is lost */
};
void reply_add(struct reply_text *t, struct span s);
/* Returns the text from offset `from` on. */
static inline struct span reply_added(const struct reply_text *t, size_t from)
{
    return t->s ? (struct span){t->s + from, t->n - from}
                : (struct span){"", 0};
}
/* Appends the text `s` as a JSON string, with quotes. */
void reply_add_string(struct reply_text *t, struct span s);

/* Appends JSON text. Converts what models write although JSON forbids it:
 * control characters inside strings become escapes, strings and constants of
 * Python become those of JSON, keys get the quotes that they lack, and a comma
 * before a closing bracket is left out. Valid JSON stays unchanged. `at` is the
 * state of a scan, zeroed before the first text. If `s` ends with a comma and
 * blanks, the comma is kept. A word at the end of `s` is not taken for a
 * key. */
void reply_add_escaped(struct reply_text *t, struct span s,
                       struct json_scan *at);

/* Appends the JSON text `t` with the closing brackets that it lacks: before a
 * bracket that closes an outer object or list, and at the end. Returns the
 * number of these brackets. Returns -1 if `t` ends inside a string, has a
 * bracket too many, or memory is short. */
int reply_add_closed(struct reply_text *out, struct span t);

/* A parsed tool call. Its spans point into the text of the reply, except for
 * arguments that were converted to JSON. These are in the buffer `made` of the
 * functions below. */
struct reply_call {
    struct span name, arguments, id;
};

/* Returns true if *t is a JSON object, or becomes one by the conversions of
 * reply_add_escaped. In the second case *t becomes the converted copy at the
 * end of `made`, which then has space for as many bytes again without
 * moving. */
bool reply_is_object(struct span *t, struct reply_text *made);

/* Parses a call. `t` is the text between the call's markers; for CALLS_OBJECT
 * it is one object. Sets *out to the name, the identifier and the arguments,
 * which are a JSON object. `tools` is the JSON list of declared tools, which
 * says what arguments are strings; NULL if unknown. If `loose`, the last value
 * may lack the marker that closes it or, for CALLS_QUOTED, closing brackets may
 * be missing. Returns false if `t` is not a call. */
bool reply_call_read(const struct reply_format *f, struct span t,
                     const json_t *tools, bool loose, struct reply_text *made,
                     struct reply_call *out);

/* Parses a CALLS_TAGGED call whose text `t` was cut. The arguments are JSON
 * that breaks off where the text does. Returns false if the name is
 * incomplete. */
bool reply_call_read_begun(const struct reply_format *f, struct span t,
                           const json_t *tools, struct reply_text *made,
                           struct reply_call *out);

/* Parses the beginning `t` of a call that may be incomplete. Returns true if
 * its name is known and its arguments, a JSON object, begin at offset *at of
 * `t`. Sets out->name and out->id, which point into `t`. */
bool reply_call_begins(const struct reply_format *f, struct span t,
                       struct reply_call *out, size_t *at);
/* Returns true if `t` may become a tool call in notation `f`. `t` is the
 * beginning of an object or of a list of objects, which starts with { or [. */
bool reply_may_be_object(const struct reply_format *f, struct span t);
/* Counts markers in a part of a call's text: those that open a value, less
 * those that close one or, for CALLS_QUOTED, quotes. A call ends inside a value
 * if the sum of its parts is positive or, for CALLS_QUOTED, odd. A marker there
 * is a part of the value. */
int64_t reply_count_values(const struct reply_format *f, struct span t);
/* Returns false if `t`, the text of a tool call up to a closing marker, is
 * certainly not all of it, because it ends within a value. */
bool reply_call_may_end(const struct reply_format *f, struct span t);
/* Returns true if `t`, the text of a tagged call, begins with the name of a
 * declared tool and a marker that opens a value. */
bool reply_call_has_value(const struct reply_format *f, struct span t,
                          const json_t *tools);
/* Returns the length of the call at the beginning of `t`, whose closing marker
 * is missing: another call follows its arguments or, for CALLS_TAGGED, the
 * marker after all calls. Returns t.n if neither follows. Overwrites `made`. */
size_t reply_call_length(const struct reply_format *f, struct span t,
                         const json_t *tools, struct reply_text *made);
/* Returns the name at the beginning of `t`, which a quote may precede. */
struct span reply_name_at(struct span t);
/* Returns true if the list `tools` declares a tool with the name `name`. */
bool reply_is_tool(const json_t *tools, struct span name);
/* Returns true if `tools` declares a tool whose name begins with `name`. */
bool reply_begins_tool(const json_t *tools, struct span name);
/* Returns true if `t` begins with the name of a declared tool, or may do so
 * once more text has arrived. */
bool reply_may_be_tool(const json_t *tools, struct span t);

#endif
