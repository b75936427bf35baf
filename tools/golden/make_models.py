#!/usr/bin/env python3
"""Make the tiny checkpoints of tests/golden and the logits that transformers gives for them.

    make_models.py [--out tests/golden/models] [--only NAME…]

Every folder NAME holds config.json and model.safetensors (or NAME.gguf), tokens.npy (int32) and
logits.npy (float32, one row of vocab_size per token). The reference runs in float32 with eager
attention. Needs the environment of tools/ref_env.sh. Seeds are fixed: a second run gives the same
weights.
"""

import argparse
import json
import pathlib
import shutil
import zlib

import gguf
import numpy as np
import torch
import transformers
from safetensors.torch import save_file

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
N_TOKENS = 40
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def config(architecture: str, model_type: str, **more) -> dict:
    """A configuration in the old style (rope_theta, torch_dtype) unless `more` says otherwise."""
    base = {
        "architectures": [architecture],
        "model_type": model_type,
        "vocab_size": 151,
        "hidden_size": 48,
        "intermediate_size": 76,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-5,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "torch_dtype": "float32",
    }
    base.update(more)
    return base


def gemma3(**more) -> dict:
    return config("Gemma3ForCausalLM", "gemma3_text", **{
        "hidden_size": 40, "head_dim": 16, "num_hidden_layers": 4, "sliding_window": 6,
        "hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 24, "vocab_size": 167,
        "pad_token_id": 0, **more})


