/* The command as its users run it: its output, exit status and error messages
 * are right. The engine has tests of its own; here its results are only
 * compared with each other. */
#include "gguf/gguf.h"
#include "lib/command.h"
#include "lib/support.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- help --------------------------------------------------------------- */

static const char *const commands[] = {
    "run",      "plan",   "inspect", "devices", "perplexity", "logits",
    "tokenize", "render", "bench",   "synth",   "quantize"};
enum { N_COMMANDS = sizeof(commands) / sizeof(commands[0]) };

/* Runs the line after "example:" of a help text, without its indentation. */
static void run_example(const char *help_line)
{
    struct ran help = sh(0, help_line);
    char *example;

    assert_string_equal(help.err, "");
    example = strstr(help.out, "\nexample:\n  ");
    if (example == NULL)
        fail_msg("%s has no example", help_line);
    example += strlen("\nexample:\n  ");
    example[strcspn(example, "\n")] = '\0';
    if (strncmp(example, "mpirun ", 7) == 0)
        return; /* needs MPI: test_cli_machines.c runs such lines */
    sh(0, example);
}

TEST(cli_every_help_has_an_example_that_works)
{
    run_example("plait --help");
    for (int i = 0; i < N_COMMANDS; i++) {
        char line[64];

        snprintf(line, sizeof(line), "plait %s --help", commands[i]);
        run_example(line);
    }
}

/* Checks that no line before the example, which may be of any length, has more
 * than 80 bytes. */
static void must_fit(struct ran r)
{
    *strstr(r.out, "\nexample:") = '\0';
    for (const char *s = r.out; *s != '\0'; s += strcspn(s, "\n") + 1)
        assert_in_range(strcspn(s, "\n"), 0, 80);
}

TEST(cli_help_fits_a_screen_and_names_every_command)
{
    for (int i = 0; i < N_COMMANDS; i++) {
        char line[64];
        struct ran r = sh(0, "plait --help");
        int n = 0;

        assert_non_null(strstr(r.out, commands[i]));
        snprintf(line, sizeof(line), "plait %s -h", commands[i]);
        r = sh(0, line);
        for (const char *s = r.out; *s != '\0'; s += strcspn(s, "\n") + 1)
            n++;
        assert_in_range(n, 5, 40);
        must_fit(r);
        snprintf(line, sizeof(line), "plait %s --help-all", commands[i]);
        must_fit(sh(0, line));
    }
    must_fit(sh(0, "plait --help"));
    must_fit(sh(0, "plait --help-all"));
}

TEST(cli_version_is_one_line)
{
    static const char *const lines[] = {"plait --version", "plait version",
                                        "plait -V"};

    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        struct ran r = sh(0, lines[i]);

        assert_int_equal(strncmp(r.out, "plait ", 6), 0);
        assert_int_equal(strcspn(r.out, "\n"), r.n_out - 1);
    }
}

TEST(cli_help_is_a_command_too)
{
    static const char *const pairs[][2] = {
        {"plait help", "plait --help"},
        {"plait help plan", "plait plan --help"},
        {"plait --help logits", "plait logits --help"},
        {"plait run --help me -x", "plait run --help"},
        {"plait --help-all serve", "plait serve --help-all"},
        {"plait run -c 5 --help-all -x", "plait run --help-all"},
    };

    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        struct ran a = sh(0, pairs[i][0]), b = sh(0, pairs[i][1]);

        assert_string_equal(a.out, b.out);
    }
}

/* ---- mistakes ----------------------------------------------------------- */

struct mistake {
    const char *line, *says;
};

static void must_refuse(const struct mistake *m, size_t n, int code)
{
    for (size_t i = 0; i < n; i++) {
        struct ran r = sh(code, m[i].line);

        must_say(r, m[i].says);
        if (r.n_out > 0)
            fail_msg("%s\n  wrote to standard output: %.200s", m[i].line,
                     r.out);
    }
}
#define MUST_REFUSE(list, code)                                                \
    must_refuse(list, sizeof(list) / sizeof((list)[0]), code)

