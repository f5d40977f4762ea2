/* A grammar of the replies that consist of tool calls only. Markers are those
 * learned from a chat template; arguments follow the tools' schemas.
 *
 * pl_reply parses every text of the grammar into calls of those tools with
 * valid arguments. The grammar does not cover every reply with such calls.
 * Schemas are enforced as grammar/schema.h describes. Arguments that a template
 * shows without quotes appear in the order of their properties. */
#ifndef ENGINE_CALL_GRAMMAR_H
#define ENGINE_CALL_GRAMMAR_H

#include "chat/reply_format.h"
#include "grammar/schema_text.h"

/* Writes GBNF. tools: a JSON list as in pl_conversation. only: the tool that
 * must be called, NULL: any. single: one call, else one or more. content: the
 * JSON Schema of a reply instead of calls, NULL: calls only. PL_UNSUPPORTED:
 * the template shows no calls, or a tool's schema cannot be enforced; the
 * message names it. On failure nothing is held. */
pl_status call_grammar_write(struct gbnf_text *out,
                             const struct reply_format *f, const char *tools,
                             const char *only, bool single, const char *content,
                             pl_err *err);

#endif