LLAMA = ("LlamaForCausalLM", "llama")
MODELS = {
    # Untied head, sizes that no tile divides, three query heads for each KV head.
    "llama_plain": config(*LLAMA, tie_word_embeddings=False, hidden_size=54, rope_theta=500.0,
                          num_attention_heads=3, num_key_value_heads=1, intermediate_size=77),
    # Tied, every bias, a head size of its own, linear scaling under the old key "type".
    "llama_linear": config(*LLAMA, tie_word_embeddings=True, hidden_size=40, head_dim=16,
                           attention_bias=True, mlp_bias=True,
                           rope_scaling={"type": "linear", "factor": 4.0}),
    "llama_llama3": config(*LLAMA, tie_word_embeddings=False, torch_dtype="bfloat16", head_dim=16,
                           rope_theta=200.0,
                           rope_scaling={"rope_type": "llama3", "factor": 8.0,
                                         "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                         "original_max_position_embeddings": 32}),
    # The bounds of the blend are kept as they are, not rounded to whole pairs.
    "llama_yarn": config(*LLAMA, tie_word_embeddings=False, head_dim=20,
                         rope_parameters={"rope_type": "yarn", "factor": 8.0, "rope_theta": 900.0,
                                          "truncate": False, "beta_fast": 8.0,
                                          "original_max_position_embeddings": 32}),
    "llama_dynamic": config(*LLAMA, tie_word_embeddings=True, torch_dtype="float16",
                            max_position_embeddings=64,
                            rope_scaling={"rope_type": "dynamic", "factor": 2.0}),
    # The published style of SmolLM2 and Llama 2: no scaling, head_dim from the width.
    "llama_bf16": config(*LLAMA, tie_word_embeddings=True, torch_dtype="bfloat16",
                         rope_theta=10000.0, rope_scaling=None),
    "llama_dtypes": config(*LLAMA, tie_word_embeddings=False, torch_dtype="bfloat16"),
    "llama_own_head": config(*LLAMA, tie_word_embeddings=True),
    "mistral": config("MistralForCausalLM", "mistral", tie_word_embeddings=False, sliding_window=7,
                      rope_theta=10000.0, head_dim=16),
    "qwen2": config("Qwen2ForCausalLM", "qwen2", tie_word_embeddings=True, torch_dtype="bfloat16",
                    use_sliding_window=False, sliding_window=4, max_window_layers=1),
    "qwen2_window": config("Qwen2ForCausalLM", "qwen2", tie_word_embeddings=False,
                           num_hidden_layers=3, use_sliding_window=True, sliding_window=5,
                           max_window_layers=1, rope_theta=1000.0),
    "qwen3": config("Qwen3ForCausalLM", "qwen3", tie_word_embeddings=True, hidden_size=40,
                    head_dim=16, attention_bias=False, rope_theta=1e6),
    "qwen3_yarn": config("Qwen3ForCausalLM", "qwen3", tie_word_embeddings=False, head_dim=18,
                         attention_bias=True, torch_dtype="bfloat16", rope_theta=1000.0,
                         rope_scaling={"rope_type": "yarn", "factor": 4.0, "beta_fast": 16.0,
                                       "attention_factor": 1.25,
                                       "original_max_position_embeddings": 64}),
    # Old style: the scaling belongs to full layers, sliding ones have a base of their own.
    "gemma3_old": gemma3(rope_theta=1e6, rope_local_base_freq=100.0, sliding_window_pattern=3,
                         rope_scaling={"rope_type": "linear", "factor": 8.0}),
    "gemma3_new": gemma3(torch_dtype="bfloat16", final_logit_softcapping=20.0,
                         layer_types=["sliding_attention", "full_attention", "sliding_attention",
                                      "sliding_attention"],
                         rope_parameters={
                             "full_attention": {"rope_type": "default", "rope_theta": 5000.0},
                             "sliding_attention": {"rope_type": "default", "rope_theta": 50.0}}),
    "smollm3": config("SmolLM3ForCausalLM", "smollm3", tie_word_embeddings=True,
                      num_hidden_layers=4, rope_theta=5e5, no_rope_layers=[1, 0, 1, 0],
                      pad_token_id=0),
    # Layers without rotation slide.
    "smollm3_window": config("SmolLM3ForCausalLM", "smollm3", tie_word_embeddings=True,
                             num_hidden_layers=3, rope_theta=5e5, no_rope_layers=[1, 0, 1],
                             use_sliding_window=True, sliding_window=6, pad_token_id=0),
    "smollm3_interval": config("SmolLM3ForCausalLM", "smollm3", tie_word_embeddings=False,
                               num_hidden_layers=4, torch_dtype="bfloat16", rope_theta=5e5,
                               no_rope_layer_interval=4, attention_bias=True, pad_token_id=0),
}


def generator(name: str) -> torch.Generator:
    return torch.Generator().manual_seed(zlib.crc32(name.encode()))


def random_weights(model, name: str, dtype: torch.dtype) -> dict:
    """Weights of realistic scales: attention that is neither flat nor one-hot, logits apart."""
    g = generator(name)
    plus_one = "Gemma3" in type(model).__name__
    out = {}
    for key, p in model.state_dict().items():
        noise = torch.randn(p.shape, generator=g, dtype=torch.float32)
        if "norm" in key and key.endswith("weight"):
            value = 0.2 * noise + (0.0 if plus_one else 1.0)
        elif key.endswith("bias"):
            value = 0.3 * noise
        elif "embed_tokens" in key:
            value = noise * (0.25 if plus_one else min(0.7, 48.0 / p.shape[1]))
        elif "lm_head" in key:
            value = noise * 2.0 / p.shape[1] ** 0.5
        elif "q_proj" in key or "k_proj" in key:
            value = noise * 1.6 / p.shape[1] ** 0.5
        else:
            value = noise * 1.1 / p.shape[1] ** 0.5
        out[key] = value.to(dtype).contiguous()
    if model.config.tie_word_embeddings:
        out.pop("lm_head.weight", None)
    return out


def reference(folder: pathlib.Path) -> torch.nn.Module:
    return transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager").eval()


def logits_of(model, tokens: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        ids = torch.from_numpy(tokens.astype(np.int64))[None]
        return model(ids, attention_mask=torch.ones_like(ids)).logits[0].float().numpy()


def tokens_of(name: str, vocab: int) -> np.ndarray:
    g = generator(name + " tokens")
    return torch.randint(0, vocab, (N_TOKENS,), generator=g).numpy().astype(np.int32)


def write_golden(folder: pathlib.Path, tokens: np.ndarray, logits: np.ndarray) -> None:
    assert np.isfinite(logits).all()
    np.save(folder / "tokens.npy", tokens.astype("<i4"))
    np.save(folder / "logits.npy", logits.astype("<f4"))
    order = np.sort(logits, axis=1)
    print(f"{folder.name}: max |logit| {np.abs(logits).max():.2f}, median margin "
          f"{np.median(order[:, -1] - order[:, -2]):.3f}, {len(set(logits.argmax(1)))} winners")


# A dtype for each tensor, whatever the configuration says; and a norm weight that f16 cannot hold.
def mixed_dtypes(weights: dict) -> None:
    for key, w in weights.items():
        dtype = torch.bfloat16
        if "v_proj" in key:
            dtype = torch.float32
        elif "o_proj" in key or "up_proj" in key:
            dtype = torch.float16
        weights[key] = w.to(dtype)
    layer = "model.layers.0."
    weights[layer + "input_layernorm.weight"][5] = 1e6
    for part in "qkv":
        weights[f"{layer}self_attn.{part}_proj.weight"][:, 5] *= 1e-6


# A tied model whose file holds a head of its own.
def own_head(weights: dict) -> None:
    embed = weights["model.embed_tokens.weight"]
    noise = torch.randn(embed.shape, generator=generator("head"), dtype=torch.float32)
    weights["lm_head.weight"] = (noise * 2.0 / embed.shape[1] ** 0.5).to(embed.dtype)


CHANGES = {"llama_dtypes": mixed_dtypes, "llama_own_head": own_head}
SHARDS = {"mistral": 2}


def write_weights(folder: pathlib.Path, weights: dict, shards: int) -> None:
    if shards == 1:
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        return
    where = {key: f"model-{i % shards + 1:05}-of-{shards:05}.safetensors"
             for i, key in enumerate(weights)}
    for file in sorted(set(where.values())):
        part = {key: w for key, w in weights.items() if where[key] == file}
        save_file(part, folder / file, metadata={"format": "pt"})
    size = sum(w.numel() * w.element_size() for w in weights.values())
    index = {"metadata": {"total_size": size}, "weight_map": where}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1) + "\n")


def make_model(name: str, cfg: dict, root: pathlib.Path) -> None:
    folder = root / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(cfg, indent=1) + "\n")
    model = transformers.AutoModelForCausalLM.from_config(
        transformers.AutoConfig.from_pretrained(folder), attn_implementation="eager")
    weights = random_weights(model, name, DTYPES[cfg["torch_dtype"]])
    CHANGES.get(name, lambda w: None)(weights)
    write_weights(folder, weights, SHARDS.get(name, 1))
    tokens = tokens_of(name, cfg["vocab_size"])
    write_golden(folder, tokens, logits_of(reference(folder), tokens))


