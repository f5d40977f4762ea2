/* Every reader of foreign bytes that is fuzzed, one line each: FUZZ(gguf, 3000)
 * for `int fuzz_gguf(const uint8_t *data, size_t n)` in fuzz/fuzz_gguf.c, with
 * its seeds in fuzz/corpus/gguf/. It returns 0 and leaves nothing behind. The
 * number is how many inputs libFuzzer tries at the gate: some seconds' worth.
 * No include guard: read once a column. */
FUZZ(ask, 20000)
FUZZ(chat, 20000)
FUZZ(encode, 20000)
FUZZ(gguf, 20000)
FUZZ(grammar, 20000)
FUZZ(graph, 20000)
FUZZ(http, 20000)
FUZZ(listing, 20000)
FUZZ(model, 20000)
FUZZ(preset, 20000)
FUZZ(pretok, 20000)
FUZZ(program, 20000)
FUZZ(reply, 20000)
FUZZ(schema, 20000)
FUZZ(state, 20000)
FUZZ(tier, 20000)
FUZZ(tokenizer, 20000)
