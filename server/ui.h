/* The web UI: ui.html with its scripts, embedded in the command. */
#ifndef SERVER_UI_H
#define SERVER_UI_H

extern const char server_page[]; /* NUL-terminated */
/* The sums of its scripts, as a Content-Security-Policy names them. */
extern const char server_page_scripts[];

#endif