TEST(cli_usage_errors_exit_2_and_name_option_and_remedy)
{
    static const struct mistake list[] = {
        {"plait", "--help"},
        {"plait sing", "\"sing\""},
        {"plait plann", "did you mean `plait plan`?"},
        {"plait help insepct", "did you mean `plait inspect`?"},
        {"plait models/heldout.txt", "is a file, not a command"},
        {"plait " MODEL "-p x", "no command before -m; `plait run` takes"},
        {"plait " MODEL "--tokens 1 -o f", "`plait logits` takes"},
        {"plait --json " MODEL, "`plait plan` takes"},
        {"plait", "`plait run -m FILE` chats with a model"},
        {"plait chat", "did you mean `plait run`?"},
        {"plait pull", "did you mean `plait run -hf USER/REPO`?"},
        {"plait show", "did you mean `plait inspect`?"},
        {"plait models", "unknown command \"models\"; `plait --help`"},
        {"plait --verison", "did you mean --version?"},
        {"plait --hepl", "did you mean --help?"},
        {"plait run -hf", "-hf needs a value: -hf USER/REPO"},
        {"plait run", "or download one with -hf USER/REPO, and a text with -p"},
        {"plait serve", "no model; give one with -m FILE, or download one"},
        {"plait perplexity", "no model; give one with -m FILE"},
        {"plait devices x", "\"x\"; options begin with a dash\n"},
        {"plait -frob", "no command before -frob; `plait --help`"},
        {"plait run models/fable-moe-Q8_0.gguf -p x",
         "-m models/fable-moe-Q8_0.gguf"},
        {"plait run " MODEL, "no text: standard input is empty"},
        {"plait run " MODEL "-p x --state-save -", "name a file"},
        {"plait run " MODEL "-p x --state-load -", "/dev/stdin"},
        {"plait run " MODEL "-p x --trace -", "name a file"},
        {"plait plan " MODEL "--json --svg -", "both write to standard output"},
        {"plait plan " MODEL "--json --dump order",
         "--dump and --json both write to standard output"},
        {"plait plan " MODEL "--dump foo",
         "there is no pass 'foo'; passes are specialize, place, transfer, "
         "order, events, buffers and messages"},
        {"plait logits " MODEL "--tokens 1 -o - --trace -", "file of -o"},
        {"plait run " MODEL "-p x -dev Vulkan0,Vulkan1",
         "\"Vulkan0\": unknown type; use cpu, "},
        {"plait run " MODEL "-p x -dev Metal", "`plait devices` lists"},
        {"plait run " MODEL "-p x -c $(seq -s 0 1 300)", "...: give a whole"},
        {"plait run " MODEL "-p x -ncmoe $(seq -s x 1 300)", "...\": give a"},
        {"plait run " MODEL "-p x -ngl \"$(printf '\\033[31m\\377')\"",
         "-ngl \\x1b[31m\\xff: give"},
        {"plait run " MODEL "-p x $(seq -s x 1 300)", "...\""},
        {"plait run", "-p TEXT"},
        {"plait run -p x", "-m FILE"},
        {"plait run " MODEL "-p", "-p TEXT"},
        {"echo x >y; plait run " MODEL "-p x -f y", "leave one out"},
        {"plait run " MODEL "-p x y", "\"y\""},
        {"plait run " MODEL "-p x --json", "`plait plan`"},
        {"plait run " MODEL "-p x --special=1", "takes no value"},
        {"plait run " MODEL "-p x -c banana", "-c banana"},
        {"plait run " MODEL "-p x -c 12x", "-c 12x"},
        {"plait run " MODEL "-p x -c ' 12'", "whole number"},
        {"plait run " MODEL "-p x -c ''", "whole number"},
        {"plait run " MODEL "-p x -c 0x10", "whole number"},
        {"plait run " MODEL "-p x -n -3", "-2 to"},
        {"plait run " MODEL "-p x -n 99999999999999999999", "-2 to"},
        {"plait run " MODEL "-p x --temp nan", "number"},
        {"plait run " MODEL "-p x --temp 0x1p3", "number"},
        {"plait run " MODEL "-p x --top-p 1.5", "from 0 to 1"},
        {"plait run " MODEL "-p x -s -2", "-1 for any"},
        {"plait run " MODEL "-p x --ranks 65", "from 1 to 64"},
        {"plait run " MODEL "-p x -ts 3,,1", "like 3,1"},
        {"plait run " MODEL "-p x -ts 0,0", "not all 0"},
        {"plait run " MODEL "-p x -ts 3,-1", "like 3,1"},
        {"plait run " MODEL "-p x -dev 'cpu*2' -ts 1,2,3", "3"},
        {"plait run " MODEL "-p x -sm hybrid", "hybrid:N"},
        {"plait run " MODEL "-p x -sm hybrid:0", "hybrid:N"},
        {"plait run " MODEL "-p x -sm columns", "tensor"},
        {"plait run " MODEL "-p x -sm hybrid:1025", "1 to 1024"},
        {"plait run " MODEL "-p x -mg -1", "from 0"},
        {"plait run " MODEL "-p x -dev 'cpu*2' -mg 2", "(-mg) is 2"},
        {"plait run " MODEL "-p x -dev 'cpu*2' -ts 1", "1 share for 2 devices"},
        {"plait devices -dev cpu", "-dev selects the devices of --measure"},
        {"plait run " MODEL "-p x -dev ''", "-dev \"\": give a value: LIST"},
        {"plait run " MODEL "-p x -dev emu", /* only tests have it */
         "use cpu, sim, proc, gpu, cuda, hip, opencl, or none"},
        {"plait run " MODEL "-p x -t 257", "from 1 to 256"},
        {"plait run " MODEL "-p x -ub 65537", "from 1 to 65536"},
        {"plait plan " MODEL "-dev cpu --device-spec gpu:1GiB:1TB/s",
         "leave one out"},
        {"plait run " MODEL "-p x --state-save .", "a directory; give"},
        {"plait run " MODEL "-p x --convert", "--state-load FILE"},
        {"cp models/fable-moe-Q8_0.gguf mine; ln -sf mine other; "
         "plait logits -m mine --tokens 1 -o other",
         "-o other would overwrite the file of -m"},
        {"plait plan -m mine --svg mine", "--svg mine"},
        {"plait logits " MODEL "--tokens 1 -o new --trace new", "file of -o"},
        {"plait run " MODEL "-p x -ngl -2", "auto or all"},
        {"plait run " MODEL "-p x -ngl some", "auto or all"},
        {"plait run " MODEL "-p x -ot exps", "REGEX=WHERE"},
        {"plait run " MODEL "-p x --op-offload yes", "auto, on or off"},
        {"plait run " MODEL "-p x -fit maybe", "on or off"},
        {"plait run " MODEL "-p x --numerics quick", "exact or fast"},
        {"plait run " MODEL "-p x --fit-ctx 0", "from 1"},
        {"plait run " MODEL "-p x --fit-margin 1024,512", "2GiB"},
        {"plait run " MODEL "-p x --fit-margin 5XB", "2GiB"},
        {"plait run " MODEL "-p x -ctk q4_k", "bf16, q8_0, q5_1"},
        {"plait run " MODEL "-p x -l 5", "ID+VALUE"},
        {"plait run " MODEL "-p x -l 5+inf", "ID+VALUE"},
        {"PLAIT_CPU=abacus plait run " MODEL "-p x", "abacus"},
        {"plait run " MODEL "-i -p -", "standard input"},
        {"plait logits " MODEL "-o x", "--tokens"},
        {"plait logits " MODEL "--tokens 1", "-o FILE"},
        {"plait logits " MODEL "-o x --tokens 1,two", "\"two\""},
        {"plait logits " MODEL "-o x --tokens -1", "\"-1\""},
        {"printf '7 \\377\\033[31m\\000x,8' >junk; plait logits " MODEL
         "-o x --tokens @junk",
         "\"\\xff\\x1b[31m\\x00x\" in the file"},
        {"plait logits " MODEL "-o x --tokens 1,abcdefghijklmnopqrstuvwxyz",
         "\"abcdefghijklmnopqrst...\" is"},
        {"plait logits " MODEL "-o x --tokens ,", "at least one"},
        {"plait logits " MODEL "-o x --tokens 4096", "4095"},
        {"plait logits " MODEL "-o . --tokens 1", "a directory; give the name"},
        {"plait perplexity " MODEL, "-f FILE"},
        {"plait inspect", "no file"},
        {"plait inspect ''", "no file"},
        {"plait run " MODEL "-p x --temp 1e30", "from 0 to 1000"},
        {"plait run " MODEL "-p x --repeat-penalty 0", "from 0.001 to 1000"},
        {"plait logits " MODEL "--tokens @ -o x", "name a file after the @"},
        {"plait run " MODEL "-p x -l 99999+1", "ids go from 0 to 4095"},
        {"plait tokenize -p x", "-m FILE"},
        {"echo >x; plait render --messages x", "-m FILE"},
        {"plait render " MODEL, "--messages FILE"},
    };

    MUST_REFUSE(list, 2);
}

