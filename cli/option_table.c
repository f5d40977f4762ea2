/* The table of options. To add an option, add a row; --help prints the rows in
 * this order. option_set.c contains the setters. After a change to a row, run
 * `make commands`, which rewrites doc/commands.md. */
#include "option_set.h"
#include "server/sampler_names.h"

#include <assert.h>
#include <string.h>

enum {
    RUN = 1 << CMD_RUN,
    PLAN = 1 << CMD_PLAN,
    INSPECT = 1 << CMD_INSPECT,
    DEVICES = 1 << CMD_DEVICES,
    PERPLEXITY = 1 << CMD_PERPLEXITY,
    LOGITS = 1 << CMD_LOGITS,
    TOKENIZE = 1 << CMD_TOKENIZE,
    RENDER = 1 << CMD_RENDER,
    BENCH = 1 << CMD_BENCH,
    SYNTH = 1 << CMD_SYNTH,
    SERVE = 1 << CMD_SERVE,
    VERIFY = 1 << CMD_VERIFY,
    DIFF = 1 << CMD_DIFF,
    WORKER = 1 << CMD_WORKER,
    QUANTIZE = 1 << CMD_QUANTIZE,
    ONE_RUN = RUN | PLAN | PERPLEXITY | LOGITS | SERVE | VERIFY,
    WRITES = RUN | SERVE,
    DRAFTS = WRITES | BENCH,
    TEXTS = RUN | PERPLEXITY | TOKENIZE | VERIFY,
    PLANNED = ONE_RUN | BENCH,
    /* without plait verify, because a receipt gives the options that decide
     * bits */
    NUMERIC = PLANNED & ~VERIFY,
    OF_MODEL = PLANNED | TOKENIZE | RENDER | INSPECT | WORKER,
    ON_MACHINES = RUN | PLAN | PERPLEXITY | LOGITS | SERVE | BENCH,
    ALL = PLANNED | INSPECT | DEVICES | TOKENIZE | RENDER | SYNTH | DIFF |
          WORKER | QUANTIZE,
};
#define IN         OPTION_READS
#define OUT        OPTION_WRITES
#define OUT_STREAM (OPTION_WRITES | OPTION_STREAMS)
#define IN_STATE   (OPTION_READS | OPTION_STATE)
#define OUT_STATE  (OPTION_WRITES | OPTION_STATE)
static_assert(sizeof(pl_offload) == sizeof(int),
              "option_set_word stores every enumeration as an int");
static_assert((int)N_COMMAND <= (int)OPTION_BRIEF_SHIFT,
              "commands and those of OPTION_BRIEF share an integer");

#define WORDS(name, ...) static const char *const name[] = {__VA_ARGS__, NULL}

WORDS(split_modes, [PL_SPLIT_AUTO] = "auto", [PL_SPLIT_NONE] = "none",
      [PL_SPLIT_LAYER] = "layer", [PL_SPLIT_TENSOR] = "tensor",
      [PL_SPLIT_HYBRID] = "hybrid:");
WORDS(offloads, [PL_OFFLOAD_AUTO] = "auto", [PL_OFFLOAD_ON] = "on",
      [PL_OFFLOAD_OFF] = "off");
WORDS(numerics, [PL_NUMERICS_EXACT] = "exact", [PL_NUMERICS_FAST] = "fast");
WORDS(reasonings, [REASONING_AUTO] = "auto", [REASONING_ON] = "on",
      [REASONING_OFF] = "off");
WORDS(poolings, [POOLING_AUTO] = "auto", [POOLING_LAST] = "last",
      [POOLING_MEAN] = "mean", [POOLING_CLS] = "cls", [POOLING_NONE] = "none",
      [POOLING_RANK] = "rank");
WORDS(forms, [FORM_MD] = "md", [FORM_CSV] = "csv", [FORM_JSON] = "json",
      [FORM_JSONL] = "jsonl", [FORM_SQL] = "sql");
#define FORM_WORD(form, text, flags) text,
static const char *const receipt_forms[] = {PL_RECEIPT_FORM_MAP(FORM_WORD)
                                                NULL};
#undef FORM_WORD
WORDS(yes_no, "0", "1");
WORDS(formats_of_reasoning, [THOUGHTS_AUTO] = "auto", [THOUGHTS_NONE] = "none",
      [THOUGHTS_DEEPSEEK] = "deepseek", [THOUGHTS_LEGACY] = "deepseek-legacy");
WORDS(efforts, "default", "none", "minimal", "low", "medium", "high", "xhigh",
      "max");
WORDS(on_off, "on", "off");
WORDS(rope_scalings, "none", "linear", "yarn");
/* The words are in the order of `formats` in option_set_cache_format. */
WORDS(cache_formats, "f16", "f32", "bf16", "q8_0", "q5_1", "q5_0", "q4_1",
      "q4_0", "iq4_nl");
WORDS(layer_counts, "auto", "all");
WORDS(devices, "cpu", "gpu", "cuda", "hip", "opencl", "none");
WORDS(shapes, "qwen3-0.6b", "qwen3moe-2.75b", "llama-1.2b", "llama-8b",
      "llama-70b", "qwen3-8b", "qwen3moe-30b", "smollm3-3b", "granite-8b",
      "granitemoe-3b", "qwen35-0.8b", "qwen35moe-35b", "granitehybrid-32b",
      "granitehybrid-7b", "nemotron_h-9b", "nemotron_h_moe-30b",
      "kimi-linear-48b", "mamba2-2.7b", "falcon-h1-7b", "lfm2-1.2b",
      "lfm2moe-8b", "deepseek2-1t", "deepseek2-16b", "deepseek2-671b",
      "deepseek32-671b", "glm-dsa-744b", "deepseek4-284b", "minimax-m2-230b",
      "minimax-m3-428b", "mistral3-24b", "mistral3-8b", "phi3-3.8b", "phi3-14b",
      "glm4-9b", "glm4-32b", "gemma2-9b", "gemma2-27b", "olmo2-7b", "olmo2-32b",
      "exaone4-32b", "seed_oss-36b", "cohere2-8b", "cohere2-111b",
      "ernie4_5-moe-21b", "bailingmoe2-16b", "bailingmoe2-103b", "afmoe-26b",
      "bert-33m", "bert-335m", "nomic-bert-137m", "modern-bert-149m",
      "gemma-embedding-300m", "qwen2-7b", "qwen2moe-14b", "qwen3next-80b",
      "gpt-oss-20b", "gpt-oss-120b", "gemma3-4b", "gemma3-27b", "glm4moe-106b",
      "phimoe-42b", "olmoe-7b", "hunyuan-moe-80b", "dots1-142b",
      "exaone-moe-236b", "arcee-4.5b", "command-r-35b", "nemotron-4b",
      "stablelm-1.6b", "starcoder2-7b", "jina-bert-v3-559m");
WORDS(types, "q4_k_m", "q5_k_m", "q8_0", "q4_0", "q6_k", "f16", "bf16");

#define AT(member)      offsetof(struct options, member)
#define MANY            INT32_MAX
#define BRIEF(commands) ((commands) | OPTION_BRIEF(commands))

/* clang-format off */
#define HEADING(text, of) {.help = text, .commands = of}

