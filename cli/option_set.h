/* Functions that check and store the value of an option, one per type of value.
 * Rows of the option table point to them. */
#ifndef CLI_OPTION_SET_H
#define CLI_OPTION_SET_H

#include "option_table.h"

option_set_fn option_set_flag;
option_set_fn option_set_text;
option_set_fn option_set_prompt;
option_set_fn option_set_int;
option_set_fn option_set_int64;
option_set_fn option_set_predict;
option_set_fn option_set_budget;
option_set_fn option_set_uint64;
option_set_fn option_set_float;
option_set_fn option_set_seed;
option_set_fn option_set_shares;
option_set_fn option_set_split_mode;
option_set_fn option_set_gpu_layers;
option_set_fn option_set_all_experts;
option_set_fn option_set_override;
option_set_fn option_set_key;
option_set_fn option_set_rope;
option_set_fn option_set_word;
option_set_fn option_set_bytes;
option_set_fn option_set_cache_format;
option_set_fn option_set_bias;
option_set_fn option_set_samplers;
option_set_fn option_set_sources;
option_set_fn option_set_breaker;
option_set_fn option_set_list;
option_set_fn option_set_numbers;
option_set_fn option_set_int_auto;
option_set_fn option_set_context;
option_set_fn option_set_one_of;
option_set_fn option_set_listed;
option_set_fn option_set_yes;
option_set_fn option_set_no_offload;
option_set_fn option_set_pair;

#endif
