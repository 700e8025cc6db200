"""What configs and weights of decoder-only models have in common."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from weft_export.converters.converter import Foreign
from weft_export.converters.rotation import read_rotation, turned_numbers
from weft_export.converters.sources import Names, Source
from weft_export.families.decoder_only import DecoderOnlyConfig
from weft_export.layers.positions import Rotation
from weft_export.layers.style import Style
from weft_export.layers.words import WordStyle


def read_sizes(foreign: Foreign, style: Style, words: WordStyle, *, longest: bool = False) -> DecoderOnlyConfig:
    """Read the sizes under the names that most configs give them.

    longest: no text can be longer than max_position_embeddings, because each place has a weight.
    """
    fields = foreign.fields
    d_model, num_heads = fields.whole("hidden_size"), fields.whole("num_attention_heads")
    positions = fields.whole("max_position_embeddings", 2048)
    head_dim = fields.whole("head_dim", d_model // max(num_heads, 1))
    return DecoderOnlyConfig(
        vocab_size=fields.whole("vocab_size"),
        max_tokens=foreign.max_tokens(positions) if longest else foreign.max_tokens(None, min(2048, positions)),
        d_model=d_model,
        num_heads=num_heads,
        num_kv_heads=fields.whole("num_key_value_heads", num_heads),
        d_ff=fields.whole("intermediate_size"),
        num_layers=fields.whole("num_hidden_layers"),
        style=style if head_dim * num_heads == d_model else replace(style, head_dim=head_dim),
        words=words,
    )


def turned(
    foreign: Foreign, config: DecoderOnlyConfig, *, theta: float = 10000.0, share: float = 1.0
) -> DecoderOnlyConfig:
    """Return the sizes with the one rotation that all layers have."""
    rotation = read_rotation(foreign.fields, config.head_dim, config.max_tokens, theta=theta, share=share)
    return replace(config, rotations=(rotation,))


def head_names(tokens: str, projection: str) -> Names:
    """Return the sources of the words: their table of tokens, and their output projection."""
    return {
        "words.tokens.weight": f"{tokens}.weight",
        "words.projection.weight": f"{projection}.weight",
        # No file has it: it holds the tokens that are never written.
        "words.bias": Source((f"{tokens}.weight",), lambda table: table.new_zeros(len(table))),
    }


def paired(rotation: Rotation, heads: int, head_dim: int) -> Sequence[int] | None:
    """Return the rows of queries or keys in our order, for `heads` heads. None: theirs is ours.

    We turn number i with i + head_dim / 2. Who turns only the first r numbers of a head turns i with i + r / 2.
    """
    turns = turned_numbers(rotation)
    if turns == head_dim:
        return None
    half, still = turns // 2, (head_dim - turns) // 2
    order = [*range(half), *range(turns, turns + still), *range(half, turns), *range(turns + still, head_dim)]
    return [head * head_dim + number for head in range(heads) for number in order]


def in_order(rows: Sequence[int] | None, tensor: Tensor) -> Tensor:
    """Return the rows of a matrix or the numbers of a bias in an order, as `paired` gives it."""
    return tensor if rows is None else tensor.index_select(0, torch.tensor(rows, device=tensor.device))
