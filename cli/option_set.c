/* Checks and stores the values of options. Rows of the option table contain
 * pointers to these functions, which have the type option_set_fn. */
#include "option_set.h"
#include "number.h"
#include "server/sampler_names.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *field(const struct option_use *u)
{
    return (char *)u->o + u->row->offset;
}

/* Rejects the value: writes which values are valid, and returns false. */
static bool __attribute__((format(printf, 2, 3)))
want(struct option_use *u, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(u->want, sizeof(u->want), fmt, ap);
    va_end(ap);
    return false;
}

/* Returns the options of the engine that the row is of. */
static pl_options *engine_options(const struct option_use *u)
{
    const size_t draft = offsetof(struct options, draft);

    return u->row->offset >= draft &&
                   u->row->offset < draft + sizeof(u->o->draft)
               ? &u->o->draft
               : &u->o->pl;
}

static bool no_room(struct option_use *u)
{
    return want(u, "fewer of these: out of memory");
}

/* ---- texts --------------------------------------------------------------- */

bool option_set_flag(struct option_use *u)
{
    *(bool *)field(u) = true;
    return true;
}

/* Stores the value of a text option, which may be empty. */
bool option_set_prompt(struct option_use *u)
{
    *(const char **)field(u) = u->value;
    return true;
}

bool option_set_text(struct option_use *u)
{
    return u->value[0] != '\0' ? option_set_prompt(u)
                               : want(u, "a value: %s", u->row->arg);
}

bool option_set_all_experts(struct option_use *u)
{
    *(const char **)field(u) = "all";
    return true;
}

/* Appends a text to a list. */
bool option_set_listed(struct option_use *u)
{
    if (u->value[0] == '\0')
        return want(u, "a value: %s", u->row->arg);
    return word_list_add(field(u), u->value) || no_room(u);
}

/* ---- numbers ------------------------------------------------------------- */

/* Parses a whole number and checks it against the limits of the row. */
static bool whole(struct option_use *u, const char *s, int64_t *v)
{
    const struct option_row *row = u->row;

    return (number_int64(s, v) && (double)*v >= row->lo &&
            (double)*v <= row->hi) ||
           want(u, "a whole number from %.0f to %.0f", row->lo, row->hi);
}

static bool number(struct option_use *u, double *v)
{
    return (number_double(u->value, v) && isfinite(*v) && *v >= u->row->lo &&
            *v <= u->row->hi) ||
           want(u, "a number from %g to %g", u->row->lo, u->row->hi);
}

bool option_set_int(struct option_use *u)
{
    int64_t v;
    bool ok = whole(u, u->value, &v);

    if (ok)
        *(int *)field(u) = (int)v;
    return ok;
}

/* Stores a whole number. 0 and -1 select the default, so they change
 * nothing. */
bool option_set_int_auto(struct option_use *u)
{
    return strcmp(u->value, "-1") == 0 || strcmp(u->value, "0") == 0 ||
           option_set_int(u);
}

bool option_set_int64(struct option_use *u)
{
    return whole(u, u->value, field(u));
}

/* Stores a limit of tokens. llama.cpp's -2, until the context is full, is -1
 * here, because a full context always ends the text. */
bool option_set_predict(struct option_use *u)
{
    int64_t v;
    bool ok = whole(u, u->value, &v);

    if (ok)
        u->o->n_predict = v < 0 ? -1 : v;
    return ok;
}

/* Stores a limit of reasoning in tokens. `plait run` has no limit, but can turn
 * reasoning off. */
bool option_set_budget(struct option_use *u)
{
    bool ok = option_set_int(u);

    if (ok && u->o->command == CMD_RUN && u->o->reasoning_budget > 0)
        return want(u, "0 or -1: `plait serve` keeps a budget, and here -n "
                       "limits the answer");
    return ok;
}

/* Stores the size of the context in tokens. 0 means the model's own context
 * length, except for perplexity and logits, where it means the command's
 * default. */
bool option_set_context(struct option_use *u)
{
    const enum command command = u->o->command;
    int64_t *n_ctx = field(u);

    if (!whole(u, u->value, n_ctx))
        return false;
    if (*n_ctx == 0 && command != CMD_PERPLEXITY && command != CMD_LOGITS)
        *n_ctx = PL_CTX_MODEL;
    return true;
}

bool option_set_uint64(struct option_use *u)
{
    return number_uint64(u->value, field(u)) ||
           want(u, "a whole number, 0 or more, below 2^64");
}

