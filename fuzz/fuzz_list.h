/* Every reader of foreign bytes that is fuzzed, one line each: FUZZ(gguf) for
 * `int fuzz_gguf(const uint8_t *data, size_t n)` in fuzz/fuzz_gguf.c, with its
 * seeds in fuzz/corpus/gguf/. It returns 0 and leaves nothing behind. No
 * include guard: read once a column. */
FUZZ(ask)
FUZZ(chat)
FUZZ(encode)
FUZZ(gguf)
FUZZ(grammar)
FUZZ(graph)
FUZZ(http)
FUZZ(listing)
FUZZ(model)
FUZZ(pretok)
FUZZ(program)
FUZZ(reply)
FUZZ(schema)
FUZZ(state)
FUZZ(tier)
FUZZ(tokenizer)
