/* Checks and stores the values of options. Rows of the option table contain
 * pointers to these functions, which have the type option_set_fn. */
#include "option_set.h"
#include "number.h"
#include "server/sampler_names.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *field(struct options *o, const struct option_row *row)
{
    return (char *)o + row->offset;
}

bool option_set_flag(struct options *o, const struct option_row *row,
                     const char *value, char want[static OPTION_WANT])
{
    (void)value;
    (void)want;
    *(bool *)field(o, row) = true;
    return true;
}

static bool is_given(const struct option_row *row, const char *value,
                     char want[static OPTION_WANT])
{
    snprintf(want, OPTION_WANT, "a value: %s", row->arg);
    return value[0] != '\0';
}

bool option_set_text(struct options *o, const struct option_row *row,
                     const char *value, char want[static OPTION_WANT])
{
    if (!is_given(row, value, want))
        return false;
    *(const char **)field(o, row) = value;
    return true;
}

/* Stores the value of a text option, which may be empty. */
bool option_set_prompt(struct options *o, const struct option_row *row,
                       const char *value, char want[static OPTION_WANT])
{
    (void)want;
    *(const char **)field(o, row) = value;
    return true;
}

/* Appends an element of `size` bytes to an array, which has n elements. `array`
 * is the address of the pointer to the array. */
static bool append(void *array, int n, const void *element, size_t size,
                   char want[static OPTION_WANT])
{
    char *all;

    snprintf(want, OPTION_WANT, "fewer of these: out of memory");
    memcpy(&all, array, sizeof(all));
    all = realloc(all, ((size_t)n + 1) * size);
    if (all == NULL)
        return false;
    memcpy(all + (size_t)n * size, element, size);
    memcpy(array, &all, sizeof(all));
    return true;
}

static bool add_word(struct word_list *list, const char *word,
                     char want[static OPTION_WANT])
{
    snprintf(want, OPTION_WANT, "fewer of these: out of memory");
    return word_list_add(list, word);
}

static bool whole(const struct option_row *row, const char *value, int64_t *v,
                  char want[static OPTION_WANT])
{
    if (number_int64(value, v) && (double)*v >= row->lo &&
        (double)*v <= row->hi)
        return true;
    snprintf(want, OPTION_WANT, "a whole number from %.0f to %.0f", row->lo,
             row->hi);
    return false;
}

bool option_set_int(struct options *o, const struct option_row *row,
                    const char *value, char want[static OPTION_WANT])
{
    int64_t v;

    if (!whole(row, value, &v, want))
        return false;
    *(int *)field(o, row) = (int)v;
    return true;
}

/* Stores a whole number. 0 and -1 select the default, so they change
 * nothing. */
bool option_set_int_auto(struct options *o, const struct option_row *row,
                         const char *value, char want[static OPTION_WANT])
{
    if (strcmp(value, "-1") == 0 || strcmp(value, "0") == 0)
        return true;
    return option_set_int(o, row, value, want);
}

/* Stores the size of the context in tokens. 0 means the model's own context
 * length, except for perplexity and logits, where it means the command's
 * default. */
bool option_set_context(struct options *o, const struct option_row *row,
                        const char *value, char want[static OPTION_WANT])
{
    if (!whole(row, value, &o->pl.n_ctx, want))
        return false;
    if (o->pl.n_ctx == 0 && o->command != CMD_PERPLEXITY &&
        o->command != CMD_LOGITS)
        o->pl.n_ctx = PL_CTX_MODEL;
    return true;
}

bool option_set_int64(struct options *o, const struct option_row *row,
                      const char *value, char want[static OPTION_WANT])
{
    return whole(row, value, field(o, row), want);
}

bool option_set_uint64(struct options *o, const struct option_row *row,
                       const char *value, char want[static OPTION_WANT])
{
    snprintf(want, OPTION_WANT, "a whole number, 0 or more, below 2^64");
    return number_uint64(value, field(o, row));
}