TEST(cli_llama_cpp_options_are_refused_by_name)
{
    static const struct mistake list[] = {
        {"plait run -dr a/b", "-hf"},
        {"plait run --lora a.gguf", "merge the adapter"},
        {"plait run --list-devices", "plait devices"},
        {"plait serve --context-shift", "a full context ends the text"},
        {"LLAMA_ARG_LORA=a plait serve -m x", "LLAMA_ARG_LORA=a: --lora"},
        {"LLAMA_ARG_CTX_SIZE= plait serve -m x",
         "LLAMA_ARG_CTX_SIZE=: as the value of -c, give a whole number"},
        {"LLAMA_ARG_SPLIT_MODE=rows plait run -m x",
         "LLAMA_ARG_SPLIT_MODE=rows: as the value of -sm, give none"},
        {"LLAMA_ARG_NO_WEBUI=1 LLAMA_ARG_PORT=x plait serve -m x",
         "LLAMA_ARG_PORT=x: as the value of --port, give"},
        {"LLAMA_ARG_WEBUI_MCP_PROXY=1 plait serve -m x",
         "LLAMA_ARG_WEBUI_MCP_PROXY=1: --ui-mcp-proxy of llama.cpp"},
        {"plait serve -m x -s 9223372036854775808", "to 2^63 - 1"},
    };

    MUST_REFUSE(list, 2);
}

TEST(cli_takes_placement_options)
{
    static const char *const list[] = {
        "plait plan " MODEL "-dev 'cpu*2' -sm tensor -mg 1 -ngl all "
        "--op-offload off -fit on --fit-ctx 512 --fit-margin 64",
        "plait plan " MODEL "-dev 'cpu*2' -sm auto -ngl auto -ngl -1 "
        "--op-offload=auto --fit=off -fitc 512 -fitt 1.5GB",
    };

    for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++)
        sh(0, list[i]);
}

/* There is one warning, however many devices and engines it applies to. */
TEST(cli_warns_of_threads_that_share_a_core)
{
#define WARNINGS " 2>&1 | grep -c 'share a core'; "
    static const char line[] =
        "c=$(sed -n 's/^Cpus_allowed_list:[^0-9]*\\([0-9]*\\).*/\\1/p' "
        "/proc/self/status); "
        "plait plan " MODEL "-dev cpu:$c -t 1" WARNINGS "plait plan " MODEL
        "-dev cpu:$c,cpu:$c -t 2" WARNINGS
        "plait bench --shape tiny --no-limits -r 1 -p 2 -n 2 -dev cpu:$c "
        "-t 1,2 -ctk f16,q8_0" WARNINGS "plait plan " MODEL
        "-dev cpu:$c -t 2 >/dev/null";
#undef WARNINGS
    struct ran r = sh(0, line);

    assert_string_equal(r.out, "0\n1\n1\n");
    must_say(r, "-t 2: cpu");
    must_say(r, " has 1 core, and threads that share a core wait for each "
                "other; use -t 1 or less");
}

TEST(cli_overrides_of_keys_reach_every_command)
{
#define YARN "--rope-scaling yarn --rope-scale 4 --yarn-orig-ctx 512 "
#define BOS  "--override-kv tokenizer.ggml.add_bos_token=bool:true "
    static const struct mistake list[] = {
        {"plait run " MODEL "-p x --yarn-orig-ctx 9", "changes nothing"},
        {"plait logits " MODEL "--tokens 1 -o x --override-kv a=int:1",
         "override of key a changes nothing"},
        {"plait perplexity " MODEL "-p x --override-kv a=int:1", "key a"},
        {"plait bench " MODEL "--override-kv a=int:1", "key a"},
        {"plait serve " MODEL "--override-kv a=int:1", "key a"},
        {"plait plan " MODEL "--override-kv a", "give KEY=TYPE:VALUE"},
        {"plait plan " MODEL "--rope-scaling wide", "none, linear or yarn"},
        {"plait plan " MODEL "--rope-scale 0", "a number from 1e-06"},
    };

    MUST_REFUSE(list, 2);
    assert_non_null(strstr(sh(0, "plait plan " MODEL "-c 0 " YARN).out,
                           "cache     2048 tokens of context"));
    assert_non_null(strstr(sh(0, "plait inspect models/fable-moe-Q8_0.gguf "
                                 "--rope-scale 4")
                               .out,
                           "4  (override)"));
    assert_string_equal(
        sh(0, "plait tokenize " MODEL BOS "-p x --ids | cut -d' ' -f1").out,
        "4093\n");
    assert_string_equal(sh(0,
                           "plait run " MODEL YARN "-c 2048 -p x -n 2 2>&1 | "
                           "grep -c 'was trained on'; true")
                            .out,
                        "0\n");
    assert_string_equal(
        sh(0, "echo '[]' | plait render " MODEL "--messages - "
              "--override-kv 'tokenizer.chat_template=str:{{ eos_token }}'")
            .out,
        "<|im_end|>");
#undef BOS
#undef YARN
}

TEST(cli_slips_are_answered_with_the_nearest_option)
{
    static const struct mistake list[] = {
        {"plait run --tempp 1", "did you mean --temp?"},
        {"plait run --tpo-k 1", "did you mean --top-k?"},
        {"plait run --ignore-eso", "did you mean --ignore-eos?"},
        {"plait plan --devcie cpu", "did you mean --device?"},
        {"plait run --frobnicate", "--help"},
    };

    MUST_REFUSE(list, 2);
}

