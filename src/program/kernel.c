/* Implements kernel.h: the table of kernels.def, and functions that look
 * kernels up in it. */
#include "program/kernel.h"

#include <string.h>

static const struct {
    const char *name, *args, *values;
} table[KERNEL_COUNT] = {
#define KERNEL(name, args, values) [KERNEL_##name] = {#name, args, values},
#include "program/kernels.def"
#undef KERNEL
};

const char *kernel_name(enum kernel k)
{
    return (unsigned)k < KERNEL_COUNT ? table[k].name : "?";
}

enum kernel kernel_from_name(const char *name)
{
    for (int k = 0; k < KERNEL_COUNT; k++)
        if (!strcmp(table[k].name, name))
            return (enum kernel)k;
    return KERNEL_COUNT;
}

enum kernel kernel_of_op(enum op op)
{
    /* The kernel that computes each op. The table is needed because ops.def and
     * kernels.def may list the same names in different orders. */
    static const unsigned char of[OP_COUNT] = {
        [OP_input] = KERNEL_COUNT,
        [OP_weight] = KERNEL_COUNT,
        [OP_memory] = KERNEL_COUNT,
#define KERNEL_reshape                           KERNEL_COUNT
#define KERNEL_delta_net_tiled                   KERNEL_delta_net
#define OP(name, dims, partial, result, refused) [OP_##name] = KERNEL_##name,
#include "graph/ops.def"
#undef OP
#undef KERNEL_reshape
#undef KERNEL_delta_net_tiled
    };

    return (unsigned)op < OP_COUNT ? (enum kernel)of[op] : KERNEL_COUNT;
}

/* Returns the access letter of argument i in the kernel's row of kernels.def,
 * or NULL if the kernel has no such argument. An op has up to GRAPH_MAX_IN
 * operands; only a token table may follow them. */
static const char *letter(enum kernel k, int i)
{
    const char *s = (unsigned)k < KERNEL_COUNT ? table[k].args : "";
    int at = i;

    for (; *s && i >= 0; s++) {
        if (*s == '?')
            continue;
        if (at == 0 || s[1] == '*')
            return i <= GRAPH_MAX_IN || *s == 'b' ? s : NULL;
        at--;
    }
    return NULL;
}

enum access kernel_access(enum kernel k, int i)
{
    const char *s = letter(k, i);

    if (!s || i >= KERNEL_MAX_ARG)
        return (enum access)0;
    return *s == 'w' ? ACCESS_WRITE : *s == 'u' ? ACCESS_UPDATE : ACCESS_READ;
}

bool kernel_arg_is_optional(enum kernel k, int i)
{
    const char *s = letter(k, i);

    return s && (s[1] == '?' || s[1] == '*');
}

bool kernel_is_contraction(enum kernel k)
{
    return k == KERNEL_matmul || k == KERNEL_head_matmul ||
           k == KERNEL_expert_matmul || k == KERNEL_expert_down;
}

bool kernel_is_attention(enum kernel k)
{
    return k == KERNEL_attention || k == KERNEL_bidirectional_attention ||
           k == KERNEL_latent_attention || k == KERNEL_attention_blocks ||
           k == KERNEL_compressed_attention;
}

bool kernel_is_index(enum kernel k)
{
    return k == KERNEL_index_topk || k == KERNEL_index_blocks;
}

bool kernel_arg_is_q8(enum kernel k, int i)
{
    if (k == KERNEL_quantize)
        return i == 0;
    return kernel_is_contraction(k) && kernel_access(k, i) &&
           !kernel_access(k, i + 1);
}

char kernel_values(enum kernel k, int i)
{
    const char *s = table[k].values;

    while (i-- > 0 && s[1])
        s++;
    return *s;
}

bool kernel_maps_heads(enum kernel k, int *many, int *few)
{
    bool attention = kernel_is_attention(k);

    *many = attention ? 1
            : k == KERNEL_delta_net || k == KERNEL_delta_net_channels ||
                    k == KERNEL_ssm_scan
                ? 3
                : -1;
    *few = attention ? 2 : 1;
    return *many >= 0;
}

bool kernel_arg_is_token_table(enum kernel k, int i)
{
    const char *s = letter(k, i);

    return s && *s == 'b';
}
