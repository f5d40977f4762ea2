/* Converts a parsed request to tasks of the loop: renders and tokenizes the
 * prompts, and fills the parameters of the tasks. */
#ifndef SERVER_REQUEST_TASKS_H
#define SERVER_REQUEST_TASKS_H

#include "json_text.h"
#include "loop.h"
#include "request.h"

/* Renders the request's conversation with the chat template. *text is malloc'ed
 * and NUL-terminated; *len, unless NULL, is its length in bytes. If a->begun is
 * set, the text ends with it. `now` is the time for templates, as in
 * pl_conversation. UNSUPPORTED: the template does not reproduce a->begun
 * verbatim. */
pl_status request_render(const struct request *a, const pl_template *t,
                         int64_t now, char **text, size_t *len, pl_err *err);
/* Tokenizes a rendered conversation. Names of special tokens in it are parsed
 * as tokens. A BOS token is added only if the tokenizer requires it and the
 * text does not begin with one. Sets *ids to the *n tokens, malloc'ed. */
pl_status request_chat_tokens(const pl_tokenizer *words, const char *text,
                              size_t len, int32_t **ids, int64_t *n,
                              pl_err *err);
/* Tokenizes a prompt that is not a conversation. The special tokens that the
 * tokenizer adds, such as BOS, are added if the prompt begins with a text. A
 * prompt that begins with token ids has such tokens itself. Sets *ids to the *n
 * tokens, malloc'ed. */
pl_status request_prompt_tokens(const struct request_prompt *p,
                                const pl_tokenizer *words, int32_t **ids,
                                int64_t *n, pl_err *err);
/* Appends the text of n tokens to *out, including the names of special
 * tokens. */
pl_status request_ids_text(const pl_tokenizer *words, const int32_t *ids,
                           int64_t n, struct text *out, pl_err *err);
/* Appends the text of a prompt to *out, as the client sent it. */
pl_status request_prompt_text(const struct request_prompt *p,
                              const pl_tokenizer *words, struct text *out,
                              pl_err *err);
/* Fills the fields of *params that depend only on the request: sampling,
 * max_tokens, min_tokens, ignore_end, no_cache, prompt_logits and slot. Sets
 * *own to the request's sampling parameters, with the seed of this choice (seed
 * + choice); params->sampling points to *own. */
void request_fill_params(const struct request *a, int choice,
                         struct task_params *params, pl_sampling *own);

#endif
