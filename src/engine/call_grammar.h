/* The replies that are calls of tools and nothing else, as a grammar: the marks
 * as they were learned from a chat template, arguments by the tools' schemas.
 *
 * Every text of the grammar is taken apart by pl_reply into calls of those
 * tools with valid arguments. Not every reply with such calls is one: schemas
 * are kept to as grammar/schema.h says, and arguments that a template shows
 * without quotes come where their properties are named. */
#ifndef ENGINE_CALL_GRAMMAR_H
#define ENGINE_CALL_GRAMMAR_H

#include "chat/reply_format.h"
#include "grammar/schema_text.h"

/* GBNF. tools: a JSON list as pl_conversation has it; only: the tool that has
 * to be called, NULL: any of them; single: one call, else one or more. content:
 * the JSON Schema of what may come in place of calls, NULL: nothing may.
 * PL_UNSUPPORTED: the template shows no calls, or what a tool asks for cannot
 * be kept to; the message names it. On failure nothing is held. */
pl_status call_grammar_write(struct gbnf_text *out,
                             const struct reply_format *f, const char *tools,
                             const char *only, bool single, const char *content,
                             pl_err *err);

#endif