static bool number(const struct option_row *row, const char *value, double *v,
                   char want[static OPTION_WANT])
{
    snprintf(want, OPTION_WANT, "a number from %g to %g", row->lo, row->hi);
    return number_double(value, v) && isfinite(*v) && *v >= row->lo &&
           *v <= row->hi;
}

bool option_set_float(struct options *o, const struct option_row *row,
                      const char *value, char want[static OPTION_WANT])
{
    double v;

    if (!number(row, value, &v, want))
        return false;
    *(float *)field(o, row) = (float)v;
    return true;
}

bool option_set_seed(struct options *o, const struct option_row *row,
                     const char *value, char want[static OPTION_WANT])
{
    o->random_seed = strcmp(value, "-1") == 0;
    if (o->random_seed || number_uint64(value, field(o, row)))
        return true;
    snprintf(want, OPTION_WANT, "a whole number, 0 or more, or -1 for any");
    return false;
}

bool option_set_shares(struct options *o, const struct option_row *row,
                       const char *value, char want[static OPTION_WANT])
{
    bool ranks = row->offset == offsetof(struct options, rank_split);
    int most = ranks ? PL_MAX_RANKS : OPTION_MAX_DEVICES;
    double *share = ranks ? o->rank_split : o->split, sum = 0.0;
    int n = number_shares(value, share, most);

    for (int i = 0; i < n; i++)
        sum += share[i];
    if (ranks) {
        o->pl.rank_split = share;
        o->pl.n_rank_split = n;
    } else {
        o->pl.tensor_split = share;
        o->pl.n_tensor_split = n;
    }
    snprintf(want, OPTION_WANT,
             "shares, one per %s, at most %d, not all 0, like 3,1",
             ranks ? "rank" : "device", most);
    return n > 0 && sum > 0.0 && isfinite(sum);
}

/* Looks up `value` among the words of the row. Returns true and sets *out to
 * its index, or returns false and lists the words in `want`. */
static bool one_of(const struct option_row *row, const char *value, int *out,
                   char want[static OPTION_WANT])
{
    size_t n = 0;

    for (int i = 0; row->words[i] != NULL; i++) {
        *out = i;
        if (strcmp(value, row->words[i]) == 0)
            return true;
        n += (size_t)snprintf(want + n, OPTION_WANT - n, "%s%s",
                              i == 0                      ? ""
                              : row->words[i + 1] != NULL ? ", "
                                                          : " or ",
                              row->words[i]);
    }
    return false;
}

/* Stores the index of a word into a field whose type is an enumeration. */
bool option_set_word(struct options *o, const struct option_row *row,
                     const char *value, char want[static OPTION_WANT])
{
    int i;

    if (!one_of(row, value, &i, want))
        return false;
    memcpy(field(o, row), &i, sizeof(i));
    return true;
}

/* Stores a pointer to a word of the row. For the first word, the default,
 * stores NULL. */
bool option_set_one_of(struct options *o, const struct option_row *row,
                       const char *value, char want[static OPTION_WANT])
{
    int i;

    if (!one_of(row, value, &i, want))
        return false;
    *(const char **)field(o, row) = i > 0 ? row->words[i] : NULL;
    return true;
}

/* Stores a flag: false for the first of the row's two words, true for the
 * second. */
bool option_set_yes(struct options *o, const struct option_row *row,
                    const char *value, char want[static OPTION_WANT])
{
    int yes;

    if (!one_of(row, value, &yes, want))
        return false;
    *(bool *)field(o, row) = yes;
    return true;
}

bool option_set_no_offload(struct options *o, const struct option_row *row,
                           const char *value, char want[static OPTION_WANT])
{
    int no;

    if (!one_of(row, value, &no, want))
        return false;
    o->pl.offload = no ? PL_OFFLOAD_OFF : PL_OFFLOAD_AUTO;
    return true;
}

