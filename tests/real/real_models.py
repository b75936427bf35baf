#!/usr/bin/env python3
"""Hold quern against transformers on a real model.

    real_models.py QUERN MODEL [--tokens 2000] [--prompts 8] [--greedy 64] [--json FILE]

MODEL is a .gguf file or a Hugging Face directory. The reference runs in float32 on the same
weights (transformers dequantises GGUF files). Teacher-forced on English text:
  f32 activations: top-1 agreement >= 99.8 %, mean KL <= 1e-5; greedy continuations equal
  int8 activations (integer weights): mean KL <= 5e-3
Exit status 0 when every bound holds. Needs the environment of tools/ref_env.sh.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import torch
import transformers

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TEXT = ROOT / "tests" / "data" / "english.txt"
ROWS = 250  # positions whose logits are held at once
PROMPTS = [
    "The three primary colours are",
    "Write one sentence about the sea.",
    "A recipe for bread needs flour, water and",
    "What is the capital of France?",
    "def fibonacci(n):",
    "In the year 1969, the first people",
    "The opposite of hot is",
    "List the days of the week:",
]


def load_reference(path: pathlib.Path):
    if path.suffix == ".gguf":
        where = {"pretrained_model_name_or_path": str(path.parent), "gguf_file": path.name}
    else:
        where = {"pretrained_model_name_or_path": str(path)}
    tokenizer = transformers.AutoTokenizer.from_pretrained(**where)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        **where, dtype=torch.float32, attn_implementation="eager").eval()
    return tokenizer, model


def text_ids(tokenizer, n: int) -> list:
    ids = tokenizer(TEXT.read_text(encoding="utf-8"))["input_ids"]
    while len(ids) < n:
        ids = ids + tokenizer("\n\n" + TEXT.read_text(encoding="utf-8"),
                              add_special_tokens=False)["input_ids"]
    return ids[:n]


def quern_logits(quern: str, path: pathlib.Path, ids: list, activations: str, folder: str):
    tokens = pathlib.Path(folder) / "ids.txt"
    out = pathlib.Path(folder) / f"{activations}.npy"
    tokens.write_text(",".join(map(str, ids)))
    subprocess.run([quern, "logits", str(path), "--tokens", f"@{tokens}", "--output", str(out),
                    "--activations", activations], check=True)
    return np.load(out, mmap_mode="r")


def compare(model, hidden, logits) -> tuple:
    """Top-1 agreement and mean KL(reference || quern) over all positions."""
    agree, kl, n = 0, 0.0, hidden.shape[0]
    for first in range(0, n, ROWS):
        want = model.lm_head(hidden[first:first + ROWS]).double()
        cap = getattr(model.config, "final_logit_softcapping", None)
        if cap:
            want = torch.tanh(want / cap) * cap
        got = torch.from_numpy(np.array(logits[first:first + ROWS])).double()
        agree += int((want.argmax(-1) == got.argmax(-1)).sum())
        p, q = want.log_softmax(-1), got.log_softmax(-1)
        kl += float((p.exp() * (p - q)).sum())
    return agree / n, kl / n


def greedy(quern: str, path, tokenizer, model, n_prompts: int, n_tokens: int) -> list:
    """Prompts whose n_tokens greedy tokens differ, with both texts."""
    wrong = []
    for prompt in PROMPTS[:n_prompts]:
        if tokenizer.chat_template:
            ids = tokenizer.apply_chat_template([{"role": "user", "content": prompt}],
                                                add_generation_prompt=True, return_tensors="pt",
                                                return_dict=True)["input_ids"]
        else:
            ids = tokenizer(prompt, return_tensors="pt")["input_ids"]
        out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=n_tokens,
                             do_sample=False)
        want = tokenizer.decode(out[0, ids.shape[1]:], skip_special_tokens=True)
        got = subprocess.run([quern, "run", str(path), "-p", prompt, "--max-tokens", str(n_tokens),
                              "--temperature", "0", "--activations", "f32"],
                             check=True, capture_output=True, text=True).stdout
        if got != want + "\n":
            wrong.append((prompt, want, got))
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("quern")
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--tokens", type=int, default=2000)
    parser.add_argument("--prompts", type=int, default=len(PROMPTS))
    parser.add_argument("--greedy", type=int, default=64)
    parser.add_argument("--json")
    args = parser.parse_args()

    torch.manual_seed(0)
    transformers.logging.set_verbosity_error()
    tokenizer, model = load_reference(args.model)
    ids = text_ids(tokenizer, args.tokens)
    with torch.no_grad():
        hidden = model.base_model(torch.tensor([ids])).last_hidden_state[0]
    result, bad = {"model": args.model.name, "tokens": len(ids)}, []
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        for activations in ["f32", "int8"] if args.model.suffix == ".gguf" else ["f32", "bf16"]:
            logits = quern_logits(args.quern, args.model, ids, activations, folder)
            top1, kl = compare(model, hidden, logits)
            result[activations] = {"top1": top1, "kl": kl}
            print(f"{args.model.name}: {activations} activations, {len(ids)} tokens: "
                  f"top-1 {100 * top1:.2f} %, mean KL {kl:.2e}")
            del logits
        if result["f32"]["top1"] < 0.998 or result["f32"]["kl"] > 1e-5:
            bad.append("f32: expected top-1 >= 99.8 % and mean KL <= 1e-5")
        if "int8" in result and result["int8"]["kl"] > 5e-3:
            bad.append("int8: expected mean KL <= 5e-3")
        for prompt, want, got in greedy(args.quern, args.model, tokenizer, model, args.prompts,
                                        args.greedy):
            bad.append(f"greedy answer to {prompt!r}: found {got!r}, expected {want!r}")
    result["greedy_equal"] = args.prompts - sum(b.startswith("greedy") for b in bad)
    print(f"{args.model.name}: {result['greedy_equal']} of {args.prompts} greedy answers of "
          f"{args.greedy} tokens equal")
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(result, indent=2) + "\n")
    for line in bad:
        print("FAILED", line)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
