"""From a file that RWKV-LM saves, or one of its releases, to a checkpoint of ours: a .pth with the weights alone.

Its sizes are those of its tensors. Its texts are cut by a vocabulary that lies beside it.
"""

import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from weft_export.checkpoints.directory import LoadedCheckpoint
from weft_export.checkpoints.files import HELD_OUT_FILE
from weft_export.checkpoints.formats import RWKV_CONFIG
from weft_export.checkpoints.weights import Entry
from weft_export.converters.convert import convert_tensors
from weft_export.converters.generation import GENERATION_FILE
from weft_export.converters.pickles import read_pickle
from weft_export.converters.tensors import NamedTensors, entry_of
from weft_export.converters.text.world import END_ID, write_tokenizer
from weft_export.errors import CheckpointError
from weft_export.options import ExportOptions
from weft_proto.bundle_rules import CONFIG_FILE

_IS_SEVEN = "blocks.0.att.r_k"
# Of each other kind a tensor that those before it in this table lack.
_OTHERS = {
    "blocks.0.ffn.s_emb.weight": "an RWKV 7 with DeepEmbed",
    _IS_SEVEN: "",
    "blocks.0.att.time_maa_x": "an RWKV 6",
    "blocks.0.att.ln_x.weight": "an RWKV 5",
    "blocks.0.att.time_decay": "an RWKV 4",
}
_MAX_DIGITS = 6
_HEAD = 64
"""As its authors' kernels have them. The norm of a head's output goes by it."""
# What stands at the top, in a layer, and in its part for time: theirs, and as flash-linear-attention calls it.
_TOP = {"emb": "model.embeddings", "ln_out": "model.norm", "head": "lm_head"}
_ROOMS = {"ln0": "pre_norm", "ln1": "attn_norm", "ln2": "ffn_norm", "att": "attn"}
_VECTORS = {f"{letter}0": f"{letter}_lora.lora.2.bias" for letter in "wav"}
_MATRICES = {
    f"{letter}{number}": f"{letter}_lora.lora.{2 * number - 2}.weight" for letter in "wavg" for number in (1, 2)
}
_TIME = {
    **_VECTORS,
    **_MATRICES,
    "receptance": "r_proj",
    "key": "k_proj",
    "value": "v_proj",
    "output": "o_proj",
    "ln_x": "g_norm",
}


def convert_file(path: Path, options: ExportOptions, *, filled: bool = True) -> LoadedCheckpoint:
    """Read a .pth of RWKV 7, and the vocabulary beside it; the model is in eval mode and float32.

    Raises:
        CheckpointError: the file holds something else, the vocabulary is missing, or as `convert`.
    """
    tensors = read_pickle(path)
    _check_kind(path, tensors)
    config = _config_of(path, tensors)
    stored = _named(path, tensors)
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch) / path.stem
        directory.mkdir()
        write_tokenizer(path.parent, directory, config["vocab_size"])
        try:
            (directory / CONFIG_FILE).write_text(json.dumps(config))
            (directory / GENERATION_FILE).write_text(json.dumps({"eos_token_id": END_ID, "pad_token_id": END_ID}))
            converted = convert_tensors(directory, config, lambda _: stored, options, filled=filled)
        except CheckpointError as error:
            raise CheckpointError(str(error).replace(str(directory), str(path))) from error
    return replace(converted, held_out=path.parent / HELD_OUT_FILE)


def _check_kind(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Raise CheckpointError for other versions, and for what is no RWKV."""
    kind = next((kind for name, kind in _OTHERS.items() if name in tensors), "no RWKV")
    if kind:
        raise CheckpointError(f"{path} is {kind}: of files that end in .pth, those of an RWKV 7 are read")


def _config_of(path: Path, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Return what config.json of the same model would say. How far the tensors fit it is seen later."""
    numbers = [name.split(".")[1] for name in tensors if name.startswith("blocks.")]
    layers = {int(number) for number in numbers if number.isdecimal() and len(number) < _MAX_DIGITS}

    def shape(name: str) -> tuple[int, int]:
        sizes = tuple(tensors[name].shape) if name in tensors else ()
        if len(sizes) != 2:
            raise CheckpointError(f"{path} has no matrix {name}")
        return sizes[0], sizes[1]

    vocab_size, width = shape("emb.weight")
    # Of a single layer there is no first one whose values it takes.
    value = "blocks.1.att.v1" if len(layers) > 1 else "blocks.0.att.w1"
    head = shape(_IS_SEVEN)[1]
    if head != _HEAD:
        raise CheckpointError(f"{path}: its heads have {head} numbers; those of {_HEAD} are read")
    return {
        **RWKV_CONFIG,
        "vocab_size": vocab_size,
        "hidden_size": width,
        "num_hidden_layers": max(layers) + 1,
        "head_dim": head,
        "intermediate_size": shape("blocks.0.ffn.key.weight")[0],
        "decay_low_rank_dim": shape("blocks.0.att.w1")[1],
        "a_low_rank_dim": shape("blocks.0.att.a1")[1],
        "v_low_rank_dim": shape(value)[1],
        "gate_low_rank_dim": shape("blocks.0.att.g1")[1],
    }


def _named(path: Path, tensors: Mapping[str, Tensor]) -> NamedTensors:
    """Return the tensors under the names that the converter asks for."""
    stored = NamedTensors()
    stored.paths, stored.is_pickle = [path], True
    for name, tensor in tensors.items():
        stored.add(path, _called(name), *_as_ours(name, tensor))
    return stored


def _as_ours(name: str, tensor: Tensor) -> tuple[Entry, Callable[[], Tensor]]:
    """Return what is said of a tensor, and what reads it: two matrices of low rank are stored as [in, out]."""
    last = name.rpartition(".")[2]
    if last in _MATRICES and tensor.dim() == 2:
        tensor = tensor.t()
    elif last in _VECTORS:
        tensor = tensor.flatten()
    return entry_of(tensor), tensor.contiguous


def _called(name: str) -> str:
    """Return what a tensor is called in a directory of flash-linear-attention. What is unknown keeps its name."""
    first, _, rest = name.partition(".")
    if first != "blocks":
        return f"{_TOP.get(first, first)}.{rest}"
    number, _, inside = rest.partition(".")
    room, _, part = inside.partition(".")
    if room == "att":
        what, dot, more = part.partition(".")
        part = _TIME.get(what, what) + dot + more
    return f"model.layers.{number}.{_ROOMS.get(room, room)}.{part}"
