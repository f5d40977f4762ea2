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

/* Renders `conversation` to *out with the template of text `form`, or with the
 * model's own if form->s is NULL. If `m` is NULL, reads the file o->model. */
static pl_status render(struct input *out, const struct options *o, pl_model *m,
                        const struct input *form,
                        const pl_conversation *conversation, pl_err *err)
{
    pl_template *t = NULL;
    pl_model *own = NULL;
    pl_status s = PL_OK;

    if (m == NULL && o->kv_overrides.n > 0)
        s = session_model(&own, o, err);
    m = m != NULL ? m : own;
    if (s == PL_OK)
        s = m == NULL
                ? pl_template_create(&t, form->s, form->len, o->model, err)
                : pl_model_template(&t, m, form->s, form->len, err);
    if (s == PL_OK)
        s = pl_template_render(t, conversation, &out->s, &out->len, err);
    pl_template_free(t);
    pl_model_free(own);
    return s;
}

enum exit_code render_prompt(struct input *out, const struct options *o,
                             pl_model *m)
{
    struct input form = {0}, messages = {0}, tools = {0};
    pl_conversation conversation;
    enum exit_code c = chat_template_read(&form, o);
    pl_err err;

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
        if (render(out, o, m, &form, &conversation, &err) != PL_OK)
            c = cli_error(o->command, EXIT_FAILED, "%s", err.message);
    }
    input_free(&form);
    input_free(&messages);
    input_free(&tools);
    return c;
}

enum exit_code cmd_render(const struct options *o)
{
    struct input prompt = {0};
    enum exit_code c;

    if (o->model == NULL && (!chat_template_given(o) || o->kv_overrides.n > 0))
        return report_no_model(o, ", or a template with --template FILE");
    if (o->messages == NULL)
        return cli_error(o->command, EXIT_USAGE,
                         "no conversation; give one with --messages FILE");
    c = render_prompt(&prompt, o, NULL);
    if (c == EXIT_DONE) {
        write_out(NULL, prompt.s, prompt.len);
        c = finish_out(o);
    }
    input_free(&prompt);
    return c;
}
