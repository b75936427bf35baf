#!/usr/bin/env python3
"""Hold quern's tokenizer against the reference library (tokenizers) on generated strings.

    tokenizer_diff.py --tool build/dev/tok_tool [--count N] [--seed S] [--corpus FILE ...]
                      FILE[=REFERENCE] ...

FILE is a tokenizer.json or a GGUF file. The reference is built from REFERENCE or FILE: a
tokenizer.json as it is; from GGUF the same parts put together here (gpt2: vocabulary, merges and
the split of the model's own tokenizer.json; llama: merges made from the scores as the reference
library's converters do). Compared are ids with and without special tokens and the decoded text of
those ids and of random ids. Ends with 1 when anything differs.
"""
import argparse
import random
import struct
import subprocess
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
from tokenizers import pre_tokenizers as pre

CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = (
    CONTRACTION
    + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
    + SPACES
)
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def split(pattern):
    return pre.Split(Regex(pattern), "isolated")


PRE = {  # GGUF name -> (pre-tokenizers, normaliser, ignore_merges)
    "llama-bpe": ([split(LLAMA3)], None, True),
    "qwen2": ([split(QWEN2)], normalizers.NFC(), False),
    "smollm": ([pre.Digits(individual_digits=True), split(GPT2)], None, False),
}


def from_gguf(path):
    from gguf import GGUFReader

    reader = GGUFReader(path)

    def get(key, default=None):
        field = reader.fields.get("tokenizer.ggml." + key)
        return default if field is None else field.contents()

    tokens, types = get("tokens"), get("token_type")
    model, blank = get("model"), "\u2581"
    vocab = {t: i for i, t in enumerate(tokens)}
    normal = {t for t, k in zip(tokens, types) if k == 1}
    if model == "llama":
        scores = get("scores")
        cuts = []
        for i, t in enumerate(tokens):
            if types[i] != 1:
                continue
            for k in range(1, len(t)):
                if t[:k] in normal and t[k:] in normal:
                    cuts.append((-scores[i], len(cuts), t[:k], t[k:]))
        merges = [(a, b) for _, _, a, b in sorted(cuts)]
        known = set(tokens)
        lone = {c for t in normal for c in t} - known
        if lone:
            print(f"  note: {len(lone)} characters occur inside tokens alone")
    else:
        merges = [tuple(m.split(" ", 1)) if m[0] != " " else (" ", m[2:]) for m in get("merges")]
        merges = [m for m in merges if "".join(m) in normal]
    if model == "gpt2":
        steps, norm, ignore = PRE[get("pre")]
        tok = Tokenizer(models.BPE(vocab, merges, ignore_merges=ignore))
        if norm is not None:
            tok.normalizer = norm
        tok.pre_tokenizer = pre.Sequence(steps + [pre.ByteLevel(False, use_regex=False)])
        tok.decoder = decoders.ByteLevel()
    else:
        unk = tokens[get("unknown_token_id", 0)]
        tok = Tokenizer(models.BPE(vocab, merges, unk_token=unk, byte_fallback=True, fuse_unk=True))
        prefix = model == "llama" and get("add_space_prefix", True)
        steps = [normalizers.Prepend(blank)] if prefix else []
        tok.normalizer = normalizers.Sequence(steps + [normalizers.Replace(" ", blank)])
        last = [decoders.Strip(" ", 1, 0)] if prefix else []
        tok.decoder = decoders.Sequence(
            [decoders.Replace(blank, " "), decoders.ByteFallback(), decoders.Fuse()] + last
        )
    added = [
        AddedToken(t, special=types[i] != 4, normalized=False)
        for i, t in enumerate(tokens)
        if types[i] in (2, 3, 4)
    ]
    tok.add_tokens([t for t in added if not t.special])
    tok.add_special_tokens([t for t in added if t.special])
    return tok


def reference(path):
    return from_gguf(path) if path.endswith(".gguf") else Tokenizer.from_file(path)