bool option_set_seed(struct option_use *u)
{
    uint64_t *seed = field(u);

    u->o->random_seed = strcmp(u->value, "-1") == 0;
    if (u->o->random_seed)
        return true;
    if (!number_uint64(u->value, seed) ||
        (u->o->command == CMD_SERVE && *seed > INT64_MAX))
        return want(u, "a whole number from 0 to 2^%d - 1, or -1 for any",
                    u->o->command == CMD_SERVE ? 63 : 64);
    u->o->random_seed = *seed == SAMPLER_ANY_SEED;
    return true;
}

bool option_set_float(struct option_use *u)
{
    double v;
    bool ok = number(u, &v);

    if (ok)
        *(float *)field(u) = (float)v;
    return ok;
}

/* Parses a size. Stores 1 for a size of 0, because in the fields 0 means the
 * default. */
bool option_set_bytes(struct option_use *u)
{
    uint64_t n;

    if (u->row->offset == offsetof(struct options, cache_ram) &&
        strcmp(u->value, "-1") == 0)
        n = UINT64_MAX;
    else if (!number_bytes(u->value, &n))
        return want(u, "a number of MiB, or with a unit, like 500MB or 2GiB");
    *(uint64_t *)field(u) = n > 0 ? n : 1;
    return true;
}

bool option_set_shares(struct option_use *u)
{
    struct options *o = u->o;
    bool ranks = u->row->offset == offsetof(struct options, rank_split);
    int most = ranks ? PL_MAX_RANKS : OPTION_MAX_DEVICES;
    double *share = ranks ? o->rank_split : o->split, sum = 0.0;
    int n = number_shares(u->value, share, most);

    for (int i = 0; i < n; i++)
        sum += share[i];
    if (ranks) {
        o->pl.rank_split = share;
        o->pl.n_rank_split = n;
    } else {
        o->pl.tensor_split = share;
        o->pl.n_tensor_split = n;
    }
    return (n > 0 && sum > 0.0 && isfinite(sum)) ||
           want(u, "shares, one per %s, at most %d, not all 0, like 3,1",
                ranks ? "rank" : "device", most);
}

/* Accepts a number of layers, "auto" or "all". Takes -1, which llama.cpp also
 * accepts, as "auto". */
bool option_set_gpu_layers(struct option_use *u)
{
    int64_t v;

    if (strcmp(u->value, "-1") == 0)
        u->value = "auto";
    if (strcmp(u->value, "auto") != 0 && strcmp(u->value, "all") != 0 &&
        !(number_int64(u->value, &v) && v >= 0))
        return want(u, "a whole number, 0 or more, auto or all");
    return option_set_prompt(u);
}

/* ---- words --------------------------------------------------------------- */

/* Returns the word on, off or auto for those that llama.cpp takes in its place,
 * else `word`. */
static const char *switch_word(const char *word)
{
    static const char *const same[][2] = {
        {"1", "on"},  {"true", "on"},   {"enabled", "on"},   {"-1", "auto"},
        {"0", "off"}, {"false", "off"}, {"disabled", "off"},
    };

    for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); i++)
        if (strcmp(word, same[i][0]) == 0)
            return same[i][1];
    return word;
}

/* Looks up a word among those of the row. Returns true and sets *out to its
 * index, or returns false and lists the words in u->want. */
static bool one_of(struct option_use *u, const char *word, int *out)
{
    const char *const *words = u->row->words;
    size_t n = 0;

    for (int i = 0; words[i] != NULL; i++)
        if (strcmp(words[i], "on") == 0)
            word = switch_word(word);

    for (int i = 0; words[i] != NULL; i++) {
        *out = i;
        if (strcmp(word, words[i]) == 0)
            return true;
        n += (size_t)snprintf(u->want + n, sizeof(u->want) - n, "%s%s",
                              i == 0                 ? ""
                              : words[i + 1] != NULL ? ", "
                                                     : " or ",
                              words[i]);
    }
    return false;
}

/* Stores the index of a word into a field whose type is an enumeration. */
bool option_set_word(struct option_use *u)
{
    int i;
    bool ok = one_of(u, u->value, &i);

    if (ok)
        memcpy(field(u), &i, sizeof(i));
    return ok;
}

/* Stores a pointer to a word of the row. For the first word, the default,
 * stores NULL. */
