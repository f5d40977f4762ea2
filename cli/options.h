/* The parsed command line: one struct that all commands share, filled from one
 * table of flags (option_table.c). Options named as in llama.cpp mean the same.
 * Options that only llama.cpp has are rejected by name, or ignored with a note
 * (llama_options.c).
 *
 * Parsing uses neither files nor the library. */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include "word_list.h"

#include "pl_draft.h"
#include "pl_receipt.h"

/* Exit codes of every command: name, value, cause. term.h defines those
 * of other signals. */
#define EXIT_MAP(X)                                                            \
    X(DONE, 0, "success")                                                      \
    X(FAILED, 1, "failure")                                                    \
    X(USAGE, 2, "wrong usage")                                                 \
    X(LOST, 3, "another machine of the job was lost")                          \
    X(HANGUP, 129, "SIGHUP, after saving what Ctrl-C saves")                   \
    X(INTERRUPTED, 130, "Ctrl-C (SIGINT)")                                     \
    X(PIPE, 141, "the reader of the output is gone, as with | head")           \
    X(TERMINATED, 143, "SIGTERM, after saving what Ctrl-C saves")

enum exit_code {
#define EXIT_ENUM(name, value, text) EXIT_##name = value,
    EXIT_MAP(EXIT_ENUM)
#undef EXIT_ENUM
};

#define COMMAND_MODEL "-m models/fable-moe-Q8_0.gguf "

/* Command, one-line description, arguments besides options, and an example,
 * which works in the root of the source tree. */
#define COMMAND_MAP(X)                                                         \
    X(RUN, run, "Chat with a model, or continue a prompt", "",                 \
      "plait run " COMMAND_MODEL "-p \"Once upon a time\" -n 40")              \
    X(SERVE, serve, "Answer requests of many clients over HTTP", "",           \
      "plait serve " COMMAND_MODEL "--port 8080")                              \
    X(PLAN, plan, "Show how a model would be split", "",                       \
      "plait plan " COMMAND_MODEL "-dev \"cpu*3\" -ts 2,1,1")                  \
    X(INSPECT, inspect, "Show the contents of a GGUF file or a saved state",   \
      "FILE ", "plait inspect models/fable-moe-Q8_0.gguf")                     \
    X(DEVICES, devices, "Show the devices of this machine", "",                \
      "plait devices")                                                         \
    X(PERPLEXITY, perplexity, "Measure the perplexity of a model on a text",   \
      "",                                                                      \
      "plait perplexity " COMMAND_MODEL "-f models/heldout.txt --chunks 4")    \
    X(LOGITS, logits, "Write the logits of every position", "",                \
      "plait logits " COMMAND_MODEL "--tokens 1,2,3 -o logits.bin")            \
    X(TOKENIZE, tokenize, "Convert text to token ids", "",                     \
      "plait tokenize " COMMAND_MODEL "-p \"Once upon a time\"")               \
    X(RENDER, render, "Show the prompt that a chat template makes", "",        \
      "echo '[{\"role\": \"user\", \"content\": \"Hi\"}]' | plait "            \
      "render " COMMAND_MODEL "--messages -")                                  \
    X(VERIFY, verify, "Check receipts of generated text", "RECEIPT ... ",      \
      "plait verify " COMMAND_MODEL "receipts.jsonl")                          \
    X(DIFF, diff, "Tell where two receipts differ", "RECEIPT RECEIPT ",        \
      "plait diff one.json other.json")                                        \
    X(WORKER, worker, "Compute for the first process of an mpirun job", "",    \
      "mpirun -n 1 plait run " COMMAND_MODEL "-p Once -n 9 -t 1 : -n 1 plait " \
      "worker " COMMAND_MODEL "-t 1")                                          \
    X(BENCH, bench, "Measure how fast models run", "",                         \
      "plait bench " COMMAND_MODEL "-p 64 -n 32 -r 3")                         \
    X(QUANTIZE, quantize, "Write a model in a smaller format",                 \
      "IN [OUT] TYPE [N] ",                                                    \
      "plait quantize --allow-requantize models/fable-moe-Q8_0.gguf "          \
      "small.gguf Q4_K_M")                                                     \
    X(SYNTH, synth, "Write a model with random weights", "",                   \
      "plait synth --shape qwen3-0.6b --type q4_k_m -o synthetic.gguf")

enum command {
#define COMMAND_ENUM(upper, lower, text, args, example) CMD_##upper,
    COMMAND_MAP(COMMAND_ENUM)
#undef COMMAND_ENUM
        N_COMMAND
};

enum { OPTION_MAX_DEVICES = 1024, OPTION_MAX_LIST = 32, OPTION_MAX_AXIS = 64 };