TEST(cli_failures_exit_1_and_name_the_thing)
{
    static const struct mistake list[] = {
        {"plait run -m absent.gguf -p x", "absent.gguf"},
        {"plait plan -m absent.gguf", "absent.gguf"},
        {"plait inspect absent.gguf", "absent.gguf"},
        {"plait inspect .", "."},
        {"rm -f fifo; mkfifo fifo; plait inspect fifo", "not a regular file"},
        {"plait plan -m fifo", "not a regular file"},
        {"plait run " MODEL "-p x --state-load fifo", "fifo"},
        {"plait run " MODEL "-p x --state-load /dev/zero", "not a state"},
        {"ulimit -t 60; plait tokenize " MODEL "-f /dev/zero", "256 MiB"},
        {"ulimit -t 60; plait run " MODEL "-p - </dev/zero", "256 MiB"},
        {"ulimit -t 60; plait run " MODEL "-i </dev/zero", "16 MiB"},
        {"ulimit -t 60; plait logits " MODEL "-o x --tokens @/dev/zero",
         "256 MiB"},
        {"plait run " MODEL "-i <.", "reading standard input"},
        {"plait tokenize " MODEL "<&-", "reading standard input"},
        {"plait plan -m $(seq -s x 1 2000)", "File name too long"},
        {"plait run " MODEL "-f \"$(printf 'a\\033b')\"",
         "-f a\\x1bb: No such"},
        {"HWLOC_COMPONENTS=abacus plait devices", "HWLOC_COMPONENTS=abacus"},
        {"plait inspect models/heldout.txt", "heldout.txt"},
        {"plait tokenize -m models/heldout.txt -p x", "heldout.txt"},
        {"plait run " MODEL "-f absent.txt", "absent.txt"},
        {"plait logits " MODEL "-o x --tokens @absent", "absent"},
        {"plait logits " MODEL "-o no/such/place --tokens 1", "no/such/place"},
        {"plait perplexity " MODEL "-p short", "smaller -c"},
        {"plait run " MODEL "-p x --no-display-prompt"
         " $(seq -f '-l %g-inf' 0 4095)",
         "no token can be sampled"},
        {"plait run " MODEL "-c 2 -p 'a longer prompt than that'", "-c 12"},
        {"plait run " MODEL "-p x --state-save no/such", "no/such"},
        {"PLAIT_LIBCUDA=no/cuda PLAIT_LIBHIP=no/hip OCL_ICD_VENDORS=no/such/ "
         "plait run " MODEL "-p x -dev gpu",
         "this machine has no usable GPU"},
        {"PLAIT_LIBCUDA=no/cuda plait run " MODEL "-p x -dev cuda:0",
         "no/cuda"},
        {"PLAIT_LIBHIP=no/hip plait run " MODEL "-p x -dev hip:0", "no/hip"},
        {"PLAIT_LIBCUDA=no/cuda plait run " MODEL "-p x -dev CUDA0", "no/cuda"},
        {"PLAIT_LIBHIP=no/hip plait run " MODEL "-p x -dev ROCm1,ROCm0",
         "no/hip"},
    };

    MUST_REFUSE(list, 1);
}

/* A longer context than the bundled model's 512 tokens of training gives a
 * warning. */
TEST(cli_contexts_are_held_against_what_the_model_was_trained_on)
{
    must_say(sh(0, "plait run " MODEL "-p x -n 1 -c 1000"),
             "-c 1000: the model was trained on 512 tokens, beyond which its "
             "output gets poor; use -c 512\n");
    must_say(sh(0, "plait run " MODEL "-p x --ignore-eos -c 70"),
             "the context of 70 tokens is full; use -c 140\n");
    must_say(sh(0, "plait run " MODEL "-p x --ignore-eos -c 300"),
             "is full; use -c 512, all that the model was trained on\n");
    must_say(sh(0, "plait run " MODEL "-p x --ignore-eos"),
             "the context of 512 tokens is full; use -c 1024, but expect poor "
             "output beyond the 512 tokens that the model was trained on\n");
}

/* Errors that need no model are found before it is loaded, which would fail for
 * want of memory here, and are one line. */
TEST(cli_options_are_judged_before_a_model_loads)
{
#define RUN   "PLAIT_MEMORY=1MiB:1MiB plait run " MODEL
#define SERVE "PLAIT_MEMORY=1MiB:1MiB plait serve " MODEL "--port 0 "
    static const struct {
        const char *line;
        int code;
        const char *says;
    } list[] = {
        {SERVE "--chat-template none", 2, "neither the text of a template nor"},
        {SERVE "--chat-template lama3", 2,
         "lama3: unknown name; did you mean "
         "llama3?"},
        {SERVE "--chat-template '{{ x'", 2, "--chat-template: template line 1"},
        {SERVE "--template no", 1, "--template no: No such file or directory"},
        {"echo '{% if %}' >t; " SERVE "--template t", 2,
         "--template t: template line 1"},
        {SERVE "--kwargs 3", 2, "not a JSON object"},
        {SERVE "--grammar x", 2, "cannot load: --grammar: line 1"},
        {SERVE "--grammar-file no", 1, "--grammar-file no: No such file"},
        {SERVE "-j '{'", 2, "--json-schema: string or '}' expected"},
        {SERVE "-j '{\"type\": 3}'", 2, "cannot load: --json-schema: #: type"},
        {"echo '[' >j; " SERVE "-jf j", 2, "--json-schema-file j: "},
        {SERVE "--grammar x -j '{}'", 2, "exclude one another"},
        {SERVE "--slot-save-path no", 1, "--slot-save-path no: No such file"},
        {"echo >f; " SERVE "--slot-save-path f", 1, "f: Not a directory"},
        {SERVE "--cache-dir no/such", 1,
         "no/such: No such file or directory; "
         "create its parent"},
        {SERVE "--api-key-file no", 1, "--api-key-file no: No such file"},
        {SERVE "--ssl-cert-file no --ssl-key-file no", 1,
         "--ssl-cert-file no: "},
        {SERVE "--ssl-cert-file models/heldout.txt", 2, "give both"},
        {SERVE "--models-preset no", 1, "--models-preset no: No such file"},
        {SERVE "--models-dir no", 1, "reading the directory no: "},
        {SERVE "--host 192.0.2.1", 1, "cannot listen on 192.0.2.1"},
        {SERVE "--api-prefix x", 2, "must start with a slash"},
        {"plait serve -m absent --port 0", 1,
         "absent: No such file or directory; check the path, or download a "
         "model with -hf USER/REPO\n"},
        {"plait serve -m . --port 0", 1, "or serve all with --models-dir"},
        {RUN "-i --kwargs 3", 2, "not a JSON object"},
        {RUN "-i --reasoning on", 2, "no switch for it"},
        {RUN "-i -sysf no", 1, "-sysf no: No such file"},
        {RUN "-i -sys \"$(printf '\\377')\"", 2, "not valid UTF-8"},
        {RUN "-p x --grammar x", 2, "--grammar: line 1"},
        {RUN "-p x --state-load no", 1, "--state-load no: No such file"},
        {"plait run -m absent", 1, "absent: No such file"},
        {"plait bench " MODEL "-m absent", 1, "absent: No such file"},
    };

    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        struct ran r = sh(list[i].code, list[i].line);
        const char *end = strchr(r.err, '\n');

        must_say(r, list[i].says);
        if (!end || end[1] != '\0')
            fail_msg("%s\n  says more than a line: %s", r.line, r.err);
    }
    /* with valid options the command fails for lack of memory, so the wrong
     * ones were found before that */
    must_say(sh(1, SERVE), "does not fit");
#undef RUN
#undef SERVE
}

