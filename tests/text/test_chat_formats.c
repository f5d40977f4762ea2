/* Replies in the notations of published models: reasoning, content and calls
 * come out whole, however the text arrives and wherever it is cut. A row is a
 * template, the text that a model writes, and what it means. */
#include "lib/support.h"

#include <jansson.h>
#include <pl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- templates ----------------------------------------------------------- */

#define TURNS(calls)                                                           \
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}"                     \
    "{% for c in m.tool_calls or [] %}" calls "{% endfor %}<end>\n"            \
    "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
#define F    "c.function.name"
#define ARGS "c.function.arguments"

/* Templates of this file, for models whose published ones are not at hand. A
 * name that is not here is one of ../templates. */
static const struct {
    const char *name, *text;
} forms[] = {
    {"none", TURNS("")}, /* this template does not render calls */
    {"hermes",
     TURNS("\n<tool_call>\n{\"name\": \"{{ " F " }}\", \"arguments\": "
           "{{ " ARGS " | tojson }}}\n</tool_call>")},
    {"mentions", TURNS("{# <think> </think> <response> </response> #}")},
    {"triangles", TURNS("{# \xe2\x97\x81think\xe2\x96\xb7 "
                        "\xe2\x97\x81/think\xe2\x96\xb7 #}")},
    {"llama", TURNS("{\"name\": \"{{ " F " }}\", \"parameters\": "
                    "{{ " ARGS " | tojson }}}")},
    {"nemo", TURNS("{{ '[TOOL_CALLS] [' if loop.first else ', ' }}{\"name\": "
                   "\"{{ " F " }}\", \"arguments\": {{ " ARGS " | tojson }}, "
                   "\"id\": \"{{ c.id }}\"}{{ ']' if loop.last }}")},
    /* this template renders reasoning as a part of a list of contents */
    {"ministral",
     "{% for m in messages %}<{{ m.role }}>{% if m.content is string %}"
     "{{ m.content }}{% else %}{% for p in m.content %}"
     "{% if p.type == 'thinking' %}[THINK]{{ p.thinking }}[/THINK]"
     "{% else %}{{ p.text }}{% endif %}{% endfor %}{% endif %}"
     "{% for c in m.tool_calls or [] %}[TOOL_CALLS]{{ " F " }}[ARGS]"
     "{{ " ARGS " | tojson }}{% endfor %}</s>{% endfor %}"
     "{% if add_generation_prompt %}<assistant>{% endif %}"},
    {"functionary", /* a line of the reply names the recipient */
     "{% for m in messages %}<{{ m.role }}>"
     "{% if m.role == 'assistant' %}{% if m.content %}>>>all\n{{ m.content }}"
     "{% endif %}{% for c in m.tool_calls or [] %}>>>{{ " F " }}\n"
     "{{ " ARGS " | tojson }}{% endfor %}{% else %}{{ m.content }}{% endif %}"
     "<|eot_id|>{% endfor %}"
     "{% if add_generation_prompt %}<assistant>>>>{% endif %}"},
    {"apriel", /* a sentence opens reasoning, and the prompt ends with it */
     "{% for m in messages %}<|{{ m.role }}|>\n{% if m.reasoning_content %}"
     "{{ m.reasoning_content }}\n[BEGIN FINAL RESPONSE]\n{% endif %}"
     "{{ m.content }}{% if m.tool_calls %}\n<tool_calls>[{% for c in "
     "m.tool_calls %}{\"name\": \"{{ " F " }}\", \"arguments\": "
     "{{ " ARGS " | tojson }}}{{ ', ' if not loop.last }}{% endfor %}]"
     "</tool_calls>{% endif %}\n<|end|>\n{% endfor %}"
     "{% if add_generation_prompt %}<|assistant|>\nHere are my reasoning "
     "steps:\n{% endif %}"},
    /* this template leaves out earlier reasoning, but its prompt opens
     * reasoning */
    {"r1",
     "{% for m in messages %}<{{ m.role }}>{{ m.content }}</s>{% endfor %}"
     "{% if add_generation_prompt %}<assistant><think>\n{% endif %}"},
    {"parts", /* reasoning, content and calls each end like a message */
     "{% for m in messages %}{% if m.role == 'assistant' %}"
     "{% if m.reasoning %}<|begin|>assistant<|think|>{{ m.reasoning }}<|end|>"
     "{% endif %}{% if m.content %}<|begin|>assistant<|content|>"
     "{{ m.content }}<|end|>{% endif %}{% for c in m.tool_calls or [] %}"
     "{{ '<|begin|>assistant<|tool_calls|>' if loop.first }}"
     "<|tool_call:begin|>{{ c.id }}<|tool_call:name|>{{ " F " }}"
     "<|tool_call:args|>{{ " ARGS " | tojson }}<|tool_call:end|>"
     "{{ '<|calls|>' if loop.last }}{% endfor %}{% else %}"
     "<|begin|>{{ m.role }}<|content|>{{ m.content }}<|end|>{% endif %}"
     "{% endfor %}{% if add_generation_prompt %}<|begin|>assistant{% endif %}"},
    {"gigachat", /* a call is a message after that of the content */
     "{% for m in messages %}{{ m.role }}<|role_sep|>\n{{ m.content }}"
     "<|message_sep|>\n\n{% if m.tool_calls %}{% set c = m.tool_calls[0] %}"
     "function call<|role_sep|>\n{\"name\": \"{{ " F " }}\", \"arguments\": "
     "{{ " ARGS " | tojson }}}<|message_sep|>\n\n{% endif %}{% endfor %}"
     "{% if add_generation_prompt %}assistant<|role_sep|>\n{% endif %}"},
    {"muse", /* each message names its recipient */
     "{% for m in messages %}{% if m.role == 'assistant' %}"
     "{% if m.reasoning_content %}<|start|>assistant to=self<|message|>"
     "{{ m.reasoning_content }}<|eom|>{% endif %}"
     "{% for c in m.tool_calls or [] %}<|start|>assistant to={{ " F " }}"
     "<|message|><atem:function_calls>\n<atem:invoke name=\"{{ " F " }}\">\n"
     "{% for k, v in " ARGS ".items() %}<atem:parameter name=\"{{ k }}\">"
     "{{ v }}</atem:parameter>\n{% endfor %}</atem:invoke>\n"
     "</atem:function_calls><|eot|>{% else %}<|start|>assistant to=user"
     "<|message|>{{ m.content }}<|eot|>{% endfor %}{% else %}"
     "<|start|>{{ m.role }}<|message|>{{ m.content }}<|eot|>{% endif %}"
     "{% endfor %}{% if add_generation_prompt %}<|start|>assistant{% endif %}"},
    {"llama4", /* markers are around content before calls */
     "{% for m in messages %}<|header_start|>{{ m.role }}<|header_end|>\n\n"
     "{% if m.tool_calls %}<|python_start|>{{ m.content }}<|python_end|>"
     "{% for c in m.tool_calls %}{\"name\": \"{{ " F " }}\", \"parameters\": "
     "{{ " ARGS " | tojson }}}{% endfor %}{% else %}{{ m.content }}{% endif %}"
     "<|eot|>{% endfor %}{% if add_generation_prompt %}<|header_start|>"
     "assistant<|header_end|>\n\n{% endif %}"},
    {"inkling", /* the name of a call is before its marker, too */
     "{% for m in messages %}{% if m.role == 'assistant' %}"
     "{% if m.reasoning_content %}<|message_model|><|content_thinking|>"
     "{{ m.reasoning_content }}<|end_message|>{% endif %}{% if m.content %}"
     "<|message_model|><|content_text|>{{ m.content }}<|end_message|>{% endif "
     "%}"
     "{% for c in m.tool_calls or [] %}<|message_model|>{{ " F " }}"
     "<|content_invoke_tool_json|>{\"name\":\"{{ " F " }}\",\"args\":"
     "{{ " ARGS " | tojson }}}<|end_message|>{% endfor %}"
     "<|content_model_end_sampling|>{% else %}<|message_{{ m.role }}|>"
     "<|content_text|>{{ m.content }}<|end_message|>{% endif %}{% endfor %}"
     "{% if add_generation_prompt %}<|message_model|>{% endif %}"},
    {"horizon", /* types are between keys and values */
     "{% for m in messages %}<|ifm|im_start|>{{ m.role }}\n"
     "{% if m.role == 'assistant' %}<ifm|think>\n"
     "{{ m.reasoning_content or '' }}</ifm|think>{% endif %}{{ m.content }}"
     "{% if m.tool_calls %}<ifm|tool_calls>\n{% for c in m.tool_calls %}"
     "<ifm|tool_call>{{ " F " }}\n{% for k, v in " ARGS " | items %}"
     "<ifm|arg_key>{{ k }}</ifm|arg_key>\n<ifm|arg_type>"
     "{{ 'string' if v is string else 'integer' }}</ifm|arg_type>\n"
     "<ifm|arg_value>{{ v if v is string else v | tojson }}</ifm|arg_value>\n"
     "{% endfor %}</ifm|tool_call>\n{% endfor %}</ifm|tool_calls>{% endif %}"
     "<|ifm|im_end|>\n{% endfor %}{% if add_generation_prompt %}"
     "<|ifm|im_start|>assistant\n<ifm|think>\n{% endif %}"},
    {"elements", /* tags named by keys, without a text before them */
     TURNS("{{ '<calls>' if loop.first }}<call name=\"{{ " F " }}\">"
           "{% for k, v in " ARGS " | items %}<{{ k }}>{{ v }}</{{ k }}>"
           "{% endfor %}</call>{{ '</calls>' if loop.last }}")},
};

