"""What a model reads of the pictures of a prompt: each as a whole, or one that is alone in tiles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft_proto.questions import picture_places
from weft_proto.tiling import tiled
from weft_server.preprocessing.images import load_picture, shown_region, shown_size
from weft_server.preprocessing.pictured_prompt import pictured
from weft_server.preprocessing.tiles import load_square, load_tiles, square_region, tile_grid
from weft_server.source import Pixels, PlaceGrid

if TYPE_CHECKING:
    from weft_proto.v1 import bundle_pb2
    from weft_server.preprocessing.images import PictureBounds
    from weft_server.preprocessing.pictured_prompt import PicturedPrompt, PromptPicture
    from weft_server.preprocessing.wanted import Wanted


class PictureViews:
    """Those of one model. Each method raises what is wrong with a picture under the picture's own field."""

    def __init__(self, spec: bundle_pb2.ImageSpec, bounds: PictureBounds) -> None:
        self._spec, self._bounds = spec, bounds
        self._num_places = picture_places(spec)
        self._grid = (spec.grid_rows, spec.grid_columns)

    def cut(self, pictures: list[PromptPicture], wanted: Wanted) -> list[PromptPicture]:
        """Return the pictures of a prompt. One that is alone is cut into tiles, if the model reads such."""
        if len(pictures) != 1 or not self._spec.HasField("tiling"):
            return pictures
        (picture,) = pictures
        with picture.named():
            size = shown_size(picture.image.data, self._bounds, wanted)
        return [picture._replace(cut=tiled(self._spec, *size))]

    def num_more(self, pictures: list[PromptPicture]) -> int:
        """Return how many tokens more a prompt has than its template wrote, which is one for each picture."""
        return sum(map(self._places_of, pictures)) - len(pictures)

    def prompt_of(self, ids: list[int], pictures: list[PromptPicture], image_id: int) -> PicturedPrompt:
        """Return a prompt in which each picture has all of its places. Raises as `pictured` does."""
        return pictured(ids, pictures, image_id, list(map(self._places_of, pictures)))

    def _places_of(self, picture: PromptPicture) -> int:
        """Those of one view, or of the whole picture and of its tiles."""
        return self._num_places if picture.cut is None else self._num_places - 1 + picture.cut.num_places

    def grids(self, picture: PromptPicture, wanted: Wanted) -> tuple[PlaceGrid, ...]:
        """Return how the places of a picture lie on it. Of one in tiles, those of the whole come first."""
        rows, columns = self._grid
        num_class_tokens = self._spec.num_class_tokens
        if picture.cut is not None:
            return PlaceGrid(0, rows, columns, columns, None), tile_grid(self._spec, picture.cut)
        with picture.named():
            size = shown_size(picture.image.data, self._bounds, wanted)
        region = square_region(*size) if self._spec.HasField("tiling") else shown_region(self._spec, *size)
        return (PlaceGrid(num_class_tokens, rows, columns, columns, region),)

    def read(self, picture: PromptPicture, wanted: Wanted) -> list[Pixels]:
        """Return what the encoder reads of a picture."""
        data, spec, bounds = picture.image.data, self._spec, self._bounds
        with picture.named():
            if not spec.HasField("tiling"):
                tiles = [load_picture(data, spec, *bounds, wanted).pixels]
            elif picture.cut is None:
                tiles = [load_square(data, spec, bounds, wanted)]
            else:
                tiles = load_tiles(data, spec, bounds, picture.cut, wanted)
        return [Pixels(each, self._grid, spec.num_class_tokens) for each in tiles]
