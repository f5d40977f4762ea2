/* Reads the types of drafts by llama.cpp's names. */
#ifndef SERVER_DRAFT_TYPES_H
#define SERVER_DRAFT_TYPES_H

#include <stdbool.h>
#include <stdint.h>

/* Sets *sources to the bits of the sources that `names`, separated by commas,
 * lists. `none` adds nothing, nor does a type that llama.cpp has and plait does
 * not, since drafts change no result; *passed is true if there is one. Returns
 * false if a name is unknown. */
bool draft_types_read(const char *names, uint32_t *sources, bool *passed);

/* The lists that are valid, for error messages. */
extern const char draft_types_wanted[];

#endif
