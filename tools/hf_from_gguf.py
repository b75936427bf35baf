#!/usr/bin/env python3
"""Turn a GGUF file into a Hugging Face directory, as real input for that path.

    hf_from_gguf.py MODEL.gguf OUT [--shards N]

transformers dequantises the file; the weights are rounded to BF16 and written as safetensors, in
one file or in N shards with an index, beside config.json, generation_config.json, tokenizer.json
and tokenizer_config.json (with the chat template when the file has one). Needs the environment of
tools/ref_env.sh.
"""

import argparse
import json
import pathlib

import torch
import transformers
from safetensors.torch import save_file


def shards_of(state: dict, n: int) -> list:
    """Split by bytes into n runs of consecutive tensors, none empty."""
    total = sum(t.numel() * t.element_size() for t in state.values())
    runs, run, size = [], {}, 0
    for name, tensor in state.items():
        run[name] = tensor
        size += tensor.numel() * tensor.element_size()
        if size >= total * (len(runs) + 1) / n and len(runs) < n - 1:
            runs.append(run)
            run = {}
    if run:
        runs.append(run)
    return runs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gguf", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--shards", type=int, default=1)
    args = parser.parse_args()

    folder, name = str(args.gguf.parent), args.gguf.name
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, gguf_file=name)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, gguf_file=name,
                                                              dtype=torch.float32)
    args.out.mkdir(parents=True, exist_ok=True)
    tokenizer.save_pretrained(args.out)

    config = model.config.to_dict()
    for key in ("quantization_config", "_name_or_path", "_model_name_or_path"):
        config.pop(key, None)
    config["architectures"] = [type(model).__name__]
    config["dtype"] = "bfloat16"
    (args.out / "config.json").write_text(json.dumps(config, indent=2, default=str) + "\n")
    generation = {k: v for k, v in model.generation_config.to_dict().items() if v is not None}
    generation.setdefault("eos_token_id", config.get("eos_token_id"))
    (args.out / "generation_config.json").write_text(
        json.dumps(generation, indent=2, default=str) + "\n")

    state = {k: v.to(torch.bfloat16).contiguous() for k, v in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        state.pop("lm_head.weight", None)
    if args.shards <= 1:
        save_file(state, args.out / "model.safetensors", metadata={"format": "pt"})
        return
    runs = shards_of(state, args.shards)
    weight_map, total = {}, 0
    for i, run in enumerate(runs):
        file = f"model-{i + 1:05d}-of-{len(runs):05d}.safetensors"
        save_file(run, args.out / file, metadata={"format": "pt"})
        weight_map.update(dict.fromkeys(run, file))
        total += sum(t.numel() * t.element_size() for t in run.values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (args.out / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")


if __name__ == "__main__":
    main()
