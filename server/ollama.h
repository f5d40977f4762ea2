/* Ollama's API: what its files share. Its requests are rewritten as those of
 * llama-server (request_ollama.c), so that the same readers read them. Its
 * responses are lines of JSON (response_ollama.c). models_ollama.c has its
 * routes about models. */
#ifndef SERVER_OLLAMA_H
#define SERVER_OLLAMA_H

#include "json_field.h"

/* The version of Ollama whose API the server implements. Clients compare it
 * with the version that they require. */
#define OLLAMA_VERSION "0.12.11"

enum { OLLAMA_TIME = 40 };

/* Reads "keep_alive", a number of seconds or a text such as "1h30m". Sets
 * *seconds to it, below 0 for unlimited. If the field is absent, *seconds is
 * unchanged. Returns false after rejecting an invalid field. */
bool ollama_keep_alive(const struct fields *f, double *seconds);
/* Returns true if the request generates nothing and only loads its model: its
 * prompt, or its list of messages, is empty. `chats`: it is one of
 * /api/chat. */
bool ollama_is_empty(const struct fields *f, bool chats);
/* Returns which of REQUEST_TOOLS and REQUEST_THINKING a template knows.
 * `with_tools` is the template for conversations with tools. Both may be
 * NULL. */
unsigned ollama_traits(const char *form, const char *with_tools);
/* Writes a time, in seconds since 1970, in the form of RFC 3339. */
void ollama_time(char out[OLLAMA_TIME], double t);
double ollama_now(void);
/* Returns the body of the response to a request that generates nothing. `why`
 * is "load" or "unload". malloc'ed; NULL if out of memory. */
char *ollama_empty_body(bool chats, const char *model, const char *why);

#endif
