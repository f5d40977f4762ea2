/* The commands of a chat: name, argument, one-line description. run_chat.c runs
 * them, and the manual lists them. */
#ifndef CLI_CHAT_COMMANDS_H
#define CLI_CHAT_COMMANDS_H

#define CHAT_COMMAND_MAP(X)                                                    \
    X(clear, "", "start a new chat; the message of --system stays")            \
    X(regen, "", "generate the last answer again")                             \
    X(save, "FILE", "save the messages as JSON, for /load and plait render")   \
    X(load, "FILE", "continue with saved messages")                            \
    X(quit, "", "end the chat, as Ctrl-D does")                                \
    X(exit, "", "same as /quit")                                               \
    X(help, "", "list these commands")

#define CHAT_COMMAND_NOTE                                                      \
    "A line that ends with a backslash continues in the next one. A message "  \
    "that begins with a slash needs a blank before it. Ctrl-C stops an "       \
    "answer."

#endif
