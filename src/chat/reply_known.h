/* Notations of tool calls and reasoning that published models write although
 * their templates do not show them: some templates render no calls, and some
 * models were trained with more notations than their template renders. Each
 * reply is parsed first in the notation that was learned from its template. */
#ifndef CHAT_REPLY_KNOWN_H
#define CHAT_REPLY_KNOWN_H

#include "chat/reply_format.h"

/* Notations of tool calls, in the order in which they are tried. */
extern const struct reply_format reply_known[];
extern const int reply_n_known;

/* A pair of markers around reasoning or, if `content`, around content. */
struct reply_pair {
    const char *open, *close;
    bool content;
    /* a template's source that contains only `close` is enough to recognize the
     * pair. */
    bool implied;
};
extern const struct reply_pair reply_pairs[];
extern const int reply_n_pair;

/* The notation of calls in messages with recipients, to=NAME<|message|>... */
extern const struct reply_format reply_addressed;
/* The notation for models whose templates show no calls: an object. */
extern const struct reply_format reply_unmarked;

/* A whole notation whose tags have a word and attributes between two tokens:
 * <|open|>argument key="k" type="string"<|sep|>. */
extern const struct reply_format reply_sectioned;

#endif