const struct option_row option_table[] = {
    HEADING("Model", OF_MODEL | SYNTH),
    {{"-m", "--model"}, "FILE", NULL,
     "GGUF file of the model. For a split model, name the first file.",
     BRIEF(OF_MODEL) | OPTION_MANY | IN, option_set_text, AT(model), 0, 0,
     NULL},
    {{"-hf", "--hf-repo", "-hfr"}, "USER/REPO", NULL,
     "Model of a hub, also as USER/REPO:QUANT. It is downloaded once, from "
     "huggingface.co or HF_ENDPOINT, into a cache (see PLAIT_CACHE). Without "
     "QUANT it is Q4_K_M, else Q4_0, Q8_0 or the first file.",
     OF_MODEL | OPTION_BRIEF(PLANNED), option_set_text, AT(hf_repo), 0, 0,
     NULL},
    {{"-hff", "--hf-file"}, "NAME", NULL, "File of the hub's repository.",
     OF_MODEL, option_set_text, AT(hf_file), 0, 0, NULL},
    {{"-hft", "--hf-token"}, "TOKEN", "HF_TOKEN",
     "Access token of the hub. Other users of this machine can read it in the "
     "list of processes, but not the variable HF_TOKEN.",
     OF_MODEL, option_set_text, AT(hf_token), 0, 0, NULL},
    {{"-mu", "--model-url"}, "URL", NULL, "Address of a GGUF file to download.",
     OF_MODEL, option_set_text, AT(model_url), 0, 0, NULL},
    {{"--offline"}, NULL, NULL,
     "Never use the network. A model that was not downloaded before is an "
     "error.",
     OF_MODEL, option_set_flag, AT(offline), 0, 0, NULL},
    {{"--override-kv"}, "KEY=TYPE:VALUE", NULL,
     "Use another value of a key of the model's file. TYPE is int, float, bool "
     "or str. `plait inspect` shows the keys; one that begins with a dot "
     "follows the name of the architecture. Several are separated by commas, "
     "or the option is given again. One in double quotes may have commas.",
     OF_MODEL, option_set_key, 0, 0, 0, NULL},
    {{"--rope-scaling"}, "TYPE", NULL,
     "Scaling of positions, none, linear or yarn, in place of the file's. yarn "
     "needs --rope-scale.",
     OF_MODEL, option_set_rope, 0, 0, 0, rope_scalings},
    {{"--rope-scale"}, "N", NULL,
     "Factor by which the scaling of positions extends the context.",
     OF_MODEL, option_set_rope, 0, 1e-6, 1e6, NULL},
    {{"--rope-freq-base"}, "N", NULL,
     "Base of RoPE's frequencies. 0 is the file's.",
     OF_MODEL, option_set_rope, 0, 0, 1e30, NULL},
    {{"--rope-freq-scale"}, "N", NULL,
     "The inverse of --rope-scale. 0 is the file's.",
     OF_MODEL, option_set_rope, 0, 0, 1e6, NULL},
    {{"--yarn-orig-ctx"}, "N", NULL,
     "Context in tokens that YaRN extends. By default, or with 0, it is the "
     "file's, or that of the training.",
     OF_MODEL, option_set_rope, 0, 0, 1 << 28, NULL},
    {{"--yarn-ext-factor"}, "N", NULL,
     "Share of YaRN's ramp, which must be 1. -1 is the file's.",
     OF_MODEL, option_set_rope, 0, -1, 1e6, NULL},
    {{"--yarn-attn-factor"}, "N", NULL,
     "Factor of rotated queries and keys, besides that of YaRN. -1 is the "
     "file's.",
     OF_MODEL, option_set_rope, 0, -1, 1e6, NULL},
    {{"--yarn-beta-slow"}, "N", NULL,
     "Turns in the original context up to which YaRN interpolates. -1 is the "
     "file's, which is 1 by default.",
     OF_MODEL, option_set_rope, 0, -1, 1e6, NULL},
    {{"--yarn-beta-fast"}, "N", NULL,
     "Turns in the original context from which YaRN keeps frequencies. -1 is "
     "the file's, which is 32 by default.",
     OF_MODEL, option_set_rope, 0, -1, 1e6, NULL},
    {{"--shape"}, "NAME", NULL,
     "Random weights in the shape of a known model. Some are qwen3-8b, "
     "deepseek32-671b and bert-33m; a wrong name lists all. bench writes a "
     "file into TMPDIR and deletes it at the end.",
     BRIEF(BENCH | SYNTH) | OPTION_COMMA, option_set_text, AT(shape), 0, 0,
     shapes},
    {{"--type"}, "TYPE", "q4_k_m",
     "Format of the random weights. It is q4_k_m, q5_k_m or a format of GGUF "
     "files, like q8_0 or f16.",
     BRIEF(BENCH | SYNTH) | OPTION_COMMA, option_set_text, AT(type), 0, 0,
     types},
    {{"--mtp"}, "N", NULL,
     "Plan the file's Nth block for multi-token prediction in place of the "
     "model.",
     PLAN, option_set_int64, AT(pl.mtp), 1, MANY, NULL},

    HEADING("Input and output", ALL & ~(DIFF | WORKER | QUANTIZE)),
    {{"-p", "--prompt"}, "TEXT", NULL,
     "The text. \\n, \\t, \\\\ and the like are escapes. - reads standard "
     "input, as does a command without -p and -f whose input is not a "
     "terminal.",
     BRIEF(TEXTS), option_set_prompt, AT(prompt), 0, 0, NULL},
    {{"-f", "--file"}, "FILE", NULL,
     "File with the text. run and perplexity remove one newline at its end. "
     "bench begins texts with its tokens where --spec-type is measured.",
     BRIEF(TEXTS) | BENCH | IN, option_set_text, AT(file), 0, 0, NULL},
    {{"-bf", "--binary-file"}, "FILE", NULL,
     "File with the text, of which no newline is removed.",
     RUN | IN, option_set_text, AT(binary_file), 0, 0, NULL},
    {{"--no-escape"}, NULL, NULL, "Take -p literally, backslashes too.",
     TEXTS | OPTION_BRIEF(TOKENIZE), option_set_flag, AT(no_escape), 0, 0,
     NULL},
    {{"--tokens"}, "IDS", NULL,
     "Token ids, decimal, separated by commas or blanks. @FILE reads them from "
     "a file.",
     BRIEF(LOGITS) | IN, option_set_text, AT(tokens), 0, 0, NULL},
    {{"-o", "--output"}, "FILE", NULL,
     "File for the logits. It holds tokens x vocabulary values, float32, "
     "little endian. - is standard output.",
     BRIEF(LOGITS) | OUT_STREAM, option_set_text, AT(output), 0, 0, NULL},
    {{"-o", "--output"}, "FILE", NULL, "File to write the model to.",
     BRIEF(SYNTH) | OUT, option_set_text, AT(output), 0, 0, NULL},
    {{"--ids"}, NULL, NULL, "Print the ids alone, on one line.",
     BRIEF(TOKENIZE), option_set_flag, AT(ids_only), 0, 0, NULL},
    {{"--no-special"}, NULL, NULL,
     "Add no BOS or EOS token, and take <|...|> as text.",
     BRIEF(TOKENIZE), option_set_flag, AT(no_special), 0, 0, NULL},
    {{"--template", "--chat-template-file"}, "FILE", NULL,
     "Chat template to use in place of the model's. Special tokens still come "
     "from the model.",
     WRITES | BRIEF(RENDER) | VERIFY | IN, option_set_text, AT(chat_template),
     0, 0, NULL},
    {{"--messages"}, "FILE", NULL,
     "The conversation, a JSON list of messages. A message is an object with "
     "role and content. - reads standard input. verify takes its prompt from "
     "it.",
     BRIEF(RENDER) | VERIFY | IN, option_set_text, AT(messages), 0, 0, NULL},
    {{"--tools"}, "FILE", NULL,
     "JSON list of the tools that the model may call.",
     BRIEF(RENDER) | VERIFY | IN, option_set_text, AT(tools), 0, 0, NULL},
    {{"--chat-template"}, "TEXT", NULL,
     "Chat template, as a text, or by a name, such as chatml, llama3 or "
     "mistral-v7. An unknown name lists all.",
     WRITES | RENDER | VERIFY, option_set_text, AT(template_text), 0, 0, NULL},
    {{"--kwargs", "--chat-template-kwargs"}, "JSON", NULL,
     "Object with more variables of the template. An example is "
     "'{\"reasoning_effort\": \"low\"}'.",
     WRITES | BRIEF(RENDER) | VERIFY, option_set_text, AT(kwargs), 0, 0, NULL},
    {{"--no-generation-prompt"}, NULL, NULL,
     "End with the last message. Otherwise the prompt ends where the answer "
     "begins.",
     BRIEF(RENDER) | VERIFY, option_set_flag, AT(no_generation_prompt), 0, 0,
     NULL},
    {{"--json"}, NULL, NULL, "Print JSON instead of tables.",
     BRIEF(PLAN | INSPECT | DEVICES | VERIFY), option_set_flag, AT(json), 0, 0,
     NULL},
    {{"--svg"}, "FILE", NULL,
     "Draw the plan as an SVG picture. Devices are lanes, layers are columns, "
     "tensors are boxes, collectives and copies are lines. - writes the "
     "picture alone to standard output.",
     BRIEF(PLAN) | OUT_STREAM, option_set_text, AT(svg), 0, 0, NULL},
    {{"--dump"}, "PASS", NULL,
     "Print what a pass of lowering makes. specialize makes the variants of "
     "programs; place and transfer make the list of values that cross between "
     "groups; order, events and buffers make the devices' programs. messages "
     "lists what machines send each other.",
     PLAN, option_set_text, AT(dump), 0, 0, NULL},
    {{"--measure"}, NULL, NULL,
     "Measure cores, memory, messages and GPUs. This takes some seconds each. "
     "It measures all GPUs, or those of -dev, and keeps the figures for later "
     "plans in $XDG_CACHE_HOME/plait, else ~/.cache/plait.",
     BRIEF(DEVICES), option_set_flag, AT(measure), 0, 0, NULL},
    {{"--chunks"}, "N", "-1",
     "Measure only the first N windows. -1 measures all.",
     BRIEF(PERPLEXITY), option_set_int64, AT(n_chunks), -1, MANY, NULL},
    {{"--trace"}, "FILE", NULL,
     "Write a timeline of all steps in Chrome's trace format. Open it at "
     "chrome://tracing or ui.perfetto.dev.",
     RUN | PERPLEXITY | LOGITS | OUT_STREAM, option_set_text, AT(trace), 0, 0,
     NULL},

    HEADING("Generation", WRITES | VERIFY),
    {{"-n", "--predict", "--n-predict"}, "N", "-1",
     "Most tokens to generate. In a chat it applies to each answer. -1 or -2 "
     "goes on until the text ends or the context is full.",
     WRITES | OPTION_BRIEF(RUN), option_set_predict, AT(n_predict), -2, MANY,
     NULL},
    {{"-i", "--interactive"}, NULL, NULL,
     "Chat with the model. This is the default if standard input is a terminal "
     "and no text is given. Each line is a message; one that ends with a "
     "backslash continues in the next. Without a chat template each line is "
     "appended to the text and the model continues it. Ctrl-C stops an answer, "
     "a second one ends the chat.",
     BRIEF(RUN), option_set_flag, AT(interactive), 0, 0, NULL},
    {{"-st", "--single-turn"}, NULL, NULL,
     "End the chat after one answer, as to the message of -p.",
     RUN, option_set_flag, AT(single_turn), 0, 0, NULL},
    {{"-sys", "--system", "--system-prompt"}, "TEXT", NULL,
     "System message of the chat. It takes the escapes of -p.",
     BRIEF(RUN), option_set_text, AT(system), 0, 0, NULL},
    {{"-sysf", "--system-prompt-file"}, "FILE", NULL,
     "File with the system message.",
     RUN | IN, option_set_text, AT(system_file), 0, 0, NULL},
    {{"-rea", "--reasoning"}, "WHEN", "auto",
     "Let the model reason before it answers. auto leaves that to the "
     "template. run prints reasoning to standard error. serve takes it for "
     "requests that do not say.",
     BRIEF(RUN) | SERVE | OPTION_BARE, option_set_word, AT(reasoning), 0, 0,
     reasonings},
    {{"--reasoning-effort"}, "LEVEL", "default",
     "Effort of reasoning that the template is told, such as low or high. "
     "default tells it nothing.",
     WRITES, option_set_one_of, AT(reasoning_effort), 0, 0, efforts},
    {{"--reasoning-budget"}, "N", "-1",
     "Most tokens of reasoning, for requests that do not say. 0 turns "
     "reasoning off, -1 sets no limit. run takes these two alone.",
     WRITES, option_set_budget, AT(reasoning_budget), -1, MANY, NULL},
    {{"--reasoning-format"}, "FORM", "auto",
     "Form of reasoning in answers, for requests that do not say. none leaves "
     "it in the content, deepseek takes it apart, deepseek-legacy does both.",
     SERVE, option_set_word, AT(reasoning_format), 0, 0,
     formats_of_reasoning},
    {{"--no-prefill-assistant"}, NULL, NULL,
     "Take a last message of the assistant as complete. By default the answer "
     "continues it.",
     SERVE, option_set_flag, AT(no_prefill), 0, 0, NULL},
    {{"-r", "--reverse-prompt"}, "TEXT", NULL,
     "Stop before this text. May be given again. In a chat the next message "
     "is then read. serve takes it for requests without stop.",
     WRITES, option_set_listed, AT(stops), 0, 0, NULL},
    {{"-no-cnv", "--no-template"}, NULL, NULL,
     "Use no chat template. With -i the model continues a text.",
     RUN, option_set_flag, AT(no_template), 0, 0, NULL},
    {{"--ignore-eos"}, NULL, NULL, "Never generate a token that ends the text.",
     WRITES, option_set_flag, AT(ignore_eos), 0, 0, NULL},
    {{"--no-display-prompt"}, NULL, NULL, "Print only what is generated.",
     RUN, option_set_flag, AT(no_display_prompt), 0, 0, NULL},
    {{"-sp", "--special"}, NULL, NULL,
     "Print special tokens too. serve does so in answers outside chats, "
     "for requests that do not say (skip_special_tokens).",
     WRITES, option_set_flag, AT(show_special), 0, 0, NULL},
    {{"--grammar"}, "TEXT", NULL,
     "Generate only what a GBNF grammar allows. An example is 'root ::= "
     "\"yes\" | \"no\"'. In a chat it applies to the answer: after the "
     "reasoning if the prompt opens it or the template has channels, else from "
     "the first token, which leaves no room for reasoning.",
     WRITES, option_set_text, AT(grammar), 0, 0, NULL},
    {{"--grammar-file"}, "FILE", NULL, "Read the grammar from a file.",
     WRITES | VERIFY | IN, option_set_text, AT(grammar_file), 0, 0, NULL},
    {{"-j", "--json-schema"}, "SCHEMA", NULL,
     "Generate only JSON that fits this JSON Schema. '{}' allows any.",
     BRIEF(RUN) | SERVE, option_set_text, AT(schema), 0, 0, NULL},
    {{"-jf", "--json-schema-file"}, "FILE", NULL,
     "Read the JSON Schema from a file.",
     WRITES | IN, option_set_text, AT(schema_file), 0, 0, NULL},
    {{"--state-load"}, "FILE", NULL,
     "Continue from a saved state. A prompt is appended to its text.",
     BRIEF(RUN) | IN_STATE, option_set_text, AT(state_load), 0, 0, NULL},
    {{"--state-save"}, "FILE", NULL,
     "Save the state at the end. The file is replaced as a whole.",
     BRIEF(RUN) | OUT_STATE, option_set_text, AT(state_save), 0, 0, NULL},
    {{"--convert"}, NULL, NULL,
     "With --state-load, accept a state with other cache formats. They are "
     "converted to those of -ctk and -ctv.",
     RUN, option_set_flag, AT(convert), 0, 0, NULL},

    HEADING("Sampling (applied in this order unless --samplers sets another)",
            WRITES),
    {{"--repeat-last-n"}, "N", "64",
     "Tokens that the penalties look back at. 0 turns them off, -1 is the "
     "whole context.",
     WRITES, option_set_int, AT(sampling.penalty_last_n), -1, MANY, NULL},
    {{"--repeat-penalty"}, "X", "1",
     "Divide the logits of tokens seen by X. 1 turns it off.",
     WRITES, option_set_float, AT(sampling.repeat_penalty), 0.001, 1000, NULL},
    {{"--frequency-penalty"}, "X", "0",
     "Subtract X for each time a token was seen.",
     WRITES, option_set_float, AT(sampling.frequency_penalty), -100, 100, NULL},
    {{"--presence-penalty"}, "X", "0", "Subtract X from tokens seen.",
     WRITES, option_set_float, AT(sampling.presence_penalty), -100, 100, NULL},
    {{"-l", "--logit-bias"}, "ID+VALUE", NULL,
     "Add a value to a token's logit. ID-VALUE subtracts it, ID-inf forbids "
     "the token. May be given again.",
     WRITES, option_set_bias, 0, 0, 0, NULL},
    {{"--dry-multiplier"}, "X", "0",
     "DRY: subtract X times a power of --dry-base from tokens that would "
     "continue a repetition. 0 turns it off.",
     WRITES, option_set_float, AT(sampling.dry_multiplier), 0, 1000, NULL},
    {{"--dry-base"}, "X", "1.75", "DRY: base of the power.",
     WRITES, option_set_float, AT(sampling.dry_base), 1, 1000, NULL},
    {{"--dry-allowed-length"}, "N", "2",
     "DRY: repeated tokens at which the exponent is 0.",
     WRITES, option_set_int, AT(sampling.dry_allowed_length), 1, MANY, NULL},
    {{"--dry-penalty-last-n"}, "N", "4096",
     "DRY: tokens to look back at, up to 1048576. 0 turns it off, -1 is the "
     "whole context.",
     WRITES, option_set_int, AT(sampling.dry_last_n), -1, SAMPLER_DRY_LAST_N,
     NULL},
    {{"--dry-sequence-breaker"}, "TEXT", "newline, :, \" and *",
     "DRY: repetitions end at this text. May be given again. none means that "
     "nothing ends them.",
     WRITES, option_set_breaker, 0, 0, 0, NULL},
    {{"--top-nsigma", "--top-n-sigma"}, "X", "0",
     "Keep logits within X standard deviations of the best. 0 or less turns it "
     "off.",
     WRITES, option_set_float, AT(sampling.top_n_sigma), -1, 1000, NULL},
    {{"--top-k"}, "N", "40",
     "Keep the N most likely tokens. 0 or less keeps all.",
     WRITES | OPTION_BRIEF(RUN), option_set_int, AT(sampling.top_k), -MANY,
     MANY, NULL},
    {{"--typical", "--typical-p"}, "X", "1",
     "Locally typical sampling. 1 turns it off.",
     WRITES, option_set_float, AT(sampling.typical_p), 0, 1, NULL},
    {{"--top-p"}, "X", "0.95",
     "Keep the most likely tokens up to this sum. 1 turns it off.",
     WRITES | OPTION_BRIEF(RUN), option_set_float, AT(sampling.top_p), 0, 1,
     NULL},
    {{"--min-p"}, "X", "0.05",
     "Remove tokens less likely than X times the best. 0 or less turns it "
     "off.",
     WRITES, option_set_float, AT(sampling.min_p), -1, 1, NULL},
    {{"--xtc-probability"}, "X", "0",
     "XTC: chance to remove all but the least likely of the tokens above the "
     "threshold. 0 or less turns it off.",
     WRITES, option_set_float, AT(sampling.xtc_probability), -1, 1, NULL},
    {{"--xtc-threshold"}, "X", "0.1",
     "XTC: threshold. A value above 0.5 turns it off.",
     WRITES, option_set_float, AT(sampling.xtc_threshold), 0, 1, NULL},
    {{"--temp", "--temperature"}, "X", "0.8",
     "Temperature. 0 always takes the most likely token.",
     WRITES | OPTION_BRIEF(RUN), option_set_float, AT(sampling.temperature), 0,
     1000, NULL},
    {{"--dynatemp-range"}, "X", "0",
     "Dynamic temperature: vary it by up to X, higher for flat distributions. "
     "0 or less turns it off.",
     WRITES, option_set_float, AT(sampling.dynatemp_range), -1, 1000, NULL},
    {{"--dynatemp-exp"}, "X", "1",
     "Dynamic temperature: exponent of the normalized entropy.",
     WRITES, option_set_float, AT(sampling.dynatemp_exponent), 0, 1000, NULL},
    {{"--mirostat"}, "N", "0",
     "Mirostat 1 or 2, in place of all others but the temperature. 0 turns it "
     "off.",
     WRITES, option_set_int, AT(sampling.mirostat), 0, 2, NULL},
    {{"--mirostat-ent"}, "X", "5", "Mirostat: target surprise, in bits.",
     WRITES, option_set_float, AT(sampling.mirostat_tau), 0, 1000, NULL},
    {{"--mirostat-lr"}, "X", "0.1", "Mirostat: learning rate.",
     WRITES, option_set_float, AT(sampling.mirostat_eta), 0, 1, NULL},
    {{"--adaptive-target"}, "X", "-1",
     "Adaptive-p: prefer tokens near this probability. Only if --samplers has "
     "adaptive_p. Below 0 turns it off.",
     WRITES, option_set_float, AT(sampling.adaptive_target), -1, 1, NULL},
    {{"--adaptive-decay"}, "X", "0.9",
     "Adaptive-p: factor by which the weight of earlier tokens falls.",
     WRITES, option_set_float, AT(sampling.adaptive_decay), 0, 0.99, NULL},
    {{"--samplers"}, "NAMES", NULL,
     "Apply these samplers alone, in this order, separated by ;. They are "
     "penalties, dry, top_n_sigma, top_k, typ_p, top_p, min_p, xtc, "
     "temperature and adaptive_p.",
     WRITES, option_set_samplers, 0, 0, 0, NULL},
    {{"--sampler-seq", "--sampling-seq"}, "LETTERS", NULL,
     "The same by a letter each, of edskypmxta.",
     WRITES, option_set_samplers, 0, 0, 0, NULL},
    {{"-s", "--seed"}, "N", "-1",
     "Random seed. The same seed gives the same text. -1 draws one, which is "
     "printed at the end.",
     WRITES | OPTION_BRIEF(RUN), option_set_seed, AT(sampling.seed), 0, 0,
     NULL},

    HEADING("Drafts (they change the speed and never the text)",
            DRAFTS | PLAN),
    {{"--spec-type"}, "TYPES", NULL,
     "Sources of drafts, such as ngram-simple. Drafts are likely next tokens, "
     "of which a step verifies several. The sources are ngram-simple, "
     "ngram-map-k, ngram-cache, draft-mtp (the model's own layers for "
     "multi-token prediction) and, with --model-draft, draft-simple; several "
     "are separated by commas. How many tokens are drafted depends on their "
     "success and on the time of steps. The default is none, or draft-simple "
     "with --model-draft.",
     DRAFTS | PLAN | OPTION_BRIEF(SERVE) | OPTION_MANY, option_set_sources, 0,
     0, 0, NULL},
    {{"--draft-max", "--draft", "--spec-draft-n-max"}, "N", NULL,
     "Draft this many tokens whenever a type proposes them, at most 63.",
     DRAFTS | PLAN | OPTION_COMMA, option_set_int, AT(drafts.limits.n_max), 0,
     MANY, NULL},
    {{"--draft-min", "--spec-draft-n-min"}, "N", "0",
     "Drop drafts of fewer tokens.",
     DRAFTS, option_set_int, AT(drafts.limits.n_min), 0, PL_DRAFT_MAX, NULL},
    {{"--draft-p-min", "--spec-draft-p-min"}, "P", "0",
     "End a draft before a token that is less probable by its type's "
     "statistics, or by the draft model.",
     DRAFTS, option_set_float, AT(drafts.limits.p_min), 0, 1, NULL},
    {{"-md", "--model-draft", "--spec-draft-model"}, "FILE", NULL,
     "GGUF file of a draft model. It is a small model with the vocabulary of "
     "the large one. It drafts as --spec-type draft-simple.",
     DRAFTS | OPTION_BRIEF(SERVE) | OPTION_MANY | IN, option_set_text,
     AT(model_draft), 0, 0, NULL},
    {{"-hfd", "--hf-repo-draft", "-hfrd", "--spec-draft-hf"}, "USER/REPO", NULL,
     "Draft model of a hub, also as USER/REPO:QUANT.",
     DRAFTS, option_set_text, AT(hf_repo_draft), 0, 0, NULL},
    {{"-devd", "--device-draft", "--spec-draft-device"}, "LIST",
     "those of -dev", "Devices of the draft model.",
     DRAFTS, option_set_text, AT(draft.devices), 0, 0, devices},
    {{"-td", "--threads-draft", "--spec-draft-threads"}, "N", "those of -t",
     "Threads of each device of the draft model.",
     DRAFTS, option_set_int_auto, AT(draft.n_threads), 1, 256, NULL},
    {{"-ngld", "--gpu-layers-draft", "--n-gpu-layers-draft",
      "--spec-draft-ngl"}, "N", "auto",
     "Layers of the draft model on its devices.",
     DRAFTS, option_set_gpu_layers, AT(draft.device_layers), 0, 0,
     layer_counts},
    {{"-cmoed", "--cpu-moe-draft", "--spec-draft-cpu-moe"}, NULL, NULL,
     "Keep all experts of the draft model on the host.",
     DRAFTS, option_set_all_experts, AT(draft.host_experts), 0, 0, NULL},
    {{"-ncmoed", "--n-cpu-moe-draft", "--spec-draft-n-cpu-moe",
      "--spec-draft-ncmoe"}, "LAYERS", NULL,
     "Keep experts of some layers of the draft model on the host.",
     DRAFTS, option_set_text, AT(draft.host_experts), 0, 0, NULL},
    {{"-otd", "--override-tensor-draft", "--spec-draft-override-tensor"},
     "REGEX=WHERE", NULL, "Place weights of the draft model by name.",
     DRAFTS, option_set_override, AT(draft.overrides), 0, 0, NULL},
    {{"-cd", "--ctx-size-draft"}, "N", "that of -c",
     "Context of the draft model in tokens. Longer texts get no drafts of it.",
     DRAFTS, option_set_context, AT(draft.n_ctx), 0, 1 << 30, NULL},
    {{"-ctkd", "--cache-type-k-draft", "--spec-draft-type-k"}, "FORMAT", "f16",
     "Format of keys in the draft model's cache.",
     DRAFTS, option_set_cache_format, AT(draft.cache_k), 0, 0, cache_formats},
    {{"-ctvd", "--cache-type-v-draft", "--spec-draft-type-v"}, "FORMAT", "f16",
     "Format of values in the draft model's cache.",
     DRAFTS, option_set_cache_format, AT(draft.cache_v), 0, 0, cache_formats},
    {{"--spec-ngram-simple-size-n"}, "N", "12",
     "Tokens that ngram-simple looks up. It drafts what followed them last.",
     DRAFTS, option_set_int, AT(drafts.simple_n), 1, 1024, NULL},
    {{"--spec-ngram-simple-size-m"}, "N", "48",
     "Most tokens of a draft of ngram-simple.",
     DRAFTS, option_set_int, AT(drafts.simple_m), 1, 1024, NULL},
    {{"--spec-ngram-simple-min-hits"}, "N", "1",
     "How often ngram-simple must have seen the tokens before.",
     DRAFTS, option_set_int, AT(drafts.simple_hits), 1, 1024, NULL},
    {{"--spec-ngram-map-k-size-n"}, "N", "12",
     "Tokens that ngram-map-k looks up. It drafts what followed them most "
     "often.",
     DRAFTS, option_set_int, AT(drafts.map_n), 1, 1024, NULL},
    {{"--spec-ngram-map-k-size-m"}, "N", "48",
     "Most tokens of a draft of ngram-map-k.",
     DRAFTS, option_set_int, AT(drafts.map_m), 1, 1024, NULL},
    {{"--spec-ngram-map-k-min-hits"}, "N", "1",
     "How often ngram-map-k must have seen the tokens before.",
     DRAFTS, option_set_int, AT(drafts.map_hits), 1, 1024, NULL},
    {{"-lcs", "--lookup-cache-static"}, "FILE", NULL,
     "Statistics for ngram-cache, in llama.cpp's format. They back those of "
     "the text.",
     DRAFTS | IN, option_set_text, AT(lookup_static), 0, 0, NULL},
    {{"-lcd", "--lookup-cache-dynamic"}, "FILE", NULL,
     "Statistics of earlier texts for ngram-cache, in llama.cpp's format. "
     "Those of the new texts are added when the command ends.",
     WRITES | OUT, option_set_text, AT(lookup_dynamic), 0, 0, NULL},

    HEADING("Receipts", RUN | SERVE | PERPLEXITY | VERIFY),
    {{"--receipt"}, "FILE", NULL,
     "Write a receipt of each answer, a line each. plait verify checks them. - "
     "is standard output. perplexity writes one of each window. serve appends "
     "to the file as answers end; run and perplexity replace it.",
     RUN | SERVE | PERPLEXITY | OUT_STREAM, option_set_text, AT(receipt), 0, 0,
     NULL},
    {{"--receipt-form"}, "FORM", "full, of serve brief",
     "Contents of receipts. full can be checked with the model alone. brief "
     "has hashes in place of prompt and grammar, hashes in place of the "
     "output, too.",
     WRITES, option_set_word, AT(receipt_form), 0, 0, receipt_forms},
    {{"--receipts"}, NULL, NULL,
     "Add a receipt to every answer, in the form of --receipt-form. Otherwise "
     "only requests with \"receipt\": true have one.",
     SERVE, option_set_flag, AT(receipts), 0, 0, NULL},
    {{"--sign-key"}, "FILE", NULL,
     "Sign receipts with this Ed25519 key in PEM, as openssl genpkey writes "
     "it. Each is then a JSON Web Signature.",
     WRITES | PERPLEXITY | IN, option_set_text, AT(sign_key), 0, 0, NULL},
    {{"--sample"}, "N", "all",
     "Check only N tokens of each receipt, at random.",
     BRIEF(VERIFY), option_set_int64, AT(n_sample), 1, MANY, NULL},
    {{"--trust"}, "FILE", NULL,
     "Accept only receipts signed by a key of FILE. It has Ed25519 public keys "
     "in PEM.",
     BRIEF(VERIFY) | IN, option_set_text, AT(trust), 0, 0, NULL},

    HEADING("Measurement (every combination of lists like -t 1,2 and of "
            "repeated options)", BENCH),
    {{"-p", "--n-prompt"}, "N", "512", "Tokens of a prompt. 0 measures none.",
     BRIEF(BENCH), option_set_list, AT(n_prompt), 0, 1 << 20, NULL},
    {{"-n", "--n-gen"}, "N", "128", 
     "Tokens to generate. 0 measures none, as encoders need it.",
     BRIEF(BENCH), option_set_list, AT(n_gen), 0, 1 << 20, NULL},
    {{"-d", "--n-depth"}, "N", "0", "Tokens in the cache before.",
     BRIEF(BENCH), option_set_list, AT(n_depth), 0, 1 << 20, NULL},
    {{"-pg"}, "N,N", NULL,
     "Tokens of a prompt, and of a generation after it, as one test. May be "
     "given again.",
     BENCH, option_set_pair, AT(n_pair), 1, 1 << 20, NULL},
    {{"-np", "--n-seq", "--parallel"}, "N", "1",
     "Sequences at once. Each has a prompt, or generates one token a step.",
     BRIEF(BENCH), option_set_list, AT(n_seq), 1, 256, NULL},
    {{"-r", "--repetitions"}, "N", "5",
     "Rounds. Each measures everything once.",
     BRIEF(BENCH), option_set_int, AT(n_round), 1, 1000, NULL},
    {{"-o", "--output"}, "FORM", "md",
     "Form of the results. md is a Markdown table. json, jsonl, csv and sql "
     "have llama-bench's keys.",
     BRIEF(BENCH), option_set_word, AT(form), 0, 0, forms},
    {{"--svg"}, "FILE", NULL,
     "Draw tokens a second over depth and devices. With --serve, latencies "
     "over percentiles and over time. - writes the picture alone to standard "
     "output.",
     BRIEF(BENCH) | OUT_STREAM, option_set_text, AT(svg), 0, 0, NULL},
    {{"--no-limits"}, NULL, NULL,
     "Do not measure the machine's limits first.",
     BENCH, option_set_flag, AT(no_limits), 0, 0, NULL},

    HEADING("Load on a server (every combination of --rate and "
            "--concurrency)", BENCH),
    {{"--serve"}, "URL", NULL,
     "Measure the server at this address. Any server that speaks OpenAI's "
     "protocol will do. -p and -n are then mixes of which each request draws "
     "one, and -m names the model to ask for.",
     BRIEF(BENCH), option_set_text, AT(serve), 0, 0, NULL},
    {{"--rate"}, "X", NULL,
     "Requests a second, at random times (Poisson). May be a list.",
     BRIEF(BENCH), option_set_numbers, AT(rate), 0.001, 1e6, NULL},
    {{"--concurrency"}, "N", "8",
     "Requests at once. The next starts when one ends. With --rate it is the "
     "most at once. May be a list.",
     BRIEF(BENCH), option_set_list, AT(concurrency), 1, 1 << 16, NULL},
    {{"--requests"}, "N", "64", "Requests of a load.",
     BRIEF(BENCH), option_set_int, AT(n_request), 1, 1 << 30, NULL},
    {{"--seconds"}, "S", NULL,
     "Start no request after so long. With --requests, whichever comes first.",
     BENCH, option_set_int, AT(seconds), 1, 1 << 20, NULL},
    {{"--prefix"}, "X", "0", "Share of each prompt that is common to all.",
     BENCH, option_set_float, AT(prefix), 0, 1, NULL},
    {{"--prefixes"}, "N", "1",
     "Number of different common prefixes. Each request has one of them.",
     BENCH, option_set_int, AT(n_prefix), 1, 1 << 20, NULL},
    {{"--max-first"}, "MS", "any",
     "Count a request as good only if its first token takes at most so long.",
     BENCH, option_set_float, AT(max_first_ms), 0, 1e9, NULL},
    {{"--max-between"}, "MS", "any",
     "Count it as good only if its tokens are at most so far apart on "
     "average.",
     BENCH, option_set_float, AT(max_between_ms), 0, 1e9, NULL},
    {{"--chat"}, NULL, NULL,
     "Ask for chats (/v1/chat/completions) in words, about one a token. "
     "Otherwise it asks to continue random tokens (/v1/completions).",
     BENCH, option_set_flag, AT(chat), 0, 0, NULL},
    {{"-s", "--seed"}, "N", "0",
     "Random seed of prompts, lengths and times.",
     BENCH, option_set_seed, AT(sampling.seed), 0, 0, NULL},
    {{"--api-key"}, "KEY", NULL, "Key of the server.",
     BENCH, option_set_text, AT(api_key), 0, 0, NULL},
    {{"-to", "--timeout"}, "S", "0",
     "Seconds after which a request has failed. 0 waits without limit.",
     BENCH, option_set_int, AT(timeout_s), 0, 1 << 20, NULL},

    HEADING("Server", SERVE),
    {{"--host"}, "ADDRESS", "127.0.0.1",
     "Addresses to listen on. Several are separated by commas. 0.0.0.0 is "
     "every address of this machine. A path that ends in .sock is a Unix "
     "socket.",
     BRIEF(SERVE) | OPTION_PROCESS, option_set_text, AT(host), 0, 0, NULL},
    {{"--port"}, "N", "8080", "Port to listen on. 0 takes a free one.",
     BRIEF(SERVE) | OPTION_PROCESS, option_set_int, AT(port), 0, 65535, NULL},
    {{"--api-key"}, "KEYS", NULL,
     "Require one of these keys, separated by commas. Clients send "
     "\"Authorization: Bearer KEY\" or \"x-api-key: KEY\".",
     BRIEF(SERVE) | OPTION_PROCESS, option_set_text, AT(api_key), 0, 0, NULL},
    {{"--api-key-file"}, "FILE", NULL,
     "Require one of the keys in a file, one a line.",
     SERVE | OPTION_PROCESS | IN, option_set_text, AT(api_key_file), 0, 0,
     NULL},
    {{"--ssl-cert-file"}, "FILE", NULL, "Certificates for TLS (PEM).",
     BRIEF(SERVE) | OPTION_PROCESS | IN, option_set_text, AT(cert_file), 0, 0,
     NULL},
    {{"--ssl-key-file"}, "FILE", NULL,
     "Private key of the first certificate (PEM).",
     BRIEF(SERVE) | OPTION_PROCESS | IN, option_set_text, AT(cert_key_file), 0,
     0, NULL},
    {{"--api-prefix"}, "PATH", NULL, "Prefix of every path.",
     SERVE | OPTION_PROCESS, option_set_text, AT(api_prefix), 0, 0, NULL},
    {{"--cors-origins", "--cors-origin"}, "ORIGINS", "the server's own",
     "Accept requests from web pages of these origins, separated by commas. * "
     "accepts any, localhost those of this machine.",
     SERVE | OPTION_PROCESS, option_set_text, AT(cors_origin), 0, 0, NULL},
    {{"--allowed-hosts"}, "NAMES",
     "localhost, addresses and the name of --host",
     "Host names that a request without a key may use, separated by commas. * "
     "accepts any.",
     SERVE | OPTION_PROCESS, option_set_text, AT(allowed_hosts), 0, 0, NULL},
    {{"--sse-ping-interval"}, "S", "10",
     "Seconds between signs of life of a silent stream. 0 sends none.",
     SERVE, option_set_int, AT(ping_s), -1, 86400, NULL},

    HEADING("Requests", SERVE),
    {{"-np", "--parallel"}, "N", "4",
     "Requests that run at once. They share the context of -c.",
     BRIEF(SERVE), option_set_int_auto, AT(n_parallel), 1, 1024, NULL},
    {{"--max-waiting"}, "N", "16 times -np",
     "Requests that may wait. Others get status 429.",
     BRIEF(SERVE), option_set_int, AT(n_waiting), 1, 1 << 20, NULL},
    {{"--request-timeout"}, "S", "0",
     "Seconds that a request may take. 0 sets no limit.",
     BRIEF(SERVE), option_set_int, AT(timeout_s), 0, 1 << 20, NULL},
    {{"-to", "--timeout"}, "S", "600",
     "Seconds after which a silent connection is closed.",
     SERVE | OPTION_PROCESS, option_set_int, AT(socket_s), 1, 1 << 20, NULL},
    {{"--prefill-share"}, "X", "0.25",
     "Share of a step's tokens (-ub) for prompts while others generate. Less "
     "gives even generation, more an earlier first token.",
     SERVE, option_set_float, AT(prefill_share), 0.001, 1, NULL},
    {{"--embeddings", "--embedding"}, NULL, NULL,
     "Offer embeddings too (/v1/embeddings). They need a numeric plan of their "
     "own.",
     SERVE, option_set_flag, AT(embeddings), 0, 0, NULL},
    {{"--rerank", "--reranking"}, NULL, NULL,
     "Rank documents (/rerank) with a model that has a class head. Means "
     "--pooling rank.",
     SERVE, option_set_flag, AT(rerank), 0, 0, NULL},
    {{"--pooling"}, "HOW", "auto",
     "Embedding of a text: that of its last token, its first (cls) or their "
     "mean. none gives one for each token, rank scores. auto takes what the "
     "model's file says, else last.",
     SERVE, option_set_word, AT(pooling), 0, 0, poolings},
    {{"--embd-normalize"}, "N", "2",
     "Norm that embeddings are divided by, for requests that do not say. 2 is "
     "the Euclidean one, 1 the sum, 0 the largest value times 32760; -1 "
     "leaves them as they are.",
     SERVE, option_set_int, AT(embd_normalize), -1, 100, NULL},
    {{"--spm-infill"}, NULL, NULL,
     "Fill in gaps with the suffix before the prefix, as some models want it, "
     "for requests of /infill that do not say (spm_infill).",
     SERVE, option_set_flag, AT(spm_infill), 0, 0, NULL},
    {{"--slot-save-path"}, "DIR", NULL,
     "Directory in which clients may save and restore slots. They ask by POST "
     "/slots/N?action=save or restore, with plain file names.",
     SERVE, option_set_text, AT(slot_dir), 0, 0, NULL},

    HEADING("Prefix cache", SERVE),
    {{"--no-cache-prompt"}, NULL, NULL,
     "Use no cached prefix, for requests that do not say (cache_prompt).",
     SERVE, option_set_flag, AT(no_cache_prompt), 0, 0, NULL},
    {{"-cram", "--cache-ram"}, "SIZE",
     "8GiB, at most an eighth of the memory, shared by all models",
     "Host memory for cached prefixes, in MiB or with a unit. It holds what "
     "the devices have no memory for. 0 uses none, -1 what is available.",
     SERVE, option_set_bytes, AT(cache_ram), 0, 0, NULL},
    {{"--cache-dir"}, "DIR", NULL,
     "Directory to keep prefixes in. Later servers and others read them. It is "
     "created if needed.",
     BRIEF(SERVE), option_set_text, AT(cache_dir), 0, 0, NULL},
    {{"--cache-disk"}, "SIZE", "16GiB",
     "Most that --cache-dir may take. The prefixes used least recently are "
     "deleted.",
     SERVE, option_set_bytes, AT(cache_disk), 0, 0, NULL},

    HEADING("Several models (-m and -hf may be given again)", SERVE),
    {{"-a", "--alias"}, "NAMES", "names of the files",
     "Names of the model, separated by commas. With several models, they "
     "belong to the -m or -hf before them.",
     SERVE | OPTION_PROCESS, option_set_text, AT(alias), 0, 0, NULL},
    {{"--tags"}, "TAGS", NULL,
     "Tags of the model in /v1/models, separated by commas. Clients may show "
     "them.",
     SERVE, option_set_text, AT(tags), 0, 0, NULL},
    {{"--models-dir"}, "DIR", NULL,
     "Serve every model of a directory. It is a GGUF file there, or a "
     "subdirectory that has one.",
     BRIEF(SERVE) | OPTION_PROCESS, option_set_text, AT(models_dir), 0, 0,
     NULL},
    {{"--models-preset"}, "FILE", NULL,
     "INI file with models and their options. A section is a model, [*] is for "
     "all; keys are options without dashes.",
     SERVE | OPTION_PROCESS | IN, option_set_text, AT(models_preset), 0, 0,
     NULL},
    {{"--models-max"}, "N", "4",
     "Most models loaded at once. The one used least recently is unloaded. 0 "
     "sets no limit.",
     BRIEF(SERVE) | OPTION_PROCESS, option_set_int, AT(n_models), 0, 1024,
     NULL},
    {{"--models-wait"}, "S", "30",
     "Seconds that a model to be loaded waits for those in use. Then one that "
     "has been loaded as long takes no new requests until it is unloaded.",
     SERVE | OPTION_PROCESS, option_set_int, AT(models_wait_s), 1, 1 << 20,
     NULL},
    {{"--no-models-autoload"}, NULL, NULL,
     "Do not load a model because a request names it. POST /models/load does, "
     "or ?autoload=true.",
     SERVE | OPTION_PROCESS, option_set_flag, AT(no_autoload), 0, 0, NULL},
    {{"--sleep-idle-seconds"}, "S", "0",
     "Unload a model that was idle for so long. 0 never does.",
     SERVE, option_set_int_auto, AT(sleep_idle_s), 0, 1 << 20, NULL},
    {{"--load-on-startup"}, NULL, NULL,
     "Load the model at the start. Those of -m and -hf always are.",
     SERVE, option_set_flag, AT(at_start), 0, 0, NULL},
    {{"--pinned"}, NULL, NULL, "Never unload the model to make room.",
     SERVE, option_set_flag, AT(pinned), 0, 0, NULL},

    HEADING("Devices", PLANNED | DEVICES | WORKER),
    {{"-dev", "--device"}, "LIST", "cpu",
     "Devices to split over. cpu is one device for each NUMA node; cpu*N, N "
     "devices of equal cores; cpu:0-3,cpu:4-7, devices of these cores. gpu is "
     "each GPU by its best driver; gpu:I, gpu*N some of them; cuda, hip and "
     "opencl, each GPU of this driver; cuda:I, hip:I and opencl:I, the one "
     "with the driver's number I, also written like CUDA0. none is the host "
     "alone. proc*N is cpu*N in processes of their own; sim*N and "
     "sim:2GiB:16GB/s:10us*2 simulate devices, for tests.",
     PLANNED | DEVICES | WORKER |
         OPTION_BRIEF(PLANNED | DEVICES | WORKER) | OPTION_MANY,
     option_set_text, AT(pl.devices), 0, 0, devices},
    {{"--device-spec"}, "LIST", NULL,
     "Plan for a machine described like gpu:24GiB:1TB/s*4. An item may add "
     "flops=60T, int8=470T, launch=2us, link=50GB/s to the host, p2p=50GB/s "
     "between GPUs, bridge=450GB/s among the GPUs of the item, and "
     "available=20GiB of its memory. host:64GiB:50GB/s describes the host. "
     "machine=1 is another machine, which network=1.2GB/s and "
     "network-latency=30us connect.",
     BRIEF(PLAN), option_set_text, AT(pl.device_spec), 0, 0, NULL},
    {{"-sm", "--split-mode"}, "MODE", "auto",
     "Mode: none, layer, tensor, hybrid:N or auto. none uses one "
     "device (-mg). layer gives each device some of the layers. tensor splits "
     "every matrix over all devices. hybrid:N gives layers to groups of N "
     "devices and splits matrices within a group; hybrid:machine takes the "
     "devices of each machine as a group. auto takes the mode, and as "
     "many devices, as are estimated to be fastest.",
     BRIEF(PLANNED) | OPTION_COMMA, option_set_split_mode, 0, 0, 0,
     split_modes},
    {{"-mg", "--main-gpu"}, "N", "0",
     "Device of -sm none. The first is 0.",
     PLANNED, option_set_int, AT(pl.main_device), 0, MANY, NULL},
    {{"-ts", "--tensor-split"}, "SHARES", "equal",
     "Share of each device, like 3,1. It is a share of matrices or of layers. "
     "By default layers are shared by memory.",
     BRIEF(PLANNED) | OPTION_MANY, option_set_shares, AT(split), 0, 0, NULL},
    {{"--ranks"}, "R", "one a device",
     "Number of equal parts of the work. The results' bits depend on it and "
     "not on the devices. By default a device has a rank for its share; GPUs "
     "and processors in one group have 16.",
     NUMERIC | OPTION_BRIEF(RUN | PLAN | LOGITS | PERPLEXITY) | OPTION_COMMA,
     option_set_int, AT(pl.n_ranks), 1, PL_MAX_RANKS, NULL},
    {{"--rank-split"}, "SHARES", "equal",
     "Share of each rank, like 3,1, whatever the devices. It sets --ranks. By "
     "default ranks have equal shares, or those of -ts without --ranks.",
     NUMERIC | OPTION_MANY, option_set_shares, AT(rank_split), 0, 0, NULL},
    {{"--numerics"}, "HOW", "exact",
     "Precision of multiplications, exact or fast. fast multiplies as BF16 in "
     "attention and with weights of F16 and BF16. It needs a processor that "
     "has such instructions and is up to twice as fast.",
     NUMERIC | OPTION_COMMA, option_set_word, AT(pl.numerics), 0, 0, numerics},
    {{"-t", "--threads"}, "N", "its cores",
     "Threads of each device. llama.cpp's -t is the total.",
     BRIEF(PLANNED | WORKER) | OPTION_COMMA, option_set_int_auto,
     AT(pl.n_threads), 1, 256, NULL},
    {{"--no-pin"}, NULL, NULL, "Do not bind threads to cores.",
     PLANNED | WORKER, option_set_flag, AT(pl.no_pin), 0, 0, NULL},
    {{"--inexact"}, NULL, NULL,
     "Use devices that fail the self test. Their results differ from those of "
     "others.",
     NUMERIC, option_set_flag, AT(pl.inexact), 0, 0, NULL},
    {{"--sim-seed"}, "N", "0", "Seed of the order of simulated devices.",
     PLANNED, option_set_uint64, AT(pl.sim_seed), 0, 0, NULL},

    HEADING("Several machines (doc/machines.md)",
            ON_MACHINES | DEVICES | WORKER),
    {{"--hosts"}, "LIST|FILE", NULL,
     "Machines to run on, like a,b or me@a:22,b. The command is started on "
     "each by mpirun, over ssh. A file has a line a machine, with options of "
     "its own. -v prints the line. Needs Open MPI or MPICH, and plait at the "
     "same path on all. serve starts the job again when a machine is lost.",
     ON_MACHINES | DEVICES | OPTION_PROCESS, option_set_text, AT(hosts), 0, 0,
     NULL},
    {{"--log-dir"}, "DIR", NULL,
     "Append the messages of each machine to DIR/MACHINE.log on that machine, "
     "too.",
     ON_MACHINES | DEVICES | WORKER | OPTION_PROCESS, option_set_text,
     AT(log_dir), 0, 0, NULL},
    {{"--network"}, "RATE:TIME", "measured",
     "Bandwidth and latency of the network between machines, like "
     "1.17GB/s:30us, for estimates. By default it is measured when the "
     "machines join for the first time; `plait devices --hosts LIST "
     "--measure` measures again.",
     ON_MACHINES | DEVICES | OPTION_PROCESS, option_set_text, AT(network), 0, 0,
     NULL},
    {{"--send-weights"}, NULL, NULL,
     "Send the weights of other machines to them, instead of reading them from "
     "their own copies of the file.",
     ON_MACHINES | OPTION_PROCESS, option_set_flag, AT(send_weights), 0, 0,
     NULL},
    {{"--join-timeout"}, "S", "30",
     "Seconds to wait for other machines at the start.",
     ON_MACHINES | DEVICES | WORKER | OPTION_PROCESS, option_set_float,
     AT(join_s), 1, 86400, NULL},
    {{"--machine-timeout"}, "S", "5",
     "Seconds of silence after which another machine is lost.",
     ON_MACHINES | DEVICES | WORKER | OPTION_PROCESS, option_set_float,
     AT(machine_s), 2, 86400, NULL},

    HEADING("Memory and placement", PLANNED),
    {{"-c", "--ctx-size"}, "N", "4096 at most",
     "Context in tokens, that of the cache. The default is the model's if that "
     "is less; 0 is the model's own, or what of it fits. For perplexity it is "
     "the window, 512 by default. For logits it is by default the number of "
     "tokens.",
     BRIEF(ONE_RUN), option_set_context, AT(pl.n_ctx), 0, 1 << 30, NULL},
    {{"-ngl", "--gpu-layers", "--n-gpu-layers"}, "N", "auto",
     "Layers on the devices. They are the last N, and the output counts as "
     "one; the host runs the rest. auto places as many as fit.",
     BRIEF(PLANNED) | OPTION_COMMA, option_set_gpu_layers,
     AT(pl.device_layers), 0, 0, layer_counts},
    {{"-cmoe", "--cpu-moe"}, NULL, NULL, "Keep all experts on the host.",
     BRIEF(PLANNED), option_set_all_experts, AT(pl.host_experts), 0, 0, NULL},
    {{"-ncmoe", "--n-cpu-moe"}, "LAYERS", NULL,
     "Keep experts of some layers on the host. N means the first N layers, and "
     "0-5,20- means these.",
     PLANNED | OPTION_BRIEF(PLAN) | OPTION_MANY, option_set_text,
     AT(pl.host_experts), 0, 0, NULL},
    {{"-nkvo", "--no-kv-offload"}, NULL, NULL, "Keep the cache on the host.",
     ONE_RUN | OPTION_BRIEF(PLAN), option_set_flag, AT(pl.host_cache), 0, 0,
     NULL},
    {{"-nkvo", "--no-kv-offload"}, "0|1", "0", "Keep the cache on the host.",
     BENCH | OPTION_COMMA, option_set_yes, AT(pl.host_cache), 0, 0, yes_no},
    {{"-ot", "--override-tensor"}, "REGEX=WHERE", NULL,
     "Place weights by name. WHERE is a device, host, a group of `plait plan`, "
     "or a layout: mirrored, or split:D by dimension D, 0 being the outermost. "
     "Several are separated by commas, or the option is given again; the first "
     "match counts.",
     PLANNED | OPTION_BRIEF(PLAN), option_set_override, 0, 0, 0, NULL},
    {{"--op-offload"}, "WHEN", "auto",
     "Send weights kept on the host to the devices in steps of many tokens. "
     "auto does so if that is faster.",
     PLANNED | OPTION_COMMA | OPTION_BARE, option_set_word, AT(pl.offload), 0,
     0, offloads},
    {{"-nopo", "--no-op-offload"}, "0|1", "0",
     "1 never sends weights kept on the host to the devices.",
     BENCH | OPTION_COMMA, option_set_no_offload, AT(pl.offload), 0, 0,
     yes_no},
    {{"-fit", "--fit"}, "on|off", "on",
     "Choose what was left open so that the model fits. This is -ngl, -ncmoe, "
     "-ts, -ub and -c. off takes what was given, or says where memory is "
     "missing.",
     PLANNED | OPTION_BRIEF(PLAN) | OPTION_BARE, option_set_yes, AT(pl.no_fit),
     0, 0, on_off},
    {{"-fitc", "--fit-ctx"}, "N", "4096",
     "Shortest context that -fit may choose.",
     PLANNED, option_set_int64, AT(pl.fit_ctx), 1, 1 << 30, NULL},
    {{"-fitt", "--fit-margin", "--fit-target"}, "SIZE", "1/64 of it",
     "Memory to leave free on each device, in MiB or with a unit, like 2GiB.",
     PLANNED, option_set_bytes, AT(pl.fit_margin), 0, 0, NULL},
    {{"-b", "--batch-size"}, "N", "that of -ub",
     "Tokens of a prompt handed over at once.",
     ONE_RUN, option_set_int64, AT(n_batch), 1, MANY, NULL},
    {{"-ub", "--ubatch-size"}, "N", "512", "Most tokens of a micro-batch.",
     PLANNED | OPTION_BRIEF(PLAN | BENCH) | OPTION_COMMA, option_set_int64,
     AT(pl.n_ubatch), 1, 65536, NULL},
    {{"--checkpoints"}, "N", "4",
     "Past states of recurrent models that are kept for rollback. All "
     "sequences share them.",
     PLANNED, option_set_int, AT(pl.n_checkpoint), 1, 4096, NULL},
    {{"-ctk", "--cache-type-k"}, "FORMAT", "f16",
     "Format of keys or latents in the cache. It is f16, f32, bf16, q8_0, "
     "q5_1, q5_0, q4_1, q4_0 or iq4_nl.",
     NUMERIC | OPTION_COMMA, option_set_cache_format, AT(pl.cache_k), 0, 0,
     cache_formats},
    {{"-ctv", "--cache-type-v"}, "FORMAT", "f16",
     "Format of values in the cache, one of the same.",
     NUMERIC | OPTION_COMMA, option_set_cache_format, AT(pl.cache_v), 0, 0,
     cache_formats},

    HEADING("Quantization", QUANTIZE),
    {{"--imatrix"}, "FILE", NULL,
     "Importances of columns, a file of llama-imatrix.",
     BRIEF(QUANTIZE) | IN, option_set_text, AT(quantize.imatrix), 0, 0, NULL},
    {{"--allow-requantize"}, NULL, NULL,
     "Quantize weights that are quantized already, too. They lose more than "
     "those of the F16 or F32 model would.",
     BRIEF(QUANTIZE), option_set_flag, AT(quantize.requantize), 0, 0, NULL},
    {{"--dry-run"}, NULL, NULL, "Print the sizes, and write nothing.",
     BRIEF(QUANTIZE), option_set_flag, AT(quantize.dry_run), 0, 0, NULL},
    {{"--tensor-type"}, "REGEX=FORMAT", NULL,
     "Format of tensors by name, like attn_v=Q8_0. May be "
     "given again; the first match counts. Case is ignored.",
     BRIEF(QUANTIZE), option_set_listed, AT(quantize.tensor_types), 0, 0,
     NULL},
    {{"--output-tensor-type"}, "FORMAT", NULL, "Format of output.weight.",
     QUANTIZE, option_set_text, AT(quantize.output_type), 0, 0, NULL},
    {{"--token-embedding-type"}, "FORMAT", NULL,
     "Format of token_embd.weight.", QUANTIZE, option_set_text,
     AT(quantize.embedding_type), 0, 0, NULL},
    {{"--leave-output-tensor"}, NULL, NULL,
     "Keep the format of output.weight.", QUANTIZE, option_set_flag,
     AT(quantize.leave_output), 0, 0, NULL},
    {{"--pure"}, NULL, NULL,
     "Use one format for all matrices. By default the type gives more bits to "
     "those that need them.",
     QUANTIZE, option_set_flag, AT(quantize.pure), 0, 0, NULL},
    {{"--no-search"}, NULL, NULL,
     "Round with the scale of the largest value of each block. That is faster, "
     "and loses more.",
     QUANTIZE, option_set_flag, AT(quantize.no_search), 0, 0, NULL},
    {{"--keep-split"}, NULL, NULL,
     "Write a file for each file of a split model. Without it they become "
     "one.",
     QUANTIZE, option_set_flag, AT(quantize.keep_split), 0, 0, NULL},
    {{"--include-weights"}, "TEXT", NULL,
     "Use importances of those matrices alone whose name contains the text. "
     "May be given again.",
     QUANTIZE, option_set_listed, AT(quantize.include), 0, 0, NULL},
    {{"--exclude-weights"}, "TEXT", NULL,
     "Use no importances of matrices whose name contains the text. May be "
     "given again.",
     QUANTIZE, option_set_listed, AT(quantize.exclude), 0, 0, NULL},
    {{"--nthreads"}, "N", "one per processor",
     "Threads. The file does not depend on them. N after TYPE means the same.",
     QUANTIZE, option_set_int, AT(quantize.n_threads), 1, 1024, NULL},

    HEADING("Other", ALL),
    {{"-v", "--verbose"}, NULL, NULL,
     "Log to standard error. quantize prints the error of each tensor.",
     ALL, option_set_flag, AT(verbose), 0, 0, NULL},
    {{"-h", "--help"}, NULL, NULL, "Print the options that are used most.",
     ALL | OPTION_PROCESS, option_set_flag, AT(help), 0, 0, NULL},
    {{"--version"}, NULL, NULL, "Print the version.",
     ALL | OPTION_PROCESS, option_set_flag, AT(version), 0, 0, NULL},
    {{"--help-all"}, NULL, NULL, "Print all options.",
     ALL | OPTION_PROCESS, option_set_flag, AT(help_all), 0, 0, NULL},
};
/* clang-format on */
const int n_option_row = sizeof(option_table) / sizeof(option_table[0]);

