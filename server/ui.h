/* The web UI: the file ui.html with its scripts, which is a part of the
 * program's binary. */
#ifndef SERVER_UI_H
#define SERVER_UI_H

extern const char server_page[]; /* ui.html with its scripts, NUL-terminated */
/* Checksums of the web UI's scripts, as they appear in a
 * Content-Security-Policy header. */
extern const char server_page_scripts[];

#endif
