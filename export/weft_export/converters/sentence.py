"""What makes one vector of a text: the files of sentence-transformers beside a body's, or what the exporter chooses.

modules.json lists a Transformer, a Pooling, perhaps Dense layers, and perhaps Normalize. Each has a folder.
"""

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from weft_export.checkpoints.formats import MODULES, TOKEN_VECTORS
from weft_export.choices import POOLINGS, Pooling
from weft_export.converters.converter import HfCheckpoint
from weft_export.converters.keys import Table
from weft_export.converters.late_interaction import is_late, lengths_of, read_late, stanford_width
from weft_export.converters.lengths import bounded
from weft_export.converters.pooling_file import pooling_in
from weft_export.converters.prompts import check_pooled, read_prompts
from weft_export.converters.sentence_files import (
    DENSE_KEYS,
    EMBEDDER,
    NORMALIZE_KEYS,
    POOLING_KEYS,
    TOKEN_DENSE_KEYS,
    TOKEN_NORMALIZE_KEYS,
    modules_of,
    read_module,
    read_sentence_files,
    truncated,
)
from weft_export.converters.sources import Names, Source
from weft_export.converters.tensors import StoredTensors
from weft_export.converters.token_weights import token_names, token_weights, weighs_tokens
from weft_export.errors import CheckpointError
from weft_export.families.decoder_embedder import DecoderEmbedderConfig
from weft_export.families.decoder_only import DecoderOnlyConfig
from weft_export.families.encoder_only import EncoderConfig
from weft_export.families.sizes import WIDTH
from weft_export.families.text_embedder import Dense, TextEmbedderConfig
from weft_export.layers.pooling import FIRST, NONE

_TORCH = "torch."
_ACTIVATIONS = {"Identity": None, "Tanh": "tanh", "ReLU": "relu", "GELU": "gelu", "SiLU": "silu"}


@dataclass(frozen=True)
class _Ending:
    """What stands behind a body. folders are those of the dense layers; cut is truncate_dim."""

    pooling: str
    normalized: bool
    dense: tuple[Dense, ...] = ()
    folders: tuple[Path, ...] = ()
    cut: int | None = None

    def sizes(self) -> dict[str, Any]:
        """Return it as the fields of a config."""
        return {"pooling": self.pooling, "dense": self.dense, "normalized": self.normalized, "cut": self.cut}


def embedder_sizes(body: EncoderConfig, hf: HfCheckpoint) -> TextEmbedderConfig:
    """Put what is behind a body to its sizes.

    Raises:
        CheckpointError: nothing says it, or it is not supported.
    """
    ending = _ending_of(hf)
    kept = {field.name: getattr(body, field.name) for field in fields(EncoderConfig)}
    if ending.pooling != NONE:
        kept["max_tokens"] = _bounded(body.max_tokens, hf)
        # Who chooses a pooling wants one vector of a text.
        if hf.options.pooling is not None or not weighs_tokens(hf.directory):
            return TextEmbedderConfig(**kept, **ending.sizes())
        if ending != _Ending(FIRST, normalized=True):
            raise CheckpointError(
                f"{hf.directory / MODULES}: beside {TOKEN_VECTORS} the first token is pooled and then normalized, and"
                " nothing else is done; --pooling makes one vector of a text alone"
            )
        weighs = token_weights(hf, body.vocab_size)
        return TextEmbedderConfig(**kept, **ending.sizes(), averages=True, weighs=weighs)
    _check_late(hf)
    late = read_late(hf)
    lengths = lengths_of(hf, late, body.max_tokens)
    kept["max_tokens"] = max(lengths.query, lengths.document)
    return TextEmbedderConfig(**kept, **ending.sizes(), averages=late.averages)


def decoder_embedder_sizes(body: DecoderOnlyConfig, hf: HfCheckpoint) -> DecoderEmbedderConfig:
    """Do the same for a decoder, whose words are only read. Raises as embedder_sizes."""
    ending = _ending_of(hf)
    words = replace(body.embeddings, tied=True, bias=False, transform=None)
    if ending.pooling == NONE:
        raise CheckpointError("a vector for each token is read of encoders alone, and this is a decoder")
    body = replace(body, embeddings=words, max_tokens=_bounded(body.max_tokens, hf))
    # transformers 5 reads it of every decoder.
    causal = hf.fields.flag("is_causal", default=True)
    if not causal and any(body.windows):
        raise hf.fields.wrong("is_causal", "is not supported for a model with windows")
    return DecoderEmbedderConfig(body=body, causal=causal, **ending.sizes())


def _bounded(max_tokens: int, hf: HfCheckpoint) -> int:
    """Return how long a text may be: what is chosen, or what the files say, as far as the body takes it."""
    expected = EMBEDDER if hf.options.pooling is None else None
    return bounded(max_tokens, read_sentence_files(hf, expected).longest, hf)


def dense_names(config: Any, hf: HfCheckpoint) -> Names:
    """Return the sources of the dense layers, which lie in folders or files of their own."""
    names: dict[str, Source | str] = {}
    if getattr(config, "weighs", None) is not None:
        names |= token_names(hf.directory, config.d_model)
    for index, folder in enumerate(_ending_of(hf).folders):
        stored = StoredTensors(folder)
        for part in stored.entries:
            names[f"dense.{index}.{part.removeprefix('linear.')}"] = _apart(stored, part)
    return names


