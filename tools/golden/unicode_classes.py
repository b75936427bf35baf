#!/usr/bin/env python3
"""Write src/text/uclass_table.inc: ranges of code points and the classes that split patterns use.

The classes are read out of the reference library itself (tokenizers), so that the built-in
splitters agree with it whatever Unicode version the system's libraries have.
Usage: unicode_classes.py > src/text/uclass_table.inc
"""
import sys

from tokenizers import Regex, __version__
from tokenizers.pre_tokenizers import Split

CLASSES = [  # bit order as in uclass.h
    r"\p{L}",
    r"\p{N}",
    r"\s",
    r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]",
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]",
    r"\p{M}",
]


def members(pattern, code_points):
    split = Split(Regex(pattern), "removed", invert=True)
    found = set()
    step = 4096
    for i in range(0, len(code_points), step):
        text = "".join(map(chr, code_points[i : i + step]))
        for piece, _ in split.pre_tokenize_str(text):
            found.update(map(ord, piece))
    return found


def main():
    code_points = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    bits = [0] * 0x110000
    for i, pattern in enumerate(CLASSES):
        for c in members(pattern, code_points):
            bits[c] |= 1 << i
    print(f"// Made by tools/golden/unicode_classes.py with tokenizers {__version__}; do not edit.")
    row = []
    start = 0
    for c in range(1, 0x110001):
        if c == 0x110000 or bits[c] != bits[start]:
            if bits[start]:
                row.append(f"{{0x{start:x}, 0x{c - 1:x}, {bits[start]}}},")
            start = c
    line = ""
    for item in row:
        if len(line) + len(item) + 1 > 100:
            print(line)
            line = ""
        line += (" " if line else "") + item
    print(line)


if __name__ == "__main__":
    sys.exit(main())
