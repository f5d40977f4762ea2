/* Notations that published models write although their templates do not show
 * them: the templates of some render no calls, others train several notations
 * but render one. A reply is parsed by the template's own notation first. */
#ifndef CHAT_REPLY_KNOWN_H
#define CHAT_REPLY_KNOWN_H

#include "chat/reply_format.h"

/* Notations of calls, in the order in which they are tried. */
extern const struct reply_format reply_known[];
extern const int reply_n_known;

/* Pairs of markers around reasoning, or around content if `content`. */
struct reply_pair {
    const char *open, *close;
    bool content;
    bool implied; /* the source of a template shows the pair by `close` alone */
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
