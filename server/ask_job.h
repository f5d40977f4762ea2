/* From what a request asks for to a job of the loop: the tokens of its prompts,
 * and how each of its texts is to be written. */
#ifndef SERVER_ASK_JOB_H
#define SERVER_ASK_JOB_H

#include "ask.h"
#include "loop.h"

/* What the template makes of a conversation; *text is malloc'ed, and ends with
 * a->begun, if there is that. now: as in pl_conversation. UNSUPPORTED: the
 * template does not show that text as it is. */
pl_status ask_render(const struct ask *a, const pl_template *t, int64_t now,
                     char **text, size_t *len, pl_err *err);
/* The tokens of a text that a template made, which may name BOS itself: there
 * is one where the tokenizer asks for it. *ids is malloc'ed. */
pl_status ask_chat_tokens(const pl_tokenizer *words, const char *text,
                          size_t len, int32_t **ids, int64_t *n, pl_err *err);
/* The tokens of a prompt that is no conversation. What the tokenizer adds goes
 * before a text that begins it; token ids are taken as they are. */
pl_status ask_prompt_tokens(const struct ask_prompt *p,
                            const pl_tokenizer *words, int32_t **ids,
                            int64_t *n, pl_err *err);
/* Fills all of *job but its prompt, client, time and listener. *own is the
 * sampling that it borrows: the request's with the seed of this choice. */
void ask_fill_job(const struct ask *a, int choice, struct job *job,
                  pl_sampling *own);

#endif
