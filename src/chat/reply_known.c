/* The table of notations that published models use; see reply_known.h. A row is
 * what reply_format_learn would learn from a template that shows this
 * notation. */
#include "chat/reply_known.h"

/* Initializes a span with a string literal. */
#define S(s)                                                                   \
    {                                                                          \
        s, sizeof s - 1                                                        \
    }

#define JSON_KEYS                                                              \
    .calls = CALLS_OBJECT, .name_key = S("name"),                              \
    .arguments_key = S("arguments")
/* Fields of the notation <function=f><parameter=k>v</parameter></function>. */
#define FUNCTION_TAGS                                                          \
    .calls = CALLS_TAGGED, .call_open = S("<function="), .name_close = S(">"), \
    .key_open = S("<parameter="), .value_open = S(">"),                        \
    .value_close = S("</parameter>"), .value_lead = S("\n"),                   \
    .value_tail = S("\n"), .call_close = S("</function>")
/* Fields of the notation <invoke name="f"><parameter
 * name="k">v</parameter></invoke>, where the text `p` precedes the name of each
 * tag, and `q` is the quote. Without quotes here, a reply may have them or
 * not. */
#define INVOKE_TAGS(p, q)                                                      \
    .calls = CALLS_TAGGED, .call_open = S("<" p "invoke name=" q),             \
    .name_close = S(q ">"), .key_open = S("<" p "parameter name=" q),          \
    .value_open = S(q ">"), .value_close = S("</" p "parameter>"),             \
    .call_close = S("</" p "invoke>")
#define ATEM_TAGS(q)                                                           \
    INVOKE_TAGS("atem:", q), .calls_open = S("<atem:function_calls>"),         \
                             .calls_close = S("</atem:function_calls>")
/* DeepSeek's tags, with the bytes of its bars and blanks */
#define BAR "\xef\xbd\x9c"
#define LOW "\xe2\x96\x81"
#define DSML_TAGS                                                              \
    .calls = CALLS_TAGGED,                                                     \
    .call_open = S("<" BAR "DSML" BAR "invoke name=\""),                       \
    .name_close = S("\">"),                                                    \
    .key_open = S("<" BAR "DSML" BAR "parameter name=\""),                     \
    .value_open = S("\" string=\"true\">"),                                    \
    .json_open = S("\" string=\"false\">"),                                    \
    .value_close = S("</" BAR "DSML" BAR "parameter>"),                        \
    .call_close = S("</" BAR "DSML" BAR "invoke>")
#define TOOL_TAG(words) "<" BAR "tool" words BAR ">"
#define TOOL_CALL_NAMED                                                        \
    .calls = CALLS_NAMED, .exact = true,                                       \
    .call_close = S(TOOL_TAG(LOW "call" LOW "end")),                           \
    .calls_close = S(TOOL_TAG(LOW "calls" LOW "end"))