TEST(cli_writes_that_fail_exit_1)
{
    static const char *const list[] = {
        "plait inspect models/fable-moe-Q8_0.gguf >/dev/full",
        "plait devices >/dev/full",
        "plait plan " MODEL ">/dev/full",
        "plait run " MODEL "-p x -n 2 >/dev/full",
        "plait run " MODEL "-p x -n 2 >&-",
        "plait plan " MODEL "--svg /dev/full",
        "plait plan " MODEL "--svg - >/dev/full",
        "plait run " MODEL "-p x -n 2 --trace /dev/full",
        "plait logits " MODEL "--tokens 1 -o - >/dev/full",
        "plait tokenize " MODEL "-p x >/dev/full",
        "plait logits " MODEL "--tokens 1 -o /dev/full",
        "plait --help >/dev/full",
        "(ulimit -f 1; plait logits " MODEL "--tokens 1,2,3 -o limited)",
        "(ulimit -f 1; plait run " MODEL "-p x -n 2 --state-save limited.kv "
        ">/dev/null); code=$?; "
        "ls limited.kv* >/dev/null 2>&1 && exit 99; exit $code",
    };

    if (access("/dev/full", W_OK) != 0)
        TEST_SKIP("there is no /dev/full");
    for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++)
        sh(1, list[i]);
}

/* The old file stays if the new one cannot be written, and no part of that is
 * left. */
TEST(cli_files_appear_whole_or_not_at_all)
{
#define KEPT                                                                   \
    "; code=$?; test \"$(cat kept)\" = old || exit 98; "                       \
    "ls kept.* >/dev/null 2>&1 && exit 99; exit $code"
    static const char *const fails[] = {
        "echo old >kept; (ulimit -f 8; plait logits " MODEL
        "--tokens 1,2,3 -o kept)" KEPT,
        "echo old >kept; plait logits " MODEL
        "--tokens 1 -o kept -dev sim:1KiB -fit off" KEPT,
        "echo old >kept; (ulimit -f 2; plait plan " MODEL
        "--svg kept >/dev/null)" KEPT,
        "echo old >kept; (ulimit -f 2; plait run " MODEL
        "-p x -n 5 --ignore-eos --trace kept >/dev/null)" KEPT,
    };
#undef KEPT
    static const char good[] =
        "rm -f link kept; ln -s kept link && echo old >kept && chmod 640 kept "
        "&& plait logits " MODEL "--tokens 1 -o link && test -L link && "
        "test $(stat -c %a kept) = 640 && test $(stat -c %s kept) = 16384 && "
        "umask 027 && plait plan " MODEL "--svg new.svg >/dev/null && "
        "test $(stat -c %a new.svg) = 640 && grep -q '</svg>' new.svg && "
        "plait run " MODEL "-p x -n 2 --trace new.trace >/dev/null && "
        "test \"$(tail -c 3 new.trace | tr -d '\\n')\" = ]}";

    for (size_t i = 0; i < sizeof(fails) / sizeof(fails[0]); i++)
        sh(1, fails[i]);
    sh(0, good);
}

TEST(cli_dash_is_standard_output)
{
    static const char line[] =
        "plait logits " MODEL "--tokens 1,2 -o named && "
        "plait logits " MODEL "--tokens 1,2 -o - | cmp - named && "
        "plait plan " MODEL
        "--device-spec gpu:1GiB:1TB/s --svg named >/dev/null && "
        "plait plan " MODEL
        "--device-spec gpu:1GiB:1TB/s --svg - | cmp - named && test ! -e ./-";
    sh(0, line);
}

/* A message must not be written to a file that got the number of a closed
 * descriptor. */
TEST(cli_closed_descriptors_stay_closed)
{
    static const char line[] =
        "plait run " MODEL "-p x -n 2 -s 1 --state-save a.kv >/dev/null && "
        "plait run " MODEL
        "-p x -n 2 -s 1 --state-save b.kv >/dev/null 2>&- && "
        "cmp a.kv b.kv && "
        "plait logits " MODEL "--tokens 1 -o a.bin && "
        "plait logits " MODEL "--tokens 1 -o b.bin -v <&- >&- 2>&- && "
        "cmp a.bin b.bin";
    sh(0, line);
}

/* ---- run ---------------------------------------------------------------- */

TEST(cli_run_prints_the_text_alone)
{
#define LINE "plait run " MODEL "-p 'Once upon a time' -n 12 --temp 0"
    struct ran whole, rest, piped;
    const size_t n = strlen("Once upon a time");

    whole = sh(0, LINE);
    rest = sh(0, LINE " --no-display-prompt");
    piped = sh(0, "echo 'Once upon a time' | plait run " MODEL
                  "-p - -n 12 --temp 0 -dev 'cpu*2' -sm row");
    assert_int_equal(strncmp(whole.out, "Once upon a time", n), 0);
    assert_string_equal(whole.out + n, rest.out);
    assert_true(rest.n_out > 12);
    assert_int_equal(strncmp(piped.out, "Once upon a time", n), 0);
    must_say(whole, "generation      12 tokens");
    must_say(whole, "t/s");
    must_say(piped, "treated as tensor");
#undef LINE
}

TEST(cli_run_takes_what_is_piped_in)
{
    struct ran given = sh(0, "plait run " MODEL "-p 'Once upon' -n 6 --temp 0");
    struct ran piped =
        sh(0, "echo 'Once upon' | plait run " MODEL "-n 6 --temp 0");

    assert_string_equal(given.out, piped.out);
}

TEST(cli_run_escapes_in_p_alone)
{
    struct ran r = sh(0, "plait run " MODEL "-p 'a\\n\\tb\\x41\\q' -n 0");
    struct ran raw = sh(0, "plait run " MODEL "-p 'a\\n' --no-escape -n 0");

    assert_string_equal(r.out, "a\n\tbA\\q");
    assert_string_equal(raw.out, "a\\n");
}

TEST(cli_run_one_seed_gives_one_text)
{
#define LINE "plait run " MODEL "-p 'The king' -n 16 "
    struct ran a = sh(0, LINE "-s 7");
    struct ran b = sh(0, LINE "-s 7 -t 1 -ub 1");
    struct ran c = sh(0, LINE "--temp 5 --top-k 0 --top-p 1 --min-p 0 -s 7");
    struct ran d = sh(0, LINE "--temp 5 --top-k 0 --top-p 1 --min-p 0 -s 8");

    assert_string_equal(a.out, b.out);
    assert_string_not_equal(c.out, d.out);
    must_say(a, "seed        7\n");
    /* numbers below 0 turn filters off, and a drawn seed can be given again */
    d = sh(0, LINE "--temp 5 --top-k -1 --top-p 1 --min-p -1 --top-nsigma -1 "
                   "--xtc-probability -1 --dynatemp-range -1 -s 7");
    assert_string_equal(c.out, d.out);
#undef LINE
}