/* Appends a stop string. */
bool option_set_stop(struct options *o, const struct option_row *row,
                     const char *value, char want[static OPTION_WANT])
{
    return is_given(row, value, want) && add_word(&o->stops, value, want);
}

bool option_set_split_mode(struct options *o, const struct option_row *row,
                           const char *value, char want[static OPTION_WANT])
{
    int64_t n;
    int mode;

    snprintf(want, OPTION_WANT,
             "none, layer, tensor, auto, or hybrid:N with groups of N devices, "
             "1 to %d",
             OPTION_MAX_DEVICES);
    if (strcmp(value, "row") == 0) {
        cli_error(o->command, EXIT_DONE,
                  "-sm row is treated as tensor, which splits matrices by rows "
                  "or columns, whichever needs fewer collectives");
        value = "tensor";
    }
    if (strncmp(value, "hybrid:", 7) == 0) {
        if (!number_int64(value + 7, &n) || n < 1 || n > OPTION_MAX_DEVICES)
            return false;
        o->pl.hybrid_size = (int)n;
        o->pl.split_mode = PL_SPLIT_HYBRID;
        return true;
    }
    for (mode = 0; row->words[mode] != NULL; mode++)
        if (mode != PL_SPLIT_HYBRID && strcmp(value, row->words[mode]) == 0) {
            o->pl.split_mode = (pl_split_mode)mode;
            return true;
        }
    return false;
}

/* Accepts a number of layers, "auto" or "all". Takes -1, which llama.cpp also
 * accepts, as "auto". */
bool option_set_gpu_layers(struct options *o, const struct option_row *row,
                           const char *value, char want[static OPTION_WANT])
{
    int64_t v;

    snprintf(want, OPTION_WANT, "a whole number, 0 or more, auto or all");
    if (strcmp(value, "-1") == 0)
        value = "auto";
    if (strcmp(value, "auto") != 0 && strcmp(value, "all") != 0 &&
        !(number_int64(value, &v) && v >= 0))
        return false;
    *(const char **)field(o, row) = value;
    return true;
}

bool option_set_all_experts(struct options *o, const struct option_row *row,
                            const char *value, char want[static OPTION_WANT])
{
    (void)value;
    (void)want;
    *(const char **)field(o, row) = "all";
    return true;
}

bool option_set_override(struct options *o, const struct option_row *row,
                         const char *value, char want[static OPTION_WANT])
{
    (void)row;
    snprintf(want, OPTION_WANT, "REGEX=WHERE, like 'ffn_.*_exps=host'");
    return strchr(value, '=') != NULL &&
           append(&o->pl.overrides, o->pl.n_overrides, &value, sizeof(value),
                  want) &&
           ++o->pl.n_overrides > 0;
}

