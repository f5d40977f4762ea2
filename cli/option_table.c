/* The table of flags. To add an option is to add a row; rows come in --help's
 * order. What a row's function does with a value is in option_set.c. */
#include "option_set.h"
#include "server/sampler_names.h"

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
    ONE_RUN = RUN | PLAN | PERPLEXITY | LOGITS | SERVE,
    WRITES = RUN | SERVE,
    PLANNED = ONE_RUN | BENCH,
    OF_MODEL = PLANNED | TOKENIZE | RENDER | INSPECT,
    IN = OPTION_READS,
    OUT = OPTION_WRITES,
    OUT_STREAM = OPTION_WRITES | OPTION_STREAMS,
    IN_STATE = OPTION_READS | OPTION_STATE,
    OUT_STATE = OPTION_WRITES | OPTION_STATE,
    ALL = PLANNED | INSPECT | DEVICES | TOKENIZE | RENDER | SYNTH,
};

#define AT(member) offsetof(struct options, member)
#define MANY       INT32_MAX

/* clang-format off */
#define HEADING(text, commands) {{NULL}, NULL, text, commands, NULL, 0, 0, 0}

const struct option_row option_table[] = {
    HEADING("What to work on", ALL),
    {{"-m", "--model"}, "FILE",
     "the model, a GGUF file; of a split one, its first file",
     OF_MODEL | OPTION_MANY | IN, option_set_text, AT(model), 0, 0},
    {{"-hf", "--hf-repo", "-hfr"}, "NAME",
     "or a model of a hub (huggingface.co, or $HF_ENDPOINT), "
     "USER/REPO[:QUANT]: downloaded once, into $PLAIT_CACHE, else "
     "$XDG_CACHE_HOME/plait, else ~/.cache/plait (QUANT: Q4_K_M, else Q4_0, "
     "Q8_0, the first)",
     OF_MODEL, option_set_text, AT(hf_repo), 0, 0},
    {{"-hff", "--hf-file"}, "PATH", "which file of the repository",
     OF_MODEL, option_set_text, AT(hf_file), 0, 0},
    {{"-hft", "--hf-token"}, "TOKEN",
     "the hub's token, for what it does not show to all ($HF_TOKEN, which "
     "other users of this machine do not see)",
     OF_MODEL, option_set_text, AT(hf_token), 0, 0},
    {{"-mu", "--model-url"}, "URL", "or a GGUF file of any address",
     OF_MODEL, option_set_text, AT(model_url), 0, 0},
    {{"--offline"}, NULL, "download nothing: what was before, or an error",
     OF_MODEL, option_set_flag, AT(offline), 0, 0},
    {{"--shape"}, "NAME",
     "random weights in the shape of a model: qwen3-0.6b, qwen3moe-2.75b, "
     "llama-1.2b, qwen3-8b, qwen3moe-30b, qwen35-0.8b, "
     "qwen35moe-35b; bench makes a file in $TMPDIR and "
     "removes it",
     BENCH | SYNTH | OPTION_COMMA, option_set_text, AT(shape), 0, 0},
    {{"--type"}, "TYPE",
     "their format: q4_k_m, q5_k_m, or any of GGUF's, like q8_0, f16 (q4_k_m)",
     BENCH | SYNTH | OPTION_COMMA, option_set_text, AT(type), 0, 0},
    {{"-o", "--output"}, "FILE", "where the model goes",
     SYNTH | OUT, option_set_text, AT(output), 0, 0},
    {{"-p", "--prompt"}, "TEXT",
     "the text, with \\n, \\t, \\\\ and the like; - reads standard input, as "
     "is done without -p and -f where text is piped in",
     RUN | PERPLEXITY | TOKENIZE, option_set_prompt, AT(prompt), 0, 0},
    {{"-f", "--file"}, "FILE",
     "the text in a file; run and perplexity drop one final newline",
     RUN | PERPLEXITY | TOKENIZE | IN, option_set_text, AT(file), 0, 0},
    {{"--no-escape"}, NULL, "take -p as it is, backslashes too",
     RUN | PERPLEXITY | TOKENIZE, option_set_flag, AT(no_escape), 0, 0},
    {{"--tokens"}, "IDS",
     "token ids, decimal, commas or blanks between; @FILE reads "
     "them from a file", LOGITS | IN, option_set_text, AT(tokens), 0, 0},
    {{"-o", "--output"}, "FILE",
     "where the logits go: tokens x vocabulary values, float32, "
     "little endian; - is standard output",
     LOGITS | OUT_STREAM, option_set_text, AT(output), 0, 0},
    {{"--ids"}, NULL, "print the ids alone, on one line",
     TOKENIZE, option_set_flag, AT(ids_only), 0, 0},
    {{"--no-special"}, NULL,
     "add no BOS or EOS, and take <|...|> in the text as text",
     TOKENIZE, option_set_flag, AT(no_special), 0, 0},
    {{"--template", "--chat-template-file"}, "FILE",
     "a chat template in place of the model's own; the model still gives the "
     "special tokens",
     WRITES | RENDER | IN, option_set_text, AT(chat_template), 0, 0},
    {{"--messages"}, "FILE",
     "the conversation: a JSON list of objects with role and content; - reads "
     "standard input", RENDER | IN, option_set_text, AT(messages), 0, 0},
    {{"--tools"}, "FILE", "the tools the model may call: a JSON list",
     RENDER | IN, option_set_text, AT(tools), 0, 0},
    {{"--kwargs", "--chat-template-kwargs"}, "JSON",
     "more variables of the template, like '{\"reasoning_effort\": "
     "\"low\"}'",
     RUN | RENDER, option_set_text, AT(kwargs), 0, 0},
    {{"--no-generation-prompt"}, NULL,
     "end with the last message, not where the answer begins",
     RENDER, option_set_flag, AT(no_generation_prompt), 0, 0},
    {{"--json"}, NULL, "JSON instead of tables",
     PLAN | INSPECT | DEVICES, option_set_flag, AT(json), 0, 0},
    {{"--svg"}, "FILE",
     "draw the plan too: devices as lanes, layers as columns, tensors as "
     "boxes, collectives and copies as lines; - draws it alone, to standard "
     "output",
     PLAN | OUT_STREAM, option_set_text, AT(svg), 0, 0},
    {{"--measure"}, NULL,
     "measure how fast cores, memory, messages and GPUs are (all GPUs, or "
     "those of -dev), some seconds each, and keep the figures for later "
     "plans in $XDG_CACHE_HOME/plait, else ~/.cache/plait",
     DEVICES, option_set_flag, AT(measure), 0, 0},
    {{"--chunks"}, "N", "measure the first N windows only (-1: all)",
     PERPLEXITY, option_set_int64, AT(n_chunks), -1, MANY},

    HEADING("What to measure: each combination of lists, like -t 1,2, and of "
            "options that are\ngiven again, like -dev cpu -dev cpu*2", BENCH),
    {{"-p", "--n-prompt"}, "N", "tokens of a prompt (512; 0: none)",
     BENCH, option_set_list, AT(n_prompt), 0, 1 << 20},
    {{"-n", "--n-gen"}, "N", "tokens generated, one by one (128; 0: none)",
     BENCH, option_set_list, AT(n_gen), 0, 1 << 20},
    {{"-d", "--n-depth"}, "N", "tokens in the cache before (0)",
     BENCH, option_set_list, AT(n_depth), 0, 1 << 20},
    {{"-b", "--n-seq"}, "N",
     "sequences at once: so many prompts, or a token of each (1)",
     BENCH, option_set_list, AT(n_seq), 1, 256},
    {{"-r", "--repetitions"}, "N", "rounds; all is measured once in each (5)",
     BENCH, option_set_int, AT(n_round), 1, 1000},
    {{"-o", "--output"}, "FORM",
     "md: a table in Markdown, csv, or json, with llama-bench's keys (md)",
     BENCH, option_set_form, AT(form), 0, 0},
    {{"--svg"}, "FILE",
     "draw tokens a second over depth and over devices too; with --serve "
     "times over percentiles and as they came",
     BENCH | OUT_STREAM, option_set_text, AT(svg), 0, 0},
    {{"--no-limits"}, NULL,
     "do not measure first what the machine could do at best",
     BENCH, option_set_flag, AT(no_limits), 0, 0},

    HEADING("How a server does under load: each combination of rates and "
            "numbers at once", BENCH),
    {{"--serve"}, "URL",
     "ask the server there instead, any that speaks OpenAI's protocol; -p and "
     "-n are then mixes, of which each request draws one, and -m names the "
     "model that is asked for (the server's first)",
     BENCH, option_set_text, AT(serve), 0, 0},
    {{"--rate"}, "X",
     "requests a second, which come by chance (Poisson), a list",
     BENCH, option_set_numbers, AT(rate), 0.001, 1e6},
    {{"--concurrency"}, "N",
     "so many at once, the next when one ends; with --rate, at most so many; "
     "a list (8)", BENCH, option_set_list, AT(concurrency), 1, 1 << 16},
    {{"--requests"}, "N", "requests of a load (64)",
     BENCH, option_set_int, AT(n_request), 1, 1 << 30},
    {{"--seconds"}, "S",
     "begin none after so long; with --requests, whichever comes first",
     BENCH, option_set_int, AT(seconds), 1, 1 << 20},
    {{"--prefix"}, "X",
     "share of each prompt that is the same for all (0)",
     BENCH, option_set_float, AT(prefix), 0, 1},
    {{"--prefixes"}, "N",
     "or for those of the same kind, of which there are N (1)",
     BENCH, option_set_int, AT(n_prefix), 1, 1 << 20},
    {{"--max-first"}, "MS",
     "a request is good whose first token takes no longer (any)",
     BENCH, option_set_float, AT(max_first_ms), 0, 1e9},
    {{"--max-between"}, "MS",
     "and whose tokens are no further apart, on average (any)",
     BENCH, option_set_float, AT(max_between_ms), 0, 1e9},
    {{"--chat"}, NULL,
     "ask for chats (/v1/chat/completions), in words, about one a token, "
     "rather than for texts of random tokens (/v1/completions)",
     BENCH, option_set_flag, AT(chat), 0, 0},
    {{"--dynatemp-range"}, "X",
     "a temperature within +- X, the higher the more even the probabilities "
     "(0: off)",
     WRITES, option_set_float, AT(sampling.dynatemp_range), 0, 1000},
    {{"--dynatemp-exp"}, "X", "how it goes with their entropy (1)",
     WRITES, option_set_float, AT(sampling.dynatemp_exponent), 0, 1000},
    {{"--mirostat"}, "N",
     "Mirostat 1 or 2, after the temperature, instead of all else (0: off)",
     WRITES, option_set_int, AT(sampling.mirostat), 0, 2},
    {{"--mirostat-ent"}, "X", "its surprise, in bits (5)",
     WRITES, option_set_float, AT(sampling.mirostat_tau), 0, 1000},
    {{"--mirostat-lr"}, "X", "its rate (0.1)",
     WRITES, option_set_float, AT(sampling.mirostat_eta), 0, 1},
    {{"--samplers"}, "NAMES",
     "these steps alone, in this order, with ; between: penalties, dry, "
     "top_n_sigma, top_k, typ_p, top_p, min_p, xtc, temperature",
     WRITES, option_set_samplers, 0, 0, 0},
    {{"--sampler-seq", "--sampling-seq"}, "LETTERS", "likewise: edskypmxt",
     WRITES, option_set_samplers, 0, 0, 0},
    {{"-s", "--seed"}, "N",
     "what prompts, lengths and times are drawn from (0)",
     BENCH, option_set_seed, AT(sampling.seed), 0, 0},
    {{"--api-key"}, "KEY", "the server's key (none)",
     BENCH, option_set_text, AT(api_key), 0, 0},
    {{"-to", "--timeout"}, "S",
     "seconds after which a request has failed (0: never)",
     BENCH, option_set_int, AT(timeout_s), 0, 1 << 20},

    HEADING("Generation", WRITES),
    {{"-n", "--predict", "--n-predict"}, "N",
     "most tokens to write; with -i, a turn (-1: until the text "
     "ends or the context is full)",
     WRITES, option_set_int64, AT(n_predict), -1, MANY},
    {{"-i", "--interactive"}, NULL,
     "chat through the model's chat template, as is done where standard input "
     "is a terminal and no text is given: a line is a message, and one that "
     "ends with a backslash goes on in the next; /help lists commands. Without "
     "a template each line is added to the text, as it is, and the model "
     "writes on. Ctrl-C stops the writing, once more ends",
     RUN, option_set_flag, AT(interactive), 0, 0},
    {{"-sys", "--system", "--system-prompt"}, "TEXT",
     "the chat's first message, which tells the model how to answer; \\n as "
     "in -p", RUN, option_set_text, AT(system), 0, 0},
    {{"--reasoning"}, "WHEN",
     "let the model reason before it answers: on, off, auto: as its template "
     "has it (auto); reasoning is shown on standard error",
     RUN, option_set_reasoning, 0, 0, 0},
    {{"-no-cnv", "--no-template"}, NULL,
     "use no chat template: -i continues a text",
     RUN, option_set_flag, AT(no_template), 0, 0},
    {{"--ignore-eos"}, NULL, "never write a token that ends the text",
     RUN, option_set_flag, AT(ignore_eos), 0, 0},
    {{"--no-display-prompt"}, NULL, "print only what the model writes",
     RUN, option_set_flag, AT(no_display_prompt), 0, 0},
    {{"-sp", "--special"}, NULL, "print special tokens too",
     RUN, option_set_flag, AT(show_special), 0, 0},

    {{"--grammar"}, "TEXT",
     "write only what this grammar allows, in GBNF, like 'root ::= \"yes\" | "
     "\"no\"', and end where it may end. In a chat it holds for the answer: "
     "where the prompt begins the reasoning, or the template has channels, "
     "from the end of that on; else from the first token, so that a model "
     "which would begin to reason by itself does not",
     RUN, option_set_text, AT(grammar), 0, 0},
    {{"--grammar-file"}, "FILE", "the same, from a file",
     RUN | IN, option_set_text, AT(grammar_file), 0, 0},
    {{"-j", "--json-schema"}, "SCHEMA",
     "write only JSON that fits this schema ('{}': any), likewise",
     RUN, option_set_text, AT(schema), 0, 0},
    {{"-jf", "--json-schema-file"}, "FILE", "the same, from a file",
     RUN | IN, option_set_text, AT(schema_file), 0, 0},

    {{"--state-load"}, "FILE",
     "go on from a saved state: its text is the past; a prompt is added to "
     "it, and without one the text goes on",
     RUN | IN_STATE, option_set_text, AT(state_load), 0, 0},
    {{"--state-save"}, "FILE",
     "save the state at the end; the file is replaced as a whole",
     RUN | OUT_STATE, option_set_text, AT(state_save), 0, 0},
    {{"--convert"}, NULL,
     "with --state-load: take a state whose cache has other formats "
     "(-ctk, -ctv)",
     RUN, option_set_flag, AT(convert), 0, 0},

    HEADING("Sampling, applied in this order unless --samplers has another",
            WRITES),
    {{"--repeat-last-n"}, "N",
     "tokens that penalties look back at (64; 0: no penalties; "
     "-1: the whole context)",
     WRITES, option_set_int, AT(sampling.penalty_last_n), -1, MANY},
    {{"--repeat-penalty"}, "X", "divide logits of tokens seen (1: off)",
     WRITES, option_set_float, AT(sampling.repeat_penalty), 0.001, 1000},
    {{"--frequency-penalty"}, "X", "subtract X times the count seen (0: off)",
     WRITES, option_set_float, AT(sampling.frequency_penalty), -100, 100},
    {{"--presence-penalty"}, "X", "subtract X from tokens seen (0: off)",
     WRITES, option_set_float, AT(sampling.presence_penalty), -100, 100},
    {{"-l", "--logit-bias"}, "ID+VALUE",
     "add to a token's logit; ID-VALUE subtracts, ID-inf forbids; "
     "may be given again", WRITES, option_set_bias, 0, 0, 0},
    {{"--dry-multiplier"}, "X",
     "DRY: subtract X times a power from what would go on with a passage that "
     "is there already (0: off)",
     WRITES, option_set_float, AT(sampling.dry_multiplier), 0, 1000},
    {{"--dry-base"}, "X", "the power's base (1.75)",
     WRITES, option_set_float, AT(sampling.dry_base), 1, 1000},
    {{"--dry-allowed-length"}, "N", "its exponent 0: N tokens alike (2)",
     WRITES, option_set_int, AT(sampling.dry_allowed_length), 1, MANY},
    {{"--dry-penalty-last-n"}, "N",
     "tokens that DRY looks back at (4096; 0: off; -1: the whole context; "
     "at most 1048576)",
     WRITES, option_set_int, AT(sampling.dry_last_n), -1,
     SAMPLER_DRY_LAST_N},
    {{"--dry-sequence-breaker"}, "TEXT",
     "passages end at TEXT (a line's end, :, \" and *); may be given again; "
     "none: nowhere",
     WRITES, option_set_breaker, 0, 0, 0},
    {{"--top-nsigma", "--top-n-sigma"}, "X",
     "keep logits within X standard deviations of the best (0 or less: off)",
     WRITES, option_set_float, AT(sampling.top_n_sigma), -1, 1000},
    {{"--top-k"}, "N", "keep the N likeliest tokens (40; 0: all)",
     WRITES, option_set_int, AT(sampling.top_k), 0, MANY},
    {{"--typical", "--typical-p"}, "X", "locally typical sampling (1: off)",
     WRITES, option_set_float, AT(sampling.typical_p), 0, 1},
    {{"--top-p"}, "X", "keep the likeliest up to this sum (0.95; 1: off)",
     WRITES, option_set_float, AT(sampling.top_p), 0, 1},
    {{"--min-p"}, "X",
     "drop what is less likely than X times the best (0.05; 0: off)",
     WRITES, option_set_float, AT(sampling.min_p), 0, 1},
    {{"--xtc-probability"}, "X",
     "with this chance leave out all but the least likely of those that are "
     "likelier than the threshold (0: off)",
     WRITES, option_set_float, AT(sampling.xtc_probability), 0, 1},
    {{"--xtc-threshold"}, "X", "that threshold (0.1; above 0.5: off)",
     WRITES, option_set_float, AT(sampling.xtc_threshold), 0, 1},
    {{"--temp", "--temperature"}, "X",
     "temperature (0.8; 0: always the likeliest token)",
     WRITES, option_set_float, AT(sampling.temperature), 0, 1000},
    {{"-s", "--seed"}, "N",
     "seed; one seed gives one text (-1: any, printed at the end)",
     WRITES, option_set_seed, AT(sampling.seed), 0, 0},

    HEADING("Who may ask", SERVE),
    {{"--host"}, "ADDRESS",
     "address to listen at (127.0.0.1; 0.0.0.0: any of this machine's)",
     SERVE | OPTION_PROCESS, option_set_text, AT(host), 0, 0},
    {{"--port"}, "N", "port to listen at (8080; 0: any that is free)",
     SERVE | OPTION_PROCESS, option_set_int, AT(port), 0, 65535},
    {{"--api-key"}, "KEYS",
     "who asks must have one of these, with commas between: as "
     "\"Authorization: Bearer KEY\" or \"x-api-key: KEY\"",
     SERVE | OPTION_PROCESS, option_set_text, AT(api_key), 0, 0},
    {{"--api-key-file"}, "FILE", "likewise, a key a line",
     SERVE | OPTION_PROCESS | IN, option_set_text, AT(api_key_file), 0, 0},
    {{"--ssl-cert-file"}, "FILE", "certificates for TLS (PEM)",
     SERVE | OPTION_PROCESS | IN, option_set_text, AT(cert_file), 0, 0},
    {{"--ssl-key-file"}, "FILE", "the key of the first of them (PEM)",
     SERVE | OPTION_PROCESS | IN, option_set_text, AT(cert_key_file), 0, 0},
    {{"--api-prefix"}, "PATH", "comes before every path (none)",
     SERVE | OPTION_PROCESS, option_set_text, AT(api_prefix), 0, 0},
    {{"--cors-origin"}, "ORIGIN",
     "let pages of this origin ask, *: any (none but the server's own)",
     SERVE | OPTION_PROCESS, option_set_text, AT(cors_origin), 0, 0},
    {{"--allowed-hosts"}, "NAMES",
     "names by which the server may be asked without a key, with commas "
     "between, *: any (localhost, addresses and the name of --host)",
     SERVE | OPTION_PROCESS, option_set_text, AT(allowed_hosts), 0, 0},
    {{"--sse-ping-interval"}, "SECONDS",
     "a stream that has nothing to say says so after as many; 0: never (10)",
     SERVE, option_set_int, AT(ping_s), -1, 86400},
    {{"-a", "--alias"}, "NAMES",
     "what clients call the models of -m and -hf, with commas between (the "
     "files' names)",
     SERVE | OPTION_PROCESS, option_set_text, AT(alias), 0, 0},
    {{"--embeddings", "--embedding"}, NULL,
     "give embeddings, too (/v1/embeddings): a numeric plan of its own",
     SERVE, option_set_flag, AT(embeddings), 0, 0},
    {{"--pooling"}, "HOW",
     "a text's embedding is that of its last token, its first, cls, their "
     "mean, or none: one of each (last)",
     SERVE, option_set_pooling, 0, 0, 0},
    {{"-np", "--parallel"}, "N",
     "requests that are written at once; they share -c (4)",
     SERVE, option_set_int, AT(n_parallel), 1, 1024},
    {{"--max-waiting"}, "N",
     "requests that may wait; more are told to come again (16 times -np)",
     SERVE, option_set_int, AT(n_waiting), 1, 1 << 20},
    {{"--prefill-share"}, "X",
     "share of a step's tokens (-ub) that prompts have beside texts that are "
     "being written (0.25): less for even writing, more for a first token "
     "soon",
     SERVE, option_set_float, AT(prefill_share), 0.001, 1},
    {{"-cram", "--cache-ram"}, "SIZE",
     "host memory for prompts' prefixes that the devices have no room for, in "
     "MiB or with a unit, of each model; 0: none (8GiB, or an eighth of the "
     "machine's memory if that is less, shared by all models)",
     SERVE, option_set_bytes, AT(cache_ram), 0, 0},
    {{"--cache-dir"}, "DIR",
     "a folder where prefixes are written too, for later and for other "
     "servers; made if it is not there (none)",
     SERVE, option_set_text, AT(cache_dir), 0, 0},
    {{"--cache-disk"}, "SIZE",
     "what it may take: what was not used for the longest time goes (16GiB)",
     SERVE, option_set_bytes, AT(cache_disk), 0, 0},
    {{"--slot-save-path"}, "DIR",
     "let POST /slots/N?action=save and restore write and read files there, "
     "with plain names (nowhere)",
     SERVE, option_set_text, AT(slot_dir), 0, 0},
    {{"-to", "--timeout"}, "S",
     "seconds that a request may take in all (0: any)",
     SERVE, option_set_int, AT(timeout_s), 0, 1 << 20},

    HEADING("Several models (-m and -hf may be given again)", SERVE),
    {{"--models-dir"}, "DIR",
     "serve each model of a folder: its GGUF files, and folders in it that "
     "have one",
     SERVE | OPTION_PROCESS, option_set_text, AT(models_dir), 0, 0},
    {{"--models-preset"}, "FILE",
     "models and their options, as an INI file: a section a model, [*] for "
     "all; keys are options without dashes",
     SERVE | OPTION_PROCESS | IN, option_set_text, AT(models_preset), 0, 0},
    {{"--models-max"}, "N",
     "most that are loaded at once, 0: any number; the one that was used "
     "least lately makes way (4)",
     SERVE | OPTION_PROCESS, option_set_int, AT(n_models), 0, 1024},
    {{"--models-wait"}, "S",
     "who asks for a model waits so long for those in use; then one that was "
     "there as long takes no new requests until it has made way (30)",
     SERVE | OPTION_PROCESS, option_set_int, AT(models_wait_s), 1, 1 << 20},
    {{"--no-models-autoload"}, NULL,
     "load none for a request that names it, but by POST /models/load, or "
     "with ?autoload=true",
     SERVE | OPTION_PROCESS, option_set_flag, AT(no_autoload), 0, 0},
    {{"--sleep-idle-seconds"}, "S",
     "unload a model that nobody used for so long, 0: never (0)",
     SERVE, option_set_int, AT(sleep_idle_s), 0, 1 << 20},
    {{"--load-on-startup"}, NULL,
     "load it before anybody asks; so are those of -m and -hf",
     SERVE, option_set_flag, AT(at_start), 0, 0},
    {{"--pinned"}, NULL, "keep it loaded, whatever others need",
     SERVE, option_set_flag, AT(pinned), 0, 0},

    HEADING("Devices and memory", PLANNED),
    {{"-dev", "--device"}, "LIST",
     "devices to split over: cpu (one a NUMA node), cpu*N, "
     "cpu:0-3,cpu:4-7, sim*N, sim:2GiB:16GB/s:10us*2; proc*N: as cpu*N, each "
     "a process of its own; gpu (each GPU), gpu:I, gpu*N; cuda, hip, opencl: "
     "each of this driver; cuda:I, hip:I, opencl:I: the one that it numbers I; "
     "emu*N: emulated GPUs, for tests; none: the host does everything (cpu)",
     PLANNED | DEVICES | OPTION_MANY, option_set_text, AT(pl.devices), 0, 0},
    {{"--device-spec"}, "LIST",
     "plan for a machine that is not there: gpu:24GiB:1TB/s*4, "
     "gpu:141GiB:4.8TB/s:p2p=450GB/s*8; also flops=60T, int8=470T, "
     "link=50GB/s, bridge=450GB/s: to the others of the item, "
     "available=20GiB: of its memory now; an item "
     "host:64GiB:50GB/s describes its host",
     PLAN, option_set_text, AT(pl.device_spec), 0, 0},
    {{"-sm", "--split-mode"}, "MODE",
     "none: one device, see -mg; layer: each device runs some of the "
     "layers; tensor: every matrix is split over all devices; hybrid:N: "
     "layers over groups of N devices, matrices within a group; auto: the "
     "fastest by estimate, over as many devices as pay (auto)",
     PLANNED | OPTION_COMMA, option_set_split_mode, 0, 0, 0},
    {{"-mg", "--main-gpu"}, "N",
     "the device of -sm none, the first being 0 (0)",
     PLANNED, option_set_int, AT(pl.main_device), 0, MANY},
    {{"-ts", "--tensor-split"}, "SHARES",
     "each device's share of matrices or layers, like 3,1 (equal; layers "
     "by memory)",
     PLANNED | OPTION_MANY, option_set_shares, 0, 0, 0},
    {{"--ranks"}, "R",
     "equal parts the work is cut into; the bits of the results "
     "depend on R, not on the devices (one a device, by its share; 16 "
     "where GPUs and processors share a group)",
     PLANNED | OPTION_COMMA, option_set_int, AT(pl.n_ranks), 1, PL_MAX_RANKS},
    {{"--numerics"}, "HOW",
     "how floats are multiplied: exact; fast: as BF16 in attention and with "
     "weights of F16 and BF16, up to twice as fast on processors that have "
     "such products, and on no others (exact)",
     PLANNED | OPTION_COMMA, option_set_numerics, AT(pl.numerics), 0, 0},
    {{"-t", "--threads"}, "N",
     "threads a DEVICE (its cores); llama.cpp's -t is a total",
     PLANNED | OPTION_COMMA, option_set_int, AT(pl.n_threads), 1, 256},
    {{"--no-pin"}, NULL, "leave threads where the system puts them",
     PLANNED, option_set_flag, AT(pl.no_pin), 0, 0},
    {{"--inexact"}, NULL,
     "run on devices that fail the self test too; their results differ from "
     "those of others",
     PLANNED, option_set_flag, AT(pl.inexact), 0, 0},
    {{"-ngl", "--gpu-layers", "--n-gpu-layers"}, "N",
     "layers on the devices: the last N, the output counting as one; the "
     "host runs the rest; all, or auto: all that fit (auto)",
     PLANNED | OPTION_COMMA, option_set_gpu_layers, AT(pl.device_layers), 0, 0},
    {{"-cmoe", "--cpu-moe"}, NULL, "keep all experts on the host",
     PLANNED, option_set_all_experts, AT(pl.host_experts), 0, 0},
    {{"-ncmoe", "--n-cpu-moe"}, "LAYERS",
     "keep experts on the host: N, those of the first N layers, or "
     "layers like 0-5,20-",
     PLANNED | OPTION_MANY, option_set_text, AT(pl.host_experts), 0, 0},
    {{"--mtp"}, "N",
     "plan the file's Nth block for multi-token prediction, which guesses "
     "tokens behind the next one, in place of the model",
     PLAN, option_set_int64, AT(pl.mtp), 1, MANY},
    {{"-nkvo", "--no-kv-offload"}, NULL, "keep the cache on the host",
     PLANNED, option_set_flag, AT(pl.host_cache), 0, 0},
    {{"-ot", "--override-tensor"}, "REGEX=WHERE",
     "where weights live whose names the expression finds: a device, "
     "host, a group of `plait plan`, or how they are held: mirrored, "
     "split:D (dimension, from the outermost); commas between several; "
     "may be given again; the first that matches counts",
     PLANNED, option_set_override, 0, 0, 0},
    {{"--op-offload"}, "WHEN",
     "send weights kept on the host to the devices when a step has many "
     "tokens: on, off, auto: where that is faster (auto)",
     PLANNED | OPTION_COMMA, option_set_offload, AT(pl.offload), 0, 0},
    {{"-fit", "--fit"}, "on|off",
     "set what was left open (-ngl, -ncmoe, -ts, -ub, -c) so that all fits "
     "into memory and is fast; off: take what is asked, or say what is "
     "missing where (on)",
     PLANNED, option_set_fit, AT(pl.no_fit), 0, 0},
    {{"-fitc", "--fit-ctx"}, "N", "never fit to a shorter context (4096)",
     ONE_RUN, option_set_int64, AT(pl.fit_ctx), 1, 1 << 30},
    {{"-fitt", "--fit-margin", "--fit-target"}, "SIZE",
     "memory left free on each device, in MiB or with a unit, like 2GiB "
     "(1/64 of it)", PLANNED, option_set_bytes, AT(pl.fit_margin), 0, 0},
    {{"-c", "--ctx-size"}, "N",
     "tokens the cache holds (0: 4096 or the model's context, the "
     "lesser); perplexity: the window (512); logits: 0 is as many "
     "as there are", ONE_RUN, option_set_int64, AT(pl.n_ctx), 0, 1 << 30},
    {{"-b", "--batch-size"}, "N",
     "tokens of a prompt handed over at once (as -ub)",
     ONE_RUN, option_set_int64, AT(n_batch), 1, MANY},
    {{"-ub", "--ubatch-size"}, "N", "most tokens computed in a step (512)",
     PLANNED | OPTION_COMMA, option_set_int64, AT(pl.n_ubatch), 1, 65536},
    {{"--checkpoints"}, "N",
     "recurrent models: past states that are kept to go back to, of all "
     "sequences (4)", PLANNED, option_set_int, AT(pl.n_checkpoint), 1, 4096},
    {{"-ctk", "--cache-type-k"}, "FORMAT",
     "keys or latents in the cache: f16, f32, bf16, q8_0 (f16)",
     PLANNED | OPTION_COMMA, option_set_cache_format, AT(pl.cache_k), 0, 0},
    {{"-ctv", "--cache-type-v"}, "FORMAT", "values in the cache, likewise",
     PLANNED | OPTION_COMMA, option_set_cache_format, AT(pl.cache_v), 0, 0},
    {{"--sim-seed"}, "N", "order in which sim devices take turns (0)",
     PLANNED, option_set_uint64, AT(pl.sim_seed), 0, 0},

    HEADING("Other", ALL),
    {{"--trace"}, "FILE",
     "write what each step took and what overlapped, in Chrome's trace "
     "format (chrome://tracing, ui.perfetto.dev)",
     RUN | PERPLEXITY | LOGITS | OUT_STREAM, option_set_text,
     AT(trace), 0, 0},
    {{"-v", "--verbose"}, NULL, "say what is done, on standard error",
     ALL, option_set_flag, AT(verbose), 0, 0},
    {{"-h", "--help"}, NULL, "this text", ALL, option_set_flag, AT(help), 0, 0},
};
/* clang-format on */
const int n_option_row = sizeof(option_table) / sizeof(option_table[0]);

const struct option_row *option_find(const char *name, unsigned commands)
{
    for (int i = 0; i < n_option_row; i++) {
        for (int k = 0; k < 3; k++) {
            const char *s = option_table[i].name[k];

            if (s != NULL && (option_table[i].commands & commands) &&
                strcmp(s, name) == 0)
                return &option_table[i];
        }
    }
    return NULL;
}