TEST(cli_run_ends_when_the_context_is_full)
{
    const char *line = "plait run " MODEL "-p x -c 64 --ignore-eos -s 1";
    struct ran r = sh(0, line);

    must_say(r, "is full");
    must_say(r, "-c 128");
    assert_string_equal(
        r.out,
        sh(0, "plait run " MODEL "-p x -c 64 --ignore-eos -s 1 -n -2").out);
}

TEST(cli_run_keeps_a_conversation)
{
    const char *line = "printf 'Once upon\\n a time\\n' | plait run " MODEL
                       "-i --no-template -n 4 --temp 0 --ignore-eos";
    struct ran r = sh(0, line);

    must_say(r, "generation       8 tokens");
    assert_int_equal(r.out[r.n_out - 1], '\n');
}

/* Two runs with a state between them write what one run does. Options that only
 * the second had, devices and steps, make no difference. */
TEST(cli_run_goes_on_from_a_state)
{
#define TEMP "-n 12 --temp 0 --ignore-eos --ranks 2 "
    static const char first[] =
        "plait run " MODEL TEMP "-p 'Once upon a time' --state-save saved";
    static const char second[] = "plait run " MODEL TEMP "-p ' and then' "
                                 "-dev 'cpu*2' -ub 7 -c 400 "
                                 "--state-load saved --state-save saved";
    static const char all[] = "plait run " MODEL TEMP "-p \"$(cat said)\"";
    static const char other[] = "plait run " MODEL "-p x -n 1 -ctk q8_0 "
                                "--state-load saved";
    static const char more[] = "plait run " MODEL "-p ' and more than that' "
                               "-c 33 --state-load saved";
#undef TEMP
    struct ran a, b, c;
    char *both = NULL;
    FILE *f;

    a = sh(0, first);
    b = sh(0, second);
    must_say(b, "state           16 tokens");
    assert_true(asprintf(&both, "%s and then", a.out) > 0);
    f = fopen(test_temp("said"), "wb");
    assert_true(f != NULL && fputs(both, f) >= 0 && fclose(f) == 0);
    c = sh(0, all);
    assert_memory_equal(c.out, a.out, a.n_out);
    assert_string_equal(c.out + a.n_out, b.out);
    free(both);
    a = sh(1, other);
    must_say(a, "--convert");
    a = sh(1, more);
    must_say(a,
             "the state and the prompt have 34 tokens, but the context has 33");
}

/* Several runs with states between them, of which only the first has a text,
 * write what one run does: penalties and spelling look back over all of it. */
TEST(cli_run_without_a_text_goes_on_from_the_last_token)
{
#define TEMP "--temp 0 --ignore-eos --repeat-penalty 1.3 "
    static const char *const lines[] = {
        "plait run " MODEL TEMP "-n 24 -p 'Once upon a time' "
        "--no-display-prompt",
        "plait run " MODEL TEMP "-n 0 -p 'Once upon a time' --state-save s "
        "--no-display-prompt",
        "plait run " MODEL TEMP "-n 9 -p '' --state-load s --state-save s",
        "plait run " MODEL TEMP "-n 14 --state-load s --state-save s "
        "-dev 'cpu*2' --ranks 1",
        "plait run " MODEL TEMP "-n 1 -f none --state-load s"};
#undef TEMP
    char all[1000], parts[1000] = "";

    snprintf(all, sizeof all, "%s", sh(0, lines[0]).out);
    sh(0, ": >none");
    for (size_t i = 1; i < sizeof lines / sizeof lines[0]; i++)
        strcat(parts, sh(0, lines[i]).out);
    assert_string_equal(parts, all);
    assert_non_null(strstr(sh(0, "plait inspect s").out, "\nnote "));
}

/* With fast numerics the plan is the same except for what depends on the bits:
 * the hash, the note about numerics, and states. */
TEST(cli_plan_tells_fast_numerics)
{
    struct ran r;
    char hash[17] = "";

    r = sh(0, "PLAIT_CPU=generic plait plan " MODEL);
    assert_non_null(strstr(r.out, ", kernels generic\n"));
    memcpy(hash, strstr(r.out, "numerics  ") + 10, 16);
    r = sh(0, "PLAIT_CPU=generic plait plan " MODEL "--numerics fast");
    assert_non_null(strstr(r.out, ", kernels generic, fast\n"));
    assert_null(strstr(r.out, hash));
    sh(0, "PLAIT_CPU=generic plait run " MODEL
          "-p Once -n 2 --ignore-eos --numerics fast --state-save fast");
    r = sh(0, "PLAIT_CPU=generic plait run " MODEL
              "-p x -n 2 --ignore-eos --state-load fast");
    must_say(r, "the state was computed with other numerics");
    r = sh(1, "PLAIT_CPU=reference plait run " MODEL "-p x --numerics fast");
    must_say(r, "cpu0 has no BF16 products");
    r = sh(1,
           "plait plan " MODEL "--numerics fast --device-spec gpu:24GiB:1TB/s");
    must_say(r, "gpu0 has no BF16 products");
}

TEST(cli_plan_draws_what_it_says)
{
    static const char line[] = "plait plan " MODEL "-dev 'cpu*2' -sm tensor "
                               "-cmoe --svg picture";
    struct ran r;
    char *svg;
    size_t n;

    r = sh(0, line);
    svg = test_read(test_temp("picture"), &n);
    assert_ptr_equal(strstr(svg, "<svg "), svg);
    assert_non_null(strstr(svg, "</svg>"));
    assert_string_equal(strstr(svg, "</svg>"), "</svg>\n");
    for (int i = 0; i < 3; i++) {
        static const char *const name[] = {"cpu0", "cpu1", "host"};

        assert_non_null(strstr(r.out, name[i]));
        assert_non_null(strstr(svg, name[i]));
    }
    free(svg);
}