static const char tools[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"get_weather\", "
    "\"description\": \"d\", \"parameters\": {\"type\": \"object\", "
    "\"properties\": {\"place\": {\"type\": \"string\"}, "
    "\"days\": {\"type\": \"integer\"}, \"wind\": {\"type\": \"boolean\"}, "
    "\"note\": {\"type\": [\"string\", \"null\"]}, "
    "\"hours\": {\"type\": \"array\", \"items\": {\"type\": \"number\"}}, "
    "\"more\": {\"type\": \"object\", \"properties\": {\"deep\": {\"type\": "
    "\"string\"}}}}, \"required\": [\"place\"]}}}, "
    "{\"type\": \"function\", \"function\": {\"name\": \"now\", "
    "\"description\": \"d\", \"parameters\": {\"type\": \"object\", "
    "\"properties\": {}}}}, "
    "{\"type\": \"function\", \"function\": {\"name\": \"python\", "
    "\"description\": \"d\", \"parameters\": {\"type\": \"object\", "
    "\"properties\": {\"code\": {\"type\": \"string\"}}}}}]";

/* ---- cases --------------------------------------------------------------- */

/* ENDLESS: nothing shows where the call's text ends, so a cut shows nowhere.
 * UNCUT: the model ended the whole text itself (pl_reply_uncut). */
enum { NO_TOOLS = 1, KEEP = 2, DOCUMENT = 4, ENDLESS = 8, UNCUT = 16 };

/* A ^ stands for a double quote. `calls` is a list of [name, arguments] without
 * its brackets; arguments that were cut are a string. */
struct row {
    const char *form, *prompt, *text, *content, *reasoning, *calls;
    int flags;
};

#define WEATHER "[^get_weather^, {^place^: ^Oslo^}]"
#define NOW     "[^now^, {}]"
#define JSON_W  "{^name^: ^get_weather^, ^arguments^: {^place^: ^Oslo^}}"
#define JSON_N  "{^name^: ^now^, ^arguments^: {}}"
#define SHORT_W "{^name^: ^get_weather^, ^arguments^: {^place^: ^Oslo^}"
#define OPEN_W                                                                 \
    "<tool_call>\n<function=get_weather>\n<parameter=place>\nOslo\n"           \
    "</parameter>\n"
#define OPEN_G "<tool_call>get_weather\n<arg_key>place</arg_key>\n<arg_value>"
#define BAR    "\xef\xbd\x9c"
#define LOW    "\xe2\x96\x81"
#define DS(s)  "<" BAR "tool" LOW s BAR ">"
#define NS     "]<]minimax[>["
#define SEP    "<|sep|>"
#define INK(c) "<|content_invoke_tool_json|>{^name^:^" c "^,^args^:"
#define IFM(k, t, v)                                                           \
    "<ifm|arg_key>" k "</ifm|arg_key>\n" t "<ifm|arg_value>" v                 \
    "</ifm|arg_value>\n"
#define IFM_TYPE(t) "<ifm|arg_type>" t "</ifm|arg_type>\n"

static const struct row rows[] = {
    /* Hermes, Qwen 2.5 and 3 */
    {"hermes", "", "<tool_call>\n" JSON_W "\n</tool_call><end>", "", "",
     WEATHER, 0},
    {"hermes", "",
     "Let me see.\n<tool_call>\n" JSON_W "\n</tool_call>\n"
     "<tool_call>\n" JSON_N "\n</tool_call><end>",
     "Let me see.", "", WEATHER ", " NOW, 0},
    {"hermes", "", "<tool_call>" JSON_W "</tool_call>\nDone.", "Done.", "",
     WEATHER, 0},
    {"hermes", "", "<tool_call>\n" JSON_W "\n</tool_call>\n<tool_call>\n{^name",
     "", "", WEATHER, 0},
    {"hermes", "", "<tool_call>\n" JSON_W "\n</tool_call>\n<tool_c", "", "",
     WEATHER, 0},
    {"hermes", "", "<tool_call>\n" JSON_W "\n</tool_c", "", "", WEATHER, 0},
    {"hermes", "",
     "<tool_call>{^name^: ^get_weather^, ^parameters^: {^place^: "
     "^a </tool_call> \\^b\\^ \\\\ {[^}}</tool_call>",
     "", "", "[^get_weather^, {^place^: ^a </tool_call> \\^b\\^ \\\\ {[^}]", 0},
    {"hermes", "",
     "<tool_call>{^type^: ^function^, ^function^: " JSON_W "}</tool_call>", "",
     "", WEATHER, 0},
    {"hermes", "", "<tool_call>{^name^: ^now^, ^arguments^: null}</tool_call>",
     "", "", NOW, 0},
    {"hermes", "",
     "<tool_call>\n<function=get_weather>\n<parameter=place>\n"
     "Oslo\n</parameter>\n</function>\n</tool_call>",
     "", "", WEATHER, 0},
    {"hermes", "", "<function=get_weather>{^place^: ^Oslo^}</function>", "", "",
     WEATHER, 0},
    {"hermes", "",
     "<function name=^get_weather^>\n{^place^: ^Oslo^}\n"
     "</function>",
     "", "", WEATHER, 0},
    {"hermes", "",
     "<tool_call>get_weather\n<arg_key>place</arg_key>\n"
     "<arg_value>Oslo</arg_value>\n</tool_call>",
     "", "", WEATHER, 0},
    {"hermes", "", "So:\n```json\n" JSON_W "\n```", "So:", "", WEATHER, 0},
    {"hermes", "", "```\n" JSON_W "\n```\n", "", "", WEATHER, 0},
    {"hermes", "", JSON_W, "", "", WEATHER, 0},
    {"hermes", "", "[" JSON_W ", " JSON_N "]", "", "", WEATHER ", " NOW, 0},
    {"hermes", "", "{^name^: ^Ann^, ^arguments^: {}}",
     "{^name^: ^Ann^, ^arguments^: {}}", "", "", 0},
    {"hermes", "", "{^a^: [1, 2]} is JSON", "{^a^: [1, 2]} is JSON", "", "", 0},
    {"hermes", "", "```json\n{^a^: 1}\n```\nand\n```c\nint x;\n```",
     "```json\n{^a^: 1}\n```\nand\n```c\nint x;\n```", "", "", 0},
    {"hermes", "", "[1] A note.", "[1] A note.", "", "", 0},
    {"hermes", "", "Write <tool_call> and </tool_call>.",
     "Write <tool_call> and </tool_call>.", "", "", 0},
    {"hermes", "",
     "<tool_call>" JSON_W "</tool_call> I used <tool_call> above.",
     "I used <tool_call> above.", "", WEATHER, 0},
    {"hermes", "", "Use functools or [TOOL_CALLS] here.",
     "Use functools or [TOOL_CALLS] here.", "", "", 0},
    {"hermes", "", JSON_W, JSON_W, "", "", NO_TOOLS},
    /* slips: line breaks in strings, brackets and markers too many or few */
    {"hermes", "",
     "<tool_call>{^name^: ^get_weather^, ^arguments^: {^place^: "
     "^a\nb^}}</tool_call>",
     "", "", "[^get_weather^, {^place^: ^a\\nb^}]", 0},
    {"hermes", "", "<tool_call>" JSON_W "}</tool_call>", "", "", WEATHER, 0},
    {"hermes", "", "<tool_call>\n<tool_call>\n" JSON_W "\n</tool_call>", "", "",
     WEATHER, 0},
    {"hermes", "", "<function_call> " JSON_W "</function_call>", "", "",
     WEATHER, 0},
    {"Mistral-Small-3.2-24B-Instruct-2506", "",
     "[TOOL_CALLS]get_weather[ARGS]"
     "{^place^: ^a\tb^}",
     "", "", "[^get_weather^, {^place^: ^a\\tb^}]", 0},
    {"Qwen3.5-4B", "<think>\n", "why\n</think>\n\n</think>\nHello", "Hello",
     "why", "", 0},
    {"google-gemma-4-31B-it", "",
     "<|channel><|channel>thought\nwhy<channel|>"
     "<|channel>Hello",
     "Hello", "why", "", 0},
    {"openai-gpt-oss-120b", "",
     "<|channel|>commentary to=functions.python code"
     "<|message|>print(1)<|call|>",
     "", "", "[^python^, {^code^: ^print(1)^}]", ENDLESS},
    {"openai-gpt-oss-120b", "",
     "<|channel|>commentary to=user<|message|>Hello"
     "<|end|>",
     "Hello", "", "", 0},
    /* commas before closing brackets */
    {"hermes", "",
     "<tool_call>{^name^: ^get_weather^, ^arguments^: {^place^: ^Oslo^,\n}, }"
     "</tool_call>",
     "", "", WEATHER, 0},
    {"hermes", "",
     "<tool_call>{^name^: ^get_weather^, ^arguments^: {^place^: ^a,}^, "
     "^hours^: [6, 1.5,], ^more^: {^deep^: ^x^ , } ,}}</tool_call>",
     "", "",
     "[^get_weather^, {^place^: ^a,}^, ^hours^: [6, 1.5], ^more^: {^deep^: "
     "^x^}}]",
     0},
    {"hermes", "",
     "<tool_call>{^name^: ^get_weather^, ^arguments^: "
     "^{\\^place\\^: \\^Oslo\\^,}^}</tool_call>",
     "", "", WEATHER, 0},
    {"hermes", "", "[" JSON_W ", " JSON_N ",\n]", "", "", WEATHER ", " NOW, 0},
    {"hermes", "",
     "<tool_call>{'name': 'get_weather', 'arguments': {'place': 'Oslo',},}"
     "</tool_call>",
     "", "", WEATHER, 0},
    {"hermes", "", "<tool_call>{^name^: ^now^, ^arguments^: {,}}</tool_call>",
     "", "", NOW, 0},
    {"hermes", "", "<tool_call>{^a^: 1,,}</tool_call>",
     "<tool_call>{^a^: 1,,}</tool_call>", "", "", 0},
    {"hermes", "", "{^a^: [1,],}", "{^a^: [1,],}", "", "", 0},
    {"ministral", "",
     "[TOOL_CALLS]get_weather[ARGS]{^place^: ^Oslo^, }[TOOL_CALLS]now[ARGS]{}",
     "", "", WEATHER ", " NOW, 0},
    {"openai-gpt-oss-120b", "",
     "<|channel|>commentary to=functions.get_weather <|constrain|>json"
     "<|message|>{^place^: ^Oslo^,}<|call|>",
     "", "", WEATHER, 0},
    {"google-gemma-4-31B-it", "",
     "<|tool_call>call:get_weather{place:<|\"|>Oslo<|\"|>,hours:[6,],}"
     "<tool_call|>",
     "", "", "[^get_weather^, {^place^: ^Oslo^, ^hours^: [6]}]", 0},
    {"LFM2-8B-A1B", "",
     "<|tool_call_start|>[get_weather(place='Oslo',), now()]"
     "<|tool_call_end|>",
     "", "", WEATHER ", " NOW, 0},
    {"Qwen3-Coder", "",
     "<tool_call>\n<function=get_weather>\n<parameter=hours>\n[6, 1.5,]\n"
     "</parameter>\n</function>\n</tool_call>",
     "", "", "[^get_weather^, {^hours^: [6, 1.5]}]", 0},
    /* keys without quotes */
    {"hermes", "",
     "<tool_call>{name: ^get_weather^, arguments: {place: ^Oslo^, days : 3}}"
     "</tool_call>",
     "", "", "[^get_weather^, {^place^: ^Oslo^, ^days^: 3}]", 0},
    {"hermes", "",
     "<tool_call>{^name^: ^get_weather^, ^arguments^: {place: ^a, b: {c: 1}^,\n"
     "  more: {deep: 'x', _n-1.$: [None, {k: True,}]}, True: 1, N: False}}"
     "</tool_call>",
     "", "",
     "[^get_weather^, {^place^: ^a, b: {c: 1}^, ^more^: {^deep^: ^x^, "
     "^_n-1.$^: [null, {^k^: true}]}, ^True^: 1, ^N^: false}]",
     0},
    {"hermes", "",
     "<tool_call>{^name^: ^get_weather^, ^arguments^: {place: ^Oslo^"
     "</tool_call>",
     "", "", WEATHER, 0},
    {"hermes", "", "So:\n{name: 'now', arguments: {}}", "So:", "", NOW, 0},
    {"hermes", "", "{name: 'Ann', arguments: {}}",
     "{name: 'Ann', arguments: {}}", "", "", 0},
    {"hermes", "", "<tool_call>{place: Oslo, [a: b]}</tool_call> and",
     "<tool_call>{place: Oslo, [a: b]}</tool_call> and", "", "", 0},
    {"ministral", "", "[TOOL_CALLS]get_weather[ARGS]{place: ^Oslo^}</s>", "",
     "", WEATHER, 0},
    {"openai-gpt-oss-120b", "",
     "<|channel|>commentary to=functions.get_weather<|message|>{place: ^Oslo^}"
     "<|call|>",
     "", "", WEATHER, 0},
    {"Qwen3-Coder", "",
     "<tool_call>\n<function=get_weather>\n<parameter=more>\n{deep: ^x^}\n"
     "</parameter>\n<parameter=place>\n{a: 1}\n</parameter>\n</function>\n"
     "</tool_call>",
     "", "", "[^get_weather^, {^more^: {^deep^: ^x^}, ^place^: ^{a: 1}^}]", 0},
    {"LFM2-8B-A1B", "",
     "<|tool_call_start|>[get_weather(place='Oslo', more={deep: 'x'})]"
     "<|tool_call_end|>",
     "", "", "[^get_weather^, {^place^: ^Oslo^, ^more^: {^deep^: ^x^}}]", 0},
    /* closing brackets that are missing */
    {"hermes", "", "<tool_call>\n" SHORT_W "\n</tool_call>", "", "", WEATHER,
     0},
    {"hermes", "",
     "So:\n<tool_call>\n" SHORT_W "\n</tool_call>\n<tool_call>\n" JSON_N
     "\n</tool_call>\nDone.",
     "So:Done.", "", WEATHER ", " NOW, 0},
    {"hermes", "", "<tool_call>" SHORT_W "\n<tool_call>" JSON_N "</tool_call>",
     "", "", WEATHER ", " NOW, 0},
    {"hermes", "",
     "<tool_call>{^name^: ^get_weather^, ^arguments^: {^place^: "
     "^</tool_call>^, ^hours^: [6, 7</tool_call>",
     "", "", "[^get_weather^, {^place^: ^</tool_call>^, ^hours^: [6, 7]}]", 0},
    {"hermes", "",
     "<tool_call>{'name': 'get_weather', 'arguments': {'place': 'Oslo',"
     "</tool_call>",
     "", "", WEATHER, 0},
    {"hermes", "", "<tool_call>\n```json\n" SHORT_W "\n```\n</tool_call>", "",
     "", WEATHER, 0},
    {"hermes", "",
     "<tool_call>[{^name^: ^get_weather^, ^arguments^: {^place^: ^Oslo^}]"
     "</tool_call>",
     "", "", WEATHER, 0},
    {"hermes", "", "<tool_call>[" JSON_W ", " JSON_N "</tool_call>", "", "",
     WEATHER ", " NOW, 0},
    {"hermes", "", SHORT_W, "", "", WEATHER, 0},
    {"hermes", "", "<tool_call>\n" SHORT_W, "", "", WEATHER, 0},
    {"hermes", "", "<tool_call>" SHORT_W "</tool", "", "", WEATHER, 0},
    {"hermes", "", "<tool_call>{^a^: [1</tool_call> and",
     "<tool_call>{^a^: [1</tool_call> and", "", "", 0},
    {"hermes", "", "<tool_call>{ and </tool_call> and }.",
     "<tool_call>{ and </tool_call> and }.", "", "", 0},
    {"hermes", "", "{^name^: ^Ann^, ^arguments^: {}\n<b>",
     "{^name^: ^Ann^, ^arguments^: {}\n<b>", "", "", 0},
    {"hermes", "", "<function=get_weather>{^place^: ^Oslo^</function>", "", "",
     WEATHER, 0},
    /* a list whose first call is on the next line */
    {"nemo", "",
     "[TOOL_CALLS][\n  " JSON_W ",\n  {^name^: ^now^, ^arguments^: {}}\n]", "",
     "", WEATHER ", " NOW, 0},
    {"nemo", "", "[TOOL_CALLS][\n  " SHORT_W, "[TOOL_CALLS][\n  " SHORT_W, "",
     "", 0},
    {"nemo", "",
     "[TOOL_CALLS] [{^name^: ^get_weather^, ^arguments^: {^place^: "
     "^Oslo^}]<end>",
     "", "", WEATHER, 0},
    {"ministral", "", "[TOOL_CALLS]get_weather[ARGS]{^place^: ^Oslo^</s>", "",
     "", WEATHER, 0},
    {"Kimi-K2-Instruct", "",
     "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0"
     "<|tool_call_argument_begin|>{^place^: ^Oslo^<|tool_call_end|>"
     "<|tool_call_begin|>functions.now:1<|tool_call_argument_begin|>{"
     "<|tool_call_end|><|tool_calls_section_end|>",
     "", "", WEATHER ", " NOW, 0},
    {"openai-gpt-oss-120b", "",
     "<|channel|>commentary to=functions.get_weather<|message|>{^place^: "
     "^Oslo^<|call|>",
     "", "", WEATHER, ENDLESS},
    {"google-gemma-4-31B-it", "",
     "<|tool_call>call:get_weather{place:<|\"|>Oslo<|\"|><tool_call|>"
     "<|tool_call>call:now{<tool_call|>",
     "", "", WEATHER ", " NOW, 0},
    {"LFM2-8B-A1B", "",
     "<|tool_call_start|>[get_weather(place='Oslo')<|tool_call_end|>", "", "",
     WEATHER, 0},
    {"LFM2-8B-A1B", "",
     "<|tool_call_start|>[now(), get_weather(place='Oslo'<|tool_call_end|>", "",
     "", NOW ", " WEATHER, 0},
    {"ministral", "",
     "[TOOL_CALLS]get_weather[ARGS]{^place^: ^Oslo^[TOOL_CALLS]now[ARGS]{"
     "[TOOL_CALLS]get_weather[ARGS]{^hours^: [6, 1.5], ^more^: {^deep^: "
     "^[x^ }[TOOL_CALLS]now[ARGS]{}",
     "", "",
     WEATHER ", " NOW ", [^get_weather^, {^hours^: [6, 1.5], ^more^: {^deep^: "
             "^[x^}}], " NOW,
     0},
    {"nemo", "",
     "[TOOL_CALLS][{^name^: ^get_weather^, ^arguments^: {^place^: ^Oslo^"
     "[TOOL_CALLS][" JSON_N "]<end>",
     "", "", WEATHER ", " NOW, 0},
    {"hermes", "", "{^a^: 1 [x] <end>", "{^a^: 1 [x]", "", "", 0},
    {"Qwen3-Coder", "",
     "<tool_call>\n<function=get_weather>\n<parameter=hours>\n[6, 1.5\n"
     "</parameter>\n<parameter=more>\n{^deep^: [^x^\n</parameter>\n"
     "</function>\n</tool_call>",
     "", "", "[^get_weather^, {^hours^: [6, 1.5], ^more^: {^deep^: [^x^]}}]",
     0},
    {"Qwen3-Coder", "",
     "<tool_call>\n<function=get_weather>\n<parameter=hours>\n[6, 1.5}\n"
     "</parameter>\n<parameter=more>\n{deep: ^x\ty^,\n</parameter>\n"
     "</function>\n</tool_call>",
     "", "",
     "[^get_weather^, {^hours^: ^[6, 1.5}^, ^more^: {^deep^: ^x\\ty^}}]", 0},
    {"Qwen3-Coder", "",
     "<tool_call>\n<function=get_weather>\n<parameter=more>\n[1, 2\n"
     "</parameter>\n<parameter=place>\n{^a^: 1\n</parameter>\n</function>\n"
     "</tool_call>",
     "", "", "[^get_weather^, {^more^: ^[1, 2^, ^place^: ^{\\^a\\^: 1^}]", 0},
    {"GLM-4.6", "",
     "<tool_call>get_weather\n<arg_key>more</arg_key>\n<arg_value>{^deep^: "
     "^x^</arg_value>\n</tool_call>",
     "", "", "[^get_weather^, {^more^: {^deep^: ^x^}}]", 0},
    /* markers that lack a bracket */
    {"ministral", "", "[TOOL_CALLS]get_weatherARGS]{^place^: ^Oslo^}", "", "",
     WEATHER, 0},
    {"ministral", "",
     "[TOOL_CALLS]get_weather[ARGS{^place^: ^Oslo^}[TOOL_CALLS]nowARGS]{}", "",
     "", WEATHER ", " NOW, 0},
    {"Mistral-Small-3.2-24B-Instruct-2506", "",
     "[TOOL_CALLS]get_weatherCALL_ID]abcdefghi[ARGS]{^place^: ^Oslo^}", "", "",
     WEATHER, 0},
    {"Kimi-K2-Instruct", "",
     "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0"
     "|tool_call_argument_begin|>{^place^: ^Oslo^}<|tool_call_end|>"
     "<|tool_call_begin|>functions.now:1<|tool_call_argument_begin|{}"
     "<|tool_call_end|><|tool_calls_section_end|>",
     "", "", WEATHER ", " NOW, 0},
    {"ministral", "", "[TOOL_CALLS]unknownARGS]{}", "", "",
     "[^unknownARGS^, {}]", 0},
    /* names and keys between quotes that the notation does not have */
    {"Qwen3-Coder", "",
     "<tool_call>\n<function=^get_weather^>\n<parameter=^place^>\nOslo\n"
     "</parameter>\n<parameter='days'>\n3\n</parameter>\n</function>\n"
     "</tool_call>",
     "", "", "[^get_weather^, {^place^: ^Oslo^, ^days^: 3}]", 0},
    {"Qwen3-Coder", "",
     "<tool_call>\n<function='get_weather'>\n<parameter=^place^>\nOslo\n"
     "<parameter=^days^>\n3\n</parameter>\n</function>\n</tool_call>",
     "", "", "[^get_weather^, {^place^: ^Oslo^, ^days^: 3}]", 0},
    {"Qwen3-Coder", "",
     "<tool_call>\n<function name=^get_weather^>\n<parameter name=^place^>\n"
     "Oslo\n</parameter>\n</function>\n</tool_call>",
     "", "", WEATHER, 0},
    {"hermes", "", "<function=^get_weather^>{^place^: ^Oslo^}</function>", "",
     "", WEATHER, 0},
    {"hermes", "", "Write <function=^get_weather>{}</function>.",
     "Write <function=^get_weather>{}</function>.", "", "", 0},
    {"GLM-4.6", "",
     "<tool_call>^get_weather^\n<arg_key>^place^</arg_key>\n<arg_value>Oslo"
     "</arg_value>\n</tool_call>",
     "", "", WEATHER, 0},
    {"ministral", "", "[TOOL_CALLS]^get_weather^[ARGS]{^place^: ^Oslo^}", "",
     "", WEATHER, 0},
    {"MiniMax-M2", "<think>\n",
     "</think>\n\n<minimax:tool_call>\n<invoke name=get_weather>\n"
     "<parameter name=place>Oslo</parameter>\n</invoke>\n"
     "</minimax:tool_call>",
     "", "", WEATHER, 0},
    {"none", "",
     "<function_calls>\n<invoke name=get_weather>\n<parameter name=^place^>"
     "Oslo</parameter>\n</invoke>\n</function_calls>",
     "", "", WEATHER, 0},
    {"none", "", "So\n<invoke name='now'>\n</invoke>", "So", "", NOW, 0},
    {"none", "", "See <invoke name=f> and </invoke>.",
     "See <invoke name=f> and </invoke>.", "", "", 0},
    {"hermes", "", "<function name=get_weather>{^place^: ^Oslo^}</function>",
     "", "", WEATHER, 0},
    {"hermes", "",
     "<tool_call><function name=get_weather><parameter name=place>Oslo"
     "</parameter></function></tool_call>",
     "", "", WEATHER, 0},
    /* a call that is not closed before another, or text */
    {"Qwen3-Coder", "",
     "So\n" OPEN_W "</tool_call>\n<tool_call>\n<function=now>\n</function>\n"
     "</tool_call>",
     "So", "", WEATHER ", " NOW, ENDLESS},
    {"Qwen3-Coder", "",
     OPEN_W "</tool_call>\n" OPEN_W "</tool_call>\n<tool_call>\n"
            "<function=now>\n</tool_call>",
     "", "", WEATHER ", " WEATHER ", " NOW, ENDLESS},
    {"Qwen3-Coder", "",
     OPEN_W "<function=now>\n</function>\n</tool_call>\nDone.", "Done.", "",
     WEATHER ", " NOW, ENDLESS},
    {"Qwen3-Coder", "",
     "<tool_call>\n<function=get_weather>\n<parameter=place>\na </tool_call>\n"
     "<tool_call>\n<function=now>\n</function> b\n</parameter>\n</function>\n"
     "</tool_call>",
     "", "",
     "[^get_weather^, {^place^: ^a </tool_call>\\n<tool_call>\\n"
     "<function=now>\\n</function> b^}]",
     ENDLESS},
    {"GLM-4.6", "",
     "<tool_call>get_weather\n<arg_key>place</arg_key>\n<arg_value>Oslo"
     "</arg_value>\n<tool_call>now\n</tool_call>",
     "", "", WEATHER ", " NOW, ENDLESS},
    {"MiniMax-M2", "<think>\n",
     "</think>\n\n<minimax:tool_call>\n<invoke name=^get_weather^>\n"
     "<parameter name=^place^>Oslo</parameter>\n<invoke name=^now^>\n"
     "</invoke>\n</minimax:tool_call>",
     "", "", WEATHER ", " NOW, ENDLESS},
    {"Qwen3-Coder", "", OPEN_W "</tool_call>\nDone.", "Done.", "", WEATHER, 0},
    {"Qwen3-Coder", "",
     OPEN_W "</tool_call>\nSo\n<tool_call>\n<function=now>\n</function>\n"
            "</tool_call>",
     "So", "", WEATHER ", " NOW, ENDLESS},
    {"Qwen3-Coder", "",
     "<tool_call>\n<function=now>\n</tool_call>\nI used </function>.",
     "I used </function>.", "", NOW, 0},
    {"Qwen3-Coder", "",
     "<tool_call>\n<function=get_weather>\n<parameter=place>\na</parameter>\n"
     "</tool_call> b\n</parameter>\n</function>\n</tool_call>",
     "", "", "[^get_weather^, {^place^: ^a</parameter>\\n</tool_call> b^}]",
     ENDLESS},
    {"MiniMax-M2", "<think>\n",
     "</think>\n\n<minimax:tool_call>\n<invoke name=^get_weather^>\n"
     "<parameter name=^place^>Oslo</parameter>\n</minimax:tool_call>\nDone.",
     "Done.", "", WEATHER, 0},
    {"google-gemma-4-31B-it", "",
     "<|tool_call>call:get_weather{place:<|\"|>Oslo<|\"|>}"
     "<|tool_call>call:now{}<tool_call|>",
     "", "", WEATHER ", " NOW, ENDLESS},
    {"LFM2-8B-A1B", "",
     "<|tool_call_start|>[get_weather(place='Oslo')]<|tool_call_start|>[now()]"
     "<|tool_call_end|>",
     "", "", WEATHER ", " NOW, ENDLESS},
    /* other slips: braces twice, arguments beside the name, a namespace */
    {"hermes", "",
     "<tool_call>{{^name^: ^get_weather^, ^arguments^: {^place^: ^Oslo^}}}"
     "</tool_call>",
     "", "", WEATHER, 0},
    {"hermes", "", "<tool_call>{{^a^: 1}}</tool_call>",
     "<tool_call>{{^a^: 1}}</tool_call>", "", "", 0},
    {"hermes", "",
     "<tool_call>{^name^: ^get_weather^, ^place^: ^Oslo^, ^id^: ^1^}"
     "</tool_call>",
     "", "", WEATHER, 0},
    {"hermes", "",
     "<tool_call>{^name^: ^functions.get_weather^, ^arguments^: {^place^: "
     "^Oslo^}}</tool_call>",
     "", "", WEATHER, 0},
    {"hermes", "", "<tool_call>{^get_weather^: {^place^: ^Oslo^}}</tool_call>",
     "", "", WEATHER, 0},
    {"hermes", "", "<tool_call>\nget_weather\n{^place^: ^Oslo^}\n</tool_call>",
     "", "", WEATHER, 0},
    {"hermes", "", "<tool_call>{^Ann^: {^place^: ^Oslo^}}</tool_call>",
     "<tool_call>{^Ann^: {^place^: ^Oslo^}}</tool_call>", "", "", 0},
    {"Qwen3-Coder", "",
     "<tool_call>\n<function=get_weather>\n{^place^: ^Oslo^}\n</function>\n"
     "</tool_call>",
     "", "", WEATHER, 0},
    /* calls of a declared tool without a marker */
    {"hermes", "", "So:\n" JSON_W "\n" JSON_N, "So:", "", WEATHER ", " NOW, 0},
    {"hermes", "", "So:\n\n[get_weather(place='Oslo')]", "So:", "", WEATHER, 0},
    {"hermes", "", "So: " JSON_W, "So: " JSON_W, "", "", 0},
    {"hermes", "", "So:\n{^name^: ^Ann^, ^arguments^: {}}\n[1] A note",
     "So:\n{^name^: ^Ann^, ^arguments^: {}}\n[1] A note", "", "", 0},
    {"hermes", "", "```js\n" JSON_W "\n```", "```js\n" JSON_W "\n```", "", "",
     0},
    {"hermes", "", "get_weather(place='Oslo')", "", "", WEATHER, ENDLESS},
    {"hermes", "", "now is the time", "now is the time", "", "", 0},
    {"hermes", "", "get_weather\n{^place^: ^Oslo^}", "", "", WEATHER, 0},
    {"hermes", "",
     "Thought: so\nAction: get_weather\nAction Input: "
     "{^place^: ^Oslo^}\n",
     "Thought: so", "", WEATHER, 0},
    {"hermes", "", "Action: get some rest", "Action: get some rest", "", "", 0},
    {"hermes", "", "<tool_call>\n```json\n" JSON_W "\n```\n</tool_call>\nDone.",
     "Done.", "", WEATHER, 0},
    {"hermes", "",
     "<tool_call>\n```\n[" JSON_W ", " JSON_N "]\n```</tool_call>", "", "",
     WEATHER ", " NOW, 0},
    {"hermes", "", "<tool_call>```json\nno call\n```</tool_call>",
     "<tool_call>```json\nno call\n```</tool_call>", "", "", 0},
    /* dicts of Python */
    {"hermes", "",
     "<tool_call>\n{'name': 'get_weather', 'arguments': {'place': ^it's^, "
     "'wind': True, 'note': None, 'hours': [6, -1.5]}}\n</tool_call>",
     "", "",
     "[^get_weather^, {^place^: ^it's^, ^wind^: true, ^note^: null, ^hours^: "
     "[6, -1.5]}]",
     0},
    {"hermes", "",
     "<tool_call>{'name': 'get_weather', 'arguments': {'place': "
     "'a ^b^ it\\'s\\n\\x41}', 'wind': False}}</tool_call>\n<tool_call>"
     "{'name': 'now', 'arguments': {}}</tool_call>",
     "", "",
     "[^get_weather^, {^place^: ^a \\^b\\^ it's\\nA}^, ^wind^: false}], " NOW,
     0},
    {"hermes", "",
     "<tool_call>{^name^: ^get_weather^, ^arguments^: {^place^: ^Oslo^, "
     "^wind^: True}}</tool_call>",
     "", "", "[^get_weather^, {^place^: ^Oslo^, ^wind^: true}]", 0},
    {"hermes", "",
     "<tool_call>{^name^: ^get_weather^, ^arguments^: {'place': 'Oslo'}}"
     "</tool_call>",
     "", "", WEATHER, 0},
    {"hermes", "",
     "<tool_call>{'name': 'get_weather', 'arguments': '{^place^: ^Oslo^}'}"
     "</tool_call>",
     "", "", WEATHER, 0},
    {"hermes", "", "So:\n[{'name': 'now', 'arguments': {}}]", "So:", "", NOW,
     0},
    {"hermes", "", "{'name': 'Ann', 'arguments': {}}",
     "{'name': 'Ann', 'arguments': {}}", "", "", 0},
    {"hermes", "", "<tool_call>{'a': Nope, 'b': it's}</tool_call> and",
     "<tool_call>{'a': Nope, 'b': it's}</tool_call> and", "", "", 0},
    {"ministral", "", "[TOOL_CALLS]get_weather[ARGS]{'place': 'Oslo'}</s>", "",
     "", WEATHER, 0},
    {"openai-gpt-oss-120b", "",
     "<|channel|>commentary to=functions.get_weather "
     "<|constrain|>json<|message|>{'place': 'Oslo'}<|call|>",
     "", "", WEATHER, 0},
    /* other names of keys, and two objects between a call's markers */
    {"hermes", "",
     "<tool_call>{^function^: ^get_weather^, ^args^: {^place^: ^Oslo^}}"
     "</tool_call>",
     "", "", WEATHER, 0},
    {"hermes", "", "<tool_call>\n" JSON_W "\n" JSON_N "\n</tool_call>", "", "",
     WEATHER ", " NOW, 0},
    /* calls as in xLAM, and calls with templates that do not render calls */
    {"none", "", "[" JSON_W "]<end>", "", "", WEATHER, 0},
    {"none", "", "<tool_call>\n" JSON_W "\n</tool_call>", "", "", WEATHER, 0},
    {"none", "",
     "<|tool_call_start|>[get_weather(place=^Oslo^), now()]"
     "<|tool_call_end|>",
     "", "", WEATHER ", " NOW, 0},
    {"none", "", "<|tool_call_start|>[" JSON_W "]<|tool_call_end|>Done", "Done",
     "", WEATHER, 0},
    {"none", "", " functools[" JSON_W ", " JSON_N "]", "", "", WEATHER ", " NOW,
     0},
    {"none", "", "<|tool_call|>[" JSON_W "]<|/tool_call|><end>", "", "",
     WEATHER, 0},
    {"none", "", "<TOOLCALL>[" JSON_W "]</TOOLCALL>", "", "", WEATHER, 0},
    {"none", "", "<tool_calls>[" JSON_W "]</tool_calls>", "", "", WEATHER, 0},
    {"none", "",
     "<|tools_prefix|>[{^get_weather^: {^place^: ^Oslo^}}, "
     "{^now^: {}}]<|tools_suffix|>",
     "", "", WEATHER ", " NOW, 0},
    {"none", "",
     "<|START_ACTION|>[\n {^tool_call_id^: ^0^, ^tool_name^: "
     "^get_weather^, ^parameters^: {^place^: ^Oslo^}}\n]<|END_ACTION|>",
     "", "", WEATHER, 0},
    {"none", "",
     "<function_calls>\nget_weather(place=^Oslo^)\nnow()\n"
     "</function_calls>",
     "", "", WEATHER ", " NOW, 0},
    {"none", "",
     "<function_calls>\n<invoke name=^get_weather^>\n<parameter "
     "name=^place^>Oslo</parameter>\n</invoke>\n</function_calls>",
     "", "", WEATHER, 0},
    {"none", "",
     "<start_function_call>call:get_weather{place:<escape>Oslo"
     "<escape>}<end_function_call>",
     "", "", WEATHER, 0},
    {"none", "",
     "<seed:tool_call>\n<function=get_weather>\n<parameter=place>"
     "Oslo</parameter>\n</function>\n</seed:tool_call>",
     "", "", WEATHER, 0},
    {"none", "", "[get_weather(place='Oslo'), no", "", "", WEATHER, 0},
    {"none", "", "[get_weather(place='Oslo'), now()]<end>", "", "",
     WEATHER ", " NOW, 0},
    {"none", "", "<|python_start|>[get_weather(place=^Oslo^)]<|python_end|>",
     "", "", WEATHER, 0},
    {"none", "",
     "```tool_code\nget_weather(place=^\\u00d8\\x41^, wind=True)\n"
     "```",
     "", "",
     "[^get_weather^, {^place^: ^\xc3\x98"
     "A^, ^wind^: true}]",
     0},
    {"none", "",
     "So<|action_start|><|plugin|>\n{^name^: ^get_weather^, ^parameters^: "
     "{^place^: ^Oslo^}}<|action_end|><end>",
     "So", "", WEATHER, 0},
    {"none", "",
     "<|tool_call_start|>\n```python\nget_weather(place=^Oslo^)\nnow()\n```\n"
     "<|tool_call_end|>\nSo",
     "So", "", WEATHER ", " NOW, ENDLESS},
    {"none", "",
     "So\n<use_mcp_tool>\n<server_name>any</server_name>\n<tool_name>"
     "get_weather</tool_name>\n<arguments>\n{^place^: ^Oslo^}\n</arguments>\n"
     "</use_mcp_tool>",
     "So", "", WEATHER, 0},
    {"none", "",
     "<atem:function_calls>\n<atem:invoke name=^now^>\n</atem:invoke>\n"
     "</atem:function_calls>",
     "", "", NOW, 0},
    {"none", "", "<think>why</think>Hello", "<think>why</think>Hello", "", "",
     0},
    /* markers of reasoning that only the template's source has, because it
     * leaves reasoning out */
    {"mentions", "", "<think>why</think>\n<response>Hello</response><end>",
     "Hello", "why", "", 0},
    {"mentions", "", "<think>why", "", "why", "", 0},
    {"triangles", "",
     "\xe2\x97\x81think\xe2\x96\xb7why\xe2\x97\x81/think\xe2\x96\xb7Hello",
     "Hello", "why", "", 0},
    /* Solar Open, GigaChat 3, Muse Glimmer */
    {"parts", "<|begin|>assistant",
     "<|think|>why<|end|><|begin|>assistant<|content|>Hello<|end|>", "Hello",
     "why", "", 0},
    {"parts", "<|begin|>assistant",
     "<|think|>why<|end|><|begin|>assistant<|content|>So<|end|>"
     "<|begin|>assistant<|tool_calls|><|tool_call:begin|>a1<|tool_call:name|>"
     "get_weather<|tool_call:args|>{^place^: ^Oslo^}<|tool_call:end|>"
     "<|tool_call:begin|>a2<|tool_call:name|>now<|tool_call:args|>{}"
     "<|tool_call:end|><|calls|>",
     "So", "why", WEATHER ", " NOW, 0},
    {"gigachat", "assistant<|role_sep|>\n",
     "So<|message_sep|>\n\nfunction call<|role_sep|>\n" JSON_W
     "<|message_sep|>\n\n",
     "So", "", WEATHER, 0},
    {"gigachat", "assistant<|role_sep|>\n", "Hello<|message_sep|>\n\nuser",
     "Hello", "", "", 0},
    {"muse", "<|start|>assistant",
     " to=self<|message|>why<|eom|><|start|>assistant to=user<|message|>Hello"
     "<|eot|>",
     "Hello", "why", "", 0},
    {"muse", "<|start|>assistant",
     " to=self<|message|>why<|eom|><|start|>assistant to=get_weather<|message|>"
     "<atem:function_calls>\n<atem:invoke name=^get_weather^>\n"
     "<atem:parameter name=^place^>Oslo</atem:parameter>\n</atem:invoke>\n"
     "</atem:function_calls><|eom|><|start|>assistant to=now<|message|>"
     "<atem:function_calls>\n<atem:invoke name=^now^>\n</atem:invoke>\n"
     "</atem:function_calls><|eot|>",
     "", "why", WEATHER ", " NOW, 0},
    /* Inkling, K2 Horizon */
    {"inkling", "<|message_model|>",
     "<|content_thinking|>why<|end_message|><|message_model|><|content_text|>"
     "Hello<|end_message|><|content_model_end_sampling|>",
     "Hello", "why", "", 0},
    {"inkling", "<|message_model|>",
     "<|content_thinking|>why<|end_message|><|message_model|>"
     "<|content_text|>So<|end_message|><|message_model|>"
     "get_weather" INK(
         "get_weather") "{^place^:^Oslo^}}<|end_message|>"
                        "<|message_model|>now" INK(
                            "now") "{}}<|end_message|>"
                                   "<|content_model_end_sampling|>",
     "So", "why", WEATHER ", " NOW, 0},
    {"inkling", "<|message_model|>",
     "now" INK("now") "{}}<|end_message|><|message_model|><|content_thinking|>"
                      "why<|end_message|><|message_model|><|content_text|>Done<"
                      "|end_message|>",
     "Done", "why", NOW, 0},
    {"inkling", "<|message_model|>", "<|content_text|>now<|end_message|>",
     "now", "", "", 0},
    {"horizon", "<ifm|think>\n",
     "why\n</ifm|think>So<ifm|tool_calls>\n<ifm|tool_call>get_weather\n" IFM(
         "place", IFM_TYPE("string"), "7") IFM("days", IFM_TYPE("integer"), "3")
         IFM("hours", "", "[6]") IFM("other", IFM_TYPE("string"), "{}")
             IFM("more", "",
                 "{^deep^: ^x^}") "</ifm|tool_call>\n"
                                  "<ifm|tool_call>now\n</ifm|tool_call>\n</"
                                  "ifm|tool_calls><|ifm|im_end|>",
     "So", "why",
     "[^get_weather^, {^place^: ^7^, ^days^: 3, ^hours^: [6], ^other^: ^{}^, "
     "^more^: {^deep^: ^x^}}], " NOW,
     0},
    {"none", "",
     "<ifm|tool_calls>\n<ifm|tool_call>get_weather\n" IFM(
         "place", IFM_TYPE("string"),
         "Oslo") "</ifm|tool_call>\n"
                 "<ifm|tool_call>" JSON_N "</ifm|tool_call>\n</ifm|tool_calls>",
     "", "", WEATHER ", " NOW, 0},
    /* Llama 4 */
    {"llama4", "", "Hello<|eot|>", "Hello", "", "", 0},
    {"llama4", "", "<|python_start|>Hello<|python_end|><|eot|>", "Hello", "",
     "", 0},
    {"llama4", "",
     "<|python_start|>So<|python_end|>{^name^: ^get_weather^, ^parameters^: "
     "{^place^: ^Oslo^}}{^name^: ^now^, ^parameters^: {}}<|eot|>",
     "So", "", WEATHER ", " NOW, 0},
    {"llama4", "", "<|python_start|><|python_end|>" JSON_W "<|eot|>", "", "",
     WEATHER, 0},
    {"llama4", "",
     "<|python_start|>[get_weather(place=^Oslo^), now()]<|python_end|><|eot|>",
     "", "", WEATHER ", " NOW, 0},
    {"llama4", "", "<|python_start|>" JSON_W "<|python_end|><|eot|>", "", "",
     WEATHER, 0},
    {"llama4", "", "[now()]<|eot|>", "", "", NOW, 0},
    {"llama4", "", JSON_W "<|eot|>", "", "", WEATHER, 0},
    /* Llama 3, Functionary 3.1 */
    {"llama", "", "{^name^: ^Bob^, ^age^: 3}", "{^name^: ^Bob^, ^age^: 3}", "",
     "", 0},
    {"llama", "", "[{^name^: ^Bob^, ^age^: 3}, {^name^: ^Eve^}]",
     "[{^name^: ^Bob^, ^age^: 3}, {^name^: ^Eve^}]", "", "", 0},
    {"llama", "", "{^function^: ^sin^, ^x^: 3}", "{^function^: ^sin^, ^x^: 3}",
     "", "", 0},
    {"llama", "", "{^name^: ^now^}", "", "", NOW, 0},
    {"llama", "", "{^name^: ^get_weather^, ^place^: ^Oslo^}", "", "", WEATHER,
     0},
    {"llama", "",
     "{^name^: ^get_weather^, ^parameters^: {^place^: ^Oslo^}}<end>", "", "",
     WEATHER, 0},
    {"llama", "", JSON_W "; " JSON_N, "", "", WEATHER ", " NOW, 0},
    {"llama", "", JSON_W "\n" JSON_N "<end>", "", "", WEATHER ", " NOW, 0},
    {"llama", "", JSON_W "; {^name^: ^no", "", "", WEATHER, 0},
    {"llama", "", "<|python_tag|>" JSON_W "; " JSON_N, "", "", WEATHER ", " NOW,
     0},
    {"llama", "", "<|python_tag|>get_weather.call(place=^Oslo^)", "", "",
     WEATHER, 0},
    {"llama", "", "<|python_tag|>import os\nprint('^')<end>", "", "",
     "[^python^, {^code^: ^import os\\nprint('\\^')^}]", ENDLESS},
    {"llama", "", "Hm.\n```json\n" JSON_N "\n```", "Hm.", "", NOW, 0},
    /* Mistral */
    {"nemo", "",
     "[TOOL_CALLS] [" JSON_W ", {^name^: ^now^, ^arguments^: {}, "
     "^id^: ^abcdefghi^}]<end>",
     "", "", WEATHER ", " NOW, 0},
    {"nemo", "", "[TOOL_CALLS]get_weather[ARGS]{^place^: ^Oslo^}", "", "",
     WEATHER, 0},
    {"nemo", "", "[TOOL_CALLS] [" JSON_W ", {^name^: ^no", "", "", WEATHER, 0},
    {"nemo", "", "[TOOL_CALLS] [{^name^: ^get_w",
     "[TOOL_CALLS] [{^name^: ^get_w", "", "", 0},
    {"ministral", "", "[THINK]why[/THINK]Hello</s>", "Hello", "why", "", 0},
    {"ministral", "",
     "[THINK]why\n\nnot[/THINK][TOOL_CALLS]get_weather[ARGS]"
     "{^place^: ^Oslo^}[TOOL_CALLS]now[ARGS]{}</s>",
     "", "why\n\nnot", WEATHER ", " NOW, 0},
    {"ministral", "", "[THINK]why[TOOL_CALLS]now[ARGS]{}</s>", "", "why", NOW,
     0},
    {"ministral", "", "[TOOL_CALLS]get_weather{^place^: ^Oslo^}</s>", "", "",
     WEATHER, 0},
    {"ministral", "", "[TOOL_CALLS][" JSON_W "]</s>", "", "", WEATHER, 0},
    {"ministral", "", "Hello[/THINK] you", "Hello you", "", "", 0},
    {"ministral", "", "[TOOL_CALLS]now[ARGS]{}[TOOL_CALLS]get_wea", "", "", NOW,
     0},
    {"Mistral-Small-3.2-24B-Instruct-2506", "",
     "[TOOL_CALLS]get_weather"
     "[CALL_ID]abcdefghi[ARGS]{^place^: ^Oslo^}[TOOL_CALLS]now[ARGS]{}",
     "", "", WEATHER ", " NOW, 0},
    /* Functionary 3.2 */
    {"functionary", "<assistant>>>>", "all\nHello<|eot_id|>", "Hello", "", "",
     0},
    {"functionary", "<assistant>>>>",
     "all\nSo\n>>>get_weather\n"
     "{^place^: ^Oslo^}\n>>>now\n{}<|eot_id|>",
     "So\n", "", WEATHER ", " NOW, 0},
    {"functionary", "<assistant>>>>", "python\nprint(1)", "", "",
     "[^python^, {^code^: ^print(1)^}]", ENDLESS},
    /* Apriel */
    {"apriel", "<|assistant|>\nHere are my reasoning steps:\n",
     "why\n[BEGIN FINAL RESPONSE]\nHello\n<|end|>", "Hello", "why", "", 0},
    {"apriel", "<|assistant|>\nHere are my reasoning steps:\n",
     "why\n[BEGIN FINAL RESPONSE]\n<tool_calls>[" JSON_W ", " JSON_N
     "]</tool_calls>\n<|end|>",
     "", "why", WEATHER ", " NOW, 0},
    /* DeepSeek */
    {"r1", "<assistant><think>\n", "why\n</think>\n\nHello</s>", "Hello", "why",
     "", 0},
    {"r1", "<assistant><think>\n", "<think>\nwhy</think>Hello", "Hello", "why",
     "", 0},
    {"r1", "<assistant><think>\n",
     "why</think>" DS("calls" LOW "begin") DS("call" LOW "begin") "function" DS(
         "sep") "get_weather\n```json\n"
                "{^place^: ^Oslo^}\n```" DS("call" LOW "end") "\n" DS(
                    "call" LOW
                    "begin") "function" DS("sep") "now\n```json\n{}\n``"
                                                  "`" DS("call" LOW "end")
                                                      DS("calls" LOW "end"),
     "", "why", WEATHER ", " NOW, 0},
    {"r1", "<assistant><think>\n",
     "why</think>" DS("calls" LOW "begin") "function" DS(
         "sep") "get_weather\n```json\n{^place^: ^Oslo^}\n```" DS("calls" LOW
                                                                  "end"),
     "", "why", WEATHER, 0},
    {"deepseek-ai-DeepSeek-V3.1", "<think>",
     "why</think>" DS("calls" LOW "begin")
         DS("call" LOW "begin") "get_weather" DS("sep") "{^place^: ^Oslo^}" DS(
             "call" LOW "end")
             DS("call" LOW "begin") "now" DS("sep") "{}" DS("call" LOW "end")
                 DS("calls" LOW "end"),
     "", "why", WEATHER ", " NOW, 0},
    {"deepseek-ai-DeepSeek-V3.1", "</think>",
     DS("calls" LOW "begin") DS("call" LOW "begin") "function" DS(
         "sep") "now\n"
                "```json\n{}\n```" DS("call" LOW "end") DS("calls" LOW "end"),
     "", "", NOW, 0},
    {"deepseek-ai-DeepSeek-V4", "<think>",
     "why</think>So\n\n<" BAR "DSML" BAR "tool_calls>\n<" BAR "DSML" BAR
     "invoke name=^get_weather^>\n<" BAR "DSML" BAR
     "parameter name=^place^ string=^true^>Oslo</" BAR "DSML" BAR
     "parameter>\n</" BAR "DSML" BAR "invoke>\n</" BAR "DSML" BAR "tool_calls>",
     "So", "why", WEATHER, 0},
    {"deepseek-ai-DeepSeek-V4", "</think>",
     "<" BAR "DSML" BAR "function_calls>\n<" BAR "DSML" BAR
     "invoke name=^get_weather^>\n<" BAR "DSML" BAR
     "parameter name=^place^ string=^true^>7</" BAR "DSML" BAR
     "parameter>\n</" BAR "DSML" BAR "invoke>\n</" BAR "DSML" BAR
     "function_calls>",
     "", "", "[^get_weather^, {^place^: ^7^}]", 0},
    /* GLM, Laguna, Ling: a call in reasoning that was not closed */
    {"GLM-4.6", "",
     "\n<think>why</think>\n<tool_call>get_weather\n"
     "<arg_key>place</arg_key>\n<arg_value>Oslo</arg_value>\n</tool_call>\n"
     "<tool_call>now\n</tool_call>",
     "", "why", WEATHER ", " NOW, 0},
    {"GLM-4.6", "",
     "<think>why</think><tool_call>get_weather<arg_key>place"
     "</arg_key><arg_value>a <b> </tool_call> ^c^</arg_value></tool_call>",
     "", "why", "[^get_weather^, {^place^: ^a <b> </tool_call> \\^c\\^^}]", 0},
    {"GLM-4.6", "<think></think>", "\nHello", "Hello", "", "", 0},
    {"GLM-4.6", "", "<tool_call>" JSON_W "</tool_call>", "", "", WEATHER, 0},
    {"GLM-4.6", "",
     "<tool_call>now</tool_call><tool_call>get_weather<arg_key>p", "", "", NOW,
     0},
    {"poolside-Laguna-XS-2.1", "<think>",
     "why\n</think>\n<tool_call>now\n"
     "</tool_call>\n</assistant>",
     "", "why", NOW, 0},
    {"inclusionai-ling-3.0-flash", "<think>",
     "why <tool_call>get_weather\n"
     "<arg_key>place</arg_key>\n<arg_value>Oslo</arg_value>\n</tool_call>"
     "<|role_end|>",
     "", "why", WEATHER, 0},
    {"inclusionai-ling-3.0-flash", "<think>",
     "I would write <tool_call>f"
     "</tool_call>.</think>Hello<|role_end|>",
     "Hello", "I would write <tool_call>f</tool_call>.", "", 0},
    /* Qwen3-Coder, Qwen3.5, Nemotron 3 */
    {"Qwen3-Coder", "",
     "So\n<tool_call>\n<function=get_weather>\n"
     "<parameter=place>\nOslo\n</parameter>\n<parameter=days>\n3\n</"
     "parameter>\n"
     "<parameter=wind>\nTrue\n</parameter>\n<parameter=note>\n7\n</parameter>\n"
     "<parameter=hours>\n[6, 1.5]\n</parameter>\n<parameter=more>\n"
     "{^deep^: ^x^}\n</parameter>\n</function>\n</tool_call><|im_end|>",
     "So", "",
     "[^get_weather^, {^place^: ^Oslo^, ^days^: 3, ^wind^: true, "
     "^note^: ^7^, ^hours^: [6, 1.5], ^more^: {^deep^: ^x^}}]",
     0},
    {"Qwen3-Coder", "",
     "<function=get_weather>\n<parameter=place>\nOslo\n"
     "</parameter>\n</function>\n</tool_call>",
     "", "", WEATHER, 0},
    {"Qwen3-Coder", "",
     "<tool_call>\n<function=get_weather>\n<parameter=place>"
     "\nOslo\n</parameter>\n</tool_call><|im_end|>",
     "", "", WEATHER, 0},
    {"Qwen3-Coder", "",
     "<tool_call>\n<function=get_weather>\n<parameter=place>"
     "\n</function>\n</parameter>\n</function>\n</tool_call>",
     "", "", "[^get_weather^, {^place^: ^</function>^}]", 0},
    /* values that are not closed */
    {"Qwen3-Coder", "",
     "<tool_call>\n<function=get_weather>\n<parameter=place>\nOslo\n"
     "<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>",
     "", "", "[^get_weather^, {^place^: ^Oslo^, ^days^: 3}]", 0},
    {"Qwen3-Coder", "",
     "<tool_call>\n<function=get_weather>\n<parameter=place>\nOslo\n"
     "</function>\n</tool_call>\n<tool_call>\n<function=now>\n</function>\n"
     "</tool_call><|im_end|>",
     "", "", WEATHER ", " NOW, ENDLESS},
    {"Qwen3-Coder", "",
     "<tool_call>\n<function=get_weather>\n<parameter=days>\n3\n"
     "</parameter>\n<parameter=place>\nOslo\n</tool_call><|im_end|>",
     "", "", "[^get_weather^, {^days^: 3, ^place^: ^Oslo^}]", 0},
    {"Qwen3-Coder", "",
     "<tool_call>\n<function=get_weather>\n<parameter=place>\na\n"
     "<parameter=days>\n3\n</parameter>\n</parameter>\n</function>\n"
     "</tool_call>",
     "", "",
     "[^get_weather^, {^place^: ^a\\n<parameter=days>\\n3\\n</parameter>^}]",
     0},
    {"Qwen3-Coder", "",
     "<tool_call>\n<function=get_weather>\n<parameter=place>\na\n"
     "<parameter=other>\nb\n</parameter>\n</function>\n</tool_call>",
     "", "", "[^get_weather^, {^place^: ^a\\n<parameter=other>\\nb^}]", 0},
    {"Qwen3-Coder", "",
     "<tool_call>\n<function=get_weather>\n<parameter=place>\n</function>\n"
     "</tool_call> is the end",
     "<tool_call>\n<function=get_weather>\n<parameter=place>\n</function>\n"
     "</tool_call> is the end",
     "", "", ENDLESS},
    /* values that have their closing marker, not closed, or closed later */
    {"Qwen3-Coder", "",
     "<tool_call>\n<function=get_weather>\n<parameter=place>\n"
     "a </parameter> b\n</function>\n</tool_call>",
     "", "", "[^get_weather^, {^place^: ^a </parameter> b^}]", ENDLESS},
    {"Qwen3-Coder", "",
     "<tool_call>\n<function=get_weather>\n<parameter=days>\n3\n"
     "</parameter>\n<parameter=place>\na </parameter> b </function> c\n"
     "</parameter>\n</function>\n</tool_call>",
     "", "",
     "[^get_weather^, {^days^: 3, ^place^: ^a </parameter> b </function> c^}]",
     ENDLESS},
    {"Qwen3-Coder", "",
     "<tool_call>\n<function=get_weather>\n<parameter=place>\n"
     "a </parameter> b\n</function>\n</tool_call>\n<tool_call>\n"
     "<function=now>\n</function>\n</tool_call>",
     "<tool_call>\n<function=get_weather>\n<parameter=place>\n"
     "a </parameter> b\n</function>\n</tool_call>",
     "", NOW, ENDLESS},
    {"Qwen3-Coder", "",
     "<tool_call>\n<function=none>\n<parameter=place>\na </parameter> b\n"
     "</function>\n</tool_call>",
     "<tool_call>\n<function=none>\n<parameter=place>\na </parameter> b\n"
     "</function>\n</tool_call>",
     "", "", ENDLESS},
    {"GLM-4.6", "", OPEN_G "a </arg_value> b\n</tool_call>", "", "",
     "[^get_weather^, {^place^: ^a </arg_value> b^}]", ENDLESS},
    {"GLM-4.6", "", OPEN_G "Oslo\n</tool_call>", "", "", WEATHER, 0},
    {"GLM-4.6", "",
     OPEN_G "Oslo</tool_call>\n<tool_call>now\n</tool_call>\nDone.", "Done.",
     "", WEATHER ", " NOW, 0},
    {"GLM-4.6", "",
     OPEN_G "Oslo\n</tool_call>\n" OPEN_G "Rome</arg_value>\n</tool_call>", "",
     "", WEATHER ", [^get_weather^, {^place^: ^Rome^}]", 0},
    {"Qwen3-Coder", "",
     "<tool_call>\n<function=get_weather>\n<parameter=place>\nOslo\n"
     "</function>\n</tool_call>\n" OPEN_W "</function>\n</tool_call>",
     "", "", WEATHER ", " WEATHER, ENDLESS},
    {"GLM-4.6", "",
     OPEN_G "Oslo\n<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n"
            "</tool_call>",
     "", "", "[^get_weather^, {^place^: ^Oslo^, ^days^: 3}]", 0},
    {"GLM-4.6", "", OPEN_G "</tool_call> is the end",
     OPEN_G "</tool_call> is the end", "", "", ENDLESS},
    {"hermes", "", OPEN_G "Oslo\n</tool_call>", "", "", WEATHER, 0},
    {"MiniMax-M2", "<think>\n",
     "</think>\n\n<minimax:tool_call>\n<invoke name=^get_weather^>\n"
     "<parameter name=^place^>Oslo\n</invoke>\n<invoke name=^now^>\n"
     "</invoke>\n</minimax:tool_call>",
     "", "", WEATHER ", " NOW, 0},
    {"Qwen3-Coder", "", "<tool_call>\n" JSON_W "\n</tool_call>", "", "",
     WEATHER, 0},
    {"Qwen3-Coder", "",
     "<tool_call>\n<function=get_weather>\n<parameter=place>\nOslo\n"
     "</parameter>\n<parameter=note>\nNone\n</parameter>\n</function>\n"
     "</tool_call>",
     "", "", "[^get_weather^, {^place^: ^Oslo^, ^note^: null}]", 0},
    {"Qwen3-Coder", "",
     "<tool_call>\n<function=now>\n</function>\n</tool_call>"
     "\n<tool_call>\n<function=get_weather>\n<parameter=place>\nOs",
     "", "", NOW, 0},
    {"Qwen3.5-4B", "<think>\n",
     "why\n\n<tool_call>\n<function=get_weather>\n"
     "<parameter=place>\nOslo\n</parameter>\n</function>\n</tool_call>"
     "<|im_end|>",
     "", "why", WEATHER, 0},
    {"Qwen3.5-4B", "<think>\n",
     "why <tool_call>\n<function=now>\n</function>\n"
     "</tool_call>\n<tool_call>\n<function=get_weather>\n<parameter=place>\n"
     "Oslo\n</parameter>\n</function>\n</tool_call>\n</think>\n\nHello",
     "Hello", "why", NOW ", " WEATHER, 0},
    {"Qwen3.5-4B", "<think>\n\n</think>\n\n", "Hello<|im_end|>", "Hello", "",
     "", 0},
    {"Qwen-Qwen3-0.6B", "", "<think>\nwhy\n</think>\n\nHello", "Hello", "why",
     "", 0},
    {"NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "<think>\n", "why\n</think>\nHello",
     "Hello", "why", "", 0},
    /* Command R7B */
    {"CohereForAI-c4ai-command-r7b-12-2024-tool_use", "",
     "<|START_ACTION|>[\n    {^tool_call_id^: ^0^, ^tool_name^: "
     "^get_weather^, ^parameters^: {^place^: ^Oslo^",
     "<|START_ACTION|>[\n    {^tool_call_id^: ^0^, ^tool_name^: "
     "^get_weather^, ^parameters^: {^place^: ^Oslo^",
     "", "", 0},
    {"CohereForAI-c4ai-command-r7b-12-2024-tool_use", "",
     "<|START_THINKING|>"
     "why<|END_THINKING|><|START_ACTION|>[\n    {^tool_call_id^: ^0^, "
     "^tool_name^: ^get_weather^, ^parameters^: {^place^: ^Oslo^}}\n]"
     "<|END_ACTION|>",
     "", "why", WEATHER, 0},
    {"CohereForAI-c4ai-command-r7b-12-2024-tool_use", "",
     "<|START_RESPONSE|>"
     "Hello<|END_RESPONSE|><|END_OF_TURN_TOKEN|>",
     "Hello", "", "", 0},
    /* Kimi */
    {"Kimi-K2-Instruct", "",
     "So<|tool_calls_section_begin|><|tool_call_begin|>"
     "functions.get_weather:0<|tool_call_argument_begin|>{^place^: ^Oslo^}"
     "<|tool_call_end|><|tool_call_begin|>functions.now:1"
     "<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>"
     "<|im_end|>",
     "So", "", WEATHER ", " NOW, 0},
    {"Kimi-K2-Instruct", "",
     "<|tool_calls_section_begin|><|tool_call_begin|>"
     "functions.now:0<|tool_call_argument_begin|>{}<|tool_call_end|>"
     "<|tool_call_begin|>functions.get_w",
     "", "", NOW, 0},
    {"Kimi-K3", "<|open|>think" SEP,
     "why<|close|>think" SEP "<|open|>response" SEP "Hello<|close|>response" SEP
     "<|close|>message" SEP "<|end_of_msg|>",
     "Hello", "why", "", 0},
    {"Kimi-K3", "<|open|>think" SEP,
     "<|close|>think" SEP "<|open|>response" SEP "<|close|>response" SEP
     "<|open|>tools" SEP "<|open|>call "
     "tool=^get_weather^ index=^1^" SEP "<|open|>argument key=^place^ "
     "type=^string^" SEP "7<|close|>argument" SEP "<|open|>argument key=^days^ "
     "type=^number^" SEP "3<|close|>argument" SEP "<|close|>call" SEP
     "<|open|>call tool=^now^ index=^2^" SEP "<|close|>call" SEP
     "<|close|>tools" SEP "<|close|>message" SEP,
     "", "", "[^get_weather^, {^place^: ^7^, ^days^: 3}], " NOW, 0},
    /* MiniMax */
    {"MiniMax-M2", "<think>\n",
     "why\n</think>\n\nSo\n<minimax:tool_call>\n"
     "<invoke name=^get_weather^>\n<parameter name=^place^>Oslo</parameter>\n"
     "</invoke>\n<invoke name=^now^>\n</invoke>\n</minimax:tool_call>[e~[",
     "So", "why", WEATHER ", " NOW, 0},
    {"MiniMax-M3", "",
     "<mm:think>why</mm:think>So" NS "<tool_call>\n" NS
     "<invoke name=^get_weather^>" NS "<place>a <b> ^c^" NS "</place>" NS
     "<hours>" NS "<item>6" NS "</item>" NS "<item>1.5" NS "</item>" NS
     "</hours>" NS "<more>" NS "<deep>7" NS "</deep>" NS "</more>" NS
     "</invoke>\n" NS "<invoke name=^now^>" NS "</invoke>\n" NS
     "</tool_call>[e~[",
     "So", "why",
     "[^get_weather^, {^place^: ^a <b> \\^c\\^^, ^hours^: [6, 1.5], "
     "^more^: {^deep^: ^7^}}], " NOW,
     0},
    {"MiniMax-M3", "", "</mm:think>Hello[e~[", "Hello", "", "", 0},
    {"MiniMax-M3", "",
     NS "<tool_call>\n" NS "<invoke name=^now^>" NS "</invoke>\n" NS
        "<invoke name=^get_weather^>" NS "<pl",
     "", "", NOW, 0},
    {"elements", "",
     "<calls><call name=^get_weather^><place>Oslo</place>"
     "<days>3</days></call><call name=^now^></call></calls><end>",
     "", "", "[^get_weather^, {^place^: ^Oslo^, ^days^: 3}], " NOW, 0},
    /* gpt-oss */
    {"openai-gpt-oss-120b", "",
     "<|channel|>analysis<|message|>why<|end|>"
     "<|start|>assistant<|channel|>commentary to=functions.get_weather "
     "<|constrain|>json<|message|>{^place^: ^Oslo^}<|call|>",
     "", "why", WEATHER, 0},
    {"openai-gpt-oss-120b", "",
     "<|channel|>commentary<|message|>So.<|end|>"
     "<|start|>assistant to=functions.now<|channel|>analysis<|message|>{}"
     "<|call|>",
     "So.", "", NOW, 0},
    {"openai-gpt-oss-120b", "",
     "<|channel|>analysis<|message|>why"
     "<|channel|>final<|message|>Hello<|return|>",
     "Hello", "why", "", 0},
    {"openai-gpt-oss-120b", "",
     "<|channel|>analysis<|message|>why<|start|>"
     "assistant<|channel|>final <|constrain|>json<|message|>{^a^: 1}<|return|>",
     "{^a^: 1}", "why", "", 0},
    {"openai-gpt-oss-120b", "", "<|channel|>final<|message|><|message|>Hello",
     "Hello", "", "", 0},
    {"openai-gpt-oss-120b", "",
     "<|channel|>analysis<|message|>why<|end|>"
     "<|start|>assistant<|chan",
     "", "why", "", 0},
    {"openai-gpt-oss-120b", "",
     "<|channel|>commentary to=functions.now"
     "<|message|>{}<|end|><|start|>assistant<|channel|>commentary "
     "to=functions.get_weather<|message|>{^place^: ^Oslo^}<|call|>",
     "", "", NOW ", " WEATHER, 0},
    /* Gemma */
    {"google-gemma-4-31B-it", "",
     "<|channel>thought\nwhy\n<channel|>Hello"
     "<turn|>",
     "Hello", "why", "", 0},
    {"google-gemma-4-31B-it", "",
     "<|channel>thought\n<channel|>Hello<channel|>"
     "<turn|>",
     "Hello", "", "", 0},
    {"google-gemma-4-31B-it", "",
     "<|channel>thought\nwhy<channel|><|tool_call>"
     "call:get_weather{place:<|\"|>a ^b^ {}<|\"|>,note:None,hours:[6,1.5]}"
     "<tool_call|><|tool_call>call:now{}<tool_call|><|tool_response>",
     "", "why",
     "[^get_weather^, {^place^: ^a \\^b\\^ {}^, ^note^: null, "
     "^hours^: [6, 1.5]}], " NOW,
     0},
    {"google-gemma-4-31B-it", "",
     "<|tool_call>call:now{}<tool_call|>"
     "<|tool_call>call:get_weather{place:<|\"|>Os",
     "", "", NOW, 0},
    {"google-gemma-2-2b-it", "", "```json\n" JSON_W "\n```<end_of_turn>", "",
     "", WEATHER, 0},
    /* Granite, LFM, SmolLM, Hy */
    {"ibm-granite-granite-4.0", "",
     "<tool_call>\n" JSON_W "\n</tool_call>"
     "<|end_of_text|>",
     "", "", WEATHER, 0},
    {"ibm-granite-granite-4.0", "", "<|tool_call|>[" JSON_W "]", "", "",
     WEATHER, 0},
    {"LFM2-8B-A1B", "",
     "<|tool_call_start|>[get_weather(place='it\\'s')]"
     "<|tool_call_end|>So<|im_end|>",
     "So", "", "[^get_weather^, {^place^: ^it's^}]", 0},
    {"HuggingFaceTB-SmolLM3-3B", "", "<think>\nwhy\n</think>\nHello<|im_end|>",
     "Hello", "why", "", 0},
    {"HuggingFaceTB-SmolLM3-3B", "",
     "<think>\nwhy\n</think>\n<tool_call>" JSON_W "</tool_call><|im_end|>", "",
     "why", WEATHER, 0},
    {"tencent-Hy3", "<think:opensource></think:opensource>",
     "So<tool_calls:opensource>\n<tool_call:opensource>get_weather"
     "<tool_sep:opensource>\n<arg_key:opensource>place</arg_key:opensource>\n"
     "<arg_value:opensource>Oslo</arg_value:opensource>\n"
     "</tool_call:opensource>\n</tool_calls:opensource>",
     "So", "", WEATHER, 0},
    {"microsoft-Phi-3.5-mini-instruct", "",
     "<|tool_call|>[" JSON_W "]"
     "<|/tool_call|><|end|>",
     "", "", WEATHER, 0},
    {"NousResearch-Hermes-3-Llama-3.1-8B-tool_use", "",
     "<tool_call>\n" JSON_W "\n</tool_call>\n<tool_call>\n" JSON_N
     "\n</tool_call><|im_end|>",
     "", "", WEATHER ", " NOW, 0},
    /* reasoning as a part of the content */
    {"Qwen-Qwen3-0.6B", "", "<think>\nwhy\n</think>\n\nHello<|im_end|>",
     "<think>\nwhy\n</think>\n\nHello", "", "", KEEP},
    {"Qwen3.5-4B", "<think>\n", "why\n</think>\n\nHello",
     "<think>\nwhy\n</think>\n\nHello", "", "", KEEP},
    {"Qwen3.5-4B", "<think>\n",
     "why\n</think>\n\n<tool_call>\n<function=now>\n"
     "</function>\n</tool_call>",
     "<think>\nwhy\n</think>", "", NOW, KEEP},
    {"ministral", "", "[THINK]why[/THINK]Hello", "[THINK]why[/THINK]Hello", "",
     "", KEEP},
    {"MiniMax-M3", "", "<mm:think>why</mm:think>Hello[e~[",
     "<mm:think>why</mm:think>Hello", "", "", KEEP},
    {"openai-gpt-oss-120b", "",
     "<|channel|>analysis<|message|>why<|end|>"
     "<|start|>assistant<|channel|>final<|message|>Hello<|return|>",
     "<|channel|>analysis<|message|>why<|end|>Hello", "", "", KEEP},
    /* calls that the model left incomplete, and then ended the reply */
    {"GLM-4.6", "", OPEN_G "Oslo", "", "", WEATHER, UNCUT},
    {"GLM-4.6", "", OPEN_G "a </tool_call> b\n</tool_call>", "", "",
     "[^get_weather^, {^place^: ^a </tool_call> b^}]", UNCUT},
    {"GLM-4.6", "", "Write <tool_call> and", "Write <tool_call> and", "", "",
     UNCUT},
    {"GLM-4.6", "", OPEN_G "Oslo</arg_value>\nDone.",
     OPEN_G "Oslo</arg_value>\nDone.", "", "", UNCUT},
    {"Qwen3-Coder", "", OPEN_W, "", "", WEATHER, UNCUT},
    {"Qwen3-Coder", "",
     "<tool_call>\n<function=get_weather>\n<parameter=place>\nOslo\n", "", "",
     WEATHER, UNCUT},
    {"Qwen3-Coder", "",
     "<tool_call>\n<function=get_weather>\n<parameter=place>\n</function>\n"
     "</tool_call> is the end",
     "<tool_call>\n<function=get_weather>\n<parameter=place>\n</function>\n"
     "</tool_call> is the end",
     "", "", UNCUT | ENDLESS},
    {"ministral", "", "[TOOL_CALLS]get_weather[ARGS]{^place^: ^Oslo^", "", "",
     WEATHER, UNCUT},
    {"ministral", "",
     "[TOOL_CALLS]now[ARGS]{}[TOOL_CALLS]get_weather[ARGS]{place: ^Oslo^,", "",
     "", NOW ", " WEATHER, UNCUT},
    {"ministral", "", "[TOOL_CALLS]get_weather[ARGS]{^place^: ^Os",
     "[TOOL_CALLS]get_weather[ARGS]{^place^: ^Os", "", "", UNCUT},
    {"hermes", "",
     "<tool_call>{^name^: ^get_weather^, ^arguments^: {^place^: ^Oslo^", "", "",
     WEATHER, UNCUT},
    {"hermes", "",
     "<tool_call>{^name^: ^get_weather^, ^arguments^: {^place^: ^Oslo^, "
     "^days^: ",
     "<tool_call>{^name^: ^get_weather^, ^arguments^: {^place^: ^Oslo^, "
     "^days^: ",
     "", "", UNCUT},
    {"openai-gpt-oss-120b", "",
     "<|channel|>commentary to=functions.get_weather<|message|>{^place^: "
     "^Oslo^",
     "", "", WEATHER, UNCUT},
    {"google-gemma-4-31B-it", "",
     "<|tool_call>call:get_weather{place:<|\"|>Oslo<|\"|>", "", "", WEATHER,
     UNCUT},
    /* JSON documents between fences of three backticks */
    {"ministral", "", "[THINK]why[/THINK]```json\n{^a^: [1]}\n```",
     "{^a^: [1]}", "why", "", NO_TOOLS | DOCUMENT},
    {"ministral", "", "```\n[1, ^```^]\n```\n", "[1, ^```^]", "", "", DOCUMENT},
    {"hermes", "", "```json\n{^a^: 1", "{^a^: 1", "", "", DOCUMENT},
};

/* ---- parsing ------------------------------------------------------------- */

struct told {
    struct test_text content, reasoning;
    json_t *calls; /* [name, text of the arguments] of each call, owned */
};

static const char *text_of(const struct test_text *t)
{
    return t->s ? t->s : "";
}

static void tell(void *user, const pl_reply_part *p)
{
    struct told *t = user;
    size_t n = json_array_size(t->calls);
    json_t *last = json_array_get(t->calls, n > 0 ? n - 1 : 0);

    if (p->kind == PL_REPLY_CONTENT)
        test_text_add(&t->content, p->text, p->len);
    else if (p->kind == PL_REPLY_REASONING)
        test_text_add(&t->reasoning, p->text, p->len);
    else if (p->kind == PL_REPLY_CALL)
        json_array_append_new(t->calls,
                              json_pack("[ss%]", p->name, p->text, p->len));
    else
        json_array_set_new(
            last, 1,
            json_sprintf("%s%.*s", json_string_value(json_array_get(last, 1)),
                         (int)p->len, p->text));
}

static void told_free(struct told *t)
{
    free(t->content.s);
    free(t->reasoning.s);
    json_decref(t->calls);
}

/* Parses the first n bytes of a row's text, `piece` at a time. */
static struct told parse(const pl_template *t, const struct row *row,
                         const char *text, size_t n, size_t piece, bool pieces)
{
    const char *given = row->flags & NO_TOOLS ? NULL : tools;
    struct told told = {.calls = json_array()};
    pl_reply *r;
    pl_err err;
    json_t *one;
    size_t i;

    TEST_OK(pl_reply_create(&r, t, row->prompt, strlen(row->prompt), given,
                            tell, &told, &err),
            err);
    if (pieces)
        pl_reply_in_pieces(r);
    if (row->flags & KEEP)
        pl_reply_keep_reasoning(r);
    if (row->flags & DOCUMENT)
        pl_reply_of_document(r);
    for (size_t at = 0; at < n; at += piece)
        TEST_OK(
            pl_reply_add(r, text + at, piece < n - at ? piece : n - at, &err),
            err);
    if (row->flags & UNCUT && text[n] == '\0')
        pl_reply_uncut(r);
    TEST_OK(pl_reply_finish(r, &err), err);
    pl_reply_free(r);
    json_array_foreach (told.calls, i, one) {
        json_t *v =
            json_loads(json_string_value(json_array_get(one, 1)), 0, NULL);

        if (v)
            json_array_set_new(one, 1, v);
    }
    return told;
}

static bool is_same(const struct told *a, const struct told *b)
{
    return strcmp(text_of(&a->content), text_of(&b->content)) == 0 &&
           strcmp(text_of(&a->reasoning), text_of(&b->reasoning)) == 0 &&
           json_equal(a->calls, b->calls);
}

static char *quoted(const char *s, bool list)
{
    char *all;
    int n = asprintf(&all, list ? "[%s]" : "%s", s);

    assert_true(n >= 0);
    for (char *p = all; *p; p++)
        *p = *p == '^' ? '"' : *p;
    return all;
}

static pl_template *open_form(const char *name)
{
    char path[200], *text = NULL;
    pl_template *t;
    size_t n;
    pl_err err;

    for (size_t i = 0; i < sizeof forms / sizeof forms[0] && !text; i++)
        if (strcmp(forms[i].name, name) == 0)
            text = strdup(forms[i].text);
    if (!text) {
        snprintf(path, sizeof path, "../templates/%s.jinja", name);
        text = test_read(test_ref_or_skip(path), &n);
    }
    TEST_OK(pl_template_create(&t, text, strlen(text), test_model(), &err),
            err);
    free(text);
    return t;
}

/* Compares a row's meaning with what is expected; prints what differs. */
static bool is_right(const struct row *row, const struct told *told)
{
    char *content = quoted(row->content, false), *calls;
    json_t *want;
    bool right;

    calls = quoted(row->calls, true);
    want = json_loads(calls, 0, NULL);
    assert_non_null(want);
    right = strcmp(text_of(&told->content), content) == 0 &&
            strcmp(text_of(&told->reasoning), row->reasoning) == 0 &&
            json_equal(told->calls, want);
    if (!right) {
        char *got = json_dumps(told->calls, 0);

        print_message("%s: %s\n  gave \"%s\", \"%s\", %s\n", row->form,
                      row->text, text_of(&told->content),
                      text_of(&told->reasoning), got);
        free(got);
    }
    json_decref(want);
    free(content);
    free(calls);
    return right;
}

TEST(replies_of_published_notations_are_taken_apart)
{
    int n_wrong = 0, n_uneven = 0;

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        pl_template *t = open_form(rows[i].form);
        char *text = quoted(rows[i].text, false);
        const size_t n = strlen(text);
        struct told whole = parse(t, &rows[i], text, n, n, false);

        n_wrong += !is_right(&rows[i], &whole);
        for (int k = 0; k < 3; k++) {
            struct told again =
                parse(t, &rows[i], text, n, k == 1 ? 7 : 1, k > 1);
            bool same = is_same(&whole, &again);

            /* A call that was cut is reported as far as it was. */
            if (k > 1 && json_array_size(again.calls) ==
                             json_array_size(whole.calls) + 1) {
                json_array_remove(again.calls, json_array_size(whole.calls));
                same = json_equal(again.calls, whole.calls);
            }
            if (!same)
                print_message("%s: %s\n  in pieces gives \"%s\", \"%s\"\n",
                              rows[i].form, text, text_of(&again.content),
                              text_of(&again.reasoning));
            n_uneven += !same;
            told_free(&again);
        }
        told_free(&whole);
        free(text);
        pl_template_free(t);
    }
    if (n_wrong + n_uneven > 0)
        fail_msg("%d of %zu are wrong, %d differ in pieces", n_wrong,
                 sizeof rows / sizeof rows[0], n_uneven);
}

