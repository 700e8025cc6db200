"""Two linear layers beside a body, as FlagEmbedding saves them: each token gets a vector and a weight.

See "BGE M3-Embedding", Chen et al. 2024.
"""

from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor

from weft_export.checkpoints.formats import TOKEN_VECTORS, TOKEN_WEIGHTS
from weft_export.converters.converter import HfCheckpoint
from weft_export.converters.pickles import read_pickle
from weft_export.converters.sources import Names, Source
from weft_export.converters.text.side import read_text_side
from weft_export.errors import CheckpointError
from weft_export.families.text_embedder import TokenWeights

_PARTS = ("weight", "bias")


def weighs_tokens(directory: Path) -> bool:
    """Whether a directory has both layers. FlagEmbedding makes no use of one alone."""
    return all((directory / name).exists() for name in (TOKEN_VECTORS, TOKEN_WEIGHTS))


def token_weights(hf: HfCheckpoint, vocab_size: int) -> TokenWeights:
    """Return which tokens have no weight: the first of a text, and those of ends, filling and unknown words."""
    of_class = {"model_type": hf.fields.raw("model_type"), "tokenizer_class": hf.fields.raw("tokenizer_class")}
    side = read_text_side(hf.directory, of_class, vocab_size)
    framed = Tokenizer.from_buffer(side.files[side.source_tokenizer]).encode("").ids
    ids = {*framed[:1], side.eos_id, side.pad_id, side.unk_id} - {None}
    return TokenWeights(tuple(sorted(each for each in ids if each is not None)))


def token_names(directory: Path, width: int) -> Names:
    """Return the sources of the layer of tokens. Its last row makes weights, the others a vector of `width` numbers.

    Raises:
        CheckpointError: a file is no linear layer of that width.
    """
    vectors, weights = _layer(directory / TOKEN_VECTORS, width, width), _layer(directory / TOKEN_WEIGHTS, 1, width)
    return {f"of_tokens.{part}": _joined(vectors[part], weights[part]) for part in _PARTS}


def _joined(vectors: Tensor, weights: Tensor) -> Source:
    return Source((), lambda: torch.cat((vectors.float(), weights.float())))


def _layer(path: Path, outputs: int, inputs: int) -> dict[str, Tensor]:
    stored = read_pickle(path)
    shapes = {name: tuple(tensor.shape) for name, tensor in stored.items()}
    expected = {"weight": (outputs, inputs), "bias": (outputs,)}
    if shapes != expected or not all(tensor.is_floating_point() for tensor in stored.values()):
        raise CheckpointError(f"{path} has {shapes!s:.120}; a linear layer of {inputs} to {outputs} numbers is needed")
    return stored