TEST(cli_run_traces_every_device)
{
    static const char line[] = "plait run " MODEL "-p x -n 3 --ignore-eos "
                               "-dev 'sim*2' -sm tensor -cmoe --trace trace";
    bool seen[4] = {false};
    json_t *all, *events, *e;
    struct ran r;
    size_t i;

    r = sh(0, line);
    must_say(r, "of it hidden");
    all = json_load_file(test_temp("trace"), 0, NULL);
    assert_non_null(all);
    events = json_is_array(all) ? all : json_object_get(all, "traceEvents");
    assert_true(json_array_size(events) > 0);
    json_array_foreach (events, i, e) {
        json_int_t pid = json_integer_value(json_object_get(e, "pid"));

        assert_true(json_is_string(json_object_get(e, "name")));
        assert_in_range(pid, 0, 3); /* 0 to 2 are the devices, 3 is io */
        if (strcmp(json_string_value(json_object_get(e, "ph")), "X") == 0)
            seen[pid] = true;
    }
    assert_true(seen[0] && seen[1] && seen[2]);
    json_decref(all);
}

/* Starts the command with standard output in *out and standard error in the
 * temporary file "err". */
static pid_t start(int *out, const char *const *argv)
{
    int ends[2];
    const char *err = test_temp("err");
    pid_t pid;

    assert_int_equal(pipe(ends), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        int f = open(err, O_WRONLY | O_CREAT | O_TRUNC, 0600);

        dup2(ends[1], 1);
        dup2(f, 2);
        close(ends[0]);
        close(ends[1]);
        execv(command_path(), (char *const *)argv);
        _exit(127);
    }
    close(ends[1]);
    *out = ends[0];
    return pid;
}

static void endless(const char **argv)
{
    static const char *const words[] = {"plait", "run",   "-m",           NULL,
                                        "-p",    "x",     "-n",           "-1",
                                        "-c",    "65536", "--ignore-eos", NULL};

    memcpy(argv, words, sizeof(words));
    argv[3] = test_model();
}

TEST(cli_run_interrupted_exits_130_with_the_summary)
{
    const char *argv[16];
    char text[64], *said;
    int out, status;
    size_t n;
    pid_t pid;

    endless(argv);
    pid = start(&out, argv);
    /* The command has printed more than the prompt, so it is generating. */
    for (int i = 0; i < 3; i++)
        assert_true(read(out, text, sizeof(text)) > 0);
    kill(pid, SIGINT);
    while (read(out, text, sizeof(text)) > 0)
        ;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    close(out);
    assert_int_equal(command_status(status), 130);
    said = test_read(test_temp("err"), &n);
    assert_non_null(strstr(said, "generation"));
    free(said);
}

/* `| head` closes the pipe like this, and needs no message. */
TEST(cli_into_a_closed_pipe_ends_silently)
{
    static const char *const lines[] = {
        "plait --help", "plait plan " MODEL, "plait inspect " MODEL,
        "plait tokenize " MODEL "-p x",
        "plait logits " MODEL "--tokens 1 -o -"};
    const char *argv[16];
    size_t n;
    char *said;
    int out, status;
    pid_t pid;

    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        char line[400];
        struct ran r;

        snprintf(line, sizeof line,
                 "{ (trap '' PIPE; %s; echo $? >code); } | true; cat code",
                 lines[i]);
        r = sh(0, line);
        if (strcmp(r.out, "141\n") != 0 && strcmp(r.out, "0\n") != 0)
            fail_msg("%s: %s", lines[i], r.out);
        assert_string_equal(r.err, "");
    }
    endless(argv);
    pid = start(&out, argv);
    close(out);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(command_status(status), 141);
    said = test_read(test_temp("err"), &n);
    if (strstr(said, "Broken pipe"))
        fail_msg("it says: %s", said);
    free(said);
}

/* ---- render ------------------------------------------------------------- */

TEST(cli_render_prints_the_prompt_and_nothing_else)
{
    struct ran r = sh(0, "printf '%s' '{{ bos_token }}{{ messages[0].content "
                         "}}{% if tools %}T{% endif %}{{ x }}' >t.jinja && "
                         "echo '[{\"role\": \"user\", \"content\": \"é\"}]' "
                         ">m.json && echo '[{}]' >tools.json && plait render "
                         "--template t.jinja --messages m.json --tools "
                         "tools.json --kwargs '{\"x\": [1, 2.0]}'");

    assert_string_equal(r.out, "éT[1, 2.0]");
    assert_string_equal(r.err, "");
    r = sh(0, "echo '[{\"role\": \"user\", \"content\": \"Hi\"}]' | plait "
              "render " MODEL "--messages - --no-generation-prompt");
    assert_string_equal(r.out, "<|im_start|>user\nHi<|im_end|>\n");
}

TEST(cli_render_fails_where_the_template_raises)
{
    static const struct mistake list[] = {
        {"echo '{{ raise_exception(\"no images\") }}' >t.jinja; echo '[]' | "
         "plait render --template t.jinja --messages -",
         "template line 1: no images"},
        {"echo '{% if x %}' >t.jinja; echo '[]' | plait render --template "
         "t.jinja --messages -",
         "expected \"endif\""},
        {"echo '[' | plait render " MODEL "--messages -",
         "messages: invalid JSON"},
    };

    MUST_REFUSE(list, 1);
}

/* ---- tokenize, logits, perplexity --------------------------------------- */

TEST(cli_tokenize_pieces_join_to_the_text)
{
#define TEXT                                                                   \
    "\"It's\"\t\n\n d\xc3\xa9j\xc3\xa0 \\ \xf0\x9f\x90\x89 <|im_end|>\n"
    struct ran pieces, ids;
    char joined[256] = "";
    char listed[256] = "";
    size_t n = 0;
    FILE *f = fopen(test_temp("text"), "wb");

    fputs(TEXT, f);
    fclose(f);
    pieces = sh(0, "plait tokenize " MODEL "<text");
    ids = sh(0, "plait tokenize " MODEL "--ids -f text");
    for (char *s = pieces.out; *s != '\0';) {
        char *end = strchr(s, '\n');
        char *quote = strchr(s, '\'');

        assert_non_null(end);
        assert_non_null(quote);
        snprintf(listed + strlen(listed), sizeof(listed) - strlen(listed),
                 "%s%.*s", s == pieces.out ? "" : " ", (int)(quote - s - 1), s);
        for (char *c = quote + 1; c < end - 1; c++) {
            if (*c == '\\')
                c++, *c = *c == 'n' ? '\n' : *c == 't' ? '\t' : *c;
            joined[n++] = *c;
        }
        s = end + 1;
    }
    assert_string_equal(joined, TEXT);
    assert_non_null(strstr(listed, "4095"));
    ids.out[ids.n_out - 1] = '\0';
    assert_string_equal(ids.out, listed);

    ids = sh(0, "plait tokenize " MODEL "--ids --no-special <text");
    assert_null(strstr(ids.out, "4095"));
#undef TEXT
}

