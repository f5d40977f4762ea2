/* The options of llama.cpp's tools (llama-server, llama-cli, llama-bench), a
 * row each, with the effect that they have here. The tests check each row
 * against option_table.c, and scripts/manual.py makes doc/llama-options.md of
 * the rows. */
#include "option_table.h"

enum {
    SERVER = 1 << CMD_SERVE,
    CLI = 1 << CMD_RUN,
    BENCHES = 1 << CMD_BENCH,
    WRITERS = SERVER | CLI,
    EACH = SERVER | CLI | BENCHES,
};

#define WORKS(of, names, example, variable, text)                              \
    {                                                                          \
        of, LLAMA_WORKS, names, example, variable, text                        \
    }
#define MEANS(of, names, variable, word, value)                                \
    {                                                                          \
        of, LLAMA_MEANS, names, value, variable, word                          \
    }
#define UNSETS(of, names, variable, word)                                      \
    {                                                                          \
        of, LLAMA_UNSETS, names, NULL, variable, word                          \
    }
#define PASSED(of, names, example, variable, text)                             \
    {                                                                          \
        of, LLAMA_PASSED, names, example, variable, text                       \
    }
#define REFUSED(of, names, example, variable, text)                            \
    {                                                                          \
        of, LLAMA_REFUSED, names, example, variable, text                      \
    }
#define DRAFT   "drafts change the speed alone, and there are none"
#define CORES   "it changes no result; -dev cpu:0-3 names cores"
#define WEIGHTS "weights are read once into the memory of the devices"
#define LOG     "messages go to standard error; -v prints more"
#define IMAGE   "models read text alone; a request with images is rejected"

