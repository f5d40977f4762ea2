/* The page that people look at: page.html, within the command. */
#ifndef SERVER_PAGE_H
#define SERVER_PAGE_H

extern const char server_page[]; /* terminated */

#endif
