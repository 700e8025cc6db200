"""Qwen2-VL ("Enhancing Vision-Language Model's Perception ... at Any Resolution", Wang et al. 2024), and 2.5 after it.

A picture is read at a size near its own. An encoder turns its patches by row and column. Those of a cell become one
place of the prompt, which has three positions: the decoder turns heads by all of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from weft_export.families.decoder_only import ALL
from weft_export.families.pictured_decoder import PicturedDecoder, PicturedDecoderConfig
from weft_export.families.sizes import require_among, require_each_layer, require_head, require_sizes
from weft_export.layers.cached_attention import KeyValue
from weft_export.layers.cells import Windows, patches_of, places_of_patches
from weft_export.layers.encoder import EncoderLayer
from weft_export.layers.feed_forward import ACTIVATIONS
from weft_export.layers.positions import Rope, interleaved_at, rope_tables, turned_at
from weft_export.layers.run import Run
from weft_export.layers.style import Style
from weft_proto.sight import NUM_AXES


@dataclass(frozen=True, kw_only=True)
class CellSightConfig:
    """What sees a picture of cells, which are square.

    cell: so many patches down and across become one place.
    max_places: of a picture.
    gated, rms_norm: as in Style; the second version has both.
    windows: so many cells down and across see each other, for each layer. ALL: all do. Empty: all do in all layers.
    rope_theta: of the rotation.
    """

    channels: int
    patch_size: int
    cell: int
    max_places: int
    d_model: int
    num_heads: int
    d_ff: int
    num_layers: int
    activation: str = "quick_gelu"
    norm_eps: float = 1e-6
    gated: bool = False
    rms_norm: bool = False
    windows: tuple[int, ...] = ()
    rope_theta: float = 10000.0

    def __post_init__(self) -> None:
        require_sizes(self)
        require_among("activation", self.activation, tuple(ACTIVATIONS))
        require_head("d_model / num_heads", self.d_model, self.num_heads, 4)
        require_each_layer("windows", self.windows, self.num_layers, ALL, self.max_places)

    @property
    def image_height(self) -> int:
        """Of a cell, in pixels."""
        return self.cell * self.patch_size

    @property
    def image_width(self) -> int:
        """Of a cell, in pixels."""
        return self.cell * self.patch_size

    @property
    def tiled(self) -> str:
        """How pictures become cells: see TilingSpec."""
        return "max_pixels"

    @property
    def grid(self) -> tuple[int, int]:
        """Places of a cell."""
        return 1, 1

    @property
    def num_places(self) -> int:
        """Places of a cell."""
        return 1


@dataclass(frozen=True, kw_only=True)
class QwenVlConfig(PicturedDecoderConfig):
    """A decoder, and what sees pictures for it. sections: see turned_at. interleaved: see interleaved_at."""

    sight: CellSightConfig
    sections: tuple[int, ...]
    interleaved: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.rotations) != 1 or self.rotation_of:
            raise ValueError("a decoder whose places have three positions has one rotation, in all layers")
        if min(self.sections, default=-1) < 0 or sum(self.sections) != self.head_dim // 2:
            raise ValueError(f"model.sections has {sum(self.sections)} pairs; a head has {self.head_dim // 2}")
        if self.interleaved and len(self.sections) != NUM_AXES:
            raise ValueError(f"model.sections has {len(self.sections)} numbers; interleaved ones are {NUM_AXES}")


class CellTower(nn.Module):
    """The encoder, and what makes places of the prompt of its cells."""

    cos: Tensor
    sin: Tensor

    def __init__(self, sight: CellSightConfig, d_out: int) -> None:
        super().__init__()
        self.sight = sight
        width, wide = sight.d_model, sight.cell**2 * sight.d_model
        style = Style(rms_norm=sight.rms_norm, norm_eps=sight.norm_eps, activation=sight.activation, gated=sight.gated)
        self.patches = nn.Linear(sight.channels * sight.patch_size**2, width, bias=False)
        # Any: torch does not type the items of a ModuleList.
        self.layers: Any = nn.ModuleList(
            EncoderLayer(width, sight.num_heads, sight.d_ff, 0.0, style) for _ in range(sight.num_layers)
        )
        self.norm = style.plain_norm(width)
        self.linear_1 = nn.Linear(wide, wide)
        self.linear_2 = nn.Linear(wide, d_out)
        pairs = width // sight.num_heads // 4
        frequencies = tuple(1.0 / sight.rope_theta ** (pair / pairs) for pair in range(pairs))
        cos, sin = rope_tables(sight.max_places * sight.cell, Rope(frequencies))
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def forward(self, cells: Tensor) -> Tensor:
        """Map pixels [batch, rows, columns, channels, height, width] to [batch, rows * columns, d_out]."""
        sight, (rows, columns) = self.sight, cells.shape[1:3]
        x = self.patches(patches_of(cells.to(self.cos.dtype), sight.patch_size))
        cos, sin = places_of_patches((self.cos, self.sin), rows, columns, sight.cell)
        everywhere = cos.flatten(0, 2), sin.flatten(0, 2)
        seen = {size: self._seen(Windows(rows, columns, size), (cos, sin), x) for size in {*sight.windows} - {ALL}}
        for layer, size in zip(self.layers, sight.windows or (ALL,) * sight.num_layers, strict=True):
            if size == ALL:
                x = layer(x, None, None, None, everywhere)
                continue
            windows, bias, near = seen[size]
            given = layer.before(layer.attention_norm, x).unflatten(1, (rows, columns, sight.cell**2))
            attended = windows.taken(layer.attention.encode(windows.put(given), None, bias, None, near), sight.cell**2)
            out = layer.after(layer.attention_norm, x, attended.flatten(1, 3))
            x = layer.fed(layer.feed_forward_norm, layer.feed_forward, x, out)
        merged = self.norm(x).unflatten(1, (rows * columns, sight.cell**2)).flatten(2)
        features: Tensor = self.linear_2(nn.functional.gelu(self.linear_1(merged)))
        return features

    def _seen(self, windows: Windows, tables: KeyValue, x: Tensor) -> tuple[Windows, Tensor, KeyValue]:
        """Return windows with what is added to their scores, and what turns their patches, for each row of x."""
        num_patches, batch = self.sight.cell**2, x.shape[0]
        bias = windows.unseen(num_patches, x.dtype)
        bias = bias.expand(-1, -1, bias.shape[-1], -1)
        cos, sin = (windows.put(table[None].expand(batch, -1, -1, -1, -1)) for table in tables)
        return windows, bias[None].expand(batch, -1, -1, -1, -1).flatten(0, 1), (cos, sin)


class QwenVl(PicturedDecoder):
    """See PicturedDecoder. `see` reads cells."""

    offsets_positions = True

    config: QwenVlConfig
    tower_class: type[Any] = CellTower

    def __init__(self, config: QwenVlConfig) -> None:
        super().__init__(config)
        self.tower = self.tower_class(config.sight, config.d_model)

    def see(self, pixel_values: Tensor) -> Tensor:
        """See Writer. Of one picture, or of several of one size."""
        features: Tensor = self.tower(pixel_values)
        return features

    def shown(self, *source: Tensor) -> Tensor:
        """See Writer. source: the cells of each picture; what is returned has their places behind each other."""
        return torch.cat([self.see(cells) for cells in source], dim=1)

    def offsets(self, ids: Tensor, *source: Tensor) -> Tensor:
        """See Writer."""
        seq, grids = ids.shape[1], [tuple(cells.shape[1:3]) for cells in source]
        positions = torch.zeros(seq + 1, NUM_AXES, dtype=torch.int64)
        place = at = 0
        while place < seq:
            if int(ids[0, place]) != self.config.vocab_size:
                positions[place] = at
                place, at = place + 1, at + 1
                continue
            rows, columns = grids.pop(0)
            count = min(rows * columns, seq - place)
            cell = torch.arange(count)
            positions[place : place + count] = at + torch.stack((cell * 0, cell // columns, cell % columns), dim=1)
            place, at = place + count, at + max(rows, columns)
        positions[seq] = at
        return (positions - torch.arange(seq + 1)[:, None])[None]

    def decode(self, target_ids: Tensor, *source: Tensor) -> Tensor:
        """Return logits [1, target, vocab] of a prompt with the pictures of `source`, see `shown`."""
        features = self.placed(target_ids, self.shown(*source) if source else None)
        places = torch.arange(target_ids.shape[1])[:, None]
        rotary = self._turned(places + self.offsets(target_ids, *source)[:, :-1])
        read, added = self._read(target_ids, None, features), self._added(target_ids, features)
        return self.logits(self.through(read, rotary, added=added))

    def rotary_of(self, run: Run) -> Sequence[KeyValue]:
        """See CausalTransformer."""
        return self._turned(run.positions)

    def rotary_behind(self, ids: Tensor, *beside: Tensor) -> Sequence[KeyValue]:
        """See CausalTransformer. beside: features and position offsets of the prompt."""
        offsets = beside[1]
        given = torch.arange(offsets.shape[1])[None, :, None] + offsets
        behind = 1 + given.amax(dim=(1, 2)) + torch.arange(ids.shape[1] - offsets.shape[1])
        return self._turned(torch.cat((given, behind[None, :, None].expand(-1, -1, NUM_AXES)), dim=1))

    def _turned(self, positions: Tensor) -> Sequence[KeyValue]:
        turned = interleaved_at if self.config.interleaved else turned_at
        tables = turned(self._tables(0), positions, self.config.sections)
        return (tables,) * len(self.layers)