/* Returns true if `t` is the beginning of `whole`, but for a part of the marker
 * that ends the message. */
static bool is_beginning(const struct test_text *t,
                         const struct test_text *whole)
{
    const char *s = text_of(t), *all = text_of(whole);
    size_t n = strlen(all) < strlen(s) ? strlen(all) : strlen(s);

    return strncmp(s, all, n) == 0 && (s[n] == '\0' || s[n] == '<') &&
           !strstr(s + n, "call");
}

/* Once there was a call, a cut adds neither content nor another call. */
TEST(replies_that_are_cut_lose_only_their_last_call)
{
    uint64_t seed = test_seed();

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        pl_template *t = open_form(rows[i].form);
        char *text = quoted(rows[i].text, false);
        const size_t n = strlen(text);
        struct told whole = parse(t, &rows[i], text, n, n, false);

        for (int draw = 0;
             draw < test_draws(6, 200) && !(rows[i].flags & ENDLESS); draw++) {
            const size_t at = (size_t)test_below(&seed, (int64_t)n) + 1;
            struct told cut = parse(t, &rows[i], text, at, at, false);
            struct told again = parse(t, &rows[i], text, at, 1, false);
            const size_t n_call = json_array_size(cut.calls);
            bool ok = is_same(&cut, &again);

            for (size_t k = 0; k < n_call && ok; k++)
                ok = json_equal(json_array_get(cut.calls, k),
                                json_array_get(whole.calls, k));
            if (n_call > 0)
                ok = ok && is_beginning(&cut.content, &whole.content);
            if (!ok)
                fail_msg("%s: %.*s\n gave \"%s\", in pieces \"%s\"",
                         rows[i].form, (int)at, text, text_of(&cut.content),
                         text_of(&again.content));
            told_free(&cut);
            told_free(&again);
        }
        told_free(&whole);
        free(text);
        pl_template_free(t);
    }
}