SCRIPTS = [  # inclusive ranges that strings are drawn from
    (0x20, 0x7E), (0xA0, 0x24F), (0x250, 0x2FF), (0x300, 0x36F), (0x370, 0x3FF), (0x400, 0x52F),
    (0x530, 0x58F), (0x590, 0x5FF), (0x600, 0x6FF), (0x900, 0x97F), (0x980, 0x9FF), (0xB80, 0xBFF),
    (0xE00, 0xE7F), (0xF00, 0xFFF), (0x10A0, 0x10FF), (0x1100, 0x11FF), (0x1200, 0x137F),
    (0x13A0, 0x13FF), (0x1780, 0x17FF), (0x1E00, 0x1FFF), (0x2000, 0x206F), (0x2070, 0x218F),
    (0x2190, 0x23FF), (0x2460, 0x24FF), (0x2600, 0x27BF), (0x3000, 0x30FF), (0x3400, 0x34FF),
    (0x4E00, 0x9FFF), (0xA640, 0xA69F), (0xAC00, 0xD7A3), (0xF900, 0xFAFF), (0xFB00, 0xFDFF),
    (0xFF00, 0xFFEF), (0x10000, 0x100FF), (0x1D400, 0x1D7FF), (0x1F300, 0x1FAFF), (0x20000, 0x200FF),
    (0xE0000, 0xE01EF),
]
SPACE = [" ", "  ", "\n", "\r\n", "\t", "\u00a0", "\u2003", "\u3000", "\u180e", "\x0b", "\x85", "\u2028"]
CODE = [
    "def f(x):\n    return x**2\n", "for (int i = 0; i < n; i++) {\n\t\ta[i] += b[i];\n}\n",
    "#include <stdio.h>\n", "SELECT * FROM t WHERE a >= 10.5 AND b <> 'x';", "<div class=\"a\">&nbsp;</div>",
    "{\"a\": [1, 2.5e-3, null], \"b\": \"\\u00e9\"}", "https://example.org/a/b?c=d&e=%20f#g",
    "x = y ? z : w; // it's the user's I'LL they've WE'RE\n", "\\frac{a}{b} \\sum_{i=0}^{\\infty}",
]
WORDS = (
    "the of and to in is that it was for on are as with his they at be this from have or by one had "
    "not but what all were when we there can an your which their said if do will each about how up "
    "internationalisation Donaudampfschifffahrt naïve coöperate don't I'm you've she'll HE'D it'S "
    "Straße École привет мир Ελληνικά שלום עולם مرحبا नमस्ते สวัสดี 你好世界 こんにちは 안녕하세요 "
    "McDonald iPhone eBay XMLHttpRequest camelCase snake_case SCREAMING_CASE kebab-case ſs 'ſ"
).split(" ")
EMOJI = ["🦙", "😶‍🌫️", "👨‍👩‍👧‍👦", "🇩🇪", "✅", "👍🏽", "❤️", "🏴󠁧󠁢󠁥󠁮󠁧󠁿"]


class Strings:
    def __init__(self, seed, specials, corpus):
        self.r = random.Random(seed)
        self.specials = specials
        self.corpus = corpus
        self.kinds = [self.script, self.words, self.code, self.noise, self.blanks, self.digits,
                      self.special, self.anything, self.text, self.mixed]

    def script(self):
        lo, hi = self.r.choice(SCRIPTS)
        return "".join(
            chr(self.r.randint(lo, hi)) if self.r.random() < 0.9 else self.r.choice(SPACE)
            for _ in range(self.r.randint(1, 40))
        )

    def words(self):
        out = []
        for _ in range(self.r.randint(1, 20)):
            w = self.r.choice(WORDS)
            out.append(self.r.choice([w, w.upper(), w.title(), w + self.r.choice(".,;:!?…")]))
        return self.r.choice([" ", "  ", "\n", ""]).join(out)

    def code(self):
        return "".join(self.r.choice(CODE) for _ in range(self.r.randint(1, 4)))

    def noise(self):
        return self.r.randbytes(self.r.randint(1, 60)).decode("utf-8", "replace")

    def blanks(self):
        return "".join(
            self.r.choice(SPACE) * self.r.randint(1, 40) + self.r.choice(["", "", "x", "é", "1", "/"])
            for _ in range(self.r.randint(1, 8))
        )

    def digits(self):
        return "".join(
            str(self.r.randint(0, 10 ** self.r.randint(1, 20))) + self.r.choice([" ", ".", ",", "", "a", "½", "٣"])
            for _ in range(self.r.randint(1, 10))
        )

    def special(self):
        out = []
        for _ in range(self.r.randint(1, 6)):
            s = self.r.choice(self.specials) if self.specials else "<s>"
            out.append(self.r.choice([s, s, s[:-1], s + " ", " " + s, s.upper(), s + "\n", s[1:]]))
            out.append(self.r.choice(["", " ", "a", self.r.choice(WORDS)]))
        return "".join(out)

    def anything(self):
        out = []
        while len(out) < 30:
            c = self.r.randint(0, 0x10FFFF)
            if not 0xD800 <= c < 0xE000:
                out.append(chr(c))
        return "".join(out[: self.r.randint(1, 30)])

    def text(self):
        if not self.corpus:
            return self.words()
        at = self.r.randrange(len(self.corpus))
        return self.corpus[at : at + self.r.randint(1, 400)]

    def mixed(self):
        return "".join(
            self.r.choice([self.script, self.words, self.digits, self.blanks, lambda: self.r.choice(EMOJI)])()[:20]
            for _ in range(self.r.randint(2, 8))
        )

    def next(self):
        return self.r.choice(self.kinds)()