/* The numbers of an option that takes a comma-separated list and may be
 * repeated. */
struct option_list {
    int n;
    int v[OPTION_MAX_LIST];
};

struct option_numbers {
    int n;
    double v[OPTION_MAX_LIST];
};

struct option_row;

/* One value of an option that `plait bench` accepts several times. */
struct option_axis {
    const struct option_row *row;
    char *value; /* text of the value, owned */
};

struct options {
    enum command command;
    /* Options of the library. session_settings sets pl.tensor_split to split[]
     * and pl.rank_split to rank_split[]. The array pl.overrides is owned; its
     * strings are borrowed. */
    pl_options pl;
    /* settings of the sampler; its arrays are owned, their strings borrowed */
    pl_sampling sampling;
    pl_draft_options drafts; /* without n_seq, n_vocab, learn and model */
    bool drafts_given;       /* --spec-type was given */
    /* Options of the draft model's engine; the others are those of `pl`. The
     * array draft.overrides is owned; its strings are borrowed. */
    pl_options draft;
    /* sampling_given[offsetof(pl_sampling, FIELD)] is true if an option has set
     * this field of `sampling`. */
    bool sampling_given[sizeof(pl_sampling)];
    double split[OPTION_MAX_DEVICES];
    double rank_split[PL_MAX_RANKS];

    /* Unless noted, the strings below are borrowed from `words`, and are NULL
     * if the option was not given. */
    const char *model; /* points to `fetched` if an option of the next line
                          named the model */
    const char *hf_repo, *hf_file, *hf_token, *model_url;
    const char *model_draft; /* the draft model; points to `fetched_draft` if
                                hf_repo_draft named it */
    const char *hf_repo_draft;
    const char *prompt; /* text of the prompt; "-" means standard input */
    const char *file, *binary_file;
    const char *output;
    /* token ids as text, or @ and the path of a file that contains them */
    const char *tokens;
    const char *chat_template, *template_text; /* path of a template file; the
                                                  text of a template, or the
                                                  name of one */
    const char *messages, *tools, *kwargs, *system, *system_file;
    /* variable reasoning_effort of the chat template; NULL to leave it to the
     * template */
    const char *reasoning_effort;
    enum option_thoughts {
        THOUGHTS_AUTO,
        THOUGHTS_NONE,
        THOUGHTS_DEEPSEEK,
        THOUGHTS_LEGACY
    } reasoning_format;
    int reasoning_budget; /* limit of reasoning in tokens; -1 for none */
    int embd_normalize;
    struct word_list stops; /* texts at which the output ends */
    /* KEY=TYPE:VALUE, for pl_model_open_override */
    struct word_list kv_overrides;
    enum option_reasoning {
        REASONING_AUTO,
        REASONING_ON,
        REASONING_OFF
    } reasoning;
    const char *grammar, *grammar_file, *schema, *schema_file;
    const char *state_load, *state_save;
    const char *lookup_static, *lookup_dynamic; /* statistics for drafts */
    /* path of the file to which receipts of outputs are written */
    const char *receipt;
    enum option_receipt {
#define RECEIPT_FORM_ENUM(form, text, flags) RECEIPT_##form,
        PL_RECEIPT_FORM_MAP(RECEIPT_FORM_ENUM)
#undef RECEIPT_FORM_ENUM
    } receipt_form;
    bool receipts;        /* add one to every answer of a server */
    const char *sign_key; /* file of the key that signs receipts */
    const char *trust;    /* file of the keys whose receipts verify accepts */
    /* of verify, diff and quantize: arguments without option */
    struct word_list files;
    struct option_quantize { /* of quantize */
        const char *output_type, *embedding_type, *imatrix;
        struct word_list tensor_types, include, exclude;
        bool leave_output, pure, requantize, keep_split, dry_run, no_search;
        int n_threads;
    } quantize;
    int64_t n_sample; /* tokens to check of each receipt; 0 for all */
    const char *host, *api_key, *api_key_file, *alias, *tags, *cert_file,
        *cert_key_file, *api_prefix, *cors_origin, *allowed_hosts, *cache_dir,
        *slot_dir;
    /* limits of the prefix cache in host memory and on disk, in bytes: 0 for
     * the default, 1 for no cache, UINT64_MAX in cache_ram for all memory that
     * is available */
    uint64_t cache_ram, cache_disk;
    int port, n_parallel, n_waiting, timeout_s, socket_s, ping_s;
    bool embeddings, rerank;
    enum option_pooling {
        /* pooling named by the model's file; POOLING_LAST if it names none */
        POOLING_AUTO,
        POOLING_LAST,
        POOLING_MEAN,
        POOLING_CLS,
        POOLING_NONE,
        POOLING_RANK
    } pooling;
    const char *models_dir, *models_preset;
    float prefill_share; /* fraction of a step's tokens that prompts may have
                            while tasks decode; 0 for the server's default */
    int n_models, models_wait_s, sleep_idle_s;
    const char *hosts;       /* machines, or a file of them (hosts.h) */
    const char *log_dir;     /* folder for a file of messages of each machine */
    const char *network;     /* between machines: bandwidth and latency */
    float join_s, machine_s; /* limits in seconds */
    bool send_weights;
    bool no_autoload, at_start, pinned;
    struct word_list words; /* the words of the command line, in which options
                               that only llama.cpp has are replaced
                               (llama_rewrite); owned */
    const char *trace;
    const char *svg;
    const char *dump;
    const char *shape, *type;
    /* owned: paths of the models that fetch_model downloaded */
    char *fetched, *fetched_draft;