bool option_set_one_of(struct option_use *u)
{
    int i;
    bool ok = one_of(u, u->value, &i);

    if (ok)
        *(const char **)field(u) = i > 0 ? u->row->words[i] : NULL;
    return ok;
}

/* Stores a flag: false for the first of the row's two words, true for the
 * second. */
bool option_set_yes(struct option_use *u)
{
    int yes;
    bool ok = one_of(u, u->value, &yes);

    if (ok)
        *(bool *)field(u) = yes;
    return ok;
}

bool option_set_no_offload(struct option_use *u)
{
    int no;
    bool ok = one_of(u, u->value, &no);

    if (ok)
        u->o->pl.offload = no ? PL_OFFLOAD_OFF : PL_OFFLOAD_AUTO;
    return ok;
}

bool option_set_split_mode(struct option_use *u)
{
    struct options *o = u->o;
    int64_t n;

    if (strcmp(u->value, "row") == 0) {
        if (!u->quiet)
            cli_error(o->command, EXIT_DONE,
                      "-sm row is treated as tensor, which splits matrices by "
                      "rows or columns, whichever needs fewer collectives");
        u->value = "tensor";
    }
    if (strcmp(u->value, "hybrid:machine") == 0) {
        o->pl.hybrid_size = -1;
        o->pl.split_mode = PL_SPLIT_HYBRID;
        return true;
    }
    if (strncmp(u->value, "hybrid:", 7) == 0 &&
        number_int64(u->value + 7, &n) && n >= 1 && n <= OPTION_MAX_DEVICES) {
        o->pl.hybrid_size = (int)n;
        o->pl.split_mode = PL_SPLIT_HYBRID;
        return true;
    }
    for (int mode = 0; u->row->words[mode] != NULL; mode++)
        if (mode != PL_SPLIT_HYBRID &&
            strcmp(u->value, u->row->words[mode]) == 0) {
            o->pl.split_mode = (pl_split_mode)mode;
            return true;
        }
    return want(u,
                "none, layer, tensor, auto, hybrid:machine, or hybrid:N with "
                "groups of N devices, 1 to %d",
                OPTION_MAX_DEVICES);
}

/* Stores the sources of drafts, names separated by commas. */
bool option_set_sources(struct option_use *u)
{
    bool passed;

    u->o->drafts_given = true;
    if (!pl_draft_sources_parse(u->value, &u->o->drafts.limits.sources,
                                &passed))
        return want(u, PL_DRAFT_SOURCES);
    if (passed && !u->quiet)
        cli_error(u->o->command, EXIT_DONE,
                  "--spec-type %s: passing over types that are not here; "
                  "drafts change the speed alone",
                  u->value);
    return true;
}

bool option_set_cache_format(struct option_use *u)
{
    static const pl_format formats[] = {PL_F16,  PL_F32,  PL_BF16,
                                        PL_Q8_0, PL_Q5_1, PL_Q5_0,
                                        PL_Q4_1, PL_Q4_0, PL_IQ4_NL};
    pl_options *pl = engine_options(u);
    char lower[8] = "";
    int i;

    for (size_t k = 0; k < sizeof(lower) - 1 && u->value[k] != '\0'; k++)
        lower[k] = (char)tolower((unsigned char)u->value[k]);
    if (!one_of(u, lower, &i))
        return false;
    if (!pl->cache_set)
        pl->cache_k = pl->cache_v = PL_F16;
    pl->cache_set = true;
    *(pl_format *)field(u) = formats[i];
    return true;
}

/* ---- keys of a model's file ---------------------------------------------- */

/* Appends overrides of keys. */
bool option_set_key(struct option_use *u)
{
    const char *equals = strchr(u->value, '=');

    if (equals == NULL || strchr(equals, ':') == NULL)
        return want(u, "KEY=TYPE:VALUE, like "
                       "tokenizer.ggml.add_bos_token=bool:false");
    return word_list_add(&u->o->kv_overrides, u->value) || no_room(u);
}

/* The keys that llama.cpp's options of RoPE stand for. */
static const struct {
    const char *option, *key;
} rope_keys[] = {
    {"--rope-scaling", ".rope.scaling.type=str:"},
    {"--rope-scale", ".rope.scaling.factor=float:"},
    {"--rope-freq-base", ".rope.freq_base=float:"},
    {"--rope-freq-scale", ".rope.scaling.factor=float:"},
    {"--yarn-orig-ctx", ".rope.scaling.original_context_length=int:"},
    {"--yarn-ext-factor", ".rope.scaling.yarn_ext_factor=float:"},
    {"--yarn-attn-factor", ".rope.scaling.attn_factor=float:"},
    {"--yarn-beta-slow", ".rope.scaling.yarn_beta_slow=float:"},
    {"--yarn-beta-fast", ".rope.scaling.yarn_beta_fast=float:"},
};

