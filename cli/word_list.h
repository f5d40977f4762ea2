/* A list of words, such as those of a command line. */
#ifndef CLI_WORD_LIST_H
#define CLI_WORD_LIST_H

#include <stdbool.h>

struct word_list {
    char **v; /* [n] words; the array and the words are owned */
    int n;
};

/* Append copies of a word, and of all words of another list. Return false if
 * out of memory. */
bool word_list_add(struct word_list *w, const char *word);
bool word_list_join(struct word_list *w, const struct word_list *more);
/* Puts a NULL after the last word, as exec() needs it, until the next word is
 * appended. Returns false if out of memory. */
bool word_list_end(struct word_list *w);
void word_list_free(struct word_list *w); /* an empty list, {0}, is allowed */

#endif