/* Appends overrides of the keys of a model's file. */
bool option_set_key(struct options *o, const struct option_row *row,
                    const char *value, char want[static OPTION_WANT])
{
    const char *equals = strchr(value, '=');

    (void)row;
    snprintf(want, OPTION_WANT,
             "KEY=TYPE:VALUE, like tokenizer.ggml.add_bos_token=bool:false");
    return equals != NULL && strchr(equals, ':') != NULL &&
           add_word(&o->kv_overrides, value, want);
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
bool option_set_rope(struct options *o, const struct option_row *row,
                     const char *value, char want[static OPTION_WANT])
{
    const bool inverse = strcmp(row->name[0], "--rope-freq-scale") == 0;
    char text[OPTION_WANT];
    int64_t whole_v;
    double v = 1;
    int i = 0;

    while (strcmp(rope_keys[i].option, row->name[0]) != 0)
        i++;
    if (row->words != NULL) {
        int word;

        if (!one_of(row, value, &word, want))
            return false;
    } else if (strstr(rope_keys[i].key, "=int:") != NULL) {
        if (!whole(row, value, &whole_v, want))
            return false;
        v = (double)whole_v;
    } else if (!number(row, value, &v, want)) {
        return false;
    }
    remove_overrides(&o->kv_overrides, rope_keys[i].key);
    if (v < 0 || (v == 0 && row->lo >= 0))
        return true;
    if (inverse)
        snprintf(text, sizeof(text), "%s%.9g", rope_keys[i].key, 1 / v);
    else
        snprintf(text, sizeof(text), "%s%s", rope_keys[i].key, value);
    return add_word(&o->kv_overrides, text, want);
}

/* Parses a size. Stores 1 for a size of 0, because in the fields 0 means the
 * default. */
bool option_set_bytes(struct options *o, const struct option_row *row,
                      const char *value, char want[static OPTION_WANT])
{
    uint64_t n;

    snprintf(want, OPTION_WANT,
             "a number of MiB, or with a unit, like 500MB or 2GiB");
    if (row->offset == offsetof(struct options, cache_ram) &&
        strcmp(value, "-1") == 0)
        n = UINT64_MAX;
    else if (!number_bytes(value, &n))
        return false;
    *(uint64_t *)field(o, row) = n > 0 ? n : 1;
    return true;
}

bool option_set_cache_format(struct options *o, const struct option_row *row,
                             const char *value, char want[static OPTION_WANT])
{
    static const pl_format formats[] = {PL_F16,  PL_F32,  PL_BF16,
                                        PL_Q8_0, PL_Q5_1, PL_Q5_0,
                                        PL_Q4_1, PL_Q4_0, PL_IQ4_NL};
    char lower[8] = "";
    int i;

    for (size_t k = 0; k < sizeof(lower) - 1 && value[k] != '\0'; k++)
        lower[k] = (char)tolower((unsigned char)value[k]);
    if (!one_of(row, lower, &i, want))
        return false;
    if (!o->pl.cache_set)
        o->pl.cache_k = o->pl.cache_v = PL_F16;
    o->pl.cache_set = true;
    *(pl_format *)field(o, row) = formats[i];
    return true;
}

/* Appends a logit bias, given as ID+VALUE or ID-VALUE. */
bool option_set_bias(struct options *o, const struct option_row *row,
                     const char *value, char want[static OPTION_WANT])
{
    pl_sampling *s = &o->sampling;
    char word[16] = "";
    size_t len = strspn(value, "0123456789");
    int64_t id;
    int32_t id32;
    double v;
    float bias;

    (void)row;
    snprintf(want, OPTION_WANT, "ID+VALUE or ID-VALUE, like 15043-2.5");
    if (len == 0 || len >= sizeof(word) ||
        (value[len] != '+' && value[len] != '-'))
        return false;
    memcpy(word, value, len);
    if (!number_int64(word, &id) || id > INT32_MAX ||
        !number_double(value + len, &v) || v == INFINITY)
        return false;
    id32 = (int32_t)id;
    bias = (float)v;
    return append(&s->bias_id, s->n_bias, &id32, sizeof(id32), want) &&
           append(&s->bias, s->n_bias, &bias, sizeof(bias), want) &&
           ++s->n_bias > 0;
}

/* Sets the samplers and their order, given as NAME;NAME;..., or with
 * --sampler-seq as one letter for each. */
bool option_set_samplers(struct options *o, const struct option_row *row,
                         const char *value, char want[static OPTION_WANT])
{
    bool letters = strstr(row->name[0], "seq") != NULL;
    pl_sampling *s = &o->sampling;

    snprintf(want, OPTION_WANT, "a selection of %s, each once%s",
             sampler_all_names,
             letters ? ", by letters of edskypmxt" : ", separated by ;");
    s->n_step = 0;
    while (*value != '\0') {
        size_t len = letters ? 1 : strcspn(value, ";");
        int step = letters ? sampler_step(NULL, 0, *value)
                           : sampler_step(value, len, '\0');

        if (step == SAMPLER_UNKNOWN ||
            (step != SAMPLER_PASSED_OVER && !sampler_add(s, step)))
            return false;
        value += len;
        value += !letters && *value == ';';
    }
    return s->n_step > 0;
}

/* Appends a sequence breaker of DRY. "none" appends nothing, but disables the
 * default breakers. */
bool option_set_breaker(struct options *o, const struct option_row *row,
                        const char *value, char want[static OPTION_WANT])
{
    pl_sampling *s = &o->sampling;

    (void)row;
    snprintf(want, OPTION_WANT, "1 to 64 bytes, at most 256 times");
    if (strlen(value) < 1 || strlen(value) > SAMPLER_BREAKER_BYTES ||
        s->n_dry_breaker >= SAMPLER_BREAKERS)
        return false;
    if (!append(&s->dry_breaker, s->n_dry_breaker, &value, sizeof(value), want))
        return false;
    s->n_dry_breaker += strcmp(value, "none") != 0;
    return true;
}

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
static bool append_word(struct option_list *l, const struct option_row *row,
                        char *word, char want[static OPTION_WANT])
{
    int64_t first, last, step = 1, factor = 1;
    char *dash = strchr(word, '-');
    char *by = dash != NULL ? strpbrk(dash, "+*") : NULL;
    char mark = by != NULL ? *by : '+';

    if (by != NULL)
        *by++ = '\0';
    if (dash != NULL)
        *dash++ = '\0';
    if (!whole(row, word, &first, want) ||
        !whole(row, dash != NULL ? dash : word, &last, want))
        return false;
    if (by != NULL && (!number_int64(by, &step) || step < 1 || step > 1 << 20))
        return false;
    if (mark == '*') {
        factor = step;
        step = 0;
    }
    snprintf(want, OPTION_WANT, "at most %d numbers, rising", OPTION_MAX_LIST);
    return first <= last && append_range(l, first, last, step, factor);
}

/* Appends comma-separated integers and ranges to those of earlier uses of the
 * option. */
bool option_set_list(struct options *o, const struct option_row *row,
                     const char *value, char want[static OPTION_WANT])
{
    for (;;) {
        size_t len = strcspn(value, ",");
        char word[40] = "";

        if (len < sizeof(word))
            memcpy(word, value, len);
        if (!append_word(field(o, row), row, word, want))
            return false;
        if (value[len] == '\0')
            return true;
        value += len + 1;
    }
}

/* Appends two numbers of tokens to the list, given as N,N: those of a prompt
 * and of the generation after it. */
bool option_set_pair(struct options *o, const struct option_row *row,
                     const char *value, char want[static OPTION_WANT])
{
    struct option_list *l = field(o, row);
    const int n = l->n;

    if (strcspn(value, ",") == strlen(value) ||
        !option_set_list(o, row, value, want) || l->n != n + 2) {
        snprintf(want, OPTION_WANT,
                 "two numbers, like 512,128, at most %d "
                 "times",
                 OPTION_MAX_LIST / 2);
        return false;
    }
    return true;
}

/* Appends comma-separated decimal numbers to the list, after those of earlier
 * uses of the option. */
bool option_set_numbers(struct options *o, const struct option_row *row,
                        const char *value, char want[static OPTION_WANT])
{
    struct option_numbers *l = field(o, row);
    double more[OPTION_MAX_LIST];
    int n = number_shares(value, more, OPTION_MAX_LIST);

    snprintf(want, OPTION_WANT,
             "numbers from %g to %g separated by commas, at most %d", row->lo,
             row->hi, OPTION_MAX_LIST);
    if (n < 1 || l->n + n > OPTION_MAX_LIST)
        return false;
    for (int i = 0; i < n; i++) {
        if (!(more[i] >= row->lo && more[i] <= row->hi))
            return false;
        l->v[l->n++] = more[i];
    }
    return true;
}
