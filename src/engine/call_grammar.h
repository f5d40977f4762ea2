/* Writes a grammar that restricts a model's reply to tool calls. Calls are
 * enclosed in the markers that were learned from the chat template
 * (chat/reply_format.h); their arguments follow the tools' schemas.
 *
 * pl_reply parses every text that the grammar accepts into calls of those tools
 * with valid arguments. The converse does not hold: pl_reply also parses texts
 * that the grammar rejects. Schemas are enforced as grammar/schema.h describes.
 * Arguments whose names a template writes without quotes must appear in the
 * order of the schema's properties. */
#ifndef ENGINE_CALL_GRAMMAR_H
#define ENGINE_CALL_GRAMMAR_H

#include "chat/reply_format.h"
#include "grammar/schema_text.h"

/* Sets *out to the text of the grammar, in GBNF. `tools` is a JSON list as in
 * pl_conversation. `only` names the one tool that may be called, NULL for any
 * tool. `single` allows exactly one call, otherwise one or more. `content` is
 * the JSON Schema of a document that may be the reply instead of calls, NULL if
 * only calls are allowed. If the format `f` of the template has no tool calls,
 * a call is a JSON object with "name" and "arguments". Returns PL_UNSUPPORTED
 * if a tool's schema cannot be enforced; the message names the cause. On
 * failure `out` owns no memory. */
pl_status call_grammar_write(struct gbnf_text *out,
                             const struct reply_format *f, const char *tools,
                             const char *only, bool single, const char *content,
                             pl_err *err);

#endif
