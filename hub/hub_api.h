/* Queries of the hub other than files: the latest revision and its contents. */
#ifndef HUB_API_H
#define HUB_API_H

#include "hub_listing.h"
#include "hub_transfer.h"

#define HUB_ENDPOINT "https://huggingface.co"

enum { HUB_REVISION = 65 }; /* hexadecimal digits and a NUL */

/* Lists the files of the latest revision. *unreachable: the hub could not be
 * reached or could not respond; then IO. */
pl_status hub_api_list(const struct hub_options *o, const char *repo,
                       char revision[HUB_REVISION], struct hub_listing *l,
                       bool *unreachable, pl_err *err);
/* Returns a file's URL, malloc'ed; NULL if out of memory. */
char *hub_api_file(const struct hub_options *o, const char *repo,
                   const char *revision, const char *path);
/* Sets the error for an HTTP status of a repository or URL, `name`. Its
 * licence's page is below `page`, unless that is NULL. */
pl_status hub_api_error(const struct hub_options *o, int status,
                        const char *name, const char *page, pl_err *err);

#endif
