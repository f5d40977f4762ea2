/* The web UI: the file ui.html, embedded in the command. */
#ifndef SERVER_UI_H
#define SERVER_UI_H

extern const char server_page[]; /* NUL-terminated */

#endif
