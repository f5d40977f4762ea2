/* From what a request asks for to a job of the loop: the tokens of its prompts,
 * and how each of its texts is to be written. */
#ifndef SERVER_REQUEST_TASKS_H
#define SERVER_REQUEST_TASKS_H

#include "loop.h"
#include "request.h"

/* What the template makes of a conversation; *text is malloc'ed, and ends with
 * a->begun, if there is that. now: as in pl_conversation. UNSUPPORTED: the
 * template does not show that text as it is. */
pl_status request_render(const struct request *a, const pl_template *t,
                         int64_t now, char **text, size_t *len, pl_err *err);
/* The tokens of a text that a template made, which may name BOS itself: there
 * is one where the tokenizer asks for it. *ids is malloc'ed. */
pl_status request_chat_tokens(const pl_tokenizer *words, const char *text,
                              size_t len, int32_t **ids, int64_t *n,
                              pl_err *err);
/* The tokens of a prompt that is no conversation. What the tokenizer adds goes
 * before a text that begins it; token ids are taken as they are. */
pl_status request_prompt_tokens(const struct request_prompt *p,
                                const pl_tokenizer *words, int32_t **ids,
                                int64_t *n, pl_err *err);
/* Fills all of *job but its prompt, client, time and listener. *own is the
 * sampling that it borrows: the request's with the seed of this choice. */
void request_fill_params(const struct request *a, int choice,
                         struct task_params *params, pl_sampling *own);

#endif
