/* Converts a parsed request to tasks of the loop: the tokens of its prompts,
 * and how each text is generated. */
#ifndef SERVER_REQUEST_TASKS_H
#define SERVER_REQUEST_TASKS_H

#include "loop.h"
#include "request.h"

/* Renders a conversation with the template; *text is malloc'ed and ends with
 * a->begun, if that is set. now: as in pl_conversation. UNSUPPORTED: the
 * template does not reproduce that text verbatim. */
pl_status request_render(const struct request *a, const pl_template *t,
                         int64_t now, char **text, size_t *len, pl_err *err);
/* Tokenizes a rendered text, which may contain BOS itself: BOS is added only if
 * the tokenizer requires it and it is missing. *ids is malloc'ed. */
pl_status request_chat_tokens(const pl_tokenizer *words, const char *text,
                              size_t len, int32_t **ids, int64_t *n,
                              pl_err *err);
/* Tokenizes a prompt that is not a conversation. The tokenizer's additions
 * precede a text that begins it; token ids are used unchanged. */
pl_status request_prompt_tokens(const struct request_prompt *p,
                                const pl_tokenizer *words, int32_t **ids,
                                int64_t *n, pl_err *err);
/* Fills all of *params except prompt, client, time and listener. It borrows
 * *own: the request's sampling with the seed of this choice. */
void request_fill_params(const struct request *a, int choice,
                         struct task_params *params, pl_sampling *own);

#endif
