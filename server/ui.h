/* The web UI: ui.html with its scripts, embedded in the command. */
#ifndef SERVER_UI_H
#define SERVER_UI_H

extern const char server_page[]; /* ui.html with its scripts, NUL-terminated */
/* Checksums of the web UI's scripts, as they appear in a
 * Content-Security-Policy header. */
extern const char server_page_scripts[];

#endif
