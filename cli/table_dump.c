/* The program plait-table: prints the tables of the command line as JSON, for
 * scripts/manual.py. It is not installed. It links no library of plait, so that
 * scripts/check.py can compile it without a build. */
#include "chat_commands.h"
#include "option_table.h"

#include <jansson.h>
#include <stdio.h>

static json_t *text(const char *s)
{
    return s != NULL ? json_string(s) : json_null();
}

/* Returns a JSON list of the names of the commands in `commands`, a set of bits
 * 1 << enum command. */
static json_t *names_of(unsigned commands)
{
    json_t *list = json_array();

    for (int c = 0; c < N_COMMAND; c++)
        if (commands & (1u << c))
            json_array_append_new(list, json_string(command_name(c)));
    return list;
}

static json_t *list_of(const char *const *words, int most)
{
    json_t *list = json_array();

    for (int i = 0; words != NULL && i < most && words[i] != NULL; i++)
        json_array_append_new(list, json_string(words[i]));
    return list;
}

static json_t *option(const struct option_row *row)
{
    return json_pack("{so so so so so so so}", "names", list_of(row->name, 3),
                     "arg", text(row->arg), "value", text(row->value), "help",
                     text(row->help), "commands", names_of(row->commands),
                     "brief", names_of(row->commands >> OPTION_BRIEF_SHIFT),
                     "words", list_of(row->words, INT32_MAX));
}

static json_t *llama_row(const struct llama_option *l)
{
    static const char *const effects[] = {[LLAMA_WORKS] = "works",
                                          [LLAMA_MEANS] = "means",
                                          [LLAMA_UNSETS] = "unsets",
                                          [LLAMA_PASSED] = "passed over",
                                          [LLAMA_REFUSED] = "refused"};

    return json_pack("{ss ss so so so so}", "names", l->names, "effect",
                     effects[l->here], "value", text(l->example), "text",
                     text(l->text), "variables", text(l->variables), "commands",
                     names_of(l->commands));
}

int main(void)
{
    json_t *commands = json_array(), *options = json_array(),
           *llama = json_array(), *chat = json_array(), *codes = json_array(),
           *variables = json_array(), *all;

#define COMMAND_ADD(upper, lower, text, args, example)                         \
    json_array_append_new(commands,                                            \
                          json_pack("{ss ss ss ss}", "name", #lower, "text",   \
                                    text, "args", args, "example", example));
    COMMAND_MAP(COMMAND_ADD)
#undef COMMAND_ADD
    for (int i = 0; i < n_option_row; i++)
        json_array_append_new(options, option(&option_table[i]));
    for (int i = 0; i < n_llama_option; i++)
        json_array_append_new(llama, llama_row(&llama_options[i]));
#define CHAT_ADD(name, arg, text)                                              \
    json_array_append_new(chat, json_pack("[sss]", "/" #name, arg, text));
    CHAT_COMMAND_MAP(CHAT_ADD)
#undef CHAT_ADD
#define EXIT_ADD(name, value, text)                                            \
    json_array_append_new(codes, json_pack("[is]", value, text));
    EXIT_MAP(EXIT_ADD)
#undef EXIT_ADD
    for (int i = 0; i < n_environment_row; i++)
        json_array_append_new(variables,
                              json_pack("[sss]", environment_table[i].name,
                                        environment_table[i].value,
                                        environment_table[i].help));
    all = json_pack("{so so so so ss so so}", "commands", commands, "options",
                    options, "llama", llama, "chat", chat, "chat_note",
                    CHAT_COMMAND_NOTE, "exit", codes, "environment", variables);
    if (all == NULL || json_dumpf(all, stdout, JSON_INDENT(1)) != 0 ||
        fflush(stdout) != 0)
        return 1;
    json_decref(all);
    return 0;
}