const struct reply_format reply_known[] = {
    /* Notation of the models Hermes, Qwen, Granite 4, EXAONE. */
    {JSON_KEYS, .call_open = S("<tool_call>"), .call_close = S("</tool_call>")},
    {JSON_KEYS, .guess = true, .call_open = S("<function_call>"),
     .call_close = S("</function_call>")},
    {JSON_KEYS, .guess = true, .call_open = S("<tools>"),
     .call_close = S("</tools>")},
    /* Notation of the models Qwen3-Coder, Nemotron 3, Step, Seed-OSS, Llama
     * 3.1, Functionary 3.1. */
    {FUNCTION_TAGS, .each = true, .calls_open = S("<tool_call>"),
     .calls_close = S("</tool_call>")},
    {FUNCTION_TAGS, .each = true, .calls_open = S("<seed:tool_call>"),
     .calls_close = S("</seed:tool_call>")},
    {.calls = CALLS_NAMED,
     .exact = true,
     .each = true,
     .calls_open = S("<tool_call>"),
     .call_open = S("<function="),
     .args_open = S(">"),
     .call_close = S("</function>"),
     .calls_close = S("</tool_call>")},
    {.calls = CALLS_NAMED,
     .exact = true,
     .call_open = S("<function name="),
     .args_open = S(">"),
     .call_close = S("</function>")},
    {.calls = CALLS_TAGGED,
     .each = true,
     .calls_open = S("<tool_call>"),
     .call_open = S("<function name="),
     .name_close = S(">"),
     .key_open = S("<parameter name="),
     .value_open = S(">"),
     .value_close = S("</parameter>"),
     .value_lead = S("\n"),
     .value_tail = S("\n"),
     .call_close = S("</function>"),
     .calls_close = S("</tool_call>")},
    /* Notation of the models GLM, Laguna, Ling 3. */
    {.calls = CALLS_TAGGED,
     .guess = true,
     .call_open = S("<tool_call>"),
     .key_open = S("<arg_key>"),
     .value_open = S("</arg_key><arg_value>"),
     .value_close = S("</arg_value>"),
     .call_close = S("</tool_call>")},
    {.calls = CALLS_PYTHON,
     .call_open = S("<tool_call>"),
     .call_close = S("</tool_call>")},
    /* <tool_call> with {"f": {...}}, or f and {...} */
    {.calls = CALLS_OBJECT,
     .call_open = S("<tool_call>"),
     .call_close = S("</tool_call>")},
    {.calls = CALLS_NAMED,
     .guess = true,
     .exact = true,
     .call_open = S("<tool_call>"),
     .call_close = S("</tool_call>")},
    /* Notation of the model LFM2. */
    {JSON_KEYS, .call_open = S("<|tool_call_start|>"),
     .call_close = S("<|tool_call_end|>")},
    {.calls = CALLS_PYTHON,
     .call_open = S("<|tool_call_start|>"),
     .call_close = S("<|tool_call_end|>")},
    /* Notation of Mistral's models. */
    {JSON_KEYS, .calls_open = S("[TOOL_CALLS]")},
    {.calls = CALLS_NAMED,
     .call_open = S("[TOOL_CALLS]"),
     .id_open = S("[CALL_ID]"),
     .args_open = S("[ARGS]")},
    /* Notation of the models Gemma 4, FunctionGemma. */
    {.calls = CALLS_QUOTED,
     .call_open = S("<|tool_call>call:"),
     .call_close = S("<tool_call|>"),
     .quote = S("<|\"|>")},
    {.calls = CALLS_QUOTED,
     .call_open = S("<start_function_call>call:"),
     .call_close = S("<end_function_call>"),
     .quote = S("<escape>")},
    /* Notation of the models Granite 3, Phi-4-mini. */
    {JSON_KEYS, .calls_open = S("<|tool_call|>"),
     .calls_close = S("<|/tool_call|>")},
    /* Notation of the model InternLM 2. */
    {JSON_KEYS, .calls_open = S("<|action_start|>"),
     .call_open = S("<|plugin|>"), .call_close = S("<|action_end|>")},
    /* Notation of the model MiniCPM 3. */
    {.calls = CALLS_PYTHON,
     .call_open = S("<|tool_call_start|>\n```python"),
     .call_close = S("```\n<|tool_call_end|>")},
    /* The tags of tools of MCP (Model Context Protocol), which also name a
     * server. */
    {.calls = CALLS_NAMED,
     .no_id = true,
     .exact = true,
     .each = true,
     .calls_open = S("<use_mcp_tool>"),
     .call_open = S("<server_name>"),
     .name_open = S("</server_name>\n<tool_name>"),
     .args_open = S("</tool_name>\n<arguments>"),
     .call_close = S("</arguments>"),
     .calls_close = S("</use_mcp_tool>")},
    /* ReAct prompts (arXiv:2210.03629), with the words Action and Action
     * Input. */
    {.calls = CALLS_NAMED,
     .guess = true,
     .line = true,
     .exact = true,
     .call_open = S("Action:"),
     .args_open = S("\nAction Input:")},
    /* Notation of the model Nemotron 2. */
    {JSON_KEYS, .calls_open = S("<TOOLCALL>"), .calls_close = S("</TOOLCALL>")},
    /* Notation of the models Apriel, Jamba, Hunyuan. */
    {JSON_KEYS, .calls_open = S("<tool_calls>"),
     .calls_close = S("</tool_calls>")},
    /* Notation of the model Apertus, which writes {"f": {...}}. */
    {.calls = CALLS_OBJECT,
     .calls_open = S("<|tools_prefix|>"),
     .calls_close = S("<|tools_suffix|>")},
    /* Notation of the models Command R7B, Command A. */
    {.calls = CALLS_OBJECT,
     .name_key = S("tool_name"),
     .arguments_key = S("parameters"),
     .calls_open = S("<|START_ACTION|>"),
     .calls_close = S("<|END_ACTION|>")},
    /* Notation of the model Kimi K2. */
    {.calls = CALLS_NAMED,
     .id_named = true,
     .exact = true,
     .calls_open = S("<|tool_calls_section_begin|>"),
     .call_open = S("<|tool_call_begin|>"),
     .args_open = S("<|tool_call_argument_begin|>"),
     .call_close = S("<|tool_call_end|>"),
     .calls_close = S("<|tool_calls_section_end|>")},
    /* Notation of the models DeepSeek R1 and V3, and models distilled from
     * them, which leave some tags out. */
    {TOOL_CALL_NAMED, .calls_open = S(TOOL_TAG(LOW "calls" LOW "begin")),
     .call_open =
         S(TOOL_TAG(LOW "call" LOW "begin") "function" TOOL_TAG(LOW "sep")),
     .args_open = S("\n```json\n")},
    {TOOL_CALL_NAMED,
     .call_open =
         S(TOOL_TAG(LOW "calls" LOW "begin") "function" TOOL_TAG(LOW "sep")),
     .args_open = S("\n```json\n")},
    /* Notation of the model DeepSeek V3.1. */
    {TOOL_CALL_NAMED, .calls_open = S(TOOL_TAG(LOW "calls" LOW "begin")),
     .call_open = S(TOOL_TAG(LOW "call" LOW "begin")),
     .args_open = S(TOOL_TAG(LOW "sep"))},
    /* Notation of the models DeepSeek V3.2, V4. */
    {DSML_TAGS, .calls_open = S("<" BAR "DSML" BAR "function_calls>"),
     .calls_close = S("</" BAR "DSML" BAR "function_calls>")},
    {DSML_TAGS, .calls_open = S("<" BAR "DSML" BAR "tool_calls>"),
     .calls_close = S("</" BAR "DSML" BAR "tool_calls>")},
    /* Notation of the model MiniMax M2. */
    {INVOKE_TAGS("", ""), .calls_open = S("<minimax:tool_call>"),
     .calls_close = S("</minimax:tool_call>")},
    {INVOKE_TAGS("", ""), .calls_open = S("<function_calls>"),
     .calls_close = S("</function_calls>")},
    /* Muse Glimmer */
    {ATEM_TAGS("")},
    /* K2 Horizon, whose arguments may have types */
    {.calls = CALLS_TAGGED,
     .calls_open = S("<ifm|tool_calls>"),
     .call_open = S("<ifm|tool_call>"),
     .key_open = S("<ifm|arg_key>"),
     .type_open = S("</ifm|arg_key><ifm|arg_type>"),
     .type_close = S("</ifm|arg_type><ifm|arg_value>"),
     .value_open = S("</ifm|arg_key><ifm|arg_value>"),
     .value_close = S("</ifm|arg_value>"),
     .call_close = S("</ifm|tool_call>"),
     .calls_close = S("</ifm|tool_calls>")},
    {JSON_KEYS, .calls_open = S("<ifm|tool_calls>"),
     .call_open = S("<ifm|tool_call>"), .call_close = S("</ifm|tool_call>"),
     .calls_close = S("</ifm|tool_calls>")},
    /* OLMo 3: a call a line */
    {.calls = CALLS_PYTHON,
     .call_open = S("<function_calls>"),
     .call_close = S("</function_calls>")},
    /* Notation of the models Llama 3, which writes {...}; {...}, or
     * f.call(k="v"), or a program. */
    {JSON_KEYS, .calls_open = S("<|python_tag|>")},
    {.calls = CALLS_PYTHON, .call_open = S("<|python_tag|>")},
    {.calls = CALLS_CODE, .call_open = S("<|python_tag|>")},
    /* Notation of the model Llama 4. */
    {.calls = CALLS_PYTHON,
     .call_open = S("<|python_start|>"),
     .call_close = S("<|python_end|>")},
    /* Notation of the models FireFunction, Phi-4-mini. */
    {JSON_KEYS, .guess = true, .line = true, .calls_open = S("functools")},
    /* Notation of the models xLAM, and models that were taught no notation. */
    {JSON_KEYS, .guess = true, .line = true, .call_open = S("```json"),
     .call_close = S("```")},
    {JSON_KEYS, .guess = true, .line = true, .call_open = S("```tool_call"),
     .call_close = S("```")},
    {.calls = CALLS_PYTHON,
     .guess = true,
     .line = true,
     .call_open = S("```tool_code"),
     .call_close = S("```")},
    {JSON_KEYS, .guess = true, .line = true, .call_open = S("```"),
     .call_close = S("```")},
    {JSON_KEYS, .guess = true},
    {.calls = CALLS_PYTHON, .guess = true},
    /* Inkling: the name, and an object with the name */
    {.calls = CALLS_NAMED,
     .guess = true,
     .exact = true,
     .args_open = S("<|content_invoke_tool_json|>"),
     .name_key = S("name"),
     .arguments_key = S("args"),
     .call_close = S("<|end_message|>")},
    /* GLM 4: f, a line break and {...} */
    {.calls = CALLS_NAMED, .guess = true, .exact = true},
};
const int reply_n_known = sizeof reply_known / sizeof reply_known[0];

