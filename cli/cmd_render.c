/* plait render: renders a conversation to the prompt that a model would see,
 * byte for byte as its chat template does. */
#include "chat_templates.h"
#include "cmd.h"
#include "input.h"
#include "session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Reads a JSON text from a file. Fails if it contains a NUL. */
static enum exit_code json_file(struct input *in, const struct options *o,
                                const char *option, const char *path)
{
    enum exit_code c = input_file(in, o, path);

    if (c == EXIT_DONE && strlen(in->s) != in->len)
        c = cli_error(o->command, EXIT_FAILED,
                      "%s: a zero byte is not valid JSON", option);
    return c;
}

static pl_status render(const struct options *o, const struct input *form,
                        const pl_conversation *conversation, pl_err *err)
{
    pl_template *t = NULL;
    pl_model *m = NULL;
    char *text = NULL;
    size_t len = 0;
    pl_status s;

    if (o->kv_overrides.n == 0)
        s = pl_template_create(&t, form->s, form->len, o->model, err);
    else if ((s = session_model(&m, o, err)) == PL_OK)
        s = pl_model_template(&t, m, form->s, form->len, err);
    if (s == PL_OK)
        s = pl_template_render(t, conversation, &text, &len, err);
    if (s == PL_OK)
        write_out(NULL, text, len);
    free(text);
    pl_template_free(t);
    pl_model_free(m);
    return s;
}

enum exit_code cmd_render(const struct options *o)
{
    struct input form = {0}, messages = {0}, tools = {0};
    pl_conversation conversation;
    enum exit_code c = EXIT_DONE;
    pl_err err;
    pl_status s;

    if (o->model == NULL && (!chat_template_given(o) || o->kv_overrides.n > 0))
        return report_no_model(o, ", or a template with --template FILE");
    if (o->messages == NULL)
        return cli_error(o->command, EXIT_USAGE,
                         "no conversation; give one with --messages FILE");
    c = chat_template_read(&form, o);
    if (c == EXIT_DONE)
        c = json_file(&messages, o, "--messages", o->messages);
    if (c == EXIT_DONE && o->tools != NULL)
        c = json_file(&tools, o, "--tools", o->tools);
    if (c == EXIT_DONE) {
        pl_conversation_init(&conversation);
        conversation.messages = messages.s;
        conversation.tools = tools.s;
        conversation.extra = o->kwargs;
        conversation.no_generation_prompt = o->no_generation_prompt;
        s = render(o, &form, &conversation, &err);
        c = s == PL_OK ? finish_out(o)
                       : cli_error(o->command, EXIT_FAILED, "%s", err.message);
    }
    input_free(&form);
    input_free(&messages);
    input_free(&tools);
    return c;
}