/* Streams report arguments of JSON as they come. Those with tags are reported
 * at the end, as far as they were written. */
TEST(replies_that_are_cut_within_tags_have_a_call_that_breaks_off)
{
    static const struct row cut[] = {
        {"Qwen3-Coder", "",
         "<tool_call>\n<function=get_weather>\n<parameter=days>\n3\n"
         "</parameter>\n<parameter=place>\nOslo ^is^\n</par",
         "", "",
         "[^get_weather^, ^{\\^days\\^: 3, \\^place\\^: \\^Oslo "
         "\\\\\\^is\\\\\\^^]",
         0},
        {"Qwen3-Coder", "",
         "<tool_call>\n<function=now>\n</function>\n</tool_call>\n<tool_call>\n"
         "<function=get_weather>\n<parameter=hours>\n[6, 1",
         "", "", NOW ", [^get_weather^, ^{\\^hours\\^: [6, 1^]", 0},
        {"GLM-4.6", "", "<tool_call>get_weather\n<arg_key>pla", "", "",
         "[^get_weather^, ^{^]", 0},
        {"hermes", "", "<function=get_weather>{^place^: ^Oslo^}", "", "",
         WEATHER, 0},
        {"Qwen3-Coder", "", "<tool_call>\n<function=get_wea",
         "<tool_call>\n<function=get_wea", "", "", 0},
        {"Qwen3-Coder", "",
         "<tool_call>\n<function=none>\n<parameter=place>\nOs",
         "<tool_call>\n<function=none>\n<parameter=place>\nOs", "", "", 0},
    };
    int n_wrong = 0;

    for (size_t i = 0; i < sizeof cut / sizeof cut[0]; i++) {
        pl_template *t = open_form(cut[i].form);
        char *text = quoted(cut[i].text, false);

        for (size_t piece = 1; piece < 3; piece++) {
            const size_t n = strlen(text);
            struct told told =
                parse(t, &cut[i], text, n, piece > 1 ? n : 1, true);

            n_wrong += !is_right(&cut[i], &told);
            told_free(&told);
        }
        free(text);
        pl_template_free(t);
    }
    assert_int_equal(n_wrong, 0);
}

