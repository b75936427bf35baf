#!/usr/bin/env python3
"""Train one small tokenizer per family and write tests/data/tokenizers: NAME.json and, for each, the
reference library's ids and texts of generated strings in NAME.golden.

    tokenizer_train.py --corpus tests/data/english.txt --out tests/data/tokenizers

A line of a golden file: flags (1 add special tokens, 2 parse special tokens), the string as JSON,
its ids, the text of those ids as JSON without and with special tokens skipped; separated by tabs.
"""
import argparse
import json
import os
import random

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, processors
from tokenizers import pre_tokenizers as pre
from tokenizers import trainers

from tokenizer_diff import CODE, EMOJI, GPT2, LLAMA3, QWEN2, SCRIPTS, WORDS, Strings, split

UP = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
LOW = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
HEAD = r"[^\r\n\p{L}\p{N}]?"
TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
SHORT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
GPT4O = f"{HEAD}{UP}*{LOW}+{SHORT}|{HEAD}{UP}+{LOW}*{SHORT}|" + r"\p{N}{1,3}" + TAIL
TEKKEN = f"{HEAD}{UP}*{LOW}+|{HEAD}{UP}+{LOW}*|" + r"\p{N}" + TAIL
BLANK = "\u2581"


def byte_level(steps, ignore_merges, norm=None, specials=("<|bos|>", "<|end|>")):
    tok = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    if norm is not None:
        tok.normalizer = norm
    tok.pre_tokenizer = pre.Sequence(steps + [pre.ByteLevel(False, use_regex=False)])
    tok.decoder = decoders.ByteLevel()
    return tok, list(specials), pre.ByteLevel.alphabet()


def fallback(norm, decoder, pre_tokenizer=None):
    tok = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    if norm is not None:
        tok.normalizer = norm
    if pre_tokenizer is not None:
        tok.pre_tokenizer = pre_tokenizer
    tok.decoder = decoder
    specials = ["<pad>", "<eos>", "<bos>", "<unk>"] + [f"<0x{b:02X}>" for b in range(256)]
    return tok, specials, []


def plain_decoder(*last):
    return decoders.Sequence(
        [decoders.Replace(BLANK, " "), decoders.ByteFallback(), decoders.Fuse(), *last]
    )


FAMILIES = {
    "llama3": lambda: byte_level([split(LLAMA3)], True),
    "qwen": lambda: byte_level([split(QWEN2)], False, normalizers.NFC()),
    "gptoss": lambda: byte_level([split(GPT4O)], True),
    "tekken": lambda: byte_level([split(TEKKEN)], True),
    "smollm": lambda: byte_level([pre.Digits(individual_digits=True), split(GPT2)], False),
    "gemma": lambda: fallback(
        normalizers.Replace(" ", BLANK), plain_decoder(), pre.Split(" ", "merged_with_previous")
    ),
    "mistral": lambda: fallback(
        normalizers.Sequence([normalizers.Prepend(BLANK), normalizers.Replace(" ", BLANK)]),
        plain_decoder(decoders.Strip(" ", 1, 0)),
    ),
    "metaspace": lambda: fallback(
        None, plain_decoder(decoders.Strip(" ", 1, 0)), pre.Metaspace(BLANK, "first", False)
    ),
}


def material(corpus):
    r = random.Random(5)
    text = [corpus, "\n".join(CODE) * 3, " ".join(WORDS) * 3, " ".join(EMOJI) * 3]
    for lo, hi in SCRIPTS:
        letters = [chr(r.randint(lo, min(hi, lo + 40))) for _ in range(30)]
        text.append(" ".join("".join(r.choice(letters) for _ in range(4)) for _ in range(20)))
    return text


def train(name, corpus, size):
    tok, specials, alphabet = FAMILIES[name]()
    is_bytes = bool(alphabet)
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=specials, initial_alphabet=alphabet, show_progress=False,
        limit_alphabet=256 if is_bytes else 200,
    )
    tok.train_from_iterator(material(corpus), trainer)
    tok = Tokenizer.from_str(demote(tok.to_str()))
    tok.add_special_tokens([AddedToken("<|mask|>", lstrip=True), AddedToken("<|cut|>", rstrip=True)])
    tok.add_tokens([AddedToken("<think>", normalized=False), AddedToken("word", single_word=True)])
    bos = specials[0] if is_bytes else "<bos>"
    end = specials[1] if is_bytes else "<eos>"
    tok.post_processor = processors.TemplateProcessing(
        single=f"{bos} $A" if name != "tekken" else f"{bos} $A {end}",
        special_tokens=[(bos, tok.token_to_id(bos)), (end, tok.token_to_id(end))],
    )
    return tok


def demote(text):
    """The byte tokens are ordinary vocabulary, not added tokens."""
    j = json.loads(text)
    j["added_tokens"] = [a for a in j["added_tokens"] if not a["content"].startswith("<0x")]
    return json.dumps(j, ensure_ascii=False)


def golden(tok, corpus, count):
    added = [t.content for t in tok.get_added_tokens_decoder().values()]
    gen = Strings(11, added, corpus)
    for i in range(count):
        s = gen.next()[:120]
        flags = [2, 3, 0][i % 3]
        tok.encode_special_tokens = not flags & 2
        ids = tok.encode(s, add_special_tokens=bool(flags & 1)).ids
        tok.encode_special_tokens = False
        texts = [json.dumps(tok.decode(ids, skip_special_tokens=k)) for k in (False, True)]
        yield "\t".join([str(flags), json.dumps(s), " ".join(map(str, ids)), *texts])


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--corpus", required=True)
    p.add_argument("--out", required=True)
    p.add_argument("--size", type=int, default=1200)
    p.add_argument("--count", type=int, default=150)
    a = p.parse_args()
    with open(a.corpus, encoding="utf-8") as f:
        corpus = f.read()
    os.makedirs(a.out, exist_ok=True)
    for name in FAMILIES:
        tok = train(name, corpus, a.size)
        path = os.path.join(a.out, name + ".json")
        with open(path, "w", encoding="utf-8") as f:
            f.write(json.dumps(json.loads(tok.to_str()), ensure_ascii=False, separators=(",", ":")))
            f.write("\n")
        tok = Tokenizer.from_file(path)
        with open(os.path.join(a.out, name + ".golden"), "w", encoding="utf-8") as f:
            for line in golden(tok, corpus, a.count):
                f.write(line + "\n")


if __name__ == "__main__":
    main()
