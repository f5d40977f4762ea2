"""Reads and writes the model and its tokenizer as one GGUF file.

Needs the `gguf` package. Reads only what `write` writes: architecture
qwen3moe, separate gate and up experts, tied output head.
"""
import gguf
import numpy as np
import torch

import tokenizer
from model import Config, Model, tensor_shapes

FORMATS = {
    "F32": (gguf.GGMLQuantizationType.F32, gguf.LlamaFileType.ALL_F32),
    "BF16": (gguf.GGMLQuantizationType.BF16, gguf.LlamaFileType.MOSTLY_BF16),
    "Q8_0": (gguf.GGMLQuantizationType.Q8_0, gguf.LlamaFileType.MOSTLY_Q8_0)}

CHATML = (
    "{% for message in messages %}"
    "{{'<|im_start|>' + message['role'] + '\\n'"
    " + message['content'] + '<|im_end|>' + '\\n'}}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")


def write(path, config, weights, tok, fmt):
    """Norms and router stay float32; `fmt`, a key of FORMATS, is for the
    rest. Row lengths must be multiples of 32 for Q8_0."""
    c = config
    kind, file_type = FORMATS[fmt]
    n_weights = sum(w.numel() for w in weights.values())
    w = gguf.GGUFWriter(path, "qwen3moe")
    w.add_name("Fable MoE")
    w.add_description("Tiny mixture-of-experts demo model trained on "
                      "public-domain fairy tales")
    w.add_languages(["en"])
    w.add_size_label(f"{n_weights / 1e6:.0f}M")
    w.add_file_type(file_type)
    w.add_quantization_version(gguf.GGML_QUANT_VERSION)

    w.add_block_count(c.n_layer)
    w.add_context_length(c.n_ctx)
    w.add_embedding_length(c.d_model)
    w.add_feed_forward_length(c.d_ff * c.n_expert_used)
    w.add_expert_feed_forward_length(c.d_ff)
    w.add_head_count(c.n_head)
    w.add_head_count_kv(c.n_head_kv)
    w.add_key_length(c.d_head)
    w.add_value_length(c.d_head)
    w.add_layer_norm_rms_eps(c.rms_eps)
    w.add_rope_freq_base(c.rope_base)
    w.add_rope_dimension_count(c.d_head)
    w.add_expert_count(c.n_expert)
    w.add_expert_used_count(c.n_expert_used)
    w.add_vocab_size(c.n_vocab)

    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("qwen2")
    w.add_token_list(tok.tokens)
    w.add_token_types([
        gguf.TokenType.CONTROL if token in tokenizer.SPECIALS
        else gguf.TokenType.NORMAL for token in tok.tokens])
    w.add_token_merges(tok.merges)
    w.add_bos_token_id(tok.id[tokenizer.END_OF_TEXT])
    w.add_eos_token_id(tok.id[tokenizer.TURN_END])
    w.add_pad_token_id(tok.id[tokenizer.END_OF_TEXT])
    w.add_add_bos_token(False)
    w.add_chat_template(CHATML)

    for name in tensor_shapes(c):
        data = weights[name].detach().numpy()
        if fmt == "F32" or data.ndim == 1 or "ffn_gate_inp" in name:
            w.add_tensor(name, data)
        else:
            w.add_tensor(name, gguf.quants.quantize(data, kind),
                         raw_dtype=kind)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def read(path):
    """(Model with every weight decoded to float32, Tokenizer)."""
    reader = gguf.GGUFReader(path)

    def key(name):
        return reader.fields[name].contents()

    def number(name):
        return key("qwen3moe." + name)

    config = Config(
        n_vocab=len(key("tokenizer.ggml.tokens")),
        n_ctx=number("context_length"),
        n_layer=number("block_count"),
        d_model=number("embedding_length"),
        n_head=number("attention.head_count"),
        n_head_kv=number("attention.head_count_kv"),
        d_head=number("attention.key_length"),
        n_expert=number("expert_count"),
        n_expert_used=number("expert_used_count"),
        d_ff=number("expert_feed_forward_length"),
        rms_eps=number("attention.layer_norm_rms_epsilon"),
        rope_base=number("rope.freq_base"))
    shapes = tensor_shapes(config)
    weights = {}
    for tensor in reader.tensors:
        data = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        data = np.array(data, np.float32).reshape(shapes[tensor.name])
        weights[tensor.name] = torch.from_numpy(data)
    tok = tokenizer.Tokenizer(key("tokenizer.ggml.tokens"),
                              key("tokenizer.ggml.merges"))
    return Model(config, weights), tok
