#!/usr/bin/env python3
"""Lint that compilers do not do: include direction, banned functions, names, sizes, format.

    lint.py [--objects BUILD_DIR]

With --objects, `nm` checks that every symbol a module exports is qn_… or quern_…
Prints one line per finding; exit status 1 if there is any.
"""

import argparse
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

MAY_INCLUDE = {
    "base": set(),
    "kernels": {"base"},
    "formats": {"base"},
    "text": {"base"},
    "model": {"base", "kernels", "formats"},
    "engine": {"base", "kernels", "text", "model"},
    "server": {"base"},
    "cli": {"base"},
}
# file -> modules it may include beyond its own layer, each with its reason
EXCEPTIONS = {
    "src/cli/serve.c": {"server"},       # starts it
    "src/cli/inspect.c": {"formats"},    # shows checkpoints as they are
    "src/cli/version.c": {"kernels"},    # prints the instruction set
    "src/engine/api_model.c": {"formats"},  # opens the checkpoint
    "src/engine/api_tok.c": {"formats"},    # reads a GGUF file's vocabulary
}
BANNED = re.compile(r"\b(strcpy|strcat|sprintf|vsprintf|strtok|atoi|atol|atof|alloca|gets)\s*\(")
ARCH_MACRO = re.compile(r"\b(__ARM_NEON|__ARM_FEATURE_\w+|__aarch64__|__x86_64__|__AVX\w+__)\b")
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')
MAX_LINES = 900


def tracked(*suffixes):
    out = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [p for p in out.stdout.splitlines() if p.endswith(suffixes) and (ROOT / p).exists()]


def strip_comments(text):
    return re.sub(r"//[^\n]*|/\*.*?\*/", lambda m: "\n" * m.group().count("\n"), text, flags=re.S)


def check_file(path, findings):
    text = (ROOT / path).read_text(encoding="utf-8")
    code = strip_comments(text)
    parts = path.split("/")
    module = parts[1] if parts[0] == "src" and len(parts) > 2 else None
    is_test = re.search(r"_(test|check|fuzz)\.c$", path) is not None
    for number, line in enumerate(code.splitlines(), 1):
        if m := BANNED.search(line):
            findings.append(f"{path}:{number}: {m.group(1)} is banned")
        if module not in ("base", "kernels", None) and ARCH_MACRO.search(line):
            findings.append(f"{path}:{number}: architecture macros belong to kernels/ and base/")
        m = INCLUDE.match(line)
        if not m or module is None:
            continue
        target = m.group(1).split("/")
        if m.group(1) == "quern/quern.h":
            continue
        if len(target) < 2:
            findings.append(f'{path}:{number}: include "{m.group(1)}" is not written from src/')
            continue
        allowed = MAY_INCLUDE[module] | {module} | EXCEPTIONS.get(path, set())
        if target[0] not in allowed and not is_test:
            findings.append(f"{path}:{number}: {module} may not include {target[0]}")
    lines = text.count("\n")
    if lines > MAX_LINES:
        findings.append(f"{path}: {lines} lines, more than {MAX_LINES}: split it")
    if path.endswith(".h") and not re.search(r"#ifndef \w+_H\b", text):
        findings.append(f"{path}: no include guard")


def check_format(files, findings):
    tool = shutil.which("clang-format-14") or shutil.which("clang-format")
    if tool is None:
        sys.exit("lint: clang-format 14 is missing (package clang-format-14)")
    out = subprocess.run([tool, "--dry-run", *files], cwd=ROOT, capture_output=True, text=True)
    for line in out.stderr.splitlines():
        if "warning:" in line:
            findings.append(line)


def check_symbols(build, findings):
    for library in sorted(pathlib.Path(build).glob("src/*/libquern_*.a")):
        out = subprocess.run(["nm", "--defined-only", "--extern-only", str(library)],
                             capture_output=True, text=True, check=True)
        for line in out.stdout.splitlines():
            fields = line.split()
            if len(fields) == 3 and not re.match(r"(qn_|quern_|__odr_asan|__asan|__ubsan|__tsan)",
                                                 fields[2]):
                findings.append(f"{library.name}: exported symbol {fields[2]}: expected qn_…, "
                                "quern_… or static")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--objects", metavar="BUILD_DIR")
    args = parser.parse_args()
    findings = []
    sources = tracked(".c", ".h", ".inc")
    for path in sources:
        check_file(path, findings)
    check_format([p for p in sources if p.endswith((".c", ".h"))], findings)
    if args.objects:
        check_symbols(args.objects, findings)
    for finding in findings:
        print(finding)
    print(f"lint: {len(sources)} files, {len(findings)} findings")
    sys.exit(1 if findings else 0)


if __name__ == "__main__":
    main()