def make_multimodal(root: pathlib.Path) -> None:
    """gemma3_new as the text part of a multimodal checkpoint: the older prefix, an outer config, a
    tensor of the vision tower beside it."""
    from safetensors.torch import load_file
    source, folder = root / "gemma3_new", root / "gemma3_mm"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    cfg = json.loads((source / "config.json").read_text())
    inner = {k: v for k, v in cfg.items() if k not in ("architectures", "eos_token_id")}
    outer = {"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3",
             "eos_token_id": [2, 106], "tie_word_embeddings": True, "text_config": inner}
    (folder / "config.json").write_text(json.dumps(outer, indent=1) + "\n")
    weights = {"language_model." + k: v
               for k, v in load_file(source / "model.safetensors").items()}
    weights["vision_tower.vision_model.post_layernorm.weight"] = torch.ones(8)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    for f in ("tokens.npy", "logits.npy"):
        shutil.copy(source / f, folder / f)


# ---- GGUF ----------------------------------------------------------------------------------------

GGUF_NAMES = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
}
LLAMA_NORM = {"post_attention_layernorm": "ffn_norm"}
GEMMA_NORMS = {"post_attention_layernorm": "post_attention_norm",
               "pre_feedforward_layernorm": "ffn_norm",
               "post_feedforward_layernorm": "post_ffw_norm"}
INTERLEAVED = ("llama", "smollm3")
Q = gguf.GGMLQuantizationType


def gguf_name(key: str, arch: str) -> str:
    names = GGUF_NAMES | (GEMMA_NORMS if arch == "gemma3" else LLAMA_NORM)
    stem, kind = key.rsplit(".", 1)
    if stem.startswith("model.layers."):
        layer, rest = stem[len("model.layers."):].split(".", 1)
        return f"blk.{layer}.{names[rest]}.{kind}"
    return f"{names[stem]}.{kind}"