const struct reply_pair reply_pairs[] = {
    {"<think>", "</think>", false, true},
    {"[THINK]", "[/THINK]", false, false},
    {"<seed:think>", "</seed:think>", false, false},
    {"<mm:think>", "</mm:think>", false, false},
    {"<thinking>", "</thinking>", false, false},
    {"<reasoning>", "</reasoning>", false, false},
    {"<thought>", "</thought>", false, false},
    {"<|START_THINKING|>", "<|END_THINKING|>", false, false},
    {"<|inner_prefix|>", "<|inner_suffix|>", false, false},
    {"<|channel>thought", "<channel|>", false, false},
    {"\xe2\x97\x81think\xe2\x96\xb7", "\xe2\x97\x81/think\xe2\x96\xb7", false,
     false},
    {"Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]", false, false},
    {"<response>", "</response>", true, false},
    {"<answer>", "</answer>", true, false},
    /* Llama 4: around content before calls */
    {"<|python_start|>", "<|python_end|>", true, false},
};
const int reply_n_pair = sizeof reply_pairs / sizeof reply_pairs[0];

const struct reply_format reply_addressed = {ATEM_TAGS("\"")};
const struct reply_format reply_unmarked = {JSON_KEYS};

#define OPEN(tag)  S("<|open|>" tag "<|sep|>")
#define CLOSE(tag) S("<|close|>" tag "<|sep|>")

const struct reply_format reply_sectioned = {
    .think_open = OPEN("think"),
    .think_close = CLOSE("think"),
    .think_end = S("<|close|>think<|sep|><|open|>response<|sep|>"),
    .content_open = OPEN("response"),
    .content_close = CLOSE("response"),
    .end = {CLOSE("message"), S("<|end_of_msg|>")},
    .calls = CALLS_TAGGED,
    .attributes = true,
    .calls_open = OPEN("tools"),
    .calls_close = CLOSE("tools"),
    .call_open = S("<|open|>call tool=\""),
    .name_close = S("<|sep|>"),
    .key_open = S("<|open|>argument key=\""),
    .value_open = S("<|sep|>"),
    .value_close = CLOSE("argument"),
    .call_close = CLOSE("call"),
};