class Tool:
    def __init__(self, path, model):
        self.p = subprocess.Popen([path, model], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, op, flags, n, data):
        self.p.stdin.write(op + struct.pack("<II", flags, n) + data)
        self.p.stdin.flush()
        head = self.p.stdout.read(4)
        if len(head) != 4:
            raise SystemExit("tok_tool ended early")
        return struct.unpack("<I", head)[0]

    def encode(self, text, flags):
        data = text.encode()
        n = self.ask(b"E", flags, len(data), data)
        return list(struct.unpack(f"<{n}i", self.p.stdout.read(4 * n)))

    def decode(self, ids, skip):
        n = self.ask(b"D", int(skip), len(ids), struct.pack(f"<{len(ids)}i", *ids))
        return self.p.stdout.read(n).decode()

    def close(self):
        self.p.stdin.close()
        return self.p.wait()


def compare(tool_path, model, ref_path, count, seed, corpus):
    ref = reference(ref_path)
    tool = Tool(tool_path, model)
    added = [t.content for t in ref.get_added_tokens_decoder().values()]
    gen = Strings(seed, added, corpus)
    size = ref.get_vocab_size(True)
    bad = {"ids": 0, "ids without special": 0, "text": 0, "text of random ids": 0}

    def differ(kind, given, want, got):
        bad[kind] += 1
        if bad[kind] <= 3:
            print(f"  {kind}: {given!r}\n    want {want!r}\n    got  {got!r}")

    for i in range(count):
        s = gen.next()
        want = ref.encode(s, add_special_tokens=False).ids
        got = tool.encode(s, 2)
        if want != got:
            differ("ids", s, want, got)
        if i % 4 == 0 and not ref_path.endswith(".gguf"):
            want3, got3 = ref.encode(s).ids, tool.encode(s, 3)
            if want3 != got3:
                differ("ids", s, want3, got3)
        if i % 4 == 1:
            ref.encode_special_tokens = True
            plain = ref.encode(s, add_special_tokens=False).ids
            ref.encode_special_tokens = False
            got0 = tool.encode(s, 0)
            if plain != got0:
                differ("ids without special", s, plain, got0)
        skip = bool(i & 1)
        text, back = ref.decode(want, skip_special_tokens=skip), tool.decode(want, skip)
        if text != back:
            differ("text", want, text, back)
        ids = [gen.r.randrange(size + 8) for _ in range(gen.r.randint(1, 12))]
        if i % 3 == 0:  # cut sequences, so that characters end in the middle
            ids = want[gen.r.randrange(len(want) + 1) :][: gen.r.randint(1, 9)] + ids[:2]
        text, back = ref.decode(ids, skip_special_tokens=skip), tool.decode(ids, skip)
        if text != back:
            differ("text of random ids", ids, text, back)
    status = tool.close()
    print(f"{model}: {count} strings, seed {seed}, differences {bad}, tool ended with {status}")
    return status == 0 and not any(bad.values())


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--tool", required=True)
    p.add_argument("--count", type=int, default=20000)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--corpus", action="append", default=[])
    p.add_argument("models", nargs="+")
    a = p.parse_args()
    corpus = "".join(open(f, encoding="utf-8").read() for f in a.corpus)
    ok = True
    for m in a.models:
        model, _, ref = m.partition("=")
        ok &= compare(a.tool, model, ref or model, a.count, a.seed, corpus)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