    /* The values of options that `plait bench` accepts several times. It
     * measures each combination of them. */
    struct option_axis axis[OPTION_MAX_AXIS]; /* in the order of the command
                                                 line */
    int n_axis;
    struct option_list n_prompt, n_gen, n_depth, n_seq;
    struct option_list n_pair; /* pairs of numbers: prompt, generation, prompt,
                                  generation ... */
    int n_round;
    enum option_form {
        FORM_MD,
        FORM_CSV,
        FORM_JSON,
        FORM_JSONL,
        FORM_SQL
    } form;
    bool no_limits;
    /* Options of bench --serve, which measures a server under load. */
    const char *serve; /* the server's URL, borrowed; NULL if not given */
    struct option_numbers rate;
    struct option_list concurrency;
    /* number of requests, and duration in seconds; 0 if not given */
    int n_request, seconds;
    /* fraction of each prompt that is a prefix shared with other prompts */
    float prefix;
    int n_prefix; /* number of different shared prefixes */
    /* limits in milliseconds of the time to the first token and of the mean
     * time between tokens, for goodput; 0 for none */
    float max_first_ms, max_between_ms;
    bool chat;

    /* greatest number of generated tokens; -1 for no limit */
    int64_t n_predict;
    /* greatest number of tokens in one call of the engine; 0 for n_ubatch */
    int64_t n_batch;
    int64_t n_chunks; /* number of windows that perplexity measures; -1 for
                         all */
    bool random_seed;
    bool ignore_eos;
    bool single_turn;
    bool no_prefill, no_cache_prompt, spm_infill;
    bool interactive;
    bool no_display_prompt;
    bool show_special;
    bool convert; /* convert the caches in a loaded state to the cache formats
                     of this engine */
    bool no_escape;
    bool no_special;
    bool ids_only;
    bool no_generation_prompt;
    bool no_template;
    bool json;
    bool offline;
    bool measure;
    bool verbose;
    bool help, help_all, version;
};

/* Parses argv[0 .. argc-1], the words that follow `command`, into *o. Stops at
 * --help and --help-all. Sets o->pl.cpu to the variable PLAIT_CPU. Returns
 * EXIT_DONE, or prints an error and returns EXIT_USAGE. The caller must call
 * options_free in both cases. */
enum exit_code options_parse(struct options *o, enum command command, int argc,
                             char **argv);
void options_free(struct options *o);

/* Prints the options of a command on standard output. If `all`, prints all with
 * their full help; else prints the common ones, in one or two lines each. */
void options_print(enum command command, bool all);
/* Prints a name, then text in a second column, with line breaks at blanks. */
void options_print_row(const char *name, const char *text);

const char *command_name(enum command command);
/* Returns the edit distance of two words, the number of letters to insert,
 * drop, replace or swap with their neighbour. Returns 32 if one is longer. */
int word_distance(const char *a, const char *b);
/* Returns the command most similar to `word`, with at most two typing errors,
 * or the one that does what other programs call so, maybe with an option; NULL
 * if there is none. */
const char *command_nearest(const char *word);
/* Returns the first command that has all the options in argv[argc]; N_COMMAND
 * if there is none. */
enum command command_of_options(int argc, char **argv);

/* Prints "plait COMMAND: " and the message on standard error, and returns
 * `code`. For N_COMMAND the prefix is "plait: ". */
enum exit_code cli_error(enum command command, enum exit_code code,
                         const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Makes messages begin with "[NAME] ", unless `name` is NULL, and appends them
 * to the file DIR/FILE.log, too, unless `dir` is NULL. Called once, before
 * other threads print. */
void cli_error_machine(const char *name, const char *dir, const char *file);
/* Copies the next message that this thread prints with cli_error, without its
 * prefix, to `text` [n]. The text is empty until then. NULL ends that. */
void cli_error_copy(char *text, size_t n);

#endif
