"""A tiny Llama on disk: random weights, a byte-level tokenizer, a chat template."""

import array
import json
import random
import struct

SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
         r"|\s*[\r\n]+|\s+(?!\S)|\s+")
CHATML = ("{% for m in messages %}<|s|>{{ m.role }}\n{{ m.content }}<|e|>{% endfor %}"
          "{% if add_generation_prompt %}<|s|>assistant\n{% endif %}")


def byte_letters():
    """The letter that byte-level BPE writes for each byte."""
    plain = [*range(0x21, 0x7f), *range(0xa1, 0xad), *range(0xae, 0x100)]
    extra = iter(range(0x100, 0x200))
    return [chr(b) if b in plain else chr(next(extra)) for b in range(256)]


VOCAB, D, FF, HEADS, KV_HEADS, LAYERS = 320, 48, 80, 3, 1, 2


def write_weights(path):
    """Random Llama weights, float32, the same every time."""
    rng = random.Random(20)
    shapes = {"model.embed_tokens.weight": (VOCAB, D), "model.norm.weight": (D,),
              "lm_head.weight": (VOCAB, D)}
    for i in range(LAYERS):
        p, head = f"model.layers.{i}.", D // HEADS
        shapes |= {p + "input_layernorm.weight": (D,), p + "post_attention_layernorm.weight": (D,),
                   p + "self_attn.q_proj.weight": (D, D),
                   p + "self_attn.k_proj.weight": (KV_HEADS * head, D),
                   p + "self_attn.v_proj.weight": (KV_HEADS * head, D),
                   p + "self_attn.o_proj.weight": (D, D), p + "mlp.gate_proj.weight": (FF, D),
                   p + "mlp.up_proj.weight": (FF, D), p + "mlp.down_proj.weight": (D, FF)}
    header, data = {}, bytearray()
    for name, shape in shapes.items():
        n = shape[0] * (shape[1] if len(shape) > 1 else 1)
        centre, spread = (1.0, 0.1) if len(shape) == 1 else (0.0, 0.3)
        values = array.array("f", (centre + spread * (2 * rng.random() - 1) for _ in range(n)))
        start = len(data)
        data += values.tobytes()
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [start, len(data)]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def write_model(folder, template=CHATML, generation=None):
    write_weights(folder / "model.safetensors")
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": VOCAB,
              "hidden_size": D, "intermediate_size": FF, "num_hidden_layers": LAYERS,
              "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS,
              "max_position_embeddings": 1024, "rms_norm_eps": 1e-5, "torch_dtype": "float32",
              "tie_word_embeddings": False, "rope_theta": 10000.0}
    letters = byte_letters()
    vocab = {letter: i for i, letter in enumerate(letters)}
    vocab["he"] = 256
    special = [(257, "<|s|>"), (258, "<|e|>")]
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None,
        "added_tokens": [{"id": i, "content": text, "single_word": False, "lstrip": False,
                          "rstrip": False, "normalized": False, "special": True}
                         for i, text in special],
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": SPLIT}, "behavior": "Isolated", "invert": False},
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
             "use_regex": False}]},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True,
                    "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None,
                  "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": vocab, "merges": [["h", "e"]]},
    }
    config["eos_token_id"] = 258
    config["bos_token_id"] = 257
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer_config.json").write_text(json.dumps(
        {"bos_token": "<|s|>", "eos_token": "<|e|>"}))
    if template is not None:
        (folder / "chat_template.jinja").write_text(template)
    if generation is not None:
        (folder / "generation_config.json").write_text(json.dumps(generation))