TEST(cli_logits_are_tokens_times_vocabulary_floats)
{
    struct ran r;
    char *a, *b;
    size_t n_a, n_b;

    r = sh(0, "plait logits " MODEL "--tokens 1,20,300,4000,5 -o a");
    assert_int_equal(r.n_out, 0);
    a = test_read(test_temp("a"), &n_a);
    assert_int_equal(n_a, 5 * 4096 * 4);
    r = sh(0, "printf '1 20\\n300,4000\\t5\\n' >ids; plait logits " MODEL
              "--tokens @ids -o b -ub 2 -t 1");
    b = test_read(test_temp("b"), &n_b);
    assert_int_equal(n_a, n_b);
    assert_memory_equal(a, b, n_a);
    free(a);
    free(b);
}

/* Computes the perplexity of one window from its n rows of v logits, by the
 * definition. */
static double perplexity_of(const float *logits, const int *id, int n, int v)
{
    double sum = 0.0;

    for (int i = n / 2; i < n - 1; i++) {
        double z = 0.0;

        for (int k = 0; k < v; k++)
            z += exp((double)logits[i * v + k] - logits[i * v + id[i + 1]]);
        sum += log(z);
    }
    return exp(sum / (n - 1 - n / 2));
}

TEST(cli_perplexity_is_that_of_the_logits)
{
    enum { N = 64, VOCAB = 4096 };
    struct ran r, ids;
    int id[N];
    int used = 0;
    double value, error;
    char *logits;
    size_t n;
    int n_window, window;

    r = sh(0, "head -c 2000 models/heldout.txt >text && plait perplexity " MODEL
              "-f text -c 64 --chunks 1");
    ids =
        sh(0, "plait tokenize " MODEL "--ids <text | cut -d' ' -f1-64 >ids && "
              "cat ids && plait logits " MODEL "--tokens @ids -o a");
    assert_int_equal(sscanf(r.out,
                            "perplexity: %lf +/- %lf (%d windows of %d)\n",
                            &value, &error, &n_window, &window),
                     4);
    assert_int_equal(n_window, 1);
    assert_int_equal(window, N);
    assert_true(error > 0.0 && error < value);
    for (int i = 0; i < N; i++) {
        int used_here = 0;

        assert_int_equal(sscanf(ids.out + used, "%d%n", &id[i], &used_here), 1);
        used += used_here;
    }
    logits = test_read(test_temp("a"), &n);
    assert_int_equal(n, N * VOCAB * 4);
    assert_true(fabs(perplexity_of((const float *)logits, id, N, VOCAB) -
                     value) < 1e-3);
    free(logits);

    r = sh(0, "plait perplexity " MODEL "-f text -c 64");
    assert_int_equal(sscanf(r.out,
                            "perplexity: %lf +/- %lf (%d windows of %d)\n",
                            &value, &error, &n_window, &window),
                     4);
    assert_in_range(n_window, 5, 12);
    assert_true(value > 4.0 && value < 200.0);
}

/* ---- plan, inspect, devices --------------------------------------------- */

TEST(cli_json_is_one_object_on_standard_output)
{
    static const struct {
        const char *line, *key;
    } list[] = {
        {"plait inspect models/fable-moe-Q8_0.gguf --json", "tensors"},
        {"plait plan " MODEL "-dev 'cpu*3' -ts 2,1,1 --json", "numeric_hash"},
        {"plait plan " MODEL "--device-spec 'gpu:24GiB:1TB/s*4' --json",
         "devices"},
        {"plait plan " MODEL "-ot $(printf '\\377')=host --json", "options"},
        {"plait devices --json", NULL},
    };

    for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
        struct ran r = sh(0, list[i].line);

        json_error_t e;
        json_t *j = json_loads(r.out, 0, &e);

        if (j == NULL)
            fail_msg("%s\n  line %d: %s", list[i].line, e.line, e.text);
        assert_true(json_is_object(j));
        if (list[i].key != NULL)
            assert_non_null(json_object_get(j, list[i].key));
        json_decref(j);
    }
}

TEST(cli_printed_options_give_the_same_plan)
{
    static const char quoted[] = "-sm tensor --op-offload on -ot ffn_up=host "
                                 "-ot \"it's [x y]=host,attn_q.w=cpu1\"";
    static const char *const asked[] = {
        quoted,
        "-sm layer -ts 2,1 -cmoe -nkvo --op-offload off",
        "-sm auto -ngl 3 -ot 'attn_[qk].w=host'",
    };

    for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++) {
        char line[1024];
        struct ran r;

        snprintf(line, sizeof line,
                 "same() { sed -e '/^estimate/d; /^  *from /d; /^pipeline/d; "
                 "/^predicted/,$d' $1; }; "
                 "plait plan " MODEL "-dev 'cpu*2' %s >plan.a && "
                 "eval \"plait plan " MODEL "-dev 'cpu*2' $(sed -n "
                 "'/^options/,/^numerics/{s/^options//;/^numerics/d;p}' plan.a"
                 " | tr '\\n' ' ')\" >plan.b && "
                 "same plan.a >plan.c && same plan.b | cmp - plan.c && "
                 "cat plan.c",
                 asked[i]);
        r = sh(0, line);
        assert_non_null(strstr(r.out, "options "));
        assert_non_null(strstr(r.out, "ffn_down_exps"));
    }
}

/* Writes a copy of the model with `v` in its last norm. */
static void write_damaged(const char *path, float v)
{
    const char *model = test_model();
    size_t n, at;
    char *bytes = test_read(model, &n);
    struct gguf *g;
    FILE *f = fopen(path, "wb");

    assert_non_null(f);
    assert_int_equal(gguf_open(&g, model, NULL), PL_OK);
    at = (size_t)gguf_find_tensor(g, "output_norm.weight")->offset;
    gguf_close(g);
    memcpy(bytes + at, &v, sizeof v);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
    free(bytes);
}

/* If the perplexity is NaN or infinite, the command prints an error and no
 * figure. */
TEST(cli_perplexity_of_damage_is_an_error)
{
    static const struct {
        float v;
        const char *says;
    } rows[] = {
        {NAN, "nan: the weights are damaged"},
        {INFINITY, "weights are damaged"},
        {1e9f, "the perplexity is inf"},
    };

    for (int i = 0; i < 3; i++) {
        static const char line[] =
            "head -c 2000 models/heldout.txt >text && "
            "plait perplexity -m damaged.gguf -f text -c 64 --chunks 1";
        struct ran r;

        write_damaged(test_temp("damaged.gguf"), rows[i].v);
        r = sh(1, line);
        must_say(r, rows[i].says);
        assert_string_equal(r.out, "");
    }
}
