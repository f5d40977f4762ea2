/* The API of a hub: queries the latest revision of a repository and the list of
 * its files, and makes the URLs of files. */
#ifndef HUB_API_H
#define HUB_API_H

#include "hub_listing.h"
#include "hub_transfer.h"

#define HUB_ENDPOINT "https://huggingface.co"

enum {
    HUB_REVISION = 65
}; /* size of the text of a revision (a commit id): 64 hexadecimal digits and a
      NUL */

/* Gets the latest revision of a repository, and appends its GGUF files to the
 * list *l, which is {0} before the call. If the hub cannot be reached or has a
 * temporary failure, sets *unreachable and returns IO. NOT_FOUND: there is no
 * such repository, or the token has no access to it. BAD_FILE: the hub's
 * response is invalid. Other errors: CANCELLED, NO_MEMORY. */
pl_status hub_api_list(const struct hub_options *o, const char *repo,
                       char revision[HUB_REVISION], struct hub_listing *l,
                       bool *unreachable, pl_err *err);
/* Returns the URL of a file in a revision of a repository, malloc'ed; NULL if
 * out of memory. */
char *hub_api_file(const struct hub_options *o, const char *repo,
                   const char *revision, const char *path);
/* Sets *err for the HTTP status that the server returned instead of a
 * repository or file, and returns NOT_FOUND. `name` is the name of the
 * repository or file for the message. `page` is USER/REPO of the repository,
 * whose licence the user may have to accept; NULL if the file is not from a
 * hub. */
pl_status hub_api_error(const struct hub_options *o, int status,
                        const char *name, const char *page, pl_err *err);

#endif
