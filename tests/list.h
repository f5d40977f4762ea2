/* Every group of tests, one line each: TEST(test_<layer>_<unit>). No include
 * guard: main.c includes it once a column. */
TEST(test_base_alloc)
TEST(test_base_err)
TEST(test_fuzz)
TEST(test_engine_inspect)
TEST(test_gguf_reader)
TEST(test_gguf_split)
TEST(test_gguf_writer)
TEST(test_quant_decode)
TEST(test_quant_pack)
TEST(test_quant_q8)
