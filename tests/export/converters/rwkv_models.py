"""Random RWKV 7 models as RWKV-LM saves them, the package `rwkv` that answers for them, and small vocabularies."""

import os
import shutil
import warnings
from contextlib import contextmanager, redirect_stdout
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from unittest.mock import patch

import torch

from weft_export.checkpoints.formats import WORLD_FILE

HEAD = 64
WORDS = [
    "the",
    "the ",
    "then",
    " the",
    "User",
    ": ",
    "Assistant",
    "\n\n",
    "é",
    "漢字",
    "🎉",
    b"\xe6\xbc",
    b"\xf0\x9f",
]


def world_file():
    """Return the vocabulary that the package has."""
    return Path(find_spec("rwkv").submodule_search_locations[0]) / WORLD_FILE


def lines_of(tokens):
    """Return a vocabulary's lines: all single bytes, and then these tokens."""
    every = [bytes([byte]) if byte > 127 else chr(byte) for byte in range(256)] + list(tokens)
    sizes = (len(token.encode() if isinstance(token, str) else token) for token in every)
    return [f"{id_} {token!r} {size}" for id_, (token, size) in enumerate(zip(every, sizes, strict=True), 1)]


def small_vocabulary(folder, tokens=WORDS):
    """Write a vocabulary of bytes and a few words, and return how many ids there are with it."""
    lines = lines_of(tokens)
    (folder / WORLD_FILE).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return len(lines) + 1


def random_weights(seed, *, vocab_size=280, layers=2, heads=2, d_ff=None, ranks=(8, 12, 6, 10), first_values=True):
    """Return what torch.save is given. Some files have value shares of the first layer, which nothing reads."""
    generator = torch.Generator().manual_seed(seed)
    width = heads * HEAD
    d_ff = d_ff or 4 * width

    def normal(*shape, std=1.0):
        return torch.randn(*shape, generator=generator) * std

    def norm(name, size=width):
        return {f"{name}.weight": 1 + normal(size, std=0.2), f"{name}.bias": normal(size, std=0.2)}

    weights = {"emb.weight": normal(vocab_size, width), **norm("blocks.0.ln0")}
    for layer in range(layers):
        block, time, fed = (f"blocks.{layer}{room}" for room in ("", ".att", ".ffn"))
        weights |= norm(f"{block}.ln1") | norm(f"{block}.ln2") | norm(f"{time}.ln_x")
        weights |= {f"{time}.x_{part}": torch.rand(1, 1, width, generator=generator) for part in "rwkvag"}
        for part, rank in zip("wavg", ranks, strict=True):
            if part == "v" and not layer and not first_values:
                continue
            weights[f"{time}.{part}1"] = normal(width, rank, std=width**-0.5)
            weights[f"{time}.{part}2"] = normal(rank, width, std=rank**-0.5)
            if part != "g":
                weights[f"{time}.{part}0"] = normal(1, 1, width)
        weights |= {f"{time}.k_k": 0.7 + normal(1, 1, width, std=0.2), f"{time}.k_a": 1 + normal(1, 1, width, std=0.2)}
        weights[f"{time}.r_k"] = normal(heads, HEAD, std=0.1)
        weights |= {
            f"{time}.{part}.weight": normal(width, width, std=width**-0.5)
            for part in ("receptance", "key", "value", "output")
        }
        weights[f"{fed}.x_k"] = torch.rand(1, 1, width, generator=generator)
        weights[f"{fed}.key.weight"] = normal(d_ff, width, std=width**-0.5)
        weights[f"{fed}.value.weight"] = normal(width, d_ff, std=d_ff**-0.5)
    return {**weights, **norm("ln_out"), "head.weight": normal(vocab_size, width, std=2 * width**-0.5)}


def saved(folder, weights):
    """Write weights as RWKV-LM does, and return the file's path."""
    torch.save(weights, folder / "small.pth")
    return folder / "small.pth"


@contextmanager
def _quiet():
    """Let it say what it does, and that what it is made with is old."""
    with redirect_stdout(StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@cache
def reference():
    """Return the class of the package that answers for an RWKV 7, as it is on a CPU."""
    switches = {"RWKV_V7_ON": "1", "RWKV_CUDA_ON": "0"}
    with patch.dict(os.environ, switches), _quiet():
        return import_module("rwkv.model").RWKV


def opened(path):
    """Return the package's own model of a file, in float32."""
    with _quiet():
        return reference()(str(path.with_suffix("")), "cpu fp32")


def their_logits(model, ids):
    """Return the package's logits behind each of some ids: [ids, vocab]."""
    return model.forward(list(ids), None, full_output=True)[0]


def their_greedy(model, ids, count):
    """Return the most likely tokens that the package writes behind ids, each fed back by itself."""
    logits, state = model.forward(list(ids), None)
    written = []
    for _ in range(count):
        written.append(int(logits.argmax()))
        logits, state = model.forward(written[-1], state)
    return written


def world_folder(folder):
    """Put the package's vocabulary into a folder."""
    shutil.copy(world_file(), folder / WORLD_FILE)
    return folder


def their_tokenizer():
    """Return the package's own tokenizer of its vocabulary. It takes seconds, and hundreds of megabytes."""
    return import_module("rwkv.rwkv_tokenizer").TRIE_TOKENIZER(str(world_file()))
