/* The web UI: ui.html, embedded in the command. */
#ifndef SERVER_UI_H
#define SERVER_UI_H

extern const char server_page[]; /* terminated */

#endif