/* Removes the key overrides that begin with the text `begin`. */
static void remove_overrides(struct word_list *w, const char *begin)
{
    int n = 0;

    for (int i = 0; i < w->n; i++)
        if (strncmp(w->v[i], begin, strlen(begin)) == 0)
            free(w->v[i]);
        else
            w->v[n++] = w->v[i];
    w->n = n;
}

/* Overrides a key of RoPE. The file's value counts for a negative number, and
 * for 0 if the option takes no negative ones. */
bool option_set_rope(struct option_use *u)
{
    const char *option = u->row->name[0], *key;
    char text[OPTION_WANT];
    int64_t whole_v = 1;
    double v = 1;
    int i = 0, word;
    bool ok;

    while (strcmp(rope_keys[i].option, option) != 0)
        i++;
    key = rope_keys[i].key;
    if (u->row->words != NULL) {
        ok = one_of(u, u->value, &word);
    } else if (strstr(key, "=int:") != NULL) {
        ok = whole(u, u->value, &whole_v);
        v = (double)whole_v;
    } else {
        ok = number(u, &v);
    }
    if (!ok)
        return false;
    remove_overrides(&u->o->kv_overrides, key);
    if (v < 0 || (v == 0 && u->row->lo >= 0))
        return true;
    if (strcmp(option, "--rope-freq-scale") == 0)
        snprintf(text, sizeof(text), "%s%.9g", key, 1 / v);
    else
        snprintf(text, sizeof(text), "%s%s", key, u->value);
    return word_list_add(&u->o->kv_overrides, text) || no_room(u);
}

/* ---- arrays of the library's options ------------------------------------- */

/* Appends an element of `size` bytes to an array, which has n elements. `array`
 * is the address of the pointer to the array. */
static bool append(struct option_use *u, void *array, int n,
                   const void *element, size_t size)
{
    char *all;

    memcpy(&all, array, sizeof(all));
    all = realloc(all, ((size_t)n + 1) * size);
    if (all == NULL)
        return no_room(u);
    memcpy(all + (size_t)n * size, element, size);
    memcpy(array, &all, sizeof(all));
    return true;
}

bool option_set_override(struct option_use *u)
{
    pl_options *pl = engine_options(u);

    if (strchr(u->value, '=') == NULL)
        return want(u, "REGEX=WHERE, like 'ffn_.*_exps=host'");
    return append(u, &pl->overrides, pl->n_overrides, &u->value,
                  sizeof(u->value)) &&
           ++pl->n_overrides > 0;
}

/* Appends a logit bias, given as ID+VALUE or ID-VALUE. */
bool option_set_bias(struct option_use *u)
{
    pl_sampling *s = &u->o->sampling;
    char word[16] = "";
    size_t len = strspn(u->value, "0123456789");
    int64_t id = INT64_MAX;
    int32_t id32;
    double v = INFINITY;
    float bias;

    if (len > 0 && len < sizeof(word) &&
        (u->value[len] == '+' || u->value[len] == '-')) {
        memcpy(word, u->value, len);
        if (!number_int64(word, &id) || !number_double(u->value + len, &v))
            v = INFINITY;
    }
    if (id > INT32_MAX || v == INFINITY)
        return want(u, "ID+VALUE or ID-VALUE, like 15043-2.5");
    id32 = (int32_t)id;
    bias = (float)v;
    return append(u, &s->bias_id, s->n_bias, &id32, sizeof(id32)) &&
           append(u, &s->bias, s->n_bias, &bias, sizeof(bias)) &&
           ++s->n_bias > 0;
}

/* Sets the samplers and their order, given as NAME;NAME;..., or with
 * --sampler-seq as one letter for each. */