def _apart(stored: StoredTensors, name: str) -> Source:
    def make() -> Tensor:
        # The sizes are compared on meta, where nothing is read.
        is_meta = torch.empty(0).is_meta
        return torch.empty(stored.entries[name].shape) if is_meta else stored.read(name)

    return Source((), make)


def _check_late(hf: HfCheckpoint) -> None:
    """Hold the files of a model with a vector for each token to their tables."""
    if (hf.directory / MODULES).exists():
        read_sentence_files(hf, EMBEDDER)


def _late_ending(hf: HfCheckpoint) -> _Ending:
    directory = hf.directory
    if not (directory / MODULES).exists():
        return _Ending(NONE, normalized=True, dense=(Dense(stanford_width(hf), bias=False),))
    modules = modules_of(directory)
    kinds = [kind for kind, _ in modules]
    layers = [kind for kind in kinds if kind == "Dense"]
    expected = ["Transformer", *layers]
    if kinds not in (expected, [*expected, "MultiVectorMask"], [*expected, "MultiVectorMask", "Normalize"]):
        raise CheckpointError(
            f"{directory / MODULES} lists {', '.join(kinds)}; of a model with a vector for each token a Transformer and"
            " Dense are supported, then MultiVectorMask, then Normalize"
        )
    if modules[0][1] != directory:
        raise CheckpointError(f"{directory / MODULES}: the Transformer is supported in the same directory alone")
    if kinds[-1] == "Normalize" and (modules[-1][1] / "config.json").exists():
        read_module(hf, modules[-1][1], TOKEN_NORMALIZE_KEYS)
    folders = tuple(folder for kind, folder in modules if kind == "Dense")
    dense = tuple(_dense(hf, folder, TOKEN_DENSE_KEYS) for folder in folders)
    # PyLate's have neither a mask nor Normalize: encode() does both.
    normalized = kinds == expected or kinds[-1] == "Normalize"
    return _Ending(NONE, normalized=normalized, dense=dense, folders=folders)


def _ending_of(hf: HfCheckpoint) -> _Ending:
    directory, chosen = hf.directory, hf.options.pooling
    if chosen is None and is_late(directory, hf.fields.raw("architectures")):
        return _late_ending(hf)
    said = truncated(directory)
    cut = None if said is None else min(said, WIDTH)
    if chosen is not None:
        return _Ending(POOLINGS[Pooling(chosen)].family, normalized=True, cut=cut)
    if not (directory / MODULES).exists():
        raise CheckpointError(
            f"{directory} has no {MODULES} of sentence-transformers, which says how a text becomes one vector;"
            " choose it by --pooling"
        )
    modules = modules_of(directory)
    kinds = [kind for kind, _ in modules]
    if kinds[:2] != ["Transformer", "Pooling"] or set(kinds[2:]) - {"Dense", "Normalize"}:
        raise CheckpointError(
            f"{directory / MODULES} lists {', '.join(kinds)}; a Transformer and a Pooling are supported, then Dense"
            " and Normalize"
        )
    if "Normalize" in kinds[:-1]:
        raise CheckpointError(f"{directory / MODULES}: Normalize is supported as the last module alone")
    if modules[0][1] != directory:
        raise CheckpointError(f"{directory / MODULES}: the Transformer is supported in the same directory alone")
    if kinds[-1] == "Normalize" and (modules[-1][1] / "config.json").exists():
        read_module(hf, modules[-1][1], NORMALIZE_KEYS)
    dense = [(folder, _dense(hf, folder)) for kind, folder in modules if kind == "Dense"]
    return _Ending(
        _pooling(hf, modules[1][1]),
        normalized=kinds[-1] == "Normalize",
        dense=tuple(layer for _, layer in dense),
        folders=tuple(folder for folder, _ in dense),
        cut=cut,
    )


def _pooling(hf: HfCheckpoint, folder: Path) -> str:
    config = read_module(hf, folder, POOLING_KEYS)
    pooling = pooling_in(folder / "config.json", config)
    is_last = pooling == Pooling.LAST
    check_pooled(folder / "config.json", config, read_prompts(hf.directory), is_last=is_last)
    return POOLINGS[pooling].family


def _dense(hf: HfCheckpoint, folder: Path, table: Table = DENSE_KEYS) -> Dense:
    config = read_module(hf, folder, table)
    said = str(config.get("activation_function", f"{_TORCH}Tanh"))
    word = said.rpartition(".")[2]
    if word not in _ACTIVATIONS or not said.startswith(_TORCH):
        raise CheckpointError(f"{folder / 'config.json'}: activation_function {said!r:.80} is not supported")
    width, bias = config.get("out_features"), config.get("bias", True)
    if type(width) is not int or not isinstance(bias, bool):
        raise CheckpointError(f"{folder / 'config.json'} has no whole out_features, or a bias that is no flag")
    return Dense(width, _ACTIVATIONS[word], bias)