/* Returns the row's text with a few slips: parts of it are left out, repeated,
 * or replaced by markers. */
static char *with_slips(const char *text, uint64_t *seed)
{
    static const char *const parts[] = {
        "\n",
        " ",
        "```",
        "</tool_call>",
        "<tool_call>",
        "{",
        "}",
        "'",
        "\"",
        "<",
        "</think>",
        "<think>",
        "[",
        "]",
        ",",
        "now",
        "</parameter>",
        "<|im_end|>",
        "<end>",
        "a",
        "\\",
        "None",
        JSON_N,
        "<|call|>",
        "<|end|>",
        "[TOOL_CALLS]",
        "<|python_end|>",
        "</function>",
        "(",
        ")",
    };
    struct test_text t = {0};
    size_t n = strlen(text);
    int n_slip = 1 + (int)test_below(seed, 3);

    test_text_add(&t, text, n);
    while (n_slip-- > 0 && t.n > 0) {
        const size_t at = (size_t)test_below(seed, (int64_t)t.n);
        const size_t len = 1 + (size_t)test_below(seed, 12);
        const size_t more = len < t.n - at ? len : t.n - at;
        const char *part =
            parts[test_below(seed, sizeof parts / sizeof parts[0])];
        struct test_text u = {0};
        const int64_t kind = test_below(seed, 3);

        test_text_add(&u, t.s, at);
        if (kind == 0)
            test_text_add(&u, part, strlen(part));
        if (kind == 1)
            test_text_add(&u, t.s + at, more);
        test_text_add(&u, t.s + at + (kind == 2 ? more : 0),
                      t.n - at - (kind == 2 ? more : 0));
        free(t.s);
        t = u;
    }
    for (size_t i = 0; i < t.n; i++)
        t.s[i] = t.s[i] == '^' ? '"' : t.s[i];
    return t.s;
}

