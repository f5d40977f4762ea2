/* What is asked of the hub beside files: which revision is the latest, and what
 * is in it. */
#ifndef HUB_API_H
#define HUB_API_H

#include "hub_listing.h"
#include "hub_transfer.h"

#define HUB_ENDPOINT "https://huggingface.co"

enum { HUB_REVISION = 65 }; /* hexadecimal digits and a NUL */

/* The files of the latest revision. *away: the hub could not be reached, nor
 * was it able to answer; then IO. */
pl_status hub_api_list(const struct hub_options *o, const char *repo,
                       char revision[HUB_REVISION], struct hub_listing *l,
                       bool *unreachable, pl_err *err);
/* Where a file is, malloc'ed; NULL: no memory. */
char *hub_api_file(const struct hub_options *o, const char *repo,
                   const char *revision, const char *path);
/* What a status says of a repository or of an address, `name`; its licence's
 * page is below `page`, unless that is NULL. */
pl_status hub_api_error(const struct hub_options *o, int status,
                        const char *name, const char *page, pl_err *err);

#endif
