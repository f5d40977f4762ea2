/* Decodes blocks of one format: the driver of quant_against_gguf_py.py.
 *
 *   quant-decode FORMAT < blocks > float32
 *
 * Whole blocks only; values are little-endian float32. */
#include <stdio.h>

#include "quant/format.h"

int main(int argc, char **argv)
{
    pl_format f = argc == 2 ? format_from_name(argv[1]) : PL_FORMAT_COUNT;
    const struct format_info *fi;
    char block[256];
    float values[256];
    size_t n;

    if (f == PL_FORMAT_COUNT) {
        fprintf(stderr, "usage: quant-decode FORMAT < blocks > float32\n");
        return 2;
    }
    fi = format_info(f);
    while ((n = fread(block, 1, (size_t)fi->block_bytes, stdin)) > 0) {
        if (n != (size_t)fi->block_bytes) {
            fprintf(stderr, "quant-decode: %zu of %d bytes in the last block\n",
                    n, fi->block_bytes);
            return 1;
        }
        fi->decode(values, block, fi->block);
        if (fwrite(values, sizeof(*values), (size_t)fi->block, stdout) !=
            (size_t)fi->block) {
            perror("quant-decode: writing");
            return 1;
        }
    }
    return fflush(stdout) == 0 ? 0 : 1;
}
