/* Chat templates by name. The texts have the formats that the models' makers
 * published. They have no BOS, which is added when the prompt is tokenized. */
#include "chat_templates.h"

#include "printable.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Makes the Jinja text of a template that prints `text` for each message m,
 * whatever its role, and then `header`, with which the model's answer
 * begins. */
#define EACH(text, header)                                                     \
    "{% for m in messages %}" text "{% endfor %}"                              \
    "{% if add_generation_prompt %}" header "{% endif %}"

/* Begins the Jinja text of a template that treats system messages separately.
 * Sets `rest` to the other messages, and system.text to the contents of the
 * system messages. */
#define SYSTEM_APART                                                           \
    "{% set system = namespace(text='') %}"                                    \
    "{% for m in messages if m.role == 'system' %}"                            \
    "{% set system.text = system.text + m.content + '\n\n' %}{% endfor %}"     \
    "{% set rest = messages | rejectattr('role', 'equalto', 'system') %}"

/* Makes the Jinja text of a template in which [INST] and [/INST] enclose user
 * messages. `s` is the space after a marker. `b` is the space before [INST] and
 * [/INST]. */
#define INST(b, s)                                                             \
    SYSTEM_APART "{% for m in rest %}{% if m.role == 'assistant' %}" s         \
                 "{{ m.content }}{{ eos_token }}{% else %}" b "[INST]" s       \
                 "{% if loop.first %}{{ system.text }}{% endif %}"             \
                 "{{ m.content }}" b "[/INST]{% endif %}{% endfor %}"

#define INST_7(s)                                                              \
    "{% for m in messages %}{% if m.role == 'assistant' %}" s                  \
    "{{ m.content }}{{ eos_token }}{% elif m.role == 'system' %}"              \
    "[SYSTEM_PROMPT]" s "{{ m.content }}[/SYSTEM_PROMPT]{% else %}[INST]" s    \
    "{{ m.content }}[/INST]{% endif %}{% endfor %}"

static const struct {
    const char *name, *text;
} templates[] = {
    {"chatml", EACH("<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n",
                    "<|im_start|>assistant\n")},
    {"chatglm4", "[gMASK]<sop>" EACH("<|{{ m.role }}|>\n{{ m.content }}",
                                     "<|assistant|>\n")},
    {"command-r",
     EACH("<|START_OF_TURN_TOKEN|>{{ {'system': '<|SYSTEM_TOKEN|>', 'user': "
          "'<|USER_TOKEN|>'}.get(m.role, '<|CHATBOT_TOKEN|>') }}"
          "{{ m.content | trim }}<|END_OF_TURN_TOKEN|>",
          "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>")},
    {"deepseek",
     EACH("{% if m.role == 'system' %}{{ m.content }}"
          "{% elif m.role == 'user' %}### Instruction:\n{{ m.content }}\n"
          "{% else %}### Response:\n{{ m.content }}\n<|EOT|>\n{% endif %}",
          "### Response:\n")},
    {"deepseek2", EACH("{% if m.role == 'system' %}{{ m.content }}\n\n"
                       "{% elif m.role == 'user' %}User: {{ m.content }}\n\n"
                       "{% else %}Assistant: {{ m.content }}{{ eos_token }}"
                       "{% endif %}",
                       "Assistant:")},
    {"deepseek3",
     EACH("{% if m.role == 'system' %}{{ m.content }}\n\n"
          "{% elif m.role == 'user' %}<｜User｜>{{ m.content }}"
          "{% else %}<｜Assistant｜>{{ m.content }}{{ eos_token }}{% endif %}",
          "<｜Assistant｜>")},
    {"falcon3", EACH("<|{{ m.role }}|>\n{{ m.content }}\n", "<|assistant|>\n")},
    {"gemma", SYSTEM_APART
     "{% for m in rest %}<start_of_turn>"
     "{{ 'model' if m.role == 'assistant' else m.role }}\n"
     "{% if loop.first %}{{ system.text }}{% endif %}{{ m.content | trim }}"
     "<end_of_turn>\n{% endfor %}"
     "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"},
    {"gpt-oss", EACH("<|start|>{{ m.role }}<|message|>{{ m.content }}"
                     "{{ '<|return|>' if m.role == 'assistant' else '<|end|>' "
                     "}}",
                     "<|start|>assistant")},
    {"granite", EACH("<|start_of_role|>{{ m.role }}<|end_of_role|>"
                     "{{ m.content }}<|end_of_text|>\n",
                     "<|start_of_role|>assistant<|end_of_role|>")},
    {"llama2",
     "{% set system = namespace(text='') %}{% for m in messages %}"
     "{% if m.role == 'system' %}"
     "{% set system.text = '<<SYS>>\n' + m.content + '\n<</SYS>>\n\n' %}"
     "{% elif m.role == 'user' %}{% if not loop.first and "
     "loop.previtem.role == 'assistant' %}{{ bos_token }}{% endif %}[INST] "
     "{{ system.text }}{{ m.content }} [/INST]{% set system.text = '' %}"
     "{% else %} {{ m.content }} {{ eos_token }}{% endif %}{% endfor %}"},
    {"llama3", EACH("<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n"
                    "{{ m.content | trim }}<|eot_id|>",
                    "<|start_header_id|>assistant<|end_header_id|>\n\n")},
    {"mistral-v1", INST(" ", " ")},
    {"mistral-v3", INST("", " ")},
    {"mistral-v3-tekken", INST("", "")},
    {"mistral-v7", INST_7(" ")},
    {"mistral-v7-tekken", INST_7("")},
    {"openchat", EACH("GPT4 Correct {{ m.role | capitalize }}: {{ m.content }}"
                      "<|end_of_turn|>",
                      "GPT4 Correct Assistant:")},
    {"phi3",
     EACH("<|{{ m.role }}|>\n{{ m.content }}<|end|>\n", "<|assistant|>\n")},
    {"phi4", EACH("<|im_start|>{{ m.role }}<|im_sep|>{{ m.content }}<|im_end|>",
                  "<|im_start|>assistant<|im_sep|>")},
    {"vicuna",
     EACH("{% if m.role == 'system' %}{{ m.content }}\n\n"
          "{% elif m.role == 'user' %}USER: {{ m.content }}\n"
          "{% else %}ASSISTANT: {{ m.content }}{{ eos_token }}\n{% endif %}",
          "ASSISTANT:")},
    {"zephyr", EACH("<|{{ m.role }}|>\n{{ m.content }}{{ eos_token }}\n",
                    "<|assistant|>\n")},
};
enum { N_TEMPLATE = sizeof(templates) / sizeof(templates[0]) };