const struct llama_option llama_options[] = {
    /* ---- the command ---- */
    WORKS(EACH, "-h --help", NULL, NULL, NULL),
    MEANS(EACH, "--usage", NULL, "--help", NULL),
    WORKS(EACH, "--version", NULL, NULL, NULL),
    WORKS(EACH, "-v --verbose", NULL, NULL, NULL),
    MEANS(EACH, "--log-verbose", NULL, "--verbose", NULL),
    REFUSED(EACH, "-cl --cache-list", NULL, NULL,
            "list the directory plait of PLAIT_CACHE or ~/.cache"),
    REFUSED(EACH, "--completion-bash", NULL, NULL,
            "completions are installed with plait"),
    REFUSED(EACH, "--license --licenses", NULL, NULL,
            "the licences are installed with plait"),
    REFUSED(EACH, "--list-devices", NULL, NULL, "use `plait devices`"),
    PASSED(EACH, "-lv --verbosity --log-verbosity", "3",
           "LLAMA_ARG_LOG_VERBOSITY LLAMA_LOG_VERBOSITY", LOG),
    PASSED(EACH, "--log-file", "plait.log", "LLAMA_ARG_LOG_FILE LLAMA_LOG_FILE",
           LOG),
    PASSED(EACH, "--log-disable", NULL, NULL, LOG),
    PASSED(EACH, "--log-colors", "on|", "LLAMA_ARG_LOG_COLORS LLAMA_LOG_COLORS",
           LOG),
    PASSED(EACH,
           "--log-prefix --no-log-prefix --log-timestamps --no-log-timestamps "
           "--log-jsonl --no-log-jsonl",
           NULL,
           "LLAMA_ARG_LOG_PREFIX LLAMA_LOG_PREFIX LLAMA_ARG_LOG_TIMESTAMPS "
           "LLAMA_LOG_TIMESTAMPS LLAMA_ARG_LOG_JSONL",
           LOG),
    PASSED(WRITERS, "--log-prompts-dir", "prompts", NULL, LOG),
    PASSED(EACH, "--perf --no-perf", NULL, "LLAMA_ARG_PERF LLAMA_ARG_NO_PERF",
           "speeds are always measured, and change no result"),

    /* ---- the model ---- */
    WORKS(EACH, "-m --model", "other.gguf", "LLAMA_ARG_MODEL", NULL),
    WORKS(WRITERS, "-mu --model-url", "https://127.0.0.1/m.gguf",
          "LLAMA_ARG_MODEL_URL", NULL),
    WORKS(EACH, "-hf -hfr --hf-repo", "user/repo:Q8_0", "LLAMA_ARG_HF_REPO",
          "an image projector is not downloaded"),
    WORKS(EACH, "-hff --hf-file", "m.gguf", "LLAMA_ARG_HF_FILE", NULL),
    WORKS(EACH, "-hft --hf-token", "token", NULL, NULL),
    WORKS(EACH, "--offline", NULL, "LLAMA_ARG_OFFLINE LLAMA_OFFLINE", NULL),
    REFUSED(WRITERS, "-dr --docker-repo", "ai/m", "LLAMA_ARG_DOCKER_REPO",
            "use -hf, or -mu with an address"),
    PASSED(EACH, "-lm --load-mode", "mmap", "LLAMA_ARG_LOAD_MODE", WEIGHTS),
    PASSED(EACH, "-lzm --lazy-mode", "on", "LLAMA_ARG_LAZY_MODE", WEIGHTS),
    PASSED(EACH, "-mmp", "0", NULL, WEIGHTS),
    PASSED(EACH,
           "--mlock --mmap --no-mmap -dio --direct-io -ndio --no-direct-io",
           NULL,
           "LLAMA_ARG_MLOCK LLAMA_ARG_MMAP LLAMA_ARG_NO_MMAP LLAMA_ARG_DIO "
           "LLAMA_ARG_NO_DIO",
           WEIGHTS),
    PASSED(EACH, "--check-tensors", NULL, NULL,
           "it changes no result; a weight that is not finite shows in the "
           "logits"),
    REFUSED(WRITERS, "--lora", "a.gguf", "LLAMA_ARG_LORA",
            "merge the adapter into the model's file"),
    REFUSED(WRITERS, "--lora-scaled", "a.gguf:0.5", NULL,
            "merge the adapter into the model's file"),
    PASSED(SERVER, "--lora-init-without-apply", NULL, NULL,
           "adapters are refused"),
    REFUSED(WRITERS, "--control-vector --control-vector-scaled", "a.gguf", NULL,
            "control vectors are not applied; leave it out"),
    REFUSED(WRITERS, "--control-vector-layer-range", "1", NULL,
            "control vectors are not applied; leave it out"),
    WORKS(WRITERS, "--override-kv", "llama.block_count=int:8",
          "LLAMA_ARG_OVERRIDE_KV", "a key that no code reads is an error"),
    WORKS(WRITERS, "--rope-scaling", "yarn", "LLAMA_ARG_ROPE_SCALING_TYPE",
          NULL),
    WORKS(WRITERS, "--rope-scale", "2", "LLAMA_ARG_ROPE_SCALE", NULL),
    WORKS(WRITERS, "--rope-freq-base", "10000", "LLAMA_ARG_ROPE_FREQ_BASE",
          NULL),
    WORKS(WRITERS, "--rope-freq-scale", "0.5", "LLAMA_ARG_ROPE_FREQ_SCALE",
          NULL),
    WORKS(WRITERS, "--yarn-orig-ctx", "4096", "LLAMA_ARG_YARN_ORIG_CTX",
          "it is an error without YaRN"),
    WORKS(WRITERS, "--yarn-ext-factor", "1", "LLAMA_ARG_YARN_EXT_FACTOR",
          "it must be 1, or -1"),
    WORKS(WRITERS, "--yarn-attn-factor", "1", "LLAMA_ARG_YARN_ATTN_FACTOR",
          "it replaces the file's, and counts with YaRN, too"),
    WORKS(WRITERS, "--yarn-beta-slow --yarn-beta-fast", "1",
          "LLAMA_ARG_YARN_BETA_SLOW LLAMA_ARG_YARN_BETA_FAST",
          "it is an error without YaRN"),
    REFUSED(SERVER, "--embd-gemma-default", NULL, NULL,
            "name the model with -hf"),
    REFUSED(SERVER,
            "--fim-qwen-1.5b-default --fim-qwen-3b-default "
            "--fim-qwen-7b-default --fim-qwen-7b-spec --fim-qwen-14b-spec "
            "--fim-qwen-30b-default",
            NULL, NULL, "name the model with -hf"),
    REFUSED(WRITERS,
            "--gpt-oss-20b-default --gpt-oss-120b-default "
            "--vision-gemma-4b-default --vision-gemma-12b-default",
            NULL, NULL, "name the model with -hf"),
    PASSED(WRITERS, "-mm --mmproj", "p.gguf", "LLAMA_ARG_MMPROJ", IMAGE),
    PASSED(WRITERS, "-mmu --mmproj-url", "https://127.0.0.1/p.gguf",
           "LLAMA_ARG_MMPROJ_URL", IMAGE),
    PASSED(WRITERS,
           "--mmproj-auto --no-mmproj --no-mmproj-auto --mmproj-offload "
           "--no-mmproj-offload",
           NULL,
           "LLAMA_ARG_MMPROJ_AUTO LLAMA_ARG_NO_MMPROJ_AUTO "
           "LLAMA_ARG_MMPROJ_OFFLOAD LLAMA_ARG_NO_MMPROJ_OFFLOAD",
           IMAGE),
    PASSED(WRITERS, "-mmdev --mmproj-device", "cpu", "MTMD_BACKEND_DEVICE",
           IMAGE),
    PASSED(WRITERS,
           "--image-min-tokens --image-max-tokens --mtmd-batch-max-tokens "
           "--video-fps --video-timestamp-interval --video-ffmpeg-dir",
           "8",
           "LLAMA_ARG_IMAGE_MIN_TOKENS LLAMA_ARG_IMAGE_MAX_TOKENS "
           "LLAMA_ARG_MTMD_BATCH_MAX_TOKENS LLAMA_ARG_VIDEO_FPS "
           "LLAMA_ARG_VIDEO_TIMESTAMP_INTERVAL LLAMA_ARG_VIDEO_FFMPEG_DIR",
           IMAGE),
    PASSED(SERVER, "--media-path", "media", NULL, IMAGE),
    REFUSED(CLI, "--image --audio --video", "i.png", NULL,
            "models read text alone; describe it in the prompt"),

    /* ---- devices and memory ---- */
    WORKS(EACH, "-dev --device", "cpu*2", "LLAMA_ARG_DEVICE",
          "names of devices are those of `plait devices`"),
    WORKS(EACH, "-ngl --gpu-layers --n-gpu-layers", "3",
          "LLAMA_ARG_N_GPU_LAYERS", NULL),
    WORKS(EACH, "-sm --split-mode", "layer", "LLAMA_ARG_SPLIT_MODE",
          "row is treated as tensor"),
    WORKS(EACH, "-ts --tensor-split", "3,1", "LLAMA_ARG_TENSOR_SPLIT", NULL),
    WORKS(EACH, "-mg --main-gpu", "1", "LLAMA_ARG_MAIN_GPU", NULL),
    WORKS(EACH, "-ot --override-tensor", "exps=host",
          "LLAMA_ARG_OVERRIDE_TENSOR", "the host is called host or CPU"),
    WORKS(EACH, "-cmoe --cpu-moe", NULL, "LLAMA_ARG_CPU_MOE", NULL),
    WORKS(EACH, "-ncmoe --n-cpu-moe", "2", "LLAMA_ARG_N_CPU_MOE", NULL),
    PASSED(WRITERS, "-ncffn --n-cpu-ffn", "2", "LLAMA_ARG_N_CPU_FFN",
           "weights that do not fit stay on the host; -ot names them"),
    PASSED(EACH, "--moe-cache-mib --moe-cache", "512",
           "LLAMA_ARG_MOE_CACHE_MIB LLAMA_ARG_MOE_CACHE",
           "experts on the host are computed there or streamed"),
    WORKS(WRITERS, "-nkvo --no-kv-offload", NULL,
          "!LLAMA_ARG_KV_OFFLOAD LLAMA_ARG_NO_KV_OFFLOAD", NULL),
    WORKS(BENCHES, "-nkvo --no-kv-offload", "1", NULL, NULL),
    UNSETS(WRITERS, "-kvo --kv-offload", "LLAMA_ARG_KV_OFFLOAD", "-nkvo"),
    WORKS(WRITERS, "-c --ctx-size", "256", "LLAMA_ARG_CTX_SIZE",
          "without it the context is at most 4096 tokens; 0 is the model's, "
          "or what fits"),
    WORKS(WRITERS, "-b --batch-size", "64", "LLAMA_ARG_BATCH", NULL),
    PASSED(BENCHES, "-b --batch-size", "64", NULL,
           "a step has the tokens of -ub; no result depends on it"),
    WORKS(EACH, "-ub --ubatch-size", "64", "LLAMA_ARG_UBATCH", NULL),
    WORKS(EACH, "-ctk --cache-type-k", "q8_0", "LLAMA_ARG_CACHE_TYPE_K", NULL),
    WORKS(EACH, "-ctv --cache-type-v", "q8_0", "LLAMA_ARG_CACHE_TYPE_V", NULL),
    WORKS(EACH, "-fit --fit", "off", "LLAMA_ARG_FIT", NULL),
    WORKS(EACH, "-fitt --fit-target", "512", "LLAMA_ARG_FIT_TARGET",
          "one value, for each device"),
    WORKS(EACH, "-fitc --fit-ctx", "512", "LLAMA_ARG_FIT_CTX", NULL),
    WORKS(WRITERS, "--op-offload", "on", "LLAMA_ARG_OP_OFFLOAD",
          "it takes auto, on or off here; without it, it is auto"),
    MEANS(WRITERS, "--no-op-offload",
          "!LLAMA_ARG_OP_OFFLOAD LLAMA_ARG_NO_OP_OFFLOAD", "--op-offload",
          "off"),
    WORKS(BENCHES, "-nopo --no-op-offload", "1", NULL, NULL),
    PASSED(EACH, "-fa --flash-attn", "on|", "LLAMA_ARG_FLASH_ATTN",
           "attention is always computed that way"),
    PASSED(WRITERS, "--repack -nr --no-repack --no-host", NULL,
           "LLAMA_ARG_REPACK LLAMA_ARG_NO_REPACK LLAMA_ARG_NO_HOST",
           "weights are always packed for the device"),
    PASSED(BENCHES, "--repack --no-host", "1|", NULL,
           "weights are always packed for the device"),
    PASSED(BENCHES, "-nr --no-repack", NULL, NULL,
           "weights are always packed for the device"),
    PASSED(WRITERS, "--swa-full", NULL, "LLAMA_ARG_SWA_FULL",
           "the cache keeps the pages that windows need"),
    PASSED(WRITERS, "-dt --defrag-thold", "0.1", "LLAMA_ARG_DEFRAG_THOLD",
           "the cache is paged and has no holes"),
    PASSED(SERVER, "-kvu --kv-unified -no-kvu --no-kv-unified", NULL,
           "LLAMA_ARG_KV_UNIFIED LLAMA_ARG_NO_KV_UNIFIED LLAMA_ARG_KV_SPLIT",
           "requests always share the cache"),
    PASSED(SERVER, "--kv-unified-per-slot", "512",
           "LLAMA_ARG_KV_UNIFIED_PER_SLOT",
           "a request may use the whole context"),
    PASSED(WRITERS, "-ctxcp --ctx-checkpoints --swa-checkpoints", "8",
           "LLAMA_ARG_CTX_CHECKPOINTS",
           "results are the same without them; see --checkpoints"),
    PASSED(SERVER, "-cms --checkpoint-min-step", "8",
           "LLAMA_ARG_CHECKPOINT_MIN_SPACING_NT",
           "results are the same without them; see --checkpoints"),
    REFUSED(EACH, "--rpc -rpc", "host:50052", "LLAMA_ARG_RPC",
            "name devices of this machine with -dev"),

    /* ---- threads ---- */
    WORKS(EACH, "-t --threads", "2", "LLAMA_ARG_THREADS",
          "of each device; llama.cpp's is the total"),
    PASSED(EACH, "-tb --threads-batch", "2", NULL,
           "prompts and generation use the threads of -t"),
    PASSED(EACH,
           "-C --cpu-mask -Cr --cpu-range --cpu-strict -Cb --cpu-mask-batch "
           "-Crb --cpu-range-batch --cpu-strict-batch",
           "1", NULL, CORES),
    PASSED(EACH, "--prio --prio-batch --poll --poll-batch", "1", NULL,
           "threads spin, then sleep; nice(1) sets a priority"),
    PASSED(EACH, "--numa", "distribute", "LLAMA_ARG_NUMA",
           "-dev cpu makes one device of each NUMA node"),
    PASSED(SERVER, "--threads-http", "4", "LLAMA_ARG_THREADS_HTTP",
           "each connection is served as it comes"),

    /* ---- sampling ---- */
    WORKS(WRITERS, "--samplers", "top_k;temperature", NULL, NULL),
    WORKS(WRITERS, "--sampler-seq --sampling-seq", "kt", NULL, NULL),
    WORKS(WRITERS, "-s --seed", "7", NULL, NULL),
    WORKS(WRITERS, "--ignore-eos", NULL, NULL, NULL),
    WORKS(WRITERS, "--temp --temperature", "0.5", "LLAMA_ARG_TEMPERATURE",
          NULL),
    WORKS(WRITERS, "--top-k", "7", "LLAMA_ARG_TOP_K", NULL),
    WORKS(WRITERS, "--top-p", "0.5", "LLAMA_ARG_TOP_P", NULL),
    WORKS(WRITERS, "--min-p", "0.5", "LLAMA_ARG_MIN_P", NULL),
    WORKS(WRITERS, "--top-nsigma --top-n-sigma", "2", NULL, NULL),
    WORKS(WRITERS, "--xtc-probability", "0.5", NULL, NULL),
    WORKS(WRITERS, "--xtc-threshold", "0.5", NULL, NULL),
    WORKS(WRITERS, "--typical --typical-p", "0.5", NULL, NULL),
    WORKS(WRITERS, "--repeat-last-n", "7", NULL, NULL),
    WORKS(WRITERS, "--repeat-penalty", "1.5", "LLAMA_ARG_REPEAT_PENALTY", NULL),
    WORKS(WRITERS, "--presence-penalty", "1", "LLAMA_ARG_PRESENCE_PENALTY",
          NULL),
    WORKS(WRITERS, "--frequency-penalty", "1", "LLAMA_ARG_FREQUENCY_PENALTY",
          NULL),
    WORKS(WRITERS, "--dry-multiplier", "1", NULL, NULL),
    WORKS(WRITERS, "--dry-base", "2", NULL, NULL),
    WORKS(WRITERS, "--dry-allowed-length", "3", NULL, NULL),
    WORKS(WRITERS, "--dry-penalty-last-n", "7", NULL, NULL),
    WORKS(WRITERS, "--dry-sequence-breaker", ".", NULL, NULL),
    WORKS(WRITERS, "--dynatemp-range", "1", NULL, NULL),
    WORKS(WRITERS, "--dynatemp-exp", "2", NULL, NULL),
    WORKS(WRITERS, "--mirostat", "2", NULL, NULL),
    WORKS(WRITERS, "--mirostat-lr", "0.5", NULL, NULL),
    WORKS(WRITERS, "--mirostat-ent", "2", NULL, NULL),
    WORKS(WRITERS, "-l --logit-bias", "15043-1", NULL, NULL),
    WORKS(WRITERS, "--grammar", "root ::= \"a\"", NULL, NULL),
    WORKS(WRITERS, "--grammar-file", "a.gbnf", NULL, NULL),
    WORKS(WRITERS, "-j --json-schema", "{}", NULL, NULL),
    WORKS(WRITERS, "-jf --json-schema-file", "a.json", NULL, NULL),
    WORKS(WRITERS, "--adaptive-target", "0.5", NULL, NULL),
    WORKS(WRITERS, "--adaptive-decay", "0.5", NULL, NULL),
    PASSED(WRITERS, "-bs --backend-sampling", NULL,
           "LLAMA_ARG_BACKEND_SAMPLING",
           "tokens are sampled on the host, with the same result"),
    WORKS(WRITERS, "-n --predict --n-predict", "7", "LLAMA_ARG_N_PREDICT",
          NULL),
    PASSED(WRITERS, "--keep", "8", NULL,
           "it matters with --context-shift alone"),
    REFUSED(WRITERS, "--context-shift", NULL, "LLAMA_ARG_CONTEXT_SHIFT",
            "a full context ends the text; make it larger with -c"),
    PASSED(WRITERS, "--no-context-shift", NULL,
           "!LLAMA_ARG_CONTEXT_SHIFT LLAMA_ARG_NO_CONTEXT_SHIFT",
           "a full context always ends the text"),

    /* ---- chats ---- */
    WORKS(WRITERS, "--chat-template", "chatml", "LLAMA_ARG_CHAT_TEMPLATE",
          "the text of a template, or one of 22 names, such as chatml, "
          "llama3 or mistral-v7"),
    WORKS(WRITERS, "--chat-template-file", "a.jinja",
          "LLAMA_ARG_CHAT_TEMPLATE_FILE", NULL),
    WORKS(WRITERS, "--chat-template-kwargs", "{\"a\":1}",
          "LLAMA_ARG_CHAT_TEMPLATE_KWARGS", NULL),
    PASSED(WRITERS, "--jinja --no-jinja", NULL,
           "LLAMA_ARG_JINJA LLAMA_ARG_NO_JINJA",
           "templates are always rendered as Jinja"),
    WORKS(WRITERS, "-rea --reasoning", "on", "LLAMA_ARG_REASONING", NULL),
    WORKS(SERVER, "--reasoning-format", "none", "LLAMA_ARG_THINK", NULL),
    PASSED(CLI, "--reasoning-format", "none", "LLAMA_ARG_THINK",
           "reasoning goes to standard error"),
    WORKS(WRITERS, "--reasoning-effort", "low", "LLAMA_ARG_REASONING_EFFORT",
          NULL),
    WORKS(SERVER, "--reasoning-budget", "64", "LLAMA_ARG_THINK_BUDGET", NULL),
    REFUSED(CLI, "--reasoning-budget", "64", "LLAMA_ARG_THINK_BUDGET",
            "`plait serve` keeps a budget; here, -n limits the answer"),
    REFUSED(WRITERS, "--reasoning-budget-message", "enough",
            "LLAMA_ARG_THINK_BUDGET_MESSAGE",
            "the end mark of the reasoning follows at once; leave it out"),
    PASSED(WRITERS, "--reasoning-preserve --no-reasoning-preserve", NULL,
           "LLAMA_ARG_REASONING_PRESERVE",
           "the template decides which reasoning it shows again"),
    REFUSED(WRITERS, "--skip-chat-parsing", NULL, "LLAMA_ARG_SKIP_CHAT_PARSING",
            "ask /completion for text as the model writes it"),
    PASSED(WRITERS, "--no-skip-chat-parsing", NULL,
           "!LLAMA_ARG_SKIP_CHAT_PARSING", "answers are always parsed"),
    PASSED(SERVER, "--prefill-assistant", NULL, "LLAMA_ARG_PREFILL_ASSISTANT",
           "an answer that was begun is always continued"),
    WORKS(SERVER, "--no-prefill-assistant", NULL,
          "!LLAMA_ARG_PREFILL_ASSISTANT LLAMA_ARG_NO_PREFILL_ASSISTANT", NULL),
    WORKS(CLI, "-p --prompt", "text", NULL, NULL),
    WORKS(CLI, "-f --file", "a.txt", NULL, NULL),
    WORKS(CLI, "-bf --binary-file", "a.bin", NULL, NULL),
    UNSETS(CLI, "-e --escape", NULL, "--no-escape"),
    WORKS(CLI, "--no-escape", NULL, NULL, NULL),
    PASSED(SERVER, "-e --escape --no-escape", NULL, NULL,
           "requests have no escapes"),
    WORKS(CLI, "-sys --system-prompt", "text", NULL, NULL),
    WORKS(CLI, "-sysf --system-prompt-file", "a.txt", NULL, NULL),
    MEANS(CLI, "-cnv --conversation", NULL, "-i", NULL),
    WORKS(CLI, "-no-cnv", NULL, NULL, NULL),
    MEANS(CLI, "--no-conversation", NULL, "-no-cnv", NULL),
    WORKS(CLI, "-st --single-turn", NULL, NULL, NULL),
    PASSED(CLI, "-if --interactive-first", NULL, NULL,
           "a chat without -p asks first"),
    PASSED(CLI, "-mli --multiline-input", NULL, NULL,
           "a pasted text may have several lines"),
    WORKS(WRITERS, "-r --reverse-prompt", "User:", NULL, NULL),
    REFUSED(CLI, "--in-prefix --in-suffix", "text", NULL,
            "the template sets the text around a message; see "
            "--chat-template-file"),
    PASSED(CLI, "--in-prefix-bos", NULL, NULL, "the template sets BOS"),
    UNSETS(CLI, "--display-prompt", NULL, "--no-display-prompt"),
    WORKS(CLI, "--no-display-prompt", NULL, NULL, NULL),
    PASSED(CLI, "--verbose-prompt", NULL, NULL,
           "`plait tokenize` shows tokens"),
    PASSED(CLI, "-co --color", "on|", NULL, "NO_COLOR turns colors off"),
    PASSED(CLI, "--simple-io", NULL, NULL,
           "lines are edited on terminals alone"),
    PASSED(CLI, "--show-timings --no-show-timings", NULL,
           "LLAMA_ARG_SHOW_TIMINGS LLAMA_ARG_NO_SHOW_TIMINGS",
           "speeds are printed at the end, on standard error"),
    PASSED(CLI, "-ptc --print-token-count", "8", NULL,
           "counts are printed at the end, on standard error"),
    REFUSED(CLI, "--prompt-cache", "a.bin", NULL,
            "use --state-save and --state-load"),
    REFUSED(CLI, "--prompt-cache-all --prompt-cache-ro", NULL, NULL,
            "use --state-save and --state-load"),
    REFUSED(CLI, "--server-base", "http://127.0.0.1:8080", NULL,
            "run computes itself; chat in the page of `plait serve`"),
    REFUSED(CLI, "-o --output --output-file", "a.txt", NULL,
            "redirect standard output"),
    WORKS(WRITERS, "-sp --special", NULL, NULL,
          "the token that ends the text is not printed"),
    PASSED(WRITERS, "--warmup --no-warmup", NULL,
           "LLAMA_ARG_WARMUP LLAMA_ARG_NO_WARMUP",
           "a warm-up changes no result"),
    PASSED(BENCHES, "--no-warmup", NULL, NULL, "bench always warms up"),

    /* ---- the server ---- */
    WORKS(SERVER, "--host", "0.0.0.0", "LLAMA_ARG_HOST", NULL),
    WORKS(SERVER, "--port", "9000", "LLAMA_ARG_PORT", NULL),
    PASSED(SERVER, "--reuse-port", NULL, "LLAMA_ARG_REUSE_PORT",
           "one server listens at a port"),
    WORKS(SERVER, "-a --alias", "one,two", "LLAMA_ARG_ALIAS", NULL),
    WORKS(SERVER, "--tags", "fast", "LLAMA_ARG_TAGS", NULL),
    WORKS(SERVER, "-np --parallel", "2", "LLAMA_ARG_N_PARALLEL", NULL),
    PASSED(WRITERS, "-cb --cont-batching -nocb --no-cont-batching", NULL,
           "LLAMA_ARG_CONT_BATCHING LLAMA_ARG_NO_CONT_BATCHING",
           "requests are always batched continuously"),
    PASSED(CLI, "-np --parallel", "2", "LLAMA_ARG_N_PARALLEL",
           "run has one sequence"),
    WORKS(SERVER, "--api-key", "key", "LLAMA_API_KEY LLAMA_ARG_API_KEY", NULL),
    WORKS(SERVER, "--api-key-file", "keys.txt", "LLAMA_ARG_API_KEY_FILE", NULL),
    WORKS(SERVER, "--ssl-key-file", "key.pem", "LLAMA_ARG_SSL_KEY_FILE", NULL),
    WORKS(SERVER, "--ssl-cert-file", "cert.pem", "LLAMA_ARG_SSL_CERT_FILE",
          NULL),
    WORKS(SERVER, "--api-prefix", "/llm", "LLAMA_ARG_API_PREFIX", NULL),
    WORKS(SERVER, "-to --timeout", "60", "LLAMA_ARG_TIMEOUT", NULL),
    WORKS(SERVER, "--sse-ping-interval", "5", "LLAMA_ARG_SSE_PING_INTERVAL",
          NULL),
    WORKS(SERVER, "--cors-origins", "https://a.example",
          "LLAMA_ARG_CORS_ORIGINS", NULL),
    PASSED(SERVER, "--cors-methods --cors-headers", "GET",
           "LLAMA_ARG_CORS_METHODS LLAMA_ARG_CORS_HEADERS",
           "an origin that is accepted may use all"),
    PASSED(SERVER, "--cors-credentials --no-cors-credentials", NULL,
           "LLAMA_ARG_CORS_CREDENTIALS",
           "an origin that is accepted may use all"),
    REFUSED(SERVER, "--path", "www", "LLAMA_ARG_STATIC_PATH",
            "serve files with a web server, and set --cors-origins"),
    PASSED(SERVER, "--ui --webui --no-ui --no-webui", NULL,
           "LLAMA_ARG_UI LLAMA_ARG_WEBUI LLAMA_ARG_NO_UI LLAMA_ARG_NO_WEBUI",
           "the page is always there; --api-key protects what it asks for"),
    PASSED(SERVER,
           "--ui-config --webui-config --ui-config-file --webui-config-file",
           "{}",
           "LLAMA_ARG_UI_CONFIG LLAMA_ARG_WEBUI_CONFIG "
           "LLAMA_ARG_UI_CONFIG_FILE LLAMA_ARG_WEBUI_CONFIG_FILE",
           "the page keeps its settings in the browser"),
    REFUSED(SERVER, "--ui-mcp-proxy --webui-mcp-proxy", NULL,
            "LLAMA_ARG_UI_MCP_PROXY LLAMA_ARG_WEBUI_MCP_PROXY",
            "connect MCP servers in the client; leave it out"),
    PASSED(SERVER, "--no-ui-mcp-proxy --no-webui-mcp-proxy", NULL,
           "!LLAMA_ARG_UI_MCP_PROXY", "there is no such proxy"),
    REFUSED(SERVER, "--tools", "all", "LLAMA_ARG_TOOLS",
            "clients run the tools that a model calls; leave it out"),
    REFUSED(SERVER, "--tools-runtime", "docker:debian",
            "LLAMA_ARG_TOOLS_RUNTIME",
            "clients run the tools that a model calls; leave it out"),
    REFUSED(SERVER, "--mcp-servers-config --mcp-servers-json", "{}",
            "LLAMA_ARG_MCP_SERVERS_CONFIG LLAMA_ARG_MCP_SERVERS_JSON",
            "connect MCP servers in the client; leave it out"),
    REFUSED(SERVER, "-ag --agent", NULL, "LLAMA_ARG_AGENT",
            "clients run the tools that a model calls; leave it out"),
    PASSED(SERVER, "-no-ag --no-agent", NULL, "!LLAMA_ARG_AGENT",
           "the server runs no tools"),
    WORKS(SERVER, "--embedding --embeddings", NULL, "LLAMA_ARG_EMBEDDINGS",
          "text is generated too"),
    PASSED(BENCHES, "-embd --embeddings", "0", NULL,
           "embeddings need no work of their own"),
    WORKS(SERVER, "--pooling", "mean", "LLAMA_ARG_POOLING", NULL),
    WORKS(SERVER, "--embd-normalize", "0", NULL, NULL),
    REFUSED(SERVER, "--rerank --reranking", NULL, "LLAMA_ARG_RERANKING",
            "models for ranking are not read; compare --embeddings"),
    PASSED(SERVER, "--metrics --props --slots --no-slots", NULL,
           "LLAMA_ARG_ENDPOINT_METRICS LLAMA_ARG_ENDPOINT_PROPS "
           "LLAMA_ARG_ENDPOINT_SLOTS LLAMA_ARG_NO_ENDPOINT_SLOTS",
           "these paths are always there"),
    WORKS(SERVER, "--slot-save-path", "slots", "LLAMA_ARG_SLOT_SAVE_PATH",
          NULL),
    PASSED(SERVER, "-sps --slot-prompt-similarity", "0.1", NULL,
           "a request takes the longest prefix that any slot has"),
    PASSED(SERVER, "--cache-prompt", NULL, "LLAMA_ARG_CACHE_PROMPT",
           "prefixes are always cached"),
    WORKS(SERVER, "--no-cache-prompt", NULL,
          "!LLAMA_ARG_CACHE_PROMPT LLAMA_ARG_NO_CACHE_PROMPT", NULL),
    PASSED(SERVER, "--cache-reuse", "256", "LLAMA_ARG_CACHE_REUSE",
           "equal prefixes are reused; nothing is shifted"),
    WORKS(SERVER, "-cram --cache-ram", "512", "LLAMA_ARG_CACHE_RAM", NULL),
    PASSED(CLI, "-cram --cache-ram", "512", "LLAMA_ARG_CACHE_RAM",
           "run has one sequence"),
    PASSED(SERVER, "--cache-idle-slots --no-cache-idle-slots", NULL,
           "LLAMA_ARG_CACHE_IDLE_SLOTS LLAMA_ARG_NO_CACHE_IDLE_SLOTS",
           "prefixes are always cached"),
    WORKS(SERVER, "--spm-infill", NULL, NULL, NULL),
    WORKS(SERVER, "--models-dir", "models", "LLAMA_ARG_MODELS_DIR", NULL),
    WORKS(SERVER, "--models-preset", "a.ini", "LLAMA_ARG_MODELS_PRESET", NULL),
    WORKS(SERVER, "--models-max", "2", "LLAMA_ARG_MODELS_MAX", NULL),
    UNSETS(SERVER, "--models-autoload", "LLAMA_ARG_MODELS_AUTOLOAD",
           "--no-models-autoload"),
    WORKS(SERVER, "--no-models-autoload", NULL,
          "!LLAMA_ARG_MODELS_AUTOLOAD LLAMA_ARG_NO_MODELS_AUTOLOAD", NULL),
    WORKS(SERVER, "--sleep-idle-seconds", "60", NULL, NULL),

    /* ---- speculative decoding ---- */
    PASSED(WRITERS,
           "-md --model-draft --spec-draft-model -hfd -hfrd --hf-repo-draft "
           "--spec-draft-hf -devd --device-draft --spec-draft-device -ngld "
           "--gpu-layers-draft --n-gpu-layers-draft --spec-draft-ngl -cd "
           "--ctx-size-draft -ctkd --cache-type-k-draft --spec-draft-type-k "
           "-ctvd --cache-type-v-draft --spec-draft-type-v -td "
           "--threads-draft --spec-draft-threads -tbd --threads-batch-draft "
           "--spec-draft-threads-batch -Cd --cpu-mask-draft "
           "--spec-draft-cpu-mask -Crd --cpu-range-draft "
           "--spec-draft-cpu-range --cpu-strict-draft --spec-draft-cpu-strict "
           "--prio-draft --spec-draft-prio --poll-draft --spec-draft-poll "
           "-Cbd --cpu-mask-batch-draft --spec-draft-cpu-mask-batch "
           "--cpu-strict-batch-draft --spec-draft-cpu-strict-batch "
           "--prio-batch-draft --spec-draft-prio-batch --poll-batch-draft "
           "--spec-draft-poll-batch -otd --override-tensor-draft "
           "--spec-draft-override-tensor -ncmoed --n-cpu-moe-draft "
           "--spec-draft-n-cpu-moe --spec-draft-ncmoe",
           "1",
           "LLAMA_ARG_SPEC_DRAFT_MODEL LLAMA_ARG_MODEL_DRAFT "
           "LLAMA_ARG_SPEC_DRAFT_HF_REPO LLAMA_ARG_HFD_REPO "
           "LLAMA_ARG_N_GPU_LAYERS_DRAFT LLAMA_ARG_CTX_SIZE_DRAFT "
           "LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_K LLAMA_ARG_CACHE_TYPE_K_DRAFT "
           "LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_V LLAMA_ARG_CACHE_TYPE_V_DRAFT "
           "LLAMA_ARG_SPEC_DRAFT_N_CPU_MOE LLAMA_ARG_N_CPU_MOE_DRAFT",
           DRAFT),
    PASSED(WRITERS, "-cmoed --cpu-moe-draft --spec-draft-cpu-moe", NULL,
           "LLAMA_ARG_SPEC_DRAFT_CPU_MOE LLAMA_ARG_CPU_MOE_DRAFT", DRAFT),
    PASSED(WRITERS,
           "--spec-type --spec-draft-n-max --spec-draft-n-min "
           "--spec-draft-p-split --draft-p-split --spec-draft-p-min "
           "--draft-p-min --spec-draft-sampling --spec-synth-len "
           "--spec-synth-rates --spec-ngram-mod-n-min --spec-ngram-mod-n-max "
           "--spec-ngram-mod-n-match --spec-ngram-simple-size-n "
           "--spec-ngram-simple-size-m --spec-ngram-simple-min-hits "
           "--spec-ngram-map-k-size-n --spec-ngram-map-k-size-m "
           "--spec-ngram-map-k-min-hits --spec-ngram-map-k4v-size-n "
           "--spec-ngram-map-k4v-size-m --spec-ngram-map-k4v-min-hits "
           "--spec-ngram-size-n --spec-ngram-size-m --spec-ngram-min-hits "
           "--draft --draft-n --draft-max --draft-min --draft-n-min "
           "--spec-replace -lcs --lookup-cache-static -lcd "
           "--lookup-cache-dynamic",
           "1",
           "LLAMA_ARG_SPEC_TYPE LLAMA_ARG_SPEC_DRAFT_N_MAX "
           "LLAMA_ARG_SPEC_DRAFT_N_MIN LLAMA_ARG_SPEC_DRAFT_P_SPLIT "
           "LLAMA_ARG_SPEC_DRAFT_P_MIN LLAMA_ARG_SPEC_DRAFT_SAMPLING "
           "LLAMA_ARG_SPEC_SYNTH_LEN LLAMA_ARG_SPEC_SYNTH_RATES "
           "LLAMA_ARG_DRAFT_MAX LLAMA_ARG_DRAFT_MIN LLAMA_ARG_DRAFT_P_MIN "
           "LLAMA_ARG_DRAFT_P_SPLIT",
           DRAFT),
    PASSED(WRITERS,
           "--spec-draft-backend-sampling --no-spec-draft-backend-sampling "
           "--spec-default",
           NULL, "LLAMA_ARG_SPEC_DRAFT_BACKEND_SAMPLING", DRAFT),

    /* ---- llama-bench ---- */
    WORKS(BENCHES, "-p --n-prompt", "8", NULL, NULL),
    WORKS(BENCHES, "-n --n-gen", "8", NULL, NULL),
    WORKS(BENCHES, "-pg", "8,4", NULL, NULL),
    WORKS(BENCHES, "-d --n-depth", "8", NULL, NULL),
    WORKS(BENCHES, "-r --repetitions", "2", NULL, NULL),
    WORKS(BENCHES, "-o --output", "sql", NULL, NULL),
    REFUSED(BENCHES, "-oe --output-err", "md", NULL,
            "give the form with -o, and redirect standard output"),
    PASSED(BENCHES, "--delay", "1", NULL,
           "rounds alternate, so no test runs hotter"),
    PASSED(BENCHES, "--n-gen-warmup", "1", NULL, "bench always warms up"),
    PASSED(BENCHES, "--progress", NULL, NULL, "progress is shown on terminals"),
};
const int n_llama_option = sizeof(llama_options) / sizeof(llama_options[0]);
