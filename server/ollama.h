/* Shared by the files of Ollama's API. Requests of this API are rewritten as
 * requests of llama-server (request_ollama.c), so that the readers of the other
 * protocols can read them. Responses are lines of JSON (response_ollama.c).
 * models_ollama.c has the API's routes about models. */
#ifndef SERVER_OLLAMA_H
#define SERVER_OLLAMA_H

#include "json_field.h"

/* The version of Ollama whose API the server implements. Clients compare it
 * with the version that they require. */
#define OLLAMA_VERSION "0.12.11"

enum { OLLAMA_TIME = 40 };

/* Reads the field "keep_alive": a number of seconds, or a text such as "1h30m".
 * Sets *seconds to it, or to a negative value for unlimited. If the field is
 * absent, *seconds is unchanged. Returns false after rejecting an invalid
 * field. */
bool ollama_keep_alive(const struct fields *f, double *seconds);
/* Returns true if the request generates nothing and only loads its model: its
 * prompt or its list of messages is empty. `chats`: the request is for
 * /api/chat, else for /api/generate. */
bool ollama_is_empty(const struct fields *f, bool chats);
/* Returns those of REQUEST_TOOLS and REQUEST_THINKING that a chat template
 * supports. `form` is the template; `with_tools` is the template for
 * conversations with tools. Both may be NULL. */
unsigned ollama_traits(const char *form, const char *with_tools);
/* Writes the time t, in seconds since 1970, to `out` in the form of RFC
 * 3339. */
void ollama_time(char out[OLLAMA_TIME], double t);
double ollama_now(void);
/* Returns the body of the response to a request that generates nothing,
 * malloc'ed; NULL if out of memory. `chats`: the request was for /api/chat.
 * `why` is the reason in the response: "load" or "unload". */
char *ollama_empty_body(bool chats, const char *model, const char *why);

#endif