bool option_set_samplers(struct option_use *u)
{
    bool letters = strstr(u->row->name[0], "seq") != NULL, ok = true;
    pl_sampling *s = &u->o->sampling;
    const char *at = u->value;

    s->n_step = 0;
    while (*at != '\0' && ok) {
        size_t len = letters ? 1 : strcspn(at, ";");
        int step =
            letters ? sampler_step(NULL, 0, *at) : sampler_step(at, len, '\0');

        ok = step == SAMPLER_PASSED_OVER ||
             (step != SAMPLER_UNKNOWN && sampler_add(s, step));
        at += len;
        at += !letters && *at == ';';
    }
    return (ok && s->n_step > 0) ||
           want(u, "a selection of %s, each once%s", sampler_all_names,
                letters ? ", by letters of edskypmxt" : ", separated by ;");
}

/* Appends a sequence breaker of DRY. "none" appends nothing, but disables the
 * default breakers. */
bool option_set_breaker(struct option_use *u)
{
    pl_sampling *s = &u->o->sampling;

    if (strlen(u->value) < 1 || strlen(u->value) > SAMPLER_BREAKER_BYTES ||
        s->n_dry_breaker >= SAMPLER_BREAKERS)
        return want(u, "1 to 64 bytes, at most 256 times");
    if (!append(u, &s->dry_breaker, s->n_dry_breaker, &u->value,
                sizeof(u->value)))
        return false;
    s->n_dry_breaker += strcmp(u->value, "none") != 0;
    return true;
}

/* ---- lists of numbers ---------------------------------------------------- */

/* Appends `v` to the list, and the numbers that follow it up to `last`. Each is
 * the one before it, multiplied by `factor` and increased by `step`. */
static bool append_range(struct option_list *l, int64_t v, int64_t last,
                         int64_t step, int64_t factor)
{
    for (; v <= last; v = v * factor + step) {
        if (l->n == OPTION_MAX_LIST)
            return false;
        l->v[l->n++] = (int)v;
        if (v * factor + step <= v)
            break;
    }
    return true;
}

/* Parses a number, or a range FIRST-LAST, FIRST-LAST+STEP or
 * FIRST-LAST*FACTOR, and appends its numbers. */
static bool append_word(struct option_use *u, char *word)
{
    int64_t first, last, step = 1, factor = 1;
    char *dash = strchr(word, '-');
    char *by = dash != NULL ? strpbrk(dash, "+*") : NULL;
    char mark = by != NULL ? *by : '+';

    if (by != NULL)
        *by++ = '\0';
    if (dash != NULL)
        *dash++ = '\0';
    if (!whole(u, word, &first) || !whole(u, dash != NULL ? dash : word, &last))
        return false;
    if (by != NULL && (!number_int64(by, &step) || step < 1 || step > 1 << 20))
        return want(u, "a step from 1 to %d after + or *", 1 << 20);
    if (mark == '*') {
        factor = step;
        step = 0;
    }
    return (first <= last &&
            append_range(field(u), first, last, step, factor)) ||
           want(u, "at most %d numbers, rising", OPTION_MAX_LIST);
}

/* Appends comma-separated integers and ranges to those of earlier uses of the
 * option. */
bool option_set_list(struct option_use *u)
{
    for (const char *s = u->value;;) {
        size_t len = strcspn(s, ",");
        char word[40] = "";

        if (len < sizeof(word))
            memcpy(word, s, len);
        if (!append_word(u, word))
            return false;
        if (s[len] == '\0')
            return true;
        s += len + 1;
    }
}

/* Appends two numbers of tokens to the list, given as N,N: those of a prompt
 * and of the generation after it. */
bool option_set_pair(struct option_use *u)
{
    struct option_list *l = field(u);
    const int n = l->n;

    return (strchr(u->value, ',') != NULL && option_set_list(u) &&
            l->n == n + 2) ||
           want(u, "two numbers, like 512,128, at most %d times",
                OPTION_MAX_LIST / 2);
}

/* Appends comma-separated decimal numbers to the list, after those of earlier
 * uses of the option. */
bool option_set_numbers(struct option_use *u)
{
    struct option_numbers *l = field(u);
    double more[OPTION_MAX_LIST];
    int n = number_shares(u->value, more, OPTION_MAX_LIST);
    bool ok = n >= 1 && l->n + n <= OPTION_MAX_LIST;

    for (int i = 0; i < n && ok; i++) {
        ok = more[i] >= u->row->lo && more[i] <= u->row->hi;
        l->v[l->n++] = more[i];
    }
    return ok ||
           want(u, "numbers from %g to %g separated by commas, at most %d",
                u->row->lo, u->row->hi, OPTION_MAX_LIST);
}