const struct environment_row environment_table[] = {
    {"PLAIT_CPU", "NAME",
     "Kernel set of the processor to use. `plait devices` lists the names."},
    {"PLAIT_MEMORY", "SIZE[:SIZE]",
     "Memory of the host in all, and how much of it is available, like "
     "16GiB:12GiB. It replaces what the system reports."},
    {"PLAIT_HOSTS", "LIST",
     "Machines of a job, in their order, by which messages name them. --hosts "
     "sets it."},
    {"PLAIT_FRONT", "NAME",
     "Socket of the process that holds the port of a server on several "
     "machines. --hosts sets it."},
    {"PLAIT_MPI", "NAME",
     "MPI that --hosts starts, openmpi or mpich. Without it, the first of them "
     "that is installed with its module."},
    {"PLAIT_SSH", "PROGRAM",
     "Program that --hosts runs in place of ssh, with the same arguments."},
    {"PLAIT_CACHE", "DIR",
     "Directory for downloaded models. Without it they go to "
     "$XDG_CACHE_HOME/plait, else ~/.cache/plait."},
    {"XDG_CACHE_HOME", "DIR",
     "Parent of the directory plait, which keeps what `plait devices "
     "--measure` found, GPU kernels and downloads."},
    {"HF_ENDPOINT", "URL", "Address of the hub in place of huggingface.co."},
    {"HF_TOKEN", "TOKEN", "Access token of the hub."},
    {"SSL_CERT_FILE", "FILE",
     "Certificates that downloads trust. Without it, those of the system."},
    {"TMPDIR", "DIR", "Directory for the models that bench --shape writes."},
    {"NO_COLOR", "1", "Use no colors on a terminal."},
    {"PLAIT_PEER", "0",
     "Let GPUs exchange through host memory, not by writing into each other's "
     "memory."},
    {"PLAIT_AHEAD", "0",
     "Let threads wait for other devices, not the queues of GPUs."},
    {"PLAIT_OVERLAP", "0",
     "Start each launch of a CUDA graph only when the one before it is done."},
    {"PLAIT_HIP_MATRIX", "0", "Do not use the matrix units of AMD's GPUs."},
    {"PLAIT_LIBCUDA", "PATH",
     "Library of the CUDA driver. Without it, libcuda.so.1."},
    {"PLAIT_LIBHIP", "PATH",
     "Library of the HIP runtime. Without it, libamdhip64.so of versions 5 to "
     "7."},
    {"PLAIT_LIBHIPRTC", "PATH",
     "Library of the HIP compiler. Without it, libhiprtc.so of versions 5 to "
     "7."},
    {"PLAIT_LIBOPENCL", "PATH",
     "Library of OpenCL. Without it, libOpenCL.so.1."},
};
const int n_environment_row =
    sizeof(environment_table) / sizeof(environment_table[0]);

const struct option_row *option_find(const char *name, uint64_t commands)
{
    for (int i = 0; i < n_option_row; i++) {
        for (int k = 0; k < OPTION_NAMES; k++) {
            const char *s = option_table[i].name[k];

            if (s != NULL && (option_table[i].commands & commands) &&
                strcmp(s, name) == 0)
                return &option_table[i];
        }
    }
    return NULL;
}
