"""What a model reads of the pictures of a prompt: each as a whole, or in tiles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft_proto.fitting import Fitted, aspect_fault
from weft_proto.splitting import Split, split_text
from weft_proto.tiling import cuts, cuts_some, places_of
from weft_server.errors import InvalidRequest
from weft_server.preprocessing.image_file import FIELD
from weft_server.preprocessing.images import load_picture, shown_region, shown_size
from weft_server.preprocessing.pictured_prompt import check_count, pictured
from weft_server.preprocessing.tiles import (
    load_cells,
    load_split,
    load_square,
    load_tiles,
    split_regions,
    square_region,
    tile_grid,
)
from weft_server.source import Cells, Pixels, PlaceGrid

if TYPE_CHECKING:
    from weft_proto.v1 import bundle_pb2
    from weft_server.preprocessing.images import PictureBounds
    from weft_server.preprocessing.pictured_prompt import PicturedPrompt, PromptPicture
    from weft_server.preprocessing.wanted import Wanted


class PictureViews:
    """Those of one model. Each method raises what is wrong with a picture under the picture's own field."""

    def __init__(self, spec: bundle_pb2.ImageSpec, bounds: PictureBounds) -> None:
        self._spec, self._bounds = spec, bounds
        self._grid = (spec.grid_rows, spec.grid_columns)

    def cut(self, pictures: list[PromptPicture], wanted: Wanted) -> list[PromptPicture]:
        """Return the pictures of a prompt, with how each is cut into tiles."""
        if not cuts_some(self._spec, len(pictures)):
            return pictures
        sizes = []
        for picture in pictures:
            with picture.named():
                size = shown_size(picture.image.data, self._bounds, wanted)
                if self._spec.tiling.max_pixels and (fault := aspect_fault(*size)) is not None:
                    raise InvalidRequest(FIELD, fault)
                sizes.append(size)
        found = zip(pictures, cuts(self._spec, sizes), strict=True)
        return [picture._replace(cut=cut) for picture, cut in found]

    def num_places(self, pictures: list[PromptPicture]) -> int:
        """Return how many tokens of a prompt stand for pictures."""
        return sum(sum(places_of(self._spec, each.cut)) for each in pictures)

    def framed(self, text: str, pictures: list[PromptPicture], token: str) -> str:
        """Return a prompt with the texts around tiles. In it `token` stands for each stretch of a picture's places.

        In `text`, it stands for each picture. Raises InvalidRequest where it stands there more often, or less.
        """
        if not self._spec.tiling.longest_edge:
            return text
        around = text.split(token)
        check_count(len(around) - 1, len(pictures))
        found = around[0]
        for picture, behind in zip(pictures, around[1:], strict=True):
            assert isinstance(picture.cut, Split), "a picture is not cut. This is a bug."
            found += split_text(self._spec.tiling, picture.cut.grid, token) + behind
        return found

    def prompt_of(self, ids: list[int], pictures: list[PromptPicture], image_id: int) -> PicturedPrompt:
        """Return a prompt in which each picture has all of its places. Raises as `pictured` does."""
        return pictured(ids, pictures, image_id, [places_of(self._spec, each.cut) for each in pictures])

    def grids(self, picture: PromptPicture, wanted: Wanted) -> list[tuple[PlaceGrid, ...]]:
        """Return how the places of a picture lie on it, for each stretch of them."""
        rows, columns = self._grid
        num_class_tokens = self._spec.num_class_tokens
        if not rows * columns and picture.cut is None:
            return [()]
        if isinstance(picture.cut, Split):
            return [(PlaceGrid(0, rows, columns, columns, region),) for region in split_regions(picture.cut)]
        if isinstance(picture.cut, Fitted):
            rows, columns = picture.cut.grid
            return [(PlaceGrid(0, rows, columns, columns, None),)]
        if picture.cut is not None:
            return [(PlaceGrid(0, rows, columns, columns, None), tile_grid(self._spec, picture.cut))]
        with picture.named():
            size = shown_size(picture.image.data, self._bounds, wanted)
        region = square_region(*size) if self._spec.HasField("tiling") else shown_region(self._spec, *size)
        return [(PlaceGrid(num_class_tokens, rows, columns, columns, region),)]

    def read(self, picture: PromptPicture, wanted: Wanted) -> list[Pixels]:
        """Return what the encoder reads of a picture."""
        data, spec, bounds = picture.image.data, self._spec, self._bounds
        with picture.named():
            if isinstance(picture.cut, Fitted):
                return [Cells(load_cells(data, spec, bounds, picture.cut, wanted), picture.cut.grid)]
            if picture.cut is not None:
                load = load_split if isinstance(picture.cut, Split) else load_tiles
                tiles = load(data, spec, bounds, picture.cut, wanted)  # type: ignore[arg-type]  # of its kind
            elif spec.HasField("tiling"):
                tiles = [load_square(data, spec, bounds, wanted)]
            else:
                tiles = [load_picture(data, spec, *bounds, wanted).pixels]
        return [Pixels(each, self._grid, spec.num_class_tokens) for each in tiles]