const char *chat_template_named(const char *name)
{
    for (int i = 0; i < N_TEMPLATE; i++)
        if (strcmp(templates[i].name, name) == 0)
            return templates[i].text;
    return NULL;
}

static enum exit_code refuse_name(const struct options *o)
{
    char names[400] = "", cut[SHOWN];
    const char *near = NULL;
    int found = (int)strlen(o->template_text) / 4 + 2;
    size_t n = 0;

    for (int i = 0; i < N_TEMPLATE; i++) {
        int d = word_distance(o->template_text, templates[i].name);

        if (d < found) {
            found = d;
            near = templates[i].name;
        }
    }
    if (near != NULL)
        return cli_error(o->command, EXIT_USAGE,
                         "--chat-template %s: unknown name; did you mean %s?",
                         clip_printable(cut, o->template_text), near);
    for (int i = 0; i < N_TEMPLATE; i++)
        n += (size_t)snprintf(names + n, sizeof(names) - n, "%s%s",
                              i > 0 ? ", " : "", templates[i].name);
    return cli_error(o->command, EXIT_USAGE,
                     "--chat-template %s: neither the text of a template nor "
                     "one of %s; --template FILE reads a file",
                     clip_printable(cut, o->template_text), names);
}

bool chat_template_given(const struct options *o)
{
    return o->chat_template != NULL || o->template_text != NULL;
}

enum exit_code chat_template_read(struct input *in, const struct options *o)
{
    const char *text = o->template_text;

    *in = (struct input){0};
    if (text != NULL && o->chat_template != NULL)
        return cli_error(o->command, EXIT_USAGE,
                         "--template and --chat-template both give a template; "
                         "leave one out");
    if (o->chat_template != NULL)
        return input_file(in, o, o->chat_template);
    if (text == NULL)
        return EXIT_DONE;
    if (strstr(text, "{%") == NULL && strstr(text, "{{") == NULL) {
        text = chat_template_named(text);
        if (text == NULL)
            return refuse_name(o);
    }
    in->s = strdup(text);
    in->len = strlen(text);
    return in->s != NULL
               ? EXIT_DONE
               : cli_error(o->command, EXIT_FAILED, "no memory for a template");
}
