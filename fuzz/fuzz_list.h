/* Lists all fuzz targets, each a reader of foreign bytes, in one line each.
 * FUZZ(gguf, 3000) stands for `int fuzz_gguf(const uint8_t *data, size_t n)` in
 * fuzz/fuzz_gguf.c, with seeds in fuzz/corpus/gguf/. The function returns 0 and
 * frees all that it allocates. The number is how many inputs libFuzzer tries in
 * CI, some seconds' worth. There is no include guard, because the file is
 * included once for each use of the list. */
FUZZ(ask, 40000)
FUZZ(chat, 12000)
FUZZ(encode, 20000)
FUZZ(gguf, 60000)
FUZZ(grammar, 3000)
FUZZ(graph, 15000)
FUZZ(hosts, 40000)
FUZZ(http, 1600)
FUZZ(imatrix, 60000)
FUZZ(limits, 60000)
FUZZ(listing, 80000)
FUZZ(lookup, 60000)
FUZZ(machine, 60000)
FUZZ(model, 30000)
FUZZ(preset, 150000)
FUZZ(pretok, 100000)
FUZZ(program, 20000)
FUZZ(receipt, 20000)
FUZZ(remote, 4000)
FUZZ(reply, 5000)
FUZZ(schema, 50000)
FUZZ(state, 50000)
FUZZ(tier, 100000)
FUZZ(tokenizer, 30000)