static bool is_ascii(const char *s)
{
    while (*s > 0)
        s++;
    return *s == '\0';
}

/* A server parses calls in pieces always, others may choose. */
TEST(replies_with_slips_are_the_same_in_pieces)
{
    uint64_t seed = test_seed();

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        pl_template *t = open_form(rows[i].form);

        for (int draw = 0; draw < test_draws(4, 400); draw++) {
            char *text = with_slips(rows[i].text, &seed);
            const size_t n = strlen(text);

            /* pieces of a byte would split other characters */
            for (int k = 0; k < (is_ascii(text) ? 2 : 1) && n > 0; k++) {
                struct told whole = parse(t, &rows[i], text, n, n, k);
                struct told each = parse(t, &rows[i], text, n, 1, k);
                struct told some = parse(t, &rows[i], text, n, 5, k);

                if (!is_same(&whole, &each) || !is_same(&whole, &some))
                    fail_msg("%s, %d: %s\n gave \"%s\", \"%s\", %s\n not  "
                             "\"%s\", \"%s\", %s",
                             rows[i].form, k, text, text_of(&each.content),
                             text_of(&each.reasoning),
                             json_dumps(each.calls, 0), text_of(&whole.content),
                             text_of(&whole.reasoning),
                             json_dumps(whole.calls, 0));
                told_free(&whole);
                told_free(&each);
                told_free(&some);
            }
            free(text);
        }
        pl_template_free(t);
    }
}