def interleave(w: np.ndarray, heads: int) -> np.ndarray:
    """Rows of q or k as GGUF's llama keeps them: 2j + t of a head is half-split row t d/2 + j."""
    d = w.shape[0] // heads
    return w.reshape(heads, 2, d // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def encode(w: np.ndarray, kind, rng) -> tuple:
    """Bytes as stored and the values that they mean."""
    if kind in (Q.Q4_K, Q.Q6_K):  # the package only decodes these: any bytes are weights
        block = gguf.GGML_QUANT_SIZES[kind]
        raw = rng.integers(0, 256, (w.shape[0], w.shape[1] // block[0], block[1]), dtype=np.uint8)
        scale = rng.uniform(0.5, 1.5, raw.shape[:2]) / w.shape[1] ** 0.5
        if kind == Q.Q4_K:  # d (6-bit scale) q - dmin (6-bit minimum)
            for at, unit in ((0, 1 / 220.0), (2, 1 / 30.0)):
                half = (scale * unit).astype(np.float16)
                raw[:, :, at:at + 2] = half[..., None].view(np.uint8)
        else:  # d (int8 scale) (6-bit q - 32)
            half = (scale / 1200.0).astype(np.float16)
            raw[:, :, -2:] = half[..., None].view(np.uint8)
        raw = raw.reshape(w.shape[0], -1)
    else:
        raw = gguf.quants.quantize(w, kind)
    return raw, gguf.quants.dequantize(raw, kind).astype(np.float32)


def frequency_divisors(cfg: dict, head_dim: int) -> np.ndarray:
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
    hf = transformers.AutoConfig.for_model(
        cfg["model_type"], **{k: v for k, v in cfg.items() if k != "model_type"})
    scaled, _ = ROPE_INIT_FUNCTIONS[cfg["rope_scaling"]["rope_type"]](hf, "cpu")
    plain = cfg["rope_theta"] ** -(np.arange(0, head_dim, 2) / head_dim)
    return (plain / scaled.double().numpy()).astype(np.float32)


def write_gguf(path: pathlib.Path, cfg: dict, weights: dict, kinds) -> dict:
    """Write a GGUF file; returns the weights in Hugging Face order as the file means them."""
    arch = cfg["model_type"].removesuffix("_text")
    heads, kv = cfg["num_attention_heads"], cfg["num_key_value_heads"]
    out = gguf.GGUFWriter(path, arch)
    head_dim = cfg.get("head_dim", cfg["hidden_size"] // heads)
    out.add_context_length(cfg["max_position_embeddings"])
    out.add_embedding_length(cfg["hidden_size"])
    out.add_block_count(cfg["num_hidden_layers"])
    out.add_feed_forward_length(cfg["intermediate_size"])
    out.add_head_count(heads)
    out.add_head_count_kv(kv)
    out.add_key_length(head_dim)
    out.add_value_length(head_dim)
    out.add_layer_norm_rms_eps(cfg["rms_norm_eps"])
    if arch == "gemma3":
        out.add_sliding_window(cfg["sliding_window"])
        out.add_float32("gemma3.attention.scale", cfg["query_pre_attn_scalar"] ** -0.5)
        out.add_rope_freq_base(cfg["rope_theta"])
        out.add_float32("gemma3.rope.freq_base_swa", cfg["rope_local_base_freq"])
        out.add_uint32("gemma3.attention.sliding_window_pattern", cfg["sliding_window_pattern"])
        if cfg.get("rope_scaling"):
            out.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
            out.add_rope_scaling_factor(cfg["rope_scaling"]["factor"])
    else:
        out.add_rope_dimension_count(head_dim)
        out.add_rope_freq_base(cfg.get("rope_theta", 10000.0))
        if cfg.get("rope_scaling"):  # divisors of the frequencies, one for each pair
            out.add_tensor("rope_freqs.weight", frequency_divisors(cfg, head_dim))
    rng = np.random.default_rng(7)
    meant = {}
    for key, tensor in weights.items():
        w = tensor.float().numpy()
        kind = kinds(key, w)
        order = heads if "q_proj" in key else kv if "k_proj" in key else 0
        if arch in INTERLEAVED and order:
            w = interleave(w, order)
        if arch == "gemma3" and "norm" in key:
            w = w + np.float32(1.0)
        if kind is None:
            out.add_tensor(gguf_name(key, arch), w)
            meant[key] = tensor.float()
            continue
        raw, values = encode(w, kind, rng)
        out.add_tensor(gguf_name(key, arch), raw, raw_dtype=kind)
        if arch in INTERLEAVED and order:  # back to half-split order
            d = values.shape[0] // order
            values = values.reshape(order, d // 2, 2, -1).swapaxes(1, 2).reshape(values.shape)
        meant[key] = torch.from_numpy(values.copy())
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    return meant


def make_twin(root: pathlib.Path, source: str) -> None:
    """The same weights as a GGUF file: matrices in their own type, the rest in f32."""
    from safetensors.torch import load_file
    cfg = json.loads((root / source / "config.json").read_text())
    weights = load_file(root / source / "model.safetensors")
    bf16 = cfg["torch_dtype"] == "bfloat16"
    write_gguf(root / source / "twin.gguf", cfg, weights,
               lambda key, w: Q.BF16 if bf16 and w.ndim == 2 else None)


TWINS = ("llama_plain", "gemma3_old", "llama_llama3", "qwen2", "qwen3", "smollm3_interval")


# Block types by tensor: q, k, v and gate, up of one kind in some layers and not in others, so that
# fused and separate linears are both there.
def mixed(key: str, w: np.ndarray):
    if w.ndim != 2:
        return None
    if "layers.0." in key:
        return Q.Q4_0
    if "v_proj" in key or "down_proj" in key:
        return Q.Q8_0
    if "up_proj" in key:
        return Q.Q5_1
    if "embed" in key:
        return Q.Q8_0
    return Q.Q4_1


def q4_0(key: str, w: np.ndarray):
    return None if w.ndim != 2 else Q.Q8_0 if "embed" in key else Q.Q4_0


def k_quants(key: str, w: np.ndarray):
    if w.ndim != 2:
        return None
    return Q.Q6_K if "v_proj" in key or "down_proj" in key else (
        Q.Q8_0 if "embed" in key else Q.Q4_K)


QUANTISED = {
    "gguf_mixed": (config(*LLAMA, tie_word_embeddings=True, hidden_size=64, head_dim=16,
                          intermediate_size=96, vocab_size=131), mixed),
    "gguf_k": (config(*LLAMA, tie_word_embeddings=True, hidden_size=256, head_dim=32,
                      num_attention_heads=8, intermediate_size=256, vocab_size=128,
                      num_hidden_layers=2), k_quants),
    # Windows, folded norms and keys in half-split order.
    "gguf_gemma3": (gemma3(hidden_size=64, intermediate_size=96, rope_theta=1e6, vocab_size=131,
                           num_hidden_layers=3, rope_local_base_freq=100.0,
                           sliding_window_pattern=3), q4_0),
}


def make_quantised(name: str, cfg: dict, kinds, root: pathlib.Path) -> None:
    folder = root / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    hf = transformers.AutoConfig.for_model(
        cfg["model_type"], **{k: v for k, v in cfg.items() if k != "model_type"})
    model = transformers.AutoModelForCausalLM.from_config(hf, attn_implementation="eager")
    weights = random_weights(model, name, torch.float32)
    meant = write_gguf(folder / "model.gguf", cfg, weights, kinds)
    missing, unexpected = model.load_state_dict(meant, strict=False)
    assert set(missing) <= {"lm_head.weight"} and not unexpected, (missing, unexpected)
    model.tie_weights()
    tokens = tokens_of(name, cfg["vocab_size"])
    write_golden(folder, tokens, logits_of(model.float().eval(), tokens))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "tests" / "golden" / "models")
    parser.add_argument("--only", nargs="*")
    args = parser.parse_args()
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)

    def wanted(name: str) -> bool:
        return not args.only or name in args.only

    for name, cfg in MODELS.items():
        if wanted(name):
            make_model(name, cfg, args.out)
    if wanted("gemma3_mm"):
        make_multimodal(args.out)
    for name in TWINS:
        if wanted(name):
            make_twin(args.out, name)
    for name, (cfg, kinds) in QUANTISED.items():
        if wanted(name):
            make_quantised(name, cfg, kinds, args.out)


if __name__ == "__main__":
    main()