/* ---- time ---------------------------------------------------------------- */

/* Returns `head`, n times `part`, and `tail`. */
static char *repeated(const char *head, const char *part, const char *tail,
                      int n)
{
    struct test_text t = {0};

    test_text_add(&t, head, strlen(head));
    for (int i = 0; i < n; i++)
        test_text_add(&t, part, strlen(part));
    test_text_add(&t, tail, strlen(tail));
    return t.s;
}

/* Returns the CPU seconds in which a reply is parsed, 256 bytes at a time, once
 * as if it were cut and once as if not. */
static double seconds_of(const pl_template *t, const char *text)
{
    const size_t n = strlen(text);
    const double began = test_cpu_seconds();

    for (int uncut = 0; uncut < 2; uncut++) {
        pl_reply *r;
        pl_err err;

        TEST_OK(pl_reply_create(&r, t, "", 0, tools, NULL, NULL, &err), err);
        pl_reply_in_pieces(r);
        if (uncut)
            pl_reply_uncut(r);
        for (size_t at = 0; at < n; at += 256)
            TEST_OK(
                pl_reply_add(r, text + at, n - at < 256 ? n - at : 256, &err),
                err);
        TEST_OK(pl_reply_finish(r, &err), err);
        pl_reply_free(r);
    }
    return test_cpu_seconds() - began;
}

#define DSML(s) "<" BAR "DSML" BAR s
#define CALL_W  "<tool_call>\n<function=get_weather>\n"

/* Models that repeat themselves write such replies. */
TEST(replies_that_are_odd_take_linear_time)
{
    static const struct {
        const char *form, *head, *part, *tail;
    } odd[] = {
        {"Qwen3-Coder", CALL_W, "<parameter=place>\nx\n",
         "</parameter>\n</function>\n</tool_call>"},
        {"Qwen3-Coder", CALL_W "<parameter=place>\n", "</function>\n",
         "</parameter>\n</function>\n</tool_call>"},
        {"Qwen3-Coder", CALL_W, "<parameter=place\n", ""},
        {"Qwen3-Coder", CALL_W, "<parameter=>\n", "</function>"},
        {"Qwen3-Coder", CALL_W "<parameter=place>\nx\n",
         "<parameter=days>\n<parameter=>\n</parameter>\n</function>\n", ""},
        {"Qwen3-Coder", CALL_W "<parameter=place>\n",
         "</tool_call>\n<tool_call>\n<function=now>\n</function>\n", ""},
        {"Qwen3-Coder", "", CALL_W "</parameter>\n", "</function>"},
        {"Qwen3-Coder", CALL_W "<parameter=place>\n</parameter>\n",
         "x </function>\n", ""},
        {"Qwen3-Coder", "",
         CALL_W "<parameter=place>\n</parameter> x\n"
                "</function>\n</tool_call>\n",
         ""},
        {"Qwen3-Coder", "<tool_call>\n<function=get_weather", "a/",
         "</function>"},
        {"GLM-4.6", "<tool_call>get_weather", "<arg_key>place</arg_key>\n", ""},
        {"GLM-4.6", "<tool_call>get_weather<arg_key>place</arg_key><arg_value>",
         "</tool_call>", ""},
        {"GLM-4.6", "",
         "<tool_call>get_weather<arg_key>place</arg_key><arg_value>x\n"
         "</tool_call>\n",
         ""},
        {"Qwen3-Coder", "", CALL_W "</tool_call>\n", "Done."},
        {"google-gemma-4-31B-it", "<|tool_call>call:get_weather{place:<|\"|>",
         "<tool_call|>", ""},
        {"google-gemma-4-31B-it", "<|tool_call>call:get_weather{",
         "place:<|\"|>x<|\"|>,<tool_call|>", ""},
        {"deepseek-ai-DeepSeek-V4",
         "</think>" DSML("tool_calls>\n")
             DSML("invoke name=\"get_weather\">\n"),
         DSML("parameter name=\"days\" string=\"false\">3</" BAR "DSML" BAR
              "parameter>\n"),
         "</" BAR "DSML" BAR "invoke>"},
        {"horizon",
         "</ifm|think><ifm|tool_calls>\n<ifm|tool_call>get_weather\n",
         IFM("place", IFM_TYPE("string"), "x"), "</ifm|tool_call>"},
        {"horizon",
         "</ifm|think><ifm|tool_calls>\n<ifm|tool_call>get_weather\n",
         IFM("place", "", "x"), "</ifm|tool_call>"},
        {"hermes", "<tool_call>{\"a\": [", "</tool_call>", ""},
        {"hermes", "<tool_call>{\"a\": [", "<tool_call>[{", ""},
        {"hermes", "", "<tool_call>{\"name\": ", ""},
        {"hermes", "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": 1,",
         "     ", "}}</tool_call>"},
        {"hermes", "<tool_call>{\"name\": \"now\", \"arguments\": {", "a: 1, ",
         "}}</tool_call>"},
        {"hermes", "<tool_call>{\"name\": \"now\", \"arguments\": {", "a",
         "}}</tool_call>"},
        {"hermes", "<tool_call>{\"name\": \"now\", \"arguments\": {1, ",
         "          a ", "}}</tool_call>"},
        {"hermes", "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": ",
         "[", "</tool_call>"},
        {"LFM2-8B-A1B", "<|tool_call_start|>[",
         "get_weather(place='<|tool_call_end|>'),", ""},
        {"MiniMax-M3", NS "<tool_call>\n" NS "<invoke name=\"get_weather\">",
         NS "<more>" NS "</invoke>", ""},
        {"openai-gpt-oss-120b",
         "<|channel|>commentary to=functions.get_weather<|message|>{", "<|mess",
         "<|call|>"},
    };
    double took[2];

    for (size_t i = 0; i < sizeof odd / sizeof odd[0];
         i += test_brief() ? 5 : 1) {
        pl_template *t = open_form(odd[i].form);

        for (int k = 0; k < 2; k++) {
            const size_t n = (k ? 128 : 32) * 1024 / strlen(odd[i].part);
            char *text =
                repeated(odd[i].head, odd[i].part, odd[i].tail, (int)n);

            took[k] = seconds_of(t, text);
            free(text);
        }
        if (took[1] > 8 * took[0] + 0.1)
            fail_msg("%s: %g s became %g s", odd[i].part, took[0], took[1]);
        pl_template_free(t);
    }
}
